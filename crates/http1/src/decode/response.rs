//! Responses, as clients and proxies read them.

use super::cursor::{Cursor, Stage};
use super::{Event, Step};
use crate::error::{Error, Rule};
use crate::head::{Parsed, ResponseHead};
use crate::words::Asked;

/// The responses of one connection, in the order of their requests.
///
/// [`ResponseDecoder::expect`] says which request the next response answers. Otherwise it is as
/// [`RequestDecoder`](crate::RequestDecoder).
///
/// After an error a client closes the connection. [`Rule::Unsolicited`], and
/// [`Rule::HeadTruncated`] before any byte of the head, mean that the server has not answered: a
/// request whose method is idempotent can be sent again. Of a body that is truncated the client
/// has what came, and knows that it is not all.
///
/// ```
/// use windlass_http1::{Asked, Event, Limits, Method, ResponseDecoder, ResponseHead, Version};
///
/// let mut head = ResponseHead::new(Limits::default());
/// let mut decoder = ResponseDecoder::new();
/// decoder.expect(Asked::new(Method::Get, Version::Http11));
/// let bytes = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.0 200 OK\r\n\r\nthe body";
/// let step = decoder.decode(&mut head, bytes)?;
/// assert_eq!((step.event, head.status()), (Event::Interim, 100));
/// let bytes = &bytes[step.consumed..];
/// let step = decoder.decode(&mut head, bytes)?;
/// assert_eq!((step.event, head.status()), (Event::Head, 200));
/// let bytes = &bytes[step.consumed..];
/// assert_eq!(decoder.decode(&mut head, bytes)?.event, Event::Body(0..8));
/// assert_eq!(decoder.finish(&[])?, Event::End);
/// # Ok::<(), windlass_http1::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct ResponseDecoder {
    cursor: Cursor,
    asked: Option<Asked>,
}

impl Default for ResponseDecoder {
    fn default() -> ResponseDecoder {
        ResponseDecoder::new()
    }
}

impl ResponseDecoder {
    /// A decoder at the start of a connection.
    pub const fn new() -> ResponseDecoder {
        ResponseDecoder { cursor: Cursor::START, asked: None }
    }

    /// Says which request the next response answers. Behind each [`End`](Event::End) it is the turn
    /// of the next request; until then bytes from the server are an error.
    pub fn expect(&mut self, asked: Asked) {
        self.asked = Some(asked);
    }

    /// The next event of the bytes behind those that were consumed.
    ///
    /// # Errors
    ///
    /// The message breaks a rule or a limit. Then so does every further call.
    pub fn decode(&mut self, head: &mut ResponseHead, input: &[u8]) -> Result<Step, Error> {
        let step = if self.cursor.stage == Stage::Head {
            self.head(head, input)
        } else {
            self.cursor.body(&head.limits, &mut head.fields, input)
        };
        step.map_err(|rule| self.refuse(rule))
    }

    /// The end of the input. The last call of `decode` has returned [`NeedMore`](Event::NeedMore)
    /// or [`Closed`](Event::Closed), and `rest` is what it has not consumed.
    ///
    /// It is [`End`](Event::End) behind a body that ends with the connection, and
    /// [`Closed`](Event::Closed) if no response is missing.
    ///
    /// # Errors
    ///
    /// The input ends inside of a response, or in its place ([`Rule::HeadTruncated`],
    /// [`Rule::BodyTruncated`]).
    pub fn finish(&mut self, rest: &[u8]) -> Result<Event, Error> {
        let is_missing = self.cursor.stage == Stage::Head && self.asked.is_some();
        if is_missing {
            return Err(self.refuse(Rule::HeadTruncated));
        }
        self.cursor.finish(rest).map_err(|rule| self.refuse(rule))
    }

    /// Sets the limit of this body, in bytes that are still to come, in the place of
    /// [`Limits::body`](crate::Limits::body). Call it behind the event [`Head`](Event::Head).
    ///
    /// # Errors
    ///
    /// The Content-Length is larger. Other bodies are refused at the bytes that are too much.
    pub fn limit_body(&mut self, most: u64) -> Result<(), Error> {
        self.cursor.limit_body(most).map_err(|rule| self.refuse(rule))
    }

    /// Whether no response is expected, and no byte has come.
    pub fn is_idle(&self) -> bool {
        self.cursor.stage == Stage::Head && self.cursor.is_new() && self.asked.is_none()
    }

    #[cold]
    fn refuse(&mut self, rule: Rule) -> Error {
        self.cursor.stage = Stage::Refused(rule);
        Error::of_response(rule)
    }

    fn head(&mut self, head: &mut ResponseHead, input: &[u8]) -> Result<Step, Rule> {
        let Some(first) = input.first() else {
            return Ok(Step::new(0, Event::NeedMore));
        };
        let asked = self.asked.ok_or(Rule::Unsolicited)?;
        if *first != b'H' {
            return Err(Rule::StatusLine);
        }
        let (line, most) = (head.limits.line as usize, head.limits.head as usize);
        let window = &input[..input.len().min(most)];
        let end = match self.cursor.is_new().then(|| head.parse(window, asked)) {
            Some(Ok(Parsed::Whole(end))) if head.line_len(window) <= line => {
                return self.begin(head, end);
            }
            Some(Ok(Parsed::Part { line_end })) => {
                self.cursor.has_part(&head.limits, window.len(), line_end)?;
                None
            }
            // An error in a head is told when the head is there, whatever the pieces are.
            _ => self.cursor.find_head(&head.limits, input, 0)?,
        };
        let Some(end) = end else {
            return Ok(Step::new(0, Event::NeedMore));
        };
        match head.parse(&input[..end], asked)? {
            Parsed::Whole(end) => self.begin(head, end),
            Parsed::Part { .. } => Err(Rule::LineEnd),
        }
    }

    fn begin(&mut self, head: &ResponseHead, end: usize) -> Result<Step, Rule> {
        if head.is_interim() {
            self.cursor.begin_again(head.limits(), end)?;
            return Ok(Step::new(end, Event::Interim));
        }
        let keeps = self.asked.is_some_and(|asked| asked.keep_alive) && head.keep_alive();
        self.cursor.begin(head.framing(), head.limits(), !keeps);
        self.asked = None;
        Ok(Step::new(end, Event::Head))
    }
}
