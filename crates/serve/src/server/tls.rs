//! What a callback can read of the TLS of its connection.

use super::handler::Conn;
#[cfg(doc)]
use crate::engine::Engine;

impl<S> Conn<'_, S> {
    /// The session of TLS, to read what was agreed on; `None` for a plain connection. See
    /// [`Engine::tls`].
    ///
    /// ```
    /// use windlass_serve::{Action, Conn, Handler, Origin};
    ///
    /// struct Greeter;
    /// impl Handler for Greeter {
    ///     type State = ();
    ///     fn opened(&mut self, c: &mut Conn<'_, ()>, _: Origin) -> Action {
    ///         let client = c.tls().and_then(|session| session.peer_certificate_info());
    ///         if let Some(client) = client {
    ///             c.write(format!("hello, {client}\n")); // the certificate is checked already
    ///         }
    ///         Action::None
    ///     }
    /// }
    /// ```
    pub fn tls(&self) -> Option<&crate::tls::Session> {
        self.engine.tls(self.id())
    }
}
