//! The answers of the kernel, and where they come: these tests are also the record of them.

mod denied;

use std::alloc::Layout;
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::ops::{Deref, DerefMut};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::*;
use crate::skip::{Needs, skip};
use crate::sys::Select;
use crate::sys::epoll::Epoll;
use crate::sys::file_request::Code;
use crate::sys::interest::{Mode, Ready};
use crate::sys::stat;

const BLOCK: usize = 4096;

/// Memory that direct I/O takes.
struct Block(NonNull<u8>, Layout);

impl Block {
    fn new(len: usize) -> Block {
        let layout = Layout::from_size_align(len, BLOCK).unwrap();
        // SAFETY: the size is not zero.
        Block(NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) }).unwrap(), layout)
    }

    fn filled(len: usize, seed: u64) -> Block {
        let mut block = Block::new(len);
        block.copy_from_slice(&pattern(len, seed));
        block
    }
}

impl Deref for Block {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: so many initialised bytes of its own.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr(), self.1.size()) }
    }
}

impl DerefMut for Block {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: so many initialised bytes of its own.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_ptr(), self.1.size()) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { std::alloc::dealloc(self.0.as_ptr(), self.1) };
    }
}

/// Bytes that say where they belong.
fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let words = (0..len.div_ceil(8) as u64).flat_map(|i| (seed << 32 | i).to_ne_bytes());
    words.take(len).collect()
}

/// A context, or a word why there is none. Both ways to take completions are tried by `both`.
fn open(entries: u32) -> Option<Aio> {
    match Aio::open(entries).expect("enough of everything") {
        Ok(aio) => Some(aio),
        Err(refused) => {
            skip(Needs::Aio, refused);
            None
        }
    }
}

/// Runs a test with the mapped ring, and with io_getevents(2).
fn both(entries: u32, test: impl Fn(Aio)) {
    for by_call in [false, true] {
        let Some(mut aio) = open(entries) else { return };
        assert!(aio.ring.is_some(), "the ring of this kernel is not known");
        if by_call {
            aio.ring = None;
        }
        test(aio);
    }
}

/// A nameless file in a directory.
fn file_in(directory: &Path, flags: i32) -> io::Result<File> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    let path = directory.join(format!("windlass-aio-{}-{n}", std::process::id()));
    let file =
        OpenOptions::new().read(true).write(true).create_new(true).custom_flags(flags).open(&path);
    let _ = std::fs::remove_file(path);
    file
}

/// Where this binary lies: build directories are seldom in memory.
fn home() -> std::path::PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().to_owned()
}

/// A file for direct I/O with so many blocks, each of its own pattern.
fn direct(blocks: usize) -> Option<File> {
    match file_in(&home(), libc::O_DIRECT) {
        Ok(file) => {
            for i in 0..blocks {
                let block = Block::filled(BLOCK, i as u64);
                file.write_all_at(&block, (i * BLOCK) as u64).unwrap();
            }
            file.sync_all().unwrap();
            Some(file)
        }
        Err(error) => {
            skip(Needs::Direct, format_args!("no O_DIRECT in {}: {error}", home().display()));
            None
        }
    }
}

fn request(code: Code, fd: &File, memory: &[u8], offset: usize, key: u64) -> EngineRequest {
    let start = memory.as_ptr().cast_mut();
    let offset = offset as u64;
    EngineRequest { key, code, fd: fd.as_raw_fd(), start, len: memory.len(), offset, rw_flags: 0 }
}

fn read(fd: &File, memory: &mut [u8], offset: usize, key: u64) -> EngineRequest {
    request(Code::Read, fd, memory, offset, key)
}

fn write(fd: &File, memory: &[u8], offset: usize, key: u64) -> EngineRequest {
    request(Code::Write, fd, memory, offset, key)
}

