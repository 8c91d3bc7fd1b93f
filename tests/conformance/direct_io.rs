//! Linux: direct I/O, work that the kernel hands back, and what is told of who does what.

use std::fs::File;
use std::time::Duration;

use windlass::{AlignedBuf, Buf, Done, ErrorKind, Op, OpenOptions, Watcher};

use crate::common::files::*;
use crate::common::*;

const DIRECT: OpenOptions = OpenOptions::new().read(true).write(true).create(true).direct(true);

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

/// A loop that spins finds what kernel and threads have done.
pub fn a_loop_that_spins_finds_what_has_ended<H: Harness>() {
    let directory = Directory::new();
    let mut b = H::bench_with(Watcher::builder().busy_poll(Duration::from_millis(1)));
    let file = b.open_file(directory.at("a"), DIRECT);
    for i in 0..100 {
        b.write_at(file, AlignedBuf::from_slice(&[i as u8; 4096], 4096), i * 4096);
        let buf = AlignedBuf::with_capacity(4096, 4096);
        let data = expect_read(b.run(Op::read_at(file, buf, i * 4096)));
        assert!(data.iter().all(|&byte| byte == i as u8));
        assert_eq!(expect_returned::<u64>(b.run(Op::run(move || i))), i);
        expect_finished(b.run(Op::datasync(file)));
    }
    b.expect_all_ended();
}

/// `EIO`, which only a broken device gives: or the memory of a process, where there is none.
pub fn an_error_of_the_device_comes_with_what_was_read<H: Harness>() {
    let mut b = H::bench();
    let memory = b.open_file("/proc/self/mem", OpenOptions::new().read(true));
    let c = b.run(Op::read_at(memory, room(100), 0));
    assert_eq!((c.bytes(), expect_errno(c, &[libc::EIO]).len()), (0, 0));
    b.expect_all_ended();
}

/// A sync that the kernel's own way does not know is a thread's; what that says is the answer.
pub fn a_file_without_a_sync_says_so<H: Harness>() {
    let mut b = H::bench();
    let file = b.open_file("/proc/self/mem", OpenOptions::new().read(true));
    for op in [Op::sync(file), Op::datasync(file)] {
        let c = b.run(op);
        expect_errno(c, &[libc::EINVAL]);
    }
    let rows = b.watcher.explain().rows;
    let jobs = rows.iter().find(|row| row.operation == "files, tasks, jobs").expect("a row");
    assert_eq!(jobs.count, 3, "the opening and two syncs");
    b.expect_all_ended();
}

/// A read larger than a source's share of a turn does not keep the loop, however cached it is.
pub fn a_large_cached_read_is_a_threads<H: Harness>() {
    let directory = Directory::new();
    let mut b = H::bench_with(Watcher::builder().source_budget(64 << 10));
    let all = pattern(256 << 10, 3);
    std::fs::write(directory.at("a"), &all).unwrap();
    let file = b.open_file(directory.at("a"), OpenOptions::new().read(true));
    let at_once = |b: &Bench<H::Driver>| {
        let rows = b.watcher.explain().rows;
        rows.iter().find(|row| row.mechanism.contains("NOWAIT) at sub")).expect("a row").count
    };
    expect_same(&expect_read(b.run(Op::read_at(file, room(256 << 10), 0))), &all);
    assert_eq!(at_once(&b), 0);
    expect_same(&expect_read(b.run(Op::read_at(file, room(64 << 10), 0))), &all[..64 << 10]);
    assert!(at_once(&b) <= 1); // none where the page cache has lost it
    b.expect_all_ended();
}

/// The kernel would put them in a row anyway, with a thread waiting for each. Synchronous ones wait for
/// the disk beside each other.
pub fn writes_into_the_page_cache_go_one_by_one<H: Harness>() {
    let directory = Directory::new();
    let mut b = H::bench();
    let options = OpenOptions::new().append(true).create(true);
    let one_by_one = |b: &Bench<H::Driver>| {
        let rows = b.watcher.explain().rows;
        rows.iter().find(|row| row.mechanism == "one thread for each file").expect("a row").count
    };
    for (name, options, counted) in [("a", options, 300), ("b", options.dsync(true), 300)] {
        let file = b.open_file(directory.at(name), options);
        // Those at the end of the file show their order.
        let record = |i: u64| i.to_le_bytes().to_vec();
        let all: Vec<_> = (0..300).map(|i| b.submit(Op::write_at(file, record(i), 0))).collect();
        for ticket in all {
            expect_written(b.end(ticket));
        }
        assert_eq!(one_by_one(&b), counted, "{name}");
        let written = std::fs::read(directory.at(name)).unwrap();
        assert_eq!(written.len(), 300 * 8);
        if name == "a" {
            let read = |record: &[u8]| u64::from_le_bytes(record.try_into().unwrap());
            assert!(written.chunks(8).map(read).eq(0..300));
        }
    }
    b.expect_all_ended();
}
