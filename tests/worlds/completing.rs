//! A completing kernel: the simulated kernel, but reads and writes of streams start as on a ring
//! and are answered later, with faults of their own.
//!
//! The kernel tries a started operation at its time, and again after a failed try. An answer may be
//! short, interrupted, without a buffer, or the last of a multishot read. A stop request may find
//! nothing, or come too late. A registration may end by itself. The seed decides each fault, and
//! each is counted.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::sync::Arc;

use windlass::driver::remote::Wake;
use windlass::driver::swap::Pool;
use windlass::driver::{Explain, Target};
use windlass::kernel::{Answer, Connecting, Kernel, Received, Started};
use windlass::net::{DatagramOptions, ListenOptions, SocketOption};
use windlass::sim::Sim;
use windlass::{Address, Buf, Handle, Ready, Reason, SourceKind};

/// How often each fault was injected.
pub type Counts = Rc<RefCell<BTreeMap<&'static str, u64>>>;

/// All faults.
const FAULTS: [&str; 8] = [
    "short completion",
    "interrupted completion",
    "no buffer",
    "multishot ends",
    "stop finds nothing",
    "stop is too late",
    "late completion",
    "registration ends",
];

enum What {
    /// Reads into this memory or a buffer of the pool; repeatedly if multishot.
    Recv {
        to: Option<(*mut u8, usize)>,
        multishot: bool,
    },
    Send {
        parts: Vec<(*const u8, usize)>,
    },
}

struct Begun {
    key: u64,
    fd: RawFd,
    what: What,
    due_ns: u64,
    /// The wait after the next failed try.
    pause_ns: u64,
    stopped: bool,
}

impl Begun {
    fn is_write(&self) -> bool {
        matches!(self.what, What::Send { .. })
    }
}

/// The answers of the current `select`, after the simulation's own events.
enum Event {
    /// The started operation with this key, if it still exists.
    Try { key: u64, write: bool },
    /// A report about a stop request, or a registration.
    Word { key: u64, write: bool, word: isize },
}

pub struct Completing {
    sim: Sim,
    random: u64,
    /// One fault in `every` chances; 0: none.
    every: u64,
    begun: Vec<Begun>,
    words: Vec<(u64, bool, isize)>,
    registered: Vec<(u64, RawFd)>,
    own: usize,
    events: Vec<Event>,
    counts: Counts,
}

impl Completing {
    pub fn new(sim: &Sim, seed: u64, every: u64) -> (Completing, Counts) {
        let counts: Counts = Rc::new(RefCell::new(FAULTS.map(|fault| (fault, 0)).into()));
        let kernel = Completing {
            sim: sim.clone(),
            random: seed,
            every,
            begun: Vec::new(),
            words: Vec::new(),
            registered: Vec::new(),
            own: 0,
            events: Vec::new(),
            counts: Rc::clone(&counts),
        };
        (kernel, counts)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }

    /// Whether this fault happens now.
    fn hits(&mut self, fault: &'static str) -> bool {
        let hit = self.every > 0 && self.below(self.every) == 0;
        if hit {
            *self.counts.borrow_mut().get_mut(fault).expect("it is in the list") += 1;
        }
        hit
    }

    fn begin(&mut self, key: u64, fd: RawFd, what: What) -> Started {
        let late = self.hits("late completion");
        let delay = if late { 1 + self.below(300_000) } else { 0 };
        let due_ns = self.sim.now_ns() + delay;
        self.begun.push(Begun { key, fd, what, due_ns, pause_ns: 1_000, stopped: false });
        Started::Yes
    }

    fn at(&self, key: u64, write: bool) -> Option<usize> {
        self.begun.iter().position(|op| op.key == key && op.is_write() == write)
    }

