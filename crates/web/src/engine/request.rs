//! A request that the program keeps for as long as it likes.

use std::fmt;
use std::net::SocketAddr;
use std::sync::LazyLock;

use windlass_http1::RequestHead;
use windlass_serve::Id;
use windlass_serve::net::Networks;
use windlass_serve::report::Counters;

use crate::message::arrived::{Arrived, Beside, From};
use crate::message::request::Request;
use crate::remote::Remote;

/// A request that is the program's: with its body, and without a borrow of the engine.
///
/// It has two allocations: one for the bytes of the head and the body, one for the places of the
/// fields.
pub struct OwnedRequest {
    head: RequestHead,
    /// The head, and behind it the body.
    bytes: Box<[u8]>,
    body_at: usize,
    connection: Id,
    peer: Option<SocketAddr>,
    is_tls: bool,
    trust: Option<&'static Networks>,
}

impl OwnedRequest {
    pub(super) fn new(arrived: Arrived<'_>, body: &[u8]) -> OwnedRequest {
        let Arrived { head, bytes, from } = arrived;
        // The last field ends the head, but for its line ends.
        let last = head.offsets().last().map(|field| field.value().end);
        let end = last.unwrap_or(head.target_range().end);
        let mut all = Vec::with_capacity(end + body.len());
        all.extend_from_slice(&bytes[..end]);
        all.extend_from_slice(body);
        OwnedRequest {
            head: head.copy(),
            bytes: all.into(),
            body_at: end,
            connection: from.id,
            peer: from.peer,
            is_tls: from.is_tls,
            trust: from.trust,
        }
    }

    /// The request, as a handler gets it: with all that [`Request`] tells.
    ///
    /// ```
    /// use windlass_web::engine::OwnedRequest;
    ///
    /// fn page(request: &OwnedRequest) -> u32 {
    ///     let request = request.view();
    ///     request.query("page").and_then(|page| page.parse().ok()).unwrap_or(1)
    /// }
    /// ```
    pub fn view(&self) -> Request<'_> {
        let OwnedRequest { connection: id, peer, is_tls, trust, .. } = *self;
        let from = From { id, peer, is_tls, trust, is_leaving: false, engine: &Alone };
        let arrived = Arrived { head: &self.head, bytes: &self.bytes[..self.body_at], from };
        let mut request = Request::new(arrived, &NOWHERE, "", None);
        request.set_body(Some(self.body()));
        request
    }

    /// The method, as it came.
    pub fn method(&self) -> &str {
        self.head.method(&self.bytes)
    }

    /// The path, as it came: percent-encoded, without the query.
    pub fn path(&self) -> &str {
        self.head.path(&self.bytes)
    }

    /// The target, as it came.
    pub fn target(&self) -> &str {
        self.head.target(&self.bytes)
    }

    /// The value of the first field with this name, in any case; `None`, too, if it is no UTF-8.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut fields = self.head.fields(&self.bytes);
        let (_, value) = fields.find(|field| field.0.eq_ignore_ascii_case(name))?;
        std::str::from_utf8(value).ok()
    }

    /// The body.
    pub fn body(&self) -> &[u8] {
        &self.bytes[self.body_at..]
    }

    /// The address at the other end of the connection.
    pub fn peer(&self) -> Option<SocketAddr> {
        self.peer
    }

    /// The id of the connection.
    pub fn connection(&self) -> Id {
        self.connection
    }

    /// Whether the client offers to go over to this protocol.
    pub fn offers(&self, protocol: &str) -> bool {
        self.view().arrived().offers(protocol)
    }
}

impl fmt::Debug for OwnedRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedRequest")
            .field("method", &self.method())
            .field("target", &self.target())
            .field("body", &self.body().len())
            .finish_non_exhaustive()
    }
}

/// What stands for the engine of a request that has left it.
struct Alone;

/// A request of a program with a loop of its own reaches no loops of a server.
static NOWHERE: LazyLock<Remote> = LazyLock::new(Remote::default);

static NOTHING: LazyLock<Counters> = LazyLock::new(Counters::default);

impl Beside for Alone {
    fn counters(&self) -> &Counters {
        &NOTHING
    }

    #[cfg(feature = "tls")]
    fn tls(&self, _: Id) -> Option<&windlass_serve::tls::Session> {
        None
    }
}
