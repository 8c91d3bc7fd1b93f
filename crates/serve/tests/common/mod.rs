//! Code that the suites share: a harness per driver, and a bench of a server and clients, which run
//! in one thread on one watcher.
#![allow(dead_code, unreachable_pub)] // each test binary uses its own part

pub mod engine;
pub mod hosts;
pub mod refusing;
#[cfg(unix)]
pub mod scene;
#[cfg(feature = "ring")]
pub mod secure;
#[path = "../../../../tests/common/seeds.rs"]
pub mod seeds;
pub mod turns;

use std::cell::Cell;
use std::collections::HashMap;
use std::time::Duration;

use windlass::driver::{Driver, OpCode};
use windlass::net::ConnectOptions;
use windlass::sim::{Faults, Sim};
use windlass::{
    Address, Buf, Builder, Completion, Completions, Done, DriverKind, Error, ErrorKind, Op,
    Refusal, Source, Watcher,
};
use windlass_serve::{Handler, Server, ServerLoop};

/// A driver under test.
pub trait Harness {
    /// The driver.
    type Driver: Driver;
    /// The module that holds the stamps of this harness.
    const NAME: &'static str;
    /// Whether time is virtual, and waiting for a limit costs nothing.
    const VIRTUAL: bool;

    /// A watcher with these settings.
    fn watcher(builder: Builder) -> Watcher<Self::Driver>;

    /// Runs a test: once, or for each of several seeds.
    fn run(test: fn()) {
        test();
    }

    /// A time that a test can wait for: this one where time is virtual, else a hundredth of it.
    fn span(seconds: f64) -> Duration {
        Duration::from_secs_f64(if Self::VIRTUAL { seconds } else { seconds / 100.0 })
    }
}

/// A driver of the system, for servers that make their own watchers.
pub trait System: Harness {
    /// A builder of this driver.
    fn builder() -> Builder;
}

macro_rules! system {
    ($name:ident $kind:ident $module:literal) => {
        /// A driver of the system.
        pub struct $name;
        impl Harness for $name {
            type Driver = windlass::driver::Auto;
            const NAME: &'static str = $module;
            const VIRTUAL: bool = false;
            fn watcher(builder: Builder) -> Watcher {
                builder.driver(DriverKind::$kind).build().expect("the driver is there")
            }
        }
        impl System for $name {
            fn builder() -> Builder {
                Watcher::builder().driver(DriverKind::$kind)
            }
        }
    };
}

system!(Epoll Epoll "epoll");
system!(Uring Uring "uring");
system!(Kqueue Kqueue "kqueue");
system!(Poll Poll "poll");

/// A simulated network that behaves.
pub struct Simulated;

impl Harness for Simulated {
    type Driver = windlass::driver::Auto;
    const NAME: &'static str = "sim";
    const VIRTUAL: bool = true;
    fn watcher(builder: Builder) -> Watcher<Self::Driver> {
        Watcher::simulated_with(&Sim::new(1), builder.config())
    }
}

/// A simulated network that delays, tears and interrupts, but loses nothing.
pub struct Faulty;

impl Harness for Faulty {
    type Driver = windlass::driver::Auto;
    const NAME: &'static str = "faults";
    const VIRTUAL: bool = true;
    fn watcher(builder: Builder) -> Watcher<Self::Driver> {
        let sim = Sim::with_faults(seed(), Faults::transient(0.2));
        Watcher::simulated_with(&sim, builder.config())
    }
    fn run(test: fn()) {
        for_seeds(test);
    }
}

/// A simulated network that behaves, with a kernel that completes reads and writes.
pub struct Completing;

impl Harness for Completing {
    type Driver = windlass::driver::Auto;
    const NAME: &'static str = "completes";
    const VIRTUAL: bool = true;
    fn watcher(builder: Builder) -> Watcher<Self::Driver> {
        let sim = Sim::new(seed());
        sim.set_completing(true);
        Watcher::simulated_with(&sim, builder.config())
    }
    fn run(test: fn()) {
        for_seeds(test);
    }
}

thread_local! {
    static SEED: Cell<Option<u64>> = const { Cell::new(None) };
}

/// The seed that tests have where none is chosen.
const USUAL_SEED: u64 = 7;

/// Runs a test with one seed, or with those of `WINDLASS_SEED` and `WINDLASS_PROGRAMS`: the nightly
/// exploration chooses seeds that no run has tried. A failure prints the command that repeats it.
pub fn for_seeds(test: impl Fn()) {
    if seeds::setting::<u64>("WINDLASS_SEED").is_none() {
        return test();
    }
    let thread = std::thread::current(); // it is named after the test
    seeds::each(thread.name().unwrap_or_default(), 1, 0, |seed| {
        SEED.set(Some(seed));
        test();
    });
}

