//! Linux AIO as a component, in bare poll(2) loops.
#![cfg(all(target_os = "linux", not(windlass_kqueue)))]
#![allow(missing_docs, unreachable_pub)] // a test binary has no users
#![allow(unsafe_code)] // fork needs libc

mod common;

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::system::wait_readable;
use common::{BOUND, Needs, child, skip, system};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use windlass::driver::{OpCode, Wait};
use windlass::fs::{AioFiles, AioOp, FileBackend};
use windlass::kernel::Os;
use windlass::proactor::Proactor;
use windlass::reactor::{Mode, Reactor, Readiness, Watch};
use windlass::{
    AlignedBuf, Buf, Complete, Completion, Completions, Done, DriverKind, ErrorKind, Limit, Op,
    Ready, Refusal, Refused, Source, Submit, Ticket, Watcher,
};

const BLOCK: usize = 4096;

/// A component, or a word why there is none.
fn files(depth: u32) -> Option<AioFiles> {
    match AioFiles::new(depth) {
        Ok(files) => Some(files),
        Err(error) => {
            skip(Needs::Aio, error);
            None
        }
    }
}

/// The bytes of a block.
fn pattern(block: u64) -> Vec<u8> {
    (0..BLOCK as u64).map(|i| (i ^ (i >> 8) ^ (block * 31)) as u8).collect()
}

/// A nameless file with so many blocks, open for direct reads.
fn direct(blocks: u64) -> Option<Arc<OwnedFd>> {
    let directory = std::env::current_exe().expect("a path").parent().expect("one").to_owned();
    let path = directory.join(format!("aio-files-{}-{}", std::process::id(), fastrand::u64(..)));
    let file = File::create(&path).expect("it can be written here");
    for block in 0..blocks {
        file.write_all_at(&pattern(block), block * BLOCK as u64).expect("room");
    }
    file.sync_all().expect("a disk");
    let open = File::options().read(true).custom_flags(libc::O_DIRECT).open(&path);
    std::fs::remove_file(&path).expect("it is ours");
    match open {
        Ok(file) => Some(Arc::new(file.into())),
        Err(error) => {
            skip(Needs::Direct, format_args!("no O_DIRECT in {directory:?}: {error}"));
            None
        }
    }
}

fn memory() -> AlignedBuf {
    AlignedBuf::with_capacity(BLOCK, BLOCK)
}

/// A read of a block, whose number is its token.
fn read(file: &Arc<OwnedFd>, block: u64) -> AioOp {
    AioOp::read_at(file.clone(), memory(), block * BLOCK as u64).token(block)
}

/// Whether poll(2) calls a descriptor readable now.
fn is_readable(fd: BorrowedFd<'_>) -> bool {
    wait_readable(fd, Some(Duration::ZERO))
}

/// Waits in poll(2) alone, and takes what has come.
fn turn(files: &mut AioFiles, done: &mut Completions) -> usize {
    assert!(wait_readable(files.as_fd(), Some(BOUND)), "the eventfd stays silent: {files:?}");
    let before = done.len();
    let count = files.complete(Wait::Now, done).expect("no fork");
    assert_eq!(done.len(), before + count);
    count
}

/// Everything that is in flight, by poll(2).
fn finish(files: &mut AioFiles) -> Vec<Completion> {
    let mut done = Completions::new();
    while !files.is_empty() {
        turn(files, &mut done);
    }
    done.into_iter().collect()
}

/// Waits until poll(2) would sleep: a completion may be taken before the eventfd tells of it.
fn expect_quiet(files: &mut AioFiles) {
    let mut done = Completions::new();
    common::until("the eventfd is quiet", || {
        assert_eq!(files.complete(Wait::Now, &mut done).expect("no fork"), 0);
        !is_readable(files.as_fd())
    });
}

fn os(completion: &Completion) -> Option<i32> {
    completion.result.as_ref().err().and_then(windlass::Error::raw_os_error)
}

/// Reactor, proactor, AIO backend and watcher speak the same two traits: what is asked of one is
/// asked of all.
#[test]
fn all_that_move_operations_submit_and_complete() {
    fn takes<T: Submit<Op = A> + Complete<Item = B>, A, B>() -> &'static str {
        std::any::type_name::<T>()
    }
    let names = [
        takes::<Reactor, Watch, Readiness>(),
        takes::<Proactor<Os>, Op, Completion>(),
        takes::<AioFiles, AioOp, Completion>(),
        takes::<Watcher, Op, Completion>(),
    ];
    assert_eq!(HashSet::from(names).len(), 4, "{names:?}");
}

