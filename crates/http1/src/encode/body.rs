//! Bodies: the bytes between their framing.

use super::{EncodeError, check_field, line};
use crate::head::fields::is_no_trailer;

/// What is left to write of a body. It knows how much, and holds no bytes.
///
/// ```
/// use windlass_http1::{Asked, Method, ResponseEncoder, Version};
///
/// let mut out = Vec::new();
/// let asked = Asked::new(Method::Get, Version::Http11);
/// let mut body = ResponseEncoder::new(&mut out, asked, 200)?.chunked()?;
/// body.data(&mut out, b"hello")?;
/// body.end(&mut out)?;
/// assert!(out.ends_with(b"\r\n\r\n5\r\nhello\r\n0\r\n\r\n"));
/// # Ok::<(), windlass_http1::EncodeError>(())
/// ```
#[derive(Debug)]
pub struct BodyEncoder {
    form: BodyForm,
    keeps_alive: bool,
}

/// How the bytes of a body stand in the output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum BodyForm {
    /// As they are, so many more.
    Length(u64),
    Chunked,
    /// As they are, up to the end of the connection.
    UntilClose,
    /// Not at all: the answer to a HEAD leaves the body out. So many more, if it says how many.
    Unsent(Option<u64>),
    /// There is none.
    Nothing,
}

impl BodyEncoder {
    #[inline]
    pub(super) fn new(form: BodyForm, keeps_alive: bool) -> BodyEncoder {
        BodyEncoder { form, keeps_alive }
    }

    /// Whether a further message may follow on the connection behind this one. Otherwise the
    /// program closes the connection behind the body.
    #[inline]
    pub fn keep_alive(&self) -> bool {
        self.keeps_alive
    }

    /// Whether the body goes out. That of a response to HEAD does not: calls take it, and append
    /// nothing.
    #[inline]
    pub fn is_sent(&self) -> bool {
        !matches!(self.form, BodyForm::Unsent(_) | BodyForm::Nothing)
    }

    /// Appends bytes of the body, as one chunk if it is chunked.
    ///
    /// # Errors
    ///
    /// The message has no body, or not so much.
    pub fn data(&mut self, out: &mut Vec<u8>, data: &[u8]) -> Result<(), EncodeError> {
        self.before(out, data.len())?;
        if self.is_sent() {
            out.extend_from_slice(data);
        }
        self.after(out, data.len());
        Ok(())
    }

    /// Appends what stands in front of so many bytes of the body. The program sends these itself,
    /// if [`BodyEncoder::is_sent`], and calls [`BodyEncoder::after`].
    ///
    /// # Errors
    ///
    /// As for [`BodyEncoder::data`].
    #[inline]
    pub fn before(&mut self, out: &mut Vec<u8>, len: usize) -> Result<(), EncodeError> {
        match &mut self.form {
            BodyForm::Length(left) | BodyForm::Unsent(Some(left)) => {
                *left = left.checked_sub(len as u64).ok_or(EncodeError::TooLong)?;
            }
            BodyForm::Nothing if len > 0 => return Err(EncodeError::NoBody),
            // An empty chunk would be the last one.
            BodyForm::Chunked if len > 0 => {
                put_hex(out, len);
                out.extend_from_slice(b"\r\n");
            }
            _ => {}
        }
        Ok(())
    }

    /// Appends what stands behind so many bytes of the body.
    pub fn after(&mut self, out: &mut Vec<u8>, len: usize) {
        if self.form == BodyForm::Chunked && len > 0 {
            out.extend_from_slice(b"\r\n");
        }
    }

    /// Appends the end of the body.
    ///
    /// # Errors
    ///
    /// The body is shorter than its Content-Length. Then only a close tells the peer.
    pub fn end(self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        self.end_with(out, [])
    }

    /// Appends the end of the body, and trailers. Without chunks they are left out: nothing depends
    /// on trailers, and a peer of HTTP/1.0 cannot get them.
    ///
    /// # Errors
    ///
    /// As for [`BodyEncoder::end`], and a name or value is invalid, or belongs into a head. Then
    /// nothing was appended, and the body has no end.
    pub fn end_with<'a>(
        self,
        out: &mut Vec<u8>,
        trailers: impl IntoIterator<Item = (&'a str, &'a [u8])>,
    ) -> Result<(), EncodeError> {
        match self.form {
            BodyForm::Length(left) if left > 0 => return Err(EncodeError::TooShort),
            BodyForm::Chunked => {}
            _ => return Ok(()),
        }
        let start = out.len();
        out.extend_from_slice(b"0\r\n");
        for (name, value) in trailers {
            let mut checked = check_field(name, value);
            if is_no_trailer(name.as_bytes()) {
                checked = Err(EncodeError::Framing);
            }
            if checked.is_err() {
                out.truncate(start);
                return checked;
            }
            line(out, name, value);
        }
        out.extend_from_slice(b"\r\n");
        Ok(())
    }
}

fn put_hex(out: &mut Vec<u8>, number: usize) {
    let digits = (number.ilog2() / 4) as usize;
    let digit = |at: usize| b"0123456789abcdef"[number >> (4 * at) & 15];
    out.extend((0..=digits).rev().map(digit));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_hexadecimal() {
        for number in [1, 9, 10, 15, 16, 255, 256, 4095, 65_536, usize::MAX] {
            let mut out = Vec::new();
            put_hex(&mut out, number);
            assert_eq!(out, format!("{number:x}").into_bytes());
        }
    }
}
