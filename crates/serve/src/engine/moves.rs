//! Connections that a thread of their own hands to a loop.

use std::time::Duration;

use windlass::driver::{Deadline, Driver};
use windlass::{Source, Watcher};

use crate::engine::Engine;
use crate::engine::events::Pending;
use crate::handles::threads::Rest;
use crate::inbox::Command;
use crate::log::LogEvent;
use crate::parts::deadlines::Kind;
use crate::parts::moves::{Departed, Move, Moved, Owed, Pack, Parts};
use crate::parts::table::{CODED, CONNECTING, ENDED, HELD, PAUSED, WOKEN};
use crate::stage::{Stage, Step};
use crate::words::cause::Cause;
use crate::words::id::Id;

impl<S> Engine<S> {
    /// Lets a connection move; false for a stale id, and on an engine that is no thread of a
    /// connection.
    pub(crate) fn let_move(&mut self, id: Id, pack: Pack<S>) -> bool {
        // A session of a bound socket has no descriptor of its own.
        if !self.leaving.is_thread || self.table.unless_session(id).is_none() {
            return false;
        }
        if self.leaving.moves.iter().all(|one| one.id != id) {
            let owed = Owed::default();
            self.leaving.moves.push(Move { id, pack, begun: None, owed, session: None });
        }
        true
    }

    /// Begins the move of a connection that may move. False if it closes, has shut down its
    /// output, or has a stream.
    pub(crate) fn begin_move(&mut self, id: Id) -> bool {
        let Some(at) = self.leaving.moves.iter().position(|one| one.id == id) else { return false };
        let Some(place) = self.table.get(id) else { return false };
        let flags = place.flags;
        let agrees = flags & CONNECTING != 0 || place.stage == Stage::Handshake;
        if place.takes_no_output() || agrees {
            return self.leaving.moves[at].begun.is_some();
        }
        if self.stream_of(id.index()).is_some() {
            return false;
        }
        self.leaving.moves[at].begun = Some(flags & ENDED != 0);
        self.leave(id);
        true
    }

    /// Whether a connection waits for its move.
    pub(crate) fn is_moving(&self, id: Id) -> bool {
        self.leaving.moves.iter().any(|one| one.id == id && one.begun.is_some())
    }

    /// The index of this loop or thread.
    pub(crate) fn loop_index(&self) -> usize {
        self.table.loop_index()
    }

    /// What this thread has left of its connections.
    pub(crate) fn rest(&self) -> Rest {
        let leave = self.leaving.moves.iter().filter(|one| one.begun.is_some()).count();
        match self.table.len {
            0 => Rest::Nothing,
            count if count == leave => Rest::Leaves,
            _ => Rest::Stays,
        }
    }

    /// How many connections this thread was given and has served or refused.
    pub(crate) fn given(&self) -> u64 {
        self.counters.accepted + self.counters.refused + self.counters.passed_on
    }

    /// Whether all connections that may move were told to, since the last call.
    #[inline]
    pub(crate) fn take_told_to_move(&mut self) -> bool {
        std::mem::take(&mut self.leaving.was_told_to_move)
    }

    /// Begins the move of all connections that may move.
    pub(crate) fn begin_moves(&mut self) {
        self.leaving.was_told_to_move = true;
        let ids: Vec<Id> = self.leaving.moves.iter().map(|one| one.id).collect();
        for id in ids {
            self.begin_move(id);
        }
    }

