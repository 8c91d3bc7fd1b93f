//! The reports: the lines of go-websocket-benchmark, for all processes and for one of them.

use std::io;
use std::time::Duration;

use super::run::{FIGURES, Measured, Phase, Rated, Usage};
use crate::rounds::Column;
use crate::table::{Table, ratio};

/// What one column shows: name of the line, and its value.
type Lines = Vec<(&'static str, String)>;

/// Prints a report: a line for each figure, and a column for each server. Where there are several
/// processes, the first one has a column too.
fn print(
    name: &str,
    title: &str,
    command: &str,
    measured: &[Measured],
    lines: impl Fn(&Measured, bool) -> Lines,
) -> io::Result<()> {
    let mut columns = vec!["".to_owned()];
    let mut values: Vec<Lines> = Vec::new();
    for of in measured {
        columns.push(format!("{}, {}", of.name, processes(of.processes)));
        values.push(lines(of, false));
        if of.processes > 1 {
            columns.push("one of them".to_owned());
            values.push(lines(of, true));
        }
    }
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    let mut table = Table::new(title, command, &columns);
    for at in 0..values.first().map_or(0, Vec::len) {
        let mut row = vec![values[0][at].0.to_owned()];
        row.extend(values.iter().map(|lines| lines[at].1.clone()));
        table.row(&row);
    }
    table.finish(name)
}

fn processes(count: usize) -> String {
    if count == 1 { "1 process".into() } else { format!("{count} processes") }
}

/// Connections, echo and rate.
pub fn print_all(
    name: &str,
    command: &str,
    payload: usize,
    measured: &[Measured],
) -> io::Result<()> {
    print(&format!("{name}-connections"), "Connections", command, measured, |of, one| {
        let connected = of.connected.pick(one);
        let mut lines = rates(connected);
        lines.extend(times(connected));
        lines.extend(outcome(connected));
        lines.push(("Concurrency", of.connecting.to_string()));
        lines
    })?;
    print(&format!("{name}-echo"), "BenchEcho", command, measured, |of, one| {
        let echo = of.echo.pick(one);
        let usage = of.echo_usage.pick(one);
        let mut lines = rates(echo);
        lines.insert(1, ("EER", format!("{:.2}", echo.rate() / usage.cpu.mean)));
        lines.extend(times(echo));
        lines.extend(outcome(echo));
        lines.extend([
            ("Conns", of.connected.pick(one).succeeded().to_string()),
            ("Concurrency", of.concurrency(one).to_string()),
            ("Payload", payload.to_string()),
        ]);
        lines.extend(used(usage));
        lines
    })?;
    print(&format!("{name}-rate"), "BenchRate", command, measured, |of, one| {
        let rated: &Rated = of.rated.pick(one);
        let usage = of.rate_usage.pick(one);
        let seconds = rated.span.as_secs_f64();
        let mut lines = vec![
            ("Duration", time(rated.span)),
            ("EchoEER", format!("{:.2}", rated.heard as f64 / seconds / usage.cpu.mean)),
            ("Packet Sent", rated.sent.to_string()),
            ("Bytes Sent", bytes((rated.sent * payload as u64) as f64)),
            ("Packet Recv", rated.heard.to_string()),
            ("Bytes Recv", bytes((rated.heard * payload as u64) as f64)),
            ("Skipped", rated.skipped.to_string()),
            ("Failed", rated.failed.to_string()),
            ("Conns", rated.sample.to_string()),
            ("SendRate", rated.rate.to_string()),
            ("Payload", payload.to_string()),
        ];
        lines.extend(times(&rated.phase()));
        lines.extend(used(usage));
        lines
    })
}

/// The memory of a connection.
pub fn print_memory(name: &str, command: &str, measured: &[Measured]) -> io::Result<()> {
    let title = "Bytes per idle connection, after one echo on each";
    let mut columns = vec!["memory".to_owned()];
    columns.extend(measured.iter().map(|of| of.name.clone()));
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    let mut table = Table::new(title, command, &columns);
    let mut row = |name: &str, value: &dyn Fn(&Measured) -> f64| {
        let values = measured.iter().map(|of| format!("{:.0}", value(of)));
        table.row(&[name.to_owned()].into_iter().chain(values).collect::<Vec<_>>());
    };
    row("server, resident (RSS)", &|of| of.idle.server.resident);
    row("server, proportional (PSS)", &|of| of.idle.server.proportional);
    row("server, anonymous", &|of| of.idle.server.anonymous);
    row("server, anonymous, one process", &|of| of.idle.server_one);
    row("client, anonymous", &|of| of.idle.client.anonymous);
    row("kernel, both ends: objects of slabs", &|of| of.idle.slabs());
    row("kernel, both ends: queues of sockets", &|of| of.idle.queues);
    row("kernel and processes, both ends: MemAvailable", &|of| of.idle.available);
    let mut names: Vec<&str> = Vec::new();
    for slab in measured.iter().flat_map(|of| &of.idle.grown) {
        if !names.contains(&slab.0.as_str()) {
            names.push(&slab.0);
        }
    }
    for name in names {
        let cells = measured.iter().map(|of| {
            let slab = of.idle.grown.iter().find(|slab| slab.0 == name);
            slab.map_or("–".into(), |(_, objects, bytes)| format!("{objects:.2} = {bytes:.0} B"))
        });
        let name = [format!("objects of `{name}`, both ends")];
        table.row(&name.into_iter().chain(cells).collect::<Vec<_>>());
    }
    table.finish(&format!("{name}-memory"))
}

/// How the first server compares with each other one in all runs, beside the goals.
pub fn print_ratios(
    name: &str,
    command: &str,
    figures: &[Vec<Column>; FIGURES.len()],
) -> io::Result<()> {
    let servers = &figures[0];
    if servers.len() < 2 {
        return Ok(());
    }
    let title = format!("{} beside others", servers[0].server);
    let mut table = Table::new(&title, command, &["ratio", "server", "measured", "goal"]);
    for (at, other) in servers.iter().enumerate().skip(1) {
        for (figure, columns) in FIGURES.iter().zip(figures) {
            let measured = ratio(columns[0].ratio(&columns[at]));
            let goal = goal(figure, &other.server, name == "million-websockets");
            table.row(&[(*figure).into(), other.server.clone(), measured, goal.into()]);
        }
    }
    table.finish(&format!("{name}-ratios"))
}

fn goal(figure: &str, server: &str, is_websocket: bool) -> &'static str {
    match (figure, server, is_websocket) {
        ("EER of BenchEcho", "nbio", false) => "at least 1.5",
        ("idle bytes per connection, anonymous", "nbio", false) => "at most 0.25",
        ("EER of BenchEcho", "nbio", true) => "at least 2",
        ("CPU per echo of BenchEcho", "fastwebsockets", true) => "at most 0.87",
        ("resident memory in BenchEcho", "fastwebsockets", true) => "at most 0.25",
        _ => "",
    }
}

