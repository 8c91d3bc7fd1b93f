//! Compressed messages, against a peer that has zlib in C, and keeps its context.
#![allow(missing_docs)] // a test binary has no users

use fastrand::Rng;
use flate2::FlushCompress;
use windlass_websocket::deflate::{
    Context, DeflaterSettings, Deflaters, History, InflateCaps, InflateError, InflaterSettings,
    Inflaters, StreamingDeflater, StreamingInflater, Window,
};

use peer::{Receiver, Sender, TAIL};

#[path = "deflate/peer.rs"]
mod peer;

/// No limit.
const CAPS: InflateCaps = InflateCaps { bytes: u64::MAX, ratio: u32::MAX };

fn window(bits: u8) -> Window {
    Window::new(bits).expect("a window")
}

fn inflaters() -> Inflaters {
    Inflaters::new(InflaterSettings::default())
}

/// Texts that have much in common with each other.
fn text(random: &mut Rng, most: usize) -> Vec<u8> {
    let len = random.usize(..=most);
    let mut text = Vec::with_capacity(len);
    if random.u8(..10) == 0 {
        text.extend((0..len).map(|_| random.u8(..)));
    }
    while text.len() < len {
        let (name, number) = (random.u8(b'a'..b'f') as char, random.u32(..500));
        text.extend_from_slice(format!("{{\"{name}\":\"{number}\",\"value\":").as_bytes());
        text.extend(std::iter::repeat_n(b'0' + random.u8(..10), random.usize(..9)));
    }
    text.truncate(len);
    text
}

fn context(window: Window, history: &mut Option<History>) -> Context<'_> {
    match history {
        Some(history) => Context::Kept(history),
        None => Context::Fresh(window),
    }
}

/// Inflates a message that comes in these parts.
fn inflate_parts<'a>(
    inflater: &mut StreamingInflater,
    parts: impl IntoIterator<Item = &'a [u8]>,
) -> Result<Vec<u8>, InflateError> {
    let mut all = Vec::new();
    let mut parts = parts.into_iter().peekable();
    while let Some(mut part) = parts.next() {
        let is_last = parts.peek().is_none();
        loop {
            let before = all.len();
            let step = inflater.inflate(part, is_last, &mut all)?;
            assert!(all.len() - before <= 64 << 10, "a bounded part");
            part = &part[step.consumed..];
            if !step.has_more {
                assert!(part.is_empty());
                break;
            }
        }
    }
    Ok(all)
}

/// A connection: our half of it, and the peer's.
struct Both {
    windows: [Window; 2],
    outgoing: Option<History>,
    incoming: Option<History>,
    sender: Sender,
    receiver: Receiver,
}

impl Both {
    fn new(random: &mut Rng, windows: [u8; 2], takeovers: [bool; 2]) -> Both {
        let [ours, peers] = windows.map(window);
        Both {
            windows: [ours, peers],
            outgoing: takeovers[0].then(|| History::new(ours)),
            incoming: takeovers[1].then(|| History::new(peers)),
            // What refers to nothing before can also be read by one that keeps its context.
            receiver: Receiver::new(windows[0], takeovers[0] || random.bool()),
            sender: Sender::new(random.u32(1..=9), windows[1], takeovers[1]),
        }
    }
}

/// What a loop has.
struct Loop {
    random: Rng,
    deflaters: Deflaters,
    inflaters: Inflaters,
    out: Vec<u8>,
}

impl Loop {
    fn new(seed: u64) -> Loop {
        let mut random = Rng::with_seed(seed);
        let settings = DeflaterSettings {
            level: random.u8(1..=9),
            memory: random.u8(1..=9),
            live: random.u16(..4),
            streaming: 1,
        };
        Loop {
            random,
            deflaters: Deflaters::new(settings),
            inflaters: inflaters(),
            out: Vec::new(),
        }
    }

    /// A message of ours, whole or in parts.
    fn send(&mut self, both: &mut Both, plain: &[u8]) {
        let (random, out) = (&mut self.random, &mut self.out);
        out.clear();
        let context = context(both.windows[0], &mut both.outgoing);
        if random.u8(..4) != 0 {
            self.deflaters.compress(context, plain, out);
        } else {
            let mut deflater = self.deflaters.take(context).expect("none is out");
            let mut rest = plain;
            while random.u8(..4) != 0 {
                let (part, behind) = rest.split_at(random.usize(..=rest.len()));
                deflater.write(part, out);
                rest = behind;
                if random.bool() {
                    deflater.flush(out);
                }
            }
            deflater.end(rest, out);
            self.deflaters.put_back(deflater, both.outgoing.as_mut());
        }
        assert_eq!(both.receiver.receive(out), plain);
    }

