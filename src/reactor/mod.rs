//! Readiness: which descriptors can be read or written, without reading or writing them.
//!
//! It is for descriptors on which other code does the I/O: a C library's socket, a `timerfd`, an
//! X11 connection, an embedded loop. A [`Watcher`](crate::Watcher) also moves the bytes.
//!
//! The reactor speaks the two verbs of [`driver`](crate::driver): its operation is a [`Watch`], its
//! item is [`Readiness`].
//!
//! ```text
//!             submit                    an event
//!   Watch ─────────────▶ registered ───────────────▶ Readiness { more: true }
//!             EPERM …    │  ▲     │    a oneshot rests then, until `rearm`
//!   ◀─────── refused     └──┘     │
//!                modify, rearm    │ cancel
//!                                 └────────────────▶ Readiness { more: false, fd, ready: NONE }
//! ```
//!
//! Invariants: (E1) a registered descriptor is owned here, so its number names nothing else and no
//! two watches can collide on it (`EEXIST` cannot come); (E2) a registration is removed before its
//! descriptor leaves the table, or a duplicate of it would keep the registration alive; (E3) every
//! registration carries its ticket as key, so an event whose watch has ended finds no watch, even
//! if another watch has its place or its descriptor's number by then.

#[cfg(test)]
mod tests;
mod watch;

use std::fmt;
use std::io;
use std::sync::Arc;

use crate::completion::Completions;
use crate::completion::verbs::{Complete, Submit, Wait};
use crate::driver::config::Config;
pub use crate::sys::Select;
use crate::sys::fd::{AsFd, AsRawFd, BorrowedFd};
pub use crate::sys::interest::Mode;
use crate::sys::interest::Ready;
use crate::sys::{Selector, fork, os_errno};
use crate::words::clock;
use crate::words::error::{Limit, Refusal, Refused};
use crate::words::source::Ticket;
use crate::words::table::{self, Entry, Table};
use crate::words::wake_state::WakeState;
use watch::Registration;
pub use watch::{Readiness, Waker, Watch};

/// The key of the wake descriptor. No slot has its index.
const WAKE: u64 = u64::MAX;

/// Tells which descriptors are ready, on the system's selector.
///
/// ```
/// use std::io::{Read, Write};
/// use std::os::unix::net::UnixStream;
/// use windlass::driver::Wait;
/// use windlass::reactor::{Mode, Reactor, Watch};
/// use windlass::{Complete, Completions, Ready, Submit};
///
/// let (mut ours, mut theirs) = UnixStream::pair()?;
/// let mut reactor = Reactor::new()?;
/// let watch = Watch::dup(&ours, Ready::READABLE)?.mode(Mode::Edge).token(7);
/// let ticket = reactor.submit(watch)?;
///
/// theirs.write_all(b"hello")?;
/// let mut items = Completions::new();
/// reactor.complete(Wait::Forever, &mut items)?;
/// for item in items.drain(..) {
///     assert_eq!((item.ticket, item.token, item.more), (ticket, 7, true));
///     assert!(item.ready.contains(Ready::READABLE));
///     ours.read_exact(&mut [0; 5])?;
/// }
///
/// reactor.cancel(ticket); // the answer is a last item, and it gives the descriptor back
/// reactor.complete(Wait::Now, &mut items)?;
/// let last = items.drain(..).next().unwrap();
/// assert!(!last.more && last.ready.is_empty() && last.fd.is_some());
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # What differs from mio and polling
///
/// | there | here |
/// |---|---|
/// | the descriptor is borrowed, and must be deregistered | the watch owns it until its last item |
/// | a disarmed oneshot may report errors | it reports nothing before [`rearm`](Reactor::rearm) |
/// | the key of an event may be stale | an event also has a [`Ticket`]: a stale one is an error |
/// | `register` twice is `EEXIST` | two watches of one file are two duplicates; both report |
///
/// # Platform
///
/// Every watch reports errors and hang-ups ([`Ready::ALWAYS`]). A watch for [`Ready::READ_CLOSED`]
/// or [`Ready::READABLE`] also reports a half-close of the peer. A spurious item is possible, as
/// with poll(2): use non-blocking reads and writes. kqueue reports a socket's hang-up only if the
/// watch includes [`Ready::WRITABLE`], and a half-close otherwise. Of the systems with kqueue only
/// macOS reports urgent data. kqueue in [`Mode::Level`] reports an end once if the program does not
/// read.
pub struct Reactor<S: Select = Selector> {
    /// Before the table, so that the registrations end before the descriptors close.
    selector: S,
    watches: Table<Registration>,
    batch: Vec<Readiness>,
    wake: Arc<WakeState>,
    stale_events: u64,
    /// How many events one wait takes.
    events: usize,
    forks: u32,
}

