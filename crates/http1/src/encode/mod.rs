//! Encoders: heads and chunks, appended to the caller's memory.
//!
//! # Why
//!
//! A value with a line end in it is a second response to the peer. So all that becomes part of a
//! head is checked, also what the program thinks it knows. What decides about the framing, the
//! encoder writes itself.

mod body;
mod fixed;
mod request;
mod response;
mod status;

use std::fmt;

pub use body::BodyEncoder;
pub use fixed::FixedField;
pub use request::RequestEncoder;
pub use response::ResponseEncoder;
pub use status::reason;

use crate::bytes::{is_token, is_value};

/// Why nothing was written.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum EncodeError {
    /// The method is no token.
    Method,
    /// The target is not valid for the method.
    Target,
    /// The Host is not a host with an optional port.
    Host,
    /// The status is not one of 100 to 599, or does not fit: a 101 switches, a 2xx to a CONNECT is
    /// a tunnel, and a 1xx goes to no client of HTTP/1.0.
    Status,
    /// The name of a field is no token.
    Name,
    /// A value has control bytes: CR, LF, NUL and others.
    Value,
    /// The encoder writes this field itself, or it is no trailer: Content-Length,
    /// Transfer-Encoding, Connection, Upgrade, Host.
    Framing,
    /// This message has no body, or no trailers.
    NoBody,
    /// The body is longer than its Content-Length.
    TooLong,
    /// The body is shorter than its Content-Length.
    TooShort,
}

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            EncodeError::Method => "the method is no token",
            EncodeError::Target => "the target is not valid for the method",
            EncodeError::Host => "the Host is not a host with an optional port",
            EncodeError::Status => "the status does not fit",
            EncodeError::Name => "the name of a field is no token",
            EncodeError::Value => "the value of a field has control bytes",
            EncodeError::Framing => "the encoder writes this field itself",
            EncodeError::NoBody => "the message has no body or no trailers",
            EncodeError::TooLong => "the body is longer than its Content-Length",
            EncodeError::TooShort => "the body is shorter than its Content-Length",
        })
    }
}

impl std::error::Error for EncodeError {}

/// A head that is being written. Without its end it is taken back.
#[derive(Debug)]
struct Draft<'o> {
    out: &'o mut Vec<u8>,
    start: usize,
    is_whole: bool,
}

impl Draft<'_> {
    fn new(out: &mut Vec<u8>) -> Draft<'_> {
        Draft { start: out.len(), out, is_whole: false }
    }

    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// Writes a field of the program.
    #[inline]
    fn field(&mut self, name: &str, value: &[u8]) -> Result<(), EncodeError> {
        check_own(name, value)?;
        self.line(name, value);
        Ok(())
    }

    #[inline]
    fn line(&mut self, name: &str, value: &[u8]) {
        line(self.out, name, value);
    }

    #[inline]
    fn number(&mut self, name: &'static str, number: u64) {
        self.line(name, itoa::Buffer::new().format(number).as_bytes());
    }

    fn upgrade(&mut self, protocol: &str) -> Result<(), EncodeError> {
        if protocol.is_empty() || !is_value(protocol.as_bytes()) {
            return Err(EncodeError::Value);
        }
        self.line("Upgrade", protocol.as_bytes());
        Ok(())
    }

    /// Writes `Connection` with the options that are on, if one is.
    #[inline]
    fn connection(&mut self, options: [(bool, &str); 3]) {
        if options.iter().any(|(is_on, _)| *is_on) {
            self.connection_with(options);
        }
    }

    fn connection_with(&mut self, options: [(bool, &str); 3]) {
        let mut before = "Connection: ";
        for (_, option) in options.into_iter().filter(|(is_on, _)| *is_on) {
            self.put(before.as_bytes());
            self.put(option.as_bytes());
            before = ", ";
        }
        self.put(b"\r\n");
    }

    #[inline]
    fn end(&mut self) {
        self.put(b"\r\n");
        self.is_whole = true;
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        if !self.is_whole {
            self.out.truncate(self.start);
        }
    }
}

#[inline]
fn line(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.reserve(name.len() + value.len() + 4);
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

#[inline]
fn check_field(name: &str, value: &[u8]) -> Result<(), EncodeError> {
    match () {
        () if !is_token(name.as_bytes()) => Err(EncodeError::Name),
        () if !is_value(value) => Err(EncodeError::Value),
        () => Ok(()),
    }
}

/// Whether a program may write this field.
#[inline]
fn check_own(name: &str, value: &[u8]) -> Result<(), EncodeError> {
    check_field(name, value)?;
    if is_own(name.as_bytes()) { Err(EncodeError::Framing) } else { Ok(()) }
}

/// Whether the encoder writes this field itself.
#[inline]
fn is_own(name: &[u8]) -> bool {
    let own: &[u8] = match name.len() {
        4 => b"host",
        7 => b"upgrade",
        10 => b"connection",
        14 => b"content-length",
        17 => b"transfer-encoding",
        _ => return false,
    };
    name.eq_ignore_ascii_case(own)
}
