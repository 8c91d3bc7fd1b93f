//! Requests and responses that agree to WebSocket, and those that do not.
#![allow(missing_docs)] // a test binary has no users

use windlass_websocket::handshake::{
    self, Deflate, RequestError, ResponseError, check_extensions, choose_protocol, protocols,
};

const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

type Fields = Vec<(&'static str, &'static str)>;

/// The values of a field.
fn values<'a>(fields: &'a Fields, name: &'a str) -> impl Iterator<Item = &'a str> {
    fields.iter().filter(move |(other, _)| *other == name).map(|(_, value)| *value)
}

/// These fields, but for those that are given: without a value, the field is missing.
fn with(fields: &[(&'static str, &'static str)], other: &Fields) -> Fields {
    let mut all = fields.to_vec();
    for (name, _) in other {
        all.retain(|(old, _)| old != name);
    }
    all.extend(other.iter().filter(|(_, value)| *value != "missing"));
    all
}

fn request(other: &Fields) -> Result<String, RequestError> {
    let usual = [
        ("Connection", "Upgrade"),
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", KEY),
    ];
    let fields = with(&usual, other);
    handshake::check_request(|name| values(&fields, name))
}

fn response(other: &Fields) -> Result<(), ResponseError> {
    let usual =
        [("Connection", "Upgrade"), ("Upgrade", "websocket"), ("Sec-WebSocket-Accept", ACCEPT)];
    let fields = with(&usual, other);
    handshake::check_response(KEY, |name| values(&fields, name))
}

#[test]
fn a_request_asks_for_an_upgrade() {
    assert_eq!(request(&vec![]).as_deref(), Ok(ACCEPT));
    for (connection, upgrade) in [
        ("keep-alive, Upgrade", "WebSocket"),
        ("upgrade", "WEBSOCKET"),
        (" ,UPGRADE ,", "h2c, websocket"),
    ] {
        let fields = vec![("Connection", connection), ("Upgrade", upgrade)];
        assert_eq!(request(&fields).as_deref(), Ok(ACCEPT), "{fields:?}");
    }
    let lines = vec![("Connection", "keep-alive"), ("Connection", "upgrade")];
    assert_eq!(request(&lines).as_deref(), Ok(ACCEPT));
    for field in [
        ("Connection", "missing"),
        ("Connection", "keep-alive"),
        ("Connection", "upgrade2"),
        ("Connection", "up grade"),
        ("Upgrade", "missing"),
        ("Upgrade", ""),
        ("Upgrade", "h2c"),
        ("Upgrade", "websocket/13"),
        ("Upgrade", "web socket"),
    ] {
        assert_eq!(request(&vec![field]), Err(RequestError::NoUpgrade), "{field:?}");
    }
    assert_eq!(RequestError::NoUpgrade.status(), 426);
}

#[test]
fn the_version_is_13() {
    assert!(request(&vec![("Sec-WebSocket-Version", " 13 ")]).is_ok());
    for version in ["missing", "", "8", "013", "+13", "13, 8", "14", "13\u{e9}"] {
        let fields = vec![("Sec-WebSocket-Version", version)];
        assert_eq!(request(&fields), Err(RequestError::Version), "{version}");
    }
    let twice = vec![("Sec-WebSocket-Version", "13"), ("Sec-WebSocket-Version", "13")];
    assert_eq!(request(&twice), Err(RequestError::Version));
    assert_eq!(RequestError::Version.status(), 426);
}

#[test]
fn the_key_is_16_bytes() {
    for key in [
        "missing",
        "",
        "short",
        "c2hvcnQ=",
        "dGhlIHNhbXBsZSBub25jZQ",
        "dGhlIHNhbXBsZSBub25jZ===",
        "dGhlIHNhbXBsZSBub25jZSBi",
        "dGhlIHNhbXBsZSBub25jZSBiYg==",
        "dGhlIHNhbXBs ZSBub25jZ==",
        "dGhlIHNhbXBsZSBub25j-Q==",
    ] {
        let fields = vec![("Sec-WebSocket-Key", key)];
        assert_eq!(request(&fields), Err(RequestError::Key), "{key}");
    }
    let twice = vec![("Sec-WebSocket-Key", KEY), ("Sec-WebSocket-Key", KEY)];
    assert_eq!(request(&twice), Err(RequestError::Key));
    assert_eq!(RequestError::Key.status(), 400);
    // The last digit has bits that are none of the 16 bytes.
    assert!(request(&vec![("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZR==")]).is_ok());
    assert_eq!(handshake::key(*b"the sample nonce"), KEY);
}

