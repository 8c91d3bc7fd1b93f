//! A kernel written outside the crate: pipes in memory, of sixteen bytes each way, and a file that
//! is read and written a piece at a time. The proactor runs on it as on the system's.
#![cfg(unix)]
#![allow(missing_docs, unreachable_pub)] // a test binary has no users
#![allow(unsafe_code)] // a kernel promises what it has written

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use windlass::driver::remote::Wake;
use windlass::driver::swap::Pool;
use windlass::driver::{Explain, Target};
use windlass::fs::{FileAnswer, FileFacts, FileRequest, FileWork};
use windlass::kernel::{Answer, AnswerKind, Calls, Connecting, Kernel, Received, Started, WAKE};
use windlass::net::{ListenOptions, VirtualDescriptor};
use windlass::proactor::Proactor;
use windlass::{
    Address, Buf, Builder, Completion, Completions, Done, ErrorKind, Handle, Op, Ready, Refusal,
    Source, SourceKind, Watcher,
};

/// The descriptors of a file, with and without `O_DIRECT`.
const DIRECT: RawFd = 2;
const BUFFERED: RawFd = 3;
/// Offsets in a direct file are multiples of this.
const BLOCK: u32 = 512;

/// The bytes of a pipe.
const ROOM: usize = 16;
/// The keys of events: an answer, and one of a source that is gone.
const ANSWER: u64 = 1;
const GONE: u64 = 2;
const NOT_THERE: i32 = libc::EOPNOTSUPP;

#[derive(Default)]
struct End {
    inbox: VecDeque<u8>,
    peer: usize,
    /// By this the loop knows it.
    key: Option<u64>,
    open: bool,
}

#[derive(Default)]
struct State {
    ends: Vec<End>,
    edges: VecDeque<u64>,
    woken: bool,
    panics: bool,
    /// The file, the most bytes per call, its maximum length, and the answers.
    file: Vec<u8>,
    piece: usize,
    longest: usize,
    answers: VecDeque<FileAnswer>,
    started: usize,
    /// What accepts answer, in turn; and how many there were.
    accept_errors: Vec<i32>,
    accepts: usize,
    /// The read that was told to stop.
    stopped: Option<u64>,
    /// Every `select` has an event, of a source that is gone. How many such events there were.
    floods: bool,
    flood: usize,
}

impl State {
    /// Moves one piece between memory and file; returns its length, or an errno.
    fn work(&mut self, work: FileWork<'_>, offset: usize) -> isize {
        self.started += 1;
        let (file, mut left) = (&mut self.file, self.piece);
        let mut at = offset.min(file.len());
        // SAFETY: the parts of a list are exclusive, writable memory until the answer.
        let part = |(start, len)| unsafe { std::slice::from_raw_parts_mut(start, len) };
        let mut read = |to: &mut [u8]| {
            let count = to.len().min(left).min(file.len() - at);
            to[..count].copy_from_slice(&file[at..at + count]);
            (at, left) = (at + count, left - count);
        };
        let bytes = match work {
            FileWork::Read(mut to) => {
                let count = to.len().min(left).min(file.len() - at);
                return to.write(&file[at..at + count]) as isize;
            }
            FileWork::ReadList(list) => {
                list.parts().map(part).for_each(&mut read);
                return (at - offset.min(file.len())) as isize;
            }
            FileWork::Write(bytes) => bytes.to_vec(),
            FileWork::WriteList(list) => {
                list.parts().map(part).flat_map(|part| part.to_vec()).collect()
            }
            FileWork::SyncAll | FileWork::SyncData => return 0,
        };
        let count = bytes.len().min(self.piece).min(self.longest.saturating_sub(offset));
        if count == 0 {
            return -(libc::ENOSPC as isize);
        }
        self.file.resize(self.file.len().max(offset + count), 0);
        self.file[offset..offset + count].copy_from_slice(&bytes[..count]);
        count as isize
    }

    /// Something new of an end.
    fn edge(&mut self, end: usize) {
        if let Some(key) = self.ends[end].key
            && !self.edges.contains(&key)
        {
            self.edges.push_back(key);
        }
    }

    fn close(&mut self, end: usize) {
        (self.ends[end].open, self.ends[end].key) = (false, None);
        self.edge(self.ends[end].peer);
    }
}

#[derive(Default)]
struct Memory {
    state: Mutex<State>,
    changed: Condvar,
}

impl Memory {
    fn enter(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics inside")
    }
}

