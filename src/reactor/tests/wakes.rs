//! Threads that wake a selector in the way in which they wake a loop.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::BOUND;
use crate::sys::Select;
use crate::words::wake_state::WakeState;

/// Two threads signal at the same time, and the loop blocks again between their signals.
pub(super) fn no_signal_of_two_threads_is_lost<S: Select>() {
    let rounds = crate::seeds::races(2_000);
    let mut selector = S::new(4).unwrap();
    let wake = WakeState::new(selector.waker(1).unwrap());
    let queued = [const { AtomicBool::new(false) }; 2];
    let (mut blocked, over) = (0, AtomicBool::new(false));
    thread::scope(|scope| {
        for item in &queued {
            let (wake, over) = (&wake, &over);
            scope.spawn(move || {
                for _ in 0..rounds {
                    item.store(true, Ordering::SeqCst);
                    wake.notify();
                    while item.load(Ordering::SeqCst) {
                        if over.load(Ordering::SeqCst) {
                            return;
                        }
                        thread::yield_now();
                    }
                }
            });
        }
        let mut taken = 0;
        while taken < 2 * rounds {
            if wake.prepare_park() {
                blocked += 1;
                let start = Instant::now();
                let timeout = BOUND + Duration::from_secs(1);
                selector.select(Some(timeout.as_nanos() as u64)).unwrap();
                if start.elapsed() > BOUND {
                    over.store(true, Ordering::SeqCst);
                    panic!("a signal was lost after {taken} items");
                }
            }
            if wake.unpark() {
                let item = |item: &&AtomicBool| item.swap(false, Ordering::SeqCst);
                taken += queued.iter().filter(item).count() as u64;
            }
        }
    });
    assert!(blocked > 0, "the loop never blocked");
}
