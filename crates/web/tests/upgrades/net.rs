//! An application, and clients on the same watcher, on every driver and in the simulation.
#![allow(dead_code, unreachable_pub)] // it is a module of a test binary

use std::collections::HashMap;
use std::time::Duration;

use windlass::net::ConnectOptions;
use windlass::sim::{Faults, Sim};
use windlass::{Address, Buf, Builder, Completions, DriverKind, Handle, Watcher};
use windlass_serve::{Cause, Config, Engine, Event, Id, Limits};
use windlass_web::{App, ServerLoop};

/// A driver under test.
pub trait Harness {
    const NAME: &'static str;
    /// Whether time is virtual, and the network a simulation.
    const VIRTUAL: bool;
    fn watcher() -> Watcher;
}

macro_rules! system {
    ($name:ident $kind:ident $module:literal) => {
        pub struct $name;
        impl Harness for $name {
            const NAME: &'static str = $module;
            const VIRTUAL: bool = false;
            fn watcher() -> Watcher {
                Builder::default().driver(DriverKind::$kind).build().expect("the driver is there")
            }
        }
    };
}

system!(Epoll Epoll "epoll");
system!(Uring Uring "uring");
system!(Kqueue Kqueue "kqueue");
system!(Poll Poll "poll");

macro_rules! simulation {
    ($name:ident $module:literal $sim:expr) => {
        pub struct $name;
        impl Harness for $name {
            const NAME: &'static str = $module;
            const VIRTUAL: bool = true;
            fn watcher() -> Watcher {
                Watcher::simulated(&$sim)
            }
        }
    };
}

