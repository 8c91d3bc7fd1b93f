//! recv(2), send(2) and preadv2(2) as instructions, not as functions of the C library.
//!
//! In the C library they are cancellation points: this costs 13 instructions around the system
//! call, and about 40 in a process with several threads. The kernel also keeps all registers but
//! three, so a function around the instruction saves and restores fewer. And where the program
//! returns from no function right after the call, it is faster: a processor mispredicts the first
//! return behind a system call (on one with AMD's "Safe RET", it takes 50 to 100 ns). The result is
//! that of the C library, but a failure is `-errno`.
//!
//! Other architectures use the C library, and so does Miri, which runs no instructions.

#![allow(unsafe_code)]
//! # Safety
//!
//! The kernel reads or writes only the memory of the arguments, and changes only the registers that
//! the assembly names.

use crate::sys::Moved;
use crate::sys::fd::RawFd;

/// # Safety
/// The kernel may write `len` bytes at `start`.
#[inline(always)]
pub(super) unsafe fn recv(fd: RawFd, start: *mut u8, len: usize, flags: i32) -> Moved {
    // SAFETY: the same promise.
    unsafe { machine::call(machine::RECV, fd, start, len, flags) }
}

/// # Safety
/// The kernel may read `len` bytes at `start`.
#[inline(always)]
pub(super) unsafe fn send(fd: RawFd, start: *const u8, len: usize, flags: i32) -> Moved {
    // SAFETY: the same promise; a send writes nothing.
    unsafe { machine::call(machine::SEND, fd, start.cast_mut(), len, flags) }
}

/// preadv2(2) with `RWF_NOWAIT`, into `count` vectors.
///
/// # Safety
/// The kernel may read `count` vectors at `start`, and write the memory that they name.
#[cfg(any(target_os = "linux", target_os = "android"))]
#[inline(always)]
pub(super) unsafe fn read_now(
    fd: RawFd,
    start: *const libc::iovec,
    count: usize,
    offset: u64,
) -> Moved {
    // SAFETY: the same promise.
    unsafe { machine::read_now(fd, start, count, offset) }
}

#[cfg(all(
    any(target_os = "linux", target_os = "android"),
    any(all(target_arch = "x86_64", target_pointer_width = "64"), target_arch = "aarch64"),
    not(miri)
))]
mod machine {
    use super::{Moved, RawFd};
    use std::arch::asm;

    pub(super) const RECV: libc::c_long = libc::SYS_recvfrom;
    pub(super) const SEND: libc::c_long = libc::SYS_sendto;

    /// # Safety
    /// The kernel may read `count` vectors at `start`, and write the memory that they name.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub(super) unsafe fn read_now(
        fd: RawFd,
        start: *const libc::iovec,
        count: usize,
        offset: u64,
    ) -> Moved {
        let answer;
        // SAFETY: the caller's promise; `syscall` changes no register but these three. The kernel
        // takes the offset from one word (64 bits), and ignores the other.
        unsafe {
            asm!(
                "syscall",
                inlateout("rax") libc::SYS_preadv2 as isize => answer,
                in("edi") fd,
                in("rsi") start,
                in("rdx") count,
                in("r10") offset,
                in("r9d") libc::RWF_NOWAIT,
                lateout("rcx") _,
                lateout("r11") _,
                options(nostack, preserves_flags)
            );
        }
        answer
    }

    /// As on x86-64.
    ///
    /// # Safety
    /// The kernel may read `count` vectors at `start`, and write the memory that they name.
    #[cfg(target_arch = "aarch64")]
    #[inline(always)]
    pub(super) unsafe fn read_now(
        fd: RawFd,
        start: *const libc::iovec,
        count: usize,
        offset: u64,
    ) -> Moved {
        let answer;
        // SAFETY: the caller's promise; `svc` changes no register but the answer's.
        unsafe {
            asm!(
                "svc 0",
                in("x8") libc::SYS_preadv2,
                inlateout("x0") fd as isize => answer,
                in("x1") start,
                in("x2") count,
                in("x3") offset,
                in("w5") libc::RWF_NOWAIT,
                options(nostack, preserves_flags)
            );
        }
        answer
    }

    /// Calls `number`, a receive or a send, with a null address. (Then the kernel ignores the
    /// length of the address.)
    ///
    /// # Safety
    /// The kernel may use `len` bytes at `start` as the call does.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub(super) unsafe fn call(
        number: libc::c_long,
        fd: RawFd,
        start: *mut u8,
        len: usize,
        flags: i32,
    ) -> Moved {
        let answer;
        // SAFETY: the caller's promise; `syscall` changes no register but these three.
        unsafe {
            asm!(
                "syscall",
                inlateout("rax") number as isize => answer,
                in("edi") fd,
                in("rsi") start,
                in("rdx") len,
                in("r10d") flags,
                in("r8") 0usize,
                lateout("rcx") _,
                lateout("r11") _,
                options(nostack, preserves_flags)
            );
        }
        answer
    }

    /// As on x86-64.
    ///
    /// # Safety
    /// The kernel may use `len` bytes at `start` as the call does.
    #[cfg(target_arch = "aarch64")]
    #[inline(always)]
    pub(super) unsafe fn call(
        number: libc::c_long,
        fd: RawFd,
        start: *mut u8,
        len: usize,
        flags: i32,
    ) -> Moved {
        let answer;
        // SAFETY: the caller's promise; `svc` changes no register but the answer's.
        unsafe {
            asm!(
                "svc 0",
                in("x8") number,
                inlateout("x0") fd as isize => answer,
                in("x1") start,
                in("x2") len,
                in("w3") flags,
                in("x4") 0usize,
                options(nostack, preserves_flags)
            );
        }
        answer
    }
}

#[cfg(not(all(
    any(target_os = "linux", target_os = "android"),
    any(all(target_arch = "x86_64", target_pointer_width = "64"), target_arch = "aarch64"),
    not(miri)
)))]
mod machine {
    use super::{Moved, RawFd};
    use crate::sys::syscall;

    /// # Safety
    /// The kernel may read `count` vectors at `start`, and write the memory that they name.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(super) unsafe fn read_now(
        fd: RawFd,
        start: *const libc::iovec,
        count: usize,
        offset: u64,
    ) -> Moved {
        let (call, none, now) = (libc::SYS_preadv2, 0, libc::RWF_NOWAIT);
        // SAFETY: the caller's promise.
        syscall!(unsafe { libc::syscall(call, fd, start, count, offset, none, now) })
    }

    pub(super) const RECV: bool = true;
    pub(super) const SEND: bool = false;

    /// # Safety
    /// The kernel may write `len` bytes at `start` to receive, and read them to send.
    #[inline(always)]
    pub(super) unsafe fn call(
        receives: bool,
        fd: RawFd,
        start: *mut u8,
        len: usize,
        flags: i32,
    ) -> Moved {
        match receives {
            // SAFETY: the caller's promise.
            RECV => syscall!(unsafe { libc::recv(fd, start.cast(), len, flags) }),
            // SAFETY: the caller's promise.
            SEND => syscall!(unsafe { libc::send(fd, start.cast(), len, flags) }),
        }
    }
}
