//! C8: a small lease in a write that waits is copied, so that it holds no swap buffer.

use windlass::driver::Driver;
use windlass::{Buf, Completion, Done, Lease, Limit, Op, Refusal, Ticket, Watcher};

use crate::common::*;

const BUFFER: usize = 4096;
const BUFFERS: usize = 8;
const SMALL: usize = 100;
/// More turns than the driver waits before it copies a lease.
const TURNS: usize = 80;

fn bench<H: Harness>() -> Bench<H::Driver> {
    let builder = Watcher::builder().buffer_size(BUFFER as u32).swap_limit(BUFFERS * BUFFER);
    H::bench_with(builder)
}

/// A lease with these bytes. The rest of its swap buffer is used up.
fn lease<D: Driver>(b: &mut Bench<D>, bytes: &[u8]) -> Result<Lease, Refusal> {
    let lease = b.watcher.lease(|space| {
        space[..bytes.len()].copy_from_slice(bytes);
        bytes.len()
    })?;
    // The next space is in another swap buffer, or there is none.
    let _ = b.watcher.lease(|space| space.len());
    Ok(lease)
}

fn turns<D: Driver>(b: &mut Bench<D>) {
    (0..TURNS).for_each(|_| b.look());
}

/// The buffer of a write that went out whole.
#[track_caller]
fn written(c: Completion) -> Buf {
    match c.result {
        Ok(Done::Written { buf, bytes }) => {
            assert_eq!(buf.len(), bytes as usize);
            buf
        }
        other => panic!("{other:?}"),
    }
}

/// Reads the bytes of a stuck write at its peer.
fn unstick<D: Driver>(b: &mut Bench<D>, stuck: &Stuck, behind: &[u8]) {
    let got = b.read_exact(stuck.peer, stuck.bytes.len() + behind.len());
    let (first, rest) = got.split_at(stuck.bytes.len());
    expect_same(first, &stuck.bytes);
    expect_same(rest, behind);
    b.end(stuck.ticket);
}

pub fn a_small_lease_that_waits_gives_its_buffer_back<H: Harness>() {
    let mut b = bench::<H>();
    let stuck = b.small_stuck();
    let before = b.watcher.counters();
    let mut wanted = Vec::new();
    let mut writes: Vec<Ticket> = Vec::new();
    for i in 0.. {
        let bytes = pattern(SMALL, i);
        let Ok(lease) = lease(&mut b, &bytes) else { break };
        assert_eq!(lease.held_bytes(), BUFFER);
        wanted.extend(bytes);
        writes.push(b.submit(Op::write(stuck.writer, lease)));
    }
    assert!(writes.len() >= BUFFERS / 2, "the swap buffers are used up: {}", writes.len());
    let full = b.watcher.lease(|_| 0).unwrap_err();
    assert!(matches!(full, Refusal::Full { limit: Limit::SwapBytes, .. }), "{full:?}");
    turns(&mut b);
    let counters = b.watcher.counters();
    let copied = counters.copied_leases - before.copied_leases;
    assert_eq!(copied, writes.len() as u64, "{counters:?}");
    assert_eq!(counters.copied_bytes - before.copied_bytes, copied * SMALL as u64);
    b.watcher.lease(|_| 0).expect("the swap buffers are free again");
    unstick(&mut b, &stuck, &wanted);
    for (write, bytes) in writes.into_iter().zip(wanted.chunks(SMALL)) {
        let lease = written(b.end(write)).into_lease().expect("it went in as a lease");
        assert_eq!((&*lease, lease.held_bytes()), (bytes, SMALL));
    }
    b.expect_all_ended();
}

/// A lease of a quarter of a swap buffer or more stays in place, and so do other buffers.
pub fn a_big_lease_that_waits_is_not_copied<H: Harness>() {
    let mut b = bench::<H>();
    let stuck = b.small_stuck();
    let big = pattern(BUFFER / 4, 1);
    let lease = lease(&mut b, &big).expect("room");
    let start = lease.as_ptr();
    let write = b.submit(Op::write(stuck.writer, lease));
    let owned = b.submit(Op::write(stuck.writer, pattern(SMALL, 2)));
    turns(&mut b);
    assert_eq!(b.watcher.counters().copied_leases, 0);
    unstick(&mut b, &stuck, &[big, pattern(SMALL, 2)].concat());
    let lease = written(b.end(write)).into_lease().expect("a lease");
    assert_eq!((lease.as_ptr(), lease.held_bytes()), (start, BUFFER));
    written(b.end(owned));
    b.expect_all_ended();
}

