//! Responses that are files.
//!
//! # Why
//! A file that is sent by the engine below is not whole when its head is written: a file that
//! becomes shorter meanwhile ends the connection. So its request is not over before the system has
//! taken the last byte, and what comes behind it is decoded then. A file whose bytes are kept is
//! written at once, as any other body.

use std::ffi::OsStr;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use windlass::Op;
use windlass_http1::{FixedField, Method};
use windlass_serve::ops::Completed;
use windlass_serve::{Cause, Engine};

use super::finish::Fate;
use super::loads::{LoadStep, Loaded, Trouble};
use super::operations::WaitsForOp;
use super::program::{Answer, Program};
use super::respond::{Context, Next};
use super::{Exchange, Machine, Slot, Stage, Wire};
use crate::coding::accept::takes_gzip;
use crate::files::body::FileBody;
use crate::files::conditions::{Conditions, Verdict};
use crate::files::dir::ServedDir;
use crate::files::found::{Content, FoundFile};
use crate::files::range::Selected;
use crate::message::head::Head;
use crate::message::response::{Body, Response};
use crate::words::error::Error;
use crate::words::status::Status;

/// Bytes of kept files up to this many are copied behind their head, so that one write has both.
const COPIED: usize = 16 << 10;

/// A response that waits for its file.
pub(super) struct AwaitedFile {
    head: Head,
    load: u32,
    /// The error that the file tells of, if it does.
    error: Option<Error>,
}

/// A file that is being sent.
pub(super) struct FileOnWire {
    pub(super) file: Arc<FoundFile>,
    pub(super) status: Status,
    pub(super) len: u64,
    pub(super) decided: Instant,
    pub(super) error: Option<Error>,
}

/// The head of a response, and the error that it tells of.
pub(super) type Decided = (Head, Option<Error>);

