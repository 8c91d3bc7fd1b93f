//! The server of an application: addresses, loops, start and end.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use windlass::driver::Driver;
use windlass::process::signal::{SIGINT, SIGTERM};
use windlass::sim::Sim;
use windlass::{Address, Builder, Completion, Completions, Watcher};
use windlass_serve::jobs::Job;
use windlass_serve::modes::{Balance, IoMode, Loops};
use windlass_serve::{Config, Server};

use super::listen::{Listen, Place, Where};
use super::serve::Loop;
use super::{App, Perform, Plan};
use crate::client::settings::FetchSettings;
use crate::exchange::Machine;
use crate::remote::Remote;
use crate::words::error::Error;
use crate::words::report::Report;
use crate::words::status::Status;

/// The settings of an application's server.
pub(super) struct Settings {
    places: Vec<Place>,
    loops: Loops,
    pins: bool,
    balance: Balance,
    mode: IoMode,
    config: Config,
    limits: Option<windlass_serve::Limits>,
    #[cfg(feature = "deflate")]
    pub(super) compress: Option<Arc<crate::message::compress::Compress>>,
    builder: Builder,
    executor: Option<Arc<dyn Fn(Job) + Send + Sync>>,
    signals: Vec<(i32, SignalCall)>,
    takes_signals: Option<bool>,
    grace: Duration,
    drain_delay: Duration,
    client: Arc<FetchSettings>,
}

type SignalCall = Box<dyn FnMut(&Remote) + Send>;

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            places: Vec::new(),
            loops: Loops::One,
            pins: false,
            balance: Balance::default(),
            mode: IoMode::NonBlocking,
            config: Config::new(),
            limits: None,
            #[cfg(feature = "deflate")]
            compress: None,
            builder: Watcher::builder(),
            executor: None,
            signals: Vec::new(),
            takes_signals: None,
            grace: Duration::from_secs(10),
            drain_delay: Duration::ZERO,
            client: Arc::default(),
        }
    }
}

