//! What a session needs of its connection and its loop.

use std::time::Duration;

use windlass::Buf;
use windlass_serve::memory::Budget;
use windlass_serve::{Id, Refusal, Refused, Reserved};

use super::loop_sockets::LoopSockets;
use crate::remote::Remote;
use crate::topics::TopicCall;

/// The connection below, and its loop.
pub(crate) trait Carrier {
    fn id(&self) -> Id;
    fn write(&mut self, data: Buf) -> Result<(), Refused<Buf>>;
    fn write_slice(&mut self, bytes: &[u8]) -> Result<(), Refusal>;
    /// Whether a write of so many bytes would be taken.
    fn would_take(&mut self, bytes: usize) -> Result<(), Refusal>;
    /// Keeps room for so many bytes of output.
    fn reserve(&mut self, bytes: usize) -> Result<Reserved, Refusal>;
    /// Lets writes use the room, until the next call.
    fn use_room(&mut self, room: Option<Reserved>);
    /// How many bytes of output wait.
    fn waiting(&mut self) -> usize;
    fn is_full(&mut self) -> bool;
    fn is_behind(&mut self) -> bool;
    fn pause(&mut self);
    fn resume(&mut self);
    /// Takes bytes back, to deliver them again when the connection is not paused. They come back
    /// if the program knows of the end of the input already.
    fn unread(&mut self, data: Buf) -> Result<(), Buf>;
    fn limit(&mut self, span: Option<Duration>, least: u32);
    fn time_limit(&mut self, span: Option<Duration>);
    fn set_idle_timeout(&mut self, span: Option<Duration>);
    fn charge(&mut self, bytes: usize);
    fn budget(&self) -> &Budget;
    fn close(&mut self);
    fn abort(&mut self);
    fn sockets(&mut self) -> &mut LoopSockets;
    fn call(&mut self, call: TopicCall);
    fn remote(&self) -> &Remote;
    /// A peer does not keep up: it has lost a message, or its connection.
    fn count(&mut self, is_lost: bool);
}
