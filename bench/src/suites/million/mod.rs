//! Connections by the hundred thousand: connect rate, bytes of an idle one, echoes at random, and
//! messages at a fixed rate. The reports have the lines of go-websocket-benchmark, which measures a
//! million WebSockets. `million` is TCP echo, and `million-websockets` that of WebSockets.
//!
//! A process of servers and one of clients have at most as many connections as descriptors, so
//! there are as many of both as it takes. The first half of the processors is for the servers.
//! Every process ends with the suite, also when the suite is killed.

pub mod client;
mod memory;
mod report;
mod run;
mod size;
mod stream;

use std::io;
use std::time::Duration;

use crate::arguments::{Arguments, invalid};
use crate::peers::{self, Peer};
use run::Plan;
use size::{MILLION, Size};

/// TCP echo.
pub fn run(arguments: &mut Arguments) -> io::Result<()> {
    measure(arguments, "million", peers::million, false)
}

/// The echo of WebSockets.
pub fn websockets(arguments: &mut Arguments) -> io::Result<()> {
    measure(arguments, "million-websockets", peers::million_websockets, true)
}

fn measure(
    arguments: &mut Arguments,
    name: &str,
    peers: fn() -> io::Result<Vec<Peer>>,
    is_websocket: bool,
) -> io::Result<()> {
    let connections: usize = arguments.option("--connections", MILLION)?;
    let processes: usize = arguments.option("--processes", 0)?;
    let seconds: f64 = arguments.option("--seconds", 10.0)?;
    let concurrency: usize = arguments.option("--concurrency", 10_000)?;
    let payload: usize = arguments.option("--payload", 1024)?;
    let sample: usize = arguments.option("--sample", 10_000)?;
    let rate: f64 = arguments.option("--rate", 1.0)?;
    let memory: u64 = arguments.option("--memory", 60)?;
    let only: String = arguments.option("--only", String::new())?;
    arguments.end()?;
    if !(0.2..=3600.0).contains(&seconds) || !(0.001..=10_000.0).contains(&rate) {
        return Err(invalid("--seconds is 0.2 to 3600, --rate is 0.001 to 10000".into()));
    }
    if payload == 0 || payload > stream::LONGEST || concurrency == 0 || sample == 0 {
        return Err(invalid("--payload is 1 to 1048576, the other counts are not 0".into()));
    }
    let servers = peers::usable(peers()?, &only)?;
    let size = Size::of(connections, processes, memory)?;
    println!(
        "{} connections with {} processes of servers and as many of clients; bounded by {}",
        size.connections, size.processes, size.bound
    );
    let plan = Plan {
        is_websocket,
        payload,
        concurrency: concurrency.min(size.connections),
        connecting: 100,
        sample: sample.min(size.connections),
        rate,
        span: Duration::from_secs_f64(seconds),
    };
    let measured = servers
        .iter()
        .map(|(name, command)| run::run(name, command, &size, &plan))
        .collect::<io::Result<Vec<_>>>()?;

    // The reports have the other values.
    let command = format!("bench -- {name} --connections {} --seconds {seconds}", size.connections);
    println!();
    report::print_all(&command, payload, &measured)?;
    report::print_memory(&command, &measured)?;
    report::print_ratios(&command, &measured)?;
    measured[0].idle.needs().print(&command)?;
    let wrong: Vec<String> = measured
        .iter()
        .flat_map(|of| of.wrong.iter().map(|text| format!("ERROR: {}: {text}", of.name)))
        .collect();
    if wrong.is_empty() { Ok(()) } else { Err(io::Error::other(wrong.join("\n"))) }
}
