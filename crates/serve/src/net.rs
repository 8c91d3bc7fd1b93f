//! Networks of peers, and proxies in front of a server.

pub use crate::words::networks::Networks;
pub use crate::words::proxy::Proxy;
