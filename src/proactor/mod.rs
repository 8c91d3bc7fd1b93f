//! Completions on readiness: an operation is tried at once, unless nothing speaks for its success;
//! what would block waits in its source's queue until the selector says that it is worth another
//! try.
//!
//! ```text
//!   submit ──▶ attempt ──done──────────────────────────────▶ batch ──▶ complete
//!                 │ EAGAIN                                     ▲
//!                 ▼                                            │
//!              queue (one per source and direction) ──event──▶ attempt
//!                 └──────── deadline, cancel, abort, close ────┘
//! ```
//!
//! Invariants: (P1) an operation is in exactly one queue of its source (or none, for timers and
//! nops) from its acceptance until its final completion is put into the batch, and its place is
//! vacated at that moment; (P2) a direction that has operations but is not worth trying has a
//! registration that will report, a pause that will end, or a lease that will come back; (P3) a
//! source runs only after the event of its turn has been applied to it.

mod append;
mod batches;
mod connects;
mod datagrams;
mod dispatch;
mod end;
mod events;
mod files;
mod first_reads;
mod forked;
mod idle;
mod jobs;
mod kernel;
mod lost;
mod os;
mod process;
mod questions;
mod queued_leases;
mod reads;
mod rechecks;
mod report;
mod requests;
mod resource_waits;
mod selected;
mod send_file;
mod shares;
mod started;
mod state;
mod submit;
mod tasks;
mod timers;
mod tokens;
mod turn;
mod usual;
mod waits;
mod writes;

use std::cell::Cell;
use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

pub use kernel::{Answer, Connecting, FILES, Kernel, Received, Started, WAKE};
pub use os::Os;

use crate::address::Address;
use crate::aligned::AlignedBuf;
use crate::batch::Batch;
use crate::buf::Buf;
use crate::clock;
use crate::completion::{Completion, Completions, Done};
use crate::config::{Config, Overflow};
use crate::deadline::Deadlines;
use crate::discard::discard;
use crate::driver::{
    Complete, ConnectOptions, Counters, DatagramOptions, Deadline, Driver, Explain, ListenOptions,
    Submit, Wait,
};
use crate::error::{Limit, Reason, Rejected};
use crate::extra::Extra;
use crate::interest::Ready;
use crate::op::{self, MULTISHOT, Op, OpCode};
use crate::remote::{Remote, Submitter};
use crate::slots::{MOST, NIL, Operation, Table};
use crate::socket_option::SocketOption;
use crate::source::{Handle, Source, SourceKind, Ticket};
use crate::swap::Pool;
use crate::sys::fd::{BorrowedFd, RawFd};
use crate::sys::fork;
use connects::{OF_SOURCE, Race};
use datagrams::Expected;
use files::Files;
use first_reads::FirstReads;
use idle::Idle;
use rechecks::{Ask, Rechecks};
use report::Counts;
use resource_waits::ResourceWaits;
use state::*;
use timers::moved_ticket;

/// What one source writes, or reads from the page cache, before others have their turn, at most:
/// some tens of microseconds of copying.
const MOST_COPIED: usize = 256 << 10;

