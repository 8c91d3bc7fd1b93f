//! Plain connections that go over to TLS, on every driver and in the simulation: what was read
//! ahead goes along, and nothing passes the border between plain and encrypted.

use std::time::Duration;

use crate::common;
use crate::common::{Bench, Harness, bench, seed};
use crate::tls;
use windlass::driver::Driver;
use windlass::{Buf, Source};
use windlass_serve::framing::{Input, Lines, Prefix, Prefixed};
use windlass_serve::tls::{Provider, Session, SessionState, Tls, TlsClient};
use windlass_serve::{
    Action, Cause, Closed, Config, Conn, Context, Handler, Limits, Refusal, Server,
};

crate::every_kernel! {
    random_transitions_lose_no_byte
    plain_bytes_behind_the_command_are_not_told
    plain_bytes_that_are_held_back_are_not_told
    a_peer_that_says_nothing_has_the_time_of_the_handshake
    the_idle_time_comes_back_behind_the_handshake
    much_output_does_not_hold_the_handshake_up
    what_waits_for_the_handshake_is_charged_and_bounded
    a_close_behind_output_waits_for_the_handshake
    a_close_without_output_gives_the_upgrade_up
    a_half_close_waits_for_the_handshake
    a_failed_handshake_loses_what_was_to_be_encrypted
    a_peer_that_ends_or_resets_in_the_handshake_is_a_cause
    a_handshake_has_its_limit_of_bytes
    a_shutdown_of_the_server_ends_an_upgrade
    what_cannot_go_over_is_refused_with_a_reason
}

/// How the peer frames its commands.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Framing {
    #[default]
    Lines,
    Frames,
}

/// A connection of a small protocol. Each answer begins with `P` for plain or `T` for TLS.
#[derive(Default)]
struct Talk {
    input: Input,
    framing: Framing,
    frames: Frames,
    secure: bool,
}

/// The decoder of frames, which knows the head of one that has not come whole.
struct Frames(Prefixed);

impl Default for Frames {
    fn default() -> Frames {
        Frames(Prefixed::new(Prefix::U16Be, 1024))
    }
}

impl Talk {
    fn next(&mut self) -> Option<String> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match self.framing {
            Framing::Lines => {
                let line = self.input.next(&mut Lines::new(1024)).expect("a line");
                line.map(|line| text(&line))
            }
            Framing::Frames => {
                let frame = self.input.next(&mut self.frames.0).expect("a frame");
                frame.map(|frame| text(&frame))
            }
        }
    }
}

/// What the server has heard and told.
struct Server1 {
    tls: Tls,
    heard: Vec<String>,
    upgraded: usize,
    closed: Vec<(Cause, usize)>,
    errors: Vec<String>,
    /// What it does behind the call of `upgrade`, in the same callback.
    behind: fn(&mut Conn<'_, Talk>),
}

impl Handler for Server1 {
    type State = Talk;

    fn data(&mut self, c: &mut Conn<'_, Talk>, data: Buf) -> Action {
        assert!(!data.is_empty() && data.parts().len() == 1);
        c.state().input.push(data);
        while let Some(command) = c.state().next() {
            let mark = if c.state().secure { 'T' } else { 'P' };
            let (verb, rest) = command.split_once(' ').unwrap_or((&command, ""));
            self.heard.push(format!("{mark} {command}"));
            match verb {
                "SAY" => _ = c.write(format!("{mark} {rest}\n")),
                "BIG" => {
                    let mut big = vec![b'.'; rest.parse().expect("a number")];
                    big.push(b'\n');
                    c.write(big);
                }
                // Another layer takes over, with an input of its own.
                "LINES" | "FRAMES" => {
                    let rest = c.state().input.take_rest();
                    let framing = if verb == "LINES" { Framing::Lines } else { Framing::Frames };
                    let secure = c.state().secure;
                    *c.state() = Talk { framing, secure, ..Talk::default() };
                    c.unread(rest).expect("it is open");
                    return Action::None;
                }
                // What is held back comes with the wake.
                "PAUSE" => {
                    let rest = c.state().input.take_rest();
                    c.pause();
                    c.unread(rest).expect("it is open");
                    let id = c.id();
                    c.engine().wake(id);
                    return Action::None;
                }
                "STARTTLS" => {
                    c.write("P go\n");
                    let rest = c.state().input.take_rest();
                    c.upgrade(&self.tls, rest).expect("it is plain");
                    (self.behind)(c);
                    return Action::None;
                }
                _ => _ = c.write(format!("{mark} what?\n")),
            }
        }
        Action::None
    }

