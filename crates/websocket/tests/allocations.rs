//! Decoders allocate nothing, and heads nothing beyond the memory that they get.
#![allow(missing_docs)] // a test binary has no users

use windlass_websocket::{
    CloseCode, Decoder, Event, FrameHead, Limits, Opcode, Role, Rule, mask, put_close,
};

#[path = "../../../tests/common/alloc.rs"]
mod alloc;

const KEY: [u8; 4] = [1, 2, 3, 4];

/// Text in fragments that are cut within a character, a ping between them, and a close frame.
fn input() -> Vec<u8> {
    let mut input = Vec::new();
    let text = "é€😀".repeat(100).into_bytes();
    let frames: [(FrameHead, &[u8]); 4] = [
        (FrameHead::new(Opcode::Text, 500).continues(), &text[..500]),
        (FrameHead::new(Opcode::Ping, 3), b"abc"),
        (FrameHead::new(Opcode::Continuation, 0).continues(), b""),
        (FrameHead::new(Opcode::Continuation, 400), &text[500..]),
    ];
    for (head, payload) in frames {
        head.masked(KEY).put(&mut input);
        let from = input.len();
        input.extend_from_slice(payload);
        mask(KEY, &mut input[from..]);
    }
    put_close(Some(CloseCode::NORMAL), "bye", Some(KEY), &mut input);
    input
}

/// Decodes the input in pieces of this size, and returns how many bytes of text it has.
fn decode(input: &mut [u8], piece: usize) -> usize {
    let (limits, mut decoder) = (Limits::default(), Decoder::new(Role::Server));
    let (mut from, mut to, mut text) = (0, 0, 0);
    loop {
        let step = decoder.decode(&limits, &mut input[from..to]).expect("valid frames");
        from += step.consumed;
        match step.event {
            Event::Data { payload, .. } => text += payload.len(),
            Event::NeedMore => to = input.len().min(to + piece),
            Event::Closed => return text,
            _ => {}
        }
    }
}

#[test]
fn nothing_is_allocated() {
    let (input, mut out) = (input(), Vec::with_capacity(4096));
    let mut inputs = [1, 7, 64, 10_000].map(|piece| (piece, input.clone()));
    let before = alloc::allocations();
    for (piece, input) in &mut inputs {
        assert_eq!(decode(input, *piece), 900);
        FrameHead::new(Opcode::Binary, 70_000).masked(KEY).put(&mut out);
        put_close(Some(CloseCode::NORMAL), "bye", Some(KEY), &mut out);
    }
    let refused = Decoder::new(Role::Client).decode(&Limits::default(), &mut [0xff]);
    assert_eq!(refused.map_err(|error| error.rule()), Err(Rule::ReservedOpcode));
    assert_eq!(alloc::allocations(), before);
}
