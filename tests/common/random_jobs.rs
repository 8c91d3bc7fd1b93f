//! The jobs of random programs.
#![allow(unreachable_pub)] // test binaries have no users

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use windlass::{Completion, Done, ErrorKind, Op};

/// What a job says when it panics.
const PANIC: &str = "a job of a random program";

/// A job, and how often it has run.
#[derive(Clone, Debug)]
pub struct Job {
    ran: Arc<AtomicU32>,
    panics: bool,
}

impl Job {
    /// A job that is busy for a time, and returns `number` or panics.
    pub fn new(number: u64, busy: Duration, panics: bool) -> (Job, Op) {
        let ran = Arc::new(AtomicU32::new(0));
        let inside = Arc::clone(&ran);
        let op = Op::run(move || {
            let end = Instant::now() + busy;
            while Instant::now() < end {
                std::thread::yield_now();
            }
            inside.fetch_add(1, Ordering::Relaxed);
            if panics {
                // As a panic, but nothing is printed.
                std::panic::resume_unwind(Box::new(PANIC));
            }
            number
        });
        (Job { ran, panics }, op)
    }

    pub fn has_run(&self) -> bool {
        self.ran.load(Ordering::Relaxed) == 1
    }

    pub fn panics(&self) -> bool {
        self.panics
    }

    /// Whether it may have ended this way: it ran once if it returned or panicked, and else was
    /// dropped without a run.
    pub fn fits(&self, c: &Completion) -> bool {
        let ran = self.ran.load(Ordering::Relaxed);
        match &c.result {
            Ok(Done::Returned(_)) => ran == 1 && !self.panics,
            Ok(_) => false,
            Err(error) if error.kind() == ErrorKind::Panicked => {
                ran == 1 && self.panics && **error.buf() == *PANIC.as_bytes()
            }
            Err(_) => ran == 0 && Arc::strong_count(&self.ran) == 1,
        }
    }
}
