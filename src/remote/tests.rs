//! The queue, the reserve and the gate, without a driver.

use super::*;

struct Nothing;
impl Wake for Nothing {
    fn wake(&self) {}
}

fn source(index: u32) -> Source {
    Source::from_parts(index, std::num::NonZeroU32::MIN)
}

#[test]
fn refusals_give_everything_back() {
    let mut remote = Remote::new(1, 4, 4, Nothing);
    let submitter = remote.submitter();
    assert!(submitter.submit(Op::nop()).is_err(), "the reserve is not filled yet");
    let mut next = 0;
    let generation = std::num::NonZeroU32::MIN;
    remote.fill(
        || None,
        || {
            next += 1;
            Some(Ticket::from_parts(next, generation))
        },
    );
    submitter.submit(Op::write(Source::NONE, "first")).unwrap();
    let refused = submitter.submit(Op::write(Source::NONE, "second")).unwrap_err();
    assert_eq!(refused.reason, Reason::Full { limit: Limit::Queue, count: 1 });
    assert_eq!(&*refused.op.into_buf(), b"second");
    let refused = submitter.post(1, String::from("text")).unwrap_err();
    assert_eq!(refused.op, "text");
    remote.opened(source(0));
    submitter.free(source(0)); // not refused
    remote.close();
    let refused = submitter.post(2, String::from("late")).unwrap_err();
    assert_eq!((refused.op.as_str(), refused.reason), ("late", Reason::Closed));
    assert!(matches!(remote.take(), Some(Request::Submit(_, op)) if &**op.buf() == b"first"));
    assert!(
        matches!(remote.take(), Some(Request::UnusedTicket(_))),
        "the unused ticket comes back"
    );
    assert!(matches!(remote.take(), Some(Request::Free(_))));
    assert!(remote.take().is_none());
}

/// What could not be refused stands behind the queue; what comes later must not pass it.
#[test]
fn nothing_passes_a_free() {
    let mut remote = Remote::new(2, 1, 1, Nothing);
    let submitter = remote.submitter();
    submitter.wake(1).unwrap();
    submitter.wake(2).unwrap();
    (0..2).for_each(|index| remote.opened(source(index)));
    submitter.free(source(0));
    assert!(matches!(remote.take(), Some(Request::Post(1, _))));
    let full = Reason::Full { limit: Limit::Queue, count: 2 };
    assert_eq!(submitter.wake(3), Err(full), "there is room, but not for this one");
    assert!(matches!(remote.take(), Some(Request::Post(2, _))));
    submitter.free(source(1));
    assert!(matches!(remote.take(), Some(Request::Free(_))));
    assert!(matches!(remote.take(), Some(Request::Free(_))));
    submitter.wake(4).unwrap();
    assert!(matches!(remote.take(), Some(Request::Post(4, _))));
    assert!(remote.take().is_none());
}

#[test]
#[cfg_attr(miri, ignore = "200 races through 65,536 requests: too slow")]
fn nothing_is_queued_after_close() {
    for _ in 0..200 {
        let mut remote = Remote::new(1 << 16, 1, 1, Nothing);
        let submitter = remote.submitter();
        let thread =
            std::thread::spawn(move || (0..).take_while(|_| submitter.post(0, ()).is_ok()).count());
        while remote.take().is_none() {
            std::thread::yield_now();
        }
        remote.close();
        let mut taken = 1;
        while remote.take().is_some() {
            taken += 1;
        }
        // Posts may also have been refused because the queue was full, which ends the count.
        assert_eq!(thread.join().unwrap(), taken);
        assert!(remote.take().is_none());
    }
}

/// A thread that is about to queue something when the process forks is not in the child.
#[test]
#[cfg_attr(miri, ignore = "Miri cannot fork")]
fn a_forked_child_waits_for_no_thread_of_its_parent() {
    let mut remote = Some(Remote::new(4, 4, 4, Nothing));
    let submitter = remote.as_mut().expect("it is there").submitter();
    let inside = submitter.enter().unwrap();
    let said = fork::said_by_a_child(|| {
        let refused = submitter.wake(1) == Err(Reason::Forked);
        drop(remote.take());
        refused
    });
    assert_ne!(said, Some(false), "what the child saw");
    drop(inside);
    submitter.wake(2).unwrap();
    remote.expect("it is the child's that is gone").close();
}

/// What stands behind a message whose drop panics goes with it.
#[test]
fn a_drop_that_panics_keeps_nothing_alive() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("as it should");
        }
    }
    let mut remote = Remote::new(2, 1, 1, Nothing);
    let submitter = remote.submitter();
    let (before, behind) = (Arc::new(()), Arc::new(()));
    submitter.post(1, (before.clone(), Bomb)).unwrap();
    submitter.post(2, behind.clone()).unwrap();
    let dropped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(remote)));
    assert!(dropped.is_err(), "the panic is the caller's");
    assert_eq!((Arc::strong_count(&before), Arc::strong_count(&behind)), (1, 1));
    assert_eq!(submitter.wake(3), Err(Reason::Closed));
}

/// C9: however often a source is freed, and names that are none are, what is queued is one free.
#[test]
fn frees_have_a_bound() {
    let mut remote = Remote::new(1, 1, 1, Nothing);
    let submitter = remote.submitter();
    remote.opened(source(5));
    for round in 0..1000 {
        submitter.wake(round).unwrap();
        for name in [source(5), source(6), source(u32::MAX), Source::NONE] {
            (0..10).for_each(|_| submitter.free(name));
        }
        assert_eq!(remote.len(), 2);
        assert!(matches!(remote.take(), Some(Request::Post(..))));
        assert!(matches!(remote.take(), Some(Request::Free(name)) if name == source(5)));
        assert!(remote.take().is_none());
    }
}
