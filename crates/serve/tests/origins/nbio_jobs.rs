//! nbio's Execute and MustExecute, in every mode on every driver, and in the simulation.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

use crate::common;
use crate::common::scene::{News, Scene, Setting};
use windlass::{Address, Buf};
use windlass_serve::{
    Action, Cause, Closed, Conn, Context, Handler, Limits, Refusal, jobs::JobError,
};

crate::every_mode! {
    jobs_run_off_the_loop_and_their_values_come_back_in_order
    a_close_refuses_jobs_but_those_that_must_run
    a_job_that_panics_is_reported_in_every_mode
    an_executor_of_the_program_serves_every_mode
}

/// What needs threads beside the loop.
mod beside {
    use super::a_job_that_never_ends_holds_no_shutdown_up;

    crate::systems_modes! {
        a_job_that_never_ends_holds_no_shutdown_up
    }
}

/// Does what its client says, by jobs.
struct Works {
    news: News<String>,
    /// Whether jobs run on other threads.
    has_threads: bool,
    /// A job that waits for it never ends before.
    gate: Arc<Mutex<Receiver<()>>>,
}

/// Whether a job of the connection runs.
#[derive(Default)]
struct Busy(Arc<AtomicBool>);

/// Runs as a job.
fn repeat(busy: &AtomicBool, byte: u8) -> (u8, ThreadId) {
    assert!(!busy.swap(true, Ordering::SeqCst), "two jobs of a connection at once");
    thread::yield_now();
    busy.store(false, Ordering::SeqCst);
    (byte, thread::current().id())
}

impl Works {
    fn close(&mut self, c: &mut Conn<'_, Busy>) {
        let (first, must) = (self.news.clone(), self.news.clone());
        let taken = c.execute(
            move || first.tell("first".into()),
            |c, ()| {
                assert!(c.write("answered"), "a close waits for its answer");
                Action::None
            },
        );
        assert!(taken.is_ok() && c.jobs() == 1);
        let id = c.id();
        assert!(c.engine().close(id));
        let refused = c.execute(|| (), |_, ()| Action::Shutdown).unwrap_err();
        assert_eq!(refused.reason, Refusal::Stale);
        c.must_execute(move || must.tell("must".into()));
        assert_eq!(c.jobs(), 2);
    }

    /// A job that ends with the test.
    fn stay(&mut self, c: &mut Conn<'_, Busy>) {
        let (gate, news) = (self.gate.clone(), self.news.clone());
        let job = move || {
            news.tell("begun".into());
            let _ = gate.lock().unwrap_or_else(PoisonError::into_inner).recv();
        };
        assert!(c.execute(job, |_, ()| Action::Shutdown).is_ok());
    }

    fn repeat(&mut self, c: &mut Conn<'_, Busy>, byte: u8) {
        let (busy, has_threads) = (c.state().0.clone(), self.has_threads);
        let loop_thread = thread::current().id();
        let taken = c.execute(
            move || repeat(&busy, byte),
            move |c, (byte, thread)| {
                assert_eq!(thread::current().id(), loop_thread, "back on its loop");
                assert_eq!(thread != loop_thread, has_threads, "off the loop");
                c.write_slice(&[byte]);
                Action::None
            },
        );
        assert!(taken.is_ok());
    }
}

impl Handler for Works {
    type State = Busy;

    fn serving(&mut self, server: &mut Context<'_, Busy>, addresses: &[Address]) -> Action {
        self.news.serving(server, addresses)
    }

    /// Each byte is a request, so that no cut makes another one of it.
    fn data(&mut self, c: &mut Conn<'_, Busy>, data: Buf) -> Action {
        for byte in data.iter().copied() {
            match byte {
                b'C' => self.close(c),
                b'P' => {
                    let job = || panic!("the job fails, as it is to");
                    assert!(c.execute(job, |_, ()| Action::Shutdown).is_ok());
                }
                b'S' => self.stay(c),
                _ => self.repeat(c, byte),
            }
        }
        Action::None
    }

    fn job_failed(&mut self, c: &mut Conn<'_, Busy>, error: JobError) -> Action {
        self.news.tell(error.to_string());
        c.write("failed ");
        Action::None
    }

    fn closed(&mut self, server: &mut Context<'_, Busy>, closed: Closed<Busy>) -> Action {
        self.news.tell(format!("{:?}", closed.cause));
        if closed.cause == Cause::Closed {
            let news = self.news.clone();
            server.engine().must_execute(closed.id, move || news.tell("cleaned up".into()));
        }
        Action::None
    }
}

type Jobs<T> = Scene<<T as common::Harness>::Driver, Works, String>;

