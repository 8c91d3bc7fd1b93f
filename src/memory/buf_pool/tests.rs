//! The pool: nbio's mempool tests, random programs, several threads, and what is not the pool's.

use std::thread;

use proptest::prelude::*;

use super::*;

const SEVERAL_THREADS: usize = 4;

fn check(pool: &BufPool) {
    let all = pool.counters();
    assert!(all.kept_bytes <= pool.keep(), "{all:?}");
    assert_eq!(all.taken - all.allocated, all.given - all.freed - all.kept, "{all:?}");
    let kept = pool.kept();
    assert_eq!(kept.vectors.kept_bytes() + kept.aligned.kept_bytes(), all.kept_bytes);
}

/// nbio's TestMemPool: every small size, sizes up to a gigabyte, and a buffer that grows.
#[test]
fn a_buffer_has_the_size_that_was_asked_for() {
    let (small, large) = if cfg!(miri) { (300, 1 << 20) } else { (1 << 20, 1 << 30) };
    let pool = BufPool::new(1 << 30, 1 << 30);
    for len in 0..small {
        let buf = pool.take(len);
        assert!(buf.is_empty() && buf.capacity() >= len, "{len}: {}", buf.capacity());
        pool.give(buf);
    }
    // Of each class one buffer was allocated, and then taken again.
    let classes = small.next_power_of_two().ilog2() - 4;
    assert_eq!(pool.counters().allocated, u64::from(classes));
    for len in (1 << 20..large).step_by(16 << 20) {
        let buf = pool.take(len);
        assert!(buf.capacity() >= len, "{len}: {}", buf.capacity());
        pool.give(buf);
        check(&pool);
    }
    let mut buf = pool.take(0);
    for len in 1..small {
        pool.append(&mut buf, &[len as u8]);
        assert_eq!(buf.len(), len);
    }
    let bytes: Vec<u8> = (1..small).map(|len| len as u8).collect();
    assert!(buf == bytes, "moves keep the bytes");
    pool.give(buf);
    assert_eq!(pool.counters().outstanding(), 0);
    check(&pool);
}

/// nbio's TestAlignedMemPool, of vectors and of aligned buffers: sizes around each class, more than
/// the largest class, and a buffer of another origin.
#[test]
fn a_buffer_has_its_size_class() {
    const LARGEST: usize = 32 << 10;
    let pool = BufPool::new(LARGEST, 1 << 20);
    pool.give(pool.take(LARGEST + 1));
    pool.give(vec![0; 60_001]);
    pool.give(vec![0; 70_001]);
    assert_eq!((pool.counters().given, pool.counters().freed), (3, 1), "the last is too large");
    pool.trim(0);
    for len in (0..65 << 10).step_by(if cfg!(miri) { 997 } else { 1 }) {
        let buf = pool.take(len);
        let class = len.max(LEAST).next_power_of_two();
        let capacity = if len > LARGEST { len } else { class };
        assert_eq!(buf.capacity(), capacity, "{len}");
        // One beyond the largest class goes in with it.
        if len <= LARGEST {
            pool.give(buf);
        }
        let buf = pool.take_aligned(len);
        let class = len.max(BLOCK).next_power_of_two();
        let capacity = if len > LARGEST { len.next_multiple_of(BLOCK) } else { class };
        assert_eq!((buf.capacity(), buf.align(), buf.len()), (capacity, BLOCK, 0), "{len}");
        assert_eq!(buf.as_ptr().addr() % BLOCK, 0);
        if len <= LARGEST {
            pool.give(buf);
        }
    }
    for shift in LEAST.ilog2()..=LARGEST.ilog2() {
        let size = 1 << shift;
        assert_eq!(pool.take(size).capacity(), size);
        let next = if size == LARGEST { size + 1 } else { size * 2 };
        assert_eq!(pool.take(size + 1).capacity(), next);
    }
    let sizes: Vec<_> = pool.classes().iter().map(|class| (class.size, class.is_aligned)).collect();
    let vectors = (5..=15).map(|shift| (1 << shift, false));
    assert_eq!(sizes, vectors.chain((12..=15).map(|shift| (1 << shift, true))).collect::<Vec<_>>());
    check(&pool);
}

