//! Requests to a server: `client URL` prints the status, the fields and the body of the response.
//!
//! ```text
//! cargo run --release -p windlass-web --features ring,webpki-roots --example client -- \
//!     [--post FILE] [--count N] [--connections N] URL
//! ```
//!
//! `--post FILE` sends a file. With `--count N` it is a small load: N requests, on at most
//! `--connections N` connections, and it prints how long they took. The features are for `https`.

use std::io::{self, Write};
use std::time::Instant;

use windlass_web::client::{Fetch, FetchEvent, FetchSettings};
use windlass_web::windlass::{Completions, Watcher};
use windlass_web::{Client, Status};

#[allow(dead_code)] // this example has no option without a value
#[path = "../../../examples/common/options.rs"]
mod options;

use options::Options;

const USAGE: &str = "client [--post FILE] [--count N] [--connections N] URL";

fn main() -> io::Result<()> {
    let mut options = Options::new(USAGE);
    let post: Option<String> = options.take("--post");
    let count: usize = options.take("--count").unwrap_or(1);
    let connections: usize = options.take("--connections").unwrap_or(16);
    let url: String = options.word();
    options.end();

    let body = post.map(std::fs::read).transpose()?;
    let fetch = || match &body {
        Some(bytes) => Fetch::post(&url).body(bytes.clone()),
        None => Fetch::get(&url),
    };
    let mut watcher = Watcher::new()?;
    let mut client = Client::new(FetchSettings::new().connections(connections, connections));
    if count > 1 {
        return load(&mut watcher, &mut client, count, connections, fetch);
    }

    let id = client.fetch(fetch().timeout(None).body_limit(u64::MAX));
    let response = client.wait_for(&mut watcher, id)?;
    let mut out = io::stdout().lock();
    writeln!(out, "{}", response.status())?;
    for (name, value) in response.headers() {
        writeln!(out, "{name}: {}", String::from_utf8_lossy(value))?;
    }
    writeln!(out)?;
    out.write_all(response.body())
}

/// Sends so many requests, one at a time on each connection.
fn load(
    watcher: &mut Watcher,
    client: &mut Client,
    count: usize,
    connections: usize,
    fetch: impl Fn() -> Fetch,
) -> io::Result<()> {
    let (begin, mut done) = (Instant::now(), Completions::new());
    let (mut begun, mut ok, mut failed) = (0, 0, 0);
    while ok + failed < count {
        while begun < count && client.requests() < connections {
            client.fetch(fetch());
            begun += 1;
        }
        client.flush(watcher);
        watcher.wait(&mut done)?;
        let mut batch = done.visit();
        while let Some(event) = client.next_event_in(watcher, &mut batch) {
            match event {
                FetchEvent::Fetched { result: Ok(response), .. } => {
                    ok += usize::from(response.status() == Status::OK);
                    failed += usize::from(response.status() != Status::OK);
                }
                FetchEvent::Fetched { result: Err(error), .. } => {
                    eprintln!("{error}");
                    failed += 1;
                }
                _ => {}
            }
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    println!("{ok} of {count} requests in {seconds:.3} s: {:.0}/s", count as f64 / seconds);
    Ok(())
}
