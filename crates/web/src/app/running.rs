//! The server of an application: addresses, loops, start and end.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use windlass::driver::Driver;
use windlass::{Address, Builder, Completion, Completions, Watcher};
use windlass_serve::report::Report;
use windlass_serve::{Config, Remote, Server};

use super::serve::Loop;
use super::{App, Perform, Plan};
use crate::exchange::Machine;

/// The settings of an application's server.
pub(super) struct Settings {
    listens: Vec<Listen>,
    loops: windlass_serve::modes::Loops,
    config: Config,
    limits: windlass_serve::Limits,
    builder: Builder,
    grace: Duration,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            listens: Vec::new(),
            loops: windlass_serve::modes::Loops::One,
            config: Config::new(),
            limits: windlass_serve::Limits::new(),
            builder: Watcher::builder(),
            grace: Duration::from_secs(10),
        }
    }
}

/// Where a server listens.
enum Listen {
    Address(String),
    Listener(std::net::TcpListener),
}

impl<S: 'static> App<S> {
    /// Adds an address to listen at: `HOST:PORT`, or an address of
    /// [`Server::listen`](windlass_serve::Server::listen), as `unix:///run/web`. With port 0 the
    /// system chooses one.
    ///
    /// # Errors
    ///
    /// `InvalidInput`: it is no address.
    pub fn listen(mut self, address: &str) -> io::Result<App<S>> {
        let address =
            if address.contains("://") { address.to_owned() } else { format!("tcp://{address}") };
        self.server.listens.push(Listen::Address(address));
        Ok(self)
    }

    /// Adds a listener that the program has made.
    pub fn listener(mut self, listener: std::net::TcpListener) -> App<S> {
        self.server.listens.push(Listen::Listener(listener));
        self
    }

    /// Sets the number of loops: see [`Server::loops`](windlass_serve::Server::loops).
    pub fn loops(mut self, loops: impl Into<windlass_serve::modes::Loops>) -> App<S> {
        self.server.loops = loops.into();
        self
    }

    /// Sets the limits of connections. The idle time is [`Limits::keep_alive`], whatever they say.
    ///
    /// [`Limits::keep_alive`]: crate::Limits::keep_alive
    pub fn serve_limits(mut self, limits: windlass_serve::Limits) -> App<S> {
        self.server.limits = limits;
        self
    }

    /// Sets the builder of the watchers.
    pub fn watcher(mut self, builder: Builder) -> App<S> {
        self.server.builder = builder;
        self
    }

    /// Sets how long requests may go on when the server shuts down. Default 10 s.
    pub fn grace(mut self, span: Duration) -> App<S> {
        self.server.grace = span;
        self
    }

    /// The server, and how its loops are made.
    fn into_server(self) -> io::Result<Server<impl Fn(usize) -> Loop<S> + Send + Sync + 'static>> {
        let App { make, routes, hooks, limits, server: settings } = self;
        let plan = Arc::new(Plan { routes, hooks });
        let make_loop = move |index| Loop {
            perform: Perform::new(Arc::clone(&plan), make(index)),
            machine: Machine::new(limits),
        };
        let mut server = Server::new(make_loop)
            .loops(settings.loops)
            .config(settings.config.close_on_eof(false))
            .limits(settings.limits.idle(limits.keep_alive))
            .grace(settings.grace)
            .watcher(settings.builder);
        for listen in settings.listens {
            server = match listen {
                Listen::Address(address) => server.listen(&address)?,
                Listen::Listener(listener) => server.listener(listener),
            };
        }
        Ok(server)
    }

    /// Serves until SIGINT or SIGTERM comes, or [`Remote::shutdown`] is called. Then it accepts no
    /// more connections, answers the requests that run, for at most the [grace](App::grace), and
    /// returns.
    ///
    /// # Errors
    ///
    /// Those of [`Server::run`](windlass_serve::Server::run).
    pub fn run(self) -> io::Result<Report> {
        self.into_server()?.run()
    }

    /// Starts the server on threads of its own, and returns when it listens.
    ///
    /// # Errors
    ///
    /// Those of [`Server::start`](windlass_serve::Server::start).
    pub fn start(self) -> io::Result<Running> {
        Ok(Running(self.into_server()?.start()?))
    }

    /// Starts the server on a watcher of the program: for a loop with other operations besides, and
    /// for simulated tests.
    ///
    /// # Errors
    ///
    /// Those of [`Server::start_on`](windlass_serve::Server::start_on).
    pub fn start_on<D: Driver>(self, watcher: &mut Watcher<D>) -> io::Result<ServerLoop<S>> {
        Ok(ServerLoop(self.into_server()?.start_on(watcher)?))
    }
}

/// A server on threads of its own.
#[derive(Debug)]
pub struct Running(windlass_serve::Running);

impl Running {
    /// The first address that it listens at. A Unix path has none: it is `0.0.0.0:0`.
    pub fn address(&self) -> SocketAddr {
        let unspecified = SocketAddr::from(([0, 0, 0, 0], 0));
        self.0.addresses().first().and_then(Address::ip).unwrap_or(unspecified)
    }

    /// Reaches its loops, from any thread.
    pub fn remote(&self) -> Remote {
        self.0.remote()
    }

    /// Shuts it down, and waits for its end.
    ///
    /// # Errors
    ///
    /// Those of [`Running::wait`](windlass_serve::Running::wait).
    pub fn shutdown(self) -> io::Result<Report> {
        self.0.shutdown();
        self.0.wait()
    }
}

/// A server on a watcher of the program.
pub struct ServerLoop<S: 'static>(windlass_serve::ServerLoop<Loop<S>>);

impl<S: 'static> ServerLoop<S> {
    /// Counts `Date` from a fixed time on: for a watcher on a simulated kernel, whose clock is not
    /// the time of day. A seed has one trace then.
    pub fn simulate_date<D: Driver>(&mut self, watcher: &Watcher<D>) {
        self.0.handler().machine.simulate_date(watcher.now());
    }

    /// Takes a completion of the server, and returns one that is not its own.
    pub fn complete<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        completion: Completion,
    ) -> Option<Completion> {
        self.0.complete(watcher, completion)
    }

    /// Calls the handlers for what has happened, and sends what they have written.
    pub fn turn<D: Driver>(&mut self, watcher: &mut Watcher<D>) {
        self.0.turn(watcher);
    }

    /// Serves a whole batch, for a loop without other operations.
    pub fn serve<D: Driver>(&mut self, watcher: &mut Watcher<D>, done: &mut Completions) {
        self.0.serve(watcher, done);
    }

    /// Begins the shutdown.
    pub fn stop<D: Driver>(&mut self, watcher: &mut Watcher<D>) {
        self.0.stop(watcher);
    }

    /// Whether the shutdown is over.
    pub fn is_over(&self) -> bool {
        self.0.is_over()
    }
}

impl<S: 'static> std::fmt::Debug for ServerLoop<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerLoop").finish_non_exhaustive()
    }
}
