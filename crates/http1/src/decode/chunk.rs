//! The line in front of a chunk: a size, and extensions.
//!
//! # Why
//!
//! Readers that disagree about this line find different ends of a body. So white space is none of
//! it: RFC 9112 has senders never write it, some readers skip it, and some stop there. Extensions
//! keep to their grammar, because a line end inside of one has ended the line for one reader and
//! not for the next (CVE-2025-55315, CVE-2025-58056).

use crate::bytes::{TOKEN, is_value};
use crate::error::Rule;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SizeLine {
    pub(super) size: u64,
    /// How many bytes the extensions are.
    pub(super) extensions: u32,
}

/// Reads a line that ends with LF.
#[inline]
pub(super) fn size_line(line: &[u8]) -> Result<SizeLine, Rule> {
    let line = line.strip_suffix(b"\r\n").ok_or(Rule::LineEnd)?;
    let mut size = 0_u64;
    let mut digits = 0;
    for byte in line {
        let Some(digit) = (*byte as char).to_digit(16) else { break };
        size = size << 4 | u64::from(digit);
        digits += 1;
    }
    if !(1..=16).contains(&digits) {
        return Err(Rule::ChunkSize);
    }
    let rest = &line[digits..];
    match rest {
        [] => {}
        [b';', ..] => extensions(rest)?,
        _ if line.contains(&b'\r') => return Err(Rule::LineEnd),
        _ => return Err(Rule::ChunkSize),
    }
    Ok(SizeLine { size, extensions: rest.len() as u32 })
}

/// Checks extensions: `;name`, `;name=token`, `;name="text"`, any number of them.
fn extensions(mut rest: &[u8]) -> Result<(), Rule> {
    if rest.contains(&b'\r') {
        return Err(Rule::LineEnd);
    }
    while let [b';', behind @ ..] = rest {
        rest = behind_token(behind)?;
        rest = match rest {
            [b'=', b'"', behind @ ..] => behind_quoted(behind)?,
            [b'=', behind @ ..] => behind_token(behind)?,
            _ => rest,
        };
    }
    if rest.is_empty() { Ok(()) } else { Err(Rule::ChunkExtension) }
}

fn behind_token(bytes: &[u8]) -> Result<&[u8], Rule> {
    let len = bytes.iter().position(|byte| !TOKEN.has(*byte)).unwrap_or(bytes.len());
    if len == 0 { Err(Rule::ChunkExtension) } else { Ok(&bytes[len..]) }
}

/// What stands behind the rest of a quoted string (RFC 9110, 5.6.4).
fn behind_quoted(mut bytes: &[u8]) -> Result<&[u8], Rule> {
    loop {
        bytes = match bytes {
            [b'"', behind @ ..] => return Ok(behind),
            [b'\\', escaped, behind @ ..] if is_value(&[*escaped]) => behind,
            [b'\\', ..] | [] => return Err(Rule::ChunkExtension),
            [byte, behind @ ..] if is_value(&[*byte]) => behind,
            _ => return Err(Rule::ChunkExtension),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_in_front_of_chunks() {
        let ok = |size, extensions| Ok(SizeLine { size, extensions });
        for (line, expected) in [
            ("0", ok(0, 0)),
            ("5", ok(5, 0)),
            ("aF", ok(0xaf, 0)),
            ("0000000000000005", ok(5, 0)),
            ("ffffffffffffffff", ok(u64::MAX, 0)),
            ("10000000000000000", Err(Rule::ChunkSize)),
            ("00000000000000005", Err(Rule::ChunkSize)),
            ("", Err(Rule::ChunkSize)),
            (";a", Err(Rule::ChunkSize)),
            ("+5", Err(Rule::ChunkSize)),
            ("-5", Err(Rule::ChunkSize)),
            ("0x5", Err(Rule::ChunkSize)),
            (" 5", Err(Rule::ChunkSize)),
            ("5 ", Err(Rule::ChunkSize)),
            ("5\t", Err(Rule::ChunkSize)),
            ("5 ;a", Err(Rule::ChunkSize)),
            ("5\r", Err(Rule::LineEnd)),
            ("5;a", ok(5, 2)),
            ("5;a=b;c;d=\"e \\\" ;f\"", ok(5, 18)),
            ("5;", Err(Rule::ChunkExtension)),
            ("5;;a", Err(Rule::ChunkExtension)),
            ("5;a=", Err(Rule::ChunkExtension)),
            ("5; a", Err(Rule::ChunkExtension)),
            ("5;a b", Err(Rule::ChunkExtension)),
            ("5;a=\"b", Err(Rule::ChunkExtension)),
            ("5;a=\"b\\", Err(Rule::ChunkExtension)),
            ("5;a=\"\u{1}\"", Err(Rule::ChunkExtension)),
            ("5;a\rb", Err(Rule::LineEnd)),
            ("5;a=\"\r\"", Err(Rule::LineEnd)),
        ] {
            assert_eq!(size_line(format!("{line}\r\n").as_bytes()), expected, "{line:?}");
        }
        assert_eq!(size_line(b"5\n"), Err(Rule::LineEnd));
    }
}
