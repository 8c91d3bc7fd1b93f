//! Requests that wait for what another thread has for them.

use super::program::{Answer, Program};
use super::respond::{Context, Next};
use super::{Exchange, Machine, Stage, Wire};
use crate::message::handover::{Awaited, Place, Unanswered};
use crate::message::response::Response;
use crate::words::error::Error;
use crate::words::status::Status;

impl<K: 'static> Machine<K> {
    /// The answer comes from another thread.
    pub(super) fn wait_for_answer<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        wire: &mut Wire<'_, K>,
        exchange: Option<Box<Exchange<K>>>,
        context: Context<'_>,
        awaited: Awaited<Response>,
    ) -> Next<K> {
        awaited.wait_at(Place { remote: self.remote.clone(), id: wire.id });
        if let Some(answer) = awaited.take() {
            let response = self.given(answer);
            return self.respond(program, wire, exchange, context, response);
        }
        if !self.admits(program, context.0) {
            return self.refuse_busy(program, wire, exchange, context);
        }
        if exchange.as_ref().is_some_and(|exchange| exchange.peer.has_ended) {
            awaited.peer_ended();
        }
        self.wait_for(wire, exchange, context, Stage::Later(awaited))
    }

    /// The response that another thread has given.
    fn given(&mut self, answer: Result<Response, Unanswered>) -> Response {
        match answer {
            Ok(response) => response,
            Err(Unanswered) => {
                const DROPPED: &str = "a `Later` was dropped without an answer";
                self.remote.count_unanswered();
                Error::new(Status::INTERNAL_SERVER_ERROR).because(DROPPED).into()
            }
        }
    }

    /// Another thread has something for a connection.
    pub(super) fn take_answer<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        wire: &mut Wire<'_, K>,
    ) {
        let Some(slot) = wire.slot() else { return };
        let Some(mut exchange) = slot.exchange.take() else { return };
        match exchange.stage {
            Stage::Stream(_) => return self.go_on_streaming(program, wire, exchange),
            Stage::Room => return self.serve_next(program, wire, exchange),
            _ => {}
        }
        let answer = match &exchange.stage {
            Stage::Later(awaited) => awaited.take(),
            _ => None,
        };
        let Some(answer) = answer else {
            slot.exchange = Some(exchange);
            return;
        };
        exchange.stage = Stage::Head;
        self.ends_waiting(wire, exchange.route);
        let response = self.given(answer);
        self.answer_late(program, wire, exchange, Answer::Respond(response));
    }
}
