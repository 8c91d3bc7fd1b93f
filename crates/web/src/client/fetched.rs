//! A response of another server, with its whole body.

use std::fmt;

use super::error::FetchError;
use crate::words::status::Status;

/// A response of another server, with its whole body.
#[derive(Clone)]
pub struct Fetched {
    pub(crate) status: Status,
    /// The head, and behind it the body.
    pub(crate) bytes: Vec<u8>,
    pub(crate) body_at: usize,
    /// Whether the body came compressed.
    pub(crate) is_decoded: bool,
    /// Where the last redirect has led.
    pub(crate) url: Option<String>,
}

impl Fetched {
    /// The status.
    pub fn status(&self) -> Status {
        self.status
    }

    /// The value of the first field with this name, in any case; `None`, too, if it is no UTF-8.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers().find(|field| field.0.eq_ignore_ascii_case(name))?;
        std::str::from_utf8(found.1).ok()
    }

    /// Names and values of the fields, in their order. Values may have bytes above 127. A body that
    /// was decoded has no `Content-Encoding` and no `Content-Length` any more.
    pub fn headers(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let lines = self.bytes[..self.body_at].split(|byte| *byte == b'\n').skip(1);
        let fields = lines.filter_map(|line| {
            let colon = line.iter().position(|byte| *byte == b':')?;
            let name = std::str::from_utf8(&line[..colon]).ok()?;
            Some((name, line[colon + 1..].trim_ascii()))
        });
        fields.filter(|(name, _)| !self.is_decoded || !is_of_coding(name))
    }

    /// The body.
    pub fn body(&self) -> &[u8] {
        &self.bytes[self.body_at..]
    }

    /// The body as a vector, in the allocation of the whole response.
    pub fn into_body(mut self) -> Vec<u8> {
        self.bytes.drain(..self.body_at);
        self.bytes
    }

    /// The body as text.
    ///
    /// # Errors
    ///
    /// [`FetchError::Body`]: it is no UTF-8.
    pub fn text(&self) -> Result<&str, FetchError> {
        std::str::from_utf8(self.body())
            .map_err(|error| FetchError::Body(format!("the response is no text: {error}")))
    }

    /// The body as JSON, whatever `Content-Type` says.
    ///
    /// # Errors
    ///
    /// [`FetchError::Body`]: it is no JSON, or not of this type.
    #[cfg(feature = "json")]
    pub fn json<T: serde::de::DeserializeOwned>(&self) -> Result<T, FetchError> {
        serde_json::from_slice(self.body()).map_err(|error| {
            FetchError::Body(format!("the response is not the JSON that was expected: {error}"))
        })
    }

    /// The URL that the last redirect has led to; `None` if there was no redirect.
    pub fn url(&self) -> Option<&str> {
        self.url.as_deref()
    }
}

fn is_of_coding(name: &str) -> bool {
    name.eq_ignore_ascii_case("content-encoding") || name.eq_ignore_ascii_case("content-length")
}

impl fmt::Debug for Fetched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields = self.headers().map(|(name, value)| (name, String::from_utf8_lossy(value)));
        f.debug_struct("Fetched")
            .field("status", &self.status)
            .field("headers", &fields.collect::<Vec<_>>())
            .field("body", &self.body().len())
            .finish_non_exhaustive()
    }
}
