//! What was refused, and why.

use std::{fmt, io};

/// Why a write, a job, a file, a message or a change of the connection was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Refusal {
    /// The connection takes no more output: it has ended, closes, detaches, or has shut down its
    /// output. Of a job: it has ended, closes or detaches, or has not opened yet. Of a message: the
    /// loop is over, or there is none with this index.
    Stale,
    /// The bytes that wait for this connection would exceed its [cap](crate::Limits::cap).
    Cap,
    /// The bytes that wait in the whole server would exceed its
    /// [memory](crate::Limits::memory), or three quarters of it:
    /// [`Budget`](crate::memory::Budget) says who may use the last quarter.
    Memory,
    /// Too many jobs wait: [`Limits::jobs`](crate::Limits::jobs) of the connection, or
    /// [`Limits::loop_jobs`](crate::Limits::loop_jobs) of the loop.
    Jobs,
    /// Too many [files](crate::Engine::send_file) wait for this connection:
    /// [`Limits::files`](crate::Limits::files).
    Files,
    /// The file is no regular file, or the range is not within it. Of a file that is
    /// [attached](crate::Engine::send_attached): the range ends before it begins, or no operation
    /// can name it.
    File,
    /// The [file](crate::Engine::send_attached) is attached to the watcher of another loop.
    Elsewhere,
    /// A session sends no file, and a simulation has none. A session has no descriptor of its own,
    /// and no stream of bytes.
    Unsupported,
    /// The connection has TLS, or goes over to it: its session does not leave it, and no second one
    /// begins.
    Tls,
    /// The peer has shut down its output: no input follows.
    Ended,
    /// The program has made a [`Stream`](crate::Stream) of the connection, which has its input.
    Stream,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::Stale => {
                "the connection has ended or takes no more output, or the loop is over"
            }
            Refusal::Cap => "too many bytes wait for this connection (Limits::cap)",
            Refusal::Memory => "too many bytes wait in the whole server (Limits::memory)",
            Refusal::Jobs => "too many jobs wait (Limits::jobs, Limits::loop_jobs)",
            Refusal::Files => "too many files wait for this connection (Limits::files)",
            Refusal::File => "it is no regular file, or the range is not within it",
            Refusal::Elsewhere => "the file is attached to the watcher of another loop",
            Refusal::Unsupported => "a session has no files and no stream, a simulation no files",
            Refusal::Tls => "the connection has TLS",
            Refusal::Ended => "the peer has shut down its output",
            Refusal::Stream => "the program has made a stream of the connection",
        })
    }
}

impl std::error::Error for Refusal {}

/// The error of a [`writer`](crate::Engine::writer), and of programs that pass a refusal on.
impl From<Refusal> for io::Error {
    fn from(reason: Refusal) -> io::Error {
        let kind = match reason {
            Refusal::Stale | Refusal::Ended => io::ErrorKind::BrokenPipe,
            Refusal::Stream => io::ErrorKind::ResourceBusy,
            Refusal::File | Refusal::Elsewhere => io::ErrorKind::InvalidInput,
            Refusal::Unsupported | Refusal::Tls => io::ErrorKind::Unsupported,
            Refusal::Cap | Refusal::Memory | Refusal::Jobs | Refusal::Files => {
                io::ErrorKind::QuotaExceeded
            }
        };
        io::Error::new(kind, reason)
    }
}

/// A value that was refused, handed back unchanged: the buffer of a write, a file, a job, or a
/// message.
///
/// ```
/// use windlass::Buf;
/// use windlass_serve::{Engine, Id, Refusal};
///
/// /// Writes, or keeps what finds no room now.
/// fn write_or_keep(engine: &mut Engine<()>, id: Id, data: Buf, kept: &mut Vec<Buf>) {
///     if let Err(refused) = engine.write(id, data)
///         && refused.reason != Refusal::Stale
///     {
///         kept.push(refused.value);
///     }
/// }
/// ```
pub type Refused<T> = windlass::Refused<T, Refusal>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_is_used_up_only_where_something_waits() {
        let kind = |reason: Refusal| io::Error::from(reason).kind();
        for reason in [Refusal::Cap, Refusal::Memory, Refusal::Jobs, Refusal::Files] {
            assert_eq!(kind(reason), io::ErrorKind::QuotaExceeded, "{reason}");
        }
        for reason in [Refusal::Stale, Refusal::Ended] {
            assert_eq!(kind(reason), io::ErrorKind::BrokenPipe, "{reason}");
        }
        assert_eq!(kind(Refusal::Stream), io::ErrorKind::ResourceBusy);
    }
}
