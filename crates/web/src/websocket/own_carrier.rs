//! The connections of a loop that the program owns.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use windlass::Buf;
use windlass_serve::memory::Budget;
use windlass_serve::{Engine, Id, Refusal, Refused, Reserved};

use super::carrier::Carrier;
use super::loop_sockets::LoopSockets;
use super::opening::ClientHandshake;
use super::session::Session;
use super::unfinished::Intake;
use crate::client::hub::CallId;
use crate::exchange::raw::Raws;
use crate::remote::Remote;
use crate::topics::TopicCall;

/// The WebSockets of a client in a loop that the program owns.
#[derive(Default)]
pub(crate) struct OwnSockets {
    /// Handshakes whose response has not come.
    pub(crate) handshakes: BTreeMap<CallId, ClientHandshake>,
    pub(crate) sessions: Raws<Session>,
    /// The input of a connection that is being taken, and whether its end has come behind it.
    pub(crate) hearing: Option<(Id, Intake, bool)>,
}

impl OwnSockets {
    pub(crate) fn forget(&mut self, call: CallId) {
        self.handshakes.remove(&call);
    }

    pub(crate) fn is_hearing(&self) -> bool {
        self.hearing.is_some()
    }
}

/// The engine of a loop that the program owns, and what its WebSockets share. It carries one of
/// them at a time.
pub(crate) struct OwnCarrier<S> {
    engine: Engine<S>,
    id: Option<Id>,
    pub(crate) sockets: LoopSockets,
    pub(crate) topic_calls: VecDeque<TopicCall>,
    remote: Remote,
}

impl<S> OwnCarrier<S> {
    pub(crate) fn new(engine: Engine<S>, remote: Remote) -> OwnCarrier<S> {
        let (sockets, topic_calls) = (LoopSockets::default(), VecDeque::new());
        OwnCarrier { engine, id: None, sockets, topic_calls, remote }
    }

    /// Carries this connection from now on.
    pub(crate) fn of(&mut self, id: Id) -> &mut OwnCarrier<S> {
        self.id = Some(id);
        self
    }

    fn now(&self) -> Id {
        self.id.expect("a connection is chosen first")
    }
}

impl<S> fmt::Debug for OwnCarrier<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.engine.fmt(f)
    }
}

impl<S> Deref for OwnCarrier<S> {
    type Target = Engine<S>;

    fn deref(&self) -> &Engine<S> {
        &self.engine
    }
}

impl<S> DerefMut for OwnCarrier<S> {
    fn deref_mut(&mut self) -> &mut Engine<S> {
        &mut self.engine
    }
}

impl<S> Carrier for OwnCarrier<S> {
    fn id(&self) -> Id {
        self.now()
    }

    fn write(&mut self, data: Buf) -> Result<(), Refused<Buf>> {
        self.engine.write(self.now(), data)
    }

    fn write_slice(&mut self, bytes: &[u8]) -> Result<(), Refusal> {
        self.engine.write_slice(self.now(), bytes)
    }

    fn would_take(&mut self, bytes: usize) -> Result<(), Refusal> {
        self.engine.would_take(self.now(), bytes)
    }

    fn reserve(&mut self, bytes: usize) -> Result<Reserved, Refusal> {
        self.engine.reserve(self.now(), bytes)
    }

    fn use_room(&mut self, room: Option<Reserved>) {
        self.engine.use_room(room);
    }

    fn waiting(&mut self) -> usize {
        self.engine.waiting(self.now())
    }

    fn is_full(&mut self) -> bool {
        self.engine.is_full(self.now())
    }

    fn is_behind(&mut self) -> bool {
        self.engine.is_behind(self.now())
    }

    fn pause(&mut self) {
        self.engine.pause(self.now());
    }

    fn resume(&mut self) {
        self.engine.resume(self.now());
        // The session may have kept input that the engine does not take back.
        self.engine.wake(self.now());
    }

    fn unread(&mut self, data: Buf) -> Result<(), Buf> {
        self.engine.unread(self.now(), data).map_err(|refused| refused.value)
    }

    fn limit(&mut self, span: Option<Duration>, least: u32) {
        self.engine.limit(self.now(), span, least);
    }

    fn time_limit(&mut self, span: Option<Duration>) {
        self.engine.time_limit(self.now(), span);
    }

    fn set_idle_timeout(&mut self, span: Option<Duration>) {
        self.engine.set_idle_timeout(self.now(), span);
    }

    fn charge(&mut self, bytes: usize) {
        self.engine.charge(self.now(), bytes);
    }

    fn budget(&self) -> &Budget {
        self.engine.budget()
    }

    fn close(&mut self) {
        self.engine.close(self.now());
    }

    fn abort(&mut self) {
        self.engine.abort(self.now());
    }

    fn sockets(&mut self) -> &mut LoopSockets {
        &mut self.sockets
    }

    fn call(&mut self, call: TopicCall) {
        self.topic_calls.push_back(call);
    }

    fn remote(&self) -> &Remote {
        &self.remote
    }

    fn count(&mut self, is_lost: bool) {
        match is_lost {
            true => self.remote.count_lost_event(),
            false => self.remote.count_slow_subscriber(),
        }
    }
}
