//! The same frames however the input is cut, and how many bytes that copies.

use std::cell::RefCell;
use std::fmt::Debug;

use proptest::collection::vec;
use proptest::prelude::*;
use windlass::{Buf, Lease, Watcher};

use super::*;

mod prefixes;

use prefixes::PREFIXES;

/// The result of decoding an input: the frames, and then the error or the number of bytes left.
#[derive(Debug, PartialEq, Eq)]
struct Heard<E> {
    frames: Vec<Vec<u8>>,
    end: Result<usize, E>,
}

/// How the pieces of an input reach it.
#[derive(Clone, Copy, Debug)]
enum How {
    /// Parts of one lease, which touch.
    Parts,
    /// A lease of its own for each.
    Leases,
    /// A vector for each.
    Vectors,
    /// A list of two vectors for each.
    Lists,
}

const WAYS: [How; 4] = [How::Parts, How::Leases, How::Vectors, How::Lists];

/// When the program looks for frames.
#[derive(Clone, Copy, Debug)]
enum When {
    /// After each piece, all of them.
    Each,
    /// After each piece, but one at most.
    One,
    /// When all pieces are there.
    Last,
}

thread_local! {
    /// Where the leases of a test come from.
    static WATCHER: RefCell<Watcher> = RefCell::new(Watcher::new().expect("a watcher"));
}

fn lease(bytes: &[u8]) -> Lease {
    let fill = |space: &mut [u8]| {
        space[..bytes.len()].copy_from_slice(bytes);
        bytes.len()
    };
    WATCHER.with_borrow_mut(|watcher| watcher.lease(fill)).expect("a lease")
}

/// `bytes` in pieces that end at `cuts`.
fn pieces(bytes: &[u8], cuts: &[usize], how: How) -> Vec<Buf> {
    let mut ends: Vec<usize> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
    ends.push(bytes.len());
    ends.sort_unstable();
    let mut whole = lease(bytes);
    let mut start = 0;
    let mut cut = |end: usize| {
        let part = whole.split_to(end - start);
        start = end;
        match how {
            How::Parts => part.into(),
            How::Leases => lease(&part).into(),
            How::Vectors => part.to_vec().into(),
            How::Lists => {
                let (first, second) = part.split_at(part.len() / 2);
                Buf::list([first.to_vec(), second.to_vec()])
            }
        }
    };
    ends.into_iter().map(&mut cut).collect()
}

/// Takes out at most `most` frames.
fn take<D: Decoder>(
    input: &mut Input,
    decoder: &mut D,
    most: usize,
    frames: &mut Vec<Vec<u8>>,
    owned: bool,
) -> Result<(), D::Error> {
    for _ in 0..most {
        let Some(frame) = input.next(decoder)? else { break };
        let seen = frame.to_vec();
        if owned {
            assert_eq!(&*frame.into_buf(), &seen);
        }
        frames.push(seen);
    }
    Ok(())
}

fn hear<D: Decoder>(
    decoder: &mut D,
    pieces: Vec<Buf>,
    when: When,
    owned: bool,
) -> (Heard<D::Error>, Input) {
    let mut input = Input::new();
    let mut frames = Vec::new();
    let most = match when {
        When::Each => usize::MAX,
        When::One => 1,
        When::Last => 0,
    };
    for piece in pieces {
        input.push(piece);
        if take(&mut input, decoder, most, &mut frames, owned).is_err() {
            break; // The error comes again, below.
        }
    }
    let end = take(&mut input, decoder, usize::MAX, &mut frames, owned);
    let end = end.map(|()| input.len());
    (Heard { frames, end }, input)
}

