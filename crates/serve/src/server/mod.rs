//! The server: callbacks over an engine.
//!
//! ```text
//! mod.rs      the type `Server` and its settings
//! handler.rs  the callbacks, and their arguments     datagram.rs  datagrams
//! ended.rs    the arguments of the last callback    tls.rs  the TLS of a connection
//! prepared.rs one loop, before it serves
//! loops.rs    one loop: events into callbacks     threads.rs  several, on threads
//! modes.rs    a thread for each connection
//! running.rs  a server on threads of its own     signals.rs  signals of the process
//! serve.rs    one function and four closures
//! address.rs  addresses to listen at     inherited.rs  descriptors of a service manager
//! report.rs   the report at the end
//! ```

mod action;
mod address;
mod conn;
mod datagram;
mod ended;
mod handler;
mod inherited;
mod loops;
mod modes;
mod prepared;
mod report;
mod running;
mod serve;
mod signals;
mod threads;
#[cfg(feature = "tls")]
mod tls;

use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io, mem, thread};

use windlass::driver::Driver;
use windlass::{Address, Builder, Handle, Watcher};

pub use action::Action;
use address::{Listen, Make, Place};
pub use conn::{Conn, Context};
pub use datagram::Datagram;
pub use ended::{Closed, Detached};
pub use handler::Handler;
pub use loops::ServerLoop;
pub use modes::IoMode;
use prepared::Prepared;
pub use report::{Report, Unfinished};
pub use running::Running;
pub use serve::serve;
use signals::SignalPlan;

#[cfg(doc)]
use crate::engine::Engine;
use crate::handles::job::{Executor, Job};
use crate::handles::remote::Remote;
use crate::memory::Budget;
use crate::words::balance::Balance;
use crate::words::config::Config;
use crate::words::limits::Limits;

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
/// println!("{} connections", report.counters.accepted);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Server<F> {
    make: F,
    listens: Vec<Listen>,
    /// Where those begin that the last call has added.
    last: usize,
    config: Config,
    limits: Option<Limits>,
    builder: Builder,
    loops: Loops,
    balance: Balance,
    mode: IoMode,
    executor: Option<Executor>,
    pins: bool,
    grace: Duration,
    signals: SignalPlan,
}

/// How many loops a server has. A `usize` converts into [`Count`](Loops::Count).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Loops {
    /// One, on the thread that calls [`run`](Server::run).
    #[default]
    One,
    /// So many loops, each on a thread of its own: 2 to 1024. 0 and 1 mean the same as
    /// [`One`](Loops::One).
    Count(usize),
    /// One loop for each processor that the process may use. On Linux and Android each thread is
    /// bound to its processor.
    PerCpu,
}

impl From<usize> for Loops {
    fn from(count: usize) -> Loops {
        Loops::Count(count)
    }
}

impl<H: Handler, F: Fn(usize) -> H> Server<F> {
    /// A server that calls `make` once for each loop, with the loop's index, to make its handler.
    /// The handler stays on the thread of its loop.
    pub fn new(make: F) -> Server<F> {
        Server {
            make,
            listens: Vec::new(),
            last: 0,
            config: Config::default(),
            limits: None,
            builder: Watcher::builder(),
            loops: Loops::One,
            balance: Balance::default(),
            mode: IoMode::NonBlocking,
            executor: None,
            pins: false,
            grace: Duration::ZERO,
            signals: SignalPlan::default(),
        }
    }