/// Completions on a readiness kernel.
///
/// See [`driver`](crate::driver) for what it promises.
pub struct Proactor<K: Kernel> {
    kernel: K,
    sources: Table<State>,
    slots: Table<Operation>,
    deadlines: Deadlines,
    pool: Pool,
    batch: Batch,
    /// Takes what of a message does not fit into the swap buffer at hand.
    spill: Vec<u8>,
    /// What the next call for several datagrams is likely to find.
    expected: Expected,
    /// Sources with something worth trying, by name, each at most once.
    ready: VecDeque<Source>,
    /// Those of which more of the same is to be read, in bulk: they run when the others have.
    bulk: VecDeque<Source>,
    /// Sources whose reads wait for a lease or whose accepts wait for room.
    waits: ResourceWaits,
    /// Unix streams whose last short read may have stopped before the end of what is there.
    rechecks: Rechecks,
    /// Whether first reads are worth a try.
    first_reads: FirstReads,
    /// The last look at the selector took as many events as one does: there may be more.
    untold: bool,
    /// A thread of the kernel was told to end its operation.
    stopping: bool,
    /// Directions that are tried again when a time has come.
    paused: Vec<(u64, Source, u32)>,
    /// Tokens of sources, by their places; 0 is none. Empty until the first is set.
    tokens: Vec<u64>,
    /// Connects that make sources, by the places of their operations.
    races: HashMap<u32, Race>,
    /// How many attempts of them the tables hold.
    attempts: u32,
    /// Memory of addresses that have served.
    addresses: Vec<Address>,
    remote: Remote,
    counts: Counts,
    config: Config,
    reason: String,
    /// The clock as it was last read in this turn.
    now_ns: u64,
    /// The time that the program has read since the last turn; 0 if it has read none.
    told_ns: Cell<u64>,
    /// Completions that were delivered since the kernel was last asked.
    unasked: usize,
    /// Directions of sources whose operation the kernel has, and work on files that it has.
    busy: u32,
    /// The work on files.
    files: Files,
    /// The kernel was asked to end some of them, and not entered since.
    stops: bool,
    /// Bytes that this turn may still move before it delivers.
    turn_bytes: isize,
    /// The source that ran last in bulk, and what is left of its share.
    favoured: (u32, usize),
    /// A turn had completions to deliver, and left bulk alone: the next such one does not.
    kept_bulk: bool,
    /// Connections that need places for their sources: those in the batch, and those delivered
    /// last.
    accepted: usize,
    /// How many of them were delivered last.
    handed: usize,
    /// Numbers the tickets of operations that ended at once.
    loose: u32,
    /// Why the last read or write was refused, and its buffer: their answers travel in one
    /// register.
    refusal: (Reason, Buf),
    /// The kernel has lost answers, and the driver takes everything back.
    recovering: bool,
    /// A request of another thread is being served.
    serving: bool,
    /// The write being submitted exceeds its source's bound, and ends the source.
    exceeds: bool,
    forks: u32,
    /// The forks that the process had seen when that was looked at last.
    shares: u32,
    /// Sources, by place, that another process has open as well, since a fork.
    inherited: HashSet<u32>,
    /// Those whose open file description other code uses: its flags are never changed.
    shared: HashSet<u32>,
    /// The idle timeouts of sources.
    idle: Idle,
    /// The remote flag says that the loop sleeps, or other threads wait for ids: the next turn
    /// begins with requests.
    dozing: bool,
    /// Other threads wait for ids, and the tables had none.
    starving: bool,
    closed: bool,
}

/// The handle by which other threads reach a proactor on this kernel.
fn remote<K: Kernel>(config: &Config, kernel: &K) -> Remote {
    struct Shared(std::sync::Arc<dyn crate::remote::Wake>);
    impl crate::remote::Wake for Shared {
        fn wake(&self) {
            self.0.wake();
        }
    }
    // What is kept for other threads is not there for this one: the largest part of a table stays.
    let share =
        |limit: u32| config.id_reserve.min(limit as usize / 4).max(1).min(limit as usize - 1);
    let (sources, tickets) =
        (share(config.max_sources.max(1)), share(config.max_operations.max(1)));
    Remote::new(config.remote_queue, sources as u32, tickets as u32, Shared(kernel.waker()))
}

