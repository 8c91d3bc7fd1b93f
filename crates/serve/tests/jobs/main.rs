//! Jobs of connections: order, results, limits, closes, panics and shutdowns, on every driver.
#![allow(missing_docs)] // a test binary has no users

#[path = "../common/mod.rs"]
mod common;
mod half_close;
mod threads;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::engine::Loop;
use common::turns::Turns;
use common::{Bench, Clients, Harness, PATIENCE, bench, bench_with};
use windlass::driver::Driver;
use windlass::sim::Sim;
use windlass::{Buf, Message, Watcher};
use windlass_serve::{
    Action, Cause, Closed, Config, Conn, Context, Detached, Event, Handler, Limits, Refusal,
    Server,
    jobs::{Job, JobError},
};

every_driver! {
    jobs_of_a_connection_run_in_order_and_one_at_a_time
    an_engine_has_events_of_its_jobs
    a_close_waits_for_jobs_and_their_answers
    a_detach_waits_for_jobs
    a_closing_or_ended_connection_hands_jobs_back
    jobs_that_have_not_begun_go_with_their_connection
    jobs_that_must_run_do_so_behind_the_others
    a_panic_of_a_job_is_reported
    a_panic_of_a_job_ends_its_connection_by_default
    a_panic_of_a_callback_of_a_job_ends_its_connection
    queues_are_bounded_and_hand_jobs_back
    jobs_wait_while_the_watcher_has_no_room
    a_shutdown_waits_for_jobs_that_must_run
    an_executor_of_the_program_runs_the_jobs
    a_job_that_the_executor_loses_fails
    jobs_fail_when_the_watcher_takes_none
    a_log_is_told_of_jobs_that_fail
}

/// What a test has seen, from all threads.
type Log = Arc<Mutex<Vec<String>>>;

fn note(log: &Log, what: impl Into<String>) {
    log.lock().unwrap().push(what.into());
}

fn notes(log: &Log) -> Vec<String> {
    log.lock().unwrap().clone()
}

/// A handler whose callback for data is a closure.
struct With<F> {
    data: F,
    log: Log,
    /// Whether `closed` queues a job that must run.
    cleans_up: bool,
    fails: bool,
}

type Callback = fn(&mut Conn<'_, u32>, &[u8], &Log) -> Action;

fn with<F>(data: F) -> With<F> {
    With { data, log: Log::default(), cleans_up: false, fails: true }
}

impl<F: FnMut(&mut Conn<'_, u32>, &[u8], &Log) -> Action> Handler for With<F> {
    type State = u32;
    fn data(&mut self, c: &mut Conn<'_, u32>, data: Buf) -> Action {
        (self.data)(c, &data, &self.log)
    }
    fn executed(&mut self, c: &mut Conn<'_, u32>, output: Message) -> Action {
        let text = output.downcast::<String>().expect("the job's value");
        c.write(text);
        Action::None
    }
    fn job_failed(&mut self, c: &mut Conn<'_, u32>, error: JobError) -> Action {
        note(&self.log, error.to_string());
        if !self.fails {
            c.write("failed ");
            return Action::None;
        }
        Action::Close
    }
    fn closed(&mut self, server: &mut Context<'_, u32>, closed: Closed<u32>) -> Action {
        note(&self.log, format!("closed {:?}", closed.cause));
        if self.cleans_up {
            let log = self.log.clone();
            server.engine().must_execute(closed.id, move || note(&log, "cleaned up"));
        }
        Action::None
    }
    fn detached(&mut self, _: &mut Context<'_, u32>, detached: Detached<u32>) -> Action {
        note(&self.log, format!("detached, state {}", detached.state));
        Action::None
    }
}

fn server<H: Handler>(handler: H) -> Server<impl Fn(usize) -> H> {
    let handler = Mutex::new(Some(handler));
    let server = Server::new(move |_| handler.lock().unwrap().take().expect("one loop"));
    server.listen("tcp://127.0.0.1:0").unwrap()
}

fn heard<D: Driver, H: Handler>(bench: &Bench<D, H>, client: windlass::Source) -> String {
    String::from_utf8(bench.client(client).heard.clone()).unwrap()
}

fn jobs_of_a_connection_run_in_order_and_one_at_a_time<T: Harness>() {
    let busy: Arc<[AtomicBool; 3]> = Arc::default();
    let mut next = 0;
    let handler = with(move |c: &mut Conn<'_, u32>, data: &[u8], _: &Log| {
        if *c.state() == 0 {
            next += 1;
            *c.state() = next;
        }
        for &byte in data {
            let (busy, own) = (busy.clone(), *c.state() as usize - 1);
            let job = move || {
                assert!(!busy[own].swap(true, Ordering::SeqCst), "two jobs of a connection");
                std::thread::yield_now();
                busy[own].store(false, Ordering::SeqCst);
                byte
            };
            let taken = c.execute(job, |c, byte| {
                assert!(*c.state() > 0, "the callback has the connection's state");
                c.write_slice(&[byte]);
                Action::None
            });
            assert!(taken.is_ok());
        }
        Action::None
    });
    let mut bench = bench::<T, _, _>(server(handler));
    let text: String = ('a'..='z').collect();
    let clients = [(); 3].map(|()| bench.connect());
    for client in clients {
        bench.say(client, text.clone().into_bytes());
    }
    for client in clients {
        bench.until("all is answered", |bench| heard(bench, client).len() >= text.len());
        assert_eq!(heard(&bench, client), text);
    }
    let report = bench.running.report();
    assert_eq!((report.counters.jobs.done, report.unfinished_jobs), (78, 0));
}

