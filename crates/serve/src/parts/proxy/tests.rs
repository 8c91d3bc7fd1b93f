//! Headers that are right and wrong, and that their cuts make no difference.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

const ANY: ProxyCodec = ProxyCodec { v1: true, v2: true, max_header: 2584 };

type Answer = Result<Option<ProxyHeader>, BadHeader>;

/// The answer to these bytes, which is the same for all ways to cut them.
fn read(codec: ProxyCodec, bytes: &[u8]) -> Answer {
    let whole = codec.read(bytes);
    for len in 0..bytes.len() {
        let part = codec.read(&bytes[..len]);
        assert!(part == Ok(None) || part == whole, "{len} of {bytes:?}: {part:?}, then {whole:?}");
        if let Ok(Some(header)) = whole {
            assert_eq!(part.is_ok_and(|part| part.is_some()), len >= header.len, "{len}");
        }
    }
    if bytes.len() >= codec.most() {
        assert_ne!(whole, Ok(None), "{} bytes without an answer: {bytes:?}", bytes.len());
    }
    whole
}

/// The header of an internet connection, before the data of a program.
fn internet(len: usize, peer: &str, local: &str) -> Answer {
    let (peer, local) = (peer.parse().unwrap(), local.parse().unwrap());
    Ok(Some(ProxyHeader { len, origin: ProxyOrigin::Internet { peer, local } }))
}

/// A header of version 2 with any bytes in its fields.
fn binary(version_command: u8, family_protocol: u8, block: &[u8]) -> Vec<u8> {
    let len = u16::try_from(block.len()).expect("a length");
    let mut bytes = V2_SIGNATURE.to_vec();
    bytes.extend([version_command, family_protocol]);
    bytes.extend(len.to_be_bytes());
    bytes.extend(block);
    bytes
}

/// A type-length-value vector.
fn vector(kind: u8, value: &[u8]) -> Vec<u8> {
    let len = u16::try_from(value.len()).expect("a length");
    [&[kind][..], &len.to_be_bytes(), value].concat()
}

const INET: [u8; 12] = [192, 168, 0, 1, 192, 168, 0, 11, 0xdc, 0x04, 1, 0xbb];

#[test]
fn lines_are_read() {
    for (line, peer, local) in [
        (
            "PROXY TCP4 192.168.0.1 192.168.0.11 56324 443\r\n",
            "192.168.0.1:56324",
            "192.168.0.11:443",
        ),
        (
            "PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n",
            "255.255.255.255:65535",
            "255.255.255.255:65535",
        ),
        ("PROXY TCP4 0.0.0.0 1.2.3.4 0 1\r\n", "0.0.0.0:0", "1.2.3.4:1"),
        ("PROXY TCP6 ::1 2001:DB8::2 1 2\r\n", "[::1]:1", "[2001:db8::2]:2"),
        (
            "PROXY TCP6 ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff \
             ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535\r\n",
            "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535",
            "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535",
        ),
        (
            "PROXY TCP6 ::ffff:10.1.2.3 ::ffff:10.1.2.4 5 6\r\n",
            "[::ffff:10.1.2.3]:5",
            "[::ffff:10.1.2.4]:6",
        ),
    ] {
        assert_eq!(read(ANY, line.as_bytes()), internet(line.len(), peer, local), "{line}");
        let and_data = [line.as_bytes(), b"GET / HTTP/1.1\r\n\r\n"].concat();
        assert_eq!(read(ANY, &and_data), internet(line.len(), peer, local), "{line}");
    }
}

#[test]
fn an_unknown_line_has_the_addresses_of_the_socket() {
    let longest = format!("PROXY UNKNOWN {}\r\n", "f".repeat(V1_MOST - 16));
    let lines = [
        "PROXY UNKNOWN\r\n",
        "PROXY UNKNOWN \r\n",
        "PROXY UNKNOWN 300.1.1.1 x 99999 \0\u{fc}\r\n",
        &longest,
    ];
    for line in lines {
        let expected = ProxyHeader { len: line.len(), origin: ProxyOrigin::Proxy };
        assert_eq!(read(ANY, line.as_bytes()), Ok(Some(expected)), "{line:?}");
    }
    assert_eq!(longest.len(), 107);
}

