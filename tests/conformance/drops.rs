//! C7: values of the program may panic in `Drop`. Operations still end exactly once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use windlass::driver::panicked_drops;
use windlass::{Buf, ErrorKind, Op, Source, Watcher};

use crate::common::files::*;
use crate::common::*;

/// Bytes whose owner panics when it is dropped, and counts that.
struct Loud(Arc<AtomicUsize>, Vec<u8>);

impl AsRef<[u8]> for Loud {
    fn as_ref(&self) -> &[u8] {
        &self.1
    }
}

impl Drop for Loud {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
        panic!("the Drop of what is the program's");
    }
}

/// Makes `Loud` values, and counts the dropped ones.
#[derive(Default)]
struct Maker {
    gone: Arc<AtomicUsize>,
}

impl Maker {
    fn value(&self, bytes: impl Into<Vec<u8>>) -> Loud {
        Loud(Arc::clone(&self.gone), bytes.into())
    }

    fn buf(&self, len: usize) -> Buf {
        Buf::from_owner(self.value(vec![1; len]))
    }

    /// A job whose closure panics when it is dropped.
    fn job(&self) -> Op {
        let held = self.value("held");
        Op::run(move || held.as_ref().len())
    }

    fn gone(&self) -> usize {
        self.gone.load(Ordering::SeqCst)
    }
}

/// Buffers come back with the completion, however the operation ended: the driver drops none.
pub fn loud_buffers_come_back<H: Harness>() {
    let maker = Maker::default();
    for ends in ["cancel", "deadline", "abort", "close"] {
        let mut b = H::bench();
        let stuck = b.small_stuck();
        let list = Buf::list(vec![maker.buf(7), maker.buf(7)]);
        let due = |op: Op| match ends {
            "deadline" => op.timeout(Duration::from_millis(2)),
            _ => op,
        };
        let open = [
            b.submit(due(Op::write(stuck.writer, maker.buf(9)))),
            b.submit(due(Op::write(stuck.writer, list))),
        ];
        let kind = match ends {
            "cancel" => {
                assert!(open.iter().all(|&ticket| b.watcher.cancel(ticket)));
                ErrorKind::Cancelled
            }
            "deadline" => ErrorKind::Deadline,
            "abort" => {
                assert!(b.watcher.abort(stuck.writer));
                ErrorKind::Aborted
            }
            _ => {
                b.watcher.close();
                ErrorKind::Closed
            }
        };
        let before = maker.gone();
        let lens = open.map(|ticket| {
            let buf = expect_unmoved(b.end(ticket), kind);
            let len = buf.len();
            std::mem::forget(buf);
            len
        });
        assert_eq!((lens, maker.gone()), ([9, 14], before), "{ends}");
    }
}

/// A quiet write that succeeds drops its buffer in the driver, which goes on as before.
pub fn loud_buffers_of_quiet_writes_end_in_the_driver<H: Harness>() {
    let maker = Maker::default();
    let mut b = H::bench();
    let (here, there) = b.pair();
    let before = panicked_drops();
    // At submission, then from the queue.
    b.submit_quiet(Op::write(here, maker.buf(9)));
    b.submit_quiet(Op::write(here, Buf::list(vec![maker.buf(3), maker.buf(4)])));
    assert_eq!(b.read_exact(there, 16), [1; 16]);
    assert_eq!((maker.gone(), b.watcher.counters().quiet_done), (3, 2));
    let stuck = b.small_stuck();
    b.submit_quiet(Op::write(stuck.writer, maker.buf(5)));
    let loud = b.submit(Op::write(stuck.writer, "between"));
    b.submit_quiet(Op::write(stuck.writer, Buf::list(vec![maker.buf(6), maker.buf(7)])));
    let drained = b.submit(Op::wait_drained(stuck.writer, 0));
    assert_eq!(maker.gone(), 3, "they wait");
    let len = stuck.bytes.len() + 25;
    expect_same(&b.read_exact(stuck.peer, len)[len - 13..], &[1; 13]);
    for ticket in [stuck.ticket, loud] {
        expect_written(b.end(ticket));
    }
    assert!(b.end(drained).result.is_ok());
    assert_eq!((maker.gone(), b.watcher.counters().quiet_done), (6, 4));
    // A list resumes the first panic of its parts.
    assert!(panicked_drops() >= before + 4);
    b.expect_alive(stuck.writer, stuck.peer);
    b.expect_all_ended();
}

