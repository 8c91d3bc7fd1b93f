//! Which loop gets an accepted connection.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::engine::Engine;
use crate::handles::threads::Threads;
use crate::inbox::{Command, Shared};
use crate::parts::transport::Accepted;
use crate::words::balance::Balance;

/// Chooses a loop for each accepted connection.
pub(crate) struct Balancer {
    pub(crate) loops: Arc<[Arc<Shared>]>,
    pub(crate) policy: Balance,
    /// The number of this loop.
    pub(crate) own: usize,
    /// The listeners of which this loop has each connection that it accepts.
    pub(crate) kept: Vec<bool>,
    pub(crate) next: u64,
    /// The threads that get connections first.
    pub(crate) threads: Option<Arc<Threads>>,
}

/// Where an accepted connection is served.
pub(crate) enum Choice {
    /// By this loop.
    Here(Accepted),
    /// By another loop, or by a thread.
    Elsewhere,
    /// There is no room.
    Nowhere(Accepted),
}

impl Balancer {
    fn choose(&mut self) -> usize {
        let count = self.loops.len() as u64;
        let choice = match self.policy {
            Balance::Random => {
                // xorshift64
                self.next ^= self.next << 13;
                self.next ^= self.next >> 7;
                self.next ^= self.next << 17;
                self.next % count
            }
            Balance::LeastConnections => {
                let load = |at: &usize| self.loops[*at].load.load(Ordering::Relaxed);
                return (0..self.loops.len()).min_by_key(load).unwrap_or(0);
            }
            Balance::RoundRobin | Balance::ReusePort => {
                self.next = self.next.wrapping_add(1);
                self.next % count
            }
        };
        choice as usize
    }
}

impl<S> Engine<S> {
    /// Chooses the loop or the thread of an accepted connection.
    pub(crate) fn balance(&mut self, mut accepted: Accepted) -> Choice {
        let Some(balancer) = &mut self.entrance.balancer else {
            self.count_load(1);
            return Choice::Here(accepted);
        };
        if self.entrance.refuses {
            self.count_load(1);
            return Choice::Here(accepted); // which counts it
        }
        if let Some(threads) = &balancer.threads {
            match threads.give(accepted) {
                Ok(()) => return Choice::Elsewhere,
                Err(given) => accepted = given,
            }
            if !threads.is_mixed() {
                self.count_load(1);
                return Choice::Nowhere(accepted);
            }
        }
        if balancer.kept.get(accepted.listener()) == Some(&true) {
            self.count_load(1);
            return Choice::Here(accepted);
        }
        let chosen = balancer.choose();
        let shared = &balancer.loops[chosen];
        shared.load.fetch_add(1, Ordering::Relaxed);
        if chosen == balancer.own {
            return Choice::Here(accepted);
        }
        match shared.post(Command::Adopt(accepted)) {
            // That loop is over. This one serves the connection, or refuses it in the shutdown.
            Err(Command::Adopt(accepted)) => {
                shared.load.fetch_sub(1, Ordering::Relaxed);
                self.count_load(1);
                Choice::Here(accepted)
            }
            _ => Choice::Elsewhere,
        }
    }

    /// Counts a connection for the choices of the balancer.
    pub(crate) fn count_load(&self, change: isize) {
        if let Some(shared) = &self.outside.shared {
            shared.load.fetch_add(change as usize, Ordering::Relaxed);
        }
    }
}
