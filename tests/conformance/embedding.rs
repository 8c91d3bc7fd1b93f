//! A watcher inside another loop: poll(2) on `pollable`, no longer than `next_timeout`.

use std::io::Write;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::time::Duration;

use windlass::driver::Driver;
use windlass::{Completion, Completions, Done, Op};

use crate::common::*;

/// The steps of a foreign loop.
fn embedded<D: Driver>(b: &mut Bench<D>) -> Vec<Completion> {
    let mut done = Completions::new();
    let start = std::time::Instant::now();
    loop {
        if b.watcher.try_wait(&mut done).unwrap() > 0 {
            return done.into_iter().collect();
        }
        assert!(start.elapsed() < BOUND, "the embedded loop hangs");
        let timeout = b.watcher.next_timeout();
        let fd = b.watcher.pollable().unwrap();
        let bound = timeout.map_or(BOUND, |timeout| timeout.min(BOUND));
        system::wait_readable(fd, Some(bound));
    }
}

pub fn data_and_timers_come_through_poll<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = UnixStream::pair().unwrap();
    let source = b.watcher.attach(here).unwrap();
    for i in 0..50 {
        let read = b.watcher.submit(Op::read(source)).unwrap();
        (&there).write_all(&[i]).unwrap();
        let done = embedded(&mut b);
        assert_eq!((done.len(), done[0].ticket()), (1, read));
        let start = b.watcher.now();
        let span = Duration::from_micros(700);
        b.watcher.submit(Op::timer(span)).unwrap();
        assert!(b.watcher.next_timeout().is_some_and(|timeout| timeout <= span));
        let done = embedded(&mut b);
        assert!(matches!(done[0].result, Ok(Done::Timer)));
        assert!(b.watcher.now() >= start + span);
    }
    // The loop asks a Unix stream once more; then there is nothing to be done.
    let start = std::time::Instant::now();
    while let Some(timeout) = b.watcher.next_timeout() {
        assert!(start.elapsed() < BOUND, "there is always something");
        system::wait_readable(b.watcher.pollable().unwrap(), Some(timeout));
        assert_eq!(b.watcher.try_wait(&mut Completions::new()).unwrap(), 0);
    }
}

/// What ended inside submit is there at once: no sleep.
pub fn what_is_done_already_needs_no_sleep<H: Harness>() {
    let mut b = H::bench();
    assert_eq!(b.watcher.next_timeout(), None);
    b.watcher.submit(Op::nop()).unwrap();
    assert_eq!(b.watcher.next_timeout(), Some(Duration::ZERO));
    assert_eq!(embedded(&mut b).len(), 1);
    assert_eq!(b.watcher.next_timeout(), None);
    b.watcher.submit(Op::nop()).unwrap();
    b.watcher.close();
    assert_eq!(b.watcher.next_timeout(), Some(Duration::ZERO));
}

/// Another thread's submissions wake the foreign loop, each of many times.
pub fn submitters_wake_the_foreign_loop<H: Harness>() {
    let mut b = H::bench();
    let submitter = b.submitter();
    let (go, gone) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        while let Ok(i) = gone.recv() {
            submitter.wake(i).unwrap();
        }
    });
    for i in 0..2000u64 {
        go.send(i).unwrap();
        let done = embedded(&mut b);
        assert_eq!((done.len(), done[0].token), (1, i));
    }
    drop(go);
    join(thread, "the thread that wakes");
}

/// A burst, then a pause, then a burst: at every interleaving nothing is lost.
pub fn bursts_from_a_thread_arrive_whole<H: Harness>() {
    let mut b = H::bench();
    let submitter = b.submitter();
    let thread = std::thread::spawn(move || {
        for i in 0..20_000u64 {
            while submitter.wake(i).is_err() {
                std::thread::yield_now();
            }
            if i % 97 == 0 {
                std::thread::yield_now();
            }
        }
    });
    let mut next = 0;
    while next < 20_000 {
        for c in embedded(&mut b) {
            assert_eq!(c.token, next);
            next += 1;
        }
    }
    join(thread, "the thread of bursts");
}

/// Accepts that are paused, reads that wait for a lease: both are seen from outside.
pub fn a_lease_from_another_thread_wakes_the_foreign_loop<H: Harness>() {
    let builder = windlass::Watcher::builder().buffer_size(64).swap_limit(64);
    let mut b = H::bench_with(builder);
    let (here, there) = UnixStream::pair().unwrap();
    let source = b.watcher.attach(here).unwrap();
    for i in 0..200 {
        (&there).write_all(&[i; 64]).unwrap();
        b.watcher.submit(Op::read(source)).unwrap();
        let lease = embedded(&mut b).pop().unwrap();
        assert_eq!(lease.bytes(), 64);
        b.watcher.submit(Op::read(source)).unwrap();
        (&there).write_all(&[i; 64]).unwrap();
        let thread = std::thread::spawn(move || drop(lease));
        let next = embedded(&mut b).pop().unwrap();
        assert_eq!(next.bytes(), 64);
        join(thread, "the drop of a lease");
    }
}

