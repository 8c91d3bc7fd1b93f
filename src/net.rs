//! How sockets are made, names of hosts, and descriptors that travel over sockets.
//!
//! [`Address`](crate::Address) is at the root: every program with sockets uses it.

pub use crate::driver::endpoint::{ConnectOptions, DatagramOptions, ListenOptions};
pub use crate::file::HostName;
pub use crate::sys::socket_option::{Keepalive, SocketOption};
pub use crate::words::address::Descriptors;
pub use crate::words::source::VirtualDescriptor;
