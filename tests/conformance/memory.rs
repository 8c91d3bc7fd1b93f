//! C8: memory of the library in the program's hands: parts of it, and what the program writes
//! there.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use windlass::driver::panicked_drops;
use windlass::{AlignedBuf, Buf, Completion, Done, ErrorKind, Lease, LeaseMut, Limit, Op};
use windlass::{Refusal, Source, Watcher};

use crate::common::*;

/// One read: no other lease has any of its bytes.
#[track_caller]
fn read_unique<D: windlass::driver::Driver>(b: &mut Bench<D>, source: Source) -> LeaseMut {
    let read = b.submit(Op::read(source));
    let data = expect_read(b.end(read));
    data.into_lease_mut().expect("a read yields a unique lease")
}

/// A lease with this text, which the program has written.
#[track_caller]
fn lease_of<D: windlass::driver::Driver>(b: &mut Bench<D>, text: &[u8]) -> Lease {
    let lease = b.watcher.lease(|space| {
        space[..text.len()].copy_from_slice(text);
        text.len()
    });
    lease.expect("the pool has room")
}

/// The panic of `call`, which must panic: its text.
#[track_caller]
fn panic_of(call: impl FnOnce()) -> String {
    let payload = catch_unwind(AssertUnwindSafe(call)).expect_err("it panics");
    match payload.downcast::<String>() {
        Ok(text) => *text,
        Err(payload) => payload.downcast::<&str>().map_or_else(|_| String::new(), |t| (*t).into()),
    }
}

/// A read is the program's alone: its parts can be changed, joined again, frozen and sent.
pub fn reads_can_be_changed_in_place<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    b.write(there, "head|body");
    let mut came = 0;
    while came < 9 {
        let mut tail = read_unique(&mut b, here);
        let text = tail.to_vec();
        let half = text.len() / 2;
        let mut head = tail.split_to(half);
        head.make_ascii_uppercase();
        assert_eq!((&head[..], &tail[..]), (&text[..half].to_ascii_uppercase()[..], &text[half..]));
        let mut whole = head.try_join(tail).expect("they touch");
        let mut last = whole.split_off(half);
        last.make_ascii_uppercase();
        let whole = whole.try_join(last).expect("they touch").freeze();
        assert_eq!(&*whole, text.to_ascii_uppercase());
        came += text.len();
        let write = b.submit(Op::write(here, whole));
        assert_eq!(b.read_exact(there, text.len()), text.to_ascii_uppercase());
        // What was frozen may be shared: it does not become unique again.
        let buf = expect_written(b.end(write));
        assert!(buf.into_lease_mut().is_err());
    }
    b.expect_all_ended();
}

/// Leases are split and joined without a copy. What does not touch comes back.
pub fn leases_are_split_and_joined<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    let mut rest = lease_of(&mut b, b"one two three");
    let swap_bytes = b.watcher.counters().swap_bytes;
    let one = rest.split_to(4);
    let three = rest.split_off(4);
    assert_eq!([&*one, &*rest, &*three], [&b"one "[..], b"two ", b"three"]);
    let (three, one) = three.try_join(one).expect_err("the wrong order");
    let other = lease_of(&mut b, b"stranger");
    let (one, other) = one.try_join(other).expect_err("a stranger");
    assert_eq!((&*one, &*other), (&b"one "[..], &b"stranger"[..]));
    let empty = one.slice(4..);
    let (two, three) = rest.clone().try_join(three.clone()).map_or_else(
        |both| both,
        |whole| {
            assert_eq!(&*whole, b"two three");
            (rest, three)
        },
    );
    let whole = one.try_join(empty).and_then(|one| one.try_join(two)).expect("they touch");
    let whole = whole.try_join(three).expect("they touch");
    let write = b.submit(Op::write(here, whole));
    assert_eq!(b.read_exact(there, 13), b"one two three");
    assert_eq!(expect_written(b.end(write)).len(), 13);
    assert_eq!(b.watcher.counters().swap_bytes, swap_bytes.max(64 << 10), "nothing was copied");
}

