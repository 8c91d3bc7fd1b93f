//! The application as a handler of windlass-serve.

use std::time::{Duration, Instant};

use windlass::{Address, Buf, Message};
use windlass_serve::jobs::JobError;
use windlass_serve::ops::Completed;
use windlass_serve::{Action, Cause, Closed, Conn, Context, Detached, Handler, Origin};

use super::every::{self, Periodic};
use super::{Kept, Perform};
use crate::client::news::LinkEnd;
use crate::exchange::{Machine, Slot, Wire};
use crate::message::publication::Publication;
use crate::remote::{Remote, ToldValue, WillShutDown};
use crate::words::report::Requests;

/// One loop of an application.
pub(crate) struct Loop<S: 'static> {
    pub(super) perform: Perform<S>,
    pub(super) machine: Machine<Kept<S>>,
    pub(super) remote: Remote,
    pub(super) periodic: Vec<Periodic<S>>,
    /// How long it serves when the server will shut down, and when that is over.
    pub(super) delay: Duration,
    pub(super) ends_at: Option<Instant>,
}

impl<S> Loop<S> {
    /// What it has counted.
    pub(super) fn requests(&self) -> Requests {
        let (ends, panics) = self.machine.requests();
        Requests::new(ends, panics + self.perform.panics)
    }

    /// How long until it has something to do at a time.
    fn next_tick(&self, now: Instant) -> Option<Duration> {
        let end = self.ends_at.map(|end| end.saturating_duration_since(now));
        every::until_next(&self.periodic, now).into_iter().chain(end).min()
    }
}

impl<S> Drop for Loop<S> {
    fn drop(&mut self) {
        self.remote.add_ended(&self.requests());
    }
}

/// Calls `call` with the parts of a connection.
macro_rules! with_wire {
    ($self:ident, $c:ident, $wire:ident => $call:expr) => {{
        let id = $c.id();
        let mut $wire = Wire { engine: $c.engine(), id };
        $self.machine.begin_callback($wire.engine);
        $call;
        $self.machine.make_topic_calls(&mut $self.perform, $wire.engine);
        $self.machine.forget_dropped($wire.engine);
        Action::None
    }};
}

