//! Sessions of TLS against each other, in memory.

use std::io::IoSlice;

use crate::seeds;
use crate::tls;
use crate::tls::{Authority, Pair, failures, settings};
use windlass_serve::tls::{
    Alert, Error, Pem, Provider, Session, SessionState, Tls, TlsClient, Version,
};

/// Runs a test with each provider and each version.
fn each(test: impl Fn(&Tls, &TlsClient, Version)) {
    for provider in Provider::ALL {
        for version in Version::ALL {
            println!("{provider}, {version}");
            let (_, server, client) = settings(*provider);
            let server = server.versions([*version]).build().unwrap();
            test(&server, &client.versions([*version]).build().unwrap(), *version);
        }
    }
}

#[test]
fn an_echo_passes_with_each_provider_and_version() {
    each(|server, client, version| {
        let mut pair = Pair::open(server, client);
        assert_eq!(pair.client.version(), Some(version));
        assert_eq!(pair.server.version(), Some(version));
        assert_eq!(pair.client.suite(), pair.server.suite());
        assert!(pair.client.suite().unwrap().starts_with("TLS_"));
        assert_eq!(pair.client.key_exchange(), pair.server.key_exchange());
        pair.client.write_all(b"hello", &mut pair.to_server).unwrap();
        pair.run().unwrap();
        assert_eq!(pair.server_plain, b"hello");
        let heard = std::mem::take(&mut pair.server_plain);
        pair.server.write_all(&heard, &mut pair.to_client).unwrap();
        pair.run().unwrap();
        assert_eq!(pair.client_plain, b"hello");
    });
}

#[test]
fn providers_speak_with_each_other() {
    for one in Provider::ALL {
        for other in Provider::ALL {
            let (authority, server, _) = settings(*one);
            let client = TlsClient::builder().provider(*other).clock(tls::noon);
            let client = client.roots(authority.root()).build().unwrap();
            let pair = Pair::open(&server.build().unwrap(), &client);
            // What a quantum computer does not break is used where both have it.
            let is_safe = [one, other].iter().all(|one| one.to_string() == "aws-lc-rs");
            let expected = if is_safe { "X25519MLKEM768" } else { "X25519" };
            assert_eq!(pair.client.key_exchange().as_deref(), Some(expected));
        }
    }
}

/// Gives a session its input, with a cut at one position of the whole stream.
struct Cut {
    at: usize,
    passed: usize,
}

impl Cut {
    fn at(at: usize) -> Cut {
        Cut { at, passed: 0 }
    }

    fn feed(&mut self, session: &mut Session, input: &mut [u8], plain: &mut Vec<u8>) {
        let cut = self.at.saturating_sub(self.passed).min(input.len());
        self.passed += input.len();
        let (first, second) = input.split_at_mut(cut);
        for part in [first, second] {
            let fed = session.feed(part);
            fed.result.unwrap();
            assert_eq!(fed.consumed, part.len());
            plain.extend(&part[..fed.plain]);
            session.take_plain(plain);
        }
    }
}

/// An exchange with a cut at one position of each direction. Returns how many bytes each has had.
fn cut_exchange(server: &Tls, client: &TlsClient, at: (usize, usize)) -> (usize, usize) {
    let mut pair = Pair::new(server, client);
    let (mut to_server, mut to_client) = (Cut::at(at.0), Cut::at(at.1));
    for step in 0..12 {
        match step {
            4 => pair.client.write_all(b"one", &mut pair.to_server).unwrap(),
            5 => pair.client.write_all(&[7; 300], &mut pair.to_server).unwrap(),
            6 => pair.server.write_all(b"two", &mut pair.to_client).unwrap(),
            7 => pair.server.write_all(b"three", &mut pair.to_client).unwrap(),
            8 => pair.client.close(),
            9 => pair.server.close(),
            _ => {}
        }
        pair.client.take_output(&mut pair.to_server);
        to_server.feed(&mut pair.server, &mut pair.to_server, &mut pair.server_plain);
        pair.to_server.clear();
        pair.server.take_output(&mut pair.to_client);
        to_client.feed(&mut pair.client, &mut pair.to_client, &mut pair.client_plain);
        pair.to_client.clear();
    }
    assert_eq!(pair.server_plain, [&b"one"[..], &[7; 300]].concat(), "cut at {at:?}");
    assert_eq!(pair.client_plain, b"twothree", "cut at {at:?}");
    for end in [&mut pair.client, &mut pair.server] {
        assert_eq!(end.state(), SessionState::PeerClosed, "cut at {at:?}");
        assert_eq!(end.alpn(), Some(&b"h2"[..]));
        end.end_of_input().unwrap();
    }
    (to_server.passed, to_client.passed)
}

