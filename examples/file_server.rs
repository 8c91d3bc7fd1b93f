//! An HTTP server for the files below a directory: GET and HEAD, ranges, kept connections.
//!
//! ```text
//! cargo run --release --example file_server -- DIR [--port N] [--files auto|aio|pool|uring]
//!     [--direct] [--threads N] [--block BYTES]
//! ```
//!
//! The server reads a body in blocks of 64 KiB, one block ahead of the writes. So a connection
//! holds at most two buffers. `--direct` bypasses the page cache. `--block` is a benchmark: each
//! GET returns that many bytes from a random offset of the file.
//!
//! The server keeps a file open for a second, so that many requests for it open it once. Before it
//! opens a path, it resolves symbolic links, and refuses a path outside of DIR. (It trusts other
//! programs not to change the directory between these two steps.) On SIGINT and SIGTERM it sends
//! the last answers, and ends.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use httparse::Status;
use windlass::fs::{FileBackend, FileKind, OpenOptions};
use windlass::{
    AlignedBuf, Buf, Completion, Completions, Done, DriverKind, Handle, Op, Source, SourceGuard,
    Watcher,
};

mod common;
#[path = "common/request.rs"]
mod request;

use request::{Request, Shape, parse, range};

/// Bytes of a block: the most that is read at a time.
const BLOCK: u64 = 64 << 10;
/// What direct I/O is aligned to.
const PAGE: u64 = 4096;
/// Unused buffers that are kept.
const SPARE: usize = 256;
/// The most open files, and how long each one is used without a new look-up.
const MOST_FILES: usize = 64;
const FRESH: Duration = Duration::from_secs(1);
/// The most time that a connection may be idle, a head may take to arrive, a block to leave, and a
/// client to close.
const IDLE: Duration = Duration::from_secs(30);
const SLOW_HEAD: Duration = Duration::from_secs(10);
const SLOW_BLOCK: Duration = Duration::from_secs(20);
const LEAVING: Duration = Duration::from_secs(2);
/// The most time for answers in flight after the server is told to end.
const STOPPING: Duration = Duration::from_secs(5);

/// Tokens. The token of a client is its number.
const ACCEPT: u64 = 0;
const SWEEP: u64 = 1;
const FIRST_CLIENT: u64 = 2;

fn main() -> io::Result<()> {
    let mut options = common::Options::new(
        "file_server DIR [--port N] [--files auto|aio|pool|uring] [--direct] [--threads N] \
         [--block BYTES]",
    );
    let port: u16 = options.take("--port").unwrap_or(7080);
    let files: FileBackend = options.take("--files").unwrap_or_default();
    let mut builder =
        Watcher::builder().file_backend(files).threads(options.take("--threads").unwrap_or(4));
    if files == FileBackend::Uring {
        builder = builder.driver(DriverKind::Uring);
    }
    let (direct, block) = (options.flag("--direct"), options.take("--block"));
    let root = Path::new(&options.word()).canonicalize()?;
    options.end();

    let mut watcher = builder.build()?;
    let listener = common::listen(&mut watcher, ([127, 0, 0, 1], port))?;
    println!("listening on {}", watcher.local_address(listener)?);
    common::signals(&mut watcher)?;
    watcher.submit(Op::accept(listener).multishot().token(ACCEPT))?;
    let (clients, files, bufs) = (HashMap::new(), HashMap::new(), Vec::new());
    let (number, stop_by) = (FIRST_CLIENT, None);
    let room = block.map_or(BLOCK, |block: u64| block.next_multiple_of(PAGE).clamp(PAGE, BLOCK));
    Server { watcher, listener, root, direct, block, room, clients, number, files, bufs, stop_by }
        .run()
}

struct Server {
    watcher: Watcher,
    listener: Source,
    root: PathBuf,
    direct: bool,
    /// The benchmark: how many bytes each GET returns.
    block: Option<u64>,
    /// Bytes of a buffer.
    room: u64,
    /// The clients by number, which is the token of every operation for the client.
    clients: HashMap<u64, Client>,
    /// The number of the next client.
    number: u64,
    /// Open files by the path in the request, and when each one expires.
    files: HashMap<String, (Rc<File>, Instant)>,
    /// Buffers that are not in use.
    bufs: Vec<AlignedBuf>,
    stop_by: Option<Instant>,
}

struct Client {
    socket: Source,
    /// Bytes that were read and not parsed yet: at most a head and one read.
    input: Vec<u8>,
    state: State,
}

/// The state of a client.
enum State {
    /// The rest of a request. A request that has begun must arrive by the deadline.
    Asking(Option<Instant>),
    /// Its file is looked up and opened.
    Finding { request: Request, real: PathBuf, size: u64 },
    /// Its answer is being sent.
    Answering(Answer),
    /// The server has sent its last answer, and ignores what the client still sends. (After a close
    /// at once, the system might drop sent bytes.)
    Leaving(Instant),
}