#[test]
fn wrong_lines_are_refused() {
    let too_long = format!("PROXY UNKNOWN {}\r\n", "f".repeat(V1_MOST - 15));
    assert_eq!(too_long.len(), 108);
    let endless = "PROXY TCP4 ".to_owned() + &"1".repeat(200);
    for (line, why) in [
        ("GET / HTTP/1.1\r\n", BadHeader::Signature),
        ("proxy TCP4 1.1.1.1 2.2.2.2 3 4\r\n", BadHeader::Signature),
        ("PROXYTCP4 1.1.1.1 2.2.2.2 3 4\r\n", BadHeader::Signature),
        ("PROXY\tTCP4 1.1.1.1 2.2.2.2 3 4\r\n", BadHeader::Signature),
        ("\x16\x03\x01", BadHeader::Signature),
        ("PROXY \r\n", BadHeader::Family),
        ("PROXY  TCP4 1.1.1.1 2.2.2.2 3 4\r\n", BadHeader::Family),
        ("PROXY TCP5 1.1.1.1 2.2.2.2 3 4\r\n", BadHeader::Family),
        ("PROXY tcp4 1.1.1.1 2.2.2.2 3 4\r\n", BadHeader::Family),
        ("PROXY UDP4 1.1.1.1 2.2.2.2 3 4\r\n", BadHeader::Family),
        ("PROXY UNKNOWNS\r\n", BadHeader::Family),
        ("PROXY TCP4\r\n", BadHeader::Fields),
        ("PROXY TCP4 1.1.1.1 2.2.2.2 3\r\n", BadHeader::Fields),
        ("PROXY TCP4 1.1.1.1 2.2.2.2 3 4 \r\n", BadHeader::Fields),
        ("PROXY TCP4 1.1.1.1 2.2.2.2 3 4 5\r\n", BadHeader::Fields),
        ("PROXY TCP4  1.1.1.1 2.2.2.2 3 4\r\n", BadHeader::Fields),
        ("PROXY TCP4  1.1.1.1 2.2.2.2 3\r\n", BadHeader::Address),
        ("PROXY TCP4 1.1.1 2.2.2.2 3 4\r\n", BadHeader::Address),
        ("PROXY TCP4 1.1.1.256 2.2.2.2 3 4\r\n", BadHeader::Address),
        ("PROXY TCP4 01.1.1.1 2.2.2.2 3 4\r\n", BadHeader::Address),
        ("PROXY TCP4 1.1.1.1 2.2.2.00 3 4\r\n", BadHeader::Address),
        ("PROXY TCP4 +1.1.1.1 2.2.2.2 3 4\r\n", BadHeader::Address),
        ("PROXY TCP4 1.1.1.1\0 2.2.2.2 3 4\r\n", BadHeader::Address),
        ("PROXY TCP4 ::1 ::2 3 4\r\n", BadHeader::Address),
        ("PROXY TCP4 host 2.2.2.2 3 4\r\n", BadHeader::Address),
        ("PROXY TCP6 1.1.1.1 2.2.2.2 3 4\r\n", BadHeader::Address),
        ("PROXY TCP6 ::1 2.2.2.2 3 4\r\n", BadHeader::Address),
        ("PROXY TCP6 ::1::2 ::2 3 4\r\n", BadHeader::Address),
        ("PROXY TCP6 1:2:3:4:5:6:7 ::2 3 4\r\n", BadHeader::Address),
        ("PROXY TCP6 1:2:3:4:5:6:7:8:9 ::2 3 4\r\n", BadHeader::Address),
        ("PROXY TCP6 12345::1 ::2 3 4\r\n", BadHeader::Address),
        ("PROXY TCP6 fe80::1%1 ::2 3 4\r\n", BadHeader::Address),
        ("PROXY TCP6 [::1] ::2 3 4\r\n", BadHeader::Address),
        ("PROXY TCP6 ::ffff:1.2.3.04 ::2 3 4\r\n", BadHeader::Address),
        ("PROXY TCP4 1.1.1.1 2.2.2.2 65536 4\r\n", BadHeader::Port),
        ("PROXY TCP4 1.1.1.1 2.2.2.2 3 99999999999\r\n", BadHeader::Port),
        ("PROXY TCP4 1.1.1.1 2.2.2.2 03 4\r\n", BadHeader::Port),
        ("PROXY TCP4 1.1.1.1 2.2.2.2 00 4\r\n", BadHeader::Port),
        ("PROXY TCP4 1.1.1.1 2.2.2.2 3 +4\r\n", BadHeader::Port),
        ("PROXY TCP4 1.1.1.1 2.2.2.2 3 -0\r\n", BadHeader::Port),
        ("PROXY TCP4 1.1.1.1 2.2.2.2 3 \u{664}\r\n", BadHeader::Port),
        ("PROXY TCP4 1.1.1.1 2.2.2.2  4\r\n", BadHeader::Port),
        ("PROXY TCP4 1.1.1.1 2.2.2.2 3 4\n", BadHeader::LineEnd),
        ("PROXY TCP4 1.1.1.1 2.2.2.2 3 4\n\r", BadHeader::LineEnd),
        ("PROXY TCP4 1.1.1.1 2.2.2.2 3 4\rX\r\n", BadHeader::LineEnd),
        ("PROXY TCP4 1.1.1.1 2.2.2.2 3 4\r\r\n", BadHeader::LineEnd),
        ("PROXY UNKNOWN a\nb\r\n", BadHeader::LineEnd),
        (&too_long, BadHeader::Length),
        (&endless, BadHeader::Length),
    ] {
        assert_eq!(read(ANY, line.as_bytes()), Err(why), "{line:?}");
    }
}

