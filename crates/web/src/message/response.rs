//! The response of a handler.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use crate::files::body::FileBody;
use crate::message::handover::Awaited;
use crate::message::head::Head;
use crate::message::source::BodySource;
use crate::message::subscription::Subscription;
use crate::words::error::Error;
use crate::words::status::Status;

const TEXT: &str = "text/plain; charset=utf-8";
const HTML: &str = "text/html; charset=utf-8";
const BYTES: &str = "application/octet-stream";

/// The response of a handler: decided, or still to come.
///
/// A handler returns whatever converts into a response. Methods of [`Request`](crate::Request), and
/// [`Response::later`], make the ones that are still to come.
///
/// | type | response |
/// |---|---|
/// | `&'static str`, `String` | 200, `text/plain; charset=utf-8` |
/// | `&'static [u8]`, `Vec<u8>` | 200, `application/octet-stream` |
/// | `()` | 204, without a body |
/// | [`Status`] | without a body; from 400 on as an [`Error`] with this status |
/// | [`Error`] | its status and its text, or what [`App::on_error`](crate::App::on_error) makes |
/// | [`Events`](crate::events::Events) | 200, `text/event-stream` |
/// | `Result<T, E>` | that of `T`, or that of the error that `E` converts into |
///
/// ```
/// use windlass_web::{Response, Status};
///
/// let response = Response::text("made").status(Status::CREATED).header("X-Number", "7");
/// assert_eq!(response.head().status(), Status::CREATED);
/// assert_eq!(response.head().get("content-type"), Some("text/plain; charset=utf-8"));
/// ```
pub struct Response {
    head: Head,
    body: Body,
    error: Option<Error>,
}

/// The body of a response.
pub(crate) enum Body {
    Empty,
    Static(&'static [u8]),
    Bytes(Vec<u8>),
    Shared(Arc<[u8]>),
    /// It is made while it is sent.
    Stream(Box<dyn BodySource>),
    /// It tells events. The source has the first ones.
    Events(Box<dyn BodySource>, Box<Subscription>),
    /// A file, which may have to be opened first.
    File(FileBody),
    /// The whole response is still to come. The number is that of what the request has asked for.
    Later(u32),
    /// The whole response is still to come, from another thread.
    Awaited(Awaited<Response>),
}

impl Response {
    pub(crate) fn of(status: Status, kind: Option<&'static str>, body: Body) -> Response {
        Response { head: Head::new(status, kind), body, error: None }
    }

    pub(crate) fn with_head(head: Head, body: Body) -> Response {
        Response { head, body, error: None }
    }

    /// A response without a body.
    pub fn empty(status: Status) -> Response {
        Response::of(status, None, Body::Empty)
    }

    /// A text: `text/plain; charset=utf-8`.
    pub fn text(text: impl Into<String>) -> Response {
        Response::of(Status::OK, Some(TEXT), Body::Bytes(text.into().into_bytes()))
    }

    /// A page: `text/html; charset=utf-8`.
    pub fn html(text: impl Into<String>) -> Response {
        Response::of(Status::OK, Some(HTML), Body::Bytes(text.into().into_bytes()))
    }

    /// Bytes: `application/octet-stream`.
    pub fn bytes(bytes: impl Into<Vec<u8>>) -> Response {
        Response::of(Status::OK, Some(BYTES), Body::Bytes(bytes.into()))
    }

    /// Bytes that many responses share, without a copy: `application/octet-stream`.
    pub fn shared(bytes: impl Into<Arc<[u8]>>) -> Response {
        Response::of(Status::OK, Some(BYTES), Body::Shared(bytes.into()))
    }

    /// A value as JSON: `application/json`. A value that cannot be serialized makes a 500.
    #[cfg(feature = "json")]
    pub fn json<T: serde::Serialize + ?Sized>(value: &T) -> Response {
        match serde_json::to_vec(value) {
            Ok(text) => Response::of(Status::OK, Some("application/json"), Body::Bytes(text)),
            Err(error) => Error::from(Status::INTERNAL_SERVER_ERROR).because(error).into(),
        }
    }

    /// A redirect to another URL, by `Location`: 307, so that the method and the body stay.
    /// [`status`](Response::status) makes another one of it.
    pub fn redirect(to: impl Into<Cow<'static, str>>) -> Response {
        Response::empty(Status::TEMPORARY_REDIRECT).header("Location", to)
    }

