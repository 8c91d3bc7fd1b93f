//! Random clients at once.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use fastrand::Rng;
use windlass_web::test::{self, Connection, Simulation};
use windlass_web::windlass::sim::Faults;

use crate::model::{self, Ask, Served, app, check};

/// What a program meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Weather {
    /// Calls are cut short, late or interrupted.
    Fair,
    /// Connections break, too, and connects and accepts fail.
    Harsh,
    /// As fair, and the server shuts down in the middle.
    Shutdown,
}

/// How a client ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ends {
    /// It ends its side when it has all answers.
    AtLast,
    /// It ends its side behind its last request.
    Early,
    /// It ends its side inside of a request.
    Inside,
    /// It resets the connection at any byte.
    Abort,
}

/// A client.
struct Peer {
    connection: Connection,
    asks: Vec<Ask>,
    bytes: Vec<u8>,
    sent: usize,
    heard: Vec<u8>,
    ends: Ends,
    /// Where it ends its side, or resets.
    stop: usize,
    /// It sends no request before the last one is answered.
    waits: bool,
    /// The most bytes that it sends at once.
    piece: usize,
    /// It does not read for some time.
    is_slow: bool,
    has_ended: bool,
    is_done: bool,
    is_clean: bool,
    error: String,
    /// How much had come, and how much was sent, when it last looked at what it has heard.
    checked: (usize, usize),
    found: (usize, bool),
}

/// How often things have happened.
type Tally = BTreeMap<String, u64>;

fn count(tally: &mut Tally, name: impl Into<String>, times: u64) {
    *tally.entry(name.into()).or_default() += times;
}

impl Peer {
    fn new(connection: Connection, random: &mut Rng, numbers: &mut u64) -> Peer {
        let asks: Vec<Ask> = (0..random.usize(1..12))
            .map(|_| {
                *numbers += 1;
                model::ask(random, *numbers)
            })
            .collect();
        let bytes: Vec<u8> = asks.iter().flat_map(|ask| &ask.bytes).copied().collect();
        let ends = match random.u8(..10) {
            0..6 => Ends::AtLast,
            6 | 7 => Ends::Early,
            8 => Ends::Inside,
            _ => Ends::Abort,
        };
        let stop = match ends {
            Ends::AtLast | Ends::Early => bytes.len(),
            Ends::Inside | Ends::Abort => random.usize(..bytes.len()),
        };
        Peer {
            connection,
            asks,
            bytes,
            sent: 0,
            heard: Vec::new(),
            ends,
            stop,
            waits: random.u8(..3) == 0,
            piece: [1, 3, 200, 20_000, usize::MAX][random.usize(..5)],
            is_slow: random.u8(..4) == 0,
            has_ended: false,
            is_done: false,
            is_clean: false,
            error: String::new(),
            checked: (0, 0),
            found: (0, false),
        }
    }

    /// Where the requests end that have been sent whole.
    fn whole(&self) -> usize {
        let mut end = 0;
        let is_sent = |ask: &&Ask| {
            end += ask.bytes.len();
            end <= self.sent
        };
        self.asks.iter().take_while(is_sent).count()
    }

    /// How many answers have come so far, and whether one of them is the last.
    fn answered(&mut self) -> (usize, bool) {
        let now = (self.heard.len(), self.whole());
        if self.checked != now {
            // The answer to a request can come before its end.
            let most = (now.1 + 1).min(self.asks.len());
            let heard = check(&self.heard, false, 0, &self.asks[..most]);
            (self.checked, self.found) = (now, (heard.answered, heard.is_last));
        }
        self.found
    }

