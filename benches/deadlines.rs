//! The deadline heap with a million timers, against the ordered containers of std.
//!
//! ```text
//! cargo bench --bench deadlines [-- FILTER]
//! ```
//!
//! `push`, `pop` and `remove` are timed in batches of 1000 while a million entries stand; in
//! between, untimed, the number is made up again, so that the containers never get smaller. An
//! entry that is taken out at its time comes back with a later one, as timers do. The heap
//! maintains where each entry stands, which the others do not; `BTreeMap` is given the key to
//! remove, and `BinaryHeap` cannot remove.
//!
//! `watcher` is a watcher on epoll with a million timers in flight: it submits, reschedules,
//! cancels (in another order) and delivers all of them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, SamplingMode, Throughput};
use windlass::driver::deadlines::Deadlines;
use windlass::{Completions, DriverKind, Op, Watcher};

const STANDING: u32 = 1_000_000;
const BATCH: u32 = 1000;
/// Deadlines are within ten seconds, in nanoseconds.
const SPAN: u64 = 10_000_000_000;
/// Visits the places in an order without a pattern; it has no divisor in common with `STANDING`.
const STRIDE: u64 = 618_033;

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(10)
        .nresamples(10_000)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_secs(1))
        .configure_from_args();
    compare::<Indexed>(&mut criterion);
    compare::<Sorted>(&mut criterion);
    compare::<Heap>(&mut criterion);
    watcher(&mut criterion);
    criterion.final_summary();
}

/// Entries (a time, a place), by time.
trait Timers {
    const NAME: &'static str;
    const CAN_REMOVE: bool = true;
    fn empty() -> Self;
    fn push(&mut self, at: u64, place: u32);
    fn pop(&mut self) -> Option<u32>;
    fn remove(&mut self, at: u64, place: u32);
}

/// The heap of the drivers.
struct Indexed(Deadlines);

impl Timers for Indexed {
    const NAME: &'static str = "Deadlines";
    fn empty() -> Indexed {
        Indexed(Deadlines::new())
    }
    fn push(&mut self, at: u64, place: u32) {
        self.0.push(place, at);
    }
    fn pop(&mut self) -> Option<u32> {
        let (place, _) = self.0.pop_due(u64::MAX)?;
        Some(place)
    }
    fn remove(&mut self, _at: u64, place: u32) {
        self.0.remove(place);
    }
}

struct Sorted(BTreeMap<(u64, u32), ()>);

impl Timers for Sorted {
    const NAME: &'static str = "BTreeMap";
    fn empty() -> Sorted {
        Sorted(BTreeMap::new())
    }
    fn push(&mut self, at: u64, place: u32) {
        self.0.insert((at, place), ());
    }
    fn pop(&mut self) -> Option<u32> {
        self.0.pop_first().map(|((_, place), ())| place)
    }
    fn remove(&mut self, at: u64, place: u32) {
        self.0.remove(&(at, place));
    }
}

struct Heap(BinaryHeap<Reverse<(u64, u32)>>);

impl Timers for Heap {
    const NAME: &'static str = "BinaryHeap";
    const CAN_REMOVE: bool = false;
    fn empty() -> Heap {
        Heap(BinaryHeap::new())
    }
    fn push(&mut self, at: u64, place: u32) {
        self.0.push(Reverse((at, place)));
    }
    fn pop(&mut self) -> Option<u32> {
        self.0.pop().map(|Reverse((_, place))| place)
    }
    fn remove(&mut self, _at: u64, _place: u32) {
        unreachable!("it cannot")
    }
}

/// A million entries, and when each one is due.
struct Standing<T> {
    timers: T,
    due: Vec<u64>,
    random: u64,
    /// Where the walk over the places is.
    walk: u64,
}

impl<T: Timers> Standing<T> {
    fn new() -> Standing<T> {
        let due = vec![0; (STANDING + BATCH) as usize];
        let mut standing = Standing { timers: T::empty(), due, random: 1, walk: 0 };
        for place in 0..STANDING {
            standing.due[place as usize] = standing.span();
            standing.push(place);
        }
        standing
    }

    /// SplitMix64.
    fn span(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % SPAN
    }

    fn push(&mut self, place: u32) {
        self.timers.push(self.due[place as usize], place);
    }

    fn remove(&mut self, place: u32) {
        self.timers.remove(self.due[place as usize], place);
    }

