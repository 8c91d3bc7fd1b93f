//! Markdown tables, printed and kept.

use std::fmt::Write;
use std::path::PathBuf;
use std::{fs, io};

use crate::stats::Estimate;

pub fn directory() -> io::Result<PathBuf> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("results");
    fs::create_dir_all(&path)?;
    Ok(path)
}

/// A ratio as the tables show it: `1.02 (0.99–1.05)`.
pub fn ratio(of: Estimate) -> String {
    format!("{:.2} ({:.2}–{:.2})", of.median, of.low, of.high)
}

pub struct Table {
    text: String,
}

impl Table {
    pub fn new(title: &str, command: &str, columns: &[&str]) -> Table {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = writeln!(text, "### {title}\n\n`{command}` on {}\n", crate::machine::describe());
        let _ = writeln!(text, "| {} |", columns.join(" | "));
        let _ = writeln!(text, "|{}", "---|".repeat(columns.len()));
        Table { text }
    }

    pub fn row(&mut self, cells: &[String]) {
        let _ = writeln!(self.text, "| {} |", cells.join(" | "));
    }

    /// Prints the table and writes it to `results/NAME.md`.
    pub fn finish(self, name: &str) -> io::Result<()> {
        println!("{}", self.text);
        fs::write(directory()?.join(format!("{name}.md")), self.text)
    }
}
