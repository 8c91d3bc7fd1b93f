//! Frames of RFC 6455: what is told of them, and what is refused, at every cut.
#![allow(missing_docs)] // a test binary has no users

mod common;

use common::{CLIENT, KEY, SERVER, Seen, Side, binary, messages, ping, text};
use windlass_websocket::{
    CloseCode, Decoder, Error, Event, FrameHead, Kind, Limits, Opcode, Rule, put_close,
};

const BOTH: [Side; 2] = [SERVER, CLIENT];
const WAITS: Seen = Seen::Waits(0, 0);

/// Frames one behind the other.
fn frames(side: Side, frames: &[(u8, &[u8])]) -> Vec<u8> {
    frames.iter().flat_map(|(first, payload)| side.frame(*first, payload)).collect()
}

/// A part of a message.
fn part(kind: Kind, bytes: &[u8], is_first: bool, is_last: bool) -> Seen {
    Seen::Data { kind, bytes: bytes.to_vec(), is_compressed: false, is_first, is_last }
}

/// A message without fragments in which the bit for a compressed one is set.
fn compressed(side: Side) -> Vec<u8> {
    side.frame(0xc1, b"\xff\x00")
}

#[test]
fn the_examples_of_the_rfc() {
    assert_eq!(CLIENT.decode(b"\x81\x05Hello"), [text("Hello"), WAITS]);
    let masked = b"\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58";
    assert_eq!(SERVER.decode(masked), [text("Hello"), WAITS]);
    assert_eq!(CLIENT.decode(b"\x01\x03Hel\x80\x02lo"), [text("Hello"), WAITS]);
    assert_eq!(CLIENT.decode(b"\x89\x05Hello"), [ping("Hello"), WAITS]);
    let pong = b"\x8a\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58";
    assert_eq!(SERVER.decode(pong), [Seen::Pong(b"Hello".to_vec()), WAITS]);
    for (len, size) in [(256, 4), (65_536, 10)] {
        let frame = CLIENT.frame(0x82, vec![7; len]);
        assert_eq!(frame.len(), size + len);
        assert_eq!(CLIENT.decode(frame), [binary(vec![7; len]), WAITS]);
    }
}

#[test]
fn lengths_have_three_forms() {
    for side in BOTH {
        for len in [0, 1, 125, 126, 127, 128, 0xfffe, 0xffff, 0x1_0000, 0x1_0001] {
            let payload = vec![b'a'; len];
            assert_eq!(side.decode(side.frame(0x81, &payload)), [text(&payload), WAITS], "{len}");
        }
    }
}

#[test]
fn lengths_have_their_shortest_form() {
    for side in BOTH {
        let bit = side.head(0x82, 0)[1];
        for len in [0, 1, 125] {
            assert_eq!(side.refuses([&[0x82, bit | 126, 0, len], &KEY[..]].concat()), Rule::Length);
        }
        for len in [0, 125, 126, 0xffff] {
            let long = [&[0x82, bit | 127][..], &u64::to_be_bytes(len), &KEY].concat();
            assert_eq!(side.refuses(&long), Rule::Length);
            // It needs no mask, and no byte of the message.
            assert_eq!(side.refuses(&long[..10]), Rule::Length);
        }
        for len in [1 << 63, u64::MAX] {
            let long = [&[0x82, bit | 127][..], &u64::to_be_bytes(len)].concat();
            assert_eq!(side.limit(u64::MAX, 1).refuses(long), Rule::Length);
        }
    }
}

#[test]
fn large_lengths_do_not_overflow() {
    let most = (1 << 63) - 1;
    for side in BOTH {
        let refused = side.refuses(side.head(0x82, most));
        assert_eq!(refused, Rule::MessageLength);
        let vast = side.limit(u64::MAX, 10);
        let input = [vast.frame(0x02, b"ab"), vast.head(0x80, most), b"c".to_vec()].concat();
        let seen = vast.decode(&input);
        assert_eq!(seen.last(), Some(&Seen::Waits(0, most - 1)));
    }
    // A limit that becomes less than what is there already.
    let mut decoder = Decoder::new(CLIENT.role);
    let step = decoder.decode(&Limits::default(), &mut b"\x02\x03abc".to_vec()).unwrap();
    assert_eq!(step.consumed, 5);
    let less = Limits { message: 2, ..Limits::default() };
    let error = decoder.decode(&less, &mut b"\x80\x01d".to_vec()).unwrap_err();
    assert_eq!(error.rule(), Rule::MessageLength);
}

