//! Signals of this process and the exit of children, as operations on sources.

use std::collections::HashMap;
use std::process::ExitStatus;

use super::*;
use crate::source::SourceKind;
use crate::sys::child::Child;
use crate::sys::signals::Signals;

/// How many bytes of the source's budget a signal costs.
const SIGNAL_COST: usize = 1024;

type Answer = Result<Ticket, Reason>;

/// The reason for an errno. `EOPNOTSUPP` means that the system has no signals or children.
fn of_process(errno: i32) -> Reason {
    if errno == libc::EOPNOTSUPP { Reason::Unsupported } else { Reason::Os(errno) }
}

impl<K: Kernel> Proactor<K> {
    pub(super) fn make_signals(&mut self, signals: &[i32]) -> Result<Source, Reason> {
        self.check_room()?;
        let fd = self.kernel.signals(signals).map_err(of_process)?;
        self.adopt_of_process(fd, SourceKind::Signals)
    }

    pub(super) fn make_child(&mut self, pid: u32) -> Result<Source, Reason> {
        self.check_room()?;
        let fd = self.kernel.child(pid).map_err(of_process)?;
        self.adopt_of_process(fd, SourceKind::Child)
    }

    /// Makes a source of a descriptor that the kernel has made.
    fn adopt_of_process(&mut self, fd: RawFd, kind: SourceKind) -> Result<Source, Reason> {
        let Some((index, generation)) = self.sources.occupy() else {
            self.kernel.close(fd);
            return Err(self.full_of_sources());
        };
        self.note_forks();
        let duplicated = if self.inherited.contains(&index) { DUPLICATED } else { 0 };
        self.sources[index].open(fd, kind, duplicated);
        let source = Source::from_parts(index, generation);
        self.remote.opened(source);
        Ok(source)
    }

    #[inline(never)]
    pub(super) fn submit_of_process(
        &mut self,
        code: OpCode,
        source: Source,
        token: u64,
        due_ns: u64,
        flags: u8,
    ) -> Answer {
        let kind = if code == OpCode::Signal { SourceKind::Signals } else { SourceKind::Child };
        let index = self.usable(source)?;
        if self.sources[index].kind() != kind {
            return Err(Reason::Unsupported);
        }
        let ticket = self.place(code, index, token)?;
        self.slots[ticket.index()].multishot = flags & MULTISHOT != 0;
        let state = &mut self.sources[index];
        let first = !state.has_reads();
        state.push_read(&mut self.slots, ticket.index());
        if first && state.can_read() {
            let mut left = self.config.source_budget;
            self.run_reads(index, &mut left);
            self.requeue(index);
        }
        self.set_deadline(ticket, due_ns);
        Ok(ticket)
    }

    pub(super) fn run_signal(&mut self, index: u32, slot: u32, left: &mut usize) {
        *left = left.saturating_sub(SIGNAL_COST);
        match self.kernel.take_signal(self.sources[index].fd) {
            Ok(signal) => self.finish_read(index, slot, Ok(Done::Signal(signal))),
            Err(errno) => self.read_stopped(index, slot, -(errno as isize)),
        }
    }

    pub(super) fn run_child_exit(&mut self, index: u32, slot: u32) {
        match self.kernel.take_exit(self.sources[index].fd) {
            Ok(status) => self.finish_read(index, slot, Ok(Done::Exited(status))),
            Err(errno) => self.read_stopped(index, slot, -(errno as isize)),
        }
    }
}

/// A descriptor of signals or of a child.
enum Watched {
    Signals(Signals),
    Child(Child),
}

/// The descriptors of signals and children that a kernel has.
#[derive(Default)]
pub(super) struct OfProcess(HashMap<RawFd, Watched>);

impl OfProcess {
    pub(super) fn signals(&mut self, signals: &[i32]) -> Result<RawFd, i32> {
        let signals = Signals::new(signals)?;
        let fd = signals.raw();
        self.0.insert(fd, Watched::Signals(signals));
        Ok(fd)
    }

    pub(super) fn child(&mut self, pid: u32) -> Result<RawFd, i32> {
        let child = Child::open(pid)?;
        let fd = child.raw();
        self.0.insert(fd, Watched::Child(child));
        Ok(fd)
    }

    pub(super) fn take_signal(&mut self, fd: RawFd) -> Result<i32, i32> {
        match self.0.get(&fd) {
            Some(Watched::Signals(signals)) => signals.take().ok_or(libc::EAGAIN),
            _ => Err(libc::EBADF),
        }
    }

    pub(super) fn take_exit(&mut self, fd: RawFd) -> Result<ExitStatus, i32> {
        match self.0.get_mut(&fd) {
            Some(Watched::Child(child)) => child.take(),
            _ => Err(libc::EBADF),
        }
    }

    /// Closes a descriptor, if it is one of these.
    #[inline]
    pub(super) fn close(&mut self, fd: RawFd) -> bool {
        !self.0.is_empty() && self.0.remove(&fd).is_some()
    }

    /// In a forked child: gives signals descriptors of its own.
    pub(super) fn renew(&mut self) -> Result<(), i32> {
        for watched in self.0.values_mut() {
            if let Watched::Signals(signals) = watched {
                signals.renew()?;
            }
        }
        Ok(())
    }
}
