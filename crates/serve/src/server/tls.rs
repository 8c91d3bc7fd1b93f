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

#[cfg(test)]
mod tests {
    use super::super::Server;
    use super::super::address::{Listen, Place};
    use crate::server::{Action, Context, Handler};
    use crate::tls::{Pem, Tls};

    struct Ends;

    impl Handler for Ends {
        type State = ();
        fn serving(&mut self, _: &mut Context<'_, ()>, _: &[windlass::Address]) -> Action {
            Action::Shutdown
        }
    }

    /// `fd://` adds several, and plain text would leave those that were forgotten.
    #[test]
    fn all_that_one_call_has_added_are_encrypted() {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let key = made.signing_key.serialize_pem();
        let tls = Tls::pem(Pem::bytes(made.cert.pem()), Pem::bytes(key)).unwrap();
        let one = || Listen::at(Place::Nowhere);
        let server = Server::new(|_| Ends).add([one()]).add([one(), one()]).tls(tls);
        let encrypted: Vec<bool> = server.listens.iter().map(|one| one.tls.is_some()).collect();
        assert_eq!(encrypted, [false, true, true]);
    }

    #[test]
    #[should_panic(expected = "an address comes first")]
    fn without_an_address_there_is_nothing_to_encrypt() {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let key = made.signing_key.serialize_pem();
        let tls = Tls::pem(Pem::bytes(made.cert.pem()), Pem::bytes(key)).unwrap();
        let _ = Server::new(|_| Ends).tls(tls);
    }
}
