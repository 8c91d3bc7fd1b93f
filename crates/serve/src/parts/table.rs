//! The table of connections: their ids, and their states.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use windlass::{Buf, Source, Ticket};

use crate::parts::files::Files;
use crate::parts::heads::{CHUNK, Head, Heads};
use crate::parts::idle::IdleClock;
use crate::parts::kept::KeptInput;
use crate::parts::side::StreamSide;
use crate::parts::trim::trim;
use crate::stage::{Stage, Step};
use crate::words::cause::{Cause, Phase};
use crate::words::id::{Id, LOOP_BITS};

/// No place in a table.
pub(crate) const NIL: u32 = u32::MAX >> 1;

/// In `Place::active`: the connection has one buffer to send, at this place in `ToDo::fresh` of the
/// engine, and no active part.
pub(crate) const FRESH: u32 = 1 << 31;

/// In `Place::active`: the connection is a UDP session, with this entry in `Sessions::all`. It
/// never has an active part.
pub(crate) const SESSION: u32 = 1 << 30;

/// The most places. The tokens of operations have higher numbers for other uses.
pub(crate) const MOST: u32 = 1 << 24;

/// It has not opened: its connect is in flight, or its first event is to be made.
pub(crate) const CONNECTING: u16 = 1;
/// A read is in flight.
pub(crate) const READING: u16 = 1 << 1;
/// The program has paused its reads.
pub(crate) const PAUSED: u16 = 1 << 2;
/// Its reads stop because too many bytes of output wait for it.
pub(crate) const FULL: u16 = 1 << 3;
/// Its reads stop because it holds more bytes than its share.
pub(crate) const THROTTLED: u16 = 1 << 4;
/// Data is held back. New data goes behind it.
pub(crate) const HELD: u16 = 1 << 5;
/// The peer has ended its side.
pub(crate) const ENDED: u16 = 1 << 6;
/// It is in the list of connections that `flush` looks at.
pub(crate) const DIRTY: u16 = 1 << 7;
/// Its bytes pass a cipher.
pub(crate) const CODED: u16 = 1 << 8;
/// A shutdown behind its last output is submitted.
pub(crate) const FINISHING: u16 = 1 << 9;
/// The program limits its time, and so its bytes are counted.
pub(crate) const LIMITED: u16 = 1 << 10;
/// The close is submitted. The bit is that of `LIMITED`: there is no other, and no limit is left
/// when a close begins.
pub(crate) const CLOSE_SENT: u16 = LIMITED;
/// Its output is to be shut down.
pub(crate) const SHUT: u16 = 1 << 11;
/// The shutdown is submitted.
pub(crate) const SHUTTING: u16 = 1 << 12;
/// Its stage is `Handshake` or a later one. This is here, too, so that the path of a message looks
/// at the flags only. A client in its handshake and an upgrade are not barred: what the program
/// writes to them waits, as during the connect.
const BARRED: u16 = 1 << 13;
/// It is to be aborted.
pub(crate) const ABORT: u16 = 1 << 14;
/// A wake is on its way to the program.
pub(crate) const WOKEN: u16 = 1 << 15;

/// In `Active::keeps`: it has a write deadline, which goes when the output is sent.
pub(crate) const TIMED: u8 = 1;
/// In `Active::keeps`: the end of its peer is watched while it is not read.
pub(crate) const WATCHED: u8 = 1 << 1;
/// In `Active::keeps`: the program was told of the end of its peer.
pub(crate) const TOLD: u8 = 1 << 2;
/// In `Active::keeps`: the poll for the end of its peer is in flight.
pub(crate) const POLLED: u8 = 1 << 3;
/// In `Active::keeps`: the event of that end is on its way, without a poll.
pub(crate) const DUE: u8 = 1 << 4;

/// In `Active::keeps`: it is read although too many bytes of output wait for it.
pub(crate) const HEARS: u8 = 1 << 5;
/// In `Active::keeps`: so many bytes wait. It stands in the place of `FULL`, which stops reads.
pub(crate) const FILLED: u8 = 1 << 6;

/// Its reads are to stop.
pub(crate) const STOPPED: u16 = PAUSED | FULL | THROTTLED;

/// The entry of a connection in the loop: 16 bytes besides the state. An idle connection has only
/// this entry and its `Head`.
pub(crate) struct Place<S> {
    pub(crate) source: Source,
    /// The index of its active part in `Table::active`, if it has one. In a vacant place, the next
    /// vacant place.
    pub(crate) active: u32,
    pub(crate) flags: u16,
    pub(crate) stage: Stage,
    pub(crate) state: Option<S>,
}

