//! What the examples share: options on the command line, and an end on SIGINT and SIGTERM.
#![allow(dead_code)] // each example uses its own part

use std::io;
use std::str::FromStr;
use std::sync::{Arc, OnceLock, mpsc};

use windlass::process::signal;
use windlass::{Address, Completions, Op, Watcher};
use windlass_serve::Remote;

/// The handle of a server for other threads, once it serves.
pub(crate) type Started = Arc<OnceLock<Remote>>;

/// Shuts the server down on SIGINT and SIGTERM. Call it before the server starts: a burst of
/// connections can use up the descriptors that it needs.
pub(crate) fn end_on_signals() -> io::Result<Started> {
    let started = Started::default();
    let server = Arc::clone(&started);
    let (tell, is_ready) = mpsc::channel();
    Watcher::builder().spawn("signals", move |mut watcher| {
        let source = watcher.signals(&[signal::SIGINT, signal::SIGTERM])?;
        watcher.submit(Op::signal(source))?;
        tell.send(()).expect("the caller waits for it");
        watcher.wait(&mut Completions::new())?;
        match server.get() {
            Some(server) => server.shutdown(),
            None => std::process::exit(0),
        }
        Ok(())
    })?;
    match is_ready.recv() {
        Ok(()) => Ok(started),
        Err(_) => Err(io::Error::other("SIGINT and SIGTERM cannot be watched")),
    }
}

/// For a handler's `serving`: each loop calls it, and the first one tells where the server listens.
pub(crate) fn serving(started: &Started, server: &Remote, addresses: &[Address]) {
    if started.set(server.clone()).is_ok() {
        addresses.iter().for_each(|address| println!("listening on {address}"));
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
        Options { usage, words: std::env::args().skip(1).collect() }
    }

    /// Takes the value of `name`, or the default if it was not given. Explains the usage and exits
    /// if the value is none of this type.
    pub(crate) fn take<T: FromStr>(&mut self, name: &str, default: T) -> T {
        let Some(at) = self.words.iter().position(|word| word == name) else { return default };
        let value = self.words.get(at + 1).and_then(|word| word.parse().ok());
        self.words.drain(at..self.words.len().min(at + 2));
        value.unwrap_or_else(|| self.explain())
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
