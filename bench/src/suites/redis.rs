//! redis-benchmark against servers of keys and values: rates, and processor time per request.

use std::io;
use std::path::Path;

use crate::arguments::Arguments;
use crate::process::{Server, client_program};
use crate::rounds::interleaved;
use crate::table::{Table, ratio};
use crate::{peers, stats};

struct Case {
    name: &'static str,
    /// redis-benchmark's name of the test.
    test: &'static str,
    /// How many lines a request has.
    lines: usize,
    reply: &'static str,
}

const CASES: &[Case] = &[
    Case { name: "PING, inline", test: "ping_inline", lines: 1, reply: r"+PONG\r\n" },
    Case { name: "PING", test: "ping_mbulk", lines: 3, reply: r"+PONG\r\n" },
    Case { name: "SET", test: "set", lines: 7, reply: r"+OK\r\n" },
    Case { name: "GET", test: "get", lines: 5, reply: r"$3\r\nxxx\r\n" },
];
/// How many requests a connection has outstanding, and how many thousandths of `--requests` a run
/// sends.
const PIPELINES: [(usize, usize); 2] = [(128, 1000), (1, 60)];

pub fn run(arguments: &mut Arguments) -> io::Result<()> {
    let runs: usize = arguments.option("--runs", 5)?;
    let requests: usize = arguments.option("--requests", 1_000_000)?;
    let only: String = arguments.option("--only", String::new())?;
    arguments.end()?;
    let command = format!("bench -- redis --runs {runs} --requests {requests}");
    for (pipeline, share) in PIPELINES {
        let requests = (requests * share / 1000).max(1000);
        let title = format!("redis-benchmark -c 50 -P {pipeline}, {requests} requests");
        let columns = ["command", "server", "requests/s", "rate", "server µs per request", "CPU"];
        let mut table = Table::new(&title, &command, &columns);
        for case in CASES {
            let servers = peers::usable(peers::redis_servers(case.lines, case.reply)?, &only)?;
            let names: Vec<String> = servers.iter().map(|(name, _)| name.clone()).collect();
            let [rates, cpu] = interleaved(&names, runs, |name| {
                let (_, words) = servers.iter().find(|(server, _)| server == name).expect("ours");
                measure(words, case, pipeline, requests)
            })?;
            for (rate, cpu_of) in rates.iter().zip(&cpu) {
                table.row(&[
                    case.name.into(),
                    rate.server.clone(),
                    format!("{:.0}", stats::median(&rate.values)),
                    ratio(rate.ratio(&rates[0])),
                    format!("{:.3}", stats::median(&cpu_of.values)),
                    ratio(cpu_of.ratio(&cpu[0])),
                ]);
            }
            let at = |name: &str| cpu.iter().find(|column| column.server == name);
            if let (Some(ours), Some(evio)) = (at("windlass-serve"), at("evio")) {
                let name = "windlass-serve, CPU beside evio".into();
                let empty = String::new;
                let beside = ratio(ours.ratio(evio));
                table.row(&[case.name.into(), name, empty(), empty(), empty(), beside]);
            }
        }
        table.finish(&format!("redis-{pipeline}"))?;
    }
    Ok(())
}

/// Requests per second, and microseconds of the server's processor time per request.
fn measure(
    command: &[String],
    case: &Case,
    pipeline: usize,
    requests: usize,
) -> io::Result<[f64; 2]> {
    let server = Server::start(command)?;
    if case.test == "get" {
        benchmark(server.port, "set", 1, 100)?; // so that there is a value
    }
    let before = server.cpu_time()?;
    let rate = benchmark(server.port, case.test, pipeline, requests)?;
    let used = server.cpu_time()? - before;
    Ok([rate, used.as_secs_f64() * 1e6 / requests as f64])
}

/// The requests per second that redis-benchmark prints.
fn benchmark(port: u16, test: &str, pipeline: usize, requests: usize) -> io::Result<f64> {
    let words = format!("-p {port} -t {test} -P {pipeline} -n {requests} -c 50 --csv");
    let words: Vec<String> = words.split(' ').map(String::from).collect();
    let printed = client_program(Path::new("redis-benchmark"), &words)?;
    // `"test","requests per second",…` below a line of titles
    let last = printed.lines().last().unwrap_or_default();
    let rate = last.split(',').nth(1).map(|word| word.trim_matches('"'));
    rate.and_then(|word| word.parse().ok()).ok_or_else(|| io::Error::other(printed))
}
