//! Linux: direct I/O, work that the kernel hands back, and which mechanism `explain` names.

use std::fs::File;
use std::time::Duration;

use windlass::fs::OpenOptions;
use windlass::{AlignedBuf, Buf, Done, ErrorKind, Op, Watcher};

use crate::common::files::*;
use crate::common::*;

const DIRECT: OpenOptions = OpenOptions::new().read(true).write(true).create(true).direct(true);

/// Skips direct I/O in this directory.
#[track_caller]
fn no_direct(directory: &Directory, kind: ErrorKind) {
    skip(Needs::Direct, format_args!("direct I/O in {}: {kind:?}", directory.path().display()));
}

pub fn direct_reads_and_writes<H: Harness>() {
    for directory in directories() {
        let mut b = H::bench();
        let path = directory.at("a");
        let c = b.run(Op::open(&path, DIRECT));
        if let Some(kind) = c.error_kind() {
            no_direct(&directory, kind);
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
        expect_finished(b.run(Op::sync_data(file)));
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
        expect_finished(b.run(Op::set_len(file, (1 << 20) + size as u64)));
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
        expect_finished(b.run(Op::set_len(file, 1 << 20)));
        let buf = AlignedBuf::with_capacity(1 << 17, 4096);
        let data = expect_read(b.run(Op::read_at(file, buf, (1 << 20) - 8192)));
        expect_same(&data, &all[(1 << 20) - 8192..]);
        // Lists.
        let part = || AlignedBuf::with_capacity(4096, 4096);
        let data = expect_read(b.run(Op::read_at(file, Buf::list([part(), part()]), 4096)));
        let got: Vec<u8> = data.into_parts().flat_map(Buf::into_vec).collect();
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
                assert!(buf.capacity() >= had);
            }
        }
        let buf = AlignedBuf::with_capacity(4096, 4096);
        let data = expect_read(b.run(Op::read_at(file, buf, 8192)));
        expect_same(&data, &all[8192..8192 + 4096]);
        b.expect_all_ended();
    }
}

/// A list of aligned parts with these bytes, whose sizes go round.
fn aligned_list(bytes: &[u8], sizes: &[usize]) -> Buf {
    let (mut rest, mut list) = (bytes, Vec::new());
    for &size in sizes.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (part, behind) = rest.split_at(size.min(rest.len()));
        list.push(AlignedBuf::from_slice(part, 4096));
        rest = behind;
    }
    Buf::list(list)
}

/// As many parts with room.
fn aligned_rooms(parts: usize, size: usize) -> Buf {
    Buf::list((0..parts).map(|_| AlignedBuf::with_capacity(size, 4096)))
}

/// The bytes of a list, of which all parts before the last with any are full.
#[track_caller]
fn gathered(data: Buf) -> Vec<u8> {
    let mut is_full = true;
    for part in data.parts() {
        assert!(is_full || part.is_empty(), "bytes behind a part that is not full");
        is_full = part.len() == part.capacity();
    }
    data.into_vec()
}

/// A list is read and written as its bytes would be, by whomever.
pub fn direct_lists_are_their_bytes<H: Harness>() {
    for directory in directories() {
        let mut b = H::bench();
        let path = directory.at("a");
        let c = b.run(Op::open(&path, DIRECT));
        if let Some(kind) = c.error_kind() {
            no_direct(&directory, kind);
            continue;
        }
        let file = b.watcher.attach(expect_opened(c)).unwrap();
        // The first ones make the file longer, the second write over what is there. The last has
        // more parts than one call takes.
        let mut all = vec![0; 5 << 20];
        let page: &[usize] = &[4096];
        for (round, (at, len, sizes)) in [
            (0, 256 << 10, &[4096, 12288, 65536][..]),
            (0, 256 << 10, &[16384, 4096]),
            (64 << 10, 128 << 10, &[8192]),
            (0, 5 << 20, page),
            (4096, 1100 * 4096, page),
        ]
        .into_iter()
        .enumerate()
        {
            let bytes = pattern(len, round as u64);
            all[at..at + len].copy_from_slice(&bytes);
            let list = aligned_list(&bytes, sizes);
            let (parts, start) = (list.parts().len(), list.parts()[0].as_ptr());
            let back = expect_written(b.run(Op::write_at(file, list, at as u64)));
            assert_eq!((back.parts().len(), back.parts()[0].as_ptr()), (parts, start));
            let size = std::fs::metadata(&path).unwrap().len() as usize;
            expect_same(&std::fs::read(&path).unwrap(), &all[..size]);
        }
        for (at, parts, size) in
            [(0, 3, 4096), (8192, 1, 65536), (0, 1280, 4096), (4096, 1024, 4096)]
        {
            let data = expect_read(b.run(Op::read_at(file, aligned_rooms(parts, size), at as u64)));
            expect_same(&gathered(data), &all[at..at + parts * size]);
        }
        // Ends in a part, between two, in a block, between two, and before the list.
        for len in [1 << 20, (1 << 20) - 4096, (1 << 20) - 5000, (1 << 20) - 12288, 4096, 1, 0] {
            expect_finished(b.run(Op::set_len(file, len)));
            for at in [(1u64 << 20) - 16384, 0, 1 << 19, 1 << 30] {
                let rooms = aligned_rooms(200, 8192);
                let data = expect_read(b.run(Op::read_at(file, rooms, at)));
                assert_eq!(data.parts().len(), 200);
                let read = gathered(data);
                expect_same(&read, all[..len as usize].get(at as usize..).unwrap_or_default());
            }
        }
        b.expect_all_ended();
    }
}

