//! The simulation as the proactor's kernel.

#![allow(unsafe_code)]
//! # Safety
//!
//! Only the promise of `Kernel` is made here: that received bytes have been written. All received
//! bytes go through `Target::write`, and the reported number is its answer.

use std::io::{self, IoSlice};
use std::process::ExitStatus;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use super::schedule::Waited;
use crate::completion::Done;
use crate::driver::config::Config;
use crate::driver::endpoint::{DatagramOptions, ListenOptions};
use crate::file::thread_job::ThreadJob;
use crate::file::{FileAnswer, FileFacts, FileRequest};
use crate::kernel::{self, Calls, Connecting, FILES, Kernel, Received, Started};
use crate::memory::buf::Target;
use crate::memory::buf::swap::Pool;
use crate::remote::Wake;
use crate::sim::Sim;
use crate::sim::world::{RESETS, World};
use crate::sys::fd::{BorrowedFd, OwnedFd, RawFd};
use crate::sys::interest::Ready;
use crate::sys::os_error;
use crate::sys::socket_option::SocketOption;
use crate::words::address::Address;
use crate::words::clock::Clock;
use crate::words::error::{Error, Refusal};
use crate::words::explain::Explain;
use crate::words::source::{Handle, SourceKind, VirtualDescriptor};
use crate::words::table;

/// Declares the calls of watchers, with the names under which the system's kernel counts them.
/// Behind them are the actions that only a test takes.
macro_rules! calls {
    ($($call:ident = $name:literal,)* ; $($other:ident),*) => {
        /// The calls and actions that are counted and traced, by number.
        #[derive(Clone, Copy)]
        pub(super) enum Call {
            $($call,)*
            $($other,)*
        }

        impl Call {
            const NAMES: &[&'static str] = &[$($name),*];
        }
    };
}

calls! {
    Wait = "wait",
    Register = "register",
    Recv = "recv",
    RecvMsg = "recvmsg",
    Send = "send",
    SendMsg = "sendmsg",
    Accept = "accept",
    Connect = "connect",
    Shutdown = "shutdown",
    Poll = "poll",
    Close = "close",
    GetSockOpt = "getsockopt",
    SigAction = "sigaction",
    WaitId = "waitid",
    Job = "job",
    LookUp = "lookup",
    RecvMmsg = "recvmmsg",
    SendMmsg = "sendmmsg",
    Pread = "pread",
    Pwrite = "pwrite",
    Fsync = "fsync",
    SendFile = "sendfile",
    ; Kill, Spawn, Exit
}

impl Call {
    /// How many calls the watchers make.
    pub(super) const COUNT: usize = Call::NAMES.len();

    pub(super) fn name(self) -> &'static str {
        Call::NAMES[self as usize]
    }

    /// The value that goes into the trace for a call on this descriptor.
    pub(super) fn of(self, number: i32) -> u64 {
        (self as u64) << 32 | u64::from(number as u32)
    }
}

/// An answer, as the trace takes it.
pub(super) trait TracedAnswer {
    fn code(&self) -> i64;
}

impl TracedAnswer for () {
    fn code(&self) -> i64 {
        0
    }
}

impl TracedAnswer for i32 {
    fn code(&self) -> i64 {
        i64::from(*self)
    }
}

impl TracedAnswer for isize {
    #[inline(always)]
    fn code(&self) -> i64 {
        *self as i64
    }
}

impl TracedAnswer for Received {
    #[inline(always)]
    fn code(&self) -> i64 {
        self.moved as i64
    }
}

impl TracedAnswer for Ready {
    fn code(&self) -> i64 {
        i64::from(self.bits())
    }
}

impl<T> TracedAnswer for Result<T, i32> {
    fn code(&self) -> i64 {
        self.as_ref().err().map_or(0, |errno| -i64::from(*errno))
    }
}

impl<const C: bool> Sim<C> {
    /// Counts a call on `fd`, makes it in the world, and traces it with its answer.
    #[inline(always)]
    pub(super) fn call<A: TracedAnswer>(
        &mut self,
        call: Call,
        fd: RawFd,
        make: impl FnOnce(&mut World) -> A,
    ) -> A {
        self.calls[call as usize] += 1;
        let selector = self.selector;
        let world = &mut *self.enter();
        let on = world.history.is_on();
        let title = if on { Some(world.begin_step(selector, call, fd)) } else { None };
        let answer = make(world);
        world.trace(call.of(fd), answer.code() as u64);
        if let Some(title) = title {
            world.end_step(call, &title, answer.code());
        }
        answer
    }
}

// SAFETY: the world answers the sum of what `Target::write` has written, part by part.
unsafe impl<const C: bool> Kernel for Sim<C> {
    type Calls = Sim<C>;

    const COMPLETES: bool = C;
    const JOBS: bool = true;
    const FILES: bool = true;

