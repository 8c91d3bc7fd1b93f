//! Clients of WebSocket echo servers with permessage-deflate: they compress their messages, inflate
//! what comes back, and compare the text.
//!
//! The messages are a log of JSON-like lines, cut at the size of a message. All connections send
//! the same messages in the same order, so that they are compressed once: a message of the second
//! round and later refers to the same text as that of the round before.

use std::io;
use std::time::Duration;

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};
use mio::net::TcpStream;

use crate::arguments::{Arguments, invalid};
use crate::exchanges::{Exchange, Loop, receive, send};
use crate::websocket_load::{open_with, put_masked};

/// A round of messages has at least as much text: no window reaches into the round before.
const ROUND: usize = 128 << 10;
/// A frame of text that is compressed.
const COMPRESSED_TEXT: u8 = 0xc1;
/// What the end of a compressed message lacks (RFC 7692, section 7.2.1).
const TAIL: [u8; 4] = [0, 0, 0xff, 0xff];

/// `deflate-load measure|hold|bytes --port N --connections N --size N --depth N --window N
/// --seconds S --messages N`
///
/// `window` is the bits of the windows of both sides, whose contexts are taken over; with 0, none
/// is. See `websocket_load` for the rest. Each connection has exchanged at least as much text as
/// its windows have, before it is measured or held. With `bytes` it has one more round, and prints
/// the bytes of an echo.
pub fn run(arguments: &mut Arguments) -> io::Result<()> {
    let mode: String = arguments.require("mode")?;
    let port: u16 = arguments.option("--port", 0)?;
    let connections: usize = arguments.option("--connections", 64)?;
    let size: usize = arguments.option("--size", 1024)?;
    let depth: usize = arguments.option("--depth", 1)?;
    let window: u8 = arguments.option("--window", 0)?;
    let seconds: f64 = arguments.option("--seconds", 0.0)?;
    let messages: u64 = arguments.option("--messages", 0)?;
    arguments.end()?;
    if connections == 0 || depth == 0 || !(1..=1 << 20).contains(&size) {
        return Err(invalid("a connection, a message, and 1 B to 1 MiB of it are needed".into()));
    }
    if window != 0 && !(9..=15).contains(&window) {
        return Err(invalid("--window is 9 to 15, or 0".into()));
    }
    windlass::fd::raise_max_open_files()?;
    let mut clients = Loop::new(Rounds::new(size, depth, window))?;
    for _ in 0..connections {
        clients.add(Client::open(port, window)?)?;
    }
    let text = if window == 0 { 1 } else { 2 << window };
    // Each connection has one exchange in each turn.
    let turns = |clients: &mut Loop<Client>, count: usize| -> io::Result<()> {
        (0..count).try_for_each(|_| clients.measure(Duration::ZERO, connections as u64).map(drop))
    };
    turns(&mut clients, usize::div_ceil(text, size * depth))?;
    if mode == "bytes" {
        clients.shared.heard_bytes = 0;
        let count = clients.shared.texts.len();
        turns(&mut clients, count / depth)?;
        println!("{}", clients.shared.heard_bytes as f64 / (count * connections) as f64);
        return Ok(());
    }
    clients.obey(&mode, seconds, messages, depth as u64)
}

/// What all connections send.
struct Rounds {
    texts: Vec<Vec<u8>>,
    /// The frames of the first round, and those of each later one.
    frames: [Vec<Vec<u8>>; 2],
    depth: usize,
    space: Vec<u8>,
    plain: Vec<u8>,
    /// Bytes of compressed messages.
    heard_bytes: usize,
}

impl Rounds {
    fn new(size: usize, depth: usize, window: u8) -> Rounds {
        let count = (ROUND / size).max(4).next_multiple_of(depth);
        let log = log(count * size);
        let texts: Vec<Vec<u8>> = log.chunks_exact(size).map(<[u8]>::to_vec).collect();
        let mut deflate = Compress::new_with_window_bits(Compression::new(6), false, bits(window));
        let frames = [(); 2].map(|()| {
            let frame = |(number, text): (usize, &Vec<u8>)| {
                if window == 0 {
                    deflate.reset();
                }
                let (mut payload, mut frame) = (Vec::with_capacity(2 * size + 64), Vec::new());
                let made = deflate.compress_vec(text, &mut payload, FlushCompress::Sync);
                assert!(matches!(made, Ok(Status::Ok)) && payload.ends_with(&TAIL), "{made:?}");
                payload.truncate(payload.len() - TAIL.len());
                put_masked(COMPRESSED_TEXT, &payload, number, &mut frame);
                frame
            };
            texts.iter().enumerate().map(frame).collect()
        });
        Rounds {
            texts,
            frames,
            depth,
            space: vec![0; 256 << 10],
            plain: Vec::new(),
            heard_bytes: 0,
        }
    }
}