    /// Adds an address: `SCHEME://HOST:PORT`, or `unix://PATH`. The schemes are `tcp`, `tcp4`,
    /// `tcp6`, `udp`, `udp4` and `udp6`. With the feature `tls` there are also `tls`, `tls4` and
    /// `tls6`: TCP ports that need the call of `Server::tls`. Without a port the system chooses
    /// one: [`Handler::serving`] is told which. This call looks the host up, and blocks meanwhile.
    /// If the host has several addresses, the server listens at the first one that it can bind.
    ///
    /// | suffix | what it does |
    /// |---|---|
    /// | `?reuseport=true` | several servers can share the port (`SO_REUSEPORT`) |
    /// | `?sessions=true` | each peer of a UDP address is a [session](Engine::bind_datagram) |
    /// | `?sessions=true&reuseport=true` | both |
    /// | `?proxy=v1`, `v2`, `any` | connections begin with a [header](Config::proxy) of this version |
    /// | `?proxy=false` | they do not, whatever the configuration says |
    ///
    /// `fd://N` is a listener, or a bound datagram socket, that the process has inherited with this
    /// number: see [`fd::inherited`](windlass::fd::inherited). `fd://` is all descriptors of a
    /// service manager that starts services by their sockets, as systemd does
    /// ([sd_listen_fds(3)](https://man7.org/linux/man-pages/man3/sd_listen_fds.3.html)): 3, 4 and
    /// so on, `LISTEN_FDS` of them, if `LISTEN_PID` is this process. This call takes them, and
    /// closes them on exec. The first loop serves them, as [`listener`](Server::listener) says. The
    /// call leaves the variables as they are, because other threads may read the environment. (A
    /// program that this one starts has another process id, so that it takes nothing by mistake.)
    ///
    /// Without a host the server listens on all interfaces, at `[::]`. (Where the system lacks
    /// IPv6, it listens at `0.0.0.0`.) Whether `[::]` also takes IPv4 is the default of the system:
    /// by default Linux and macOS do, FreeBSD and Windows do not.
    ///
    /// Each datagram at a `udp://` address is a call of [`Handler::datagram`]. With the suffix
    /// `?sessions=true`, or with [`Config::udp_sessions`], each peer is a session: it has an id, a
    /// state, and the callbacks of a connection.
    ///
    /// If there are several loops, the first one receives all datagrams. With `?reuseport=true`, or
    /// [`Balance::ReusePort`], each loop has a socket of its own at the address. Linux and FreeBSD
    /// then distribute the datagrams by their senders; other systems may give all of them to one
    /// socket.
    ///
    /// If an earlier process left its socket at a Unix path, the server replaces it. The server
    /// removes its own path when it ends.
    ///
    /// # Errors
    /// `InvalidInput`: the scheme or a setting is unknown, the port is no number, the host has no
    /// address of this family, the path is missing, a Unix path has `?reuseport=true`, or a
    /// descriptor has settings.
    ///
    /// For `fd://N`, those of [`fd::inherited`](windlass::fd::inherited). For `fd://`, also
    /// `NotFound`: the variables name no descriptors, or another process. A descriptor that is
    /// neither a listener nor a datagram socket is `InvalidInput` when the server starts.
    ///
    /// The bind happens in [`run`](Server::run) or [`start_on`](Server::start_on), and fails there.
    /// On Windows, `?reuseport=true` fails there with `Unsupported`. On every system `?proxy=v1`
    /// and the like fail there with `InvalidInput` without [`Config::proxy`], which lists the
    /// networks of the proxies, and with one that lists none.
    pub fn listen(self, address: &str) -> io::Result<Server<F>> {
        Ok(match address.strip_prefix("fd://") {
            Some(number) => self.add(inherited::listens(address, number)?),
            None => self.add([Listen::parse(address)?]),
        })
    }

    fn add(mut self, listens: impl IntoIterator<Item = Listen>) -> Server<F> {
        self.last = self.listens.len();
        self.listens.extend(listens);
        self
    }

    /// Adds a listener that the program has made, or a bound datagram socket. The first loop serves
    /// it. The server makes it non-blocking, and leaves it so: other processes may have it, too. If
    /// the descriptor is neither, [`run`](Server::run) or [`start_on`](Server::start_on)
    /// fails.
    pub fn listener(self, listener: impl Into<Handle>) -> Server<F> {
        self.add([Listen::at(Place::Listener(listener.into()))])
    }

