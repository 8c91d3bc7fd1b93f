//! Connections as values, on every driver.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Wake, Waker};
use std::time::Duration;

use crate::common::{Bench, Harness, bench};
use windlass::driver::Deadline;
use windlass::driver::Driver;
use windlass::{Buf, Source};
use windlass_serve::{
    Action, Cause, Closed, Config, Conn, Context, Detached, Handler, Limits, Origin, Server, Stream,
};

crate::every_driver! {
    a_stream_reads_and_writes
    a_stream_that_is_not_read_holds_its_peer_up
    a_write_without_room_is_woken
    a_write_without_memory_is_woken
    a_write_beyond_all_memory_is_cut
    a_stream_writes_with_the_least_memory
    the_last_drop_closes_behind_the_output
    an_end_is_an_error_with_its_cause
    each_side_can_be_shut_down
    a_stream_begins_with_what_was_held_back
    a_detach_takes_what_was_not_read
    a_waker_that_panics_ends_nothing
    an_engine_that_is_dropped_ends_its_streams
    a_read_deadline_ends_a_stream
    a_write_deadline_ends_a_stream_unless_its_output_is_sent
    deadlines_of_a_stream_move_and_go
    a_write_above_the_high_mark_waits_for_the_low_one
    a_stream_whose_peer_is_too_slow_has_timed_out
}

#[derive(Default)]
struct Bells(AtomicUsize);

impl Wake for Bells {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Bells {
    fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// Makes a stream of each connection.
#[derive(Default)]
struct Streams {
    bells: Arc<Bells>,
    streams: Vec<Stream>,
    closed: Vec<(Cause, usize)>,
    detached: Vec<Detached<()>>,
    /// The stream is made in `wake`, in place of `opened`.
    later: bool,
    calls: usize,
}

impl Streams {
    fn make(&mut self, c: &mut Conn<'_, ()>) {
        let waker = Waker::from(Arc::clone(&self.bells));
        let stream = c.into_std().expect("a stream");
        stream.set_waker(waker);
        self.streams.push(stream);
        assert!(c.into_std().is_none(), "it has a stream already");
    }
}

impl Handler for Streams {
    type State = ();

    fn opened(&mut self, c: &mut Conn<'_, ()>, _: Origin) -> Action {
        if self.later {
            c.pause();
        } else {
            self.make(c);
        }
        Action::None
    }
    fn data(&mut self, _: &mut Conn<'_, ()>, _: Buf) -> Action {
        self.calls += 1;
        Action::None
    }
    fn eof(&mut self, _: &mut Conn<'_, ()>) -> Action {
        self.calls += 1;
        Action::None
    }
    fn wake(&mut self, c: &mut Conn<'_, ()>) -> Action {
        self.make(c);
        Action::None
    }
    fn closed(&mut self, _: &mut Context<'_, ()>, closed: Closed<()>) -> Action {
        self.closed.push((closed.cause, closed.unsent));
        Action::None
    }
    fn detached(&mut self, _: &mut Context<'_, ()>, detached: Detached<()>) -> Action {
        self.detached.push(detached);
        Action::None
    }
}

fn limits() -> Limits {
    Limits::new().idle(None).write_stall(None)
}

fn server(limits: Limits, streams: Streams) -> Server<impl Fn(usize) -> Streams> {
    let streams = std::cell::RefCell::new(Some(streams));
    let server = Server::new(move |_| streams.borrow_mut().take().expect("one loop"));
    server.config(Config::new().limits(limits)).listen("tcp://127.0.0.1:0").expect("an address")
}

type Pair<D> = (Bench<D, Streams>, Source, Stream);

/// A server, a client, and the stream of its connection.
fn pair<T: Harness>(limits: Limits) -> Pair<T::Driver> {
    let mut bench = bench::<T, _, _>(server(limits, Streams::default()));
    let client = bench.connect();
    let stream = stream(&mut bench);
    (bench, client, stream)
}

fn stream<D: Driver>(bench: &mut Bench<D, Streams>) -> Stream {
    bench.until("it is open", |bench| !bench.running.handler().streams.is_empty());
    bench.running.handler().streams.remove(0)
}

fn kind<V: std::fmt::Debug>(result: std::io::Result<V>) -> ErrorKind {
    result.expect_err("an error").kind()
}

/// Reads all that is there.
fn read_all(mut stream: &Stream) -> Vec<u8> {
    let (mut all, mut bytes) = (Vec::new(), [0; 1000]);
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => return all,
            Ok(count) => all.extend_from_slice(&bytes[..count]),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                return all;
            }
        }
    }
}

