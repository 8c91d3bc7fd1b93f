//! The end of a peer with TLS while its connection is not read, on every driver.

use crate::common::engine::no_times;
use crate::common::{Bench, Harness, bench, secure};
use crate::peer::Peer;
use windlass::Buf;
use windlass_serve::tls::{Role, Session, Tls, TlsClient};
use windlass_serve::{Action, Cause, Closed, Config, Conn, Context, Handler, Id, Origin, Server};

crate::every_kernel! {
    an_end_behind_an_unread_close_notify_is_told
    a_cut_in_a_pause_is_told
    an_upgrade_takes_the_poll_back
}

/// Pauses with the first message, and watches. A wake ends the pause, or begins an upgrade.
#[derive(Default)]
struct Pauses {
    id: Option<Id>,
    told: Vec<&'static str>,
    heard: Vec<u8>,
    upgrade: Option<Tls>,
    cause: Option<Cause>,
}

impl Handler for Pauses {
    type State = ();
    fn opened(&mut self, c: &mut Conn<'_, ()>, _: Origin) -> Action {
        self.id = Some(c.id());
        Action::None
    }
    fn data(&mut self, c: &mut Conn<'_, ()>, data: Buf) -> Action {
        self.heard.extend_from_slice(&data);
        if self.heard == b"STARTTLS\n" || self.heard == b"request" {
            c.pause();
            c.watch_peer(true);
        }
        Action::None
    }
    fn peer_ended(&mut self, _: &mut Conn<'_, ()>) -> Action {
        self.told.push("peer ended");
        Action::None
    }
    fn eof(&mut self, _: &mut Conn<'_, ()>) -> Action {
        self.told.push("eof");
        Action::Close
    }
    fn upgraded(&mut self, _: &mut Conn<'_, ()>) -> Action {
        self.told.push("upgraded");
        Action::None
    }
    fn wake(&mut self, c: &mut Conn<'_, ()>) -> Action {
        match self.upgrade.take() {
            Some(tls) => c.upgrade(Role::Server(tls), Buf::default()).expect("it is plain"),
            None => c.resume(),
        }
        Action::None
    }
    fn closed(&mut self, _: &mut Context<'_, ()>, closed: Closed<()>) -> Action {
        self.told.push("closed");
        self.cause = Some(closed.cause);
        Action::None
    }
}

type Served<T> = Bench<<T as Harness>::Driver, Pauses>;

fn serve<T: Harness>(handler: Pauses, tls: Option<Tls>) -> Served<T> {
    let handler = std::cell::RefCell::new(Some(handler));
    let config = Config::new().limits(no_times()).close_on_eof(false);
    let server = Server::new(move |_| handler.borrow_mut().take().expect("one loop"));
    let server = server.config(config).listen("tcp://127.0.0.1:0").unwrap();
    bench::<T, _, _>(match tls {
        Some(tls) => server.tls(tls),
        None => server,
    })
}

/// A client whose connection is paused, and is not read any more. (It holds a piece, or a part of
/// a record, if the network tears that.)
fn paused<T: Harness>(b: &mut Served<T>, tls: &TlsClient) -> Peer {
    let mut peer = Peer::open(b, tls);
    peer.say(b, b"request");
    b.until("it pauses", |b| b.running.handler().heard == b"request");
    peer.say(b, b" held");
    b.run_for(T::span(1.0));
    peer
}

fn wake<T: Harness>(b: &mut Served<T>) {
    let id = b.running.handler().id.expect("it is open");
    b.running.engine().wake(id);
    b.running.turn(&mut b.watcher);
}

fn an_end_behind_an_unread_close_notify_is_told<T: Harness>() {
    let (server, client) = secure::settings();
    let mut b = serve::<T>(Pauses::default(), Some(server));
    let mut peer = paused::<T>(&mut b, &client);
    peer.say(&mut b, b" unread");
    peer.end(&mut b);
    b.run_for(T::span(1.0));
    b.finish(peer.client);
    b.until("it is told", |b| !b.running.handler().told.is_empty());
    b.run_for(T::span(1.0));
    assert_eq!(b.running.handler().told, ["peer ended"]);
    wake::<T>(&mut b);
    b.until("it has ended", |b| b.running.handler().cause.is_some());
    let handler = b.running.handler();
    assert_eq!(handler.told, ["peer ended", "eof", "closed"]);
    assert_eq!(handler.heard, b"request held unread");
}

fn a_cut_in_a_pause_is_told<T: Harness>() {
    let (server, client) = secure::settings();
    let mut b = serve::<T>(Pauses::default(), Some(server));
    let peer = paused::<T>(&mut b, &client);
    b.run_for(T::span(1.0));
    b.finish(peer.client);
    b.until("it is told", |b| !b.running.handler().told.is_empty());
    b.run_for(T::span(1.0));
    assert_eq!(b.running.handler().told, ["peer ended"]);
    wake::<T>(&mut b);
    b.until("it has ended", |b| b.running.handler().cause.is_some());
    let handler = b.running.handler();
    assert_eq!(handler.cause, Some(Cause::Truncated));
    assert_eq!(handler.heard, b"request held");
}

fn an_upgrade_takes_the_poll_back<T: Harness>() {
    let (server, client) = secure::settings();
    let handler = Pauses { upgrade: Some(server), ..Pauses::default() };
    let mut b = serve::<T>(handler, None);
    let plain = b.connect();
    b.say(plain, "STARTTLS\n");
    b.until("it pauses", |b| b.running.handler().heard.ends_with(b"\n"));
    // The beginning of the handshake is held, and the poll is in flight.
    let mut session = Session::client(&client, "localhost").unwrap();
    let mut hello = Vec::new();
    session.take_output(&mut hello);
    let rest = hello.split_off(10);
    b.say(plain, hello);
    b.run_for(T::span(1.0));
    wake::<T>(&mut b);
    b.say(plain, rest);
    let mut peer = Peer { client: plain, session, fed: 0, plain: Vec::new(), piece: usize::MAX };
    peer.until(&mut b, "the session is open", |peer, _| peer.session.is_open());
    b.until("it is told", |b| !b.running.handler().told.is_empty());
    assert_eq!(b.running.handler().told, ["upgraded"]);
    // The pause goes on, and so does the watch.
    peer.say(&mut b, b"held");
    b.run_for(T::span(1.0));
    peer.end(&mut b);
    b.finish(plain);
    b.until("it is told", |b| b.running.handler().told.len() > 1);
    wake::<T>(&mut b);
    b.until("it has ended", |b| b.running.handler().cause.is_some());
    let handler = b.running.handler();
    assert_eq!(handler.told, ["upgraded", "peer ended", "eof", "closed"]);
    assert_eq!(handler.heard, b"STARTTLS\nheld");
}
