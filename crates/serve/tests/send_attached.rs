//! Files that many connections send: on every driver, and from the disk of a simulation.
//!
//! Of the promises on the page of the crate: P2, P3 and P7.
#![allow(missing_docs)] // a test binary has no users

mod common;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use common::{Bench, Harness, bench};
use windlass::driver::Driver;
use windlass::fs::OpenOptions;
use windlass::{Op, Source, SourceGuard, Watcher};
use windlass_serve::ops::Completed;
use windlass_serve::{
    Action, Cause, Closed, Conn, Context, Engine, Handler, Id, Limits, Origin, Refusal, Server,
};

every_kernel! {
    many_connections_send_one_file
    a_slow_reader_holds_up_no_other_one
    output_behind_parts_without_bytes_goes_on
    a_close_waits_for_the_file
    an_abort_lets_go_of_the_file
    a_file_that_shrinks_ends_the_connection
    a_range_beyond_the_end_ends_the_connection
    what_is_refused_changes_nothing
    a_file_of_another_watcher_is_not_sent
    a_source_that_is_no_open_file_ends_the_connection
    a_shutdown_sends_the_file
}

/// What a test hears of the server.
#[derive(Default)]
struct Heard {
    opened: Vec<Id>,
    ended: Vec<Completed>,
    closed: Vec<(Cause, usize)>,
    sent: usize,
}

impl Handler for Heard {
    type State = ();
    fn opened(&mut self, c: &mut Conn<'_, ()>, _: Origin) -> Action {
        self.opened.push(c.id());
        Action::None
    }
    fn completed(&mut self, _: &mut Context<'_, ()>, ended: Completed) -> Action {
        self.ended.push(ended);
        Action::None
    }
    fn postwrite(&mut self, _: &mut Conn<'_, ()>, amount: usize, _: usize) -> Action {
        self.sent += amount;
        Action::None
    }
    fn closed(&mut self, _: &mut Context<'_, ()>, closed: Closed<()>) -> Action {
        self.closed.push((closed.cause, closed.unsent));
        Action::None
    }
}

/// A server, and a file that it has open.
struct Stage<D: Driver> {
    bench: Bench<D, Heard>,
    bytes: Vec<u8>,
    file: Arc<SourceGuard>,
    /// How many sources there are without the file and the connections.
    sources: u64,
    path: PathBuf,
    is_virtual: bool,
}

fn stage<T: Harness>(len: usize, limits: Limits) -> Stage<T::Driver> {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("windlass-send-attached-{}-{count}", std::process::id());
    let directory = if T::VIRTUAL { PathBuf::from("/") } else { std::env::temp_dir() };
    let path = directory.join(name);
    let server = Server::new(|_| Heard::default()).limits(limits);
    let mut bench = bench::<T, _, _>(server.listen("tcp://127.0.0.1:0").unwrap());
    let sources = bench.watcher.counters().sources;
    let bytes: Vec<u8> = (0..len).map(|at| (at * 7 + at / 251) as u8).collect();
    let options = OpenOptions::new().read(true).write(true).create_new(true);
    let made = run(&mut bench, Op::open(path.clone(), options));
    let file = Arc::new(made.file.expect("there is room").expect("a file"));
    let write = Op::write_at(file.source(), bytes.clone(), 0);
    run(&mut bench, write).result.expect("it is taken").result.expect("it succeeds");
    Stage { bench, bytes, file, sources, path, is_virtual: T::VIRTUAL }
}

/// Submits an operation, and waits for its end.
fn run<D: Driver>(bench: &mut Bench<D, Heard>, op: Op) -> Completed {
    bench.running.engine().submit(op);
    bench.running.turn(&mut bench.watcher);
    bench.until("the operation has ended", |b| !b.running.handler().ended.is_empty());
    bench.running.handler().ended.pop().expect("right from above")
}

impl<D: Driver> Stage<D> {
    fn engine(&mut self) -> &mut Engine<()> {
        self.bench.running.engine()
    }