/// Writes until there is no room; how many bytes were written.
fn fill(mut stream: &Stream) -> usize {
    let mut written = 0;
    loop {
        match stream.write(&[7; 100_000]) {
            Ok(count) => written += count,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
                return written;
            }
        }
    }
}

fn a_stream_reads_and_writes<T: Harness>() {
    let (mut bench, client, mut stream) = pair::<T>(limits());
    bench.clients.all.get_mut(&client).unwrap().stays = true;
    let mut bytes = [0; 3];
    assert_eq!(kind(stream.read(&mut bytes)), ErrorKind::WouldBlock);
    let bells = Arc::clone(&bench.running.handler().bells);
    assert_eq!(bells.count(), 0);
    bench.say(client, "hello");
    let mut heard = Vec::new();
    bench.until("it is read", |_| {
        while let Ok(count) = (&stream).read(&mut bytes) {
            heard.extend_from_slice(&bytes[..count]);
        }
        heard.len() == 5
    });
    assert_eq!(heard, b"hello");
    assert!(bells.count() > 0);
    let other = stream.clone();
    assert_eq!((&other).write(b"hi ").unwrap(), 3);
    assert_eq!(stream.write(b"there").unwrap(), 5);
    stream.flush().unwrap();
    bench.until("it is heard", |bench| bench.client(client).heard == b"hi there");
    // The end of the input does not close it.
    let before = bells.count();
    bench.finish(client);
    bench.until("a wake", |_| bells.count() > before);
    assert_eq!(stream.read(&mut bytes).unwrap(), 0);
    stream.write_all(b"!").unwrap();
    bench.until("it is heard", |bench| bench.client(client).heard == b"hi there!");
    assert!(stream.cause().is_none() && stream.id() == other.id());
    drop(stream);
    bench.run_for(T::span(1.0));
    assert!(bench.running.handler().closed.is_empty());
    drop(other);
    bench.until("it is closed", |bench| !bench.running.handler().closed.is_empty());
    assert_eq!(bench.running.handler().closed, [(Cause::Closed, 0)]);
    assert_eq!(bench.running.handler().calls, 0, "no data went to the callbacks");
    assert_eq!(bench.running.engine().budget().used(), 0);
}

fn a_stream_that_is_not_read_holds_its_peer_up<T: Harness>() {
    let limits = limits().marks(10 << 10, 100 << 10);
    let (mut bench, client, stream) = pair::<T>(limits);
    let all: Vec<u8> = (0..16 << 20).map(|at| (at % 251) as u8).collect();
    bench.say(client, all.clone());
    bench.finish(client);
    bench.until("it is full", |_| stream.unread() > 100 << 10);
    bench.run_for(T::span(5.0));
    let unread = stream.unread();
    // One lease, and on io_uring those that the kernel had filled.
    assert!(unread < 4 << 20, "{unread} bytes");
    assert_eq!(bench.running.engine().budget().used(), unread);
    let mut heard = Vec::new();
    bench.until("it is read", |_| {
        heard.extend(read_all(&stream));
        heard.len() == all.len()
    });
    assert!(heard == all);
    assert_eq!(bench.running.engine().budget().used(), 0);
}

