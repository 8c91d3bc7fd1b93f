//! Jobs: what threads do, in which order, what is refused, and how those end that were not begun
//! and those that were.

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use windlass::driver::Driver;
use windlass::fs::OpenOptions;
use windlass::{Buf, Completions, ErrorKind, Limit, Op, Priority, Refusal, Ticket, Watcher};

use crate::common::files::*;
use crate::common::*;

const HOUR: Duration = Duration::from_secs(3600);

pub fn a_job_returns_its_value<H: Harness>() {
    let mut b = H::bench();
    let c = b.run(Op::run(|| vec![1, 2, 3]).token(8));
    assert_eq!((c.token, c.is_late(), c.has_more()), (8, false, false));
    assert_eq!(expect_returned::<Vec<i32>>(c), [1, 2, 3]);
    expect_returned::<()>(b.run(Op::run(|| ())));
    // Not on the loop's thread.
    let here = std::thread::current().id();
    let there = expect_returned::<std::thread::ThreadId>(b.run(Op::run(move || {
        let name = std::thread::current().name().map(str::to_owned);
        assert!(name.is_some_and(|name| name.starts_with("windlass-")));
        std::thread::current().id()
    })));
    assert_ne!(here, there);
    for round in 0..200u64 {
        let open: Vec<Ticket> = (0..20).map(|i| b.submit(Op::run(move || round * i))).collect();
        for (i, ticket) in open.into_iter().enumerate() {
            assert_eq!(expect_returned::<u64>(b.end(ticket)), round * i as u64);
        }
    }
    b.expect_all_ended();
}

pub fn a_panic_of_a_job_is_its_error<H: Harness>() {
    let mut b = H::bench_with(Watcher::builder().threads(1));
    std::panic::set_hook(Box::new(|_| {}));
    for _ in 0..3 {
        let (n, c) = (5, b.run(Op::run(|| -> u64 { panic!("plain words") })));
        assert_eq!(&*expect_unmoved(c, ErrorKind::Panicked), b"plain words");
        let c = b.run(Op::run(move || -> u64 { panic!("words of {n}") }));
        assert_eq!(&*expect_unmoved(c, ErrorKind::Panicked), b"words of 5");
        let c = b.run(Op::run(|| -> u64 { std::panic::panic_any(7u8) }));
        assert!(expect_unmoved(c, ErrorKind::Panicked).is_empty());
    }
    let _ = std::panic::take_hook();
    // The thread lives on.
    expect_returned::<()>(b.run(Op::run(|| ())));
    b.expect_all_ended();
}

pub fn urgent_jobs_go_first<H: Harness>() {
    let mut b = H::bench_with(Watcher::builder().threads(1));
    let (held, gate) = hold(&mut b);
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut open = Vec::new();
    for (name, priority) in
        [('l', Priority::Low), ('n', Priority::Normal), ('h', Priority::High)].repeat(3)
    {
        let order = Arc::clone(&order);
        let job = Op::run(move || order.lock().unwrap().push(name));
        open.push(b.submit(job.priority(Priority::High).priority(priority)));
    }
    drop(gate);
    expect_held(b.end(held));
    for ticket in open {
        expect_returned::<()>(b.end(ticket));
    }
    assert_eq!(order.lock().unwrap().iter().collect::<String>(), "hhhnnnlll");
}

/// Jobs of the program and look-ups leave half of the threads to files.
pub fn jobs_leave_threads_to_files<H: Harness>() {
    let mut b = H::bench_with(Watcher::builder().threads(2));
    let (held, gate) = hold(&mut b);
    let (_second, job) = Gate::new();
    let waits = b.submit(job);
    for _ in 0..20 {
        assert!(b.run(Op::metadata("/")).error_kind().is_none());
    }
    assert!(b.watcher.cancel(waits), "it was not begun");
    expect_unmoved(b.end(waits), ErrorKind::Cancelled);
    drop(gate);
    expect_held(b.end(held));
    b.expect_all_ended();
}