#[test]
fn masks_are_those_of_clients() {
    let (masked, plain) = (SERVER.frame(0x81, b"a"), CLIENT.frame(0x81, b"a"));
    assert_eq!(SERVER.refuses(&plain), Rule::NoMask);
    assert_eq!(CLIENT.refuses(&masked), Rule::Masked);
    // Two bytes show it, and for an empty frame too.
    for first in [0x81, 0x02, 0x88, 0x89, 0x8a] {
        assert_eq!(SERVER.refuses([first, 0x00]), Rule::NoMask);
        assert_eq!(SERVER.refuses([first, 0x05]), Rule::NoMask);
        assert_eq!(CLIENT.refuses([first, 0x80]), Rule::Masked);
        assert_eq!(CLIENT.refuses([first, 0x85]), Rule::Masked);
    }
    assert_eq!(SERVER.refuses([0x82, 0x7f]), Rule::NoMask);
}

#[test]
fn reserved_bits_are_none() {
    for side in BOTH {
        for bits in [0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70] {
            for first in [0x81, 0x82, 0x01, 0x88, 0x89, 0x8a] {
                assert_eq!(side.refuses([first | bits]), Rule::ReservedBit);
                let is_compressed = bits == 0x40 && first & 0x08 == 0;
                assert!(
                    is_compressed || side.deflate().refuses([first | bits]) == Rule::ReservedBit
                );
            }
            let input = [side.frame(0x01, b"a"), vec![0x80 | bits]].concat();
            assert_eq!(side.refuses(&input), Rule::ReservedBit);
            assert_eq!(side.deflate().refuses(&input), Rule::ReservedBit);
        }
    }
}

#[test]
fn opcodes_are_six() {
    for side in BOTH {
        for opcode in [3, 4, 5, 6, 7, 0xb, 0xc, 0xd, 0xe, 0xf] {
            assert_eq!(side.refuses([0x80 | opcode]), Rule::ReservedOpcode);
            assert_eq!(side.refuses([opcode]), Rule::ReservedOpcode);
        }
    }
}

#[test]
fn control_frames_are_short_and_whole() {
    for side in BOTH {
        for first in [0x88, 0x89, 0x8a] {
            assert_eq!(side.refuses([first & 0x7f]), Rule::ControlFragment);
            for len in [126, 127, 0x1_0000] {
                let head = side.head(first, len);
                assert_eq!(side.refuses(&head[..2]), Rule::ControlLength);
                assert_eq!(side.refuses(&head), Rule::ControlLength);
            }
        }
        let most = vec![0xfe; 125];
        assert_eq!(side.decode(side.frame(0x89, &most)), [ping(&most), WAITS]);
        assert_eq!(side.decode(side.frame(0x8a, b"")), [Seen::Pong(Vec::new()), WAITS]);
    }
}

#[test]
fn control_frames_come_between_fragments() {
    for side in BOTH {
        let pieces: [(u8, &[u8]); 6] = [
            (0x8a, b"0"),
            (0x01, b"a\xc3"),
            (0x89, b"1"),
            (0x00, b""),
            (0x89, b"\xff"),
            (0x80, b"\xbcb"),
        ];
        let seen = side.decode(frames(side, &pieces));
        let parts = [
            Seen::Pong(b"0".to_vec()),
            part(Kind::Text, b"a\xc3", true, false),
            ping("1"),
            part(Kind::Text, b"", false, false),
            ping(b"\xff"),
            part(Kind::Text, b"\xbcb", false, true),
            WAITS,
        ];
        assert_eq!(seen, parts);
        let whole = [Seen::Pong(b"0".to_vec()), ping("1"), ping(b"\xff"), text("aüb"), WAITS];
        assert_eq!(messages(&seen), whole);
    }
}

