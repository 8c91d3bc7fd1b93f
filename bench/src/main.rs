//! windlass beside raw loops and its peers.
//!
//! ```text
//! cargo run --release --manifest-path bench/Cargo.toml -- echo [--runs 5] [--seconds 2]
//! cargo run --release --manifest-path bench/Cargo.toml -- idle [--connections 5000]
//! cargo run --release --manifest-path bench/Cargo.toml -- files [--runs 5]
//! cargo run --release --manifest-path bench/Cargo.toml -- gaio [--runs 5]
//! cargo run --release --manifest-path bench/Cargo.toml -- redis [--runs 5] [--requests 1000000]
//! cargo run --release --manifest-path bench/Cargo.toml -- proxy [--runs 5] [--seconds 2]
//! cargo run --release --manifest-path bench/Cargo.toml -- modes [--runs 5] [--seconds 2]
//! cargo run --release --manifest-path bench/Cargo.toml -- broadcast [--runs 5] [--seconds 3]
//! cargo run --release --manifest-path bench/Cargo.toml -- million [--connections 1000000]
//! cargo run --release --manifest-path bench/Cargo.toml -- datagrams [--runs 7] [--seconds 0.5]
//! cargo run --release --manifest-path bench/Cargo.toml -- tls [--runs 5] [--seconds 2]
//! cargo run --release --manifest-path bench/Cargo.toml --features http,ntex -- http [--runs 5]
//! cargo run --release --manifest-path bench/Cargo.toml -- http-files [--runs 5] [--seconds 1]
//! cargo run --release --manifest-path bench/Cargo.toml --features http -- http-client [--runs 5]
//! cargo run --release --manifest-path bench/Cargo.toml -- http-proxy [--runs 5] [--seconds 1]
//! cargo run --release --manifest-path bench/Cargo.toml --features websocket -- websocket
//! cargo run --release --manifest-path bench/Cargo.toml --features deflate -- websocket-deflate
//! cargo run --release --manifest-path bench/Cargo.toml -- websocket-broadcast [--runs 5]
//! cargo run --release --manifest-path bench/Cargo.toml -- blocks [--runs 5] [--seconds 2]
//! cargo run --release --manifest-path bench/Cargo.toml --features slow-disk -- upload
//! cargo run --release --manifest-path bench/Cargo.toml -- all [--runs 5] [--seconds 2]
//! ```
//!
//! A suite starts each server as a process of its own on processor 0, and its clients as another on
//! processor 1. It interleaves the servers: every run measures each of them once, in an order that
//! changes with the run. It prints a Markdown table and writes it, with a plot, to `bench/results`.
//!
//! Ratios are made within a run, against the first server of the suite. Their 95 % intervals come
//! from resampling the runs.

mod allocations;
mod arguments;
mod clients;
mod datagrams;
#[cfg(feature = "deflate")]
mod deflate_load;
mod exchanges;
mod get_load;
mod histogram;
mod http_load;
mod listeners;
mod load;
mod machine;
mod pattern;
mod peers;
mod plot;
mod process;
mod rounds;
mod served;
mod servers;
#[cfg(feature = "slow-disk")]
mod slow_disk;
mod stats;
mod suites;
mod table;
mod tls_load;
mod websocket_load;

use std::io;
use std::process::ExitCode;

use arguments::Arguments;

const USAGE: &str = "usage:
  echo  [--runs N] [--seconds S] [--only NAME,NAME]   echo rates and processor time
  idle  [--connections N]                             bytes per idle connection
  files [--runs N] [--seconds S]                      random reads beside libuv's pool
  gaio  [--runs N]                                    gaio's own list of figures
  redis [--runs N] [--requests N] [--only NAME,NAME]  serve_redis beside redis-server and evio
  proxy [--runs N] [--seconds S] [--only NAME,NAME]   serve_proxy beside haproxy
  modes [--runs N] [--seconds S] [--only NAME,NAME]   threads, loops and both; nbio
  broadcast [--runs N] [--seconds S] [--connections N]
                                                      serve_broadcast beside bare writes
  million [--connections N] [--processes N] [--memory PERCENT] [--seconds S] [--payload N]
          [--concurrency N] [--sample N] [--rate N] [--only NAME,NAME] [--runs N]
                                                      as many connections as fit, beside nbio
  million-websockets (as million)                     as many WebSockets as fit, beside others
  datagrams [--runs N] [--seconds S] [--peers N]      datagrams one by one, and in batches
  tls   [--runs N] [--seconds S] [--only NAME,NAME] [--connections N]
                                                      TLS beside a raw loop on rustls
  http  [--runs N] [--seconds S] [--only NAME,NAME] [--connections N]
                                                      HTTP beside a raw loop with httparse
  http-files [--runs N] [--seconds S] [--only NAME,NAME] [--connections N]
                                                      files beside nginx and raw loops
  http-client [--runs N] [--requests N] [--only NAME,NAME] [--connections N]
                                                      HTTP clients beside a raw loop with httparse
  http-proxy [--runs N] [--seconds S] [--only NAME,NAME]
                                                      HTTP proxies: haproxy, nginx
  websocket [--runs N] [--seconds S] [--only NAME,NAME] [--connections N]
                                                      WebSocket beside a raw loop and its peers
  websocket-deflate [--runs N] [--seconds S] [--only NAME,NAME] [--connections N]
                                                      compressed messages, their memory
  websocket-broadcast (as broadcast)                  ws_broadcast beside bare writes
  http-files-counts, http-client-counts, http-proxy-counts, websocket-counts,
  websocket-deflate-counts [--only NAME,NAME]
                                                      instructions and system calls per request
  blocks [--runs N] [--seconds S] [--only NAME,NAME] [--connections N]
                                                      blocks of a large file beside libuv's pool
  upload [--bytes N] [--rate N]                       memory of an upload to a slow disk
  all   [--runs N] [--seconds S]                      the first four, and README's plot
  list                                                the servers, and whether they can run here";

