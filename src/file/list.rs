//! Lists of buffers in the form that a kernel takes: the vectors of readv(2) and writev(2).

use std::fmt;

use super::position::each_slice;
use crate::memory::buf::Buf;
use crate::sys::fs::{MOST_BYTES, MOST_VECTORS, Vector};

/// Memory in parts, in the order of the bytes. An array describes the parts (of `struct iovec`
/// where the system has it), and the array does not move until the answer.
#[derive(Clone, Copy)]
pub struct FileList<'a>(&'a [Vector]);

impl FileList<'_> {
    /// Where each part starts, and how many bytes it has. Each part has at least one byte.
    pub fn parts(&self) -> impl Iterator<Item = (*mut u8, usize)> + '_ {
        self.0.iter().map(|vector| (vector.iov_base.cast(), vector.iov_len))
    }

    pub(crate) fn vectors(&self) -> &[Vector] {
        self.0
    }
}

impl fmt::Debug for FileList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.parts()).finish()
    }
}

/// The vectors of a list of buffers, starting at one of its bytes: as many as one call takes, and
/// none without bytes. The vectors hold addresses, which are valid as long as the list. A
/// `ListVectors` can be filled again, and keeps its memory.
#[derive(Default)]
pub(crate) struct ListVectors(Vec<Vector>);

impl ListVectors {
    /// The vectors that a read fills.
    pub(crate) fn of_room(mut self, list: &mut Buf, from: usize) -> ListVectors {
        self.0.clear();
        list.each_target(from, MOST_BYTES, MOST_VECTORS, |mut target| {
            self.0.push(vector(target.as_mut_ptr(), target.len()));
        });
        self
    }

    /// The vectors that a write sends.
    pub(crate) fn of_bytes(mut self, list: &Buf, from: usize) -> ListVectors {
        self.0.clear();
        each_slice(list.parts(), from, |slice| {
            self.0.push(vector(slice.as_ptr().cast_mut(), slice.len()));
        });
        self
    }

    pub(crate) fn list(&self) -> FileList<'_> {
        FileList(&self.0)
    }
}

fn vector(start: *mut u8, len: usize) -> Vector {
    Vector { iov_base: start.cast(), iov_len: len }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lens(vectors: &ListVectors) -> Vec<usize> {
        vectors.list().parts().map(|(_, len)| len).collect()
    }

    #[test]
    fn vectors_start_at_a_byte_and_have_bytes() {
        let parts = [0, 3, 0, 5, 4].map(|len| Buf::from(vec![7; len]));
        let mut list = Buf::list(parts);
        for (from, wanted) in
            [(0, &[3, 5, 4][..]), (2, &[1, 5, 4]), (3, &[5, 4]), (11, &[1]), (12, &[])]
        {
            let wanted = &wanted[..wanted.len().min(MOST_VECTORS)];
            assert_eq!(lens(&ListVectors::default().of_bytes(&list, from)), wanted);
            assert_eq!(lens(&ListVectors::default().of_room(&mut list, from)), wanted);
        }
        let vectors = ListVectors::default().of_bytes(&list, 4);
        let (start, _) = vectors.list().parts().next().unwrap();
        assert_eq!(start.cast_const(), &raw const list.parts()[3][1]);
    }

    #[test]
    fn one_call_takes_so_many() {
        let parts = (0..MOST_VECTORS + 5).map(|_| Buf::from("ab"));
        let list = Buf::list(parts);
        assert_eq!(lens(&ListVectors::default().of_bytes(&list, 1)).len(), MOST_VECTORS);
        assert_eq!(
            lens(&ListVectors::default().of_bytes(&list, 2 * MOST_VECTORS)),
            vec![2; MOST_VECTORS.min(5)]
        );
    }
}
