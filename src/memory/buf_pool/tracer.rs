//! The tracer of a pool: which lines have taken the buffers that have not come back.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::panic::Location;
use std::time::Instant;

/// The buffers that have not come back to a [traced](super::BufPool::traced) pool.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TraceReport {
    /// The lines that have taken them, in the order of the lines.
    pub places: Vec<TakenAt>,
    /// How many buffers were given back that the pool had not handed out: those of another origin,
    /// and vectors of the pool that have grown by themselves.
    pub foreign: u64,
}

/// A line of the program, and the buffers that it has taken and that have not come back.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TakenAt {
    /// The line that has called the pool.
    pub location: &'static Location<'static>,
    /// How many buffers have not come back.
    pub buffers: u64,
    /// Those of them that the program has certainly dropped: their memory belongs to another
    /// buffer now. Of the others, the program may still hold some.
    pub dropped: u64,
    /// How many bytes of capacity they had when they were taken.
    pub bytes: usize,
    /// When the first of them was taken.
    pub since: Instant,
}

impl fmt::Display for TakenAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TakenAt { location, buffers, dropped, bytes, since } = self;
        write!(f, "{location}: {buffers} buffers with {bytes} bytes, {dropped} of them dropped, ")?;
        write!(f, "the first taken {:?} ago", since.elapsed())
    }
}

/// A line for each place, and one for foreign buffers if there were any.
impl fmt::Display for TraceReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for place in &self.places {
            writeln!(f, "{place}")?;
        }
        match self.foreign {
            0 => Ok(()),
            count => writeln!(f, "{count} buffers came back that the pool had not handed out"),
        }
    }
}

/// What a traced pool remembers.
#[derive(Default)]
pub(super) struct Tracer {
    /// The buffers that are out, by address.
    out: HashMap<usize, Taken>,
    /// Buffers that the program has dropped, by the line that has taken them.
    dropped: BTreeMap<&'static Location<'static>, TakenAt>,
    foreign: u64,
}

struct Taken {
    location: &'static Location<'static>,
    bytes: usize,
    since: Instant,
}

impl Taken {
    /// Adds the buffer to the sums of its line.
    fn add_to(&self, places: &mut BTreeMap<&'static Location<'static>, TakenAt>, dropped: u64) {
        let &Taken { location, bytes, since } = self;
        let empty = TakenAt { location, buffers: 0, dropped: 0, bytes: 0, since };
        let place = places.entry(location).or_insert(empty);
        place.buffers += 1;
        place.dropped += dropped;
        place.bytes = place.bytes.saturating_add(bytes);
        place.since = place.since.min(since);
    }
}

impl Tracer {
    /// The program gets the memory at an address.
    pub(super) fn taken(
        &mut self,
        start: usize,
        bytes: usize,
        location: &'static Location<'static>,
    ) {
        let taken = Taken { location, bytes, since: Instant::now() };
        if let Some(before) = self.out.insert(start, taken) {
            // The allocator has given the address away again, so the buffer there was freed.
            before.add_to(&mut self.dropped, 1);
        }
    }

    /// The memory at an address comes back.
    pub(super) fn given(&mut self, start: usize) {
        if self.out.remove(&start).is_none() {
            self.foreign += 1;
        }
    }

    pub(super) fn report(&self) -> TraceReport {
        let mut places = self.dropped.clone();
        for taken in self.out.values() {
            taken.add_to(&mut places, 0);
        }
        TraceReport { places: places.into_values().collect(), foreign: self.foreign }
    }
}
