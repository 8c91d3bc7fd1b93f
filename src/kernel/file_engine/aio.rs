//! Linux AIO as a file engine: the component `AioFiles`, with requests of the proactor's own.

use std::io;

use super::NOT_BEGUN;
use super::stage::Engine;
use crate::completion::Completions;
use crate::completion::verbs::{Complete, Wait};
use crate::kernel::aio::{AioFiles, Raw};
use crate::sys::fd::{AsFd, AsRawFd, RawFd};
use crate::sys::file_request::FileCompletion;

/// Requests that a context is asked to hold.
const ENTRIES: u32 = 1024;

impl Engine for AioFiles<Raw> {
    const NAMES: (&str, &str) = ("Linux AIO", "not Linux AIO");
    const UNUSED: &str = "not opened yet: serves where no ring is available";

    fn open(most: u32) -> io::Result<AioFiles<Raw>> {
        AioFiles::open(ENTRIES, most)
    }

    fn event_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }

    fn explain(&self) -> (String, u64) {
        let reason = match self.denied().map(io::Error::from_raw_os_error) {
            Some(error) => {
                format!("io_submit(2) has failed since the context was made: {error}")
            }
            None => format!(
                "O_DIRECT and aligned, with RWF_NOWAIT; completions in one wait; {}",
                self.setup()
            ),
        };
        (reason, self.counters().submitted)
    }
}

/// Takes the answers. A denied request starts again elsewhere, unless the program chose AIO by
/// name: then it fails.
pub(super) fn take(
    aio: &mut AioFiles<Raw>,
    is_named: bool,
    into: &mut Completions<FileCompletion>,
) -> usize {
    let start = into.len();
    let taken = aio.complete(Wait::Now, into);
    debug_assert!(taken.is_ok(), "{taken:?}");
    if let Some(errno) = aio.denied().filter(|_| !is_named) {
        let failed = into.items[start..].iter_mut().filter(|answer| answer.result == -errno);
        failed.for_each(|answer| answer.result = NOT_BEGUN);
    }
    into.len() - start
}