#[test]
fn binary_headers_are_read() {
    let inet = binary(0x21, 0x11, &INET);
    let (peer, local) = ("192.168.0.1:56324", "192.168.0.11:443");
    assert_eq!(read(ANY, &inet), internet(28, peer, local));
    assert_eq!(read(ANY, &[&inet[..], b"GET /"].concat()), internet(28, peer, local));
    assert_eq!(read(ANY, &binary(0x21, 0x12, &INET)), internet(28, peer, local));

    let (peer, local) = ("[2001:db8::1]:1", "[::ffff:1.2.3.4]:65535");
    let of = |text: &str| match text.parse().unwrap() {
        SocketAddr::V6(address) => address.ip().octets(),
        SocketAddr::V4(_) => unreachable!(),
    };
    let inet6 = [&of(peer)[..], &of(local), &[0, 1, 255, 255]].concat();
    assert_eq!(read(ANY, &binary(0x21, 0x21, &inet6)), internet(52, peer, local));
    assert_eq!(read(ANY, &binary(0x21, 0x22, &inet6)), internet(52, peer, local));

    let unix = Ok(Some(ProxyHeader { len: 232, origin: ProxyOrigin::Unix }));
    assert_eq!(read(ANY, &binary(0x21, 0x31, &[b'/'; 216])), unix);
    assert_eq!(read(ANY, &binary(0x21, 0x32, &[0; 216])), unix);
}

