//! The program's part of a connection.

use std::any::Any;

use super::ends::SocketEnd;
use super::message::Message;
use super::parts::MessagePart;
use super::socket::Socket;
use windlass_websocket::CloseCode;

/// The program's part of one connection: its state and its callbacks. `S` is the type of the
/// application's state. See [`App::websocket`](crate::App::websocket).
///
/// The first callback is `open`, and the last is `closed`. All run on the loop of the connection,
/// one at a time, so none should block: [`Socket::sender`] is for threads that take time. Once a
/// close frame is sent, by either side, only `closed` follows.
///
/// Pings and close frames are answered without a callback. A panic in a callback ends the
/// connection, with [`Cause::Panicked`](windlass_serve::Cause::Panicked), and no other one.
#[allow(unused_variables)]
pub trait Peer<S>: 'static {
    /// The connection is open: the 101 is written, or has come. What is sent here follows it.
    fn open(&mut self, state: &mut S, c: &mut Socket<'_>) {}

    /// A message has come, whole. Not with [`in_parts`](super::WebSocketSettings::in_parts).
    fn message(&mut self, state: &mut S, c: &mut Socket<'_>, message: Message);

    /// A part of a message has come. With [`in_parts`](super::WebSocketSettings::in_parts), each
    /// message comes so, a short one as one part, and `message` is never called.
    fn part(&mut self, state: &mut S, c: &mut Socket<'_>, part: MessagePart) {}

    /// A pong has come, with at most 125 bytes: the answer to a [ping](Socket::ping), or to one of
    /// [`ping_every`](super::WebSocketSettings::ping_every), which has no bytes, or one unasked.
    fn pong(&mut self, state: &mut S, c: &mut Socket<'_>, data: &[u8]) {}

    /// The output was [full](Socket::is_full), and there is room again: at most
    /// [`Limits::low`](windlass_serve::Limits::low) bytes wait.
    fn drained(&mut self, state: &mut S, c: &mut Socket<'_>) {}

    /// Another thread has [woken](crate::Remote::wake) the connection.
    fn wake(&mut self, state: &mut S, c: &mut Socket<'_>) {}

    /// Another thread has [told](crate::Remote::tell) the connection a value.
    fn told(&mut self, state: &mut S, c: &mut Socket<'_>, value: Box<dyn Any + Send>) {}

    /// The server shuts down. The default closes the connection with 1001. A connection that stays
    /// open is ended after [`App::grace`](crate::App::grace).
    fn stopping(&mut self, state: &mut S, c: &mut Socket<'_>) {
        c.close(CloseCode::GOING_AWAY, "");
    }

    /// The connection has ended, and the program's part of it is dropped behind this callback.
    fn closed(&mut self, state: &mut S, end: &SocketEnd) {}
}