/// A split beyond the end is a panic that leaves the lease as it was.
pub fn a_split_beyond_the_end_panics<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    let mut lease = lease_of(&mut b, b"seven b");
    for beyond in [8, usize::MAX] {
        let text = panic_of(|| drop(lease.split_to(beyond)));
        assert_eq!(text, format!("split at {beyond} of a lease of 7 bytes"));
        panic_of(|| drop(lease.split_off(beyond)));
        panic_of(|| drop(lease.slice(..beyond)));
    }
    assert_eq!(&*lease, b"seven b");
    b.write(there, "x");
    let mut unique = read_unique(&mut b, here);
    panic_of(|| drop(unique.split_to(2)));
    panic_of(|| drop(unique.split_off(2)));
    assert_eq!(&*unique, b"x");
    assert!(unique.split_to(1).len() == 1 && unique.is_empty());
    b.expect_alive(here, there);
}

/// A small lease that is kept gives its swap buffer back, and the copy is counted.
pub fn a_small_lease_is_compacted<H: Harness>() {
    let mut b = H::bench_with(Watcher::builder().buffer_size(1024).swap_limit(1024));
    let (here, there) = b.pair();
    let mut large = lease_of(&mut b, &pattern(256, 1));
    assert_eq!((large.compact(), large.held_bytes()), (0, 1024), "a quarter is not small");
    drop(large);
    let mut kept = lease_of(&mut b, b"kept");
    let copy = kept.clone();
    assert_eq!((kept.compact(), kept.compact()), (4, 0));
    assert_eq!((&*kept, kept.held_bytes()), (&b"kept"[..], 4));
    assert_eq!(b.watcher.counters().compacted_bytes, 4);
    drop(copy);
    // The only swap buffer is free: a read can fill it.
    let filler = lease_of(&mut b, &pattern(1024, 2));
    assert_eq!(filler.len(), 1024);
    drop(filler);
    assert_eq!(b.watcher.counters().swap_bytes, 1024);
    let write = b.submit(Op::write(here, kept));
    assert_eq!(b.read_exact(there, 4), b"kept");
    expect_written(b.end(write));
    b.expect_all_ended();
}

/// The program writes into memory of the library: as far as there is room, as far as it says.
pub fn a_lease_is_written_in_place<H: Harness>() {
    let mut b = H::bench_with(Watcher::builder().buffer_size(1024).swap_limit(2048));
    let (here, there) = b.pair();
    let text = panic_of(|| drop(b.watcher.lease(|space| space.len() + 1)));
    assert!(text.ends_with("bytes were said to be in a space of 1024"), "{text}");
    assert_eq!(panic_of(|| drop(b.watcher.lease(|_| panic!("the closure")))), "the closure");
    assert!(lease_of(&mut b, b"").is_empty());
    let mut held = Vec::new();
    let full = loop {
        match b.watcher.lease(|space| {
            assert!(space.len() >= 512);
            space.fill(held.len() as u8);
            space.len()
        }) {
            Ok(lease) => held.push(lease),
            Err(full) => break full,
        }
    };
    assert_eq!(full, Refusal::Full { limit: Limit::SwapBytes, count: 2048 });
    assert_eq!(b.watcher.counters().swap_bytes, 2048);
    let whole: usize = held.iter().map(|lease| lease.len()).sum();
    assert!(whole >= 1024 + 512, "{whole}");
    for (i, lease) in held.iter().enumerate() {
        assert!(lease.iter().all(|&byte| byte == i as u8), "nothing was overwritten");
    }
    assert_eq!(b.watcher.lease(|_| unreachable!("there is no room")).err(), Some(full));
    held.clear();
    let write = lease_of(&mut b, b"+PONG\r\n");
    let write = b.submit(Op::write(here, write));
    assert_eq!(b.read_exact(there, 7), b"+PONG\r\n");
    expect_written(b.end(write));
}