fn sync(code: Code, fd: &File, key: u64) -> EngineRequest {
    let start = std::ptr::null_mut();
    EngineRequest { key, code, fd: fd.as_raw_fd(), start, len: 0, offset: 0, rw_flags: 0 }
}

fn nowait(mut request: EngineRequest) -> EngineRequest {
    request.rw_flags = libc::RWF_NOWAIT as u32;
    request
}

impl Aio {
    /// Pushes what names memory that outlives the test.
    fn put(&mut self, request: EngineRequest) {
        // SAFETY: tests take every completion, or drop the context, before the memory.
        unsafe { self.push(request) };
    }

    /// Flushes, and takes until nothing is left.
    fn finish(&mut self) -> HashMap<u64, i32> {
        let mut taken = Vec::new();
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            self.flush();
            self.take(&mut taken);
            if self.queued() == 0 && self.in_kernel() == 0 {
                break;
            }
            assert!(Instant::now() < end, "nothing comes");
            std::thread::sleep(Duration::from_micros(50));
        }
        let count = taken.len();
        let results: HashMap<_, _> = taken.into_iter().map(|c| (c.key, c.result)).collect();
        assert_eq!(results.len(), count, "something ended twice");
        results
    }

    /// One request: its result, and whether io_submit(2) would not take it.
    fn one(&mut self, request: EngineRequest) -> (i32, bool) {
        let before = self.counters.failed;
        self.put(request);
        let results = self.finish();
        assert_eq!(results.len(), 1);
        (results[&request.key], self.counters.failed > before)
    }
}

#[test]
fn what_is_written_is_read() {
    both(64, |mut aio| {
        let Some(file) = direct(0) else { return };
        let blocks: Vec<_> = (0..16).map(|i| Block::filled(BLOCK, i)).collect();
        for (i, block) in blocks.iter().enumerate() {
            aio.put(write(&file, block, i * BLOCK, i as u64));
        }
        assert!(aio.finish().values().all(|&result| result == BLOCK as i32));
        aio.put(sync(Code::Fsync, &file, 1));
        aio.put(sync(Code::Fdsync, &file, 2));
        assert_eq!(aio.finish(), HashMap::from([(1, 0), (2, 0)]));
        let mut back: Vec<_> = (0..16).map(|_| Block::new(BLOCK)).collect();
        for (i, block) in back.iter_mut().enumerate() {
            aio.put(read(&file, block, i * BLOCK, i as u64));
        }
        assert!(aio.finish().values().all(|&result| result == BLOCK as i32));
        assert!(back.iter().zip(&blocks).all(|(a, b)| a[..] == b[..]));
        // The end of the file is a short read, then an empty one.
        let mut long = Block::new(2 * BLOCK);
        assert_eq!(aio.one(read(&file, &mut long, 15 * BLOCK, 1)), (BLOCK as i32, false));
        assert_eq!(aio.one(read(&file, &mut long, 16 * BLOCK, 2)), (0, false));
        let counters = aio.counters();
        assert_eq!(counters.submitted, 36);
        assert_eq!(counters.in_ring == 36, counters.getevents == 0);
    });
}

