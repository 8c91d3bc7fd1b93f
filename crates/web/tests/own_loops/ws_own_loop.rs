//! The example `ws_own_loop`, on each driver of the system: a line is told when it is in the file,
//! and requests and ticks go on beside it.

#[path = "../../examples/ws_own_loop.rs"]
mod example;
#[path = "../../../serve/tests/common/programs.rs"]
mod programs;

use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use windlass_web::windlass::{Address, DriverKind, Watcher};

/// A client, and what it has heard.
struct Client(TcpStream, Vec<u8>);

impl Client {
    fn new(address: &Address, request: &str) -> Client {
        let mut stream = TcpStream::connect(address.ip().expect("an address")).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a time");
        stream.write_all(request.as_bytes()).expect("a write");
        Client(stream, Vec::new())
    }

    fn follow(address: &Address) -> Client {
        Client::new(
            address,
            "GET /follow HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n",
        )
    }

    /// A frame of a short message. Its mask changes nothing.
    fn say(&mut self, first: u8, text: &str) {
        let frame = [&[first, 0x80 | text.len() as u8, 0, 0, 0, 0], text.as_bytes()].concat();
        self.0.write_all(&frame).expect("a write");
    }

    /// Reads until these bytes have come, and takes all up to them.
    fn hear(&mut self, expected: &str) {
        let (mut space, len) = ([0; 4096], expected.len());
        loop {
            let found = self.1.windows(len).position(|bytes| bytes == expected.as_bytes());
            if let Some(at) = found {
                self.1.drain(..at + len);
                return;
            }
            let count = self.0.read(&mut space).expect("it answers");
            assert!(count > 0, "{expected}: {:?}", String::from_utf8_lossy(&self.1));
            self.1.extend_from_slice(&space[..count]);
        }
    }
}

fn talk(address: &Address, path: &str) {
    let mut ann = Client::follow(address);
    ann.hear("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    ann.hear("1 followers");
    let mut bob = Client::follow(address);
    bob.hear("2 followers");
    ann.hear("2 followers"); // by the timer
    for number in 0..100 {
        ann.say(0x81, &format!("line {number}"));
    }
    for number in 0..100 {
        let line = format!("line {number}");
        bob.hear(&line);
        assert!(fs::read_to_string(path).expect("a file").contains(&format!("{line}\n")));
        ann.hear(&line);
    }
    let bytes = fs::metadata(path).expect("a file").len();
    Client::new(address, "GET / HTTP/1.1\r\nHost: a\r\n\r\n").hear(&format!("{bytes} bytes"));
    Client::new(address, "GET /follow HTTP/1.1\r\nHost: a\r\n\r\n").hear("HTTP/1.1 426 ");
    Client::new(address, "GET /else HTTP/1.1\r\nHost: a\r\n\r\n").hear("HTTP/1.1 404 ");
    bob.say(0x82, "no text");
    bob.hear("lines are text");
    drop(bob);
    ann.hear("1 followers");
}

fn runs(kind: DriverKind) {
    let files = programs::Files::new(&format!("ws-own-loop-{kind:?}"));
    let path = files.write("lines.txt", "a first line\n");
    let watcher = Watcher::builder().driver(kind).build().expect("the driver is there");
    let file = OpenOptions::new().write(true).open(&path).expect("a file");
    let own = example::Loop::new(watcher, 0, file).expect("it listens");
    let address = own.address().expect("an address");
    talk!(own, move || talk(&address, &path));
}

each_driver! { runs }