fn main() -> ExitCode {
    let mut arguments = Arguments::from_env();
    let command = arguments.next().unwrap_or_default();
    let ended = match command.as_str() {
        "echo" => suites::one("echo", suites::echo::run, &mut arguments),
        "idle" => suites::one("idle", suites::idle::run, &mut arguments),
        "files" => suites::one("files", suites::files::run, &mut arguments),
        "gaio" => suites::gaio::run(&mut arguments),
        "redis" => suites::redis::run(&mut arguments),
        "proxy" => suites::proxy::run(&mut arguments),
        "modes" => suites::modes::run(&mut arguments),
        "broadcast" => suites::broadcast::run(&mut arguments),
        "million" => suites::million::run(&mut arguments),
        "million-websockets" => suites::million::websockets(&mut arguments),
        "websocket-broadcast" => suites::broadcast::websockets(&mut arguments),
        "datagrams" => suites::datagrams::run(&mut arguments),
        "tls" => suites::tls::run(&mut arguments),
        "http" => suites::http::run(&mut arguments),
        "http-files" => suites::http_files::run(&mut arguments),
        "http-files-counts" => suites::http_files::counts(&mut arguments),
        "http-client" => suites::http_client::run(&mut arguments),
        "http-client-counts" => suites::http_client::counts(&mut arguments),
        "http-proxy" => suites::http_proxy::run(&mut arguments),
        "http-proxy-counts" => suites::http_proxy::counts(&mut arguments),
        "websocket" => suites::websocket::run(&mut arguments),
        #[cfg(feature = "deflate")]
        "websocket-deflate" => suites::websocket_deflate::run(&mut arguments),
        #[cfg(feature = "deflate")]
        "websocket-deflate-counts" => suites::websocket_deflate::counts(&mut arguments),
        #[cfg(not(feature = "deflate"))]
        "websocket-deflate" | "websocket-deflate-counts" => {
            Err(io::Error::other("left out: it was built without the feature deflate"))
        }
        "websocket-counts" => suites::websocket::counts(&mut arguments),
        "blocks" => suites::blocks::run(&mut arguments),
        #[cfg(feature = "slow-disk")]
        "upload" => suites::upload::run(&mut arguments),
        #[cfg(feature = "slow-disk")]
        "slow-disk" => slow_disk::run(&mut arguments),
        #[cfg(not(feature = "slow-disk"))]
        "upload" => Err(io::Error::other("left out: it was built without the feature slow-disk")),
        "all" => suites::all(&mut arguments),
        "list" => peers::list(),
        // Modes of processes that the suites start: server, clients, reads, or a bound program.
        "serve" => servers::serve(&mut arguments),
        "load" => load::run(&mut arguments),
        "tls-load" => tls_load::run(&mut arguments),
        "get-load" => get_load::run(&mut arguments),
        "client" => clients::run(&mut arguments),
        "websocket-load" => websocket_load::run(&mut arguments),
        #[cfg(feature = "deflate")]
        "deflate-load" => deflate_load::run(&mut arguments),
        "http-load" => http_load::run(&mut arguments),
        "listen" => listeners::run(&mut arguments),
        "million-client" => suites::million::client::run(&mut arguments),
        "peers" => datagrams::run(&mut arguments),
        "read-file" => suites::files::read(&mut arguments),
        "pin" => process::pin_and_exec(&mut arguments),
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, USAGE)),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
