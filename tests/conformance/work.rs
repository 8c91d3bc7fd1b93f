//! Linux: work on files that is held in the middle of its call, direct I/O, and what is left behind.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use windlass::{
    AlignedBuf, Buf, Completions, Done, Driver, ErrorKind, Op, OpenOptions, Reason, Source, Ticket,
    Watcher,
};

use crate::common::files::*;
use crate::common::*;

const DIRECT: OpenOptions = OpenOptions::new().read(true).write(true).create(true).direct(true);

/// A file, a write to it that is held in its call, and what holds it.
struct Held {
    file: Source,
    write: Ticket,
    hold: sticky::Hold,
}

fn begun<D: Driver>(b: &mut Bench<D>, path: &Path) -> Option<Held> {
    let (hold, bytes) = match sticky::page() {
        Ok(page) => page,
        Err(why) => {
            println!("SKIP work that is held: {why}");
            return None;
        }
    };
    let file = b.make_file(path);
    let write = b.submit(Op::write_at(file, Buf::from_owner(bytes), 0).token(5));
    hold.wait();
    Some(Held { file, write, hold })
}

/// The write is late, and real.
#[track_caller]
fn expect_late<D: Driver>(b: &mut Bench<D>, held: Held, path: &Path, late: bool) {
    drop(held.hold);
    let c = b.end(held.write);
    assert_eq!((c.token, c.late(), c.source), (5, late, held.file));
    assert_eq!(expect_written(c).len(), 4096);
    assert_eq!(std::fs::read(path).unwrap(), [0; 4096]);
}

pub fn begun_work_is_late_and_keeps_its_buffer<H: Harness>() {
    let directory = Directory::new();
    let path = directory.at("a");
    for ends in ["cancel", "cancel_all", "nothing"] {
        let mut b = H::bench();
        let Some(held) = begun(&mut b, &path) else { return };
        // Others go on, as far as the file system lets them.
        assert!(b.run(Op::stat(held.file).timeout(Duration::from_secs(99))).error_kind().is_none());
        match ends {
            "cancel" => assert!(b.watcher.cancel(held.write)),
            "cancel_all" => {
                assert_eq!(b.watcher.cancel_all(held.file), 1);
                assert_eq!(b.watcher.cancel_all(held.file), 0, "it was told");
            }
            _ => {}
        }
        b.look();
        assert!(b.is_open(held.write));
        assert_eq!(b.watcher.detach(held.file).unwrap_err(), Reason::Busy);
        let file = held.file;
        expect_late(&mut b, held, &path, ends.starts_with("cancel"));
        // The source is as usable as before.
        b.write_at(file, "after", 0);
        drop(b.watcher.detach(file).unwrap());
        std::fs::remove_file(&path).unwrap();
        b.expect_all_ended();
    }
}

pub fn a_deadline_of_begun_work_is_late<H: Harness>() {
    let directory = Directory::new();
    let path = directory.at("a");
    let mut b = H::bench();
    let Ok((hold, bytes)) = sticky::page() else {
        return println!("SKIP work that is held: no userfaultfd(2)");
    };
    let file = b.make_file(&path);
    let op = Op::write_at(file, Buf::from_owner(bytes), 0);
    let write = b.submit(op.token(5).timeout(Duration::from_millis(50)));
    hold.wait();
    b.pass(Duration::from_millis(60));
    assert!(b.is_open(write));
    expect_late(&mut b, Held { file, write, hold }, &path, true);
    b.expect_all_ended();
}

/// C7: the number of a descriptor is not given up while a thread uses it.
pub fn a_freed_file_closes_when_its_work_has_ended<H: Harness>() {
    let directory = Directory::new();
    let path = directory.at("a");
    let mut b = H::bench();
    let Some(held) = begun(&mut b, &path) else { return };
    assert!(b.watcher.free(held.file));
    assert!(!b.watcher.free(held.file), "it is stale now");
    assert_eq!(b.watcher.cancel_all(held.file), 0);
    assert_eq!(b.watcher.fd(held.file).err(), Some(Reason::Stale));
    assert_eq!(b.watcher.detach(held.file).unwrap_err(), Reason::Stale);
    for op in [
        Op::read_at(held.file, room(9), 0),
        Op::sync(held.file),
        Op::stat(held.file),
        Op::close(held.file),
    ] {
        assert_eq!(b.refuse(op).0, Reason::Stale);
    }
    b.look();
    assert!(b.is_open(held.write));
    assert_eq!(b.watcher.counters().sources, 0);
    assert!(is_held(&path), "closed under a thread");
    expect_late(&mut b, held, &path, true);
    assert!(!is_held(&path), "open without anybody");
    b.expect_all_ended();
}

