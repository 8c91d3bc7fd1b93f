//! The simulated process: its signals and its children.

use std::process::ExitStatus;

use crate::sim::Sim;
use crate::sim::crash::Machine;
use crate::sim::kernel::Call;
use crate::sim::names::Name;
use crate::sim::world::{Role, World};
use crate::sys::fd::RawFd;
use crate::sys::{child, signals};

/// The number of the first child.
const FIRST_PID: u32 = 1000;

/// A child that was not reaped.
pub(super) struct Process {
    pid: u32,
    machine: Machine,
    ended: Option<ExitStatus>,
}

/// The children, and the number of the next one.
pub(super) struct Processes {
    children: Vec<Process>,
    next: u32,
}

impl Processes {
    pub(super) fn new() -> Processes {
        Processes { children: Vec::new(), next: FIRST_PID }
    }

    /// The children on a machine are gone.
    pub(super) fn crash(&mut self, machine: Machine) {
        self.children.retain(|child| child.machine != machine);
    }
}

/// The role of a source of a child.
pub(super) struct WatchedChild {
    pid: u32,
    /// The exit status once the child has ended, or the errno of the attempt to take it.
    pub(super) ended: Option<Result<ExitStatus, i32>>,
}

impl World {
    pub(super) fn signals(&mut self, signals: &[i32], machine: Machine) -> Result<RawFd, i32> {
        let wanted = signals::set_of(signals)?;
        let role = Role::Signals { wanted, pending: 0 };
        Ok(self.open(role, Name::None, Name::None, machine) as RawFd)
    }

    pub(super) fn take_signal(&mut self, fd: RawFd) -> Result<i32, i32> {
        match &mut self.sockets[fd as usize].role {
            Role::Signals { pending: 0, .. } => Err(libc::EAGAIN),
            Role::Signals { pending, .. } => {
                let lowest = pending.trailing_zeros();
                *pending &= *pending - 1;
                Ok(lowest as i32 + 1)
            }
            _ => Err(libc::EBADF),
        }
    }

    fn raise(&mut self, signal: i32) -> Result<usize, i32> {
        let bit = signals::set_of(&[signal])?;
        let mut heard = 0;
        for index in 0..self.sockets.len() as u32 {
            if let Role::Signals { wanted, pending } = &mut self.sockets[index as usize].role
                && *wanted & bit != 0
            {
                *pending |= bit;
                heard += 1;
                self.edge(index);
            }
        }
        Ok(heard)
    }

    fn spawn(&mut self, machine: Machine) -> u32 {
        let pid = self.processes.next;
        self.processes.next += 1;
        self.processes.children.push(Process { pid, machine, ended: None });
        pid
    }

    fn end(&mut self, pid: u32, status: ExitStatus) -> bool {
        let mut children = self.processes.children.iter_mut();
        let Some(child) = children.find(|child| child.pid == pid && child.ended.is_none()) else {
            return false;
        };
        child.ended = Some(status);
        for index in 0..self.sockets.len() as u32 {
            if matches!(&self.sockets[index as usize].role, Role::Child(child) if child.pid == pid)
            {
                self.edge(index);
            }
        }
        true
    }

    pub(super) fn child(&mut self, pid: u32, machine: Machine) -> Result<RawFd, i32> {
        if pid == 0 || pid > i32::MAX as u32 {
            return Err(libc::EINVAL);
        }
        if !self.processes.children.iter().any(|child| child.pid == pid) {
            return Err(libc::ECHILD);
        }
        let role = Role::Child(Box::new(WatchedChild { pid, ended: None }));
        Ok(self.open(role, Name::None, Name::None, machine) as RawFd)
    }

    pub(super) fn take_exit(&mut self, fd: RawFd) -> Result<ExitStatus, i32> {
        let Role::Child(watched) = &mut self.sockets[fd as usize].role else {
            return Err(libc::EBADF);
        };
        if let Some(ended) = watched.ended {
            return ended;
        }
        let children = &mut self.processes.children;
        let answer = match children.iter().position(|child| child.pid == watched.pid) {
            None => Err(libc::ECHILD),
            Some(at) => {
                let status = children[at].ended.ok_or(libc::EAGAIN)?;
                children.remove(at);
                Ok(status)
            }
        };
        watched.ended = Some(answer);
        answer
    }

