//! What the examples share: options on the command line, a listener, signals, and what
//! happens to an operation that is refused.
#![allow(dead_code)] // each example uses its own part

use std::io;
use std::str::FromStr;
use std::time::{Duration, Instant};

use windlass::process::signal::{SIGINT, SIGTERM};
use windlass::{Address, Op, Reason, Rejected, Source, Watcher};

/// Listens at an address, before the loop starts. While the address is in use, retries for two
/// seconds: when a server on io_uring is killed, the kernel closes its listener a moment later.
pub(crate) fn listen(watcher: &mut Watcher, at: impl Into<Address>) -> io::Result<Source> {
    let at = at.into();
    let until = Instant::now() + Duration::from_secs(2);
    loop {
        match watcher.listen(at.clone()) {
            // A path that exists stays.
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
        Err(Reason::Unsupported) => return Ok(()),
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
fn end(watcher: &mut Watcher, refused: &Rejected<Op>) {
    // Stale: an earlier completion of the same batch has ended the source.
    if refused.reason != Reason::Stale {
        eprintln!("{refused}");
        watcher.abort(refused.value.source());
    }
}

/// Options of the form `--name value`.
pub(crate) struct Options {
    usage: &'static str,
    words: Vec<String>,
}

impl Options {
    /// Those that the program was started with.
    pub(crate) fn new(usage: &'static str) -> Options {
        let words = std::env::args().skip(1).collect();
        Options { usage, words }
    }

    /// Takes the value of `name`, if it was given; explains the usage and exits if it is none.
    pub(crate) fn take<T: FromStr>(&mut self, name: &str) -> Option<T> {
        let at = self.words.iter().position(|word| word == name)?;
        let value = self.words.get(at + 1).and_then(|word| word.parse().ok());
        if value.is_none() {
            self.explain();
        }
        self.words.drain(at..=at + 1);
        value
    }

    /// Whether `name` was given, which has no value.
    pub(crate) fn flag(&mut self, name: &str) -> bool {
        let at = self.words.iter().position(|word| word == name);
        at.map(|at| self.words.remove(at)).is_some()
    }

    /// Takes the first word that is left when all options were taken; explains the usage and exits
    /// if there is none.
    pub(crate) fn word(&mut self) -> String {
        if self.words.first().is_none_or(|word| word.starts_with("--")) {
            self.explain();
        }
        self.words.remove(0)
    }

    /// Explains the usage and exits if anything is left over.
    pub(crate) fn end(self) {
        if !self.words.is_empty() {
            self.explain();
        }
    }

    fn explain(&self) -> ! {
        eprintln!("usage: {}", self.usage);
        std::process::exit(2);
    }
}
