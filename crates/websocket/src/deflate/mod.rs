//! Compression of messages: permessage-deflate of RFC 7692, without I/O.
//!
//! A loop has one [`Deflaters`] and one [`Inflaters`]: no connection has a deflater or an
//! inflater of its own. With context takeover a connection has one [`History`] for each direction
//! that negotiated it.
//!
//! - [`Deflaters::compress`] and [`Inflaters::inflate`] are for messages that are there whole.
//! - [`Deflaters::take`] and [`Inflaters::take`] lease a state for a message that comes or goes
//!   part by part. There are few of them: a peer that stops in the middle of a message holds one.
//! - [`SharedPayloads`] are for a message that goes to many connections.

mod deflaters;
mod history;
mod inflaters;
mod inflating;
mod lease;
mod shared;
mod stream_in;
mod stream_out;
mod window;

pub use deflaters::{DeflaterSettings, Deflaters};
pub use history::History;
pub use inflaters::{InflaterSettings, Inflaters};
pub use inflating::{InflateCaps, InflateError};
pub use shared::SharedPayloads;
pub use stream_in::{Inflated, StreamingInflater};
pub use stream_out::StreamingDeflater;
pub use window::Window;

/// What a message can refer to.
#[derive(Debug)]
pub enum Context<'a> {
    /// To itself alone: the direction has no context takeover, or the message goes to several
    /// connections.
    Fresh(Window),
    /// To the messages before it: the direction has context takeover.
    Kept(&'a mut History),
}

impl Context<'_> {
    /// How far back the message can refer.
    pub fn window(&self) -> Window {
        match self {
            Context::Fresh(window) => *window,
            Context::Kept(history) => history.window(),
        }
    }

    /// What it can refer to.
    fn parts(&self) -> [&[u8]; 2] {
        match self {
            Context::Fresh(_) => [&[], &[]],
            Context::Kept(history) => history.parts(),
        }
    }
}
