//! Idle timeouts: reads end when no byte has moved on their source for a time.
//!
//! A sweep looks at every source that has a timeout, at most 46 times per timeout. At a look it
//! sets the source's flag [`QUIET`], and the code that moves bytes clears the flag. So a source
//! with the flag is idle since the look that set it, or longer. The usual read clears the flag
//! together with others. A source with the flag does not take the short path of the usual write,
//! nor of the usual read. So a message costs no instruction for this, with a timeout or without.
//!
//! ```text
//!            bytes move                          look
//!   quiet ───────────────▶ (flag cleared) ───────────────▶ quiet, its clock begins at 0
//!     │  a look, or a read that starts: the time is up
//!     └──▶ the source runs once more: its reads end with `Deadline`, unless bytes move
//! ```
//!
//! Only the time with a read in flight counts. The clock of a quiet source starts and stops with
//! its reads, to the nanosecond: so no rhythm of reads dodges the sweep. The few sources whose
//! clock does this have an entry in a map. All others need two bytes: their class, which all
//! sources with the same timeout share, and the number of the look since which their clock runs.
//! The class knows when its last looks were.
//!
//! Invariants: (Q1) The clock of a quiet source runs exactly while a read is in flight and waits
//! for no lease. (Q2) A class with a source whose clock runs, or that is not quiet, has a next
//! look.

use std::collections::HashMap;
use std::time::Duration;

use crate::kernel::Kernel;
use crate::proactor::Proactor;
use crate::proactor::parts::state::{QUIET, READ_PAUSED, READABLE, WRITABLE};
use crate::proactor::parts::time::{Pause, Time};
use crate::words::clock::ns_of_duration;
use crate::words::error::{ErrorKind, Limit, Refusal};
use crate::words::source::Source;

/// A timeout may be late by a sixteenth of it, or by `LEAST_LATE_NS` if that is more.
const PARTS: u64 = 16;
const LEAST_LATE_NS: u64 = 100_000_000;
/// The shortest timeout.
const SHORTEST_NS: u64 = 1_000_000;
/// The longest one: 292 years.
const LONGEST_NS: u64 = i64::MAX as u64;
/// The most sources that one turn looks at, and the most slots in which it looks for them.
const LOOKS: u32 = 1024;
const PLACES: u32 = 32 << 10;
/// The number of classes.
const CLASSES: usize = u8::MAX as usize;
/// How many looks a class remembers. A timeout takes 46, because two looks are three quarters of a
/// step apart or more.
const REMEMBERED: usize = 64;

const PAGE: usize = 256;
const ASLEEP: u64 = u64::MAX;

/// Values of `IdleEntry::since` that are no number of a look: the clock stands at 0, or has counted
/// the timeout.
const STANDS: u8 = u8::MAX;
const OVER: u8 = u8::MAX - 1;

/// The entry of one source. It says what the clock does, unless the map does.
#[derive(Clone, Copy, Debug, Default)]
struct IdleEntry {
    /// The class and one; 0 for a source without a timeout.
    class: u8,
    since: u8,
}

/// The clock of a quiet source.
#[derive(Clone, Copy, Debug)]
enum SourceClock {
    /// It stands, and has counted so many nanoseconds.
    Stands(u64),
    /// It runs as if it had done so from this time on, without a stop.
    Runs(u64),
}

/// All sources with the same timeout.
#[derive(Debug)]
struct IdleClass {
    timeout_ns: u64,
    sources: u32,
    /// When the sweep looks next, or `ASLEEP`.
    next_ns: u64,
    /// The current sweep looks at this class.
    due: bool,
    /// The number of the last look, and the times of the last looks by their numbers.
    look: u8,
    looks_ns: [u64; REMEMBERED],
}

impl IdleClass {
    fn new(timeout_ns: u64) -> IdleClass {
        let looks_ns = [0; REMEMBERED];
        IdleClass { timeout_ns, sources: 0, next_ns: ASLEEP, due: false, look: 0, looks_ns }
    }