/// An empty write moves no byte, and completes behind the writes before it.
pub fn an_empty_write_completes_in_its_place<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    let empties = || {
        [
            Buf::from(Vec::new()),
            Buf::from(""),
            Buf::list([Vec::new(), Vec::new()]),
            Buf::list(Vec::<Buf>::new()),
            Buf::from("some").slice(2..2),
        ]
    };
    for buf in empties() {
        let write = b.submit(Op::write(here, buf).timeout(BOUND));
        assert_eq!(expect_written(b.end(write)).len(), 0);
    }
    // Between others, and behind one that is stuck.
    for buf in empties() {
        b.submit(Op::write(here, "a").token(1));
        b.submit(Op::write(here, buf).token(2));
        b.submit(Op::write(here, "b").token(3));
        let tokens: Vec<u64> = b.take(3).iter().map(|c| c.token).collect();
        assert_eq!(tokens, [1, 2, 3]);
        assert_eq!(b.read_exact(there, 2), b"ab");
    }
    b.expect_alive(here, there);
    for torn in [false, true] {
        let stuck = b.small_stuck();
        let behind = empties().map(|buf| b.submit(Op::write(stuck.writer, buf)));
        b.look();
        assert!(behind.iter().all(|&ticket| b.is_open(ticket)), "they wait for the one before");
        assert!(b.watcher.cancel(behind[0]));
        expect_unmoved(b.end(behind[0]), ErrorKind::Cancelled);
        if torn {
            assert!(b.watcher.cancel(stuck.ticket));
        } else {
            expect_same(&b.read_exact(stuck.peer, stuck.bytes.len()), &stuck.bytes);
        }
        let order: Vec<_> = b.take(behind.len()).iter().map(|c| c.ticket()).collect();
        assert_eq!((order[0], &order[1..]), (stuck.ticket, &behind[1..]));
    }
}

/// An empty write needs no peer, and goes before a close.
pub fn an_empty_write_needs_no_peer<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    let write = b.submit(Op::write(here, ""));
    let close = b.submit(Op::close(here));
    expect_written(b.end(write));
    expect_closed(b.end(close));
    expect_eof(b.run(Op::read(there)));
    let write = b.submit(Op::write(there, Vec::new()));
    assert_eq!(expect_written(b.end(write)).len(), 0);
    b.expect_all_ended();
}

/// What a `read_append` has read: its buffer, and how many bytes are new.
#[track_caller]
fn expect_appended(c: Completion) -> (Buf, usize) {
    let bytes = c.bytes();
    match c.result {
        Ok(Done::Appended { buf, bytes: new }) if new as usize == bytes => (buf, bytes),
        other => panic!("{other:?}"),
    }
}

/// A read behind the bytes of a vector keeps them, and takes what fits.
pub fn reads_append_to_a_vector<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    let vector = |text: &[u8]| {
        let mut vector = room(12);
        vector.extend(text);
        vector
    };
    let mut aligned = AlignedBuf::from_slice(&pattern(500, 1), 512);
    aligned.set_len(500);
    for (buf, fits) in [(Buf::from(vector(b"head")), 8), (Buf::from(aligned), 12)] {
        let (head, start) = (buf.to_vec(), buf.as_ptr());
        let mut buf = buf;
        b.write(there, "0123456789abcdef");
        let mut came = head.clone();
        while came.len() < head.len() + fits {
            let read = b.submit(Op::read_append(here, buf));
            let (back, new) = expect_appended(b.end(read));
            assert!(new > 0 && back.len() == came.len() + new);
            came = back.to_vec();
            buf = back;
        }
        assert_eq!(came, [&head[..], &b"0123456789abcdef"[..fits]].concat());
        assert_eq!(buf.as_ptr(), start, "the same memory");
        let (reason, op) = b.refuse(Op::read_append(here, buf));
        assert_eq!((reason, op.buf().len()), (Refusal::EmptyBuffer, came.len()));
        assert_eq!(b.read_exact(here, 16 - fits), &b"0123456789abcdef"[fits..]);
    }
    // However it ends, the bytes that were there stay.
    let read = b.submit(Op::read_append(here, vector(b"kept")));
    assert!(b.watcher.cancel(read));
    assert_eq!(&*expect_unmoved(b.end(read), ErrorKind::Cancelled), b"kept");
    let read = b.submit(Op::read_append(here, vector(b"kept")).timeout(Duration::from_millis(1)));
    assert_eq!(&*expect_unmoved(b.end(read), ErrorKind::Deadline), b"kept");
    let frozen = lease_of(&mut b, b"shared");
    for buf in [Buf::from("static"), Buf::from(frozen), Buf::default(), Buf::from(Vec::new())] {
        assert_eq!(b.refuse(Op::read_append(here, buf)).0, Refusal::EmptyBuffer);
    }
    let list = Buf::list([vector(b"a"), vector(b"b")]);
    assert_eq!(b.refuse(Op::read_append(here, list)).0, Refusal::Unsupported);
    let close = b.submit(Op::close(there));
    expect_closed(b.end(close));
    let read = b.submit(Op::read_append(here, vector(b"kept")));
    let (back, new) = expect_appended(b.end(read));
    assert_eq!((&*back, new), (&b"kept"[..], 0), "the end of the file");
    b.expect_all_ended();
}

