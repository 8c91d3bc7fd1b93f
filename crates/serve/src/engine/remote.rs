//! Requests of other threads: wakes, writes and closes.

use std::any::TypeId;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use windlass::driver::{Driver, discard};
use windlass::{Buf, Watcher};

use crate::engine::Engine;
use crate::engine::events::Pending;
use crate::engine::requests::Request;
use crate::handles::remote::Remote;
use crate::inbox::{Command, Shared};
use crate::log::RefusedBecause;
use crate::parts::table::Place;
use crate::words::cause::Cause;
use crate::words::event::Origin;
use crate::words::id::Id;

impl<S> Engine<S> {
    /// Returns the [`Remote`] by which other threads reach the connections of this engine.
    pub fn remote<D: Driver>(&mut self, watcher: &mut Watcher<D>) -> Remote
    where
        S: 'static,
    {
        self.note_clock(watcher);
        let shared = self.share(watcher);
        shared.state_type.get_or_init(TypeId::of::<S>);
        self.outside.unpack = Some(crate::handles::dial::unpack);
        Remote { loops: [shared].into(), threads: None }
    }

    /// The part of this engine that other threads see.
    pub(crate) fn share<D: Driver>(&mut self, watcher: &mut Watcher<D>) -> Arc<Shared> {
        let token = self.token(super::WAKE);
        let shared = self.outside.shared.get_or_insert_with(|| {
            Arc::new(Shared {
                heads: self.table.heads(),
                budget: self.memory.budget.clone(),
                cap: u32::try_from(self.config.limits.cap).unwrap_or(u32::MAX),
                loop_index: self.table.loop_index(),
                state_type: OnceLock::new(),
                inbox: Mutex::default(),
                posted: AtomicBool::new(false),
                submitter: watcher.submitter(),
                token,
                load: AtomicUsize::new(self.table.len),
            })
        });
        Arc::clone(shared)
    }

    /// Does what other threads have asked for.
    #[inline]
    pub(crate) fn look_into_inbox(&mut self) {
        if let Some(shared) = &self.outside.shared
            && shared.posted.load(Ordering::Relaxed)
        {
            self.empty_inbox();
        }
    }

    #[inline(never)]
    fn empty_inbox(&mut self) {
        let Some(shared) = self.outside.shared.clone() else { return };
        // Cleared before the look: a command that is posted later wakes the loop again.
        shared.posted.store(false, Ordering::SeqCst);
        let mut inbox = shared.lock();
        let mut commands = inbox.take();
        // An engine without a server goes on.
        inbox.stops &= self.outside.has_server;
        drop(inbox);
        for command in commands.drain(..) {
            match command {
                Command::Message(message, charged) => {
                    self.memory.budget.change(charged, 0);
                    self.told.posted += 1;
                    self.told.pending.push_back(Pending::Message(message));
                }
                // A thread that has sent a message asks for the rest behind it.
                command if self.told.posted > 0 => {
                    self.told.posted += 1;
                    self.told.pending.push_back(Pending::Command(command));
                }
                command => self.obey(command),
            }
        }
        let mut inbox = shared.lock();
        if inbox.commands.is_empty() {
            // The empty list keeps its memory for the next commands.
            inbox.commands = commands;
        }
    }

    /// Does what another thread has asked for.
    pub(crate) fn obey(&mut self, command: Command) {
        match command {
            Command::Wake(id) => _ = self.wake(id),
            Command::Close(id) => _ = self.close(id),
            Command::Stream(id, ask) => self.stream_asks(id, ask),
            Command::Write(id, data) => self.write_charged(id, data),
            Command::Adopt(accepted) => self.told.pending.push_back(Pending::Adopt(accepted)),
            Command::TurnAway(one) => self.told.pending.push_back(Pending::TurnAway(one)),
            Command::Take(moved) => self.told.pending.push_back(Pending::Take(moved)),
            Command::Move => self.begin_moves(),
            Command::AddListener(handle) => self.request(Request::AddListener(handle)),
            Command::CloseListener(listener) => _ = self.close_listener(listener),
            Command::Dial(asked) => self.take_dial(*asked),
            Command::CancelDial(id) => self.cancel_dial(id.get().copied()),
            Command::Hello(id, tls) => self.resolved(id, tls),
            Command::Answer(slot, outcome) => self.pending_answer(slot, *outcome),
            Command::Message(..) => unreachable!("it is told as an event"),
            // A server closes its connections itself, at its time.
            Command::Stop if self.outside.has_server => self.outside.stop_asked = true,
            Command::Stop => {
                self.outside.stop_asked = true;
                self.abort_handshakes();
                let ids: Vec<Id> = self.ids().collect();
                for id in ids {
                    self.close_as(id, Cause::Shutdown);
                }
            }
        }
    }

