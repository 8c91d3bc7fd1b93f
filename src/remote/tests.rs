//! The queue, the reserve and the gate, without a driver.

use std::time::{Duration, Instant};

use super::*;
use crate::words::error::{Limit, Refusal};

fn source(index: u32) -> Source {
    Source::from_parts(index, std::num::NonZeroU32::MIN)
}

#[test]
fn refusals_give_everything_back() {
    let mut remote = Remote::new(1, 4, 4, Arc::new(|| {}));
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
    assert_eq!(refused.reason, Refusal::Full { limit: Limit::RemoteQueue, count: 1 });
    assert_eq!(&*refused.value.into_buf(), b"second");
    let refused = submitter.post(1, String::from("text")).unwrap_err();
    assert_eq!(refused.value, "text");
    remote.opened(source(0));
    submitter.abort(source(0)); // not refused
    remote.close();
    let refused = submitter.post(2, String::from("late")).unwrap_err();
    assert_eq!((refused.value.as_str(), refused.reason), ("late", Refusal::Closed));
    assert!(matches!(remote.take(), Some(Request::Submit(_, op)) if &**op.buf() == b"first"));
    assert!(
        matches!(remote.take(), Some(Request::UnusedTicket(_))),
        "the unused ticket comes back"
    );
    assert!(matches!(remote.take(), Some(Request::Abort(_))));
    assert!(remote.take().is_none());
}

/// An abort stands behind the full queue, and later requests must not pass it.
#[test]
fn nothing_passes_a_free() {
    let mut remote = Remote::new(2, 1, 1, Arc::new(|| {}));
    let submitter = remote.submitter();
    submitter.wake(1).unwrap();
    submitter.wake(2).unwrap();
    (0..2).for_each(|index| remote.opened(source(index)));
    submitter.abort(source(0));
    assert!(matches!(remote.take(), Some(Request::Post(1, _))));
    let full = Refusal::Full { limit: Limit::RemoteQueue, count: 2 };
    assert_eq!(submitter.wake(3), Err(full), "the queue has room, but the overflow has an entry");
    assert!(matches!(remote.take(), Some(Request::Post(2, _))));
    submitter.abort(source(1));
    assert!(matches!(remote.take(), Some(Request::Abort(_))));
    assert!(matches!(remote.take(), Some(Request::Abort(_))));
    submitter.wake(4).unwrap();
    assert!(matches!(remote.take(), Some(Request::Post(4, _))));
    assert!(remote.take().is_none());
}

#[test]
#[cfg_attr(miri, ignore = "200 races through 65,536 requests: too slow")]
fn nothing_is_queued_after_close() {
    for _ in 0..200 {
        let mut remote = Remote::new(1 << 16, 1, 1, Arc::new(|| {}));
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
    let mut remote = Some(Remote::new(4, 4, 4, Arc::new(|| {})));
    let submitter = remote.as_mut().expect("it is there").submitter();
    let inside = submitter.enter().unwrap();
    // One thread waits for room, and another is about to.
    let waiting = submitter.shared.room.enter();
    let locked = submitter.shared.room.lock();
    let said = fork::said_by_a_child(|| {
        let refused = submitter.wake(1) == Err(Refusal::Forked);
        let waits = submitter
            .post_wait(1, 7, LONG)
            .is_err_and(|refused| (refused.reason, refused.value) == (Refusal::Forked, 7));
        drop(remote.take());
        refused && waits
    });
    assert_ne!(said, Some(false), "what the child saw");
    drop((locked, waiting, inside));
    submitter.wake(2).unwrap();
    remote.expect("it is the child's that is gone").close();
}

/// Requests behind a message whose `Drop` panics are dropped, too.
#[test]
fn a_drop_that_panics_keeps_nothing_alive() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("as it should");
        }
    }
    let mut remote = Remote::new(2, 1, 1, Arc::new(|| {}));
    let submitter = remote.submitter();
    let (before, behind) = (Arc::new(()), Arc::new(()));
    submitter.post(1, (before.clone(), Bomb)).unwrap();
    submitter.post(2, (behind.clone(), Bomb)).unwrap();
    drop(remote);
    assert_eq!((Arc::strong_count(&before), Arc::strong_count(&behind)), (1, 1));
    assert_eq!(submitter.wake(3), Err(Refusal::Closed));
}

/// C9: repeated aborts of a source and aborts of invalid names queue one abort only.
#[test]
fn aborts_have_a_bound() {
    let mut remote = Remote::new(1, 1, 1, Arc::new(|| {}));
    let submitter = remote.submitter();
    remote.opened(source(5));
    let rounds = if cfg!(miri) { 10 } else { 1000 };
    for round in 0..rounds {
        submitter.wake(round).unwrap();
        for name in [source(5), source(6), source(u32::MAX), Source::NONE] {
            (0..10).for_each(|_| submitter.abort(name));
        }
        assert_eq!(remote.len(), 2);
        assert!(matches!(remote.take(), Some(Request::Post(..))));
        assert!(matches!(remote.take(), Some(Request::Abort(name)) if name == source(5)));
        assert!(remote.take().is_none());
    }
}

const LONG: Duration = Duration::from_secs(60);
const FULL: Refusal = Refusal::Full { limit: Limit::RemoteQueue, count: 1 };

