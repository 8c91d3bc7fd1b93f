//! Budgets, charges, deadlines, idle times and clocks.
#![allow(missing_docs, unreachable_pub)] // a test binary has no users

mod budget;
mod charges;
mod clock;
#[path = "../common/mod.rs"]
mod common;
mod deadlines;
mod idle;
mod limit;
mod slow_callbacks;
