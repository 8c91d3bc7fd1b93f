//! Signals as a descriptor that becomes readable: handlers that set bits and write to an eventfd
//! or a pipe.
//!
//! signalfd(2) would need blocked signals. A handler does not: other threads, and the programs that
//! the process starts, keep their masks. Each [`Signals`] has a [`Node`] in a list that the handler
//! walks, so each one gets each signal. The first `Signals` for a signal installs the handler, and
//! the last one restores the disposition of before. The handler calls the one that it has replaced.
//!
//! (H1) A node is never freed. Its descriptor is closed only when its mask is empty and no handler
//! is inside it, so that no handler writes to a number that belongs to another file.
//! (H2) The handler sets a bit before it writes the descriptor. The loop drains the descriptor
//! before its last look at the bits. So a signal that this look misses makes an edge.
//! (H3) A forked child shares the descriptor with its parent. Until [`Signals::renew`] the child's
//! handler only sets bits, so that it does not wake the parent.

#![allow(unsafe_code)]
//! # Safety
//!
//! The handler makes only async-signal-safe calls: atomics, write(2), and the handler that it has
//! replaced. `HandlerTable` is only touched by the holder of the lock, which fork(2) takes first.

use std::cell::UnsafeCell;
use std::ptr;
use std::sync::Once;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64};

pub(crate) use libc::{
    SIGALRM, SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2,
    SIGWINCH,
};
use libc::{c_int, c_void, siginfo_t};
use nix::errno::Errno;

use crate::sys::fd::RawFd;
use crate::sys::wake_fd::WakeFd;
use crate::sys::{cvt, fork, os_errno};

/// The highest number of a signal: one bit each.
const LAST: usize = 64;

/// The state that a [`Signals`] shares with the handler.
struct Node {
    next: *const Node,
    /// A `Signals` uses it.
    taken: AtomicBool,
    /// The signals of the source, and those that wait in it: bit 0 is signal 1.
    wanted: AtomicU64,
    pending: AtomicU64,
    /// The descriptor to write to, and the process that it belongs to (H3).
    writer: AtomicI32,
    forks: AtomicU32,
    /// How many handlers are using the node.
    inside: AtomicU32,
}

// SAFETY: the pointer never changes after the node is in the list; the rest are atomics.
unsafe impl Sync for Node {}

/// The head of the list of nodes.
static NODES: AtomicPtr<Node> = AtomicPtr::new(ptr::null_mut());

/// The handlers that ours has replaced, by signal: the address or 0, and [`WITH_INFO`]. One atomic
/// has both, because a handler may run at any time.
static REPLACED: [AtomicU64; LAST + 1] = [const { AtomicU64::new(0) }; LAST + 1];

/// The handler takes three arguments. No address of a program has this bit.
const WITH_INFO: u64 = 1 << 63;

extern "C" fn handler(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let errno = Errno::last_raw();
    let bit = 1u64 << (signal as usize - 1);
    let mut node = NODES.load(SeqCst).cast_const();
    // SAFETY: a node is never freed (H1).
    while let Some(this) = unsafe { node.as_ref() } {
        node = this.next;
        if this.wanted.load(SeqCst) & bit == 0 {
            continue;
        }
        this.inside.fetch_add(1, SeqCst);
        if this.wanted.load(SeqCst) & bit != 0 {
            let before = this.pending.fetch_or(bit, SeqCst);
            if before == 0 && this.forks.load(SeqCst) == fork::generation() {
                wake(this.writer.load(SeqCst));
            }
        }
        this.inside.fetch_sub(1, SeqCst);
    }
    let (function, with_info) = replaced_handler(signal as usize);
    if function != 0 && with_info {
        type Handler = extern "C" fn(c_int, *mut siginfo_t, *mut c_void);
        // SAFETY: the program installed it with SA_SIGINFO, so that it has this type.
        let function = unsafe { std::mem::transmute::<usize, Handler>(function) };
        function(signal, info, context);
    } else if function != 0 {
        // SAFETY: the program installed it without SA_SIGINFO, so that it has this type.
        let function = unsafe { std::mem::transmute::<usize, extern "C" fn(c_int)>(function) };
        function(signal);
    }
    Errno::set_raw(errno);
}