/// Everything that threads do, while all of them are busy: one operation of each kind.
fn queue<D: Driver>(b: &mut Bench<D>, directory: &Directory) -> Vec<(Ticket, usize)> {
    let file = b.watcher.attach(std::fs::File::create(directory.at("queue")).unwrap()).unwrap();
    let list = || Buf::list([vec![1; 70], vec![2; 7]]);
    let ops = [
        Op::write_at(file, list(), 0),
        Op::set_len(file, 5),
        Op::metadata(file),
        Op::metadata(directory.path()),
        Op::create_dir(directory.at("made"), 0o700),
        Op::lookup_host("127.0.0.1", 1),
        Op::run(|| 5u64),
    ];
    let enter = |op: Op| {
        let len = op.buf().len();
        (b.submit(op), len)
    };
    ops.into_iter().map(enter).collect()
}

pub fn what_was_not_begun_is_cancelled_at_once<H: Harness>() {
    let directory = Directory::new();
    let mut b = H::bench_with(Watcher::builder().threads(1));
    let (held, gate) = hold(&mut b);
    for (ticket, len) in queue(&mut b, &directory) {
        assert!(b.watcher.cancel(ticket));
        assert!(!b.watcher.cancel(ticket), "it has ended");
        let c = b.end(ticket);
        assert!(!c.is_late());
        let buf = expect_unmoved(c, ErrorKind::Cancelled);
        assert_eq!(buf.len(), len);
    }
    assert!(b.is_open(held));
    drop(gate);
    expect_held(b.end(held));
    assert!(!directory.at("made").exists());
    b.expect_all_ended();
}

pub fn what_was_not_begun_expires_in_time<H: Harness>() {
    let directory = Directory::new();
    let mut b = H::bench_with(Watcher::builder().threads(1));
    let (held, gate) = hold(&mut b);
    let passed = b.watcher.now();
    for timeout in [None, Some(Duration::from_millis(3))] {
        let due = |op: Op| match timeout {
            Some(timeout) => op.timeout(timeout),
            None => op.deadline(passed),
        };
        let start = b.watcher.now();
        let open = [
            b.submit(due(Op::create_dir(directory.at("made"), 0o700))),
            b.submit(due(Op::run(|| 1))),
            b.submit(due(Op::lookup_host("localhost", 1))),
        ];
        for ticket in open {
            let c = b.end(ticket);
            assert!(!c.is_late());
            expect_unmoved(c, ErrorKind::Deadline);
            assert!(timeout.is_none_or(|timeout| b.watcher.now() >= start + timeout));
        }
    }
    assert!(b.is_open(held));
    drop(gate);
    expect_held(b.end(held));
    assert!(!directory.at("made").exists());
    b.expect_all_ended();
}

/// C4: a job that has begun ends with its real result, and its completion is marked as late.
pub fn what_was_begun_ends_late<H: Harness>() {
    let mut b = H::bench_with(Watcher::builder().threads(1));
    for ends in ["cancel", "deadline", "both", "passed"] {
        let (gate, job) = Gate::new();
        let job = match ends {
            "deadline" | "both" => job.timeout(Duration::from_millis(1)),
            _ => job,
        };
        let ticket = b.submit(job);
        gate.wait();
        if ends == "both" || ends == "deadline" {
            b.pass(Duration::from_millis(5));
        }
        match ends {
            "cancel" => assert!(b.watcher.cancel(ticket)),
            // It is told to end already, but has not.
            "both" => _ = b.watcher.cancel(ticket),
            _ => {}
        }
        b.look();
        assert!(b.is_open(ticket), "{ends}: nothing ends work that has begun");
        assert_eq!(b.watcher.counters().in_flight, 1);
        drop(gate);
        let c = b.end(ticket);
        assert_eq!(c.is_late(), ends != "passed", "{ends}");
        expect_held(c);
        assert!(!b.watcher.cancel(ticket));
    }
    // A deadline that is not needed marks nothing.
    let c = b.run(Op::run(|| 1).timeout(HOUR));
    assert!(!c.is_late());
    // A panic comes late, too.
    std::panic::set_hook(Box::new(|_| {}));
    let (says, begun) = channel();
    let (open, opened) = channel::<()>();
    let ticket = b.submit(Op::run(move || -> u64 {
        says.send(()).unwrap();
        let _ = opened.recv();
        panic!("late words")
    }));
    receive(&begun, "the job begins");
    assert!(b.watcher.cancel(ticket));
    drop(open);
    let c = b.end(ticket);
    let _ = std::panic::take_hook();
    assert!(c.is_late());
    assert_eq!(&*expect_unmoved(c, ErrorKind::Panicked), b"late words");
    b.expect_all_ended();
}

