//! The threads that serve one connection each.
//!
//! Such a thread is a loop of its own that gets the next connection when its last one has ended. So
//! it has the same guarantees, and other threads reach its connection in the same way.

use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::inbox::{Command, Shared};
use crate::parts::transport::Accepted;

/// A thread to start: its number, the first number of its connections, and the first connection.
pub(crate) struct Start {
    pub(crate) number: usize,
    pub(crate) ids: Option<u64>,
    pub(crate) given: Accepted,
}

/// What a thread has left when one of its connections has gone, or was told to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    /// No connection.
    Nothing,
    /// Connections that are on their way to a loop.
    Leaves,
    /// A connection that keeps the thread.
    Stays,
}

/// The threads of a server.
pub(crate) struct Threads {
    /// The index of the first thread: those of the loops are below it.
    pub(crate) first: usize,
    /// The most threads that there may ever be.
    pub(crate) most: usize,
    /// Whether the loops serve the connections beyond the cap.
    pub(crate) mixed: bool,
    pub(crate) state: Mutex<State>,
}

#[derive(Default)]
pub(crate) struct State {
    /// The most connections, and how many there are.
    pub(crate) cap: usize,
    pub(crate) busy: usize,
    /// How many of these were told to move.
    pub(crate) leaving: usize,
    /// The threads by their numbers, and numbers that no thread has at the moment.
    pub(crate) slots: Vec<Slot>,
    pub(crate) vacant: Vec<usize>,
    /// The threads that wait for a connection.
    pub(crate) idle: Vec<usize>,
    /// Starts threads; `None` once no loop accepts any more.
    pub(crate) keeper: Option<Sender<Start>>,
    /// The loops that are not over.
    pub(crate) loops: usize,
    /// Whether the server shuts down.
    pub(crate) stops: bool,
}

#[derive(Default)]
pub(crate) struct Slot {
    /// The thread as others see it, from its begin to its end.
    pub(crate) shared: Option<Arc<Shared>>,
    /// How many connections the thread was given.
    pub(crate) given: u64,
    pub(crate) is_busy: bool,
    /// One of its connections may move to a loop. It has several if a callback has connected.
    pub(crate) may_move: bool,
    /// Its connections were told to move, because there are too many.
    pub(crate) leaves: bool,
    /// The number of the next connection, from the last thread with this number.
    pub(crate) ids: Option<u64>,
}

impl State {
    /// A thread has no connection any more; false if it had none.
    pub(crate) fn free(&mut self, number: usize) -> bool {
        let slot = &mut self.slots[number];
        if !std::mem::take(&mut slot.is_busy) {
            return false;
        }
        self.busy -= 1;
        self.leaving -= usize::from(slot.leaves);
        (slot.may_move, slot.leaves) = (false, false);
        true
    }

    /// A connection keeps its thread, which was told that its connections have to move. Those of
    /// other threads have to, then.
    pub(crate) fn stay(&mut self, number: usize) {
        if std::mem::take(&mut self.slots[number].leaves) {
            self.leaving -= 1;
            self.shed();
        }
    }

    /// Tells the last threads that their connections have to move, while there are too many.
    pub(crate) fn shed(&mut self) {
        for number in (0..self.slots.len()).rev() {
            if !self.is_above_cap() {
                break;
            }
            self.tell_to_move(number);
        }
    }

    /// Another thread may have the number.
    pub(crate) fn vacate(&mut self, number: usize, ids: Option<u64>) {
        self.free(number);
        let slot = &mut self.slots[number];
        slot.ids = ids.or(slot.ids);
        slot.shared = None;
        self.vacant.push(number);
    }

    /// Tells a thread that its connections have to move, if one of them may.
    pub(crate) fn tell_to_move(&mut self, number: usize) {
        let slot = &mut self.slots[number];
        if slot.may_move && !slot.leaves {
            slot.leaves = true;
            self.leaving += 1;
            if let Some(shared) = &slot.shared {
                let _ = shared.post(Command::Move);
            }
        }
    }

