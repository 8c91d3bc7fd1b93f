//! Signals and children, of the system or of the simulation that this thread uses last.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use windlass::sim::Sim;

use super::Harness;

thread_local! {
    static SIM: RefCell<Option<Sim>> = const { RefCell::new(None) };
    static CHILDREN: RefCell<HashMap<u32, Child>> = RefCell::default();
}

/// The simulation of the watcher that this thread has made.
pub fn remember(sim: &Sim) {
    SIM.set(Some(sim.clone()));
}

/// Looks at that simulation.
pub fn with_sim<T>(use_it: impl FnOnce(&Sim) -> T) -> T {
    SIM.with_borrow(|sim| use_it(sim.as_ref().expect("a watcher on a simulation")))
}

/// Signals belong to the whole process: tests that raise them run one after the other.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The source of signals and children.
pub trait Processes: Harness {
    /// Sends a signal to this thread.
    fn raise(signal: i32) {
        if Self::NAME == "sim" {
            with_sim(|sim| assert!(sim.raise(signal) > 0, "no source has {signal}"));
            return;
        }
        // SAFETY: no memory is passed.
        assert_eq!(unsafe { libc::raise(signal) }, 0);
    }

    /// Starts a child that runs until it is told to end. A source reaps it.
    #[allow(clippy::zombie_processes)]
    fn spawn() -> u32 {
        if Self::NAME == "sim" {
            return with_sim(Sim::spawn);
        }
        let mut command = Command::new("sh");
        command.args(["-c", "read code; exit $code"]).stdin(Stdio::piped());
        let child = command.spawn().expect("a shell");
        let pid = child.id();
        CHILDREN.with_borrow_mut(|children| children.insert(pid, child));
        pid
    }

    /// Ends a child with this code.
    fn exit(pid: u32, code: u8) {
        if Self::NAME == "sim" {
            return with_sim(|sim| assert!(sim.exit(pid, code)));
        }
        let child = CHILDREN.with_borrow_mut(|children| children.remove(&pid));
        let mut input = child.expect("a child that runs").stdin.take().expect("its input");
        writeln!(input, "{code}").expect("it reads");
    }

    /// Ends a child by this signal.
    fn kill(pid: u32, signal: i32) {
        if Self::NAME == "sim" {
            return with_sim(|sim| assert!(sim.kill(pid, signal)));
        }
        let child = CHILDREN.with_borrow_mut(|children| children.remove(&pid));
        // The test reaps it by its pid.
        #[allow(clippy::zombie_processes)]
        drop(child.expect("a child that runs"));
        // SAFETY: no memory is passed; the child is not reaped.
        assert_eq!(unsafe { libc::kill(pid as libc::pid_t, signal) }, 0);
    }
}

impl<H: Harness> Processes for H {}
