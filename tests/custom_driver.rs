//! A driver that is written outside the crate plugs into the `Watcher`.
//!
//! It stands on poll(2), serves reads, writes, passed descriptors, timers, nops, files over sockets
//! and all jobs, and is made of the crate's shared components: the table of operations, the
//! deadline heap, the pool of leases, the remote queue. Opening and look-ups it does itself, by
//! std, on threads.
#![allow(missing_docs, unsafe_code)] // a test; poll(2) is called by hand

#[path = "common/bound.rs"]
mod bound;

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, ErrorKind as Io, Read, Write};
use std::net::ToSocketAddrs;
use std::num::NonZeroU32;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use bound::{join, wait_for};
use windlass::driver::Job;
use windlass::driver::deadlines::Deadlines;
use windlass::driver::remote::{Remote, Request, Wake};
use windlass::driver::slots::{Entry, Operation, Table, VACANT};
use windlass::driver::swap::Pool;
use windlass::driver::{Clock, Deadline, Driver, Explain, OpCode, Wait};
use windlass::driver::{discard, leak, leaked_buffers, panicked_drops};
use windlass::fs::OpenOptions;
use windlass::{
    Buf, Complete, Completion, Completions, Counters, Done, Error, ErrorKind, Handle, Limit,
    Message, Op, Priority, Refusal, Refused, Source, Submit, Submitter, Ticket, Watcher,
};

struct Peer {
    generation: NonZeroU32,
    next: u32,
    file: Option<File>,
    queue: Vec<Ticket>,
}

impl Peer {
    /// Its file once more, so that an abort in between closes nothing that is in use.
    fn duplicate(&self) -> File {
        self.file.as_ref().expect("attached").try_clone().expect("a descriptor")
    }
}

impl Default for Peer {
    fn default() -> Peer {
        Peer { generation: VACANT, next: 0, file: None, queue: Vec::new() }
    }
}

impl Entry for Peer {
    fn generation(&self) -> NonZeroU32 {
        self.generation
    }
    fn set_generation(&mut self, generation: NonZeroU32) {
        self.generation = generation;
    }
    fn next_vacant(&self) -> u32 {
        self.next
    }
    fn set_next_vacant(&mut self, index: u32) {
        self.next = index;
    }
}

struct Bell(UnixStream);

impl Wake for Bell {
    fn wake(&self) {
        // A full pipe has woken the loop already.
        let _ = (&self.0).write(&[1]);
    }
}

/// The message of a thread about a job.
type Ended = (Ticket, Result<Done, Error>);

/// The range that a send_file has still to send.
struct Range {
    file: File,
    offset: u64,
    left: u32,
}

struct PollDriver {
    peers: Table<Peer>,
    operations: Table<Operation>,
    deadlines: Deadlines,
    pool: Pool,
    remote: Remote,
    bell: UnixStream,
    /// Of operations that send a file, by their places.
    ranges: HashMap<u32, Range>,
    /// Of operations that send descriptors, by their places.
    passed: HashMap<u32, Vec<OwnedFd>>,
    /// Jobs that threads have, by their places, and whether they were told to end.
    jobs: HashMap<u32, bool>,
    ended: (Sender<Ended>, Receiver<Ended>),
    batch: Vec<Completion>,
    start: Instant,
    submitted: u64,
    closed: bool,
}

impl PollDriver {
    fn new() -> io::Result<PollDriver> {
        let (ring, bell) = UnixStream::pair()?;
        ring.set_nonblocking(true)?;
        bell.set_nonblocking(true)?;
        let remote = Remote::new(64, 8, 8, Arc::new(Bell(ring)));
        Ok(PollDriver {
            peers: Table::new(64),
            operations: Table::new(64),
            deadlines: Deadlines::new(),
            pool: Pool::new(1 << 20, 4096, remote.waker()),
            remote,
            bell,
            ranges: HashMap::new(),
            passed: HashMap::new(),
            jobs: HashMap::new(),
            ended: mpsc::channel(),
            batch: Vec::new(),
            start: Instant::now(),
            submitted: 0,
            closed: false,
        })
    }

    fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    /// Ends an operation early, unless a thread is at work on it: then it ends late.
    fn end_early(&mut self, ticket: Ticket, kind: ErrorKind) {
        match self.jobs.get_mut(&ticket.index()) {
            Some(late) => *late = true,
            None => self.end(ticket, Err(kind)),
        }
    }

