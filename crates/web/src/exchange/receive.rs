//! Bodies that a program asks for behind their heads, as a whole or in parts.

use std::ops::{Deref, Range};

use windlass::{Buf, Lease};
use windlass_http1::Event;
use windlass_serve::Id;

use super::program::{AfterPart, Answer, Program};
use super::read::Rest;
use super::respond::{Context, Next};
use super::{Exchange, Machine, Stage, Wire};
use crate::message::request::receive::Resume;
use crate::message::response::Response;

/// A body that is taken part by part.
pub(super) struct Receiving<K> {
    pub(super) keep: K,
    resume: Resume,
    pub(super) is_paused: bool,
}

/// Bytes that have come.
pub(super) enum Bytes {
    /// As they were read: their parts are no copies.
    Read(Lease),
    Copied(Vec<u8>),
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Read(lease) => lease,
            Bytes::Copied(bytes) => bytes,
        }
    }
}

impl From<Buf> for Bytes {
    fn from(data: Buf) -> Bytes {
        data.into_lease().map_or_else(|data| Bytes::Copied(data.into_vec()), Bytes::Read)
    }
}

impl Bytes {
    fn part(&self, range: Range<usize>) -> Buf {
        match self {
            Bytes::Read(lease) => lease.slice(range).into(),
            Bytes::Copied(bytes) => bytes[range].to_vec().into(),
        }
    }

    /// Keeps the bytes from `at` on in an empty vector.
    pub(super) fn put_rest(self, at: usize, kept: &mut Vec<u8>) {
        match self {
            Bytes::Read(lease) => kept.extend_from_slice(&lease[at..]),
            Bytes::Copied(mut bytes) => {
                bytes.drain(..at);
                *kept = bytes;
            }
        }
    }
}

impl<K: 'static> Machine<K> {
    /// Notes that a program asks for the body of a request.
    #[cold]
    pub(super) fn ask_for_body(
        &mut self,
        wire: &mut Wire<'_, K>,
        exchange: Option<Box<Exchange<K>>>,
        context: Context<'_>,
        answer: Answer<K>,
    ) -> Next<K> {
        let mut exchange = exchange.unwrap_or_else(|| self.exchange());
        (exchange.route, exchange.asked) = (context.0, context.1);
        if let Some(head) = context.2.filter(|_| exchange.head.is_empty()) {
            exchange.head.extend_from_slice(head);
        }
        let most = match answer {
            Answer::Collect(most, keep) => {
                exchange.stage = Stage::Body(Some(keep));
                Some(most)
            }
            Answer::Receive(most, keep) => {
                let resume = Resume::new(self.remote.clone(), wire.id);
                let receiving = Receiving { keep, resume, is_paused: false };
                exchange.stage = Stage::Receive(Box::new(receiving));
                most
            }
            _ => None,
        };
        Next::Body(exchange, most.unwrap_or(self.limits.body))
    }

    /// Begins with a body that the program has asked for, if it has at most so many bytes.
    #[cold]
    pub(super) fn begin_body<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        wire: &mut Wire<'_, K>,
        mut exchange: Box<Exchange<K>>,
        most: u64,
    ) -> Next<K> {
        let is_collected = matches!(exchange.stage, Stage::Body(_));
        if let Some(error) = self.refuses_body(wire, &exchange, most, is_collected) {
            self.drop_receiver(program, wire.id, &mut exchange);
            return self.respond_early(program, wire, exchange, error.into());
        }
        let _ = exchange.decoder.limit_body(most); // for one without a length
        if let Stage::Receive(receiving) = &mut exchange.stage {
            let (keep, resume) = (&mut receiving.keep, receiving.resume.clone());
            program.within(wire.id, |program| program.begin_parts(keep, resume));
        }
        Next::Waits(self.expect_body(wire, exchange))
    }

    /// Tells a receiver that the rest of its body does not come.
    pub(super) fn drop_receiver<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        id: Id,
        exchange: &mut Exchange<K>,
    ) {
        let keep = match std::mem::replace(&mut exchange.stage, Stage::Head) {
            Stage::Receive(receiving) => receiving.keep,
            Stage::Body(Some(keep)) => keep,
            _ => return,
        };
        program.within(id, |program| program.abort(keep));
    }

    /// Answers a request while its body comes.
    fn respond_early<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        wire: &mut Wire<'_, K>,
        mut exchange: Box<Exchange<K>>,
        response: Response,
    ) -> Next<K> {
        wire.engine.limit(wire.id, None, 0);
        let head = std::mem::take(&mut exchange.head);
        self.decode_again(&head);
        let context = (exchange.route, exchange.asked, Some(&head[..]));
        let mut next = self.respond(program, wire, Some(exchange), context, response);
        self.keep_head(&mut next, head);
        next
    }

    /// Hands the parts of a body to the program, and goes on behind it.
    pub(super) fn deliver<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        wire: &mut Wire<'_, K>,
        mut exchange: Box<Exchange<K>>,
        bytes: &Bytes,
        mut at: usize,
    ) -> Rest<K> {
        loop {
            let Stage::Receive(receiving) = &mut exchange.stage else {
                return Rest::Waits(exchange, at);
            };
            if receiving.is_paused {
                return Rest::Waits(exchange, at);
            }
            let step = match exchange.decoder.decode(&mut self.head, &bytes[at..]) {
                Ok(step) => step,
                Err(error) => {
                    self.refuse(program, wire, Some(exchange), error);
                    return Rest::Nothing;
                }
            };
            let start = at;
            at += step.consumed;
            let next = match step.event {
                Event::Body(range) => {
                    let part = bytes.part(start + range.start..start + range.end);
                    let keep = &mut receiving.keep;
                    match program.within(wire.id, |program| program.part(keep, part)) {
                        AfterPart::More => continue,
                        AfterPart::Pause => {
                            receiving.is_paused = !receiving.resume.take();
                            continue;
                        }
                        AfterPart::Stop(response) => {
                            exchange.stage = Stage::Head;
                            self.respond_early(program, wire, exchange, response)
                        }
                    }
                }
                Event::Trailers => {
                    exchange.keep_trailers(&self.head, &bytes[start..]);
                    continue;
                }
                Event::End => self.whole(program, wire, exchange),
                _ => return Rest::Waits(exchange, at),
            };
            match self.go_on_behind(program, wire, next, bytes, at) {
                Rest::Waits(behind, end) => (exchange, at) = (behind, end),
                Rest::Nothing => return Rest::Nothing,
            }
        }
    }

    /// The pause of a body may be over.
    pub(super) fn resume<P: Program<Keep = K>>(&mut self, program: &mut P, wire: &mut Wire<'_, K>) {
        let Some(slot) = wire.slot() else { return };
        let Some(Stage::Receive(receiving)) = slot.exchange.as_mut().map(|one| &mut one.stage)
        else {
            return;
        };
        if receiving.is_paused && receiving.resume.take() {
            receiving.is_paused = false;
            if let Some(mut exchange) = slot.exchange.take() {
                let input = std::mem::take(&mut exchange.input);
                let has_ended = std::mem::take(&mut exchange.peer.has_ended);
                exchange.is_paused = false;
                wire.engine.watch_peer(wire.id, false);
                wire.engine.resume(wire.id);
                self.keep(program, wire, exchange, Bytes::Copied(input), 0);
                self.flush(wire);
                if has_ended {
                    self.eof(program, wire);
                }
            }
        }
    }
}
