//! A driver that is written outside the crate plugs into the `Watcher`.
//!
//! It stands on poll(2), serves reads, writes, timers and nops, and is made of the crate's shared
//! components: the table of operations, the deadline heap, the pool of leases, the remote queue.
#![allow(missing_docs, unsafe_code)] // a test; poll(2) is called by hand

#[path = "common/bound.rs"]
mod bound;

use std::io::{self, ErrorKind as Io, Read, Write};
use std::num::NonZeroU32;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use bound::{join, wait_for};
use windlass::deadline::Deadlines;
use windlass::remote::{Remote, Request, Wake};
use windlass::slots::{Entry, Operation, Table, VACANT};
use windlass::swap::Pool;
use windlass::{
    Buf, Code, Complete, Completion, Completions, Counters, Done, Driver, Due, Error, ErrorKind,
    Explain, Handle, Limit, Message, Op, Reason, Rejected, Source, Submit, Submitter, Ticket, Wait,
    Watcher,
};

struct Peer {
    generation: NonZeroU32,
    next: u32,
    socket: Option<UnixStream>,
    queue: Vec<Ticket>,
}

impl Default for Peer {
    fn default() -> Peer {
        Peer { generation: VACANT, next: 0, socket: None, queue: Vec::new() }
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

struct PollDriver {
    peers: Table<Peer>,
    operations: Table<Operation>,
    deadlines: Deadlines,
    pool: Pool,
    remote: Remote,
    bell: UnixStream,
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
        let remote = Remote::new(64, 8, 8, Bell(ring));
        Ok(PollDriver {
            peers: Table::new(64),
            operations: Table::new(64),
            deadlines: Deadlines::new(),
            pool: Pool::new(1 << 20, 4096, remote.waker()),
            remote,
            bell,
            batch: Vec::new(),
            start: Instant::now(),
            submitted: 0,
            closed: false,
        })
    }

    fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn end(&mut self, ticket: Ticket, result: Result<Done, ErrorKind>) {
        let slot = ticket.index();
        self.deadlines.remove(slot);
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
        self.batch.push(Completion::new(code, source, ticket, token, result));
    }

    /// One attempt of an operation; true when it has ended.
    fn attempt(&mut self, ticket: Ticket) -> bool {
        let op = &mut self.operations[ticket.index()];
        let socket = self.peers[op.source].socket.as_mut().expect("attached");
        let result = match op.code {
            Code::Read => {
                let mut bytes = [0; 1024];
                match socket.read(&mut bytes) {
                    Ok(0) => Ok(Done::Read(Buf::default())),
                    Ok(n) => Ok(Done::Read(self.pool.copy(&bytes[..n]).expect("room").into())),
                    Err(error) if error.kind() == Io::WouldBlock => return false,
                    Err(error) => Err(ErrorKind::Os(error.raw_os_error().unwrap_or(0))),
                }
            }
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
            let timer = op.code == Code::Timer && op.offset == 0;
            self.end(ticket, if timer { Ok(Done::Timer) } else { Err(ErrorKind::Deadline) });
        }
    }

    fn poll(&mut self, timeout: Option<Duration>) {
        let mut fds =
            vec![libc::pollfd { fd: self.bell.as_raw_fd(), events: libc::POLLIN, revents: 0 }];
        for peer in self.peers.occupied() {
            let Some(socket) = &self.peers[peer].socket else {
                continue;
            };
            let mut events = 0;
            for ticket in &self.peers[peer].queue {
                let read = self.operations[ticket.index()].code == Code::Read;
                events |= if read { libc::POLLIN } else { libc::POLLOUT };
            }
            fds.push(libc::pollfd { fd: socket.as_raw_fd(), events, revents: 0 });
        }
        let ms = timeout.map_or(-1, |t| t.as_nanos().div_ceil(1_000_000) as i32);
        // SAFETY: pointer and length of a vector of entries.
        unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, ms) };
        let _ = self.bell.read(&mut [0; 64]);
    }

    fn serve(&mut self) {
        self.remote.rouse();
        while let Some(request) = self.remote.take() {
            // The other requests need ids in reserve, which this driver does not hand out.
            if let Request::Post(token, value) = request {
                let done = Ok(Done::Message(Message::new(value)));
                let (source, ticket) = (Source::NONE, Ticket::NONE);
                self.batch.push(Completion::new(Code::Message, source, ticket, token, done));
            }
        }
    }
}

/// The generation of an operation's source, kept where this driver has room for it.
fn op_generation(count: u32) -> NonZeroU32 {
    NonZeroU32::new(count).unwrap_or(NonZeroU32::MIN)
}

impl Submit for PollDriver {
    type Op = Op;

