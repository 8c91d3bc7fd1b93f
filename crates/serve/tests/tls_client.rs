//! Clients with TLS, on every driver and in the simulation.
#![allow(missing_docs)] // a test binary has no users
#![cfg(feature = "ring")]

mod common;
#[path = "common/tls.rs"]
mod tls;

use std::collections::HashMap;

use common::Harness;
use common::turns::Turns;
use windlass::driver::Driver;
use windlass::net::{ConnectOptions, ListenOptions};
use windlass::{Address, Completions, Watcher};
use windlass_serve::tls::{Destination, Error, Provider, Tls, TlsClient};
use windlass_serve::{Cause, Config, Engine, Event, Id, Limits, Phase};

every_driver! {
    an_echo_passes_and_both_sides_say_that_they_end
    what_is_written_before_the_connect_arrives
    a_close_during_the_handshake_sends_the_output_first
}

/// How a connection has ended.
#[derive(Debug)]
struct End {
    cause: Cause,
    phase: Phase,
    unsent: usize,
    tls_error: Option<Error>,
}

/// An engine that connects, and one that echoes, on one watcher.
struct Two<D: Driver> {
    watcher: Watcher<D>,
    client: Engine<u32>,
    server: Engine<()>,
    address: Address,
    opened: Vec<Id>,
    heard: HashMap<Id, Vec<u8>>,
    ends: HashMap<Id, End>,
    /// What the server has heard, and how its connections have ended.
    served: Vec<u8>,
    server_ends: Vec<End>,
    to: Destination,
}

impl<D: Driver> Two<D> {
    fn new<T: Harness<Driver = D>>(config: Config) -> Two<D> {
        let (_, tls, client) = tls::settings(Provider::Ring);
        Two::with::<T>(config, tls.build().unwrap(), &client.build().unwrap())
    }

    fn with<T: Harness<Driver = D>>(config: Config, tls: Tls, trust: &TlsClient) -> Two<D> {
        let mut watcher = T::watcher(Watcher::builder());
        let (client, mut server) = (Engine::new(config), Engine::new(config));
        let local = ([127, 0, 0, 1], 0);
        let listener = server.listen(&mut watcher, local, ListenOptions::default()).unwrap();
        assert!(server.encrypt_listener(listener, tls));
        let address = watcher.local_address(server.listeners()[listener]).unwrap();
        let (opened, heard, ends, served, server_ends) = <(_, _, _, _, _)>::default();
        let to = trust.to("localhost").unwrap();
        Two { watcher, client, server, address, opened, heard, ends, served, server_ends, to }
    }

    fn connect(&mut self) -> Id {
        let options = ConnectOptions::default();
        self.client.connect_tls([self.address.clone()], options, &self.to, 7).unwrap()
    }

    /// A client that is open.
    fn open(&mut self) -> Id {
        let id = self.connect();
        self.go("it is open", |two| two.opened.contains(&id));
        id
    }

    /// Carries out what the test has asked for, and runs until `ready`.
    #[track_caller]
    fn go(&mut self, what: &str, ready: impl FnMut(&mut Self) -> bool) {
        self.client.flush(&mut self.watcher);
        self.server.flush(&mut self.watcher);
        self.until(what, ready);
    }

    fn heard(&self, id: Id) -> &[u8] {
        self.heard.get(&id).map_or(&[], Vec::as_slice)
    }

    #[track_caller]
    fn end(&mut self, id: Id) -> End {
        self.go("it has ended", |two| two.ends.contains_key(&id));
        self.ends.remove(&id).unwrap()
    }

    fn events(&mut self) {
        while let Some(event) = self.client.next_event(&mut self.watcher) {
            match event {
                Event::Opened { id, origin } => {
                    assert_eq!(origin.peer, self.address.ip());
                    assert!(!self.opened.contains(&id) && !self.ends.contains_key(&id));
                    self.opened.push(id);
                }
                Event::Data { id, data } => {
                    assert!(self.opened.contains(&id) && !self.ends.contains_key(&id));
                    self.heard.entry(id).or_default().extend_from_slice(&data);
                }
                Event::Closed { id, cause, phase, unsent, state, tls_error, .. } => {
                    assert_eq!(state, 7);
                    let end =
                        End { cause, phase, unsent, tls_error: tls_error.map(|error| *error) };
                    assert!(self.ends.insert(id, end).is_none(), "it ends again");
                }
                Event::Drained { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        while let Some(event) = self.server.next_event(&mut self.watcher) {
            match event {
                Event::Data { id, data } => {
                    self.served.extend_from_slice(&data);
                    self.server.write(id, data).unwrap();
                }
                Event::Closed { cause, phase, unsent, tls_error, .. } => {
                    let tls_error = tls_error.map(|error| *error);
                    self.server_ends.push(End { cause, phase, unsent, tls_error });
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

    fn turn(&mut self, span: std::time::Duration) -> usize {
        let mut done = Completions::new();
        let count = self.watcher.wait_timeout(&mut done, span).unwrap();
        for completion in done.drain(..) {
            if let Some(completion) = self.client.complete(&mut self.watcher, completion) {
                let foreign = self.server.complete(&mut self.watcher, completion);
                assert!(foreign.is_none(), "{foreign:?}");
            }
        }
        self.events();
        self.client.flush(&mut self.watcher);
        self.server.flush(&mut self.watcher);
        count
    }
}

fn quiet() -> Config {
    Config::new().limits(Limits::new().idle(None))
}

fn an_echo_passes_and_both_sides_say_that_they_end<T: Harness>() {
    let mut two = Two::new::<T>(quiet());
    let id = two.open();
    let all: Vec<u8> = (0..300_000_u32).map(|at| ((at * 7) >> 3) as u8).collect();
    two.client.write(id, all.clone()).unwrap();
    two.go("it is echoed", |two| two.heard(id).len() == all.len());
    assert!(two.heard(id) == all && two.served == all);
    two.client.close(id);
    let end = two.end(id);
    assert_eq!((end.cause, end.unsent, end.phase), (Cause::Closed, 0, Phase::Closing));
    assert!(end.tls_error.is_none());
    two.go("the server's end, too", |two| two.server_ends.len() == 1);
    assert_eq!(two.server_ends[0].cause, Cause::Eof);
    assert_eq!((two.client.budget().used(), two.server.budget().used()), (0, 0));
}

fn what_is_written_before_the_connect_arrives<T: Harness>() {
    let mut two = Two::new::<T>(quiet());
    let id = two.connect();
    two.client.write(id, "written at once, ").unwrap();
    two.client.flush(&mut two.watcher);
    two.client.write(id, "then once more").unwrap();
    two.go("it is echoed", |two| two.heard(id).len() == 31);
    assert_eq!(two.heard(id), b"written at once, then once more");
    assert_eq!(two.served, b"written at once, then once more");
}

fn a_close_during_the_handshake_sends_the_output_first<T: Harness>() {
    let mut two = Two::new::<T>(quiet());
    let id = two.connect();
    two.client.write(id, "the last words").unwrap();
    two.client.close(id);
    let end = two.end(id);
    assert_eq!((end.cause, end.unsent), (Cause::Closed, 0));
    two.go("the server's end, too", |two| two.server_ends.len() == 1);
    assert_eq!((&*two.served, two.server_ends[0].cause), (&b"the last words"[..], Cause::Eof));
    assert!(two.opened.is_empty());
}