simulation!(Simulated "sim" Sim::new(1));
simulation!(Faulty "faults" {
    let chosen = std::env::var("WINDLASS_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = chosen.unwrap_or_else(|| fastrand::u64(..));
    println!("WINDLASS_SEED={seed}");
    Sim::with_faults(seed, Faults::transient(0.2))
});
simulation!(Completing "completes" {
    let sim = Sim::new(1);
    sim.set_completing(true);
    sim
});

/// Stamps tests for every driver.
#[macro_export]
macro_rules! every_driver {
    ($($body:ident)*) => {
        $crate::stamp! { #[cfg(target_os = "linux")] epoll Epoll: $($body)* }
        $crate::stamp! { #[cfg(target_os = "linux")] uring Uring: $($body)* }
        $crate::stamp! { #[cfg(windlass_kqueue)] kqueue Kqueue: $($body)* }
        $crate::stamp! { #[cfg(unix)] poll Poll: $($body)* }
        $crate::stamp! { #[cfg(all())] sim Simulated: $($body)* }
        $crate::stamp! { #[cfg(all())] faults Faulty: $($body)* }
        $crate::stamp! { #[cfg(all())] completes Completing: $($body)* }
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
                super::$body::<$crate::net::$harness>();
            })*
        }
    };
}

/// The longest that a test waits for one thing.
const PATIENCE: Duration = Duration::from_secs(1000);

/// A client's end of a connection.
#[derive(Debug, Default)]
struct Client {
    heard: Vec<u8>,
    eof: bool,
    /// Whether the connection has ended.
    is_over: bool,
}

/// Clients: an engine on the watcher of the server.
pub struct Clients {
    pub engine: Engine<()>,
    /// The server that they agree on TLS with.
    #[cfg(feature = "ring")]
    tls: Option<windlass_serve::tls::Destination>,
    all: HashMap<Id, Client>,
    at: Address,
}

impl Clients {
    /// Clients of the server at this address.
    pub fn new(at: Address) -> Clients {
        let limits = Limits::new().idle(None);
        let engine = Engine::new(Config::new().close_on_eof(false).limits(limits));
        Clients {
            engine,
            #[cfg(feature = "ring")]
            tls: None,
            all: HashMap::new(),
            at,
        }
    }

    /// A client that connects.
    pub fn connect(&mut self) -> Id {
        let (at, options) = ([self.at.clone()], ConnectOptions::default());
        #[cfg(feature = "ring")]
        let id = match &self.tls {
            Some(to) => self.engine.connect_tls(at, options, to, ()),
            None => self.engine.connect(at, options, ()),
        };
        #[cfg(not(feature = "ring"))]
        let id = self.engine.connect(at, options, ());
        let id = id.expect("few connections");
        self.all.insert(id, Client::default());
        id
    }

    /// Makes a client of a descriptor.
    pub fn attach(&mut self, handle: Handle) -> Id {
        let id = self.engine.attach(handle, ()).expect("few connections");
        self.all.insert(id, Client::default());
        id
    }

    pub fn say(&mut self, client: Id, what: impl Into<Buf>) {
        let _ = self.engine.write(client, what); // refused if the server has ended it
    }

    pub fn heard(&self, client: Id) -> String {
        self.all[&client].heard.iter().map(|byte| *byte as char).collect()
    }

    /// Whether it has heard this last.
    pub fn ends_with(&self, client: Id, bytes: &[u8]) -> bool {
        self.all[&client].heard.ends_with(bytes)
    }

    /// Whether it has read an end of file, which says: this is all.
    pub fn has_eof(&self, client: Id) -> bool {
        self.all[&client].eof
    }

    pub fn has_ended(&self, client: Id) -> bool {
        self.all[&client].eof || self.all[&client].is_over
    }

    /// Notes what the clients have heard.
    pub fn events(&mut self, watcher: &mut Watcher) {
        while let Some(event) = self.engine.next_event(watcher) {
            let all = &mut self.all;
            match event {
                Event::Data { id, data } => {
                    all.entry(id).or_default().heard.extend_from_slice(&data)
                }
                Event::Eof { id } => all.entry(id).or_default().eof = true,
                Event::Closed { id, cause, .. } => {
                    let client = all.entry(id).or_default();
                    client.is_over = true;
                    // One that has ended its own side closes at the end of the other.
                    client.eof |= cause == Cause::Eof;
                }
                _ => {}
            }
        }
    }
}

/// A server and its clients.
pub struct Net<S: 'static> {
    pub watcher: Watcher,
    pub server: ServerLoop<S>,
    clients: Clients,
}

impl<S: 'static> Net<S> {
    pub fn new<T: Harness>(app: App<S>) -> Net<S> {
        let mut watcher = T::watcher();
        let (app, port) = if T::VIRTUAL {
            (app.listen("127.0.0.1:8080").expect("an address"), 8080)
        } else {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a listener");
            let port = listener.local_addr().expect("its address").port();
            (app.listen(listener).expect("a listener"), port)
        };
        let server = app.start_on(&mut watcher).expect("it starts");
        Net { watcher, server, clients: Clients::new(([127, 0, 0, 1], port).into()) }
    }

    /// The same, with TLS.
    #[cfg(feature = "ring")]
    pub fn with_tls<T: Harness>(
        app: App<S>,
        tls: windlass_serve::tls::Tls,
        to: windlass_serve::tls::Destination,
    ) -> Net<S> {
        let mut watcher = T::watcher();
        let (app, port) = if T::VIRTUAL {
            (app.listen(("127.0.0.1:8080", tls)).expect("an address"), 8080)
        } else {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a listener");
            let port = listener.local_addr().expect("its address").port();
            (app.listen((listener, tls)).expect("a listener"), port)
        };
        let server = app.start_on(&mut watcher).expect("it starts");
        let mut clients = Clients::new(([127, 0, 0, 1], port).into());
        clients.tls = Some(to);
        Net { watcher, server, clients }
    }

    pub fn connect(&mut self) -> Id {
        self.clients.connect()
    }

    pub fn attach(&mut self, handle: Handle) -> Id {
        self.clients.attach(handle)
    }

    pub fn say(&mut self, client: Id, what: impl Into<Buf>) {
        self.clients.say(client, what);
    }

    pub fn finish(&mut self, client: Id) {
        self.clients.engine.shutdown(client);
    }

    pub fn heard(&self, client: Id) -> String {
        self.clients.heard(client)
    }

    /// Runs one turn, and waits for it for at most `span`; how many completions there were.
    pub fn turn(&mut self, span: Duration) -> usize {
        self.clients.engine.flush(&mut self.watcher);
        let mut done = Completions::new();
        let count = self.watcher.wait_timeout(&mut done, span).expect("a wait");
        for c in done.drain(..) {
            if let Some(c) = self.server.complete(&mut self.watcher, c) {
                let rest = self.clients.engine.complete(&mut self.watcher, c);
                assert!(rest.is_none(), "whose is it?");
            }
        }
        self.server.turn(&mut self.watcher);
        self.clients.events(&mut self.watcher);
        self.clients.engine.flush(&mut self.watcher);
        count
    }

    /// Runs until `ready`.
    #[track_caller]
    pub fn until(&mut self, what: &str, mut ready: impl FnMut(&mut Self) -> bool) {
        while !ready(self) {
            assert!(self.turn(PATIENCE) > 0, "waited in vain until {what}");
        }
    }

    /// Runs until a client has heard this behind all else.
    #[track_caller]
    pub fn until_heard(&mut self, client: Id, end: &str) {
        self.until(end, |net| {
            let heard = net.heard(client);
            assert!(!net.clients.all[&client].is_over, "it has ended: {heard:?}");
            heard.ends_with(end)
        });
    }

    /// Runs until a client's connection has no further input.
    #[track_caller]
    pub fn until_end(&mut self, client: Id) -> String {
        self.until("it has ended", |net| net.clients.has_ended(client));
        self.heard(client)
    }
}
