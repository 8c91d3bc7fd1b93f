//! Bad input: addresses that cannot be bound, peers that misbehave, more peers than descriptors,
//! and stale ids. Each case is an error, or a count of the report, and the server goes on.

#[cfg(target_os = "linux")]
#[allow(unreachable_pub)]
use std::time::Duration;

use crate::child;
use crate::common;
use crate::common::{Bench, Clients, Harness, bench};
use windlass::net::ConnectOptions;
use windlass::sim::{Faults, Sim};
use windlass::{Buf, Watcher};
use windlass_serve::{
    Action, Cause, Closed, Conn, Context, Handler, Id, Limits, Origin, Refusal, Server,
};

crate::every_driver! {
    bad_peers_end_within_their_limits_and_are_counted
    a_write_to_a_connection_that_is_gone_comes_back
}

/// Echoes, and keeps how its connections end.
#[derive(Default)]
struct Echo {
    opened: Vec<Id>,
    closed: Vec<Cause>,
}

impl Handler for Echo {
    type State = ();
    fn opened(&mut self, c: &mut Conn<'_, ()>, _: Origin) -> Action {
        self.opened.push(c.id());
        Action::None
    }
    fn data(&mut self, c: &mut Conn<'_, ()>, data: Buf) -> Action {
        c.write(data);
        Action::None
    }
    fn wake(&mut self, _: &mut Conn<'_, ()>) -> Action {
        Action::None
    }
    fn closed(&mut self, _: &mut Context<'_, ()>, closed: Closed<()>) -> Action {
        self.closed.push(closed.cause);
        Action::None
    }
}

/// A peer that never reads, one that never sends, one that resets, and one that sends a byte a
/// second. The last one breaks no limit: it stays, and costs no memory.
fn bad_peers_end_within_their_limits_and_are_counted<T: Harness>() {
    const HIGH: usize = 256 << 10;
    let limits = Limits::new().idle(T::span(200.0)).write_stall(T::span(100.0));
    let server = Server::new(|_| Echo::default()).limits(limits.marks(HIGH / 4, HIGH));
    let mut bench = bench::<T, _, _>(server.listen("tcp://127.0.0.1:0").unwrap());
    let resets = bench.connect_deaf();
    bench.say(resets, "hello");
    bench.until("it is answered", |bench| bench.running.report().counters.writes == 1);
    bench.run_for(T::span(1.0));
    // Unread data makes a reset of the close.
    bench.watcher.abort(resets);
    let deaf = bench.connect_deaf();
    for _ in 0..40 {
        bench.say(deaf, vec![1; 1 << 20]);
    }
    let (silent, slow) = (bench.connect(), bench.connect());
    bench.until("all are open", |bench| bench.running.report().counters.accepted == 4);
    for second in 0..250 {
        bench.say(slow, "x");
        bench.run_for(T::span(1.0));
        // The high mark, and the reads that went beyond it before it was seen.
        let used = bench.running.engine().budget().used();
        assert!(used < HIGH + (8 << 20), "{used} bytes wait after {second} seconds");
    }
    bench.until("three have ended", |bench| bench.running.handler().closed.len() == 3);
    bench.until("the silent one sees it", |bench| bench.client(silent).is_over());
    bench.until("all bytes are answered", |bench| bench.client(slow).heard.len() == 250);
    assert!(!bench.client(slow).is_over());
    let counters = bench.running.report().counters;
    let ends = &counters.ends;
    assert_eq!((ends.write_stall, ends.idle, ends.failed), (1, 1, 1), "{counters:?}");
    assert_eq!((counters.accepted, bench.running.engine().len()), (4, 1));
    assert_eq!(bench.running.engine().budget().used(), 0);
}

