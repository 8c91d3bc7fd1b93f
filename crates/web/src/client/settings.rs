//! The settings of a client.

use std::net::IpAddr;
use std::time::Duration;

#[cfg(feature = "tls")]
use windlass_serve::tls::TlsClient;

use super::error::FetchPhase;

/// How a loop asks other servers: the connections that it keeps, and a clock for each phase.
///
/// | phase | clock | default |
/// |---|---|---|
/// | the look-up of the host | [`look_up`](FetchSettings::look_up) | 5 s |
/// | the wait for a connection | that of the whole request | 30 s |
/// | the connect, and the handshake of TLS | [`connect`](FetchSettings::connect) | 10 s |
/// | until the head of the response | [`head`](FetchSettings::head) | 30 s |
/// | between two parts of its body | [`read_timeout`](FetchSettings::read_timeout) | 30 s |
/// | all of these | [`Fetch::timeout`](super::Fetch::timeout) | 30 s |
///
/// A clock that runs out ends the request with [`FetchError::Timeout`](super::FetchError::Timeout),
/// which names the phase. It is late by at most one turn of the loop. While the program has paused
/// a response ([`Client::pause`](crate::Client::pause)), only the clock of the whole request runs.
///
/// ```
/// use std::time::Duration;
/// use windlass_web::App;
/// use windlass_web::client::FetchSettings;
///
/// let settings = FetchSettings::new().connections(16, 256).connect(Duration::from_secs(2));
/// let app = App::new().client(settings); // for each loop
/// # let _ = app;
/// ```
#[derive(Clone, Debug)]
pub struct FetchSettings {
    pub(crate) connections: usize,
    pub(crate) all_connections: usize,
    pub(crate) waiting: usize,
    pub(crate) idle: Duration,
    pub(crate) dns_cache: Duration,
    pub(crate) look_up: Duration,
    pub(crate) connect: Duration,
    pub(crate) head: Duration,
    pub(crate) read_timeout: Duration,
    pub(crate) expect: Duration,
    pub(crate) hosts: Vec<(String, Vec<IpAddr>)>,
    #[cfg(feature = "tls")]
    trust: Option<TlsClient>,
}

impl Default for FetchSettings {
    fn default() -> FetchSettings {
        FetchSettings::new()
    }
}

impl FetchSettings {
    /// The defaults: each setter says its own.
    pub const fn new() -> FetchSettings {
        FetchSettings {
            connections: 64,
            all_connections: 1024,
            waiting: 1024,
            idle: Duration::from_secs(60),
            dns_cache: Duration::from_secs(30),
            look_up: Duration::from_secs(5),
            connect: Duration::from_secs(10),
            head: Duration::from_secs(30),
            read_timeout: Duration::from_secs(30),
            expect: Duration::from_secs(1),
            hosts: Vec::new(),
            #[cfg(feature = "tls")]
            trust: None,
        }
    }

    /// Sets how many connections a loop has to one server (scheme, host and port), and to all
    /// servers together: each at least 1. Further requests wait, in order. Default 64 and 1024.
    pub fn connections(mut self, of_server: usize, of_all: usize) -> FetchSettings {
        (self.connections, self.all_connections) = (of_server.max(1), of_all.max(1));
        self
    }

    /// Sets how many requests may wait for a connection to one server. Further ones end with
    /// [`FetchError::Full`](super::FetchError::Full). Default 1024.
    pub fn waiting(mut self, count: usize) -> FetchSettings {
        self.waiting = count;
        self
    }

    /// Sets how long a connection without a request is kept. It should be less than the server's
    /// own limit: a request that is sent while the server closes the connection fails, unless it
    /// [may be sent again](super#requests-that-are-sent-again). Default 60 s.
    pub fn idle(mut self, span: Duration) -> FetchSettings {
        self.idle = span;
        self
    }

    /// Sets how long a loop keeps the addresses of a host. A failed look-up is kept for at most a
    /// second. After a failed connect the host is looked up again. Default 30 s.
    pub fn dns_cache(mut self, span: Duration) -> FetchSettings {
        self.dns_cache = span;
        self
    }

    /// Gives a host these addresses, in place of a look-up. An empty list removes them.
    ///
    /// Several addresses are tried as RFC 8305 says: the next one when one has failed, or has not
    /// answered for 250 ms.
    pub fn host<A: Into<IpAddr>>(
        mut self,
        host: &str,
        addresses: impl IntoIterator<Item = A>,
    ) -> FetchSettings {
        let host = host.to_ascii_lowercase();
        self.hosts.retain(|(other, _)| *other != host);
        let addresses: Vec<IpAddr> = addresses.into_iter().map(Into::into).collect();
        if !addresses.is_empty() {
            self.hosts.push((host, addresses));
        }
        self
    }

    /// Sets how long the look-up of a host may take. Default 5 s.
    pub fn look_up(mut self, span: Duration) -> FetchSettings {
        self.look_up = span;
        self
    }

    /// Sets how long a connect may take, with the handshake of TLS. Default 10 s.
    pub fn connect(mut self, span: Duration) -> FetchSettings {
        self.connect = span;
        self
    }

    /// Sets how long the head of a response may take, from the end of the request on. Default 30 s.
    pub fn head(mut self, span: Duration) -> FetchSettings {
        self.head = span;
        self
    }

    /// Sets how long the next bytes of a response's body may take. Default 30 s.
    pub fn read_timeout(mut self, span: Duration) -> FetchSettings {
        self.read_timeout = span;
        self
    }

    /// Sets how long [`Fetch::expect_continue`](super::Fetch::expect_continue) waits. Default 1 s.
    pub fn expect(mut self, span: Duration) -> FetchSettings {
        self.expect = span;
        self
    }

    /// Sets which certificate authorities requests of `https` trust. Offer the protocol `http/1.1`
    /// only (ALPN): `TlsClient::builder().system_roots().alpn(["http/1.1"])`.
    ///
    /// With the feature `webpki-roots`, the default is Mozilla's list. Without it there is none,
    /// and a request of `https` ends with [`FetchError::NoTrust`](super::FetchError::NoTrust).
    #[cfg(feature = "tls")]
    pub fn trust(mut self, tls: TlsClient) -> FetchSettings {
        self.trust = Some(tls);
        self
    }

    /// Whom it trusts.
    #[cfg(feature = "tls")]
    pub(crate) fn trusted(&self) -> Option<TlsClient> {
        self.trust.clone().or_else(default_trust)
    }

    /// The clock of a phase.
    pub(crate) fn of_phase(&self, phase: FetchPhase) -> Option<Duration> {
        match phase {
            FetchPhase::LookUp => Some(self.look_up),
            FetchPhase::Connect => Some(self.connect),
            FetchPhase::Head => Some(self.head),
            FetchPhase::Body => Some(self.read_timeout),
            FetchPhase::Queue | FetchPhase::Whole => None,
        }
    }
}

#[cfg(feature = "webpki-roots")]
fn default_trust() -> Option<TlsClient> {
    static TRUST: std::sync::OnceLock<Option<TlsClient>> = std::sync::OnceLock::new();
    let build = || TlsClient::builder().webpki_roots().alpn(["http/1.1"]).build().ok();
    TRUST.get_or_init(build).clone()
}

#[cfg(all(feature = "tls", not(feature = "webpki-roots")))]
fn default_trust() -> Option<TlsClient> {
    None
}
