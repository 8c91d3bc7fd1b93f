//! What passes through the proxy is what goes direct: requests at the server, and responses at the
//! client, but for the fields of each connection, and those that the proxy writes.

use windlass_serve::Id;
use windlass_web::http1::{
    Asked, Event, Framing, Limits, Method, RequestDecoder, RequestHead, ResponseDecoder,
    ResponseHead, Version,
};

use crate::every_driver;
use crate::net::Harness;
use crate::scene::Scene;

every_driver! {
    what_passes_through_is_what_goes_direct
}

const REQUESTS: &[&str] = &[
    "GET /a/b?c=d&e HTTP/1.1\r\nHost: h:80\r\nAccept: */*\r\nAccept: text/html\r\n\r\n",
    "HEAD / HTTP/1.1\r\nHost: h\r\nIf-None-Match: \"a\"\r\n\r\n",
    "DELETE /%2F//. HTTP/1.1\r\nHost: [::1]:8080\r\n\r\n",
    "OPTIONS /x HTTP/1.1\r\nHost: h\r\nOrigin: http://o\r\n\r\n",
    "PURGE /x HTTP/1.1\r\nHost: h\r\nA:\r\nB: \t c d \t\r\n\r\n",
    "POST /a HTTP/1.1\r\nHost: h\r\nContent-Type: a/b\r\nContent-Length: 5\r\n\r\nhello",
    "PUT /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n\
     2\r\nhe\r\n3;a=b\r\nllo\r\n0\r\nX: y\r\n\r\n",
    "PATCH /a HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n",
];

const RESPONSES: &[&str] = &[
    "HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 5\r\nETag: \"a\"\r\n\r\nhello",
    "HTTP/1.1 200 \r\nDate: d\r\nContent-Length: 0\r\nSet-Cookie: a=b\r\nSet-Cookie: c=d\r\n\r\n",
    "HTTP/1.1 206 Partial Content\r\nDate: d\r\nContent-Range: bytes 0-1/9\r\n\
     Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n1\r\nb\r\n0\r\nX: y\r\nZ: 1\r\n\r\n",
    "HTTP/1.1 301 Moved\r\nDate: d\r\nLocation: /else?where\r\nContent-Length: 0\r\n\r\n",
    "HTTP/1.1 401 No\r\nDate: d\r\nWWW-Authenticate: Basic realm=\"r\"\r\n\
     Content-Length: 2\r\n\r\nno",
    "HTTP/1.1 599 Own\r\nDate: d\r\nContent-Length: 1\r\nX: \u{e9}\r\n\r\nx",
];

/// A message: its first line, its fields, its body and its trailers.
#[derive(Debug, Default, PartialEq)]
struct Message {
    line: String,
    fields: Vec<(String, Vec<u8>)>,
    body: Vec<u8>,
    trailers: Vec<(String, Vec<u8>)>,
}

type FieldOf<'a> = (&'a str, &'a [u8]);

/// What is for all connections, and what no proxy writes.
fn kept<'a>(fields: impl Iterator<Item = FieldOf<'a>>) -> Vec<(String, Vec<u8>)> {
    const OWN: [&str; 4] = ["via", "content-length", "transfer-encoding", "connection"];
    let is_kept = |field: &FieldOf<'_>| {
        let name = field.0.to_ascii_lowercase();
        !OWN.contains(&&*name) && !name.starts_with("x-forwarded-")
    };
    fields.filter(is_kept).map(|(name, value)| (name.to_owned(), value.to_vec())).collect()
}

/// The whole request that an end has heard; `None` if it is not whole.
fn request(bytes: &[u8]) -> Option<Message> {
    let (mut head, mut decoder) = (RequestHead::new(Limits::default()), RequestDecoder::new());
    let (mut message, mut at) = (Message::default(), 0);
    loop {
        let step = decoder.decode(&mut head, &bytes[at..]).expect("a valid request");
        let input = &bytes[at..];
        at += step.consumed;
        match step.event {
            Event::Head => {
                message.line = format!("{} {}", head.method(input), head.target(input));
                message.fields = kept(head.fields(input));
                let has_length = head.get(input, "content-length").is_some();
                if head.framing() == Framing::Empty {
                    message.fields.push((format!("{has_length}"), Vec::new()));
                }
            }
            Event::Body(range) => message.body.extend_from_slice(&input[range]),
            Event::Trailers => message.trailers = kept(head.fields(input)),
            Event::End => return Some(message),
            _ => return None,
        }
    }
}

/// The whole response that an end has heard.
fn response(method: Method, bytes: &[u8]) -> Option<Message> {
    let (mut head, mut decoder) = (ResponseHead::new(Limits::default()), ResponseDecoder::new());
    decoder.expect(Asked::new(method, Version::Http11));
    let (mut message, mut at) = (Message::default(), 0);
    loop {
        let step = decoder.decode(&mut head, &bytes[at..]).expect("a valid response");
        let input = &bytes[at..];
        at += step.consumed;
        match step.event {
            Event::Head => {
                let reason = String::from_utf8_lossy(head.reason(input)).into_owned();
                message.line = format!("{} {reason} {:?}", head.status(), head.content_length());
                message.fields = kept(head.fields(input));
            }
            Event::Body(range) => message.body.extend_from_slice(&input[range]),
            Event::Trailers => message.trailers = kept(head.fields(input)),
            Event::End => return Some(message),
            _ => return None,
        }
    }
}

/// A client asks, and the server responds: what each of them has heard.
fn exchange(scene: &mut Scene, client: Id, asks: &str, responds: &str) -> (Message, Message) {
    let number = scene.inner.len().saturating_sub(1);
    scene.say(client, asks.to_owned());
    scene.until("a request", |scene| {
        let inner = scene.inner.last();
        inner.is_some_and(|inner| request(&scene.ends[inner].heard).is_some())
    });
    let inner = scene.inner[scene.inner.len() - 1];
    assert!(scene.inner.len() - 1 <= number + 1);
    let asked = request(&scene.ends[&inner].heard).expect("it was there");
    scene.take(inner);
    let method = Method::of(asked.line.split(' ').next().unwrap_or("").as_bytes());
    let bytes: Vec<u8> = responds.chars().map(|char| char as u8).collect();
    let end = if method == Method::Head {
        bytes.windows(4).position(|four| four == b"\r\n\r\n").map_or(bytes.len(), |at| at + 4)
    } else {
        bytes.len()
    };
    scene.say(inner, bytes[..end].to_vec());
    scene.until("a response", |scene| response(method, &scene.ends[&client].heard).is_some());
    let heard = response(method, &scene.ends[&client].heard).expect("it was there");
    scene.take(client);
    (asked, heard)
}

fn what_passes_through_is_what_goes_direct<T: Harness>() {
    let mut scene = Scene::new::<T>();
    for asks in REQUESTS {
        for responds in RESPONSES {
            let through = scene.client();
            let passed = exchange(&mut scene, through, asks, responds);
            let direct = scene.direct();
            let told = exchange(&mut scene, direct, asks, responds);
            assert_eq!(passed, told, "{asks:?} {responds:?}");
            scene.engine.close(through);
            scene.engine.close(direct);
            scene.inner.clear();
            scene.forget();
        }
    }
}