fn an_engine_has_events_of_its_jobs<T: Harness>() {
    let mut l = Loop::new::<T>(Config::default());
    let (_client, id) = l.pair();
    for number in 0..3u32 {
        l.engine.execute(id, move || number).unwrap();
    }
    l.engine.execute(id, || -> u32 { panic!("the job fails, as it is to") }).unwrap();
    l.engine.execute(id, || 4u32).unwrap();
    assert_eq!(l.engine.jobs(), 5);
    let mut seen = Vec::new();
    let start = l.now();
    while seen.len() < 5 {
        assert!(l.now() - start < 50 * PATIENCE, "still waits for the events: {seen:?}");
        l.engine.flush(&mut l.watcher);
        let mut done = windlass::Completions::new();
        l.watcher.wait_timeout(&mut done, PATIENCE).unwrap();
        for c in done.drain(..) {
            assert!(l.engine.complete(&mut l.watcher, c).is_none_or(|c| c.token == 1));
        }
        while let Some(event) = l.engine.next_event(&mut l.watcher) {
            match event {
                Event::Executed { id: of, output } => {
                    assert_eq!(of, id);
                    seen.push(output.downcast::<u32>().unwrap().to_string());
                }
                Event::JobFailed { id: of, error } => {
                    assert_eq!(of, id);
                    seen.push(error.to_string());
                }
                _ => {}
            }
        }
    }
    assert_eq!(seen, ["0", "1", "2", "the job panicked: the job fails, as it is to", "4"]);
    let counters = &l.engine.counters().jobs;
    assert_eq!((counters.done, counters.panicked, l.engine.jobs()), (4, 1, 0));
    assert_eq!(l.engine.ids().count(), 1, "the connection goes on");
}

/// Answers each byte by a job.
fn answer(c: &mut Conn<'_, u32>, data: &[u8], _: &Log) -> Action {
    for &byte in data {
        let taken = c.execute(
            move || byte,
            |c, byte| {
                assert!(c.write(vec![byte]), "a close waits, and takes the answer");
                *c.state() += 1;
                Action::None
            },
        );
        assert!(taken.is_ok());
    }
    Action::None
}

