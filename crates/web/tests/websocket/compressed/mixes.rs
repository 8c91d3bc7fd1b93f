//! Random mixes of compressed and other messages, with peers whose contexts zlib in C keeps.

use std::cell::Cell;
use std::collections::BTreeMap;

use windlass::sim::{Faults, Sim};
use windlass::{Builder, Watcher};
use windlass_web::websocket::{Deflate, Kind, Message, Peer, Socket, SocketEnd, SocketSender};
use windlass_web::websocket::{Payload, WebSocketSettings};
use windlass_web::{App, Status};

use super::peer::ZlibPeer;
use super::seeds;
use crate::bench::serve;
use crate::client::{Got, PING, close, frame};
use crate::common::Harness;

crate::every_kernel! {
    mixes_of_messages_are_byte_equal
}

#[derive(Default)]
struct Log {
    senders: Vec<SocketSender>,
    ends: Vec<SocketEnd>,
}

/// Publishes what begins with `!`, and echoes all other messages: those that begin with `#` in
/// parts, one with each message that comes.
#[derive(Default)]
struct Mixes {
    /// What is left to send, and the size of a part.
    rest: Option<(Kind, Vec<u8>, usize)>,
}

/// The size of the parts of a message.
fn part_of(len: usize) -> usize {
    len / (2 + len % 3) + 1
}

impl Mixes {
    fn go_on(&mut self, c: &mut Socket<'_>) {
        let Some((kind, mut part, size)) = self.rest.take() else { return };
        let rest = part.split_off(size.min(part.len()));
        assert!(c.send_part(kind, part, rest.is_empty()), "the client reads");
        self.rest = (!rest.is_empty()).then_some((kind, rest, size));
    }
}

impl Peer<Log> for Mixes {
    fn open(&mut self, log: &mut Log, c: &mut Socket<'_>) {
        log.senders.push(c.sender());
        c.subscribe("all");
    }

    fn message(&mut self, _: &mut Log, c: &mut Socket<'_>, message: Message) {
        self.go_on(c);
        match &message {
            _ if self.rest.is_none() && message.as_bytes().starts_with(b"#") => {
                let kind = if message.as_text().is_some() { Kind::Text } else { Kind::Binary };
                let bytes = message.as_bytes().to_vec();
                let size = part_of(bytes.len());
                self.rest = Some((kind, bytes, size));
                self.go_on(c);
            }
            Message::Text(text) if text.starts_with('!') => c.publish("all", &text[1..]),
            Message::Binary(bytes) if bytes.starts_with(b"!") => {
                c.publish("all", bytes[1..].to_vec());
            }
            _ => assert!(c.send(message), "the client reads"),
        }
    }

    fn closed(&mut self, log: &mut Log, end: &SocketEnd) {
        log.ends.push(end.clone());
    }
}

/// What has happened, and how often.
type Met = BTreeMap<&'static str, u64>;

/// Texts that have phrases in common.
struct Texts {
    random: fastrand::Rng,
    phrases: Vec<String>,
}

impl Texts {
    fn new(mut random: fastrand::Rng) -> Texts {
        let phrase = |random: &mut fastrand::Rng| {
            let len = [3, 20, 120, 400][random.usize(..4)];
            (0..len).map(|_| ['a', 'e', 'ö', ' ', '7', '漢', 'z'][random.usize(..7)]).collect()
        };
        let phrases = (0..12).map(|_| phrase(&mut random)).collect();
        Texts { random, phrases }
    }

    fn text(&mut self) -> String {
        let most = [0, 30, 200, 600, 2000, 6000, 70_000][(self.random.usize(..25) / 4).min(6)];
        let len = self.random.usize(..=most);
        let mut text = String::new();
        while text.len() < len {
            text.push_str(&self.phrases[self.random.usize(..12)]);
            text.push(self.random.alphanumeric());
        }
        text
    }

    /// A message that begins with this.
    fn message(&mut self, start: &str) -> Got {
        match self.random.u8(..5) {
            0 => {
                // It does not compress.
                let len = self.random.usize(..5000);
                let bytes = (0..len).map(|_| self.random.u8(b'$'..));
                Got::Binary(start.bytes().chain(bytes).collect())
            }
            1 => Got::Binary(format!("{start}{}", self.text()).into_bytes()),
            _ => Got::Text(format!("{start}{}", self.text())),
        }
    }
}

