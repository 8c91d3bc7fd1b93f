//! The server: callbacks over an engine.
//!
//! ```text
//! mod.rs      the type `Server`: what it is told before it runs
//! handler.rs  the callbacks, and what they are given
//! loops.rs    one loop: events into callbacks
//! address.rs  addresses to listen at     report.rs  what a server tells in the end
//! ```

mod address;
mod handler;
mod loops;
mod report;

use std::fmt;
use std::io;

use windlass::driver::Driver;
use windlass::net::ListenOptions;
use windlass::{Address, Builder, Handle, Watcher};

use crate::engine::{Budget, Config, Engine, Limits};
use address::{Listen, Place};
pub use handler::{Action, Closed, Conn, Context, Detached, Handler};
pub use loops::Running;
pub use report::{Left, Report};

/// A server with callbacks: a [`Handler`], addresses, and loops.
///
/// ```no_run
/// use windlass::Buf;
/// use windlass_serve::{Action, Conn, Handler, Server};
///
/// struct Echo;
/// impl Handler for Echo {
///     type State = ();
///     fn data(&mut self, c: &mut Conn<'_, ()>, data: Buf) -> Action {
///         c.write(data); // the same bytes, without a copy
///         Action::None
///     }
/// }
///
/// let report = Server::new(|_loop| Echo).listen("tcp://127.0.0.1:7007")?.run()?;
/// println!("{} connections", report.counts.accepted);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Server<F> {
    make: F,
    listens: Vec<Listen>,
    config: Config,
    builder: Builder,
}

impl<H: Handler, F: Fn(usize) -> H> Server<F> {
    /// A server that makes the handler of each loop by `make`, which is given the number of the
    /// loop.
    pub fn new(make: F) -> Server<F> {
        Server { make, listens: Vec::new(), config: Config::default(), builder: Watcher::builder() }
    }

    /// Adds an address: `tcp://HOST:PORT`, `tcp4://`, `tcp6://` or `unix://PATH`. Without a host it
    /// listens on all interfaces, and without a port the system chooses one. `?reuseport=true`
    /// behind it lets several servers share a port.
    ///
    /// # Errors
    /// `InvalidInput`: the scheme is unknown, the host has no address, or a setting is unknown.
    pub fn listen(mut self, address: &str) -> io::Result<Server<F>> {
        self.listens.push(Listen::parse(address)?);
        Ok(self)
    }

    /// Adds a listener that the program has made.
    pub fn listener(mut self, listener: impl Into<Handle>) -> Server<F> {
        let place = Place::Listener(listener.into());
        self.listens.push(Listen { place, reuse_port: false });
        self
    }

    /// Sets the limits of the connections.
    pub fn limits(mut self, limits: Limits) -> Server<F> {
        self.config.limits = limits;
        self
    }

    /// Sets what else an engine can be told.
    pub fn config(mut self, config: Config) -> Server<F> {
        self.config = config;
        self
    }

    /// Sets the settings of the watchers.
    pub fn watcher(mut self, builder: Builder) -> Server<F> {
        self.builder = builder;
        self
    }

    /// Serves until a callback answers [`Action::Shutdown`]. Then the server stops accepting, sends
    /// the output of every connection and closes it. What is not out after
    /// [`Limits::close`] is given up, and stands in the report.
    ///
    /// # Errors
    /// As for [`start_on`](Server::start_on), and of [`Watcher::wait`].
    pub fn run(mut self) -> io::Result<Report> {
        let mut watcher = std::mem::take(&mut self.builder).build()?;
        let mut running = self.start_on(&mut watcher)?;
        running.run(&mut watcher)?;
        Ok(running.report())
    }

    /// Starts the server on a watcher of the program's, which hands over the completions.
    ///
    /// # Errors
    /// `InvalidInput`: there is nothing to serve. As for [`Watcher::listen`]: an address cannot be
    /// had.
    pub fn start_on<D: Driver>(self, watcher: &mut Watcher<D>) -> io::Result<Running<H>> {
        if self.listens.is_empty() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "nothing to serve"));
        }
        let budget = Budget::new(self.config.limits.memory);
        let mut engine = Engine::of_loop(self.config, 0, budget);
        for listen in self.listens {
            begin(&mut engine, watcher, listen)?;
        }
        let mut running = Running::new(engine, (self.make)(0));
        running.begin(watcher)?;
        Ok(running)
    }
}

/// Listens at one address.
fn begin<S: Default, D: Driver>(
    engine: &mut Engine<S>,
    watcher: &mut Watcher<D>,
    listen: Listen,
) -> io::Result<()> {
    let options = ListenOptions::default().reuse_port(listen.reuse_port);
    match listen.place {
        Place::Tcp(addresses) => {
            let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
            for address in addresses {
                match engine.listen(watcher, address, options) {
                    Ok(_) => return Ok(()),
                    Err(error) => last = error,
                }
            }
            Err(last)
        }
        Place::Unix(path) => {
            engine.listen(watcher, Address::unix(path)?, options)?;
            Ok(())
        }
        Place::Listener(handle) => {
            engine.add_listener(watcher, handle)?;
            Ok(())
        }
    }
}

impl<F> fmt::Debug for Server<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("listens", &self.listens).finish_non_exhaustive()
    }
}
