//! Operations of the program on the watcher of its engine or its server.
#![allow(missing_docs)] // a test binary has no users

mod common;

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use common::engine::{Loop, until};
use common::turns::Turns;
use common::{Harness, bench};
use windlass::driver::Driver;
use windlass::fs::OpenOptions;
use windlass::{Buf, Done, Op, Refusal, SourceGuard};
use windlass_serve::ops::Completed;
use windlass_serve::{Action, Closed, Config, Conn, Context, Handler, Server};

every_kernel! {
    an_engine_works_on_a_file
    a_shutdown_waits_for_the_operations_of_an_upload
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
    bench.say(client, "upload");
    bench.until("the file is open", |bench| bench.running.handler().file.is_some());
    bench.running.stop(&mut bench.watcher);
    bench.running.turn(&mut bench.watcher);
    bench.until("the server is over", |bench| bench.running.is_over());
    assert_eq!(bench.running.handler().seen, ["opened", "synced", "removed"]);
    let report = bench.running.report();
    assert_eq!((report.unfinished_operations, report.counters.operations.done), (0, 3));
}
