//! Closes descriptors without waiting: if close(2) may wait, a thread calls it.
//!
//! # Why
//!
//! A loop must not wait, and close(2) waits for the answer to FUSE's and NFS's FLUSH, for the
//! disk space of a removed file (seconds for a file of 60,000 extents), for a terminal that has
//! output left, and for the peer of a socket with `SO_LINGER`. io_uring's `IORING_OP_CLOSE` is no
//! way out: the last reference to a file is dropped when the call of the loop's own thread returns.
//!
//! The threads belong to the process and not to a driver, because a descriptor may outlive its
//! driver. A few of them end a burst of closes; a file system that never answers takes one thread
//! for each of its files, and a silent peer one for its socket, up to `MOST_THREADS`. A thread that
//! finds nothing more to do ends.
//!
//! A forked child has a copy of each descriptor that waits, and none of the threads. It closes the
//! copies when it next hands one over, or calls `close_inherited`.

#![allow(unsafe_code)]
//! # Safety
//!
//! The list of a process is never freed, so that references to it hold for ever.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::sys::fd::RawFd;
use crate::sys::types::SourceKind;
use crate::sys::{affinity, descriptor, fork, net};

/// The most threads that close files and devices at a time, and the most that close sockets. So
/// silent peers hold up no file. Threads that wait only sleep.
const MOST_THREADS: [usize; 2] = [32, 256];

/// The stack of such a thread, which only closes and tells the loop.
const STACK_BYTES: usize = 128 << 10;

/// How long a thread waits for the next descriptor before it ends.
const IDLE: Duration = Duration::from_millis(20);

/// Whether close(2) of a descriptor may wait. If `own`, no other code relies on its options, and
/// this call turns a socket's linger time off: then close(2) returns at once, and the system
/// goes on sending. (A linger time of zero stays, and close(2) resets the connection.)
pub(crate) fn may_wait(fd: RawFd, kind: SourceKind, own: bool) -> bool {
    match kind {
        SourceKind::File => true,
        SourceKind::Stream | SourceKind::OtherStream | SourceKind::Unknown => {
            match net::linger(fd) {
                Ok(0) => false,
                Ok(_) => !(own && net::set_linger(fd, None).is_ok()),
                // It is no socket.
                Err(libc::ENOTSOCK) => !descriptor::closes_at_once(fd),
                Err(_) => false,
            }
        }
        SourceKind::Pollable | SourceKind::SharedPollable => !descriptor::closes_at_once(fd),
        _ => false,
    }
}

thread_local! {
    /// The process, by the number of forks; and a value with a clone for each descriptor that this
    /// thread has handed over and that is still open.
    static HANDED_OVER: RefCell<(u32, Arc<()>)> = RefCell::default();
}

/// The value that counts what this thread has handed over; `None` in a thread that is ending. A
/// forked child begins with a new value.
fn handed_over() -> Option<Arc<()>> {
    let of_process = |counted: &RefCell<(u32, Arc<()>)>| {
        let (process, count) = &mut *counted.borrow_mut();
        if *process != fork::generation() {
            (*process, *count) = (fork::generation(), Arc::default());
        }
        Arc::clone(count)
    };
    HANDED_OVER.try_with(of_process).ok()
}

/// Closes a descriptor that the caller owns: here, or on a thread if that may wait.
pub(crate) fn close(fd: RawFd, kind: SourceKind) {
    if may_wait(fd, kind, false) {
        close_later(fd, None);
    } else {
        // An error of close(2) means nothing on what is no file.
        let _ = descriptor::close(fd);
    }
}

/// What is called on the closing thread, with the result of close(2).
pub(crate) type Closed = Box<dyn FnOnce(Result<(), i32>) + Send>;

/// Closes a descriptor that the caller owns, on a thread, which then calls `closed`.
pub(crate) fn close_later(fd: RawFd, closed: Option<Closed>) {
    let is_socket = net::linger(fd).is_ok();
    closer().hand_over(usize::from(is_socket), ToClose { fd, closed, owner: handed_over() });
}

/// In a forked child: closes what waited in the parent for a thread.
pub(crate) fn close_inherited() {
    closer();
}

