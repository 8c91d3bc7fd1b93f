//! What a callback can read of the TLS of its connection, and how that begins.

use windlass::Buf;

use super::conn::Conn;
#[cfg(doc)]
use super::handler::Handler;
#[cfg(doc)]
use crate::engine::Engine;
use crate::tls::Role;
use crate::words::refused::Refused;

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

    /// Lets the plain connection go over to TLS, as `STARTTLS` does. `rest` is what was read behind
    /// the last plain message: it belongs to the handshake, and the program must not use it itself.
    /// [`Handler::upgraded`] follows. [`Engine::upgrade`] says why, and what this means for what is
    /// written before and after the call.
    ///
    /// ```
    /// use windlass::Buf;
    /// use windlass_serve::framing::{Input, Lines};
    /// use windlass_serve::tls::Tls;
    /// use windlass_serve::{Action, Conn, Handler};
    ///
    /// struct Mail(Tls);
    /// impl Handler for Mail {
    ///     type State = Input;
    ///     fn data(&mut self, c: &mut Conn<'_, Input>, data: Buf) -> Action {
    ///         c.state().push(data);
    ///         while let Ok(Some(line)) = c.state().next(&mut Lines::new(1000)) {
    ///             if &*line != b"STARTTLS" {
    ///                 c.write("500 what?\r\n");
    ///                 continue;
    ///             }
    ///             c.write("220 go ahead\r\n"); // leaves as plain text
    ///             let rest = c.state().take_rest();
    ///             let begins = c.upgrade(&self.0, rest).is_ok();
    ///             return if begins { Action::None } else { Action::Close };
    ///         }
    ///         Action::None
    ///     }
    ///     fn upgraded(&mut self, c: &mut Conn<'_, Input>) -> Action {
    ///         *c.state() = Input::new(); // nothing that was said before counts
    ///         Action::None
    ///     }
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Refused`] hands `rest` back: see [`Engine::upgrade`].
    pub fn upgrade(
        &mut self,
        role: impl Into<Role>,
        rest: impl Into<Buf>,
    ) -> Result<(), Refused<Buf>> {
        self.engine.upgrade(self.id(), role, rest)
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