#[test]
fn a_response_answers_its_request() {
    assert_eq!(response(&vec![]), Ok(()));
    assert_eq!(response(&vec![("Connection", "a, upgrade"), ("Upgrade", "WebSocket")]), Ok(()));
    for field in [
        ("Connection", "missing"),
        ("Connection", "close"),
        ("Upgrade", "missing"),
        ("Upgrade", "h2c, websocket"),
        ("Upgrade", "h2c"),
    ] {
        assert_eq!(response(&vec![field]), Err(ResponseError::NoUpgrade), "{field:?}");
    }
    let twice = vec![("Upgrade", "websocket"), ("Upgrade", "websocket")];
    assert_eq!(response(&twice), Err(ResponseError::NoUpgrade));
    for accept in ["missing", "", "S3pPLMBiTxaQ9kYGzzhZRbK+xOo=", KEY] {
        let fields = vec![("Sec-WebSocket-Accept", accept)];
        assert_eq!(response(&fields), Err(ResponseError::Accept), "{accept}");
    }
    let twice = vec![("Sec-WebSocket-Accept", ACCEPT), ("Sec-WebSocket-Accept", ACCEPT)];
    assert_eq!(response(&twice), Err(ResponseError::Accept));
    // A client that has sent no key gets no answer to it.
    let no_key = handshake::check_response("", |_| ["websocket, upgrade"]);
    assert_eq!(no_key, Err(ResponseError::NoUpgrade));
}

#[test]
fn a_server_chooses_a_protocol() {
    let own = ["v2", "v1"];
    assert_eq!(choose_protocol(["v1, v2"], &own), Some("v2"));
    assert_eq!(choose_protocol(["v3", "v1"], &own), Some("v1"));
    assert_eq!(choose_protocol(["V1"], &own), None);
    assert_eq!(choose_protocol(["v1 v2"], &own), None);
    assert_eq!(choose_protocol([""; 0], &own), None);
    assert_eq!(choose_protocol(["v1"], &[]), None);
    assert!(protocols([&b"a,, \xff, b\t, c d ,e"[..], b"f"]).eq(["a", "b", "e", "f"]));
}