/// The bits of a window, which is the largest one where no context is taken over.
fn bits(window: u8) -> u8 {
    if window == 0 { 15 } else { window }
}

/// Lines of JSON, as programs log them.
fn log(len: usize) -> Vec<u8> {
    const NAMES: [&str; 8] =
        ["amber", "basalt", "cobalt", "dune", "ember", "flint", "garnet", "hazel"];
    const EVENTS: [&str; 6] =
        ["order.filled", "order.sent", "quote", "login", "trade", "cancelled"];
    let (mut text, mut random, mut number) = (Vec::new(), 0x9E37_79B9_7F4A_7C15_u64, 100_000_u64);
    while text.len() < len {
        // Marsaglia's xorshift.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        number += random % 7;
        let (name, event) = (NAMES[random as usize >> 8 & 7], EVENTS[(random >> 16) as usize % 6]);
        let (price, count) = (random >> 24 & 0xffff, random >> 40 & 0x3ff);
        let line = format!(
            "{{\"id\":{number},\"time\":\"2026-03-0{}T1{}:{:02}:{:02}.{:03}Z\",\
             \"event\":\"{event}\",\"user\":{{\"name\":\"{name}\",\"session\":\"{:08x}\"}},\
             \"price\":{}.{:02},\"count\":{count},\"is_open\":{}}}\n",
            1 + number % 7,
            number % 10,
            number / 7 % 60,
            random % 60,
            random % 1000,
            random >> 32,
            price / 100,
            price % 100,
            random % 2 == 0,
        );
        text.extend_from_slice(line.as_bytes());
    }
    text.truncate(len);
    text
}

struct Client {
    socket: TcpStream,
    inflate: Decompress,
    takes_over: bool,
    /// Exchanges that it has begun.
    begun: usize,
    /// The bytes of its messages, and how many were sent.
    out: Vec<u8>,
    sent: usize,
    /// The start of a frame that has not come whole.
    part: Vec<u8>,
    /// Messages of this exchange that have come back.
    heard: usize,
}

impl Client {
    fn open(port: u16, window: u8) -> io::Result<Client> {
        let terms = match window {
            0 => "server_no_context_takeover; client_no_context_takeover".to_owned(),
            15 => "client_max_window_bits".to_owned(),
            bits => format!("server_max_window_bits={bits}; client_max_window_bits={bits}"),
        };
        let field = format!("Sec-WebSocket-Extensions: permessage-deflate; {terms}\r\n");
        let (socket, head) = open_with(port, &field)?;
        let agreed = head.contains("permessage-deflate")
            && head.contains("server_no_context_takeover") == (window == 0)
            && head.contains("client_no_context_takeover") == (window == 0)
            && (window == 0
                || window == 15
                || head.contains(&format!("server_max_window_bits={window}"))
                    && head.contains(&format!("client_max_window_bits={window}")));
        if !agreed {
            return Err(io::Error::other(format!("not what was offered: {head:?}")));
        }
        Ok(Client {
            socket: TcpStream::from_std(socket),
            inflate: Decompress::new_with_window_bits(false, bits(window)),
            takes_over: window != 0,
            begun: 0,
            out: Vec::new(),
            sent: 0,
            part: Vec::new(),
            heard: 0,
        })
    }
}

impl Exchange for Client {
    type Shared = Rounds;

    fn socket(&mut self) -> &mut TcpStream {
        &mut self.socket
    }

    fn begin(&mut self, shared: &mut Rounds) -> io::Result<()> {
        let first = self.begun * shared.depth;
        let count = shared.texts.len();
        let round = &shared.frames[usize::from(first >= count)];
        self.out.clear();
        for frame in &round[first % count..][..shared.depth] {
            self.out.extend_from_slice(frame);
        }
        (self.sent, self.heard) = (0, 0);
        self.begun += 1;
        send(&mut self.socket, &self.out, &mut self.sent).map(drop)
    }