fn a_write_without_room_is_woken<T: Harness>() {
    let (mut bench, client, stream) = pair::<T>(limits().cap(1 << 20).marks(64 << 10, 2 << 20));
    bench.deafen(client);
    let mut written = fill(&stream);
    let bells = Arc::clone(&bench.running.handler().bells);
    let rounds = std::cell::Cell::new(0);
    for _ in 0..200 {
        let before = bells.count();
        bench.run_for(T::span(0.1));
        let more = fill(&stream);
        written += more;
        rounds.set(rounds.get() + 1);
        if more == 0 && bells.count() == before {
            break;
        }
    }
    assert!(written >= 1 << 20 && rounds.get() < 200, "{written} bytes");
    assert!(bench.running.engine().waiting(stream.id()) <= 1 << 20);
    let before = bells.count();
    bench.hear(client);
    bench.until("a wake", |_| bells.count() > before);
    written += (&stream).write(b"x").unwrap();
    bench.until("all is heard", |bench| bench.client(client).heard.len() == written);
    assert_eq!(bench.running.engine().budget().used(), 0);
}

fn a_write_without_memory_is_woken<T: Harness>() {
    let (mut bench, client, stream) = pair::<T>(limits().memory(500_000).marks(64 << 10, 1 << 20));
    bench.deafen(client);
    let written = fill(&stream);
    // All but the reserve.
    assert!(written > 300_000 && bench.running.engine().budget().used() <= 400_000);
    let bells = Arc::clone(&bench.running.handler().bells);
    bench.hear(client);
    bench.until("a wake", |_| bells.count() > 0);
    let more = (&stream).write(b"x").unwrap();
    bench.until("all is heard", |bench| bench.client(client).heard.len() == written + more);
    assert_eq!(bench.running.engine().budget().used(), 0);
}

/// A peer that does not read holds up the writer at the high mark, long before the cap.
fn a_write_above_the_high_mark_waits_for_the_low_one<T: Harness>() {
    let (mut bench, client, stream) = pair::<T>(limits().marks(64 << 10, 256 << 10));
    bench.deafen(client);
    let mut written = 0;
    // The system takes some.
    for _ in 0..100 {
        written += fill(&stream);
        bench.run_for(T::span(0.1));
    }
    let waiting = bench.running.engine().waiting(stream.id());
    assert!((192 << 10..=320 << 10).contains(&waiting), "{waiting} bytes wait");
    let bells = Arc::clone(&bench.running.handler().bells);
    let before = bells.count();
    bench.hear(client);
    bench.until("there is room", |_| bells.count() > before);
    assert!(bench.running.engine().waiting(stream.id()) <= 64 << 10);
    written += fill(&stream);
    drop(stream);
    bench.until("all is heard", |bench| bench.client(client).is_over());
    assert_eq!(bench.client(client).heard.len(), written);
}

/// A write that the memory of the server never has room for is cut: it does not wait in vain.
fn a_write_beyond_all_memory_is_cut<T: Harness>() {
    let (mut bench, client, stream) = pair::<T>(limits().memory(10_000));
    let bytes = [7; 30_000];
    let (mut written, mut turns) = (0, 0);
    while written < bytes.len() {
        match (&stream).write(&bytes[written..]) {
            Ok(count) => written += count,
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}"),
        }
        bench.turn(Duration::from_millis(10));
        turns += 1;
        assert!(turns < 1000, "{written} bytes were written");
    }
    bench.until("all is heard", |bench| bench.client(client).heard.len() == written);
}

/// A limit of memory below the entry of a write in the queue counts as more: a write that finds no
/// room is not woken for ever.
fn a_stream_writes_with_the_least_memory<T: Harness>() {
    for memory in [0, 1, 100, 150, 200, 256] {
        let (mut bench, client, stream) = pair::<T>(limits().memory(memory));
        let bells = Arc::clone(&bench.running.handler().bells);
        for at in 0..300 {
            while (&stream).write(b"x").is_err() {
                let before = bells.count();
                assert!(before <= 3 * at, "it is woken in vain");
                bench.until("a wake", |_| bells.count() > before);
            }
        }
        bench.until("all is heard", |bench| bench.client(client).heard.len() == 300);
        assert_eq!(bench.running.engine().budget().used(), 0);
    }
}

