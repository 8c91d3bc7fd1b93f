//! A table of wrong responses, and what comes of each.

use windlass::driver::Driver;
use windlass_web::client::{Fetch, FetchSettings};

use crate::common::Harness;
use crate::hostile::server::{Act, GOOD};
use crate::hostile::{Scene, Who, scene};

crate::every_driver! {
    wrong_responses_have_one_outcome
    wrong_responses_have_one_outcome_for_a_client
    wrong_responses_have_one_outcome_for_a_stream
    a_response_may_end_at_each_byte
    methods_decide_what_is_a_body
}

/// What the server does behind the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    Stay,
    Close,
    Reset,
}

use Then::{Close, Reset, Stay};

/// What the server says, what it does then, and what comes of the call.
type Row = (&'static str, Then, &'static str);

const ROWS: &[Row] = &[
    // Status lines.
    ("HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nhi", Stay, "200 hi"),
    ("HTTP/1.1 200 \u{e9}\u{7fff}\r\nContent-Length: 2\r\n\r\nhi", Stay, "200 hi"),
    ("HTTP/2.0 200 OK\r\n\r\n", Stay, "Version"),
    ("HTTP/1.2 200 OK\r\n\r\n", Stay, "Version"),
    ("HTTP/1 200 OK\r\n\r\n", Stay, "StatusLine"),
    ("200 OK\r\n\r\n", Stay, "StatusLine"),
    ("\r\nHTTP/1.1 200 OK\r\n\r\n", Stay, "StatusLine"),
    ("http/1.1 200 OK\r\n\r\n", Stay, "StatusLine"),
    ("HTTP/1.1 99 OK\r\n\r\n", Stay, "StatusLine"),
    ("HTTP/1.1 099 OK\r\n\r\n", Stay, "StatusLine"),
    ("HTTP/1.1 1000 OK\r\n\r\n", Stay, "StatusLine"),
    ("HTTP/1.1 20x OK\r\n\r\n", Stay, "StatusLine"),
    ("HTTP/1.1 -20 OK\r\n\r\n", Stay, "StatusLine"),
    ("HTTP/1.1200 OK\r\n\r\n", Stay, "Version"),
    ("HTTP/1.1  200 OK\r\n\r\n", Stay, "StatusLine"),
    ("HTTP/1.1 200OK\r\n\r\n", Stay, "StatusLine"),
    ("HTTP/1.1 200 O\0K\r\n\r\n", Stay, "StatusLine"),
    ("GET / HTTP/1.1\r\n\r\n", Stay, "StatusLine"),
    ("SSH-2.0-OpenSSH_9.6\r\n", Stay, "StatusLine"),
    ("\x15\x03\x01\x00\x02\x02\x16", Close, "StatusLine"),
    // Lengths.
    ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nhi", Stay, "LengthRepeated"),
    ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nhi", Stay, "LengthRepeated"),
    ("HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\n\r\nhi", Stay, "LengthInvalid"),
    ("HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nhi", Stay, "LengthInvalid"),
    ("HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\nhi", Stay, "LengthInvalid"),
    ("HTTP/1.1 200 OK\r\nContent-Length: 0x2\r\n\r\nhi", Stay, "LengthInvalid"),
    ("HTTP/1.1 200 OK\r\nContent-Length: 2 2\r\n\r\nhi", Stay, "LengthInvalid"),
    ("HTTP/1.1 200 OK\r\nContent-Length: 2.0\r\n\r\nhi", Stay, "LengthInvalid"),
    ("HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\nhi", Stay, "LengthInvalid"),
    ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nh", Close, "Ended"),
    ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", Close, "Ended"),
    // Codings.
    (
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        Stay,
        "LengthWithCoding",
    ),
    ("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nhi", Close, "CodingNotChunked"),
    ("HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n\r\nhi", Close, "CodingNotChunked"),
    ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, gzip\r\n\r\n", Stay, "CodingNotChunked"),
    ("HTTP/1.1 200 OK\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", Stay, "CodingNotChunked"),
    ("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", Stay, "CodingUnknown"),
    (
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
        Stay,
        "CodingRepeated",
    ),
    ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, chunked\r\n\r\n", Stay, "CodingRepeated"),
    ("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", Stay, "CodingInVersion10"),
    // Fields.
    ("HTTP/1.1 200 OK\r\nA: b\r\n c\r\nContent-Length: 0\r\n\r\n", Stay, "Folded"),
    ("HTTP/1.1 200 OK\r\n A: b\r\nContent-Length: 0\r\n\r\n", Stay, "Folded"),
    ("HTTP/1.1 200 OK\nContent-Length: 0\n\n", Stay, "LineEnd"),
    ("HTTP/1.1 200 OK\r\nA: b\nContent-Length: 0\r\n\r\n", Stay, "LineEnd"),
    ("HTTP/1.1 200 OK\r\nA: b\rContent-Length: 0\r\n\r\n", Stay, "LineEnd"),
    ("HTTP/1.1 200 OK\r\nA: b\0\r\nContent-Length: 0\r\n\r\n", Stay, "FieldValue"),
    ("HTTP/1.1 200 OK\r\nA: b\x7f\r\nContent-Length: 0\r\n\r\n", Stay, "FieldValue"),
    ("HTTP/1.1 200 OK\r\nA : b\r\nContent-Length: 0\r\n\r\n", Stay, "FieldName"),
    ("HTTP/1.1 200 OK\r\nContent-Length : 0\r\n\r\n", Stay, "FieldName"),
    ("HTTP/1.1 200 OK\r\nA b: c\r\nContent-Length: 0\r\n\r\n", Stay, "FieldName"),
    ("HTTP/1.1 200 OK\r\n: c\r\nContent-Length: 0\r\n\r\n", Stay, "FieldName"),
    ("HTTP/1.1 200 OK\r\nno colon\r\nContent-Length: 0\r\n\r\n", Stay, "FieldName"),
    // Statuses without a body, and interim ones.
    ("HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nhello", Stay, "BodyForbidden"),
    (
        "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        Stay,
        "BodyForbidden",
    ),
    ("HTTP/1.1 204 No Content\r\n\r\nhello", Stay, "204 "),
    ("HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\nhello", Stay, "304 "),
    ("HTTP/1.1 100 Continue\r\nContent-Length: 5\r\n\r\nhello", Stay, "BodyForbidden"),
    (
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: a\r\n\r\n",
        Stay,
        "SwitchUnasked",
    ),
    (
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n\
         HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",
        Stay,
        "200 hi",
    ),
    ("HTTP/1.1 100 Continue\r\n\r\n", Close, "Ended"),
    // More than the response. Nothing of it is the next response.
    ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi!", Stay, "200 hi"),
    (
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi\
         HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nbad",
        Stay,
        "200 hi",
    ),
    (
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi\
         HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nbad",
        Stay,
        "200 hi",
    ),
    (
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n\
         HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nbad",
        Stay,
        "200 hi",
    ),
    // Ends.
    ("", Close, "Ended"),
    ("HTTP/1.1 200 OK\r\n\r\nhi", Close, "200 hi"),
    ("HTTP/1.0 200 OK\r\n\r\nhi", Close, "200 hi"),
    ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", Close, "200 hi"),
    ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\nhi", Close, "200 hi"),
    ("HTTP/1.1 600 OK\r\n\r\n", Stay, "Status 600"),
    ("HTTP/1.1 999 OK\r\nContent-Length: 0\r\n\r\n", Stay, "Status 999"),
    ("", Reset, "Connection"),
    ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nh", Reset, "Connection"),
    ("HTTP/1.1 200 OK\r\n\r\nhi", Reset, "Connection"),
];

