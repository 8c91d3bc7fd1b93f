//! Who does the cryptography, and what of it is used.

use std::fmt;
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::server::ProducesTickets;
use rustls::{CipherSuite, ProtocolVersion, SupportedProtocolVersion};

use super::error::TlsError;

#[cfg(not(any(feature = "ring", feature = "aws-lc-rs")))]
compile_error!(
    "the feature `tls` of windlass-serve needs a provider of cryptography: enable its feature \
     `ring` or `aws-lc-rs`, too"
);

/// The library that does the cryptography.
///
/// With both features on, both work side by side, and [`Provider::default`] is `AwsLcRs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Provider {
    /// aws-lc-rs, with the feature `aws-lc-rs`. It has a key exchange that a quantum computer does
    /// not break (X25519MLKEM768), and prefers it.
    #[cfg(feature = "aws-lc-rs")]
    AwsLcRs,
    /// ring, with the feature `ring`. It builds faster and has fewer needs, and it has no key
    /// exchange that a quantum computer does not break.
    #[cfg(feature = "ring")]
    Ring,
}

#[allow(clippy::derivable_impls, reason = "which variants there are depends on the features")]
impl Default for Provider {
    fn default() -> Provider {
        Provider::ALL[0]
    }
}

impl Provider {
    /// Those that are there, the default first.
    pub const ALL: &'static [Provider] = &[
        #[cfg(feature = "aws-lc-rs")]
        Provider::AwsLcRs,
        #[cfg(feature = "ring")]
        Provider::Ring,
    ];

    /// The names of the suites that it has, the best first, as IANA has them.
    pub fn suites(self) -> Vec<String> {
        self.get().cipher_suites.iter().map(|suite| suite_name(suite.suite())).collect()
    }

    /// The names of the key exchanges that it has, the best first, as rustls has them.
    pub fn key_exchanges(self) -> Vec<String> {
        self.get().kx_groups.iter().map(|group| format!("{:?}", group.name())).collect()
    }

    fn get(self) -> CryptoProvider {
        match self {
            #[cfg(feature = "aws-lc-rs")]
            Provider::AwsLcRs => rustls::crypto::aws_lc_rs::default_provider(),
            #[cfg(feature = "ring")]
            Provider::Ring => rustls::crypto::ring::default_provider(),
        }
    }

    /// It, with these suites and key exchanges only; all if the lists are empty.
    pub(super) fn with(
        self,
        suites: &[String],
        key_exchanges: &[String],
    ) -> Result<Arc<CryptoProvider>, TlsError> {
        let mut provider = self.get();
        provider.cipher_suites = chosen(self, "suite", suites, provider.cipher_suites, |suite| {
            suite_name(suite.suite())
        })?;
        provider.kx_groups =
            chosen(self, "key exchange", key_exchanges, provider.kx_groups, |group| {
                format!("{:?}", group.name())
            })?;
        Ok(Arc::new(provider))
    }

    /// What encrypts tickets. Its keys change each 6 hours, and the last ones are kept as long.
    pub(super) fn ticketer(self) -> Result<Arc<dyn ProducesTickets>, TlsError> {
        Ok(match self {
            #[cfg(feature = "aws-lc-rs")]
            Provider::AwsLcRs => rustls::crypto::aws_lc_rs::Ticketer::new()?,
            #[cfg(feature = "ring")]
            Provider::Ring => rustls::crypto::ring::Ticketer::new()?,
        })
    }
}

/// Those of `all` that the names choose, in the order of the names.
fn chosen<T: Copy>(
    provider: Provider,
    what: &str,
    names: &[String],
    all: Vec<T>,
    name_of: impl Fn(T) -> String,
) -> Result<Vec<T>, TlsError> {
    if names.is_empty() {
        return Ok(all);
    }
    let find = |name: &String| {
        let found = all.iter().find(|one| name_of(**one).eq_ignore_ascii_case(name));
        found.copied().ok_or_else(|| {
            let all: Vec<String> = all.iter().map(|one| name_of(*one)).collect();
            let all = all.join(", ");
            TlsError::Setting(format!("{provider} has no {what} {name:?}, only {all}"))
        })
    };
    names.iter().map(find).collect()
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            #[cfg(feature = "aws-lc-rs")]
            Provider::AwsLcRs => "aws-lc-rs",
            #[cfg(feature = "ring")]
            Provider::Ring => "ring",
        })
    }
}

/// The name that IANA has for a suite. rustls marks those of TLS 1.3.
pub(super) fn suite_name(suite: CipherSuite) -> String {
    format!("{suite:?}").replacen("TLS13_", "TLS_", 1)
}

/// A version of TLS. Older ones are not safe, and are not supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Version {
    /// TLS 1.2, RFC 5246.
    Tls12,
    /// TLS 1.3, RFC 8446.
    Tls13,
}

impl Version {
    /// All that are supported.
    pub const ALL: &'static [Version] = &[Version::Tls12, Version::Tls13];

    pub(super) fn of(version: ProtocolVersion) -> Option<Version> {
        match version {
            ProtocolVersion::TLSv1_2 => Some(Version::Tls12),
            ProtocolVersion::TLSv1_3 => Some(Version::Tls13),
            _ => None,
        }
    }

    pub(super) fn get(self) -> &'static SupportedProtocolVersion {
        match self {
            Version::Tls12 => &rustls::version::TLS12,
            Version::Tls13 => &rustls::version::TLS13,
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Version::Tls12 => "TLS 1.2",
            Version::Tls13 => "TLS 1.3",
        })
    }
}
