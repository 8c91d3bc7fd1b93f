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

#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) use machine::read_now;
pub(super) use machine::{recv, send};

#[cfg(all(
    any(target_os = "linux", target_os = "android"),
    any(all(target_arch = "x86_64", target_pointer_width = "64"), target_arch = "aarch64"),
    not(miri)
))]
mod machine {
    use super::{Moved, RawFd};
    use std::arch::asm;

    // A register that no argument names can keep what the caller has in it: the kernel ignores it.

    /// The call `number`, as an instruction. It changes `rax`, `rcx` and `r11` only.
    #[cfg(target_arch = "x86_64")]
    macro_rules! call {
        ($number:expr, $fd:expr, $start:expr, $len:expr, $flags:expr, no address) => {
            call!($number, $fd, $start, $len, $flags, "r8" = 0usize, "r9" = 0usize)
        };
        ($number:expr, $fd:expr, $start:expr, $len:expr, $fourth:expr, address = $last:expr) => {
            call!($number, $fd, $start, $len, $fourth, "r8" = $last)
        };
        ($number:expr, $fd:expr, $start:expr, $len:expr, $fourth:expr, flags = $last:expr) => {
            call!($number, $fd, $start, $len, $fourth, "r9" = $last)
        };
        ($number:expr, $fd:expr, $start:expr, $len:expr, $fourth:expr,
         $($at:tt = $value:expr),+) => {{
            let answer;
            asm!(
                "syscall",
                inlateout("rax") $number as isize => answer,
                in("edi") $fd,
                in("rsi") $start,
                in("rdx") $len,
                in("r10") $fourth,
                $(in($at) $value,)+
                lateout("rcx") _,
                lateout("r11") _,
                options(nostack, preserves_flags)
            );
            answer
        }};
    }

    /// As on x86-64. It changes no register but the answer's.
    #[cfg(target_arch = "aarch64")]
    macro_rules! call {
        ($number:expr, $fd:expr, $start:expr, $len:expr, $flags:expr, no address) => {
            call!($number, $fd, $start, $len, $flags, "x4" = 0usize, "x5" = 0usize)
        };
        ($number:expr, $fd:expr, $start:expr, $len:expr, $fourth:expr, address = $last:expr) => {
            call!($number, $fd, $start, $len, $fourth, "x4" = $last)
        };
        ($number:expr, $fd:expr, $start:expr, $len:expr, $fourth:expr, flags = $last:expr) => {
            call!($number, $fd, $start, $len, $fourth, "x5" = $last)
        };
        ($number:expr, $fd:expr, $start:expr, $len:expr, $fourth:expr,
         $($at:tt = $value:expr),+) => {{
            let answer;
            asm!(
                "svc 0",
                in("x8") $number,
                inlateout("x0") $fd as isize => answer,
                in("x1") $start,
                in("x2") $len,
                in("x3") $fourth,
                $(in($at) $value,)+
                options(nostack, preserves_flags)
            );
            answer
        }};
    }

    /// # Safety
    /// The kernel may write `len` bytes at `start`.
    #[inline(always)]
    pub(crate) unsafe fn recv(fd: RawFd, start: *mut u8, len: usize, flags: i32) -> Moved {
        // SAFETY: the same promise. The kernel writes no address. gVisor writes a length where the
        // second pointer points, with or without an address, so both are null.
        unsafe { call!(libc::SYS_recvfrom, fd, start, len, flags as u64, no address) }
    }

    /// # Safety
    /// The kernel may read `len` bytes at `start`.
    #[inline(always)]
    pub(crate) unsafe fn send(fd: RawFd, start: *const u8, len: usize, flags: i32) -> Moved {
        // SAFETY: the same promise; a send writes nothing. With a null address the kernel
        // ignores its length.
        unsafe { call!(libc::SYS_sendto, fd, start, len, flags as u64, address = 0usize) }
    }

    /// preadv2(2) with `RWF_NOWAIT`, into `count` vectors.
    ///
    /// # Safety
    /// The kernel may read `count` vectors at `start`, and write the memory that they name.
    #[inline(always)]
    pub(crate) unsafe fn read_now(
        fd: RawFd,
        start: *const libc::iovec,
        count: usize,
        offset: u64,
    ) -> Moved {
        let now = libc::RWF_NOWAIT as usize;
        // SAFETY: the same promise. The kernel takes the offset from one word (64 bits), and
        // ignores the other.
        unsafe { call!(libc::SYS_preadv2, fd, start, count, offset, flags = now) }
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
    /// The kernel may write `len` bytes at `start`.
    pub(crate) unsafe fn recv(fd: RawFd, start: *mut u8, len: usize, flags: i32) -> Moved {
        // SAFETY: the caller's promise.
        syscall!(unsafe { libc::recv(fd, start.cast(), len, flags) })
    }

    /// # Safety
    /// The kernel may read `len` bytes at `start`.
    pub(crate) unsafe fn send(fd: RawFd, start: *const u8, len: usize, flags: i32) -> Moved {
        // SAFETY: the caller's promise.
        syscall!(unsafe { libc::send(fd, start.cast(), len, flags) })
    }

    /// # Safety
    /// The kernel may read `count` vectors at `start`, and write the memory that they name.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(crate) unsafe fn read_now(
        fd: RawFd,
        start: *const libc::iovec,
        count: usize,
        offset: u64,
    ) -> Moved {
        let (call, none, now) = (libc::SYS_preadv2, 0, libc::RWF_NOWAIT);
        // SAFETY: the caller's promise.
        syscall!(unsafe { libc::syscall(call, fd, start, count, offset, none, now) })
    }
}
