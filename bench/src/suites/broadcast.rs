//! One message to all connections: processor time per delivery beside bare writes, and how much a
//! stalled reader delays the others.

use std::io;

use crate::arguments::Arguments;
use crate::peers::{self, Peer};
use crate::process::{Server, clients};
use crate::rounds::{Column, interleaved};
use crate::stats;
use crate::table::{Table, ratio};

pub fn run(arguments: &mut Arguments) -> io::Result<()> {
    tables(arguments, "broadcast", false)
}

/// The same with WebSockets.
pub fn websockets(arguments: &mut Arguments) -> io::Result<()> {
    tables(arguments, "websocket-broadcast", true)
}

fn tables(arguments: &mut Arguments, name: &str, is_websocket: bool) -> io::Result<()> {
    let runs: usize = arguments.option("--runs", 5)?;
    let seconds: f64 = arguments.option("--seconds", 3.0)?;
    let connections: usize = arguments.option("--connections", 10_000)?;
    arguments.end()?;
    let command =
        format!("bench -- {name} --runs {runs} --seconds {seconds} --connections {connections}");
    let (servers, ours, kind) = match is_websocket {
        true => (peers::websocket_broadcasters as Servers, "windlass-web", "WebSockets"),
        false => (peers::broadcasters as Servers, "windlass-serve", "connections"),
    };

    // So seldom that all have a message before the next one is sent.
    let usable = peers::usable(servers(64, 500)?, "")?;
    let names: Vec<String> = usable.iter().map(|(name, _)| name.clone()).collect();
    let find = |name: &str| &usable.iter().find(|(server, _)| server == name).expect("ours").1;
    let to = To { connections, stalled: 0, size: 64, is_websocket };
    let measured = interleaved(&names, runs, |name| measure(find(name), &to, seconds))?;
    let title = format!("A broadcast of 64 B to {connections} {kind}");
    table(&title, &command, "server", &measured, name)?;

    // Large messages, so that the memory of the kernel does not hide that a reader has stalled.
    let size = 64 << 10;
    let usable = peers::usable(servers(size, 50)?, ours)?;
    let cases = ["all read", "one has stalled"].map(String::from);
    let measured = interleaved(&cases, runs, |case| {
        let stalled = usize::from(case == cases[1]);
        let to = To { connections: 100, stalled, size, is_websocket };
        measure(&usable[0].1, &to, seconds)
    })?;
    let title = format!("A broadcast of 64 KiB to 100 {kind} that read, and to one that may not");
    table(&title, &command, "readers", &measured, &format!("{name}-stalled"))
}

/// Servers of messages of so many bytes, every so many milliseconds.
type Servers = fn(usize, usize) -> io::Result<Vec<Peer>>;

/// Ratios are to the first row.
fn table(
    title: &str,
    command: &str,
    first: &str,
    [cpu, median, p99]: &[Vec<Column>; 3],
    name: &str,
) -> io::Result<()> {
    let columns =
        [first, "server µs per delivery", "CPU", "median delay µs", "delay", "p99 µs", "p99"];
    let mut table = Table::new(title, command, &columns);
    for (at, row) in cpu.iter().enumerate() {
        let of = |columns: &[Column], digits: usize| {
            let value = stats::median(&columns[at].values);
            [format!("{value:.digits$}"), ratio(columns[at].ratio(&columns[0]))]
        };
        let [cpu_us, cpu] = of(cpu, 2);
        let [median_us, median] = of(median, 0);
        let [p99_us, p99] = of(p99, 0);
        table.row(&[row.server.clone(), cpu_us, cpu, median_us, median, p99_us, p99]);
    }
    table.finish(name)
}

/// The readers of a broadcast, and its messages.
pub struct To {
    pub connections: usize,
    /// More connections, which read nothing.
    pub stalled: usize,
    pub size: usize,
    pub is_websocket: bool,
}

/// Microseconds of the server's processor time per delivery, and the median delay and its 99th
/// percentile in microseconds.
/// A delivery is one message that arrives at one connection; its delay is the time since the same
/// message arrived at the first connection.
pub fn measure(command: &[String], to: &To, seconds: f64) -> io::Result<[f64; 3]> {
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
    match (next(), next(), next()) {
        (Some(cpu_us), Some(median_us), Some(p99_us)) => Ok([cpu_us, median_us, p99_us]),
        _ => Err(io::Error::other(format!("{printed:?} tells of no deliveries"))),
    }
}
