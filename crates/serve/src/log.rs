//! What engines and servers tell a log.
//!
//! A program sets a [`Log`] in its [`Config`](crate::Config::log). The engine then tells it of
//! listeners, of connections, of limits that were reached, of panics and of shutdowns, as
//! [`Record`]s with fields. It tells nothing of single messages, so a message costs the same with a
//! log and without.
//!
//! The feature `log` has an adapter for the crate `log`, and the feature `tracing` one for the
//! crate `tracing`: `ToTracing` makes a span for each connection. With the same feature, the driver
//! `Traced` makes a span for each operation.
//!
//! ```
//! use windlass_serve::Config;
//! use windlass_serve::log::{Level, Log, Record};
//!
//! struct ToStderr;
//! impl Log for ToStderr {
//!     fn enabled(&self, level: Level) -> bool {
//!         level <= Level::Info
//!     }
//!     fn log(&self, record: &Record<'_>) {
//!         eprintln!("{:?} loop {}: {record}", record.level(), record.loop_index);
//!     }
//! }
//!
//! let config = Config::new().log(&ToStderr);
//! ```

#[cfg(feature = "log")]
mod to_log;
#[cfg(feature = "tracing")]
mod to_tracing;
#[cfg(feature = "tracing")]
mod traced;

use std::fmt;
use std::net::SocketAddr;
use std::panic::{self, AssertUnwindSafe};
use std::time::Duration;

use windlass::net::SocketOption;
use windlass::{Address, ErrorKind, Refusal as Reason};

use crate::words::cause::{Cause, Phase};
use crate::words::id::Id;
use crate::words::job::JobError;

#[cfg(feature = "log")]
pub use to_log::ToLog;
#[cfg(feature = "tracing")]
pub use to_tracing::ToTracing;
#[cfg(feature = "tracing")]
pub use traced::{Traced, TracedSubmitter};

/// Takes the records of engines and servers.
///
/// The loops call it, each on its own thread, and wait until it returns. A panic in it is caught
/// and dropped, and the record may be lost.
pub trait Log: Send + Sync {
    /// Whether the log wants records of this level. No record is made of a level that it does not
    /// want. The default wants all.
    fn enabled(&self, level: Level) -> bool {
        let _ = level;
        true
    }

    /// Takes a record.
    fn log(&self, record: &Record<'_>);
}

impl fmt::Debug for dyn Log + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Log")
    }
}

/// How much a record matters. The most important level is the least: `level <= Level::Warn` is a
/// warning or an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Level {
    /// The program has a defect: a callback or a job has panicked.
    Error,
    /// The server has not served a peer as it should: it has refused or closed a connection because
    /// of a limit, or an accept has failed.
    Warn,
    /// Listeners, shutdowns, and peers that did nothing.
    Info,
    /// The begin and the end of each connection.
    Debug,
}

/// Something that has happened, and on which loop.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Record<'a> {
    /// The name of the server: [`Config::name`](crate::Config::name).
    pub server: &'a str,
    /// The loop or the thread, as in [`Id::loop_index`].
    pub loop_index: usize,
    /// What has happened.
    pub event: LogEvent<'a>,
}

