//! The example `own_loop`, on each driver of the system: a request for the file, one that waits for
//! a tick, and lines of another engine go on beside each other.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use windlass_web::windlass::{Address, DriverKind, Watcher};

#[path = "../../examples/own_loop.rs"]
mod example;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");

fn stream(address: &Address) -> TcpStream {
    let stream = TcpStream::connect(address.ip().expect("an address")).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a time");
    stream
}

fn ask(stream: &mut TcpStream, path: &str) {
    write!(stream, "GET {path} HTTP/1.1\r\nHost: h\r\n\r\n").expect("a write");
}

/// The body of the next response.
fn hear(from: &mut BufReader<TcpStream>) -> String {
    let (mut length, mut line) = (0, String::new());
    loop {
        line.clear();
        from.read_line(&mut line).expect("a line");
        if let Some(value) = line.strip_prefix("Content-Length: ") {
            length = value.trim().parse().expect("a number");
        }
        if line == "\r\n" {
            break;
        }
    }
    let mut body = vec![0; length];
    from.read_exact(&mut body).expect("a body");
    String::from_utf8(body).expect("a text")
}

fn client(web: &Address, lines: &Address) {
    let (mut waits, mut asks) = (stream(web), stream(web));
    ask(&mut waits, "/tick");
    ask(&mut asks, "/file");
    let mut says = stream(lines);
    says.write_all(b"one\ntwo\n").expect("a write");
    let mut says = BufReader::new(says);
    let mut heard = String::new();
    while heard != "1 lines\n2 lines\n" {
        assert!(says.read_line(&mut heard).expect("a line") > 0, "{heard}");
    }
    let mut asks = BufReader::new(asks);
    assert_eq!(hear(&mut asks), std::fs::read_to_string(FILE).expect("it is there"));
    assert!(hear(&mut BufReader::new(waits)).starts_with("tick "));
    ask(asks.get_mut(), "/last");
    assert_eq!(hear(&mut asks), "two");
    ask(asks.get_mut(), "/nothing");
    assert_eq!(hear(&mut asks), "Not Found");
}

fn runs(kind: DriverKind) {
    let watcher = Watcher::builder().driver(kind).build().expect("the driver is there");
    let file = std::fs::File::open(FILE).expect("it is there");
    let own = example::Loop::new(watcher, [0, 0], file).expect("it listens");
    let [web, lines] = own.addresses().expect("addresses");
    talk!(own, move || client(&web, &lines));
}

each_driver! { runs }
