//! What only tests can ask of the kernel: a request that never ends.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::op::AioOp;
use super::store::Store;
use super::*;
use crate::memory::leaked::leaked_buffers;
use crate::skip::{Needs, skip};

/// A drop waits one second at most. It leaves the buffer of what has not ended then to the kernel,
/// counts it, and frees everything else.
#[test]
fn a_drop_leaves_to_the_kernel_what_does_not_end() {
    let mut files = match AioFiles::new(32) {
        Ok(files) => files,
        Err(error) => return skip(Needs::Aio, error),
    };
    let (pipe, _writer) = io::pipe().unwrap();
    let pipe: Arc<OwnedFd> = Arc::new(pipe.into());
    // A poll of a pipe that stays empty, in place of a read.
    let op = AioOp::read_at(pipe.clone(), vec![0; 4096], 0);
    let (_, request) = files.store.keep(op).unwrap();
    let start = std::ptr::without_provenance_mut(libc::POLLIN as usize);
    let code = file_request::Code::Poll;
    let stuck = EngineRequest { code, start, len: 0, fd: pipe.as_raw_fd(), ..request };
    // SAFETY: a poll names no memory.
    unsafe { files.aio.push(stuck) };
    files.flush();
    assert_eq!((files.len(), files.aio.in_kernel()), (1, 1));
    // One that has ended, and one that was held back.
    files.submit(AioOp::sync_all(OwnedFd::from(std::fs::File::open(".").unwrap()))).unwrap();
    let (_, back) = files.store.keep(AioOp::read_at(pipe.clone(), vec![0; 4096], 0)).unwrap();
    // SAFETY: the store keeps the memory.
    unsafe { files.aio.push(back) };
    assert_eq!(Arc::strong_count(&pipe), 3);

    let (before, start) = (leaked_buffers(), Instant::now());
    drop(files);
    let took = start.elapsed();
    assert!(took >= Duration::from_secs(1), "it gave up after {took:?}");
    assert!(took < Duration::from_secs(10), "it took {took:?}");
    assert!(leaked_buffers() > before, "no buffer was left to the kernel");
    assert_eq!(Arc::strong_count(&pipe), 1, "a request keeps its file");
}
