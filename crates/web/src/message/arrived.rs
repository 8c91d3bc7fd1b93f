//! A request as the connection has it: offsets, and the bytes that they are in.

use std::net::SocketAddr;

use windlass_http1::RequestHead;
use windlass_serve::Id;

/// A request whose head has come.
#[derive(Clone, Copy)]
pub(crate) struct Arrived<'a> {
    pub(crate) head: &'a RequestHead,
    /// The bytes that the head has offsets into.
    pub(crate) bytes: &'a [u8],
    pub(crate) from: From,
}

/// Where a request comes from.
#[derive(Clone, Copy)]
pub(crate) struct From {
    pub(crate) id: Id,
    /// The address of the peer, if it has an internet address.
    pub(crate) peer: Option<SocketAddr>,
    pub(crate) is_tls: bool,
}
