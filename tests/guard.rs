//! The kernel writes where it was told, and not a byte further: every large allocation of this
//! binary ends right before an inaccessible page, swap buffers among them.
//!
//! A byte too many is `EFAULT` for the kernel and a signal for us.
#![cfg(all(target_os = "linux", not(windlass_kqueue)))]
#![allow(missing_docs, unreachable_pub)] // a test binary has no users
#![allow(unsafe_code)] // an allocator needs it

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::null_mut;

use common::*;
use windlass::{Buf, Done, Op, Watcher};

const PAGE: usize = 4096;
/// Allocations from here on are guarded.
const GUARDED: usize = PAGE;

struct Guarding;

/// The pages of an allocation: those that its bytes take, and the guard.
fn pages(layout: Layout) -> usize {
    layout.size().next_multiple_of(PAGE) + PAGE
}

/// Where the bytes start in their pages, so that they end at the guard. Only an alignment that does
/// not divide the size leaves room behind them.
fn offset(layout: Layout) -> usize {
    let free = pages(layout) - PAGE - layout.size();
    free - free % layout.align()
}

fn is_guarded(layout: Layout) -> bool {
    layout.size() >= GUARDED && layout.align() <= PAGE
}

// SAFETY: what is guarded has pages of its own, which are unmapped by the layout that mapped them;
// all else is passed on.
unsafe impl GlobalAlloc for Guarding {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !is_guarded(layout) {
            // SAFETY: the caller's promise.
            return unsafe { System.alloc(layout) };
        }
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping, not to be touched.
        let start = unsafe { libc::mmap(null_mut(), pages(layout), libc::PROT_NONE, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return null_mut();
        }
        let usable = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: all but the last page of the mapping.
        if unsafe { libc::mprotect(start, pages(layout) - PAGE, usable) } != 0 {
            return null_mut();
        }
        // SAFETY: within the mapping.
        unsafe { start.cast::<u8>().add(offset(layout)) }
    }
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        if !is_guarded(layout) {
            // SAFETY: the caller's promise.
            return unsafe { System.dealloc(memory, layout) };
        }
        // SAFETY: what `alloc` has added.
        let start = unsafe { memory.sub(offset(layout)) };
        // SAFETY: the mapping of `alloc`. A later write there gets a fault.
        unsafe { libc::munmap(start.cast(), pages(layout)) };
    }
    // `realloc` allocates, copies and frees.
}

#[global_allocator]
static ALLOCATOR: Guarding = Guarding;

/// Sizes around pages, and that of a swap buffer.
const SIZES: [usize; 8] = [1, 63, PAGE - 1, PAGE, PAGE + 1, 3 * PAGE + 7, 64 << 10, (64 << 10) + 1];

/// Bytes to write, owned by a type of our own.
struct Fenced(Vec<u8>);

impl AsRef<[u8]> for Fenced {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// The guard is there: what lies behind an allocation cannot be written, not by the kernel either.
fn expect_guard(data: &[u8]) {
    let (mut pipe, end) = ([0; 2], data.as_ptr_range().end);
    // SAFETY: room for two descriptors.
    assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
    // SAFETY: a byte of ours.
    assert_eq!(unsafe { libc::write(pipe[1], c"x".as_ptr().cast(), 1) }, 1);
    // SAFETY: nothing of ours lies there; that it fails is what is asked.
    let count = unsafe { libc::read(pipe[0], end.cast_mut().cast(), 1) };
    assert_eq!((count, std::io::Error::last_os_error().raw_os_error()), (-1, Some(libc::EFAULT)));
    for fd in pipe {
        // SAFETY: opened above.
        unsafe { libc::close(fd) };
    }
}

fn reads_and_writes_stay_inside<H: Harness>() {
    let mut b = H::bench();
    let unix = std::os::unix::net::UnixStream::pair().unwrap();
    let unix = (b.watcher.attach(unix.0).unwrap(), b.watcher.attach(unix.1).unwrap());
    for (here, there) in [b.pair(), unix] {
        for size in SIZES {
            // Twice as much as there is room for, and the rest by an exact read.
            let sent = pattern(2 * size, size as u64);
            let fresh = room(size);
            if size >= GUARDED {
                let start = fresh.as_ptr();
                // SAFETY: of the bytes only their place is used.
                expect_guard(unsafe { std::slice::from_raw_parts(start, fresh.capacity()) });
            }
            let into = b.submit(Op::read_into(there, fresh));
            let write = b.submit(Op::write(here, Buf::from_owner(Fenced(sent.clone()))));
            let mut got = expect_read(b.end(into)).into_vec();
            assert!((1..=size).contains(&got.len()));
            let left = sent.len() - got.len();
            let exact = b.submit(Op::read_exact(there, room(left), left));
            got.extend(expect_read(b.end(exact)).iter());
            expect_written(b.end(write));
            expect_same(&got, &sent);
        }
    }
    b.expect_all_ended();
}

/// Swap buffers of a size that is not a power of two are filled to their last byte.
fn swap_buffers_are_filled_to_the_end<H: Harness>() {
    const CHUNK: usize = 2 * PAGE + 64;
    let builder = Watcher::builder().buffer_size(CHUNK as u32).swap_limit(64 * CHUNK);
    let mut b = H::bench_with(builder);
    let (here, there) = b.pair();
    for multishot in [false, true] {
        let sent = pattern(20 * CHUNK + 5, 3);
        let write = b.submit(Op::write(here, sent.clone()));
        let mut got = Vec::new();
        let mut read = None;
        while got.len() < sent.len() {
            let ticket = *read.get_or_insert_with(|| {
                let op = Op::read(there);
                b.submit(if multishot { op.multishot() } else { op })
            });
            let c = b.end(ticket);
            if !c.has_more() {
                read = None;
            }
            let Ok(Done::Read(data)) = c.result else { panic!("{c:?}") };
            got.extend_from_slice(&data);
        }
        expect_written(b.end(write));
        expect_same(&got, &sent);
        if let Some(ticket) = read {
            b.watcher.cancel(ticket);
            b.end(ticket);
        }
    }
    b.expect_all_ended();
}

/// Memory that a read had is unmapped once the read was cancelled: nothing writes there any more.
fn what_is_cancelled_is_written_no_more<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    for size in SIZES {
        let read = b.submit(Op::read_exact(there, room(size), size));
        b.look();
        assert!(b.watcher.cancel(read));
        drop(b.end(read));
        let sent = pattern(size, 9);
        b.write(here, sent.clone());
        expect_same(&b.read_exact(there, size), &sent);
    }
    b.expect_all_ended();
}

macro_rules! stamp {
    ($($module:ident: $harness:ident),*) => {
        $(mod $module {
            #[test]
            fn reads_and_writes_stay_inside() {
                super::reads_and_writes_stay_inside::<super::$harness>();
            }
            #[test]
            fn swap_buffers_are_filled_to_the_end() {
                super::swap_buffers_are_filled_to_the_end::<super::$harness>();
            }
            #[test]
            fn what_is_cancelled_is_written_no_more() {
                super::what_is_cancelled_is_written_no_more::<super::$harness>();
            }
        })*
    };
}

stamp! { epoll: Epoll, uring: Uring }
