//! Requests that are passed on to another server, and its responses.
//!
//! ```text
//! mod.rs      the state of such a request, and its beginning
//! request.rs  the body of the request, to the server
//! response.rs the response, to the client
//! tunnel.rs   the two connections behind a 101
//! ends.rs     what fails, and what is given up
//! ```
//!
//! # Why
//! No body is collected here. A part of one is written to the other connection at once, and that
//! one says when it is full: then the connection that the parts come from is not read. So each
//! request holds what two connections may hold, whatever its size is.

mod ends;
mod request;
mod response;
mod tunnel;

use std::sync::Arc;
use std::time::Instant;

use windlass::Buf;
use windlass_http1::{BodyEncoder, EncodeError, Framing, RequestHead};
use windlass_serve::Engine;

use super::program::Program;
use super::respond::{Context, Next};
use super::{Exchange, Machine, Slot, Stage, Wire};
use crate::client::error::FetchError;
use crate::client::hub::{CallId, Requester, Step};
use crate::message::arrived::Trailers;
use crate::proxy::{ClientSide, Forward, Passage, RequestBody, encode_request, is_trailer_passed};
use crate::words::error::Error;
use crate::words::status::Status;

pub(super) use tunnel::Tunnel;

/// A request that is passed on.
pub(super) struct Forwarding {
    plan: Forward,
    passage: Passage,
    call: CallId,
    /// The body, if it was collected, until the request can no more be sent again.
    body: Option<Arc<[u8]>>,
    /// Whether its body is still to come.
    pub(super) is_coming: bool,
    /// Whether the link has no room for more of it.
    pub(super) is_full: bool,
    /// Whether the clock of its body begins when its call has a connection. Until then that of the
    /// answer runs: the client is not read meanwhile, and so has no time that passes.
    waits: bool,
    /// Whether a part of it was sent that is not kept.
    has_sent: bool,
    /// Whether it offers to go over to another protocol.
    upgrades: bool,
    /// The servers that have failed.
    tried: u64,
    /// Whether a kept connection has failed.
    has_tried_kept: bool,
    response: Option<Begun>,
    /// The trailers of the response.
    trailers: Trailers,
    /// Whether the client has no room for more of the response.
    is_held: bool,
}

/// A response whose head was passed on.
struct Begun {
    status: Status,
    decided: Instant,
    encoder: BodyEncoder,
    sent: u64,
}

/// The body of a request that is to be passed on: `None` if it is still to come.
pub(crate) type Collected = Option<Arc<[u8]>>;

/// Why a request was not sent.
enum Unsent {
    /// Each server has all that it may have, or has failed.
    NoServer,
    Refused(FetchError),
}

impl From<Unsent> for Error {
    fn from(unsent: Unsent) -> Error {
        match unsent {
            Unsent::NoServer | Unsent::Refused(FetchError::Refused) => {
                Error::new(Status::SERVICE_UNAVAILABLE).header("Retry-After", "1")
            }
            Unsent::Refused(FetchError::Request(EncodeError::NoBody)) => {
                Error::new(Status::BAD_REQUEST).text("a request with this method has no body")
            }
            Unsent::Refused(FetchError::Request(error)) => {
                Error::new(Status::INTERNAL_SERVER_ERROR).because(error)
            }
            Unsent::Refused(error) => error.into(),
        }
    }
}