/// What a [`Record`] tells.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum LogEvent<'a> {
    /// A listener accepts, or a datagram socket receives. [`Level::Info`].
    Listening {
        /// Its number, as in [`Engine::listeners`](crate::Engine::listeners).
        listener: usize,
        /// Its address; `None` if the system does not tell.
        address: Option<&'a Address>,
    },
    /// An accept has failed. The listener accepts again after 100 ms. [`Level::Warn`].
    AcceptFailed {
        /// The number of the listener.
        listener: usize,
        /// The error.
        error: ErrorKind,
    },
    /// An accepted connection was not opened. [`Level::Warn`]; [`Level::Debug`] during a shutdown,
    /// and if the peer has ended it in its handshake, as health checks do; [`Level::Info`] if the
    /// handshake has taken too long.
    Refused {
        /// The listener that has accepted it, if it is known: not if a thread could not begin.
        listener: Option<usize>,
        /// The address of its peer, if it has an internet address.
        peer: Option<SocketAddr>,
        /// Why.
        cause: RefusedBecause,
    },
    /// A connection was accepted or attached, a connect has succeeded, or a UDP session begins.
    /// [`Level::Debug`].
    Opened {
        /// The connection.
        id: Id,
        /// The listener that has accepted it.
        listener: Option<usize>,
        /// The address of its peer, if it has an internet address.
        peer: Option<SocketAddr>,
    },
    /// TLS has failed on a connection, whose end follows, or on one that is not opened.
    /// [`Level::Info`].
    TlsFailed {
        /// The connection, if the program knows it.
        id: Option<Id>,
        /// The address of its peer, if it has an internet address and is not open.
        peer: Option<SocketAddr>,
        /// What has failed: the text of an `Error` of the module `tls`.
        error: &'a str,
    },
    /// A connection has ended. A connect that fails has this event only.
    ///
    /// [`Level::Warn`] for [`Cause::Shed`], [`Cause::Overflow`], [`Cause::WriteStall`],
    /// [`Cause::Rejected`], and for a shutdown that could not send all output. [`Level::Info`] for
    /// [`Cause::Idle`], [`Cause::TooSlow`], [`Cause::ConnectTimeout`], [`Cause::ReadTimeout`] and
    /// [`Cause::WriteTimeout`]. [`Level::Debug`] for other causes.
    Closed {
        /// The connection.
        id: Id,
        /// Why it ended.
        cause: Cause,
        /// How many bytes of its output the kernel had not taken.
        unsent: usize,
        /// What it was doing.
        phase: Phase,
        /// How long it was open, in steps of 100 ms.
        age: Duration,
    },
    /// The descriptor of a connection is the program's now. [`Level::Debug`].
    Detached {
        /// The connection.
        id: Id,
    },
    /// A loop has taken a connection over from its thread, which has told `Detached` of it. See
    /// [`Conn::move_to_loop`](crate::Conn::move_to_loop). [`Level::Debug`].
    Moved {
        /// The connection: the id that it has from now on.
        id: Id,
        /// The id that it had.
        from: Id,
    },
    /// A first connection stops reading, because it holds more than its
    /// [share](crate::memory::Budget) of [`Limits::memory`](crate::Limits::memory). Other
    /// connections may follow without a record. [`Level::Warn`].
    Throttled {
        /// The connection.
        id: Id,
        /// How many bytes wait in the whole server.
        used: usize,
        /// The limit.
        limit: usize,
    },
    /// All connections read again. [`Level::Info`].
    Unthrottled {
        /// How many bytes wait in the whole server.
        used: usize,
        /// The limit.
        limit: usize,
    },
    /// The system or the watcher has refused an option of a connection, which goes on.
    /// [`Level::Warn`].
    OptionRefused {
        /// The connection.
        id: Id,
        /// The option.
        option: SocketOption,
        /// Why.
        reason: Reason,
    },
    /// A callback of the program has panicked. [`Level::Error`].
    Panicked {
        /// The connection whose callback it was, if it was one's. Its end follows.
        id: Option<Id>,
        /// The message of the panic; empty if it has no text.
        message: &'a str,
    },
    /// A [job](crate::Engine::execute) of a connection has no value. [`Level::Error`] if it has
    /// panicked, else [`Level::Warn`].
    JobFailed {
        /// The connection, which may have ended.
        id: Id,
        /// Why.
        error: &'a JobError,
    },
    /// A loop of a server begins to shut down, or a thread of an [`IoMode`](crate::modes::IoMode).
    /// [`Level::Info`].
    ShutdownBegun {
        /// How many connections are open or closing.
        connections: usize,
        /// How often an accept found no descriptor left: see
        /// [`Report`](crate::report::Report::descriptor_shortages).
        descriptor_shortages: u64,
    },
    /// A loop of a server has shut down, or a thread of an [`IoMode`](crate::modes::IoMode).
    /// [`Level::Info`]; [`Level::Warn`] if a connection ended before all its output was sent. A
    /// `Closed` tells of each such connection.
    ShutdownEnded {
        /// How many connections ended before all their output was sent.
        unfinished: usize,
    },
}

