//! What a compressed message of 1 KiB costs: the least time of many batches, and its size.
//!
//! ```text
//! cargo bench -p windlass-websocket --features deflate --bench deflate [LEVEL …]
//! ```
//!
//! `fresh` has no context, `kept` finds its compressor live, `primed` finds none. `zlib` is zlib in
//! C, without a context (reset for each message), and with one.
#![allow(missing_docs)] // a bench has no users

use std::hint::black_box;
use std::time::{Duration, Instant};

use flate2::{Compress, Compression, FlushCompress};
use windlass_websocket::deflate::{
    Context, DeflaterSettings, Deflaters, History, InflateCaps, InflaterSettings, Inflaters, Window,
};

const MESSAGES: usize = 64;

/// A message of 1 KiB: rows of JSON with names that come again, and figures that do not.
fn message(random: &mut fastrand::Rng) -> Vec<u8> {
    let mut text = String::from("[");
    while text.len() < 1024 {
        let symbol: String = (0..4).map(|_| random.uppercase()).collect();
        let (price, volume) = (random.u32(10_000..99_999), random.u32(..1_000_000));
        let (cents, id) = (random.u8(10..99), random.u32(..));
        text += &format!(
            "{{\"id\":{id},\"symbol\":\"{symbol}\",\"price\":{price}.{cents},\"volume\":{volume}}},"
        );
    }
    text.truncate(1024);
    text.into_bytes()
}

/// The least time that one message takes, over many batches of all.
fn least(mut batch: impl FnMut()) -> f64 {
    batch();
    let mut least = Duration::MAX;
    for _ in 0..150 {
        let begin = Instant::now();
        batch();
        least = least.min(begin.elapsed());
    }
    least.as_secs_f64() * 1e6 / MESSAGES as f64
}

fn settings(level: u8, live: u16) -> DeflaterSettings {
    DeflaterSettings { level, live, ..DeflaterSettings::default() }
}

/// Time and size of messages that this compresses.
fn compress(messages: &[Vec<u8>], mut one: impl FnMut(&[u8], &mut Vec<u8>)) -> (f64, usize) {
    let (mut out, mut bytes) = (Vec::new(), 0);
    let time = least(|| {
        bytes = 0;
        for plain in messages {
            out.clear();
            one(black_box(plain), &mut out);
            bytes += black_box(&out).len();
        }
    });
    (time, bytes / MESSAGES)
}

/// The time that the messages take to be inflated.
fn inflate(payloads: &[Vec<u8>], window: Window, mut history: Option<History>) -> f64 {
    let mut inflaters = Inflaters::new(InflaterSettings::default());
    let mut out = Vec::new();
    least(|| {
        for payload in payloads {
            out.clear();
            let context = match &mut history {
                Some(history) => Context::Kept(history),
                None => Context::Fresh(window),
            };
            let caps = InflateCaps::default();
            inflaters.inflate(context, black_box(payload), caps, &mut out).expect("valid");
            black_box(&out);
        }
    })
}

fn zlib(level: u8, bits: u8, has_context: bool) -> impl FnMut(&[u8], &mut Vec<u8>) {
    let level = Compression::new(u32::from(level));
    let mut compress = Compress::new_with_window_bits(level, false, bits);
    move |plain, out| {
        if !has_context {
            compress.reset();
        }
        out.reserve(2048);
        compress.compress_vec(plain, out, FlushCompress::Sync).expect("it compresses");
        out.truncate(out.len() - 4);
    }
}

fn row(level: u8, bits: u8, messages: &[Vec<u8>]) {
    let window = Window::new(bits).expect("a window");
    let mut deflaters = Deflaters::new(settings(level, 1));
    let fresh = compress(messages, |plain, out| {
        deflaters.compress(Context::Fresh(window), plain, out);
    });
    let with_context = |live| {
        let mut deflaters = Deflaters::new(settings(level, live));
        let mut history = History::new(window);
        compress(messages, |plain, out| {
            deflaters.compress(Context::Kept(&mut history), plain, out);
        })
    };
    let (kept, primed) = (with_context(1), with_context(0));
    let zlib_fresh = compress(messages, zlib(level, bits, false));
    let zlib_kept = compress(messages, zlib(level, bits, true));

    let mut payloads = [Vec::new(), Vec::new()];
    let mut history = History::new(window);
    // The first time around fills the context: the batches after it begin where it ends.
    for payloads in [&mut [Vec::new(), Vec::new()], &mut payloads] {
        for plain in messages {
            let mut out = [Vec::new(), Vec::new()];
            deflaters.compress(Context::Fresh(window), plain, &mut out[0]);
            deflaters.compress(Context::Kept(&mut history), plain, &mut out[1]);
            payloads.iter_mut().zip(out).for_each(|(all, payload)| all.push(payload));
        }
    }
    let inflate_fresh = inflate(&payloads[0], window, None);
    let mut before = History::new(window);
    messages.iter().for_each(|plain| before.append(plain));
    let inflate_kept = inflate(&payloads[1], window, Some(before));
    print!("| {level} | {bits} |");
    for (time, size) in [fresh, kept, primed, zlib_fresh, zlib_kept] {
        print!(" {time:.1} ({size}) |");
    }
    println!(" {inflate_fresh:.1} | {inflate_kept:.1} |");
}

fn main() {
    let asked: Vec<u8> = std::env::args().filter_map(|level| level.parse().ok()).collect();
    let levels = if asked.is_empty() { vec![1, 6] } else { asked };
    let mut random = fastrand::Rng::with_seed(1);
    let messages: Vec<_> = (0..MESSAGES).map(|_| message(&mut random)).collect();
    println!("microseconds, and bytes of the payload");
    println!(
        "| level | window | fresh | kept | primed | zlib fresh | zlib kept | inflate fresh | kept |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for level in levels {
        for bits in [9, 12, 15] {
            row(level, bits, &messages);
        }
    }
}