/// With an executor of the program, which counts its calls and runs each job at once.
fn start<T: Setting>(
    calls: Option<Arc<AtomicUsize>>,
    gate: Receiver<()>,
    limits: Limits,
) -> Jobs<T> {
    let gate = Arc::new(Mutex::new(gate));
    let has_threads = !T::VIRTUAL && calls.is_none();
    let make = move |news| Works { news, has_threads, gate: gate.clone() };
    Scene::start::<T>(make, |server| {
        let server = server.limits(limits).listen("tcp://127.0.0.1:0").unwrap();
        let Some(calls) = calls else { return server };
        server.executor(move |work| {
            calls.fetch_add(1, Ordering::SeqCst);
            work.run();
        })
    })
}

/// Clients whose letters come back: more than the mixed mode has threads.
fn letters<T: Setting>(scene: &mut Jobs<T>) {
    let letters: Vec<u8> = (b'a'..=b'z').collect();
    let clients = [(); 5].map(|()| scene.connect());
    for client in clients {
        scene.say(client, letters.clone());
    }
    for client in clients {
        scene.until("all jobs are answered", |s| s.client(client).heard.len() >= letters.len());
        assert_eq!(scene.client(client).heard, letters);
        scene.finish(client);
    }
    scene.until("they have ended", |s| s.news.count(|note| note == "Eof") == clients.len());
    let report = scene.end();
    assert_eq!((report.counters.jobs.done, report.panics), (5 * 26, 0));
    assert_eq!((report.counters.jobs.dropped, report.unfinished_jobs), (0, 0));
}

fn jobs_run_off_the_loop_and_their_values_come_back_in_order<T: Setting>() {
    let mut scene = start::<T>(None, channel().1, Limits::new());
    letters::<T>(&mut scene);
}

/// nbio's Engine.Execute, which a program can replace.
fn an_executor_of_the_program_serves_every_mode<T: Setting>() {
    let calls = Arc::new(AtomicUsize::new(0));
    let mut scene = start::<T>(Some(calls.clone()), channel().1, Limits::new());
    letters::<T>(&mut scene);
    assert_eq!(calls.load(Ordering::SeqCst), 5 * 26);
}

fn a_close_refuses_jobs_but_those_that_must_run<T: Setting>() {
    let mut scene = start::<T>(None, channel().1, Limits::new());
    for number in 1..=3 {
        let client = scene.connect();
        scene.say(client, "C");
        scene.until("it has cleaned up", |s| s.news.count(|note| note == "cleaned up") == number);
        scene.until("it has ended", |s| s.client(client).is_over());
        assert_eq!(scene.client(client).heard, b"answered");
    }
    let notes = scene.news.notes().clone();
    for notes in notes.chunks(4) {
        let at = |what: &str| notes.iter().position(|note| note == what).expect(what);
        assert_eq!((at("first"), at("cleaned up")), (0, 3), "{notes:?}");
        // A close does not wait for a job that must run.
        assert!(at("must") < 3 && at("Closed") < 3);
    }
    let report = scene.end();
    assert_eq!((report.counters.jobs.done, report.panics), (9, 0));
}

fn a_job_that_panics_is_reported_in_every_mode<T: Setting>() {
    let mut scene = start::<T>(None, channel().1, Limits::new());
    let clients = [(); 3].map(|()| scene.connect());
    for client in clients {
        scene.say(client, "P");
        scene.until("it is told", |s| s.client(client).heard == b"failed ");
        scene.say(client, "x");
        scene.until("the next job is answered", |s| s.client(client).heard == b"failed x");
    }
    let said = "the job panicked: the job fails, as it is to";
    assert_eq!(scene.news.count(|note| note == said), 3);
    for client in clients {
        scene.finish(client);
    }
    scene.until("they have ended", |s| s.news.count(|note| note == "Eof") == 3);
    let report = scene.end();
    let jobs = &report.counters.jobs;
    assert_eq!((jobs.panicked, jobs.done, report.panics), (3, 3, 0));
}

fn a_job_that_never_ends_holds_no_shutdown_up<T: Setting>() {
    let (open, gate) = channel();
    let limits = Limits::new().close(Duration::from_millis(200));
    let mut scene = start::<T>(None, gate, limits);
    let client = scene.connect();
    scene.say(client, "S");
    scene.until("the job has begun", |s| s.news.count(|note| note == "begun") == 1);
    let report = scene.end();
    assert_eq!((report.unfinished_jobs, report.counters.jobs.done), (1, 0));
    assert_eq!(report.counters.ends.shutdown, 1);
    drop(open);
}
