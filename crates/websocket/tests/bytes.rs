//! Masks and UTF-8, beside their definitions.
#![allow(missing_docs)] // a test binary has no users

use windlass_websocket::{Utf8, mask};

/// RFC 6455, section 5.3: byte `i` of the message and byte `i` modulo 4 of the key.
#[test]
fn masks_are_those_of_the_definition() {
    let source: Vec<u8> = (0..1200_u32).map(|i| (i * 7 + i / 251) as u8).collect();
    let key = [0x80, 0x01, 0xff, 0x5a];
    let check = |from: usize, len: usize| {
        let mut bytes = source.clone();
        mask(key, &mut bytes[from..from + len]);
        for (at, byte) in bytes.iter().enumerate() {
            let is_masked = (from..from + len).contains(&at);
            let bits = if is_masked { key[(at - from) % 4] } else { 0 };
            assert_eq!(*byte, source[at] ^ bits, "{len} bytes from {from}, at {at}");
        }
    };
    (0..64).for_each(|from| (0..200).for_each(|len| check(from, len)));
    (0..33).for_each(|from| (1000..1040).for_each(|len| check(from, len)));
}

/// Whether these bytes can be the beginning of a text.
fn is_begun(bytes: &[u8]) -> bool {
    str::from_utf8(bytes).map_or_else(|error| error.error_len().is_none(), |_| true)
}

/// Checks the bytes at each cut, and byte by byte: it fails exactly where no text can go on.
fn check(bytes: &[u8]) {
    let is_text = str::from_utf8(bytes).is_ok();
    for at in 0..=bytes.len() {
        let (a, b) = bytes.split_at(at);
        let mut utf8 = Utf8::default();
        let first = utf8.push(a);
        assert_eq!(first, is_begun(a), "{a:02x?}");
        if first {
            assert_eq!(utf8.is_whole(), str::from_utf8(a).is_ok(), "{a:02x?}");
            let second = utf8.push(b);
            assert_eq!(second, is_begun(bytes), "{bytes:02x?} at {at}");
            assert!(!second || utf8.is_whole() == is_text, "{bytes:02x?} at {at}");
        }
    }
    let (mut utf8, mut so_far) = (Utf8::default(), true);
    for (at, byte) in bytes.iter().enumerate() {
        so_far = so_far && utf8.push(&[*byte]) && utf8.push(b"");
        assert_eq!(so_far, is_begun(&bytes[..=at]), "{bytes:02x?} at {at}");
    }
}

/// Every two bytes; three and four of those where the rules of Unicode's table 3-7 change.
#[test]
fn text_is_what_unicode_says() {
    for a in 0..=255 {
        (0..=255).for_each(|b| check(&[a, b]));
    }
    let edges = [
        0x00, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xc1, 0xc2, 0xdf, 0xe0, 0xe1, 0xec,
        0xed, 0xee, 0xef, 0xf0, 0xf1, 0xf3, 0xf4, 0xf5, 0xff,
    ];
    for a in edges {
        for b in edges {
            for c in edges {
                check(&[a, b, c]);
                [0x00, 0x80, 0xbf, 0xc2, 0xf0].iter().for_each(|d| check(&[a, b, c, *d]));
            }
        }
    }
}

/// Long parts take another way through the check than short ones.
#[test]
fn long_texts_are_checked_too() {
    let long = "aé€😀".repeat(40);
    for at in (0..long.len()).step_by(7) {
        let mut bytes = long.clone().into_bytes();
        check(&bytes[..at]);
        bytes[at] ^= 0x40;
        check(&bytes);
    }
}
