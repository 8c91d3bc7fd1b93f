//! Datagram sockets.

use windlass::{Address, Buf};

/// The charge of a waiting datagram besides its bytes.
pub(crate) const BOOKKEEPING: usize = 128;

/// The datagram sockets of an engine.
#[derive(Default)]
pub(crate) struct Datagrams {
    pub(crate) sockets: Vec<Socket>,
    /// The datagrams that were written in this turn.
    pub(crate) outbox: Vec<(usize, Address, Buf)>,
}

pub(crate) struct Socket {
    /// Its number among the listeners.
    pub(crate) listener: usize,
    /// Whether each of its peers is a session.
    pub(crate) has_sessions: bool,
    /// Receives in flight, and those that have failed since the last datagram.
    pub(crate) receives: u32,
    pub(crate) failures: u32,
    /// Whether it receives nothing for 100 ms, after many failures in a row.
    pub(crate) is_paused: bool,
    /// The charge for datagrams that the kernel has not taken, in bytes.
    pub(crate) charged: u32,
}

impl Datagrams {
    pub(crate) fn socket(&mut self, listener: usize) -> Option<&mut Socket> {
        self.sockets.iter_mut().find(|socket| socket.listener == listener)
    }

    /// The charge of all sockets to the server's budget, in bytes.
    pub(crate) fn charged(&self) -> usize {
        self.sockets.iter().map(|socket| socket.charged as usize).sum()
    }
}
