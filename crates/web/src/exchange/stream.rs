//! Responses that are made while they are sent.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use windlass::net::SocketOption;
use windlass_http1::{Asked, BodyEncoder, Version};
use windlass_serve::Cause;

use super::finish::Fate;
use super::links::LinkNews;
use super::program::Program;
use super::raw::News;
use super::respond::Next;
use super::{Exchange, Machine, Stage, Streamed, Wire};
use crate::message::source::{At, EMPTY_PARTS, Flow, Part};

impl<K: 'static> Machine<K> {
    /// Makes the parts of a response that the connection has room for.
    pub(super) fn stream<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        wire: &mut Wire<'_, K>,
        mut exchange: Box<Exchange<K>>,
    ) -> Next<K> {
        let Stage::Stream(streamed) = &mut exchange.stage else { return Next::Waits(exchange) };
        let (mut bytes, mut empty, mut has_panicked) = (Vec::new(), 0, false);
        let has_peer_ended = streamed.has_peer_ended;
        let flow = loop {
            if !self.flush(wire) {
                break Flow::Fail;
            }
            if !streamed.encoder.is_sent() {
                break Flow::End; // one behind a HEAD: it may have no end
            }
            // A source hears of the end of its peer although nothing has room: that can take long.
            let is_full = wire.engine.is_full(wire.id);
            if is_full && (streamed.is_end_told || !has_peer_ended) {
                break Flow::Wait;
            }
            streamed.is_end_told = has_peer_ended;
            bytes.clear();
            let (id, engine) = (wire.id, &*wire.engine);
            let hold = || (engine.hold(id, 0), engine.budget().clone());
            let at = At { remote: &self.remote, id, has_peer_ended, is_full, hold: &hold };
            let Streamed { source, packing, .. } = &mut **streamed;
            let mut ask = |bytes: &mut Vec<u8>| {
                let made = AssertUnwindSafe(|| source.next(&mut Part::new(bytes, at)));
                program.within(id, |_| catch_unwind(made))
            };
            let made = match packing {
                None => ask(&mut bytes).map(|flow| (flow, bytes.is_empty())),
                Some(packing) => packing.next(&mut bytes, at, ask).map(|step| {
                    self.packed += step.packed;
                    (step.flow, step.is_empty)
                }),
            };
            let Ok((flow, is_empty)) = made else {
                has_panicked = true;
                break Flow::Fail;
            };
            streamed.sent += bytes.len() as u64;
            if streamed.encoder.data(&mut self.out, &bytes).is_err() {
                break Flow::Fail;
            }
            empty = if is_empty { empty + 1 } else { 0 };
            if empty > EMPTY_PARTS {
                break Flow::Fail;
            }
            if flow != Flow::More {
                break flow;
            }
            if self.is_turn_over() {
                self.go_on_later(wire);
                break Flow::Wait;
            }
        };
        if flow == Flow::Wait {
            return Next::Waits(exchange);
        }
        let Stage::Stream(streamed) = std::mem::replace(&mut exchange.stage, Stage::Head) else {
            return Next::Waits(exchange);
        };
        wire.engine.watch_peer(wire.id, false);
        if let Some(hearing) = &streamed.hearing {
            self.hear_no_more(wire.id, hearing);
        }
        let Streamed { encoder, status, decided, sent, .. } = *streamed;
        let is_to_close = ends_with_connection(&encoder, exchange.asked);
        let is_whole = flow == Flow::End && encoder.end(&mut self.out).is_ok();
        if is_whole && is_to_close {
            self.reset_at_end(wire, false);
        }
        self.panics += u64::from(has_panicked);
        let cause = match is_whole {
            true => None,
            false if has_panicked => Some(Cause::Panicked),
            false => Some(Cause::Aborted),
        };
        let (start, decided) = (Some(exchange.start), Some(decided));
        let outcome = Fate { status: Some(status), sent, cause, start, decided, error: None };
        self.end_late(program, wire, exchange, outcome)
    }

    /// Ends a connection by a reset.
    pub(super) fn reset(&mut self, wire: &mut Wire<'_, K>) {
        self.reset_at_end(wire, true);
        wire.engine.abort(wire.id);
    }

    /// Makes the end of a connection a reset, or no longer, whoever ends it: this crate, the engine
    /// below for want of memory, or the system behind the end of the process.
    pub(super) fn reset_at_end(&mut self, wire: &mut Wire<'_, K>, on: bool) {
        let linger = SocketOption::Linger(on.then_some(Duration::ZERO));
        wire.engine.set_option(wire.id, linger);
    }

    /// The connection has room for more output.
    pub(crate) fn drained<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        wire: &mut Wire<'_, K>,
    ) {
        if let Some(raw) = wire.raw() {
            self.raw_news(program, wire.engine, (wire.id, raw), News::Drained);
            return;
        }
        if let Some(link) = wire.link() {
            return self.hear_link(program, wire.engine, link, LinkNews::Drained);
        }
        let Some(slot) = wire.slot() else { return };
        let Some(exchange) = slot.exchange.take() else { return };
        match exchange.stage {
            Stage::Stream(_) => self.go_on_streaming(program, wire, exchange),
            Stage::Blocks(_) => self.go_on_with_blocks(program, wire, exchange, None),
            Stage::Forward(_) | Stage::Tunnel(_) => {
                slot.exchange = Some(exchange);
                self.forward_drained(program, wire);
            }
            Stage::Room => self.serve_next(program, wire, exchange),
            _ => slot.exchange = Some(exchange),
        }
    }

    /// There is room for the responses of requests that have waited for it.
    pub(super) fn serve_next<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        wire: &mut Wire<'_, K>,
        mut exchange: Box<Exchange<K>>,
    ) {
        let has_ended = exchange.peer.has_ended;
        let input = std::mem::take(&mut exchange.input);
        self.recycle(exchange);
        self.behind(program, wire, Next::Request, input, has_ended);
    }

    /// Asks the source of a response again.
    pub(super) fn go_on_streaming<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        wire: &mut Wire<'_, K>,
        mut exchange: Box<Exchange<K>>,
    ) {
        let (has_ended, input) = (exchange.peer.has_ended, std::mem::take(&mut exchange.input));
        let next = self.stream(program, wire, exchange);
        self.behind(program, wire, next, input, has_ended);
    }
}

/// Whether the body of a response ends with its connection, so that its client takes an end of file
/// for that of the body.
pub(super) fn ends_with_connection(encoder: &BodyEncoder, asked: Asked) -> bool {
    asked.version == Version::Http10 && encoder.is_sent()
}
