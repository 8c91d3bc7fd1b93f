//! What a request and its response say about the protocol (RFC 6455, section 4).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha1::{Digest, Sha1};

/// The version of the protocol: the value of `Sec-WebSocket-Version`.
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
    if STANDARD.decode(key).ok()?.len() != 16 {
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
