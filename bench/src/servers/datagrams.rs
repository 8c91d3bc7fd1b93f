//! A server of datagrams: one by one, or in batches. It sends those back whose first byte is 1.

use std::io;
use std::net::UdpSocket;

use windlass::{Completions, Done, Op, Watcher};

/// With `batches`, one system call takes many datagrams, where the system has such calls.
pub fn serve(port: u16, batches: bool) -> io::Result<()> {
    let socket = UdpSocket::bind(("127.0.0.1", port))?;
    // The suite connects to it to learn that the server is there.
    let _ready = super::listen(port)?;
    let mut watcher = Watcher::new()?;
    let source = watcher.attach(socket)?;
    let receive = Op::recv_from(source);
    watcher.submit(if batches { receive.multishot() } else { receive })?;
    let mut done = Completions::new();
    loop {
        watcher.wait(&mut done)?;
        for c in done.drain(..) {
            let has_more = c.has_more();
            let Done::Received { data, from, .. } = c.result? else { continue };
            if data.first() == Some(&1) {
                let send = Op::send_to(source, data, from);
                watcher.submit(if batches { send.deferred() } else { send })?;
            }
            if !has_more {
                watcher.submit(Op::recv_from(source))?;
            }
        }
    }
}
