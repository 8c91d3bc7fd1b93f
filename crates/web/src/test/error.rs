//! Why a client of a test has no response.

use std::{fmt, io};

use crate::words::status::Status;

/// Why a client has no response, or not the one that the test has asked for.
#[derive(Debug)]
#[non_exhaustive]
pub enum ClientError {
    /// There is no connection: the server has not seen the request.
    Connect(io::Error),
    /// The connection has ended before the response was whole. The server may have seen the
    /// request.
    Ended {
        /// Whether a byte of the response has come.
        begun: bool,
        /// How the connection has failed; `None` for an end of file.
        error: Option<io::Error>,
    },
    /// Nothing more has come for as long as the client waits. The server may have seen the request.
    Timeout,
    /// The response breaks a rule of HTTP.
    Malformed(windlass_http1::Error),
    /// The test has asked for a value, and the response is an error: its status, and its text.
    Status(Status, String),
    /// The test has asked for a value, and the body is none of its type.
    #[cfg(feature = "json")]
    Json(serde_json::Error),
    /// The handshake of TLS has failed, or a record of it is wrong.
    #[cfg(feature = "tls")]
    Tls(windlass_serve::tls::Error),
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientError::Connect(error) => write!(f, "no connection: {error}"),
            ClientError::Ended { begun, error } => {
                let place = if *begun { "inside of a response" } else { "before a response" };
                write!(f, "the connection has ended {place}")?;
                match error {
                    Some(error) => write!(f, ": {error}"),
                    None => Ok(()),
                }
            }
            ClientError::Timeout => write!(f, "no response in time"),
            ClientError::Malformed(error) => write!(f, "the response is wrong: {error}"),
            ClientError::Status(status, text) => write!(f, "{status}: {text}"),
            #[cfg(feature = "json")]
            ClientError::Json(error) => write!(f, "the body is wrong: {error}"),
            #[cfg(feature = "tls")]
            ClientError::Tls(error) => write!(f, "TLS: {error}"),
        }
    }
}

impl std::error::Error for ClientError {}
