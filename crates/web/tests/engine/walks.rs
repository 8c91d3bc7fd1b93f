//! Random walks: a connection goes over from raw to HTTP, to TLS, out of the engine and back, and
//! every byte of its client arrives once, in order, where it belongs, however it was cut.
#![allow(unreachable_pub)] // it is a module of a test binary

use std::collections::HashSet;
use std::time::Duration;

use fastrand::Rng;
use windlass::net::ListenOptions;
use windlass::{Completions, Watcher};
use windlass_serve::{Config, Id, Refusal};
use windlass_web::engine::{Event, RequestId, Switching};
use windlass_web::{Engine, Limits};

use super::net::{Clients, Harness};

/// A step of a client.
#[derive(Clone, Debug)]
enum Step {
    /// Raw bytes, which come back.
    Say(String),
    /// The raw connection begins HTTP.
    BeginHttp,
    /// The raw connection goes over to TLS.
    Encrypt,
    /// The raw connection leaves the engine, and comes back as raw, or with HTTP.
    Leave { to_http: bool },
    /// A request with a body.
    Ask(String),
    /// A request that makes the connection raw.
    Upgrade { by_connect: bool },
}

/// What the engine is told, and what the client hears.
#[derive(Debug, Default)]
struct Plan {
    steps: Vec<Step>,
    told: Vec<String>,
    heard: Vec<Heard>,
}

#[derive(Debug)]
enum Heard {
    Raw(String),
    /// The line of a response, and its body.
    Response(&'static str, String),
}

fn plan(rng: &mut Rng, begins_raw: bool, has_tls: bool) -> Plan {
    let (mut plan, mut is_raw, mut is_plain) = (Plan::default(), begins_raw, true);
    for number in 0..rng.usize(4..16) {
        // Some are longer than what is read ahead of a request that waits.
        let most = *rng.choice(&[10, 300, 30_000]).expect("some");
        let text = format!("{number}{}", "x".repeat(rng.usize(0..most)));
        let step = match (is_raw, rng.u8(..8)) {
            // A client goes over to TLS when it is connected: when it has heard something.
            (true, _) if number == 0 => Step::Say(text),
            (true, 0) if has_tls && is_plain => Step::Encrypt,
            (true, 1..=2) => Step::BeginHttp,
            (true, 3..=4) => Step::Leave { to_http: rng.bool() },
            (true, _) => Step::Say(text),
            (false, 0..=3) => Step::Upgrade { by_connect: rng.bool() },
            (false, _) => Step::Ask(text),
        };
        match &step {
            Step::Say(text) => {
                plan.told.push(format!("raw {text}"));
                plan.heard.push(Heard::Raw(text.clone()));
            }
            Step::BeginHttp => is_raw = false,
            Step::Encrypt => {
                plan.told.push("encrypted".into());
                is_plain = false;
            }
            Step::Leave { to_http } => {
                plan.told.push(if is_plain { "left" } else { "stays" }.into());
                is_raw = !to_http;
            }
            Step::Ask(text) => {
                plan.told.push(format!("request {text}"));
                plan.heard.push(Heard::Response("HTTP/1.1 200 OK\r\n", text.clone()));
            }
            Step::Upgrade { by_connect } => {
                plan.told.push("upgraded".into());
                let line = if *by_connect {
                    "HTTP/1.1 200 OK\r\n"
                } else {
                    "HTTP/1.1 101 Switching Protocols\r\n"
                };
                plan.heard.push(Heard::Response(line, String::new()));
                is_raw = true;
            }
        }
        plan.steps.push(step);
    }
    plan
}

/// A raw message: what it asks for, its length, and its bytes.
fn message(kind: u8, text: &str) -> Vec<u8> {
    let mut bytes = vec![kind];
    bytes.extend_from_slice(&(text.len() as u16).to_be_bytes());
    bytes.extend_from_slice(text.as_bytes());
    bytes
}

impl Step {
    fn bytes(&self) -> Vec<u8> {
        match self {
            Step::Say(text) => message(b's', text),
            Step::BeginHttp => message(b'h', ""),
            Step::Encrypt => message(b'e', ""),
            Step::Leave { to_http: false } => message(b'l', ""),
            Step::Leave { to_http: true } => message(b'g', ""),
            Step::Ask(text) => format!(
                "POST /ask HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n{text}",
                text.len()
            )
            .into(),
            Step::Upgrade { by_connect: true } => {
                b"CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n".to_vec()
            }
            Step::Upgrade { by_connect: false } => super::upgrade("/").into(),
        }
    }
}

impl Plan {
    /// How many of the things that it hears a client has heard, whole and in order.
    fn count_heard(&self, heard: &str) -> usize {
        let mut rest = heard;
        for (count, expected) in self.heard.iter().enumerate() {
            let (head, text) = match expected {
                Heard::Raw(text) => ("", text),
                Heard::Response(line, text) => {
                    let len = line.len().min(rest.len());
                    assert_eq!(rest[..len], line[..len], "number {count} of {heard:?}");
                    let Some(end) = rest.find("\r\n\r\n") else { return count };
                    (&rest[..end + 4], text)
                }
            };
            rest = &rest[head.len()..];
            let len = text.len().min(rest.len());
            assert_eq!(rest[..len], text[..len], "number {count} of {heard:?}");
            if len < text.len() {
                return count;
            }
            rest = &rest[len..];
        }
        assert_eq!(rest, "", "there is more than expected");
        self.heard.len()
    }