/// The kernel gives a swap buffer back for a read of the loop, although the foreign loop sleeps.
pub fn a_buffer_of_the_kernel_wakes_the_foreign_loop<H: Harness>() {
    const SIZE: usize = 4096;
    for count in 2..=6 {
        let builder = windlass::Watcher::builder().buffer_size(SIZE as u32);
        let mut b = H::bench_with(builder.swap_limit(count * SIZE));
        let (reader, writer) = b.pair();
        let read = b.submit(Op::read(reader).multishot());
        let (here, there) = UnixDatagram::pair().unwrap();
        let source = b.watcher.attach(here).unwrap();
        for i in 0..20 {
            // Now the kernel has a buffer.
            b.write(writer, "x");
            drop(b.end(read));
            b.watcher.submit(Op::read(source)).unwrap();
            assert_eq!(b.watcher.try_wait(&mut Completions::new()).unwrap(), 0);
            let fill = |b: &mut Bench<H::Driver>| b.watcher.lease(|space| space.len());
            let mut kept: Vec<_> = std::iter::from_fn(|| fill(&mut b).ok()).collect();
            // One of them comes back, if the kernel has none.
            kept.truncate(count - 1);
            there.send(&[i; 300]).unwrap();
            let done = embedded(&mut b);
            assert_eq!((done.len(), done[0].bytes()), (1, 300));
        }
        b.watcher.close();
    }
}

/// Whether the foreign loop wakes: at once, or within `bound` by the descriptor.
fn is_woken<D: Driver>(b: &mut Bench<D>, bound: Duration) -> bool {
    let timeout = b.watcher.next_timeout();
    timeout == Some(Duration::ZERO)
        || system::wait_readable(b.watcher.pollable().unwrap(), Some(bound))
}

/// A read that waits because of its source's writes resumes when swap buffers come back, even if it
/// began to wait in the last turn.
pub fn a_share_that_grows_wakes_the_foreign_loop<H: Harness>() {
    const CHUNK: usize = 4096;
    let builder = windlass::Watcher::builder().buffer_size(CHUNK as u32).swap_limit(64 * CHUNK);
    let mut b = H::bench_with(builder);
    let fill = |b: &mut Bench<H::Driver>| b.watcher.lease(|space| space.len()).expect("room");
    let kept: Vec<_> = (0..28).map(|_| fill(&mut b)).collect();
    let (here, there) = UnixStream::pair().unwrap();
    let source = b.watcher.attach(here).unwrap();
    b.submit(Op::write(source, pattern(4 << 20, 1)));
    while b.watcher.counters().share_waits == 0 {
        let lease = fill(&mut b);
        b.submit(Op::write(source, lease));
        assert!(b.watcher.counters().free_swap_bytes > 0, "nothing waits");
        (&there).write_all(&[2]).unwrap();
        let read = b.submit(Op::read(source));
        b.look();
        if !b.is_open(read) {
            b.end(read);
        }
    }
    let thread = std::thread::spawn(move || drop(kept));
    assert!(is_woken(&mut b, BOUND), "nothing tells that the read can go on");
    join(thread, "the drop of the leases");
    assert_eq!(embedded(&mut b)[0].bytes(), 1);
}

/// An accept that waits for room in the table resumes when the program makes room.
pub fn room_in_the_table_wakes_the_foreign_loop<H: Harness>() {
    let mut b = H::bench_with(windlass::Watcher::builder().max_sources(2));
    let listener = b.watcher.listen(([127, 0, 0, 1], 0)).unwrap();
    let at = b.watcher.local_address(listener).unwrap();
    let (other, _peer) = UnixStream::pair().unwrap();
    let other = b.watcher.attach(other).unwrap();
    let accept = b.watcher.submit(Op::accept(listener)).unwrap();
    let _client = std::net::TcpStream::connect(at.ip().expect("of TCP")).unwrap();
    let start = std::time::Instant::now();
    while b.watcher.counters().table_waits == 0 {
        assert!(start.elapsed() < BOUND, "the accept does not wait for room");
        assert_eq!(b.watcher.try_wait(&mut Completions::new()).unwrap(), 0);
    }
    assert!(b.watcher.abort(other));
    assert!(is_woken(&mut b, BOUND), "nothing tells that the accept can go on");
    assert_eq!(embedded(&mut b)[0].ticket(), accept);
}

/// `now` advances with each wait, also on a closed watcher.
pub fn the_clock_goes_on_when_all_is_closed<H: Harness>() {
    let mut b = H::bench();
    b.watcher.close();
    let before = b.watcher.now();
    // The passing of time itself is tested: there is no event to await.
    std::thread::sleep(Duration::from_millis(1));
    assert!(b.watcher.try_wait(&mut Completions::new()).is_err(), "it is closed");
    assert!(b.watcher.now() > before, "the clock stands still");
}

/// An accept that waits for the place of a delivered connection resumes when the program has
/// dropped that connection.
pub fn a_dropped_connection_wakes_the_foreign_loop<H: Harness>() {
    let mut b = H::bench_with(windlass::Watcher::builder().max_sources(2));
    let listener = b.watcher.listen(([127, 0, 0, 1], 0)).unwrap();
    let at = b.watcher.local_address(listener).unwrap().ip().expect("of TCP");
    b.watcher.submit(Op::accept(listener).multishot()).unwrap();
    let _clients = [0; 2].map(|_| std::net::TcpStream::connect(at).unwrap());
    let first = embedded(&mut b).pop().unwrap();
    assert!(matches!(first.result, Ok(Done::Accepted(_))));
    drop(first);
    assert!(is_woken(&mut b, BOUND), "nothing tells that the accept can go on");
    assert!(matches!(embedded(&mut b)[0].result, Ok(Done::Accepted(_))));
}
