//! Random blocks of a large file over HTTP, beside libuv's pool of threads.

use std::io;

use super::web::{self, Load, Measured};
use crate::arguments::Arguments;
use crate::rounds::interleaved;
use crate::table::{Table, ratio};
use crate::{peers, served, stats};

const BYTES: u64 = 1 << 30;
const BLOCK: usize = 4096;

pub fn run(arguments: &mut Arguments) -> io::Result<()> {
    let runs: usize = arguments.option("--runs", 5)?;
    let seconds: f64 = arguments.option("--seconds", 2.0)?;
    let only: String = arguments.option("--only", String::new())?;
    let connections: usize = arguments.option("--connections", 100)?;
    arguments.end()?;
    let root = served::large(BYTES)?;
    let command = format!("bench -- blocks --runs {runs} --seconds {seconds}");
    let columns = ["reads", "server", "requests/s", "rate", "server µs", "CPU", "p50 µs", "p99 µs"];
    let title = format!("Blocks of 4 KiB of a file of 1 GiB, {connections} connections");
    let mut table = Table::new(&title, &command, &columns);
    let load = Load { path: "/0.txt", files: 1, len: BLOCK, blocks_of: BYTES, connections };
    for (kind, direct) in [("O_DIRECT", true), ("page cache", false)] {
        if !direct {
            // The page cache has all of it.
            io::copy(&mut std::fs::File::open(root.join("0.txt"))?, &mut io::sink())?;
        }
        let servers = peers::usable(peers::block_servers(&root, direct)?, &only)?;
        let names: Vec<String> = servers.iter().map(|(name, _)| name.clone()).collect();
        let [rates, cpu, p50, p99] = interleaved(&names, runs, |name| {
            let (_, command) = servers.iter().find(|(server, _)| server == name).expect("ours");
            let Measured { per_second, cpu_us, p50_us, p99_us } =
                web::load(command, &load, seconds)?;
            Ok([per_second, cpu_us, p50_us, p99_us])
        })?;
        for (at, rate) in rates.iter().enumerate() {
            table.row(&[
                kind.into(),
                rate.server.clone(),
                format!("{:.0}", stats::median(&rate.values)),
                ratio(rate.ratio(&rates[0])),
                format!("{:.2}", stats::median(&cpu[at].values)),
                ratio(cpu[at].ratio(&cpu[0])),
                format!("{:.0}", stats::median(&p50[at].values)),
                format!("{:.0}", stats::median(&p99[at].values)),
            ]);
        }
    }
    table.finish("blocks")
}
