//! The network: its sockets, their states, and how they end.
//!
//! A stream is two sockets that name each other. Bytes that one sends are at once in the ring of
//! the other. If there is a link between them, readers find the bytes later. A selector reports the
//! same conditions of a socket at the same times as on Linux.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use super::completing::Completing;
use super::crash::Machine;
use super::datagram::Mailbox;
use super::faults::Dice;
use super::file_work::Disk;
use super::files::{Disks, OpenFile};
use super::history::History;
use super::jobs::Resolver;
use super::links::Links;
use super::names::Listener;
use super::process::{Processes, WatchedChild};
use super::ring::RingBuffer;
use super::schedule::Schedule;
use crate::kernel::Received;
use crate::sim::faults::{Fault, Faults};
use crate::sim::links::Packet;
use crate::sim::names::{self, Name, os};
use crate::sim::rng::Rng;
use crate::sim::schedule::SimEvent;
use crate::sys::fd::RawFd;
use crate::sys::interest::Ready;
use crate::words::address::Address;

/// XORed with the seed of the faults, this gives the seed of the program's random numbers.
const NUMBERS: u64 = 0x7769_6e64_6c61_7373;
/// As above, for the numbers that decide what a disk keeps.
const DISKS: u64 = 0x6469_736b_7320_6265;
/// The value that goes into the trace before a note.
const NOTE: u64 = 1 << 63;

/// Stands for no socket, no selector, and no line of a link.
pub(super) const NIL: u32 = u32::MAX;

/// The connection is made; bytes go to the peer.
pub(super) const CONNECTED: u16 = 1;
/// The writing side of this end is shut.
pub(super) const SHUT: u16 = 1 << 1;
/// The peer's writing side is shut: after the bytes in the ring comes the end.
pub(super) const ENDED: u16 = 1 << 2;
/// The peer is closed: no program reads what this end sends.
pub(super) const GONE: u16 = 1 << 3;
/// The connection is broken, or was never made.
pub(super) const BROKEN: u16 = 1 << 4;
/// The selector knows the socket.
pub(super) const REGISTERED: u16 = 1 << 5;
/// The selector reports that a write is worth trying.
pub(super) const WRITES_REGISTERED: u16 = 1 << 10;
/// The selector is going to report the socket.
pub(super) const QUEUED: u16 = 1 << 6;
/// The peer has found this ring full, and waits for room.
pub(super) const AWAITED: u16 = 1 << 7;
/// The socket is of an internet family.
pub(super) const INTERNET: u16 = 1 << 8;
/// The socket waits for room in the backlog of the listener that `peer` names.
pub(super) const WAITING: u16 = 1 << 9;

/// Packets to this socket travel over a link.
pub(super) const LINKED: u16 = 1 << 11;
/// The socket has asked for a connection over a link, and has no answer yet.
pub(super) const OPENING: u16 = 1 << 12;
/// The close of the socket resets the connection: its linger time is 0.
pub(super) const RESETS: u16 = 1 << 13;

pub(super) enum Role {
    Vacant,
    Stream,
    Listener(Box<Listener>),
    Datagram(Box<Mailbox>),
    /// Sets of signals: bit 0 is signal 1.
    Signals {
        wanted: u64,
        pending: u64,
    },
    Child(Box<WatchedChild>),
    File(OpenFile),
    /// The machine has crashed, and a dead program still has the number.
    Crashed,
}

pub(super) struct Socket {
    pub(super) flags: u16,
    /// The other end while `CONNECTED` and not `GONE`.
    pub(super) peer: u32,
    pub(super) ring: RingBuffer,
    pub(super) selector: u32,
    pub(super) key: u64,
    /// How often the slot was used before.
    pub(super) generation: u32,
    /// An errno that the next attempt takes.
    pub(super) error: i32,
    /// The direction of a link that ends here, while `LINKED`.
    pub(super) line: u32,
    /// The packets in flight to this socket, by the time of their arrival.
    pub(super) in_flight: VecDeque<(u64, Packet)>,
    /// The place whose faults happen to this socket.
    pub(super) place: u32,
    pub(super) role: Role,
    pub(super) machine: Machine,
    pub(super) local: Name,
    pub(super) remote: Name,
}

