//! The vocabulary of the crate: values that every other module names.

pub(crate) mod address;
pub(crate) mod clock;
pub(crate) mod error;
pub(crate) mod explain;
pub(crate) mod message;
pub(crate) mod source;
pub(crate) mod table;
pub(crate) mod wake_state;