impl<K: Kernel> Proactor<K> {
    /// A proactor on `kernel`, which may be one of yours, with [settings](crate::Builder::config);
    /// `reason` is what `explain` says of the choice. It drives a
    /// [`Watcher`](crate::Watcher::with_driver).
    pub fn with_kernel(mut kernel: K, mut config: Config, reason: String) -> Proactor<K> {
        fork::watch();
        config.max_sources = config.max_sources.clamp(1, MOST);
        config.max_operations = config.max_operations.clamp(1, MOST);
        config.source_budget = config.source_budget.max(1);
        config.turn_budget = config.turn_budget.clamp(1, isize::MAX as usize);
        let remote = remote(&config, &kernel);
        let pool = Pool::new(config.swap_limit, config.buffer_size, remote.waker());
        let start = kernel.start();
        Proactor {
            sources: Table::starting_at(config.max_sources, start),
            slots: Table::starting_at(config.max_operations, start),
            deadlines: Deadlines::new(),
            pool,
            batch: Batch::new(config.max_operations),
            spill: Vec::new(),
            expected: Expected::default(),
            ready: VecDeque::new(),
            bulk: VecDeque::new(),
            waits: ResourceWaits::default(),
            rechecks: Rechecks::default(),
            first_reads: FirstReads::default(),
            untold: false,
            stopping: false,
            paused: Vec::new(),
            tokens: Vec::new(),
            races: HashMap::new(),
            attempts: 0,
            addresses: Vec::new(),
            remote,
            counts: Counts::default(),
            now_ns: 0,
            told_ns: Cell::new(0),
            unasked: 0,
            busy: 0,
            files: Files::default(),
            stops: false,
            turn_bytes: config.turn_budget as isize,
            favoured: (NIL, 0),
            kept_bulk: false,
            accepted: 0,
            handed: 0,
            loose: 1,
            refusal: (Reason::Closed, Buf::NONE),
            recovering: false,
            serving: false,
            exceeds: false,
            forks: fork::generation(),
            shares: fork::shares(),
            inherited: HashSet::new(),
            shared: HashSet::new(),
            idle: Idle::new(),
            dozing: false,
            starving: false,
            closed: false,
            kernel,
            config,
            reason,
        }
    }

    #[inline(always)]
    fn state(&mut self, source: Source) -> Option<&mut State> {
        let state = self.sources.find(source.index(), source.generation())?;
        if (K::COMPLETES || K::FILES) && state.has(ABORTING) { None } else { Some(state) }
    }

    /// Why a source was not found.
    #[cold]
    fn stale(&self) -> Reason {
        if self.closed { Reason::Closed } else { Reason::Stale }
    }

    #[inline(always)]
    fn check_fork(&self) -> Result<(), Reason> {
        if self.forks == fork::generation() { Ok(()) } else { Err(Reason::Forked) }
    }

    /// After a fork another process may keep open what is open here, and use it as non-blocking.
    #[inline]
    fn note_forks(&mut self) {
        if self.shares != fork::shares() {
            self.note_fork();
        }
    }

    #[cold]
    fn note_fork(&mut self) {
        self.shares = fork::shares();
        for index in self.sources.occupied().collect::<Vec<_>>() {
            let state = &mut self.sources[index];
            state.flags = state.flags & !CHANGED | DUPLICATED;
            self.inherited.insert(index);
        }
    }

    /// The mark of a source whose flags were changed: none where another process may go by them.
    fn changed(&mut self, index: u32) -> u32 {
        self.note_forks();
        if self.inherited.contains(&index) { 0 } else { CHANGED }
    }

    #[inline]
    fn ticket(&self, slot: u32) -> Ticket {
        use crate::slots::Entry;
        let op = &self.slots[slot];
        if op.code == OpCode::Read && op.count != 0 {
            return moved_ticket(op.source, op.count);
        }
        Ticket::from_parts(slot, op.generation())
    }

    /// Whether there can be another source.
    #[inline]
    fn check_room(&self) -> Result<(), Reason> {
        self.check_fork()?;
        match () {
            () if self.closed => Err(Reason::Closed),
            () if self.sources.len() >= self.sources.limit() => Err(self.full_of_sources()),
            () => Ok(()),
        }
    }

    #[cold]
    fn full_of_sources(&self) -> Reason {
        Reason::Full { limit: Limit::Sources, count: self.config.max_sources }
    }

    fn adopt(&mut self, handle: Handle, flags: u32) -> Result<Source, Rejected<Handle>> {
        let reject = |op, reason| Err(Rejected { value: op, reason });
        if let Err(reason) = self.check_room() {
            return reject(handle, reason);
        }
        if !self.kernel.accepts(&handle) {
            return reject(handle, Reason::NoDescriptor);
        }
        let Some((index, generation)) = self.sources.occupy() else {
            return reject(handle, self.full_of_sources());
        };
        self.open(index, handle, flags);
        let source = Source::from_parts(index, generation);
        self.remote.opened(source);
        Ok(source)
    }

