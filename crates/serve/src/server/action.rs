//! What a callback answers, and what the server does then.

use crate::engine::Engine;
#[cfg(doc)]
use crate::{Conn, Handler};

/// The answer of a callback: what the server does next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Action {
    /// Nothing.
    #[default]
    None,
    /// Close the connection after its waiting output is sent. No effect in a callback without a
    /// connection.
    Close,
    /// Hand the descriptor to [`Handler::detached`] after its waiting output is sent. No effect in
    /// a callback without a connection, and where [`Conn::detach`] refuses it.
    Detach,
    /// Shut the whole server down: see [`Server::run`](crate::Server::run).
    Shutdown,
}

/// Does what a callback has asked for; true if that is the shutdown.
pub(crate) fn act<S>(engine: &mut Engine<S>, index: u32, action: Action) -> bool {
    let id = engine.id_at(index);
    match action {
        Action::None => {}
        Action::Close => _ = engine.close(id),
        Action::Detach => _ = engine.detach(id),
        Action::Shutdown => return true,
    }
    false
}
