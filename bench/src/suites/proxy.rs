//! TCP proxies in front of an echo server: messages per second, and processor time per message.

use std::io;

use super::echo::pingpong;
use crate::arguments::Arguments;
use crate::process::Server;
use crate::rounds::interleaved;
use crate::table::{Table, ratio};
use crate::{peers, stats};

struct Case {
    name: &'static str,
    connections: usize,
    size: usize,
}

const CASES: &[Case] = &[
    Case { name: "64 × 64 B", connections: 64, size: 64 },
    Case { name: "8 streams: 8 × 1 MiB", connections: 8, size: 1 << 20 },
];

pub fn run(arguments: &mut Arguments) -> io::Result<()> {
    let runs: usize = arguments.option("--runs", 5)?;
    let seconds: f64 = arguments.option("--seconds", 2.0)?;
    let only: String = arguments.option("--only", String::new())?;
    arguments.end()?;
    let command = format!("bench -- proxy --runs {runs} --seconds {seconds}");
    let columns =
        ["case", "proxy", "messages/s", "rate", "proxy µs per message", "messages per CPU second"];
    let mut table = Table::new("Proxies in front of an echo server", &command, &columns);
    for case in CASES {
        // The echo server shares the processor of the clients.
        let ours = std::env::current_exe()?.to_string_lossy().into_owned();
        let echo = [&ours, "serve", "raw-epoll", "{port}"].map(String::from);
        let echo = Server::start_beside_clients(&echo)?;
        let servers = peers::usable(peers::proxies(echo.port)?, &only)?;
        let names: Vec<String> = servers.iter().map(|(name, _)| name.clone()).collect();
        let [rates, cpu, efficiency] = interleaved(&names, runs, |name| {
            let (_, command) = servers.iter().find(|(server, _)| server == name).expect("ours");
            measure(command, case, seconds)
        })?;
        for (at, rate) in rates.iter().enumerate() {
            table.row(&[
                case.name.into(),
                rate.server.clone(),
                format!("{:.0}", stats::median(&rate.values)),
                ratio(rate.ratio(&rates[0])),
                format!("{:.2}", stats::median(&cpu[at].values)),
                ratio(efficiency[at].ratio(&efficiency[0])),
            ]);
        }
    }
    table.finish("proxy")
}

/// Messages per second, microseconds of the proxy's processor time per message, and messages per
/// second of its processor time.
fn measure(command: &[String], case: &Case, seconds: f64) -> io::Result<[f64; 3]> {
    let server = Server::start(command)?;
    let (measured, used) = pingpong(&server, case.connections, case.size, seconds)?;
    let used = used.as_secs_f64();
    // The warm-up, a tenth of the time, is in the processor time as well.
    let messages = measured.messages as f64 * 1.1;
    Ok([measured.messages as f64 / measured.seconds, used * 1e6 / messages, messages / used])
}
