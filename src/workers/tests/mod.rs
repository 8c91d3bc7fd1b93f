//! What the workers promise. A test waits for what a job says of itself, never for time to pass; a
//! bound of time only ends a test that hangs.

use std::collections::HashSet;
use std::panic::panic_any;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use proptest::prelude::*;

mod strands;

use super::*;
use crate::sys::{Select, Selector};
use crate::words::wake_state::WakeState;

/// Ends a test that hangs.
const HANGS: Duration = Duration::from_secs(if cfg!(miri) { 600 } else { 60 });

/// Work that is a closure.
struct Call(Box<dyn FnOnce() -> u64 + Send>);

impl Run for Call {
    type Output = u64;
    fn run(self) -> u64 {
        (self.0)()
    }
}

fn call(work: impl FnOnce() -> u64 + Send + 'static) -> Call {
    Call(Box::new(work))
}

/// Workers, and a loop that sleeps until they wake it.
struct Pool {
    workers: Workers<Call>,
    wake: Arc<WakeState>,
    rung: Receiver<()>,
}

impl Pool {
    fn new(threads: usize, queue: usize) -> Pool {
        let (ring, rung) = bounded(1);
        let waker = move || {
            // One that was not heard yet is enough.
            let _ = ring.try_send(());
        };
        let wake = Arc::new(WakeState::new(Arc::new(waker)));
        Pool { workers: Workers::new(threads, queue, Arc::clone(&wake)), wake, rung }
    }

    fn submit(&mut self, key: u64, lane: Lane, work: Call) -> JobHandle<Call> {
        self.workers.submit(key, lane, JobClass::Quick, work).expect("there is room")
    }

    fn next(&mut self) -> Finished<u64> {
        loop {
            self.wake.unpark();
            if let Some(finished) = self.workers.take() {
                return finished;
            }
            if self.wake.prepare_park() {
                self.rung.recv_timeout(HANGS).expect("a completion");
            }
        }
    }

    /// The keys of the next completions.
    fn keys(&mut self, count: usize) -> Vec<u64> {
        (0..count).map(|_| self.next().key).collect()
    }

    fn threads(&self) -> usize {
        self.workers.counts().threads
    }

    fn until_all_are_idle(&self) {
        let start = Instant::now();
        while self.workers.shared.idle.idle() < self.threads() {
            assert!(start.elapsed() < HANGS);
            std::thread::yield_now();
        }
    }
}

/// Work that says that it runs and ends when it may.
#[derive(Clone)]
struct Gate {
    start: Sender<u64>,
    started: Receiver<u64>,
    open: Sender<()>,
    opened: Receiver<()>,
}

impl Gate {
    fn new() -> Gate {
        let ((start, started), (open, opened)) = (unbounded(), unbounded());
        Gate { start, started, open, opened }
    }

    fn work(&self, key: u64) -> Call {
        let gate = self.clone();
        call(move || {
            gate.start.send(key).unwrap();
            gate.opened.recv_timeout(HANGS).expect("opened");
            key
        })
    }

    /// Waits until the next piece of work runs: its key.
    fn started(&self) -> u64 {
        self.started.recv_timeout(HANGS).expect("a start")
    }

    fn open(&self, count: usize) {
        (0..count).for_each(|_| self.open.send(()).unwrap());
    }
}

/// Counts how often it is dropped.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn threads_are_made_when_no_worker_is_idle() {
    let mut pool = Pool::new(4, 64);
    assert_eq!(pool.threads(), 0, "no job, no thread");
    let done = if cfg!(miri) { 5 } else { 50 };
    for key in 0..done {
        let name = || u64::from(std::thread::current().name() == Some("windlass-0"));
        pool.submit(key, Lane::Normal, call(name));
        assert_eq!(pool.next().result, Ok(1));
        pool.until_all_are_idle();
        assert_eq!(pool.threads(), 1, "it was idle");
    }
    let gate = Gate::new();
    for count in 1..=3 {
        pool.submit(count, Lane::Normal, gate.work(count));
        gate.started();
        assert_eq!(pool.threads() as u64, count);
    }
    for key in 4..=10 {
        pool.submit(key, Lane::Normal, gate.work(key));
    }
    gate.started();
    assert_eq!(pool.threads(), 4);
    let expected =
        JobCounters { queued: 6, running: 4, done, threads: 4, ..JobCounters::default() };
    assert_eq!(pool.workers.counts(), expected);
    gate.open(10);
    pool.keys(10);
    assert_eq!((pool.threads(), pool.workers.in_flight()), (4, 0));
}

