//! The limit on HTTP: the raw loop on epoll, httparse over each request with all its fields, and a
//! fixed answer. All answers to a read leave as one write.
//!
//! It heeds nothing of a request, has no current date, and serves requests without a body only.

#![allow(unsafe_code)]
//! # Safety
//!
//! Every pointer is to memory of this function that outlives the call, with its true length.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::RawFd;

use super::raw_epoll::run;

/// As many bytes as windlass-web answers with.
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\n\
    Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
    Content-Type: text/plain; charset=utf-8\r\n\
    Content-Length: 13\r\n\
    \r\n\
    Hello, World!";

pub fn serve(port: u16) -> io::Result<()> {
    // Starts of requests, by descriptor.
    let mut parts: Vec<Vec<u8>> = Vec::new();
    let mut out = Vec::new();
    run(port, |fd, unsent, space| {
        if parts.len() <= fd as usize {
            parts.resize(fd as usize + 1, Vec::new());
        }
        let part = &mut parts[fd as usize];
        let goes_on = go_on(fd, part, unsent, space, &mut out);
        if !goes_on {
            part.clear();
        }
        goes_on
    })
}

/// False when the connection has ended.
fn go_on(
    fd: RawFd,
    part: &mut Vec<u8>,
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
        let kept = part.len();
        let Some((start, free)) = space.split_at_mut_checked(kept) else { return false };
        start.copy_from_slice(part);
        // SAFETY: see the file's header.
        let count = unsafe { libc::recv(fd, free.as_mut_ptr().cast(), free.len(), 0) };
        if count <= 0 {
            return count < 0 && would_block();
        }
        let filled = kept + count as usize;
        out.clear();
        let Ok(used) = answer(&space[..filled], out) else { return false };
        part.clear();
        part.extend_from_slice(&space[used..filled]);
        match send(out) {
            sent if sent >= 0 => unsent.extend_from_slice(&out[sent as usize..]),
            _ if would_block() => unsent.extend_from_slice(out),
            _ => return false,
        }
        if unsent.is_empty() && filled < space.len() {
            return true; // a short read: nothing is left until the next edge
        }
    }
}

/// Appends an answer for each whole request, and returns where they end.
fn answer(bytes: &[u8], out: &mut Vec<u8>) -> Result<usize, httparse::Error> {
    let mut used = 0;
    while used < bytes.len() {
        let mut fields = [const { MaybeUninit::uninit() }; 64];
        let mut request = httparse::Request::new(&mut []);
        match request.parse_with_uninit_headers(&bytes[used..], &mut fields)? {
            httparse::Status::Complete(len) => used += len,
            httparse::Status::Partial => break,
        }
        out.extend_from_slice(ANSWER);
    }
    Ok(used)
}
