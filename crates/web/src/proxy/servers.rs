//! The servers that requests are passed on to: which one is next, and which ones are out.

use std::cell::Cell;
use std::fmt;
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::client::error::FetchError;
use crate::client::url::{FetchUrl, Origin};

/// The time that a server is out grows up to so many times the first one.
const LONGEST_OUT: u32 = 16;

/// Servers that requests are passed on to: see [`Request::forward`](crate::Request::forward).
///
/// Each request goes to the server with the fewest requests. Servers with equally many take turns.
/// A server that fails several times in a row is left out for a time, which doubles with each
/// further failure. When all are left out, the one that comes back first is tried.
///
/// A failure is a connection that does not open, one that ends without a whole response, or a head
/// that does not come in time. A status, such as a 500, is no failure.
///
/// A clone shares the servers, their counts and their failures. Call the setters before you clone:
/// one that is called on a clone gives it counts and failures of its own.
#[derive(Clone)]
pub struct Upstream(Rc<Group>);

#[derive(Clone)]
struct Group {
    servers: Vec<UpstreamServer>,
    settings: UpstreamSettings,
    /// Where the next look begins.
    next: Cell<usize>,
}

/// How requests are passed on.
#[derive(Clone)]
pub(crate) struct UpstreamSettings {
    connections: u32,
    pub(crate) connect_timeout: Duration,
    pub(crate) head_timeout: Option<Duration>,
    pub(crate) idle_timeout: Duration,
    failures: u32,
    out_for: Duration,
    pub(crate) keeps_host: bool,
    pub(crate) via: String,
    pub(crate) protocols: Vec<String>,
}

/// A server, and how it does.
#[derive(Clone)]
pub(crate) struct UpstreamServer {
    text: String,
    pub(crate) url: FetchUrl,
    active: Cell<u32>,
    /// Failures since the last response.
    failures: Cell<u32>,
    out_until: Cell<Option<Instant>>,
    /// How many times in a row it was left out.
    outs: Cell<u32>,
    requests: Cell<u64>,
    failed: Cell<u64>,
}

/// What an [`Upstream`] has counted of one server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UpstreamCounters {
    /// Its URL.
    pub url: String,
    /// Requests that wait for the end of their response, and tunnels.
    pub active: u32,
    /// Requests that were sent to it.
    pub requests: u64,
    /// Those of them that have failed.
    pub failures: u64,
    /// Whether it is left out, because it has failed too often. True until it responds again.
    pub is_out: bool,
}

impl Upstream {
    /// One server, at a URL such as `http://127.0.0.1:9000`. If the URL has a path, that stands in
    /// front of the paths of requests: `http://10.0.0.7/app` gets `/app/x` for `/x`.
    ///
    /// # Errors
    ///
    /// It is no URL of `http` or `https`, or it has a query.
    pub fn new(url: &str) -> Result<Upstream, FetchError> {
        Upstream::of([url])
    }

