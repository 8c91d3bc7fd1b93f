//! A kernel that completes: it starts reads and writes of streams, as a ring does, and answers them
//! at times that the seed draws.
//!
//! ```text
//!   start_recv, start_send ──▶ a try ──it moves bytes, or fails──▶ the answer
//!                              ▲   │
//!                              │   ▼ EAGAIN
//!           the socket changes └─ waits
//! ```
//!
//! The kernel first tries an operation in the next wait. A cancel makes the kernel try once more:
//! the answer is what this try finds, or `ECANCELED`. Each step of an entry is an event of the
//! schedule, with the number of the entry. If the entry has ended before, the step does nothing.

#![allow(unsafe_code)]
//! # Safety
//!
//! (Y1) The memory of an entry is valid until its last answer: the promise of
//! [`Kernel::start_recv`](crate::kernel::Kernel::start_recv). An entry leaves the table with that
//! answer, and nothing else uses its memory.

use std::collections::{BTreeMap, VecDeque};
use std::io::IoSlice;
use std::slice;
use std::time::Duration;

use super::file_work::SimFileRequest;
use crate::file::FileAnswer;
use crate::kernel::{Answer, AnswerKind, FILES, Started};
use crate::memory::buf::swap::{Lent, Pool};
use crate::memory::buf::{Buf, Target};
use crate::sim::Sim;
use crate::sim::faults::{ANYWHERE, Fault};
use crate::sim::kernel::Call;
use crate::sim::schedule::{SimEvent, TRY};
use crate::sim::world::World;
use crate::sys::fd::RawFd;
use crate::sys::interest::Ready;
use crate::words::clock;

/// The kernel gives a swap buffer back when less than a sixteenth of its bytes is left.
const LEFT: usize = 16;
/// The longest time that an answer takes by default.
const ANSWER_NS: u64 = 5_000;

/// The state that all kernels that complete share in a network.
pub(super) struct Completing {
    /// Whether watchers made from now on have such a kernel.
    pub(super) on: bool,
    /// The most virtual time from the moment when an operation can go on to its answer.
    most_ns: u64,
    /// By socket, and true for its write: the watcher and the entry that wait for a change of the
    /// socket.
    pub(super) waiting: BTreeMap<(u32, bool), (u32, u32)>,
    /// The number of the last entry.
    last: u32,
}

impl Default for Completing {
    fn default() -> Completing {
        let waiting = BTreeMap::new();
        Completing { on: false, most_ns: ANSWER_NS, waiting, last: 0 }
    }
}

impl Completing {
    /// Forgets what a dropped watcher waits for.
    pub(super) fn close_selector(&mut self, selector: u32) {
        self.waiting.retain(|_, (of, _)| *of != selector);
    }
}

/// The operations that the kernel of one watcher has, by number.
#[derive(Default)]
pub(super) struct InKernel {
    pub(super) entries: BTreeMap<u32, KernelEntry>,
    /// Answers to file work that the driver has not taken.
    pub(super) answers: VecDeque<FileAnswer>,
    /// The swap buffer for receives without memory of their own. They fill it piece by piece.
    lent: Option<Lent>,
}

impl InKernel {
    /// Gets a swap buffer, if the kernel has none. Returns whether the kernel has one then.
    fn fill(&mut self, pool: &mut Pool) -> bool {
        if self.lent.is_none() {
            self.lent = pool.lend(0);
        }
        self.lent.is_some()
    }

    /// Gives the swap buffer back, if no lease uses it.
    pub(super) fn give_back(&mut self, pool: &mut Pool) {
        if let Some(lent) = self.lent.take_if(|lent| lent.is_unused()) {
            pool.take_back(lent);
        }
    }
}

pub(super) enum KernelEntry {
    /// A receive or a send.
    Begun(Begun),
    /// Work on a file.
    File(SimFileRequest),
    /// An answer about a source that is no result of a try. `late` marks the answer to a cancel
    /// that came late.
    Notice { key: u64, write: bool, kind: AnswerKind, late: bool },
}

/// How often signals interrupt an operation that was told to end. The next signal ends it.
const MOST_INTERRUPTED: u32 = 100;

pub(super) struct Begun {
    key: u64,
    fd: RawFd,
    what: SimStreamOp,
    /// How often signals may still interrupt it, once it was told to end.
    stopped: Option<u32>,
}

enum SimStreamOp {
    /// Receives into this memory, or into a buffer of the pool; again and again if multishot.
    Recv {
        to: Option<(*mut u8, usize)>,
        multishot: bool,
    },
    Send {
        parts: Vec<(*const u8, usize)>,
    },
}

