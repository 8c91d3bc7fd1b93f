//! An echo server with a banner, and two commands: `quit` closes the connection, `shutdown` ends
//! the server.
//!
//! ```text
//! cargo run --release -p windlass-serve --example shiny_echo -- [ADDRESS]
//! ```

use windlass::{Address, Buf};
use windlass_serve::{Action, Conn, Context, Handler, Origin, Server};

struct Echo;

impl Handler for Echo {
    type State = ();

    fn serving(&mut self, _: &mut Context<'_, ()>, addresses: &[Address]) -> Action {
        println!("listening on {}", addresses[0]);
        Action::None
    }

    fn opened(&mut self, c: &mut Conn<'_, ()>, _: Origin) -> Action {
        c.write("Welcome to the echo server!\nEnter 'quit' to close your connection");
        c.write(" or 'shutdown' to close the server.\n");
        Action::None
    }

    fn data(&mut self, c: &mut Conn<'_, ()>, data: Buf) -> Action {
        match data.trim_ascii() {
            b"quit" => Action::Close,
            b"shutdown" => Action::Shutdown,
            _ => {
                c.write(data);
                Action::None
            }
        }
    }
}

fn main() -> std::io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "tcp://127.0.0.1:7007".into());
    let report = Server::new(|_loop| Echo).listen(&address)?.run()?;
    println!("{} connections", report.counts.accepted);
    Ok(())
}
