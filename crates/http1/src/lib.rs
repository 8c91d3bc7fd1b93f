//! A strict codec for HTTP/1.0 and HTTP/1.1, without I/O: bytes go in, events come out.
//!
//! - A [`RequestDecoder`] is a server's side of one connection, a [`ResponseDecoder`] a client's.
//!   Each call takes the bytes that are not consumed yet, and returns one [`Event`] with offsets
//!   into them. Nothing is copied, and nothing is allocated.
//! - A [`RequestHead`] or a [`ResponseHead`] holds the [`Limits`] and the offsets of the last head.
//!   One serves all connections of a thread, so that a connection keeps 32 bytes.
//! - [`ResponseEncoder`], [`RequestEncoder`] and [`BodyEncoder`] append messages to a `Vec<u8>`,
//!   and refuse what would become a second message.
//!
//! Every cut of the same bytes gives the same events, but for the cuts in bodies. A caller that
//! makes no further call has paused: the next message stays in its bytes.
//!
//! ```
//! use windlass_http1::{Event, Limits, RequestDecoder, RequestHead, ResponseEncoder};
//!
//! /// Answers the requests at the start of `input`, and returns how many bytes they are.
//! fn serve(decoder: &mut RequestDecoder, input: &[u8], out: &mut Vec<u8>) -> usize {
//!     let mut head = RequestHead::new(Limits::default()); // a server makes one a thread
//!     let mut used = 0;
//!     loop {
//!         let bytes = &input[used..];
//!         let step = match decoder.decode(&mut head, bytes) {
//!             Ok(step) => step,
//!             Err(error) => {
//!                 out.extend(format!("HTTP/1.1 {} \r\n\r\n", error.status()).bytes());
//!                 return input.len(); // and the connection is closed
//!             }
//!         };
//!         used += step.consumed;
//!         match step.event {
//!             Event::Head => {
//!                 let path = head.path(bytes);
//!                 let response = ResponseEncoder::new(out, head.asked(), 200).unwrap();
//!                 let mut body = response.length(path.len() as u64).unwrap();
//!                 body.data(out, path.as_bytes()).unwrap();
//!             }
//!             Event::NeedMore | Event::Closed => return used,
//!             _ => {}
//!         }
//!     }
//! }
//!
//! let (mut decoder, mut out) = (RequestDecoder::new(), Vec::new());
//! let input = b"GET /a HTTP/1.1\r\nHost: b\r\n\r\nGET /c HTTP/1.1\r\nHost: b\r\n\r\nGET";
//! assert_eq!(serve(&mut decoder, input, &mut out), input.len() - 3);
//! assert!(out.ends_with(b"Content-Length: 2\r\n\r\n/c"));
//! ```
//!
//! # What is refused
//!
//! What two servers could read in two ways. [`Rule`] lists it all, with the status of the answer.
//!
//! - Lines: a bare LF or CR, fields over two lines, space around names, more than one empty line in
//!   front of a request.
//! - Lengths: two of them, also equal ones; lists, signs, prefixes; a length with a
//!   Transfer-Encoding; a Transfer-Encoding other than `chunked`, or in HTTP/1.0.
//! - Chunks: sizes that are empty, signed, padded or too large, space around them, line ends in
//!   extensions, trailers that would change the framing.
//! - Hosts and targets: no Host, two, an empty one; targets whose form does not fit the method.
//! - Responses: bytes that answer no request, a 101 unasked, a 204 with a body.
//!
//! Two equal lengths may be merged by RFC 9110, and lists of equal lengths too. They are refused:
//! nobody who means well sends them, and whoever took one of them for another field has framed the
//! message otherwise.
//!
//! # What is let through
//!
//! - Bytes above 127 in values and reasons; in targets, what browsers send although RFC 3986 has it
//!   encoded: `|`, `{`, `}`, `^`, a grave accent, and a `%` that encodes nothing.
//! - A body of any method but CONNECT.
//! - A status line without the space in front of an empty reason; `Content-Length: 0` in a 204.
//!
//! # What the program does
//!
//! - It answers an error, and closes.
//! - It sends `100 Continue` if the client [expects](RequestHead::expects_continue) it: a
//!   [`ResponseEncoder`] of status 100 that ends with [`empty`](ResponseEncoder::empty). If it
//!   answers otherwise, it still reads the body, or closes.
//! - It decides about methods (501), requests without a length (411), and offers to upgrade.
//! - It bounds the time of each part, as the codec bounds the bytes.
//! - It decodes percent-encoding, and compares hosts with the ones that it serves.
//! - A proxy leaves out the fields that are [for one connection](RequestHead::is_hop_by_hop).
#![forbid(unsafe_code)]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

mod bytes;
mod decode;
mod encode;
mod error;
mod head;
mod limits;
mod scan;
mod words;

pub use decode::{Event, RequestDecoder, ResponseDecoder, Step};
pub use encode::{BodyEncoder, EncodeError, FixedField, RequestEncoder, ResponseEncoder, reason};
pub use error::{Error, Rule};
pub use head::{Field, RequestHead, ResponseHead, TargetForm};
pub use limits::Limits;
pub use words::{Asked, Framing, Method, Version};
