//! Certificates with their key, as 0.23 has them.

use std::sync::Arc;

use rustls_next::Error;
use rustls_next::crypto::{Credentials, Identity, SigningKey};
use rustls_next::pki_types::CertificateDer;

/// A chain of certificates, and the key of the first one.
#[derive(Debug)]
pub struct CertifiedKey {
    /// The chain.
    pub cert: Vec<CertificateDer<'static>>,
    credentials: Result<Credentials, Error>,
}

impl CertifiedKey {
    /// Certificates and a key that may not belong together.
    pub fn new(cert: Vec<CertificateDer<'static>>, key: Box<dyn SigningKey>) -> CertifiedKey {
        let identity = Identity::from_cert_chain(cert.clone()).map_err(Error::from);
        let credentials = identity.and_then(|identity| Credentials::new(Arc::new(identity), key));
        CertifiedKey { cert, credentials }
    }

    /// Whether the key is that of the first certificate.
    ///
    /// # Errors
    /// What is wrong.
    pub fn keys_match(&self) -> Result<(), Error> {
        self.credentials.as_ref().map(|_| ()).map_err(Error::clone)
    }

    /// What 0.24 has for it.
    ///
    /// # Errors
    /// As for [`keys_match`](CertifiedKey::keys_match).
    pub fn into_credentials(self) -> Result<Credentials, Error> {
        self.credentials
    }
}