impl<S> Place<S> {
    /// The entry of a UDP session, if it is one.
    #[inline]
    pub(crate) fn session(&self) -> Option<u32> {
        // `NIL` has the bit, too, and the one below.
        (self.active >> 29 == SESSION >> 29).then_some(self.active & !SESSION)
    }

    /// Whether the program gets no more data.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.stage >= Stage::Closing || self.flags & ABORT != 0
    }

    /// Whether the program gets no more data, or the descriptor is to leave.
    #[inline]
    pub(crate) fn is_to_end(&self) -> bool {
        self.stage >= Stage::Leaving || self.flags & ABORT != 0
    }

    /// Whether the connection takes no more output.
    #[inline]
    pub(crate) fn takes_no_output(&self) -> bool {
        self.flags & (BARRED | SHUT | SHUTTING | ABORT) != 0
    }

    /// Whether one buffer is not sent as it is: the connection takes no output, or none yet, or
    /// encrypts it.
    #[inline]
    pub(crate) fn writes_pass_more(&self) -> bool {
        self.flags & (BARRED | SHUT | SHUTTING | ABORT | CODED | CONNECTING) != 0
    }

    /// Goes on to the next stage.
    pub(crate) fn advance(&mut self, step: Step) {
        if let Some(next) = self.stage.next(step) {
            self.set_stage(next);
        }
    }

    pub(crate) fn set_stage(&mut self, stage: Stage) {
        self.stage = stage;
        self.flags &= !BARRED;
        let is_known = stage == Stage::Handshake && self.state.is_some();
        if stage >= Stage::Handshake && !is_known {
            self.flags |= BARRED;
        }
    }
}

/// The active part of a connection: its output, its held data, and its close in progress.
#[derive(Default)]
pub(crate) struct Active {
    /// The place it belongs to.
    pub(crate) index: u32,
    /// The output of this turn: these buffers, then the copied bytes.
    pub(crate) parts: Vec<Buf>,
    pub(crate) copied: Vec<u8>,
    pub(crate) corked: usize,
    /// How many bytes the watcher had queued when the engine last looked. While files wait, with
    /// all their bytes.
    pub(crate) queued: usize,
    /// Data that arrived while the program did not want any.
    pub(crate) held: VecDeque<Buf>,
    pub(crate) held_bytes: usize,
    /// How many bytes are charged to the budget.
    pub(crate) charged: u32,
    /// All that counts for its share, when `hold` was last called.
    pub(crate) holding: u32,
    /// Where it stands in the list of holders of this size.
    held_at: u32,
    /// What the program has charged to it.
    pub(crate) by_program: u32,
    /// The sum of the program's charges, which the budget has by themselves.
    pub(crate) by_charges: i64,
    /// The bytes of its input that the program keeps in memory of the heap, or has not read from
    /// its stream. They are charged to the budget by themselves.
    pub(crate) kept: Option<KeptInput>,
    /// How many bytes count against the cap of the connection.
    pub(crate) capped: u32,
    /// When its output last moved, or when its close began.
    pub(crate) since: Option<Instant>,
    /// Its idle time, while no read of it is in flight. It stands here only if the sweep looks.
    pub(crate) idle: IdleClock,
    /// Whether a wait for the end of its output is in flight, and its ticket unless it is
    /// cancelled.
    pub(crate) is_draining: bool,
    pub(crate) drain: Option<Ticket>,
    /// Where it stands in the list of connections that the sweep looks at.
    pub(crate) swept: Option<u32>,
    /// Why it ends.
    pub(crate) cause: Option<Cause>,
    /// Bytes of failed writes.
    pub(crate) unsent: usize,
    /// What is known of its failure, while answers about its output are to come.
    pub(crate) failing: Option<Failing>,
    /// What keeps the active part, although nothing else is in it.
    pub(crate) keeps: u8,
    /// The poll for the end of the peer, if one is in flight.
    pub(crate) peer_poll: Option<Ticket>,
    /// Where it stands in the list of connections whose time the program limits.
    pub(crate) limited: Option<u32>,
    /// Where its bytes go, if the program has made a stream of it.
    pub(crate) stream: Option<Arc<dyn StreamSide>>,
    /// The files that it sends, and the output between them.
    pub(crate) files: Option<Box<Files>>,
}

