//! Bodies that a program asks for behind their heads, as a whole or in parts.

use std::ops::{Deref, Range};
#[cfg(feature = "multipart")]
use std::path::PathBuf;

use windlass::{Buf, Lease};
use windlass_http1::Event;
use windlass_serve::Id;

use super::program::{AfterPart, Answer, Program, Taking};
use super::read::Rest;
use super::respond::{Context, Next};
use super::saves::{SaveHandle, Saves};
use super::{Exchange, Machine, Stage, Wire};
#[cfg(feature = "multipart")]
use crate::message::form::FormEvent;
#[cfg(feature = "multipart")]
use crate::message::request::parts::PartPlan;
use crate::message::request::receive::Resume;
use crate::message::response::Response;
#[cfg(feature = "multipart")]
use crate::message::save::Save;
use crate::words::error::Error;

/// A body that is taken part by part.
pub(super) struct Receiving<K> {
    pub(super) keep: K,
    resume: Resume,
    /// Whether the program has paused it.
    is_paused: bool,
    taking: Taking,
    /// The file that its bytes go to.
    pub(super) file: Option<SaveHandle>,
    /// Whether the program does not want this part of the form.
    #[cfg(feature = "multipart")]
    is_skipped: bool,
    /// How many of the bytes that come next are decoded: they belong to the body.
    decoded: usize,
}

impl<K> Receiving<K> {
    fn new(keep: K, resume: Resume, taking: Taking) -> Receiving<K> {
        Receiving {
            keep,
            resume,
            is_paused: false,
            taking,
            file: None,
            #[cfg(feature = "multipart")]
            is_skipped: false,
            decoded: 0,
        }
    }

    /// Whether it takes no bytes now.
    pub(super) fn waits(&self, saves: &Saves) -> bool {
        self.is_paused || self.waits_for_disk(saves)
    }

    /// Whether it waits for its file.
    pub(super) fn waits_for_disk(&self, saves: &Saves) -> bool {
        self.file.as_ref().is_some_and(|file| saves.waits(file))
    }

    /// What it keeps beyond its own size, in bytes.
    pub(super) fn held(&self) -> usize {
        match &self.taking {
            Taking::Bytes | Taking::File(_) => 0,
            #[cfg(feature = "multipart")]
            Taking::Form(decoder) => decoder.held(),
        }
    }

    /// Takes bytes of the body. Says how many it has taken, and what follows.
    fn take<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        saves: &mut Saves,
        bytes: &Bytes,
        at: usize,
    ) -> Took {
        let room = self.file.as_ref().map_or(usize::MAX, |file| saves.room(file));
        let range = at..at + self.decoded.min(room);
        match &mut self.taking {
            Taking::Bytes => {
                let part = bytes.part(range.clone());
                Took::Bytes(range.len(), program.part(&mut self.keep, part))
            }
            Taking::File(_) => {
                if let Some(file) = &self.file {
                    saves.write(file, &bytes[range.clone()]);
                }
                Took::Bytes(range.len(), AfterPart::More)
            }
            #[cfg(feature = "multipart")]
            Taking::Form(decoder) => {
                let (len, event) = match decoder.decode(&bytes[range]) {
                    Ok(step) => step,
                    Err(error) => return Took::Refused(error),
                };
                let keep = &mut self.keep;
                let after = match event {
                    FormEvent::NeedMore | FormEvent::End => AfterPart::More,
                    FormEvent::Part(part) => match program.form_part(keep, part) {
                        Ok(PartPlan::Save(path, save)) => {
                            self.is_skipped = false;
                            return Took::Save(len, path, save);
                        }
                        Ok(plan) => {
                            self.is_skipped = matches!(plan, PartPlan::Skip);
                            AfterPart::More
                        }
                        Err(response) => AfterPart::Stop(response),
                    },
                    _ if self.is_skipped => AfterPart::More,
                    FormEvent::Data(data) => {
                        let data = at + data.start..at + data.end;
                        match &self.file {
                            Some(file) => {
                                saves.write(file, &bytes[data]);
                                AfterPart::More
                            }
                            None => program.part(keep, bytes.part(data)),
                        }
                    }
                    FormEvent::Held(data) => match &self.file {
                        Some(file) => {
                            saves.write(file, data);
                            AfterPart::More
                        }
                        None => program.part(keep, data.to_vec().into()),
                    },
                    FormEvent::PartEnd => match &self.file {
                        Some(file) => {
                            saves.finish(file);
                            AfterPart::More
                        }
                        None => program.form_part_end(keep),
                    },
                };
                Took::Bytes(len, after)
            }
        }
    }

    /// The file that its bytes went to has ended.
    fn end_file(&mut self, has_failed: bool, after: AfterPart) -> Took {
        #[cfg(feature = "multipart")]
        if let Taking::Form(_) = self.taking {
            self.is_skipped = has_failed;
            return Took::Bytes(0, after);
        }
        let _ = (has_failed, after);
        Took::Whole
    }

    /// Checks that the body is whole, behind its last byte.
    fn finish(&self) -> Result<(), Error> {
        match &self.taking {
            Taking::Bytes | Taking::File(_) => Ok(()),
            #[cfg(feature = "multipart")]
            Taking::Form(decoder) => decoder.finish(),
        }
    }
}