fn offer(random: &mut fastrand::Rng) -> String {
    if random.u8(..10) == 0 {
        return String::new();
    }
    let mut offer = "permessage-deflate".to_owned();
    let mut add = |term: String| offer.push_str(&format!("; {term}"));
    if random.u8(..4) == 0 {
        add("server_no_context_takeover".into());
    }
    if random.u8(..4) == 0 {
        add("client_no_context_takeover".into());
    }
    if random.bool() {
        add(format!("server_max_window_bits={}", random.u8(9..=15)));
    }
    match random.u8(..3) {
        0 => {}
        1 => add("client_max_window_bits".into()),
        _ => add(format!("client_max_window_bits={}", random.u8(9..=15))),
    }
    offer
}

/// What a message is without the order in front of it.
fn published(what: &Got) -> Got {
    match what {
        Got::Text(text) => Got::Text(text[1..].to_owned()),
        Got::Binary(bytes) => Got::Binary(bytes[1..].to_vec()),
        other => other.clone(),
    }
}

fn message(what: &Got) -> Message {
    match what {
        Got::Text(text) => Message::from(text.clone()),
        Got::Binary(bytes) => Message::from(Payload::from(bytes.clone())),
        other => panic!("{other:?}"),
    }
}

fn len(what: &Got) -> usize {
    match what {
        Got::Text(text) => text.len(),
        Got::Binary(bytes) => bytes.len(),
        _ => 0,
    }
}

/// What a peer gets, and whether it may be compressed.
#[derive(Clone, Default)]
struct Wanted {
    now: Vec<(Got, bool)>,
    /// A message in parts, how many are left, and what waits for the last one.
    unfinished: Option<(Got, usize)>,
    waiting: Vec<(Got, bool)>,
}

impl Wanted {
    fn tell(&mut self, what: Got) {
        match self.unfinished {
            Some(_) => self.waiting.push((what, true)),
            None => self.now.push((what, true)),
        }
    }

    fn go_on(&mut self) {
        let Some((what, left)) = self.unfinished.take() else { return };
        if left > 1 {
            self.unfinished = Some((what, left - 1));
        } else {
            self.now.push((what, true));
            self.now.append(&mut self.waiting);
        }
    }
}