impl<S: 'static> App<S> {
    /// Adds an address to listen at: see [`Listen`]. With port 0 the system chooses one.
    ///
    /// ```no_run
    /// use windlass_web::App;
    ///
    /// let app = App::new().get("/", |_, _| "Hello, World!");
    /// let app = app.listen("0.0.0.0:8080")?.listen("unix:///run/web")?;
    /// # app.run()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidInput`: it is no address. What else can be wrong with an address shows when the
    /// server starts.
    pub fn listen(mut self, at: impl Listen) -> io::Result<App<S>> {
        self.server.places.push(at.place()?);
        Ok(self)
    }

    /// Sets the number of loops: see [`Server::loops`]. Each loop has a state of its own.
    pub fn loops(mut self, loops: impl Into<Loops>) -> App<S> {
        self.server.loops = loops.into();
        self
    }

    /// Binds each loop to a processor: see [`Server::pin_loops`].
    pub fn pin_loops(mut self, on: bool) -> App<S> {
        self.server.pins = on;
        self
    }

    /// Sets how connections are distributed over the loops: see [`Server::balance`].
    pub fn balance(mut self, balance: Balance) -> App<S> {
        self.server.balance = balance;
        self
    }

    /// Sets what serves the connections: the loops, threads of their own, or both. See [`IoMode`].
    ///
    /// Handlers on a thread may block. A thread has a state of its own, as a loop has, which it
    /// keeps for its next connection: what all have is an `Arc`.
    pub fn io_mode(mut self, mode: IoMode) -> App<S> {
        self.server.mode = mode;
        self
    }

    /// Passes the jobs of [`Request::blocking`](crate::Request::blocking) to an executor of the
    /// program: see [`Server::executor`].
    pub fn executor(mut self, executor: impl Fn(Job) + Send + Sync + 'static) -> App<S> {
        self.server.executor = Some(Arc::new(executor));
        self
    }

    /// Sets the configuration of the connections: the name of the server, its log, the header of a
    /// proxy in front, options of sockets. See [`Config`]. `close_on_eof` has no effect.
    ///
    /// ```
    /// use std::sync::LazyLock;
    /// use windlass_serve::Config;
    /// use windlass_serve::net::Proxy;
    /// use windlass_web::App;
    ///
    /// // The load balancer in front speaks the PROXY protocol.
    /// static PROXY: LazyLock<Proxy> =
    ///     LazyLock::new(|| Proxy::any().from("10.0.0.0/8".parse().expect("a network")));
    /// let app = App::new().config(Config::new().name("api").proxy(&PROXY));
    /// # let _ = app;
    /// ```
    pub fn config(mut self, config: Config) -> App<S> {
        self.server.config = config;
        self
    }

    /// Sets the limits of connections. The idle time is [`Limits::keep_alive`], whatever they say.
    ///
    /// [`Limits::keep_alive`]: crate::Limits::keep_alive
    pub fn serve_limits(mut self, limits: windlass_serve::Limits) -> App<S> {
        self.server.limits = Some(limits);
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

    /// Sets how long the server goes on as before when SIGINT or SIGTERM comes, and when
    /// [`Remote::drain`] is called. Default zero.
    ///
    /// A load balancer needs some time until it sends no more clients. Meanwhile the server accepts
    /// connections and keeps them, and [`App::health`] answers 503. Then it shuts down: see
    /// [`App::run`]. A second signal ends the delay.
    ///
    /// On Windows, which has no signals, a server with a delay starts only with
    /// [`signals(false)`](App::signals).
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass_web::App;
    ///
    /// // The probe comes every five seconds, and must fail twice.
    /// let app = App::new().health("/healthz").drain_delay(Duration::from_secs(12));
    /// # let _ = app;
    /// ```
    pub fn drain_delay(mut self, span: Duration) -> App<S> {
        self.server.drain_delay = span;
        self
    }

    /// Adds a route that says whether the server wants clients: 200, or 503 once its
    /// [delay](App::drain_delay) has begun. A route of the program asks
    /// [`Request::is_draining`](crate::Request::is_draining), and its database.
    ///
    /// # Panics
    ///
    /// As [`route`](App::route).
    pub fn health(self, route: &str) -> App<S> {
        self.get(route, |_, q| match q.is_draining() {
            true => Err(Error::new(Status::SERVICE_UNAVAILABLE).text("the server shuts down")),
            false => Ok("ready"),
        })
    }

    /// Sets how each loop asks other servers, for [`Request::fetch`](crate::Request::fetch) and
    /// [`Request::forward`](crate::Request::forward): connections, clocks, whom to trust.
    pub fn client(mut self, settings: FetchSettings) -> App<S> {
        self.server.client = Arc::new(settings);
        self
    }

    /// Calls `call` on the first loop for each signal of this number: see [`Server::on_signal`].
    ///
    /// It gets no state, because that would be the state of one loop. What a signal changes is an
    /// `Arc` that all loops share, or a `Tls`, which is one.
    pub fn on_signal(mut self, signal: i32, call: impl FnMut(&Remote) + Send + 'static) -> App<S> {
        self.server.signals.push((signal, Box::new(call)));
        self
    }

    /// Sets whether SIGINT and SIGTERM shut the server down: see [`Server::signals`].
    pub fn signals(mut self, on: bool) -> App<S> {
        self.server.takes_signals = Some(on);
        self
    }

    /// The server, and how its loops are made.
    fn into_server(
        self,
        remote: &Remote,
        is_own: bool,
    ) -> io::Result<Server<impl Fn(usize) -> Loop<S> + Send + Sync + 'static>> {
        let App { make, routes, hooks, limits, periodic, server: settings } = self;
        #[cfg(feature = "websocket")]
        remote.has_states_of(std::any::TypeId::of::<S>());
        #[cfg(feature = "deflate")]
        let compress = settings.compress;
        let plan = Arc::new(Plan::new(routes, hooks, limits.body, remote.clone()));
        let (loops, delay) = (remote.clone(), settings.drain_delay);
        let client = settings.client;
        let make_loop = move |index| Loop {
            perform: Perform::new(Arc::clone(&plan), make(index)),
            machine: {
                #[allow(unused_mut)] // without the feature
                let mut machine = Machine::new(limits, loops.clone(), client.clone());
                #[cfg(feature = "deflate")]
                if let Some(rules) = &compress {
                    machine.compress(Arc::clone(rules));
                }
                machine
            },
            remote: loops.clone(),
            periodic: periodic.clone(),
            delay,
            ends_at: None,
        };
        let connections = settings.limits.unwrap_or(settings.config.limits);
        let mut server = Server::new(make_loop)
            .loops(settings.loops)
            .pin_loops(settings.pins)
            .balance(settings.balance)
            .io_mode(settings.mode)
            .config(settings.config.close_on_eof(false))
            .limits(connections.idle(limits.keep_alive))
            .grace(settings.grace)
            .watcher(settings.builder);
        if let Some(executor) = settings.executor {
            server = server.executor(move |job| executor(job));
        }
        let takes_signals = settings.takes_signals.unwrap_or(is_own);
        if let Some(on) = settings.takes_signals {
            server = server.signals(on);
        }
        let ends = [SIGINT, SIGTERM].into_iter().filter(|_| takes_signals && !delay.is_zero());
        let ends = ends.filter(|signal| settings.signals.iter().all(|other| other.0 != *signal));
        for signal in ends.collect::<Vec<_>>() {
            let remote = remote.clone();
            server = server.on_signal(signal, move |_| remote.drain());
        }
        for (signal, mut call) in settings.signals {
            let remote = remote.clone();
            server = server.on_signal(signal, move |_| call(&remote));
        }
        for place in settings.places {
            server = match place.at {
                Where::Address(address) => server.listen(&address)?,
                Where::Listener(listener) => server.listener(listener),
            };
            #[cfg(feature = "tls")]
            if let Some(tls) = place.tls {
                server = server.tls(tls);
            }
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
        let remote = Remote::default();
        let server = self.into_server(&remote, true)?.run()?;
        Ok(remote.report(server))
    }

    /// Starts the server on threads of its own, and returns when it listens.
    ///
    /// # Errors
    ///
    /// Those of [`Server::start`](windlass_serve::Server::start).
    pub fn start(self) -> io::Result<Running> {
        let remote = Remote::default();
        let server = self.into_server(&remote, true)?.start()?;
        // The loops say so, too, but may not have begun to: a shutdown must not be lost.
        remote.serves(&server.remote());
        Ok(Running { server, remote })
    }

    /// Starts the server on a watcher of the program: for a loop with other operations besides, and
    /// for simulated tests.
    ///
    /// # Errors
    ///
    /// Those of [`Server::start_on`](windlass_serve::Server::start_on).
    pub fn start_on<D: Driver>(self, watcher: &mut Watcher<D>) -> io::Result<ServerLoop<S>> {
        let remote = Remote::default();
        Ok(ServerLoop { running: self.into_server(&remote, false)?.start_on(watcher)?, remote })
    }
}