#[test]
fn every_cut_of_every_record_gives_the_same() {
    for version in Version::ALL {
        let (_, server, client) = settings(Provider::default());
        let server = server.versions([*version]).alpn(["h2"]).build().unwrap();
        // Each handshake is a whole one.
        let client = client.versions([*version]).alpn(["h2"]).session_cache(0).build().unwrap();
        let (mut at, mut lens) = (0, (1, 1));
        while at < lens.0.max(lens.1) {
            lens = cut_exchange(&server, &client, (at, at));
            at += 1;
        }
        assert!(lens.0 > 500 && lens.1 > 700, "{lens:?}");
        println!("{version}: {} bytes to the server, {} to the client", lens.0, lens.1);
    }
}

#[test]
fn single_bytes_give_the_same() {
    each(|server, client, _| {
        let mut pair = Pair::new(server, client);
        for step in 0..8 {
            if step == 4 {
                pair.client.write_all(b"hello", &mut pair.to_server).unwrap();
            }
            pair.client.take_output(&mut pair.to_server);
            for byte in pair.to_server.drain(..) {
                assert_eq!(pair.server.feed_into(&[byte], &mut pair.server_plain).unwrap(), 1);
            }
            pair.server.take_output(&mut pair.to_client);
            for byte in pair.to_client.drain(..) {
                let fed = pair.client.feed(&mut [byte]);
                assert_eq!((fed.consumed, fed.plain), (1, 0));
                fed.result.unwrap();
            }
        }
        assert_eq!(pair.server_plain, b"hello");
    });
}

#[test]
fn what_does_not_fit_into_the_input_waits() {
    each(|server, client, _| {
        let mut pair = Pair::open(server, client);
        let sent: Vec<u8> = (0..40_000).map(|i| i as u8).collect();
        let mut records = Vec::new();
        pair.client.write_all(&sent, &mut records).unwrap();
        // All but the last byte of the first record, then the rest: more than there is room for.
        let (first, rest) = records.split_at_mut(16_384 + 20);
        let fed = pair.server.feed(first);
        assert_eq!((fed.consumed, fed.plain), (first.len(), 0));
        fed.result.unwrap();
        let (next, rest) = rest.split_at_mut(10);
        let fed = pair.server.feed(next);
        fed.result.unwrap();
        assert_eq!((fed.consumed, fed.plain), (10, 10));
        assert_eq!(pair.server.plain_len(), 16_384 - 10);
        let mut heard = next.to_vec();
        // It comes in front of what follows.
        let fed = pair.server.feed(rest);
        fed.result.unwrap();
        assert_eq!(fed.consumed, rest.len());
        heard.extend(&rest[..fed.plain]);
        assert_eq!(pair.server.take_plain(&mut heard), 40_000 - 10 - fed.plain);
        assert_eq!(pair.server.plain_len(), 0);
        assert!(heard == sent);
    });
}

#[test]
fn plain_text_that_nobody_takes_stops_the_input() {
    each(|server, client, _| {
        let mut pair = Pair::open(server, client);
        let mut records = Vec::new();
        pair.client.write_all(&[7; 200_000], &mut records).unwrap();
        let (mut at, mut heard) = (0, 0);
        // Pieces of one byte have no room for plain text.
        while at < records.len() {
            let fed = pair.server.feed(&mut records[at..at + 1]);
            fed.result.unwrap();
            if fed.consumed == 0 {
                assert!((16_384..=2 * 16_384).contains(&pair.server.plain_len()));
                let mut plain = Vec::new();
                heard += pair.server.take_plain(&mut plain);
                assert!(plain.iter().all(|byte| *byte == 7));
            }
            (at, heard) = (at + fed.consumed, heard + fed.plain);
        }
        heard += pair.server.take_plain(&mut Vec::new());
        assert_eq!(heard, 200_000);
    });
}

