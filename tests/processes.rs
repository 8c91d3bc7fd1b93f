//! What belongs to a whole process: fork, the limit of descriptors, signals. Each test runs in a
//! process of its own.
#![cfg(target_os = "linux")]
#![allow(missing_docs, unreachable_pub)] // a test binary has no users
#![allow(unsafe_code)] // fork, limits and timers need libc

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use common::*;
use windlass::{Completions, Done, Op, Refusal, Watcher};

/// If a filter denies epoll_pwait2, a timer keeps the time of each wait.
#[test]
fn without_epoll_pwait2_timeouts_are_as_fine() {
    child::in_child("without_epoll_pwait2_timeouts_are_as_fine", || {
        system::deny(&[libc::SYS_epoll_pwait2], libc::EPERM);
        let mut b = Epoll::bench();
        let (here, there) = b.pair();
        for i in 0..200 {
            let span = Duration::from_micros(50 + 3 * i);
            let start = std::time::Instant::now();
            let ticket = b.submit(Op::timer(span));
            expect_timer(b.end(ticket));
            let took = start.elapsed();
            assert!(took >= span, "{took:?} of {span:?}");
        }
        b.expect_alive(here, there);
        let counters = b.watcher.counters();
        assert_eq!(counters.stale_events, 0, "the timer's event is no source's");
        let text = b.watcher.explain().to_string();
        assert!(text.contains("timerfd"), "{text}");
        b.expect_all_ended();
    });
}

/// When other code has closed the selector's descriptor, the wait returns the system's errno, not
/// `Closed`.
#[test]
fn a_selector_closed_by_other_code_is_an_os_error() {
    let test = "a_selector_closed_by_other_code_is_an_os_error";
    child::in_child(test, || {
        let mut watcher = Epoll::bench().watcher;
        let epoll = watcher.pollable().unwrap().as_raw_fd();
        let mut done = Completions::new();
        let mut errno = |watcher: &mut Watcher| {
            let bound = Duration::from_secs(60);
            watcher.wait_timeout(&mut done, bound).unwrap_err().raw_os_error()
        };
        let (other, _writer) = std::io::pipe().unwrap();
        // SAFETY: plain numbers; this process has one thread that opens descriptors.
        assert_eq!(unsafe { libc::dup2(other.as_raw_fd(), epoll) }, epoll);
        assert_eq!(errno(&mut watcher), Some(libc::EINVAL));
        // SAFETY: as above.
        assert_eq!(unsafe { libc::close(epoll) }, 0);
        assert_eq!(errno(&mut watcher), Some(libc::EBADF));
        watcher.close();
        let error = watcher.wait(&mut Completions::new()).unwrap_err();
        assert_eq!(Refusal::of(&error), Some(Refusal::Closed));
        // Dropping the watcher would close the number again.
        std::mem::forget(watcher);
    });
}

/// A forked child may not use its parent's watcher, and whatever it tries, the parent's still
/// works.
#[test]
fn a_forked_child_is_told_and_does_no_harm() {
    forked("a_forked_child_is_told_and_does_no_harm", Epoll::bench);
}

#[test]
fn a_forked_child_is_told_and_does_no_harm_to_a_ring() {
    forked("a_forked_child_is_told_and_does_no_harm_to_a_ring", Uring::bench);
}

