//! A file's bytes over a stream socket.

use std::io::Read;
use std::net::TcpStream;
#[cfg(unix)]
use std::os::unix::net::UnixStream;
use std::time::Duration;

use windlass::driver::{Driver, ExplainRow};
use windlass::{Done, ErrorKind, Handle, Op, Refusal, Source};

use crate::common::files::*;
use crate::common::*;

/// Bytes of the file: more than a socket holds.
const LEN: usize = 12 << 20;

fn source<H: Harness>(len: usize) -> (Directory, Bench<H::Driver>, Source) {
    let directory = Directory::new();
    std::fs::write(directory.at("a"), pattern(len, 1)).unwrap();
    let mut b = H::bench();
    let file = b.watcher.attach(std::fs::File::open(directory.at("a")).unwrap()).unwrap();
    (directory, b, file)
}

/// Blocking sockets of std, attached as they are.
fn pairs() -> [(Handle, Handle); 2] {
    let (a, b) = system::tcp_pair();
    #[cfg(unix)]
    let (c, d) = UnixStream::pair().unwrap();
    #[cfg(not(unix))]
    let (c, d) = system::tcp_pair();
    [(a.into(), b.into()), (c.into(), d.into())]
}

fn attach<D: Driver>(b: &mut Bench<D>, pair: (Handle, Handle)) -> (Source, Source) {
    (b.watcher.attach(pair.0).unwrap(), b.watcher.attach(pair.1).unwrap())
}

/// Turns the loop until a part of a file is out, which a thread may have to read before. Returns
/// how many bytes are left.
fn look_until_some_is_out<D: Driver>(b: &mut Bench<D>, here: Source) -> usize {
    until("the first bytes are out", || {
        b.look_for(Duration::from_millis(1));
        b.watcher.queued_bytes(here).unwrap() < LEN
    });
    b.watcher.queued_bytes(here).unwrap()
}

pub fn ranges_of_a_file_are_sent<H: Harness>() {
    let (_directory, mut b, file) = source::<H>(100_000);
    for pair in pairs() {
        let (here, there) = attach(&mut b, pair);
        for (offset, len, sent) in [
            (0, 100_000, 100_000),
            (0, 1, 1),
            (5_000, 70_000, 70_000),
            (99_999, 1, 1),
            // Up to the end of the file.
            (99_000, 5_000, 1_000),
            (0, i32::MAX as usize, 100_000),
            (100_000, 10, 0),
            (1 << 40, 10, 0),
            (60_000, 40_001, 40_000),
        ] {
            let ticket = b.submit(Op::send_file(here, file, offset, len).token(3));
            let end = offset as usize + sent;
            if sent > 0 {
                let wanted = &pattern(100_000, 1)[offset as usize..end];
                expect_same(&b.read_exact(there, sent), wanted);
            }
            let c = b.end(ticket);
            assert_eq!((c.token, c.source, c.bytes()), (3, here, sent));
            assert_eq!(expect_sent(c), sent);
            assert_eq!(b.watcher.queued_bytes(here), Ok(0));
        }
        for len in [0, (1 << 31) + 1] {
            assert_eq!(b.refuse(Op::send_file(here, file, 0, len)).0, Refusal::BadCount);
        }
        b.expect_alive(here, there);
    }
    b.expect_all_ended();
}

/// What does not fit into the socket goes out as the reader takes it.
pub fn a_slow_reader_gets_everything<H: Harness>() {
    let (_directory, mut b, file) = source::<H>(LEN);
    for (multishot, pair) in [false, true].into_iter().zip(pairs()) {
        let (here, there) = attach(&mut b, pair);
        let op = Op::send_file(here, file, 0, LEN);
        let ticket = b.submit(if multishot { op.multishot() } else { op });
        let queued = look_until_some_is_out(&mut b, here);
        assert!(b.is_open(ticket), "a silent peer took it all");
        assert!(queued > 0, "{queued}");
        let got = b.read_exact(there, LEN);
        expect_same(&got, &pattern(LEN, 1));
        let (mut told, mut parts) = (0, 0);
        loop {
            let c = b.end(ticket);
            let more = c.has_more();
            told += expect_sent(c);
            parts += 1;
            if !more {
                break;
            }
        }
        assert_eq!(told, LEN);
        assert_eq!(parts > 1, multishot, "{parts} parts");
        assert_eq!(b.watcher.queued_bytes(here), Ok(0));
    }
    b.expect_all_ended();
}

