//! What needs threads beside the loop: jobs that run while it serves, and servers of several loops.

use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use windlass::Buf;
use windlass::driver::Driver;
use windlass_serve::{Action, Conn, Context, Handler, Limits, Refusal, Server, modes::IoMode};

use super::common::{Bench, Harness, PATIENCE, System, bench};
use super::{Log, answer, heard, notes, server, with};
use crate::systems_drivers;

systems_drivers! {
    a_shutdown_leaves_a_job_that_never_ends
    a_job_that_runs_when_its_connection_ends_has_no_callback
    a_job_writes_from_its_thread_before_its_connection_closes
    the_loop_serves_while_jobs_run
    several_loops_run_their_jobs
}

/// Ends a job of another thread.
struct Gate {
    _open: Sender<()>,
}

/// A job that tells when it begins, and runs until its gate is dropped.
fn gated() -> (Gate, Receiver<()>, impl FnOnce() + Send) {
    let (open, closed) = channel();
    let (tell, begun) = channel();
    let job = move || {
        let _ = tell.send(());
        let _ = closed.recv();
    };
    (Gate { _open: open }, begun, job)
}

/// Serves until the job of a gate has begun, which makes no completion.
fn serve_until_begun<D: Driver, H: Handler>(bench: &mut Bench<D, H>, begun: &Receiver<()>) {
    let start = bench.watcher.update_now();
    while begun.try_recv().is_err() {
        assert!(bench.watcher.update_now() - start < PATIENCE, "waited in vain for the job");
        bench.turn(Duration::from_millis(1));
    }
}

fn a_shutdown_leaves_a_job_that_never_ends<T: Harness>() {
    let (gate, begun, job) = gated();
    let mut job = Some(job);
    let mut handler = with(move |c: &mut Conn<'_, u32>, _: &[u8], _: &Log| {
        if let Some(job) = job.take() {
            c.execute(job, |_, ()| Action::None).unwrap();
            c.execute(|| (), |_, ()| Action::None).unwrap();
        }
        Action::None
    });
    handler.cleans_up = true;
    let log = handler.log.clone();
    let limit = Duration::from_millis(300);
    let mut bench = bench::<T, _, _>(server(handler).limits(Limits::new().close(limit)));
    let client = bench.connect();
    bench.say(client, "x");
    serve_until_begun(&mut bench, &begun);
    let start = bench.watcher.update_now();
    bench.running.stop(&mut bench.watcher);
    bench.until("the server is over", |bench| bench.running.is_over());
    let took = bench.watcher.update_now() - start;
    // Once for the connection, and once for the job that must run, which waits behind the other.
    assert!(took >= 2 * limit, "{took:?}");
    assert!(took < 2 * limit + PATIENCE, "{took:?}");
    assert_eq!(notes(&log), ["closed Shutdown"]);
    let report = bench.running.report();
    assert_eq!((report.unfinished_jobs, report.counters.jobs.dropped), (1, 2));
    drop(gate);
}

fn a_job_that_runs_when_its_connection_ends_has_no_callback<T: Harness>() {
    let (gate, begun, job) = gated();
    let mut job = Some(job);
    let handler = with(move |c: &mut Conn<'_, u32>, _: &[u8], _: &Log| {
        if let Some(job) = job.take() {
            c.execute(job, |_, ()| Action::Shutdown).unwrap();
        }
        Action::None
    });
    let log = handler.log.clone();
    let mut bench = bench::<T, _, _>(server(handler));
    let client = bench.connect();
    bench.say(client, "x");
    serve_until_begun(&mut bench, &begun);
    let id = bench.running.engine().ids().next().unwrap();
    bench.running.engine().abort(id);
    bench.running.turn(&mut bench.watcher);
    bench.until("it is over", |_| !notes(&log).is_empty());
    assert_eq!(bench.running.engine().jobs(), 1, "the job runs on");
    drop(gate);
    bench.until("it has ended", |bench| bench.running.engine().jobs() == 0);
    assert_eq!(bench.running.report().counters.jobs.done, 1);
    assert!(!bench.running.is_over(), "its callback was not called");
}