    /// How many things a client hears of the first steps.
    fn heard_of(&self, steps: usize) -> usize {
        let speaks =
            |step: &&Step| matches!(step, Step::Say(_) | Step::Ask(_) | Step::Upgrade { .. });
        self.steps[..steps].iter().filter(speaks).count()
    }
}

/// An engine, its only client, and what the engine has told.
struct Walk {
    rng: Rng,
    watcher: Watcher,
    engine: Engine<Vec<u8>>,
    clients: Clients,
    told: Vec<String>,
    /// Connections that come back with HTTP when they have left.
    to_http: HashSet<Id>,
    waiting: Vec<(RequestId, String)>,
    has_tls: bool,
    #[cfg(feature = "ring")]
    tls: (windlass_serve::tls::Tls, windlass_serve::tls::TlsClient),
}

impl Walk {
    /// Takes the messages out that a raw connection has.
    fn take_messages(&mut self, id: Id) {
        while let Some(input) = self.engine.state(id) {
            let Some(len) = input.get(1..3) else { return };
            let len = usize::from(u16::from_be_bytes([len[0], len[1]]));
            if input.len() < 3 + len {
                return;
            }
            let rest = input.split_off(3 + len);
            let message = std::mem::replace(input, rest);
            if self.has_tls {
                assert_eq!(self.engine.detach(id), Err(Refusal::Tls));
            }
            match message[0] {
                b's' => {
                    let text = message[3..].to_vec();
                    self.told.push(format!("raw {}", String::from_utf8_lossy(&text)));
                    self.engine.write(id, text).expect("there is room");
                }
                b'h' => self.begin_http(id),
                b'e' => return self.encrypt(id),
                kind if self.has_tls => {
                    self.told.push("stays".into());
                    if kind == b'g' {
                        self.begin_http(id);
                    }
                }
                kind => {
                    let rest = std::mem::take(self.engine.state(id).expect("it is raw"));
                    self.engine.unread(id, rest).expect("it is open");
                    self.engine.detach(id).expect("it may leave");
                    if kind == b'g' {
                        self.to_http.insert(id);
                    }
                    return;
                }
            }
        }
    }

    fn begin_http(&mut self, id: Id) {
        let rest = std::mem::take(self.engine.state(id).expect("it is raw"));
        self.engine.begin_http(id, rest).expect("it is raw");
    }

    #[cfg(feature = "ring")]
    fn encrypt(&mut self, id: Id) {
        let rest = std::mem::take(self.engine.state(id).expect("it is raw"));
        self.has_tls = true;
        self.engine.encrypt(id, self.tls.0.clone(), rest).expect("it is plain");
    }

    #[cfg(not(feature = "ring"))]
    fn encrypt(&mut self, _: Id) {
        unreachable!("no plan has it");
    }

    fn answer(&mut self, id: RequestId, text: String) {
        if self.rng.bool() {
            self.engine.respond(id, text).expect("it waits");
        } else {
            self.waiting.push((id, text));
        }
    }

    fn events(&mut self) {
        while let Some(event) = self.engine.next_event(&mut self.watcher) {
            match event {
                Event::Request { id, request } if request.path() == "/ask" => {
                    let text = String::from_utf8_lossy(request.body()).into_owned();
                    self.told.push(format!("request {text}"));
                    self.answer(id, text);
                }
                Event::Request { id, request } => {
                    self.told.push("upgraded".into());
                    let to = match request.method() {
                        "CONNECT" => Switching::tunnel(),
                        _ => Switching::to("raw"),
                    };
                    self.engine.upgrade(id, to, Vec::new()).expect("it is asked for");
                }
                Event::Data { id, data } => {
                    self.engine.state(id).expect("it is raw").extend_from_slice(&data);
                    self.take_messages(id);
                }
                Event::Opened { id, .. } => self.take_messages(id),
                Event::Encrypted { .. } => self.told.push("encrypted".into()),
                Event::Detached { id, handle, undelivered, .. } => {
                    self.told.push("left".into());
                    let rest: Vec<u8> = undelivered.iter().flat_map(super::bytes).collect();
                    if self.to_http.remove(&id) {
                        self.engine.attach(handle, rest).expect("few connections");
                    } else {
                        self.engine.attach_raw(handle, rest).expect("few connections");
                    }
                }
                Event::Eof { id } => {
                    self.engine.close(id);
                }
                Event::Ended { .. } | Event::Closed { .. } => {}
                event => panic!("{event:?}"),
            }
        }
    }

