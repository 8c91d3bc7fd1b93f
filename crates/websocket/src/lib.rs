//! A strict codec for WebSocket (RFC 6455), without I/O: bytes go in, events come out.
//!
//! - A [`Decoder`] is one side's input. Each call takes the bytes that are not consumed yet, and
//!   returns one [`Event`] with offsets into them. It takes the mask off in place. Nothing is
//!   copied, and nothing is allocated.
//! - A [`FrameHead`] is what stands in front of the bytes of a frame that is sent.
//! - [`handshake`] has what a request and its response say about the protocol, and what both sides
//!   agree to about compression.
//! - `deflate`, with the feature of this name, compresses messages and inflates them (RFC 7692).
//!
//! The [`Limits`] are the caller's: one value serves all connections, and a connection keeps the 40
//! bytes of its decoder, or none while it [is idle](Decoder::is_idle). A caller that makes no
//! further call has paused: the next frame stays in its bytes.
//!
//! ```
//! use windlass_websocket::handshake::{self, RequestError};
//! use windlass_websocket::{Decoder, Event, FrameHead, Limits, Opcode, Role, put_close};
//!
//! /// The response that opens a connection, to a request with these fields.
//! fn open(fields: &[(&str, &str)]) -> Result<String, RequestError> {
//!     let accept = handshake::check_request(|name| {
//!         let same = fields.iter().filter(move |field| field.0.eq_ignore_ascii_case(name));
//!         same.map(|field| field.1)
//!     })?;
//!     Ok(format!(
//!         "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
//!          Sec-WebSocket-Accept: {accept}\r\n\r\n"
//!     ))
//! }
//!
//! /// Echoes what `input` has, and returns how many of its bytes are done with.
//! fn echo(decoder: &mut Decoder, limits: &Limits, input: &mut [u8], out: &mut Vec<u8>) -> usize {
//!     let mut used = 0;
//!     loop {
//!         let bytes = &mut input[used..];
//!         let step = match decoder.decode(limits, bytes) {
//!             Ok(step) => step,
//!             Err(error) => {
//!                 put_close(Some(error.close_code()), &error.to_string(), None, out);
//!                 return input.len(); // and the connection is closed
//!             }
//!         };
//!         used += step.consumed;
//!         match step.event {
//!             Event::Data { kind, payload, is_first, is_last, .. } => {
//!                 // Each part of a message goes back as a fragment.
//!                 let opcode = if is_first { kind.into() } else { Opcode::Continuation };
//!                 let head = FrameHead::new(opcode, payload.len() as u64);
//!                 if is_last { head } else { head.continues() }.put(out);
//!                 out.extend_from_slice(&bytes[payload]);
//!             }
//!             Event::Ping(payload) => {
//!                 FrameHead::new(Opcode::Pong, payload.len() as u64).put(out);
//!                 out.extend_from_slice(&bytes[payload]);
//!             }
//!             Event::Close(code, _) => put_close(code, "", None, out),
//!             Event::NeedMore | Event::Closed => return used,
//!             _ => {}
//!         }
//!     }
//! }
//!
//! let response = open(&[
//!     ("Connection", "Upgrade"),
//!     ("Upgrade", "websocket"),
//!     ("Sec-WebSocket-Version", "13"),
//!     ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
//! ]);
//! assert!(response.unwrap().ends_with("Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"));
//!
//! let (mut decoder, mut out) = (Decoder::new(Role::Server), Vec::new());
//! let mut input = *b"\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58\x88\x80\x00\x00\x00\x00";
//! let used = echo(&mut decoder, &Limits::default(), &mut input, &mut out);
//! assert_eq!((used, &out[..]), (input.len(), &b"\x81\x05Hello\x88\x00"[..]));
//! ```
//!
//! # What is refused
//!
//! [`Rule`] lists it all, with the close code that answers it. Each rule is checked as soon as the
//! bytes that break it are there: most need one byte or two, and none the rest of its frame.
//!
//! - Frames: reserved bits and opcodes, a mask from a server, none from a client, a length in more
//!   bytes than it needs.
//! - Control frames in fragments, or of more than 125 bytes.
//! - Fragments without a beginning, and messages within a message.
//! - Close frames of one byte, of a code that must not be sent, with a reason that is not UTF-8.
//! - Text that is not UTF-8, at its first wrong byte. Parts of the text in front of it may have
//!   been told.
//! - Messages of more bytes or fragments than the [`Limits`] allow, by the head of the frame.
//! - [`RequestError`](handshake::RequestError) and [`ResponseError`](handshake::ResponseError) list
//!   what is wrong with handshakes.
//!
//! # What is let through
//!
//! - Close codes 1012 to 1014, which were registered after the RFC.
//! - Empty frames and fragments, up to the limit of fragments.
//! - Bytes behind a close frame: they are consumed, and nothing is told of them.
//! - A mask of zeros, and masks that repeat.
//! - A key of a handshake whose last character has bits beyond the 16 bytes.
//! - Empty elements of lists, and space around `=` in parameters of extensions.
//!
//! # What the program does
//!
//! - It answers an error and a close frame with a close frame, once, and closes: a server at once,
//!   a client when the server has.
//! - It answers a ping with a pong of the same bytes, and bounds how many wait to be sent.
//! - It joins the parts of a message, or takes them as they come, and bounds their time.
//! - It makes the masks of a client from random numbers that no page can foresee.
//! - It inflates messages that are compressed, with a limit of its own, and checks their text with
//!   [`Utf8`].
//! - It decides about origins, cookies and paths before the handshake is answered.
#![forbid(unsafe_code)]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

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