/// It is done, or is an error with the buffers; nothing is read or written elsewhere.
pub fn direct_lists_that_are_not_aligned<H: Harness>() {
    let directory = Directory::new();
    let mut b = H::bench();
    let path = directory.at("a");
    let all = pattern(64 << 10, 1);
    std::fs::write(&path, &all).unwrap();
    let file = b.open_file(&path, DIRECT);
    let part = |len: usize| Buf::from(AlignedBuf::from_slice(&all[..len], 4096));
    let lists = || {
        [
            (Buf::list([part(4096), part(1000)]), 0),
            (Buf::list([part(1000), part(4096)]), 0),
            (Buf::list([part(1000), part(3096)]), 0),
            (Buf::list([part(4096), part(4096)]), 100),
            (Buf::list([part(4096), Buf::from(all[..4097].to_vec())]), 0),
            // What has no bytes is no matter.
            (Buf::list([part(4096), Buf::from(room(0)), part(4096)]), 0),
        ]
    };
    for (list, at) in lists() {
        let (parts, len) = (list.parts().len(), list.len());
        let c = b.run(Op::write_at(file, list, at));
        let buf = match c.error_kind() {
            None => expect_written(c),
            Some(_) => expect_errno(c, &[libc::EINVAL]),
        };
        assert_eq!((buf.parts().len(), buf.len()), (parts, len));
        std::fs::write(&path, &all).unwrap();
    }
    for (list, at) in lists() {
        let (parts, room) = (list.parts().len(), list.capacity());
        let c = b.run(Op::read_at(file, list, at));
        match c.error_kind() {
            None => {
                let data = expect_read(c);
                assert_eq!((data.parts().len(), data.capacity()), (parts, room));
                expect_same(&gathered(data), &all[at as usize..at as usize + room]);
            }
            Some(_) => {
                let buf = expect_errno(c, &[libc::EINVAL]);
                assert_eq!((buf.parts().len(), buf.capacity()), (parts, room));
            }
        }
    }
    b.expect_all_ended();
}

/// An unaligned request goes straight to threads, and `explain` counts it.
pub fn unaligned_requests_go_to_threads<H: Harness>() {
    let directory = Directory::new();
    let mut b = H::bench();
    let path = directory.at("a");
    std::fs::write(&path, pattern(64 << 10, 1)).unwrap();
    let file = b.open_file(&path, DIRECT);
    let count = |b: &Bench<H::Driver>, mechanism: &str, why: &str| -> u64 {
        let rows = b.watcher.explain().rows;
        let of = rows.iter().filter(|row| row.mechanism == mechanism && row.reason.contains(why));
        of.map(|row| row.count).sum()
    };
    let Ok(Done::Metadata(stat)) = b.run(Op::metadata(file)).result else { panic!("no stat") };
    if stat.direct.is_none() {
        return skip(Needs::Luck, "what is not aligned: statx(2) does not say it here");
    }
    let aligned = || Op::read_at(file, AlignedBuf::with_capacity(4096, 4096), 0);
    assert!(b.run(aligned()).error_kind().is_none());
    let before = count(&b, "the kernel", "");
    let whole = || AlignedBuf::with_capacity(8192, 4096);
    let list = |len: usize| Buf::list([AlignedBuf::from_slice(&vec![1; len], 4096)]);
    let unaligned = [
        Op::read_at(file, whole(), 1),
        Op::read_at(file, AlignedBuf::with_capacity(4096, 4096), 100),
        Op::write_at(file, vec![1; 100], 0),
        Op::write_at(file, AlignedBuf::from_slice(&[1; 4097], 4096), 0),
        Op::write_at(file, list(4095), 0),
    ];
    let asked = unaligned.len() as u64;
    for op in unaligned {
        let c = b.run(op);
        assert!(matches!(c.error_kind(), None | Some(ErrorKind::Os(libc::EINVAL))), "{c:?}");
    }
    assert_eq!(count(&b, "the kernel", ""), before, "the kernel was given one");
    let has_kernel = matches!(H::STAMP, "epoll_uring" | "epoll_aio" | "uring_files");
    let told = count(&b, "threads", "is not aligned as the file requires");
    assert_eq!(told, if has_kernel { asked } else { 0 });
    assert_eq!(before, u64::from(has_kernel));
    b.expect_all_ended();
}