fn the_last_drop_closes_behind_the_output<T: Harness>() {
    let (mut bench, client, mut stream) = pair::<T>(limits().marks(1 << 20, 8 << 20));
    let all = vec![3; 5 << 20];
    let mut rest = &all[..];
    while !rest.is_empty() {
        let count = stream.write(rest).unwrap();
        rest = &rest[count..];
    }
    drop(stream);
    bench.until("it is closed", |bench| !bench.running.handler().closed.is_empty());
    assert_eq!(bench.running.handler().closed, [(Cause::Closed, 0)]);
    assert!(bench.client(client).heard == all && bench.client(client).eof);
}

fn an_end_is_an_error_with_its_cause<T: Harness>() {
    let (mut bench, client, mut stream) = pair::<T>(limits());
    let bells = Arc::clone(&bench.running.handler().bells);
    bench.say(client, "x");
    bench.until("it is there", |_| stream.unread() == 1);
    let before = bells.count();
    bench.running.engine().set_read_deadline(stream.id(), Deadline::After(Duration::ZERO));
    bench.running.turn(&mut bench.watcher);
    assert!(bells.count() > before);
    assert_eq!(stream.cause(), Some(Cause::ReadTimeout));
    let mut bytes = [0; 2];
    assert_eq!(stream.read(&mut bytes).unwrap(), 1, "what has arrived comes first");
    for error in [stream.read(&mut bytes), stream.write(b"x")].map(Result::unwrap_err) {
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        let cause = error.get_ref().and_then(|inner| inner.downcast_ref::<Cause>());
        assert_eq!(cause, Some(&Cause::ReadTimeout));
    }
    assert_eq!(kind(stream.shutdown(Shutdown::Both)), ErrorKind::TimedOut);
    // An abort, and a close of the program.
    for close in [false, true] {
        bench.connect();
        let mut stream = self::stream(&mut bench);
        let count = bench.running.handler().closed.len();
        let engine = bench.running.engine();
        if close {
            engine.close(stream.id());
            assert_eq!(kind(stream.write(b"x")), ErrorKind::BrokenPipe);
        } else {
            engine.abort(stream.id());
        }
        bench.running.turn(&mut bench.watcher);
        bench.until("it is closed", |bench| bench.running.handler().closed.len() > count);
        let expected = if close { ErrorKind::BrokenPipe } else { ErrorKind::ConnectionAborted };
        assert_eq!(kind(stream.read(&mut bytes)), expected);
        assert_eq!(kind(stream.write(b"x")), expected);
    }
}

fn each_side_can_be_shut_down<T: Harness>() {
    let (mut bench, client, mut stream) = pair::<T>(limits());
    bench.clients.all.get_mut(&client).unwrap().stays = true;
    stream.write_all(b"last").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(kind(stream.write(b"x")), ErrorKind::BrokenPipe);
    bench.until("the client is at the end", |bench| bench.client(client).eof);
    assert_eq!(bench.client(client).heard, b"last");
    bench.say(client, "more");
    bench.until("it is there", |_| stream.unread() == 4);
    stream.shutdown(Shutdown::Read).unwrap();
    assert_eq!((stream.unread(), stream.read(&mut [0; 9]).unwrap()), (0, 0));
    bench.say(client, "dropped");
    bench.finish(client);
    bench.until("it is closed", |bench| !bench.running.handler().closed.is_empty());
    assert_eq!(bench.running.handler().closed, [(Cause::Eof, 0)]);
    assert_eq!(bench.running.engine().budget().used(), 0);
    assert_eq!(bench.running.report().counters.stale_writes, 0);
}