fn a_close_waits_for_jobs_and_their_answers<T: Harness>() {
    for closes in [false, true] {
        let handler = with(move |c: &mut Conn<'_, u32>, data: &[u8], log: &Log| {
            answer(c, data, log);
            if closes { Action::Close } else { Action::None }
        });
        let log = handler.log.clone();
        let mut bench = bench::<T, _, _>(server(handler));
        let client = bench.connect();
        bench.say(client, "abc");
        if !closes {
            bench.finish(client); // `close_on_eof`
        }
        bench.until("it is over", |bench| bench.client(client).is_over());
        assert_eq!((heard(&bench, client), bench.client(client).error), ("abc".into(), None));
        bench.until("the server knows", |bench| bench.running.engine().is_empty());
        assert_eq!(notes(&log), [if closes { "closed Closed" } else { "closed Eof" }]);
        assert_eq!(bench.running.report().counters.jobs.done, 3);
    }
}

fn a_detach_waits_for_jobs<T: Harness>() {
    let handler = with(|c: &mut Conn<'_, u32>, data: &[u8], log: &Log| {
        answer(c, data, log);
        Action::Detach
    });
    let log = handler.log.clone();
    let mut bench = bench::<T, _, _>(server(handler));
    let client = bench.connect();
    bench.say(client, "abc");
    bench.until("it is detached", |_| !notes(&log).is_empty());
    assert_eq!(notes(&log), ["detached, state 3"]);
    bench.until("it has the answers", |bench| heard(bench, client) == "abc");
}

fn a_closing_or_ended_connection_hands_jobs_back<T: Harness>() {
    let handler = with(|c: &mut Conn<'_, u32>, _: &[u8], _: &Log| {
        let id = c.id();
        c.engine().close(id);
        let refused = c.execute(|| 7, |_, _| Action::Shutdown).unwrap_err();
        assert_eq!(refused.reason, Refusal::Stale);
        let (job, _) = refused.value;
        assert_eq!(job(), 7, "the job comes back");
        Action::None
    });
    let mut bench = bench::<T, _, _>(server(handler));
    let client = bench.connect();
    bench.until("it is open", |bench| bench.running.engine().len() == 1);
    let id = bench.running.engine().ids().next().unwrap();
    bench.say(client, "x");
    bench.until("it is over", |bench| bench.running.engine().is_empty());
    let refused = bench.running.engine().execute(id, || "again").unwrap_err();
    assert_eq!((refused.reason, (refused.value)()), (Refusal::Stale, "again"));
    let report = bench.running.report();
    assert_eq!((report.counters.jobs.done, report.panics), (0, 0));
}

fn jobs_that_have_not_begun_go_with_their_connection<T: Harness>() {
    let handler = with(|c: &mut Conn<'_, u32>, _: &[u8], log: &Log| {
        for _ in 0..3 {
            let log = log.clone();
            c.execute(move || note(&log, "a job"), |_, ()| Action::Shutdown).unwrap();
        }
        let id = c.id();
        c.engine().abort(id);
        Action::None
    });
    let log = handler.log.clone();
    let mut bench = bench::<T, _, _>(server(handler));
    let client = bench.connect();
    bench.say(client, "x");
    bench.until("all is over", |bench| {
        bench.running.engine().is_empty()
            && bench.running.engine().jobs() == 0
            && !notes(&log).is_empty()
    });
    assert_eq!(notes(&log), ["closed Aborted"]);
    assert_eq!(bench.running.report().counters.jobs.dropped, 3);
    assert!(!bench.running.is_over(), "no callback of them was called");
}

fn jobs_that_must_run_do_so_behind_the_others<T: Harness>() {
    for aborts in [false, true] {
        let mut handler = with(move |c: &mut Conn<'_, u32>, _: &[u8], log: &Log| {
            for number in 0..3 {
                let log = log.clone();
                let job = move || note(&log, number.to_string());
                if number == 1 {
                    c.must_execute(job);
                } else {
                    c.execute(job, |_, ()| Action::None).unwrap();
                }
            }
            if aborts {
                c.abort();
            }
            Action::Close
        });
        handler.cleans_up = true;
        let log = handler.log.clone();
        let mut bench = bench::<T, _, _>(server(handler));
        let client = bench.connect();
        bench.say(client, "x");
        bench.until("it has cleaned up", |_| notes(&log).iter().any(|note| note == "cleaned up"));
        let expected: &[&str] = match aborts {
            true => &["closed Aborted", "1", "cleaned up"],
            false => &["0", "1", "2", "closed Closed", "cleaned up"],
        };
        let mut notes = notes(&log);
        if aborts {
            // The loop tells of the end while a thread runs the job.
            notes[..2].sort_by_key(|note| note == "1");
        }
        assert_eq!(notes, expected);
        bench.until("no job is left", |bench| bench.running.engine().jobs() == 0);
        let counters = bench.running.report().counters.jobs;
        assert_eq!((counters.done, counters.dropped), if aborts { (2, 2) } else { (4, 0) });
    }
}

