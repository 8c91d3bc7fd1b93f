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
    let wide = u64::from_ne_bytes([key[0], key[1], key[2], key[3], key[0], key[1], key[2], key[3]]);
    let mut chunks = bytes.chunks_exact_mut(8);
    for chunk in &mut chunks {
        let eight: &mut [u8; 8] = chunk.try_into().expect("eight bytes");
        *eight = (u64::from_ne_bytes(*eight) ^ wide).to_ne_bytes();
    }
    for (byte, key) in chunks.into_remainder().iter_mut().zip(key.iter().cycle()) {
        *byte ^= key;
    }
}