fn a_stream_begins_with_what_was_held_back<T: Harness>() {
    let streams = Streams { later: true, ..Streams::default() };
    let mut bench = bench::<T, _, _>(server(limits(), streams));
    let client = bench.connect();
    bench.until("it is open", |bench| bench.running.engine().len() == 1);
    bench.say(client, "held, ");
    bench.until("it is held back", |bench| bench.running.engine().budget().used() > 0);
    let id = bench.running.engine().ids().next().unwrap();
    bench.running.engine().wake(id);
    let stream = stream(&mut bench);
    bench.say(client, "and new");
    let mut heard = Vec::new();
    bench.until("it is read", |_| {
        heard.extend(read_all(&stream));
        heard == b"held, and new"
    });
    assert_eq!(bench.running.engine().budget().used(), 0);
}

fn a_detach_takes_what_was_not_read<T: Harness>() {
    let (mut bench, client, mut stream) = pair::<T>(limits());
    bench.say(client, "unread");
    bench.until("it is there", |_| stream.unread() == 6);
    assert_eq!(stream.read(&mut [0; 2]).unwrap(), 2);
    bench.running.engine().detach(stream.id()).expect("it may leave");
    bench.running.turn(&mut bench.watcher);
    bench.until("it is detached", |bench| !bench.running.handler().detached.is_empty());
    let detached = &bench.running.handler().detached[0];
    let undelivered: Vec<u8> = detached.undelivered.iter().flat_map(|b| b.to_vec()).collect();
    assert_eq!((&undelivered[..], detached.eof), (&b"read"[..], false));
    assert_eq!(stream.cause(), Some(Cause::Closed));
    assert!(stream.write(b"x").is_err() && stream.read(&mut [0; 2]).is_err());
    assert_eq!(bench.running.engine().budget().used(), 0);
}

fn a_waker_that_panics_ends_nothing<T: Harness>() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("a panic of a waker");
        }
    }
    let (mut bench, client, stream) = pair::<T>(limits());
    stream.set_waker(Waker::from(Arc::new(Panics)));
    bench.say(client, "x");
    bench.until("it is there", |_| stream.unread() == 1);
    bench.run_for(T::span(1.0));
    assert!(stream.cause().is_none() && bench.running.handler().closed.is_empty());
}

fn an_engine_that_is_dropped_ends_its_streams<T: Harness>() {
    let (bench, _client, mut stream) = pair::<T>(limits());
    drop(bench);
    assert_eq!(stream.cause(), Some(Cause::Shutdown));
    assert_eq!(kind(stream.read(&mut [0; 2])), ErrorKind::ConnectionAborted);
    assert_eq!(kind(stream.write(b"x")), ErrorKind::ConnectionAborted);
    stream.close();
}

fn cause(result: std::io::Result<usize>) -> (ErrorKind, Cause) {
    let error = result.expect_err("an error");
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Cause>());
    (error.kind(), *inner.expect("the cause is inside"))
}

fn a_read_deadline_ends_a_stream<T: Harness>() {
    let (mut bench, client, stream) = pair::<T>(limits());
    let span = T::span(10.0);
    bench.say(client, "before");
    bench.until("it is readable", |_| stream.unread() == 6);
    let begin = bench.watcher.update_now();
    stream.set_read_deadline(Deadline::After(span)).unwrap();
    let bells = Arc::clone(&bench.running.handler().bells);
    let before = bells.count();
    bench.until("it has ended", |_| stream.cause().is_some());
    assert!(bench.watcher.update_now() - begin >= span);
    assert!(bells.count() > before, "its waker is called");
    let mut bytes = [0; 10];
    assert_eq!((&stream).read(&mut bytes).unwrap(), 6);
    let expected = (ErrorKind::TimedOut, Cause::ReadTimeout);
    assert_eq!(cause((&stream).read(&mut bytes)), expected);
    assert_eq!(cause((&stream).write(b"late")), expected);
    assert_eq!(kind(stream.set_deadline(Deadline::After(span))), ErrorKind::TimedOut);
    bench.until("it is closed", |bench| !bench.running.handler().closed.is_empty());
    assert_eq!(bench.running.handler().closed, [(Cause::ReadTimeout, 0)]);
    // A time that has passed already.
    bench.connect();
    let late = self::stream(&mut bench);
    let past = bench.watcher.update_now();
    bench.run_for(Duration::from_millis(1));
    late.set_deadline(Deadline::At(past)).unwrap();
    bench.until("it has ended", |_| late.cause().is_some());
    assert_eq!(late.cause(), Some(Cause::ReadTimeout), "the first one of two");
}

