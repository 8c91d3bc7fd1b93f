//! What a request of the program does to a connection in each stage of its life, and the end of the
//! peer's side in each stage. A request replaces a weaker one that waits: half-close, detach,
//! close, abort. A weaker one after a stronger one has no effect.
//!
//! Of the promises on the page of the crate: P1, P2 and P3.

use std::time::Duration;

use crate::common::Harness;
use crate::common::engine::Loop;
use crate::common::turns::Turns;
use windlass::driver::{Driver, OpCode};
use windlass::net::ConnectOptions;
use windlass::{Completion, Done, Op, Source, Watcher};
use windlass_serve::{Cause, Config, Id, Limits};

crate::every_kernel! {
    each_request_in_each_stage_has_one_meaning
    a_peer_may_end_its_side_in_each_stage
    a_dropped_stream_ends_no_detach
    a_half_close_before_the_connect_is_a_half_close
    a_detach_lets_the_half_close_in_front_of_it_go
}

/// More than the buffers of the system take.
const OUTPUT: usize = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq)]
enum In {
    Connecting,
    Open,
    /// The program has shut its output down.
    HalfClosed,
    /// The peer has.
    Ended,
    Leaving,
    Closing,
    Lingering,
    Failing,
    /// The event with the descriptor waits.
    Detached,
}

const STAGES: [In; 9] = [
    In::Connecting,
    In::Open,
    In::HalfClosed,
    In::Ended,
    In::Leaving,
    In::Closing,
    In::Lingering,
    In::Failing,
    In::Detached,
];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Request {
    HalfClose,
    Detach,
    Close,
    Abort,
}

const REQUESTS: [Request; 4] =
    [Request::HalfClose, Request::Detach, Request::Close, Request::Abort];

/// A connection in this stage, and its peer. While it connects there is none yet: then the source
/// is the listener.
fn in_stage<T: Harness>(stage: In) -> (Loop<T::Driver>, Source, Id) {
    // No limit is to end it before its peer does.
    let hour = Duration::from_secs(3600);
    let limits = Limits::new().close(hour).linger(hour).write_stall(None).idle(None);
    let mut l = Loop::new::<T>(Config::new().limits(limits).close_on_eof(false));
    if stage == In::Connecting {
        let listener = l.watcher.listen(([127, 0, 0, 1], 0)).expect("a listener");
        let address = l.watcher.local_address(listener).expect("its address");
        let id = l.engine.connect([address], ConnectOptions::default(), ()).expect("a place");
        return (l, listener, id);
    }
    let (client, id) = l.pair();
    let writes = matches!(stage, In::Leaving | In::Closing | In::Failing);
    if writes {
        l.engine.write(id, vec![7; OUTPUT]).expect("the connection takes it");
        l.engine.flush(&mut l.watcher);
    }
    match stage {
        In::HalfClosed => assert!(l.engine.shutdown(id)),
        In::Ended => {
            l.watcher.submit(Op::shutdown(client).token(2)).expect("a half-close");
            l.until("it hears the end", |l| l.told.contains(&"eof"));
        }
        In::Leaving | In::Detached => assert!(l.engine.detach(id).is_ok()),
        In::Closing | In::Lingering => assert!(l.engine.close(id)),
        In::Failing => assert!(l.engine.abort(id)),
        In::Connecting | In::Open => {}
    }
    l.engine.flush(&mut l.watcher);
    match stage {
        In::Detached => l.until("it has no source", |l| l.engine.source(id).is_none()),
        In::Failing => {}
        _ => l.run_for(Duration::from_millis(20)),
    }
    let ended = l.told.iter().any(|told| matches!(*told, "closed" | "detached"));
    assert!(!ended, "{stage:?}: {:?}", l.told);
    (l, client, id)
}

fn ask<D: Driver>(l: &mut Loop<D>, id: Id, request: Request) -> bool {
    match request {
        Request::HalfClose => l.engine.shutdown(id),
        Request::Detach => l.engine.detach(id).is_ok(),
        Request::Close => l.engine.close(id),
        Request::Abort => l.engine.abort(id),
    }
}

