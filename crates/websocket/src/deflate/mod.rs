//! Compression of messages: permessage-deflate of RFC 7692, without I/O.
//!
//! A loop has one [`Deflaters`] and one [`Inflaters`]: no connection has a compressor or an
//! inflater of its own. With context takeover a connection has one [`History`] for each direction
//! that negotiated it.
//!
//! - [`Deflaters::compress`] and [`Inflaters::inflate`] are for messages that are there whole.
//! - [`Deflaters::take`] and [`Inflaters::take`] lease a state for a message that goes or comes
//!   part by part. There are few of them: a peer that stops in the middle of a message holds one.
//! - A message to many connections is compressed once for each window, with [`Context::Fresh`], and
//!   [joins](History::append) the history of each connection that has one.
//!
//! Each call with a [`Window`] takes the one that was negotiated for this direction. Compressing
//! with a smaller one is always right: its [`History`] takes less memory, and less time.
//!
//! # Cost
//! Microseconds for a message of 1 KiB of JSON on one core of a shared machine, and in parentheses
//! the bytes of its payload: `cargo bench -p windlass-websocket --features deflate --bench deflate`
//! prints it, with zlib in C beside it.
//!
//! | level | window | no context | context, live | context, primed | inflated | with a context |
//! |---|---|---|---|---|---|---|
//! | 1 | 2^9 | 5.6 (577) | 5.0 (554) | 6.9 (548) | 1.4 | 1.4 |
//! | 1 | 2^12 | 4.4 (560) | 2.8 (494) | 7.9 (492) | 1.3 | 1.3 |
//! | 1 | 2^15 | 4.4 (560) | 2.4 (451) | 35 (442) | 1.3 | 1.7 |
//! | 6 | 2^9 | 14.6 (395) | 13.2 (348) | 15.2 (348) | 2.5 | 2.3 |
//! | 6 | 2^12 | 14.2 (400) | 13.8 (349) | 18.8 (349) | 2.5 | 2.1 |
//! | 6 | 2^15 | 14.3 (400) | 18.8 (344) | 51 (344) | 2.5 | 2.5 |
//!
//! A compressor is reset for each message without a context: that writes 128 KB. One that has lost
//! the context of a connection is also primed with its history: 2 µs for a window of 2^9, 5 for
//! 2^12, 30 for 2^15. So [`DeflaterSettings::live`] keep theirs, each until others need its place.
//! An inflater is primed for each message: that copies the history.
//!
//! Memory: 259 KB (2^9), 273 KB (2^12) or 388 KB (2^15) for a compressor, 115 KB less with the
//! memory level 1; 63 KB for an inflater. After warm-up no message allocates.
//!
//! # Secrets
//! The size of a payload tells how much of a text came before. Where a stranger decides on a part
//! of what is sent, and can see its size, secrets do not belong in the same message; with context
//! takeover, not in the same connection.

mod deflaters;
mod history;
mod inflaters;
mod inflating;
mod lease;
mod stream_in;
mod stream_out;
mod window;

pub use deflaters::{DeflaterSettings, Deflaters};
pub use history::{History, UnsentMessage};
pub use inflaters::{InflaterSettings, Inflaters};
pub use inflating::{InflateCaps, InflateError};
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