    /// The time between two looks. One look finds that no byte has moved, and a later look that the
    /// timeout is over: each is late by one step, and the turns that a look takes.
    fn step_ns(&self) -> u64 {
        (self.timeout_ns / PARTS).max(LEAST_LATE_NS) / 32 * 15
    }

    /// A look is due a step after `now_ns`, unless one is due earlier.
    fn wake(&mut self, now_ns: u64) {
        self.next_ns = self.next_ns.min(now_ns.saturating_add(self.step_ns()).min(ASLEEP - 1));
    }
}

/// The idle timeouts of all sources.
#[derive(Debug, Default)]
pub(in crate::proactor) struct Idle {
    classes: Vec<IdleClass>,
    #[allow(
        clippy::vec_box,
        reason = "a vector that grows would need twice the memory for a time"
    )]
    pages: Vec<Box<[IdleEntry; PAGE]>>,
    /// The clocks of quiet sources whose reads have stopped and started, by slot.
    clocks: HashMap<u32, SourceClock>,
    /// How many sources have a timeout.
    sources: u32,
    /// Where the sweep goes on, if one is under way.
    cursor: Option<u32>,
    /// When the sweep is due, or goes on; `ASLEEP` if no source needs one.
    next_ns: u64,
}

impl Idle {
    pub(in crate::proactor) fn new() -> Idle {
        Idle { next_ns: ASLEEP, ..Idle::default() }
    }

    /// Whether the sweep is due.
    #[inline]
    pub(in crate::proactor) fn is_due(&self, now_ns: u64) -> bool {
        self.sources > 0 && self.next_ns <= now_ns
    }

    fn entry(&mut self, index: u32) -> &mut IdleEntry {
        &mut self.pages[index as usize / PAGE][index as usize % PAGE]
    }

    /// The class of a source that has a timeout.
    fn class(&mut self, index: u32) -> &mut IdleClass {
        let class = usize::from(self.entry(index).class);
        &mut self.classes[class - 1]
    }

    /// The clock of a quiet source.
    fn clock(&mut self, index: u32) -> SourceClock {
        if let Some(clock) = self.clocks.get(&index) {
            return *clock;
        }
        match self.entry(index).since {
            STANDS => SourceClock::Stands(0),
            OVER => SourceClock::Runs(0),
            look => SourceClock::Runs(self.class(index).looks_ns[usize::from(look)]),
        }
    }

    /// Whether the clock of a quiet source has counted its timeout.
    fn is_over(&mut self, index: u32, now_ns: u64) -> bool {
        let SourceClock::Runs(since) = self.clock(index) else { return false };
        now_ns.saturating_sub(since) >= self.class(index).timeout_ns
    }

    /// Sets the clock of a source that is quiet from now on.
    fn set_clock(&mut self, index: u32, since: u8) {
        self.clocks.remove(&index);
        self.entry(index).since = since;
    }

    /// The class of a timeout, which may be a new one.
    fn class_of(&mut self, timeout_ns: u64) -> Option<usize> {
        let mut classes = self.classes.iter();
        let same = classes.position(|class| class.timeout_ns == timeout_ns && class.sources > 0);
        if same.is_some() {
            return same;
        }
        if let Some(unused) = self.classes.iter().position(|class| class.sources == 0) {
            self.classes[unused] = IdleClass::new(timeout_ns);
            return Some(unused);
        }
        if self.classes.len() == CLASSES {
            return None;
        }
        self.classes.push(IdleClass::new(timeout_ns));
        Some(self.classes.len() - 1)
    }

    /// Puts a source into a class.
    fn join(&mut self, index: u32, class: usize) {
        let pages = index as usize / PAGE + 1;
        if self.pages.len() < pages {
            self.pages.resize_with(pages, || Box::new([IdleEntry::default(); PAGE]));
        }
        self.sources += 1;
        self.classes[class].sources += 1;
        *self.entry(index) = IdleEntry { class: class as u8 + 1, since: STANDS };
    }