/// The lengths of the records of an output.
fn records(mut out: &[u8]) -> Vec<usize> {
    let mut lens = Vec::new();
    while let [_, _, _, high, low, ..] = out {
        let len = usize::from(u16::from_be_bytes([*high, *low]));
        lens.push(len);
        out = &out[5 + len..];
    }
    assert!(out.is_empty());
    lens
}

#[test]
fn several_parts_are_in_as_few_records_as_fit() {
    each(|server, client, _| {
        let mut pair = Pair::open(server, client);
        let (head, body) = (b"head".repeat(100), vec![9; 150_000]);
        let parts = [&head[..], b"", &body, b"end"];
        let whole = parts.concat();
        let mut out = Vec::new();
        let mut taken = 0;
        while taken < whole.len() {
            let mut slices = parts.map(IoSlice::new);
            let mut left = &mut slices[..];
            IoSlice::advance_slices(&mut left, taken);
            let before = out.len();
            let count = pair.client.write(left, &mut out).unwrap();
            assert_eq!(count, (64 << 10).min(whole.len() - taken));
            assert!(out.len() - before <= count + 4 * 30, "{}", out.len() - before);
            taken += count;
        }
        assert_eq!(records(&out).len(), whole.len().div_ceil(16_384));
        let fed = pair.server.feed(&mut out);
        fed.result.unwrap();
        assert!(out[..fed.plain] == whole);
    });
}

#[test]
fn sixteen_mebibytes_pass_both_ways() {
    each(|server, client, _| {
        let mut pair = Pair::open(server, client);
        let mut random = fastrand::Rng::with_seed(29);
        let sent: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(16 << 20).collect();
        for _ in 0..2 {
            let mut out = Vec::new();
            pair.client.write_all(&sent, &mut out).unwrap();
            assert_eq!(records(&out).len(), 1024);
            let mut heard = Vec::with_capacity(sent.len());
            while heard.len() < sent.len() {
                let most = random.usize(1..100_000).min(out.len());
                let fed = pair.server.feed(&mut out[..most]);
                fed.result.unwrap();
                heard.extend(&out[..fed.plain]);
                pair.server.take_plain(&mut heard);
                out.drain(..fed.consumed);
            }
            assert!(heard == sent);
            std::mem::swap(&mut pair.client, &mut pair.server);
        }
    });
}

#[test]
fn nothing_is_written_before_the_handshake_is_done() {
    each(|server, client, _| {
        let mut pair = Pair::new(server, client);
        let mut out = Vec::new();
        let early = pair.client.write_all(b"early", &mut out);
        assert!(matches!(early, Err(Error::Handshaking)), "{early:?}");
        assert!(out.is_empty());
        assert_eq!(pair.client.state(), SessionState::Handshaking);
        pair.run().unwrap();
        pair.client.write_all(b"late", &mut pair.to_server).unwrap();
        pair.run().unwrap();
        assert_eq!(pair.server_plain, b"late");
    });
}

#[test]
fn one_end_closes_and_the_other_one_goes_on() {
    each(|server, client, _| {
        let mut pair = Pair::open(server, client);
        pair.client.write_all(b"last", &mut pair.to_server).unwrap();
        pair.client.close();
        pair.client.close();
        let closed = pair.client.write_all(b"more", &mut pair.to_server);
        assert!(matches!(closed, Err(Error::Closed)), "{closed:?}");
        pair.run().unwrap();
        assert_eq!(pair.server_plain, b"last");
        assert_eq!(pair.server.state(), SessionState::PeerClosed);
        assert_eq!(pair.client.state(), SessionState::Open);
        assert!(pair.client.is_closed() && !pair.server.is_closed());
        pair.server.write_all(b"answer", &mut pair.to_client).unwrap();
        pair.server.close();
        pair.run().unwrap();
        assert_eq!(pair.client_plain, b"answer");
        assert_eq!(pair.client.state(), SessionState::PeerClosed);
        pair.client.end_of_input().unwrap();
        pair.server.end_of_input().unwrap();
    });
}