impl Begun {
    fn is_write(&self) -> bool {
        matches!(self.what, SimStreamOp::Send { .. })
    }

    fn answer(&self, moved: isize) -> Answer {
        Answer {
            key: self.key,
            write: self.is_write(),
            kind: AnswerKind::Moved(moved),
            data: Buf::NONE,
            more: false,
        }
    }
}

/// Whether the pool is large enough to share it with the kernel.
fn can_lend(pool: &Pool) -> bool {
    pool.limit_bytes() > pool.chunk_bytes()
}

/// An answer to no operation.
fn nothing() -> Answer {
    Answer { key: 0, write: false, kind: AnswerKind::Moved(0), data: Buf::NONE, more: false }
}

impl World {
    /// A socket has changed: the kernel tries the operations again that wait for the change.
    #[cold]
    pub(super) fn retry(&mut self, index: u32) {
        for write in [false, true] {
            if let Some((selector, number)) = self.completing.waiting.remove(&(index, write)) {
                let place = self.sockets[index as usize].place;
                self.try_soon(selector, number, place);
            }
        }
    }

    /// Draws the time of the next step of an entry.
    fn try_soon(&mut self, selector: u32, number: u32, place: u32) {
        let delay_ns = self.dice.rng.below(self.completing.most_ns.saturating_add(1));
        self.try_by_chance_later(delay_ns, selector, number, place);
    }

    fn try_by_chance_later(&mut self, mut delay_ns: u64, selector: u32, number: u32, place: u32) {
        if self.dice.hits(place, Fault::DelayedReadiness) {
            delay_ns = delay_ns.saturating_add(self.dice.latency_ns(place));
        }
        self.try_after(delay_ns, selector, number);
    }

    pub(super) fn try_after(&mut self, delay_ns: u64, selector: u32, number: u32) {
        let at_ns = self.schedule.now_ns.saturating_add(delay_ns);
        self.schedule.add(at_ns, SimEvent::Try { selector, number });
    }

    pub(super) fn next_number(&mut self) -> u32 {
        self.completing.last = self.completing.last.wrapping_add(1);
        self.completing.last
    }
}

impl Sim {
    /// Sets whether the kernel of watchers that are made from now on completes reads and writes of
    /// stream sockets, as io_uring does. Default: it reports readiness, as epoll does.
    ///
    /// Operations that were started are answered later, in an order that the seed draws. The faults
    /// of such a kernel are [`no_buffer`](super::Faults::no_buffer) and those after it.
    ///
    /// ```
    /// use windlass::sim::Sim;
    /// use windlass::{Completions, Op, Watcher};
    /// let sim = Sim::new(1);
    /// sim.set_completing(true);
    /// let mut watcher = Watcher::simulated(&sim);
    /// let (a, b) = sim.pair();
    /// let (a, b) = (watcher.attach(a)?, watcher.attach(b)?);
    /// watcher.submit(Op::read(b))?;
    /// watcher.submit(Op::write(a, "hello"))?;
    /// let mut done = Completions::new();
    /// while done.len() < 2 {
    ///     watcher.wait(&mut done)?;
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn set_completing(&self, on: bool) {
        self.enter().completing.on = on;
    }

    /// Sets the most virtual time that a kernel that completes takes for an answer, from the moment
    /// when the operation can go on. The seed draws each time. Default 5 µs.
    pub fn set_answer_time(&self, most: Duration) {
        self.enter().completing.most_ns = clock::ns_of_duration(most);
    }
}

impl<const C: bool> Sim<C> {
    fn begin(&mut self, begun: Begun) -> Started {
        let selector = self.selector;
        let mut world = self.enter();
        let number = world.next_number();
        let place = world.sockets[begun.fd as usize].place;
        world.try_by_chance_later(0, selector, number, place);
        drop(world);
        self.in_kernel.entries.insert(number, KernelEntry::Begun(begun));
        Started::Yes
    }

    pub(super) fn begin_recv(
        &mut self,
        fd: RawFd,
        key: u64,
        to: Option<Target<'_>>,
        multishot: bool,
        pool: &mut Pool,
    ) -> Started {
        if to.is_none() && !self.in_kernel.fill(pool) {
            return if can_lend(pool) { Started::Starved } else { Started::No };
        }
        let to = to.map(|mut to| (to.as_mut_ptr(), to.len()));
        self.begin(Begun { key, fd, what: SimStreamOp::Recv { to, multishot }, stopped: None })
    }