impl<K: 'static> Machine<K> {
    /// Passes a request on, whose body has at most so many bytes.
    #[inline(never)]
    pub(super) fn forward<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        wire: &mut Wire<'_, K>,
        mut exchange: Option<Box<Exchange<K>>>,
        context: Context<'_>,
        (plan, collected, most): (Forward, Collected, Option<u64>),
    ) -> Next<K> {
        if !self.admits(program, context.0) {
            return self.refuse_busy(program, wire, exchange, context);
        }
        let bytes = context.2.unwrap_or_default();
        let framing = self.head.framing();
        let refused = match framing {
            Framing::Tunnel => Some(Error::new(Status::NOT_IMPLEMENTED)),
            Framing::Length(len) if collected.is_none() && most.is_some_and(|most| len > most) => {
                Some(Error::body_too_long())
            }
            _ => None,
        };
        if let Some(error) = refused {
            return self.respond(program, wire, exchange, context, error.into());
        }
        if let Some(exchange) = &mut exchange {
            exchange.trailers.retain(|(name, _)| is_trailer_passed(name));
        }
        let trailers = exchange.as_ref().map_or(&[][..], |exchange| &exchange.trailers);
        let (is_coming, body) = (collected.is_none() && framing != Framing::Empty, collected);
        // Bytes behind a body could be a request or another protocol: that depends on the server.
        let upgrade = match framing {
            Framing::Empty if !self.is_draining => offer(&self.head, bytes, &plan),
            _ => None,
        };
        let parts = (body.as_ref(), trailers, is_coming, upgrade);
        let sent = self.send_request(wire, &plan, bytes, parts, 0);
        let (call, passage) = match sent {
            Ok(sent) => sent,
            Err(unsent) => {
                let error = Error::from(unsent);
                return self.respond(program, wire, exchange, context, error.into());
            }
        };
        let head_timeout = plan.upstream.settings().head_timeout;
        let forwarding = Forwarding {
            upgrades: upgrade.is_some(),
            plan,
            passage,
            call,
            body,
            is_coming,
            is_full: false,
            waits: false,
            has_sent: false,
            tried: 0,
            has_tried_kept: false,
            response: None,
            trailers: Trailers::new(),
            is_held: false,
        };
        let next = self.wait_for(wire, exchange, context, Stage::Forward(forwarding));
        if let Some(span) = head_timeout {
            wire.engine.time_limit(wire.id, span);
        }
        match next {
            Next::Waits(exchange) if is_coming => Next::Body(exchange, most.unwrap_or(u64::MAX)),
            next => next,
        }
    }

    /// Sends the head of a request, which was decoded last, and its body as far as it is there.
    fn send_request(
        &mut self,
        wire: &mut Wire<'_, K>,
        plan: &Forward,
        bytes: &[u8],
        (body, trailers, is_coming, upgrade): RequestParts<'_>,
        mut tried: u64,
    ) -> Result<(CallId, Passage), Unsent> {
        let from = self.from(wire);
        let client = ClientSide {
            ip: from.peer.map(|peer| peer.ip()),
            is_tls: from.is_tls,
            is_trusted: from.trust.is_some_and(|trust| trust.contains(from.peer)),
        };
        let form = match body {
            _ if is_coming => RequestBody::Coming,
            Some(_) if !trailers.is_empty() => RequestBody::WithTrailers,
            Some(body) if !body.is_empty() => RequestBody::Whole(body.len()),
            _ => RequestBody::Empty,
        };
        let mut last = Unsent::NoServer;
        loop {
            let Some(passage) = plan.upstream.pick(self.now, tried) else { return Err(last) };
            tried |= passage.bit();
            let (head, server) = (&self.head, passage.server());
            let caller = Requester::Stream(wire.id);
            let opened = self.hub.open(wire.engine, caller, passage.origin(), u64::MAX, |out| {
                encode_request(out, (plan, server), (head, bytes), client, form, upgrade)
            });
            let call = match opened {
                Ok(call) => call,
                Err(error @ FetchError::Url { .. }) if passage.bit() != 0 => {
                    passage.fail(self.now); // another server may have an address
                    last = Unsent::Refused(error);
                    continue;
                }
                Err(error) => return Err(Unsent::Refused(error)),
            };
            let span = plan.upstream.settings().connect_timeout;
            self.hub.limit_connect(wire.engine, call, span);
            if !is_coming {
                if let Some(body) = body.filter(|body| !body.is_empty()) {
                    self.hub.send(wire.engine, call, Buf::from(Arc::clone(body)));
                }
                self.hub.end_request(wire.engine, call, trailers);
            }
            return Ok((call, passage));
        }
    }

    /// Something has come of a call whose response is passed on.
    pub(super) fn pass_on<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        engine: &mut Engine<Slot<K>>,
        step: Step,
    ) {
        let id = match &step {
            Step::Head(Requester::Stream(id))
            | Step::Interim(Requester::Stream(id))
            | Step::Body(Requester::Stream(id), _)
            | Step::Trailers(Requester::Stream(id))
            | Step::End(Requester::Stream(id))
            | Step::Failed(Requester::Stream(id), ..)
            | Step::Drained(Requester::Stream(id))
            | Step::Ended(Requester::Stream(id)) => *id,
            _ => return,
        };
        self.begin_callback(engine);
        let wire = &mut Wire { engine, id };
        let is_tunnel = wire.tunnel().is_some();
        match step {
            Step::Body(_, part) if is_tunnel => self.tunnel_data(wire, part),
            Step::Drained(_) if is_tunnel => self.tunnel_drained(wire),
            Step::Ended(_) => self.tunnel_ended(wire),
            Step::Failed(_, error, _) if is_tunnel => self.tunnel_failed(wire, &error),
            Step::Head(_) => self.pass_head(program, wire),
            Step::Interim(_) => self.pass_interim(wire),
            Step::Body(_, part) => self.pass_body(wire, part),
            Step::Trailers(_) => self.keep_response_trailers(wire),
            Step::End(_) => self.pass_end(program, wire),
            Step::Failed(_, error, reached) => self.call_failed(program, wire, error, reached),
            Step::Drained(_) => self.go_on_passing(program, wire),
            Step::Done(..) => {}
            #[cfg(feature = "websocket")]
            Step::Switched(_) => {}
        }
    }
}

/// A collected body, its trailers, whether the body is still to come, and the protocol that the
/// request offers.
type RequestParts<'a> = (Option<&'a Arc<[u8]>>, &'a [(String, Vec<u8>)], bool, Option<&'a str>);

/// The first protocol that a request offers, of those that go on.
fn offer<'a>(head: &RequestHead, bytes: &'a [u8], plan: &Forward) -> Option<&'a str> {
    let list = std::str::from_utf8(head.upgrade(bytes)?).ok()?;
    let protocols = &plan.upstream.settings().protocols;
    let goes_on = |name: &&str| protocols.iter().any(|one| one.eq_ignore_ascii_case(name));
    list.split(',').map(str::trim).find(goes_on)
}

impl<K> Wire<'_, K> {
    fn forwarding(&mut self) -> Option<&mut Forwarding> {
        match &mut self.slot()?.exchange.as_mut()?.stage {
            Stage::Forward(forwarding) => Some(forwarding),
            _ => None,
        }
    }

    fn tunnel(&mut self) -> Option<&mut Tunnel> {
        match &mut self.slot()?.exchange.as_mut()?.stage {
            Stage::Tunnel(tunnel) => Some(tunnel),
            _ => None,
        }
    }
}
