//! An allocator that counts the allocations and the live bytes of each thread.
#![allow(unsafe_code, dead_code, unreachable_pub)] // an allocator; each test uses its own part

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static LIVE_BYTES: Cell<isize> = const { Cell::new(0) };
    static PEAK_BYTES: Cell<isize> = const { Cell::new(0) };
    static PEAK_BASE: Cell<isize> = const { Cell::new(0) };
}

fn count(allocations: u64, bytes: isize) {
    // A thread that ends may still free memory after its counters are gone.
    let _ = ALLOCATIONS.try_with(|all| all.set(all.get() + allocations));
    let _ = LIVE_BYTES.try_with(|all| {
        all.set(all.get() + bytes);
        if bytes > 0 {
            let _ = PEAK_BYTES.try_with(|peak| peak.set(peak.get().max(all.get())));
        }
    });
}

// SAFETY: every call goes on to the system's allocator; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(1, layout.size() as isize);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(0, -(layout.size() as isize));
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(memory, layout) }
    }
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(1, size as isize - layout.size() as isize);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(memory, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// How many allocations this thread has made.
pub fn allocations() -> u64 {
    ALLOCATIONS.get()
}

/// How many more bytes this thread has allocated than freed.
pub fn live_bytes() -> isize {
    LIVE_BYTES.get()
}

/// Begins to look for the most bytes at once.
pub fn begin_peak() {
    PEAK_BASE.set(LIVE_BYTES.get());
    PEAK_BYTES.set(LIVE_BYTES.get());
}

/// The most bytes that were live at once since [`begin_peak`], beside those that were live then.
pub fn peak_bytes() -> isize {
    PEAK_BYTES.get() - PEAK_BASE.get()
}