#[test]
fn a_bare_poll_loop_reads_a_file() {
    const BLOCKS: u64 = 512;
    const DEPTH: u64 = 32;
    let (Some(mut files), Some(file)) = (files(DEPTH as u32), direct(BLOCKS)) else { return };
    let (pipe, writer) = io::pipe().expect("a pipe");
    let (mut next, mut told, mut wakes) = (0, false, 0);
    let (mut seen, mut tickets) = (HashSet::new(), HashSet::<Ticket>::new());
    while next < DEPTH {
        tickets.insert(files.submit(read(&file, next)).expect("room"));
        next += 1;
    }
    let mut done = Completions::new();
    while !files.is_empty() {
        let watch = |fd| PollFd::new(fd, PollFlags::POLLIN);
        let mut both = [watch(files.as_fd()), watch(pipe.as_fd())];
        let count = poll(&mut both[..if told { 1 } else { 2 }], PollTimeout::MAX).expect("ready");
        assert!(count > 0, "nothing comes");
        told |= both[1].any() == Some(true);
        wakes += u64::from(both[0].any() == Some(true));
        if both[0].any() == Some(true) {
            files.complete(Wait::Now, &mut done).expect("no fork");
            for completion in done.drain(..) {
                assert!(tickets.remove(&completion.ticket()), "an unknown ticket");
                assert_eq!((completion.code(), completion.source), (OpCode::ReadAt, Source::NONE));
                assert!(!completion.has_more() && !completion.is_late());
                let block = completion.token;
                assert!(seen.insert(block), "{block} came twice");
                let Ok(Done::Read(buf)) = completion.result else { panic!("{completion:?}") };
                assert!(buf[..] == pattern(block), "block {block}");
                if next < BLOCKS {
                    let offset = next * BLOCK as u64;
                    let again = AioOp::read_at(file.clone(), buf, offset).token(next);
                    tickets.insert(files.submit(again).expect("room"));
                    next += 1;
                }
                if seen.len() == 100 {
                    io::Write::write_all(&mut &writer, b"!").expect("room");
                }
            }
        }
    }
    assert!(tickets.is_empty() && seen.len() == BLOCKS as usize);
    assert!(told, "the other descriptor was starved");
    // One for each completion, and one more whose completion was taken before.
    assert!(wakes <= 2 * BLOCKS, "it spins: {wakes} wakes");
    expect_quiet(&mut files);
    assert_eq!(Arc::strong_count(&file), 1, "a request keeps its file");
}

#[test]
fn the_end_of_a_file_is_a_short_read() {
    let (Some(mut files), Some(file)) = (files(4), direct(1)) else { return };
    let room = AlignedBuf::with_capacity(2 * BLOCK, BLOCK);
    files.submit(AioOp::read_at(file.clone(), room, 0).token(1)).expect("room");
    files.submit(read(&file, 7).token(2)).expect("room");
    for completion in finish(&mut files) {
        let Ok(Done::Read(buf)) = completion.result else { panic!("{completion:?}") };
        assert_eq!(buf.len(), if completion.token == 1 { BLOCK } else { 0 });
    }
}

/// A refused request comes back with its buffer, and nothing is told of it later.
#[test]
fn refused_requests_come_back() {
    let (Some(mut files), Some(file)) = (files(3), direct(8)) else { return };
    assert_eq!((files.depth(), files.len()), (3, 0));
    let reason = |refused: Refused<AioOp>| (refused.reason, refused.value.into_buf().capacity());
    let mut refuse = |buf: Buf| {
        reason(files.submit(AioOp::read_at(file.clone(), buf, 0)).expect_err("it is refused"))
    };
    assert_eq!(refuse(Buf::default()), (Refusal::EmptyBuffer, 0));
    assert_eq!(refuse(Buf::from("no room")), (Refusal::EmptyBuffer, 0));
    let list = Buf::list([memory(), memory()]);
    assert_eq!(refuse(list), (Refusal::Unsupported, 2 * BLOCK));
    let most = i32::MAX as usize;
    assert_eq!(refuse(Vec::with_capacity(most + 1).into()), (Refusal::TooLong, most + 1));
    for block in 0..3 {
        files.submit(read(&file, block)).expect("room");
    }
    let full = Refusal::Full { limit: Limit::Depth, count: 3 };
    assert_eq!(reason(files.submit(read(&file, 3)).expect_err("full")), (full, BLOCK));
    assert_eq!(files.submit(AioOp::sync_all(file.clone())).expect_err("full").reason, full);
    assert!(full.to_string().contains("3 requests"), "{full}");
    // Full until they are delivered, not until they have ended.
    assert!(wait_readable(files.as_fd(), Some(BOUND)));
    assert_eq!(files.submit(read(&file, 3)).expect_err("full").reason, full);
    let blocks: HashSet<u64> = finish(&mut files).iter().map(|c| c.token).collect();
    assert_eq!(blocks, HashSet::from([0, 1, 2]));
    files.submit(read(&file, 3)).expect("there is room again");
    assert_eq!(finish(&mut files).len(), 1);
    assert_eq!(Arc::strong_count(&file), 1, "a refused request keeps its file");
}