impl VirtualDescriptor for Memory {
    fn close(&self, fd: RawFd) {
        if fd < DIRECT {
            self.enter().close(fd as usize);
        }
    }
}

impl Wake for Memory {
    fn wake(&self) {
        self.enter().woken = true;
        self.changed.notify_all();
    }
}

/// A kernel that completes reads by itself, if it is told so.
struct PipesOf<const COMPLETES: bool> {
    memory: Arc<Memory>,
    owner: Arc<dyn VirtualDescriptor>,
    events: Vec<u64>,
    now_ns: u64,
}

type Pipes = PipesOf<false>;

impl<const C: bool> PipesOf<C> {
    fn new() -> (PipesOf<C>, Handle, Handle) {
        let memory = Arc::new(Memory::default());
        let owner: Arc<dyn VirtualDescriptor> = memory.clone();
        let end = |peer| End { peer, open: true, ..End::default() };
        memory.enter().ends = vec![end(1), end(0)];
        let handle = |fd| Handle::from_virtual(fd, SourceKind::Stream, None, Arc::clone(&owner));
        let (a, b) = (handle(0), handle(1));
        (PipesOf { memory, owner, events: Vec::new(), now_ns: 1 }, a, b)
    }
}

// SAFETY: `recv` answers how many bytes `Target::write` has written.
unsafe impl<const C: bool> Kernel for PipesOf<C> {
    type Calls = PipesOf<C>;

    const COMPLETES: bool = C;
    const FILES: bool = true;

