//! An engine and clients on one watcher, and what the engine has told.
#![allow(unreachable_pub)] // it is a module of a test binary

use std::collections::HashMap;
use std::time::Duration;

use windlass::net::{ListenOptions, SocketOption};
use windlass::{Buf, Completion, Completions, Handle, Message, Watcher};
use windlass_serve::{Cause, Config, Id};
use windlass_web::engine::{Event, OwnedRequest, RequestId};
use windlass_web::{Engine, Limits, Status};

use super::net::{Clients, Harness};

/// What a raw connection has had.
#[derive(Default)]
pub struct RawLog {
    pub data: Vec<u8>,
    pub eof: usize,
    pub closed: Option<Cause>,
    pub detached: Option<(Handle, Vec<u8>)>,
}

pub struct Bench {
    pub watcher: Watcher,
    pub engine: Engine<()>,
    pub clients: Clients,
    pub done: Completions,
    pub requests: Vec<(RequestId, OwnedRequest)>,
    pub ended: Vec<(RequestId, Option<Status>)>,
    pub refused: Vec<Status>,
    pub raws: HashMap<Id, RawLog>,
    pub foreign: Vec<Completion>,
    pub messages: Vec<Message>,
}

impl Bench {
    pub fn new<T: Harness>(limits: Limits) -> Bench {
        let mut watcher = T::watcher();
        let mut engine = Engine::new(Config::new(), limits);
        let local = ([127, 0, 0, 1], 0);
        let number = engine.listen(&mut watcher, local, ListenOptions::default());
        let listener = engine.listeners()[number.expect("a listener")];
        let address = watcher.local_address(listener).expect("its address");
        Bench {
            watcher,
            engine,
            clients: Clients::new(address),
            done: Completions::new(),
            requests: Vec::new(),
            ended: Vec::new(),
            refused: Vec::new(),
            raws: HashMap::new(),
            foreign: Vec::new(),
            messages: Vec::new(),
        }
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

    /// A client resets its connection.
    pub fn reset(&mut self, client: Id) {
        let reset = SocketOption::Linger(Some(Duration::ZERO));
        self.clients.engine.set_option(client, reset);
        self.turn(Duration::ZERO);
        self.clients.engine.abort(client);
    }

    /// The only request that waits.
    #[track_caller]
    pub fn request(&mut self) -> RequestId {
        self.until("a request is there", |b| !b.requests.is_empty());
        assert_eq!(self.requests.len(), 1);
        self.requests.remove(0).0
    }

    pub fn heard(&self, client: Id) -> String {
        self.clients.heard(client)
    }

    /// Whether a client has heard this last.
    pub fn ends_with(&self, client: Id, bytes: &[u8]) -> bool {
        self.clients.ends_with(client, bytes)
    }

    /// Whether a client has read an end of file.
    pub fn has_eof(&self, client: Id) -> bool {
        self.clients.has_eof(client)
    }

    pub fn raw(&mut self, id: Id) -> &mut RawLog {
        self.raws.entry(id).or_default()
    }

    /// The connections of the engine.
    pub fn connections(&self) -> Vec<Id> {
        self.engine.ids().collect()
    }

    /// Takes the events of the completions that are there.
    pub fn events(&mut self) {
        for c in self.done.drain(..) {
            let Some(c) = self.engine.complete(&mut self.watcher, c) else { continue };
            self.foreign.extend(self.clients.engine.complete(&mut self.watcher, c));
        }
        while let Some(event) = self.engine.next_event(&mut self.watcher) {
            match event {
                Event::Request { id, request } => self.requests.push((id, request)),
                Event::Ended { id, status, .. } => self.ended.push((id, status)),
                Event::Refused { status } => self.refused.push(status),
                Event::Data { id, data } => self.raw(id).data.extend_from_slice(&data),
                Event::Eof { id } => self.raw(id).eof += 1,
                Event::Closed { id, cause, .. } => self.raw(id).closed = Some(cause),
                Event::Detached { id, handle, undelivered, .. } => {
                    let rest = undelivered.iter().flat_map(super::bytes).collect();
                    self.raw(id).detached = Some((handle, rest));
                }
                Event::Message { message } => self.messages.push(message),
                event => panic!("{event:?}"),
            }
        }
        self.clients.events(&mut self.watcher);
    }

    /// Runs one turn, and waits for it for at most `span`; how many completions there were.
    pub fn turn(&mut self, span: Duration) -> usize {
        self.engine.flush(&mut self.watcher);
        self.clients.engine.flush(&mut self.watcher);
        let count = self.watcher.wait_timeout(&mut self.done, span).expect("a wait");
        self.events();
        count
    }

    /// Runs until `ready`.
    #[track_caller]
    pub fn until(&mut self, what: &str, mut ready: impl FnMut(&mut Self) -> bool) {
        while !ready(self) {
            assert!(self.turn(Duration::from_secs(1000)) > 0, "waited in vain until {what}");
        }
    }

    /// Runs until a client has heard this behind all else.
    #[track_caller]
    pub fn until_heard(&mut self, client: Id, end: &str) {
        self.until(end, |b| b.heard(client).ends_with(end));
    }

    /// Runs until a client's connection has no further input.
    #[track_caller]
    pub fn until_end(&mut self, client: Id) -> String {
        self.until("it has ended", |b| b.clients.has_ended(client));
        self.heard(client)
    }
}