#[test]
fn vectors_are_gathered_and_scattered() {
    both(32, |mut aio| {
        let Some(file) = direct(0) else { return };
        let blocks: Vec<_> = (0..20).map(|i| Block::filled(BLOCK, i)).collect();
        let mut back: Vec<_> = (0..20).map(|_| Block::new(BLOCK)).collect();
        let vector = |start: *mut u8| libc::iovec { iov_base: start.cast(), iov_len: BLOCK };
        let request = |code, vectors: &[libc::iovec]| {
            let (start, fd) = (vectors.as_ptr().cast_mut().cast(), file.as_raw_fd());
            EngineRequest { key: 7, code, fd, start, len: vectors.len(), offset: 0, rw_flags: 0 }
        };
        let out: Vec<_> = blocks.iter().map(|b| vector(b.as_ptr().cast_mut())).collect();
        assert_eq!(aio.one(request(Code::WriteVectored, &out)), (20 * BLOCK as i32, false));
        let into: Vec<_> = back.iter_mut().map(|b| vector(b.as_mut_ptr())).collect();
        aio.put(request(Code::ReadVectored, &into));
        aio.flush();
        // The array is not looked at again.
        drop(into);
        assert_eq!(aio.finish(), HashMap::from([(7, 20 * BLOCK as i32)]));
        assert!(back.iter().zip(&blocks).all(|(a, b)| a[..] == b[..]));
        // An array out of reach, and one that is too long, are no requests.
        let mut nowhere = request(Code::ReadVectored, &out);
        nowhere.start = std::ptr::without_provenance_mut(8);
        assert_eq!(aio.one(nowhere), (-libc::EFAULT, true));
        let long = vec![vector(back[0].as_mut_ptr()); 1025];
        assert_eq!(aio.one(request(Code::ReadVectored, &long)), (-libc::EINVAL, true));
    });
}

/// Every kind of bad request fails alone, wherever it stands, and is told from where.
#[test]
fn a_bad_request_fails_alone() {
    both(64, |mut aio| {
        let Some(file) = direct(4) else { return };
        let (pipe, _writer) = io::pipe().unwrap();
        let mut memory: Vec<_> = (0..32).map(|_| Block::new(BLOCK)).collect();
        let start = memory[31].as_mut_ptr();
        let good = EngineRequest { start, ..read(&file, &mut [0; BLOCK], 0, 0) };
        // Wrong in itself: io_submit(2) says so.
        let early = [
            (EngineRequest { fd: -1, ..good }, libc::EBADF),
            (EngineRequest { fd: i32::MAX, ..good }, libc::EBADF),
            (EngineRequest { len: usize::MAX, ..good }, libc::EINVAL),
            (EngineRequest { offset: u64::MAX, ..good }, libc::EINVAL),
            (EngineRequest { rw_flags: 1 << 30, ..good }, libc::EOPNOTSUPP),
            (EngineRequest { code: Code::Fsync, ..good }, libc::EINVAL),
            (EngineRequest { fd: pipe.as_raw_fd(), ..sync(Code::Fsync, &file, 0) }, libc::EINVAL),
        ];
        // Wrong for the file system: a completion says so.
        let late = [
            (EngineRequest { start: start.wrapping_add(1), ..good }, libc::EINVAL),
            (EngineRequest { len: BLOCK - 1, ..good }, libc::EINVAL),
            (EngineRequest { offset: 1, ..good }, libc::EINVAL),
            (EngineRequest { start: std::ptr::null_mut(), ..good }, libc::EFAULT),
        ];
        for (request, errno) in early {
            assert_eq!(aio.one(request), (-errno, true), "{request:?}");
        }
        for (request, errno) in late {
            assert_eq!(aio.one(request), (-errno, false), "{request:?}");
        }
        // First, last, next to each other, and among others.
        let bad: Vec<_> = early.iter().chain(&late).collect();
        let mut expected = HashMap::new();
        for (i, &&(request, errno)) in bad.iter().enumerate() {
            aio.put(EngineRequest { key: 100 + i as u64, ..request });
            expected.insert(100 + i as u64, -errno);
            if i % 3 > 0 {
                aio.put(read(&file, &mut memory[i], (i % 4) * BLOCK, i as u64));
                expected.insert(i as u64, BLOCK as i32);
            }
        }
        let failed = aio.counters().failed;
        assert_eq!(aio.finish(), expected);
        assert_eq!(aio.counters().failed, failed + early.len() as u64);
        for i in (0..bad.len()).filter(|i| i % 3 > 0) {
            assert_eq!(memory[i][..], pattern(BLOCK, (i % 4) as u64));
        }
    });
}