    /// Removes a source from its class, if it has a timeout.
    #[inline]
    pub(in crate::proactor) fn leave(&mut self, index: u32) {
        if self.sources > 0 {
            self.leave_class(index);
        }
    }

    #[cold]
    fn leave_class(&mut self, index: u32) {
        if index as usize / PAGE >= self.pages.len() || self.entry(index).class == 0 {
            return;
        }
        self.clocks.remove(&index);
        let class = self.class(index);
        class.sources -= 1;
        if class.sources == 0 {
            class.next_ns = ASLEEP;
        }
        *self.entry(index) = IdleEntry::default();
        self.sources -= 1;
        if self.sources == 0 {
            (self.next_ns, self.cursor) = (ASLEEP, None);
        }
    }

    /// Begins a sweep, or continues the one under way. Returns the slot at which it goes on.
    fn begin(&mut self, now_ns: u64) -> u32 {
        for class in &mut self.classes {
            if self.cursor.is_none() {
                // Classes that are nearly due are swept as well.
                let until_ns = now_ns.saturating_add(class.step_ns() / 4);
                class.due = class.next_ns != ASLEEP && class.next_ns <= until_ns;
                if class.due {
                    class.next_ns = ASLEEP;
                    class.look = (class.look + 1) % REMEMBERED as u8;
                }
            }
            if class.due {
                // So a sweep of several turns makes no source seem idle too long.
                class.looks_ns[usize::from(class.look)] = now_ns;
            }
        }
        self.cursor.unwrap_or(0)
    }
}

impl Time {
    /// Ends the loop's sleep when the sweep is due, by a pause that belongs to no source.
    pub(in crate::proactor) fn wake_for_idle(&mut self) {
        let next_ns = self.idle.next_ns;
        self.paused.retain(|pause| !pause.source.is_none());
        if next_ns != ASLEEP {
            self.paused.push(Pause { until_ns: next_ns, source: Source::NONE, flag: 0 });
        }
    }

    /// Lets the sweep look at the class of a source (Q2).
    #[cold]
    #[inline(never)]
    pub(in crate::proactor) fn wake_idle(&mut self, index: u32, now_ns: u64) {
        let class = self.idle.class(index);
        class.wake(now_ns);
        let next_ns = class.next_ns;
        if next_ns < self.idle.next_ns {
            self.idle.next_ns = next_ns;
            self.wake_for_idle();
        }
    }
}

impl<K: Kernel> Proactor<K> {
    /// Sets, changes or removes the idle timeout of a source; its idle time begins now.
    pub(in crate::proactor) fn set_idle(
        &mut self,
        source: Source,
        timeout: Option<Duration>,
    ) -> Result<(), Refusal> {
        let index = self.reader(source)?;
        let class = match timeout {
            Some(timeout) => {
                let timeout_ns = ns_of_duration(timeout).clamp(SHORTEST_NS, LONGEST_NS);
                let full = Refusal::Full { limit: Limit::IdleTimeouts, count: CLASSES };
                Some(self.time.idle.class_of(timeout_ns).ok_or(full)?)
            }
            None => None,
        };
        self.time.idle.leave(index);
        self.sources[index].flags &= !QUIET;
        if let Some(class) = class {
            self.time.idle.join(index, class);
            self.time.wake_idle(index, self.kernel.now_ns());
        }
        Ok(())
    }

    /// The idle timeout of a source.
    pub(in crate::proactor) fn idle_of(&self, source: Source) -> Option<Duration> {
        self.sources.peek(source)?;
        let index = source.index() as usize;
        let entry = self.time.idle.pages.get(index / PAGE)?[index % PAGE];
        let class = usize::from(entry.class).checked_sub(1)?;
        Some(Duration::from_nanos(self.time.idle.classes[class].timeout_ns))
    }

    /// A read was submitted, has ended without bytes, or has begun or ceased to wait for a lease.
    #[inline]
    pub(in crate::proactor) fn note_reading(&mut self, index: u32) {
        if self.sources[index].has(QUIET) {
            self.set_idle_clock(index);
        }
    }

