//! Certificates, keys and lists of revoked certificates in PEM, from files or from bytes.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fmt, fs};

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{InconsistentKeys, RootCertStore};

use super::error::TlsError;

/// Where certificates, a key or lists of revoked certificates are, in PEM: a file, or bytes.
///
/// A path, or a string with one, is a file. Bytes have a function of their own.
///
/// ```
/// use windlass_serve::tls::Pem;
///
/// let file = Pem::from("/etc/ssl/private/example.pem");
/// assert_eq!(format!("{file:?}"), "Pem(/etc/ssl/private/example.pem)");
/// // The bytes may be a secret.
/// assert_eq!(format!("{:?}", Pem::bytes("-----BEGIN")), "Pem(10 bytes)");
/// ```
#[derive(Clone)]
pub struct Pem(PemPlace);

#[derive(Clone)]
enum PemPlace {
    File(PathBuf),
    Bytes(Arc<[u8]>),
}

/// What is wrong with a PEM file, or with bytes that should be PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PemProblem {
    /// It is empty.
    Empty,
    /// It is no PEM, but looks like DER: `openssl x509 -inform der` or `openssl pkey -inform der`
    /// makes PEM of it.
    Binary,
    /// Nothing in it is PEM.
    NotPem,
    /// A section has no end, or its text is damaged: a file that somebody is writing looks so.
    Damaged(String),
    /// It has no certificate.
    NoCertificate,
    /// It has no private key.
    NoKey,
    /// It has a private key that is encrypted, which is not supported: `openssl pkey -in` makes one
    /// without a password.
    EncryptedKey,
    /// It has no list of revoked certificates.
    NoList,
    /// The certificate with this number, from 1 on, cannot be used.
    BadCertificate {
        /// Which one of those in it.
        number: usize,
        /// Why.
        why: String,
    },
    /// The private key cannot be used.
    BadKey(String),
    /// The list of revoked certificates with this number, from 1 on, cannot be used.
    BadList {
        /// Which one of those in it.
        number: usize,
        /// Why.
        why: String,
    },
}

impl Pem {
    /// A file. It is read when settings are made of it, and again by
    /// [`Tls::reload`](super::Tls::reload).
    pub fn file(path: impl Into<PathBuf>) -> Pem {
        Pem(PemPlace::File(path.into()))
    }

    /// These bytes.
    pub fn bytes(bytes: impl AsRef<[u8]>) -> Pem {
        Pem(PemPlace::Bytes(bytes.as_ref().into()))
    }

    /// How errors name it.
    fn name(&self) -> String {
        match &self.0 {
            PemPlace::File(path) => path.display().to_string(),
            PemPlace::Bytes(bytes) => format!("{} bytes of PEM", bytes.len()),
        }
    }

    fn wrong(&self, problem: PemProblem) -> TlsError {
        TlsError::Pem { from: self.name(), problem }
    }

    fn read(&self) -> Result<Arc<[u8]>, TlsError> {
        let bytes = match &self.0 {
            PemPlace::File(path) => match fs::read(path) {
                Ok(bytes) => bytes.into(),
                Err(error) => {
                    return Err(TlsError::File { path: path.clone(), error: Arc::new(error) });
                }
            },
            PemPlace::Bytes(bytes) => Arc::clone(bytes),
        };
        if bytes.trim_ascii().is_empty() { Err(self.wrong(PemProblem::Empty)) } else { Ok(bytes) }
    }

    /// All sections of a kind.
    fn sections<T: PemObject>(&self, text: &[u8], none: PemProblem) -> Result<Vec<T>, TlsError> {
        let damaged = |error: pem::Error| self.wrong(PemProblem::Damaged(error.to_string()));
        let sections: Vec<T> =
            T::pem_slice_iter(text).collect::<Result<_, _>>().map_err(damaged)?;
        if sections.is_empty() { Err(self.wrong(nothing(text, none))) } else { Ok(sections) }
    }

    /// The certificates, in their order.
    pub(super) fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, TlsError> {
        self.sections(&self.read()?, PemProblem::NoCertificate)
    }

