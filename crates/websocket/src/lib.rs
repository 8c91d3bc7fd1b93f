//! A strict codec for WebSocket (RFC 6455), without I/O: bytes go in, events come out.
//!
//! - A [`Decoder`] is one side's input. Each call takes the bytes that are not consumed yet, and
//!   returns one [`Event`] with offsets into them. It takes the mask off in place. Nothing is
//!   copied, and nothing is allocated.
//! - A [`FrameHead`] is what stands in front of the bytes of a frame that is sent.
//! - [`handshake`] has what a request and its response say about the protocol.
#![forbid(unsafe_code)]

#[cfg(feature = "deflate")]
pub mod deflate;
pub mod handshake;

mod close;
mod decode;
mod encode;
mod error;
mod limits;
mod mask;
mod utf8;
mod words;

pub use close::CloseCode;
pub use decode::{Decoder, Event, Step};
pub use encode::{FrameHead, put_close};
pub use error::{Error, Rule};
pub use limits::Limits;
pub use mask::mask;
pub use utf8::Utf8;
pub use words::{Kind, Opcode, Role};
