//! The table of connections: their ids, and their states.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

use windlass::{Buf, Source, Ticket};

use crate::handles::stream::Link;
use crate::parts::files::Files;
use crate::words::cause::Cause;
use crate::words::id::{Id, LOOP_BITS};
use crate::words::refused::Refusal;

/// No place in a table.
pub(crate) const NIL: u32 = u32::MAX >> 1;

/// In `Place::active`: the connection has one buffer to send, at this place in `Engine::fresh`, and
/// no active part.
pub(crate) const FRESH: u32 = 1 << 31;

/// In `Place::active`: the connection is a UDP session, with this entry in `Engine::sessions`. It
/// never has an active part.
pub(crate) const SESSION: u32 = 1 << 30;

/// The entry of a session, by its `Place::active`.
#[inline]
pub(crate) fn session_of(active: u32) -> Option<u32> {
    // `NIL` has the bit, too, and the one below.
    (active >> 29 == SESSION >> 29).then_some(active & !SESSION)
}

/// Places are given out in chunks of this many.
pub(crate) const CHUNK: usize = 256;

/// The most places. The tokens of operations have higher numbers for other uses.
pub(crate) const MOST: u32 = 1 << 24;

/// The part of a place that other threads see.
#[derive(Default)]
pub(crate) struct Head {
    /// The number of the connection that has the place; 0 if it is vacant.
    pub(crate) number: AtomicU64,
    /// Bytes that count against the connection's cap: those that wait in the loop, and those that
    /// other threads have queued. Each party subtracts what it has added, so a charge that outlives
    /// its connection counts for the next one only until its party subtracts it.
    pub(crate) charged: AtomicU32,
    /// When it was opened, in tenths of a second since the first connection. (It fills the place up
    /// to a multiple of 8 bytes.)
    pub(crate) opened: AtomicU32,
}

/// The places as other threads see them.
#[derive(Clone, Default)]
pub(crate) struct Heads(Arc<RwLock<Vec<Arc<[Head; CHUNK]>>>>);

impl Heads {
    /// Charges `bytes` to a connection, unless its charge would exceed `cap`.
    pub(crate) fn charge(&self, id: Id, bytes: u32, cap: u32) -> Result<(), Refusal> {
        self.with(id.index, |head| {
            if head.number.load(Ordering::Acquire) != id.number {
                return Err(Refusal::Stale);
            }
            // One atomic step, because the loop would refuse its own write while a charge that does
            // not fit is in the counter.
            let charge = |charged: u32| charged.checked_add(bytes).filter(|sum| *sum <= cap);
            let charged = head.charged.fetch_update(Ordering::Relaxed, Ordering::Relaxed, charge);
            charged.map(|_| ()).map_err(|_| Refusal::Cap)
        })
        .unwrap_or(Err(Refusal::Stale))
    }

    /// Takes a charge away again.
    pub(crate) fn discharge(&self, id: Id, bytes: u32) {
        self.with(id.index, |head| head.charged.fetch_sub(bytes, Ordering::Relaxed));
    }

    /// Whether the id is not stale yet.
    pub(crate) fn contains(&self, id: Id) -> bool {
        let lives = |head: &Head| head.number.load(Ordering::Acquire) == id.number;
        self.with(id.index, lives).unwrap_or(false)
    }

    pub(crate) fn with<T>(&self, index: u32, look: impl FnOnce(&Head) -> T) -> Option<T> {
        let chunks = self.0.read().unwrap_or_else(|poisoned| poisoned.into_inner());
        let chunk = chunks.get(index as usize / CHUNK)?;
        Some(look(&chunk[index as usize % CHUNK]))
    }
}

/// The connection connects, and has no reads yet.
pub(crate) const CONNECTING: u16 = 1;
/// A read is in flight.
pub(crate) const READING: u16 = 1 << 1;
/// The program has paused its reads.
pub(crate) const PAUSED: u16 = 1 << 2;
/// Its reads stop because too many bytes of output wait for it.
pub(crate) const FULL: u16 = 1 << 3;
/// Its reads stop because the whole server has too many bytes.
pub(crate) const THROTTLED: u16 = 1 << 4;
/// Data is held back. New data goes behind it.
pub(crate) const HELD: u16 = 1 << 5;
/// The peer has ended its side.
pub(crate) const ENDED: u16 = 1 << 6;
/// It is in the list of connections that `flush` looks at.
pub(crate) const DIRTY: u16 = 1 << 7;
/// A wait for the end of its output is in flight.
pub(crate) const DRAINING: u16 = 1 << 8;
/// The connection is to close when its output is sent.
pub(crate) const CLOSE: u16 = 1 << 9;
/// The close is submitted.
pub(crate) const CLOSING: u16 = 1 << 10;
/// Its output is to be shut down.
pub(crate) const SHUT: u16 = 1 << 11;
/// The shutdown is submitted.
pub(crate) const SHUTTING: u16 = 1 << 12;
/// Its descriptor is to be detached when its output is sent.
pub(crate) const DETACH: u16 = 1 << 13;
/// It is to be aborted.
pub(crate) const ABORT: u16 = 1 << 14;
/// A wake is on its way to the program.
pub(crate) const WOKEN: u16 = 1 << 15;

