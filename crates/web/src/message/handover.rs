//! A value that another thread gives to a request that waits for it.
//!
//! # Why
//! The value waits in a place that the request and the thread share, and the connection is woken.
//! Nothing is queued at the loop, so nothing can be refused for want of memory. And both sides know
//! exactly whether a value has reached its request.

use std::sync::{Arc, Mutex, MutexGuard};

use windlass_serve::Id;

use crate::remote::Remote;

/// What gives the value: one end of the pair.
pub(crate) struct Giver<T>(Arc<Shared<T>>);

struct Shared<T>(Mutex<State<T>>);

struct State<T> {
    answer: Giving<T>,
    /// Where the request waits, once it does.
    place: Option<Place>,
    has_peer_ended: bool,
}

enum Giving<T> {
    /// There is none yet.
    Open,
    Given(T),
    /// There will be none.
    Dropped,
    /// The request has it.
    Taken,
    /// The request is over.
    Over,
}

/// The connection of a request.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) remote: Remote,
    pub(crate) id: Id,
}

impl Place {
    fn wake(&self) -> bool {
        self.remote.wake(self.id)
    }
}

/// What a request waits for: the other end of the pair.
pub(crate) struct Awaited<T>(Arc<Shared<T>>);

/// The other end was dropped without a value.
pub(crate) struct Unanswered;

pub(crate) fn pair<T>() -> (Giver<T>, Awaited<T>) {
    let state = State { answer: Giving::Open, place: None, has_peer_ended: false };
    let shared = Arc::new(Shared(Mutex::new(state)));
    (Giver(Arc::clone(&shared)), Awaited(shared))
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Puts the end of the waiting there, and wakes the connection. What finds no request comes
    /// back.
    fn put(&self, answer: Giving<T>) -> Result<(), Giving<T>> {
        let mut state = self.lock();
        if let Giving::Over = state.answer {
            return Err(answer);
        }
        state.answer = answer;
        let place = state.place.clone();
        drop(state);
        // Without a place the request does not wait yet: it looks here when it begins to.
        if place.is_none_or(|place| place.wake()) {
            return Ok(());
        }
        match std::mem::replace(&mut self.lock().answer, Giving::Over) {
            // Its loop has looked here just before its end.
            Giving::Taken => Ok(()),
            answer => Err(answer),
        }
    }

    fn count_late(&self) {
        if let Some(place) = &self.lock().place {
            place.remote.count_late();
        }
    }
}

impl<T> Giver<T> {
    /// Gives the value. It comes back if nobody waits for it, which is counted.
    pub(crate) fn give(self, value: T) -> Result<(), T> {
        match self.0.put(Giving::Given(value)) {
            Err(Giving::Given(value)) => {
                self.0.count_late();
                Err(value)
            }
            _ => Ok(()),
        }
    }

    /// Whether nobody waits any more, or the peer has ended its side.
    pub(crate) fn is_gone(&self) -> bool {
        let state = self.0.lock();
        state.has_peer_ended || matches!(state.answer, Giving::Over)
    }
}

impl<T> Drop for Giver<T> {
    fn drop(&mut self) {
        let is_open = matches!(self.0.lock().answer, Giving::Open);
        if is_open {
            // An error means that nobody waits.
            let _ = self.0.put(Giving::Dropped);
        }
    }
}

impl<T> Awaited<T> {
    /// The request waits at a place from now on.
    pub(crate) fn wait_at(&self, place: Place) {
        self.0.lock().place = Some(place);
    }

    /// The value, if it is there.
    pub(crate) fn take(&self) -> Option<Result<T, Unanswered>> {
        let mut state = self.0.lock();
        match std::mem::replace(&mut state.answer, Giving::Taken) {
            Giving::Given(value) => Some(Ok(value)),
            Giving::Dropped => Some(Err(Unanswered)),
            other => {
                state.answer = other;
                None
            }
        }
    }

    /// Whether [`take`](Awaited::take) has something.
    pub(crate) fn has_answer(&self) -> bool {
        matches!(self.0.lock().answer, Giving::Given(_) | Giving::Dropped)
    }

    pub(crate) fn peer_ended(&self) {
        self.0.lock().has_peer_ended = true;
    }
}

impl<T> Drop for Awaited<T> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        if let Giving::Taken = state.answer {
            return;
        }
        let answer = std::mem::replace(&mut state.answer, Giving::Over);
        drop(state);
        if let Giving::Given(value) = answer {
            self.0.count_late();
            // It is the program's, and takes no lock of ours along.
            drop(value);
        }
    }
}