pub fn a_file_has_its_place_among_the_writes<H: Harness>() {
    let (_directory, mut b, file) = source::<H>(LEN);
    for pair in pairs() {
        let (here, there) = attach(&mut b, pair);
        let open = [
            b.submit(Op::write(here, "head")),
            b.submit(Op::send_file(here, file, 0, LEN)),
            b.submit(Op::write(here, "between")),
            b.submit(Op::send_file(here, file, 10, 20)),
            b.submit(Op::send_file(here, file, LEN as u64 - 5, 20)),
            b.submit(Op::write(here, "tail")),
            b.submit(Op::shutdown(here)),
        ];
        let all = pattern(LEN, 1);
        let wanted =
            [b"head", &all[..], b"between", &all[10..30], &all[LEN - 5..], b"tail"].concat();
        expect_same(&b.read_to_end(there), &wanted);
        let mut order = Vec::new();
        while b.open() > 0 || b.unasked() > 0 {
            let c = b.next();
            assert!(c.error_kind().is_none(), "{c:?}");
            order.push(c.ticket());
        }
        assert_eq!(order, open);
    }
    b.expect_all_ended();
}

/// The socket goes while the file is let in: what was found of it before says nothing any more.
pub fn a_socket_that_goes_meanwhile_is_stale<H: Harness>() {
    let (directory, mut b, _file) = source::<H>(100);
    let (listener, at) = b.listen();
    let accept = b.submit(Op::accept(listener));
    let [pair, _] = pairs();
    let (here, there) = attach(&mut b, pair);
    let submitter = b.submitter();
    submitter.abort(here);
    let connect = submitter.submit(Op::connect(at)).unwrap();
    let file = std::fs::File::open(directory.at("a")).unwrap();
    let file = submitter.attach(file).unwrap();
    let refused = b.try_submit(Op::send_file(here, file, 0, 100)).unwrap_err();
    assert_eq!(refused.0, Refusal::Stale);
    expect_eof(b.run(Op::read(there)));
    expect_connected(b.end(connect));
    expect_accepted(b.end(accept));
    b.expect_all_ended();
}

/// The stream has a hole where a file was cut: what stood behind it is torn, what comes later is
/// not.
pub fn a_file_that_is_cut_tears_what_is_behind<H: Harness>() {
    for ends in ["cancel", "deadline", "aborted", "error"] {
        let (directory, mut b, file) = source::<H>(LEN);
        for pair in pairs() {
            let (here, there) = attach(&mut b, pair);
            let sending = b.submit(Op::send_file(here, file, 0, LEN));
            look_until_some_is_out(&mut b, here);
            let behind = [
                b.submit(Op::write(here, "behind")),
                b.submit(Op::send_file(here, file, 0, 9)),
                b.submit(Op::shutdown(here)),
            ];
            let mut got = 0;
            let kind = match ends {
                "cancel" => {
                    assert!(b.watcher.cancel(sending));
                    ErrorKind::Cancelled
                }
                "deadline" => {
                    b.watcher.reschedule(sending, Duration::from_millis(5)).unwrap();
                    ErrorKind::Deadline
                }
                "aborted" => {
                    assert!(b.watcher.abort(file));
                    // It is missed when there is room again.
                    while b.is_open(sending) {
                        got += b.read(there).len();
                        b.look();
                    }
                    ErrorKind::Os(libc::EBADF)
                }
                _ => {
                    let reset = b.watcher.detach(there).unwrap();
                    drop(reset);
                    let c = b.end(sending);
                    assert!(c.bytes() > 0);
                    expect_errno(c, RESET);
                    for ticket in behind {
                        let kind = b.end(ticket).error_kind();
                        assert!(kind.is_some(), "{kind:?}");
                    }
                    assert!(b.watcher.abort(here));
                    continue;
                }
            };
            let (bytes, _) = expect_error(b.end(sending), kind);
            assert!(bytes > 0 && bytes < LEN);
            for ticket in behind {
                expect_unmoved(b.end(ticket), ErrorKind::Torn);
            }
            assert_eq!(b.watcher.queued_bytes(here), Ok(0));
            // As many as it says.
            if bytes > got {
                b.read_exact(there, bytes - got);
            }
            b.expect_alive(here, there);
            if ends == "aborted" {
                let again = std::fs::File::open(directory.at("a")).unwrap();
                let file = b.watcher.attach(again).unwrap();
                let ticket = b.submit(Op::send_file(here, file, 0, 9));
                expect_same(&b.read_exact(there, 9), &pattern(LEN, 1)[..9]);
                assert_eq!(expect_sent(b.end(ticket)), 9);
                break;
            }
        }
        b.expect_all_ended();
    }
}