fn forked(test: &str, bench: fn() -> Bench<windlass::driver::Auto>) {
    child::in_child(test, || {
        let mut b = bench();
        let (here, there) = b.pair();
        let (blocking, writer) = std::io::pipe().unwrap();
        let blocking = b.watcher.attach(std::os::fd::OwnedFd::from(blocking)).unwrap();
        let submitter = b.submitter();
        let read = b.submit(Op::read(here));
        let piped = b.submit(Op::read(blocking));
        let timer = b.submit(Op::timer(Duration::from_millis(50)));
        b.look();
        // SAFETY: this process has one thread that allocates or holds locks (the other one of the
        // test harness waits for it), so the child can go on.
        match unsafe { libc::fork() } {
            0 => {
                let told = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
                    no_submitter_in_forked_child(&submitter, here);
                    in_forked_child(b, here, read);
                }));
                // SAFETY: ends the child without running the parent's exit handlers.
                unsafe { libc::_exit(i32::from(told.is_err())) }
            }
            pid => {
                assert!(pid > 0);
                let mut status = -1;
                // SAFETY: room for one status.
                assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
                assert!(libc::WIFEXITED(status), "{status}");
                assert_eq!(libc::WEXITSTATUS(status), 0, "the child has panicked");
            }
        }
        b.write(there, "still here");
        assert_eq!(&*expect_read(b.end(read)), b"still here");
        (&writer).write_all(b"x").unwrap();
        assert_eq!(&*expect_read(b.end(piped)), b"x");
        expect_timer(b.end(timer));
        submitter.wake(4).unwrap();
        assert_eq!(b.next().token, 4);
        b.expect_alive(here, there);
        b.expect_all_ended();
    });
}

fn no_submitter_in_forked_child(submitter: &windlass::Submitter, here: windlass::Source) {
    let refused = submitter.submit(Op::write(here, b"not mine".to_vec())).unwrap_err();
    assert_eq!(refused.reason, Refusal::Forked);
    assert_eq!(refused.value.into_buf().into_vec(), b"not mine");
    let (socket, _other) = system::tcp_pair();
    assert_eq!(submitter.attach(socket).unwrap_err().reason, Refusal::Forked);
    assert_eq!(submitter.wake(4), Err(Refusal::Forked));
    assert_eq!(submitter.post(4, 4).unwrap_err().reason, Refusal::Forked);
    submitter.abort(here);
}

fn in_forked_child(
    mut b: Bench<windlass::driver::Auto>,
    here: windlass::Source,
    read: windlass::Ticket,
) {
    let watcher = &mut b.watcher;
    let refused = watcher.submit(Op::write(here, b"not mine".to_vec())).unwrap_err();
    assert_eq!(refused.reason, Refusal::Forked);
    assert_eq!(refused.value.into_buf().into_vec(), b"not mine");
    for op in [
        Op::nop(),
        Op::timer(Duration::ZERO),
        Op::read(here),
        Op::read_into(here, vec![0; 4]),
        Op::read_exact(here, vec![0; 4], 4),
        Op::shutdown(here),
        Op::close(here),
        Op::connect(([127, 0, 0, 1], 9)),
    ] {
        let code = op.code();
        assert_eq!(watcher.submit(op).unwrap_err().reason, Refusal::Forked, "{code:?}");
    }
    let mut done = Completions::new();
    for answer in [
        watcher.wait(&mut done),
        watcher.try_wait(&mut done),
        watcher.wait_timeout(&mut done, Duration::from_secs(1)),
    ] {
        assert_eq!(Refusal::of(&answer.unwrap_err()), Some(Refusal::Forked));
    }
    let (socket, _other) = system::tcp_pair();
    assert_eq!(watcher.attach(socket).unwrap_err().reason, Refusal::Forked);
    assert!(watcher.listen(([127, 0, 0, 1], 0)).is_err());
    assert!(!watcher.cancel(read));
    assert_eq!(watcher.cancel_all(here), 0);
    assert!(!watcher.abort(here));
    assert!(watcher.detach(here).is_err());
    watcher.close();
    // A watcher of its own works.
    let mut own = Epoll::bench();
    let (a, c) = own.pair();
    own.expect_alive(a, c);
    // And dropping the parent's ends nothing there.
    drop(b);
}

static SIGNALS: AtomicU64 = AtomicU64::new(0);

extern "C" fn count_signal(_: i32) {
    SIGNALS.fetch_add(1, Ordering::Relaxed);
}

