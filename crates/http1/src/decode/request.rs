//! Requests, as servers and proxies read them.

use super::cursor::{Cursor, Stage};
use super::{Event, Step};
use crate::bytes::TOKEN;
use crate::error::{Error, Rule};
use crate::head::{Parsed, RequestHead};

/// The requests of one connection, in their order.
///
/// The caller passes the bytes that are not consumed yet, contiguously, and more of them after
/// [`NeedMore`](Event::NeedMore). It can stop after any event: a decoder that is not called reads
/// nothing. A decoder has 32 bytes and allocates nothing.
///
/// ```
/// use windlass_http1::{Event, Limits, RequestDecoder, RequestHead};
///
/// let mut head = RequestHead::new(Limits::default()); // one a thread
/// let mut decoder = RequestDecoder::new(); // one a connection
/// let input = b"POST /a HTTP/1.1\r\nHost: b\r\nContent-Length: 2\r\n\r\nhiGET /c HTTP/1.1\r\n";
/// let (mut at, mut seen) = (0, vec![]);
/// loop {
///     let bytes = &input[at..];
///     let step = decoder.decode(&mut head, bytes)?;
///     at += step.consumed;
///     match step.event {
///         Event::Head => seen.push(head.target(bytes)),
///         Event::Body(range) => seen.push(std::str::from_utf8(&bytes[range]).unwrap()),
///         Event::End => seen.push("end"),
///         _ => break,
///     }
/// }
/// assert_eq!(seen, ["/a", "hi", "end"]);
/// assert_eq!(&input[at..], b"GET /c HTTP/1.1\r\n");
/// # Ok::<(), windlass_http1::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct RequestDecoder {
    cursor: Cursor,
}

impl Default for RequestDecoder {
    fn default() -> RequestDecoder {
        RequestDecoder::new()
    }
}

impl RequestDecoder {
    /// A decoder at the start of a connection.
    pub const fn new() -> RequestDecoder {
        RequestDecoder { cursor: Cursor::START }
    }

    /// The next event of the bytes behind those that were consumed.
    ///
    /// # Errors
    ///
    /// The message breaks a rule or a limit. Then so does every further call. What was returned
    /// before stays valid: a body may turn out to be malformed behind its first bytes.
    #[inline]
    pub fn decode(&mut self, head: &mut RequestHead, input: &[u8]) -> Result<Step, Error> {
        match self.cursor.stage {
            Stage::Head => self.head(head, input),
            Stage::Ended => {
                self.cursor = Cursor::START;
                Ok(Step::new(0, Event::End))
            }
            _ => self.body(head, input),
        }
    }

    // Neither is a part of `decode`, which becomes a part of the caller's loop.
    #[inline(never)]
    fn head(&mut self, head: &mut RequestHead, input: &[u8]) -> Result<Step, Error> {
        match self.try_head(head, input) {
            Ok((consumed, true)) => Ok(Step::new(consumed, Event::Head)),
            Ok((consumed, false)) => Ok(Step::new(consumed, Event::NeedMore)),
            Err(rule) => Err(self.refuse(rule)),
        }
    }

    #[inline(never)]
    fn body(&mut self, head: &mut RequestHead, input: &[u8]) -> Result<Step, Error> {
        let step = self.cursor.body(&head.limits, &mut head.fields, input);
        step.map_err(|rule| self.refuse(rule))
    }

    /// The end of the input. The last call of `decode` has returned [`NeedMore`](Event::NeedMore)
    /// or [`Closed`](Event::Closed), and `rest` is what it has not consumed.
    ///
    /// It is [`Closed`](Event::Closed): the client ends the connection between two requests.
    ///
    /// # Errors
    ///
    /// The input ends inside of a request ([`Rule::HeadTruncated`], [`Rule::BodyTruncated`]).
    pub fn finish(&mut self, rest: &[u8]) -> Result<Event, Error> {
        self.cursor.finish(rest).map_err(|rule| self.refuse(rule))
    }