pub fn a_close_waits_for_the_work_before_it<H: Harness>() {
    let directory = Directory::new();
    let path = directory.at("a");
    for ends in ["close", "deadline", "free"] {
        let mut b = H::bench();
        let Some(held) = begun(&mut b, &path) else { return };
        let close = Op::close(held.file);
        let close = match ends {
            "deadline" => b.submit(close.timeout(Duration::from_millis(1))),
            _ => b.submit(close),
        };
        assert_eq!(b.refuse(Op::sync(held.file)).0, Reason::Stale);
        b.pass(Duration::from_millis(3));
        assert!(b.is_open(held.write) && is_held(&path));
        let file = held.file;
        match ends {
            "close" => {
                assert!(b.is_open(close));
                expect_late(&mut b, held, &path, false);
                expect_closed(b.end(close));
            }
            "free" => {
                assert!(b.watcher.free(file));
                expect_unmoved(b.end(close), ErrorKind::Freed);
                expect_late(&mut b, held, &path, true);
            }
            _ => {
                expect_unmoved(b.end(close), ErrorKind::Deadline);
                expect_late(&mut b, held, &path, false);
                b.write_at(file, "as before", 0);
                expect_closed(b.run(Op::close(file)));
            }
        }
        assert!(!is_held(&path));
        assert!(!b.watcher.free(file));
        std::fs::remove_file(&path).unwrap();
        b.expect_all_ended();
    }
}

/// A file that is sent is gone when it is freed, also while a thread still works on it.
pub fn a_freed_file_with_work_is_sent_no_more<H: Harness>() {
    let directory = Directory::new();
    let path = directory.at("a");
    let mut b = H::bench();
    let (here, there) = b.pair();
    let Some(held) = begun(&mut b, &path) else { return };
    assert!(b.watcher.free(held.file));
    assert_eq!(b.refuse(Op::send_file(here, held.file, 0, 9)).0, Reason::Stale);
    expect_late(&mut b, held, &path, true);
    b.expect_alive(here, there);
}

/// Everything ends and is told, the work that has begun when it has ended.
pub fn a_watcher_that_closes_tells_of_all_work<H: Harness>() {
    let directory = Directory::new();
    let path = directory.at("a");
    let mut b = H::bench_with(Watcher::builder().threads(2));
    let Some(held) = begun(&mut b, &path) else { return };
    let (job, gate) = hold(&mut b);
    let queued = [
        b.submit(Op::run(|| 1)),
        b.submit(Op::make_dir(directory.at("made"), 0o700)),
        b.submit(Op::sync_range(held.file, 0, 0)),
        b.submit(Op::timer(Duration::from_secs(99))),
    ];
    b.watcher.close();
    b.watcher.close();
    for ticket in queued {
        let c = b.end(ticket);
        assert!(!c.late());
        expect_unmoved(c, ErrorKind::Closed);
    }
    // It waits for the others, for as long as it is told.
    let mut done = Completions::new();
    assert_eq!(b.watcher.try_wait(&mut done).unwrap(), 0);
    assert_eq!(b.watcher.wait_timeout(&mut done, Duration::from_millis(5)).unwrap(), 0);
    assert!(b.watcher.submit(Op::run(|| 1)).is_err_and(|e| e.reason == Reason::Closed));
    assert!(is_held(&path));
    drop(gate);
    let c = b.end(job);
    assert!(c.late());
    expect_held(c);
    expect_late(&mut b, held, &path, true);
    assert!(!is_held(&path) && !directory.at("made").exists());
    let error = b.watcher.wait(&mut done).unwrap_err();
    assert_eq!(Reason::of(&error), Some(Reason::Closed));
    let counters = b.watcher.counters();
    assert_eq!((counters.in_flight, counters.sources), (0, 0));
    assert_eq!(counters.submitted, counters.completed);
}