pub fn a_full_pool_names_its_bound<H: Harness>() {
    let directory = Directory::new();
    let mut b = H::bench_with(Watcher::builder().threads(1).max_jobs(3));
    let file = b.make_file(directory.at("a"));
    let (held, gate) = hold(&mut b);
    let list = || Buf::list(["in ", "parts"]);
    let open = [b.submit(Op::metadata("/")), b.submit(Op::write_at(file, list(), 0))];
    let full = Refusal::Full { limit: Limit::Jobs, count: 3 };
    for _ in 0..2 {
        let (reason, op) = b.refuse(Op::write_at(file, list(), 0).token(5));
        assert_eq!((reason, op.buf().len(), op.buf().parts().len()), (full, 8, 2));
        assert_eq!(b.refuse(Op::metadata("/")).0, full);
        assert_eq!(b.refuse(Op::run(|| ())).0, full);
        assert_eq!(b.refuse(Op::set_len(file, 0)).0, full);
    }
    // What was refused can be submitted again, as it is.
    let (_, again) = b.refuse(Op::write_at(file, list(), 8));
    assert!(b.watcher.cancel(open[0]));
    expect_unmoved(b.end(open[0]), ErrorKind::Cancelled);
    let again = b.submit(again);
    assert!(full.to_string().contains("Builder::max_jobs"));
    drop(gate);
    expect_held(b.end(held));
    expect_written(b.end(open[1]));
    expect_written(b.end(again));
    assert_eq!(std::fs::read(directory.at("a")).unwrap(), b"in partsin parts");
    b.expect_all_ended();
}

/// close(2) may have much to do. The file is gone for its users at once. The close needs none of
/// the threads for jobs, and no place among these.
pub fn a_thread_closes_a_file<H: Harness>() {
    let directory = Directory::new();
    for jobs in [9, 1] {
        let mut b = H::bench_with(Watcher::builder().threads(1).max_jobs(jobs));
        let file = b.make_file(directory.at("a"));
        let (held, gate) = hold(&mut b);
        let close = b.submit(Op::close(file).token(3));
        assert_eq!(b.refuse(Op::sync_all(file)).0, Refusal::Stale);
        assert!(!b.watcher.abort(file));
        let c = b.end(close);
        assert_eq!((c.source, c.token), (file, 3));
        expect_closed(c);
        drop(gate);
        expect_held(b.end(held));
        #[cfg(any(target_os = "linux", target_os = "android"))]
        assert!(!is_held(&directory.at("a")));
        assert_eq!(b.watcher.counters().sources, 0);
        b.expect_all_ended();
    }
}

/// Another thread hears of a full pool from the completion.
pub fn a_full_pool_refuses_other_threads<H: Harness>() {
    let directory = Directory::new();
    let mut b = H::bench_with(Watcher::builder().threads(1).max_jobs(1));
    let file = b.make_file(directory.at("a"));
    let (held, gate) = hold(&mut b);
    let submitter = b.submitter();
    let list = Buf::list(["ke", "pt"]);
    let write = submitter.submit(Op::write_at(file, list, 0)).unwrap();
    let buf = expect_errno(b.end(write), &[libc::ENOBUFS]);
    assert_eq!((buf.len(), buf.parts().len()), (4, 2));
    let job = submitter.submit(Op::run(|| 1)).unwrap();
    expect_errno(b.end(job), &[libc::ENOBUFS]);
    drop(gate);
    expect_held(b.end(held));
    let job = submitter.submit(Op::run(|| 2u8)).unwrap();
    assert_eq!(expect_returned::<u8>(b.end(job)), 2);
}

