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
    /// Bytes of a message as it is sent: of a compressed one, its compressed bytes. The default is
    /// 1 MiB. Beyond: 1009.
    pub message: u64,
    /// Frames of a message. The default is 131,072. Beyond: 1009.
    pub fragments: u32,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { message: 1 << 20, fragments: 131_072 }
    }
}
