//! A request as the connection has it: offsets, and the bytes that they are in.

use std::net::SocketAddr;

use windlass_http1::{Framing, RequestHead};
use windlass_serve::net::Networks;
use windlass_serve::report::Counters;
use windlass_serve::{Engine, Id};

/// A request whose head has come.
#[derive(Clone, Copy)]
pub(crate) struct Arrived<'a> {
    pub(crate) head: &'a RequestHead,
    /// The bytes that the head has offsets into.
    pub(crate) bytes: &'a [u8],
    pub(crate) from: From<'a>,
}

impl Arrived<'_> {
    /// Whether the client offers to go over to this protocol (RFC 9110, 7.8). Names of protocols
    /// have no case.
    pub(crate) fn offers(&self, protocol: &str) -> bool {
        let Some(list) = self.head.upgrade(self.bytes) else { return false };
        let mut names = list.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
        names.any(|name| name.eq_ignore_ascii_case(protocol.as_bytes()))
    }

    pub(crate) fn has_body(&self) -> bool {
        !matches!(self.head.framing(), Framing::Empty | Framing::Tunnel)
    }
}

/// Where a request comes from.
#[derive(Clone, Copy)]
pub(crate) struct From<'a> {
    pub(crate) id: Id,
    /// The address of the peer, if it has an internet address.
    pub(crate) peer: Option<SocketAddr>,
    pub(crate) is_tls: bool,
    /// Whether the server will shut down.
    pub(crate) is_leaving: bool,
    /// The proxies whose fields about their clients count.
    pub(crate) trust: Option<&'static Networks>,
    pub(crate) engine: &'a dyn Beside,
}

/// What the engine of a connection tells about it, whatever the type of its state.
pub(crate) trait Beside {
    fn counters(&self) -> &Counters;

    #[cfg(feature = "tls")]
    fn tls(&self, id: Id) -> Option<&windlass_serve::tls::Session>;
}

impl<S> Beside for Engine<S> {
    fn counters(&self) -> &Counters {
        Engine::counters(self)
    }

    #[cfg(feature = "tls")]
    fn tls(&self, id: Id) -> Option<&windlass_serve::tls::Session> {
        Engine::tls(self, id)
    }
}

/// The fields behind a chunked body.
pub(crate) type Trailers = Vec<(String, Vec<u8>)>;