    fn end(&mut self, ticket: Ticket, result: Result<Done, ErrorKind>) {
        let slot = ticket.index();
        self.deadlines.remove(slot);
        self.ranges.remove(&slot);
        self.passed.remove(&slot);
        let late = self.jobs.remove(&slot).unwrap_or(false);
        let op = &mut self.operations[slot];
        let (code, token, moved) = (op.code, op.token, op.moved);
        let buf = std::mem::take(&mut op.buf);
        let source = Source::from_parts(op.source, op_generation(op.count));
        let index = op.source;
        self.operations.vacate(slot);
        if index != u32::MAX {
            self.peers[index].queue.retain(|&other| other != ticket);
        }
        let result = match result {
            Ok(Done::Written { bytes, .. }) => Ok(Done::Written { buf, bytes }),
            Ok(done) => Ok(done),
            Err(kind) => Err(Error::new(kind, moved, buf)),
        };
        let source = if index == u32::MAX { Source::NONE } else { source };
        self.batch.push(Completion::new(code, source, ticket, token, result).with_late(late));
    }

    /// Has a thread do a job.
    fn spawn(&mut self, ticket: Ticket, job: Job) {
        let source = self.operations[ticket.index()].source;
        let file = (source != u32::MAX).then(|| self.peers[source].duplicate());
        let (tell, wake) = (self.ended.0.clone(), self.remote.waker());
        self.jobs.insert(ticket.index(), false);
        thread::spawn(move || {
            // The driver may be gone.
            if tell.send((ticket, serve(job, file.as_ref()))).is_ok() {
                wake.wake();
            }
        });
    }

    /// One attempt of an operation; true when it has ended.
    fn attempt(&mut self, ticket: Ticket) -> bool {
        let op = &mut self.operations[ticket.index()];
        let socket = self.peers[op.source].file.as_mut().expect("attached");
        let result = match op.code {
            OpCode::Read => {
                let mut bytes = [0; 1024];
                match socket.read(&mut bytes) {
                    Ok(0) => Ok(Done::Read(Buf::default())),
                    Ok(n) => Ok(Done::Read(self.pool.copy(&bytes[..n]).expect("room").into())),
                    Err(error) if error.kind() == Io::WouldBlock => return false,
                    Err(error) => Err(ErrorKind::Os(error.raw_os_error().unwrap_or(0))),
                }
            }
            OpCode::SendFile => {
                let range = self.ranges.get_mut(&ticket.index()).expect("it has a range");
                let mut bytes = [0; 4096];
                let most = bytes.len().min(range.left as usize);
                let sent = match range.file.read_at(&mut bytes[..most], range.offset) {
                    Ok(n @ 1..) => socket.write(&bytes[..n]),
                    ended => ended,
                };
                match sent {
                    Ok(n) => {
                        op.moved += n as u32;
                        range.offset += n as u64;
                        range.left -= n as u32;
                        if n > 0 && range.left > 0 {
                            return false;
                        }
                        Ok(Done::Sent(op.moved))
                    }
                    Err(error) if error.kind() == Io::WouldBlock => return false,
                    Err(error) => Err(ErrorKind::Os(error.raw_os_error().unwrap_or(0))),
                }
            }
            OpCode::RecvDescriptors => match recv_passed(socket.as_raw_fd()) {
                Ok((bytes, passed)) => {
                    let data = self.pool.copy(&bytes).expect("room").into();
                    Ok(Done::Descriptors {
                        data,
                        descriptors: passed.into(),
                        lost: false,
                        truncated: false,
                    })
                }
                Err(error) if error.kind() == Io::WouldBlock => return false,
                Err(error) => Err(ErrorKind::Os(error.raw_os_error().unwrap_or(0))),
            },
            OpCode::SendDescriptors if op.moved == 0 => {
                match send_passed(socket.as_raw_fd(), &op.buf, &self.passed[&ticket.index()]) {
                    Ok(n) => {
                        op.moved = n as u32;
                        if n < op.buf.len() {
                            return false;
                        }
                        Ok(Done::Written { buf: Buf::default(), bytes: op.moved })
                    }
                    Err(error) if error.kind() == Io::WouldBlock => return false,
                    Err(error) => Err(ErrorKind::Os(error.raw_os_error().unwrap_or(0))),
                }
            }
            OpCode::Job => return false, // a thread has it
            _ => match socket.write(&op.buf[op.moved as usize..]) {
                Ok(n) => {
                    op.moved += n as u32;
                    if (op.moved as usize) < op.buf.len() {
                        return false;
                    }
                    Ok(Done::Written { buf: Buf::default(), bytes: op.moved })
                }
                Err(error) if error.kind() == Io::WouldBlock => return false,
                Err(error) => Err(ErrorKind::Os(error.raw_os_error().unwrap_or(0))),
            },
        };
        self.end(ticket, result);
        true
    }

