//! Operations of the program on the watcher of its engine or its server.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::engine::{Loop, until};
use crate::common::refusing::{Orders, Refusing};
use crate::common::scene::{News, Scene, Setting};
use crate::common::turns::Turns;
use crate::common::{Client, Harness, bench, bound_buffers};
use windlass::driver::{Driver, OpCode};
use windlass::fs::OpenOptions;
use windlass::net::ConnectOptions;
use windlass::{
    Address, Buf, Completions, Done, ErrorKind, Limit, Op, Refusal, Source, SourceGuard, Watcher,
};
use windlass_serve::ops::Completed;
use windlass_serve::{Action, Closed, Config, Conn, Context, Handler, Id, Limits, Server};

crate::every_kernel! {
    an_engine_works_on_a_file
    a_host_is_looked_up
    each_completion_of_a_multishot_is_told
    a_quiet_operation_comes_back
    what_finds_no_room_waits_in_order
    a_file_for_which_there_is_no_source_comes_back
    an_operation_keeps_its_deadline
    the_end_of_an_engine_leaves_nothing_behind
    a_panic_in_the_callback_ends_nothing
    a_shutdown_waits_for_the_operations_of_an_upload
    a_shutdown_waits_for_no_timer
    a_shutdown_gives_up_what_takes_too_long
}

/// A simulation makes no temporary names.
mod names {
    use super::a_temporary_file_has_its_path;

    crate::systems_drivers! { a_temporary_file_has_its_path }
}

mod modes {
    use super::a_connection_in_each_mode_asks_for_operations;

