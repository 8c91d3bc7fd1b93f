//! What a request and its response say about the protocol (RFC 6455, section 4), without a type of
//! any HTTP library.
//!
//! A function takes the values of a field as an iterator of `&str` or `&[u8]`, one item for each
//! line of the field, or asks a closure for them by the field's name. All names are compared
//! without regard to case, but those of sub-protocols and extensions.
//!
//! The program itself checks what is not in these fields: that the request is a GET of HTTP/1.1
//! without a body, that its `Origin` is one that the program serves, and that the status of the
//! response is 101.
//!
//! ```
//! use windlass_websocket::handshake::{self, Deflate, RequestError};
//!
//! const REQUEST: &[(&str, &str)] = &[
//!     ("Connection", "keep-alive, Upgrade"),
//!     ("Upgrade", "websocket"),
//!     ("Sec-WebSocket-Version", "13"),
//!     ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
//!     ("Sec-WebSocket-Protocol", "chat, superchat"),
//!     ("Sec-WebSocket-Extensions", "permessage-deflate; client_max_window_bits"),
//! ];
//!
//! fn values(name: &str) -> impl Iterator<Item = &'static str> {
//!     let fields = REQUEST.iter().filter(move |(other, _)| other.eq_ignore_ascii_case(name));
//!     fields.map(|(_, value)| *value)
//! }
//!
//! let accept = handshake::check_request(values)?; // the value of Sec-WebSocket-Accept
//! assert_eq!(accept, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
//!
//! let offered = values("Sec-WebSocket-Protocol");
//! assert_eq!(handshake::choose_protocol(offered, &["superchat", "chat"]), Some("superchat"));
//!
//! let offers = values("Sec-WebSocket-Extensions");
//! let (agreed, answer) = Deflate::TAKEOVER.accept(offers)?.expect("an offer to agree to");
//! assert_eq!((agreed.server_window, agreed.client_window), (12, 12));
//! assert_eq!(answer, "permessage-deflate; server_max_window_bits=12; client_max_window_bits=12");
//! # Ok::<(), RequestError>(())
//! ```

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha1::{Digest, Sha1};

mod deflate;
mod errors;
mod list;

pub use deflate::{Deflate, check_extensions};
pub use errors::{RequestError, ResponseError};

/// The version of the protocol: the value of `Sec-WebSocket-Version`, also in a response of status
/// 426 to a request of another version.
pub const VERSION: &str = "13";