    fn run(&mut self) {
        let peers: Vec<u32> = self.peers.occupied().collect();
        for peer in peers {
            for ticket in self.peers[peer].queue.clone() {
                self.attempt(ticket);
            }
        }
        let now = self.now_ns();
        while let Some((slot, _)) = self.deadlines.pop_due(now) {
            let ticket = Ticket::from_parts(slot, self.operations[slot].generation());
            let op = &self.operations[slot];
            let timer = op.code == OpCode::Timer && op.offset == 0;
            match timer {
                true => self.end(ticket, Ok(Done::Timer)),
                false => self.end_early(ticket, ErrorKind::Deadline),
            }
        }
    }

    fn poll(&mut self, timeout: Option<Duration>) {
        let mut fds =
            vec![libc::pollfd { fd: self.bell.as_raw_fd(), events: libc::POLLIN, revents: 0 }];
        for peer in self.peers.occupied() {
            let Some(socket) = &self.peers[peer].file else {
                continue;
            };
            let mut events = 0;
            for ticket in &self.peers[peer].queue {
                events |= match self.operations[ticket.index()].code {
                    OpCode::Read | OpCode::RecvDescriptors => libc::POLLIN,
                    OpCode::Job => 0,
                    _ => libc::POLLOUT,
                };
            }
            fds.push(libc::pollfd { fd: socket.as_raw_fd(), events, revents: 0 });
        }
        let ms = timeout.map_or(-1, |t| t.as_nanos().div_ceil(1_000_000) as i32);
        // SAFETY: pointer and length of a vector of entries.
        unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, ms) };
        let _ = self.bell.read(&mut [0; 64]);
    }

    fn serve(&mut self) {
        self.remote.unpark();
        while let Some(request) = self.remote.take() {
            // The other requests need ids in reserve, which this driver does not hand out.
            if let Request::Post(token, value) = request {
                let done = Ok(Done::Message(Message::new(value)));
                let (source, ticket) = (Source::NONE, Ticket::NONE);
                self.batch.push(Completion::new(OpCode::Message, source, ticket, token, done));
            }
        }
        while let Ok((ticket, result)) = self.ended.1.try_recv() {
            // Those that a close has ended are stale.
            if self.operations.find(ticket.index(), ticket.generation()).is_some() {
                self.end(ticket, result.map_err(|error| error.kind()));
            }
        }
    }
}

impl Drop for PollDriver {
    /// C7: it drops what no completion returns, and a panic of a `Drop` ends there.
    fn drop(&mut self) {
        for slot in self.operations.occupied().collect::<Vec<_>>() {
            discard(std::mem::take(&mut self.operations[slot].buf));
        }
        self.batch.drain(..).for_each(discard);
    }
}

/// A message of one piece: its bytes, and room for the descriptors that travel with it.
fn message(bytes: &mut libc::iovec, control: &mut [u64; 8]) -> libc::msghdr {
    // SAFETY: all zeros are a message without anything.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (bytes, 1);
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(control) as _;
    message
}

fn send_passed(socket: RawFd, bytes: &[u8], passed: &[OwnedFd]) -> io::Result<usize> {
    let (mut control, start) = ([0; 8], bytes.as_ptr().cast_mut().cast());
    let mut bytes = libc::iovec { iov_base: start, iov_len: bytes.len() };
    let mut message = message(&mut bytes, &mut control);
    let len = (passed.len() * size_of::<RawFd>()) as u32;
    // SAFETY: it computes a length.
    let space = unsafe { libc::CMSG_SPACE(len) };
    assert!(space as usize <= size_of_val(&control), "more than a test needs");
    message.msg_controllen = space as _;
    // SAFETY: the message is whole.
    let header = unsafe { libc::CMSG_FIRSTHDR(&message) };
    // SAFETY: it lies in `control`, which is aligned for it.
    let header = unsafe { &mut *header };
    (header.cmsg_level, header.cmsg_type) = (libc::SOL_SOCKET, libc::SCM_RIGHTS);
    // SAFETY: it computes a length.
    header.cmsg_len = unsafe { libc::CMSG_LEN(len) } as _;
    // SAFETY: the data stands behind its header.
    let data = unsafe { libc::CMSG_DATA(header) }.cast::<RawFd>();
    for (i, fd) in passed.iter().enumerate() {
        // SAFETY: there is room for so many, as asserted.
        let place = unsafe { data.add(i) };
        // SAFETY: as above.
        unsafe { place.write_unaligned(fd.as_raw_fd()) };
    }
    // SAFETY: the message and what it points to live across the call.
    match unsafe { libc::sendmsg(socket, &message, 0) } {
        n @ 0.. => Ok(n as usize),
        _ => Err(io::Error::last_os_error()),
    }
}

