//! Files: bytes, names, the cache, crashes, and faults; on both kinds of kernels.

use super::*;
use crate::file::OpenOptions;
use crate::{Buf, Priority};

/// The faults of work on files.
pub(super) const FAULTS: [&str; 7] = [
    "cache_miss",
    "handed_back",
    "short_file_read",
    "short_file_write",
    "file_error",
    "sync_error",
    "disk_full",
];

const EIO: Option<ErrorKind> = Some(ErrorKind::Os(libc::EIO));
const ENOSPC: Option<ErrorKind> = Some(ErrorKind::Os(libc::ENOSPC));

fn sim(completing: bool, faults: Faults) -> Sim {
    let sim = Sim::with_faults(1, faults);
    sim.set_completing(completing);
    sim
}

/// Runs one operation to its end.
pub(super) fn run(watcher: &mut Simulated, op: Op) -> Completion {
    watcher.submit(op).unwrap();
    wait_one(watcher)
}

pub(super) fn open(watcher: &mut Simulated, path: &str, options: OpenOptions) -> Source {
    match run(watcher, Op::open(path, options)).result {
        Ok(Done::Opened(file)) => watcher.attach(file).unwrap(),
        other => panic!("{other:?}"),
    }
}

pub(super) fn both() -> OpenOptions {
    OpenOptions::new().read(true).write(true)
}

