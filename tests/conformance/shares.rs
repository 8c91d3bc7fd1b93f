//! C8 and C9 when swap buffers run out: waiting reads get whole buffers in turn, and the queued
//! writes of one source hold its share at most.

use std::collections::VecDeque;
use std::time::Duration;

use windlass::{
    Buf, Builder, Completion, Done, ErrorKind, Lease, Limit, Op, Refusal, Source, Ticket, Watcher,
};

use crate::common::*;

const CHUNK: usize = 4096;
const CHUNKS: usize = 64;
/// More than one wait of a driver takes.
const CLIENTS: usize = 70;

fn small_pool() -> Builder {
    Watcher::builder().buffer_size(CHUNK as u32).swap_limit(CHUNKS * CHUNK)
}

const FLOOD: u64 = 1;
const FLOODED: u64 = 2;
const ECHO: u64 = 3;
const PING: u64 = 4;
const PONG: u64 = 5;
const ANSWER: u64 = 6;

/// What the program does with the bytes of a flood.
#[derive(Clone, Copy, PartialEq)]
enum To {
    /// Writes them back to the peer that sent them.
    Itself,
    /// Writes them to this source.
    Other(Source),
    /// Drops them, and writes an answer of its own, which it has made in a swap buffer.
    Answer,
}

/// A peer that sends and does not read.
struct Flood {
    flooder: Source,
    flooded: Source,
    to: To,
    multishot: bool,
    bytes: usize,
}

impl Flood {
    fn start<H: Harness>(b: &mut Bench<H::Driver>, to: To, multishot: bool) -> Flood {
        let (flooder, flooded) = b.pair();
        b.narrow(flooded);
        b.submit(Op::write(flooder, vec![1; 1 << 16]).token(FLOOD));
        let flood = Flood { flooder, flooded, to, multishot, bytes: 0 };
        flood.read::<H>(b);
        flood
    }

    fn read<H: Harness>(&self, b: &mut Bench<H::Driver>) {
        let read = Op::read(self.flooded).token(FLOODED);
        b.submit(if self.multishot { read.multishot() } else { read });
    }

    fn take<H: Harness>(&mut self, b: &mut Bench<H::Driver>, c: Completion) {
        let has_more = c.has_more();
        match (c.token, c.result.expect("it goes on")) {
            (FLOOD, Done::Written { buf, .. }) => {
                b.submit(Op::write(self.flooder, buf).token(FLOOD));
            }
            (FLOODED, Done::Read(data)) => {
                assert!(!data.is_empty() && has_more == self.multishot);
                self.bytes += data.len();
                let (to, data) = match self.to {
                    To::Itself => (self.flooded, data),
                    To::Other(other) => (other, data),
                    To::Answer => {
                        drop(data);
                        let Ok(answer) = b.watcher.lease(|space| space.len()) else {
                            panic!("one peer has the whole pool: {:?}", b.watcher.counters())
                        };
                        (self.flooded, Buf::from(answer))
                    }
                };
                b.submit(Op::write(to, data).token(ANSWER));
                if !self.multishot {
                    self.read::<H>(b);
                }
            }
            (token, other) => panic!("{token}: {other:?}"),
        }
    }
}

/// Honest clients beside floods.
struct Clients {
    pairs: Vec<(Source, Source)>,
    multishot: bool,
}

impl Clients {
    fn new<H: Harness>(b: &mut Bench<H::Driver>, multishot: bool) -> Clients {
        let pairs = b.pairs(CLIENTS);
        for &(_, server) in &pairs {
            let read = Op::read(server).token(ECHO);
            b.submit(if multishot { read.multishot() } else { read });
        }
        Clients { pairs, multishot }
    }

