//! Connections that are read although much output waits for them, on every driver and in the
//! simulation.

use crate::common::Harness;
use crate::common::engine::{Loop, no_times, run_for, until};
use windlass::{Op, Source};
use windlass_serve::{Cause, Config, Id};

crate::every_kernel! {
    a_full_connection_is_read_if_the_program_wants_it
    a_program_may_want_it_before_or_behind_the_output
    reads_stop_again_where_nobody_wants_them
    a_pause_holds_a_full_connection_too
    drained_comes_once
    the_end_of_a_peer_is_told_to_a_full_connection
    a_reset_behind_data_ends_a_full_connection_behind_it
    an_id_that_is_stale_is_refused
}

/// More than the systems of both ends hold.
const MUCH: usize = 16 << 20;

/// A connection that is full, and its client, which does not read.
fn full<T: Harness>(hears: bool) -> (Loop<T::Driver>, Source, Id) {
    let mut l = Loop::new::<T>(Config::new().close_on_eof(false).limits(no_times()));
    let (client, id) = l.pair();
    if hears {
        assert!(l.engine.read_when_full(id, true));
    }
    l.engine.write(id, vec![0; MUCH]).expect("it is open");
    run_for(&mut l, T::span(5.0));
    assert!(l.engine.is_full(id) && l.engine.is_behind(id) && l.queued(id) > 0);
    (l, client, id)
}

fn say<T: Harness>(l: &mut Loop<T::Driver>, client: Source, what: &str) {
    l.watcher.submit(Op::write(client, what.to_owned()).token(1)).expect("it is open");
}

fn a_full_connection_is_read_if_the_program_wants_it<T: Harness>() {
    let (mut l, client, id) = full::<T>(true);
    for what in ["one ", "two ", "three"] {
        let before = l.heard.len();
        say::<T>(&mut l, client, what);
        until(&mut l, "it is read", |l| l.heard.len() == before + what.len());
    }
    assert_eq!(l.heard, b"one two three");
    assert!(l.engine.is_full(id) && !l.told.contains(&"drained"));
}

fn a_program_may_want_it_before_or_behind_the_output<T: Harness>() {
    let (mut l, client, id) = full::<T>(false);
    // The read that was in flight takes this, at least its first byte, and is the last one.
    say::<T>(&mut l, client, "lazy");
    run_for(&mut l, T::span(5.0));
    say::<T>(&mut l, client, "late");
    run_for(&mut l, T::span(5.0));
    assert!(!l.heard.ends_with(b"late"), "a full connection is not read");
    assert!(l.engine.read_when_full(id, true) && l.engine.is_full(id));
    until(&mut l, "it is read", |l| l.heard == b"lazylate");
    // Once more changes nothing.
    assert!(l.engine.read_when_full(id, true) && l.engine.is_full(id));
    say::<T>(&mut l, client, "!");
    until(&mut l, "it is read", |l| l.heard == b"lazylate!");
}

fn reads_stop_again_where_nobody_wants_them<T: Harness>() {
    let (mut l, client, id) = full::<T>(true);
    assert!(l.engine.read_when_full(id, false) && l.engine.is_full(id));
    l.engine.flush(&mut l.watcher);
    say::<T>(&mut l, client, "lazy");
    run_for(&mut l, T::span(5.0));
    say::<T>(&mut l, client, "late");
    run_for(&mut l, T::span(5.0));
    assert!(!l.heard.ends_with(b"late"), "a full connection is not read");
    let read = Op::read_exact(client, Vec::with_capacity(MUCH), MUCH).token(1);
    l.watcher.submit(read).expect("it is open");
    until(&mut l, "it is read", |l| l.heard == b"lazylate");
    assert_eq!(l.told.iter().filter(|told| **told == "drained").count(), 1);
}

fn a_pause_holds_a_full_connection_too<T: Harness>() {
    let (mut l, client, id) = full::<T>(true);
    assert!(l.engine.pause(id));
    say::<T>(&mut l, client, "paused");
    run_for(&mut l, T::span(5.0));
    assert!(l.heard.is_empty());
    assert!(l.engine.resume(id));
    until(&mut l, "it is read", |l| l.heard == b"paused");
}

fn drained_comes_once<T: Harness>() {
    for hears in [true, false] {
        let (mut l, client, id) = full::<T>(hears);
        if !hears {
            assert!(l.engine.read_when_full(id, true));
        }
        let read = Op::read_exact(client, Vec::with_capacity(MUCH), MUCH).token(1);
        l.watcher.submit(read).expect("it is open");
        until(&mut l, "it has drained", |l| l.told.contains(&"drained"));
        until(&mut l, "all is sent", |l| l.engine.waiting(id) == 0);
        run_for(&mut l, T::span(1.0));
        assert_eq!(l.told.iter().filter(|told| **told == "drained").count(), 1);
        assert!(!l.engine.is_full(id) && !l.engine.is_behind(id));
        assert_eq!(l.engine.budget().used(), 0);
    }
}

/// It says its last words and ends its side, and never reads.
fn the_end_of_a_peer_is_told_to_a_full_connection<T: Harness>() {
    let (mut l, client, id) = full::<T>(true);
    say::<T>(&mut l, client, "the last words");
    l.watcher.submit(Op::shutdown(client).token(1)).expect("it is open");
    until(&mut l, "the end is told", |l| l.told.contains(&"eof"));
    assert_eq!(l.heard, b"the last words");
    assert!(l.engine.is_full(id) && l.ends.is_empty());
}

/// Its last words are read, and all that has not gone is counted.
fn a_reset_behind_data_ends_a_full_connection_behind_it<T: Harness>() {
    let (mut l, client, id) = full::<T>(true);
    say::<T>(&mut l, client, "the last words");
    until(&mut l, "it is read", |l| l.heard == b"the last words");
    let queued = l.queued(id);
    l.watcher.abort(client); // it has not read: a reset
    until(&mut l, "it has ended", |l| !l.ends.is_empty());
    assert!(matches!(l.ends[..], [(Cause::Os(_), unsent, _)] if unsent <= queued), "{:?}", l.ends);
    assert!(!l.engine.read_when_full(id, true));
    assert_eq!(l.engine.budget().used(), 0);
}

fn an_id_that_is_stale_is_refused<T: Harness>() {
    let (mut l, _client, id) = full::<T>(true);
    assert!(l.engine.close(id) && !l.engine.read_when_full(id, true));
    assert!(l.engine.abort(id) && !l.engine.read_when_full(id, false));
    until(&mut l, "it has ended", |l| !l.ends.is_empty());
    assert!(!l.engine.read_when_full(id, true) && !l.engine.is_full(id));
    assert_eq!(l.engine.budget().used(), 0);
}
