//! A request to another server, as the program makes it.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use super::error::FetchError;
use crate::message::source::BodySource;

/// How many bytes of a response's body are taken, unless the program says otherwise.
const BODY: u64 = 2 << 20;

/// How long a request may take in all, unless the program says otherwise.
const WHOLE: Duration = Duration::from_secs(30);

/// How many redirects are followed, unless the program says otherwise.
const REDIRECTS: u8 = 10;

/// A request to another server: for [`Request::fetch`](crate::Request::fetch),
/// [`Client::fetch`](crate::Client::fetch) and
/// [`Client::fetch_stream`](crate::Client::fetch_stream).
///
/// ```
/// use std::time::Duration;
/// use windlass_web::client::Fetch;
///
/// let fetch = Fetch::post("http://notes.example/notes")
///     .header("Content-Type", "text/plain")
///     .body("a note")
///     .timeout(Duration::from_secs(2));
/// # let _ = fetch;
/// ```
///
/// No method fails. What cannot be sent, such as a URL without a host, ends the request with a
/// [`FetchError`].
pub struct Fetch {
    pub(crate) method: Cow<'static, str>,
    pub(crate) url: String,
    pub(crate) fields: Vec<(Cow<'static, str>, Cow<'static, str>)>,
    pub(crate) body: FetchBody,
    pub(crate) timeout: Option<Duration>,
    pub(crate) body_limit: u64,
    pub(crate) redirects: u8,
    pub(crate) to_plain: bool,
    pub(crate) expects: bool,
    pub(crate) decodes: bool,
    /// The protocol that it offers to go over to.
    pub(crate) offers: Option<&'static str>,
    /// Why it cannot be sent.
    pub(crate) broken: Option<FetchError>,
}

/// The body of a request.
pub(crate) enum FetchBody {
    Nothing,
    Bytes(Vec<u8>),
    /// It is made while it is sent, and has so many bytes if that is known.
    Source(Box<dyn BodySource>, Option<u64>),
}

impl Fetch {
    /// A request with this method, to a URL of `http` or `https`.
    pub fn new(method: impl Into<Cow<'static, str>>, url: impl Into<String>) -> Fetch {
        Fetch {
            method: method.into(),
            url: url.into(),
            fields: Vec::new(),
            body: FetchBody::Nothing,
            timeout: Some(WHOLE),
            body_limit: BODY,
            redirects: REDIRECTS,
            to_plain: false,
            expects: false,
            decodes: true,
            offers: None,
            broken: None,
        }
    }

    /// A `GET`.
    pub fn get(url: impl Into<String>) -> Fetch {
        Fetch::new("GET", url)
    }

    /// A `HEAD`.
    pub fn head(url: impl Into<String>) -> Fetch {
        Fetch::new("HEAD", url)
    }

    /// A `POST`.
    pub fn post(url: impl Into<String>) -> Fetch {
        Fetch::new("POST", url)
    }

    /// A `PUT`.
    pub fn put(url: impl Into<String>) -> Fetch {
        Fetch::new("PUT", url)
    }

    /// A `DELETE`.
    pub fn delete(url: impl Into<String>) -> Fetch {
        Fetch::new("DELETE", url)
    }

    /// Adds a field. `Host`, `Content-Length`, `Transfer-Encoding`, `Connection` and `Upgrade` are
    /// the client's own. One of them, or a control byte in a value, ends the request with
    /// [`FetchError::Request`].
    pub fn header(
        mut self,
        name: impl Into<Cow<'static, str>>,
        value: impl Into<Cow<'static, str>>,
    ) -> Fetch {
        self.fields.push((name.into(), value.into()));
        self
    }

    /// Sets the body.
    pub fn body(mut self, bytes: impl Into<Vec<u8>>) -> Fetch {
        self.body = FetchBody::Bytes(bytes.into());
        self
    }