/// A connection that has failed while output was in flight.
pub(crate) struct Failing {
    /// What it was doing.
    pub(crate) phase: Phase,
    /// The wait whose completion comes behind the answers.
    pub(crate) wait: Ticket,
    /// How many bytes are not sent if the system has taken none of those in flight.
    pub(crate) most: usize,
    /// Whether an answer says that the system has not taken all of a write.
    pub(crate) is_cut: bool,
}

/// Places, and the parts of them that other threads see.
pub(crate) struct Chunk<S> {
    pub(crate) heads: Arc<[Head; CHUNK]>,
    pub(crate) places: Box<[Place<S>; CHUNK]>,
}

/// Connections by their places.
// Active parts are large, and move between the lists.
#[allow(clippy::vec_box)]
pub(crate) struct Table<S> {
    pub(crate) chunks: Vec<Chunk<S>>,
    pub(crate) shared: Heads,
    pub(crate) active: Vec<Box<Active>>,
    /// Active parts without a connection, which have kept the memory of their vectors.
    spare: Vec<Box<Active>>,
    /// The least number of them since the last `trim`.
    least_spare: usize,
    /// The places of connections that hold bytes, by the number of bits of how many bytes they
    /// hold.
    holders: [Vec<u32>; 33],
    /// Where the next look at a long list of them begins.
    look_from: usize,
    /// The first vacant place.
    pub(crate) vacant: u32,
    /// The first place whose connection has gone since `vacant` was empty.
    left: u32,
    pub(crate) len: usize,
    /// The number of the next connection.
    pub(crate) next: u64,
    /// When the first connection was opened.
    pub(crate) start: Option<Instant>,
}

pub(crate) fn tenths(span: Duration) -> u32 {
    (span.as_millis() / 100) as u32
}

/// How many active parts are kept for ever. So a server that was busy once takes no more memory
/// than one that was not, besides these.
const SPARE: usize = 16;

/// How many connections of one size are looked at for one that is above the share.
const LOOKS: usize = 64;

impl<S> Table<S> {
    pub(crate) fn new(loop_index: usize) -> Table<S> {
        Table {
            chunks: Vec::new(),
            shared: Heads::default(),
            active: Vec::new(),
            spare: Vec::new(),
            least_spare: 0,
            holders: std::array::from_fn(|_| Vec::new()),
            look_from: 0,
            vacant: NIL,
            left: NIL,
            len: 0,
            next: 1 << LOOP_BITS | loop_index as u64,
            start: None,
        }
    }

    pub(crate) fn heads(&self) -> Heads {
        self.shared.clone()
    }

    /// The number of the loop.
    pub(crate) fn loop_index(&self) -> usize {
        (self.next & ((1 << LOOP_BITS) - 1)) as usize
    }

    /// The number of the next connection.
    pub(crate) fn next_number(&self) -> u64 {
        self.next
    }

    /// The numbers go on with `next`.
    pub(crate) fn continue_with(&mut self, next: u64) {
        self.next = next;
    }

    /// The id of a connection that never has a place.
    pub(crate) fn skip(&mut self) -> Id {
        let number = self.next;
        self.next += 1 << LOOP_BITS;
        Id { number, index: 0 }
    }

    /// A place for a connection; `None` if there are too many. One in its handshake has no state.
    pub(crate) fn insert(&mut self, source: Source, flags: u16, state: Option<S>) -> Option<Id> {
        if !self.has_room() {
            return None;
        }
        let (index, number) = (self.vacant, self.next);
        let place = self.place_mut(index);
        let next = std::mem::replace(&mut place.active, NIL);
        (place.source, place.flags, place.state) = (source, flags, state);
        place.set_stage(match flags {
            _ if place.state.is_none() => Stage::Handshake,
            _ if flags & CONNECTING != 0 => Stage::Connecting,
            _ if flags & ENDED != 0 => Stage::HalfClosed,
            _ => Stage::Open,
        });
        self.vacant = next;
        // Not open yet.
        self.head(index).opened.store(u32::MAX, Ordering::Relaxed);
        self.head(index).number.store(number, Ordering::Release);
        self.next += 1 << LOOP_BITS;
        self.len += 1;
        Some(Id { number, index })
    }

    /// Whether there is a place for one more connection.
    #[inline]
    pub(crate) fn has_room(&mut self) -> bool {
        self.vacant != NIL || self.make_room()
    }

    #[cold]
    fn make_room(&mut self) -> bool {
        if self.left != NIL {
            self.vacate_left();
        }
        self.vacant != NIL || self.grow()
    }

