//! The selector on macOS and the BSDs: kqueue(2). Its contract stands in [`crate::sys`]. The
//! changes that it makes, which of them may wait, and the answers are in [`kevent`](super::kevent).
//!
//! Three things differ from epoll(7). Events are per filter: those of one descriptor in one wait
//! are put together, so that a oneshot watch gets one. A registration belongs to the *number* of a
//! descriptor. The kernel ends it when the number is closed, even if other descriptors have the
//! file open. The state and the deferred changes of the number are then
//! [forgotten](Select::forget), or they would apply to its next owner. A forked child does not
//! inherit a queue, and its number may be another file there: the child makes no call on it.

#![allow(unsafe_code)]
//! # Safety
//!
//! The kernel reads as many changes as the vector has, and writes at most as many events as the
//! other has capacity for, and says how many.

use std::io;
use std::sync::Arc;

use crate::sys::fd::{AsFd, BorrowedFd, RawFd};
use crate::sys::interest::{Mode, Ready};
use crate::sys::kevent::{GONE, Kevent, Known, Receipt, change, key_of, merge, plan, raw, receipt};
use crate::sys::waker::{SharedWake, Wake, WakeFd};
use crate::sys::{Select, cvt, descriptor, fork, step};

/// The most that one wait may take: macOS refuses more than 10^8 seconds. The caller looks at the
/// clock, and waits again.
const MOST_NS: u64 = 100_000_000 * 1_000_000_000;

/// A kernel queue, the filters in it, and the events of its last `select`.
pub struct Kqueue {
    queue: Arc<KqueueFd>,
    /// The registrations, by the number of their descriptor.
    known: Vec<Known>,
    /// Changes that wait for the next `select`.
    later: Vec<Kevent>,
    events: Vec<Kevent>,
    capacity: usize,
    found: Vec<(u64, Ready)>,
    /// Pipes without a reader, which cannot be registered for writes. The next `select` reports
    /// them.
    gone: Vec<(RawFd, u64)>,
}

// SAFETY: the pointers in changes and events are keys, which are never followed.
unsafe impl Send for Kqueue {}

impl Select for Kqueue {
    const NAME: &'static str = "kqueue";
    const REGISTRATION: &'static str = "once per filter, at its first EAGAIN or before it: \
         EV_CLEAR, for life; for writes when one waits";
    const EDGES: bool = true;
    const FORGETS_CLOSED: bool = true;
    const QUIET_WRITES: bool = false;

    fn new(capacity: usize) -> io::Result<Kqueue> {
        Ok(Kqueue {
            queue: Arc::new(KqueueFd::new()?),
            known: Vec::new(),
            later: Vec::new(),
            events: Vec::new(),
            capacity: capacity.clamp(1, 1 << 16),
            found: Vec::new(),
            gone: Vec::new(),
        })
    }

    /// An event of the queue's own, or a pipe where there is none (OpenBSD before 7.7).
    fn waker(&mut self, key: u64) -> io::Result<SharedWake> {
        let flags = raw::EV_ADD | raw::EV_CLEAR | raw::EV_RECEIPT;
        let add = change(0, raw::EVFILT_USER, flags, 0, key);
        match self.queue.make(&[add])?.first() {
            Some(Receipt::Done) => Ok(Arc::new(UserEvent { queue: Arc::clone(&self.queue), key })),
            _ => {
                let fd = WakeFd::new()?;
                self.add(fd.raw(), key, Ready::READABLE, Mode::Edge)?;
                Ok(Arc::new(fd))
            }
        }
    }

    fn add(&mut self, fd: RawFd, key: u64, on: Ready, mode: Mode) -> io::Result<()> {
        if self.known(fd).is_registered() {
            return Err(io::Error::from_raw_os_error(libc::EEXIST));
        }
        // kqueue(2) knows regular files, which are always readable.
        let is_socket = descriptor::check_pollable(fd)?;
        self.change(fd, key, Known::wanted(on, mode, is_socket))
    }

