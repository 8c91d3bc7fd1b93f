//! The protocol of Redis, as a decoder of frames: a frame is a command.

use std::fmt;
use std::ops::Range;

use windlass_serve::framing::{Decoder, Scan};

/// The longest string of a command, unless the server is told otherwise, and the longest that it
/// can be told. The first is the limit of Redis. Beyond the second, a reply would be longer than
/// the output of a connection may be.
pub(crate) const USUAL_BULK: usize = 512 << 20;
pub(crate) const MOST_BULK: usize = (1 << 30) - BESIDE;

/// Most bytes of a command beside its longest string: the other strings, and all lengths.
pub(crate) const BESIDE: usize = 1 << 20;

/// Most bytes of an inline command, and most arguments.
pub(crate) const MOST_INLINE: usize = 64 << 10;
pub(crate) const MOST_ARGUMENTS: usize = 64 << 10;

/// Most digits of a length: more are over every limit.
const MOST_DIGITS: u8 = 10;

/// Commands as arrays of bulk strings (`*2\r\n$3\r\nGET\r\n$1\r\nk\r\n`) or inline (`GET k\r\n`).
pub(crate) struct Commands {
    step: Step,
    /// The longest string. A command that announces more is refused before its bytes come.
    most_bulk: usize,
    /// How many bytes of the command have come.
    seen: usize,
    /// How many arguments are missing.
    missing: usize,
    /// Where the arguments lie in the frame.
    arguments: Vec<Range<u32>>,
    /// Whether the last frame was an inline command; its words without their quotes.
    inline: bool,
    unquoted: Vec<u8>,
}

#[derive(Clone, Copy, Default)]
enum Step {
    #[default]
    Start,
    Inline,
    /// In the number behind the `*`.
    Count(Number),
    /// In front of a `$`.
    Bulk,
    /// In the number behind the `$`.
    Length(Number),
    /// In a bulk string of which so many bytes are missing, and the CR and LF behind it.
    Data(usize),
    End,
    EndLine,
}

/// A number in front of CR and LF.
#[derive(Clone, Copy, Default)]
struct Number {
    value: u64,
    digits: u8,
    negative: bool,
    after_cr: bool,
}

/// Why the bytes are no command. The connection cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Error {
    Count,
    Length,
    NoBulk(u8),
    NoEnd,
    InlineTooLong,
    TooLong,
    Quotes,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Count => f.write_str("invalid multibulk length"),
            Error::Length => f.write_str("invalid bulk length"),
            Error::NoBulk(byte) => write!(f, "expected '$', got '{}'", byte.escape_ascii()),
            Error::NoEnd => f.write_str("expected CRLF behind a bulk string"),
            Error::InlineTooLong => f.write_str("too big inline request"),
            Error::TooLong => f.write_str("a string is longer than --max-bulk allows"),
            Error::Quotes => f.write_str("unbalanced quotes in request"),
        }
    }
}

impl Number {
    /// Takes in a byte. The number, if it ends here; none that is longer than a limit can be.
    #[inline]
    fn take(&mut self, byte: u8) -> Option<Option<i64>> {
        match byte {
            b'\n' if self.after_cr && self.digits > 0 => {
                let value = self.value as i64;
                return Some(Some(if self.negative { -value } else { value }));
            }
            _ if self.after_cr => return Some(None),
            b'0'..=b'9' if self.digits < MOST_DIGITS => {
                self.value = self.value * 10 + u64::from(byte - b'0');
                self.digits += 1;
            }
            b'-' if self.digits == 0 && !self.negative => self.negative = true,
            b'\r' => self.after_cr = true,
            _ => return Some(None),
        }
        None
    }
}

impl Default for Commands {
    fn default() -> Commands {
        Commands::up_to(USUAL_BULK)
    }
}

impl Commands {
    /// Commands whose strings have at most so many bytes, [`MOST_BULK`] at most.
    pub(crate) fn up_to(most_bulk: usize) -> Commands {
        Commands {
            step: Step::Start,
            most_bulk,
            seen: 0,
            missing: 0,
            arguments: Vec::new(),
            inline: false,
            unquoted: Vec::new(),
        }
    }

    /// The command that was found last, which lies in `frame`.
    pub(crate) fn command<'a>(&'a mut self, frame: &'a [u8]) -> Result<Command<'a>, Error> {
        let mut bytes = frame;
        if self.inline {
            self.arguments.clear();
            self.unquoted.clear();
            if frame.iter().any(|byte| matches!(byte, b'"' | b'\'')) {
                unquote(frame, &mut self.unquoted, &mut self.arguments)?;
                bytes = &self.unquoted;
            } else {
                split(frame, &mut self.arguments);
            }
        }
        Ok(Command { bytes, arguments: &self.arguments })
    }