    /// Adds a listener for each loop, or a bound datagram socket: `make` makes it when the server
    /// starts, on the thread of the loop, with the loop's index. A loop serves the connections that
    /// its own listener accepts, whatever the [balance](Server::balance) says. (Only the threads of
    /// an [`IoMode`] come first.) So the program can set options that this crate does not know,
    /// before the bind.
    ///
    /// ```
    /// use std::net::{Ipv4Addr, SocketAddr};
    /// use socket2::{Domain, Socket, Type};
    /// use windlass_serve::Server;
    /// # use windlass_serve::{Action, Context, Handler};
    /// # struct Echo;
    /// # impl Handler for Echo {
    /// #     type State = ();
    /// #     fn serving(&mut self, _: &mut Context<'_, ()>, _: &[windlass::Address]) -> Action {
    /// #         Action::Shutdown
    /// #     }
    /// # }
    /// let server = Server::new(|_loop| Echo).listeners(|_loop| {
    ///     let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    ///     socket.set_tcp_nodelay(true)?; // Linux: accepted sockets have it, too
    ///     socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())?;
    ///     socket.listen(4096)?;
    ///     Ok(std::net::TcpListener::from(socket))
    /// });
    /// server.run()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// With several loops, the listeners need ports of their own, or `SO_REUSEPORT`. The addresses
    /// of [`Handler::serving`] are those of the first loop.
    ///
    /// An error of `make` is the error of [`run`](Server::run), and of
    /// [`start_on`](Server::start_on). If the descriptor is neither a listener nor a datagram
    /// socket, they fail, too.
    pub fn listeners<T: Into<Handle>>(
        self,
        make: impl Fn(usize) -> io::Result<T> + Send + Sync + 'static,
    ) -> Server<F> {
        let make = Make(Arc::new(move |index| make(index).map(Into::into)));
        self.add([Listen::at(Place::Made(make))])
    }