#[test]
fn a_block_that_says_nothing_is_skipped() {
    let skipped = |len| Ok(Some(ProxyHeader { len, origin: ProxyOrigin::Proxy }));
    for (version_command, family_protocol) in [
        (0x20, 0x00),
        (0x20, 0x11),
        (0x20, 0x31),
        (0x20, 0xff), // the family of LOCAL is ignored
        (0x21, 0x00),
        (0x21, 0x01),
        (0x21, 0x02),
        (0x21, 0x10),
        (0x21, 0x20),
        (0x21, 0x30),
    ] {
        let header = |block| binary(version_command, family_protocol, block);
        assert_eq!(read(ANY, &header(&[])), skipped(16));
        assert_eq!(read(ANY, &header(b"\x03\xff\xffno vectors")), skipped(29));
    }
}

#[test]
fn wrong_binary_headers_are_refused() {
    let mut unsigned = binary(0x21, 0x11, &INET);
    unsigned[11] = b'\r';
    for (bytes, why) in [
        (unsigned, BadHeader::Signature),
        (binary(0x11, 0x11, &INET), BadHeader::Version),
        (binary(0x01, 0x11, &INET), BadHeader::Version),
        (binary(0x31, 0x11, &INET), BadHeader::Version),
        (binary(0x22, 0x11, &INET), BadHeader::Command),
        (binary(0x2f, 0x11, &INET), BadHeader::Command),
        (binary(0x21, 0x41, &INET), BadHeader::Family),
        (binary(0x21, 0x13, &INET), BadHeader::Family),
        (binary(0x21, 0xf0, &INET), BadHeader::Family),
        (binary(0x21, 0x0f, &INET), BadHeader::Family),
        (binary(0x21, 0x11, &[]), BadHeader::Addresses),
        (binary(0x21, 0x11, &INET[..11]), BadHeader::Addresses),
        (binary(0x21, 0x21, &[0; 35]), BadHeader::Addresses),
        (binary(0x21, 0x31, &[0; 215]), BadHeader::Addresses),
    ] {
        assert_eq!(read(ANY, &bytes), Err(why), "{bytes:?}");
    }
}

#[test]
fn vectors_are_stepped_over() {
    let header = |vectors: &[u8]| binary(0x21, 0x11, &[&INET, vectors].concat());
    let right = |bytes: &[u8]| internet(bytes.len(), "192.168.0.1:56324", "192.168.0.11:443");
    let empty = vector(4, b"");
    let several = [vector(2, b"example.com"), vector(0xff, b"?"), empty.clone()].concat();
    for vectors in [&empty, &several] {
        let bytes = header(vectors);
        assert_eq!(read(ANY, &bytes), right(&bytes));
    }
    for vectors in [
        &b"\x04"[..],
        b"\x04\0",
        b"\x04\0\x01",
        b"\x04\xff\xff12",
        &[&several[..], b"\x01\0"].concat(),
        &vector(3, b"123"),
        &vector(3, b"12345"),
        &[vector(3, b"1234"), vector(3, b"1234")].concat(),
    ] {
        assert_eq!(read(ANY, &header(vectors)), Err(BadHeader::Vector), "{vectors:?}");
    }
    // Behind the addresses of Unix sockets, too.
    let bytes = binary(0x21, 0x31, &[&[0; 216], &b"\x04\0\x01"[..]].concat());
    assert_eq!(read(ANY, &bytes), Err(BadHeader::Vector));
}

/// The check value of the polynomial, and a header that a load balancer of AWS has sent.
#[test]
fn checksums_are_verified() {
    assert_eq!(!add_crc32c(!0, b"123456789"), 0xe306_9283);
    let addresses = [172, 31, 7, 113, 172, 31, 10, 31, 200, 242, 0, 80];
    let sum = vector(3, &0xe8d6_892d_u32.to_be_bytes());
    let endpoint = vector(0xea, b"\x01vpce-08d2bf15fac5001c9");
    let block = [&addresses[..], &sum, &endpoint, &vector(4, &[0; 36])].concat();
    let bytes = binary(0x21, 0x11, &block);
    assert_eq!(read(ANY, &bytes), internet(100, "172.31.7.113:51442", "172.31.10.31:80"));
    for at in 16..bytes.len() {
        let mut other = bytes.clone();
        other[at] ^= 0x10;
        let is_length = [29, 30, 36, 37, 62, 63].contains(&at);
        // The type of the checksum: without it there is none.
        let expected = match at {
            28 => Ok(()),
            _ if is_length => Err(BadHeader::Vector),
            _ => Err(BadHeader::Checksum),
        };
        assert_eq!(read(ANY, &other).map(drop), expected, "at {at}");
    }
}

