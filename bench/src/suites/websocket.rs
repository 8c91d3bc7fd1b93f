//! WebSocket: processor time per message, memory of idle connections, and broadcasts, beside a raw
//! loop that takes the mask off, and other servers.

use std::io;

use super::broadcast;
use super::web::{self, Clients};
use crate::arguments::Arguments;
use crate::process::{Server, Talking, hold};
use crate::rounds::interleaved;
use crate::table::{Table, ratio};
use crate::{peers, stats};

struct Case {
    name: &'static str,
    size: usize,
    depth: usize,
}

const CASES: &[Case] = &[
    Case { name: "16 messages of 64 B at once", size: 64, depth: 16 },
    Case { name: "16 messages of 1 KiB at once", size: 1024, depth: 16 },
    Case { name: "16 messages of 64 KiB at once", size: 64 << 10, depth: 16 },
    Case { name: "one message of 64 B at once", size: 64, depth: 1 },
    Case { name: "one message of 1 KiB at once", size: 1024, depth: 1 },
    Case { name: "one message of 64 KiB at once", size: 64 << 10, depth: 1 },
];

/// Connections that send messages.
const ACTIVE: usize = 64;

struct Load<'a> {
    case: &'a Case,
    connections: usize,
}

impl Case {
    /// nbio sends a long message in several frames: its clients would need a decoder.
    fn is_for(&self, server: &str) -> bool {
        server != "nbio" || self.size <= 4096
    }
}

impl Clients for Load<'_> {
    fn start(&self, port: u16, seconds: f64, requests: u64) -> io::Result<Talking> {
        let mut words = words("measure", port, self.connections, self.case);
        let (seconds, requests) = (seconds.to_string(), requests.to_string());
        words.extend(["--seconds", &seconds, "--messages", &requests].map(String::from));
        let clients = Talking::start(1, &words)?;
        web::served(&clients)?;
        Ok(clients)
    }
}

fn words(mode: &str, port: u16, connections: usize, case: &Case) -> Vec<String> {
    let mut words = vec!["websocket-load".to_owned(), mode.into()];
    for (name, value) in [
        ("--port", usize::from(port)),
        ("--connections", connections),
        ("--size", case.size),
        ("--depth", case.depth),
    ] {
        words.extend([name.to_owned(), value.to_string()]);
    }
    words
}

pub fn run(arguments: &mut Arguments) -> io::Result<()> {
    let runs: usize = arguments.option("--runs", 5)?;
    let seconds: f64 = arguments.option("--seconds", 1.0)?;
    let only: String = arguments.option("--only", String::new())?;
    let connections: usize = arguments.option("--connections", 4000)?;
    arguments.end()?;
    let servers = peers::usable(peers::websockets()?, &only)?;
    let command = format!("bench -- websocket --runs {runs} --seconds {seconds}");
    echoes(&servers, &command, runs, seconds)?;
    memory(&servers, &command, connections)?;
    broadcasts(&command, runs, seconds, connections)
}

fn echoes(
    servers: &[(String, Vec<String>)],
    command: &str,
    runs: usize,
    seconds: f64,
) -> io::Result<()> {
    let find = |name: &str| &servers.iter().find(|(server, _)| server == name).expect("ours").1;
    let title = format!("WebSocket, {ACTIVE} connections: processor time per message");
    let columns = [
        "case",
        "server",
        "messages/s",
        "server µs per message",
        "to the floor",
        "to uWebSockets",
        "to fastwebsockets",
        "p99 µs",
    ];
    let mut table = Table::new(&title, command, &columns);
    for case in CASES {
        let load = Load { case, connections: ACTIVE };
        let names = servers.iter().map(|(name, _)| name.clone());
        let names: Vec<String> = names.filter(|name| case.is_for(name)).collect();
        let [rates, cpu, p99] = interleaved(&names, runs, |name| {
            let measured = web::load(find(name), &load, seconds)?;
            Ok([measured.per_second, measured.cpu_us, measured.p99_us])
        })?;
        for (at, rate) in rates.iter().enumerate() {
            table.row(&[
                case.name.into(),
                rate.server.clone(),
                format!("{:.0}", stats::median(&rate.values)),
                format!("{:.3}", stats::median(&cpu[at].values)),
                web::ratio_to(&cpu, at, "websocket-floor"),
                web::ratio_to(&cpu, at, "uWebSockets"),
                web::ratio_to(&cpu, at, "fastwebsockets"),
                format!("{:.0}", stats::median(&p99[at].values)),
            ]);
        }
    }
    table.finish("websocket")
}