    /// Pushes entries beside the million; removes them again.
    fn time_pushes(&mut self) -> Duration {
        let extra = STANDING..STANDING + BATCH;
        // The first of the million is the present.
        let Some(first) = self.timers.pop() else { unreachable!("there are entries") };
        let now = self.due[first as usize];
        self.push(first);
        for place in extra.clone() {
            self.due[place as usize] = now + self.span();
        }
        let time = timed(|| extra.clone().for_each(|place| self.push(place)));
        if T::CAN_REMOVE {
            extra.for_each(|place| self.remove(place));
        } else {
            // The untimed way back for what cannot remove: it starts anew now and then.
            self.walk += 1;
            if self.walk.is_multiple_of(64) {
                *self = Standing::new();
            }
        }
        time
    }

    /// Pops the first ones; pushes them again for later.
    fn time_pops(&mut self) -> Duration {
        let mut popped = Vec::with_capacity(BATCH as usize);
        let time = timed(|| {
            for _ in 0..BATCH {
                popped.extend(self.timers.pop());
            }
        });
        for place in popped {
            self.due[place as usize] += self.span();
            self.push(place);
        }
        time
    }

    /// Removes some from anywhere; pushes them again.
    fn time_removes(&mut self) -> Duration {
        let places: Vec<u32> = (0..BATCH)
            .map(|_| {
                self.walk = (self.walk + STRIDE) % u64::from(STANDING);
                self.walk as u32
            })
            .collect();
        let time = timed(|| places.iter().for_each(|&place| self.remove(place)));
        for place in places {
            self.push(place);
        }
        time
    }
}

fn timed(run: impl FnOnce()) -> Duration {
    let start = Instant::now();
    run();
    start.elapsed()
}

fn compare<T: Timers>(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("deadlines");
    group.throughput(Throughput::Elements(u64::from(BATCH)));
    // One for all three, made when the first one runs.
    let mut standing = None;
    let mut bench = |name: &str, time: fn(&mut Standing<T>) -> Duration| {
        group.bench_function(BenchmarkId::new(name, T::NAME), |b| {
            let standing = standing.get_or_insert_with(Standing::<T>::new);
            b.iter_custom(|iterations| (0..iterations).map(|_| time(black_box(standing))).sum());
        });
    };
    bench("pop", Standing::time_pops);
    if T::CAN_REMOVE {
        bench("remove", Standing::time_removes);
    }
    bench("push", Standing::time_pushes);
}

fn watcher(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("watcher");
    group.throughput(Throughput::Elements(u64::from(STANDING)));
    group.sampling_mode(SamplingMode::Flat);
    let mut million = None;
    for (name, phase) in [("submit", 0), ("reset", 1), ("cancel", 2), ("deliver", 3)] {
        group.bench_function(name, |b| {
            let million = million.get_or_insert_with(Million::new);
            b.iter_custom(|iterations| (0..iterations).map(|_| million.round()[phase]).sum());
        });
    }
}

/// A watcher with room for a million timers.
struct Million {
    watcher: Watcher,
    done: Completions,
    tickets: Vec<windlass::Ticket>,
}

impl Million {
    fn new() -> Million {
        let watcher = Watcher::builder()
            .driver(DriverKind::Epoll)
            .max_operations(STANDING)
            .build()
            .expect("a watcher");
        Million {
            watcher,
            done: Completions::new(),
            tickets: Vec::with_capacity(STANDING as usize),
        }
    }

    /// Submits, reschedules, cancels and delivers all timers; returns the time of each step.
    fn round(&mut self) -> [Duration; 4] {
        let all = u64::from(STANDING);
        let order = |i: u64| i * STRIDE % all;
        let submit = timed(|| {
            for i in 0..all {
                let timer = Op::timer(Duration::from_millis(3_600_000 + order(i)));
                self.tickets.push(self.watcher.submit(timer).expect("accepted"));
            }
        });
        let reset = timed(|| {
            for i in 0..all {
                let ticket = self.tickets[order(i) as usize];
                let span = Duration::from_millis(3_600_000 + order(order(i)));
                self.watcher.reschedule(ticket, span).expect("it is in flight");
            }
        });
        let cancel = timed(|| {
            for i in 0..all {
                // Another order than that of submission and that of time.
                let ticket = self.tickets[order(order(i)) as usize];
                assert!(self.watcher.cancel(ticket), "it is in flight");
            }
        });
        let mut count = 0;
        let deliver = timed(|| {
            while count < STANDING as usize {
                self.watcher.wait(&mut self.done).expect("completions");
                count += self.done.drain(..).count();
            }
        });
        assert_eq!(count, STANDING as usize);
        self.tickets.clear();
        [submit, reset, cancel, deliver]
    }
}
