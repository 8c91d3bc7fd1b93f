//! The words of the crate: values without rules of their own.

pub(crate) mod balance;
pub(crate) mod cause;
pub(crate) mod config;
pub(crate) mod counters;
pub(crate) mod event;
pub(crate) mod id;
pub(crate) mod job;
pub(crate) mod limits;
pub(crate) mod networks;
pub(crate) mod op;
pub(crate) mod proxy;
pub(crate) mod refused;
