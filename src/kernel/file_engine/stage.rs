//! The state of a file engine: unused, then open or refused; or the system was short of something,
//! and it is opened later.

use std::io;

use crate::sys::fd::RawFd;
use crate::words::clock;

/// How long an engine that the system was short of something for is left alone. The work goes to
/// threads meanwhile, so this is short enough for a burst of descriptors to pass unnoticed, and
/// long enough for the vain tries to cost nothing.
const REST_NS: u64 = 1_000_000_000;

/// An engine. Its first use opens it, and the selector watches its eventfd.
pub(super) trait Engine: Sized {
    /// The mechanism for `explain`, and what it says when there is none.
    const NAMES: (&str, &str);
    /// Why it is not open yet.
    const UNUSED: &str;

    /// Opens it. One system call is to submit at most `most` requests.
    ///
    /// # Errors
    /// `Unsupported` with the refused step; the errno of a shortage (`EMFILE`, `ENOMEM` …).
    fn open(most: u32) -> io::Result<Self>;

    /// A descriptor that becomes readable with each answer. Watch it for edges.
    fn event_fd(&self) -> RawFd;

    /// How it works, or why it does not, and how many requests it has taken.
    fn explain(&self) -> (String, u64);
}

pub(super) enum Stage<E> {
    NotWanted,
    Unused,
    Open(Box<E>),
    /// The system has no such engine: the reason.
    Refused(String),
    /// The system was short of something: the reason, and when to try again.
    Short(String, u64),
}

impl<E: Engine> Stage<E> {
    /// Opens the engine if it is unused or has rested, and has its eventfd watched.
    ///
    /// # Errors
    /// The errors of [`Engine::open`]; the error of watching the eventfd.
    #[cold]
    pub(super) fn open(
        &mut self,
        most: u32,
        watch: &mut impl FnMut(RawFd) -> io::Result<()>,
    ) -> io::Result<()> {
        if !matches!(self, Stage::Unused | Stage::Short(..)) {
            return Ok(());
        }
        let opened = E::open(most).and_then(|engine| {
            let cannot = |error: io::Error| {
                io::Error::new(error.kind(), format!("its eventfd cannot be watched: {error}"))
            };
            watch(engine.event_fd()).map_err(cannot)?;
            Ok(engine)
        });
        match opened {
            Ok(engine) => *self = Stage::Open(Box::new(engine)),
            Err(error) => {
                *self = match error.kind() {
                    io::ErrorKind::Unsupported => Stage::Refused(error.to_string()),
                    _ => Stage::short(&error),
                };
                return Err(error);
            }
        }
        Ok(())
    }

    fn short(error: &io::Error) -> Stage<E> {
        Stage::Short(error.to_string(), clock::now_ns().saturating_add(REST_NS))
    }

    /// Closes an engine that has no requests, for which the system is short of something.
    #[cold]
    pub(super) fn close(&mut self, error: &io::Error) {
        *self = Stage::short(error);
    }

    /// The mechanism, the reason and the count for `explain`.
    pub(super) fn explain(&self) -> (&'static str, String, u64) {
        let (name, none) = E::NAMES;
        match self {
            Stage::Open(engine) => {
                let (reason, count) = engine.explain();
                (name, reason, count)
            }
            Stage::Refused(why) => (none, why.clone(), 0),
            Stage::Short(why, _) => (none, format!("tried again after a second: {why}"), 0),
            Stage::Unused => (name, E::UNUSED.into(), 0),
            Stage::NotWanted => {
                let why = "another backend was chosen, or the selector cannot watch it";
                (none, why.into(), 0)
            }
        }
    }

    /// Whether the engine may serve: neither unwanted nor refused, and not resting. One that the
    /// program has named does not rest, because no other may do its work.
    pub(super) fn is_there(&self, is_named: bool) -> bool {
        match self {
            Stage::Unused | Stage::Open(_) => true,
            Stage::Short(_, again_ns) => is_named || clock::now_ns() >= *again_ns,
            _ => false,
        }
    }

    #[inline(always)]
    pub(super) fn get(&self) -> Option<&E> {
        if let Stage::Open(engine) = self { Some(engine) } else { None }
    }

    #[inline(always)]
    pub(super) fn get_mut(&mut self) -> Option<&mut E> {
        if let Stage::Open(engine) = self { Some(engine) } else { None }
    }
}
