//! Two connections whose bytes are passed on as they come: behind a 101.
//!
//! # Why
//! To each peer an end of file says that it has all that the other one has sent. So both sockets
//! are set to end by a reset, also when the engine below ends them for want of memory, or the
//! system behind the end of the process. Only the end of one peer makes that of the other an end of
//! file.

use windlass::Buf;
use windlass_http1::{Asked, EncodeError, ResponseEncoder, ResponseHead};
use windlass_serve::{Cause, Engine, Id};

use super::super::finish::Fate;
use super::super::program::Program;
use super::super::read::Rest;
use super::super::receive::Bytes;
use super::super::{Exchange, Machine, Slot, Stage, Wire, empty};
use super::{Passage, Unsent};
use crate::client::error::FetchError;
use crate::client::hub::CallId;
use crate::proxy::ResponseFields;
use crate::words::error::Error;
use crate::words::status::Status;

/// A connection of a client, and the call that its bytes belong to.
pub(in super::super) struct Tunnel {
    pub(super) call: CallId,
    /// The tunnel counts at its server.
    _passage: Passage,
    /// Whether the link takes no more.
    pub(in super::super) is_full: bool,
    /// Whether the client takes no more.
    pub(super) is_held: bool,
    has_client_ended: bool,
    has_server_ended: bool,
}

