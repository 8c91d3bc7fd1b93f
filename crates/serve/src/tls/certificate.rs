//! Certificates, as far as errors have to name them.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use rustls::pki_types::CertificateDer;

/// Which certificate it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CertificateInfo {
    /// The common name of its subject, if it has one.
    pub common_name: Option<String>,
    /// The names of servers that it is for, wildcards included.
    pub names: Vec<String>,
    /// The common name of its issuer, if it has one.
    pub issuer: Option<String>,
    /// Its serial number, in hexadecimal digits.
    pub serial: String,
}

/// Why the certificate of a peer is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CertificateProblem {
    /// Its time is over.
    Expired {
        /// The time now; `None` if it is never valid, because its last day is before its first.
        now: Option<SystemTime>,
        /// The end of its time.
        not_after: Option<SystemTime>,
    },
    /// Its time has not come.
    NotYetValid {
        /// The time now.
        now: Option<SystemTime>,
        /// The begin of its time.
        not_before: Option<SystemTime>,
    },
    /// No authority that is trusted has issued it.
    UnknownIssuer,
    /// It is for other names.
    WrongName {
        /// The name that was asked for.
        expected: String,
        /// The names that it is for.
        names: Vec<String>,
    },
    /// Its issuer has revoked it.
    Revoked,
    /// The lists of revoked certificates do not cover it.
    RevocationUnknown,
    /// The list of revoked certificates that covers it is too old.
    RevocationListExpired {
        /// The time now.
        now: Option<SystemTime>,
        /// When the next list was due.
        next_update: Option<SystemTime>,
    },
    /// The list of revoked certificates that covers it cannot be used. The text is the name that
    /// rustls has for the reason.
    RevocationList(String),
    /// It is for another use, such as one for clients that a server sends.
    WrongUsage,
    /// Its signature, or that of the handshake, is not from the key that it should be from.
    BadSignature,
    /// Its signature is of a kind that is not supported.
    UnsupportedSignature,
    /// It cannot be read.
    Malformed,
    /// It has a critical extension that is not known here.
    CriticalExtension,
    /// Any other reason.
    Other(String),
}

/// A point in time for people, in UTC: `2026-11-26 06:36:09 UTC`.
struct Utc(Option<SystemTime>);

impl fmt::Display for Utc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let since = self.0.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        let Some(seconds) = since.map(|since| since.as_secs()) else {
            return f.write_str("an unknown time");
        };
        // Days and months, counted from the first of March of year 0, so that a leap day is the
        // last day of its year (Howard Hinnant, chrono-compatible low-level date algorithms).
        let days = seconds / 86400 + 719_468;
        let (era, day_of_era) = (days / 146_097, days % 146_097);
        let years =
            (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * years + years / 4 - years / 100);
        let shifted = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * shifted + 2) / 5 + 1;
        let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
        let year = era * 400 + years + u64::from(month <= 2);
        let (hour, minute) = (seconds / 3600 % 24, seconds / 60 % 60);
        write!(f, "{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{:02} UTC", seconds % 60)
    }
}

/// Names for people, separated by commas.
struct NameList<'a>(&'a [String]);

impl fmt::Display for NameList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A peer chooses the names, so a line of a log has only the first ones.
        const MOST: usize = 8;
        for (i, name) in self.0.iter().take(MOST).enumerate() {
            write!(f, "{}{}", if i == 0 { "" } else { ", " }, name.escape_debug())?;
        }
        match self.0.len() {
            0 => f.write_str("no name"),
            count if count > MOST => write!(f, " and {} more", count - MOST),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for CertificateProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use CertificateProblem as P;
        match self {
            P::Expired { not_after: None, .. } => f.write_str("it has expired"),
            P::Expired { now, not_after } => {
                write!(f, "it has expired at {}, and it is {}", Utc(*not_after), Utc(*now))
            }
            P::NotYetValid { not_before: None, .. } => f.write_str("its time has not come"),
            P::NotYetValid { now, not_before } => {
                write!(f, "it is valid from {} on, and it is {}", Utc(*not_before), Utc(*now))
            }
            P::UnknownIssuer => f.write_str("no trusted authority has issued it"),
            P::WrongName { expected, names } => {
                write!(f, "it is not for {expected:?}, but for {}", NameList(names))
            }
            P::Revoked => f.write_str("it is revoked"),
            P::RevocationUnknown => f.write_str("no list of revoked certificates covers it"),
            P::RevocationListExpired { next_update: None, .. } => {
                f.write_str("its list of revoked certificates is too old")
            }
            P::RevocationListExpired { now, next_update } => write!(
                f,
                "its list of revoked certificates was valid until {}, and it is {}",
                Utc(*next_update),
                Utc(*now)
            ),
            P::RevocationList(why) => {
                write!(f, "its list of revoked certificates cannot be used: {why}")
            }
            P::WrongUsage => f.write_str("it is for another use"),
            P::BadSignature => f.write_str("a signature is wrong"),
            P::UnsupportedSignature => f.write_str("its kind of signature is not supported"),
            P::Malformed => f.write_str("it cannot be read"),
            P::CriticalExtension => f.write_str("it has an unknown critical extension"),
            P::Other(why) => f.write_str(why),
        }
    }
}