/// The peer reads to the end, and closes then. Returns how many bytes it has got, and whether the
/// end was an end of file. (`None`: there was no peer.)
fn let_end<D: Driver>(l: &mut Loop<D>, peer: Source, connects: bool) -> Option<(usize, bool)> {
    let over = |l: &Loop<D>| l.told.iter().any(|told| matches!(*told, "closed" | "detached"));
    let mut peer = peer;
    if connects {
        l.watcher.submit(Op::accept(peer).token(3)).expect("an accept");
        l.until("its peer is there", |l| {
            over(l) || l.foreign.iter().any(|c| c.code() == OpCode::Accept)
        });
        let at = l.foreign.iter().position(|c| c.code() == OpCode::Accept)?;
        let Ok(Done::Accepted(handle)) = l.foreign.remove(at).result else { panic!("an accept") };
        peer = l.watcher.attach(handle).expect("a source");
    }
    l.watcher.submit(Op::read(peer).multishot().token(9)).expect("a read");
    let last = |l: &Loop<D>| {
        l.foreign.iter().position(|c| c.token == 9 && c.code() == OpCode::Read && !c.has_more())
    };
    l.until("its peer hears the end", |l| {
        l.handles.clear(); // the program closes what it gets
        last(l).is_some()
    });
    let at = last(l).expect("right from above");
    let is_eof = l.foreign[at].result.is_ok();
    l.watcher.abort(peer);
    l.until("it has ended", |l| over(l));
    let reads = l.foreign.iter().filter(|c| c.token == 9 && c.result.is_ok());
    Some((reads.map(|c| c.bytes()).sum(), is_eof))
}

/// What a request answers, and how the connection ends then: with which event, and which cause.
fn meaning(stage: In, request: Request) -> (bool, &'static str, Option<Cause>) {
    let closed = |cause| (true, "closed", Some(cause));
    match (stage, request) {
        (In::Connecting | In::Open | In::HalfClosed | In::Ended, request) => match request {
            Request::HalfClose => closed(Cause::Eof),
            Request::Detach => (true, "detached", None),
            Request::Close => closed(Cause::Closed),
            Request::Abort => closed(Cause::Aborted),
        },
        (In::Leaving, Request::HalfClose) => (false, "detached", None),
        (In::Leaving, Request::Detach) => (true, "detached", None),
        (In::Leaving, Request::Close) => closed(Cause::Closed),
        (In::Leaving, Request::Abort) => closed(Cause::Aborted),
        // The first cause is told.
        (In::Closing | In::Lingering, Request::Detach) => (false, "closed", Some(Cause::Closed)),
        (In::Closing | In::Lingering, _) => closed(Cause::Closed),
        (In::Failing, Request::HalfClose | Request::Detach) => {
            (false, "closed", Some(Cause::Aborted))
        }
        (In::Failing, _) => closed(Cause::Aborted),
        (In::Detached, request) => (request == Request::Detach, "detached", None),
    }
}

fn each_request_in_each_stage_has_one_meaning<T: Harness>() {
    for (stage, request) in STAGES.into_iter().flat_map(|stage| REQUESTS.map(|one| (stage, one))) {
        let what = format!("{request:?} in {stage:?}");
        let (mut l, peer, id) = in_stage::<T>(stage);
        let (answer, end, cause) = meaning(stage, request);
        assert_eq!(ask(&mut l, id, request), answer, "{what}");
        l.engine.flush(&mut l.watcher);
        let heard = let_end(&mut l, peer, stage == In::Connecting);
        l.run_for(Duration::from_millis(20));
        let lasts: Vec<_> =
            l.told.iter().filter(|told| matches!(**told, "closed" | "detached")).collect();
        assert_eq!(lasts, [&end], "{what}: {:?}", l.told);
        assert_eq!(l.ends.first().map(|end| end.0), cause, "{what}");
        let unsent = l.ends.first().map_or(0, |end| end.1);
        let drops = stage == In::Failing
            || request == Request::Abort && matches!(stage, In::Leaving | In::Closing);
        assert_eq!(unsent > 0, drops, "{what}: {unsent} bytes");
        if let Some((bytes, is_eof)) = heard
            && !drops
        {
            let all = if matches!(stage, In::Leaving | In::Closing) { OUTPUT } else { 0 };
            assert_eq!((bytes, is_eof), (all, true), "{what}");
        }
        assert!(!ask(&mut l, id, request), "{what}: its id is stale");
        assert!(l.engine.is_empty() && l.engine.budget().used() == 0, "{what}");
    }
}

