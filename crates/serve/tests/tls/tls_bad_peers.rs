//! Peers of a server with TLS that break the rules: each has a named reason and an alert, and costs
//! few turns and no memory that stays.

use std::sync::Mutex;
use std::time::Duration;

use crate::common::{Bench, Harness, bench};
use crate::crafted;
use crate::peer::Peer;
use crate::tls;
use windlass::net::SocketOption;
use windlass::{Buf, Source};
use windlass_serve::log::{Level, Log, LogEvent, Record};
use windlass_serve::tls::{Provider, Session, Tls, TlsClient, Version};
use windlass_serve::{Action, Cause, Closed, Config, Conn, Context, Handler, Limits, Server};

macro_rules! stamps {
    ($($body:ident)*) => {
        crate::stamp! { #[cfg(unix)] poll Poll: $($body)* }
        crate::stamp! { #[cfg(all())] sim Simulated: $($body)* }
        crate::stamp! { #[cfg(all())] faults Faulty: $($body)* }
        crate::stamp! { #[cfg(all())] completes Completing: $($body)* }
    };
}

stamps! {
    what_breaks_a_handshake_has_a_name_and_an_alert
    a_hello_of_64_kib_in_single_bytes_is_cut_off
    a_client_that_stops_in_each_flight_is_refused
    what_breaks_an_open_connection_has_a_name_and_an_alert
    changes_of_keys_without_end_have_an_end
    changes_of_keys_have_one_answer_in_a_turn
    an_alert_of_the_peer_is_no_end_behind_a_part_of_the_output
}

const CHANGE: u8 = 20;
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const DATA: u8 = 23;

/// A record.
fn record(kind: u8, body: &[u8]) -> Vec<u8> {
    let len = u16::try_from(body.len()).expect("a record");
    [&[kind, 3, 3][..], &len.to_be_bytes(), body].concat()
}

/// Keeps why TLS has failed.
#[derive(Default)]
struct Kept(Mutex<Vec<String>>);

impl Log for Kept {
    fn enabled(&self, _: Level) -> bool {
        true
    }
    fn log(&self, record: &Record<'_>) {
        if let LogEvent::TlsFailed { error, .. } = record.event {
            self.0.lock().unwrap().push(error.to_owned());
        }
    }
}

impl Kept {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// An echo.
#[derive(Default)]
struct Echo {
    heard: usize,
    closed: Vec<Cause>,
}

impl Handler for Echo {
    type State = ();
    fn data(&mut self, c: &mut Conn<'_, ()>, data: Buf) -> Action {
        self.heard += data.len();
        c.write(data);
        Action::None
    }
    fn closed(&mut self, _: &mut Context<'_, ()>, closed: Closed<()>) -> Action {
        self.closed.push(closed.cause);
        Action::None
    }
}

struct Served<T: Harness> {
    b: Bench<T::Driver, Echo>,
    tls: TlsClient,
    authority: tls::Authority,
    kept: &'static Kept,
}

impl<T: Harness> Served<T> {
    fn new(versions: &[Version], limits: Limits) -> Served<T> {
        let kept: &'static Kept = Box::leak(Box::default());
        let versions = versions.iter().copied();
        let (authority, server, client) = tls::settings(Provider::Ring);
        let tls: Tls = server.versions(versions.clone()).build().unwrap();
        let client: TlsClient = client.versions(versions).build().unwrap();
        let config = Config::new().limits(limits.idle(None)).log(kept);
        let server = Server::new(|_| Echo::default()).config(config);
        let b = bench::<T, _, _>(server.listen("tcp://127.0.0.1:0").unwrap().tls(tls));
        Served { b, tls: client, authority, kept }
    }

    /// The hello of a new client.
    fn hello(&self) -> Vec<u8> {
        let mut out = Vec::new();
        Session::client(&self.tls, "localhost").unwrap().take_output(&mut out);
        out
    }

    /// The client that says so has an end, the server lives, and nothing is left.
    fn ends(&mut self, client: Source, what: &str) {
        self.b.until(what, |b| b.client(client).is_over() && b.running.engine().is_empty());
        assert_eq!(self.b.running.engine().budget().used(), 0, "{what}");
        let mut good = Peer::open(&mut self.b, &self.tls);
        good.say(&mut self.b, b"hello");
        good.until(&mut self.b, "it is echoed", |peer, _| peer.plain == b"hello");
        good.end(&mut self.b);
        good.until(&mut self.b, "it ends", |peer, b| peer.heard_the_end(b));
        self.b.until("it has ended", |b| b.running.engine().is_empty());
    }
}

/// The last alert of an output in plain text: its number.
fn alert(out: &[u8]) -> Option<u8> {
    match out.get(out.len().checked_sub(7)?..)? {
        [ALERT, 3, _, 0, 2, 2, number] => Some(*number),
        _ => None,
    }
}

fn what_breaks_a_handshake_has_a_name_and_an_alert<T: Harness>() {
    for version in Version::ALL {
        let mut s = Served::<T>::new(&[*version], Limits::new());
        let hello = s.hello();
        let is_13 = *version == Version::Tls13;
        let cases = [
            ("empty records without end", record(HANDSHAKE, &[]).repeat(5000), "cannot be read"),
            ("empty data without end", record(DATA, &[]).repeat(5000), "an unexpected message"),
            ("warnings without end", record(ALERT, &[1, 90]).repeat(5000), "TooManyWarning"),
            ("changes of the cipher", record(CHANGE, &[1]).repeat(5000), "an unexpected message"),
            ("a length of 65,535", [HANDSHAKE, 3, 3, 0xff, 0xff, 1].to_vec(), "is too long"),
            ("two hellos", hello.repeat(2), if is_13 { "record" } else { "an unexpected message" }),
            (
                "data before the end",
                [&hello[..], &record(DATA, &[7; 40])].concat(),
                if is_13 { "record" } else { "an unexpected message" },
            ),
            ("a heartbeat", record(24, &[1, 0, 1, 0]), "cannot be read"),
            ("no TLS", b"GET / HTTP/1.1\r\n\r\n".to_vec(), "HTTP"),
        ];
        for (what, input, name) in cases {
            for piece in [input.len(), 700] {
                let client = s.b.connect();
                for part in input.chunks(piece) {
                    s.b.say(client, part.to_vec());
                }
                s.ends(client, what);
                let told = s.kept.take();
                assert!(
                    told.len() == 1 && told[0].contains(name),
                    "{version}, {what}: {told:?} {:?} {piece}",
                    s.b.client(client)
                );
                let out = &s.b.client(client).heard;
                // After the hello of TLS 1.3 the alert is encrypted.
                let is_hidden = is_13 && input.starts_with(&hello);
                // The library has none for warnings, which the RFC lets it ignore.
                let has_none = what == "warnings without end";
                let has_one = is_hidden || alert(out).is_some();
                assert_ne!(has_one, has_none, "{version}, {what}: {out:?}");
                assert_eq!(out.is_empty(), has_none, "{version}, {what}");
            }
        }
        let handshakes = s.b.running.report().counters.handshakes;
        assert_eq!((handshakes.failed, handshakes.completed), (18, 18));
        // Each of them was over after a flight or two, however much it has sent.
        assert!(handshakes.flights <= 18 * 3 + 18 * 2, "{handshakes:?}");
    }
}

fn a_hello_of_64_kib_in_single_bytes_is_cut_off<T: Harness>() {
    let mut s = Served::<T>::new(Version::ALL, Limits::new());
    let body = [&[1, 0, 0xfd, 0xe8][..], &[0; 65_000]].concat();
    let input: Vec<u8> = body.chunks(16_384).flat_map(|part| record(HANDSHAKE, part)).collect();
    let client = s.b.connect();
    let (mut most, mut sent) = (0, 0);
    for byte in input {
        s.b.say(client, vec![byte]);
        s.b.turn(Duration::ZERO);
        sent += 1;
        most = most.max(s.b.running.engine().budget().used());
        if s.b.client(client).is_over() {
            break;
        }
    }
    s.ends(client, "it is refused");
    assert!(sent < 17_000 || T::NAME != "sim", "{sent} bytes");
    assert!(most <= 10_240 + 2 * 16_384, "{most} bytes are charged");
    let told = s.kept.take();
    assert!(told.len() == 1 && told[0].contains("16384"), "{told:?}");
    // The library encrypts only this alert by itself.
    assert_eq!(s.b.client(client).heard, record(ALERT, &[1, 0]), "close_notify");
}

/// What a client does when it stops.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Stop {
    Silent,
    End,
    Reset,
}

fn a_client_that_stops_in_each_flight_is_refused<T: Harness>() {
    for version in Version::ALL {
        let limits = Limits::new().handshake(T::span(50.0));
        let mut s = Served::<T>::new(&[*version], limits);
        let stops = match T::VIRTUAL {
            true => &[Stop::Silent, Stop::End, Stop::Reset][..],
            false => &[Stop::End, Stop::Reset], // the time is known in virtual time
        };
        let mut count = 0;
        for stop in stops {
            // Nothing, a part of the hello, the hello, and a part of the second flight.
            for at in [0, 3, 100, usize::MAX, usize::MAX - 1] {
                let mut peer = Peer::new(&mut s.b, &s.tls);
                let mut out = Vec::new();
                peer.session.take_output(&mut out);
                if at > 0 {
                    s.b.say(peer.client, out[..at.min(out.len())].to_vec());
                }
                if at == usize::MAX {
                    s.b.until("it is answered", |b| !b.client(peer.client).heard.is_empty());
                }
                if at == usize::MAX - 1 {
                    s.b.until("all of the answer has come", |b| {
                        out.clear();
                        let heard = &b.client(peer.client).heard[peer.fed..];
                        peer.session.feed_into(heard, &mut Vec::new()).unwrap();
                        peer.fed += heard.len();
                        peer.session.take_output(&mut out) > 0
                    });
                    s.b.say(peer.client, out[..out.len() - 3].to_vec());
                    s.b.run_for(T::span(1.0));
                }
                match stop {
                    Stop::Silent => {}
                    Stop::End => s.b.finish(peer.client),
                    Stop::Reset => {
                        s.b.until("it has come", |b| b.running.engine().len() == 1);
                        let linger = SocketOption::Linger(Some(Duration::ZERO));
                        s.b.watcher.set_option(peer.client, linger).unwrap();
                        s.b.watcher.abort(peer.client);
                    }
                }
                count += 1;
                s.b.until("it has failed", |b| {
                    b.running.report().counters.handshakes.failed == count
                        && b.running.engine().is_empty()
                });
                assert_eq!(s.b.running.engine().budget().used(), 0, "{stop:?} {at}");
            }
        }
        let counters = s.b.running.report().counters;
        assert_eq!((counters.refused, counters.accepted), (count, 0));
        assert!(s.kept.take().is_empty(), "it is no failure of TLS");
    }
}

/// An open connection of a client that encrypts whatever it wants.
fn open<T: Harness>(s: &mut Served<T>) -> (Source, crafted::Peer) {
    let source = s.b.connect();
    let mut client = crafted::client(&s.authority);
    let mut fed = 0;
    s.b.until("it is open", |b| {
        let mut heard = &b.client(source).heard[fed..];
        fed += heard.len();
        while !heard.is_empty() {
            client.read_tls(&mut heard).unwrap();
            client.process_new_packets().unwrap();
        }
        let mut out = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut out).unwrap();
        }
        if !out.is_empty() {
            b.say(source, out);
        }
        !client.is_handshaking() && b.running.report().counters.handshakes.completed > 0
    });
    (source, client.into())
}

fn what_breaks_an_open_connection_has_a_name_and_an_alert<T: Harness>() {
    for version in Version::ALL {
        let is_13 = *version == Version::Tls13;
        let cases: [(&str, u8, Vec<u8>, usize, &str); 6] = [
            ("empty records without end", DATA, vec![], 3000, "TooManyEmptyFragments"),
            ("warnings without end", ALERT, vec![1, 90], 3000, "TooMany"),
            ("a record above 16 KiB", DATA, vec![7; 16_385], 1, "is too long"),
            (
                "another hello",
                HANDSHAKE,
                Served::<T>::new(&[*version], Limits::new()).hello()[5..].to_vec(),
                2,
                if is_13 { "an unexpected message" } else { "Renegotiation" },
            ),
            ("a change of keys that is none", HANDSHAKE, vec![24, 0, 0, 1, 9], 1, ""),
            ("a fatal alert", ALERT, vec![2, 80], 1, "internal_error"),
        ];
        for (what, kind, body, count, name) in cases {
            let mut s = Served::<T>::new(&[*version], Limits::new());
            let (source, mut peer) = open(&mut s);
            let before = s.b.client(source).heard.len();
            let input: Vec<u8> = (0..count).flat_map(|_| peer.record(kind, &body)).collect();
            for part in input.chunks(5000) {
                s.b.say(source, part.to_vec());
            }
            s.b.until("it is told", |b| !b.running.handler().closed.is_empty());
            assert_eq!(s.b.running.handler().closed, [Cause::Tls], "{version}, {what}");
            let told = s.kept.take();
            assert!(told.len() == 1 && told[0].contains(name), "{version}, {what}: {told:?}");
            s.ends(source, what);
            // An alert, or at least `close_notify`.
            assert!(s.b.client(source).heard.len() > before, "{version}, {what}");
        }
    }
}

fn changes_of_keys_without_end_have_an_end<T: Harness>() {
    let mut s = Served::<T>::new(&[Version::Tls13], Limits::new());
    let mut peer = Peer::open(&mut s.b, &s.tls);
    for _ in 0..100 {
        assert!(peer.session.update_keys());
        peer.pump(&mut s.b);
    }
    s.b.until("it is told", |b| !b.running.handler().closed.is_empty());
    assert_eq!(s.b.running.handler().closed, [Cause::Tls]);
    let told = s.kept.take();
    assert!(told.len() == 1 && told[0].contains("TooManyKeyUpdateRequests"), "{told:?}");
    s.ends(peer.client, "it has ended");
}

fn changes_of_keys_have_one_answer_in_a_turn<T: Harness>() {
    const ROUNDS: usize = 5000;
    let mut s = Served::<T>::new(&[Version::Tls13], Limits::new());
    let mut peer = Peer::open(&mut s.b, &s.tls);
    let before = s.b.client(peer.client).heard.len();
    let mut input = Vec::new();
    for _ in 0..ROUNDS {
        assert!(peer.session.update_keys());
        peer.session.write_all(b"x", &mut input).unwrap();
    }
    for part in input.chunks(5000) {
        s.b.say(peer.client, part.to_vec());
    }
    peer.until(&mut s.b, "all is echoed", |peer, _| peer.plain.len() == ROUNDS);
    // An answer to each would have 27 bytes more.
    let said = s.b.client(peer.client).heard.len() - before;
    assert!(said < 5 * ROUNDS, "{said} bytes for {ROUNDS} changes");
    assert!(s.b.running.handler().closed.is_empty());
}

/// `close_notify` behind a part of the output would say that this is all. TLS 1.2 shows which
/// record is an alert.
fn an_alert_of_the_peer_is_no_end_behind_a_part_of_the_output<T: Harness>() {
    const LEN: usize = 4 << 20;
    let mut s = Served::<T>::new(&[Version::Tls12], Limits::new().marks(8 << 20, 16 << 20));
    let mut peer = Peer::open(&mut s.b, &s.tls);
    s.b.run_for(T::span(1.0));
    s.b.deafen(peer.client);
    peer.say(&mut s.b, &vec![7; LEN]);
    s.b.until("all is echoed", |b| b.running.handler().heard == LEN);
    let mut out = Vec::new();
    assert!(peer.session.feed_into(&record(DATA, &[7; 40]), &mut Vec::new()).is_err());
    assert!(peer.session.take_output(&mut out) > 0, "a fatal alert");
    s.b.say(peer.client, out);
    let kept = s.kept;
    s.b.until("it is told", |_| !kept.0.lock().unwrap().is_empty());
    s.b.hear(peer.client);
    s.b.until("it has ended", |b| b.client(peer.client).is_over());
    let mut heard = &s.b.client(peer.client).heard[peer.fed..];
    let mut text = 0;
    while heard.len() >= 5 {
        let len = usize::from(u16::from_be_bytes([heard[3], heard[4]]));
        assert_eq!(heard[0], DATA, "behind {text} bytes of {LEN}");
        text += len;
        heard = heard.get(5 + len..).unwrap_or_default();
    }
    assert!(text < LEN, "some is lost");
    s.b.until("the server is told", |b| !b.running.handler().closed.is_empty());
    assert_eq!(s.b.running.handler().closed, [Cause::Tls]);
}