    crate::systems_modes! { a_connection_in_each_mode_asks_for_operations }
    crate::stamp! { #[cfg(all())] sim Simulated: a_connection_in_each_mode_asks_for_operations }
}

/// A path that no other test has, in the directory for temporary files, or on a simulated disk.
fn path<T: Harness>(name: &str) -> PathBuf {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("windlass-operations-{}-{count}-{name}", std::process::id());
    if T::VIRTUAL { PathBuf::from("/").join(name) } else { std::env::temp_dir().join(name) }
}

/// Submits an operation, and waits for its completion.
fn run<D: Driver>(l: &mut Loop<D>, op: Op) -> Completed {
    const TOKEN: u64 = u64::MAX - 3; // which the engine's tokens are near
    l.engine.submit(op.token(TOKEN));
    assert_eq!((l.engine.operations(), l.completed.len()), (1, 0));
    until(l, "it has ended", |l| !l.completed.is_empty());
    assert_eq!(l.engine.operations(), 0);
    let ended = l.completed.pop().expect("right from above");
    assert_eq!(ended.token, TOKEN);
    assert_eq!(ended.result.as_ref().map_or(TOKEN, |completion| completion.token), TOKEN);
    ended
}

fn done<D: Driver>(l: &mut Loop<D>, op: Op) -> Done {
    run(l, op).result.expect("it is taken").result.expect("it succeeds")
}

fn opened<D: Driver>(l: &mut Loop<D>, op: Op) -> SourceGuard {
    run(l, op).file.expect("the watcher has room").expect("it is open")
}

fn an_engine_works_on_a_file<T: Harness>() {
    let l = &mut Loop::<T::Driver>::new::<T>(Config::new());
    let (path, other) = (path::<T>("a"), path::<T>("b"));
    let options = OpenOptions::new().read(true).write(true).create_new(true);
    let sources = l.watcher.counters().sources;
    let file = opened(l, Op::open(path.clone(), options));
    assert_eq!(l.watcher.counters().sources, sources + 1);
    assert!(matches!(done(l, Op::write_at(file.source(), "hello", 0)), Done::Written { .. }));
    assert!(matches!(done(l, Op::sync_all(file.source())), Done::Finished));
    assert!(matches!(done(l, Op::rename(path.clone(), other.clone())), Done::Finished));
    let Done::Metadata(found) = done(l, Op::metadata(other.clone())) else { panic!() };
    assert_eq!(found.size, 5);
    let Done::Read(text) = done(l, Op::read_at(file.source(), vec![0; 9], 1)) else { panic!() };
    assert_eq!(&*text, b"ello");
    let source = file.source();
    drop(file);
    l.turn(Duration::ZERO);
    assert_eq!(l.watcher.counters().sources, sources, "it is closed");
    assert!(matches!(done(l, Op::remove_file(other)), Done::Finished));
    // What fails, and what is refused, has its token and its reason, too.
    let failed = run(l, Op::metadata(path)).result.expect("it is taken");
    assert!(failed.result.is_err());
    let stale = run(l, Op::sync_all(source)).result.expect_err("it is closed");
    assert_eq!(stale.reason, Refusal::Stale);
    assert_eq!(stale.value.source(), source);
    let counters = &l.engine.counters().operations;
    assert_eq!((counters.done, counters.refused, counters.dropped), (8, 1, 0));
}

fn a_temporary_file_has_its_path<T: Harness>() {
    let l = &mut Loop::<T::Driver>::new::<T>(Config::new());
    let ended = run(l, Op::create_temp_file(path::<T>("XXXXXX")));
    let file = ended.file.expect("there is room").expect("it is open");
    let Ok(Done::Path(path)) = ended.result.unwrap().result else { panic!() };
    done(l, Op::write_at(file.source(), "text", 0));
    let Done::Metadata(found) = done(l, Op::metadata(path.clone())) else { panic!() };
    assert_eq!(found.size, 4);
    done(l, Op::remove_file(path));
}

fn a_host_is_looked_up<T: Harness>() {
    let l = &mut Loop::<T::Driver>::new::<T>(Config::new());
    let Done::Addresses(found) = done(l, Op::lookup_host("127.0.0.1", 80)) else { panic!() };
    assert_eq!(found, [([127, 0, 0, 1], 80).into()]);
}

/// A connection of which the program has both ends.
fn own_pair<D: Driver>(l: &mut Loop<D>) -> (Source, Source) {
    let listener = l.watcher.listen(([127, 0, 0, 1], 0)).expect("a listener");
    let address = l.watcher.local_address(listener).expect("its address");
    l.engine.submit(Op::accept(listener).token(1));
    let options = ConnectOptions::default().token(2);
    let (client, _) = l.watcher.connect([address], options).expect("a source");
    until(l, "both ends are there", |l| !l.completed.is_empty() && !l.foreign.is_empty());
    let Ok(mut accepted) = l.completed.pop().expect("right from above").result else { panic!() };
    let handle = accepted.take_handle().expect("a socket");
    l.foreign.clear();
    l.watcher.abort(listener);
    (client, l.watcher.attach(handle).expect("there is room"))
}

fn each_completion_of_a_multishot_is_told<T: Harness>() {
    let l = &mut Loop::<T::Driver>::new::<T>(Config::new());
    let (client, ours) = own_pair(l);
    l.engine.submit(Op::read(ours).multishot().token(7));
    // One letter at a time, which no fault cuts.
    for letter in ["a", "b", "c"] {
        l.engine.submit(Op::write(client, letter).token(8));
        until(l, "it has come, and is written", |l| l.completed.len() == 2);
        let ended = l.completed.drain(..).map(|ended| ended.result.unwrap());
        let (reads, writes): (Vec<_>, Vec<_>) = ended.partition(|ended| ended.token == 7);
        assert!(writes[0].result.is_ok() && reads[0].has_more());
        let Ok(Done::Read(data)) = &reads[0].result else { panic!() };
        assert_eq!(&**data, letter.as_bytes());
        assert_eq!(l.engine.operations(), 1);
    }
    l.watcher.abort(ours);
    until(l, "its end is told", |l| !l.completed.is_empty());
    let last = l.completed.pop().unwrap().result.unwrap();
    assert_eq!((last.token, last.error_kind()), (7, Some(ErrorKind::Aborted)));
    assert_eq!((last.has_more(), l.engine.operations()), (false, 0));
}

fn a_quiet_operation_comes_back<T: Harness>() {
    let l = &mut Loop::<T::Driver>::new::<T>(Config::new());
    let (client, _ours) = own_pair(l);
    let refused = run(l, Op::write(client, "text").quiet()).result.unwrap_err();
    assert_eq!(refused.reason, Refusal::Unsupported);
    assert_eq!(&*refused.value.into_buf(), b"text");
}

fn what_finds_no_room_waits_in_order<T: Harness>() {
    let orders = Orders::default();
    let driver = Refusing::new(T::watcher(Watcher::builder()).into_driver(), orders.clone());
    let l = &mut Loop::on(Watcher::with_driver(driver), Config::new());
    orders.refuse(OpCode::Nop, 3);
    for token in 0..5 {
        l.engine.submit(Op::nop().token(token));
    }
    l.engine.flush(&mut l.watcher);
    assert_eq!((orders.refused(), l.engine.operations(), l.completed.len()), (1, 5, 0));
    // Each flush tries again, in the loop of `until`, too.
    for _ in 0..2 {
        l.engine.flush(&mut l.watcher);
    }
    assert_eq!((orders.refused(), l.engine.operations()), (3, 5));
    until(l, "all have ended", |l| l.completed.len() == 5);
    let tokens: Vec<u64> = l.completed.iter().map(|ended| ended.token).collect();
    assert_eq!(tokens, [0, 1, 2, 3, 4]);
    assert_eq!(l.engine.counters().operations.refused, 0);
}

fn a_file_for_which_there_is_no_source_comes_back<T: Harness>() {
    // The listener has one.
    let watcher = T::watcher(Watcher::builder().max_sources(2));
    let l = &mut Loop::on(watcher, Config::new());
    let path = path::<T>("many");
    let create = OpenOptions::new().write(true).create_new(true);
    let first = opened(l, Op::open(path.clone(), create));
    let second = run(l, Op::open(path.clone(), OpenOptions::new().read(true)));
    let refused = second.file.expect_err("there is no room");
    assert!(matches!(refused.reason, Refusal::Full { limit: Limit::Sources, .. }), "{refused}");
    drop((first, refused));
    done(l, Op::remove_file(path));
}

fn an_operation_keeps_its_deadline<T: Harness>() {
    let l = &mut Loop::<T::Driver>::new::<T>(Config::new());
    let (_client, ours) = own_pair(l);
    let read = Op::read(ours).timeout(Duration::from_millis(20));
    let ended = run(l, read).result.unwrap();
    assert_eq!(ended.error_kind(), Some(ErrorKind::Deadline));
}

fn the_end_of_an_engine_leaves_nothing_behind<T: Harness>() {
    let l = &mut Loop::<T::Driver>::new::<T>(Config::new());
    let path = path::<T>("end");
    let options = OpenOptions::new().write(true).create_new(true);
    l.engine.submit(Op::open(path.clone(), options).token(1));
    l.engine.submit(Op::timer(Duration::from_secs(3600)).token(2));
    l.engine.flush(&mut l.watcher);
    l.engine.submit(Op::nop().token(3)); // it is not at the watcher
    assert_eq!(l.engine.operations(), 3);
    l.engine.end(&mut l.watcher);
    assert_eq!(l.engine.operations(), 0);
    l.until("nothing is in flight", |l| l.watcher.counters().in_flight == 0);
    l.run_for(Duration::from_millis(10));
    assert!(l.completed.is_empty() && l.foreign.is_empty());
    assert_eq!(l.watcher.counters().sources, 0);
    assert_eq!(l.engine.counters().operations.dropped, 3);
    let mut done = Completions::new();
    l.watcher.submit(Op::remove_file(path)).unwrap();
    l.watcher.wait(&mut done).unwrap(); // it may be there or not
}

/// Panics when an operation has ended, if the operation says so, and counts them.
#[derive(Default)]
struct Panics(usize);

impl Handler for Panics {
    type State = ();
    fn data(&mut self, c: &mut Conn<'_, ()>, data: Buf) -> Action {
        for &byte in &*data {
            c.engine().submit(Op::nop().token(u64::from(byte)));
        }
        Action::None
    }
    fn completed(&mut self, _: &mut Context<'_, ()>, ended: Completed) -> Action {
        self.0 += 1;
        assert_ne!(ended.token, u64::from(b'p'), "as it is to");
        Action::None
    }
}

fn a_panic_in_the_callback_ends_nothing<T: Harness>() {
    let server = Server::new(|_| Panics::default()).listen("tcp://127.0.0.1:0").unwrap();
    let mut bench = bench::<T, _, _>(server);
    let client = bench.connect();
    bench.say(client, "xpxpx");
    bench.until("all were told", |bench| bench.running.handler().0 == 5);
    assert_eq!((bench.running.report().panics, bench.running.engine().len()), (2, 1));
    assert!(!bench.client(client).is_over());
}

fn a_shutdown_waits_for_no_timer<T: Harness>() {
    let server = Server::new(|_| Panics::default()).listen("tcp://127.0.0.1:0").unwrap();
    let mut bench = bench::<T, _, _>(server);
    bench.running.engine().submit(Op::timer(Duration::from_secs(3600)));
    bench.running.turn(&mut bench.watcher);
    bench.running.stop(&mut bench.watcher);
    bench.until("it is over", |bench| {
        bench.running.turn(&mut bench.watcher);
        bench.running.is_over()
    });
    let report = bench.running.report();
    assert_eq!((report.unfinished_operations, report.counters.operations.dropped), (0, 1));
    bench.run_for(Duration::from_millis(10));
    assert_eq!(bench.watcher.counters().in_flight, 0, "it was cancelled");
}

fn a_shutdown_gives_up_what_takes_too_long<T: Harness>() {
    let close = T::span(20.0);
    let limits = Limits::new().close(close);
    let server = Server::new(|_| Panics::default()).limits(limits);
    let mut bench = bench::<T, _, _>(server.listen("tcp://127.0.0.1:0").unwrap());
    // A write to a peer that is never accepted, and so does not read.
    let listener = bench.watcher.listen(([127, 0, 0, 1], 0)).unwrap();
    bound_buffers(&mut bench.watcher, listener);
    let address = bench.watcher.local_address(listener).unwrap();
    let (socket, _) = bench.watcher.connect([address], ConnectOptions::default().token(1)).unwrap();
    bench.clients.all.insert(socket, Client::default());
    bench.running.engine().submit(Op::write(socket, vec![0; 32 << 20]));
    let start = bench.watcher.update_now();
    bench.running.stop(&mut bench.watcher);
    bench.running.turn(&mut bench.watcher);
    bench.until("it is over", |bench| bench.running.is_over());
    assert!(bench.watcher.now() - start >= close);
    let report = bench.running.report();
    assert_eq!((report.unfinished_operations, report.counters.operations.dropped), (1, 1));
    assert_eq!(bench.running.handler().0, 0);
}

/// Answers with the length of the file at its path.
struct Lengths(PathBuf, HashMap<u64, Id>);

impl Handler for Lengths {
    type State = ();
    fn serving(&mut self, server: &mut Context<'_, ()>, _: &[Address]) -> Action {
        // A thread has a loop of its own, with a watcher of its own.
        server.engine().submit(Op::nop().token(u64::MAX));
        Action::None
    }
    fn data(&mut self, c: &mut Conn<'_, ()>, _: Buf) -> Action {
        let token = c.id().number();
        self.1.insert(token, c.id());
        c.engine().submit(Op::metadata(self.0.clone()).token(token));
        Action::None
    }
    fn completed(&mut self, server: &mut Context<'_, ()>, ended: Completed) -> Action {
        let Some(id) = self.1.remove(&ended.token) else {
            assert_eq!(ended.token, u64::MAX);
            return Action::None;
        };
        let answer = match ended.result.expect("it is taken").result {
            Ok(Done::Metadata(found)) => format!("{} ", found.size),
            other => format!("{} ", other.is_ok()),
        };
        server.conn(id).expect("it is open").write(answer);
        Action::None
    }
}

/// Notes the addresses for the scene.
struct Noting(News<()>, Lengths);

impl Handler for Noting {
    type State = ();
    fn serving(&mut self, server: &mut Context<'_, ()>, addresses: &[Address]) -> Action {
        self.1.serving(server, addresses);
        self.0.serving(server, addresses)
    }
    fn data(&mut self, c: &mut Conn<'_, ()>, data: Buf) -> Action {
        self.1.data(c, data)
    }
    fn completed(&mut self, server: &mut Context<'_, ()>, ended: Completed) -> Action {
        self.1.completed(server, ended)
    }
}

fn a_connection_in_each_mode_asks_for_operations<T: Setting>() {
    // A simulated disk has a root, whose size no test knows.
    let path = PathBuf::from("Cargo.toml");
    let expected = if T::MODE.is_none() {
        "false ".to_owned()
    } else {
        format!("{} ", std::fs::metadata(&path).unwrap().len())
    };
    let make = move |news| Noting(news, Lengths(path.clone(), HashMap::new()));
    let mut scene: Scene<T::Driver, Noting, ()> =
        Scene::start::<T>(make, |server| server.listen("tcp://127.0.0.1:0").unwrap());
    let clients: Vec<Source> = (0..4).map(|_| scene.connect()).collect();
    for _ in 0..2 {
        for &client in &clients {
            scene.say(client, "?");
        }
        for &client in &clients {
            scene.until("it is answered", |s| s.client(client).heard == expected.as_bytes());
            scene.clients.all.get_mut(&client).unwrap().heard.clear();
        }
    }
    let report = scene.end();
    assert!(report.counters.operations.done >= 8 && report.panics == 0, "{report:?}");
    assert_eq!(report.unfinished_operations, 0);
}

/// Writes what arrives to a file, and removes the file when the connection ends.
struct Upload {
    path: PathBuf,
    file: Option<SourceGuard>,
    seen: Vec<&'static str>,
}

impl Handler for Upload {
    type State = ();
    fn data(&mut self, c: &mut Conn<'_, ()>, _: Buf) -> Action {
        let options = OpenOptions::new().write(true).create_new(true);
        c.engine().submit(Op::open(self.path.clone(), options).token(1));
        Action::None
    }
    fn closed(&mut self, server: &mut Context<'_, ()>, _: Closed<()>) -> Action {
        let file = self.file.as_ref().expect("the test waits for it");
        server.engine().submit(Op::sync_all(file.source()).token(2));
        Action::None
    }
    fn completed(&mut self, server: &mut Context<'_, ()>, ended: Completed) -> Action {
        let done = ended.result.expect("it is taken").result.expect("it succeeds");
        assert!(matches!(done, Done::Finished));
        match ended.token {
            1 => self.file = ended.file.expect("the watcher has room"),
            2 => server.engine().submit(Op::remove_file(self.path.clone()).token(3)),
            _ => {}
        }
        self.seen.push(["", "opened", "synced", "removed"][ended.token as usize]);
        Action::None
    }
}

fn a_shutdown_waits_for_the_operations_of_an_upload<T: Harness>() {
    let path = path::<T>("upload");
    let make = |_| Upload { path: path.clone(), file: None, seen: Vec::new() };
    let server = Server::new(make).listen("tcp://127.0.0.1:0").expect("an address");
    let mut bench = bench::<T, _, _>(server);
    let client = bench.connect();
    bench.say(client, "u"); // one read, so one upload
    bench.until("the file is open", |bench| bench.running.handler().file.is_some());
    bench.running.stop(&mut bench.watcher);
    bench.running.turn(&mut bench.watcher);
    bench.until("the server is over", |bench| bench.running.is_over());
    assert_eq!(bench.running.handler().seen, ["opened", "synced", "removed"]);
    let report = bench.running.report();
    assert_eq!((report.unfinished_operations, report.counters.operations.done), (0, 3));
}