    /// Does the next thing.
    fn act(&mut self, random: &mut Rng) {
        let news = self.connection.take();
        self.heard.extend_from_slice(&news);
        if self.connection.is_over() {
            self.heard.extend(self.connection.take());
            match self.connection.read() {
                Ok(rest) => self.is_clean = rest.is_empty(),
                Err(error) => self.error = error.to_string(),
            }
            self.is_done = true;
            return;
        }
        if self.is_slow {
            self.is_slow = random.u8(..40) > 0;
        }
        self.connection.set_reading(!self.is_slow);
        let mut most = self.stop - self.sent;
        if self.waits && !self.has_ended {
            // The next request leaves behind the last answer.
            let next = self.answered().0 + 1;
            let ready: usize = self.asks.iter().take(next).map(|ask| ask.bytes.len()).sum();
            most = most.min(ready.saturating_sub(self.sent));
        }
        if most > 0 {
            // Only the first bytes come one by one: there are seeds enough for the others.
            let piece = if self.sent > 500 { self.piece.max(2000) } else { self.piece };
            let len = random.usize(1..=most.min(piece));
            self.connection.write(&self.bytes[self.sent..self.sent + len]);
            self.sent += len;
        } else if self.sent == self.stop && !self.has_ended {
            match self.ends {
                Ends::Abort => {
                    self.connection.abort();
                    (self.has_ended, self.is_done) = (true, true);
                }
                Ends::Early | Ends::Inside => {
                    self.connection.shutdown();
                    self.has_ended = true;
                }
                Ends::AtLast => {
                    let (answered, is_last) = self.answered();
                    if answered == self.asks.len() && !is_last {
                        self.connection.shutdown();
                        self.has_ended = true;
                    }
                }
            }
        }
    }
}

/// One program.
fn program(sim: &Simulation, weather: Weather, is_tls: bool, tally: &mut Tally) {
    let mut random = Rng::with_seed(sim.random_below(u64::MAX));
    let transient = Faults::transient(random.f64() * 0.3);
    let breaks = if weather == Weather::Harsh { random.f64() * 0.02 } else { 0.0 };
    sim.network().set_faults(Faults {
        reset: breaks,
        aborted: breaks,
        connect_refused: breaks,
        emfile: breaks,
        ..transient
    });
    let served = Served::default();
    let host = {
        let served = served.clone();
        #[cfg(feature = "ring")]
        match is_tls {
            true => crate::model::secure(sim, move || app(&served)),
            false => sim.serve("a.test:80", move || app(&served)),
        }
        #[cfg(not(feature = "ring"))]
        assert!(!is_tls, "it needs the feature `ring`");
        #[cfg(not(feature = "ring"))]
        sim.serve("a.test:80", move || app(&served))
    };
    let mut numbers = 0;
    let mut peers: Vec<Peer> = (0..random.usize(1..6))
        .map(|_| {
            #[cfg(feature = "ring")]
            let connection =
                if is_tls { sim.connect_tls("a.test:80") } else { sim.connect("a.test:80") };
            #[cfg(not(feature = "ring"))]
            let connection = sim.connect("a.test:80");
            Peer::new(connection, &mut random, &mut numbers)
        })
        .collect();
    let mut acts = if weather == Weather::Shutdown { random.usize(..400) } else { usize::MAX };
    let end = sim.elapsed() + Duration::from_secs(1000);
    while peers.iter().any(|peer| !peer.is_done) {
        let at = random.usize(..peers.len());
        if !peers[at].is_done {
            peers[at].act(&mut random);
        }
        match random.u8(..8) {
            0 => sim.sleep(Duration::from_micros(random.u64(..2000))),
            1..5 => sim.sleep(Duration::from_micros(1)),
            _ => {}
        }
        if acts == 0 {
            sim.stop(&host);
            acts = usize::MAX;
        }
        acts -= usize::from(acts != usize::MAX);
        assert!(sim.elapsed() < end, "somebody waits for ever");
    }
    verify(&mut peers, weather, &served, tally);
    for (name, times) in sim.network().injected().named() {
        count(tally, format!("fault {name}"), times);
    }
    if weather == Weather::Shutdown {
        sim.stop(&host);
        sim.sleep(Duration::from_secs(60));
        assert!(!sim.is_running(&host), "the shutdown ends");
    }
}

