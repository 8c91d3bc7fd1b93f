//! What a program does on the loop of its server.

use windlass::{Completion, Watcher};

/// What a program does on the loop of its server beside it: files, timers, clients of other
/// servers. [`Simulation::serve_beside`](super::Simulation::serve_beside) runs both.
///
/// `()` does nothing.
pub trait LoopWork {
    /// Takes a completion that is not one of the server.
    fn complete(&mut self, watcher: &mut Watcher, completion: Completion);

    /// A turn of the loop ends: the handlers of all requests that have come were called.
    fn turn(&mut self, watcher: &mut Watcher) {
        let _ = watcher;
    }
}

impl LoopWork for () {
    fn complete(&mut self, _: &mut Watcher, _: Completion) {}
}