/// A cancel before the first byte tears nothing.
pub fn a_file_that_waits_can_be_cancelled<H: Harness>() {
    let (_directory, mut b, file) = source::<H>(1000);
    let stuck = b.stuck();
    let waits = b.submit(Op::send_file(stuck.writer, file, 0, 1000));
    let behind = b.submit(Op::write(stuck.writer, "behind"));
    assert!(b.watcher.cancel(waits));
    expect_unmoved(b.end(waits), ErrorKind::Cancelled);
    let all = b.read_exact(stuck.peer, stuck.bytes.len() + 6);
    assert_eq!(&all[stuck.bytes.len()..], b"behind");
    expect_written(b.end(stuck.ticket));
    expect_written(b.end(behind));
    b.expect_all_ended();
}

/// Sockets of std block; they are attached as they are and get their mode back.
#[cfg(unix)]
pub fn blocking_sockets_are_given_back_as_they_were<H: Harness>() {
    let (_directory, mut b, file) = source::<H>(1000);
    let (here, mut there) = system::tcp_pair();
    assert!(system::is_blocking(&here));
    let source = b.watcher.attach(here).unwrap();
    assert_eq!(expect_sent(b.run(Op::send_file(source, file, 0, 1000))), 1000);
    let handle = b.watcher.detach(source).unwrap();
    let here = TcpStream::from(handle.into_fd().unwrap());
    assert!(system::is_blocking(&here));
    let mut got = vec![0; 1000];
    there.read_exact(&mut got).unwrap();
    expect_same(&got, &pattern(1000, 1));
    // A shared blocking socket would have to become non-blocking for its other users, too.
    let shared = b.watcher.attach_dup(&here).unwrap();
    assert_eq!(b.refuse(Op::send_file(shared, file, 0, 10)).0, Refusal::Unsupported);
    assert!(system::is_blocking(&here));
    b.write(shared, "plain");
    here.set_nonblocking(true).unwrap();
    assert_eq!(expect_sent(b.run(Op::send_file(shared, file, 0, 10))), 10);
    b.expect_all_ended();
}

/// Short files, one behind the other, on a socket that has been waited for: each ends by itself.
pub fn the_end_of_a_file_needs_no_room<H: Harness>() {
    let (_directory, mut b, file) = source::<H>(1000);
    for pair in pairs() {
        let (here, there) = attach(&mut b, pair);
        // The kernel knows the socket, and has told that it takes bytes.
        let stuck = pattern(LEN, 2);
        let ticket = b.submit(Op::write(here, stuck.clone()));
        expect_same(&b.read_exact(there, LEN), &stuck);
        expect_written(b.end(ticket));
        b.pass(Duration::from_millis(5));
        for multishot in [false, true] {
            let op = Op::send_file(here, file, 500, 5000);
            let ticket = b.submit(if multishot { op.multishot() } else { op });
            expect_same(&b.read_exact(there, 500), &pattern(1000, 1)[500..]);
            let mut told = 0;
            loop {
                let c = b.end(ticket);
                let more = c.has_more();
                match c.result {
                    Ok(Done::Sent(bytes)) => told += bytes,
                    other => panic!("{other:?}"),
                }
                if !more {
                    break;
                }
            }
            assert_eq!(told, 500);
            b.pass(Duration::from_millis(5));
        }
    }
    b.expect_all_ended();
}

/// sendfile(2) takes no `MSG_NOSIGNAL`. Still, a disconnected peer raises no SIGPIPE, however the
/// program handles the signal, and a pending SIGPIPE of the program stays.
#[cfg(unix)]
pub fn a_disconnected_peer_raises_no_signal<H: Harness>() {
    let name = "send_file::a_disconnected_peer_raises_no_signal";
    child::in_child(&format!("{}::{name}", H::STAMP), || {
        let (_directory, mut b, file) = source::<H>(LEN);
        let mut fail = || {
            for pair in pairs() {
                let (here, there) = attach(&mut b, pair);
                let send = b.submit(Op::send_file(here, file, 0, LEN));
                b.look();
                assert!(b.watcher.abort(there));
                let gone = [libc::EPIPE, libc::ECONNRESET];
                expect_errno(b.end(send), &gone);
                // And once it is known.
                expect_errno(b.run(Op::send_file(here, file, 0, 10)), &gone);
                assert!(b.watcher.abort(here));
            }
        };
        let set = |what| {
            // SAFETY: no handler of ours is called; one thread looks at this.
            unsafe { libc::signal(libc::SIGPIPE, what) }
        };
        fail();
        set(libc::SIG_DFL);
        fail();
        assert_eq!(pending(), (false, false), "blocked and pending");
        // The program blocks it, and one is pending.
        let mut only = none();
        // SAFETY: a valid set.
        unsafe { libc::sigaddset(&mut only, libc::SIGPIPE) };
        // SAFETY: the set lives across the call.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &only, std::ptr::null_mut()) };
        fail();
        assert_eq!(pending(), (true, false), "blocked and pending");
        // SAFETY: it names this thread.
        let this = unsafe { libc::pthread_self() };
        // SAFETY: this thread runs.
        unsafe { libc::pthread_kill(this, libc::SIGPIPE) };
        fail();
        assert_eq!(pending(), (true, true), "blocked and pending");
        set(libc::SIG_IGN);
    });
}