pub fn other_threads_submit_and_cancel<H: Harness>() {
    let directory = Directory::new();
    let mut b = H::bench_with(Watcher::builder().threads(2));
    let file = b.make_file(directory.at("a"));
    b.write_at(file, pattern(10_000, 1), 0);
    let submitter = b.submitter();
    let path = directory.path().to_owned();
    let thread = std::thread::spawn(move || {
        let mut open = Vec::new();
        for i in 0..30u64 {
            let op = Op::read_at(file, room(1000), i * 300).token(i);
            open.push(submitter.submit(op).unwrap());
            open.push(submitter.submit(Op::metadata(&path).token(100)).unwrap());
            open.push(submitter.submit(Op::run(move || i).token(200 + i)).unwrap());
            let write = Op::write_at(file, vec![i as u8; 10], 20_000 + i * 10);
            open.push(submitter.submit(write.token(300)).unwrap());
        }
        open
    });
    for _ in 0..120 {
        let c = b.next();
        match c.token {
            100 => assert!(c.error_kind().is_none(), "{c:?}"),
            300 => drop(expect_written(c)),
            token if token >= 200 => assert_eq!(expect_returned::<u64>(c), token - 200),
            i => {
                let at = i as usize * 300;
                expect_same(&expect_read(c), &pattern(10_000, 1)[at..at + 1000]);
            }
        }
    }
    assert_eq!(join(thread, "the thread that submits").len(), 120);
    // A cancel from there, of what has begun here and of what has not.
    let submitter = b.submitter();
    let (held, gate) = hold(&mut b);
    let waits = b.submit(Op::run(|| 1));
    std::thread::spawn(move || {
        submitter.cancel(waits).unwrap();
        submitter.cancel(held).unwrap();
    });
    expect_unmoved(b.end(waits), ErrorKind::Cancelled);
    // The second stands behind the first in the queue.
    b.pass(Duration::from_millis(2));
    drop(gate);
    let c = b.end(held);
    let _ = c.is_late();
    expect_held(c);
    b.expect_all_ended();
}

/// A deadline, a cancel and work that ends at the same time: each operation ends once.
pub fn ends_that_race_are_one<H: Harness>() {
    let directory = Directory::new();
    let mut b = H::bench_with(Watcher::builder().threads(2));
    let file = b.make_file(directory.at("a"));
    let mut random = Random::new(3);
    for _ in 0..200 {
        let timeout = Duration::from_nanos(random.below(60_000) as u64);
        let list = Buf::list([vec![1; 500], vec![2; 500]]);
        let open = [
            b.submit(Op::write_at(file, list, 0).timeout(timeout)),
            b.submit(Op::run(|| 1).timeout(timeout)),
            b.submit(Op::sync_data(file).timeout(timeout)),
            b.submit(Op::read_at(file, Buf::list([room(9), room(9)]), 0)),
            b.submit(Op::metadata(file)),
        ];
        if random.below(2) == 0 {
            b.look();
        }
        for ticket in &open[3..] {
            b.watcher.cancel(*ticket);
        }
        for ticket in open {
            let c = b.end(ticket);
            match c.error_kind() {
                None => {}
                Some(ErrorKind::Deadline | ErrorKind::Cancelled) => assert!(!c.is_late()),
                other => panic!("{other:?}"),
            }
        }
    }
    b.expect_all_ended();
    let mut done = Completions::new();
    assert_eq!(b.watcher.try_wait(&mut done).unwrap(), 0);
}

/// A loop inside another sleeps on its descriptor until a thread or the kernel has something.
#[cfg(unix)]
pub fn work_ends_the_sleep_of_a_foreign_loop<H: Harness>() {
    let directory = Directory::new();
    let mut b = H::bench();
    let file = b.make_file(directory.at("a"));
    for round in 0..50 {
        let ops = [
            Op::run(|| 1),
            Op::write_at(file, vec![1; 100], round),
            Op::sync_all(file),
            Op::open(directory.at("a"), OpenOptions::new().read(true)),
        ];
        for op in ops {
            b.watcher.submit(op).unwrap();
            let mut done = Completions::new();
            let end = Instant::now() + BOUND;
            while b.watcher.try_wait(&mut done).unwrap() == 0 {
                assert!(Instant::now() < end, "work of round {round} does not end");
                let timeout = b.watcher.next_timeout().unwrap_or(BOUND);
                let fd = b.watcher.pollable().unwrap();
                let woken = system::wait_readable(fd, Some(timeout));
                assert!(woken || timeout < BOUND, "nothing wakes the loop");
            }
            assert!(done.drain(..).all(|c| c.error_kind().is_none()));
        }
    }
}