impl Reactor {
    /// A reactor with the default [`Config`]: at most 2^20 watches, 64 events in one wait.
    ///
    /// # Errors
    ///
    /// - `EMFILE`, `ENFILE`: out of descriptors.
    /// - `ENOMEM`: out of memory.
    pub fn new() -> io::Result<Reactor> {
        Reactor::with_config(&Config::default())
    }

    /// A reactor with settings of a [`Builder`](crate::Builder): `max_operations` bounds its
    /// watches, `events_per_wait` what one wait takes.
    ///
    /// # Errors
    ///
    /// - As for [`new`](Reactor::new).
    pub fn with_config(config: &Config) -> io::Result<Reactor> {
        Reactor::on_selector(config)
    }
}

impl<S: Select> Reactor<S> {
    /// A reactor on another selector than the system's own.
    fn on_selector(config: &Config) -> io::Result<Reactor<S>> {
        fork::watch();
        clock::start();
        let mut selector = S::new(config.events_per_wait)?;
        let wake = Arc::new(WakeState::new(selector.waker(WAKE)?));
        Ok(Reactor {
            selector,
            watches: Table::starting_at(config.max_operations, table::another_start()),
            batch: Vec::new(),
            wake,
            stale_events: 0,
            events: config.events_per_wait,
            forks: fork::generation(),
        })
    }

    /// Changes what a watch reports and how often; its ticket and token stay. Conditions that hold
    /// already are reported by the next wait, also with [`Mode::Edge`].
    ///
    /// # Errors
    ///
    /// - [`Refusal::Stale`]: the watch has ended.
    /// - [`Refusal::Forked`]: this is a forked child.
    /// - [`Refusal::Os`]: the selector refuses, with `ENOMEM`, or `ENOENT` or `EBADF` when other
    ///   code has closed the descriptor.
    pub fn modify(&mut self, ticket: Ticket, interest: Ready, mode: Mode) -> Result<(), Refusal> {
        self.check_fork()?;
        let watch = self.watches.find(ticket.index(), ticket.generation());
        let watch = watch.ok_or(Refusal::Stale)?;
        let fd = watch.fd.as_ref().expect("E1").as_raw_fd();
        self.selector.modify(fd, ticket.key(), interest, mode).map_err(reason)?;
        (watch.mode, watch.interest, watch.armed) = (mode, interest, true);
        Ok(())
    }

    /// Arms a watch in [`Mode::Oneshot`] again, with the same or another interest. The next wait
    /// reports conditions that already hold. A watch of another mode is always armed; only its
    /// interest changes.
    ///
    /// ```
    /// use std::io::{Read, Write};
    /// use std::os::unix::net::UnixStream;
    /// use windlass::driver::Wait;
    /// use windlass::reactor::{Mode, Reactor, Watch};
    /// use windlass::{Complete, Completions, Ready, Submit};
    ///
    /// let (mut ours, mut theirs) = UnixStream::pair()?;
    /// let mut reactor = Reactor::new()?;
    /// let watch = Watch::dup(&ours, Ready::READABLE)?.mode(Mode::Oneshot);
    /// let ticket = reactor.submit(watch)?;
    /// let mut items = Completions::new();
    /// theirs.write_all(b"hello")?;
    /// assert_eq!(reactor.complete(Wait::Forever, &mut items)?, 1);
    /// ours.read_exact(&mut [0; 3])?;
    /// assert_eq!(reactor.complete(Wait::Now, &mut items)?, 0); // it is disarmed
    /// reactor.rearm(ticket, Ready::READABLE)?;
    /// assert_eq!(reactor.complete(Wait::Forever, &mut items)?, 1); // two bytes are left
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// - As for [`modify`](Reactor::modify).
    pub fn rearm(&mut self, ticket: Ticket, interest: Ready) -> Result<(), Refusal> {
        let watch = self.watches.look(ticket.index(), ticket.generation());
        let mode = watch.ok_or(Refusal::Stale)?.mode;
        self.modify(ticket, interest, mode)
    }

