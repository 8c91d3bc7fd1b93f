//! The certificates of a server, by the names that clients ask for.

use std::collections::HashMap;
use std::sync::Arc;

use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

/// Several certificates may have the same name, with keys of different kinds.
#[derive(Debug, Default)]
pub(super) struct CertificateNames {
    /// By name, in lower case. The name of a wildcard begins with `*.`.
    of: HashMap<String, Vec<Arc<CertifiedKey>>>,
    /// For every other name, and for clients that ask for none.
    others: Vec<Arc<CertifiedKey>>,
}

impl CertificateNames {
    pub(super) fn add(&mut self, names: Vec<String>, identity: Arc<CertifiedKey>) {
        for name in names {
            let name = name.trim_end_matches('.').to_ascii_lowercase();
            self.of.entry(name).or_default().push(Arc::clone(&identity));
        }
    }

    pub(super) fn add_for_others(&mut self, identity: Arc<CertifiedKey>) {
        self.others.push(identity);
    }

    /// The certificates for a name: those with the name itself, or else with a wildcard in place of
    /// its first label ([RFC 9525], section 6.3), or else the general ones.
    ///
    /// [RFC 9525]: https://www.rfc-editor.org/rfc/rfc9525
    fn find(&self, name: &str) -> &[Arc<CertifiedKey>] {
        let wildcard = || self.of.get(&format!("*.{}", name.split_once('.')?.1));
        self.of.get(name).or_else(wildcard).unwrap_or(&self.others)
    }
}

impl ResolvesServerCert for CertificateNames {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let found = match hello.server_name() {
            Some(name) => self.find(&name.to_ascii_lowercase()),
            None => &self.others,
        };
        let schemes = hello.signature_schemes();
        let usable = found.iter().find(|one| one.key.choose_scheme(schemes).is_some());
        // With one that is not usable the handshake says what is missing.
        usable.or(found.first()).cloned()
    }
}
