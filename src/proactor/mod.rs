//! Completions on a readiness selector. An operation is tried at submission if it may succeed. One
//! that would block waits in the queue of its source until the selector reports that another
//! attempt is worthwhile.
//!
//! ```text
//!   submit ──▶ attempt ──done──────────────────────────────▶ batch ──▶ complete
//!                 │ EAGAIN                                     ▲
//!                 ▼                                            │
//!              queue (one per source and direction) ──event──▶ attempt
//!                 └──────── deadline, cancel, abort, close ────┘
//! ```
//!
//! Invariants: (P1) an operation with a source is in exactly one queue of the source, from its
//! acceptance until its final completion is put into the batch; its slot is vacated at that moment.
//! (P2) A direction that has operations but is not worth trying waits for what will come: an event,
//! the end of a pause, an answer of the kernel, or a resource. (P3) A source runs only after the
//! event of its turn has been applied to it.

mod forked;
mod ops;
mod parts;
mod questions;
mod shares;
mod turn;

use std::io::{self, IoSlice, IoSliceMut};
use std::time::{Duration, Instant};

use parts::files::Files;
use parts::inbox::Inbox;
use parts::kernel_ops::KernelOps;
use parts::memory::Memory;
use parts::operations::Operations;
use parts::outbox::Outbox;
use parts::report::Stats;
use parts::sched::Scheduler;
use parts::sources::Sources;
use parts::state::{ABORTING, CHANGED, CONNECTING, DUPLICATED, REGISTERED, RESERVED, SourceState};
use parts::time::Time;

use crate::completion::verbs::{Complete, Wait};
use crate::completion::{Completion, Completions};
use crate::driver::Driver;
use crate::driver::config::Config;
use crate::driver::endpoint::{ConnectOptions, DatagramOptions, ListenOptions};
use crate::kernel::{Calls, Kernel};
use crate::memory::aligned::AlignedBuf;
use crate::memory::buf::swap::Pool;
use crate::memory::discard::discard;
use crate::op;
use crate::remote::{Remote, Submitter};
use crate::sys::fd::BorrowedFd;
use crate::sys::socket_option::SocketOption;
use crate::sys::{closing, fork};
use crate::words::address::Address;
use crate::words::clock::{self, Clock, Deadline};
use crate::words::error::{Refusal, Refused};
use crate::words::explain::{Counters, Explain};
use crate::words::source::{Handle, Source, SourceKind, Ticket};
use crate::words::table::{MOST, Table};

/// The most bytes that one source writes, or reads from the page cache, before other sources run:
/// some tens of microseconds of copying.
const MOST_COPIED: usize = 256 << 10;

/// Completions on a readiness kernel.
///
/// See [`driver`](crate::driver) for what it promises.
pub struct Proactor<K: Kernel> {
    kernel: K,
    config: Config,
    /// Descriptors, with their readiness and their queues.
    sources: Sources,
    /// Operations that wait for something, and their deadlines.
    ops: Operations,
    /// Which source runs next, and which one waits for memory or room.
    sched: Scheduler,
    /// The clock, pauses and idle timeouts.
    time: Time,
    /// Memory for what is received.
    memory: Memory,
    /// Completions that wait for delivery.
    outbox: Outbox,
    /// Operations that the kernel completes.
    kernel_ops: KernelOps,
    /// Work on files and jobs.
    files: Files,
    /// Requests of other threads.
    inbox: Inbox,
    stats: Stats,
}