    /// A message of the peer, whole or in parts.
    fn receive(&mut self, both: &mut Both, plain: &[u8]) {
        let payload = both.sender.send(plain);
        let context = context(both.windows[1], &mut both.incoming);
        let random = &mut self.random;
        self.out.clear();
        if random.u8(..4) != 0 {
            self.inflaters.inflate(context, &payload, CAPS, &mut self.out).expect("it is valid");
        } else {
            let mut inflater = self.inflaters.take(context, CAPS).expect("none is out");
            let parts = payload.chunks(random.usize(1..=payload.len()));
            self.out = inflate_parts(&mut inflater, parts).expect("it is valid");
            self.inflaters.put_back(inflater, both.incoming.as_mut());
        }
        assert_eq!(self.out, plain);
    }
}

/// Connections with all windows and both kinds of context share the states of a loop. Messages that
/// are not compressed change no context; those that go to all change all.
#[test]
fn both_sides_read_the_same_text() {
    for seed in 0..30 {
        let mut all = Loop::new(seed);
        let mut connections: Vec<Both> = (0..1 + seed % 5)
            .map(|_| {
                let windows = [all.random.u8(9..=15), all.random.u8(9..=15)];
                let takeovers = [all.random.bool(), all.random.bool()];
                Both::new(&mut all.random, windows, takeovers)
            })
            .collect();
        for _ in 0..60 {
            let at = all.random.usize(..connections.len());
            let both = &mut connections[at];
            let most = [0, 30, 600, 3000, 40_000][all.random.usize(..5)];
            let plain = text(&mut all.random, most);
            match all.random.u8(..10) {
                0..=4 => all.send(both, &plain),
                5..=7 => all.receive(both, &plain),
                8 => {} // it is not compressed, either way
                _ => {
                    // To all of them: without a context, with a window that each one has.
                    let mut payload = Vec::new();
                    let window = connections.iter().map(|both| both.windows[0]).min();
                    let fresh = Context::Fresh(window.expect("a connection"));
                    all.deflaters.compress(fresh, &plain, &mut payload);
                    for both in &mut connections {
                        if let Some(history) = &mut both.outgoing {
                            history.append(&plain);
                        }
                        assert_eq!(both.receiver.receive(&payload), plain);
                    }
                }
            }
        }
    }
}

/// Each window and each kind of context, by itself.
#[test]
fn every_window_both_ways() {
    for ours in 9..=15 {
        for peers in [ours, 24 - ours] {
            for takeovers in [[false, false], [false, true], [true, false], [true, true]] {
                let seed = u64::from(ours) << 8 | u64::from(peers);
                let mut all = Loop::new(seed);
                let mut both = Both::new(&mut all.random, [ours, peers], takeovers);
                for _ in 0..6 {
                    let plain = text(&mut all.random, 2 << ours);
                    all.send(&mut both, &plain);
                    let plain = text(&mut all.random, 2 << peers);
                    all.receive(&mut both, &plain);
                }
            }
        }
    }
}

/// The context of a live compressor and one that is primed say the same to the peer, and a live one
/// is no other connection's.
#[test]
fn an_evicted_context_is_primed_again() {
    for bits in 9..=15 {
        let window = window(bits);
        for live in [0, 1, 2, 8] {
            let settings = DeflaterSettings { live, ..DeflaterSettings::default() };
            // A history that goes from loop to loop, too.
            let mut loops = [Deflaters::new(settings), Deflaters::new(settings)];
            let mut random = Rng::with_seed(u64::from(bits));
            let mut peers: Vec<(History, Receiver)> =
                (0..4).map(|_| (History::new(window), Receiver::new(bits, true))).collect();
            for turn in 0..120 {
                let (history, receiver) = &mut peers[random.usize(..4).min(turn / 9)];
                let plain = text(&mut random, 900);
                let mut out = Vec::new();
                let deflaters = &mut loops[random.usize(..2)];
                deflaters.compress(Context::Kept(history), &plain, &mut out);
                assert_eq!(receiver.receive(&out), plain, "{bits} {live} {turn}");
                assert!(history.len() <= window.bytes());
            }
        }
    }
}