/// Work that ends while the watcher goes: descriptor, thread and buffer go, too.
pub fn a_watcher_that_goes_leaves_nothing_of_its_work<H: Harness>() {
    let name = "work::a_watcher_that_goes_leaves_nothing_of_its_work";
    child::in_child(&format!("{}::{name}", H::STAMP), || {
        let directory = Directory::new();
        drop(H::bench());
        let (before, alone) = (system::descriptors(), threads());
        for round in 0..60 {
            let mut b = H::bench_with(Watcher::builder().threads(2));
            let direct = b.open_file(directory.at("direct"), DIRECT);
            let files: Vec<_> = (0..4).map(|i| b.make_file(directory.at(format!("{i}")))).collect();
            let marker = std::sync::Arc::<[u8]>::from(vec![1; 1000]);
            let held = begun(&mut b, &directory.at("held"));
            for &file in &files {
                let list = vec![Buf::from(marker.clone()), Buf::from(vec![1; 1 << 16])];
                b.submit(Op::write_at(file, list, 0));
                b.submit(Op::read_at(file, room(1 << 16), 0));
                b.submit(Op::sync(file));
                b.submit(Op::stat(file));
                b.submit(Op::close(file));
            }
            for i in 0..20 {
                let buf = AlignedBuf::from_slice(&[7; 4096], 4096);
                b.submit(Op::write_at(direct, buf, i * 4096));
                b.submit(Op::read_at(direct, AlignedBuf::with_capacity(4096, 4096), i * 4096));
            }
            b.submit(Op::open(directory.at("0"), OpenOptions::new().read(true)));
            let kept = marker.clone();
            b.submit(Op::run(move || kept));
            if round % 3 == 0 {
                b.look();
            }
            if round % 2 == 0 {
                b.watcher.close();
            }
            // The thread is let go while the watcher waits for it.
            let letting = held.map(|held| {
                std::thread::spawn(move || {
                    if round % 4 < 2 {
                        std::thread::sleep(Duration::from_millis(2));
                    }
                    drop(held.hold);
                })
            });
            drop(b);
            if let Some(letting) = letting {
                letting.join().unwrap();
            }
            assert_eq!(std::sync::Arc::strong_count(&marker), 1, "round {round}: a buffer is left");
            assert_eq!(system::descriptors(), before, "round {round}: descriptors are left");
            let until = std::time::Instant::now() + BOUND;
            while threads() > alone && std::time::Instant::now() < until {
                // A thread that was joined may still be listed for a moment.
                std::thread::yield_now();
            }
            assert_eq!(threads(), alone, "round {round}: threads are left");
        }
    });
}

/// Work that does not end keeps what it uses; the watcher goes within its bound.
pub fn a_watcher_does_not_wait_for_ever<H: Harness>() {
    let directory = Directory::new();
    let path = directory.at("a");
    let mut b = H::bench();
    let Some(held) = begun(&mut b, &path) else { return };
    let start = std::time::Instant::now();
    drop(b);
    assert!(start.elapsed() < Duration::from_secs(20));
    assert!(is_held(&path), "closed under a thread");
    drop(held.hold);
    // The write goes on to its end.
    let until = std::time::Instant::now() + BOUND;
    while std::fs::metadata(&path).unwrap().len() < 4096 {
        assert!(std::time::Instant::now() < until);
        std::thread::yield_now();
    }
}