    /// Each client sends a message and waits for its echo, `rounds` times.
    fn are_served<H: Harness>(
        &self,
        b: &mut Bench<H::Driver>,
        floods: &mut [Flood],
        rounds: usize,
    ) {
        for &(client, _) in &self.pairs {
            b.submit(Op::write(client, "ping").token(PING));
            b.submit(Op::read_exact(client, room(4), 4).token(PONG));
        }
        let (mut answered, mut others, all) = (0, 0, self.pairs.len() * rounds);
        while answered < all {
            let c = b.next();
            match c.token {
                FLOOD | FLOODED => {
                    others += 1;
                    assert!(others < 20_000 + 1000 * all, "{answered} of {all} are answered");
                    let of = |f: &&mut Flood| f.flooded == c.source || f.flooder == c.source;
                    floods.iter_mut().find(of).expect("one of them").take::<H>(b, c);
                }
                ECHO => {
                    let Ok(Done::Read(data)) = c.result else { panic!("{c:?}") };
                    b.submit(Op::write(c.source, data).token(PING));
                    if !self.multishot {
                        b.submit(Op::read(c.source).token(ECHO));
                    }
                }
                PONG => {
                    assert_eq!(&*expect_read(c), b"ping");
                    answered += 1;
                    // The last ones have no next round.
                    if answered + self.pairs.len() <= all {
                        let client = self.pairs[answered % self.pairs.len()].0;
                        b.submit(Op::write(client, "ping").token(PING));
                        b.submit(Op::read_exact(client, room(4), 4).token(PONG));
                    }
                }
                PING | ANSWER => {
                    assert!(matches!(c.result, Ok(Done::Written { .. })), "{c:?}");
                }
                token => panic!("{token}: {c:?}"),
            }
        }
    }
}

/// Lets floods run until none of them goes on.
fn settle<H: Harness>(b: &mut Bench<H::Driver>, floods: &mut [Flood]) {
    let bytes = |floods: &[Flood]| floods.iter().map(|flood| flood.bytes).sum::<usize>();
    let mut before = None;
    while before != Some(bytes(floods)) {
        before = Some(bytes(floods));
        b.look_for(Duration::from_millis(20));
        for c in b.now() {
            if c.token == ANSWER {
                continue;
            }
            let of = |f: &&mut Flood| f.flooded == c.source || f.flooder == c.source;
            floods.iter_mut().find(of).expect("one of them").take::<H>(b, c);
        }
        assert!(bytes(floods) < 1 << 28, "the flood never stands still");
    }
}

/// So many peers send and never read: the echoes to them are stuck. Other clients go on.
fn echoes_that_nobody_reads<H: Harness>(count: usize, multishot: bool) {
    let mut b = H::bench_with(small_pool());
    let clients = Clients::new::<H>(&mut b, multishot);
    let start = |b: &mut Bench<H::Driver>| Flood::start::<H>(b, To::Itself, multishot);
    let mut floods: Vec<Flood> = (0..count).map(|_| start(&mut b)).collect();
    clients.are_served::<H>(&mut b, &mut floods, 10);
    settle::<H>(&mut b, &mut floods);
    let counters = b.watcher.counters();
    assert!(counters.swap_bytes as usize <= CHUNKS * CHUNK, "{counters:?}");
    assert!(counters.share_waits >= count as u64, "each has had its share: {counters:?}");
    assert_eq!(counters.waiting_sources, count as u64, "{counters:?}");
    assert!(floods.iter().all(|flood| flood.bytes > 0));
    // The loop sleeps while no bytes come. A kernel that is slow may still have had some.
    let bytes = |floods: &[Flood]| floods.iter().map(|flood| flood.bytes).sum::<usize>();
    let turns = loop {
        let (before, from) = (bytes(&floods), b.watcher.counters().turns);
        b.pass(Duration::from_millis(100));
        let turns = b.watcher.counters().turns - from;
        settle::<H>(&mut b, &mut floods);
        if bytes(&floods) == before {
            break turns;
        }
    };
    assert!(turns < 20, "{turns} turns while all wait");
    clients.are_served::<H>(&mut b, &mut floods, 3);
    // A flood goes on when its peer reads.
    let (peer, before) = (floods[0].flooder, floods[0].bytes);
    b.submit(Op::read(peer).multishot().token(PONG));
    while floods[0].bytes < before + 4 * CHUNKS * CHUNK {
        let c = b.next();
        match c.token {
            PONG | ANSWER => drop(c.result.expect("it goes on")),
            _ => {
                let of = |f: &&mut Flood| f.flooded == c.source || f.flooder == c.source;
                floods.iter_mut().find(of).expect("one of them").take::<H>(&mut b, c);
            }
        }
    }
    // And when other sources leave more of the pool.
    if count > 2 {
        let mut last = floods.remove(1);
        for flood in floods {
            b.watcher.abort(flood.flooded);
            b.watcher.abort(flood.flooder);
        }
        let before = last.bytes;
        while last.bytes == before {
            let c = b.next();
            if !matches!(c.token, PONG | ANSWER)
                && (c.source == last.flooded || c.source == last.flooder)
            {
                last.take::<H>(&mut b, c);
            }
        }
    }
    b.watcher.close();
}