/// A request that arrives in two parts is one lease: without a copy where nothing was read behind
/// its first part, with one copy of that else. (A ring's buffer costs a copy of the second, too.)
pub fn reads_append_to_a_lease<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    let (other, far) = b.pair();
    for between in [false, true, false] {
        b.write(there, pattern(300, 1));
        let mut lease = read_unique(&mut b, here);
        let mut came = lease.to_vec();
        let before = b.watcher.counters().copied_bytes;
        let mut held = Vec::new();
        let (mut most, mut rounds) = (0, 0);
        while came.len() < 600 {
            if came.len() == 300 && rounds == 0 {
                rounds = 1;
                if between {
                    b.write(far, "x");
                    held.push(read_unique(&mut b, other));
                }
            }
            let read = b.submit(Op::read_append(here, lease));
            b.look();
            if came.len() == 300 {
                b.write(there, pattern(300, 2));
            }
            let (buf, new) = expect_appended(b.end(read));
            most += came.len() + new;
            came.extend(&buf[came.len()..]);
            assert_eq!(*buf, came);
            lease = buf.into_lease_mut().expect("still unique");
        }
        expect_same(&came, &[pattern(300, 1), pattern(300, 2)].concat());
        lease.reverse();
        lease.reverse();
        expect_same(&lease, &came);
        let copied = (b.watcher.counters().copied_bytes - before) as usize;
        assert!(copied <= most, "{copied} {most}");
        if H::COMPLETES && between {
            assert!(copied >= 300, "{copied}");
        } else if !H::COMPLETES {
            assert_eq!(copied >= 300, between, "{copied}");
        }
        // A part of it: the first half, behind which the second lies, has to move.
        let tail = lease.split_off(300);
        b.write(there, "!");
        let read = b.submit(Op::read_append(here, lease));
        let (buf, new) = expect_appended(b.end(read));
        assert_eq!((new, buf.len()), (1, 301));
        expect_same(&tail, &pattern(300, 2));
        expect_same(&buf[..300], &pattern(300, 1));
        // Frozen and sent.
        let frozen = buf.into_lease().expect("a lease");
        let write = b.submit(Op::write(here, frozen.clone()));
        expect_same(&b.read_exact(there, 301), &frozen);
        expect_written(b.end(write));
    }
    b.expect_all_ended();
}

