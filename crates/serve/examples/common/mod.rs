//! Code that the examples share: options on the command line, a listener, and an end on SIGINT and
//! SIGTERM.
#![allow(dead_code)] // each example uses its own part

use std::io;
use std::sync::{Arc, OnceLock, mpsc};

use windlass::process::signal;
use windlass::{Address, Completions, Op, Watcher};
use windlass_serve::{Handler, Remote, Report, Server};

#[path = "../../../../examples/common/options.rs"]
mod options;

pub(crate) use options::Options;

/// The options that all examples have, and the handle that ends the server.
pub(crate) struct Setup {
    port: u16,
    loops: usize,
    pub(crate) started: Started,
}

impl Setup {
    /// Takes `--port` and `--loops`, or these defaults. If any option is left over, prints the
    /// usage and exits. Then watches SIGINT and SIGTERM.
    pub(crate) fn new(mut options: Options, port: u16, loops: usize) -> io::Result<Setup> {
        let port = options.take("--port").unwrap_or(port);
        let loops = options.take("--loops").unwrap_or(loops);
        options.end();
        Ok(Setup { port, loops, started: end_on_signals()? })
    }

    /// Serves until the server ends, and prints the number of its connections.
    pub(crate) fn run<H: Handler, F: Fn(usize) -> H + Sync>(
        &self,
        server: Server<F>,
    ) -> io::Result<()> {
        let report = self.serve(server, "tcp", "")?;
        println!("{} connections", report.counts.accepted);
        Ok(())
    }

    /// Serves at a port of this scheme, with these settings of the address.
    pub(crate) fn serve<H: Handler, F: Fn(usize) -> H + Sync>(
        &self,
        server: Server<F>,
        scheme: &str,
        settings: &str,
    ) -> io::Result<Report> {
        let address = format!("{scheme}://127.0.0.1:{}{settings}", self.port);
        server.loops(self.loops).listen(&address)?.run()
    }
}

/// The handle of a server for other threads, once it serves.
pub(crate) type Started = Arc<OnceLock<Remote>>;

/// Shuts the server down on SIGINT and SIGTERM. Call it before the server starts: later, a burst of
/// connections could use up the descriptors that this function needs.
fn end_on_signals() -> io::Result<Started> {
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

/// For a handler's `serving`: each loop calls it, and the first one prints the addresses.
pub(crate) fn serving(started: &Started, server: &Remote, addresses: &[Address]) {
    if started.set(server.clone()).is_ok() {
        addresses.iter().for_each(|address| println!("listening on {address}"));
    }
}
