//! The header of the PROXY protocol, with which a proxy says whose connection it passes on.
//!
//! # Why
//!
//! The answer must not depend on how the network cuts the bytes: a peer that could choose between
//! two readings by the size of its segments could pass a check with one and be served with the
//! other. So each check looks at bytes in their order, and at none before all bytes in front of
//! them are right. The reader keeps no state. It sees all bytes from the first one again, which
//! costs little: version 1 has at most 107 bytes, and version 2 says its length in the first 16.
//!
//! "Section" means a section of haproxy's doc/proxy-protocol.txt.

#[cfg(test)]
mod tests;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// The first bytes of version 1 (section 2.1).
const V1_SIGNATURE: &[u8] = b"PROXY ";
/// The first bytes of version 2 (section 2.2).
const V2_SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// The longest line of version 1, with its CRLF (section 2.1).
const V1_MOST: usize = 107;
/// The bytes of version 2 in front of the addresses: the signature, the version with the command,
/// the family with the protocol, and the length of the rest (section 2.2).
const V2_HEAD: usize = 16;
/// The type of the vector with a checksum of the header (section 2.2.3).
const TLV_CRC32C: u8 = 3;

/// Reads headers, with the settings of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProxyCodec {
    /// Whether it takes the line of text.
    pub(crate) v1: bool,
    /// Whether it takes the binary form.
    pub(crate) v2: bool,
    /// The most bytes of a header of version 2. (Version 1 has a limit in the specification.)
    pub(crate) max_header: usize,
}

/// A whole header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProxyHeader {
    /// How many bytes it has. What follows them is for the program.
    pub(crate) len: usize,
    /// Whose connection it is.
    pub(crate) origin: ProxyOrigin,
}

/// Whose connection a proxy passes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProxyOrigin {
    /// The proxy's own, as for a health check, or one of which it knows nothing: the addresses are
    /// those of the socket.
    Proxy,
    /// That of a client with a Unix socket, which has no internet address.
    Unix,
    /// That of a client with an internet address.
    Internet {
        /// The address of the client.
        peer: SocketAddr,
        /// The address that the client has connected to.
        local: SocketAddr,
    },
}

impl ProxyOrigin {
    /// The peer of the connection, if it has an internet address; `sockets` is the peer of the
    /// socket.
    pub(crate) fn peer(self, sockets: Option<SocketAddr>) -> Option<SocketAddr> {
        match self {
            ProxyOrigin::Proxy => sockets,
            ProxyOrigin::Unix => None,
            ProxyOrigin::Internet { peer, .. } => Some(peer),
        }
    }
}

/// Why bytes are no header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadHeader {
    /// They begin in another way.
    Signature,
    /// The version is one that the listener does not take, or that does not exist.
    Version,
    /// It is longer than the limit.
    Length,
    /// A CR or an LF stands alone.
    LineEnd,
    /// A family or a protocol is unknown.
    Family,
    /// The line has too few or too many fields.
    Fields,
    /// An address of the line is not one of its family, or is not in its canonical form.
    Address,
    /// A port of the line is no number from 0 to 65535, or is not in its canonical form.
    Port,
    /// The command is unknown.
    Command,
    /// The addresses do not fit into the length.
    Addresses,
    /// A type-length-value vector does not fit into the length, or a checksum is not one of 4
    /// bytes, or there are two.
    Vector,
    /// The checksum is wrong.
    Checksum,
}

impl BadHeader {
    /// What the log tells.
    pub(crate) fn text(self) -> &'static str {
        match self {
            BadHeader::Signature => "the connection begins with no PROXY header",
            BadHeader::Version => "the PROXY header has a version that is not accepted",
            BadHeader::Length => "the PROXY header is too long",
            BadHeader::LineEnd => "the line of the PROXY header does not end with CRLF",
            BadHeader::Family => "the PROXY header has an unknown family or protocol",
            BadHeader::Fields => "the line of the PROXY header has a wrong number of fields",
            BadHeader::Address => "an address in the PROXY header is wrong",
            BadHeader::Port => "a port in the PROXY header is wrong",
            BadHeader::Command => "the PROXY header has an unknown command",
            BadHeader::Addresses => "the PROXY header is too short for its addresses",
            BadHeader::Vector => "a vector of the PROXY header is malformed",
            BadHeader::Checksum => "the checksum of the PROXY header is wrong",
        }
    }
}