/// At the pool's limit an append waits for no lease, which could be its own: the lease moves into
/// memory of its own. One that fills a swap buffer has no room behind it.
pub fn appends_wait_for_no_lease<H: Harness>() {
    let mut b = H::bench_with(Watcher::builder().buffer_size(1024).swap_limit(1024));
    let (here, there) = b.pair();
    let read_all = |b: &mut Bench<H::Driver>, count: usize| {
        let mut lease = read_unique(b, here);
        while lease.len() < count {
            let read = b.submit(Op::read_append(here, lease));
            lease = expect_appended(b.end(read)).0.into_lease_mut().expect("unique");
        }
        lease
    };
    b.write(there, pattern(600, 1));
    let mut lease = read_all(&mut b, 600);
    // Behind its first part there is no room, and there is no other swap buffer.
    let tail = lease.split_off(100);
    let copied = b.watcher.counters().copied_bytes;
    let read = b.submit(Op::read_append(here, lease));
    b.look();
    assert!(b.is_open(read), "there are no bytes");
    b.write(there, pattern(400, 2));
    let (buf, new) = expect_appended(b.end(read));
    expect_same(&buf, &[&pattern(600, 1)[..100], &pattern(400, 2)[..new]].concat());
    assert_eq!(b.watcher.counters().copied_bytes - copied, buf.len() as u64);
    let lease = buf.into_lease_mut().expect("unique");
    assert_eq!(lease.held_bytes(), lease.len(), "memory of its own");
    expect_same(&tail, &pattern(600, 1)[100..]);
    assert!(b.watcher.counters().swap_bytes <= 1024);
    drop(tail);
    if new < 400 {
        b.read_exact(here, 400 - new);
    }
    // It gave its token of the pool's memory back: other reads find room.
    b.write(there, pattern(1024, 3));
    let whole = read_all(&mut b, 1024);
    expect_same(&whole, &pattern(1024, 3));
    let (reason, op) = b.refuse(Op::read_append(here, whole));
    assert_eq!(reason, Refusal::EmptyBuffer);
    expect_same(op.buf(), &pattern(1024, 3));
    drop((op, lease));
    b.expect_alive(here, there);
    b.expect_all_ended();
}

/// A part of every kind of buffer can be written; the rest of it stays out of sight.
pub fn a_part_of_every_buffer_can_be_written<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    let text = b"0123456789";
    let shared: Arc<[u8]> = Arc::from(&text[..]);
    let lease = lease_of(&mut b, text);
    let bufs = [
        Buf::from(text.to_vec()),
        Buf::from(text.to_vec().into_boxed_slice()),
        Buf::from(String::from("0123456789")),
        Buf::from(text),
        Buf::from(Arc::clone(&shared)),
        Buf::from(lease.clone()),
        Buf::from(AlignedBuf::from_slice(text, 512)),
        Buf::from_owner(*text),
        Buf::from_owner(*text).slice(..9).slice(..),
    ];
    for buf in bufs {
        let what = format!("{buf:?}");
        let whole = buf.slice(..);
        assert_eq!(format!("{whole:?}"), what, "the whole is no part");
        let part = whole.slice(1..8).slice(2..=5);
        let write = b.submit(Op::write(here, part));
        assert_eq!(b.read_exact(there, 4), b"3456", "{what}");
        let back = expect_written(b.end(write));
        assert_eq!(&*back, b"3456", "{what}");
        // There is no room to read into a part.
        let (reason, op) = b.refuse(Op::read_into(here, back));
        assert_eq!(reason, Refusal::EmptyBuffer, "{what}");
        let list = Buf::list([op.into_buf().slice(..1), Buf::from("!")]);
        let write = b.submit(Op::write(here, list));
        assert_eq!(b.read_exact(there, 2), b"3!", "{what}");
        assert_eq!(expect_written(b.end(write)).into_vec(), b"3!");
    }
    assert_eq!(Arc::strong_count(&shared), 1);
    assert_eq!(&*lease, text);
    let list = Buf::list([Buf::from("a"), Buf::from("b")]);
    let text = panic_of(|| drop(list.slice(..1)));
    assert_eq!(text, "a list of buffers has no bytes of its own: slice its parts");
    panic_of(|| drop(Buf::from("ab").slice(1..4)));
    b.expect_all_ended();
}