#[test]
fn fragments_are_in_order() {
    for side in BOTH {
        assert_eq!(side.refuses([0x00]), Rule::NoMessage);
        assert_eq!(side.refuses([0x80]), Rule::NoMessage);
        for first in [0x01, 0x81, 0x02, 0x82] {
            let input = [side.frame(0x02, b"a"), vec![first]].concat();
            assert_eq!(side.refuses(&input), Rule::Interrupted);
            let input = [side.frame(0x02, b"a"), side.frame(0x89, b""), vec![first]].concat();
            assert!(side.decode(&input).ends_with(&[Seen::Refused(Rule::Interrupted)]));
        }
        // The message has ended.
        let input = [frames(side, &[(0x02, b"a"), (0x80, b"b")]), vec![0x80]].concat();
        assert_eq!(side.decode(input), [binary("ab"), Seen::Refused(Rule::NoMessage)]);
    }
}

#[test]
fn fragments_may_be_empty() {
    for side in BOTH {
        let seen = |pieces: &[(u8, &[u8])]| side.decode(frames(side, pieces));
        assert_eq!(seen(&[(0x81, b"")]), [text(""), WAITS]);
        assert_eq!(seen(&[(0x01, b""), (0x80, b"")]), [text(""), WAITS]);
        assert_eq!(seen(&[(0x02, b""), (0x00, b"a"), (0x80, b"")]), [binary("a"), WAITS]);
        let empty = vec![(0x00, &b""[..]); 100];
        let all = [&[(0x01, &b"\xc3"[..])], &empty[..], &[(0x80, b"\xbc")]].concat();
        assert_eq!(seen(&all), [text("ü"), WAITS]);
    }
}

#[test]
fn messages_have_a_limit() {
    for side in BOTH {
        let ten = side.limit(10, 100);
        assert_eq!(ten.decode(ten.frame(0x82, [7; 10])), [binary([7; 10]), WAITS]);
        // The head is enough, without the mask.
        assert_eq!(ten.refuses(&ten.head(0x82, 11)[..2]), Rule::MessageLength);
        assert_eq!(ten.refuses(&ten.head(0x82, 1000)[..4]), Rule::MessageLength);
        let input = [ten.frame(0x02, [7; 6]), ten.head(0x80, 5)[..2].to_vec()].concat();
        assert_eq!(ten.refuses(input), Rule::MessageLength);
        let input = frames(ten, &[(0x02, &[7; 6]), (0x89, &[8; 100]), (0x80, &[7; 4])]);
        assert_eq!(messages(&ten.decode(input)), [ping([8; 100]), binary([7; 10]), WAITS]);
        // Each message counts for itself.
        let input = frames(ten, &[(0x82, &[7; 10]), (0x82, &[7; 10])]);
        assert_eq!(ten.decode(input), [binary([7; 10]), binary([7; 10]), WAITS]);
        let none = side.limit(0, 1);
        assert_eq!(none.decode(none.frame(0x82, b"")), [binary(b""), WAITS]);
        assert_eq!(none.refuses(&none.head(0x82, 1)[..2]), Rule::MessageLength);
    }
    assert_eq!(Error::from(Rule::MessageLength).close_code(), CloseCode::TOO_BIG);
}

#[test]
fn fragments_have_a_limit() {
    for side in BOTH {
        let three = side.limit(100, 3);
        let input = frames(three, &[(0x02, b"a"), (0x00, b"b"), (0x80, b"c")]);
        assert_eq!(three.decode(&input), [binary("abc"), WAITS]);
        let input = frames(three, &[(0x02, b""), (0x00, b""), (0x00, b"")]);
        assert_eq!(three.refuses([&input[..], &[0x80]].concat()), Rule::Fragments);
        let seen = three.decode([&input[..], &three.frame(0x89, b"a")].concat());
        assert_eq!(seen[1..], [ping("a"), WAITS]);
        assert_eq!(side.limit(100, 0).refuses([0x82]), Rule::Fragments);
    }
    assert_eq!(Error::from(Rule::Fragments).close_code(), CloseCode::TOO_BIG);
    let many = Limits::default().fragments;
    assert!(many >= 65_536, "Autobahn's case 9.3 sends a message in 65,536 parts");
}

