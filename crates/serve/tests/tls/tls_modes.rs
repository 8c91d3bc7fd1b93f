//! Connections with TLS in each mode: on loops, on threads of their own, on their way from one to
//! the other, and as streams of other threads.
//!
//! Of the promises on the page of the crate: P2, P3 and P9.

use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::task;
use std::thread::{self, Thread};
use std::time::Duration;

use crate::common;
use crate::common::scene::{News, Scene, Setting, pattern};
use windlass::{Address, Buf};
use windlass_serve::modes::IoMode;
use windlass_serve::{
    Action, Cause, Closed, Config, Conn, Context, Handler, Id, Limits, Origin, Stream,
};

crate::secure_modes! {
    an_echo_passes
    many_are_served_at_once
    a_connection_moves_while_data_flows_both_ways
    a_move_in_the_middle_of_a_record_loses_nothing
    a_move_behind_the_peers_end_is_none_of_the_input
    a_stream_of_another_thread_passes_the_session
    a_cut_reaches_the_stream_of_another_thread
}

#[derive(Debug, PartialEq)]
enum Note {
    Opened,
    /// How many bytes have come.
    Data(usize),
    Moves(bool),
    Moved,
    Eof,
    Streamed(Vec<u8>, bool),
    Closed(Cause, usize),
}

#[derive(Clone, Copy, Default)]
struct Does {
    /// Moves with the first data after so many bytes.
    moves_after: Option<usize>,
    /// Makes a stream of the connection, which a thread serves.
    streams: bool,
}

struct Echo {
    news: News<Note>,
    does: Does,
}

struct Unpark(Thread);

impl task::Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Echoes until the end of the input. Returns what has come, and whether the end was a good one.
fn echo(mut stream: Stream) -> (Vec<u8>, bool) {
    stream.set_waker(task::Waker::from(Arc::new(Unpark(thread::current()))));
    let (mut heard, mut piece) = (Vec::new(), vec![0; 10_000]);
    loop {
        let count = match stream.read(&mut piece) {
            Ok(0) => return (heard, true),
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                thread::park();
                continue;
            }
            Err(_) => return (heard, false),
        };
        heard.extend_from_slice(&piece[..count]);
        let mut left = &piece[..count];
        while !left.is_empty() {
            match stream.write(left) {
                Ok(count) => left = &left[count..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => thread::park(),
                Err(_) => return (heard, false),
            }
        }
    }
}

impl Handler for Echo {
    /// How many bytes have come.
    type State = usize;

    fn serving(&mut self, server: &mut Context<'_, usize>, addresses: &[Address]) -> Action {
        self.news.serving(server, addresses)
    }
    fn opened(&mut self, c: &mut Conn<'_, usize>, _: Origin) -> Action {
        self.news.tell(Note::Opened);
        if self.does.streams {
            let (stream, news) = (c.into_std().expect("a stream"), self.news.clone());
            thread::spawn(move || {
                let (heard, is_whole) = echo(stream);
                news.tell(Note::Streamed(heard, is_whole));
            });
        }
        Action::None
    }
    fn data(&mut self, c: &mut Conn<'_, usize>, data: Buf) -> Action {
        let before = *c.state();
        *c.state() += data.len();
        self.news.tell(Note::Data(*c.state()));
        c.write(data);
        if let Some(after) = self.does.moves_after
            && before <= after
            && *c.state() > after
        {
            let moves = c.move_to_loop();
            self.news.tell(Note::Moves(moves));
        }
        Action::None
    }
    fn moved(&mut self, _: &mut Conn<'_, usize>, _: Id) -> Action {
        self.news.tell(Note::Moved);
        Action::None
    }
    fn eof(&mut self, _: &mut Conn<'_, usize>) -> Action {
        self.news.tell(Note::Eof);
        Action::Close
    }
    fn closed(&mut self, _: &mut Context<'_, usize>, closed: Closed<usize>) -> Action {
        self.news.tell(Note::Closed(closed.cause, closed.unsent));
        Action::None
    }
}

type Stage<T> = Scene<<T as common::Harness>::Driver, Echo, Note>;

fn scene<T: Setting>(does: Does) -> Stage<T> {
    let make = move |news| Echo { news, does };
    let config = Config::new().limits(Limits::new()).close_on_eof(false);
    Scene::start::<T>(make, |server| server.config(config).listen("tcp://127.0.0.1:0").unwrap())
}

/// Whether a thread of its own serves the first connection, and a loop is there for it to go to.
fn may_move<T: Setting>() -> bool {
    T::MODE != Some(IoMode::NonBlocking)
}

fn an_echo_passes<T: Setting>() {
    let mut scene = scene::<T>(Does::default());
    let connect = scene.blocking_client();
    let all = pattern(5 << 20, 1);
    let client = thread::spawn(move || {
        let mut client = connect();
        for part in all.chunks(70_001) {
            client.write_all(part).unwrap();
            let mut heard = vec![0; part.len()];
            client.read_exact(&mut heard).unwrap();
            assert!(heard == part);
        }
    });
    scene.until("it has ended", |s| s.news.count(|note| matches!(note, Note::Closed(..))) == 1);
    client.join().expect("all was echoed");
    assert_eq!(scene.news.count(|note| *note == Note::Closed(Cause::Closed, 0)), 1);
    assert_eq!(scene.news.count(|note| *note == Note::Eof), 1);
    scene.end();
}

