//! The events of an engine.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use windlass::{Address, Buf, Completion, ErrorKind, Handle, Message};

#[cfg(doc)]
use crate::Engine;
use crate::words::cause::{Cause, Phase};
use crate::words::id::Id;
use crate::words::job::JobError;
use crate::words::op::Completed;

/// Something that has happened on an engine's connections.
///
/// The first event of a connection is `Opened`, and its last is `Closed` or `Detached`, which comes
/// exactly once. (A [connect](Engine::connect) that fails has `Closed` only.)
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<S> {
    /// A connection was accepted, or a connect has succeeded.
    Opened {
        /// The connection.
        id: Id,
        /// Where it comes from.
        origin: Origin,
    },
    /// Bytes have arrived.
    Data {
        /// The connection.
        id: Id,
        /// The bytes: at least one. Of a session: one datagram, which may be empty.
        data: Buf,
    },
    /// The peer has shut down its output, and may still read. Only if
    /// [`close_on_eof`](crate::Config::close_on_eof) is off.
    Eof {
        /// The connection.
        id: Id,
    },
    /// The peer of a connection that is not read has shut down its output: only with
    /// [`Engine::watch_peer`]. Data before that may not have been delivered yet. `Eof`, or the
    /// close, follows it when the connection is read again.
    PeerEnded {
        /// The connection.
        id: Id,
    },
    /// The waiting output was above the [high](crate::Limits::high) mark, if only until the flush
    /// of its turn, or [`Limits::files`](crate::Limits::files) files waited. Now the output is at
    /// or below the [low](crate::Limits::low) mark, and at most half as many files wait.
    Drained {
        /// The connection.
        id: Id,
    },
    /// The connection has reached a limit of its time, and goes on: only with
    /// [`Config::limit_events`](crate::Config::limit_events). The program writes a last answer or
    /// a ping, for example, sets another [limit](Engine::limit), or ends the connection. If it does
    /// nothing, an idle time begins again, and the limit of [`Engine::limit`] or
    /// [`Engine::time_limit`] is gone.
    ///
    /// The event does not come if the program sets another time, takes it away or pauses the
    /// connection before, in a callback of the same turn for example. With a pause, what the peer
    /// has used up of its time stays used up, and the event follows the resume. (That of
    /// `time_limit` comes in a pause, too.)
    LimitReached {
        /// The connection.
        id: Id,
        /// The limit: [`Cause::Idle`] or [`Cause::TooSlow`].
        cause: Cause,
    },
    /// The connection has ended. Its id is stale.
    Closed {
        /// The connection.
        id: Id,
        /// Why it ended: the first cause.
        cause: Cause,
        /// How many bytes of output the kernel has not taken, with those of files: of all writes
        /// that the engine took and has not handed back. The engine cancels writes in flight and
        /// waits for their answers, so the number is exact. It is too high, and never too low, if
        /// the kernel does not answer within 100 ms, and after [`Engine::end`], which does not
        /// wait. Then it counts all bytes of the writes without an answer. With TLS it counts
        /// text: that of each record that the kernel has not taken whole, and what was not
        /// encrypted. Only writes without an answer count with the bytes of their records.
        ///
        /// If there are any, the peer gets a reset and no end of file (over TCP), and bytes that
        /// the kernel has taken can get lost, too.
        unsent: usize,
        /// What the connection was doing when it ended.
        phase: Phase,
        /// How long it was open, in steps of 100 ms; zero if it never opened.
        age: Duration,
        /// The program's state.
        state: S,
        /// Why TLS has failed, with [`Cause::Tls`] and [`Cause::Truncated`]: its text names the
        /// certificate, the name or the time that is wrong.
        #[cfg(feature = "tls")]
        tls_error: Option<Box<crate::tls::Error>>,
    },
    /// A datagram has arrived at a [datagram socket](Engine::bind_datagram). To answer, pass the
    /// listener and the sender to [`send_to`](Engine::send_to).
    Datagram {
        /// The number of the socket, which [`bind_datagram`](Engine::bind_datagram) has returned.
        listener: usize,
        /// The sender; [unspecified](Address::is_unspecified) if it has no address.
        from: Address,
        /// The bytes: empty for an empty datagram.
        data: Buf,
        /// Whether the datagram was longer than [`Builder::buffer_size`] and has lost its end.
        ///
        /// [`Builder::buffer_size`]: windlass::Builder::buffer_size
        truncated: bool,
    },
    /// The system has taken all bytes of a [file](Engine::send_file). The engine has closed it.
    ///
    /// Each file whose last byte the system takes before the end of its connection has this event,
    /// in the order of the files, and before the last event of the connection: also if the
    /// connection closes, detaches, fails or is aborted. Those that have none are not sent, and
    /// `unsent` of `Closed` counts what is left of them. [`Engine::end`] does not wait for the
    /// system, and a part without bytes has no event if the connection fails in the same flush.
    FileSent {
        /// The connection.
        id: Id,
        /// The length of the range, in bytes.
        len: u64,
    },
    /// The connection has gone over to TLS: both ends have agreed. The bytes of the next
    /// [`Data`](Event::Data) are plain text that has come encrypted.
    #[cfg(feature = "tls")]
    Upgraded {
        /// The connection.
        id: Id,
    },
    /// The descriptor is the program's now. The id of the connection is stale.
    Detached {
        /// The connection.
        id: Id,
        /// The descriptor. An accepted one is non-blocking.
        handle: Handle,
        /// Bytes that had arrived and were not delivered, in order.
        undelivered: Vec<Buf>,
        /// Whether the peer has shut down its output.
        eof: bool,
        /// The program's state.
        state: S,
    },
    /// The time of [`tick_after`](Engine::tick_after) has passed.
    Tick,
    /// The program has [woken](Engine::wake) the connection.
    Wake {
        /// The connection.
        id: Id,
    },
    /// A [job](Engine::execute) of the connection has returned.
    Executed {
        /// The connection.
        id: Id,
        /// The value: [`Message::downcast`] takes it out.
        output: Message,
    },
    /// A [job](Engine::execute) of the connection has no value. The connection goes on.
    JobFailed {
        /// The connection.
        id: Id,
        /// Why.
        error: JobError,
    },
    /// An operation of [`Engine::submit`] has ended, or has made one of several completions.
    Completed(Completed),
    /// An accept has failed. The listener accepts again after 100 ms.
    AcceptFailed {
        /// The number of the listener, which [`listen`](Engine::listen) has returned.
        listener: usize,
        /// The error of the accept.
        error: ErrorKind,
    },
    /// A listener of [`Remote::add_listener`](crate::Remote::add_listener) serves, or could not be
    /// added.
    ListenerAdded {
        /// Its number, or why there is none: the errors of
        /// [`Engine::add_listener`].
        added: io::Result<usize>,
    },
    /// Another thread has sent a [message](crate::Remote::post).
    Message {
        /// The value: [`Message::downcast`] takes it out.
        message: Message,
    },
    /// A completion that is not the engine's: only from
    /// [`next_event_in`](Engine::next_event_in).
    Foreign(Completion),
}

/// Where a connection comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Origin {
    /// The number of the listener that has accepted it: listeners are numbered from 0, in the order
    /// in which they were added. `None` for a connect or an attached descriptor.
    pub listener: Option<usize>,
    /// The address of the peer, if it has an internet address. Behind a
    /// [proxy](crate::Config::proxy) that of the client, as the proxy says.
    pub peer: Option<SocketAddr>,
}
