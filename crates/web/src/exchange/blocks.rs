//! Files that are read past the page cache, block by block.
//!
//! ```text
//!   read block 1 ─▶ head, block 1 ─▶ the connection ─▶ block 2 ─▶ …
//!                   read block 2 ──▶ read block 3, once there is room for block 2
//! ```
//!
//! # Why
//! Direct reads cannot be sent by the system, and each waits for the disk. So the next block is
//! read while the one before is sent, and a connection has at most two blocks: one that waits for
//! room, or is being read, and one that the engine below writes. The head leaves with the first
//! block, so that a disk which fails is a 500. A small range reads only the aligned blocks around
//! it.

use std::sync::Arc;
use std::time::Instant;

use windlass::{AlignedBuf, Buf, Done, ErrorKind, Op, SourceGuard};
use windlass_serve::ops::Completed;
use windlass_serve::{Cause, Engine, Id};

use super::files::{Decided, complete_head};
use super::finish::Fate;
use super::loads::Trouble;
use super::operations::WaitsForOp;
use super::program::{Answer, Program};
use super::respond::{Context, Next};
use super::{Exchange, Machine, Slot, Stage, Wire};
use crate::files::found::FoundFile;
use crate::message::head::Head;
use crate::words::error::Error;
use crate::words::status::Status;

/// The longest block, in bytes.
const LONGEST: u64 = 128 << 10;

/// A file that is read block by block.
pub(super) struct BlockFile {
    file: Arc<FoundFile>,
    source: Arc<SourceGuard>,
    /// The head, until the first block is there.
    head: Option<Head>,
    error: Option<Error>,
    pub(super) status: Status,
    pub(super) decided: Instant,
    /// Where the next block begins, and where the part of the file ends.
    at: u64,
    end: u64,
    /// How many bytes were handed to the connection.
    pub(super) sent: u64,
    /// What is wanted of the block that is being read: how many bytes, behind how many others.
    reading: Option<(usize, usize)>,
    /// The block that was read last, if there is no room for it yet.
    block: Option<Buf>,
}

impl BlockFile {
    pub(super) fn is_begun(&self) -> bool {
        self.head.is_none()
    }

    /// How many bytes it has in memory, beside those that the connection has.
    pub(super) fn held(&self) -> usize {
        let (skip, len) = self.reading.unwrap_or_default();
        skip + len + self.block.as_ref().map_or(0, Buf::len)
    }

    /// The read of the next block.
    fn read(&mut self) -> Op {
        let align = u64::from(self.file.direct.unwrap_or(1));
        let begin = self.at / align * align;
        let longest = LONGEST.next_multiple_of(align);
        let stop = self.end.min(begin + longest);
        let len = (stop - begin).next_multiple_of(align) as usize;
        self.reading = Some(((self.at - begin) as usize, (stop - self.at) as usize));
        self.at = stop;
        let buf = AlignedBuf::with_capacity(len, align as usize);
        Op::read_at(self.source.source(), buf, begin)
    }

    /// Takes the block that was read; why there is none otherwise.
    fn take(&mut self, ended: Completed) -> Result<(), Cause> {
        let (skip, len) = self.reading.take().unwrap_or_default();
        let result = match ended.result {
            Ok(completion) => completion.result,
            Err(_) => return Err(Cause::Rejected),
        };
        let bytes = match result {
            Ok(Done::Read(bytes)) => bytes,
            Ok(_) => return Err(Cause::Rejected),
            Err(error) => {
                return Err(match error.kind() {
                    ErrorKind::Os(errno) => Cause::Os(errno),
                    _ => Cause::Aborted,
                });
            }
        };
        let Ok(mut block) = bytes.into_aligned() else { return Err(Cause::Rejected) };
        if block.len() < skip + len {
            return Err(Cause::FileEnded);
        }
        if skip > 0 {
            block.copy_within(skip..skip + len, 0);
        }
        block.set_len(len);
        self.block = Some(block.into());
        Ok(())
    }
}

