//! What compressed messages allocate, and how far a bomb gets.
#![allow(missing_docs)] // a test binary has no users

use windlass_websocket::deflate::{
    Context, DeflaterSettings, Deflaters, History, InflateCaps, InflateError, InflaterSettings,
    Inflaters, Window,
};

#[path = "../../../tests/common/alloc.rs"]
mod alloc;

/// How many allocations `work` makes.
fn allocations(work: impl FnOnce()) -> u64 {
    let before = alloc::allocations();
    work();
    alloc::allocations() - before
}

/// The most bytes that are live at once during `work`, beside those that were live before.
fn peak(work: impl FnOnce()) -> isize {
    alloc::begin_peak();
    work();
    alloc::peak_bytes()
}

/// The same members, and other values each time.
fn message(number: usize) -> Vec<u8> {
    let row = |at| format!("{{\"symbol\":\"S{at}\",\"price\":{}.5}},", 100 + (at * number) % 900);
    (0..30).map(row).collect::<String>().into_bytes()
}

/// All that a loop has, with connections of every window, each with one history out and one in.
struct Loop {
    deflaters: Deflaters,
    inflaters: Inflaters,
    connections: Vec<(History, History)>,
    payload: Vec<u8>,
    text: Vec<u8>,
}

impl Loop {
    fn new() -> Loop {
        let windows = (9..=15).map(|bits| Window::new(bits).expect("a window"));
        Loop {
            deflaters: Deflaters::new(DeflaterSettings { live: 5, ..DeflaterSettings::default() }),
            inflaters: Inflaters::new(InflaterSettings::default()),
            connections: windows.map(|w| (History::new(w), History::new(w))).collect(),
            payload: Vec::with_capacity(64 << 10),
            text: Vec::with_capacity(64 << 10),
        }
    }

    /// A message on every way that there is, for each connection.
    fn turn(&mut self, plain: &[u8]) {
        let caps = InflateCaps::default();
        for (out, into) in &mut self.connections {
            let window = out.window();
            self.payload.clear();
            self.text.clear();
            self.deflaters.compress(Context::Fresh(window), plain, &mut self.payload);
            let fresh = Context::Fresh(window);
            self.inflaters.inflate(fresh, &self.payload, caps, &mut self.text).expect("valid");

            self.payload.clear();
            self.deflaters.compress(Context::Kept(out), plain, &mut self.payload);
            let kept = Context::Kept(into);
            self.inflaters.inflate(kept, &self.payload, caps, &mut self.text).expect("valid");

            self.payload.clear();
            let mut deflater = self.deflaters.take(Context::Kept(out)).expect("one is free");
            deflater.write(plain, &mut self.payload);
            deflater.end(plain, &mut self.payload);
            self.deflaters.put_back(deflater, Some(out));
            let kept = Context::Kept(into);
            let mut inflater = self.inflaters.take(kept, caps).expect("one is free");
            let step = inflater.inflate(&self.payload, true, &mut self.text).expect("valid");
            assert!(!step.has_more);
            self.inflaters.put_back(inflater, Some(into));

            // As a message to many connections.
            self.payload.clear();
            self.deflaters.compress(Context::Fresh(window), plain, &mut self.payload);
            out.append(plain);
            let kept = Context::Kept(into);
            self.inflaters.inflate(kept, &self.payload, caps, &mut self.text).expect("valid");
            assert!(self.text.chunks(plain.len()).all(|text| text == plain));
        }
    }
}

#[test]
fn after_warm_up_messages_allocate_nothing() {
    let mut all = Loop::new();
    let messages: Vec<_> = (1..200).map(message).collect();
    let (warm_up, after) = messages.split_at(150);
    // One window for streaming at a time would be made anew where there are seven: so fewer.
    all.connections.drain(4..);
    warm_up.iter().for_each(|plain| all.turn(plain));
    let count = allocations(|| after.iter().for_each(|plain| all.turn(plain)));
    assert_eq!(count, 0);
}

