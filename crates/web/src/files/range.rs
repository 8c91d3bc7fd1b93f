//! The part of a file that a request asks for (RFC 9110, 14).
//!
//! # Why
//! Several ranges would be a body of several parts. Few clients ask for them, and a server may
//! ignore any `Range`. So they are answered with the whole file, and the second one is not even
//! read: a list of thousands is no work.

use std::ops::Range;

/// What a `Range` asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Selected {
    /// Everything: there is no range, several, or one that means nothing.
    Whole,
    /// These bytes: at least one.
    Part(Range<u64>),
    /// Bytes that the file has not.
    Nothing,
}

/// What the value of a `Range` field asks for, of a file of `len` bytes.
pub(crate) fn select(value: &[u8], len: u64) -> Selected {
    single(value).map_or(Selected::Whole, |spec| spec.of(len))
}

/// A range without the length of its file.
enum Spec {
    /// From the first number on, up to and with the last one.
    From(u64, Option<u64>),
    /// So many bytes of the end.
    Last(u64),
}

/// The only range of a list.
fn single(value: &[u8]) -> Option<Spec> {
    let equals = value.iter().position(|byte| *byte == b'=')?;
    let (unit, list) = (&value[..equals], &value[equals + 1..]);
    if !unit.eq_ignore_ascii_case(b"bytes") {
        return None;
    }
    let mut all = list.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    let mut all = all.by_ref().filter(|one| !one.is_empty());
    match (all.next(), all.next()) {
        (Some(one), None) => spec(one),
        _ => None,
    }
}

fn spec(text: &[u8]) -> Option<Spec> {
    let dash = text.iter().position(|byte| *byte == b'-')?;
    match (&text[..dash], &text[dash + 1..]) {
        (b"", last) => Some(Spec::Last(number(last)?)),
        (first, b"") => Some(Spec::From(number(first)?, None)),
        (first, last) => {
            let (first, last) = (number(first)?, number(last)?);
            (first <= last).then_some(Spec::From(first, Some(last)))
        }
    }
}

/// A number of digits. One that is too large is beyond every file all the same.
fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let add = |sum: u64, digit: &u8| sum.saturating_mul(10).saturating_add(u64::from(digit - b'0'));
    Some(digits.iter().fold(0, add))
}

impl Spec {
    fn of(&self, len: u64) -> Selected {
        match *self {
            Spec::Last(0) => Selected::Nothing,
            // The whole file, and no range can say so.
            Spec::Last(_) if len == 0 => Selected::Whole,
            Spec::Last(count) => Selected::Part(len.saturating_sub(count)..len),
            Spec::From(first, _) if first >= len => Selected::Nothing,
            Spec::From(first, last) => {
                let end = last.map_or(len, |last| last.saturating_add(1).min(len));
                Selected::Part(first..end)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Selected::{Nothing, Part, Whole};
    use super::*;

    #[test]
    fn ranges_select_bytes() {
        for (value, len, selected) in [
            ("bytes=0-0", 10, Part(0..1)),
            ("bytes=0-9", 10, Part(0..10)),
            ("bytes=0-99", 10, Part(0..10)),
            ("bytes=3-", 10, Part(3..10)),
            ("bytes=9-", 10, Part(9..10)),
            ("bytes=10-", 10, Nothing),
            ("bytes=10-11", 10, Nothing),
            ("bytes=-1", 10, Part(9..10)),
            ("bytes=-10", 10, Part(0..10)),
            ("bytes=-11", 10, Part(0..10)),
            ("bytes=-0", 10, Nothing),
            ("bytes=0-", 0, Nothing),
            ("bytes=-5", 0, Whole),
            ("BYTES= 1-2 ", 10, Part(1..3)),
            ("bytes=,1-2,,", 10, Part(1..3)),
            ("bytes=5-18446744073709551615", 10, Part(5..10)),
            ("bytes=0-99999999999999999999999999", 10, Part(0..10)),
            ("bytes=99999999999999999999999999-", 10, Nothing),
            ("bytes=0-18446744073709551615", u64::MAX, Part(0..u64::MAX)),
        ] {
            assert_eq!(select(value.as_bytes(), len), selected, "{value} of {len}");
        }
    }

    #[test]
    fn what_means_nothing_is_ignored() {
        for value in [
            "",
            "bytes",
            "bytes=",
            "bytes=,",
            "bytes=-",
            "bytes=a-b",
            "bytes=1",
            "bytes=2-1",
            "lines=1-2",
            "bytes=+1-2",
            "bytes=1-+2",
            "bytes=0x1-2",
            "bytes=1 - 2",
            "bytes=--1",
            "bytes=1--2",
            "bytes =1-2",
            "bytes:1-2",
            "bytes=1-2,3-4",
            "bytes=0-0,0-0",
            "bytes=1-2;3-4",
            "bytes=0-,99-",
            "=1-2",
        ] {
            assert_eq!(select(value.as_bytes(), 10), Whole, "{value}");
        }
        let many = format!("bytes={}", "0-0,".repeat(10_000));
        assert_eq!(select(many.as_bytes(), 10), Whole);
        assert_eq!(select(b"bytes=\xff-1", 10), Whole);
    }
}
