//! What the targets of windlass-http1 share: an input, its cuts, and small limits.

use arbitrary::Arbitrary;
use windlass_http1::{Error, Event, Limits, Rule, Step};

/// An input, and how it is cut. The dictionary makes most bytes parts of messages.
#[derive(Debug, Arbitrary)]
pub struct Program {
    small: bool,
    head: bool,
    pieces: Vec<Piece>,
    pub cuts: Vec<u8>,
}

#[derive(Debug, Arbitrary)]
enum Piece {
    Word(u8),
    Bytes(Vec<u8>),
}

const WORDS: [&str; 48] = [
    "\r\n",
    "\r\n\r\n",
    "\n",
    "\r",
    " ",
    "\t",
    ":",
    ": ",
    ",",
    ";",
    "=",
    "\"",
    "\\",
    "0",
    "5",
    "a",
    "GET / HTTP/1.1\r\nHost: a\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\n",
    "GET / HTTP/1.0\r\n",
    "CONNECT a:1 HTTP/1.1\r\nHost: a\r\n",
    "OPTIONS * HTTP/1.1\r\nHost: a\r\n",
    "GET http://a:80/b?c HTTP/1.1\r\n",
    "HEAD ",
    "HTTP/1.1 200 OK\r\n",
    "HTTP/1.0 200 OK\r\n",
    "HTTP/1.1 204 No Content\r\n",
    "HTTP/1.1 304 Not Modified\r\n",
    "HTTP/1.1 100 Continue\r\n\r\n",
    "HTTP/1.1 101 Switching\r\n",
    "Host: a\r\n",
    "Content-Length: 5\r\n",
    "Content-Length: 0\r\n",
    "Content-Length:",
    "Transfer-Encoding: chunked\r\n",
    "Transfer-Encoding:",
    "gzip, chunked",
    "Connection: close\r\n",
    "Connection: keep-alive\r\n",
    "Connection: upgrade\r\n",
    "Upgrade: b\r\n",
    "Expect: 100-continue\r\n",
    "TE: trailers\r\n",
    "hello",
    "5\r\nhello\r\n",
    "5;a=\"b\"\r\nhello\r\n",
    "0\r\n\r\n",
    "0\r\nA: b\r\n\r\n",
    "ffffffffffffffff\r\n",
];

impl Program {
    pub fn input(&self, start: &str) -> Vec<u8> {
        let mut input = Vec::new();
        if self.head {
            input.extend_from_slice(start.as_bytes());
        }
        for piece in &self.pieces {
            match piece {
                Piece::Word(number) => {
                    input.extend_from_slice(WORDS[usize::from(*number) % WORDS.len()].as_bytes());
                }
                Piece::Bytes(bytes) => input.extend_from_slice(bytes),
            }
        }
        input
    }

    pub fn limits(&self) -> Limits {
        if !self.small {
            return Limits::default();
        }
        Limits {
            line: 60,
            head: 150,
            fields: 6,
            body: 30,
            chunk_line: 20,
            extensions: 30,
            trailers: 40,
            interim: 60,
        }
    }
}

/// What a decoder has said: events, with neighbouring parts of a body as one.
#[derive(PartialEq, Eq, Debug)]
pub enum Said {
    /// A head or trailers, as text.
    Fields(String),
    Body(Vec<u8>),
    Event(Event),
    Refused(Rule, u16),
    /// So many bytes wait for more.
    Waits(usize),
}

/// Feeds the input, in pieces of these sizes, the rest at once.
pub fn drive(
    input: &[u8],
    cuts: &[u8],
    mut decode: impl FnMut(&[u8]) -> Result<(Step, Option<String>), Error>,
) -> Vec<Said> {
    let (mut from, mut to, mut said) = (0, 0, Vec::new());
    let mut cuts = cuts.iter();
    loop {
        match decode(&input[from..to]) {
            Err(error) => {
                said.push(Said::Refused(error.rule(), error.status()));
                return said;
            }
            Ok((step, fields)) => {
                let given = &input[from..to];
                assert!(step.consumed <= given.len());
                from += step.consumed;
                match (step.event, fields) {
                    (Event::Body(range), _) => {
                        assert!(!range.is_empty() && range.end <= step.consumed);
                        let data = &given[range];
                        if let Some(Said::Body(before)) = said.last_mut() {
                            before.extend_from_slice(data);
                        } else {
                            said.push(Said::Body(data.to_vec()));
                        }
                    }
                    (Event::NeedMore, _) if to == input.len() => {
                        said.push(Said::Waits(to - from));
                        return said;
                    }
                    (Event::NeedMore, _) => {
                        let len = cuts.next().map_or(input.len(), |cut| usize::from(*cut % 32) + 1);
                        to = input.len().min(to + len);
                    }
                    (Event::Closed, _) => {
                        said.push(Said::Event(Event::Closed));
                        return said;
                    }
                    (_, Some(fields)) => said.push(Said::Fields(fields)),
                    (event, None) => said.push(Said::Event(event)),
                }
            }
        }
    }
}