/// Dropping the watcher drops queued writes, undelivered completions, and messages.
pub fn a_watcher_drops_all_that_is_loud<H: Harness>() {
    let maker = Maker::default();
    let mut made = 0;
    for closes in [false, true] {
        let mut b = H::bench();
        let stuck = b.small_stuck();
        let (here, _there) = b.pair();
        let submitter = b.submitter();
        for len in [3, 5] {
            b.submit(Op::write(stuck.writer, maker.buf(len)));
            b.submit(Op::write(stuck.writer, Buf::list(vec![maker.buf(len), maker.buf(len)])));
            b.submit(Op::write(here, maker.buf(len)));
            submitter.post(1, maker.value("posted")).unwrap();
            submitter.submit(Op::write(here, maker.buf(len))).unwrap();
            made += 6;
        }
        if closes {
            b.watcher.close();
        }
        let before = panicked_drops();
        drop(b);
        assert_eq!(maker.gone(), made, "all are gone, each once");
        // A list resumes the first panic of its parts.
        assert!(panicked_drops() >= before + 10, "{closes}");
    }
}

/// A closure that never runs is dropped when its operation ends.
pub fn loud_closures_lose_no_completion<H: Harness>() {
    let maker = Maker::default();
    let mut b = H::bench_with(Watcher::builder().threads(1));
    let (held, gate) = hold(&mut b);
    let before = panicked_drops();
    // Cancelled, from here and from another thread.
    let open = [(); 3].map(|()| b.submit(maker.job()));
    for ticket in open {
        assert!(b.watcher.cancel(ticket));
        assert!(!b.watcher.cancel(ticket), "it has ended");
    }
    for ticket in open {
        expect_unmoved(b.end(ticket), ErrorKind::Cancelled);
    }
    let submitter = b.submitter();
    let ticket = submitter.submit(maker.job()).unwrap();
    submitter.cancel(ticket).unwrap();
    expect_unmoved(b.end(ticket), ErrorKind::Cancelled);
    // A ticket from another thread is usable at once, as before.
    let (far, _near) = b.pair();
    let handle = b.watcher.detach(far).unwrap();
    let source = submitter.attach(handle).unwrap();
    assert_eq!(b.watcher.queued_bytes(source), Ok(0));
    // Expired.
    let open = [(); 2].map(|()| b.submit(maker.job().timeout(Duration::from_millis(2))));
    for ticket in open {
        expect_unmoved(b.end(ticket), ErrorKind::Deadline);
    }
    assert_eq!(maker.gone(), 6);
    // Later work is done.
    let later = b.submit(Op::run(|| 5u8));
    drop(gate);
    expect_held(b.end(held));
    assert_eq!(expect_returned::<u8>(b.end(later)), 5);
    assert_eq!(b.watcher.counters().in_flight, 0);
    // Closed.
    let (held, gate) = hold(&mut b);
    let open = [(); 2].map(|()| b.submit(maker.job()));
    b.watcher.close();
    drop(gate);
    for ticket in open {
        expect_unmoved(b.end(ticket), ErrorKind::Closed);
    }
    let c = b.end(held);
    assert!(c.is_late());
    expect_held(c);
    assert_eq!(maker.gone(), 8);
    assert!(panicked_drops() >= before + 8);
}