pub(super) struct World {
    pub(super) sockets: Vec<Socket>,
    pub(super) vacant: Vec<u32>,
    pub(super) listeners: BTreeMap<Name, Vec<u32>>,
    pub(super) mailboxes: BTreeMap<Name, Vec<u32>>,
    pub(super) processes: Processes,
    pub(super) dice: Dice,
    pub(super) schedule: Schedule,
    pub(super) trace: u64,
    /// Bytes that a socket made from now on can hold.
    pub(super) buffer: usize,
    pub(super) patience: Duration,
    pub(super) port: u16,
    pub(super) resolver: Resolver,
    pub(super) links: Links,
    pub(super) history: History,
    /// The random numbers of the program under test.
    pub(super) numbers: Rng,
    pub(super) time_limit: Option<Duration>,
    pub(super) completing: Completing,
    pub(super) disks: Disks,
    pub(super) disk: Disk,
}

pub(super) fn refuse(errno: i32) -> Received {
    Received::plain(-(errno as isize))
}

impl World {
    pub(super) fn new(seed: u64, faults: Faults) -> World {
        World {
            sockets: Vec::new(),
            vacant: Vec::new(),
            listeners: BTreeMap::new(),
            mailboxes: BTreeMap::new(),
            processes: Processes::new(),
            dice: Dice::new(seed, faults),
            schedule: Schedule::new(),
            trace: 0,
            buffer: 64 << 10,
            patience: Duration::from_secs(10),
            port: names::FIRST_PORT,
            resolver: Resolver::default(),
            links: Links::default(),
            history: History::default(),
            numbers: Rng::new(seed ^ NUMBERS),
            time_limit: None,
            completing: Completing::default(),
            disks: Disks::new(seed ^ DISKS),
            disk: Disk::default(),
        }
    }

