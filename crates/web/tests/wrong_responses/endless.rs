//! Responses that are too long, or have no end: the client reads to its limit, and holds no more.

use windlass_web::client::{Fetch, FetchSettings};

use crate::alloc::{begin_peak, peak_bytes};
use crate::common::Harness;
use crate::hostile::server::Act;
use crate::hostile::{Who, scene};
use crate::table::check;

crate::every_driver! {
    what_is_too_long_is_refused
    what_has_no_end_is_refused
    what_has_no_end_is_refused_for_a_client
}

const OK: &str = "HTTP/1.1 200 OK\r\n";
const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

/// The limit of bodies of these tests.
const LIMIT: u64 = 100_000;

/// The most bytes of memory that a call may add: twice its limit, and what the system of a
/// simulation holds.
const MOST: isize = 700_000;

fn what_is_too_long_is_refused<T: Harness>() {
    let mut scene = scene::<T>(Who::App, FetchSettings::new());
    let url = scene.url("/");
    let none = "Content-Length: 0\r\n\r\n";
    let long = "x".repeat(100_001);
    for (bytes, wanted) in [
        (format!("{OK}{}{none}", "A: b\r\n".repeat(200)), "TooManyFields"),
        (format!("{OK}A: {}\r\n{none}", "b".repeat(64 << 10)), "HeadTooLong"),
        (format!("HTTP/1.1 200 {}\r\n{none}", "O".repeat(20 << 10)), "LineTooLong"),
        (format!("{OK}Content-Length: 100001\r\n\r\n{long}"), "TooLong"),
        (format!("{OK}Content-Length: 100000\r\n\r\n{}", &long[1..]), ""),
        (format!("{OK}Content-Length: 18446744073709551615\r\n\r\nhi"), "TooLong"),
        (format!("{OK}Content-Length: 18446744073709551616\r\n\r\nhi"), "TooLong"),
        (format!("{OK}Content-Length: {}\r\n\r\nhi", "9".repeat(1000)), "TooLong"),
        (format!("{CHUNKED}186a1\r\n{long}\r\n0\r\n\r\n"), "TooLong"),
        (format!("{CHUNKED}ffffffffffffffff\r\nhi"), "TooLong"),
        (format!("{CHUNKED}2;{}\r\nhi\r\n0\r\n\r\n", "a".repeat(1000)), "ChunkLineTooLong"),
        (format!("{CHUNKED}{:0>100}\r\nhi\r\n0\r\n\r\n", 2), "ChunkSize"),
        (format!("{CHUNKED}0\r\nA: {}\r\n\r\n", "b".repeat(64 << 10)), "TrailersTooLong"),
        (format!("{CHUNKED}0\r\n{}\r\n", "A: b\r\n".repeat(5000)), "TrailersTooLong"),
        (format!("{OK}\r\n{long}"), "TooLong"),
    ] {
        let fetch = Fetch::get(&url).body_limit(LIMIT);
        let all = match wanted {
            "" => format!("200 {}", &long[1..]),
            wanted => wanted.to_owned(),
        };
        check(&mut scene, fetch, vec![Act::Say(bytes.into_bytes())], &all);
    }
}

fn endless<T: Harness>(who: Who) {
    let mut scene = scene::<T>(who, FetchSettings::new());
    let url = scene.url("/");
    let kept = "a".repeat(4000);
    for (first, again, wanted) in [
        ("", "A: b\r\n", "StatusLine"),
        (OK, "A: b\r\n", "HeadTooLong"),
        ("HTTP/1.1 200 ", "O", "LineTooLong"),
        ("HTTP/1.1 200 OK\r\nA: ", "b", "HeadTooLong"),
        ("", "HTTP/1.1 100 Continue\r\n\r\n", "InterimTooLong"),
        ("", "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", "InterimTooLong"),
        ("HTTP/1.1 200 OK\r\n\r\n", &kept, "TooLong"),
        (CHUNKED, "1\r\na\r\n", "TooLong"),
        (CHUNKED, "a\r\n0123456789\r\n", "TooLong"),
        (CHUNKED, "1;aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa=b\r\na\r\n", "ExtensionsTooLong"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;", "a", "ChunkLineTooLong"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "1", "ChunkLineTooLong"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: ", "b", "TrailersTooLong"),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n",
            "A: b\r\n",
            "TrailersTooLong",
        ),
    ] {
        let again = again.repeat(4000 / again.len());
        let acts = vec![Act::Say(first.into()), Act::Endless(again.into_bytes())];
        let acts = if first.is_empty() { acts[1..].to_vec() } else { acts };
        begin_peak();
        check(&mut scene, Fetch::get(&url).body_limit(LIMIT), acts, wanted);
        let peak = peak_bytes();
        assert!(peak < MOST, "{first:?}, {wanted}: {peak} bytes");
    }
}

fn what_has_no_end_is_refused<T: Harness>() {
    endless::<T>(Who::App);
}

fn what_has_no_end_is_refused_for_a_client<T: Harness>() {
    endless::<T>(Who::Own);
}