/// One peer that sends and never reads had the whole pool: reads that are submitted again at once
/// had no share.
pub fn a_peer_that_never_reads_takes_its_share_only<H: Harness>() {
    echoes_that_nobody_reads::<H>(1, false);
}

pub fn a_multishot_read_takes_its_share_only<H: Harness>() {
    echoes_that_nobody_reads::<H>(1, true);
}

pub fn eight_peers_that_never_read_leave_some<H: Harness>() {
    echoes_that_nobody_reads::<H>(8, false);
}

pub fn eight_multishot_reads_leave_some<H: Harness>() {
    echoes_that_nobody_reads::<H>(8, true);
}

/// The same with the default settings: 73 MiB that nobody reads stopped all others.
pub fn a_peer_that_never_reads_stops_nobody_by_default<H: Harness>() {
    let mut b = H::bench();
    let clients = Clients::new::<H>(&mut b, false);
    let mut floods = [Flood::start::<H>(&mut b, To::Itself, false)];
    settle::<H>(&mut b, &mut floods);
    let counters = b.watcher.counters();
    assert!(counters.share_waits > 0 && counters.free_swap_bytes > 16 << 20, "{counters:?}");
    assert!(floods[0].bytes < 73 << 20, "{} bytes are queued", floods[0].bytes);
    clients.are_served::<H>(&mut b, &mut floods, 3);
    b.watcher.close();
}

/// Many sources are relayed to one that never reads. No read waits for that queue; what is beyond
/// its share is copied out of the pool.
pub fn a_relay_to_a_peer_that_never_reads_leaves_some<H: Harness>() {
    for multishot in [false, true] {
        let mut b = H::bench_with(small_pool());
        let clients = Clients::new::<H>(&mut b, multishot);
        let (far, _silent) = b.pair();
        b.narrow(far);
        let start = |b: &mut Bench<H::Driver>| Flood::start::<H>(b, To::Other(far), multishot);
        let mut floods: Vec<Flood> = (0..4).map(|_| start(&mut b)).collect();
        clients.are_served::<H>(&mut b, &mut floods, 10);
        while b.watcher.queued_bytes(far).unwrap() < 4 * CHUNKS * CHUNK {
            clients.are_served::<H>(&mut b, &mut floods, 2);
        }
        let counters = b.watcher.counters();
        assert!(counters.copied_leases > 0, "{counters:?}");
        assert!(counters.swap_bytes as usize <= CHUNKS * CHUNK, "{counters:?}");
        b.watcher.close();
    }
}

/// A peer that sends and never reads gets answers that the program makes in swap buffers.
pub fn answers_that_nobody_reads_leave_some<H: Harness>() {
    for multishot in [false, true] {
        let mut b = H::bench_with(small_pool());
        let clients = Clients::new::<H>(&mut b, multishot);
        let mut floods = [Flood::start::<H>(&mut b, To::Answer, multishot)];
        clients.are_served::<H>(&mut b, &mut floods, 10);
        settle::<H>(&mut b, &mut floods);
        assert!(b.watcher.counters().share_waits > 0);
        clients.are_served::<H>(&mut b, &mut floods, 3);
        b.watcher.close();
    }
}

/// A read and a read behind a lease that is queued after it waited for each other for ever, with
/// memory free: the first one for the lease of the second.
pub fn a_read_waits_for_no_lease_behind_it<H: Harness>() {
    for multishot in [false, true] {
        let mut b = H::bench_with(small_pool());
        // The program itself holds most of the pool.
        let fill = |b: &mut Bench<H::Driver>| b.watcher.lease(|space| space.len()).expect("room");
        let held: Vec<_> = (0..CHUNKS * 13 / 16).map(|_| fill(&mut b)).collect();
        let (here, there) = b.pair();
        let read = |b: &mut Bench<H::Driver>| {
            let read = Op::read(here).token(FLOODED);
            b.submit(if multishot { read.multishot() } else { read })
        };
        let mut ticket = read(&mut b);
        b.write(there, "a");
        let lease = expect_read(b.next());
        if !multishot {
            ticket = read(&mut b);
        }
        let append = b.submit(Op::read_append(here, lease));
        for byte in *b"bcdefghijklmnopqrstuvwxyz" {
            b.write(there, [byte].to_vec());
            let c = b.next();
            assert_eq!(c.token, if multishot { FLOODED } else { c.token });
            match c.result {
                Ok(Done::Read(data)) => assert_eq!(&*data, [byte]),
                // Behind a single read it has its turn.
                Ok(Done::Appended { buf, bytes: 1 }) if !multishot => {
                    assert_eq!(&*buf, b"ac");
                    break;
                }
                other => panic!("{other:?}"),
            }
        }
        if multishot {
            assert!(b.watcher.cancel(ticket));
            expect_unmoved(b.end(ticket), ErrorKind::Cancelled);
            assert!(b.watcher.cancel(append));
            assert_eq!(&*expect_unmoved(b.end(append), ErrorKind::Cancelled), b"a");
        }
        drop(held);
        b.expect_all_ended();
    }
}