    /// Whether there are too many connections, besides those that were told to move.
    pub(crate) fn is_above_cap(&self) -> bool {
        self.busy - self.leaving > self.cap
    }
}

impl Threads {
    /// The index behind that of the last thread.
    pub(crate) fn end(&self) -> usize {
        self.first + self.lock().slots.len()
    }

    /// At most `cap` threads, whose indices begin with `first`. `keeper` hears the number of each
    /// thread to start, and its first connection.
    pub(crate) fn new(first: usize, cap: usize, mixed: bool, keeper: Sender<Start>) -> Threads {
        let state = State { keeper: Some(keeper), loops: first, cap, ..State::default() };
        Threads { first, most: cap, mixed, state: Mutex::new(state) }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Whether the loops serve the connections that the threads do not.
    pub(crate) fn is_mixed(&self) -> bool {
        self.mixed
    }

    /// Gives a connection to a thread that waits, or starts one. The connection comes back if there
    /// are `cap` connections already.
    pub(crate) fn give(&self, mut given: Accepted) -> Result<(), Accepted> {
        let mut state = self.lock();
        if state.keeper.is_none() || state.busy >= state.cap {
            return Err(given);
        }
        while let Some(number) = state.idle.pop() {
            state.busy += 1;
            let slot = &mut state.slots[number];
            (slot.is_busy, slot.given) = (true, slot.given + 1);
            let shared = Arc::clone(slot.shared.as_ref().expect("a thread that waits has begun"));
            shared.load.fetch_add(1, Ordering::Relaxed);
            match shared.post(Command::Adopt(given)) {
                Err(Command::Adopt(refused)) => {
                    // The thread is over, in a shutdown or by an error: then `lose` follows.
                    state.free(number);
                    given = refused;
                }
                _ => return Ok(()),
            }
        }
        state.busy += 1;
        let number = match state.vacant.pop() {
            Some(number) => number,
            None => {
                state.slots.push(Slot::default());
                state.slots.len() - 1
            }
        };
        let slot = &mut state.slots[number];
        (slot.is_busy, slot.given) = (true, 1);
        let start = Start { number, ids: slot.ids, given };
        let keeper = state.keeper.as_ref().expect("looked at above");
        keeper.send(start).map_err(|refused| {
            let given = refused.0.given;
            state.vacate(number, None);
            given
        })
    }

    /// A thread begins with its first connection. False if the server shuts down: then no stop
    /// follows, and the thread has to end.
    pub(crate) fn begin(&self, number: usize, shared: Arc<Shared>) -> bool {
        let mut state = self.lock();
        state.slots[number].shared = Some(shared);
        !state.stops
    }

    /// A thread has no connection, and has opened or refused `count` of them so far. It waits for
    /// the next one, unless it has been given one meanwhile.
    pub(crate) fn note_idle(&self, number: usize, count: u64) {
        let mut state = self.lock();
        if state.slots[number].given == count && state.free(number) {
            state.idle.push(number);
        }
    }

    /// The thread with this loop index hands a connection to a loop. If nothing is left of its
    /// connections, it can have the next one at once: a client that knows of the move finds the
    /// thread free. `count` is as for [`note_idle`](Threads::note_idle).
    pub(crate) fn note_moved(&self, loop_index: usize, rest: Rest, count: u64) {
        let Some(number) = loop_index.checked_sub(self.first) else { return };
        match rest {
            Rest::Nothing => self.note_idle(number, count),
            Rest::Leaves => {}
            Rest::Stays => self.lock().stay(number),
        }
    }

    /// The thread with this loop index was told that its connections have to move, and none of them
    /// may, or one of them may not.
    pub(crate) fn note_stay(&self, loop_index: usize) {
        let Some(number) = loop_index.checked_sub(self.first) else { return };
        let mut state = self.lock();
        // It is not told again before another connection may move.
        state.slots[number].may_move = false;
        state.stay(number);
    }

    /// A connection of the thread with this loop index may move. If there are too many, it does.
    pub(crate) fn note_movable(&self, loop_index: usize) {
        let Some(number) = loop_index.checked_sub(self.first) else { return };
        let mut state = self.lock();
        state.slots[number].may_move = state.slots[number].is_busy;
        if state.is_above_cap() {
            state.tell_to_move(number);
        }
    }

    /// A thread ends, or could not begin. Its inbox is closed, so that it has not been given a
    /// connection meanwhile. `ids` is the number of its next connection.
    pub(crate) fn lose(&self, number: usize, ids: Option<u64>) {
        let mut state = self.lock();
        state.idle.retain(|idle| *idle != number);
        state.vacate(number, ids);
    }

    /// The loop of a thread, by the index of the loop.
    pub(crate) fn of(&self, loop_index: usize) -> Option<Arc<Shared>> {
        let number = loop_index.checked_sub(self.first)?;
        self.lock().slots.get(number)?.shared.clone()
    }

    /// Lets at most `cap` connections have a thread. Beyond it, those that may move do.
    pub(crate) fn set_cap(&self, cap: usize) {
        let mut state = self.lock();
        state.cap = cap.min(self.most);
        state.shed();
    }

    /// Shuts the threads down. One that begins later does so at its begin.
    pub(crate) fn stop(&self) {
        let mut state = self.lock();
        if std::mem::replace(&mut state.stops, true) {
            return; // Each thread that stops calls this, too.
        }
        for slot in &state.slots {
            if let Some(shared) = &slot.shared {
                let _ = shared.post(Command::Stop);
            }
        }
    }
}

impl Threads {
    /// A loop is over. Behind the last one, which accepts no more connections, no thread starts.
    pub(crate) fn note_loop_over(&self) {
        let mut state = self.lock();
        state.loops = state.loops.saturating_sub(1);
        if state.loops == 0 {
            state.keeper = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use windlass::Watcher;
    use windlass::sim::Sim;

    use super::*;
    use crate::engine::Engine;
    use crate::words::config::Config;

    #[cfg(unix)]
    fn connection() -> Accepted {
        let handle = std::os::unix::net::UnixStream::pair().unwrap().0.into();
        Accepted::new(handle, 0, None)
    }

    #[test]
    #[cfg(unix)]
    fn a_thread_that_is_lost_while_it_is_given_a_connection_is_counted_once() {
        let mut watcher = Watcher::simulated(&Sim::new(1));
        let mut engine = Engine::<()>::new(Config::new());
        let shared = Arc::clone(&engine.remote(&mut watcher).loops[0]);
        let (keeper, starts) = channel();
        let threads = Threads::new(0, 1, false, keeper);
        assert!(threads.give(connection()).is_ok());
        let number = starts.recv().unwrap().number;
        assert!(threads.begin(number, shared));
        threads.note_idle(number, 1);
        // The thread ends with an error, and has not said so yet.
        engine.close_inbox();
        assert!(threads.give(connection()).is_ok(), "another thread gets it");
        assert_ne!(starts.recv().unwrap().number, number);
        threads.lose(number, None);
        assert!(threads.give(connection()).is_err(), "there is room for one");
    }

    #[test]
    #[cfg(unix)]
    fn a_thread_is_told_once_to_stop() {
        let mut watcher = Watcher::simulated(&Sim::new(1));
        let mut engine = Engine::<()>::new(Config::new());
        let shared = Arc::clone(&engine.remote(&mut watcher).loops[0]);
        let (keeper, starts) = channel();
        let threads = Threads::new(0, 1, false, keeper);
        assert!(threads.give(connection()).is_ok());
        assert!(threads.begin(starts.recv().unwrap().number, Arc::clone(&shared)));
        threads.stop();
        assert!(shared.is_posted());
        engine.look_into_inbox();
        // Each thread that stops says so to all others.
        threads.stop();
        assert!(!shared.is_posted());
    }
}
