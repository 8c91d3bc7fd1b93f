//! WebSocket servers that echo compressed messages.

use std::io;

use windlass::DriverKind;
use windlass_web::websocket::{Deflate, WebSocketSettings};

use super::{websocket_peers, windlass_web as web};

/// Context takeover both ways, with windows of so many bits; 0: none.
pub fn windlass(port: u16, window: u8, level: u8) -> io::Result<()> {
    let agree = match window {
        0 => Deflate::NO_TAKEOVER,
        bits => Deflate { server_window: bits, client_window: bits, ..Deflate::TAKEOVER },
    };
    let settings = WebSocketSettings::new().deflate(agree).compress(level, 64);
    web::websocket(port, DriverKind::Auto, settings)
}

/// The same, with a compressor and a decompressor for each connection. Without takeover, they are
/// reset.
pub fn yawc(port: u16, window: u8, level: u8) -> io::Result<()> {
    let options = yawc::Options::default()
        .with_compression_level(yawc::CompressionLevel::new(level.into()))
        .with_compression_threshold(64);
    let options = match window {
        0 => options.server_no_context_takeover().client_no_context_takeover(),
        bits => options.with_server_max_window_bits(bits).with_client_max_window_bits(bits),
    };
    websocket_peers::yawc(port, options)
}
