//! Calls that always fail, as under seccomp filters or on broken networks: each failure is an error
//! of its operation, and no loop spins. Each test runs in a process of its own.

use std::net::TcpStream;
use std::time::Duration;

use windlass::fs::CopyOptions;
use windlass::{ErrorKind, Op, Reason, Watcher};

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

/// close(2) of a file reports lost data.
pub fn a_close_that_fails_says_so<H: Harness>() {
    let name = "denied::a_close_that_fails_says_so";
    child::in_child(&format!("{}::{name}", H::STAMP), || {
        let directory = Directory::new();
        std::fs::write(directory.at("a"), "perhaps").unwrap();
        for (threads, errno) in [(true, libc::EIO), (true, libc::EINTR), (false, libc::ENOSPC)] {
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
            assert_eq!(b.refuse(Op::sync_all(file)).0, Reason::Stale, "it is gone nevertheless");
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