    /// Puts a handle of this kernel into an occupied place.
    fn open(&mut self, index: u32, handle: Handle, flags: u32) {
        self.note_forks();
        // A descriptor that no driver has made may have duplicates; so has one under a name that
        // was kept for another thread as the process forked: it may have stood in the queue.
        let inherited = !self.inherited.is_empty() && self.inherited.contains(&index);
        let duplicated = if handle.is_fresh() && !inherited { 0 } else { DUPLICATED };
        let (fd, kind) = handle.into_raw();
        self.sources[index].open(fd, kind, flags | duplicated);
    }

    /// Whether a source stands in a queue.
    #[inline]
    fn has_ready(&self) -> bool {
        !self.ready.is_empty() || !self.bulk.is_empty()
    }

    /// Puts a source that is worth trying into its queue: at the end, or at the head if it ran
    /// last, in bulk, and what ended was not its share but the turn's.
    #[inline]
    fn enqueue(&mut self, index: u32) {
        let state = &mut self.sources[index];
        if !state.has(QUEUED) {
            let full = state.has(FULL);
            state.flags = (state.flags | QUEUED) & !FULL;
            let source = state.name(index);
            if !full {
                self.ready.push_back(source);
            } else if self.favoured.0 == index && self.favoured.1 > 0 && self.turn_bytes <= 0 {
                self.bulk.push_front(source);
            } else {
                self.bulk.push_back(source);
            }
        }
    }
}

impl<K: Kernel> Complete for Proactor<K> {
    type Item = Completion;

    fn complete(&mut self, wait: Wait, out: &mut Completions) -> io::Result<usize> {
        // Delivered connections are attached by now, or never will be.
        self.accepted -= std::mem::take(&mut self.handed);
        self.take_turns(wait, 1)?;
        Ok(self.deliver(out))
    }
}

impl<K: Kernel> Proactor<K> {
    /// Delivers all that is done.
    #[inline]
    fn deliver(&mut self, out: &mut Completions) -> usize {
        self.handed = self.accepted;
        let count = self.batch.len();
        self.counts.completed += count as u64;
        self.counts.deliveries += u64::from(count > 0);
        self.counts.largest_delivery = self.counts.largest_delivery.max(count);
        self.batch.deliver(out)
    }
}

impl<K: Kernel> Driver for Proactor<K> {
    fn attach(&mut self, handle: Handle) -> Result<Source, Rejected<Handle>> {
        self.adopt(handle, 0)
    }

    fn attach_shared(&mut self, handle: Handle) -> Result<Source, Rejected<Handle>> {
        let source = self.adopt(handle, DUPLICATED)?;
        self.shared.insert(source.index());
        Ok(source)
    }

    fn detach(&mut self, source: Source) -> Result<Handle, Reason> {
        self.check_fork()?;
        self.take_arrived(source);
        self.note_forks();
        let stale = self.why_missing(source);
        let state = self.state(source).ok_or(stale)?;
        if state.has(RESERVED | CONNECTING) {
            return Err(stale);
        }
        if let Some(reason) = state.why_no_descriptor() {
            return Err(reason);
        }
        if state.kind().is_of_process() {
            return Err(Reason::Unsupported);
        }
        let idle = state.is_idle();
        if !idle || self.is_at_work(source.index()) {
            return Err(Reason::Busy);
        }
        let state = &self.sources[source.index()];
        let (fd, kind, flags) = (state.fd, state.kind(), state.flags);
        if flags & REGISTERED != 0 {
            self.kernel.deregister(fd, source.key());
        }
        if flags & CHANGED != 0 {
            self.kernel.restore(fd);
        }
        self.vacate_source(source.index());
        Ok(self.kernel.release(fd, kind))
    }

    fn connect(
        &mut self,
        addresses: Vec<Address>,
        options: ConnectOptions,
    ) -> Result<(Source, Ticket), Reason> {
        self.connect_source(addresses, options)
    }

    fn listen(&mut self, address: &Address, options: ListenOptions) -> io::Result<Source> {
        // Before anything is bound.
        self.check_room()?;
        let handle = self.kernel.listen(address, options)?;
        Ok(self.adopt(handle, 0)?)
    }

    fn bind_datagram(&mut self, at: &Address, options: DatagramOptions) -> io::Result<Source> {
        self.check_room()?;
        let handle = self.kernel.bind_datagram(at, options)?;
        Ok(self.adopt(handle, 0)?)
    }

