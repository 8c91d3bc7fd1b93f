//! A selector on poll(2), for development. It runs on every Unix, and on Windows with WSAPoll, and
//! shows that the layers above do not depend on epoll. Its contract stands in [`crate::sys`].
//!
//! poll(2) knows no edges and remembers nothing: every wait hands over all descriptors, and tells
//! which conditions hold. So a registration is *armed* for what it may report:
//!
//! ```text
//!   Level     always armed
//!   Oneshot   disarmed by a report; `modify` arms it anew, `arm` too (the proactor's way: it knows
//!             when a direction has run dry, and says before each wait what it waits for)
//!   Edge      a condition that was reported is held back until a later `select` finds it gone, or
//!             until the selector's patience ends
//! ```
//!
//! Patience keeps an imitated edge from being lost: bytes that come between the last read and the
//! next `select` look like bytes that were there before. A condition that still holds when patience
//! ends is reported again, perhaps for no reason.
//!
//! poll(2) has no descriptor of its own that another loop could wait for. An embedding loop gets
//! the descriptor of a selector of the system, to which the armed entries are passed on from then
//! on.

#![allow(unsafe_code)]
//! # Safety
//!
//! The kernel reads and writes the entries of a vector, whose length it is told.

use std::cell::OnceCell;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::sys::descriptor::{self, PollFd};
use crate::sys::fd::{BorrowedFd, RawFd};
use crate::sys::interest::{Mode, Ready};
#[cfg(any(target_vendor = "apple", windows))]
use crate::sys::monotonic::ms_up;
use crate::sys::waker::{SharedWake, WakeFd};
use crate::sys::{Select, Selector, errno, fork, os_error};

/// How long an edge is held back that may hide a newer one.
const PATIENCE: Duration = Duration::from_millis(20);

/// No entry.
const NIL: u32 = u32::MAX;

/// A registration, beside its `pollfd`.
struct PollEntry {
    fd: RawFd,
    key: u64,
    on: Ready,
    mode: Mode,
    /// The entry may report something.
    armed: bool,
    /// For an edge: the conditions that were reported, and were not found gone since.
    held: Ready,
}

/// Descriptors, and the conditions that the last `select` has found.
pub struct Poll {
    /// The entries for poll(2). A disarmed one has a negative descriptor, which poll(2) skips.
    fds: Vec<PollFd>,
    /// The registrations, in the same order as `fds`.
    entries: Vec<PollEntry>,
    /// The index of a descriptor's entry, by the number of the descriptor.
    places: Vec<u32>,
    found: Vec<(u64, Ready)>,
    capacity: usize,
    /// Where the next `select` starts to look, so that the first do not starve the last.
    start: usize,
    wake: Option<Arc<WakeFd>>,
    /// How many entries hold something back, and until when.
    held: usize,
    held_until: Option<Instant>,
    patience: Duration,
    /// The selector whose descriptor was lent out. (Boxed, as it is of this type on Windows, where
    /// none is made.)
    mirror: OnceCell<Box<Selector>>,
    /// A forked child shares it with its parent, and leaves it alone.
    forks: u32,
}

impl Select for Poll {
    const NAME: &'static str = "poll";
    const REGISTRATION: &'static str =
        "before each wait, for what is waited for: poll has no edges (for development)";
    const EDGES: bool = false;
    const FORGETS_CLOSED: bool = false;

    fn new(capacity: usize) -> io::Result<Poll> {
        Ok(Poll {
            fds: Vec::new(),
            entries: Vec::new(),
            places: Vec::new(),
            found: Vec::new(),
            capacity: capacity.clamp(1, 1 << 16),
            start: 0,
            wake: None,
            held: 0,
            held_until: None,
            patience: PATIENCE,
            mirror: OnceCell::new(),
            forks: fork::generation(),
        })
    }

    /// Registers the level: `select` drains the descriptor.
    fn waker(&mut self, key: u64) -> io::Result<SharedWake> {
        let fd = Arc::new(WakeFd::new()?);
        self.add(fd.raw(), key, Ready::READABLE, Mode::Level)?;
        self.wake = Some(Arc::clone(&fd));
        Ok(fd)
    }

    fn add(&mut self, fd: RawFd, key: u64, on: Ready, mode: Mode) -> io::Result<()> {
        if self.place(fd).is_some() {
            return Err(os_error(libc::EEXIST));
        }
        descriptor::check_pollable(fd)?;
        self.insert(PollEntry { fd, key, on, mode, armed: true, held: Ready::NONE });
        Ok(())
    }

    fn modify(&mut self, fd: RawFd, key: u64, on: Ready, mode: Mode) -> io::Result<()> {
        let place = self.place(fd).ok_or(os_error(libc::ENOENT))?;
        self.let_go(place);
        self.entries[place] = PollEntry { fd, key, on, mode, armed: true, held: Ready::NONE };
        self.show(place);
        Ok(())
    }