/// With a context the second message of a kind is a fraction of the first one: the context is used,
/// and not only harmless.
#[test]
fn a_context_makes_messages_smaller() {
    for bits in 9..=15 {
        for live in [0, 1] {
            let settings = DeflaterSettings { live, ..DeflaterSettings::default() };
            let mut deflaters = Deflaters::new(settings);
            let mut history = History::new(window(bits));
            let plain: Vec<u8> = (0..200u32).map(|at| (at * at % 251) as u8).collect();
            let mut sizes = [0; 2];
            for size in &mut sizes {
                let mut out = Vec::new();
                deflaters.compress(Context::Kept(&mut history), &plain, &mut out);
                *size = out.len();
            }
            assert!(sizes[1] < 12 && sizes[0] > 100, "{bits} {live} {sizes:?}");
        }
    }
}

/// A compressor that is primed refers as far back as one that is live: zlib stops in front of the
/// end of its window.
#[test]
fn a_primed_compressor_reaches_as_far_as_a_live_one() {
    for bits in 9..=15 {
        for (distance, is_reached) in
            [(window(bits).bytes() - 262, true), (511 << (bits - 9), false)]
        {
            let mut random = Rng::with_seed(u64::from(bits));
            let mut bytes = |len| (0..len).map(|_| random.u8(..)).collect::<Vec<_>>();
            let (marker, filler) = (bytes(40), bytes(distance - 40));
            let mut sizes = Vec::new();
            for live in [0, 1] {
                let settings = DeflaterSettings { level: 6, live, ..DeflaterSettings::default() };
                let mut deflaters = Deflaters::new(settings);
                let mut history = History::new(window(bits));
                let first = [&b"0"[..], &marker, &filler].concat();
                for plain in [&first, &marker] {
                    let mut out = Vec::new();
                    deflaters.compress(Context::Kept(&mut history), plain, &mut out);
                    sizes.push(out.len());
                }
            }
            assert_eq!(sizes[1], sizes[3], "{bits} {distance}");
            assert_eq!(sizes[1] < 9, is_reached, "{bits} {distance} {sizes:?}");
        }
    }
}

/// What is in a history of one byte less than the window, of just the window, and one byte more.
#[test]
fn a_history_reaches_as_far_as_its_window() {
    for bits in 9..=15 {
        let size = window(bits).bytes();
        for distance in [size - 1, size, size + 1] {
            // The peer's compressor has a larger window: what it refers to is 2^15 at most.
            if distance > (1 << 15) - 262 {
                continue;
            }
            let mut random = Rng::with_seed(distance as u64);
            let marker: Vec<u8> = (0..40).map(|_| random.u8(..)).collect();
            let filler: Vec<u8> = (40..distance).map(|_| random.u8(..)).collect();
            let mut sender = Sender::new(9, 15, true);
            let mut history = History::new(window(bits));
            let mut out = Vec::new();
            // zlib refers to no byte 0.
            let first = sender.send(&[b"0", &marker[..], &filler].concat());
            let second = sender.send(&marker);
            assert!(second.len() < 12, "it refers back");
            let mut inflaters = inflaters();
            let kept = Context::Kept(&mut history);
            assert_eq!(inflaters.inflate(kept, &first, CAPS, &mut out), Ok(()));
            out.clear();
            let result = inflaters.inflate(Context::Kept(&mut history), &second, CAPS, &mut out);
            if distance <= size {
                assert_eq!((result, &out), (Ok(()), &marker), "{bits} {distance}");
            } else {
                assert_eq!(result, Err(InflateError::Invalid), "{bits} {distance}");
            }
        }
        for len in [size - 1, size, size + 1] {
            let mut random = Rng::with_seed(len as u64);
            let mut all = Loop::new(len as u64);
            let mut both = Both::new(&mut random, [bits, bits], [true, true]);
            for len in [len, 1, 300, len, len] {
                let mut plain = text(&mut random, 0);
                while plain.len() < len {
                    plain.extend(text(&mut random, 500));
                }
                plain.truncate(len);
                all.send(&mut both, &plain);
                all.receive(&mut both, &plain);
            }
        }
    }
}

