//! Why there is no response.

use std::fmt;
use std::io;
use std::time::Duration;

use windlass_serve::Cause;

use crate::words::error::Error;
use crate::words::status::Status;

/// Why a request to another server has no response.
///
/// It converts into an [`Error`] for the client of a handler: a 504 for a
/// [timeout](FetchError::is_timeout), a 503 for [`Full`](FetchError::Full) and
/// [`Refused`](FetchError::Refused), a 502 for all others.
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
    /// The request cannot be written: a field, the method or the target is wrong, or its body is
    /// longer or shorter than it says.
    Request(windlass_http1::EncodeError),
    /// The source of the request's body has failed, or has panicked.
    Source,
    /// The host has no address: the name is not known (`ENOENT`), or no name server has answered
    /// (`EAGAIN`, `EIO`).
    LookUp {
        /// The host.
        host: String,
        /// The error of the look-up: [`Op::lookup_host`](windlass::Op::lookup_host) lists them.
        errno: i32,
    },
    /// A limit of time has passed.
    Timeout {
        /// What took so long.
        phase: FetchPhase,
        /// The limit.
        limit: Duration,
    },
    /// The connection has failed: it could not be made (`ECONNREFUSED`), or has ended before the
    /// response was whole.
    Connection(Cause),
    /// TLS has failed: the certificate is for another name, or the roots do not trust it.
    #[cfg(feature = "tls")]
    Tls(Box<windlass_serve::tls::Error>),
    /// A URL of `https` needs `FetchSettings::trust`.
    NoTrust,
    /// The server has chosen another protocol than HTTP/1.1 (ALPN).
    Protocol,
    /// The server has ended the connection before the response was whole.
    Ended,
    /// What came is no response of HTTP, or its head is over a limit.
    Response(windlass_http1::Error),
    /// The response has a status that HTTP does not have: 600 to 999.
    Status(u16),
    /// The body of the response is longer than [`Fetch::body_limit`](super::Fetch::body_limit).
    TooLong {
        /// The limit, in bytes.
        limit: u64,
    },
    /// The body of the response cannot be decoded, or is not what was expected.
    Body(String),
    /// A redirect is not followed.
    Redirect {
        /// Where it leads to, as the server has written it.
        to: String,
        /// Why it is not followed.
        why: &'static str,
    },
    /// The server has answered the handshake of a WebSocket with another response than a 101.
    /// Redirects are not followed.
    #[cfg(feature = "websocket")]
    NoWebSocket {
        /// The status of the response.
        status: Status,
        /// Where the response leads to, if it has one `Location`.
        location: Option<String>,
    },
    /// The 101 of the server is none for a WebSocket, or has what was not offered.
    #[cfg(feature = "websocket")]
    Handshake(windlass_websocket::handshake::ResponseError),
    /// Too many requests wait for a connection to this server:
    /// [`FetchSettings::waiting`](super::FetchSettings::waiting).
    Full,
    /// The loop has no room for a further connection, or for a body that is there as a whole (more
    /// than the [cap](windlass_serve::Limits::cap) of a connection, 64 MiB): send it as a
    /// [stream](super::Fetch::stream). Or the [`Client`](crate::Client) has
    /// [stopped](crate::Client::stop).
    Refused,
}

/// What a request to another server does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FetchPhase {
    /// It looks up the name of the host.
    LookUp,
    /// It waits for a connection, because the server has as many as it may have.
    Queue,
    /// It makes a connection, and agrees on TLS.
    Connect,
    /// It waits for the head of the response.
    Head,
    /// It waits for the next part of the body.
    Body,
    /// Any of these: the time for all of them has passed.
    Whole,
}

impl FetchError {
    /// Whether a limit of time has ended the request.
    pub fn is_timeout(&self) -> bool {
        match self {
            FetchError::Timeout { .. } => true,
            FetchError::Connection(cause) => match cause {
                Cause::ConnectTimeout | Cause::TooSlow | Cause::ReadTimeout => true,
                Cause::WriteStall | Cause::WriteTimeout | Cause::Idle => true,
                Cause::Os(errno) => {
                    let kind = io::Error::from_raw_os_error(*errno).kind();
                    kind == io::ErrorKind::TimedOut
                }
                _ => false,
            },
            _ => false,
        }
    }
}

impl fmt::Display for FetchPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FetchPhase::LookUp => "the look-up of the host",
            FetchPhase::Queue => "the wait for a connection",
            FetchPhase::Connect => "the connect",
            FetchPhase::Head => "the head of the response",
            FetchPhase::Body => "the next part of the response",
            FetchPhase::Whole => "the whole response",
        })
    }
}

impl fmt::Display for FetchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FetchError::Url { url, why } => write!(f, "{url}: {why}"),
            FetchError::Request(error) => error.fmt(f),
            FetchError::Source => f.write_str("the source of the request's body has failed"),
            FetchError::LookUp { host, errno } => {
                let error = io::Error::from_raw_os_error(*errno);
                write!(f, "{host} has no address: {error}")
            }
            FetchError::Timeout { phase, limit } => {
                write!(f, "{phase} has taken longer than {limit:?}")
            }
            FetchError::Connection(cause) => write!(f, "the connection has failed: {cause}"),
            #[cfg(feature = "tls")]
            FetchError::Tls(error) => error.fmt(f),
            FetchError::NoTrust => f.write_str("https needs certificate authorities to trust"),
            FetchError::Protocol => f.write_str("the server has chosen another protocol"),
            FetchError::Ended => f.write_str("the server has ended the connection"),
            FetchError::Response(error) => error.fmt(f),
            FetchError::Status(code) => write!(f, "the status {code} is none of HTTP"),
            FetchError::TooLong { limit } => {
                write!(f, "the body of the response is longer than {limit} bytes")
            }
            FetchError::Body(why) => f.write_str(why),
            FetchError::Redirect { to, why } => write!(f, "the redirect to {to}: {why}"),
            #[cfg(feature = "websocket")]
            FetchError::NoWebSocket { status, location: None } => {
                write!(f, "the server refuses the WebSocket with {status}")
            }
            #[cfg(feature = "websocket")]
            FetchError::NoWebSocket { status, location: Some(location) } => {
                write!(f, "the server refuses the WebSocket with {status}, and leads to {location}")
            }
            #[cfg(feature = "websocket")]
            FetchError::Handshake(error) => error.fmt(f),
            FetchError::Full => f.write_str("too many requests wait for a connection"),
            FetchError::Refused => f.write_str("there is no room for it"),
        }
    }
}

impl std::error::Error for FetchError {}

impl From<FetchError> for Error {
    fn from(error: FetchError) -> Error {
        let status = match &error {
            error if error.is_timeout() => Status::GATEWAY_TIMEOUT,
            FetchError::Full | FetchError::Refused => Status::SERVICE_UNAVAILABLE,
            _ => Status::BAD_GATEWAY,
        };
        Error::new(status).because(error)
    }
}