/// A signal every millisecond, to this thread (one for the process would find the test harness).
fn start_storm() {
    // SAFETY: all zeroes is a valid action: no flags (not SA_RESTART), nothing masked.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = count_signal as *const () as usize;
    // SAFETY: the handler only adds to an atomic; no old action is asked for.
    let set = unsafe { libc::sigaction(libc::SIGALRM, &action, std::ptr::null_mut()) };
    assert_eq!(set, 0);
    // SAFETY: all zeroes is a valid event.
    let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
    event.sigev_notify = libc::SIGEV_THREAD_ID;
    event.sigev_signo = libc::SIGALRM;
    // SAFETY: no memory is passed.
    event.sigev_notify_thread_id = unsafe { libc::gettid() };
    let mut timer: libc::timer_t = std::ptr::null_mut();
    // SAFETY: the event and room for the timer live across the call.
    let made = unsafe { libc::timer_create(libc::CLOCK_MONOTONIC, &mut event, &mut timer) };
    assert_eq!(made, 0);
    let every = libc::timespec { tv_sec: 0, tv_nsec: 1_000_000 };
    let spec = libc::itimerspec { it_interval: every, it_value: every };
    // SAFETY: a timer from right above; the struct lives across the call.
    let set = unsafe { libc::timer_settime(timer, 0, &spec, std::ptr::null_mut()) };
    assert_eq!(set, 0);
}

/// Signals all the time, during a large transfer and timers: nothing is lost, nothing is early.
#[test]
fn a_storm_of_signals_changes_nothing() {
    child::in_child("a_storm_of_signals_changes_nothing", || {
        start_storm();
        let mut b = Epoll::bench();
        let (here, there) = b.pair();
        let len = 64 << 20;
        let bytes = pattern(len, 1);
        let write = b.submit(Op::write(here, bytes.clone()));
        let read = b.submit(Op::read_exact(there, room(len), len));
        let start = b.watcher.now();
        let timers: Vec<_> =
            (1..=20).map(|i| (i, b.submit(Op::timer(Duration::from_millis(i * 7))))).collect();
        for (i, ticket) in timers {
            expect_timer(b.end(ticket));
            assert!(b.watcher.now() >= start + Duration::from_millis(i * 7));
        }
        expect_written(b.end(write));
        expect_same(&expect_read(b.end(read)), &bytes);
        // Blocking waits and connects, too.
        for _ in 0..50 {
            let (a, c) = b.pair();
            b.expect_alive(a, c);
            b.pass(Duration::from_millis(2));
            b.watcher.abort(a);
            b.watcher.abort(c);
        }
        b.expect_all_ended();
        let signals = SIGNALS.load(Ordering::Relaxed);
        assert!(signals > 20, "{signals} signals are no storm");
    });
}

const SERVER: &str = "emfile-server";

/// An echo server with few descriptors, steered by its standard input.
#[test]
fn a_server_survives_when_descriptors_run_out() {
    const NAME: &str = "a_server_survives_when_descriptors_run_out";
    if child::is_child(SERVER) {
        return serve_with_few_descriptors();
    }
    let mut server = child::spawn(NAME, SERVER);
    let mut control = server.stdin.take().expect("piped");
    let mut out = BufReader::new(server.stdout.take().expect("piped"));
    let at: SocketAddr = answer(&mut out, "LISTENING").parse().expect("an address");
    let ask = |stream: &mut TcpStream| -> Option<u8> {
        stream.set_read_timeout(Some(BOUND)).unwrap();
        let _ = stream.write_all(b"?");
        let mut byte = [0];
        match stream.read(&mut byte) {
            Ok(1) => Some(byte[0]),
            Ok(_) => None,
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => None,
            Err(error) => panic!("neither answered nor closed: {error}"),
        }
    };
    for round in 0..2 {
        let mut clients: Vec<TcpStream> =
            (0..60).map(|_| TcpStream::connect(at).unwrap()).collect();
        let answered = clients.iter_mut().filter_map(ask).count();
        // Some were served; the others were connected, then closed: told.
        assert!((5..55).contains(&answered), "round {round}: {answered} of 60");
        drop(clients);
        control.write_all(b"f").unwrap();
        answer(&mut out, "FREED");
        // It accepts again.
        let mut client = TcpStream::connect(at).unwrap();
        assert_eq!(ask(&mut client), Some(b'?'), "round {round}");
    }
    control.write_all(b"q").unwrap();
    let counts = answer(&mut out, "COUNTS");
    let counts: Vec<u64> = counts.split(' ').map(|n| n.parse().unwrap()).collect();
    let (shortages, turns) = (counts[0], counts[1]);
    assert!(shortages > 0);
    assert!(turns < 5000, "{turns} turns: it spins");
    // What the harness says at its end must find a reader.
    let drain = std::thread::spawn(move || std::io::copy(&mut out, &mut std::io::sink()));
    let (ended, text) = child::finish(server);
    join(drain, "the last words of the server").unwrap();
    assert!(ended, "{text}");
}