    fn remove(&mut self, fd: RawFd) -> io::Result<()> {
        let place = self.place(fd).ok_or(os_error(libc::ENOENT))?;
        self.let_go(place);
        if let Some(mirror) = self.mirror() {
            let _ = mirror.remove(fd);
        }
        self.places[fd as usize] = NIL;
        self.entries.swap_remove(place);
        self.fds.swap_remove(place);
        if let Some(moved) = self.entries.get(place) {
            self.places[moved.fd as usize] = place as u32;
        }
        Ok(())
    }

    fn arm(&mut self, fd: RawFd, key: u64, on: Option<Ready>) {
        let entry = PollEntry {
            fd,
            key,
            on: on.unwrap_or(Ready::NONE),
            mode: Mode::Oneshot,
            armed: on.is_some(),
            held: Ready::NONE,
        };
        let Some(place) = self.place(fd) else {
            if entry.armed {
                self.insert(entry);
            }
            return;
        };
        let known = &self.entries[place];
        if (known.key, known.on, known.armed) != (entry.key, entry.on, entry.armed) {
            self.entries[place] = entry;
            self.show(place);
        }
    }

    fn select(&mut self, timeout_ns: Option<u64>) -> io::Result<usize> {
        self.found.clear();
        self.look_at_held()?;
        if self.is_patience_over() {
            self.release_held();
        }
        let patience_ns = self.held_until.map(|until| {
            let left = until.saturating_duration_since(Instant::now());
            u64::try_from(left.as_nanos()).unwrap_or(u64::MAX)
        });
        let bound_ns = [timeout_ns, patience_ns].into_iter().flatten().min();
        let count = wait(&mut self.fds, bound_ns)?;
        self.collect(count);
        if count == 0 && self.is_patience_over() {
            // The patience has ended during this wait.
            self.release_held();
            let count = wait(&mut self.fds, Some(0))?;
            self.collect(count);
        }
        Ok(self.found.len())
    }

    fn event(&self, i: usize) -> (u64, Ready) {
        self.found[i]
    }

    fn pollable(&self) -> Option<BorrowedFd<'_>> {
        // Winsock has no descriptor that says when others are ready.
        if cfg!(windows) {
            return None;
        }
        if self.mirror.get().is_none() {
            let mut mirror = Selector::new(1).ok()?;
            for entry in self.entries.iter().filter(|entry| entry.shown().is_some()) {
                mirror.add(entry.fd, entry.key, entry.on, Mode::Level).ok()?;
            }
            let _ = self.mirror.set(Box::new(mirror));
        }
        self.mirror.get().and_then(|mirror| mirror.pollable())
    }

    fn explain(&self) -> (&'static str, &'static str) {
        WAIT
    }
}

impl PollEntry {
    /// The conditions that poll(2) is asked for; `None` if nothing may be reported.
    fn shown(&self) -> Option<Ready> {
        let on = asked(self.on).difference(self.held);
        // poll(2) reports errors and hang-ups even if it is not asked for them.
        let silent = !self.armed || self.held.intersects(Ready::ALWAYS);
        (!silent).then_some(on)
    }
}

/// An interest with the conditions that belong to it: reads include the half-close.
fn asked(on: Ready) -> Ready {
    if on.intersects(Ready::READABLE) { on | Ready::READ_CLOSED } else { on }
}

impl Poll {
    fn place(&self, fd: RawFd) -> Option<usize> {
        let place = *self.places.get(usize::try_from(fd).ok()?)?;
        (place != NIL).then_some(place as usize)
    }

    fn insert(&mut self, entry: PollEntry) {
        let (fd, place) = (entry.fd as usize, self.entries.len());
        if self.places.len() <= fd {
            self.places.resize(fd + 1, NIL);
        }
        self.places[fd] = place as u32;
        self.fds.push(PollFd { fd: entry.fd, events: 0, revents: 0 });
        self.entries.push(entry);
        self.show(place);
    }

    /// Passes on what an entry may report: to poll(2), and to the mirror.
    fn show(&mut self, place: usize) {
        let entry = &self.entries[place];
        let shown = entry.shown();
        self.fds[place] = PollFd {
            // Not `-fd`, because 0 has no negative.
            fd: if shown.is_some() { entry.fd } else { -1 - entry.fd },
            events: descriptor::to_poll(shown.unwrap_or(Ready::NONE)),
            revents: 0,
        };
        let (fd, key) = (entry.fd, entry.key);
        if let Some(mirror) = self.mirror() {
            // If this fails, the other loop learns of the descriptor when it comes back to this
            // one.
            let _ = match shown {
                None => mirror.remove(fd),
                Some(on) => match mirror.modify(fd, key, on, Mode::Level) {
                    Err(_) => mirror.add(fd, key, on, Mode::Level),
                    done => done,
                },
            };
        }
    }

    fn mirror(&mut self) -> Option<&mut Selector> {
        let mirror = self.mirror.get_mut().filter(|_| self.forks == fork::generation());
        mirror.map(Box::as_mut)
    }

