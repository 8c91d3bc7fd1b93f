//! An engine of clients and an engine of a server, on one watcher, with TLS between them.
#![allow(dead_code, unreachable_pub)] // each test uses its own part

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use windlass::driver::Driver;
use windlass::net::{ConnectOptions, ListenOptions, SocketOption};
use windlass::{Address, Completions, Watcher};
use windlass_serve::log::{Level, Log, Record};
use windlass_serve::ops::Completed;
use windlass_serve::tls::{Destination, Error, Provider, Tls, TlsClient};
use windlass_serve::{Cause, Config, Engine, Event, Id, Limits, Phase};

use crate::common::turns::Turns;
use crate::common::{Harness, bound_buffers};
use crate::tls;

/// How a connection has ended.
#[derive(Debug)]
pub struct End {
    pub id: Id,
    pub cause: Cause,
    pub phase: Phase,
    pub unsent: usize,
    pub tls_error: Option<Error>,
}

/// What the server does with a connection of its plain listener.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Plain {
    /// It says nothing.
    Silent,
    Closes,
    Resets,
    Says(&'static [u8]),
}

/// Keeps the lines of a log that are about TLS.
#[derive(Default)]
pub struct Lines(Mutex<Vec<String>>);

impl Lines {
    pub fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

impl Log for Lines {
    fn enabled(&self, level: Level) -> bool {
        level <= Level::Info
    }

    fn log(&self, record: &Record<'_>) {
        self.0.lock().unwrap().push(record.to_string());
    }
}

/// An engine that connects, and one that echoes.
pub struct Two<D: Driver> {
    pub watcher: Watcher<D>,
    pub client: Engine<u32>,
    pub server: Engine<()>,
    /// Of the listener with TLS, and of the plain one.
    pub address: Address,
    pub plain: Address,
    pub at_plain: Plain,
    /// Who the client connects to.
    pub to: Destination,
    /// What the client was told.
    pub opened: Vec<Id>,
    pub heard: HashMap<Id, Vec<u8>>,
    pub ends: HashMap<Id, End>,
    /// What the server has heard, and how its connections have ended.
    pub server_opened: Vec<Id>,
    pub served: Vec<u8>,
    pub served_of: HashMap<Id, usize>,
    pub server_ends: Vec<End>,
    /// Whose clients have ended their side.
    pub server_eofs: Vec<Id>,
    /// The operations of the server that have ended.
    pub completed: Vec<Completed>,
    pub log: &'static Lines,
    /// Whether the server echoes.
    pub echoes: bool,
}

/// Without a limit of the idle time.
pub fn quiet() -> Config {
    Config::new().limits(Limits::new().idle(None))
}

impl<D: Driver> Two<D> {
    pub fn new<T: Harness<Driver = D>>(config: Config) -> Two<D> {
        let (_, tls, client) = tls::settings(Provider::Ring);
        Two::with::<T>(config, tls.build().unwrap(), &client.build().unwrap())
    }

    pub fn with<T: Harness<Driver = D>>(config: Config, tls: Tls, trust: &TlsClient) -> Two<D> {
        Two::on(T::watcher(Watcher::builder()), config, tls, trust)
    }

    /// On this watcher.
    pub fn on(mut watcher: Watcher<D>, config: Config, tls: Tls, trust: &TlsClient) -> Two<D> {
        let log: &'static Lines = Box::leak(Box::default());
        let (client, mut server) = (Engine::new(config.log(log)), Engine::new(config.log(log)));
        let mut listen = || {
            let options = ListenOptions::default();
            let listener = server.listen(&mut watcher, ([127, 0, 0, 1], 0), options).unwrap();
            let source = server.listeners()[listener];
            bound_buffers(&mut watcher, source);
            watcher.local_address(source).unwrap()
        };
        let (address, plain) = (listen(), listen());
        assert!(server.encrypt_listener(0, tls));
        let to = trust.to("localhost").unwrap();
        Two {
            watcher,
            client,
            server,
            address,
            plain,
            at_plain: Plain::Silent,
            to,
            opened: Vec::new(),
            heard: HashMap::new(),
            ends: HashMap::new(),
            server_opened: Vec::new(),
            served: Vec::new(),
            served_of: HashMap::new(),
            server_ends: Vec::new(),
            server_eofs: Vec::new(),
            completed: Vec::new(),
            log,
            echoes: true,
        }
    }

    pub fn connect(&mut self) -> Id {
        self.connect_to([self.address.clone()])
    }