    /// Calls off the move of a connection, which stays where it is: the move took too long, or the
    /// program wants something else. False if it does not move, or if the server shuts down.
    pub(crate) fn call_off_move(&mut self, index: u32) -> bool {
        let id = self.table.id(index);
        let Some(one) = self.leaving.moves.iter_mut().find(|one| one.id == id) else {
            return false;
        };
        if self.entrance.refuses || one.begun.take().is_none() {
            return false;
        }
        let owed = std::mem::take(&mut one.owed);
        if owed.drained {
            self.told.pending.push_back(Pending::Drained(id));
        }
        for kind in [Kind::Read, Kind::Write] {
            if owed.late[kind as usize] {
                self.set_deadline_of(id, kind, Some(Deadline::After(Duration::ZERO)));
            }
        }
        let place = self.table.place_mut(index);
        place.advance(Step::CalledOff);
        if place.flags & ENDED != 0 {
            place.advance(Step::SideEnded);
        }
        let flags = place.flags;
        if flags & (HELD | PAUSED) == HELD {
            self.told.pending.push_back(Pending::Held(id));
        }
        if flags & WOKEN != 0 {
            self.told.pending.push_back(Pending::Wake(id));
        }
        // The server hears that the thread stays, and may ask another one to move.
        self.leaving.was_told_to_move = true;
        self.dirty(index);
        true
    }

    /// What a connection is owed that is about to move; `None` if it is not.
    fn owed(&mut self, id: Id) -> Option<&mut Owed> {
        let is_it = |one: &&mut Move<S>| one.id == id && one.begun.is_some();
        self.leaving.moves.iter_mut().find(is_it).map(|one| &mut one.owed)
    }

    /// An event of a connection cannot be told now.
    pub(crate) fn owe(&mut self, id: Id, note: impl FnOnce(&mut Owed)) {
        self.owed(id).map(note);
    }

    /// A connection is to close whose descriptor has left. False if it does not move.
    pub(crate) fn owe_close(&mut self, id: Id) -> bool {
        let owed = self.owed(id);
        owed.map(|owed| owed.close = true).is_some()
    }

    /// Keeps the session of a connection whose descriptor leaves for a move.
    pub(crate) fn keep_session(&mut self, index: u32) {
        let id = self.table.id(index);
        let session = self.entrance.transports.take_session(index);
        if let Some(one) = self.leaving.moves.iter_mut().find(|one| one.id == id) {
            one.session = session;
        }
    }

    /// A connection has left. Its place still says what it is owed.
    pub(crate) fn note_owed(&mut self, id: Id) {
        let flags = self.table.place(id.index()).flags;
        let is_full = self.is_marked_full(id.index());
        if let Some(owed) = self.owed(id) {
            owed.drained |= is_full;
            owed.wake |= flags & WOKEN != 0;
        }
    }

    /// Forgets a connection that has ended or was detached. `Some` if it is to move.
    pub(crate) fn take_move(&mut self, id: Id) -> Option<Departed<S>> {
        let at = self.leaving.moves.iter().position(|one| one.id == id)?;
        let Move { pack, begun, mut owed, session, .. } = self.leaving.moves.swap_remove(at);
        let ended = begun?;
        // The id is stale: what other threads have asked for is here, and they ask for no more.
        for pending in &self.told.pending {
            if let Pending::Command(command) = pending {
                owed.wake |= matches!(command, Command::Wake(of) if *of == id);
                owed.close |= matches!(command, Command::Close(of) if *of == id);
            }
        }
        if let Some(shared) = &self.outside.shared {
            let inbox = shared.lock();
            owed.wake |= inbox.waking.contains(&id.number());
            owed.close |= inbox.closing.contains(&id.number());
        }
        Some(Departed { pack, ended, owed, session })
    }

    /// Counts a move, which was counted as a detach.
    pub(crate) fn count_move(&mut self) {
        self.counters.detached -= 1;
        self.counters.moved += 1;
    }

    /// Counts the end of a connection that no loop could take over.
    pub(crate) fn count_end(&mut self, cause: Cause) {
        self.counters.closed(cause);
    }

    /// The next connection that a thread has handed over.
    pub(crate) fn next_moved(&mut self) -> Option<Box<Moved>> {
        self.outside.arrivals.pop_front()
    }

