//! Files among the output of connections.
//!
//! ```text
//!   written before ──▶ the file at the watcher ──▶ queued bytes, queued files ──▶ corked bytes
//!                      (Files::current)            (Files::queue)
//! ```
//!
//! What is written behind a file stays in the engine until the watcher has sent the whole file. So
//! no byte takes the place of what is missing if the file turns out to be shorter.

use std::fs::File;
use std::ops::{Bound, Range, RangeBounds};
use std::sync::Arc;

use windlass::driver::Driver;
use windlass::{Buf, Completion, ErrorKind, Op, Refusal as Reason, Source, SourceGuard, Watcher};

use crate::engine::Engine;
use crate::engine::events::Pending;
use crate::parts::files::{Current, Files, Piece, SentFile};
use crate::parts::table::CODED;
use crate::stage::Stage;
use crate::words::cause::Cause;
use crate::words::event::Event;
use crate::words::id::Id;
use crate::words::refused::{Refusal, Refused};

/// The most bytes of one operation: an operation takes fewer than 2 GiB.
const MOST_SENT: u64 = 1 << 30;

/// Beyond the last byte that an operation on a file can name.
const END_OF_FILES: u64 = (1 << 61) - 1;

impl<S> Engine<S> {
    /// Sends a part of a file, in its place among the writes of the connection: behind those before
    /// this call, and in front of those after it. `..` is the whole file, up to its present end.
    /// sendfile(2) sends it where the system has that call, so the bytes do not pass through the
    /// program's memory. The file's own position neither matters nor moves.
    ///
    /// The engine closes the file when the part is sent, or when the connection has ended. To send
    /// one file to several connections, [clone](File::try_clone) it. When the system has taken the
    /// whole part, [`Event::FileSent`] follows, before the last event of the connection, and a
    /// [`Handler`](crate::Handler) gets [`postwrite`](crate::Handler::postwrite).
    ///
    /// Everything that waits for output waits for files, too: a close, a half-close, a detach, a
    /// move to a loop, the shutdown of the server. Each part that is sent counts as progress, for
    /// [`Limits::write_stall`](crate::Limits::write_stall) and
    /// [`Limits::idle`](crate::Limits::idle), and [`Limits::close`](crate::Limits::close).
    /// The bytes of files do not count for [`Limits::cap`](crate::Limits::cap), the marks,
    /// [`Limits::memory`](crate::Limits::memory) and [`waiting`](Engine::waiting).
    /// [`Limits::files`](crate::Limits::files) bounds the number
    /// of files, and at this number the connection stops reading. If the connection ends before,
    /// `unsent` of [`Event::Closed`] counts the bytes of files, too.
    ///
    /// A connection with a [`Stream`](crate::Stream) can send files: they are among the writes that
    /// have come to the loop. A connection that connects sends them when it is open.
    ///
    /// The file must not become shorter before it is sent. If it does, the connection ends with
    /// [`Cause::FileEnded`], and its peer gets a reset: no write takes the place of the missing
    /// bytes. A connection also ends, with [`Cause::Os`], if the file cannot be read: `EBADF` means
    /// that it is not open for reading.
    ///
    /// With TLS the engine reads the file ([`Op::read_at`]), at most 64 KiB at once, and encrypts
    /// each piece when the socket has taken the one before the last. So a file has at most 192 KiB
    /// of memory, which counts for [`Limits::memory`](crate::Limits::memory).
    ///
    /// Opening a file can wait for the disk, so it belongs into a [job](Engine::execute). The read
    /// of bytes that the page cache lacks is done by a worker thread, where the system can tell:
    /// see [`Op::send_file`].
    ///
    /// # Errors
    ///
    /// [`Refused`] hands the file back, with:
    ///
    /// - [`Refusal::Stale`]: as for [`write`](Engine::write).
    /// - [`Refusal::Files`]: [`Limits::files`](crate::Limits::files) files wait already.
    /// - [`Refusal::File`]: it is no regular file, or the range is not within it.
    /// - [`Refusal::Tls`]: it goes over to TLS. It sends files when that is done.
    /// - [`Refusal::Unsupported`]: the connection is a session, or the watcher runs on a
    ///   simulation, which has no files of the system. (If the engine has not seen the watcher yet,
    ///   for example on a connection that connects, the connection ends with [`Cause::Rejected`]
    ///   instead.)
    pub fn send_file(
        &mut self,
        id: Id,
        file: File,
        range: impl RangeBounds<u64>,
    ) -> Result<(), Refused<File>> {
        match self.may_send_file(id, &file, &range) {
            Ok((begin, end)) => {
                self.queue_file(id.index(), SentFile::Own(file), begin, end);
                Ok(())
            }
            Err(reason) => Err(Refused { value: file, reason }),
        }
    }

