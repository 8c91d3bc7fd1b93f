//! Threads that share a connection as a value, on every driver of the system.
#![allow(missing_docs)] // a test binary has no users

mod common;

use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::task::Waker;
use std::thread;

use common::{PATIENCE, System};
use windlass_serve::{Action, Cause, Closed, Conn, Context, Handler, Origin, Server, Stream};

systems_drivers! {
    threads_that_write_and_close_lose_nothing
}

/// Gives its streams to another thread.
struct Gives(std::sync::mpsc::Sender<Stream>, usize);

impl Handler for Gives {
    type State = ();
    fn opened(&mut self, c: &mut Conn<'_, ()>, _: Origin) -> Action {
        self.0.send(c.stream(Waker::noop().clone()).expect("a stream")).expect("the test waits");
        Action::None
    }
    fn closed(&mut self, _: &mut Context<'_, ()>, closed: Closed<()>) -> Action {
        assert_eq!((closed.cause, closed.unsent), (Cause::Closed, 0));
        self.1 += 1;
        Action::None
    }
}

impl Drop for Gives {
    fn drop(&mut self) {
        assert_eq!(self.1, ROUNDS, "closed once for each connection");
    }
}

const ROUNDS: usize = 30;
const WRITERS: usize = 3;

fn threads_that_write_and_close_lose_nothing<T: System>() {
    let (give, streams) = channel();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (tell, remotes) = channel();
    let serving = thread::spawn(move || {
        let mut watcher = T::builder().build().unwrap();
        let server = Server::new(|_| Gives(give.clone(), 0)).listener(listener);
        let mut running = server.start_on(&mut watcher).unwrap();
        tell.send(running.remote()).unwrap();
        let mut done = windlass::Completions::new();
        while !running.is_over() {
            watcher.wait_timeout(&mut done, PATIENCE).unwrap();
            running.serve(&mut watcher, &mut done);
        }
        running.report().counts
    });
    let remote = remotes.recv_timeout(PATIENCE).unwrap();
    for round in 0..ROUNDS {
        let mut client = std::net::TcpStream::connect(address).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        let stream = streams.recv_timeout(PATIENCE).unwrap();
        let heard = thread::spawn(move || {
            let mut heard = Vec::new();
            client.read_to_end(&mut heard).unwrap();
            heard
        });
        let written = Arc::new(AtomicUsize::new(0));
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (mut stream, written) = (stream.clone(), Arc::clone(&written));
                thread::spawn(move || {
                    let mut accepted = 0_u32;
                    loop {
                        let mut record = [writer as u8; 64];
                        record[1..5].copy_from_slice(&accepted.to_be_bytes());
                        match stream.write(&record) {
                            Ok(count) => {
                                assert_eq!(count, 64);
                                accepted += 1;
                                written.fetch_add(1, Ordering::SeqCst);
                            }
                            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                                thread::yield_now();
                            }
                            Err(error) => {
                                assert_eq!(error.kind(), ErrorKind::BrokenPipe);
                                return accepted;
                            }
                        }
                    }
                })
            })
            .collect();
        while written.load(Ordering::SeqCst) < round * 20 {
            thread::yield_now();
        }
        // Two threads close at once.
        let other = stream.clone();
        let closer = thread::spawn(move || other.close());
        stream.close();
        closer.join().unwrap();
        let accepted: Vec<u32> = writers.into_iter().map(|one| one.join().unwrap()).collect();
        let heard = heard.join().unwrap();
        // Each record that was accepted, whole and in the order of its thread.
        let mut next = [0_u32; WRITERS];
        for record in heard.chunks(64) {
            let writer = usize::from(record[0]);
            assert_eq!(record[1..5], next[writer].to_be_bytes());
            next[writer] += 1;
        }
        assert_eq!(&next[..], accepted);
    }
    remote.shutdown();
    let counts = serving.join().unwrap();
    assert_eq!(counts.stale_writes, 0);
    assert_eq!((counts.accepted, counts.ends.closed), (ROUNDS as u64, ROUNDS as u64));
}