fn rates(of: &Phase) -> Lines {
    vec![("TPS", format!("{:.0}", of.rate()))]
}

fn times(of: &Phase) -> Lines {
    let mut lines = vec![
        ("Min", time(of.times.min())),
        ("Avg", time(of.times.mean())),
        ("Max", time(of.times.max())),
    ];
    let percents = [("TP50", 50.0), ("TP75", 75.0), ("TP90", 90.0), ("TP95", 95.0), ("TP99", 99.0)];
    lines.extend(percents.map(|(name, percent)| (name, time(of.times.percentile(percent)))));
    lines
}

fn outcome(of: &Phase) -> Lines {
    vec![
        ("Used", time(Duration::from_secs_f64(of.seconds))),
        ("Total", (of.succeeded() + of.failed).to_string()),
        ("Success", of.succeeded().to_string()),
        ("Failed", of.failed.to_string()),
    ]
}

fn used(usage: &Usage) -> Lines {
    let percent = |value: f64| format!("{value:.2}%");
    vec![
        ("CPU Min", percent(usage.cpu.min)),
        ("CPU Avg", percent(usage.cpu.mean)),
        ("CPU Max", percent(usage.cpu.max)),
        ("MEM Min", bytes(usage.memory.min)),
        ("MEM Avg", bytes(usage.memory.mean)),
        ("MEM Max", bytes(usage.memory.max)),
    ]
}

/// Three digits and a unit.
pub fn time(span: Duration) -> String {
    let ns = span.as_nanos() as f64;
    match ns {
        _ if ns < 1e3 => format!("{ns:.0}ns"),
        _ if ns < 1e6 => format!("{:.2}µs", ns / 1e3),
        _ if ns < 1e9 => format!("{:.2}ms", ns / 1e6),
        _ => format!("{:.2}s", ns / 1e9),
    }
}

pub fn bytes(bytes: f64) -> String {
    match bytes {
        _ if bytes < 1024.0 => format!("{bytes:.0}B"),
        _ if bytes < 1024.0 * 1024.0 => format!("{:.2}K", bytes / 1024.0),
        _ if bytes < 1024.0 * 1024.0 * 1024.0 => format!("{:.2}M", bytes / 1024.0 / 1024.0),
        _ => format!("{:.2}G", bytes / 1024.0 / 1024.0 / 1024.0),
    }
}
