//! Idle timeouts: reads end when no byte has moved on their source for a time.
//!
//! A sweep looks at every source that has a timeout, at most 32 times per timeout. At a look it
//! sets the source's flag [`QUIET`], and the code that moves bytes clears the flag. So a source
//! that is still quiet at the next look has been idle since the look before. The usual read clears
//! the flag together with others. A source with the flag does not take the short path of the usual
//! write. So a message costs no instruction for this, with a timeout or without one.
//!
//! ```text
//!            bytes move                          look
//!   quiet ───────────────▶ (flag cleared) ───────────────▶ quiet, idle since now
//!     │  look, and the time is up
//!     └──────────────────────────────▶ the source's reads end with `Deadline`
//! ```
//!
//! A table beside the sources has four bytes for each: the class, which all sources with the same
//! timeout share; a stamp, which counts in units of the class; and the clock. The clock runs while
//! a read is in flight and waits for no lease: then the stamp is the time at which the idle time
//! began. While the clock is stopped, the stamp is how long the source was idle before.
//!
//! Invariants: (Q1) The clock of a quiet source runs exactly while a read is in flight and waits
//! for no lease. (Q2) A class with a source whose clock runs, or that is not quiet, has a next
//! look. (Q3) No rounding makes a source older than it is: stamps of running clocks are rounded up,
//! idle time is rounded down.

use std::time::Duration;

use crate::kernel::Kernel;
use crate::proactor::parts::state::{QUIET, READABLE, TO_RECHECK, WAITING, WRITABLE};
use crate::proactor::parts::time::Pause;
use crate::proactor::{MOST_COPIED, Proactor};
use crate::words::clock::ns_of_duration;
use crate::words::error::{ErrorKind, Limit, Refusal};
use crate::words::source::Source;

/// A timeout may be late by a sixteenth of it, or by `LEAST_STEP_NS` if that is more.
const PARTS: u64 = 16;
const LEAST_STEP_NS: u64 = 100_000_000;
/// The shortest timeout.
const SHORTEST_NS: u64 = 1_000_000;
/// The longest one: 292 years.
const LONGEST_NS: u64 = i64::MAX as u64;
/// The number of units that a timeout and four times its allowed lateness take up at most. A stamp
/// can tell twice as many apart.
const UNITS: u64 = 1 << 15;
/// If the last look was at least this many units ago, a stamp may have wrapped.
const MOST_UNITS: u64 = UNITS * 9 / 10;
/// The most sources that one turn looks at, and the most slots in which it looks for them.
const LOOKS: u32 = 1024;
const PLACES: u32 = 32 << 10;
/// The number of classes.
const CLASSES: usize = u8::MAX as usize;

const PAGE: usize = 256;
const ASLEEP: u64 = u64::MAX;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Clock {
    #[default]
    Stands,
    /// The clock has run since before the last look.
    Runs,
    /// The clock has begun to run since the last look.
    Begins,
}

/// The entry of one source.
#[derive(Clone, Copy, Debug, Default)]
struct IdleEntry {
    stamp: u16,
    /// The class and one; 0 for a source without a timeout.
    class: u8,
    clock: Clock,
}

const _: () = assert!(size_of::<IdleEntry>() == 4);

/// All sources with the same timeout.
#[derive(Debug)]
struct IdleClass {
    timeout_ns: u64,
    unit_ns: u64,
    /// The timeout in units, rounded up.
    units: u64,
    /// The time between two looks.
    step_ns: u64,
    sources: u32,
    /// When the sweep looks next, or `ASLEEP`.
    next_ns: u64,
    /// When the last look began, and how long after the look before it.
    looked_ns: u64,
    gap_ns: u64,
    /// When the last clock began to run.
    began_ns: u64,
    /// The current sweep looks at this class.
    due: bool,
}

impl IdleClass {
    fn new(timeout_ns: u64) -> IdleClass {
        let allowed_ns = (timeout_ns / PARTS).max(LEAST_STEP_NS);
        let unit_ns = timeout_ns.saturating_add(4 * allowed_ns) / UNITS + 1;
        IdleClass {
            timeout_ns,
            unit_ns,
            units: timeout_ns.div_ceil(unit_ns),
            // One look finds that no byte has moved, and a later look that the timeout is over.
            // Each of the two is late by one step at most, and rounds.
            step_ns: allowed_ns / 2 - unit_ns,
            sources: 0,
            next_ns: ASLEEP,
            looked_ns: 0,
            gap_ns: 0,
            began_ns: 0,
            due: false,
        }
    }

    fn units_of(&self, now_ns: u64) -> u64 {
        now_ns / self.unit_ns
    }

