//! What strands promise: see [`crate::workers::strand`].

use super::*;

#[test]
fn a_strand_runs_one_job_at_a_time_in_order() {
    let mut pool = Pool::new(4, 100);
    let running = Arc::new(AtomicUsize::new(0));
    let order = Arc::new(std::sync::Mutex::new(Vec::new()));
    let count = if cfg!(miri) { 12 } else { 90 };
    for key in 0..count {
        let (running, order) = (Arc::clone(&running), Arc::clone(&order));
        let work = call(move || {
            assert_eq!(running.fetch_add(1, Ordering::SeqCst), 0, "another one runs");
            order.lock().unwrap().push(key);
            std::thread::yield_now();
            running.fetch_sub(1, Ordering::SeqCst);
            key
        });
        drop(pool.workers.submit(key, Lane::Normal, JobClass::Strand(7), work).unwrap());
    }
    for _ in 0..count {
        pool.next().result.unwrap();
    }
    assert!(order.lock().unwrap().iter().copied().eq(0..count));
}

/// Also where other jobs wait, so that one worker lets another go on with it.
#[test]
fn jobs_of_a_strand_come_back_in_their_order() {
    let mut pool = Pool::new(4, 1000);
    let (count, other) = (if cfg!(miri) { 12 } else { 400 }, u64::MAX);
    for key in 0..count {
        drop(pool.workers.submit(key, Lane::Normal, JobClass::Strand(7), call(|| 0)).unwrap());
        pool.submit(other, Lane::Normal, call(|| 0));
    }
    let mut keys = pool.keys(2 * count as usize);
    keys.retain(|&key| key != other);
    assert!(keys.into_iter().eq(0..count));
}

/// As soon as no worker holds a strand, another worker may have its next job: what has ended is on
/// its way to the loop before that.
#[test]
fn a_strand_is_let_go_after_its_jobs_were_delivered() {
    let mut pool = Pool::new(2, 100);
    for key in 0..if cfg!(miri) { 12 } else { 2000 } {
        drop(pool.workers.submit(key, Lane::Normal, JobClass::Strand(7), call(|| 0)).unwrap());
        let strand = pool.workers.strand(7, Lane::Normal);
        let mut looks = 0_u32;
        while strand.is_held() {
            looks += 1;
            // Where there is one processor, the worker needs it.
            if looks.is_multiple_of(64) { std::thread::yield_now() } else { std::hint::spin_loop() }
        }
        let finished = pool.workers.take().expect("it is delivered");
        assert_eq!(finished.key, key);
    }
}

#[test]
fn strands_run_beside_each_other_and_beside_all_else() {
    let mut pool = Pool::new(3, 100);
    let gate = Gate::new();
    for key in 0..4 {
        for strand in 0..2 {
            let work = gate.work(10 * u64::from(strand) + key);
            drop(pool.workers.submit(0, Lane::Normal, JobClass::Strand(strand), work).unwrap());
        }
    }
    pool.submit(0, Lane::Normal, gate.work(20));
    let started: HashSet<u64> = (0..3).map(|_| gate.started()).collect();
    assert_eq!(started, HashSet::from([0, 10, 20]));
    assert!(gate.started.is_empty(), "no more than one of each");
    gate.open(9);
    assert_eq!(pool.keys(9), [0; 9]);
}

/// Between two jobs of a strand a worker takes what else waits, the more urgent first.
#[test]
fn a_long_strand_delays_no_other_job() {
    let mut pool = Pool::new(1, 100);
    let gate = Gate::new();
    pool.submit(0, Lane::Normal, gate.work(0));
    gate.started();
    for key in 0..4 {
        drop(pool.workers.submit(key, Lane::Normal, JobClass::Strand(1), call(|| 0)).unwrap());
        drop(pool.workers.submit(10 + key, Lane::Normal, JobClass::Strand(2), call(|| 0)).unwrap());
        pool.submit(20 + key, Lane::Normal, call(|| 0));
    }
    pool.submit(30, Lane::High, call(|| 0));
    gate.open(1);
    assert_eq!(pool.keys(14), [0, 30, 0, 20, 10, 21, 1, 22, 11, 23, 2, 12, 3, 13]);
}

/// What is withdrawn of a strand stays behind as empty slots, which do not pile up; the strand goes
/// on.
#[test]
fn jobs_of_a_strand_are_given_back() {
    let mut pool = Pool::new(1, 8);
    let gate = Gate::new();
    let strand = |pool: &mut Pool, key, work| {
        pool.workers.submit(key, Lane::Low, JobClass::Strand(5), work).unwrap()
    };
    drop(strand(&mut pool, 0, gate.work(0)));
    gate.started();
    let kept = strand(&mut pool, 1, call(|| 1));
    let many = if cfg!(miri) { 40 } else { 1000 };
    for key in 2..many {
        let job = strand(&mut pool, key, call(|| 0));
        assert!(pool.workers.cancel(&job).is_some());
    }
    drop(strand(&mut pool, many, call(|| 0)));
    gate.open(1);
    assert_eq!(pool.keys(3), [0, 1, many]);
    assert!(pool.workers.cancel(&kept).is_none());
    pool.until_all_are_idle();
    // Strands without a job are forgotten.
    for number in 100..100 + many as u32 {
        drop(pool.workers.submit(0, Lane::Low, JobClass::Strand(number), call(|| 0)).unwrap());
        pool.next();
    }
    assert!(pool.workers.strands.len() < 100, "{}", pool.workers.strands.len());
    drop(strand(&mut pool, 1, gate.work(1)));
    gate.started();
    let drops = Arc::new(AtomicUsize::new(0));
    let counted = Counted(Arc::clone(&drops));
    drop(strand(&mut pool, 2, call(move || drops_with(&counted))));
    pool.workers.stop(Duration::ZERO);
    assert_eq!(drops.load(Ordering::SeqCst), 1, "it waited");
    gate.open(1);
    assert_eq!(pool.next().key, 1);
}

/// Strands of which nothing is left make room for others.
#[test]
fn withdrawn_strands_take_no_room() {
    let mut pool = Pool::new(1, 4);
    let gate = Gate::new();
    pool.submit(0, Lane::Normal, gate.work(0));
    gate.started();
    let submit = |pool: &mut Pool, key, number| {
        pool.workers.submit(key, Lane::Normal, JobClass::Strand(number), call(|| 1)).unwrap()
    };
    drop(submit(&mut pool, 1, 7));
    for number in 0..100 {
        let job = submit(&mut pool, 99, number);
        assert!(pool.workers.cancel(&job).is_some());
    }
    drop(submit(&mut pool, 2, 50));
    drop(submit(&mut pool, 3, 7));
    gate.open(1);
    assert_eq!(pool.keys(4), [0, 1, 2, 3]);
}
