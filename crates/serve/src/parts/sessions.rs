//! The table of UDP sessions.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::Instant;

use windlass::{Address, Buf, Ticket};

use crate::parts::table::NIL;
use crate::parts::trim::{trim, trim_map, trim_places, trim_queue};
use crate::words::cause::Cause;
use crate::words::id::Id;

/// The address of a peer. That of an internet peer takes no allocation.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) enum Peer {
    Ip(SocketAddr),
    Other(Address),
}

impl Peer {
    pub(crate) fn of(address: &Address) -> Peer {
        address.ip().map_or_else(|| Peer::Other(address.clone()), Peer::Ip)
    }

    pub(crate) fn address(&self) -> Address {
        match self {
            Peer::Ip(ip) => Address::from(*ip),
            Peer::Other(address) => address.clone(),
        }
    }
}

/// A peer of a datagram socket.
pub(crate) struct UdpSession {
    /// Its place in the table of connections.
    pub(crate) index: u32,
    /// The number of the socket among the listeners. A client has none: its socket is its own, and
    /// is connected to its peer.
    pub(crate) listener: Option<usize>,
    pub(crate) peer: Peer,
    /// The memory of an address that has arrived, for the next answer.
    pub(crate) spare: Option<Address>,
    /// When its last datagram arrived, or it was connected. Before that it is in no list.
    pub(crate) heard: Option<Instant>,
    /// Its neighbours in the list.
    pub(crate) before: u32,
    pub(crate) after: u32,
    /// The charge of its datagrams that the kernel has not taken: in bytes, and their number.
    pub(crate) charged: u32,
    pub(crate) pending: u32,
    /// The bytes of the datagrams that have failed.
    pub(crate) unsent: usize,
    /// Datagrams that arrived while the program did not want any, and their charge in bytes.
    pub(crate) held: VecDeque<Buf>,
    pub(crate) held_bytes: u32,
    /// Why it ends.
    pub(crate) cause: Option<Cause>,
}

impl UdpSession {
    pub(crate) fn new(index: u32, listener: Option<usize>, peer: Peer) -> UdpSession {
        UdpSession {
            index,
            listener,
            peer,
            spare: None,
            heard: None,
            before: NIL,
            after: NIL,
            charged: 0,
            pending: 0,
            unsent: 0,
            held: VecDeque::new(),
            held_bytes: 0,
            cause: None,
        }
    }
}

/// A datagram that is being sent.
#[derive(Clone, Copy)]
pub(crate) struct Sending {
    pub(crate) id: Id,
    pub(crate) charged: u32,
}

/// The sessions of an engine.
pub(crate) struct Sessions {
    pub(crate) all: Vec<Option<UdpSession>>,
    pub(crate) vacant: Vec<u32>,
    pub(crate) by_peer: HashMap<(usize, Peer), u32>,
    /// The ends of the list.
    pub(crate) first: u32,
    pub(crate) last: u32,
    /// The timer of the first one, and whether it has fired.
    pub(crate) timer: Option<Ticket>,
    pub(crate) is_due: bool,
    /// The datagrams that were written in this turn.
    pub(crate) outbox: VecDeque<(Id, Buf)>,
    /// Those that are being sent, by the numbers in their tokens.
    pub(crate) in_flight: Vec<Sending>,
    pub(crate) vacant_sends: Vec<u32>,
    /// The charge of all sessions to the server's budget, in bytes.
    pub(crate) charged: usize,
}

impl Default for Sessions {
    fn default() -> Sessions {
        Sessions {
            all: Vec::new(),
            vacant: Vec::new(),
            by_peer: HashMap::new(),
            first: NIL,
            last: NIL,
            timer: None,
            is_due: false,
            outbox: VecDeque::new(),
            in_flight: Vec::new(),
            vacant_sends: Vec::new(),
            charged: 0,
        }
    }
}

impl Sessions {
    /// How many there are, without clients.
    pub(crate) fn len(&self) -> usize {
        self.by_peer.len()
    }

    pub(crate) fn get(&mut self, at: u32) -> &mut UdpSession {
        self.all[at as usize].as_mut().expect("a place names a session that is there")
    }

    /// Adds a session that is in no list yet.
    pub(crate) fn insert(&mut self, session: UdpSession) -> u32 {
        let at = self.vacant.pop().unwrap_or_else(|| {
            self.all.push(None);
            self.all.len() as u32 - 1
        });
        if let Some(listener) = session.listener {
            self.by_peer.insert((listener, session.peer.clone()), at);
        }
        self.all[at as usize] = Some(session);
        at
    }

    pub(crate) fn remove(&mut self, at: u32) -> UdpSession {
        if self.get(at).heard.is_some() {
            self.unlink(at);
        }
        let session = self.all[at as usize].take().expect("a place names a session that is there");
        if let Some(listener) = session.listener {
            self.by_peer.remove(&(listener, session.peer.clone()));
        }
        self.vacant.push(at);
        session
    }

    /// Puts a session behind all others.
    pub(crate) fn append(&mut self, at: u32) {
        let before = std::mem::replace(&mut self.last, at);
        let session = self.get(at);
        (session.before, session.after) = (before, NIL);
        match before {
            NIL => self.first = at,
            before => self.get(before).after = at,
        }
    }

    pub(crate) fn unlink(&mut self, at: u32) {
        let session = self.get(at);
        let (before, after) = (session.before, session.after);
        match before {
            NIL => self.first = after,
            before => self.get(before).after = after,
        }
        match after {
            NIL => self.last = before,
            after => self.get(after).before = before,
        }
    }

    /// Gives memory back that a burst has left.
    pub(crate) fn trim(&mut self) {
        trim_places(&mut self.all, &mut self.vacant);
        trim_map(&mut self.by_peer);
        trim_queue(&mut self.outbox);
        if self.vacant_sends.len() == self.in_flight.len() {
            self.vacant_sends.clear();
            self.in_flight.clear();
            trim(&mut self.vacant_sends);
            trim(&mut self.in_flight);
        }
    }

    /// Begins the idle time of a session, or begins it again.
    pub(crate) fn touch(&mut self, at: u32, now: Instant) {
        if self.get(at).heard.replace(now).is_none() {
            self.append(at);
        } else if self.last != at {
            self.unlink(at);
            self.append(at);
        }
    }
}
