//! Signals and children belong to a whole process: the state of the process that their sources
//! change, the state that they keep, and the sources in a forked child. Each test runs in a process
//! of its own.
#![cfg(unix)]
#![allow(missing_docs, unreachable_pub)] // a test binary has no users
#![allow(unsafe_code)] // handlers, masks and fork need libc
#![allow(clippy::zombie_processes)] // watchers reap them

mod common;

use std::mem::{MaybeUninit, zeroed};
use std::process::{Command, Stdio};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use common::*;
use windlass::driver::Auto;
use windlass::process::signal::{SIGCHLD, SIGTERM, SIGUSR1, SIGUSR2};
use windlass::{Completion, Completions, Done, DriverKind, ErrorKind, Op, Refusal, Watcher};

/// The drivers of this system.
fn drivers() -> Vec<DriverKind> {
    let all = [DriverKind::Epoll, DriverKind::Uring, DriverKind::Kqueue, DriverKind::Poll];
    let works = |kind: &DriverKind| Watcher::builder().driver(*kind).build().is_ok();
    let here: Vec<DriverKind> = all.into_iter().filter(works).collect();
    assert!(here.len() > 1, "only {here:?}");
    here
}

fn bench(driver: DriverKind) -> Bench<Auto> {
    Bench::new(Watcher::builder().driver(driver).build().expect("a watcher"), Poll::address())
}

/// Runs a test on every driver, in a process of its own.
fn on_each(test: &str, body: fn(DriverKind)) {
    child::in_child(test, || drivers().into_iter().for_each(body));
}

/// Sends a signal to this thread.
fn raise(signal: i32) {
    // SAFETY: no memory is passed.
    assert_eq!(unsafe { libc::raise(signal) }, 0);
}

/// Sends a signal to the process: any thread may take it.
fn send(signal: i32) {
    let process = std::process::id() as libc::pid_t;
    // SAFETY: no memory is passed.
    assert_eq!(unsafe { libc::kill(process, signal) }, 0);
}

fn action(signal: i32) -> libc::sigaction {
    // SAFETY: all zeroes is a valid action.
    let mut action: libc::sigaction = unsafe { zeroed() };
    // SAFETY: nothing is set; the action lives across the call.
    assert_eq!(unsafe { libc::sigaction(signal, std::ptr::null(), &mut action) }, 0);
    action
}

/// Installs a handler, and returns the one that it has replaced.
fn install(signal: i32, handler: usize, flags: i32) -> libc::sigaction {
    let mut new = action(signal);
    (new.sa_sigaction, new.sa_flags) = (handler, flags);
    let old = action(signal);
    // SAFETY: the handlers below are async-signal-safe; the action lives across the call.
    assert_eq!(unsafe { libc::sigaction(signal, &new, null_mut()) }, 0);
    old
}

/// The arguments of a handler that a test can check. (The C library adds flags.)
fn known(action: &libc::sigaction) -> (usize, i32) {
    let flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK | libc::SA_NODEFER;
    (action.sa_sigaction, action.sa_flags & flags)
}

static CALLS: AtomicUsize = AtomicUsize::new(0);
static SENDER: AtomicI32 = AtomicI32::new(0);

extern "C" fn count(_: i32) {
    CALLS.fetch_add(1, Ordering::SeqCst);
}

extern "C" fn count_with_info(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    CALLS.fetch_add(1, Ordering::SeqCst);
    // SAFETY: the system passes the information of the signal.
    let info = unsafe { &*info };
    // SAFETY: a process has sent it.
    SENDER.store(unsafe { info.si_pid() }, Ordering::SeqCst);
}

fn calls() -> usize {
    CALLS.swap(0, Ordering::SeqCst)
}

#[track_caller]
fn expect_signal(c: Completion, signal: i32) {
    match c.result {
        Ok(Done::Signal(got)) => assert_eq!(got, signal),
        other => panic!("{signal}, not {other:?}"),
    }
}