    /// Serves a connection that a thread has handed over. During a shutdown it closes at once. The
    /// state comes back if there are 2^24 connections.
    pub(crate) fn take_in<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        moved: Parts,
        state: S,
    ) -> Result<Id, S> {
        let Parts { from, handle, undelivered, ended, owed, session } = moved;
        if !self.table.has_room() {
            self.count_load(-1);
            return Err(state);
        }
        let source = watcher.attach(handle).unwrap_or(Source::NONE);
        let coded = if session.is_some() { CODED } else { 0 };
        let flags = coded | if ended { ENDED } else { 0 };
        let Some(id) = self.table.insert(source, flags, Some(state)) else {
            unreachable!("there is room")
        };
        if let Some(session) = session {
            self.entrance.transports.keep_session(id.index(), session);
        }
        if !undelivered.is_empty() {
            self.table.place_mut(id.index()).flags |= HELD;
            let active = self.activate(id.index());
            active.held_bytes = undelivered.iter().map(|data| data.len()).sum();
            active.held.extend(undelivered);
            self.recharge(id.index());
            self.told.pending.push_back(Pending::Held(id));
        }
        self.log(LogEvent::Moved { id, from });
        if source.is_none() {
            self.abort_as(id, Cause::Rejected);
        } else {
            self.begin(watcher, id);
        }
        if self.entrance.refuses {
            self.close_as(id, Cause::Shutdown);
        }
        if owed.close {
            self.close(id);
        }
        if owed.wake {
            self.wake(id);
        }
        if owed.drained {
            self.told.pending.push_back(Pending::Drained(id));
        }
        self.dirty(id.index());
        Ok(id)
    }
}

#[cfg(test)]
mod tests {
    use windlass::net::ListenOptions;
    use windlass::sim::Sim;
    use windlass::{Completions, Op};

    use super::*;
    use crate::parts::table::READING;
    use crate::words::config::Config;
    use crate::words::event::Event;
    use crate::words::limits::Limits;

    /// A connection with 30 MiB of output that waits has begun to move; and its client.
    fn leaving() -> (Watcher, Engine<()>, Source, Id) {
        let mut watcher = Watcher::simulated(&Sim::new(1));
        let limits = Limits::new().close(Duration::from_secs(10)).write_stall(None).idle(None);
        let mut engine = Engine::<()>::new(Config::new().limits(limits).close_on_eof(false));
        engine.set_thread();
        let local = ([127, 0, 0, 1], 0);
        engine.listen(&mut watcher, local, ListenOptions::default()).unwrap();
        let address = watcher.local_address(engine.listeners()[0]).unwrap();
        let (client, _) = watcher.connect([address], Default::default()).unwrap();
        while !turn(&mut watcher, &mut engine).contains(&"opened") {}
        let id = engine.ids().next().expect("it is open");
        engine.write(id, vec![7; 30 << 20]).unwrap();
        assert!(engine.let_move(id, |state| Box::new(state)) && engine.begin_move(id));
        engine.flush(&mut watcher);
        assert_eq!(engine.rest(), Rest::Leaves);
        (watcher, engine, client, id)
    }

