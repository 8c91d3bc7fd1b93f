//! A check against the gates of libuv.

use super::*;
use crate::sys::file_ring::{FileRing, OPERATIONS};

/// How this crate answers a gate of libuv.
enum Answer {
    /// By a row.
    Row(Quirk),
    /// Releases up to this one are too old for any ring: they lack a required feature.
    TooOld(Release, &'static str),
    /// The driver does not use these operations.
    Unused(&'static [&'static str]),
    /// By how rings are made.
    NoSqpoll,
    /// This driver is not built for that system or architecture.
    NotBuilt(&'static str),
}

/// Every gate of libuv 1.51 before a ring or an operation of it.
const GATES: &[(&str, Answer)] = &[
    ("Android's filters", Answer::NotBuilt("android")),
    ("parisc, Linux 6.1", Answer::NotBuilt("hppa")),
    ("32-bit ARM, issue 4158", Answer::Row(Quirk::ArmFiles)),
    ("64-bit PowerPC, issue 4283", Answer::Row(Quirk::PowerFiles)),
    ("SQPOLL before 5.10.186 spins", Answer::NoSqpoll),
    ("SQPOLL and setuid(2)", Answer::NoSqpoll),
    ("before 5.13", Answer::TooOld((5, 12), "CQE_SKIP")),
    ("LINKAT, MKDIRAT, SYMLINKAT before 5.15", Answer::Unused(&["LINKAT", "MKDIRAT", "SYMLINKAT"])),
    ("CLOSE before 5.15.90 and from 5.16 to 6.0: ETXTBSY", Answer::Unused(&["CLOSE"])),
    ("FTRUNCATE before 6.9", Answer::Unused(&["FTRUNCATE"])),
];

#[test]
#[cfg_attr(miri, ignore = "Miri has no io_uring")]
fn every_gate_of_libuv_is_answered() {
    let used: Vec<_> = OPERATIONS.iter().map(|(_, name)| *name).collect();
    assert!(used.contains(&"READ") && used.contains(&"FSYNC"));
    for (gate, answer) in GATES {
        match answer {
            Answer::Row(quirk) => {
                let row = &ROWS[*quirk as usize];
                let arch = row.arch.expect("an architecture");
                for release in ["5.17.0", "6.18.44", "7.2.0"] {
                    assert!(Quirks::of(release.into(), arch).has(*quirk), "{gate}: {release}");
                }
                assert!(row.source.ends_with(gate.split(' ').next_back().unwrap()), "{gate}");
            }
            // The required features came with 5.17.
            Answer::TooOld(last, asked) => {
                assert!(*last < (5, 17), "{gate}");
                assert!(crate::sys::file_ring::FEATURES.contains(asked), "{gate}");
            }
            Answer::Unused(names) => {
                assert!(names.iter().all(|name| !used.contains(name)), "{gate}");
            }
            Answer::NoSqpoll => {
                if let Ok(ring) = FileRing::open() {
                    assert!(!ring.setup().contains("SQPOLL") && !ring.polls_submissions());
                }
            }
            Answer::NotBuilt(there) => {
                assert!(![std::env::consts::OS, std::env::consts::ARCH].contains(there), "{gate}");
            }
        }
    }
}