fn recv_passed(socket: RawFd) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let (mut control, mut memory, mut passed) = ([0; 8], [0u8; 1024], Vec::new());
    let mut bytes = libc::iovec { iov_base: memory.as_mut_ptr().cast(), iov_len: memory.len() };
    let mut message = message(&mut bytes, &mut control);
    // SAFETY: the message and what it points to live across the call.
    let n = unsafe { libc::recvmsg(socket, &mut message, 0) };
    if n < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the message is whole, as the kernel has left it.
    let header = unsafe { libc::CMSG_FIRSTHDR(&message) };
    if !header.is_null() {
        // SAFETY: the header lies in `control`.
        let len = unsafe { (*header).cmsg_len } as usize;
        // SAFETY: it computes a length.
        let count = (len - unsafe { libc::CMSG_LEN(0) } as usize) / size_of::<RawFd>();
        for i in 0..count {
            // SAFETY: the data stands behind its header.
            let data = unsafe { libc::CMSG_DATA(header) }.cast::<RawFd>();
            // SAFETY: so many numbers are there.
            let place = unsafe { data.add(i) };
            // SAFETY: as above.
            let fd = unsafe { place.read_unaligned() };
            // SAFETY: the kernel has made this descriptor for us.
            passed.push(unsafe { OwnedFd::from_raw_fd(fd) });
        }
    }
    Ok((memory[..n as usize].to_vec(), passed))
}

/// Does a job, on a thread of its own: what std can do by std, the rest as windlass does it.
fn serve(job: Job, file: Option<&File>) -> Result<Done, Error> {
    let failed = |error: io::Error| {
        Error::new(ErrorKind::Os(error.raw_os_error().unwrap_or(libc::EIO)), 0, Buf::default())
    };
    match job {
        Job::Open { path, options } => {
            let flags = options.open_flags().map_err(failed)?;
            let access = flags & libc::O_ACCMODE;
            let mut std = File::options();
            std.read(access != libc::O_WRONLY).write(access != libc::O_RDONLY);
            std.custom_flags(flags).mode(options.permissions());
            Ok(Done::Opened(std.open(path).map_err(failed)?.into()))
        }
        Job::LookupHost { host, port } => {
            let found = (host.as_str(), port).to_socket_addrs().map_err(failed)?;
            Ok(Done::Addresses(found.collect()))
        }
        job => job.run(file.map(|file| file.as_fd())),
    }
}

/// The generation of an operation's source, kept where this driver has room for it.
fn op_generation(count: u32) -> NonZeroU32 {
    NonZeroU32::new(count).unwrap_or(NonZeroU32::MIN)
}

impl Submit for PollDriver {
    type Op = Op;

    fn submit(&mut self, op: Op) -> Result<Ticket, Refused<Op>> {
        if self.closed {
            return Err(Refused { value: op, reason: Refusal::Closed });
        }
        let source = op.source();
        let attached = self.peers.find(source.index(), source.generation()).is_some();
        let reason = match op.code() {
            OpCode::Nop | OpCode::Timer => None,
            OpCode::Job if source.is_none() => None,
            OpCode::Read
            | OpCode::Write
            | OpCode::SendDescriptors
            | OpCode::RecvDescriptors
            | OpCode::SendFile
            | OpCode::Job => (!attached).then_some(Refusal::Stale),
            _ => Some(Refusal::Unsupported),
        };
        if let Some(reason) = reason {
            return Err(Refused { value: op, reason });
        }
        let mut parts = op.into_parts();
        if parts.quiet {
            // It delivers every end.
            return Err(Refused { value: Op::from_parts(parts), reason: Refusal::Unsupported });
        }
        let file = parts.file;
        let range = match self.peers.find(file.index(), file.generation()) {
            Some(peer) => {
                Some(Range { file: peer.duplicate(), offset: parts.offset, left: parts.count })
            }
            None if parts.code == OpCode::SendFile => {
                return Err(Refused { value: Op::from_parts(parts), reason: Refusal::Stale });
            }
            None => None,
        };
        let Some((slot, generation)) = self.operations.occupy() else {
            let reason =
                Refusal::Full { limit: Limit::Operations, count: self.operations.limit() as usize };
            return Err(Refused { value: Op::from_parts(parts), reason });
        };
        self.submitted += 1;
        let ticket = Ticket::from_parts(slot, generation);
        range.map(|range| self.ranges.insert(slot, range));
        if parts.code == OpCode::SendDescriptors {
            self.passed.insert(slot, parts.descriptors);
        }
        let (start, now) = (self.start, self.now_ns());
        let place = &mut self.operations[slot];
        place.code = parts.code;
        place.token = parts.token;
        place.buf = parts.buf;
        place.moved = 0;
        place.source = if attached { source.index() } else { u32::MAX };
        place.count = source.generation().get();
        let at = |due| match due {
            Deadline::After(span) => now.saturating_add(span.as_nanos() as u64),
            Deadline::At(at) => at.saturating_duration_since(start).as_nanos() as u64,
        };
        let (timer, deadline) = (parts.timer.map(at), parts.deadline.map(at));
        // A timer ends at its own time, or at an earlier deadline.
        let fires = timer.is_some_and(|at| at <= now || deadline.is_none_or(|end| at <= end));
        place.offset = u64::from(!fires);
        let first = if fires { timer } else { deadline };
        if let Some(at) = first {
            self.deadlines.push(slot, at);
        }
        match parts.code {
            OpCode::Nop => self.end(ticket, Ok(Done::Nop)),
            OpCode::Timer => {}
            OpCode::Job if !attached => {}
            _ => self.peers[source.index()].queue.push(ticket),
        }
        if let Some(job) = parts.job.take() {
            self.spawn(ticket, job);
        }
        Ok(ticket)
    }

