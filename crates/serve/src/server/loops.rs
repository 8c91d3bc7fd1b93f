//! One loop of a server: events into callbacks, callbacks' actions into the engine.

use std::any::Any;
use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use windlass::driver::{Driver, Visit, discard};
use windlass::{Address, Buf, Completion, Completions, Message, Ticket, Watcher};

use super::action::{Action, act};
use super::conn::{Conn, Context};
use super::datagram::Datagram;
use super::ended::{Closed, Detached};
use super::handler::Handler;
use super::report::{Report, Unfinished};
use super::signals::{LoopSignals, OWN};
use crate::log::{self, LogEvent};

use crate::engine::Engine;
use crate::handles::remote::Remote;
use crate::handles::threads::Rest;
use crate::inbox::Command;
use crate::parts::moves::{Departed, Moved, Parts};
use crate::parts::table::NIL;
use crate::words::cause::{Cause, Phase};
use crate::words::event::Event;
use crate::words::id::Id;

/// How many times one turn looks for events that its own flush has made.
const ROUNDS: usize = 16;

/// How long the next tick waits if the first one panics.
const FIRST_DELAY: Duration = Duration::from_secs(1);

/// A server on a watcher of the program: for a loop with other operations besides, and for
/// simulated tests. [`Server::start_on`](crate::Server::start_on) makes it.
///
/// ```
/// use std::time::Duration;
/// use windlass::{Completions, Done, Op, Watcher};
/// use windlass_serve::{Action, Conn, Handler, Origin, Server};
///
/// struct Hello;
/// impl Handler for Hello {
///     type State = ();
///     fn opened(&mut self, c: &mut Conn<'_, ()>, _: Origin) -> Action {
///         c.write("hello");
///         Action::Close
///     }
/// }
///
/// let mut watcher = Watcher::new()?;
/// let mut server = Server::new(|_loop| Hello).listen("tcp://127.0.0.1:0")?.start_on(&mut watcher)?;
/// watcher.submit(Op::timer(Duration::from_millis(10)))?; // an operation of the program
/// let mut done = Completions::new();
/// while !server.is_over() {
///     watcher.wait(&mut done)?;
///     for completion in done.drain(..) {
///         // What the server does not take is the program's.
///         if let Some(own) = server.complete(&mut watcher, completion) {
///             assert!(matches!(own.result, Ok(Done::Timer)));
///             server.stop(&mut watcher); // shuts down, as `Action::Shutdown` does
///         }
///     }
///     server.turn(&mut watcher);
/// }
/// println!("{} connections", server.report().counters.accepted);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct ServerLoop<H: Handler> {
    engine: Engine<H::State>,
    handler: H,
    remote: Remote,
    /// The place of the connection whose callback runs.
    current: u32,
    /// Whether a callback has asked for the shutdown.
    stops: bool,
    /// Whether the shutdown has begun.
    stopping: bool,
    /// Whether it is over.
    is_over: bool,
    /// How long connections go on when the shutdown has begun, and the timer of that time.
    grace: Duration,
    grace_timer: Option<Ticket>,
    /// What completes behind the last connections that the closed listeners have accepted.
    last_accepts: Option<Ticket>,
    signals: LoopSignals,
    panics: u64,
    /// Whether `tick` runs, and the last delay that it has returned.
    tick: (bool, Option<Duration>),
    /// Known from the shutdown on.
    descriptor_shortages: u64,
    unfinished: Vec<Unfinished>,
}

impl<H: Handler> ServerLoop<H> {
    pub(crate) fn new(
        engine: Engine<H::State>,
        handler: H,
        remote: Remote,
        grace: Duration,
        signals: LoopSignals,
    ) -> ServerLoop<H> {
        ServerLoop {
            engine,
            handler,
            remote,
            current: NIL,
            stops: false,
            stopping: false,
            is_over: false,
            grace,
            grace_timer: None,
            last_accepts: None,
            signals,
            panics: 0,
            tick: (false, None),
            descriptor_shortages: 0,
            unfinished: Vec::new(),
        }
    }

