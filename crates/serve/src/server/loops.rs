//! One loop of a server: events into callbacks, callbacks' actions into the engine.

use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::time::Duration;

use windlass::driver::{Driver, OpCode};
use windlass::{Address, Buf, Completion, Completions, Done, Source, Ticket, Watcher};

use super::datagram::Datagram;
use super::handler::{Action, Closed, Conn, Context, Detached, Handler};
use super::report::{Report, Unfinished};
use crate::engine::{Cause, Engine, Event, Id, Remote};
use crate::sys::BoundPath;

/// How many times one turn looks for events that its own flush has made.
const ROUNDS: usize = 16;

/// A server on a watcher of the program: for a loop with other operations besides, and for
/// simulated tests. [`Server::start_on`](crate::Server::start_on) makes it.
pub struct Running<H: Handler> {
    engine: Engine<H::State>,
    handler: H,
    remote: Remote,
    /// The Unix paths of its listeners.
    paths: Vec<BoundPath>,
    /// The connection of the callback that runs.
    current: Option<Id>,
    /// Whether a callback has asked for the shutdown.
    stops: bool,
    /// Whether the shutdown has begun.
    stopping: bool,
    /// How far the flush is, in case that a callback panics.
    next_fresh: usize,
    panics: u64,
    /// Known from the shutdown on.
    descriptor_shortages: u64,
    unfinished: Vec<Unfinished>,
}

impl<H: Handler> Running<H> {
    pub(crate) fn new(
        engine: Engine<H::State>,
        handler: H,
        remote: Remote,
        paths: Vec<BoundPath>,
    ) -> Running<H> {
        Running {
            engine,
            handler,
            remote,
            paths,
            current: None,
            stops: false,
            stopping: false,
            next_fresh: 0,
            panics: 0,
            descriptor_shortages: 0,
            unfinished: Vec::new(),
        }
    }

    /// The first callbacks: a tick, then `serving`.
    pub(crate) fn begin<D: Driver>(&mut self, watcher: &mut Watcher<D>, addresses: &[Address]) {
        let mut calls = 0;
        self.guarded(|this| {
            while calls < 2 {
                calls += 1;
                if calls == 1 {
                    this.tick();
                    continue;
                }
                let mut context = Context { engine: &mut this.engine, remote: &this.remote };
                let action = this.handler.serving(&mut context, addresses);
                this.act(None, action);
            }
        });
        self.turn(watcher);
    }

