//! Signals of the process, and the exit of child processes.
//!
//! [`Watcher::signals`](crate::Watcher::signals) makes a source of signals, and
//! [`Op::signal`](crate::Op::signal) takes one from it. [`Watcher::child`](crate::Watcher::child)
//! makes a source of a child process, and [`Op::child_exit`](crate::Op::child_exit) waits for its
//! end. The guide's page on signals shows both.
//!
//! Here are the numbers of the usual signals, so that a program need not depend on `libc` for them.

/// The usual signals, by their numbers on this system. (On Windows, for programs on a simulation,
/// by those of Linux.)
pub mod signal {
    macro_rules! signals {
        ($($(#[$doc:meta])* $name:ident)*) => {
            $($(#[$doc])* pub const $name: i32 = crate::sys::signals::$name;)*
        };
    }
    signals! {
        /// The timer of alarm(2) has expired.
        SIGALRM
        /// A child process has ended, stopped or continued.
        SIGCHLD
        /// The process goes on after a stop.
        SIGCONT
        /// The terminal is gone; by convention, daemons read their settings again.
        SIGHUP
        /// The user has typed Ctrl-C.
        SIGINT
        /// The user has typed Ctrl-\.
        SIGQUIT
        /// The process is to end: the default of kill(1), and what service managers send.
        SIGTERM
        /// The user has typed Ctrl-Z.
        SIGTSTP
        /// Free for the program.
        SIGUSR1
        /// Free for the program.
        SIGUSR2
        /// The size of the terminal has changed.
        SIGWINCH
    }
}