impl<S: 'static> Handler for Loop<S> {
    type State = Slot<Kept<S>>;

    fn serving(&mut self, server: &mut Context<'_, Self::State>, _: &[Address]) -> Action {
        self.machine.serves(server.remote());
        Action::None
    }

    fn stopping(&mut self, server: &mut Context<'_, Self::State>) -> Action {
        self.machine.drain(&mut self.perform, server.engine());
        self.machine.make_topic_calls(&mut self.perform, server.engine());
        Action::None
    }

    fn grace_over(&mut self, server: &mut Context<'_, Self::State>) -> Action {
        self.machine.begin_callback(server.engine());
        self.machine.give_all_up(&mut self.perform, server.engine());
        self.machine.forget_dropped(server.engine());
        Action::None
    }

    fn message(&mut self, server: &mut Context<'_, Self::State>, message: Message) -> Action {
        let message = match message.downcast::<Publication>() {
            Ok(publication) => {
                self.machine.begin_callback(server.engine());
                self.machine.publish(&mut self.perform, server.engine(), &publication);
                self.machine.make_topic_calls(&mut self.perform, server.engine());
                return Action::None;
            }
            Err(message) => message,
        };
        let message = match message.downcast::<ToldValue>() {
            Ok(ToldValue(id, value)) => {
                self.machine.begin_callback(server.engine());
                self.machine.tell_raw(&mut self.perform, server.engine(), id, value);
                self.machine.make_topic_calls(&mut self.perform, server.engine());
                self.machine.forget_dropped(server.engine());
                return Action::None;
            }
            Err(message) => message,
        };
        #[cfg(feature = "websocket")]
        let message = match message.downcast::<super::open_websocket::ToOpen<S>>() {
            Ok(to) => {
                let (perform, machine) = (&mut self.perform, &mut self.machine);
                machine.begin_callback(server.engine());
                perform.open_websocket(machine, server.engine(), to);
                machine.make_topic_calls(perform, server.engine());
                return Action::None;
            }
            Err(message) => message,
        };
        if message.downcast::<WillShutDown>().is_err() || self.ends_at.is_some() {
            return Action::None;
        }
        self.machine.will_shut_down();
        self.ends_at = Some(server.now() + self.delay);
        if self.delay.is_zero() {
            return Action::Shutdown;
        }
        if let Some(delay) = self.next_tick(server.now()) {
            server.engine().tick_after(delay);
        }
        Action::None
    }

    fn tick(&mut self, server: &mut Context<'_, Self::State>) -> (Option<Duration>, Action) {
        let now = server.now();
        if self.ends_at.is_some_and(|end| end <= now) {
            return (None, Action::Shutdown);
        }
        if !self.periodic.is_empty() {
            let (periodic, state) = (&mut self.periodic, self.perform.state());
            let panics = every::call_due(periodic, state, &self.remote, now);
            self.perform.panics += panics;
        }
        (self.next_tick(now), Action::None)
    }

    fn opened(&mut self, c: &mut Conn<'_, Self::State>, origin: Origin) -> Action {
        #[cfg(feature = "tls")]
        let is_tls = c.tls().is_some();
        #[cfg(not(feature = "tls"))]
        let is_tls = false;
        let peer = origin.peer;
        with_wire!(self, c, wire => {
            self.machine.opened(&mut self.perform, &mut wire, peer, is_tls);
        })
    }

    fn data(&mut self, c: &mut Conn<'_, Self::State>, data: Buf) -> Action {
        with_wire!(self, c, wire => self.machine.data(&mut self.perform, &mut wire, data))
    }

    fn eof(&mut self, c: &mut Conn<'_, Self::State>) -> Action {
        with_wire!(self, c, wire => self.machine.eof(&mut self.perform, &mut wire))
    }

    fn peer_ended(&mut self, c: &mut Conn<'_, Self::State>) -> Action {
        with_wire!(self, c, wire => self.machine.peer_ended(&mut self.perform, &mut wire))
    }

    fn drained(&mut self, c: &mut Conn<'_, Self::State>) -> Action {
        with_wire!(self, c, wire => self.machine.drained(&mut self.perform, &mut wire))
    }

    fn limit_reached(&mut self, c: &mut Conn<'_, Self::State>, cause: Cause) -> Action {
        with_wire!(self, c, wire => self.machine.limit_reached(&mut self.perform, &mut wire, cause))
    }

    fn executed(&mut self, c: &mut Conn<'_, Self::State>, output: Message) -> Action {
        with_wire!(self, c, wire => self.machine.executed(&mut self.perform, &mut wire, output))
    }

    fn job_failed(&mut self, c: &mut Conn<'_, Self::State>, error: JobError) -> Action {
        with_wire!(self, c, wire => self.machine.job_failed(&mut self.perform, &mut wire, &error))
    }

    fn file_sent(&mut self, c: &mut Conn<'_, Self::State>, _: u64) -> Action {
        with_wire!(self, c, wire => self.machine.file_sent(&mut self.perform, &mut wire))
    }

    fn wake(&mut self, c: &mut Conn<'_, Self::State>) -> Action {
        with_wire!(self, c, wire => self.machine.woken(&mut self.perform, &mut wire))
    }

    fn closed(
        &mut self,
        server: &mut Context<'_, Self::State>,
        closed: Closed<Self::State>,
    ) -> Action {
        let end = (closed.id, closed.cause, closed.unsent);
        let engine = server.engine();
        self.machine.begin_callback(engine);
        if let Some(link) = closed.state.link() {
            let end = LinkEnd {
                cause: closed.cause,
                #[cfg(feature = "tls")]
                tls_error: closed.tls_error,
            };
            self.machine.link_closed(&mut self.perform, engine, link, end);
            self.machine.make_topic_calls(&mut self.perform, engine);
            return Action::None;
        }
        self.machine.closed(&mut self.perform, engine, closed.state, end);
        self.machine.make_topic_calls(&mut self.perform, engine);
        self.machine.forget_dropped(engine);
        Action::None
    }

    fn completed(&mut self, server: &mut Context<'_, Self::State>, ended: Completed) -> Action {
        self.machine.begin_callback(server.engine());
        self.machine.completed(&mut self.perform, server.engine(), ended);
        self.machine.make_topic_calls(&mut self.perform, server.engine());
        self.machine.forget_dropped(server.engine());
        Action::None
    }

    fn detached(
        &mut self,
        _: &mut Context<'_, Self::State>,
        detached: Detached<Self::State>,
    ) -> Action {
        let Detached { id, handle, undelivered, eof, state, .. } = detached;
        self.machine.detached(&mut self.perform, id, &state, (handle, undelivered, eof));
        Action::None
    }
}