    fn cancel(&mut self, ticket: Ticket) -> bool {
        let found = self.operations.find(ticket.index(), ticket.generation()).is_some();
        if found {
            self.end_early(ticket, ErrorKind::Cancelled);
        }
        found
    }
}

impl Complete for PollDriver {
    type Item = Completion;

    fn complete(&mut self, wait: Wait, out: &mut Completions) -> io::Result<usize> {
        loop {
            if self.closed && self.batch.is_empty() {
                return Err(Refusal::Closed.into());
            }
            self.serve();
            self.run();
            if !self.batch.is_empty() || wait == Wait::Now {
                return Ok(out.take_from(&mut self.batch));
            }
            let next = self.deadlines.next_ns().map(|at| at.saturating_sub(self.now_ns()));
            let until = match wait {
                Wait::Until(at) => {
                    let left = at.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Ok(0);
                    }
                    Some(left)
                }
                _ => None,
            };
            let timeout = match (next.map(Duration::from_nanos), until) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
            if self.remote.prepare_park() {
                self.poll(timeout);
            }
        }
    }
}

impl Driver for PollDriver {
    fn attach(&mut self, handle: Handle) -> Result<Source, Refused<Handle>> {
        let Some((index, generation)) = self.peers.occupy() else {
            let count = self.peers.limit() as usize;
            let reason = Refusal::Full { limit: Limit::Sources, count };
            return Err(Refused { value: handle, reason });
        };
        let mut file = match handle.into_fd() {
            Ok(fd) => File::from(fd),
            Err(op) => {
                return Err(Refused { value: op, reason: Refusal::Unsupported });
            }
        };
        if !file.metadata().expect("a descriptor").is_file() {
            let socket = UnixStream::from(OwnedFd::from(file));
            socket.set_nonblocking(true).expect("a socket");
            file = File::from(OwnedFd::from(socket));
        }
        self.peers[index].file = Some(file);
        Ok(Source::from_parts(index, generation))
    }

    fn attach_shared(&mut self, handle: Handle) -> Result<Source, Refused<Handle>> {
        self.attach(handle)
    }

    fn detach(&mut self, source: Source) -> Result<Handle, Refusal> {
        let peer = self.peers.find(source.index(), source.generation()).ok_or(Refusal::Stale)?;
        if !peer.queue.is_empty() {
            return Err(Refusal::Busy);
        }
        let socket = peer.file.take().expect("attached");
        self.peers.vacate(source.index());
        Ok(Handle::from(socket))
    }

    fn abort(&mut self, source: Source) -> bool {
        let Some(peer) = self.peers.find(source.index(), source.generation()) else {
            return false;
        };
        for ticket in peer.queue.clone() {
            self.end(ticket, Err(ErrorKind::Aborted));
        }
        self.peers[source.index()].file = None;
        self.peers.vacate(source.index());
        true
    }

    fn cancel_all(&mut self, source: Source) -> usize {
        let peer = self.peers.find(source.index(), source.generation());
        let tickets = peer.map(|peer| peer.queue.clone()).unwrap_or_default();
        tickets.into_iter().filter(|&ticket| self.cancel(ticket)).count()
    }

    fn close(&mut self) {
        let all: Vec<u32> = self.operations.occupied().collect();
        for slot in all {
            let ticket = Ticket::from_parts(slot, self.operations[slot].generation());
            self.end(ticket, Err(ErrorKind::Closed));
        }
        self.closed = true;
        self.remote.close();
    }

    fn now(&self) -> Instant {
        Instant::now()
    }

    fn clock(&self) -> Clock {
        Clock::system()
    }

