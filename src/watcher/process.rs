//! Sources of signals and of child processes.

use super::Watcher;
use crate::driver::Driver;
#[cfg(doc)]
use crate::op::Op;
use crate::words::error::Refusal;
use crate::words::source::Source;

impl<D: Driver> Watcher<D> {
    /// Makes a source that receives these signals of the process. [`Op::signal`] takes them from
    /// it, one by one. From this call on the signals do not have their default effects: SIGTERM,
    /// for example, does not end the process.
    ///
    /// Several sources can have the same signal, also in several watchers. Each of them gets it.
    /// [`signal`](crate::process::signal) has the numbers of the usual signals. The page of
    /// [`Op::signal`] has an example.
    ///
    /// # Effects on the process
    ///
    /// The source installs a signal handler (sigaction(2)). It changes the signal mask of no
    /// thread. A handler that the program had installed before is called for each signal, too.
    /// Interrupted system calls of other threads go on (`SA_RESTART`), unless that handler was
    /// installed without this flag. When the last source of a signal ends, it restores the
    /// disposition that the signal had before. A source that ends discards the signals that wait in
    /// it. A handler that other code installs later must call the handler that it replaces, as
    /// `signal-hook` does.
    ///
    /// A signal that every thread blocks does not arrive.
    ///
    /// # After a fork
    ///
    /// In a forked child the source keeps its signals. It is usable after
    /// [`reinit_after_fork`](Watcher::reinit_after_fork), which also finds the signals that came
    /// before. The parent's source loses none.
    ///
    /// # Errors
    ///
    /// No source is made, with:
    ///
    /// - [`Refusal::Os`] with `EINVAL`: the list is empty, or contains a number that is no signal
    ///   (at most 64), SIGKILL or SIGSTOP, which cannot be handled, or SIGILL, SIGFPE, SIGSEGV or
    ///   SIGBUS, from whose handlers a program cannot return.
    /// - [`Refusal::Os`] with `EMFILE` or `ENFILE`: out of descriptors. Make the source before the
    ///   first accept.
    /// - [`Refusal::Full`] with [`Limit::Sources`](crate::Limit::Sources).
    /// - [`Refusal::Closed`], [`Refusal::Forked`]: the watcher is closed; this is a forked child.
    /// - [`Refusal::Unsupported`]: this system is Windows, or a driver of your own has no signals.
    ///
    /// # Platforms
    ///
    /// The same on every driver of Unix: an eventfd, or a pipe. In the simulation, signals come
    /// from [`Sim::raise`](crate::sim::Sim::raise).
    pub fn signals(&mut self, signals: &[i32]) -> Result<Source, Refusal> {
        self.driver.signals(signals)
    }

    /// Makes a source of a child process, by its number ([`std::process::Child::id`]).
    /// [`Op::child_exit`] waits for the end of the child and reaps it.
    ///
    /// The source reaps this child, and no other. It needs no handler of SIGCHLD, and installs
    /// none. The page of [`Op::child_exit`] has an example.
    ///
    /// Once an operation has reaped the child, its number may belong to another process. So call
    /// neither `wait` nor `kill` of the `std::process::Child` after that completion. If other code
    /// reaps the child first, the operation ends with `ECHILD`. An [abort](Watcher::abort) of the
    /// source leaves the child running. Then the program has to wait for it.
    ///
    /// # After a fork
    ///
    /// A forked process is not the parent of these children, and cannot wait for them. There
    /// [`reinit_after_fork`](Watcher::reinit_after_fork) ends the source.
    ///
    /// # Errors
    ///
    /// No source is made, with:
    ///
    /// - [`Refusal::Os`] with `EINVAL`: the number is 0 or above 2^31 - 1, so that it names no
    ///   process.
    /// - [`Refusal::Os`] with `ECHILD` or `ESRCH`: this process has no such child, or the child was
    ///   reaped.
    /// - [`Refusal::Os`] with `EMFILE` or `ENFILE`: out of descriptors.
    /// - [`Refusal::Os`] with `ENOSYS` or `EPERM`: Linux before 5.4, or a seccomp filter, has no
    ///   pidfd. Wait on a thread instead: `Op::run(move || child.wait())`.
    /// - [`Refusal::Full`] with [`Limit::Sources`](crate::Limit::Sources).
    /// - [`Refusal::Closed`], [`Refusal::Forked`]: the watcher is closed; this is a forked child.
    /// - [`Refusal::Unsupported`]: this system is Windows, or a driver of your own has no children.
    ///
    /// # Platforms
    ///
    /// Linux opens a pidfd, macOS and the BSDs a kqueue with `EVFILT_PROC`, on every driver. In the
    /// simulation, children come from [`Sim::spawn`](crate::sim::Sim::spawn).
    pub fn child(&mut self, pid: u32) -> Result<Source, Refusal> {
        self.driver.child(pid)
    }
}
