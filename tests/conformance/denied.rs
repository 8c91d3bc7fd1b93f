//! Calls that always fail, as filters of system calls and broken networks make them: each is an error of
//! its operation, and no loop spins. Each test runs in a process of its own.

use std::net::TcpStream;
use std::time::Duration;

use windlass::{ErrorKind, Op};

use crate::common::system::deny;
use crate::common::*;

/// Errors that accept(2) tells of single connections, told again and again.
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
            assert!(!end.more());
            expect_errno(end, &[errno]);
            let counters = b.watcher.counters();
            let calls = counters.calls("accept");
            assert!((10..=2000).contains(&calls), "errno {errno}: {calls} calls");
            assert_eq!(counters.vain_accepts, calls);
            assert!(counters.turns <= 2000, "errno {errno}: {counters:?}");
            // The rest goes on.
            b.pass(Duration::from_millis(1));
            b.expect_all_ended();
        }
    });
}

/// What a peer can cause again and again ends no accept, but is not tried without a pause.
pub fn connections_that_are_gone_end_no_accept<H: Harness>() {
    let name = "denied::connections_that_are_gone_end_no_accept";
    child::in_child(&format!("{}::{name}", H::STAMP), || {
        let mut b = H::bench();
        let (listener, at) = b.listen();
        let _client = TcpStream::connect(at.ip().expect("of TCP")).unwrap();
        deny(&[libc::SYS_accept4], libc::ECONNABORTED);
        let accept = b.submit(Op::accept(listener));
        b.look_for(Duration::from_millis(200));
        assert!(b.is_open(accept));
        let counters = b.watcher.counters();
        let vain = counters.vain_accepts;
        assert!((1024..60_000).contains(&vain), "{vain} accepts in a fifth of a second");
        assert!(b.watcher.cancel(accept));
        expect_error(b.end(accept), ErrorKind::Cancelled);
        b.expect_all_ended();
    });
}
