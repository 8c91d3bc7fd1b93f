//! Random programs in the simulation: what the application has heard is what clients have said, and
//! what each client gets is what that brings about, each once and in order.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::AddAssign;
use std::time::Duration;

use fastrand::Rng;
use windlass::Watcher;
use windlass::driver::Auto;
use windlass::sim::{Faults, Sim};
use windlass_web::websocket::WebSocketSettings;

use crate::bench::Web;
use crate::client::{BINARY, Got, LAST, PART, PING, TEXT, Ws, close, frame, request, text};
use crate::messages::bytes;
use crate::program::{Log, app};

/// What has happened in all programs.
#[derive(Debug, Default)]
struct Cases {
    messages: usize,
    fragments: usize,
    pings: usize,
    told_by_others: usize,
    told_by_itself: usize,
    pauses: usize,
    /// Messages that were sent in parts, what has waited behind them, and those without an end.
    in_parts: [usize; 3],
    ends: [usize; 8],
}

/// How a client goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Close,
    /// It has the server close, and answers.
    Ask,
    Finish,
    Reset,
    Wrong,
    Abort,
    Panic,
    /// The server shuts down.
    Shutdown,
}

struct Guest {
    ws: Ws,
    /// What it has said, without control frames.
    said: Vec<Got>,
    pings: Vec<Vec<u8>>,
    gone: Option<Way>,
}

struct Walk {
    web: Web<Auto, Log>,
    rng: Rng,
    guests: Vec<Guest>,
}

