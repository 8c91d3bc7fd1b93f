//! A WebSocket server that sends every message back, on every path.
//!
//! ```text
//! cargo run --release -p windlass-web --example websocket_echo -- \
//!     [--port N] [--loops N] [--tls [--cert FILE --key FILE]] [--limit BYTES]
//! ```
//!
//! `--limit` sets how many bytes a message may have: 32 MiB, if it is not there.

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

fn app(limit: u64) -> App {
    let settings = WebSocketSettings::new().any_origin().message_limit(limit);
    let accept = |_: &mut (), _: &mut windlass_web::Request<'_>| Ok::<_, Status>(Echo);
    App::new()
        .websocket_with(settings.clone(), "/", accept)
        .websocket_with(settings, "/{*path}", accept)
}

fn main() -> std::io::Result<()> {
    const USAGE: &str = "websocket_echo [--port N] [--loops N] \
        [--tls [--cert FILE --key FILE]] [--limit BYTES]";
    let mut options = common::Options::new(USAGE);
    let limit = options.take("--limit").unwrap_or(32 << 20);
    let setup = common::Setup::take(&mut options, 8080);
    options.end();
    setup.run(app(limit))
}
