//! Responses, as servers and proxies write them.

use super::body::{BodyEncoder, BodyForm};
use super::{Draft, EncodeError, FixedField, is_value, status};
use crate::words::{Asked, Method, Version};

/// The head of a response that is being written.
///
/// It ends with the method that says which body follows. Dropped before, it leaves the memory as it
/// was. It writes Content-Length, Transfer-Encoding, Connection and Upgrade itself; `Date` and all
/// others are the program's.
///
/// ```
/// use windlass_http1::{Asked, Method, ResponseEncoder, Version};
///
/// let mut out = Vec::new();
/// let asked = Asked::new(Method::Get, Version::Http11); // `head.asked()` of the request
/// let mut head = ResponseEncoder::new(&mut out, asked, 200)?;
/// head.field("Content-Type", "text/plain")?;
/// head.length(2)?.data(&mut out, b"hi")?;
/// assert_eq!(
///     out,
///     b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nhi"
/// );
/// # Ok::<(), windlass_http1::EncodeError>(())
/// ```
#[derive(Debug)]
pub struct ResponseEncoder<'o> {
    draft: Draft<'o>,
    asked: Asked,
    status: u16,
    offers: bool,
}

impl<'o> ResponseEncoder<'o> {
    /// Appends the status line, with the usual reason.
    ///
    /// # Errors
    ///
    /// The status is not one of 100 to 599, or a 1xx for a client of HTTP/1.0 (RFC 9110, 15.2).
    #[inline]
    pub fn new(out: &'o mut Vec<u8>, asked: Asked, status: u16) -> Result<Self, EncodeError> {
        let mut encoder = ResponseEncoder::start(out, asked, status)?;
        match status::line(status) {
            Some(line) => encoder.draft.put(line.as_bytes()),
            None => encoder.status_line(b""),
        }
        Ok(encoder)
    }

    /// Appends the status line with another reason, as a proxy does.
    ///
    /// # Errors
    ///
    /// As for [`ResponseEncoder::new`], and the reason has control bytes.
    #[inline]
    pub fn with_reason(
        out: &'o mut Vec<u8>,
        asked: Asked,
        status: u16,
        reason: &[u8],
    ) -> Result<Self, EncodeError> {
        if !is_value(reason) {
            return Err(EncodeError::Value);
        }
        let mut encoder = ResponseEncoder::start(out, asked, status)?;
        encoder.status_line(reason);
        Ok(encoder)
    }

    #[inline]
    fn start(out: &'o mut Vec<u8>, asked: Asked, status: u16) -> Result<Self, EncodeError> {
        let is_early = asked.version == Version::Http10 && status < 200;
        if !(100..600).contains(&status) || is_early {
            return Err(EncodeError::Status);
        }
        Ok(ResponseEncoder { draft: Draft::new(out), asked, status, offers: false })
    }

    fn status_line(&mut self, reason: &[u8]) {
        let mut code = itoa::Buffer::new();
        let parts = [b"HTTP/1.1 ", code.format(self.status).as_bytes(), b" ", reason, b"\r\n"];
        parts.iter().for_each(|part| self.draft.put(part));
    }

    /// Appends a field.
    ///
    /// # Errors
    ///
    /// The name or the value is invalid, or the encoder writes this field itself. The field is left
    /// out.
    #[inline]
    pub fn field(&mut self, name: &str, value: impl AsRef<[u8]>) -> Result<(), EncodeError> {
        self.draft.field(name, value.as_ref())
    }

    /// Appends a field that was checked when it was made.
    #[inline]
    pub fn fixed(&mut self, field: &FixedField) {
        self.draft.put(field.line());
    }

    /// The connection ends behind this response.
    pub fn close(&mut self) {
        self.asked.keep_alive = false;
    }

    /// Offers to switch to another protocol with a later request, as a 426 does.
    ///
    /// # Errors
    ///
    /// The name of the protocol is invalid, or the response is a 1xx.
    pub fn offer(&mut self, protocol: &str) -> Result<(), EncodeError> {
        if self.status < 200 {
            return Err(EncodeError::Status);
        }
        self.draft.upgrade(protocol)?;
        self.offers = true;
        Ok(())
    }

