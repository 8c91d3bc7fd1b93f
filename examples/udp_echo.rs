//! A UDP echo server: every datagram goes back to its sender, without a copy.
//!
//! ```text
//! cargo run --release --example udp_echo -- [--port N] [--receives N]
//! ```
//!
//! Several receives are outstanding, so that the server takes a burst of datagrams in one turn. It
//! ends on SIGINT and SIGTERM.

use std::io;
use std::net::UdpSocket;
use std::time::Duration;

use windlass::{Completions, Done, Op, Watcher};

mod common;

const RECEIVE: u64 = 1;
const SEND: u64 = 2;

fn main() -> io::Result<()> {
    let mut options = common::Options::new("udp_echo [--port N] [--receives N]");
    let port: u16 = options.take("--port").unwrap_or(7007);
    let receives: usize = options.take("--receives").unwrap_or(32).max(1);
    options.end();

    let mut watcher = Watcher::new()?;
    let socket = watcher.attach(UdpSocket::bind(("127.0.0.1", port))?)?;
    println!("listening on {}", watcher.local_address(socket)?);
    common::signals(&mut watcher)?;
    for _ in 0..receives {
        watcher.submit(Op::recv_from(socket).token(RECEIVE))?;
    }
    let mut done = Completions::new();
    loop {
        watcher.wait(&mut done)?;
        for c in done.drain(..) {
            match c.result {
                Ok(Done::Signal(_)) => return Ok(()),
                Ok(Done::Received { truncated: true, from, .. }) => {
                    eprintln!("{from}: the datagram is longer than a swap buffer");
                }
                Ok(Done::Received { data, from, .. }) => {
                    // A full socket buffer makes it wait; rather lose one than pile them up.
                    let send = Op::send_to(socket, data, from).token(SEND);
                    if let Err(refused) = watcher.submit(send.timeout(Duration::from_secs(1))) {
                        eprintln!("{refused}");
                    }
                }
                Ok(_) => {}
                // For example an ICMP message about an earlier datagram, which ends one receive.
                Err(error) => eprintln!("{error}"),
            }
            if c.token == RECEIVE {
                watcher.submit(Op::recv_from(socket).token(RECEIVE))?;
            }
        }
    }
}
