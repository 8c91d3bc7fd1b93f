//! Operations of the program on the watcher of an engine: see
//! [`Engine::submit`](crate::Engine::submit).

pub use crate::words::op::Completed;
