//! Words of the crate's interface.

pub(crate) mod error;
pub(crate) mod limits;
pub(crate) mod report;
pub(crate) mod status;
