//! How much a message may have.

/// How much a message may have, each with a default.
///
/// A limit of a part that a decoder wants whole (line, head, chunk line, trailers) is also the most
/// memory that a caller keeps for it.
///
/// ```
/// use windlass_http1::{Limits, RequestHead};
///
/// let head = RequestHead::new(Limits { body: 10 << 20, ..Limits::default() });
/// assert_eq!(head.limits().fields, 100);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Bytes of the first line, without its end. The default is 8192; RFC 9112 asks for 8000 at
    /// least. Beyond: 414.
    pub line: u32,
    /// Bytes of a head: the first line, the fields, and the empty line. The default is 16,384.
    /// Beyond: 431.
    pub head: u32,
    /// Fields of a head, and of trailers. The default is 100, the most is
    /// [`Limits::MOST_FIELDS`]. Beyond: 431.
    pub fields: u16,
    /// Bytes of a body, without its framing. The default is 1 MiB. A program that knows more when
    /// it has seen the head sets the limit of one body with `limit_body`. Beyond: 413.
    pub body: u64,
    /// Bytes of a line in front of a chunk: size and extensions. The default is 256. Beyond: 400.
    pub chunk_line: u32,
    /// Bytes of extensions over all chunks of a body, as far as each is longer than the data of its
    /// chunk. The default is 4096. Beyond: 400.
    pub extensions: u32,
    /// Bytes of the trailers, with the empty line. The default is 4096. Beyond: 431.
    pub trailers: u32,
    /// Bytes of all 1xx responses in front of a response. The default is 16,384. Beyond: an error
    /// of the response.
    pub interim: u32,
}

impl Limits {
    /// The most fields that [`Limits::fields`] allows. Larger values count as this one.
    pub const MOST_FIELDS: u16 = 256;
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            line: 8192,
            head: 16_384,
            fields: 100,
            body: 1 << 20,
            chunk_line: 256,
            extensions: 4096,
            trailers: 4096,
            interim: 16_384,
        }
    }
}
