//! Known faults of kernels, as data: the releases, the workaround, and the report of the fault.
//!
//! Everything that can be probed is probed. The faults here are those that no probe finds, or that
//! a probe finds too late. A row is in force where the running release lies in its range, unless
//! `WINDLASS_QUIRKS` or [`Builder::quirks`](crate::Builder::quirks) says otherwise.
//!
//! libuv checks the kernel release at several places before it uses a ring (src/unix/linux.c). Two
//! of these checks concern operations on files that windlass uses, and have rows here. The tests
//! say, check by check, why the others have none.

use std::fmt;
use std::io;

use crate::words::explain::Explain;

/// Why no ring uses `IORING_SETUP_SQPOLL`.
pub(crate) const NO_SQPOLL: &str = "never SQPOLL: a kernel thread that spins for each ring, \
     with the credentials of the process before a setuid(2)";

/// The environment variable that turns rows on and off.
const VARIABLE: &str = "WINDLASS_QUIRKS";

/// A release of the kernel: major, minor.
type Release = (u16, u16);

/// The rows, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quirk {
    LongMultishot,
    UnixMultishot,
    UnixSends,
    WholeBuffers,
    ArmFiles,
    PowerFiles,
    FrozenWrites,
}

/// One known fault.
struct Row {
    quirk: Quirk,
    name: &'static str,
    /// The architecture that has the fault, if it is one: as `std::env::consts::ARCH` calls it.
    arch: Option<&'static str>,
    /// The first release that has the fault, and the last, if there is one.
    from: Release,
    to: Option<Release>,
    /// The operation that the fault concerns.
    concerns: &'static str,
    /// The workaround of the driver.
    action: &'static str,
    source: &'static str,
}

const ROWS: &[Row] = &[
    // See `ring/long_multishot.rs`. The kernel puts receives off since 6.8, shares buffers in
    // pieces since 6.12. No release is known to have mended this, so there is no upper bound: on
    // 6.18.44 the test hangs without the workaround.
    Row {
        quirk: Quirk::LongMultishot,
        name: "long-multishot",
        arch: None,
        from: (6, 12),
        to: None,
        concerns: "multishot receive",
        action: "one that took 33 pieces in a row is restarted when nothing is left: it can \
                 miss a reset or the end",
        source: "tests/ring.rs, which hangs without it on 6.18.44; no release is known to fix it",
    },
    // The kernel knows how much a Unix socket has queued. It stops when that is nothing, and does
    // not look for the end that may stand behind. Mended in some stable releases.
    Row {
        quirk: Quirk::UnixMultishot,
        name: "unix-multishot",
        arch: None,
        from: (6, 17),
        to: None,
        concerns: "multishot receive",
        action: "those of Unix sockets receive one by one: they can miss the end of the file",
        source: "https://github.com/axboe/liburing/issues/1549; seen by tests/model.rs on 6.18",
    },
    // unix_writable() promises more than a send then gets: the kernel tries the send 128 times, and
    // then gives it to a thread.
    Row {
        quirk: Quirk::UnixSends,
        name: "unix-sends",
        arch: None,
        from: (0, 0),
        to: None,
        concerns: "send",
        action: "the loop writes to Unix sockets: a send of the ring can block in a kernel \
                 thread, where a cancel does not find it",
        source: "seen by tests/model.rs on 6.18",
    },
    Row {
        quirk: Quirk::WholeBuffers,
        name: "whole-buffers",
        arch: None,
        from: (0, 0),
        to: Some((6, 11)),
        concerns: "receive into provided buffers",
        action: "reads into swap buffers wait for a poll: each would take a whole buffer",
        source: "IOU_PBUF_RING_INC in io_uring_register_buf_ring(3), Linux 6.12",
    },
    // The cause was not found. Reported from a Raspberry Pi, up to 6.1.54.
    Row {
        quirk: Quirk::ArmFiles,
        name: "arm-files",
        arch: Some("arm"),
        from: (0, 0),
        to: None,
        concerns: "files",
        action: "threads do the work: no release for 32-bit ARM is known to be good",
        source: "https://github.com/libuv/libuv/issues/4158",
    },
    // One fault was found: a thread that the kernel makes for a request leaves its values in
    // registers of the program (linuxppc-dev, "powerpc: Fix data corruption on IPI", November
    // 2023). Crashes were also reported of 6.6.7, and libuv's issue is open.
    Row {
        quirk: Quirk::PowerFiles,
        name: "power-files",
        arch: Some("powerpc64"),
        from: (0, 0),
        to: None,
        concerns: "files",
        action: "threads do the work: on 64-bit PowerPC programs lost registers and crashed",
        source: "https://github.com/libuv/libuv/issues/4283",
    },
    // kiocb_start_write() ignored IOCB_NOWAIT: io_uring_enter(2), and the loop with it, blocked
    // until the thaw. Fixed in Linux 6.12 and in some stable releases.
    Row {
        quirk: Quirk::FrozenWrites,
        name: "frozen-writes",
        arch: None,
        from: (0, 0),
        to: Some((6, 11)),
        concerns: "direct writes",
        action: "threads do them: submitting one to a frozen file system blocks until the thaw",
        source: "Linux commit 1d60d74e8526, \"io_uring/rw: fix missing NOWAIT check for O_DIRECT \
                 start write\"",
    },
];

