//! A driver that makes a span of the crate `tracing` for each operation.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use ::tracing::field::{Empty, debug};
use ::tracing::level_filters::{LevelFilter, STATIC_MAX_LEVEL};
use ::tracing::{Level, Span, span};
use windlass::driver::swap::Pool;
use windlass::driver::{Clock, Deadline, Driver, Explain, OpCode, Wait};
use windlass::fd::BorrowedFd;
use windlass::net::{ConnectOptions, DatagramOptions, ListenOptions, SocketOption};
use windlass::{
    Address, AlignedBuf, Complete, Completion, Completions, Counters, Handle, Op,
    Refusal as Reason, Refused as Rejected, Source, SourceKind, Submit, Submitter, Ticket, Watcher,
};

/// A driver around another one, which makes a span of the crate [`tracing`] for each
/// operation.
///
/// The span has the name `operation`, the level `TRACE` and the target `windlass_serve`. It begins
/// when the operation is accepted, as a child of the span that the thread is in. It ends when the
/// final completion is delivered. Each accepted operation has exactly one span, also one that is
/// cancelled or aborted; a refused operation has none. The fields:
///
/// | field | when | value |
/// |---|---|---|
/// | `code` | begin | the kind of the operation: [`OpCode`] |
/// | `source`, `ticket`, `token` | begin | those of the operation |
/// | `result` | end | `done`, or how it failed: [`ErrorKind`](windlass::ErrorKind) |
/// | `bytes` | end | how many bytes it has moved, with all its completions |
/// | `completions` | end | how many completions it had |
/// | `duration_us` | end | microseconds since the submission began, on the driver's clock |
///
/// While no subscriber wants `TRACE`, an operation has no span, and costs two comparisons more. A
/// watcher without this driver has no such cost.
///
/// A [quiet](Op::quiet) write that succeeds has no completion. Its span ends with the submission if
/// the socket takes the bytes at once, and else with the next wait after it is out. Spans of
/// operations that are still in flight when the driver is dropped end then, without a `result`.
///
/// Other threads should submit through a [`TracedSubmitter`]: then their operations have complete
/// spans. A plain [`Submitter`] bypasses this driver. The spans of its operations begin with their
/// first completion, and have no `duration_us`. Its quiet writes that succeed have no spans. A
/// [message](Submitter::post) is no operation, and has no span.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicUsize, Ordering};
/// use tracing::span::{Attributes, Id, Record};
/// use tracing::{Event, Metadata};
/// use windlass::{Completions, Op, Watcher};
/// use windlass_serve::log::Traced;
///
/// /// Counts the spans that are open.
/// struct Open(Arc<AtomicUsize>);
/// impl tracing::Subscriber for Open {
///     fn enabled(&self, _: &Metadata<'_>) -> bool {
///         true
///     }
///     fn new_span(&self, _: &Attributes<'_>) -> Id {
///         self.0.fetch_add(1, Ordering::Relaxed);
///         Id::from_u64(1)
///     }
///     fn try_close(&self, _: Id) -> bool {
///         self.0.fetch_sub(1, Ordering::Relaxed);
///         true
///     }
///     fn record(&self, _: &Id, _: &Record<'_>) {}
///     fn record_follows_from(&self, _: &Id, _: &Id) {}
///     fn event(&self, _: &Event<'_>) {}
///     fn enter(&self, _: &Id) {}
///     fn exit(&self, _: &Id) {}
/// }
///
/// let open = Arc::new(AtomicUsize::new(0));
/// let _guard = tracing::subscriber::set_default(Open(open.clone()));
/// let mut watcher = Traced::watcher(Watcher::new()?);
/// watcher.submit(Op::timer(std::time::Duration::from_millis(1)))?;
/// assert_eq!(open.load(Ordering::Relaxed), 1);
/// watcher.wait(&mut Completions::new())?;
/// assert_eq!(open.load(Ordering::Relaxed), 0);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// A server runs on such a watcher, too: [`Server::start_on`](crate::Server::start_on) takes it,
/// and [`ServerLoop`](crate::ServerLoop) has an example of its loop.
/// [`Server::run`](crate::Server::run) makes plain watchers.
pub struct Traced<D> {
    inner: D,
    /// The operations in flight that have a span.
    open: HashMap<Ticket, Open>,
    /// Quiet writes among them.
    quiet: Vec<Ticket>,
    /// What other threads have submitted since the last wait. Dropped after the driver inside,
    /// which takes no operations then.
    submitted: Queue,
}

