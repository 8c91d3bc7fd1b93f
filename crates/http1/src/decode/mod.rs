//! Decoders: bytes in, events out.

mod chunk;
mod cursor;
mod request;
mod response;
#[cfg(test)]
mod tests;

use std::ops::Range;

pub use request::RequestDecoder;
pub use response::ResponseDecoder;

/// What a decoder has found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// So many bytes at the start of the input are done with. The next call gets those behind them,
    /// and no byte twice.
    pub consumed: usize,
    /// What they are.
    pub event: Event,
}

/// A part of a message.
///
/// A message is [`Head`](Event::Head), [`Body`](Event::Body) any number of times,
/// [`Trailers`](Event::Trailers) if there are some, [`End`](Event::End).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// Nothing is whole. The next call gets what is not consumed, and more behind it.
    NeedMore,
    /// A head of status 1xx, but 101. The head of the response is still to come.
    Interim,
    /// A head. The head has its offsets into the input of this call.
    Head,
    /// Bytes of the body, as a range of the input of this call. Chunks are taken apart.
    Body(Range<usize>),
    /// The trailers behind the last chunk. The head has their fields now.
    Trailers,
    /// The end of the message.
    End,
    /// The connection carries no further message. What follows belongs to the protocol that took
    /// over (behind a CONNECT, or a 101), or to nobody.
    Closed,
}

impl Step {
    fn new(consumed: usize, event: Event) -> Step {
        Step { consumed, event }
    }
}
