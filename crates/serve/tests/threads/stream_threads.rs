//! Threads that share a connection as a value, in every mode on every driver of the system.

use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use crate::common::PATIENCE;
use crate::common::scene::{News, Scene, Setting};
use windlass::Address;
use windlass::driver::Deadline;
use windlass_serve::{Action, Cause, Closed, Conn, Context, Handler, Origin, Stream};

crate::systems_modes! {
    threads_that_write_and_close_lose_nothing
}

/// Gives its streams to another thread.
struct Gives {
    streams: Sender<Stream>,
    /// How its connections have ended.
    news: News<(Cause, usize)>,
}

impl Handler for Gives {
    type State = ();
    fn serving(&mut self, server: &mut Context<'_, ()>, addresses: &[Address]) -> Action {
        self.news.serving(server, addresses)
    }
    fn opened(&mut self, c: &mut Conn<'_, ()>, _: Origin) -> Action {
        self.streams.send(c.into_std().expect("a stream")).expect("the test waits");
        Action::None
    }
    fn closed(&mut self, _: &mut Context<'_, ()>, closed: Closed<()>) -> Action {
        self.news.tell((closed.cause, closed.unsent));
        Action::None
    }
}

/// `WINDLASS_RACES` multiplies it.
const ROUNDS: usize = 30;
const WRITERS: usize = 3;

fn threads_that_write_and_close_lose_nothing<T: Setting>() {
    let (give, streams) = channel();
    let make = move |news| Gives { streams: give.clone(), news };
    let mut scene = Scene::start::<T>(make, |server| server.listen("tcp://127.0.0.1:0").unwrap());
    let address = scene.addresses[0].ip().unwrap();
    let races = std::env::var("WINDLASS_RACES").ok().and_then(|times| times.parse().ok());
    let rounds = ROUNDS * races.unwrap_or(1);
    for round in 0..rounds {
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
                        // Deadlines that other threads set at the same time.
                        let _ = stream.set_deadline(Deadline::After(
                            PATIENCE + Duration::from_secs(writer as u64),
                        ));
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
        while written.load(Ordering::SeqCst) < round % ROUNDS * 20 {
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
    scene.until("all have ended", |s| s.news.notes().len() == rounds);
    assert!(scene.news.notes().iter().all(|end| *end == (Cause::Closed, 0)));
    let counters = scene.end().counters;
    assert_eq!(counters.stale_writes, 0);
    assert_eq!((counters.accepted, counters.ends.closed), (rounds as u64, rounds as u64));
}