/// The first job panics, the second does not.
fn panic_first(c: &mut Conn<'_, u32>, _: &[u8], _: &Log) -> Action {
    let fails = || panic!("this job fails, as it is to");
    c.execute(fails, |_, ()| Action::Shutdown).unwrap();
    let id = c.id();
    c.engine().execute(id, || "well".to_string()).unwrap();
    Action::None
}

fn a_panic_of_a_job_is_reported<T: Harness>() {
    let mut handler = with(panic_first as Callback);
    handler.fails = false;
    let log = handler.log.clone();
    let mut bench = bench::<T, _, _>(server(handler));
    let client = bench.connect();
    bench.say(client, "x");
    bench.until("the next job is answered", |bench| heard(bench, client) == "failed well");
    assert_eq!(notes(&log), ["the job panicked: this job fails, as it is to"]);
    let report = bench.running.report();
    let jobs = &report.counters.jobs;
    assert_eq!((jobs.panicked, jobs.done, report.panics), (1, 1, 0));
    assert!(!bench.running.is_over());
}

fn a_panic_of_a_job_ends_its_connection_by_default<T: Harness>() {
    #[derive(Default)]
    struct Plain(Vec<Cause>);
    impl Handler for Plain {
        type State = u32;
        fn data(&mut self, c: &mut Conn<'_, u32>, data: Buf) -> Action {
            panic_first(c, &data, &Log::default())
        }
        fn closed(&mut self, _: &mut Context<'_, u32>, closed: Closed<u32>) -> Action {
            self.0.push(closed.cause);
            Action::None
        }
    }
    let mut bench = bench::<T, _, _>(server(Plain::default()));
    let client = bench.connect();
    bench.say(client, "x");
    bench.until("it is over", |bench| !bench.running.handler().0.is_empty());
    assert_eq!(bench.running.handler().0, [Cause::Panicked]);
    let counters = bench.running.report().counters;
    assert_eq!((counters.ends.panicked, counters.jobs.panicked), (1, 1));
}

fn a_panic_of_a_callback_of_a_job_ends_its_connection<T: Harness>() {
    let handler = with(|c: &mut Conn<'_, u32>, _: &[u8], _: &Log| {
        c.execute(|| 1, |_, _| panic!("the callback fails, as it is to")).unwrap();
        Action::None
    });
    let log = handler.log.clone();
    let mut bench = bench::<T, _, _>(server(handler));
    let other = bench.connect();
    let client = bench.connect();
    bench.say(client, "x");
    bench.until("it is over", |_| !notes(&log).is_empty());
    assert_eq!(notes(&log), ["closed Panicked"]);
    let report = bench.running.report();
    assert_eq!(
        (report.panics, report.counters.jobs.panicked, report.counters.jobs.done),
        (1, 0, 1)
    );
    assert!(!bench.client(other).is_over());
}

