//! How an operation of the program has ended.

#[cfg(doc)]
use windlass::Done;
use windlass::{Completion, Handle, Op, Refused, SourceGuard};

#[cfg(doc)]
use crate::engine::Engine;

/// How an operation of [`Engine::submit`] has ended.
///
/// [`Engine::submit`] has an example.
#[derive(Debug)]
#[non_exhaustive]
pub struct Completed {
    /// The token of the operation, as the program has set it.
    pub token: u64,
    /// The completion, with the same token. Or the operation itself, if the watcher has refused it:
    /// the page of each operation lists the reasons.
    ///
    /// If the operation has opened a file, and the engine has attached it, then the result of the
    /// completion is [`Done::Finished`], or for a temporary file its [`Done::Path`].
    pub result: Result<Completion, Box<Refused<Op>>>,
    /// The file that the operation has opened, and its source on the watcher of the engine, for
    /// further operations. It is closed when the guard is dropped, on any thread. `None` if the
    /// operation has opened none.
    ///
    /// The error is that of [`Watcher::attach`](windlass::Watcher::attach), and has the open file:
    /// [`Limit::Sources`](windlass::Limit::Sources) sources are attached already, for example.
    pub file: Result<Option<SourceGuard>, Box<Refused<Handle>>>,
}