    /// These servers.
    ///
    /// # Errors
    ///
    /// As for [`new`](Upstream::new), or there is no URL.
    pub fn of<'a>(urls: impl IntoIterator<Item = &'a str>) -> Result<Upstream, FetchError> {
        let servers = urls.into_iter().map(UpstreamServer::new).collect::<Result<Vec<_>, _>>()?;
        if servers.is_empty() {
            return Err(FetchError::Url { url: String::new(), why: "there is no server" });
        }
        let settings = UpstreamSettings {
            connections: 64,
            connect_timeout: Duration::from_secs(5),
            head_timeout: None,
            idle_timeout: Duration::from_secs(60),
            failures: 3,
            out_for: Duration::from_secs(2),
            keeps_host: true,
            via: "1.1 windlass".to_owned(),
            protocols: vec!["websocket".to_owned()],
        };
        Ok(Upstream(Rc::new(Group { servers, settings, next: Cell::new(0) })))
    }

    /// Adds a server.
    ///
    /// # Errors
    ///
    /// As for [`new`](Upstream::new).
    pub fn also(mut self, url: &str) -> Result<Upstream, FetchError> {
        let server = UpstreamServer::new(url)?;
        Rc::make_mut(&mut self.0).servers.push(server);
        Ok(self)
    }

    fn set(mut self, set: impl FnOnce(&mut UpstreamSettings)) -> Upstream {
        set(&mut Rc::make_mut(&mut self.0).settings);
        self
    }

    /// Sets how many requests of this loop each server may have at a time, each on a connection of
    /// its own, tunnels included. When all servers have so many, the client of a further request
    /// gets a 503 with `Retry-After`. At least 1, default 64.
    ///
    /// [`FetchSettings::connections`](crate::client::FetchSettings::connections) limits the loop,
    /// too. Beyond that limit a request waits for a connection.
    pub fn connections(self, most: u32) -> Upstream {
        self.set(|settings| settings.connections = most.max(1))
    }

    /// Sets how long a connection may take to open. Then the next server is tried. If none is left,
    /// the client gets a 504. Default 5 s.
    pub fn connect_timeout(self, span: Duration) -> Upstream {
        self.set(|settings| settings.connect_timeout = span)
    }

    /// Sets how long the head of a response may take after the end of its request. Then the client
    /// gets a 504. Default [`Limits::answer`](crate::Limits::answer), which is 30 s.
    pub fn head_timeout(self, span: Duration) -> Upstream {
        self.set(|settings| settings.head_timeout = Some(span))
    }

    /// Sets how long a server may send nothing of a body that the client reads, and how long
    /// nothing may move in a tunnel. Then the client gets a reset, and so does the server of a
    /// tunnel. Default 60 s.
    pub fn idle_timeout(self, span: Duration) -> Upstream {
        self.set(|settings| settings.idle_timeout = span)
    }

    /// Sets after how many failures in a row a server is left out, and for how long the first time.
    /// Each further failure doubles the time, up to 16 times the first. At least 1 failure. Default
    /// 3 failures and 2 s.
    pub fn failures(self, count: u32, out_for: Duration) -> Upstream {
        self.set(|settings| (settings.failures, settings.out_for) = (count.max(1), out_for))
    }

    /// Sets whether a server gets the `Host` of the client. If not, it gets the host of its URL,
    /// and the client's only as `X-Forwarded-Host`. Default true.
    pub fn keeps_host(self, on: bool) -> Upstream {
        self.set(|settings| settings.keeps_host = on)
    }

    /// Sets the name of this proxy in `Via`. Default `windlass`.
    pub fn via(self, name: &str) -> Upstream {
        self.set(|settings| settings.via = format!("1.1 {name}"))
    }

    /// Sets which protocols of `Upgrade` go on. Behind a `101` the two connections are a tunnel, in
    /// which the proxy sees no requests. So `h2c` would evade all checks of the program. Default
    /// `websocket`.
    pub fn protocols<'a>(self, names: impl IntoIterator<Item = &'a str>) -> Upstream {
        let names = names.into_iter().map(str::to_owned).collect();
        self.set(|settings| settings.protocols = names)
    }

    /// What this loop has counted of each server, in the order in which they were added: for
    /// metrics.
    pub fn counters(&self) -> Vec<UpstreamCounters> {
        let count = |server: &UpstreamServer| UpstreamCounters {
            url: server.text.clone(),
            active: server.active.get(),
            requests: server.requests.get(),
            failures: server.failed.get(),
            is_out: server.out_until.get().is_some(),
        };
        self.0.servers.iter().map(count).collect()
    }

    pub(crate) fn settings(&self) -> &UpstreamSettings {
        &self.0.settings
    }

    /// The server for a request, which counts there until the passage is dropped. `None`: each one
    /// has all it may have. `tried` has a bit for each server that has failed for this request.
    pub(crate) fn pick(&self, now: Instant, tried: u64) -> Option<Passage> {
        let (count, first) = (self.0.servers.len(), self.0.next.get());
        let mut best: Option<(usize, (Option<Instant>, u32))> = None;
        for number in (first..count).chain(0..first) {
            let server = &self.0.servers[number];
            let is_tried = number < 64 && tried & (1 << number) != 0;
            if is_tried || server.active.get() >= self.0.settings.connections {
                continue;
            }
            // `None` comes first: those that are out come last, by the end of that.
            let rank = (server.out_until.get().filter(|end| *end > now), server.active.get());
            if best.is_none_or(|(_, other)| rank < other) {
                best = Some((number, rank));
            }
        }
        let (number, _) = best?;
        self.0.next.set(if number + 1 == count { 0 } else { number + 1 });
        Some(Passage::new(self.clone(), number))
    }
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.counters()).finish()
    }
}

impl UpstreamServer {
    fn new(text: &str) -> Result<UpstreamServer, FetchError> {
        let mut url = FetchUrl::parse(text)?;
        if url.target.contains('?') {
            return Err(FetchError::Url { url: text.to_owned(), why: "it has a query" });
        }
        while url.target.ends_with('/') {
            url.target.pop(); // what is left stands in front of a path
        }
        Ok(UpstreamServer {
            text: text.to_owned(),
            url,
            active: Cell::new(0),
            failures: Cell::new(0),
            out_until: Cell::new(None),
            outs: Cell::new(0),
            requests: Cell::new(0),
            failed: Cell::new(0),
        })
    }
}

/// A request at a server: it counts there until this is dropped.
pub(crate) struct Passage {
    upstream: Upstream,
    number: usize,
}

