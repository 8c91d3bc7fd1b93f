//! What can be wrong with TLS: with the settings, and with a connection.

use std::path::PathBuf;
use std::sync::Arc;
use std::{fmt, io};

use super::certificate::{CertificateInfo, CertificateProblem};
use super::pem::PemProblem;

/// What is wrong with settings of TLS, or why a connection has failed.
///
/// Its text is for people: it names the file, the certificate, the name and the time that matter.
///
/// ```
/// use windlass_serve::tls::{Error, Tls};
///
/// let error = Tls::pem("/no/such/file.pem", "/no/such/key.pem").unwrap_err();
/// assert!(matches!(error, Error::File { .. }));
/// assert!(error.to_string().starts_with("/no/such/file.pem: "));
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read.
    File {
        /// Its path.
        path: PathBuf,
        /// Why, as the system says it.
        error: Arc<io::Error>,
    },
    /// A file, or what was given as bytes, has not the certificates, the key or the lists that it
    /// should have.
    Pem {
        /// The path, or which bytes.
        from: String,
        /// What is wrong with it.
        problem: PemProblem,
    },
    /// The key is not that of the certificate.
    KeyMismatch {
        /// The path of the certificates, or which bytes.
        certificates: String,
        /// The path of the key, or which bytes.
        key: String,
    },
    /// There are several certificates, and this one has no name of a server to choose it by.
    NoName {
        /// The path, or which bytes.
        from: String,
    },
    /// A server needs a certificate, and has none.
    NoCertificate,
    /// Peers are to be checked, and there is no authority to trust.
    NoRoots,
    /// The authorities of the system cannot be used.
    SystemRoots(String),
    /// This is no name of a server.
    BadName(String),
    /// A setting is unknown to the provider, or several settings exclude each other.
    Setting(String),
    /// The system has no random bytes.
    NoRandomness,

    /// The certificate of the peer is refused.
    Certificate {
        /// Why.
        problem: CertificateProblem,
        /// Which one it is, as far as it could be read.
        certificate: Option<Box<CertificateInfo>>,
    },
    /// The client has asked for a name that the server has no certificate for, or for none, and the
    /// server refuses that.
    UnknownName(Option<String>),
    /// The peer has sent no certificate, and has to.
    NoPeerCertificate,
    /// The peer does not speak TLS.
    NotTls {
        /// What its first bytes look like, such as HTTP, if that is known.
        looks_like: Option<&'static str>,
    },
    /// The peer has sent more bytes than the limit, and the handshake is not done.
    HandshakeTooLong {
        /// The limit, in bytes.
        limit: usize,
    },
    /// The connection has ended without `close_notify`: an attacker may have cut it.
    Truncated,
    /// The connection has ended, and the handshake was not done.
    HandshakeCut,
    /// The peer has refused the connection, or has given it up, with this alert.
    Alert(Alert),
    /// Both ends have no version, suite or other feature of TLS in common. The text is the name
    /// that rustls has for it.
    Incompatible(String),
    /// Both ends have no protocol in common (ALPN).
    NoProtocol,
    /// A record was changed on its way, was sent twice, or comes out of order.
    BadRecord,
    /// A record is longer than TLS allows.
    RecordTooLong,
    /// A message of the peer cannot be read. The text is the name that rustls has for the reason.
    BadMessage(String),
    /// A message of the peer is not allowed where it comes, such as data before the end of the
    /// handshake. The text says what came.
    Unexpected(String),
    /// The peer breaks a rule of TLS. The text is the name that rustls has for the rule.
    Misbehaved(String),
    /// The keys of this connection have encrypted as much as is safe. Only TLS 1.2 has this end:
    /// TLS 1.3 changes the keys.
    KeysExhausted,
    /// The handshake is not done, so nothing can be written yet. The connection goes on.
    Handshaking,
    /// This end has sent `close_notify`, so nothing more can be written.
    Closed,
    /// Anything else that rustls reports.
    Other(String),
}

/// What a peer says when it refuses a connection or gives it up: a number and a name of [RFC 8446].
///
/// [RFC 8446]: https://www.rfc-editor.org/rfc/rfc8446#section-6
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Alert(pub u8);

