//! `Drained` follows whenever a program has seen a full connection.

use std::time::Duration;

use crate::common::engine::{Loop, no_times, run_for, simulated};
use crate::common::turns::Turns;
use windlass::driver::{Auto, OpCode};
use windlass::{Completions, Op, Source};
use windlass_serve::{Config, Event, Limits};

const SECOND: Duration = Duration::from_secs(1);

fn count(l: &Loop<Auto>, what: &str) -> usize {
    l.told.iter().filter(|told| **told == what).count()
}

fn reads(l: &mut Loop<Auto>, client: Source) {
    l.watcher.submit(Op::read(client).multishot().token(9)).unwrap();
}

/// The look at the completion lowers the figure that `send` compares with the mark.
#[test]
fn drained_follows_if_the_kernel_has_taken_the_output_of_before() {
    let (_, mut l) = simulated(no_times().marks(10 << 10, 100 << 10));
    let (client, id) = l.pair();
    while l.engine.waiting(id) < 50 << 10 {
        l.engine.write(id, vec![0; 40 << 10]).unwrap();
        run_for(&mut l, SECOND / 10);
    }
    assert!(!l.engine.is_full(id));
    reads(&mut l, client);
    loop {
        let mut done = Completions::new();
        l.watcher.wait(&mut done).unwrap();
        let all: Vec<_> = done.drain(..).collect();
        let is_drained = all.iter().any(|c| c.code() == OpCode::WaitDrained);
        if is_drained {
            // An operation of the program came first in the batch, and its data is to be sent.
            l.engine.write(id, vec![0; 60 << 10]).unwrap();
            assert!(l.engine.is_full(id), "the program stops here");
        }
        for c in all {
            let _ = l.engine.complete(&mut l.watcher, c);
        }
        while let Some(event) = l.engine.next_event(&mut l.watcher) {
            if matches!(event, Event::Drained { .. }) {
                l.told.push("drained");
            }
        }
        l.engine.flush(&mut l.watcher);
        if is_drained {
            break;
        }
    }
    run_for(&mut l, 10 * SECOND);
    assert!(count(&l, "drained") == 1 || l.engine.is_full(id), "{:?}", l.told);
}

/// The program writes `len` bytes in the batch in which a wait for the output ends, before the
/// engine looks at that. `Drained` came all the same, and let a proxy read one piece more.
fn drained_counts_what_is_to_be_sent(before: usize, len: usize) {
    const LOW: usize = 10 << 10;
    let (_, mut l) = simulated(no_times().marks(LOW, 50 << 10));
    let (client, id) = l.pair();
    while l.engine.waiting(id) < before {
        l.engine.write(id, vec![0; before]).unwrap();
        run_for(&mut l, SECOND / 10);
    }
    reads(&mut l, client);
    let (mut drained, mut has_written) = (0, false);
    let end = l.watcher.now() + 10 * SECOND;
    while l.watcher.now() < end {
        let mut done = Completions::new();
        l.watcher.wait_timeout(&mut done, SECOND).unwrap();
        let all: Vec<_> = done.drain(..).collect();
        if all.iter().any(|c| c.code() == OpCode::WaitDrained) && !has_written {
            l.engine.write(id, vec![0; len]).unwrap();
            assert!(l.engine.is_full(id), "the program stops here");
            has_written = true;
        }
        for c in all {
            let _ = l.engine.complete(&mut l.watcher, c);
        }
        while let Some(event) = l.engine.next_event(&mut l.watcher) {
            if matches!(event, Event::Drained { .. }) {
                let waits = l.engine.waiting(id);
                assert!(waits <= LOW, "{waits} bytes wait");
                drained += 1;
            }
        }
        l.engine.flush(&mut l.watcher);
    }
    assert!(has_written && drained == 1, "{drained} times");
}

#[test]
fn drained_waits_for_output_that_fills_the_connection_in_the_same_batch() {
    drained_counts_what_is_to_be_sent(40 << 10, 60 << 10);
}

#[test]
fn drained_waits_for_output_between_the_marks_in_the_same_batch() {
    drained_counts_what_is_to_be_sent(120 << 10, 20 << 10);
}

#[cfg(target_os = "linux")]
mod files {
    use super::*;
    use std::fs::File;

    use crate::common::{Epoll, Harness, Uring};
    use windlass_serve::Id;

    fn file(bytes: usize) -> File {
        use std::io::Write;
        use std::sync::atomic::{AtomicUsize, Ordering};
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("drained-{}-{number}", std::process::id()));
        File::create(&path).unwrap().write_all(&vec![b'x'; bytes]).unwrap();
        let file = File::open(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        file
    }