    /// A client, and its connection.
    fn pair(&mut self, is_deaf: bool) -> (Source, Id) {
        let before = self.bench.running.handler().opened.len();
        let client = if is_deaf { self.bench.connect_deaf() } else { self.bench.connect() };
        self.bench.until("it is open", |b| b.running.handler().opened.len() > before);
        (client, self.bench.running.handler().opened[before])
    }

    fn send(&mut self, id: Id, range: std::ops::Range<u64>) -> Result<(), Refusal> {
        let file = Arc::clone(&self.file);
        self.engine().send_attached(id, &file, range)
    }

    fn flush(&mut self) {
        self.bench.running.turn(&mut self.bench.watcher);
    }

    fn heard(&self, client: Source) -> usize {
        self.bench.client(client).heard.len()
    }

    #[track_caller]
    fn end_of_connection(&mut self) -> (Cause, usize) {
        self.bench.until("it has ended", |b| !b.running.handler().closed.is_empty());
        self.bench.running.handler().closed.remove(0)
    }

    /// No other guard holds the file, and it is closed with the last one.
    #[track_caller]
    fn check_end(mut self) {
        assert_eq!(Arc::strong_count(&self.file), 1);
        let clients: Vec<Source> = self.bench.clients.all.keys().copied().collect();
        for client in clients {
            self.bench.watcher.abort(client);
        }
        self.bench.until("all have ended", |b| b.running.engine().is_empty());
        assert_eq!(self.bench.watcher.counters().sources, self.sources + 1);
        drop(self.file);
        self.bench.turn(Duration::ZERO);
        assert_eq!(self.bench.watcher.counters().sources, self.sources);
        if !self.is_virtual {
            std::fs::remove_file(&self.path).unwrap();
        }
    }
}

fn many_connections_send_one_file<T: Harness>() {
    let mut s = stage::<T>(300_000, Limits::new());
    let pairs: Vec<_> = (0..5).map(|_| s.pair(false)).collect();
    let mut expected = b"head".to_vec();
    expected.extend_from_slice(&s.bytes);
    expected.extend_from_slice(b"between");
    expected.extend_from_slice(&s.bytes[1000..5000]);
    expected.extend_from_slice(b"behind");
    for &(_, id) in &pairs {
        s.engine().write(id, "head").unwrap();
        s.send(id, 0..300_000).unwrap();
        s.engine().write(id, "between").unwrap();
        s.send(id, 1000..5000).unwrap();
        s.send(id, 7..7).unwrap();
        s.engine().write(id, "behind").unwrap();
    }
    assert_eq!(Arc::strong_count(&s.file), 1 + 5 * 3);
    s.flush();
    for (client, id) in pairs {
        s.bench.until("all has come", |b| b.client(client).heard.len() >= expected.len());
        assert!(s.bench.client(client).heard == expected, "other bytes");
        assert_eq!(s.engine().waiting_files(id), 0);
    }
    s.bench.until("all is told", |b| b.running.handler().sent == 5 * expected.len());
    s.check_end();
}

fn a_slow_reader_holds_up_no_other_one<T: Harness>() {
    let mut s = stage::<T>(4 << 20, Limits::new());
    let ((slow, of_slow), (quick, of_quick)) = (s.pair(true), s.pair(false));
    for id in [of_slow, of_quick] {
        s.send(id, 0..4 << 20).unwrap();
        s.engine().write(id, "after").unwrap();
    }
    s.flush();
    s.bench.until("the quick one has all", |b| b.client(quick).heard.len() == (4 << 20) + 5);
    assert_eq!((s.engine().waiting_files(of_slow), s.heard(slow)), (1, 0));
    assert_eq!(Arc::strong_count(&s.file), 2);
    s.bench.hear(slow);
    s.bench.until("the slow one has all", |b| b.client(slow).heard.len() == (4 << 20) + 5);
    assert!(s.bench.client(slow).heard[..4 << 20] == s.bytes);
    s.bench.until("all is told", |b| b.running.handler().sent == 2 * ((4 << 20) + 5));
    s.check_end();
}

