//! Clients of files and proxies: each GET has an answer of a known length, whose bytes are compared
//! with the pattern.

use std::io::{self, Write};
use std::time::Duration;

use mio::net::TcpStream;

use crate::arguments::{Arguments, invalid};
use crate::exchanges::{self, Exchange, receive, send};
use crate::pattern::{self, PERIOD};

/// What is requested.
struct Asked {
    /// The path; `{}` in it becomes the number of a file.
    path: String,
    files: usize,
    /// Bytes of a body.
    len: usize,
    /// Bytes of the file, of which each request asks for a random block of `len` bytes; 0: each
    /// request asks for a whole file.
    blocks_of: u64,
}

/// `get-load --port N --connections N --path PATH --files N --len N --blocks N --seconds S
/// --requests N`
///
/// Each line that it reads lets it measure once: for so many seconds or, if they are 0, so many
/// requests.
pub fn run(arguments: &mut Arguments) -> io::Result<()> {
    let port: u16 = arguments.option("--port", 0)?;
    let connections: usize = arguments.option("--connections", 64)?;
    let asked = Asked {
        path: arguments.option("--path", "/".into())?,
        files: arguments.option("--files", 1)?,
        len: arguments.option("--len", 13)?,
        blocks_of: arguments.option("--blocks", 0)?,
    };
    let files = asked.files;
    let seconds: f64 = arguments.option("--seconds", 0.0)?;
    let requests: u64 = arguments.option("--requests", 0)?;
    arguments.end()?;
    if connections == 0 || asked.files == 0 || (seconds == 0.0 && requests == 0) {
        return Err(invalid("a connection, a file, and a time or number are needed".into()));
    }
    let mut clients = exchanges::Loop::new(Shared::new(asked))?;
    for _ in 0..connections {
        clients.add(Client::new(exchanges::connect(port)?))?;
    }
    // All connections have been served before it begins, and all files.
    clients.measure(Duration::ZERO, connections.max(2 * files) as u64)?;
    clients.obey("measure", seconds, requests, 1)
}

struct Client {
    socket: TcpStream,
    request: Vec<u8>,
    sent: usize,
    /// The start of a head that has not come whole.
    head: Vec<u8>,
    /// Where the next byte of the body is in the pattern, and how many are missing; none before the
    /// head is whole.
    body: Option<(usize, usize)>,
    /// Where the body starts in the pattern.
    start: usize,
}

/// What all connections have together.
struct Shared {
    asked: Asked,
    pattern: Vec<u8>,
    space: Vec<u8>,
    random: u64,
    /// Requests so far.
    begun: usize,
}

impl Shared {
    fn new(asked: Asked) -> Shared {
        let space = vec![0; 256 << 10];
        let pattern = pattern::of(space.len());
        Shared { asked, pattern, space, random: 0x9E37_79B9_7F4A_7C15, begun: 0 }
    }
}

impl Exchange for Client {
    type Shared = Shared;

    fn socket(&mut self) -> &mut TcpStream {
        &mut self.socket
    }

    fn begin(&mut self, shared: &mut Shared) -> io::Result<()> {
        // Marsaglia's xorshift.
        shared.random ^= shared.random << 13;
        shared.random ^= shared.random >> 7;
        shared.random ^= shared.random << 17;
        let asked = &shared.asked;
        // Each file once, and then in any order.
        let turn = if shared.begun < asked.files { shared.begun } else { shared.random as usize };
        let number = turn % asked.files;
        shared.begun += 1;
        self.request.clear();
        let path = asked.path.replace("{}", &number.to_string());
        write!(
            self.request,
            "GET {path} HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\
             Accept: text/plain,text/html;q=0.9,application/xhtml+xml;q=0.9,*/*;q=0.7\r\n"
        )?;
        self.start = pattern::start(number);
        if asked.blocks_of > 0 {
            let len = asked.len as u64;
            let block = shared.random % (asked.blocks_of / len);
            let (first, last) = (block * len, block * len + len - 1);
            write!(self.request, "Range: bytes={first}-{last}\r\n")?;
            self.start = (self.start + (first % PERIOD as u64) as usize) % PERIOD;
        }
        self.request.extend_from_slice(b"Connection: keep-alive\r\n\r\n");
        (self.sent, self.body) = (0, None);
        send(&mut self.socket, &self.request, &mut self.sent).map(drop)
    }

    fn go_on(&mut self, shared: &mut Shared) -> io::Result<bool> {
        if !send(&mut self.socket, &self.request, &mut self.sent)? {
            return Ok(false);
        }
        let Shared { space, asked, pattern, .. } = shared;
        while let Some(count) = receive(&mut self.socket, space)? {
            if self.take(&space[..count], asked, pattern)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Client {
    fn new(socket: TcpStream) -> Client {
        Client { socket, request: Vec::new(), sent: 0, head: Vec::new(), body: None, start: 0 }
    }

    /// Takes bytes of an answer in; true when it is whole.
    fn take(&mut self, bytes: &[u8], asked: &Asked, pattern: &[u8]) -> io::Result<bool> {
        let wrong = |what: &str| Err(io::Error::other(what.to_owned()));
        let mut body = bytes;
        if self.body.is_none() {
            let kept = self.head.len();
            self.head.extend_from_slice(bytes);
            let Some(len) = head(&self.head, asked)? else { return Ok(false) };
            self.head.clear();
            self.body = Some((self.start, asked.len));
            body = &bytes[len - kept..];
        }
        let (at, missing) = self.body.as_mut().expect("the head is whole");
        if body.len() > *missing {
            return wrong("an answer is longer than asked for");
        }
        if body != &pattern[*at..][..body.len()] {
            return wrong("the server has sent other bytes");
        }
        *at = (*at + body.len()) % PERIOD;
        *missing -= body.len();
        Ok(*missing == 0)
    }
}

/// Where a head ends, which must be that of the expected answer.
fn head(bytes: &[u8], asked: &Asked) -> io::Result<Option<usize>> {
    let mut fields = [httparse::EMPTY_HEADER; 32];
    let mut answer = httparse::Response::new(&mut fields);
    let parsed = answer.parse(bytes).map_err(io::Error::other)?;
    let httparse::Status::Complete(len) = parsed else { return Ok(None) };
    let status = if asked.blocks_of > 0 { 206 } else { 200 };
    let field = answer.headers.iter().find(|f| f.name.eq_ignore_ascii_case("content-length"));
    let body = field.and_then(|field| std::str::from_utf8(field.value).ok()?.parse().ok());
    if answer.code == Some(status) && body == Some(asked.len) {
        return Ok(Some(len));
    }
    let (code, asked) = (answer.code, asked.len);
    Err(io::Error::other(format!("status {code:?} with {body:?} bytes, not {status} with {asked}")))
}