/// The next line that begins with `word`, without it.
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

fn serve_with_few_descriptors() {
    let mut watcher = Watcher::builder().driver(windlass::DriverKind::Epoll).build().unwrap();
    let listener = watcher.listen(([127, 0, 0, 1], 0)).unwrap();
    let control = watcher.attach_dup(std::io::stdin()).unwrap();
    watcher.submit(Op::read(control)).unwrap();
    watcher.submit(Op::accept(listener).multishot()).unwrap();
    let limit = system::descriptors() as u64 + 20;
    let limit = libc::rlimit { rlim_cur: limit, rlim_max: limit };
    // SAFETY: the struct lives across the call.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
    println!("LISTENING {}", watcher.local_address(listener).unwrap());
    let mut done = Completions::new();
    let mut connections = Vec::new();
    loop {
        wait_for(&mut watcher, &mut done, "a client, or a word on standard input");
        for c in done.drain(..) {
            match c.result {
                Ok(Done::Accepted(socket)) => {
                    let source = watcher.attach(socket).unwrap();
                    connections.push(source);
                    watcher.submit(Op::read(source)).unwrap();
                }
                Ok(Done::Read(data)) if c.source == control => {
                    for byte in data.iter() {
                        if *byte == b'q' {
                            let counters = watcher.counters();
                            let shortages = counters.descriptor_shortages;
                            println!("COUNTS {shortages} {}", counters.turns);
                            return;
                        }
                        for source in connections.drain(..) {
                            watcher.abort(source);
                        }
                        println!("FREED");
                    }
                    watcher.submit(Op::read(control)).unwrap();
                }
                Ok(Done::Read(data)) if data.is_eof() => {}
                Ok(Done::Read(data)) => {
                    let _ = watcher.submit(Op::write(c.source, data));
                    let _ = watcher.submit(Op::read(c.source));
                }
                // A connection that was reset; aborted ones.
                _ => {}
            }
        }
    }
}

/// A program may have as many descriptors as the hard limit says.
#[test]
fn the_limit_of_descriptors_is_raised() {
    child::in_child("the_limit_of_descriptors_is_raised", || {
        let hard = windlass::fd::raise_max_open_files().unwrap().min(700);
        assert!(hard > 300, "too few to be told apart");
        let limit = libc::rlimit { rlim_cur: 300, rlim_max: hard };
        // SAFETY: the struct lives across the call.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
        assert_eq!(windlass::fd::max_open_files().unwrap(), 300);
        let open = |count: usize| -> std::io::Result<Vec<_>> {
            (0..count).map(|_| std::fs::File::open("/dev/null")).collect()
        };
        assert_eq!(open(400).unwrap_err().raw_os_error(), Some(libc::EMFILE));
        assert_eq!(windlass::fd::raise_max_open_files().unwrap(), hard);
        assert_eq!(open(400).unwrap().len(), 400);
    });
}
