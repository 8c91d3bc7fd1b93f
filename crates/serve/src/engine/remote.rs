//! Requests of other threads: wakes, writes and closes.

use std::any::TypeId;
use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use windlass::driver::{Driver, discard};
use windlass::{Buf, Handle, Submitter, Watcher};

use super::conn::*;
use super::dial::Asked;
use super::events::Pending;
use super::jobs::Outcome;
use super::stream::Ask;
use super::{Budget, Cause, Engine, Given, Moved, Origin, Threads};
use crate::log::RefusedBecause;

/// Reaches the connections of a server, or of one engine, from any thread.
///
/// Each call takes effect in the next turn of the connection's loop. A loop keeps the order of the
/// calls of a thread. A write is charged to its connection and to the server's memory before it is
/// queued.
///
/// ```
/// use windlass_serve::{Id, Remote};
/// fn tell_all(remote: &Remote, members: &mut Vec<Id>, news: &std::sync::Arc<[u8]>) {
///     // One copy of the bytes for all of them. Those that have left are forgotten.
///     members.retain(|id| remote.write(*id, news.clone()).is_ok());
/// }
/// ```
#[derive(Clone)]
pub struct Remote {
    pub(crate) loops: Arc<[Arc<Shared>]>,
    /// The threads that serve one connection each.
    pub(crate) threads: Option<Arc<Threads>>,
}

/// A loop, as other threads see it.
pub(crate) struct Shared {
    heads: Heads,
    pub(crate) budget: Budget,
    cap: u32,
    loop_index: usize,
    /// The type of its states, once there is a `Remote`.
    pub(crate) state_type: OnceLock<TypeId>,
    inbox: Mutex<Inbox>,
    /// Whether the loop was woken and has not looked into its inbox since.
    posted: AtomicBool,
    submitter: Submitter,
    token: u64,
    /// Connections that the loop has, or is about to get.
    pub(crate) load: AtomicUsize,
}

#[derive(Default)]
struct Inbox {
    commands: Vec<Command>,
    /// Connections with a wake, and with a close, in `commands`, by number.
    waking: HashSet<u64>,
    closing: HashSet<u64>,
    /// The server shuts down: it takes no new connections.
    stops: bool,
    /// Whether a stop is in `commands`.
    stopping: bool,
    /// The loop is over: nothing looks into the inbox any more.
    closed: bool,
}

pub(crate) enum Command {
    Wake(Id),
    Write(Id, Buf),
    Close(Id),
    /// A connection that another loop has accepted, and the number of its listener.
    Adopt(Handle, usize),
    /// A connection for which another server had no room, and the number of its listener.
    PassedOn(Handle, usize),
    /// A connection for which there is no thread.
    TurnAway(Handle),
    /// A connection that a thread hands over.
    Take(Box<Moved>),
    /// There are too many threads: a connection that may move does.
    Move,
    Stream(Id, Ask),
    Stop,
    /// A connection that the program asks for, and one that it no longer wants.
    Dial(Box<Asked>),
    CancelDial(Arc<OnceLock<Id>>),
    /// A job in the program's executor has ended, by its place.
    Answer(u32, Box<Outcome>),
}

