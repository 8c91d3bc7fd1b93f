//! Checks of the peer's certificate, which keep what they refuse for the error.
//!
//! # Why
//!
//! An error of rustls says what is wrong, but not with which certificate: "expired" alone helps
//! nobody with a thousand clients. A verifier belongs to all connections of its settings, so it has
//! no place for what it refuses in one of them. But it runs inside the call that gives a connection
//! its input. So it leaves the certificate to the thread, and that call takes it from there.

use std::cell::Cell;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

use super::certificate::CertificateInfo;

thread_local! {
    static REFUSED: Cell<Option<CertificateInfo>> = const { Cell::new(None) };
}

/// The certificate that the last input was refused for, once.
pub(super) fn take_refused() -> Option<CertificateInfo> {
    REFUSED.take()
}

/// Keeps the certificate if it was refused.
fn keep<T>(result: Result<T, Error>, certificate: &CertificateDer<'_>) -> Result<T, Error> {
    REFUSED.set(if result.is_err() { CertificateInfo::read(certificate) } else { None });
    result
}

/// The calls that both traits have.
macro_rules! signatures {
    () => {
        fn verify_tls12_signature(
            &self,
            message: &[u8],
            own: &CertificateDer<'_>,
            signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            keep(self.0.verify_tls12_signature(message, own, signature), own)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            own: &CertificateDer<'_>,
            signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            keep(self.0.verify_tls13_signature(message, own, signature), own)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            self.0.supported_verify_schemes()
        }

        fn requires_raw_public_keys(&self) -> bool {
            self.0.requires_raw_public_keys()
        }
    };
}

/// A verifier whose refusals name the certificate.
#[derive(Debug)]
pub(super) struct Naming<V: ?Sized>(pub(super) Arc<V>);

impl ServerCertVerifier for Naming<dyn ServerCertVerifier> {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        issuers: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        keep(self.0.verify_server_cert(own, issuers, name, ocsp, now), own)
    }

    signatures!();

    fn root_hint_subjects(&self) -> Option<&[DistinguishedName]> {
        self.0.root_hint_subjects()
    }
}

impl ClientCertVerifier for Naming<dyn ClientCertVerifier> {
    fn offer_client_auth(&self) -> bool {
        self.0.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.0.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        own: &CertificateDer<'_>,
        issuers: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        keep(self.0.verify_client_cert(own, issuers, now), own)
    }

    signatures!();
}
