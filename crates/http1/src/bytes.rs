//! What bytes may be in which part of a message.

/// A set of bytes.
pub(crate) struct Set([bool; 256]);

impl Set {
    /// Letters, digits, and these.
    const fn alphanumeric_and(others: &[u8]) -> Set {
        let mut set = [false; 256];
        let mut byte = 0;
        while byte < 128 {
            set[byte] = (byte as u8).is_ascii_alphanumeric();
            byte += 1;
        }
        let mut at = 0;
        while at < others.len() {
            set[others[at] as usize] = true;
            at += 1;
        }
        Set(set)
    }

    /// All visible ASCII characters but these.
    const fn visible_but(others: &[u8]) -> Set {
        let mut set = [false; 256];
        let mut byte = 0x21;
        while byte < 0x7f {
            set[byte] = true;
            byte += 1;
        }
        let mut at = 0;
        while at < others.len() {
            set[others[at] as usize] = false;
            at += 1;
        }
        Set(set)
    }

    #[inline]
    pub(crate) fn has(&self, byte: u8) -> bool {
        self.0[usize::from(byte)]
    }

    /// Whether all are in the set. Most texts are short and valid, so that it does not stop early.
    #[inline]
    pub(crate) fn has_all(&self, bytes: &[u8]) -> bool {
        bytes.iter().fold(true, |all, byte| all & self.has(*byte))
    }
}

/// Characters of tokens (RFC 9110, 5.6.2).
pub(crate) static TOKEN: Set = Set::alphanumeric_and(b"!#$%&'*+-.^_`|~");

/// Characters of a host name and its percent-encoding (RFC 3986, 3.2.2).
pub(crate) static HOST: Set = Set::alphanumeric_and(b"-._~%!$&'()*+,;=");

/// Characters of a path. RFC 3986 allows fewer, but browsers send `|`, `{`, `}`, `^` and a grave
/// accent as they are. A backslash is a slash to some servers. A fragment is no part of a target.
pub(crate) static PATH: Set = Set::visible_but(b"#\"<>\\");

/// Characters of a query, in which browsers also send a backslash.
pub(crate) static QUERY: Set = Set::visible_but(b"#\"<>");

/// Whether a field may have this value: no control bytes but HTAB (RFC 9110, 5.5).
#[inline]
pub(crate) fn is_value(value: &[u8]) -> bool {
    let is_plain = |word: &[u8; 8]| !may_have_control(u64::from_ne_bytes(*word));
    // The last eight bytes overlap the ones before.
    let is_plain = value
        .last_chunk()
        .is_some_and(|last| is_plain(last) && value.as_chunks().0.iter().all(is_plain));
    is_plain || value.iter().all(|byte| is_value_byte(*byte))
}

/// Whether one of eight bytes is below 0x20, or 0x7f. HTAB is, too.
#[inline]
fn may_have_control(word: u64) -> bool {
    let each = |byte: u8| u64::from_ne_bytes([byte; 8]);
    let below = word.wrapping_sub(each(0x20)) & !word;
    let delete = (word ^ each(0x7f)).wrapping_sub(each(1)) & !(word ^ each(0x7f));
    (below | delete) & each(0x80) != 0
}

#[inline]
fn is_value_byte(byte: u8) -> bool {
    (byte >= 0x20) & (byte != 0x7f) | (byte == b'\t')
}

/// Whether it is a token: not empty, and of its characters only.
pub(crate) fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && TOKEN.has_all(bytes)
}

/// Whether it is this word of small letters, digits and hyphens, in any case. `bytes` have no
/// control bytes, so that no other byte becomes one of these by the bit of small letters.
#[inline]
pub(crate) fn is_word<const N: usize>(bytes: &[u8], word: &[u8; N]) -> bool {
    let Ok(bytes) = <&[u8; N]>::try_from(bytes) else {
        return false;
    };
    // Without a branch for each byte: the compiler compares words of the machine.
    let mut differ = 0;
    for at in 0..N {
        differ |= (bytes[at] | 0x20) ^ word[at];
    }
    differ == 0
}

/// A list's elements, without the space around them. Empty elements do not count (RFC 9110, 5.6.1).
pub(crate) fn elements(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(trim).filter(|element| !element.is_empty())
}

fn trim(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = bytes {
        bytes = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}

/// The number that these digits are, if there is nothing else. `Some(None)` is 2^64 or more.
pub(crate) fn decimal(digits: &[u8]) -> Option<Option<u64>> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let add =
        |number: u64, digit: &u8| number.checked_mul(10)?.checked_add(u64::from(*digit - b'0'));
    Some(digits.iter().try_fold(0, add))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_digits() {
        assert_eq!(decimal(b"0"), Some(Some(0)));
        assert_eq!(decimal(b"18446744073709551615"), Some(Some(u64::MAX)));
        assert_eq!(decimal(b"18446744073709551616"), Some(None));
        for wrong in ["", "+5", "-5", " 5", "5 ", "5,5", "0x5", "5.0", "\u{665}"] {
            assert_eq!(decimal(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn values_have_no_control_bytes_anywhere() {
        for byte in 0..=255_u8 {
            let is_valid = byte == b'\t' || byte >= 0x20 && byte != 0x7f;
            for at in 0..20 {
                let mut value = *b"\x20~\x80\xff0123456789abcdef";
                value[at] = byte;
                assert_eq!(is_value(&value), is_valid, "{byte} at {at}");
            }
        }
        assert!(is_value(b""));
    }

    #[test]
    fn words_have_no_case() {
        assert!(is_word(b"Keep-ALIVE", b"keep-alive") && !is_word(b"keep-alive ", b"keep-alive"));
        for byte in 0x20..=0xff_u8 {
            assert_eq!(is_word(&[byte], b"k"), byte == b'k' || byte == b'K', "{byte}");
            assert_eq!(is_word(&[byte], b"-"), byte == b'-', "{byte}");
        }
    }

    #[test]
    fn lists_have_elements() {
        let all: Vec<&[u8]> = elements(b" a,\t b c ,, ,d").collect();
        assert_eq!(all, [&b"a"[..], b"b c", b"d"]);
    }

    #[test]
    fn tokens_are_those_of_the_grammar() {
        for byte in 0..=255_u8 {
            let is = byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
            assert_eq!(TOKEN.has(byte), is, "{byte}");
        }
        assert!(!is_token(b""));
    }
}
