//! The arguments of the last callback of a connection.

use std::time::Duration;

use windlass::{Buf, Handle};

#[cfg(doc)]
use super::handler::Handler;
use crate::words::cause::{Cause, Phase};
use crate::words::id::Id;

/// The argument of [`Handler::closed`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Closed<S> {
    /// The connection; the id is stale.
    pub id: Id,
    /// Why it ended.
    pub cause: Cause,
    /// How many bytes of output the kernel has not taken, as
    /// [`Event::Closed`](crate::Event::Closed) counts them. Bytes that it took can still get lost.
    pub unsent: usize,
    /// What the connection was doing when it ended.
    pub phase: Phase,
    /// How long the connection was open, in steps of 100 ms; zero if it never opened. The time
    /// before a [move](crate::Conn::move_to_loop) does not count.
    pub age: Duration,
    /// The program's state.
    pub state: S,
    /// Why TLS has failed, with [`Cause::Tls`] and [`Cause::Truncated`]: its text names the
    /// certificate, the name or the time that is wrong.
    #[cfg(feature = "tls")]
    pub tls_error: Option<Box<crate::tls::Error>>,
}

/// The argument of [`Handler::detached`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Detached<S> {
    /// The connection; the id is stale.
    pub id: Id,
    /// The descriptor. An accepted one is non-blocking.
    pub handle: Handle,
    /// Bytes that had arrived and were not delivered, in order.
    pub undelivered: Vec<Buf>,
    /// Whether the peer has shut down its output.
    pub eof: bool,
    /// The program's state.
    pub state: S,
}
