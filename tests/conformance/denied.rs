//! Calls that always fail, as under seccomp filters or on broken networks: each failure is an error
//! of its operation, and no loop spins. Each test runs in a process of its own.

use std::net::TcpStream;
use std::time::Duration;

use windlass::fs::CopyOptions;
use windlass::{ErrorKind, Op, Refusal, Watcher};

use crate::common::system::{Directory, deny, deny_of};
use crate::common::*;

/// accept(2) keeps failing with an error of a single connection.
pub fn an_accept_that_always_fails_ends<H: Harness>() {
    let name = "denied::an_accept_that_always_fails_ends";
    child::in_child(&format!("{}::{name}", H::STAMP), || {
        for errno in [libc::EPERM, libc::ENETDOWN, libc::EPROTO] {
            let mut b = H::bench();
            let (listener, at) = b.listen();
            let _client = TcpStream::connect(at.ip().expect("of TCP")).unwrap();
            deny(&[libc::SYS_accept4], errno);
            let accept = b.submit(Op::accept(listener).multishot());
            let end = b.end(accept);
            assert!(!end.has_more());
            expect_errno(end, &[errno]);
            let counters = b.watcher.counters();
            let calls = counters.calls("accept");
            assert!((10..=2000).contains(&calls), "errno {errno}: {calls} calls");
            assert_eq!(counters.accept_errors, calls);
            assert!(counters.turns <= 2000, "errno {errno}: {counters:?}");
            // The rest of the watcher works.
            b.pass(Duration::from_millis(1));
            b.expect_all_ended();
        }
    });
}

/// Errors that a peer can cause end no accept, but make it pause.
pub fn aborted_connections_end_no_accept<H: Harness>() {
    let name = "denied::aborted_connections_end_no_accept";
    child::in_child(&format!("{}::{name}", H::STAMP), || {
        let mut b = H::bench();
        let (listener, at) = b.listen();
        let _client = TcpStream::connect(at.ip().expect("of TCP")).unwrap();
        deny(&[libc::SYS_accept4], libc::ECONNABORTED);
        let accept = b.submit(Op::accept(listener));
        b.look_for(Duration::from_millis(200));
        assert!(b.is_open(accept));
        let counters = b.watcher.counters();
        let errors = counters.accept_errors;
        assert!((1024..60_000).contains(&errors), "{errors} accepts in a fifth of a second");
        assert!(b.watcher.cancel(accept));
        expect_error(b.end(accept), ErrorKind::Cancelled);
        b.expect_all_ended();
    });
}

/// Whether the process has a thread that closes descriptors.
fn does_any_thread_close() -> bool {
    let tasks = std::fs::read_dir("/proc/self/task").expect("it is mounted");
    let mut names = tasks.map(|task| std::fs::read(task.unwrap().path().join("comm")));
    names.any(|name| name.is_ok_and(|name| name == b"windlass-close\n"))
}

/// close(2) of a file reports lost data.
pub fn a_close_that_fails_says_so<H: Harness>() {
    let name = "denied::a_close_that_fails_says_so";
    child::in_child(&format!("{}::{name}", H::STAMP), || {
        let directory = Directory::new();
        std::fs::write(directory.at("a"), "perhaps").unwrap();
        for (threads, errno) in [(true, libc::EIO), (true, libc::EINTR), (false, libc::ENOSPC)] {
            // A thread that has closed before would have no filter.
            until("no thread closes", || !does_any_thread_close());
            let mut b = H::bench_with(Watcher::builder().threads(1));
            let file = std::fs::File::options().write(true).open(directory.at("a")).unwrap();
            let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
            let file = b.watcher.attach(file).unwrap();
            deny_of(libc::SYS_close, fd, errno);
            if !threads {
                // The loop closes the file.
                deny(&[libc::SYS_clone, libc::SYS_clone3], libc::EAGAIN);
            }
            let close = b.submit(Op::close(file));
            let end = b.end(close);
            assert_eq!(end.source, file);
            if cfg!(target_env = "musl") && errno == libc::EINTR {
                // musl's close(2) answers 0 for it: the descriptor is gone.
                assert!(end.result.is_ok(), "{end:?}");
            } else {
                expect_errno(end, &[errno]);
            }
            assert_eq!(b.refuse(Op::sync_all(file)).0, Refusal::Stale, "it is gone nevertheless");
            assert_eq!(b.watcher.counters().sources, 0);
            b.expect_all_ended();
        }
    });
}

/// If close(2) of a copy's target fails, the copy fails and the target is removed.
pub fn a_copy_whose_close_fails_is_removed<H: Harness>() {
    let name = "denied::a_copy_whose_close_fails_is_removed";
    child::in_child(&format!("{}::{name}", H::STAMP), || {
        let directory = Directory::new();
        std::fs::write(directory.at("a"), "bytes").unwrap();
        std::fs::write(directory.at("c"), "there before").unwrap();
        let mut b = H::bench_with(Watcher::builder().threads(1));
        // The next two numbers are those of the two files.
        let ends = std::io::pipe().unwrap();
        let numbers = [&ends.0 as &dyn std::os::fd::AsRawFd, &ends.1].map(|end| end.as_raw_fd());
        drop(ends);
        deny_of(libc::SYS_close, numbers[1], libc::EIO);
        let copy = b.run(Op::copy(directory.at("a"), directory.at("b"), CopyOptions::new()));
        assert_eq!(copy.bytes(), 5);
        expect_errno(copy, &[libc::EIO]);
        assert!(!directory.at("b").exists());
        // SAFETY: the filter has kept the number open, and nothing owns it.
        unsafe { libc::syscall(libc::SYS_close_range, numbers[1], numbers[1], 0) };
        let copy = b.run(Op::copy(directory.at("a"), directory.at("c"), CopyOptions::new()));
        expect_errno(copy, &[libc::EIO]);
        assert!(directory.at("c").exists());
        b.expect_all_ended();
    });
}