/// Waits until the descriptors are closed that this thread has handed over, for `patience` at most.
pub(crate) fn settle(patience: Duration) {
    let Some(open) = handed_over() else { return };
    // The thread itself has one, and this call.
    let is_settled = || Arc::strong_count(&open) <= 2;
    if is_settled() {
        return;
    }
    let (closer, until) = (closer(), Instant::now() + patience);
    let mut lists = closer.lock();
    while !is_settled() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        let woken = closer.closed.wait_timeout(lists, left);
        lists = woken.unwrap_or_else(PoisonError::into_inner).0;
    }
}

/// A descriptor that waits for a thread to close it, what to call then, and the mark of the thread
/// that handed it over.
struct ToClose {
    fd: RawFd,
    closed: Option<Closed>,
    owner: Option<Arc<()>>,
}

impl ToClose {
    fn close(self) {
        let ToClose { fd, closed, owner } = self;
        let result = descriptor::close(fd);
        if let Some(closed) = closed {
            closed(result);
        }
        // Now `settle` need not wait for it.
        drop(owner);
    }
}

/// Descriptors that wait for a thread, and the threads for them.
#[derive(Default)]
struct List {
    waiting: VecDeque<ToClose>,
    threads: usize,
    /// How many of the threads have nothing to do.
    idle: usize,
}

/// The lists of a closer, which this thread has locked.
type Lists<'a> = MutexGuard<'a, [List; 2]>;

/// The threads of one process, and what they have to do.
#[derive(Default)]
struct Closer {
    /// For files and devices, and for sockets.
    lists: Mutex<[List; 2]>,
    more: [Condvar; 2],
    closed: Condvar,
    /// The process, by the number of forks.
    process: u32,
}

/// The closer of this process. A forked child gets a new one: it has none of its parent's threads,
/// and one of them may have held the lock.
fn closer() -> &'static Closer {
    static CURRENT: AtomicPtr<Closer> = AtomicPtr::new(ptr::null_mut());
    fork::watch();
    let process = fork::generation();
    let mut current = CURRENT.load(Ordering::Acquire);
    loop {
        // SAFETY: null, or a closer that is never freed.
        let parents = unsafe { current.as_ref() };
        if let Some(closer) = parents
            && closer.process == process
        {
            return closer;
        }
        let new = Box::into_raw(Box::new(Closer { process, ..Closer::default() }));
        match CURRENT.compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => {
                current = new;
                // SAFETY: made right here, and never freed.
                parents.into_iter().for_each(|parents| unsafe { &*new }.inherit(parents));
            }
            Err(other) => {
                // SAFETY: it was made right here, and no other thread has seen it.
                drop(unsafe { Box::from_raw(new) });
                current = other;
            }
        }
    }
}

impl Closer {
    /// No foreign code runs under the lock, so it is never poisoned.
    fn lock(&self) -> Lists<'_> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes the child's copies of the descriptors that waited in the parent. Only the parent's
    /// drivers take the results. If a thread of the parent held the lock at the fork, the lists may
    /// be half changed: then the copies stay open.
    fn inherit(&'static self, parents: &Closer) {
        let Ok(mut lists) = parents.lists.try_lock() else { return };
        for (which, list) in lists.iter_mut().enumerate() {
            for ToClose { fd, closed, owner } in list.waiting.drain(..) {
                std::mem::forget((closed, owner));
                self.hand_over(which, ToClose { fd, closed: None, owner: None });
            }
        }
    }

    fn hand_over(&'static self, which: usize, fd: ToClose) {
        let mut lists = self.lock();
        let list = &mut lists[which];
        list.waiting.push_back(fd);
        if list.waiting.len() <= list.idle {
            drop(lists);
            return self.more[which].notify_one();
        }
        if list.threads == MOST_THREADS[which] {
            return;
        }
        list.threads += 1;
        drop(lists);
        // The thread of a loop may be bound to one processor.
        let unbind = affinity::unbind_of();
        let thread = thread::Builder::new().name("windlass-close".into()).stack_size(STACK_BYTES);
        let spawned = thread.spawn(move || {
            unbind();
            self.work(which);
        });
        if spawned.is_err() {
            self.do_without(which);
        }
    }

