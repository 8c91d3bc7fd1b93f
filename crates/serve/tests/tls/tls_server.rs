//! Connections behind TLS, on every driver and in the simulation.

use std::time::Duration;

use crate::common::{Bench, Harness, bench_with};
use crate::peer::Peer;
use crate::tls;
use windlass::{Buf, Builder, Watcher};
use windlass_serve::tls::{Provider, Tls, TlsClient};
use windlass_serve::{
    Action, Cause, Closed, Config, Conn, Context, Handler, Limits, Origin, Refusal, Server,
};

crate::every_driver! {
    an_echo_passes_and_both_sides_say_that_they_end
    a_handshake_that_comes_byte_by_byte_is_one
    a_cut_is_no_end_of_the_input
    a_peer_that_speaks_no_tls_gets_an_alert
    a_silent_peer_is_refused_in_time
    a_record_that_was_changed_ends_the_connection_with_an_alert
    an_answer_is_whole_before_the_end
    input_during_a_pause_comes_in_order
    an_answer_behind_the_peers_end_arrives
    a_reset_is_a_cause
    a_shutdown_says_the_end
    a_half_closed_connection_has_a_clock
    nothing_stays_charged
    a_detach_is_refused
    a_program_that_keeps_all_data_holds_up_nobody
    a_connection_too_many_gets_no_plain_text
}

/// What the server has heard and told.
#[derive(Default)]
struct Echo {
    opened: usize,
    heard: Vec<u8>,
    eofs: usize,
    closed: Vec<(Cause, usize)>,
    pauses: bool,
    /// Stays open behind the end of the peer.
    stays: bool,
    /// Answers so many bytes, and closes.
    closes_after: Option<usize>,
    /// What it keeps of its input, if it keeps that.
    kept: Option<Vec<Buf>>,
    /// Tries to take the descriptor.
    detaches: bool,
}

impl Handler for Echo {
    type State = ();
    fn opened(&mut self, c: &mut Conn<'_, ()>, _: Origin) -> Action {
        self.opened += 1;
        if self.pauses {
            c.pause();
        }
        Action::None
    }
    fn data(&mut self, c: &mut Conn<'_, ()>, data: Buf) -> Action {
        assert!(!data.is_empty());
        self.heard.extend_from_slice(&data);
        if self.detaches {
            assert_eq!(c.detach(), Err(Refusal::Tls));
        }
        if let Some(kept) = &mut self.kept {
            c.write_slice(&data);
            kept.push(data);
            return Action::None;
        }
        if let Some(bytes) = self.closes_after {
            c.write(vec![7; bytes]);
            return Action::Close;
        }
        c.write(data);
        Action::None
    }
    fn eof(&mut self, c: &mut Conn<'_, ()>) -> Action {
        self.eofs += 1;
        if self.stays {
            return Action::None;
        }
        c.write("behind the end");
        Action::Close
    }
    fn wake(&mut self, c: &mut Conn<'_, ()>) -> Action {
        c.resume();
        Action::None
    }
    fn closed(&mut self, _: &mut Context<'_, ()>, closed: Closed<()>) -> Action {
        self.closed.push((closed.cause, closed.unsent));
        Action::None
    }
}

fn settings() -> (Tls, TlsClient) {
    let (_, server, client) = tls::settings(Provider::Ring);
    (server.build().unwrap(), client.build().unwrap())
}

type Served<T> = Bench<<T as Harness>::Driver, Echo>;

fn serve<T: Harness>(echo: Echo, config: Config) -> (Served<T>, TlsClient) {
    serve_with::<T>(Watcher::builder(), echo, config)
}

fn serve_with<T: Harness>(builder: Builder, echo: Echo, config: Config) -> (Served<T>, TlsClient) {
    let (tls, client) = settings();
    let echo = std::cell::RefCell::new(Some(echo));
    let server = Server::new(move |_| echo.borrow_mut().take().expect("one loop")).config(config);
    let server = server.listen("tcp://127.0.0.1:0").unwrap().tls(tls);
    (bench_with::<T, _, _>(builder, server), client)
}

fn config() -> Config {
    Config::new().limits(Limits::new().idle(None))
}

fn an_echo_passes_and_both_sides_say_that_they_end<T: Harness>() {
    let (mut b, tls) = serve::<T>(Echo::default(), config());
    let mut peer = Peer::open(&mut b, &tls);
    let all: Vec<u8> = (0..300_000_u32).map(|at| ((at * 7) >> 3) as u8).collect();
    peer.say(&mut b, &all[..5]);
    peer.until(&mut b, "it is echoed", |peer, _| peer.plain.len() == 5);
    peer.say(&mut b, &all[5..]);
    peer.until(&mut b, "all is echoed", |peer, _| peer.plain.len() == all.len());
    assert!(peer.plain == all && b.running.handler().heard == all);
    peer.end(&mut b);
    peer.until(&mut b, "the server ends, too", |peer, b| peer.heard_the_end(b));
    b.until("it has ended", |b| !b.running.handler().closed.is_empty());
    assert_eq!(b.running.handler().closed, [(Cause::Eof, 0)]);
    assert_eq!((b.running.handler().opened, b.running.report().counters.accepted), (1, 1));
}

