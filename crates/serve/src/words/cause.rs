//! Why a connection ended, and what it was doing.

#[cfg(doc)]
use crate::Engine;
use std::{fmt, io};

/// What a connection was doing when it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Phase {
    /// Its connect was not done yet.
    Connecting,
    /// It was open. A connection that was open when a shutdown began has this phase, too, unless it
    /// ended as `Lingering`.
    Open,
    /// It was closing, at the program's request or because its peer had shut down its output. A
    /// close that the peer completes in time also ends in this phase.
    Closing,
    /// All its output was sent, and its peer had not closed: [`Limits::linger`] has passed, or the
    /// connection failed or was aborted before.
    ///
    /// [`Limits::linger`]: crate::Limits::linger
    Lingering,
    /// The program had asked for its descriptor, and had not got it yet.
    Detaching,
}

/// Why a connection has ended: the first cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// The peer has shut down its output.
    Eof,
    /// The program has closed it.
    Closed,
    /// The program has aborted it.
    Aborted,
    /// No byte has moved for [`Limits::idle`](crate::Limits::idle), or for the time of
    /// [`Engine::set_idle_timeout`].
    Idle,
    /// Its waiting output has made no progress for
    /// [`Limits::write_stall`](crate::Limits::write_stall).
    WriteStall,
    /// More than three quarters of [`Limits::memory`](crate::Limits::memory) were in use, and this
    /// connection held more than its [share](crate::memory::Budget).
    Shed,
    /// The output that waits would have exceeded [`Limits::cap`](crate::Limits::cap).
    Overflow,
    /// Its [read deadline](Engine::set_read_deadline) has passed, or
    /// [`Limits::handshake`](crate::Limits::handshake) in the handshake of a client, or of a plain
    /// connection that goes over to TLS.
    ReadTimeout,
    /// Its [write deadline](Engine::set_write_deadline) has passed, and its output was not sent.
    WriteTimeout,
    /// Its peer has used up the time of [`Engine::limit`].
    TooSlow,
    /// The connect did not succeed within [`Limits::connect`](crate::Limits::connect).
    ConnectTimeout,
    /// TLS has failed. The event of the end has the reason as `tls_error`, and the log its text.
    Tls,
    /// The input has ended without `close_notify`: an attacker may have cut the connection, and the
    /// data may not be all.
    Truncated,
    /// A callback of the program, or a [job](Engine::execute) of the connection, has panicked.
    Panicked,
    /// The server shuts down.
    Shutdown,
    /// A [file](Engine::send_file) had become shorter before it was sent. The peer got what there
    /// was.
    FileEnded,
    /// The system has reported this errno.
    Os(i32),
    /// The watcher has refused an operation, or other code has ended the source.
    Rejected,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Cause::Eof => "the peer has shut down its output",
            Cause::Closed => "the connection was closed",
            Cause::Aborted => "the connection was aborted",
            Cause::Idle => "no byte has moved for the idle limit",
            Cause::WriteStall => "the output has made no progress",
            Cause::ReadTimeout => "the read deadline has passed",
            Cause::WriteTimeout => "the write deadline has passed",
            Cause::Shed => "too many bytes waited in the server",
            Cause::Overflow => "too many bytes waited for the connection",
            Cause::TooSlow => "the peer has used up its time",
            Cause::ConnectTimeout => "the connect had no answer in time",
            Cause::Tls => "TLS has failed",
            Cause::Truncated => "the input was cut: it has ended without close_notify",
            Cause::Panicked => "a callback has panicked",
            Cause::Shutdown => "the server shuts down",
            Cause::FileEnded => "a file was shorter than what was to be sent of it",
            Cause::Os(errno) => return io::Error::from_raw_os_error(*errno).fmt(f),
            Cause::Rejected => "the watcher has refused an operation",
        })
    }
}

impl std::error::Error for Cause {}