    /// Tries a started operation; `None` if it goes on waiting.
    fn attempt(&mut self, at: usize, pool: &mut Pool) -> Option<Answer> {
        let (key, fd) = (self.begun[at].key, self.begun[at].fd);
        let write = self.begun[at].is_write();
        let whole = |moved| Answer { key, write, moved, data: Buf::default(), more: false };
        if self.hits("interrupted completion") {
            self.begun.swap_remove(at);
            return Some(whole(-(libc::EINTR as isize)));
        }
        let most =
            if self.hits("short completion") { 1 + self.below(40) as usize } else { usize::MAX };
        let mut data = Buf::default();
        let mut repeats = false;
        let moved = match &self.begun[at].what {
            What::Send { parts } => {
                // SAFETY: the proactor keeps the memory until the answer.
                let part = |&(start, len): &(*const u8, usize)| unsafe {
                    IoSlice::new(std::slice::from_raw_parts(start, len.min(most)))
                };
                // A cut part must be the last.
                let count = if most == usize::MAX { parts.len() } else { 1 };
                let parts: Vec<IoSlice<'_>> = parts[..count].iter().map(part).collect();
                self.sim.send_vectored(fd, SourceKind::Stream, &parts)
            }
            &What::Recv { to: Some((start, len)), .. } => {
                // SAFETY: as above.
                let to = unsafe { Target::from_raw(start, len.min(most)) };
                self.sim.recv(fd, SourceKind::Stream, to).moved
            }
            &What::Recv { to: None, multishot } => {
                repeats = multishot;
                let room = pool.space().map(|(_, room)| room as usize);
                if room.is_none() || self.hits("no buffer") {
                    self.begun.swap_remove(at);
                    return Some(whole(-(libc::ENOBUFS as isize)));
                }
                let mut bytes = vec![0; room.unwrap_or(0).min(most)];
                let moved =
                    self.sim.recv(fd, SourceKind::Stream, Target::from_slice(&mut bytes)).moved;
                if moved > 0 {
                    let lease = pool.copy(&bytes[..moved as usize]).expect("there was room");
                    assert_eq!(lease.len(), moved as usize);
                    data = lease.into();
                }
                moved
            }
        };
        let op = &mut self.begun[at];
        if moved == -(libc::EAGAIN as isize) {
            let stopped = op.stopped;
            op.due_ns = self.sim.now_ns() + op.pause_ns;
            op.pause_ns = (op.pause_ns * 2).min(2_000_000);
            if stopped {
                self.begun.swap_remove(at);
                return Some(whole(-(libc::ECANCELED as isize)));
            }
            return None;
        }
        let more = moved > 0 && repeats && !op.stopped && !self.hits("multishot ends");
        if more {
            let pause = self.below(5_000);
            let op = &mut self.begun[at];
            (op.due_ns, op.pause_ns) = (self.sim.now_ns() + pause, 1_000);
        } else {
            self.begun.swap_remove(at);
        }
        Some(Answer { data, more, ..whole(moved) })
    }
}

// SAFETY: the simulation writes the bytes that it answers, part by part, and forgets a started
// operation with its last answer.
unsafe impl Kernel for Completing {
    const COMPLETES: bool = true;