fn verify(peers: &mut [Peer], weather: Weather, served: &Served, tally: &mut Tally) {
    let seen: BTreeSet<u64> = served.lock().expect("one thread").iter().copied().collect();
    for peer in peers {
        count(tally, format!("ends {:?}", peer.ends), 1);
        if peer.ends == Ends::Abort && peer.has_ended {
            continue;
        }
        let is_clean = peer.is_clean;
        count(tally, if is_clean { "clean ends" } else { "broken ends" }, 1);
        // A connection that the server has not accepted, or that is inside of its handshake, is
        // reset by a shutdown.
        let is_early = weather == Weather::Shutdown && peer.heard.is_empty();
        let may_break = weather == Weather::Harsh || is_early;
        let what = (peer.ends, &peer.error, peer.heard.len(), peer.sent, peer.has_ended);
        assert!(is_clean || may_break, "it is broken: {what:?}");
        let whole = peer.whole();
        // A client that ends its side is answered, and the last answer says that it is the last.
        let drains = match (weather, peer.has_ended) {
            (Weather::Shutdown, _) => 0,
            (_, true) => whole.saturating_sub(1),
            (_, false) => usize::MAX,
        };
        let mut asks = peer.asks.clone();
        if peer.ends == Ends::Inside && peer.has_ended {
            asks.truncate(whole + 1);
            let before: usize = asks[..whole].iter().map(|ask| ask.bytes.len()).sum();
            let last = asks.pop().map(|ask| ask.cut(peer.sent - before));
            asks.extend(last);
            count(tally, "cut requests", 1);
        }
        let heard = check(&peer.heard, is_clean, drains, &asks);
        let answered = &peer.asks[..heard.answered];
        for ask in answered {
            count(tally, format!("answers {}", ask.name), 1);
        }
        count(tally, "interim", heard.interim as u64);
        let is_all = heard.answered >= whole || heard.is_last;
        match weather {
            Weather::Fair => {
                let next = peer.asks.get(heard.answered).map(Ask::head);
                let behind: Vec<_> = answered.iter().map(|ask| ask.name).collect();
                let what = (peer.ends, heard, behind);
                assert!(is_all, "no answer to {next:?}: {what:?}");
            }
            Weather::Harsh => count(tally, "cut off", u64::from(!is_all)),
            Weather::Shutdown => {
                count(tally, "not served", u64::from(!is_all));
                // Whatever a handler has begun has its whole answer.
                for ask in &peer.asks[heard.answered..] {
                    assert!(!seen.contains(&ask.number), "{} was served, not answered", ask.name);
                }
            }
        }
    }
}

/// Runs programs of one kind.
fn run(name: &str, weather: Weather, is_tls: bool, needed: &[&str]) {
    let tally = RefCell::new(Tally::new());
    let (start, programs) = (Instant::now(), RefCell::new(0_u32));
    test::seeds(0..200, |sim| {
        *programs.borrow_mut() += 1;
        program(sim, weather, is_tls, &mut tally.borrow_mut());
        Ok(())
    });
    let (programs, seconds) = (programs.into_inner(), start.elapsed().as_secs_f64());
    println!("{name}: {programs} seeds, {:.0} a second", f64::from(programs) / seconds);
    let tally = tally.into_inner();
    println!("{tally:#?}");
    if programs >= 100 {
        for name in needed {
            assert!(tally.get(*name).is_some_and(|times| *times > 0), "never: {name}");
        }
    }
}

/// What most programs meet.
const USUAL: [&str; 24] = [
    "answers hello",
    "answers large",
    "answers stream",
    "answers job",
    "answers echo",
    "answers small",
    "answers too large",
    "answers early",
    "answers missing",
    "answers method",
    "answers unknown",
    "answers options",
    "answers head",
    "answers head of a stream",
    "answers panic",
    "answers wrong",
    "ends Early",
    "ends Inside",
    "ends Abort",
    "cut requests",
    "fault partial_read",
    "fault partial_write",
    "fault eagain",
    "fault eintr",
];

#[test]
fn answers_are_right() {
    run("fair", Weather::Fair, false, &[&USUAL[..], &["interim"]].concat());
}

#[test]
fn answers_are_right_when_connections_break() {
    let broken =
        ["broken ends", "cut off", "fault reset", "fault aborted", "fault connect_refused"];
    run("harsh", Weather::Harsh, false, &[&USUAL[..], &broken].concat());
}

#[test]
fn a_shutdown_leaves_no_half_answer() {
    run("shutdown", Weather::Shutdown, false, &[&USUAL[..], &["not served"]].concat());
}

#[cfg(feature = "ring")]
mod secure {
    use super::{USUAL, Weather, run};

    #[test]
    fn answers_are_right() {
        run("fair, with TLS", Weather::Fair, true, &USUAL);
    }

    #[test]
    fn answers_are_right_when_connections_break() {
        let broken = ["broken ends", "cut off", "fault reset", "fault aborted"];
        run("harsh, with TLS", Weather::Harsh, true, &[&USUAL[..], &broken].concat());
    }

    #[test]
    fn a_shutdown_leaves_no_half_answer() {
        let needed = [&USUAL[..], &["not served"]].concat();
        run("shutdown, with TLS", Weather::Shutdown, true, &needed);
    }
}
