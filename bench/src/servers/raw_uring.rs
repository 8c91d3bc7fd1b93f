//! The limit on io_uring: multishot accept, multishot receives from a ring of provided buffers, one
//! enter per turn.

#![allow(unsafe_code)]
//! # Safety
//!
//! The buffers and their ring live until the process ends. A buffer is with the kernel until a
//! receive names it, then with this program until its send has completed, then with the kernel
//! again.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::types::BufRingEntry;
use io_uring::{IoUring, cqueue, opcode, squeue, types};

const BUFFERS: u16 = 1024;
const SIZE: usize = 16 << 10;
const GROUP: u16 = 0;

/// What an entry was for: the low bits of its number.
const ACCEPT: u64 = 0;
const RECEIVE: u64 = 1;
const SEND: u64 = 2;
const CLOSE: u64 = 3;

struct Buffers {
    ring: *mut BufRingEntry,
    memory: *mut u8,
    tail: u16,
}

/// A mapping of zeroed pages.
fn map(len: usize) -> io::Result<*mut u8> {
    let (access, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping touches no memory of ours.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), len, access, flags, -1, 0) };
    if at == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(at.cast()) }
}

impl Buffers {
    fn new(ring: &IoUring) -> io::Result<Buffers> {
        let entries = map(usize::from(BUFFERS) * size_of::<BufRingEntry>())?.cast();
        let memory = map(usize::from(BUFFERS) * SIZE)?;
        // SAFETY: both mappings are never unmapped.
        unsafe {
            ring.submitter().register_buf_ring_with_flags(entries as u64, BUFFERS, GROUP, 0)?;
        }
        let mut buffers = Buffers { ring: entries, memory, tail: 0 };
        for id in 0..BUFFERS {
            buffers.give(id);
        }
        Ok(buffers)
    }

    fn at(&self, id: u16) -> *mut u8 {
        // SAFETY: the id is one of BUFFERS.
        unsafe { self.memory.add(usize::from(id) * SIZE) }
    }

    /// Gives a buffer to the kernel.
    fn give(&mut self, id: u16) {
        let (at, index) = (self.at(id), usize::from(self.tail & (BUFFERS - 1)));
        // SAFETY: the entry is inside the ring, and the kernel reads it only below the tail.
        unsafe {
            let entry = &mut *self.ring.add(index);
            entry.set_addr(at as u64);
            entry.set_len(SIZE as u32);
            entry.set_bid(id);
        }
        self.tail = self.tail.wrapping_add(1);
        // SAFETY: the tail stands at a fixed place of the ring's first entry, aligned.
        let tail = unsafe { AtomicU16::from_ptr(BufRingEntry::tail(self.ring).cast_mut()) };
        tail.store(self.tail, Ordering::Release);
    }
}

fn push(ring: &mut IoUring, entry: &squeue::Entry) -> io::Result<()> {
    loop {
        // SAFETY: the memory that entries name is of `Buffers`.
        if unsafe { ring.submission().push(entry) }.is_ok() {
            return Ok(());
        }
        ring.submit()?;
    }
}

fn receive(fd: RawFd) -> squeue::Entry {
    opcode::RecvMulti::new(types::Fd(fd), GROUP).build().user_data((fd as u64) << 32 | RECEIVE)
}

pub fn serve(port: u16) -> io::Result<()> {
    let listener = super::listen(port)?;
    let mut ring = IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_cqsize(16 << 10)
        .build(4096)?;
    let mut buffers = Buffers::new(&ring)?;
    let accept = opcode::AcceptMulti::new(types::Fd(listener.as_raw_fd())).build();
    push(&mut ring, &accept.clone().user_data(ACCEPT))?;
    let mut batch: Vec<cqueue::Entry> = Vec::new();
    // The rest of each buffer's send: where it starts, and how long it is.
    let mut sends = vec![(0_usize, 0_usize); usize::from(BUFFERS)];
    // Connections whose receive ended because every buffer was in use.
    let mut starved: Vec<RawFd> = Vec::new();
    loop {
        ring.submit_and_wait(1)?;
        batch.extend(ring.completion());
        for entry in batch.drain(..) {
            let (fd, id) = ((entry.user_data() >> 32) as RawFd, (entry.user_data() >> 8) as u16);
            let result = entry.result();
            let more = cqueue::more(entry.flags());
            match entry.user_data() & 0xFF {
                ACCEPT => {
                    if result >= 0 {
                        push(&mut ring, &receive(result))?;
                    }
                    if !more {
                        push(&mut ring, &accept.clone().user_data(ACCEPT))?;
                    }
                }
                RECEIVE if result > 0 => {
                    let id = cqueue::buffer_select(entry.flags()).expect("a received buffer");
                    sends[usize::from(id)] = (0, result as usize);
                    push(&mut ring, &send(fd, id, &buffers, &sends))?;
                    if !more {
                        push(&mut ring, &receive(fd))?;
                    }
                }
                RECEIVE if result == -libc::ENOBUFS => starved.push(fd),
                RECEIVE => {
                    let close = opcode::Close::new(types::Fd(fd)).build().user_data(CLOSE);
                    push(&mut ring, &close)?;
                }
                SEND => {
                    let (start, len) = &mut sends[usize::from(id)];
                    let sent = result.max(0) as usize;
                    if result > 0 && sent < *len {
                        (*start, *len) = (*start + sent, *len - sent);
                        push(&mut ring, &send(fd, id, &buffers, &sends))?;
                        continue;
                    }
                    buffers.give(id);
                    while let Some(fd) = starved.pop() {
                        push(&mut ring, &receive(fd))?;
                    }
                }
                _ => {}
            }
        }
    }
}

/// Sends the rest of a buffer. (A message that takes several buffers keeps its order, because a
/// connection's sends stand in the ring one behind the other and small ones are taken whole.)
fn send(fd: RawFd, id: u16, buffers: &Buffers, sends: &[(usize, usize)]) -> squeue::Entry {
    let (start, len) = sends[usize::from(id)];
    // SAFETY: the range lies inside the buffer.
    let from = unsafe { buffers.at(id).add(start) };
    opcode::Send::new(types::Fd(fd), from, len as u32)
        .flags(libc::MSG_NOSIGNAL | libc::MSG_WAITALL)
        .build()
        .user_data((fd as u64) << 32 | u64::from(id) << 8 | SEND)
}