impl<S: 'static> App<S> {
    /// A watcher with the application's settings, on a simulated host.
    pub(crate) fn simulated_watcher(&self, host: &Sim) -> Watcher {
        Watcher::simulated_with(host, self.server.builder.config())
    }

    /// Starts the server at one place of a simulated host, instead of its own places.
    pub(crate) fn start_simulated(
        mut self,
        watcher: &mut Watcher,
        at: impl Listen,
    ) -> io::Result<ServerLoop<S>> {
        self.server.places = vec![at.place()?];
        // Threads of the program's own would know nothing of the virtual time.
        (self.server.executor, self.server.mode) = (None, IoMode::NonBlocking);
        let mut server = self.start_on(watcher)?;
        server.simulate_date(watcher);
        Ok(server)
    }
}

/// A server on threads of its own.
#[derive(Debug)]
pub struct Running {
    server: windlass_serve::Running,
    remote: Remote,
}

impl Running {
    /// The first address that it listens at. A Unix path has none: it is `0.0.0.0:0`.
    pub fn address(&self) -> SocketAddr {
        let unspecified = SocketAddr::from(([0, 0, 0, 0], 0));
        self.server.addresses().first().and_then(Address::ip).unwrap_or(unspecified)
    }

    /// All addresses, in the order in which the program added them.
    pub fn addresses(&self) -> &[Address] {
        self.server.addresses()
    }

