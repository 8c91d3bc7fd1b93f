//! UDP sessions: each peer of one socket is a connection with a state, which expires.
//!
//! ```text
//! cargo run --release -p windlass-serve --example udp_sessions -- \
//!     [--port N] [--loops N] [--idle SECONDS] [--sessions N]
//! ```
//!
//! The server answers each datagram with the same bytes, and the number of the datagram in its
//! session in front. It answers `bye` with `bye`, and ends the session. Try `nc -u 127.0.0.1 7012`.
//! A peer that sends nothing for `--idle` seconds is forgotten.

use std::io;
use std::time::Duration;

use windlass::Buf;
use windlass_serve::{Action, Closed, Config, Conn, Context, Handler, Limits, Origin, Server};

#[path = "common/mod.rs"]
mod common;

/// The handler of a loop.
pub(crate) struct Sessions {
    /// Whether it prints the beginning and the end of each session.
    pub(crate) is_loud: bool,
}

/// How many datagrams a peer has sent.
#[derive(Default)]
pub(crate) struct Peer {
    count: u64,
}

/// Every datagram socket has sessions.
pub(crate) fn config(idle: Duration, sessions: usize) -> Config {
    let limits = Limits::new().session_idle(idle).sessions(sessions);
    Config::new().limits(limits).udp_sessions(true)
}

impl Handler for Sessions {
    type State = Peer;

    fn opened(&mut self, c: &mut Conn<'_, Peer>, origin: Origin) -> Action {
        if let (true, Some(peer)) = (self.is_loud, origin.peer) {
            println!("session {}: {peer}", c.id());
        }
        Action::None
    }

    fn data(&mut self, c: &mut Conn<'_, Peer>, data: Buf) -> Action {
        c.state().count += 1;
        if data.trim_ascii_end() == b"bye" {
            c.write("bye");
            return Action::Close;
        }
        let count = format!("{}: ", c.state().count);
        // One write is one datagram. The list needs no copy of the bytes.
        c.write(Buf::list([Buf::from(count), data]));
        Action::None
    }

    fn closed(&mut self, _: &mut Context<'_, Peer>, closed: Closed<Peer>) -> Action {
        if self.is_loud {
            let Closed { id, cause, state, .. } = closed;
            println!("session {id}: {} datagrams, {cause:?}", state.count);
        }
        Action::None
    }
}

#[allow(dead_code)] // tests use the handler
fn main() -> io::Result<()> {
    let mut options =
        common::Options::new("udp_sessions [--port N] [--loops N] [--idle SECONDS] [--sessions N]");
    let idle = Duration::from_secs(options.take("--idle").unwrap_or(120));
    let sessions = options.take("--sessions").unwrap_or(65_536);
    let setup = common::Setup::new(options, 7012, 1);
    let new = |_loop| Sessions { is_loud: true };
    let server = Server::new(new).config(config(idle, sessions));
    let report = setup.serve(server, "udp", "?reuseport=true")?;
    let counters = report.counters;
    println!("{} sessions, {} datagrams", counters.sessions, counters.datagrams);
    Ok(())
}
