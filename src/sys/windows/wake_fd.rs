//! A descriptor that other threads make readable: a datagram socket on the loopback interface that
//! is connected to itself, so that no other socket can send to it.

use std::io;
use std::net::UdpSocket;

use crate::sys::fd::{AsRawFd, RawFd};
use crate::sys::waker::Wake;

pub(crate) struct WakeFd(UdpSocket);

impl WakeFd {
    pub(crate) fn new() -> io::Result<WakeFd> {
        // std's sockets are not inherited.
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        socket.connect(socket.local_addr()?)?;
        socket.set_nonblocking(true)?;
        Ok(WakeFd(socket))
    }

    /// Makes the descriptor unreadable.
    pub(crate) fn drain(&self) {
        while self.0.recv(&mut [0; 8]).is_ok() {}
    }

    pub(crate) fn raw(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl Wake for WakeFd {
    /// A full socket is readable already. Other `WSAEWOULDBLOCK`s are wine's, which refuses a
    /// datagram while another thread's is on its way; that one may have ended an earlier wait.
    fn wake(&self) {
        let would_block = |result: io::Result<usize>| {
            result.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
        };
        while would_block(self.0.send(&[1])) && would_block(self.0.peek(&mut [0; 8])) {
            std::thread::yield_now();
        }
    }
}
