//! What a session of TLS makes of peers that break the rules: each has a named reason, an alert
//! where the RFC wants one, and costs a bounded amount of memory.

use crate::crafted::Peer;
use crate::seeds;
use crate::tls::{Pair, settings};
use windlass_serve::tls::{Alert, Error, Provider, Session, SessionState, Tls, TlsClient, Version};

/// A record.
fn record(kind: u8, body: &[u8]) -> Vec<u8> {
    let len = u16::try_from(body.len()).expect("a record");
    [&[kind, 3, 3][..], &len.to_be_bytes(), body].concat()
}

const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const DATA: u8 = 23;

/// The settings of both for one version, or for both versions.
fn both(versions: &[Version]) -> (Tls, TlsClient) {
    let (_, server, client) = settings(Provider::default());
    let versions = versions.iter().copied();
    let server = server.versions(versions.clone()).build().unwrap();
    (server, client.versions(versions).build().unwrap())
}

/// The hello of a new client.
fn hello(client: &TlsClient) -> Vec<u8> {
    let mut out = Vec::new();
    Session::client(client, "localhost").unwrap().take_output(&mut out);
    out
}

/// The error of a session that gets this input, in each of several sizes of pieces, and its output.
fn fails(new: impl Fn() -> Session, input: &[u8]) -> (Error, Vec<u8>) {
    let mut all = Vec::new();
    for size in [1, 2, 3, 5, 7, 100, 4096, usize::MAX] {
        let (mut session, mut out, mut plain) = (new(), Vec::new(), Vec::new());
        session.take_output(&mut out);
        out.clear(); // the hello of a client
        let mut found = None;
        for part in input.chunks(size.min(input.len())) {
            match session.feed_into(part, &mut plain) {
                Ok(_) => drop(session.take_output(&mut out)),
                Err(error) => {
                    found = Some(error);
                    break;
                }
            }
        }
        let error = found.unwrap_or_else(|| panic!("in pieces of {size}: {:?}", session.state()));
        session.take_output(&mut out);
        assert!(plain.is_empty());
        assert_eq!(session.state(), SessionState::Failed);
        assert_eq!(session.failure().unwrap().to_string(), error.to_string());
        // It stays so, costs nothing more, and says nothing more.
        let mut again = input.to_vec();
        let fed = session.feed(&mut again);
        assert_eq!((fed.consumed, fed.plain), (0, 0));
        assert_eq!(fed.result.unwrap_err().to_string(), error.to_string());
        session.close();
        let written = session.write_all(b"x", &mut out);
        assert_eq!(written.unwrap_err().to_string(), error.to_string());
        all.push((error, out));
    }
    let (error, out) = all.swap_remove(0);
    for (other, _) in &all {
        assert_eq!(other.to_string(), error.to_string(), "it depends on the cut of {input:?}");
    }
    (error, out)
}

/// The last alert of an output in plain text: its number.
fn alert(out: &[u8]) -> Option<u8> {
    match out.get(out.len().checked_sub(7)?..)? {
        [ALERT, 3, _, 0, 2, 2, number] => Some(*number),
        _ => None,
    }
}

