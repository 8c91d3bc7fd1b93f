//! The framing allocates nothing while frames arrive whole.
#![allow(missing_docs)] // a test binary has no users

use windlass::Watcher;
use windlass_serve::framing::{Decoder, Delimited, Ending, Error, Input, Lines, Prefix, Prefixed};

#[path = "../../../tests/common/alloc.rs"]
mod alloc;

/// How many allocations `work` makes.
fn allocations(work: impl FnOnce()) -> u64 {
    let before = alloc::allocations();
    work();
    alloc::allocations() - before
}

/// Leases of `bytes`, which have frames in them, decoded again and again.
fn whole(bytes: &[u8], frames: usize, mut decoder: impl Decoder<Error = Error>) -> u64 {
    let mut watcher = Watcher::new().expect("a watcher");
    let mut input = Input::new();
    let mut round = || {
        let fill = |space: &mut [u8]| {
            space[..bytes.len()].copy_from_slice(bytes);
            bytes.len()
        };
        input.push(watcher.lease(fill).expect("a lease"));
        let mut found = 0;
        while let Some(frame) = input.next(&mut decoder).expect("frames") {
            found += 1;
            // One by its bytes, one as a part of the lease.
            if found % 2 == 0 {
                assert!(frame.into_buf().is_lease());
            }
        }
        assert_eq!(found, frames);
    };
    round(); // the first lease allocates its swap buffer
    allocations(|| (0..100).for_each(|_| round()))
}

#[test]
fn frames_that_arrive_whole_allocate_nothing() {
    assert_eq!(whole(b"GET a\r\nGET b\r\n\r\n", 3, Lines::with_ending(Ending::CrLf, 100)), 0);
    assert_eq!(whole(b"a: b\r\n\r\n\r\n\r\n", 2, Delimited::new(b"\r\n\r\n", 100)), 0);
    assert_eq!(whole(b"\0\0\0\x02ab\0\0\0\0", 2, Prefixed::new(Prefix::U32Be, 100)), 0);
    assert_eq!(whole(b"\x81\0a\x02bc", 2, Prefixed::new(Prefix::Varint, 100)), 0);
    // The count counts.
    assert_eq!(allocations(|| drop(Vec::<u8>::with_capacity(1))), 1);
}

#[test]
fn encoding_into_memory_that_is_there_allocates_nothing() {
    let mut out = Vec::with_capacity(100);
    let count = allocations(|| {
        Lines::new(10).encode(b"line", &mut out).expect("a line");
        Delimited::new(b"--", 10).encode(b"part", &mut out).expect("a part");
        Prefixed::new(Prefix::Varint, 10).encode(b"frame", &mut out).expect("a frame");
    });
    assert_eq!((count, &*out), (0, &b"line\npart--\x05frame"[..]));
}
