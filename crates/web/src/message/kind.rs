//! The field `Content-Type`.
//!
//! # Why
//! Most responses have the type of the one before. So it is checked when it changes, and its memory
//! stays.

use windlass_http1::{EncodeError, FixedField};

/// The last type of a body that a loop has written.
pub(crate) struct Kind(FixedField);

impl Kind {
    pub(crate) fn new() -> Kind {
        Kind(FixedField::new("Content-Type", "").expect("a name and a value"))
    }

    /// The field with this value.
    #[inline]
    pub(crate) fn of(&mut self, kind: &str) -> Result<&FixedField, EncodeError> {
        if self.0.value() != kind.as_bytes() {
            self.0.set(kind)?;
        }
        Ok(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_type_is_refused_each_time() {
        let mut kind = Kind::new();
        for _ in 0..2 {
            assert_eq!(kind.of("a/b").unwrap().value(), b"a/b");
            assert_eq!(kind.of("a/b\r\nX: y").unwrap_err(), EncodeError::Value);
            assert_eq!(kind.of("text/html").unwrap().value(), b"text/html");
        }
    }
}