    fn submit(&mut self, op: Op) -> Result<Ticket, Rejected<Op>> {
        if self.closed {
            return Err(Rejected { op, reason: Reason::Closed });
        }
        let source = op.source();
        let attached = self.peers.find(source.index(), source.generation()).is_some();
        let reason = match op.code() {
            Code::Nop | Code::Timer => None,
            Code::Read | Code::Write if attached => None,
            Code::Read | Code::Write => Some(Reason::Stale),
            _ => Some(Reason::Unsupported),
        };
        if let Some(reason) = reason {
            return Err(Rejected { op, reason });
        }
        let Some((slot, generation)) = self.operations.occupy() else {
            let count = self.operations.limit();
            return Err(Rejected { op, reason: Reason::Full { limit: Limit::Operations, count } });
        };
        self.submitted += 1;
        let ticket = Ticket::from_parts(slot, generation);
        let parts = op.into_parts();
        let (start, now) = (self.start, self.now_ns());
        let place = &mut self.operations[slot];
        place.code = parts.code;
        place.token = parts.token;
        place.buf = parts.buf;
        place.moved = 0;
        place.source = if attached { source.index() } else { u32::MAX };
        place.count = source.generation().get();
        let at = |due| match due {
            Due::After(span) => now.saturating_add(span.as_nanos() as u64),
            Due::At(at) => at.saturating_duration_since(start).as_nanos() as u64,
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
            Code::Nop => self.end(ticket, Ok(Done::Nop)),
            Code::Timer => {}
            _ => self.peers[source.index()].queue.push(ticket),
        }
        Ok(ticket)
    }

    fn cancel(&mut self, ticket: Ticket) -> bool {
        let found = self.operations.find(ticket.index(), ticket.generation()).is_some();
        if found {
            self.end(ticket, Err(ErrorKind::Cancelled));
        }
        found
    }
}

impl Complete for PollDriver {
    type Item = Completion;

    fn complete(&mut self, wait: Wait, out: &mut Completions) -> io::Result<usize> {
        loop {
            if self.closed && self.batch.is_empty() {
                return Err(Reason::Closed.into());
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
            if self.remote.doze() {
                self.poll(timeout);
            }
        }
    }
}

impl Driver for PollDriver {
    fn attach(&mut self, handle: Handle) -> Result<Source, Rejected<Handle>> {
        let Some((index, generation)) = self.peers.occupy() else {
            let count = self.peers.limit();
            let reason = Reason::Full { limit: Limit::Sources, count };
            return Err(Rejected { op: handle, reason });
        };
        let socket = match handle.into_fd() {
            Ok(fd) => UnixStream::from(fd),
            Err(op) => {
                return Err(Rejected { op, reason: Reason::Unsupported });
            }
        };
        socket.set_nonblocking(true).expect("a socket");
        self.peers[index].socket = Some(socket);
        Ok(Source::from_parts(index, generation))
    }

    fn attach_shared(&mut self, handle: Handle) -> Result<Source, Rejected<Handle>> {
        self.attach(handle)
    }

    fn detach(&mut self, source: Source) -> Result<Handle, Reason> {
        let peer = self.peers.find(source.index(), source.generation()).ok_or(Reason::Stale)?;
        if !peer.queue.is_empty() {
            return Err(Reason::Busy);
        }
        let socket = peer.socket.take().expect("attached");
        self.peers.vacate(source.index());
        Ok(Handle::from(socket))
    }

    fn free(&mut self, source: Source) -> bool {
        let Some(peer) = self.peers.find(source.index(), source.generation()) else {
            return false;
        };
        for ticket in peer.queue.clone() {
            self.end(ticket, Err(ErrorKind::Freed));
        }
        self.peers[source.index()].socket = None;
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

    fn now(&mut self) -> Instant {
        Instant::now()
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
fn deadlines_cancels_frees_and_close_keep_the_contract() {
    let mut watcher = Watcher::with_driver(PollDriver::new().unwrap());
    let (here, _there) = UnixStream::pair().unwrap();
    let source = watcher.attach(here).unwrap();
    let mut done = Completions::new();
    let late = watcher.submit(Op::read(source).timeout(Duration::from_millis(1))).unwrap();
    let timer = watcher.submit(Op::timer(Duration::from_millis(2))).unwrap();
    let cancelled = watcher.submit(Op::read(source)).unwrap();
    assert!(watcher.cancel(cancelled));
    assert!(!watcher.cancel(cancelled));
    let freed = watcher.submit(Op::read(source)).unwrap();
    let mut ends = Vec::new();
    while ends.len() < 3 {
        wait_for(&mut watcher, &mut done, "the next completion");
        ends.extend(done.drain(..).map(|c| (c.ticket(), c.error_kind())));
    }
    assert!(watcher.free(source));
    assert!(!watcher.free(source));
    watcher.submit(Op::timer(Duration::from_secs(3600))).unwrap();
    watcher.close();
    watcher.close();
    wait_for(&mut watcher, &mut done, "the next completion");
    ends.extend(done.drain(..).map(|c| (c.ticket(), c.error_kind())));
    assert_eq!(
        ends[..3],
        [(cancelled, Some(ErrorKind::Cancelled)), (late, Some(ErrorKind::Deadline)), (timer, None)]
    );
    assert_eq!(ends[3], (freed, Some(ErrorKind::Freed)));
    assert_eq!(ends[4].1, Some(ErrorKind::Closed));
    assert_eq!(Reason::of(&watcher.wait(&mut done).unwrap_err()), Some(Reason::Closed));
    let refused = watcher.submit(Op::write(source, vec![1, 2, 3])).unwrap_err();
    assert_eq!(refused.reason, Reason::Closed);
    assert_eq!(refused.op.into_buf().into_vec(), [1, 2, 3]);
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
        assert_eq!((c.code(), c.error_kind()), (Code::Timer, kind));
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