/// What is wrong with chunks.
const CHUNKS: &[Row] = &[
    ("0\r\n\r\n", Stay, "200 "),
    ("2;a=b\r\nhi\r\n0\r\nX: y\r\n\r\n", Stay, "200 hi"),
    ("0000000000000002\r\nhi\r\n0\r\n\r\n", Stay, "200 hi"),
    ("\r\nhi\r\n0\r\n\r\n", Stay, "ChunkSize"),
    ("-2\r\nhi\r\n0\r\n\r\n", Stay, "ChunkSize"),
    ("+2\r\nhi\r\n0\r\n\r\n", Stay, "ChunkSize"),
    ("0x2\r\nhi\r\n0\r\n\r\n", Stay, "ChunkSize"),
    ("g\r\nhi\r\n0\r\n\r\n", Stay, "ChunkSize"),
    (" 2\r\nhi\r\n0\r\n\r\n", Stay, "ChunkSize"),
    ("10000000000000000\r\nhi\r\n0\r\n\r\n", Stay, "ChunkSize"),
    ("2\nhi\r\n0\r\n\r\n", Stay, "LineEnd"),
    ("2\r\nhi!\r\n0\r\n\r\n", Stay, "ChunkEnd"),
    ("2\r\nhi0\r\n\r\n", Stay, "ChunkEnd"),
    ("2\r\nhi\r\n0\r\nContent-Length: 5\r\n\r\n", Stay, "TrailerForbidden"),
    ("2\r\nhi\r\n0\r\nTransfer-Encoding: chunked\r\n\r\n", Stay, "TrailerForbidden"),
    ("2\r\nhi\r\n0\r\nX y\r\n\r\n", Stay, "FieldName"),
    ("2\r\nhi\r\n", Close, "Ended"),
    ("2\r\nhi\r\n0\r\n", Close, "Ended"),
    ("2\r\nhi\r\n0\r\n", Reset, "Connection"),
];