#[test]
fn what_comes_behind_close_notify_is_left() {
    each(|server, client, _| {
        for (len, cuts) in [(4, 0..80), (9000, 9000..9080)] {
            let text = vec![7; len];
            for cut in cuts {
                let mut pair = Pair::open(server, client);
                pair.client.write_all(&text, &mut pair.to_server).unwrap();
                pair.client.close();
                pair.client.take_output(&mut pair.to_server);
                let end = pair.to_server.len();
                pair.to_server.extend(b"plain text again, which is long enough to be cut");
                let (first, second) = pair.to_server.split_at(cut);
                let mut taken = pair.server.feed_into(first, &mut pair.server_plain).unwrap();
                // What was not taken comes again.
                let again = [&first[taken..], second].concat();
                taken += pair.server.feed_into(&again, &mut pair.server_plain).unwrap();
                assert_eq!(taken, end, "cut at {cut}");
                assert!(pair.server_plain == text);
                assert_eq!(pair.server.state(), SessionState::PeerClosed);
            }
        }
    });
}

#[test]
fn an_end_without_close_notify_is_an_error() {
    each(|server, client, _| {
        let mut pair = Pair::open(server, client);
        pair.client.write_all(b"whole", &mut pair.to_server).unwrap();
        pair.client.write_all(b"cut", &mut pair.to_server).unwrap();
        let most = pair.to_server.len() - 1;
        pair.server.feed_into(&pair.to_server[..most], &mut pair.server_plain).unwrap();
        assert_eq!(pair.server_plain, b"whole");
        assert!(matches!(pair.server.end_of_input(), Err(Error::Truncated)));
        assert_eq!(pair.server.state(), SessionState::Failed);
        assert!(matches!(pair.server.failure(), Some(Error::Truncated)));
        // It stays so.
        assert!(matches!(pair.server.end_of_input(), Err(Error::Truncated)));
        let fed = pair.server.feed(&mut [23]);
        assert!(matches!(fed.result, Err(Error::Truncated)));
        assert_eq!(fed.consumed, 0);

        let mut pair = Pair::new(server, client);
        assert!(matches!(pair.server.end_of_input(), Err(Error::HandshakeCut)));
        pair.client.take_output(&mut pair.to_server);
        assert!(matches!(pair.client.end_of_input(), Err(Error::HandshakeCut)));
    });
}

#[test]
fn keys_change_while_data_passes() {
    each(|server, client, version| {
        let mut pair = Pair::new(server, client);
        assert!(!pair.client.update_keys(), "in the handshake");
        pair.run().unwrap();
        for round in 0..20_u8 {
            assert_eq!(pair.client.update_keys(), version == Version::Tls13);
            assert_eq!(pair.client.has_output(), version == Version::Tls13);
            pair.client.write_all(&[round], &mut pair.to_server).unwrap();
            if round % 3 == 0 {
                pair.server.update_keys();
            }
            pair.server.write_all(&[round], &mut pair.to_client).unwrap();
            pair.run().unwrap();
        }
        let expected: Vec<u8> = (0..20).collect();
        assert_eq!(pair.server_plain, expected);
        assert_eq!(pair.client_plain, expected);
        pair.client.close();
        assert!(!pair.client.update_keys());
    });
}

#[test]
fn the_answer_to_a_change_of_keys_takes_no_room_of_the_text() {
    let (_, server, client) = settings(Provider::default());
    let mut pair = Pair::open(&server.build().unwrap(), &client.build().unwrap());
    for len in [1, 65_536, 200_000] {
        assert!(pair.client.update_keys());
        let mut update = Vec::new();
        pair.client.take_output(&mut update);
        pair.server.feed_into(&update, &mut pair.server_plain).unwrap();
        // It waited for a write: a peer that only listens never heard it.
        assert!(pair.server.has_output());
        let text = vec![7; len];
        let mut out = Vec::new();
        let taken = pair.server.write(&[IoSlice::new(&text)], &mut out).unwrap();
        assert_eq!(taken, len.min(65_536));
        pair.server.write_all(&text[taken..], &mut out).unwrap();
        assert_eq!(records(&out).len(), 1 + len.div_ceil(16_384));
        pair.client_plain.clear();
        pair.to_client.extend(out);
        pair.run().unwrap();
        assert!(pair.client_plain == text);
    }
}