/// What fails at submission makes no edge, but is there to be taken.
#[test]
fn what_failed_is_there_without_an_edge() {
    both(32, |mut aio| {
        let Ok(file) = file_in(&home(), 0) else { return };
        aio.put(EngineRequest { fd: -1, ..sync(Code::Fsync, &file, 5) });
        assert_eq!((aio.queued(), aio.has_completed()), (1, false));
        aio.flush();
        assert_eq!((aio.queued(), aio.in_kernel()), (0, 0));
        assert!(aio.has_completed() && !is_readable(aio.as_fd()));
        let mut taken = Vec::new();
        aio.take(&mut taken);
        assert_eq!(taken, [FileCompletion { key: 5, result: -libc::EBADF }]);
        assert!(!aio.has_completed());
    });
}

fn is_readable(fd: BorrowedFd<'_>) -> bool {
    let mut entry = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry on the stack.
    unsafe { libc::poll(&mut entry, 1, 0) > 0 }
}

/// A poll of a pipe without data: it stays in the kernel.
fn stuck(pipe: &impl AsRawFd, key: u64) -> EngineRequest {
    let start = std::ptr::without_provenance_mut(libc::POLLIN as usize);
    let fd = pipe.as_raw_fd();
    EngineRequest { key, code: Code::Poll, fd, start, len: 0, offset: 0, rw_flags: 0 }
}

/// More than the context holds: the rest stays queued while the kernel is full of what does not
/// end, nothing is lost, and what ends makes room.
#[test]
fn a_full_context_keeps_the_rest_queued() {
    both(32, |mut aio| {
        let Some(file) = direct(8) else { return };
        let (pipe, mut writer) = io::pipe().unwrap();
        const POLLS: u64 = 5000;
        for key in 0..POLLS {
            aio.put(stuck(&pipe, key));
        }
        assert!(!aio.has_room());
        aio.flush();
        let held = u64::from(aio.in_kernel());
        assert!(held >= u64::from(aio.entries()) && held < POLLS, "{held}");
        assert_eq!(aio.queued() as u64, POLLS - held);
        let submits = aio.counters().submits;
        aio.flush();
        assert_eq!(aio.counters().submits, submits + 1, "no busy loop");
        assert_eq!(u64::from(aio.in_kernel()), held);
        let mut memory = Block::new(BLOCK);
        aio.put(read(&file, &mut memory, 3 * BLOCK, POLLS));
        writer.write_all(b"!").unwrap();
        let results = aio.finish();
        assert_eq!(results.len() as u64, POLLS + 1);
        assert_eq!(results[&POLLS], BLOCK as i32);
        assert_eq!(memory[..], pattern(BLOCK, 3));
        assert!((0..POLLS).all(|key| results[&key] & i32::from(libc::POLLIN) != 0));
        assert_eq!(aio.counters().failed, 0);
    });
}

/// More at once than the context holds: completions are taken to make room for the rest, in one
/// flush, and the kernel's short counts are gone on from.
#[test]
fn more_requests_than_entries() {
    both(32, |mut aio| {
        let Some(file) = direct(8) else { return };
        const COUNT: usize = 3000;
        let mut memory: Vec<_> = (0..COUNT).map(|_| Block::new(BLOCK)).collect();
        for (i, block) in memory.iter_mut().enumerate() {
            aio.put(read(&file, block, i % 8 * BLOCK, i as u64));
        }
        let results = aio.finish();
        assert_eq!(results.len(), COUNT);
        assert!(results.values().all(|&result| result == BLOCK as i32));
        assert!(aio.counters().submits > 1);
        let right = |(i, block): (usize, &Block)| block[..] == pattern(BLOCK, i as u64 % 8);
        assert!(memory.iter().enumerate().all(right));
    });
}