    /// One turn, and what it tells.
    fn turn(watcher: &mut Watcher, engine: &mut Engine<()>) -> Vec<&'static str> {
        let (mut done, mut told) = (Completions::new(), Vec::new());
        watcher.wait_timeout(&mut done, Duration::from_secs(5)).unwrap();
        for c in done.drain(..) {
            let _ = engine.complete(watcher, c);
        }
        while let Some(event) = engine.next_event(watcher) {
            match event {
                Event::Opened { .. } => told.push("opened"),
                Event::Data { .. } => told.push("data"),
                Event::Wake { .. } => told.push("wake"),
                Event::Closed { .. } | Event::Detached { .. } => told.push("end"),
                _ => {}
            }
        }
        engine.flush(watcher);
        told
    }

    /// A loop would take its descriptor for one of a stream.
    #[test]
    fn a_udp_client_stays_on_its_thread() {
        let mut watcher = Watcher::simulated(&Sim::new(1));
        let mut engine = Engine::<()>::new(Config::new());
        engine.set_thread();
        let peer = std::net::SocketAddr::from(([127, 0, 0, 1], 7));
        let id = engine.connect_datagram(peer, ()).unwrap();
        engine.flush(&mut watcher);
        while !turn(&mut watcher, &mut engine).contains(&"opened") {}
        assert!(!engine.let_move(id, |state| Box::new(state)) && !engine.begin_move(id));
        engine.begin_moves();
        engine.flush(&mut watcher);
        assert_eq!(engine.rest(), Rest::Stays);
        engine.write(id, "it goes on").unwrap();
    }

    /// A move that took too long ended a healthy connection whose peer reads slowly.
    #[test]
    fn a_move_without_an_end_in_time_is_called_off() {
        let (mut watcher, mut engine, client, id) = leaving();
        assert!(engine.write(id, "x").is_err(), "it leaves");
        let start = watcher.now();
        while engine.rest() == Rest::Leaves {
            assert!(watcher.now() - start < Duration::from_secs(30));
            assert_eq!(turn(&mut watcher, &mut engine), [""; 0]);
        }
        assert!(watcher.now() - start >= Duration::from_secs(10));
        assert!(engine.take_told_to_move() && engine.rest() == Rest::Stays);
        // It goes on where it is, and can be asked again.
        engine.write(id, "more").unwrap();
        let read = Op::read_exact(client, Vec::with_capacity((30 << 20) + 4), (30 << 20) + 4);
        watcher.submit(read).unwrap();
        while engine.waiting(id) > 0 {
            assert_eq!(turn(&mut watcher, &mut engine), [""; 0]);
        }
        assert!(engine.begin_move(id));
    }

    /// An operation of the program was on the source, and the idle time was gone. One that was set
    /// in the turn of the move never came.
    #[test]
    fn a_move_that_is_called_off_keeps_the_idle_time() {
        let mut watcher = Watcher::simulated(&Sim::new(1));
        let mut engine = Engine::<()>::new(Config::new().close_on_eof(false));
        engine.set_thread();
        let local = ([127, 0, 0, 1], 0);
        engine.listen(&mut watcher, local, ListenOptions::default()).unwrap();
        let address = watcher.local_address(engine.listeners()[0]).unwrap();
        let (client, _) = watcher.connect([address], Default::default()).unwrap();
        while !turn(&mut watcher, &mut engine).contains(&"opened") {}
        let id = engine.ids().next().expect("it is open");
        let source = engine.source(id).expect("it is there");
        // Its read ends, and then nothing of the engine keeps it from its move.
        assert!(engine.pause(id));
        watcher.submit(Op::write(client, "x")).unwrap();
        while engine.table.place(id.index()).flags & READING != 0 {
            turn(&mut watcher, &mut engine);
        }
        let idle = Duration::from_secs(7);
        assert!(engine.set_idle_timeout(id, idle));
        assert!(engine.let_move(id, |state| Box::new(state)) && engine.begin_move(id));
        watcher.submit(Op::readable(source)).unwrap();
        engine.flush(&mut watcher);
        assert_eq!(engine.rest(), Rest::Leaves);
        assert!(engine.shutdown(id) && engine.rest() == Rest::Stays);
        assert_eq!(watcher.idle_timeout(source), Some(idle));
    }

    /// What came while the connection left was held for ever, and a wake was lost.
    #[test]
    fn a_called_off_move_delivers_what_has_come() {
        let (mut watcher, mut engine, client, id) = leaving();
        watcher.submit(Op::write(client, "request")).unwrap();
        assert!(engine.wake(id));
        engine.flush(&mut watcher);
        let mut told = Vec::new();
        while engine.rest() == Rest::Leaves {
            told.extend(turn(&mut watcher, &mut engine));
        }
        watcher.submit(Op::write(client, "another")).unwrap();
        let read = Op::read_exact(client, Vec::with_capacity(30 << 20), 30 << 20);
        watcher.submit(read).unwrap();
        let start = watcher.now();
        while told.len() < 3 {
            assert!(watcher.now() - start < Duration::from_secs(60), "{told:?}");
            told.extend(turn(&mut watcher, &mut engine));
        }
        told.sort_unstable();
        assert_eq!(told, ["data", "data", "wake"]);
    }

    /// It passed without an effect while the connection left, and then the connection stayed.
    #[test]
    fn a_called_off_move_keeps_its_deadline() {
        let (mut watcher, mut engine, _client, id) = leaving();
        assert!(engine.set_read_deadline(id, Deadline::After(Duration::ZERO)));
        engine.flush(&mut watcher);
        let (mut told, start) = (Vec::new(), watcher.now());
        while told.is_empty() {
            assert!(watcher.now() - start < Duration::from_secs(60));
            told = turn(&mut watcher, &mut engine);
            assert!(told.is_empty() || engine.rest() != Rest::Leaves);
        }
        assert_eq!((told, engine.counters().ends.read_timeout), (vec!["end"], 1));
    }

    /// The answer was true, or none, and the connection moved without them.
    #[test]
    fn what_is_asked_of_a_connection_that_has_left_goes_along() {
        for by_thread in [false, true] {
            let (mut watcher, mut engine, client, id) = leaving();
            let remote = engine.remote(&mut watcher);
            let read = Op::read_exact(client, Vec::with_capacity(30 << 20), 30 << 20);
            watcher.submit(read).unwrap();
            while engine.table.place(id.index()).stage != Stage::Ended {
                assert_eq!(turn(&mut watcher, &mut engine), [""; 0]);
            }
            if by_thread {
                // A message is in front of one of them.
                assert!(remote.wake(id) && remote.post(0, 7).is_ok());
                engine.look_into_inbox();
                assert!(remote.close(id));
            } else {
                assert!(engine.wake(id) && engine.close(id));
            }
            while !matches!(engine.next_event(&mut watcher), Some(Event::Detached { .. })) {}
            assert!(!remote.wake(id) && !remote.close(id), "it is stale");
            let owed = engine.take_move(id).expect("it moves").owed;
            assert!(owed.wake && owed.close && owed.drained, "by a thread: {by_thread}");
        }
    }

    /// A half-close and a detach answered true, and the connection moved without them.
    #[test]
    fn a_request_of_the_program_takes_the_place_of_a_move() {
        type Ask = fn(&mut Engine<()>, Id) -> bool;
        let requests: [Ask; 3] =
            [|e, id| e.shutdown(id), |e, id| e.detach(id).is_ok(), |e, id| e.close(id)];
        for (at, ask) in requests.into_iter().enumerate() {
            let (mut watcher, mut engine, client, id) = leaving();
            assert!(ask(&mut engine, id) && engine.rest() == Rest::Stays, "request {at}");
            engine.flush(&mut watcher);
            watcher.submit(Op::read_exact(client, Vec::with_capacity(30 << 20), 30 << 20)).unwrap();
            let (mut done, mut last, start) = (Completions::new(), None, watcher.now());
            while last.is_none() {
                assert!(watcher.now() - start < Duration::from_secs(60), "request {at}");
                watcher.wait_timeout(&mut done, Duration::from_secs(5)).unwrap();
                for c in done.drain(..) {
                    if engine.complete(&mut watcher, c).is_some_and(|own| own.bytes() == 30 << 20) {
                        watcher.submit(Op::shutdown(client)).unwrap();
                    }
                }
                while let Some(event) = engine.next_event(&mut watcher) {
                    last = match event {
                        Event::Closed { cause, unsent, .. } => Some((Some(cause), unsent)),
                        Event::Detached { .. } => Some((None, 0)),
                        _ => continue,
                    };
                }
                engine.flush(&mut watcher);
            }
            let cause = [Some(Cause::Eof), None, Some(Cause::Closed)][at];
            assert_eq!((last, engine.take_move(id).is_some()), (Some((cause, 0)), false));
        }
    }

    /// A connection that stops and goes on stood in the list once for each time.
    #[test]
    fn the_list_of_stopped_connections_has_each_once() {
        let mut watcher = Watcher::simulated(&Sim::new(1));
        let mut engine = Engine::<()>::new(Config::new().limits(Limits::new().memory(1 << 20)));
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], 7));
        let one = engine.connect([address], Default::default(), ()).unwrap();
        let two = engine.connect([address], Default::default(), ()).unwrap();
        assert!(engine.charge(two, 1));
        for _ in 0..1000 {
            assert!(engine.charge(one, 500 << 10) && engine.charge(one, 1 << 10));
        }
        assert!(engine.charge(one, 500 << 10));
        engine.sweep(&mut watcher);
        assert_eq!((engine.memory.throttled.len(), engine.memory.stopped), (1, 1));
    }

    /// It moved, and nobody ended it: its failure was told here.
    #[cfg(feature = "ring")]
    #[test]
    fn a_session_that_fails_calls_the_move_off() {
        use crate::tls::{Pem, Session, Tls, TlsClient};
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        let tls = Tls::pem(Pem::bytes(&certificate), Pem::bytes(&key)).unwrap();
        let trust = TlsClient::builder().roots(Pem::bytes(&certificate)).build().unwrap();
        let sim = Sim::new(1);
        sim.set_buffer(1000);
        let mut watcher = Watcher::simulated(&sim);
        let limits = Limits::new().close(Duration::from_secs(1000)).write_stall(None).idle(None);
        let mut engine = Engine::<()>::new(Config::new().limits(limits));
        engine.set_thread();
        let local = ([127, 0, 0, 1], 0);
        engine.listen(&mut watcher, local, ListenOptions::default()).unwrap();
        assert!(engine.encrypt_listener(0, tls));
        let address = watcher.local_address(engine.listeners()[0]).unwrap();
        let (peer, _) = watcher.connect([address], Default::default()).unwrap();
        let mut session = Session::client(&trust, "localhost").unwrap();
        let (mut done, mut id, mut end) = (Completions::new(), None, None);
        watcher.submit(Op::read(peer)).unwrap();
        let start = watcher.now();
        while end.is_none() {
            assert!(watcher.now() - start < Duration::from_secs(30), "it stays");
            let mut out = Vec::new();
            if session.take_output(&mut out) > 0 {
                watcher.submit(Op::write(peer, out).quiet()).unwrap();
            }
            engine.flush(&mut watcher);
            watcher.wait_timeout(&mut done, Duration::from_secs(5)).unwrap();
            for c in done.drain(..) {
                if let Some(mut c) = engine.complete(&mut watcher, c)
                    && id.is_none()
                    && let Some(data) = c.take_read()
                {
                    session.feed_into(&data, &mut Vec::new()).unwrap();
                    watcher.submit(Op::read(peer)).unwrap();
                }
            }
            while let Some(event) = engine.next_event(&mut watcher) {
                match event {
                    Event::Opened { id: opened, .. } => {
                        id = Some(opened);
                        // It is encrypted at once, and waits for the socket.
                        engine.write(opened, vec![7; 60_000]).unwrap();
                        let pack: Pack<()> = |state| Box::new(state);
                        assert!(engine.let_move(opened, pack) && engine.begin_move(opened));
                        let wrong = [23, 3, 3, 0, 40].repeat(9);
                        watcher.submit(Op::write(peer, wrong).quiet()).unwrap();
                    }
                    Event::Closed { cause, .. } => end = Some(cause),
                    _ => {}
                }
            }
            if id.is_some() {
                // It reads on, so that the alert can come.
                let _ = watcher.submit(Op::read(peer));
            }
        }
        assert_eq!((end, engine.rest()), (Some(Cause::Tls), Rest::Nothing));
    }
}