#[track_caller]
fn expect_code(c: Completion, code: i32) {
    match c.result {
        Ok(Done::Exited(status)) => assert_eq!(status.code(), Some(code)),
        other => panic!("{code}, not {other:?}"),
    }
}

/// A shell that ends with this code when its input ends. A source or the test reaps it.
#[allow(clippy::zombie_processes)]
fn shell(code: i32) -> std::process::Child {
    let mut command = Command::new("sh");
    let command = command.args(["-c", &format!("read x; exit {code}")]);
    command.stdin(Stdio::piped()).spawn().expect("a shell")
}

#[test]
fn what_was_there_before_is_restored() {
    on_each("what_was_there_before_is_restored", |driver| {
        let ignored = install(SIGUSR2, libc::SIG_IGN, 0);
        let (default, is_ignored) = (known(&action(SIGUSR1)), known(&action(SIGUSR2)));
        assert_eq!((default.0, is_ignored.0), (libc::SIG_DFL, libc::SIG_IGN));
        let mut b = bench(driver);
        let both = b.watcher.signals(&[SIGUSR1, SIGUSR2]).unwrap();
        let one = b.watcher.signals(&[SIGUSR1]).unwrap();
        for signal in [SIGUSR1, SIGUSR2] {
            assert!(![libc::SIG_DFL, libc::SIG_IGN].contains(&action(signal).sa_sigaction));
        }
        assert!(b.watcher.abort(both));
        assert_ne!(known(&action(SIGUSR1)), default, "a source has it still");
        assert_eq!(known(&action(SIGUSR2)), is_ignored);
        raise(SIGUSR1);
        expect_signal(b.run(Op::signal(one)), SIGUSR1);
        let close = b.submit(Op::close(one));
        b.end(close);
        assert_eq!(known(&action(SIGUSR1)), default);
        // So does a close of the watcher, and its drop.
        for close in [true, false] {
            let mut b = bench(driver);
            b.watcher.signals(&[SIGUSR1, SIGUSR2]).unwrap();
            assert_ne!(known(&action(SIGUSR1)), default);
            if close {
                b.watcher.close();
                assert_eq!(known(&action(SIGUSR1)), default);
            }
            drop(b);
            assert_eq!((known(&action(SIGUSR1)), known(&action(SIGUSR2))), (default, is_ignored));
        }
        // And a refusal: the last signal of the list cannot be handled.
        let mut b = bench(driver);
        assert!(b.watcher.signals(&[SIGUSR1, 32]).is_err() || !cfg!(target_os = "linux"));
        assert!(b.watcher.signals(&[SIGUSR1, libc::SIGKILL]).is_err());
        assert_eq!(known(&action(SIGUSR1)), default);
        install(SIGUSR2, ignored.sa_sigaction, 0);
    });
}

#[test]
fn the_programs_own_handler_is_called() {
    on_each("the_programs_own_handler_is_called", |driver| {
        let plain = count as *const () as usize;
        let informed = count_with_info as *const () as usize;
        for (handler, flags) in
            [(plain, 0), (plain, libc::SA_RESTART), (informed, libc::SA_SIGINFO | libc::SA_NODEFER)]
        {
            let before = install(SIGUSR1, handler, flags);
            let mut b = bench(driver);
            let source = b.watcher.signals(&[SIGUSR1]).unwrap();
            // It decides whether calls are interrupted.
            let kept = action(SIGUSR1).sa_flags & libc::SA_RESTART;
            assert_eq!(kept, flags & libc::SA_RESTART);
            let second = b.watcher.signals(&[SIGUSR1]).unwrap();
            SENDER.store(0, Ordering::SeqCst);
            raise(SIGUSR1);
            assert_eq!(calls(), 1);
            if handler == informed {
                assert_eq!(SENDER.load(Ordering::SeqCst), std::process::id() as i32);
            }
            for source in [source, second] {
                expect_signal(b.run(Op::signal(source)), SIGUSR1);
                assert!(b.watcher.abort(source));
            }
            assert_eq!(known(&action(SIGUSR1)), (handler, flags));
            raise(SIGUSR1);
            assert_eq!(calls(), 1);
            install(SIGUSR1, before.sa_sigaction, before.sa_flags);
        }
    });
}