    /// A write of another thread, which had to pass the limits before it was queued.
    fn write_charged(&mut self, id: Id, data: Buf) {
        let bytes = data.len() as u32;
        // From here on the loop's own charge counts.
        self.discharge(id, bytes);
        if let Some(at) = self.table.session(id) {
            return self.queue_remote_datagram(at, data);
        }
        let takes = |place: &Place<S>| !place.takes_no_output() || self.takes_answers(id.index());
        if !self.table.get(id).is_some_and(takes) {
            self.counters.stale_writes += 1;
        } else if bytes > 0 {
            self.memory.take(data.len());
            self.cork(id.index(), data);
        }
    }

    /// Closes the inbox of a loop that has ended: drops its commands, and refuses further ones. Its
    /// messages become events. False, without an effect, if it has a connection that this loop does
    /// not refuse, or one that a thread has handed over: it has had its first event, and gets its
    /// last one.
    pub(crate) fn close_inbox(&mut self) -> bool {
        let refuses = self.entrance.refuses;
        self.close_inbox_unless(|command| {
            matches!(command, Command::Take(_)) || !refuses && command.is_connection()
        })
    }

    pub(crate) fn close_inbox_unless(&mut self, stays: impl Fn(&Command) -> bool) -> bool {
        let Some(shared) = self.outside.shared.clone() else { return true };
        let mut inbox = shared.lock();
        if inbox.commands.iter().any(stays) {
            return false;
        }
        inbox.closed = true;
        let commands = std::mem::take(&mut inbox.commands);
        drop(inbox);
        for pending in std::mem::take(&mut self.told.pending) {
            match pending {
                Pending::Command(command) => {
                    self.told.posted -= 1;
                    self.drop_command(command);
                }
                pending => self.told.pending.push_back(pending),
            }
        }
        for command in commands {
            self.drop_command(command);
        }
        true
    }

    /// Drops what another thread has asked for, because the loop is over. A message is still told.
    fn drop_command(&mut self, command: Command) {
        match command {
            Command::Write(id, data) => {
                self.discharge(id, data.len() as u32);
                self.counters.stale_writes += 1;
            }
            Command::TurnAway(one) => {
                let origin = Origin { listener: None, peer: one.handle.peer() };
                self.did_not_open(origin, RefusedBecause::Threads);
            }
            Command::Adopt(accepted) => {
                self.did_not_open(accepted.origin(), RefusedBecause::Shutdown);
            }
            Command::Take(moved) => self.outside.arrivals.push_back(moved),
            Command::Dial(asked) => self.drop_dial(*asked),
            Command::Answer(_, outcome) => discard(outcome),
            Command::AddListener(_) => self.refuse_listener(),
            Command::Message(message, charged) => {
                self.memory.budget.change(charged, 0);
                self.told.posted += 1;
                self.told.pending.push_back(Pending::Message(message));
            }
            Command::Wake(_)
            | Command::Hello(..)
            | Command::Close(_)
            | Command::Stream(..)
            | Command::Move
            | Command::CloseListener(_)
            | Command::CancelDial(_)
            | Command::Stop => {}
        }
    }

    /// Gives back what a write of another thread was charged when it was queued.
    fn discharge(&self, id: Id, bytes: u32) {
        if let Some(shared) = &self.outside.shared {
            shared.discharge(id, bytes);
        }
    }
}

impl<S> Drop for Engine<S> {
    fn drop(&mut self) {
        self.close_inbox_unless(|_| false);
        self.memory.end_turn();
        // Gives back the charges of its connections, which end with the engine.
        for active in &self.table.active {
            self.memory.budget.change(active.charged, 0);
            self.memory.budget.change_holders(-isize::from(active.holding > 0));
            if let Some(stream) = &active.stream {
                stream.end(Cause::Shutdown);
            }
        }
        self.memory
            .budget
            .change((self.udp.datagrams.charged() + self.udp.sessions.charged) as u32, 0);
    }
}

#[cfg(test)]
mod tests {
    use windlass::net::ConnectOptions;
    use windlass::sim::Sim;

    use super::*;
    use crate::inbox::BOOKKEEPING;
    use crate::parts::transport::Accepted;
    use crate::words::config::Config;
    use crate::words::event::Event;
    use crate::words::limits::Limits;
    use crate::words::refused::Refusal;