    /// Sets the limit of this body, in bytes that are still to come, in the place of
    /// [`Limits::body`](crate::Limits::body). Call it behind the event [`Head`](Event::Head).
    ///
    /// # Errors
    ///
    /// The Content-Length is larger. A chunked body is refused at the chunk that is too much.
    pub fn limit_body(&mut self, most: u64) -> Result<(), Error> {
        self.cursor.limit_body(most).map_err(|rule| self.refuse(rule))
    }

    /// How many bytes of the body have not come, behind the event [`Head`](Event::Head): `None` if
    /// only its end can tell, as that of a chunked body, and behind an error. 0 between two
    /// requests.
    ///
    /// ```
    /// use windlass_http1::{Limits, RequestDecoder, RequestHead};
    ///
    /// let (mut head, mut decoder) = (RequestHead::new(Limits::default()), RequestDecoder::new());
    /// let mut decode = |bytes: &[u8]| decoder.decode(&mut head, bytes).map(|_| decoder.left());
    /// let left = decode(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n")?;
    /// assert_eq!(left, Some(5));
    /// assert_eq!(decode(b"hel")?, Some(2));
    /// # Ok::<(), windlass_http1::Error>(())
    /// ```
    pub fn left(&self) -> Option<u64> {
        self.cursor.left()
    }

    /// Whether the decoder is between two requests, and no byte of the next one has come.
    pub fn is_idle(&self) -> bool {
        self.cursor.stage == Stage::Head && self.cursor.is_new()
    }

    #[cold]
    fn refuse(&mut self, rule: Rule) -> Error {
        self.cursor.stage = Stage::Refused(rule);
        Error::of_request(rule)
    }

    /// How many bytes are done with, and whether they are a head.
    #[inline]
    fn try_head(&mut self, head: &mut RequestHead, input: &[u8]) -> Result<(usize, bool), Rule> {
        // RFC 9112, 2.2: old clients send an empty line behind a body. One is skipped.
        let start = match input {
            [] => return Ok((0, false)),
            [first, ..] if TOKEN.has(*first) => 0,
            [b'\r', ..] if self.cursor.has_skipped => return Err(Rule::EmptyLine),
            [b'\r'] => return Ok((0, false)),
            [b'\r', b'\n'] => {
                self.cursor.has_skipped = true;
                return Ok((2, false));
            }
            [b'\r', b'\n', first, ..] if TOKEN.has(*first) => 2,
            [b'\r', b'\n', b'\r', ..] => return Err(Rule::EmptyLine),
            [b'\n', ..] | [b'\r', b'\n', b'\n', ..] => return Err(Rule::LineEnd),
            [b'\r', other, ..] if *other != b'\n' => return Err(Rule::LineEnd),
            // A client that speaks TLS is answered at its first byte.
            _ => return Err(Rule::RequestLine),
        };
        if !self.cursor.is_new() {
            return self.find_head(head, input, start);
        }
        let (line, most) = (head.limits.line as usize, start + head.limits.head as usize);
        let window = &input[..input.len().min(most)];
        match head.parse(window, start) {
            Ok(Parsed::Whole(end)) if head.line_len() <= line => Ok(self.begin(head, end)),
            Ok(Parsed::Part { line_end }) => {
                self.cursor.has_part(&head.limits, window.len() - start, line_end)?;
                Ok((start, false))
            }
            // An error in a head is told when the head is there, whatever the pieces are.
            _ => self.find_head(head, input, start),
        }
    }

    /// Searches for the end of a head, and parses it again once it is there.
    #[cold]
    fn find_head(
        &mut self,
        head: &mut RequestHead,
        input: &[u8],
        start: usize,
    ) -> Result<(usize, bool), Rule> {
        let Some(end) = self.cursor.find_head(&head.limits, input, start)? else {
            return Ok((start, false));
        };
        match head.parse_again(&input[..end], start)? {
            Parsed::Whole(end) => Ok(self.begin(head, end)),
            Parsed::Part { .. } => Err(Rule::LineEnd),
        }
    }

    #[inline]
    fn begin(&mut self, head: &RequestHead, end: usize) -> (usize, bool) {
        self.cursor.begin(head.framing(), head.limits(), !head.keep_alive());
        (end, true)
    }
}