/// The handler that the handler below has replaced.
static BELOW: AtomicUsize = AtomicUsize::new(0);

extern "C" fn above(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    CALLS.fetch_add(1, Ordering::SeqCst);
    type Handler = extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void);
    // SAFETY: the handler of a source, which takes the information.
    let below = unsafe { std::mem::transmute::<usize, Handler>(BELOW.load(Ordering::SeqCst)) };
    below(signal, info, context);
}

/// A handler that is installed after a source's, and calls it, is not taken away with the source;
/// and sources that are made later are called by it.
#[test]
fn a_handler_that_was_installed_later_stays() {
    on_each("a_handler_that_was_installed_later_stays", |driver| {
        let mut b = bench(driver);
        let first = b.watcher.signals(&[SIGUSR1]).unwrap();
        let ours = action(SIGUSR1);
        BELOW.store(ours.sa_sigaction, Ordering::SeqCst);
        install(SIGUSR1, above as *const () as usize, libc::SA_SIGINFO);
        raise(SIGUSR1);
        expect_signal(b.run(Op::signal(first)), SIGUSR1);
        assert!(b.watcher.abort(first));
        assert_eq!(action(SIGUSR1).sa_sigaction, above as *const () as usize);
        raise(SIGUSR1);
        assert_eq!(calls(), 2);
        let second = b.watcher.signals(&[SIGUSR1]).unwrap();
        b.expect_quiet();
        let pending = b.submit(Op::signal(second));
        b.look();
        assert!(b.is_open(pending), "the signal came before the source");
        raise(SIGUSR1);
        assert_eq!(calls(), 1);
        expect_signal(b.end(pending), SIGUSR1);
        // One that resets the signal is no handler: the next source installs its own again.
        assert!(b.watcher.abort(second));
        install(SIGUSR1, libc::SIG_DFL, 0);
        let third = b.watcher.signals(&[SIGUSR1]).unwrap();
        raise(SIGUSR1);
        expect_signal(b.run(Op::signal(third)), SIGUSR1);
        assert!(b.watcher.abort(third));
        assert_eq!(action(SIGUSR1).sa_sigaction, libc::SIG_DFL);
        b.expect_all_ended();
    });
}

fn mask() -> Vec<bool> {
    let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: nothing is set; room for a set.
    let asked = unsafe { libc::pthread_sigmask(0, std::ptr::null(), set.as_mut_ptr()) };
    assert_eq!(asked, 0);
    // SAFETY: filled by the call, or zeroes.
    let set = unsafe { set.assume_init() };
    // SAFETY: a valid set.
    (1..32).map(|signal| unsafe { libc::sigismember(&set, signal) } == 1).collect()
}

#[test]
fn masks_stay_as_they_are() {
    on_each("masks_stay_as_they_are", |driver| {
        let before = mask();
        let of_programs = || {
            let mut command = Command::new("grep");
            command.args(["-E", "Sig(Blk|Ign)", "/proc/self/status"]);
            command.output().expect("grep(1)").stdout
        };
        let (programs, mut b) = (of_programs(), bench(driver));
        let source = b.watcher.signals(&[SIGUSR1, SIGTERM]).unwrap();
        assert_eq!(mask(), before);
        let pending = b.submit(Op::signal(source));
        b.look();
        assert_eq!((mask(), of_programs()), (before, programs));
        b.watcher.cancel(pending);
    });
}

