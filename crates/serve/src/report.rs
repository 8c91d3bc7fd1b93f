//! What a server has done, in figures, and what it could not finish.

pub use crate::server::{Report, Unfinished};
pub use crate::words::counters::{Counters, Ends, OpEnds, TlsHandshakes};
pub use crate::words::job::Jobs;
