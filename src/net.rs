//! How sockets are made, names of hosts, and descriptors that travel over sockets.
//!
//! [`Address`](crate::Address) is at the root: every program with sockets uses it.

pub use crate::address::Descriptors;
pub use crate::endpoint::{ConnectOptions, DatagramOptions, ListenOptions};
pub use crate::file::HostName;
pub use crate::source::VirtualDescriptor;
pub use crate::sys::socket_option::{Keepalive, SocketOption};
