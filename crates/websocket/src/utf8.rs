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

    /// Takes the next bytes. False if they cannot be those of a text.
    #[inline]
    pub fn push(&mut self, bytes: &[u8]) -> bool {
        if self.len == 0 {
            return match simdutf8::basic::from_utf8(bytes) {
                Ok(_) => true,
                Err(_) => self.keep_end(bytes),
            };
        }
        self.join(bytes)
    }

    /// Whether no character is begun only.
    #[inline]
    pub fn is_whole(&self) -> bool {
        self.len == 0
    }

    #[cold]
    fn join(&mut self, mut bytes: &[u8]) -> bool {
        let mut character = [0; 4];
        let mut len = usize::from(self.len);
        character[..len].copy_from_slice(&self.part[..len]);
        while let Some((first, rest)) = bytes.split_first() {
            character[len] = *first;
            (len, bytes) = (len + 1, rest);
            match std::str::from_utf8(&character[..len]) {
                Ok(_) => {
                    self.len = 0;
                    return self.push(bytes);
                }
                Err(error) if error.error_len().is_some() => return false,
                Err(_) => {}
            }
        }
        self.part[..len].copy_from_slice(&character[..len]);
        self.len = len as u8;
        true
    }

    #[cold]
    fn keep_end(&mut self, bytes: &[u8]) -> bool {
        match std::str::from_utf8(bytes) {
            Ok(_) => true,
            Err(error) if error.error_len().is_some() => false,
            Err(error) => {
                let end = &bytes[error.valid_up_to()..];
                self.part[..end.len()].copy_from_slice(end);
                self.len = end.len() as u8;
                true
            }
        }
    }
}
