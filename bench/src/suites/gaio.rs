//! gaio's own list of figures, of gaio and of windlass side by side.

use std::collections::HashMap;
use std::io;

use super::echo::{pingpong, words};
use crate::arguments::Arguments;
use crate::load::Measured;
use crate::process::{Server, clients};
use crate::rounds::interleaved;
use crate::table::{Table, ratio};
use crate::{peers, stats};

const SIZE: usize = 64 << 10;
const CONNECTIONS: [usize; 6] = [256, 512, 1024, 2048, 4096, 8192];

pub fn run(arguments: &mut Arguments) -> io::Result<()> {
    let runs: usize = arguments.option("--runs", 5)?;
    arguments.end()?;
    let commands: HashMap<_, _> =
        peers::usable(peers::echo_servers()?, "gaio,windlass")?.into_iter().collect();
    let mut names: Vec<String> = commands.keys().cloned().collect();
    names.sort();
    let command = format!("bench -- gaio --runs {runs}");
    let columns = ["figure", "server", "value", "ratio"];
    let title = format!("gaio's list: ratios to {}", names[0]);
    let mut table = Table::new(&title, &command, &columns);

    let [rates, bytes, calls] = interleaved(&names, runs, |name| echo(&commands[name]))?;
    for (figure, columns) in [
        ("echo of 64 KiB, one connection: MB/s", &rates),
        ("bytes allocated per echo", &bytes),
        ("allocations per echo", &calls),
    ] {
        for column in columns {
            let value = format!("{:.2}", stats::median(&column.values));
            table.row(&[
                figure.into(),
                column.server.clone(),
                value,
                ratio(column.ratio(&columns[0])),
            ]);
        }
    }

    let mut points: HashMap<String, Vec<(f64, f64)>> = HashMap::new();
    for connections in CONNECTIONS {
        let [seconds] = interleaved(&names, runs, |name| {
            let server = Server::start(&commands[name])?;
            let words = words(&["load", "storm"], server.port, connections, 1 << 10, 0.0);
            Ok([clients(&words)?.trim().parse().map_err(io::Error::other)?])
        })?;
        for column in &seconds {
            let median = stats::median(&column.values);
            points.entry(column.server.clone()).or_default().push((connections as f64, median));
            if connections == 8192 {
                table.row(&[
                    "8192 connections × 1 KiB, connecting included: s".into(),
                    column.server.clone(),
                    format!("{median:.3}"),
                    ratio(column.ratio(&seconds[0])),
                ]);
            }
        }
    }
    for name in &names {
        let line = stats::fit(&points[name]);
        let micros = |seconds: f64| seconds * 1e6;
        table.row(&[
            "seconds = slope × connections + start".into(),
            name.clone(),
            format!(
                "{:.1} µs ({:.1}–{:.1}) × n + {:.4} s, R² {:.3}",
                micros(line.slope.median),
                micros(line.slope.low),
                micros(line.slope.high),
                line.start,
                line.r2
            ),
            String::new(),
        ]);
    }
    table.finish("gaio")
}

/// Echoes 64 KiB over one connection: MB/s, and allocated bytes and allocations per echo, as the
/// difference of a long and a short run, so that what starting takes is not counted.
fn echo(command: &[String]) -> io::Result<[f64; 3]> {
    let (short, before) = one(command, 0.3)?;
    let (long, after) = one(command, 2.0)?;
    let echoes = (long.messages as f64 - short.messages as f64) * 1.1;
    let per_echo = |of: fn(&Allocated) -> f64| ((of(&after) - of(&before)) / echoes).max(0.0);
    let rate = long.messages as f64 * SIZE as f64 / long.seconds / 1e6;
    Ok([rate, per_echo(|a| a.bytes), per_echo(|a| a.calls)])
}

struct Allocated {
    calls: f64,
    bytes: f64,
}

fn one(command: &[String], seconds: f64) -> io::Result<(Measured, Allocated)> {
    let server = Server::start(command)?;
    let (measured, _) = pingpong(&server, 1, SIZE, seconds)?;
    // `allocations N bytes N`
    let last = server.end()?.unwrap_or_default();
    let words: Vec<&str> = last.split_whitespace().collect();
    let number = |at: usize| words.get(at).and_then(|word| word.parse().ok());
    match (number(1), number(3)) {
        (Some(calls), Some(bytes)) => Ok((measured, Allocated { calls, bytes })),
        _ => Err(io::Error::other(format!("{last:?} tells of no allocations"))),
    }
}