fn queues_are_bounded_and_hand_jobs_back<T: Harness>() {
    let limits = Limits::new().jobs(2).loop_jobs(3);
    assert_eq!((Limits::new().jobs(0).jobs, Limits::new().loop_jobs(0).loop_jobs), (1, 1));
    let mut l = Loop::new::<T>(Config::new().limits(limits));
    let ((_one, a), (_other, b)) = (l.pair(), l.pair());
    let value = |refused: windlass_serve::Refused<fn() -> u8>| {
        assert!(refused.to_string().contains("Limits::jobs"), "{refused}");
        (refused.reason, (refused.value)())
    };
    let job: fn() -> u8 = || 9;
    l.engine.execute(a, job).unwrap();
    l.engine.execute(a, job).unwrap();
    let full = (Refusal::Jobs, 9);
    assert_eq!(value(l.engine.execute(a, job).unwrap_err()), full, "of the connection");
    l.engine.execute(b, job).unwrap();
    assert_eq!(value(l.engine.execute(b, job).unwrap_err()), full, "of the loop");
    l.engine.must_execute(b, || ()); // no limit refuses it
    l.engine.flush(&mut l.watcher);
    l.until("they have run", |l| l.engine.jobs() == 0);
    l.engine.execute(a, job).unwrap();
    l.engine.execute(a, job).unwrap();
    l.engine.flush(&mut l.watcher);
    l.until("they have run, too", |l| l.engine.counters().jobs.done == 6);
}

fn jobs_wait_while_the_watcher_has_no_room<T: Harness>() {
    let builder = Watcher::builder().max_jobs(1).threads(2);
    let mut bench = bench_with::<T, _, _>(builder, server(with(answer as Callback)));
    let clients = [(); 8].map(|()| bench.connect());
    for client in clients {
        bench.say(client, "abc");
    }
    for client in clients {
        bench.until("it is answered", |bench| heard(bench, client) == "abc");
    }
    assert_eq!(bench.running.report().counters.jobs.done, 24);
}

fn a_shutdown_waits_for_jobs_that_must_run<T: Harness>() {
    let mut handler = with(|c: &mut Conn<'_, u32>, _: &[u8], log: &Log| {
        let log = log.clone();
        c.execute(
            move || note(&log, "a job"),
            |c, ()| {
                c.write("bye");
                Action::None
            },
        )
        .unwrap();
        Action::Shutdown
    });
    handler.cleans_up = true;
    let log = handler.log.clone();
    let mut bench = bench::<T, _, _>(server(handler));
    let client = bench.connect();
    bench.say(client, "x");
    bench.until("the server is over", |bench| bench.running.is_over());
    assert_eq!(notes(&log), ["a job", "closed Shutdown", "cleaned up"]);
    let report = bench.running.report();
    assert_eq!((report.counters.jobs.done, report.unfinished_jobs), (2, 0));
    bench.until("the answer is there", |bench| heard(bench, client) == "bye");
}

fn an_executor_of_the_program_runs_the_jobs<T: Harness>() {
    for inline in [false, true] {
        let calls = Arc::new(AtomicUsize::new(0));
        let (jobs, work) = channel::<Job>();
        let seen = calls.clone();
        let server = server(with(answer as Callback)).executor(move |work| {
            seen.fetch_add(1, Ordering::SeqCst);
            // A simulated loop cannot wait for a thread, so it runs the job itself.
            if inline || T::VIRTUAL { work.run() } else { jobs.send(work).unwrap() }
        });
        let thread = std::thread::spawn(move || work.into_iter().for_each(Job::run));
        let mut bench = bench::<T, _, _>(server);
        let client = bench.connect();
        bench.say(client, "abc");
        bench.finish(client);
        bench.until("it is answered", |bench| bench.client(client).eof);
        assert_eq!(heard(&bench, client), "abc");
        assert_eq!(calls.load(Ordering::SeqCst), 3);
        let used = bench.watcher.explain();
        let jobs = used.rows.iter().find(|row| row.operation == "files, jobs");
        assert!(jobs.is_none_or(|row| row.count == 0), "the watcher runs none: {jobs:?}");
        drop(bench);
        thread.join().unwrap();
    }
}

fn a_job_that_the_executor_loses_fails<T: Harness>() {
    for panics in [false, true] {
        let handler = with(answer as Callback);
        let log = handler.log.clone();
        let server = server(handler).executor(move |work| {
            drop(work);
            assert!(!panics, "the executor fails, as it is to");
        });
        let mut bench = bench::<T, _, _>(server);
        let client = bench.connect();
        bench.say(client, "a");
        bench.until("it is over", |_| notes(&log).len() == 2);
        assert_eq!(notes(&log), ["the executor dropped the job", "closed Closed"]);
        let report = bench.running.report();
        assert_eq!((report.counters.jobs.failed, report.panics), (1, 0));
    }
}

