//! Links between hosts: packets arrive later than they were sent, or wait until a cut is healed.
//!
//! A link has two directions. The packets in flight are in a queue of their destination socket, in
//! order. Their bytes are already in the socket's ring, hidden from readers until the packet
//! arrives.
//!
//! Invariants: (L1) the packets of a stream arrive in the order in which they were sent. (L2) A
//! packet has an event at the time of its arrival. If a cut stalls it then, the heal makes another
//! event.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use super::datagram::LETTER_BYTES;
use crate::sim::Sim;
use crate::sim::names::Name;
use crate::sim::schedule::SimEvent;
use crate::sim::world::{ENDED, LINKED, OPENING, Role, World};
use crate::words::clock;

/// How bytes travel between two hosts. The default: they arrive at once.
///
/// ```
/// use std::time::Duration;
/// use windlass::sim::Link;
/// let far = Link::default().latency(Duration::from_millis(80)).bandwidth(1_000_000);
/// assert_eq!(far.jitter, Duration::ZERO);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Link {
    /// How long a byte travels, in one direction. Default zero.
    pub latency: Duration,
    /// The largest addition to the latency: the seed draws one for each message. The bytes of a
    /// connection stay in their order; datagrams may overtake each other. Default zero.
    pub jitter: Duration,
    /// How many bytes per second each direction carries, for all connections together. Default 0,
    /// which means no limit.
    pub bandwidth: u64,
}

impl Link {
    /// Sets [`latency`](Link::latency).
    pub fn latency(mut self, span: Duration) -> Link {
        self.latency = span;
        self
    }

    /// Sets [`jitter`](Link::jitter).
    pub fn jitter(mut self, span: Duration) -> Link {
        self.jitter = span;
        self
    }

    /// Sets [`bandwidth`](Link::bandwidth), in bytes per second; 0 means no limit.
    pub fn bandwidth(mut self, bytes: u64) -> Link {
        self.bandwidth = bytes;
        self
    }
}

/// How many messages the links have delayed, stalled and lost: see [`Sim::traffic`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Traffic {
    /// Messages that have arrived later than they were sent.
    pub delayed: u64,
    /// Messages of connections, and connects, that a cut has stalled.
    pub stalled: u64,
    /// Datagrams that a cut has lost.
    pub lost: u64,
}

/// A packet in flight to a socket.
#[derive(Debug)]
pub(super) enum Packet {
    /// This many bytes, which are in the ring already.
    Bytes(usize),
    /// The peer has shut down its output.
    End,
    /// The connection breaks, or is refused.
    Reset(i32),
    /// A request for a connection: it arrives at the listener, not at this socket.
    Ask,
    /// The connection is made.
    Opened,
    /// The peer has room for bytes again.
    Room,
    /// A datagram and its sender.
    Letter(Name, Box<[u8]>),
}

/// One direction of a link.
struct Line {
    link: Link,
    cut: bool,
    /// When the last byte that was sent so far leaves the sender; the bandwidth decides this.
    free_ns: u64,
}

#[derive(Default)]
pub(super) struct Links {
    /// The index of a line, by its source and its destination.
    numbers: BTreeMap<(IpAddr, IpAddr), u32>,
    lines: Vec<Line>,
    pub(super) traffic: Traffic,
}

impl Links {
    pub(super) fn between(&self, from: &Name, to: &Name) -> Option<u32> {
        if self.lines.is_empty() {
            return None;
        }
        self.numbers.get(&(from.ip()?.ip(), to.ip()?.ip())).copied()
    }

    fn both(&mut self, a: IpAddr, b: IpAddr) -> [u32; 2] {
        [(a, b), (b, a)].map(|ends| {
            *self.numbers.entry(ends).or_insert_with(|| {
                self.lines.push(Line { link: Link::default(), cut: false, free_ns: 0 });
                self.lines.len() as u32 - 1
            })
        })
    }

    fn is_cut(&self, line: u32) -> bool {
        self.lines.get(line as usize).is_some_and(|line| line.cut)
    }

    /// The hosts that are cut off from each other, each pair once.
    pub(super) fn cuts(&self) -> impl Iterator<Item = (IpAddr, IpAddr)> {
        let ends = self.numbers.iter();
        ends.filter(|((a, b), line)| a <= b && self.is_cut(**line)).map(|(ends, _)| *ends)
    }
}

