//! Heads: what was decoded, as offsets into the bytes that the caller has.

pub(crate) mod fields;
mod request;
mod response;
pub(crate) mod target;

use std::mem::MaybeUninit;

pub use fields::Field;
pub use request::RequestHead;
pub use response::ResponseHead;
pub use target::TargetForm;

use crate::error::Rule;
use crate::limits::Limits;

/// Memory that httparse fills before the offsets are taken. Nothing of it is written before.
type Found<'b> = [MaybeUninit<httparse::Header<'b>>; Limits::MOST_FIELDS as usize];

fn nothing_found<'b>() -> Found<'b> {
    [const { MaybeUninit::uninit() }; Limits::MOST_FIELDS as usize]
}

/// What a parse has found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Parsed {
    /// A head, which ends here.
    Whole(usize),
    /// The beginning of a head: all bytes, without an end. The LF of its first line is here, from
    /// the start of the head, if it is there.
    Part { line_end: Option<usize> },
}

/// How many fields a table has room for.
fn most_fields(limits: &Limits) -> usize {
    limits.fields.min(Limits::MOST_FIELDS).into()
}

/// The rule behind an error in fields. What httparse has seen is at most one reason of several.
pub(crate) fn field_rule(error: httparse::Error, section: &[u8]) -> Rule {
    use httparse::Error::{HeaderName, HeaderValue, NewLine, TooManyHeaders};
    match error {
        TooManyHeaders => Rule::TooManyFields,
        HeaderName if is_folded(section) => Rule::Folded,
        HeaderName => Rule::FieldName,
        HeaderValue if has_stray_cr(section) => Rule::LineEnd,
        HeaderValue => Rule::FieldValue,
        NewLine => Rule::LineEnd,
        _ => Rule::FieldValue,
    }
}

/// Whether a line begins with white space.
fn is_folded(section: &[u8]) -> bool {
    section.windows(2).any(|pair| matches!(pair, [b'\n', b' ' | b'\t']))
}

fn has_stray_cr(section: &[u8]) -> bool {
    section.windows(2).any(|pair| pair[0] == b'\r' && pair[1] != b'\n')
}