impl<K: 'static> Machine<K> {
    /// Begins to send a part of a file block by block.
    #[allow(clippy::too_many_arguments)] // those of every step, and the part
    pub(super) fn begin_blocks<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        wire: &mut Wire<'_, K>,
        exchange: Option<Box<Exchange<K>>>,
        context: Context<'_>,
        (head, error): Decided,
        (file, source): (Arc<FoundFile>, Arc<SourceGuard>),
        range: std::ops::Range<u64>,
    ) -> Next<K> {
        if !self.admits(program, context.0) {
            return self.refuse_busy(program, wire, exchange, context);
        }
        let (status, decided) = (head.status(), self.now);
        let (head, at, end) = (Some(head), range.start, range.end);
        let (sent, reading, block) = (0, None, None);
        let mut blocks =
            BlockFile { file, source, head, error, status, decided, at, end, sent, reading, block };
        let read = blocks.read();
        self.submit(wire.engine, read, WaitsForOp::Block(wire.id));
        self.wait_for(wire, exchange, context, Stage::Blocks(Box::new(blocks)))
    }

    /// A block was read.
    pub(super) fn block_read<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        engine: &mut Engine<Slot<K>>,
        id: Id,
        ended: Completed,
    ) {
        let mut wire = Wire { engine, id };
        let Some(slot) = wire.slot() else { return };
        let Some(mut exchange) = slot.exchange.take() else { return };
        let Stage::Blocks(blocks) = &mut exchange.stage else {
            slot.exchange = Some(exchange); // a 504 was in front
            return;
        };
        let taken = blocks.take(ended);
        match blocks.head.take() {
            Some(head) => self.first_block(program, &mut wire, exchange, head, taken),
            None => self.go_on_with_blocks(program, &mut wire, exchange, taken.err()),
        }
    }

    /// The first block of a file is there, or there will be none.
    fn first_block<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        wire: &mut Wire<'_, K>,
        mut exchange: Box<Exchange<K>>,
        mut head: Head,
        taken: Result<(), Cause>,
    ) {
        self.ends_waiting(wire, exchange.route);
        let Stage::Blocks(blocks) = &mut exchange.stage else { return };
        let file = Arc::clone(&blocks.file);
        if let Err(cause) = taken {
            exchange.stage = Stage::Head;
            self.loads.forget(&file);
            let trouble = match cause {
                Cause::FileEnded => Trouble::Changing,
                Cause::Os(errno) => Trouble::Broken(Some(errno)),
                _ => Trouble::Broken(None),
            };
            let response = Error::from(trouble).into();
            return self.answer_late(program, wire, exchange, Answer::Respond(response));
        }
        let len =
            blocks.end - blocks.at + blocks.block.as_ref().map_or(0, |block| block.len() as u64);
        let input = std::mem::take(&mut exchange.input);
        let has_ended = exchange.peer.has_ended;
        exchange.peer.has_ended &= input.is_empty();
        let bytes = std::mem::take(&mut exchange.head);
        let has_head = !bytes.is_empty() && self.decode_again(&bytes);
        let context = (exchange.route, exchange.asked, has_head.then_some(&bytes[..]));
        let is_bare = complete_head(&mut head, &file, program.changes_heads());
        let fixed = if is_bare { &file.fields[..] } else { &[] };
        let asked = self.decide(program, wire, Some(&exchange), context, &mut head);
        head.leave_identity_out();
        let next = match self.encode_with(asked, &head, fixed, Some(len)) {
            Err(error) => {
                exchange.stage = Stage::Head;
                self.respond_again(program, wire, Some(exchange), context, error)
            }
            Ok(encoder) => {
                exchange.asked = asked.unwrap_or(context.1);
                exchange.asked.keep_alive = encoder.keep_alive();
                let decided = self.time(program, wire.engine);
                if let Stage::Blocks(blocks) = &mut exchange.stage {
                    (blocks.status, blocks.decided) = (head.status(), decided);
                }
                exchange.head = bytes;
                self.send_blocks(program, wire, exchange, None)
            }
        };
        self.behind(program, wire, next, input, has_ended);
    }

    /// Goes on with a file that is read block by block.
    pub(super) fn go_on_with_blocks<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        wire: &mut Wire<'_, K>,
        mut exchange: Box<Exchange<K>>,
        failure: Option<Cause>,
    ) {
        let (has_ended, input) = (exchange.peer.has_ended, std::mem::take(&mut exchange.input));
        let next = self.send_blocks(program, wire, exchange, failure);
        self.behind(program, wire, next, input, has_ended);
    }

    /// Hands the block that was read to the connection, if it has room, and reads the next one.
    fn send_blocks<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        wire: &mut Wire<'_, K>,
        mut exchange: Box<Exchange<K>>,
        failure: Option<Cause>,
    ) -> Next<K> {
        let is_open = self.flush(wire) && failure.is_none();
        let Stage::Blocks(blocks) = &mut exchange.stage else { return Next::Waits(exchange) };
        let mut cause = failure.or((!is_open).then_some(Cause::Aborted));
        if cause.is_none()
            && !wire.engine.is_full(wire.id)
            && let Some(block) = blocks.block.take()
        {
            let len = block.len() as u64;
            match wire.engine.write(wire.id, block) {
                Ok(()) => blocks.sent += len,
                Err(_) => cause = Some(Cause::Aborted),
            }
        }
        let is_whole =
            blocks.at == blocks.end && blocks.reading.is_none() && blocks.block.is_none();
        if cause.is_none() && !is_whole {
            if blocks.reading.is_none() && blocks.block.is_none() {
                let read = blocks.read();
                self.submit(wire.engine, read, WaitsForOp::Block(wire.id));
            }
            return Next::Waits(exchange);
        }
        let Stage::Blocks(blocks) = std::mem::replace(&mut exchange.stage, Stage::Head) else {
            return Next::Waits(exchange);
        };
        if cause.is_some() {
            self.loads.forget(&blocks.file);
        }
        let outcome = Fate {
            status: Some(blocks.status),
            sent: blocks.sent,
            error: blocks.error.as_ref(),
            cause,
            start: Some(exchange.start),
            decided: Some(blocks.decided),
        };
        self.end_late(program, wire, exchange, outcome)
    }
}
