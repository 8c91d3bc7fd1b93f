//! The example `restart`, under load: clients connect all the time while the server restarts.
#![cfg(unix)]
#![allow(missing_docs)] // a test binary has no users

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use children::{Lines, PATIENCE};

#[allow(dead_code, unreachable_pub)]
#[path = "common/children.rs"]
mod children;
#[allow(dead_code)]
#[path = "../examples/restart.rs"]
mod restart;

/// How many answers each process gives before it is told to restart.
const ANSWERS: usize = 1000;

/// The server of the example, in this process, which then ends.
fn serve(test: &'static str, role: &str) -> ! {
    let plain = role.trim_end_matches('+').to_owned();
    let (loops, mode) = plain.split_once(' ').expect("loops and a mode");
    let loops = (loops.parse().expect("a number"), mode.parse().expect("a mode"));
    let listener = match role.ends_with('+') {
        true => restart::input::take().expect("a listener"),
        false => TcpListener::bind("127.0.0.1:0").expect("a port"),
    };
    let next = move || -> std::io::Result<Command> {
        let role = format!("{plain}+");
        Ok(children::command(test, &role))
    };
    println!(); // ends the line that the harness has begun
    let report = restart::serve(listener, loops, PATIENCE, next).expect("it serves");
    let unfinished = report.unfinished.len();
    let (accepted, refused) = (report.counters.accepted, report.counters.refused);
    eprintln!("process {} has ended: {accepted} {refused} {unfinished}", std::process::id());
    // The next process has no reader for what the harness prints.
    std::process::exit(0);
}

/// Connects, asks and hears the answer, again and again.
fn ask(address: SocketAddr, stops: &AtomicBool, answers: &Sender<Result<u32, String>>) {
    let once = || -> std::io::Result<String> {
        let mut client = TcpStream::connect(address)?;
        client.set_read_timeout(Some(PATIENCE))?;
        client.write_all(b"who?\n")?;
        let mut answer = String::new();
        client.read_to_string(&mut answer)?;
        Ok(answer)
    };
    while !stops.load(Ordering::Relaxed) {
        let answer = match once() {
            Ok(answer) => {
                let pid = answer.strip_prefix("process ").and_then(|pid| pid.trim().parse().ok());
                pid.ok_or(format!("the answer is {answer:?}"))
            }
            Err(error) => Err(error.to_string()),
        };
        let is_failed = answer.is_err();
        if answers.send(answer).is_err() || is_failed {
            return;
        }
    }
}

/// The processes that the test knows: they end with it.
#[derive(Default)]
struct Known(Vec<u32>);

impl Drop for Known {
    fn drop(&mut self) {
        for pid in &self.0 {
            let line = format!("kill -KILL {pid}");
            // Those that have ended are not found.
            let quiet = Command::new("sh").args(["-c", &line]).stderr(Stdio::null()).status();
            quiet.expect("a shell");
        }
    }
}

fn restarts(test: &'static str, role: &str) {
    if let Some(own) = children::role() {
        serve(test, &own);
    }
    let mut known = Known::default();
    let mut first = children::command(test, role);
    let mut first = first.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a process");
    let mut pid = first.id();
    known.0.push(pid);
    let mut out = Lines::of(first.stdout.take().expect("it is piped"));
    let mut err = Lines::of(first.stderr.take().expect("it is piped"));
    let address = out.find(&format!("process {pid} listens on "));
    let address: SocketAddr = address.parse().expect("an address");
    let stops = AtomicBool::new(false);
    let (tell, answers) = channel::<Result<u32, String>>();
    let mut of: BTreeMap<u32, usize> = BTreeMap::new();
    let mut until_answered = |pid: u32| {
        let end = Instant::now() + PATIENCE;
        let more = of.get(&pid).copied().unwrap_or(0) + ANSWERS;
        while of.get(&pid).is_none_or(|count| *count < more) {
            let answer = answers.recv_timeout(end - Instant::now()).expect("answers");
            *of.entry(answer.expect("every client is answered")).or_default() += 1;
        }
    };
    thread::scope(|scope| {
        // A failed assertion stops the clients, too, so that the scope ends.
        let stopper = Stopper(&stops);
        for _ in 0..4 {
            let (stops, tell) = (&stops, tell.clone());
            scope.spawn(move || ask(address, stops, &tell));
        }
        for _ in 0..2 {
            until_answered(pid);
            children::signal(pid, "USR2");
            let next: u32 = err
                .find("process ")
                .strip_suffix(&format!(" listens on {address}"))
                .expect("the next process serves at the same address")
                .parse()
                .expect("a number");
            assert_ne!(next, pid);
            known.0.push(next);
            let end = err.find(&format!("process {pid} has ended: "));
            known.0.retain(|known| *known != pid);
            assert!(end.ends_with(" 0 0"), "connections, refused, unfinished: {end}");
            pid = next;
        }
        until_answered(pid);
        drop(stopper);
    });
    drop(tell);
    for answer in answers {
        *of.entry(answer.expect("every client is answered")).or_default() += 1;
    }
    assert_eq!(of.len(), 3, "answers by process: {of:?}");
    children::signal(pid, "TERM");
    err.find(&format!("process {pid} has ended: "));
    known.0.clear();
    assert!(first.wait().expect("a child of this test").success());
    assert!(TcpStream::connect_timeout(&address, Duration::from_secs(10)).is_err());
}

struct Stopper<'a>(&'a AtomicBool);

impl Drop for Stopper<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn restarts_under_load_refuse_no_connection() {
    restarts("restarts_under_load_refuse_no_connection", "1 nonblocking");
}

#[test]
fn restarts_of_several_loops_refuse_no_connection() {
    restarts("restarts_of_several_loops_refuse_no_connection", "3 nonblocking");
}

#[test]
fn restarts_with_threads_refuse_no_connection() {
    restarts("restarts_with_threads_refuse_no_connection", "2 blocking");
}