/// A queue for one request, full, and ids in reserve.
fn stuffed() -> (Remote, Submitter) {
    let mut remote = Remote::new(1, 4, 4, Arc::new(|| {}));
    let submitter = remote.submitter();
    let generation = std::num::NonZeroU32::MIN;
    let mut places = (0..4, 0..4);
    remote.fill(
        || places.0.next().map(source),
        || places.1.next().map(|slot| Ticket::from_parts(slot, generation)),
    );
    submitter.wake(0).unwrap();
    // The loop runs on another thread.
    let remote = std::thread::spawn(move || {
        remote.unpark();
        remote
    });
    (remote.join().unwrap(), submitter)
}

fn until_waiting(submitter: &Submitter, count: usize) {
    let start = Instant::now();
    while submitter.shared.room.waiting() < count {
        assert!(start.elapsed() < LONG, "{count} threads do not wait");
        std::thread::yield_now();
    }
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no sockets")]
fn a_close_wakes_every_thread_that_waits() {
    let (mut remote, submitter) = stuffed();
    std::thread::scope(|scope| {
        let submit = scope.spawn(|| submitter.submit_wait(Op::write(Source::NONE, "op"), LONG));
        let attach = scope.spawn(|| {
            let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            submitter.attach_wait(socket, LONG)
        });
        let post = scope.spawn(|| submitter.post_wait(1, String::from("text"), LONG));
        until_waiting(&submitter, 3);
        let start = Instant::now();
        remote.close();
        let refused = submit.join().unwrap().unwrap_err();
        assert_eq!((refused.reason, &*refused.value.into_buf()), (Refusal::Closed, &b"op"[..]));
        let refused = attach.join().unwrap().unwrap_err();
        assert_eq!((refused.reason, refused.value.into_fd().is_ok()), (Refusal::Closed, true));
        let refused = post.join().unwrap().unwrap_err();
        assert_eq!((refused.reason, refused.value.as_str()), (Refusal::Closed, "text"));
        assert!(start.elapsed() < LONG / 2, "they were not woken");
    });
    assert_eq!(submitter.shared.room.waiting(), 0);
}

#[test]
fn a_wait_for_room_ends_in_time() {
    let (mut remote, submitter) = stuffed();
    let span = Duration::from_millis(20);
    let start = Instant::now();
    let refused = submitter.post_wait(1, String::from("text"), span).unwrap_err();
    assert_eq!((refused.reason, refused.value.as_str()), (FULL, "text"));
    assert!(start.elapsed() >= span, "it did not wait");
    let start = Instant::now();
    assert_eq!(submitter.post_wait(1, (), Duration::ZERO).unwrap_err().reason, FULL);
    assert!(start.elapsed() < LONG);
    // The longest possible timeout.
    std::thread::scope(|scope| {
        let post = scope.spawn(|| submitter.post_wait(2, (), Duration::MAX));
        until_waiting(&submitter, 1);
        assert!(matches!(remote.take(), Some(Request::Post(0, None))));
        remote.fill(|| None, || None);
        post.join().unwrap().unwrap();
    });
    assert!(matches!(remote.take(), Some(Request::Post(2, Some(_)))));
}

/// Every waiting thread gets room, even if each turn makes room for one request.
#[test]
#[cfg_attr(miri, ignore = "thousands of waits: too slow")]
fn threads_that_wait_take_their_turns() {
    const EACH: u64 = 500;
    let (mut remote, submitter) = stuffed();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let submitter = &submitter;
            scope.spawn(move || {
                for i in 1..=EACH {
                    submitter.post_wait(thread << 32 | i, (), LONG).unwrap();
                }
            });
        }
        let (mut last, mut count, start) = ([0; 4], 0, Instant::now());
        while count < 4 * EACH {
            assert!(start.elapsed() < LONG, "{count} have come");
            remote.unpark();
            while let Some(request) = remote.take() {
                let Request::Post(token, Some(_)) = request else { continue };
                let (thread, i) = ((token >> 32) as usize, token & u64::from(u32::MAX));
                assert_eq!(i, last[thread] + 1, "out of order");
                (last[thread], count) = (i, count + 1);
            }
            remote.fill(|| None, || None);
            std::thread::yield_now();
        }
    });
}

/// The loop's own thread would wait for itself.
#[test]
fn the_loop_does_not_wait_for_itself() {
    let mut remote = Remote::new(1, 1, 1, Arc::new(|| {}));
    let submitter = remote.submitter();
    let start = Instant::now();
    submitter.post_wait(0, "there is room", LONG).unwrap();
    let refused = submitter.post_wait(1, "text", LONG).unwrap_err();
    assert_eq!((refused.reason, refused.value), (Refusal::Deadlock, "text"));
    assert!(remote.unpark());
    let refused = submitter.post_wait(2, "text", LONG).unwrap_err();
    assert_eq!((refused.reason, refused.value), (Refusal::Deadlock, "text"));
    assert!(start.elapsed() < LONG / 2, "the loop's thread waited");
    // The watcher moves, and takes its first turn there while this thread waits.
    let mut remote = Remote::new(1, 1, 1, Arc::new(|| {}));
    let submitter = remote.submitter();
    submitter.wake(0).unwrap();
    std::thread::scope(|scope| {
        let remote = &mut remote;
        let waits = &submitter;
        scope.spawn(move || {
            until_waiting(waits, 1);
            assert!(remote.unpark());
            assert!(matches!(remote.take(), Some(Request::Post(0, None))));
            remote.fill(|| None, || None);
        });
        submitter.post_wait(1, (), LONG).unwrap();
    });
    assert!(matches!(remote.take(), Some(Request::Post(1, Some(_)))));
}