/// The handler that ours has replaced: its address or 0, and whether it takes three arguments.
fn replaced_handler(signal: usize) -> (usize, bool) {
    let replaced = REPLACED[signal].load(SeqCst);
    ((replaced & !WITH_INFO) as usize, replaced & WITH_INFO != 0)
}

/// Makes a descriptor readable. (If the write finds it full, it is readable already.)
fn wake(fd: RawFd) {
    let one = 1u64.to_ne_bytes();
    // SAFETY: eight bytes of a local.
    unsafe { libc::write(fd, one.as_ptr().cast(), one.len()) };
}

/// The installed handlers, by signal.
struct HandlerTable {
    /// How many `Signals` have the signal.
    users: [u32; LAST + 1],
    /// Our handler is installed, perhaps below one that other code has installed since.
    ours: [bool; LAST + 1],
    replaced: [Option<libc::sigaction>; LAST + 1],
}

struct SharedHandlers(UnsafeCell<HandlerTable>);

// SAFETY: only the holder of the lock touches it.
unsafe impl Sync for SharedHandlers {}

static TABLE: SharedHandlers = SharedHandlers(UnsafeCell::new(HandlerTable {
    users: [0; LAST + 1],
    ours: [false; LAST + 1],
    replaced: [None; LAST + 1],
}));

/// The lock of the table. std has no lock that could be held across fork(2).
static LOCKED: AtomicBool = AtomicBool::new(false);

extern "C" fn lock() {
    while LOCKED.swap(true, SeqCst) {
        std::thread::yield_now();
    }
}

extern "C" fn unlock() {
    LOCKED.store(false, SeqCst);
}

/// Runs `change` on the table.
fn with_table<T>(change: impl FnOnce(&mut HandlerTable) -> T) -> T {
    struct Unlock;
    impl Drop for Unlock {
        fn drop(&mut self) {
            unlock();
        }
    }
    static AROUND_FORKS: Once = Once::new();
    AROUND_FORKS.call_once(|| {
        // SAFETY: the two functions only use an atomic. If the call fails (no memory), a child may
        // inherit a lock that is held.
        unsafe { libc::pthread_atfork(Some(lock), Some(unlock), Some(unlock)) };
    });
    lock();
    let _unlock = Unlock;
    // SAFETY: this thread has the lock.
    change(unsafe { &mut *TABLE.0.get() })
}

/// The current disposition of a signal.
fn disposition(signal: i32) -> Result<libc::sigaction, i32> {
    // SAFETY: all zeroes is a valid `sigaction`.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: nothing is set; the action lives across the call.
    cvt!(unsafe { libc::sigaction(signal, ptr::null(), &mut action) }).map_err(errno)?;
    Ok(action)
}

fn errno(error: std::io::Error) -> i32 {
    os_errno(&error).unwrap_or(libc::EIO)
}

fn our_function() -> usize {
    handler as *const () as usize
}

/// Whether the disposition is a handler.
fn is_function(action: &libc::sigaction) -> bool {
    !matches!(action.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN)
}

impl HandlerTable {
    /// Adds a user of the signal.
    fn join(&mut self, signal: i32) -> Result<(), i32> {
        let at = signal as usize;
        if self.users[at] == 0 {
            self.install(signal)?;
        }
        self.users[at] += 1;
        Ok(())
    }

