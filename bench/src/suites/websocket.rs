//! WebSocket: processor time per message, and memory of idle connections, beside a raw loop that
//! takes the mask off, and other servers.

use std::io;

use super::web::{self, Clients};
use crate::arguments::Arguments;
use crate::process::{Server, Talking, hold};
use crate::rounds::interleaved;
use crate::table::Table;
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
    memory(&servers, &command, connections)
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
