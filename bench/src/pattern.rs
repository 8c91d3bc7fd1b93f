//! The bytes of messages and files, so that a client can compare every byte.

/// Prime, so that no length of a message divides it: a byte at the wrong place is another byte.
pub const PERIOD: usize = 65_521;

/// The pattern, long enough for `len` bytes from each place of its period.
pub fn of(len: usize) -> Vec<u8> {
    let byte = |at: usize| (at % PERIOD).wrapping_mul(0x9E37_79B1).to_be_bytes()[4];
    (0..PERIOD + len).map(byte).collect()
}

/// Where in the pattern the file or the connection of this number starts.
pub fn start(number: usize) -> usize {
    number * 31 % PERIOD
}

/// The first `len` bytes that a reader of number 0 expects.
pub fn repeated(len: usize) -> Vec<u8> {
    of(0).into_iter().cycle().take(len).collect()
}
