//! A datagram, as its callback is given it.

use std::fmt;

use windlass::{Address, Buf};

use crate::engine::{Engine, Remote};

/// A datagram, in [`Handler::datagram`](crate::Handler::datagram).
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
    /// The sender.
    pub fn peer(&self) -> &Address {
        &self.from
    }

    /// The number of the address that it has come to, as [`Origin::listener`](crate::Origin) has
    /// it.
    pub fn listener(&self) -> usize {
        self.listener
    }

    /// Whether it was longer than a buffer of the watcher, and so was cut.
    pub fn is_truncated(&self) -> bool {
        self.truncated
    }

    /// Sends a datagram to the sender. False if too many bytes wait already: see
    /// [`Engine::send_to`]. [`Handler::prewrite`](crate::Handler::prewrite) is not called for it.
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