    /// Lends the descriptor of a watch out, to read, write or set options.
    ///
    /// # Errors
    ///
    /// - [`Refusal::Stale`]: the watch has ended.
    pub fn fd(&self, ticket: Ticket) -> Result<BorrowedFd<'_>, Refusal> {
        let watch = self.watches.look(ticket.index(), ticket.generation());
        Ok(watch.ok_or(Refusal::Stale)?.fd.as_ref().expect("E1").as_fd())
    }

    /// A handle that ends the wait from any thread.
    pub fn waker(&self) -> Waker {
        Waker(Arc::clone(&self.wake))
    }

    /// How many watches there are.
    pub fn len(&self) -> usize {
        self.watches.len() as usize
    }

    /// Whether there is no watch.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many events the selector has reported for watches that had ended. None are expected, as
    /// registrations end before their descriptors close; they are passed over (E3).
    pub fn stale_events(&self) -> u64 {
        self.stale_events
    }

    /// Makes the copy of the reactor in a forked child the child's own; where there was no fork it
    /// does nothing. The watches go on, on a selector of the child's own, so that conditions that
    /// hold are reported once more; a disarmed oneshot stays disarmed. A [`Waker`] from before the
    /// fork still wakes the parent.
    ///
    /// # Errors
    ///
    /// The reactor stays as it was, and this can be tried again, with:
    ///
    /// - `EMFILE`, `ENFILE`, `ENOMEM`: the system does not give a selector.
    /// - `ENOSPC`: on epoll, at `/proc/sys/fs/epoll/max_user_watches`.
    pub fn reinit_after_fork(&mut self) -> io::Result<()> {
        if self.check_fork().is_ok() {
            return Ok(());
        }
        let mut selector = S::new(self.events)?;
        let wake = Arc::new(WakeState::new(selector.waker(WAKE)?));
        for index in self.watches.occupied() {
            let watch = &self.watches[index];
            let key = Ticket::from_parts(index, watch.generation()).key();
            let fd = watch.fd.as_ref().expect("E1").as_raw_fd();
            selector.add(fd, key, watch.interest, watch.mode)?;
        }
        // The parent's selector closes with its last descriptor. Nothing is removed from it.
        (self.selector, self.wake, self.forks) = (selector, wake, fork::generation());
        Ok(())
    }

    fn check_fork(&self) -> Result<(), Refusal> {
        if self.forks == fork::generation() { Ok(()) } else { Err(Refusal::Forked) }
    }

    /// Turns the events of a select into items.
    fn apply(&mut self, count: usize) {
        for i in 0..count {
            let (key, ready) = self.selector.event(i);
            let ticket = Ticket::of_key(key);
            match self.watches.find(ticket.index(), ticket.generation()) {
                // A disarmed oneshot: kqueue has a filter per direction, and each reports once.
                Some(watch) if !watch.armed => {}
                Some(watch) => {
                    watch.armed = watch.mode != Mode::Oneshot;
                    let token = watch.token;
                    self.batch.push(Readiness { ticket, token, ready, more: true, fd: None });
                }
                None => self.stale_events += u64::from(key != WAKE),
            }
        }
    }

    /// Ends a watch: its last item takes the descriptor along.
    fn end(&mut self, ticket: Ticket) {
        let watch = &mut self.watches[ticket.index()];
        let fd = watch.fd.take().expect("E1");
        let token = watch.token;
        // E2. The descriptor is open and registered, so this cannot fail.
        let removed = self.selector.remove(fd.as_raw_fd());
        debug_assert!(removed.is_ok(), "{removed:?}");
        self.watches.vacate(ticket.index());
        let ready = Ready::NONE;
        self.batch.push(Readiness { ticket, token, ready, more: false, fd: Some(fd) });
    }
}

impl<S: Select> Submit for Reactor<S> {
    type Op = Watch;