#[test]
fn what_was_not_started_is_given_back() {
    let mut pool = Pool::new(1, 8);
    let (gate, drops) = (Gate::new(), Arc::new(AtomicUsize::new(0)));
    let first = pool.submit(0, Lane::Normal, gate.work(0));
    gate.started();
    let counted = Counted(Arc::clone(&drops));
    let second =
        pool.submit(1, Lane::Normal, call(move || counted.0.load(Ordering::SeqCst) as u64));
    pool.submit(2, Lane::Normal, call(|| 2));
    let work = pool.workers.cancel(&second).expect("it waits");
    assert!(pool.workers.cancel(&second).is_none(), "only once");
    assert_eq!(work.run(), 0, "the work is whole");
    assert_eq!(drops.load(Ordering::SeqCst), 1);
    assert!(pool.workers.cancel(&first).is_none(), "it runs");
    gate.open(1);
    assert_eq!(pool.keys(2), [0, 2]);
    assert!(pool.workers.cancel(&first).is_none(), "it has ended");
    assert!(pool.workers.take().is_none());
    let counts = pool.workers.counts();
    assert_eq!((counts.cancelled, counts.done, pool.workers.in_flight()), (1, 2, 0));
}

#[test]
fn a_full_queue_names_its_bound() {
    let mut pool = Pool::new(1, 3);
    let gate = Gate::new();
    for key in 0..3 {
        pool.submit(key, Lane::Normal, gate.work(key));
    }
    let refused = pool.workers.submit(3, Lane::High, JobClass::Quick, call(|| 33)).unwrap_err();
    assert_eq!(refused.reason, Refusal::Full { limit: Limit::Jobs, count: 3 });
    assert!(refused.to_string().contains("3 jobs"), "{refused}");
    assert_eq!(refused.value.run(), 33);
    gate.open(3);
    pool.next();
    pool.submit(4, Lane::Normal, call(|| 4));
    assert_eq!(pool.keys(3), [1, 2, 4]);
}

/// Cancelled jobs leave slots in the queue; they take no room from others, and order is kept.
#[test]
fn cancelled_jobs_take_no_room() {
    let mut pool = Pool::new(1, 8);
    let gate = Gate::new();
    pool.submit(0, Lane::Normal, gate.work(0));
    gate.started();
    for key in 1..=3 {
        pool.submit(key, Lane::Normal, call(|| 0));
    }
    for _ in 0..if cfg!(miri) { 20 } else { 1000 } {
        let job = pool.submit(99, Lane::Normal, call(|| 0));
        assert!(pool.workers.cancel(&job).is_some());
    }
    for key in 4..=7 {
        pool.submit(key, Lane::Normal, call(|| 0));
    }
    gate.open(1);
    assert_eq!(pool.keys(8), [0, 1, 2, 3, 4, 5, 6, 7]);
}

/// With one worker the order is exact.
#[test]
fn lanes_go_by_priority_and_age() {
    let mut pool = Pool::new(1, 100);
    let gate = Gate::new();
    pool.submit(0, Lane::Normal, gate.work(0));
    gate.started();
    for key in 0..2 {
        pool.submit(300 + key, Lane::Low, call(|| 0));
        pool.submit(200 + key, Lane::Normal, call(|| 0));
    }
    for key in 100..140 {
        pool.submit(key, Lane::High, call(|| 0));
    }
    gate.open(1);
    let keys = pool.keys(45);
    let mut expected = vec![0];
    // Both lower queues have waited for 16 of the highest; the lowest goes first.
    expected.extend(100..116);
    expected.extend([300, 200]);
    // The low one has waited for the normal one as well.
    expected.extend(116..131);
    expected.push(301);
    expected.extend([131, 201]);
    expected.extend(132..140);
    assert_eq!(keys, expected);
}

