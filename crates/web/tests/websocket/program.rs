//! An application that does what its clients say, and notes what happens.
#![allow(dead_code, unreachable_pub)] // it is a module of a test binary

use std::collections::HashMap;
use std::time::Duration;

use windlass_serve::Id;
use windlass_web::App;
use windlass_web::Status;
use windlass_web::websocket::{
    CloseCode, Kind, Message, Peer, Socket, SocketEnd, WebSocketSettings,
};

use crate::bench::{Web, serve};
use crate::client::Got;
use crate::common::Harness;

/// What has happened.
#[derive(Default)]
pub struct Log {
    pub opened: Vec<Id>,
    /// The ids of connections by the numbers that they have said.
    pub ids: HashMap<usize, Id>,
    /// Messages and pongs, by the number of their connection.
    pub heard: Vec<(usize, Got)>,
    pub drained: usize,
    pub woken: usize,
    pub ends: Vec<(usize, SocketEnd)>,
    /// Statuses of requests that are finished.
    pub finished: Vec<u16>,
}

impl Log {
    /// What a connection has heard.
    pub fn of(&self, number: usize) -> Vec<Got> {
        self.heard.iter().filter(|(of, _)| *of == number).map(|(_, got)| got.clone()).collect()
    }

    /// The only end.
    #[track_caller]
    pub fn end(&self) -> &SocketEnd {
        assert_eq!(self.ends.len(), 1, "{:?}", self.ends);
        &self.ends[0].1
    }
}

/// Does what texts say that begin with `!`, and echoes all other messages.
pub struct Obeys {
    number: usize,
    /// The number that its client has said.
    said: Option<usize>,
    /// What it does when it is opened, and when it has room again.
    at_open: String,
    at_drained: String,
}

impl Obeys {
    pub fn new(at_open: &str, at_drained: &str) -> Obeys {
        Obeys {
            number: 0,
            said: None,
            at_open: at_open.to_owned(),
            at_drained: at_drained.to_owned(),
        }
    }
}

/// Carries out one order.
fn obey(c: &mut Socket<'_>, order: &str) {
    let (word, rest) = order.split_once(' ').unwrap_or((order, ""));
    match word {
        "!say" => _ = c.send(rest.to_owned()),
        "!part" => _ = c.send_part(Kind::Text, rest.to_owned(), false),
        "!last" => _ = c.send_part(Kind::Text, rest.to_owned(), true),
        "!close" => {
            let (code, reason) = rest.split_once(' ').unwrap_or((rest, ""));
            let code = code.parse().ok().and_then(CloseCode::new).expect("a code");
            c.close(code, reason);
        }
        "!abort" => c.abort(),
        "!pause" => c.pause(),
        "!resume" => c.resume(),
        "!ping" => _ = c.ping(rest.as_bytes()),
        "!subscribe" => c.subscribe(rest),
        "!unsubscribe" => c.unsubscribe(rest),
        "!publish" => {
            let (topic, text) = rest.split_once(' ').expect("a text");
            c.publish(topic, text);
        }
        "!large" => {
            let len: usize = rest.parse().expect("a length");
            c.send(vec![b'l'; len]);
        }
        "!many" => {
            let count: usize = rest.parse().expect("a number");
            (0..count).for_each(|at| _ = c.send(at.to_string()));
        }
        "!panic" => panic!("as it was told to"),
        "" => {}
        _ => panic!("{order}?"),
    }
}

/// Carries out orders with `;` between them.
fn obey_all(c: &mut Socket<'_>, orders: &str) {
    orders.split(';').for_each(|order| obey(c, order));
}

impl Peer<Log> for Obeys {
    fn open(&mut self, log: &mut Log, c: &mut Socket<'_>) {
        self.number = self.said.unwrap_or(log.opened.len());
        log.ids.insert(self.number, c.id());
        log.opened.push(c.id());
        obey_all(c, &self.at_open);
    }

    fn message(&mut self, log: &mut Log, c: &mut Socket<'_>, message: Message) {
        log.heard.push((
            self.number,
            match &message {
                Message::Text(text) => Got::Text(text.to_string()),
                Message::Binary(bytes) => Got::Binary(bytes.to_vec()),
            },
        ));
        match message.as_text() {
            Some(orders) if orders.starts_with('!') => obey_all(c, orders),
            _ => _ = c.send(message),
        }
    }

    fn pong(&mut self, log: &mut Log, c: &mut Socket<'_>, data: &[u8]) {
        log.heard.push((self.number, Got::Pong(data.to_vec())));
        if data.starts_with(b"!") {
            obey_all(c, std::str::from_utf8(data).expect("a text"));
        }
    }

    fn drained(&mut self, log: &mut Log, c: &mut Socket<'_>) {
        log.drained += 1;
        obey_all(c, &self.at_drained);
    }

    fn wake(&mut self, log: &mut Log, c: &mut Socket<'_>) {
        log.woken += 1;
        c.resume();
    }

    fn closed(&mut self, log: &mut Log, end: &SocketEnd) {
        log.ends.push((self.number, end.clone()));
    }
}

/// An application with a WebSocket at `/ws`, which does at its beginning what `open` says in the
/// query, and at each `drained` what `drained` says; and a page at `/page`.
pub fn app(settings: WebSocketSettings) -> App<Log> {
    App::with(|_| Log::default())
        .websocket_with(settings, "/ws", |_, q| {
            let plain = |name: &str| q.query(name).unwrap_or("").replace('_', " ");
            let said = q.query("number").and_then(|number| number.parse().ok());
            Ok::<_, Status>(Obeys { said, ..Obeys::new(&plain("open"), &plain("drained")) })
        })
        .get("/page", |_, _| "page")
        .finished(|log: &mut Log, finished| {
            log.finished.push(finished.status().map_or(0, |status| status.code()));
        })
}

/// Serves it.
pub fn web<T: Harness>() -> Web<T::Driver, Log> {
    web_with::<T>(WebSocketSettings::new())
}

pub fn web_with<T: Harness>(settings: WebSocketSettings) -> Web<T::Driver, Log> {
    serve::<T, _>(app(settings))
}

/// A time that no test reaches.
pub const NEVER: Duration = Duration::from_secs(100_000);