    fn next_timeout(&mut self) -> Option<Duration> {
        self.deadlines.next_ns().map(|at| Duration::from_nanos(at.saturating_sub(self.now_ns())))
    }

    fn submitter(&mut self) -> Submitter {
        self.remote.submitter()
    }

    fn counters(&self) -> Counters {
        let mut counters = Counters::default();
        counters.submitted = self.submitted;
        counters.in_flight = u64::from(self.operations.len());
        counters
    }

    fn explain(&self) -> Explain {
        let mut explain = Explain::new("poll", "written outside the crate");
        explain.row("read", "read", "tried at every turn", 0);
        explain
    }
}

/// The program of the README, on a driver that the crate has never heard of.
#[test]
fn an_echo_runs_on_a_driver_from_outside() {
    let mut watcher = Watcher::with_driver(PollDriver::new().unwrap());
    let (here, there) = UnixStream::pair().unwrap();
    let server = watcher.attach(here).unwrap();
    let client = watcher.attach(there).unwrap();
    watcher.submit(Op::read(server)).unwrap();
    watcher.submit(Op::write(client, "hello")).unwrap();
    watcher.submit(Op::read(client).timeout(Duration::from_secs(60))).unwrap();
    let mut done = Completions::new();
    let mut answer = None;
    while answer.is_none() {
        wait_for(&mut watcher, &mut done, "the next completion");
        for c in done.drain(..) {
            match c.result.unwrap() {
                Done::Read(data) if c.source == server => {
                    assert!(data.is_lease());
                    watcher.submit(Op::write(server, data)).unwrap();
                }
                Done::Read(data) => answer = Some(data.into_vec()),
                _ => {}
            }
        }
    }
    assert_eq!(answer.unwrap(), b"hello");
    assert_eq!(watcher.explain().driver, "poll");
}

#[test]
fn deadlines_cancels_aborts_and_close_keep_the_contract() {
    let mut watcher = Watcher::with_driver(PollDriver::new().unwrap());
    let (here, _there) = UnixStream::pair().unwrap();
    let source = watcher.attach(here).unwrap();
    let mut done = Completions::new();
    let late = watcher.submit(Op::read(source).timeout(Duration::from_millis(1))).unwrap();
    let timer = watcher.submit(Op::timer(Duration::from_millis(2))).unwrap();
    let cancelled = watcher.submit(Op::read(source)).unwrap();
    assert!(watcher.cancel(cancelled));
    assert!(!watcher.cancel(cancelled));
    let aborted = watcher.submit(Op::read(source)).unwrap();
    let mut ends = Vec::new();
    while ends.len() < 3 {
        wait_for(&mut watcher, &mut done, "the next completion");
        ends.extend(done.drain(..).map(|c| (c.ticket(), c.error_kind())));
    }
    assert!(watcher.abort(source));
    assert!(!watcher.abort(source));
    watcher.submit(Op::timer(Duration::from_secs(3600))).unwrap();
    watcher.close();
    watcher.close();
    wait_for(&mut watcher, &mut done, "the next completion");
    ends.extend(done.drain(..).map(|c| (c.ticket(), c.error_kind())));
    assert_eq!(
        ends[..3],
        [(cancelled, Some(ErrorKind::Cancelled)), (late, Some(ErrorKind::Deadline)), (timer, None)]
    );
    assert_eq!(ends[3], (aborted, Some(ErrorKind::Aborted)));
    assert_eq!(ends[4].1, Some(ErrorKind::Closed));
    assert_eq!(Refusal::of(&watcher.wait(&mut done).unwrap_err()), Some(Refusal::Closed));
    let refused = watcher.submit(Op::write(source, vec![1, 2, 3])).unwrap_err();
    assert_eq!(refused.reason, Refusal::Closed);
    assert_eq!(refused.value.into_buf().into_vec(), [1, 2, 3]);
}

/// The next completion, which must come within a bound.
fn next(watcher: &mut Watcher<PollDriver>) -> Completion {
    let mut done = Completions::new();
    wait_for(watcher, &mut done, "the next completion");
    let mut all = done.drain(..);
    let c = all.next().expect("one");
    assert!(all.next().is_none(), "one operation, one completion");
    c
}

fn one(watcher: &mut Watcher<PollDriver>, op: Op) -> Result<Done, Error> {
    watcher.submit(op.token(7)).unwrap();
    let c = next(watcher);
    assert_eq!((c.token, c.is_late()), (7, false));
    c.result
}

