//! Headers of the PROXY protocol: the same answer at all cuts of the bytes, within the bytes that
//! the reader says it needs, and what was read can be written and read again.
#![no_main]

use std::net::{IpAddr, SocketAddr};

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;

/// The reader is not public, and its file imports std only.
#[allow(dead_code)] // the server needs more of it
#[path = "../../crates/serve/src/parts/proxy/mod.rs"]
mod proxy;

use proxy::{ProxyCodec, ProxyHeader, ProxyOrigin};

#[derive(Debug, Arbitrary)]
struct Program {
    v1: bool,
    v2: bool,
    max_header: u16,
    start: Start,
    bytes: Vec<u8>,
}

/// What is in front of the bytes, so that most of them are behind a signature.
#[derive(Debug, Arbitrary)]
enum Start {
    Nothing,
    Line,
    Binary { version_command: u8, family_protocol: u8 },
}

fuzz_target!(|program: Program| {
    let Program { v1, v2, max_header, start, bytes } = program;
    let codec = ProxyCodec { v1, v2, max_header: max_header.into() };
    let start = match start {
        Start::Nothing => Vec::new(),
        Start::Line => b"PROXY ".to_vec(),
        Start::Binary { version_command, family_protocol } => {
            [b"\r\n\r\n\0\r\nQUIT\n", &[version_command, family_protocol][..]].concat()
        }
    };
    let bytes = [start, bytes].concat();
    let whole = codec.read(&bytes);
    for len in 0..bytes.len() {
        let part = codec.read(&bytes[..len]);
        assert!(part == Ok(None) || part == whole, "{len}: {part:?}, then {whole:?}");
    }
    assert!(bytes.len() < codec.most() || whole != Ok(None));
    if let Ok(Some(ProxyHeader { len, origin })) = whole {
        assert!(len <= bytes.len() && len <= codec.most());
        assert_eq!(codec.read(&bytes[..len]), whole);
        if let ProxyOrigin::Internet { peer, local } = origin {
            let codec = ProxyCodec { v1: true, v2: true, max_header: 52 };
            for bytes in [line(peer, local), binary(peer, local)] {
                let again = ProxyHeader { len: bytes.len(), origin };
                assert_eq!(codec.read(&bytes), Ok(Some(again)));
            }
        }
    }
});

fn line(peer: SocketAddr, local: SocketAddr) -> Vec<u8> {
    let family = if peer.is_ipv4() { "TCP4" } else { "TCP6" };
    let (ip, local_ip, port, local_port) = (peer.ip(), local.ip(), peer.port(), local.port());
    format!("PROXY {family} {ip} {local_ip} {port} {local_port}\r\n").into_bytes()
}

fn binary(peer: SocketAddr, local: SocketAddr) -> Vec<u8> {
    let octets = |address: SocketAddr| match address.ip() {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    let family_protocol = if peer.is_ipv4() { 0x11 } else { 0x21 };
    let ports = [peer.port().to_be_bytes(), local.port().to_be_bytes()].concat();
    let block = [octets(peer), octets(local), ports].concat();
    let len = u8::try_from(block.len()).expect("at most 36 bytes");
    [b"\r\n\r\n\0\r\nQUIT\n", &[0x21, family_protocol, 0, len][..], &block].concat()
}