impl Passage {
    fn new(upstream: Upstream, number: usize) -> Passage {
        let server = &upstream.0.servers[number];
        server.active.set(server.active.get() + 1);
        server.requests.set(server.requests.get() + 1);
        Passage { upstream, number }
    }

    pub(crate) fn server(&self) -> &UpstreamServer {
        &self.upstream.0.servers[self.number]
    }

    pub(crate) fn origin(&self) -> &Origin {
        &self.server().url.origin
    }

    /// The bit of its server in a set of those that were tried.
    pub(crate) fn bit(&self) -> u64 {
        if self.number < 64 { 1 << self.number } else { 0 }
    }

    /// The server has responded.
    pub(crate) fn succeed(&self) {
        let server = self.server();
        if server.failures.get() > 0 {
            server.failures.set(0);
            server.outs.set(0);
            server.out_until.set(None);
        }
    }

    /// The server has failed.
    pub(crate) fn fail(&self, now: Instant) {
        let (server, settings) = (self.server(), self.upstream.settings());
        server.failed.set(server.failed.get() + 1);
        server.failures.set(server.failures.get().saturating_add(1));
        if server.failures.get() < settings.failures {
            return;
        }
        // Those that were under way when it failed tell nothing new.
        if server.out_until.get().is_some_and(|end| end > now) {
            return;
        }
        let times = 1 << server.outs.get().min(LONGEST_OUT.ilog2());
        server.outs.set(server.outs.get().saturating_add(1));
        server.out_until.set(Some(now + settings.out_for * times));
    }
}

impl Drop for Passage {
    fn drop(&mut self) {
        let active = &self.server().active;
        active.set(active.get() - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn three() -> Upstream {
        let urls = ["http://10.0.0.1", "http://10.0.0.2/", "http://10.0.0.3/app/"];
        Upstream::of(urls).expect("URLs").connections(2).failures(2, SECOND)
    }

    fn next(up: &Upstream, now: Instant) -> Passage {
        up.pick(now, 0).expect("a server")
    }

    #[test]
    fn the_least_used_server_is_next_and_equals_take_turns() {
        let (up, now) = (three(), Instant::now());
        let held: Vec<Passage> = (0..3).map(|_| next(&up, now)).collect();
        assert_eq!(held.iter().map(|one| one.number).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(held[2].server().url.target, "/app");
        let [a, b, c] = <[Passage; 3]>::try_from(held).ok().expect("three");
        drop(b);
        assert_eq!(next(&up, now).number, 1);
        let more: Vec<Passage> = (0..4).map(|_| next(&up, now)).collect();
        assert!(up.pick(now, 0).is_none(), "each has two");
        drop((a, c, more));
        assert!(up.counters().iter().all(|one| one.active == 0));
        assert_eq!(up.counters().iter().map(|one| one.requests).sum::<u64>(), 8);
        assert_eq!(up.pick(now, 0b101).expect("one").number, 1);
        assert!(up.pick(now, 0b111).is_none());
    }

    #[test]
    fn a_server_that_fails_is_out_for_a_time_that_grows() {
        let (up, now) = (three(), Instant::now());
        let fail = |number: usize, at: Instant| {
            up.pick(at, !(1 << number)).expect("it").fail(at);
        };
        fail(1, now);
        assert!(!up.counters()[1].is_out, "once is too few");
        fail(1, now);
        let is_used = |at: Instant| (0..6).any(|_| next(&up, at).number == 1);
        assert!(!is_used(now) && is_used(now + SECOND));
        let mut at = now + SECOND;
        for span in [2, 4, 8, 16, 16] {
            fail(1, at);
            assert!(!is_used(at + SECOND * span - SECOND / 10) && is_used(at + SECOND * span));
            at += SECOND * span;
        }
        up.pick(at, !2).expect("it").succeed();
        fail(1, at);
        assert!(is_used(at), "it counts from the beginning");
    }

    #[test]
    fn when_all_are_out_the_first_to_come_back_is_tried() {
        let (up, now) = (three(), Instant::now());
        for (late, number) in [(3, 0), (1, 2), (2, 1)] {
            for _ in 0..2 {
                up.pick(now, !(1 << number)).expect("it").fail(now + SECOND * late);
            }
        }
        assert_eq!(next(&up, now).number, 2);
        assert!(format!("{up:?}").contains("is_out: true"));
    }

    #[test]
    fn what_is_no_server_is_refused() {
        for url in ["", "127.0.0.1:80", "ftp://a", "http://", "http://a/?b=c"] {
            assert!(Upstream::new(url).is_err(), "{url}");
        }
        assert!(Upstream::of([]).is_err());
        assert!(three().also("https://a").is_ok());
    }
}