/// Within its size a context never has to keep anything back.
#[test]
fn within_its_size_all_is_taken() {
    for entries in [32, 33, 100, 256, 1000] {
        let Some(mut aio) = open(entries) else { return };
        let (pipe, _writer) = io::pipe().unwrap();
        let mut key = 0;
        while aio.has_room() {
            aio.put(stuck(&pipe, key));
            key += 1;
        }
        assert_eq!(key, u64::from(aio.entries()));
        aio.flush();
        assert_eq!((aio.queued(), aio.in_kernel()), (0, aio.entries()));
        assert_eq!(aio.counters().submits, 1);
    }
}

/// The ring goes round many times, with bursts of every size.
#[test]
fn the_ring_goes_round() {
    both(32, |mut aio| {
        let Some(file) = direct(64) else { return };
        let mut memory: Vec<_> = (0..32).map(|_| Block::new(BLOCK)).collect();
        let (mut key, mut rounds) = (0u64, 0);
        while key < 5000 {
            rounds += 1;
            let first = key;
            for block in memory.iter_mut().take(1 + rounds % 32) {
                block.fill(0);
                aio.put(read(&file, block, key as usize % 64 * BLOCK, key));
                key += 1;
            }
            let results = aio.finish();
            assert_eq!(results.len() as u64, key - first);
            for (i, k) in (first..key).enumerate() {
                assert_eq!(results[&k], BLOCK as i32);
                assert_eq!(memory[i][..], pattern(BLOCK, k % 64), "request {k}");
            }
        }
        if let Some(ring) = aio.ring {
            assert!(key > u64::from(ring.count) * 5, "{} slots", ring.count);
            assert_eq!(aio.counters().getevents, 0);
        }
        let room = (aio.queued.capacity(), aio.addresses.capacity());
        assert_eq!(room, (32, 32), "the queues have not grown");
    });
}

/// Each burst is an edge, though the eventfd is not read.
#[test]
fn each_burst_is_an_edge() {
    both(64, |mut aio| {
        let Some(file) = direct(64) else { return };
        let mut selector = Epoll::new(8).unwrap();
        selector.add(aio.as_fd().as_raw_fd(), 9, Ready::READABLE, Mode::Edge).unwrap();
        assert_eq!(selector.select(Some(0)).unwrap(), 0);
        let mut memory: Vec<_> = (0..64).map(|_| Block::new(BLOCK)).collect();
        for round in 0..500 {
            let count = 1 + round % 64;
            for (i, block) in memory.iter_mut().enumerate().take(count) {
                aio.put(read(&file, block, i * BLOCK, i as u64));
            }
            aio.flush();
            let mut taken = Vec::new();
            while taken.len() < count {
                let events = selector.select(Some(10_000_000_000)).unwrap();
                assert_eq!(events, 1, "an edge is lost in round {round}");
                let (key, ready) = selector.event(0);
                assert!(key == 9 && ready.intersects(Ready::READABLE));
                aio.take(&mut taken);
            }
            // One may be left: of a completion that was taken before its signal.
            selector.select(Some(0)).unwrap();
        }
        assert!(is_readable(aio.as_fd()));
    });
}

#[test]
fn the_eventfd_is_closed_by_exec() {
    let Some(aio) = open(32) else { return };
    // SAFETY: no memory is passed.
    let flags = unsafe { libc::fcntl(aio.as_fd().as_raw_fd(), libc::F_GETFD) };
    assert_eq!(flags & libc::FD_CLOEXEC, libc::FD_CLOEXEC);
}

/// `RWF_NOWAIT` of direct I/O: what would have to wait for more than the device is `EAGAIN`, as a
/// completion.
#[test]
fn nowait_of_direct_io() {
    both(32, |mut aio| {
        let Some(file) = direct(4) else { return };
        let mut memory = Block::filled(BLOCK, 1);
        let (result, early) = aio.one(nowait(read(&file, &mut memory, BLOCK, 0)));
        if result == -libc::EOPNOTSUPP {
            assert!(early);
            return skip(Needs::Nowait, "RWF_NOWAIT of Linux AIO");
        }
        assert_eq!((result, early), (BLOCK as i32, false));
        assert_eq!(memory[..], pattern(BLOCK, 1));
        // Over what is there: it may be EAGAIN for reasons of the file system's.
        let (result, early) = aio.one(nowait(write(&file, &memory, BLOCK, 1)));
        assert!(!early && (result == BLOCK as i32 || result == -libc::EAGAIN), "{result}");
        // Behind the end: blocks must be found for it.
        let (result, early) = aio.one(nowait(write(&file, &memory, 64 * BLOCK, 2)));
        assert!(!early && (result == BLOCK as i32 || result == -libc::EAGAIN), "{result}");
        println!("extending, direct: {result}");
    });
}

