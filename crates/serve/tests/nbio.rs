//! What nbio's engine does for a program, and its latent bugs, in every mode on every driver, and
//! in the simulation: the rows of `README.md` that no other file tests.
#![allow(missing_docs)] // a test binary has no users
#![cfg(unix)]

mod common;

use std::time::Duration;

use common::scene::{News, Scene, Setting, pattern};
use windlass::Address;
use windlass::Buf;
use windlass::net::{Keepalive, SocketOption};
use windlass_serve::{Action, Cause, Closed, Conn, Context, Handler, Id, Origin};

every_mode! {
    an_echo_with_every_option_counts_each_byte
}

/// How a connection has ended.
#[derive(Debug)]
struct End {
    id: Id,
    cause: Cause,
    unsent: usize,
    received: usize,
    sent: usize,
}

/// What a connection has received and sent.
#[derive(Default)]
struct Tally {
    received: usize,
    sent: usize,
}

/// Echoes, and counts.
struct Echo(News<End>);

impl Handler for Echo {
    type State = Tally;

    fn serving(&mut self, server: &mut Context<'_, Tally>, addresses: &[Address]) -> Action {
        self.0.serving(server, addresses)
    }

    fn opened(&mut self, c: &mut Conn<'_, Tally>, origin: Origin) -> Action {
        assert!(origin.peer.is_some() && c.state().received == 0);
        c.set_option(SocketOption::Linger(Some(Duration::from_secs(1))));
        c.set_option(SocketOption::Linger(None));
        c.set_option(SocketOption::Nodelay(true));
        c.set_option(SocketOption::Keepalive(Some(Keepalive::new(Duration::from_secs(60)))));
        c.set_option(SocketOption::RecvBuffer(4096));
        c.set_option(SocketOption::SendBuffer(4096));
        c.set_deadline(Duration::from_secs(3600));
        Action::None
    }

    fn data(&mut self, c: &mut Conn<'_, Tally>, data: Buf) -> Action {
        c.state().received += data.len();
        c.write(data);
        Action::None
    }

    fn postwrite(&mut self, c: &mut Conn<'_, Tally>, amount: usize, _: usize) -> Action {
        c.state().sent += amount;
        Action::None
    }

    fn closed(&mut self, _: &mut Context<'_, Tally>, closed: Closed<Tally>) -> Action {
        let Closed { id, cause, unsent, state, .. } = closed;
        self.0.tell(End { id, cause, unsent, received: state.received, sent: state.sent });
        Action::None
    }
}

/// nbio's TestEcho: two clients, one of which writes several buffers at once.
fn an_echo_with_every_option_counts_each_byte<T: Setting>() {
    const LENGTH: usize = 30_000;
    let mut scene = Scene::start::<T>(Echo, |server| server.listen("tcp://127.0.0.1:0").unwrap());
    let clients = [scene.connect(), scene.connect()];
    for (seed, client) in clients.into_iter().enumerate() {
        let bytes = pattern(LENGTH, seed);
        match seed {
            0 => scene.say(client, bytes),
            _ => {
                scene.say(client, Buf::list(bytes.chunks(999).map(|part| Buf::from(part.to_vec()))))
            }
        }
    }
    for (seed, client) in clients.into_iter().enumerate() {
        scene.until("all is echoed", |s| s.client(client).heard.len() == LENGTH);
        assert!(scene.client(client).heard == pattern(LENGTH, seed), "other bytes");
        scene.finish(client);
    }
    scene.until("both have ended", |s| s.news.notes().len() == 2);
    for end in &*scene.news.notes() {
        assert_eq!((end.cause, end.unsent), (Cause::Eof, 0), "{:?}", end.id);
        assert_eq!((end.received, end.sent), (LENGTH, LENGTH));
    }
    let report = scene.end();
    assert_eq!((report.counts.accepted, report.counts.option_errors), (2, 0));
}