impl<K: 'static> Machine<K> {
    /// The server goes over to another protocol.
    pub(super) fn go_through<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        wire: &mut Wire<'_, K>,
        mut exchange: Box<Exchange<K>>,
    ) {
        let Stage::Forward(forwarding) = &exchange.stage else { return };
        let (asked, upgrades) = (exchange.asked, forwarding.upgrades);
        let encoded = match (self.hub.response(), upgrades) {
            // A tunnel has no end of its own: a shutdown could not wait for it.
            (Some(_), true) if self.is_draining => {
                let error = Error::from(Unsent::NoServer);
                return self.fail_passed(program, wire, exchange, error);
            }
            (Some((head, bytes)), true) => switch(&mut self.out, asked, head, bytes),
            _ => Err(EncodeError::Status),
        };
        if let Err(error) = encoded {
            let error = Error::new(Status::BAD_GATEWAY).because(error);
            return self.fail_passed(program, wire, exchange, error);
        }
        let outcome = Fate {
            status: Some(Status::SWITCHING_PROTOCOLS),
            start: Some(exchange.start),
            ..Fate::default()
        };
        self.finish_passed(program, wire, &exchange, outcome);
        self.ends_waiting(wire, exchange.route);
        self.flush(wire);
        let Stage::Forward(forwarding) = std::mem::replace(&mut exchange.stage, Stage::Head) else {
            return;
        };
        let span = forwarding.plan.upstream.settings().idle_timeout;
        self.reset_at_end(wire, true);
        wire.engine.set_idle_timeout(wire.id, span);
        self.hub.set_idle(wire.engine, forwarding.call, span);
        exchange.stage = Stage::Tunnel(Tunnel {
            call: forwarding.call,
            _passage: forwarding.passage,
            is_full: false,
            is_held: false,
            has_client_ended: false,
            has_server_ended: false,
        });
        empty(&mut exchange.head);
        let input = std::mem::take(&mut exchange.input);
        let has_ended = std::mem::take(&mut exchange.peer.has_ended);
        self.keep(program, wire, exchange, Bytes::Copied(input), 0);
        if has_ended {
            self.eof(program, wire);
        }
    }

    /// Passes all bytes of the client on.
    pub(in super::super) fn pass_all_through(
        &mut self,
        wire: &mut Wire<'_, K>,
        mut exchange: Box<Exchange<K>>,
        bytes: &Bytes,
        at: usize,
    ) -> Rest<K> {
        if let Stage::Tunnel(tunnel) = &mut exchange.stage {
            if at < bytes.len() {
                let part = bytes.part(at..bytes.len());
                self.hub.pass(wire.engine, tunnel.call, part);
            }
            tunnel.is_full = self.hub.is_full(wire.engine, tunnel.call);
        }
        Rest::Waits(exchange, bytes.len())
    }

    /// Passes bytes of the server on.
    pub(super) fn tunnel_data(&mut self, wire: &mut Wire<'_, K>, part: Buf) {
        if wire.engine.write(wire.id, part).is_err() {
            return self.reset(wire);
        }
        let is_full = wire.engine.is_full(wire.id);
        let Some(tunnel) = wire.tunnel().filter(|_| is_full) else { return };
        tunnel.is_held = true;
        let call = tunnel.call;
        self.hub.set_reads(wire.engine, call, false);
        // The other direction goes on.
        wire.engine.read_when_full(wire.id, true);
    }

    /// The link has room again.
    pub(super) fn tunnel_drained(&mut self, wire: &mut Wire<'_, K>) {
        let Some(exchange) = wire.slot().and_then(|slot| slot.exchange.as_mut()) else { return };
        let Stage::Tunnel(tunnel) = &mut exchange.stage else { return };
        tunnel.is_full = false;
        if std::mem::take(&mut exchange.is_paused) {
            wire.engine.resume(wire.id);
        }
    }

    /// The server has ended its side.
    pub(super) fn tunnel_ended(&mut self, wire: &mut Wire<'_, K>) {
        let Some(tunnel) = wire.tunnel() else { return };
        tunnel.has_server_ended = true;
        let (call, is_over) = (tunnel.call, tunnel.has_client_ended);
        self.reset_at_end(wire, false);
        if is_over {
            self.hub.close(wire.engine, call);
            wire.engine.close(wire.id);
        } else {
            wire.engine.shutdown(wire.id);
        }
    }

    /// The client has ended its side.
    pub(in super::super) fn tunnel_eof(&mut self, wire: &mut Wire<'_, K>) {
        let Some(tunnel) = wire.tunnel() else { return };
        tunnel.has_client_ended = true;
        let (call, is_over) = (tunnel.call, tunnel.has_server_ended);
        if is_over {
            self.hub.close(wire.engine, call);
            wire.engine.close(wire.id);
        } else {
            self.hub.end_output(wire.engine, call);
        }
    }

    /// The link is over, or nothing has moved on it for too long.
    pub(super) fn tunnel_failed(&mut self, wire: &mut Wire<'_, K>, error: &FetchError) {
        if let FetchError::Connection(Cause::Eof) = error {
            // The server has ended its side, and the client had ended its own.
            self.reset_at_end(wire, false);
            wire.engine.close(wire.id);
        } else {
            wire.engine.abort(wire.id);
        }
    }

    /// Ends both connections at once. A peer that has no end of file gets a reset.
    pub(in super::super) fn break_tunnel(&mut self, wire: &mut Wire<'_, K>) {
        let Some(call) = wire.tunnel().map(|tunnel| tunnel.call) else { return };
        self.hub.cancel(wire.engine, call);
        wire.engine.abort(wire.id);
    }

    /// The connection of the client is over.
    pub(in super::super) fn end_tunnel(
        &mut self,
        engine: &mut Engine<Slot<K>>,
        tunnel: &Tunnel,
        cause: Cause,
    ) {
        if cause == Cause::Eof {
            // The client has ended its side, and the server had ended its own.
            self.hub.close(engine, tunnel.call);
        } else {
            self.hub.cancel(engine, tunnel.call);
        }
    }

    /// The server shuts down.
    pub(in super::super) fn break_tunnels(&mut self, engine: &mut Engine<Slot<K>>) {
        let is_tunnel = |slot: &Slot<K>| {
            let stage = slot.exchange.as_ref().map(|exchange| &exchange.stage);
            matches!(stage, Some(Stage::Tunnel(_)))
        };
        let ids = engine.ids().filter(|id| engine.state(*id).is_some_and(is_tunnel));
        for id in ids.collect::<Vec<Id>>() {
            self.break_tunnel(&mut Wire { engine, id });
        }
    }
}

/// Writes a 101.
fn switch(
    out: &mut Vec<u8>,
    asked: Asked,
    head: &ResponseHead,
    bytes: &[u8],
) -> Result<(), EncodeError> {
    let protocol = head.upgrade(bytes).and_then(|name| std::str::from_utf8(name).ok());
    let protocol = protocol.ok_or(EncodeError::Status)?;
    let mut response = ResponseEncoder::with_reason(out, asked, 101, head.reason(bytes))?;
    ResponseFields::new(head, bytes).each(|name, value| response.field(name, value))?;
    response.switch(protocol)
}
