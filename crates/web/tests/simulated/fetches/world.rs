//! What a program knows, its calls, and the servers that are asked.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use fastrand::Rng;
use windlass_web::answers::Later;
use windlass_web::client::{Fetch, FetchError, FetchSettings, Fetched};
use windlass_web::windlass::sim::Sim;
use windlass_web::{App, Error, Flow, Limits, Part, Request, Response};

use crate::model::pattern;

pub(super) const LONG: Duration = Duration::from_secs(10_000);

/// What a program meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Weather {
    /// Calls of the system are cut short, late or interrupted.
    Fair,
    /// Connections break, too, connects and accepts fail, hosts crash, links are slow or cut.
    Harsh,
}

/// What a call asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Sized,
    Stream,
    Job,
    Echo,
    Moved,
    Missing,
    Head,
    /// The response has more than the call takes.
    TooLong,
    /// The server never answers.
    Late,
    /// Nobody wants the response any more, in the middle.
    Cancelled,
}

pub(super) const KINDS: [Kind; 10] = [
    Kind::Sized,
    Kind::Stream,
    Kind::Job,
    Kind::Echo,
    Kind::Moved,
    Kind::Missing,
    Kind::Head,
    Kind::TooLong,
    Kind::Late,
    Kind::Cancelled,
];

/// What has come of a call: the status and the body, or an error.
pub(super) type Ended = Result<(u16, Vec<u8>), FetchError>;

/// A call.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) kind: Kind,
    pub(super) host: &'static str,
    pub(super) method: &'static str,
    pub(super) len: usize,
    pub(super) limit: Duration,
    /// Whether its response comes in parts.
    pub(super) streams: bool,
    pub(super) begun: Option<Duration>,
    pub(super) outcomes: Vec<(Duration, Ended)>,
    /// Its loop is gone, or nobody waits for it.
    pub(super) is_lost: bool,
}

/// All that a program knows. Its hosts are in one thread.
#[derive(Default)]
pub(super) struct World {
    pub(super) plans: Vec<Plan>,
    /// Those that have not begun.
    pub(super) next: VecDeque<usize>,
    pub(super) weather: Option<Weather>,
    pub(super) requests: u16,
    pub(super) settings: FetchSettings,
    /// Handlers of the servers that run, without those that never answer, and the most of them.
    pub(super) running: HashMap<String, (usize, usize)>,
    /// Handlers that were called for each call.
    pub(super) handled: HashMap<usize, usize>,
    /// What the client has left, once it has stopped.
    pub(super) stops: bool,
    pub(super) left: Option<(usize, usize)>,
    pub(super) sim: Option<Sim>,
    pub(super) start: Option<Instant>,
    pub(super) is_tls: bool,
}

impl World {
    /// The virtual time since the program has begun.
    pub(super) fn now(&self) -> Duration {
        self.sim.as_ref().expect("a network").now() - self.start.expect("a time")
    }
}

thread_local! {
    static WORLD: RefCell<World> = RefCell::new(World::default());
}

pub(super) fn world<R>(with: impl FnOnce(&mut World) -> R) -> R {
    WORLD.with_borrow_mut(with)
}

/// The text that the response to a call begins with.
pub(super) fn mark(number: usize) -> String {
    format!("<{number}>")
}

/// The body of the response to a call.
pub(super) fn answer(number: usize, len: usize) -> Vec<u8> {
    [mark(number).as_bytes(), &pattern(number as u64, len)].concat()
}

pub(super) type Q<'a> = Request<'a, Vec<Later>>;

pub(super) fn sized(q: &Q<'_>) -> Result<(usize, usize), Error> {
    let (number, len) = (q.parse("n")?, q.parse("len")?);
    let host = q.host().unwrap_or_default().to_owned();
    world(|world| {
        *world.handled.entry(number).or_default() += 1;
        let (now, most) = world.running.entry(host).or_default();
        *now += 1;
        *most = (*now).max(*most);
    });
    Ok((number, len))
}

/// A server that is asked.
pub(super) fn server() -> App<Vec<Later>> {
    let (weather, requests) = world(|world| (world.weather, world.requests));
    // One that closes its connections itself.
    let keep = if weather == Some(Weather::Harsh) { Duration::from_millis(500) } else { LONG };
    let limits = Limits::new().head(LONG).body_rate(0, LONG).answer(LONG);
    App::with(|_| Vec::new())
        .limits(limits.keep_alive(keep).requests(requests))
        .get("/sized/{n}/{len}", |_, q| {
            let (number, len) = sized(q)?;
            Ok::<_, Error>(answer(number, len))
        })
        .get("/stream/{n}/{len}", |_, q| {
            let (number, len) = sized(q)?;
            let (body, mut at) = (answer(number, len), 0);
            let mut random = Rng::with_seed(number as u64);
            Ok::<_, Error>(Response::stream(move |part: &mut Part<'_>| {
                let end = (at + random.usize(..3000)).min(body.len());
                part.write(&body[at..end]);
                at = end;
                if at == body.len() { Flow::End } else { Flow::More }
            }))
        })
        .get("/job/{n}/{len}", |_, q| {
            let (number, len) = sized(q)?;
            Ok::<_, Error>(q.blocking(move || answer(number, len), |_, body| body))
        })
        .post("/echo/{n}/{len}", echo)
        .put("/echo/{n}/{len}", echo)
        .get("/moved/{n}/{len}", |_, q| {
            let (number, len) = sized(q)?;
            // No redirect leads from https to http.
            let to_other = number.is_multiple_of(3) && !world(|world| world.is_tls);
            let to = url(if to_other { "b.test" } else { "a.test" });
            Ok::<_, Error>(Response::redirect(format!("{to}/stream/{number}/{len}")))
        })
        .get("/late/{n}/{len}", |late: &mut Vec<Later>, _| {
            let (later, response) = Response::later();
            late.push(later);
            response
        })
        .finished(|_, end| {
            if end.route().is_empty() || end.route().starts_with("/late") {
                return;
            }
            let host = end.header("Host").unwrap_or_default().to_owned();
            // A handler was not called for each of them, if bodies break off.
            world(|world| {
                let (now, _) = world.running.entry(host).or_default();
                *now = now.saturating_sub(1);
            });
        })
}