    fn name(&self) -> &'static str {
        "sim"
    }

    /// The generations of the watchers of a world begin far apart. Those of the first watcher begin
    /// as if it were the only one.
    fn start(&mut self) -> u32 {
        self.selector.wrapping_mul(table::GENERATION_STRIDE)
    }

    fn now_ns(&self) -> u64 {
        self.world.borrow().schedule.now_ns
    }

    fn clock(&self) -> Clock {
        self.world.borrow().schedule.clock.clone()
    }

    #[inline(always)]
    fn turn(&mut self) {
        self.world.borrow_mut().schedule.turn();
    }

    fn select(&mut self, timeout_ns: Option<u64>) -> io::Result<usize> {
        self.calls[Call::Wait as usize] += 1;
        if self.has_crashed() {
            return self.select_crashed();
        }
        let mut events = std::mem::take(&mut self.events);
        events.clear();
        let answer = loop {
            let mut world = self.enter();
            let waited = world.select(self.selector, timeout_ns, self.most_events, &mut events);
            let (patience, others) = (world.patience, world.schedule.has_ready());
            drop(world);
            match waited {
                Waited::Over => break Ok(()),
                Waited::Stuck if self.outside.wait(patience) => {}
                Waited::Stuck => break Err(deadlock(others)),
            }
        };
        self.do_requests(&mut events);
        let count = events.len();
        self.events = events;
        answer.map(|()| count)
    }

    #[inline(always)]
    fn event(&self, i: usize) -> (u64, Ready) {
        self.events[i]
    }

    fn answer(&mut self, i: usize, pool: &mut Pool) -> Option<kernel::Answer> {
        self.answer_of(self.events[i].0, pool)
    }

    /// As a ring, which sends on Unix sockets, too.
    fn sends(&mut self, _kind: SourceKind) -> bool {
        true
    }

    unsafe fn start_recv(
        &mut self,
        fd: RawFd,
        key: u64,
        to: Option<Target<'_>>,
        multishot: bool,
        pool: &mut Pool,
    ) -> Started {
        self.begin_recv(fd, key, to, multishot, pool)
    }

    unsafe fn start_send(&mut self, fd: RawFd, key: u64, parts: &[IoSlice<'_>]) -> Started {
        self.begin_send(fd, key, parts)
    }

    unsafe fn start_file(&mut self, request: FileRequest<'_>, facts: FileFacts) -> bool {
        self.begin_file(request, facts)
    }

    fn file_answer(&mut self) -> Option<FileAnswer> {
        self.in_kernel.answers.pop_front()
    }

    fn has_file_answers(&self) -> bool {
        !self.in_kernel.answers.is_empty()
    }

    fn stop_file(&mut self, key: u64) {
        self.stop_request(key);
    }

    /// The child has its own copy of the network.
    fn renew(&self, config: &Config) -> io::Result<Sim<C>> {
        Ok(self.kernel(config))
    }

    fn stop(&mut self, key: u64, write: bool) {
        self.stop_entry(key, write);
    }

    fn buffers(&mut self, pool: &mut Pool) -> usize {
        self.buffers_for_entries(pool)
    }

    fn recall_buffer(&mut self, pool: &mut Pool) {
        self.in_kernel.give_back(pool);
    }

    fn abandon(&mut self) {
        self.forget_entries();
    }

    fn register(&mut self, fd: RawFd, key: u64, writes: bool) -> Result<(), i32> {
        let selector = self.selector;
        self.call(Call::Register, fd, |world| world.register(fd, selector, key, writes))
    }

    fn deregister(&mut self, fd: RawFd, _key: u64) {
        self.call(Call::Register, fd, |world| world.deregister(fd as u32))
    }

    fn start_job(&mut self, key: u64, work: ThreadJob) -> Result<(), ThreadJob> {
        self.queue_job(key, work)
    }

    fn cancel_job(&mut self, key: u64) -> Option<ThreadJob> {
        self.withdraw_job(key)
    }

    fn job_answer(&mut self) -> Option<(u64, Result<Done, Error>)> {
        self.next_job_answer()
    }

    fn job_counts(&self) -> (u64, u64) {
        self.jobs.counts()
    }

    fn calls(&self) -> &Sim<C> {
        self
    }

    fn calls_mut(&mut self) -> &mut Sim<C> {
        self
    }

    fn waker(&self) -> Arc<dyn Wake> {
        self.make_waker()
    }

    fn close(&mut self, fd: RawFd) {
        self.call(Call::Close, fd, |world| world.close(fd))
    }

    fn release(&mut self, fd: RawFd, kind: SourceKind) -> Handle {
        let peer = match kind {
            SourceKind::Stream => self.enter().peer_address(fd).ok().and_then(|at| at.ip()),
            _ => None,
        };
        Handle::from_virtual(fd, kind, peer, self.owner())
    }

    fn pollable(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn system_calls(&self) -> Vec<(&'static str, u64)> {
        let all = Call::NAMES.iter().copied().zip(self.calls);
        all.filter(|(_, count)| *count > 0).collect()
    }

    fn explain(&self, explain: &mut Explain) {
        let waits = self.calls[Call::Wait as usize];
        let clock = "time passes only in waits";
        explain.row("wait", "virtual time", clock, waits);
        for (fault, count) in self.enter().dice.injected().named() {
            if count > 0 {
                explain.row("fault", fault, "injected by the simulation", count);
            }
        }
    }
}

// SAFETY: as above.
unsafe impl<const C: bool> Calls for Sim<C> {
    fn file_facts(&mut self, fd: RawFd) -> FileFacts {
        self.facts_of(fd)
    }

    fn read_now(&mut self, fd: RawFd, to: Target<'_>, offset: u64) -> isize {
        self.read_cached(fd, to, offset)
    }

    fn forbid_blocking(&mut self, _fd: RawFd, _shared: bool) -> Result<bool, Refusal> {
        Ok(false)
    }

    fn send_file(&mut self, socket: RawFd, fd: RawFd, offset: u64, len: usize) -> isize {
        self.send_of_file(socket, fd, offset, len)
    }

    fn accepts(&self, handle: &Handle) -> bool {
        let owner: Arc<dyn VirtualDescriptor> = self.owner();
        handle.is_of(&owner)
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

    #[inline]
    fn recv(&mut self, fd: RawFd, _kind: SourceKind, mut to: Target<'_>) -> Received {
        let to = slice::from_mut(&mut to);
        self.call(Call::Recv, fd, |world| world.recv(fd, to))
    }

    #[inline]
    fn send(&mut self, fd: RawFd, _kind: SourceKind, bytes: &[u8]) -> isize {
        let parts = [IoSlice::new(bytes)];
        self.call(Call::Send, fd, |world| world.send(fd, &parts))
    }

    fn recv_vectored(&mut self, fd: RawFd, _kind: SourceKind, to: &mut [Target<'_>]) -> Received {
        self.call(Call::RecvMsg, fd, |world| world.recv(fd, to))
    }

    fn send_vectored(&mut self, fd: RawFd, _kind: SourceKind, parts: &[IoSlice<'_>]) -> isize {
        self.call(Call::SendMsg, fd, |world| world.send(fd, parts))
    }

    fn recv_from(
        &mut self,
        fd: RawFd,
        _kind: SourceKind,
        to: &mut [Target<'_>],
        from: &mut Address,
    ) -> Received {
        self.call(Call::RecvMsg, fd, |world| world.recv_from(fd, to, from))
    }

    fn send_to(&mut self, fd: RawFd, bytes: &[u8], to: &Address) -> isize {
        let home = self.home;
        self.call(Call::SendMsg, fd, |world| world.send_to(fd, bytes, to, home))
    }

    /// As many as one call takes on Linux.
    fn datagrams_per_call(&self, _sends: bool) -> usize {
        32
    }

    fn recv_many(
        &mut self,
        fd: RawFd,
        _kind: SourceKind,
        to: &mut [Target<'_>],
        from: &mut [Address],
        got: &mut [Received],
    ) -> isize {
        self.call(Call::RecvMmsg, fd, |world| world.recv_many(fd, to, from, got))
    }

    fn send_many(&mut self, fd: RawFd, datagrams: &[(&[u8], &Address)]) -> isize {
        let home = self.home;
        self.call(Call::SendMmsg, fd, |world| world.send_many(fd, datagrams, home))
    }

    fn recv_descriptors(
        &mut self,
        _fd: RawFd,
        _kind: SourceKind,
        _to: &mut [Target<'_>],
        _descriptors: &mut Vec<OwnedFd>,
    ) -> (Received, bool) {
        (Received::plain(-(libc::EOPNOTSUPP as isize)), false)
    }

    fn send_descriptors(&mut self, _fd: RawFd, _bytes: &[u8], _descriptors: &[OwnedFd]) -> isize {
        -(libc::EOPNOTSUPP as isize)
    }

    fn accept(&mut self, fd: RawFd, _kind: SourceKind) -> Result<Handle, i32> {
        let accepted = self.call(Call::Accept, fd, |world| {
            let end = world.accept(fd);
            end.map(|end| (end, Sim::kind_of(world, end), world.accepted_from(end)))
        });
        accepted.map(|(end, kind, peer)| Handle::from_virtual(end, kind, peer, self.owner()))
    }

    fn shed_connection(&mut self, fd: RawFd) {
        self.call(Call::Accept, fd, |world| world.drop_connection(fd))
    }

    fn connect(
        &mut self,
        to: &Address,
        prepared: Option<OwnedFd>,
    ) -> Result<(RawFd, SourceKind, Connecting), i32> {
        if prepared.is_some() {
            return Err(libc::EOPNOTSUPP);
        }
        if self.has_crashed() {
            return Err(libc::ENETDOWN);
        }
        let (selector, home) = (self.selector as RawFd, self.home);
        self.call(Call::Connect, selector, |world| {
            let answer = world.connect(to, home);
            answer.map(|(fd, how)| (fd, Sim::kind_of(world, fd), how))
        })
    }

    fn connect_again(&mut self, fd: RawFd, _to: &Address) -> Result<Connecting, i32> {
        self.call(Call::Connect, fd, |world| world.connect_again(fd))
    }

    fn connect_result(&mut self, fd: RawFd) -> i32 {
        self.call(Call::GetSockOpt, fd, |world| world.connect_result(fd))
    }

    fn shutdown(&mut self, fd: RawFd) -> isize {
        self.call(Call::Shutdown, fd, |world| world.shutdown(fd))
    }

    fn poll(&mut self, fd: RawFd, interest: Ready) -> Result<Ready, i32> {
        let asked = interest | Ready::ALWAYS;
        Ok(self.call(Call::Poll, fd, |world| world.conditions(fd as u32).intersection(asked)))
    }

    fn signals(&mut self, signals: &[i32]) -> Result<RawFd, i32> {
        let home = self.home;
        self.call(Call::SigAction, -1, |world| world.signals(signals, home))
    }

    fn take_signal(&mut self, fd: RawFd) -> Result<i32, i32> {
        self.call(Call::Recv, fd, |world| world.take_signal(fd))
    }

    fn child(&mut self, pid: u32) -> Result<RawFd, i32> {
        let home = self.home;
        self.call(Call::WaitId, -1, |world| world.child(pid, home))
    }

    fn take_exit(&mut self, fd: RawFd) -> Result<ExitStatus, i32> {
        self.call(Call::WaitId, fd, |world| world.take_exit(fd))
    }

    fn listen(&mut self, at: &Address, options: ListenOptions) -> io::Result<Handle> {
        if self.has_crashed() {
            return Err(os_error(libc::ENETDOWN));
        }
        let fd = self.enter().listen(at, options, self.home)?;
        Ok(Handle::from_virtual(fd, SourceKind::Listener, None, self.owner()))
    }

    fn bind_datagram(&mut self, at: &Address, options: DatagramOptions) -> io::Result<Handle> {
        if self.has_crashed() {
            return Err(os_error(libc::ENETDOWN));
        }
        let fd = self.enter().datagram(at, options, self.home)?;
        Ok(Handle::from_virtual(fd, SourceKind::Datagram, None, self.owner()))
    }

    fn local_address(&self, fd: RawFd) -> io::Result<Address> {
        Ok(self.enter().local_address(fd))
    }

    fn peer_address(&self, fd: RawFd) -> io::Result<Address> {
        self.enter().peer_address(fd)
    }

    fn connect_datagram(&mut self, fd: RawFd, peer: &Address) -> io::Result<()> {
        let home = self.home;
        self.enter().connect_datagram(fd, peer, home)
    }

    fn set_option(&mut self, fd: RawFd, option: SocketOption) -> io::Result<()> {
        if let SocketOption::Linger(span) = option {
            let flags = &mut self.enter().sockets[fd as usize].flags;
            *flags = *flags & !RESETS | if span == Some(Duration::ZERO) { RESETS } else { 0 };
        }
        Ok(())
    }

    fn borrow(&self, _fd: RawFd) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl<const C: bool> Sim<C> {
    /// Whether the machine of this watcher has crashed.
    pub(super) fn has_crashed(&self) -> bool {
        self.enter().schedule.has_crashed(self.selector)
    }

    /// A wait on a machine that has crashed. What was begun there ends with an error, so that the
    /// watcher can be dropped.
    #[cold]
    fn select_crashed(&mut self) -> io::Result<usize> {
        self.events.clear();
        let mut events = std::mem::take(&mut self.events);
        self.crash_entries(&mut events);
        if self.crash_jobs() && events.is_empty() {
            events.push((FILES, Ready::READABLE));
        }
        self.events = events;
        match self.events.len() {
            0 => {
                let text = "the machine of this watcher has crashed: nothing can happen here";
                Err(io::Error::new(io::ErrorKind::Deadlock, text))
            }
            count => Ok(count),
        }
    }
}

#[cold]
fn deadlock(others: bool) -> io::Error {
    let text = if others {
        "the simulation would block for ever: nothing can happen to this watcher before another \
         one in its thread, which has events to take, has run"
    } else {
        "the simulation would block for ever: nothing is left that could happen"
    };
    io::Error::new(io::ErrorKind::Deadlock, text)
}
