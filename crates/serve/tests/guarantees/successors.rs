//! What a connection leaves behind, and the connections after it.
//!
//! Of the promises on the page of the crate: P7 and P9.

use std::io::{ErrorKind, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Wake, Waker};
use std::time::Duration;

use crate::common::{Bench, Harness, bench};
use windlass::driver::OpCode;
use windlass::{Buf, Completions};
use windlass_serve::{Action, Config, Conn, Handler, Id, Limits, Origin, Server, Stream};

crate::every_driver! {
    a_stream_is_woken_when_the_charge_of_another_connection_goes
    the_charge_of_another_connection_ends_none
}

fn limits() -> Limits {
    Limits::new().idle(None).write_stall(None).connect(None)
}

#[derive(Default)]
struct Wakes(AtomicUsize);
impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[derive(Default)]
struct Streams {
    opened: Vec<Id>,
    streams: Vec<Stream>,
    writes_to: Option<Id>,
    /// The third one writes so many bytes, or is a stream.
    writes: Option<usize>,
    written: Option<bool>,
}
impl Handler for Streams {
    type State = ();
    fn opened(&mut self, c: &mut Conn<'_, ()>, _: Origin) -> Action {
        self.opened.push(c.id());
        if self.opened.len() == 3 {
            match self.writes {
                Some(bytes) => self.written = Some(c.write(vec![0; bytes])),
                None => self.streams.extend(c.into_std()),
            }
        }
        Action::None
    }
    fn data(&mut self, c: &mut Conn<'_, ()>, _: Buf) -> Action {
        if let Some(to) = self.writes_to {
            c.remote().write(to, vec![0; 300 << 10]).unwrap();
        }
        Action::None
    }
}

/// In one turn: 300 KiB are written to a connection that closes, it ends, and another one gets
/// its place.
fn successor<T: Harness>(limits: Limits, writes: Option<usize>) -> Bench<T::Driver, Streams> {
    let config = Config::new().limits(limits.linger(Duration::ZERO));
    let server = Server::new(move |_| Streams { writes, ..Streams::default() }).config(config);
    let mut b = bench::<T, _, _>(server.listen("tcp://127.0.0.1:0").unwrap());
    let _a = b.connect();
    b.until("one is open", |b| b.running.handler().opened.len() == 1);
    let c = b.connect();
    b.until("two are open", |b| b.running.handler().opened.len() == 2);
    let a = b.running.handler().opened[0];
    b.running.handler().writes_to = Some(a);
    b.running.engine().close(a);
    b.running.turn(&mut b.watcher);
    // The completions of one batch: data, the end of the first one, another connection.
    b.say(c, "data");
    b.connect();
    let mut all = Vec::new();
    let has = |all: &Vec<windlass::Completion>, code| all.iter().any(|c| c.code() == code);
    while !has(&all, OpCode::Close) || !has(&all, OpCode::Accept) || !has(&all, OpCode::Read) {
        let mut done = Completions::new();
        b.watcher.wait(&mut done).unwrap();
        all.extend(done.drain(..));
    }
    let rank = |code| [OpCode::Read, OpCode::Close].iter().position(|c| *c == code);
    all.sort_by_key(|c| rank(c.code()).unwrap_or(9));
    for c in all {
        if let Some(c) = b.running.complete(&mut b.watcher, c) {
            b.clients.take(&mut b.watcher, c);
        }
    }
    b.running.turn(&mut b.watcher);
    assert_eq!(b.running.handler().opened.len(), 3);
    b
}

/// A write to the connection that had the place before counts for the stream, and nothing wakes
/// the stream when it counts no more.
fn a_stream_is_woken_when_the_charge_of_another_connection_goes<T: Harness>() {
    let mut b = successor::<T>(limits(), None);
    let mut stream = b.running.handler().streams.pop().expect("the third one is open");
    let wakes = Arc::new(Wakes::default());
    stream.set_waker(Waker::from(Arc::clone(&wakes)));
    let Err(error) = stream.write(b"hello") else { return };
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    b.until("it is woken", |_| wakes.0.load(Ordering::Relaxed) > 0);
}

/// It also counts for the cap of the new connection, which ends with `Cause::Overflow`.
fn the_charge_of_another_connection_ends_none<T: Harness>() {
    let mut b = successor::<T>(limits().cap(302 << 10), Some(3 << 10));
    assert_eq!(b.running.handler().written, Some(true), "3 KiB of 302 KiB");
}
