//! Prices of shares, many times a second, for thousands of WebSockets, and for Server-Sent Events.
//!
//! ```text
//! cargo run --release -p windlass-web --example ticker -- \
//!     [--port N] [--loops N] [--shares N] [--interval MILLISECONDS]
//! cargo run --release -p windlass-web --example websocket_client -- ws://127.0.0.1:8080/
//! curl --no-buffer http://127.0.0.1:8080/events/S7
//! ```
//!
//! A client of the WebSocket at `/` sends `+S1 +S2` to subscribe to two shares, and `-S1` to
//! unsubscribe from one. A share is a topic: so a price is framed once for all its subscribers. A
//! client that does not keep up misses prices, because newer ones follow.

use std::time::Duration;

use windlass_web::websocket::{CloseCode, Message, Peer, Socket, WebSocketSettings};
use windlass_web::{App, Error, Response, Status};

#[path = "common/mod.rs"]
mod common;

/// The state of a loop.
pub(crate) struct Market {
    /// One loop publishes, for the subscribers of all loops.
    publishes: bool,
    turn: u64,
    shares: usize,
}

impl Market {
    fn has(&self, share: &str) -> bool {
        let number = share.strip_prefix('S').and_then(|number| number.parse::<usize>().ok());
        number.is_some_and(|number| number < self.shares)
    }

    /// The price of a share, which goes up and down.
    fn price(&self, share: usize) -> String {
        let cents = 1750 + (self.turn * 37 + share as u64 * 101) % 1000;
        format!("S{share} {}.{:02}", cents / 100, cents % 100)
    }
}

struct Watching;

impl Peer<Market> for Watching {
    fn message(&mut self, market: &mut Market, c: &mut Socket<'_>, message: Message) {
        let Some(text) = message.as_text() else {
            return c.close(CloseCode::UNSUPPORTED, "shares are text");
        };
        for word in text.split_whitespace() {
            match word.split_at_checked(1) {
                Some(("+", share)) if market.has(share) => c.subscribe(share),
                Some(("-", share)) => c.unsubscribe(share),
                _ => _ = c.send(format!("no share {word}")),
            }
        }
    }
}

pub(crate) fn app(shares: usize, interval: Duration) -> App<Market> {
    let settings = WebSocketSettings::new().any_origin().lossy();
    App::with(move |index| Market { publishes: index == 0, turn: 0, shares })
        .websocket_with(settings, "/", |_, _| Ok::<_, Status>(Watching))
        .get("/events/{share}", |market, q| {
            let share = q.param("share");
            if !market.has(share) {
                return Err(Error::from(Status::NOT_FOUND));
            }
            Ok(Response::from(Response::events().subscribe(share)))
        })
        .every(interval, |market, remote| {
            if market.publishes {
                market.turn += 1;
                for share in 0..market.shares {
                    remote.publish(format!("S{share}"), market.price(share));
                }
            }
        })
}

#[allow(dead_code)] // a test uses the application
fn main() -> std::io::Result<()> {
    const USAGE: &str = "ticker [--port N] [--loops N] [--shares N] [--interval MILLISECONDS] \
        [--tls [--cert FILE --key FILE]]";
    let mut options = common::Options::new(USAGE);
    let shares = options.take("--shares").unwrap_or(10);
    let interval = Duration::from_millis(options.take("--interval").unwrap_or(100));
    common::Setup::new(options, 8080).run(app(shares, interval))
}
