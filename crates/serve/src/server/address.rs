//! Addresses to listen at, as a server is given them.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;

use windlass::Handle;

use crate::parts::cipher::Tls;
use crate::words::proxy::Versions;

/// Where a server listens.
#[derive(Debug)]
pub(crate) enum Place {
    /// A TCP port: the first of these addresses that can be bound.
    Tcp(Vec<SocketAddr>),
    /// A Unix path.
    Unix(PathBuf),
    /// A UDP port, likewise.
    Udp(Vec<SocketAddr>),
    /// A listener, or a datagram socket, that the program has made.
    Listener(Handle),
    /// One that the process has inherited, and its address.
    Inherited(Handle, String),
    /// One of these for each loop, which the program makes.
    Made(Make),
    /// No listener: another loop has it.
    Nowhere,
}

/// Makes the listener of a loop, by the index of the loop.
#[derive(Clone)]
pub(crate) struct Make(pub(crate) Arc<dyn Fn(usize) -> io::Result<Handle> + Send + Sync>);

impl fmt::Debug for Make {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Make")
    }
}

/// An address, and whether several listeners share it.
#[derive(Debug)]
pub(crate) struct Listen {
    pub(crate) place: Place,
    pub(crate) reuse_port: bool,
    /// Whether each peer of a UDP port is a session; `None` leaves it to the configuration.
    pub(crate) sessions: Option<bool>,
    /// The header that a connection begins with; `None` leaves it to the configuration.
    pub(crate) proxy: Option<Versions>,
    /// The TLS of its connections.
    pub(crate) tls: Option<Tls>,
    /// The address, if its scheme says that its connections have TLS.
    pub(crate) wants_tls: Option<String>,
}

/// An error that names the address.
pub(super) fn wrong(text: &str, why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("{text}: {why}"))
}

impl Listen {
    /// At a place that no other listener shares.
    pub(crate) fn at(place: Place) -> Listen {
        let (reuse_port, sessions, proxy, tls) = (false, None, None, None);
        Listen { place, reuse_port, sessions, proxy, tls, wants_tls: None }
    }

    /// What another loop listens at, if it does not share the port.
    pub(crate) fn again(&self) -> Listen {
        let place = match &self.place {
            Place::Made(make) => Place::Made(make.clone()),
            _ => Place::Nowhere,
        };
        Listen { proxy: self.proxy, tls: self.tls.clone(), ..Listen::at(place) }
    }

    /// Reads `SCHEME://ADDRESS[?reuseport=true&sessions=true&proxy=v2]`.
    pub(crate) fn parse(text: &str) -> io::Result<Listen> {
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err(wrong(text, "an address begins with a scheme, as tcp://127.0.0.1:80 does"));
        };
        let (address, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (mut reuse_port, mut sessions, mut proxy) = (false, None, None);
        for setting in query.split('&').filter(|setting| !setting.is_empty()) {
            let (name, value) = setting.split_once('=').unwrap_or((setting, "true"));
            let is_on = match value {
                "true" | "yes" | "1" => Some(true),
                "false" | "no" | "0" => Some(false),
                _ => None,
            };
            match (name, is_on) {
                ("proxy", _) if scheme.starts_with("udp") => {
                    return Err(wrong(text, "UDP has no headers of proxies"));
                }
                ("proxy", Some(false)) => proxy = Some(Versions::NONE),
                ("proxy", _) => {
                    proxy = Some(match value {
                        "v1" => Versions::V1,
                        "v2" => Versions::V2,
                        "any" => Versions::ANY,
                        _ => return Err(wrong(text, "proxy is v1, v2, any or false")),
                    });
                }
                ("reuseport", Some(is_on)) => reuse_port = is_on,
                ("sessions", Some(_)) if !scheme.starts_with("udp") => {
                    return Err(wrong(text, "only UDP has sessions"));
                }
                ("sessions", Some(is_on)) => sessions = Some(is_on),
                ("reuseport" | "sessions", None) => {
                    return Err(wrong(text, &format!("{name} is true or false")));
                }
                _ => return Err(wrong(text, "the settings are reuseport, sessions and proxy")),
            }
        }
        let wants_tls = matches!(scheme, "tls" | "tls4" | "tls6").then(|| text.to_owned());
        if wants_tls.is_some() && cfg!(not(feature = "tls")) {
            return Err(wrong(text, "windlass-serve was built without its feature tls"));
        }
        let place = match scheme {
            "tcp" | "tls" => Place::Tcp(resolve(text, address, |_| true)?),
            "tcp4" | "tls4" => Place::Tcp(resolve(text, address, SocketAddr::is_ipv4)?),
            "tcp6" | "tls6" => Place::Tcp(resolve(text, address, SocketAddr::is_ipv6)?),
            "udp" => Place::Udp(resolve(text, address, |_| true)?),
            "udp4" => Place::Udp(resolve(text, address, SocketAddr::is_ipv4)?),
            "udp6" => Place::Udp(resolve(text, address, SocketAddr::is_ipv6)?),
            "unix" if address.is_empty() => return Err(wrong(text, "the path is missing")),
            "unix" if reuse_port => return Err(wrong(text, "a Unix path cannot be shared")),
            "unix" => Place::Unix(PathBuf::from(address)),
            _ => {
                let known = "the schemes are tcp, tcp4, tcp6, tls, tls4, tls6, udp, udp4, udp6, \
                             unix and fd";
                return Err(wrong(text, known));
            }
        };
        Ok(Listen { place, reuse_port, sessions, proxy, tls: None, wants_tls })
    }
}