fn a_job_writes_from_its_thread_before_its_connection_closes<T: Harness>() {
    let handler = with(|c: &mut Conn<'_, u32>, data: &[u8], _: &Log| {
        let (remote, id, data) = (c.remote().clone(), c.id(), data.to_vec());
        c.execute(move || remote.write(id, data).unwrap(), |_, ()| Action::None).unwrap();
        Action::Close
    });
    let mut bench = bench::<T, _, _>(server(handler));
    for _ in 0..50 {
        let client = bench.connect();
        bench.say(client, "answer");
        bench.until("it is over", |bench| bench.client(client).is_over());
        assert_eq!(heard(&bench, client), "answer");
    }
    assert_eq!(bench.running.report().counters.stale_writes, 0);
}

fn the_loop_serves_while_jobs_run<T: Harness>() {
    let (gate, begun, job) = gated();
    let mut job = Some(job);
    let handler = with(move |c: &mut Conn<'_, u32>, data: &[u8], _: &Log| {
        match job.take() {
            Some(job) => c.execute(job, |c, ()| {
                c.write("late");
                Action::None
            }),
            None => {
                c.write(data.to_vec());
                Ok(())
            }
        }
        .unwrap();
        Action::None
    });
    let mut bench = bench::<T, _, _>(server(handler));
    let (slow, quick) = (bench.connect(), bench.connect());
    bench.say(slow, "x");
    serve_until_begun(&mut bench, &begun);
    bench.say(slow, "more");
    bench.say(quick, "quick");
    bench.until("both are served", |bench| {
        heard(bench, quick) == "quick" && heard(bench, slow) == "more"
    });
    drop(gate);
    bench.until("the job is answered", |bench| heard(bench, slow) == "morelate");
}

fn several_loops_run_their_jobs<T: System>() {
    let modes = [
        IoMode::NonBlocking,
        IoMode::Blocking { threads: 8 },
        IoMode::Mixed { threads: 2 }, // the loops serve two of the four
        IoMode::Mixed { threads: 8 }, // a thread serves each, until it moves to a loop
    ];
    for mode in modes {
        loops_run_their_jobs::<T>(mode);
    }
}

fn loops_run_their_jobs<T: System>(mode: IoMode) {
    use std::io::{Read, Write};
    struct Echo(Sender<std::net::SocketAddr>);
    impl Handler for Echo {
        type State = u32;
        fn serving(&mut self, _: &mut Context<'_, u32>, addresses: &[windlass::Address]) -> Action {
            let _ = self.0.send(addresses[0].ip().unwrap());
            Action::None
        }
        fn data(&mut self, c: &mut Conn<'_, u32>, data: Buf) -> Action {
            if &*data == b"shutdown" {
                return Action::Shutdown;
            }
            answer(c, &data, &Log::default());
            if &*data == b"hello" && c.move_to_loop() {
                let refused = c.execute(|| (), |_, ()| Action::None).unwrap_err();
                assert_eq!(refused.reason, Refusal::Stale, "it moves");
            }
            Action::None
        }
        fn moved(&mut self, c: &mut Conn<'_, u32>, _: windlass_serve::Id) -> Action {
            assert_eq!(*c.state(), 5, "the callbacks of its jobs come before the move");
            Action::None
        }
    }
    let (tell, told) = channel();
    let tell = Mutex::new(tell);
    let server = Server::new(move |_| Echo(tell.lock().unwrap().clone())).loops(2).io_mode(mode);
    let server = server.watcher(T::builder()).listen("tcp://127.0.0.1:0").unwrap();
    let thread = std::thread::spawn(move || server.run().unwrap());
    let address = told.recv_timeout(PATIENCE).expect("the server serves");
    let mut clients = [(); 4].map(|()| std::net::TcpStream::connect(address).unwrap());
    for client in &mut clients {
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client.write_all(b"hello").unwrap();
        let mut answer = [0; 5];
        client.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"hello");
        client.write_all(b"again").unwrap();
        client.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"again");
    }
    clients[0].write_all(b"shutdown").unwrap();
    drop(clients);
    let report = thread.join().unwrap();
    assert_eq!((report.counters.jobs.done, report.counters.accepted), (40, 4));
    let moves = match mode {
        IoMode::NonBlocking => 0..=0,
        IoMode::Blocking { .. } => 4..=4,
        // A thread that has handed its connection over serves another one.
        IoMode::Mixed { .. } => 2..=4,
    };
    assert!(moves.contains(&report.counters.moved), "{mode:?}: {}", report.counters.moved);
    assert_eq!(report.panics, 0);
}
