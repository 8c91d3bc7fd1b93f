//! A table of requests and their responses, byte by byte: whole and at every cut.

use std::time::Duration;

use crate::common::simulated::Simulated;
use crate::common::{End, Net, text};
use windlass_web::{App, Error, Flow, Part, Response, Status};

fn app() -> App {
    App::new()
        .before(|_, q| {
            q.path().starts_with("/private").then(|| Error::new(Status::UNAUTHORIZED).into())
        })
        .get("/", |_, _| "Hello")
        .get("/private", |_, _| "never")
        .post("/private", |_, _| "never")
        .post("/echo", |_, q| q.body().map(<[u8]>::to_vec))
        .post("/small", |_, q| q.body().map(<[u8]>::to_vec))
        .body_limit(4)
        .get("/job", |_, q| q.blocking(|| "done", |_, text| text))
        .get("/nothing", |_, _| ())
        .get("/stream", |_, _| {
            let mut parts = vec!["c", "", "bb"];
            Response::stream(move |part: &mut Part<'_>| {
                part.write(parts.pop().unwrap_or("").as_bytes());
                if parts.is_empty() { Flow::End } else { Flow::More }
            })
        })
}

/// A response with a text.
fn says(status: &str, fields: &str, body: &str) -> String {
    let kind = "Content-Type: text/plain; charset=utf-8";
    // The fields of the program stand in front of the length, those of the connection behind it.
    let (own, after) = match fields.strip_prefix("Connection") {
        Some(_) => ("", fields),
        None => fields
            .split_once("Connection")
            .map_or((fields, ""), |(own, _)| (own, &fields[own.len()..])),
    };
    let len = body.len();
    format!("HTTP/1.1 {status}\r\n{kind}\r\n{own}Content-Length: {len}\r\n{after}\r\n{body}")
}

fn hello() -> String {
    says("200 OK", "", "Hello")
}