    /// Encrypts the connections of the address that was added last, or of the listener. After
    /// `fd://`, those of all descriptors. A `tls://` address needs this call: without it, the
    /// server does not start. A datagram socket has no TLS: the server does not start, either.
    ///
    /// [`Handler::opened`] is called when the handshake is done. A handshake that fails makes no
    /// callback: the [log](crate::log::LogEvent::TlsFailed) has the reason, and
    /// [`Counters::handshakes`](crate::report::Counters::handshakes) counts it.
    ///
    /// ```no_run
    /// use windlass_serve::Server;
    /// use windlass_serve::tls::Tls;
    /// # use windlass_serve::Handler;
    /// # struct Echo;
    /// # impl Handler for Echo { type State = (); }
    /// let tls = Tls::pem("cert.pem", "key.pem")?;
    /// let server = Server::new(|_loop| Echo);
    /// let server = server.listen("tls://0.0.0.0:443")?.tls(tls).listen("tcp://0.0.0.0:80")?;
    /// # let _ = server;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # What output costs
    /// - What a turn writes becomes records of 16 KiB, of which only the last one is shorter. Each
    ///   connection encrypts for itself: plain connections share the bytes of a broadcast, and a
    ///   thousand connections with TLS encrypt and copy them a thousand times.
    /// - Text that a socket does not take waits as text. Of each connection at most 128 KiB are
    ///   encrypted ahead. Bytes that wait count once, for all limits: as text, or as the records in
    ///   its place, which have up to 29 bytes more each. A callback gets the numbers of text.
    /// - [Files](crate::Conn::send_file) are read and encrypted in pieces of 64 KiB.
    ///
    /// A connection moves to another loop [with its session](crate::Conn::move_to_loop). Its
    /// descriptor is not [detached](crate::Engine::detach), because that would lose the session.
    ///
    /// # Panics
    /// If no address was added before.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, tls: crate::tls::Tls) -> Server<F> {
        let listens = &mut self.listens[self.last..];
        assert!(!listens.is_empty(), "an address comes first");
        listens.iter_mut().for_each(|listen| listen.tls = Some(tls.clone()));
        self
    }

    /// Lets the server run without an address: for connections that it
    /// [makes](Engine::connect), or that [another server](Engine::overflow_to) gives it.
    pub fn without_listener(self) -> Server<F> {
        self.add([Listen::at(Place::Nowhere)])
    }

    /// Sets the number of loops. Default [`Loops::One`].
    pub fn loops(mut self, loops: impl Into<Loops>) -> Server<F> {
        self.loops = loops.into();
        self
    }

    /// Binds the thread of each loop to a processor: the first loop to the first processor that the
    /// process may use, and so on. If there are more loops than processors, they begin again with
    /// the first. Default off; [`Loops::PerCpu`] turns it on.
    ///
    /// This works on Linux and Android, if `/proc` is there. A server with one loop in
    /// [`IoMode::NonBlocking`] runs on the thread of its caller, which it does not bind:
    /// [`Builder::affinity`] does. Threads of an [`IoMode`] are not bound.
    pub fn pin_loops(mut self, on: bool) -> Server<F> {
        self.pins = on;
        self
    }

    /// Sets how connections are distributed over the loops. Default [`Balance::RoundRobin`].
    pub fn balance(mut self, balance: Balance) -> Server<F> {
        self.balance = balance;
        self
    }

    /// Sets what serves the connections: the loops, threads of their own, or both. Default
    /// [`IoMode::NonBlocking`].
    pub fn io_mode(mut self, mode: IoMode) -> Server<F> {
        self.mode = mode;
        self
    }

    /// Sets the limits of the connections. They replace the limits in [`config`](Server::config),
    /// in whichever order the two are called.
    pub fn limits(mut self, limits: Limits) -> Server<F> {
        self.limits = Some(limits);
        self
    }

    /// Sets the configuration of the engines. Default [`Config::default`].
    pub fn config(mut self, config: Config) -> Server<F> {
        self.config = config;
        self
    }

    /// The configuration of every loop.
    fn configuration(&self) -> Config {
        self.config.limits(self.limits.unwrap_or(self.config.limits))
    }

    /// Passes the [jobs](Conn::execute) of the connections to an executor of the program, in place
    /// of the worker threads of each loop. Each loop calls `executor` on its thread, where it must
    /// not block. It calls [`Job::run`] once, on any thread, and now or later. A panic of
    /// `executor` drops its job, which then [fails](crate::jobs::JobError::Dropped).
    ///
    /// ```no_run
    /// # use windlass_serve::{Handler, Server, jobs::Job};
    /// # struct Echo;
    /// # impl Handler for Echo { type State = (); }
    /// let (jobs, work) = std::sync::mpsc::sync_channel::<Job>(1024);
    /// std::thread::spawn(move || work.into_iter().for_each(Job::run));
    /// let server = Server::new(|_loop| Echo).executor(move |work| {
    ///     let _ = jobs.try_send(work); // a job for which there is no room fails
    /// });
    /// ```
    pub fn executor(mut self, executor: impl Fn(Job) + Send + Sync + 'static) -> Server<F> {
        self.executor = Some(Arc::new(executor));
        self
    }

    /// Sets the builder of the watchers. Default [`Watcher::builder`].
    pub fn watcher(mut self, builder: Builder) -> Server<F> {
        self.builder = builder;
        self
    }

    /// Lets connections go on for this long when a shutdown has begun, so that requests which are
    /// on their way get their answers. The loops accept no more connections meanwhile. They also
    /// serve those that were accepted in the moment of the shutdown. Connections that are open
    /// after this time close, as all do at once without it. The server ends as soon as it has no
    /// connections. UDP sessions have no such time, because their socket closes. Default zero.
    ///
    /// A connection that has nothing to do would keep the server for all of this time. So a program
    /// closes it in [`Handler::stopping`].
    ///
    /// ```no_run
    /// use std::time::Duration;
    /// # use windlass_serve::{Handler, Server};
    /// # struct Echo;
    /// # impl Handler for Echo { type State = (); }
    /// let server = Server::new(|_loop| Echo).grace(Duration::from_secs(30));
    /// # let _ = server;
    /// ```
    pub fn grace(mut self, span: Duration) -> Server<F> {
        self.grace = span;
        self
    }

    /// Sets whether SIGINT and SIGTERM shut the server down. Default: they do in
    /// [`run`](Server::run), [`start`](Server::start) and [`serve`](crate::serve), and do not in
    /// [`start_on`](Server::start_on) and [`start_on_each`](Server::start_on_each), whose loop is
    /// the program's.
    ///
    /// The first of these signals is a [shutdown](Remote::shutdown). With it both signals get back
    /// the dispositions that they had before the server. So a second one ends the process at once,
    /// unless the program had a handler, or ignored the signal. (As process 1 of a container, the
    /// kernel ignores it. Only SIGKILL ends such a process.) At the end of the server they get them
    /// back, too.
    ///
    /// [`Watcher::signals`] says what this means for the process. A callback that blocks the first
    /// loop holds up the signals of the server. SIGQUIT (Ctrl-\) ends the process even then.
    ///
    /// On Windows, which has no signals, the default has no effect, and `signals(true)` lets the
    /// server fail at its start, with `Unsupported`.
    pub fn signals(mut self, on: bool) -> Server<F> {
        self.signals.ends = Some(on);
        self
    }

    /// Calls `call` on the first loop for each signal of this number:
    /// [`process::signal`](windlass::process::signal) has the usual ones. From the start of the
    /// server to its end the signal does not have its default effect, and `call` is called during a
    /// shutdown, too. It must not block. Signals that arrive together are one call, as always on
    /// Unix. The report counts its panics.
    ///
    /// Several calls for one signal follow each other. SIGINT or SIGTERM with a call do not shut
    /// the server down: [`Remote::shutdown`] in the call does.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicU64, Ordering};
    /// use windlass::process::signal::SIGHUP;
    /// # use windlass_serve::{Action, Context, Handler, Server};
    /// # struct Echo;
    /// # impl Handler for Echo {
    /// #     type State = ();
    /// #     fn serving(&mut self, _: &mut Context<'_, ()>, _: &[windlass::Address]) -> Action {
    /// #         Action::Shutdown
    /// #     }
    /// # }
    /// # if cfg!(windows) { return Ok(()) }
    /// // The handlers read the settings again when they see another number.
    /// let settings = Arc::new(AtomicU64::new(0));
    /// let changed = Arc::clone(&settings);
    /// let server = Server::new(|_loop| Echo).on_signal(SIGHUP, move |_remote| {
    ///     changed.fetch_add(1, Ordering::Relaxed);
    /// });
    /// # server.listen("tcp://127.0.0.1:0")?.run()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// At its start the server fails as [`Watcher::signals`] does: with `EINVAL` for a number that
    /// is no signal or cannot be handled, and on Windows with `Unsupported`.
    pub fn on_signal(
        mut self,
        signal: i32,
        call: impl FnMut(&Remote) + Send + 'static,
    ) -> Server<F> {
        self.signals.calls.push((signal, Box::new(call)));
        self
    }

    /// Serves until a callback answers [`Action::Shutdown`], [`Remote::shutdown`] is called, or
    /// SIGINT or SIGTERM [comes](Server::signals). Then every loop stops accepting, and closes each
    /// connection after the [grace](Server::grace) and after its output is sent. Output that is not
    /// sent within [`Limits::close`] is dropped, and the report lists its connection. A connection
    /// that has sent its output waits for its peer to close, for at most [`Limits::linger`]. This
    /// call blocks meanwhile.
    ///
    /// # Errors
    ///
    /// - As for [`start_on`](Server::start_on), [`Builder::build`], [`Watcher::signals`] and
    ///   [`Watcher::wait`]. Then the other loops have shut down, too.
    /// - `InvalidInput`: more than 1024 loops, or an [`IoMode`] with 0 or more than 64,512 threads.
    /// - `EAGAIN`: the system starts no more threads.
    ///
    /// # Panics
    /// If the function that makes the handlers, or the [listeners](Server::listeners), panics. A
    /// panic in a callback does not pass through.
    pub fn run(self) -> io::Result<Report>
    where
        F: Sync,
    {
        self.run_and_tell(|_, _| {})
    }

    /// Starts the server on threads of its own, and returns when it listens at all addresses. The
    /// returned value has the addresses, shuts the server down, and waits for its report:
    /// [`Running`] has an example. There is one thread more than [loops](Server::loops) if there
    /// are several, or an [`IoMode`] with threads.
    ///
    /// # Errors
    /// As for [`run`](Server::run), up to the moment when the server serves.
    ///
    /// # Panics
    /// If the function that makes the handlers, or the [listeners](Server::listeners), panics
    /// before that.
    pub fn start(self) -> io::Result<Running>
    where
        F: Send + Sync + 'static,
    {
        Running::start(self)
    }

    /// As [`run`](Server::run). Calls `ready` when all loops listen.
    fn run_and_tell(mut self, ready: impl FnOnce(&Remote, &[Address])) -> io::Result<Report>
    where
        F: Sync,
    {
        let (count, pins) = match self.loops {
            Loops::One => (1, self.pins),
            Loops::Count(count) => (count.max(1), self.pins),
            Loops::PerCpu => (thread::available_parallelism().map_or(1, usize::from), true),
        };
        if count > MOST_LOOPS {
            return Err(invalid("more than 1024 loops"));
        }
        if count > 1 || self.mode != IoMode::NonBlocking {
            return threads::run(self, count, pins, ready);
        }
        let mut watcher = mem::take(&mut self.builder).build()?;
        self.run_here(&mut watcher, ready)
    }

    /// Runs one loop on this thread.
    fn run_here<D: Driver>(
        self,
        watcher: &mut Watcher<D>,
        ready: impl FnOnce(&Remote, &[Address]),
    ) -> io::Result<Report> {
        let (mut started, addresses) = self.start_loops(std::slice::from_mut(watcher), true)?;
        let mut running = started.remove(0);
        ready(&running.remote(), &addresses);
        running.run(watcher)?;
        Ok(running.report())
    }

    /// Starts the server on a watcher of the program. The program passes the completions to the
    /// [`ServerLoop`] server. The server has one loop: [`loops`](Server::loops) has no effect.
    ///
    /// # Errors
    ///
    /// - `InvalidInput`: there is nothing to serve, or the [mode](Server::io_mode) has threads.
    /// - As for [`Watcher::listen_with`] and [`Watcher::bind_datagram`]: an address cannot be
    ///   bound.
    /// - As for [`Watcher::set_option`]: the system refuses an option of the [`Config`].
    /// - As for [`Watcher::signals`], if the server has [signals](Server::signals).
    ///
    /// After an error, the server listens nowhere.
    pub fn start_on<D: Driver>(self, watcher: &mut Watcher<D>) -> io::Result<ServerLoop<H>> {
        let mut started = self.start_on_each(std::slice::from_mut(watcher))?;
        Ok(started.remove(0))
    }

    /// Starts a server of several loops, each on a watcher of the program: for simulated tests. The
    /// first loop has the listeners, so [`Balance::ReusePort`] acts as [`Balance::RoundRobin`].
    ///
    /// # Errors
    /// As for [`start_on`](Server::start_on).
    ///
    /// # Panics
    /// If there are no watchers, or more than 1024.
    pub fn start_on_each<D: Driver>(
        self,
        watchers: &mut [Watcher<D>],
    ) -> io::Result<Vec<ServerLoop<H>>> {
        Ok(self.start_loops(watchers, false)?.0)
    }

    /// Starts a loop on each watcher. Returns the addresses, too. `takes_signals` says whether the
    /// first loop takes SIGINT and SIGTERM if the program has not said so.
    fn start_loops<D: Driver>(
        mut self,
        watchers: &mut [Watcher<D>],
        takes_signals: bool,
    ) -> io::Result<(Vec<ServerLoop<H>>, Vec<Address>)> {
        assert!((1..=MOST_LOOPS).contains(&watchers.len()), "1 to 1024 watchers");
        if self.listens.is_empty() {
            return Err(invalid("nothing to serve"));
        }
        if self.mode != IoMode::NonBlocking {
            return Err(invalid("only Server::run starts the threads of an IoMode"));
        }
        let config = self.configuration();
        let budget = Budget::new(config.limits.memory);
        // A panic here leaves nothing behind on the program's watchers.
        let handlers: Vec<H> = (0..watchers.len()).map(&self.make).collect();
        let mut signals = mem::take(&mut self.signals).take(&mut watchers[0], takes_signals)?;
        let others: Vec<Listen> = self.listens.iter().map(Listen::again).collect();
        let mut listens = self.listens;
        let mut loops: Vec<Prepared<H::State>> = Vec::new();
        for index in 0..watchers.len() {
            match Prepared::new(index, &mut watchers[index], config, budget.clone(), listens) {
                Ok(prepared) => loops.push(prepared),
                Err(error) => {
                    // The program keeps its watchers, which would keep the listeners open.
                    for (prepared, watcher) in loops.iter_mut().zip(&mut *watchers) {
                        prepared.engine.stop_listening(watcher);
                    }
                    signals.give_back(&mut watchers[0]);
                    return Err(error);
                }
            }
            listens = others.iter().map(Listen::again).collect();
        }
        loops[0].signals = signals;
        let addresses = loops[0].addresses.clone();
        let remote = Remote::of_loops(loops.iter().map(|prepared| prepared.remote.clone()));
        let balance =
            if self.balance == Balance::ReusePort { Balance::RoundRobin } else { self.balance };
        let mut all = Vec::new();
        for ((mut prepared, watcher), handler) in loops.into_iter().zip(watchers).zip(handlers) {
            prepared.grace = self.grace;
            if let Some(executor) = &self.executor {
                prepared.engine.share_executor(Arc::clone(executor));
            }
            all.push(prepared.start(watcher, handler, &remote, balance, &addresses));
        }
        Ok((all, addresses))
    }
}

/// The most loops.
const MOST_LOOPS: usize = 1024;

fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

impl<F> fmt::Debug for Server<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("listens", &self.listens).finish_non_exhaustive()
    }
}