    /// Sends a part of a file that is attached to the engine's watcher: as
    /// [`send_file`](Engine::send_file), for a file that many connections send. A file that
    /// [`submit`](Engine::submit) has opened is attached, and so is one of [`Watcher::guard`]. This
    /// call makes no system call. [`Op::send_file`] tells how the bytes are sent.
    ///
    /// The engine holds the file until the part is sent, or the connection has ended. The file is
    /// closed when the last [`Arc`] is dropped. It works in a simulation, with the files of its
    /// disk.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use windlass::fs::OpenOptions;
    /// use windlass::{Buf, Op, SourceGuard};
    /// use windlass_serve::ops::Completed;
    /// use windlass_serve::{Action, Conn, Context, Handler};
    ///
    /// /// Opens a file once, and sends its first line to each connection that asks.
    /// struct Line {
    ///     file: Option<Arc<SourceGuard>>,
    /// }
    ///
    /// impl Handler for Line {
    ///     type State = ();
    ///     fn serving(&mut self, s: &mut Context<'_, ()>, _: &[windlass::Address]) -> Action {
    ///         s.engine().submit(Op::open("Cargo.toml", OpenOptions::new().read(true)));
    ///         Action::None
    ///     }
    ///     fn completed(&mut self, _: &mut Context<'_, ()>, ended: Completed) -> Action {
    ///         self.file = ended.file.ok().flatten().map(Arc::new);
    ///         Action::None
    ///     }
    ///     fn data(&mut self, c: &mut Conn<'_, ()>, _: Buf) -> Action {
    ///         let Some(file) = &self.file else { return Action::Close };
    ///         match c.send_attached(file, 0..9) {
    ///             Ok(()) => Action::None,
    ///             Err(_) => Action::Close, // `Limits::files` files wait
    ///         }
    ///     }
    ///     // The file is sent.
    ///     fn postwrite(&mut self, _: &mut Conn<'_, ()>, _: usize, _: usize) -> Action {
    ///         Action::Shutdown
    ///     }
    /// }
    /// # let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    /// # let address = listener.local_addr()?;
    /// # let client = std::thread::spawn(move || {
    /// #     use std::io::{Read, Write};
    /// #     loop {
    /// #         let mut client = std::net::TcpStream::connect(address).unwrap();
    /// #         client.write_all(b"please").unwrap();
    /// #         let mut heard = String::new();
    /// #         client.read_to_string(&mut heard).unwrap();
    /// #         if !heard.is_empty() { // the file was open
    /// #             return heard;
    /// #         }
    /// #     }
    /// # });
    /// # windlass_serve::Server::new(|_| Line { file: None }).listener(listener).run()?;
    /// # assert_eq!(client.join().unwrap(), "[package]");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`send_file`](Engine::send_file), with these differences:
    ///
    /// - [`Refusal::File`]: the range ends before it begins, or beyond 2^61 - 1. The engine does
    ///   not ask for the length of the file. If the file is shorter, the connection ends with
    ///   [`Cause::FileEnded`], and its peer gets a reset.
    /// - [`Refusal::Elsewhere`]: the file is attached to another watcher. A connection that has
    ///   [moved](crate::Conn::move_to_loop) opens it again. (If the engine has not seen its watcher
    ///   yet, the connection ends with [`Cause::Rejected`] instead.)
    /// - [`Refusal::Unsupported`]: the connection is a session.
    ///
    /// If the source is no file, or was closed by other code, the connection ends with
    /// [`Cause::Rejected`].
    pub fn send_attached(
        &mut self,
        id: Id,
        file: &Arc<SourceGuard>,
        range: Range<u64>,
    ) -> Result<(), Refusal> {
        self.may_send_range(id)?;
        if range.start > range.end || range.end >= END_OF_FILES {
            return Err(Refusal::File);
        }
        if self.work.submitter.as_ref().is_some_and(|own| !file.is_of(own)) {
            return Err(Refusal::Elsewhere);
        }
        self.queue_file(id.index(), SentFile::Shared(Arc::clone(file)), range.start, range.end);
        Ok(())
    }

