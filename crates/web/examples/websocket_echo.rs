//! A WebSocket server that sends every message back, on every path.
//!
//! ```text
//! cargo run --release -p windlass-web --example websocket_echo -- \
//!     [--port N] [--loops N] [--tls [--cert FILE --key FILE]] [--limit BYTES] \
//!     [--deflate | --takeover]
//! ```
//!
//! `--limit` sets how many bytes a message may have, 32 MiB by default. With the feature `deflate`,
//! `--deflate` compresses messages one by one, and `--takeover` with those before them (context
//! takeover). Pages of any origin may connect.

#[cfg(feature = "deflate")]
use windlass_web::websocket::Deflate;
use windlass_web::websocket::{Message, Peer, Socket, WebSocketSettings};
use windlass_web::{App, Status};

#[path = "common/mod.rs"]
mod common;

struct Echo;

impl Peer<()> for Echo {
    fn message(&mut self, _: &mut (), c: &mut Socket<'_>, message: Message) {
        c.send(message);
    }
}

fn app(settings: WebSocketSettings) -> App {
    let accept = |_: &mut (), _: &mut windlass_web::Request<'_>| Ok::<_, Status>(Echo);
    App::new()
        .websocket_with(settings.clone(), "/", accept)
        .websocket_with(settings, "/{*path}", accept)
}

fn main() -> std::io::Result<()> {
    const USAGE: &str = "websocket_echo [--port N] [--loops N] \
        [--tls [--cert FILE --key FILE]] [--limit BYTES] [--deflate | --takeover]";
    let mut options = common::Options::new(USAGE);
    let limit = options.take("--limit").unwrap_or(32 << 20);
    let settings = WebSocketSettings::new().any_origin().message_limit(limit);
    #[cfg(feature = "deflate")]
    let settings = match (options.flag("--deflate"), options.flag("--takeover")) {
        (_, true) => settings.deflate(Deflate::TAKEOVER),
        (true, false) => settings.deflate(Deflate::default()),
        _ => settings,
    };
    let setup = common::Setup::take(&mut options, 8080);
    options.end();
    setup.run(app(settings))
}