    fn signals(&mut self, signals: &[i32]) -> Result<Source, Reason> {
        self.make_signals(signals)
    }

    fn child(&mut self, pid: u32) -> Result<Source, Reason> {
        self.make_child(pid)
    }

    fn abort(&mut self, source: Source) -> bool {
        self.take_arrived(source);
        if self.check_fork().is_err() {
            return false;
        }
        match self.is_left_in_queue(source) {
            true => self.remote.abort_later(source),
            false => self.abort_source(source),
        }
    }

    fn cancel_all(&mut self, source: Source) -> usize {
        self.take_arrived(source);
        if self.check_fork().is_ok() { self.cancel_source(source) } else { 0 }
    }

    fn close(&mut self) {
        if self.check_fork().is_ok() {
            self.close_all();
        }
    }

    fn reinit_after_fork(&mut self) -> io::Result<()> {
        self.renew()
    }

    #[inline]
    fn queued_bytes(&self, source: Source) -> Result<usize, Reason> {
        // Inlined: a program with slow peers calls this for each message.
        if self.forks == fork::generation()
            && let Some(state) = self.sources.look(source.index(), source.generation())
            && !state.has(RESERVED | ABORTING)
        {
            return Ok(state.queued_bytes as usize);
        }
        self.queued_bytes_of_other(source)
    }

    fn set_token(&mut self, source: Source, token: u64) -> Result<(), Reason> {
        self.give_token(source, token)
    }

    fn fd(&mut self, source: Source) -> Result<BorrowedFd<'_>, Reason> {
        self.check_fork()?;
        self.take_arrived(source);
        let stale = self.why_missing(source);
        let state = self.state(source).ok_or(stale)?;
        if state.has(CONNECTING | RESERVED) {
            return Err(stale);
        }
        if let Some(reason) = state.why_no_descriptor() {
            return Err(reason);
        }
        // Code that has the descriptor can duplicate it.
        state.flags |= DUPLICATED;
        let fd = state.fd;
        self.kernel.borrow(fd).ok_or(Reason::NoDescriptor)
    }

    fn local_address(&self, source: Source) -> Result<Address, Reason> {
        self.ask(source, |kernel, fd| kernel.local_address(fd))
    }

    fn peer_address(&self, source: Source) -> Result<Address, Reason> {
        self.ask(source, |kernel, fd| kernel.peer_address(fd))
    }

    fn kind(&mut self, source: Source) -> Result<SourceKind, Reason> {
        let index = self.usable(source)?;
        Ok(self.sources[index].kind())
    }

    fn connect_datagram(&mut self, source: Source, peer: &Address) -> Result<(), Reason> {
        if self.kind(source)? != SourceKind::Datagram {
            return Err(Reason::Unsupported);
        }
        if peer.is_unspecified() {
            // Windows would take the peer away.
            return Err(Reason::Os(libc::EINVAL));
        }
        let fd = self.sources[source.index()].fd;
        self.kernel.connect_datagram(fd, peer).map_err(Reason::from_io)
    }

    fn set_option(&mut self, source: Source, option: SocketOption) -> Result<(), Reason> {
        self.check_fork()?;
        self.take_arrived(source);
        let missing = self.why_missing(source);
        let state = self.peek(source).filter(|state| !state.has(CONNECTING | RESERVED));
        let state = state.ok_or(missing)?;
        if let Some(reason) = state.why_no_descriptor() {
            return Err(reason);
        }
        let fd = state.fd;
        self.kernel.set_option(fd, option).map_err(Reason::from_io)
    }

    fn aligned_buf(&mut self, len: usize) -> AlignedBuf {
        let registered = self.kernel.registered_buf(len);
        registered.unwrap_or_else(|| AlignedBuf::with_capacity(len, 4096))
    }

    fn pool(&mut self) -> Result<&mut Pool, Reason> {
        self.check_fork()?;
        Ok(&mut self.pool)
    }

    fn now(&self) -> Instant {
        if self.told_ns.get() == 0 {
            self.told_ns.set(self.kernel.now_ns());
        }
        clock::instant_of(self.told_ns.get())
    }

    fn update_now(&mut self) -> Instant {
        self.told_ns.set(self.kernel.now_ns());
        clock::instant_of(self.told_ns.get())
    }

    fn reschedule(&mut self, ticket: Ticket, due: Deadline) -> Result<(), Reason> {
        self.check_fork()?;
        self.move_deadline(ticket, op::due_ns(due))
    }

    fn is_in_flight(&self, ticket: Ticket) -> Result<bool, Reason> {
        self.check_fork()?;
        Ok(self.has_not_ended(ticket))
    }

    fn set_idle_timeout(
        &mut self,
        source: Source,
        timeout: Option<Duration>,
    ) -> Result<(), Reason> {
        self.set_idle(source, timeout)
    }

    fn next_timeout(&mut self) -> Option<Duration> {
        if !self.waits.is_empty() && self.check_fork().is_ok() {
            // The program may have made room, or given memory back, since the last turn.
            self.retry_between_turns();
        }
        // The next wait learns what became of the connections that were delivered.
        let settles = self.handed > 0 && self.waits.has_accepts();
        let quiet = self.batch.is_empty() && !self.has_ready() && !settles;
        let answered = self.files.in_kernel > 0 && self.kernel.has_file_answers();
        if !quiet || answered || self.rechecks.has_new() || self.remote.is_notified() {
            return Some(Duration::ZERO);
        }
        let next = self.next_ns()?;
        Some(Duration::from_nanos(next.saturating_sub(self.kernel.now_ns())))
    }

    fn pollable(&self) -> Result<BorrowedFd<'_>, Reason> {
        self.check_fork()?;
        self.kernel.pollable().ok_or(Reason::Unsupported)
    }

    fn submitter(&mut self) -> Submitter {
        let first = !self.remote.is_in_use();
        let submitter = self.remote.submitter();
        if first {
            self.open_to_others();
        }
        self.fill_reserve();
        submitter
    }

    fn complete_at_least(
        &mut self,
        least: usize,
        wait: Wait,
        out: &mut Completions,
    ) -> io::Result<usize> {
        self.take_at_least(least, wait, out)
    }

    fn complete_one(&mut self, ticket: Ticket) -> io::Result<Completion> {
        self.take_one(ticket)
    }

    fn counters(&self) -> Counters {
        self.count_all()
    }

    fn explain(&self) -> Explain {
        self.explain_all()
    }
}

