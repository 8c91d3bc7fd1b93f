//! An engine on a watcher, with clients that are bare sources of the same watcher.

use std::time::Duration;

use windlass::driver::{Auto, Driver, OpCode};
use windlass::net::{ConnectOptions, ListenOptions};
use windlass::sim::Sim;
use windlass::{Address, Completion, Completions, Handle, Source, Watcher};
use windlass_serve::ops::Completed;
use windlass_serve::{Cause, Config, Engine, Event, Id, Limits, Phase};

use super::turns::Turns;
use super::{Harness, bound_buffers};

/// An engine, and what it has told.
pub struct Loop<D: Driver> {
    pub watcher: Watcher<D>,
    pub engine: Engine<()>,
    pub address: Address,
    pub told: Vec<&'static str>,
    /// The bytes of all data.
    pub heard: Vec<u8>,
    /// How connections have ended: the cause, the bytes that were not sent, and the phase.
    pub ends: Vec<(Cause, usize, Phase)>,
    pub opened: Vec<Id>,
    /// The descriptors of connections that were detached.
    pub handles: Vec<Handle>,
    /// The operations of the test that have ended.
    pub completed: Vec<Completed>,
    /// Completions that are not the engine's.
    pub foreign: Vec<Completion>,
}

impl<D: Driver> Loop<D> {
    pub fn new<T: Harness<Driver = D>>(config: Config) -> Loop<D> {
        Loop::on(T::watcher(Watcher::builder()), config)
    }

    /// With a listener, on this watcher.
    pub fn on(mut watcher: Watcher<D>, config: Config) -> Loop<D> {
        let mut engine = Engine::new(config);
        let local = ([127, 0, 0, 1], 0);
        engine.listen(&mut watcher, local, ListenOptions::default()).expect("a listener");
        let listener = engine.listeners()[0];
        bound_buffers(&mut watcher, listener);
        let address = watcher.local_address(listener).expect("its address");
        let (told, ends, opened) = (Vec::new(), Vec::new(), Vec::new());
        let (heard, handles, foreign) = (Vec::new(), Vec::new(), Vec::new());
        let completed = Vec::new();
        Loop { watcher, engine, address, told, heard, ends, opened, handles, completed, foreign }
    }

    /// A socket that connects to the engine.
    pub fn client(&mut self) -> Source {
        let options = ConnectOptions::default().token(1);
        self.watcher.connect([self.address.clone()], options).expect("a source").0
    }

    /// A socket that connects, and the connection of the engine. Both ends are open: on a network
    /// with delays either one may be the first.
    pub fn pair(&mut self) -> (Source, Id) {
        let (client, before) = (self.client(), self.opened.len());
        let connected = |c: &Completion| c.source == client && c.code() == OpCode::Connect;
        self.until("both ends are open", |l| {
            l.opened.len() > before && l.foreign.iter().any(connected)
        });
        (client, self.opened[before])
    }

    fn events(&mut self) {
        while let Some(event) = self.engine.next_event(&mut self.watcher) {
            self.told.push(match event {
                Event::Opened { id, .. } => {
                    self.opened.push(id);
                    "opened"
                }
                Event::Data { data, .. } => {
                    self.heard.extend_from_slice(&data);
                    "data"
                }
                Event::Closed { cause, unsent, phase, .. } => {
                    self.ends.push((cause, unsent, phase));
                    "closed"
                }
                Event::Eof { .. } => "eof",
                Event::PeerEnded { .. } => "peer ended",
                Event::Detached { handle, .. } => {
                    self.handles.push(handle);
                    "detached"
                }
                Event::Completed(ended) => {
                    self.completed.push(ended);
                    "completed"
                }
                Event::Tick => "tick",
                Event::Drained { .. } => "drained",
                Event::LimitReached { .. } => "limit reached",
                Event::FileSent { .. } => "file sent",
                Event::Datagram { .. } => "datagram",
                Event::AcceptFailed { .. } => "accept failed",
                _ => "other",
            });
        }
    }

    /// Bytes of output of a connection that the kernel has not taken.
    pub fn queued(&self, id: Id) -> usize {
        self.engine.source(id).map_or(0, |source| self.watcher.queued_bytes(source).unwrap_or(0))
    }
}

impl<D: Driver> Turns for Loop<D> {
    type Driver = D;

    fn watcher(&mut self) -> &mut Watcher<D> {
        &mut self.watcher
    }

    fn turn(&mut self, span: Duration) -> usize {
        let mut done = Completions::new();
        let count = self.watcher.wait_timeout(&mut done, span).expect("a wait");
        for c in done.drain(..) {
            let Some(c) = self.engine.complete(&mut self.watcher, c) else { continue };
            if c.code() == OpCode::Connect {
                bound_buffers(&mut self.watcher, c.source);
            }
            self.foreign.push(c);
        }
        self.events();
        self.engine.flush(&mut self.watcher);
        count
    }
}

/// Carries out what the test has asked for, and runs until `ready`.
#[track_caller]
pub fn until<D: Driver>(l: &mut Loop<D>, what: &str, ready: impl FnMut(&mut Loop<D>) -> bool) {
    l.engine.flush(&mut l.watcher);
    l.until(what, ready);
}

/// Carries out what the test has asked for, and runs for a time.
pub fn run_for<D: Driver>(l: &mut Loop<D>, span: Duration) {
    l.engine.flush(&mut l.watcher);
    l.run_for(span);
}

/// Limits without the times that would end a quiet connection.
pub fn no_times() -> Limits {
    Limits::new().idle(None).write_stall(None).connect(None)
}

/// An engine in a simulation of its own.
pub fn simulated(limits: Limits) -> (Sim, Loop<Auto>) {
    let sim = Sim::new(1);
    let l = Loop::on(Watcher::simulated(&sim), Config::new().limits(limits));
    (sim, l)
}
