//! The address of a connection's peer, in six bytes.
//!
//! # Why
//! An address takes 32 bytes, and most are of IPv4. So a connection has the four bytes of such an
//! address, or a place in a table of the others.

use std::net::{Ipv4Addr, SocketAddr};

/// The address of a peer, or where it is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PeerMark {
    /// An address of IPv4, or a place in the table, in halves: a number would be aligned, and the
    /// state of a connection larger.
    halves: [u16; 2],
    /// The port; 0 for none: no peer has it. The marks of addresses in the table have it.
    port: u16,
}

impl PeerMark {
    #[inline]
    fn new(word: u32, port: u16) -> PeerMark {
        PeerMark { halves: [(word >> 16) as u16, word as u16], port }
    }

    /// A number in the place of an address.
    pub(super) fn of_number(word: u32) -> PeerMark {
        PeerMark::new(word, 0)
    }

    #[inline]
    pub(super) fn number(self) -> u32 {
        u32::from(self.halves[0]) << 16 | u32::from(self.halves[1])
    }
}

/// The addresses that are not of IPv4.
#[derive(Default)]
pub(crate) struct Peers {
    table: Vec<Option<SocketAddr>>,
    free: Vec<u32>,
}

impl Peers {
    pub(crate) fn add(&mut self, peer: Option<SocketAddr>) -> PeerMark {
        match peer {
            None => PeerMark::default(),
            Some(SocketAddr::V4(peer)) if peer.port() != 0 => {
                PeerMark::new((*peer.ip()).into(), peer.port())
            }
            Some(peer) => {
                let at = self.free.pop().unwrap_or_else(|| {
                    self.table.push(None);
                    self.table.len() as u32 - 1
                });
                self.table[at as usize] = Some(peer);
                PeerMark::new(at + 1, 0)
            }
        }
    }

    pub(crate) fn get(&self, mark: PeerMark) -> Option<SocketAddr> {
        match (mark.number(), mark.port) {
            (0, 0) => None,
            (at, 0) => *self.table.get(at as usize - 1)?,
            (ip, port) => Some((Ipv4Addr::from(ip), port).into()),
        }
    }

    pub(crate) fn remove(&mut self, mark: PeerMark) {
        if let (at @ 1.., 0) = (mark.number(), mark.port) {
            self.table[at as usize - 1] = None;
            self.free.push(at - 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_back() {
        let mut peers = Peers::default();
        for address in ["1.2.3.4:5", "[::1]:80", "0.0.0.0:1", "255.255.255.255:65535", "1.2.3.4:0"]
        {
            let address: SocketAddr = address.parse().unwrap();
            let mark = peers.add(Some(address));
            assert_eq!(peers.get(mark), Some(address));
            peers.remove(mark);
        }
        let none = peers.add(None);
        assert_eq!(peers.get(none), None);
        assert!(peers.table.len() == 1, "places are used again");
    }
}