    /// Output in front of a file that the kernel takes in one flush.
    fn drained_follows<T: Harness<Driver = Auto>>(
        limits: Limits,
        act: impl Fn(&mut Loop<Auto>, Id),
    ) {
        let mut l = Loop::new::<T>(Config::new().limits(limits));
        let (client, id) = l.pair();
        reads(&mut l, client);
        act(&mut l, id);
        assert!(l.engine.is_full(id), "the program stops here");
        l.engine.flush(&mut l.watcher);
        l.until("the file is sent", |l| l.told.contains(&"file sent"));
        l.run_for(SECOND / 2);
        assert!(!l.engine.is_full(id));
        assert_eq!(count(&l, "drained"), 1, "{:?}", l.told);
    }

    fn output_in_front<T: Harness<Driver = Auto>>() {
        drained_follows::<T>(no_times().marks(1 << 10, 4 << 10), |l, id| {
            l.engine.write(id, vec![0; 8 << 10]).unwrap();
            l.engine.send_file(id, file(100), ..).unwrap();
        });
    }

    fn an_empty_file<T: Harness<Driver = Auto>>() {
        drained_follows::<T>(no_times().files(1), |l, id| {
            l.engine.send_file(id, file(100), 0..0).unwrap();
        });
    }

    #[test]
    fn drained_follows_output_in_front_of_a_file_epoll() {
        output_in_front::<Epoll>();
    }
    #[test]
    fn drained_follows_output_in_front_of_a_file_uring() {
        output_in_front::<Uring>();
    }
    #[test]
    fn drained_follows_an_empty_file_epoll() {
        an_empty_file::<Epoll>();
    }
}

#[cfg(target_os = "linux")]
mod proxies {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use crate::common::{Epoll, bench};
    use windlass::Buf;
    use windlass_serve::{Action, Conn, Handler, Id, Origin, Server};

    /// A proxy: what one connection brings goes to another one, and the first one pauses while that
    /// is full. The other one takes its output in the same turn.
    #[test]
    fn drained_follows_a_write_of_another_connections_callback() {
        #[derive(Default)]
        struct Proxy {
            ids: Vec<Id>,
            is_full: bool,
            drained: usize,
        }
        impl Handler for Proxy {
            type State = ();
            fn opened(&mut self, c: &mut Conn<'_, ()>, _: Origin) -> Action {
                self.ids.push(c.id());
                Action::None
            }
            fn data(&mut self, c: &mut Conn<'_, ()>, _: Buf) -> Action {
                let to = self.ids[0];
                c.engine().write(to, vec![0; 60 << 10]).unwrap();
                self.is_full = c.engine().is_full(to);
                c.pause();
                Action::None
            }
            fn drained(&mut self, _: &mut Conn<'_, ()>) -> Action {
                self.drained += 1;
                Action::None
            }
        }
        let config = Config::new().limits(no_times().marks(10 << 10, 100 << 10));
        let server = Server::new(|_| Proxy::default()).config(config);
        let mut b = bench::<Epoll, _, _>(server.listen("tcp://127.0.0.1:0").unwrap());
        let mut slow = TcpStream::connect(b.addresses[0].ip().unwrap()).unwrap();
        b.until("one is open", |b| b.running.handler().ids.len() == 1);
        let mut fast = TcpStream::connect(b.addresses[0].ip().unwrap()).unwrap();
        b.until("both are open", |b| b.running.handler().ids.len() == 2);
        let id = b.running.handler().ids[0];
        while b.running.engine().waiting(id) < 50 << 10 {
            b.running.engine().write(id, vec![0; 40 << 10]).unwrap();
            b.running.turn(&mut b.watcher);
            b.run_for(Duration::from_millis(20));
        }
        assert!(!b.running.engine().is_full(id), "{}", b.running.engine().waiting(id));
        // Between two turns: one client sends, and then the other one takes what the system has.
        fast.write_all(b"x").unwrap();
        slow.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        let mut bytes = vec![0; 1 << 20];
        while slow.read(&mut bytes).is_ok_and(|count| count > 0) {}
        b.turn(SECOND);
        slow.set_nonblocking(true).unwrap();
        for _ in 0..50 {
            while slow.read(&mut bytes).is_ok_and(|count| count > 0) {}
            b.run_for(Duration::from_millis(10));
        }
        assert_eq!(b.running.engine().waiting(id), 0);
        let proxy = b.running.handler();
        assert!(proxy.is_full, "the first one waits");
        assert!(proxy.drained > 0, "it goes on");
    }
}
