//! Messages.

use std::fmt;
use std::ops::Deref;

use windlass::Buf;
use windlass_websocket::Kind;

/// A message: text, or bytes.
///
/// What converts into one can be sent: a `&'static str` or a `String` as text, and a `Vec<u8>` or a
/// [`Buf`] as bytes.
///
/// ```
/// use windlass_web::websocket::Message;
///
/// assert!(matches!(Message::from("hello"), Message::Text(text) if &*text == "hello"));
/// assert!(matches!(Message::from(vec![1, 2]), Message::Binary(bytes) if &*bytes == [1, 2]));
/// ```
#[derive(Debug)]
pub enum Message {
    /// Text in UTF-8.
    Text(Text),
    /// Bytes.
    Binary(Payload),
}

/// What a message that waits counts for besides its bytes: its head, and its place in a queue.
pub(super) const ROOM: usize = 64;

impl Message {
    pub(super) fn new(kind: Kind, payload: Payload) -> Message {
        match kind {
            Kind::Text => Message::Text(Text(payload)),
            Kind::Binary => Message::Binary(payload),
        }
    }

    pub(super) fn kind(&self) -> Kind {
        match self {
            Message::Text(_) => Kind::Text,
            Message::Binary(_) => Kind::Binary,
        }
    }

    pub(super) fn into_payload(self) -> Payload {
        match self {
            Message::Text(text) => text.0,
            Message::Binary(payload) => payload,
        }
    }

    /// The bytes of the message: of a text, those of its UTF-8.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Message::Text(text) => &text.0,
            Message::Binary(payload) => payload,
        }
    }

    /// The text, if it is one.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Message::Text(text) => Some(text),
            Message::Binary(_) => None,
        }
    }
}

/// The bytes of a message. They are those that were read, without a copy, if the message came
/// whole.
pub struct Payload {
    buf: Buf,
    /// Where they begin. In front of them may be the head of a frame that sends them on.
    at: u8,
    head: Option<Kind>,
}

impl Payload {
    /// Bytes with the head of a whole frame of a server in front of them.
    pub(super) fn framed(buf: Buf, at: usize, kind: Kind) -> Payload {
        Payload { buf, at: at as u8, head: Some(kind) }
    }

    /// The whole frame of a server that has these bytes, if there is one, and where they begin.
    pub(super) fn into_frame(self, kind: Kind) -> Result<(Buf, usize), Payload> {
        if self.head == Some(kind) { Ok((self.buf, usize::from(self.at))) } else { Err(self) }
    }

    /// The bytes as a buffer, without a copy.
    pub fn into_buf(self) -> Buf {
        if self.at == 0 { self.buf } else { self.buf.slice(usize::from(self.at)..) }
    }
}

impl Deref for Payload {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.buf[usize::from(self.at)..]
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Payload").field("len", &self.len()).finish_non_exhaustive()
    }
}

impl<T: Into<Buf>> From<T> for Payload {
    fn from(bytes: T) -> Payload {
        let buf = bytes.into();
        let is_one = buf.parts().len() <= 1;
        let buf = if is_one { buf } else { Buf::from(buf.into_vec()) };
        Payload { buf, at: 0, head: None }
    }
}

/// The text of a message. It is a `str` without a copy; each look at it checks the UTF-8 again,
/// some 20 GB a second, because a check is safe where a promise is not.
pub struct Text(Payload);

impl Text {
    /// The text as a buffer, without a copy.
    pub fn into_buf(self) -> Buf {
        self.0.into_buf()
    }
}

impl Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        simdutf8::basic::from_utf8(&self.0).expect("it was checked when it was made")
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self)
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl From<String> for Text {
    fn from(text: String) -> Text {
        Text(text.into())
    }
}

impl From<&'static str> for Text {
    fn from(text: &'static str) -> Text {
        Text(text.into())
    }
}

impl From<Text> for Message {
    fn from(text: Text) -> Message {
        Message::Text(text)
    }
}

impl From<Payload> for Message {
    fn from(bytes: Payload) -> Message {
        Message::Binary(bytes)
    }
}

impl From<String> for Message {
    fn from(text: String) -> Message {
        Message::Text(text.into())
    }
}

impl From<&'static str> for Message {
    fn from(text: &'static str) -> Message {
        Message::Text(text.into())
    }
}

impl From<Vec<u8>> for Message {
    fn from(bytes: Vec<u8>) -> Message {
        Message::Binary(bytes.into())
    }
}

impl From<Buf> for Message {
    fn from(bytes: Buf) -> Message {
        Message::Binary(bytes.into())
    }
}