/// Owners of parts that panic: each is dropped once.
pub fn parts_of_owners_that_panic<H: Harness>() {
    struct Owner(Arc<AtomicUsize>, bool);
    impl AsRef<[u8]> for Owner {
        fn as_ref(&self) -> &[u8] {
            assert!(!self.1, "as_ref");
            b"0123456789"
        }
    }
    impl Drop for Owner {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
            assert!(self.1, "drop");
        }
    }
    let gone = Arc::new(AtomicUsize::new(0));
    let owner = |loud: bool| Owner(Arc::clone(&gone), loud);
    let made = owner(true);
    assert_eq!(panic_of(|| drop(Buf::from_owner(made))), "as_ref");
    assert_eq!(gone.load(Ordering::SeqCst), 1);
    let before = panicked_drops();
    let mut b = H::bench();
    let stuck = b.stuck();
    b.submit(Op::write(stuck.writer, Buf::from_owner(owner(false)).slice(3..)));
    b.look();
    drop(b);
    assert_eq!(gone.load(Ordering::SeqCst), 2);
    assert!(panicked_drops() > before);
    let part = Buf::from_owner(owner(false)).slice(2..6);
    assert_eq!(panic_of(|| drop(part)), "drop");
    assert_eq!(gone.load(Ordering::SeqCst), 3);
}

/// Requests that arrive whole cost no copy, on many connections at once: a multishot read brings
/// them, and parts of its leases are what the program keeps and writes.
pub fn a_request_that_arrives_whole_is_not_copied<H: Harness>() {
    let mut b = H::bench();
    let pairs = b.pairs(8);
    for &(here, _) in &pairs {
        b.submit(Op::read(here).multishot());
    }
    let mut moved = 0;
    for round in 0..40 {
        for (i, &(here, there)) in pairs.iter().enumerate() {
            let request = pattern(1 + 150 * i + round, round as u64);
            b.write(there, request.clone());
            let mut whole: Option<LeaseMut> = None;
            let mut parts = Vec::new();
            while parts.iter().chain(&whole).map(|part| part.len()).sum::<usize>() < request.len() {
                let c = b.next();
                assert_eq!((c.source, c.has_more()), (here, true));
                let part = expect_read(c).into_lease_mut().expect("unique");
                // Parts that touch are one again without a copy.
                whole = Some(match whole.take() {
                    None => part,
                    Some(before) => before.try_join(part).unwrap_or_else(|(before, part)| {
                        parts.push(before);
                        part
                    }),
                });
            }
            parts.extend(whole);
            moved += request.len();
            let parts: Vec<Buf> = parts.into_iter().map(Buf::from).collect();
            let write = b.submit(Op::write_vectored(here, parts));
            expect_same(&b.read_exact(there, request.len()), &request);
            b.end(write);
        }
    }
    assert!(moved > 100_000);
    let counters = b.watcher.counters();
    // A write that a kernel has for long gives its small leases back for copies.
    let copies = H::COMPLETES && counters.copied_leases > 0;
    assert!(counters.copied_bytes == 0 || copies, "of {moved}: {counters:?}");
    for &(here, _) in &pairs {
        assert_eq!(b.watcher.cancel_all(here), 1);
    }
    b.take(pairs.len());
    b.expect_all_ended();
}

/// A request that arrives in two parts costs at most one copy of the second.
pub fn a_request_cut_in_two_costs_a_copy_of_its_tail<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    let mut tails = 0;
    for round in 0..60 {
        let request = pattern(2 + 31 * round, round as u64);
        let (head, tail) = request.split_at(1 + 13 * round);
        b.write(there, head.to_vec());
        let mut lease = read_unique(&mut b, here);
        // A simulated network with faults cuts the request into more parts.
        tails += request.len() - lease.len();
        let read = b.submit(Op::read_append(here, lease));
        b.look();
        b.write(there, tail.to_vec());
        lease = expect_appended(b.end(read)).0.into_lease_mut().expect("unique");
        while lease.len() < request.len() {
            let read = b.submit(Op::read_append(here, lease));
            lease = expect_appended(b.end(read)).0.into_lease_mut().expect("unique");
        }
        expect_same(&lease, &request);
    }
    let copied = b.watcher.counters().copied_bytes as usize;
    println!("{}: {copied} bytes copied of {tails} in tails", H::NAME);
    if H::COMPLETES {
        assert!(copied <= tails, "{copied} of {tails}");
    } else {
        assert_eq!(copied, 0, "of {tails}");
    }
    b.expect_all_ended();
}