impl<K: 'static> Machine<K> {
    /// Sends a file, or opens it first.
    pub(super) fn respond_file<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        wire: &mut Wire<'_, K>,
        exchange: Option<Box<Exchange<K>>>,
        context: Context<'_>,
        decided: Decided,
        body: FileBody,
    ) -> Next<K> {
        let (dir, below) = match &body {
            FileBody::Found(found) => {
                return self.send(program, wire, exchange, context, decided, Arc::clone(found));
            }
            FileBody::At(path) => (ServedDir::without_root(), Some((path.as_os_str(), false))),
            FileBody::Below(dir, at) => {
                let path = context.2.map_or("", |bytes| self.head.path(bytes));
                let part = path.get(*at as usize..).unwrap_or("/");
                let Some(below) = dir.names().below(part) else {
                    return self.without_file(program, wire, exchange, context, decided);
                };
                let name = (OsStr::new(&*below.path), below.is_directory);
                if let Some(found) = self.loads.fresh(dir, name, self.now) {
                    return self.send(program, wire, exchange, context, decided, found);
                }
                return self.load(program, wire, exchange, context, decided, (dir, name));
            }
        };
        let Some(name) = below else {
            return self.without_file(program, wire, exchange, context, decided);
        };
        match self.loads.fresh(&dir, name, self.now) {
            Some(found) => self.send(program, wire, exchange, context, decided, found),
            None => self.load(program, wire, exchange, context, decided, (&dir, name)),
        }
    }

    #[cold]
    fn without_file<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        wire: &mut Wire<'_, K>,
        exchange: Option<Box<Exchange<K>>>,
        context: Context<'_>,
        decided: Decided,
    ) -> Next<K> {
        let response = troubled(decided.1, Trouble::Missing);
        self.respond(program, wire, exchange, context, response)
    }

    /// Opens a file for a response.
    fn load<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        wire: &mut Wire<'_, K>,
        exchange: Option<Box<Exchange<K>>>,
        context: Context<'_>,
        (head, error): Decided,
        (dir, name): (&Arc<ServedDir>, (&OsStr, bool)),
    ) -> Next<K> {
        let begun = match self.admits(program, context.0) {
            true => self.loads.begin(dir, name, wire.id, self.now),
            false => None,
        };
        let Some((load, op)) = begun else {
            let response = troubled(error, Trouble::Busy);
            return self.respond(program, wire, exchange, context, response);
        };
        if let Some(op) = op {
            self.submit(wire.engine, op, WaitsForOp::Load(load));
        }
        let awaited = AwaitedFile { head, load, error };
        self.wait_for(wire, exchange, context, Stage::File(Box::new(awaited)))
    }

    /// An operation of the loop has ended.
    pub(crate) fn completed<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        engine: &mut Engine<Slot<K>>,
        ended: Completed,
    ) {
        match self.operations.take(ended.token) {
            Some(WaitsForOp::Load(load)) => self.load_went_on(program, engine, load, ended),
            Some(WaitsForOp::Block(id)) => self.block_read(program, engine, id, ended),
            Some(WaitsForOp::Sweep) => {
                self.loads.is_swept = false;
                self.sweep_files(engine);
            }
            Some(WaitsForOp::Save(place)) => self.save_went_on(program, engine, place, ended),
            None => self.completed_link(program, engine, ended),
        }
    }

    /// Closes files that are not fresh, and sees to it that the others are closed later.
    fn sweep_files(&mut self, engine: &mut Engine<Slot<K>>) {
        if self.loads.is_swept {
            return;
        }
        if let Some(span) = self.loads.sweep(self.now) {
            self.loads.is_swept = true;
            self.submit(engine, Op::timer(span), WaitsForOp::Sweep);
        }
    }

    fn load_went_on<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        engine: &mut Engine<Slot<K>>,
        load: u32,
        ended: Completed,
    ) {
        let times = (self.now, self.date.time(self.now));
        match self.loads.step(load, ended, times) {
            None => {}
            Some(LoadStep::Submit(op)) => self.submit(engine, op, WaitsForOp::Load(load)),
            Some(LoadStep::Over(loaded, waiters)) => {
                for id in waiters {
                    self.begin_callback(engine);
                    self.file_loaded(program, &mut Wire { engine, id }, load, loaded.clone());
                }
                self.sweep_files(engine);
            }
        }
    }

    /// A file that a response waits for is open, or cannot be opened.
    fn file_loaded<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        wire: &mut Wire<'_, K>,
        load: u32,
        loaded: Loaded,
    ) {
        let Some(slot) = wire.slot() else { return };
        let Some(mut exchange) = slot.exchange.take() else { return };
        let awaited = match std::mem::replace(&mut exchange.stage, Stage::Head) {
            Stage::File(awaited) if awaited.load == load => *awaited,
            stage => {
                exchange.stage = stage;
                slot.exchange = Some(exchange);
                return;
            }
        };
        self.ends_waiting(wire, exchange.route);
        let AwaitedFile { head, error, .. } = awaited;
        let response = match loaded {
            Loaded::File(found) => {
                let body = Body::File(FileBody::Found(found));
                let mut response = Response::with_head(head, body);
                if let Some(error) = error {
                    response.keep_error(error);
                }
                response
            }
            Loaded::Directory => self.redirect_to_directory(&exchange.head),
            Loaded::Failed(trouble) => troubled(error, trouble),
        };
        self.answer_late(program, wire, exchange, Answer::Respond(response));
    }

    fn redirect_to_directory(&mut self, head: &[u8]) -> Response {
        if !self.decode_again(head) {
            return Status::NOT_FOUND.into();
        }
        Response::to_directory(self.head.path(head), self.head.query(head))
    }

    /// Answers with a file that is open.
    fn send<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        wire: &mut Wire<'_, K>,
        exchange: Option<Box<Exchange<K>>>,
        context: Context<'_>,
        (mut head, error): Decided,
        file: Arc<FoundFile>,
    ) -> Next<K> {
        let file = match &file.gzip {
            Some(gzip) if self.takes_gzip(context) => Arc::clone(gzip),
            _ => file,
        };
        let selected = match self.verdict(context, &head, &file) {
            Verdict::Send(selected) => selected,
            Verdict::NotModified => {
                add_fields(&mut head, &file, true);
                head.set_status(Status::NOT_MODIFIED);
                head.remove("Content-Type");
                let response = Response::with_head(head, Body::Empty);
                return self.respond(program, wire, exchange, context, response);
            }
            Verdict::Failed => {
                let response = Error::new(Status::PRECONDITION_FAILED).into();
                return self.respond(program, wire, exchange, context, response);
            }
        };
        let range = match selected {
            Selected::Whole => 0..file.len,
            Selected::Part(range) => {
                head.set_status(Status::PARTIAL_CONTENT);
                let (last, len) = (range.end - 1, file.len);
                head.set("Content-Range", format!("bytes {}-{last}/{len}", range.start));
                range
            }
            Selected::Nothing => {
                let error = Error::new(Status::RANGE_NOT_SATISFIABLE);
                let error = error.header("Content-Range", format!("bytes */{}", file.len));
                return self.respond(program, wire, exchange, context, error.into());
            }
        };
        if let Content::Open(source) = &file.content
            && file.direct.is_some()
            && !range.is_empty()
            && context.1.method != Method::Head
        {
            let (decided, of) = ((head, error), (Arc::clone(&file), Arc::clone(source)));
            return self.begin_blocks(program, wire, exchange, context, decided, of, range);
        }
        let is_bare = complete_head(&mut head, &file, program.changes_heads());
        let fixed = if is_bare { &file.fields[..] } else { &[] };
        let asked = self.decide(program, wire, exchange.as_deref(), context, &mut head);
        head.leave_identity_out();
        let len = range.end - range.start;
        let encoder = match self.encode_with(asked, &head, fixed, Some(len)) {
            Ok(encoder) => encoder,
            Err(error) => return self.respond_again(program, wire, exchange, context, error),
        };
        let (keeps_alive, is_sent) = (encoder.keep_alive(), encoder.is_sent() && len > 0);
        let status = head.status();
        let source = match &file.content {
            Content::Open(source) if is_sent => source,
            content => {
                if is_sent && let Content::Kept(bytes) = content {
                    self.put_kept(wire, bytes, &range);
                }
                let outcome = (status, if is_sent { len } else { 0 }, error.as_ref());
                return self.end_response(program, wire, exchange, context, outcome, keeps_alive);
            }
        };
        let mut exchange = exchange.unwrap_or_else(|| self.exchange());
        (exchange.route, exchange.asked) = (context.0, asked.unwrap_or(context.1));
        exchange.asked.keep_alive = keeps_alive;
        if let Some(head) = context.2.filter(|_| program.is_watched() && exchange.head.is_empty()) {
            exchange.head.extend_from_slice(head);
        }
        let decided = self.time(program, wire.engine);
        if self.flush(wire) && wire.engine.send_attached(wire.id, source, range).is_err() {
            self.break_off(wire);
        }
        exchange.stage = Stage::Sending(Box::new(FileOnWire { file, status, len, decided, error }));
        Next::Waits(exchange)
    }

    fn takes_gzip(&self, context: Context<'_>) -> bool {
        let Some(bytes) = context.2 else { return false };
        let is = |field: &(&str, &[u8])| field.0.eq_ignore_ascii_case("accept-encoding");
        takes_gzip(self.head.fields(bytes).filter(is).map(|(_, value)| value))
    }

    /// What a request gets of a file. One whose response has a status of its own gets all.
    fn verdict(&self, context: Context<'_>, head: &Head, file: &FoundFile) -> Verdict {
        let is_get = match context.1.method {
            Method::Get => true,
            Method::Head => false,
            _ => return Verdict::Send(Selected::Whole),
        };
        match context.2 {
            Some(bytes) if head.status() == Status::OK => {
                let conditions = Conditions::of(self.head.fields(bytes));
                conditions.verdict(is_get, &file.validators, file.len)
            }
            _ => Verdict::Send(Selected::Whole),
        }
    }

    /// Writes bytes of a file that are kept.
    fn put_kept(&mut self, wire: &mut Wire<'_, K>, bytes: &Arc<[u8]>, range: &Range<u64>) {
        let part = range.start as usize..range.end as usize;
        if part.len() <= COPIED {
            self.out.extend_from_slice(&bytes[part]);
        } else if part.len() == bytes.len() {
            self.put_large(wire, Arc::clone(bytes).into());
        } else {
            self.put_large(wire, bytes[part].to_vec().into());
        }
    }

    /// The system has taken the last byte of a file.
    pub(crate) fn file_sent<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        wire: &mut Wire<'_, K>,
    ) {
        let Some(slot) = wire.slot() else { return };
        let Some(mut exchange) = slot.exchange.take() else { return };
        let sent = match std::mem::replace(&mut exchange.stage, Stage::Head) {
            Stage::Sending(sent) => *sent,
            stage => {
                exchange.stage = stage;
                slot.exchange = Some(exchange);
                return;
            }
        };
        let (has_ended, input) = (exchange.peer.has_ended, std::mem::take(&mut exchange.input));
        let FileOnWire { status, len, decided, error, .. } = sent;
        let outcome = Fate {
            status: Some(status),
            sent: len,
            error: error.as_ref(),
            cause: None,
            start: Some(exchange.start),
            decided: Some(decided),
        };
        let next = self.end_late(program, wire, exchange, outcome);
        self.behind(program, wire, next, input, has_ended);
    }

    /// A response is over whose head was written before.
    pub(super) fn end_late<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        wire: &mut Wire<'_, K>,
        mut exchange: Box<Exchange<K>>,
        outcome: Fate<'_>,
    ) -> Next<K> {
        let head = std::mem::take(&mut exchange.head);
        let has_head = program.is_watched() && !head.is_empty() && self.decode_again(&head);
        let (now, from) = (self.time(program, wire.engine), self.from(wire));
        let context = (exchange.route, has_head.then_some(&head[..]));
        self.finish(program, from, context, now, outcome);
        let is_whole = outcome.cause.is_none();
        if is_whole && exchange.asked.keep_alive && !self.is_draining {
            return self.skip(wire, exchange);
        }
        self.recycle(exchange);
        self.flush(wire);
        if is_whole {
            wire.engine.close(wire.id);
        } else {
            self.reset(wire);
        }
        Next::Nothing
    }

    /// The connection of a file that was being sent has ended.
    pub(super) fn file_broke_off(&mut self, sent: &FileOnWire, cause: Cause) {
        if cause == Cause::FileEnded {
            self.loads.forget(&sent.file);
        }
    }
}