/// The seed of this test's faults: see [`for_seeds`].
pub fn seed() -> u64 {
    let chosen = SEED.get().or_else(|| seeds::setting("WINDLASS_SEED"));
    chosen.unwrap_or(USUAL_SEED)
}

/// Stamps tests for every driver.
#[macro_export]
macro_rules! every_driver {
    ($($body:ident)*) => {
        $crate::systems_drivers! { $($body)* }
        $crate::stamp! { #[cfg(all())] sim Simulated: $($body)* }
        $crate::stamp! { #[cfg(all())] faults Faulty: $($body)* }
    };
}

/// Stamps tests for every driver, and for both kinds of kernel in the simulation.
#[macro_export]
macro_rules! every_kernel {
    ($($body:ident)*) => {
        $crate::every_driver! { $($body)* }
        $crate::stamp! { #[cfg(all())] completes Completing: $($body)* }
    };
}

/// Stamps tests for the drivers of the system, for what a simulated network does not have.
#[macro_export]
macro_rules! systems_drivers {
    ($($body:ident)*) => {
        $crate::stamp! { #[cfg(target_os = "linux")] epoll Epoll: $($body)* }
        $crate::stamp! { #[cfg(target_os = "linux")] uring Uring: $($body)* }
        $crate::stamp! { #[cfg(windlass_kqueue)] kqueue Kqueue: $($body)* }
        $crate::stamp! { #[cfg(unix)] poll Poll: $($body)* }
    };
}

/// Stamps tests for one driver.
#[macro_export]
macro_rules! stamp {
    (#[$cfg:meta] $driver:ident $harness:ident: $($body:ident)*) => {
        #[$cfg]
        mod $driver {
            $(#[test]
            fn $body() {
                use $crate::common::{$harness, Harness};
                <$harness as Harness>::run(super::$body::<$harness>);
            })*
        }
    };
}

/// The bytes that the system holds for a connection of the bench, about, each way at each end.
pub const SYSTEM_BUFFER: u32 = 128 << 10;

/// Bounds what the system holds for a socket, and for those that it accepts, so that tests of what
/// waits do not depend on the system's settings. The simulation has a bound of its own.
#[cfg(unix)]
pub fn bound_buffers<D: Driver>(watcher: &mut Watcher<D>, source: Source) {
    let Ok(fd) = watcher.fd(source) else { return };
    let socket = socket2::SockRef::from(&fd);
    socket.set_recv_buffer_size(SYSTEM_BUFFER as usize).expect("a size");
    socket.set_send_buffer_size(SYSTEM_BUFFER as usize).expect("a size");
}

#[cfg(not(unix))]
pub fn bound_buffers<D: Driver>(_: &mut Watcher<D>, _: Source) {}

/// A client's end of a connection.
#[derive(Debug, Default)]
pub struct Client {
    /// The bytes that it has received.
    pub heard: Vec<u8>,
    /// Whether it is connected. The server may know of it before.
    pub is_open: bool,
    /// Whether the server has ended its side.
    pub eof: bool,
    /// How its reads or its connect have failed.
    pub error: Option<ErrorKind>,
    /// Whether one of its writes has failed. (Then its reads may see an end, as on Linux.)
    pub is_broken: bool,
    /// Whether it never reads.
    pub is_deaf: bool,
    /// Whether it stays when the server has ended its side. Others close then.
    pub stays: bool,
    /// Bytes of its writes that are out.
    pub said: usize,
}

impl Client {
    /// Whether it hears nothing more.
    pub fn is_over(&self) -> bool {
        self.eof || self.error.is_some()
    }
}

/// The tokens of what clients do.
const CLIENT: u64 = 1;

/// The longest that a test waits for one thing.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Clients, on the watcher of the server.
#[derive(Default)]
pub struct Clients {
    pub all: HashMap<Source, Client>,
    order: Vec<Source>,
}

impl Clients {
    /// Takes a completion of a client.
    pub fn take<D: Driver>(&mut self, watcher: &mut Watcher<D>, c: Completion) {
        assert_eq!(c.token, CLIENT, "a completion of no client: {c:?}");
        let Some(client) = self.all.get_mut(&c.source) else { return };
        let failed = |error: &Error| error.kind();
        match (c.code(), &c.result) {
            (OpCode::Read, Ok(Done::Read(data))) => {
                client.heard.extend_from_slice(data);
                client.eof |= data.is_eof();
                if data.is_eof() && !client.stays {
                    watcher.abort(c.source);
                }
            }
            // The test has cancelled the read, so that the client stops reading.
            (OpCode::Read, Err(error)) if error.kind() == ErrorKind::Cancelled => {}
            (OpCode::Read | OpCode::Connect, Err(error)) => client.error = Some(failed(error)),
            (OpCode::Connect, Ok(_)) => {
                client.is_open = true;
                let is_deaf = client.is_deaf;
                bound_buffers(watcher, c.source);
                if !is_deaf {
                    let read = Op::read(c.source).multishot().token(CLIENT);
                    watcher.submit(read).expect("a read");
                }
            }
            (OpCode::Write, result) => {
                client.said += c.bytes();
                client.is_broken |= result.is_err();
            }
            _ => {}
        }
    }
}

/// A server and its clients.
pub struct Bench<D: Driver, H: Handler> {
    pub watcher: Watcher<D>,
    pub running: ServerLoop<H>,
    pub clients: Clients,
    pub addresses: Vec<Address>,
}

/// Starts a server on a watcher of the harness.
pub fn bench<T: Harness, H: Handler, F: Fn(usize) -> H>(server: Server<F>) -> Bench<T::Driver, H> {
    bench_with::<T, H, F>(Watcher::builder(), server)
}

/// The same, with settings.
pub fn bench_with<T: Harness, H: Handler, F: Fn(usize) -> H>(
    builder: Builder,
    server: Server<F>,
) -> Bench<T::Driver, H> {
    let mut watcher = T::watcher(builder);
    let mut running = server.start_on(&mut watcher).expect("the server starts");
    let listeners = running.engine().listeners().to_vec();
    for &listener in &listeners {
        bound_buffers(&mut watcher, listener);
    }
    let address = |source| watcher.local_address(source).expect("its address");
    let addresses = listeners.into_iter().map(address).collect();
    Bench { watcher, running, clients: Clients::default(), addresses }
}

impl<D: Driver, H: Handler> Bench<D, H> {
    /// A client that connects to the server's first address.
    pub fn connect(&mut self) -> Source {
        let address = self.addresses[0].clone();
        self.connect_to(address)
    }

    /// A client that connects, and never reads.
    pub fn connect_deaf(&mut self) -> Source {
        let client = self.connect();
        self.clients.all.get_mut(&client).expect("right from above").is_deaf = true;
        client
    }

    /// A client that connects there.
    pub fn connect_to(&mut self, address: Address) -> Source {
        let options = ConnectOptions::default().token(CLIENT);
        let (source, _) = self.watcher.connect([address], options).expect("a source");
        self.clients.all.insert(source, Client::default());
        self.clients.order.push(source);
        source
    }

    /// A client says something.
    pub fn say(&mut self, client: Source, what: impl Into<Buf>) {
        self.submit(client, Op::write(client, what));
    }

    /// A client ends its side.
    pub fn finish(&mut self, client: Source) {
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

    /// Submits an operation of a client; refused only if its connect has failed, or it has closed.
    fn submit(&mut self, client: Source, op: Op) {
        if let Err(refused) = self.watcher.submit(op.token(CLIENT)) {
            assert!(matches!(refused.reason, Refusal::Os(_) | Refusal::Stale), "{refused}");
            self.clients.all.get_mut(&client).expect("a client").is_broken = true;
        }
    }

    /// A client stops reading, when it is connected: the connect would be cancelled, too.
    pub fn deafen(&mut self, client: Source) {
        self.until("it is connected", |bench| bench.client(client).is_open);
        self.watcher.cancel_all(client);
    }

    pub fn client(&self, client: Source) -> &Client {
        &self.clients.all[&client]
    }

    /// Runs until `ready`.
    #[track_caller]
    pub fn until(&mut self, what: &str, mut ready: impl FnMut(&mut Self) -> bool) {
        let start = self.watcher.update_now();
        while !ready(self) {
            assert!(self.watcher.now() - start < 50 * PATIENCE, "still waits until {what}");
            assert!(self.turn(50 * PATIENCE) > 0, "waited in vain until {what}");
        }
    }

    /// Runs one turn, and waits for it for at most `span`; how many completions there were.
    pub fn turn(&mut self, span: Duration) -> usize {
        let count = self.look(span);
        self.running.turn(&mut self.watcher);
        count
    }

    /// Takes what is there, and leaves the callbacks to a later turn.
    pub fn look(&mut self, span: Duration) -> usize {
        let mut done = Completions::new();
        let count = self.watcher.wait_timeout(&mut done, span).expect("a wait");
        for c in done.drain(..) {
            if let Some(c) = self.running.complete(&mut self.watcher, c) {
                self.clients.take(&mut self.watcher, c);
            }
        }
        count
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
}
