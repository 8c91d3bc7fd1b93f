//! Signals of the process. Each server runs in a process of its own, or in a simulation.
#![cfg(unix)]
#![allow(missing_docs)] // a test binary has no users

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::process::ExitStatusExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use children::{PATIENCE, Process};
use windlass::process::signal::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use windlass::sim::Sim;
use windlass::{Address, Buf, Completions, Watcher};
use windlass_serve::{
    Action, Conn, Context, Handler, Limits, Remote, Server, ServerLoop, modes::IoMode,
};

#[allow(dead_code, unreachable_pub)]
#[path = "common/children.rs"]
mod children;

/// The length of the answer of [`Answers`]: more than the system takes from a peer that does not
/// read.
const ANSWER: usize = 32 << 20;

/// Answers each byte with many. `!` shuts the server down behind the answer.
struct Answers;

impl Handler for Answers {
    type State = ();

    fn serving(&mut self, server: &mut Context<'_, ()>, addresses: &[Address]) -> Action {
        if server.engine().listeners().iter().any(|listener| !listener.is_none()) {
            println!("serves at {}", addresses[0]);
        }
        Action::None
    }

    fn data(&mut self, c: &mut Conn<'_, ()>, data: Buf) -> Action {
        c.write(vec![data[0]; ANSWER]);
        println!("has answered");
        if data[0] == b'!' { Action::Shutdown } else { Action::None }
    }

    fn stopping(&mut self, _: &mut Context<'_, ()>) -> Action {
        println!("stops");
        Action::None
    }
}

/// Serves as the role says, in a process of its own.
fn serve(role: &str) {
    let mut server = Server::new(|_loop| Answers).limits(Limits::new().close(PATIENCE));
    let mut starts = false;
    for word in role.split(' ') {
        server = match word {
            "loops" => server.loops(3),
            "blocking" => server.io_mode(IoMode::Blocking { threads: 4 }),
            "mixed" => server.io_mode(IoMode::Mixed { threads: 1 }).loops(2),
            "off" => server.signals(false),
            "hup" => {
                let mut count = 0;
                server.on_signal(SIGHUP, move |_: &Remote| {
                    count += 1;
                    println!("hup {count}");
                })
            }
            "own" => server.on_signal(SIGTERM, |server: &Remote| {
                println!("its own");
                server.shutdown();
            }),
            "start" => {
                starts = true;
                server
            }
            "one" => server,
            other => panic!("an unknown word: {other}"),
        };
    }
    let server = server.listen("tcp://127.0.0.1:0").expect("an address");
    let report = match starts {
        true => server.start().expect("it starts").wait(),
        false => server.run(),
    };
    let report = report.expect("it serves");
    println!("report: {} {}", report.counters.accepted, report.unfinished.len());
}

/// Every mode.
const MODES: [&str; 6] = ["one", "loops", "blocking", "mixed", "start", "start mixed"];

/// A client that has asked, and reads nothing yet.
fn client(server: &mut Process, byte: u8) -> TcpStream {
    let address = server.lines.find("serves at ");
    let mut client = TcpStream::connect(&address).expect("it serves");
    client.set_read_timeout(Some(PATIENCE)).expect("a time");
    client.write_all(&[byte]).expect("it reads");
    server.lines.find("has answered");
    client
}

/// Reads until the end, which comes behind the whole answer.
#[track_caller]
fn hear_all(mut client: TcpStream, byte: u8) {
    let mut heard = Vec::new();
    client.read_to_end(&mut heard).expect("a clean end");
    assert_eq!(heard.len(), ANSWER);
    assert!(heard.iter().all(|one| *one == byte));
}

#[track_caller]
fn ends_well(server: Process) {
    let (status, lines) = server.end();
    assert!(status.success(), "{status}: {lines:#?}");
    assert!(lines.iter().any(|line| line.ends_with("report: 1 0")), "{lines:#?}");
}

#[test]
fn the_first_signal_is_a_shutdown_that_loses_nothing() {
    if let Some(role) = children::role() {
        return serve(&role);
    }
    for mode in MODES {
        for signal in ["TERM", "INT"] {
            let test = "the_first_signal_is_a_shutdown_that_loses_nothing";
            let mut server = Process::start(children::command(test, mode));
            let client = client(&mut server, b'a');
            server.signal(signal);
            server.lines.find("stops");
            hear_all(client, b'a');
            ends_well(server);
        }
    }
}

#[test]
fn the_second_signal_ends_the_process() {
    if let Some(role) = children::role() {
        return serve(&role);
    }
    for mode in MODES {
        for (first, second, number) in [("TERM", "TERM", SIGTERM), ("TERM", "INT", SIGINT)] {
            let test = "the_second_signal_ends_the_process";
            let mut server = Process::start(children::command(test, mode));
            // It does not read: the shutdown would take as long as `Limits::close`.
            let _client = client(&mut server, b'a');
            server.signal(first);
            server.lines.find("stops");
            server.signal(second);
            let (status, lines) = server.end();
            assert_eq!(status.signal(), Some(number), "{mode}: {status}, {lines:#?}");
        }
    }
}

/// The first loop takes the signals until the last connection has ended, wherever that is.
#[test]
fn a_signal_in_a_shutdown_of_the_program_cuts_nothing() {
    if let Some(role) = children::role() {
        return serve(&role);
    }
    for mode in MODES {
        let test = "a_signal_in_a_shutdown_of_the_program_cuts_nothing";
        let mut server = Process::start(children::command(test, mode));
        let client = client(&mut server, b'!');
        server.lines.find("stops");
        server.signal("TERM");
        hear_all(client, b'!');
        ends_well(server);
    }
}

