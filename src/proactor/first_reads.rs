//! Whether the first read of a socket is worth a try before the selector knows the socket.
//!
//! If there is something, the selector need not be asked; if there is nothing, the try is a system
//! call for nothing, because registering looks as well. Which it is depends on the clients and on
//! how busy the loop is: the last sockets tell.

/// So many tries in a row for nothing, and the next are left out.
const MOST_VAIN: u32 = 4;
/// One of so many is tried nevertheless.
const PROBE: u32 = 16;

/// The results of the last first reads.
#[derive(Debug, Default)]
pub(super) struct FirstReads {
    /// How many there were since one has found something, the ones left out among them.
    vain: u32,
}

impl FirstReads {
    /// Whether the next one is to be tried.
    #[inline]
    pub(super) fn is_worth_it(&mut self) -> bool {
        if self.vain < MOST_VAIN {
            return true;
        }
        self.vain = MOST_VAIN + (self.vain - MOST_VAIN + 1) % PROBE;
        self.vain == MOST_VAIN
    }

    /// One was tried.
    #[inline]
    pub(super) fn note(&mut self, found: bool) {
        self.vain = match (found, self.vain) {
            (true, _) => 0,
            (false, vain) if vain < MOST_VAIN => vain + 1,
            (false, vain) => vain,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_left_out_while_they_find_nothing() {
        let mut reads = FirstReads::default();
        let mut tries = |found: bool, count: u32| -> u32 {
            let mut tried = 0;
            for _ in 0..count {
                if reads.is_worth_it() {
                    reads.note(found);
                    tried += 1;
                }
            }
            tried
        };
        assert_eq!(tries(true, 100), 100);
        assert_eq!(tries(false, MOST_VAIN), MOST_VAIN);
        assert_eq!(tries(false, 10 * PROBE), 10);
        assert_eq!(tries(true, 100 + PROBE - 1), 100, "the first probe finds something");
        assert_eq!(tries(false, MOST_VAIN + PROBE), MOST_VAIN + 1);
    }
}
