//! The output of connections with TLS: how far ahead it is encrypted, in how many records, and what
//! of it counts as waiting and as not sent. On every driver and in the simulation.
//!
//! Of the promises on the page of the crate: P2 and P3.

use std::time::Duration;

use crate::common::{Bench, Harness, bench_with};
use crate::tls;
use windlass::driver::Driver;
use windlass::{Buf, Source, Watcher};
use windlass_serve::tls::{Provider, Session, TlsClient, Version};
use windlass_serve::{Action, Cause, Closed, Config, Conn, Context, Handler, Id, Limits, Server};

crate::every_driver! {
    a_turn_leaves_in_as_few_records_as_fit
    a_slow_peer_has_little_encrypted_for_it
    what_waits_in_pieces_comes_whole
    text_behind_text_comes_in_order
    a_write_that_fails_is_counted_in_text
    a_close_waits_for_all_text
    a_change_of_keys_is_answered_at_once
    a_stalled_peer_ends_in_time
    small_buffers_of_the_pool_are_enough
}

const MIB: usize = 1 << 20;

/// Does what the first byte of the input says.
struct Asked {
    id: Option<Id>,
    drained: usize,
    written: usize,
    announced: usize,
    closed: Vec<(Cause, usize)>,
}

impl Handler for Asked {
    type State = ();
    fn data(&mut self, c: &mut Conn<'_, ()>, data: Buf) -> Action {
        self.id = Some(c.id());
        match data[0] {
            b'e' => {
                c.write("ok");
                Action::None
            }
            b'p' => {
                // Small and long ones, copied and moved.
                for at in 0..300_u32 {
                    c.write_slice(&text(at as usize, 100));
                    c.write(text(100 + at as usize, 700));
                }
                Action::None
            }
            b'm' => {
                c.write(text(0, 10 * MIB));
                Action::None
            }
            b's' => {
                for at in 0..100 {
                    c.write(text(at * 50_000, 50_000));
                }
                Action::None
            }
            b'c' => {
                c.write(text(0, 3 * MIB));
                Action::Close
            }
            _ => Action::None,
        }
    }
    fn prewrite(&mut self, _: &mut Conn<'_, ()>, amount: usize) -> Action {
        self.announced += amount;
        Action::None
    }
    fn postwrite(&mut self, _: &mut Conn<'_, ()>, amount: usize, _: usize) -> Action {
        self.written += amount;
        Action::None
    }
    fn drained(&mut self, _: &mut Conn<'_, ()>) -> Action {
        self.drained += 1;
        Action::None
    }
    fn closed(&mut self, _: &mut Context<'_, ()>, closed: Closed<()>) -> Action {
        self.closed.push((closed.cause, closed.unsent));
        Action::None
    }
}

/// Text that differs from place to place.
fn text(from: usize, len: usize) -> Vec<u8> {
    (from..from + len).map(|at| (at ^ at >> 8 ^ at >> 16) as u8).collect()
}

type Served<T> = Bench<<T as Harness>::Driver, Asked>;

fn serve<T: Harness>(builder: windlass::Builder, limits: Limits) -> (Served<T>, TlsClient) {
    let (_, tls, client) = tls::settings(Provider::Ring);
    let make = |_| Asked { id: None, drained: 0, written: 0, announced: 0, closed: Vec::new() };
    let server = Server::new(make).config(Config::new().limits(limits));
    let server = server.listen("tcp://127.0.0.1:0").unwrap().tls(tls.build().unwrap());
    (bench_with::<T, _, _>(builder, server), client.build().unwrap())
}

fn limits() -> Limits {
    Limits::new().idle(None).write_stall(None)
}

/// A client: a session above a plain one of the bench.
struct Peer {
    client: Source,
    session: Session,
    fed: usize,
    plain: Vec<u8>,
}

impl Peer {
    fn open<D: Driver>(b: &mut Bench<D, Asked>, tls: &TlsClient) -> Peer {
        let client = b.connect();
        b.clients.all.get_mut(&client).unwrap().stays = true;
        let session = Session::client(tls, "localhost").unwrap();
        let mut peer = Peer { client, session, fed: 0, plain: Vec::new() };
        peer.until(b, "it is open", |peer, _| peer.session.is_open());
        // The tickets come before the answer.
        peer.say(b, b"e");
        peer.until(b, "it is answered", |peer, _| peer.plain == b"ok");
        peer.plain.clear();
        let handler = b.running.handler();
        (handler.id, handler.announced, handler.written) = (None, 0, 0);
        peer
    }

    fn pump<D: Driver>(&mut self, b: &mut Bench<D, Asked>) {
        let heard = &b.client(self.client).heard[self.fed..];
        let count = heard.len();
        self.session.feed_into(heard, &mut self.plain).expect("records");
        self.fed += count;
        self.flush(b);
    }

