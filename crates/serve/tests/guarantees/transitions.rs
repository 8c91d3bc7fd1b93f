//! Bytes that a program has read ahead, and gives back for what comes next.

use std::io::Read;

use crate::common::{Bench, Harness, bench};
use windlass::{Buf, Source};
use windlass_serve::{
    Action, Closed, Config, Conn, Context, Detached, Handler, Refusal, Server, Stream,
};

crate::every_kernel! {
    the_next_layer_gets_what_was_read_ahead
    a_pause_holds_it_back_in_front_of_the_rest
    the_owner_of_the_descriptor_gets_it_first
    a_stream_reads_it_first
    a_connection_that_cannot_take_it_back_says_why
}

/// Each layer takes three bytes, and gives the rest back.
#[derive(Default)]
struct Layers {
    heard: Vec<u8>,
    calls: usize,
    closed: usize,
    undelivered: Option<Vec<u8>>,
    stream: Option<Stream>,
    refused: Vec<Refusal>,
}

impl Handler for Layers {
    type State = Vec<u8>;

    fn data(&mut self, c: &mut Conn<'_, Vec<u8>>, data: Buf) -> Action {
        assert_eq!(data.parts().len(), 1);
        let state = c.state();
        state.extend_from_slice(&data);
        if state.len() < 3 {
            return Action::None;
        }
        let rest = state.split_off(3);
        let taken = std::mem::take(state);
        self.heard.extend_from_slice(&taken);
        self.calls += 1;
        // It comes in several pieces, too.
        let (one, two) = rest.split_at(rest.len() / 2);
        let rest = Buf::list([Buf::from(one.to_vec()), Buf::from(two.to_vec())]);
        match &*taken {
            b"pau" => {
                c.pause();
                let id = c.id();
                c.engine().wake(id);
                c.unread(rest).expect("it is open");
            }
            b"det" => {
                c.unread(rest).expect("it is open");
                c.detach().expect("it may leave");
            }
            b"str" => {
                c.unread(rest).expect("it is open");
                self.stream = c.into_std();
                self.refused.push(c.unread("x").unwrap_err().reason);
            }
            b"clo" => {
                let id = c.id();
                c.engine().close(id);
                let refused = c.unread(rest).unwrap_err();
                self.refused.push(refused.reason);
                assert_eq!(refused.value.len(), 2);
            }
            _ => c.unread(rest).expect("it is open"),
        }
        Action::None
    }

    fn wake(&mut self, c: &mut Conn<'_, Vec<u8>>) -> Action {
        c.resume();
        Action::None
    }

    fn eof(&mut self, c: &mut Conn<'_, Vec<u8>>) -> Action {
        self.refused.push(c.unread("x").unwrap_err().reason);
        Action::Close
    }

    fn detached(&mut self, _: &mut Context<'_, Vec<u8>>, detached: Detached<Vec<u8>>) -> Action {
        let all = detached.undelivered.iter().flat_map(|data| data.to_vec());
        self.undelivered = Some(all.collect());
        Action::None
    }

    fn closed(&mut self, _: &mut Context<'_, Vec<u8>>, _: Closed<Vec<u8>>) -> Action {
        self.closed += 1;
        Action::None
    }
}

type Served<T> = Bench<<T as Harness>::Driver, Layers>;

fn serve<T: Harness>(say: &'static str) -> (Served<T>, Source) {
    let config = Config::new().close_on_eof(false);
    let server = Server::new(|_| Layers::default()).config(config);
    let mut b = bench::<T, _, _>(server.listen("tcp://127.0.0.1:0").unwrap());
    let client = b.connect();
    b.say(client, say);
    (b, client)
}

fn the_next_layer_gets_what_was_read_ahead<T: Harness>() {
    let (mut b, _client) = serve::<T>("onetwosixten");
    b.until("all is heard", |b| b.running.handler().heard.len() == 12);
    let handler = b.running.handler();
    assert_eq!((&*handler.heard, handler.calls), (&b"onetwosixten"[..], 4));
    b.until("nothing is held", |b| b.running.engine().budget().used() == 0);
}

fn a_pause_holds_it_back_in_front_of_the_rest<T: Harness>() {
    let (mut b, client) = serve::<T>("pauonepautwo");
    b.say(client, "six");
    b.until("all is heard", |b| b.running.handler().heard.len() == 15);
    assert_eq!(b.running.handler().heard, b"pauonepautwosix");
    b.until("nothing is held", |b| b.running.engine().budget().used() == 0);
}

fn the_owner_of_the_descriptor_gets_it_first<T: Harness>() {
    let (mut b, _client) = serve::<T>("onedet");
    b.until("it has left", |b| b.running.handler().undelivered.is_some());
    let before = b.running.handler().undelivered.take().unwrap();
    // What follows in the same read, however it was cut.
    assert!(before.is_empty());
    let client = b.connect();
    b.say(client, "onedetab");
    b.until("it has left", |b| b.running.handler().undelivered.is_some());
    let undelivered = b.running.handler().undelivered.take().unwrap();
    assert!(b"ab".starts_with(&undelivered), "{undelivered:?}");
    assert!(T::NAME == "faults" || undelivered == b"ab");
    assert_eq!(b.running.engine().budget().used(), 0);
}

fn a_stream_reads_it_first<T: Harness>() {
    let (mut b, client) = serve::<T>("strabcd");
    b.until("there is a stream", |b| b.running.handler().stream.is_some());
    b.say(client, "efgh");
    let (mut all, mut bytes) = (Vec::new(), [0; 16]);
    b.until("it has read all", |b| {
        let stream = b.running.handler().stream.as_mut().expect("right from above");
        if let Ok(count) = stream.read(&mut bytes) {
            all.extend_from_slice(&bytes[..count]);
        }
        all.len() == 8
    });
    assert_eq!(all, b"abcdefgh");
    assert_eq!(b.running.handler().refused, [Refusal::Stream]);
}

fn a_connection_that_cannot_take_it_back_says_why<T: Harness>() {
    if T::NAME == "faults" {
        return; // a read may have a part of it
    }
    let (mut b, _) = serve::<T>("cloab");
    let other = b.connect();
    b.finish(other);
    b.until("both have ended", |b| b.running.handler().closed == 2);
    let mut refused = b.running.handler().refused.clone();
    refused.sort_by_key(|reason| *reason == Refusal::Ended);
    assert_eq!(refused, [Refusal::Stale, Refusal::Ended]);
}