#[test]
fn the_examples_of_the_rfc() {
    let mut inflaters = inflaters();
    let mut read = |payloads: &[&[u8]]| {
        let mut history = History::new(Window::MAX);
        let mut all = Vec::new();
        for payload in payloads {
            let kept = Context::Kept(&mut history);
            inflaters.inflate(kept, payload, CAPS, &mut all).expect("an example");
        }
        all
    };
    // RFC 7692, sections 7.2.3.1 to 7.2.3.6.
    let hello = b"\xf2\x48\xcd\xc9\xc9\x07\x00";
    assert_eq!(read(&[hello, b"\xf2\x00\x11\x00\x00"]), b"HelloHello");
    assert_eq!(read(&[b"\x00\x05\x00\xfa\xff\x48\x65\x6c\x6c\x6f\x00"]), b"Hello");
    assert_eq!(read(&[b"\xf3\x48\xcd\xc9\xc9\x07\x00\x00"]), b"Hello");
    let two = b"\xf2\x48\x05\x00\x00\x00\xff\xff\xca\xc9\xc9\x07\x00";
    assert_eq!(read(&[two]), b"Hello");
    assert_eq!(read(&[hello, b"\x00", b"\xf2\x00\x11\x00\x00"]), b"HelloHello");
    // What some peers send for an empty message, and for one that ends with its last block.
    assert_eq!(read(&[hello, b"", b"\xf2\x00\x11\x00\x00"]), b"HelloHello");
    assert_eq!(read(&[b"\xf3\x48\xcd\xc9\xc9\x07\x00"]), b"Hello");
}

/// A stream may end within a message and begin again: what comes later refers to what was before.
#[test]
fn a_last_block_is_not_the_end_of_the_context() {
    for bits in 9..=15 {
        let mut random = Rng::with_seed(u64::from(bits));
        let mut deflaters = Deflaters::new(DeflaterSettings::default());
        let mut inflaters = inflaters();
        // What the peer's context is, kept by the same means as ours.
        let mut theirs = History::new(window(bits));
        let (mut whole, mut streamed) = (History::new(window(bits)), History::new(window(bits)));
        for _ in 0..30 {
            let (mut payload, mut plain) = (Vec::new(), Vec::new());
            for _ in 0..random.usize(1..5) {
                let part = text(&mut random, 700);
                let start = payload.len();
                deflaters.compress(Context::Kept(&mut theirs), &part, &mut payload);
                plain.extend_from_slice(&part);
                // It ends at a byte, within a block that is empty. Its last bit says that no other
                // one follows; and the next stream begins.
                payload.extend_from_slice(&TAIL);
                payload.extend_from_slice(
                    [[1, 0, 0, 0xff, 0xff].as_slice(), &[3, 0]][random.usize(..2)],
                );
                assert!(payload.len() > start);
            }
            if random.bool() {
                payload.push(0);
            }
            let mut out = Vec::new();
            let kept = Context::Kept(&mut whole);
            assert_eq!(inflaters.inflate(kept, &payload, CAPS, &mut out), Ok(()));
            assert_eq!(out, plain);
            let mut inflater =
                inflaters.take(Context::Kept(&mut streamed), CAPS).expect("none is out");
            let parts = payload.chunks(random.usize(1..=payload.len()));
            assert_eq!(inflate_parts(&mut inflater, parts).as_ref(), Ok(&plain));
            inflaters.put_back(inflater, Some(&mut streamed));
        }
    }
}

/// zlib in C ends each of its streams, and forgets what was before.
#[test]
fn streams_of_another_zlib_follow_each_other() {
    let mut sender = Sender::new(6, 12, true);
    let mut random = Rng::with_seed(5);
    let (mut payload, mut plain) = (Vec::new(), Vec::new());
    for _ in 0..7 {
        let part = text(&mut random, 9000);
        payload.extend(sender.write(&part, FlushCompress::Finish));
        sender.reset();
        plain.extend(part);
    }
    payload.push(0);
    let (mut out, fresh) = (Vec::new(), || Context::Fresh(window(12)));
    assert_eq!(inflaters().inflate(fresh(), &payload, CAPS, &mut out), Ok(()));
    assert!(out == plain);
}

#[test]
fn last_blocks_without_number_are_refused() {
    let mut inflaters = inflaters();
    let mut read = |payload: &[u8]| {
        let mut out = Vec::new();
        inflaters.inflate(Context::Fresh(Window::MAX), payload, CAPS, &mut out)
    };
    assert_eq!(read(&[3, 0].repeat(9)), Ok(()));
    assert_eq!(read(&[3, 0].repeat(10)), Err(InflateError::Invalid));
    assert_eq!(read(&[3, 0].repeat(1 << 20)), Err(InflateError::Invalid));
    let stored = [&[1, 0xfa, 0, 5, 0xff][..], &[b'a'; 250]].concat();
    assert_eq!(read(&stored.repeat(1000)), Ok(()));
}