#[cfg(unix)]
fn none() -> libc::sigset_t {
    // SAFETY: all zeroes is memory for a set.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: room for a set.
    unsafe { libc::sigemptyset(&mut set) };
    set
}

/// Whether this thread blocks SIGPIPE, and has one pending.
#[cfg(unix)]
fn pending() -> (bool, bool) {
    let (mut blocked, mut waits) = (none(), none());
    // SAFETY: no set is asked for; the other lives across the call.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &mut blocked) };
    // SAFETY: the set lives across the call.
    unsafe { libc::sigpending(&mut waits) };
    // SAFETY: valid sets.
    let has = |set: &libc::sigset_t| unsafe { libc::sigismember(set, libc::SIGPIPE) == 1 };
    (has(&blocked), has(&waits))
}

/// The bytes of a file that go out begin the idle time anew.
pub fn the_bytes_of_a_file_count_for_the_idle_timeout<H: Harness>() {
    let (_directory, mut b, file) = source::<H>(1000);
    let timeout = Duration::from_millis(400);
    for pair in pairs() {
        let (here, there) = attach(&mut b, pair);
        let before = b.watcher.counters().idle_timeouts;
        b.watcher.set_idle_timeout(here, Some(timeout)).unwrap();
        let read = b.submit(Op::read(here));
        let start = b.watcher.update_now();
        let mut last = start;
        while b.watcher.update_now() < start + 2 * timeout {
            // A round that a loaded machine stretches proves nothing.
            let began = b.watcher.now();
            last = began;
            let send = b.submit(Op::send_file(here, file, 0, 1000));
            assert_eq!(expect_sent(b.end(send)), 1000);
            b.read_exact(there, 1000);
            b.pass(timeout / 4);
            if b.watcher.now() > began + timeout {
                return;
            }
            assert!(b.is_open(read), "bytes have gone out");
        }
        expect_unmoved(b.end(read), ErrorKind::Deadline);
        assert!(b.watcher.now() >= last + timeout, "early");
        assert_eq!(b.watcher.counters().idle_timeouts, before + 1);
        b.expect_alive(here, there);
    }
    b.expect_all_ended();
}

/// How many calls a part of a file takes that the page cache has: one or two look, and one sends. A
/// look holds for the next sends of the same part.
pub fn a_part_of_a_file_takes_few_calls<H: Harness>() {
    let (_directory, mut b, file) = source::<H>(100_000);
    let [pair, _] = pairs();
    let (here, there) = attach(&mut b, pair);
    let calls = |b: &Bench<H::Driver>| {
        let counters = b.watcher.counters();
        ["preadv2", "sendfile", "send"].map(|name| counters.calls(name))
    };
    let send = |b: &mut Bench<H::Driver>, len: usize| {
        let before = calls(b);
        let send = b.submit(Op::send_file(here, file, 0, len));
        assert_eq!(expect_sent(b.end(send)), len);
        b.read_exact(there, len);
        let after = calls(b);
        [after[0] - before[0], after[1] - before[1], after[2] - before[2]]
    };
    let first = send(&mut b, 4096);
    if first[0] == 0 || b.watcher.explain().rows.iter().any(is_fetch) {
        return; // the file system cannot tell what is in the page cache
    }
    assert_eq!(first, [1, 0, 1]);
    assert_eq!(send(&mut b, 60_000), [2, 1, 0], "its first byte and its last");
    // Unless the machine has stopped the test for 100 ms in between, each time.
    let others: Vec<_> = (0..20).map(|_| send(&mut b, 60_000)).collect();
    assert!(others.contains(&[0, 1, 0]), "{others:?}");
    b.expect_alive(here, there);
}

/// Whether a thread has read what was to be sent.
fn is_fetch(row: &ExplainRow) -> bool {
    row.operation == "send_file" && row.mechanism.starts_with("a thread") && row.count > 0
}