fn read_at(watcher: &mut Simulated, file: Source, len: usize, offset: u64) -> Vec<u8> {
    match run(watcher, Op::read_at(file, Vec::with_capacity(len), offset)).result {
        Ok(Done::Read(data)) => data.to_vec(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn bytes_are_where_they_were_written() {
    for completing in [false, true] {
        let sim = sim(completing, Faults::none());
        let mut watcher = watcher(&sim);
        let file = open(&mut watcher, "a", both().create(true));
        assert!(run(&mut watcher, Op::write_at(file, pattern(10_000), 5_000)).result.is_ok());
        let mut wanted = vec![0; 5_000];
        wanted.extend(pattern(10_000));
        assert_eq!(sim.read_file("a").unwrap(), wanted);
        for (len, offset) in [(20_000, 0), (1, 5_001), (100, 14_950), (100, 15_000), (9, 1 << 40)] {
            let from = wanted.len().min(offset as usize);
            let end = wanted.len().min(from + len);
            assert!(read_at(&mut watcher, file, len, offset) == wanted[from..end]);
        }
        // A hole takes no memory.
        assert!(run(&mut watcher, Op::write_at(file, "far", 1 << 40)).result.is_ok());
        assert_eq!(read_at(&mut watcher, file, 9, (1 << 40) - 3), b"\0\0\0far");
        for (len, known) in [(5_001, 5_001), (70_000, 70_000)] {
            assert!(run(&mut watcher, Op::set_len(file, len)).result.is_ok());
            let Ok(Done::Metadata(stat)) = run(&mut watcher, Op::metadata(file)).result else {
                panic!("a file has attributes")
            };
            assert_eq!((stat.size, stat.kind()), (known, crate::sys::types::FileKind::File));
        }
        wanted.truncate(5_001);
        wanted.resize(70_000, 0);
        assert!(read_at(&mut watcher, file, 80_000, 0) == wanted);
        let log = open(&mut watcher, "log", OpenOptions::new().append(true).create(true));
        for text in ["one, ", "two"] {
            assert!(run(&mut watcher, Op::write_at(log, text, 0)).result.is_ok());
        }
        assert_eq!(sim.read_file("log").unwrap(), b"one, two");
        let refused = run(&mut watcher, Op::read_at(log, vec![0; 9], 0)).error_kind();
        assert_eq!(refused, Some(ErrorKind::Os(libc::EBADF)));
        assert!(run(&mut watcher, Op::close(file)).result.is_ok());
        assert_eq!(watcher.counters().sources, 1);
    }
}

#[test]
fn names_come_and_go() {
    let sim = sim(false, Faults::none());
    let mut watcher = watcher(&sim);
    let errno = |c: Completion| match c.error_kind() {
        Some(ErrorKind::Os(errno)) => errno,
        other => panic!("{other:?}"),
    };
    assert_eq!(errno(run(&mut watcher, Op::open("a", both()))), libc::ENOENT);
    sim.write_file("a", "first");
    assert_eq!(errno(run(&mut watcher, Op::open("a", both().create_new(true)))), libc::EEXIST);
    let first = open(&mut watcher, "a", both());
    sim.write_file("b", "second");
    assert!(run(&mut watcher, Op::rename("b", "a")).result.is_ok());
    assert_eq!(sim.read_file("a").unwrap(), b"second");
    // A descriptor that was opened before still reads the removed file.
    assert_eq!(read_at(&mut watcher, first, 9, 0), b"first");
    assert!(run(&mut watcher, Op::hard_link("a", "c")).result.is_ok());
    assert!(run(&mut watcher, Op::remove_file("a")).result.is_ok());
    assert_eq!((sim.read_file("a"), sim.read_file("c")), (None, Some(b"second".to_vec())));
    assert_eq!(errno(run(&mut watcher, Op::remove_file("a"))), libc::ENOENT);
    open(&mut watcher, "c", both().truncate(true));
    // A directory can be opened and synced.
    sim.write_file("data/log", "");
    assert_eq!(errno(run(&mut watcher, Op::open("data", both()))), libc::EISDIR);
    for path in ["data", "."] {
        let directory = open(&mut watcher, path, OpenOptions::new().read(true));
        assert!(run(&mut watcher, Op::sync_all(directory)).result.is_ok());
    }
    assert_eq!(sim.read_file("c").unwrap(), b"");
}

/// A read of bytes in the page cache completes at once. Other reads take time.
#[test]
fn hot_reads_are_done_at_submission_and_cold_ones_are_not() {
    for completing in [false, true] {
        let sim = sim(completing, Faults::none());
        sim.write_file("a", pattern(20_000));
        let mut watcher = watcher(&sim);
        let file = open(&mut watcher, "a", both());
        for (is_hot, path) in [(false, "cold"), (true, "hot"), (false, "cold again")] {
            let ticket = watcher.submit(Op::read_at(file, vec![0; 9_000], 100)).unwrap();
            assert_eq!(ticket.had_ended(), is_hot, "{path}");
            wait_one(&mut watcher);
            if is_hot {
                sim.drop_caches();
            }
        }
        let explain = watcher.explain();
        let count = |what: &str| {
            let row = explain.rows.iter().find(|row| row.operation == what);
            row.map_or(0, |row| row.count)
        };
        assert_eq!((count("read_at"), count("read_at, write_at, sync")), (1, 2), "{explain}");
    }
}

/// Ranges of files, in the page cache and not, over a socket.
#[test]
fn ranges_of_files_are_sent() {
    let len = if cfg!(miri) { 30_000 } else { 290_000 };
    for completing in [false, true] {
        for faults in [Faults::none(), Faults::transient(0.2)] {
            let sim = sim(completing, faults);
            sim.write_file("a", pattern(len + 10_000));
            let mut watcher = watcher(&sim);
            let (here, there) = attach_pair(&mut watcher, &sim);
            let file = open(&mut watcher, "a", both());
            let mut heard = Vec::new();
            watcher.submit(Op::write(here, "head")).unwrap();
            watcher.submit(Op::send_file(here, file, 1_000, len)).unwrap();
            watcher.submit(Op::write(here, "tail")).unwrap();
            watcher.submit(Op::read(there).multishot().token(1)).unwrap();
            while heard.len() < len + 8 {
                for c in wait(&mut watcher) {
                    match c.result.unwrap() {
                        Done::Read(data) => heard.extend_from_slice(&data),
                        Done::Sent(bytes) => assert_eq!(bytes as usize, len),
                        _ => {}
                    }
                }
            }
            assert!(heard[4..len + 4] == pattern(len + 10_000)[1_000..len + 1_000]);
            assert_eq!((&heard[..4], &heard[len + 4..]), (&b"head"[..], &b"tail"[..]));
        }
    }
}

/// Writes blocks and reads them again until all is right; counts the errors.
fn work(sim: &Sim) -> u64 {
    const BLOCKS: u64 = 20;
    let mut watcher = watcher(sim);
    let mut opened = Vec::new();
    for (path, options) in [("a", both().create(true)), ("b", both().create(true).direct(true))] {
        opened.push(open(&mut watcher, path, options));
    }
    let mut errors = 0;
    for file in opened {
        let block = |i: u64| {
            let bytes: Vec<u8> = pattern(8192).iter().map(|byte| byte ^ i as u8).collect();
            crate::memory::aligned::AlignedBuf::from_slice(&bytes, 4096)
        };
        let mut syncs = 0;
        loop {
            // What a sync that fails was for may be lost.
            let mut missing: BTreeSet<u64> = (0..BLOCKS).collect();
            while !missing.is_empty() {
                for &i in &missing {
                    let write = Op::write_at(file, block(i), i * 8192).token(i);
                    let write = if i % 3 == 0 { write.priority(Priority::High) } else { write };
                    watcher.submit(write).unwrap();
                }
                for _ in 0..missing.len() {
                    for c in wait(&mut watcher) {
                        match c.result {
                            Ok(Done::Written { bytes, .. }) => {
                                assert!(bytes == 8192 && missing.remove(&c.token))
                            }
                            Err(error) => {
                                let kind = Some(error.kind());
                                assert!(kind == EIO || kind == ENOSPC, "{error:?}");
                                errors += 1;
                            }
                            other => panic!("{other:?}"),
                        }
                    }
                    if watcher.counters().in_flight == 0 {
                        break;
                    }
                }
            }
            syncs += 1;
            match run(&mut watcher, Op::sync_data(file)).error_kind() {
                None if syncs >= 4 => break,
                None => {}
                kind => {
                    assert_eq!(kind, EIO);
                    errors += 1;
                }
            }
        }
        for i in 0..BLOCKS {
            if i % 2 == 0 {
                sim.drop_caches();
            }
            loop {
                let into = crate::memory::aligned::AlignedBuf::with_capacity(8192, 4096);
                match run(&mut watcher, Op::read_at(file, into, i * 8192)).result {
                    Ok(Done::Read(data)) => break assert!(*data == *block(i), "block {i}"),
                    Err(error) => assert_eq!(Some(error.kind()), EIO),
                    other => panic!("{other:?}"),
                }
                errors += 1;
            }
        }
    }
    errors
}

#[test]
#[cfg_attr(miri, ignore = "many runs: too slow")]
fn every_fault_of_files_happens() {
    for completing in [false, true] {
        for name in FAULTS {
            let mut faults = Faults::none();
            *match name {
                "cache_miss" => &mut faults.cache_miss,
                "handed_back" => &mut faults.handed_back,
                "short_file_read" => &mut faults.short_file_read,
                "short_file_write" => &mut faults.short_file_write,
                "file_error" => &mut faults.file_error,
                "sync_error" => &mut faults.sync_error,
                "disk_full" => &mut faults.disk_full,
                other => panic!("{other}"),
            } = 0.3;
            let sim = sim(completing, faults);
            let errors = work(&sim);
            let fails = matches!(name, "file_error" | "sync_error" | "disk_full");
            assert_eq!(errors > 0, fails, "{name}");
            for (other, count) in sim.injected().named() {
                assert_eq!(count > 0, other == name, "{count} {other} with {name}");
            }
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "many runs: too slow")]
fn the_same_seed_is_the_same_work_on_files() {
    let run = |seed| {
        let sim = Sim::with_faults(seed, Faults::all(0.1));
        sim.set_completing(seed % 2 == 0);
        (work(&sim), sim.trace_hash(), sim.now(), sim.injected())
    };
    for seed in [2, 3] {
        assert_eq!(run(seed), run(seed));
    }
    assert_ne!(run(2), run(4));
}

/// Signals interrupt every read of the page cache: then a thread or the kernel reads the file. The
/// call was made again for ever inside the submission.
#[test]
fn a_read_that_is_always_interrupted_goes_to_others() {
    for completing in [false, true] {
        let sim = sim(completing, Faults::none());
        sim.write_file("a", pattern(9_000));
        let mut watcher = watcher(&sim);
        let file = open(&mut watcher, "a", both());
        sim.set_faults(Faults { eintr: 1.0, ..Faults::none() });
        assert_eq!(read_at(&mut watcher, file, 9_000, 0), pattern(9_000));
        let list = Buf::list([vec![0; 4_000], vec![0; 5_000]]);
        let done = run(&mut watcher, Op::read_at(file, list, 0));
        assert!(done.result.is_ok() && done.bytes() == 9_000, "{done:?}");
        assert!((100..1000).contains(&sim.injected().eintr), "{:?}", sim.injected());
    }
}

/// Cancels reach requests that are not done, and come too late for others.
#[test]
fn cancelled_work_ends_once() {
    let rounds = if cfg!(miri) { 40 } else { 200 };
    for completing in [false, true] {
        let faults = Faults { late_cancel: 0.3, handed_back: 0.3, ..Faults::none() };
        let sim = sim(completing, faults);
        sim.write_file("a", pattern(90_000));
        let mut watcher = watcher(&sim);
        let file = open(&mut watcher, "a", both());
        let (mut cancelled, mut late) = (0, 0);
        for i in 0..rounds {
            sim.drop_caches();
            let ticket = watcher.submit(Op::read_at(file, vec![0; 9_000], 100)).unwrap();
            sim.advance(Duration::from_micros(i % 150));
            watcher.cancel(ticket);
            let c = wait_one(&mut watcher);
            match c.error_kind() {
                Some(kind) => assert_eq!((kind, c.bytes()), (ErrorKind::Cancelled, 0)),
                None => assert_eq!(c.bytes(), 9_000),
            }
            cancelled += u64::from(c.error_kind().is_some());
            late += u64::from(c.is_late());
        }
        assert!(cancelled > rounds / 4 && late > rounds / 20, "{cancelled} {late}");
    }
}

/// A socket sends a range of an aborted file, and no thread has begun to read it. The end of the
/// range closes the file, so the loop must not close it again. The loop panicked.
#[test]
fn an_aborted_file_closes_once_with_the_range_that_is_sent() {
    for completing in [false, true] {
        let sim = sim(completing, Faults::none());
        sim.write_file("a", pattern(9_000));
        let mut watcher = watcher(&sim);
        let (here, _) = attach_pair(&mut watcher, &sim);
        let file = open(&mut watcher, "a", both());
        sim.drop_caches();
        sim.set_job_time(HOUR);
        watcher.submit(Op::send_file(here, file, 0, 100).token(1)).unwrap();
        assert!(watcher.abort(file));
        watcher.close();
        let ends = wait(&mut watcher).into_iter().map(|c| (c.token, c.error_kind()));
        assert_eq!(ends.collect::<Vec<_>>(), [(1, Some(ErrorKind::Closed))]);
    }
}

/// A job that is taken back for a socket makes room for other work on files: the read that waited
/// becomes a job. It waited for ever.
#[test]
fn the_end_of_a_range_makes_room_for_other_work() {
    let sim = sim(true, Faults { handed_back: 1.0, ..Faults::none() });
    sim.write_file("a", pattern(9_000));
    sim.write_file("b", pattern(9_000));
    let config = Watcher::builder().max_jobs(1).config();
    let mut watcher = Watcher::simulated_with(&sim, config);
    let (here, _) = attach_pair(&mut watcher, &sim);
    let [a, b] = ["a", "b"].map(|path| open(&mut watcher, path, both()));
    sim.drop_caches();
    sim.set_job_time(HOUR);
    let range = watcher.submit(Op::send_file(here, a, 0, 100)).unwrap();
    watcher.submit(Op::read_at(b, vec![0; 9_000], 0).token(1)).unwrap();
    let mut done = Completions::new();
    assert_eq!(watcher.wait_timeout(&mut done, Duration::from_millis(1)).unwrap(), 0);
    assert!(watcher.cancel(range));
    assert_eq!(wait_one(&mut watcher).error_kind(), Some(ErrorKind::Cancelled));
    let c = wait_one(&mut watcher);
    assert_eq!((c.token, c.bytes()), (1, 9_000));
    assert_eq!(sim.injected().handed_back, 1);
}