#[test]
fn only_the_versions_of_the_listener_are_taken() {
    let v1 = ProxyCodec { v2: false, ..ANY };
    let v2 = ProxyCodec { v1: false, ..ANY };
    let neither = ProxyCodec { v1: false, ..v1 };
    let (line, bytes) = (b"PROXY UNKNOWN\r\n", binary(0x20, 0, &[]));
    assert!(matches!(read(v1, line), Ok(Some(_))) && matches!(read(v2, &bytes), Ok(Some(_))));
    for codec in [v2, neither] {
        assert_eq!(read(codec, line), Err(BadHeader::Version));
        assert_eq!(read(codec, b"PROXX"), Err(BadHeader::Signature));
    }
    for codec in [v1, neither] {
        assert_eq!(read(codec, &bytes), Err(BadHeader::Version));
        assert_eq!(read(codec, b"\r\n\r\r"), Err(BadHeader::Signature));
    }
}

#[test]
fn a_long_header_is_refused_by_its_length_alone() {
    for max_header in [16, 28, 536, 65_551] {
        let codec = ProxyCodec { max_header, ..ANY };
        let len = u16::try_from(max_header - V2_HEAD).unwrap();
        let head = |len: u16| {
            let mut bytes = binary(0x20, 0, &[]);
            bytes[14..16].copy_from_slice(&len.to_be_bytes());
            bytes
        };
        let mut bytes = head(len);
        bytes.resize(max_header, 0);
        let whole = ProxyHeader { len: max_header, origin: ProxyOrigin::Proxy };
        assert_eq!(codec.read(&bytes[..max_header - 1]).ok().flatten(), None);
        assert_eq!(codec.read(&bytes), Ok(Some(whole)));
        if let Some(longer) = len.checked_add(1) {
            assert_eq!(read(codec, &head(longer)), Err(BadHeader::Length));
        }
    }
}

#[test]
fn a_peer_is_told_from_its_origin() {
    let (socket, client) = (([10, 0, 0, 1], 1).into(), ([1, 2, 3, 4], 5).into());
    assert_eq!(ProxyOrigin::Proxy.peer(Some(socket)), Some(socket));
    assert_eq!(ProxyOrigin::Proxy.peer(None), None);
    assert_eq!(ProxyOrigin::Unix.peer(Some(socket)), None);
    let internet = ProxyOrigin::Internet { peer: client, local: socket };
    assert_eq!(internet.peer(Some(socket)), Some(client));
}

/// Bytes that often begin as a header does.
fn noise() -> impl Strategy<Value = Vec<u8>> {
    let head = prop_oneof![
        1 => Just(Vec::new()),
        2 => Just(b"PROXY ".to_vec()),
        2 => Just(b"PROXY TCP4 1.2.3.4 ".to_vec()),
        2 => Just(b"PROXY TCP6 ::1 ".to_vec()),
        2 => Just(V2_SIGNATURE.to_vec()),
        4 => (0x1f_u8..0x23, prop_oneof![Just(0x11), Just(0x21), Just(0x31), any::<u8>()], 0_u8..80)
            .prop_map(|(command, family, len)| [V2_SIGNATURE, &[command, family, 0, len]].concat()),
    ];
    let byte = prop_oneof![any::<u8>(), Just(0), Just(3), Just(b' '), Just(b'\r'), Just(b'\n')];
    (head, vec(byte, 0..160)).prop_map(|(head, rest)| [head, rest].concat())
}

