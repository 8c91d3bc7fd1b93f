//! A client that makes its handshake as it should, and then sends any record, encrypted as it
//! should be.
#![allow(dead_code)] // each test uses its own part

use std::sync::Arc;
use std::time::UNIX_EPOCH;

use rustls::crypto::CryptoProvider;
use rustls::crypto::cipher::{MessageEncrypter, OutboundChunks, OutboundPlainMessage};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::time_provider::TimeProvider;
use rustls::{
    CipherSuite, ClientConfig, ClientConnection, ConnectionTrafficSecrets, ProtocolVersion,
    RootCertStore, SupportedCipherSuite,
};
use windlass_serve::tls::{Provider, Session, Version};

use super::tls::{Authority, noon, settings};

pub(super) struct Peer {
    encrypter: Box<dyn MessageEncrypter>,
    sequence: u64,
}

#[derive(Debug)]
struct Noon;

impl TimeProvider for Noon {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(noon().duration_since(UNIX_EPOCH).expect("it is later")))
    }
}

/// The provider, with the one suite of each version whose keys need no salt.
fn provider() -> CryptoProvider {
    let mut provider = match Provider::default() {
        #[cfg(feature = "aws-lc-rs")]
        Provider::AwsLcRs => rustls::crypto::aws_lc_rs::default_provider(),
        #[cfg(feature = "ring")]
        Provider::Ring => rustls::crypto::ring::default_provider(),
        other => panic!("{other} is no provider of this test"),
    };
    provider.cipher_suites.retain(|suite| {
        [
            CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
            CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
        ]
        .contains(&suite.suite())
    });
    provider
}

/// A client that trusts this authority.
pub(super) fn client(authority: &Authority) -> ClientConnection {
    let mut roots = RootCertStore::empty();
    let root = CertificateDer::from_pem_slice(authority.pem.as_bytes()).expect("a root");
    roots.add(root).expect("a root");
    let mut config = ClientConfig::builder_with_details(Arc::new(provider()), Arc::new(Noon))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.enable_secret_extraction = true;
    let name = "localhost".try_into().expect("a name");
    ClientConnection::new(Arc::new(config), name).expect("a client")
}

impl Peer {
    /// A server's session that is open, and its client.
    pub(super) fn of(version: Version) -> (Session, Peer) {
        let (authority, server, _) = settings(Provider::default());
        let server = server.versions([version]).build().expect("a server");
        let mut client = client(&authority);
        let mut session = Session::server(&server).expect("a server");
        let (mut there, mut back) = (Vec::new(), Vec::new());
        while client.is_handshaking() || !session.is_open() {
            client.write_tls(&mut there).expect("a vector takes it");
            session.feed_into(&there, &mut Vec::new()).expect("a handshake");
            there.clear();
            session.take_output(&mut back);
            let mut left = &back[..];
            while !left.is_empty() {
                client.read_tls(&mut left).expect("memory takes it");
                client.process_new_packets().expect("a handshake");
            }
            back.clear();
        }
        (session, Peer::from(client))
    }

    /// A record of this kind.
    pub(super) fn record(&mut self, kind: u8, body: &[u8]) -> Vec<u8> {
        let message = OutboundPlainMessage {
            typ: kind.into(),
            version: ProtocolVersion::TLSv1_2,
            payload: OutboundChunks::Single(body),
        };
        let message = self.encrypter.encrypt(message, self.sequence).expect("a record");
        self.sequence += 1;
        message.encode()
    }
}

impl From<ClientConnection> for Peer {
    fn from(client: ClientConnection) -> Peer {
        let suite = client.negotiated_cipher_suite().expect("a suite");
        let secrets = client.dangerous_extract_secrets().expect("secrets");
        let (sequence, ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv }) = secrets.tx else {
            panic!("another suite")
        };
        let encrypter = match suite {
            SupportedCipherSuite::Tls13(suite) => suite.aead_alg.encrypter(key, iv),
            SupportedCipherSuite::Tls12(suite) => suite.aead_alg.encrypter(key, iv.as_ref(), &[]),
        };
        Peer { encrypter, sequence }
    }
}