/// An open file: closed when its last answer is out and it is not kept any more.
struct File {
    guard: SourceGuard,
    size: u64,
}

struct Answer {
    file: Option<Rc<File>>,
    /// The head, which is sent with the first block.
    head: Option<Vec<u8>>,
    /// The range of the file that is still to be read.
    at: u64,
    end: u64,
    /// Of the block that is being read: the bytes before the requested range, and the requested
    /// bytes.
    reading: Option<(usize, usize)>,
    writing: usize,
    keep: bool,
}

impl Server {
    fn run(mut self) -> io::Result<()> {
        let mut done = Completions::new();
        loop {
            match self.stop_by {
                None => self.watcher.wait(&mut done)?,
                Some(by) if self.clients.is_empty() || self.watcher.now() >= by => return Ok(()),
                Some(_) => self.watcher.wait_timeout(&mut done, Duration::from_millis(100))?,
            };
            for completion in done.drain(..) {
                self.take(completion)?;
            }
        }
    }

    fn take(&mut self, c: Completion) -> io::Result<()> {
        match (c.token, c.result) {
            (ACCEPT, Ok(Done::Accepted(socket))) if self.stop_by.is_none() => {
                let socket = self.watcher.attach(socket)?; // accepts wait while the table is full
                let client = Client { socket, input: Vec::new(), state: State::Asking(None) };
                self.clients.insert(self.number, client);
                self.listen_to(self.number);
                self.number += 1;
            }
            (_, Ok(Done::Signal(_))) => self.stop(),
            (ACCEPT, Err(error)) if self.stop_by.is_none() => return Err(error.into()),
            (ACCEPT, _) => {}
            (SWEEP, _) => {
                let now = self.watcher.now();
                self.files.retain(|_, (_, until)| *until > now);
                if !self.files.is_empty() {
                    self.watcher.submit(Op::timer(FRESH).token(SWEEP))?;
                }
            }
            (number, Ok(done)) => self.done(number, c.source, done),
            (number, Err(error)) => self.failed(number, c.source, error.raw_os_error()),
        }
        Ok(())
    }

    /// Accepts no more, and closes the connections that have not asked for anything.
    fn stop(&mut self) {
        self.stop_by = Some(self.watcher.now() + STOPPING);
        self.watcher.abort(self.listener);
        self.clients.retain(|_, client| {
            let idle = matches!(client.state, State::Asking(None));
            !(idle && self.watcher.abort(client.socket))
        });
    }

    /// Submits an operation for a client; one that is refused ends the connection.
    fn submit(&mut self, number: u64, op: Op) {
        if let Err(refused) = self.watcher.submit(op.token(number)) {
            eprintln!("{refused}");
            self.gone(number);
        }
    }

    fn gone(&mut self, number: u64) {
        if let Some(client) = self.clients.remove(&number) {
            self.watcher.abort(client.socket);
        }
    }

    fn listen_to(&mut self, number: u64) {
        let Some(client) = self.clients.get(&number) else { return };
        let read = match client.state {
            State::Asking(Some(by)) | State::Leaving(by) => Op::read(client.socket).deadline(by),
            _ => Op::read(client.socket).timeout(IDLE),
        };
        self.submit(number, read);
    }

    fn done(&mut self, number: u64, source: Source, done: Done) {
        let Some(client) = self.clients.get_mut(&number) else { return };
        match done {
            Done::Read(data) if source == client.socket => match client.state {
                _ if data.is_eof() => self.gone(number),
                State::Leaving(_) => self.listen_to(number),
                _ => {
                    client.input.extend_from_slice(&data);
                    drop(data);
                    self.next(number);
                }
            },
            Done::Read(bytes) => self.block_read(number, bytes),
            Done::Written { buf, .. } => self.block_written(number, buf),
            Done::Path(real) => self.located(number, real),
            Done::Metadata(stat) => {
                let State::Finding { real, size, .. } = &mut client.state else { return };
                if stat.kind() == FileKind::File {
                    *size = stat.size;
                    let real = std::mem::take(real);
                    let options = OpenOptions::new().read(true).direct(self.direct);
                    self.submit(number, Op::open(real, options));
                } else {
                    self.refuse_found(number, "403 Forbidden");
                }
            }
            Done::Opened(file) => self.opened(number, file),
            _ => {} // it was told that nothing more comes
        }
    }