/// Too much waited behind a part without bytes, and nothing before it was left to wait for. So the
/// engine looked for the end of the output again and again, until its stack was used up.
fn output_behind_parts_without_bytes_goes_on<T: Harness>() {
    let limits = Limits::new().marks(100, 1000).files(4).write_stall(None);
    let mut s = stage::<T>(1000, limits);
    for before in [2000, 4 << 20] {
        for parts in 1..=4 {
            let (client, id) = s.pair(true);
            s.engine().write(id, vec![b'a'; before]).unwrap();
            for _ in 0..parts {
                s.send(id, 7..7).unwrap();
            }
            s.engine().write(id, vec![b'b'; 5000]).unwrap();
            s.flush();
            s.bench.run_for(T::span(0.5));
            s.bench.hear(client);
            let all = before + 5000;
            s.bench.until("all has come", |b| b.client(client).heard.len() == all);
            assert_eq!((s.engine().waiting_files(id), s.engine().waiting(id)), (0, 0));
        }
    }
    s.check_end();
}

fn a_close_waits_for_the_file<T: Harness>() {
    let mut s = stage::<T>(2 << 20, Limits::new());
    let (client, id) = s.pair(false);
    s.send(id, 0..2 << 20).unwrap();
    s.engine().close(id);
    assert_eq!(s.send(id, 0..1), Err(Refusal::Stale));
    s.flush();
    assert_eq!(s.end_of_connection(), (Cause::Closed, 0));
    s.bench.until("the end has come", |b| b.client(client).is_over());
    assert!(s.bench.client(client).heard == s.bytes && s.bench.client(client).eof);
    s.check_end();
}

fn an_abort_lets_go_of_the_file<T: Harness>() {
    let mut s = stage::<T>(4 << 20, Limits::new());
    let (_client, id) = s.pair(true);
    for _ in 0..3 {
        s.send(id, 0..4 << 20).unwrap();
    }
    s.flush();
    s.bench.run_for(T::span(1.0));
    s.engine().abort(id);
    s.flush();
    let (cause, unsent) = s.end_of_connection();
    assert_eq!(cause, Cause::Aborted);
    assert!(unsent > 8 << 20 && unsent <= 12 << 20, "{unsent}");
    s.check_end();
}

fn a_file_that_shrinks_ends_the_connection<T: Harness>() {
    let mut s = stage::<T>(4 << 20, Limits::new());
    let (client, id) = s.pair(true);
    s.send(id, 0..4 << 20).unwrap();
    s.engine().write(id, "after").unwrap();
    s.engine().close(id);
    s.flush();
    let shorter = Op::set_len(s.file.source(), 3 << 20);
    run(&mut s.bench, shorter).result.unwrap().result.unwrap();
    s.bench.hear(client);
    let (cause, unsent) = s.end_of_connection();
    assert_eq!((cause, unsent), (Cause::FileEnded, (1 << 20) + 5));
    s.bench.until("the end has come", |b| b.client(client).is_over());
    let client = s.bench.client(client);
    let (eof, len, error) = (client.eof, client.heard.len(), client.error);
    let is_start = s.bytes[..3 << 20].starts_with(&client.heard);
    assert!(!eof && is_start, "{error:?}, {len} bytes, an end: {eof}");
    s.check_end();
}

fn a_range_beyond_the_end_ends_the_connection<T: Harness>() {
    let mut s = stage::<T>(1000, Limits::new());
    let (_client, id) = s.pair(false);
    s.send(id, 900..1001).unwrap();
    s.flush();
    assert_eq!(s.end_of_connection(), (Cause::FileEnded, 1));
    let (_client, id) = s.pair(false);
    s.send(id, 5000..5001).unwrap();
    s.flush();
    assert_eq!(s.end_of_connection(), (Cause::FileEnded, 1));
    s.check_end();
}