#[test]
fn slow_and_quick_jobs_of_a_lane_take_turns() {
    let mut pool = Pool::new(1, 100);
    let gate = Gate::new();
    pool.submit(0, Lane::Normal, gate.work(0));
    gate.started();
    for key in 0..4 {
        drop(pool.workers.submit(20 + key, Lane::Normal, JobClass::Slow, call(|| 0)).unwrap());
    }
    for key in 0..4 {
        pool.submit(10 + key, Lane::Normal, call(|| 0));
    }
    gate.open(1);
    assert_eq!(pool.keys(9), [0, 20, 10, 21, 11, 22, 12, 23, 13]);
}

#[test]
fn slow_jobs_leave_workers_for_others() {
    let pools = [(3, 2), (1, 1), (2, 1), (4, 2), (5, 3)];
    for &(threads, cap) in &pools[..if cfg!(miri) { 1 } else { 5 }] {
        let mut pool = Pool::new(threads, 100);
        let gate = Gate::new();
        for key in 0..8 {
            drop(pool.workers.submit(key, Lane::High, JobClass::Slow, gate.work(key)).unwrap());
        }
        let mut started: HashSet<u64> = (0..cap).map(|_| gate.started()).collect();
        if threads > cap {
            for key in 100..150 {
                pool.submit(key, Lane::Low, call(|| 0));
            }
            assert!(pool.keys(50).iter().all(|key| *key >= 100));
        }
        for running in cap..8 {
            assert!(gate.started.is_empty(), "no more than {cap} of {threads}");
            // All others are idle: the worker that ends a slow job takes the next.
            gate.open(1);
            pool.next();
            started.insert(gate.started());
            assert_eq!(started.len(), running + 1);
        }
        gate.open(cap);
        pool.keys(cap);
        assert!(pool.threads() <= threads);
    }
}

fn drops_with(_: &Counted) -> u64 {
    0
}

#[test]
fn a_panic_is_a_result() {
    let mut pool = Pool::new(1, 8);
    pool.submit(0, Lane::Normal, call(|| panic!("in words")));
    pool.submit(1, Lane::Normal, call(|| panic!("{} words", 2)));
    pool.submit(2, Lane::Normal, call(|| panic_any(3)));
    pool.submit(3, Lane::Normal, call(|| 3));
    let results: Vec<_> = (0..4).map(|_| pool.next().result).collect();
    let message = |i: usize| results[i].as_ref().unwrap_err().message();
    assert_eq!((message(0), message(1), message(2)), (Some("in words"), Some("2 words"), None));
    assert_eq!(results[3], Ok(3));
    assert_eq!((pool.workers.counts().panicked, pool.threads()), (3, 1));
}

#[test]
fn stop_drops_what_waits_and_lets_the_rest_end() {
    let mut pool = Pool::new(2, 100);
    let (gate, drops) = (Gate::new(), Arc::new(AtomicUsize::new(0)));
    for key in 0..2 {
        pool.submit(key, Lane::Normal, gate.work(key));
    }
    assert_ne!(gate.started(), gate.started());
    for key in 2..10 {
        let counted = Counted(Arc::clone(&drops));
        pool.submit(key, Lane::Low, call(move || counted.0.load(Ordering::SeqCst) as u64));
    }
    assert!(!pool.workers.stop(Duration::ZERO), "two run");
    assert_eq!(drops.load(Ordering::SeqCst), 8);
    assert_eq!((pool.workers.in_flight(), pool.workers.counts().cancelled), (2, 8));
    let refused = pool.workers.submit(10, Lane::High, JobClass::Quick, call(|| 10)).unwrap_err();
    assert_eq!(refused.reason, Refusal::Closed);
    gate.open(2);
    pool.keys(2);
    assert!(pool.workers.stop(HANGS), "they have ended by themselves");
    assert_eq!((pool.threads(), pool.workers.in_flight()), (0, 0));
    assert!(Pool::new(1, 1).workers.stop(Duration::ZERO), "there never was one");
}