fn mix<T: Harness>(seed: u64, met: &mut Met) {
    let mut random = fastrand::Rng::with_seed(seed);
    let want = Deflate {
        server_window: random.u8(9..=15),
        client_window: random.u8(9..=15),
        server_takeover: random.u8(..4) > 0,
        client_takeover: random.u8(..4) > 0,
    };
    let from = [0, 64, 700][random.usize(..3)];
    let settings = WebSocketSettings::new();
    let settings = settings.deflate(want).compress([1, 6, 9][random.usize(..3)], from);
    let app = App::with(|_| Log::default());
    let app = app.websocket_with(settings, "/ws", |_, _| Ok::<_, Status>(Mixes::default()));
    let mut web = serve::<T, _>(app);
    let count = random.usize(1..=4);
    let mut peers = Vec::new();
    for _ in 0..count {
        let (offer, level) = (offer(&mut random), [1, 6, 9][random.usize(..3)]);
        let peer = ZlibPeer::open(&mut web, "/ws", &offer, level);
        if let Some(terms) = peer.terms {
            *met.entry("server takeover").or_default() += u64::from(terms.server.1);
            *met.entry("client takeover").or_default() += u64::from(terms.client.1);
            // Without takeover, a server need not say its window.
            assert!(
                !terms.server.1 || want.server_takeover && terms.server.0 <= want.server_window
            );
            assert!(
                !terms.client.1 || want.client_takeover && terms.client.0 <= want.client_window
            );
        }
        peers.push(peer);
        // It is open, and hears the topic.
        web.until("it is open", |web| web.server.state().senders.len() == peers.len());
    }
    let mut texts = Texts::new(random.fork());
    let mut wanted = vec![Wanted::default(); count];
    for _ in 0..random.usize(3..8) {
        let at = random.usize(..count);
        if random.u8(..6) == 0 && wanted[at].unfinished.is_none() {
            let what = texts.message("");
            web.server.state().senders[at].send(message(&what)).expect("it is open");
            wanted[at].tell(what);
            *met.entry("of a sender").or_default() += 1;
        } else {
            let mut burst = Vec::new();
            for _ in 0..random.usize(1..8) {
                let is_published = random.u8(..3) == 0;
                let in_parts = random.u8(..3) == 0;
                let start = if is_published { "!" } else { ["", "#"][usize::from(in_parts)] };
                let what = texts.message(start);
                let cuts: Vec<usize> = (0..random.usize(..3) * random.usize(..2))
                    .map(|_| random.usize(..90))
                    .collect();
                let frames = peers[at].frames(&what, random.bool(), &cuts);
                for one in &frames {
                    if random.u8(..4) == 0 {
                        let data = texts.text().into_bytes();
                        let data = &data[..data.len().min(100)];
                        burst.push(frame(PING, data));
                        wanted[at].now.push((Got::Pong(data.to_vec()), false));
                    }
                    burst.push(one.clone());
                }
                if is_published {
                    *met.entry("published").or_default() += count as u64;
                    wanted[at].go_on();
                    wanted.iter_mut().for_each(|of| of.tell(published(&what)));
                    continue;
                }
                let of = &mut wanted[at];
                of.go_on();
                if start == "#" && of.unfinished.is_none() {
                    let len = len(&what);
                    of.unfinished = Some((what, len.div_ceil(part_of(len))));
                    of.go_on();
                    *met.entry("in parts").or_default() += 1;
                } else {
                    *met.entry("behind parts").or_default() += u64::from(of.unfinished.is_some());
                    of.tell(what);
                }
            }
            // Its pong says that all of it was heard, also where nothing leaves.
            burst.push(frame(PING, b"all"));
            wanted[at].now.push((Got::Pong(b"all".to_vec()), false));
            let all = burst.concat();
            let cut = random.usize(..=all.len());
            peers[at].say(&mut web, all[..cut].to_vec());
            if random.bool() {
                web.turn(std::time::Duration::ZERO);
            }
            peers[at].say(&mut web, all[cut..].to_vec());
        }
        for (peer, wanted) in peers.iter_mut().zip(&wanted) {
            web.until("all that is said", |web| {
                assert!(!web.client(peer.source).is_over(), "{:?}", peer.got.last());
                peer.look(web) >= wanted.now.len()
            });
            for ((got, is_compressed), (want, may)) in peer.got.drain(..).zip(&wanted.now) {
                assert!(got == *want, "{seed}: {:?}", peer.terms);
                let may = *may && len(want) >= from && peer.terms.is_some();
                assert!(may || !is_compressed, "{seed}");
                let kind = if is_compressed { "compressed" } else { "not compressed" };
                *met.entry(kind).or_default() += 1;
            }
        }
        wanted.iter_mut().for_each(|of| of.now.clear());
    }
    for peer in &peers {
        peer.say(&mut web, close(1000, ""));
    }
    web.until("all have ended", |web| web.server.state().ends.len() == count);
    assert!(web.server.state().ends.iter().all(|end| end.is_clean));
}

fn mixes_of_messages_are_byte_equal<T: Harness>() {
    let mut met = Met::new();
    (0..12).for_each(|seed| mix::<T>(1000 + seed, &mut met));
    println!("{met:?}");
}

/// A network of each seed.
struct Seeded;

thread_local! {
    static SEED: Cell<u64> = const { Cell::new(0) };
}

impl Harness for Seeded {
    type Driver = windlass::driver::Auto;
    const NAME: &'static str = "seeded";
    const VIRTUAL: bool = true;

    fn watcher(builder: Builder) -> Watcher<Self::Driver> {
        let seed = SEED.get();
        let sim = Sim::with_faults(seed, Faults::transient(f64::from(seed as u32 % 3) / 10.0));
        sim.set_completing(seed % 2 == 1);
        Watcher::simulated_with(&sim, builder.config())
    }
}

#[test]
fn seeds_of_mixes_are_byte_equal() {
    let mut met = Met::new();
    let ran = seeds::each("mixes", 180, 20, |seed| {
        SEED.set(seed);
        mix::<Seeded>(seed, &mut met);
    });
    println!("{ran} programs: {met:?}");
    let kinds = [
        "server takeover",
        "client takeover",
        "of a sender",
        "published",
        "compressed",
        "in parts",
        "behind parts",
    ];
    for kind in kinds.iter().filter(|_| ran >= 100) {
        assert!(met.get(kind).is_some_and(|times| *times > 20), "{kind} is rare: {met:?}");
    }
}