/// The addresses of `HOST:PORT`. Without a host they are those of all interfaces, and without a
/// port the kernel chooses one.
fn resolve(
    text: &str,
    address: &str,
    fits: impl Fn(&SocketAddr) -> bool,
) -> io::Result<Vec<SocketAddr>> {
    let has_port = address.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'));
    let whole = if has_port { address.to_owned() } else { format!("{address}:0") };
    let found: Vec<SocketAddr> = match whole.strip_prefix(':') {
        Some(port) => {
            let port = if port.is_empty() { "0" } else { port };
            let port: u16 = port.parse().map_err(|_| wrong(text, "the port is no number"))?;
            // A system without IPv6 binds the second address.
            vec![(Ipv6Addr::UNSPECIFIED, port).into(), (Ipv4Addr::UNSPECIFIED, port).into()]
        }
        None => {
            let found = whole.to_socket_addrs();
            found.map_err(|error| wrong(text, &error.to_string()))?.collect()
        }
    };
    let found: Vec<SocketAddr> = found.into_iter().filter(fits).collect();
    if found.is_empty() {
        return Err(wrong(text, "it has no address of this family"));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn tcp(text: &str) -> Vec<String> {
        match Listen::parse(text).unwrap().place {
            Place::Tcp(addresses) => addresses.iter().map(SocketAddr::to_string).collect(),
            other => panic!("{other:?}"),
        }
    }

    fn udp(text: &str) -> Vec<String> {
        match Listen::parse(text).unwrap().place {
            Place::Udp(addresses) => addresses.iter().map(SocketAddr::to_string).collect(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn addresses_are_read() {
        assert_eq!(tcp("tcp://127.0.0.1:80"), ["127.0.0.1:80"]);
        assert_eq!(tcp("tcp://"), ["[::]:0", "0.0.0.0:0"]);
        assert_eq!(tcp("tcp://:7"), ["[::]:7", "0.0.0.0:7"]);
        assert_eq!(tcp("tcp4://:7"), ["0.0.0.0:7"]);
        assert_eq!(tcp("tcp6://[::1]:7?reuseport=true"), ["[::1]:7"]);
        assert_eq!(tcp("tcp6://[::1]"), ["[::1]:0"]);
        assert_eq!(udp("udp://127.0.0.1:53"), ["127.0.0.1:53"]);
        assert_eq!(udp("udp4://:53"), ["0.0.0.0:53"]);
        assert_eq!(udp("udp6://[::1]:53?reuseport=true"), ["[::1]:53"]);
        assert!(Listen::parse("udp://:53?reuseport=true").unwrap().reuse_port);
        let both = Listen::parse("udp4://:53?sessions=true&reuseport=true").unwrap();
        assert!(both.reuse_port && both.sessions == Some(true));
        assert_eq!(Listen::parse("udp://:53?sessions=0").unwrap().sessions, Some(false));
        assert_eq!(Listen::parse("udp://:53").unwrap().sessions, None);
        assert!(Listen::parse("tcp://127.0.0.1:80?reuseport=true").unwrap().reuse_port);
        assert!(!Listen::parse("tcp://127.0.0.1:80?reuseport=0").unwrap().reuse_port);
        for (text, proxy) in [
            ("tcp://:80", None),
            ("tcp://:80?proxy=v1", Some(Versions::V1)),
            ("tcp://:80?reuseport=1&proxy=v2", Some(Versions::V2)),
            ("unix:///run/echo?proxy=any", Some(Versions::ANY)),
            ("tcp://:80?proxy=false", Some(Versions::NONE)),
        ] {
            let listen = Listen::parse(text).unwrap();
            assert_eq!((listen.proxy, listen.again().proxy), (proxy, proxy), "{text}");
        }
        let unix = Listen::parse("unix:///run/echo").unwrap();
        assert!(matches!(unix.place, Place::Unix(path) if path == Path::new("/run/echo")));
    }

    #[test]
    fn only_some_schemes_want_tls() {
        if cfg!(feature = "tls") {
            assert_eq!(tcp("tls://127.0.0.1:443"), ["127.0.0.1:443"]);
            assert_eq!(tcp("tls4://:443?reuseport=true"), ["0.0.0.0:443"]);
            assert_eq!(tcp("tls6://[::1]:443?proxy=v2"), ["[::1]:443"]);
            let listen = Listen::parse("tls://:443").unwrap();
            assert_eq!(listen.wants_tls.as_deref(), Some("tls://:443"));
        } else {
            let error = Listen::parse("tls://:443").unwrap_err();
            assert!(error.to_string().contains("without its feature tls"), "{error}");
        }
        assert_eq!(Listen::parse("tcp://:443").unwrap().wants_tls, None);
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for (text, why) in [
            ("howdy", "begins with a scheme"),
            ("tulip://howdy", "the schemes are"),
            ("tcp://127.0.0.1:port", "127.0.0.1:port"),
            ("tcp://:99999", "no number"),
            ("tcp6://127.0.0.1:80", "no address of this family"),
            ("udp4://[::1]:80", "no address of this family"),
            ("udp://127.0.0.1:port", "127.0.0.1:port"),
            ("tcp://127.0.0.1:80?reuse=1", "the settings are"),
            ("udp://127.0.0.1:80?sessions=perhaps", "sessions is true or false"),
            ("tcp://127.0.0.1:80?sessions=true", "only UDP"),
            ("tcp://127.0.0.1:80?reuseport=perhaps", "true or false"),
            ("tcp://127.0.0.1:80?proxy", "proxy is v1, v2, any or false"),
            ("tcp://127.0.0.1:80?proxy=v3", "proxy is v1, v2, any or false"),
            ("udp://127.0.0.1:80?proxy=v1", "UDP has no headers"),
            ("unix://", "the path is missing"),
            ("unix:///run/echo?reuseport=true", "cannot be shared"),
        ] {
            let error = Listen::parse(text).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{text}");
            assert!(error.to_string().contains(why), "{text}: {error}");
        }
    }
}
