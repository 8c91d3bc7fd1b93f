//! A kernel that takes over reads and writes, and gives the answers that the test plans.

#![allow(unsafe_code)]
//! # Safety
//!
//! The kernel uses no memory of the operations that it has, and answers no received bytes.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::sync::{Arc, Mutex, MutexGuard};

use super::*;
use crate::driver::config::Config;
use crate::driver::remote::Wake;
use crate::kernel::{Answer, AnswerKind, Kernel, Started};
use crate::memory::buf::Buf;
use crate::memory::buf::swap::Pool;
use crate::proactor::Proactor;
use crate::sys::fd::{BorrowedFd, RawFd};
use crate::sys::target::Target;
use crate::words::clock::Clock;
use crate::words::explain::Explain;
use crate::words::source::SourceKind;

/// The answers that the test has planned, and the operations that the kernel was asked for.
#[derive(Default)]
struct Script {
    /// The answers of the next `select`.
    answers: VecDeque<Answer>,
    /// The keys of the sources whose reads and writes the kernel has.
    reads: Vec<u64>,
    writes: Vec<u64>,
    /// Whether it refuses to register anything, with `ENOSPC`.
    is_full: bool,
}

struct Scripted {
    sim: Sim,
    script: Arc<Mutex<Script>>,
    /// The answers of the last `select`, which are its last events.
    answers: Vec<Option<Answer>>,
    others: usize,
}

impl Scripted {
    fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().expect("no thread panics inside")
    }
}

// SAFETY: see above.
unsafe impl Kernel for Scripted {
    type Calls = Sim;

    const COMPLETES: bool = true;

    fn name(&self) -> &'static str {
        "scripted"
    }
    fn now_ns(&self) -> u64 {
        Kernel::now_ns(&self.sim)
    }
    fn clock(&self) -> Clock {
        Kernel::clock(&self.sim)
    }
    fn select(&mut self, timeout_ns: Option<u64>) -> io::Result<usize> {
        let answers = self.script().answers.drain(..).map(Some).collect();
        self.answers = answers;
        let timeout_ns = if self.answers.is_empty() { timeout_ns } else { Some(0) };
        self.others = Kernel::select(&mut self.sim, timeout_ns)?;
        Ok(self.others + self.answers.len())
    }
    fn event(&self, i: usize) -> (u64, Ready) {
        Kernel::event(&self.sim, i)
    }
    fn answer(&mut self, i: usize, _: &mut Pool) -> Option<Answer> {
        self.answers.get_mut(i.checked_sub(self.others)?)?.take()
    }
    fn sends(&mut self, _: SourceKind) -> bool {
        true
    }
    unsafe fn start_recv(
        &mut self,
        _: RawFd,
        key: u64,
        _: Option<Target<'_>>,
        _: bool,
        _: &mut Pool,
    ) -> Started {
        self.script().reads.push(key);
        Started::Yes
    }
    unsafe fn start_send(&mut self, _: RawFd, key: u64, _: &[IoSlice<'_>]) -> Started {
        self.script().writes.push(key);
        Started::Yes
    }
    fn register(&mut self, fd: RawFd, key: u64, writes: bool) -> Result<(), i32> {
        if self.script().is_full {
            return Err(libc::ENOSPC);
        }
        Kernel::register(&mut self.sim, fd, key, writes)
    }
    fn deregister(&mut self, fd: RawFd, key: u64) {
        Kernel::deregister(&mut self.sim, fd, key);
    }
    fn calls(&self) -> &Sim {
        &self.sim
    }
    fn calls_mut(&mut self) -> &mut Sim {
        &mut self.sim
    }
    fn waker(&self) -> Arc<dyn Wake> {
        Kernel::waker(&self.sim)
    }
    fn close(&mut self, fd: RawFd) {
        Kernel::close(&mut self.sim, fd);
    }
    fn release(&mut self, fd: RawFd, kind: SourceKind) -> Handle {
        Kernel::release(&mut self.sim, fd, kind)
    }
    fn pollable(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    fn system_calls(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
    fn explain(&self, _: &mut Explain) {}
}

/// A connection that holds `ROOM` bytes each way, with a watcher for each end.
struct Bench {
    watcher: Watcher<Proactor<Scripted>>,
    end: Source,
    _peer: (Simulated, Source),
    script: Arc<Mutex<Script>>,
}

const ROOM: usize = 100;

impl Bench {
    fn new() -> Bench {
        let sim = Sim::new(1);
        sim.set_buffer(ROOM);
        let (end, other) = sim.pair();
        let mut peer = self::watcher(&sim);
        let script = Arc::new(Mutex::new(Script::default()));
        let kernel = Scripted { sim, script: Arc::clone(&script), answers: Vec::new(), others: 0 };
        let config = Config { busy_poll: Duration::ZERO, ..Config::default() };
        let driver = Proactor::with_kernel(kernel, config, "a script".into());
        let mut watcher = Watcher::with_driver(driver);
        let end = watcher.attach(end).unwrap();
        let other = peer.attach(other).unwrap();
        Bench { watcher, end, _peer: (peer, other), script }
    }

    /// Plans an answer to the only read or write that the kernel has; the last one, if not `more`.
    fn answer(&mut self, write: bool, moved: isize, more: bool) {
        let mut script = self.script.lock().unwrap();
        let begun = if write { &mut script.writes } else { &mut script.reads };
        assert_eq!(begun.len(), 1, "the kernel has one");
        let key = if more { begun[0] } else { begun.remove(0) };
        script.answers.push_back(Answer {
            key,
            write,
            kind: AnswerKind::Moved(moved),
            data: Buf::NONE,
            more,
        });
    }

    /// The completions that come without a wait: their tokens, and how they have failed.
    fn ends(&mut self) -> Vec<(u64, Option<ErrorKind>)> {
        let mut done = Completions::new();
        self.watcher.try_wait(&mut done).unwrap();
        done.drain(..).map(|c| (c.token, c.error_kind())).collect()
    }
}

/// A read that was told to end ends with the kernel's next answer, even if the kernel reports a
/// shortage. When memory was short, the read went on and did not end.
#[test]
fn a_cancelled_read_ends_when_the_kernel_lacks_memory() {
    for errno in [libc::ENOMEM, libc::ENOBUFS, libc::EAGAIN, libc::EINTR, libc::ECANCELED] {
        let mut bench = Bench::new();
        let read = bench.watcher.submit(Op::read(bench.end).token(1)).unwrap();
        assert!(bench.watcher.cancel(read));
        bench.answer(false, -(errno as isize), false);
        assert_eq!(bench.ends(), [(1, Some(ErrorKind::Cancelled))], "errno {errno}");
        assert!(bench.script.lock().unwrap().reads.is_empty());
    }
}

/// The kernel has no bytes for a read, and refuses to watch the socket: the read fails, and the
/// source stays as usable as it was.
#[test]
fn a_source_is_usable_after_its_registration_failed() {
    let mut bench = Bench::new();
    for (read, write) in [(1, 2), (3, 4)] {
        bench.watcher.submit(Op::read(bench.end).token(read)).unwrap();
        bench.script.lock().unwrap().is_full = true;
        bench.answer(false, -(libc::EAGAIN as isize), false);
        assert_eq!(bench.ends(), [(read, Some(ErrorKind::Os(libc::ENOSPC)))]);
        bench.script.lock().unwrap().is_full = false;
        bench.watcher.submit(Op::write(bench.end, "x").token(write)).unwrap();
        assert_eq!(bench.ends(), [(write, None)]);
    }
}