    /// Reaches its loops, from any thread.
    pub fn remote(&self) -> Remote {
        self.remote.clone()
    }

    /// Waits for its end, and does not shut it down.
    ///
    /// # Errors
    ///
    /// Those of [`Running::wait`](windlass_serve::Running::wait).
    pub fn wait(self) -> io::Result<Report> {
        let Running { server, remote } = self;
        server.wait().map(|report| remote.report(report))
    }

    /// Shuts it down, and waits for its end.
    ///
    /// # Errors
    ///
    /// Those of [`Running::wait`](windlass_serve::Running::wait).
    pub fn shutdown(self) -> io::Result<Report> {
        self.server.shutdown();
        self.wait()
    }
}

/// A server on a watcher of the program.
pub struct ServerLoop<S: 'static> {
    running: windlass_serve::ServerLoop<Loop<S>>,
    remote: Remote,
}

impl<S: 'static> ServerLoop<S> {
    /// Counts `Date` from a fixed time on: for a watcher on a simulated kernel, whose clock is not
    /// the time of day. A seed has one trace then: masks of WebSockets are foreseeable, too.
    pub fn simulate_date<D: Driver>(&mut self, watcher: &Watcher<D>) {
        let handler = self.running.handler();
        handler.machine.simulate_date(watcher.now());
        #[cfg(feature = "websocket")]
        handler.perform.simulate_masks();
    }

    /// Reaches the server, from any thread.
    pub fn remote(&self) -> Remote {
        self.remote.clone()
    }

    /// The state of the application on this loop.
    pub fn state(&mut self) -> &mut S {
        self.running.handler().perform.state()
    }

    /// Takes a completion of the server, and returns one that is not its own.
    pub fn complete<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        completion: Completion,
    ) -> Option<Completion> {
        self.running.complete(watcher, completion)
    }

    /// Calls the handlers for what has happened, and sends what they have written.
    pub fn turn<D: Driver>(&mut self, watcher: &mut Watcher<D>) {
        self.running.turn(watcher);
    }

    /// Serves a whole batch, for a loop without other operations.
    pub fn serve<D: Driver>(&mut self, watcher: &mut Watcher<D>, done: &mut Completions) {
        self.running.serve(watcher, done);
    }

    /// How many connections are open.
    pub fn connections(&mut self) -> usize {
        self.running.engine().len()
    }

    /// How many requests wait for their response.
    pub fn requests(&mut self) -> usize {
        self.running.handler().machine.running()
    }

    /// The memory of its connections: what it has, and what is in use.
    pub fn budget(&mut self) -> &windlass_serve::memory::Budget {
        self.running.engine().budget()
    }

    /// Begins the shutdown.
    pub fn stop<D: Driver>(&mut self, watcher: &mut Watcher<D>) {
        self.running.stop(watcher);
    }

    /// The report so far.
    pub fn report(&mut self) -> Report {
        let requests = self.running.handler().requests();
        Report::new(self.running.report(), requests, self.remote.totals())
    }

    /// Whether the shutdown is over.
    pub fn is_over(&self) -> bool {
        self.running.is_over()
    }
}

impl<S: 'static> std::fmt::Debug for ServerLoop<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerLoop").finish_non_exhaustive()
    }
}