/// Why an accepted connection was not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RefusedBecause {
    /// The loop has [`Limits::connections`](crate::Limits::connections) connections.
    Connections,
    /// A [share](crate::memory::Budget) of [`Limits::memory`](crate::Limits::memory) would be
    /// below the least one.
    Memory,
    /// Each thread of an [`IoMode`](crate::modes::IoMode) has a connection, or a thread could not
    /// begin.
    Threads,
    /// The watcher has refused the socket.
    Rejected(Reason),
    /// The default of the program's state has panicked.
    Panicked,
    /// Its peer is in none of the [networks](crate::net::Proxy::from) of the listener's proxies.
    Network,
    /// It begins with no [header of a proxy](crate::Config::proxy) that the listener takes, for
    /// this reason.
    Header(&'static str),
    /// Its handshake of TLS has failed: [`LogEvent::TlsFailed`] says how.
    Tls,
    /// [`Limits::handshakes_waiting`](crate::Limits::handshakes_waiting) handshakes of TLS wait for
    /// their turn.
    Handshakes,
    /// It has ended before its whole header, or its handshake of TLS, had come: [`Cause::Eof`] and
    /// [`Cause::Os`] by its peer, [`Cause::ReadTimeout`] after
    /// [`Proxy::timeout`](crate::net::Proxy::timeout) or
    /// [`Limits::handshake`](crate::Limits::handshake), or as in [`LogEvent::Closed`].
    Handshake(Cause),
    /// The server shuts down.
    Shutdown,
}

/// The value of a [field](Record::fields).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Field<'a> {
    /// A number.
    Number(u64),
    /// A text.
    Text(&'a str),
    /// A value with a text.
    Value(&'a dyn fmt::Debug),
}

impl Record<'_> {
    /// How much the record matters.
    pub fn level(&self) -> Level {
        self.event.level()
    }

    /// The connection that the record is of, if it is of one.
    pub fn id(&self) -> Option<Id> {
        match self.event {
            LogEvent::Opened { id, .. }
            | LogEvent::Closed { id, .. }
            | LogEvent::Detached { id }
            | LogEvent::Moved { id, .. }
            | LogEvent::Throttled { id, .. }
            | LogEvent::OptionRefused { id, .. }
            | LogEvent::JobFailed { id, .. } => Some(id),
            LogEvent::Panicked { id, .. } | LogEvent::TlsFailed { id, .. } => id,
            _ => None,
        }
    }

    /// Passes each field of the record to `put`, by its name: the `server` if it has a name,
    /// `loop`, the `id`, then those of the [event](LogEvent), with `age_ms` for `age`. Values that
    /// are `None` are left out.
    pub fn fields<'a>(&'a self, mut put: impl FnMut(&'static str, Field<'a>)) {
        let number = |number: usize| Field::Number(number as u64);
        if !self.server.is_empty() {
            put("server", Field::Text(self.server));
        }
        put("loop", number(self.loop_index));
        if let Some(id) = self.id() {
            put("id", Field::Number(id.number()));
        }
        match &self.event {
            LogEvent::Listening { listener, address } => {
                put("listener", number(*listener));
                if let Some(address) = address {
                    put("address", Field::Value(address));
                }
            }
            LogEvent::AcceptFailed { listener, error } => {
                put("listener", number(*listener));
                put("error", Field::Value(error));
            }
            LogEvent::Refused { listener, peer, cause } => {
                if let Some(listener) = listener {
                    put("listener", number(*listener));
                }
                if let Some(peer) = peer {
                    put("peer", Field::Value(peer));
                }
                put("cause", Field::Value(cause));
            }
            LogEvent::Opened { id: _, listener, peer } => {
                if let Some(listener) = listener {
                    put("listener", number(*listener));
                }
                if let Some(peer) = peer {
                    put("peer", Field::Value(peer));
                }
            }
            LogEvent::Closed { id: _, cause, unsent, phase, age } => {
                put("cause", Field::Value(cause));
                put("unsent", number(*unsent));
                put("phase", Field::Value(phase));
                put("age_ms", Field::Number(age.as_millis() as u64));
            }
            LogEvent::TlsFailed { id: _, peer, error } => {
                if let Some(peer) = peer {
                    put("peer", Field::Value(peer));
                }
                put("error", Field::Text(error));
            }
            LogEvent::Detached { id: _ } => {}
            LogEvent::Moved { id: _, from } => put("from", Field::Number(from.number())),
            LogEvent::Throttled { id: _, used, limit } | LogEvent::Unthrottled { used, limit } => {
                put("used", number(*used));
                put("limit", number(*limit));
            }
            LogEvent::OptionRefused { id: _, option, reason } => {
                put("option", Field::Value(option));
                put("reason", Field::Value(reason));
            }
            LogEvent::Panicked { id: _, message } => put("message", Field::Text(message)),
            LogEvent::JobFailed { id: _, error } => put("error", Field::Value(error)),
            LogEvent::ShutdownBegun { connections, descriptor_shortages } => {
                put("connections", number(*connections));
                put("descriptor_shortages", Field::Number(*descriptor_shortages));
            }
            LogEvent::ShutdownEnded { unfinished } => put("unfinished", number(*unfinished)),
        }
    }
}

