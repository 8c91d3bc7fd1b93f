//! Code that the examples share: options on the command line, a listener, signals, and the end of a
//! source whose operation is refused.
#![allow(dead_code)] // each example uses its own part

use std::io;
use std::time::{Duration, Instant};

use windlass::process::signal::{SIGINT, SIGTERM};
use windlass::{Address, Op, Refusal, Refused, Source, Watcher};

mod options;

pub(crate) use options::Options;

/// Listens at an address, before the loop starts. While the address is in use, retries for two
/// seconds: when a server on io_uring is killed, the kernel closes its listener a moment later.
pub(crate) fn listen(watcher: &mut Watcher, at: impl Into<Address>) -> io::Result<Source> {
    let at = at.into();
    let until = Instant::now() + Duration::from_secs(2);
    loop {
        match watcher.listen(at.clone()) {
            // Not for a Unix path, which stays in use as long as its file exists. No event tells
            // when the address is free, so the program has to try again.
            Err(error)
                if error.kind() == io::ErrorKind::AddrInUse
                    && at.ip().is_some()
                    && Instant::now() < until =>
            {
                std::thread::sleep(Duration::from_millis(20));
            }
            answer => return answer,
        }
    }
}

/// Takes SIGINT and SIGTERM: the first one completes as `Done::Signal`. Call it before the first
/// accept: a burst of connections can use up the descriptor that it needs.
pub(crate) fn signals(watcher: &mut Watcher) -> io::Result<()> {
    let signals = match watcher.signals(&[SIGINT, SIGTERM]) {
        // Windows: Ctrl-C ends the program at once.
        Err(Refusal::Unsupported) => return Ok(()),
        signals => signals?,
    };
    watcher.submit(Op::signal(signals))?;
    Ok(())
}

/// Submits an operation. If it is refused, its source ends. (Inlined: with a constructor as its
/// argument the compiler chooses the operation's path, and not the program as it runs.)
#[inline(always)]
pub(crate) fn submit(watcher: &mut Watcher, op: Op) {
    if let Err(refused) = watcher.submit(op) {
        end(watcher, &refused);
    }
}

#[cold]
fn end(watcher: &mut Watcher, refused: &Refused<Op>) {
    // Stale: an earlier completion of the same batch has ended the source.
    if refused.reason != Refusal::Stale {
        eprintln!("{refused}");
        watcher.abort(refused.value.source());
    }
}