/// A read(2) of another thread that a signal interrupts goes on.
#[test]
fn calls_of_other_threads_go_on() {
    on_each("calls_of_other_threads_go_on", |driver| {
        let mut b = bench(driver);
        let source = b.watcher.signals(&[SIGUSR1]).unwrap();
        let (reader, writer) = std::io::pipe().unwrap();
        let (tell, told) = mpsc::channel();
        let blocked = thread::spawn(move || {
            use std::os::fd::AsRawFd;
            // SAFETY: no memory is passed.
            tell.send(unsafe { libc::pthread_self() } as usize).unwrap();
            let mut byte = [0u8];
            // SAFETY: room for a byte.
            unsafe { libc::read(reader.as_raw_fd(), byte.as_mut_ptr().cast(), 1) }
        });
        let id = receive(&told, "the thread that reads") as libc::pthread_t;
        for _ in 0..100 {
            // SAFETY: the thread was not joined.
            assert_eq!(unsafe { libc::pthread_kill(id, SIGUSR1) }, 0);
            expect_signal(b.run(Op::signal(source)), SIGUSR1);
        }
        std::io::Write::write_all(&mut &writer, b"!").unwrap();
        assert_eq!(join(blocked, "the read"), 1);
        b.expect_all_ended();
    });
}

/// Each of several loops on threads of their own gets each signal, and none is lost: the next one
/// is sent when all have had the last one.
#[test]
fn loops_on_several_threads_get_every_signal() {
    child::in_child("loops_on_several_threads_get_every_signal", || {
        const ROUNDS: usize = 500;
        let (tell, told) = mpsc::channel();
        let kinds = drivers();
        let loops: Vec<_> = kinds
            .iter()
            .chain(&kinds)
            .enumerate()
            .map(|(at, &driver)| {
                let tell = tell.clone();
                thread::spawn(move || {
                    let mut b = bench(driver);
                    let source = b.watcher.signals(&[SIGUSR1, SIGUSR2]).unwrap();
                    tell.send(0).unwrap();
                    let op = || Op::signal(source);
                    let multishot = at % 2 == 0;
                    let mut ticket = multishot.then(|| b.submit(op().multishot()));
                    for round in 0..ROUNDS {
                        let ended = ticket.unwrap_or_else(|| b.submit(op()));
                        expect_signal(b.end(ended), signal_of(round));
                        tell.send(round + 1).unwrap();
                    }
                    if let Some(ticket) = ticket.take() {
                        assert!(b.watcher.cancel(ticket));
                        expect_unmoved(b.end(ticket), ErrorKind::Cancelled);
                    }
                    b.expect_all_ended();
                })
            })
            .collect();
        for round in 0..=ROUNDS {
            for _ in &loops {
                assert_eq!(receive(&told, "a loop that has had the signal"), round);
            }
            if round < ROUNDS {
                send(signal_of(round));
            }
        }
        for one in loops {
            join(one, "a loop");
        }
    });
}

fn signal_of(round: usize) -> i32 {
    if round.is_multiple_of(3) { SIGUSR2 } else { SIGUSR1 }
}

/// Sources come and go on several threads while signals come all the time: no handler writes to a
/// descriptor that was closed and is another one now, and what was there is restored.
#[test]
fn sources_come_and_go_in_a_storm() {
    child::in_child("sources_come_and_go_in_a_storm", || {
        let before = known(&action(SIGUSR1));
        let mut keeper = bench(DriverKind::Poll);
        let kept = keeper.watcher.signals(&[SIGUSR1]).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let raised = Arc::new(AtomicU64::new(0));
        let storm = {
            let (stop, raised) = (Arc::clone(&stop), Arc::clone(&raised));
            thread::spawn(move || {
                while !stop.load(Ordering::SeqCst) {
                    send(SIGUSR1);
                    raised.fetch_add(1, Ordering::SeqCst);
                }
            })
        };
        let kinds = drivers();
        let loops: Vec<_> = kinds
            .into_iter()
            .map(|driver| {
                thread::spawn(move || {
                    let mut b = bench(driver);
                    for round in 0..300 {
                        let source = b.watcher.signals(&[SIGUSR1, SIGUSR2]).unwrap();
                        let ticket = b.submit(Op::signal(source));
                        if round % 2 == 0 {
                            expect_signal(b.end(ticket), SIGUSR1);
                        }
                        assert!(b.watcher.abort(source));
                        // It may have the number of the source's descriptor.
                        let (reader, writer) = std::io::pipe().unwrap();
                        thread::yield_now();
                        drop(writer);
                        let mut stray = Vec::new();
                        std::io::Read::read_to_end(&mut &reader, &mut stray).unwrap();
                        assert!(stray.is_empty(), "a handler has written {stray:?}");
                        b.now();
                    }
                })
            })
            .collect();
        for one in loops {
            join(one, "a loop in the storm");
        }
        stop.store(true, Ordering::SeqCst);
        join(storm, "the storm");
        assert!(raised.load(Ordering::SeqCst) > 1000, "no storm");
        expect_signal(keeper.run(Op::signal(kept)), SIGUSR1);
        drop(keeper);
        assert_eq!(known(&action(SIGUSR1)), before);
    });
}

