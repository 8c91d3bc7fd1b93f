//! How listeners, datagram sockets and connections are made.

use std::time::{Duration, Instant};

#[cfg(doc)]
use crate::driver::Driver;
use crate::words::clock::Deadline;

/// How [`Driver::listen`] makes a listener.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ListenOptions {
    /// How many connections may wait to be accepted (the system caps it at `somaxconn`).
    pub backlog: u32,
    /// Lets several listeners share the address (`SO_REUSEPORT`).
    pub reuse_port: bool,
    /// Sets TCP_NODELAY on accepted sockets.
    pub nodelay: bool,
}

impl Default for ListenOptions {
    /// Backlog 4096, no sharing, TCP_NODELAY set.
    fn default() -> ListenOptions {
        ListenOptions { backlog: 4096, reuse_port: false, nodelay: true }
    }
}

impl ListenOptions {
    /// Sets [`backlog`](ListenOptions::backlog).
    pub fn backlog(mut self, backlog: u32) -> Self {
        self.backlog = backlog;
        self
    }

    /// Sets [`reuse_port`](ListenOptions::reuse_port).
    pub fn reuse_port(mut self, on: bool) -> Self {
        self.reuse_port = on;
        self
    }

    /// Sets [`nodelay`](ListenOptions::nodelay).
    pub fn nodelay(mut self, on: bool) -> Self {
        self.nodelay = on;
        self
    }
}

/// How [`Driver::bind_datagram`] makes a datagram socket.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct DatagramOptions {
    /// Lets several sockets share the address (`SO_REUSEPORT`). Linux and FreeBSD distribute the
    /// datagrams by their senders; other systems may give all of them to one socket. Windows
    /// refuses it with `Unsupported`. Default off.
    pub reuse_port: bool,
}

impl DatagramOptions {
    /// Sets [`reuse_port`](DatagramOptions::reuse_port).
    pub fn reuse_port(mut self, on: bool) -> Self {
        self.reuse_port = on;
        self
    }
}

/// How [`Driver::connect`] connects a source.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ConnectOptions {
    /// The token of the connect, and of the [source](crate::Watcher::set_token).
    pub token: u64,
    /// When the connect ends at the latest, at all addresses together.
    pub deadline: Option<Deadline>,
    /// How long an attempt has before the next address is tried beside it: at least 10 ms (less
    /// counts as 10 ms).
    pub attempt_delay: Duration,
    /// Sets TCP_NODELAY.
    pub nodelay: bool,
}

impl Default for ConnectOptions {
    /// Token 0, no deadline, 250 ms between attempts, TCP_NODELAY set.
    fn default() -> ConnectOptions {
        let attempt_delay = Duration::from_millis(250);
        ConnectOptions { token: 0, deadline: None, attempt_delay, nodelay: true }
    }
}

impl ConnectOptions {
    /// Sets [`token`](ConnectOptions::token).
    pub fn token(mut self, token: u64) -> Self {
        self.token = token;
        self
    }

    /// Sets the [`deadline`](ConnectOptions::deadline), counted from the call of `connect`.
    pub fn timeout(mut self, span: Duration) -> Self {
        self.deadline = Some(Deadline::After(span));
        self
    }

    /// Sets the [`deadline`](ConnectOptions::deadline).
    pub fn deadline(mut self, at: Instant) -> Self {
        self.deadline = Some(Deadline::At(at));
        self
    }

    /// Sets [`attempt_delay`](ConnectOptions::attempt_delay).
    pub fn attempt_delay(mut self, span: Duration) -> Self {
        self.attempt_delay = span;
        self
    }

    /// Sets [`nodelay`](ConnectOptions::nodelay).
    pub fn nodelay(mut self, on: bool) -> Self {
        self.nodelay = on;
        self
    }
}