    /// The system gives no thread. If no other thread is left, the caller closes what waits: open
    /// descriptors would be the worse fault.
    #[cold]
    fn do_without(&self, which: usize) {
        let mut lists = self.lock();
        lists[which].threads -= 1;
        let mut is_left = true;
        while is_left && lists[which].threads == 0 {
            (lists, is_left) = self.close_next(lists, which);
        }
    }

    /// Closes what has waited longest, without the lock. Whether there was anything.
    fn close_next<'a>(&'a self, mut lists: Lists<'a>, which: usize) -> (Lists<'a>, bool) {
        let Some(next) = lists[which].waiting.pop_front() else { return (lists, false) };
        drop(lists);
        next.close();
        lists = self.lock();
        self.closed.notify_all();
        (lists, true)
    }

    /// A thread closes what waits, until nothing has come for a while.
    fn work(&self, which: usize) {
        let mut lists = self.lock();
        loop {
            let was_left;
            (lists, was_left) = self.close_next(lists, which);
            if was_left {
                continue;
            }
            lists[which].idle += 1;
            let woken = self.more[which].wait_timeout(lists, IDLE);
            let (guard, late) = woken.unwrap_or_else(PoisonError::into_inner);
            lists = guard;
            let list = &mut lists[which];
            list.idle -= 1;
            if late.timed_out() && list.waiting.is_empty() {
                list.threads -= 1;
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(unix)]
    #[cfg_attr(miri, ignore = "Miri has no SO_LINGER")]
    fn only_what_may_wait_is_closed_elsewhere() {
        use crate::sys::fd::AsRawFd;
        let unknown = |fd: &dyn AsRawFd| may_wait(fd.as_raw_fd(), SourceKind::Unknown, false);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert!(!unknown(&listener) && !unknown(&socket));
        for (seconds, waits) in [(Some(0), false), (Some(9), true), (None, false)] {
            net::set_linger(socket.as_raw_fd(), seconds).unwrap();
            assert_eq!(unknown(&socket), waits, "{seconds:?}");
        }
        net::set_linger(socket.as_raw_fd(), Some(9)).unwrap();
        assert!(!may_wait(socket.as_raw_fd(), SourceKind::Stream, true));
        assert_eq!(net::linger(socket.as_raw_fd()), Ok(0), "it lingers no more");
        let (reader, writer) = std::io::pipe().unwrap();
        assert!(!unknown(&reader) && !unknown(&writer));
        let null = std::fs::File::open("/dev/null").unwrap();
        assert!(unknown(&null), "a device may have output left");
        assert!(unknown(&std::fs::File::open(std::env::current_exe().unwrap()).unwrap()));
        assert!(!may_wait(-1, SourceKind::Unknown, false));
    }

    #[test]
    #[cfg(unix)]
    #[cfg_attr(miri, ignore = "Miri reports threads that outlive the test")]
    fn a_burst_is_closed_and_counted() {
        use crate::sys::fd::IntoRawFd;
        for _ in 0..200 {
            let file = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
            close_later(file.into_raw_fd(), None);
        }
        // It has no other bound than the system's.
        settle(Duration::from_secs(60));
        assert_eq!(Arc::strong_count(&handed_over().unwrap()), 2);
    }

    /// A child kept what waited in its parent for a thread open, for ever.
    #[test]
    #[cfg(unix)]
    #[cfg_attr(miri, ignore = "Miri cannot fork")]
    fn a_child_closes_what_waited_in_its_parent() {
        use crate::sys::fd::IntoRawFd;
        // A socket: other tests hand files over, and their threads must not take it.
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().into_raw_fd();
        // A process of its own, in which all threads that close are busy.
        let said = fork::said_by_a_child(|| {
            closer().lock()[1].threads = MOST_THREADS[1];
            close_later(socket, None);
            let is_open = || descriptor::is_nonblocking(socket).is_ok();
            let said = fork::said_by_a_child(|| {
                let waited = is_open();
                close_inherited();
                // The alarm ends it.
                while is_open() {
                    thread::yield_now();
                }
                waited
            });
            is_open() && said.is_none_or(|said| said)
        });
        assert!(said.is_none_or(|said| said));
        descriptor::close(socket).unwrap();
    }
}