#[test]
#[allow(clippy::zombie_processes)] // the source reaps it
fn other_threads_wait_for_signals_and_children() {
    on_each("other_threads_wait_for_signals_and_children", |driver| {
        let mut b = bench(driver);
        let signals = b.watcher.signals(&[SIGUSR1]).unwrap();
        let mut child = shell(5);
        let source = b.watcher.child(child.id()).unwrap();
        let submitter = b.submitter();
        let ops = thread::spawn(move || {
            let signal = submitter.submit(Op::signal(signals).token(1)).expect("a ticket");
            let exit = submitter.submit(Op::child_exit(source).token(2)).expect("a ticket");
            send(SIGUSR1);
            (signal, exit)
        });
        let c = b.next();
        assert_eq!(c.token, 1);
        expect_signal(c, SIGUSR1);
        drop(child.stdin.take());
        let c = b.next();
        assert_eq!(c.token, 2);
        expect_code(c, 5);
        join(ops, "the thread that submits");
    });
}

/// The source reaps its child only: others keep their status, and std finds its own gone.
#[test]
fn other_children_keep_their_status() {
    on_each("other_children_keep_their_status", |driver| {
        let mut b = bench(driver);
        let (mut ours, mut others) = (shell(1), [shell(2), shell(3)]);
        let source = b.watcher.child(ours.id()).unwrap();
        let sigchld = b.watcher.signals(&[SIGCHLD]).unwrap();
        let ticket = b.submit(Op::child_exit(source));
        drop(others[0].stdin.take());
        expect_signal(b.run(Op::signal(sigchld)), SIGCHLD);
        b.look();
        assert!(b.is_open(ticket));
        drop(ours.stdin.take());
        expect_code(b.end(ticket), 1);
        drop(others[1].stdin.take());
        for (at, other) in others.iter_mut().enumerate() {
            assert_eq!(other.wait().unwrap().code(), Some(2 + at as i32));
        }
        assert_eq!(ours.try_wait().unwrap_err().raw_os_error(), Some(libc::ECHILD));
        // The other way round: what other code has reaped is gone.
        let mut theirs = shell(4);
        let source = b.watcher.child(theirs.id()).unwrap();
        assert_eq!(theirs.wait().unwrap().code(), Some(4));
        for _ in 0..2 {
            expect_unmoved(b.run(Op::child_exit(source)), ErrorKind::Os(libc::ECHILD));
        }
        // A source that is aborted leaves the child to the program.
        let mut theirs = shell(4);
        let source = b.watcher.child(theirs.id()).unwrap();
        let ticket = b.submit(Op::child_exit(source));
        b.watcher.abort(source);
        expect_unmoved(b.end(ticket), ErrorKind::Aborted);
        assert_eq!(theirs.wait().unwrap().code(), Some(4));
        b.watcher.abort(sigchld);
        b.expect_all_ended();
    });
}

/// A process that ignores SIGCHLD has no zombies: there is no status. A source of SIGCHLD does not
/// change that.
#[test]
fn an_ignored_sigchld_leaves_no_status() {
    on_each("an_ignored_sigchld_leaves_no_status", |driver| {
        let before = install(SIGCHLD, libc::SIG_IGN, 0);
        let mut b = bench(driver);
        let sigchld = b.watcher.signals(&[SIGCHLD]).unwrap();
        let mut child = shell(1);
        let source = b.watcher.child(child.id()).unwrap();
        let ticket = b.submit(Op::child_exit(source));
        b.look();
        drop(child.stdin.take());
        expect_unmoved(b.end(ticket), ErrorKind::Os(libc::ECHILD));
        assert!(b.watcher.abort(sigchld));
        assert_eq!(action(SIGCHLD).sa_sigaction, libc::SIG_IGN);
        install(SIGCHLD, before.sa_sigaction, before.sa_flags);
        b.expect_all_ended();
    });
}

