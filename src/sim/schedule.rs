//! Virtual time, and the events that each selector reports.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use super::crash::Machine;
use super::world::{NIL, QUEUED, REGISTERED, WRITES_REGISTERED};
use crate::kernel::{FILES, WAKE};
use crate::sim::faults::{ANYWHERE, Fault};
use crate::sim::world::{Socket, World};
use crate::sys::interest::Ready;
use crate::words::clock::Clock;

/// When every simulation starts: far enough from 0 for deadlines in the past.
const START_NS: u64 = 1_000_000_000;
/// The virtual time of a turn. Time must pass in a program that always has work, or its deadlines
/// would never come.
const TURN_NS: u64 = 1_000;
/// How many keys of ended registrations a selector remembers. A fault reports such a key.
const REMEMBERED: usize = 16;

/// Marks the key of an event as a try. No index of a source has this bit. The upper half of the key
/// is the number of the entry that the kernel tries.
pub(super) const TRY: u64 = 1 << 31;

/// What a selector has to report.
enum SelectorReport {
    /// A socket has changed. It is in the queue only once.
    Socket(u32),
    /// The kernel tries the entry with this number.
    Try(u32),
}

/// The selector of one watcher.
#[derive(Default)]
pub(super) struct Selector {
    /// The reports, in their order.
    ready: VecDeque<SelectorReport>,
    /// Another thread ends the next wait.
    pub(super) woken: bool,
    /// A job of the watcher makes a step: this ends the next wait.
    job_due: bool,
    /// Keys whose registration has ended.
    gone: VecDeque<u64>,
    in_use: bool,
    /// The machine of the watcher; `None` while no watcher has the selector.
    machine: Option<Machine>,
    /// The machine has crashed.
    crashed: bool,
}

impl Selector {
    /// Whether there is a program that takes its reports.
    fn lives(&self) -> bool {
        self.in_use && !self.crashed
    }

    fn has_ready(&self) -> bool {
        self.woken || self.job_due || !self.ready.is_empty()
    }
}

/// An event of the agenda.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SimEvent {
    /// The selector reports the socket, if the socket's slot has this generation.
    Report { socket: u32, generation: u32 },
    /// A packet arrives at the socket, if the socket's slot has this generation.
    Arrive { socket: u32, generation: u32 },
    /// A job of a watcher makes a step.
    Job { selector: u32 },
    /// The kernel of a watcher tries its entry with this number.
    Try { selector: u32, number: u32 },
}

/// The clock and the agenda.
pub(super) struct Schedule {
    /// Change it by `set_now`.
    pub(super) now_ns: u64,
    /// The same time, for code without the simulation.
    pub(super) clock: Clock,
    /// The virtual time of a turn; never 0.
    pub(super) turn_ns: u64,
    selectors: Vec<Selector>,
    /// The events by time. The running number keeps the order of events at the same time.
    agenda: BinaryHeap<Reverse<(u64, u64, SimEvent)>>,
    number: u64,
}

impl Schedule {
    pub(super) fn new() -> Schedule {
        Schedule {
            now_ns: START_NS,
            clock: Clock::at(START_NS),
            turn_ns: TURN_NS,
            selectors: Vec::new(),
            agenda: BinaryHeap::new(),
            number: 0,
        }
    }

    pub(super) fn set_now(&mut self, ns: u64) {
        self.now_ns = ns;
        self.clock.set(ns);
    }

    /// Lets the time of a turn pass.
    #[inline(always)]
    pub(super) fn turn(&mut self) {
        self.set_now(self.now_ns.saturating_add(self.turn_ns));
    }

    pub(super) fn open_selector(&mut self) -> u32 {
        let vacant = self.selectors.iter().position(|selector| !selector.in_use);
        let index = vacant.unwrap_or_else(|| {
            self.selectors.push(Selector::default());
            self.selectors.len() - 1
        });
        self.selectors[index].in_use = true;
        index as u32
    }

    /// A watcher of a machine takes a selector.
    pub(super) fn start_watcher(&mut self, selector: u32, machine: Machine) {
        self.selectors[selector as usize].machine = Some(machine);
    }

    /// The machine of a watcher.
    pub(super) fn machine_of(&self, selector: u32) -> Machine {
        self.selectors[selector as usize].machine.flatten()
    }

