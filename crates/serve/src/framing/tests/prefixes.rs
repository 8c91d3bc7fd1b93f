//! All prefixes, for the tests and the fuzz target of the framing.

use super::Prefix;

pub(super) const PREFIXES: [Prefix; 10] = [
    Prefix::U8,
    Prefix::U16Be,
    Prefix::U16Le,
    Prefix::U24Be,
    Prefix::U24Le,
    Prefix::U32Be,
    Prefix::U32Le,
    Prefix::U64Be,
    Prefix::U64Le,
    Prefix::Varint,
];