/// The other side of a half-close.
fn a_peer_may_end_its_side_in_each_stage<T: Harness>() {
    for stage in STAGES {
        if matches!(stage, In::Connecting | In::Ended) {
            continue; // there is no peer yet; it has ended
        }
        let (mut l, peer, id) = in_stage::<T>(stage);
        l.watcher.submit(Op::write(peer, "last words").token(2)).expect("a write");
        l.watcher.submit(Op::shutdown(peer).token(2)).expect("a half-close");
        l.run_for(Duration::from_millis(20));
        if stage == In::Open {
            l.told.dedup(); // the data may come in parts
            assert_eq!(l.told, ["opened", "data", "eof"]);
            assert!(l.engine.close(id));
            l.engine.flush(&mut l.watcher);
        }
        let_end(&mut l, peer, false);
        l.run_for(Duration::from_millis(20));
        let (end, cause) = match stage {
            In::Leaving | In::Detached => ("detached", None),
            In::HalfClosed => ("closed", Some(Cause::Eof)),
            In::Failing => ("closed", Some(Cause::Aborted)),
            _ => ("closed", Some(Cause::Closed)),
        };
        assert_eq!(l.told.last(), Some(&end), "{stage:?}: {:?}", l.told);
        assert_eq!(l.ends.first().map(|end| end.0), cause, "{stage:?}");
        assert_eq!(l.ends.first().is_some_and(|end| end.1 > 0), stage == In::Failing, "{stage:?}");
        assert!(l.engine.is_empty() && l.engine.budget().used() == 0, "{stage:?}");
    }
}

/// The descriptor is on its way to the program, which needs the stream no more.
fn a_dropped_stream_ends_no_detach<T: Harness>() {
    for closes in [false, true] {
        let mut l = Loop::new::<T>(Config::new());
        let (client, id) = l.pair();
        l.engine.write(id, vec![7; OUTPUT]).expect("the connection takes it");
        let waker = std::task::Waker::noop().clone();
        let stream = l.engine.stream(&mut l.watcher, id, waker).expect("a stream");
        l.engine.flush(&mut l.watcher);
        assert!(l.engine.detach(id).is_ok());
        if closes {
            stream.close();
        }
        drop(stream);
        l.engine.flush(&mut l.watcher);
        assert_eq!(let_end(&mut l, client, false), Some((OUTPUT, true)));
        assert_eq!(l.told.last(), Some(&"detached"));
    }
}

/// It stands behind what was written before it.
fn a_half_close_before_the_connect_is_a_half_close<T: Harness>() {
    let (mut l, listener, id) = in_stage::<T>(In::Connecting);
    l.engine.write(id, "question").expect("the connection takes it");
    assert!(l.engine.shutdown(id));
    assert!(l.engine.write(id, "more").is_err());
    l.engine.flush(&mut l.watcher);
    assert_eq!(let_end(&mut l, listener, true), Some(("question".len(), true)));
    assert_eq!(
        (l.told.clone(), l.ends[0].0, l.ends[0].1),
        (vec!["opened", "closed"], Cause::Eof, 0)
    );
}

/// The detach cancels the read. It cancelled the half-close, too, if that had to wait for its turn.
fn a_detach_lets_the_half_close_in_front_of_it_go<T: Harness>() {
    for (budget, turns) in [1 << 10, 4 << 10, 64 << 10].into_iter().flat_map(|b| [(b, 1), (b, 3)]) {
        let builder = Watcher::builder().source_budget(budget);
        let mut l = Loop::on(T::watcher(builder), Config::new());
        let (client, id) = l.pair();
        // The last turn of the output ends with the share of the connection: the half-close waits.
        let output = OUTPUT + turns * budget;
        l.engine.write(id, vec![7; output]).expect("the connection takes it");
        l.engine.flush(&mut l.watcher);
        l.run_for(Duration::from_millis(20));
        assert!(l.queued(id) > 0);
        assert!(l.engine.shutdown(id) && l.engine.detach(id).is_ok());
        l.engine.flush(&mut l.watcher);
        l.watcher.submit(Op::read(client).multishot().token(9)).expect("a read");
        l.until("it is detached", |l| !l.handles.is_empty());
        // The program has the descriptor, and has not closed it.
        let is_end = |c: &Completion| matches!(&c.result, Ok(Done::Read(data)) if data.is_empty());
        l.run_for(Duration::from_millis(200));
        assert!(l.foreign.iter().any(is_end), "{budget} bytes a turn: no end of file");
        let heard: usize = l.foreign.iter().filter(|c| c.token == 9).map(|c| c.bytes()).sum();
        assert_eq!(heard, output);
    }
}