/// A script of these bytes.
pub(crate) fn acts(bytes: &str, then: Then) -> Vec<Act> {
    let mut acts = vec![];
    if !bytes.is_empty() {
        acts.push(Act::Say(bytes.into()));
    }
    match then {
        Stay => {}
        Close => acts.push(Act::Close),
        Reset => acts.push(Act::Reset),
    }
    acts
}

/// One call, and then one more to the same server and to another one.
#[track_caller]
pub(crate) fn check<D: Driver>(scene: &mut Scene<D>, fetch: Fetch, acts: Vec<Act>, wanted: &str) {
    let what = described(&acts);
    scene.script("/", acts);
    let outcome = scene.call(fetch);
    assert_eq!(outcome.text, wanted, "{what}");
    if outcome.fetched.is_none() && !wanted.starts_with("Redirect") {
        // A connection that has failed is not kept.
        let (last, _) = *scene.hostile.requests.last().expect("it has read the request");
        scene.until("its end", |scene| scene.hostile.conns[last].is_over);
    }
    if scene.is_virtual {
        // What the network has torn off the response ends its connection, and is no response to
        // the next request.
        scene.settle();
    }
    are_served(scene, &what);
}

/// The beginning of a script.
fn described(acts: &[Act]) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(100)]).into_owned();
    let act = |act: &Act| match act {
        Act::Say(bytes) => format!("{:?}, ", text(bytes)),
        Act::Endless(bytes) => format!("without end {:?}, ", text(bytes)),
        other => format!("{other:?}, "),
    };
    acts.iter().take(4).map(act).collect()
}

/// Further calls to the same server, and to another one.
#[track_caller]
pub(crate) fn are_served<D: Driver>(scene: &mut Scene<D>, what: &str) {
    for origin in scene.origins.clone() {
        let text = scene.text(Fetch::get(format!("{origin}/good")));
        assert_eq!(text, "200 good", "behind {what}");
    }
}

fn table<T: Harness>(who: Who) {
    let mut scene = scene::<T>(who, FetchSettings::new());
    let url = scene.url("/");
    for (bytes, then, wanted) in ROWS {
        check(&mut scene, Fetch::get(&url), acts(bytes, *then), wanted);
    }
    for (chunks, then, wanted) in CHUNKS {
        let bytes = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}");
        check(&mut scene, Fetch::get(&url), acts(&bytes, *then), wanted);
    }
}

fn wrong_responses_have_one_outcome<T: Harness>() {
    table::<T>(Who::App);
}

fn wrong_responses_have_one_outcome_for_a_client<T: Harness>() {
    table::<T>(Who::Own);
}

fn wrong_responses_have_one_outcome_for_a_stream<T: Harness>() {
    table::<T>(Who::Streams);
}

fn a_response_may_end_at_each_byte<T: Harness>() {
    let mut scene = scene::<T>(Who::App, FetchSettings::new());
    let url = scene.url("/");
    let head = "HTTP/1.1 200 OK\r\n\r\n";
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n";
    for whole in [GOOD, chunked, "HTTP/1.1 200 OK\r\n\r\nhi"] {
        for at in 0..whole.len() {
            let is_until_close = whole.starts_with(head) && at >= head.len();
            let wanted = match is_until_close {
                true => format!("200 {}", &whole[head.len()..at]),
                false => "Ended".to_owned(),
            };
            check(&mut scene, Fetch::get(&url), acts(&whole[..at], Close), &wanted);
            check(&mut scene, Fetch::get(&url), acts(&whole[..at], Reset), "Connection");
        }
    }
}

fn methods_decide_what_is_a_body<T: Harness>() {
    let mut scene = scene::<T>(Who::App, FetchSettings::new());
    let url = scene.url("/");
    let hi = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n";
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (bytes, then, wanted) in [
        (hi, Stay, "200 "),
        (chunked, Stay, "200 "),
        ("HTTP/1.1 200 OK\r\n\r\n", Stay, "200 "),
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", Stay, "200 "),
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", Close, "200 "),
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n", Close, "Ended"),
    ] {
        check(&mut scene, Fetch::head(&url), acts(bytes, then), wanted);
    }
    // A server that answers before it has the body, and does not read it.
    let no = "HTTP/1.1 413 No\r\nContent-Length: 2\r\n\r\nno";
    for then in [Stay, Close] {
        let post = Fetch::post(&url).body(vec![b'x'; 100_000]);
        check(&mut scene, post, acts(no, then), "413 no");
    }
}
