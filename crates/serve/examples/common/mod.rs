//! Code that the examples share: options on the command line, and a listener.
#![allow(dead_code)] // each example uses its own part

use std::io;
use std::sync::{Arc, OnceLock};

use windlass_serve::{Handler, Remote, Server, report::Report};

#[path = "../../../../examples/common/options.rs"]
mod options;

pub(crate) use options::Options;

/// The options that all examples have, and the handle that reaches the server.
pub(crate) struct Setup {
    port: u16,
    loops: usize,
    pub(crate) started: Started,
}

/// The handle of a server for other threads, once it serves.
pub(crate) type Started = Arc<OnceLock<Remote>>;

impl Setup {
    /// Takes `--port` and `--loops`, or these defaults. If any option is left over, prints the
    /// usage and exits.
    pub(crate) fn new(mut options: Options, port: u16, loops: usize) -> Setup {
        let port = options.take("--port").unwrap_or(port);
        let loops = options.take("--loops").unwrap_or(loops);
        options.end();
        Setup { port, loops, started: Started::default() }
    }

    /// Serves until the server ends, and prints the number of its connections.
    pub(crate) fn run<H, F>(&self, server: Server<F>) -> io::Result<()>
    where
        H: Handler,
        F: Fn(usize) -> H + Send + Sync + 'static,
    {
        let report = self.serve(server, "tcp", "")?;
        println!("{} connections", report.counters.accepted);
        Ok(())
    }

    /// Serves at a port of this scheme, with these settings of the address, until SIGINT or SIGTERM
    /// comes.
    pub(crate) fn serve<H, F>(
        &self,
        server: Server<F>,
        scheme: &str,
        settings: &str,
    ) -> io::Result<Report>
    where
        H: Handler,
        F: Fn(usize) -> H + Send + Sync + 'static,
    {
        let address = format!("{scheme}://127.0.0.1:{}{settings}", self.port);
        self.start(server.listen(&address)?)
    }

    /// The address of the option `--port`.
    pub(crate) fn address(&self) -> String {
        format!("tcp://127.0.0.1:{}", self.port)
    }

    /// Serves at the server's own addresses until SIGINT or SIGTERM comes.
    pub(crate) fn start<H, F>(&self, server: Server<F>) -> io::Result<Report>
    where
        H: Handler,
        F: Fn(usize) -> H + Send + Sync + 'static,
    {
        let running = server.loops(self.loops).start()?;
        self.started.get_or_init(|| running.remote());
        running.addresses().iter().for_each(|address| println!("listening on {address}"));
        running.wait()
    }
}
