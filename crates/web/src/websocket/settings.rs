//! How a server or a client speaks the protocol.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use windlass_websocket::Limits;
#[cfg(feature = "deflate")]
use windlass_websocket::handshake::Deflate;

/// What a server or a client agrees to, and the limits of its connections: for
/// [`App::websocket_with`](crate::App::websocket_with),
/// [`Client::open_websocket`](crate::Client::open_websocket) and the like. A clone is cheap, and
/// shares the settings.
///
/// ```
/// use std::time::Duration;
/// use windlass_web::websocket::WebSocketSettings;
///
/// let settings = WebSocketSettings::new()
///     .protocols(["chat.v2", "chat.v1"])
///     .message_limit(64 << 10)
///     .ping_every(Duration::from_secs(30));
/// # let _ = settings;
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct WebSocketSettings(pub(super) Arc<SocketSettings>);

#[derive(Clone, Debug)]
pub(crate) struct SocketSettings {
    pub(crate) protocols: Vec<Cow<'static, str>>,
    pub(crate) origins: Origins,
    pub(super) limits: Limits,
    /// How long a message may take, and how many bytes of it come in a second at least.
    pub(super) message_time: (Duration, u32),
    pub(super) ping_every: Duration,
    pub(super) close_time: Duration,
    pub(super) is_lossy: bool,
    pub(super) in_parts: bool,
    #[cfg(feature = "deflate")]
    pub(crate) deflate: Option<Deflate>,
    #[cfg(feature = "deflate")]
    pub(super) level: u8,
    #[cfg(feature = "deflate")]
    pub(super) compress_from: usize,
}

/// The pages that may connect.
#[derive(Clone, Debug)]
pub(crate) enum Origins {
    Same,
    These(Vec<Cow<'static, str>>),
    Any,
}

impl Default for WebSocketSettings {
    fn default() -> WebSocketSettings {
        WebSocketSettings::new()
    }
}

impl WebSocketSettings {
    /// The defaults: each method says its own.
    pub fn new() -> WebSocketSettings {
        WebSocketSettings(Arc::new(SocketSettings {
            protocols: Vec::new(),
            origins: Origins::Same,
            limits: Limits::default(),
            message_time: (Duration::from_secs(30), 500),
            ping_every: Duration::from_secs(60),
            close_time: Duration::from_secs(10),
            is_lossy: false,
            in_parts: false,
            #[cfg(feature = "deflate")]
            deflate: None,
            #[cfg(feature = "deflate")]
            level: 1,
            #[cfg(feature = "deflate")]
            compress_from: 64,
        }))
    }

    pub(crate) fn settings(&self) -> &Arc<SocketSettings> {
        &self.0
    }

    /// Messages are told whole.
    pub(crate) fn whole(self) -> WebSocketSettings {
        match self.0.in_parts {
            true => self.set(|settings| settings.in_parts = false),
            false => self,
        }
    }

    fn set(mut self, set: impl FnOnce(&mut SocketSettings)) -> WebSocketSettings {
        set(Arc::make_mut(&mut self.0));
        self
    }

    /// Sets the sub-protocols, the best one first. Default: none.
    ///
    /// A server chooses the first of them that the client offers. A client that offers others only
    /// gets a 400. One that offers none is accepted without a sub-protocol. A client offers all of
    /// them, and fails if the server answers with another. [`Socket::protocol`] has the result.
    ///
    /// [`Socket::protocol`]: super::Socket::protocol
    pub fn protocols<T: Into<Cow<'static, str>>>(
        self,
        names: impl IntoIterator<Item = T>,
    ) -> WebSocketSettings {
        self.set(|settings| settings.protocols = names.into_iter().map(Into::into).collect())
    }