/// The size of a write's entry in the queue, besides its bytes.
pub(super) const BOOKKEEPING: u32 = size_of::<Command>() as u32;

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Whether the loop has not looked into its inbox since the last command.
    #[cfg(test)]
    pub(crate) fn is_posted(&self) -> bool {
        self.posted.load(Ordering::Relaxed)
    }

    /// Gives back what a write was charged when it was queued.
    fn discharge(&self, id: Id, bytes: u32) {
        self.heads.discharge(id, bytes);
        self.budget.change(bytes + BOOKKEEPING, 0);
    }

    /// Gives the loop a connection to serve, or to turn away. If the loop is over, it closes.
    pub(crate) fn take_over(&self, (handle, listener): Given, serves: bool) {
        self.load.fetch_add(1, Ordering::Relaxed);
        let command = match serves {
            true => Command::Adopt(handle, listener),
            false => Command::TurnAway(handle),
        };
        if self.post(command).is_err() {
            self.load.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Queues a command; it comes back if the loop is over.
    pub(crate) fn post(&self, command: Command) -> Result<(), Command> {
        let mut inbox = self.lock();
        if inbox.closed || inbox.stops && matches!(command, Command::Dial(_)) {
            return Err(command);
        }
        inbox.stops |= matches!(command, Command::Stop);
        if let Command::Wake(id) = &command
            && !inbox.waking.insert(id.number())
        {
            return Ok(());
        }
        // One wake or close per connection is enough: so the queue stays bounded.
        if let Command::Close(id) = &command
            && !inbox.closing.insert(id.number())
        {
            return Ok(());
        }
        // Every loop and thread that shuts down tells all loops.
        if let Command::Stop = &command
            && std::mem::replace(&mut inbox.stopping, true)
        {
            return Ok(());
        }
        inbox.commands.push(command);
        drop(inbox);
        if !self.posted.swap(true, Ordering::AcqRel) {
            // The post is refused if the watcher is closed or its queue is full. A loop with a full
            // queue is awake, and looks into its inbox in each turn.
            let _ = self.submitter.wake(self.token);
        }
        Ok(())
    }
}

impl Remote {
    /// The loop of a connection. `thread` keeps it if it is a thread.
    fn of<'a>(&'a self, id: Id, thread: &'a mut Option<Arc<Shared>>) -> Option<&'a Shared> {
        if let Some(shared) = self.loops.iter().find(|one| one.loop_index == id.loop_index()) {
            return Some(shared);
        }
        *thread = self.threads.as_ref()?.of(id.loop_index());
        thread.as_deref()
    }

    /// Calls [`Handler::wake`](crate::Handler::wake), or makes an
    /// [`Event::Wake`](crate::Event::Wake), on the connection's loop. Several calls before that are
    /// one. False for a stale id.
    pub fn wake(&self, id: Id) -> bool {
        let mut thread = None;
        let Some(shared) = self.of(id, &mut thread) else { return false };
        shared.heads.contains(id) && shared.post(Command::Wake(id)).is_ok()
    }

    /// Writes to a connection, as [`Engine::write`].
    ///
    /// # Errors
    ///
    /// [`Refused`] hands the buffer back, with:
    ///
    /// - [`Refusal::Stale`]: the connection has ended. If it ends, or closes, before its loop has
    ///   the write, the write is dropped, and [counted](crate::Counts::stale_writes).
    /// - [`Refusal::Cap`]: more than [`Limits::cap`](crate::Limits::cap) bytes would wait for it.
    /// - [`Refusal::Memory`]: more than [`Limits::memory`](crate::Limits::memory) bytes would wait
    ///   in the whole server. Until its loop has the write, its entry in the queue counts, too:
    ///   less than 100 bytes.
    pub fn write(&self, id: Id, data: impl Into<Buf>) -> Result<(), Refused> {
        let data = data.into();
        let refused = |data, reason| Err(Refused { data, reason });
        let mut thread = None;
        let Some(shared) = self.of(id, &mut thread) else { return refused(data, Refusal::Stale) };
        let Ok(bytes) = u32::try_from(data.len()) else { return refused(data, Refusal::Cap) };
        if let Err(reason) = shared.heads.charge(id, bytes, shared.cap) {
            return refused(data, reason);
        }
        if !shared.budget.try_charge(bytes + BOOKKEEPING) {
            shared.heads.discharge(id, bytes);
            return refused(data, Refusal::Memory);
        }
        match shared.post(Command::Write(id, data)) {
            Ok(()) => Ok(()),
            Err(command) => {
                shared.discharge(id, bytes);
                let Command::Write(_, data) = command else { unreachable!("it comes back") };
                refused(data, Refusal::Stale)
            }
        }
    }

    /// Closes a connection when its output is out, as [`Engine::close`]. False for a stale id.
    pub fn close(&self, id: Id) -> bool {
        let mut thread = None;
        let Some(shared) = self.of(id, &mut thread) else { return false };
        shared.heads.contains(id) && shared.post(Command::Close(id)).is_ok()
    }

    /// Shuts the whole server down, as [`Action::Shutdown`](crate::Action::Shutdown) does. An
    /// engine without a server closes its connections, and then goes on: its listeners are the
    /// program's. Until the turn in which it closes them, it refuses [`connect`](Remote::connect)
    /// and [`attach`](Remote::attach).
    pub fn shutdown(&self) {
        for shared in &*self.loops {
            let _ = shared.post(Command::Stop);
        }
        if let Some(threads) = &self.threads {
            threads.stop();
        }
    }

    /// Changes how many threads the server's [`IoMode`](crate::IoMode) has: from 0 up to the number
    /// in the mode, which also replaces larger values. False if the mode has no threads.
    ///
    /// If more connections than `threads` have a thread now, the surplus ones move to a loop, the
    /// last threads first. But only connections that [`Conn::let_move`](crate::Conn::let_move)
    /// permits to move do so. The others keep their threads until they end. A loop serves new
    /// connections for which there is no thread in [`IoMode::Mixed`](crate::IoMode::Mixed). In
    /// [`IoMode::Blocking`](crate::IoMode::Blocking) the server refuses them.
    ///
    /// ```
    /// use windlass_serve::Remote;
    /// /// With little memory left, half of the threads have to do.
    /// fn shrink(server: &Remote, threads: usize) {
    ///     assert!(server.set_threads(threads / 2), "the mode has threads");
    /// }
    /// ```
    pub fn set_threads(&self, threads: usize) -> bool {
        let Some(all) = &self.threads else { return false };
        all.set_cap(threads);
        true
    }

    /// The number of loops of the server; 1 for an engine.
    pub fn loops(&self) -> usize {
        self.loops.len()
    }

    /// The remote of several loops.
    pub(crate) fn of_loops(loops: impl IntoIterator<Item = Remote>) -> Remote {
        let loops = loops.into_iter().flat_map(|remote| remote.loops.to_vec()).collect();
        Remote { loops, threads: None }
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote").field("loops", &self.loops.len()).finish()
    }
}

impl<S> Engine<S> {
    /// Returns the [`Remote`] by which other threads reach the connections of this engine.
    pub fn remote<D: Driver>(&mut self, watcher: &mut Watcher<D>) -> Remote
    where
        S: 'static,
    {
        let shared = self.share(watcher);
        shared.state_type.get_or_init(TypeId::of::<S>);
        self.unpack = Some(super::dial::unpack);
        Remote { loops: [shared].into(), threads: None }
    }

    /// The part of this engine that other threads see.
    pub(crate) fn share<D: Driver>(&mut self, watcher: &mut Watcher<D>) -> Arc<Shared> {
        let token = self.token(super::WAKE);
        let shared = self.shared.get_or_insert_with(|| {
            Arc::new(Shared {
                heads: self.table.heads(),
                budget: self.budget.clone(),
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
        if let Some(shared) = &self.shared
            && shared.posted.load(Ordering::Relaxed)
        {
            self.empty_inbox();
        }
    }

    #[inline(never)]
    fn empty_inbox(&mut self) {
        let Some(shared) = self.shared.clone() else { return };
        // Cleared before the look: a command that is posted later wakes the loop again.
        shared.posted.store(false, Ordering::SeqCst);
        let mut inbox = shared.lock();
        inbox.waking.clear();
        inbox.closing.clear();
        inbox.stopping = false;
        // An engine without a server goes on.
        inbox.stops &= self.has_server;
        let mut commands = std::mem::take(&mut inbox.commands);
        drop(inbox);
        for command in commands.drain(..) {
            match command {
                Command::Wake(id) => _ = self.wake(id),
                Command::Close(id) => _ = self.close(id),
                Command::Stream(id, ask) => self.stream_asks(id, ask),
                Command::Write(id, data) => self.write_charged(&shared, id, data),
                Command::Adopt(handle, listener) => {
                    self.pending.push_back(Pending::Adopt(handle, listener));
                }
                Command::PassedOn(handle, listener) => {
                    self.pending.push_back(Pending::PassedOn(handle, listener));
                }
                Command::TurnAway(handle) => self.pending.push_back(Pending::TurnAway(handle)),
                Command::Take(moved) => self.pending.push_back(Pending::Take(moved)),
                Command::Move => self.begin_moves(),
                Command::Dial(asked) => self.take_dial(*asked),
                Command::CancelDial(id) => self.cancel_dial(id.get().copied()),
                Command::Answer(slot, outcome) => self.pending_answer(slot, *outcome),
                Command::Stop => {
                    self.stop_asked = true;
                    let ids: Vec<Id> = self.ids().collect();
                    for id in ids {
                        self.close_as(id, Cause::Shutdown);
                    }
                }
            }
        }
        let mut inbox = shared.lock();
        if inbox.commands.is_empty() {
            // The empty list keeps its memory for the next commands.
            inbox.commands = commands;
        }
    }

    /// A write of another thread, which had to pass the limits before it was queued.
    fn write_charged(&mut self, shared: &Shared, id: Id, data: Buf) {
        let bytes = data.len() as u32;
        // From here on the loop's own charge counts.
        shared.discharge(id, bytes);
        let stays = OVER | SHUT | SHUTTING | DETACH;
        let takes = |place: &Place<S>| place.flags & stays == 0 || self.takes_answers(id.index());
        if !self.table.get(id).is_some_and(takes) {
            self.counts.stale_writes += 1;
        } else if self.session_at(id.index()).is_some() {
            self.queue_remote_datagram(id.index(), data);
        } else if bytes > 0 {
            self.cork(id.index(), data);
        }
    }

    /// Closes the inbox of a loop that has ended: drops its commands, and refuses further ones.
    pub(crate) fn close_inbox(&mut self) {
        let Some(shared) = self.shared.clone() else { return };
        let mut inbox = shared.lock();
        inbox.closed = true;
        let commands = std::mem::take(&mut inbox.commands);
        drop(inbox);
        for command in commands {
            match command {
                Command::Write(id, data) => {
                    shared.discharge(id, data.len() as u32);
                    self.counts.stale_writes += 1;
                }
                Command::TurnAway(handle) => {
                    let origin = Origin { listener: None, peer: handle.peer() };
                    self.did_not_open(origin, RefusedBecause::Threads);
                }
                Command::Adopt(handle, listener) | Command::PassedOn(handle, listener) => {
                    let origin = Origin { listener: Some(listener), peer: handle.peer() };
                    self.did_not_open(origin, RefusedBecause::Shutdown);
                }
                Command::Take(moved) => self.arrivals.push_back(moved),
                Command::Dial(asked) => self.drop_dial(*asked),
                Command::Answer(_, outcome) => discard(outcome),
                Command::Wake(_)
                | Command::Close(_)
                | Command::Stream(..)
                | Command::Move
                | Command::CancelDial(_)
                | Command::Stop => {}
            }
        }
    }
}

impl<S> Drop for Engine<S> {
    fn drop(&mut self) {
        self.close_inbox();
        self.budget.leave(self.token(super::WAKE));
        // Gives back the charges of its connections, which end with the engine.
        for active in &self.table.active {
            self.budget.change(active.charged, 0);
            if let Some(stream) = &active.stream {
                stream.end(Cause::Shutdown);
            }
        }
        self.budget.change((self.datagrams.charged() + self.sessions.charged()) as u32, 0);
    }
}

#[cfg(test)]
mod tests {
    use windlass::net::ConnectOptions;
    use windlass::sim::Sim;

    use super::*;
    use crate::engine::{Config, Limits};

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