/// A signal during a connect leaves it in progress; a connect that never began ends with
/// `ENOTCONN`.
pub fn an_interrupted_connect_is_no_connection<H: Harness>() {
    let name = "denied::an_interrupted_connect_is_no_connection";
    child::in_child(&format!("{}::{name}", H::STAMP), || {
        let directory = Directory::new();
        let mut b = H::bench();
        let (listener, at) = b.listen();
        let unix = windlass::Address::unix(directory.at("listener")).unwrap();
        let other = b.watcher.listen(unix.clone()).unwrap();
        deny(&[libc::SYS_connect], libc::EINTR);
        for at in [at, unix] {
            for _ in 0..3 {
                expect_errno(b.run(Op::connect(at.clone())), &[libc::ENOTCONN]);
            }
        }
        assert!(b.watcher.abort(listener) && b.watcher.abort(other));
        assert_eq!(b.watcher.counters().sources, 0);
        b.expect_all_ended();
    });
}

/// Sends 64 datagrams to the watcher itself, and counts the calls that they take.
fn exchange<D: windlass::driver::Driver>(b: &mut Bench<D>) -> [u64; 4] {
    let calls = |b: &Bench<D>| {
        let counters = b.watcher.counters();
        ["recvmmsg", "recvmsg", "sendmmsg", "sendmsg"].map(|name| counters.calls(name))
    };
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let at = socket.local_addr().unwrap();
    let source = b.watcher.attach(socket).unwrap();
    let before = calls(b);
    let sends: Vec<_> =
        (0..64).map(|i| b.submit(Op::send_to(source, pattern(9, i), at).deferred())).collect();
    sends.into_iter().for_each(|send| drop(expect_written(b.end(send))));
    let receive = b.submit(Op::recv_from(source).multishot());
    for i in 0..64 {
        match b.next().result {
            Ok(windlass::Done::Received { data, .. }) => assert_eq!(*data, *pattern(9, i)),
            other => panic!("{other:?}"),
        }
    }
    assert!(b.watcher.cancel(receive));
    expect_unmoved(b.end(receive), ErrorKind::Cancelled);
    let mut after = calls(b);
    after.iter_mut().zip(before).for_each(|(after, before)| *after -= before);
    after
}

/// Datagrams that are there together, or are sent together, take one call. A filter that does not
/// know this call, or denies it, costs a call for each, and `explain` tells.
pub fn several_datagrams_take_one_call_unless_a_filter_denies_it<H: Harness>() {
    let name = "denied::several_datagrams_take_one_call_unless_a_filter_denies_it";
    child::in_child(&format!("{}::{name}", H::STAMP), || {
        let mut b = H::bench();
        let [recvmmsg, recvmsg, sendmmsg, sendmsg] = exchange(&mut b);
        assert!(recvmmsg <= 8 && recvmsg <= 2, "{recvmmsg} {recvmsg}");
        assert_eq!((sendmmsg, sendmsg), (2, 0));
        for errno in [libc::EPERM, libc::ENOSYS] {
            deny(&[libc::SYS_recvmmsg, libc::SYS_sendmmsg], errno);
            // The first watcher has made both calls, another one none.
            let mut another = H::bench();
            for b in [&mut b, &mut another] {
                for _ in 0..2 {
                    let [_, recvmsg, _, sendmsg] = exchange(b);
                    assert!(recvmsg >= 64 && sendmsg == 64, "{recvmsg} {sendmsg}");
                }
                let [recvmmsg, _, sendmmsg, _] = exchange(b);
                assert_eq!((recvmmsg, sendmmsg), (0, 0), "they are given up");
                let rows = b.watcher.explain().rows;
                for operation in ["recv_from of several", "send_to of several"] {
                    let row = rows.iter().find(|row| row.operation == operation).unwrap();
                    assert!(row.mechanism == "one by one" && row.count > 0, "{row:?}");
                    assert!(row.reason.contains("denied"), "{row:?}");
                }
                b.expect_all_ended();
            }
        }
    });
}

/// A firewall that drops what goes out answers `EPERM`: each send ends with it.
pub fn sends_that_a_firewall_denies_fail<H: Harness>() {
    let name = "denied::sends_that_a_firewall_denies_fail";
    child::in_child(&format!("{}::{name}", H::STAMP), || {
        let mut b = H::bench();
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let at = socket.local_addr().unwrap();
        let source = b.watcher.attach(socket).unwrap();
        deny(&[libc::SYS_sendmsg, libc::SYS_sendmmsg], libc::EPERM);
        let sends: Vec<_> =
            (0..20).map(|_| b.submit(Op::send_to(source, "out", at).deferred())).collect();
        sends.into_iter().for_each(|send| drop(expect_errno(b.end(send), &[libc::EPERM])));
        b.expect_all_ended();
    });
}
