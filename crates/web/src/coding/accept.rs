//! Which coding a client takes: `Accept-Encoding` (RFC 9110, section 12.5.3).

use super::ContentCoding;

/// What a client takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AcceptedCoding {
    /// The coding that it takes, and likes best of those that there are; `None`: none of them, or
    /// it likes a body without a coding better.
    pub(crate) coding: Option<ContentCoding>,
    /// Whether it refuses a body without a coding.
    pub(crate) refuses_plain: bool,
}

/// The weights of a client, in thousandths.
#[derive(Default)]
struct Weights {
    gzip: Option<u16>,
    deflate: Option<u16>,
    identity: Option<u16>,
    /// That of all which are not named.
    others: Option<u16>,
}

impl AcceptedCoding {
    /// What the values of a request's fields say. Without a field, or with a malformed one, the
    /// client gets a body without a coding, which all understand.
    pub(crate) fn of<'a>(values: impl IntoIterator<Item = &'a [u8]>) -> AcceptedCoding {
        Weights::of(values).map(|weights| weights.best()).unwrap_or_default()
    }
}

/// Whether a client takes gzip, and likes it as well as a body without a coding.
pub(crate) fn takes_gzip<'a>(values: impl IntoIterator<Item = &'a [u8]>) -> bool {
    Weights::of(values).is_some_and(|weights| weights.takes(weights.gzip))
}

impl Weights {
    /// Those of all fields; `None` if one is malformed.
    fn of<'a>(values: impl IntoIterator<Item = &'a [u8]>) -> Option<Weights> {
        let mut weights = Weights::default();
        values.into_iter().try_for_each(|value| weights.add(value))?;
        Some(weights)
    }

    /// Adds those of a field; `None` if it is malformed.
    fn add(&mut self, value: &[u8]) -> Option<()> {
        // Empty elements are nothing: RFC 9110, section 5.6.1.2.
        let elements = value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
        for element in elements.filter(|element| !element.is_empty()) {
            let (name, weight) = parse(element)?;
            let of_name = match name {
                "*" => &mut self.others,
                _ if name.eq_ignore_ascii_case("identity") => &mut self.identity,
                _ => match ContentCoding::of(name) {
                    Some(ContentCoding::Gzip) => &mut self.gzip,
                    Some(ContentCoding::Deflate) => &mut self.deflate,
                    None => continue,
                },
            };
            // A client that says two things refuses if one of them does.
            *of_name = Some(of_name.map_or(weight, |other| other.min(weight)));
        }
        Some(())
    }

    /// The weight of a coding.
    fn weight(&self, named: Option<u16>) -> u16 {
        named.or(self.others).unwrap_or(0)
    }

    /// Whether a coding is taken, and liked as well as none.
    fn takes(&self, named: Option<u16>) -> bool {
        // What is not named is taken without a coding, but liked least.
        let (weight, plain) = (self.weight(named), self.identity.unwrap_or(0));
        weight > 0 && weight >= plain
    }

    fn best(&self) -> AcceptedCoding {
        let (coding, named) = match self.weight(self.gzip) >= self.weight(self.deflate) {
            true => (ContentCoding::Gzip, self.gzip),
            false => (ContentCoding::Deflate, self.deflate),
        };
        AcceptedCoding {
            coding: self.takes(named).then_some(coding),
            refuses_plain: self.identity.or(self.others) == Some(0),
        }
    }
}

/// The name and the weight of an element: `gzip;q=0.5`.
fn parse(element: &[u8]) -> Option<(&str, u16)> {
    let element = std::str::from_utf8(element).ok()?;
    let (name, weight) = match element.split_once(';') {
        None => (element, 1000),
        Some((name, weight)) => (name.trim_ascii_end(), parse_weight(weight.trim_ascii_start())?),
    };
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    (!name.is_empty() && name.bytes().all(is_token)).then_some((name, weight))
}