/// Reads that wait because of their source's writes end like others, and go on when those writes
/// end, however they do.
pub fn reads_that_wait_for_writes_end_like_others<H: Harness>() {
    let mut b = H::bench_with(small_pool());
    let mut floods = [Flood::start::<H>(&mut b, To::Itself, false)];
    settle::<H>(&mut b, &mut floods);
    let (here, there) = (floods[0].flooded, floods[0].flooder);
    assert_eq!(b.watcher.counters().waiting_sources, 1);
    // A read that takes no memory of the pool does not wait.
    b.watcher.cancel_all(here);
    let ended = |c: &Completion| c.token == FLOODED && c.error_kind().is_some();
    while !ended(&b.next()) {}
    b.look_for(Duration::from_millis(5));
    b.now();
    assert_eq!(b.watcher.counters().waiting_sources, 0);
    // Its writes have ended with the cancel, so its reads go on.
    let read = b.submit(Op::read(here));
    assert!(!expect_read(b.end(read)).is_empty());
    b.watcher.abort(there);
    b.watcher.abort(here);
    b.watcher.close();
}

/// A source whose reads wait for its writes: `queue` fills the queue while the pool is nearly
/// unused, then the program takes so much of the pool that a read has to wait.
fn held_read<H: Harness>(
    b: &mut Bench<H::Driver>,
    queue: impl FnOnce(&mut Bench<H::Driver>, Source, Source),
) -> Held {
    let (here, there) = b.pair();
    b.narrow(here);
    // Nothing behind it goes out.
    b.submit(Op::write(here, vec![1; 1 << 20]).token(ANSWER));
    queue(b, here, there);
    let fill = |b: &mut Bench<H::Driver>| b.watcher.lease(|space| space.len()).expect("room");
    let kept: Vec<_> = (0..CHUNKS * 5 / 8).map(|_| fill(b)).collect();
    let read = b.submit(Op::read(here).token(FLOODED));
    b.submit(Op::write(there, "a").token(PING));
    b.look_for(Duration::from_millis(5));
    assert!(b.is_open(read), "it holds its share");
    assert_eq!(b.watcher.counters().waiting_sources, 1);
    Held { ends: [here, there], read, kept }
}

/// A read that waits because of the writes of its source, and the leases of the program.
struct Held {
    ends: [Source; 2],
    read: Ticket,
    kept: Vec<Lease>,
}

impl Held {
    /// The program gives its leases back, and the read goes on.
    fn goes_on<H: Harness>(self, b: &mut Bench<H::Driver>) {
        drop(self.kept);
        assert_eq!(&*expect_read(b.end(self.read)), b"a");
        for end in self.ends {
            b.watcher.abort(end);
        }
        b.watcher.close();
    }
}

/// Queues more leases of small messages than the pool has swap buffers, in few of these.
fn many_leases<H: Harness>(b: &mut Bench<H::Driver>, here: Source, there: Source) {
    for _ in 0..2 * CHUNKS {
        b.write(there, vec![7; 30]);
        let read = b.submit(Op::read(here));
        let lease = expect_read(b.end(read));
        b.submit(Op::write(here, lease).token(ANSWER));
    }
}

/// The read waited for as many free buffers as there are leases, which no pool has.
pub fn more_leases_than_buffers_hold_a_read_only_while_others_hold_the_pool<H: Harness>() {
    let mut b = H::bench_with(small_pool());
    let held = held_read::<H>(&mut b, many_leases::<H>);
    held.goes_on::<H>(&mut b);
}

/// Undelivered completions may hold the swap buffers that the read waits for. The wait never ended.
pub fn a_wait_for_a_read_that_is_held_does_not_hang<H: Harness>() {
    let mut b = H::bench_with(small_pool());
    let held = held_read::<H>(&mut b, many_leases::<H>);
    b.submit(Op::nop().token(PING));
    let error = b.watcher.wait_for(held.read).unwrap_err();
    let full = Refusal::Full { limit: Limit::SwapBytes, count: CHUNKS * CHUNK };
    assert_eq!(Refusal::of(&error), Some(full));
    held.goes_on::<H>(&mut b);
}

