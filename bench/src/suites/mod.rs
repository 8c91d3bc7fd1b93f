//! The measurements.

pub mod blocks;
pub mod broadcast;
pub mod datagrams;
pub mod echo;
pub mod files;
pub mod gaio;
pub mod http;
pub mod http_client;
pub mod http_files;
pub mod http_proxy;
pub mod idle;
pub mod million;
pub mod modes;
pub mod proxy;
pub mod redis;
pub mod tls;
#[cfg(feature = "slow-disk")]
pub mod upload;
mod web;
pub mod websocket;
#[cfg(feature = "deflate")]
pub mod websocket_deflate;

use std::io;

use crate::arguments::Arguments;
use crate::{plot, table};

/// One suite, with its plot.
pub fn one(
    name: &str,
    suite: fn(&mut Arguments) -> io::Result<plot::Panel>,
    arguments: &mut Arguments,
) -> io::Result<()> {
    draw(name, &[suite(arguments)?])
}

/// All suites, and the plot of README.
pub fn all(arguments: &mut Arguments) -> io::Result<()> {
    let runs: String = arguments.option("--runs", "5".into())?;
    let seconds: String = arguments.option("--seconds", "2".into())?;
    arguments.end()?;
    let with = |words: &[&str]| Arguments::from_words(words);
    let timed = ["--runs", &runs, "--seconds", &seconds];
    let echo = echo::run(&mut with(&timed))?;
    let idle = idle::run(&mut with(&[]))?;
    let files = files::run(&mut with(&timed))?;
    gaio::run(&mut with(&["--runs", &runs]))?;
    draw("overview", &[echo, idle, files])
}

/// Draws `results/NAME.svg`.
fn draw(name: &str, panels: &[plot::Panel]) -> io::Result<()> {
    plot::panels(name, panels)?;
    println!("the plot is {}", table::directory()?.join(format!("{name}.svg")).display());
    Ok(())
}