#[test]
fn it_opens_files_looks_hosts_up_and_runs_jobs() {
    let mut watcher = Watcher::with_driver(PollDriver::new().unwrap());
    let path = std::env::temp_dir().join(format!("windlass-custom-{}", std::process::id()));
    let new = OpenOptions::new().write(true).create_new(true).mode(0o600);

    let opened = one(&mut watcher, Op::open(&path, new).priority(Priority::High)).unwrap();
    let Done::Opened(file) = opened else { panic!("{opened:?}") };
    let file = watcher.attach(file).unwrap();
    // A job on an attached file, which the driver leaves to windlass.
    one(&mut watcher, Op::set_len(file, 12345)).unwrap();
    let known = one(&mut watcher, Op::metadata(&path)).unwrap();
    let Done::Metadata(known) = known else { panic!("{known:?}") };
    assert_eq!((known.size, known.permissions()), (12345, 0o600));
    assert!(watcher.abort(file));

    let again = one(&mut watcher, Op::open(&path, new)).unwrap_err();
    assert_eq!(again.kind(), ErrorKind::Os(libc::EEXIST));
    one(&mut watcher, Op::remove_file(&path)).unwrap();
    let gone = one(&mut watcher, Op::open(&path, OpenOptions::new().read(true))).unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::Os(libc::ENOENT));

    let found = one(&mut watcher, Op::lookup_host("localhost", 7007)).unwrap();
    let Done::Addresses(found) = found else { panic!("{found:?}") };
    assert!(found.iter().any(|at| at.ip().is_loopback() && at.port() == 7007), "{found:?}");

    let ours = thread::current().id();
    let returned = one(&mut watcher, Op::run(|| thread::current().id())).unwrap();
    let Done::Returned(value) = returned else { panic!("{returned:?}") };
    assert_ne!(value.downcast::<thread::ThreadId>().unwrap(), ours);
    let panicked = one(&mut watcher, Op::run(|| panic!("on purpose"))).unwrap_err();
    assert_eq!(panicked.kind(), ErrorKind::Panicked);

    // A job that has begun cannot be stopped: it ends late, with its value.
    let (go, wait) = mpsc::channel();
    let job = watcher.submit(Op::run(move || wait.recv().is_ok())).unwrap();
    assert!(watcher.cancel(job));
    go.send(()).unwrap();
    let late = next(&mut watcher);
    assert!(late.is_late() && late.ticket() == job, "{late:?}");
    let Ok(Done::Returned(value)) = late.result else { panic!("{late:?}") };
    assert!(value.downcast::<bool>().unwrap());
}

#[test]
fn it_sends_a_part_of_a_file_over_a_socket() {
    let mut watcher = Watcher::with_driver(PollDriver::new().unwrap());
    let path = std::env::temp_dir().join(format!("windlass-sent-{}", std::process::id()));
    let bytes: Vec<u8> = (0..2_000_000u32).map(|i| (i ^ i >> 8 ^ i >> 16) as u8).collect();
    std::fs::write(&path, &bytes).unwrap();
    let file = watcher.attach(File::open(&path).unwrap()).unwrap();
    std::fs::remove_file(&path).unwrap();
    let (here, mut there) = UnixStream::pair().unwrap();
    let socket = watcher.attach(here).unwrap();

    // More than a socket holds, from the middle up to beyond the end.
    watcher.submit(Op::send_file(socket, file, 500_000, 9_000_000).token(3)).unwrap();
    let reader = thread::spawn(move || {
        let mut heard = vec![0; 1_500_000];
        there.read_exact(&mut heard).map(|()| heard)
    });
    let c = next(&mut watcher);
    assert!(matches!(c.result, Ok(Done::Sent(1_500_000))), "{c:?}");
    assert_eq!((c.token, c.source), (3, socket));
    assert!(join(reader, "the reader").unwrap() == bytes[500_000..]);

    // One that is refused comes back with its range.
    assert!(watcher.abort(file));
    let op = Op::send_file(socket, file, 7, 8).token(9).multishot();
    let refused = watcher.submit(op).unwrap_err();
    assert_eq!(refused.reason, Refusal::Stale);
    let parts = refused.value.into_parts();
    assert_eq!((parts.code, parts.source, parts.token), (OpCode::SendFile, socket, 9));
    assert_eq!((parts.file, parts.offset, parts.count, parts.multishot), (file, 7, 8, true));
}

