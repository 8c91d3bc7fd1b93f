//! Echo: messages per second, and the server's processor time per message.

use std::collections::HashMap;
use std::io;
use std::time::Duration;

use crate::arguments::Arguments;
use crate::load::Measured;
use crate::plot::Panel;
use crate::process::{Server, Talking};
use crate::rounds::interleaved;
use crate::table::{Table, ratio};
use crate::{peers, stats};

struct Case {
    name: &'static str,
    connections: usize,
    size: usize,
}

const CASES: &[Case] = &[
    Case { name: "1 × 64 B", connections: 1, size: 64 },
    Case { name: "64 × 64 B", connections: 64, size: 64 },
    Case { name: "64 × 1 KiB", connections: 64, size: 1 << 10 },
    Case { name: "1000 × 128 B", connections: 1000, size: 128 },
    Case { name: "1 × 64 KiB", connections: 1, size: 64 << 10 },
];
/// The case of the plot.
const SHOWN: usize = 1;

pub fn run(arguments: &mut Arguments) -> io::Result<Panel> {
    let runs: usize = arguments.option("--runs", 5)?;
    let seconds: f64 = arguments.option("--seconds", 2.0)?;
    let only: String = arguments.option("--only", String::new())?;
    arguments.end()?;
    let commands: HashMap<_, _> =
        peers::usable(peers::echo_servers()?, &only)?.into_iter().collect();
    // In the order of the tables.
    let names: Vec<String> = peers::echo_servers()?
        .into_iter()
        .map(|peer| peer.name)
        .filter(|name| commands.contains_key(name))
        .collect();

    let command = format!("bench -- echo --runs {runs} --seconds {seconds}");
    let mut bars = Vec::new();
    for (index, case) in CASES.iter().enumerate() {
        let [rates, cpu, p50, p99] =
            interleaved(&names, runs, |name| measure(&commands[name], case, seconds))?;
        let title = format!("Echo, {}: ratios to {}", case.name, names[0]);
        let columns =
            ["server", "messages/s", "rate", "server µs per message", "CPU", "p50 µs", "p99 µs"];
        let mut table = Table::new(&title, &command, &columns);
        for (at, (rate, cpu_of)) in rates.iter().zip(&cpu).enumerate() {
            table.row(&[
                rate.server.clone(),
                format!("{:.0}", stats::median(&rate.values)),
                ratio(rate.ratio(&rates[0])),
                format!("{:.2}", stats::median(&cpu_of.values)),
                ratio(cpu_of.ratio(&cpu[0])),
                format!("{:.0}", stats::median(&p50[at].values)),
                format!("{:.0}", stats::median(&p99[at].values)),
            ]);
            if index == SHOWN {
                bars.push((peers::label(&rate.server), rate.ratio(&rates[0])));
            }
        }
        table.finish(&format!("echo-{}x{}", case.connections, case.size))?;
    }
    let title = format!("Echo, 64 connections × 64 B: rate, {} = 1", names[0]);
    Ok(Panel { title, logarithmic: false, decimals: 2, bars })
}

/// Messages per second, microseconds of the server's processor per message, and the median and the
/// 99th percentile of the round trips in microseconds.
fn measure(command: &[String], case: &Case, seconds: f64) -> io::Result<[f64; 4]> {
    let server = Server::start(command)?;
    let (measured, used) = pingpong(&server, case.connections, case.size, seconds)?;
    let messages = measured.messages as f64;
    // The warm-up, a tenth of the time, is in the processor time as well.
    let cpu_us = used.as_secs_f64() * 1e6 / (messages * 1.1);
    Ok([messages / measured.seconds, cpu_us, measured.p50_us, measured.p99_us])
}

/// How long the clients may take besides the time that they measure.
const PATIENCE: Duration = Duration::from_secs(60);

/// Lets clients send messages one after the other, once every connection has had an echo. Returns
/// what they have measured, and the server's processor time meanwhile.
pub fn pingpong(
    server: &Server,
    connections: usize,
    size: usize,
    seconds: f64,
) -> io::Result<(Measured, Duration)> {
    let words = words(&["load", "pingpong"], server.port, connections, size, seconds);
    let mut clients = Talking::start(1, &words)?;
    let line = clients.hear(PATIENCE)?;
    if line != "served" {
        return Err(io::Error::other(line));
    }
    let before = server.cpu_time()?;
    clients.tell("go")?;
    let line = clients.hear(Duration::from_secs_f64(2.0 * seconds) + PATIENCE)?;
    let used = server.cpu_time()? - before;
    Ok((Measured::parse(&line).ok_or_else(|| io::Error::other(line))?, used))
}

pub fn words(
    command: &[&str],
    port: u16,
    connections: usize,
    size: usize,
    seconds: f64,
) -> Vec<String> {
    let mut words: Vec<String> = command.iter().map(ToString::to_string).collect();
    for (name, value) in [
        ("--port", port.to_string()),
        ("--connections", connections.to_string()),
        ("--size", size.to_string()),
        ("--seconds", seconds.to_string()),
    ] {
        words.extend([name.to_string(), value]);
    }
    words
}