/// `RWF_NOWAIT` of buffered I/O: what is in memory comes at once, what is not is `EAGAIN`, as a
/// completion; a file system without it is `EOPNOTSUPP`, of io_submit(2) or as a completion.
#[test]
fn nowait_of_buffered_io() {
    for directory in [home(), "/dev/shm".into()] {
        let Ok(file) = file_in(&directory, 0) else { continue };
        let Some(mut aio) = open(32) else { return };
        file.write_all_at(&pattern(64 * BLOCK, 3), 0).unwrap();
        file.sync_all().unwrap();
        let mut memory = Block::new(BLOCK);
        let known = [BLOCK as i32, -libc::EAGAIN, -libc::EOPNOTSUPP];
        let mut told = Vec::new();
        let mut one = |what: &str, request: EngineRequest| {
            let (result, early) = aio.one(nowait(request));
            assert!(known.contains(&result), "{what}: {result}");
            assert!(result != -libc::EAGAIN || !early, "{what}: EAGAIN of io_submit(2)");
            told.push(format!("{what} {result}{}", if early { " at submission" } else { "" }));
            result
        };
        let hot = one("hot read", read(&file, &mut memory, 0, 0));
        assert!(hot != BLOCK as i32 || memory[..] == pattern(BLOCK, 3));
        // SAFETY: no memory is passed.
        unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        one("cold read", read(&file, &mut memory, 60 * BLOCK, 1));
        std::thread::sleep(Duration::from_millis(20));
        // The first attempt starts reading ahead: a later one finds the bytes (not asserted).
        one("cold read again", read(&file, &mut memory, 60 * BLOCK, 1));
        one("write", write(&file, &memory, 0, 2));
        one("extending write", write(&file, &memory, 64 * BLOCK, 3));
        println!("{}: {}", directory.display(), told.join(", "));
    }
}

