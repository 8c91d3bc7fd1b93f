//! Jobs that do nothing: the workers, whose jobs share no lock, beside a pool that has one lock for
//! all.
//!
//! ```text
//! cargo bench --bench workers [-- FILTER]
//! ```
//!
//! Each group is a number of jobs in flight, each row a number of threads.
//!
//! - `windlass`: `Op::run`. Jobs of the program run on half of the threads at most, so that 8
//!   threads are 4 that run them.
//! - `one_lock`: a `Mutex<VecDeque>` and a `Condvar`, which is notified when a thread is idle. What
//!   comes of a job goes to the same loop the same way: through a queue, with a write of its
//!   eventfd if it sleeps.
//! - `bare`: the same, but the loop is none: it takes a job's result from a channel, and serves
//!   nothing else. What the loop costs.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput};
use windlass::{Completions, Done, DriverKind, Op, Submitter, Watcher};

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(10)
        .nresamples(10_000)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_secs(1))
        .configure_from_args();
    for depth in [1, 32] {
        let mut group = criterion.benchmark_group(format!("noop_{depth}"));
        group.throughput(Throughput::Elements(1));
        let mut row = |name: &str, threads: usize, make: fn(usize) -> Box<dyn Jobs>| {
            let mut jobs = None;
            group.bench_function(BenchmarkId::new(name, threads), |b| {
                let jobs = jobs.get_or_insert_with(|| make(threads));
                b.iter_custom(|count| run(&mut **jobs, count, depth));
            });
        };
        row("windlass", 4, |threads| Box::new(Workers::new(threads)));
        row("windlass", 8, |threads| Box::new(Workers::new(threads)));
        row("one_lock", 2, |threads| Box::new(Told::new(threads)));
        row("one_lock", 4, |threads| Box::new(Told::new(threads)));
        row("bare", 2, |threads| Box::new(Bare::new(threads)));
        row("bare", 4, |threads| Box::new(Bare::new(threads)));
    }
    criterion.final_summary();
}

/// A pool that runs jobs.
trait Jobs {
    fn submit(&mut self);
    /// Returns when some have ended: how many.
    fn wait(&mut self) -> u64;
}

/// Does `count` jobs with at most `depth` in flight.
fn run(jobs: &mut dyn Jobs, count: u64, depth: u64) -> Duration {
    let start = Instant::now();
    let (mut submitted, mut completed) = (0, 0);
    while completed < count {
        while submitted < count && submitted - completed < depth {
            jobs.submit();
            submitted += 1;
        }
        completed += jobs.wait();
    }
    start.elapsed()
}

fn watcher(threads: usize) -> Watcher {
    Watcher::builder().driver(DriverKind::Epoll).threads(threads).build().expect("a watcher")
}

/// A loop, and its workers.
struct Workers {
    watcher: Watcher,
    done: Completions,
}

impl Workers {
    fn new(threads: usize) -> Workers {
        Workers { watcher: watcher(threads), done: Completions::new() }
    }
}

impl Jobs for Workers {
    fn submit(&mut self) {
        self.watcher.submit(Op::run(|| ())).expect("room");
    }

    fn wait(&mut self) -> u64 {
        self.watcher.wait(&mut self.done).expect("completions");
        let returned = |c: &windlass::Completion| matches!(c.result, Ok(Done::Returned(_)));
        self.done.drain(..).filter(returned).count() as u64
    }
}

/// The work of a thread, and the channel for its end.
type Job<T> = Box<dyn FnOnce(&T) + Send>;

struct Queue<T> {
    jobs: VecDeque<Job<T>>,
    idle: usize,
    open: bool,
}

/// Threads, and one lock for all jobs that wait.
struct Pool<T> {
    shared: Arc<(Mutex<Queue<T>>, Condvar)>,
    threads: Vec<JoinHandle<()>>,
}

impl<T: Clone + Send + 'static> Pool<T> {
    fn new(threads: usize, tells: T) -> Pool<T> {
        let queue = Queue { jobs: VecDeque::with_capacity(64), idle: 0, open: true };
        let shared = Arc::new((Mutex::new(queue), Condvar::new()));
        let thread = |_| {
            let (shared, tells) = (Arc::clone(&shared), tells.clone());
            thread::spawn(move || Pool::work(&shared, &tells))
        };
        let threads = (0..threads).map(thread).collect();
        Pool { shared, threads }
    }

    fn work((queue, come): &(Mutex<Queue<T>>, Condvar), tells: &T) {
        let mut held = queue.lock().expect("no panics");
        loop {
            if let Some(job) = held.jobs.pop_front() {
                drop(held);
                job(tells);
                held = queue.lock().expect("no panics");
            } else if held.open {
                held.idle += 1;
                held = come.wait(held).expect("no panics");
                held.idle -= 1;
            } else {
                return;
            }
        }
    }

    fn submit(&self, job: Job<T>) {
        let (queue, come) = &*self.shared;
        let mut held = queue.lock().expect("no panics");
        held.jobs.push_back(job);
        let idle = held.idle > 0;
        drop(held);
        if idle {
            come.notify_one();
        }
    }
}

impl<T> Drop for Pool<T> {
    fn drop(&mut self) {
        let (queue, come) = &*self.shared;
        queue.lock().expect("no panics").open = false;
        come.notify_all();
        for thread in self.threads.drain(..) {
            thread.join().expect("no panics");
        }
    }
}

/// A pool that tells a loop.
struct Told {
    // The threads end before the loop that they tell.
    pool: Pool<Submitter>,
    watcher: Watcher,
    done: Completions,
}

impl Told {
    fn new(threads: usize) -> Told {
        let mut watcher = watcher(1);
        let pool = Pool::new(threads, watcher.submitter());
        Told { pool, watcher, done: Completions::new() }
    }
}

impl Jobs for Told {
    fn submit(&mut self) {
        self.pool.submit(Box::new(|to| to.post(0, ()).expect("room")));
    }

    fn wait(&mut self) -> u64 {
        self.watcher.wait(&mut self.done).expect("completions");
        let told = |c: &windlass::Completion| matches!(c.result, Ok(Done::Message(_)));
        self.done.drain(..).filter(told).count() as u64
    }
}

/// A pool without a loop.
struct Bare {
    pool: Pool<mpsc::Sender<()>>,
    done: mpsc::Receiver<()>,
}

impl Bare {
    fn new(threads: usize) -> Bare {
        let (tells, done) = mpsc::channel();
        Bare { pool: Pool::new(threads, tells), done }
    }
}

impl Jobs for Bare {
    fn submit(&mut self) {
        self.pool.submit(Box::new(|to| to.send(()).expect("the bench receives")));
    }

    fn wait(&mut self) -> u64 {
        self.done.recv().expect("the threads live");
        1 + self.done.try_iter().count() as u64
    }
}