#[test]
fn close_frames_have_a_code_and_a_reason() {
    for side in BOTH {
        let close = |payload: &[u8]| side.decode(side.frame(0x88, payload));
        let seen = |code, reason: &[u8]| [Seen::Close(code, reason.to_vec()), Seen::Closed];
        assert_eq!(close(b""), seen(None, b""));
        assert_eq!(close(b"\x03\xe8"), seen(Some(1000), b""));
        assert_eq!(close("\x03\u{e8}".as_bytes()), [Seen::Refused(Rule::CloseCode)]);
        assert_eq!(close("\u{3}".as_bytes()), [Seen::Refused(Rule::CloseCode)]);
        let mut most = 4999_u16.to_be_bytes().to_vec();
        most.extend(["é".as_bytes(); 61].concat());
        most.push(b'!');
        assert_eq!(close(&most), seen(Some(4999), &most[2..]));
        for bad in [&b"\xff"[..], b"ab\xc3", b"\xed\xa0\x80", b"\xc0\x80"] {
            assert_eq!(close(&[b"\x03\xe8", bad].concat()), [Seen::Refused(Rule::Utf8)]);
        }
        // A close within a message.
        let input = frames(side, &[(0x01, b"a\xc3"), (0x88, b"\x03\xe9")]);
        let begun = part(Kind::Text, b"a\xc3", true, false);
        assert_eq!(side.decode(input)[..], [&[begun][..], &seen(Some(1001), b"")].concat());
    }
}

#[test]
fn close_codes_are_those_that_may_be_sent() {
    let valid = |code| matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999);
    for code in 0..=u16::MAX {
        let mut frame = CLIENT.frame(0x88, code.to_be_bytes());
        let mut decoder = Decoder::new(CLIENT.role);
        let event = decoder.decode(&CLIENT.limits, &mut frame).map(|step| step.event);
        if valid(code) {
            assert_eq!(event, Ok(Event::Close(CloseCode::new(code), 4..4)));
        } else {
            assert_eq!(event.map_err(Error::rule), Err(Rule::CloseCode), "{code}");
        }
    }
}

#[test]
fn nothing_counts_behind_a_close() {
    for side in BOTH {
        let close = side.frame(0x88, b"\x03\xe8bye");
        let seen = [Seen::Close(Some(1000), b"bye".to_vec()), Seen::Closed];
        for rest in [&b"\xff\xff\xff"[..], &side.frame(0x81, b"a"), &side.frame(0x89, b""), &close]
        {
            assert_eq!(side.decode([&close, rest].concat()), seen);
        }
    }
}

#[test]
fn text_is_utf_8_across_cuts_and_fragments() {
    let whole = "a\u{0}é€\u{ffff}😀\u{10ffff}z".as_bytes();
    for side in BOTH {
        assert_eq!(side.decode(side.frame(0x81, whole)), [text(whole), WAITS]);
        for at in 0..=whole.len() {
            let (a, b) = whole.split_at(at);
            let input = frames(side, &[(0x01, a), (0x00, b""), (0x80, b)]);
            assert_eq!(side.decode(input), [text(whole), WAITS]);
            // Bytes need not be text, and nor does what is cut off.
            assert_eq!(side.decode(side.frame(0x82, a)), [binary(a), WAITS]);
            let seen = side.decode(side.frame(0x81, a));
            let is_text = str::from_utf8(a).is_ok();
            assert_eq!(seen == [Seen::Refused(Rule::Utf8)], !is_text);
        }
    }
}

