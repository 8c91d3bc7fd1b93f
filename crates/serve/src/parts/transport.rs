//! The transport: the door through which the bytes of a connection pass before the program gets
//! them.
//!
//! A plain connection has no door, and pays nothing for it: no byte of memory, and no instruction
//! for a message, because the usual path of a read leaves out every stage from
//! [`Stage::Handshake`](crate::stage::Stage::Handshake) on in one comparison.
//!
//! A form of the transport begins with a handshake, for which the program has no connection yet.
//! The engine passes what arrives to [`Handshake::take`], whose answer is that more has to come, or
//! what is left over for the program and who the peer is, or why the connection is refused. The
//! handshake has one clock, from its begin to its end: no byte begins it again. Its bytes count for
//! the budget, and there is a limit of them.
//!
//! The only form reads the header of a proxy. It is over with its handshake: the connection is a
//! plain one from there on.
//!
//! # What a form with a cipher will need
//!
//! - `take` also returns output, which is sent though the program has no connection yet. A refusal
//!   has output, too: an alert.
//! - It begins without input, where the server connects: with output, and behind
//!   [`Step::Connected`](crate::stage::Step::Connected).
//! - It stays when it has agreed. Its place is this table and not the active part of a connection,
//!   so that an idle connection has none. Its connections keep `HELD` set, as those with a stream
//!   do: so the usual path leaves them out, and `arrived` passes their bytes through the form.
//! - Output passes the form where `send` takes the turn's output out of the active part: then the
//!   program has written all of the turn, and the form makes records of full size.
//! - The form says where the input ends: an end of file without its farewell is a failure.
//! - A header of a proxy comes first. What is left over behind it is the first input of the next
//!   form.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Instant;

use windlass::{Buf, Handle};

use crate::log::RefusedBecause;
use crate::parts::proxy::ProxyCodec;
use crate::words::cause::Cause;
use crate::words::event::Origin;
use crate::words::proxy::{Proxy, Versions};

/// A connection that a loop has accepted, on its way to where it is served.
pub(crate) struct Accepted {
    pub(crate) handle: Handle,
    /// The parts of its door, side by side, so that there is no space between them. The door
    /// travels along, because another loop, a thread or another server may not know the listener.
    proxy: Option<&'static Proxy>,
    listener: u32,
    versions: Versions,
    /// Whether another server had no room for it. It is not passed on again.
    pub(crate) is_passed_on: bool,
}

// A write of another thread travels in the same queue, and must not become longer by this.
const _: () = assert!(size_of::<Accepted>() <= 48);

impl Accepted {
    pub(crate) fn new(handle: Handle, listener: usize, door: Option<Door>) -> Accepted {
        let (proxy, versions) = match door {
            Some(Door { proxy, versions }) => (Some(proxy), versions),
            None => (None, Versions::NONE),
        };
        Accepted { handle, proxy, listener: listener as u32, versions, is_passed_on: false }
    }

    /// Where it comes from, as far as the socket tells.
    pub(crate) fn origin(&self) -> Origin {
        Origin { listener: Some(self.listener()), peer: self.handle.peer() }
    }

    /// The number of the listener.
    pub(crate) fn listener(&self) -> usize {
        self.listener as usize
    }

    /// The door of the listener.
    pub(crate) fn door(&self) -> Option<Door> {
        self.proxy.map(|proxy| Door { proxy, versions: self.versions })
    }
}

/// What the connections of a listener begin with.
#[derive(Clone, Copy)]
pub(crate) struct Door {
    pub(crate) proxy: &'static Proxy,
    /// In place of those of `proxy`.
    pub(crate) versions: Versions,
}

impl Door {
    fn codec(self) -> ProxyCodec {
        let Versions { v1, v2 } = self.versions;
        ProxyCodec { v1, v2, max_header: self.proxy.max_header }
    }
}

/// A connection whose peer has not brought all that it begins with.
pub(crate) struct Handshake {
    /// Where it comes from, as far as the socket tells.
    pub(crate) origin: Origin,
    /// When it has taken too long; `None` for a time that the clock does not reach.
    pub(crate) until: Option<Instant>,
    codec: ProxyCodec,
    /// The beginning of the header.
    begun: Vec<u8>,
}

/// What a handshake makes of input.
#[derive(Debug)]
pub(crate) enum Agreement {
    /// More has to come.
    More,
    /// It is done. The program gets the rest of the input.
    Agreed {
        rest: Buf,
        peer: Option<SocketAddr>,
    },
    Failed(RefusedBecause),
}

impl Handshake {
    pub(crate) fn new(door: Door, origin: Origin, now: Instant) -> Handshake {
        let until = now.checked_add(door.proxy.timeout);
        Handshake { origin, until, codec: door.codec(), begun: Vec::new() }
    }

    /// How many bytes it holds.
    pub(crate) fn bytes(&self) -> usize {
        self.begun.len()
    }