#[test]
fn a_server_without_signals_leaves_them_alone() {
    if let Some(role) = children::role() {
        return serve(&role);
    }
    for mode in ["one off", "mixed off hup"] {
        let test = "a_server_without_signals_leaves_them_alone";
        let mut server = Process::start(children::command(test, mode));
        server.lines.find("serves at ");
        server.signal("TERM");
        let (status, lines) = server.end();
        assert_eq!(status.signal(), Some(SIGTERM), "{status}: {lines:#?}");
    }
}

#[test]
fn a_program_has_calls_of_its_own() {
    if let Some(role) = children::role() {
        return serve(&role);
    }
    for mode in ["one hup own", "loops own hup", "blocking hup own", "start mixed hup own"] {
        let test = "a_program_has_calls_of_its_own";
        let mut server = Process::start(children::command(test, mode));
        let client = client(&mut server, b'a');
        for count in 1..=3 {
            server.signal("HUP");
            server.lines.find(&format!("hup {count}"));
        }
        server.signal("TERM");
        server.lines.find("its own");
        server.lines.find("stops");
        // Also in the shutdown.
        server.signal("HUP");
        server.lines.find("hup 4");
        hear_all(client, b'a');
        ends_well(server);
    }
}

/// A simulated server.
fn simulated(
    sim: &Sim,
    set: impl FnOnce(Server<fn(usize) -> Quiet>) -> Server<fn(usize) -> Quiet>,
) -> (Watcher, ServerLoop<Quiet>) {
    let mut watcher = Watcher::simulated(sim);
    let make: fn(usize) -> Quiet = |_loop| Quiet;
    let server = set(Server::new(make)).listen("tcp://127.0.0.1:0").expect("an address");
    let running = server.start_on(&mut watcher).expect("it starts");
    (watcher, running)
}

struct Quiet;

impl Handler for Quiet {
    type State = ();
}

/// Runs turns until nothing happens for a millisecond.
fn settle(watcher: &mut Watcher, server: &mut ServerLoop<Quiet>) {
    let mut done = Completions::new();
    while watcher.wait_timeout(&mut done, Duration::from_millis(1)).expect("a wait") > 0 {
        for completion in done.drain(..) {
            let own = server.complete(watcher, completion);
            assert!(own.is_none(), "not the program's: {own:?}");
        }
        server.turn(watcher);
    }
}

#[test]
fn a_loop_of_the_program_takes_signals_only_if_it_is_told_to() {
    let sim = Sim::new(1);
    let (_watcher, _server) = simulated(&sim, |server| server);
    assert_eq!(sim.raise(SIGTERM) + sim.raise(SIGINT), 0);

    let (mut watcher, mut server) = simulated(&sim, |server| server.signals(true));
    assert_eq!(sim.raise(SIGTERM), 1);
    settle(&mut watcher, &mut server);
    assert!(server.is_over());
    assert_eq!(sim.raise(SIGTERM) + sim.raise(SIGINT), 0, "it has given them back");
}

#[test]
fn calls_of_signals_follow_each_other_and_may_panic() {
    let sim = Sim::new(1);
    let heard = Arc::new(AtomicU32::new(0));
    let (first, second) = (Arc::clone(&heard), Arc::clone(&heard));
    let (mut watcher, mut server) = simulated(&sim, |server| {
        server
            .on_signal(SIGHUP, move |_| _ = first.fetch_add(1, Ordering::Relaxed))
            .on_signal(SIGUSR1, |server| server.shutdown())
            .on_signal(SIGHUP, |_| panic!("on purpose"))
            .on_signal(SIGHUP, move |_| _ = second.fetch_add(10, Ordering::Relaxed))
    });
    for count in 1..=2 {
        assert_eq!(sim.raise(SIGHUP), 1);
        settle(&mut watcher, &mut server);
        assert_eq!(heard.load(Ordering::Relaxed), 11 * count);
        assert_eq!(server.report().panics, u64::from(count));
    }
    assert_eq!(sim.raise(SIGTERM), 0, "not asked for");
    assert_eq!(sim.raise(SIGUSR1), 1);
    settle(&mut watcher, &mut server);
    assert!(server.is_over());
    assert_eq!(sim.raise(SIGHUP), 0, "it has given them back");
}

#[test]
fn what_is_no_signal_is_an_error_and_leaves_nothing_behind() {
    let sim = Sim::new(1);
    let mut watcher = Watcher::simulated(&sim);
    let server = Server::new(|_loop| Quiet).signals(true).on_signal(9, |_| {});
    let server = server.listen("tcp://127.0.0.1:7007").expect("an address");
    let error = server.start_on(&mut watcher).expect_err("SIGKILL cannot be handled");
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "{error}");
    assert_eq!(sim.raise(SIGTERM), 0);

    // An address that is in use: the signals are given back.
    let other = Server::new(|_loop| Quiet).listen("tcp://127.0.0.1:7007").expect("an address");
    let mut others = Watcher::simulated(&sim);
    let _other = other.start_on(&mut others).expect("it is free");
    let server = Server::new(|_loop| Quiet).signals(true).on_signal(SIGHUP, |_| {});
    let server = server.listen("tcp://127.0.0.1:7007").expect("an address");
    server.start_on(&mut watcher).expect_err("the address is in use");
    assert_eq!(sim.raise(SIGTERM) + sim.raise(SIGHUP), 0);
}
