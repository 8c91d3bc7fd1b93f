//! Prices that change once a second, as Server-Sent Events, and a page that shows them.
//!
//! ```text
//! cargo run --release -p windlass-web --example events -- [--port N] [--loops N]
//! curl --no-buffer http://127.0.0.1:8080/prices
//! ```
//!
//! The page is at `/`, for a browser. `--tls` needs the feature `ring`, as in the example `hello`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use windlass_web::events::ServerEvent;
use windlass_web::{App, Response};

#[path = "common/mod.rs"]
mod common;

const PAGE: &str = r#"<!doctype html>
<meta charset="utf-8">
<title>Prices</title>
<h1>A price: <output id="price">…</output></h1>
<p>Over HTTP/1.1 a browser has at most six connections to a host, those of all tabs together. Each
tab with this page keeps one. So the seventh tab waits, and so does all else of this host. A proxy
in front that speaks HTTP/2 has no such limit.</p>
<script>
  const prices = new EventSource("/prices");
  prices.addEventListener("price", event => {
    document.getElementById("price").textContent = event.data;
  });
</script>
"#;

/// The state of a loop.
pub(crate) struct Prices {
    /// Whether this loop makes the prices. All loops have subscribers.
    publishes: bool,
    /// How many prices there were. All loops have it.
    count: Arc<AtomicU64>,
}

/// A price in cents, which goes up and down.
fn price(count: u64) -> ServerEvent {
    let cents = 1750 + count * 37 % 100;
    let text = format!("{}.{:02}", cents / 100, cents % 100);
    ServerEvent::data(text).name("price").id(&count.to_string())
}

pub(crate) fn app() -> App<Prices> {
    let count = Arc::new(AtomicU64::new(0));
    App::with(move |index| Prices { publishes: index == 0, count: Arc::clone(&count) })
        .get("/", |_, _| Response::html(PAGE))
        .get("/prices", |prices, _| {
            Response::events()
                .subscribe("prices")
                .retry(Duration::from_secs(2))
                .first(price(prices.count.load(Relaxed)))
        })
        .every(Duration::from_secs(1), |prices, remote| {
            if prices.publishes {
                let count = prices.count.fetch_add(1, Relaxed) + 1;
                remote.publish("prices", price(count));
            }
        })
}

#[allow(dead_code)] // a test uses the application
fn main() -> std::io::Result<()> {
    const USAGE: &str = "events [--port N] [--loops N] [--tls [--cert FILE --key FILE]]";
    common::Setup::new(common::Options::new(USAGE), 8080).run(app())
}