    /// Whether the child with this number has ended, or was reaped.
    pub(super) fn has_ended(&self, pid: u32) -> bool {
        let child = self.processes.children.iter().find(|child| child.pid == pid);
        child.is_none_or(|child| child.ended.is_some())
    }
}

impl WatchedChild {
    pub(super) fn pid(&self) -> u32 {
        self.pid
    }
}

/// Signals and children. All watchers of a simulation are one process, but a
/// [crash](Sim::crash) ends what its host has.
impl Sim {
    /// Sends a signal to the simulated process: every source of
    /// [`Watcher::signals`](crate::Watcher::signals) for this signal receives it. Returns the
    /// number of these sources. Without such a source the signal has no effect in the simulation.
    /// In a real process it would have its default effect, which for most signals is to end the
    /// process.
    ///
    /// ```
    /// use windlass::process::signal::SIGTERM;
    /// use windlass::sim::Sim;
    /// use windlass::{Completions, Done, Op, Watcher};
    /// let sim = Sim::new(1);
    /// let mut watcher = Watcher::simulated(&sim);
    /// let signals = watcher.signals(&[SIGTERM])?;
    /// assert_eq!(sim.raise(SIGTERM), 1);
    /// watcher.submit(Op::signal(signals))?;
    /// let mut done = Completions::new();
    /// watcher.wait(&mut done)?;
    /// assert!(matches!(done.drain(..).next().unwrap().result, Ok(Done::Signal(SIGTERM))));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Panics
    /// If the number is no signal that a program can handle.
    pub fn raise(&self, signal: i32) -> usize {
        let world = &mut *self.enter();
        let heard = world.raise(signal).expect("a signal that a program can handle");
        world.trace(Call::Kill.of(signal), heard as u64);
        world.add_step(format_args!("signal {signal} comes to {heard} sources"));
        heard
    }

    /// Starts a simulated child process, which runs until [`exit`](Sim::exit) or
    /// [`kill`](Sim::kill) ends it. Returns its number, for
    /// [`Watcher::child`](crate::Watcher::child).
    ///
    /// ```
    /// use windlass::sim::Sim;
    /// use windlass::{Completions, Done, Op, Watcher};
    /// let sim = Sim::new(1);
    /// let mut watcher = Watcher::simulated(&sim);
    /// let pid = sim.spawn();
    /// let child = watcher.child(pid)?;
    /// watcher.submit(Op::child_exit(child))?;
    /// assert!(sim.exit(pid, 3));
    /// let mut done = Completions::new();
    /// watcher.wait(&mut done)?;
    /// let Ok(Done::Exited(status)) = done.drain(..).next().unwrap().result else { panic!() };
    /// assert_eq!(status.code(), Some(3));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn spawn(&self) -> u32 {
        let world = &mut *self.enter();
        let pid = world.spawn(self.home);
        world.trace(Call::Spawn.of(pid as i32), 0);
        world.add_step(format_args!("child {pid} is started"));
        pid
    }

    /// Ends a simulated child with this exit code. False if no such child runs.
    pub fn exit(&self, pid: u32, code: u8) -> bool {
        self.end(pid, child::exited(code), u64::from(code))
    }

    /// Ends a simulated child by this signal. False if no such child runs.
    ///
    /// # Panics
    /// If the number is no signal (1 to 64).
    pub fn kill(&self, pid: u32, signal: i32) -> bool {
        assert!((1..=64).contains(&signal), "{signal} is no signal");
        self.end(pid, child::killed(signal), 1 << 32 | signal as u64)
    }

    fn end(&self, pid: u32, status: ExitStatus, how: u64) -> bool {
        let world = &mut *self.enter();
        let ended = world.end(pid, status);
        world.trace(Call::Exit.of(pid as i32), how << 1 | u64::from(ended));
        world.add_step(format_args!("child {pid}: {status}"));
        ended
    }
}