fn a_write_deadline_ends_a_stream_unless_its_output_is_sent<T: Harness>() {
    let (mut bench, client, stream) = pair::<T>(limits());
    stream.set_write_deadline(Deadline::After(T::span(20.0))).unwrap();
    (&stream).write_all(b"sent").unwrap();
    bench.until("it is heard", |bench| bench.client(client).heard == b"sent");
    bench.run_for(T::span(40.0));
    assert_eq!(stream.cause(), None, "the deadline went with the output");
    bench.deafen(client);
    bench.turn(Duration::ZERO);
    stream.set_write_deadline(Deadline::After(T::span(20.0))).unwrap();
    let mut written = 0;
    // More than the sockets hold.
    bench.until("it has ended", |_| {
        while let Ok(count) = (&stream).write(&[1; 10_000]) {
            written += count;
        }
        stream.cause().is_some()
    });
    let expected = (ErrorKind::TimedOut, Cause::WriteTimeout);
    assert_eq!(cause((&stream).write(b"late")), expected);
    bench.until("it is closed", |bench| !bench.running.handler().closed.is_empty());
    let (cause, unsent) = bench.running.handler().closed[0];
    assert_eq!(cause, Cause::WriteTimeout);
    assert!(unsent > 0 && unsent <= written, "{unsent} of {written}");
}

fn deadlines_of_a_stream_move_and_go<T: Harness>() {
    let (mut bench, _, stream) = pair::<T>(limits());
    let begin = bench.watcher.update_now();
    for _ in 0..1000 {
        // All of them are one request for the loop, and the last one counts.
        stream.set_deadline(Deadline::After(T::span(1.0))).unwrap();
        stream.set_read_deadline(Deadline::After(T::span(30.0))).unwrap();
        stream.set_write_deadline(None).unwrap();
    }
    bench.until("it has ended", |_| stream.cause().is_some());
    assert!(bench.watcher.update_now() - begin >= T::span(30.0));
    assert_eq!(stream.cause(), Some(Cause::ReadTimeout));
    bench.connect();
    let other = self::stream(&mut bench);
    other.set_deadline(Deadline::After(T::span(5.0))).unwrap();
    other.set_deadline(None).unwrap();
    bench.run_for(T::span(20.0));
    assert_eq!(other.cause(), None);
    other.set_deadline(Deadline::After(Duration::MAX)).unwrap();
    bench.run_for(T::span(1.0));
    assert_eq!(other.cause(), None, "the clock does not reach it");
}

/// It was an aborted connection.
fn a_stream_whose_peer_is_too_slow_has_timed_out<T: Harness>() {
    let (mut bench, _, mut stream) = pair::<T>(limits());
    bench.running.engine().limit(stream.id(), T::span(1.0), 0);
    bench.running.turn(&mut bench.watcher);
    bench.until("it has ended", |_| stream.cause().is_some());
    for error in [stream.read(&mut [0]), stream.write(b"x")].map(Result::unwrap_err) {
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        let cause = error.get_ref().and_then(|inner| inner.downcast_ref::<Cause>());
        assert_eq!(cause, Some(&Cause::TooSlow));
    }
}