impl World {
    /// The time at which a message arrives if it is sent now over a line.
    fn arrival_ns(&mut self, line: u32, bytes: usize) -> u64 {
        let now_ns = self.schedule.now_ns;
        let Some(line) = self.links.lines.get_mut(line as usize) else { return now_ns };
        let Link { latency, jitter, bandwidth } = line.link;
        let mut at_ns = now_ns;
        if bandwidth > 0 {
            let span_ns = (bytes as u128 * 1_000_000_000).div_ceil(u128::from(bandwidth));
            let span_ns = u64::try_from(span_ns).unwrap_or(u64::MAX);
            line.free_ns = line.free_ns.max(now_ns).saturating_add(span_ns);
            at_ns = line.free_ns;
        }
        at_ns = at_ns.saturating_add(clock::ns_of_duration(latency));
        let jitter_ns = clock::ns_of_duration(jitter);
        if jitter_ns > 0 {
            at_ns = at_ns.saturating_add(self.dice.rng.below(jitter_ns));
        }
        at_ns
    }

    /// Sends a packet to a stream: over the line of the stream, or at once if the stream has no
    /// line.
    pub(super) fn send_packet(&mut self, to: u32, packet: Packet) {
        let socket = &self.sockets[to as usize];
        if socket.flags & LINKED == 0 {
            return self.apply_packet(to, packet);
        }
        let line = socket.line;
        let bytes = if let Packet::Bytes(count) = packet { count } else { 0 };
        let at_ns = self.arrival_ns(line, bytes);
        self.send_at(to, at_ns, packet);
    }

    /// Puts a packet in flight. A packet to a stream goes behind the other packets. A datagram may
    /// overtake others.
    fn send_at(&mut self, to: u32, at_ns: u64, packet: Packet) {
        let is_cut = self.is_held_up(to, &packet);
        let now_ns = self.schedule.now_ns;
        let socket = &mut self.sockets[to as usize];
        let in_flight = &mut socket.in_flight;
        let mut place = in_flight.len();
        let mut at_ns = at_ns;
        if matches!(packet, Packet::Letter(..)) {
            while place > 0 && in_flight[place - 1].0 > at_ns {
                place -= 1;
            }
        } else {
            at_ns = in_flight.back().map_or(at_ns, |(last, _)| at_ns.max(*last));
            if in_flight.is_empty() && at_ns <= now_ns && !is_cut {
                return self.apply_packet(to, packet);
            }
        }
        in_flight.insert(place, (at_ns, packet));
        let generation = socket.generation;
        self.links.traffic.delayed += 1;
        self.schedule.add(at_ns, SimEvent::Arrive { socket: to, generation });
    }

    /// Whether a cut holds up a packet to a socket.
    fn is_held_up(&self, to: u32, packet: &Packet) -> bool {
        let socket = &self.sockets[to as usize];
        match packet {
            Packet::Letter(from, _) => {
                let line = self.links.between(from, &socket.local);
                line.is_some_and(|line| self.links.is_cut(line))
            }
            _ => self.links.is_cut(socket.line),
        }
    }

    /// Delivers the packets to a socket whose time has come.
    pub(super) fn deliver_due(&mut self, to: u32, generation: u32) {
        let now_ns = self.schedule.now_ns;
        loop {
            let socket = &self.sockets[to as usize];
            // The last packet may have closed the socket.
            if socket.generation != generation {
                return;
            }
            let Some((at_ns, packet)) = socket.in_flight.front() else { return };
            if *at_ns > now_ns {
                return;
            }
            let held_up = self.is_held_up(to, packet);
            let is_letter = matches!(packet, Packet::Letter(..));
            if held_up && !is_letter {
                self.links.traffic.stalled += 1;
                return;
            }
            let Some((_, packet)) = self.sockets[to as usize].in_flight.pop_front() else { return };
            if held_up {
                self.lose_datagram(to, packet);
            } else {
                self.apply_packet(to, packet);
            }
        }
    }

    /// Loses a datagram, and frees its room in the mailbox.
    fn lose_datagram(&mut self, to: u32, packet: Packet) {
        self.links.traffic.lost += 1;
        if let Packet::Letter(_, bytes) = packet
            && let Role::Datagram(mailbox) = &mut self.sockets[to as usize].role
        {
            mailbox.bytes -= bytes.len() + LETTER_BYTES;
            let waiting = std::mem::take(&mut mailbox.waiting);
            self.tell_senders(waiting);
        }
    }