    /// Ends the watchers of a machine.
    pub(super) fn crash(&mut self, machine: Machine) {
        for selector in self.selectors.iter_mut().filter(|of| of.machine == Some(machine)) {
            let Selector { in_use, machine, .. } = *selector;
            *selector = Selector { in_use, machine, crashed: true, ..Selector::default() };
        }
    }

    pub(super) fn has_crashed(&self, selector: u32) -> bool {
        self.selectors[selector as usize].crashed
    }

    pub(super) fn close_selector(&mut self, selector: u32) {
        self.selectors[selector as usize] = Selector::default();
    }

    pub(super) fn wake(&mut self, selector: u32) {
        let selector = &mut self.selectors[selector as usize];
        // The watcher may be gone while its submitters live on.
        selector.woken = selector.lives();
    }

    #[inline]
    pub(super) fn report(&mut self, selector: u32, socket: u32) {
        self.selectors[selector as usize].ready.push_back(SelectorReport::Socket(socket));
    }

    /// Adds an event that happens at `at_ns`.
    pub(super) fn add(&mut self, at_ns: u64, event: SimEvent) {
        self.number += 1;
        self.agenda.push(Reverse((at_ns, self.number, event)));
    }

    pub(super) fn remember_gone(&mut self, selector: u32, key: u64) {
        let gone = &mut self.selectors[selector as usize].gone;
        if gone.len() == REMEMBERED {
            gone.pop_front();
        }
        gone.push_back(key);
    }

    /// Whether a selector has something to report.
    pub(super) fn has_ready(&self) -> bool {
        self.selectors.iter().any(Selector::has_ready)
    }

    /// Whether this selector has something to report.
    pub(super) fn has_ready_for(&self, selector: u32) -> bool {
        self.selectors[selector as usize].has_ready()
    }

    /// The virtual time since the start.
    pub(super) fn elapsed_ns(&self) -> u64 {
        self.now_ns - START_NS
    }

    /// The time of the next event.
    pub(super) fn next_ns(&self) -> Option<u64> {
        self.agenda.peek().map(|Reverse((at_ns, ..))| *at_ns)
    }

    /// How long it is until something happens.
    pub(super) fn span_to_next(&self) -> Option<Duration> {
        self.next_ns().map(|next| Duration::from_nanos(next.saturating_sub(self.now_ns)))
    }
}

/// The result of a wait.
pub(super) enum Waited {
    /// There are events, or the time has passed.
    Over,
    /// Nothing can happen any more, unless another thread does something.
    Stuck,
}

impl World {
    /// Waits in virtual time: collects the events of `selector`, at most `most`, and lets time pass
    /// until there is one or `timeout_ns` is over.
    pub(super) fn select(
        &mut self,
        selector: u32,
        timeout_ns: Option<u64>,
        most: usize,
        events: &mut Vec<(u64, Ready)>,
    ) -> Waited {
        let until = timeout_ns.map(|ns| self.schedule.now_ns.saturating_add(ns));
        loop {
            self.report_due();
            self.collect(selector, most, events);
            if !events.is_empty() {
                self.report_spuriously(selector, events);
                break;
            }
            let now_ns = self.schedule.now_ns;
            if until.is_some_and(|until| until <= now_ns) {
                self.report_spuriously(selector, events);
                break;
            }
            let times = [until, self.schedule.next_ns()].into_iter().flatten();
            let Some(next) = times.min() else { return Waited::Stuck };
            // The false event comes in the middle of the wait. At least a nanosecond passes, so
            // that waits come to an end.
            let span = next.saturating_sub(now_ns);
            if span > 1 && self.report_spuriously(selector, events) {
                self.schedule.set_now(now_ns + 1 + self.dice.rng.below(span));
                break;
            }
            self.schedule.set_now(next.max(now_ns));
        }
        self.trace(self.schedule.now_ns, u64::from(selector));
        for (key, ready) in events {
            self.trace(*key, u64::from(ready.bits()));
        }
        Waited::Over
    }

    /// Moves reports that were delayed until now to their selectors.
    fn report_due(&mut self) {
        while let Some(&Reverse((at_ns, _, event))) = self.schedule.agenda.peek()
            && at_ns <= self.schedule.now_ns
        {
            self.schedule.agenda.pop();
            match event {
                SimEvent::Report { socket, generation } => {
                    if self.sockets[socket as usize].generation == generation {
                        self.report(socket);
                    }
                }
                SimEvent::Arrive { socket, generation } => self.deliver_due(socket, generation),
                SimEvent::Job { selector } => {
                    let selector = &mut self.schedule.selectors[selector as usize];
                    selector.job_due = selector.lives();
                }
                SimEvent::Try { selector, number } => {
                    let selector = &mut self.schedule.selectors[selector as usize];
                    if selector.lives() {
                        selector.ready.push_back(SelectorReport::Try(number));
                    }
                }
            }
        }
    }