    fn failed(&mut self, number: u64, source: Source, errno: Option<i32>) {
        let Some(client) = self.clients.get_mut(&number) else { return };
        match &mut client.state {
            State::Finding { .. } => {
                let status = match errno {
                    Some(libc::ENOENT | libc::ENOTDIR | libc::ENAMETOOLONG) => "404 Not Found",
                    Some(libc::EACCES | libc::EPERM | libc::ELOOP) => "403 Forbidden",
                    Some(libc::EMFILE | libc::ENFILE) => "503 Service Unavailable",
                    _ => "500 Internal Server Error",
                };
                self.refuse_found(number, status);
            }
            // Nothing of the answer is out yet.
            State::Answering(Answer { head: Some(_), keep, .. }) if source != client.socket => {
                let shape = Shape { head_only: false, keep: *keep };
                self.refuse(number, "500 Internal Server Error", shape);
            }
            _ => self.gone(number), // too slow, or gone already
        }
    }

    /// Parses the bytes: answers the next request, or waits for the rest of it.
    fn next(&mut self, number: u64) {
        let now = self.watcher.now();
        let Some(client) = self.clients.get_mut(&number) else { return };
        match parse(&client.input) {
            Ok(Status::Complete((len, request))) => {
                client.input.drain(..len);
                self.find(number, request);
            }
            Ok(Status::Partial) if client.input.is_empty() => {
                client.state = State::Asking(None);
                match self.stop_by {
                    None => self.listen_to(number),
                    Some(_) => self.gone(number),
                }
            }
            Ok(Status::Partial) => {
                if !matches!(client.state, State::Asking(Some(_))) {
                    client.state = State::Asking(Some(now + SLOW_HEAD));
                }
                self.listen_to(number);
            }
            Err((status, shape)) => self.refuse(number, status, shape),
        }
    }

    fn find(&mut self, number: u64, request: Request) {
        if let Some((file, _)) = self.files.get(&request.path) {
            let file = Rc::clone(file);
            return self.found(number, request, file);
        }
        let path = Path::new(request.path.trim_start_matches('/'));
        if path.components().any(|part| part == std::path::Component::ParentDir) {
            return self.refuse(number, "403 Forbidden", request.shape);
        }
        let path = self.root.join(path);
        let Some(client) = self.clients.get_mut(&number) else { return };
        client.state = State::Finding { request, real: PathBuf::new(), size: 0 };
        self.submit(number, Op::canonicalize(path));
    }

    /// Opens the file, whose path has no links any more.
    fn located(&mut self, number: u64, path: PathBuf) {
        let Some(Client { state: State::Finding { real, .. }, .. }) = self.clients.get_mut(&number)
        else {
            return;
        };
        if path.starts_with(&self.root) {
            *real = path.clone();
            self.submit(number, Op::metadata(path));
        } else {
            self.refuse_found(number, "403 Forbidden");
        }
    }

    fn opened(&mut self, number: u64, file: Handle) {
        let (Ok(source), now) = (self.watcher.attach(file), self.watcher.now()) else {
            return self.refuse_found(number, "503 Service Unavailable");
        };
        let guard = self.watcher.guard(source);
        let Some((request, size)) = self.take_found(number) else { return };
        let file = Rc::new(File { guard, size });
        if self.files.is_empty() {
            let sweep = self.watcher.submit(Op::timer(FRESH).token(SWEEP));
            debug_assert!(sweep.is_ok() || self.stop_by.is_some());
        }
        if self.files.len() == MOST_FILES
            && let Some(first) = self.files.iter().min_by_key(|(_, (_, until))| *until)
        {
            let path = first.0.clone();
            self.files.remove(&path);
        }
        self.files.insert(request.path.clone(), (Rc::clone(&file), now + FRESH));
        self.found(number, request, file);
    }

    /// Begins the answer: the requested range, and the head.
    fn found(&mut self, number: u64, request: Request, file: Rc<File>) {
        let (size, shape) = (file.size, request.shape);
        let range = request.range.as_deref().and_then(|text| range(text, size));
        let (status, from, end) = match (self.block, range) {
            (Some(block), _) => {
                let blocks = (size.saturating_sub(block)) / PAGE + 1;
                let from = fastrand::u64(..blocks) * PAGE;
                ("200 OK", from, size.min(from + block))
            }
            (None, Some(Some((from, end)))) => ("206 Partial Content", from, end),
            (None, Some(None)) => {
                let more = format!("Content-Range: bytes */{size}\r\n");
                return self.answer(number, "416 Range Not Satisfiable", shape, &more, None);
            }
            (None, None) => ("200 OK", 0, size),
        };
        let mut more = format!("Accept-Ranges: bytes\r\nContent-Length: {}\r\n", end - from);
        if status.starts_with("206") {
            more += &format!("Content-Range: bytes {from}-{}/{size}\r\n", end - 1);
        }
        self.answer(number, status, shape, &more, Some((file, from, end)));
    }

