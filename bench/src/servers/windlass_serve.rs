//! The server of windlass-serve, with its default limits but for the idle time: connections are
//! idle for as long as a measurement takes.

use std::io;
use std::time::Duration;

use windlass::Buf;
use windlass_serve::{Action, Conn, Handler, Limits, Server};

struct Echo;

impl Handler for Echo {
    type State = ();

    fn data(&mut self, c: &mut Conn<'_, ()>, data: Buf) -> Action {
        c.write(data);
        Action::None
    }
}

/// Serves until it is killed.
pub fn serve(port: u16) -> io::Result<()> {
    windlass::fd::raise_max_open_files()?;
    let limits = Limits::new().idle(Duration::from_secs(3600));
    let server = Server::new(|_| Echo).loops(1).limits(limits);
    server.listen(&format!("tcp://127.0.0.1:{port}"))?.run().map(drop)
}
