//! A directory for one test.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

/// A directory with a directory `www` in it, which is removed at the end.
pub struct Tree(PathBuf);

impl Tree {
    pub fn new() -> Tree {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("windlass-web-files-{}-{number}", std::process::id());
        let tree = Tree(std::env::temp_dir().join(name));
        std::fs::create_dir_all(tree.www()).expect("a directory");
        tree
    }

    pub fn www(&self) -> PathBuf {
        self.0.join("www")
    }

    pub fn at(&self, path: &str) -> PathBuf {
        self.0.join(path)
    }

    /// Writes a file that was modified a day ago.
    pub fn write(&self, path: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.at(path);
        std::fs::create_dir_all(path.parent().expect("it is in the tree")).expect("a directory");
        std::fs::write(&path, bytes).expect("a file");
        age(&path, Duration::from_secs(86_400));
        path
    }

    /// Replaces a file by a new one of the same name.
    pub fn replace(&self, path: &str, bytes: impl AsRef<[u8]>) {
        let new = self.write(&format!("{path}.new"), bytes);
        std::fs::rename(new, self.at(path)).expect("a rename");
    }
}

/// Makes a file so old.
pub fn age(path: &Path, age: Duration) {
    let file = std::fs::File::options().write(true).open(path).expect("a file");
    file.set_modified(SystemTime::now() - age).expect("a time");
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Bytes that differ everywhere.
pub fn pattern(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_u32;
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    std::iter::repeat_with(next).take(len).collect()
}
