//! Operations on processes: signals to this process, and the exit of its children.

use super::{Op, OpCode};
use crate::words::source::Source;
#[cfg(doc)]
use crate::{Done, Refusal, Watcher};

/// Operations on processes: signals to this process, and the exit of its children.
impl Op {
    /// Takes a signal from a source of [`Watcher::signals`], or waits for one.
    ///
    /// Completes with [`Done::Signal`] and the signal's number. Signals that arrive without an
    /// operation wait in the source. If several wait, the operation takes the lowest number. A
    /// signal that arrives twice before an operation takes it counts once, as always on Unix. A
    /// [`multishot`](Op::multishot) operation completes once for each signal.
    ///
    /// ```
    /// use windlass::process::signal::{SIGHUP, SIGTERM};
    /// use windlass::{Completions, Done, Op, Watcher};
    /// let mut watcher = Watcher::new()?;
    /// let signals = watcher.signals(&[SIGTERM, SIGHUP])?;
    /// watcher.submit(Op::signal(signals).multishot())?;
    /// # nix::sys::signal::raise(nix::sys::signal::Signal::SIGTERM)?;
    /// let mut done = Completions::new();
    /// watcher.wait(&mut done)?; // until `kill` sends SIGTERM to this process
    /// let completion = done.drain(..).next().unwrap();
    /// assert!(matches!(completion.result, Ok(Done::Signal(SIGTERM))) && completion.has_more());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The refusals are those of [every operation](Op#errors-of-every-operation), and:
    ///
    /// - [`Refusal::Unsupported`]: the source is not one of [`Watcher::signals`].
    ///
    /// The only errnos are those of every operation.
    ///
    /// # Platforms
    ///
    /// The same on every driver of Unix. In the simulation, signals come from
    /// [`Sim::raise`](crate::sim::Sim::raise). Windows has no such sources.
    ///
    /// # Cancellation
    ///
    /// A cancelled operation takes no signal. The signal waits for the next operation.
    pub const fn signal(source: Source) -> Op {
        Op::plain(OpCode::Signal, source)
    }

    /// Waits for the end of the child process of a source of [`Watcher::child`], and reaps it.
    ///
    /// Completes with [`Done::Exited`] and the exit status: the code, or the signal that has ended
    /// the process. The first operation that completes reaps the child. Later operations on the
    /// source complete at once, with the same status.
    ///
    /// ```
    /// use windlass::{Completions, Done, Op, Watcher};
    /// let mut watcher = Watcher::new()?;
    /// let child = std::process::Command::new("sh").args(["-c", "exit 3"]).spawn()?;
    /// let source = watcher.child(child.id())?;
    /// watcher.submit(Op::child_exit(source))?;
    /// let mut done = Completions::new();
    /// watcher.wait(&mut done)?;
    /// let Ok(Done::Exited(status)) = done.drain(..).next().unwrap().result else { panic!() };
    /// assert_eq!(status.code(), Some(3));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The refusals are those of [every operation](Op#errors-of-every-operation), and:
    ///
    /// - [`Refusal::Unsupported`]: the source is not one of [`Watcher::child`].
    ///
    /// Ends with:
    ///
    /// - `ECHILD`: other code has reaped the child, or the process ignores SIGCHLD, so that the
    ///   system keeps no exit status.
    ///
    /// # Platforms
    ///
    /// Linux uses a pidfd, macOS and the BSDs use `EVFILT_PROC`. In the simulation,
    /// children end by [`Sim::exit`](crate::sim::Sim::exit) and
    /// [`Sim::kill`](crate::sim::Sim::kill). Windows has no such sources.
    ///
    /// # Cancellation
    ///
    /// A cancelled operation reaps nothing. A cancel, an abort and a deadline leave the child
    /// running.
    pub const fn child_exit(source: Source) -> Op {
        Op::plain(OpCode::ChildExit, source)
    }
}
