//! HTTP clients: processor time per request, beside a raw loop that parses with httparse.

use std::io;

use super::web;
use crate::arguments::Arguments;
use crate::process::Server;
use crate::rounds::interleaved;
use crate::table::Table;
use crate::{peers, stats};

/// A name, and the head of the responses.
const CASES: &[(&str, &str)] = &[("responses of 160 B", "short"), ("responses of 419 B", "long")];

const CONNECTIONS: usize = 16;

/// The server that all clients use: it shares no processor with them.
fn server(head: &str) -> io::Result<Server> {
    let ours = std::env::current_exe()?.to_string_lossy().into_owned();
    let answers = [&ours, "serve", "http-answers", "{port}", head, "13"].map(String::from);
    Server::start_beside_clients(&answers)
}

pub fn run(arguments: &mut Arguments) -> io::Result<()> {
    let runs: usize = arguments.option("--runs", 5)?;
    let requests: u64 = arguments.option("--requests", 50_000)?;
    let only: String = arguments.option("--only", String::new())?;
    let connections: usize = arguments.option("--connections", CONNECTIONS)?;
    arguments.end()?;
    let command = format!("bench -- http-client --runs {runs} --requests {requests}");
    let columns = [
        "case",
        "client",
        "requests/s",
        "client µs per request",
        "to client-floor",
        "to hyper-util",
    ];
    let title = format!("HTTP clients, one request at a time on {connections} connections");
    let mut table = Table::new(&title, &command, &columns);
    for (name, head) in CASES {
        let server = server(head)?;
        let clients = peers::usable(peers::clients(server.port, connections)?, &only)?;
        let names: Vec<String> = clients.iter().map(|(name, _)| name.clone()).collect();
        let [rates, cpu, _] = interleaved(&names, runs, |name| {
            let (_, command) = clients.iter().find(|(client, _)| client == name).expect("ours");
            web::measure_client(command, requests)
        })?;
        for (at, rate) in rates.iter().enumerate() {
            table.row(&[
                (*name).into(),
                rate.server.clone(),
                format!("{:.0}", stats::median(&rate.values)),
                format!("{:.3}", stats::median(&cpu[at].values)),
                web::ratio_to(&cpu, at, "client-floor"),
                web::ratio_to(&cpu, at, "hyper-util"),
            ]);
        }
    }
    table.finish("http-client")
}

/// Instructions and system calls per request.
pub fn counts(arguments: &mut Arguments) -> io::Result<()> {
    let only: String = arguments.option("--only", String::new())?;
    arguments.end()?;
    let mut table = web::counts_table("bench -- http-client-counts");
    for (name, head) in CASES {
        let server = server(head)?;
        for (client, command) in peers::usable(peers::clients(server.port, CONNECTIONS)?, &only)? {
            table.row(&web::client_counts(name, &client, &command, [2000, 10_000])?);
        }
    }
    table.finish("http-client-counts")
}
