//! What a program has for each connection.

use std::any::Any;

use super::ends::SocketEnd;
use super::message::Message;
use super::parts::MessagePart;
use super::socket::Socket;
use windlass_websocket::CloseCode;

/// What a program has for a connection: see [`App::websocket`](crate::App::websocket).
///
/// The first callback is `open`, and the last is `closed`. A connection has one callback at a time.
/// Pings are answered, and the connection is closed as the protocol says, without a callback. A
/// panic in a callback ends the connection.
#[allow(unused_variables)]
pub trait Peer<S>: 'static {
    /// The connection is open: the head of the response is written.
    fn open(&mut self, state: &mut S, c: &mut Socket<'_>) {}

    /// A message has come.
    fn message(&mut self, state: &mut S, c: &mut Socket<'_>, message: Message);

    /// A part of a message has come: in the place of `message`, if the settings say
    /// [`in_parts`](super::WebSocketSettings::in_parts).
    fn part(&mut self, state: &mut S, c: &mut Socket<'_>, part: MessagePart) {}

    /// A pong has come: the answer to a [ping](Socket::ping), or one unasked.
    fn pong(&mut self, state: &mut S, c: &mut Socket<'_>, data: &[u8]) {}

    /// The output was [full](Socket::is_full), and there is room again.
    fn drained(&mut self, state: &mut S, c: &mut Socket<'_>) {}

    /// Another thread has [woken](crate::Remote::wake) the connection.
    fn wake(&mut self, state: &mut S, c: &mut Socket<'_>) {}

    /// Another thread has [told](crate::Remote::tell) the connection a value.
    fn told(&mut self, state: &mut S, c: &mut Socket<'_>, value: Box<dyn Any + Send>) {}

    /// The server shuts down. The default closes the connection with 1001.
    fn stopping(&mut self, state: &mut S, c: &mut Socket<'_>) {
        c.close(CloseCode::GOING_AWAY, "");
    }

    /// The connection has ended.
    fn closed(&mut self, state: &mut S, end: &SocketEnd) {}
}