    /// Registers a descriptor. Conditions that hold already are reported by the next wait.
    ///
    /// # Errors
    ///
    /// The watch comes back with its descriptor, with:
    ///
    /// - [`Refusal::Unsupported`]: the descriptor cannot be waited for (`EPERM`: regular files,
    ///   directories, some devices).
    /// - [`Refusal::Full`]: the reactor has as many watches as it may.
    /// - [`Refusal::Forked`]: this is a forked child.
    /// - [`Refusal::Os`]: the system refuses, with `ENOSPC`
    ///   (`/proc/sys/fs/epoll/max_user_watches`), `ENOMEM`, or `ELOOP` for selectors that watch
    ///   each other.
    fn submit(&mut self, op: Watch) -> Result<Ticket, Refused<Watch>> {
        if let Err(reason) = self.check_fork() {
            return Err(Refused { value: op, reason });
        }
        let Some((index, generation)) = self.watches.occupy() else {
            let reason =
                Refusal::Full { limit: Limit::Operations, count: self.watches.limit() as usize };
            return Err(Refused { value: op, reason });
        };
        let ticket = Ticket::from_parts(index, generation);
        let raw = op.fd.as_raw_fd();
        if let Err(error) = self.selector.add(raw, ticket.key(), op.interest, op.mode) {
            self.watches.vacate(index);
            let reason = reason(error);
            return Err(Refused { value: op, reason });
        }
        let watch = &mut self.watches[index];
        watch.token = op.token;
        (watch.mode, watch.interest, watch.armed) = (op.mode, op.interest, true);
        watch.fd = Some(op.fd);
        Ok(ticket)
    }

    /// Ends a watch at once: nothing is reported for it any more but the last item, which the next
    /// wait delivers, with no conditions and the descriptor. False when it has ended already.
    fn cancel(&mut self, ticket: Ticket) -> bool {
        let known = self.watches.look(ticket.index(), ticket.generation());
        if known.is_none() || self.check_fork().is_err() {
            return false;
        }
        self.end(ticket);
        true
    }
}

impl<S: Select> Complete for Reactor<S> {
    type Item = Readiness;

    /// Waits until there is an item, `wait` says that it is enough, or a [`Waker`] ends the wait,
    /// which can make the answer 0.
    ///
    /// # Errors
    ///
    /// - [`Refusal::Forked`]: this is a forked child.
    /// - `EBADF`, on epoll also `EINVAL`: other code has closed the selector's descriptor.
    fn complete(&mut self, wait: Wait, out: &mut Completions<Readiness>) -> io::Result<usize> {
        self.check_fork()?;
        loop {
            let mut timeout_ns = match wait {
                _ if !self.batch.is_empty() => Some(0),
                Wait::Now => Some(0),
                Wait::Forever => None,
                Wait::Until(at) => Some(clock::ns_of(at).saturating_sub(clock::now_ns())),
            };
            if timeout_ns != Some(0) && !self.wake.prepare_park() {
                timeout_ns = Some(0);
            }
            let count = self.selector.select(timeout_ns)?;
            let woken = self.wake.unpark();
            self.apply(count);
            match wait {
                _ if !self.batch.is_empty() => break,
                Wait::Now => {
                    // An embedding loop sleeps on the descriptor now: wakes must write it.
                    while !self.wake.prepare_park() {
                        self.wake.unpark();
                    }
                    break;
                }
                _ if woken => break,
                Wait::Until(at) if clock::now_ns() >= clock::ns_of(at) => break,
                Wait::Until(_) | Wait::Forever => {}
            }
        }
        Ok(out.take_from(&mut self.batch))
    }
}

/// The reactor's own descriptor, for embedding in another loop: readable when
/// [`complete`](Complete::complete) with [`Wait::Now`] would find something or a [`Waker`] was
/// used. Call that until it answers 0, then sleep on this.
impl<S: Select + AsFd> AsFd for Reactor<S> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.selector.as_fd()
    }
}

impl<S: Select> fmt::Debug for Reactor<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reactor")
            .field("watches", &self.len())
            .field("stale_events", &self.stale_events)
            .finish_non_exhaustive()
    }
}

impl<S: Select> Drop for Reactor<S> {
    /// Removes the registrations, then closes the descriptors (E2).
    fn drop(&mut self) {
        // In a forked child the selector is the parent's, too, and stays as it is.
        if self.check_fork().is_err() {
            return;
        }
        for index in self.watches.occupied() {
            let fd = self.watches[index].fd.as_ref().expect("E1");
            // A duplicate of the selector may live on in another loop.
            let _ = self.selector.remove(fd.as_raw_fd());
        }
    }
}

/// Why the selector refuses a descriptor.
fn reason(error: io::Error) -> Refusal {
    match os_errno(&error) {
        Some(libc::EPERM) | None => Refusal::Unsupported,
        Some(errno) => Refusal::Os(errno),
    }
}