    /// Vacates the places of connections that have gone, except those that still have a charge. It
    /// would count for the next connection: against its cap, and without a wake for its stream when
    /// the charge goes.
    fn vacate_left(&mut self) {
        // A thread looks at the number and charges under this lock. One that has found the old
        // number has charged now.
        drop(self.shared.0.write().unwrap_or_else(|poisoned| poisoned.into_inner()));
        let mut next = std::mem::replace(&mut self.left, NIL);
        while next != NIL {
            let index = next;
            let is_charged = self.head(index).charged.load(Ordering::Relaxed) > 0;
            let list = if is_charged { &mut self.left } else { &mut self.vacant };
            let first = std::mem::replace(list, index);
            next = std::mem::replace(&mut self.place_mut(index).active, first);
        }
    }

    fn grow(&mut self) -> bool {
        let first = (self.chunks.len() * CHUNK) as u32;
        if first >= MOST {
            return false;
        }
        let last = first + CHUNK as u32 - 1;
        let place = |index| Place {
            source: Source::NONE,
            active: if index == last { NIL } else { index + 1 },
            flags: 0,
            stage: Stage::Ended,
            state: None,
        };
        let places = Box::new(std::array::from_fn(|at| place(first + at as u32)));
        let heads: Arc<[Head; CHUNK]> = Arc::new(std::array::from_fn(|_| Head::default()));
        self.chunks.push(Chunk { heads: Arc::clone(&heads), places });
        self.shared.0.write().unwrap_or_else(|poisoned| poisoned.into_inner()).push(heads);
        self.vacant = first;
        true
    }

    /// A connection goes. The caller has released its active part.
    pub(crate) fn remove(&mut self, index: u32) -> Option<S> {
        let left = self.left;
        let place = self.place_mut(index);
        debug_assert_eq!(place.active, NIL, "its active part or its session is gone before");
        let state = place.state.take();
        (place.source, place.active, place.flags) = (Source::NONE, left, 0);
        place.stage = Stage::Ended;
        self.left = index;
        self.head(index).number.store(0, Ordering::Release);
        self.len -= 1;
        state
    }

    /// Notes that a connection is open from now on.
    pub(crate) fn begin(&mut self, index: u32, now: Instant) {
        let since = now - *self.start.get_or_insert(now);
        self.head(index).opened.store(tenths(since), Ordering::Relaxed);
    }

    /// How long a connection has been open.
    pub(crate) fn age(&self, index: u32, now: Instant) -> Duration {
        let now = tenths(self.start.map_or(Duration::ZERO, |start| now - start));
        let age = now.saturating_sub(self.head(index).opened.load(Ordering::Relaxed));
        Duration::from_millis(u64::from(age) * 100)
    }

    #[inline]
    pub(crate) fn head(&self, index: u32) -> &Head {
        &self.chunks[index as usize / CHUNK].heads[index as usize % CHUNK]
    }

    #[inline]
    pub(crate) fn place(&self, index: u32) -> &Place<S> {
        &self.chunks[index as usize / CHUNK].places[index as usize % CHUNK]
    }

    #[inline]
    pub(crate) fn place_mut(&mut self, index: u32) -> &mut Place<S> {
        &mut self.chunks[index as usize / CHUNK].places[index as usize % CHUNK]
    }

    /// The place of a source, by the index in the token of its operation.
    #[inline]
    pub(crate) fn find(&self, index: u32, source: Source) -> Option<&Place<S>> {
        let place = &self.chunks.get(index as usize / CHUNK)?.places[index as usize % CHUNK];
        // No operation is on the source of a vacant place, which is none.
        (place.source == source).then_some(place)
    }

    /// The id of the connection that reads from a source, if its data can be delivered at once. An
    /// `index` may be beyond the table.
    #[inline(always)]
    pub(crate) fn reads(&self, index: usize, source: Source) -> Option<Id> {
        let chunk = self.chunks.get(index / CHUNK)?;
        let at = index % CHUNK;
        let place = &chunk.places[at];
        if place.source.key() != source.key()
            || place.flags & (BARRED | ABORT | STOPPED | HELD | LIMITED | CODED) != 0
        {
            return None;
        }
        let number = chunk.heads[at].number.load(Ordering::Relaxed);
        Some(Id { number, index: index as u32 })
    }