    fn wake(&mut self, c: &mut Conn<'_, Talk>) -> Action {
        c.resume();
        Action::None
    }

    fn upgraded(&mut self, c: &mut Conn<'_, Talk>) -> Action {
        self.upgraded += 1;
        assert!(!c.state().secure && c.state().input.is_empty());
        c.state().secure = true;
        Action::None
    }

    fn closed(&mut self, _: &mut Context<'_, Talk>, closed: Closed<Talk>) -> Action {
        self.closed.push((closed.cause, closed.unsent));
        self.errors.extend(closed.tls_error.map(|error| error.to_string()));
        Action::None
    }
}

type Served<T> = Bench<<T as Harness>::Driver, Server1>;

/// The limits of tests that are not about time: no clock of theirs runs out on a slow machine.
fn limits() -> Limits {
    Limits::new().idle(None).write_stall(None).handshake(Duration::from_secs(3600))
}

fn serve_with<T: Harness>(
    limits: Limits,
    behind: fn(&mut Conn<'_, Talk>),
) -> (Served<T>, TlsClient) {
    let (_, server, client) = tls::settings(Provider::Ring);
    let (tls, client) = (server.build().unwrap(), client.build().unwrap());
    let make = move |_| Server1 {
        tls: tls.clone(),
        heard: Vec::new(),
        upgraded: 0,
        closed: Vec::new(),
        errors: Vec::new(),
        behind,
    };
    let server = Server::new(make).config(Config::new().limits(limits));
    (bench::<T, _, _>(server.listen("tcp://127.0.0.1:0").unwrap()), client)
}

fn serve<T: Harness>(behind: fn(&mut Conn<'_, Talk>)) -> (Served<T>, TlsClient) {
    serve_with::<T>(limits(), behind)
}

fn nothing(_: &mut Conn<'_, Talk>) {}

/// The peer of a connection that goes over to TLS: the first bytes that it hears are plain.
struct Peer {
    client: Source,
    session: Session,
    /// How many plain bytes come before the session.
    plain: usize,
    fed: usize,
    heard: Vec<u8>,
}

impl Peer {
    fn new<D: Driver>(bench: &mut Bench<D, Server1>, tls: &TlsClient, plain: usize) -> Peer {
        let (client, session) = (bench.connect(), Session::client(tls, "localhost").unwrap());
        Peer { client, session, plain, fed: plain, heard: Vec::new() }
    }

    /// A peer that has said `STARTTLS`, and has heard the answer.
    fn asked<D: Driver>(bench: &mut Bench<D, Server1>, tls: &TlsClient) -> Peer {
        let peer = Peer::new(bench, tls, "P go\n".len());
        bench.say(peer.client, "STARTTLS\n");
        bench.until("it may go over", |b| b.client(peer.client).heard.len() >= peer.plain);
        assert_eq!(peer.plain(bench), "P go\n");
        peer
    }

    /// Passes what has come through the session, and returns what it says.
    fn pump<D: Driver>(&mut self, bench: &mut Bench<D, Server1>) -> Vec<u8> {
        let heard = &bench.client(self.client).heard;
        if let Some(new) = heard.get(self.fed..) {
            let _ = self.session.feed_into(new, &mut self.heard);
            self.fed = heard.len();
        }
        let mut out = Vec::new();
        self.session.take_output(&mut out);
        out
    }

    #[track_caller]
    fn until<D: Driver>(
        &mut self,
        bench: &mut Bench<D, Server1>,
        what: &str,
        ready: impl Fn(&mut Peer, &mut Bench<D, Server1>) -> bool,
    ) {
        bench.until(what, |bench| {
            let out = self.pump(bench);
            if !out.is_empty() {
                bench.say(self.client, out);
            }
            ready(self, bench)
        });
    }

    fn say<D: Driver>(&mut self, bench: &mut Bench<D, Server1>, what: &str) {
        let mut out = Vec::new();
        self.session.write_all(what.as_bytes(), &mut out).unwrap();
        bench.say(self.client, out);
    }

    /// The plain bytes that it has heard.
    fn plain<D: Driver>(&self, bench: &Bench<D, Server1>) -> String {
        let heard = &bench.client(self.client).heard;
        String::from_utf8_lossy(&heard[..self.plain.min(heard.len())]).into_owned()
    }
}

fn end<D: Driver>(bench: &mut Bench<D, Server1>) -> (Cause, usize) {
    bench.until("it has ended", |b| !b.running.handler().closed.is_empty());
    assert_eq!(bench.running.engine().budget().used(), 0);
    let counted = bench.running.report().counters.handshakes;
    assert_eq!(counted.begun, counted.completed + counted.failed);
    bench.running.handler().closed[0]
}

/// Commands, and what a server answers.
#[derive(Default)]
struct Script {
    framing: Framing,
    bytes: Vec<u8>,
    answers: Vec<u8>,
    heard: Vec<String>,
}

impl Script {
    fn add(&mut self, mark: char, command: &str) {
        match self.framing {
            Framing::Lines => self.bytes.extend(format!("{command}\n").bytes()),
            Framing::Frames => {
                self.bytes.extend((command.len() as u16).to_be_bytes());
                self.bytes.extend(command.bytes());
            }
        }
        self.heard.push(format!("{mark} {command}"));
        match command.split_once(' ').unwrap_or((command, "")) {
            ("SAY", rest) => self.answers.extend(format!("{mark} {rest}\n").bytes()),
            ("BIG", count) => {
                let len = self.answers.len() + count.parse::<usize>().unwrap();
                self.answers.resize(len, b'.');
                self.answers.push(b'\n');
            }
            ("LINES", _) => self.framing = Framing::Lines,
            ("FRAMES", _) => self.framing = Framing::Frames,
            ("STARTTLS", _) => self.answers.extend(b"P go\n"),
            _ => {}
        }
    }

    fn add_some(&mut self, mark: char, rng: &mut fastrand::Rng) {
        for at in 0..rng.usize(..12) {
            match rng.u8(..10) {
                0 => self.add(mark, "LINES"),
                1 | 2 => self.add(mark, "FRAMES"),
                3 => self.add(mark, "PAUSE"),
                4 => self.add(mark, &format!("BIG {}", rng.usize(..90_000))),
                _ => self.add(mark, &format!("SAY {at} {}", "x".repeat(rng.usize(..300)))),
            }
        }
    }
}

/// Says bytes in pieces of random lengths, with some time between.
fn say_in_pieces<D: Driver>(
    bench: &mut Bench<D, Server1>,
    client: Source,
    bytes: &[u8],
    rng: &mut fastrand::Rng,
) {
    let mut left = bytes;
    while !left.is_empty() {
        let most = if rng.bool() { 20 } else { 5000 };
        let (piece, rest) = left.split_at(rng.usize(1..=most).min(left.len()));
        left = rest;
        bench.say(client, piece.to_vec());
        if rng.u8(..3) == 0 {
            bench.run_for(Duration::from_micros(rng.u64(..500)));
        }
    }
}

fn random_transitions_lose_no_byte<T: Harness>() {
    let rounds = if T::VIRTUAL { 60 } else { 12 };
    let first = seed();
    for round in 0..rounds {
        let number = first.wrapping_add(round);
        println!("WINDLASS_SEED={number}");
        let mut rng = fastrand::Rng::with_seed(number);
        let (mut b, tls) = serve::<T>(|c| _ = c.write("T early\n"));
        let mut before = Script::default();
        before.add_some('P', &mut rng);
        before.add('P', "STARTTLS");
        let mut after = Script { framing: before.framing, ..Script::default() };
        after.answers.extend(b"T early\n");
        after.add_some('T', &mut rng);
        let mut peer = Peer::new(&mut b, &tls, before.answers.len());
        let mut said = before.bytes.clone();
        let is_ahead = rng.bool();
        if is_ahead {
            // The hello is right behind the command.
            peer.session.take_output(&mut said);
        }
        say_in_pieces(&mut b, peer.client, &said, &mut rng);
        b.until("it may go over", |b| b.client(peer.client).heard.len() >= peer.plain);
        assert!(b.client(peer.client).heard[..peer.plain] == before.answers);
        let mut has_said = false;
        let start = b.watcher.update_now();
        while peer.heard.len() < after.answers.len() {
            let mut out = peer.pump(&mut b);
            if peer.session.is_open() && !std::mem::replace(&mut has_said, true) {
                // Records of random sizes, right behind the end of the handshake.
                let mut left = &after.bytes[..];
                while !left.is_empty() {
                    let (piece, rest) = left.split_at(rng.usize(1..=3000).min(left.len()));
                    peer.session.write_all(piece, &mut out).unwrap();
                    left = rest;
                }
            }
            say_in_pieces(&mut b, peer.client, &out, &mut rng);
            b.turn(Duration::from_millis(100));
            assert!(b.watcher.now() - start < 50 * common::PATIENCE, "{number}: it waits");
        }
        assert!(peer.heard == after.answers, "{number}");
        peer.session.close();
        peer.until(&mut b, "the server ends, too", |peer, b| {
            b.client(peer.client).eof && peer.session.state() == SessionState::PeerClosed
        });
        assert_eq!(end(&mut b), (Cause::Eof, 0), "{number}");
        let handler = b.running.handler();
        assert_eq!(handler.heard, [before.heard, after.heard].concat(), "{number}");
        assert_eq!(handler.upgraded, 1);
        let counted = b.running.report().counters.handshakes;
        assert_eq!((counted.begun, counted.completed, counted.failed), (1, 1, 0));
        assert!(counted.flights > 0);
    }
}

/// The command injection of CVE-2011-0411: they were taken for bytes of the session.
fn plain_bytes_behind_the_command_are_not_told<T: Harness>() {
    for later in [None, Some(0.0), Some(1.0)] {
        let (mut b, tls) = serve::<T>(nothing);
        let peer = Peer::new(&mut b, &tls, "P go\n".len());
        match later {
            None => b.say(peer.client, "STARTTLS\nSAY evil\n"),
            Some(span) => {
                b.say(peer.client, "STARTTLS\n");
                b.run_for(T::span(span));
                b.say(peer.client, "SAY evil\n");
            }
        }
        b.until("it is refused", |b| b.client(peer.client).is_over());
        assert_eq!(peer.plain(&b), "P go\n");
        assert_eq!(b.client(peer.client).heard[peer.plain..][..3], [21, 3, 3], "an alert");
        assert!(b.client(peer.client).eof);
        assert_eq!(end(&mut b), (Cause::Tls, 0));
        let handler = b.running.handler();
        assert_eq!((&handler.heard[..], handler.upgraded), (&["P STARTTLS".to_owned()][..], 0));
        assert!(handler.errors[0].contains("text"), "{:?}", handler.errors);
    }
}

/// They have come before the call, and the program has not got them.
fn plain_bytes_that_are_held_back_are_not_told<T: Harness>() {
    let (mut b, tls) = serve::<T>(nothing);
    let peer = Peer::new(&mut b, &tls, 0);
    b.until("it is open", |b| b.running.engine().len() == 1);
    let id = b.running.engine().ids().next().unwrap();
    b.running.engine().pause(id);
    b.say(peer.client, "SAY evil\n");
    b.run_for(T::span(1.0));
    let tls = b.running.handler().tls.clone();
    b.running.engine().upgrade(id, &tls, "").unwrap();
    b.running.engine().resume(id);
    b.running.turn(&mut b.watcher);
    assert_eq!(end(&mut b), (Cause::Tls, 0));
    assert!(b.running.handler().heard.is_empty());
}

fn a_peer_that_says_nothing_has_the_time_of_the_handshake<T: Harness>() {
    let limits = limits().handshake(T::span(5.0)).idle(T::span(2.0));
    let (mut b, tls) = serve_with::<T>(limits, |c| _ = c.write("T early\n"));
    let peer = Peer::asked(&mut b, &tls);
    let start = b.watcher.update_now();
    b.run_for(T::span(2.0));
    // Half a hello does not begin the time again.
    b.say(peer.client, vec![22, 3, 1]);
    let lost = "T early\n".len();
    assert_eq!(end(&mut b), (Cause::ReadTimeout, lost));
    let past = b.watcher.update_now() - start;
    assert!(past + T::span(0.5) >= T::span(5.0), "{past:?}");
    assert!(!T::VIRTUAL || past < Duration::from_secs(7), "{past:?}");
    assert_eq!(peer.plain(&b), "P go\n");
}

fn the_idle_time_comes_back_behind_the_handshake<T: Harness>() {
    let (mut b, tls) = serve_with::<T>(limits().idle(T::span(3.0)), nothing);
    let mut peer = Peer::asked(&mut b, &tls);
    b.run_for(T::span(6.0));
    peer.until(&mut b, "it is open", |peer, _| peer.session.is_open());
    peer.say(&mut b, "SAY hello\n");
    peer.until(&mut b, "it is answered", |peer, _| peer.heard == b"T hello\n");
    assert_eq!(end(&mut b), (Cause::Idle, 0));
}

/// More than the high mark waits for the handshake. That stopped the reads of a connection.
fn much_output_does_not_hold_the_handshake_up<T: Harness>() {
    let (mut b, tls) = serve::<T>(|c| {
        c.write(vec![b'.'; 1 << 20]);
        c.pause();
    });
    let mut peer = Peer::asked(&mut b, &tls);
    let id = b.running.engine().ids().next().unwrap();
    assert!(b.running.engine().is_full(id));
    peer.until(&mut b, "all has come", |peer, _| peer.heard.len() == 1 << 20);
    assert_eq!(b.running.handler().upgraded, 1);
    peer.say(&mut b, "SAY hello\n");
    b.run_for(T::span(1.0));
    assert_eq!(b.running.handler().heard, ["P STARTTLS"], "it is paused");
    b.running.engine().resume(id);
    b.running.turn(&mut b.watcher);
    peer.until(&mut b, "it is answered", |peer, _| peer.heard.ends_with(b"T hello\n"));
}

fn what_waits_for_the_handshake_is_charged_and_bounded<T: Harness>() {
    let (mut b, tls) = serve_with::<T>(limits().cap(100_000), |c| _ = c.write(vec![b'.'; 60_000]));
    let mut peer = Peer::asked(&mut b, &tls);
    let id = b.running.engine().ids().next().unwrap();
    assert!(b.running.engine().budget().used() >= 60_000);
    assert_eq!(b.running.engine().waiting(id), 60_000);
    let refused = b.running.engine().write(id, vec![b'.'; 50_000]).unwrap_err();
    assert_eq!(refused.reason, Refusal::Cap);
    b.running.engine().write(id, vec![b'.'; 40_000]).unwrap();
    b.running.turn(&mut b.watcher);
    assert!(b.running.engine().budget().used() >= 100_000);
    peer.until(&mut b, "all has come", |peer, _| peer.heard.len() == 100_000);
    b.until("nothing waits", |b| b.running.engine().budget().used() == 0);
}

fn a_close_behind_output_waits_for_the_handshake<T: Harness>() {
    let (mut b, tls) = serve::<T>(|c| {
        c.write("T last\n");
        let id = c.id();
        assert!(c.engine().close(id) && c.engine().close(id));
        assert!(!c.write("more"), "it closes");
    });
    let mut peer = Peer::asked(&mut b, &tls);
    b.run_for(T::span(1.0));
    assert!(b.running.handler().closed.is_empty());
    peer.until(&mut b, "the server ends", |peer, b| {
        b.client(peer.client).eof && peer.session.state() == SessionState::PeerClosed
    });
    assert_eq!((&*peer.heard, end(&mut b)), (&b"T last\n"[..], (Cause::Closed, 0)));
    assert_eq!(b.running.handler().upgraded, 0, "it closes");
    // A handshake that does not come has the time of the close.
    let limits = limits().close(T::span(2.0));
    let (mut b, tls) = serve_with::<T>(limits, |c| {
        c.write("T last\n");
        let id = c.id();
        c.engine().close(id);
    });
    let peer = Peer::asked(&mut b, &tls);
    assert_eq!(end(&mut b), (Cause::Closed, "T last\n".len()));
    assert_eq!(peer.plain(&b), "P go\n");
}

fn a_close_without_output_gives_the_upgrade_up<T: Harness>() {
    let (mut b, tls) = serve::<T>(|c| {
        let id = c.id();
        assert!(c.engine().close(id));
    });
    let peer = Peer::asked(&mut b, &tls);
    b.until("it is told", |b| b.client(peer.client).eof);
    // The plain answer, and an alert that says the end.
    assert_eq!(b.client(peer.client).heard[peer.plain..], [21, 3, 3, 0, 2, 1, 0]);
    assert_eq!(end(&mut b), (Cause::Closed, 0));
}

fn a_half_close_waits_for_the_handshake<T: Harness>() {
    let (mut b, tls) = serve::<T>(|c| {
        c.write("T last\n");
        c.shutdown();
        assert!(!c.write("more"), "its output is shut down");
    });
    let mut peer = Peer::asked(&mut b, &tls);
    b.clients.all.get_mut(&peer.client).unwrap().stays = true;
    peer.until(&mut b, "the server ends its side", |peer, b| {
        b.client(peer.client).eof && peer.session.state() == SessionState::PeerClosed
    });
    assert_eq!(peer.heard, b"T last\n");
    // The other side is open.
    peer.say(&mut b, "SAY hello\n");
    b.until("it is heard", |b| b.running.handler().heard.len() == 2);
    assert_eq!(b.running.handler().heard[1], "T SAY hello");
    peer.session.close();
    let out = peer.pump(&mut b);
    b.say(peer.client, out);
    assert_eq!(end(&mut b), (Cause::Eof, 0));
}

fn a_failed_handshake_loses_what_was_to_be_encrypted<T: Harness>() {
    for closes in [false, true] {
        let (mut b, tls) = match closes {
            false => serve::<T>(|c| _ = c.write("T secret\n")),
            true => serve::<T>(|c| {
                c.write("T secret\n");
                let id = c.id();
                c.engine().close(id);
            }),
        };
        let peer = Peer::asked(&mut b, &tls);
        b.say(peer.client, "no hello\r\n");
        b.until("it is refused", |b| b.client(peer.client).is_over());
        assert_eq!(end(&mut b), (Cause::Tls, "T secret\n".len()));
        let heard = &b.client(peer.client).heard;
        assert_eq!((peer.plain(&b), &heard[peer.plain..][..3]), ("P go\n".into(), &[21, 3, 3][..]));
        let leaks = heard.windows(6).any(|bytes| bytes == b"secret");
        assert!(!leaks, "it was to be encrypted");
    }
}

fn a_peer_that_ends_or_resets_in_the_handshake_is_a_cause<T: Harness>() {
    for resets in [false, true] {
        let (mut b, tls) = serve::<T>(nothing);
        let mut peer = Peer::asked(&mut b, &tls);
        let hello = peer.pump(&mut b);
        b.say(peer.client, hello[..20].to_vec());
        b.run_for(T::span(0.5));
        if resets {
            let linger = windlass::net::SocketOption::Linger(Some(Duration::ZERO));
            b.watcher.set_option(peer.client, linger).unwrap();
            b.watcher.abort(peer.client);
            let ended = end(&mut b);
            assert!(matches!(ended, (Cause::Os(_), 0)), "{ended:?}");
        } else {
            b.finish(peer.client);
            assert_eq!(end(&mut b), (Cause::Tls, 0));
        }
    }
}

fn a_handshake_has_its_limit_of_bytes<T: Harness>() {
    let (mut b, tls) = serve::<T>(nothing);
    let peer = Peer::asked(&mut b, &tls);
    // Records of a hello that is announced with 60,000 bytes.
    b.say(peer.client, vec![22, 3, 1, 0, 4, 1, 0, 0xea, 0x60]);
    for _ in 0..40 {
        let mut record = vec![22, 3, 1, 4, 0];
        record.resize(5 + 1024, 0);
        b.say(peer.client, record);
    }
    assert_eq!(end(&mut b).0, Cause::Tls);
    assert!(b.running.handler().errors[0].contains("16384"), "{:?}", b.running.handler().errors);
}

fn a_shutdown_of_the_server_ends_an_upgrade<T: Harness>() {
    let (mut b, tls) = serve_with::<T>(limits(), |c| _ = c.write("T early\n"));
    // Only virtual time waits for it.
    let _silent = T::VIRTUAL.then(|| Peer::asked(&mut b, &tls));
    let mut peer = Peer::asked(&mut b, &tls);
    b.running.remote().shutdown();
    b.turn(Duration::ZERO);
    peer.until(&mut b, "the server ends", |peer, b| {
        b.client(peer.client).eof && peer.session.state() == SessionState::PeerClosed
    });
    assert_eq!(peer.heard, b"T early\n");
    b.until("it is over", |b| b.running.is_over());
    let mut closed = b.running.handler().closed.clone();
    closed.sort_by_key(|(_, unsent)| *unsent);
    let lost = (Cause::Shutdown, "T early\n".len());
    let silent = if T::VIRTUAL { &[lost][..] } else { &[] };
    assert_eq!(closed, [&[(Cause::Shutdown, 0)], silent].concat());
}

fn what_cannot_go_over_is_refused_with_a_reason<T: Harness>() {
    #[derive(Default)]
    struct Refuses(Option<Tls>, Vec<(&'static str, Refusal)>);
    impl Refuses {
        fn ask(&mut self, c: &mut Conn<'_, Vec<u8>>, when: &'static str) {
            let tls = self.0.clone().unwrap();
            let refused = c.upgrade(tls, "rest").unwrap_err();
            assert_eq!(&*refused.value, b"rest");
            self.1.push((when, refused.reason));
        }
    }
    impl Handler for Refuses {
        type State = Vec<u8>;
        fn data(&mut self, c: &mut Conn<'_, Vec<u8>>, data: Buf) -> Action {
            c.state().extend_from_slice(&data);
            match &*c.state().clone() {
                b"close" => {
                    let id = c.id();
                    c.engine().close(id);
                    self.ask(c, "closes");
                }
                b"shut" => {
                    c.shutdown();
                    self.ask(c, "has shut down its output");
                }
                b"detach" => {
                    c.detach().unwrap();
                    self.ask(c, "detaches");
                }
                b"stream" => {
                    let _stream = c.into_std().unwrap();
                    self.ask(c, "has a stream");
                }
                b"twice" => {
                    let tls = self.0.clone().unwrap();
                    c.upgrade(tls, "").unwrap();
                    self.ask(c, "upgrades");
                    assert_eq!(c.detach(), Err(Refusal::Tls));
                    assert_eq!(c.unread("x").unwrap_err().reason, Refusal::Tls);
                    c.abort();
                }
                _ => {}
            }
            Action::None
        }
        fn eof(&mut self, c: &mut Conn<'_, Vec<u8>>) -> Action {
            self.ask(c, "its peer has ended");
            Action::Close
        }
    }
    let (_, server, _) = tls::settings(Provider::Ring);
    let tls = server.build().unwrap();
    let make = move |_| Refuses(Some(tls.clone()), Vec::new());
    let config = Config::new().limits(limits()).close_on_eof(false);
    let server = Server::new(make).config(config).listen("tcp://127.0.0.1:0").unwrap();
    let mut b = bench::<T, _, _>(server);
    for what in ["close", "shut", "detach", "stream", "twice", ""] {
        let (client, before) = (b.connect(), b.running.handler().1.len());
        if what.is_empty() {
            b.finish(client);
        } else {
            b.say(client, what);
        }
        b.until("it is refused", |b| b.running.handler().1.len() > before);
    }
    assert_eq!(
        b.running.handler().1,
        [
            ("closes", Refusal::Stale),
            ("has shut down its output", Refusal::Stale),
            ("detaches", Refusal::Stale),
            ("has a stream", Refusal::Stream),
            ("upgrades", Refusal::Tls),
            ("its peer has ended", Refusal::Ended),
        ]
    );
}
