//! The loops of a server, as other threads reach them, and what they count together.

use std::any::Any;
#[cfg(feature = "websocket")]
use std::any::TypeId;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

#[cfg(feature = "websocket")]
use windlass_serve::Reserved;
use windlass_serve::{Id, Refusal, Refused};

use crate::words::report::{Report, Requests, Totals};

/// Reaches the loops of a server, from any thread. Clones reach the same server.
///
/// ```
/// use windlass_web::App;
///
/// let running = App::new().get("/", |_, _| "hello").listen("127.0.0.1:0")?.start()?;
/// let remote = running.remote();
/// assert_eq!((remote.loops(), remote.totals().unanswered), (1, 0));
/// std::thread::spawn(move || remote.shutdown());
/// running.wait()?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct Remote(Arc<Shared>);

#[derive(Default)]
struct Shared {
    /// The type of the states of an application.
    #[cfg(feature = "websocket")]
    state: OnceLock<TypeId>,
    /// Known once the server serves.
    loops: OnceLock<windlass_serve::Remote>,
    unanswered: AtomicU64,
    late: AtomicU64,
    lost_events: AtomicU64,
    slow_subscribers: AtomicU64,
    /// How many connections hear a topic, each topic counted.
    subscriptions: AtomicIsize,
    /// Whether a shutdown with a delay has begun.
    is_draining: AtomicBool,
    /// What the loops that have ended have counted.
    ended: Mutex<Requests>,
}

/// A message to a loop: a value for a connection.
pub(crate) struct ToldValue(pub(crate) Id, pub(crate) Box<dyn Any + Send>);

