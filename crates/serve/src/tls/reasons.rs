//! What rustls reports, in the words of this crate.
//!
//! # Why
//!
//! The reasons that rustls has change with its versions. So they have a file of their own, beside
//! [`adapter`](super::adapter).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls::pki_types::UnixTime;
use rustls::{CertificateError, InvalidMessage};

use super::certificate::CertificateProblem;
use super::error::{Alert, TlsError};

/// What rustls reports, without the certificate that it is about.
impl From<rustls::Error> for TlsError {
    fn from(error: rustls::Error) -> TlsError {
        use rustls::Error as R;
        match error {
            R::InvalidCertificate(why) => {
                TlsError::Certificate { problem: why.into(), certificate: None }
            }
            R::InvalidCertRevocationList(why) => TlsError::Certificate {
                problem: CertificateProblem::RevocationList(format!("{why:?}")),
                certificate: None,
            },
            R::NoCertificatesPresented => TlsError::NoPeerCertificate,
            R::AlertReceived(alert) => TlsError::Alert(Alert(alert.into())),
            R::PeerIncompatible(what) => TlsError::Incompatible(format!("{what:?}")),
            R::PeerMisbehaved(how) => TlsError::Misbehaved(format!("{how:?}")),
            R::NoApplicationProtocol => TlsError::NoProtocol,
            R::DecryptError => TlsError::BadRecord,
            R::PeerSentOversizedRecord => TlsError::RecordTooLong,
            R::InvalidMessage(InvalidMessage::MessageTooLarge) => TlsError::RecordTooLong,
            R::InvalidMessage(why) => TlsError::BadMessage(format!("{why:?}")),
            R::InappropriateMessage { got_type, .. } => {
                TlsError::Unexpected(format!("{got_type:?}"))
            }
            R::InappropriateHandshakeMessage { got_type, .. } => {
                TlsError::Unexpected(format!("{got_type:?}"))
            }
            R::General(what) => TlsError::Other(what),
            R::FailedToGetRandomBytes => TlsError::NoRandomness,
            other => TlsError::Other(other.to_string()),
        }
    }
}

/// The name of a server in `DnsName("name")`; other kinds of names stay as they are.
fn name_of(presented: String) -> String {
    let name = presented.strip_prefix("DnsName(\"").and_then(|name| name.strip_suffix("\")"));
    name.map(str::to_owned).unwrap_or(presented)
}

fn time(at: UnixTime) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(Duration::from_secs(at.as_secs()))
}

impl From<CertificateError> for CertificateProblem {
    fn from(error: CertificateError) -> CertificateProblem {
        use CertificateError as C;
        use CertificateProblem as P;
        #[allow(deprecated, reason = "a verifier may still use the variants without a context")]
        match error {
            C::Expired => P::Expired { now: None, not_after: None },
            C::ExpiredContext { time: now, not_after } => {
                P::Expired { now: time(now), not_after: time(not_after) }
            }
            C::NotValidYet => P::NotYetValid { now: None, not_before: None },
            C::NotValidYetContext { time: now, not_before } => {
                P::NotYetValid { now: time(now), not_before: time(not_before) }
            }
            C::UnknownIssuer => P::UnknownIssuer,
            C::NotValidForName => P::WrongName { expected: String::new(), names: Vec::new() },
            C::NotValidForNameContext { expected, presented } => P::WrongName {
                expected: expected.to_str().into_owned(),
                names: presented.into_iter().map(name_of).collect(),
            },
            C::Revoked => P::Revoked,
            C::UnknownRevocationStatus => P::RevocationUnknown,
            C::ExpiredRevocationList => P::RevocationListExpired { now: None, next_update: None },
            C::ExpiredRevocationListContext { time: now, next_update } => {
                P::RevocationListExpired { now: time(now), next_update: time(next_update) }
            }
            C::InvalidPurpose | C::InvalidPurposeContext { .. } => P::WrongUsage,
            C::BadSignature => P::BadSignature,
            C::UnsupportedSignatureAlgorithm
            | C::UnsupportedSignatureAlgorithmContext { .. }
            | C::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => P::UnsupportedSignature,
            C::BadEncoding => P::Malformed,
            C::UnhandledCriticalExtension => P::CriticalExtension,
            other => P::Other(other.to_string()),
        }
    }
}
