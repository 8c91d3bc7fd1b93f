//! A TCP proxy: what one side sends goes to the other side, without a copy.
//!
//! ```text
//! cargo run --release -p windlass-serve --example serve_proxy -- \
//!     [--to HOST:PORT] [--port N] [--loops N]
//! ```
//!
//! A receiver that is slower than its sender slows it down: while more bytes than the high mark
//! wait for one side, the proxy does not read from the other side. When one side ends its output,
//! the proxy ends its own to the other side (half-close), and the opposite direction goes on.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};

use windlass::Buf;
use windlass::net::ConnectOptions;
use windlass_serve::{
    Action, Cause, Closed, Config, Conn, Context, Handler, Id, Limits, Origin, Server,
};

#[path = "common/mod.rs"]
mod common;

/// If more bytes than this wait for one side, the proxy does not read from the other side. (Tests
/// reach this limit often.)
pub(crate) const HIGH: usize = if cfg!(test) { 16 << 10 } else { 256 << 10 };

/// The handler of a loop.
pub(crate) struct Proxy {
    pub(crate) to: Vec<SocketAddr>,
}

/// The other side of a connection; `None` before it is known, and after it has ended.
pub(crate) type Other = Option<Id>;

pub(crate) fn config() -> Config {
    Config::new().close_on_eof(false).limits(Limits::new().marks(HIGH / 4, HIGH))
}

impl Handler for Proxy {
    type State = Other;

    fn opened(&mut self, c: &mut Conn<'_, Other>, origin: Origin) -> Action {
        if origin.listener.is_none() {
            return Action::None; // the other side, which is connected now
        }
        let client = c.id();
        // Bytes that the client sends before the connect has ended wait for it.
        let to = self.to.iter().copied();
        match c.engine().connect(to, ConnectOptions::default(), Some(client)) {
            Ok(server) => *c.state() = Some(server),
            Err(_too_many) => return Action::Close,
        }
        Action::None
    }

    fn data(&mut self, c: &mut Conn<'_, Other>, data: Buf) -> Action {
        let Some(other) = *c.state() else { return Action::Close };
        if c.engine().write(other, data).is_err() {
            return Action::Close; // the other side is about to end, and this one with it
        }
        if c.engine().is_full(other) {
            c.pause(); // until `drained`
        }
        Action::None
    }

    fn drained(&mut self, c: &mut Conn<'_, Other>) -> Action {
        if let Some(sender) = *c.state() {
            c.engine().resume(sender);
        }
        Action::None
    }

    fn eof(&mut self, c: &mut Conn<'_, Other>) -> Action {
        if let Some(other) = *c.state() {
            c.engine().shutdown(other);
        }
        Action::None
    }

    fn closed(&mut self, server: &mut Context<'_, Other>, closed: Closed<Other>) -> Action {
        if let Some(mut other) = closed.state.and_then(|other| server.conn(other)) {
            *other.state() = None;
            match closed.cause {
                // All of its input was passed on.
                Cause::Eof | Cause::Closed | Cause::Shutdown => {
                    let id = other.id();
                    other.engine().close(id);
                }
                // Its receiver must not take a part for the whole.
                _ => other.abort(),
            }
        }
        Action::None
    }
}

#[allow(dead_code)] // tests use the handler
fn main() -> io::Result<()> {
    let mut options = common::Options::new("serve_proxy [--to HOST:PORT] [--port N] [--loops N]");
    let to: String = options.take("--to").unwrap_or("127.0.0.1:7007".into());
    let setup = common::Setup::new(options, 7008, 1);
    let to: Vec<SocketAddr> = to.to_socket_addrs()?.collect();
    let new = move |_loop| Proxy { to: to.clone() };
    setup.run(Server::new(new).config(config()))
}