    /// The stamp of a clock that begins to run now, after `idle` units.
    fn begin(&self, now_ns: u64, idle: u16) -> u16 {
        (self.units_of(now_ns) as u16).wrapping_add(1).wrapping_sub(idle)
    }

    /// How many whole units a running clock has counted.
    fn idle(&self, now_ns: u64, stamp: u16) -> u16 {
        let age = (self.units_of(now_ns) as u16).wrapping_add(1).wrapping_sub(stamp);
        age.saturating_sub(1).min(self.units as u16)
    }

    /// Whether a running clock has counted the timeout.
    fn is_over(&self, now_ns: u64, entry: IdleEntry) -> bool {
        let since_ns = match entry.clock {
            Clock::Begins => now_ns.saturating_sub(self.began_ns),
            _ => self.gap_ns,
        };
        // After so long a gap a stamp may have wrapped: only the gap counts.
        let long = self.gap_ns / self.unit_ns >= MOST_UNITS && since_ns >= self.timeout_ns;
        long || u64::from(self.idle(now_ns, entry.stamp)) >= self.units
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

    fn entry(&mut self, index: u32) -> Option<&mut IdleEntry> {
        let page = self.pages.get_mut(index as usize / PAGE)?;
        Some(&mut page[index as usize % PAGE])
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
        let entry = IdleEntry { stamp: 0, class: class as u8 + 1, clock: Clock::Stands };
        *self.entry(index).expect("its page was just made") = entry;
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
        let Some(entry) = self.entry(index).map(std::mem::take).filter(|entry| entry.class > 0)
        else {
            return;
        };
        let class = &mut self.classes[usize::from(entry.class) - 1];
        class.sources -= 1;
        self.sources -= 1;
        if class.sources == 0 {
            class.next_ns = ASLEEP;
        }
        if self.sources == 0 {
            (self.next_ns, self.cursor) = (ASLEEP, None);
        }
    }

    /// Begins a sweep, or continues the one under way. Returns the slot at which it goes on.
    fn begin(&mut self, now_ns: u64) -> u32 {
        if let Some(cursor) = self.cursor {
            return cursor;
        }
        for class in &mut self.classes {
            // Classes that are nearly due are swept as well.
            let until_ns = now_ns.saturating_add(class.step_ns / 4);
            class.due = class.next_ns != ASLEEP && class.next_ns <= until_ns;
            if class.due {
                class.gap_ns = now_ns - class.looked_ns;
                class.looked_ns = now_ns;
                class.next_ns = ASLEEP;
            }
        }
        0
    }

    /// When the sweep is due: now, if one is under way.
    fn due_ns(&self, now_ns: u64) -> u64 {
        let next = self.classes.iter().map(|class| class.next_ns).min().unwrap_or(ASLEEP);
        if self.cursor.is_some() { now_ns } else { next }
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
                let full = Refusal::Full { limit: Limit::IdleTimeouts, count: CLASSES as u32 };
                Some(self.time.idle.class_of(timeout_ns).ok_or(full)?)
            }
            None => None,
        };
        if let Some(class) = class {
            // Count the source before it leaves its old class, which may be the same: a class
            // without sources has no next look.
            self.time.idle.sources += 1;
            self.time.idle.classes[class].sources += 1;
            self.time.idle.leave(index);
            self.time.idle.classes[class].sources -= 1;
            self.time.idle.sources -= 1;
            self.time.idle.join(index, class);
            self.sources[index].flags |= QUIET;
            self.set_idle_clock(index);
        } else {
            self.time.idle.leave(index);
            self.sources[index].flags &= !QUIET;
        }
        Ok(())
    }

    /// Whether the time of a source counts: a read is in flight, and waits for no lease.
    fn counts_idle(&self, index: u32) -> bool {
        let state = &self.sources[index];
        state.has_reads() && !state.has(WAITING)
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
        let counts = self.counts_idle(index);
        let now_ns = self.kernel.now_ns();
        let Some(entry) = self.time.idle.entry(index).filter(|entry| entry.class > 0) else {
            return;
        };
        if counts != (entry.clock == Clock::Stands) {
            return;
        }
        let (stamp, number) = (entry.stamp, usize::from(entry.class) - 1);
        let class = &mut self.time.idle.classes[number];
        let new = match counts {
            true => (class.begin(now_ns, stamp), Clock::Begins),
            false => (class.idle(now_ns, stamp), Clock::Stands),
        };
        if counts {
            class.began_ns = now_ns;
        }
        if let Some(entry) = self.time.idle.entry(index) {
            (entry.stamp, entry.clock) = new;
        }
        if counts {
            self.wake_class(number, now_ns);
        }
    }

    /// Bytes have moved.
    #[inline]
    pub(in crate::proactor) fn note_bytes(&mut self, index: u32) {
        if self.sources[index].has(QUIET) {
            self.idle_ends(index);
        }
    }

    #[cold]
    #[inline(never)]
    fn idle_ends(&mut self, index: u32) {
        self.sources[index].flags &= !QUIET;
        if let Some(entry) = self.time.idle.entry(index)
            && entry.class > 0
        {
            let number = usize::from(entry.class) - 1;
            let now_ns = self.kernel.now_ns();
            self.wake_class(number, now_ns);
        }
    }

    /// Lets the sweep look at a class (Q2).
    fn wake_class(&mut self, number: usize, now_ns: u64) {
        let class = &mut self.time.idle.classes[number];
        if class.next_ns != ASLEEP {
            return;
        }
        if !class.due || self.time.idle.cursor.is_none() {
            // No clock of the class has run until now.
            class.looked_ns = now_ns;
        }
        class.next_ns = now_ns.saturating_add(class.step_ns);
        let next_ns = class.next_ns;
        if next_ns < self.time.idle.next_ns {
            self.time.idle.next_ns = next_ns;
            self.wake_for_idle();
        }
    }

    /// Ends the loop's sleep when the sweep is due, by a pause that belongs to no source.
    pub(in crate::proactor) fn wake_for_idle(&mut self) {
        let next_ns = self.time.idle.next_ns;
        self.time.paused.retain(|pause| !pause.source.is_none());
        if next_ns != ASLEEP {
            self.time.paused.push(Pause { until_ns: next_ns, source: Source::NONE, flag: 0 });
        }
    }

    /// Looks at sources, as many as one turn may.
    #[cold]
    #[inline(never)]
    pub(in crate::proactor) fn sweep_idle(&mut self) {
        let now_ns = self.time.now_ns;
        let mut at = self.time.idle.begin(now_ns);
        let places = (self.time.idle.pages.len() * PAGE) as u32;
        let end = places.min(at + PLACES);
        let mut looks = LOOKS;
        while at < end && looks > 0 {
            let entry = self.time.idle.pages[at as usize / PAGE][at as usize % PAGE];
            if entry.class > 0 && self.time.idle.classes[usize::from(entry.class) - 1].due {
                looks -= 1;
                self.look_at_idle(at, entry, now_ns);
            }
            at += 1;
        }
        self.time.idle.cursor = (at < places).then_some(at);
        self.time.idle.next_ns = self.time.idle.due_ns(now_ns);
        self.wake_for_idle();
    }

    fn look_at_idle(&mut self, index: u32, entry: IdleEntry, now_ns: u64) {
        let counts = self.counts_idle(index);
        let number = usize::from(entry.class) - 1;
        let class = &mut self.time.idle.classes[number];
        let next_ns = class.next_ns.min(now_ns.saturating_add(class.step_ns));
        let mut new = entry;
        if !self.sources[index].has(QUIET) {
            self.sources[index].flags |= QUIET;
            (new.stamp, new.clock) = match counts {
                true => (class.begin(now_ns, 0), Clock::Runs),
                false => (0, Clock::Stands),
            };
        } else if entry.clock == Clock::Stands {
            return;
        } else if class.is_over(now_ns, entry) {
            // The last attempt may find bytes: then the class needs another look.
            class.next_ns = next_ns;
            return self.end_idle(index);
        } else {
            new.clock = Clock::Runs;
        }
        if new.clock == Clock::Runs {
            class.next_ns = next_ns;
        }
        if let Some(entry) = self.time.idle.entry(index) {
            *entry = new;
        }
    }

    /// Ends the reads of a source that was idle for too long, unless a last attempt moves bytes.
    fn end_idle(&mut self, index: u32) {
        let name = self.sources[index].name(index);
        let state = &mut self.sources[index];
        if state.fd >= 0 && (self.sched.select_was_full || state.has(TO_RECHECK)) {
            state.flags |= READABLE | WRITABLE;
        }
        let mut left = self.config.source_budget.min(MOST_COPIED);
        self.run_writes(index, &mut left);
        if self.state(name).is_some() {
            self.run_reads(index, &mut left);
            self.requeue(index);
        }
        if !self.state(name).is_some_and(|state| state.has(QUIET)) || !self.counts_idle(index) {
            return;
        }
        if let Some(entry) = self.time.idle.entry(index) {
            (entry.stamp, entry.clock) = (0, Clock::Stands);
        }
        self.stats.counters.idle_timeouts += 1;
        self.fail_reads(index, ErrorKind::Deadline);
    }
}
