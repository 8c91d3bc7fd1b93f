//! The settings of an engine.

use windlass::net::Keepalive;

use crate::log::Log;
use crate::words::limits::Limits;
use crate::words::proxy::Proxy;
#[cfg(doc)]
use crate::{Engine, Event, report::Counters};

/// The settings of an engine: its limits and its behaviour.
///
/// ```
/// use std::time::Duration;
/// use windlass_serve::{Config, Engine, Limits};
///
/// let limits = Limits::new().idle(Duration::from_secs(30)).connections(10_000);
/// let config = Config::new().name("echo").limits(limits).close_on_eof(false);
/// let engine = Engine::<()>::new(config);
/// assert!(engine.is_empty());
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Config {
    /// The name of the server, for the [records](crate::log::Record::server) of its log and for its
    /// threads: `loop 0 NAME`. Linux keeps the first 15 bytes of a thread's name. Default empty.
    pub name: &'static str,
    /// The limits of its connections.
    pub limits: Limits,
    /// Whether a connection closes when its peer has shut down its output. The connection sends its
    /// own output first. If this is off, [`Event::Eof`] follows, and the program can still write.
    /// Default on.
    pub close_on_eof: bool,
    /// Whether a connection that has been idle for too long, or has used up the time of
    /// [`Engine::limit`], goes on with [`Event::LimitReached`]. Default off: it ends. A
    /// [`Server`](crate::Server) turns this on, and calls
    /// [`Handler::limit_reached`](crate::Handler::limit_reached).
    pub limit_events: bool,
    /// The bytes that a connection gets that is refused because of [`Limits::connections`], or
    /// because no thread of [`IoMode::Blocking`](crate::modes::IoMode::Blocking) is free. One with
    /// TLS gets none. Default none.
    pub farewell: &'static [u8],
    /// Whether each peer of a datagram socket is a connection: a *session*. Its first datagram is
    /// [`Event::Opened`] and [`Event::Data`], and each further one is [`Event::Data`]. Each write
    /// to it is one datagram. Default off: each datagram is an [`Event::Datagram`]. See
    /// [`Engine::bind_datagram`].
    pub udp_sessions: bool,
    /// When TCP probes a silent peer (`SO_KEEPALIVE`). Default off. Unix sockets have no probes.
    /// [`Limits::idle`], 2 minutes by default, can end the connection before the probes do: raise
    /// it for probes that take longer.
    ///
    /// For this option and the two below: if a listener refuses it, listening fails. If a
    /// connection refuses it, [`Counters::option_errors`] counts that, and the connection goes on.
    pub keepalive: Option<Keepalive>,
    /// How many bytes the system holds for a connection's reads (`SO_RCVBUF`). `None`, the default,
    /// leaves it to the system. Linux doubles the value and bounds it without an error: see
    /// [`SocketOption::RecvBuffer`](windlass::net::SocketOption::RecvBuffer).
    pub recv_buffer: Option<u32>,
    /// How many bytes of a connection's output the system holds (`SO_SNDBUF`). `None`, the default,
    /// leaves it to the system. Linux doubles the value and bounds it without an error: see
    /// [`SocketOption::SendBuffer`](windlass::net::SocketOption::SendBuffer).
    pub send_buffer: Option<u32>,
    /// How listeners of streams take connections that a proxy passes on, which begin with a header
    /// of the PROXY protocol. A suffix of [`Server::listen`](crate::Server::listen) can set the
    /// version for one address, or turn the headers off. Default none: a connection begins with
    /// the data of its peer. A setting that is made at run time becomes `'static` by [`Box::leak`].
    /// Listening fails with `InvalidInput` if the setting lists no networks. [`Proxy`] says what
    /// happens to a connection.
    pub proxy: Option<&'static Proxy>,
    /// The log, which is told of listeners, connections, limits, panics and shutdowns. Default
    /// none. [`crate::log`] has an example. A log that is made at run time becomes `'static` by
    /// [`Box::leak`].
    pub log: Option<&'static dyn Log>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            name: "",
            limits: Limits::new(),
            close_on_eof: true,
            limit_events: false,
            farewell: b"",
            udp_sessions: false,
            keepalive: None,
            recv_buffer: None,
            send_buffer: None,
            proxy: None,
            log: None,
        }
    }
}

impl Config {
    /// The defaults.
    pub fn new() -> Config {
        Config::default()
    }

    /// Sets [`name`](Config::name).
    pub fn name(mut self, name: &'static str) -> Config {
        self.name = name;
        self
    }

    /// Sets [`limits`](Config::limits).
    pub fn limits(mut self, limits: Limits) -> Config {
        self.limits = limits;
        self
    }

    /// Sets [`close_on_eof`](Config::close_on_eof).
    pub fn close_on_eof(mut self, on: bool) -> Config {
        self.close_on_eof = on;
        self
    }

    /// Sets [`limit_events`](Config::limit_events).
    pub fn limit_events(mut self, on: bool) -> Config {
        self.limit_events = on;
        self
    }

    /// Sets [`farewell`](Config::farewell).
    pub fn farewell(mut self, bytes: &'static [u8]) -> Config {
        self.farewell = bytes;
        self
    }

    /// Sets [`udp_sessions`](Config::udp_sessions).
    pub fn udp_sessions(mut self, on: bool) -> Config {
        self.udp_sessions = on;
        self
    }

    /// Sets [`keepalive`](Config::keepalive). A time or a count out of the system's range makes
    /// listening fail with `EINVAL`: see [`Keepalive`] for the ranges.
    pub fn keepalive(mut self, probes: Keepalive) -> Config {
        self.keepalive = Some(probes);
        self
    }

    /// Sets [`recv_buffer`](Config::recv_buffer), in bytes.
    pub fn recv_buffer(mut self, bytes: u32) -> Config {
        self.recv_buffer = Some(bytes);
        self
    }

    /// Sets [`send_buffer`](Config::send_buffer), in bytes.
    pub fn send_buffer(mut self, bytes: u32) -> Config {
        self.send_buffer = Some(bytes);
        self
    }

    /// Sets [`proxy`](Config::proxy).
    ///
    /// ```
    /// use std::sync::LazyLock;
    /// use windlass_serve::Config;
    /// use windlass_serve::net::{Networks, Proxy};
    ///
    /// static PROXY: LazyLock<Proxy> = LazyLock::new(|| {
    ///     let networks = Networks::new(["10.0.0.0/8"]).expect("a network");
    ///     Proxy::v2().from(networks)
    /// });
    /// let config = Config::new().proxy(&PROXY);
    /// # assert!(config.proxy.is_some());
    /// ```
    pub fn proxy(mut self, proxy: &'static Proxy) -> Config {
        self.proxy = Some(proxy);
        self
    }

    /// Sets [`log`](Config::log).
    pub fn log(mut self, log: &'static dyn Log) -> Config {
        self.log = Some(log);
        self
    }
}