#[test]
fn other_protocols_are_recognized() {
    let (server, client) = both(Version::ALL);
    let cases: [(&[u8], Option<&str>); 10] = [
        (b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n", Some("HTTP")),
        (b"POST /form HTTP/1.1\r\n\r\n", Some("HTTP")),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Some("HTTP")),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", Some("HTTP, as a server")),
        (b"SSH-2.0-OpenSSH_9.2\r\n", Some("SSH")),
        (b"PROXY TCP4 192.0.2.1 192.0.2.2 4567 80\r\n", Some("the PROXY protocol")),
        (b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c", Some("the PROXY protocol")),
        (b"EHLO mail.example\r\n", Some("text")),
        // The hello of SSL 2, and nothing known.
        (b"\x80\x2e\x01\0\x02\0\x15\0\0\0\x10", None),
        (&[0; 20], None),
    ];
    for (input, expected) in cases {
        let news: [&dyn Fn() -> Session; 3] =
            [&|| Session::server(&server).unwrap(), &|| Session::server_later(16 << 10), &|| {
                Session::client(&client, "localhost").unwrap()
            }];
        for new in news {
            let (error, out) = fails(new, input);
            let Error::NotTls { looks_like } = error else { panic!("{error:?}") };
            assert_eq!(looks_like, expected);
            assert_eq!(alert(&out), Some(50), "decode_error: {out:?}");
        }
    }
    let (error, _) = fails(|| Session::server(&server).unwrap(), b"GET / HTTP/1.1\r\n\r\n");
    assert_eq!(error.to_string(), "the peer does not speak TLS, but HTTP");
}

#[test]
fn bad_records_have_a_name() {
    let (server, client) = both(Version::ALL);
    let too_long = [HANDSHAKE, 3, 3, 0xff, 0xff, 1, 0, 0xff];
    let hello = hello(&client);
    let mut unknown = hello.clone();
    unknown[5] = 99; // a message of the handshake that does not exist
    let mut truncated = hello.clone();
    truncated[8] -= 1; // the message ends before its content
    let cases: [(&str, Vec<u8>, &str); 8] = [
        ("an empty message", record(HANDSHAKE, &[]), "BadMessage"),
        ("a length above 16 KiB + 2048", too_long.to_vec(), "RecordTooLong"),
        ("data in place of a hello", record(DATA, b"early"), "Unexpected"),
        ("a heartbeat", record(24, &[1, 0, 1, 0]), "BadMessage"),
        ("change_cipher_spec first", record(20, &[1]), "Unexpected"),
        ("an unknown message", unknown, "Unexpected"),
        ("a message that is cut", truncated, "BadMessage"),
        ("a finished first", record(HANDSHAKE, &[20, 0, 0, 0]), "Unexpected"),
    ];
    for (what, input, expected) in cases {
        let news: [&dyn Fn() -> Session; 2] =
            [&|| Session::server(&server).unwrap(), &|| Session::server_later(16 << 10)];
        for new in news {
            let (error, out) = fails(new, &input);
            let name = format!("{error:?}");
            assert!(name.starts_with(expected), "{what}: {name}");
            assert!(alert(&out).is_some(), "{what}: {out:?}");
        }
    }
}

#[test]
fn a_hello_of_64_kib_in_single_bytes_is_cut_off() {
    let (_, server, _) = settings(Provider::default());
    // A message of 65,000 bytes in records of 100.
    let body = [&[1, 0, 0xfd, 0xe8][..], &[0; 65_000]].concat();
    let input: Vec<u8> = body.chunks(100).flat_map(|part| record(HANDSHAKE, part)).collect();
    for limit in [0, 1, 1000, 16 << 10] {
        let server = server.clone().handshake_limit(limit).build().unwrap();
        let mut session = Session::server(&server).unwrap();
        let mut taken = 0;
        let error = input.iter().find_map(|byte| {
            let result = session.feed_into(&[*byte], &mut Vec::new());
            taken += 1;
            result.err()
        });
        assert!(
            matches!(error, Some(Error::HandshakeTooLong { limit: at }) if at == limit),
            "{error:?}"
        );
        assert_eq!(taken - 1, limit);
        // Nor does it depend on the pieces.
        let mut whole = Session::server(&server).unwrap();
        let result = whole.feed_into(&input, &mut Vec::new());
        assert!(matches!(result, Err(Error::HandshakeTooLong { limit: at }) if at == limit));
        let mut later = Session::server_later(limit);
        let result = later.feed_into(&input, &mut Vec::new());
        assert!(matches!(result, Err(Error::HandshakeTooLong { limit: at }) if at == limit));
    }
    // Without this limit there is the one of rustls.
    let server = server.handshake_limit(usize::MAX).build().unwrap();
    let endless: Vec<u8> = input.repeat(2);
    let result = Session::server(&server).unwrap().feed_into(&endless, &mut Vec::new());
    assert!(matches!(result, Err(Error::BadMessage(_))), "{result:?}");
}

#[test]
fn the_limit_ends_with_the_handshake() {
    for version in Version::ALL {
        let (_, server, client) = settings(Provider::default());
        let server = server.versions([*version]).handshake_limit(4096).build().unwrap();
        let mut pair = Pair::open(&server, &client.build().unwrap());
        pair.client.write_all(&[1; 100_000], &mut pair.to_server).unwrap();
        pair.run().unwrap();
        assert_eq!(pair.server_plain.len(), 100_000);
    }
}

#[test]
fn empty_messages_without_end_are_cut_off() {
    let (server, client) = both(&[Version::Tls12]);
    // In the handshake each empty record is one too many.
    for kind in [20, ALERT, HANDSHAKE, DATA] {
        let input = record(kind, &[]).repeat(99);
        for new in [&(|| Session::server(&server).unwrap()) as &dyn Fn() -> Session, &|| {
            Session::client(&client, "localhost").unwrap()
        }] {
            let name = format!("{:?}", fails(new, &input).0);
            assert!(name.starts_with("BadMessage") || name.starts_with("Unexpected"), "{name}");
        }
    }
    // Then 32 of them may come one after the other.
    for version in Version::ALL {
        let (mut session, mut peer) = Peer::of(*version);
        for round in 0..10 {
            let mut input: Vec<u8> = (0..32).flat_map(|_| peer.record(DATA, b"")).collect();
            input.extend(peer.record(DATA, &[round]));
            let fed = session.feed(&mut input);
            fed.result.unwrap();
            assert_eq!(input[..fed.plain], [round]);
        }
        let input: Vec<u8> = (0..33).flat_map(|_| peer.record(DATA, b"")).collect();
        let name = format!("{:?}", session.feed_into(&input, &mut Vec::new()).unwrap_err());
        assert_eq!(name, "Misbehaved(\"TooManyEmptyFragments\")");
    }
}

#[test]
fn a_renegotiation_is_refused() {
    // It asks for a handshake within the connection: with a warning the first time, then an error.
    let (mut session, mut peer) = Peer::of(Version::Tls12);
    let hello = hello(&both(&[Version::Tls12]).1);
    let mut out = Vec::new();
    session.feed_into(&peer.record(HANDSHAKE, &hello[5..]), &mut Vec::new()).unwrap();
    assert!(session.take_output(&mut out) > 0, "no_renegotiation");
    assert!(session.is_open());
    let again = session.feed_into(&peer.record(HANDSHAKE, &hello[5..]), &mut Vec::new());
    let name = format!("{:?}", again.unwrap_err());
    assert_eq!(name, "Misbehaved(\"TooManyRenegotiationRequests\")");
    // TLS 1.3 has none.
    let (mut session, mut peer) = Peer::of(Version::Tls13);
    let error = session.feed_into(&peer.record(HANDSHAKE, &hello[5..]), &mut Vec::new());
    assert!(matches!(error, Err(Error::Unexpected(_))), "{error:?}");
}

#[test]
fn changes_of_keys_without_end_are_cut_off() {
    let (mut session, mut peer) = Peer::of(Version::Tls13);
    // One that asks for no answer changes the keys of the peer, which this one does not do.
    let error = session.feed_into(&peer.record(HANDSHAKE, &[24, 0, 0, 1, 9]), &mut Vec::new());
    assert!(matches!(error, Err(Error::BadMessage(_))), "{error:?}");
    let (server, client) = both(&[Version::Tls13]);
    let mut pair = Pair::open(&server, &client);
    let mut updates = 0;
    let error = loop {
        assert!(pair.client.update_keys());
        pair.client.take_output(&mut pair.to_server);
        updates += 1;
        match pair.server.feed_into(&pair.to_server, &mut pair.server_plain) {
            Ok(_) => pair.to_server.clear(),
            Err(error) => break error,
        }
        assert!(updates < 100);
    };
    assert_eq!(format!("{error:?}"), "Misbehaved(\"TooManyKeyUpdateRequests\")");
    assert_eq!(updates, 33);
    // There is one answer to all of them.
    assert!(pair.server.take_output(&mut pair.to_client) < 100);
}

#[test]
fn records_are_as_long_as_they_may_be() {
    for version in Version::ALL {
        let (mut session, mut peer) = Peer::of(*version);
        let mut plain = Vec::new();
        session.feed_into(&peer.record(DATA, &[7; 16_384]), &mut plain).unwrap();
        assert_eq!(plain.len(), 16_384);
        let error = session.feed_into(&peer.record(DATA, &[7; 16_385]), &mut plain);
        assert!(matches!(error, Err(Error::RecordTooLong)), "{version}: {error:?}");
        assert_eq!(plain.len(), 16_384);
        assert!(session.has_output());
    }
}

#[test]
fn alerts_of_an_open_connection_are_named() {
    for version in Version::ALL {
        let (mut session, mut peer) = Peer::of(*version);
        let error = session.feed_into(&peer.record(ALERT, &[2, 80]), &mut Vec::new());
        assert!(matches!(error, Err(Error::Alert(Alert(80)))), "{error:?}");
        assert!(!session.has_output());
        let (mut session, mut peer) = Peer::of(*version);
        let warnings: Vec<u8> = (0..99).flat_map(|_| peer.record(ALERT, &[1, 90])).collect();
        let error = session.feed_into(&warnings, &mut Vec::new());
        assert!(matches!(error, Err(Error::Misbehaved(_))), "{error:?}");
        // close_notify of either level ends the peer's side.
        for level in [1, 2] {
            let (mut session, mut peer) = Peer::of(*version);
            session.feed_into(&peer.record(ALERT, &[level, 0]), &mut Vec::new()).unwrap();
            assert_eq!(session.state(), SessionState::PeerClosed);
        }
        let (mut session, mut peer) = Peer::of(*version);
        let error = session.feed_into(&peer.record(ALERT, &[1]), &mut Vec::new());
        assert!(matches!(error, Err(Error::BadMessage(_))), "{error:?}");
    }
}

#[test]
fn what_a_peer_breaks_after_the_close_is_named() {
    for version in Version::ALL {
        let (mut session, mut peer) = Peer::of(*version);
        session.close();
        session.feed_into(&peer.record(DATA, b"late"), &mut Vec::new()).unwrap();
        // With debug assertions the library panics here, and the error is not known.
        let error = session.feed_into(&record(DATA, &[0; 40]), &mut Vec::new());
        assert!(matches!(error, Err(Error::BadRecord | Error::Other(_))), "{error:?}");
        assert_eq!(session.state(), SessionState::Failed);
        session.take_output(&mut Vec::new());
    }
}

#[test]
fn warnings_without_end_are_cut_off() {
    let (server, client) = both(Version::ALL);
    let warning = record(ALERT, &[1, 90]); // user_canceled
    let (error, _) = fails(|| Session::server(&server).unwrap(), &warning.repeat(1000));
    let name = format!("{error:?}");
    assert_eq!(name, "Misbehaved(\"TooManyWarningAlertsReceived\")");
    let (error, _) =
        fails(|| Session::client(&client, "localhost").unwrap(), &warning.repeat(1000));
    assert_eq!(format!("{error:?}"), name);
    // Four of them are allowed.
    let mut pair = Pair::new(&server, &client);
    pair.to_server.extend(warning.repeat(4));
    pair.run().unwrap();
    assert!(pair.server.is_open());
}

#[test]
fn a_fatal_alert_is_named() {
    let (server, client) = both(Version::ALL);
    let news: [&dyn Fn() -> Session; 2] =
        [&|| Session::server(&server).unwrap(), &|| Session::client(&client, "localhost").unwrap()];
    for new in news {
        let (error, out) = fails(new, &record(ALERT, &[2, 40]));
        assert_eq!(error.to_string(), "the peer has sent the alert handshake_failure (40)");
        assert!(out.is_empty(), "an alert has no answer: {out:?}");
        let (error, _) = fails(new, &record(ALERT, &[2, 222]));
        assert_eq!(error.to_string(), "the peer has sent the alert unknown (222)");
        // Levels are 1 and 2.
        let (error, _) = fails(new, &record(ALERT, &[3, 40]));
        assert!(matches!(error, Error::Alert(_)), "{error:?}");
    }
}

#[test]
fn two_hellos_are_one_too_many() {
    for version in Version::ALL {
        let (server, client) = both(&[*version]);
        let hello = hello(&client);
        let (error, out) = fails(|| Session::server(&server).unwrap(), &hello.repeat(2));
        match version {
            // What should be encrypted is not.
            Version::Tls13 => assert!(matches!(error, Error::BadRecord), "{error:?}"),
            _ => assert!(matches!(error, Error::Unexpected(_)), "{error:?}"),
        }
        assert!(!out.is_empty());
    }
}

#[test]
fn data_before_the_end_of_the_handshake_is_refused() {
    for version in Version::ALL {
        let (server, client) = both(&[*version]);
        let input = [hello(&client), record(DATA, &[7; 40])].concat();
        let (error, out) = fails(|| Session::server(&server).unwrap(), &input);
        match version {
            Version::Tls13 => assert!(matches!(error, Error::BadRecord), "{error:?}"),
            _ => assert!(matches!(&error, Error::Unexpected(what) if what == "ApplicationData")),
        }
        assert!(!out.is_empty());
    }
}

#[test]
fn changed_records_are_refused_wherever_they_are_changed() {
    for version in Version::ALL {
        let (server, client) = both(&[*version]);
        let mut at = 0;
        loop {
            let mut pair = Pair::open(&server, &client);
            pair.client.write_all(b"hello", &mut pair.to_server).unwrap();
            let Some(byte) = pair.to_server.get_mut(at) else { break };
            *byte ^= 0x10;
            if at == 2 {
                at += 1; // the lower half of the version: RFC 8446, 5.1 says to ignore it
                continue;
            }
            pair.to_server.extend([0; 0x2000]); // the length may be the longer one now
            let result = pair.server.feed_into(&pair.to_server, &mut pair.server_plain);
            assert!(result.is_err(), "{version}: byte {at}");
            assert!(pair.server_plain.is_empty());
            pair.server.take_output(&mut pair.to_client);
            assert!(!pair.to_client.is_empty(), "{version}: byte {at} without an alert");
            let told = pair.client.feed_into(&pair.to_client, &mut pair.client_plain);
            assert!(matches!(told, Err(Error::Alert(_))), "{version}: byte {at}: {told:?}");
            at += 1;
        }
        assert!(at > 20);
    }
}

/// The first record of an output, and the rest.
fn split(out: &[u8]) -> (&[u8], &[u8]) {
    out.split_at(5 + usize::from(u16::from_be_bytes([out[3], out[4]])))
}

#[test]
fn replayed_and_reordered_records_are_refused() {
    for version in Version::ALL {
        let (server, client) = both(&[*version]);
        for order in [[0, 0], [1, 0]] {
            let mut pair = Pair::open(&server, &client);
            pair.client.write_all(b"one", &mut pair.to_server).unwrap();
            pair.client.write_all(b"two", &mut pair.to_server).unwrap();
            let (one, two) = split(&pair.to_server);
            let input: Vec<u8> = order.iter().flat_map(|i| [one, two][*i]).copied().collect();
            let result = pair.server.feed_into(&input, &mut pair.server_plain);
            assert!(matches!(result, Err(Error::BadRecord)), "{result:?}");
            // What came before it is whole.
            assert_eq!(pair.server_plain, if order[0] == 0 { &b"one"[..] } else { b"" });
        }
    }
}

#[test]
fn what_comes_in_front_of_an_error_is_whole() {
    let (server, client) = both(Version::ALL);
    for len in [5, 10_000, 50_000] {
        for bad in [record(DATA, &[0; 40]), b"not TLS".to_vec(), vec![0; 9], vec![DATA; 9]] {
            let mut pair = Pair::open(&server, &client);
            let text = vec![7; len];
            pair.client.write_all(&text, &mut pair.to_server).unwrap();
            pair.to_server.extend(&bad);
            let fed = pair.server.feed(&mut pair.to_server);
            assert!(fed.result.is_err());
            assert!(pair.to_server[..fed.plain] == text, "{len} {bad:?}: {}", fed.plain);
            assert!(pair.server.has_output());
        }
    }
}

#[test]
fn a_server_that_hangs_up_in_each_flight_is_named() {
    for version in Version::ALL {
        let (server, client) = both(&[*version]);
        let mut at = 0;
        let mut seen = Vec::new();
        loop {
            let mut pair = Pair::new(&server, &client);
            let mut left = at;
            // Each end gets so many bytes in all.
            while left > 0 && !(pair.client.is_open() && pair.server.is_open()) {
                pair.client.take_output(&mut pair.to_server);
                pair.server.take_output(&mut pair.to_client);
                let most = left.min(pair.to_server.len());
                pair.server.feed_into(&pair.to_server[..most], &mut pair.server_plain).unwrap();
                pair.to_server.drain(..most);
                left -= most;
                pair.server.take_output(&mut pair.to_client);
                let most = left.min(pair.to_client.len());
                pair.client.feed_into(&pair.to_client[..most], &mut pair.client_plain).unwrap();
                pair.to_client.drain(..most);
                left -= most;
            }
            let is_open = pair.client.is_open() && pair.server.is_open();
            for end in [&mut pair.client, &mut pair.server] {
                let was_open = end.is_open();
                let error = end.end_of_input().unwrap_err();
                assert!(matches!(
                    (was_open, error),
                    (true, Error::Truncated) | (false, Error::HandshakeCut)
                ));
            }
            seen.push(is_open);
            if is_open {
                break;
            }
            at += 13;
        }
        assert!(seen.len() > 50, "{}", seen.len());
    }
}

#[test]
fn no_input_panics() {
    seeds::each("hostile", 300, 100, |seed| {
        let mut random = fastrand::Rng::with_seed(seed);
        let version = Version::ALL[random.usize(..Version::ALL.len())];
        let (server, client) = both(&[version]);
        let mut pair = Pair::new(&server, &client);
        if random.bool() {
            pair.server = Session::server_later(random.usize(..1 << 17));
        }
        for _ in 0..60 {
            pair.client.take_output(&mut pair.to_server);
            pair.server.take_output(&mut pair.to_client);
            spoil(&mut random, &mut pair.to_server);
            spoil(&mut random, &mut pair.to_client);
            let fed = pair.server.feed(&mut pair.to_server);
            assert!(fed.plain <= fed.consumed && fed.consumed <= pair.to_server.len());
            let _ = pair.client.feed_into(&pair.to_client, &mut pair.client_plain);
            pair.to_server.clear();
            pair.to_client.clear();
            let _ = pair.server.answer(&server);
            let _ = pair.client.write_all(&[1; 100], &mut pair.to_server);
            let _ = pair.server.write_all(&[2; 100], &mut pair.to_client);
            match random.u8(..40) {
                0 => pair.client.close(),
                1 => pair.server.close(),
                2 => drop(pair.server.end_of_input()),
                3 => drop(pair.client.update_keys()),
                _ => {}
            }
            drop((format!("{:?}", pair.client), pair.server.peer_certificate_info()));
        }
    });
}

/// Changes what is on its way, as a bad network or a bad peer would; mostly not.
fn spoil(random: &mut fastrand::Rng, bytes: &mut Vec<u8>) {
    let at = random.usize(..=bytes.len());
    match random.u8(..24) {
        0 => bytes.truncate(at),
        1 if at < bytes.len() => bytes[at] ^= 1 << random.u8(..8),
        2 => drop(bytes.splice(at..at, std::iter::repeat_with(|| random.u8(..)).take(9))),
        3 => drop(bytes.drain(..at)),
        4 => {
            let copy = bytes.clone();
            bytes.extend(copy);
        }
        5 => {
            let kind = random.u8(20..25);
            let len = random.usize(..300);
            let body: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(len).collect();
            bytes.splice(at..at, record(kind, &body));
        }
        _ => {}
    }
}
