//! Datagrams one by one, and in batches: the server's processor time for each.

use std::io;

use crate::arguments::Arguments;
use crate::process::{Server, clients};
use crate::rounds::interleaved;
use crate::stats;
use crate::table::{Table, ratio};

struct Case {
    name: &'static str,
    /// How many datagrams of a burst get an answer.
    answers: usize,
    /// Whether the server shares the processor of the peers: it finds each burst complete.
    shares: bool,
}

const CASES: &[Case] = &[
    Case { name: "echo 64 B", answers: 100, shares: false },
    Case { name: "receive 64 B", answers: 1, shares: false },
    Case { name: "echo 64 B, one processor", answers: 100, shares: true },
    Case { name: "receive 64 B, one processor", answers: 1, shares: true },
];

pub fn run(arguments: &mut Arguments) -> io::Result<()> {
    let runs: usize = arguments.option("--runs", 7)?;
    let seconds: f64 = arguments.option("--seconds", 0.5)?;
    let peers: usize = arguments.option("--peers", 1000)?;
    arguments.end()?;
    let command = format!("bench -- datagrams --runs {runs} --seconds {seconds} --peers {peers}");
    let title = format!("Datagrams of {peers} peers: ratios to one by one");
    let columns =
        ["case", "server", "datagrams/s", "server µs per datagram", "datagrams per CPU second"];
    let mut table = Table::new(&title, &command, &columns);
    let names = ["one-by-one", "batches"].map(String::from);
    for case in CASES {
        let [cpu, efficiency, rate] =
            interleaved(&names, runs, |name| measure(name, case, peers, seconds))?;
        for (at, cpu) in cpu.iter().enumerate() {
            table.row(&[
                case.name.into(),
                cpu.server.clone(),
                format!("{:.0}", stats::median(&rate[at].values)),
                format!("{:.2}", stats::median(&cpu.values)),
                ratio(efficiency[at].ratio(&efficiency[0])),
            ]);
        }
    }
    table.finish("datagrams")
}

/// The server's microseconds per datagram, datagrams per CPU second, and the rate.
fn measure(name: &str, case: &Case, peers: usize, seconds: f64) -> io::Result<[f64; 3]> {
    let ours = std::env::current_exe()?.to_string_lossy().into_owned();
    let command = [&ours, "serve", "datagrams", "{port}", name].map(String::from);
    let start = if case.shares { Server::start_beside_clients } else { Server::start };
    let server = start(&command)?;
    let words = format!(
        "peers --port {} --peers {peers} --answers {} --seconds {seconds} --server {}",
        server.port,
        case.answers,
        server.id()
    );
    let words: Vec<String> = words.split_whitespace().map(String::from).collect();
    let printed = clients(&words)?;
    let mut numbers = printed.split_whitespace().map(str::parse::<f64>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(cpu)), Some(Ok(rate))) => Ok([cpu, 1e6 / cpu, rate]),
        _ => Err(io::Error::other(format!("{printed:?} tells of no datagrams"))),
    }
}