/// nbio's TestTraceDebugerPool: a buffer that moves as it grows, under the tracer.
#[test]
fn the_tracer_follows_a_buffer_that_grows() {
    let pool = BufPool::traced(1, 1);
    assert_eq!(pool.largest(), 32);
    let mut buf = pool.take(1);
    buf.push(0);
    for len in 1..1024 {
        buf.truncate(1);
        pool.append(&mut buf, &vec![1; len]);
        assert_eq!(buf.len(), len + 1);
        let report = pool.report().unwrap();
        let [place] = &report.places[..] else { panic!("{report}") };
        assert_eq!((place.buffers, place.bytes), (1, buf.capacity()), "{report}");
    }
    pool.give(buf);
    let report = pool.report().unwrap();
    assert!(report.places.is_empty() && report.foreign == 0, "{report}");
}

/// nbio's TestStackFuncs: a place is the same each time, and so is a buffer that was written.
#[test]
fn buffers_of_a_line_are_one_place() {
    let pool = BufPool::traced(1024, 1 << 20);
    let first = line!() + 1;
    let mut held: Vec<_> = (0..3).map(|_| pool.take(100)).collect();
    let start = held[0].as_ptr();
    held[0].extend_from_slice(&[2; 100]);
    assert_eq!(held[0].as_ptr(), start);
    let aligned = pool.take_aligned(100);
    let report = pool.report().unwrap();
    let places = report.places.iter().map(|place| {
        assert!(place.location.file().ends_with("tests.rs"), "{place}");
        (place.location.line() - first, place.buffers, place.dropped, place.bytes)
    });
    assert_eq!(places.collect::<Vec<_>>(), [(0, 3, 0, 384), (4, 1, 0, 4096)], "{report}");
    assert!(report.places[0].since <= report.places[1].since);
    let text = report.to_string();
    assert!(text.contains(": 3 buffers with 384 bytes, 0 of them dropped"), "{text}");
    held.into_iter().for_each(|buf| pool.give(buf));
    pool.give(aligned);
    assert!(pool.report().unwrap().places.is_empty());
    assert!(BufPool::default().report().is_none(), "not traced");
}

/// What nbio calls a leak: the buffer is dropped, or kept for ever.
#[test]
fn a_buffer_that_never_comes_back_is_told() {
    let pool = BufPool::traced(1024, 1 << 20);
    let line = line!() + 1;
    drop(pool.take(100));
    let [place] = &pool.report().unwrap().places[..] else { panic!("one place") };
    assert_eq!((place.location.line(), place.buffers, place.bytes), (line, 1, 128));
    assert_eq!(pool.counters().outstanding(), 1);
}

/// The allocator may use the memory of a dropped buffer for the next one.
#[test]
fn an_address_that_is_handed_out_again_was_dropped() {
    let mut tracer = Tracer::default();
    let location = Location::caller();
    tracer.taken(64, 32, location);
    tracer.taken(64, 128, location);
    tracer.taken(640, 32, location);
    let [place] = &tracer.report().places[..] else { panic!("one place") };
    assert_eq!((place.buffers, place.dropped, place.bytes), (3, 1, 192));
    tracer.given(64);
    tracer.given(640);
    tracer.given(640);
    let report = tracer.report();
    assert_eq!((report.places[0].buffers, report.places[0].dropped), (1, 1));
    assert_eq!(report.foreign, 1);
    let text = report.to_string();
    assert!(text.contains("1 buffers with 32 bytes, 1 of them dropped"), "{text}");
    assert!(text.contains("1 buffers came back that the pool had not handed out"), "{text}");
}

