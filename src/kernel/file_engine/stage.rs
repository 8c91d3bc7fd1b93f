//! The state of a file engine: unused, then open or refused.

use std::io;

use crate::sys::fd::RawFd;

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
    /// The reason of the refusal.
    Refused(String),
}

impl<E: Engine> Stage<E> {
    /// Opens the engine if it is unused, and has its eventfd watched.
    ///
    /// # Errors
    /// The errors of [`Engine::open`]; the error of watching the eventfd.
    #[cold]
    pub(super) fn open(
        &mut self,
        most: u32,
        watch: &mut impl FnMut(RawFd) -> io::Result<()>,
    ) -> io::Result<()> {
        if !matches!(self, Stage::Unused) {
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
                *self = Stage::Refused(error.to_string());
                return Err(error);
            }
        }
        Ok(())
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
            Stage::Unused => (name, E::UNUSED.into(), 0),
            Stage::NotWanted => {
                let why = "another backend was chosen, or the selector cannot watch it";
                (none, why.into(), 0)
            }
        }
    }

    /// Whether the engine may serve: neither unwanted nor refused.
    pub(super) fn is_there(&self) -> bool {
        matches!(self, Stage::Unused | Stage::Open(_))
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