    /// Takes a completion of the server. Returns a completion that is not the server's. Call
    /// [`turn`](Running::turn) after the last completion of a batch.
    pub fn complete<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        completion: Completion,
    ) -> Option<Completion> {
        self.engine.complete(watcher, completion)
    }

    /// Calls the callbacks for what has happened, and sends what they have written.
    pub fn turn<D: Driver>(&mut self, watcher: &mut Watcher<D>) {
        self.engine.look_into_inbox();
        for _ in 0..ROUNDS {
            self.guarded(|this| {
                while let Some(event) = this.engine.next_event(watcher) {
                    this.dispatch(event);
                }
            });
            if (self.stops || self.engine.is_stop_asked()) && !self.stopping {
                self.stop(watcher);
            }
            self.guarded(|this| this.flush(watcher));
            if !self.engine.has_events() {
                if self.is_over() {
                    // From here on nothing would count what it is told.
                    self.engine.close_inbox();
                }
                return;
            }
        }
        self.engine.flush(watcher);
    }

    /// Waits for completions and serves them, until the server has shut down.
    pub(crate) fn run<D: Driver>(&mut self, watcher: &mut Watcher<D>) -> io::Result<()> {
        let mut done = Completions::new();
        while !self.is_over() {
            watcher.wait(&mut done)?;
            self.serve(watcher, &mut done);
        }
        Ok(())
    }

    /// Serves a whole batch, for a loop without other operations. It does the same as
    /// [`complete`](Running::complete) for each completion and then [`turn`](Running::turn), but it
    /// drops completions that are not the server's.
    pub fn serve<D: Driver>(&mut self, watcher: &mut Watcher<D>, done: &mut Completions) {
        let mut visit = done.visit();
        self.guarded(|this| {
            while let Some(completion) = visit.next() {
                match this.engine.next_data(completion) {
                    Some((id, data)) => this.data(id, data),
                    None => this.serve_other(watcher, completion),
                }
            }
        });
        drop(visit);
        self.turn(watcher);
    }

    #[inline(always)]
    fn data(&mut self, id: Id, data: Buf) {
        self.current = Some(id);
        let mut conn = Conn { engine: &mut self.engine, remote: &self.remote, id };
        let action = self.handler.data(&mut conn, data);
        self.act(Some(id), action);
    }

    #[inline(never)]
    fn serve_other<D: Driver>(&mut self, watcher: &mut Watcher<D>, completion: &mut Completion) {
        let empty = Completion::new(OpCode::Nop, Source::NONE, Ticket::NONE, 0, Ok(Done::Nop));
        let completion = std::mem::replace(completion, empty);
        let _foreign = self.engine.complete(watcher, completion);
        while let Some(event) = self.engine.next_event(watcher) {
            self.dispatch(event);
        }
    }

    /// Runs callbacks. A panic ends the connection that it belongs to, if there is one, and `work`
    /// goes on: each of its callbacks is taken out before it is called.
    fn guarded(&mut self, mut work: impl FnMut(&mut Self)) {
        // Unwind-safe: the state of the engine is consistent whenever a callback runs. The state of
        // the handler after its own panic is the program's concern.
        while panic::catch_unwind(AssertUnwindSafe(|| work(self))).is_err() {
            self.panics += 1;
            // The state of a connection that has not begun is not the callback's before it.
            if !self.engine.gave_up_making()
                && let Some(id) = self.current.take()
            {
                self.engine.abort_as(id, Cause::Panicked);
            }
        }
        self.current = None;
    }

    #[inline]
    fn dispatch(&mut self, event: Event<H::State>) {
        match event {
            Event::Data { id, data } => self.data(id, data),
            event => self.dispatch_other(event),
        }
    }

    #[inline(never)]
    fn dispatch_other(&mut self, event: Event<H::State>) {
        let (handler, engine, remote) = (&mut self.handler, &mut self.engine, &self.remote);
        let (id, action) = match event {
            Event::Opened { id, origin } => {
                self.current = Some(id);
                (Some(id), handler.opened(&mut Conn { engine, remote, id }, origin))
            }
            Event::Data { id, data } => {
                self.current = Some(id);
                (Some(id), handler.data(&mut Conn { engine, remote, id }, data))
            }
            Event::Eof { id } => {
                self.current = Some(id);
                (Some(id), handler.eof(&mut Conn { engine, remote, id }))
            }
            Event::Drained { id } => {
                self.current = Some(id);
                (Some(id), handler.drained(&mut Conn { engine, remote, id }))
            }
            Event::Wake { id } => {
                self.current = Some(id);
                (Some(id), handler.wake(&mut Conn { engine, remote, id }))
            }
            Event::Closed { id, cause, unsent, phase, state, age } => {
                if self.stopping && unsent > 0 {
                    self.unfinished.push(Unfinished { id, phase, age, unsent });
                }
                self.current = Some(id);
                let closed = Closed { id, cause, unsent, phase, state };
                (None, handler.closed(&mut Context { engine, remote }, closed))
            }
            Event::Detached { id, handle, undelivered, eof, state } => {
                self.current = Some(id);
                let detached = Detached { id, handle, undelivered, eof, state };
                (None, handler.detached(&mut Context { engine, remote }, detached))
            }
            Event::Datagram { listener, from, data, truncated } => {
                self.current = None;
                let mut datagram = Datagram { engine, remote, listener, from, truncated };
                (None, handler.datagram(&mut datagram, data))
            }
            Event::Tick => return self.tick(),
            Event::AcceptFailed { .. } => return,
        };
        self.act(id, action);
    }

    #[inline]
    fn act(&mut self, id: Option<Id>, action: Action) {
        if action != Action::None {
            self.act_on(id, action);
        }
    }

    #[inline(never)]
    fn act_on(&mut self, id: Option<Id>, action: Action) {
        match (action, id) {
            (Action::Shutdown, _) => self.stops = true,
            (Action::Close, Some(id)) => _ = self.engine.close(id),
            (Action::Detach, Some(id)) => _ = self.engine.detach(id),
            _ => {}
        }
    }

    fn tick(&mut self) {
        self.current = None;
        let mut context = Context { engine: &mut self.engine, remote: &self.remote };
        let (delay, action) = self.handler.tick(&mut context);
        if let Some(delay) = delay
            && !self.stopping
        {
            self.engine.tick_after(delay.max(Duration::from_nanos(1)));
        }
        self.act(None, action);
    }

    /// As `Engine::flush`, with the callbacks around each write.
    fn flush<D: Driver>(&mut self, watcher: &mut Watcher<D>) {
        // The callbacks may write to any connection, also to one that was looked at already.
        loop {
            while self.next_fresh < self.engine.fresh_len() {
                let at = self.next_fresh;
                self.next_fresh += 1;
                self.flush_fresh(watcher, at);
            }
            self.engine.clear_fresh();
            self.next_fresh = 0;
            let Some(index) = self.engine.next_dirty() else { break };
            self.flush_dirty(watcher, index);
        }
        self.engine.finish_flush(watcher);
    }

    /// Sends the only buffer of a connection.
    #[inline]
    fn flush_fresh<D: Driver>(&mut self, watcher: &mut Watcher<D>, at: usize) {
        let Some((id, amount)) = self.engine.fresh_at(at) else { return };
        self.current = Some(id);
        let mut conn = Conn { engine: &mut self.engine, remote: &self.remote, id };
        let action = self.handler.prewrite(&mut conn, amount);
        self.act(Some(id), action);
        let Some(remaining) = self.engine.send_fresh(watcher, at) else {
            // The callback has written more, and so the buffer is in an active part now.
            return self.send_written(watcher, id);
        };
        if self.engine.state(id).is_some() {
            let mut conn = Conn { engine: &mut self.engine, remote: &self.remote, id };
            let action = self.handler.postwrite(&mut conn, amount, remaining);
            self.act(Some(id), action);
        }
    }

    fn flush_dirty<D: Driver>(&mut self, watcher: &mut Watcher<D>, index: u32) {
        let amount = self.engine.corked(index);
        if amount == 0 || !self.engine.may_send(index) {
            self.engine.send(watcher, index);
            self.engine.carry_out(watcher, index);
            return;
        }
        let id = self.engine.id_at(index);
        self.current = Some(id);
        let mut conn = Conn { engine: &mut self.engine, remote: &self.remote, id };
        let action = self.handler.prewrite(&mut conn, amount);
        self.act(Some(id), action);
        self.send_written(watcher, id);
    }

    /// Sends what a connection has written, behind its `prewrite`.
    fn send_written<D: Driver>(&mut self, watcher: &mut Watcher<D>, id: Id) {
        let index = id.index();
        if self.engine.state(id).is_none() {
            return;
        }
        if !self.engine.may_send(index) {
            return self.engine.carry_out(watcher, index);
        }
        let amount = self.engine.corked(index);
        self.engine.send(watcher, index);
        if self.engine.state(id).is_some() {
            let remaining = self.engine.waiting(id);
            let mut conn = Conn { engine: &mut self.engine, remote: &self.remote, id };
            let action = self.handler.postwrite(&mut conn, amount, remaining);
            self.act(Some(id), action);
            self.engine.carry_out(watcher, index);
        }
    }

    /// Begins the shutdown: no more accepts, and every connection closes when its output is out.
    pub fn stop<D: Driver>(&mut self, watcher: &mut Watcher<D>) {
        (self.stops, self.stopping) = (true, true);
        // Every loop shuts down. This one may be the first to know.
        self.remote.shutdown();
        self.paths.clear();
        self.engine.refuse_all();
        self.engine.stop_listening(watcher);
        self.descriptor_shortages = watcher.counters().descriptor_shortages;
        let ids: Vec<Id> = self.engine.ids().collect();
        for id in ids {
            self.engine.close_as(id, Cause::Shutdown);
        }
    }

    /// Reaches the connections of all loops, from any thread.
    pub fn remote(&self) -> Remote {
        self.remote.clone()
    }

    /// Whether the server has shut down, has called `closed` for every connection, and has sent its
    /// datagrams.
    pub fn is_over(&self) -> bool {
        self.stopping
            && self.engine.is_empty()
            && !self.engine.has_events()
            && !self.engine.sends_datagrams()
    }

    /// The handler.
    pub fn handler(&mut self) -> &mut H {
        &mut self.handler
    }

    /// The engine.
    pub fn engine(&mut self) -> &mut Engine<H::State> {
        &mut self.engine
    }

    /// The counts of the server so far.
    pub fn report(&self) -> Report {
        Report {
            counts: self.engine.counts().clone(),
            panics: self.panics,
            descriptor_shortages: self.descriptor_shortages,
            unfinished: self.unfinished.clone(),
        }
    }
}

impl<H: Handler> std::fmt::Debug for Running<H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running").field("engine", &self.engine).finish_non_exhaustive()
    }
}