/// Autobahn's cases 6.4: the message is refused at the byte that cannot be.
#[test]
fn text_fails_at_its_first_wrong_byte() {
    let bad = b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xf4\x90\x80\x80edited";
    for side in BOTH {
        let frame = side.frame(0x81, bad);
        let payload = frame.len() - bad.len();
        assert_eq!(side.refuses(&frame), Rule::Utf8);
        assert_eq!(side.refuses(&frame[..payload + 13]), Rule::Utf8);
        let seen = side.decode(&frame[..payload + 12]);
        assert_eq!(seen[1], Seen::Waits(0, 9));
        // In fragments: the last one is not awaited.
        let input = frames(side, &[(0x01, &bad[..12]), (0x00, &bad[12..13])]);
        assert_eq!(side.refuses(input), Rule::Utf8);
    }
    assert_eq!(Error::from(Rule::Utf8).close_code(), CloseCode::INVALID);
}

#[test]
fn compressed_messages_say_so_once() {
    for side in BOTH {
        let side = side.deflate();
        let data = |kind, is_last| Seen::Data {
            kind,
            bytes: b"\xff\x00".to_vec(),
            is_compressed: true,
            is_first: true,
            is_last,
        };
        assert_eq!(side.decode(compressed(side)), [data(Kind::Text, true), WAITS]);
        let input = frames(side, &[(0x42, b"\xff"), (0x80, b"\x00")]);
        assert_eq!(side.decode(input), [data(Kind::Binary, true), WAITS]);
        // The next one is not compressed, and is text again.
        let input = [compressed(side), side.frame(0x81, b"a")].concat();
        assert_eq!(side.decode(input), [data(Kind::Text, true), text("a"), WAITS]);
        let input = [compressed(side), side.frame(0x81, b"\xff")].concat();
        assert_eq!(side.decode(input)[1], Seen::Refused(Rule::Utf8));
        // What is compressed counts, and may be larger than its text.
        for (most, sent) in [(0, 64), (800, 964), (1 << 20, (9 << 17) + 64)] {
            let limited = side.limit(most, 2);
            assert_eq!(limited.refuses(limited.head(0xc2, sent + 1)), Rule::MessageLength);
            let head = limited.head(0xc2, sent);
            assert_eq!(limited.decode(&head), [Seen::Waits(head.len(), 0)]);
            let begun = limited.frame(0x42, [0; 64]);
            let whole = [begun.clone(), limited.head(0x80, sent - 64)].concat();
            assert!(!limited.decode(whole).iter().any(|seen| matches!(seen, Seen::Refused(_))));
            let over = [begun, limited.head(0x80, sent - 63)].concat();
            assert_eq!(limited.refuses(over), Rule::MessageLength);
        }
        let input = [side.frame(0x41, b"\xff"), vec![0xc0]].concat();
        assert_eq!(side.refuses(input), Rule::ReservedBit);
    }
    assert_eq!(SERVER.refuses(compressed(SERVER)), Rule::ReservedBit);
}

/// All frames up to these, with each state of a message: the first two bytes show what is wrong
/// with them, and one alone if it can.
#[test]
fn wrong_frames_are_refused_by_their_first_bytes() {
    for side in BOTH {
        for begun in [&b""[..], &side.frame(0x01, b"a")] {
            for first in 0..=255 {
                for second in 0..=255 {
                    let input = [begun, &[first, second]].concat();
                    let seen = side.cut(&input, &[]);
                    let byte_by_byte = side.cut(&input, &(0..input.len()).collect::<Vec<_>>());
                    assert_eq!(seen, byte_by_byte);
                    let (opcode, is_control) = (first & 0x0f, first & 0x08 != 0);
                    let is_first_valid = first & 0x70 == 0
                        && match opcode {
                            0 => !begun.is_empty(),
                            1 | 2 => begun.is_empty(),
                            8..=10 => first & 0x80 != 0,
                            _ => false,
                        };
                    let is_masked = second & 0x80 != 0;
                    let is_valid = is_first_valid
                        && is_masked == (side.role == SERVER.role)
                        && !(is_control && second & 0x7f > 125);
                    let is_refused = matches!(seen.last(), Some(Seen::Refused(_)));
                    assert_eq!(is_refused, !is_valid, "{first:#x} {second:#x}");
                    let one = side.cut(&input[..input.len() - 1], &[]);
                    let is_refused = matches!(one.last(), Some(Seen::Refused(_)));
                    assert_eq!(is_refused, !is_first_valid, "{first:#x}");
                }
            }
        }
    }
}