/// An operation in flight.
struct Open {
    span: Span,
    since: Since,
    bytes: u64,
    completions: u64,
}

/// When an operation was submitted.
#[derive(Clone, Copy)]
enum Since {
    /// This is not known.
    Unknown,
    /// On the driver's clock.
    Loop(Instant),
    /// On the system's clock: the driver's may be virtual.
    Thread(Instant),
}

/// What another thread has submitted.
struct Submitted {
    ticket: Ticket,
    open: Open,
    is_quiet: bool,
}

/// What other threads have submitted: `None` when the driver is gone. Its `Drop` ends their spans.
struct Queue(Arc<Mutex<Option<Vec<Submitted>>>>);

impl Drop for Queue {
    fn drop(&mut self) {
        *lock(&self.0) = None;
    }
}

/// What a span tells of an operation when it begins.
struct Begin {
    code: OpCode,
    source: Source,
    token: u64,
    /// The bytes of a quiet write.
    quiet: Option<u64>,
}

impl Begin {
    /// Looks at an operation.
    fn of(op: Op) -> (Begin, Op) {
        let parts = op.into_parts();
        let quiet = parts.quiet.then(|| parts.buf.len() as u64);
        let begin = Begin { code: parts.code, source: parts.source, token: parts.token, quiet };
        (begin, Op::from_parts(parts))
    }

    /// Opens the span; `None` if no subscriber wants it.
    fn open(&self, ticket: Ticket, since: Since) -> Option<Open> {
        let span = span!(
            target: "windlass_serve", Level::TRACE, "operation", code = debug(self.code),
            source = debug(self.source), ticket = debug(ticket), token = self.token,
            result = Empty, bytes = Empty, completions = Empty, duration_us = Empty
        );
        let bytes = self.quiet.unwrap_or(0);
        (!span.is_disabled()).then_some(Open { span, since, bytes, completions: 0 })
    }
}

impl Open {
    /// Ends the span.
    fn end(self, now: Instant, result: Option<&dyn fmt::Debug>) {
        match result {
            None => self.span.record("result", "done"),
            Some(error) => self.span.record("result", debug(error)),
        };
        self.span.record("bytes", self.bytes).record("completions", self.completions);
        let took = match self.since {
            Since::Unknown => return,
            Since::Loop(since) => now.saturating_duration_since(since),
            Since::Thread(since) => since.elapsed(),
        };
        self.span.record("duration_us", u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
    }
}

/// Whether a subscriber may want the spans.
fn is_wanted() -> bool {
    Level::TRACE <= STATIC_MAX_LEVEL && Level::TRACE <= LevelFilter::current()
}

fn lock<T>(submitted: &Mutex<T>) -> MutexGuard<'_, T> {
    submitted.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl<D: Driver> Traced<D> {
    /// A driver around `inner`. Operations that are in flight already have spans that begin with
    /// their next completion.
    pub fn new(inner: D) -> Traced<D> {
        let (open, quiet) = (HashMap::new(), Vec::new());
        let submitted = Queue(Arc::new(Mutex::new(Some(Vec::new()))));
        Traced { inner, open, quiet, submitted }
    }

    /// The watcher with such a driver around its own. Sources, tickets and submitters stay valid.
    pub fn watcher(watcher: Watcher<D>) -> Watcher<Traced<D>> {
        Watcher::with_driver(Traced::new(watcher.into_driver()))
    }

    /// The driver inside. The spans of operations in flight end.
    pub fn into_inner(self) -> D {
        self.inner
    }

    /// The span of an operation in flight, for spans and events of the program in it. A disabled
    /// span if the operation has none.
    pub fn span(&self, ticket: Ticket) -> Span {
        self.open.get(&ticket).map_or_else(Span::none, |open| open.span.clone())
    }

    /// A handle for other threads, whose operations have complete spans.
    pub fn traced_submitter(&mut self) -> TracedSubmitter {
        let submitter = self.inner.submitter();
        TracedSubmitter { submitter, submitted: Arc::clone(&self.submitted.0) }
    }

    fn begin(&mut self, begin: &Begin, ticket: Ticket, since: Instant) {
        if begin.quiet.is_some() && !ticket.had_ended() && self.inner.is_in_flight(ticket).is_err()
        {
            // The driver cannot tell when it is out.
            return;
        }
        let Some(open) = begin.open(ticket, Since::Loop(since)) else { return };
        if begin.quiet.is_some() && ticket.had_ended() {
            return open.end(self.inner.update_now(), None);
        }
        self.open.insert(ticket, open);
        if begin.quiet.is_some() {
            self.quiet.push(ticket);
        }
    }

    /// Takes the spans that other threads have opened.
    fn take_submitted(&mut self) {
        let Some(all) = &mut *lock(&self.submitted.0) else { return };
        for Submitted { ticket, open, is_quiet } in all.drain(..) {
            self.open.insert(ticket, open);
            if is_quiet {
                self.quiet.push(ticket);
            }
        }
    }

    /// Takes note of a completion.
    fn note(&mut self, c: &Completion, now: &mut Option<Instant>) {
        if c.code() == OpCode::Message {
            return;
        }
        let ticket = c.ticket();
        let known = self.open.remove(&ticket).or_else(|| {
            let begin = Begin { code: c.code(), source: c.source, token: c.token, quiet: None };
            begin.open(ticket, Since::Unknown)
        });
        let Some(mut open) = known else { return };
        // The completion tells the bytes of a quiet write, too.
        open.bytes = if open.completions == 0 { 0 } else { open.bytes } + c.bytes() as u64;
        open.completions += 1;
        if c.has_more() {
            self.open.insert(ticket, open);
            return;
        }
        let now = *now.get_or_insert_with(|| self.inner.update_now());
        let error = c.error_kind();
        open.end(now, error.as_ref().map(|error| error as &dyn fmt::Debug));
    }

    /// Takes note of everything that a wait has delivered, and of quiet writes that are out.
    fn note_all(&mut self, out: &Completions, before: usize) {
        self.take_submitted();
        if self.open.is_empty() && !is_wanted() {
            return;
        }
        let mut now = None;
        for c in out.iter().skip(before) {
            self.note(c, &mut now);
        }
        let mut quiet = std::mem::take(&mut self.quiet);
        quiet.retain(|&ticket| {
            // All completions were delivered: one that has ended without one has succeeded.
            let is_in_flight = self.inner.is_in_flight(ticket) == Ok(true);
            if !is_in_flight && let Some(open) = self.open.remove(&ticket) {
                open.end(*now.get_or_insert_with(|| self.inner.update_now()), None);
            }
            is_in_flight
        });
        self.quiet = quiet;
    }
}

impl<D: Driver> Submit for Traced<D> {
    type Op = Op;

