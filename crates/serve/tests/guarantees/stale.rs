//! Connections that have ended, in every call that takes an id, on every driver.
//!
//! Of the promises on the page of the crate: P1.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::task::Waker;
use std::time::Duration;

use crate::common::Harness;
use crate::common::engine::Loop;
use crate::common::turns::Turns;
use windlass::Op;
use windlass::driver::Deadline;
use windlass::net::SocketOption;
use windlass_serve::{Cause, Config, Id, Refusal};

crate::every_driver! {
    every_call_refuses_a_connection_that_has_ended
    every_call_refuses_a_session_that_has_ended
    every_call_of_a_stream_says_that_its_connection_has_ended
}

fn every_call_refuses_a_connection_that_has_ended<T: Harness>() {
    let mut l = Loop::new::<T>(Config::new());
    let (_, id) = l.pair();
    refuses_everywhere::<T>(l, id);
}

/// Its place is a TCP connection's then.
fn every_call_refuses_a_session_that_has_ended<T: Harness>() {
    let mut l = Loop::new::<T>(Config::new());
    let id = l.engine.connect_datagram(l.address.clone(), ()).unwrap();
    l.engine.flush(&mut l.watcher);
    l.until("it is open", |l| l.opened == [id]);
    refuses_everywhere::<T>(l, id);
}

fn refuses_everywhere<T: Harness>(mut l: Loop<T::Driver>, id: Id) {
    let remote = l.engine.remote(&mut l.watcher);
    assert!(l.engine.abort(id));
    l.engine.flush(&mut l.watcher);
    l.until("it has ended", |l| l.ends.len() == 1);
    // Its place is another connection's now.
    let (client, other) = l.pair();
    assert_ne!(id, other);
    let told = l.told.len();
    for _ in 0..2 {
        let engine = &mut l.engine;
        assert!(engine.state(id).is_none() && engine.state_mut(id).is_none());
        assert!(engine.source(id).is_none());
        assert_eq!(engine.waiting(id), 0);
        let refused = engine.write(id, "late").unwrap_err();
        assert_eq!((refused.reason, &*refused.value), (Refusal::Stale, &b"late"[..]));
        assert_eq!(engine.write_slice(id, b"late"), Err(Refusal::Stale));
        let error = engine.writer(id).write(b"late").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
        assert!(!engine.pause(id) && !engine.resume(id) && !engine.wake(id));
        assert!(!engine.close(id) && !engine.shutdown(id) && !engine.abort(id));
        assert!(engine.detach(id).is_err() && !engine.charge(id, 1));
        assert!(!engine.set_option(id, SocketOption::Nodelay(true)));
        assert!(!engine.set_deadline(id, Deadline::After(Duration::ZERO)));
        assert!(!engine.set_read_deadline(id, Deadline::After(Duration::ZERO)));
        assert!(!engine.set_write_deadline(id, None));
        assert!(engine.stream(&mut l.watcher, id, Waker::noop().clone()).is_none());
        assert!(!remote.wake(id) && !remote.close(id) && remote.waiting(id).is_none());
        let refused = remote.write(id, "late").unwrap_err();
        assert_eq!((refused.reason, &*refused.value), (Refusal::Stale, &b"late"[..]));
        l.engine.flush(&mut l.watcher);
        l.run_for(T::span(0.5));
    }
    // The other connection has noticed nothing.
    assert_eq!(l.told.len(), told, "{:?}", &l.told[told..]);
    assert_eq!((l.engine.len(), l.engine.budget().used()), (1, 0));
    l.watcher.submit(Op::write(client, "hello")).unwrap();
    l.until("data comes", |l| l.told.last() == Some(&"data"));
    assert_eq!(l.engine.counters().stale_writes, 0, "each was refused at once");
}

fn every_call_of_a_stream_says_that_its_connection_has_ended<T: Harness>() {
    let mut l = Loop::new::<T>(Config::new());
    let (_, id) = l.pair();
    let stream = l.engine.stream(&mut l.watcher, id, Waker::noop().clone()).unwrap();
    assert!(l.engine.abort(id));
    l.engine.flush(&mut l.watcher);
    l.until("it has ended", |l| l.ends.len() == 1);
    let (_, other) = l.pair();
    let told = l.told.len();
    let kind = |result: std::io::Result<()>| result.unwrap_err().kind();
    for _ in 0..2 {
        assert_eq!((stream.id(), stream.cause()), (id, Some(Cause::Aborted)));
        assert_eq!(stream.unread(), 0);
        let aborted = ErrorKind::ConnectionAborted;
        assert_eq!(kind((&stream).read(&mut [0]).map(|_| ())), aborted);
        assert_eq!(kind((&stream).write(b"late").map(|_| ())), aborted);
        assert_eq!(kind(stream.shutdown(Shutdown::Both)), aborted);
        assert_eq!(kind(stream.set_deadline(Deadline::After(Duration::ZERO))), aborted);
        assert_eq!(kind(stream.set_read_deadline(None)), aborted);
        assert_eq!(kind(stream.set_write_deadline(Deadline::After(Duration::MAX))), aborted);
        stream.set_waker(Waker::noop().clone());
        stream.close();
        l.engine.flush(&mut l.watcher);
        l.run_for(T::span(0.5));
    }
    drop(stream);
    l.run_for(T::span(0.5));
    assert_eq!(l.told.len(), told, "{:?}", &l.told[told..]);
    assert!(l.engine.state(other).is_some());
    assert_eq!(l.engine.budget().used(), 0);
}
