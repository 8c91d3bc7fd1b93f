//! C8 and C9 when swap buffers run out: waiting reads get whole buffers in turn, and a multishot
//! read takes no more than its share.

use std::collections::VecDeque;
use std::time::Duration;

use windlass::{Buf, Builder, Done, Op, Source, Watcher};

use crate::common::*;

const CHUNK: usize = 4096;
const CHUNKS: usize = 64;

fn small_pool() -> Builder {
    Watcher::builder().buffer_size(CHUNK as u32).swap_limit(CHUNKS * CHUNK)
}

const FLOOD: u64 = 1;
const FLOODED: u64 = 2;
const ECHO: u64 = 3;
const PING: u64 = 4;
const PONG: u64 = 5;

/// A client that sends and does not read, and the state of the bytes it has sent.
struct Flood {
    flooder: Source,
    flooded: Source,
    /// The program keeps the leases, or writes them back to the client.
    kept: Option<Vec<Buf>>,
    bytes: usize,
}

impl Flood {
    fn start<H: Harness>(b: &mut Bench<H::Driver>, keeps: bool) -> Flood {
        let (flooder, flooded) = b.pair();
        b.narrow(flooded);
        b.submit(Op::read(flooded).multishot().token(FLOODED));
        b.submit(Op::write(flooder, vec![1; 1 << 16]).token(FLOOD));
        Flood { flooder, flooded, kept: keeps.then(Vec::new), bytes: 0 }
    }

    /// Fifty other clients send a message and wait for its echo, `rounds` times each; all reads are
    /// multishot.
    fn beside<H: Harness>(&mut self, b: &mut Bench<H::Driver>, clients: &[Source], rounds: usize) {
        for &client in clients {
            b.submit(Op::write(client, "ping").token(PING));
            b.submit(Op::read_exact(client, room(4), 4).token(PONG));
        }
        let mut answered = 0;
        while answered < clients.len() * rounds {
            let c = b.next();
            match (c.token, c.result) {
                (FLOOD | FLOODED, result) => {
                    self.take::<H>(b, c.token, result.expect("it goes on"))
                }
                (ECHO, Ok(Done::Read(data))) => {
                    b.submit(Op::write(c.source, data).token(PING));
                }
                (PING, Ok(Done::Written { .. })) => {}
                (PONG, Ok(Done::Read(data))) => {
                    assert_eq!(&*data, b"ping");
                    answered += 1;
                    if answered + clients.len() <= clients.len() * rounds {
                        b.submit(Op::write(c.source, "ping").token(PING));
                        b.submit(Op::read_exact(c.source, room(4), 4).token(PONG));
                    }
                }
                (token, other) => panic!("{token}: {other:?}"),
            }
        }
    }

    fn take<H: Harness>(&mut self, b: &mut Bench<H::Driver>, token: u64, done: Done) {
        match (token, done) {
            (FLOOD, Done::Written { buf, .. }) => {
                b.submit(Op::write(self.flooder, buf).token(FLOOD));
            }
            (FLOODED, Done::Read(data)) => {
                self.bytes += data.len();
                match &mut self.kept {
                    Some(kept) => kept.push(data),
                    None => drop(b.submit(Op::write(self.flooded, data).token(FLOODED))),
                }
            }
            (FLOODED, Done::Written { .. }) => {}
            (token, other) => panic!("{token}: {other:?}"),
        }
    }

    /// Runs until the flood has stood still for a while.
    fn settle<H: Harness>(&mut self, b: &mut Bench<H::Driver>) {
        let mut before = None;
        while before != Some(self.bytes) {
            before = Some(self.bytes);
            b.look_for(Duration::from_millis(20));
            for c in b.now() {
                self.take::<H>(b, c.token, c.result.expect("it goes on"));
            }
            assert!(self.bytes < 1 << 30, "the flood never stands still");
        }
    }
}

/// One flooding client beside fifty others.
fn flood_beside_fifty<H: Harness>(keeps: bool) {
    let mut b = H::bench_with(small_pool());
    let pairs = b.pairs(50);
    for &(_, server) in &pairs {
        b.submit(Op::read(server).multishot().token(ECHO));
    }
    let clients: Vec<Source> = pairs.iter().map(|&(client, _)| client).collect();
    let mut flood = Flood::start::<H>(&mut b, keeps);
    flood.beside::<H>(&mut b, &clients, 20);
    flood.settle::<H>(&mut b);
    let counters = b.watcher.counters();
    assert!(counters.swap_bytes as usize <= CHUNKS * CHUNK, "{counters:?}");
    assert!(counters.share_waits > 0, "it has had its share: {counters:?}");
    // The loop sleeps while no bytes come.
    b.pass(Duration::from_millis(100));
    let turns = b.watcher.counters().turns - counters.turns;
    assert!(turns < 20, "{turns} turns while all wait");
    // The other clients still go on.
    flood.beside::<H>(&mut b, &clients, 2);
    // The flood resumes when its leases come back: the client reads, or the program drops them.
    let before = flood.bytes;
    let wanted = before + 4 * CHUNKS * CHUNK;
    match &mut flood.kept {
        Some(kept) => {
            // On another thread, while the loop sleeps or is about to.
            let kept = std::mem::take(kept);
            std::thread::spawn(move || drop(kept)).join().expect("it drops them");
        }
        None => drop(b.submit(Op::read(flood.flooder).multishot().token(PONG))),
    }
    while flood.bytes < wanted {
        let c = b.next();
        match (c.token, c.result) {
            (PONG, Ok(Done::Read(_))) => {}
            (token, result) => flood.take::<H>(&mut b, token, result.expect("it goes on")),
        }
        if let Some(kept) = &mut flood.kept {
            kept.clear();
        }
    }
    b.watcher.close();
}

