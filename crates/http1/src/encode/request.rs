//! Requests, as clients and proxies write them.

use super::body::{BodyEncoder, BodyForm};
use super::{Draft, EncodeError, is_token};
use crate::head::target::{form_of, is_authority};
use crate::words::{Asked, Method, Version};

/// The head of a request of HTTP/1.1 that is being written.
///
/// It ends with the method that says which body follows. Dropped before, it leaves the memory as it
/// was. It writes Host, Content-Length, Transfer-Encoding, Connection and Upgrade itself.
///
/// ```
/// use windlass_http1::{RequestEncoder, ResponseDecoder};
///
/// let mut out = Vec::new();
/// let mut head = RequestEncoder::new(&mut out, "POST", "/notes", "example.com")?;
/// head.field("Content-Type", "text/plain")?;
/// let mut responses = ResponseDecoder::new();
/// responses.expect(head.asked());
/// head.length(2)?.data(&mut out, b"hi")?;
/// assert!(out.starts_with(b"POST /notes HTTP/1.1\r\nHost: example.com\r\n"));
/// # Ok::<(), windlass_http1::EncodeError>(())
/// ```
#[derive(Debug)]
pub struct RequestEncoder<'o> {
    draft: Draft<'o>,
    asked: Asked,
    has_te: bool,
}

impl<'o> RequestEncoder<'o> {
    /// Appends the request line and Host.
    ///
    /// # Errors
    ///
    /// The method is no token, the target is not valid for it, or the host is none.
    pub fn new(
        out: &'o mut Vec<u8>,
        method: &str,
        target: &str,
        host: &str,
    ) -> Result<Self, EncodeError> {
        if !is_token(method.as_bytes()) {
            return Err(EncodeError::Method);
        }
        let kind = Method::of(method.as_bytes());
        form_of(kind, target.as_bytes()).ok_or(EncodeError::Target)?;
        if !is_authority(host.as_bytes(), false) {
            return Err(EncodeError::Host);
        }
        let mut draft = Draft::new(out);
        for part in [method, " ", target, " HTTP/1.1\r\n"] {
            draft.put(part.as_bytes());
        }
        draft.line("Host", host.as_bytes());
        let asked = Asked::new(kind, Version::Http11);
        Ok(RequestEncoder { draft, asked, has_te: false })
    }

    /// Appends a field. `Connection` names a `TE`, so that no proxy passes it on (RFC 9110, section
    /// 10.1.4).
    ///
    /// # Errors
    ///
    /// The name or the value is invalid, or the encoder writes this field itself. The field is left
    /// out.
    pub fn field(&mut self, name: &str, value: impl AsRef<[u8]>) -> Result<(), EncodeError> {
        self.draft.field(name, value.as_ref())?;
        self.has_te |= name.eq_ignore_ascii_case("te");
        Ok(())
    }

    /// The connection ends behind the response.
    pub fn close(&mut self) {
        self.asked.keep_alive = false;
    }

    /// Offers to switch to another protocol behind the request. Send nothing of it before the 101.
    ///
    /// # Errors
    ///
    /// The name of the protocol is invalid.
    pub fn upgrade(&mut self, protocol: &str) -> Result<(), EncodeError> {
        self.draft.upgrade(protocol)?;
        self.asked.upgrade = true;
        Ok(())
    }

    /// What the response will answer, for [`ResponseDecoder::expect`].
    ///
    /// [`ResponseDecoder::expect`]: crate::ResponseDecoder::expect
    pub fn asked(&self) -> Asked {
        self.asked
    }

    /// Ends the head. There is no body. Methods that usually have one say that it is empty
    /// (RFC 9110, 8.6).
    pub fn empty(mut self) -> BodyEncoder {
        if matches!(self.asked.method, Method::Post | Method::Put | Method::Patch) {
            self.draft.number("Content-Length", 0);
        }
        self.end(BodyForm::Nothing)
    }

    /// Ends the head. The body has so many bytes.
    ///
    /// # Errors
    ///
    /// A CONNECT and a TRACE have no body.
    pub fn length(mut self, length: u64) -> Result<BodyEncoder, EncodeError> {
        self.check_body()?;
        self.draft.number("Content-Length", length);
        Ok(self.end(BodyForm::Length(length)))
    }

    /// Ends the head. The body comes in chunks.
    ///
    /// # Errors
    ///
    /// A CONNECT and a TRACE have no body.
    pub fn chunked(mut self) -> Result<BodyEncoder, EncodeError> {
        self.check_body()?;
        self.draft.line("Transfer-Encoding", b"chunked");
        Ok(self.end(BodyForm::Chunked))
    }

    fn check_body(&self) -> Result<(), EncodeError> {
        match self.asked.method {
            Method::Connect | Method::Trace => Err(EncodeError::NoBody),
            _ => Ok(()),
        }
    }

    fn end(mut self, form: BodyForm) -> BodyEncoder {
        let Asked { keep_alive, upgrade, .. } = self.asked;
        self.draft.connection([(!keep_alive, "close"), (self.has_te, "TE"), (upgrade, "Upgrade")]);
        self.draft.end();
        BodyEncoder::new(form, keep_alive)
    }
}