    fn go_on(&mut self, shared: &mut Rounds) -> io::Result<bool> {
        send(&mut self.socket, &self.out, &mut self.sent)?;
        while let Some(count) = receive(&mut self.socket, &mut shared.space)? {
            self.part.extend_from_slice(&shared.space[..count]);
            let mut used = 0;
            while let Some(payload) = frame(&self.part[used..])? {
                let at = ((self.begun - 1) * shared.depth + self.heard) % shared.texts.len();
                let payload = used + payload.start..used + payload.end;
                let text = &shared.texts[at];
                if self.heard == shared.depth {
                    return Err(io::Error::other("more messages than were sent"));
                }
                let bytes = &self.part[payload.clone()];
                if !self.takes_over {
                    self.inflate.reset(false);
                }
                inflate(&mut self.inflate, bytes, text.len(), &mut shared.plain)?;
                if shared.plain != *text {
                    return Err(io::Error::other("the server has sent another text"));
                }
                self.heard += 1;
                shared.heard_bytes += payload.len();
                used = payload.end;
            }
            self.part.drain(..used);
            if self.heard == shared.depth {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Where the payload of the first frame is, if it is whole. It is a message of compressed text.
fn frame(bytes: &[u8]) -> io::Result<Option<std::ops::Range<usize>>> {
    let [first, second, rest @ ..] = bytes else { return Ok(None) };
    let (len, extra) = match (*second, rest) {
        (126, [a, b, ..]) => (usize::from(u16::from_be_bytes([*a, *b])), 2),
        (127, [a, b, c, d, e, f, g, h, ..]) => {
            (u64::from_be_bytes([*a, *b, *c, *d, *e, *f, *g, *h]) as usize, 8)
        }
        (126 | 127, _) => return Ok(None),
        (len, _) => (usize::from(len), 0),
    };
    if *first != COMPRESSED_TEXT || *second > 127 {
        return Err(io::Error::other(format!("a frame begins with {first:#x}, {second:#x}")));
    }
    let payload = 2 + extra..2 + extra + len;
    Ok((payload.end <= bytes.len()).then_some(payload))
}

/// The text of a compressed message, which has `len` bytes.
fn inflate(from: &mut Decompress, payload: &[u8], len: usize, out: &mut Vec<u8>) -> io::Result<()> {
    out.clear();
    // A byte more, so that no text is cut.
    out.reserve(len + 1);
    for part in [payload, &TAIL] {
        from.decompress_vec(part, out, FlushDecompress::Sync).map_err(io::Error::other)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All frames of two rounds, and then of the second one again, are inflated in order.
    #[test]
    fn later_rounds_refer_to_the_same_text() {
        for (window, size) in [(0, 1000), (9, 1024), (12, 16 << 10), (15, 1024)] {
            let rounds = Rounds::new(size, 4, window);
            let mut from = Decompress::new_with_window_bits(false, bits(window));
            let (mut plain, mut compressed) = (Vec::new(), 0);
            for round in [0, 1, 1, 1] {
                for (sent, text) in rounds.frames[round].iter().zip(&rounds.texts) {
                    let mut bytes = sent.clone();
                    bytes[1] &= 0x7f;
                    let extra = if bytes[1] == 126 { 2 } else { 0 };
                    let (key, masked) = bytes[2 + extra..].split_at_mut(4);
                    masked.iter_mut().zip(key.iter().cycle()).for_each(|(byte, key)| *byte ^= key);
                    bytes.drain(2 + extra..6 + extra);
                    let payload = frame(&bytes).unwrap().unwrap();
                    assert_eq!(payload.end, bytes.len());
                    if window == 0 {
                        from.reset(false);
                    }
                    inflate(&mut from, &bytes[payload], size, &mut plain).unwrap();
                    assert_eq!(plain, *text);
                    compressed += bytes.len();
                }
            }
            let share = 4 * rounds.texts.len() * size / compressed;
            assert!((2..8).contains(&share), "window {window}: 1 to {share}");
        }
    }
}
