//! What Windows has instead: the functions that are called, and what has no counterpart elsewhere.
//! Its other files stand for modules of `sys`, which chooses them.

pub(crate) mod api;
pub(crate) mod mirror;
