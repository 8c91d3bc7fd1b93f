//! Defects that random programs have found, each as a small program of its own.

use std::time::Duration;

use windlass::sim::Faults;
use windlass::{
    Completion, Completions, Done, ErrorKind, Handle, Op, Ready, Source, Ticket, Watcher,
};

use crate::worlds::{Network, World};

struct Small<W: World> {
    watcher: Watcher<W::Driver>,
    ends: [Source; 2],
    done: Completions,
}

impl<W: World> Small<W> {
    fn new(operations: u32) -> Small<W> {
        let world = W::open(&Network { seed: 1, faults: Faults::none(), buffer: 4 << 10 });
        let builder = Watcher::builder().max_operations(operations).id_reserve(4);
        let mut watcher = world.watcher(builder);
        let ends = <[Handle; 2]>::from(world.pair()).map(|end| watcher.attach(end).expect("room"));
        Small { watcher, ends, done: Completions::new() }
    }

    fn submit(&mut self, op: Op) -> Ticket {
        self.watcher.submit(op).expect("it is accepted")
    }

    /// The completions of the next wait.
    fn wait(&mut self) -> Vec<Completion> {
        let count = self.watcher.wait_timeout(&mut self.done, W::BOUND).expect("a wait");
        assert!(count > 0, "nothing completes");
        self.done.drain(..).collect()
    }

    /// The only completion that comes.
    fn end(&mut self) -> Completion {
        let mut all = self.wait();
        assert_eq!(all.len(), 1, "{all:?}");
        all.remove(0)
    }

    /// Fills the first end's socket, so that it takes no more.
    fn fill(&mut self) {
        let stuck = self.submit(Op::write(self.ends[0], vec![7; 1 << 20]));
        assert!(self.watcher.cancel(stuck));
        let end = self.end();
        assert!(end.error_kind() == Some(ErrorKind::Cancelled) && end.bytes() > 0);
    }
}

/// A cancel from elsewhere did nothing to a read that rested in its source.
pub fn a_resting_read_is_cancelled_from_elsewhere<W: World>() {
    let mut small = Small::<W>::new(64);
    let submitter = small.watcher.submitter();
    for multishot in [false, true] {
        let op = Op::read(small.ends[0]);
        let read = small.submit(if multishot { op.multishot() } else { op });
        submitter.cancel(read).expect("room");
        assert_eq!(small.end().error_kind(), Some(ErrorKind::Cancelled));
    }
}

/// A cancel answered "stale" for what another thread had submitted and the loop had not yet taken.
pub fn what_is_queued_elsewhere_is_cancelled_here<W: World>() {
    let mut small = Small::<W>::new(64);
    let submitter = small.watcher.submitter();
    let end = small.ends[0];
    for op in [Op::read(end), Op::poll(end, Ready::READABLE), Op::timer(Duration::from_secs(60))] {
        let ticket = submitter.submit(op).expect("room");
        assert!(small.watcher.cancel(ticket));
        let end = small.end();
        assert_eq!((end.ticket(), end.error_kind()), (ticket, Some(ErrorKind::Cancelled)));
        assert!(!small.watcher.cancel(ticket));
    }
}

/// A shutdown or close waited for room in the socket, which a peer that has stalled never makes.
pub fn a_shutdown_needs_no_room<W: World>() {
    for (queued, close) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut small = Small::<W>::new(64);
        let end = small.ends[0];
        small.fill();
        // Behind a write that cannot begin, or behind nothing.
        let write = queued.then(|| small.submit(Op::write(end, "later")));
        let last = small.submit(if close { Op::close(end) } else { Op::shutdown(end) });
        if let Some(write) = write {
            assert!(small.watcher.cancel(write));
        }
        let mut ends = Vec::new();
        while ends.len() < 1 + usize::from(queued) {
            ends.extend(small.wait());
        }
        let end = ends.pop().expect("at least one");
        assert_eq!(end.ticket(), last);
        assert!(ends.iter().all(|c| Some(c.ticket()) == write && c.bytes() == 0));
        assert!(matches!(end.result, Ok(Done::Closed | Done::Shutdown)), "{end:?}");
    }
}

/// Drains stand in the list of the polls of a source, and the driver took them for polls.
pub fn a_drain_is_not_a_poll<W: World>() {
    let mut small = Small::<W>::new(64);
    let end = small.ends[0];
    let stuck = small.submit(Op::write(end, vec![7; 1 << 20]));
    let drain = small.submit(Op::wait_drained(end, usize::from(Ready::WRITE_SIDE.bits())));
    let poll = small.submit(Op::poll(end, Ready::READABLE));
    small.submit(Op::write(small.ends[1], "x"));
    let mut seen = Vec::new();
    while !seen.contains(&poll) {
        seen.extend(small.wait().iter().map(Completion::ticket));
    }
    assert!(!seen.contains(&drain) && !seen.contains(&stuck));
    assert!(small.watcher.cancel(drain));
    assert_eq!(small.end().error_kind(), Some(ErrorKind::Cancelled));
}

/// A write that is out in part may exceed the limit of the table. Then another thread's operation
/// was refused because the table was full, although it had its slot. That slot was vacated twice.
pub fn a_reserved_place_is_not_refused<W: World>() {
    const LIMIT: u32 = 16;
    let mut small = Small::<W>::new(LIMIT);
    let submitter = small.watcher.submitter();
    // The kind of a source is known from its first operation on.
    small.submit(Op::write(small.ends[0], "first"));
    small.end();
    let held = small.ends[1];
    let mut count = 0;
    while small.watcher.submit(Op::timer(Duration::from_secs(3600))).is_ok() {
        count += 1;
    }
    assert_eq!(count, LIMIT - 4, "four places are in reserve");
    if small.watcher.submit(Op::write(small.ends[0], vec![7; 1 << 20])).is_err() {
        // A kernel that completes writes by itself tries none that has no place.
        assert_eq!(W::NAME, "io_uring");
        return;
    }
    let read = submitter.submit(Op::read_into(held, vec![0; 9])).expect("a place in reserve");
    let write = submitter.submit(Op::write(held, "a")).expect("a place in reserve");
    let mut ends = Vec::new();
    while ends.len() < 2 {
        ends.extend(small.wait());
    }
    let done = |ticket| ends.iter().any(|c| c.ticket() == ticket && c.result.is_ok());
    assert!(done(read) && done(write), "{ends:?}");
    assert_eq!(small.watcher.counters().in_flight, u64::from(LIMIT - 4) + 1);
    // The table is whole: all places can be used again, each once.
    assert_eq!(small.watcher.cancel_all(small.ends[0]), 1);
    while small.watcher.try_wait(&mut small.done).expect("a wait") > 0 {}
    let more =
        (0..LIMIT).take_while(|_| small.watcher.submit(Op::read(held).timeout(W::BOUND)).is_ok());
    assert!(more.count() <= 4);
}
