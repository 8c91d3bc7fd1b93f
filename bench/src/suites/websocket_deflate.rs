//! Compressed messages of WebSockets: processor time per message, their size, and the memory of a
//! connection whose context is taken over.
//!
//! uWebSockets has one deflater for all connections, and yawc one for each. With takeover, both
//! have one for each connection.

use std::io;

use super::web::{self, Clients};
use crate::arguments::Arguments;
use crate::process::{Server, Talking, clients, hold};
use crate::rounds::interleaved;
use crate::table::Table;
use crate::{peers, stats};

struct Case {
    /// The bits of both windows; 0: without takeover.
    window: u8,
    size: usize,
    depth: usize,
    connections: usize,
}

const CASES: &[Case] = &[
    Case { window: 0, size: 1 << 10, depth: 1, connections: 64 },
    Case { window: 0, size: 1 << 10, depth: 16, connections: 64 },
    Case { window: 0, size: 16 << 10, depth: 1, connections: 64 },
    Case { window: 0, size: 16 << 10, depth: 4, connections: 64 },
    Case { window: 9, size: 1 << 10, depth: 1, connections: 64 },
    Case { window: 9, size: 1 << 10, depth: 16, connections: 64 },
    Case { window: 12, size: 1 << 10, depth: 1, connections: 64 },
    Case { window: 12, size: 1 << 10, depth: 16, connections: 64 },
    Case { window: 15, size: 1 << 10, depth: 1, connections: 64 },
    Case { window: 15, size: 1 << 10, depth: 16, connections: 64 },
    // Few enough that each finds its context in a live deflater.
    Case { window: 9, size: 1 << 10, depth: 1, connections: 8 },
    Case { window: 12, size: 1 << 10, depth: 1, connections: 8 },
    Case { window: 15, size: 1 << 10, depth: 1, connections: 8 },
];

impl Case {
    fn name(&self) -> String {
        let Case { window, size, depth, connections } = self;
        let kept = match window {
            0 => "no takeover".to_owned(),
            bits => format!("takeover of {bits} bits"),
        };
        format!("{kept}: {connections} × {depth} × {} KiB", size >> 10)
    }

    fn words(&self, mode: &str, port: u16) -> Vec<String> {
        let mut words = vec!["deflate-load".to_owned(), mode.into()];
        for (name, value) in [
            ("--port", usize::from(port)),
            ("--connections", self.connections),
            ("--size", self.size),
            ("--depth", self.depth),
            ("--window", usize::from(self.window)),
        ] {
            words.extend([name.to_owned(), value.to_string()]);
        }
        words
    }
}

impl Clients for Case {
    fn start(&self, port: u16, seconds: f64, requests: u64) -> io::Result<Talking> {
        let mut words = self.words("measure", port);
        let (seconds, requests) = (seconds.to_string(), requests.to_string());
        words.extend(["--seconds", &seconds, "--messages", &requests].map(String::from));
        let clients = Talking::start(1, &words)?;
        web::served(&clients)?;
        Ok(clients)
    }
}

pub fn run(arguments: &mut Arguments) -> io::Result<()> {
    let runs: usize = arguments.option("--runs", 5)?;
    let seconds: f64 = arguments.option("--seconds", 1.0)?;
    let only: String = arguments.option("--only", String::new())?;
    let connections: usize = arguments.option("--connections", 2000)?;
    arguments.end()?;
    let command = format!(
        "bench -- websocket-deflate --runs {runs} --seconds {seconds} --connections {connections}"
    );
    messages(&only, &command, runs, seconds)?;
    memory(&only, &command, connections)
}

fn messages(only: &str, command: &str, runs: usize, seconds: f64) -> io::Result<()> {
    let columns = [
        "case: connections × messages at once",
        "server",
        "messages/s",
        "server µs per message",
        "to uWebSockets",
        "to yawc",
        "bytes of an echo",
        "p99 µs",
    ];
    let mut table = Table::new("Compressed WebSocket messages", command, &columns);
    for case in CASES {
        let servers = peers::usable(peers::websocket_deflaters(case.window)?, only)?;
        let names: Vec<String> = servers.iter().map(|(name, _)| name.clone()).collect();
        let find = |name: &str| &servers.iter().find(|(server, _)| server == name).expect("ours").1;
        let [rates, cpu, p99] = interleaved(&names, runs, |name| {
            let measured = web::load(find(name), case, seconds)?;
            Ok([measured.per_second, measured.cpu_us, measured.p99_us])
        })?;
        for (at, (name, command)) in servers.iter().enumerate() {
            table.row(&[
                case.name(),
                name.clone(),
                format!("{:.0}", stats::median(&rates[at].values)),
                format!("{:.2}", stats::median(&cpu[at].values)),
                web::ratio_to(&cpu, at, "uWebSockets"),
                web::ratio_to(&cpu, at, "yawc"),
                format!("{:.0}", bytes(command, case)?),
                format!("{:.0}", stats::median(&p99[at].values)),
            ]);
        }
    }
    table.finish("websocket-deflate")
}

/// The mean size of a compressed echo.
fn bytes(command: &[String], case: &Case) -> io::Result<f64> {
    let server = Server::start(command)?;
    let printed = clients(&case.words("bytes", server.port))?;
    printed.trim().parse().map_err(|_| io::Error::other(printed))
}

/// Memory of idle connections that have exchanged twice as much text as their windows have.
fn memory(only: &str, command: &str, connections: usize) -> io::Result<()> {
    let title = format!("Memory of {connections} idle connections with compression");
    let columns =
        ["windows", "server", "bytes per idle connection", "above no takeover", "both windows"];
    let mut table = Table::new(&title, command, &columns);
    let mut without: Vec<(String, u64)> = Vec::new();
    for window in [0, 9, 12, 15] {
        for (name, command) in peers::usable(peers::websocket_deflaters(window)?, only)? {
            let case = Case { window, size: 1 << 10, depth: 1, connections: connections / 2 };
            let server = Server::start(&command)?;
            let first = hold(&case.words("hold", server.port))?;
            let before = server.resident_bytes()?;
            let second = hold(&case.words("hold", server.port))?;
            let after = server.resident_bytes()?;
            drop((first, second));
            let bytes = after.saturating_sub(before) / (connections as u64 / 2).max(1);
            let base = without.iter().find(|(server, _)| *server == name);
            let above = base.map(|(_, base)| bytes as i64 - *base as i64);
            if window == 0 {
                without.push((name.clone(), bytes));
            }
            table.row(&[
                if window == 0 { "no takeover".into() } else { format!("{window} bits") },
                name,
                bytes.to_string(),
                above.map_or_else(String::new, |above| above.to_string()),
                if window == 0 { String::new() } else { (2_u32 << window).to_string() },
            ]);
        }
    }
    table.finish("websocket-deflate-memory")
}

/// Instructions and system calls per message.
pub fn counts(arguments: &mut Arguments) -> io::Result<()> {
    let only: String = arguments.option("--only", String::new())?;
    arguments.end()?;
    let mut table = web::counts_table("bench -- websocket-deflate-counts");
    for case in CASES.iter().filter(|case| case.depth == 1) {
        let case = &Case { connections: case.connections.min(16), ..*case };
        for (name, command) in peers::usable(peers::websocket_deflaters(case.window)?, &only)? {
            table.row(&web::server_counts(&case.name(), &name, &command, case, [160, 480])?);
        }
    }
    table.finish("websocket-deflate-counts")
}