/// The handle by which other threads reach a proactor on this kernel.
fn remote<K: Kernel>(config: &Config, kernel: &K) -> Remote {
    // The loop itself cannot use ids that are reserved for other threads, so it keeps most of each
    // table.
    let share =
        |limit: u32| config.id_reserve.min(limit as usize / 4).max(1).min(limit as usize - 1);
    let (sources, tickets) =
        (share(config.max_sources.max(1)), share(config.max_operations.max(1)));
    Remote::new(config.remote_queue, sources as u32, tickets as u32, kernel.waker())
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
            sources: Sources::new(Table::starting_at(config.max_sources, start)),
            ops: Operations::new(Table::starting_at(config.max_operations, start)),
            sched: Scheduler::new(config.turn_budget),
            time: Time::new(),
            memory: Memory::new(pool),
            outbox: Outbox::new(config.max_operations),
            kernel_ops: KernelOps::default(),
            files: Files::default(),
            inbox: Inbox::new(remote),
            stats: Stats::new(reason),
            kernel,
            config,
        }
    }

    #[inline(always)]
    fn state(&mut self, source: Source) -> Option<&mut SourceState> {
        let state = self.sources.table.find(source.index(), source.generation())?;
        if (K::COMPLETES || K::FILES) && state.has(ABORTING) { None } else { Some(state) }
    }

    fn adopt(&mut self, handle: Handle, flags: u32) -> Result<Source, Refused<Handle>> {
        let reject = |op, reason| Err(Refused { value: op, reason });
        if let Err(reason) = self.sources.check_room() {
            return reject(handle, reason);
        }
        if !self.kernel.calls().accepts(&handle) {
            return reject(handle, Refusal::NoDescriptor);
        }
        let Some((index, generation)) = self.sources.table.occupy() else {
            return reject(handle, self.sources.full());
        };
        self.open(index, handle, flags);
        let source = Source::from_parts(index, generation);
        self.inbox.remote.opened(source);
        Ok(source)
    }

    /// Puts a handle of this kernel into an occupied slot.
    fn open(&mut self, index: u32, handle: Handle, flags: u32) {
        self.sources.observe_forks();
        // A descriptor that no driver has made may have duplicates.
        let inherited = self.sources.is_inherited(index);
        let duplicated = if handle.is_fresh() && !inherited { 0 } else { DUPLICATED };
        let (fd, kind) = handle.into_raw();
        self.sources[index].open(fd, kind, flags | duplicated);
    }

    /// Puts a source that is worth trying into its queue.
    #[inline]
    fn enqueue(&mut self, index: u32) {
        self.sched.enqueue(index, &mut self.sources[index]);
    }
}

impl<K: Kernel> Complete for Proactor<K> {
    type Item = Completion;

    fn complete(&mut self, wait: Wait, out: &mut Completions) -> io::Result<usize> {
        self.outbox.forget_delivered();
        self.take_turns(wait, 1)?;
        Ok(self.deliver(out))
    }
}

impl<K: Kernel> Proactor<K> {
    /// Delivers all completions.
    #[inline]
    fn deliver(&mut self, out: &mut Completions) -> usize {
        self.outbox.delivered_accepts = self.outbox.accepted;
        let count = self.outbox.batch.len();
        self.stats.note_delivery(count);
        self.outbox.batch.deliver(out)
    }
}

impl<K: Kernel> Driver for Proactor<K> {
    fn attach(&mut self, handle: Handle) -> Result<Source, Refused<Handle>> {
        self.adopt(handle, 0)
    }

    fn attach_shared(&mut self, handle: Handle) -> Result<Source, Refused<Handle>> {
        let source = self.adopt(handle, DUPLICATED)?;
        self.sources.shared.insert(source.index());
        Ok(source)
    }

    fn detach(&mut self, source: Source) -> Result<Handle, Refusal> {
        self.described(source)?;
        self.sources.observe_forks();
        let state = &self.sources[source.index()];
        let (fd, kind, flags) = (state.fd, state.kind(), state.flags);
        if kind.is_of_process() {
            return Err(Refusal::Unsupported);
        }
        if !state.is_idle() || self.files.is_at_work(&self.sources, source.index()) {
            return Err(Refusal::Busy);
        }
        if flags & REGISTERED != 0 {
            self.kernel.deregister(fd, source.key());
        }
        if flags & CHANGED != 0 {
            self.kernel.calls_mut().restore(fd);
        }
        self.vacate_source(source.index());
        Ok(self.kernel.release(fd, kind))
    }

    fn connect(
        &mut self,
        addresses: Vec<Address>,
        options: ConnectOptions,
    ) -> Result<(Source, Ticket), Refusal> {
        self.connect_source(addresses, options)
    }

    fn listen(&mut self, address: &Address, options: ListenOptions) -> io::Result<Source> {
        // Check before the kernel binds the address.
        self.sources.check_room()?;
        let handle = self.kernel.calls_mut().listen(address, options)?;
        Ok(self.adopt(handle, 0)?)
    }

    fn bind_datagram(&mut self, at: &Address, options: DatagramOptions) -> io::Result<Source> {
        self.sources.check_room()?;
        let handle = self.kernel.calls_mut().bind_datagram(at, options)?;
        Ok(self.adopt(handle, 0)?)
    }

    fn signals(&mut self, signals: &[i32]) -> Result<Source, Refusal> {
        self.make_of_process(SourceKind::Signals, |calls| calls.signals(signals))
    }

