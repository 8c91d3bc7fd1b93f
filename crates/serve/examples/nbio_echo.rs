//! nbio's echo server, at TCP, UDP and Unix addresses, in each of the three modes.
//!
//! ```text
//! cargo run --release -p windlass-serve --example nbio_echo -- \
//!     [--port N] [--loops N] [--mode nonblocking|blocking|mixed] [--threads N] [--also ADDRESS]
//! ```
//!
//! It listens at a TCP port, and at `ADDRESS`: `udp://127.0.0.1:7008` or `unix:///tmp/echo`.

use std::io;

use windlass::Buf;
use windlass_serve::{Action, Conn, Datagram, Handler, Server, modes::IoMode};

#[path = "common/mod.rs"]
mod common;

struct Echo;

impl Handler for Echo {
    type State = ();

    fn data(&mut self, c: &mut Conn<'_, ()>, data: Buf) -> Action {
        c.write(data);
        Action::None
    }

    fn datagram(&mut self, d: &mut Datagram<'_, ()>, data: Buf) -> Action {
        d.reply(data);
        Action::None
    }
}

fn main() -> io::Result<()> {
    let mut options = common::Options::new(
        "nbio_echo [--port N] [--loops N] [--mode nonblocking|blocking|mixed] [--threads N] \
         [--also ADDRESS]",
    );
    let mut mode = options.take("--mode").unwrap_or(IoMode::NonBlocking);
    if let Some(count) = options.take("--threads") {
        match &mut mode {
            IoMode::Blocking { threads } | IoMode::Mixed { threads } => *threads = count,
            IoMode::NonBlocking => {}
        }
    }
    let also: Option<String> = options.take("--also");
    let setup = common::Setup::new(options, 7007, 1);
    let mut server = Server::new(|_loop| Echo).io_mode(mode);
    if let Some(address) = also {
        server = server.listen(&address)?;
    }
    setup.run(server)
}