    /// Looks at `bytes`. Changes the decoder also when it fails.
    fn advance(&mut self, bytes: &[u8]) -> Result<Scan, Error> {
        let mut at = 0;
        let mut step = self.step;
        while at < bytes.len() {
            let byte = bytes[at];
            match &mut step {
                Step::Start => {
                    self.arguments.clear();
                    if byte == b'*' {
                        step = Step::Count(Number::default());
                        at += 1;
                    } else {
                        step = Step::Inline;
                    }
                }
                Step::Inline => {
                    let end = memchr::memchr(b'\n', &bytes[at..]);
                    at = end.map_or(bytes.len(), |end| at + end + 1);
                    if self.seen + at > MOST_INLINE {
                        return Err(Error::InlineTooLong);
                    }
                    if end.is_some() {
                        self.inline = true;
                        return Ok(self.found(at));
                    }
                }
                Step::Count(number) => {
                    at += 1;
                    if let Some(count) = number.take(byte) {
                        let count = count.filter(|&count| count <= MOST_ARGUMENTS as i64);
                        self.missing = usize::try_from(count.ok_or(Error::Count)?).unwrap_or(0);
                        if self.missing == 0 {
                            self.inline = false;
                            return Ok(self.found(at));
                        }
                        step = Step::Bulk;
                    }
                }
                Step::Bulk => {
                    if byte != b'$' {
                        return Err(Error::NoBulk(byte));
                    }
                    at += 1;
                    step = Step::Length(Number::default());
                }
                Step::Length(number) => {
                    at += 1;
                    if let Some(length) = number.take(byte) {
                        let length = length.and_then(|length| usize::try_from(length).ok());
                        let length = length.ok_or(Error::Length)?;
                        let start = self.seen + at;
                        let most = self.most_bulk;
                        if length > most || start + length > most + BESIDE {
                            return Err(Error::TooLong);
                        }
                        self.arguments.push(start as u32..(start + length) as u32);
                        step = Step::Data(length);
                    }
                }
                Step::Data(missing) => {
                    let here = (*missing).min(bytes.len() - at);
                    at += here;
                    *missing -= here;
                    if *missing == 0 {
                        step = Step::End;
                    }
                }
                Step::End => {
                    at += 1;
                    step = Step::EndLine;
                    if byte != b'\r' {
                        return Err(Error::NoEnd);
                    }
                }
                Step::EndLine => {
                    at += 1;
                    if byte != b'\n' {
                        return Err(Error::NoEnd);
                    }
                    self.missing -= 1;
                    if self.missing == 0 {
                        self.inline = false;
                        return Ok(self.found(at));
                    }
                    step = Step::Bulk;
                }
            }
        }
        self.step = step;
        self.seen += at;
        Ok(Scan::More(match step {
            Step::Data(missing) => missing + 2,
            _ => 1,
        }))
    }

    fn found(&mut self, taken: usize) -> Scan {
        self.step = Step::Start;
        self.seen = 0;
        Scan::Frame { taken, head: 0, trail: 0 }
    }
}

impl Decoder for Commands {
    type Error = Error;

    fn scan(&mut self, bytes: &[u8]) -> Result<Scan, Error> {
        let (step, seen, missing) = (self.step, self.seen, self.missing);
        let count = if matches!(step, Step::Start) { 0 } else { self.arguments.len() };
        let found = self.advance(bytes);
        if found.is_err() {
            (self.step, self.seen, self.missing) = (step, seen, missing);
            self.arguments.truncate(count);
        }
        found
    }
}

/// A command: its name and what follows. An empty line, and an array of no strings, have no name.
#[derive(Clone, Copy)]
pub(crate) struct Command<'a> {
    bytes: &'a [u8],
    arguments: &'a [Range<u32>],
}

impl<'a> Command<'a> {
    pub(crate) fn len(&self) -> usize {
        self.arguments.len()
    }

    /// The argument at `index`; the name of the command is at 0. Panics if there are fewer.
    pub(crate) fn get(&self, index: usize) -> &'a [u8] {
        let Range { start, end } = self.arguments[index];
        &self.bytes[start as usize..end as usize]
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &'a [u8]> {
        (0..self.len()).map(|index| self.get(index))
    }

    /// Appends the command to a file or a connection, as an array of bulk strings.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        array(out, self.len());
        self.iter().for_each(|argument| bulk(out, argument));
    }
}

