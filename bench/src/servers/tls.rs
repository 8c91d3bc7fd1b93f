//! Echo servers behind TLS: the raw loop, and windlass-serve. Both have the default settings of
//! windlass-serve: versions, suites, and two tickets of a ticketer.

use std::fs::File;
use std::io::{self, BufReader};
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::ServerSessionMemoryCache;
use windlass::Buf;
use windlass_serve::tls::{Pem, Tls};
use windlass_serve::{Action, Conn, Handler, Limits, Server};

/// Serves until it is killed.
pub fn raw(port: u16, certificate: &str, key: &str) -> io::Result<()> {
    let open = |path: &str| File::open(path).map(BufReader::new);
    let chain = CertificateDer::pem_reader_iter(open(certificate)?)
        .collect::<Result<Vec<_>, _>>()
        .map_err(io::Error::other)?;
    let key = PrivateKeyDer::from_pem_reader(open(key)?).map_err(io::Error::other)?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(io::Error::other)?;
    config.ticketer = ring::Ticketer::new().map_err(io::Error::other)?;
    config.session_storage = ServerSessionMemoryCache::new(256);
    super::raw_tls::serve(port, Arc::new(config))
}

struct Echo;

impl Handler for Echo {
    type State = ();

    fn data(&mut self, c: &mut Conn<'_, ()>, data: Buf) -> Action {
        c.write(data);
        Action::None
    }
}

/// Serves until it is killed.
pub fn windlass_serve(port: u16, certificate: &str, key: &str) -> io::Result<()> {
    windlass::fd::raise_max_open_files()?;
    let limits = Limits::new().idle(Duration::from_secs(3600));
    let tls = Tls::pem(Pem::file(certificate), Pem::file(key)).map_err(io::Error::other)?;
    let server = Server::new(|_| Echo).loops(1).limits(limits);
    server.listen(&format!("tcp://127.0.0.1:{port}"))?.tls(tls).run().map(drop)
}
