//! What rustls 0.24 reports, in the words of windlass-serve.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls_next::error::{CertificateError, InvalidMessage, PeerMisbehaved};
use rustls_next::pki_types::UnixTime;

use super::certificate::CertificateProblem;
use super::error::{Alert, TlsError};

impl From<rustls_next::Error> for TlsError {
    fn from(error: rustls_next::Error) -> TlsError {
        use rustls_next::Error as R;
        match error {
            R::InvalidCertificate(why) => {
                TlsError::Certificate { problem: why.into(), certificate: None }
            }
            R::InvalidCertRevocationList(why) => TlsError::Certificate {
                problem: CertificateProblem::RevocationList(format!("{why:?}")),
                certificate: None,
            },
            R::PeerMisbehaved(PeerMisbehaved::NoCertificatesPresented) => {
                TlsError::NoPeerCertificate
            }
            R::AlertReceived(alert) => TlsError::Alert(Alert(alert.0)),
            R::PeerIncompatible(what) => TlsError::Incompatible(format!("{what:?}")),
            R::PeerMisbehaved(how) => TlsError::Misbehaved(format!("{how:?}")),
            R::NoApplicationProtocol => TlsError::NoProtocol,
            R::DecryptError => TlsError::BadRecord,
            R::PeerSentOversizedRecord | R::InvalidMessage(InvalidMessage::MessageTooLarge) => {
                TlsError::RecordTooLong
            }
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

fn time(at: UnixTime) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(Duration::from_secs(at.as_secs()))
}

impl From<CertificateError> for CertificateProblem {
    fn from(error: CertificateError) -> CertificateProblem {
        use CertificateError as C;
        use CertificateProblem as P;
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
            C::NotValidForNameContext { expected, presented } => {
                P::WrongName { expected: expected.to_str().into_owned(), names: presented }
            }
            C::Revoked => P::Revoked,
            C::UnknownRevocationStatus => P::RevocationUnknown,
            C::ExpiredRevocationList => P::RevocationListExpired { now: None, next_update: None },
            C::ExpiredRevocationListContext { time: now, next_update } => {
                P::RevocationListExpired { now: time(now), next_update: time(next_update) }
            }
            C::InvalidPurpose | C::InvalidPurposeContext { .. } => P::WrongUsage,
            C::BadSignature => P::BadSignature,
            C::UnsupportedSignatureAlgorithm { .. }
            | C::UnsupportedSignatureAlgorithmForPublicKey { .. } => P::UnsupportedSignature,
            C::BadEncoding => P::Malformed,
            C::UnhandledCriticalExtension => P::CriticalExtension,
            other => P::Other(other.to_string()),
        }
    }
}