    /// Applies a packet that has arrived at a socket.
    fn apply_packet(&mut self, to: u32, packet: Packet) {
        if self.history.is_on() && self.sockets[to as usize].flags & LINKED != 0 {
            let title = self.title(to);
            self.add_step(format_args!("arrives at {title}: {packet:?}"));
        }
        let socket = &mut self.sockets[to as usize];
        match packet {
            Packet::Bytes(count) => socket.ring.show(count),
            Packet::End => socket.flags |= ENDED,
            Packet::Reset(errno) => {
                socket.flags &= !OPENING;
                return self.sever(to, errno);
            }
            Packet::Ask => return self.ask_listener(to),
            Packet::Opened => socket.flags &= !OPENING,
            Packet::Room => {}
            Packet::Letter(from, bytes) => {
                if let Role::Datagram(mailbox) = &mut socket.role {
                    mailbox.letters.push_back((from, bytes));
                }
            }
        }
        self.edge(to);
    }

    /// Sends a datagram over its link; false if there is no link. The caller has reserved its room
    /// in the mailbox.
    pub(super) fn send_datagram_over_link(
        &mut self,
        to: u32,
        at: &Name,
        from: &Name,
        bytes: &[u8],
    ) -> bool {
        let Some(line) = self.links.between(from, at) else { return false };
        let at_ns = self.arrival_ns(line, bytes.len());
        let letter = Packet::Letter(from.clone(), bytes.into());
        if self.links.is_cut(line) {
            self.lose_datagram(to, letter);
        } else {
            self.send_at(to, at_ns, letter);
        }
        true
    }

    /// Makes a stream use the link between its ends, if there is one.
    pub(super) fn use_link(&mut self, index: u32) {
        let socket = &self.sockets[index as usize];
        if !matches!(socket.role, Role::Stream) {
            return;
        }
        if let Some(line) = self.links.between(&socket.remote, &socket.local) {
            let socket = &mut self.sockets[index as usize];
            socket.line = line;
            socket.flags |= LINKED;
        }
    }

    /// Asks a listener for a connection over the link; false if there is no link.
    pub(super) fn ask_over_link(&mut self, client: u32) -> bool {
        self.use_link(client);
        let socket = &mut self.sockets[client as usize];
        if socket.flags & LINKED == 0 {
            return false;
        }
        socket.flags |= OPENING;
        let line = self.links.between(&socket.local, &socket.remote).unwrap_or(socket.line);
        let at_ns = self.arrival_ns(line, 0);
        self.send_at(client, at_ns, Packet::Ask);
        true
    }

    /// Sends bytes to a closed peer: its host answers the first of them with a reset.
    pub(super) fn send_to_closed_peer(&mut self, index: u32, bytes: usize) -> isize {
        let socket = &self.sockets[index as usize];
        if socket.flags & LINKED == 0 {
            self.sever(index, libc::EPIPE);
            return bytes as isize;
        }
        if socket.in_flight.iter().any(|(_, packet)| matches!(packet, Packet::Reset(_))) {
            return -(libc::EAGAIN as isize);
        }
        let line = socket.line;
        let there_ns = self.links.between(&socket.local, &socket.remote);
        let there_ns = there_ns.map_or(0, |line| self.arrival_ns(line, bytes));
        let travels_ns = there_ns.saturating_sub(self.schedule.now_ns);
        let at_ns = self.arrival_ns(line, 0).saturating_add(travels_ns);
        self.send_at(index, at_ns, Packet::Reset(libc::EPIPE));
        bytes as isize
    }

    fn change_links(&mut self, a: IpAddr, b: IpAddr, change: impl Fn(&mut Link, &mut bool)) {
        let lines = self.links.both(a, b);
        let was_cut = self.links.is_cut(lines[0]);
        for line in lines {
            let line = &mut self.links.lines[line as usize];
            change(&mut line.link, &mut line.cut);
        }
        for index in 0..self.sockets.len() as u32 {
            self.use_link(index);
            let socket = &self.sockets[index as usize];
            if was_cut && lines.contains(&socket.line) && !socket.in_flight.is_empty() {
                self.resume(index);
            }
        }
    }

