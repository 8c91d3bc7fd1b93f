//! Half-closes of connections that have jobs.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use windlass::sim::Sim;
use windlass::{Op, Watcher};
use windlass_serve::{Action, Cause, Config, Conn, Limits, Refusal, jobs::Job};

use super::common::engine::Loop;
use super::common::turns::Turns;
use super::common::{Harness, bench};
use super::{Log, answer, heard, note, notes, server, with};
use crate::every_driver;

every_driver! {
    a_half_close_waits_for_the_jobs_before_it
    a_half_close_does_not_wait_for_jobs_behind_it
    a_close_behind_a_half_close_waits_for_all_jobs
}

fn a_half_close_waits_for_the_jobs_before_it<T: Harness>() {
    let handler = with(|c: &mut Conn<'_, u32>, data: &[u8], log: &Log| {
        answer(c, data, log);
        let id = c.id();
        assert!(c.engine().shutdown(id));
        note(log, "half-closed");
        Action::None
    });
    let log = handler.log.clone();
    let config = Config::new().close_on_eof(false);
    let mut bench = bench::<T, _, _>(server(handler).config(config));
    let client = bench.connect();
    bench.say(client, "abc");
    bench.until("its output ends", |bench| bench.client(client).eof);
    assert_eq!(heard(&bench, client), "abc");
    assert_eq!(notes(&log), ["half-closed"], "the other side is open");
    bench.finish(client);
    bench.until("it is over", |_| notes(&log).len() == 2);
    assert_eq!(notes(&log)[1], "closed Eof");
}

fn a_half_close_does_not_wait_for_jobs_behind_it<T: Harness>() {
    let handler = with(|c: &mut Conn<'_, u32>, data: &[u8], log: &Log| {
        answer(c, &data[..1], log);
        let id = c.id();
        // Also once more: it is the first one that counts.
        assert!(c.engine().shutdown(id));
        let log = log.clone();
        let taken = c.execute(
            || (),
            move |c, ()| {
                let id = c.id();
                let refused = c.engine().write(id, "late").map_err(|refused| refused.reason);
                note(&log, format!("{refused:?}"));
                Action::None
            },
        );
        assert!(taken.is_ok() && c.engine().shutdown(id));
        Action::None
    });
    let log = handler.log.clone();
    let config = Config::new().close_on_eof(false);
    let mut bench = bench::<T, _, _>(server(handler).config(config));
    let client = bench.connect();
    bench.say(client, "a");
    bench.until("both have ended", |bench| {
        bench.client(client).eof && bench.running.engine().jobs() == 0
    });
    assert_eq!((heard(&bench, client), notes(&log)), ("a".into(), vec![refusal()]));
}

fn refusal() -> String {
    format!("{:?}", Err::<(), _>(Refusal::Stale))
}

fn a_close_behind_a_half_close_waits_for_all_jobs<T: Harness>() {
    let handler = with(|c: &mut Conn<'_, u32>, data: &[u8], log: &Log| {
        answer(c, data, log);
        let id = c.id();
        assert!(c.engine().shutdown(id));
        Action::Close
    });
    let mut bench = bench::<T, _, _>(server(handler));
    let client = bench.connect();
    bench.say(client, "abc");
    bench.until("it is over", |bench| bench.running.engine().is_empty());
    bench.until("the client knows", |bench| bench.client(client).is_over());
    assert_eq!((heard(&bench, client), bench.client(client).error), ("abc".into(), None));
}

/// Neither the read nor the wait for a job has a time: the idle time is the limit.
#[test]
fn a_connection_whose_half_close_waits_for_a_job_becomes_idle() {
    const SECOND: Duration = Duration::from_secs(1);
    for ends in ["never", "before", "after"] {
        let limits = Limits::new().idle(10 * SECOND).write_stall(None);
        let config = Config::new().limits(limits).close_on_eof(false);
        let mut l = Loop::on(Watcher::simulated(&Sim::new(1)), config);
        let jobs: Arc<Mutex<Vec<Job>>> = Arc::default();
        let kept = jobs.clone();
        l.engine.set_executor(&mut l.watcher, move |job| kept.lock().unwrap().push(job));
        let (client, id) = l.pair();
        let end = |l: &mut Loop<_>| {
            l.watcher.submit(Op::shutdown(client)).unwrap();
            l.until("its side has ended", |l| l.told.contains(&"eof"));
        };
        if ends == "before" {
            end(&mut l);
        }
        l.engine.execute(id, || ()).map_err(|refused| refused.reason).unwrap();
        assert!(l.engine.shutdown(id));
        l.engine.flush(&mut l.watcher);
        if ends == "after" {
            end(&mut l);
        }
        l.run_for(5 * SECOND);
        assert!(l.ends.is_empty() && jobs.lock().unwrap().len() == 1);
        l.run_for(10 * SECOND);
        assert_eq!(l.ends.iter().map(|end| end.0).collect::<Vec<_>>(), [Cause::Idle], "{ends}");
    }
}
