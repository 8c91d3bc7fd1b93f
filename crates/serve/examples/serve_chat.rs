//! A chat over several loops: a line of one client goes to all others, whichever loop serves them.
//!
//! ```text
//! cargo run --release -p windlass-serve --example serve_chat -- [--port N] [--loops N]
//! ```
//!
//! Each line is put together once, and all connections send the same memory. A client of the same
//! loop is written to directly, others through [`Remote`](windlass_serve::Remote). All clients get
//! the lines of one client in their order. The server disconnects a client when more than
//! 1 MiB would wait for it. `/quit` leaves.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use windlass::Buf;
use windlass_serve::framing::{Input, Lines};
use windlass_serve::{
    Action, Closed, Config, Conn, Context, Handler, Id, Limits, Origin, Refusal, Server,
};

#[path = "common/mod.rs"]
mod common;

/// The longest line, in bytes.
pub(crate) const LONGEST: usize = 1 << 10;

/// The clients of all loops.
#[derive(Default)]
pub(crate) struct Room(Mutex<Vec<Id>>);

impl Room {
    fn lock(&self) -> MutexGuard<'_, Vec<Id>> {
        // Each change is one call of a vector: it is done, or it is not.
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// The handler of a loop.
pub(crate) struct Chat {
    pub(crate) room: Arc<Room>,
}

/// A client: its lines.
pub(crate) struct Client {
    input: Input,
    lines: Lines,
}

impl Default for Client {
    fn default() -> Client {
        Client { input: Input::new(), lines: Lines::new(LONGEST) }
    }
}

pub(crate) fn config() -> Config {
    Config::new().limits(Limits::new().cap(1 << 20).idle(None))
}

impl Chat {
    /// Sends a line to all clients but the one that has said it.
    fn tell(&self, c: &mut Conn<'_, Client>, line: String) {
        let (own, line): (Id, Arc<[u8]>) = (c.id(), line.into_bytes().into());
        for &id in self.room.lock().iter().filter(|id| **id != own) {
            let told = if id.loop_index() == own.loop_index() {
                c.engine().write(id, Arc::clone(&line))
            } else {
                c.remote().write(id, Arc::clone(&line))
            };
            // A client that has just left is no error. A client that does not read is closed.
            if told.is_err_and(|refused| refused.reason != Refusal::Stale) {
                c.remote().close(id);
            }
        }
    }
}

impl Handler for Chat {
    type State = Client;

    fn opened(&mut self, c: &mut Conn<'_, Client>, _origin: Origin) -> Action {
        let charge = c.hold(0);
        c.state().input.charge_to(charge); // half a line counts for the client
        let number = c.id().number();
        c.write(format!("you are {number}\n"));
        self.tell(c, format!("{number} is here\n"));
        self.room.lock().push(c.id());
        Action::None
    }

    fn data(&mut self, c: &mut Conn<'_, Client>, data: Buf) -> Action {
        let number = c.id().number();
        c.state().input.push(data);
        loop {
            let client = c.state();
            let line = match client.input.next(&mut client.lines) {
                Ok(None) => return Action::None,
                Ok(Some(line)) if *line == *b"/quit" => return Action::Close,
                Ok(Some(line)) => String::from_utf8_lossy(&line).into_owned(),
                Err(error) => {
                    c.write(format!("{error}\n"));
                    return Action::Close;
                }
            };
            self.tell(c, format!("{number}: {line}\n"));
        }
    }

    fn closed(&mut self, _: &mut Context<'_, Client>, closed: Closed<Client>) -> Action {
        self.room.lock().retain(|id| *id != closed.id);
        Action::None
    }
}

#[allow(dead_code)] // tests use the handler
fn main() -> io::Result<()> {
    let options = common::Options::new("serve_chat [--port N] [--loops N]");
    let setup = common::Setup::new(options, 7010, 2);
    let room = Arc::new(Room::default());
    let new = move |_loop| Chat { room: room.clone() };
    setup.run(Server::new(new).config(config()))
}
