//! The limit on WebSocket: the raw loop on epoll, which answers each handshake with the same 101,
//! takes the mask off each frame, and sends it back with another head. All echoes to a read leave
//! as one write.
//!
//! It heeds no rule of the protocol, and expects whole messages in one frame.

#![allow(unsafe_code)]
//! # Safety
//!
//! Every pointer is to memory of this function that outlives the call, with its true length.

use std::io;
use std::os::fd::RawFd;

use super::raw_epoll::run;
use crate::websocket_load::ACCEPT;

/// A connection: the start of what has not come whole.
#[derive(Default)]
struct Connection {
    part: Vec<u8>,
    is_open: bool,
}

pub fn serve(port: u16) -> io::Result<()> {
    let mut connections: Vec<Connection> = Vec::new();
    let mut out = Vec::new();
    run(port, |fd, unsent, space| {
        if connections.len() <= fd as usize {
            connections.resize_with(fd as usize + 1, Connection::default);
        }
        let connection = &mut connections[fd as usize];
        let goes_on = go_on(fd, connection, unsent, space, &mut out);
        if !goes_on {
            *connection = Connection::default();
        }
        goes_on
    })
}

/// The 101 that the clients of this suite expect.
pub(super) fn switch() -> String {
    format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: {ACCEPT}\r\n\r\n"
    )
}

/// False when the connection has ended.
fn go_on(
    fd: RawFd,
    connection: &mut Connection,
    unsent: &mut Vec<u8>,
    space: &mut [u8],
    out: &mut Vec<u8>,
) -> bool {
    let would_block = || io::Error::last_os_error().kind() == io::ErrorKind::WouldBlock;
    let send = |bytes: &[u8]| {
        // SAFETY: see the file's header.
        unsafe { libc::send(fd, bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL) }
    };
    loop {
        while !unsent.is_empty() {
            match send(unsent) {
                sent if sent >= 0 => drop(unsent.drain(..sent as usize)),
                _ => return would_block(),
            }
        }
        // SAFETY: see the file's header.
        let count = unsafe { libc::recv(fd, space.as_mut_ptr().cast(), space.len(), 0) };
        if count <= 0 {
            return count < 0 && would_block();
        }
        let came = &mut space[..count as usize];
        let was_short = came.len() < 64 << 10;
        let part = &mut connection.part;
        out.clear();
        if !connection.is_open {
            part.extend_from_slice(came);
            if part.ends_with(b"\r\n\r\n") {
                connection.is_open = true;
                part.clear();
                out.extend_from_slice(switch().as_bytes());
            }
        } else if part.is_empty() {
            let used = echo(came, out);
            part.extend_from_slice(&came[used..]);
        } else {
            part.extend_from_slice(came);
            let used = echo(part, out);
            part.drain(..used);
        }
        match send(out) {
            sent if sent >= 0 => unsent.extend_from_slice(&out[sent as usize..]),
            _ if would_block() => unsent.extend_from_slice(out),
            _ => return false,
        }
        if unsent.is_empty() && was_short {
            return true; // a short read: nothing is left until the next edge
        }
    }
}

/// Appends an echo of each whole frame, and returns where they end.
fn echo(bytes: &mut [u8], out: &mut Vec<u8>) -> usize {
    let mut used = 0;
    while let [first, second, rest @ ..] = &mut bytes[used..] {
        let (len, extra) = match *second & 0x7f {
            126 if rest.len() >= 2 => (usize::from(u16::from_be_bytes([rest[0], rest[1]])), 2),
            127 if rest.len() >= 8 => {
                let len: [u8; 8] = rest[..8].try_into().expect("eight bytes");
                (u64::from_be_bytes(len) as usize, 8)
            }
            126 | 127 => break,
            len => (usize::from(len), 0),
        };
        let Some(frame) = rest.get_mut(extra..extra + 4 + len) else { break };
        let (key, payload) = frame.split_at_mut(4);
        let key: [u8; 4] = (&*key).try_into().expect("four bytes");
        unmask(key, payload);
        out.extend_from_slice(&[*first, *second & 0x7f]);
        out.extend_from_slice(&rest[..extra]);
        out.extend_from_slice(&rest[extra + 4..extra + 4 + len]);
        used += 2 + extra + 4 + len;
    }
    used
}

fn unmask(key: [u8; 4], payload: &mut [u8]) {
    let wide = u64::from_ne_bytes([key[0], key[1], key[2], key[3], key[0], key[1], key[2], key[3]]);
    let mut eights = payload.chunks_exact_mut(8);
    for eight in &mut eights {
        let bytes: [u8; 8] = (&*eight).try_into().expect("eight bytes");
        eight.copy_from_slice(&(u64::from_ne_bytes(bytes) ^ wide).to_ne_bytes());
    }
    for (byte, key) in eights.into_remainder().iter_mut().zip(key.iter().cycle()) {
        *byte ^= key;
    }
}
