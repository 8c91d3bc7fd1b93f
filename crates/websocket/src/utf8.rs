//! UTF-8 that comes in parts.

/// Checks text that comes in parts, whose cuts may be within a character.
///
/// ```
/// use windlass_websocket::Utf8;
///
/// let mut utf8 = Utf8::default();
/// assert!(utf8.push(b"\xc3"));
/// assert!(!utf8.is_whole());
/// assert!(utf8.push(b"\xbc") && utf8.is_whole());
/// assert!(!utf8.push(b"\xff"));
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Utf8 {
    /// The beginning of a character.
    part: [u8; 3],
    len: u8,
}

impl Utf8 {
    pub(crate) const NEW: Utf8 = Utf8 { part: [0; 3], len: 0 };

    /// Takes the next bytes. False if they are no UTF-8, also together with the ones before: then
    /// the value is of no further use.
    #[inline]
    pub fn push(&mut self, bytes: &[u8]) -> bool {
        let rest = match self.len {
            0 => bytes,
            _ => match self.join(bytes) {
                Some(rest) => rest,
                None => return false,
            },
        };
        // The end of a part is looked at first, so that a character that is cut there does not make
        // all of it be checked twice.
        let (whole, part) = rest.split_at(rest.len() - begun(rest));
        simdutf8::basic::from_utf8(whole).is_ok() && (part.is_empty() || self.keep(part))
    }

    /// Whether the text so far ends with a whole character.
    #[inline]
    pub fn is_whole(&self) -> bool {
        self.len == 0
    }

    /// Adds to the character that is begun. What is left behind it; `None` if it is none.
    #[cold]
    fn join<'b>(&mut self, bytes: &'b [u8]) -> Option<&'b [u8]> {
        let mut character = [0; 4];
        let begun = usize::from(self.len);
        character[..begun].copy_from_slice(&self.part[..begun]);
        for (at, byte) in bytes.iter().enumerate() {
            let len = begun + at + 1;
            character[len - 1] = *byte;
            match std::str::from_utf8(&character[..len]) {
                Ok(_) => {
                    self.len = 0;
                    return Some(&bytes[at + 1..]);
                }
                Err(error) if error.error_len().is_some() => return None,
                Err(_) => {
                    self.part[..len].copy_from_slice(&character[..len]);
                    self.len = len as u8;
                }
            }
        }
        Some(&[])
    }

    /// Keeps the beginning of a character, if it is one.
    #[cold]
    fn keep(&mut self, part: &[u8]) -> bool {
        self.part[..part.len()].copy_from_slice(part);
        self.len = part.len() as u8;
        std::str::from_utf8(part).is_err_and(|error| error.error_len().is_none())
    }
}

/// How many bytes at the end are a character whose first byte says that it is longer.
#[inline]
fn begun(bytes: &[u8]) -> usize {
    for (before, byte) in bytes.iter().rev().take(3).enumerate() {
        let size = match byte {
            0x80..=0xbf => continue,
            0xc0..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0.. => 4,
            _ => 0,
        };
        return if size > before + 1 { before + 1 } else { 0 };
    }
    0
}