    /// A connection's place, and the bytes that are charged to it.
    #[inline(always)]
    pub(crate) fn look(&mut self, index: u32) -> (&mut Place<S>, u32) {
        let chunk = &mut self.chunks[index as usize / CHUNK];
        let at = index as usize % CHUNK;
        (&mut chunk.places[at], chunk.heads[at].charged.load(Ordering::Relaxed))
    }

    /// The id of the connection that has a place.
    #[inline]
    pub(crate) fn id(&self, index: u32) -> Id {
        Id { number: self.head(index).number.load(Ordering::Relaxed), index }
    }

    /// The place of a connection; `None` for a stale id.
    #[inline]
    pub(crate) fn get(&self, id: Id) -> Option<&Place<S>> {
        self.lives(id).then(|| self.place(id.index))
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: Id) -> Option<&mut Place<S>> {
        if self.lives(id) { Some(self.place_mut(id.index)) } else { None }
    }

    /// The place of a connection that is no session; `None` for a stale id.
    pub(crate) fn unless_session(&self, id: Id) -> Option<&Place<S>> {
        self.get(id).filter(|place| place.session().is_none())
    }

    /// The entry of a session; `None` for a stale id, and for another connection.
    pub(crate) fn session(&self, id: Id) -> Option<u32> {
        self.get(id).and_then(Place::session)
    }

    #[inline]
    pub(crate) fn lives(&self, id: Id) -> bool {
        let chunk = self.chunks.get(id.index as usize / CHUNK);
        let head = chunk.map(|chunk| &chunk.heads[id.index as usize % CHUNK]);
        // A vacant place has the number 0.
        id.number != 0 && head.is_some_and(|head| head.number.load(Ordering::Relaxed) == id.number)
    }

    /// All connections that the program knows, by place.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Id> {
        let indices = 0..(self.chunks.len() * CHUNK) as u32;
        indices.filter(|&index| self.place(index).state.is_some()).map(|index| self.id(index))
    }

    /// Changes the charge of a connection.
    pub(crate) fn charge(&self, index: u32, before: u32, now: u32) {
        self.head(index).charged.fetch_add(now.wrapping_sub(before), Ordering::Relaxed);
    }

    /// The active part of a connection, made where there is none.
    #[inline]
    pub(crate) fn activate(&mut self, index: u32) -> &mut Active {
        let at = self.place(index).active;
        debug_assert!(at & FRESH == 0, "a fresh buffer is moved first");
        let at = if at == NIL { self.new_active(index) } else { at };
        &mut self.active[at as usize]
    }

    #[inline]
    fn new_active(&mut self, index: u32) -> u32 {
        let mut active = self.spare.pop().unwrap_or_default();
        self.least_spare = self.least_spare.min(self.spare.len());
        active.index = index;
        let at = self.active.len() as u32;
        self.active.push(active);
        self.place_mut(index).active = at;
        at
    }

    /// The active part of a connection, if it has one.
    #[inline]
    pub(crate) fn active_of(&mut self, index: u32) -> Option<&mut Active> {
        let at = self.place(index).active;
        self.active.get_mut(at as usize).map(|active| &mut **active)
    }

    /// The `Active::keeps` of a connection; none if it has no active part.
    pub(crate) fn keeps(&self, index: u32) -> u8 {
        self.active.get(self.place(index).active as usize).map_or(0, |active| active.keeps)
    }

    /// Whether a wait for the end of a connection's output is in flight.
    pub(crate) fn is_draining(&mut self, index: u32) -> bool {
        self.active_of(index).is_some_and(|active| active.is_draining)
    }

    /// Gives the active part back if there is nothing in it.
    #[inline]
    pub(crate) fn settle(&mut self, index: u32) {
        let at = self.place(index).active;
        if let Some(active) = self.active.get(at as usize)
            && active.swept.is_none()
            && active.holding == 0
            && active.is_over()
        {
            self.release(index);
        }
    }

    /// Gives the active part back. Nothing is charged to it any more.
    #[inline]
    pub(crate) fn release(&mut self, index: u32) {
        let at = std::mem::replace(&mut self.place_mut(index).active, NIL) as usize;
        if at >= self.active.len() {
            return;
        }
        let mut active = self.active.swap_remove(at);
        if let Some(moved) = self.active.get(at).map(|moved| moved.index) {
            self.place_mut(moved).active = at as u32;
        }
        active.reset();
        self.spare.push(active);
    }

    /// Whether there are more spare parts than are kept for ever.
    pub(crate) fn has_much_to_spare(&self) -> bool {
        self.spare.len() > SPARE
    }

    /// Frees the spare parts that were not needed since the last call.
    #[cold]
    pub(crate) fn trim(&mut self) {
        let needed = self.spare.len() - self.least_spare;
        self.spare.truncate(needed.max(SPARE));
        self.least_spare = self.spare.len();
        trim(&mut self.spare);
        trim(&mut self.active);
        self.holders.iter_mut().for_each(trim);
    }

    /// Notes how many bytes a connection with an active part holds now. Returns whether it has
    /// become a holder of bytes (1), or is none any more (-1).
    pub(crate) fn hold(&mut self, index: u32) -> isize {
        let at = self.place(index).active as usize;
        let Some(active) = self.active.get_mut(at) else { return 0 };
        let now = active.holds();
        let before = std::mem::replace(&mut active.holding, now);
        let (old, new) = (class(before), class(now));
        if old == new {
            return 0;
        }
        if old > 0 {
            let place = active.held_at as usize;
            self.holders[old].swap_remove(place);
            if let Some(&moved) = self.holders[old].get(place) {
                let moved = self.place(moved).active as usize;
                self.active[moved].held_at = place as u32;
            }
        }
        if new > 0 {
            self.active[at].held_at = self.holders[new].len() as u32;
            self.holders[new].push(index);
        }
        isize::from(new > 0) - isize::from(old > 0)
    }

    /// Forgets what the program keeps of a connection that ends or leaves: those bytes stay in the
    /// budget until they are dropped, and belong to no connection. Returns the same as `hold`.
    pub(crate) fn hold_nothing(&mut self, index: u32) -> isize {
        if let Some(active) = self.active_of(index) {
            (active.kept, active.by_charges) = (None, 0);
        }
        self.hold(index)
    }

    /// One of the connections that hold most, to a factor of two, if it holds more than `share`.
    pub(crate) fn largest_holder(&mut self, share: usize) -> Option<u32> {
        let lowest = class(u32::try_from(share).unwrap_or(u32::MAX));
        // A connection in a list above that of the share holds more than the share.
        let larger = (lowest + 1..33).rev().find_map(|size| self.holders[size].last());
        if larger.is_some() {
            return larger.copied();
        }
        // In the list of the share it may hold less. A call looks at `LOOKS` of them, and the next
        // call goes on behind those.
        let beside = &self.holders[lowest];
        for _ in 0..beside.len().min(LOOKS) {
            self.look_from = (self.look_from + 1) % beside.len();
            let index = beside[self.look_from];
            let at = self.place(index).active as usize;
            if self.active[at].holding as usize > share {
                return Some(index);
            }
        }
        None
    }
}