impl ProxyCodec {
    /// The most bytes that [`read`](ProxyCodec::read) needs for an answer: with so many it has
    /// found a header or an error.
    pub(crate) fn most(&self) -> usize {
        let v2_most = self.max_header.max(V2_HEAD);
        if self.v2 { v2_most.max(V1_MOST) } else { V1_MOST }
    }

    /// The header at the start of all bytes that a connection has brought so far; `None` if more
    /// have to come. More bytes never change a header or an error.
    pub(crate) fn read(&self, bytes: &[u8]) -> Result<Option<ProxyHeader>, BadHeader> {
        let (signature, is_taken) = match bytes.first() {
            None => return Ok(None),
            Some(b'P') => (V1_SIGNATURE, self.v1),
            Some(_) => (V2_SIGNATURE, self.v2),
        };
        let seen = bytes.len().min(signature.len());
        if bytes[..seen] != signature[..seen] {
            return Err(BadHeader::Signature);
        }
        if seen < signature.len() {
            return Ok(None);
        }
        // A signature of the other version gets an error of its own: the usual mistake is that the
        // proxy and the listener are set to different versions.
        if !is_taken {
            return Err(BadHeader::Version);
        }
        if signature == V1_SIGNATURE { read_line(bytes) } else { self.read_binary(bytes) }
    }

    /// A header of version 2, behind its signature (section 2.2).
    fn read_binary(&self, bytes: &[u8]) -> Result<Option<ProxyHeader>, BadHeader> {
        let Some(version) = bytes.get(V2_SIGNATURE.len()) else { return Ok(None) };
        if version >> 4 != 2 {
            return Err(BadHeader::Version);
        }
        let is_local = match version & 0xf {
            0 => true,
            1 => false,
            _ => return Err(BadHeader::Command),
        };
        let Some(family) = bytes.get(V2_SIGNATURE.len() + 1) else { return Ok(None) };
        // The bytes of the addresses; `None` for a block that says nothing to us. With the command
        // LOCAL the block is discarded "including the family which is ignored". With the family or
        // the protocol UNSPEC, nothing says where addresses end and vectors begin.
        let block = match (family >> 4, family & 0xf) {
            _ if is_local => None,
            (4.., _) | (_, 3..) => return Err(BadHeader::Family),
            (0, _) | (_, 0) => None,
            (1, _) => Some(12),
            (2, _) => Some(36),
            (_, _) => Some(216),
        };
        let Some(rest) = bytes.get(V2_HEAD - 2..V2_HEAD) else { return Ok(None) };
        let len = V2_HEAD + usize::from(u16::from_be_bytes(array(rest, 0)));
        if len > self.max_header {
            return Err(BadHeader::Length);
        }
        let addresses_end = V2_HEAD + block.unwrap_or(0);
        if len < addresses_end {
            return Err(BadHeader::Addresses);
        }
        // "The receiver must not start to parse an address before the whole address block is
        // received."
        let Some(header) = bytes.get(..len) else { return Ok(None) };
        let port = |at| u16::from_be_bytes(array(header, at));
        let origin = match block {
            None => ProxyOrigin::Proxy,
            Some(12) => ProxyOrigin::Internet {
                peer: (array::<4>(header, 16), port(24)).into(),
                local: (array::<4>(header, 20), port(26)).into(),
            },
            Some(36) => ProxyOrigin::Internet {
                peer: (array::<16>(header, 16), port(48)).into(),
                local: (array::<16>(header, 32), port(50)).into(),
            },
            Some(_) => ProxyOrigin::Unix,
        };
        if block.is_some() {
            check_vectors(header, addresses_end)?;
        }
        Ok(Some(ProxyHeader { len, origin }))
    }
}

/// A header of version 1, behind its signature (section 2.1).
fn read_line(bytes: &[u8]) -> Result<Option<ProxyHeader>, BadHeader> {
    let line = &bytes[..bytes.len().min(V1_MOST)];
    // "The receiver must not tolerate a single CR or LF character to end the line." That holds for
    // the ignored rest behind UNKNOWN, too: a reader with another notion of a line's end would see
    // the data of the program begin elsewhere.
    let end = line.iter().position(|byte| matches!(byte, b'\r' | b'\n')).unwrap_or(line.len());
    match &line[end..] {
        [b'\r', b'\n', ..] => {}
        [] | [b'\r'] if line.len() == V1_MOST => return Err(BadHeader::Length),
        [] | [b'\r'] => return Ok(None),
        _ => return Err(BadHeader::LineEnd),
    }
    let mut fields = line[V1_SIGNATURE.len()..end].split(|byte| *byte == b' ');
    let origin = match fields.next() {
        Some(b"TCP4") => internet::<Ipv4Addr>(fields)?,
        Some(b"TCP6") => internet::<Ipv6Addr>(fields)?,
        // "The receiver must ignore anything presented before the CRLF."
        Some(b"UNKNOWN") => ProxyOrigin::Proxy,
        _ => return Err(BadHeader::Family),
    };
    Ok(Some(ProxyHeader { len: end + 2, origin }))
}

