//! Buffers: moved into an operation, moved back with its completion.

#![allow(unsafe_code)]
//! # Safety
//!
//! Reads fill the spare capacity of a `Vec` through a raw pointer; its length is set to what the
//! kernel says it has written. No reference to uninitialised bytes is ever made.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;

use crate::swap::Lease;

/// The bytes of an operation: what a write sends, where a read lands, what a completion returns.
///
/// A closed set of owners. As the buffer of a write it can be a `Vec<u8>`, a `Box<[u8]>`, a
/// `String`, `&'static [u8]` or `&'static str`, an `Arc<[u8]>`, a [`Lease`], a list of those
/// (vectored), or any owner through [`Buf::from_owner`]. As the buffer of a read it is a `Vec<u8>`,
/// whose **whole capacity** is offered from its start and whose length is then the number of bytes
/// read, so that the same `Vec` can be submitted again and again; or a list of such.
///
/// ```
/// use windlass::Buf;
/// let buf = Buf::from(vec![1, 2, 3]);
/// assert_eq!(&*buf, [1, 2, 3]);
/// assert_eq!(buf.into_vec(), [1, 2, 3]);
/// assert!(Buf::default().is_eof());
/// ```
#[derive(Default)]
pub struct Buf(pub(crate) Repr);

#[derive(Default)]
pub(crate) enum Repr {
    #[default]
    None,
    Vec(Vec<u8>),
    Static(&'static [u8]),
    Shared(Arc<[u8]>),
    Lease(Lease),
    // A `Box` keeps `Buf` at 24 bytes: vectors of buffers are rare, buffers are everywhere.
    List(Box<Vec<Buf>>),
    Owner(Box<Owner>),
}

pub(crate) struct Owner {
    /// The bytes that `owner` borrowed out once; `owner` is not touched again until it drops.
    bytes: *const [u8],
    /// From `Box::into_raw`: moving a `Box` would claim to be its only user.
    owner: *mut (dyn Send + 'static),
}

impl Drop for Owner {
    fn drop(&mut self) {
        // SAFETY: the pointer comes from `Box::into_raw` and is given back once.
        drop(unsafe { Box::from_raw(self.owner) });
    }
}

// SAFETY: the bytes are owned by `owner`, which is `Send`, and are only read.
unsafe impl Send for Owner {}
// SAFETY: through a shared reference only the bytes can be read, and nothing writes them.
unsafe impl Sync for Owner {}

const _: () = assert!(size_of::<Buf>() <= 32);

impl Buf {
    /// A buffer whose bytes belong to `owner`, for example a `bytes::Bytes` or a memory map.
    /// `as_ref` is called once.
    pub fn from_owner<T: AsRef<[u8]> + Send + 'static>(owner: T) -> Buf {
        let owner = Box::into_raw(Box::new(owner));
        // SAFETY: a live allocation from right above; it is not touched again until it drops.
        let bytes: *const [u8] = unsafe { (*owner).as_ref() };
        Buf(Repr::Owner(Box::new(Owner { bytes, owner })))
    }

    /// The number of bytes; of all parts for a list.
    #[inline]
    pub fn len(&self) -> usize {
        match &self.0 {
            Repr::List(parts) => parts.iter().map(Buf::len).sum(),
            _ => self.as_slice().len(),
        }
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the read that returned this has met the end of the file: it has no bytes. (A read
    /// into no room is refused, so nothing else reads as empty; an empty *datagram* is one, too.)
    #[inline]
    pub fn is_eof(&self) -> bool {
        self.is_empty()
    }

    /// The bytes; of the first part for a list.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        match &self.0 {
            Repr::Lease(lease) => lease,
            Repr::Vec(vec) => vec,
            Repr::Static(bytes) => bytes,
            Repr::Shared(bytes) => bytes,
            Repr::None => &[],
            Repr::List(parts) => parts.first().map_or(&[], |part| part.as_slice()),
            // SAFETY: `from_owner` borrowed the bytes from the owner, which is alive and untouched.
            Repr::Owner(owner) => unsafe { &*owner.bytes },
        }
    }

    /// The parts of a list; a single part otherwise.
    pub fn parts(&self) -> &[Buf] {
        match &self.0 {
            Repr::List(parts) => parts,
            _ => std::slice::from_ref(self),
        }
    }

    /// The parts of a list; a single part otherwise.
    pub fn into_parts(self) -> Vec<Buf> {
        match self.0 {
            Repr::List(parts) => *parts,
            repr => vec![Buf(repr)],
        }
    }

