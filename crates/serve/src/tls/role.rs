//! Which end of TLS a connection becomes.

use super::client::Destination;
use super::server::Tls;

/// Which end of TLS a plain connection becomes, for [`Engine::upgrade`](crate::Engine::upgrade).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum TlsRole {
    /// The server.
    Server(Tls),
    /// The client of this server.
    Client(Destination),
}

impl From<&Tls> for TlsRole {
    fn from(tls: &Tls) -> TlsRole {
        TlsRole::Server(tls.clone())
    }
}

impl From<&Destination> for TlsRole {
    fn from(server: &Destination) -> TlsRole {
        TlsRole::Client(server.clone())
    }
}

impl From<Destination> for TlsRole {
    fn from(server: Destination) -> TlsRole {
        TlsRole::Client(server)
    }
}

impl From<Tls> for TlsRole {
    fn from(tls: Tls) -> TlsRole {
        TlsRole::Server(tls)
    }
}
