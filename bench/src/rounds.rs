//! Interleaved runs: each run measures every server once.

use std::io;

use crate::stats::{Estimate, estimate};

/// The measurements of one server in one case: one value per run.
#[derive(Clone, Debug)]
pub struct Column {
    pub server: String,
    pub values: Vec<f64>,
}

impl Column {
    /// The ratio to `base`, made within each run.
    pub fn ratio(&self, base: &Column) -> Estimate {
        let ratios: Vec<f64> = self.values.iter().zip(&base.values).map(|(a, b)| a / b).collect();
        estimate(&ratios)
    }
}

/// Measures `N` values of every server in every run; the order of the servers turns with the run,
/// so that none always follows the same other.
pub fn interleaved<const N: usize>(
    servers: &[String],
    runs: usize,
    mut measure: impl FnMut(&str) -> io::Result<[f64; N]>,
) -> io::Result<[Vec<Column>; N]> {
    let empty =
        || servers.iter().map(|s| Column { server: s.clone(), values: Vec::new() }).collect();
    let mut columns: [Vec<Column>; N] = std::array::from_fn(|_| empty());
    for run in 0..runs {
        for turn in 0..servers.len() {
            let which = (turn + run) % servers.len();
            let values = measure(&servers[which])?;
            for (column, value) in columns.iter_mut().zip(values) {
                column[which].values.push(value);
            }
        }
    }
    Ok(columns)
}