/// A message to a loop: the server will shut down.
pub(crate) struct WillShutDown;

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

    /// Begins a shutdown as SIGTERM does: after [`App::drain_delay`](crate::App::drain_delay). A
    /// second call ends the delay. This call does not wait.
    pub fn drain(&self) {
        let Some(loops) = self.0.loops.get() else { return };
        let is_second = self.0.is_draining.swap(true, Ordering::Relaxed);
        let mut all = 0..loops.loops();
        if is_second || all.any(|index| loops.post(index, WillShutDown).is_err()) {
            loops.shutdown();
        }
    }

    /// What all loops together have counted so far.
    pub fn totals(&self) -> Totals {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Totals {
            unanswered: read(&self.0.unanswered),
            late: read(&self.0.late),
            lost_events: read(&self.0.lost_events),
            slow_subscribers: read(&self.0.slow_subscribers),
            subscriptions: u64::try_from(self.0.subscriptions.load(Ordering::Relaxed)).unwrap_or(0),
        }
    }

    /// The server serves, on these loops.
    pub(crate) fn serves(&self, loops: &windlass_serve::Remote) {
        self.0.loops.get_or_init(|| loops.clone());
    }

    /// Calls [`Protocol::wake`](crate::upgrade::Protocol::wake) of a connection that has gone over
    /// to another protocol, or [`Peer::wake`](crate::websocket::Peer::wake) of a WebSocket; false
    /// if it has ended. Several calls before the callback make one. A
    /// thread that has something for the connection puts it where the callback finds it.
    ///
    /// ```
    /// use std::sync::mpsc::{Receiver, Sender};
    /// use windlass::Buf;
    /// use windlass_web::Remote;
    /// use windlass_web::serve::Id;
    /// use windlass_web::upgrade::{Protocol, RawConn};
    ///
    /// /// Sends what another thread has for it.
    /// struct News(Receiver<String>);
    /// impl Protocol<()> for News {
    ///     fn data(&mut self, _: &mut (), _: &mut RawConn<'_, ()>, _: Buf) {}
    ///     fn wake(&mut self, _: &mut (), c: &mut RawConn<'_, ()>) {
    ///         for text in self.0.try_iter() {
    ///             if c.write(text).is_err() {
    ///                 return c.abort(); // it does not read what it gets
    ///             }
    ///         }
    ///     }
    /// }
    ///
    /// /// On any thread: `id` is that of `RawConn::id`.
    /// fn tell(remote: &Remote, id: Id, to: &Sender<String>, text: String) -> bool {
    ///     to.send(text).is_ok() && remote.wake(id)
    /// }
    /// ```
    pub fn wake(&self, id: Id) -> bool {
        self.0.loops.get().is_some_and(|loops| loops.wake(id))
    }

    /// Gives a value to a connection that has gone over to another protocol:
    /// [`Protocol::told`](crate::upgrade::Protocol::told), or
    /// [`Peer::told`](crate::websocket::Peer::told) of a WebSocket. Values of one thread come in
    /// their order. False if the connection has ended, or if its loop has no memory for the value;
    /// a value is dropped if the connection ends before it.
    ///
    /// ```
    /// use windlass_web::Remote;
    /// use windlass_web::serve::Id;
    ///
    /// struct Move(u8, u8);
    ///
    /// /// On any thread.
    /// fn tell(remote: &Remote, player: Id, to: Move) -> bool {
    ///     remote.tell(player, to)
    /// }
    /// ```
    pub fn tell<T: Any + Send>(&self, id: Id, value: T) -> bool {
        self.try_tell(id, value).is_ok()
    }

    /// Gives a value to a connection as [`tell`](Remote::tell) does, or hands it back.
    pub(crate) fn try_tell<T: Any + Send>(&self, id: Id, value: T) -> Result<(), Refused<T>> {
        // What has no count of what waits for it has ended.
        let loops = self.0.loops.get().filter(|loops| loops.waiting(id).is_some());
        let Some(loops) = loops else { return Err(Refused { value, reason: Refusal::Stale }) };
        let posted = loops.post(id.loop_index(), ToldValue(id, Box::new(value)));
        posted.map_err(|Refused { value: ToldValue(_, value), reason }| {
            let value = value.downcast().unwrap_or_else(|_| unreachable!("it was put in here"));
            Refused { value: *value, reason }
        })
    }

    /// Keeps room for output of a connection: see [`windlass_serve::Remote::reserve`].
    #[cfg(feature = "websocket")]
    pub(crate) fn reserve(&self, id: Id, bytes: usize) -> Result<Reserved, Refusal> {
        self.0.loops.get().ok_or(Refusal::Stale)?.reserve(id, bytes)
    }

    /// A loop has ended, and had counted this.
    pub(crate) fn add_ended(&self, requests: &Requests) {
        self.0.ended.lock().unwrap_or_else(PoisonError::into_inner).add(requests);
    }

    /// The report of a server whose loops have ended.
    pub(crate) fn report(&self, server: windlass_serve::report::Report) -> Report {
        let ended = self.0.ended.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Report::new(server, ended, self.totals())
    }

    /// The loops have states of this type.
    #[cfg(feature = "websocket")]
    pub(crate) fn has_states_of(&self, state: TypeId) {
        self.0.state.get_or_init(|| state);
    }

    #[cfg(feature = "websocket")]
    pub(crate) fn has_state(&self, state: TypeId) -> bool {
        self.0.state.get() == Some(&state)
    }

    /// Sends a message to a loop; false if it has no memory for it, or is over.
    pub(crate) fn post<T: Any + Send>(&self, at: usize, message: T) -> bool {
        self.0.loops.get().is_some_and(|loops| loops.post(at, message).is_ok())
    }

    /// Sends a message to all loops but one, and to all threads that serve connections; false if a
    /// loop has no memory for it, or is over.
    pub(crate) fn post_all<T: Any + Send + Clone>(&self, but: Option<usize>, message: &T) -> bool {
        let Some(loops) = self.0.loops.get() else { return true };
        let mut is_taken = true;
        // Each one, also behind one that takes none.
        for at in loops.indices().filter(|at| Some(*at) != but) {
            let refused = loops.post(at, message.clone()).err().map(|refused| refused.reason);
            // A thread that has ended has no connection.
            let is_gone = at >= loops.loops() && refused == Some(Refusal::Stale);
            is_taken &= refused.is_none() || is_gone;
        }
        is_taken
    }

    /// Whether any connection hears a topic.
    pub(crate) fn has_subscribers(&self) -> bool {
        self.0.subscriptions.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn count_subscriptions(&self, change: isize) {
        self.0.subscriptions.fetch_add(change, Ordering::Relaxed);
    }

    pub(crate) fn count_lost_event(&self) {
        self.0.lost_events.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_slow_subscriber(&self) {
        self.0.slow_subscribers.fetch_add(1, Ordering::Relaxed);
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