/// No list that is appended is written twice, whichever mechanism tries it first.
pub fn direct_lists_are_appended_once<H: Harness>() {
    for directory in directories() {
        let mut b = H::bench();
        let path = directory.at("a");
        let c = b.run(Op::open(&path, OpenOptions::new().append(true).create(true).direct(true)));
        if let Some(kind) = c.error_kind() {
            no_direct(&directory, kind);
            continue;
        }
        let file = b.watcher.attach(expect_opened(c)).unwrap();
        let mut open = Vec::new();
        for i in 0..40u8 {
            let list = aligned_list(&[i; 3 * 4096], &[4096, 8192]);
            open.push(b.submit(Op::write_at(file, list, 0)));
        }
        for ticket in open {
            expect_written(b.end(ticket));
        }
        let written = std::fs::read(&path).unwrap();
        let mut seen: Vec<u8> = written.chunks(3 * 4096).map(|record| record[0]).collect();
        assert!(
            written.chunks(3 * 4096).all(|record| record.iter().all(|&byte| byte == record[0]))
        );
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..40));
        b.expect_all_ended();
    }
}

/// Cancels and deadlines meet direct work in every state.
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
            let at = random.below(255) as u64 * 4096;
            let op = match random.below(2) {
                0 => Op::read_at(file, AlignedBuf::with_capacity(4096, 4096), at),
                _ => Op::read_at(file, aligned_rooms(2, 4096), at),
            };
            let op = op.token(at);
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
            let (at, late) = (c.token as usize, c.is_late());
            match c.error_kind() {
                None => {
                    let data = expect_read(c);
                    let room = data.capacity();
                    expect_same(&data.into_vec(), &all[at..at + room]);
                }
                Some(kind) => {
                    assert!(!late && matches!(kind, ErrorKind::Deadline | ErrorKind::Cancelled));
                    let buf = expect_unmoved(c, kind);
                    assert!(buf.is_empty() && matches!(buf.capacity(), 4096 | 8192));
                }
            }
        }
    }
    b.expect_all_ended();
}

/// The kernel hands work back while the pool is full: it waits for its turn, and ends like others.
pub fn work_that_comes_back_to_a_full_pool_waits<H: Harness>() {
    let Some(memory) = directories().into_iter().nth(1) else {
        return skip(Needs::Direct, "work that comes back: no file system in memory");
    };
    for ends in ["done", "cancel", "deadline", "abort", "close"] {
        let mut b = H::bench_with(Watcher::builder().threads(2).max_jobs(2));
        let path = memory.at("a");
        std::fs::write(&path, pattern(4096, 1)).unwrap();
        let c = b.run(Op::open(&path, DIRECT));
        if let Some(kind) = c.error_kind() {
            return no_direct(&memory, kind);
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
            "abort" => assert!(b.watcher.abort(file)),
            "close" => b.watcher.close(),
            // Room for it, without any job that ends.
            _ => assert!(b.watcher.cancel(waits)),
        }
        let c = b.end(read);
        let kind = match ends {
            "cancel" => ErrorKind::Cancelled,
            "deadline" => ErrorKind::Deadline,
            "abort" => ErrorKind::Aborted,
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

/// `explain` says which mechanism served which operation.
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
    // Lists are no different. (Direct writes empty the page cache.)
    for i in 0..5 {
        let list = Buf::list([room(100), room(200)]);
        let data = expect_read(b.run(Op::read_at(cached, list, i)));
        expect_same(&data.into_vec(), &pattern(64 << 10, 1)[i as usize..][..300]);
    }
    for i in 0..5 {
        let data = expect_read(b.run(Op::read_at(direct, aligned_rooms(3, 4096), i * 4096)));
        expect_same(&data.into_vec(), &pattern(64 << 10, 1)[i as usize * 4096..][..3 * 4096]);
        let list = aligned_list(&pattern(64 << 10, 1), &[4096, 8192]);
        expect_written(b.run(Op::write_at(direct, list, 0)));
    }
    for _ in 0..3 {
        expect_returned::<()>(b.run(Op::run(|| ())));
        assert!(b.run(Op::metadata(&path)).error_kind().is_none());
    }
    let after = rows(&b);
    let more = |what| count(&after, what) - count(&before, what);
    assert_eq!(more("read_at: preadv2(RWF_NOWAIT) at submission"), 15);
    let (kernel, back) = (more("sync: the kernel"), more("the kernel, then threads"));
    let jobs = more(" of 4 threads");
    assert_eq!(jobs, 6 + 17 - kernel + back, "{after:?}");
    // AIO is given no writes.
    let served = match H::STAMP {
        "epoll_uring" | "uring_files" => 17,
        "epoll_aio" => 12,
        _ => 0,
    };
    assert_eq!(kernel, served, "{after:?}");
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
        expect_finished(b.run(Op::sync_data(file)));
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
    for op in [Op::sync_all(file), Op::sync_data(file)] {
        let c = b.run(op);
        expect_errno(c, &[libc::EINVAL]);
    }
    let rows = b.watcher.explain().rows;
    let jobs = rows.iter().find(|row| row.operation == "files, jobs").expect("a row");
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

/// The kernel would put them in a row anyway, with a thread waiting for each. Synchronous ones wait
/// for the disk beside each other.
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
