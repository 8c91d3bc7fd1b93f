//! A directory whose files are served.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

use super::options::FilesOptions;
use super::path::ServedNames;

/// A directory whose files are served.
#[derive(Debug)]
pub(crate) struct ServedDir {
    /// By which a loop finds its open files. 0 is the one without a root.
    pub(crate) number: u32,
    /// `None`: the paths are the program's own.
    pub(crate) root: Option<PathBuf>,
    pub(crate) options: FilesOptions,
}

static COUNT: AtomicU32 = AtomicU32::new(1);

/// What serves files by paths of the program.
static WITHOUT_ROOT: LazyLock<Arc<ServedDir>> = LazyLock::new(|| {
    Arc::new(ServedDir { number: 0, root: None, options: FilesOptions::new().index([""; 0]) })
});

impl ServedDir {
    pub(crate) fn new(root: PathBuf, options: FilesOptions) -> Arc<ServedDir> {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        Arc::new(ServedDir { number, root: Some(root), options })
    }

    pub(crate) fn without_root() -> Arc<ServedDir> {
        Arc::clone(&WITHOUT_ROOT)
    }

    pub(crate) fn names(&self) -> ServedNames {
        ServedNames { hidden: self.options.hidden, windows: std::path::is_separator('\\') }
    }
}