impl Walk {
    fn new(seed: u64) -> Walk {
        let mut rng = Rng::with_seed(seed);
        let sim = match rng.u8(..3) {
            0 => Sim::new(seed),
            one => Sim::with_faults(seed, Faults::transient(f64::from(one) / 10.0)),
        };
        sim.set_completing(rng.bool());
        let mut watcher = Watcher::simulated(&sim);
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], 8080));
        let app = app(WebSocketSettings::new()).listen(address.to_string()).expect("an address");
        let mut server = app.start_on(&mut watcher).expect("it starts");
        server.simulate_date(&watcher);
        let web = Web::new(watcher, server, address.into());
        Walk { web, rng, guests: Vec::new() }
    }

    /// Says something, in pieces.
    fn say(&mut self, at: usize, all: &[u8]) {
        let mut rest = all;
        while !rest.is_empty() {
            let cut = match self.rng.u8(..3) {
                0 => rest.len(),
                _ => self.rng.usize(1..=rest.len()),
            };
            let (one, behind) = rest.split_at(cut);
            self.guests[at].ws.say(&mut self.web, one.to_vec());
            rest = behind;
            for _ in 0..self.rng.u8(..3) {
                self.web.turn(Duration::ZERO);
            }
        }
    }

    fn arrive(&mut self) -> usize {
        let source = self.web.connect();
        let (said, pings) = (Vec::new(), Vec::new());
        self.guests.push(Guest { ws: Ws::of(source), said, pings, gone: None });
        let at = self.guests.len() - 1;
        self.say(at, request(&format!("/ws?number={at}"), "").as_bytes());
        at
    }

    /// Says a message, in fragments with pings between them.
    fn message(&mut self, at: usize, message: Got, cases: &mut Cases) {
        let (first, payload) = match &message {
            Got::Text(text) => (TEXT, text.clone().into_bytes()),
            Got::Binary(bytes) => (BINARY, bytes.clone()),
            other => panic!("{other:?}"),
        };
        let mut all = Vec::new();
        let mut left = &payload[..];
        let mut opcode = first & 0x7f;
        for _ in 0..self.rng.u8(..3) {
            let (one, rest) = left.split_at(self.rng.usize(..=left.len()));
            all.extend(frame(opcode, one));
            (opcode, left) = (PART, rest);
            cases.fragments += 1;
            if self.rng.bool() {
                all.extend(self.ping(at, cases));
            }
        }
        all.extend(frame(opcode | LAST, left));
        self.guests[at].said.push(message);
        cases.messages += 1;
        self.say(at, &all);
    }

    fn ping(&mut self, at: usize, cases: &mut Cases) -> Vec<u8> {
        let data = bytes(self.rng.usize(..=125));
        let ping = frame(PING, &data);
        self.guests[at].pings.push(data);
        cases.pings += 1;
        ping
    }

    fn order(&mut self, at: usize, order: String, cases: &mut Cases) {
        self.message(at, Got::Text(order), cases);
    }

    /// One step of a client that is there.
    fn step(&mut self, at: usize, cases: &mut Cases) {
        let topic = char::from(self.rng.u8(b'a'..b'd'));
        let number = self.guests[at].said.len();
        match self.rng.u8(..26) {
            0..=4 => {
                let letters = "ä".repeat(self.rng.usize(..60));
                self.message(at, Got::Text(format!("{at}.{number} {letters}")), cases);
            }
            5..=6 => {
                let most = if self.rng.u8(..4) == 0 { 8000 } else { 300 };
                let len = self.rng.usize(..most);
                self.message(at, Got::Binary(bytes(len)), cases);
            }
            7..=8 => {
                let ping = self.ping(at, cases);
                self.say(at, &ping);
            }
            9..=11 => self.order(at, format!("!subscribe {topic}"), cases),
            12 => self.order(at, format!("!unsubscribe {topic}"), cases),
            13..=17 => {
                let text = format!("{topic} by {at}.{number}");
                let order = match self.rng.u8(..3) {
                    0 => format!("!publish {text};!say {at}.{number};!publish {text}b"),
                    1 => format!("!subscribe {topic};!publish {text};!unsubscribe {topic}"),
                    _ => format!("!publish {text}"),
                };
                self.order(at, order, cases);
            }
            18 => {
                self.order(at, "!pause".to_owned(), cases);
                cases.pauses += 1;
            }
            19..=21 => self.order(at, format!("!part {at}.{number}, "), cases),
            22..=23 => self.order(at, format!("!last {at}.{number}"), cases),
            _ => self.wake(at),
        }
    }

    fn wake(&mut self, at: usize) {
        if let Some(&id) = self.web.server.state().ids.get(&at) {
            self.web.server.remote().wake(id);
        }
    }

    fn go(&mut self, at: usize, way: Way, cases: &mut Cases) {
        self.guests[at].gone = Some(way);
        match way {
            Way::Close => self.say(at, &close(1000, "done")),
            Way::Ask => {
                self.order(at, "!close 3000 asked".to_owned(), cases);
                // What it says before it hears that is dropped.
                self.say(at, &[text("late"), close(3000, "")].concat());
            }
            Way::Finish => self.web.finish(self.guests[at].ws.source),
            Way::Reset => {}
            Way::Wrong => self.say(at, &frame(0x83, b"wrong")),
            Way::Abort => self.order(at, "!abort".to_owned(), cases),
            Way::Panic => self.order(at, "!panic".to_owned(), cases),
            Way::Shutdown => unreachable!("it is the server's"),
        }
        if way == Way::Reset {
            self.web.close(self.guests[at].ws.source);
        }
    }

    fn look(&mut self) {
        for guest in &mut self.guests {
            guest.ws.look(&self.web);
        }
    }
}

/// What a client gets in the end: each with the number of the client that has brought it about.
#[derive(Default)]
struct Told {
    whole: Vec<(usize, Got)>,
    /// A message in parts that has no end yet, and what waits for that.
    part: Option<String>,
    waiting: Vec<(usize, Got)>,
    /// Messages in parts, and how many have waited for them.
    in_parts: [usize; 2],
}

impl Told {
    fn tell(&mut self, by: usize, what: Got) {
        match self.part {
            Some(_) => self.waiting.push((by, what)),
            None => self.whole.push((by, what)),
        }
    }

    fn part(&mut self, by: usize, part: &str, is_last: bool) {
        let all = self.part.take().unwrap_or_default() + part;
        if !is_last {
            self.part = Some(all);
            return;
        }
        self.whole.push((by, Got::Text(all)));
        self.in_parts[0] += 1;
        self.in_parts[1] += self.waiting.len();
        self.whole.append(&mut self.waiting);
    }
}

