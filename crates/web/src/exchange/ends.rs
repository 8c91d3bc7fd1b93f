//! Limits, and the ends of the peer and of the connection.

use windlass_serve::{Cause, Engine, Id};

use super::finish::Fate;
use super::links::LinkNews;
use super::program::{Answer, Program};
use super::raw::News;
use super::{Exchange, IS_TLS, Machine, Slot, Stage, Wire};
use crate::message::arrived::From;
use crate::words::error::Error;
use crate::words::status::Status;

impl<K: 'static> Machine<K> {
    /// The head of a request has begun.
    pub(super) fn limit_head(&mut self, wire: &mut Wire<'_, K>) {
        wire.engine.limit(wire.id, self.limits.head, 0);
    }

    /// No head is whole. Its time begins with its first byte, before which an empty line may come.
    pub(super) fn limit_late_head(
        &mut self,
        wire: &mut Wire<'_, K>,
        exchange: &mut Exchange<K>,
        has_begun: bool,
    ) {
        if has_begun && matches!(exchange.stage, Stage::Head) && !wire.engine.is_limited(wire.id) {
            exchange.start = self.now;
            self.limit_head(wire);
        }
    }

    /// A body comes.
    pub(super) fn limit_body(&mut self, wire: &mut Wire<'_, K>) {
        wire.engine.limit(wire.id, self.limits.body_time, self.limits.body_rate);
    }

    /// A request waits for its response. The time counts whether the connection is read or not.
    pub(super) fn limit_answer(&mut self, wire: &mut Wire<'_, K>) {
        wire.engine.time_limit(wire.id, self.limits.answer);
    }

    /// A phase has taken too long.
    pub(crate) fn limit_reached<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        wire: &mut Wire<'_, K>,
        cause: Cause,
    ) {
        if let Some(raw) = wire.raw() {
            self.raw_news(program, wire.engine, (wire.id, raw), News::LimitReached(cause));
            return;
        }
        if let Some(link) = wire.link() {
            return self.hear_link(program, wire.engine, link, LinkNews::LimitReached(cause));
        }
        let Some(slot) = wire.slot() else { return };
        let Some(exchange) = slot.exchange.take() else {
            wire.engine.close(wire.id); // no request has come for too long
            return;
        };
        match (&exchange.stage, cause) {
            // No byte has come behind an empty line.
            (Stage::Head, Cause::Idle) if exchange.input.is_empty() => {
                self.recycle(exchange);
                wire.engine.close(wire.id);
            }
            (Stage::Receive(receiving), Cause::TooSlow)
                if receiving.waits_for_disk(&self.saves) =>
            {
                let slow = Error::new(Status::GATEWAY_TIMEOUT).because("the disk is too slow");
                self.give_up(program, wire, Some(exchange), slow);
            }
            (Stage::Head | Stage::Body(_) | Stage::Receive(_), Cause::TooSlow) => {
                let late = Error::new(Status::REQUEST_TIMEOUT).text("the request came too slowly");
                self.give_up(program, wire, Some(exchange), late);
            }
            (Stage::Later(awaited), Cause::TooSlow) if awaited.has_answer() => {
                // It has come meanwhile, and its wake follows.
                slot.exchange = Some(exchange);
            }
            (Stage::Blocks(blocks), Cause::TooSlow) if !blocks.is_begun() => {
                self.running.end(exchange.route);
                self.give_up(program, wire, Some(exchange), Status::GATEWAY_TIMEOUT.into());
            }
            (
                Stage::Answer(_) | Stage::Later(_) | Stage::Fetch(..) | Stage::File(_),
                Cause::TooSlow,
            ) => {
                self.running.end(exchange.route);
                self.cancel_fetch(wire.engine, &exchange);
                self.give_up(program, wire, Some(exchange), Status::GATEWAY_TIMEOUT.into());
            }
            (Stage::Forward(_), Cause::TooSlow) => self.passed_too_slow(program, wire, exchange),
            (Stage::Tunnel(_), Cause::Idle) => {
                slot.exchange = Some(exchange);
                self.break_tunnel(wire);
            }
            (Stage::Skip, Cause::TooSlow) => {
                self.recycle(exchange);
                wire.engine.close(wire.id);
            }
            (Stage::Stream(_), Cause::Idle) => {
                slot.exchange = Some(exchange);
                self.keep_alive(wire);
            }
            _ => slot.exchange = Some(exchange),
        }
        self.flush(wire);
    }

    /// The peer has shut down its output.
    pub(crate) fn eof<P: Program<Keep = K>>(&mut self, program: &mut P, wire: &mut Wire<'_, K>) {
        if let Some(exchange) = self.take_eof(program, wire) {
            self.go_on_streaming(program, wire, exchange);
        }
    }

    /// Does what follows the end of the peer. A stream comes back: it is to go on.
    pub(super) fn take_eof<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        wire: &mut Wire<'_, K>,
    ) -> Option<Box<Exchange<K>>> {
        if let Some(raw) = wire.raw() {
            self.raw_news(program, wire.engine, (wire.id, raw), News::Eof);
            return None;
        }
        if let Some(link) = wire.link() {
            self.hear_link(program, wire.engine, link, LinkNews::Eof);
            return None;
        }
        let slot = wire.slot()?;
        let Some(mut exchange) = slot.exchange.take() else {
            wire.engine.close(wire.id);
            return None;
        };
        exchange.tell_end();
        match exchange.stage {
            Stage::Skip => {
                self.recycle(exchange);
                wire.engine.close(wire.id);
            }
            Stage::Head if exchange.input.is_empty() => {
                self.recycle(exchange);
                wire.engine.close(wire.id);
            }
            // It is behind a request that had to wait: the rest of its body may have come, too.
            Stage::Receive(ref receiving) if receiving.waits(&self.saves) => {
                exchange.peer.has_ended = true;
                slot.exchange = Some(exchange);
            }
            Stage::Forward(ref forwarding) if forwarding.is_coming && !forwarding.is_full => {
                let cut = Error::new(Status::BAD_REQUEST).text("the request is not whole");
                self.give_passed_up(program, wire, exchange, cut);
            }
            Stage::Tunnel(_) => {
                slot.exchange = Some(exchange);
                self.tunnel_eof(wire);
            }
            Stage::Head | Stage::Body(_) | Stage::Receive(_) => {
                let cut = Error::new(Status::BAD_REQUEST).text("the request is not whole");
                self.give_up(program, wire, Some(exchange), cut);
                self.flush(wire);
            }
            Stage::Room
            | Stage::Answer(_)
            | Stage::Later(_)
            | Stage::Fetch(..)
            | Stage::File(_)
            | Stage::Sending(_)
            | Stage::Blocks(_)
            | Stage::Forward(_) => {
                if let Stage::Later(awaited) = &exchange.stage {
                    awaited.peer_ended();
                }
                exchange.peer.has_ended = true;
                slot.exchange = Some(exchange);
            }
            Stage::Stream(_) if exchange.peer.has_ended => slot.exchange = Some(exchange),
            Stage::Stream(ref mut streamed) => {
                (exchange.peer.has_ended, streamed.has_peer_ended) = (true, true);
                return Some(exchange);
            }
        }
        None
    }

    /// The peer has shut down its output, behind bytes that are not read yet: who works for it
    /// learns of it, and all else goes on.
    pub(crate) fn peer_ended<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        wire: &mut Wire<'_, K>,
    ) {
        let Some(slot) = wire.slot() else { return };
        let Some(mut exchange) = slot.exchange.take() else { return };
        exchange.tell_end();
        match &mut exchange.stage {
            Stage::Later(awaited) => awaited.peer_ended(),
            Stage::Stream(streamed) => {
                streamed.has_peer_ended = true;
                return self.go_on_streaming(program, wire, exchange);
            }
            _ => {}
        }
        slot.exchange = Some(exchange);
    }

    /// A connection has ended.
    pub(crate) fn closed<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        engine: &mut Engine<Slot<K>>,
        mut slot: Slot<K>,
        (id, cause, unsent): (Id, Cause, usize),
    ) {
        if let Some(raw) = slot.raw() {
            return self.raw_closed(program, id, raw, cause);
        }
        let peer = self.peers.get(slot.peer);
        self.peers.remove(slot.peer);
        let Some(mut exchange) = slot.exchange.take() else { return };
        let told = match &mut exchange.stage {
            Stage::Sending(sent) => sent.error.take(),
            _ => None,
        };
        let Exchange { stage, route, start, head, .. } = &*exchange;
        let (error, start) = (told.as_ref(), Some(*start));
        let mut outcome = Fate { cause: Some(cause), start, error, ..Fate::default() };
        match stage {
            Stage::Head | Stage::Skip | Stage::Room => return,
            Stage::Body(_) | Stage::Receive(_) => {}
            Stage::Answer(_) | Stage::Later(_) | Stage::File(_) => self.running.end(*route),
            Stage::Fetch(call, _) => {
                self.running.end(*route);
                self.hub.cancel(engine, *call);
            }
            Stage::Sending(sent) => {
                outcome.status = Some(sent.status);
                outcome.sent = sent.len.saturating_sub(unsent as u64);
                outcome.decided = Some(sent.decided);
                self.file_broke_off(sent, cause);
            }
            Stage::Blocks(blocks) if blocks.is_begun() => {
                outcome.status = Some(blocks.status);
                outcome.sent = blocks.sent.saturating_sub(unsent as u64);
                outcome.decided = Some(blocks.decided);
            }
            Stage::Blocks(_) => self.running.end(*route),
            Stage::Forward(forwarding) => {
                self.running.end(*route);
                self.end_forwarding(engine, forwarding, &mut outcome);
            }
            Stage::Tunnel(tunnel) => {
                self.end_tunnel(engine, tunnel, cause);
                return self.recycle(exchange);
            }
            Stage::Stream(streamed) => {
                outcome.status = Some(streamed.status);
                outcome.sent = streamed.sent;
                outcome.decided = Some(streamed.decided);
                if let Some(hearing) = &streamed.hearing {
                    self.hear_no_more(id, hearing);
                }
            }
        }
        let engine = &*engine;
        let has_head = program.is_watched() && !head.is_empty() && self.decode_again(head);
        let (is_tls, trust) = (slot.bits.get() & IS_TLS != 0, self.limits.trust);
        let from = From { id, peer, is_tls, trust, is_leaving: self.is_leaving, engine };
        let now = self.time(program, engine);
        let route = *route;
        program.within(id, |program| {
            let context = (route, has_head.then_some(&exchange.head[..]));
            self.finish(program, from, context, now, outcome);
            self.drop_receiver(program, id, &mut exchange);
        });
        self.recycle(exchange);
    }

    /// Cancels the call of another server that the response was to be made of.
    fn cancel_fetch(&mut self, engine: &mut Engine<Slot<K>>, exchange: &Exchange<K>) {
        if let Stage::Fetch(call, _) = exchange.stage {
            self.hub.cancel(engine, call);
        }
    }

    /// The server shuts down: connections without a request close, and the others behind their
    /// response. Those with another protocol hear of it.
    pub(crate) fn drain<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        engine: &mut Engine<Slot<K>>,
    ) {
        self.begin_callback(engine);
        (self.is_draining, self.is_leaving) = (true, true);
        self.stop_raw(program, engine);
        self.end_events(program, engine);
        self.break_tunnels(engine);
        self.hub.drain(engine);
        let is_idle = |id: &Id| engine.state(*id).is_some_and(Slot::is_idle);
        let idle: Vec<Id> = engine.ids().filter(is_idle).collect();
        for id in idle {
            engine.close(id);
        }
    }

    /// The time of the shutdown is over: requests that wait are answered so, and a response that is
    /// not whole ends with a reset. An end of file would say that it is all.
    pub(crate) fn give_all_up<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        engine: &mut Engine<Slot<K>>,
    ) {
        let ids: Vec<Id> = engine.ids().collect();
        for id in ids {
            let mut wire = Wire { engine, id };
            let Some(slot) = wire.slot() else { continue };
            if !slot.is_http() {
                continue;
            }
            let Some(exchange) = slot.exchange.take() else { continue };
            match exchange.stage {
                Stage::Blocks(ref blocks) if !blocks.is_begun() => {
                    self.running.end(exchange.route);
                }
                Stage::Stream(_) | Stage::Sending(_) | Stage::Blocks(_) => {
                    slot.exchange = Some(exchange);
                    self.reset(&mut wire);
                    continue;
                }
                Stage::Head | Stage::Skip | Stage::Room => {
                    slot.exchange = Some(exchange);
                    continue;
                }
                Stage::Answer(_) | Stage::Later(_) | Stage::File(_) => {
                    self.running.end(exchange.route);
                }
                Stage::Fetch(..) => {
                    self.running.end(exchange.route);
                    self.cancel_fetch(wire.engine, &exchange);
                }
                Stage::Tunnel(_) => {
                    slot.exchange = Some(exchange);
                    self.reset(&mut wire);
                    continue;
                }
                Stage::Body(_) | Stage::Receive(_) | Stage::Forward(_) => {}
            }
            let over = Error::new(Status::SERVICE_UNAVAILABLE).text("the server shuts down");
            if let Stage::Forward(_) = exchange.stage {
                self.give_passed_up(program, &mut wire, exchange, over);
                continue;
            }
            self.give_up(program, &mut wire, Some(exchange), over);
            self.flush(&mut wire);
        }
    }
}

impl<K: 'static> Machine<K> {
    /// The job of a request has panicked, or was dropped.
    pub(crate) fn job_failed<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        wire: &mut Wire<'_, K>,
        error: &windlass_serve::jobs::JobError,
    ) {
        let Some((exchange, _)) = self.take_waiting(wire) else { return };
        let error = Error::new(Status::INTERNAL_SERVER_ERROR).because(format!("{error:?}"));
        self.answer_late(program, wire, exchange, Answer::Respond(error.into()));
    }
}