#[test]
fn a_decoder_is_small() {
    assert!(size_of::<Decoder>() <= 40, "{}", size_of::<Decoder>());
}

#[test]
fn empty_input_is_nothing() {
    for side in BOTH {
        assert_eq!(side.decode(b""), [WAITS]);
        let mut decoder = side.decoder();
        let head = side.head(0x82, 5);
        assert!(decoder.is_idle());
        // A head without a byte of its frame is kept by the program.
        let mut bytes = head.clone();
        let step = decoder.decode(&side.limits, &mut bytes).unwrap();
        assert_eq!((step.consumed, step.event, decoder.left()), (0, Event::NeedMore, 0));
        bytes.push(1);
        let step = decoder.decode(&side.limits, &mut bytes).unwrap();
        assert_eq!((step.consumed, decoder.left(), decoder.is_idle()), (bytes.len(), 4, false));
        let step = decoder.decode(&side.limits, &mut []).unwrap();
        assert_eq!((step.consumed, step.event), (0, Event::NeedMore));
    }
}

#[test]
fn heads_are_as_the_rfc_has_them() {
    let put = |head: FrameHead| {
        let mut out = Vec::new();
        head.put(&mut out);
        assert_eq!(out.len(), head.size());
        out
    };
    assert_eq!(put(FrameHead::new(Opcode::Text, 0)), b"\x81\x00");
    assert_eq!(put(FrameHead::new(Opcode::Binary, 125).continues()), b"\x02\x7d");
    assert_eq!(put(FrameHead::new(Opcode::Continuation, 126)), b"\x80\x7e\x00\x7e");
    assert_eq!(put(FrameHead::new(Opcode::Text, 0xffff).compressed()), b"\xc1\x7e\xff\xff");
    let long = FrameHead::new(Opcode::Binary, 0x1_0000).masked([1, 2, 3, 4]);
    assert_eq!(put(long), b"\x82\xff\x00\x00\x00\x00\x00\x01\x00\x00\x01\x02\x03\x04");
    assert_eq!(long.size(), FrameHead::MOST);
}

#[test]
fn heads_that_break_the_rules_are_not_made() {
    let fails = |make: fn() -> FrameHead| std::panic::catch_unwind(make).is_err();
    assert!(fails(|| FrameHead::new(Opcode::Ping, 126)));
    assert!(fails(|| FrameHead::new(Opcode::Binary, 1 << 63)));
    assert!(fails(|| FrameHead::new(Opcode::Pong, 1).continues()));
    assert!(fails(|| FrameHead::new(Opcode::Close, 1).compressed()));
    assert!(fails(|| FrameHead::new(Opcode::Continuation, 1).compressed()));
}

#[test]
fn reasons_are_cut_between_characters() {
    for key in [None, Some(KEY)] {
        let side = if key.is_some() { SERVER } else { CLIENT };
        let seen = |code, reason: &str| {
            let mut out = b"before".to_vec();
            put_close(code, reason, key, &mut out);
            match &side.decode(&out[6..])[..] {
                [Seen::Close(code, reason), Seen::Closed] => {
                    (*code, String::from_utf8(reason.clone()).unwrap())
                }
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(seen(None, "left out"), (None, String::new()));
        assert_eq!(seen(Some(CloseCode::NORMAL), "é").1, "é");
        assert_eq!(seen(Some(CloseCode::NORMAL), &"a".repeat(124)).1, "a".repeat(123));
        assert_eq!(seen(Some(CloseCode::NORMAL), &"é".repeat(99)).1, "é".repeat(61));
        let four = format!("a{}", "😀".repeat(40));
        assert_eq!(seen(CloseCode::new(4999), &four), (Some(4999), four[..121].to_owned()));
    }
}