    pub(super) fn begin_send(&mut self, fd: RawFd, key: u64, parts: &[IoSlice<'_>]) -> Started {
        let parts = parts.iter().map(|part| (part.as_ptr(), part.len())).collect();
        self.begin(Begun { key, fd, what: SimStreamOp::Send { parts }, stopped: None })
    }

    /// Plans an answer of the kernel, in `delay_ns`.
    fn plan_notice(&mut self, delay_ns: u64, key: u64, write: bool, kind: AnswerKind, late: bool) {
        let selector = self.selector;
        let mut world = self.enter();
        let number = world.next_number();
        world.try_after(delay_ns, selector, number);
        drop(world);
        self.in_kernel.entries.insert(number, KernelEntry::Notice { key, write, kind, late });
    }

    /// The number of the entry of a source's read or write.
    fn entry_of(&self, key: u64, write: bool) -> Option<u32> {
        let mut entries = self.in_kernel.entries.iter();
        let found = entries.find(|(_, entry)| {
            matches!(entry, KernelEntry::Begun(b) if b.key == key && b.is_write() == write)
        });
        found.map(|(number, _)| *number)
    }

    /// Cancels a source's read or write.
    pub(super) fn stop_entry(&mut self, key: u64, write: bool) {
        let mut world = self.enter();
        if world.dice.hits(ANYWHERE, Fault::LostCancel) {
            drop(world);
            return self.plan_notice(0, key, write, AnswerKind::NotStopped, false);
        }
        if world.dice.hits(ANYWHERE, Fault::LateCancel) {
            let delay_ns = world.dice.latency_ns(ANYWHERE);
            drop(world);
            self.plan_notice(0, key, write, AnswerKind::Stopping, false);
            return self.plan_notice(delay_ns, key, write, AnswerKind::NotStopped, true);
        }
        drop(world);
        if let Some(number) = self.entry_of(key, write) {
            self.stop_now(number);
        }
    }

    fn stop_now(&mut self, number: u32) {
        let Some(KernelEntry::Begun(begun)) = self.in_kernel.entries.get_mut(&number) else {
            return;
        };
        begun.stopped.get_or_insert(MOST_INTERRUPTED);
        self.enter().try_after(0, self.selector, number);
    }

    /// Ends all that the kernel of a crashed machine has. Adds the events that tell of it.
    pub(super) fn crash_entries(&mut self, events: &mut Vec<(u64, Ready)>) {
        for (&number, entry) in &self.in_kernel.entries {
            match entry {
                KernelEntry::File(request) => {
                    let moved = -(libc::EIO as isize);
                    self.in_kernel.answers.push_back(FileAnswer { key: request.key(), moved });
                }
                _ => events.push((u64::from(number) << 32 | TRY, Ready::NONE)),
            }
        }
        self.in_kernel.entries.retain(|_, entry| !matches!(entry, KernelEntry::File(_)));
        if !self.in_kernel.answers.is_empty() {
            events.push((FILES, Ready::READABLE));
        }
    }

    /// The answer of an event with this key; `None` if the event is one of readiness.
    pub(super) fn answer_of(&mut self, key: u64, pool: &mut Pool) -> Option<Answer> {
        // The keys of the kernel's own events have this bit, too.
        if key & TRY == 0 || key as u32 != TRY as u32 {
            return None;
        }
        let number = (key >> 32) as u32;
        let crashed = self.has_crashed();
        let answer = match self.in_kernel.entries.remove(&number) {
            // `do_requests` has handled the entries of files before.
            Some(KernelEntry::File(_)) | None => None,
            Some(KernelEntry::Notice { key, write, kind, late }) => {
                match self.entry_of(key, write) {
                    Some(entry) if late => {
                        self.stop_now(entry);
                        None
                    }
                    _ => Some(Answer { key, write, kind, ..nothing() }),
                }
            }
            Some(KernelEntry::Begun(begun)) if crashed => {
                Some(begun.answer(-(libc::ECONNRESET as isize)))
            }
            Some(KernelEntry::Begun(begun)) => self.attempt(number, begun, pool),
        };
        Some(answer.unwrap_or_else(nothing))
    }

    /// Tries a receive or a send. `None` if the operation goes on waiting.
    fn attempt(&mut self, number: u32, mut begun: Begun, pool: &mut Pool) -> Option<Answer> {
        let (fd, write, selector) = (begun.fd, begun.is_write(), self.selector);
        // The entry is added first, because the attempt itself may change the socket.
        self.enter().completing.waiting.insert((fd as u32, write), (selector, number));
        let (moved, data) = self.move_bytes(&mut begun, pool);
        let mut world = self.enter();
        let place = world.sockets[fd as usize].place;
        let waits = world.completing.waiting.remove(&(fd as u32, write)).is_some();
        let again = moved == -(libc::EAGAIN as isize);
        let interrupted = moved == -(libc::EINTR as isize) || again && !waits;
        if let Some(left @ 1..) = &mut begun.stopped
            && interrupted
        {
            *left -= 1;
            // The bytes that are there win over the cancel.
            world.try_after(0, selector, number);
            drop(world);
            self.in_kernel.entries.insert(number, KernelEntry::Begun(begun));
            return None;
        }
        if again {
            if begun.stopped.is_some() {
                return Some(begun.answer(-(libc::ECANCELED as isize)));
            }
            if waits {
                world.completing.waiting.insert((fd as u32, write), (selector, number));
            }
            drop(world);
            self.in_kernel.entries.insert(number, KernelEntry::Begun(begun));
            return None;
        }
        let multishot = matches!(begun.what, SimStreamOp::Recv { multishot: true, .. });
        let more = multishot
            && moved > 0
            && begun.stopped.is_none()
            && !world.dice.hits(place, Fault::MultishotEnd);
        if more && waits {
            world.try_soon(selector, number, place);
        }
        drop(world);
        let answer = Answer { data, more, ..begun.answer(moved) };
        if more {
            self.in_kernel.entries.insert(number, KernelEntry::Begun(begun));
        }
        Some(answer)
    }

    fn move_bytes(&mut self, begun: &mut Begun, pool: &mut Pool) -> (isize, Buf) {
        let fd = begun.fd;
        match &begun.what {
            SimStreamOp::Send { parts } => {
                // SAFETY: Y1.
                let part = |&(start, len): &(*const u8, usize)| unsafe {
                    IoSlice::new(slice::from_raw_parts(start, len))
                };
                let parts: Vec<IoSlice<'_>> = parts.iter().map(part).collect();
                (self.call(Call::SendMsg, fd, |world| world.send(fd, &parts)), Buf::NONE)
            }
            &SimStreamOp::Recv { to: Some((start, len)), .. } => {
                // SAFETY: Y1.
                let mut to = unsafe { Target::from_raw(start, len) };
                let to = slice::from_mut(&mut to);
                (self.call(Call::Recv, fd, |world| world.recv(fd, to)).moved, Buf::NONE)
            }
            SimStreamOp::Recv { to: None, .. } => self.receive_into_pool(fd, pool),
        }
    }

    fn receive_into_pool(&mut self, fd: RawFd, pool: &mut Pool) -> (isize, Buf) {
        let place = self.enter().sockets[fd as usize].place;
        let starved = self.enter().dice.hits(place, Fault::NoBuffer);
        // While the pool is scarce the driver gives buffers to single reads only, at their start.
        if !pool.is_scarce() {
            self.in_kernel.fill(pool);
        }
        let Some(mut lent) = self.in_kernel.lent.take_if(|_| !starved) else {
            return (-(libc::ENOBUFS as isize), Buf::NONE);
        };
        let (start, room) = lent.room();
        // SAFETY: the pool lends `room` bytes at `start` until `commit`.
        let mut to = unsafe { Target::from_raw(start, room as usize) };
        let to = slice::from_mut(&mut to);
        let moved = self.call(Call::Recv, fd, |world| world.recv(fd, to)).moved;
        let mut data = Buf::NONE;
        if let Ok(len @ 1..) = u32::try_from(moved) {
            // SAFETY: so many bytes were written into the room.
            data = unsafe { lent.commit(len) };
        }
        let left = lent.room().1 as usize;
        if left < pool.chunk_bytes() / LEFT {
            pool.take_back(lent);
        } else {
            self.in_kernel.lent = Some(lent);
        }
        (moved, data)
    }

    /// How many swap buffers there are for receives without memory.
    pub(super) fn buffers_for_entries(&mut self, pool: &mut Pool) -> usize {
        if can_lend(pool) { usize::from(self.in_kernel.fill(pool)) } else { pool.available(false) }
    }

    /// Forgets all started operations: the kernel does not use their memory any more.
    pub(super) fn forget_entries(&mut self) {
        self.in_kernel.entries.clear();
        self.enter().completing.close_selector(self.selector);
    }
}