pub(super) fn echo(_: &mut Vec<Later>, q: &mut Q<'_>) -> Result<Vec<u8>, Error> {
    let (number, _) = sized(q)?;
    Ok([mark(number).as_bytes(), q.body()?].concat())
}

/// The scheme and the authority of a server.
pub(super) fn url(host: &str) -> String {
    match world(|world| world.is_tls) && host == "a.test" {
        true => "https://a.test:80".to_owned(),
        false => format!("http://{host}"),
    }
}

impl Plan {
    pub(super) fn draw(random: &mut Rng, weather: Weather, is_own: bool) -> Plan {
        let mut kind = match random.u8(..30) {
            0..8 => Kind::Sized,
            8..12 => Kind::Stream,
            12..16 => Kind::Job,
            16..20 => Kind::Echo,
            20..23 => Kind::Moved,
            23 => Kind::Missing,
            24 | 25 => Kind::Head,
            26 => Kind::TooLong,
            27 => Kind::Late,
            _ => Kind::Cancelled,
        };
        if kind == Kind::Cancelled && !is_own {
            kind = Kind::Sized;
        }
        let len = match random.u8(..10) {
            0 => random.usize(..100_000),
            1 => 0,
            _ => random.usize(..3000),
        };
        let seconds = match (weather, kind) {
            (_, Kind::Late) => random.u64(1..5),
            (Weather::Fair, _) => 1000,
            (Weather::Harsh, _) => random.u64(1..10),
        };
        Plan {
            kind,
            host: if random.bool() { "a.test" } else { "b.test" },
            method: match kind {
                Kind::Echo if random.bool() => "PUT",
                Kind::Echo => "POST",
                Kind::Head => "HEAD",
                _ => "GET",
            },
            len,
            limit: Duration::from_secs(seconds),
            streams: random.bool() || kind == Kind::Cancelled,
            begun: None,
            outcomes: Vec::new(),
            is_lost: false,
        }
    }

    pub(super) fn fetch(&self, number: usize) -> Fetch {
        let path = match self.kind {
            Kind::Sized | Kind::Head | Kind::TooLong | Kind::Cancelled => "sized",
            Kind::Stream => "stream",
            Kind::Job => "job",
            Kind::Echo => "echo",
            Kind::Moved => "moved",
            Kind::Missing => "missing",
            Kind::Late => "late",
        };
        let url = format!("{}/{path}/{number}/{}", url(self.host), self.len);
        let fetch = Fetch::new(self.method, url).timeout(self.limit);
        match self.kind {
            Kind::Echo if number.is_multiple_of(4) => {
                let (body, mut at) = (pattern(number as u64, self.len), 0);
                let len = number.is_multiple_of(8).then_some(body.len() as u64);
                fetch.stream(len, move |part: &mut Part<'_>| {
                    let end = (at + 1000).min(body.len());
                    part.write(&body[at..end]);
                    at = end;
                    if at == body.len() { Flow::End } else { Flow::More }
                })
            }
            Kind::Echo => {
                let fetch = fetch.body(pattern(number as u64, self.len));
                if number % 4 == 1 { fetch.expect_continue() } else { fetch }
            }
            Kind::TooLong => fetch.body_limit(2),
            _ => fetch,
        }
    }

    /// What its response has to be.
    pub(super) fn wanted(&self, number: usize) -> (u16, Vec<u8>) {
        match self.kind {
            Kind::Missing => (404, b"Not Found".to_vec()),
            Kind::Head => (200, Vec::new()),
            _ => (200, answer(number, self.len)),
        }
    }
}

/// The next call, as it begins.
pub(super) fn begin() -> Option<(usize, Plan)> {
    world(|world| {
        let number = world.next.pop_front()?;
        let now = world.now();
        world.plans[number].begun = Some(now);
        Some((number, world.plans[number].clone()))
    })
}

pub(super) fn ends(number: usize, result: Ended) {
    world(|world| {
        let now = world.now();
        world.plans[number].outcomes.push((now, result));
    });
}

pub(super) fn whole(result: Result<Fetched, FetchError>) -> Ended {
    result.map(|fetched| (fetched.status().code(), fetched.body().to_vec()))
}
