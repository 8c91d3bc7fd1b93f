//! Whether a client takes gzip (RFC 9110, 12.5.3).

/// Whether these values of `Accept-Encoding` take gzip. A weight of 0 means that they do not; `*`
/// stands for codings that are not named.
pub(crate) fn accepts_gzip<'a>(values: impl Iterator<Item = &'a [u8]>) -> bool {
    let (mut named, mut others) = (None, false);
    for value in values {
        for element in value.split(|byte| *byte == b',') {
            let mut parts = element.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
            let coding = parts.next().unwrap_or_default();
            let is_taken = !parts.any(is_zero);
            if coding.eq_ignore_ascii_case(b"gzip") || coding.eq_ignore_ascii_case(b"x-gzip") {
                named = Some(is_taken);
            } else if coding == b"*" {
                others = is_taken;
            }
        }
    }
    named.unwrap_or(others)
}

/// Whether a parameter is a weight of 0.
fn is_zero(parameter: &[u8]) -> bool {
    let weight = parameter.strip_prefix(b"q=").or_else(|| parameter.strip_prefix(b"Q="));
    weight.is_some_and(|weight| weight.iter().all(|byte| matches!(byte, b'0' | b'.')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_count() {
        for (value, is_taken) in [
            ("gzip", true),
            ("br, GZIP ; q=0.5", true),
            ("x-gzip", true),
            ("*", true),
            ("*;q=0", false),
            ("gzip;q=0", false),
            ("gzip;q=0.000, *", false),
            ("gzip;q=0.001", true),
            ("*;q=0, gzip", true),
            ("identity", false),
            ("gzippy", false),
            ("", false),
        ] {
            assert_eq!(accepts_gzip([value.as_bytes()].into_iter()), is_taken, "{value}");
        }
        assert!(accepts_gzip([&b"br"[..], b"gzip"].into_iter()), "on a second line");
        assert!(!accepts_gzip(std::iter::empty()));
    }
}
