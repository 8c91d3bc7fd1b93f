//! Hellos of clients that wait for the settings of their connections.

use std::fmt;
use std::sync::Arc;

use super::error::TlsError;
use super::server::Tls;
use super::session::Session;

/// A hello of a client, which waits for the settings of its connection: see
/// [`TlsBuilder::resolver`](super::TlsBuilder::resolver). It may go to another thread, and may be
/// answered at any time, until [`Limits::handshake`](crate::Limits::handshake) ends the connection.
///
/// If it is dropped without an answer, the client is refused with the alert `unrecognized_name`.
#[must_use = "a hello that is dropped refuses the client"]
pub struct Hello {
    name: Option<Box<str>>,
    alpn: Vec<Vec<u8>>,
    own: Tls,
    answer: Option<Box<dyn FnOnce(Option<Tls>) + Send>>,
}

impl Session {
    /// The server's end, whose settings come later if there is a resolver.
    pub(crate) fn begin_server(tls: &Tls) -> Result<Session, TlsError> {
        match tls.resolver() {
            Some(_) => Ok(Session::server_later(tls.current().1 as usize)),
            None => Session::server(tls),
        }
    }

    /// Asks the program for the settings of the hello that waits.
    pub(crate) fn ask(&self, tls: &Tls, answer: Box<dyn FnOnce(Option<Tls>) + Send>) {
        let Some(resolver) = tls.resolver() else { return answer(Some(tls.clone())) };
        resolver.ask(Hello::new(self, tls.clone(), answer));
    }
}

impl Hello {
    pub(super) fn new(
        session: &Session,
        own: Tls,
        answer: Box<dyn FnOnce(Option<Tls>) + Send>,
    ) -> Hello {
        let name = session.server_name().map(Box::from);
        let alpn = session.offered_alpn().into_iter().map(<[u8]>::to_vec).collect();
        Hello { name, alpn, own, answer: Some(answer) }
    }

    /// The name of a server that the client asks for (SNI), in lower case.
    pub fn server_name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The protocols that the client speaks (ALPN), the best first.
    pub fn alpn(&self) -> &[Vec<u8>] {
        &self.alpn
    }

    /// Whether the client speaks this protocol (ALPN).
    pub fn offers(&self, protocol: impl AsRef<[u8]>) -> bool {
        self.alpn.iter().any(|name| name == protocol.as_ref())
    }

    /// Goes on with these settings. A resolver of theirs is not asked. Nothing happens if the
    /// connection has ended meanwhile.
    pub fn answer(mut self, tls: &Tls) {
        self.reply(Some(tls.clone()));
    }

    /// Goes on with the settings whose resolver was asked, and with their certificates. If they
    /// have none, the client is refused.
    pub fn go_on(mut self) {
        let own = self.own.clone();
        self.reply(Some(own));
    }

    fn reply(&mut self, tls: Option<Tls>) {
        if let Some(answer) = self.answer.take() {
            answer(tls);
        }
    }
}

impl Drop for Hello {
    fn drop(&mut self) {
        self.reply(None);
    }
}

impl fmt::Debug for Hello {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hello").field("server_name", &self.name).finish_non_exhaustive()
    }
}

/// The program's code that answers hellos.
#[derive(Clone)]
pub(super) struct HelloResolver(pub(super) Arc<dyn Fn(Hello) + Send + Sync>);

impl HelloResolver {
    pub(super) fn ask(&self, hello: Hello) {
        (self.0)(hello);
    }
}

impl fmt::Debug for HelloResolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HelloResolver")
    }
}
