//! A chat with names and rooms, over WebSockets, and its page.
//!
//! ```text
//! cargo run --release -p windlass-web --example ws_chat -- [--port N] [--loops N]
//! ```
//!
//! Open <http://127.0.0.1:8080/> in two browsers. The page enters a room by a WebSocket to
//! `/rooms/ROOM?name=NAME`. A room is a topic: so its members get each other's messages, whichever
//! loop they are on. A name that is in the room already is refused with a 409, before the
//! connection becomes a WebSocket.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use windlass_web::websocket::{CloseCode, Message, Peer, Socket, SocketEnd};
use windlass_web::{App, Error, Remote, Request, Response, Status};

#[path = "common/mod.rs"]
mod common;

/// Which members each room has. All loops share it.
#[derive(Clone, Default)]
pub(crate) struct Rooms(Arc<Mutex<BTreeSet<(String, String)>>>);

impl Rooms {
    fn members(&self) -> MutexGuard<'_, BTreeSet<(String, String)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The names in a room.
    fn names(&self, room: &str) -> String {
        let members = self.members();
        let here = members.iter().filter(|(of, _)| of == room).map(|(_, name)| name.as_str());
        here.collect::<Vec<_>>().join(", ")
    }
}

pub(crate) struct Member {
    room: String,
    name: String,
    remote: Remote,
    /// Whether it is among the names of its room.
    is_in: bool,
}

impl Member {
    /// A member that may not enter gets the error as a response.
    fn enter(rooms: &Rooms, q: &Request<'_, Rooms>) -> Result<Member, Error> {
        let name = q.query("name").unwrap_or_default().trim().to_owned();
        if name.is_empty() || name.chars().count() > 30 || name.contains(char::is_control) {
            return Err(Error::new(Status::BAD_REQUEST).text("a name has 1 to 30 characters"));
        }
        let room = q.param("room").to_owned();
        if rooms.members().contains(&(room.clone(), name.clone())) {
            return Err(Error::new(Status::CONFLICT).text(format!("{name} is there already")));
        }
        Ok(Member { room, name, remote: q.remote().clone(), is_in: false })
    }

    fn topic(&self) -> String {
        format!("room {}", self.room)
    }
}

impl Peer<Rooms> for Member {
    fn open(&mut self, rooms: &mut Rooms, c: &mut Socket<'_>) {
        // Another one may have come since the handshake.
        self.is_in = rooms.members().insert((self.room.clone(), self.name.clone()));
        if !self.is_in {
            return c.close(CloseCode::POLICY, "the name is taken");
        }
        c.send(format!("here: {}", rooms.names(&self.room)));
        c.publish(self.topic(), format!("{} has come", self.name));
        c.subscribe(self.topic());
    }

    fn message(&mut self, _: &mut Rooms, c: &mut Socket<'_>, message: Message) {
        match message.as_text() {
            Some(text) => c.publish(self.topic(), format!("{}: {text}", self.name)),
            None => c.close(CloseCode::UNSUPPORTED, "a chat is text"),
        }
    }

    fn closed(&mut self, rooms: &mut Rooms, _: &SocketEnd) {
        if !self.is_in {
            return;
        }
        rooms.members().remove(&(self.room.clone(), self.name.clone()));
        self.remote.publish(self.topic(), format!("{} has gone", self.name));
    }
}

pub(crate) fn app() -> App<Rooms> {
    let rooms = Rooms::default();
    App::with(move |_loop| rooms.clone())
        .get("/", |_, _| Response::html(include_str!("ws_chat.html")))
        .websocket("/rooms/{room}", |rooms, q| Member::enter(rooms, q))
}

#[allow(dead_code)] // a test uses the application
fn main() -> std::io::Result<()> {
    const USAGE: &str = "ws_chat [--port N] [--loops N] [--tls [--cert FILE --key FILE]]";
    common::Setup::new(common::Options::new(USAGE), 8080).run(app())
}
