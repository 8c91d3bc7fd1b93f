//! Why a request failed: what the client is told, and what only the program knows.

use std::borrow::Cow;
use std::{fmt, io};

use crate::words::status::Status;

type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Why a request failed: a status and a text for the client, and a cause for the program.
///
/// The client gets the status and the text. The cause stays in the server:
/// [`Finished::error`](crate::Finished::error) has it, for a log. Every [`Status`] converts into an
/// error. [`App::on_error`](crate::App::on_error) makes the response of every error, also of those
/// that the server finds itself.
///
/// ```
/// use windlass_web::{Error, Status};
///
/// let missing = Error::from(Status::NOT_FOUND).text("there is no such note");
/// assert_eq!(missing.to_string(), "404 Not Found: there is no such note");
///
/// // `?` makes a 500 of an `io::Error`, whose text the client does not see. Other errors need a
/// // status: `map_err(|error| Error::new(Status::BAD_GATEWAY).because(error))`.
/// let broken = Error::from(std::io::Error::other("the disk is gone"));
/// assert_eq!(broken.status(), Status::INTERNAL_SERVER_ERROR);
/// assert_eq!(broken.cause().unwrap().to_string(), "the disk is gone");
/// ```
pub struct Error(Box<Parts>);

struct Parts {
    status: Status,
    text: Cow<'static, str>,
    cause: Option<Cause>,
    fields: Vec<(&'static str, Cow<'static, str>)>,
}

impl Error {
    /// An error with this status. A status below 400 counts as 500.
    pub fn new(status: Status) -> Error {
        let status = if status.is_error() { status } else { Status::INTERNAL_SERVER_ERROR };
        Error(Box::new(Parts { status, text: Cow::Borrowed(""), cause: None, fields: Vec::new() }))
    }

    /// That of a body that is longer than its limit.
    pub(crate) fn body_too_long() -> Error {
        Error::new(Status::CONTENT_TOO_LARGE).text("the body is longer than the limit")
    }

    /// Sets the text for the client: the body of the response, `text/plain; charset=utf-8`.
    pub fn text(mut self, text: impl Into<Cow<'static, str>>) -> Error {
        self.0.text = text.into();
        self
    }

    /// Sets the cause, which the client does not see.
    pub fn because(mut self, cause: impl Into<Cause>) -> Error {
        self.0.cause = Some(cause.into());
        self
    }

    /// Adds a field to the response, as `WWW-Authenticate` of a 401.
    pub fn header(mut self, name: &'static str, value: impl Into<Cow<'static, str>>) -> Error {
        self.0.fields.push((name, value.into()));
        self
    }

    /// The status.
    pub fn status(&self) -> Status {
        self.0.status
    }

    /// The text for the client; if there is none, the [reason](Status::reason) of the status.
    pub fn public_text(&self) -> &str {
        if self.0.text.is_empty() { self.0.status.reason() } else { &self.0.text }
    }

    /// The cause, which the client does not see.
    pub fn cause(&self) -> Option<&(dyn std::error::Error + Send + Sync + 'static)> {
        self.0.cause.as_deref()
    }

    pub(crate) fn fields(&self) -> &[(&'static str, Cow<'static, str>)] {
        &self.0.fields
    }

    pub(crate) fn take_fields(&mut self) -> Vec<(&'static str, Cow<'static, str>)> {
        std::mem::take(&mut self.0.fields)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.status.fmt(f)?;
        match &*self.0.text {
            "" => Ok(()),
            text => write!(f, ": {text}"),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Parts { status, text, cause, .. } = &*self.0;
        f.debug_struct("Error")
            .field("status", status)
            .field("text", text)
            .field("cause", cause)
            .finish()
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.cause.as_deref().map(|cause| cause as &(dyn std::error::Error + 'static))
    }
}

impl From<Status> for Error {
    fn from(status: Status) -> Error {
        Error::new(status)
    }
}

impl From<io::Error> for Error {
    fn from(cause: io::Error) -> Error {
        Error::new(Status::INTERNAL_SERVER_ERROR).because(cause)
    }
}
