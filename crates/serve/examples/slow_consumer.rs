//! A thread feeds all clients, and one that does not read holds up no other one.
//!
//! ```text
//! cargo run --release -p windlass-serve --example slow_consumer -- \
//!     [--port N] [--loops N] [--mode nonblocking|blocking|mixed] \
//!     [--slow drop|close] [--interval MILLISECONDS] [--size BYTES]
//! ```
//!
//! [`Remote::write`] never blocks. If 256 KiB wait for a client, it hands the message back with
//! [`Refusal::Cap`]. With `--slow drop` the client misses that message, and the next one that it
//! gets says how many it has missed. With `--slow close` the server closes its connection.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use windlass_serve::{
    Action, Closed, Config, Conn, Context, Handler, Id, Limits, Origin, Refusal, Remote, Server,
    modes::IoMode,
};

#[path = "common/mod.rs"]
mod common;

/// The most bytes that wait for a client.
const CAP: usize = 256 << 10;

/// The clients, and how many messages each has missed since the last one that it got.
type Clients = Arc<Mutex<HashMap<Id, u64>>>;

/// What becomes of a client that does not read.
#[derive(Clone, Copy, PartialEq)]
enum Slow {
    Drop,
    Close,
}

impl std::str::FromStr for Slow {
    type Err = String;
    fn from_str(name: &str) -> Result<Slow, String> {
        match name {
            "drop" => Ok(Slow::Drop),
            "close" => Ok(Slow::Close),
            _ => Err("--slow is drop or close".into()),
        }
    }
}

/// The handler of a loop: it keeps the list of clients.
struct Members {
    clients: Clients,
}

impl Handler for Members {
    type State = ();

    fn opened(&mut self, c: &mut Conn<'_, ()>, _origin: Origin) -> Action {
        lock(&self.clients).insert(c.id(), 0);
        Action::None
    }

    fn closed(&mut self, _server: &mut Context<'_, ()>, closed: Closed<()>) -> Action {
        lock(&self.clients).remove(&closed.id);
        println!("client {} has left: {}", closed.id, closed.cause);
        Action::None
    }
}

/// Sends a message to each client, and returns how many did not take it.
fn feed(server: &Remote, clients: &Clients, slow: Slow, number: u64, size: usize) -> usize {
    let line = |text: String| format!("{text:.<size$}\n").into_bytes();
    let message: Arc<[u8]> = line(format!("message {number}")).into();
    let mut refused = 0;
    for (id, missed) in lock(clients).iter_mut() {
        let sent = if *missed == 0 {
            server.write(*id, Arc::clone(&message))
        } else {
            server.write(*id, line(format!("message {number}, and you have missed {missed}")))
        };
        match sent {
            Ok(()) => *missed = 0,
            // Its end comes to `closed`.
            Err(error) if error.reason == Refusal::Stale => {}
            Err(_) if slow == Slow::Close => {
                server.close(*id);
                refused += 1;
            }
            Err(_) => {
                *missed += 1;
                refused += 1;
            }
        }
    }
    refused
}

fn lock(clients: &Clients) -> std::sync::MutexGuard<'_, HashMap<Id, u64>> {
    clients.lock().unwrap_or_else(PoisonError::into_inner)
}

fn main() -> io::Result<()> {
    let mut options = common::Options::new(
        "slow_consumer [--port N] [--loops N] [--mode nonblocking|blocking|mixed] \
         [--slow drop|close] [--interval MILLISECONDS] [--size BYTES]",
    );
    let mode: IoMode = options.take("--mode").unwrap_or(IoMode::NonBlocking);
    let slow: Slow = options.take("--slow").unwrap_or(Slow::Drop);
    let interval = Duration::from_millis(options.take("--interval").unwrap_or(100));
    let size: usize = options.take("--size").unwrap_or(1024);
    let setup = common::Setup::new(options, 7013, 1);
    let (started, clients) = (Arc::clone(&setup.started), Clients::default());
    let members = Arc::clone(&clients);
    thread::spawn(move || {
        let mut slow_ones = 0;
        for number in 1.. {
            thread::sleep(interval);
            let refused = feed(started.wait(), &clients, slow, number, size);
            if refused != slow_ones {
                println!("{refused} clients do not read");
            }
            slow_ones = refused;
        }
    });
    let new = move |_| Members { clients: Arc::clone(&members) };
    let limits = Limits::new().cap(CAP).close(Duration::from_secs(1));
    setup.run(Server::new(new).config(Config::new().limits(limits)).io_mode(mode))
}