/// The value of `Sec-WebSocket-Accept` that answers a `Sec-WebSocket-Key`; `None` if that is not
/// the Base64 of 16 bytes.
///
/// ```
/// use windlass_websocket::handshake;
///
/// let accept = handshake::accept("dGhlIHNhbXBsZSBub25jZQ==");
/// assert_eq!(accept.as_deref(), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
/// assert_eq!(handshake::accept("c2hvcnQ="), None);
/// ```
pub fn accept(key: &str) -> Option<String> {
    let digits = key.strip_suffix("==")?;
    let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    // The last digit may have bits beyond the 16 bytes: some clients draw all 22 digits.
    if digits.len() != 22 || !digits.bytes().all(is_digit) {
        return None;
    }
    let mut hash = Sha1::new();
    hash.update(key);
    hash.update("258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    Some(STANDARD.encode(hash.finalize()))
}

/// The value of `Sec-WebSocket-Key` with these bytes, which must be random.
pub fn key(random: [u8; 16]) -> String {
    STANDARD.encode(random)
}

/// Whether a token is in the lists of a field, without regard to case: `upgrade` in those of
/// `Connection`, `websocket` in those of `Upgrade`.
///
/// ```
/// use windlass_websocket::handshake::has_token;
///
/// assert!(has_token(["keep-alive, Upgrade"], "upgrade"));
/// assert!(!has_token(["websocket2", "h2c"], "websocket"));
/// ```
pub fn has_token<'a, V: AsRef<[u8]> + ?Sized + 'a>(
    values: impl IntoIterator<Item = &'a V>,
    token: &str,
) -> bool {
    let mut elements = values.into_iter().flat_map(list::elements);
    elements.any(|element| element.eq_ignore_ascii_case(token.as_bytes()))
}

/// Checks the fields of a request that asks for WebSocket, and returns the value of
/// `Sec-WebSocket-Accept` for the response. `values` gives the values of each field by its name.
///
/// # Errors
///
/// The request is answered with [`RequestError::status`].
pub fn check_request<'a, V: AsRef<[u8]> + ?Sized + 'a, I: IntoIterator<Item = &'a V>>(
    values: impl Fn(&'static str) -> I,
) -> Result<String, RequestError> {
    let is_asked = has_token(values("Upgrade"), "websocket");
    if !is_asked || !has_token(values("Connection"), "upgrade") {
        return Err(RequestError::NoUpgrade);
    }
    if list::only(values("Sec-WebSocket-Version")) != Some(VERSION) {
        return Err(RequestError::Version);
    }
    list::only(values("Sec-WebSocket-Key")).and_then(accept).ok_or(RequestError::Key)
}

/// Checks the fields of the response of status 101 to a request with this `Sec-WebSocket-Key`.
/// `values` gives the values of each field by its name. [`check_protocol`] and
/// [`check_extensions`] check the rest.
///
/// # Errors
///
/// The server does not speak the protocol, or has answered another request. The client closes the
/// connection.
pub fn check_response<'a, V: AsRef<[u8]> + ?Sized + 'a, I: IntoIterator<Item = &'a V>>(
    key: &str,
    values: impl Fn(&'static str) -> I,
) -> Result<(), ResponseError> {
    let protocol = list::only(values("Upgrade"));
    let is_switched = protocol.is_some_and(|name| name.eq_ignore_ascii_case("websocket"));
    if !is_switched || !has_token(values("Connection"), "upgrade") {
        return Err(ResponseError::NoUpgrade);
    }
    let said = list::only(values("Sec-WebSocket-Accept"));
    if said.is_none() || said != accept(key).as_deref() {
        return Err(ResponseError::Accept);
    }
    Ok(())
}

/// The sub-protocols that the values of `Sec-WebSocket-Protocol` name, in their order. What is no
/// token is left out.
///
/// ```
/// use windlass_websocket::handshake::protocols;
///
/// assert!(protocols(["chat, a b", "v2.soap"]).eq(["chat", "v2.soap"]));
/// ```
pub fn protocols<'a, V: AsRef<[u8]> + ?Sized + 'a>(
    values: impl IntoIterator<Item = &'a V>,
) -> impl Iterator<Item = &'a str> {
    let elements = values.into_iter().flat_map(list::elements);
    elements.filter(|element| list::is_token(element)).filter_map(|name| str::from_utf8(name).ok())
}

/// The sub-protocol that a server answers with: the first of its own that the client offers, in
/// the case in which it is written. `None` is no field in the response: the client then goes on
/// without a sub-protocol, or closes.
pub fn choose_protocol<'a, 's, V: AsRef<[u8]> + ?Sized + 'a, I>(
    values: I,
    own: &[&'s str],
) -> Option<&'s str>
where
    I: IntoIterator<Item = &'a V>,
{
    let place = |name: &str| own.iter().position(|own| *own == name);
    protocols(values).filter_map(place).min().map(|at| own[at])
}

/// The sub-protocol that a server has chosen; `None` if the response has no such field.
///
/// # Errors
///
/// It is none of those that were offered, or not one alone.
pub fn check_protocol<'a, 's, V: AsRef<[u8]> + ?Sized + 'a, I>(
    values: I,
    offered: &[&'s str],
) -> Result<Option<&'s str>, ResponseError>
where
    I: IntoIterator<Item = &'a V>,
{
    let mut values = values.into_iter().peekable();
    if values.peek().is_none() {
        return Ok(None);
    }
    let chosen = list::only(values).ok_or(ResponseError::Protocol)?;
    let same = offered.iter().find(|name| **name == chosen);
    same.map(|name| Some(*name)).ok_or(ResponseError::Protocol)
}
