//! A connection with another protocol costs 16 bytes beside what takes it over, and what comes on
//! it allocates nothing.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use crate::alloc;
use windlass::{Buf, Completions, Watcher};
use windlass_web::upgrade::{Protocol, RawConn};
use windlass_web::{App, ServerLoop};

struct Echo;

impl Protocol<()> for Echo {
    fn data(&mut self, _: &mut (), c: &mut RawConn<'_, ()>, data: Buf) {
        c.write(data).expect("there is room");
    }
}

const CONNECTIONS: usize = 64;
const UPGRADE: &str = "GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n";
const PLAIN: &str = "GET /plain HTTP/1.1\r\nHost: h\r\n\r\n";

/// Says something, and hears an answer that ends so.
fn ask(
    (watcher, server, done): (&mut Watcher, &mut ServerLoop<()>, &mut Completions),
    client: &mut TcpStream,
    say: &str,
    end: &[u8],
    heard: &mut [u8],
) {
    client.write_all(say.as_bytes()).expect("a write");
    let mut count = 0;
    while !heard[..count].ends_with(end) {
        watcher.wait_timeout(done, Duration::from_millis(10)).expect("a wait");
        server.serve(watcher, done);
        match client.read(&mut heard[count..]) {
            Ok(more) => {
                assert!(more > 0, "it has ended");
                count += more;
            }
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock),
        }
    }
}

#[test]
fn data_allocates_nothing_and_idle_connections_are_small() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let address = listener.local_addr().expect("its address");
    let app = App::new().get("/", |_, q| q.upgrade("echo", Echo)).get("/plain", |_, _| "plain");
    let mut watcher = Watcher::new().expect("a watcher");
    let app = app.listen(listener).expect("a listener");
    let mut server = app.start_on(&mut watcher).expect("it starts");
    let (mut heard, mut done) = (vec![0; 4096], Completions::new());
    let mut clients: Vec<TcpStream> = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut client = TcpStream::connect(address).expect("it listens");
        client.set_nonblocking(true).expect("a mode");
        ask((&mut watcher, &mut server, &mut done), &mut client, PLAIN, b"plain", &mut heard);
        clients.push(client);
    }
    let before = alloc::live_bytes();
    for client in &mut clients {
        ask((&mut watcher, &mut server, &mut done), client, UPGRADE, b"\r\n\r\n", &mut heard);
    }
    let each = (alloc::live_bytes() - before) / CONNECTIONS as isize;
    assert!(each <= 16, "{each} bytes more than an idle connection with HTTP");
    let client = &mut clients[0];
    ask((&mut watcher, &mut server, &mut done), client, "warm", b"warm", &mut heard);
    let before = alloc::allocations();
    for _ in 0..100 {
        ask(
            (&mut watcher, &mut server, &mut done),
            client,
            "some bytes",
            b"some bytes",
            &mut heard,
        );
    }
    assert_eq!(alloc::allocations() - before, 0, "allocations of 100 echoes");
}