    fn flush<D: Driver>(&mut self, b: &mut Bench<D, Asked>) {
        let mut out = Vec::new();
        self.session.take_output(&mut out);
        if !out.is_empty() {
            b.say(self.client, out);
        }
    }

    #[track_caller]
    fn until<D: Driver>(
        &mut self,
        b: &mut Bench<D, Asked>,
        what: &str,
        ready: impl Fn(&mut Peer, &mut Bench<D, Asked>) -> bool,
    ) {
        self.pump(b);
        b.until(what, |b| {
            self.pump(b);
            ready(self, b)
        });
    }

    fn say<D: Driver>(&mut self, b: &mut Bench<D, Asked>, what: &[u8]) {
        let mut out = Vec::new();
        self.session.write_all(what, &mut out).unwrap();
        b.say(self.client, out);
    }

    /// Asks for something, and does not read the answer.
    fn ask_deaf<D: Driver>(&mut self, b: &mut Bench<D, Asked>, what: &[u8]) -> Id {
        b.deafen(self.client);
        self.say(b, what);
        b.until("it is asked", |b| b.running.handler().id.is_some());
        b.run_for(Duration::from_millis(200));
        b.running.handler().id.unwrap()
    }
}

/// The lengths of the records in a part of what a client has heard.
fn records(mut bytes: &[u8]) -> Vec<usize> {
    let mut lens = Vec::new();
    while !bytes.is_empty() {
        let len = usize::from(u16::from_be_bytes([bytes[3], bytes[4]]));
        lens.push(len);
        bytes = &bytes[5 + len..];
    }
    lens
}

fn a_turn_leaves_in_as_few_records_as_fit<T: Harness>() {
    let (mut b, tls) = serve::<T>(Watcher::builder(), limits());
    let mut peer = Peer::open(&mut b, &tls);
    let before = peer.fed;
    peer.say(&mut b, b"p");
    peer.until(&mut b, "all has come", |peer, _| peer.plain.len() == 300 * 800);
    let expected: Vec<u8> =
        (0..300_usize).flat_map(|at| [text(at, 100), text(100 + at, 700)].concat()).collect();
    assert!(peer.plain == expected);
    // 16 KiB of text, its kind and the tag.
    let lens = records(&b.client(peer.client).heard[before..]);
    assert_eq!(lens.len(), (300 * 800_usize).div_ceil(16 << 10), "{lens:?}");
    assert!(lens[..lens.len() - 1].iter().all(|len| *len == (16 << 10) + 17), "{lens:?}");
    let handler = b.running.handler();
    assert_eq!((handler.announced, handler.written), (300 * 800, 300 * 800));
}

fn a_slow_peer_has_little_encrypted_for_it<T: Harness>() {
    let (mut b, tls) = serve::<T>(Watcher::builder(), limits());
    let mut peer = Peer::open(&mut b, &tls);
    let id = peer.ask_deaf(&mut b, b"m");
    let source = b.running.engine().source(id).unwrap();
    let queued = b.watcher.queued_bytes(source).unwrap();
    // One piece ahead, and the next one.
    assert!(queued > 0 && queued <= (64 << 10) + 66_000, "{queued}");
    let waiting = b.running.engine().waiting(id);
    assert!(waiting > 5 * MIB && waiting <= 10 * MIB, "{waiting}");
    // It counts once.
    assert_eq!(b.running.engine().budget().used(), waiting);
    assert!(b.running.engine().is_full(id));
    let handler = b.running.handler();
    assert_eq!((handler.announced, handler.written), (10 * MIB, 10 * MIB));
    b.hear(peer.client);
    peer.until(&mut b, "all has come", |peer, _| peer.plain.len() == 10 * MIB);
    assert!(peer.plain == text(0, 10 * MIB));
    b.until("it is told", |b| b.running.handler().drained == 1);
    b.until("nothing waits", |b| b.running.engine().budget().used() == 0);
    assert_eq!(b.running.engine().waiting(id), 0);
}

fn what_waits_in_pieces_comes_whole<T: Harness>() {
    let (mut b, tls) = serve::<T>(Watcher::builder(), limits());
    let mut peer = Peer::open(&mut b, &tls);
    peer.say(&mut b, b"s");
    peer.until(&mut b, "all has come", |peer, _| peer.plain.len() == 5_000_000);
    assert!(peer.plain == text(0, 5_000_000));
}

