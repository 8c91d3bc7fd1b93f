//! The limit on clients: epoll, edge-triggered, recv(2) and send(2), and httparse over each
//! response. It heeds the status and the length of a response, and nothing else.

#![allow(unsafe_code)]
//! # Safety
//!
//! Every pointer is to memory of this function that outlives the call, with its true length.

use std::io;
use std::mem::MaybeUninit;
use std::net::TcpStream;
use std::os::fd::{AsRawFd, RawFd};

use super::PATH;
use crate::servers::raw_epoll::{add, check, wait};

struct Connection {
    socket: TcpStream,
    /// What has come of a response that is not whole.
    part: Vec<u8>,
}

pub fn run(port: u16, connections: usize) -> io::Result<()> {
    let request = format!("GET {PATH} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAccept: */*\r\n\r\n");
    // SAFETY: no memory is involved.
    let epoll = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
    let mut all = Vec::with_capacity(connections);
    for index in 0..connections {
        let socket = TcpStream::connect(("127.0.0.1", port))?;
        socket.set_nodelay(true)?;
        socket.set_nonblocking(true)?;
        add(epoll, socket.as_raw_fd(), libc::EPOLLIN | libc::EPOLLET, index as u64)?;
        all.push(Connection { socket, part: Vec::new() });
    }
    let mut space = vec![0_u8; 64 << 10];
    super::measured(connections, |count| requests(epoll, &mut all, &request, &mut space, count))
}

fn requests(
    epoll: RawFd,
    all: &mut [Connection],
    request: &str,
    space: &mut [u8],
    count: usize,
) -> io::Result<()> {
    let (mut begun, mut ended) = (0, 0);
    for connection in all.iter().take(count) {
        send(connection, request)?;
        begun += 1;
    }
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; 1024];
    while ended < count {
        let ready = wait(epoll, &mut events)?;
        for event in &events[..ready] {
            let connection = &mut all[event.u64 as usize];
            if !receive(connection, space)? {
                continue;
            }
            ended += 1;
            if begun < count {
                send(connection, request)?;
                begun += 1;
            }
        }
    }
    Ok(())
}

/// The socket of a client with one request takes it whole.
fn send(connection: &Connection, request: &str) -> io::Result<()> {
    let (fd, flags) = (connection.socket.as_raw_fd(), libc::MSG_NOSIGNAL);
    // SAFETY: see the file's header.
    let sent = unsafe { libc::send(fd, request.as_ptr().cast(), request.len(), flags) };
    if sent == request.len() as isize { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Reads once; true when the response is whole. Another edge comes when more has come.
fn receive(connection: &mut Connection, space: &mut [u8]) -> io::Result<bool> {
    let kept = connection.part.len();
    space[..kept].copy_from_slice(&connection.part);
    let (fd, free) = (connection.socket.as_raw_fd(), &mut space[kept..]);
    // SAFETY: see the file's header.
    let read = unsafe { libc::recv(fd, free.as_mut_ptr().cast(), free.len(), 0) };
    match read {
        0 => return Err(io::ErrorKind::UnexpectedEof.into()),
        read if read < 0 => {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::WouldBlock { Ok(false) } else { Err(error) };
        }
        _ => {}
    }
    let bytes = &space[..kept + read as usize];
    connection.part.clear();
    match length(bytes)? {
        Some(len) if len == bytes.len() => Ok(true),
        Some(len) if len < bytes.len() => Err(io::Error::other("bytes after a response")),
        _ => {
            connection.part.extend_from_slice(bytes);
            Ok(false)
        }
    }
}

/// How long a response is that begins with these bytes, when its head is whole.
fn length(bytes: &[u8]) -> io::Result<Option<usize>> {
    let mut fields = [const { MaybeUninit::uninit() }; 64];
    let mut response = httparse::Response::new(&mut []);
    let config = httparse::ParserConfig::default();
    let parsed = config
        .parse_response_with_uninit_headers(&mut response, bytes, &mut fields)
        .map_err(io::Error::other)?;
    let httparse::Status::Complete(head) = parsed else { return Ok(None) };
    let field = response.headers.iter().find(|f| f.name.eq_ignore_ascii_case("content-length"));
    let body = field.and_then(|field| std::str::from_utf8(field.value).ok()?.parse::<usize>().ok());
    match (response.code, body) {
        (Some(200), Some(body)) => Ok(Some(head + body)),
        (code, body) => Err(io::Error::other(format!("status {code:?}, length {body:?}"))),
    }
}