/// Threads that outlive the pool end with their job, and nothing stays behind.
#[test]
fn detached_workers_clean_up() {
    let mut pool = Pool::new(1, 8);
    let gate = Gate::new();
    pool.submit(0, Lane::Normal, gate.work(0));
    gate.started();
    let threads = pool.workers.threads.clone();
    let shared = Arc::downgrade(&pool.workers.shared);
    assert!(!pool.workers.stop(Duration::ZERO));
    drop(pool);
    assert!(shared.upgrade().is_some());
    gate.open(1);
    assert!(threads.recv_timeout(HANGS).unwrap_err().is_disconnected());
    assert!(shared.upgrade().is_none());
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no stacks to run out of")]
fn a_thread_that_cannot_be_made() {
    let mut pool = Pool::new(4, 8);
    let stack = |pool: &Pool, bytes| {
        pool.workers.shared.threads.lock().unwrap().stack_bytes = bytes;
    };
    stack(&pool, Some(1 << 48));
    let refused = pool.workers.submit(0, Lane::Normal, JobClass::Quick, call(|| 7)).unwrap_err();
    assert!(matches!(refused.reason, Refusal::Os(_)), "{refused:?}");
    assert_eq!((refused.value.run(), pool.threads(), pool.workers.in_flight()), (7, 0, 0));
    stack(&pool, None);
    let gate = Gate::new();
    pool.submit(1, Lane::Normal, gate.work(1));
    gate.started();
    stack(&pool, Some(1 << 48));
    pool.submit(2, Lane::Normal, call(|| 2));
    pool.submit(3, Lane::Normal, call(|| 3));
    assert_eq!(pool.threads(), 1, "one has to do");
    gate.open(1);
    assert_eq!(pool.keys(3), [1, 2, 3]);
}

/// A round after the other, so that workers and loop fall asleep and wake at any moment.
#[test]
fn no_wake_is_lost() {
    let rounds = if cfg!(miri) { 5 } else { crate::seeds::races(4_000) };
    for threads in [1, 2, 4] {
        let mut pool = Pool::new(threads, 16);
        let mut random = 7u64;
        for _ in 0..rounds {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let count = (random >> 33) % 6;
            for key in 0..count {
                let class = match random >> (40 + 3 * key) & 7 {
                    0..3 => JobClass::Quick,
                    3..5 => JobClass::Slow,
                    number => JobClass::Strand(number as u32),
                };
                drop(pool.workers.submit(key, Lane::Normal, class, call(|| 0)).unwrap());
            }
            assert_eq!(pool.keys(count as usize).len() as u64, count);
        }
    }
}

/// Cells are used again: in steady state a job allocates nothing (channels are bounded).
#[test]
fn cells_are_used_again() {
    let mut pool = Pool::new(2, 8);
    let mut seen = HashSet::new();
    let rounds = if cfg!(miri) { 3 } else { 100 };
    for round in 0..rounds {
        for key in 0..8 {
            let job = pool.submit(key, Lane::Normal, call(|| 0));
            seen.insert(Arc::as_ptr(&job.0) as usize);
        }
        pool.keys(8);
        assert_eq!(seen.len(), 8, "round {round}");
    }
    let kept = pool.submit(8, Lane::Normal, call(|| 0));
    pool.next();
    for key in 0..rounds {
        let job = pool.submit(key, Lane::Normal, call(|| 0));
        assert!(!Arc::ptr_eq(&job.0, &kept.0), "it has another owner");
        pool.next();
        assert!(pool.workers.cancel(&kept).is_none());
    }
    assert!(pool.workers.slots.len() <= 8);
}

#[derive(Clone, Debug)]
enum Step {
    Submit { lane: Lane, class: JobClass, panics: bool },
    Cancel(usize),
    Take,
}

fn step() -> impl Strategy<Value = Step> {
    let lane = prop_oneof![Just(Lane::High), Just(Lane::Normal), Just(Lane::Low)];
    let strand = (0u32..3).prop_map(JobClass::Strand);
    let class = prop_oneof![1 => Just(JobClass::Quick), 1 => Just(JobClass::Slow), 2 => strand];
    let submit = (lane, class, prop::bool::weighted(0.05));
    prop_oneof![
        3 => submit.prop_map(|(lane, class, panics)| Step::Submit { lane, class, panics }),
        1 => any::<usize>().prop_map(Step::Cancel),
        2 => Just(Step::Take),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Every job that is accepted ends in one completion, or comes back from `cancel`, or is
    /// dropped by `stop`; its work is dropped once.
    #[test]
    fn every_job_ends_once(
        threads in 1usize..5,
        queue in 1usize..12,
        steps in prop::collection::vec(step(), 0..if cfg!(miri) { 40 } else { 200 }),
        drain in any::<bool>(),
    ) {
        let mut pool = Pool::new(threads, queue);
        let drops = Arc::new(AtomicUsize::new(0));
        let (mut made, mut open, mut jobs) = (0, HashSet::new(), Vec::new());
        for step in steps {
            match step {
                Step::Submit { lane, class, panics } => {
                    let counted = Counted(Arc::clone(&drops));
                    let work = call(move || {
                        let counted = counted;
                        if panics {
                            // As a panic does, without its message.
                            std::panic::resume_unwind(Box::new("no"));
                        }
                        drop(counted);
                        made
                    });
                    match pool.workers.submit(made, lane, class, work) {
                        Ok(job) => {
                            jobs.push((made, job));
                            open.insert(made);
                        }
                        Err(refused) => {
                            prop_assert_eq!(open.len(), queue);
                            drop(refused);
                        }
                    }
                    made += 1;
                }
                Step::Cancel(_) if jobs.is_empty() => {}
                Step::Cancel(index) => {
                    let (key, job) = jobs.swap_remove(index % jobs.len());
                    if pool.workers.cancel(&job).is_some() {
                        prop_assert!(open.remove(&key), "it had ended");
                    }
                }
                Step::Take => {
                    if let Some(finished) = pool.workers.take() {
                        prop_assert!(open.remove(&finished.key), "twice");
                        let result = finished.result;
                        prop_assert!(result.is_err() || result == Ok(finished.key));
                    }
                }
            }
            prop_assert_eq!(pool.workers.in_flight(), open.len());
        }
        while drain && !open.is_empty() {
            let key = pool.next().key;
            prop_assert!(open.remove(&key));
        }
        prop_assert!(pool.workers.stop(HANGS));
        while let Some(finished) = pool.workers.take() {
            prop_assert!(open.remove(&finished.key));
        }
        prop_assert_eq!(pool.workers.in_flight(), 0);
        prop_assert!(pool.workers.take().is_none());
        drop(pool);
        prop_assert_eq!(drops.load(Ordering::SeqCst) as u64, made);
    }
}

/// How many jobs that do nothing pass in a second; the loop sleeps as a watcher does.
#[test]
#[ignore = "a measurement: cargo test --release --lib -- --ignored --nocapture jobs_per_second"]
fn jobs_per_second() {
    struct Nothing;
    impl Run for Nothing {
        type Output = ();
        fn run(self) {}
    }
    let mut selector = Selector::new(64).unwrap();
    let waker = selector.waker(0).unwrap();
    let wake = Arc::new(WakeState::new(waker));
    let mut workers = Workers::new(4, 1024, Arc::clone(&wake));
    for round in 0..2 {
        let count = if round == 0 { 200_000 } else { 2_000_000 };
        let (mut submitted, mut taken, mut sleeps) = (0, 0, 0u64);
        let start = Instant::now();
        while submitted < 32 {
            submitted += 1;
            drop(workers.submit(submitted, Lane::Normal, JobClass::Quick, Nothing).unwrap());
        }
        while taken < count {
            wake.unpark();
            while let Some(_finished) = workers.take() {
                taken += 1;
                if submitted < count {
                    submitted += 1;
                    drop(
                        workers.submit(submitted, Lane::Normal, JobClass::Quick, Nothing).unwrap(),
                    );
                }
            }
            if taken < count && wake.prepare_park() {
                sleeps += 1;
                selector.select(None).unwrap();
            }
        }
        let ns = start.elapsed().as_nanos() as u64;
        if round == 1 {
            println!(
                "{} jobs/s ({} ns/job, {sleeps} sleeps)",
                count * 1_000_000_000 / ns,
                ns / count
            );
        }
    }
    assert!(workers.stop(Duration::from_secs(10)));
}