    fn modify(&mut self, fd: RawFd, key: u64, on: Ready, mode: Mode) -> io::Result<()> {
        let known = self.known(fd);
        if !known.is_registered() {
            return Err(io::Error::from_raw_os_error(libc::ENOENT));
        }
        self.forget_pending(fd);
        self.change(fd, key, Known::wanted(on, mode, known.is_socket))
    }

    fn remove(&mut self, fd: RawFd) -> io::Result<()> {
        if !self.known(fd).is_registered() {
            return Err(io::Error::from_raw_os_error(libc::ENOENT));
        }
        self.forget_pending(fd);
        self.change(fd, 0, Known::default())
    }

    fn forget(&mut self, fd: RawFd) {
        if self.known(fd).is_registered() {
            self.known[fd as usize] = Known::default();
            self.forget_pending(fd);
        }
    }

    fn select(&mut self, timeout_ns: Option<u64>) -> io::Result<usize> {
        self.found.clear();
        self.found.extend(self.gone.drain(..).map(|(_, key)| (key, GONE)));
        let timeout_ns = if self.found.is_empty() { timeout_ns } else { Some(0) };
        // Room for the error of every change, too, or it would be lost.
        let room = self.capacity.max(self.later.len());
        if !self.queue.wait(&self.later, &mut self.events, room, timeout_ns)? {
            // A signal came. Changes may have been made or not: made again, they do no harm.
            return Ok(self.found.len());
        }
        self.later.clear();
        let mut filters = 0;
        for event in &self.events {
            let ready = if event.filter == raw::EVFILT_USER {
                Some(Ready::READABLE)
            } else {
                filters |= 1 << (event.filter == raw::EVFILT_WRITE) as u8;
                self.known.get_mut(event.ident).and_then(|known| known.conditions(event))
            };
            self.found.extend(ready.map(|ready| (key_of(event), ready)));
        }
        // If all events are of one filter, no descriptor has two.
        if filters == 3 {
            merge(&mut self.found);
        }
        Ok(self.found.len())
    }

    #[inline]
    fn event(&self, i: usize) -> (u64, Ready) {
        self.found[i]
    }

    fn pollable(&self) -> Option<BorrowedFd<'_>> {
        Some(self.as_fd())
    }

    fn explain(&self) -> (&'static str, &'static str) {
        ("kevent", "timeouts have nanosecond precision")
    }
}

impl Kqueue {
    fn known(&self, fd: RawFd) -> Known {
        let known = usize::try_from(fd).ok().and_then(|fd| self.known.get(fd));
        known.copied().unwrap_or_default()
    }

    /// Drops the waiting changes of a descriptor.
    fn forget_pending(&mut self, fd: RawFd) {
        self.later.retain(|change| change.ident != fd as usize);
        self.gone.retain(|(gone, _)| *gone != fd);
    }

    /// Changes a registration. If that fails, none is left.
    fn change(&mut self, fd: RawFd, key: u64, to: Known) -> io::Result<()> {
        let number = usize::try_from(fd).map_err(|_| io::Error::from_raw_os_error(libc::EBADF))?;
        let plan = plan(fd, key, self.known(fd), to);
        if self.known.len() <= number {
            self.known.resize(number + 1, Known::default());
        }
        let mut has = to;
        let mut refused = None;
        if !plan.now.is_empty() {
            for (change, receipt) in plan.now.iter().zip(self.queue.make(&plan.now)?) {
                match receipt {
                    Receipt::Done => continue,
                    Receipt::Gone => self.gone.push((fd, key)),
                    // The other direction may be there.
                    Receipt::Absent => refused = refused.or(Some(libc::EINVAL)),
                    Receipt::Failed(errno) => {
                        self.known[number] = Known::default();
                        self.forget_pending(fd);
                        let undo = super::kevent::plan(fd, key, to, Known::default());
                        let _ = self.queue.make(&undo.now);
                        return Err(io::Error::from_raw_os_error(errno));
                    }
                }
                has.drop_filter(change.filter);
            }
        }
        self.known[number] = has;
        self.later.extend(plan.later);
        match refused {
            Some(errno) if !has.is_registered() => Err(io::Error::from_raw_os_error(errno)),
            _ => Ok(()),
        }
    }
}

impl AsFd for Kqueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        descriptor::borrow(self.queue.fd)
    }
}

