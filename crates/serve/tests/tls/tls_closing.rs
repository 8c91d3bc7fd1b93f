//! The ends of connections with TLS, where the peer does not take them, cuts its side, or goes on
//! behind its own end: on every driver and in the simulation.
//!
//! Of the promises on the page of the crate: P1, P2 and P3.

use std::time::Duration;

use crate::common::{Bench, Harness, bench_with};
use crate::peer::Peer;
use crate::tls;
use windlass::sim::Sim;
use windlass::{Buf, Builder, Watcher};
use windlass_serve::tls::{Provider, SessionState, TlsClient, Version};
use windlass_serve::{Action, Cause, Closed, Config, Conn, Context, Handler, Id, Limits, Server};

crate::every_kernel! {
    a_cut_does_not_keep_a_close_from_its_output
    broken_input_does_not_keep_a_close_from_its_output
    what_follows_the_end_is_no_second_end
    a_program_that_keeps_its_input_holds_up_no_other_connection
}

#[test]
fn an_end_that_is_not_taken_is_a_reset() {
    each_end_is_taken_or_a_reset::<Small>();
}

#[test]
fn an_end_that_is_not_taken_is_a_reset_on_a_kernel_that_completes() {
    each_end_is_taken_or_a_reset::<SmallCompleting>();
}

/// A simulated system that holds few bytes for a socket.
struct Small;

/// The same, with a kernel that completes.
struct SmallCompleting;

const BUFFER: usize = 4096;

fn small(builder: &Builder, completes: bool) -> Watcher {
    let sim = Sim::new(1);
    sim.set_buffer(BUFFER);
    sim.set_completing(completes);
    Watcher::simulated_with(&sim, builder.config())
}

impl Harness for Small {
    type Driver = windlass::driver::Auto;
    const NAME: &'static str = "small";
    const VIRTUAL: bool = true;
    fn watcher(builder: Builder) -> Watcher {
        small(&builder, false)
    }
}

impl Harness for SmallCompleting {
    type Driver = windlass::driver::Auto;
    const NAME: &'static str = "small, completes";
    const VIRTUAL: bool = true;
    fn watcher(builder: Builder) -> Watcher {
        small(&builder, true)
    }
}

/// Does what the first byte of the input says.
#[derive(Default)]
struct Asked {
    id: Option<Id>,
    /// How much it answers.
    len: usize,
    heard: Vec<u8>,
    /// All input, once it begins to keep it.
    kept: Option<Vec<Buf>>,
    ends: usize,
    closed: Vec<(Cause, usize, Option<String>)>,
}

impl Handler for Asked {
    type State = ();
    fn data(&mut self, c: &mut Conn<'_, ()>, data: Buf) -> Action {
        self.id = Some(c.id());
        self.heard.extend_from_slice(&data);
        if let Some(kept) = &mut self.kept {
            kept.push(data);
            return Action::None;
        }
        match data[0] {
            b'w' => {
                c.write(text(self.len));
                Action::None
            }
            b'c' => {
                c.write(text(self.len));
                Action::Close
            }
            b'p' => {
                c.pause();
                Action::None
            }
            _ => Action::None,
        }
    }
    fn eof(&mut self, _: &mut Conn<'_, ()>) -> Action {
        self.ends += 1;
        Action::None
    }
    fn closed(&mut self, _: &mut Context<'_, ()>, closed: Closed<()>) -> Action {
        let error = closed.tls_error.map(|error| error.to_string());
        self.closed.push((closed.cause, closed.unsent, error));
        Action::None
    }
}

fn text(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at ^ at >> 8 ^ at >> 16) as u8).collect()
}

type Served<T> = Bench<<T as Harness>::Driver, Asked>;

fn serve<T: Harness>(version: Version, limits: Limits) -> (Served<T>, TlsClient) {
    serve_on::<T>(Watcher::builder(), version, limits)
}