#[cfg(target_os = "linux")]
#[test]
fn no_descriptor_is_left() {
    on_each("no_descriptor_is_left", |driver| {
        let mut b = bench(driver);
        b.pass(std::time::Duration::from_millis(1));
        let before = system::descriptors();
        for round in 0..20 {
            let signals = b.watcher.signals(&[SIGUSR1]).unwrap();
            let mut shell = shell(1);
            let child = b.watcher.child(shell.id()).unwrap();
            let pending = [b.submit(Op::signal(signals)), b.submit(Op::child_exit(child))];
            b.look();
            drop(shell.stdin.take());
            expect_code(b.end(pending[1]), 1);
            b.watcher.abort(signals);
            if round % 2 == 0 {
                b.watcher.abort(child);
            } else {
                b.run(Op::close(child));
            }
            b.now();
            // Refusals leave none either.
            assert!(b.watcher.signals(&[SIGUSR1, 99]).is_err());
            assert!(b.watcher.child(std::process::id()).is_err());
        }
        assert_eq!(system::descriptors(), before);
        b.watcher.signals(&[SIGUSR1]).unwrap();
        drop(b);
        assert!(system::descriptors() < before, "the watcher's own are closed, too");
    });
}

/// Where there is no pidfd, the refusal says so.
#[cfg(all(target_os = "linux", not(windlass_kqueue)))]
#[test]
fn without_pidfds_children_are_refused() {
    child::in_child("without_pidfds_children_are_refused", || {
        let mut b = bench(DriverKind::Epoll);
        let mut child = shell(7);
        system::deny(&[libc::SYS_pidfd_open], libc::ENOSYS);
        assert_eq!(b.watcher.child(child.id()), Err(Refusal::Os(libc::ENOSYS)));
        // The replacement that the documentation names.
        drop(child.stdin.take());
        let ticket = b.submit(Op::run(move || child.wait().map(|status| status.code())));
        let Ok(Done::Returned(status)) = b.end(ticket).result else { panic!("a job") };
        let status = status.downcast::<std::io::Result<Option<i32>>>().expect("a status");
        assert_eq!(status.unwrap(), Some(7));
        b.expect_all_ended();
    });
}

