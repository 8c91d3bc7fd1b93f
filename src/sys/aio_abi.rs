//! The structures of the kernel: requests, completions, the ring of completions
//! (linux/aio_abi.h, fs/aio.c).

#![allow(unsafe_code)]
//! # Safety
//!
//! An [`AioRing`] is mapped for as long as its context lives; of its header we write the head only,
//! the kernel the tail.

use std::mem::offset_of;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::sys::file_request::FileCompletion;

/// `struct iocb`. The kernel copies it at submission, and writes `key` into ours. Apart from that,
/// the kernel uses the address only as a name.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Iocb {
    pub(super) data: u64,
    #[cfg(target_endian = "big")]
    pub(super) rw_flags: u32,
    pub(super) key: u32,
    #[cfg(target_endian = "little")]
    pub(super) rw_flags: u32,
    pub(super) code: u16,
    pub(super) priority: i16,
    pub(super) fd: u32,
    pub(super) start: u64,
    pub(super) len: u64,
    pub(super) offset: i64,
    pub(super) reserved: u64,
    pub(super) flags: u32,
    pub(super) event_fd: u32,
}

const _: () = assert!(size_of::<Iocb>() == 64);
const _: () = assert!(offset_of!(Iocb, key) == if cfg!(target_endian = "little") { 8 } else { 12 });
const _: () = assert!(offset_of!(Iocb, code) == 16);
const _: () = assert!(offset_of!(Iocb, fd) == 20);
const _: () = assert!(offset_of!(Iocb, start) == 24);
const _: () = assert!(offset_of!(Iocb, offset) == 40);
const _: () = assert!(offset_of!(Iocb, flags) == 56);
const _: () = assert!(offset_of!(Iocb, event_fd) == 60);

/// `IOCB_FLAG_RESFD`: the completion is signalled through `event_fd`.
pub(super) const SIGNALLED: u32 = 1;

/// `struct io_event`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct IoEvent {
    data: u64,
    /// The address of the iocb.
    name: u64,
    result: i64,
    result2: i64,
}

const _: () = assert!(size_of::<IoEvent>() == 32);
const _: () = assert!(offset_of!(IoEvent, result) == 16);

impl IoEvent {
    pub(super) const NONE: IoEvent = IoEvent { data: 0, name: 0, result: 0, result2: 0 };

    pub(super) fn completed(self) -> FileCompletion {
        FileCompletion { key: self.data, result: self.result as i32 }
    }
}

/// `struct aio_ring`, which stands at a context's address. The events follow it.
#[repr(C)]
pub(super) struct Header {
    id: u32,
    /// Events that it has room for.
    count: u32,
    head: AtomicU32,
    tail: AtomicU32,
    magic: u32,
    compatible: u32,
    incompatible: u32,
    length: u32,
}

const _: () = assert!(size_of::<Header>() == 32);
const _: () = assert!(offset_of!(Header, head) == 8);
const _: () = assert!(offset_of!(Header, magic) == 16);
const _: () = assert!(offset_of!(Header, length) == 28);

/// The ring of completions: the kernel produces, we consume.
#[derive(Clone, Copy)]
pub(super) struct AioRing {
    at: NonNull<Header>,
    pub(super) count: u32,
}

impl AioRing {
    /// The ring at a context's address, if it is one that we know how to read.
    pub(super) fn of(context: usize) -> Option<AioRing> {
        let at = NonNull::new(std::ptr::with_exposed_provenance_mut::<Header>(context))?;
        // SAFETY: io_setup(2) has mapped at least a page there, and written a header to it.
        let header = unsafe { at.as_ref() };
        let known = header.magic == 0xa10a_10a1
            && header.compatible == 1
            && header.incompatible == 0
            && header.length as usize == size_of::<Header>();
        (known && header.count > 1).then_some(AioRing { at, count: header.count })
    }

    fn header(&self) -> &Header {
        // SAFETY: mapped for as long as the context lives, which owns this; no code writes the
        // members that are not atomic.
        unsafe { self.at.as_ref() }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        let header = self.header();
        header.head.load(Ordering::Relaxed) == header.tail.load(Ordering::Relaxed)
    }

    /// Takes the completions that are available. Returns their number. The kernel counts a slot as
    /// free once the head has passed it. It looks at the head when it is short of slots.
    #[inline]
    pub(super) fn take(&mut self, into: &mut Vec<FileCompletion>) -> u32 {
        let header = self.header();
        let mut head = header.head.load(Ordering::Relaxed);
        // Pairs with the barrier between event and tail in aio_complete().
        let tail = header.tail.load(Ordering::Acquire);
        // SAFETY: the events follow the header.
        let events = unsafe { self.at.add(1) }.cast::<IoEvent>();
        let mut count = 0;
        while head != tail {
            // SAFETY: `head` is less than the number of events.
            let event = unsafe { events.add(head as usize) };
            // SAFETY: the kernel has written it, as the tail says, and will not again before it
            // sees the head.
            into.push(unsafe { event.read() }.completed());
            head = if head + 1 >= self.count { 0 } else { head + 1 };
            count += 1;
        }
        if count > 0 {
            header.head.store(head, Ordering::Release);
        }
        count
    }
}
