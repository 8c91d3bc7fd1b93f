//! Sizes of a window.

/// How far back a compressed message can refer: 2^9 to 2^15 bytes.
///
/// RFC 7692 also has windows of 2^8 bytes. zlib has none for compressing without a head: an offer
/// that asks for 8 is declined, and a peer that says 8 of its own direction is read with any.
///
/// ```
/// use windlass_websocket::deflate::Window;
///
/// let window = Window::new(12).unwrap();
/// assert_eq!((window.bits(), window.bytes()), (12, 4096));
/// assert_eq!(Window::new(8), None);
/// assert_eq!(Window::new(16), None);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Window(u8);

impl Window {
    /// 2^9 bytes.
    pub const MIN: Window = Window(9);
    /// 2^15 bytes: what a peer has that says nothing of windows.
    pub const MAX: Window = Window(15);
    /// How many there are.
    pub(super) const COUNT: usize = 7;

    /// The window of 2^`bits` bytes; `None` unless `bits` is in 9..=15.
    pub const fn new(bits: u8) -> Option<Window> {
        if bits < Window::MIN.0 || bits > Window::MAX.0 { None } else { Some(Window(bits)) }
    }

    /// Its size as the parameters of the extension have it: 9..=15.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Its size in bytes.
    pub const fn bytes(self) -> usize {
        1 << self.0
    }

    /// Its place in a list of all.
    pub(super) fn index(self) -> usize {
        usize::from(self.0 - Window::MIN.0)
    }
}
