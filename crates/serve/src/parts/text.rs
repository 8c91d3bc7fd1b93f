//! Text that is to be encrypted, where it lies.

/// Text in one place, or in two. The library takes both together, so that they are not put together
/// before.
#[derive(Clone, Copy)]
pub(crate) struct Text<'a>(pub(crate) [&'a [u8]; 2]);

impl<'a> From<&'a [u8]> for Text<'a> {
    fn from(bytes: &'a [u8]) -> Text<'a> {
        Text([bytes, &[]])
    }
}

impl Text<'_> {
    pub(crate) fn len(&self) -> usize {
        self.0[0].len() + self.0[1].len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets the first bytes.
    pub(crate) fn pass(&mut self, count: usize) {
        let [first, second] = self.0;
        let of_first = count.min(first.len());
        self.0 = [&first[of_first..], &second[count - of_first..]];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_parts_pass() {
        for count in 0..=5 {
            let mut text = Text([b"ab", b"cde"]);
            text.pass(count);
            assert_eq!((text.len(), text.0.concat()), (5 - count, b"abcde"[count..].to_vec()));
            assert_eq!(text.is_empty(), count == 5);
        }
    }
}