fn is_blank(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == 0x0B
}

/// The words of a line.
fn split(line: &[u8], words: &mut Vec<Range<u32>>) {
    let mut start = None;
    for (at, &byte) in line.iter().enumerate() {
        match start {
            None if !is_blank(byte) => start = Some(at as u32),
            Some(from) if is_blank(byte) => {
                words.push(from..at as u32);
                start = None;
            }
            _ => {}
        }
    }
    words.extend(start.map(|from| from..line.len() as u32));
}

/// The words of a line with quotes, one behind the other in `out`.
fn unquote(line: &[u8], out: &mut Vec<u8>, words: &mut Vec<Range<u32>>) -> Result<(), Error> {
    let mut rest = line.iter().copied().peekable();
    loop {
        while rest.next_if(|&byte| is_blank(byte)).is_some() {}
        if rest.peek().is_none() {
            return Ok(());
        }
        let start = out.len() as u32;
        while let Some(byte) = rest.next_if(|&byte| !is_blank(byte)) {
            if !matches!(byte, b'"' | b'\'') {
                out.push(byte);
                continue;
            }
            loop {
                let inside = rest.next().ok_or(Error::Quotes)?;
                if inside == byte {
                    break;
                }
                let escaped = inside == b'\\' && (byte == b'"' || rest.peek() == Some(&b'\''));
                out.push(if escaped { escape(&mut rest, byte)? } else { inside });
            }
            // A blank or the end stands behind the closing quote.
            if rest.peek().is_some_and(|&byte| !is_blank(byte)) {
                return Err(Error::Quotes);
            }
        }
        words.push(start..out.len() as u32);
    }
}

/// The byte behind a backslash.
fn escape(
    rest: &mut std::iter::Peekable<impl Iterator<Item = u8> + Clone>,
    quote: u8,
) -> Result<u8, Error> {
    let byte = rest.next().ok_or(Error::Quotes)?;
    let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
    Ok(match byte {
        _ if quote == b'\'' => byte,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 8,
        b'a' => 7,
        b'x' => {
            let mut ahead = rest.clone();
            let (Some(high), Some(low)) = (digit(ahead.next()), digit(ahead.next())) else {
                return Ok(b'x');
            };
            *rest = ahead;
            (high << 4 | low) as u8
        }
        byte => byte,
    })
}