#[test]
fn it_passes_descriptors() {
    let mut watcher = Watcher::with_driver(PollDriver::new().unwrap());
    let (here, there) = UnixStream::pair().unwrap();
    let (here, there) = (watcher.attach(here).unwrap(), watcher.attach(there).unwrap());
    let (reader, mut writer) = io::pipe().unwrap();
    let sent = vec![reader.into(), File::open("/").unwrap().into()];
    let op = Op::send_descriptors(here, "two", sent).token(7);
    // What is opened can be put together again.
    watcher.submit(Op::from_parts(op.into_parts())).unwrap();
    let c = next(&mut watcher);
    assert!(matches!(c.result, Ok(Done::Written { bytes: 3, .. })) && c.token == 7, "{c:?}");
    let done = one(&mut watcher, Op::recv_descriptors(there)).unwrap();
    let Done::Descriptors { data, descriptors, .. } = done else { panic!("{done:?}") };
    assert_eq!((&*data, descriptors.len()), (&b"two"[..], 2));
    writer.write_all(b"through").unwrap();
    drop(writer);
    let mut text = String::new();
    File::from(descriptors.take().remove(0)).read_to_string(&mut text).unwrap();
    assert_eq!(text, "through", "the driver has closed its own copies");
}

/// A refused operation keeps what it carries: the descriptors that travel, the socket to connect.
#[test]
fn operations_keep_their_descriptors() {
    let (reader, mut writer) = io::pipe().unwrap();
    let mut parts = Op::send_descriptors(Source::NONE, "x", vec![reader.into()]).into_parts();
    assert_eq!((parts.descriptors.len(), parts.address.is_none()), (1, true));
    let op = Op::from_parts(parts);
    writer.write_all(b"its reader is there").unwrap();
    parts = op.into_parts();
    drop(parts.descriptors.pop().expect("it is still there"));
    assert_eq!(writer.write(b"x").unwrap_err().kind(), Io::BrokenPipe);

    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let (number, peer) = (socket.as_raw_fd(), socket.local_addr().unwrap());
    let parts = Op::connect_with(socket, peer).into_parts();
    assert_eq!(parts.address.as_ref().and_then(windlass::Address::ip), Some(peer));
    assert_eq!(parts.descriptors[0].as_raw_fd(), number);
    let mut watcher = Watcher::new().unwrap();
    watcher.submit(Op::from_parts(parts)).unwrap();
    let mut done = Completions::new();
    wait_for(&mut watcher, &mut done, "the connect");
    let c = done.drain(..).next().unwrap();
    let Ok(Done::Socket(socket)) = c.result else { panic!("{c:?}") };
    assert_eq!(socket.into_fd().unwrap().as_raw_fd(), number, "another socket was made");
}

/// C7 from outside: panics of the program's `Drop` end in the driver and are counted, as are
/// buffers that are left to a kernel.
#[test]
fn what_it_drops_and_leaves_is_counted() {
    struct Loud;
    impl AsRef<[u8]> for Loud {
        fn as_ref(&self) -> &[u8] {
            b"loud"
        }
    }
    impl Drop for Loud {
        fn drop(&mut self) {
            panic!("the Drop of what is the program's");
        }
    }
    let mut watcher = Watcher::with_driver(PollDriver::new().unwrap());
    let (here, _there) = UnixStream::pair().unwrap();
    let here = watcher.attach(here).unwrap();
    for _ in 0..3 {
        watcher.submit(Op::write(here, Buf::from_owner(Loud))).unwrap();
    }
    let before = panicked_drops();
    drop(watcher);
    assert_eq!(panicked_drops(), before + 3);

    let (memory, before) = (std::sync::Arc::<[u8]>::from(*b"kernel"), leaked_buffers());
    leak(memory.clone().into());
    assert_eq!((leaked_buffers(), std::sync::Arc::strong_count(&memory)), (before + 1, 2));
}

#[test]
fn the_earlier_of_a_timer_and_its_deadline_ends_it() {
    let mut watcher = Watcher::with_driver(PollDriver::new().unwrap());
    let (soon, late) = (Duration::from_millis(1), Duration::from_secs(3600));
    let mut done = Completions::new();
    for (op, kind) in [
        (Op::timer(late).timeout(soon), Some(ErrorKind::Deadline)),
        (Op::timer(soon).timeout(late), None),
        (Op::timer(soon).timeout(soon), None),
    ] {
        watcher.submit(op).unwrap();
        watcher.wait(&mut done).unwrap();
        let c = done.drain(..).next().unwrap();
        assert_eq!((c.code(), c.error_kind()), (OpCode::Timer, kind));
    }
}

#[test]
fn other_threads_reach_it() {
    let mut watcher = Watcher::with_driver(PollDriver::new().unwrap());
    let submitter = watcher.submitter();
    let thread = std::thread::spawn(move || submitter.post(1, String::from("news")).unwrap());
    let mut done = Completions::new();
    wait_for(&mut watcher, &mut done, "the next completion");
    let c = done.drain(..).next().unwrap();
    let Ok(Done::Message(message)) = c.result else { panic!("{c:?}") };
    assert_eq!(message.downcast::<String>().unwrap(), "news");
    join(thread, "the other thread");
}