    /// The first private key.
    fn key(&self) -> Result<PrivateKeyDer<'static>, TlsError> {
        let text = self.read()?;
        let is_encrypted = has(&text, b"-----BEGIN ENCRYPTED PRIVATE KEY-----")
            || has(&text, b"Proc-Type: 4,ENCRYPTED");
        let none = if is_encrypted { PemProblem::EncryptedKey } else { PemProblem::NoKey };
        match self.sections(&text, none) {
            Ok(mut keys) => Ok(keys.swap_remove(0)),
            // The old form of an encrypted key has lines that are no base64.
            Err(_) if is_encrypted => Err(self.wrong(PemProblem::EncryptedKey)),
            Err(error) => Err(error),
        }
    }

    /// The lists of revoked certificates.
    pub(super) fn lists(&self) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsError> {
        let lists: Vec<CertificateRevocationListDer<'static>> =
            self.sections(&self.read()?, PemProblem::NoList)?;
        for (i, list) in lists.iter().enumerate() {
            webpki::BorrowedCertRevocationList::from_der(list).map_err(|error| {
                self.wrong(PemProblem::BadList { number: i + 1, why: format!("{error:?}") })
            })?;
        }
        Ok(lists)
    }

    /// Adds its certificates to those that are trusted.
    pub(super) fn add_roots(&self, roots: &mut RootCertStore) -> Result<(), TlsError> {
        for (i, certificate) in self.certificates()?.into_iter().enumerate() {
            roots.add(certificate).map_err(|error| self.bad_certificate(i, &error))?;
        }
        Ok(())
    }

    fn bad_certificate(&self, at: usize, error: &dyn fmt::Display) -> TlsError {
        self.wrong(PemProblem::BadCertificate { number: at + 1, why: error.to_string() })
    }
}

/// The certificates of this end and its key, once they are known to belong together.
pub(super) fn identity(
    certificates: &Pem,
    key: &Pem,
    provider: &CryptoProvider,
) -> Result<CertifiedKey, TlsError> {
    let chain = certificates.certificates()?;
    for (i, certificate) in chain.iter().enumerate() {
        webpki::EndEntityCert::try_from(certificate)
            .map_err(|error| certificates.bad_certificate(i, &error))?;
    }
    let bad_key = |error| key.wrong(PemProblem::BadKey(TlsError::from(error).to_string()));
    let signer = provider.key_provider.load_private_key(key.key()?).map_err(bad_key)?;
    let identity = CertifiedKey::new(chain, signer);
    match identity.keys_match() {
        // A key that does not say its public half cannot be compared.
        Ok(()) | Err(rustls::Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(identity),
        Err(rustls::Error::InconsistentKeys(_)) => {
            Err(TlsError::KeyMismatch { certificates: certificates.name(), key: key.name() })
        }
        Err(error) => Err(certificates.bad_certificate(0, &error)),
    }
}

/// The names of servers that a certificate is for. An error names the file.
pub(super) fn names(certificates: &Pem, identity: &CertifiedKey) -> Result<Vec<String>, TlsError> {
    let first = identity.cert.first().and_then(|der| webpki::EndEntityCert::try_from(der).ok());
    let names: Vec<String> = first
        .iter()
        .flat_map(|first| first.valid_dns_names())
        .map(str::to_ascii_lowercase)
        .collect();
    match names.is_empty() {
        true => Err(TlsError::NoName { from: certificates.name() }),
        false => Ok(names),
    }
}

fn has(text: &[u8], part: &[u8]) -> bool {
    memchr::memmem::find(text, part).is_some()
}

/// Why a text has no section of the right kind.
fn nothing(text: &[u8], none: PemProblem) -> PemProblem {
    if has(text, b"-----BEGIN ") {
        none
    } else if text.starts_with(&[0x30]) && text.len() > 1 && !text.is_ascii() {
        PemProblem::Binary // a sequence of DER, as certificates and keys are
    } else {
        PemProblem::NotPem
    }
}

impl From<&str> for Pem {
    fn from(path: &str) -> Pem {
        Pem::file(path)
    }
}

impl From<String> for Pem {
    fn from(path: String) -> Pem {
        Pem::file(path)
    }
}

impl From<&Path> for Pem {
    fn from(path: &Path) -> Pem {
        Pem::file(path)
    }
}

impl From<PathBuf> for Pem {
    fn from(path: PathBuf) -> Pem {
        Pem::file(path)
    }
}

impl From<&PathBuf> for Pem {
    fn from(path: &PathBuf) -> Pem {
        Pem::file(path)
    }
}

impl fmt::Debug for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            PemPlace::File(path) => write!(f, "Pem({})", path.display()),
            PemPlace::Bytes(bytes) => write!(f, "Pem({} bytes)", bytes.len()),
        }
    }
}

impl fmt::Display for PemProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use PemProblem as P;
        match self {
            P::Empty => f.write_str("it is empty"),
            P::Binary => f.write_str("it is binary (DER), and should be PEM"),
            P::NotPem => f.write_str("it is no PEM"),
            P::Damaged(why) => write!(f, "its PEM is damaged: {why}"),
            P::NoCertificate => f.write_str("it has no certificate"),
            P::NoKey => f.write_str("it has no private key"),
            P::EncryptedKey => f.write_str("its private key has a password"),
            P::NoList => f.write_str("it has no list of revoked certificates"),
            P::BadCertificate { number, why } => {
                write!(f, "certificate {number} of it cannot be used: {why}")
            }
            P::BadKey(why) => write!(f, "its private key cannot be used: {why}"),
            P::BadList { number, why } => {
                write!(f, "list {number} of revoked certificates in it cannot be used: {why}")
            }
        }
    }
}
