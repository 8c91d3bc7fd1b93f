//! The modules of `sys` on Windows, and functions without a counterpart elsewhere.
//! Its other files stand for modules of `sys`, which chooses them.

pub(crate) mod api;