    /// The first callbacks: a tick, then `serving`.
    pub(crate) fn begin<D: Driver>(&mut self, watcher: &mut Watcher<D>, addresses: &[Address]) {
        self.engine.note_clock(watcher);
        let mut calls = 0;
        self.guarded(|this| {
            while calls < 2 {
                calls += 1;
                if calls == 1 {
                    this.tick();
                    continue;
                }
                this.call_without(|handler, context| handler.serving(context, addresses));
            }
        });
        self.turn(watcher);
    }

    /// Takes a completion of the server. Returns a completion that is not the server's. Call
    /// [`turn`](ServerLoop::turn) after the last completion of a batch.
    pub fn complete<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        completion: Completion,
    ) -> Option<Completion> {
        let completion = self.engine.complete(watcher, completion)?;
        self.complete_own(watcher, completion)
    }

    /// Takes a completion of the loop itself: a signal, or a step of its shutdown. Returns the
    /// program's.
    #[cold]
    fn complete_own<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        completion: Completion,
    ) -> Option<Completion> {
        if completion.token != OWN {
            return Some(completion);
        }
        let ticket = Some(completion.ticket());
        if ticket == self.last_accepts {
            self.last_accepts = None;
        } else if ticket == self.grace_timer {
            self.grace_timer = None;
            self.close_all();
        } else if self.signals.owns(&completion) {
            self.stops |= self.signals.hear(watcher, &completion);
        } else if completion.result.is_ok() {
            return Some(completion);
        }
        // What is left has the token, and has failed: it was cancelled.
        None
    }

    /// Calls the callbacks for what has happened, and sends what they have written.
    pub fn turn<D: Driver>(&mut self, watcher: &mut Watcher<D>) {
        self.engine.look_into_inbox();
        if self.engine.take_told_to_move() {
            self.note_stay();
        }
        if self.signals.has_due() {
            self.guarded(|this| while this.signals.call_next(&this.remote) {});
        }
        for _ in 0..ROUNDS {
            self.guarded(|this| this.dispatch_all(watcher));
            if (self.stops || self.engine.is_stop_asked()) && !self.stopping {
                self.stop(watcher);
            }
            self.guarded(|this| this.flush(watcher));
            if !self.engine.has_events() {
                if self.stopping && self.engine.is_empty() && self.engine.waits_for_last_jobs() {
                    self.engine.bound_last_jobs(watcher);
                }
                if self.has_ended() && self.finish(watcher) {
                    // What a thread has handed over meanwhile ends, and its messages are told.
                    self.guarded(|this| this.dispatch_all(watcher));
                }
                return;
            }
        }
        // What other threads have written meanwhile has its callbacks in the next turn.
        self.engine.come_again(watcher);
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

    /// Takes signals when it is over, until the other loops are: a signal does not end the process
    /// in the middle of their shutdown.
    pub(crate) fn take_signals_until<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        others_are_over: &AtomicBool,
    ) -> io::Result<()> {
        let mut done = Completions::new();
        while !others_are_over.load(Ordering::Acquire) {
            watcher.wait(&mut done)?;
            for completion in done.drain(..) {
                self.complete_own(watcher, completion);
            }
            self.guarded(|this| while this.signals.call_next(&this.remote) {});
        }
        Ok(())
    }

    /// Serves a whole batch, for a loop without other operations. It does the same as
    /// [`complete`](ServerLoop::complete) for each completion and then [`turn`](ServerLoop::turn),
    /// but it drops completions that are not the server's.
    pub fn serve<D: Driver>(&mut self, watcher: &mut Watcher<D>, done: &mut Completions) {
        let mut batch = done.visit();
        self.guarded(|this| this.dispatch_batch(watcher, &mut batch));
        drop(batch);
        self.turn(watcher);
    }

    #[inline(never)]
    fn dispatch_other<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        completion: Option<&mut Completion>,
    ) {
        match self.engine.other_event(watcher, completion) {
            Some(Event::Foreign(own)) => drop(self.complete_own(watcher, own)),
            Some(event) => self.dispatch(event),
            None => {}
        }
    }

    /// Calls the callbacks of the events that wait.
    #[inline(never)]
    fn dispatch_all<D: Driver>(&mut self, watcher: &mut Watcher<D>) {
        self.dispatch_batch(watcher, &mut Completions::new().visit());
    }

    /// Calls the callbacks of the events that wait, and of a batch.
    #[inline(always)]
    fn dispatch_batch<D: Driver>(&mut self, watcher: &mut Watcher<D>, batch: &mut Visit<'_>) {
        loop {
            match self.engine.next_in(batch) {
                Some(Ok((id, data))) => self.call(id.index(), |h, c| h.data(c, data)),
                Some(Err(completion)) => self.dispatch_other(watcher, completion),
                None => match self.engine.next_moved() {
                    Some(moved) => self.take_in(watcher, *moved),
                    None => break,
                },
            }
        }
    }

    /// Serves a connection that a thread has handed over.
    #[cold]
    fn take_in<D: Driver>(&mut self, watcher: &mut Watcher<D>, moved: Moved) {
        let Moved { parts, state } = moved;
        let from = parts.from;
        let Ok(state) = state.downcast() else { unreachable!("all handlers have the same state") };
        match self.engine.take_in(watcher, parts, *state) {
            Ok(id) => self.call(id.index(), |h, c| h.moved(c, from)),
            Err(state) => self.lost(from, state),
        }
    }

    /// A connection was told to move, and has left its thread or has ended.
    #[cold]
    fn note_moved(&self, id: Id) {
        if let Some(threads) = &self.remote.threads {
            threads.note_moved(id.loop_index(), self.engine.rest(), self.engine.given());
        }
    }

    /// The connections of this thread were told to move. If one does not, it keeps the thread.
    #[cold]
    fn note_stay(&self) {
        if let Some(threads) = &self.remote.threads
            && self.engine.rest() == Rest::Stays
        {
            threads.note_stay(self.engine.loop_index());
        }
    }

    /// Hands a connection to the loop with the fewest.
    #[cold]
    fn hand_over(&mut self, moved: Moved) {
        self.engine.count_move();
        self.note_moved(moved.parts.from);
        let loops = self.remote.loops.iter();
        let to = loops.min_by_key(|shared| shared.load.load(Ordering::Relaxed));
        let to = to.expect("a server has a loop");
        to.load.fetch_add(1, Ordering::Relaxed);
        if let Err(Command::Take(moved)) = to.post(Command::Take(Box::new(moved))) {
            let Ok(state) = moved.state.downcast() else { unreachable!("it is this handler's") };
            self.lost(moved.parts.from, *state);
        }
    }

    /// Ends a connection that no loop could take over.
    fn lost(&mut self, id: Id, state: H::State) {
        let cause = if self.stopping { Cause::Shutdown } else { Cause::Rejected };
        self.engine.count_end(cause);
        let closed = Closed {
            id,
            cause,
            unsent: 0,
            phase: Phase::Detaching,
            age: Duration::ZERO,
            state,
            #[cfg(feature = "tls")]
            tls_error: None,
        };
        self.call_without(|handler, context| handler.closed(context, closed));
    }

    /// Runs callbacks. After a panic it ends the connection whose callback panicked, if there is
    /// one, and calls `work` again. `work` takes each event out before the callback, so none runs
    /// twice.
    fn guarded(&mut self, mut work: impl FnMut(&mut Self)) {
        // Unwind-safe: the state of the engine is consistent whenever a callback runs. The state of
        // the handler after its own panic is the program's concern.
        while let Err(payload) = panic::catch_unwind(AssertUnwindSafe(|| work(self))) {
            self.panicked(payload);
        }
        self.current = NIL;
    }

    #[cold]
    fn panicked(&mut self, payload: Box<dyn Any + Send>) {
        self.panics += 1;
        let index = std::mem::replace(&mut self.current, NIL);
        // The state of a connection that has not begun is not the callback's before it.
        let is_of_one = !self.engine.is_making() && index != NIL;
        let id = is_of_one.then(|| self.engine.id_at(index));
        self.engine.log(LogEvent::Panicked { id, message: log::message(&*payload) });
        self.engine.gave_up_making();
        if let Some(id) = id {
            self.engine.abort_as(id, Cause::Panicked);
        }
        if let (true, delay) = self.tick {
            // The first one has returned none yet, and is not to be the last.
            self.tick_after(delay.or(Some(FIRST_DELAY)));
        }
        // It is the program's, and its `Drop` may panic, too.
        discard(payload);
    }

    fn dispatch(&mut self, event: Event<H::State>) {
        match event {
            Event::Opened { id, origin } => self.call(id.index(), |h, c| h.opened(c, origin)),
            Event::Data { id, data } => self.call(id.index(), |h, c| h.data(c, data)),
            Event::Eof { id } => self.call(id.index(), H::eof),
            Event::PeerEnded { id } => self.call(id.index(), H::peer_ended),
            Event::LimitReached { id, cause } => {
                self.call(id.index(), |h, c| h.limit_reached(c, cause));
            }
            #[cfg(feature = "tls")]
            Event::Upgraded { id } => self.call(id.index(), H::upgraded),
            Event::Drained { id } => self.call(id.index(), H::drained),
            Event::Wake { id } => self.call(id.index(), H::wake),
            Event::FileSent { id, len } => self.call(id.index(), |h, c| h.file_sent(c, len)),
            Event::Closed {
                id,
                cause,
                unsent,
                phase,
                age,
                state,
                #[cfg(feature = "tls")]
                tls_error,
            } => {
                if self.engine.take_move(id).is_some() {
                    self.note_moved(id);
                }
                if self.stopping && unsent > 0 {
                    self.unfinished.push(Unfinished { id, phase, age, unsent });
                }
                let closed = Closed {
                    id,
                    cause,
                    unsent,
                    phase,
                    age,
                    state,
                    #[cfg(feature = "tls")]
                    tls_error,
                };
                self.call_without(|handler, context| handler.closed(context, closed));
            }
            Event::Detached { id, handle, mut undelivered, eof, state } => {
                if let Some(Departed { pack, ended, owed, session }) = self.engine.take_move(id) {
                    if eof && !ended {
                        undelivered.push(Buf::default());
                    }
                    let state = pack(state);
                    let parts = Parts { from: id, handle, undelivered, ended, owed, session };
                    return self.hand_over(Moved { parts, state });
                }
                let detached = Detached { id, handle, undelivered, eof, state };
                self.call_without(|handler, context| handler.detached(context, detached));
            }
            Event::Datagram { listener, from, data, truncated } => {
                self.current = NIL;
                let (engine, remote) = (&mut self.engine, &self.remote);
                let mut datagram = Datagram { engine, remote, listener, from, truncated };
                let action = self.handler.datagram(&mut datagram, data);
                self.stops |= action == Action::Shutdown;
            }
            Event::Executed { id, output } => self.executed(id, output),
            Event::JobFailed { id, error } => {
                self.call(id.index(), |h, c| h.job_failed(c, error));
            }
            Event::Tick => self.tick(),
            Event::Completed(ended) => {
                self.call_without(|handler, context| handler.completed(context, ended));
            }
            Event::AcceptFailed { listener, error } => {
                self.call_without(|handler, context| {
                    handler.accept_failed(context, listener, error)
                });
            }
            Event::ListenerAdded { added } => {
                self.call_without(|handler, context| handler.listener_added(context, added));
            }
            Event::Message { message } => {
                self.call_without(|handler, context| handler.message(context, message));
            }
            Event::Foreign(_) => {}
        }
    }

    /// Passes the value of a job to its callback.
    #[cold]
    fn executed(&mut self, id: Id, output: Message) {
        let Some(then) = self.engine.take_then() else {
            return self.call(id.index(), |h, c| h.executed(c, output));
        };
        self.current = id.index();
        self.stops |= then(&mut self.engine, &self.remote, id.index(), output);
    }

    /// Calls a callback of the connection that has a place, and does what it asks for.
    #[inline(always)]
    fn call(
        &mut self,
        index: u32,
        callback: impl FnOnce(&mut H, &mut Conn<'_, H::State>) -> Action,
    ) {
        self.current = index;
        let mut conn = Conn { engine: &mut self.engine, remote: &self.remote, index };
        let action = callback(&mut self.handler, &mut conn);
        if action != Action::None {
            self.act(index, action);
        }
    }

    #[inline(never)]
    fn act(&mut self, index: u32, action: Action) {
        self.stops |= act(&mut self.engine, index, action);
    }

    /// Calls a callback that has no living connection.
    fn call_without(
        &mut self,
        callback: impl FnOnce(&mut H, &mut Context<'_, H::State>) -> Action,
    ) {
        self.current = NIL;
        let mut context = Context { engine: &mut self.engine, remote: &self.remote };
        let action = callback(&mut self.handler, &mut context);
        self.stops |= action == Action::Shutdown;
    }

    fn tick(&mut self) {
        let mut delay = None;
        self.tick.0 = true;
        self.call_without(|handler, context| {
            let (next, action) = handler.tick(context);
            delay = next;
            action
        });
        self.tick_after(delay);
    }

    /// The callback `tick` has ended. Another one follows after this delay.
    fn tick_after(&mut self, delay: Option<Duration>) {
        self.tick = (false, delay);
        if let Some(delay) = delay
            && !self.stopping
        {
            self.engine.tick_after(delay.max(Duration::from_nanos(1)));
        }
    }

    /// As `Engine::flush`, with the callbacks around each write.
    fn flush<D: Driver>(&mut self, watcher: &mut Watcher<D>) {
        self.engine.begin_flush();
        // The callbacks may write to any connection, also to one that was looked at already.
        loop {
            if let Some((index, amount)) = self.engine.next_fresh() {
                self.flush_fresh(watcher, index, amount);
            } else if let Some(index) = self.engine.next_dirty() {
                self.flush_dirty(watcher, index);
            } else {
                break;
            }
        }
        self.engine.finish_flush(watcher);
    }

    /// Sends the only buffer of a connection.
    #[inline]
    fn flush_fresh<D: Driver>(&mut self, watcher: &mut Watcher<D>, index: u32, amount: usize) {
        self.call(index, |handler, c| handler.prewrite(c, amount));
        if !self.engine.is_next_fresh(index) {
            // The callback has written more: the buffer is in an active part now.
            return self.send(watcher, index);
        }
        if let Some(remaining) = self.engine.send_fresh(watcher) {
            self.call(index, |handler, c| handler.postwrite(c, amount, remaining));
        }
    }

    fn flush_dirty<D: Driver>(&mut self, watcher: &mut Watcher<D>, index: u32) {
        let amount = self.engine.sendable(index);
        if amount > 0 {
            self.call(index, |handler, c| handler.prewrite(c, amount));
        }
        self.send(watcher, index);
    }

    /// Sends what was written to a connection, and does what the program has asked for.
    #[inline(never)]
    fn send<D: Driver>(&mut self, watcher: &mut Watcher<D>, index: u32) {
        let (id, amount) = (self.engine.id_at(index), self.engine.sendable(index));
        self.engine.send(watcher, index);
        if amount > 0 && self.engine.has_not_failed(id) {
            let remaining = self.engine.waiting(id);
            self.call(index, |handler, c| handler.postwrite(c, amount, remaining));
            if self.engine.state(id).is_some() && self.engine.sendable(index) > 0 {
                // It is sent first. What else the program wants of the connection comes after it.
                return self.engine.dirty(index);
            }
        }
        self.engine.carry_out(watcher, index);
    }

    /// Reaches the connections of all loops, from any thread.
    pub fn remote(&self) -> Remote {
        self.remote.clone()
    }

    /// The handler.
    pub fn handler(&mut self) -> &mut H {
        &mut self.handler
    }

    /// The engine.
    pub fn engine(&mut self) -> &mut Engine<H::State> {
        &mut self.engine
    }

    /// The report of this loop so far. The loops of
    /// [`Server::start_on_each`](crate::Server::start_on_each) have a report each.
    pub fn report(&self) -> Report {
        Report {
            counters: self.engine.counters().clone(),
            panics: self.panics,
            thread_errors: 0,
            unfinished_jobs: self.engine.jobs(),
            unfinished_operations: self.engine.unfinished_operations(),
            descriptor_shortages: self.descriptor_shortages,
            unfinished: self.unfinished.clone(),
        }
    }
}

impl<H: Handler> std::fmt::Debug for ServerLoop<H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerLoop").field("engine", &self.engine).finish_non_exhaustive()
    }
}

mod shutdown;
#[cfg(test)]
mod tests;
