//! Keys of masks.
//!
//! # Why
//! A page that knew the next key could choose the bytes that a proxy between sees (RFC 6455,
//! section 10.3). So a key is the keyed hash of a number: the standard library draws the hash's key
//! from the system, and no key tells anything of the next one.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

/// Keys that no page can foresee.
#[derive(Default)]
pub(crate) struct MaskKeys {
    keys: RandomState,
    count: u64,
    /// A hash makes two keys.
    spare: Option<[u8; 4]>,
    is_simulated: bool,
}

impl MaskKeys {
    /// Gives a seed of a simulation one trace.
    pub(crate) fn simulate(&mut self) {
        self.is_simulated = true;
    }

    fn draw(&mut self) -> u64 {
        self.count += 1;
        match self.is_simulated {
            true => BuildHasherDefault::<DefaultHasher>::default().hash_one(self.count),
            false => self.keys.hash_one(self.count),
        }
    }

    #[inline]
    pub(super) fn next(&mut self) -> [u8; 4] {
        if let Some(key) = self.spare.take() {
            return key;
        }
        let drawn = self.draw();
        self.spare = Some(((drawn >> 32) as u32).to_ne_bytes());
        (drawn as u32).to_ne_bytes()
    }

    /// The bytes of a `Sec-WebSocket-Key`.
    pub(super) fn of_handshake(&mut self) -> [u8; 16] {
        (u128::from(self.draw()) << 64 | u128::from(self.draw())).to_ne_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_differ_and_those_of_a_simulation_come_again() {
        let keys = |is_simulated: bool| {
            let mut keys = MaskKeys { is_simulated, ..MaskKeys::default() };
            ([keys.next(), keys.next(), keys.next()], keys.of_handshake())
        };
        let ([a, b, c], d) = keys(false);
        assert!(a != b && b != c && a != c);
        assert_ne!(keys(false), ([a, b, c], d));
        assert_eq!(keys(true), keys(true));
    }
}
