//! HTTP: processor time per request, waiting times at a fixed rate, and memory, beside a raw loop
//! that parses with httparse, and other servers.

use std::io;
use std::time::Duration;

use crate::arguments::Arguments;
use crate::process::{Server, Talking, hold};
use crate::rounds::interleaved;
use crate::table::{Table, ratio};
use crate::{peers, stats};

struct Case {
    name: &'static str,
    request: &'static str,
    depth: usize,
}

const CASES: &[Case] = &[
    Case { name: "16 requests of 419 B at once", request: "long", depth: 16 },
    Case { name: "16 requests of 160 B at once", request: "short", depth: 16 },
    Case { name: "one request of 419 B at once", request: "long", depth: 1 },
];

/// Servers whose waiting times are measured.
const WAITING: [&str; 4] = ["http-floor", "windlass-web", "hyper", "nginx"];

/// Connections that send requests.
const ACTIVE: usize = 64;

/// How long the clients may take besides the time that they measure.
const PATIENCE: Duration = Duration::from_secs(60);

pub fn run(arguments: &mut Arguments) -> io::Result<()> {
    let runs: usize = arguments.option("--runs", 5)?;
    let seconds: f64 = arguments.option("--seconds", 2.0)?;
    let only: String = arguments.option("--only", String::new())?;
    let connections: usize = arguments.option("--connections", 4000)?;
    arguments.end()?;
    let servers = peers::usable(peers::http()?, &only)?;
    let find = |name: &str| &servers.iter().find(|(server, _)| server == name).expect("ours").1;
    let names: Vec<String> = servers.iter().map(|(name, _)| name.clone()).collect();
    let command = format!("bench -- http --runs {runs} --seconds {seconds}");
    let columns = ["case", "server", "requests/s", "server µs per request", "CPU", "p50 µs", "p99"];
    let title = format!("HTTP, {ACTIVE} connections: ratios to {}", names[0]);
    let mut table = Table::new(&title, &command, &columns);
    let mut most = 0.0;
    for case in CASES {
        let [rates, cpu, p50, p99] =
            interleaved(&names, runs, |name| closed(find(name), case, seconds))?;
        for (at, rate) in rates.iter().enumerate() {
            let rate_of = stats::median(&rate.values);
            if case.depth == 1 && rate.server == "windlass-web" {
                most = rate_of;
            }
            table.row(&[
                case.name.into(),
                rate.server.clone(),
                format!("{rate_of:.0}"),
                format!("{:.3}", stats::median(&cpu[at].values)),
                ratio(cpu[at].ratio(&cpu[0])),
                format!("{:.0}", stats::median(&p50[at].values)),
                format!("{:.0}", stats::median(&p99[at].values)),
            ]);
        }
    }
    table.finish("http")?;
    waits(&servers, &command, most, runs, seconds)?;
    memory(&servers, &command, connections)
}

/// Waiting times at shares of the rate that windlass-web reaches.
fn waits(
    servers: &[(String, Vec<String>)],
    command: &str,
    most: f64,
    runs: usize,
    seconds: f64,
) -> io::Result<()> {
    let names = servers.iter().map(|(name, _)| name.clone());
    let names: Vec<String> = names.filter(|name| WAITING.contains(&name.as_str())).collect();
    let find = |name: &str| &servers.iter().find(|(server, _)| server == name).expect("one").1;
    if most == 0.0 || names.is_empty() {
        return Ok(());
    }
    let title = format!("HTTP at a fixed rate: shares of {most:.0} requests/s");
    let columns = ["share", "server", "answered/s", "p50 µs", "p99 µs", "p99.9 µs"];
    let mut table = Table::new(&title, command, &columns);
    for share in [0.5, 0.8] {
        let [rates, p50, p99, p999] =
            interleaved(&names, runs, |name| open(find(name), share * most, seconds))?;
        for (at, rate) in rates.iter().enumerate() {
            let mut cells = vec![format!("{:.0} %", share * 100.0), rate.server.clone()];
            let columns = [rate, &p50[at], &p99[at], &p999[at]];
            cells.extend(columns.map(|of| format!("{:.0}", stats::median(&of.values))));
            table.row(&cells);
        }
    }
    table.finish("http-waits")
}

