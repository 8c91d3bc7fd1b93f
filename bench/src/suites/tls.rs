//! TLS: processor time per handshake and per message beside a raw loop on rustls, and nginx.

use std::io;
use std::path::Path;
use std::time::Duration;

use crate::arguments::Arguments;
use crate::process::{Server, Talking, hold};
use crate::rounds::interleaved;
use crate::table::{Table, ratio};
use crate::{peers, stats};

struct Case {
    name: &'static str,
    mode: &'static str,
    connections: usize,
    size: usize,
}

const CASES: &[Case] = &[
    Case { name: "full handshakes", mode: "full", connections: 4, size: 0 },
    Case { name: "resumed handshakes", mode: "resumed", connections: 4, size: 0 },
    Case { name: "echo 64 × 64 B", mode: "echo", connections: 64, size: 64 },
    Case { name: "echo 64 × 16 KiB", mode: "echo", connections: 64, size: 16 << 10 },
    Case { name: "bulk: echo 4 × 256 KiB", mode: "echo", connections: 4, size: 256 << 10 },
];

/// How long the clients may take besides the time that they measure.
const PATIENCE: Duration = Duration::from_secs(60);

pub fn run(arguments: &mut Arguments) -> io::Result<()> {
    let runs: usize = arguments.option("--runs", 5)?;
    let seconds: f64 = arguments.option("--seconds", 2.0)?;
    let only: String = arguments.option("--only", String::new())?;
    let connections: usize = arguments.option("--connections", 2000)?;
    arguments.end()?;
    let files = certificate()?;
    let servers = peers::usable(peers::tls(&files)?, &only)?;
    let find = |name: &str| &servers.iter().find(|(server, _)| server == name).expect("ours").1;
    let command = format!("bench -- tls --runs {runs} --seconds {seconds}");
    let columns = ["case", "server", "per second", "server µs for each", "per CPU second"];
    let title = format!("TLS 1.3, P-256, ring: ratios to {}", servers[0].0);
    let mut table = Table::new(&title, &command, &columns);
    for case in CASES {
        // nginx does not echo.
        let names: Vec<String> = servers
            .iter()
            .map(|(name, _)| name.clone())
            .filter(|name| case.mode != "echo" || name != "nginx")
            .collect();
        let [rates, cpu, efficiency] =
            interleaved(&names, runs, |name| measure(find(name), &files[0], case, seconds))?;
        for (at, rate) in rates.iter().enumerate() {
            table.row(&[
                case.name.into(),
                rate.server.clone(),
                format!("{:.0}", stats::median(&rate.values)),
                format!("{:.2}", stats::median(&cpu[at].values)),
                ratio(efficiency[at].ratio(&efficiency[0])),
            ]);
        }
    }
    table.finish("tls")?;

    let names: Vec<String> = servers.iter().map(|(name, _)| name.clone()).collect();
    let [alone, median, p99, hellos] =
        interleaved(&names, runs, |name| flooded(find(name), &files[0], seconds))?;
    let title = "Established connections while 4 clients repeat a recorded hello";
    let columns = ["server", "p99 µs alone", "p50 µs", "p99 µs", "p99", "hellos per second"];
    let mut table = Table::new(title, &command, &columns);
    for (at, p99_of) in p99.iter().enumerate() {
        table.row(&[
            p99_of.server.clone(),
            format!("{:.0}", stats::median(&alone[at].values)),
            format!("{:.0}", stats::median(&median[at].values)),
            format!("{:.0}", stats::median(&p99_of.values)),
            ratio(p99_of.ratio(&p99[0])),
            format!("{:.0}", stats::median(&hellos[at].values)),
        ]);
    }
    table.finish("tls-flood")?;

    let title = format!("{connections} idle connections of TLS");
    let mut table = Table::new(&title, &command, &["server", "bytes per connection"]);
    for (name, command) in servers.iter().filter(|(name, _)| name != "nginx") {
        let server = Server::start(command)?;
        let half = words("hold", server.port, &files[0], connections / 2, 0, 0.0);
        let first = hold(&half)?;
        let before = server.resident_bytes()?;
        let second = hold(&half)?;
        let bytes = server.resident_bytes()?.saturating_sub(before) / (connections as u64 / 2);
        drop((first, second));
        table.row(&[name.clone(), bytes.to_string()]);
    }
    table.finish("tls-idle")
}

/// A certificate of a P-256 key, and the key, in files.
fn certificate() -> io::Result<[String; 2]> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]);
    let made = made.map_err(io::Error::other)?;
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/peers");
    std::fs::create_dir_all(&directory)?;
    let write = |name: &str, text: String| {
        let path = directory.join(name);
        std::fs::write(&path, text).map(|()| path.to_string_lossy().into_owned())
    };
    Ok([
        write("tls-cert.pem", made.cert.pem())?,
        write("tls-key.pem", made.signing_key.serialize_pem())?,
    ])
}

fn words(
    mode: &str,
    port: u16,
    certificate: &str,
    connections: usize,
    size: usize,
    seconds: f64,
) -> Vec<String> {
    let mut words = super::echo::words(&["tls-load", mode], port, connections, size, seconds);
    words.extend(["--cert".to_owned(), certificate.to_owned()]);
    words
}

/// Starts clients, and returns when they are ready to begin.
fn start(
    mode: &str,
    port: u16,
    certificate: &str,
    case: (usize, usize),
    seconds: f64,
) -> io::Result<Talking> {
    let clients = Talking::start(1, &words(mode, port, certificate, case.0, case.1, seconds))?;
    let line = clients.hear(PATIENCE)?;
    if line == "served" { Ok(clients) } else { Err(io::Error::other(line)) }
}

/// The numbers that clients print when they have ended.
fn end<const N: usize>(clients: &Talking, seconds: f64) -> io::Result<[f64; N]> {
    let line = clients.hear(Duration::from_secs_f64(2.0 * seconds) + PATIENCE)?;
    let numbers = line.split_whitespace().map(str::parse::<f64>).collect::<Result<Vec<_>, _>>();
    numbers.ok().and_then(|all| all.try_into().ok()).ok_or_else(|| io::Error::other(line))
}

/// How long established connections wait, in microseconds: the 99th percentile alone, then the
/// median and the 99th percentile beside a flood of hellos; and the answered hellos per second.
fn flooded(command: &[String], certificate: &str, seconds: f64) -> io::Result<[f64; 4]> {
    let server = Server::start(command)?;
    let port = server.port;
    let mut alone = start("latency", port, certificate, (16, 0), seconds)?;
    alone.tell("go")?;
    let [_, _, _, before] = end(&alone, seconds)?;
    let mut clients = start("latency", port, certificate, (16, 0), seconds)?;
    let mut flood = start("flood", port, certificate, (4, 0), seconds)?;
    flood.tell("go")?;
    clients.tell("go")?;
    let [_, _, p50, p99] = end(&clients, seconds)?;
    let [answered, span] = end(&flood, seconds)?;
    Ok([before, p50, p99, answered / span])
}

/// Handshakes or messages per second, microseconds of the server's processor for each, and how many
/// for each second of it.
fn measure(
    command: &[String],
    certificate: &str,
    case: &Case,
    seconds: f64,
) -> io::Result<[f64; 3]> {
    let server = Server::start(command)?;
    let size = (case.connections, case.size);
    let mut clients = start(case.mode, server.port, certificate, size, seconds)?;
    let before = server.cpu_time()?;
    clients.tell("go")?;
    let [count, seconds] = end(&clients, seconds)?;
    let used = (server.cpu_time()? - before).as_secs_f64();
    Ok([count / seconds, used * 1e6 / count, count / used])
}
