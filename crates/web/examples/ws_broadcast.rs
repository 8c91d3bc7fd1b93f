//! One message to all WebSockets, again and again. Slow clients are cut off, or miss messages.
//!
//! ```text
//! cargo run --release -p windlass-web --example ws_broadcast -- \
//!     [--port N] [--loops N] [--interval MILLISECONDS] [--size BYTES] [--lossy]
//! ```
//!
//! A message is framed once, and all connections send the same memory. A client for which more
//! than 64 KiB wait is disconnected. With `--lossy` it only misses messages, until it has read what
//! waits; `GET /counts` says how many were missed. Either way the others get each message in time.

use std::time::Duration;

use windlass_web::serve::Limits;
use windlass_web::websocket::{Message, Peer, Socket, WebSocketSettings};
use windlass_web::{App, Status};

#[path = "common/mod.rs"]
mod common;

/// More output than this, in bytes, makes a client slow.
const MOST: usize = 64 << 10;

/// The state of a loop.
pub(crate) struct Loop {
    /// One loop publishes, for the subscribers of all loops.
    publishes: bool,
    number: u64,
}

struct Subscriber;

impl Peer<Loop> for Subscriber {
    fn open(&mut self, _: &mut Loop, c: &mut Socket<'_>) {
        c.subscribe("all");
    }

    fn message(&mut self, _: &mut Loop, _: &mut Socket<'_>, _: Message) {}
}

/// The message of a number: so many bytes of text.
fn message(number: u64, size: usize) -> String {
    let text = format!("message {number} ");
    format!("{text:.<0$}\n", size.saturating_sub(1))
}

pub(crate) fn app(interval: Duration, size: usize, is_lossy: bool) -> App<Loop> {
    let settings = WebSocketSettings::new().any_origin();
    let settings = if is_lossy { settings.lossy() } else { settings };
    let limits = Limits::new().marks(MOST / 4, MOST);
    App::with(|index| Loop { publishes: index == 0, number: 0 })
        .websocket_with(settings.clone(), "/", |_, _| Ok::<_, Status>(Subscriber))
        .websocket_with(settings, "/{*path}", |_, _| Ok::<_, Status>(Subscriber))
        .get("/counts", |_, q| {
            let totals = q.remote().totals();
            format!("missed {}\ndisconnected {}\n", totals.lost_events, totals.slow_subscribers)
        })
        .every(interval, move |state, remote| {
            if state.publishes {
                state.number += 1;
                remote.publish("all", message(state.number, size));
            }
        })
        .serve_limits(limits)
}

#[allow(dead_code)] // a test uses the application
fn main() -> std::io::Result<()> {
    const USAGE: &str = "ws_broadcast [--port N] [--loops N] [--interval MILLISECONDS] \
        [--size BYTES] [--lossy] [--tls [--cert FILE --key FILE]]";
    let mut options = common::Options::new(USAGE);
    let interval = Duration::from_millis(options.take("--interval").unwrap_or(1000));
    let size = options.take("--size").unwrap_or(64);
    let is_lossy = options.flag("--lossy");
    common::Setup::new(options, 8080).run(app(interval, size, is_lossy))
}
