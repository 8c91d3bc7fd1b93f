//! The settings for proxies in front of a server.

use std::time::Duration;

use crate::words::networks::Networks;

/// How a listener takes the connections of proxies that speak the PROXY protocol: such a proxy
/// passes a client's connection on, and begins it with a *header* that names the client's address.
///
/// A listener with this setting takes connections from the listed networks only, and each must
/// begin with a header. A peer from elsewhere is refused, and not served as a plain connection:
/// otherwise anybody could claim any address, or go around the proxy.
///
/// - [`Event::Opened`](crate::Event::Opened) follows when the whole header has come, with the
///   client's address as [`Origin::peer`](crate::Origin::peer). What comes behind the header is the
///   first data. The program sees nothing of the header.
/// - If the header names no client, the peer is that of the socket: with the command `LOCAL`, which
///   proxies use for checks of their own, with `UNKNOWN`, and with the family or protocol `UNSPEC`.
///   It is `None` for a client with a Unix socket.
/// - Until then the connection counts for [`Limits::connections`](crate::Limits::connections), and
///   the beginning of its header for [`Limits::memory`](crate::Limits::memory).
/// - It is refused if the header is wrong or too long, if it has not come within
///   [`timeout`](Proxy::timeout), and if the peer ends before: there is no event, and
///   [`Counters::refused`](crate::report::Counters::refused) counts it. The log has the reason, as
///   [`RefusedBecause`](crate::log::RefusedBecause). A check of a proxy that connects and closes is
///   on the level [`Debug`](crate::log::Level::Debug). Unless the peer has ended, it gets a reset.
///
/// ```
/// use std::time::Duration;
/// use windlass_serve::net::Proxy;
///
/// let proxies = "10.0.0.0/8, unix".parse()?;
/// let proxy = Proxy::v2().from(proxies).timeout(Duration::from_secs(3));
/// assert_ne!(proxy, Proxy::v2());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proxy {
    pub(crate) versions: Versions,
    pub(crate) networks: Networks,
    pub(crate) timeout: Duration,
    pub(crate) max_header: usize,
}

/// The versions of the header that a listener takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Versions {
    pub(crate) v1: bool,
    pub(crate) v2: bool,
}

impl Versions {
    /// No header: a connection begins with the data of its peer.
    pub(crate) const NONE: Versions = Versions { v1: false, v2: false };
    pub(crate) const V1: Versions = Versions { v1: true, v2: false };
    pub(crate) const V2: Versions = Versions { v1: false, v2: true };
    pub(crate) const ANY: Versions = Versions { v1: true, v2: true };
}

/// The shortest limit: a header with the addresses of two Unix sockets has so many bytes, and one
/// of version 1 has fewer.
const LEAST_HEADER: usize = 16 + 216;
/// The longest header that there is.
const MOST_HEADER: usize = 16 + 65_535;
/// The specification keeps a header within 536 bytes, the least segment of TCP (section 2). The
/// vectors of some proxies take more: the name of a client's certificate, a host name, a trace.
const DEFAULT_HEADER: usize = 536 + 2048;

impl Proxy {
    /// Takes headers of version 1, a line of text.
    pub fn v1() -> Proxy {
        Proxy::with(Versions::V1)
    }

    /// Takes headers of version 2, which are binary.
    pub fn v2() -> Proxy {
        Proxy::with(Versions::V2)
    }

    /// Takes both versions. Each header says which one it is.
    pub fn any() -> Proxy {
        Proxy::with(Versions::ANY)
    }

    fn with(versions: Versions) -> Proxy {
        Proxy {
            versions,
            networks: Networks::default(),
            timeout: Duration::from_secs(5),
            max_header: DEFAULT_HEADER,
        }
    }

    /// Sets the networks of the proxies, and of what checks the server directly. Default none, with
    /// which listening fails.
    pub fn from(mut self, networks: Networks) -> Proxy {
        self.networks = networks;
        self
    }

    /// Sets how long a connection may take to bring its whole header, from its accept. Default 5 s.
    /// Less than 3 s cuts off a proxy whose first segment was lost.
    pub fn timeout(mut self, span: Duration) -> Proxy {
        self.timeout = span;
        self
    }

    /// Sets the most bytes of a header of version 2: 232 to 65,551, default 2584. (A header of
    /// version 1 has at most 107.) A proxy can put names and certificates into a header; they are
    /// skipped.
    pub fn max_header(mut self, bytes: usize) -> Proxy {
        self.max_header = bytes.clamp(LEAST_HEADER, MOST_HEADER);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_set_within_their_bounds() {
        let both = Proxy::any().timeout(Duration::ZERO).max_header(0);
        assert_eq!(both.versions, Versions::ANY);
        assert_eq!((both.timeout, both.max_header), (Duration::ZERO, 232));
        assert!(both.networks.is_empty());
        let first = Proxy::v1().from("::1".parse().unwrap()).max_header(usize::MAX);
        assert_eq!((first.versions, first.max_header), (Versions::V1, 65_551));
        assert!(first.networks.contains(Some(([0, 0, 0, 0, 0, 0, 0, 1], 1).into())));
        let second = Proxy::v2();
        assert_eq!((second.versions, second.max_header), (Versions::V2, 2584));
        assert_eq!(second.timeout, Duration::from_secs(5));
    }
}
