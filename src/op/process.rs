//! Operations on what happens to processes: signals of this one, the exit of children.

use super::{Op, OpCode};
use crate::source::Source;
#[cfg(doc)]
use crate::{Done, Reason, Watcher};

/// Operations on what happens to processes: signals of this one, the exit of children.
impl Op {
    /// Takes a signal that has come to a source of [`Watcher::signals`].
    ///
    /// Completes with [`Done::Signal`] and the signal's number. Signals that came since the source
    /// was made are not lost: they wait for the operation. Of several that wait, the lowest number
    /// is taken first. A signal that comes again before it is taken is still one signal, as always
    /// on Unix. With [`multishot`](Op::multishot) the operation goes on.
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
    /// - [`Reason::Unsupported`]: the source is not one of [`Watcher::signals`].
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
    /// A cancelled operation has taken no signal: the next one takes it.
    pub const fn signal(source: Source) -> Op {
        Op::plain(OpCode::Signal, source)
    }

    /// Waits for the end of the child process of a source of [`Watcher::child`], and reaps it.
    ///
    /// Completes with [`Done::Exited`] and the exit status: the code, or the signal that has ended
    /// the process. The first operation that completes has reaped the child; later ones complete at
    /// once, with the same status.
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
    /// - [`Reason::Unsupported`]: the source is not one of [`Watcher::child`].
    ///
    /// Ends with:
    ///
    /// - `ECHILD`: other code has reaped the child, or the process ignores SIGCHLD, so that the
    ///   system keeps no exit status.
    ///
    /// # Platforms
    ///
    /// Linux tells the end by a pidfd, macOS and the BSDs by `EVFILT_PROC`. In the simulation,
    /// children end by [`Sim::exit`](crate::sim::Sim::exit) and
    /// [`Sim::kill`](crate::sim::Sim::kill). Windows has no such sources.
    ///
    /// # Cancellation
    ///
    /// A cancelled operation has reaped nothing. The child runs on: a cancel, an abort and a
    /// deadline do not end it.
    pub const fn child_exit(source: Source) -> Op {
        Op::plain(OpCode::ChildExit, source)
    }
}
