//! The loops of a server, as other threads reach them, and what they count together.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use windlass_serve::Id;

/// Reaches the loops of a server, from any thread. Clones reach the same server.
///
/// ```
/// use windlass_web::App;
///
/// let running = App::new().get("/", |_, _| "hello").listen("127.0.0.1:0")?.start()?;
/// let remote = running.remote();
/// assert_eq!((remote.loops(), remote.counters().unanswered), (1, 0));
/// std::thread::spawn(move || remote.shutdown());
/// running.wait()?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct Remote(Arc<Shared>);

#[derive(Default)]
struct Shared {
    /// Known once the server serves.
    loops: OnceLock<windlass_serve::Remote>,
    unanswered: AtomicU64,
    late: AtomicU64,
}

/// What the loops of a server have counted together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Requests whose [`Later`](crate::answers::Later) was dropped without an answer: their clients
    /// got a 500.
    pub unanswered: u64,
    /// Answers that came when their request was over, because its client had gone, or had got a
    /// 504.
    pub late: u64,
}

impl Remote {
    /// The number of loops; 0 before the server serves.
    pub fn loops(&self) -> usize {
        self.0.loops.get().map_or(0, windlass_serve::Remote::loops)
    }

    /// Shuts the server down: see [`App::run`](crate::App::run). This call does not wait.
    pub fn shutdown(&self) {
        if let Some(loops) = self.0.loops.get() {
            loops.shutdown();
        }
    }

    /// What the loops have counted so far.
    pub fn counters(&self) -> Counters {
        let Shared { unanswered, late, .. } = &*self.0;
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Counters { unanswered: read(unanswered), late: read(late) }
    }

    /// The server serves, on these loops.
    pub(crate) fn serves(&self, loops: &windlass_serve::Remote) {
        self.0.loops.get_or_init(|| loops.clone());
    }

    /// Wakes a connection; false if it has ended.
    pub(crate) fn wake(&self, id: Id) -> bool {
        self.0.loops.get().is_some_and(|loops| loops.wake(id))
    }

    pub(crate) fn count_unanswered(&self) {
        self.0.unanswered.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_late(&self) {
        self.0.late.fetch_add(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote").field("loops", &self.loops()).finish()
    }
}
