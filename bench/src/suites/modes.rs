//! The modes of windlass-serve beside a thread of std for each connection, and beside nbio.

use std::io;

use super::echo::pingpong;
use crate::arguments::Arguments;
use crate::process::Server;
use crate::rounds::interleaved;
use crate::table::{Table, ratio};
use crate::{peers, stats};

/// Bytes of a message.
const SIZE: usize = 1024;

pub fn run(arguments: &mut Arguments) -> io::Result<()> {
    let runs: usize = arguments.option("--runs", 5)?;
    let seconds: f64 = arguments.option("--seconds", 2.0)?;
    let only: String = arguments.option("--only", String::new())?;
    arguments.end()?;
    let command = format!("bench -- modes --runs {runs} --seconds {seconds}");
    let columns = [
        "connections",
        "server",
        "messages/s",
        "rate",
        "server µs per message",
        "messages per CPU second",
        "MB at the peak",
    ];
    let title = "An echo of 1 KiB: threads, loops, and both";
    let mut table = Table::new(title, &command, &columns);
    for connections in [1, 16, 256, 4096] {
        let servers = peers::usable(peers::modes()?, &only)?;
        let names: Vec<String> = servers.iter().map(|(name, _)| name.clone()).collect();
        let [rates, cpu, efficiency, memory] = interleaved(&names, runs, |name| {
            let (_, command) = servers.iter().find(|(server, _)| server == name).expect("ours");
            measure(command, connections, seconds)
        })?;
        for (at, rate) in rates.iter().enumerate() {
            table.row(&[
                connections.to_string(),
                rate.server.clone(),
                format!("{:.0}", stats::median(&rate.values)),
                ratio(rate.ratio(&rates[0])),
                format!("{:.2}", stats::median(&cpu[at].values)),
                ratio(efficiency[at].ratio(&efficiency[0])),
                format!("{:.1}", stats::median(&memory[at].values)),
            ]);
        }
    }
    table.finish("modes")
}

/// Messages per second, microseconds of the server's processor time per message, messages per
/// second of its processor time, and the most megabytes that it has had resident.
fn measure(command: &[String], connections: usize, seconds: f64) -> io::Result<[f64; 4]> {
    let server = Server::start(command)?;
    let (measured, used) = pingpong(&server, connections, SIZE, seconds)?;
    let used = used.as_secs_f64();
    let memory = server.peak_bytes()? as f64 / 1e6;
    // The warm-up, a tenth of the time, is in the processor time as well.
    let messages = measured.messages as f64 * 1.1;
    let rate = measured.messages as f64 / measured.seconds;
    Ok([rate, used * 1e6 / messages, messages / used, memory])
}