#[test]
fn the_first_protocol_of_the_server_is_chosen() {
    let (_, server, client) = settings(Provider::default());
    let server = server.alpn(["h2", "http/1.1"]).build().unwrap();
    let chosen = |protocols: &[&str]| {
        let client = client.clone().alpn(protocols).build().unwrap();
        let mut pair = Pair::new(&server, &client);
        let (at_client, at_server) = failures(&mut pair);
        assert_eq!(pair.client.alpn(), pair.server.alpn());
        (pair.client.alpn().map(<[u8]>::to_vec), at_client, at_server)
    };
    assert_eq!(chosen(&["http/1.1", "h2"]).0.unwrap(), b"h2");
    assert_eq!(chosen(&["other", "http/1.1"]).0.unwrap(), b"http/1.1");
    let (none, at_client, at_server) = chosen(&[]);
    assert!(none.is_none() && at_client.is_none() && at_server.is_none());
    let (_, at_client, at_server) = chosen(&["other"]);
    assert!(matches!(at_server, Some(Error::NoProtocol)), "{at_server:?}");
    assert!(matches!(at_client, Some(Error::Alert(Alert(120)))), "{at_client:?}");
}

/// Makes a handshake, and lets tickets arrive.
fn connect(server: &Tls, client: &TlsClient) -> Pair {
    let mut pair = Pair::open(server, client);
    pair.server.write_all(b"x", &mut pair.to_client).unwrap();
    pair.run().unwrap();
    pair
}

#[test]
fn sessions_resume_with_tickets_and_with_the_cache() {
    for provider in Provider::ALL {
        for version in Version::ALL {
            for (has_tickets, cache) in [(true, 0), (true, 16), (false, 16), (false, 0)] {
                let (_, server, client) = settings(*provider);
                let server = server.versions([*version]).tickets(has_tickets);
                let server = server.session_cache(cache).build().unwrap();
                let client = client.versions([*version]).build().unwrap();
                assert!(!connect(&server, &client).server.is_resumed());
                // A clone is another loop.
                let pair = connect(&server.clone(), &client.clone());
                let expected = has_tickets || cache > 0;
                assert_eq!(pair.server.is_resumed(), expected, "{version} {has_tickets} {cache}");
                assert_eq!(pair.client.is_resumed(), expected);
                assert_eq!(pair.client.peer_certificates().len(), 1);
            }
        }
    }
}

#[test]
fn clients_without_a_cache_do_not_resume() {
    let (_, server, client) = settings(Provider::default());
    let server = server.build().unwrap();
    let client = client.session_cache(0).build().unwrap();
    assert!(!connect(&server, &client).server.is_resumed());
    assert!(!connect(&server, &client).server.is_resumed());
}

#[test]
fn a_hello_retry_passes() {
    let (_, server, client) = settings(Provider::default());
    let server = server.key_exchanges(["secp384r1"]).build().unwrap();
    let pair = Pair::open(&server, &client.build().unwrap());
    assert_eq!(pair.client.key_exchange().as_deref(), Some("secp384r1"));
}