    /// Turns what poll(2) has found into events, from where the last `select` has stopped.
    fn collect(&mut self, mut count: usize) {
        let len = self.fds.len();
        let mut i = if self.start < len { self.start } else { 0 };
        for _ in 0..len {
            if count == 0 || self.found.len() == self.capacity {
                break;
            }
            let place = i;
            i = if i + 1 == len { 0 } else { i + 1 };
            let revents = std::mem::take(&mut self.fds[place].revents);
            if revents == 0 {
                continue;
            }
            count -= 1;
            self.report(place, descriptor::from_poll(revents));
        }
        self.start = i;
    }

    fn report(&mut self, place: usize, ready: Ready) {
        let entry = &mut self.entries[place];
        self.found.push((entry.key, ready));
        match entry.mode {
            Mode::Level => {
                if let Some(wake) = self.wake.as_ref().filter(|wake| wake.raw() == entry.fd) {
                    wake.drain();
                }
                return;
            }
            Mode::Oneshot => entry.armed = false,
            Mode::Edge => {
                if entry.held.is_empty() {
                    self.held += 1;
                }
                entry.held |= ready;
                self.held_until.get_or_insert_with(|| Instant::now() + self.patience);
            }
        }
        self.show(place);
    }

    /// Arms edges again whose condition has gone.
    fn look_at_held(&mut self) -> io::Result<()> {
        if self.held == 0 {
            return Ok(());
        }
        let places: Vec<usize> =
            (0..self.entries.len()).filter(|&i| !self.entries[i].held.is_empty()).collect();
        let ask = |&place: &usize| PollFd {
            fd: self.entries[place].fd,
            events: descriptor::to_poll(asked(self.entries[place].on)),
            revents: 0,
        };
        let mut fds: Vec<PollFd> = places.iter().map(ask).collect();
        wait(&mut fds, Some(0))?;
        for (place, asked) in places.into_iter().zip(fds) {
            let entry = &mut self.entries[place];
            let holds = entry.held.intersection(descriptor::from_poll(asked.revents));
            if holds != entry.held {
                entry.held = holds;
                self.held -= usize::from(holds.is_empty());
                self.show(place);
            }
        }
        if self.held == 0 {
            self.held_until = None;
        }
        Ok(())
    }

    fn is_patience_over(&self) -> bool {
        self.held_until.is_some_and(|until| Instant::now() >= until)
    }

    /// Releases all held conditions, which may then be reported again.
    fn release_held(&mut self) {
        for place in 0..self.entries.len() {
            if !self.entries[place].held.is_empty() {
                self.entries[place].held = Ready::NONE;
                self.show(place);
            }
        }
        self.held = 0;
        self.held_until = None;
    }

    /// Forgets what an entry holds back, before the entry is removed or replaced.
    fn let_go(&mut self, place: usize) {
        if !self.entries[place].held.is_empty() {
            self.held -= 1;
            self.held_until = self.held_until.filter(|_| self.held > 0);
        }
    }

    /// Sets how long an edge is held back that may hide a newer one.
    #[cfg(test)]
    pub(crate) fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }
}

/// Calls poll(2) for at most so long. Returns the number of entries with conditions, 0 after a
/// signal.
fn wait(fds: &mut [PollFd], timeout_ns: Option<u64>) -> io::Result<usize> {
    let count = ask(fds, timeout_ns);
    if count >= 0 {
        return Ok(count as usize);
    }
    match errno() {
        libc::EINTR => {
            fds.iter_mut().for_each(|entry| entry.revents = 0);
            Ok(0)
        }
        errno => Err(os_error(errno)),
    }
}

/// The name of the call that `ask` makes, and the reason for it.
#[cfg(not(any(target_vendor = "apple", windows)))]
const WAIT: (&str, &str) = ("ppoll", "timeouts have nanosecond precision");

#[cfg(not(any(target_vendor = "apple", windows)))]
fn ask(fds: &mut [PollFd], timeout_ns: Option<u64>) -> i32 {
    let timeout = timeout_ns.map(descriptor::timespec);
    let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: as many entries as are said; the timeout lives across the call; no signal mask.
    unsafe { libc::ppoll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, timeout, std::ptr::null()) }
}

#[cfg(target_vendor = "apple")]
const WAIT: (&str, &str) = ("poll", "there is no ppoll: timeouts round up to milliseconds");

#[cfg(target_vendor = "apple")]
fn ask(fds: &mut [PollFd], timeout_ns: Option<u64>) -> i32 {
    let ms = timeout_ns.map_or(-1, ms_up);
    // SAFETY: as many entries as are said.
    unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, ms) }
}

#[cfg(windows)]
const WAIT: (&str, &str) = ("WSAPoll", "Winsock's own: timeouts round up to milliseconds");

#[cfg(windows)]
fn ask(fds: &mut [PollFd], timeout_ns: Option<u64>) -> i32 {
    descriptor::poll(fds, timeout_ns.map(ms_up))
}
