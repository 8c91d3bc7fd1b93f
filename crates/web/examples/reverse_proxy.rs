//! A reverse proxy: each request goes on to the server with the fewest requests.
//!
//! ```text
//! cargo run --release -p windlass-web --features ring --example reverse_proxy -- \
//!     --to http://127.0.0.1:9000 [--to URL] [--port N] [--loops N] [--connections N] \
//!     [--tls] [--cert FILE --key FILE] [--trust FILE]
//! ```
//!
//! Bodies go on as they come, both ways, and WebSocket goes through. `GET /proxy-status` counts the
//! requests and failures of each server, of one loop. `--trust FILE` names the certificates that
//! servers of `https` are checked by. The variable `WINDLASS_DRIVER` chooses the driver.

use std::fmt::Write;
use std::io;

use windlass_web::App;
use windlass_web::client::FetchSettings;
use windlass_web::proxy::Upstream;

#[path = "common/mod.rs"]
mod common;

const USAGE: &str = "reverse_proxy --to URL [--to URL] [--port N] [--loops N] [--connections N] \
                     [--tls] [--cert FILE --key FILE] [--trust FILE]";

/// The proxy: each loop has an `Upstream`, one page is its own, and all other requests go on.
pub(crate) fn app(urls: Vec<String>, connections: u32) -> io::Result<App<Upstream>> {
    let upstream = move || {
        let upstream = Upstream::of(urls.iter().map(String::as_str))?;
        Ok(upstream.connections(connections))
    };
    upstream().map_err(|error: windlass_web::client::FetchError| io::Error::other(error))?;
    Ok(App::with(move |_loop| upstream().expect("the URLs were parsed before"))
        .get("/proxy-status", |up, _| {
            let mut text = String::new();
            for one in up.counters() {
                let out = if one.is_out { ", out" } else { "" };
                let (active, all, failed) = (one.active, one.requests, one.failures);
                let _ = writeln!(text, "{}: {active} of {all}, {failed} failed{out}", one.url);
            }
            text
        })
        .fallback(|up, q| q.forward(up))
        .at_head())
}

#[allow(dead_code)] // a test uses the application
fn main() -> io::Result<()> {
    let mut options = common::Options::new(USAGE);
    let urls: Vec<String> = std::iter::from_fn(|| options.take("--to")).collect();
    let connections: u32 = options.take("--connections").unwrap_or(64);
    let settings = FetchSettings::new().connections(connections as usize, 16 * 1024);
    #[cfg(feature = "ring")]
    let settings = match options.take::<String>("--trust") {
        Some(file) => settings.trust(
            windlass_web::tls::TlsClient::builder()
                .roots(file.as_str())
                .alpn(["http/1.1"])
                .build()?,
        ),
        None => settings,
    };
    common::Setup::new(options, 8080).run(app(urls, connections)?.client(settings))
}
