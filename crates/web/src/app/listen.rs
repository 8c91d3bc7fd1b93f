//! Where an application listens.

use std::io;
use std::net::TcpListener;

#[cfg(feature = "tls")]
use windlass_serve::tls::Tls;

/// What [`App::listen`](crate::App::listen) takes.
///
/// | type | listens |
/// |---|---|
/// | `&str`, `String`, `&String` | at an address |
/// | `(&str, Tls)`, `(String, Tls)` | at an address, with TLS |
/// | `TcpListener` | at a listener that the program has made |
/// | `(TcpListener, Tls)` | there, with TLS |
///
/// An address is `HOST:PORT`, or one that [`Server::listen`](windlass_serve::Server::listen)
/// describes: `unix:///run/web`, `fd://` for the sockets of systemd,
/// `tcp://0.0.0.0:8080?proxy=any`.
///
/// With TLS the server speaks `http/1.1` (ALPN), unless the program has set other protocols: a
/// client that offers only `h2` is refused.
#[cfg_attr(not(feature = "tls"), doc = "\n`Tls` is there with the feature `tls`.")]
pub trait Listen: sealed::Sealed {}

mod sealed {
    /// Makes a place: no type of a program does.
    pub trait Sealed {
        #[doc(hidden)]
        fn place(self) -> std::io::Result<super::Place>;
    }
}

pub(super) use sealed::Sealed;

/// A place to listen at.
pub struct Place {
    pub(super) at: Where,
    #[cfg(feature = "tls")]
    pub(super) tls: Option<Tls>,
}

pub(super) enum Where {
    /// An address as windlass-serve has them.
    Address(String),
    Listener(TcpListener),
}

impl Place {
    fn plain(at: Where) -> Place {
        Place {
            at,
            #[cfg(feature = "tls")]
            tls: None,
        }
    }

    #[cfg(feature = "tls")]
    fn with_tls(mut self, tls: Tls) -> Place {
        tls.default_alpn(["http/1.1"]);
        self.tls = Some(tls);
        self
    }
}

/// An address with its scheme.
fn address(text: &str) -> io::Result<String> {
    const HOSTS: [&str; 6] = ["tcp", "tcp4", "tcp6", "tls", "tls4", "tls6"];
    let address = match text.split_once("://") {
        Some(_) => text.to_owned(),
        None => format!("tcp://{text}"),
    };
    let (scheme, rest) = address.split_once("://").unwrap_or_default();
    let host = rest.split('?').next().unwrap_or_default();
    // The server would find it, but later than the call that is wrong.
    let is_known = match scheme {
        "unix" | "fd" => true,
        _ => HOSTS.contains(&scheme) && host.rsplit_once(':').is_some_and(is_port),
    };
    match is_known {
        true => Ok(address),
        false => {
            let why = format!("{text:?} is no address: HOST:PORT, unix://PATH, fd://");
            Err(io::Error::new(io::ErrorKind::InvalidInput, why))
        }
    }
}

fn is_port((_, port): (&str, &str)) -> bool {
    port.parse::<u16>().is_ok()
}

impl Listen for &str {}
impl Sealed for &str {
    fn place(self) -> io::Result<Place> {
        Ok(Place::plain(Where::Address(address(self)?)))
    }
}

impl Listen for &String {}
impl Sealed for &String {
    fn place(self) -> io::Result<Place> {
        self.as_str().place()
    }
}

impl Listen for String {}
impl Sealed for String {
    fn place(self) -> io::Result<Place> {
        self.as_str().place()
    }
}

impl Listen for TcpListener {}
impl Sealed for TcpListener {
    fn place(self) -> io::Result<Place> {
        Ok(Place::plain(Where::Listener(self)))
    }
}

#[cfg(feature = "tls")]
impl<T: Listen> Listen for (T, Tls) {}
#[cfg(feature = "tls")]
impl<T: Listen> Sealed for (T, Tls) {
    fn place(self) -> io::Result<Place> {
        Ok(self.0.place()?.with_tls(self.1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_without_a_scheme_is_of_tcp() {
        assert_eq!(address("0.0.0.0:80").unwrap(), "tcp://0.0.0.0:80");
        assert_eq!(address("[::1]:0").unwrap(), "tcp://[::1]:0");
        for whole in ["tls://a:1", "unix:///run/web", "fd://3", "tcp://:80?proxy=any"] {
            assert_eq!(address(whole).unwrap(), whole);
        }
        for wrong in ["", "80", "localhost", "a:65536", "a:-1", "http://a:80", "udp://a:80"] {
            assert!(address(wrong).is_err(), "{wrong}");
        }
    }
}
