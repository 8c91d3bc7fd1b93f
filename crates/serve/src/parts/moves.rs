//! Connections that may leave their thread, or are on their way to a loop.

use std::any::Any;

use windlass::{Buf, Handle};

use crate::parts::cipher::Session;
use crate::words::id::Id;

/// Makes a state one that another thread can take.
pub(crate) type Pack<S> = fn(S) -> Box<dyn Any + Send>;

/// A connection that may move to a loop.
pub(crate) struct Move<S> {
    pub(crate) id: Id,
    pub(crate) pack: Pack<S>,
    /// Whether it is about to: `Some` with whether its program knows the end of the input already.
    pub(crate) begun: Option<bool>,
    /// What was promised, and could not be done since then.
    pub(crate) owed: Owed,
    /// Its session of TLS, once its descriptor has left.
    pub(crate) session: Option<Box<Session>>,
}

/// What was known of a connection that moves.
pub(crate) struct Departed<S> {
    pub(crate) pack: Pack<S>,
    /// Whether its program knows the end of the input.
    pub(crate) ended: bool,
    pub(crate) owed: Owed,
    pub(crate) session: Option<Box<Session>>,
}

/// What comes behind a move, on the loop or, if it is called off, where the connection is.
#[derive(Clone, Copy, Default)]
pub(crate) struct Owed {
    /// The program has seen much output, and less of it waits now.
    pub(crate) drained: bool,
    /// A wake that the program or another thread has asked for.
    pub(crate) wake: bool,
    /// A close that came when the connection had left its thread.
    pub(crate) close: bool,
    /// Its read and its write deadline have passed. They stay behind in a move.
    pub(crate) late: [bool; 2],
}

/// A connection on its way to a loop, with its state.
pub(crate) struct Moved {
    pub(crate) parts: Parts,
    pub(crate) state: Box<dyn Any + Send>,
}

/// What a connection is besides its state.
pub(crate) struct Parts {
    /// The id that it had.
    pub(crate) from: Id,
    pub(crate) handle: Handle,
    /// What was not delivered; an empty piece is the end of the input.
    pub(crate) undelivered: Vec<Buf>,
    /// The program knows the end of the input.
    pub(crate) ended: bool,
    pub(crate) owed: Owed,
    /// With what is left of a record that has come in part.
    pub(crate) session: Option<Box<Session>>,
}