    /// Starts or stops the clock of a quiet source (Q1).
    #[cold]
    #[inline(never)]
    fn set_idle_clock(&mut self, index: u32) {
        let (clock, counts) = (self.time.idle.clock(index), self.sources[index].counts_idle());
        if matches!(clock, SourceClock::Runs(_)) == counts {
            return;
        }
        let now_ns = self.kernel.now_ns();
        let new = match clock {
            SourceClock::Stands(counted) => SourceClock::Runs(now_ns.saturating_sub(counted)),
            SourceClock::Runs(since) => SourceClock::Stands(now_ns.saturating_sub(since)),
        };
        self.time.idle.clocks.insert(index, new);
        if counts {
            self.time.wake_idle(index, now_ns);
            self.run_if_over(index, now_ns);
        }
    }

    /// Bytes have moved in the direction with this flag for its pauses.
    #[inline]
    pub(in crate::proactor) fn note_bytes(&mut self, index: u32, paused: u32) {
        let state = &mut self.sources[index];
        self.time.moved(state.name(index), paused);
        if state.has(QUIET) {
            state.flags &= !QUIET;
            self.time.wake_idle(index, self.kernel.now_ns());
        }
    }

    /// Looks at sources, as many as one turn may.
    #[cold]
    #[inline(never)]
    pub(in crate::proactor) fn sweep_idle(&mut self) {
        // Bytes may have moved since the turn read the clock.
        let now_ns = self.kernel.now_ns();
        let mut at = self.time.idle.begin(now_ns);
        let places = (self.time.idle.pages.len() * PAGE) as u32;
        let end = places.min(at + PLACES);
        let mut looks = LOOKS;
        while at < end && looks > 0 {
            if self.time.idle.entry(at).class > 0 && self.time.idle.class(at).due {
                looks -= 1;
                self.look_at_idle(at, now_ns);
            }
            at += 1;
        }
        let idle = &mut self.time.idle;
        idle.cursor = (at < places).then_some(at);
        let next = idle.classes.iter().map(|class| class.next_ns).min().unwrap_or(ASLEEP);
        idle.next_ns = if idle.cursor.is_some() { now_ns } else { next };
        self.time.wake_for_idle();
    }

    fn look_at_idle(&mut self, index: u32, now_ns: u64) {
        let counts = self.sources[index].counts_idle();
        let state = &mut self.sources[index];
        let idle = &mut self.time.idle;
        if !state.has(QUIET) {
            state.flags |= QUIET;
            let since = if counts { idle.class(index).look } else { STANDS };
            idle.set_clock(index, since);
        }
        if matches!(idle.clock(index), SourceClock::Runs(_)) {
            idle.class(index).wake(now_ns);
            self.run_if_over(index, now_ns);
        }
    }

    /// Lets a quiet source run once more if its time is up: data that is there wins.
    fn run_if_over(&mut self, index: u32, now_ns: u64) {
        if !self.time.idle.is_over(index, now_ns) {
            return;
        }
        // From now on the class may forget the look.
        self.time.idle.entry(index).since = OVER;
        let state = &mut self.sources[index];
        if state.fd >= 0 {
            // No event tells what has come in a pause.
            state.flags = state.flags & !READ_PAUSED | READABLE | WRITABLE;
        }
        self.enqueue(index);
    }

    /// Ends the reads of a quiet source if its time is up. It was tried just now.
    #[cold]
    #[inline(never)]
    pub(in crate::proactor) fn end_if_idle(&mut self, index: u32) {
        let now_ns = self.kernel.now_ns();
        if !self.time.idle.is_over(index, now_ns) {
            return;
        }
        // A kernel that has the read may have an answer that was not taken.
        let name = self.sources[index].name(index);
        self.take_all_events();
        if self.state(name).is_some_and(|state| state.has(QUIET)) {
            self.stats.counters.idle_timeouts += 1;
            self.fail_reads(index, ErrorKind::Deadline);
            // A kernel may still have the read, but the clock stops now.
            self.time.idle.set_clock(index, STANDS);
        }
    }
}
