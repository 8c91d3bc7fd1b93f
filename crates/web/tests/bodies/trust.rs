//! What proxies say of their clients, and who is believed.

use std::sync::LazyLock;

use windlass_web::serve::net::Networks;
use windlass_web::{App, Limits};

use crate::bench::{Bench, Harness, Simulated, seed};

crate::every_driver! {
    a_trusted_proxy_tells_of_its_client
}

static ALL: LazyLock<Networks> =
    LazyLock::new(|| "127.0.0.0/8, 10.0.0.0/8, fd00::/8".parse().expect("networks"));
static OTHERS: LazyLock<Networks> = LazyLock::new(|| "10.0.0.0/8".parse().expect("a network"));

fn app(trust: Option<&'static Networks>) -> App {
    let limits = trust.map_or(Limits::new(), |trust| Limits::new().trust(trust));
    App::new().limits(limits).get("/", |_, q| {
        assert!(q.peer().is_some_and(|peer| peer.ip().is_loopback()) && !q.is_tls());
        format!("({} {})", q.client().expect("it has one"), q.is_secure())
    })
}

fn ask(b: &mut Bench, fields: &str) -> String {
    let client = b.connect();
    let answer = b.ask(client, format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n"), ")");
    answer.split("\r\n\r\n").nth(1).expect("a body").to_owned()
}

fn a_trusted_proxy_tells_of_its_client<T: Harness>() {
    let fields = "X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-Proto: https\r\n";
    for (trust, expected) in [
        (None, "(127.0.0.1 false)"),
        (Some(&*OTHERS), "(127.0.0.1 false)"),
        (Some(&*ALL), "(192.0.2.1 true)"),
    ] {
        assert_eq!(ask(&mut Bench::new::<T>(app(trust)), fields), expected);
    }
}

#[test]
fn lists_are_read_from_the_right() {
    let mut b = Bench::new::<Simulated>(app(Some(&*ALL)));
    for (fields, expected) in [
        ("", "127.0.0.1 false"),
        ("X-Forwarded-For: 192.0.2.1", "192.0.2.1 false"),
        ("X-Forwarded-For: 6.6.6.6, 192.0.2.1", "192.0.2.1 false"),
        ("X-Forwarded-For: 6.6.6.6, 192.0.2.1, 10.0.0.1", "192.0.2.1 false"),
        ("X-Forwarded-For: 6.6.6.6\r\nX-Forwarded-For: 192.0.2.1 , 10.0.0.1", "192.0.2.1 false"),
        ("X-Forwarded-For: 10.0.0.2, 10.0.0.1", "10.0.0.2 false"),
        ("X-Forwarded-For: 2001:db8::1", "2001:db8::1 false"),
        ("X-Forwarded-For: [2001:db8::1]:80, 10.0.0.1:4711", "2001:db8::1 false"),
        ("X-Forwarded-For: [2001:db8::1]", "2001:db8::1 false"),
        // Malformed, and what is to its left.
        ("X-Forwarded-For: 192.0.2.1, x, 10.0.0.1", "10.0.0.1 false"),
        ("X-Forwarded-For: 192.0.2.1, ", "127.0.0.1 false"),
        ("X-Forwarded-For: 300.0.0.1", "127.0.0.1 false"),
        ("X-Forwarded-For:", "127.0.0.1 false"),
        // The scheme at the same place, or the only one.
        ("X-Forwarded-Proto: https", "127.0.0.1 true"),
        ("X-Forwarded-Proto: HTTPS", "127.0.0.1 true"),
        ("X-Forwarded-Proto: ftp", "127.0.0.1 false"),
        ("X-Forwarded-For: 192.0.2.1, 10.0.0.1\r\nX-Forwarded-Proto: https", "192.0.2.1 true"),
        ("X-Forwarded-For: 1.1.1.1, 10.0.0.1\r\nX-Forwarded-Proto: https, http", "1.1.1.1 true"),
        ("X-Forwarded-For: 6.6.6.6, 1.1.1.1\r\nX-Forwarded-Proto: https, http", "1.1.1.1 false"),
        // RFC 7239.
        ("Forwarded: for=192.0.2.1;proto=https;by=10.0.0.1", "192.0.2.1 true"),
        ("Forwarded: For=\"[2001:db8::1]:4711\"", "2001:db8::1 false"),
        ("Forwarded: for=6.6.6.6;proto=http, for=192.0.2.1; proto=https", "192.0.2.1 true"),
        ("Forwarded: for=1.1.1.1;proto=https, for=10.0.0.1;proto=http", "1.1.1.1 true"),
        ("Forwarded: for=1.1.1.1\r\nForwarded: for=10.0.0.1", "1.1.1.1 false"),
        ("Forwarded: for=1.1.1.1;host=\"a, for=6.6.6.6\"", "1.1.1.1 false"),
        ("Forwarded: for=\"1.1.\\1.1\"", "1.1.1.1 false"),
        ("Forwarded: proto=https", "127.0.0.1 true"),
        ("Forwarded: for=1.1.1.1, for=_hidden;proto=https", "127.0.0.1 true"),
        ("Forwarded: for=unknown", "127.0.0.1 false"),
        ("Forwarded: for=1.1.1.1, for=\"2.2.2.2", "127.0.0.1 false"),
        ("Forwarded: for=1.1.1.1 for=2.2.2.2", "127.0.0.1 false"),
        ("Forwarded: nothing", "127.0.0.1 false"),
        // Both: only what they agree on.
        ("Forwarded: for=6.6.6.6\r\nX-Forwarded-For: 1.1.1.1", "127.0.0.1 false"),
        ("Forwarded: for=1.1.1.1\r\nX-Forwarded-For: 1.1.1.1", "1.1.1.1 false"),
        (
            "Forwarded: for=1.1.1.1;proto=https\r\nX-Forwarded-For: 1.1.1.1\r\n\
             X-Forwarded-Proto: http",
            "1.1.1.1 false",
        ),
    ] {
        let fields = if fields.is_empty() { String::new() } else { format!("{fields}\r\n") };
        assert_eq!(ask(&mut b, &fields), format!("({expected})"), "{fields}");
    }
}

/// A client that a trusted proxy names is never another one, whatever it sends itself.
#[test]
fn no_client_passes_for_another() {
    let seed = seed();
    let mut random = fastrand::Rng::with_seed(seed);
    let mut b = Bench::new::<Simulated>(app(Some(&*ALL)));
    for _ in 0..500 {
        let words = ["for=", "proto=https", ";", ",", "\"", "6.6.6.6", "10.0.0.1", "[::1]", "\\"];
        let junk: String =
            (0..random.usize(..9)).map(|_| *random.choice(&words).unwrap()).collect();
        let fields = if random.bool() {
            format!("Forwarded: {junk}\r\nForwarded: for=192.0.2.1;proto=http\r\n")
        } else {
            format!("X-Forwarded-For: {junk},192.0.2.1\r\nX-Forwarded-Proto: http\r\n")
        };
        assert_eq!(ask(&mut b, &fields), "(192.0.2.1 false)", "{fields}");
    }
}
