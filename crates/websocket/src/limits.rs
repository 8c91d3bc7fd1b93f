//! How much a message may have.

/// How much a message may have, each with a default.
///
/// ```
/// use windlass_websocket::Limits;
///
/// let limits = Limits { message: 1 << 20, ..Limits::default() };
/// assert_eq!(limits.fragments, 131_072);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Bytes of a message. A compressed one may be sent in an eighth and 64 bytes more, because
    /// what does not get smaller gets larger. How many bytes it inflates to is for the inflater to
    /// limit. The default is 1 MiB. Beyond: 1009.
    pub message: u64,
    /// Frames of a message. The default is 131,072. Beyond: 1009.
    pub fragments: u32,
}

impl Limits {
    /// How many bytes the payload of a message may have. zlib's `compressBound` is the least that
    /// works with each of its settings: stored blocks have 5 bytes more for each 127, and codes of
    /// 9 bits an eighth.
    pub(crate) const fn payload(&self, is_compressed: bool) -> u64 {
        match is_compressed {
            true => self.message.saturating_add(self.message / 8 + 64),
            false => self.message,
        }
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { message: 1 << 20, fragments: 131_072 }
    }
}