    /// Takes the operation that a client waits for out of its state.
    fn take_found(&mut self, number: u64) -> Option<(Request, u64)> {
        let client = self.clients.get_mut(&number)?;
        match std::mem::replace(&mut client.state, State::Asking(None)) {
            State::Finding { request, size, .. } => Some((request, size)),
            _ => None,
        }
    }

    fn refuse_found(&mut self, number: u64, status: &str) {
        if let Some((request, _)) = self.take_found(number) {
            self.refuse(number, status, request.shape);
        }
    }

    fn refuse(&mut self, number: u64, status: &str, shape: Shape) {
        let more = if status.starts_with("405") { "Allow: GET, HEAD\r\n" } else { "" };
        self.answer(number, status, shape, more, None);
    }

    /// Starts an answer: the bytes of a file, or a status as text.
    fn answer(
        &mut self,
        number: u64,
        status: &str,
        shape: Shape,
        more: &str,
        body: Option<(Rc<File>, u64, u64)>,
    ) {
        let Some(client) = self.clients.get_mut(&number) else { return };
        let keep = shape.keep && self.stop_by.is_none();
        let connection = if keep { "keep-alive" } else { "close" };
        let mut head = format!("HTTP/1.1 {status}\r\nConnection: {connection}\r\n{more}");
        let (file, at, end) = match body {
            None => {
                head += &format!("Content-Length: {}\r\n\r\n", status.len() + 1);
                if !shape.head_only {
                    head += status;
                    head += "\n";
                }
                (None, 0, 0)
            }
            Some((file, from, end)) => {
                head += "\r\n";
                (Some(file), from, if shape.head_only { from } else { end })
            }
        };
        let (mut head, socket) = (Some(head.into_bytes()), client.socket);
        // Without a body the head goes out by itself.
        let alone = if at == end { head.take() } else { None };
        let writing = usize::from(alone.is_some());
        let answer = Answer { file, head, at, end, reading: None, writing, keep };
        client.state = State::Answering(answer);
        match alone {
            Some(head) => self.submit(number, Op::write(socket, head).timeout(SLOW_BLOCK)),
            None => self.read_on(number),
        }
    }

    /// Reads the next block, if there is one and fewer than two are in flight.
    fn read_on(&mut self, number: u64) {
        let Some(Client { state: State::Answering(answer), .. }) = self.clients.get_mut(&number)
        else {
            return;
        };
        let Answer { file: Some(file), at, end, reading: None, writing: 0..=1, .. } = answer else {
            return;
        };
        if at == end {
            return;
        }
        // A direct read starts at a multiple of the block size, and the bytes behind it are cut.
        let start = if self.direct { *at / PAGE * PAGE } else { *at };
        let stop = (*end).min(start + self.room);
        let fresh = || AlignedBuf::with_capacity(self.room as usize, PAGE as usize);
        let buf = self.bufs.pop().unwrap_or_else(fresh);
        let source = file.guard.source();
        answer.reading = Some(((*at - start) as usize, (stop - *at) as usize));
        answer.at = stop;
        self.submit(number, Op::read_at(source, buf, start));
    }

    fn block_read(&mut self, number: u64, bytes: Buf) {
        let Some(client) = self.clients.get_mut(&number) else { return };
        let State::Answering(answer) = &mut client.state else { return };
        let (Some((skip, len)), Ok(mut buf)) = (answer.reading.take(), bytes.into_aligned()) else {
            return;
        };
        if buf.len() < skip + len {
            return self.gone(number); // the file has become shorter
        }
        if skip > 0 {
            buf.copy_within(skip..skip + len, 0);
        }
        buf.set_len(len);
        answer.writing += 1;
        let write = match answer.head.take() {
            Some(head) => Op::write_vectored(client.socket, [head.into(), buf.into()]),
            None => Op::write(client.socket, buf),
        };
        self.submit(number, write.timeout(SLOW_BLOCK));
        self.read_on(number);
    }

    fn block_written(&mut self, number: u64, buf: Buf) {
        let parts = buf.into_parts().filter_map(|part| part.into_aligned().ok());
        self.bufs.extend(parts);
        self.bufs.truncate(SPARE);
        let Some(client) = self.clients.get_mut(&number) else { return };
        let State::Answering(answer) = &mut client.state else { return };
        answer.writing -= 1;
        if answer.at < answer.end || answer.reading.is_some() || answer.writing > 0 {
            return self.read_on(number);
        }
        if answer.keep {
            client.state = State::Asking(None);
            return self.next(number);
        }
        let shutdown = Op::shutdown(client.socket);
        client.state = State::Leaving(self.watcher.now() + LEAVING);
        self.submit(number, shutdown);
        self.listen_to(number);
    }
}
