//! The mask of a frame.

/// Puts a mask on bytes in place, or takes it off: both are the same.
///
/// ```
/// let (key, mut bytes) = ([1, 2, 3, 4], *b"hello");
/// windlass_websocket::mask(key, &mut bytes);
/// assert_ne!(&bytes, b"hello");
/// windlass_websocket::mask(key, &mut bytes);
/// assert_eq!(&bytes, b"hello");
/// ```
#[inline]
pub fn mask(key: [u8; 4], bytes: &mut [u8]) {
    let (words, rest) = bytes.as_chunks_mut();
    // A plain loop over words, which the compiler turns into vector instructions.
    for word in words {
        *word = (u32::from_ne_bytes(*word) ^ u32::from_ne_bytes(key)).to_ne_bytes();
    }
    for (byte, key) in rest.iter_mut().zip(key) {
        *byte ^= key;
    }
}
