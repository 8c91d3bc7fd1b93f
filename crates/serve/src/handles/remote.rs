//! The handle of other threads.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use windlass::{Buf, Handle, Message};

#[cfg(doc)]
use crate::Engine;
use crate::handles::threads::Threads;
use crate::inbox::{BOOKKEEPING, Command, Shared};
use crate::parts::heads::Reserved;
use crate::parts::transport::Accepted;
use crate::words::id::Id;
use crate::words::refused::{Refusal, Refused};

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

impl Remote {
    /// The loop of a connection. `thread` keeps it if it is a thread.
    fn of<'a>(&'a self, id: Id, thread: &'a mut Option<Arc<Shared>>) -> Option<&'a Shared> {
        self.at(id.loop_index(), thread)
    }

    /// The loop with an index. `thread` keeps it if it is a thread.
    fn at<'a>(
        &'a self,
        loop_index: usize,
        thread: &'a mut Option<Arc<Shared>>,
    ) -> Option<&'a Shared> {
        if let Some(shared) = self.loops.iter().find(|one| one.loop_index == loop_index) {
            return Some(shared);
        }
        *thread = self.threads.as_ref()?.of(loop_index);
        thread.as_deref()
    }

    /// Calls [`Handler::wake`](crate::Handler::wake), or makes an
    /// [`Event::Wake`](crate::Event::Wake), on the connection's loop. Several calls before that are
    /// one. False for a stale id.
    ///
    /// ```
    /// use std::sync::{Arc, Mutex};
    /// use windlass_serve::{Action, Conn, Handler, Id, Remote};
    ///
    /// /// Lines that other threads have for connections.
    /// type News = Arc<Mutex<Vec<(Id, String)>>>;
    ///
    /// struct Tells(News);
    /// impl Handler for Tells {
    ///     type State = ();
    ///     fn wake(&mut self, c: &mut Conn<'_, ()>) -> Action {
    ///         let own = c.id();
    ///         let mut news = self.0.lock().unwrap();
    ///         for (_, line) in news.extract_if(.., |(id, _)| *id == own) {
    ///             c.write(line);
    ///         }
    ///         Action::None
    ///     }
    /// }
    ///
    /// /// On any thread; false if the connection has ended.
    /// fn tell(news: &News, remote: &Remote, id: Id, line: String) -> bool {
    ///     news.lock().unwrap().push((id, line));
    ///     remote.wake(id)
    /// }
    /// ```
    pub fn wake(&self, id: Id) -> bool {
        let mut thread = None;
        let Some(shared) = self.of(id, &mut thread) else { return false };
        shared.post(Command::Wake(id)).is_ok()
    }

    /// Writes to a connection, as [`Engine::write`].
    ///
    /// # Errors
    ///
    /// [`Refused`] hands the buffer back, with:
    ///
    /// - [`Refusal::Stale`]: the connection has ended. If it ends, or closes, before its loop has
    ///   the write, the write is dropped, and [counted](crate::report::Counters::stale_writes).
    /// - [`Refusal::Cap`]: more than [`Limits::cap`](crate::Limits::cap) bytes would wait for it.
    /// - [`Refusal::Memory`]: the server has no memory for it. A connection above its
    ///   [share](crate::memory::Budget) finds none from three quarters of
    ///   [`Limits::memory`](crate::Limits::memory) on. Until its loop has the write, its entry in
    ///   the queue counts, too: less than 100 bytes.
    pub fn write(&self, id: Id, data: impl Into<Buf>) -> Result<(), Refused<Buf>> {
        let data = data.into();
        let refused = |data, reason| Err(Refused { value: data, reason });
        let mut thread = None;
        let Some(shared) = self.of(id, &mut thread) else { return refused(data, Refusal::Stale) };
        let Ok(bytes) = u32::try_from(data.len()) else { return refused(data, Refusal::Cap) };
        if let Err(reason) = shared.heads.charge(id, bytes, shared.cap) {
            return refused(data, reason);
        }
        let held = shared.heads.charged(id).saturating_sub(bytes as usize);
        if !shared.budget.try_charge(bytes + BOOKKEEPING, held) {
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

    /// Keeps room for `bytes` bytes of output, which count for a connection as those of a
    /// [`write`](Remote::write) that its loop has not taken, until the [`Reserved`] is dropped. So
    /// a thread can [post](Remote::post) what the loop itself is to write: the loop
    /// [uses](Engine::use_room) it, and writes.
    ///
    /// ```
    /// use windlass::Message;
    /// use windlass_serve::{Action, Context, Handler, Id, Refusal, Remote, Reserved};
    ///
    /// struct Line {
    ///     to: Id,
    ///     text: String,
    ///     room: Reserved,
    /// }
    ///
    /// /// On any thread.
    /// fn say(remote: &Remote, to: Id, text: String) -> Result<(), Refusal> {
    ///     let room = remote.reserve(to, text.len() + 8)?;
    ///     let line = Line { to, text, room };
    ///     remote.post(to.loop_index(), line).map_err(|refused| refused.reason)
    /// }
    ///
    /// /// Numbers its lines, wherever they come from.
    /// struct Numbers(u32);
    /// impl Handler for Numbers {
    ///     type State = ();
    ///     fn message(&mut self, server: &mut Context<'_, ()>, message: Message) -> Action {
    ///         let Ok(Line { to, text, room }) = message.downcast() else { return Action::None };
    ///         server.engine().use_room(Some(room));
    ///         if let Some(mut c) = server.conn(to) {
    ///             self.0 += 1;
    ///             c.write(format!("{:06}: {text}", self.0));
    ///         }
    ///         server.engine().use_room(None);
    ///         Action::None
    ///     }
    /// }
    /// ```
    ///
    /// # Errors
    /// As for [`write`](Remote::write).
    pub fn reserve(&self, id: Id, bytes: usize) -> Result<Reserved, Refusal> {
        let mut thread = None;
        let shared = self.of(id, &mut thread).ok_or(Refusal::Stale)?;
        let bytes = u32::try_from(bytes).map_err(|_| Refusal::Cap)?;
        shared.heads.charge(id, bytes, shared.cap)?;
        let held = shared.heads.charged(id).saturating_sub(bytes as usize);
        if !shared.budget.try_charge(bytes, held) {
            shared.heads.discharge(id, bytes);
            return Err(Refusal::Memory);
        }
        Ok(Reserved::new(&shared.heads, &shared.budget, id, bytes))
    }

    /// How many bytes of output wait for a connection, as [`Limits::cap`](crate::Limits::cap)
    /// counts them; `None` for a stale id. So a thread that feeds many connections can leave out
    /// those that do not keep up.
    ///
    /// These bytes wait: what other threads have written and the loop has not taken yet, and what
    /// the kernel had not taken when the loop last looked. For a session 128 bytes more count for
    /// each datagram. Files do not count, nor does what the loop itself has written since its last
    /// flush. Nor does what waits for the connection to open, or for the handshake of an
    /// `Engine::upgrade`: only [`Limits::memory`](crate::Limits::memory) bounds that for other
    /// threads.
    ///
    /// The number may be too high, because the kernel may have taken bytes since the loop last
    /// looked. The loop looks when it sends, when the last byte is sent, and every sixteenth of the
    /// shortest of [`Limits::idle`](crate::Limits::idle),
    /// [`write_stall`](crate::Limits::write_stall), [`close`](crate::Limits::close) and the idle
    /// times that the program sets: 625 ms by default, 100 ms at least.
    ///
    /// ```
    /// use windlass_serve::{Id, Remote};
    /// /// Pictures for those that have taken the last ones.
    /// fn show(remote: &Remote, viewers: &[Id], picture: &std::sync::Arc<[u8]>) {
    ///     for &id in viewers {
    ///         if remote.waiting(id).is_some_and(|bytes| bytes < 64 << 10) {
    ///             let _ = remote.write(id, picture.clone());
    ///         }
    ///     }
    /// }
    /// ```
    pub fn waiting(&self, id: Id) -> Option<usize> {
        let mut thread = None;
        self.of(id, &mut thread)?.heads.charged_to(id)
    }

    /// Sends a message to a loop, for [`Handler::message`](crate::Handler::message) or
    /// [`Event::Message`](crate::Event::Message) there. `loop_index` is 0 to
    /// [`loops`](Remote::loops) - 1, or the [index](Id::loop_index) of a connection's loop or
    /// thread. So one entry in the queue of a loop is enough to reach many of its connections.
    ///
    /// A message is told in its place among the calls of its thread: behind the writes, closes and
    /// messages before it, and in front of those after it. (The callback of a [wake](Remote::wake)
    /// comes later, after the flush.) Each message that is taken is told, in a shutdown, too: what
    /// is in the queue at the end is told last, and may find no connection. Only an engine, or a
    /// [`ServerLoop`](crate::ServerLoop), that is dropped before drops its messages.
    ///
    /// ```
    /// use windlass::Message;
    /// use windlass_serve::{Action, Context, Handler, Id, Remote};
    /// # type News = std::sync::Arc<[u8]>;
    ///
    /// struct Feed {
    ///     subscribers: Vec<Id>, // those of this loop
    /// }
    /// impl Handler for Feed {
    ///     type State = ();
    ///     fn message(&mut self, server: &mut Context<'_, ()>, message: Message) -> Action {
    ///         let Ok(news) = message.downcast::<News>() else { return Action::None };
    ///         self.subscribers.retain(|&id| match server.conn(id) {
    ///             Some(mut c) => c.write(news.clone()),
    ///             None => false, // it has ended
    ///         });
    ///         Action::None
    ///     }
    /// }
    ///
    /// /// On any thread; false if a loop has no room for it.
    /// fn publish(remote: &Remote, news: &News) -> bool {
    ///     (0..remote.loops()).all(|index| remote.post(index, news.clone()).is_ok())
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Refused`] hands the message back, with:
    ///
    /// - [`Refusal::Stale`]: the loop is over, or there is none with this index.
    /// - [`Refusal::Memory`]: more than three quarters of
    ///   [`Limits::memory`](crate::Limits::memory) would be in use. Until its loop has the message,
    ///   the size of a `T` counts, and less than 100 bytes for its entry in the queue. What the
    ///   value refers to does not count.
    pub fn post<T: Any + Send>(&self, loop_index: usize, message: T) -> Result<(), Refused<T>> {
        let refused = |value, reason| Err(Refused { value, reason });
        let mut thread = None;
        let Some(shared) = self.at(loop_index, &mut thread) else {
            return refused(message, Refusal::Stale);
        };
        let charged = u32::try_from(size_of::<T>()).unwrap_or(u32::MAX).saturating_add(BOOKKEEPING);
        if !shared.budget.try_charge(charged, usize::MAX) {
            return refused(message, Refusal::Memory);
        }
        let message = Message::new(Some(Box::new(message)));
        let Err(command) = shared.post(Command::Message(message, charged)) else { return Ok(()) };
        shared.budget.change(charged, 0);
        let Command::Message(message, _) = command else { unreachable!("it comes back") };
        let Ok(message) = message.downcast() else { unreachable!("the same value") };
        refused(message, Refusal::Stale)
    }

    /// Closes a connection after its output is sent, as [`Engine::close`]. False for a stale id.
    ///
    /// ```
    /// use windlass_serve::{Id, Remote};
    /// /// The account was locked: all of its connections end, behind their last line.
    /// fn lock_out(remote: &Remote, connections: &[Id]) {
    ///     for &id in connections {
    ///         let _ = remote.write(id, "locked\n"); // refused if it has ended, or does not read
    ///         remote.close(id);
    ///     }
    /// }
    /// ```
    pub fn close(&self, id: Id) -> bool {
        let mut thread = None;
        let Some(shared) = self.of(id, &mut thread) else { return false };
        shared.post(Command::Close(id)).is_ok()
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

    /// Adds a listener, or a bound datagram socket, to a running server: to its first loop, which
    /// shares the connections out as the [balance](crate::Server::balance) says.
    /// [`Handler::listener_added`](crate::Handler::listener_added) or
    /// [`Event::ListenerAdded`](crate::Event::ListenerAdded) tells its number.
    ///
    /// ```
    /// use std::net::TcpListener;
    /// use std::sync::mpsc::{Sender, channel};
    /// use windlass_serve::{Action, Context, Handler, Server};
    ///
    /// struct Quiet(Sender<std::io::Result<usize>>);
    /// impl Handler for Quiet {
    ///     type State = ();
    ///     fn listener_added(
    ///         &mut self,
    ///         _: &mut Context<'_, ()>,
    ///         added: std::io::Result<usize>,
    ///     ) -> Action {
    ///         let _ = self.0.send(added);
    ///         Action::None
    ///     }
    /// }
    ///
    /// let (tell, told) = channel();
    /// let server = Server::new(move |_loop| Quiet(tell.clone())).listen("tcp://127.0.0.1:0")?;
    /// let running = server.start()?;
    /// let remote = running.remote();
    /// let more = TcpListener::bind("127.0.0.1:0")?;
    /// remote.add_listener(more).map_err(|_| "it shuts down")?;
    /// let number = told.recv()??;
    /// remote.close_listener(number);
    /// running.shutdown();
    /// running.wait()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The handle comes back if the server shuts down.
    pub fn add_listener(&self, listener: impl Into<Handle>) -> Result<(), Handle> {
        match self.loops[0].post(Command::AddListener(listener.into())) {
            Err(Command::AddListener(handle)) => Err(handle),
            _ => Ok(()),
        }
    }

    /// Closes a listener of a running server, by its number: see
    /// [`Engine::close_listener`]. Connections that it has accepted stay open. If every loop has a
    /// listener with this number, all of them close.
    pub fn close_listener(&self, listener: usize) {
        for shared in &*self.loops {
            let _ = shared.post(Command::CloseListener(listener));
        }
    }

    /// Changes how many threads the server's [`IoMode`](crate::modes::IoMode) has: from 0 up to the
    /// number in the mode, which also replaces larger values. False if the mode has no threads.
    ///
    /// If more connections than `threads` have a thread now, the surplus ones move to a loop, the
    /// last threads first. But only connections that [`Conn::let_move`](crate::Conn::let_move)
    /// permits to move do so. The others keep their threads until they end. A loop serves new
    /// connections for which there is no thread in [`IoMode::Mixed`](crate::modes::IoMode::Mixed).
    /// In [`IoMode::Blocking`](crate::modes::IoMode::Blocking) the server refuses them.
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

    /// The indices of the loops, and of the threads that serve a connection or have served one: a
    /// [`post`](Remote::post) to a thread that has ended is [`Refusal::Stale`].
    pub fn indices(&self) -> std::ops::Range<usize> {
        0..self.threads.as_ref().map_or(self.loops.len(), |threads| threads.end())
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

impl Remote {
    /// Gives this server a connection for which another one has no room: to a thread, or to the
    /// loop with the fewest connections. It comes back if there is no room here, either.
    pub(crate) fn pass_to(&self, mut accepted: Accepted) -> Result<(), Accepted> {
        accepted.is_passed_on = true;
        if let Some(threads) = &self.threads {
            match threads.give(accepted) {
                Ok(()) => return Ok(()),
                Err(given) if threads.is_mixed() => accepted = given,
                Err(given) => return Err(given),
            }
        }
        let load = |shared: &usize| self.loops[*shared].load.load(Ordering::Relaxed);
        let Some(chosen) = (0..self.loops.len()).min_by_key(load) else { return Err(accepted) };
        let shared = &self.loops[chosen];
        shared.load.fetch_add(1, Ordering::Relaxed);
        match shared.post(Command::Adopt(accepted)) {
            Err(Command::Adopt(accepted)) => {
                shared.load.fetch_sub(1, Ordering::Relaxed);
                Err(accepted)
            }
            _ => Ok(()),
        }
    }
}