/// No more data is delivered.
pub(crate) const OVER: u16 = CLOSE | CLOSING | ABORT;

/// Its read is to end.
pub(crate) const STOPPED: u16 = PAUSED | FULL | THROTTLED | DETACH;

/// The entry of a connection in the loop: 16 bytes besides the state. An idle connection has only
/// this entry and its `Head`.
pub(crate) struct Place<S> {
    pub(crate) source: Source,
    /// The index of its active part in `Table::active`, if it has one. In a vacant place, the next
    /// vacant place.
    pub(crate) active: u32,
    pub(crate) flags: u16,
    pub(crate) state: Option<S>,
}

/// How far the close of a connection is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Closing {
    /// It has not begun.
    #[default]
    No,
    /// The program has asked for it while the connection connects: its time runs.
    Waits,
    /// The output is on its way, and a shutdown behind it.
    Output,
    /// The system has all output, or the peer has it. Further bytes of the peer are dropped.
    Lingers,
    /// The close itself is submitted.
    Submitted,
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
    /// How many bytes are charged to the budget, and how many of them to the connection's cap.
    pub(crate) charged: u32,
    pub(crate) capped: u32,
    /// When its output last moved, or when its close began.
    pub(crate) since: Option<Instant>,
    /// How far its close is.
    pub(crate) closing: Closing,
    /// The wait for the end of its output that is in flight.
    pub(crate) drain: Option<Ticket>,
    /// Where it stands in the list of connections that the sweep looks at.
    pub(crate) swept: Option<u32>,
    /// Why it ends.
    pub(crate) cause: Option<Cause>,
    /// Bytes of failed writes.
    pub(crate) unsent: usize,
    /// Whether it has a write deadline, which goes when the output is sent.
    pub(crate) timed: bool,
    /// Where its bytes go, if the program has made a stream of it.
    pub(crate) stream: Option<Arc<Link>>,
    /// The files that it sends, and the output between them.
    pub(crate) files: Option<Box<Files>>,
}

impl Active {
    /// Whether there is nothing to keep.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.corked == 0
            && self.queued == 0
            && self.held.is_empty()
            && self.cause.is_none()
            && self.unsent == 0
            && !self.timed
            && self.stream.is_none()
            && self.files.is_none()
    }

    /// How many bytes of buffers waited when the engine last looked, without the corked ones.
    pub(crate) fn in_memory(&self) -> usize {
        self.files.as_ref().map_or(self.queued, |files| files.memory)
    }
}

/// Places, and the parts of them that other threads see.
pub(crate) struct Chunk<S> {
    pub(crate) heads: Arc<[Head; CHUNK]>,
    pub(crate) places: Box<[Place<S>; CHUNK]>,
}

/// Connections by their places.
pub(crate) struct Table<S> {
    pub(crate) chunks: Vec<Chunk<S>>,
    pub(crate) shared: Heads,
    pub(crate) active: Vec<Active>,
    pub(crate) free_active: Vec<u32>,
    /// The first vacant place.
    pub(crate) vacant: u32,
    pub(crate) len: usize,
    /// The number of the next connection.
    pub(crate) next: u64,
    /// When the first connection was opened.
    pub(crate) start: Option<Instant>,
}

pub(crate) fn tenths(span: Duration) -> u32 {
    (span.as_millis() / 100) as u32
}

/// Memory for copied bytes that a connection may keep for its next turn.
pub(crate) const KEPT: usize = 16 << 10;

