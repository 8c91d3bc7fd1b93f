//! The limits of requests: how long each phase may take, and how many bytes each part may have.

use std::time::Duration;

use windlass_serve::net::Networks;

/// The limits of a server's requests. Each one is on by default. "Beyond" names the status that the
/// client gets.
///
/// They stand beside the limits of the connections, which [`App::serve_limits`] sets.
///
/// [`App::serve_limits`]: crate::App::serve_limits
///
/// ```
/// use std::time::Duration;
/// use windlass_web::Limits;
///
/// let limits = Limits::new().body(10 << 20).answer(Duration::from_secs(5));
/// assert_eq!(limits.head, Duration::from_secs(10));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// How long the head of a request may take, from its first byte on. Beyond: 408. Default 10 s.
    pub head: Duration,
    /// The least rate of a request's body, in bytes a second. A client may fall behind it by
    /// [`body_time`](Limits::body_time). Beyond: 408. Default 500.
    pub body_rate: u32,
    /// How far a client may fall behind [`body_rate`](Limits::body_rate). Default 20 s.
    pub body_time: Duration,
    /// How long a request may wait for the head of its response, from its end on. Beyond: 504.
    /// Default 30 s.
    pub answer: Duration,
    /// How long a connection may be without a request. Default 60 s.
    pub keep_alive: Duration,
    /// How many requests a connection may have: 1 to 16,383; from 16,384 on there is no limit.
    /// The last response says `Connection: close`. Default 10,000.
    pub requests: u16,
    /// Bytes of the first line of a request. Beyond: 414. Default 8192.
    pub line: u32,
    /// Bytes of a request's head. Beyond: 431. Default 16,384.
    pub head_bytes: u32,
    /// Fields of a request's head: at most 256. Beyond: 431. Default 100.
    pub fields: u16,
    /// Bytes of a request's body. Beyond: 413. A route can have
    /// [another limit](crate::App::body_limit). Default 1 MiB.
    ///
    /// A body that is collected also has to fit into the
    /// [share](windlass_serve::memory::Budget) of its connection in the memory of the server. One
    /// that never would is a 413; one that does not at present is a 503 with `Retry-After`.
    pub body: u64,
    /// How many requests of a loop may wait for their response. Beyond: 503. Default 10,000.
    pub running: usize,
    /// The proxies in front of the server that tell of their clients, in `Forwarded`,
    /// `X-Forwarded-For` and `X-Forwarded-Proto`. Such fields of all others count as any field
    /// does. Default none.
    pub trust: Option<&'static Networks>,
}

impl Limits {
    /// The defaults: each field says its own.
    pub const fn new() -> Limits {
        Limits {
            head: Duration::from_secs(10),
            body_rate: 500,
            body_time: Duration::from_secs(20),
            answer: Duration::from_secs(30),
            keep_alive: Duration::from_secs(60),
            requests: 10_000,
            line: 8192,
            head_bytes: 16_384,
            fields: 100,
            body: 1 << 20,
            running: 10_000,
            trust: None,
        }
    }

    /// Sets [`head`](Limits::head).
    pub fn head(mut self, span: Duration) -> Limits {
        self.head = span;
        self
    }

    /// Sets [`body_rate`](Limits::body_rate), in bytes a second, and how far a client may fall
    /// behind it. A rate of 0 bounds the whole body by the time.
    pub fn body_rate(mut self, least: u32, behind: Duration) -> Limits {
        (self.body_rate, self.body_time) = (least, behind);
        self
    }

    /// Sets [`answer`](Limits::answer).
    pub fn answer(mut self, span: Duration) -> Limits {
        self.answer = span;
        self
    }

    /// Sets [`keep_alive`](Limits::keep_alive).
    pub fn keep_alive(mut self, span: Duration) -> Limits {
        self.keep_alive = span;
        self
    }

    /// Sets [`requests`](Limits::requests): 1 to 16,383, and no limit from 16,384 on.
    pub fn requests(mut self, count: u16) -> Limits {
        self.requests = count.max(1);
        self
    }

    /// Sets [`line`](Limits::line), in bytes.
    pub fn line(mut self, bytes: u32) -> Limits {
        self.line = bytes;
        self
    }

    /// Sets [`head_bytes`](Limits::head_bytes), and [`fields`](Limits::fields): at most 256.
    pub fn head_size(mut self, bytes: u32, fields: u16) -> Limits {
        (self.head_bytes, self.fields) = (bytes, fields);
        self
    }

    /// Sets [`body`](Limits::body), in bytes.
    pub fn body(mut self, bytes: u64) -> Limits {
        self.body = bytes;
        self
    }

    /// Sets [`running`](Limits::running).
    pub fn running(mut self, count: usize) -> Limits {
        self.running = count;
        self
    }

    /// Sets [`trust`](Limits::trust): [`Request::client`](crate::Request::client) and
    /// [`Request::is_secure`](crate::Request::is_secure) tell of the clients of these proxies.
    ///
    /// The lists are read from the right: the peer of the connection is trusted, so its element
    /// counts; if the address there is trusted, too, the next one counts, and so on. A malformed
    /// element, one that hides its client (`for=_hidden`), and all to its left are ignored. Where
    /// `Forwarded` and `X-Forwarded-*` are both there, what they do not agree on is ignored,
    /// because most proxies write only one of them and pass the client's other one on. A proxy that
    /// is trusted has to set or to remove each field: one that it passes on is the client's.
    ///
    /// The peer of the connection is that of the
    /// [PROXY protocol](windlass_serve::Config::proxy), where that is on.
    ///
    /// ```
    /// use std::sync::LazyLock;
    /// use windlass_web::serve::net::Networks;
    /// use windlass_web::{App, Limits};
    ///
    /// static PROXIES: LazyLock<Networks> =
    ///     LazyLock::new(|| "10.0.0.0/8, unix".parse().expect("networks"));
    /// let app = App::new()
    ///     .limits(Limits::new().trust(&PROXIES))
    ///     .get("/ip", |_, q| q.client().map(|ip| ip.to_string()).unwrap_or_default());
    /// # let _ = app;
    /// ```
    pub fn trust(mut self, proxies: &'static Networks) -> Limits {
        self.trust = Some(proxies);
        self
    }

    /// Those of the codec.
    pub(crate) fn of_codec(&self) -> windlass_http1::Limits {
        windlass_http1::Limits {
            line: self.line,
            head: self.head_bytes,
            fields: self.fields,
            // The limit of a route can be above that of all.
            body: u64::MAX,
            ..windlass_http1::Limits::default()
        }
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits::new()
    }
}