/// A closure that another thread submits, and that the loop refuses, is dropped with its operation.
pub fn loud_closures_that_the_loop_refuses_lose_no_completion<H: Harness>() {
    let maker = Maker::default();
    let mut b = H::bench_with(Watcher::builder().threads(1).max_jobs(1));
    let (held, gate) = hold(&mut b);
    let submitter = b.submitter();
    let before = panicked_drops();
    let open = [(); 3].map(|()| submitter.submit(maker.job()).unwrap());
    for ticket in open {
        expect_unmoved(b.end(ticket), ErrorKind::Os(libc::ENOBUFS));
    }
    assert_eq!(maker.gone(), 3);
    drop(gate);
    expect_held(b.end(held));
    // Those that stand in the queue when the watcher is closed.
    let open = [(); 3].map(|()| submitter.submit(maker.job()).unwrap());
    b.watcher.close();
    for ticket in open {
        expect_unmoved(b.end(ticket), ErrorKind::Closed);
    }
    assert_eq!(maker.gone(), 6);
    assert!(panicked_drops() >= before + 6);
}

/// Writes to a file return their buffers when the file is aborted or the watcher closed.
pub fn loud_buffers_of_files_come_back<H: Harness>() {
    let directory = Directory::new();
    let maker = Maker::default();
    for ends in ["abort", "close"] {
        let mut b = H::bench_with(Watcher::builder().threads(1));
        let file: Source = b.make_file(directory.at("a"));
        let (held, gate) = hold(&mut b);
        let jobs = [b.submit(maker.job()), b.submit(Op::run(|| ()))];
        let list = || Buf::list(vec![maker.buf(3), maker.buf(4)]);
        let writes = [0, 1].map(|i| b.submit(Op::write_at(file, list(), i)));
        let kind = if ends == "abort" {
            assert!(b.watcher.abort(file));
            ErrorKind::Aborted
        } else {
            b.watcher.close();
            ErrorKind::Closed
        };
        for ticket in writes {
            let buf = expect_unmoved(b.end(ticket), kind);
            assert_eq!(buf.len(), 7);
            std::mem::forget(buf);
        }
        drop(gate);
        expect_held(b.end(held));
        for ticket in jobs {
            let c = b.end(ticket);
            assert_eq!(c.error_kind().is_some(), ends == "close" || c.ticket() == jobs[0]);
        }
        assert_eq!(b.watcher.counters().in_flight, 0);
    }
}

/// On the worker's thread: the closure's captures are dropped after it has run, before its result
/// exists.
pub fn a_job_whose_own_drop_panics_is_its_error<H: Harness>() {
    let maker = Maker::default();
    let mut b = H::bench_with(Watcher::builder().threads(1));
    for _ in 0..3 {
        let buf = expect_unmoved(b.run(maker.job()), ErrorKind::Panicked);
        assert_eq!(&*buf, b"the Drop of what is the program's");
        // The thread lives on.
        let thread = b.run(Op::run(|| std::thread::current().name().map(str::to_owned)));
        assert_eq!(expect_returned::<Option<String>>(thread).as_deref(), Some("windlass-0"));
    }
    b.expect_all_ended();
}

/// Dropping the watcher drops job results that were not taken, and closures that wait.
pub fn loud_results_go_with_the_watcher<H: Harness>() {
    let maker = Maker::default();
    let mut b = H::bench_with(Watcher::builder().threads(1));
    let (says, ended) = std::sync::mpsc::channel();
    for i in 0..3 {
        let (value, says) = (maker.value("result"), says.clone());
        b.submit(Op::run(move || {
            says.send(i).unwrap();
            value
        }));
    }
    for i in 0..3 {
        assert_eq!(ended.recv_timeout(BOUND), Ok(i), "the jobs run in their order");
    }
    let (_held, gate) = hold(&mut b);
    for _ in 0..3 {
        b.submit(maker.job());
    }
    drop(gate);
    let before = panicked_drops();
    drop(b);
    assert_eq!(maker.gone(), 6);
    assert!(panicked_drops() >= before + 3);
}