fn serve_on<T: Harness>(
    builder: Builder,
    version: Version,
    limits: Limits,
) -> (Served<T>, TlsClient) {
    let (_, tls, client) = tls::settings(Provider::Ring);
    let limits = limits.idle(None).write_stall(None);
    let config = Config::new().limits(limits).close_on_eof(false);
    let server = Server::new(|_| Asked::default()).config(config);
    let tls = tls.versions([version]).build().unwrap();
    let server = server.listen("tcp://127.0.0.1:0").unwrap().tls(tls);
    (bench_with::<T, _, _>(builder, server), client.build().unwrap())
}

/// An open connection, whose tickets have come.
fn open<T: Harness>(b: &mut Served<T>, tls: &TlsClient) -> Peer {
    let mut peer = Peer::open(b, tls);
    b.clients.all.get_mut(&peer.client).unwrap().stays = true;
    b.running.handler().len = 1;
    peer.say(b, b"w");
    peer.until(b, "it is answered", |peer, _| peer.plain.len() == 1);
    peer.plain.clear();
    let handler = b.running.handler();
    handler.id = None;
    handler.heard.clear();
    peer
}

/// The last record of an answer has room, has none, or has room for a part of it. The peer reads
/// when the time of the close is over.
fn each_end_is_taken_or_a_reset<T: Harness>() {
    for version in [Version::Tls12, Version::Tls13] {
        for breaks in [false, true] {
            let (mut whole, mut resets) = (0, 0);
            // What the system holds for a connection.
            for len in BUFFER - 66..BUFFER - 14 {
                let (mut b, tls) = serve::<T>(version, Limits::new().close(T::span(5.0)));
                let mut peer = open::<T>(&mut b, &tls);
                b.deafen(peer.client);
                b.running.handler().len = len;
                peer.say(&mut b, if breaks { b"w" } else { b"c" });
                b.until("it is asked", |b| b.running.handler().id.is_some());
                if breaks {
                    b.say(peer.client, [23, 3, 3, 0, 20].repeat(5));
                }
                b.until("it has ended", |b| !b.running.handler().closed.is_empty());
                let (cause, unsent, _) = b.running.handler().closed[0].clone();
                assert_eq!(cause, if breaks { Cause::Tls } else { Cause::Closed });
                b.hear(peer.client);
                peer.until(&mut b, "the client has its end", |p, b| b.client(p.client).is_over());
                peer.pump(&mut b);
                let state = peer.session.state();
                let told = format!(
                    "{} {version:?} {len} {breaks}: {unsent} unsent, {} of {len}, {state:?} {:?}",
                    T::NAME,
                    peer.plain.len(),
                    b.client(peer.client).error
                );
                if b.client(peer.client).error.is_some() {
                    resets += 1;
                    continue;
                }
                // An end of file: behind all text, and behind `close_notify` or the alert.
                assert_eq!(peer.plain.len(), len, "{told}");
                let expected = if breaks { SessionState::Failed } else { SessionState::PeerClosed };
                assert_eq!(state, expected, "{told}");
                whole += 1;
            }
            let told = format!("{version:?} {breaks}: {whole} have all, and {resets} resets");
            assert!(whole > 0 && resets > 0, "{told}");
        }
    }
}

const MIB: usize = 1 << 20;

/// Asks for more than the system holds, and for a close behind it.
fn ask_deaf<T: Harness>(b: &mut Served<T>, tls: &TlsClient) -> Peer {
    let mut peer = open::<T>(b, tls);
    b.deafen(peer.client);
    b.running.handler().len = 3 * MIB;
    peer.say(b, b"c");
    b.until("it is asked", |b| b.running.handler().id.is_some());
    b.run_for(Duration::from_millis(50));
    peer
}

