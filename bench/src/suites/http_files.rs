//! Files over HTTP: processor time per file, beside nginx and raw loops.

use std::io;

use super::web;
use crate::arguments::Arguments;
use crate::rounds::interleaved;
use crate::table::Table;
use crate::{peers, served, stats};

struct Case {
    name: &'static str,
    len: usize,
    files: usize,
}

const CASES: &[Case] = &[
    Case { name: "4 KiB, one file", len: 4 << 10, files: 1 },
    Case { name: "4 KiB, 1000 files", len: 4 << 10, files: 1000 },
    Case { name: "1 MiB, one file", len: 1 << 20, files: 1 },
    Case { name: "1 MiB, 1000 files", len: 1 << 20, files: 1000 },
];

pub fn run(arguments: &mut Arguments) -> io::Result<()> {
    let runs: usize = arguments.option("--runs", 5)?;
    let seconds: f64 = arguments.option("--seconds", 1.0)?;
    let only: String = arguments.option("--only", String::new())?;
    let connections: usize = arguments.option("--connections", 64)?;
    arguments.end()?;
    let command = format!("bench -- http-files --runs {runs} --seconds {seconds}");
    let columns =
        ["case", "server", "files/s", "server µs per file", "to nginx", "to nginx-cached"];
    let title = format!("Files over HTTP, {connections} connections: files per CPU second");
    let mut table = Table::new(&title, &command, &columns);
    for case in CASES {
        let root = served::files(case.len, case.files)?;
        let servers = peers::usable(peers::file_servers(&root)?, &only)?;
        let names: Vec<String> = servers.iter().map(|(name, _)| name.clone()).collect();
        let load = load(case, connections);
        let [rates, cpu, efficiency] = interleaved(&names, runs, |name| {
            let (_, command) = servers.iter().find(|(server, _)| server == name).expect("ours");
            web::measure(command, &load, seconds)
        })?;
        for (at, rate) in rates.iter().enumerate() {
            table.row(&[
                case.name.into(),
                rate.server.clone(),
                format!("{:.0}", stats::median(&rate.values)),
                format!("{:.2}", stats::median(&cpu[at].values)),
                web::ratio_to(&efficiency, at, "nginx"),
                web::ratio_to(&efficiency, at, "nginx-cached"),
            ]);
        }
    }
    table.finish("http-files")
}

fn load(case: &Case, connections: usize) -> web::Load {
    web::Load { path: "/{}.txt", files: case.files, len: case.len, blocks_of: 0, connections }
}

/// Instructions and system calls per file.
pub fn counts(arguments: &mut Arguments) -> io::Result<()> {
    let only: String = arguments.option("--only", String::new())?;
    arguments.end()?;
    let mut table = web::counts_table("bench -- http-files-counts");
    for case in CASES {
        let root = served::files(case.len, case.files)?;
        let servers = peers::usable(peers::file_servers(&root)?, &only)?;
        let requests = if case.len > 64 << 10 { [200, 600] } else { [2000, 10_000] };
        for (name, command) in servers {
            let load = load(case, 16);
            table.row(&web::server_counts(case.name, &name, &command, &load, requests)?);
        }
    }
    table.finish("http-files-counts")
}
