//! A server in each of the three modes, or in a simulation, and clients that one test body drives.
//!
//! The server of a system's driver runs on its own threads, and the clients on a watcher of the
//! test. In a simulation both are on one watcher. What the handlers note wakes the watcher of the
//! test, so that nothing polls.

use std::io::{Read, Write};
use std::marker::PhantomData;
use std::mem;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use windlass::driver::Driver;
use windlass::net::ConnectOptions;
use windlass::{
    Address, Buf, Builder, Completion, Completions, Op, Refusal, Source, Submitter, Watcher,
};
use windlass_serve::{
    Action, Config, Context, Handler, Remote, Server, ServerLoop, modes::IoMode, report::Report,
};

use super::{CLIENT, Client, Clients, Faulty, Harness, PATIENCE, SYSTEM_BUFFER, Simulated, System};

/// A mode of a server.
pub trait Mode {
    const MODE: IoMode;
    /// The module that holds the stamps of this mode.
    const MODULE: &'static str;
    /// Whether the connections have TLS.
    const TLS: bool = false;
}

/// A mode in which the connections have TLS.
pub struct WithTls<M>(PhantomData<M>);

impl<M: Mode> Mode for WithTls<M> {
    const MODE: IoMode = M::MODE;
    const MODULE: &'static str = M::MODULE;
    const TLS: bool = true;
}

macro_rules! mode {
    ($name:ident $module:literal $mode:expr) => {
        /// A mode.
        pub struct $name;
        impl Mode for $name {
            const MODE: IoMode = $mode;
            const MODULE: &'static str = $module;
        }
    };
}

mode!(Looped "nonblocking" IoMode::NonBlocking);
mode!(Threaded "blocking" IoMode::Blocking { threads: 200 });
// Few threads, so that the loop has connections, too.
mode!(Mixed "mixed" IoMode::Mixed { threads: 2 });

/// A driver of the system, in a mode.
pub struct In<T, M>(PhantomData<(T, M)>);

impl<T: System, M> Harness for In<T, M> {
    type Driver = T::Driver;
    const NAME: &'static str = T::NAME;
    const VIRTUAL: bool = T::VIRTUAL;
    fn watcher(builder: Builder) -> Watcher<T::Driver> {
        T::watcher(builder)
    }
}

/// Where a server runs.
pub enum Place<H: Handler> {
    /// On the watcher of the test.
    Here(Box<ServerLoop<H>>),
    /// On threads of its own. The report comes at the end.
    There(Receiver<Report>),
}

/// How a server is started: on which driver, and in which mode.
pub trait Setting: Harness {
    /// The mode; `None` in a simulation.
    const MODE: Option<IoMode>;
    /// Whether the connections have TLS.
    const TLS: bool = false;
    /// The modules that hold the stamps of this setting.
    fn module() -> String;

    fn start<H, F>(server: Server<F>, watcher: &mut Watcher<Self::Driver>) -> Place<H>
    where
        H: Handler + 'static,
        F: Fn(usize) -> H + Send + Sync + 'static;

    /// Runs a server that cannot start.
    fn fails<H: Handler, F: Fn(usize) -> H + Sync>(server: Server<F>) -> std::io::Error;
}

impl<T: System, M: Mode> Setting for In<T, M> {
    const MODE: Option<IoMode> = Some(M::MODE);
    const TLS: bool = M::TLS;

    fn module() -> String {
        format!("{}::{}", T::NAME, M::MODULE)
    }

    fn start<H, F>(server: Server<F>, watcher: &mut Watcher<Self::Driver>) -> Place<H>
    where
        H: Handler + 'static,
        F: Fn(usize) -> H + Send + Sync + 'static,
    {
        let server = server.watcher(T::builder()).io_mode(M::MODE);
        let (tell, reports) = channel();
        let submitter = watcher.submitter();
        thread::spawn(move || {
            let _ = tell.send(server.run().expect("the server runs"));
            let _ = submitter.wake(NEWS);
        });
        Place::There(reports)
    }

    fn fails<H: Handler, F: Fn(usize) -> H + Sync>(server: Server<F>) -> std::io::Error {
        let server = server.watcher(T::builder()).io_mode(M::MODE);
        server.run().expect_err("it cannot start")
    }
}

macro_rules! simulation {
    ($name:ident) => {
        impl Setting for $name {
            const MODE: Option<IoMode> = None;

            fn module() -> String {
                Self::NAME.to_owned()
            }

            fn start<H, F>(server: Server<F>, watcher: &mut Watcher<Self::Driver>) -> Place<H>
            where
                H: Handler + 'static,
                F: Fn(usize) -> H + Send + Sync + 'static,
            {
                Place::Here(Box::new(server.start_on(watcher).expect("the server starts")))
            }

            fn fails<H: Handler, F: Fn(usize) -> H + Sync>(server: Server<F>) -> std::io::Error {
                let mut watcher = Self::watcher(Watcher::builder());
                server.start_on(&mut watcher).err().expect("it cannot start")
            }
        }
    };
}