    pub fn connect_to(&mut self, addresses: impl IntoIterator<Item = Address>) -> Id {
        let options = ConnectOptions::default();
        self.client.connect_tls(addresses, options, &self.to, 7).unwrap()
    }

    /// A client that is open.
    pub fn open(&mut self) -> Id {
        let id = self.connect();
        self.go("it is open", |two| two.opened.contains(&id));
        id
    }

    /// Carries out what the test has asked for, and runs until `ready`.
    #[track_caller]
    pub fn go(&mut self, what: &str, ready: impl FnMut(&mut Self) -> bool) {
        self.flush();
        self.until(what, ready);
    }

    pub fn flush(&mut self) {
        self.client.flush(&mut self.watcher);
        self.server.flush(&mut self.watcher);
    }

    pub fn heard(&self, id: Id) -> &[u8] {
        self.heard.get(&id).map_or(&[], Vec::as_slice)
    }

    /// The first client, and its connection at the server, both open.
    pub fn both(&mut self) -> (Id, Id) {
        let id = self.open();
        self.go("the server has it, too", |two| !two.server_opened.is_empty());
        (id, self.server_opened[0])
    }

    /// The end of a client.
    #[track_caller]
    pub fn end(&mut self, id: Id) -> End {
        self.go("it has ended", |two| two.ends.contains_key(&id));
        self.ends.remove(&id).unwrap()
    }

    /// The end of the only connection of the server that has opened.
    #[track_caller]
    pub fn server_end(&mut self) -> End {
        self.go("the server's end", |two| !two.server_ends.is_empty());
        self.server_ends.pop().unwrap()
    }

    fn client_events(&mut self) {
        while let Some(event) = self.client.next_event(&mut self.watcher) {
            match event {
                Event::Opened { id, .. } => {
                    assert!(!self.opened.contains(&id) && !self.ends.contains_key(&id));
                    self.opened.push(id);
                }
                Event::Data { id, data } => {
                    assert!(self.opened.contains(&id) && !self.ends.contains_key(&id));
                    self.heard.entry(id).or_default().extend_from_slice(&data);
                }
                Event::Closed { id, cause, phase, unsent, state, tls_error, .. } => {
                    assert_eq!(state, 7);
                    let tls_error = tls_error.map(|error| *error);
                    let end = End { id, cause, phase, unsent, tls_error };
                    assert!(self.ends.insert(id, end).is_none(), "it ends again");
                }
                Event::Drained { .. } | Event::Eof { .. } | Event::FileSent { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }

    fn server_events(&mut self) {
        while let Some(event) = self.server.next_event(&mut self.watcher) {
            match event {
                Event::Opened { id, origin } if origin.listener == Some(1) => match self.at_plain {
                    Plain::Silent => {}
                    Plain::Closes => _ = self.server.close(id),
                    Plain::Resets => {
                        let source = self.server.source(id).unwrap();
                        let linger = SocketOption::Linger(Some(Duration::ZERO));
                        self.watcher.set_option(source, linger).unwrap();
                        self.server.abort(id);
                    }
                    Plain::Says(what) => self.server.write(id, what.to_vec()).unwrap(),
                },
                Event::Opened { id, .. } => self.server_opened.push(id),
                Event::Eof { id } => self.server_eofs.push(id),
                Event::Completed(ended) => self.completed.push(ended),
                Event::Data { id, data } if self.server.tls(id).is_some() => {
                    *self.served_of.entry(id).or_default() += data.len();
                    self.served.extend_from_slice(&data);
                    if self.echoes {
                        self.server.write(id, data).unwrap();
                    }
                }
                Event::Closed { id, cause, phase, unsent, tls_error, .. } => {
                    let tls_error = tls_error.map(|error| *error);
                    self.server_ends.push(End { id, cause, phase, unsent, tls_error });
                }
                _ => {}
            }
        }
    }
}

impl<D: Driver> Turns for Two<D> {
    type Driver = D;

    fn watcher(&mut self) -> &mut Watcher<D> {
        &mut self.watcher
    }

    fn turn(&mut self, span: Duration) -> usize {
        let mut done = Completions::new();
        let count = self.watcher.wait_timeout(&mut done, span).unwrap();
        for completion in done.drain(..) {
            if let Some(completion) = self.client.complete(&mut self.watcher, completion) {
                let foreign = self.server.complete(&mut self.watcher, completion);
                assert!(foreign.is_none(), "{foreign:?}");
            }
        }
        self.client_events();
        self.server_events();
        self.flush();
        count
    }
}