fn a_handshake_that_comes_byte_by_byte_is_one<T: Harness>() {
    let (mut b, tls) = serve::<T>(Echo::default(), config());
    let mut peer = Peer::new(&mut b, &tls);
    peer.piece = 1;
    peer.until(&mut b, "it is open", |peer, _| peer.session.is_open());
    peer.say(&mut b, b"hello");
    peer.until(&mut b, "it is echoed", |peer, _| peer.plain == b"hello");
}

fn a_cut_is_no_end_of_the_input<T: Harness>() {
    let (mut b, tls) = serve::<T>(Echo::default(), config().close_on_eof(false));
    let mut peer = Peer::open(&mut b, &tls);
    peer.say(&mut b, b"hello");
    peer.until(&mut b, "it is echoed", |peer, _| peer.plain == b"hello");
    b.finish(peer.client);
    b.until("it has ended", |b| !b.running.handler().closed.is_empty());
    assert_eq!(b.running.handler().closed, [(Cause::Truncated, 0)]);
    assert_eq!(b.running.handler().eofs, 0);
}

fn a_peer_that_speaks_no_tls_gets_an_alert<T: Harness>() {
    let (mut b, _) = serve::<T>(Echo::default(), config());
    let client = b.connect();
    b.say(client, "GET / HTTP/1.1\r\n\r\n");
    b.until("it is refused", |b| b.client(client).is_over());
    assert_eq!(b.client(client).heard[..3], [21, 3, 3], "an alert");
    assert!(b.client(client).eof);
    b.until("it is counted", |b| b.running.report().counters.refused == 1);
    assert_eq!((b.running.handler().opened, b.running.engine().len()), (0, 0));
    assert_eq!(b.running.engine().budget().used(), 0);
}

fn a_silent_peer_is_refused_in_time<T: Harness>() {
    let limits = config().limits.handshake(T::span(5.0));
    let (mut b, tls) = serve::<T>(Echo::default(), config().limits(limits));
    let (silent, mut half) = (b.connect(), Peer::new(&mut b, &tls));
    let start = b.watcher.update_now();
    let mut hello = Vec::new();
    half.session.take_output(&mut hello);
    b.say(half.client, hello[..hello.len() / 2].to_vec());
    b.until("both are refused", |b| b.client(silent).is_over() && b.client(half.client).is_over());
    assert!(b.watcher.update_now() - start >= T::span(5.0));
    assert_eq!((b.running.report().counters.refused, b.running.handler().opened), (2, 0));
    assert_eq!(b.running.engine().budget().used(), 0);
}

fn a_record_that_was_changed_ends_the_connection_with_an_alert<T: Harness>() {
    let (mut b, tls) = serve::<T>(Echo::default(), config());
    let mut peer = Peer::open(&mut b, &tls);
    let mut out = Vec::new();
    peer.session.write_all(b"hello", &mut out).unwrap();
    *out.last_mut().unwrap() ^= 1;
    b.say(peer.client, out);
    peer.until(&mut b, "it has ended", |peer, b| b.client(peer.client).is_over());
    b.until("it is told", |b| !b.running.handler().closed.is_empty());
    assert_eq!(b.running.handler().closed, [(Cause::Tls, 0)]);
    let failure = peer.session.failure().map(ToString::to_string).unwrap_or_default();
    assert!(failure.contains("bad_record_mac"), "{failure}");
    assert!(b.running.handler().heard.is_empty());
}

fn an_answer_is_whole_before_the_end<T: Harness>() {
    let bytes = 3 << 20;
    let echo = Echo { closes_after: Some(bytes), ..Echo::default() };
    let (mut b, tls) = serve::<T>(echo, config());
    let mut peer = Peer::open(&mut b, &tls);
    peer.say(&mut b, b"go");
    peer.until(&mut b, "it has ended", |peer, b| peer.heard_the_end(b));
    assert!(peer.plain == vec![7; bytes]);
    b.until("it is told", |b| !b.running.handler().closed.is_empty());
    assert_eq!(b.running.handler().closed, [(Cause::Closed, 0)]);
}

fn input_during_a_pause_comes_in_order<T: Harness>() {
    let (mut b, tls) = serve::<T>(Echo { pauses: true, ..Echo::default() }, config());
    let mut peer = Peer::open(&mut b, &tls);
    for piece in [b"one ", b"two ", b"end."] {
        peer.say(&mut b, piece);
        b.run_for(T::span(1.0));
    }
    peer.end(&mut b);
    b.run_for(T::span(1.0));
    assert!(b.running.handler().heard.is_empty());
    let id = b.running.engine().ids().next().unwrap();
    b.running.remote().wake(id);
    peer.until(&mut b, "the server ends", |peer, b| peer.heard_the_end(b));
    assert_eq!(
        (&*peer.plain, &*b.running.handler().heard),
        (&b"one two end."[..], &b"one two end."[..])
    );
}

