//! What is measured.

pub mod echo;
pub mod files;
pub mod gaio;
pub mod idle;

use std::io;

use crate::arguments::Arguments;
use crate::{plot, table};

/// All suites, and the plot of README.
pub fn all(arguments: &mut Arguments) -> io::Result<()> {
    let runs: String = arguments.option("--runs", "5".into())?;
    arguments.end()?;
    let with = |words: &[&str]| Arguments::from_words(words);
    let echo = echo::run(&mut with(&["--runs", &runs]))?;
    let idle = idle::run(&mut with(&[]))?;
    let files = files::run(&mut with(&["--runs", &runs]))?;
    gaio::run(&mut with(&["--runs", &runs]))?;
    plot::panels("overview", &[echo, idle, files])?;
    println!("the plot is {}", table::directory()?.join("overview.svg").display());
    Ok(())
}