/// The small leases of a list are copied, the other parts are not; a unique lease stays unique.
pub fn small_leases_of_a_list_are_copied<H: Harness>() {
    let mut b = bench::<H>();
    let stuck = b.small_stuck();
    let (here, there) = b.pair();
    let text = b"unique";
    b.write(there, &text[..]);
    let mut unique = Vec::new();
    while unique.iter().map(|part: &Buf| part.len()).sum::<usize>() < text.len() {
        let read = b.submit(Op::read(here));
        unique.push(expect_read(b.end(read)));
    }
    let count = unique.len();
    let big = lease(&mut b, &pattern(BUFFER / 2, 7)).expect("room");
    let head = [Buf::from("static"), Buf::from(big)];
    let write = b.submit(Op::write_vectored(stuck.writer, head.into_iter().chain(unique)));
    turns(&mut b);
    assert_eq!(b.watcher.counters().copied_leases, count as u64);
    let behind = [&b"static"[..], &pattern(BUFFER / 2, 7), text].concat();
    unstick(&mut b, &stuck, &behind);
    let mut parts = written(b.end(write)).into_parts();
    assert_eq!(&*parts.next().unwrap(), b"static");
    let big = parts.next().unwrap().into_lease().expect("a lease");
    assert_eq!(big.held_bytes(), BUFFER);
    let mut back = Vec::new();
    for part in parts {
        let part = part.into_lease_mut().expect("it is unique as before");
        assert_eq!(part.held_bytes(), part.len());
        back.extend_from_slice(&part);
    }
    assert_eq!(back, text);
    b.expect_all_ended();
}

/// A read that waits for a swap buffer gets one from the writes at once, without further turns.
pub fn a_read_that_waits_gets_the_buffer_of_a_write<H: Harness>() {
    let mut b = bench::<H>();
    let stuck = b.small_stuck();
    let (here, there) = b.pair();
    let mut wanted = Vec::new();
    let mut count = 0;
    while let Ok(lease) = lease(&mut b, &pattern(SMALL, count)) {
        wanted.extend_from_slice(&lease);
        b.submit(Op::write(stuck.writer, lease));
        count += 1;
    }
    let read = b.submit(Op::read(here));
    b.write(there, "x");
    assert_eq!(&*expect_read(b.end(read)), b"x");
    unstick(&mut b, &stuck, &wanted);
    let ends = b.take(count as usize);
    assert!(ends.into_iter().all(|c| written(c).len() == SMALL));
    b.expect_all_ended();
}

/// A cancel, an abort and a close give the copy back, too.
pub fn a_copied_lease_comes_back_from_every_end<H: Harness>() {
    let mut b = bench::<H>();
    let stuck = b.small_stuck();
    let writes = [0, 1, 2].map(|i| {
        let lease = lease(&mut b, &pattern(SMALL, i)).expect("room");
        b.submit(Op::write(stuck.writer, lease))
    });
    turns(&mut b);
    assert_eq!(b.watcher.counters().copied_leases, 3);
    assert!(b.watcher.cancel(writes[2]));
    let mut ends = vec![(2, b.end(writes[2]))];
    assert!(b.watcher.abort(stuck.writer));
    ends.extend([0, 1].map(|i| (i, b.end(writes[i as usize]))));
    for (i, c) in ends {
        let lease = c.result.expect_err("it did not go out").into_buf().into_lease();
        let lease = lease.expect("it went in as a lease");
        assert_eq!((&*lease, lease.held_bytes()), (&*pattern(SMALL, i), SMALL));
    }
    b.end(stuck.ticket);
    b.expect_all_ended();
}

/// On io_uring the kernel itself has such a write, which the driver asks for.
pub fn a_small_lease_that_the_kernel_has_is_copied<H: Harness>() {
    let mut b = bench::<H>();
    let (writer, peer) = b.pair();
    b.narrow(writer);
    let (before, small, after) = (pattern(4 << 20, 1), pattern(SMALL, 2), pattern(99, 3));
    let lease = lease(&mut b, &small).expect("room");
    let parts = [Buf::from(before.clone()), Buf::from(lease), Buf::from(after.clone())];
    let write = b.submit(Op::write_vectored(writer, parts));
    let copied = |b: &Bench<H::Driver>| b.watcher.counters().copied_leases;
    let turns = b.watcher.counters().turns;
    while copied(&b) == 0 {
        b.look();
        assert!(b.watcher.counters().turns < turns + 10_000, "the kernel does not give it back");
    }
    assert!(b.is_open(write), "a silent peer took it all");
    expect_same(&b.read_exact(peer, before.len()), &before);
    expect_same(&b.read_exact(peer, SMALL + 99), &[small.clone(), after].concat());
    let parts: Vec<Buf> = written(b.end(write)).into_parts().collect();
    assert_eq!((&*parts[1], parts.len(), copied(&b)), (&*small, 3, 1));
    b.expect_all_ended();
}