impl fmt::Display for CertificateInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(name) = &self.common_name {
            write!(f, "{}, ", name.escape_debug())?;
        }
        write!(f, "for {}", NameList(&self.names))?;
        if let Some(issuer) = &self.issuer {
            write!(f, ", by {}", issuer.escape_debug())?;
        }
        write!(f, ", serial number {}", self.serial)
    }
}

impl CertificateInfo {
    /// Reads a certificate; `None` if it cannot be read.
    pub(super) fn read(der: &CertificateDer<'_>) -> Option<CertificateInfo> {
        let certificate = webpki::EndEntityCert::try_from(der).ok()?;
        let hex = |byte: &u8| format!("{byte:02x}");
        Some(CertificateInfo {
            common_name: common_name(certificate.subject()),
            names: certificate.valid_dns_names().map(str::to_owned).collect(),
            issuer: common_name(certificate.issuer()),
            serial: certificate.serial().iter().map(hex).collect(),
        })
    }
}

/// The first element of DER: its tag, its content, and what is behind it.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = der.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (len, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81 => (usize::from(*rest.first()?), &rest[1..]),
        0x82 => (usize::from(u16::from_be_bytes([*rest.first()?, *rest.get(1)?])), &rest[2..]),
        _ => return None, // no name is that long
    };
    let (content, rest) = rest.split_at_checked(len)?;
    Some((tag, content, rest))
}

/// The common name in the content of a `Name` ([RFC 5280], section 4.1.2.4).
///
/// [RFC 5280]: https://www.rfc-editor.org/rfc/rfc5280
fn common_name(mut name: &[u8]) -> Option<String> {
    const ID_AT_COMMON_NAME: &[u8] = &[0x55, 4, 3];
    while let Some((_, mut set, rest)) = element(name) {
        name = rest;
        while let Some((_, pair, rest)) = element(set) {
            set = rest;
            let (_, id, value) = element(pair)?;
            if id == ID_AT_COMMON_NAME {
                let (_, text, _) = element(value)?;
                return Some(String::from_utf8_lossy(text).into_owned());
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn times_are_for_people() {
        let at = |seconds| Utc(UNIX_EPOCH.checked_add(Duration::from_secs(seconds))).to_string();
        assert_eq!(at(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(at(951_782_400), "2000-02-29 00:00:00 UTC");
        assert_eq!(at(1_795_588_569), "2026-11-25 06:36:09 UTC");
        assert_eq!(at(4_107_542_399), "2100-02-28 23:59:59 UTC");
        assert_eq!(at(4_107_542_400), "2100-03-01 00:00:00 UTC");
        assert_eq!(Utc(None).to_string(), "an unknown time");
    }

    #[test]
    fn a_common_name_is_found_wherever_it_is() {
        let pair = |id: u8, text: &str| {
            let mut pair = vec![6, 3, 0x55, 4, id, 12, text.len() as u8];
            pair.extend(text.as_bytes());
            let sequence = [&[0x30, pair.len() as u8], &pair[..]].concat();
            [&[0x31, sequence.len() as u8], &sequence[..]].concat()
        };
        let name = [pair(10, "Windlass"), pair(3, "left.example"), pair(3, "later")].concat();
        assert_eq!(common_name(&name).as_deref(), Some("left.example"));
        assert_eq!(common_name(&pair(10, "Windlass")), None);
        // Every prefix of it, and every changed byte: no panic.
        for cut in 0..name.len() {
            let _ = common_name(&name[..cut]);
            for value in [0, 1, 0x7f, 0x80, 0x81, 0x82, 0x84, 0xff] {
                let mut changed = name.clone();
                changed[cut] = value;
                let _ = common_name(&changed);
            }
        }
    }

    #[test]
    fn lists_of_names_are_short() {
        let names: Vec<String> = (0..10).map(|i| format!("{i}.example")).collect();
        assert_eq!(NameList(&[]).to_string(), "no name");
        assert_eq!(NameList(&names[..2]).to_string(), "0.example, 1.example");
        assert!(NameList(&names).to_string().ends_with("7.example and 2 more"));
        assert_eq!(NameList(&["a\nb".to_owned()]).to_string(), "a\\nb");
    }
}