/// What is written while other text waits goes behind it, also a short one.
fn text_behind_text_comes_in_order<T: Harness>() {
    let (mut b, tls) = serve::<T>(Watcher::builder(), limits());
    let mut peer = Peer::open(&mut b, &tls);
    let id = peer.ask_deaf(&mut b, b"m");
    for _ in 0..100 {
        b.running.engine().write_slice(id, b"short").unwrap();
        b.turn(Duration::ZERO);
    }
    b.hear(peer.client);
    let len = 10 * MIB + 500;
    peer.until(&mut b, "all has come", |peer, _| peer.plain.len() == len);
    assert!(peer.plain == [text(0, 10 * MIB), b"short".repeat(100)].concat());
    let handler = b.running.handler();
    assert_eq!((handler.announced, handler.written), (len, len));
}

/// Text that waits counts as it is, and records that wait with the text in them.
fn a_write_that_fails_is_counted_in_text<T: Harness>() {
    let (mut b, tls) = serve::<T>(Watcher::builder(), limits());
    let mut peer = Peer::open(&mut b, &tls);
    let id = peer.ask_deaf(&mut b, b"m");
    assert!(b.running.engine().abort(id));
    b.until("it has ended", |b| !b.running.handler().closed.is_empty());
    let (cause, unsent) = b.running.handler().closed[0];
    assert_eq!(cause, Cause::Aborted);
    // What the system has taken are whole pieces or whole records: nothing but text is counted.
    assert!(unsent > 5 * MIB && unsent <= 10 * MIB, "{unsent}");
    assert_eq!((10 * MIB - unsent) % (16 << 10), 0, "{unsent}");
}

fn a_close_waits_for_all_text<T: Harness>() {
    let (mut b, tls) = serve::<T>(Watcher::builder(), limits().close(Duration::from_secs(60)));
    let mut peer = Peer::open(&mut b, &tls);
    peer.ask_deaf(&mut b, b"c");
    b.hear(peer.client);
    peer.until(&mut b, "the end has come", |peer, b| b.client(peer.client).eof);
    assert!(peer.session.end_of_input().is_ok(), "close_notify is behind all text");
    assert!(peer.plain == text(0, 3 * MIB));
    b.watcher.abort(peer.client);
    b.until("it has ended", |b| !b.running.handler().closed.is_empty());
    assert_eq!(b.running.handler().closed, [(Cause::Closed, 0)]);
}

/// The answer waited for the next write of the program, and a peer that only sends never got it.
fn a_change_of_keys_is_answered_at_once<T: Harness>() {
    let (mut b, tls) = serve::<T>(Watcher::builder(), limits());
    let mut peer = Peer::open(&mut b, &tls);
    assert_eq!(peer.session.version(), Some(Version::Tls13));
    for _ in 0..3 {
        let before = peer.fed;
        assert!(peer.session.update_keys());
        peer.flush(&mut b);
        // A record with the five bytes of the answer.
        let whole = before + 5 + 5 + 17;
        b.until("it is answered", |b| b.client(peer.client).heard.len() >= whole);
        peer.pump(&mut b);
        assert_eq!(records(&b.client(peer.client).heard[before..]).len(), 1);
    }
    peer.say(&mut b, b"p");
    peer.until(&mut b, "it goes on", |peer, _| peer.plain.len() == 300 * 800);
}

fn a_stalled_peer_ends_in_time<T: Harness>() {
    let limits = Limits::new().idle(None).write_stall(T::span(30.0));
    let (mut b, tls) = serve::<T>(Watcher::builder(), limits);
    let mut peer = Peer::open(&mut b, &tls);
    peer.ask_deaf(&mut b, b"m");
    b.until("it has ended", |b| !b.running.handler().closed.is_empty());
    let (cause, unsent) = b.running.handler().closed[0];
    assert!(cause == Cause::WriteStall && unsent > 5 * MIB, "{cause:?}, {unsent}");
    assert_eq!(b.running.engine().budget().used(), 0);
}

/// No record fits into a buffer of 4 KiB: it goes through memory of its own.
fn small_buffers_of_the_pool_are_enough<T: Harness>() {
    let builder = Watcher::builder().buffer_size(4096).swap_limit(8 * 4096);
    let (mut b, tls) = serve::<T>(builder, limits());
    let mut peer = Peer::open(&mut b, &tls);
    let before = peer.fed;
    peer.say(&mut b, b"p");
    peer.until(&mut b, "all has come", |peer, _| peer.plain.len() == 300 * 800);
    let lens = records(&b.client(peer.client).heard[before..]);
    assert_eq!(lens.len(), (300 * 800_usize).div_ceil(16 << 10), "{lens:?}");
    peer.say(&mut b, b"m");
    peer.until(&mut b, "all has come", |peer, _| peer.plain.len() == 300 * 800 + 10 * MIB);
    assert!(peer.plain[300 * 800..] == text(0, 10 * MIB));
}