/// `+text\r\n`.
pub(crate) fn simple(out: &mut Vec<u8>, text: &str) {
    out.push(b'+');
    out.extend_from_slice(text.as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// `-ERR text\r\n`.
pub(crate) fn error(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(b"-ERR ");
    out.extend_from_slice(text.as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// A bulk string.
pub(crate) fn bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    number(out, b'$', bytes.len());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// The absence of a bulk string.
pub(crate) fn null(out: &mut Vec<u8>) {
    out.extend_from_slice(b"$-1\r\n");
}

pub(crate) fn integer(out: &mut Vec<u8>, value: usize) {
    number(out, b':', value);
}

/// The start of an array of `len` values.
pub(crate) fn array(out: &mut Vec<u8>, len: usize) {
    number(out, b'*', len);
}

fn number(out: &mut Vec<u8>, kind: u8, mut value: usize) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.push(kind);
    out.extend_from_slice(&digits[at..]);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use windlass::Buf;
    use windlass_serve::framing::Input;

    use super::*;

    type Words = Vec<Vec<u8>>;

    /// The commands in an input, and what is wrong with the rest.
    fn hear(pieces: impl IntoIterator<Item = Buf>) -> (Vec<Words>, Result<usize, Error>) {
        let (mut input, mut commands, mut heard) = (Input::new(), Commands::default(), Vec::new());
        let mut take = |input: &mut Input| {
            while let Some(frame) = input.next(&mut commands)? {
                heard.push(commands.command(&frame)?.iter().map(<[u8]>::to_vec).collect());
            }
            Ok(())
        };
        for piece in pieces {
            input.push(piece);
            if let Err(error) = take(&mut input) {
                return (heard, Err(error));
            }
        }
        (heard, Ok(input.len()))
    }

    fn words(text: &str) -> Words {
        text.split(' ').map(|word| word.as_bytes().to_vec()).collect()
    }

    /// At every cut into two and three pieces.
    fn expect(bytes: &[u8], commands: &[Words], end: Result<usize, Error>) {
        let expected = (commands.to_vec(), end);
        for first in 0..=bytes.len() {
            for second in first..=bytes.len() {
                let cut = [&bytes[..first], &bytes[first..second], &bytes[second..]];
                let heard = hear(cut.map(|piece| piece.to_vec().into()));
                assert_eq!(heard, expected, "{:?} at {first}, {second}", bytes.escape_ascii());
            }
        }
    }

    #[test]
    fn commands_at_every_cut() {
        expect(
            b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$4\r\n\r\n\r\n\r\n*1\r\n$4\r\nPING\r\n",
            &[vec![b"SET".to_vec(), b"k".to_vec(), b"\r\n\r\n".to_vec()], words("PING")],
            Ok(0),
        );
        expect(
            b"PING\r\n  get \tk \n\r\n*0\r\n*-1\r\nQUIT\n",
            &[words("PING"), words("get k"), vec![], vec![], vec![], words("QUIT")],
            Ok(0),
        );
        expect(b"*2\r\n$4\r\nECHO\r\n$0\r\n\r\n*1\r\n$4", &[vec![b"ECHO".to_vec(), vec![]]], Ok(6));
    }

    #[test]
    fn quotes_of_inline_commands_at_every_cut() {
        expect(
            b"set \"a b\" 'c\\'\\n'\r\nset \"\\x41\\n\\\"\\xg\" \"\"\n",
            &[
                vec![b"set".to_vec(), b"a b".to_vec(), b"c'\\n".to_vec()],
                vec![b"set".to_vec(), b"A\n\"xg".to_vec(), vec![]],
            ],
            Ok(0),
        );
        for line in ["get \"a\n", "get 'a\r\n", "get \"a\"b\n", "get \"a\\\n"] {
            expect(line.as_bytes(), &[], Err(Error::Quotes));
        }
    }

    #[test]
    fn wrong_bytes_are_refused_at_every_cut() {
        for (bytes, error) in [
            ("*x\r\n", Error::Count),
            ("*\r\n", Error::Count),
            ("*1\n", Error::Count),
            ("*1\rx", Error::Count),
            ("*--1\r\n", Error::Count),
            ("*65537\r\n", Error::Count),
            ("*12345678901\r\n", Error::Count),
            ("*1\r\n+OK\r\n", Error::NoBulk(b'+')),
            ("*1\r\n$-1\r\n", Error::Length),
            ("*1\r\n$1x\r\n", Error::Length),
            ("*1\r\n$536870913\r\n", Error::TooLong),
            ("*1\r\n$9999999999\r\n", Error::TooLong),
            ("*1\r\n$1\r\nab\r\n", Error::NoEnd),
            ("*1\r\n$1\r\na\rb", Error::NoEnd),
        ] {
            expect(bytes.as_bytes(), &[], Err(error));
            expect(format!("PING\r\n{bytes}").as_bytes(), &[words("PING")], Err(error));
        }
        let long = vec![b'x'; MOST_INLINE];
        assert_eq!(hear([long.clone().into()]).1, Ok(MOST_INLINE));
        assert_eq!(hear([long.into(), "\n".into()]).1, Err(Error::InlineTooLong));
    }

    /// A string of the longest length is taken, one that is a byte longer is refused by its length
    /// alone, and so are strings that are short enough alone but not together.
    #[test]
    fn the_longest_string_is_a_setting() {
        let scan = |most, text: &str| Commands::up_to(most).scan(text.as_bytes()).map(|_| ());
        for most in [1, 20 << 20, USUAL_BULK, MOST_BULK] {
            assert_eq!(scan(most, &format!("*1\r\n${most}\r\n")), Ok(()));
            let longer = format!("*1\r\n${}\r\n", most + 1);
            assert_eq!(scan(most, &longer), Err(Error::TooLong));
        }
        let half = "x".repeat(BESIDE / 2);
        let two = format!("*3\r\n${0}\r\n{half}\r\n${0}\r\n{half}\r\n", half.len());
        assert_eq!(scan(BESIDE / 2, &format!("{two}$1000\r\n")), Ok(()));
        let error = scan(BESIDE / 2, &format!("{two}${}\r\n", BESIDE / 2));
        assert_eq!(error, Err(Error::TooLong));
    }

    #[test]
    fn a_command_is_written_as_it_is_read() {
        let bytes = b"*2\r\n$4\r\nECHO\r\n$10\r\n0123456789\r\n";
        let (mut input, mut commands, mut out) = (Input::new(), Commands::default(), Vec::new());
        input.push(bytes);
        let frame = input.next(&mut commands).unwrap().unwrap();
        commands.command(&frame).unwrap().write(&mut out);
        assert_eq!(out, bytes);
    }
}
