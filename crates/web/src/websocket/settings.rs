//! How a server or a client speaks the protocol.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use windlass_websocket::Limits;
#[cfg(feature = "deflate")]
use windlass_websocket::handshake::Deflate;

/// What a server agrees to, and the limits of its connections: for
/// [`App::websocket_with`](crate::App::websocket_with).
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
    /// The defaults.
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

    /// The sub-protocols, the best one first. A client gets the first of them that it offers, and a
    /// 400 if it offers others only. One that offers none gets none. Default: none.
    pub fn protocols<T: Into<Cow<'static, str>>>(
        self,
        names: impl IntoIterator<Item = T>,
    ) -> WebSocketSettings {
        self.set(|settings| settings.protocols = names.into_iter().map(Into::into).collect())
    }

    /// Browsers may connect from pages of these origins: `https://example.com`. Others get a 403. A
    /// client that is no browser says no origin, and may connect. By default, the page has to come
    /// from the host that the request is for: otherwise any page that a user looks at could speak
    /// with the user's cookies.
    pub fn origins<T: Into<Cow<'static, str>>>(
        self,
        origins: impl IntoIterator<Item = T>,
    ) -> WebSocketSettings {
        let these = origins.into_iter().map(Into::into).collect();
        self.set(|settings| settings.origins = Origins::These(these))
    }

    /// Browsers may connect from all pages.
    pub fn any_origin(self) -> WebSocketSettings {
        self.set(|settings| settings.origins = Origins::Any)
    }

    /// Sets how many bytes a message may have. Beyond, the connection closes with 1009. Default 1
    /// MiB. A compressed message may be sent in an eighth more, for what does not get smaller.
    ///
    /// A message that is not whole also has to fit into the [share](windlass_serve::memory::Budget)
    /// of its connection in the memory of the server. One that never would closes it with 1009; one
    /// that does not at present, with 1013.
    pub fn message_limit(self, bytes: u64) -> WebSocketSettings {
        self.set(|settings| settings.limits.message = bytes)
    }

    /// Compresses messages, if the other side agrees (permessage-deflate, RFC 7692). The default of
    /// [`Deflate`] keeps nothing between messages, so that a connection costs no more.
    /// [`Deflate::TAKEOVER`] compresses better, and keeps up to 4 KiB of each direction for as long
    /// as the connection lives: that memory is not part of a connection's share of
    /// [`Limits::memory`](windlass_serve::Limits::memory), so
    /// [`Limits::connections`](windlass_serve::Limits::connections) bounds it.
    ///
    /// A message that compression does not make smaller is sent as it is.
    #[cfg(feature = "deflate")]
    pub fn deflate(self, agree: Deflate) -> WebSocketSettings {
        self.set(|settings| settings.deflate = Some(agree))
    }

    /// Sets how well messages are compressed, from 1, the fastest, to 9, the smallest, and from how
    /// many bytes on. Default 1, and 64 bytes.
    #[cfg(feature = "deflate")]
    pub fn compress(self, level: u8, from: usize) -> WebSocketSettings {
        self.set(|settings| (settings.level, settings.compress_from) = (level, from))
    }

    /// Sets how long a message may take from its first byte on, and how many bytes of it have to
    /// come in each second behind that. Beyond, the connection ends. Default 30 s and 500.
    pub fn message_time(self, span: Duration, least: u32) -> WebSocketSettings {
        self.set(|settings| settings.message_time = (span, least))
    }

    /// Sets how long a connection may be silent before it gets a ping. If nothing comes for as long
    /// again, it ends. Default 60 s.
    pub fn ping_every(self, span: Duration) -> WebSocketSettings {
        self.set(|settings| settings.ping_every = span)
    }

    /// Sets how long the peer may take to answer a close frame. Default 10 s.
    pub fn close_time(self, span: Duration) -> WebSocketSettings {
        self.set(|settings| settings.close_time = span)
    }

    /// Messages are told [in parts](super::Peer::part), as they come, so that one of any length
    /// takes no memory. What a program does not take in time, it [pauses](super::Socket::pause).
    ///
    /// A compressed message takes one of the few inflaters of its loop from its beginning to its
    /// end. A connection that finds none is not read, so the
    /// [time of a message](WebSocketSettings::message_time) should be short.
    ///
    /// This is for a [`Peer`](super::Peer). A [`Client`](crate::Client) and an
    /// [`Engine`](crate::Engine) tell whole messages.
    pub fn in_parts(self) -> WebSocketSettings {
        self.set(|settings| settings.in_parts = true)
    }

    /// A peer that does not keep up loses messages of its topics, which
    /// [`Totals::lost_events`](crate::report::Totals::lost_events) counts. By default its
    /// connection ends.
    pub fn lossy(self) -> WebSocketSettings {
        self.set(|settings| settings.is_lossy = true)
    }
}
