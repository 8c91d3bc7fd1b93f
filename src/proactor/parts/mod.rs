//! The parts of a proactor: each is a struct with rules of its own.

pub(in crate::proactor) mod files;
pub(in crate::proactor) mod inbox;
pub(in crate::proactor) mod kernel_ops;
pub(in crate::proactor) mod memory;
pub(in crate::proactor) mod operations;
pub(in crate::proactor) mod outbox;
pub(in crate::proactor) mod report;
pub(in crate::proactor) mod sched;
pub(in crate::proactor) mod sources;
pub(in crate::proactor) mod state;
pub(in crate::proactor) mod time;