    #[test]
    fn empty_writes_and_closes_do_not_fill_the_queue() {
        let mut watcher = Watcher::simulated(&Sim::new(1));
        let config = Config::new().limits(Limits::new().memory(1000));
        let mut engine = Engine::<()>::new(config);
        let remote = engine.remote(&mut watcher);
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], 7));
        let id = engine.connect([address], ConnectOptions::default(), ()).unwrap();
        let mut written = 0;
        for _ in 0..100 {
            // An empty write can be a datagram. Its entry in the queue is charged.
            match remote.write(id, "") {
                Ok(()) => written += 1,
                Err(refused) => assert_eq!(refused.reason, Refusal::Memory),
            }
            assert!(remote.wake(id) && remote.close(id));
        }
        assert_eq!(written, 1000 / BOOKKEEPING as usize);
        assert_eq!(remote.loops[0].lock().commands.len(), written + 2);
        engine.flush(&mut watcher);
        assert!(engine.is_empty() && !remote.close(id));
        assert_eq!(engine.budget().used(), 0);
        assert!(remote.write(id, "").is_err(), "the name is stale");
    }

    #[test]
    #[cfg(unix)]
    fn an_inbox_with_a_connection_closes_only_if_it_is_refused() {
        let mut watcher = Watcher::simulated(&Sim::new(1));
        let mut engine = Engine::<()>::new(Config::new());
        let remote = engine.remote(&mut watcher);
        let (one, mut other) = std::os::unix::net::UnixStream::pair().unwrap();
        let accepted = Accepted::new(one.into(), 0, None);
        remote.loops[0].take_over(accepted, true);
        assert!(!engine.close_inbox());
        assert!(remote.loops[0].post(Command::Move).is_ok(), "it is still open");
        engine.refuse_all();
        assert!(engine.close_inbox());
        assert_eq!(engine.counters().refused, 1);
        assert_eq!(std::io::Read::read(&mut other, &mut [0]).unwrap(), 0);
        assert!(remote.loops[0].post(Command::Move).is_err());
    }

    /// Those beyond the ones that may wait were dropped, and nothing counted them.
    #[test]
    #[cfg(unix)]
    fn a_connection_that_a_loop_cannot_take_over_is_refused() {
        let mut watcher = Watcher::new().unwrap();
        let mut engine = Engine::<()>::new(Config::new());
        let remote = engine.remote(&mut watcher);
        let mut others = Vec::new();
        let mut give = || {
            let (one, other) = std::os::unix::net::UnixStream::pair().unwrap();
            others.push(other);
            remote.loops[0].take_over(Accepted::new(one.into(), 0, None), true)
        };
        assert!((0..70).all(|_| give()));
        engine.flush(&mut watcher);
        while engine.next_event(&mut watcher).is_some() {}
        assert_eq!((engine.counters().accepted, engine.counters().refused), (64, 6));
        assert!(engine.close_inbox() && !give(), "its caller counts this one");
    }

    /// So a thread that has no connection does not end with a message in its inbox.
    #[test]
    fn a_message_keeps_an_inbox_open_that_is_to_be_empty() {
        let mut watcher = Watcher::simulated(&Sim::new(1));
        let mut engine = Engine::<()>::new(Config::new());
        let remote = engine.remote(&mut watcher);
        remote.post(0, 7).unwrap();
        assert!(!engine.close_inbox_unless(|_| true));
        remote.post(0, 8).unwrap();
        engine.flush(&mut watcher);
        assert!(engine.close_inbox_unless(|_| true));
        let refused = remote.post(0, 9).unwrap_err();
        assert_eq!((refused.value, refused.reason), (9, Refusal::Stale));
        for expected in [7, 8] {
            let event = engine.next_event(&mut watcher);
            let Some(Event::Message { message }) = event else { panic!("{event:?}") };
            assert_eq!(message.downcast::<i32>().unwrap(), expected);
        }
        assert_eq!(engine.budget().used(), 0);
    }

    /// Each call was one more entry.
    #[test]
    fn closes_of_listeners_do_not_fill_the_queue() {
        let mut watcher = Watcher::simulated(&Sim::new(1));
        let mut engine = Engine::<()>::new(Config::new());
        let remote = engine.remote(&mut watcher);
        let local = ([127, 0, 0, 1], 0);
        for listener in 0..2 {
            engine.listen(&mut watcher, local, Default::default()).unwrap();
            for wrong in 0..100 {
                remote.close_listener(listener);
                remote.close_listener(usize::MAX - wrong);
            }
            assert_eq!(remote.loops[0].lock().commands.len(), 1);
            engine.flush(&mut watcher);
            assert!(engine.listeners()[listener].is_none());
        }
    }

    #[test]
    fn shutdowns_do_not_fill_the_queue() {
        let mut watcher = Watcher::simulated(&Sim::new(1));
        let mut engine = Engine::<()>::new(Config::new());
        let remote = engine.remote(&mut watcher);
        for _ in 0..2 {
            (0..100).for_each(|_| remote.shutdown());
            assert_eq!(remote.loops[0].lock().commands.len(), 1);
            engine.flush(&mut watcher);
            assert!(engine.is_stop_asked() && remote.loops[0].lock().commands.is_empty());
        }
    }
}