#[test]
fn a_message_is_the_same_at_every_cut() {
    let mut random = Rng::with_seed(3);
    for bits in [9, 12, 15] {
        let mut deflaters = Deflaters::new(DeflaterSettings::default());
        let mut inflaters = inflaters();
        let mut history = History::new(window(bits));
        let (first, second) = (text(&mut random, 2000), text(&mut random, 2000));
        let mut out = Vec::new();
        deflaters.compress(Context::Kept(&mut history), &first, &mut out);
        let mut payload = Vec::new();
        deflaters.compress(Context::Kept(&mut history), &second, &mut payload);
        payload.extend([0, 0, 0xff, 0xff, 3, 0, 0]); // a last block, and one behind it
        let mut kept = History::new(window(bits));
        kept.append(&first);
        for cut in 0..=payload.len() {
            let (front, back) = payload.split_at(cut);
            let mut inflater = inflaters.take(Context::Kept(&mut kept), CAPS).expect("one is free");
            assert_eq!(inflate_parts(&mut inflater, [front, back]).as_ref(), Ok(&second), "{cut}");
            // It has not ended for a connection that ends: the history stays as it is.
            inflaters.put_back(inflater, None);
        }
        let mut inflater = inflaters.take(Context::Kept(&mut kept), CAPS).expect("one is free");
        assert_eq!(inflate_parts(&mut inflater, payload.chunks(1)).as_ref(), Ok(&second));
    }
}

/// A payload that is cut within a block, or damaged, is no message. What is cut between blocks is
/// one: nothing tells.
#[test]
fn cut_messages_and_trailing_bytes_are_refused() {
    let mut inflaters = inflaters();
    let mut random = Rng::with_seed(4);
    let plain = text(&mut random, 4000);
    let payload = Sender::new(6, 15, false).send(&plain);
    for end in 1..payload.len() {
        let (mut out, fresh) = (b"before".to_vec(), Context::Fresh(Window::MAX));
        let result = inflaters.inflate(fresh, &payload[..end], CAPS, &mut out);
        assert_eq!((result, &out[..]), (Err(InflateError::Invalid), &b"before"[..]), "{end}");
        let mut inflater = inflaters.take(Context::Fresh(Window::MAX), CAPS).expect("one is free");
        let parts = payload[..end].chunks(7);
        assert_eq!(inflate_parts(&mut inflater, parts), Err(InflateError::Invalid), "{end}");
    }
    // What stands behind the payload would be the rest of its text.
    let (mut out, cut) = (Vec::new(), b"\x00\x05\x00\xfa\xffH");
    let result = inflaters.inflate(Context::Fresh(Window::MAX), cut, CAPS, &mut out);
    assert_eq!((result, &out[..]), (Err(InflateError::Invalid), &b""[..]));
    for trailing in [&TAIL[..], b"\0\0", b"\xff", b"\x07", b"{}", b"\x01"] {
        let payload = [&payload[..], trailing].concat();
        let mut out = Vec::new();
        let result = inflaters.inflate(Context::Fresh(Window::MAX), &payload, CAPS, &mut out);
        assert_eq!(result, Err(InflateError::Invalid), "{trailing:?}");
    }
}