/// In each way to write: from another thread, by the engine, in a callback. The next connection,
/// which has the same place, hears nothing of it.
fn a_write_to_a_connection_that_is_gone_comes_back<T: Harness>() {
    let server = Server::new(|_| Echo::default()).listen("tcp://127.0.0.1:0").unwrap();
    let mut bench = bench::<T, _, _>(server);
    let first = bench.connect();
    bench.until("it is open", |bench| bench.running.handler().opened.len() == 1);
    let gone = bench.running.handler().opened[0];
    let remote = bench.running.remote();
    // The loop finds a write of another thread behind the end of its connection.
    bench.running.engine().abort(gone);
    remote.write(gone, "too late").unwrap();
    bench.until("it has ended", |bench| bench.running.handler().closed == [Cause::Aborted]);
    bench.until("its client sees it", |bench| bench.client(first).is_over());
    assert_eq!(bench.running.report().counters.stale_writes, 1);
    let next = bench.connect();
    bench.until("it is open", |bench| bench.running.handler().opened.len() == 2);
    let lives = bench.running.handler().opened[1];
    let engine = bench.running.engine();
    for refused in [remote.write(gone, "stale"), engine.write(gone, "stale")] {
        let refused = refused.unwrap_err();
        assert_eq!((refused.reason, &*refused.value), (Refusal::Stale, &b"stale"[..]));
    }
    assert_eq!(engine.write_slice(gone, b"stale"), Err(Refusal::Stale));
    assert!(!remote.wake(gone) && !remote.close(gone));
    assert!(!engine.wake(gone) && !engine.close(gone) && !engine.abort(gone));
    assert!(!engine.pause(gone) && !engine.resume(gone));
    assert!(!engine.shutdown(gone) && engine.detach(gone).is_err());
    assert!(engine.state(gone).is_none() && engine.source(gone).is_none());
    assert_eq!(engine.waiting(gone), 0);
    // A connection that closes takes no more, either.
    assert!(engine.close(lives));
    assert_eq!(engine.write(lives, "stale").unwrap_err().reason, Refusal::Stale);
    bench.running.turn(&mut bench.watcher);
    bench.until("the next one ends", |bench| bench.client(next).is_over());
    assert!(bench.client(next).heard.is_empty());
    assert_eq!(bench.running.report().counters.stale_writes, 1, "only what was queued is counted");
    assert_eq!(bench.running.engine().budget().used(), 0);
}

/// evio's pull request 17: connects that get no answer race with their limit.
#[test]
fn a_simulated_connect_without_an_answer_ends_at_its_limit() {
    let (near, far) = ([10, 0, 0, 1], [10, 0, 0, 2]);
    let sim = Sim::new(common::seed());
    sim.cut(near, far);
    let mut there = Watcher::simulated(&sim.at(far));
    there.listen((far, 80)).unwrap();
    let mut watcher = Watcher::simulated(&sim.at(near));
    let limits = Limits::new().connect(Duration::from_secs(7));
    let server =
        Server::new(|_| Echo::default()).limits(limits).listen("tcp://10.0.0.1:0").unwrap();
    let running = server.start_on(&mut watcher).unwrap();
    let mut bench = Bench { watcher, running, clients: Clients::default(), addresses: Vec::new() };
    let start = bench.watcher.update_now();
    for _ in 0..20 {
        let engine = bench.running.engine();
        engine.connect([(far, 80)], ConnectOptions::default(), ()).unwrap();
    }
    bench.running.turn(&mut bench.watcher);
    bench.until("all have ended", |bench| bench.running.handler().closed.len() == 20);
    assert_eq!(bench.running.handler().closed, [Cause::ConnectTimeout; 20]);
    let took = bench.watcher.update_now() - start;
    assert!(took >= Duration::from_secs(7) && took < Duration::from_secs(8), "{took:?}");
    assert_eq!(bench.running.report().counters.ends.failed, 20);
}

/// Accepts that find no descriptor: the listener goes on, and the report says how often.
#[test]
fn simulated_accepts_without_a_descriptor_are_counted() {
    let faults = Faults { emfile: 0.3, ..Faults::transient(0.1) };
    let sim = Sim::with_faults(common::seed(), faults);
    let mut watcher = Watcher::simulated(&sim);
    let server = Server::new(|_| Echo::default()).listen("tcp://127.0.0.1:0").unwrap();
    let running = server.start_on(&mut watcher).unwrap();
    let (clients, addresses) = (Clients::default(), Vec::new());
    let mut bench = Bench { watcher, running, clients, addresses };
    let listener = bench.running.engine().listeners()[0];
    bench.addresses.push(bench.watcher.local_address(listener).unwrap());
    for _ in 0..100 {
        let client = bench.connect();
        bench.say(client, "hello");
        // The watcher ends a connection that it cannot accept, so that its peer does not wait.
        bench.until("it is served or refused", |bench| {
            bench.client(client).is_over() || bench.client(client).heard == b"hello"
        });
        bench.run_for(Duration::from_millis(10));
    }
    bench.running.remote().shutdown();
    bench.until("it is over", |bench| bench.running.is_over());
    let (report, injected) = (bench.running.report(), sim.injected());
    assert!(injected.emfile > 0);
    assert_eq!(report.descriptor_shortages, injected.emfile);
    assert!((10..100).contains(&report.counters.accepted), "{report:?}");
}

