//! How often things have happened in random programs, which prove nothing of what never happened.
#![allow(dead_code, unreachable_pub)] // each test binary uses its own part

use std::collections::BTreeMap;

use super::seeds::setting;

#[derive(Default)]
pub struct Counts(BTreeMap<String, u64>);

impl Counts {
    pub fn add(&mut self, what: impl Into<String>) {
        self.add_many(what, 1);
    }

    pub fn add_many(&mut self, what: impl Into<String>, count: u64) {
        *self.0.entry(what.into()).or_insert(0) += count;
    }

    pub fn join(&mut self, other: Counts) {
        for (what, count) in other.0 {
            self.add_many(what, count);
        }
    }

    /// Whether one of `wanted` has not happened.
    pub fn lacks<'a>(&self, wanted: impl IntoIterator<Item = &'a str>) -> bool {
        wanted.into_iter().any(|what| !self.0.contains_key(what))
    }

    /// Prints all, and demands that each of `wanted` has happened; unless `WINDLASS_PROGRAMS` asks
    /// for fewer programs than `least`.
    #[track_caller]
    pub fn expect<'a>(&self, least: u32, wanted: impl IntoIterator<Item = &'a str>) {
        for (what, count) in &self.0 {
            println!("{count:8}  {what}");
        }
        if setting::<u32>("WINDLASS_PROGRAMS").is_some_and(|programs| programs < least) {
            return;
        }
        for what in wanted {
            assert!(self.0.contains_key(what), "it never happened: {what}");
        }
    }
}