/// nbio's aligned pool hands out 96 bytes as 128, and panics.
#[test]
fn a_buffer_of_another_origin_does_no_harm() {
    let pool = BufPool::traced(1024, 4096 + 96 + 32);
    let mut given = 0;
    for capacity in [0, 1, 31, 32, 96, 4096] {
        pool.give(Vec::with_capacity(capacity));
        given += u64::from(capacity > 0);
    }
    assert_eq!((pool.counters().given, pool.counters().kept_bytes), (given, 32 + 96));
    assert_eq!(pool.report().unwrap().foreign, given);
    let buf = pool.take(65);
    assert_eq!(buf.capacity(), 128);
    assert_eq!(pool.take(64).capacity(), 96);

    let pool = BufPool::new(8192, 1 << 20);
    pool.give(AlignedBuf::with_capacity(4096, 512));
    assert_eq!(
        (pool.counters().given, pool.counters().freed),
        (1, 1),
        "its alignment is too small"
    );
    pool.give(AlignedBuf::with_capacity(8192, 8192));
    assert_eq!(pool.take_aligned(8192).align(), 8192, "it is aligned better than it must be");
    // What is no vector and no aligned buffer is dropped.
    let before = pool.counters();
    let owner = Arc::new([7; 64]);
    struct Owner(Arc<[u8; 64]>);
    impl AsRef<[u8]> for Owner {
        fn as_ref(&self) -> &[u8] {
            &*self.0
        }
    }
    pool.give(Buf::from_owner(Owner(Arc::clone(&owner))));
    assert_eq!(Arc::strong_count(&owner), 1);
    pool.give("static bytes");
    pool.give(Buf::from(vec![1; 64]).slice(3..));
    assert_eq!(pool.counters(), before);
    // A list gives its parts.
    pool.give(Buf::list([vec![1; 64], vec![2; 128]]));
    assert_eq!((pool.counters().given, pool.counters().kept_bytes), (before.given + 2, 192));
    check(&pool);
}

#[test]
fn no_bytes_of_an_earlier_user_are_visible() {
    let pool = BufPool::default();
    pool.give(vec![7; 64]);
    assert!(pool.take(64).is_empty());
    pool.give(AlignedBuf::from_slice(&[7; 4096], 4096));
    assert!(pool.take_aligned(4096).is_empty());
    assert_eq!(pool.counters().allocated, 0);
}

#[test]
fn what_is_kept_is_bounded() {
    let pool = BufPool::new(64 << 10, 10_000);
    let many: Vec<_> = (0..100).map(|_| (pool.take(1000), pool.take_aligned(1000))).collect();
    for (vec, aligned) in many {
        pool.give(vec);
        pool.give(aligned);
        check(&pool);
    }
    let counters = pool.counters();
    // One more aligned buffer would be too much, four more vectors were not.
    assert_eq!((counters.kept, counters.kept_bytes), (6, 4096 + 5 * 1024));
    assert_eq!((counters.taken, counters.given, counters.freed), (200, 200, 194));
    pool.trim(5000);
    let kept: Vec<_> = pool.classes().into_iter().filter(|class| class.counters.kept > 0).collect();
    let kept: Vec<_> = kept.iter().map(|class| (class.size, class.counters.kept)).collect();
    assert_eq!(kept, [(1024, 4)], "the largest are freed first");
    for size in [64, 4096, 512, 32] {
        pool.give(Vec::with_capacity(size));
    }
    let mut sizes = Vec::new();
    while pool.counters().kept > 0 {
        let before = pool.counters();
        pool.trim(before.kept_bytes - 1);
        sizes.push(before.kept_bytes - pool.counters().kept_bytes);
    }
    assert_eq!(sizes, [4096, 1024, 1024, 1024, 1024, 512, 64, 32]);
    pool.trim(0);
    assert_eq!((pool.counters().kept, pool.counters().freed), (0, 204));
    check(&pool);
    // Nothing is kept, and everything works.
    let pool = BufPool::new(0, 0);
    pool.give(pool.take(0));
    let counters = pool.counters();
    assert_eq!((counters.taken, counters.freed, counters.kept), (1, 1, 0));
}