    fn child(&mut self, pid: u32) -> Result<Source, Refusal> {
        self.make_of_process(SourceKind::Child, |calls| calls.child(pid))
    }

    fn abort(&mut self, source: Source) -> bool {
        self.take_arrived(source);
        if self.sources.check_fork().is_err() {
            return false;
        }
        match self.is_left_in_queue(source) {
            true => self.inbox.remote.abort_later(source),
            false => self.abort_source(source),
        }
    }

    fn cancel_all(&mut self, source: Source) -> usize {
        self.take_arrived(source);
        if self.sources.check_fork().is_ok() { self.cancel_source(source) } else { 0 }
    }

    fn close(&mut self) {
        if self.sources.check_fork().is_ok() {
            self.close_all();
        }
    }

    fn reinit_after_fork(&mut self) -> io::Result<()> {
        self.renew()
    }

    #[inline]
    fn queued_bytes(&self, source: Source) -> Result<usize, Refusal> {
        // Inlined: a program with slow peers calls this for each message.
        if self.sources.forks.generation == fork::generation()
            && let Some(state) = self.sources.table.look(source.index(), source.generation())
            && !state.has(RESERVED | ABORTING)
        {
            return Ok(state.queued_bytes as usize);
        }
        self.queued_bytes_of_other(source)
    }

    fn recv(&mut self, source: Source, to: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.recv_now(source, to)
    }

    fn send(&mut self, source: Source, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.send_now(source, parts)
    }

    fn set_token(&mut self, source: Source, token: u64) -> Result<(), Refusal> {
        self.sources.check_fork()?;
        self.take_arrived(source);
        let stale = self.why_missing(source);
        let state = self.state(source).filter(|state| !state.has(RESERVED | CONNECTING));
        state.ok_or(stale)?;
        self.sources.set_token(source.index(), token);
        Ok(())
    }