/// The response where there is no file. One that would itself have told of an error is not shaped
/// again: its own page is what is missing.
fn troubled(told: Option<Error>, trouble: Trouble) -> Response {
    match told {
        None => Error::from(trouble).into(),
        Some(error) => {
            let text = error.public_text().to_owned();
            Response::text(text).status(error.status())
        }
    }
}

/// Completes the head of a response. False if the fields of the file are in it; else they are
/// written beside it: those that are the same each time are made once, unless hooks want to see all
/// fields, or the program has some of its own.
pub(super) fn complete_head(head: &mut Head, file: &FoundFile, changes_heads: bool) -> bool {
    if head.kind().is_none() {
        head.set("Content-Type", file.kind.clone());
    }
    let is_own = |name: &str| file.fields.iter().any(|(other, _)| other.eq_ignore_ascii_case(name));
    let is_bare = !changes_heads && !head.fields().any(|(name, _)| is_own(name));
    if !is_bare {
        add_fields(head, file, false);
    }
    is_bare
}

/// Adds what a response says of a file; for a 304 only what caches need (RFC 9110, 15.4.5).
fn add_fields(head: &mut Head, file: &FoundFile, is_brief: bool) {
    for (name, field) in &file.fields {
        let is_wanted = !is_brief || matches!(*name, "ETag" | "Cache-Control" | "Vary");
        if is_wanted && head.get(name).is_none() {
            head.add(*name, value_of(field));
        }
    }
}

fn value_of(field: &FixedField) -> String {
    String::from_utf8_lossy(field.value()).into_owned()
}