    fn install(&mut self, signal: i32) -> Result<(), i32> {
        let at = signal as usize;
        let now = disposition(signal)?;
        if self.ours[at] && is_function(&now) {
            // The handler is ours, or one installed above ours, which calls the one that it has
            // replaced.
            return Ok(());
        }
        let mut action = now;
        action.sa_sigaction = our_function();
        let child = libc::SA_NOCLDSTOP | libc::SA_NOCLDWAIT;
        let kept =
            if is_function(&now) { child | libc::SA_RESTART | libc::SA_NODEFER } else { child };
        // Interrupted calls of other threads go on, unless the program's own handler ends them.
        let restart = if is_function(&now) { 0 } else { libc::SA_RESTART };
        action.sa_flags = now.sa_flags & kept | restart | libc::SA_SIGINFO | libc::SA_ONSTACK;
        if signal == libc::SIGCHLD && now.sa_sigaction == libc::SIG_IGN {
            // A process that ignores SIGCHLD has no zombies (sigaction(2)): keep it so.
            action.sa_flags |= libc::SA_NOCLDWAIT;
        }
        HandlerTable::call_after(at, &now);
        // SAFETY: all zeroes is a valid `sigaction`.
        let mut replaced: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: the handler is async-signal-safe; both actions live across the call.
        cvt!(unsafe { libc::sigaction(signal, &action, &mut replaced) }).map_err(errno)?;
        if replaced.sa_sigaction != now.sa_sigaction {
            // Another thread has installed this handler meanwhile.
            HandlerTable::call_after(at, &replaced);
        }
        self.replaced[at] = Some(replaced);
        self.ours[at] = true;
        Ok(())
    }

    /// Makes our handler call this one from now on.
    fn call_after(at: usize, replaced: &libc::sigaction) {
        let function = if is_function(replaced) { replaced.sa_sigaction as u64 } else { 0 };
        let with_info = replaced.sa_flags & libc::SA_SIGINFO != 0;
        REPLACED[at].store(function | if with_info { WITH_INFO } else { 0 }, SeqCst);
    }

    /// Removes a user of the signal: the last one restores the disposition of before. If other code
    /// has installed a handler above ours, both stay: that handler calls ours, and ours calls the
    /// one that it has replaced.
    fn leave(&mut self, signal: i32) {
        let at = signal as usize;
        self.users[at] -= 1;
        if self.users[at] > 0 {
            return;
        }
        let Ok(now) = disposition(signal) else { return };
        if now.sa_sigaction == our_function()
            && let Some(replaced) = &self.replaced[at]
        {
            // SAFETY: the program had set this action itself.
            unsafe { libc::sigaction(signal, replaced, ptr::null_mut()) };
            self.ours[at] = false;
        } else if !is_function(&now) {
            self.ours[at] = false;
        }
    }
}

/// Takes a free node of the list, or adds a new one.
fn node() -> &'static Node {
    let mut next = NODES.load(SeqCst).cast_const();
    // SAFETY: a node is never freed (H1).
    while let Some(node) = unsafe { next.as_ref() } {
        if !node.taken.swap(true, SeqCst) {
            node.pending.store(0, SeqCst);
            return node;
        }
        next = node.next;
    }
    let node = Box::leak(Box::new(Node {
        next: NODES.load(SeqCst),
        taken: AtomicBool::new(true),
        wanted: AtomicU64::new(0),
        pending: AtomicU64::new(0),
        writer: AtomicI32::new(-1),
        forks: AtomicU32::new(0),
        inside: AtomicU32::new(0),
    }));
    loop {
        let head = node.next.cast_mut();
        match NODES.compare_exchange(head, node, SeqCst, SeqCst) {
            Ok(_) => return node,
            Err(other) => node.next = other,
        }
    }
}

/// Signals of the process, as a descriptor that is readable when one has come.
pub(crate) struct Signals {
    node: &'static Node,
    fd: WakeFd,
    wanted: u64,
}

