//! Compressed messages: any bytes are refused, or are the same text whole, in parts, and for zlib
//! in C; within the caps. What is compressed is read again, whatever came before.
#![no_main]

use arbitrary::{Arbitrary, Result, Unstructured};
use flate2::{Decompress, FlushDecompress, Status};
use libfuzzer_sys::fuzz_target;
use windlass_websocket::deflate::{
    Context, DeflaterSettings, Deflaters, History, InflateCaps, InflateError, InflaterSettings,
    Inflaters, Window,
};

#[derive(Arbitrary, Debug)]
struct Program<'a> {
    settings: (u8, u8, u8),
    connections: [(u8, bool); 3],
    steps: Vec<Step<'a>>,
}

#[derive(Arbitrary, Debug)]
enum Step<'a> {
    /// A message that goes through a compressor, whole or in parts.
    Send { at: u8, plain: Plain<'a>, part: Option<u16> },
    /// Bytes of a peer, that are inflated whole and in parts.
    Read { at: u8, payload: &'a [u8], part: u8, most: u32 },
    /// A payload of ours, with a byte that is changed.
    Damage { plain: Plain<'a>, byte: u16, by: u8 },
}

/// Text that repeats itself.
#[derive(Debug)]
struct Plain<'a>(&'a [u8], usize);

impl<'a> Arbitrary<'a> for Plain<'a> {
    fn arbitrary(bytes: &mut Unstructured<'a>) -> Result<Plain<'a>> {
        Ok(Plain(bytes.arbitrary()?, bytes.int_in_range(1..=20)?))
    }
}

impl Plain<'_> {
    fn text(&self) -> Vec<u8> {
        let mut text = self.0.repeat(self.1);
        text.truncate(10_000);
        text
    }
}

/// The two histories of a direction, if it has them: that of the sender, and of the receiver.
struct Direction {
    window: Window,
    histories: Option<(History, History)>,
    /// All of its text.
    said: Vec<u8>,
}

impl Direction {
    fn new((bits, has_takeover): (u8, bool)) -> Direction {
        let window = Window::new(9 + bits % 7).expect("9 to 15");
        let both = || (History::new(window), History::new(window));
        Direction { window, histories: has_takeover.then(both), said: Vec::new() }
    }

    fn out(&mut self) -> Context<'_> {
        context(self.window, self.histories.as_mut().map(|(history, _)| history))
    }

    fn into(&mut self) -> Context<'_> {
        context(self.window, self.histories.as_mut().map(|(_, history)| history))
    }
}

fn context(window: Window, history: Option<&mut History>) -> Context<'_> {
    match history {
        Some(history) => Context::Kept(history),
        None => Context::Fresh(window),
    }
}

fn in_parts(
    inflaters: &mut Inflaters,
    context: Context<'_>,
    payload: &[u8],
    part: usize,
    caps: InflateCaps,
) -> std::result::Result<Vec<u8>, InflateError> {
    let mut inflater = inflaters.take(context, caps).expect("none is out");
    let mut all = Vec::new();
    let mut parts = payload.chunks(part).chain([&[][..]]).peekable();
    while let Some(mut part) = parts.next() {
        loop {
            let before = all.len();
            let step = inflater.inflate(part, parts.peek().is_none(), &mut all)?;
            assert!(all.len() - before <= 64 << 10);
            part = &part[step.consumed..];
            if !step.has_more {
                assert!(part.is_empty());
                break;
            }
        }
    }
    inflaters.put_back(inflater, None);
    Ok(all)
}

/// What zlib in C makes of it; `None` where a stream ends in front of the end.
fn zlib(payload: &[u8]) -> Option<Vec<u8>> {
    let payload = [payload, &[0, 0, 0xff, 0xff]].concat();
    let mut decompress = Decompress::new(false);
    let mut text = Vec::new();
    loop {
        text.reserve(4096);
        let at = decompress.total_in() as usize;
        let flush = FlushDecompress::None;
        let status = decompress.decompress_vec(&payload[at..], &mut text, flush).ok()?;
        if status == Status::StreamEnd {
            return None;
        }
        if decompress.total_in() as usize == payload.len() && text.len() < text.capacity() {
            return Some(text);
        }
    }
}

fuzz_target!(|program: Program| {
    let (level, memory, live) = program.settings;
    let settings = DeflaterSettings { level, memory, live: u16::from(live % 4), streaming: 1 };
    let mut deflaters = Deflaters::new(settings);
    let mut inflaters = Inflaters::new(InflaterSettings { streaming: 1 });
    let mut directions = program.connections.map(Direction::new);
    for step in program.steps.iter().take(8) {
        match step {
            Step::Send { at, plain, part } => {
                let direction = &mut directions[usize::from(*at) % 3];
                let plain = plain.text();
                let (mut payload, mut text) = (Vec::new(), Vec::new());
                match part {
                    None => deflaters.compress(direction.out(), &plain, &mut payload),
                    Some(part) => {
                        let mut deflater = deflaters.take(direction.out()).expect("none is out");
                        for part in plain.chunks(usize::from(*part).max(1)) {
                            deflater.write(part, &mut payload);
                            if part[0] & 1 == 0 {
                                deflater.flush(&mut payload);
                            }
                        }
                        deflater.end(&[], &mut payload);
                        let history = direction.histories.as_mut().map(|(history, _)| history);
                        deflaters.put_back(deflater, history);
                    }
                }
                let caps = InflateCaps { bytes: plain.len() as u64, ratio: u32::MAX };
                let result = inflaters.inflate(direction.into(), &payload, caps, &mut text);
                assert!(result.is_ok() && text == plain);
                direction.said.extend_from_slice(&plain);
            }
            Step::Read { at, payload, part, most } => {
                let direction = &directions[usize::from(*at) % 3];
                let caps = InflateCaps { bytes: u64::from(*most % 100_000), ratio: u32::MAX };
                // A copy: what a peer says here, the sender has not said.
                let window = direction.window;
                let mut history = direction.histories.is_some().then(|| History::new(window));
                history.iter_mut().for_each(|history| history.append(&direction.said));
                let part = usize::from(*part).max(1);
                let parts = in_parts(
                    &mut inflaters,
                    context(window, history.as_mut()),
                    payload,
                    part,
                    caps,
                );
                let mut text = Vec::new();
                let kept = context(window, history.as_mut());
                match inflaters.inflate(kept, payload, caps, &mut text) {
                    Ok(()) => assert!(parts.as_ref() == Ok(&text)),
                    Err(_) => assert!(parts.is_err() && text.is_empty()),
                }
                assert!(text.len() as u64 <= caps.bytes);
                if let (None, Ok(text), Some(other)) = (&history, &parts, zlib(payload)) {
                    assert!(*text == other);
                }
            }
            Step::Damage { plain, byte, by } => {
                let mut payload = Vec::new();
                let fresh = || Context::Fresh(Window::MAX);
                deflaters.compress(fresh(), &plain.text(), &mut payload);
                let at = usize::from(*byte) % payload.len();
                payload[at] ^= by;
                let caps = InflateCaps { bytes: 200_000, ratio: u32::MAX };
                let parts = in_parts(&mut inflaters, fresh(), &payload, 1 + at, caps);
                let mut text = Vec::new();
                let result = inflaters.inflate(fresh(), &payload, caps, &mut text);
                assert!(result.is_ok() == parts.is_ok());
                if let Ok(parts) = parts {
                    assert!(parts == text && zlib(&payload).is_none_or(|other| other == text));
                }
            }
        }
    }
});
