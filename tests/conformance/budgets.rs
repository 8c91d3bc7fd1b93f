//! C9: the budgets in bytes of one source and of one turn, where the loop reads.

use std::time::Duration;

use windlass::{Completions, Done, Op, Source, Watcher};

use crate::common::*;

const CHUNK: usize = 1024;
const SOURCE: usize = 2 * CHUNK;
const TURN: usize = 2 * SOURCE;

/// Six sources have 32 KiB each. Each reads its share in turn, in order; a wait delivers one turn's
/// budget; each end of a share is counted.
pub fn shares_of_bytes_are_served_in_turn<H: Harness>() {
    const SOURCES: usize = 6;
    const BYTES: usize = 32 << 10;
    let builder = Watcher::builder().buffer_size(CHUNK as u32);
    let mut b = H::bench_with(builder.source_budget(SOURCE).turn_budget(TURN));
    let pairs = b.pairs(SOURCES);
    for &(_, there) in &pairs {
        b.write(there, vec![1; BYTES]);
    }
    b.pass(Duration::from_millis(20));
    let stops = b.watcher.counters().budget_stops;
    for &(here, _) in &pairs {
        b.watcher.submit(Op::read(here).multishot()).expect("accepted");
    }
    let mut left: Vec<(Source, usize)> = pairs.iter().map(|&(here, _)| (here, BYTES)).collect();
    let mut done = Completions::new();
    let (mut last, mut in_a_row, mut waits) = (Source::NONE, 0, 0);
    while left.iter().any(|&(_, left)| left > 0) {
        assert!(b.watcher.wait_timeout(&mut done, BOUND).expect("a wait") > 0, "bytes are missing");
        waits += 1;
        let mut in_this_wait = 0;
        for c in done.drain(..) {
            let Ok(Done::Read(data)) = c.result else { panic!("{:?}", c.result) };
            in_this_wait += data.len();
            in_a_row = if c.source == last { in_a_row + data.len() } else { data.len() };
            last = c.source;
            let of = left.iter_mut().find(|(source, _)| *source == c.source).expect("ours");
            of.1 -= data.len();
            let others = left.iter().any(|&(source, left)| source != c.source && left > CHUNK);
            assert!(in_a_row <= SOURCE + CHUNK || !others, "{in_a_row} of one in a row");
        }
        // The first wait also delivers the reads tried at submission. An event may have brought one
        // chunk of each other source.
        let most = TURN + SOURCES * CHUNK;
        assert!(waits == 1 || in_this_wait < most, "{in_this_wait} in one turn");
    }
    let stops = b.watcher.counters().budget_stops - stops;
    let shares = (SOURCES * BYTES / SOURCE) as u64;
    assert!((shares / 2..=2 * shares).contains(&stops), "{stops} stops for {shares} shares");
}