/// Cases that need the system: address families, descriptors.
#[cfg(all(target_os = "linux", not(windlass_kqueue)))]
mod system {
    #![allow(unsafe_code)] // seccomp needs libc

    use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
    use std::net::{SocketAddr, TcpStream};
    use std::process::{Command, Stdio};

    use windlass::net::ListenOptions;
    use windlass::{Address, Completions};

    use super::*;
    use crate::common::{PATIENCE, System, bench};

    crate::systems_drivers! {
        an_address_family_that_is_missing_is_an_error
        a_flood_beyond_the_descriptors_is_survived_and_counted
        a_connect_without_an_answer_ends_at_its_limit
    }

    /// From now on socket(2) knows no IPv6 on this thread.
    fn deny_ipv6() {
        let step = |code: u32, k: u32, jt, jf| libc::sock_filter { code: code as u16, jt, jf, k };
        let load = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
        let equal = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
        let answer = libc::BPF_RET | libc::BPF_K;
        // The lower half of the first argument, behind the call, the architecture and the address.
        let argument = 16 + if cfg!(target_endian = "big") { 4 } else { 0 };
        let errno = libc::SECCOMP_RET_ERRNO | libc::EAFNOSUPPORT as u32;
        let mut filter = [
            step(load, 0, 0, 0),
            step(equal, libc::SYS_socket as u32, 0, 3),
            step(load, argument, 0, 0),
            step(equal, libc::AF_INET6 as u32, 0, 1),
            step(answer, errno, 0, 0),
            step(answer, libc::SECCOMP_RET_ALLOW, 0, 0),
        ];
        let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
        // SAFETY: no memory is passed.
        assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
        let mode = libc::SECCOMP_MODE_FILTER;
        // SAFETY: the program lives across the call.
        assert_eq!(unsafe { libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program) }, 0);
    }

    /// An address of that family alone is an error. Where a host has others, they are taken.
    fn an_address_family_that_is_missing_is_an_error<T: System>() {
        let name = "an_address_family_that_is_missing_is_an_error";
        child::in_child(&format!("bad_input::system::{}::{name}", T::NAME), || {
            deny_ipv6();
            let missing = |error: std::io::Error| error.raw_os_error() == Some(libc::EAFNOSUPPORT);
            for loops in [1, 3] {
                for address in ["tcp6://[::1]:0", "tcp6://:0"] {
                    let server = Server::new(|_| Echo::default()).watcher(T::builder());
                    let server = server.loops(loops).listen(address).unwrap();
                    assert!(missing(server.run().unwrap_err()), "{address}, {loops} loops");
                }
            }
            for address in ["tcp://:0", "tcp://"] {
                let server = Server::new(|_| Echo::default()).listen(address).unwrap();
                let mut bench = bench::<T, _, _>(server);
                assert!(bench.addresses[0].ip().is_some_and(|ip| ip.is_ipv4()), "{address}");
                let port = bench.addresses[0].ip().unwrap().port();
                let client = bench.connect_to(SocketAddr::from(([127, 0, 0, 1], port)).into());
                bench.say(client, "hello");
                bench.until("it is served", |bench| bench.client(client).heard == b"hello");
            }
            // A start that fails at its second address gives the first one back.
            let mut watcher = T::watcher(Watcher::builder());
            let server = Server::new(|_| Echo::default()).listen("tcp4://127.0.0.1:0").unwrap();
            let server = server.listen("tcp6://[::1]:0").unwrap();
            assert!(missing(server.start_on(&mut watcher).unwrap_err()));
            watcher.wait_timeout(&mut Completions::new(), Duration::ZERO).unwrap();
            assert_eq!(watcher.counters().sources, 0);
        });
    }

    /// Echoes; `stop` ends the server.
    struct Stops;

    impl Handler for Stops {
        type State = ();
        fn serving(&mut self, _: &mut Context<'_, ()>, addresses: &[Address]) -> Action {
            println!("LISTENING {}", addresses[0]);
            Action::None
        }
        fn data(&mut self, c: &mut Conn<'_, ()>, data: Buf) -> Action {
            if &*data == b"stop" {
                return Action::Shutdown;
            }
            c.write(data);
            Action::None
        }
    }

    /// The next line of the server with this word, and what follows it.
    fn answer(out: &mut impl BufRead, word: &str) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert!(out.read_line(&mut line).unwrap() > 0, "the server is gone before {word}");
            // The harness may have begun the line.
            if let Some((_, rest)) = line.split_once(word) {
                return rest.trim().to_owned();
            }
        }
    }

    /// Says a word; whether it comes back. If not, the server has ended the connection.
    fn is_served(stream: &mut TcpStream) -> bool {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let _ = stream.write_all(b"?");
        match stream.read(&mut [0]) {
            Ok(count) => count == 1,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => false,
            Err(error) => panic!("neither served nor ended: {error}"),
        }
    }

    /// The first client that is served after the others have left.
    fn wait_for_room(at: SocketAddr) -> TcpStream {
        loop {
            let mut stream = TcpStream::connect(at).unwrap();
            if is_served(&mut stream) {
                return stream;
            }
        }
    }

    /// evio ends when an accept finds no descriptor; shiny spins. Here each client is served or
    /// ended, and the server accepts again when there is room.
    fn a_flood_beyond_the_descriptors_is_survived_and_counted<T: System>() {
        let name = "a_flood_beyond_the_descriptors_is_survived_and_counted";
        let name = format!("bad_input::system::{}::{name}", T::NAME);
        if child::is_child("server") {
            let server = Server::new(|_| Stops).watcher(T::builder());
            let report = server.listen("tcp://127.0.0.1:0").unwrap().run().unwrap();
            let shortages = report.descriptor_shortages;
            println!("REPORT {} {shortages} {}", report.counters.accepted, report.panics);
            return;
        }
        let itself = child::command(&name, "server");
        let mut limited = Command::new("sh");
        limited.args(["-c", "ulimit -n 40 && exec \"$0\" \"$@\""]).arg(itself.get_program());
        limited.args(itself.get_args()).stdin(Stdio::piped());
        for (variable, value) in itself.get_envs() {
            limited.env(variable, value.expect("a value"));
        }
        let mut server =
            limited.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a shell");
        let mut out = BufReader::new(server.stdout.take().expect("piped"));
        let at: SocketAddr = answer(&mut out, "LISTENING").parse().expect("an address");
        let mut served = 0;
        for round in 0..2 {
            wait_for_room(at);
            let mut clients: Vec<TcpStream> =
                (0..100).map(|_| TcpStream::connect(at).unwrap()).collect();
            let count = clients.iter_mut().filter_map(|c| is_served(c).then_some(())).count();
            assert!((5..40).contains(&count), "round {round}: {count} of 100");
            served += count;
        }
        wait_for_room(at).write_all(b"stop").unwrap();
        let report = answer(&mut out, "REPORT");
        let report: Vec<usize> = report.split(' ').map(|word| word.parse().unwrap()).collect();
        let drain = std::thread::spawn(move || std::io::copy(&mut out, &mut std::io::sink()));
        let (ended, text) = child::finish(server);
        drain.join().unwrap().unwrap();
        assert!(ended, "{text}");
        assert!(report[0] > served && report[1] > 0, "{report:?}");
        assert_eq!(report[2], 0);
    }

    /// A listener whose queue is full answers no more.
    fn a_connect_without_an_answer_ends_at_its_limit<T: System>() {
        let limits = Limits::new().connect(T::span(50.0));
        let server = Server::new(|_| Echo::default()).limits(limits);
        let mut bench = bench::<T, _, _>(server.listen("tcp://127.0.0.1:0").unwrap());
        let options = ListenOptions::default().backlog(1);
        let full = bench.watcher.listen_with(([127, 0, 0, 1], 0), options).unwrap();
        let full = bench.watcher.local_address(full).unwrap();
        for _ in 0..20 {
            let engine = bench.running.engine();
            engine.connect([full.clone()], ConnectOptions::default(), ()).unwrap();
        }
        bench.running.turn(&mut bench.watcher);
        bench.until("all are known", |bench| {
            let echo = bench.running.handler();
            echo.opened.len() + echo.closed.len() == 20
        });
        let echo = bench.running.handler();
        assert!(echo.opened.len() <= 3, "{} fit into the queue", echo.opened.len());
        assert!(echo.closed.iter().all(|cause| *cause == Cause::ConnectTimeout));
        let failed = echo.closed.len() as u64;
        assert_eq!(bench.running.report().counters.ends.failed, failed);
    }
}