/// Memory of idle connections that have been answered, and of clients that read nothing.
fn memory(servers: &[(String, Vec<String>)], command: &str, connections: usize) -> io::Result<()> {
    const STALLED: usize = 1000;
    let title = format!("Memory: {connections} idle connections, {STALLED} that read nothing");
    let columns = ["server", "bytes per idle connection", "KiB per stalled connection"];
    let mut table = Table::new(&title, command, &columns);
    for (name, command) in servers {
        let server = Server::start(command)?;
        let words = |mode, count, depth| words(mode, server.port, count, ("short", depth), 0.0);
        let first = hold(&words("hold", connections / 2, 1))?;
        let before = server.resident_bytes()?;
        let second = hold(&words("hold", connections / 2, 1))?;
        let idle = server.resident_bytes()?.saturating_sub(before) / (connections as u64 / 2);
        drop((first, second));
        let before = server.resident_bytes()?;
        // A server that ends such a connection, or itself, has no figure.
        let stalled = match hold(&words("stall", STALLED, 16)) {
            Ok(_) => {
                let bytes = server.resident_bytes()?.saturating_sub(before);
                format!("{:.1}", bytes as f64 / STALLED as f64 / 1024.0)
            }
            Err(_) => "ended".into(),
        };
        table.row(&[name.clone(), idle.to_string(), stalled]);
    }
    table.finish("http-memory")
}

fn words(
    mode: &str,
    port: u16,
    connections: usize,
    (request, depth): (&str, usize),
    seconds: f64,
) -> Vec<String> {
    let text = |number: usize| number.to_string();
    let mut words: Vec<String> = ["http-load", mode].map(String::from).to_vec();
    for (name, value) in [
        ("--port", port.to_string()),
        ("--connections", text(connections)),
        ("--depth", text(depth)),
        ("--request", request.into()),
        ("--seconds", seconds.to_string()),
    ] {
        words.extend([name.to_owned(), value]);
    }
    words
}

/// Lets clients work, and returns the numbers that they print, and the server's processor time.
fn measure(server: &Server, words: &[String], seconds: f64) -> io::Result<([f64; 6], f64)> {
    let mut clients = Talking::start(1, words)?;
    let line = clients.hear(PATIENCE)?;
    if line != "served" {
        return Err(io::Error::other(line));
    }
    let before = server.cpu_time()?;
    clients.tell("go")?;
    let line = clients.hear(Duration::from_secs_f64(2.0 * seconds) + PATIENCE)?;
    let used = (server.cpu_time()? - before).as_secs_f64();
    let numbers = line.split_whitespace().map(str::parse::<f64>).collect::<Result<Vec<_>, _>>();
    let numbers = numbers.ok().and_then(|all| all.try_into().ok());
    Ok((numbers.ok_or_else(|| io::Error::other(line))?, used))
}

/// Requests per second, microseconds of the server's processor for each, and the median and the
/// 99th percentile of the times of batches, in microseconds.
fn closed(command: &[String], case: &Case, seconds: f64) -> io::Result<[f64; 4]> {
    let server = Server::start(command)?;
    let words = words("closed", server.port, ACTIVE, (case.request, case.depth), seconds);
    let ([all, counted, span, p50, p99, _], used) = measure(&server, &words, seconds)?;
    Ok([counted / span, used * 1e6 / all, p50, p99])
}

/// Answers per second, and percentiles of the times in microseconds.
fn open(command: &[String], rate: f64, seconds: f64) -> io::Result<[f64; 4]> {
    let server = Server::start(command)?;
    let mut words = words("open", server.port, ACTIVE, ("long", 1), seconds);
    words.extend(["--rate".to_owned(), rate.to_string()]);
    let ([_, counted, span, p50, p99, p999], _) = measure(&server, &words, seconds)?;
    Ok([counted / span, p50, p99, p999])
}