/// A forked child: its signals come to it, the parent's to the parent, and none is lost on the way.
#[test]
fn a_forked_child_has_signals_of_its_own() {
    on_each("a_forked_child_has_signals_of_its_own", |driver| {
        let mut b = bench(driver);
        let signals = b.watcher.signals(&[SIGUSR1, SIGUSR2]).unwrap();
        let mut shell = shell(3);
        let child = b.watcher.child(shell.id()).unwrap();
        let exit = b.submit(Op::child_exit(child));
        let signal = b.submit(Op::signal(signals));
        b.look();
        let before = known(&action(SIGUSR1));
        let (mut told, tell) = std::io::pipe().unwrap();
        let mut both = Some(b);
        // SAFETY: this process has no other thread that uses what the child does.
        let forked = match unsafe { libc::fork() } {
            0 => {
                // SAFETY: ends the child if it hangs; no memory is passed.
                unsafe { libc::alarm(60) };
                let said = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    let mut b = both.take().expect("it is there");
                    std::io::Read::read_exact(&mut told, &mut [0]).unwrap();
                    raise(SIGUSR2);
                    b.watcher.reinit_after_fork().unwrap();
                    for ticket in [signal, exit] {
                        expect_unmoved(b.end(ticket), ErrorKind::Forked);
                    }
                    // What came before is there, and more comes.
                    expect_signal(b.run(Op::signal(signals)), SIGUSR2);
                    let pending = b.submit(Op::signal(signals).multishot());
                    b.look();
                    for _ in 0..10 {
                        raise(SIGUSR1);
                        expect_signal(b.end(pending), SIGUSR1);
                    }
                    // These are not its children.
                    assert_eq!(b.refuse(Op::child_exit(child)).0, Refusal::Stale);
                    assert_eq!(b.watcher.counters().sources, 1);
                    assert!(b.watcher.abort(signals));
                    expect_unmoved(b.end(pending), ErrorKind::Aborted);
                    assert_ne!(known(&action(SIGUSR1)), before);
                    b.expect_all_ended();
                }));
                // SAFETY: ends the child without running the parent's exit handlers.
                unsafe { libc::_exit(i32::from(said.is_err())) }
            }
            pid => pid,
        };
        // Before the child looks at its signals: it must not take this wake-up away.
        raise(SIGUSR1);
        std::io::Write::write_all(&mut &tell, b"!").unwrap();
        let mut status = -1;
        // SAFETY: room for one status.
        assert_eq!(unsafe { libc::waitpid(forked, &mut status, 0) }, forked);
        assert_eq!(status, 0, "the child has failed");
        let mut b = both.take().expect("the child's copy is gone");
        expect_signal(b.end(signal), SIGUSR1);
        // The child's signals were not the parent's.
        let pending = b.submit(Op::signal(signals));
        b.look();
        assert!(b.is_open(pending), "the child's signal");
        raise(SIGUSR2);
        expect_signal(b.end(pending), SIGUSR2);
        drop(shell.stdin.take());
        expect_code(b.end(exit), 3);
        b.expect_all_ended();
    });
}

/// A child that drops the watcher without using it leaves the parent's alone, too.
#[test]
fn a_forked_child_may_drop_its_copy() {
    on_each("a_forked_child_may_drop_its_copy", |driver| {
        let mut b = bench(driver);
        let signals = b.watcher.signals(&[SIGUSR1]).unwrap();
        let mut both = Some(b);
        // SAFETY: as above.
        let forked = match unsafe { libc::fork() } {
            0 => {
                raise(SIGUSR1);
                drop(both.take());
                let default = action(SIGUSR1).sa_sigaction == libc::SIG_DFL;
                // SAFETY: ends the child without running the parent's exit handlers.
                unsafe { libc::_exit(i32::from(!default)) }
            }
            pid => pid,
        };
        let mut status = -1;
        // SAFETY: room for one status.
        assert_eq!(unsafe { libc::waitpid(forked, &mut status, 0) }, forked);
        assert_eq!(status, 0, "the child's copy has restored nothing");
        let mut b = both.take().expect("the child's copy is gone");
        let pending = b.submit(Op::signal(signals));
        b.look();
        assert!(b.is_open(pending), "the child's signal");
        raise(SIGUSR1);
        expect_signal(b.end(pending), SIGUSR1);
        b.expect_all_ended();
    });
}

/// Pending signals are dropped with their source. A new source begins without them.
#[test]
fn signals_go_with_their_source() {
    on_each("signals_go_with_their_source", |driver| {
        let mut watcher = Watcher::builder().driver(driver).build().unwrap();
        let keeper = watcher.signals(&[SIGUSR1]).unwrap();
        for _ in 0..10 {
            let source = watcher.signals(&[SIGUSR1]).unwrap();
            raise(SIGUSR1);
            assert!(watcher.abort(source));
            let source = watcher.signals(&[SIGUSR1]).unwrap();
            watcher.submit(Op::signal(source)).unwrap();
            let mut done = Completions::new();
            assert_eq!(watcher.try_wait(&mut done).unwrap(), 0);
            assert!(watcher.abort(source));
            until("the abort", || watcher.try_wait(&mut done).unwrap() > 0);
        }
        watcher.submit(Op::signal(keeper)).unwrap();
        assert_eq!(watcher.try_wait(&mut Completions::new()).unwrap(), 1);
    });
}