#[test]
fn absurd_sizes_are_refused_as_a_vector_does() {
    let pool = BufPool::traced(usize::MAX, usize::MAX);
    assert_eq!(pool.largest(), 1 << 30);
    let take = |len| {
        let pool = pool.clone();
        thread::spawn(move || drop(pool.take(len))).join()
    };
    take(usize::MAX).unwrap_err();
    thread::spawn({
        let pool = pool.clone();
        move || drop(pool.take_aligned(usize::MAX))
    })
    .join()
    .unwrap_err();
    thread::spawn({
        let pool = pool.clone();
        move || pool.reserve(&mut vec![1], usize::MAX)
    })
    .join()
    .unwrap_err();
    // The pool works on, and holds nothing for those that panicked.
    assert!(pool.report().unwrap().places.is_empty());
    pool.give(pool.take(10));
    assert_eq!(pool.take(10).capacity(), 32);
}

#[test]
fn threads_share_a_pool() {
    let rounds = if cfg!(miri) { 50 } else { 5_000 };
    let pool = BufPool::traced(4096, 20_000);
    thread::scope(|scope| {
        for number in 0..SEVERAL_THREADS {
            let pool = pool.clone();
            scope.spawn(move || {
                let mut held: Vec<Vec<u8>> = Vec::new();
                let mut random = number * 7919 + 1;
                for _ in 0..rounds {
                    random = random.wrapping_mul(6_364_136_223_846_793_005usize).wrapping_add(1);
                    let len = (random >> 40) % 5000;
                    let mut buf = pool.take(len);
                    pool.append(&mut buf, &vec![number as u8; len]);
                    held.push(buf);
                    if held.len() > 8 {
                        let buf = held.swap_remove(random >> 20 & 7);
                        assert!(buf.iter().all(|&byte| byte == number as u8), "its bytes alone");
                        pool.give(buf);
                    }
                }
                held.into_iter().for_each(|buf| pool.give(buf));
            });
        }
    });
    let counters = pool.counters();
    assert_eq!(counters.outstanding(), 0, "{counters:?}");
    assert!(counters.taken > counters.allocated, "none was used again: {counters:?}");
    let report = pool.report().unwrap();
    assert!(report.places.is_empty() && report.foreign == 0, "{report}");
    check(&pool);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]

    /// Random programs keep the bound, the counts and the bytes, and the tracer knows what is out.
    #[test]
    fn random_programs_keep_the_bound(
        largest in 0usize..20_000,
        keep in 0usize..40_000,
        steps in prop::collection::vec((0u8..7, 0usize..12_000, any::<u8>()), 0..60),
    ) {
        let pool = BufPool::traced(largest, keep);
        let mut held: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        let mut aligned = Vec::new();
        let mut foreign = 0;
        for (what, size, value) in steps {
            let index = size % held.len().max(1);
            match what {
                0 | 1 => {
                    let buf = pool.take(size);
                    prop_assert!(buf.capacity() >= size && buf.is_empty());
                    held.push((buf, Vec::new()));
                }
                2 if !held.is_empty() => {
                    let (buf, model) = &mut held[index];
                    pool.append(buf, &vec![value; size]);
                    model.resize(model.len() + size, value);
                    prop_assert_eq!(&*buf, &*model);
                }
                3 if !held.is_empty() => {
                    let (buf, model) = held.swap_remove(index);
                    prop_assert_eq!(&buf, &model);
                    pool.give(buf);
                }
                4 => aligned.push(pool.take_aligned(size)),
                5 => aligned.pop().into_iter().for_each(|buf| pool.give(buf)),
                6 if value % 2 == 0 => pool.trim(size),
                6 => {
                    foreign += u64::from(size > 0);
                    pool.give(Vec::with_capacity(size));
                }
                _ => {}
            }
            check(&pool);
            let report = pool.report().unwrap();
            let out: u64 = report.places.iter().map(|place| place.buffers).sum();
            prop_assert_eq!(out as usize, held.len() + aligned.len(), "{}", report);
            prop_assert_eq!(report.foreign, foreign);
        }
    }
}
