//! Fields that are written many times.

use super::{EncodeError, check_own, line};
use crate::bytes::is_value;

/// A field that is checked once, and written many times: a `Date`, or a `Content-Type`.
///
/// ```
/// use windlass_http1::{Asked, EncodeError, FixedField, Method, ResponseEncoder, Version};
///
/// let mut kind = FixedField::new("Content-Type", "text/plain")?;
/// assert_eq!(kind.set("text/html\r\nX: y"), Err(EncodeError::Value));
/// assert_eq!(kind.value(), b"text/plain");
///
/// let mut out = Vec::new();
/// let asked = Asked::new(Method::Get, Version::Http11);
/// let mut head = ResponseEncoder::new(&mut out, asked, 200)?;
/// head.fixed(&kind);
/// head.empty()?;
/// assert_eq!(out, b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 0\r\n\r\n");
/// # Ok::<(), EncodeError>(())
/// ```
#[derive(Clone, Debug)]
pub struct FixedField {
    /// The whole line, with its end.
    line: Vec<u8>,
    /// Where the value begins.
    value_at: usize,
}

impl FixedField {
    /// A field.
    ///
    /// # Errors
    ///
    /// The name or the value is invalid, or an encoder writes this field itself.
    pub fn new(name: &str, value: impl AsRef<[u8]>) -> Result<FixedField, EncodeError> {
        let (mut whole, value) = (Vec::new(), value.as_ref());
        check_own(name, value)?;
        line(&mut whole, name, value);
        Ok(FixedField { line: whole, value_at: name.len() + 2 })
    }

    /// Sets the value, in the memory of the one before.
    ///
    /// # Errors
    ///
    /// The value is invalid. The one before stays.
    pub fn set(&mut self, value: impl AsRef<[u8]>) -> Result<(), EncodeError> {
        let value = value.as_ref();
        if !is_value(value) {
            return Err(EncodeError::Value);
        }
        self.line.truncate(self.value_at);
        self.line.extend_from_slice(value);
        self.line.extend_from_slice(b"\r\n");
        Ok(())
    }

    /// The value.
    #[inline]
    pub fn value(&self) -> &[u8] {
        &self.line[self.value_at..self.line.len() - 2]
    }

    #[inline]
    pub(super) fn line(&self) -> &[u8] {
        &self.line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_invalid_leaves_the_value() {
        for (name, value, error) in [
            ("", "a", EncodeError::Name),
            ("a b", "a", EncodeError::Name),
            ("a", "a\nb", EncodeError::Value),
            ("content-length", "1", EncodeError::Framing),
        ] {
            assert_eq!(FixedField::new(name, value).unwrap_err(), error, "{name}: {value}");
        }
        let mut field = FixedField::new("a", "long value").unwrap();
        for byte in 0..=255_u8 {
            let is_valid = byte == b'\t' || byte >= 0x20 && byte != 0x7f;
            assert_eq!(field.set([b'x', byte, b'y']).is_ok(), is_valid, "{byte}");
            let kept = field.line();
            assert!(kept.starts_with(b"a: ") && kept.ends_with(b"\r\n"));
            let inside = &kept[..kept.len() - 2];
            assert!(!inside.contains(&b'\n') && !inside.contains(&b'\r'), "{byte}");
        }
        field.set("").unwrap();
        assert_eq!((field.line(), field.value()), (&b"a: \r\n"[..], &b""[..]));
    }
}
