//! HTTP clients that are measured, each in the way that its library's own examples show. `client
//! NAME PORT CONNECTIONS` starts one.
//!
//! It has one request answered on each connection, and prints `served`. For each number that it
//! reads it has so many requests answered, one at a time on each connection, and prints the seconds
//! that this took.

mod floor;
#[cfg(feature = "http")]
mod hyper_util;
#[cfg(feature = "http")]
mod ureq;
mod windlass_web;

use std::io;
use std::time::Instant;

use crate::arguments::{Arguments, invalid};
use crate::servers::driver;

/// The path that is requested.
const PATH: &str = "/plaintext";

pub fn run(arguments: &mut Arguments) -> io::Result<()> {
    let name: String = arguments.require("client")?;
    let port: u16 = arguments.require("port")?;
    let connections: usize = arguments.require("number of connections")?;
    arguments.end()?;
    match name.as_str() {
        "client-floor" => floor::run(port, connections),
        "windlass-client" | "windlass-client-uring" => {
            windlass_web::run(port, connections, driver(&name))
        }
        #[cfg(feature = "http")]
        "hyper-util" => hyper_util::run(port, connections),
        #[cfg(feature = "http")]
        "ureq" => ureq::run(port, connections),
        other => Err(invalid(format!("{other:?} is no client"))),
    }
}

/// Calls `request` with one request for each connection, and then as often as it is told.
fn measured(
    connections: usize,
    mut request: impl FnMut(usize) -> io::Result<()>,
) -> io::Result<()> {
    request(connections)?;
    println!("served");
    let mut line = String::new();
    while io::stdin().read_line(&mut line)? > 0 {
        let count = line.trim().parse().map_err(io::Error::other)?;
        let begin = Instant::now();
        request(count)?;
        println!("{}", begin.elapsed().as_secs_f64());
        line.clear();
    }
    Ok(())
}
