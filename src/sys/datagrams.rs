//! Several datagrams with one call: recvmmsg(2) and sendmmsg(2) of Linux.
//!
//! On other systems datagrams go one by one (`no_datagrams.rs`): macOS publishes no such call, and
//! those of FreeBSD are loops in its C library. musl's sendmmsg() is such a loop, too, so both are
//! called by their numbers.

#![allow(unsafe_code)]
//! # Safety
//!
//! The messages, the vectors and the addresses live across the call, and a message names only
//! memory of its own target.

use std::mem::{MaybeUninit, zeroed};

use crate::sys::addr::RawAddress;
use crate::sys::fd::RawFd;
use crate::sys::target::Target;
use crate::sys::{Moved, syscall};

/// Most datagrams of one call.
pub(crate) const MOST: usize = 32;

/// The `mmsghdr` of the system.
#[repr(C)]
struct Mmsghdr {
    header: libc::msghdr,
    /// Bytes that were received.
    len: libc::c_uint,
}

/// The messages of a call and their vectors, of which only the first ones are filled.
struct MmsgCall {
    messages: [MaybeUninit<Mmsghdr>; MOST],
    vectors: [MaybeUninit<libc::iovec>; MOST],
}

impl MmsgCall {
    #[inline(always)]
    fn new() -> MmsgCall {
        MmsgCall {
            messages: [const { MaybeUninit::uninit() }; MOST],
            vectors: [const { MaybeUninit::uninit() }; MOST],
        }
    }

    /// Fills message `i`: one vector, and the address.
    fn fill(&mut self, i: usize, start: *mut u8, len: usize, name: (*mut libc::sockaddr, u32)) {
        let vector = libc::iovec { iov_base: start.cast(), iov_len: len };
        let vector = self.vectors[i].write(vector);
        // SAFETY: a struct of pointers and integers; all zeroes names nothing.
        let mut header: libc::msghdr = unsafe { zeroed() };
        header.msg_iov = vector;
        header.msg_iovlen = 1;
        header.msg_name = name.0.cast();
        header.msg_namelen = name.1;
        self.messages[i].write(Mmsghdr { header, len: 0 });
    }
}

/// Receives a datagram into each of `to`, until there are no more: their number, or `-errno` if
/// there was not even one. Tells each one's length, the flags that came with it, and its sender.
pub(crate) fn recv<A: AsMut<RawAddress>>(
    fd: RawFd,
    to: &mut [Target<'_>],
    from: &mut [A],
    mut tell: impl FnMut(usize, usize, i32),
) -> Moved {
    let mut call = MmsgCall::new();
    let count = to.len().min(from.len()).min(MOST);
    for (i, (target, address)) in to.iter_mut().zip(from.iter_mut()).take(count).enumerate() {
        let (name, len) = address.as_mut().out();
        // SAFETY: `len` points into `address`.
        let name_len = unsafe { *len };
        call.fill(i, target.as_mut_ptr(), target.len(), (name, name_len));
    }
    let messages = call.messages.as_mut_ptr();
    let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    let timeout = std::ptr::null_mut::<libc::timespec>();
    // SAFETY: `count` messages were filled. Their vectors and addresses live across the call, and
    // name memory that the caller lets us write.
    let got = syscall!(unsafe {
        libc::syscall(libc::SYS_recvmmsg, fd, messages, count as libc::c_uint, flags, timeout)
    });
    for (i, address) in from.iter_mut().enumerate().take(got.max(0) as usize) {
        // SAFETY: filled above.
        let message = unsafe { call.messages[i].assume_init_ref() };
        address.as_mut().set_len(message.header.msg_namelen);
        tell(i, message.len as usize, message.header.msg_flags);
    }
    got
}

/// Sends datagrams, each to its address. Returns the number of those that were sent, or `-errno` if
/// not even the first one was.
pub(crate) fn send<A: AsRef<RawAddress>>(fd: RawFd, datagrams: &[(&[u8], &A)]) -> Moved {
    let mut call = MmsgCall::new();
    let count = datagrams.len().min(MOST);
    for (i, (bytes, to)) in datagrams.iter().take(count).enumerate() {
        let to: &RawAddress = (*to).as_ref();
        let name = (to.as_ptr().cast_mut(), to.len());
        call.fill(i, bytes.as_ptr().cast_mut(), bytes.len(), name);
    }
    let messages = call.messages.as_mut_ptr();
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: `count` messages were filled; what they name lives across the call and is only read.
    syscall!(unsafe {
        libc::syscall(libc::SYS_sendmmsg, fd, messages, count as libc::c_uint, flags)
    })
}