    fn name(&self) -> &'static str {
        "sim"
    }

    fn start(&mut self) -> u32 {
        self.sim.start()
    }

    fn now_ns(&self) -> u64 {
        self.sim.now_ns()
    }

    fn turn(&mut self) {
        self.sim.turn();
    }

    fn select(&mut self, timeout_ns: Option<u64>) -> io::Result<usize> {
        self.events.clear();
        let now_ns = self.sim.now_ns();
        let until_ns = timeout_ns.map(|span| now_ns.saturating_add(span));
        if !self.registered.is_empty() && self.hits("registration ends") {
            let which = self.below(self.registered.len() as u64) as usize;
            let (key, fd) = self.registered.swap_remove(which);
            self.sim.deregister(fd, key);
            self.words.push((key, false, Answer::POLL_ENDED));
        }
        loop {
            let now_ns = self.sim.now_ns();
            for (key, write, word) in self.words.drain(..) {
                self.events.push(Event::Word { key, write, word });
            }
            for op in self.begun.iter().filter(|op| op.due_ns <= now_ns) {
                self.events.push(Event::Try { key: op.key, write: op.is_write() });
            }
            if !self.events.is_empty() {
                self.own = self.sim.select(Some(0))?;
                return Ok(self.own + self.events.len());
            }
            let next_ns = self.begun.iter().map(|op| op.due_ns).min();
            let wake_ns = match (until_ns, next_ns) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
            self.own = self.sim.select(wake_ns.map(|at| at.saturating_sub(now_ns)))?;
            if self.own > 0 || until_ns.is_some_and(|until| self.sim.now_ns() >= until) {
                return Ok(self.own);
            }
        }
    }

    fn event(&self, i: usize) -> (u64, Ready) {
        self.sim.event(i)
    }

    fn answer(&mut self, i: usize, pool: &mut Pool) -> Option<Answer> {
        let nothing = Answer { key: 0, write: false, moved: 0, data: Buf::default(), more: false };
        match *self.events.get(i.checked_sub(self.own)?)? {
            Event::Word { key, write, word } => Some(Answer { key, write, moved: word, ..nothing }),
            Event::Try { key, write } => {
                let answer = self.at(key, write).and_then(|at| self.attempt(at, pool));
                Some(answer.unwrap_or(nothing))
            }
        }
    }

    fn start_recv(
        &mut self,
        fd: RawFd,
        key: u64,
        to: Option<Target<'_>>,
        multishot: bool,
        pool: &mut Pool,
    ) -> Started {
        if to.is_none() && self.buffers(pool) == 0 {
            return Started::Starved;
        }
        let to = to.map(|mut to| (to.as_mut_ptr(), to.len()));
        self.begin(key, fd, What::Recv { to, multishot })
    }

    fn start_send(&mut self, fd: RawFd, key: u64, parts: &[IoSlice<'_>]) -> Started {
        let parts = parts.iter().map(|part| (part.as_ptr(), part.len())).collect();
        self.begin(key, fd, What::Send { parts })
    }

    fn stop(&mut self, key: u64, write: bool) {
        if self.hits("stop finds nothing") {
            return self.words.push((key, write, Answer::NOT_STOPPED));
        }
        let late = self.hits("stop is too late");
        let now_ns = self.sim.now_ns();
        if let Some(at) = self.at(key, write) {
            let op = &mut self.begun[at];
            (op.stopped, op.due_ns) = (true, now_ns + if late { 50_000 } else { 0 });
            if late {
                self.words.push((key, write, Answer::STOPPING));
            }
        }
    }

    fn register(&mut self, fd: RawFd, key: u64, writes: bool, again: bool) -> Result<(), i32> {
        if !again {
            self.registered.push((key, fd));
        }
        self.sim.register(fd, key, writes, again)
    }

    fn deregister(&mut self, fd: RawFd, key: u64) {
        self.registered.retain(|(other, _)| *other != key);
        self.sim.deregister(fd, key);
    }

    fn waker(&self) -> Arc<dyn Wake> {
        self.sim.waker()
    }

    fn accepts(&self, handle: &Handle) -> bool {
        self.sim.accepts(handle)
    }

    fn prepare(
        &mut self,
        fd: RawFd,
        kind: SourceKind,
        shared: bool,
    ) -> Result<(SourceKind, bool), Reason> {
        self.sim.prepare(fd, kind, shared)
    }

    fn restore(&mut self, fd: RawFd) {
        self.sim.restore(fd);
    }

    fn close(&mut self, fd: RawFd) {
        assert!(self.begun.iter().all(|op| op.fd != fd), "closed under what is begun");
        self.sim.close(fd);
    }

    fn release(&mut self, fd: RawFd, kind: SourceKind) -> Handle {
        self.sim.release(fd, kind)
    }

    fn recv(&mut self, fd: RawFd, kind: SourceKind, to: Target<'_>) -> Received {
        self.sim.recv(fd, kind, to)
    }

    fn send(&mut self, fd: RawFd, kind: SourceKind, bytes: &[u8]) -> isize {
        self.sim.send(fd, kind, bytes)
    }

    fn recv_vectored(&mut self, fd: RawFd, kind: SourceKind, to: &mut [Target<'_>]) -> Received {
        self.sim.recv_vectored(fd, kind, to)
    }

    fn send_vectored(&mut self, fd: RawFd, kind: SourceKind, parts: &[IoSlice<'_>]) -> isize {
        self.sim.send_vectored(fd, kind, parts)
    }

    fn recv_from(&mut self, fd: RawFd, to: &mut [Target<'_>], from: &mut Address) -> Received {
        self.sim.recv_from(fd, to, from)
    }

    fn send_to(&mut self, fd: RawFd, bytes: &[u8], to: &Address) -> isize {
        self.sim.send_to(fd, bytes, to)
    }

    fn recv_descriptors(
        &mut self,
        fd: RawFd,
        to: &mut [Target<'_>],
        descriptors: &mut Vec<OwnedFd>,
    ) -> isize {
        self.sim.recv_descriptors(fd, to, descriptors)
    }

    fn send_descriptors(&mut self, fd: RawFd, bytes: &[u8], descriptors: &[OwnedFd]) -> isize {
        self.sim.send_descriptors(fd, bytes, descriptors)
    }

    fn accept(&mut self, fd: RawFd, kind: SourceKind) -> Result<Handle, i32> {
        self.sim.accept(fd, kind)
    }

    fn relieve(&mut self, fd: RawFd) {
        self.sim.relieve(fd);
    }

    fn connect(
        &mut self,
        to: &Address,
        prepared: Option<OwnedFd>,
    ) -> Result<(RawFd, SourceKind, Connecting), i32> {
        self.sim.connect(to, prepared)
    }

    fn connect_result(&mut self, fd: RawFd) -> i32 {
        self.sim.connect_result(fd)
    }

    fn shutdown(&mut self, fd: RawFd) -> isize {
        self.sim.shutdown(fd)
    }

    fn poll(&mut self, fd: RawFd, interest: Ready) -> Result<Ready, i32> {
        self.sim.poll(fd, interest)
    }

    fn listen(&mut self, at: &Address, options: ListenOptions) -> io::Result<Handle> {
        self.sim.listen(at, options)
    }

    fn local_address(&self, fd: RawFd) -> io::Result<Address> {
        self.sim.local_address(fd)
    }

    fn peer_address(&self, fd: RawFd) -> io::Result<Address> {
        self.sim.peer_address(fd)
    }

    fn bind_datagram(&mut self, at: &Address, options: DatagramOptions) -> io::Result<Handle> {
        self.sim.bind_datagram(at, options)
    }

    fn set_option(&mut self, fd: RawFd, option: SocketOption) -> io::Result<()> {
        self.sim.set_option(fd, option)
    }

    fn borrow(&self, fd: RawFd) -> Option<BorrowedFd<'_>> {
        self.sim.borrow(fd)
    }

    fn pollable(&self) -> Option<BorrowedFd<'_>> {
        self.sim.pollable()
    }

    fn system_calls(&self) -> Vec<(&'static str, u64)> {
        self.sim.system_calls()
    }

    fn explain(&self, explain: &mut Explain) {
        self.sim.explain(explain);
    }
}