#[test]
fn a_client_checks_the_protocol() {
    let offered = ["v1", "v2"];
    let check =
        |values: &[&'static str]| handshake::check_protocol(values.iter().copied(), &offered);
    assert_eq!(check(&[]), Ok(None));
    assert_eq!(check(&[" v2 "]), Ok(Some("v2")));
    for values in [&["v3"][..], &["V1"], &[""], &["v1, v2"], &["v1", "v2"], &["v1", "v1"]] {
        assert_eq!(check(values), Err(ResponseError::Protocol), "{values:?}");
    }
    assert!(handshake::check_protocol(["v1"], &[]).is_err());
}

const FULL: Deflate =
    Deflate { server_window: 15, client_window: 15, server_takeover: true, client_takeover: true };

/// What a server that wants this agrees to, as windows and takeovers, and its answer.
fn agreed(want: Deflate, values: &[&'static str]) -> Option<(u8, u8, bool, bool, String)> {
    let (agreed, answer) = want.accept(values.iter().copied()).expect("a list")?;
    let Deflate { server_window, client_window, server_takeover, client_takeover } = agreed;
    let answer = answer.replace("permessage-deflate", "").replace("_context_takeover", "");
    Some((server_window, client_window, server_takeover, client_takeover, answer))
}

#[test]
fn servers_agree_to_the_first_offer_that_they_can() {
    let first = |values: &[&'static str]| agreed(FULL, values).map(|(bits, ..)| bits);
    assert_eq!(first(&["permessage-deflate"]), Some(15));
    assert_eq!(first(&["other; a=1, permessage-deflate; server_max_window_bits=9"]), Some(9));
    assert_eq!(first(&["other", "permessage-deflate; server_max_window_bits=\"1\\0\""]), Some(10));
    let two = "permessage-deflate; a, permessage-deflate; server_max_window_bits=11";
    assert_eq!(first(&[two, "permessage-deflate"]), Some(11));
    assert_eq!(
        first(&["permessage-deflate; server_max_window_bits=8, permessage-deflate"]),
        Some(15)
    );
    assert_eq!(first(&["", " , permessage-deflate ,"]), Some(15));
    for none in ["", "other", "Permessage-Deflate", "x-webkit-deflate-frame"] {
        assert_eq!(first(&[none]), None, "{none}");
    }
}

#[test]
fn offers_with_invalid_parameters_are_declined() {
    let names =
        ["server_no_context_takeover", "client_no_context_takeover", "server_max_window_bits=10"];
    let mut offers: Vec<String> = names.iter().map(|name| format!("{name}; {name}")).collect();
    offers.extend(["client_max_window_bits; client_max_window_bits=10".to_owned()]);
    offers.extend(names[..2].iter().map(|name| format!("{name}=1")));
    offers.extend(["unknown", "unknown=1", "server_max_window_bits"].map(str::to_owned));
    offers.push("server_max_window_bits=8".to_owned());
    for side in ["server", "client"] {
        let values = ["7", "16", "0", "+9", "-9", "09", "9.0", "0x9", "80", "10a", "100", "\"7\""];
        offers.extend(values.map(|value| format!("{side}_max_window_bits={value}")));
    }
    for offer in &offers {
        let offer = format!("permessage-deflate; {offer}");
        assert_eq!(FULL.accept([&offer]), Ok(None), "{offer}");
        // As a response they are an error.
        let checked = check_extensions(Some(FULL), [&offer]);
        let is_valid_answer = offer.ends_with("server_max_window_bits=8");
        assert_eq!(checked.is_ok(), is_valid_answer, "{offer}");
    }
}

#[test]
fn lists_of_extensions_have_their_grammar() {
    for list in [
        ";",
        "a b",
        "a;",
        "a;;b",
        "a; =1",
        "a; b=",
        "a; b=,c",
        "a; b=\"\"",
        "a; b=\"c",
        "a; b=\"c d\"",
        "a; b=\"c\\",
        "a; b=\"c\" d",
        "a; b=c d",
        "a/b",
        "permessage-deflate, a;",
        "=",
    ] {
        assert_eq!(FULL.accept([list]), Err(RequestError::Extensions), "{list}");
        assert_eq!(check_extensions(Some(FULL), [list]), Err(ResponseError::Extensions), "{list}");
    }
    assert_eq!(FULL.accept([&b"permessage-deflate\xff"[..]]), Err(RequestError::Extensions));
    assert_eq!(RequestError::Extensions.status(), 400);
    for list in ["a", "a;b", "a ; b = c , d", "a; b=\"c\"", "a; b=\"\\c\\d\"", "a\t;\tb,\t"] {
        assert_eq!(FULL.accept([list]), Ok(None), "{list}");
    }
}

#[test]
fn offers_limit_what_a_server_does() {
    let offer = |params: &'static str| agreed(FULL, &[params]).expect("it is agreed to");
    let said = |text: &str| text.to_owned();
    assert_eq!(offer("permessage-deflate"), (15, 15, true, true, said("")));
    let one = "permessage-deflate; server_no_context_takeover";
    assert_eq!(offer(one), (15, 15, false, true, said("; server_no")));
    let one = "permessage-deflate; client_no_context_takeover";
    assert_eq!(offer(one), (15, 15, true, false, said("; client_no")));
    let one = "permessage-deflate; server_max_window_bits=15";
    assert_eq!(offer(one), (15, 15, true, true, said("; server_max_window_bits=15")));
    let one = "permessage-deflate; server_max_window_bits=9";
    assert_eq!(offer(one), (9, 15, true, true, said("; server_max_window_bits=9")));
    let one = "permessage-deflate; client_max_window_bits";
    assert_eq!(offer(one), (15, 15, true, true, said("")));
    let one = "permessage-deflate; client_max_window_bits=10";
    assert_eq!(offer(one), (15, 10, true, true, said("; client_max_window_bits=10")));
    // The client keeps to 8 bits, which are within 9. No answer may name 9.
    let one = "permessage-deflate; client_max_window_bits=8";
    assert_eq!(offer(one), (15, 9, true, true, said("")));
}

#[test]
fn a_server_limits_windows_and_takeovers() {
    let want = |offer| agreed(Deflate::TAKEOVER, &[offer]).expect("it is agreed to");
    let one = "permessage-deflate; client_max_window_bits";
    let both = "; server_max_window_bits=12; client_max_window_bits=12".to_owned();
    assert_eq!(want(one), (12, 12, true, true, both.clone()));
    assert_eq!(want("permessage-deflate; client_max_window_bits=14").4, both);
    // No answer may limit this client. So the server need not keep its 32 KiB.
    let answer = "; client_no; server_max_window_bits=12".to_owned();
    assert_eq!(want("permessage-deflate"), (12, 15, true, false, answer));

    let none = |offer| agreed(Deflate::default(), &[offer]).expect("it is agreed to");
    assert_eq!(none(one), (15, 15, false, false, "; server_no; client_no".to_owned()));
    let small = Deflate { server_window: 3, client_window: 99, ..FULL };
    assert_eq!(agreed(small, &[one]).map(|agreed| (agreed.0, agreed.1)), Some((9, 15)));
}

#[test]
fn a_client_gets_what_it_has_offered() {
    let check = |offered, answer| check_extensions(Some(offered), [answer]);
    let agreed = |offered, answer| check(offered, answer).unwrap().unwrap();
    assert_eq!(agreed(FULL, "permessage-deflate"), FULL);
    let less = "permessage-deflate; server_no_context_takeover; client_no_context_takeover; \
                server_max_window_bits=10; client_max_window_bits=11";
    let expected = Deflate {
        server_window: 10,
        client_window: 11,
        server_takeover: false,
        client_takeover: false,
    };
    assert_eq!(agreed(FULL, less), expected);
    // A window of 8 is within 9, where we inflate. Where we compress there is none.
    let eight = agreed(FULL, "permessage-deflate; server_max_window_bits=8");
    assert_eq!(eight.server_window, 9);
    assert!(check(FULL, "permessage-deflate; client_max_window_bits=8").is_err());
    // Our own limits hold, whatever the server allows.
    let own = agreed(
        Deflate::TAKEOVER,
        "permessage-deflate; server_max_window_bits=12; client_max_window_bits=15",
    );
    assert_eq!(own, Deflate::TAKEOVER);
    let hint = "permessage-deflate; server_no_context_takeover";
    assert_eq!(agreed(Deflate::default(), hint), Deflate::default());

    let one = "permessage-deflate";
    for answer in ["other", "permessage-deflate, other", "permessage-deflate, permessage-deflate"] {
        assert!(check(FULL, answer).is_err(), "{answer}");
    }
    assert!(check_extensions(Some(FULL), [one, one]).is_err());
    assert!(check(FULL, "permessage-deflate; client_max_window_bits").is_err());
    // Without the limits that were offered, the server has not agreed.
    assert!(check(Deflate::TAKEOVER, one).is_err());
    assert!(check(Deflate::TAKEOVER, "permessage-deflate; server_max_window_bits=13").is_err());
    assert!(check(Deflate::default(), one).is_err());
    assert!(check_extensions(None, [one]).is_err());
    assert_eq!(check_extensions(None, [""; 0]), Ok(None));
}

/// Whatever two sides want, both understand the same, and neither does more than it wants.
#[test]
fn both_sides_agree_to_the_same() {
    let all = || {
        let windows = (9..=15).flat_map(|server| (9..=15).map(move |client| (server, client)));
        windows.flat_map(|(server_window, client_window)| {
            (0..4).map(move |bits| Deflate {
                server_window,
                client_window,
                server_takeover: bits & 1 != 0,
                client_takeover: bits & 2 != 0,
            })
        })
    };
    let mut count = 0;
    for client in all() {
        let offer = client.offer();
        for server in all() {
            let (agreed, answer) = server.accept([&offer]).unwrap().expect("it is agreed to");
            let seen = check_extensions(Some(client), [&answer]).unwrap().expect("likewise");
            let least = |a: u8, b: u8| a.min(b);
            assert_eq!(agreed.server_window, least(client.server_window, server.server_window));
            assert_eq!(agreed.client_window, least(client.client_window, server.client_window));
            assert_eq!(agreed.server_takeover, client.server_takeover && server.server_takeover);
            assert_eq!(agreed.client_takeover, client.client_takeover && server.client_takeover);
            // Where the server keeps nothing, it need not say how large its window is.
            assert!(seen.server_window >= agreed.server_window);
            assert!(!agreed.server_takeover || seen.server_window == agreed.server_window);
            assert_eq!(Deflate { server_window: agreed.server_window, ..seen }, agreed);
            count += 1;
        }
    }
    assert_eq!(count, 196 * 196);
}
