//! The limit on files: the raw loop on epoll, httparse over each request, and a table of open
//! files. A file leaves by send(2) and sendfile(2), or a small one by pread(2) and one send(2).
//!
//! It opens each file once and for ever, and heeds nothing of a request but its path.

#![allow(unsafe_code)]
//! # Safety
//!
//! Every pointer is to memory of this function that outlives the call, with its true length.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, RawFd};
use std::path::{Path, PathBuf};

use super::raw_epoll::run;

struct Opened {
    file: File,
    len: usize,
}

/// What a connection has not been sent of its answer: the end of its head, and a part of a file.
#[derive(Default)]
struct Owed {
    head: Vec<u8>,
    file: Option<(RawFd, usize, usize)>,
}

struct Files {
    root: PathBuf,
    opened: HashMap<String, Opened>,
    /// Files of at most so many bytes are read.
    most_read: usize,
    out: Vec<u8>,
}

/// Serves the files below `root`; those of at most `most_read` bytes are read, not sent by
/// sendfile(2).
pub fn serve(port: u16, root: &Path, most_read: usize) -> io::Result<()> {
    let (root, opened, out) = (root.to_path_buf(), HashMap::new(), Vec::new());
    let mut files = Files { root, opened, most_read, out };
    // By descriptor.
    let mut owed: Vec<Owed> = Vec::new();
    run(port, |fd, part, space| {
        if owed.len() <= fd as usize {
            owed.resize_with(fd as usize + 1, Owed::default);
        }
        let goes_on = files.go_on(fd, part, &mut owed[fd as usize], space);
        if !goes_on {
            owed[fd as usize] = Owed::default();
        }
        goes_on
    })
}

fn would_block() -> bool {
    io::Error::last_os_error().kind() == io::ErrorKind::WouldBlock
}

impl Files {
    /// False when the connection has ended. `part` is the start of a request.
    fn go_on(&mut self, fd: RawFd, part: &mut Vec<u8>, owed: &mut Owed, space: &mut [u8]) -> bool {
        if !owed.send(fd) {
            return would_block();
        }
        let kept = part.len();
        let Some((start, free)) = space.split_at_mut_checked(kept) else { return false };
        start.copy_from_slice(part);
        // SAFETY: see the file's header.
        let count = unsafe { libc::recv(fd, free.as_mut_ptr().cast(), free.len(), 0) };
        if count <= 0 {
            return count < 0 && would_block();
        }
        let bytes = &space[..kept + count as usize];
        part.clear();
        let mut fields = [const { MaybeUninit::uninit() }; 64];
        let mut request = httparse::Request::new(&mut []);
        match request.parse_with_uninit_headers(bytes, &mut fields) {
            Ok(httparse::Status::Partial) => {
                part.extend_from_slice(bytes);
                return true;
            }
            // A client sends its next request when its answer is whole.
            Ok(httparse::Status::Complete(len)) if len == bytes.len() => {}
            _ => return false,
        }
        let Ok(()) = self.begin(fd, request.path.unwrap_or("/"), owed) else { return false };
        owed.send(fd) || would_block()
    }

    /// Begins an answer; a small file is sent whole if the socket takes it.
    fn begin(&mut self, fd: RawFd, path: &str, owed: &mut Owed) -> io::Result<()> {
        if !self.opened.contains_key(path) {
            let file = File::open(self.root.join(path.trim_start_matches('/')))?;
            let len = file.metadata()?.len() as usize;
            self.opened.insert(path.to_owned(), Opened { file, len });
        }
        let Opened { file, len } = &self.opened[path];
        let (file, len) = (file.as_raw_fd(), *len);
        self.out.clear();
        write!(
            self.out,
            "HTTP/1.1 200 OK\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
             Content-Type: text/plain\r\nContent-Length: {len}\r\n\
             Last-Modified: Sat, 05 Nov 1994 08:49:37 GMT\r\nETag: \"5f2b6c1e-1000\"\r\n\
             Accept-Ranges: bytes\r\n\r\n"
        )?;
        if len <= self.most_read {
            let end = self.out.len();
            self.out.resize(end + len, 0);
            // SAFETY: see the file's header.
            let read = unsafe { libc::pread(file, self.out[end..].as_mut_ptr().cast(), len, 0) };
            if read != len as isize {
                return Err(io::Error::other("the file is shorter"));
            }
        }
        let flags = if len <= self.most_read {
            libc::MSG_NOSIGNAL
        } else {
            libc::MSG_NOSIGNAL | libc::MSG_MORE
        };
        // SAFETY: see the file's header.
        let sent = unsafe { libc::send(fd, self.out.as_ptr().cast(), self.out.len(), flags) };
        if sent < 0 && !would_block() {
            return Err(io::Error::last_os_error());
        }
        owed.head.extend_from_slice(&self.out[sent.max(0) as usize..]);
        owed.file = (len > self.most_read).then_some((file, 0, len));
        Ok(())
    }
}

impl Owed {
    /// Sends what it can; false when something is left.
    fn send(&mut self, fd: RawFd) -> bool {
        while !self.head.is_empty() {
            let flags = libc::MSG_NOSIGNAL | if self.file.is_some() { libc::MSG_MORE } else { 0 };
            // SAFETY: see the file's header.
            let sent = unsafe { libc::send(fd, self.head.as_ptr().cast(), self.head.len(), flags) };
            if sent < 0 {
                return false;
            }
            self.head.drain(..sent as usize);
        }
        while let Some((file, at, end)) = self.file {
            let mut offset = at as libc::off_t;
            // SAFETY: see the file's header.
            let sent = unsafe { libc::sendfile(fd, file, &mut offset, end - at) };
            if sent <= 0 {
                return false;
            }
            let at = at + sent as usize;
            self.file = (at < end).then_some((file, at, end));
        }
        true
    }
}