simulation!(Simulated);
simulation!(Faulty);

/// Stamps tests for every driver of the system in every mode, and for simulations.
#[macro_export]
macro_rules! every_mode {
    ($($body:ident)*) => {
        $crate::systems_modes! { $($body)* }
        $crate::stamp! { #[cfg(all())] sim Simulated: $($body)* }
        $crate::stamp! { #[cfg(all())] faults Faulty: $($body)* }
    };
}

/// Stamps tests for every driver of the system in every mode.
#[macro_export]
macro_rules! systems_modes {
    ($($body:ident)*) => {
        $crate::modes! { #[cfg(target_os = "linux")] epoll Epoll: $($body)* }
        $crate::modes! { #[cfg(target_os = "linux")] uring Uring: $($body)* }
        $crate::modes! { #[cfg(windlass_kqueue)] kqueue Kqueue: $($body)* }
        $crate::modes! { #[cfg(unix)] poll Poll: $($body)* }
    };
}

/// Stamps tests for TLS: for each driver of the system in one mode, and for each mode.
#[macro_export]
macro_rules! secure_modes {
    ($($body:ident)*) => {
        #[cfg(feature = "ring")]
        mod tls {
            $crate::secure_mode! { #[cfg(target_os = "linux")] epoll Epoll Looped: $($body)* }
            $crate::secure_mode! { #[cfg(target_os = "linux")] uring Uring Threaded: $($body)* }
            $crate::secure_mode! { #[cfg(windlass_kqueue)] kqueue Kqueue Threaded: $($body)* }
            $crate::secure_mode! { #[cfg(unix)] poll Poll Mixed: $($body)* }
        }
    };
}

/// Stamps tests for TLS on one driver in one mode.
#[macro_export]
macro_rules! secure_mode {
    (#[$cfg:meta] $driver:ident $harness:ident $mode:ident: $($body:ident)*) => {
        #[$cfg]
        mod $driver {
            $(#[test]
            fn $body() {
                use $crate::common::{$harness, scene::{In, WithTls, $mode}};
                super::super::$body::<In<$harness, WithTls<$mode>>>();
            })*
        }
    };
}

/// Stamps tests for one driver in every mode.
#[macro_export]
macro_rules! modes {
    (#[$cfg:meta] $driver:ident $harness:ident: $($body:ident)*) => {
        #[$cfg]
        mod $driver {
            mod nonblocking {
                $(#[test]
                fn $body() {
                    use $crate::common::{$harness, scene::{In, Looped}};
                    super::super::$body::<In<$harness, Looped>>();
                })*
            }
            mod blocking {
                $(#[test]
                fn $body() {
                    use $crate::common::{$harness, scene::{In, Threaded}};
                    super::super::$body::<In<$harness, Threaded>>();
                })*
            }
            mod mixed {
                $(#[test]
                fn $body() {
                    use $crate::common::{$harness, scene::{In, Mixed}};
                    super::super::$body::<In<$harness, Mixed>>();
                })*
            }
        }
    };
}

/// The token of what wakes the test.
const NEWS: u64 = 2;

/// What handlers note for the test.
pub struct News<E> {
    inner: Arc<Inner<E>>,
}

struct Inner<E> {
    notes: Mutex<Vec<E>>,
    serving: Mutex<Option<(Remote, Vec<Address>)>>,
    submitter: Submitter,
}

impl<E> Clone for News<E> {
    fn clone(&self) -> News<E> {
        News { inner: Arc::clone(&self.inner) }
    }
}

fn lock<V>(mutex: &Mutex<V>) -> MutexGuard<'_, V> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl<E> News<E> {
    /// Notes something, and wakes the test.
    pub fn tell(&self, note: E) {
        lock(&self.inner.notes).push(note);
        let _ = self.inner.submitter.wake(NEWS);
    }

    /// What was noted so far.
    pub fn notes(&self) -> MutexGuard<'_, Vec<E>> {
        lock(&self.inner.notes)
    }

    /// How many notes are such.
    pub fn count(&self, is_such: impl Fn(&E) -> bool) -> usize {
        self.notes().iter().filter(|note| is_such(note)).count()
    }

    /// What each handler does in its callback `serving`.
    pub fn serving<S>(&self, server: &mut Context<'_, S>, addresses: &[Address]) -> Action {
        let mut serving = lock(&self.inner.serving);
        serving.get_or_insert_with(|| (server.remote().clone(), addresses.to_vec()));
        drop(serving);
        let _ = self.inner.submitter.wake(NEWS);
        Action::None
    }
}

/// A connection of a client that blocks.
pub trait Duplex: Read + Write {}

impl<T: Read + Write> Duplex for T {}

/// What makes the handlers of a scene.
pub type Make<H> = Box<dyn Fn(usize) -> H + Send + Sync>;

/// A server and its clients.
pub struct Scene<D: Driver, H: Handler, E> {
    pub watcher: Watcher<D>,
    pub clients: Clients,
    pub addresses: Vec<Address>,
    pub remote: Remote,
    pub news: News<E>,
    /// Completions of no client and no server.
    pub others: Vec<Completion>,
    /// The sessions of the clients, if the connections have TLS.
    #[cfg(feature = "ring")]
    pub secured: Option<super::secure::Secured>,
    place: Place<H>,
    report: Option<Report>,
}

impl<D: Driver, H: Handler + 'static, E: Send + 'static> Scene<D, H, E> {
    /// Starts a server: `make` makes its handlers, and `set` gives it addresses and limits.
    pub fn start<T: Setting<Driver = D>>(
        make: impl Fn(News<E>) -> H + Send + Sync + 'static,
        set: impl FnOnce(Server<Make<H>>) -> Server<Make<H>>,
    ) -> Scene<D, H, E> {
        let mut watcher = T::watcher(Watcher::builder());
        let inner = Inner {
            notes: Mutex::new(Vec::new()),
            serving: Mutex::new(None),
            submitter: watcher.submitter(),
        };
        let news = News { inner: Arc::new(inner) };
        let for_handlers = news.clone();
        let make: Make<H> = Box::new(move |_| make(for_handlers.clone()));
        let bounded = Config::new().recv_buffer(SYSTEM_BUFFER).send_buffer(SYSTEM_BUFFER);
        let server = set(Server::new(make).config(bounded));
        #[cfg(feature = "ring")]
        let (server, secured) = if T::TLS {
            let (tls, client) = super::secure::settings();
            (server.tls(tls), Some(super::secure::Secured::new(client)))
        } else {
            (server, None)
        };
        let place = T::start(server, &mut watcher);
        let mut done = Completions::new();
        let begin = Instant::now();
        let (remote, addresses) = loop {
            if let Some(serving) = lock(&news.inner.serving).clone() {
                break serving;
            }
            assert!(begin.elapsed() < PATIENCE, "the server serves");
            watcher.wait_timeout(&mut done, PATIENCE).expect("a wait");
            done.clear();
        };
        let clients = Clients::default();
        let (others, report) = (Vec::new(), None);
        Scene {
            watcher,
            clients,
            addresses,
            remote,
            news,
            others,
            #[cfg(feature = "ring")]
            secured,
            place,
            report,
        }
    }

    /// Whether the server runs on the watcher of the test, in virtual time.
    pub fn is_here(&self) -> bool {
        matches!(self.place, Place::Here(_))
    }

    /// A client that connects to the server's first address.
    pub fn connect(&mut self) -> Source {
        self.connect_to(self.addresses[0].clone())
    }

    /// A client that connects, and never reads.
    pub fn connect_deaf(&mut self) -> Source {
        let client = self.connect();
        self.clients.all.get_mut(&client).expect("right from above").is_deaf = true;
        client
    }

    pub fn connect_to(&mut self, address: Address) -> Source {
        let options = ConnectOptions::default().token(CLIENT);
        let (source, _) = self.watcher.connect([address], options).expect("a source");
        self.clients.all.insert(source, Client::default());
        #[cfg(feature = "ring")]
        if let Some(secured) = &mut self.secured {
            secured.begin(source);
        }
        source
    }

    /// A client for a thread of its own, which may block.
    pub fn blocking_client(&self) -> Box<dyn FnOnce() -> Box<dyn Duplex> + Send> {
        let address = self.addresses[0].ip().expect("an address of IP");
        #[cfg(feature = "ring")]
        let tls = self.secured.as_ref().map(|secured| secured.tls.clone());
        Box::new(move || {
            #[cfg(feature = "ring")]
            if let Some(tls) = tls {
                return Box::new(super::secure::Blocking::connect(address, &tls));
            }
            Box::new(std::net::TcpStream::connect(address).expect("a server"))
        })
    }

    /// A client says something.
    pub fn say(&mut self, client: Source, what: impl Into<Buf>) {
        #[cfg(feature = "ring")]
        if let Some(secured) = &mut self.secured {
            return secured.say(&mut self.watcher, client, what.into());
        }
        self.submit(client, Op::write(client, what));
    }

    /// A client ends its side.
    pub fn finish(&mut self, client: Source) {
        #[cfg(feature = "ring")]
        if let Some(secured) = &mut self.secured {
            secured.finish(&mut self.watcher, client);
        }
        self.submit(client, Op::shutdown(client));
    }

    /// A client that did not read begins to read.
    pub fn hear(&mut self, client: Source) {
        let known = self.clients.all.get_mut(&client).expect("a client");
        known.is_deaf = false;
        // A client that is not connected yet reads when it is.
        if known.is_open {
            self.submit(client, Op::read(client).multishot());
        }
    }

    /// A client is gone at once, without a word.
    pub fn abort(&mut self, client: Source) {
        self.watcher.abort(client);
        self.clients.all.remove(&client);
    }

    fn submit(&mut self, client: Source, op: Op) {
        if let Err(refused) = self.watcher.submit(op.token(CLIENT)) {
            assert!(matches!(refused.reason, Refusal::Os(_) | Refusal::Stale), "{refused}");
            self.clients.all.get_mut(&client).expect("a client").is_broken = true;
        }
    }

    pub fn client(&self, client: Source) -> &Client {
        &self.clients.all[&client]
    }

    /// Runs until `ready`.
    #[track_caller]
    pub fn until(&mut self, what: &str, mut ready: impl FnMut(&mut Self) -> bool) {
        let most = if self.is_here() { 50 * PATIENCE } else { 3 * PATIENCE };
        let start = self.watcher.update_now();
        while !ready(self) {
            let span = self.watcher.update_now() - start;
            assert!(span < most, "still waits until {what}");
            self.turn(most - span);
        }
    }

    /// Runs for a time.
    pub fn run_for(&mut self, span: Duration) {
        let end = self.watcher.update_now() + span;
        while let Some(left) = end.checked_duration_since(self.watcher.update_now())
            && !left.is_zero()
        {
            self.turn(left);
        }
    }

    /// Runs one turn, and waits for it for at most `span`.
    pub fn turn(&mut self, span: Duration) {
        let mut done = Completions::new();
        self.watcher.wait_timeout(&mut done, span).expect("a wait");
        for c in done.drain(..) {
            if c.token == NEWS {
                continue;
            }
            let client = match &mut self.place {
                Place::Here(running) => running.complete(&mut self.watcher, c),
                Place::There(_) => Some(c),
            };
            match client {
                Some(c) if c.token == CLIENT => self.take(c),
                other => self.others.extend(other),
            }
        }
        if let Place::Here(running) = &mut self.place {
            running.turn(&mut self.watcher);
        }
    }

    /// The records of a text of a client, which does not say them.
    #[cfg(feature = "ring")]
    pub fn encrypt(&mut self, client: Source, text: &[u8]) -> Vec<u8> {
        let session = self.secured.as_mut().expect("it has TLS").session(client);
        let mut records = Vec::new();
        session.write_all(text, &mut records).expect("it is open");
        records
    }

    /// Whether the session of a client is open.
    #[cfg(feature = "ring")]
    pub fn is_secured(&mut self, client: Source) -> bool {
        self.secured.as_mut().expect("it has TLS").session(client).is_open()
    }

    /// A client says records.
    pub fn say_raw(&mut self, client: Source, records: Vec<u8>) {
        self.submit(client, Op::write(client, records));
    }

    /// A client ends its side of the connection below.
    pub fn cut(&mut self, client: Source) {
        self.submit(client, Op::shutdown(client));
    }

    /// Takes a completion of a client.
    fn take(&mut self, c: Completion) {
        #[cfg(feature = "ring")]
        let c = match (&mut self.secured, self.clients.all.get_mut(&c.source)) {
            (Some(secured), Some(client)) => match secured.take(&mut self.watcher, client, c) {
                Some(c) => c,
                None => return,
            },
            _ => c,
        };
        self.clients.take(&mut self.watcher, c);
    }

    /// Whether the server is over.
    pub fn is_over(&mut self) -> bool {
        if self.report.is_none() {
            self.report = match &mut self.place {
                Place::Here(running) => running.is_over().then(|| running.report()),
                Place::There(reports) => reports.try_recv().ok(),
            };
        }
        self.report.is_some()
    }

    /// Shuts the server down, and takes its report.
    #[track_caller]
    pub fn end(&mut self) -> Report {
        self.remote.shutdown();
        self.until("the server is over", Scene::is_over);
        mem::take(&mut self.report).expect("it is over")
    }
}

/// Bytes that differ from place to place, and from seed to seed.
pub fn pattern(len: usize, seed: usize) -> Vec<u8> {
    // A prime, so that a lost buffer shows.
    let part: Vec<u8> = (0..65_537).map(|i: usize| (i ^ i >> 8 ^ seed) as u8).collect();
    let mut bytes = part.repeat(len.div_ceil(part.len()));
    bytes.truncate(len);
    bytes
}