    /// Runs one turn, and waits for it for at most `span`; how many completions there were.
    fn turn(&mut self, span: Duration) -> usize {
        while !self.waiting.is_empty() && self.rng.bool() {
            let (id, text) = self.waiting.remove(0);
            self.engine.respond(id, text).expect("it waits");
        }
        let span = if self.waiting.is_empty() { span } else { Duration::ZERO };
        self.engine.flush(&mut self.watcher);
        self.clients.engine.flush(&mut self.watcher);
        let mut done = Completions::new();
        let count = self.watcher.wait_timeout(&mut done, span).expect("a wait");
        for c in done.drain(..) {
            let Some(c) = self.engine.complete(&mut self.watcher, c) else { continue };
            assert!(self.clients.engine.complete(&mut self.watcher, c).is_none());
        }
        self.events();
        self.clients.events(&mut self.watcher);
        if self.waiting.is_empty() { count } else { 1 }
    }

    #[track_caller]
    fn until(&mut self, what: &str, mut ready: impl FnMut(&mut Walk) -> bool) {
        while !ready(self) {
            let turned = self.turn(Duration::from_secs(1000)) > 0;
            assert!(turned, "waited in vain until {what}: {:?}", self.told);
        }
    }

    /// Says some bytes in pieces.
    fn say_cut(&mut self, client: Id, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let most = *self.rng.choice(&[10, 1000, 50_000]).expect("some");
            let (piece, rest) = bytes.split_at(self.rng.usize(1..=most).min(bytes.len()));
            self.clients.say(client, piece.to_vec());
            for _ in 0..self.rng.usize(..3) {
                self.turn(Duration::ZERO);
            }
            bytes = rest;
        }
    }
}

/// Settings of a server with a certificate of its own, and of a client that trusts it.
#[cfg(feature = "ring")]
fn settings() -> (windlass_serve::tls::Tls, windlass_serve::tls::TlsClient) {
    use windlass_serve::tls::{Pem, Tls, TlsClient};
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("one");
    let certificate = Pem::bytes(made.cert.pem());
    let key = Pem::bytes(made.signing_key.serialize_pem());
    let server = Tls::builder().certificate(certificate.clone(), key).build();
    (server.expect("a server"), TlsClient::builder().roots(certificate).build().expect("a client"))
}

/// Walks once.
fn walk<T: Harness>(seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let mut watcher = T::watcher();
    let mut engine = Engine::new(Config::new(), Limits::new());
    let local = ([127, 0, 0, 1], 0);
    let begins_raw = rng.bool();
    if begins_raw {
        engine.listen_raw(&mut watcher, local, ListenOptions::default()).expect("a listener");
    } else {
        engine.listen(&mut watcher, local, ListenOptions::default()).expect("a listener");
    }
    let address = watcher.local_address(engine.listeners()[0]).expect("its address");
    let plan = plan(&mut rng, begins_raw, cfg!(feature = "ring"));
    let mut walk = Walk {
        rng,
        watcher,
        engine,
        clients: Clients::new(address),
        told: Vec::new(),
        to_http: HashSet::new(),
        waiting: Vec::new(),
        has_tls: false,
        #[cfg(feature = "ring")]
        tls: settings(),
    };
    let client = walk.clients.connect();
    let mut unsaid = Vec::new();
    for (at, step) in plan.steps.iter().enumerate() {
        if let Step::Encrypt = step {
            walk.say_cut(client, &std::mem::take(&mut unsaid));
            // What is plain has to be here before the first record.
            let count = plan.heard_of(at);
            walk.until("all that is plain is heard", |walk| {
                plan.count_heard(&walk.clients.heard(client)) == count
            });
            walk.clients.say(client, step.bytes());
            #[cfg(feature = "ring")]
            {
                let to = walk.tls.1.to("localhost").expect("a name");
                walk.clients.engine.upgrade(client, to, "").expect("it is plain");
            }
        } else {
            unsaid.extend(step.bytes());
        }
    }
    walk.say_cut(client, &unsaid);
    walk.until("all is heard and told", |walk| {
        plan.count_heard(&walk.clients.heard(client)) == plan.heard.len()
            && walk.told.len() >= plan.told.len()
    });
    assert_eq!(walk.told, plan.told);
    walk.clients.engine.shutdown(client);
    walk.until("it is over", |walk| walk.engine.is_empty());
    assert_eq!(walk.told, plan.told, "nothing came behind");
}

/// Walks for fixed seeds, and for fresh ones.
pub fn run<T: Harness>(count: u32) {
    super::seeds::each(T::NAME, count, count, walk::<T>);
}
