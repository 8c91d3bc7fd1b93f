//! Tests that cannot run here say so; where they can, a skip is a failure.
//!
//! Where `CI` is set, the system must have every mechanism of [`Needs`]. A machine that lacks one
//! anyway names it in `WINDLASS_LACKS` (`io_uring,userfaultfd`), so that its workflow shows the
//! gap.
#![allow(dead_code, unreachable_pub)] // each test binary uses its own part

use std::fmt::Display;
use std::io::Write;

/// A mechanism that a test needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Linux 6.1 or later, and no filter that refuses it.
    Uring,
    /// Linux AIO.
    Aio,
    /// A file system that bypasses the page cache (`O_DIRECT`).
    Direct,
    /// `preadv2(2)` that does not wait (`RWF_NOWAIT`).
    Nowait,
    /// A file system that makes room beforehand (`fallocate(2)`).
    Allocate,
    /// Pages that leave the page cache when they are told to.
    Eviction,
    /// `userfaultfd(2)`, also for faults within the kernel.
    Userfault,
    /// Mounts of one's own.
    Root,
    /// Filters for system calls.
    Seccomp,
    /// Unix sockets that keep boundaries.
    Seqpacket,
    /// A program that a distribution of Linux has.
    Program(&'static str),
    /// A limit of some ten thousand descriptors.
    Descriptors,
    /// Mechanisms that no machine must have: a later kernel, a manual setting.
    Luck,
}

impl Needs {
    /// The name in `WINDLASS_LACKS`.
    pub fn name(self) -> &'static str {
        match self {
            Needs::Uring => "io_uring",
            Needs::Aio => "aio",
            Needs::Direct => "direct",
            Needs::Nowait => "nowait",
            Needs::Allocate => "allocate",
            Needs::Eviction => "eviction",
            Needs::Userfault => "userfaultfd",
            Needs::Root => "root",
            Needs::Seccomp => "seccomp",
            Needs::Seqpacket => "seqpacket",
            Needs::Program(name) => name,
            Needs::Descriptors => "descriptors",
            Needs::Luck => "luck",
        }
    }

    /// Whether the system should have it, on a machine that lacks those in `lacking`.
    pub fn is_expected(self, lacking: &str) -> bool {
        let linux = cfg!(target_os = "linux") && !cfg!(miri);
        let has = match self {
            Needs::Luck => false,
            Needs::Seqpacket => linux || cfg!(target_os = "freebsd"),
            Needs::Descriptors => cfg!(unix) && !cfg!(miri),
            _ => linux,
        };
        has && !lacking.split(',').any(|name| name.trim() == self.name())
    }
}

/// Reports a skipped test and the reason on standard error. The caller then returns.
///
/// # Panics
/// Where `CI` is set and the machine should have what is missing.
#[track_caller]
pub fn skip(needs: Needs, why: impl Display) {
    let lacking = std::env::var("WINDLASS_LACKS").unwrap_or_default();
    if std::env::var_os("CI").is_some() && needs.is_expected(&lacking) {
        let name = needs.name();
        panic!("skipped in CI, although this system has {name}: {why} (or WINDLASS_LACKS={name})");
    }
    // The print macros are captured.
    let _ = writeln!(std::io::stderr(), "SKIP: {why}");
}
