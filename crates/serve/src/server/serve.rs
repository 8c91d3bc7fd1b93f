//! One function and four closures: shiny's way to write a server.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use windlass::{Buf, Watcher};

use super::action::Action;
use super::conn::{Conn, Context};
use super::ended::Closed;
use super::handler::Handler;
use super::{Report, Server, invalid};

use crate::handles::remote::Remote;
use crate::words::cause::Cause;
use crate::words::event::Origin;
use crate::words::id::Id;

/// How long the ticker waits while connections are busy, and while none is.
const BUSY: Duration = Duration::from_nanos(1_000_000_000 / 60);
const QUIET: Duration = Duration::from_secs(1);

/// Serves one address with four closures, on the calling thread, until `ticker` answers false.
///
/// All closures are called on this thread, with `context`:
///
/// - `handle` is called with the bytes that have arrived, or without bytes when the connection was
///   [woken](Remote::wake). It answers with bytes to send, and whether the connection stays open.
/// - `accept` is called for a new connection, with its address (if it has an internet address) and
///   the [`Remote`] of the server, which wakes it from any thread. It answers the same: false
///   refuses the connection, after the bytes are sent.
/// - `closed` is called when a connection has ended, with the cause.
/// - `ticker` is called once before the first connection. Then it is called about 60 times a second
///   while events come, and once a second while none come. When it returns false, `serve` sends the
///   output of every connection, closes it, and returns.
///
/// SIGINT and SIGTERM also end it: see [`Server::signals`].
///
/// `address` is as for [`Server::listen`]. The limits are the [defaults](crate::Limits): a
/// connection on which no byte moves for two minutes is closed.
///
/// ```
/// use std::io::{Read, Write};
/// use windlass::Buf;
/// use windlass_serve::serve;
/// # let address = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
/// # let client = std::thread::spawn(move || {
/// #     let mut client = loop {
/// #         if let Ok(client) = std::net::TcpStream::connect(address) { break client }
/// #     };
/// #     client.write_all(b"hello").unwrap();
/// #     let mut heard = [0; 12];
/// #     client.read_exact(&mut heard).unwrap();
/// #     assert_eq!(&heard, b"welcomehello");
/// # });
/// # let address = format!("tcp://{address}");
/// let mut connections = 0;
/// serve(
///     &address,
///     |_id, data, _connections| (data, true), // echo, without a copy
///     |_id, _address, _remote, _connections| ("welcome".into(), true),
///     |_id, _cause, connections| *connections += 1,
///     |connections| *connections < 1,
///     &mut connections,
/// )?;
/// # client.join().unwrap();
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// As for [`Server::listen`] and [`Server::run`]; `InvalidInput` for a `udp://` address, because no
/// closure takes datagrams.
pub fn serve<C>(
    address: &str,
    handle: impl FnMut(Id, Buf, &mut C) -> (Buf, bool),
    accept: impl FnMut(Id, Option<SocketAddr>, &Remote, &mut C) -> (Buf, bool),
    closed: impl FnMut(Id, Cause, &mut C),
    ticker: impl FnMut(&mut C) -> bool,
    context: &mut C,
) -> io::Result<Report> {
    if address.starts_with("udp") {
        return Err(invalid("serve takes no datagrams; Server does"));
    }
    let closures = Closures { handle, accept, closed, ticker, context, is_busy: false };
    // It is made once, because there is one loop.
    let closures = std::cell::RefCell::new(Some(closures));
    let make = |_| closures.borrow_mut().take().expect("one loop");
    let mut watcher = Watcher::new()?;
    Server::new(make).listen(address)?.run_here(&mut watcher, |_, _| {})
}

/// The closures as a handler.
struct Closures<'a, C, Handle, Accept, Closing, Ticker> {
    handle: Handle,
    accept: Accept,
    closed: Closing,
    ticker: Ticker,
    context: &'a mut C,
    /// Whether something has happened since the last tick.
    is_busy: bool,
}

/// Sends an answer.
fn answer(c: &mut Conn<'_, ()>, (data, stays): (Buf, bool)) -> Action {
    c.write(data);
    if stays { Action::None } else { Action::Close }
}

impl<C, Handle, Accept, Closing, Ticker> Handler
    for Closures<'_, C, Handle, Accept, Closing, Ticker>
where
    Handle: FnMut(Id, Buf, &mut C) -> (Buf, bool),
    Accept: FnMut(Id, Option<SocketAddr>, &Remote, &mut C) -> (Buf, bool),
    Closing: FnMut(Id, Cause, &mut C),
    Ticker: FnMut(&mut C) -> bool,
{
    type State = ();

    fn opened(&mut self, c: &mut Conn<'_, ()>, origin: Origin) -> Action {
        self.is_busy |= note_busy(c, self.is_busy);
        let said = (self.accept)(c.id(), origin.peer, c.remote(), self.context);
        answer(c, said)
    }

    fn data(&mut self, c: &mut Conn<'_, ()>, data: Buf) -> Action {
        self.is_busy |= note_busy(c, self.is_busy);
        let said = (self.handle)(c.id(), data, self.context);
        answer(c, said)
    }

    fn closed(&mut self, server: &mut Context<'_, ()>, closed: Closed<()>) -> Action {
        if !self.is_busy {
            self.is_busy = true;
            server.engine().tick_after(BUSY);
        }
        (self.closed)(closed.id, closed.cause, self.context);
        Action::None
    }

    fn tick(&mut self, _: &mut Context<'_, ()>) -> (Option<Duration>, Action) {
        let stays = (self.ticker)(self.context);
        let delay = if std::mem::take(&mut self.is_busy) { BUSY } else { QUIET };
        (Some(delay), if stays { Action::None } else { Action::Shutdown })
    }
}

/// After a quiet time, the first thing that happens brings the next tick forward.
fn note_busy(c: &mut Conn<'_, ()>, is_busy: bool) -> bool {
    if !is_busy {
        c.engine().tick_after(BUSY);
    }
    true
}