    fn fd(&mut self, source: Source) -> Result<BorrowedFd<'_>, Refusal> {
        let state = self.described(source)?;
        // Code that has the descriptor may duplicate it.
        state.flags |= DUPLICATED;
        let fd = state.fd;
        self.kernel.calls().borrow(fd).ok_or(Refusal::NoDescriptor)
    }

    fn local_address(&self, source: Source) -> Result<Address, Refusal> {
        self.ask(source, |kernel, fd| kernel.calls().local_address(fd))
    }

    fn peer_address(&self, source: Source) -> Result<Address, Refusal> {
        self.ask(source, |kernel, fd| kernel.calls().peer_address(fd))
    }

    fn kind(&mut self, source: Source) -> Result<SourceKind, Refusal> {
        let index = self.usable(source)?;
        Ok(self.sources[index].kind())
    }

    fn connect_datagram(&mut self, source: Source, peer: &Address) -> Result<(), Refusal> {
        if self.kind(source)? != SourceKind::Datagram {
            return Err(Refusal::Unsupported);
        }
        if peer.is_unspecified() {
            // Windows would take the peer away.
            return Err(Refusal::Os(libc::EINVAL));
        }
        let fd = self.sources[source.index()].fd;
        self.kernel.calls_mut().connect_datagram(fd, peer).map_err(Refusal::from_io)
    }

    fn set_option(&mut self, source: Source, option: SocketOption) -> Result<(), Refusal> {
        let fd = self.described(source)?.fd;
        self.kernel.calls_mut().set_option(fd, option).map_err(Refusal::from_io)
    }

    fn take_error(&mut self, source: Source) -> Result<Option<i32>, Refusal> {
        let fd = self.described(source)?.fd;
        match self.kernel.calls_mut().connect_result(fd) {
            // Without an error, it tells whether there is a peer: a reset that a write has met
            // leaves none.
            0 | libc::ENOTCONN => Ok(None),
            libc::ENOTSOCK => Err(Refusal::Os(libc::ENOTSOCK)),
            errno => Ok(Some(errno)),
        }
    }

    fn aligned_buf(&mut self, len: usize) -> AlignedBuf {
        let registered = self.kernel.registered_buf(len);
        registered.unwrap_or_else(|| AlignedBuf::with_capacity(len, 4096))
    }

    fn pool(&mut self) -> Result<&mut Pool, Refusal> {
        self.sources.check_fork()?;
        Ok(&mut self.memory.pool)
    }

    fn now(&self) -> Instant {
        if self.time.reported_ns.get() == 0 {
            self.time.reported_ns.set(self.kernel.now_ns());
        }
        clock::instant_of(self.time.reported_ns.get())
    }

    fn clock(&self) -> Clock {
        self.kernel.clock()
    }

    fn update_now(&mut self) -> Instant {
        self.time.reported_ns.set(self.kernel.now_ns());
        clock::instant_of(self.time.reported_ns.get())
    }

    fn reschedule(&mut self, ticket: Ticket, due: Deadline) -> Result<(), Refusal> {
        self.sources.check_fork()?;
        self.move_deadline(ticket, op::due_ns(due))
    }

    fn is_in_flight(&self, ticket: Ticket) -> Result<bool, Refusal> {
        self.sources.check_fork()?;
        Ok(self.has_not_ended(ticket))
    }

    fn set_idle_timeout(
        &mut self,
        source: Source,
        timeout: Option<Duration>,
    ) -> Result<(), Refusal> {
        self.set_idle(source, timeout)
    }

    fn idle_timeout(&self, source: Source) -> Option<Duration> {
        self.idle_of(source)
    }

    fn next_timeout(&mut self) -> Option<Duration> {
        if !self.sched.waits.is_empty() && self.sources.check_fork().is_ok() {
            // The program may have vacated slots or returned memory since the last turn.
            self.retry_between_turns();
        }
        // The next wait learns whether the program has attached the connections delivered last.
        let settles = self.outbox.delivered_accepts > 0 && self.sched.waits.has_accepts();
        let quiet = self.outbox.batch.is_empty() && !self.sched.has_ready() && !settles;
        let answered = self.files.in_kernel > 0 && self.kernel.has_file_answers();
        if !quiet || answered || self.inbox.remote.is_notified() {
            return Some(Duration::ZERO);
        }
        let next = self.next_ns()?;
        Some(Duration::from_nanos(next.saturating_sub(self.kernel.now_ns())))
    }

    fn pollable(&self) -> Result<BorrowedFd<'_>, Refusal> {
        self.sources.check_fork()?;
        self.kernel.pollable().ok_or(Refusal::Unsupported)
    }

    fn submitter(&mut self) -> Submitter {
        let first = !self.inbox.remote.is_in_use();
        let submitter = self.inbox.remote.submitter();
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
        self.outbox.forget_delivered();
        // The wait also ends when so many completions wait that submissions would be refused.
        match least {
            0 => self.take_turns(Wait::Now, 1)?,
            _ => self.take_turns(wait, least.min(self.outbox.batch.limit()))?,
        }
        Ok(self.deliver(out))
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
        // If neither the kernel nor a thread has work, memory can be freed at once.
        let at_work =
            self.kernel_ops.busy as usize + self.files.at_work() + self.files.fetched_files.len();
        let begun = K::COMPLETES || at_work > 0;
        // One second for all steps together.
        let until = Instant::now() + Duration::from_nanos(crate::memory::leaked::PATIENCE_NS);
        let last =
            Last { is_ours: self.sources.check_fork().is_ok(), begun, until, proactor: self };
        if last.begun && last.is_ours {
            let proactor = &mut *last.proactor;
            proactor.close_all();
            if proactor.kernel_ops.busy > 0 {
                // Takes the answers of operations that have ended since.
                proactor.reap();
            }
            proactor.stop_workers(until.saturating_duration_since(Instant::now()));
        }
    }
}

/// The last steps of dropping a driver, which run even if an earlier step panics.
struct Last<'a, K: Kernel> {
    proactor: &'a mut Proactor<K>,
    begun: bool,
    is_ours: bool,
    until: Instant,
}

impl<K: Kernel> Drop for Last<'_, K> {
    fn drop(&mut self) {
        let proactor = &mut *self.proactor;
        match (self.begun, self.is_ours) {
            (true, true) if proactor.kernel_ops.busy > 0 => proactor.leak(),
            // The kernel object and the memory that it writes to belong to the parent.
            (true, false) => proactor.kernel.abandon(),
            _ => {}
        }
        if !self.is_ours {
            closing::close_inherited();
        }
        proactor.close_descriptors();
        for slot in proactor.ops.table.occupied().collect::<Vec<_>>() {
            discard(proactor.ops[slot].buf.take());
        }
        proactor.outbox.batch.discard_all();
        // What then remains is left to the threads.
        closing::settle(self.until.saturating_duration_since(Instant::now()));
    }
}

impl<K: Kernel> std::fmt::Debug for Proactor<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Proactor")
            .field("kernel", &self.kernel.name())
            .field("sources", &self.sources.table.len())
            .field("in_flight", &self.ops.table.len())
            .finish_non_exhaustive()
    }
}
