//! A response, as a test gets it.

use std::fmt;

#[cfg(feature = "json")]
use super::error::ClientError;
use crate::words::status::Status;

/// A response, as a test gets it: it has come whole, and keeps the rules of HTTP.
#[derive(Clone, PartialEq, Eq)]
pub struct TestResponse {
    pub(super) status: Status,
    pub(super) fields: Vec<(String, Vec<u8>)>,
    pub(super) body: Vec<u8>,
    pub(super) keeps_alive: bool,
}

impl TestResponse {
    /// The status.
    pub fn status(&self) -> Status {
        self.status
    }

    /// The value of the first field with this name, in any case; `None`, too, if it is no UTF-8.
    pub fn header(&self, name: &str) -> Option<&str> {
        let is = |field: &&(String, Vec<u8>)| field.0.eq_ignore_ascii_case(name);
        std::str::from_utf8(&self.fields.iter().find(is)?.1).ok()
    }

    /// Names and values of the fields, in their order, those of trailers behind the others.
    pub fn headers(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.fields.iter().map(|(name, value)| (&**name, &**value))
    }

    /// The body.
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// The body without its `Content-Encoding`: `gzip`, `deflate` or none.
    ///
    /// # Panics
    ///
    /// If it has another coding, or several, if it is not one whole body in its coding, or if that
    /// has more than 1 GiB.
    #[cfg(feature = "deflate")]
    pub fn decoded(&self) -> Vec<u8> {
        use crate::coding::inflate::Inflater;
        let codings =
            self.headers().filter(|field| field.0.eq_ignore_ascii_case("content-encoding"));
        let codings = codings.map(|(_, value)| std::str::from_utf8(value).unwrap_or("?"));
        let decoder = Inflater::of(codings, 1 << 30).unwrap_or_else(|error| panic!("{error}"));
        let Some(mut decoder) = decoder else { return self.body.clone() };
        decoder.whole(&self.body).unwrap_or_else(|error| panic!("{error}"))
    }

    /// The body as a text.
    ///
    /// # Panics
    ///
    /// If it is no UTF-8.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("the body is UTF-8")
    }

    /// The body as JSON.
    ///
    /// # Errors
    ///
    /// [`Status`](ClientError::Status): the response is an error, of 400 and above.
    /// [`Json`](ClientError::Json): the body is no JSON, or not of this type.
    #[cfg(feature = "json")]
    pub fn json<T: serde::de::DeserializeOwned>(&self) -> Result<T, ClientError> {
        if self.status.is_error() {
            let text = String::from_utf8_lossy(&self.body).into_owned();
            return Err(ClientError::Status(self.status, text));
        }
        serde_json::from_slice(&self.body).map_err(ClientError::Json)
    }

    /// Whether the connection can have a further request.
    pub fn keeps_alive(&self) -> bool {
        self.keeps_alive
    }
}

impl fmt::Debug for TestResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields: Vec<(&str, String)> = self
            .headers()
            .map(|(name, value)| (name, String::from_utf8_lossy(value).into_owned()))
            .collect();
        f.debug_struct("TestResponse")
            .field("status", &self.status)
            .field("fields", &fields)
            .field("body", &String::from_utf8_lossy(&self.body))
            .finish()
    }
}