impl<K: Kernel> Drop for Proactor<K> {
    fn drop(&mut self) {
        // Where nothing is in the kernel, memory can go at once.
        let at_work = self.busy as usize + self.files.at_work() + self.files.reading.len();
        let begun = K::COMPLETES || at_work > 0;
        let last = Last { is_ours: self.check_fork().is_ok(), begun, proactor: self };
        if last.begun && last.is_ours {
            let proactor = &mut *last.proactor;
            // One second for all of them together.
            let until_ns = proactor.kernel.now_ns().saturating_add(crate::leaked::PATIENCE_NS);
            proactor.close_all();
            if proactor.busy > 0 {
                // What has ended since it was closed.
                proactor.collect();
            }
            let left_ns = until_ns.saturating_sub(proactor.kernel.now_ns());
            proactor.stop_workers(Duration::from_nanos(left_ns));
        }
    }
}

/// The last steps of dropping a driver, which run even if an earlier step panics.
struct Last<'a, K: Kernel> {
    proactor: &'a mut Proactor<K>,
    begun: bool,
    is_ours: bool,
}

impl<K: Kernel> Drop for Last<'_, K> {
    fn drop(&mut self) {
        let proactor = &mut *self.proactor;
        match (self.begun, self.is_ours) {
            (true, true) if proactor.busy > 0 => proactor.leak(),
            // The parent's kernel object and all that it writes to are the parent's.
            (true, false) => proactor.kernel.abandon(),
            _ => {}
        }
        proactor.close_descriptors();
        for slot in proactor.slots.occupied().collect::<Vec<_>>() {
            discard(proactor.slots[slot].buf.take());
        }
    }
}

impl<K: Kernel> std::fmt::Debug for Proactor<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Proactor")
            .field("kernel", &self.kernel.name())
            .field("sources", &self.sources.len())
            .field("in_flight", &self.slots.len())
            .finish_non_exhaustive()
    }
}
