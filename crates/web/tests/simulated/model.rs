//! The application of the random programs, the requests that their clients send, and what each of
//! them has to be answered with.

use fastrand::Rng;
use std::time::Duration;
use windlass_http1::{Asked, Event, Limits, Method, ResponseDecoder, ResponseHead, Rule, Version};
#[cfg(feature = "ring")]
use windlass_web::test::{Host, Simulation};
use windlass_web::{App, Error, Flow, Limits as WebLimits, Part, Response};

#[path = "../../examples/hello.rs"]
mod hello;

/// The bytes of a body: `len` of them, which depend on a key.
pub fn pattern(key: u64, len: usize) -> Vec<u8> {
    (0..len).map(|i| b'a' + ((i as u64 * 7 + (i as u64 >> 6) + key) % 26) as u8).collect()
}

/// What handlers have answered, by the numbers of requests.
pub type Served = std::sync::Arc<std::sync::Mutex<Vec<u64>>>;

fn sized(q: &windlass_web::Request<'_, ()>) -> Result<(u64, usize), Error> {
    Ok((q.parse("key")?, q.parse("len")?))
}

/// The application, with limits for which no client is too slow.
pub fn app(served: &Served) -> App {
    const LONG: Duration = Duration::from_secs(10_000);
    let limits = WebLimits::new().head(LONG).body_rate(0, LONG).answer(LONG).keep_alive(LONG);
    routes(served).limits(limits)
}

/// The application, with the limits of every server: the example `hello`, and more routes.
pub fn routes(served: &Served) -> App {
    let served = served.clone();
    hello::app()
        .get("/large/{key}/{len}", |(), q| {
            let (key, len) = sized(q)?;
            Ok::<_, Error>(pattern(key, len))
        })
        .get("/stream/{key}/{len}", |(), q| {
            let (key, len) = sized(q)?;
            let (body, mut at) = (pattern(key, len), 0);
            let mut random = Rng::with_seed(key);
            Ok::<_, Error>(Response::stream(move |part: &mut Part<'_>| {
                let end = (at + random.usize(..2000)).min(body.len());
                part.write(&body[at..end]);
                at = end;
                if at == body.len() { Flow::End } else { Flow::More }
            }))
        })
        .get("/job/{key}/{len}", |(), q| {
            let (key, len) = sized(q)?;
            let job = q.blocking(move || pattern(key, len), |(), body| body);
            Ok::<_, Error>(job)
        })
        .post("/small", |(), q| q.body().map(<[u8]>::to_vec))
        .body_limit(100)
        .post("/early", |(), _| "early")
        .at_head()
        .get("/panic", |(), _| -> Response {
            std::panic::resume_unwind(Box::new("as the test wants"))
        })
        .before(move |(), q| {
            let number = q.header("X-Number").and_then(|number| number.parse::<u64>().ok());
            served.lock().expect("one thread").extend(number);
            None
        })
}

/// Whether the connection ends behind a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closes {
    No,
    Yes,
    /// It depends on the cuts.
    Maybe,
}

/// A request, and its answer.
#[derive(Clone, Debug)]
pub struct Ask {
    pub name: &'static str,
    pub bytes: Vec<u8>,
    /// Its number, if a handler sees it.
    pub number: u64,
    asked: Asked,
    status: u16,
    /// `None` for a text that explains an error.
    body: Option<Vec<u8>>,
    allow: Option<&'static str>,
    closes: Closes,
    expects: bool,
    /// The client ends its side inside of it.
    is_cut: bool,
}

impl Ask {
    /// What a failure shows of it.
    pub fn head(&self) -> String {
        String::from_utf8_lossy(&self.bytes[..self.bytes.len().min(500)]).into_owned()
    }

    /// The same request, if its client ends inside of it, behind `sent` bytes: the answer to what
    /// has come, or a 400.
    pub fn cut(&self, sent: usize) -> Ask {
        let mut asked = self.asked;
        if !self.bytes[..sent].windows(4).any(|bytes| bytes == b"\r\n\r\n") {
            asked = Asked::new(Method::Get, Version::Http11); // nobody knows that it is a HEAD
        }
        Ask { asked, body: None, closes: Closes::Maybe, is_cut: true, ..self.clone() }
    }
}

