//! The arguments of the last callback of a connection, and what the program asks for before it
//! passes a connection on.

use std::time::Duration;

use windlass::{Buf, Handle};

#[cfg(doc)]
use super::action::Action;
use super::conn::Conn;
#[cfg(doc)]
use super::handler::Handler;
#[cfg(doc)]
use crate::engine::Engine;
use crate::words::cause::{Cause, Phase};
use crate::words::id::Id;
use crate::words::refused::{Refusal, Refused};

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

impl<S> Conn<'_, S> {
    /// Hands the descriptor to [`Handler::detached`] after the waiting output is sent, as
    /// [`Action::Detach`] does, and says why it does not. To hand bytes over that were read ahead,
    /// [give them back](Conn::unread) before.
    ///
    /// # Errors
    /// Those of [`Engine::detach`]: [`Refusal::Tls`] for a connection with TLS, for example.
    pub fn detach(&mut self) -> Result<(), Refusal> {
        self.engine.detach(self.id())
    }

    /// Gives bytes back that the program has read ahead, for whoever reads the connection next: see
    /// [`Engine::unread`].
    ///
    /// # Errors
    /// [`Refused`] hands the bytes back: see [`Engine::unread`].
    pub fn unread(&mut self, data: impl Into<Buf>) -> Result<(), Refused<Buf>> {
        self.engine.unread(self.id(), data)
    }
}