impl Signals {
    /// Receives these signals from now on; they lose their default effects.
    ///
    /// # Errors
    /// `EINVAL`: the list is empty, or has a signal that does not exist, cannot be handled
    /// (SIGKILL, SIGSTOP) or must not return from its handler (SIGSEGV …). `EMFILE`, `ENFILE`.
    pub(crate) fn new(signals: &[i32]) -> Result<Signals, i32> {
        let wanted = set_of(signals)?;
        fork::watch();
        let fd = WakeFd::new().map_err(errno)?;
        let node = node();
        node.writer.store(fd.writer(), SeqCst);
        node.forks.store(fork::generation(), SeqCst);
        // Before the handlers below are installed, so that they find the signals wanted.
        node.wanted.store(wanted, SeqCst);
        let mut this = Signals { node, fd, wanted: 0 };
        for signal in numbers(wanted) {
            // After an error, the drop of `this` removes the signals that have joined.
            with_table(|table| table.join(signal))?;
            this.wanted |= 1u64 << (signal - 1);
        }
        Ok(this)
    }

    pub(crate) fn raw(&self) -> RawFd {
        self.fd.raw()
    }

    /// Takes a signal: if several wait, the one with the lowest number.
    pub(crate) fn take(&self) -> Option<i32> {
        self.take_pending().or_else(|| {
            self.fd.drain();
            self.take_pending()
        })
    }

    fn take_pending(&self) -> Option<i32> {
        let signal = numbers(self.node.pending.load(SeqCst)).next()?;
        self.node.pending.fetch_and(!(1u64 << (signal - 1)), SeqCst);
        Some(signal)
    }

    /// In a forked child: replaces the descriptor by a new one with the same number. Keeps the
    /// signals that have come to the child since the fork.
    ///
    /// # Errors
    /// The errno: no descriptor is left.
    pub(crate) fn renew(&mut self) -> Result<(), i32> {
        let old = self.node;
        if old.forks.load(SeqCst) == fork::generation() {
            return Ok(());
        }
        self.fd.renew().map_err(errno)?;
        // The count `inside` of the old node may stay above 0 for ever: the fork may have come
        // while a handler ran on a thread that the child does not have.
        let node = node();
        node.writer.store(self.fd.writer(), SeqCst);
        node.forks.store(fork::generation(), SeqCst);
        node.wanted.store(self.wanted, SeqCst);
        old.wanted.store(0, SeqCst);
        self.node = node;
        let pending = old.pending.load(SeqCst);
        if pending != 0 && node.pending.fetch_or(pending, SeqCst) == 0 {
            wake(self.fd.writer());
        }
        Ok(())
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for signal in numbers(self.wanted) {
            with_table(|table| table.leave(signal));
        }
        self.node.wanted.store(0, SeqCst);
        if self.node.forks.load(SeqCst) == fork::generation() {
            // A handler takes no lock and does not wait, so this loop ends soon.
            while self.node.inside.load(SeqCst) != 0 {
                std::thread::yield_now();
            }
            self.node.taken.store(false, SeqCst);
        }
    }
}

/// A set of signals that can be handled, at least one.
///
/// # Errors
/// `EINVAL`.
pub(crate) fn set_of(signals: &[i32]) -> Result<u64, i32> {
    // The first two cannot be handled. A program cannot return from handlers of the others.
    const NEVER: [i32; 6] =
        [libc::SIGKILL, libc::SIGSTOP, libc::SIGILL, libc::SIGFPE, libc::SIGSEGV, libc::SIGBUS];
    let mut set = 0;
    for signal in signals {
        if !(1..=LAST as i32).contains(signal) || NEVER.contains(signal) {
            return Err(libc::EINVAL);
        }
        set |= 1u64 << (signal - 1);
    }
    if set == 0 { Err(libc::EINVAL) } else { Ok(set) }
}

/// The numbers of a set of signals, the lowest first.
fn numbers(mut set: u64) -> impl Iterator<Item = i32> {
    std::iter::from_fn(move || {
        let lowest = set.trailing_zeros();
        set &= set.wrapping_sub(1);
        (lowest < 64).then_some(lowest as i32 + 1)
    })
}

#[cfg(test)]
mod tests {
    use libc::SIGURG;

    use super::*;