    unsafe fn start_file(&mut self, request: FileRequest<'_>, _facts: FileFacts) -> bool {
        let FileRequest { key, offset, work, .. } = request;
        let mut state = self.memory.enter();
        let moved = state.work(work, offset as usize);
        state.answers.push_back(FileAnswer { key, moved });
        true
    }
    fn file_answer(&mut self) -> Option<FileAnswer> {
        self.memory.enter().answers.pop_front()
    }
    fn has_file_answers(&self) -> bool {
        !self.memory.enter().answers.is_empty()
    }
    fn name(&self) -> &'static str {
        "pipes"
    }
    fn now_ns(&self) -> u64 {
        self.now_ns
    }
    fn select(&mut self, timeout_ns: Option<u64>) -> io::Result<usize> {
        let mut state = self.memory.enter();
        if timeout_ns.is_none() {
            let idle = |state: &mut State| {
                state.edges.is_empty()
                    && state.answers.is_empty()
                    && state.stopped.is_none()
                    && !state.woken
            };
            state = self.memory.changed.wait_while(state, idle).expect("no thread panics inside");
        }
        self.events.clear();
        if std::mem::take(&mut state.woken) {
            self.events.push(WAKE);
        }
        self.events.extend(state.edges.drain(..));
        if state.floods {
            state.flood += 1;
            assert!(state.flood < 100_000, "there is no end of it");
            self.events.push(GONE);
        } else if state.stopped.is_some() {
            self.events.push(ANSWER);
        }
        if self.events.is_empty() {
            self.now_ns += timeout_ns.unwrap_or(0);
        }
        Ok(self.events.len())
    }
    fn event(&self, i: usize) -> (u64, Ready) {
        (self.events[i], Ready::READABLE | Ready::WRITABLE)
    }
    unsafe fn start_recv(
        &mut self,
        _: RawFd,
        _: u64,
        _: Option<Target<'_>>,
        _: bool,
        _: &mut Pool,
    ) -> Started {
        Started::Yes
    }
    fn stop(&mut self, key: u64, _write: bool) {
        self.memory.enter().stopped = Some(key);
    }
    fn answer(&mut self, i: usize, _: &mut Pool) -> Option<Answer> {
        if self.events[i] != ANSWER {
            return None;
        }
        let key = self.memory.enter().stopped.take()?;
        let moved = -(libc::ECANCELED as isize);
        Some(Answer {
            key,
            write: false,
            kind: AnswerKind::Moved(moved),
            data: Buf::from(Vec::new()),
            more: false,
        })
    }
    fn register(&mut self, fd: RawFd, key: u64, _writes: bool) -> Result<(), i32> {
        let mut state = self.memory.enter();
        state.ends[fd as usize].key = Some(key);
        state.edge(fd as usize);
        Ok(())
    }
    fn deregister(&mut self, fd: RawFd, _key: u64) {
        self.memory.enter().ends[fd as usize].key = None;
    }
    fn calls(&self) -> &PipesOf<C> {
        self
    }

    fn calls_mut(&mut self) -> &mut PipesOf<C> {
        self
    }

    fn waker(&self) -> Arc<dyn Wake> {
        self.memory.clone()
    }
    fn close(&mut self, fd: RawFd) {
        VirtualDescriptor::close(&*self.memory, fd);
    }
    fn release(&mut self, fd: RawFd, kind: SourceKind) -> Handle {
        Handle::from_virtual(fd, kind, None, Arc::clone(&self.owner))
    }
    fn pollable(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    fn system_calls(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
    fn explain(&self, _: &mut Explain) {}
}

// SAFETY: as above.
unsafe impl<const C: bool> Calls for PipesOf<C> {
    fn file_facts(&mut self, fd: RawFd) -> FileFacts {
        let panics = std::mem::take(&mut self.memory.enter().panics);
        assert!(!panics, "as the test wants it");
        if fd == DIRECT { FileFacts::direct(1, BLOCK) } else { FileFacts::default() }
    }

    fn accepts(&self, handle: &Handle) -> bool {
        let panics = std::mem::take(&mut self.memory.enter().panics);
        assert!(!panics, "as the test wants it");
        handle.is_of(&self.owner)
    }

    fn prepare(
        &mut self,
        _fd: RawFd,
        kind: SourceKind,
        _shared: bool,
    ) -> Result<(SourceKind, bool), Refusal> {
        Ok((kind, false))
    }

    fn restore(&mut self, _fd: RawFd) {}

    fn recv(&mut self, fd: RawFd, _kind: SourceKind, mut to: Target<'_>) -> Received {
        let mut state = self.memory.enter();
        let peer = state.ends[fd as usize].peer;
        let inbox = &mut state.ends[fd as usize].inbox;
        if inbox.is_empty() {
            let open = state.ends[peer].open;
            return Received::plain(if open { -(libc::EAGAIN as isize) } else { 0 });
        }
        let count = inbox.len().min(to.len());
        let bytes: Vec<u8> = inbox.drain(..count).collect();
        to.write(&bytes);
        state.edge(peer);
        Received::plain(count as isize)
    }

    fn send(&mut self, fd: RawFd, _kind: SourceKind, bytes: &[u8]) -> isize {
        let mut state = self.memory.enter();
        let peer = state.ends[fd as usize].peer;
        if !state.ends[peer].open {
            return -(libc::EPIPE as isize);
        }
        let inbox = &mut state.ends[peer].inbox;
        let count = bytes.len().min(ROOM - inbox.len());
        if count == 0 {
            return -(libc::EAGAIN as isize);
        }
        inbox.extend(&bytes[..count]);
        state.edge(peer);
        count as isize
    }

    fn recv_vectored(&mut self, fd: RawFd, kind: SourceKind, to: &mut [Target<'_>]) -> Received {
        // As many as it says: the first place is enough.
        let first = to.first_mut().map(|target| target.skip(0));
        first.map_or(Received::plain(0), |target| self.recv(fd, kind, target))
    }

    fn send_vectored(&mut self, fd: RawFd, kind: SourceKind, parts: &[IoSlice<'_>]) -> isize {
        parts.first().map_or(0, |part| self.send(fd, kind, part))
    }

    fn recv_from(
        &mut self,
        _: RawFd,
        _: SourceKind,
        _: &mut [Target<'_>],
        _: &mut Address,
    ) -> Received {
        Received::plain(-(NOT_THERE as isize))
    }

    fn send_to(&mut self, _: RawFd, _: &[u8], _: &Address) -> isize {
        -(NOT_THERE as isize)
    }

    fn recv_descriptors(
        &mut self,
        _: RawFd,
        _: SourceKind,
        _: &mut [Target<'_>],
        _: &mut Vec<OwnedFd>,
    ) -> (Received, bool) {
        (Received::plain(-(NOT_THERE as isize)), false)
    }

    fn send_descriptors(&mut self, _: RawFd, _: &[u8], _: &[OwnedFd]) -> isize {
        -(NOT_THERE as isize)
    }

    fn accept(&mut self, _: RawFd, _: SourceKind) -> Result<Handle, i32> {
        let mut state = self.memory.enter();
        let at = state.accepts;
        state.accepts += 1;
        let errors = &state.accept_errors;
        Err(if errors.is_empty() { NOT_THERE } else { errors[at % errors.len()] })
    }

    fn shed_connection(&mut self, _: RawFd) {}

    fn connect(
        &mut self,
        _: &Address,
        _: Option<OwnedFd>,
    ) -> Result<(RawFd, SourceKind, Connecting), i32> {
        Err(NOT_THERE)
    }

    fn connect_result(&mut self, _: RawFd) -> i32 {
        NOT_THERE
    }

    fn shutdown(&mut self, _: RawFd) -> isize {
        -(NOT_THERE as isize)
    }

    fn poll(&mut self, _: RawFd, _: Ready) -> Result<Ready, i32> {
        Err(NOT_THERE)
    }

    fn listen(&mut self, _: &Address, _: ListenOptions) -> io::Result<Handle> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn local_address(&self, _: RawFd) -> io::Result<Address> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn peer_address(&self, _: RawFd) -> io::Result<Address> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn borrow(&self, _: RawFd) -> Option<BorrowedFd<'_>> {
        None
    }
}

fn watcher() -> (Watcher<Proactor<Pipes>>, Source, Source) {
    let (pipes, a, b) = Pipes::new();
    let config = Builder::new().config();
    let driver = Proactor::with_kernel(pipes, config, "the test's own".into());
    let mut watcher = Watcher::with_driver(driver);
    let (a, b) = (watcher.attach(a).unwrap(), watcher.attach(b).unwrap());
    (watcher, a, b)
}

fn next(watcher: &mut Watcher<Proactor<Pipes>>) -> Completion {
    let mut done = Completions::new();
    while done.is_empty() {
        watcher.wait(&mut done).unwrap();
    }
    assert_eq!(done.len(), 1, "one at a time: {done:?}");
    done.drain(..).next().unwrap()
}

#[test]
fn a_write_goes_out_piece_by_piece() {
    let (mut watcher, a, b) = watcher();
    let bytes: Vec<u8> = (0..100).collect();
    watcher.submit(Op::write(a, bytes.clone()).token(1)).unwrap();
    watcher.submit(Op::read_exact(b, vec![0; 100], 100).token(2)).unwrap();
    let mut done = Completions::new();
    while done.len() < 2 {
        watcher.wait(&mut done).unwrap();
    }
    for c in done.drain(..) {
        match (c.token, c.result) {
            (1, Ok(Done::Written { bytes, .. })) => assert_eq!(bytes, 100),
            (2, Ok(Done::Read(data))) => assert_eq!(*data, *bytes),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(watcher.explain().driver, "pipes");
    assert_eq!(watcher.explain().reason, "the test's own");
}

#[test]
fn operations_end_as_anywhere() {
    let (mut watcher, a, b) = watcher();
    let error = |c: Completion| c.result.unwrap_err().kind();
    watcher.submit(Op::read(a).timeout(Duration::from_secs(3600))).unwrap();
    assert_eq!(error(next(&mut watcher)), ErrorKind::Deadline, "an hour later, at once");
    let read = watcher.submit(Op::read(a)).unwrap();
    assert!(watcher.cancel(read));
    assert_eq!(error(next(&mut watcher)), ErrorKind::Cancelled);
    watcher.submit(Op::recv_from(a)).expect_err("no datagrams");
    watcher.submit(Op::read(a)).unwrap();
    watcher.submit(Op::close(b)).unwrap();
    assert!(matches!(next(&mut watcher).result, Ok(Done::Closed)));
    assert!(matches!(next(&mut watcher).result, Ok(Done::Read(data)) if data.is_eof()));
    assert_eq!(watcher.fd(a).unwrap_err(), Refusal::NoDescriptor);
    // What is of another kernel is not taken.
    let (_, foreign, _) = Pipes::new();
    assert_eq!(watcher.attach(foreign).unwrap_err().reason, Refusal::NoDescriptor);
}

#[test]
fn another_thread_wakes_it() {
    let (mut watcher, a, b) = watcher();
    watcher.submit(Op::read(b).token(7)).unwrap();
    let submitter = watcher.submitter();
    let thread = std::thread::spawn(move || submitter.submit(Op::write(a, "from afar").token(8)));
    let mut done = Completions::new();
    while done.len() < 2 {
        watcher.wait(&mut done).unwrap();
    }
    thread.join().unwrap().unwrap();
    let read = done.drain(..).find(|c| c.token == 7).unwrap();
    assert!(matches!(read.result, Ok(Done::Read(data)) if &*data == b"from afar"));
}

/// A kernel that panics while a request of another thread is served leaves the loop able to serve
/// others.
#[test]
fn a_kernel_that_panics_is_served_again() {
    let (pipes, a, b) = Pipes::new();
    let memory = Arc::clone(&pipes.memory);
    let driver = Proactor::with_kernel(pipes, Builder::new().config(), "the test's own".into());
    let mut watcher = Watcher::with_driver(driver);
    let submitter = watcher.submitter();
    memory.enter().panics = true;
    submitter.attach(a).unwrap();
    let wait = || watcher.try_wait(&mut Completions::new());
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(wait)).is_err());
    // The program knows the ticket before the loop has looked at the queue.
    let b = submitter.attach(b).unwrap();
    watcher.submit(Op::read(b)).unwrap();
}

/// A watcher with both descriptors of a file of these bytes, which moves `most` bytes per call.
fn file_watcher(
    bytes: &[u8],
    piece: usize,
) -> (Watcher<Proactor<Pipes>>, [Source; 2], Arc<Memory>) {
    let (pipes, _, _) = Pipes::new();
    let (memory, owner) = (Arc::clone(&pipes.memory), Arc::clone(&pipes.owner));
    {
        let mut state = memory.enter();
        (state.file, state.piece, state.longest) = (bytes.to_vec(), piece, 1 << 20);
    }
    let driver = Proactor::with_kernel(pipes, Builder::new().config(), "the test's own".into());
    let mut watcher = Watcher::with_driver(driver);
    let files = [DIRECT, BUFFERED].map(|fd| {
        let handle = Handle::from_virtual(fd, SourceKind::File, None, Arc::clone(&owner));
        watcher.attach(handle).unwrap()
    });
    (watcher, files, memory)
}

fn list(sizes: &[usize], part: impl Fn(usize) -> Buf) -> Vec<Buf> {
    sizes.iter().map(|&size| part(size)).collect()
}

/// If the kernel panics before an operation of another thread has its slot, the ticket of that
/// thread goes stale: no operation of the loop gets it.
#[test]
fn a_ticket_of_another_thread_is_no_other_operations() {
    let (mut watcher, files, memory) = file_watcher(&[], 1);
    let submitter = watcher.submitter();
    let theirs = submitter.submit(Op::sync_all(files[0])).unwrap();
    memory.enter().panics = true;
    let wait = || watcher.try_wait(&mut Completions::new());
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(wait)).is_err());
    let ours = watcher.submit(Op::timer(Duration::from_secs(3600))).unwrap();
    assert_ne!(ours, theirs);
    assert!(!watcher.cancel(theirs));
    assert!(watcher.cancel(ours));
    let cancelled = next(&mut watcher);
    assert_eq!((cancelled.ticket(), cancelled.error_kind()), (ours, Some(ErrorKind::Cancelled)));
}

/// A kernel may read less than requested: only an empty read, or in a direct file less than whole
/// blocks, is the end.
#[test]
fn a_short_read_is_not_the_end_of_the_file() {
    let whole: Vec<u8> = (0..4096u32).map(|i| (i % 251) as u8).collect();
    let room = Vec::<u8>::with_capacity;
    for (len, asked, starts) in [
        (4096, 4096, [4, 4]),
        (4096, 3000, [3, 3]),
        // If the file ends at a block's end, only an empty read shows it.
        (2048, 4096, [3, 3]),
        (2000, 4096, [2, 3]),
        (0, 4096, [1, 1]),
    ] {
        for (i, lists) in [(0, false), (1, false), (0, true), (1, true)] {
            let (mut watcher, files, memory) = file_watcher(&whole[..len], 1024);
            let buf = match lists {
                true => Buf::list(list(&[700, asked - 700], |size| Buf::from(room(size)))),
                false => Buf::from(room(asked)),
            };
            watcher.submit(Op::read_at(files[i], buf, 0)).unwrap();
            let Ok(Done::Read(data)) = next(&mut watcher).result else { panic!("no bytes") };
            let what = format!("{asked} of {len}, file {i}, lists: {lists}");
            assert_eq!(data.into_vec(), whole[..len.min(asked)], "{what}");
            assert_eq!(memory.enter().started, starts[i], "{what}");
        }
    }
}

/// A kernel may write less than requested: the driver writes the rest, and a later failure tells
/// how much was written.
#[test]
fn a_short_write_is_not_the_whole() {
    let whole: Vec<u8> = (0..4000u32).map(|i| (i % 251) as u8).collect();
    for (i, lists) in [(0, false), (1, false), (0, true), (1, true)] {
        for longest in [1 << 20, 2500, 0] {
            let (mut watcher, files, memory) = file_watcher(&[], 1024);
            memory.enter().longest = longest;
            let buf = match lists {
                true => Buf::list(list(&[1500, 2500], |size| {
                    Buf::from(if size == 1500 {
                        whole[..1500].to_vec()
                    } else {
                        whole[1500..].to_vec()
                    })
                })),
                false => Buf::from(whole.clone()),
            };
            watcher.submit(Op::write_at(files[i], buf, 0)).unwrap();
            let written = longest.min(whole.len());
            match next(&mut watcher).result {
                Ok(Done::Written { buf, bytes }) => {
                    assert_eq!((bytes as usize, buf.len(), written), (4000, 4000, 4000));
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Os(libc::ENOSPC));
                    assert!(error.bytes() == written && written < 4000);
                    assert_eq!(error.into_buf().len(), 4000);
                }
                other => panic!("{other:?}"),
            }
            assert_eq!(memory.enter().file, whole[..written]);
        }
    }
}

/// An accept that meets errors makes pauses, also if the errors alternate: each one began the count
/// anew, and the loop accepted millions of times a second.
#[test]
fn accepts_that_fail_in_turns_pause() {
    const SPAN: Duration = Duration::from_secs(1);
    for errors in [
        vec![libc::ECONNABORTED, libc::EPERM],
        vec![libc::EPERM, libc::EPROTO],
        vec![libc::ECONNABORTED, libc::EINTR],
        vec![libc::ECONNABORTED, libc::EMFILE],
        vec![libc::ENOBUFS, libc::EPERM],
        vec![libc::ECONNABORTED, libc::EINTR, libc::EPERM, libc::ENETDOWN],
    ] {
        let (pipes, ..) = Pipes::new();
        let (memory, owner) = (Arc::clone(&pipes.memory), Arc::clone(&pipes.owner));
        memory.enter().accept_errors.clone_from(&errors);
        let driver = Proactor::with_kernel(pipes, Builder::new().config(), "the test's own".into());
        let mut watcher = Watcher::with_driver(driver);
        let handle = Handle::from_virtual(0, SourceKind::Listener, None, owner);
        let listener = watcher.attach(handle).unwrap();
        watcher.submit(Op::accept(listener).multishot()).unwrap();
        let (mut done, mut ended, mut is_over) = (Completions::new(), false, false);
        // A second of the kernel's clock.
        watcher.submit(Op::timer(SPAN)).unwrap();
        while !is_over {
            watcher.wait(&mut done).unwrap();
            for c in done.drain(..) {
                ended |= c.source == listener;
                is_over |= matches!(c.result, Ok(Done::Timer));
            }
        }
        let accepts = memory.enter().accepts;
        let turns = watcher.counters().turns;
        // 40 pauses, with 1024 errors between them if peers can cause all of them.
        assert!((16..60_000).contains(&accepts), "{errors:?}: {accepts} accepts in a second");
        assert!(turns < 10_000, "{errors:?}: {turns} turns in a second");
        assert!(!ended || !errors.contains(&libc::ECONNABORTED), "{errors:?}");
    }
}

/// A cancel looks for its answer as long as there were events: a kernel that has one for each wait
/// kept it for ever.
#[test]
fn a_cancel_among_endless_events_returns() {
    let (pipes, a, _b) = PipesOf::<true>::new();
    let memory = Arc::clone(&pipes.memory);
    let config = Builder::new().events_per_wait(1).config();
    let driver = Proactor::with_kernel(pipes, config, "the test's own".into());
    let mut watcher = Watcher::with_driver(driver);
    let a = watcher.attach(a).unwrap();
    let read = watcher.submit(Op::read(a)).unwrap();
    let mut done = Completions::new();
    assert_eq!(watcher.try_wait(&mut done).unwrap(), 0);
    memory.enter().floods = true;
    assert!(watcher.cancel(read));
    assert!(watcher.is_in_flight(read).unwrap());
    let flood = memory.enter().flood;
    assert!(flood < 1000, "{flood} waits in one call");
    memory.enter().floods = false;
    watcher.wait(&mut done).unwrap();
    assert_eq!(done.drain(..).next().unwrap().error_kind(), Some(ErrorKind::Cancelled));
}