/// A weight in thousandths: `q=0.5` (RFC 9110, section 12.4.2).
fn parse_weight(text: &str) -> Option<u16> {
    let value = text.strip_prefix("q=").or_else(|| text.strip_prefix("Q="))?;
    let (whole, rest) = value.split_at_checked(1)?;
    let digits = match rest {
        "" => "",
        _ => rest.strip_prefix('.').filter(|digits| digits.len() <= 3)?,
    };
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let thousandths = digits.bytes().chain([b'0'; 3]).take(3);
    let part = thousandths.fold(0, |sum, digit| 10 * sum + u16::from(digit - b'0'));
    match (whole, part) {
        ("0", part) => Some(part),
        ("1", 0) => Some(1000),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use ContentCoding::{Deflate, Gzip};

    #[test]
    fn a_client_gets_what_it_likes_best() {
        for (value, coding, refuses_plain) in [
            ("", None, false),
            ("gzip", Some(Gzip), false),
            ("GZip", Some(Gzip), false),
            ("x-gzip", Some(Gzip), false),
            ("deflate", Some(Deflate), false),
            ("deflate, gzip", Some(Gzip), false),
            ("gzip, deflate, br, zstd", Some(Gzip), false),
            ("gzip;q=0.5, deflate", Some(Deflate), false),
            ("gzip;q=0.5, deflate;q=0.501", Some(Deflate), false),
            ("gzip;q=0.001", Some(Gzip), false),
            ("gzip ; q=1.000", Some(Gzip), false),
            ("gzip;Q=0.3,, ,", Some(Gzip), false),
            ("gzip;q=0", None, false),
            ("gzip;q=0.000, deflate;q=0.", None, false),
            ("*", Some(Gzip), false),
            ("*;q=0.1", Some(Gzip), false),
            ("gzip;q=0, *", Some(Deflate), false),
            ("gzip;q=0.2, *;q=0.5", Some(Deflate), false),
            ("*;q=0", None, true),
            ("gzip, *;q=0", Some(Gzip), true),
            ("br", None, false),
            ("br;q=1, *;q=0", None, true),
            ("identity", None, false),
            ("identity, gzip", Some(Gzip), false),
            ("identity, gzip;q=0.9", None, false),
            ("identity;q=0.5, gzip;q=0.9", Some(Gzip), false),
            ("identity;q=0", None, true),
            ("identity;q=0, gzip", Some(Gzip), true),
            ("identity;q=0, *;q=0.1", Some(Gzip), true),
            ("identity;q=0.1, *;q=0", None, false),
            ("gzip;q=0, gzip", None, false),
            ("compress, gzip-like", None, false),
        ] {
            let accepted = AcceptedCoding { coding, refuses_plain };
            assert_eq!(AcceptedCoding::of([value.as_bytes()]), accepted, "{value:?}");
        }
        assert_eq!(AcceptedCoding::of([]), AcceptedCoding::default());
        let two = AcceptedCoding::of([&b"gzip;q=0.1"[..], b"deflate"]);
        assert_eq!(two.coding, Some(Deflate));
    }

    #[test]
    fn a_file_is_sent_as_gzip_to_those_that_take_it() {
        for (value, takes) in [
            ("gzip", true),
            ("br, GZIP ; q=0.5", true),
            ("x-gzip", true),
            ("*", true),
            ("*;q=0", false),
            ("gzip;q=0", false),
            ("gzip;q=0.000, *", false),
            ("gzip;q=0.001", true),
            ("gzip;q=0.5, deflate", true),
            ("*;q=0, gzip", true),
            ("identity, gzip;q=0.9", false),
            ("gzippy", false),
            ("gzip;", false),
            ("", false),
        ] {
            assert_eq!(takes_gzip([value.as_bytes()]), takes, "{value}");
        }
        assert!(takes_gzip([&b"br"[..], b"gzip"]), "on a second line");
        assert!(!takes_gzip([]));
    }

    #[test]
    fn a_malformed_field_takes_a_plain_body() {
        for value in [
            "gzip;q=2",
            "gzip;q=1.001",
            "gzip;q=1.0000",
            "gzip;q=0.0001",
            "gzip;q=-1",
            "gzip;q=+1",
            "gzip;q= 1",
            "gzip;q =1",
            "gzip;q",
            "gzip;",
            "gzip;;q=1",
            "gzip;q=1;a=b",
            "gzip;level=9",
            "gzip;q=.5",
            "gzip;q=0x1",
            "gz ip",
            "gzip deflate",
            "gzip; deflate",
            ";q=1",
            "\"gzip\"",
            "gzip\u{e9}",
            "gzip/1",
        ] {
            let with_others = format!("deflate, {value}, identity;q=0");
            assert_eq!(
                AcceptedCoding::of([with_others.as_bytes()]),
                AcceptedCoding::default(),
                "{value:?}"
            );
        }
        assert_eq!(AcceptedCoding::of([&b"gzip"[..], b"\xff"]), AcceptedCoding::default());
    }
}