impl<S> Table<S> {
    pub(crate) fn new(loop_index: usize) -> Table<S> {
        Table {
            chunks: Vec::new(),
            shared: Heads::default(),
            active: Vec::new(),
            free_active: Vec::new(),
            vacant: NIL,
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

    /// A place for a connection; `None` if there are too many.
    pub(crate) fn insert(&mut self, source: Source, flags: u16, state: S) -> Option<Id> {
        if self.vacant == NIL {
            self.grow()?;
        }
        let index = self.vacant;
        let place = self.place_mut(index);
        let next = std::mem::replace(&mut place.active, NIL);
        (place.source, place.flags, place.state) = (source, flags, Some(state));
        let number = self.next;
        self.vacant = next;
        // Not open yet.
        self.head(index).opened.store(u32::MAX, Ordering::Relaxed);
        self.head(index).number.store(number, Ordering::Release);
        self.next += 1 << LOOP_BITS;
        self.len += 1;
        Some(Id { number, index })
    }

    #[cold]
    pub(crate) fn grow(&mut self) -> Option<()> {
        let first = (self.chunks.len() * CHUNK) as u32;
        if first >= MOST {
            return None;
        }
        let last = first + CHUNK as u32 - 1;
        let place = |index| Place {
            source: Source::NONE,
            active: if index == last { NIL } else { index + 1 },
            flags: 0,
            state: None,
        };
        let places = Box::new(std::array::from_fn(|at| place(first + at as u32)));
        let heads: Arc<[Head; CHUNK]> = Arc::new(std::array::from_fn(|_| Head::default()));
        self.chunks.push(Chunk { heads: Arc::clone(&heads), places });
        self.shared.0.write().unwrap_or_else(|poisoned| poisoned.into_inner()).push(heads);
        self.vacant = first;
        Some(())
    }

    /// Vacates a place. The caller has released its active part.
    pub(crate) fn remove(&mut self, index: u32) -> Option<S> {
        let vacant = self.vacant;
        let place = self.place_mut(index);
        let state = place.state.take();
        (place.source, place.active, place.flags) = (Source::NONE, vacant, 0);
        self.vacant = index;
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

    /// The id of the connection that reads from a source, if its data can be delivered at once.
    #[inline(always)]
    pub(crate) fn reads(&self, index: u32, source: Source) -> Option<Id> {
        let chunk = self.chunks.get(index as usize / CHUNK)?;
        let at = index as usize % CHUNK;
        let place = &chunk.places[at];
        if place.source != source || place.flags & (OVER | STOPPED | HELD) != 0 {
            return None;
        }
        Some(Id { number: chunk.heads[at].number.load(Ordering::Relaxed), index })
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

    #[inline]
    pub(crate) fn lives(&self, id: Id) -> bool {
        let chunk = self.chunks.get(id.index as usize / CHUNK);
        let head = chunk.map(|chunk| &chunk.heads[id.index as usize % CHUNK]);
        // A vacant place has the number 0.
        id.number != 0 && head.is_some_and(|head| head.number.load(Ordering::Relaxed) == id.number)
    }

    /// All connections, by place.
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
    pub(crate) fn new_active(&mut self, index: u32) -> u32 {
        let at = self.free_active.pop().unwrap_or_else(|| {
            self.active.push(Active::default());
            self.active.len() as u32 - 1
        });
        self.active[at as usize].index = index;
        self.place_mut(index).active = at;
        at
    }

    /// The active part of a connection, if it has one.
    #[inline]
    pub(crate) fn active_of(&mut self, index: u32) -> Option<&mut Active> {
        let at = self.place(index).active;
        self.active.get_mut(at as usize)
    }

    /// Gives the active part back if there is nothing in it.
    #[inline]
    pub(crate) fn settle(&mut self, index: u32) {
        let at = self.place(index).active;
        if let Some(active) = self.active.get(at as usize)
            && active.swept.is_none()
            && active.is_over()
        {
            self.release(index);
        }
    }

    /// Gives the active part back.
    #[inline]
    pub(crate) fn release(&mut self, index: u32) {
        let at = std::mem::replace(&mut self.place_mut(index).active, NIL);
        let Some(active) = self.active.get_mut(at as usize) else { return };
        // The vectors keep their memory, so that a message allocates nothing.
        active.parts.clear();
        active.held.clear();
        active.copied.clear();
        if active.copied.capacity() > KEPT {
            active.copied = Vec::new();
        }
        if active.held.capacity() > 64 {
            active.held = VecDeque::new();
        }
        (active.corked, active.queued, active.held_bytes, active.unsent) = (0, 0, 0, 0);
        (active.since, active.cause) = (None, None);
        (active.closing, active.drain, active.timed) = (Closing::No, None, false);
        (active.stream, active.files) = (None, None);
        self.free_active.push(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_connection_takes_32_bytes() {
        assert_eq!(size_of::<Place<()>>() + size_of::<Head>(), 32);
    }

    #[test]
    fn ids_increase_and_stale_ones_find_nothing() {
        let mut table = Table::new(3);
        let a = table.insert(Source::NONE, 0, "a").unwrap();
        let b = table.insert(Source::NONE, 0, "b").unwrap();
        assert!(a < b && a.loop_index() == 3 && b.number() - a.number() == 1 << 16);
        assert_eq!(table.remove(a.index()), Some("a"));
        assert!(table.get(a).is_none() && !table.heads().contains(a));
        let c = table.insert(Source::NONE, 0, "c").unwrap();
        assert!(c > b && c.index() == a.index());
        assert!(table.get(a).is_none());
        assert_eq!(table.iter().collect::<Vec<_>>(), [c, b]);
        for _ in 0..1000 {
            table.insert(Source::NONE, 0, "more").unwrap();
        }
        assert_eq!(table.len, 1002);
    }

    #[test]
    fn charges_have_a_cap() {
        let mut table = Table::new(0);
        let id = table.insert(Source::NONE, 0, ()).unwrap();
        let heads = table.heads();
        assert_eq!(heads.charge(id, 60, 100), Ok(()));
        assert_eq!(heads.charge(id, 41, 100), Err(Refusal::Cap));
        assert_eq!(heads.charge(id, 40, 100), Ok(()));
        heads.discharge(id, 60);
        assert_eq!(table.look(id.index()).1, 40);
        table.remove(id.index());
        assert_eq!(heads.charge(id, 1, 100), Err(Refusal::Stale));
    }
}