#[test]
fn a_history_takes_its_window_and_no_more() {
    assert_eq!(allocations(|| drop(History::new(Window::MAX))), 0);
    for bits in 9..=15 {
        let window = Window::new(bits).expect("a window");
        for step in [1, 100, 5000, 100_000] {
            let text = vec![b'a'; step];
            let mut history = History::new(window);
            let most = peak(|| (0..200_000 / step).for_each(|_| history.append(&text)));
            assert_eq!(most, window.bytes() as isize, "{bits} {step}");
        }
    }
}

/// A gigabyte of zeros in one megabyte.
#[test]
fn a_bomb_is_refused_at_its_cap_and_64_kib() {
    let settings = DeflaterSettings { level: 9, ..DeflaterSettings::default() };
    let mut block = Vec::new();
    Deflaters::new(settings).compress(Context::Fresh(Window::MAX), &[0; 1 << 20], &mut block);
    block.extend([0, 0, 0xff, 0xff]);
    let payload = [&block.repeat(1 << 10)[..], &[0]].concat();
    assert!(payload.len() < 1100 << 10, "{}", payload.len());

    let mut inflaters = Inflaters::new(InflaterSettings::default());
    let fresh = || Context::Fresh(Window::MAX);
    // What a loop has for all of its messages.
    inflaters.inflate(fresh(), &[0], InflateCaps::default(), &mut Vec::new()).expect("valid");
    let ratio = InflateCaps { bytes: 1 << 30, ratio: 1 };
    for (caps, most) in [
        (InflateCaps { bytes: 0, ..InflateCaps::default() }, 0),
        (InflateCaps { bytes: 1000, ..InflateCaps::default() }, 1000),
        (InflateCaps::default(), 1 << 20),
        (InflateCaps { bytes: 3_000_001, ..InflateCaps::default() }, 3_000_001),
        (ratio, payload.len()),
    ] {
        let mut out = Vec::new();
        let bytes = peak(|| {
            let result = inflaters.inflate(fresh(), &payload, caps, &mut out);
            assert_eq!(result, Err(InflateError::TooLong));
        });
        assert!(out.is_empty());
        assert!(bytes <= (most + (64 << 10)) as isize, "{bytes} for {most}");

        // In parts, each text is used before the next call.
        let mut inflater = inflaters.take(fresh(), caps).expect("one is free");
        let mut all = 0;
        let bytes = peak(|| {
            let mut rest = &payload[..];
            loop {
                out.clear();
                let result = inflater.inflate(rest, true, &mut out);
                all += out.len();
                match result {
                    Ok(step) => rest = &rest[step.consumed..],
                    Err(error) => break assert_eq!(error, InflateError::TooLong),
                }
            }
        });
        assert!(all <= most && bytes <= 200 << 10, "{all} of {most}, {bytes}");
        inflaters.put_back(inflater, None);
    }
}

/// What the documentation says that a state takes.
#[test]
fn states_take_what_is_said() {
    let compress = |settings, bits| {
        let window = Window::new(bits).expect("a window");
        let (mut deflaters, mut out) = (Deflaters::new(settings), Vec::with_capacity(100));
        let before = alloc::live_bytes();
        deflaters.compress(Context::Fresh(window), b"Hello", &mut out);
        (alloc::live_bytes() - before) as usize / 1000
    };
    for (memory, bits, most) in [(8, 9, 260), (8, 12, 275), (8, 15, 390), (1, 9, 150), (1, 15, 275)]
    {
        let settings = DeflaterSettings { memory, ..DeflaterSettings::default() };
        let size = compress(settings, bits);
        assert!(size <= most && size + 10 > most, "{memory} {bits}: {size} KB");
    }
    let mut inflaters = Inflaters::new(InflaterSettings::default());
    let mut out = Vec::with_capacity(100);
    let before = alloc::live_bytes();
    let fresh = || Context::Fresh(Window::MAX);
    inflaters.inflate(fresh(), &[0], InflateCaps::default(), &mut out).expect("valid");
    let size = (alloc::live_bytes() - before) as usize / 1000;
    assert!(size <= 65, "{size} KB");
}