/// Whether requests are in the kernel when io_submit(2) returns is what makes them asynchronous.
/// Not asserted but for what is certain: buffered reads have ended by then.
#[test]
fn what_blocks_has_ended_at_submission() {
    let (Some(file), Some(_)) = (direct(64), open(32)) else { return };
    let Ok(buffered) = file_in(&home(), 0) else { return };
    buffered.write_all_at(&pattern(64 * BLOCK, 0), 0).unwrap();
    buffered.sync_all().unwrap();
    // SAFETY: no memory is passed.
    unsafe { libc::posix_fadvise(buffered.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    let at_return = |what: &str, request: EngineRequest| {
        let mut aio = open(32).expect("there was one");
        let begun = Instant::now();
        aio.put(request);
        aio.flush();
        let took = begun.elapsed();
        let mut taken = Vec::new();
        aio.take(&mut taken);
        println!("{what}: {} of 1 ended after {took:?} in io_submit(2)", taken.len());
        let ended = taken.len();
        aio.finish();
        ended
    };
    let mut memory = Block::new(BLOCK);
    let cold = at_return("buffered read", read(&buffered, &mut memory, 32 * BLOCK, 0));
    assert_eq!(cold, 1);
    at_return("buffered write", write(&buffered, &memory, 0, 0));
    at_return("direct read", read(&file, &mut memory, 0, 0));
    at_return("direct write in place", write(&file, &memory, 0, 0));
    at_return("direct write behind the end", write(&file, &memory, 64 * BLOCK, 0));
    at_return("direct write into a hole", write(&file, &memory, 128 * BLOCK, 0));
    at_return("fsync", sync(Code::Fsync, &file, 0));
}

/// The alignment that the file system asks for is enough, down to the byte.
#[test]
fn the_alignment_that_is_told_is_enough() {
    for directory in [home(), "/dev/shm".into()] {
        let Ok(file) = file_in(&directory, libc::O_DIRECT) else { continue };
        let align = stat::of_descriptor(file.as_raw_fd()).unwrap().direct;
        println!("{}: {align:?}", directory.display());
        let Some(align) = align else { continue };
        let (start, len) = (align.memory as usize, align.offset as usize);
        file.write_all_at(&Block::filled(4 * len.max(BLOCK), 5), 0).unwrap();
        let Some(mut aio) = open(32) else { return };
        let mut memory = Block::new(start + len);
        let part = &mut memory[start..];
        assert_eq!(aio.one(read(&file, part, len, 0)), (len as i32, false));
        assert_eq!(part[..], pattern(2 * len, 5)[len..]);
    }
}

/// A drop does not wait: the memory of requests in flight is leaked to the kernel.
#[test]
fn dropped_with_everything_in_flight() {
    const EACH: usize = 1 << 20;
    let Some(file) = direct(0) else { return };
    for i in 0..16 {
        file.write_all_at(&Block::filled(EACH, i), i * EACH as u64).unwrap();
    }
    for _ in 0..5 {
        let Some(mut aio) = open(32) else { return };
        let (pipe, writer) = io::pipe().unwrap();
        let mut memory: Vec<_> = (0..16).map(|_| Block::new(EACH)).collect();
        for (i, block) in memory.iter_mut().enumerate() {
            aio.put(read(&file, block, i * EACH, i as u64));
        }
        // The request ends with the pipe.
        aio.put(stuck(&pipe, 99));
        aio.flush();
        // Never submitted: nothing comes of it.
        aio.put(EngineRequest { fd: -1, ..stuck(&pipe, 100) });
        let context = aio.context;
        drop(aio);
        drop(writer);
        // The context exists: only this io_destroy(2) waits until all requests have ended.
        assert_eq!(destroy(context), 0);
        assert!(memory.iter().enumerate().all(|(i, block)| block[..] == pattern(EACH, i as u64)));
    }
}

/// A child may drop its copy: the parent's context and completions stay what they are.
#[test]
fn a_child_drops_its_copy() {
    both(32, |mut aio| {
        let Some(file) = direct(4) else { return };
        let (pipe, _writer) = io::pipe().unwrap();
        let mut memory: Vec<_> = (0..4).map(|_| Block::new(BLOCK)).collect();
        for (i, block) in memory.iter_mut().enumerate() {
            aio.put(read(&file, block, i * BLOCK, i as u64));
        }
        aio.put(stuck(&pipe, 99));
        aio.flush();
        // SAFETY: the child frees memory, makes a system call, and ends.
        match unsafe { libc::fork() } {
            0 => {
                drop(aio);
                // SAFETY: no memory is passed.
                unsafe { libc::_exit(7) }
            }
            child => {
                let mut status = 0;
                // SAFETY: room for one status.
                assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
                assert_eq!(libc::WEXITSTATUS(status), 7);
            }
        }
        let mut taken = Vec::new();
        while taken.len() < 4 {
            aio.take(&mut taken);
        }
        assert!(taken.iter().all(|c| c.key < 4 && c.result == BLOCK as i32));
        assert_eq!(aio.in_kernel(), 1);
        aio.put(read(&file, &mut memory[0], 3 * BLOCK, 5));
        aio.flush();
        while taken.len() < 5 {
            aio.take(&mut taken);
        }
        assert_eq!(memory[0][..], pattern(BLOCK, 3));
    });
}
