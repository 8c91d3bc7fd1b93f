//! One message to all connections: processor time per delivery beside bare writes, and how much a
//! stalled reader delays the others.

use std::io;

use crate::arguments::Arguments;
use crate::process::{Server, clients};
use crate::rounds::interleaved;
use crate::table::{Table, ratio};
use crate::{peers, stats};

pub fn run(arguments: &mut Arguments) -> io::Result<()> {
    let runs: usize = arguments.option("--runs", 5)?;
    let seconds: f64 = arguments.option("--seconds", 3.0)?;
    let connections: usize = arguments.option("--connections", 8000)?;
    arguments.end()?;
    let command =
        format!("bench -- broadcast --runs {runs} --seconds {seconds} --connections {connections}");

    let servers = peers::usable(peers::broadcasters(64, 250)?, "")?;
    let names: Vec<String> = servers.iter().map(|(name, _)| name.clone()).collect();
    let find = |name: &str| &servers.iter().find(|(server, _)| server == name).expect("ours").1;
    let to = To { connections, stalled: 0, size: 64, is_websocket: false };
    let [cpu, delay] = interleaved(&names, runs, |name| measure(find(name), &to, seconds))?;
    let title = format!("A broadcast of 64 B to {connections} connections");
    let columns = ["server", "server µs per delivery", "CPU", "median delay µs"];
    let mut table = Table::new(&title, &command, &columns);
    for (at, cpu_of) in cpu.iter().enumerate() {
        table.row(&[
            cpu_of.server.clone(),
            format!("{:.2}", stats::median(&cpu_of.values)),
            ratio(cpu_of.ratio(&cpu[0])),
            format!("{:.0}", stats::median(&delay[at].values)),
        ]);
    }
    table.finish("broadcast")?;

    // Large messages, so that the memory of the kernel does not hide that a reader has stalled.
    let size = 64 << 10;
    let servers = peers::usable(peers::broadcasters(size, 50)?, "windlass-serve")?;
    let cases = ["all read", "one has stalled"].map(String::from);
    let [cpu, delay] = interleaved(&cases, runs, |case| {
        let stalled = usize::from(case == cases[1]);
        let to = To { connections: 100, stalled, size, is_websocket: false };
        measure(&servers[0].1, &to, seconds)
    })?;
    let title = "A broadcast of 64 KiB to 100 connections that read, and to one that may not";
    let columns = ["readers", "server µs per delivery", "median delay µs", "ratio"];
    let mut table = Table::new(title, &command, &columns);
    for (at, delay_of) in delay.iter().enumerate() {
        table.row(&[
            delay_of.server.clone(),
            format!("{:.2}", stats::median(&cpu[at].values)),
            format!("{:.0}", stats::median(&delay_of.values)),
            ratio(delay_of.ratio(&delay[0])),
        ]);
    }
    table.finish("broadcast-stalled")
}

/// The readers of a broadcast, and its messages.
pub struct To {
    pub connections: usize,
    /// More connections, which read nothing.
    pub stalled: usize,
    pub size: usize,
    pub is_websocket: bool,
}

/// Microseconds of the server's processor time per delivery, and the median delay in microseconds.
/// A delivery is one message that arrives at one connection; its delay is the time since the same
/// message arrived at the first connection.
pub fn measure(command: &[String], to: &To, seconds: f64) -> io::Result<[f64; 2]> {
    let To { connections, stalled, size, is_websocket } = to;
    let server = Server::start(command)?;
    let words = format!(
        "listen --port {} --connections {connections} --stalled {stalled} --size {size} \
         --seconds {seconds} --websocket {is_websocket}",
        server.port
    );
    let words: Vec<String> = words.split_whitespace().map(String::from).collect();
    let pid = ["--server".into(), server.id().to_string()];
    let printed = clients(&[&words[..], &pid].concat())?;
    let mut numbers = printed.split_whitespace().map(str::parse::<f64>);
    let mut next = || numbers.next().and_then(Result::ok);
    match (next(), next()) {
        (Some(cpu_us), Some(delay_us)) => Ok([cpu_us, delay_us]),
        _ => Err(io::Error::other(format!("{printed:?} tells of no deliveries"))),
    }
}