/// What clients get in the end, by what the application has heard.
fn expected(log: &Log) -> BTreeMap<usize, Told> {
    let mut all: BTreeMap<usize, Told> = BTreeMap::new();
    let mut topics: BTreeMap<String, BTreeSet<usize>> = BTreeMap::new();
    let mut closed = BTreeSet::new();
    for (at, message) in &log.heard {
        let orders = match message {
            Got::Text(text) if text.starts_with('!') => text,
            other => {
                all.entry(*at).or_default().tell(*at, other.clone());
                continue;
            }
        };
        let mut behind = Vec::new();
        for order in orders.split(';') {
            let (word, rest) = order.split_once(' ').unwrap_or((order, ""));
            match word {
                "!say" => all.entry(*at).or_default().tell(*at, Got::Text(rest.to_owned())),
                "!part" => all.entry(*at).or_default().part(*at, rest, false),
                "!last" => all.entry(*at).or_default().part(*at, rest, true),
                "!close" => {
                    // It leaves before what waits.
                    let close = Got::Close(Some(3000), "asked".to_owned());
                    all.entry(*at).or_default().whole.push((*at, close));
                    closed.insert(*at);
                }
                "!abort" | "!panic" => _ = closed.insert(*at),
                _ => behind.push((word, rest)),
            }
        }
        for (word, rest) in behind {
            match word {
                "!subscribe" => _ = topics.entry(rest.to_owned()).or_default().insert(*at),
                "!unsubscribe" => _ = topics.entry(rest.to_owned()).or_default().remove(at),
                "!publish" => {
                    let (topic, text) = rest.split_once(' ').expect("a text");
                    for to in topics.get(topic).into_iter().flatten() {
                        if !closed.contains(to) {
                            all.entry(*to).or_default().tell(*at, Got::Text(text.to_owned()));
                        }
                    }
                }
                _ => {}
            }
        }
    }
    all
}

fn walk(seed: u64, cases: &mut Cases) {
    let mut walk = Walk::new(seed);
    let ways = [Way::Close, Way::Ask, Way::Finish, Way::Reset, Way::Wrong, Way::Abort, Way::Panic];
    for _ in 0..walk.rng.usize(20..120) {
        let there: Vec<usize> =
            (0..walk.guests.len()).filter(|at| walk.guests[*at].gone.is_none()).collect();
        match walk.rng.u8(..30) {
            _ if there.is_empty() => _ = walk.arrive(),
            0..=1 if there.len() < 5 => _ = walk.arrive(),
            2 => {
                let (at, way) = (*walk.rng.choice(&there).expect("one"), walk.rng.choice(ways));
                walk.go(at, way.expect("one"), cases);
            }
            _ => {
                let at = *walk.rng.choice(&there).expect("one");
                walk.step(at, cases);
            }
        }
        walk.look();
    }
    // All that are paused go on, as often as they have paused, and those that are left go.
    let by_shutdown = walk.rng.bool();
    for at in 0..walk.guests.len() {
        if walk.guests[at].gone.is_none() && !by_shutdown {
            walk.go(at, Way::Close, cases);
        }
    }
    let start = walk.web.now();
    let mut is_stopped = false;
    loop {
        for at in 0..walk.guests.len() {
            walk.wake(at);
        }
        walk.web.run_for(Duration::from_millis(20));
        walk.look();
        let spent = walk.web.now() - start;
        assert!(spent < Duration::from_secs(50), "it has an end");
        if by_shutdown && !is_stopped && spent > Duration::from_secs(2) {
            is_stopped = true;
            walk.web.server.remote().shutdown();
        }
        for at in 0..walk.guests.len() {
            let Guest { ws, gone, .. } = &mut walk.guests[at];
            let is_told = ws.inbox.got.contains(&Got::Close(Some(1001), String::new()));
            if gone.is_none() && is_told {
                *gone = Some(Way::Shutdown);
                walk.say(at, &close(1001, ""));
            }
            let source = walk.guests[at].ws.source;
            if walk.web.client(source).is_over() {
                walk.web.close(source);
            }
        }
        let log = walk.web.server.state();
        let all_over = log.ends.len() == log.opened.len();
        if all_over && walk.guests.iter().all(|guest| guest.gone.is_some()) && spent.as_secs() > 5 {
            break;
        }
    }
    check(&mut walk, cases);
}