fn what_is_refused_changes_nothing<T: Harness>() {
    let mut s = stage::<T>(1000, Limits::new().files(2));
    let (client, id) = s.pair(false);
    #[allow(clippy::reversed_empty_ranges)] // what a bug of a program makes
    let reversed = s.send(id, 5..4);
    assert_eq!(reversed, Err(Refusal::File));
    assert_eq!(s.send(id, 0..u64::MAX), Err(Refusal::File));
    assert_eq!(s.send(id, 0..(1 << 61) - 1), Err(Refusal::File));
    s.send(id, 0..10).unwrap();
    s.send(id, 10..20).unwrap();
    assert_eq!(s.send(id, 0..1), Err(Refusal::Files));
    assert_eq!(Arc::strong_count(&s.file), 3);
    s.flush();
    s.bench.until("all has come", |b| b.client(client).heard.len() == 20);
    assert!(s.bench.client(client).heard == s.bytes[..20]);
    s.engine().abort(id);
    s.flush();
    s.end_of_connection();
    assert_eq!(s.send(id, 0..1), Err(Refusal::Stale));
    s.check_end();
}

fn a_file_of_another_watcher_is_not_sent<T: Harness>() {
    let mut s = stage::<T>(1000, Limits::new());
    // It has a source with the same number, but no file.
    let mut other = T::watcher(Watcher::builder());
    let guard = Arc::new(other.guard(s.file.source()));
    let (client, id) = s.pair(false);
    assert_eq!(s.engine().send_attached(id, &guard, 0..1), Err(Refusal::Elsewhere));
    s.engine().write(id, "goes on").unwrap();
    s.flush();
    s.bench.until("it goes on", |b| b.client(client).heard == b"goes on");
    s.check_end();
    // An engine that has not opened a file does not know its watcher before the flush.
    let server = Server::new(|_| Heard::default()).listen("tcp://127.0.0.1:0").unwrap();
    let mut bench = bench::<T, _, _>(server);
    bench.connect();
    bench.until("it is open", |b| !b.running.handler().opened.is_empty());
    let id = bench.running.handler().opened[0];
    bench.running.engine().send_attached(id, &guard, 0..5).unwrap();
    bench.running.turn(&mut bench.watcher);
    bench.until("it has ended", |b| !b.running.handler().closed.is_empty());
    assert_eq!(bench.running.handler().closed, [(Cause::Rejected, 5)]);
}

fn a_source_that_is_no_open_file_ends_the_connection<T: Harness>() {
    let mut s = stage::<T>(1000, Limits::new());
    let (client, id) = s.pair(false);
    // It is only lent: the test has to release it.
    let guard = Arc::new(s.bench.watcher.guard(client));
    s.engine().send_attached(id, &guard, 0..5).unwrap();
    s.flush();
    assert_eq!(s.end_of_connection(), (Cause::Rejected, 5));
    Arc::try_unwrap(guard).expect("the engine has dropped its guard").release();
    let (_client, id) = s.pair(false);
    let open = Op::open(s.path.clone(), OpenOptions::new().read(true));
    let gone = Arc::new(run(&mut s.bench, open).file.unwrap().unwrap());
    s.bench.watcher.abort(gone.source());
    s.engine().send_attached(id, &gone, 0..5).unwrap();
    s.flush();
    assert_eq!(s.end_of_connection(), (Cause::Rejected, 5));
    drop(gone);
    s.check_end();
}

fn a_shutdown_sends_the_file<T: Harness>() {
    let mut s = stage::<T>(2 << 20, Limits::new());
    let (client, id) = s.pair(true);
    s.send(id, 0..2 << 20).unwrap();
    s.engine().write(id, "after").unwrap();
    s.flush();
    s.bench.running.stop(&mut s.bench.watcher);
    s.flush();
    s.bench.hear(client);
    s.bench.until("it is over", |b| b.running.is_over());
    assert_eq!(s.end_of_connection(), (Cause::Shutdown, 0));
    s.bench.until("the end has come", |b| b.client(client).is_over());
    let heard = &s.bench.client(client).heard;
    assert!(heard[..2 << 20] == s.bytes && heard[2 << 20..] == *b"after");
    if !T::VIRTUAL {
        std::fs::remove_file(&s.path).unwrap();
    }
}