/// One client sends and never reads, so that its echo is stuck: fifty others go on.
pub fn a_peer_that_never_reads_takes_its_share_only<H: Harness>() {
    flood_beside_fifty::<H>(false);
}

/// The program keeps what one client sends: fifty others go on.
pub fn leases_that_are_kept_are_a_share_only<H: Harness>() {
    flood_beside_fifty::<H>(true);
}

/// Ten clients send and never read: each gets its share, and some buffers stay free.
pub fn ten_floods_leave_some<H: Harness>() {
    let mut b = H::bench_with(small_pool());
    let pairs = b.pairs(10);
    for &(_, server) in &pairs {
        b.submit(Op::read(server).multishot().token(ECHO));
    }
    let clients: Vec<Source> = pairs.iter().map(|&(client, _)| client).collect();
    let mut floods: Vec<Flood> = (0..10).map(|_| Flood::start::<H>(&mut b, true)).collect();
    let mut last = 0;
    loop {
        b.look_for(Duration::from_millis(20));
        for c in b.now() {
            let of = |f: &&mut Flood| f.flooded == c.source || f.flooder == c.source;
            let flood = floods.iter_mut().find(of).expect("one of them");
            flood.take::<H>(&mut b, c.token, c.result.expect("it goes on"));
        }
        let bytes = floods.iter().map(|flood| flood.bytes).sum();
        if std::mem::replace(&mut last, bytes) == bytes {
            break;
        }
        assert!(bytes <= CHUNKS * CHUNK, "more bytes than the pool has");
    }
    assert!(floods.iter().all(|flood| flood.bytes > 0), "each has one at least");
    assert!(b.watcher.counters().share_waits >= 10);
    floods[0].beside::<H>(&mut b, &clients, 10);
    b.watcher.close();
}

/// A dozen sources flood a pool of eight swap buffers with small messages, and the program keeps
/// the leases: at the end one buffer has room left, but it is not a whole one. The reads were
/// resumed for it in every turn, and the loop never slept.
pub fn reads_that_wait_for_whole_buffers_let_the_loop_sleep<H: Harness>() {
    let mut b = H::bench_with(Watcher::builder().buffer_size(4096).swap_limit(8 * 4096));
    let pairs = b.pairs(12);
    for &(here, _) in &pairs {
        b.submit(Op::read(here).multishot());
    }
    let mut kept = Vec::new();
    loop {
        for &(_, there) in &pairs {
            let write = b.submit(Op::write(there, vec![7; 100]));
            b.end(write);
        }
        b.look_for(Duration::from_millis(20));
        let come = b.now();
        if come.is_empty() {
            break;
        }
        kept.extend(come.into_iter().map(expect_read));
    }
    let before = b.watcher.counters();
    b.pass(Duration::from_millis(100));
    let after = b.watcher.counters();
    assert!(after.turns - before.turns < 20, "it never sleeps: {before:?}, then {after:?}");
    drop(kept);
    assert!(!b.take(12).is_empty());
    b.watcher.close();
}

/// Sixty sources wait, and leases come back one by one: each lease resumes one source, not all.
pub fn one_lease_lets_one_read_go_on<H: Harness>() {
    const MANY: usize = 60;
    let mut b = H::bench_with(Watcher::builder().buffer_size(1024).swap_limit(4 * 1024));
    let pairs = b.pairs(MANY);
    for &(_, there) in &pairs {
        b.write(there, pattern(4096, 1));
    }
    b.pass(Duration::from_millis(20));
    let reads: Vec<_> = pairs.iter().map(|&(here, _)| b.submit(Op::read(here))).collect();
    b.look_for(Duration::from_millis(10));
    let before = b.watcher.counters().lease_waits;
    let mut held: VecDeque<Buf> = VecDeque::new();
    let mut served = 0;
    while served < MANY {
        // The test holds all leases until no more bytes come.
        let come = b.now();
        if come.is_empty() {
            held.pop_front();
            b.look_for(Duration::from_micros(500));
        }
        for c in come {
            assert!(reads.contains(&c.ticket()));
            served += 1;
            held.push_back(expect_read(c));
        }
    }
    let waits = b.watcher.counters().lease_waits - before;
    assert!(waits <= 5 * MANY as u64, "{waits} waits for {MANY} leases: all are woken each time");
    b.expect_all_ended();
}