    #[inline]
    fn submit(&mut self, op: Op) -> Result<Ticket, Rejected<Op>> {
        if !is_wanted() {
            return self.inner.submit(op);
        }
        let (begin, op) = Begin::of(op);
        let since = self.inner.update_now();
        let ticket = self.inner.submit(op)?;
        self.begin(&begin, ticket, since);
        Ok(ticket)
    }

    fn cancel(&mut self, ticket: Ticket) -> bool {
        self.inner.cancel(ticket)
    }
}

impl<D: Driver> Complete for Traced<D> {
    type Item = Completion;

    fn complete(&mut self, wait: Wait, out: &mut Completions) -> io::Result<usize> {
        let before = out.len();
        let answer = self.inner.complete(wait, out);
        self.note_all(out, before);
        answer
    }
}

/// All other methods are passed on.
macro_rules! pass_on {
    ($(fn $name:ident(&mut self $(, $what:ident: $type:ty)*) $(-> $out:ty)?;)*) => {
        $(fn $name(&mut self $(, $what: $type)*) $(-> $out)? { self.inner.$name($($what),*) })*
    };
}
macro_rules! pass_on_shared {
    ($(fn $name:ident(&self $(, $what:ident: $type:ty)*) $(-> $out:ty)?;)*) => {
        $(fn $name(&self $(, $what: $type)*) $(-> $out)? { self.inner.$name($($what),*) })*
    };
}

impl<D: Driver> Driver for Traced<D> {
    pass_on! {
        fn attach(&mut self, handle: Handle) -> Result<Source, Rejected<Handle>>;
        fn attach_shared(&mut self, handle: Handle) -> Result<Source, Rejected<Handle>>;
        fn detach(&mut self, source: Source) -> Result<Handle, Reason>;
        fn listen(&mut self, address: &Address, options: ListenOptions) -> io::Result<Source>;
        fn bind_datagram(&mut self, at: &Address, options: DatagramOptions) -> io::Result<Source>;
        fn signals(&mut self, signals: &[i32]) -> Result<Source, Reason>;
        fn child(&mut self, pid: u32) -> Result<Source, Reason>;
        fn abort(&mut self, source: Source) -> bool;
        fn cancel_all(&mut self, source: Source) -> usize;
        fn close(&mut self);
        fn reinit_after_fork(&mut self) -> io::Result<()>;
        fn recv(&mut self, source: Source, to: &mut [IoSliceMut<'_>]) -> io::Result<usize>;
        fn send(&mut self, source: Source, parts: &[IoSlice<'_>]) -> io::Result<usize>;
        fn set_token(&mut self, source: Source, token: u64) -> Result<(), Reason>;
        fn fd(&mut self, source: Source) -> Result<BorrowedFd<'_>, Reason>;
        fn kind(&mut self, source: Source) -> Result<SourceKind, Reason>;
        fn connect_datagram(&mut self, source: Source, peer: &Address) -> Result<(), Reason>;
        fn set_option(&mut self, source: Source, option: SocketOption) -> Result<(), Reason>;
        fn take_error(&mut self, source: Source) -> Result<Option<i32>, Reason>;
        fn aligned_buf(&mut self, len: usize) -> AlignedBuf;
        fn pool(&mut self) -> Result<&mut Pool, Reason>;
        fn update_now(&mut self) -> Instant;
        fn reschedule(&mut self, ticket: Ticket, due: Deadline) -> Result<(), Reason>;
        fn set_idle_timeout(&mut self, source: Source, t: Option<Duration>) -> Result<(), Reason>;
        fn next_timeout(&mut self) -> Option<Duration>;
        fn submitter(&mut self) -> Submitter;
    }

    pass_on_shared! {
        fn queued_bytes(&self, source: Source) -> Result<usize, Reason>;
        fn idle_timeout(&self, source: Source) -> Option<Duration>;
        fn local_address(&self, source: Source) -> Result<Address, Reason>;
        fn peer_address(&self, source: Source) -> Result<Address, Reason>;
        fn now(&self) -> Instant;
        fn clock(&self) -> Clock;
        fn is_in_flight(&self, ticket: Ticket) -> Result<bool, Reason>;
        fn pollable(&self) -> Result<BorrowedFd<'_>, Reason>;
        fn counters(&self) -> Counters;
        fn explain(&self) -> Explain;
    }

    fn connect(
        &mut self,
        addresses: Vec<Address>,
        options: ConnectOptions,
    ) -> Result<(Source, Ticket), Reason> {
        let since = if is_wanted() { Some(self.inner.update_now()) } else { None };
        let token = options.token;
        let (source, ticket) = self.inner.connect(addresses, options)?;
        if let Some(since) = since {
            let begin = Begin { code: OpCode::Connect, source, token, quiet: None };
            self.begin(&begin, ticket, since);
        }
        Ok((source, ticket))
    }

    fn complete_at_least(
        &mut self,
        least: usize,
        wait: Wait,
        out: &mut Completions,
    ) -> io::Result<usize> {
        let before = out.len();
        let answer = self.inner.complete_at_least(least, wait, out);
        self.note_all(out, before);
        answer
    }

    fn complete_one(&mut self, ticket: Ticket) -> io::Result<Completion> {
        let c = self.inner.complete_one(ticket)?;
        self.take_submitted();
        self.note(&c, &mut None);
        Ok(c)
    }
}

impl<D> fmt::Debug for Traced<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Traced").field("open", &self.open.len()).finish_non_exhaustive()
    }
}

/// A handle for other threads, whose operations have complete spans: see [`Traced`].
#[derive(Clone)]
pub struct TracedSubmitter {
    submitter: Submitter,
    submitted: Arc<Mutex<Option<Vec<Submitted>>>>,
}

impl TracedSubmitter {
    /// Submits an operation, as [`Submitter::submit`]. Its span is a child of the span that this
    /// thread is in. Do not call it from a subscriber.
    ///
    /// # Errors
    /// As for [`Submitter::submit`]: the operation comes back, and has no span.
    pub fn submit(&self, op: Op) -> Result<Ticket, Rejected<Op>> {
        if !is_wanted() {
            return self.submitter.submit(op);
        }
        let (begin, op) = Begin::of(op);
        let since = Instant::now();
        // Locked until the span is there: the loop may deliver the completion at once.
        let mut submitted = lock(&self.submitted);
        let ticket = self.submitter.submit(op)?;
        if let Some(submitted) = &mut *submitted
            && let Some(open) = begin.open(ticket, Since::Thread(since))
        {
            submitted.push(Submitted { ticket, open, is_quiet: begin.quiet.is_some() });
        }
        Ok(ticket)
    }

    /// The submitter inside, for everything else.
    pub fn submitter(&self) -> &Submitter {
        &self.submitter
    }
}

impl fmt::Debug for TracedSubmitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.submitter.fmt(f)
    }
}