pub fn direct_reads_and_writes<H: Harness>() {
    for directory in directories() {
        let mut b = H::bench();
        let path = directory.at("a");
        let c = b.run(Op::open(&path, DIRECT));
        if let Some(kind) = c.error_kind() {
            println!("SKIP direct I/O on {}: {kind:?}", directory.path().display());
            continue;
        }
        let file = b.watcher.attach(expect_opened(c)).unwrap();
        let all = pattern(1 << 20, 1);
        let mut open = Vec::new();
        for (i, chunk) in all.chunks(16 << 10).enumerate() {
            let buf = AlignedBuf::from_slice(chunk, 4096);
            open.push(b.submit(Op::write_at(file, buf, i as u64 * (16 << 10))));
        }
        for ticket in open.drain(..) {
            let back = expect_written(b.end(ticket)).into_aligned().unwrap();
            assert_eq!(back.align(), 4096);
        }
        expect_finished(b.run(Op::datasync(file)));
        expect_same(&std::fs::read(&path).unwrap(), &all);
        // All of it at once, deeper than what is submitted eagerly.
        for i in 0..256u64 {
            let buf = AlignedBuf::with_capacity(4096, 4096);
            open.push(b.submit(Op::read_at(file, buf, i * 4096).token(i)));
        }
        for ticket in open.drain(..) {
            let c = b.end(ticket);
            let at = c.token as usize * 4096;
            let buf = expect_read(c).into_aligned().unwrap();
            expect_same(&buf, &all[at..at + 4096]);
        }
        // A tail that is no block: padded, cut, read back.
        let mut tail = AlignedBuf::from_slice(b"the tail", 4096);
        let size = tail.pad();
        b.write_at(file, tail, 1 << 20);
        expect_finished(b.run(Op::truncate(file, (1 << 20) + size as u64)));
        for offset in [1u64 << 20, (1 << 20) - 4096, (1 << 20) - 65536] {
            let buf = AlignedBuf::with_capacity(1 << 17, 4096);
            let data = expect_read(b.run(Op::read_at(file, buf, offset)));
            let bytes = [&all[offset as usize..], b"the tail"].concat();
            expect_same(&data, &bytes);
        }
        for offset in [(1 << 20) + 4096, 1 << 30] {
            let buf = AlignedBuf::with_capacity(4096, 4096);
            assert!(expect_read(b.run(Op::read_at(file, buf, offset))).is_eof());
        }
        // A whole number of blocks up to the end, and more room.
        expect_finished(b.run(Op::truncate(file, 1 << 20)));
        let buf = AlignedBuf::with_capacity(1 << 17, 4096);
        let data = expect_read(b.run(Op::read_at(file, buf, (1 << 20) - 8192)));
        expect_same(&data, &all[(1 << 20) - 8192..]);
        // Lists.
        let parts = || Buf::from(AlignedBuf::with_capacity(4096, 4096));
        let data = expect_read(b.run(Op::read_at(file, vec![parts(), parts()], 4096)));
        let got: Vec<u8> = data.into_parts().iter().flat_map(|part| part.to_vec()).collect();
        expect_same(&got, &all[4096..3 * 4096]);
        // What is not aligned is done, or is an error with the buffer.
        for (op, had) in [
            (Op::read_at(file, room(1000), 1), 1000),
            (Op::read_at(file, AlignedBuf::with_capacity(4096, 4096), 100), 4096),
            (Op::write_at(file, vec![1; 100], 0), 100),
            (Op::write_at(file, AlignedBuf::from_slice(&[1; 100], 4096), 0), 4096),
        ] {
            let c = b.run(op);
            if c.error_kind().is_some() {
                let buf = expect_errno(c, &[libc::EINVAL]);
                assert!(buf.room() >= had);
            }
        }
        let buf = AlignedBuf::with_capacity(4096, 4096);
        let data = expect_read(b.run(Op::read_at(file, buf, 8192)));
        expect_same(&data, &all[8192..8192 + 4096]);
        b.expect_all_ended();
    }
}

/// Cancels and deadlines meet direct work wherever it is.
pub fn direct_work_is_cancelled_or_done<H: Harness>() {
    let directory = Directory::new();
    let mut b = H::bench();
    let file = b.open_file(directory.at("a"), DIRECT);
    let all = pattern(1 << 20, 1);
    b.write_at(file, AlignedBuf::from_slice(&all, 4096), 0);
    let mut random = Random::new(11);
    for round in 0..20 {
        let mut open = Vec::new();
        for _ in 0..100 {
            let at = random.below(256) as u64 * 4096;
            let buf = AlignedBuf::with_capacity(4096, 4096);
            let op = Op::read_at(file, buf, at).token(at);
            let op = match random.below(3) {
                0 => op.timeout(Duration::from_nanos(random.below(200_000) as u64)),
                _ => op,
            };
            open.push(b.submit(op));
        }
        match round % 3 {
            0 => open.iter().step_by(2).for_each(|&ticket| _ = b.watcher.cancel(ticket)),
            1 => assert!(b.watcher.cancel_all(file) <= 100),
            _ => b.look(),
        }
        for ticket in open {
            let c = b.end(ticket);
            let (at, late) = (c.token as usize, c.late());
            match c.error_kind() {
                None => expect_same(&expect_read(c), &all[at..at + 4096]),
                Some(kind) => {
                    assert!(!late && matches!(kind, ErrorKind::Deadline | ErrorKind::Cancelled));
                    let buf = expect_unmoved(c, kind).into_aligned().unwrap();
                    assert_eq!(buf.capacity(), 4096);
                }
            }
        }
    }
    b.expect_all_ended();
}

