//! Operations on files: their constructors, by family.

mod attributes;
mod data;
mod directories;
mod jobs;
mod names;

use super::{Op, OpCode};
use crate::file::{Arguments, Job};
use crate::op::payload::Payload;
use crate::words::source::Source;

/// How urgent work for the threads is.
///
/// When several jobs wait, those of a higher priority are done first; one of a lower is done at the
/// latest after sixteen of higher ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Priority {
    /// Before all others.
    High,
    /// The usual.
    #[default]
    Normal,
    /// When nothing else is to do.
    Low,
}

impl Op {
    pub(super) fn job(source: Source, job: Job) -> Op {
        let mut op = Op::plain(OpCode::Job, source);
        op.payload = Payload::from(Box::new(Arguments::Job(job)));
        op
    }

    /// Says how urgent the operation is, where threads do it.
    ///
    /// Threads take the waiting jobs of a higher [`Priority`] first. It has no effect on operations
    /// that need no thread.
    ///
    /// ```
    /// use windlass::{Completions, Op, Priority, Watcher};
    /// let mut watcher = Watcher::new()?;
    /// watcher.submit(Op::metadata("Cargo.toml").priority(Priority::Low))?;
    /// watcher.wait(&mut Completions::new())?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Platforms
    ///
    /// The same everywhere. It does not change the order of the system's disk queue.
    pub const fn priority(mut self, priority: Priority) -> Op {
        self.flags &= !(HIGH | LOW);
        self.flags |= match priority {
            Priority::High => HIGH,
            Priority::Normal => 0,
            Priority::Low => LOW,
        };
        self
    }
}

/// Bits of an operation's flags.
pub(crate) const HIGH: u8 = 1 << 1;
pub(crate) const LOW: u8 = 1 << 2;
