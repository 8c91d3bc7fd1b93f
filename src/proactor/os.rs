//! The system as the proactor's kernel: its selector, its sockets, its clock.

#![allow(unsafe_code)]
//! # Safety
//!
//! Only the promise of `Kernel` is made here; the calls themselves stand in `sys`.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::process::ExitStatus;
use std::sync::Arc;

use super::batches::Batches;
use super::kernel::{Connecting, FILES, Kernel, Received, WAKE};
use super::process::OfProcess;
use crate::address::Address;
use crate::buf::Target;
use crate::clock;
use crate::config::Config;
use crate::driver::{DatagramOptions, Explain, ListenOptions};
use crate::error::Reason;
use crate::file::engine::Engines;
use crate::file::{self, FileAnswer, FileFacts, FileList, FileRequest};
use crate::interest::{Mode, Ready};
use crate::remote::Wake;
use crate::slots;
use crate::socket_option::SocketOption;
use crate::source::{Handle, SourceKind};
use crate::sys::addr::RawAddress;
use crate::sys::fd::{AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use crate::sys::waker::Waker;
use crate::sys::{Select, Selector, datagrams, descriptor, fs, net, os_errno, os_error};

macro_rules! calls {
    ($($name:ident),*) => {
        #[derive(Default)]
        struct Calls { $($name: u64),* }
        impl Calls {
            fn named(&self) -> Vec<(&'static str, u64)> {
                let all = [$((stringify!($name), self.$name)),*];
                all.into_iter().filter(|(_, count)| *count > 0).collect()
            }
        }
    };
}

calls!(
    preadv2, sendfile, wait, register, recv, recvmsg, recvmmsg, send, sendmsg, sendmmsg, read,
    write, accept, connect, shutdown, poll, close, fcntl, getsockopt, sigaction, waitid
);

/// The system's kernel, on its own selector or another.
pub struct Os<S: Select = Selector> {
    selector: S,
    waker: Arc<Ender>,
    calls: Calls,
    spare: Option<OwnedFd>,
    /// Listeners whose connections are neither TCP nor Unix sockets: the kind of each connection is
    /// queried.
    odd_listeners: Vec<RawFd>,
    engines: Engines,
    batches: Batches,
    /// In a cell, because a forked child takes them out of the kernel of before the fork.
    of_process: RefCell<OfProcess>,
}

/// Has a selector watch the eventfd that reports finished file work.
fn watch<S: Select>(selector: &mut S, fd: RawFd) -> io::Result<()> {
    selector.add(fd, FILES, Ready::READABLE, Mode::Edge)
}

/// Ends the wait.
struct Ender(Waker);

impl Wake for Ender {
    fn wake(&self) {
        self.0.signal();
    }
}

impl<S: Select> Os<S> {
    /// Opens the selector. Its first operation opens a file engine; an engine chosen by name opens
    /// now.
    pub(crate) fn new(config: &Config) -> io::Result<Os<S>> {
        let mut os = Os::without_engines(config.events_per_wait)?;
        os.engines = Engines::new(config, S::EDGES)?;
        os.engines.open_named(|fd| watch(&mut os.selector, fd))?;
        Ok(os)
    }

    /// Opens the selector, which takes at most `events` events per wait. Threads do all file work.
    pub(crate) fn without_engines(events: usize) -> io::Result<Os<S>> {
        clock::start();
        let mut selector = S::new(events)?;
        let waker = Arc::new(Ender(selector.waker(WAKE)?));
        let spare = descriptor::spare();
        let (calls, engines) = (Calls::default(), Engines::none());
        let (odd_listeners, of_process) = (Vec::new(), RefCell::default());
        let batches = Batches::default();
        Ok(Os { selector, waker, calls, spare, odd_listeners, engines, batches, of_process })
    }

    /// Adds rows about datagrams that are received or sent together.
    pub(crate) fn explain_batches(&self, explain: &mut Explain) {
        self.batches.explain(explain, self.calls.recvmmsg, self.calls.sendmmsg);
    }

    /// Takes over the descriptors of signals and children from the kernel before a fork.
    pub(crate) fn inherit<T: Select>(&mut self, parents: &Os<T>) -> io::Result<()> {
        parents.of_process.borrow_mut().renew().map_err(os_error)?;
        self.of_process = RefCell::new(parents.of_process.take());
        Ok(())
    }
}

// SAFETY: the system answers how many bytes it has written, and the wrappers pass that on.
unsafe impl<S: Select> Kernel for Os<S> {
    const EDGES: bool = S::EDGES;
    const QUIET_WRITES: bool = S::QUIET_WRITES;
    const FILES: bool = true;

    fn name(&self) -> &'static str {
        S::NAME
    }

    fn waits_finely(&self) -> bool {
        self.selector.waits_finely()
    }

    fn renew(&self, config: &Config) -> io::Result<Os<S>> {
        let mut os = Os::new(config)?;
        os.inherit(self)?;
        Ok(os)
    }

    fn start(&mut self) -> u32 {
        slots::another_start()
    }

    #[inline]
    fn now_ns(&self) -> u64 {
        clock::now_ns()
    }

    #[inline]
    fn select(&mut self, timeout_ns: Option<u64>) -> io::Result<usize> {
        self.calls.wait += 1;
        // What failed at submission makes no event.
        let timeout_ns = if self.engines.flush() { Some(0) } else { timeout_ns };
        self.selector.select(timeout_ns)
    }

    #[inline(always)]
    fn event(&self, i: usize) -> (u64, Ready) {
        self.selector.event(i)
    }

    fn register(&mut self, fd: RawFd, key: u64, writes: bool, _again: bool) -> Result<(), i32> {
        if !S::EDGES {
            // The selector is told before each wait.
            return Ok(());
        }
        self.calls.register += 1;
        let on = Ready::READABLE | Ready::PRIORITY;
        let on = if writes { on | Ready::WRITABLE } else { on };
        let errno = |e: io::Error| os_errno(&e).unwrap_or(libc::EIO);
        match self.selector.add(fd, key, on, Mode::Edge).map_err(errno) {
            // Writes are added; or the number was registered and closed while a duplicate kept the
            // registration alive.
            Err(libc::EEXIST) => {
                self.calls.register += 1;
                self.selector.modify(fd, key, on, Mode::Edge).map_err(errno)
            }
            answer => answer,
        }
    }

    #[inline(always)]
    fn arm(&mut self, fd: RawFd, key: u64, on: Option<Ready>) {
        self.selector.arm(fd, key, on);
    }

    fn deregister(&mut self, fd: RawFd, _key: u64) {
        self.calls.register += 1;
        // ENOENT and EBADF: the registration is gone already.
        let _ = self.selector.remove(fd);
    }

    fn waker(&self) -> Arc<dyn Wake> {
        Arc::clone(&self.waker) as Arc<dyn Wake>
    }

    fn accepts(&self, handle: &Handle) -> bool {
        !handle.is_virtual()
    }

    fn prepare(
        &mut self,
        fd: RawFd,
        kind: SourceKind,
        shared: bool,
    ) -> Result<(SourceKind, bool), Reason> {
        let reason = |error: io::Error| match os_errno(&error) {
            Some(errno) => Reason::Os(errno),
            None => Reason::Unsupported,
        };
        self.calls.getsockopt += 1;
        let kind = match kind {
            SourceKind::Unknown => {
                let kind = descriptor::kind_of(fd).map_err(reason)?;
                if kind == SourceKind::Listener && !net::listens_to_bytes(fd).map_err(reason)? {
                    self.odd_listeners.push(fd);
                }
                kind
            }
            known => known,
        };
        if kind.is_socket() {
            net::quiet(fd);
        }
        if kind == SourceKind::File {
            return Ok((kind, false));
        }
        if net::FLAGS_PER_CALL && !matches!(kind, SourceKind::Pollable | SourceKind::Listener) {
            return Ok((kind, false));
        }
        self.calls.fcntl += 1;
        if descriptor::is_nonblocking(fd).map_err(reason)? {
            return Ok((kind, false));
        }
        match (kind, shared) {
            (_, false) => {
                descriptor::set_nonblocking(fd, true).map_err(reason)?;
                Ok((kind, true))
            }
            (SourceKind::Pollable, true) => Ok((SourceKind::SharedPollable, false)),
            // accept4(2) knows no flag like MSG_DONTWAIT: connections cannot be taken, only waited
            // for.
            (SourceKind::Listener, true) => Ok((SourceKind::SharedPollable, false)),
            // macOS does not know that flag either.
            (_, true) => Err(Reason::Unsupported),
        }
    }

    fn file_facts(&mut self, fd: RawFd) -> FileFacts {
        self.calls.fcntl += 2;
        FileFacts::of(fd)
    }

    #[inline]
    fn read_now(&mut self, fd: RawFd, to: Target<'_>, offset: u64) -> isize {
        self.calls.preadv2 += 1;
        fs::read_now(fd, to, offset)
    }

    fn read_list_now(&mut self, fd: RawFd, to: FileList<'_>, offset: u64) -> isize {
        self.calls.preadv2 += 1;
        fs::read_list_now(fd, to.vectors(), offset)
    }

    fn start_file(&mut self, request: FileRequest<'_>, facts: FileFacts) -> bool {
        self.engines.start(request, facts, |fd| watch(&mut self.selector, fd))
    }

    fn stop_file(&mut self, key: u64) {
        self.engines.stop(key);
    }

    fn has_file_answers(&self) -> bool {
        self.engines.has_answers()
    }

    fn file_answer(&mut self) -> Option<FileAnswer> {
        self.engines.answer()
    }

    fn forbid_blocking(&mut self, fd: RawFd, shared: bool) -> Result<bool, Reason> {
        let errno = |error: io::Error| Reason::Os(os_errno(&error).unwrap_or(libc::EIO));
        self.calls.fcntl += 1;
        if descriptor::is_nonblocking(fd).map_err(errno)? {
            return Ok(false);
        }
        if shared {
            return Err(Reason::Unsupported);
        }
        self.calls.fcntl += 1;
        descriptor::set_nonblocking(fd, true).map_err(errno)?;
        Ok(true)
    }

    fn send_file(&mut self, socket: RawFd, fd: RawFd, offset: u64, len: usize) -> isize {
        self.calls.sendfile += 1;
        match file::send(socket, fd, offset, len as u64) {
            (0, Err(errno)) => -(errno as isize),
            (moved, _) => moved as isize,
        }
    }

    fn restore(&mut self, fd: RawFd) {
        self.calls.fcntl += 1;
        let _ = descriptor::set_nonblocking(fd, false);
    }

    fn close(&mut self, fd: RawFd) {
        self.calls.close += 1;
        if S::FORGETS_CLOSED {
            self.selector.forget(fd);
        } else {
            let _ = self.selector.remove(fd);
        }
        self.odd_listeners.retain(|&listener| listener != fd);
        if self.of_process.get_mut().close(fd) {
            return;
        }
        // Errors of close(2) on sockets and pipes mean nothing; `Op::close` reports those of files.
        let _ = descriptor::close(fd);
    }

    fn release(&mut self, fd: RawFd, kind: SourceKind) -> Handle {
        self.odd_listeners.retain(|&listener| listener != fd);
        let peer = match kind {
            SourceKind::Stream => net::peer(fd).ok().and_then(|raw| raw.ip()),
            _ => None,
        };
        // One that blocks again is made ready anew where it is attached next.
        let ready = net::FLAGS_PER_CALL || descriptor::is_nonblocking(fd).unwrap_or(false);
        let kind = if ready { kind } else { SourceKind::Unknown };
        Handle::with_kind(descriptor::own(fd), kind, peer).worn()
    }

    #[inline(always)]
    fn recv(&mut self, fd: RawFd, kind: SourceKind, to: Target<'_>) -> Received {
        if matches!(kind, SourceKind::Stream | SourceKind::UnixStream) {
            self.calls.recv += 1;
            Received::plain(net::recv(fd, to))
        } else {
            self.recv_other(fd, kind, to)
        }
    }

    #[inline(always)]
    fn send(&mut self, fd: RawFd, kind: SourceKind, bytes: &[u8]) -> isize {
        if kind.is_socket() {
            self.calls.send += 1;
            net::send(fd, bytes)
        } else {
            self.write_other(fd, kind, bytes)
        }
    }

    fn recv_vectored(&mut self, fd: RawFd, kind: SourceKind, to: &mut [Target<'_>]) -> Received {
        if kind.is_socket() {
            self.calls.recvmsg += 1;
            let (moved, flags) = net::recv_vectored(fd, to, None);
            Received { moved, cut: flags & (net::CONTROL_CUT | net::CUT) != 0 }
        } else if kind == SourceKind::SharedPollable {
            let first = to.first_mut().map(|target| target.skip(0));
            first.map_or(Received::plain(0), |target| self.recv(fd, kind, target))
        } else {
            self.calls.read += 1;
            Received::plain(descriptor::read_vectored(fd, to))
        }
    }

    fn send_vectored(&mut self, fd: RawFd, kind: SourceKind, parts: &[IoSlice<'_>]) -> isize {
        if kind.is_socket() {
            self.calls.sendmsg += 1;
            net::send_vectored(fd, parts, None)
        } else if kind == SourceKind::SharedPollable {
            parts.first().map_or(0, |part| self.send(fd, kind, part))
        } else {
            self.calls.write += 1;
            descriptor::write_vectored(fd, parts)
        }
    }

    fn recv_from(&mut self, fd: RawFd, to: &mut [Target<'_>], from: &mut Address) -> Received {
        self.calls.recvmsg += 1;
        let (moved, flags) = net::recv_vectored(fd, to, Some(from.raw_mut()));
        Received { moved, cut: flags & net::CUT != 0 }
    }

    fn send_to(&mut self, fd: RawFd, bytes: &[u8], to: &Address) -> isize {
        self.calls.sendmsg += 1;
        let to = if to.raw().len() == 0 { None } else { Some(to.raw()) };
        net::send_vectored(fd, &[IoSlice::new(bytes)], to)
    }

    fn datagrams_per_call(&self, sends: bool) -> usize {
        if self.batches.are_denied(sends) { 1 } else { datagrams::MOST }
    }

    fn recv_many(
        &mut self,
        fd: RawFd,
        to: &mut [Target<'_>],
        from: &mut [Address],
        got: &mut [Received],
    ) -> isize {
        self.calls.recvmmsg += 1;
        let tell = |i: usize, len: usize, cut| got[i] = Received { moved: len as isize, cut };
        let count = datagrams::recv(fd, to, from, tell);
        self.batches.note(false, count)
    }

    fn send_many(&mut self, fd: RawFd, datagrams: &[(&[u8], &Address)]) -> isize {
        self.calls.sendmmsg += 1;
        let count = datagrams::send(fd, datagrams);
        self.batches.note(true, count)
    }

    fn recv_descriptors(
        &mut self,
        fd: RawFd,
        to: &mut [Target<'_>],
        descriptors: &mut Vec<OwnedFd>,
    ) -> isize {
        self.calls.recvmsg += 1;
        net::recv_descriptors(fd, to, descriptors)
    }

    fn send_descriptors(&mut self, fd: RawFd, bytes: &[u8], descriptors: &[OwnedFd]) -> isize {
        self.calls.sendmsg += 1;
        net::send_descriptors(fd, bytes, descriptors)
    }

    fn accept(&mut self, fd: RawFd, _listener: SourceKind) -> Result<Handle, i32> {
        self.calls.accept += 1;
        let mut peer = RawAddress::default();
        let accepted = net::accept(fd, &mut peer);
        if accepted < 0 {
            return Err(-accepted as i32);
        }
        let owned = descriptor::own(accepted as RawFd);
        let kind = if !self.odd_listeners.is_empty() && self.odd_listeners.contains(&fd) {
            SourceKind::Unknown
        } else if peer.is_internet() {
            SourceKind::Stream
        } else {
            self.calls.getsockopt += 1;
            net::unix_kind(accepted as RawFd)
        };
        Ok(Handle::with_kind(owned, kind, peer.ip()))
    }

    fn relieve(&mut self, fd: RawFd) {
        if self.spare.take().is_some() {
            self.calls.accept += 1;
            let dropped = net::accept(fd, &mut RawAddress::default());
            if dropped >= 0 {
                self.close(dropped as RawFd);
            }
        }
        self.spare = descriptor::spare();
    }

    fn connect(
        &mut self,
        to: &Address,
        prepared: Option<OwnedFd>,
    ) -> Result<(RawFd, SourceKind, Connecting), i32> {
        let (socket, kind) = match prepared {
            Some(socket) => {
                let errno = |error: io::Error| os_errno(&error).unwrap_or(libc::ENOTSOCK);
                net::quiet(socket.as_raw_fd());
                // It may be of any kind.
                let kind = descriptor::kind_of(socket.as_raw_fd()).map_err(errno)?;
                descriptor::set_nonblocking(socket.as_raw_fd(), true).map_err(errno)?;
                (socket, kind)
            }
            None => {
                let kind =
                    if to.raw().is_unix() { SourceKind::UnixStream } else { SourceKind::Stream };
                (net::stream(to.raw().family())?, kind)
            }
        };
        let connecting = self.connect_again(socket.as_raw_fd(), to)?;
        Ok((socket.into_raw_fd(), kind, connecting))
    }

    fn connect_again(&mut self, fd: RawFd, to: &Address) -> Result<Connecting, i32> {
        self.calls.connect += 1;
        match -net::connect(fd, to.raw()) as i32 {
            0 => Ok(Connecting::Done),
            // A signal came: the connection goes on as if EINPROGRESS had been said (connect(2)).
            libc::EINPROGRESS | libc::EINTR => Ok(Connecting::GoesOn),
            // The backlog is full (unix(7)); internet sockets say it when ports have run out.
            libc::EAGAIN if to.raw().is_unix() => Ok(Connecting::Full),
            errno => Err(errno),
        }
    }

    fn connect_result(&mut self, fd: RawFd) -> i32 {
        self.calls.getsockopt += 1;
        match net::pending_error(fd) {
            // A connection in progress, or never begun, has no error either. An established
            // connection is writable and not hung up.
            0 => match self.poll(fd, Ready::WRITABLE) {
                Ok(ready) if ready.is_empty() => libc::EINPROGRESS,
                Ok(ready) if ready.intersects(Ready::HANGUP) => net::peer_error(fd),
                _ => 0,
            },
            errno => errno,
        }
    }

    fn shutdown(&mut self, fd: RawFd) -> isize {
        self.calls.shutdown += 1;
        net::shutdown_write(fd)
    }

    fn poll(&mut self, fd: RawFd, interest: Ready) -> Result<Ready, i32> {
        self.calls.poll += 1;
        descriptor::poll_now(fd, interest)
    }

    fn signals(&mut self, signals: &[i32]) -> Result<RawFd, i32> {
        self.calls.sigaction += 1;
        self.of_process.get_mut().signals(signals)
    }

    fn take_signal(&mut self, fd: RawFd) -> Result<i32, i32> {
        self.of_process.get_mut().take_signal(fd)
    }

    fn child(&mut self, pid: u32) -> Result<RawFd, i32> {
        self.calls.waitid += 1;
        self.of_process.get_mut().child(pid)
    }

    fn take_exit(&mut self, fd: RawFd) -> Result<ExitStatus, i32> {
        self.calls.waitid += 1;
        self.of_process.get_mut().take_exit(fd)
    }

    fn listen(&mut self, at: &Address, options: ListenOptions) -> io::Result<Handle> {
        let how = net::Listen {
            backlog: i32::try_from(options.backlog).unwrap_or(i32::MAX),
            reuse_port: options.reuse_port,
            nodelay: options.nodelay,
        };
        let socket = net::listen(at.raw(), how)?;
        Ok(Handle::with_kind(socket, SourceKind::Listener, None))
    }

    fn bind_datagram(&mut self, at: &Address, options: DatagramOptions) -> io::Result<Handle> {
        let socket = net::bind_datagram(at.raw(), options.reuse_port)?;
        Ok(Handle::with_kind(socket, SourceKind::Datagram, None))
    }

    fn local_address(&self, fd: RawFd) -> io::Result<Address> {
        net::local(fd).map(Address::from_raw)
    }

    fn peer_address(&self, fd: RawFd) -> io::Result<Address> {
        net::peer(fd).map(Address::from_raw)
    }

    fn connect_datagram(&mut self, fd: RawFd, peer: &Address) -> io::Result<()> {
        match net::connect(fd, peer.raw()) {
            0.. => Ok(()),
            errno => Err(io::Error::from_raw_os_error(-errno as i32)),
        }
    }

    fn set_option(&mut self, fd: RawFd, option: SocketOption) -> io::Result<()> {
        net::set_socket_option(fd, option)
    }

    fn borrow(&self, fd: RawFd) -> Option<BorrowedFd<'_>> {
        Some(descriptor::borrow(fd))
    }

    fn pollable(&self) -> Option<BorrowedFd<'_>> {
        self.selector.pollable()
    }

    fn system_calls(&self) -> Vec<(&'static str, u64)> {
        let mut calls = self.calls.named();
        calls.extend(self.engines.calls().into_iter().filter(|(_, count)| *count > 0));
        calls
    }

    fn explain(&self, explain: &mut Explain) {
        let (mechanism, reason) = self.selector.explain();
        explain.row("wait", mechanism, reason, self.calls.wait);
        explain.row("registration", S::NAME, S::REGISTRATION, self.calls.register);
        self.explain_batches(explain);
        self.engines.explain(explain);
    }
}

impl<S: Select> Os<S> {
    /// Receives from what is not a stream socket.
    #[inline(never)]
    fn recv_other(&mut self, fd: RawFd, kind: SourceKind, mut to: Target<'_>) -> Received {
        match kind {
            SourceKind::Pollable => {
                self.calls.read += 1;
                Received::plain(descriptor::read(fd, to))
            }
            SourceKind::SharedPollable => {
                self.calls.read += 1;
                let moved = descriptor::read_nowait(fd, to.skip(0));
                if moved != -(libc::EOPNOTSUPP as isize) {
                    return Received::plain(moved);
                }
                // No RWF_NOWAIT here: ask poll(2) first. Another reader of the shared description
                // may take the bytes in between; then this read blocks.
                match self.poll(fd, Ready::READABLE) {
                    Ok(ready) if ready.is_empty() => Received::plain(-(libc::EAGAIN as isize)),
                    Ok(_) => Received::plain(descriptor::read(fd, to)),
                    Err(errno) => Received::plain(-(errno as isize)),
                }
            }
            // A message that is longer than the memory is cut.
            _ => {
                self.calls.recvmsg += 1;
                let (moved, flags) = net::recv_vectored(fd, &mut [to], None);
                Received { moved, cut: flags & (net::CONTROL_CUT | net::CUT) != 0 }
            }
        }
    }

    #[inline(never)]
    fn write_other(&mut self, fd: RawFd, kind: SourceKind, bytes: &[u8]) -> isize {
        self.calls.write += 1;
        if kind != SourceKind::SharedPollable {
            return descriptor::write(fd, bytes);
        }
        let moved = descriptor::write_nowait(fd, bytes);
        if moved != -(libc::EOPNOTSUPP as isize) {
            return moved;
        }
        match self.poll(fd, Ready::WRITABLE) {
            Ok(ready) if ready.is_empty() => -(libc::EAGAIN as isize),
            // A pipe that polls writable takes PIPE_BUF bytes without blocking (pipe(7)).
            Ok(_) => descriptor::write(fd, &bytes[..bytes.len().min(descriptor::PIPE_BUF)]),
            Err(errno) => -(errno as isize),
        }
    }
}