/// The kernel hands work back while the pool is full: it waits for its turn, and ends like others.
pub fn work_that_comes_back_to_a_full_pool_waits<H: Harness>() {
    let Some(memory) = directories().into_iter().nth(1) else {
        return println!("SKIP work that comes back: no file system that makes it");
    };
    for ends in ["done", "cancel", "deadline", "free", "close"] {
        let mut b = H::bench_with(Watcher::builder().threads(2).jobs(2));
        let path = memory.at("a");
        std::fs::write(&path, pattern(4096, 1)).unwrap();
        let c = b.run(Op::open(&path, DIRECT));
        if let Some(kind) = c.error_kind() {
            return println!("SKIP work that comes back: {kind:?}");
        }
        let file = b.watcher.attach(expect_opened(c)).unwrap();
        let (held, gate) = hold(&mut b);
        let waits = b.submit(Op::run(|| 1));
        let op = Op::read_at(file, AlignedBuf::with_capacity(4096, 4096), 0);
        let op = if ends == "deadline" { op.timeout(Duration::from_millis(5)) } else { op };
        let Ok(read) = b.try_submit(op) else {
            // This kernel is not asked, and the bound holds at once.
            assert!(b.watcher.cancel(waits));
            drop(gate);
            expect_held(b.end(held));
            expect_unmoved(b.end(waits), ErrorKind::Cancelled);
            continue;
        };
        b.look();
        match ends {
            "cancel" => _ = b.watcher.cancel(read),
            "deadline" => b.pass(Duration::from_millis(10)),
            "free" => assert!(b.watcher.free(file)),
            "close" => b.watcher.close(),
            // Room for it, without any job that ends.
            _ => assert!(b.watcher.cancel(waits)),
        }
        let c = b.end(read);
        let kind = match ends {
            "cancel" => ErrorKind::Cancelled,
            "deadline" => ErrorKind::Deadline,
            "free" => ErrorKind::Freed,
            _ => ErrorKind::Closed,
        };
        // A ring may do it without handing it back.
        if ends == "done" || c.error_kind().is_none() {
            expect_same(&expect_read(c), &pattern(4096, 1));
        } else {
            assert_eq!(expect_unmoved(c, kind).into_aligned().unwrap().capacity(), 4096);
        }
        drop(gate);
        expect_held(b.end(held));
        let kind = b.end(waits).error_kind();
        assert_eq!(kind.is_some(), ends == "done" || ends == "close");
        assert!(ends == "close" || b.open() == 0);
    }
}

/// `explain` tells who did what.
pub fn who_does_what_is_told<H: Harness>() {
    let directory = Directory::new();
    let mut b = H::bench();
    let path = directory.at("a");
    std::fs::write(&path, pattern(64 << 10, 1)).unwrap();
    let cached = b.watcher.attach(File::open(&path).unwrap()).unwrap();
    let direct = b.open_file(&path, DIRECT);
    let rows = |b: &Bench<H::Driver>| -> Vec<(String, u64)> {
        let rows = b.watcher.explain().rows;
        let name = |operation: &str, mechanism: &str| format!("{operation}: {mechanism}");
        rows.iter().map(|row| (name(row.operation, &row.mechanism), row.count)).collect()
    };
    let count = |rows: &[(String, u64)], what: &str| -> u64 {
        let found: Vec<_> = rows.iter().filter(|(name, _)| name.ends_with(what)).collect();
        assert_eq!(found.len(), 1, "{what} in {rows:?}");
        found[0].1
    };
    let before = rows(&b);
    // Warm, so that the page cache has it.
    for _ in 0..10 {
        expect_same(&b.read_at(cached, 4096, 0), &pattern(64 << 10, 1)[..4096]);
    }
    for i in 0..7 {
        let buf = AlignedBuf::with_capacity(4096, 4096);
        assert!(matches!(b.run(Op::read_at(direct, buf, i * 4096)).result, Ok(Done::Read(_))));
    }
    for _ in 0..3 {
        expect_returned::<()>(b.run(Op::run(|| ())));
        assert!(b.run(Op::stat(&path)).error_kind().is_none());
    }
    let after = rows(&b);
    let more = |what| count(&after, what) - count(&before, what);
    assert_eq!(more("read_at: preadv2(RWF_NOWAIT) at submission"), 10);
    let (kernel, back) = (more("sync: the kernel"), more("the kernel, then threads"));
    let jobs = more(" of 4 threads");
    assert_eq!(jobs, 6 + 7 - kernel + back, "{after:?}");
    let serves = matches!(H::STAMP, "epoll_aio" | "uring_files");
    assert_eq!(kernel, if serves { 7 } else { 0 }, "{after:?}");
    b.expect_all_ended();
}
