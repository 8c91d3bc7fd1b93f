//! What an operation carries besides its buffer: nothing, an address, an offset in a file, or more.

#![allow(unsafe_code)]
//! # Safety
//!
//! (X1) The tag in the low bits says what stands above them: with `ADDRESS` the pointer of a boxed
//! `Body`, with `ARGUMENTS` that of boxed `Arguments`, owned by this value; with `OFFSET` a number.

use std::fmt;
use std::mem;
use std::ptr;

use crate::file::Arguments;
use crate::words::address::{Address, Body};

/// One word: an operation stays within a cache line.
pub(crate) struct Payload(*mut ());

const ADDRESS: usize = 0;
const OFFSET: usize = 1;
const ARGUMENTS: usize = 2;
const TAG: usize = 7;
const TAG_BITS: u32 = 3;

const _: () = assert!(size_of::<Payload>() == 8, "an offset does not fit into a word");

// SAFETY: it owns an `Address` or `Arguments`, which are `Send`, or nothing.
unsafe impl Send for Payload {}
// SAFETY: through a shared reference, code can get only a number.
unsafe impl Sync for Payload {}
const _: () = {
    const fn is_send<T: Send>() {}
    is_send::<Address>();
    is_send::<Arguments>();
    assert!(align_of::<Arguments>() > TAG && align_of::<Body>() > TAG);
};

impl Payload {
    pub(crate) const NONE: Payload = Payload(ptr::null_mut());

    /// Stands for this offset and all beyond it, at which no operation can be.
    pub(crate) const MOST_OFFSET: u64 = u64::MAX >> TAG_BITS;

    pub(crate) fn offset(offset: u64) -> Payload {
        let number = offset.min(Self::MOST_OFFSET) << TAG_BITS;
        Payload(ptr::without_provenance_mut(number as usize | OFFSET))
    }

    fn tag(&self) -> usize {
        self.0.addr() & TAG
    }

    /// The offset; 0 where there is none.
    pub(crate) fn as_offset(&self) -> u64 {
        if self.tag() == OFFSET { self.0.addr() as u64 >> TAG_BITS } else { 0 }
    }

    /// Whether it is an address.
    pub(crate) fn is_address(&self) -> bool {
        !self.0.is_null() && self.tag() == ADDRESS
    }

    /// Takes the address out, if it is one.
    pub(crate) fn take_address(&mut self) -> Option<Address> {
        if self.0.is_null() || self.tag() != ADDRESS {
            return None;
        }
        let raw = mem::replace(&mut self.0, ptr::null_mut());
        // SAFETY: X1, and `self` has given it up.
        Some(Address(unsafe { Box::from_raw(raw.cast::<Body>()) }))
    }

    /// Takes the arguments out, if it is such.
    pub(crate) fn take_arguments(&mut self) -> Option<Box<Arguments>> {
        if self.tag() != ARGUMENTS {
            return None;
        }
        let raw = mem::replace(&mut self.0, ptr::null_mut());
        // SAFETY: X1, and `self` has given it up.
        Some(unsafe { Box::from_raw(raw.map_addr(|addr| addr & !TAG).cast::<Arguments>()) })
    }
}

impl From<Box<Arguments>> for Payload {
    fn from(arguments: Box<Arguments>) -> Payload {
        let raw: *mut () = Box::into_raw(arguments).cast();
        Payload(raw.map_addr(|addr| addr | ARGUMENTS))
    }
}

impl From<Address> for Payload {
    fn from(address: Address) -> Payload {
        let raw: *mut () = Box::into_raw(address.0).cast();
        debug_assert!(raw.addr() & TAG == ADDRESS);
        Payload(raw)
    }
}

impl From<Option<Address>> for Payload {
    fn from(address: Option<Address>) -> Payload {
        address.map_or(Payload::NONE, Payload::from)
    }
}

impl Drop for Payload {
    #[inline]
    fn drop(&mut self) {
        if !self.0.is_null() {
            drop(self.take_address());
            drop(self.take_arguments());
        }
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.tag() {
            _ if self.0.is_null() => f.write_str("Payload(none)"),
            OFFSET => write!(f, "Payload(offset {})", self.as_offset()),
            ARGUMENTS => f.write_str("Payload(arguments)"),
            _ => f.write_str("Payload(address)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::source::Source;

    #[test]
    fn what_goes_in_comes_out() {
        let mut none = Payload::NONE;
        assert!(none.take_address().is_none() && none.as_offset() == 0);
        for offset in [0, 1, 4096, u64::MAX >> 8, Payload::MOST_OFFSET] {
            let mut payload = Payload::offset(offset);
            assert_eq!(payload.as_offset(), offset);
            assert!(payload.take_address().is_none());
        }
        let address = Address::from(([127, 0, 0, 1], 7007));
        let mut payload = Payload::from(address.clone());
        assert_eq!(payload.as_offset(), 0);
        assert_eq!(payload.take_address(), Some(address.clone()));
        assert!(payload.take_address().is_none());
        drop(Payload::from(address)); // Miri sees a leak

        let range = |offset| Box::new(Arguments::Range { file: Source::NONE, offset });
        let mut payload = Payload::from(range(7));
        assert!(payload.take_address().is_none() && payload.as_offset() == 0);
        assert!(matches!(*payload.take_arguments().unwrap(), Arguments::Range { offset: 7, .. }));
        assert!(payload.take_arguments().is_none());
        drop(Payload::from(range(8)));
    }
}
