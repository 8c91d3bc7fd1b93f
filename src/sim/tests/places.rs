//! Reuse of the slots of sockets and watchers while events of the old owner are under way.

use std::io::IoSlice;

use super::*;

/// The keys that one `select` of this selector reports.
fn keys(sim: &Sim, selector: u32) -> Vec<u64> {
    let mut events = Vec::new();
    sim.enter().select(selector, Some(0), 8, &mut events);
    events.into_iter().map(|(key, _)| key).collect()
}

/// A socket is closed while it stands in a selector's queue: the next socket in its place is
/// reported once, and to its own selector.
#[test]
fn a_reused_place_has_no_old_events() {
    for same in [true, false] {
        let sim = Sim::new(1);
        let other = sim.clone();
        let (first, second) = (sim.selector, if same { sim.selector } else { other.selector });
        let open = |selector: u32, key: u64| {
            let world = &mut *sim.enter();
            let (here, there) = world.pair(None);
            world.register(here, selector, key, false).unwrap();
            assert_eq!(world.send(there, &[IoSlice::new(b"x")]), 1);
            (here, there)
        };
        let (old, peer) = open(first, 7);
        sim.enter().close(peer);
        sim.enter().close(old);
        let (new, _) = open(second, 9);
        assert_eq!(new, old, "the same place");
        let wanted = if same { vec![9] } else { Vec::new() };
        assert_eq!(keys(&sim, first), wanted);
        assert_eq!(keys(&sim, second), if same { vec![] } else { vec![9] });
    }
}

/// Waking a dropped watcher has no effect: the clock goes on.
#[test]
fn a_wake_of_a_dropped_watcher_has_no_effect() {
    let sim = Sim::new(1);
    let gone = sim.clone();
    let waker = gone.make_waker();
    waker.wake();
    assert_eq!(sim.next_timeout(), Some(Duration::ZERO));
    drop(gone);
    waker.wake();
    assert_eq!(sim.next_timeout(), None);
}
