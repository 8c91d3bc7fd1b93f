//! Requests of other threads: the cost of a burst, its number of wakes, and its latency.
//!
//! ```text
//! cargo bench --bench remote [-- FILTER]
//! ```
//!
//! - `burst`: one or four threads submit a burst of nops each, wait until all of theirs have
//!   completed, and submit the next; to a loop that sleeps in between, and to one that spins
//!   (`busy_poll`). How many wakes (writes of the eventfd that ended a wait) and turns a burst
//!   needed is printed below each.
//! - `post`: the cost of a message for the calling thread, to a loop that is awake.
//! - `latency`: from the call on one thread to the completion on the other, both by one clock: a
//!   loop that sleeps, one that spins before it sleeps (`busy_poll`), one that never waits.
//!
//! All of it needs two processors that have nothing else to do.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput};
use windlass::{Builder, Completions, DriverKind, LoopThread, Op, Submitter, Watcher};

/// Ends a loop.
const STOP: u64 = u64::MAX;
/// Most operations in flight: four threads with a burst of 1024 each.
const MOST: usize = 4 * 1024;
/// How long a loop with `busy_poll` spins.
const SPIN: Duration = Duration::from_millis(1);

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(10)
        .nresamples(10_000)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_secs(1))
        .configure_from_args();
    burst(&mut criterion);
    post(&mut criterion);
    latency(&mut criterion);
    criterion.final_summary();
}

fn epoll() -> Builder {
    // Ids are taken back a turn later than they are used: twice as many as are in flight.
    Watcher::builder().driver(DriverKind::Epoll).remote_queue(MOST).id_reserve(2 * MOST)
}

/// A loop on a thread of its own, which counts completions by token.
struct Loop {
    submitter: Submitter,
    completed: Arc<[AtomicU64; 4]>,
    wakes: Arc<AtomicU64>,
    turns: Arc<AtomicU64>,
    thread: Option<thread::JoinHandle<io::Result<()>>>,
}

impl Loop {
    fn start(busy_poll: bool) -> Loop {
        let builder = if busy_poll { epoll().busy_poll(SPIN) } else { epoll() };
        let completed: Arc<[AtomicU64; 4]> = Arc::default();
        let wakes: Arc<AtomicU64> = Arc::default();
        let turns: Arc<AtomicU64> = Arc::default();
        let (counts, end) = (Arc::clone(&completed), (Arc::clone(&wakes), Arc::clone(&turns)));
        let spawned = builder.spawn("loop", move |mut watcher| {
            let mut done = Completions::new();
            loop {
                watcher.wait(&mut done)?;
                let mut batch = [0; 4];
                for c in done.drain(..) {
                    if c.token == STOP {
                        let counters = watcher.counters();
                        end.0.store(counters.wakes, Ordering::Relaxed);
                        end.1.store(counters.turns, Ordering::Relaxed);
                        return Ok(());
                    }
                    batch[c.token as usize] += 1;
                }
                for (count, more) in counts.iter().zip(batch) {
                    if more > 0 {
                        count.fetch_add(more, Ordering::Release);
                    }
                }
            }
        });
        let LoopThread { submitter, thread } = spawned.expect("a loop");
        Loop { submitter, completed, wakes, turns, thread: Some(thread) }
    }

    /// Submits `bursts` of `size` nops from `threads` threads, each one when the last has
    /// completed.
    fn bursts(&self, bursts: u64, size: u64, threads: usize) -> Duration {
        let start = Instant::now();
        thread::scope(|scope| {
            // The calling thread is one of them.
            for token in 1..threads {
                scope.spawn(move || self.bursts_of(token, bursts, size));
            }
            self.bursts_of(0, bursts, size);
        });
        start.elapsed()
    }

    fn bursts_of(&self, token: usize, bursts: u64, size: u64) {
        let mut target = self.completed[token].load(Ordering::Acquire);
        for _ in 0..bursts {
            for _ in 0..size {
                self.submitter.submit(Op::nop().token(token as u64)).expect("room");
            }
            target += size;
            while self.completed[token].load(Ordering::Acquire) < target {
                thread::yield_now();
            }
        }
    }

    /// Ends the loop: how often it was woken, how many turns it took, but for the last ones.
    fn stop(mut self) -> (u64, u64) {
        self.submitter.wake(STOP).expect("room");
        if let Some(thread) = self.thread.take() {
            thread.join().expect("no panic").expect("a good end");
        }
        // A loop that was asleep when it was told to stop has had a wake for that.
        (
            self.wakes.load(Ordering::Relaxed).saturating_sub(1),
            self.turns.load(Ordering::Relaxed).saturating_sub(1),
        )
    }
}

