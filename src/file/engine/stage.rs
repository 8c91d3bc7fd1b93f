//! How far an engine has come: unused, then open or refused.

use std::io;

use crate::sys::fd::RawFd;

/// What is opened by its first use, and stands in a selector's wait.
pub(super) trait Engine: Sized {
    /// Opens it.
    ///
    /// # Errors
    /// `Unsupported` with the step that was refused; what the system is short of.
    fn open() -> io::Result<Self>;

    /// Becomes readable with each answer; to be watched for edges.
    fn event_fd(&self) -> RawFd;
}

pub(super) enum Stage<E> {
    NotWanted,
    Unused,
    Open(Box<E>),
    /// Why.
    Refused(String),
}

impl<E: Engine> Stage<E> {
    /// Opens one that is unused and has its descriptor watched.
    ///
    /// # Errors
    /// As of the engine; that it cannot be watched.
    #[cold]
    pub(super) fn open(
        &mut self,
        watch: &mut impl FnMut(RawFd) -> io::Result<()>,
    ) -> io::Result<()> {
        if !matches!(self, Stage::Unused) {
            return Ok(());
        }
        let opened = E::open().and_then(|engine| {
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

    /// Whether it may still serve: neither unwanted nor refused.
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