impl LogEvent<'_> {
    fn level(&self) -> Level {
        match self {
            LogEvent::Panicked { .. }
            | LogEvent::JobFailed { error: JobError::Panicked(_), .. } => Level::Error,
            LogEvent::Refused { cause, .. } => match cause {
                RefusedBecause::Shutdown | RefusedBecause::Handshake(Cause::Eof | Cause::Os(_)) => {
                    Level::Debug
                }
                RefusedBecause::Handshake(Cause::ReadTimeout) | RefusedBecause::Tls => Level::Info,
                _ => Level::Warn,
            },
            LogEvent::AcceptFailed { .. }
            | LogEvent::Throttled { .. }
            | LogEvent::OptionRefused { .. }
            | LogEvent::JobFailed { .. } => Level::Warn,
            LogEvent::ShutdownEnded { unfinished } if *unfinished > 0 => Level::Warn,
            LogEvent::Listening { .. }
            | LogEvent::TlsFailed { .. }
            | LogEvent::Unthrottled { .. }
            | LogEvent::ShutdownBegun { .. }
            | LogEvent::ShutdownEnded { .. } => Level::Info,
            LogEvent::Opened { .. } | LogEvent::Detached { .. } | LogEvent::Moved { .. } => {
                Level::Debug
            }
            LogEvent::Closed { cause, unsent, .. } => match cause {
                Cause::Shed | Cause::Overflow | Cause::WriteStall | Cause::Rejected => Level::Warn,
                Cause::Shutdown if *unsent > 0 => Level::Warn,
                Cause::Idle
                | Cause::TooSlow
                | Cause::ConnectTimeout
                | Cause::ReadTimeout
                | Cause::WriteTimeout => Level::Info,
                _ => Level::Debug,
            },
        }
    }

    /// What has happened, in words.
    fn words(&self) -> &'static str {
        match self {
            LogEvent::Listening { .. } => "listening",
            LogEvent::AcceptFailed { .. } => "accept failed",
            LogEvent::Refused { .. } => "connection refused",
            LogEvent::Opened { .. } => "connection opened",
            LogEvent::Closed { .. } => "connection closed",
            LogEvent::TlsFailed { .. } => "TLS failed",
            LogEvent::Detached { .. } => "connection detached",
            LogEvent::Moved { .. } => "connection moved",
            LogEvent::Throttled { .. } => "connections stop reading",
            LogEvent::Unthrottled { .. } => "connections read again",
            LogEvent::OptionRefused { .. } => "socket option refused",
            LogEvent::Panicked { .. } => "callback panicked",
            LogEvent::JobFailed { .. } => "job failed",
            LogEvent::ShutdownBegun { .. } => "shutdown begun",
            LogEvent::ShutdownEnded { .. } => "shutdown ended",
        }
    }
}

impl fmt::Display for Record<'_> {
    /// What has happened, and the fields without the server and the loop:
    /// `connection closed id=1024 cause=Eof …`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.event.words())?;
        let mut result = Ok(());
        self.fields(|name, field| {
            if !matches!(name, "server" | "loop") && result.is_ok() {
                result = write!(f, " {name}={field}");
            }
        });
        result
    }
}

impl fmt::Display for Field<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Field::Number(number) => number.fmt(f),
            Field::Text(text) => write!(f, "{text:?}"),
            Field::Value(value) => value.fmt(f),
        }
    }
}

/// Tells a log of an event, if it wants the level.
pub(crate) fn tell(log: &dyn Log, record: Record<'_>) {
    // The engine is in the middle of its work: a panic must not pass through it.
    let told = panic::catch_unwind(AssertUnwindSafe(|| {
        if log.enabled(record.level()) {
            log.log(&record);
        }
    }));
    if let Err(payload) = told {
        windlass::driver::discard(payload);
    }
}

/// The message of a panic; empty if it has no text.
pub(crate) fn message(payload: &(dyn std::any::Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or_default()
}
