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

/// Handshakes or messages per second, microseconds of the server's processor for each, and how many
/// for each second of it.
fn measure(
    command: &[String],
    certificate: &str,
    case: &Case,
    seconds: f64,
) -> io::Result<[f64; 3]> {
    let server = Server::start(command)?;
    let words = words(case.mode, server.port, certificate, case.connections, case.size, seconds);
    let mut clients = Talking::start(1, &words)?;
    let line = clients.hear(PATIENCE)?;
    if line != "served" {
        return Err(io::Error::other(line));
    }
    let before = server.cpu_time()?;
    clients.tell("go")?;
    let line = clients.hear(Duration::from_secs_f64(2.0 * seconds) + PATIENCE)?;
    let used = (server.cpu_time()? - before).as_secs_f64();
    let mut numbers = line.split_whitespace().map(str::parse::<f64>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(count)), Some(Ok(seconds))) => {
            Ok([count / seconds, used * 1e6 / count, count / used])
        }
        _ => Err(io::Error::other(line)),
    }
}