    /// The bytes as a `Vec`: the very one that was moved in where it was one, else a copy.
    pub fn into_vec(self) -> Vec<u8> {
        match self.0 {
            Repr::Vec(vec) => vec,
            Repr::List(parts) => parts
                .iter()
                .flat_map(|part| part.as_slice())
                .copied()
                .collect(),
            repr => Buf(repr).as_slice().to_vec(),
        }
    }

    /// The lease, where the bytes are the library's.
    pub fn into_lease(self) -> Result<Lease, Buf> {
        match self.0 {
            Repr::Lease(lease) => Ok(lease),
            repr => Err(Buf(repr)),
        }
    }

    /// The lease, where the bytes are the library's.
    pub fn as_lease(&self) -> Option<&Lease> {
        match &self.0 {
            Repr::Lease(lease) => Some(lease),
            _ => None,
        }
    }

    /// How many bytes a read into this buffer can take: the capacity of its vectors.
    pub fn room(&self) -> usize {
        match &self.0 {
            Repr::Vec(vec) => vec.capacity(),
            Repr::List(parts) => parts.iter().map(Buf::room).sum(),
            _ => 0,
        }
    }

    /// The memory from byte `from` of a vector's capacity on, at most `most` bytes of it: where a
    /// driver lets the kernel write. Empty for what cannot be read into.
    #[inline]
    pub fn target(&mut self, from: usize, most: usize) -> Target<'_> {
        match &mut self.0 {
            Repr::Vec(vec) => {
                let len = vec.capacity().saturating_sub(from).min(most);
                let from = from.min(vec.capacity());
                // SAFETY: `from` is at most the capacity, so the pointer stays in the allocation.
                let start = unsafe { vec.as_mut_ptr().add(from) };
                Target {
                    start,
                    len,
                    owner: PhantomData,
                }
            }
            _ => Target {
                start: std::ptr::dangling_mut(),
                len: 0,
                owner: PhantomData,
            },
        }
    }

    /// The targets of a list from byte `from` of its whole room on, at most `most` of them.
    pub(crate) fn targets<'a>(
        &'a mut self,
        mut from: usize,
        targets: &mut Vec<Target<'a>>,
        most: usize,
    ) {
        let Repr::List(parts) = &mut self.0 else {
            return;
        };
        for part in parts.iter_mut() {
            let room = part.room();
            if from >= room {
                from -= room;
                continue;
            }
            if targets.len() == most {
                return;
            }
            targets.push(part.target(from, usize::MAX));
            from = 0;
        }
    }

    /// Says that the first `len` bytes of the room have been written: a vector's length becomes
    /// that, a list's vectors are filled one after the other.
    ///
    /// # Safety
    /// The kernel (or the driver, through [`Target`]) has written these bytes.
    pub unsafe fn set_filled(&mut self, mut len: usize) {
        match &mut self.0 {
            Repr::Vec(vec) => {
                let len = len.min(vec.capacity());
                // SAFETY: at most the capacity, and written, says the caller.
                unsafe { vec.set_len(len) }
            }
            Repr::List(parts) => {
                for part in parts.iter_mut() {
                    let share = len.min(part.room());
                    // SAFETY: as for this function: the parts are filled in order.
                    unsafe { part.set_filled(share) };
                    len -= share;
                }
            }
            _ => {}
        }
    }

    /// Takes the buffer out, leaving nothing.
    #[inline]
    pub(crate) fn take(&mut self) -> Buf {
        std::mem::take(self)
    }

    #[inline]
    pub(crate) fn is_list(&self) -> bool {
        matches!(self.0, Repr::List(_))
    }
}

/// Where a kernel writes what it has received: memory that belongs to an operation.
///
/// The bytes may be uninitialised, so they can be written but not read.
#[derive(Debug)]
pub struct Target<'a> {
    start: *mut u8,
    len: usize,
    owner: PhantomData<&'a mut [u8]>,
}

impl<'a> Target<'a> {
    /// The memory of `bytes`.
    pub fn from_slice(bytes: &'a mut [u8]) -> Target<'a> {
        Target {
            start: bytes.as_mut_ptr(),
            len: bytes.len(),
            owner: PhantomData,
        }
    }

    /// `len` bytes at `start`.
    ///
    /// # Safety
    /// They can be written, and nothing else reads or writes them, for `'a`.
    #[inline]
    pub unsafe fn from_raw(start: *mut u8, len: usize) -> Target<'a> {
        Target {
            start,
            len,
            owner: PhantomData,
        }
    }