fn jobs_fail_when_the_watcher_takes_none<T: Harness>() {
    let mut l = Loop::new::<T>(Config::default());
    let (_client, id) = l.pair();
    l.engine.execute(id, || 1).unwrap();
    l.watcher.close();
    l.engine.flush(&mut l.watcher);
    let Some(Event::JobFailed { id: of, error }) = l.engine.next_event(&mut l.watcher) else {
        panic!("no event of the job");
    };
    assert_eq!((of, error), (id, JobError::Refused(windlass::Refusal::Closed)));
    assert_eq!((l.engine.counters().jobs.failed, l.engine.jobs()), (1, 0));
}

fn a_log_is_told_of_jobs_that_fail<T: Harness>() {
    struct Keeps(Mutex<Vec<String>>);
    impl windlass_serve::log::Log for Keeps {
        fn log(&self, record: &windlass_serve::log::Record<'_>) {
            if record.to_string().starts_with("job failed") {
                self.0.lock().unwrap().push(format!("{:?}: {record}", record.level()));
            }
        }
    }
    let kept: &Keeps = Box::leak(Box::new(Keeps(Mutex::default())));
    let mut l = Loop::new::<T>(Config::new().log(kept));
    let (_client, id) = l.pair();
    l.engine.execute(id, || panic!("as it is to")).unwrap();
    l.engine.execute(id, || ()).unwrap();
    l.engine.must_execute(id, || ());
    assert_eq!((l.engine.jobs_of(id), l.engine.jobs()), (3, 3));
    l.engine.abort(id);
    l.engine.must_execute(id, || panic!("behind the end"));
    l.engine.flush(&mut l.watcher);
    l.until("they have ended", |l| l.engine.jobs() == 0);
    assert_eq!(l.engine.jobs_of(id), 0);
    let (_client, other) = l.pair();
    l.engine.execute(other, || 1).unwrap();
    l.watcher.close();
    l.engine.flush(&mut l.watcher);
    while l.engine.next_event(&mut l.watcher).is_some() {}
    let lines = kept.0.lock().unwrap().clone();
    let behind = format!("Error: job failed id={id} error=Panicked(\"behind the end\")");
    let refused = format!("Warn: job failed id={other} error=Refused(Closed)");
    // The abort has come before the first job could begin, or after.
    assert_eq!(lines[lines.len() - 2..], [behind, refused], "{lines:?}");
}

/// In a simulation a job takes virtual time: here longer than a shutdown waits.
#[test]
fn a_simulated_job_that_takes_too_long() {
    let sim = Sim::new(3);
    sim.set_job_time(Duration::from_secs(1 << 20));
    let mut watcher = Watcher::simulated(&sim);
    let handler = with(answer as Callback);
    let log = handler.log.clone();
    let limit = Duration::from_secs(5);
    let server = server(handler).limits(Limits::new().close(limit).idle(None));
    let mut running = server.start_on(&mut watcher).unwrap();
    let addresses = vec![watcher.local_address(running.engine().listeners()[0]).unwrap()];
    let mut bench = Bench { watcher, running, clients: Clients::default(), addresses };
    let client = bench.connect();
    bench.say(client, "ab");
    bench.until("there are jobs", |bench| bench.running.engine().jobs() == 2);
    let start = bench.watcher.update_now();
    bench.running.stop(&mut bench.watcher);
    bench.until("the server is over", |bench| bench.running.is_over());
    let took = bench.watcher.update_now() - start;
    assert!(took >= limit && took <= limit + limit / 8, "{took:?}");
    assert_eq!(notes(&log), ["closed Shutdown"]);
    // The cancel of the first job ends it before it begins, with the next turn.
    bench.turn(Duration::ZERO);
    let report = bench.running.report();
    assert_eq!((report.counters.jobs.dropped, report.unfinished_jobs), (2, 0));
}
