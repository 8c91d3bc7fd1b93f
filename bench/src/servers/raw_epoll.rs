//! The limit on epoll: one registration per connection, edge-triggered, recv(2), send(2), nothing
//! else. The server keeps bytes that a send does not take.

#![allow(unsafe_code)]
//! # Safety
//!
//! Every pointer is to memory of this function that outlives the call, with its true length.

use std::io;
use std::os::fd::{AsRawFd, RawFd};

const LISTENER: u64 = u64::MAX;

pub fn check(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

pub fn add(epoll: RawFd, fd: RawFd, events: i32, key: u64) -> io::Result<()> {
    let mut event = libc::epoll_event { events: events as u32, u64: key };
    // SAFETY: see the file's header.
    check(unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, fd, &mut event) }).map(drop)
}

/// How many events there are; none if a debugger has interrupted the wait.
pub fn wait(epoll: RawFd, events: &mut [libc::epoll_event]) -> io::Result<usize> {
    // SAFETY: see the file's header.
    match check(unsafe { libc::epoll_wait(epoll, events.as_mut_ptr(), events.len() as i32, -1) }) {
        Ok(count) => Ok(count as usize),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(0),
        Err(error) => Err(error),
    }
}

pub fn serve(port: u16) -> io::Result<()> {
    run(port, go_on)
}

/// Serves connections with `go_on`, which gets a descriptor, the bytes that it has not taken, and
/// space for a read. It returns whether the connection goes on.
pub(super) fn run(
    port: u16,
    mut go_on: impl FnMut(RawFd, &mut Vec<u8>, &mut [u8]) -> bool,
) -> io::Result<()> {
    let listener = super::listen(port)?;
    listener.set_nonblocking(true)?;
    // SAFETY: no memory is involved.
    let epoll = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
    add(epoll, listener.as_raw_fd(), libc::EPOLLIN, LISTENER)?;
    // Bytes that a connection has not taken, by descriptor.
    let mut unsent: Vec<Vec<u8>> = Vec::new();
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; 1024];
    let mut space = vec![0_u8; 64 << 10];
    loop {
        let count = wait(epoll, &mut events)?;
        for event in &events[..count] {
            let key = event.u64;
            if key == LISTENER {
                accept_all(epoll, listener.as_raw_fd(), &mut unsent)?;
            } else if !go_on(key as RawFd, &mut unsent[key as usize], &mut space) {
                unsent[key as usize].clear();
                // SAFETY: the descriptor is a connection that nothing else uses.
                check(unsafe { libc::close(key as RawFd) })?;
            }
        }
    }
}

fn accept_all(epoll: RawFd, listener: RawFd, unsent: &mut Vec<Vec<u8>>) -> io::Result<()> {
    loop {
        let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: null pointers ask for no address.
        let fd =
            unsafe { libc::accept4(listener, std::ptr::null_mut(), std::ptr::null_mut(), flags) };
        if fd < 0 {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::WouldBlock { Ok(()) } else { Err(error) };
        }
        let on = 1_i32;
        // SAFETY: the option's value is an int that lives here.
        check(unsafe {
            libc::setsockopt(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, (&raw const on).cast(), 4)
        })?;
        if unsent.len() <= fd as usize {
            unsent.resize(fd as usize + 1, Vec::new());
        }
        add(epoll, fd, libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLET, fd as u64)?;
    }
}

/// False when the connection has ended.
fn go_on(fd: RawFd, unsent: &mut Vec<u8>, space: &mut [u8]) -> bool {
    let would_block = || io::Error::last_os_error().kind() == io::ErrorKind::WouldBlock;
    let send = |bytes: &[u8]| {
        // SAFETY: see the file's header.
        unsafe { libc::send(fd, bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL) }
    };
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
        // SAFETY: see the file's header.
        let count = unsafe { libc::recv(fd, space.as_mut_ptr().cast(), space.len(), 0) };
        if count <= 0 {
            return count < 0 && would_block();
        }
        let data = &space[..count as usize];
        match send(data) {
            sent if sent >= 0 => unsent.extend_from_slice(&data[sent as usize..]),
            _ if would_block() => unsent.extend_from_slice(data),
            _ => return false,
        }
        if unsent.is_empty() && data.len() < space.len() {
            return true; // a short read: nothing is left until the next edge
        }
    }
}
