//! Reads a file with direct I/O (without the page cache) from a plain poll(2) loop: no watcher, no
//! thread.
//!
//! ```text
//! cargo run --release --example aio_poll -- FILE
//! ```
//!
//! Sixteen reads of a block each are in flight at a time. A timer in the same poll(2) prints the
//! progress.

#[cfg(all(target_os = "linux", not(windlass_kqueue)))]
fn main() -> std::io::Result<()> {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use nix::sys::time::TimeSpec;
    use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
    use std::os::fd::{AsFd, OwnedFd};
    use std::os::unix::fs::OpenOptionsExt;
    use windlass::driver::Wait;
    use windlass::fs::{AioFiles, AioOp};
    use windlass::{AlignedBuf, Complete, Completions, Done, Submit};

    const BLOCK: u64 = 256 << 10;
    let path = std::env::args().nth(1).unwrap_or("Cargo.lock".into());
    let file = std::fs::OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path)?;
    let file = std::sync::Arc::new(OwnedFd::from(file));
    let mut files = AioFiles::new(16)?;
    let (mut next, mut bytes) = (0, 0);
    while next < u64::from(files.depth()) {
        let buf = AlignedBuf::with_capacity(BLOCK as usize, 4096);
        files.submit(AioOp::read_at(file.clone(), buf, next * BLOCK))?;
        next += 1;
    }
    let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_CLOEXEC)?;
    let tick = Expiration::Interval(TimeSpec::new(0, 200_000_000));
    timer.set(tick, TimerSetTimeFlags::empty())?;

    let mut done = Completions::new();
    while !files.is_empty() {
        let watch = |fd| PollFd::new(fd, PollFlags::POLLIN);
        let mut both = [watch(files.as_fd()), watch(timer.as_fd())];
        poll(&mut both, PollTimeout::NONE)?;
        if both[1].any() == Some(true) {
            timer.wait()?;
            println!("{bytes} bytes so far");
        }
        files.complete(Wait::Now, &mut done)?;
        for completion in done.drain(..) {
            let Done::Read(buf) = completion.result? else { continue };
            bytes += buf.len() as u64;
            if buf.len() as u64 == BLOCK {
                files.submit(AioOp::read_at(file.clone(), buf, next * BLOCK))?;
                next += 1;
            }
        }
    }
    println!("{bytes} bytes");
    Ok(())
}

#[cfg(not(all(target_os = "linux", not(windlass_kqueue))))]
fn main() {
    println!("Linux AIO is on Linux only");
}
