//! A descriptor that other threads make readable: a datagram socket on the loopback interface that
//! is connected to itself, so that no other socket can send to it.

use std::io;
use std::net::UdpSocket;

use crate::sys::fd::{AsRawFd, RawFd};
use crate::sys::waker::Signal;

pub(crate) struct WakeFd(UdpSocket);

impl WakeFd {
    pub(crate) fn new() -> io::Result<WakeFd> {
        // std's sockets are not inherited.
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        socket.connect(socket.local_addr()?)?;
        socket.set_nonblocking(true)?;
        Ok(WakeFd(socket))
    }

    /// Makes it unreadable.
    pub(crate) fn drain(&self) {
        while self.0.recv(&mut [0; 8]).is_ok() {}
    }

    pub(crate) fn raw(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl Signal for WakeFd {
    /// What does not fit any more finds it readable.
    fn signal(&self) {
        let _ = self.0.send(&[1]);
    }
}
