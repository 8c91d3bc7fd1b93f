//! A stream, as its connection sees it.

use windlass::Buf;
use windlass::driver::Deadline;

use crate::words::cause::Cause;

/// Where the bytes of a connection go, if the program has made a stream of it.
pub(crate) trait StreamSide: Send + Sync {
    /// The connection has received bytes; whether it is to stop reading.
    fn push(&self, data: &Buf) -> bool;
    /// The peer has shut down its output.
    fn push_eof(&self);
    /// Takes the bytes that were not read.
    fn take_input(&self) -> Buf;
    /// The connection takes no more output.
    fn refuse_output(&self);
    /// The connection is to leave the engine: a close or a drop of the stream ends it no more.
    fn let_go(&self);
    /// Room below the cap has become free.
    fn offer_room(&self);
    /// Wakes the program if a write that found no memory finds some now. False if it has to wait
    /// on.
    fn offer_memory(&self) -> bool;
    /// Takes the read and the write deadline that the stream was given; `None` for one that it was
    /// not given, and `Some(None)` to take it away.
    fn take_deadlines(&self) -> [Option<Option<Deadline>>; 2];
    /// The connection has ended.
    fn end(&self, cause: Cause);
}
