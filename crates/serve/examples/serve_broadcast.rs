//! One message to all clients, again and again. A client that does not read misses messages, and
//! the others get each one in time.
//!
//! ```text
//! cargo run --release -p windlass-serve --example serve_broadcast -- \
//!     [--port N] [--loops N] [--interval MILLISECONDS] [--size BYTES]
//! ```
//!
//! A message is made once, and all connections send the same memory. If more than 64 KiB wait for a
//! client, it gets no more messages until it has read most of them. Then the server tells it how
//! many messages it has missed.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use windlass_serve::{Action, Config, Conn, Context, Handler, Id, Limits, Server};

#[path = "common/mod.rs"]
mod common;

/// A client gets no more messages while at least so many bytes wait for it.
pub(crate) const MOST: usize = 64 << 10;

/// The handler of a loop.
pub(crate) struct Broadcast {
    pub(crate) interval: Duration,
    pub(crate) size: usize,
    pub(crate) number: u64,
    /// Memory for the ids of a turn.
    pub(crate) ids: Vec<Id>,
}

/// How many messages a client has missed.
pub(crate) type Missed = u64;

/// A client that reads nothing for 30 s is disconnected: see [`Limits::write_stall`].
pub(crate) fn config() -> Config {
    Config::new().limits(Limits::new().marks(MOST / 4, MOST - 1))
}

impl Handler for Broadcast {
    type State = Missed;

    fn tick(&mut self, server: &mut Context<'_, Missed>) -> (Option<Duration>, Action) {
        self.number += 1;
        let mut message = format!("message {} ", self.number).into_bytes();
        message.resize(self.size.max(message.len() + 1), b'.');
        message.pop();
        message.push(b'\n');
        let message: Arc<[u8]> = message.into();
        self.ids.clear();
        self.ids.extend(server.engine().ids());
        for id in &self.ids {
            let waiting = server.engine().waiting(*id);
            let Some(mut client) = server.conn(*id) else { continue };
            if waiting < MOST && *client.state() == 0 {
                client.write(Arc::clone(&message));
            } else {
                *client.state() += 1;
            }
        }
        (Some(self.interval), Action::None)
    }

    fn drained(&mut self, c: &mut Conn<'_, Missed>) -> Action {
        let missed = std::mem::take(c.state());
        if missed > 0 {
            c.write(format!("missed {missed}\n"));
        }
        Action::None
    }
}

#[allow(dead_code)] // tests use the handler
fn main() -> io::Result<()> {
    let mut options = common::Options::new(
        "serve_broadcast [--port N] [--loops N] [--interval MILLISECONDS] [--size BYTES]",
    );
    let interval = Duration::from_millis(options.take("--interval").unwrap_or(1000));
    let size: usize = options.take("--size").unwrap_or(64);
    let setup = common::Setup::new(options, 7009, 1);
    let new = move |_loop| Broadcast { interval, size, number: 0, ids: vec![] };
    setup.run(Server::new(new).config(config()))
}