    /// Continues the stalled packets to a socket, unless a cut still stalls them.
    fn resume(&mut self, index: u32) {
        let socket = &self.sockets[index as usize];
        let (line, generation) = (socket.line, socket.generation);
        if self.links.is_cut(line) {
            return;
        }
        let now_ns = self.schedule.now_ns;
        let again_ns = self.arrival_ns(line, 0);
        let mut last_ns = 0;
        let mut times = Vec::new();
        for (at_ns, _) in &mut self.sockets[index as usize].in_flight {
            let held_up = *at_ns <= now_ns;
            let due_ns = if held_up { again_ns } else { *at_ns }.max(last_ns);
            last_ns = due_ns;
            if due_ns != *at_ns || held_up {
                *at_ns = due_ns;
                times.push(due_ns);
            }
        }
        for at_ns in times {
            self.schedule.add(at_ns, SimEvent::Arrive { socket: index, generation });
        }
    }
}

impl Sim {
    /// Sets latency, jitter and bandwidth between two hosts, in both directions, from now on. The
    /// seed draws the jitter. Existing connections use the link, too. Bytes that are already in
    /// flight still arrive at the time that was set for them.
    ///
    /// A connect takes a round trip. A host is an address of sockets, so give each watcher its own
    /// with [`Sim::at`]. Otherwise the clients of a server at 10.0.0.1 have this address
    /// themselves, and use the link from it to itself. Unix sockets and [pairs](Sim::pair) have no
    /// links.
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass::sim::{Link, Sim};
    /// use windlass::{Completions, Op, Watcher};
    /// let sim = Sim::new(1);
    /// let far = Link::default().latency(Duration::from_millis(40));
    /// sim.set_link([10, 0, 0, 1], [10, 0, 0, 2], far);
    /// let mut server = Watcher::simulated(&sim.at([10, 0, 0, 1]));
    /// let mut client = Watcher::simulated(&sim.at([10, 0, 0, 2]));
    /// server.listen(([10, 0, 0, 1], 80))?;
    /// let start = sim.now();
    /// client.submit(Op::connect(([10, 0, 0, 1], 80)))?;
    /// client.wait(&mut Completions::new())?;
    /// assert!(sim.now() >= start + Duration::from_millis(80));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn set_link(&self, a: impl Into<IpAddr>, b: impl Into<IpAddr>, link: Link) {
        self.enter().change_links(a.into(), b.into(), |of, _| *of = link);
    }

    /// Cuts two hosts off from each other, until they are [healed](Sim::heal). No connection
    /// breaks: bytes, ends, resets and connects stall, even if they were already on their way.
    /// Datagrams are lost. [`Sim::traffic`] counts both.
    ///
    /// A stalled connect never fails by itself. A real system gives up after minutes. So give the
    /// connect a timeout.
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass::sim::Sim;
    /// use windlass::{Completions, Done, ErrorKind, Op, Watcher};
    /// let sim = Sim::new(1);
    /// let mut server = Watcher::simulated(&sim.at([10, 0, 0, 1]));
    /// let mut client = Watcher::simulated(&sim.at([10, 0, 0, 2]));
    /// server.listen(([10, 0, 0, 1], 80))?;
    /// sim.cut([10, 0, 0, 1], [10, 0, 0, 2]);
    /// let connect = || Op::connect(([10, 0, 0, 1], 80)).timeout(Duration::from_secs(5));
    /// let mut done = Completions::new();
    /// client.submit(connect())?;
    /// client.wait(&mut done)?;
    /// assert_eq!(done.drain(..).next().unwrap().error_kind(), Some(ErrorKind::Deadline));
    /// sim.heal([10, 0, 0, 1], [10, 0, 0, 2]);
    /// client.submit(connect())?;
    /// client.wait(&mut done)?;
    /// assert!(matches!(done.drain(..).next().unwrap().result, Ok(Done::Socket(_))));
    /// assert!(sim.traffic().stalled > 0);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn cut(&self, a: impl Into<IpAddr>, b: impl Into<IpAddr>) {
        let mut world = self.enter();
        let (a, b) = (a.into(), b.into());
        world.note(format!("cut {a} and {b}").as_bytes());
        world.change_links(a, b, |_, cut| *cut = true);
    }

    /// Ends a [cut](Sim::cut): the stalled messages go on, in their order. Nothing is lost, except
    /// datagrams.
    pub fn heal(&self, a: impl Into<IpAddr>, b: impl Into<IpAddr>) {
        let mut world = self.enter();
        let (a, b) = (a.into(), b.into());
        world.note(format!("heal {a} and {b}").as_bytes());
        world.change_links(a, b, |_, cut| *cut = false);
    }

    /// How many messages the links have delayed, stalled and lost.
    pub fn traffic(&self) -> Traffic {
        self.enter().links.traffic
    }
}
