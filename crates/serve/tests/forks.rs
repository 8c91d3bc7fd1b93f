//! A process that forks while connections are open.
//!
//! Of the promises on the page of the crate: P1 and P2.
#![allow(missing_docs)] // a test binary has no users
#![cfg(target_os = "linux")]
#![allow(unsafe_code)] // fork(2) needs libc

#[allow(dead_code, unreachable_pub)]
#[path = "common/children.rs"]
mod children;
mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, Stdio};
use std::time::Duration;

use common::engine::Loop;
use common::turns::Turns;
use common::{Epoll, Harness, Poll, Uring};
use windlass::Completions;
use windlass_serve::{Cause, Config, Event, Id};

systems_drivers! {
    a_program_that_is_started_holds_no_connection
}

/// A connection, and its peer, which waits for a minute at most.
fn connection<T: Harness>() -> (Loop<T::Driver>, TcpStream, Id) {
    let mut l = Loop::new::<T>(Config::new().close_on_eof(false));
    let client = TcpStream::connect(l.address.ip().expect("of TCP")).expect("a connection");
    client.set_read_timeout(Some(Duration::from_secs(60))).expect("the option");
    l.until("it is open", |l| !l.opened.is_empty());
    let id = l.opened[0];
    (l, client, id)
}

/// Otherwise a peer would hear of the end of its connection when that program ends.
fn a_program_that_is_started_holds_no_connection<T: Harness>() {
    let (mut l, mut client, id) = connection::<T>();
    // It ends when its input does.
    let mut program = Command::new("cat").stdin(Stdio::piped()).spawn().expect("cat");
    assert!(l.engine.abort(id));
    l.engine.flush(&mut l.watcher);
    l.until("it has ended", |l| !l.ends.is_empty());
    assert_eq!(client.read(&mut [0; 9]).expect("an end of file"), 0);
    assert!(program.try_wait().expect("it is a child").is_none(), "the program still runs");
    drop(program.stdin.take());
    assert!(program.wait().expect("it is a child").success());
}

/// The child has the sockets, too. Whatever it does with its engine, the parent's connection goes
/// on.
#[test]
fn a_forked_child_leaves_the_connections_alone() {
    // A process of its own: no other test runs in it.
    let name = "a_forked_child_leaves_the_connections_alone";
    if children::role().is_none() {
        let output = children::command(name, "fork").output().expect("this binary runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        return;
    }
    goes_on_beside_a_child::<Epoll>();
    goes_on_beside_a_child::<Uring>();
    goes_on_beside_a_child::<Poll>();
}

fn goes_on_beside_a_child<T: Harness>() {
    for waits in [false, true] {
        let (mut l, mut client, id) = connection::<T>();
        let output = if waits { 8 << 20 } else { 0 };
        l.engine.write(id, vec![7; output]).expect("the connection takes it");
        l.engine.flush(&mut l.watcher);
        l.run_for(Duration::from_millis(20));
        // SAFETY: no other thread of this process holds a lock of what the child uses.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: ends the child if it hangs; no memory is passed.
            unsafe { libc::alarm(60) };
            let said = catch_unwind(AssertUnwindSafe(|| in_child(l, id)));
            // SAFETY: ends the child without running the parent's exit handlers.
            unsafe { libc::_exit(i32::from(said.is_err())) }
        }
        assert!(child > 0, "{}", std::io::Error::last_os_error());
        let mut status = -1;
        // SAFETY: room for one status.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0, "the child has failed, or hangs");
        l.engine.write(id, "hello").expect("the connection goes on");
        l.engine.flush(&mut l.watcher);
        let reader = std::thread::spawn(move || {
            let mut heard = vec![0; output + 5];
            client.read_exact(&mut heard).expect("all output");
            client.write_all(b"hello").expect("it is heard");
            (client, heard)
        });
        l.until("it is answered", |l| l.told.contains(&"data"));
        let (mut client, heard) = reader.join().expect("it has heard all");
        assert!(heard.ends_with(b"hello") && heard[..output].iter().all(|&byte| byte == 7));
        assert!(l.engine.close(id));
        l.engine.flush(&mut l.watcher);
        l.run_for(Duration::from_millis(20));
        assert_eq!(client.read(&mut [0; 9]).expect("an end of file"), 0);
        drop(client);
        l.until("it has ended", |l| !l.ends.is_empty());
        assert_eq!((l.ends[0].0, l.ends[0].1), (Cause::Closed, 0));
    }
}

/// What the child does with what it has of the parent: writes, ends, and drops all.
fn in_child<D: windlass::driver::Driver>(mut l: Loop<D>, id: Id) {
    let _ = l.engine.write(id, "of the child");
    l.engine.flush(&mut l.watcher);
    // The watcher refuses the write, and so the connection has ended here.
    assert!(!l.engine.close(id) && !l.engine.abort(id));
    assert!(l.watcher.wait_timeout(&mut Completions::new(), Duration::ZERO).is_err());
    l.engine.end(&mut l.watcher);
    let mut causes = Vec::new();
    while let Some(event) = l.engine.next_event(&mut l.watcher) {
        if let Event::Closed { cause, .. } = event {
            causes.push(cause);
        }
    }
    assert_eq!((causes, l.engine.is_empty()), (vec![Cause::Rejected], true));
}
