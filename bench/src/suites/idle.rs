//! Idle connections: resident bytes of the server for each, after one echo on it.

use std::io;

use super::echo::words;
use crate::arguments::Arguments;
use crate::peers;
use crate::plot::Panel;
use crate::process::{Server, hold};
use crate::stats::Estimate;
use crate::table::Table;

pub fn run(arguments: &mut Arguments) -> io::Result<Panel> {
    let connections: usize = arguments.option("--connections", 5000)?;
    let only: String = arguments.option("--only", String::new())?;
    arguments.end()?;
    let command = format!("bench -- idle --connections {connections}");
    let title = format!("{connections} idle connections");
    let mut table = Table::new(&title, &command, &["server", "bytes per connection"]);
    let mut bars = Vec::new();
    for (name, command) in peers::usable(peers::echo_servers()?, &only)? {
        let bytes = measure(&command, connections)?;
        table.row(&[peers::label(&name), format!("{bytes:.0}")]);
        bars.push((peers::label(&name), Estimate { median: bytes, low: bytes, high: bytes }));
    }
    table.finish("idle")?;
    let title = "Resident bytes per idle connection (logarithmic axis)".into();
    Ok(Panel { title, logarithmic: true, decimals: 0, bars })
}

/// The memory that the second half of the connections adds. So memory that the server takes once is
/// not counted.
fn measure(command: &[String], connections: usize) -> io::Result<f64> {
    let server = Server::start(command)?;
    let half = connections / 2;
    let words = words(&["load", "hold"], server.port, half, 64, 0.0);
    let first = hold(&words)?;
    let before = server.resident_bytes()?;
    let second = hold(&words)?;
    let after = server.resident_bytes()?;
    drop((first, second));
    Ok(after.saturating_sub(before) as f64 / half as f64)
}