#[test]
fn the_hello_waits_for_settings() {
    each(|server, client, _| {
        let mut pair = Pair::new(server, client);
        pair.server = Session::server_later(2048);
        assert_eq!(pair.server.state(), SessionState::Handshaking);
        pair.server.answer(server).unwrap();
        assert_eq!(pair.server.state(), SessionState::Handshaking, "there is no question");
        pair.client.take_output(&mut pair.to_server);
        let end = pair.to_server.len();
        pair.to_server.extend([23; 9]);
        // In every cut, and no byte behind the hello is taken.
        for cut in 0..end {
            let (first, second) = pair.to_server.split_at(cut);
            let mut session = Session::server_later(2048);
            assert_eq!(session.feed_into(first, &mut Vec::new()).unwrap(), cut);
            assert_eq!(session.feed_into(second, &mut Vec::new()).unwrap(), end - cut);
            assert_eq!(session.state(), SessionState::Asked);
            assert_eq!(session.server_name(), Some("localhost"));
        }
        pair.to_server.truncate(end);
        pair.run().unwrap();
        assert_eq!(pair.server.state(), SessionState::Asked);
        assert!(!pair.server.has_output());
        pair.server.answer(server).unwrap();
        pair.run().unwrap();
        assert!(pair.server.is_open() && pair.client.is_open());
        pair.client.write_all(b"hello", &mut pair.to_server).unwrap();
        pair.run().unwrap();
        assert_eq!(pair.server_plain, b"hello");
    });
}

#[test]
fn a_hello_that_waits_can_be_refused() {
    let (_, server, client) = settings(Provider::default());
    let server = server.versions([Version::Tls12]).build().unwrap();
    let client = client.versions([Version::Tls13]).build().unwrap();
    let mut pair = Pair::new(&server, &client);
    pair.server = Session::server_later(2048);
    pair.run().unwrap();
    let refused = pair.server.answer(&server);
    assert!(matches!(refused, Err(Error::Incompatible(_))), "{refused:?}");
    assert_eq!(pair.server.state(), SessionState::Failed);
    let (at_client, _) = failures(&mut pair);
    assert!(matches!(at_client, Some(Error::Alert(_))), "{at_client:?}");
}

#[test]
fn versions_and_suites_are_chosen() {
    for provider in Provider::ALL {
        for suite in provider.suites() {
            let is_rsa = suite.contains("_RSA_");
            let is_new = !suite.contains("_WITH_");
            let (_, server, client) = settings(*provider);
            let version = if is_new { Version::Tls13 } else { Version::Tls12 };
            let server = server.suites([&suite]).versions([version]).build().unwrap();
            let mut pair = Pair::new(&server, &client.build().unwrap());
            let (_, at_server) = failures(&mut pair);
            if is_rsa {
                // The certificate has a key of another kind.
                assert!(matches!(at_server, Some(Error::Incompatible(_))), "{at_server:?}");
            } else {
                assert_eq!(pair.client.suite().as_deref(), Some(&*suite));
                assert_eq!(pair.client.version(), Some(version));
            }
        }
    }
}

#[test]
fn nothing_in_common_is_named_at_both_ends() {
    let (_, server, client) = settings(Provider::default());
    for version in Version::ALL {
        let other = if *version == Version::Tls12 { Version::Tls13 } else { Version::Tls12 };
        let server = server.clone().versions([*version]).build().unwrap();
        let client = client.clone().versions([other]).build().unwrap();
        let (at_client, at_server) = failures(&mut Pair::new(&server, &client));
        assert!(matches!(at_server, Some(Error::Incompatible(_))), "{at_server:?}");
        assert!(matches!(at_client, Some(Error::Alert(_))), "{at_client:?}");
    }
}

#[test]
fn a_session_moves_between_threads() {
    fn is_movable<T: Send>() {}
    is_movable::<Session>();
    let (_, server, client) = settings(Provider::default());
    let mut pair = Pair::open(&server.build().unwrap(), &client.build().unwrap());
    let heard = std::thread::spawn(move || {
        pair.client.write_all(b"moved", &mut pair.to_server).unwrap();
        pair.run().unwrap();
        pair.server_plain
    });
    assert_eq!(heard.join().unwrap(), b"moved");
}

#[test]
fn addresses_and_names_of_servers() {
    let (authority, _, client) = settings(Provider::default());
    let (certificate, key) = authority.server(&["127.0.0.1", "Upper.Example"]).pems();
    let server = Tls::builder().clock(tls::noon).certificate(certificate, key).build().unwrap();
    let client = client.build().unwrap();
    for (name, sni) in [("127.0.0.1", None), ("upper.example", Some("upper.example"))] {
        let mut pair = Pair::to(&server, &client, name);
        pair.run().unwrap();
        assert_eq!(pair.server.server_name(), sni);
    }
    for bad in ["", "a b", "-", "a..b", "\0", &"a.".repeat(200)] {
        let error = Session::client(&client, bad).unwrap_err();
        assert!(matches!(&error, Error::BadName(name) if name == bad), "{error:?}");
    }
}

