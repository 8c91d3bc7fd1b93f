//! Options of sockets, as one vocabulary for watchers, drivers and kernels.

use std::io;
use std::time::Duration;

use crate::sys::fd::RawFd;
use crate::sys::net::{set_linger, set_option};
#[cfg(windows)]
use crate::sys::windows::api as c;
#[cfg(not(windows))]
use libc as c;

/// An option of a socket, for [`Watcher::set_option`](crate::Watcher::set_option).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SocketOption {
    /// `TCP_NODELAY`: a small write leaves at once, and does not wait for more bytes.
    Nodelay(bool),
    /// `SO_KEEPALIVE`, and when the probes are sent. `None` turns the probes off.
    Keepalive(Option<Keepalive>),
    /// `SO_LINGER`, in whole seconds, rounded up; at most 65,535 on Windows. With zero, the close
    /// resets the connection and drops the bytes that the peer has not acknowledged. With more,
    /// [`Op::close`](crate::Op::close) completes when the peer has acknowledged all bytes, or when
    /// the time is over; no other close waits. `None` is the system's default: the close returns
    /// at once, and the system goes on sending.
    Linger(Option<Duration>),
    /// `SO_RCVBUF`, in bytes: how much the system holds until the program reads it. The connections
    /// of a listener have the listener's size from their first packet on. Linux doubles the value,
    /// but first lowers it to `net.core.rmem_max`, without an error.
    RecvBuffer(u32),
    /// `SO_SNDBUF`, in bytes: how much output the system holds until the peer acknowledges it.
    /// Linux doubles the value, but first lowers it to `net.core.wmem_max`, without an error.
    SendBuffer(u32),
}

/// When TCP probes a silent peer, and when it gives the connection up.
///
/// The times are whole seconds, rounded up, at least one. When TCP gives the connection up, its
/// reads end with `ETIMEDOUT`. A time or a count out of the system's range is refused with
/// `EINVAL`.
///
/// ```
/// use std::time::Duration;
/// use windlass::net::Keepalive;
/// // After a minute three probes, ten seconds apart: a peer that is gone shows after 90 seconds.
/// let probes = Keepalive::new(Duration::from_secs(60)).interval(Duration::from_secs(10)).count(3);
/// assert_eq!(probes.count, Some(3));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Keepalive {
    /// How long the connection is silent before the first probe: `TCP_KEEPIDLE`, 1 to 32,767
    /// seconds on Linux.
    pub idle: Duration,
    /// The time from one probe without an answer to the next: `TCP_KEEPINTVL`, 1 to 32,767 seconds
    /// on Linux. `None` leaves it to the system.
    pub interval: Option<Duration>,
    /// After how many probes without an answer TCP gives the connection up: `TCP_KEEPCNT`, 1 to 127
    /// on Linux. `None` leaves it to the system.
    pub count: Option<u32>,
}

impl Keepalive {
    /// Probes after `idle`, with the interval and the count of the system.
    pub const fn new(idle: Duration) -> Keepalive {
        Keepalive { idle, interval: None, count: None }
    }

    /// Sets [`interval`](Keepalive::interval).
    pub const fn interval(mut self, span: Duration) -> Keepalive {
        self.interval = Some(span);
        self
    }

    /// Sets [`count`](Keepalive::count).
    pub const fn count(mut self, count: u32) -> Keepalive {
        self.count = Some(count);
        self
    }
}

/// How a listener is made.
#[derive(Clone, Copy)]
pub(crate) struct Listen {
    pub(crate) backlog: i32,
    pub(crate) reuse_port: bool,
    pub(crate) nodelay: bool,
}

/// How long a connection is silent before its first probe.
#[cfg(target_vendor = "apple")]
const KEEPIDLE: i32 = c::TCP_KEEPALIVE;
#[cfg(not(target_vendor = "apple"))]
const KEEPIDLE: i32 = c::TCP_KEEPIDLE;

impl SocketOption {
    /// Sets it on a socket.
    pub(crate) fn set(self, fd: RawFd) -> io::Result<()> {
        let of_socket = |name, value| set_option(fd, c::SOL_SOCKET, name, value);
        let of_tcp = |name, value| set_option(fd, c::IPPROTO_TCP, name, value);
        let number = |value: u32| i32::try_from(value).unwrap_or(i32::MAX);
        match self {
            SocketOption::Nodelay(on) => of_tcp(c::TCP_NODELAY, i32::from(on)),
            SocketOption::Keepalive(None) => of_socket(c::SO_KEEPALIVE, 0),
            SocketOption::Keepalive(Some(probes)) => {
                // First their times: if one is refused, the probes stay as they were.
                of_tcp(KEEPIDLE, seconds(probes.idle, 1))?;
                if let Some(interval) = probes.interval {
                    of_tcp(c::TCP_KEEPINTVL, seconds(interval, 1))?;
                }
                if let Some(count) = probes.count {
                    of_tcp(c::TCP_KEEPCNT, number(count))?;
                }
                of_socket(c::SO_KEEPALIVE, 1)
            }
            SocketOption::Linger(span) => set_linger(fd, span.map(|span| seconds(span, 0))),
            SocketOption::RecvBuffer(bytes) => of_socket(c::SO_RCVBUF, number(bytes)),
            SocketOption::SendBuffer(bytes) => of_socket(c::SO_SNDBUF, number(bytes)),
        }
    }
}

/// Whole seconds, rounded up, at least `least`.
fn seconds(span: Duration, least: i32) -> i32 {
    let up = span.as_secs().saturating_add(u64::from(span.subsec_nanos() > 0));
    i32::try_from(up).unwrap_or(i32::MAX).max(least)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_rounded_up_to_seconds() {
        for (span, least, expected) in [
            (Duration::ZERO, 0, 0),
            (Duration::ZERO, 1, 1),
            (Duration::from_nanos(1), 0, 1),
            (Duration::from_secs(7), 1, 7),
            (Duration::from_millis(7001), 1, 8),
            (Duration::MAX, 1, i32::MAX),
        ] {
            assert_eq!(seconds(span, least), expected, "{span:?}");
        }
    }
}