/// The number of bits of a charge.
fn class(charged: u32) -> usize {
    (u32::BITS - charged.leading_zeros()) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_increase_and_stale_ones_find_nothing() {
        let mut table = Table::new(3);
        let a = table.insert(Source::NONE, 0, Some("a")).unwrap();
        let b = table.insert(Source::NONE, 0, Some("b")).unwrap();
        assert!(a < b && a.loop_index() == 3 && b.number() - a.number() == 1 << 16);
        assert_eq!(table.remove(a.index()), Some("a"));
        assert!(table.get(a).is_none() && !table.heads().contains(a));
        let c = table.insert(Source::NONE, 0, Some("c")).unwrap();
        assert!(c > b && table.get(a).is_none());
        assert_eq!(table.iter().collect::<Vec<_>>(), [b, c]);
        for _ in 0..1000 {
            table.insert(Source::NONE, 0, Some("more")).unwrap();
        }
        assert_eq!(table.len, 1002);
    }

    /// The last ones of a long list were looked at, each time the same.
    #[test]
    fn a_holder_above_the_share_is_found_beside_many_below_it() {
        let mut table = Table::new(0);
        for at in 0..1050 {
            let id = table.insert(Source::NONE, 0, Some(())).unwrap();
            table.activate(id.index()).charged = if at < 150 { 5000 } else { 4200 };
            table.hold(id.index());
        }
        let found = (0..1050 / LOOKS + 1).find_map(|_| table.largest_holder(4500));
        assert!(found.is_some_and(|index| index < 150), "{found:?}");
        for at in 0..150 {
            table.activate(at).charged = 0;
            table.hold(at);
        }
        assert!((0..1050 / LOOKS + 1).all(|_| table.largest_holder(4500).is_none()));
        assert!(table.largest_holder(4000).is_some());
    }
}