fn echo(body: &str) -> String {
    let kind = "Content-Type: application/octet-stream";
    format!("HTTP/1.1 200 OK\r\n{kind}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

const STREAMED: &str = "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n\
                        Transfer-Encoding: chunked\r\n\r\n";
const CLOSE: &str = "Connection: close\r\n";

/// Requests, and what is answered.
fn table() -> Vec<(String, String)> {
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
    let post = |path: &str, rest: &str| format!("POST {path} HTTP/1.1\r\nHost: a\r\n{rest}");
    let length = post("/echo", "Content-Length: 5\r\n\r\nhello");
    let chunks = post(
        "/echo",
        "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n1;a=\"b\"\r\n!\r\n0\r\n\r\n",
    );
    let trailers =
        post("/echo", "Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nX-Sum: 7\r\nB: c\r\n\r\n");
    let head = "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned();
    let no_body = hello().replace("\r\n\r\nHello", "\r\n\r\n");
    let missing = says("404 Not Found", "", "Not Found");
    let unknown = says("501 Not Implemented", "", "Not Implemented");
    let allow = "HTTP/1.1 204 No Content\r\nAllow: ";
    vec![
        (get("/"), hello()),
        (head.clone(), no_body.clone()),
        (length.clone(), echo("hello")),
        (chunks.clone(), echo("hello!")),
        (trailers.clone(), echo("hi")),
        (get("/") + &length + &head + &chunks + &get("/job") + &trailers + &get("/"), {
            hello()
                + &echo("hello")
                + &no_body
                + &echo("hello!")
                + &says("200 OK", "", "done")
                + &echo("hi")
                + &hello()
        }),
        (get("/nothing") + &get("/"), "HTTP/1.1 204 No Content\r\n\r\n".to_owned() + &hello()),
        // Streams.
        (
            get("/stream") + &get("/"),
            format!("{STREAMED}2\r\nbb\r\n1\r\nc\r\n0\r\n\r\n{}", hello()),
        ),
        (
            "HEAD /stream HTTP/1.1\r\nHost: a\r\n\r\n".to_owned() + &get("/"),
            STREAMED.to_owned() + &hello(),
        ),
        (
            "GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n".to_owned() + &get("/"),
            STREAMED.replace("Transfer-Encoding: chunked", "Connection: close") + "bbc",
        ),
        // Versions and connections.
        ("GET / HTTP/1.0\r\n\r\n".to_owned() + &get("/"), says("200 OK", CLOSE, "Hello")),
        (
            "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n".to_owned() + &get("/"),
            says("200 OK", "Connection: keep-alive\r\n", "Hello") + &hello(),
        ),
        (
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".to_owned() + &get("/"),
            says("200 OK", CLOSE, "Hello"),
        ),
        ("GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: b\r\n\r\n".into(), hello()),
        // Targets and methods.
        ("GET http://b:80/ HTTP/1.1\r\nHost: a\r\n\r\n".into(), hello()),
        ("GET http://b HTTP/1.1\r\nHost: a\r\n\r\n".into(), hello()),
        (get("/?a=b"), hello()),
        (get("/missing") + &get("/"), missing.clone() + &hello()),
        ("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n".to_owned() + &get("/"), {
            format!("{allow}GET, HEAD, POST, PUT, DELETE, PATCH, OPTIONS\r\n\r\n{}", hello())
        }),
        (
            "OPTIONS / HTTP/1.1\r\nHost: a\r\n\r\n".into(),
            format!("{allow}GET, HEAD, OPTIONS\r\n\r\n"),
        ),
        ("TRACE / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned() + &get("/"), unknown.clone() + &hello()),
        ("BREW / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned() + &get("/"), unknown + &hello()),
        (
            // What may follow a CONNECT is no request, whatever the answer is.
            "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n".to_owned() + &get("/"),
            says("501 Not Implemented", CLOSE, "Not Implemented"),
        ),
        (
            "DELETE / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned() + &get("/"),
            says("405 Method Not Allowed", "Allow: GET, HEAD, OPTIONS\r\n", "Method Not Allowed")
                + &hello(),
        ),
        (get("/private") + &get("/"), says("401 Unauthorized", "", "Unauthorized") + &hello()),
        (
            post("/private", "Content-Length: 5\r\n\r\nhello") + &get("/"),
            says("401 Unauthorized", "", "Unauthorized") + &hello(),
        ),
        (post("/missing", "Content-Length: 5\r\n\r\nhello") + &get("/"), missing + &hello()),
        // Bodies.
        (post("/echo", "Content-Length: 0\r\n\r\n") + &get("/"), echo("") + &hello()),
        (post("/echo", "\r\n") + &get("/"), echo("") + &hello()),
        (length.clone() + "\r\n" + &get("/"), echo("hello") + &hello()),
        (
            post("/echo", "Expect: 100-continue\r\nContent-Length: 2\r\n\r\nhi") + &get("/"),
            echo("hi") + &hello(),
        ),
        (post("/small", "Content-Length: 4\r\n\r\nfour"), echo("four")),
        (
            post("/small", "Content-Length: 5\r\n\r\nhello") + &get("/"),
            says("413 Content Too Large", "", "the body is longer than the limit") + &hello(),
        ),
        (
            post("/small", "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n") + &get("/"),
            says("413 Content Too Large", CLOSE, "the body is longer than the limit"),
        ),
        // What is refused comes behind what was answered.
        (
            get("/") + "GET / HTTP/2.0\r\n\r\n" + &get("/"),
            hello()
                + &says(
                    "505 HTTP Version Not Supported",
                    CLOSE,
                    "the version of HTTP is neither 1.0 nor 1.1",
                ),
        ),
        (get("/") + "\r\n", hello()),
    ]
}

/// Without the 100, which goes out only while the client waits.
fn without_interim(text: &str) -> String {
    text.replace("HTTP/1.1 100 Continue\r\n\r\n", "")
}

#[test]
fn every_cut_has_the_same_responses() {
    let mut net = Simulated::start(app());
    for (request, response) in table() {
        let bytes = request.as_bytes();
        for cut in 0..=bytes.len() {
            let client = net.connect();
            net.say(client, &bytes[..cut]);
            net.0.run_for(Duration::from_millis(10));
            net.say(client, &bytes[cut..]);
            net.finish(client);
            let end = net.end(client);
            let heard = text(net.heard(client));
            let what = || format!("{:?} | {:?}", &request[..cut], &request[cut..]);
            assert_eq!(without_interim(&heard), response, "{}", what());
            let waits = heard.contains("100 Continue");
            assert_eq!(waits, waits && request.contains("Expect"), "{}", what());
            assert_eq!(end, End::Eof, "{}", what());
        }
    }
}

/// The same byte by byte, where each one is a read of its own.
#[test]
fn requests_that_come_byte_by_byte_have_the_same_responses() {
    let mut net = Simulated::start(app());
    for (request, response) in table() {
        let client = net.connect();
        for byte in request.as_bytes() {
            net.say(client, &[*byte]);
            net.0.run_for(Duration::from_millis(1));
        }
        net.finish(client);
        assert_eq!(net.end(client), End::Eof);
        assert_eq!(without_interim(&text(net.heard(client))), response, "{request:?}");
    }
}

fn the_table_in_random_pieces<N: Net>() {
    let seed = fastrand::u64(..);
    let mut random = fastrand::Rng::with_seed(seed);
    let mut net = N::start(app());
    for (request, response) in table() {
        for round in 0..4 {
            let client = net.connect();
            let mut rest = request.as_bytes();
            while !rest.is_empty() {
                let len = if round == 0 { rest.len() } else { random.usize(1..=rest.len()) };
                net.say(client, &rest[..len]);
                rest = &rest[len..];
            }
            net.finish(client);
            let end = net.end(client);
            let heard = without_interim(&text(net.heard(client)));
            assert_eq!((&heard, end), (&response, End::Eof), "seed {seed}: {request:?}");
        }
    }
}

crate::every_driver! {
    the_table_in_random_pieces
}