fn check(walk: &mut Walk, cases: &mut Cases) {
    let log = walk.web.server.state();
    let (mut expected, ends) = (expected(log), std::mem::take(&mut log.ends));
    for (at, guest) in walk.guests.iter().enumerate() {
        let (way, heard) = (guest.gone.expect("all are gone"), log.of(at));
        let said = &guest.said[..];
        assert!(said.starts_with(&heard), "{at}: it has said {said:?}, and {heard:?} was heard");
        let Told { whole: all, part, in_parts, .. } = expected.remove(&at).unwrap_or_default();
        cases.in_parts[0] += in_parts[0];
        cases.in_parts[1] += in_parts[1];
        cases.in_parts[2] += usize::from(part.is_some());
        let (pongs, got): (Vec<&Got>, Vec<&Got>) =
            guest.ws.inbox.got.iter().partition(|got| matches!(got, Got::Pong(_)));
        let closes = match way {
            Way::Close => Some(Got::Close(Some(1000), String::new())),
            Way::Wrong => Some(Got::Close(Some(1002), "the opcode is reserved".to_owned())),
            Way::Shutdown => Some(Got::Close(Some(1001), String::new())),
            _ => None,
        };
        // What is told comes in order, and before the close frame.
        let got = match (&closes, got.last()) {
            (Some(close), Some(last)) if *last == close => &got[..got.len() - 1],
            (Some(close), last) => panic!("{at}: {last:?} in the place of {close:?}"),
            _ => &got[..],
        };
        assert!(got.len() <= all.len(), "{at}: {got:?} in the place of {all:?}");
        let (told, missing) = all.split_at(got.len());
        let is_same = told.iter().map(|(_, what)| what).eq(got.iter().copied());
        assert!(is_same, "{at}: {got:?} in the place of {told:?}");
        let sent: Vec<Got> = guest.pings.iter().map(|data| Got::Pong(data.clone())).collect();
        let is_prefix = pongs.iter().copied().eq(sent.iter().take(pongs.len()));
        assert!(is_prefix && pongs.len() <= sent.len(), "{at}: {pongs:?} in the place of {sent:?}");
        for (by, _) in told {
            cases.told_by_others += usize::from(*by != at);
            cases.told_by_itself += usize::from(*by == at);
        }
        // Where the end is no reset, all that it has brought about has come.
        let is_whole = !matches!(way, Way::Reset | Way::Abort | Way::Panic);
        if is_whole {
            let own = missing.iter().filter(|(by, _)| *by == at).count();
            assert_eq!(own, 0, "{at}: {missing:?} has not come");
            assert_eq!(heard.len(), said.len(), "{at}: all was heard");
            assert_eq!(pongs.len(), sent.len(), "{at}: all pings are answered");
            let is_within = guest.ws.inbox.is_within();
            assert!(!is_within || part.is_some(), "{at}: an end within a message");
        }
        cases.ends[way as usize].add_assign(1);
        let own: Vec<_> = ends.iter().filter(|(of, _)| *of == at).collect();
        assert!(own.len() == 1 || way == Way::Reset && own.is_empty(), "{at}: {own:?}");
        let is_clean = matches!(way, Way::Close | Way::Ask | Way::Shutdown);
        assert!(own.iter().all(|(_, end)| end.is_clean == is_clean), "{at}: {way:?} {own:?}");
    }
    let totals = walk.web.server.remote().totals();
    assert_eq!((totals.subscriptions, totals.slow_subscribers, totals.lost_events), (0, 0, 0));
    assert_eq!(walk.web.server.budget().used(), 0);
}

#[test]
fn random_programs() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let (first, count) = (number("WINDLASS_SEED").unwrap_or(0), number("WINDLASS_PROGRAMS"));
    let count = count.unwrap_or(200);
    let mut cases = Cases::default();
    for seed in first..first + count {
        let name = format!("WINDLASS_SEED={seed} WINDLASS_PROGRAMS=1");
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            walk(seed, &mut cases);
        }));
        if let Err(panic) = result {
            println!("{name} cargo test -p windlass-web --test websocket random_programs");
            std::panic::resume_unwind(panic);
        }
    }
    println!("{cases:?}");
    if count >= 100 {
        let Cases { messages, fragments, pings, told_by_others, told_by_itself, .. } = cases;
        let Cases { pauses, in_parts, ends, .. } = cases;
        let all = [messages, fragments, pings, told_by_others, told_by_itself, pauses];
        assert!(
            all.iter().chain(&in_parts).chain(&ends).all(|count| *count > 0),
            "what is not tried is not shown"
        );
    }
}
