//! Connections by the hundred thousand: connect rate, bytes of an idle one, echoes at random, and
//! messages at a fixed rate. The reports have the lines of go-websocket-benchmark, which measures a
//! million WebSockets. `million` is TCP echo, and `million-websockets` that of WebSockets.
//!
//! A process of servers and one of clients have at most as many connections as descriptors, so
//! there are as many of both as it takes. With `--runs`, each run measures every server once, in an
//! order that changes with the run. The first half of the processors is for the servers.
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
use crate::rounds::interleaved;
use run::{Measured, Plan};
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
    let runs: usize = arguments.option("--runs", 1)?;
    arguments.end()?;
    if runs == 0 {
        return Err(invalid("--runs is at least 1".into()));
    }
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
    let names: Vec<String> = servers.iter().map(|(name, _)| name.clone()).collect();
    let mut measured: Vec<Vec<Measured>> = servers.iter().map(|_| Vec::new()).collect();
    let figures = interleaved(&names, runs, |name| {
        let at = names.iter().position(|of| of == name).expect("ours");
        let of = run::run(name, &servers[at].1, &size, &plan)?;
        let figures = of.figures();
        measured[at].push(of);
        Ok(figures)
    })?;
    let wrong: Vec<String> = measured
        .iter()
        .flatten()
        .flat_map(|of| of.wrong.iter().map(|text| format!("ERROR: {}: {text}", of.name)))
        .collect();

    // The reports have the other values. They are of the run with the median EER.
    let command = format!(
        "bench -- {name} --connections {} --seconds {seconds} --concurrency {} --runs {runs}",
        size.connections, plan.concurrency
    );
    let measured: Vec<Measured> = measured.into_iter().map(median).collect();
    println!();
    report::print_all(name, &command, payload, &measured)?;
    report::print_memory(name, &command, &measured)?;
    report::print_ratios(name, &command, &figures)?;
    measured[0].idle.needs().print(name, &command)?;
    if wrong.is_empty() { Ok(()) } else { Err(io::Error::other(wrong.join("\n"))) }
}

/// The run with the median EER.
fn median(mut runs: Vec<Measured>) -> Measured {
    runs.sort_by(|a, b| a.eer().total_cmp(&b.eer()));
    let middle = runs.len() / 2;
    runs.swap_remove(middle)
}
