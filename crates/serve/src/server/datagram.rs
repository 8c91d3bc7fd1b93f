//! The argument of the callback for datagrams.

use std::fmt;

use windlass::{Address, Buf};

use crate::engine::Engine;
use crate::handles::remote::Remote;

/// The sender of a datagram and the way to answer it: the argument of
/// [`Handler::datagram`](crate::Handler::datagram).
///
/// ```
/// use windlass::Buf;
/// use windlass_serve::{Action, Datagram, Handler};
///
/// struct Echo;
/// impl Handler for Echo {
///     type State = ();
///     fn datagram(&mut self, d: &mut Datagram<'_, ()>, data: Buf) -> Action {
///         d.reply(data); // the same bytes, without a copy
///         Action::None
///     }
/// }
/// ```
pub struct Datagram<'a, S> {
    pub(crate) engine: &'a mut Engine<S>,
    pub(crate) remote: &'a Remote,
    pub(crate) listener: usize,
    pub(crate) from: Address,
    pub(crate) truncated: bool,
}

impl<S> Datagram<'_, S> {
    /// The address of the sender. It is [unspecified](Address::is_unspecified) if the sender has no
    /// address, as an unbound Unix socket has none.
    pub fn peer(&self) -> &Address {
        &self.from
    }

    /// The number of the socket that has received the datagram. Sockets are numbered together with
    /// listeners: from 0, in the order in which the program added their addresses.
    pub fn listener(&self) -> usize {
        self.listener
    }

    /// Whether the datagram was longer than
    /// [`Builder::buffer_size`](windlass::Builder::buffer_size) and has lost its end.
    pub fn is_truncated(&self) -> bool {
        self.truncated
    }

    /// Sends a datagram to the sender at the end of the turn. False if too many bytes wait already,
    /// or if the server has begun to shut down: see [`Engine::send_to`]. The server does not call
    /// [`Handler::prewrite`](crate::Handler::prewrite) for it.
    pub fn reply(&mut self, data: impl Into<Buf>) -> bool {
        self.engine.send_to(self.listener, self.from.clone(), data).is_ok()
    }

    /// The engine of this loop, with all its connections.
    pub fn engine(&mut self) -> &mut Engine<S> {
        self.engine
    }

    /// Reaches the connections of all loops, from any thread.
    pub fn remote(&self) -> &Remote {
        self.remote
    }
}

impl<S> fmt::Debug for Datagram<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Datagram")
            .field("listener", &self.listener)
            .field("peer", &self.from)
            .finish_non_exhaustive()
    }
}