fn burst(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("burst");
    for (threads, busy_poll) in [(1, false), (4, false), (1, true)] {
        for size in [1, 64, 1024] {
            let name = format!("{size}x{threads}{}", if busy_poll { "_busy_poll" } else { "" });
            group.throughput(Throughput::Elements(threads as u64 * size));
            let id = BenchmarkId::from_parameter(&name);
            let mut target = None;
            let mut bursts = 0;
            group.bench_function(id, |b| {
                let target = target.get_or_insert_with(|| Loop::start(busy_poll));
                b.iter_custom(|iterations| {
                    bursts += iterations * threads as u64;
                    target.bursts(iterations, size, threads)
                });
            });
            if let Some(target) = target {
                let (wakes, turns) = target.stop();
                let per_burst = |count| count as f64 / bursts as f64;
                println!(
                    "burst/{name}: {:.2} wakes, {:.2} turns per burst",
                    per_burst(wakes),
                    per_burst(turns)
                );
            }
        }
    }
}

/// A loop that is awake needs no system call. This one does not run at all meanwhile, so that
/// nothing but the caller's own work is timed.
fn post(criterion: &mut Criterion) {
    const BATCH: u64 = 64;
    let mut group = criterion.benchmark_group("post");
    group.throughput(Throughput::Elements(BATCH));
    type Call = fn(&Submitter);
    let calls: [(&str, Call); 3] = [
        ("wake", |to| to.wake(1).expect("room")),
        ("value", |to| to.post(1, 7u64).expect("room")),
        ("submit", |to| {
            to.submit(Op::nop()).expect("room");
        }),
    ];
    for (name, call) in calls {
        let mut watcher = epoll().build().expect("a watcher");
        let submitter = watcher.submitter();
        let mut done = Completions::new();
        group.bench_function(name, |b| {
            b.iter_custom(|iterations| {
                let mut time = Duration::ZERO;
                for _ in 0..iterations {
                    let start = Instant::now();
                    for _ in 0..BATCH {
                        call(&submitter);
                    }
                    time += start.elapsed();
                    let mut count = 0;
                    while count < BATCH as usize {
                        watcher.wait(&mut done).expect("completions");
                        count += done.drain(..).count();
                    }
                }
                time
            });
        });
    }
}

/// How the other loop waits.
#[derive(Clone, Copy, PartialEq)]
enum Waits {
    Sleeps,
    BusyPoll,
    Never,
}

fn latency(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("latency");
    for (name, waits) in
        [("sleeping", Waits::Sleeps), ("busy_poll", Waits::BusyPoll), ("busy_loop", Waits::Never)]
    {
        let mut target = None;
        group.bench_function(name, |b| {
            let target = target.get_or_insert_with(|| Timed::start(waits));
            b.iter_custom(|iterations| target.latencies(iterations));
        });
        if let Some(target) = target {
            target.stop();
        }
    }
}

/// A loop on a thread of its own that adds up how long operations took to arrive: their token is
/// the time of their submission.
struct Timed {
    base: Instant,
    submitter: Submitter,
    sum_ns: Arc<AtomicU64>,
    count: Arc<AtomicU64>,
    thread: thread::JoinHandle<io::Result<()>>,
}

impl Timed {
    fn start(waits: Waits) -> Timed {
        let mut builder = epoll();
        if waits == Waits::BusyPoll {
            builder = builder.busy_poll(SPIN);
        }
        let base = Instant::now();
        let (sum_ns, count) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
        let (sums, counts) = (Arc::clone(&sum_ns), Arc::clone(&count));
        let spawned = builder.spawn("loop", move |mut watcher| {
            let mut done = Completions::new();
            loop {
                let came = if waits == Waits::Never {
                    watcher.try_wait(&mut done)?
                } else {
                    watcher.wait(&mut done)?
                };
                if came == 0 {
                    std::hint::spin_loop();
                    continue;
                }
                let now = ns_since(base);
                for c in done.drain(..) {
                    if c.token == STOP {
                        return Ok(());
                    }
                    sums.fetch_add(now - c.token, Ordering::Relaxed);
                    counts.fetch_add(1, Ordering::Release);
                }
            }
        });
        let LoopThread { submitter, thread } = spawned.expect("a loop");
        Timed { base, submitter, sum_ns, count, thread }
    }

    fn latencies(&self, count: u64) -> Duration {
        let before = self.sum_ns.load(Ordering::Relaxed);
        for _ in 0..count {
            let target = self.count.load(Ordering::Acquire) + 1;
            let nop = Op::nop().token(ns_since(self.base));
            self.submitter.submit(nop).expect("room");
            while self.count.load(Ordering::Acquire) < target {
                thread::yield_now();
            }
            // The loop has gone to sleep by then, or spins again.
            let pause = Instant::now();
            while pause.elapsed() < Duration::from_micros(20) {
                std::hint::spin_loop();
            }
        }
        Duration::from_nanos(self.sum_ns.load(Ordering::Relaxed) - before)
    }

    fn stop(self) {
        self.submitter.wake(STOP).expect("room");
        self.thread.join().expect("no panic").expect("a good end");
    }
}

fn ns_since(base: Instant) -> u64 {
    base.elapsed().as_nanos() as u64
}