    /// Sets the origins whose pages may connect: `https://example.com`, or
    /// `http://localhost:3000`. An origin has a scheme and a host, a port if it is not the usual
    /// one, and no slash at its end. Case does not matter. Pages of other origins get a 403.
    ///
    /// By default the page must come from the host that `Host` names: otherwise any page that a
    /// user looks at could connect with the user's cookies. A request without `Origin` may always
    /// connect: it is not of a browser. This is for servers.
    pub fn origins<T: Into<Cow<'static, str>>>(
        self,
        origins: impl IntoIterator<Item = T>,
    ) -> WebSocketSettings {
        let these = origins.into_iter().map(Into::into).collect();
        self.set(|settings| settings.origins = Origins::These(these))
    }

    /// Pages of all origins may connect: for services that need no cookies.
    pub fn any_origin(self) -> WebSocketSettings {
        self.set(|settings| settings.origins = Origins::Any)
    }

    /// Sets how many bytes a message that comes may have. A longer one closes the connection with
    /// 1009. Default 1 MiB. It counts inflated bytes, too. The payload of a compressed message may
    /// have an eighth more, because some data gets longer.
    ///
    /// A message that is not whole also has to fit into the [share](windlass_serve::memory::Budget)
    /// of its connection in the memory of the server. One that never fits closes the connection
    /// with 1009, and one that does not fit at present with 1013.
    pub fn message_limit(self, bytes: u64) -> WebSocketSettings {
        self.set(|settings| settings.limits.message = bytes)
    }

    /// Compresses messages, if the other side agrees (permessage-deflate, RFC 7692). Default: no
    /// compression.
    ///
    /// [`Deflate::default`] keeps nothing between messages, so that a connection costs no more.
    /// [`Deflate::TAKEOVER`] compresses better, and keeps up to 4 KiB of each direction for as long
    /// as the connection lives. [`Limits::memory`](windlass_serve::Limits::memory) does not count
    /// these: [`Limits::connections`](windlass_serve::Limits::connections) bounds them.
    ///
    /// A message that compression does not make smaller is sent as it is.
    #[cfg(feature = "deflate")]
    pub fn deflate(self, agree: Deflate) -> WebSocketSettings {
        self.set(|settings| settings.deflate = Some(agree))
    }

    /// Sets how messages are compressed: by a level from 1, the fastest, to 9, the smallest, and
    /// those of at least `from` bytes. Default 1, and 64 bytes. Another level counts as the nearest
    /// of these.
    #[cfg(feature = "deflate")]
    pub fn compress(self, level: u8, from: usize) -> WebSocketSettings {
        self.set(|settings| (settings.level, settings.compress_from) = (level, from))
    }

    /// Sets how long a message may take from its first byte on, and how many bytes of it have to
    /// come in each second after that time. A slower one ends the connection, with
    /// [`Cause::TooSlow`](windlass_serve::Cause::TooSlow). Default 30 s, and 500 bytes a second.
    pub fn message_time(self, span: Duration, bytes_per_second: u32) -> WebSocketSettings {
        self.set(|settings| settings.message_time = (span, bytes_per_second))
    }

    /// Sets how long a connection may be silent before it gets a ping: no byte moves in either
    /// direction. If it is silent for as long again, it ends, with
    /// [`Cause::Idle`](windlass_serve::Cause::Idle). Default 60 s. A connection that the program
    /// has [paused](super::Socket::pause) gets no ping.
    ///
    /// A proxy on the way must let connections be silent for longer: nginx ends them after 60 s,
    /// unless `proxy_read_timeout` says otherwise.
    pub fn ping_every(self, span: Duration) -> WebSocketSettings {
        self.set(|settings| settings.ping_every = span)
    }

    /// Sets how long the other side may take to answer a close frame. Beyond, the connection ends,
    /// with [`Cause::TooSlow`](windlass_serve::Cause::TooSlow). Default 10 s.
    pub fn close_time(self, span: Duration) -> WebSocketSettings {
        self.set(|settings| settings.close_time = span)
    }

    /// Messages are told [in parts](super::Peer::part), as they come, so that a long one takes no
    /// memory. [`message_limit`](WebSocketSettings::message_limit) holds for their sum. A program
    /// that cannot take more now [pauses](super::Socket::pause) the connection.
    ///
    /// A compressed message takes one of the four inflaters of its loop from its beginning to its
    /// end. A connection that finds none is not read, so the
    /// [time of a message](WebSocketSettings::message_time) should be short.
    ///
    /// This is for a [`Peer`](super::Peer). A [`Client`](crate::Client) and an
    /// [`Engine`](crate::Engine) tell whole messages.
    pub fn in_parts(self) -> WebSocketSettings {
        self.set(|settings| settings.in_parts = true)
    }

    /// A connection that does not keep up loses messages of its topics:
    /// [`Totals::lost_events`](crate::report::Totals::lost_events) counts them. By default it ends,
    /// with [`Cause::Aborted`](windlass_serve::Cause::Aborted). What this turn has
    /// written aside, its output is [full](super::Socket::is_full) when something is published.
    pub fn lossy(self) -> WebSocketSettings {
        self.set(|settings| settings.is_lossy = true)
    }
}
