//! What nbio's HTTP server does (nbhttp), and what it does wrong, on every driver.
//! The inputs are those of its parser tests, each twice in a row and in random pieces.

use crate::common;
use crate::common::{End, Net, halves, statuses};
use windlass_web::{App, Response};

fn app() -> App {
    App::new()
        .any("/", |_, q| q.body().map(<[u8]>::to_vec))
        .any("/echo", |_, q| q.body().map(<[u8]>::to_vec))
        .get("/number/{n}", |_, q| {
            let n: u32 = q.parse("n")?;
            // Every second one is answered by another thread.
            let answer = move || format!("{n};");
            Ok::<_, windlass_web::Error>(match n % 2 {
                0 => Response::text(answer()),
                _ => q.blocking(answer, |_, text| text),
            })
        })
}

/// TestServerParserContentLength, TestServerParserChunks, TestServerParserTrailer.
fn inputs_of_its_parser_tests_are_answered_twice<N: Net>() {
    const AGENT: &str = "User-Agent: Go-http-client/1.1\r\nAccept-Encoding: gzip \r\n";
    let chunked = |rest: &str| {
        format!("POST / HTTP/1.1\r\nHost: a:1\r\n{AGENT}Transfer-Encoding: chunked\r\n{rest}")
    };
    let inputs = [
        (
            "POST /echo HTTP/1.1\r\nEmpty:\r\nEmpty2:\r\nHost: localhost:8080   \r\n\
             Accept-Encoding:  gzip , deflate ,br  \r\n\r\n"
                .to_owned(),
            "",
        ),
        (format!("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length:  0\r\n{AGENT}\r\n"), ""),
        (
            format!("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length:  5\r\n{AGENT}\r\nhello"),
            "hello",
        ),
        (chunked("\r\n4\r\nbody\r\n0\r\n\r\n"), "body"),
        (chunked("\r\n0\r\n\r\n"), ""),
        (
            chunked("Trailer: Md5,Size\r\n\r\n4\r\nbody\r\n0\r\nMd5: 841a2d \r\nSize: 4  \r\n\r\n"),
            "body",
        ),
        (chunked("\r\n0\r\n123456789: value \r\n!#$%&'*+-.^_`|~: value \r\n\r\n"), ""),
        ("POST / HTTP/1.1\r\nHost: a\r\n!#$%&'*+-.^_`|~: value \r\n\r\n".to_owned(), ""),
    ];
    let seed = fastrand::u64(..);
    let mut random = fastrand::Rng::with_seed(seed);
    let mut net = N::start(app());
    for (input, body) in &inputs {
        let twice = input.repeat(2);
        for _ in 0..5 {
            let client = net.connect();
            let mut rest = twice.as_bytes();
            while !rest.is_empty() {
                let (piece, behind) = rest.split_at(random.usize(1..=rest.len().min(40)));
                net.say(client, piece);
                rest = behind;
            }
            net.finish(client);
            assert_eq!(net.end(client), End::Eof, "seed {seed}: {input:?}");
            let heard = common::text(net.heard(client));
            let heard = heard.replace("HTTP/1.1 100 Continue\r\n\r\n", "");
            assert_eq!(statuses(&heard), [200, 200], "seed {seed}: {input:?}: {heard:?}");
            let one = format!("Content-Length: {}\r\n\r\n{body}", body.len());
            assert_eq!(heard.matches(&one).count(), 2, "seed {seed}: {input:?}: {heard:?}");
        }
    }
}

/// The requests of a connection are answered in their order, whoever answers them.
fn a_pipeline_is_answered_in_its_order<N: Net>() {
    let mut net = N::start(app());
    let request = |n: u32| format!("GET /number/{n} HTTP/1.1\r\nHost: a\r\n\r\n");
    let pipeline: String = (0..200).map(request).collect();
    let (heard, end) = net.ask(pipeline.as_bytes());
    assert_eq!((statuses(&heard), end), (vec![200; 200], End::Eof));
    let mut rest = &heard[..];
    for n in 0..200 {
        let body = format!("{n};");
        let (_, behind) = halves(rest);
        rest = behind.strip_prefix(&body[..]).unwrap_or_else(|| panic!("{body:?}: {behind:?}"));
    }
    assert_eq!(rest, "");
}

/// It accepts blanks around names and behind the sizes of chunks, and drops a length beside a
/// coding.
fn what_it_lets_through_is_refused<N: Net>() {
    let mut net = N::start(app());
    for input in [
        "POST / HTTP/1.1\r\nHost : localhost:8080   \r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length :  5\r\n\r\nhello",
        "POST / HTTP/1.1\r\nHost: a\r\nEmpty:\r\n Empty2:\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4   \r\nbody\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0  \r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n  Md5  : 8\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n\
         0\r\n\r\n",
    ] {
        let (heard, end) = net.provoke(input.as_bytes());
        assert_eq!((statuses(&heard), end), (vec![400], End::Eof), "{input:?}: {heard:?}");
    }
}

crate::every_driver! {
    inputs_of_its_parser_tests_are_answered_twice
    a_pipeline_is_answered_in_its_order
    what_it_lets_through_is_refused
}