    /// How many bytes fit.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing fits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Where they start.
    #[inline]
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.start
    }

    /// Copies as much of `bytes` as fits to the start of the memory; answers how much that was.
    #[inline]
    pub fn write(&mut self, bytes: &[u8]) -> usize {
        let len = bytes.len().min(self.len);
        // SAFETY: the memory is exclusively ours for `'a` and at least `len` bytes long.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.start, len) };
        len
    }

    /// The memory behind the first `n` bytes.
    pub fn skip(&mut self, n: usize) -> Target<'_> {
        let n = n.min(self.len);
        // SAFETY: `n` is at most the length, so the pointer stays in the allocation.
        Target {
            start: unsafe { self.start.add(n) },
            len: self.len - n,
            owner: PhantomData,
        }
    }
}

impl Deref for Buf {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl AsRef<[u8]> for Buf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Buf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let owner = match &self.0 {
            Repr::None => return write!(f, "Buf(none)"),
            Repr::Vec(_) => "Vec",
            Repr::Static(_) => "static",
            Repr::Shared(_) => "Arc",
            Repr::Lease(_) => "Lease",
            Repr::List(parts) => return f.debug_list().entries(parts.iter()).finish(),
            Repr::Owner(_) => "owner",
        };
        write!(f, "Buf({owner}, {} bytes)", self.len())
    }
}

impl From<Vec<u8>> for Buf {
    fn from(vec: Vec<u8>) -> Buf {
        Buf(Repr::Vec(vec))
    }
}
impl From<Box<[u8]>> for Buf {
    fn from(bytes: Box<[u8]>) -> Buf {
        Buf(Repr::Vec(bytes.into_vec()))
    }
}
impl From<String> for Buf {
    fn from(text: String) -> Buf {
        Buf(Repr::Vec(text.into_bytes()))
    }
}
impl From<&'static [u8]> for Buf {
    fn from(bytes: &'static [u8]) -> Buf {
        Buf(Repr::Static(bytes))
    }
}
impl<const N: usize> From<&'static [u8; N]> for Buf {
    fn from(bytes: &'static [u8; N]) -> Buf {
        Buf(Repr::Static(bytes))
    }
}
impl From<&'static str> for Buf {
    fn from(text: &'static str) -> Buf {
        Buf(Repr::Static(text.as_bytes()))
    }
}
impl From<Arc<[u8]>> for Buf {
    fn from(bytes: Arc<[u8]>) -> Buf {
        Buf(Repr::Shared(bytes))
    }
}
impl From<Lease> for Buf {
    #[inline]
    fn from(lease: Lease) -> Buf {
        Buf(Repr::Lease(lease))
    }
}
impl From<Vec<Buf>> for Buf {
    fn from(parts: Vec<Buf>) -> Buf {
        Buf(Repr::List(Box::new(parts)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_fills_the_whole_capacity_of_a_vec_and_can_be_repeated() {
        let mut buf = Buf::from(vec![9; 4]);
        for text in ["abcd", "xy", "1234"] {
            let n = buf.target(0, usize::MAX).write(text.as_bytes());
            // SAFETY: `n` bytes were written right above.
            unsafe { buf.set_filled(n) };
            assert_eq!(&*buf, text.as_bytes());
            assert_eq!(buf.room(), 4);
        }
    }

    #[test]
    fn lists_are_filled_in_order() {
        let mut buf = Buf::from(vec![Buf::from(vec![0; 3]), Buf::from(vec![0; 2])]);
        let mut targets = Vec::new();
        buf.targets(1, &mut targets, 8);
        assert_eq!(targets.iter().map(Target::len).collect::<Vec<_>>(), [2, 2]);
        targets[0].write(b"bc");
        targets[1].write(b"d");
        buf.target(0, 1);
        // SAFETY: byte 0 was initialised by `vec!`, the others right above.
        unsafe { buf.set_filled(4) };
        assert_eq!(buf.parts()[0].len(), 3);
        assert_eq!(&*buf.parts()[1], b"d");
        assert_eq!(buf.into_vec(), b"\0bcd");
    }

    #[test]
    fn owners_are_borrowed_once_and_dropped_once() {
        struct Counted(Arc<()>, [u8; 3]);
        impl AsRef<[u8]> for Counted {
            fn as_ref(&self) -> &[u8] {
                &self.1
            }
        }
        let alive = Arc::new(());
        let buf = Buf::from_owner(Counted(alive.clone(), *b"own"));
        assert_eq!(&*buf, b"own");
        drop(buf);
        assert_eq!(Arc::strong_count(&alive), 1);
    }
}
