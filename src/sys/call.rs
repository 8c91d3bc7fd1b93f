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
    use std::mem::MaybeUninit;

    /// An argument. One that the kernel ignores takes no instruction.
    type Word = MaybeUninit<usize>;
    const IGNORED: Word = Word::uninit();
    const NULL: Word = Word::new(0);

    /// # Safety
    /// The kernel may write `len` bytes at `start`.
    #[inline(always)]
    pub(crate) unsafe fn recv(fd: RawFd, start: *mut u8, len: usize, flags: i32) -> Moved {
        // SAFETY: the same promise. With a null address the kernel ignores its length.
        unsafe { call(libc::SYS_recvfrom, fd, start, len, flags as u64, NULL, IGNORED) }
    }

    /// # Safety
    /// The kernel may read `len` bytes at `start`.
    #[inline(always)]
    pub(crate) unsafe fn send(fd: RawFd, start: *const u8, len: usize, flags: i32) -> Moved {
        // SAFETY: the same promise; a send writes nothing. The address is as above.
        unsafe { call(libc::SYS_sendto, fd, start, len, flags as u64, NULL, IGNORED) }
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
        let now = Word::new(libc::RWF_NOWAIT as usize);
        // SAFETY: the same promise. The kernel takes the offset from one word (64 bits), and
        // ignores the other.
        unsafe { call(libc::SYS_preadv2, fd, start.cast(), count, offset, IGNORED, now) }
    }

    /// # Safety
    /// The kernel may use the memory of the arguments as the call `number` does.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn call(
        number: libc::c_long,
        fd: RawFd,
        start: *const u8,
        len: usize,
        fourth: u64,
        fifth: Word,
        sixth: Word,
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
                in("r10") fourth,
                in("r8") fifth,
                in("r9") sixth,
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
    /// The kernel may use the memory of the arguments as the call `number` does.
    #[cfg(target_arch = "aarch64")]
    #[inline(always)]
    unsafe fn call(
        number: libc::c_long,
        fd: RawFd,
        start: *const u8,
        len: usize,
        fourth: u64,
        fifth: Word,
        sixth: Word,
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
                in("x3") fourth,
                in("x4") fifth,
                in("x5") sixth,
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