impl Alert {
    /// The name in the RFCs; "unknown" for a number that they do not have.
    ///
    /// ```
    /// use windlass_serve::tls::Alert;
    /// assert_eq!(Alert(48).name(), "unknown_ca");
    /// ```
    pub fn name(self) -> &'static str {
        match self.0 {
            0 => "close_notify",
            10 => "unexpected_message",
            20 => "bad_record_mac",
            21 => "decryption_failed",
            22 => "record_overflow",
            30 => "decompression_failure",
            40 => "handshake_failure",
            41 => "no_certificate",
            42 => "bad_certificate",
            43 => "unsupported_certificate",
            44 => "certificate_revoked",
            45 => "certificate_expired",
            46 => "certificate_unknown",
            47 => "illegal_parameter",
            48 => "unknown_ca",
            49 => "access_denied",
            50 => "decode_error",
            51 => "decrypt_error",
            60 => "export_restriction",
            70 => "protocol_version",
            71 => "insufficient_security",
            80 => "internal_error",
            86 => "inappropriate_fallback",
            90 => "user_canceled",
            100 => "no_renegotiation",
            109 => "missing_extension",
            110 => "unsupported_extension",
            111 => "certificate_unobtainable",
            112 => "unrecognized_name",
            113 => "bad_certificate_status_response",
            114 => "bad_certificate_hash_value",
            115 => "unknown_psk_identity",
            116 => "certificate_required",
            120 => "no_application_protocol",
            _ => "unknown",
        }
    }
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use TlsError as E;
        match self {
            E::File { path, error } => write!(f, "{}: {error}", path.display()),
            E::Pem { from, problem } => write!(f, "{from}: {problem}"),
            E::KeyMismatch { certificates, key } => {
                write!(f, "{key}: this is not the key of the certificate in {certificates}")
            }
            E::NoName { from } => {
                write!(f, "{from}: the certificate has no name of a server to choose it by")
            }
            E::NoCertificate => f.write_str("a server needs a certificate"),
            E::NoRoots => f.write_str("there is no authority to check certificates with"),
            E::SystemRoots(why) => write!(f, "the authorities of the system: {why}"),
            E::BadName(name) => write!(f, "{name:?} is no name of a server"),
            E::Setting(what) => f.write_str(what),
            E::NoRandomness => f.write_str("the system has no random bytes"),
            E::Certificate { problem, certificate: None } => {
                write!(f, "the certificate of the peer is refused: {problem}")
            }
            E::Certificate { problem, certificate: Some(which) } => {
                write!(f, "the certificate of the peer ({which}) is refused: {problem}")
            }
            E::UnknownName(Some(name)) => write!(f, "no certificate for {name:?}"),
            E::UnknownName(None) => f.write_str("the client has asked for no name of a server"),
            E::NoPeerCertificate => f.write_str("the peer has sent no certificate"),
            E::NotTls { looks_like: Some(what) } => {
                write!(f, "the peer does not speak TLS, but {what}")
            }
            E::NotTls { looks_like: None } => f.write_str("the peer does not speak TLS"),
            E::HandshakeTooLong { limit } => {
                write!(f, "the handshake is not done after {limit} bytes")
            }
            E::Truncated => f.write_str("the connection has ended without close_notify"),
            E::HandshakeCut => f.write_str("the connection has ended in the handshake"),
            E::Alert(alert) => write!(f, "the peer has sent the alert {alert}"),
            E::Incompatible(what) => write!(f, "nothing in common with the peer: {what}"),
            E::NoProtocol => f.write_str("no protocol (ALPN) in common with the peer"),
            E::BadRecord => f.write_str("a record of the peer cannot be decrypted"),
            E::RecordTooLong => f.write_str("a record of the peer is too long"),
            E::BadMessage(why) => write!(f, "a message of the peer cannot be read: {why}"),
            E::Unexpected(what) => write!(f, "an unexpected message of the peer: {what}"),
            E::Misbehaved(how) => write!(f, "the peer breaks a rule of TLS: {how}"),
            E::KeysExhausted => f.write_str("the keys of the connection are used up"),
            E::Handshaking => f.write_str("the handshake is not done"),
            E::Closed => f.write_str("this end has sent close_notify"),
            E::Other(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for TlsError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            TlsError::File { error, .. } => Some(&**error),
            _ => None,
        }
    }
}

/// So that programs which read and write by `std::io` can pass it on.
impl From<TlsError> for io::Error {
    fn from(error: TlsError) -> io::Error {
        let kind = match &error {
            TlsError::File { error, .. } => error.kind(),
            TlsError::Truncated | TlsError::HandshakeCut => io::ErrorKind::UnexpectedEof,
            TlsError::Handshaking => io::ErrorKind::WouldBlock,
            TlsError::Closed => io::ErrorKind::BrokenPipe,
            TlsError::NoCertificate
            | TlsError::NoRoots
            | TlsError::BadName(_)
            | TlsError::Setting(_) => io::ErrorKind::InvalidInput,
            _ => io::ErrorKind::InvalidData,
        };
        io::Error::new(kind, error)
    }
}

impl fmt::Display for Alert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name(), self.0)
    }
}
