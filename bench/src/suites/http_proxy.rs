//! HTTP proxies in front of a fast server: processor time per request.

use std::io;

use super::web::{self, Load};
use crate::arguments::Arguments;
use crate::process::Server;
use crate::rounds::interleaved;
use crate::table::Table;
use crate::{peers, stats};

/// A name, and the length of a body.
const CASES: &[(&str, usize)] =
    &[("responses of 160 B", 13), ("bodies of 16 KiB", 16 << 10), ("bodies of 1 MiB", 1 << 20)];

const CONNECTIONS: usize = 64;

/// The server behind the proxies: it shares the processor of the clients.
fn server(body: usize) -> io::Result<Server> {
    let ours = std::env::current_exe()?.to_string_lossy().into_owned();
    let body = body.to_string();
    let answers = [&ours, "serve", "http-answers", "{port}", "short", &body].map(String::from);
    Server::start_beside_clients(&answers)
}

fn load(len: usize, connections: usize) -> Load {
    Load { path: "/plaintext", files: 1, len, blocks_of: 0, connections }
}

pub fn run(arguments: &mut Arguments) -> io::Result<()> {
    let runs: usize = arguments.option("--runs", 5)?;
    let seconds: f64 = arguments.option("--seconds", 1.0)?;
    let only: String = arguments.option("--only", String::new())?;
    arguments.end()?;
    let command = format!("bench -- http-proxy --runs {runs} --seconds {seconds}");
    let columns =
        ["case", "proxy", "requests/s", "proxy µs per request", "to haproxy", "to nginx", "p99 µs"];
    let title = format!("HTTP proxies, {CONNECTIONS} connections: requests per CPU second");
    let mut table = Table::new(&title, &command, &columns);
    for &(name, body) in CASES {
        let server = server(body)?;
        let proxies = peers::usable(peers::http_proxies(server.port)?, &only)?;
        let names: Vec<String> = proxies.iter().map(|(name, _)| name.clone()).collect();
        let [rates, cpu, efficiency, p99] = interleaved(&names, runs, |name| {
            let (_, command) = proxies.iter().find(|(proxy, _)| proxy == name).expect("ours");
            let measured = web::load(command, &load(body, CONNECTIONS), seconds)?;
            let web::Measured { per_second, cpu_us, p99_us, .. } = measured;
            Ok([per_second, cpu_us, 1e6 / cpu_us, p99_us])
        })?;
        for (at, rate) in rates.iter().enumerate() {
            table.row(&[
                name.into(),
                rate.server.clone(),
                format!("{:.0}", stats::median(&rate.values)),
                format!("{:.2}", stats::median(&cpu[at].values)),
                web::ratio_to(&efficiency, at, "haproxy"),
                web::ratio_to(&efficiency, at, "nginx"),
                format!("{:.0}", stats::median(&p99[at].values)),
            ]);
        }
    }
    table.finish("http-proxy")
}

/// Instructions and system calls per request.
pub fn counts(arguments: &mut Arguments) -> io::Result<()> {
    let only: String = arguments.option("--only", String::new())?;
    arguments.end()?;
    let mut table = web::counts_table("bench -- http-proxy-counts");
    for &(name, body) in CASES {
        let server = server(body)?;
        let requests = if body > 64 << 10 { [200, 600] } else { [2000, 10_000] };
        for (proxy, command) in peers::usable(peers::http_proxies(server.port)?, &only)? {
            table.row(&web::server_counts(name, &proxy, &command, &load(body, 16), requests)?);
        }
    }
    table.finish("http-proxy-counts")
}