/// What is heard with a new decoder in each call, after each piece.
fn hear_anew<D: Decoder>(new: impl Fn() -> D, pieces: Vec<Buf>) -> (Heard<D::Error>, Input) {
    let (mut input, mut frames) = (Input::new(), Vec::new());
    let mut end = Ok(());
    for piece in pieces {
        input.push(piece);
        end = loop {
            match input.next(&mut new()) {
                Ok(Some(frame)) => frames.push(frame.to_vec()),
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
    }
    let end = end.map(|()| input.len());
    (Heard { frames, end }, input)
}

/// However `bytes` are cut, the decoder finds what it finds in the whole, which is `expected`.
fn check<D>(new: impl Fn() -> D, bytes: &[u8], cuts: &[usize], expected: &Heard<D::Error>)
where
    D: Decoder<Error: Debug + PartialEq>,
{
    for how in WAYS {
        let (heard, input) = hear_anew(&new, pieces(bytes, cuts, how));
        assert_eq!(&heard, expected, "{how:?} with new decoders at {cuts:?}");
        assert!(heard.end != Ok(0) || input.held_bytes() == 0, "an empty input keeps nothing");
        for when in [When::Each, When::One, When::Last] {
            for owned in [false, true] {
                let pieces = pieces(bytes, cuts, how);
                let (heard, input) = hear(&mut new(), pieces, when, owned);
                assert_eq!(&heard, expected, "{how:?} {when:?} at {cuts:?}");
                // Own buffers are copied once more where several frames share one.
                let most =
                    bytes.len() * if matches!(how, How::Parts | How::Leases) { 1 } else { 2 };
                assert!(input.copied_bytes() <= most as u64, "{input:?} {how:?} {when:?}");
                if heard.end == Ok(0) {
                    assert_eq!(input.held_bytes(), 0, "an empty input keeps nothing");
                }
            }
        }
    }
}

/// The naive decoder of lines.
fn lines(bytes: &[u8], ending: Ending, limit: usize) -> Heard<Error> {
    let mut frames = Vec::new();
    let mut rest = bytes;
    loop {
        let end = rest.iter().position(|&byte| byte == b'\n');
        let before = &rest[..end.unwrap_or(rest.len())];
        let line = match ending {
            Ending::Lf => before,
            _ => before.strip_suffix(b"\r").unwrap_or(before),
        };
        if line.len() > limit {
            return Heard { frames, end: Err(Error::TooLong { limit }) };
        }
        let Some(end) = end else {
            return Heard { frames, end: Ok(rest.len()) };
        };
        if ending == Ending::CrLf && !before.ends_with(b"\r") {
            return Heard { frames, end: Err(Error::BareLineFeed) };
        }
        frames.push(line.to_vec());
        rest = &rest[end + 1..];
    }
}

/// The naive decoder of delimited frames.
fn delimited(bytes: &[u8], delimiter: &[u8], limit: usize) -> Heard<Error> {
    let mut frames = Vec::new();
    let mut rest = bytes;
    while let Some(at) = rest.windows(delimiter.len()).position(|window| window == delimiter) {
        if at > limit {
            return Heard { frames, end: Err(Error::TooLong { limit }) };
        }
        frames.push(rest[..at].to_vec());
        rest = &rest[at + delimiter.len()..];
    }
    // The longest end of the input that a delimiter may start with is not counted.
    let starts = |len: &usize| rest.ends_with(&delimiter[..*len]);
    let matched = (0..delimiter.len()).rev().find(starts).unwrap_or(0);
    let end =
        if rest.len() - matched > limit { Err(Error::TooLong { limit }) } else { Ok(rest.len()) };
    Heard { frames, end }
}

/// The naive decoder of frames behind a prefix.
fn prefixed(bytes: &[u8], prefix: Prefix, limit: usize) -> Heard<Error> {
    let mut frames = Vec::new();
    let mut rest = bytes;
    loop {
        let left = rest.len();
        let le = |width: usize| {
            let mut all = [0; 8];
            all[..width].copy_from_slice(rest.get(..width)?);
            Some((u64::from_le_bytes(all), width))
        };
        let be = |width: usize| {
            let mut all = [0; 8];
            all[8 - width..].copy_from_slice(rest.get(..width)?);
            Some((u64::from_be_bytes(all), width))
        };
        let head = match prefix {
            Prefix::U8 => be(1),
            Prefix::U16Be => be(2),
            Prefix::U16Le => le(2),
            Prefix::U24Be => be(3),
            Prefix::U24Le => le(3),
            Prefix::U32Be => be(4),
            Prefix::U32Le => le(4),
            Prefix::U64Be => be(8),
            Prefix::U64Le => le(8),
            Prefix::Varint => {
                let width = rest.iter().take(10).position(|byte| byte & 0x80 == 0);
                if width.is_none() && left >= 10 {
                    return Heard { frames, end: Err(Error::VarintOverflow) };
                }
                width
                    .map(|last| {
                        let bits = |at: usize| u128::from(rest[at] & 0x7F) << (7 * at);
                        (u64::try_from((0..=last).map(bits).sum::<u128>()).ok(), last + 1)
                    })
                    .map(|(value, width)| (value.unwrap_or(u64::MAX), width))
            }
        };
        let Some((length, width)) = head else {
            return Heard { frames, end: Ok(left) };
        };
        if prefix == Prefix::Varint && width == 10 && rest[9] > 1 {
            return Heard { frames, end: Err(Error::VarintOverflow) };
        }
        let limit = limit.min(Prefixed::new(prefix, usize::MAX).limit());
        if length > limit as u64 {
            return Heard { frames, end: Err(Error::LengthOverLimit { length, limit }) };
        }
        let Some(frame) = rest.get(width..width + length as usize) else {
            return Heard { frames, end: Ok(left) };
        };
        frames.push(frame.to_vec());
        rest = &rest[width + length as usize..];
    }
}

const ENDINGS: [Ending; 3] = [Ending::Lf, Ending::CrLf, Ending::Either];

/// Bytes in which endings are frequent.
fn text() -> impl Strategy<Value = Vec<u8>> {
    vec(prop_oneof![3 => Just(b'a'), 2 => Just(b'\r'), 2 => Just(b'\n'), 1 => any::<u8>()], 0..40)
}

fn cuts() -> impl Strategy<Value = Vec<usize>> {
    vec(any::<usize>(), 0..6)
}

fn config() -> ProptestConfig {
    ProptestConfig { failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn lines_do_not_depend_on_the_cuts(bytes in text(), cuts in cuts(), limit in 0_usize..12) {
        for ending in ENDINGS {
            let expected = lines(&bytes, ending, limit);
            check(|| Lines::with_ending(ending, limit), &bytes, &cuts, &expected);
        }
    }

    #[test]
    fn delimited_frames_do_not_depend_on_the_cuts(
        bytes in vec(prop_oneof![Just(b'a'), Just(b'b')], 0..40),
        delimiter: [bool; 4],
        cuts in cuts(),
        limit in 0_usize..16,
    ) {
        // Two letters, so that a delimiter often begins anew inside of a part of it.
        let delimiter = delimiter.map(|is_a| if is_a { b'a' } else { b'b' });
        let expected = delimited(&bytes, &delimiter, limit);
        check(|| Delimited::new(&delimiter, limit), &bytes, &cuts, &expected);
        let expected = delimited(&bytes, &delimiter[..1], limit);
        let one = [delimiter[0]];
        check(|| Delimited::new(&one, limit), &bytes, &cuts, &expected);
        let mut expected = expected;
        expected.frames.iter_mut().for_each(|frame| frame.push(one[0]));
        check(|| Delimited::new(&one, limit).keep_delimiter(), &bytes, &cuts, &expected);
    }

    #[test]
    fn prefixed_frames_do_not_depend_on_the_cuts(
        frames in vec(vec(any::<u8>(), 0..20), 0..4),
        garbage in vec(any::<u8>(), 0..12),
        cuts in cuts(),
        limit in 0_usize..300,
    ) {
        for prefix in PREFIXES {
            let encoder = Prefixed::new(prefix, 20);
            let mut bytes = Vec::new();
            for frame in &frames {
                encoder.encode(frame, &mut bytes).expect("not too long");
            }
            bytes.extend_from_slice(&garbage);
            let expected = prefixed(&bytes, prefix, limit);
            check(|| Prefixed::new(prefix, limit), &bytes, &cuts, &expected);
        }
    }

    #[test]
    fn varints_do_not_depend_on_the_cuts(
        bytes in vec(prop_oneof![Just(0x80), Just(0xFF), Just(1), Just(2), any::<u8>()], 0..30),
        cuts in cuts(),
    ) {
        let expected = prefixed(&bytes, Prefix::Varint, 10);
        check(|| Prefixed::new(Prefix::Varint, 10), &bytes, &cuts, &expected);
    }

    /// Decoding returns the encoded frames, and would not return the frames that encoding refuses.
    #[test]
    fn what_is_encoded_is_decoded(frames in vec(text(), 0..6), limit in 0_usize..40) {
        for ending in ENDINGS {
            let new = || Lines::with_ending(ending, limit);
            let encode = |frame: &[u8], out: &mut Vec<u8>| new().encode(frame, out);
            let end: &[u8] = if ending == Ending::CrLf { b"\r\n" } else { b"\n" };
            round_trip(new, encode, &frames, |frame| [frame, end].concat());
        }
        let new = || Delimited::new(b"\r\n\r\n", limit);
        let encode = |frame: &[u8], out: &mut Vec<u8>| new().encode(frame, out);
        round_trip(new, encode, &frames, |frame| [frame, b"\r\n\r\n"].concat());
        for prefix in PREFIXES {
            let new = || Prefixed::new(prefix, limit);
            let encode = |frame: &[u8], out: &mut Vec<u8>| new().encode(frame, out);
            let head = Prefixed::new(prefix, 1000);
            let naive = |frame: &[u8]| [&head.head(frame.len()).expect("short"), frame].concat();
            round_trip(new, encode, &frames, naive);
        }
    }

    /// Random calls of a program: the bytes that come out are those that went in.
    #[test]
    fn peeking_and_frames_lose_nothing(
        bytes in text(),
        cuts in cuts(),
        steps in vec((0_u8..5, 0_usize..5), 0..30),
    ) {
        for how in WAYS {
            let mut pieces = pieces(&bytes, &cuts, how).into_iter();
            let mut input = Input::new();
            let mut decoder = Lines::with_ending(Ending::Lf, 100);
            let mut out = Vec::new();
            let mut pushed = 0;
            for &(step, count) in &steps {
                match step {
                    0 => {
                        let piece = pieces.next().unwrap_or_default();
                        pushed += piece.len();
                        input.push(piece);
                    }
                    1 => {
                        if let Some(frame) = input.next(&mut decoder).expect("short lines") {
                            out.extend_from_slice(&frame);
                            out.push(b'\n');
                        }
                    }
                    2 => {
                        let seen = input.peek().to_vec();
                        assert_eq!(seen, &bytes[out.len()..pushed]);
                        let count = count.min(seen.len());
                        input.consume(count);
                        out.extend_from_slice(&seen[..count]);
                        decoder = Lines::with_ending(Ending::Lf, 100);
                    }
                    3 => {
                        let taken = input.take(count);
                        let left = pushed - out.len();
                        assert_eq!(taken.is_none(), count == 0 || left == 0);
                        let taken = taken.unwrap_or_default();
                        assert!(taken.len() <= count && !(taken.is_empty() && count.min(left) > 0));
                        out.extend_from_slice(&taken);
                        decoder = Lines::with_ending(Ending::Lf, 100);
                    }
                    _ => {
                        input.rescan();
                        decoder = Lines::with_ending(Ending::Lf, 100);
                    }
                }
                assert_eq!(input.len(), pushed - out.len());
            }
            out.extend(input.take_rest().into_vec());
            assert_eq!(out, &bytes[..pushed]);
            assert!(input.is_empty() && input.held_bytes() == 0);
        }
    }
}

/// Encodes each frame, and decodes it. A refused frame would be decoded to something else.
fn round_trip<D>(
    new: impl Fn() -> D,
    encode: impl Fn(&[u8], &mut Vec<u8>) -> Result<(), Error>,
    frames: &[Vec<u8>],
    naive: impl Fn(&[u8]) -> Vec<u8>,
) where
    D: Decoder<Error = Error>,
{
    let mut bytes = Vec::new();
    let mut encoded = Vec::new();
    for frame in frames {
        let before = bytes.len();
        if encode(frame, &mut bytes).is_ok() {
            assert_eq!(&bytes[before..], naive(frame));
            encoded.push(frame.clone());
        } else {
            assert_eq!(bytes.len(), before);
            let (heard, _) = hear(&mut new(), vec![naive(frame).into()], When::Last, false);
            assert_ne!(heard, Heard { frames: vec![frame.clone()], end: Ok(0) });
        }
    }
    let (heard, _) = hear(&mut new(), vec![bytes.into()], When::Last, false);
    assert_eq!(heard, Heard { frames: encoded, end: Ok(0) });
}

/// Every cut of one frame into two pieces, and every cut into three.
#[test]
fn every_cut() {
    fn at_every_cut<D>(new: impl Fn() -> D, bytes: &[u8], frames: &[&[u8]])
    where
        D: Decoder<Error: Debug + PartialEq>,
    {
        let frames = frames.iter().map(|frame| frame.to_vec()).collect();
        let expected = Heard { frames, end: Ok(0) };
        for first in 0..=bytes.len() {
            for second in first..=bytes.len() {
                check(&new, bytes, &[first, second], &expected);
            }
        }
    }
    at_every_cut(|| Lines::new(5), b"hello\r\n\nab\r\n", &[b"hello", b"", b"ab"]);
    at_every_cut(|| Lines::with_ending(Ending::CrLf, 5), b"a\rb\r\r\n\r\n", &[b"a\rb\r", b""]);
    at_every_cut(|| Delimited::new(b"\r\n\r\n", 8), b"a: b\r\n\r\r\n\r\n", &[b"a: b\r\n\r"]);
    let heads = || Delimited::new(b"\r\n\r\n", 8).keep_delimiter();
    at_every_cut(heads, b"a: b\r\n\r\r\n\r\n\r\n\r\n", &[b"a: b\r\n\r\r\n\r\n", b"\r\n\r\n"]);
    at_every_cut(|| Prefixed::new(Prefix::U64Le, 8), b"\x03\0\0\0\0\0\0\0abc", &[b"abc"]);
    at_every_cut(|| Prefixed::new(Prefix::Varint, 8), b"\x83\x80\0abc\0", &[b"abc", b""]);
}

/// A body between two heads, at every cut into three pieces: the parts are its bytes, as soon as
/// they have come, and those of leases are not copied.
#[test]
fn bodies_are_taken_at_every_cut() {
    let bytes = b"5\n\nab\n\nc0\n\n";
    for (first, second) in (0..=bytes.len()).flat_map(|at| (at..=bytes.len()).map(move |b| (at, b)))
    {
        for (how, most) in WAYS.into_iter().flat_map(|how| [1, 2, 5, usize::MAX].map(|m| (how, m)))
        {
            let (mut input, mut heads) = (Input::new(), Delimited::new(b"\n\n", 9));
            let (mut all, mut left, mut pushed) = (Vec::new(), 0, 0);
            for piece in pieces(bytes, &[first, second], how) {
                pushed += piece.len();
                input.push(piece);
                loop {
                    let copied = input.copied_bytes();
                    if let Some(part) = input.take(left.min(most)) {
                        let is_lease = matches!(how, How::Parts | How::Leases);
                        assert!(!is_lease || part.is_lease(), "{how:?}");
                        assert!(!is_lease || input.copied_bytes() == copied, "{how:?}");
                        left -= part.len();
                        all.extend_from_slice(&part);
                    } else if left > 0 {
                        assert!(input.is_empty(), "what has come of a body is taken");
                        break;
                    } else if let Some(head) = input.next(&mut heads).expect("short heads") {
                        left = usize::from(head[0] - b'0');
                        all.extend_from_slice(&head);
                        all.extend_from_slice(b"\n\n");
                    } else {
                        break;
                    }
                }
                assert_eq!(input.len(), pushed - all.len());
            }
            assert_eq!((&all[..], input.held_bytes()), (&bytes[..], 0), "{how:?}, {most} at most");
        }
    }
}

/// A frame that arrives whole is a part of its lease; one that is cut is copied once.
#[test]
fn only_what_is_cut_is_copied() {
    let mut lines = Lines::new(100);
    let mut input = Input::new();
    let whole = lease(b"one\ntwo\nth");
    let start = whole.as_ref().as_ptr();
    input.push(whole);
    for (offset, line) in [(0, &b"one"[..]), (4, b"two")] {
        let frame = input.next(&mut lines).unwrap().unwrap().into_buf();
        assert_eq!((&*frame, frame.as_ptr()), (line, start.wrapping_add(offset)));
        assert!(frame.is_lease());
    }
    assert_eq!(input.copied_bytes(), 0);
    assert!(input.next(&mut lines).unwrap().is_none());
    assert_eq!(input.copied_bytes(), 2, "a small tail leaves its swap buffer at once");
    assert!(input.held_bytes() <= MOST_HELD);
    input.push(lease(b"ree\nfour\n"));
    assert_eq!(&*input.next(&mut lines).unwrap().unwrap().into_buf(), b"three");
    assert_eq!(input.copied_bytes(), 6, "its other bytes follow, with the ending");
    assert_eq!(&*input.next(&mut lines).unwrap().unwrap().into_buf(), b"four");
    assert!(input.next(&mut lines).unwrap().is_none());
    assert_eq!((input.copied_bytes(), input.held_bytes()), (6, 0));
}

/// Most bytes that a short tail takes.
const MOST_HELD: usize = 4 << 10;

/// Leases that touch are joined: a frame in both is a part of one lease.
#[test]
fn neighbours_are_joined() {
    for when in [When::Each, When::Last] {
        let mut bytes = vec![b'x'; 30_000];
        bytes.push(b'\n');
        let start = {
            let whole = lease(&bytes);
            whole.as_ptr()
        };
        let parts = pieces(&bytes, &[17_000, 20_000, 30_000], How::Parts);
        let mut input = Input::new();
        let mut lines = Lines::new(30_000);
        let mut found = None;
        for part in parts {
            assert!(part.as_ptr() >= start);
            input.push(part);
            if matches!(when, When::Each)
                && let Some(frame) = input.next(&mut lines).unwrap()
            {
                found = Some(frame.into_buf());
            }
        }
        let found = found.unwrap_or_else(|| input.next(&mut lines).unwrap().unwrap().into_buf());
        assert!(found.is_lease() && found.len() == 30_000);
        assert_eq!(input.copied_bytes(), 0, "{when:?}");
    }
}

/// A length that a peer announces takes no memory before the bytes come.
#[test]
fn an_announced_length_takes_no_memory() {
    let mut input = Input::new();
    let mut frames = Prefixed::new(Prefix::U32Be, 1 << 30);
    input.push(b"\x3F\xFF\xFF\xFFab");
    assert!(input.next(&mut frames).unwrap().is_none());
    assert!(input.held_bytes() < 5000, "{}", input.held_bytes());
    for _ in 0..10 {
        input.push(vec![0; 1000]);
        assert!(input.next(&mut frames).unwrap().is_none());
    }
    assert!(input.held_bytes() < 40_000, "{}", input.held_bytes());
}

/// A frame that comes byte by byte is scanned once, and its memory grows by doubling.
#[test]
fn byte_by_byte_is_not_quadratic() {
    struct Counting(Delimited<4>, u64);
    impl Decoder for Counting {
        type Error = Error;
        fn scan(&mut self, bytes: &[u8]) -> Result<Scan, Error> {
            self.1 += bytes.len() as u64;
            self.0.scan(bytes)
        }
    }
    let mut bytes = vec![b'\r'; 20_000];
    bytes.extend_from_slice(b"\r\n\r\n");
    let mut decoder = Counting(Delimited::new(b"\r\n\r\n", 1 << 20), 0);
    let mut input = Input::new();
    for byte in &bytes[..bytes.len() - 1] {
        input.push(vec![*byte]);
        assert!(input.next(&mut decoder).unwrap().is_none());
    }
    input.push("\n");
    assert_eq!(input.next(&mut decoder).unwrap().unwrap().len(), 20_000);
    assert_eq!((decoder.1, input.copied_bytes()), (20_004, 20_004));
}

/// The same error again and again, also when more bytes come; nothing is lost.
#[test]
fn an_error_stays() {
    let mut input = Input::new();
    let mut lines = Lines::new(3);
    input.push("a\nlong line\n");
    assert_eq!(&*input.next(&mut lines).unwrap().unwrap(), b"a");
    for _ in 0..3 {
        assert_eq!(input.next(&mut lines).unwrap_err(), Error::TooLong { limit: 3 });
        input.push("b\n");
    }
    assert_eq!(input.peek(), b"long line\nb\nb\nb\n");
    assert_eq!(Error::TooLong { limit: 3 }.to_string(), "a frame is longer than 3 bytes");
}

#[test]
#[should_panic(expected = "3 of 2 bytes are consumed")]
fn consuming_too_much_panics() {
    let mut input = Input::new();
    input.push("ab");
    input.consume(3);
}

/// A limit is at most the largest value of its prefix.
#[test]
fn limits_of_prefixes() {
    let limit = |prefix| Prefixed::new(prefix, usize::MAX).limit();
    assert_eq!(limit(Prefix::U8), 0xFF);
    assert_eq!(limit(Prefix::U16Le), 0xFFFF);
    assert_eq!(limit(Prefix::U24Be), 0xFF_FFFF);
    assert_eq!(limit(Prefix::Varint), usize::MAX);
    let error = Error::TooLong { limit: 255 };
    assert_eq!(Prefixed::new(Prefix::U8, 1000).head(256), Err(error));
    let head = |prefix, len| Prefixed::new(prefix, 1 << 20).head(len).unwrap().to_vec();
    assert_eq!(head(Prefix::U24Le, 0x0102), [2, 1, 0]);
    assert_eq!(head(Prefix::U64Be, 0x0102), [0, 0, 0, 0, 0, 0, 1, 2]);
    assert_eq!(head(Prefix::Varint, 300), [0xAC, 2]);
}

/// The memory of a frame that came in two pieces stayed, with nothing left to take.
#[test]
fn a_take_of_nothing_leaves_no_memory() {
    let mut input = Input::new();
    let mut codec = Prefixed::new(Prefix::U8, 100);
    input.push(vec![3, 7]);
    assert!(input.next(&mut codec).unwrap().is_none());
    input.push(vec![8, 9]);
    assert_eq!(&**input.next(&mut codec).unwrap().as_ref().unwrap(), [7, 8, 9]);
    assert!(input.held_bytes() > 0 && input.take(1).is_none());
    assert_eq!(input.held_bytes(), 0);
}
