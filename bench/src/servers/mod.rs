//! Echo servers, each in the way that its library's own examples show. `serve NAME PORT` starts
//! one.

mod compio;
mod mio;
mod monoio;
mod raw_epoll;
mod raw_uring;
mod tokio;
mod windlass;

use std::io;
use std::net::TcpListener;

use ::windlass::DriverKind;

use crate::arguments::{Arguments, invalid};

pub fn serve(arguments: &mut Arguments) -> io::Result<()> {
    let name: String = arguments.require("server")?;
    let port: u16 = arguments.require("port")?;
    arguments.end()?;
    match name.as_str() {
        "raw-epoll" => raw_epoll::serve(port),
        "raw-uring" => raw_uring::serve(port),
        "windlass" => windlass::serve(port, DriverKind::Auto),
        "windlass-uring" => windlass::serve(port, DriverKind::Uring),
        "mio" => mio::serve(port),
        "tokio" => tokio::serve(port),
        "compio" => compio::serve(port),
        "monoio" => monoio::serve(port),
        other => Err(invalid(format!("{other:?} is no server"))),
    }
}

/// A listener with a backlog that a storm of connections does not fill (std's is 128).
fn listen(port: u16) -> io::Result<TcpListener> {
    ::windlass::fd::raise_max_open_files()?;
    let listener = TcpListener::bind(("127.0.0.1", port))?;
    backlog(&listener, 4096)?;
    Ok(listener)
}

/// listen(2) once more changes the backlog.
#[allow(unsafe_code)]
fn backlog(listener: &TcpListener, count: i32) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    // SAFETY: the descriptor is open, and the call takes no memory.
    match unsafe { libc::listen(listener.as_raw_fd(), count) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