/// The fields of a line behind its family: two addresses, then two ports (section 2.1).
fn internet<'a, A: FromStr + Into<IpAddr>>(
    mut fields: impl Iterator<Item = &'a [u8]>,
) -> Result<ProxyOrigin, BadHeader> {
    let mut next = || fields.next().ok_or(BadHeader::Fields);
    let (peer, local, peer_port, local_port) = (next()?, next()?, next()?, next()?);
    if next().is_ok() {
        return Err(BadHeader::Fields);
    }
    // std refuses zeros in front of an octet, as section 2.1 does. It takes `::ffff:1.2.3.4`, which
    // is not in section 2.1: proxies write it for an IPv4 client of a socket for both families, as
    // `inet_ntop` does.
    let address = |field| -> Option<IpAddr> {
        Some(std::str::from_utf8(field).ok()?.parse::<A>().ok()?.into())
    };
    let peer = address(peer).ok_or(BadHeader::Address)?;
    let local = address(local).ok_or(BadHeader::Address)?;
    let peer_port = port(peer_port).ok_or(BadHeader::Port)?;
    let local_port = port(local_port).ok_or(BadHeader::Port)?;
    Ok(ProxyOrigin::Internet { peer: (peer, peer_port).into(), local: (local, local_port).into() })
}

/// A port without a sign and without zeros in front (section 2.1), both of which std takes.
fn port(field: &[u8]) -> Option<u16> {
    let number = std::str::from_utf8(field).ok()?.parse().ok()?;
    (field.len() == 1 || !matches!(field[0], b'+' | b'0')).then_some(number)
}

/// The `N` bytes at `at`.
fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    std::array::from_fn(|i| bytes[at + i])
}

/// Steps over the vectors behind the addresses, and verifies the checksum if one of them has it
/// (sections 2.2 and 2.2.3).
fn check_vectors(header: &[u8], mut at: usize) -> Result<(), BadHeader> {
    let mut checksum_at = None;
    while at < header.len() {
        let Some(&[kind, high, low]) = header[at..].first_chunk() else {
            return Err(BadHeader::Vector);
        };
        at += 3;
        let len = usize::from(u16::from_be_bytes([high, low]));
        if len > header.len() - at {
            return Err(BadHeader::Vector);
        }
        // The sum is that of a header with zeros in its place, so there is no second one.
        if kind == TLV_CRC32C && (len != 4 || checksum_at.replace(at).is_some()) {
            return Err(BadHeader::Vector);
        }
        at += len;
    }
    let Some(at) = checksum_at else { return Ok(()) };
    let sum = [&header[..at], &[0; 4], &header[at + 4..]].into_iter().fold(!0, add_crc32c);
    if !sum == u32::from_be_bytes(array(header, at)) { Ok(()) } else { Err(BadHeader::Checksum) }
}

/// Castagnoli's polynomial, with its lowest power in the highest bit (RFC 4960, appendix B).
const CASTAGNOLI: u32 = 0x82f6_3b78;

/// What each value of 4 bits adds to the sum. A table for 8 bits would take 1 KiB of the cache to
/// make a sum faster that each connection has once.
const NIBBLES: [u32; 16] = {
    let mut table = [0; 16];
    let mut value = 0;
    while value < 16 {
        let (mut sum, mut bit) = (value as u32, 0);
        while bit < 4 {
            sum = (sum >> 1) ^ (CASTAGNOLI * (sum & 1));
            bit += 1;
        }
        table[value] = sum;
        value += 1;
    }
    table
};

/// The CRC32c of more bytes. It begins with all ones, and ends inverted.
fn add_crc32c(sum: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(sum, |sum, byte| {
        let sum = sum ^ u32::from(*byte);
        let sum = (sum >> 4) ^ NIBBLES[(sum & 15) as usize];
        (sum >> 4) ^ NIBBLES[(sum & 15) as usize]
    })
}