    /// A body that is made while it is sent: see [`BodySource`].
    ///
    /// ```
    /// use windlass_web::{Flow, Part, Response};
    ///
    /// let mut left = 1000;
    /// Response::stream(move |part: &mut Part<'_>| {
    ///     part.write(b"a line\n");
    ///     left -= 1;
    ///     if left > 0 { Flow::More } else { Flow::End }
    /// });
    /// ```
    pub fn stream(source: impl BodySource + 'static) -> Response {
        Response::of(Status::OK, Some(BYTES), Body::Stream(Box::new(source)))
    }

    pub(crate) fn asked(number: u32) -> Response {
        Response::of(Status::OK, None, Body::Later(number))
    }

    /// Sets the status. The [error](Response::error) of a response keeps its own, which
    /// [`on_error`](crate::App::on_error) sees.
    pub fn status(mut self, status: Status) -> Response {
        self.head.set_status(status);
        self
    }

    /// Sets the `Content-Type`.
    pub fn content_type(self, value: impl Into<Cow<'static, str>>) -> Response {
        self.header("Content-Type", value)
    }

    /// Adds a field: see [`Head::add`].
    pub fn header(
        mut self,
        name: impl Into<Cow<'static, str>>,
        value: impl Into<Cow<'static, str>>,
    ) -> Response {
        self.head.add(name, value);
        self
    }

    /// Closes the connection behind this response, which says `Connection: close`.
    pub fn close(mut self) -> Response {
        self.head.close();
        self
    }

    /// The head.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// The head, to change it.
    pub fn head_mut(&mut self) -> &mut Head {
        &mut self.head
    }

    /// The error that the response is made of, if it is one.
    pub fn error(&self) -> Option<&Error> {
        self.error.as_ref()
    }

    /// Notes the error that the response answers.
    pub(crate) fn keep_error(&mut self, mut error: Error) {
        if !self.head.status().is_error() {
            self.head.set_status(error.status());
        }
        for (name, value) in error.take_fields() {
            if self.head.get(name).is_none() {
                self.head.add(name, value);
            }
        }
        self.error = Some(error);
    }

    pub(crate) fn take_error(&mut self) -> Option<Error> {
        self.error.take()
    }

    pub(crate) fn body(&self) -> &Body {
        &self.body
    }

    /// Whether it is a file that is open: an error that it tells of has been shaped before.
    #[inline]
    pub(crate) fn is_found(&self) -> bool {
        matches!(self.body, Body::File(FileBody::Found(_)))
    }

    pub(crate) fn into_parts(self) -> (Head, Body) {
        (self.head, self.body)
    }
}

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Response").field("head", &self.head).finish_non_exhaustive()
    }
}

impl From<&'static str> for Response {
    fn from(text: &'static str) -> Response {
        Response::of(Status::OK, Some(TEXT), Body::Static(text.as_bytes()))
    }
}

impl From<String> for Response {
    fn from(text: String) -> Response {
        Response::text(text)
    }
}

impl From<&'static [u8]> for Response {
    fn from(bytes: &'static [u8]) -> Response {
        Response::of(Status::OK, Some(BYTES), Body::Static(bytes))
    }
}

impl From<Vec<u8>> for Response {
    fn from(bytes: Vec<u8>) -> Response {
        Response::bytes(bytes)
    }
}

impl From<()> for Response {
    fn from((): ()) -> Response {
        Response::empty(Status::NO_CONTENT)
    }
}

/// A status of an error becomes an [`Error`], all others a response without a body.
impl From<Status> for Response {
    fn from(status: Status) -> Response {
        if status.is_error() { Error::new(status).into() } else { Response::empty(status) }
    }
}

impl From<Error> for Response {
    fn from(error: Error) -> Response {
        let text = error.public_text().to_owned();
        let mut response = Response::text(text).status(error.status());
        // The error keeps them: `on_error` may make another response of it.
        for (name, value) in error.fields() {
            response.head.add(*name, value.clone());
        }
        response.error = Some(error);
        response
    }
}

impl<T: Into<Response>, E: Into<Error>> From<Result<T, E>> for Response {
    fn from(result: Result<T, E>) -> Response {
        match result {
            Ok(value) => value.into(),
            Err(error) => error.into().into(),
        }
    }
}