/// What has become of bytes of a body.
enum Took {
    /// So many were taken.
    Bytes(usize, AfterPart),
    /// So many were taken, and a part follows that is to be saved.
    #[cfg(feature = "multipart")]
    Save(usize, PathBuf, Save),
    /// The file of the whole body has ended.
    Whole,
    /// None can be taken now.
    Waits,
    /// None are decoded.
    Nothing,
    /// They are no form.
    #[cfg_attr(not(feature = "multipart"), allow(dead_code))]
    Refused(Error),
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
    pub(super) fn part(&self, range: Range<usize>) -> Buf {
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
            Answer::Receive(most, taking, keep) => {
                let resume = Resume::new(self.remote.clone(), wire.id);
                let receiving = Receiving::new(keep, resume, taking);
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
        if let Stage::Forward(_) = exchange.stage {
            self.begin_passing(wire, &mut exchange, most);
            return Next::Waits(exchange);
        }
        let is_collected = matches!(exchange.stage, Stage::Body(_));
        if let Some(error) = self.refuses_body(wire, &exchange, most, is_collected) {
            self.drop_receiver(program, wire.id, &mut exchange);
            return self.respond_early(program, wire, exchange, error.into());
        }
        let _ = exchange.decoder.limit_body(most); // for one without a length
        if let Stage::Receive(receiving) = &mut exchange.stage {
            if let Taking::File(to) = &mut receiving.taking {
                let (path, save) = (std::mem::take(&mut to.0), to.1);
                receiving.file = Some(self.begin_save(wire, path, save));
                return Next::Waits(exchange); // a client that waits goes on when the file is open
            }
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

    /// Takes bytes of a body, or what has become of its file.
    fn take_bytes<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        wire: &mut Wire<'_, K>,
        receiving: &mut Receiving<K>,
        bytes: &Bytes,
        at: usize,
    ) -> Took {
        let outcome = receiving.file.as_ref().and_then(|file| self.saves.take_outcome(file));
        let took = match outcome {
            Some(outcome) => {
                receiving.file = None;
                self.forget_dropped(wire.engine);
                // What may follow in a form is the client's time again.
                self.limit_body(wire);
                let has_failed = outcome.is_err();
                let keep = &mut receiving.keep;
                let after = program.within(wire.id, |program| program.saved(keep, outcome));
                receiving.end_file(has_failed, after)
            }
            None if receiving.waits(&self.saves) => Took::Waits,
            None if receiving.decoded > 0 => {
                let saves = &mut self.saves;
                let take = |program: &mut P| receiving.take(program, saves, bytes, at);
                program.within(wire.id, take)
            }
            None => Took::Nothing,
        };
        if let Some(file) = receiving.file.as_ref().filter(|file| self.saves.room(file) == 0) {
            self.go_on_saving(wire.engine, file.place());
        }
        took
    }

    /// The body is no form, or one beyond a limit.
    #[cold]
    fn refuse_form<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        wire: &mut Wire<'_, K>,
        mut exchange: Box<Exchange<K>>,
        error: Error,
    ) -> Next<K> {
        self.drop_receiver(program, wire.id, &mut exchange);
        self.respond_early(program, wire, exchange, error.into())
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
            let took = self.take_bytes(program, wire, receiving, bytes, at);
            if let Took::Waits = took {
                return Rest::Waits(exchange, at);
            }
            if !matches!(took, Took::Nothing) {
                let next = match took {
                    Took::Whole => {
                        at += receiving.decoded;
                        self.whole(program, wire, exchange)
                    }
                    #[cfg(feature = "multipart")]
                    Took::Save(len, path, save) => {
                        at += len;
                        receiving.decoded -= len;
                        receiving.file = Some(self.begin_save(wire, path, save));
                        continue;
                    }
                    Took::Bytes(len, after) => {
                        at += len;
                        receiving.decoded -= len;
                        match after {
                            AfterPart::More => continue,
                            AfterPart::Pause => {
                                receiving.is_paused = !receiving.resume.take();
                                continue;
                            }
                            AfterPart::Stop(response) => {
                                at += receiving.decoded;
                                exchange.stage = Stage::Head;
                                self.respond_early(program, wire, exchange, response)
                            }
                        }
                    }
                    Took::Waits | Took::Nothing => continue,
                    Took::Refused(error) => {
                        at += receiving.decoded;
                        self.refuse_form(program, wire, exchange, error)
                    }
                };
                match self.go_on_behind(program, wire, next, bytes, at) {
                    Rest::Waits(behind, end) => (exchange, at) = (behind, end),
                    Rest::Nothing => return Rest::Nothing,
                }
                continue;
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
                    // What is decoded ends with the range.
                    (at, receiving.decoded) = (start + range.start, range.len());
                    continue;
                }
                Event::Trailers => {
                    exchange.keep_trailers(&self.head, &bytes[start..]);
                    continue;
                }
                // A form that ends inside of a part has no end.
                Event::End => match receiving.finish() {
                    Ok(()) if receiving.file.is_some() => {
                        self.end_of_saved(wire, receiving);
                        continue;
                    }
                    Ok(()) => self.whole(program, wire, exchange),
                    Err(error) => self.refuse_form(program, wire, exchange, error),
                },
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
