//! What the last event of a connection says of its output.
//!
//! Of the promises on the page of the crate: P1 and P2.

use std::time::Duration;

use crate::common;
use crate::common::Harness;
use crate::common::engine::Loop;
use crate::common::turns::Turns;
use windlass::driver::{Driver, OpCode};
use windlass::net::SocketOption;
use windlass::sim::{Faults, Sim};
use windlass::{Done, Op, Source, Watcher};
use windlass_serve::{Cause, Config, Id, Limits};

crate::every_kernel! {
    a_close_that_a_failed_write_tears_leaves_no_socket
    what_the_kernel_has_taken_is_not_unsent
    an_end_without_output_in_flight_comes_at_once
    the_figure_at_the_end_of_the_engine_is_never_too_low
}

#[cfg(unix)]
mod of_files {
    use super::files_count_too;
    crate::systems_drivers! {
        files_count_too
    }
}

/// More than the buffers of the system take.
const OUTPUT: usize = 3 << 20;

/// The second descriptor of a connection's socket, where the system has descriptors. While it is
/// open, a close of the engine takes nothing away that the kernel has.
#[cfg(unix)]
fn second<D: Driver>(l: &mut Loop<D>, id: Id) -> Option<std::net::TcpStream> {
    let source = l.engine.source(id).expect("it lives");
    let fd = l.watcher.fd(source).ok()?;
    Some(fd.try_clone_to_owned().expect("a descriptor").into())
}

/// How many bytes of a connection's output its peer gets in all, once the connection has ended.
fn heard<D: Driver>(l: &mut Loop<D>, client: Source) -> usize {
    l.watcher.submit(Op::read(client).multishot().token(9)).expect("a read");
    let is_end = |l: &Loop<D>| {
        l.foreign.iter().any(|c| {
            let is_eof = matches!(&c.result, Ok(Done::Read(data)) if data.is_empty());
            c.token == 9 && (c.result.is_err() || is_eof)
        })
    };
    l.until("it has heard all", |l| is_end(l));
    let reads = l.foreign.iter().filter(|c| c.token == 9 && c.code() == OpCode::Read);
    reads.map(|c| matches!(c.result, Ok(Done::Read(_))).then(|| c.bytes()).unwrap_or(0)).sum()
}

/// How a connection ends before its output is sent.
type End<D> = fn(&mut Loop<D>, Id);

/// A kernel that completes takes bytes of a write before it says so. All of them counted.
fn what_the_kernel_has_taken_is_not_unsent<T: Harness>() {
    let ends: [(Cause, End<T::Driver>); 4] = [
        // Here the write has just begun, and nothing is known of it.
        (Cause::Aborted, |l, id| assert!(l.engine.abort(id))),
        (Cause::WriteTimeout, |l, id| {
            let now = l.watcher.update_now();
            assert!(l.engine.set_write_deadline(id, windlass::driver::Deadline::At(now)));
        }),
        (Cause::WriteStall, |_, _| {}),
        (Cause::Closed, |l, id| assert!(l.engine.close(id))),
    ];
    for (cause, end) in ends {
        for writes in [1, 7] {
            let stall = T::span(20.0);
            let limits = Limits::new().write_stall(stall).close(stall).idle(None).cap(OUTPUT);
            let mut l = Loop::new::<T>(Config::new().limits(limits));
            let (client, id) = l.pair();
            #[cfg(unix)]
            let second = second(&mut l, id);
            for _ in 0..writes {
                l.engine.write(id, vec![7; OUTPUT / writes]).expect("the connection takes it");
                l.engine.flush(&mut l.watcher);
            }
            end(&mut l, id);
            l.engine.flush(&mut l.watcher);
            l.until("it has ended", |l| !l.ends.is_empty());
            l.run_for(Duration::from_millis(300));
            let [(was, unsent, _)] = l.ends[..] else { panic!("{:?}", l.ends) };
            assert_eq!(was, cause);
            #[cfg(unix)]
            if let Some(second) = &second {
                second.shutdown(std::net::Shutdown::Write).expect("an end of file");
            }
            let heard = heard(&mut l, client);
            // With faults the only try may have found no room: then all of it is unsent.
            let has_gone = heard > 0 || T::NAME == "faults";
            assert!(has_gone && unsent > 0, "{cause:?}: {heard} heard, {unsent} unsent");
            assert_eq!(heard + unsent, OUTPUT / writes * writes, "{cause:?}, {writes} writes");
            assert!(l.engine.is_empty() && l.engine.budget().used() == 0);
        }
    }
}

/// Nothing has to be waited for.
fn an_end_without_output_in_flight_comes_at_once<T: Harness>() {
    let mut l = Loop::new::<T>(Config::new());
    let (_client, id) = l.pair();
    l.engine.write(id, "hello").expect("the connection takes it");
    l.engine.flush(&mut l.watcher);
    l.until("it is sent", |l| l.queued(id) == 0);
    assert!(l.engine.abort(id));
    l.engine.flush(&mut l.watcher);
    assert!(l.engine.is_empty(), "it has no place any more");
    l.turn(Duration::ZERO);
    assert_eq!(l.ends.len(), 1);
    assert_eq!((l.ends[0].0, l.ends[0].1), (Cause::Aborted, 0));
}