fn many_are_served_at_once<T: Setting>() {
    let mut scene = scene::<T>(Does::default());
    let clients: Vec<_> = (0..12).map(|_| scene.connect()).collect();
    for (at, client) in clients.iter().enumerate() {
        scene.say(*client, pattern(20_000, at));
    }
    for (at, client) in clients.iter().enumerate() {
        scene.until("it is echoed", |s| s.client(*client).heard.len() == 20_000);
        assert!(scene.client(*client).heard == pattern(20_000, at));
    }
    for client in clients {
        scene.finish(client);
    }
    scene.until("all have ended", |s| {
        s.news.count(|note| *note == Note::Closed(Cause::Closed, 0)) == 12
    });
    scene.end();
}

/// The client always has as much on its way as the server takes.
fn a_connection_moves_while_data_flows_both_ways<T: Setting>() {
    let mut scene = scene::<T>(Does { moves_after: Some(1 << 20), streams: false });
    let client = scene.connect();
    let all = pattern(4 << 20, 3);
    let mut said = 0;
    while scene.client(client).heard.len() < all.len() {
        let heard = scene.client(client).heard.len();
        if said < all.len() && said < heard + (600 << 10) {
            let part = (said * 7 % 40_000 + 1).min(all.len() - said);
            scene.say(client, all[said..said + part].to_vec());
            said += part;
        } else {
            scene.until("more has come", |s| s.client(client).heard.len() > heard);
        }
    }
    assert!(scene.client(client).heard == all, "other bytes");
    assert_eq!(scene.news.count(|note| *note == Note::Moves(may_move::<T>())), 1);
    assert_eq!(scene.news.count(|note| *note == Note::Moved), usize::from(may_move::<T>()));
    assert_eq!(scene.news.count(|note| *note == Note::Opened), 1);
    scene.finish(client);
    scene.until("it has ended", |s| {
        s.news.count(|note| *note == Note::Closed(Cause::Closed, 0)) == 1
    });
    scene.end();
}

/// What the session has of a record goes along.
fn a_move_in_the_middle_of_a_record_loses_nothing<T: Setting>() {
    let mut scene = scene::<T>(Does { moves_after: Some(0), streams: false });
    let client = scene.connect();
    scene.until("it is open", |s| s.is_secured(client));
    let mut first = scene.encrypt(client, b"go");
    let record = scene.encrypt(client, &pattern(16_000, 5));
    first.extend_from_slice(&record[..9_000]);
    scene.say_raw(client, first);
    if may_move::<T>() {
        scene.until("it has moved", |s| s.news.count(|note| *note == Note::Moved) == 1);
    }
    scene.say_raw(client, record[9_000..].to_vec());
    scene.until("all is echoed", |s| s.client(client).heard.len() == 16_002);
    assert!(scene.client(client).heard == [b"go".to_vec(), pattern(16_000, 5)].concat());
    scene.finish(client);
    scene.until("it has ended", |s| {
        s.news.count(|note| *note == Note::Closed(Cause::Closed, 0)) == 1
    });
    scene.end();
}

/// The end of the input came with the data that made it move.
fn a_move_behind_the_peers_end_is_none_of_the_input<T: Setting>() {
    let mut scene = scene::<T>(Does { moves_after: Some(0), streams: false });
    let client = scene.connect();
    scene.say(client, "all of it");
    scene.until("it is open", |s| s.is_secured(client));
    scene.finish(client);
    scene.until("it has ended", |s| s.news.count(|note| matches!(note, Note::Closed(..))) == 1);
    assert_eq!(scene.news.count(|note| *note == Note::Closed(Cause::Closed, 0)), 1);
    assert_eq!(scene.news.count(|note| *note == Note::Eof), 1);
    scene.until("the end has come", |s| s.client(client).is_over());
    assert_eq!(scene.client(client).heard, b"all of it");
    assert!(scene.client(client).eof, "{:?}", scene.client(client).error);
    scene.end();
}

fn a_stream_of_another_thread_passes_the_session<T: Setting>() {
    let mut scene = scene::<T>(Does { moves_after: None, streams: true });
    let client = scene.connect();
    let all = pattern(3 << 20, 8);
    for part in all.chunks(333_333) {
        let len = scene.client(client).heard.len() + part.len();
        scene.say(client, part.to_vec());
        scene.until("it is echoed", |s| s.client(client).heard.len() == len);
    }
    assert!(scene.client(client).heard == all);
    scene.finish(client);
    scene.until("the end has come", |s| s.client(client).is_over());
    // The drop of the stream has said `close_notify`.
    assert!(scene.client(client).eof, "{:?}", scene.client(client).error);
    scene.until("it is told", |s| s.news.count(|note| matches!(note, Note::Streamed(..))) == 1);
    assert_eq!(scene.news.count(|note| *note == Note::Streamed(all.clone(), true)), 1);
    scene.end();
}

fn a_cut_reaches_the_stream_of_another_thread<T: Setting>() {
    let mut scene = scene::<T>(Does { moves_after: None, streams: true });
    let client = scene.connect();
    scene.say(client, "hello");
    scene.until("it is echoed", |s| s.client(client).heard == b"hello");
    scene.cut(client);
    scene.until("it is told", |s| s.news.count(|note| matches!(note, Note::Streamed(..))) == 1);
    assert_eq!(scene.news.count(|note| *note == Note::Streamed(b"hello".to_vec(), false)), 1);
    scene.until("it has ended", |s| {
        s.news.count(|note| *note == Note::Closed(Cause::Truncated, 0)) == 1
    });
    scene.run_for(Duration::ZERO);
    scene.end();
}