/// What the kernel refuses is the completion of this request, with its buffer, and poll(2) hears of
/// it; the others go on.
#[test]
fn bad_requests_fail_alone() {
    let (Some(mut files), Some(file)) = (files(64), direct(4)) else { return };
    let temporary = common::files::directories().into_iter().next().expect("one");
    let write_only = File::create(temporary.at("write-only")).expect("room");
    let write_only = Arc::new(OwnedFd::from(write_only));
    let told = Arc::new(OwnedFd::from(File::open("/proc/self/stat").expect("there is one")));
    let directory = Arc::new(OwnedFd::from(File::open("/").expect("there is one")));
    let (pipe, _writer) = io::pipe().expect("a pipe");
    let pipe = Arc::new(OwnedFd::from(pipe));
    let bad = || {
        [
            (read(&write_only, 0), &[libc::EBADF][..]),
            (read(&directory, 0), &[libc::EOPNOTSUPP, libc::EISDIR, libc::EINVAL]),
            // A file system that does not know how to read without waiting.
            (read(&told, 0), &[libc::EOPNOTSUPP, libc::EAGAIN]),
            // Nothing is in it: a read would wait.
            (read(&pipe, 0), &[libc::EAGAIN, libc::EOPNOTSUPP]),
            (AioOp::read_at(file.clone(), memory(), 7), &[libc::EINVAL]),
            (AioOp::read_at(file.clone(), memory(), u64::MAX), &[libc::EINVAL, libc::EOVERFLOW]),
            (AioOp::sync_all(pipe.clone()), &[libc::EINVAL]),
            (AioOp::sync_data(pipe.clone()), &[libc::EINVAL]),
        ]
    };
    // One by one: the eventfd tells of each.
    for (op, errnos) in bad() {
        let (is_read, what) = (format!("{op:?}").contains("ReadAt"), format!("{op:?}"));
        files.submit(op.token(9)).expect("it is accepted");
        let mut done = finish(&mut files);
        assert_eq!(done.len(), 1, "{what}");
        let completion = done.remove(0);
        let errno = os(&completion).expect(&what);
        assert!(errnos.contains(&errno), "{what}: {errno}");
        assert_eq!(completion.token, 9);
        let buf = completion.result.expect_err("it failed").into_buf();
        assert_eq!(buf.capacity(), if is_read { BLOCK } else { 0 }, "{what}");
        expect_quiet(&mut files);
    }
    // Among good ones, some of them in one list with the bad.
    let (mut good, mut failed) = (0, 0);
    for (op, _) in bad() {
        for block in 0..3 {
            files.submit(read(&file, block)).expect("room");
            good += 1;
        }
        files.submit(op.token(100)).expect("room");
        failed += 1;
    }
    let done = finish(&mut files);
    assert_eq!(done.len(), good + failed);
    for completion in done {
        match completion.result {
            Ok(Done::Read(buf)) => assert!(buf[..] == pattern(completion.token)),
            Err(_) if completion.token == 100 => failed -= 1,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(failed, 0);
    expect_quiet(&mut files);
}

/// A file that is not open with `O_DIRECT`: what the page cache has comes, and nothing ever waits.
#[test]
fn a_cached_file_is_read_without_waiting() {
    let Some(mut files) = files(2) else { return };
    let cached = Arc::new(OwnedFd::from(File::open("Cargo.toml").expect("there is one")));
    std::fs::read("Cargo.toml").expect("it is readable");
    files.submit(AioOp::read_at(cached, vec![0; 9], 0)).expect("room");
    let completion = finish(&mut files).remove(0);
    match completion.result {
        Ok(Done::Read(buf)) => assert_eq!(&*buf, b"[package]"),
        _ => assert!(matches!(os(&completion), Some(libc::EAGAIN | libc::EOPNOTSUPP))),
    }
}

/// Syncs end, and keep their file open until then, though the program has closed its own.
#[test]
fn syncs_end_after_the_program_has_closed_the_file() {
    let Some(mut files) = files(16) else { return };
    let directory = common::files::directories().into_iter().next().expect("one");
    for token in 0..16 {
        let file = File::create(directory.at(token.to_string())).expect("room");
        file.write_all_at(b"to be synced", 0).expect("room");
        let file = OwnedFd::from(file);
        let op = if token % 2 == 0 { AioOp::sync_all(file) } else { AioOp::sync_data(file) };
        files.submit(op.token(token)).expect("room");
    }
    let done = finish(&mut files);
    assert_eq!(done.iter().map(|c| c.token).collect::<HashSet<_>>().len(), 16);
    for completion in done {
        let code = if completion.token % 2 == 0 { OpCode::SyncAll } else { OpCode::SyncData };
        assert_eq!(completion.code(), code);
        assert!(matches!(completion.result, Ok(Done::Finished)), "{completion:?}");
    }
}

/// What is held back can be cancelled; what the kernel has ends as it ends, and is late.
#[test]
fn a_cancel_takes_back_what_was_held_back() {
    let (Some(mut files), Some(file)) = (files(16), direct(16)) else { return };
    let submitted: Vec<Ticket> =
        (0..12).map(|block| files.submit(read(&file, block)).expect("room")).collect();
    // Nine are in the kernel (1 + 2 + 6), as none was taken; three are held back.
    assert!(format!("{files:?}").contains("held_back: 3"), "{files:?}");
    assert!(files.cancel(submitted[0]));
    assert!(files.cancel(submitted[9]) && files.cancel(submitted[9]));
    assert!(!files.cancel(Ticket::NONE));
    let done = finish(&mut files);
    assert_eq!(done.len(), 12, "each ends once");
    for completion in done {
        assert!(submitted.contains(&completion.ticket()));
        assert_eq!(completion.is_late(), completion.token == 0, "{completion:?}");
        match completion.result {
            Ok(Done::Read(buf)) => assert!(buf[..] == pattern(completion.token)),
            Err(error) => {
                assert_eq!((completion.token, error.kind()), (9, ErrorKind::Cancelled));
                assert_eq!(error.into_buf().capacity(), BLOCK);
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(submitted.into_iter().all(|ticket| !files.cancel(ticket)), "they are stale");
}

/// The proactor cancels through the same trait: what was held back ends cancelled, not late.
#[test]
fn a_watcher_cancels_what_was_held_back() {
    let (Some(probe), Some(file)) = (files(1), direct(16)) else { return };
    drop(probe);
    let builder = Watcher::builder().driver(DriverKind::Epoll).file_backend(FileBackend::Aio);
    let mut watcher = builder.build().expect("it is there");
    let file = Arc::into_inner(file).expect("the only one");
    let file = watcher.attach(file).expect("room");
    let mut tickets = Vec::new();
    for block in 0..12 {
        let op = Op::read_at(file, memory(), block * BLOCK as u64).token(block);
        tickets.push(watcher.submit(op).expect("room"));
    }
    watcher.cancel(tickets[11]);
    let (mut done, mut left, mut cancelled) = (Completions::new(), 12, 0);
    while left > 0 {
        left -= common::wait_for(&mut watcher, &mut done, "the reads");
        for completion in done.drain(..) {
            match completion.result {
                Ok(Done::Read(buf)) => assert!(buf[..] == pattern(completion.token)),
                Err(error) => {
                    assert_eq!((completion.token, error.kind()), (11, ErrorKind::Cancelled));
                    assert_eq!(error.into_buf().capacity(), BLOCK);
                    cancelled += 1;
                }
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(cancelled, 1);
}

/// The kernel has no memory for more requests (`EAGAIN` of io_submit(2)): what it has comes, the
/// rest fails, and poll(2) hears of all.
#[test]
fn a_kernel_without_memory_loses_nothing() {
    let run = || {
        let (Some(mut files), Some(file)) = (files(16), direct(16)) else { return };
        for block in 0..9 {
            files.submit(read(&file, block)).expect("room");
        }
        system::deny(&[libc::SYS_io_submit], libc::EAGAIN);
        for block in 9..12 {
            files.submit(read(&file, block)).expect("room");
        }
        let done = finish(&mut files);
        assert_eq!(done.len(), 12);
        for completion in done {
            if completion.token >= 9 {
                assert_eq!(os(&completion), Some(libc::EAGAIN), "{completion:?}");
            } else {
                let Ok(Done::Read(buf)) = completion.result else { panic!("{completion:?}") };
                assert!(buf[..] == pattern(completion.token));
            }
        }
        // Nothing else is in flight that would wake the loop.
        files.submit(read(&file, 0)).expect("room");
        assert_eq!(os(&finish(&mut files)[0]), Some(libc::EAGAIN));
    };
    // The filter ends with its thread.
    common::join(std::thread::spawn(run), "the reads");
}

#[test]
fn a_wait_lasts_as_long_as_it_says() {
    let (Some(mut files), Some(file)) = (files(4), direct(1)) else { return };
    let mut done = Completions::new();
    // Nothing is in flight: nothing could end a wait for ever.
    assert_eq!(files.complete(Wait::Forever, &mut done).expect("no fork"), 0);
    let until = Instant::now() + Duration::from_millis(30);
    assert_eq!(files.complete(Wait::Until(until), &mut done).expect("no fork"), 0);
    assert!(Instant::now() >= until, "it came early");
    for _ in 0..50 {
        files.submit(read(&file, 0)).expect("room");
        assert_eq!(files.complete(Wait::Forever, &mut done).expect("no fork"), 1);
        files.submit(read(&file, 0)).expect("room");
        let until = Instant::now() + BOUND;
        assert_eq!(files.complete(Wait::Until(until), &mut done).expect("no fork"), 1);
    }
    assert_eq!(done.len(), 100);
    expect_quiet(&mut files);
}

/// The drop waits for what the kernel has: then the buffers are free, the files closed.
#[test]
fn dropped_with_requests_in_flight() {
    child::in_child("dropped_with_requests_in_flight", || {
        let (Some(mut files), Some(file)) = (files(64), direct(64)) else { return };
        for block in 0..64 {
            files.submit(read(&file, block)).expect("room");
        }
        assert!(Arc::strong_count(&file) > 1, "nothing is in flight");
        let start = Instant::now();
        drop(files);
        println!("dropped within {:?}", start.elapsed());
        assert_eq!(Arc::strong_count(&file), 1, "a request keeps its file");
        assert_eq!(windlass::driver::leaked_buffers(), 0, "a disk that answers needs no leak");
    });
}

/// A forked child can drop its copy and nothing else; the parent goes on.
#[test]
fn a_forked_child_is_refused() {
    child::in_child("a_forked_child_is_refused", || {
        let (Some(mut files), Some(file)) = (files(64), direct(16)) else { return };
        let tickets: Vec<Ticket> =
            (0..16).map(|block| files.submit(read(&file, block)).expect("room")).collect();
        let op = read(&file, 0);
        // SAFETY: this process has one thread that allocates; the child exits right here.
        match unsafe { libc::fork() } {
            0 => {
                let mut done = Completions::new();
                let refused = files.submit(op).expect_err("it is the parent's").reason;
                let waited = files.complete(Wait::Now, &mut done).expect_err("likewise");
                let said = refused == Refusal::Forked
                    && Refusal::of(&waited) == Some(Refusal::Forked)
                    && !files.cancel(tickets[15]);
                drop(files);
                // SAFETY: no memory is passed.
                unsafe { libc::_exit(if said { 7 } else { 1 }) }
            }
            child => {
                let mut status = 0;
                // SAFETY: room for one status.
                assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
                assert_eq!(libc::WEXITSTATUS(status), 7);
            }
        }
        let done = finish(&mut files);
        assert_eq!(done.len(), 16);
        for completion in done {
            let Ok(Done::Read(buf)) = completion.result else { panic!("{completion:?}") };
            assert!(buf[..] == pattern(completion.token));
        }
    });
}

/// What a child does with its copy leaves the parent's eventfd as it is: it falls silent again.
#[test]
fn a_childs_cancel_is_not_told_to_the_parent() {
    child::in_child("a_childs_cancel_is_not_told_to_the_parent", || {
        let (Some(mut files), Some(file)) = (files(12), direct(16)) else { return };
        let tickets: Vec<Ticket> =
            (0..12).map(|block| files.submit(read(&file, block)).expect("room")).collect();
        assert!(files.cancel(tickets[9]), "it was held back");
        let op = read(&file, 0);
        // SAFETY: this process has one thread that allocates; the child exits right here.
        match unsafe { libc::fork() } {
            0 => {
                let mut said = files.submit(op).expect_err("full").reason == Refusal::Forked;
                for _ in 0..20 {
                    said &= !files.cancel(tickets[9]) && !files.cancel(tickets[10]);
                }
                // SAFETY: no memory is passed.
                unsafe { libc::_exit(if said { 7 } else { 1 }) }
            }
            child => {
                let mut status = 0;
                // SAFETY: room for one status.
                assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
                assert_eq!(libc::WEXITSTATUS(status), 7, "the child was not refused");
            }
        }
        assert_eq!(finish(&mut files).len(), 12);
        expect_quiet(&mut files);
    });
}

/// A read that fails or is cancelled has moved nothing, so its buffer comes back without bytes.
#[test]
fn a_failed_read_has_no_bytes() {
    let (Some(mut files), Some(file)) = (files(16), direct(16)) else { return };
    let expect_none = |completion: Completion| {
        let error = completion.result.expect_err("it failed");
        assert_eq!((error.bytes(), error.buf().len()), (0, 0), "{error:?}");
        assert_eq!(error.buf().capacity(), BLOCK);
    };
    let (pipe, _writer) = io::pipe().expect("a pipe");
    files.submit(AioOp::read_at(OwnedFd::from(pipe), vec![7; BLOCK], 0)).expect("room");
    expect_none(finish(&mut files).remove(0));
    for block in 0..9 {
        files.submit(read(&file, block)).expect("room");
    }
    let full = AlignedBuf::from_slice(&[7; BLOCK], BLOCK);
    let held_back = files.submit(AioOp::read_at(file, full, 0)).expect("room");
    assert!(files.cancel(held_back));
    let mut done = finish(&mut files);
    let at = done.iter().position(|c| c.ticket() == held_back).expect("it has ended");
    expect_none(done.remove(at));
}

#[test]
fn a_depth_has_a_range() {
    for depth in [0, (1 << 20) + 1, u32::MAX] {
        let error = AioFiles::new(depth).expect_err("it is out of range");
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert!(error.to_string().contains("from 1 to 1048576"), "{error}");
    }
    let Some(mut files) = files(1) else { return };
    let Some(file) = direct(1) else { return };
    files.submit(read(&file, 0)).expect("room for one");
    assert!(files.submit(read(&file, 0)).is_err());
    assert_eq!(finish(&mut files).len(), 1);
}

/// A depth that cannot be had is an error: no smaller one is taken in silence.
#[test]
fn what_is_denied_has_its_errno() {
    if files(32).is_none() {
        return;
    }
    for (call, errno) in [
        (libc::SYS_io_setup, libc::EAGAIN),
        (libc::SYS_io_setup, libc::ENOSYS),
        (libc::SYS_io_setup, libc::EPERM),
        (libc::SYS_io_submit, libc::EPERM),
        (libc::SYS_io_setup, libc::ENOMEM),
    ] {
        let denied = std::thread::spawn(move || {
            system::deny(&[call], errno);
            AioFiles::new(256).expect_err("it is denied")
        });
        let error = denied.join().expect("it returns");
        assert_eq!(Refusal::of(&error), Some(Refusal::Os(errno)), "{error}");
        let limit = error.to_string().contains("fs.aio-max-nr is ");
        assert_eq!(limit, errno == libc::EAGAIN, "{error}");
    }
}

/// Two components meet by a descriptor alone: a reactor watches the eventfd, for its level and for
/// its edges.
#[test]
fn a_reactor_watches_it() {
    for mode in [Mode::Level, Mode::Edge] {
        let (Some(mut files), Some(file)) = (files(8), direct(64)) else { return };
        let mut reactor = Reactor::new().expect("a reactor");
        let watch = Watch::dup(&files, Ready::READABLE).expect("a descriptor").mode(mode);
        reactor.submit(watch).expect("it can be waited for");
        let (mut ready, mut done, mut seen) = (Completions::new(), Completions::new(), 0);
        for block in 0..8 {
            files.submit(read(&file, block)).expect("room");
        }
        while seen < 64 {
            let until = Wait::Until(Instant::now() + BOUND);
            assert!(reactor.complete(until, &mut ready).expect("no fork") > 0, "nothing comes");
            ready.clear();
            files.complete(Wait::Now, &mut done).expect("no fork");
            for completion in done.drain(..) {
                let Ok(Done::Read(buf)) = completion.result else { panic!("{completion:?}") };
                assert!(buf[..] == pattern(completion.token));
                seen += 1;
                if completion.token + 8 < 64 {
                    files.submit(read(&file, completion.token + 8)).expect("room");
                }
            }
        }
        assert!(files.is_empty());
    }
}
