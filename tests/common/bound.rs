//! Waits with a bound: a hang becomes a failure that names the missing event.
#![allow(dead_code, unreachable_pub)] // each test binary uses its own part

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Mutex, Once, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use windlass::driver::Driver;
use windlass::{Completions, Watcher};

/// How long one wait may take before it counts as a hang.
pub const BOUND: Duration = Duration::from_secs(60);
/// How long a whole test may take.
pub const WHOLE: Duration = Duration::from_secs(300);
/// The age at which a hanging test's process is ended. The other bounds, which report more, come
/// first even on a busy machine.
const LAST: Duration = Duration::from_secs(900);

/// Waits for the next batch; answers how many completions it has, at least one.
#[track_caller]
pub fn wait_for<D: Driver>(watcher: &mut Watcher<D>, done: &mut Completions, what: &str) -> usize {
    let count = watcher.wait_timeout(done, BOUND).unwrap_or_else(|e| panic!("{what}: {e}"));
    assert!(count > 0, "{what}: nothing came in {BOUND:?}; {:?}", watcher.counters());
    count
}

/// Polls until `holds`, for conditions without an event.
#[track_caller]
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + BOUND;
    while !holds() {
        assert!(Instant::now() < end, "{what}: not within {BOUND:?}");
        std::thread::yield_now();
    }
}

/// The result of a thread.
#[track_caller]
pub fn join<T>(thread: JoinHandle<T>, what: &str) -> T {
    until(what, || thread.is_finished());
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Runs `body` on a thread of its own. What hangs in a call there, which has no bound of its own,
/// fails here.
#[track_caller]
pub fn aside(what: &str, body: impl FnOnce() + Send + 'static) {
    let name = std::thread::current().name().unwrap_or("a thread without a name").to_owned();
    let thread = std::thread::Builder::new().name(name).spawn(body);
    join(thread.expect("one more thread"), what);
}

/// The next value from a channel.
#[track_caller]
pub fn receive<T>(from: &Receiver<T>, what: &str) -> T {
    match from.recv_timeout(BOUND) {
        Ok(it) => it,
        Err(RecvTimeoutError::Timeout) => panic!("{what}: not within {BOUND:?}"),
        Err(RecvTimeoutError::Disconnected) => panic!("{what}: the other end is gone"),
    }
}

/// While it lives, the process ends with an error if its test takes too long: the last resort for
/// calls that have no bound of their own.
pub struct Watch(u64);

/// A test that runs: its number, its name, when it has to be over.
type Watched = (u64, String, Instant);

/// How many there were, and those that run.
static WATCHED: Mutex<(u64, Vec<Watched>)> = Mutex::new((0, Vec::new()));

impl Watch {
    /// Watches over this thread's test.
    pub fn begin() -> Watch {
        static LOOKS: Once = Once::new();
        LOOKS.call_once(|| {
            std::thread::spawn(look);
        });
        let name = std::thread::current().name().unwrap_or("a thread without a name").to_owned();
        let mut watched = WATCHED.lock().unwrap_or_else(PoisonError::into_inner);
        watched.0 += 1;
        let id = watched.0;
        watched.1.push((id, name, Instant::now() + LAST));
        Watch(id)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut watched = WATCHED.lock().unwrap_or_else(PoisonError::into_inner);
        watched.1.retain(|(id, ..)| *id != self.0);
    }
}

fn look() {
    loop {
        // This thread waits for time, not for an event: a test that hangs reports nothing.
        std::thread::sleep(Duration::from_secs(1));
        let watched = WATCHED.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if let Some((_, name, _)) = watched.1.iter().find(|(_, _, end)| *end < now) {
            eprintln!("{name} hangs in a call: no end within {LAST:?}");
            std::process::abort();
        }
    }
}
