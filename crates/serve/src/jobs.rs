//! Blocking code beside the loop: see [`Conn::execute`](crate::Conn::execute).

pub use crate::handles::job::Job;
pub use crate::words::job::JobError;