/// The kernel went on with a multishot read until half of the pool was in use.
pub fn a_multishot_read_in_flight_waits_for_its_share<H: Harness>() {
    let mut b = H::bench_with(small_pool());
    let (here, there) = b.pair();
    b.narrow(here);
    b.submit(Op::write(here, vec![1; 1 << 20]).token(ANSWER));
    many_leases::<H>(&mut b, here, there);
    b.submit(Op::read(here).multishot().token(FLOODED));
    let fill = |b: &mut Bench<H::Driver>| b.watcher.lease(|space| space.len()).expect("room");
    let kept: Vec<_> = (0..CHUNKS * 3 / 8).map(|_| fill(&mut b)).collect();
    let mut heard = Vec::new();
    // The kernel may have begun to receive the first of these.
    for text in ["a", "b"] {
        b.write(there, text.as_bytes().to_vec());
        b.look_for(Duration::from_millis(5));
        for c in b.now() {
            if c.token == FLOODED {
                heard.extend_from_slice(&expect_read(c));
            }
        }
    }
    assert!(heard.len() < 2, "both have come");
    assert_eq!(b.watcher.counters().waiting_sources, 1);
    drop(kept);
    while heard.len() < 2 {
        let c = b.next();
        if c.token == FLOODED {
            heard.extend_from_slice(&expect_read(c));
        }
    }
    assert_eq!(heard, b"ab");
    b.watcher.abort(here);
    b.watcher.abort(there);
    b.watcher.close();
}

/// A queue of very many writes counts as full, and the read waited until they had ended, although
/// they held nothing of the pool.
pub fn many_writes_hold_a_read_only_while_others_hold_the_pool<H: Harness>() {
    let mut b = H::bench_with(small_pool());
    let held = held_read::<H>(&mut b, |b, here, _| {
        for _ in 0..5000 {
            b.submit(Op::write(here, "x").token(ANSWER));
        }
    });
    held.goes_on::<H>(&mut b);
}

/// The read waited for as many buffers as its writes had held at first, although some of them had
/// gone out since.
pub fn a_read_waits_for_what_its_writes_hold_now<H: Harness>() {
    let mut b = H::bench_with(small_pool());
    let mut floods = [Flood::start::<H>(&mut b, To::Itself, false)];
    settle::<H>(&mut b, &mut floods);
    let (here, there) = (floods[0].flooded, floods[0].flooder);
    assert_eq!(b.watcher.counters().waiting_sources, 1);
    let free = |b: &Bench<H::Driver>| b.watcher.counters().free_swap_bytes as usize / CHUNK;
    let held_at_first = b.watcher.counters().leased_bytes as usize / CHUNK;
    let mut kept = Vec::new();
    while free(&b) > 2 {
        kept.push(b.watcher.lease(|space| space.len()).expect("room"));
    }
    // The peer reads until a third of the pool is queued.
    while b.watcher.queued_bytes(here).unwrap() > CHUNKS * CHUNK / 3 {
        let read = b.submit(Op::read_into(there, room(CHUNK)).token(PONG));
        while b.is_open(read) {
            let c = b.next();
            assert!(c.token != FLOODED, "it goes on too early");
            if c.ticket() == read {
                break;
            }
        }
    }
    // There is room for these writes sooner than for those of the beginning.
    let mut went_on = false;
    while !went_on {
        assert!(free(&b) < held_at_first, "{} are free", free(&b));
        drop(kept.pop());
        b.look_for(Duration::from_millis(1));
        went_on = b.now().iter().any(|c| c.token == FLOODED);
    }
    b.watcher.close();
}

/// Whatever the number of swap buffers, a peer that never reads gets no further when its share is
/// full: its writes are not copied out of the pool to make room for its next read.
pub fn a_flood_stands_still_in_a_pool_of_any_size<H: Harness>() {
    for chunks in [5, 8, 13, 31, 32, 63] {
        for multishot in [false, true] {
            let pool = Watcher::builder().buffer_size(CHUNK as u32).swap_limit(chunks * CHUNK);
            let mut b = H::bench_with(pool);
            let mut floods = [Flood::start::<H>(&mut b, To::Itself, multishot)];
            settle::<H>(&mut b, &mut floods);
            b.watcher.close();
        }
    }
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
