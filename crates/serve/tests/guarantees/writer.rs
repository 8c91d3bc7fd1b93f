//! The `Write` of a connection: the same bytes and the same ends as its other writes.
//!
//! Of the promises on the page of the crate: P2.

use std::io::{ErrorKind, IoSlice, Write};

use crate::common::engine::Loop;
use crate::common::turns::Turns;
use crate::common::{Harness, bench};
use windlass::{Buf, Done, Op};
use windlass_serve::{
    Action, Cause, Closed, Config, Conn, Context, Handler, Limits, Refusal, Server,
};

crate::every_driver! {
    its_bytes_come_in_their_place_among_the_others
    its_error_says_why_and_the_connection_of_an_engine_goes_on
    a_refusal_in_a_callback_ends_the_connection
}

fn its_bytes_come_in_their_place_among_the_others<T: Harness>() {
    let mut l = Loop::new::<T>(Config::new());
    let (client, id) = l.pair();
    let long = "x".repeat(40 << 10); // more than is copied into one buffer
    l.engine.write(id, "one ").unwrap();
    write!(l.engine.writer(id), "a{}", 12).unwrap();
    l.engine.write(id, Buf::from(vec![b'-'; 600])).unwrap();
    l.engine.writer(id).write_all(long.as_bytes()).unwrap();
    assert_eq!(l.engine.writer(id).write(b"").unwrap(), 0);
    let parts = [b"<".as_slice(), b"", b"=>"].map(IoSlice::new);
    assert_eq!(l.engine.writer(id).write_vectored(&parts).unwrap(), 3);
    l.engine.writer(id).flush().unwrap();
    l.engine.write_slice(id, b".").unwrap();
    assert_eq!(l.engine.counters().writes, 0);
    l.engine.flush(&mut l.watcher);
    assert_eq!(l.engine.counters().writes, 1, "they leave as one write");
    let text = format!("one a12{}{long}<=>.", "-".repeat(600));
    l.watcher.submit(Op::read(client).multishot()).unwrap();
    let heard = |l: &Loop<T::Driver>| {
        let data = l.foreign.iter().filter_map(|c| match &c.result {
            Ok(Done::Read(data)) => Some(&**data),
            _ => None,
        });
        data.collect::<Vec<_>>().concat()
    };
    l.until("all has come", |l| heard(l).len() >= text.len());
    assert!(heard(&l) == text.as_bytes(), "other bytes");
}

fn its_error_says_why_and_the_connection_of_an_engine_goes_on<T: Harness>() {
    let limits = Limits::new().marks(100, 100).cap(1000);
    let mut l = Loop::new::<T>(Config::new().limits(limits));
    let (_, id) = l.pair();
    l.engine.writer(id).write_all(&[b'x'; 999]).unwrap();
    let error = write!(l.engine.writer(id), "{}", 12).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::QuotaExceeded);
    let reason = error.get_ref().and_then(|inner| inner.downcast_ref::<Refusal>());
    assert_eq!(reason, Some(&Refusal::Cap));
    // Of several parts, it takes those that fit.
    let parts = [b"1".as_slice(), b"2"].map(IoSlice::new);
    assert_eq!(l.engine.writer(id).write_vectored(&parts).unwrap(), 1);
    let error = l.engine.writer(id).write_vectored(&parts).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::QuotaExceeded);
    assert_eq!(l.engine.waiting(id), 1000);
    l.engine.flush(&mut l.watcher);
    l.run_for(T::span(0.5));
    assert!(l.ends.is_empty());
    assert!(l.engine.close(id));
    let error = write!(l.engine.writer(id), "late").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    let reason = error.into_inner().unwrap().downcast::<Refusal>().unwrap();
    assert_eq!(*reason, Refusal::Stale);
}

/// Answers with more than the cap.
#[derive(Default)]
struct TooMuch {
    ends: Vec<(Cause, usize)>,
}

impl Handler for TooMuch {
    type State = ();

    fn data(&mut self, c: &mut Conn<'_, ()>, _: Buf) -> Action {
        write!(c.writer(), "{}", 12).unwrap();
        let error = c.writer().write_all(&[b'x'; 1000]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::QuotaExceeded);
        assert_eq!(c.writer().write(b"late").unwrap_err().kind(), ErrorKind::BrokenPipe);
        Action::None
    }

    fn closed(&mut self, _: &mut Context<'_, ()>, closed: Closed<()>) -> Action {
        self.ends.push((closed.cause, closed.unsent));
        Action::None
    }
}

fn a_refusal_in_a_callback_ends_the_connection<T: Harness>() {
    let config = Config::new().limits(Limits::new().marks(100, 100).cap(1000));
    let server = Server::new(|_| TooMuch::default()).config(config);
    let mut bench = bench::<T, _, _>(server.listen("tcp://127.0.0.1:0").unwrap());
    let client = bench.connect();
    bench.say(client, "go");
    bench.until("it has ended", |bench| !bench.running.handler().ends.is_empty());
    assert_eq!(bench.running.handler().ends, [(Cause::Overflow, 2)]);
    assert_eq!(bench.running.report().panics, 0);
}
