//! Where the records of the input end.
//!
//! # Why
//!
//! The TLS library gets the input record by record. So all that a session says, such as how much it
//! has taken, does not depend on how the bytes arrive; and what comes behind the last record of TLS
//! is left to the caller.

/// The bytes in front of a record: its kind, its version and its length ([RFC 8446], section 5.1).
///
/// [RFC 8446]: https://www.rfc-editor.org/rfc/rfc8446
pub(super) const HEADER: usize = 5;

/// The record that the input is in.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Records {
    /// The beginning of its header.
    header: [u8; HEADER],
    /// How many bytes of the header have come.
    have: u8,
    /// How many bytes behind the header have to come.
    left: u16,
    /// Whether a record has ended.
    is_later: bool,
    /// Whether a record has come in several pieces since the last `forget`.
    is_split: bool,
    /// The longest record since the last `forget`.
    longest: u16,
}

impl Records {
    /// How many bytes of the input belong to the record that it is in.
    pub(super) fn piece(&self, input: &[u8]) -> usize {
        if usize::from(self.have) == HEADER {
            return usize::from(self.left).min(input.len());
        }
        let mut ahead = *self;
        let header = ahead.add_to_header(input);
        let body = usize::from(ahead.left).min(input.len() - header);
        header + body
    }

    /// Passes bytes that [`piece`](Records::piece) has measured, or fewer of them.
    pub(super) fn pass(&mut self, piece: &[u8]) {
        self.is_split |= self.have > 0;
        let header = self.add_to_header(piece);
        self.left -= (piece.len() - header) as u16; // at most `left`, as it was measured
        if usize::from(self.have) == HEADER && self.left == 0 {
            self.have = 0;
            self.is_later = true;
            self.longest = self.longest.max(u16::from_be_bytes([self.header[3], self.header[4]]));
        }
    }

    /// The header of the first record with these bytes, if it is not complete without them.
    pub(super) fn first_header(&self, input: &[u8]) -> Option<[u8; HEADER]> {
        let mut ahead = *self;
        (!self.is_later && self.header_len() < HEADER).then(|| {
            ahead.add_to_header(input);
            ahead.header
        })
    }

    /// How many bytes of the header have come.
    pub(super) fn header_len(&self) -> usize {
        usize::from(self.have)
    }

    /// Completes the header, and returns how many bytes of the input belong to it.
    fn add_to_header(&mut self, input: &[u8]) -> usize {
        let have = usize::from(self.have);
        let count = (HEADER - have).min(input.len());
        self.header[have..have + count].copy_from_slice(&input[..count]);
        self.have += count as u8;
        if count > 0 && usize::from(self.have) == HEADER {
            self.left = u16::from_be_bytes([self.header[3], self.header[4]]);
        }
        count
    }

    /// Whether the next byte begins a record.
    pub(super) fn is_between(&self) -> bool {
        self.have == 0
    }

    /// Whether the first record has not ended.
    pub(super) fn is_first(&self) -> bool {
        !self.is_later
    }

    /// How long the longest record is since the last `forget`, with its header.
    pub(super) fn longest(&self) -> usize {
        HEADER + usize::from(self.longest)
    }

    /// Whether a record has come in several pieces since the last `forget`.
    pub(super) fn was_split(&self) -> bool {
        self.is_split
    }

    /// Begins anew with the longest record, and with whether one was split.
    pub(super) fn forget(&mut self) {
        (self.longest, self.is_split) = (0, false);
    }

    /// The begin of the record that the input is in, or else of the last one.
    pub(super) fn header(&self) -> &[u8; HEADER] {
        &self.header
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ends of the pieces of an input that arrives in parts of this size.
    fn ends(input: &[u8], size: usize) -> Vec<usize> {
        let (mut records, mut at, mut ends) = (Records::default(), 0, Vec::new());
        for part in input.chunks(size) {
            let mut part = part;
            while !part.is_empty() {
                let count = records.piece(part);
                assert!(count > 0);
                records.pass(&part[..count]);
                (at, part) = (at + count, &part[count..]);
                if records.is_between() {
                    ends.push(at);
                }
            }
        }
        ends
    }

    #[test]
    fn records_end_where_they_end_for_every_cut() {
        let record = |len: usize| [vec![23, 3, 3, (len >> 8) as u8, len as u8], vec![7; len]];
        let lens = [1, 0, 300, 0, 0, 17];
        let input: Vec<u8> = lens.iter().flat_map(|len| record(*len)).flatten().collect();
        let mut sum = 0;
        let expected: Vec<usize> = lens.iter().map(|len| (sum += HEADER + len, sum).1).collect();
        for size in 1..=input.len() {
            assert_eq!(ends(&input, size), expected, "in parts of {size}");
        }
    }

    #[test]
    fn a_piece_that_is_taken_in_part_is_measured_again() {
        let mut records = Records::default();
        let input = [23, 3, 3, 0, 4, 1, 2, 3, 4, 23];
        assert_eq!(records.piece(&input), 9);
        for byte in &input[..9] {
            records.pass(&[*byte]);
        }
        assert!(records.is_between());
        assert_eq!((records.longest(), records.header()[0]), (9, 23));
        assert!(records.was_split());
        records.forget();
        assert_eq!((records.longest(), records.was_split()), (5, false));
    }
}
