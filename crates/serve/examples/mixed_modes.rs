//! Threads for the connections that work, a loop for those that only listen.
//!
//! ```text
//! cargo run --release -p windlass-serve --example mixed_modes -- \
//!     [--port N] [--loops N] [--threads N]
//! ```
//!
//! Each line of a client is a command. `sum N` adds the numbers up to N: that blocks the callback,
//! and on a thread of its own it keeps no other client waiting. `subscribe` moves the connection to
//! a loop, which serves thousands that are idle. `where` says what serves the connection: the name
//! of its thread. Try `nc 127.0.0.1 7007`.

use std::io;

use windlass::Buf;
use windlass_serve::framing::{Input, Lines};
use windlass_serve::{Action, Conn, Handler, Id, Origin, Server, modes::IoMode};

#[path = "common/mod.rs"]
mod common;

/// The longest command, in bytes.
const LONGEST: usize = 100;

struct Commands;

/// A client: its lines.
struct Client {
    input: Input,
    lines: Lines,
}

impl Default for Client {
    fn default() -> Client {
        Client { input: Input::new(), lines: Lines::new(LONGEST) }
    }
}

/// Half a command counts for the client, on its thread and on its loop.
fn charge(c: &mut Conn<'_, Client>) {
    let charge = c.hold(0);
    c.state().input.charge_to(charge);
}

impl Handler for Commands {
    type State = Client;

    fn opened(&mut self, c: &mut Conn<'_, Client>, _: Origin) -> Action {
        charge(c);
        Action::None
    }

    fn data(&mut self, c: &mut Conn<'_, Client>, data: Buf) -> Action {
        c.state().input.push(data);
        loop {
            let client = c.state();
            let line = match client.input.next(&mut client.lines) {
                Ok(None) => return Action::None,
                Ok(Some(line)) => String::from_utf8_lossy(&line).into_owned(),
                Err(error) => {
                    c.write(format!("{error}\n"));
                    return Action::Close;
                }
            };
            let number = line.strip_prefix("sum ").and_then(|number| number.parse::<u64>().ok());
            match (number, &*line) {
                (Some(number), _) => {
                    let sum = (0..=number).fold(0, |sum: u64, one| sum.wrapping_add(one));
                    c.write(format!("{sum}\n"));
                }
                (None, "subscribe") => {
                    if !c.move_to_loop() {
                        c.write("subscribed already\n");
                    }
                }
                (None, "where") => {
                    let thread = std::thread::current();
                    c.write(format!("{}\n", thread.name().unwrap_or("main")));
                }
                _ => _ = c.write("the commands are: sum N, subscribe, where\n"),
            }
        }
    }

    fn moved(&mut self, c: &mut Conn<'_, Client>, _from: Id) -> Action {
        charge(c);
        c.write("subscribed\n");
        Action::None
    }
}

fn main() -> io::Result<()> {
    let usage = "mixed_modes [--port N] [--loops N] [--threads N]";
    let mut options = common::Options::new(usage);
    let threads = options.take("--threads").unwrap_or(100);
    let setup = common::Setup::new(options, 7007, 1);
    let server = Server::new(|_| Commands);
    setup.run(server.io_mode(IoMode::Mixed { threads }))
}