/// Random steps at both ends: what one writes, the other one reads, in order and to the end.
#[test]
fn random_steps_lose_nothing() {
    let authority = Authority::new("the root of a test");
    let (certificate, key) = authority.server(&["localhost"]).pems();
    seeds::each("tls", 40, 40, |seed| {
        let mut random = fastrand::Rng::with_seed(seed);
        let version = Version::ALL[random.usize(..Version::ALL.len())];
        let provider = Provider::ALL[random.usize(..Provider::ALL.len())];
        let server = Tls::builder().provider(provider).clock(tls::noon).versions([version]);
        let server = server.certificate(certificate.clone(), key.clone()).build().unwrap();
        let client = TlsClient::builder().provider(provider).clock(tls::noon);
        let client = client.roots(authority.root()).build().unwrap();
        walk(&mut random, &server, &client);
    });
}

/// One end of a walk: what it has written, what is on its way to it, and what it has read.
struct End {
    session: Session,
    written: Vec<u8>,
    input: Vec<u8>,
    heard: Vec<u8>,
}

fn walk(random: &mut fastrand::Rng, server: &Tls, client: &TlsClient) {
    let pair = Pair::new(server, client);
    let end = |session| End { session, written: Vec::new(), input: Vec::new(), heard: Vec::new() };
    let mut ends = [end(pair.client), end(pair.server)];
    for _ in 0..random.usize(50..600) {
        let at = random.usize(..2);
        let (first, second) = ends.split_at_mut(1);
        let (one, other) =
            if at == 0 { (&mut first[0], &mut second[0]) } else { (&mut second[0], &mut first[0]) };
        step(random, one, other);
    }
    for _ in 0..16 {
        let [one, other] = &mut ends;
        one.session.close();
        other.session.close();
        pass(one, other, usize::MAX);
        pass(other, one, usize::MAX);
    }
    let [one, other] = &mut ends;
    assert!(one.heard == other.written && other.heard == one.written);
    one.session.end_of_input().unwrap();
    other.session.end_of_input().unwrap();
}

/// Takes what waits at one end, and gives the other one at most so many bytes of it.
fn pass(from: &mut End, to: &mut End, most: usize) {
    from.session.take_output(&mut to.input);
    let most = most.min(to.input.len());
    let (input, heard) = (&mut to.input[..most], &mut to.heard);
    let consumed = if most.is_multiple_of(2) {
        let fed = to.session.feed(input);
        fed.result.unwrap();
        heard.extend(&input[..fed.plain]);
        to.session.take_plain(heard);
        fed.consumed
    } else {
        to.session.feed_into(input, heard).unwrap()
    };
    assert_eq!(consumed, most);
    to.input.drain(..consumed);
}

fn step(random: &mut fastrand::Rng, one: &mut End, other: &mut End) {
    match random.u8(..20) {
        0..8 => pass(one, other, random.usize(1..40_000)),
        8 => pass(one, other, 1),
        9..17 if !one.session.is_closed() => {
            let len = 1 << random.usize(..18);
            let text: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(len).collect();
            let parts = [&text[..len / 3], &text[len / 3..]].map(IoSlice::new);
            // In order: behind all other output.
            match one.session.write(&parts, &mut other.input) {
                Ok(taken) => one.written.extend(&text[..taken]),
                Err(Error::Handshaking) => {}
                Err(error) => panic!("{error}"),
            }
        }
        17 => drop(one.session.update_keys()),
        18 if random.u8(..10) == 0 && !one.session.state().eq(&SessionState::Handshaking) => {
            one.session.close();
        }
        _ => drop(one.session.plain_len()),
    }
}

#[test]
fn a_pem_of_bytes_is_used() {
    let (authority, ..) = settings(Provider::default());
    let made = authority.server(&["localhost"]);
    Tls::pem(Pem::bytes(&made.certificate), Pem::bytes(&made.key)).unwrap();
}