#[test]
fn limits_are_exact() {
    let mut inflaters = inflaters();
    let zeros = vec![0; 1 << 20];
    let payload = Sender::new(9, 15, false).send(&zeros);
    let ratio = (zeros.len() / payload.len()) as u32;
    for (bytes, most, is_ok) in [
        (1 << 20, u32::MAX, true),
        ((1 << 20) - 1, u32::MAX, false),
        (1 << 20, ratio + 1, true),
        (1 << 20, ratio - 1, false),
        (0, 1, false),
    ] {
        let caps = InflateCaps { bytes, ratio: most };
        let expected = if is_ok { Ok(()) } else { Err(InflateError::TooLong) };
        let mut out = Vec::new();
        let result = inflaters.inflate(Context::Fresh(Window::MAX), &payload, caps, &mut out);
        assert_eq!((result, out.len()), (expected, if is_ok { 1 << 20 } else { 0 }));
        // In parts the ratio is that of the payload so far: the end of this one makes little.
        let most = if is_ok { most.max(1032) } else { most };
        let caps = InflateCaps { bytes, ratio: most };
        let mut inflater = inflaters.take(Context::Fresh(Window::MAX), caps).expect("one is free");
        assert_eq!(inflate_parts(&mut inflater, payload.chunks(9)).map(|_| ()), expected);
    }
    // The ratio begins behind 64 KiB.
    let small = Sender::new(9, 15, false).send(&zeros[..64 << 10]);
    let caps = InflateCaps { bytes: 1 << 20, ratio: 1 };
    let mut out = Vec::new();
    let result = inflaters.inflate(Context::Fresh(Window::MAX), &small, caps, &mut out);
    assert_eq!((result, out.len()), (Ok(()), 64 << 10));
    let empty = InflateCaps { bytes: 0, ratio: 1 };
    assert_eq!(inflaters.inflate(Context::Fresh(Window::MAX), &[0], empty, &mut out), Ok(()));
}

#[test]
fn leases_are_bounded_and_come_back() {
    let mut inflaters = Inflaters::new(InflaterSettings { streaming: 2 });
    let settings = DeflaterSettings { streaming: 2, ..DeflaterSettings::default() };
    let mut deflaters = Deflaters::new(settings);
    let fresh = |bits| Context::Fresh(window(bits));
    for _ in 0..3 {
        let one = inflaters.take(fresh(15), CAPS).expect("one is free");
        let two = inflaters.take(fresh(9), CAPS).expect("one is free");
        assert!(inflaters.take(fresh(9), CAPS).is_none());
        drop(one);
        let one = inflaters.take(fresh(9), CAPS).expect("one is free");
        inflaters.put_back(two, None);
        inflaters.put_back(one, None);

        let one = deflaters.take(fresh(15)).expect("one is free");
        let two = deflaters.take(fresh(9)).expect("one is free");
        assert!(deflaters.take(fresh(9)).is_none());
        drop(two);
        let two = deflaters.take(fresh(9)).expect("one is free");
        deflaters.put_back(one, None);
        deflaters.put_back(two, None);
    }
    let none = Inflaters::new(InflaterSettings { streaming: 0 }).take(fresh(9), CAPS);
    assert!(none.is_none());
}

/// The settings have no value that panics.
#[test]
fn every_setting_works() {
    for level in [0, 1, 9, 200] {
        for memory in [0, 1, 9, 200] {
            for bits in 9..=15 {
                let settings = DeflaterSettings { level, memory, ..DeflaterSettings::default() };
                let mut out = Vec::new();
                Deflaters::new(settings).compress(Context::Fresh(window(bits)), b"Hello", &mut out);
                assert_eq!(Receiver::new(bits, false).receive(&out), b"Hello");
            }
        }
    }
    for bits in (0..9).chain(16..=255) {
        assert_eq!(Window::new(bits), None);
    }
}

/// Text of which zlib makes the most, at every setting.
#[test]
fn a_part_takes_no_more_room_than_it_may() {
    let mut random = Rng::with_seed(11);
    for (level, memory, bits) in [1, 2, 6, 9].into_iter().flat_map(|level| {
        [1, 5, 8, 9]
            .into_iter()
            .flat_map(move |memory| [9, 12, 15].map(|bits| (level, memory, bits)))
    }) {
        let settings = DeflaterSettings { level, memory, ..DeflaterSettings::default() };
        let mut deflaters = Deflaters::new(settings);
        let mut deflater = deflaters.take(Context::Fresh(window(bits))).unwrap();
        let mut out = Vec::new();
        for len in [0, 1, 2, 30, 300, 5000, 16_383, 16_384, 70_000] {
            // Noise, and bytes whose fixed code has nine bits.
            for low in [0, 144] {
                let plain: Vec<u8> = (0..len).map(|_| random.u8(low..)).collect();
                out.clear();
                deflater.write(&plain, &mut out);
                deflater.flush(&mut out);
                let most = StreamingDeflater::most(len);
                assert!(out.len() <= most, "{len} became {} at {level} {memory} {bits}", out.len());
            }
        }
        out.clear();
        deflater.end(&[200; 70], &mut out);
        assert!(out.len() <= StreamingDeflater::most(70));
        deflaters.put_back(deflater, None);
    }
}