/// Draws a request.
pub fn ask(random: &mut Rng, number: u64) -> Ask {
    let key = random.u64(..1000);
    let len = match random.u8(..10) {
        0 => random.usize(..150_000),
        1 => 0,
        _ => random.usize(..3000),
    };
    let body = pattern(key, len);
    let sized = |kind: &str| format!("/{kind}/{key}/{len}");
    let get = |name, target: String, body| draft(name, "GET", &target, 200, Some(body));
    let mut draft = match random.u8(..26) {
        0..5 => get("hello", "/".into(), b"Hello, World!".to_vec()),
        5..7 => get("large", sized("large"), body),
        7..9 => get("stream", sized("stream"), body),
        9..11 => get("job", sized("job"), body),
        11..16 => draft("echo", "POST", "/echo", 200, Some(body.clone())).body(body),
        16 if len <= 100 => draft("small", "POST", "/small", 200, Some(body.clone())).body(body),
        16 => draft("too large", "POST", "/small", 413, None).body(body).may_close(),
        17 => draft("early", "POST", "/early", 200, Some(b"early".to_vec())).body(body).may_close(),
        18 => draft("missing", "GET", "/nothing", 404, Some(b"Not Found".to_vec())),
        19 => draft("method", "DELETE", "/", 405, None).allow("GET, HEAD, OPTIONS"),
        20 => draft("unknown", "BREW", "/", 501, None),
        21 => draft("options", "OPTIONS", "/echo", 204, Some(Vec::new())).allow("POST, OPTIONS"),
        22 => draft("head", "HEAD", &sized("large"), 200, Some(Vec::new())),
        23 => draft("head of a stream", "HEAD", &sized("stream"), 200, Some(Vec::new())),
        24 => draft("panic", "GET", "/panic", 500, None).closes(),
        _ => return wrong(random, number),
    };
    if random.u8(..12) == 0 && draft.closes != Closes::Yes {
        draft.fields.push(("Connection".into(), "close".into()));
        draft.closes = Closes::Yes;
        draft.keep_alive = false;
    } else if random.u8(..12) == 0 && draft.status != 501 {
        draft.version = Version::Http10;
        draft.chunks = false;
        let keeps = random.bool() && draft.name != "stream" && draft.name != "head of a stream";
        if keeps {
            draft.fields.push(("Connection".into(), "keep-alive".into()));
        } else {
            draft.closes = Closes::Yes;
        }
        draft.keep_alive = keeps;
    } else if draft.body.is_some() && random.u8(..4) == 0 {
        draft.fields.push(("Expect".into(), "100-continue".into()));
        draft.expects = true;
    }
    for i in 0..random.u8(..4) {
        let value = String::from_utf8(pattern(number, random.usize(..200))).expect("a text");
        draft.fields.push((format!("X-Field-{i}"), value));
    }
    draft.fields.push(("X-Number".into(), number.to_string()));
    draft.encode(random, number)
}

