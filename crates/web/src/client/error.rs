//! Why there is no response.

use std::fmt;

use windlass_serve::Cause;

use crate::words::error::Error;
use crate::words::status::Status;

/// Why a request to another server has no response.
///
/// It converts into an [`Error`]: a 504 if it took too long, and a 502 else.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum FetchError {
    /// The URL cannot be used.
    Url {
        /// The URL.
        url: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The request cannot be written: a field or the method is wrong.
    Request(windlass_http1::EncodeError),
    /// The connection has failed before the response was whole.
    Connection(Cause),
    /// The server has ended the connection before the response was whole.
    Ended,
    /// It is no response of HTTP.
    Response(windlass_http1::Error),
    /// The loop has no room for a further connection, or its server shuts down.
    Refused,
}

impl FetchError {
    /// Whether a limit of time has ended the request.
    pub fn is_timeout(&self) -> bool {
        matches!(self, FetchError::Connection(Cause::ConnectTimeout | Cause::TooSlow))
    }
}

impl fmt::Display for FetchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FetchError::Url { url, why } => write!(f, "{url}: {why}"),
            FetchError::Request(error) => error.fmt(f),
            FetchError::Connection(cause) => write!(f, "the connection has failed: {cause}"),
            FetchError::Ended => f.write_str("the server has ended the connection"),
            FetchError::Response(error) => error.fmt(f),
            FetchError::Refused => f.write_str("there is no room for a further connection"),
        }
    }
}

impl std::error::Error for FetchError {}

impl From<FetchError> for Error {
    fn from(error: FetchError) -> Error {
        let is_late = error.is_timeout();
        Error::new(if is_late { Status::GATEWAY_TIMEOUT } else { Status::BAD_GATEWAY })
            .because(error)
    }
}