/// `Engine::end` does not wait. What it does not know counts as not sent, also on a connection that
/// waits for its answers already.
fn the_figure_at_the_end_of_the_engine_is_never_too_low<T: Harness>() {
    for aborts in [false, true] {
        let mut l = Loop::new::<T>(Config::new().limits(Limits::new().cap(OUTPUT)));
        let (client, id) = l.pair();
        #[cfg(unix)]
        let second = second(&mut l, id);
        l.engine.write(id, vec![7; OUTPUT]).expect("the connection takes it");
        l.engine.flush(&mut l.watcher);
        if aborts {
            assert!(l.engine.abort(id));
            l.engine.flush(&mut l.watcher);
            // It ends once.
            assert!(l.engine.abort(id) && l.engine.close(id));
            assert!(l.engine.write(id, "more").is_err());
            l.engine.flush(&mut l.watcher);
        }
        l.engine.end(&mut l.watcher);
        assert!(l.engine.is_empty());
        l.run_for(Duration::from_millis(300));
        let [(cause, unsent, _)] = l.ends[..] else { panic!("{:?}", l.ends) };
        assert_eq!(cause, if aborts { Cause::Aborted } else { Cause::Shutdown });
        #[cfg(unix)]
        if let Some(second) = &second {
            second.shutdown(std::net::Shutdown::Write).expect("an end of file");
        }
        assert!(heard(&mut l, client) + unsent >= OUTPUT);
    }
}

/// A write fails behind which the close waits already. The socket stayed on the watcher for ever.
fn a_close_that_a_failed_write_tears_leaves_no_socket<T: Harness>() {
    let limits = Limits::new().linger(Duration::ZERO).cap(OUTPUT);
    let mut l = Loop::new::<T>(Config::new().limits(limits));
    let before = l.watcher.counters().sources;
    let (client, id) = l.pair();
    l.engine.write(id, vec![7; OUTPUT]).expect("the connection takes it");
    assert!(l.engine.close(id));
    l.engine.flush(&mut l.watcher);
    l.run_for(Duration::from_millis(50));
    assert!(l.queued(id) > 0 && l.queued(id) < OUTPUT, "a part of the write is out");
    l.watcher.set_option(client, SocketOption::Linger(Some(Duration::ZERO))).expect("the option");
    l.watcher.abort(client);
    l.until("it has ended", |l| !l.ends.is_empty());
    assert!(l.ends[0].1 > 0, "{:?}", l.ends);
    l.run_for(Duration::from_millis(200));
    assert_eq!((l.ends.len(), l.watcher.counters().sources), (1, before));
}

/// Each byte counts once, wherever it waits: at the watcher, in a file, or between files.
#[cfg(unix)]
fn files_count_too<T: Harness>() {
    let path =
        std::env::temp_dir().join(format!("windlass-unsent-{}-{}", T::NAME, std::process::id()));
    std::fs::write(&path, vec![7; OUTPUT]).expect("a file");
    let ends: [End<T::Driver>; 2] = [
        |l, id| assert!(l.engine.abort(id)),
        |l, id| {
            assert!(
                l.engine
                    .set_write_deadline(id, windlass::driver::Deadline::At(l.watcher.update_now()))
            )
        },
    ];
    for (end, (turns, before)) in
        ends.iter().flat_map(|end| [(0, 0), (0, 7), (3, 0), (3, OUTPUT)].map(|at| (end, at)))
    {
        let limits = Limits::new().cap(2 * OUTPUT);
        let mut l = Loop::new::<T>(Config::new().limits(limits));
        let (client, id) = l.pair();
        let second = second(&mut l, id).expect("a descriptor");
        let file = || std::fs::File::open(&path).expect("the file");
        l.engine.write(id, vec![7; before]).expect("the connection takes it");
        l.engine.send_file(id, file(), ..).expect("a file");
        l.engine.write(id, "between").expect("the connection takes it");
        l.engine.send_file(id, file(), ..1000).expect("a file");
        l.engine.write(id, "behind").expect("the connection takes it");
        l.engine.flush(&mut l.watcher);
        for _ in 0..turns {
            l.turn(Duration::from_millis(10));
        }
        end(&mut l, id);
        l.engine.flush(&mut l.watcher);
        l.until("it has ended", |l| !l.ends.is_empty());
        second.shutdown(std::net::Shutdown::Write).expect("an end of file");
        let all = before + OUTPUT + "between".len() + 1000 + "behind".len();
        assert_eq!(heard(&mut l, client) + l.ends[0].1, all, "{turns} turns, {before} before");
        assert!(l.engine.is_empty() && l.engine.budget().used() == 0);
    }
    std::fs::remove_file(path).expect("the file is there");
}

/// The kernel answers no cancel for a long time: the end does not wait for it.
#[test]
fn an_answer_that_does_not_come_is_waited_for_in_vain_for_100_ms() {
    let faults = Faults { late_cancel: 1.0, latency: Duration::from_secs(1000), ..Faults::none() };
    let sim = Sim::with_faults(common::seed(), faults);
    sim.set_completing(true);
    let limits = Limits::new().cap(OUTPUT).idle(None).write_stall(None);
    let mut l = Loop::on(Watcher::simulated(&sim), Config::new().limits(limits));
    let (client, id) = l.pair();
    l.engine.write(id, vec![7; OUTPUT]).expect("the connection takes it");
    l.engine.flush(&mut l.watcher);
    l.run_for(Duration::from_secs(1));
    let queued = l.queued(id);
    assert!(l.engine.abort(id));
    l.engine.flush(&mut l.watcher);
    let start = l.watcher.update_now();
    l.until("it has ended", |l| !l.ends.is_empty());
    let took = l.watcher.update_now() - start;
    assert!(took >= Duration::from_millis(100) && took < Duration::from_millis(101), "{took:?}");
    assert_eq!((l.ends[0].0, l.ends[0].1), (Cause::Aborted, queued));
    // The kernel has the write still, and sends more of it.
    assert!(heard(&mut l, client) >= OUTPUT - queued);
    assert_eq!(l.ends.len(), 1);
}