/// Draws a request that every server refuses.
fn wrong(random: &mut Rng, number: u64) -> Ask {
    let long = "a".repeat(20_000);
    let (status, text) = match random.u8(..8) {
        0 => (400, "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n".into()),
        1 => (400, "GET / HTTP/1.1\r\n\r\n".into()),
        2 => (400, "GET / HTTP/1.1\r\nHost: a\r\nX : y\r\n\r\n".into()),
        3 => (400, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\nhello".into()),
        4 => (414, format!("GET /{long} HTTP/1.1\r\nHost: a\r\n\r\n")),
        5 => (431, format!("GET / HTTP/1.1\r\nHost: a\r\nX: {long}\r\n\r\n")),
        6 => (505, "GET / HTTP/2.0\r\nHost: a\r\n\r\n".into()),
        _ => {
            let head = "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
            (400, format!("{head}5\r\nhello\r\n0x\r\n\r\n"))
        }
    };
    Ask {
        name: "wrong",
        bytes: text.into_bytes(),
        number,
        asked: Asked::new(Method::Get, Version::Http11),
        status,
        body: None,
        allow: None,
        closes: Closes::Yes,
        expects: false,
        is_cut: false,
    }
}

/// A request that is being drawn.
struct Draft {
    name: &'static str,
    method: &'static str,
    target: String,
    version: Version,
    keep_alive: bool,
    fields: Vec<(String, String)>,
    body: Option<Vec<u8>>,
    chunks: bool,
    status: u16,
    answer: Option<Vec<u8>>,
    allow: Option<&'static str>,
    closes: Closes,
    expects: bool,
}

fn draft(
    name: &'static str,
    method: &'static str,
    target: &str,
    status: u16,
    answer: Option<Vec<u8>>,
) -> Draft {
    Draft {
        name,
        method,
        target: target.to_owned(),
        version: Version::Http11,
        keep_alive: true,
        fields: Vec::new(),
        body: None,
        chunks: true,
        status,
        answer,
        allow: None,
        closes: Closes::No,
        expects: false,
    }
}

impl Draft {
    fn body(mut self, body: Vec<u8>) -> Draft {
        self.body = Some(body);
        self
    }

    fn allow(mut self, methods: &'static str) -> Draft {
        self.allow = Some(methods);
        self
    }

    fn closes(mut self) -> Draft {
        self.closes = Closes::Yes;
        self
    }

    fn may_close(mut self) -> Draft {
        self.closes = Closes::Maybe;
        self
    }

    fn encode(self, random: &mut Rng, number: u64) -> Ask {
        let Draft { name, method, target, version, status, allow, closes, expects, .. } = self;
        let text = if version == Version::Http11 { "HTTP/1.1" } else { "HTTP/1.0" };
        let mut bytes = format!("{method} {target} {text}\r\nHost: a.test\r\n").into_bytes();
        for (name, value) in &self.fields {
            bytes.extend(format!("{name}: {value}\r\n").bytes());
        }
        match self.body {
            None => bytes.extend(b"\r\n"),
            Some(body) if self.chunks && random.bool() => {
                bytes.extend(b"Transfer-Encoding: chunked\r\n\r\n");
                let mut rest = &body[..];
                while !rest.is_empty() {
                    let (part, behind) = rest.split_at(random.usize(1..=rest.len()));
                    let extension = if random.u8(..8) == 0 { ";a=b" } else { "" };
                    bytes.extend(format!("{:x}{extension}\r\n", part.len()).bytes());
                    bytes.extend(part);
                    bytes.extend(b"\r\n");
                    rest = behind;
                }
                let trailer = if random.u8(..4) == 0 { "X-Trailer: 1\r\n" } else { "" };
                bytes.extend(format!("0\r\n{trailer}\r\n").bytes());
            }
            Some(body) => {
                bytes.extend(format!("Content-Length: {}\r\n\r\n", body.len()).bytes());
                bytes.extend(&body);
            }
        }
        let mut asked = Asked::new(Method::of(method.as_bytes()), version);
        asked.keep_alive = self.keep_alive;
        Ask {
            name,
            bytes,
            number,
            asked,
            status,
            body: self.answer,
            allow,
            closes,
            expects,
            is_cut: false,
        }
    }
}

/// What a client has heard.
#[derive(Debug)]
pub struct Heard {
    /// How many requests have a whole answer.
    pub answered: usize,
    /// Whether a part of another answer has come.
    pub begun: bool,
    /// Whether an answer has said that it is the last one.
    pub is_last: bool,
    pub interim: usize,
}

/// Compares what has come with what the requests ask for. `at_end`: an end of file has come. From
/// the request with the number `drains` on, the server may close behind any answer.
///
/// # Panics
///
/// If it is not what it has to be.
pub fn check(bytes: &[u8], at_end: bool, drains: usize, asks: &[Ask]) -> Heard {
    let limits = Limits { body: u64::MAX, ..Limits::default() };
    let (mut head, mut decoder) = (ResponseHead::new(limits), ResponseDecoder::new());
    let mut found = Heard { answered: 0, begun: false, is_last: false, interim: 0 };
    let mut used = 0;
    for (number, ask) in asks.iter().enumerate() {
        decoder.expect(ask.asked);
        let (mut body, mut keeps, mut has_head, mut interim) = (Vec::new(), false, false, 0);
        found.begun = used < bytes.len();
        loop {
            let rest = &bytes[used..];
            let step = decoder.decode(&mut head, rest).unwrap_or_else(|error| {
                let text = String::from_utf8_lossy(&rest[..rest.len().min(300)]);
                panic!("{}: {error}: {text}", ask.name)
            });
            used += step.consumed;
            match step.event {
                Event::Interim => {
                    assert!(ask.expects && interim == 0, "{}: a 100 unasked", ask.name);
                    interim += 1;
                }
                Event::Head => {
                    let is_right = head.status() == ask.status;
                    let text = String::from_utf8_lossy(&rest[..step.consumed]);
                    let what = (ask.head(), ask.is_cut, text);
                    assert!(is_right || ask.is_cut && head.status() == 400, "{what:?}");
                    assert!(head.get(rest, "Date").is_some(), "{}: no Date", ask.name);
                    let allow = head.get(rest, "Allow").map(String::from_utf8_lossy);
                    assert!(ask.is_cut || allow.as_deref() == ask.allow, "{}: {allow:?}", ask.name);
                    (has_head, keeps) = (true, ask.asked.keep_alive && head.keep_alive());
                }
                Event::Body(range) => body.extend_from_slice(&rest[range]),
                Event::Trailers => {}
                Event::End | Event::Closed => break,
                Event::NeedMore if at_end => match decoder.finish(rest) {
                    Ok(_) => break, // the body ends with the connection
                    Err(error) => {
                        let begun = has_head || !rest.is_empty();
                        assert!(!begun, "{}: a part of an answer: {error}", ask.name);
                        return Heard { begun: false, ..found };
                    }
                },
                Event::NeedMore => {
                    if let Some(whole) = &ask.body {
                        assert!(whole.starts_with(&body), "{}: a wrong part", ask.name);
                    }
                    return found;
                }
            }
        }
        if let Some(whole) = &ask.body {
            let what = (ask.name, body.len(), whole.len());
            assert!(body == *whole, "a wrong body: {what:?}");
        }
        found.answered += 1;
        found.interim += interim;
        found.is_last = !keeps;
        match ask.closes {
            Closes::Yes => assert!(!keeps, "{}: it keeps the connection", ask.name),
            Closes::No => {
                assert!(keeps || number >= drains, "{}: it closes the connection", ask.name);
            }
            Closes::Maybe => {}
        }
        if !keeps {
            let behind = String::from_utf8_lossy(&bytes[used..]);
            assert!(behind.is_empty(), "behind the last answer to {:?}: {behind}", ask.head());
            return Heard { begun: false, ..found };
        }
    }
    let rest = &bytes[used..];
    if !rest.is_empty() {
        let error = decoder.decode(&mut head, rest).expect_err("nobody has asked");
        assert_eq!(error.rule(), Rule::Unsolicited);
        panic!("an answer that nobody has asked for: {}", String::from_utf8_lossy(rest));
    }
    Heard { begun: false, ..found }
}

/// A root, and a certificate for `a.test` with its key. Keys of Ed25519 have signatures of one
/// length, so that a seed is one run.
#[cfg(feature = "ring")]
static MADE: std::sync::LazyLock<(String, String, String)> = std::sync::LazyLock::new(|| {
    let key = || rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).expect("a key");
    let mut root = rcgen::CertificateParams::default();
    root.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let (root_key, own) = (key(), key());
    let root_pem = root.self_signed(&root_key).expect("a root").pem();
    let issuer = rcgen::Issuer::new(root, root_key);
    let name = rcgen::CertificateParams::new(["a.test".to_owned()]).expect("a name");
    let certificate = name.signed_by(&own, &issuer).expect("a certificate").pem();
    (root_pem, certificate, own.serialize_pem())
});

/// Those who trust `a.test`.
#[cfg(feature = "ring")]
pub fn trust() -> windlass_web::tls::TlsClient {
    let root = windlass_web::tls::Pem::bytes(&MADE.0);
    windlass_web::tls::TlsClient::builder().roots(root).build().expect("whom to trust")
}

/// Starts the application with TLS, and says whom clients trust.
#[cfg(feature = "ring")]
pub fn secure<S: 'static>(sim: &Simulation, make: impl Fn() -> App<S> + 'static) -> Host {
    use windlass_web::tls::{Pem, Tls};

    let (_, certificate, key) = &*MADE;
    sim.trust(trust());
    let tls = Tls::pem(Pem::bytes(certificate), Pem::bytes(key)).expect("settings");
    sim.serve_tls("a.test:80", tls, make)
}