    /// H1: a handler may be between its look at the mask and its write.
    #[test]
    #[cfg_attr(miri, ignore = "it has no signals")]
    fn the_descriptor_outlives_the_handlers_inside() {
        static LEFT: AtomicBool = AtomicBool::new(false);
        let signals = Signals::new(&[SIGWINCH]).unwrap();
        let node = signals.node;
        node.inside.fetch_add(1, SeqCst);
        let handler = std::thread::spawn(move || {
            // The drop has begun, and has reached its wait or is about to.
            while node.wanted.load(SeqCst) != 0 {
                std::thread::yield_now();
            }
            for _ in 0..1000 {
                std::thread::yield_now();
            }
            LEFT.store(true, SeqCst);
            node.inside.fetch_sub(1, SeqCst);
        });
        drop(signals);
        assert!(LEFT.load(SeqCst), "closed under a handler");
        handler.join().unwrap();
    }

    /// A signal that came while another thread changed what was replaced could call a handler of
    /// one kind as one of the other, whose second argument is a wild pointer.
    #[test]
    #[cfg_attr(miri, ignore = "two threads race")]
    fn a_replaced_handler_is_called_as_what_it_is() {
        static DONE: AtomicBool = AtomicBool::new(false);
        // No test raises it: these handlers are no functions.
        let at = libc::SIGVTALRM as usize;
        // SAFETY: all zeroes is a valid `sigaction`.
        let mut plain: libc::sigaction = unsafe { std::mem::zeroed() };
        plain.sa_sigaction = 0x1000;
        let mut with_info = plain;
        (with_info.sa_sigaction, with_info.sa_flags) = (0x2000, libc::SA_SIGINFO);
        let reader = std::thread::spawn(move || {
            let all = (0..3_000_000).map(|_| replaced_handler(at));
            let torn =
                all.filter(|read| !matches!(read, (0, _) | (0x1000, false) | (0x2000, true)));
            let count = torn.count();
            DONE.store(true, SeqCst);
            count
        });
        while !DONE.load(SeqCst) {
            HandlerTable::call_after(at, &plain);
            HandlerTable::call_after(at, &with_info);
        }
        // SAFETY: all zeroes is the default disposition.
        HandlerTable::call_after(at, &unsafe { std::mem::zeroed() });
        assert_eq!(reader.join().unwrap(), 0, "reads of halves");
    }

    #[test]
    fn sets_are_read_from_the_lowest_signal_on() {
        let set = set_of(&[64, 3, 1, 3]).unwrap();
        assert_eq!(numbers(set).collect::<Vec<_>>(), [1, 3, 64]);
        assert_eq!(numbers(0).next(), None);
        for signal in [0, -1, 65, libc::SIGKILL, libc::SIGSEGV] {
            assert_eq!(set_of(&[1, signal]), Err(libc::EINVAL));
        }
    }

    /// H2: after the last signal was taken the descriptor is not readable, so the next one makes an
    /// edge.
    #[test]
    #[cfg_attr(miri, ignore = "it has no signals")]
    fn a_descriptor_is_readable_until_nothing_is_pending() {
        let readable = |fd| {
            let on = crate::sys::interest::Ready::READABLE;
            !crate::sys::descriptor::poll_now(fd, on).unwrap().is_empty()
        };
        let signals = Signals::new(&[SIGURG, SIGWINCH]).unwrap();
        assert!(!readable(signals.raw()) && signals.take().is_none());
        for _ in 0..3 {
            for signal in [SIGURG, SIGWINCH] {
                // SAFETY: no memory is passed.
                assert_eq!(unsafe { libc::raise(signal) }, 0);
            }
            assert!(readable(signals.raw()));
            let both = [signals.take(), signals.take()].map(|signal| signal.unwrap());
            assert!(both.contains(&SIGURG) && both.contains(&SIGWINCH));
            assert_eq!(signals.take(), None);
            assert!(!readable(signals.raw()), "it is drained");
        }
    }
}