/// The queue's descriptor, shared with the wakers that end its waits.
pub(super) struct KqueueFd {
    fd: RawFd,
    forks: u32,
}

impl KqueueFd {
    pub(super) fn new() -> io::Result<KqueueFd> {
        // SAFETY: no memory is passed.
        let made = cvt!(unsafe { raw::kqueue() });
        let fd = made.map_err(|error| step::at("kqueue(2)", error))?;
        let queue = KqueueFd { fd, forks: fork::generation() };
        descriptor::set_cloexec(fd)?;
        Ok(queue)
    }

    pub(super) fn raw(&self) -> RawFd {
        self.fd
    }

    /// Makes changes at once; each has its receipt.
    pub(super) fn make(&self, changes: &[Kevent]) -> io::Result<Vec<Receipt>> {
        let mut answers = Vec::new();
        while !self.wait(changes, &mut answers, changes.len(), Some(0))? {}
        Ok(changes.iter().zip(&answers).map(|(change, answer)| receipt(change, answer)).collect())
    }

    /// Calls kevent(2), with room for so many events. False if a signal came.
    pub(super) fn wait(
        &self,
        changes: &[Kevent],
        events: &mut Vec<Kevent>,
        room: usize,
        timeout_ns: Option<u64>,
    ) -> io::Result<bool> {
        events.clear();
        if self.forks != fork::generation() {
            return Ok(true);
        }
        events.reserve(room);
        let timeout = timeout_ns.map(|ns| descriptor::timespec(ns.min(MOST_NS)));
        let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        let (from, count) = (changes.as_ptr(), changes.len() as libc::c_int);
        let (to, most) = (events.as_mut_ptr(), room as libc::c_int);
        // SAFETY: `count` changes; room for `most` events; the timeout lives across the call.
        let answer = unsafe { raw::kevent(self.fd, from, count, to, most, timeout) };
        match cvt!(answer) {
            Ok(count) => {
                // SAFETY: the kernel has written the first `count` events, at most the capacity.
                unsafe { events.set_len(count as usize) };
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl Drop for KqueueFd {
    fn drop(&mut self) {
        if self.forks == fork::generation() {
            let _ = descriptor::close(self.fd);
        }
    }
}

/// An event of the queue's own (EVFILT_USER).
struct UserEvent {
    queue: Arc<KqueueFd>,
    key: u64,
}

impl Wake for UserEvent {
    fn wake(&self) {
        // Adding an event that exists keeps its flags. Every change writes the key again.
        let flags = raw::EV_ADD | raw::EV_RECEIPT;
        let trigger = change(0, raw::EVFILT_USER, flags, raw::NOTE_TRIGGER, self.key);
        // The event exists for as long as the queue does, so this can only cause a wake-up.
        let _ = self.queue.make(&[trigger]);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::sys::fd::AsRawFd;

    /// A reused number is registered anew, despite old state and deferred changes. Events of its
    /// first owner are not reported, although another descriptor has the file open.
    #[test]
    fn a_closed_number_is_forgotten() {
        let mut selector = Kqueue::new(8).unwrap();
        let both = Ready::READABLE | Ready::WRITABLE;
        let (first, _peer) = UnixStream::pair().unwrap();
        let _kept = first.try_clone().unwrap();
        let fd = first.as_raw_fd();
        selector.add(fd, 1, both, Mode::Edge).unwrap();
        // The same change is deferred to the next wait.
        selector.modify(fd, 2, both, Mode::Edge).unwrap();
        assert_eq!(selector.later.len(), 2);
        selector.forget(fd);
        assert!(selector.later.is_empty() && !selector.known(fd).is_registered());
        drop(first);
        assert_eq!(selector.select(Some(0)).unwrap(), 0, "the kernel has forgotten it, too");
        let (second, _peer) = UnixStream::pair().unwrap();
        selector.add(second.as_raw_fd(), 3, both, Mode::Edge).unwrap();
        assert_eq!(selector.select(Some(0)).unwrap(), 1);
        assert_eq!(selector.event(0), (3, Ready::WRITABLE));
        // Forgetting an unknown number has no effect.
        selector.forget(1 << 20);
    }
}