    /// Adds a step to the hash of the run.
    #[inline(always)]
    pub(super) fn trace(&mut self, what: u64, answer: u64) {
        let mixed = self.trace.rotate_left(5) ^ what.rotate_left(32) ^ answer;
        self.trace = mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    /// Adds a note to the trace: its length and all of its bytes.
    pub(super) fn note(&mut self, what: &[u8]) {
        self.add_step(format_args!("note: {}", String::from_utf8_lossy(what).escape_debug()));
        self.trace(NOTE, what.len() as u64);
        for part in what.chunks(8) {
            let mut bytes = [0; 8];
            bytes[..part.len()].copy_from_slice(part);
            self.trace(NOTE, u64::from_le_bytes(bytes));
        }
    }

    pub(super) fn open(&mut self, role: Role, local: Name, remote: Name, machine: Machine) -> u32 {
        let index = self.vacant.pop().unwrap_or_else(|| {
            self.sockets.push(Socket {
                flags: 0,
                peer: NIL,
                ring: RingBuffer::new(0),
                selector: NIL,
                key: 0,
                generation: 0,
                error: 0,
                line: NIL,
                in_flight: VecDeque::new(),
                place: 0,
                role: Role::Vacant,
                machine: None,
                local: Name::None,
                remote: Name::None,
            });
            self.sockets.len() as u32 - 1
        });
        let internet = matches!(local, Name::Ip(_));
        let socket = &mut self.sockets[index as usize];
        socket.flags = if internet { INTERNET } else { 0 };
        socket.ring = RingBuffer::new(self.buffer);
        socket.place = self.dice.place_of(&local, &remote);
        (socket.role, socket.local, socket.remote) = (role, local, remote);
        socket.machine = machine;
        index
    }

    /// Updates the place of faults of every socket.
    pub(super) fn place_sockets(&mut self) {
        for socket in &mut self.sockets {
            socket.place = self.dice.place_of(&socket.local, &socket.remote);
        }
    }

    pub(super) fn link(&mut self, a: u32, b: u32) {
        for (socket, peer) in [(a, b), (b, a)] {
            let socket = &mut self.sockets[socket as usize];
            socket.flags |= CONNECTED;
            socket.peer = peer;
        }
    }

    /// A socket has changed: its selector reports it now, or later if a fault delays the report.
    #[inline(always)]
    pub(super) fn edge(&mut self, index: u32) {
        if !self.completing.waiting.is_empty() {
            self.retry(index);
        }
        if self.dice.on && self.edge_is_late(index) {
            return;
        }
        self.report(index);
    }

    #[cold]
    fn edge_is_late(&mut self, index: u32) -> bool {
        let socket = &self.sockets[index as usize];
        let place = socket.place;
        if socket.flags & (REGISTERED | QUEUED) != REGISTERED
            || !self.dice.hits(place, Fault::DelayedReadiness)
        {
            return false;
        }
        let delay_ns = self.dice.latency_ns(place);
        let report = SimEvent::Report { socket: index, generation: socket.generation };
        self.schedule.add(self.schedule.now_ns.saturating_add(delay_ns), report);
        true
    }

    /// The conditions that hold on a socket, as poll(2) says them.
    pub(super) fn conditions(&mut self, index: u32) -> Ready {
        let socket = &self.sockets[index as usize];
        let (flags, peer) = (socket.flags, socket.peer);
        let mut ready = match &socket.role {
            Role::Vacant | Role::Crashed => return Ready::NONE,
            Role::Listener(listener) if listener.backlog.is_empty() => return Ready::NONE,
            Role::Listener(_) => return Ready::READABLE,
            Role::Datagram(mailbox) if mailbox.letters.is_empty() && socket.error == 0 => {
                return Ready::WRITABLE;
            }
            Role::Datagram(_) => return Ready::READABLE | Ready::WRITABLE,
            Role::Signals { pending: 0, .. } => return Ready::NONE,
            Role::Signals { .. } => return Ready::READABLE,
            Role::Child(child) if self.has_ended(child.pid()) => return Ready::READABLE,
            Role::Child(_) => return Ready::NONE,
            Role::File(_) => return Ready::READABLE | Ready::WRITABLE,
            Role::Stream if socket.ring.is_empty() => Ready::NONE,
            Role::Stream => Ready::READABLE,
        };
        if socket.error != 0 {
            ready |= Ready::ERROR;
        }
        if flags & BROKEN != 0 {
            let all = Ready::READABLE | Ready::WRITABLE | Ready::READ_CLOSED | Ready::HANGUP;
            return ready | all;
        }
        if flags & ENDED != 0 {
            ready |= Ready::READABLE | Ready::READ_CLOSED;
            // TCP hangs up when both sides are shut, a Unix socket when its peer is closed.
            if flags & SHUT != 0 || flags & (GONE | INTERNET) == GONE {
                ready |= Ready::HANGUP;
            }
        }
        if flags & (SHUT | GONE) != 0 {
            ready |= Ready::WRITABLE;
        } else if flags & (CONNECTED | OPENING) == CONNECTED {
            let peer = &mut self.sockets[peer as usize];
            if peer.ring.is_roomy() {
                ready |= Ready::WRITABLE;
            } else {
                peer.flags |= AWAITED;
            }
        }
        ready
    }

    pub(super) fn register(
        &mut self,
        fd: RawFd,
        selector: u32,
        key: u64,
        writes: bool,
    ) -> Result<(), i32> {
        let machine = self.schedule.machine_of(selector);
        let socket = &mut self.sockets[fd as usize];
        let known = if writes { REGISTERED | WRITES_REGISTERED } else { REGISTERED };
        if socket.flags & known == known {
            return Err(libc::EEXIST);
        }
        socket.flags |= known;
        socket.selector = selector;
        socket.key = key;
        socket.machine = machine;
        // Conditions that hold already count as an edge.
        if !self.conditions(fd as u32).is_empty() {
            self.edge(fd as u32);
        }
        Ok(())
    }

    pub(super) fn close(&mut self, fd: RawFd) {
        if self.end_socket(fd as u32, Role::Vacant) {
            self.vacant.push(fd as u32);
        }
    }

    /// Ends what a socket is. Its slot becomes vacant, or stays with a dead program. False if it
    /// was vacant.
    pub(super) fn end_socket(&mut self, index: u32, becomes: Role) -> bool {
        self.deregister(index);
        let socket = &mut self.sockets[index as usize];
        let role = std::mem::replace(&mut socket.role, becomes);
        let (flags, peer) = (socket.flags, socket.peer);
        // Bytes in flight to this socket are unread, too: the peer must get a reset.
        let unread = socket.ring.count() > 0;
        let local = std::mem::take(&mut socket.local);
        socket.flags = 0;
        socket.peer = NIL;
        socket.error = 0;
        socket.line = NIL;
        socket.in_flight = VecDeque::new();
        socket.ring = RingBuffer::new(0);
        socket.remote = Name::None;
        socket.generation = socket.generation.wrapping_add(1);
        match role {
            Role::Vacant => return false,
            Role::Signals { .. } | Role::Child(_) | Role::Crashed => {}
            Role::File(open) => self.disks.of(open.machine).close(open),
            Role::Listener(listener) => {
                if let Some(sharing) = self.listeners.get_mut(&local) {
                    sharing.retain(|&other| other != index);
                    if sharing.is_empty() {
                        self.listeners.remove(&local);
                    }
                }
                for end in listener.backlog {
                    self.abort(end);
                }
                for client in listener.waiting {
                    self.sockets[client as usize].flags &= !WAITING;
                    self.send_packet(client, Packet::Reset(libc::ECONNREFUSED));
                }
            }
            Role::Datagram(mailbox) => {
                if let Some(sharing) = self.mailboxes.get_mut(&local) {
                    sharing.retain(|&other| other != index);
                    if sharing.is_empty() {
                        self.mailboxes.remove(&local);
                    }
                }
                self.tell_senders(mailbox.waiting);
            }
            Role::Stream if flags & WAITING != 0 => {
                if let Role::Listener(listener) = &mut self.sockets[peer as usize].role {
                    listener.waiting.retain(|&client| client != index);
                }
            }
            Role::Stream if flags & (CONNECTED | GONE) != CONNECTED => {}
            // Unread bytes are lost: the peer must get a reset.
            Role::Stream => {
                self.sockets[peer as usize].flags |= GONE;
                let is_reset = unread || flags & RESETS != 0;
                let end = if is_reset { Packet::Reset(libc::ECONNRESET) } else { Packet::End };
                self.send_packet(peer, end);
            }
        }
        true
    }

    /// Closes an end of a connection so that the other end is reset.
    pub(super) fn abort(&mut self, index: u32) {
        self.tell_reset(index);
        self.close(index as RawFd);
    }

    /// Resets the other end of a connection, if there is one.
    pub(super) fn tell_reset(&mut self, index: u32) {
        let socket = &self.sockets[index as usize];
        if socket.flags & (CONNECTED | GONE) == CONNECTED {
            let peer = socket.peer;
            self.sockets[peer as usize].flags |= GONE;
            self.send_packet(peer, Packet::Reset(libc::ECONNRESET));
            self.sockets[index as usize].flags |= GONE;
        }
    }

    pub(super) fn local_address(&self, fd: RawFd) -> Address {
        self.sockets[fd as usize].local.address()
    }

    /// The internet address that an accepted connection came from, even after the peer has closed.
    pub(super) fn accepted_from(&self, fd: RawFd) -> Option<SocketAddr> {
        self.sockets[fd as usize].remote.ip()
    }

    pub(super) fn peer_address(&self, fd: RawFd) -> io::Result<Address> {
        let socket = &self.sockets[fd as usize];
        let has_peer = matches!(socket.role, Role::Datagram(_)) && socket.remote != Name::None;
        if !has_peer && (socket.flags & CONNECTED == 0 || socket.flags & BROKEN != 0) {
            return Err(os(libc::ENOTCONN));
        }
        Ok(socket.remote.address())
    }

    /// Forgets a dropped watcher.
    pub(super) fn close_selector(&mut self, selector: u32) {
        for index in 0..self.sockets.len() as u32 {
            if self.sockets[index as usize].selector == selector {
                self.deregister(index);
            }
        }
        self.completing.close_selector(selector);
        self.disks.close_selector(selector);
        self.schedule.close_selector(selector);
    }
}
