//! The limit of TLS: the loop of `raw_epoll` with rustls between recv(2) and send(2).
//!
//! It makes the copies that rustls 0.23 asks for, and no other: into its record buffer, out of its
//! reader, and into one vector of ciphertext, which is sent at once.

#![allow(unsafe_code)]
//! # Safety
//!
//! Every pointer is to memory of this function that outlives the call, with its true length.

use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use rustls::{ServerConfig, ServerConnection};

use super::raw_epoll::{add, check};

const LISTENER: u64 = u64::MAX;

struct Connection {
    tls: ServerConnection,
    /// Ciphertext that the socket has not taken.
    unsent: Vec<u8>,
}

/// Memory that all connections use.
struct Space {
    input: Vec<u8>,
    plain: Vec<u8>,
    output: Vec<u8>,
}

pub fn serve(port: u16, config: Arc<ServerConfig>) -> io::Result<()> {
    let listener = super::listen(port)?;
    listener.set_nonblocking(true)?;
    // SAFETY: no memory is involved.
    let epoll = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
    add(epoll, listener.as_raw_fd(), libc::EPOLLIN, LISTENER)?;
    // By descriptor.
    let mut connections: Vec<Option<Box<Connection>>> = Vec::new();
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; 1024];
    let size = 64 << 10;
    let mut space = Space { input: vec![0; size], plain: vec![0; size], output: Vec::new() };
    loop {
        // SAFETY: see the file's header.
        let count = check(unsafe {
            libc::epoll_wait(epoll, events.as_mut_ptr(), events.len() as i32, -1)
        })?;
        for event in &events[..count as usize] {
            let key = event.u64;
            if key == LISTENER {
                accept_all(epoll, listener.as_raw_fd(), &mut connections, &config)?;
                continue;
            }
            let slot = &mut connections[key as usize];
            let Some(connection) = slot else { continue };
            if !go_on(key as RawFd, connection, &mut space) {
                *slot = None;
                // SAFETY: the descriptor is a connection that nothing else uses.
                check(unsafe { libc::close(key as RawFd) })?;
            }
        }
    }
}

fn accept_all(
    epoll: RawFd,
    listener: RawFd,
    connections: &mut Vec<Option<Box<Connection>>>,
    config: &Arc<ServerConfig>,
) -> io::Result<()> {
    loop {
        let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: null pointers ask for no address.
        let fd =
            unsafe { libc::accept4(listener, std::ptr::null_mut(), std::ptr::null_mut(), flags) };
        if fd < 0 {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::WouldBlock { Ok(()) } else { Err(error) };
        }
        let mut tls = ServerConnection::new(Arc::clone(config)).map_err(io::Error::other)?;
        tls.set_buffer_limit(None);
        if connections.len() <= fd as usize {
            connections.resize_with(fd as usize + 1, || None);
        }
        connections[fd as usize] = Some(Box::new(Connection { tls, unsent: Vec::new() }));
        add(epoll, fd, libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLET, fd as u64)?;
    }
}

/// False when the connection has ended.
fn go_on(fd: RawFd, connection: &mut Connection, space: &mut Space) -> bool {
    let would_block = || io::Error::last_os_error().kind() == io::ErrorKind::WouldBlock;
    let send = |bytes: &[u8]| {
        // SAFETY: see the file's header.
        unsafe { libc::send(fd, bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL) }
    };
    let Connection { tls, unsent } = connection;
    loop {
        if !unsent.is_empty() {
            match send(unsent) {
                sent if sent >= 0 => drop(unsent.drain(..sent as usize)),
                _ => return would_block(),
            }
            if !unsent.is_empty() {
                continue;
            }
        }
        let room = &mut space.input;
        // SAFETY: see the file's header.
        let count = unsafe { libc::recv(fd, room.as_mut_ptr().cast(), room.len(), 0) };
        if count <= 0 {
            return count < 0 && would_block();
        }
        let has_more = count as usize == room.len();
        let mut input = &space.input[..count as usize];
        while !input.is_empty() {
            let read = tls.read_tls(&mut input);
            let state = read.map_err(drop).and_then(|_| tls.process_new_packets().map_err(drop));
            while let Ok(count @ 1..) = tls.reader().read(&mut space.plain) {
                if tls.writer().write_all(&space.plain[..count]).is_err() {
                    return false;
                }
            }
            match state {
                Ok(state) if state.peer_has_closed() => tls.send_close_notify(),
                Ok(_) => {}
                Err(()) => return false,
            }
        }
        space.output.clear();
        while tls.wants_write() {
            if tls.write_tls(&mut space.output).is_err() {
                return false;
            }
        }
        if space.output.is_empty() {
            return true;
        }
        match send(&space.output) {
            sent if sent >= 0 => unsent.extend_from_slice(&space.output[sent as usize..]),
            _ if would_block() => unsent.extend_from_slice(&space.output),
            _ => return false,
        }
        if unsent.is_empty() && !has_more {
            return true; // a short read: nothing is left until the next edge
        }
    }
}