    /// Sets the body as JSON, and its `Content-Type`. A value that cannot be JSON, such as a map
    /// whose keys are no strings, ends the request with [`FetchError::Body`].
    #[cfg(feature = "json")]
    pub fn json<T: serde::Serialize + ?Sized>(mut self, value: &T) -> Fetch {
        match serde_json::to_vec(value) {
            Ok(bytes) => self.header("Content-Type", "application/json").body(bytes),
            Err(error) => {
                self.broken = Some(FetchError::Body(format!("the request's JSON: {error}")));
                self
            }
        }
    }

    /// Sets a body that is made while it is sent, as that of [`Response::stream`]. It has `len`
    /// bytes. With `None` the length is not known, and the body is sent in chunks.
    ///
    /// The source makes a part whenever the connection has room. A request with a source is sent
    /// once: it is not sent again on another connection, and redirects that keep the body are not
    /// followed.
    ///
    /// A server may respond before it has read all of the body, for example with a 413. Then the
    /// request is over when this response is whole: it is the outcome, the source is dropped, and
    /// the connection is closed.
    ///
    /// [`Response::stream`]: crate::Response::stream
    pub fn stream(
        mut self,
        len: impl Into<Option<u64>>,
        source: impl BodySource + 'static,
    ) -> Fetch {
        self.body = FetchBody::Source(Box::new(source), len.into());
        self
    }

    /// Sends the body only when the server has said `100 Continue`, or after
    /// [`FetchSettings::expect`](super::FetchSettings::expect), 1 s by default. So no body is sent
    /// to a server that refuses the head of the request.
    pub fn expect_continue(mut self) -> Fetch {
        self.expects = true;
        self
    }

    /// Sets how long the request may take in all, from its start to the last byte of the response,
    /// redirects included. Then it ends with [`FetchError::Timeout`]. With `None` only the
    /// [clocks of its phases](super::FetchSettings) run. Default 30 s.
    pub fn timeout(mut self, span: impl Into<Option<Duration>>) -> Fetch {
        self.timeout = span.into();
        self
    }

    /// Sets how many bytes the decoded body of the response may have. A longer body ends the
    /// request with [`FetchError::TooLong`]. Default 2 MiB.
    pub fn body_limit(mut self, bytes: u64) -> Fetch {
        self.body_limit = bytes;
        self
    }

    /// Sets how many redirects are followed, one after the other. With 0 a redirect is the
    /// response. Otherwise one redirect too many ends the request with [`FetchError::Redirect`].
    /// Default 10.
    pub fn redirects(mut self, most: u8) -> Fetch {
        self.redirects = most;
        self
    }

    /// Sets whether a redirect of `https` may lead to `http`. Default off.
    pub fn redirect_to_plain(mut self, on: bool) -> Fetch {
        self.to_plain = on;
        self
    }

    /// Sets whether the server is asked to compress the body. The program gets it decoded. This
    /// needs the feature `deflate`, and has no effect on a request whose `Accept-Encoding` or
    /// `Range` the program has set. Default on.
    pub fn decode(mut self, on: bool) -> Fetch {
        self.decodes = on;
        self
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.fields.iter().any(|field| field.0.eq_ignore_ascii_case(name))
    }
}

/// A `GET` of a URL.
impl From<&str> for Fetch {
    fn from(url: &str) -> Fetch {
        Fetch::get(url)
    }
}

/// A `GET` of a URL.
impl From<String> for Fetch {
    fn from(url: String) -> Fetch {
        Fetch::get(url)
    }
}

impl fmt::Debug for FetchBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FetchBody::Nothing => f.write_str("Nothing"),
            FetchBody::Bytes(bytes) => write!(f, "{} bytes", bytes.len()),
            FetchBody::Source(_, len) => write!(f, "a source of {len:?} bytes"),
        }
    }
}

impl fmt::Debug for Fetch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fetch")
            .field("method", &self.method)
            .field("url", &self.url)
            .field("body", &self.body)
            .finish_non_exhaustive()
    }
}