// A quirk's row is found by its number.
const _: () = {
    let mut i = 0;
    while i < ROWS.len() {
        assert!(ROWS[i].quirk as usize == i);
        i += 1;
    }
};

/// The rows in force, and how often each has changed what the driver did.
pub(crate) struct Quirks {
    release: String,
    /// Why each row is in force, if it is.
    forces: [Option<&'static str>; ROWS.len()],
    times: [u64; ROWS.len()],
}

/// A word of the list of overrides that is not `NAME=on` or `NAME=off` for a row.
#[derive(Debug, PartialEq, Eq)]
struct BadWord(String);

impl fmt::Display for BadWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = ROWS.iter().map(|row| row.name).collect();
        write!(f, "{:?} is not name=on or name=off; the names: {}", self.0, names.join(", "))
    }
}

/// Major and minor of a release as uname(2) says it: `6.18.44-rc1` is (6, 18).
fn parse(release: &str) -> Option<Release> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    let mut next = || numbers.next()?.parse().ok();
    Some((next()?, next()?))
}

impl Row {
    /// Whether a release has the fault on this architecture. A release that cannot be read has all
    /// faults.
    fn is_in(&self, release: Option<Release>, arch: &str) -> bool {
        let inside = |at: Release| at >= self.from && self.to.is_none_or(|to| at <= to);
        self.arch.is_none_or(|its| its == arch) && release.is_none_or(inside)
    }
}

impl Quirks {
    /// The rows that a release has, then what the environment says, then what the program says.
    ///
    /// # Errors
    /// `InvalidInput`: a list names no row, or says neither `on` nor `off`.
    pub(crate) fn new(release: String, program: &str) -> io::Result<Quirks> {
        let mut quirks = Quirks::of(release, std::env::consts::ARCH);
        let environment = std::env::var(VARIABLE).unwrap_or_default();
        for (list, by) in [(&*environment, VARIABLE), (program, "Builder::quirks")] {
            quirks.override_by(list, by).map_err(|word| {
                io::Error::new(io::ErrorKind::InvalidInput, format!("{by}: {word}"))
            })?;
        }
        Ok(quirks)
    }

    fn of(release: String, arch: &str) -> Quirks {
        let at = parse(&release);
        let why = |i: usize| ROWS[i].is_in(at, arch).then_some("this kernel");
        Quirks { release, forces: std::array::from_fn(why), times: [0; ROWS.len()] }
    }

    /// No quirks, for drivers without a ring.
    pub(crate) fn none() -> Quirks {
        Quirks { release: String::new(), forces: [None; ROWS.len()], times: [0; ROWS.len()] }
    }

    /// Obeys a list of `name=on` and `name=off`, separated by commas.
    fn override_by(&mut self, list: &str, by: &'static str) -> Result<(), BadWord> {
        for word in list.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            let bad = || BadWord(word.to_owned());
            let (name, value) = word.split_once('=').ok_or_else(bad)?;
            let row = ROWS.iter().position(|row| row.name == name).ok_or_else(bad)?;
            self.forces[row] = match value {
                "on" => Some(by),
                "off" => None,
                _ => return Err(bad()),
            };
        }
        Ok(())
    }

    /// Whether a row is in force.
    #[inline]
    pub(crate) fn has(&self, quirk: Quirk) -> bool {
        self.forces[quirk as usize].is_some()
    }

    /// Whether a row is in force, where it changes what the ring does. Counts that.
    #[inline]
    pub(crate) fn applies(&mut self, quirk: Quirk) -> bool {
        let has = self.has(quirk);
        self.times[quirk as usize] += u64::from(has);
        has
    }

    /// Adds a row to the explanation for each quirk in force.
    pub(crate) fn explain(&self, explain: &mut Explain) {
        for row in ROWS {
            let i = row.quirk as usize;
            let Some(by) = self.forces[i] else { continue };
            let why = format!("{} ({}; {by}, {})", row.action, row.source, self.release);
            explain.row(row.concerns, format!("quirk {}", row.name), why, self.times[i]);
        }
    }
}

#[cfg(test)]
mod tests;