    /// Takes input, which is not empty.
    pub(crate) fn take(&mut self, input: Buf) -> Agreement {
        let before = self.begun.len();
        let read = if before == 0 {
            // As a rule the header comes at once, and is read where it lies.
            self.codec.read(&input)
        } else {
            // What is behind the longest header is not needed for an answer.
            let most = self.codec.most() - before;
            self.begun.extend_from_slice(&input[..most.min(input.len())]);
            self.codec.read(&self.begun)
        };
        match read {
            Ok(None) => {
                if before == 0 {
                    self.begun = input.to_vec();
                }
                Agreement::More
            }
            Ok(Some(header)) => Agreement::Agreed {
                // There was no answer before this input, so the header ends in it.
                rest: input.slice(header.len - before..),
                peer: header.origin.peer(self.origin.peer),
            },
            Err(bad) => Agreement::Failed(RefusedBecause::Header(bad.text())),
        }
    }
}

/// Why a connection is refused that has ended in its handshake, for this cause.
pub(crate) fn because(cause: Cause) -> RefusedBecause {
    match cause {
        Cause::Shutdown => RefusedBecause::Shutdown,
        cause => RefusedBecause::Handshake(cause),
    }
}

/// The doors of the listeners, and the connections behind which they have not closed yet.
#[derive(Default)]
pub(crate) struct Transports {
    /// By the number of the listener; shorter if the last ones have none.
    doors: Vec<Option<Door>>,
    /// By the place of the connection.
    handshakes: HashMap<u32, Handshake>,
}

impl Transports {
    /// Sets the door of a new listener.
    pub(crate) fn set_door(&mut self, listener: usize, door: Door) {
        self.doors.resize(listener, None);
        self.doors.push(Some(door));
    }

    pub(crate) fn door(&self, listener: usize) -> Option<Door> {
        self.doors.get(listener).copied().flatten()
    }

    pub(crate) fn insert(&mut self, index: u32, handshake: Handshake) {
        self.handshakes.insert(index, handshake);
    }

    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut Handshake> {
        self.handshakes.get_mut(&index)
    }

    /// The places of all connections in a handshake.
    pub(crate) fn indices(&self) -> Vec<u32> {
        self.handshakes.keys().copied().collect()
    }

    /// Takes the handshake of a connection out. A storm of them leaves little memory behind.
    pub(crate) fn remove(&mut self, index: u32) -> Option<Handshake> {
        let handshake = self.handshakes.remove(&index);
        if self.handshakes.capacity() > 4 * self.handshakes.len() + 256 {
            self.handshakes.shrink_to(2 * self.handshakes.len());
        }
        handshake
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// A handshake, at the socket of a proxy.
    fn handshake(proxy: Proxy) -> Handshake {
        let proxy: &'static Proxy = Box::leak(Box::new(proxy));
        let origin = Origin { listener: Some(0), peer: Some(([10, 0, 0, 1], 7).into()) };
        Handshake::new(Door { proxy, versions: proxy.versions }, origin, Instant::now())
    }

    const LINE: &[u8] = b"PROXY TCP4 192.0.2.1 192.0.2.2 4567 80\r\n";

    #[test]
    fn what_follows_the_header_is_left_over() {
        let whole = [LINE, b"hello"].concat();
        for cut in 1..whole.len() {
            let mut one = handshake(Proxy::v1());
            let mut taken = one.take(Buf::from(whole[..cut].to_vec()));
            let mut end = cut;
            if cut < LINE.len() {
                assert!(matches!(taken, Agreement::More), "{cut}: {taken:?}");
                assert_eq!(one.bytes(), cut);
                taken = one.take(Buf::from(whole[cut..].to_vec()));
                end = whole.len();
            }
            let Agreement::Agreed { rest, peer } = taken else { panic!("{cut}: {taken:?}") };
            assert_eq!(peer, Some(([192, 0, 2, 1], 4567).into()));
            assert_eq!(*rest, whole[LINE.len()..end]);
        }
    }

    #[test]
    fn it_holds_no_more_than_the_longest_header() {
        let mut one = handshake(Proxy::v2().max_header(0));
        let head = [b"\r\n\r\n\0\r\nQUIT\n\x21\x11".as_slice(), &216u16.to_be_bytes()].concat();
        assert!(matches!(one.take(Buf::from(head)), Agreement::More));
        // The block of an IPv4 client, then vectors that end one byte too early.
        assert!(matches!(one.take(Buf::from(vec![0; 215])), Agreement::More));
        let Agreement::Agreed { rest, .. } = one.take(Buf::from(vec![0; 100_000])) else {
            panic!("it is whole")
        };
        assert_eq!((rest.len(), one.bytes()), (99_999, 232));
    }

    #[test]
    fn a_time_that_the_clock_does_not_reach_is_none() {
        assert!(handshake(Proxy::v1()).until.is_some());
        assert_eq!(handshake(Proxy::v1().timeout(Duration::MAX)).until, None);
    }

    #[test]
    fn a_storm_leaves_little_memory() {
        let mut all = Transports::default();
        (0..10_000).for_each(|index| all.insert(index, handshake(Proxy::v1())));
        (0..10_000).for_each(|index| assert!(all.remove(index).is_some()));
        assert!(all.handshakes.capacity() < 1000, "{}", all.handshakes.capacity());
        assert!(all.remove(0).is_none());
    }
}
