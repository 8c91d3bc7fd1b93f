//! Why there is no WebSocket.

use std::fmt;

/// What is wrong with a request that asks for WebSocket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RequestError {
    /// `Upgrade` has no `websocket`, or `Connection` no `Upgrade`.
    NoUpgrade,
    /// `Sec-WebSocket-Version` is not one `13`.
    Version,
    /// `Sec-WebSocket-Key` is missing, repeated, or not the Base64 of 16 bytes.
    Key,
    /// `Sec-WebSocket-Extensions` is no list of extensions.
    Extensions,
}

impl RequestError {
    /// The status of the response: 400 or 426. A response of status 426 has the fields
    /// `Upgrade: websocket`, `Connection: Upgrade` and `Sec-WebSocket-Version: 13`.
    pub fn status(self) -> u16 {
        match self {
            RequestError::NoUpgrade | RequestError::Version => 426,
            RequestError::Key | RequestError::Extensions => 400,
        }
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RequestError::NoUpgrade => "the request does not ask for WebSocket",
            RequestError::Version => "Sec-WebSocket-Version is not 13",
            RequestError::Key => "Sec-WebSocket-Key is not the Base64 of 16 bytes",
            RequestError::Extensions => "Sec-WebSocket-Extensions is malformed",
        })
    }
}

impl std::error::Error for RequestError {}

/// What is wrong with the response to a request for WebSocket. The client closes the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ResponseError {
    /// `Upgrade` is not `websocket`, or `Connection` has no `Upgrade`.
    NoUpgrade,
    /// `Sec-WebSocket-Accept` is missing, repeated, or does not answer the key.
    Accept,
    /// `Sec-WebSocket-Protocol` is not one of the sub-protocols that were offered.
    Protocol,
    /// `Sec-WebSocket-Extensions` is malformed, or has what was not offered.
    Extensions,
}

impl fmt::Display for ResponseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ResponseError::NoUpgrade => "the response does not switch to WebSocket",
            ResponseError::Accept => "Sec-WebSocket-Accept does not answer the key",
            ResponseError::Protocol => "Sec-WebSocket-Protocol has what was not offered",
            ResponseError::Extensions => "Sec-WebSocket-Extensions has what was not offered",
        })
    }
}

impl std::error::Error for ResponseError {}