fn all_comes<T: Harness>(mut b: Served<T>, mut peer: Peer) {
    b.run_for(Duration::from_millis(50));
    b.hear(peer.client);
    peer.until(&mut b, "the client has its end", |p, b| b.client(p.client).is_over());
    peer.pump(&mut b);
    let (plain, state) = (peer.plain.len(), peer.session.state());
    let told = format!("{plain} {state:?} {:?}", b.client(peer.client).error);
    assert!(peer.plain == text(3 * MIB) && state == SessionState::PeerClosed, "{told}");
    b.watcher.abort(peer.client);
    b.until("it has ended", |b| !b.running.handler().closed.is_empty());
    assert_eq!(b.running.handler().closed, [(Cause::Closed, 0, None)]);
    b.until("nothing is left", |b| b.running.engine().is_empty());
    assert_eq!(b.running.engine().budget().used(), 0);
}

/// A client that writes no more, and says so only to the system, as many do.
fn a_cut_does_not_keep_a_close_from_its_output<T: Harness>() {
    let (mut b, tls) = serve::<T>(Version::Tls13, Limits::new().close(Duration::from_secs(60)));
    let peer = ask_deaf::<T>(&mut b, &tls);
    b.finish(peer.client);
    all_comes::<T>(b, peer);
}

/// Further input of a connection that closes does not matter, also where it is no record.
fn broken_input_does_not_keep_a_close_from_its_output<T: Harness>() {
    let (mut b, tls) = serve::<T>(Version::Tls13, Limits::new().close(Duration::from_secs(60)));
    let peer = ask_deaf::<T>(&mut b, &tls);
    b.say(peer.client, [23, 3, 3, 0, 20].repeat(5));
    all_comes::<T>(b, peer);
}

/// The data that pauses the connection, `close_notify`, and bytes behind it come in one turn.
fn what_follows_the_end_is_no_second_end<T: Harness>() {
    for in_pieces in [false, true] {
        let (mut b, tls) = serve::<T>(Version::Tls13, Limits::new());
        let mut peer = open::<T>(&mut b, &tls);
        let mut out = Vec::new();
        peer.session.write_all(b"pause", &mut out).unwrap();
        peer.session.close();
        let first = out.len();
        peer.session.take_output(&mut out);
        let rest = out.split_off(if in_pieces { first } else { out.len() });
        b.say(peer.client, out);
        b.until("it is paused", |b| b.running.handler().id.is_some());
        let id = b.running.handler().id.unwrap();
        if in_pieces {
            b.say(peer.client, rest);
        }
        for _ in 0..5 {
            b.say(peer.client, b"what is this?".to_vec());
            b.run_for(Duration::from_millis(10));
        }
        for _ in 0..3 {
            b.running.engine().resume(id);
            b.run_for(Duration::from_millis(20));
            b.say(peer.client, b"what is this?".to_vec());
            b.running.engine().pause(id);
            b.run_for(Duration::from_millis(20));
        }
        b.running.engine().resume(id);
        b.until("it has heard the end", |b| b.running.handler().ends > 0);
        b.run_for(Duration::from_millis(20));
        assert_eq!((b.running.handler().ends, &b.running.handler().heard[..]), (1, &b"pause"[..]));
    }
}

/// A record becomes many pieces, because a buffer of the pool has room for a small part of it.
fn a_program_that_keeps_its_input_holds_up_no_other_connection<T: Harness>() {
    let builder = Watcher::builder().buffer_size(256).swap_limit(32 * 256);
    let (mut b, tls) = serve_on::<T>(builder, Version::Tls13, Limits::new());
    let mut peer = open::<T>(&mut b, &tls);
    let mut other = open::<T>(&mut b, &tls);
    b.running.handler().kept = Some(Vec::new());
    for round in 1..=10 {
        peer.say(&mut b, &text(16 << 10));
        b.until("all has come", |b| b.running.handler().heard.len() == round * (16 << 10));
    }
    let kept = b.running.handler().kept.take();
    b.running.handler().len = 100;
    other.say(&mut b, b"w");
    other.until(&mut b, "it is answered", |peer, _| peer.plain.len() == 100);
    drop(kept);
}