fn an_answer_behind_the_peers_end_arrives<T: Harness>() {
    let (mut b, tls) = serve::<T>(Echo::default(), config().close_on_eof(false));
    let mut peer = Peer::open(&mut b, &tls);
    peer.say(&mut b, b"hello ");
    peer.end(&mut b);
    b.finish(peer.client);
    peer.until(&mut b, "the server ends, too", |peer, b| peer.heard_the_end(b));
    assert_eq!(peer.plain, b"hello behind the end");
    assert_eq!(b.running.handler().eofs, 1);
}

fn a_reset_is_a_cause<T: Harness>() {
    let (mut b, tls) = serve::<T>(Echo::default(), config());
    let mut peer = Peer::open(&mut b, &tls);
    peer.say(&mut b, b"hello");
    peer.until(&mut b, "it is echoed", |peer, _| peer.plain == b"hello");
    let linger = windlass::net::SocketOption::Linger(Some(Duration::ZERO));
    b.watcher.set_option(peer.client, linger).unwrap();
    b.watcher.abort(peer.client);
    b.until("it has ended", |b| !b.running.handler().closed.is_empty());
    let closed = b.running.handler().closed[0];
    assert!(matches!(closed, (Cause::Os(_), 0)), "{closed:?}");
}

fn a_shutdown_says_the_end<T: Harness>() {
    let (mut b, tls) = serve::<T>(Echo::default(), config());
    let mut peer = Peer::open(&mut b, &tls);
    peer.say(&mut b, b"hello");
    peer.until(&mut b, "it is echoed", |peer, _| peer.plain == b"hello");
    b.running.remote().shutdown();
    peer.until(&mut b, "the server ends", |peer, b| peer.heard_the_end(b));
    b.until("it is over", |b| b.running.is_over());
    assert_eq!(b.running.report().unfinished.len(), 0);
}

/// The end of file behind `close_notify` left it without one.
fn a_half_closed_connection_has_a_clock<T: Harness>() {
    let limits = config().limits.idle(T::span(5.0));
    let echo = Echo { stays: true, ..Echo::default() };
    let (mut b, tls) = serve::<T>(echo, config().limits(limits).close_on_eof(false));
    let mut peer = Peer::open(&mut b, &tls);
    peer.end(&mut b);
    b.until("the end is told", |b| b.running.handler().eofs == 1);
    b.finish(peer.client);
    peer.until(&mut b, "the server ends", |peer, b| peer.heard_the_end(b));
    b.until("it is told", |b| !b.running.handler().closed.is_empty());
    assert_eq!(b.running.handler().closed, [(Cause::Idle, 0)]);
}

fn nothing_stays_charged<T: Harness>() {
    let (mut b, tls) = serve::<T>(Echo::default(), config());
    let mut peers: Vec<Peer> = (0..20).map(|_| Peer::open(&mut b, &tls)).collect();
    for peer in &mut peers {
        peer.say(&mut b, &[1; 10_000]);
        peer.until(&mut b, "it is echoed", |peer, _| peer.plain.len() == 10_000);
    }
    b.until("nothing waits", |b| b.running.engine().budget().used() == 0);
    for peer in &mut peers {
        peer.end(&mut b);
    }
    b.until("all have ended", |b| b.running.handler().closed.len() == 20);
    assert_eq!(b.running.engine().budget().used(), 0);
}

/// The descriptor would have left without the keys.
fn a_detach_is_refused<T: Harness>() {
    let (mut b, tls) = serve::<T>(Echo { detaches: true, ..Echo::default() }, config());
    let mut peer = Peer::open(&mut b, &tls);
    peer.say(&mut b, b"hello");
    peer.until(&mut b, "it is echoed", |peer, _| peer.plain == b"hello");
}

/// Plain text lies in the memory of the read. The program got all buffers of the pool.
fn a_program_that_keeps_all_data_holds_up_nobody<T: Harness>() {
    let builder = Watcher::builder().buffer_size(4096).swap_limit(4 * 4096);
    let echo = Echo { kept: Some(Vec::new()), ..Echo::default() };
    let (mut b, tls) = serve_with::<T>(builder, echo, config());
    let mut peers: Vec<Peer> = (0..3).map(|_| Peer::open(&mut b, &tls)).collect();
    for round in 1..=20 {
        for peer in &mut peers {
            peer.say(&mut b, &[7; 300]);
            peer.until(&mut b, "it is echoed", |peer, _| peer.plain.len() == round * 300);
        }
    }
    assert_eq!(b.running.handler().heard.len(), 3 * 20 * 300);
}

fn a_connection_too_many_gets_no_plain_text<T: Harness>() {
    let limits = config().limits.connections(1);
    let config = config().limits(limits).farewell(b"full");
    let (mut b, tls) = serve::<T>(Echo::default(), config);
    let _first = Peer::open(&mut b, &tls);
    let late = b.connect();
    b.until("it is refused", |b| b.client(late).is_over());
    assert!(b.client(late).heard.is_empty());
}