/// Memory of idle connections that have echoed once.
fn memory(servers: &[(String, Vec<String>)], command: &str, connections: usize) -> io::Result<()> {
    let title = format!("WebSocket: memory of {connections} idle connections");
    let mut table = Table::new(&title, command, &["server", "bytes per idle connection"]);
    let case = Case { name: "", size: 64, depth: 1 };
    for (name, command) in servers {
        let server = Server::start(command)?;
        let first = hold(&words("hold", server.port, connections / 2, &case))?;
        let before = server.resident_bytes()?;
        let second = hold(&words("hold", server.port, connections / 2, &case))?;
        let after = server.resident_bytes()?;
        drop((first, second));
        let bytes = after.saturating_sub(before) / (connections as u64 / 2).max(1);
        table.row(&[name.clone(), bytes.to_string()]);
    }
    table.finish("websocket-memory")
}

/// One message to all connections, beside bare writes; and how much a stalled reader delays the
/// others.
fn broadcasts(command: &str, runs: usize, seconds: f64, connections: usize) -> io::Result<()> {
    let servers = peers::usable(peers::websocket_broadcasters(64, 250)?, "")?;
    let names: Vec<String> = servers.iter().map(|(name, _)| name.clone()).collect();
    let find = |name: &str| &servers.iter().find(|(server, _)| server == name).expect("ours").1;
    let to = broadcast::To { connections, stalled: 0, size: 64, is_websocket: true };
    let [cpu, delay] =
        interleaved(&names, runs, |name| broadcast::measure(find(name), &to, seconds))?;
    let title = format!("A message of 64 B to {connections} WebSockets");
    let columns = ["server", "server µs per delivery", "CPU", "median delay µs"];
    let mut table = Table::new(&title, command, &columns);
    for (at, cpu_of) in cpu.iter().enumerate() {
        table.row(&[
            cpu_of.server.clone(),
            format!("{:.2}", stats::median(&cpu_of.values)),
            ratio(cpu_of.ratio(&cpu[0])),
            format!("{:.0}", stats::median(&delay[at].values)),
        ]);
    }
    table.finish("websocket-broadcast")?;

    // Large messages, so that the memory of the kernel does not hide that a reader has stalled.
    let size = 64 << 10;
    let servers = peers::usable(peers::websocket_broadcasters(size, 50)?, "windlass-web")?;
    let cases = ["all read", "one has stalled"].map(String::from);
    let [cpu, delay] = interleaved(&cases, runs, |case| {
        let stalled = usize::from(case == cases[1]);
        let to = broadcast::To { connections: 100, stalled, size, is_websocket: true };
        broadcast::measure(&servers[0].1, &to, seconds)
    })?;
    let title = "A message of 64 KiB to 100 WebSockets that read, and to one that may not";
    let columns = ["readers", "server µs per delivery", "median delay µs", "ratio"];
    let mut table = Table::new(title, command, &columns);
    for (at, delay_of) in delay.iter().enumerate() {
        table.row(&[
            delay_of.server.clone(),
            format!("{:.2}", stats::median(&cpu[at].values)),
            format!("{:.0}", stats::median(&delay_of.values)),
            ratio(delay_of.ratio(&delay[0])),
        ]);
    }
    table.finish("websocket-stalled")
}

/// Instructions and system calls per message.
pub fn counts(arguments: &mut Arguments) -> io::Result<()> {
    let only: String = arguments.option("--only", String::new())?;
    arguments.end()?;
    let mut table = web::counts_table("bench -- websocket-counts");
    let servers = peers::usable(peers::websockets()?, &only)?;
    for case in CASES {
        let messages = if case.size > 4096 { [320, 960] } else { [3200, 16_000] };
        for (name, command) in servers.iter().filter(|(name, _)| case.is_for(name)) {
            let load = Load { case, connections: 16 };
            table.row(&web::server_counts(case.name, name, command, &load, messages)?);
        }
    }
    table.finish("websocket-counts")
}