/// An address of this family.
fn address(is_v4: bool) -> BoxedStrategy<IpAddr> {
    match is_v4 {
        true => any::<[u8; 4]>().prop_map(|octets| Ipv4Addr::from(octets).into()).boxed(),
        // Groups of zeros are frequent, so that `::` is.
        false => any::<([u16; 8], u8)>()
            .prop_map(|(mut groups, zeros)| {
                (0..8).filter(|i| (zeros >> i) & 1 == 1).for_each(|i| groups[i] = 0);
                Ipv6Addr::from(groups).into()
            })
            .boxed(),
    }
}

fn addresses() -> impl Strategy<Value = (SocketAddr, SocketAddr)> {
    let of = |is_v4| (address(is_v4), address(is_v4), any::<u16>(), any::<u16>());
    any::<bool>().prop_flat_map(of).prop_map(|(peer, local, port, local_port)| {
        ((peer, port).into(), (local, local_port).into())
    })
}

/// The octets of an address.
fn octets(address: SocketAddr) -> Vec<u8> {
    match address.ip() {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn cuts_make_no_difference_and_nothing_panics(bytes in noise(), max_header in 0_usize..200) {
        for (v1, v2) in [(true, true), (true, false), (false, true), (false, false)] {
            let _ = read(ProxyCodec { v1, v2, max_header }, &bytes);
        }
    }

    #[test]
    fn lines_that_are_built_are_read((peer, local) in addresses(), data: [u8; 3]) {
        let family = if peer.is_ipv4() { "TCP4" } else { "TCP6" };
        let (ip, local_ip, port, local_port) = (peer.ip(), local.ip(), peer.port(), local.port());
        let line = format!("PROXY {family} {ip} {local_ip} {port} {local_port}\r\n");
        let origin = ProxyOrigin::Internet { peer, local };
        let expected = ProxyHeader { len: line.len(), origin };
        prop_assert_eq!(read(ANY, &[line.as_bytes(), &data].concat()), Ok(Some(expected)));
    }

    #[test]
    fn binary_headers_that_are_built_are_read(
        (peer, local) in addresses(),
        is_datagram: bool,
        vectors in vec((any::<u8>(), vec(any::<u8>(), 0..40)), 0..5),
        // Where among the vectors the checksum stands.
        checksum_at in proptest::option::of(any::<prop::sample::Index>()),
        data: [u8; 3],
    ) {
        let family = if peer.is_ipv4() { 0x11 } else { 0x21 };
        let ports = [peer.port().to_be_bytes(), local.port().to_be_bytes()].concat();
        let mut block = [octets(peer), octets(local), ports].concat();
        let mut vectors: Vec<Vec<u8>> = vectors
            .iter()
            .filter(|(kind, _)| *kind != TLV_CRC32C)
            .map(|(kind, value)| vector(*kind, value))
            .collect();
        let mut zeros_at = None;
        if let Some(index) = checksum_at {
            let index = index.index(vectors.len() + 1);
            let before: usize = vectors[..index].iter().map(Vec::len).sum();
            zeros_at = Some(V2_HEAD + block.len() + before + 3);
            vectors.insert(index, vector(TLV_CRC32C, &[0; 4]));
        }
        block.extend(vectors.concat());
        let mut bytes = binary(0x21, family + u8::from(is_datagram), &block);
        let len = bytes.len();
        if let Some(at) = zeros_at {
            let sum = !add_crc32c(!0, &bytes);
            bytes[at..at + 4].copy_from_slice(&sum.to_be_bytes());
        }
        bytes.extend(data);
        let expected = ProxyHeader { len, origin: ProxyOrigin::Internet { peer, local } };
        prop_assert_eq!(read(ANY, &bytes), Ok(Some(expected)));
        if let Some(at) = zeros_at {
            bytes[at] ^= 1;
            prop_assert_eq!(read(ANY, &bytes), Err(BadHeader::Checksum));
        }
    }
}
