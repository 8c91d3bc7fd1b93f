//! A fast server that is not measured: the loop on epoll, httparse over each request, and the same
//! answer to all, of any length. It is the other side of clients and proxies.

#![allow(unsafe_code)]
//! # Safety
//!
//! Every pointer is to memory of this function that outlives the call, with its true length.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::RawFd;

use super::raw_epoll::run;
use crate::pattern;

/// With a body of 13 bytes, an answer of 160.
const SHORT: &str = "HTTP/1.1 200 OK\r\n\
    Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
    Server: fixed-answers/1.0 xy\r\n\
    Content-Type: text/plain; charset=utf-8\r\n";

/// With a body of 13 bytes, an answer of 419.
const LONG: &str = "HTTP/1.1 200 OK\r\n\
    Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
    Server: fixed-answers/1.0 x\r\n\
    Content-Type: text/plain; charset=utf-8\r\n\
    Cache-Control: private, max-age=0, must-revalidate\r\n\
    ETag: \"5f2b6c1e-d41d8cd98f00b204\"\r\n\
    Last-Modified: Sat, 05 Nov 1994 08:49:37 GMT\r\n\
    Vary: Accept-Encoding, Accept-Language\r\n\
    X-Request-Id: 0d6a2f3c-1f7e-4a57-9d0b-8d4ac5e1f20b93\r\n\
    X-Content-Type-Options: nosniff\r\n";

fn answer(kind: &str, body: usize) -> Vec<u8> {
    let head = if kind == "long" { LONG } else { SHORT };
    let mut answer = format!("{head}Content-Length: {body}\r\n\r\n").into_bytes();
    answer.extend_from_slice(&pattern::repeated(body));
    answer
}

/// What a connection has not been sent: answers, and where in the first of them it goes on.
#[derive(Clone, Copy, Default)]
struct Owed {
    answers: usize,
    at: usize,
}

/// Serves answers with a body of so many bytes, and with a short or a long head.
pub fn serve(port: u16, kind: &str, body: usize) -> io::Result<()> {
    let answer = answer(kind, body);
    // By descriptor.
    let mut owed: Vec<Owed> = Vec::new();
    run(port, |fd, part, space| {
        if owed.len() <= fd as usize {
            owed.resize(fd as usize + 1, Owed::default());
        }
        let goes_on = go_on(fd, part, &mut owed[fd as usize], &answer, space);
        if !goes_on {
            owed[fd as usize] = Owed::default();
        }
        goes_on
    })
}

/// False when the connection has ended. `part` is the start of a request.
fn go_on(fd: RawFd, part: &mut Vec<u8>, owed: &mut Owed, answer: &[u8], space: &mut [u8]) -> bool {
    let would_block = || io::Error::last_os_error().kind() == io::ErrorKind::WouldBlock;
    let mut is_short = false;
    loop {
        while owed.answers > 0 {
            let rest = &answer[owed.at..];
            // SAFETY: see the file's header.
            let sent =
                unsafe { libc::send(fd, rest.as_ptr().cast(), rest.len(), libc::MSG_NOSIGNAL) };
            if sent < 0 {
                return would_block();
            }
            owed.at += sent as usize;
            if owed.at == answer.len() {
                *owed = Owed { answers: owed.answers - 1, at: 0 };
            }
        }
        if is_short {
            return true; // nothing is left until the next edge
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
        let Ok((used, requests)) = requests(&space[..filled]) else { return false };
        part.clear();
        part.extend_from_slice(&space[used..filled]);
        owed.answers += requests;
        is_short = filled < space.len();
    }
}

/// Where the whole requests end, and how many they are.
fn requests(bytes: &[u8]) -> Result<(usize, usize), httparse::Error> {
    let (mut used, mut count) = (0, 0);
    while used < bytes.len() {
        let mut fields = [const { MaybeUninit::uninit() }; 64];
        let mut request = httparse::Request::new(&mut []);
        match request.parse_with_uninit_headers(&bytes[used..], &mut fields)? {
            httparse::Status::Complete(len) => used += len,
            httparse::Status::Partial => break,
        }
        count += 1;
    }
    Ok((used, count))
}

#[cfg(test)]
mod tests {
    use super::answer;

    #[test]
    fn answers_have_the_lengths_that_the_tables_say() {
        assert_eq!(answer("short", 13).len(), 160);
        assert_eq!(answer("long", 13).len(), 419);
    }
}