    /// Whether a file is attached to this watcher.
    pub(crate) fn is_of_watcher<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        file: &SourceGuard,
    ) -> bool {
        file.is_of(self.work.submitter.get_or_insert_with(|| watcher.submitter()))
    }

    /// The bounds of a part of a file, if the connection takes it.
    fn may_send_file(
        &mut self,
        id: Id,
        file: &File,
        range: &impl RangeBounds<u64>,
    ) -> Result<(u64, u64), Refusal> {
        self.may_send_range(id)?;
        if self.work.has_files == Some(false) {
            return Err(Refusal::Unsupported);
        }
        let metadata = file.metadata().map_err(|_| Refusal::File)?;
        if !metadata.is_file() {
            return Err(Refusal::File);
        }
        let begin = match range.start_bound() {
            Bound::Included(&begin) => Some(begin),
            Bound::Excluded(&before) => before.checked_add(1),
            Bound::Unbounded => Some(0),
        };
        let end = match range.end_bound() {
            Bound::Included(&last) => last.checked_add(1),
            Bound::Excluded(&end) => Some(end),
            Bound::Unbounded => Some(metadata.len()),
        };
        match (begin, end) {
            (Some(begin), Some(end)) if begin <= end && end <= metadata.len() => Ok((begin, end)),
            _ => Err(Refusal::File),
        }
    }

    /// Whether the connection takes a further part of a file.
    fn may_send_range(&mut self, id: Id) -> Result<(), Refusal> {
        if !self.table.lives(id) {
            return Err(Refusal::Stale);
        }
        let index = id.index();
        if self.table.session(id).is_some() {
            return Err(Refusal::Unsupported);
        }
        self.may_write(index, 0)?;
        // Its bytes would be among the plain ones.
        let is_plain = self.files_of(index).is_some_and(|files| !files.is_coded);
        let is_coded = self.table.place(index).flags & CODED != 0;
        if self.is_upgrading(index) || is_coded && is_plain {
            return Err(Refusal::Tls);
        }
        if self.files_of(index).is_some_and(|files| files.count >= self.config.limits.files) {
            return Err(Refusal::Files);
        }
        Ok(())
    }

    fn queue_file(&mut self, index: u32, file: SentFile, begin: u64, end: u64) {
        let is_coded = self.table.place(index).flags & CODED != 0;
        if is_coded {
            self.queue_text(index);
        }
        let active = self.activate(index);
        let corked = active.corked;
        let before = active.take_corked();
        let files = active.files_to_fill(is_coded);
        if corked > 0 {
            files.queue.push_back(Piece::Bytes(before));
            files.bytes += corked;
            files.memory += corked;
        }
        files.queue.push_back(Piece::File(file, begin, end));
        files.rest = files.rest.saturating_add(end - begin);
        files.count += 1;
        files.corked = 0;
        // The next write of this turn must know of the bytes.
        self.recharge(index);
        self.dirty(index);
    }

    /// How many files wait for a connection to send them; 0 for a stale id.
    pub fn waiting_files(&self, id: Id) -> usize {
        if !self.table.lives(id) {
            return 0;
        }
        self.files_of(id.index()).map_or(0, |files| files.count)
    }

    /// Finds out whether the watcher serves files of the system, at the first connection.
    #[cold]
    pub(crate) fn look_for_files<D: Driver>(&mut self, watcher: &mut Watcher<D>, socket: Source) {
        // A simulation has files of its own, and no descriptors.
        let is_simulated = matches!(watcher.fd(socket), Err(Reason::NoDescriptor));
        // Every watcher refuses a socket as the file; one without files says so.
        let op = Op::send_file(socket, socket, 0, 1);
        let refused = watcher.submit(op).map_err(|refused| refused.reason);
        self.work.has_files = Some(!is_simulated && refused != Err(Reason::NoFiles));
    }

    /// The files of a connection, if any wait.
    pub(crate) fn files_of(&self, index: u32) -> Option<&Files> {
        let active = self.table.active.get(self.table.place(index).active as usize)?;
        active.files.as_deref()
    }

    /// Whether a connection ends in a shutdown of the server: its time goes on even if its output
    /// makes progress.
    pub(crate) fn has_bounded_end(&self, index: u32) -> bool {
        self.entrance.refuses && self.table.place(index).stage >= Stage::Leaving
    }

    /// How many bytes of output wait for a connection, besides the corked ones.
    pub(crate) fn queued<D: Driver>(&mut self, watcher: &Watcher<D>, index: u32) -> usize {
        let queued = watcher.queued_bytes(self.table.place(index).source).unwrap_or(0);
        match self.table.active_of(index).and_then(|active| active.files.as_deref_mut()) {
            None => queued,
            Some(files) => files.look(queued),
        }
    }

    /// Whether more than `bytes` of buffers, or more than so many files, wait for a connection.
    /// `queued` is what [`queued`](Engine::queued) has returned.
    pub(crate) fn is_full_with(
        &mut self,
        index: u32,
        queued: usize,
        bytes: usize,
        count: usize,
    ) -> bool {
        let Some(active) = self.table.active_of(index) else { return queued > bytes };
        match active.files.as_deref() {
            None => queued > bytes,
            // What is corked waits for the files, too.
            Some(files) => files.memory + active.corked > bytes || files.count > count,
        }
    }

    /// How many bytes of buffers the next `send` submits.
    #[inline]
    pub(crate) fn sendable(&mut self, index: u32) -> usize {
        let corked = self.corked(index);
        match self.files_of(index) {
            _ if !self.may_send(index) => self.sendable_before(index),
            None => corked,
            Some(files) => files.sendable(corked),
        }
    }

    /// Submits the next file of a connection, and the bytes before it. True if no file waits any
    /// more: what is corked can go. False also if the connection has ended.
    #[cold]
    pub(crate) fn send_files<D: Driver>(&mut self, watcher: &mut Watcher<D>, index: u32) -> bool {
        // The progress since the last look must be noted now: the new bytes hide it.
        self.note_full(index);
        let queued = self.queued(watcher, index);
        self.note_progress(watcher, index, queued);
        let id = self.table.id(index);
        while self.send_piece(watcher, index) {}
        if !self.table.lives(id) || self.table.place(index).stage == Stage::Failing {
            return false;
        }
        self.drained(watcher, index);
        self.files_of(index).is_none()
    }

    /// Submits the next piece; false if there is none, or if it has to wait.
    fn send_piece<D: Driver>(&mut self, watcher: &mut Watcher<D>, index: u32) -> bool {
        let (source, token) = (self.table.place(index).source, self.token(index));
        let Some(active) = self.table.active_of(index) else { return false };
        let Some(files) = active.files.as_deref_mut() else { return false };
        if files.current.is_some() {
            return match files.is_coded {
                true => self.read_part(watcher, index),
                false => self.send_part(watcher, index),
            };
        }
        match files.queue.front() {
            None => {
                active.files = None;
                false
            }
            Some(Piece::Bytes(_)) if files.is_coded => self.send_text(watcher, index),
            Some(Piece::Bytes(_)) => {
                let Some(Piece::Bytes(data)) = files.queue.pop_front() else { return false };
                files.bytes -= data.len();
                if let Err(refused) = watcher.submit(Op::write(source, data).token(token).quiet()) {
                    active.unsent += refused.value.into_buf().len();
                    self.fail(watcher, index, Cause::Rejected);
                    return false;
                }
                self.counters.writes += 1;
                true
            }
            // A limit of the watcher for queued writes refuses none if nothing is queued. A wait
            // for the end of the output is in flight.
            Some(Piece::File(..)) if watcher.queued_bytes(source).unwrap_or(0) > 0 => false,
            // Nothing is to be sent, and no operation tells its end.
            Some(Piece::File(_, begin, end)) if begin == end => {
                files.queue.pop_front();
                files.count -= 1;
                self.told.pending.push_back(Pending::FileSent(self.table.id(index), 0));
                // What is behind it is announced to the program before it goes.
                self.dirty(index);
                false
            }
            Some(Piece::File(..)) => {
                let Some(Piece::File(file, begin, end)) = files.queue.pop_front() else {
                    return false;
                };
                let (file, shared) = match file {
                    SentFile::Own(file) => (watcher.attach(file).ok(), None),
                    SentFile::Shared(file) if self.is_of_watcher(watcher, &file) => {
                        (Some(file.source()), Some(file))
                    }
                    SentFile::Shared(_) => (None, None),
                };
                let Some(file) = file else {
                    self.fail(watcher, index, Cause::Rejected);
                    return false;
                };
                let (len, from, at) = (end - begin, begin, begin);
                let (in_flight, text) = (None, Buf::default());
                let current = Current { file, shared, len, end, from, at, in_flight, text };
                if let Some(files) = self.activate(index).files.as_deref_mut() {
                    files.current = Some(current);
                }
                true
            }
        }
    }

    /// Submits the next part of the file that is being sent; false if one is in flight.
    fn send_part<D: Driver>(&mut self, watcher: &mut Watcher<D>, index: u32) -> bool {
        let (source, token) = (self.table.place(index).source, self.token(index));
        let Some(active) = self.table.active_of(index) else { return false };
        let Some(files) = active.files.as_deref_mut() else { return false };
        let Some(current) = files.current.as_mut().filter(|current| current.in_flight.is_none())
        else {
            return false;
        };
        let len = (current.end - current.at).min(MOST_SENT);
        let op = Op::send_file(source, current.file, current.at, len as usize).token(token);
        let Ok(ticket) = watcher.submit(op) else {
            // Full tables, an ended source, or a simulation.
            self.fail(watcher, index, Cause::Rejected);
            return false;
        };
        files.rest = files.rest.saturating_sub(len);
        (current.from, current.at) = (current.at, current.at + len);
        current.in_flight = Some(ticket);
        false
    }

    /// A part of a file was sent, or could not be sent.
    #[cold]
    pub(crate) fn part_sent<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        index: u32,
        completion: &Completion,
    ) -> Option<Event<S>> {
        let id = self.table.id(index);
        self.dirty(index);
        let fails = self.table.place(index).stage == Stage::Failing;
        let active = self.table.active_of(index)?;
        let files = active.files.as_deref_mut()?;
        let current = files.current.as_mut()?;
        current.in_flight = None;
        let sent = current.from + completion.bytes() as u64;
        let (failed, is_whole) = (completion.error_kind(), sent == current.at);
        if failed.is_none() && is_whole && current.at < current.end && !fails {
            return None;
        }
        let (len, unsent) = (current.len, current.end - sent);
        files.rest = files.rest.saturating_sub(current.end - current.at);
        if let Some(sent) = files.current.take() {
            sent.end(watcher);
        }
        files.count -= 1;
        active.unsent = active.unsent.saturating_add(unsent as usize);
        if unsent == 0 {
            return Some(Event::FileSent { id, len });
        }
        match failed {
            _ if fails => {}
            // The failed write before it has made its completion first.
            Some(ErrorKind::Torn) => self.fail_later(index, Cause::Rejected),
            Some(kind) => {
                self.forget_request(index);
                self.write_failed(index, kind);
            }
            // It had become shorter.
            None => {
                self.forget_request(index);
                self.fail_later(index, Cause::FileEnded);
            }
        }
        None
    }

    /// Closes the files of a connection that ends, after its source was aborted.
    #[cold]
    pub(crate) fn drop_files<D: Driver>(&mut self, watcher: &mut Watcher<D>, index: u32) {
        let Some(active) = self.table.active_of(index) else { return };
        if let Some(files) = active.files.take()
            && let Some(current) = files.current
        {
            current.end(watcher);
        }
    }
}