    /// Lets the socket's selector report the socket.
    #[inline(always)]
    pub(super) fn report(&mut self, index: u32) {
        let socket = &mut self.sockets[index as usize];
        if socket.flags & (REGISTERED | QUEUED) == REGISTERED {
            socket.flags |= QUEUED;
            self.schedule.report(socket.selector, index);
        }
    }

    /// Takes the reports of a selector. As on epoll, an event has all conditions that hold when it
    /// is taken. If none holds any more, there is no event.
    fn collect(&mut self, selector: u32, most: usize, events: &mut Vec<(u64, Ready)>) {
        if std::mem::take(&mut self.schedule.selectors[selector as usize].woken) {
            events.push((WAKE, Ready::READABLE));
        }
        if std::mem::take(&mut self.schedule.selectors[selector as usize].job_due) {
            events.push((FILES, Ready::READABLE));
        }
        while events.len() < most
            && let Some(news) = self.schedule.selectors[selector as usize].ready.pop_front()
        {
            let index = match news {
                SelectorReport::Socket(index) => index,
                SelectorReport::Try(number) => {
                    events.push((u64::from(number) << 32 | TRY, Ready::NONE));
                    continue;
                }
            };
            let socket = &mut self.sockets[index as usize];
            // The socket may have been closed since, and its slot used again, here or elsewhere.
            if socket.flags & QUEUED == 0 || socket.selector != selector {
                continue;
            }
            socket.flags &= !QUEUED;
            let (key, writes) = (socket.key, socket.flags & WRITES_REGISTERED != 0);
            let mut ready = self.conditions(index);
            if !writes {
                ready = ready.difference(Ready::WRITABLE);
            }
            if !ready.is_empty() {
                events.push((key, ready));
                if self.history.is_on() {
                    let title = self.title(index);
                    self.add_step(format_args!("watcher {selector}: event {title}: {ready:?}"));
                }
            }
        }
    }

    /// Adds an event that is not true. Returns whether it did.
    fn report_spuriously(&mut self, selector: u32, events: &mut Vec<(u64, Ready)>) -> bool {
        if !self.dice.on {
            return false;
        }
        let Some((key, place)) = self.key_to_report(selector) else {
            return false;
        };
        let hit = self.dice.hits(place, Fault::SpuriousReadiness);
        if hit {
            self.add_step(format_args!("watcher {selector}: a false event"));
            events.push((key, Ready::READABLE | Ready::WRITABLE));
        }
        hit
    }

    /// A key of this selector: of a registration that exists, or of one that has ended.
    fn key_to_report(&mut self, selector: u32) -> Option<(u64, u32)> {
        let rng = &mut self.dice.rng;
        let gone = &self.schedule.selectors[selector as usize].gone;
        if !gone.is_empty() && rng.chance(0.25) {
            return Some((gone[rng.below(gone.len() as u64) as usize], ANYWHERE));
        }
        let index = self.draw_registered(selector)?;
        let Socket { key, place, .. } = self.sockets[index as usize];
        Some((key, place))
    }

    /// A socket that is registered with this selector.
    pub(super) fn draw_registered(&mut self, selector: u32) -> Option<u32> {
        let count = self.sockets.len() as u64;
        let start = self.dice.rng.below(count.max(1));
        let indices = (0..count).map(|i| ((start + i) % count) as u32);
        indices.into_iter().find(|&index| {
            let socket = &self.sockets[index as usize];
            socket.flags & REGISTERED != 0 && socket.selector == selector
        })
    }

    /// Ends the registration of a socket.
    pub(super) fn deregister(&mut self, index: u32) {
        let socket = &mut self.sockets[index as usize];
        if socket.flags & REGISTERED == 0 {
            return;
        }
        socket.flags &= !(REGISTERED | WRITES_REGISTERED | QUEUED);
        let selector = std::mem::replace(&mut socket.selector, NIL);
        if self.dice.on {
            self.schedule.remember_gone(selector, socket.key);
        }
    }
}