    /// Ends the head. There is no body: the length is 0, but where no length may be (1xx, 204) or
    /// another one is meant (304, and the answer to HEAD, which has a length by
    /// [`ResponseEncoder::length`] only).
    ///
    /// # Errors
    ///
    /// A 101, or a 2xx to a CONNECT.
    pub fn empty(mut self) -> Result<BodyEncoder, EncodeError> {
        self.check_no_switch()?;
        if self.has_body() && self.asked.method != Method::Head {
            self.draft.number("Content-Length", 0);
        }
        Ok(self.end(BodyForm::Nothing))
    }

    /// Ends the head. The body has so many bytes. Behind a HEAD, and in a 304, it is not sent.
    ///
    /// # Errors
    ///
    /// The status has no body (1xx, 204, 205), or it is a 2xx to a CONNECT.
    #[inline]
    pub fn length(mut self, length: u64) -> Result<BodyEncoder, EncodeError> {
        self.check_body()?;
        self.draft.number("Content-Length", length);
        let form = if self.is_unsent() {
            BodyForm::Unsent(Some(length))
        } else {
            BodyForm::Length(length)
        };
        Ok(self.end(form))
    }

    /// Ends the head. The body comes in chunks, and for a client of HTTP/1.0 up to the end of the
    /// connection. Behind a HEAD, and in a 304, it is not sent.
    ///
    /// # Errors
    ///
    /// As for [`ResponseEncoder::length`].
    pub fn chunked(mut self) -> Result<BodyEncoder, EncodeError> {
        self.check_body()?;
        let form = match self.asked.version {
            _ if self.is_unsent() => BodyForm::Unsent(None),
            Version::Http10 => BodyForm::UntilClose,
            Version::Http11 => BodyForm::Chunked,
        };
        match form {
            BodyForm::UntilClose => self.close(),
            _ if self.asked.version == Version::Http11 => {
                self.draft.line("Transfer-Encoding", b"chunked");
            }
            _ => {}
        }
        Ok(self.end(form))
    }

    /// Ends a 101: behind it the connection speaks this protocol.
    ///
    /// # Errors
    ///
    /// The status is another one, the client has not asked for an upgrade, or the name of the
    /// protocol is invalid.
    pub fn switch(mut self, protocol: &str) -> Result<(), EncodeError> {
        if self.status != 101 || !self.asked.upgrade {
            return Err(EncodeError::Status);
        }
        self.draft.upgrade(protocol)?;
        self.draft.line("Connection", b"Upgrade");
        self.draft.end();
        Ok(())
    }

    /// Ends a 2xx to a CONNECT: behind it the connection is a tunnel.
    ///
    /// # Errors
    ///
    /// The status or the method is another one.
    pub fn tunnel(mut self) -> Result<(), EncodeError> {
        if !self.is_tunnel() {
            return Err(EncodeError::Status);
        }
        self.draft.end();
        Ok(())
    }

    #[inline]
    fn is_tunnel(&self) -> bool {
        self.asked.method == Method::Connect && (200..300).contains(&self.status)
    }

    fn has_body(&self) -> bool {
        !matches!(self.status, 100..=199 | 204 | 304)
    }

    #[inline]
    fn is_unsent(&self) -> bool {
        self.asked.method == Method::Head || self.status == 304
    }

    #[inline]
    fn check_no_switch(&self) -> Result<(), EncodeError> {
        if self.status == 101 || self.is_tunnel() { Err(EncodeError::Status) } else { Ok(()) }
    }

    #[inline]
    fn check_body(&self) -> Result<(), EncodeError> {
        self.check_no_switch()?;
        if matches!(self.status, 100..=199 | 204 | 205) { Err(EncodeError::NoBody) } else { Ok(()) }
    }

    #[inline]
    fn end(mut self, form: BodyForm) -> BodyEncoder {
        let keeps_alive = self.asked.keep_alive;
        let is_old = self.asked.version == Version::Http10;
        // Behind a 1xx, the head of the response is still to come. A client of HTTP/1.0 is told of
        // a close, too: the response is one of HTTP/1.1, which keeps the connection if it says
        // nothing (RFC 9112, 9.3).
        if self.status >= 200 {
            self.draft.connection([
                (!keeps_alive, "close"),
                (is_old && keeps_alive, "keep-alive"),
                (self.offers, "Upgrade"),
            ]);
        }
        self.draft.end();
        BodyEncoder::new(form, keeps_alive || self.status < 200)
    }
}
