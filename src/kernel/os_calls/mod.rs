//! The calls of the system on descriptors.

#![allow(unsafe_code)]
//! # Safety
//!
//! Only the promise of `Calls` is made here; the calls themselves stand in `sys`.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::process::ExitStatus;

use super::batches::Batches;
use super::calls::Calls;
use super::process_fds::OfProcess;
use super::{Connecting, Received};
use crate::driver::endpoint::{DatagramOptions, ListenOptions};
use crate::file::{self, FileFacts, FileList};
use crate::memory::buf::Target;
use crate::sys::addr::RawAddress;
use crate::sys::fd::{AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use crate::sys::interest::Ready;
use crate::sys::socket_option::{Listen, SocketOption};
use crate::sys::{closing, datagrams, descriptor, fs, net, os_errno, os_error};
use crate::words::address::Address;
use crate::words::error::Refusal;
use crate::words::explain::Explain;
use crate::words::source::{Handle, SourceKind};

macro_rules! calls {
    ($($name:ident),*) => {
        #[derive(Default)]
        pub(crate) struct SyscallCounts { $(pub(crate) $name: u64),* }
        impl SyscallCounts {
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

/// The calls of the system.
#[derive(Default)]
pub struct OsCalls {
    pub(crate) counts: SyscallCounts,
    /// A spare descriptor. When descriptors run out, it is closed, so that a connection can be
    /// accepted and dropped.
    spare: Option<OwnedFd>,
    /// Listeners whose connections are neither TCP nor Unix sockets: the kind of each connection is
    /// queried.
    odd_listeners: Vec<RawFd>,
    /// Connections of records that other code shares, and whether their records are marked. If not,
    /// they are marked during each receive.
    shared_records: Vec<(RawFd, bool)>,
    batches: Batches,
    /// In a cell, because a forked child moves these descriptors out of the parent's kernel, which
    /// the child only borrows.
    of_process: RefCell<OfProcess>,
}

impl OsCalls {
    pub(crate) fn new() -> OsCalls {
        OsCalls { spare: descriptor::spare(), ..OsCalls::default() }
    }

    /// Closes a descriptor that no selector knows any more.
    pub(crate) fn close(&mut self, fd: RawFd) {
        self.counts.close += 1;
        self.forget(fd);
        if self.of_process.get_mut().close(fd) {
            return;
        }
        // Errors of close(2) on sockets and pipes mean nothing; `Op::close` reports those of files.
        let _ = descriptor::close(fd);
    }

    /// Gives a descriptor away.
    pub(crate) fn release(&mut self, fd: RawFd, kind: SourceKind) -> Handle {
        let shared = self.forget(fd);
        let peer = match kind {
            SourceKind::Stream => net::peer(fd).ok().and_then(|raw| raw.ip()),
            _ => None,
        };
        // A descriptor that blocks again, or marks no records, must be prepared anew when it is
        // attached next.
        let records = kind == SourceKind::Seqpacket;
        if records && !shared {
            net::mark_records(fd, false);
        }
        let blocks = || !net::FLAGS_PER_CALL && !descriptor::is_nonblocking(fd).unwrap_or(false);
        let ready = !records && !blocks();
        let kind = if ready { kind } else { SourceKind::Unknown };
        Handle::with_kind(descriptor::own(fd), kind, peer).worn()
    }

    /// The descriptor is gone. Whether it was a connection of records that other code shares.
    fn forget(&mut self, fd: RawFd) -> bool {
        self.odd_listeners.retain(|&listener| listener != fd);
        let before = self.shared_records.len();
        self.shared_records.retain(|&(shared, _)| shared != fd);
        self.shared_records.len() < before
    }

    /// Receives from a socket. The records of one that other code shares are marked meanwhile.
    fn receive<R>(&self, fd: RawFd, receive: impl FnOnce() -> R) -> R {
        self.mark_shared(fd, true);
        let received = receive();
        self.mark_shared(fd, false);
        received
    }

    #[inline]
    fn mark_shared(&self, fd: RawFd, on: bool) {
        if !self.shared_records.is_empty() && self.shared_records.contains(&(fd, false)) {
            net::mark_records(fd, on);
        }
    }

    /// Adds rows about datagrams that are received or sent together.
    pub(crate) fn explain_batches(&self, explain: &mut Explain) {
        self.batches.explain(explain, self.counts.recvmmsg, self.counts.sendmmsg);
    }

    /// Takes over the descriptors of signals and children from the kernel before a fork.
    pub(crate) fn inherit(&mut self, parents: &OsCalls) -> io::Result<()> {
        parents.of_process.borrow_mut().renew().map_err(os_error)?;
        self.of_process = RefCell::new(parents.of_process.take());
        self.odd_listeners.clone_from(&parents.odd_listeners);
        self.shared_records.clone_from(&parents.shared_records);
        Ok(())
    }

    /// System calls by name.
    pub(crate) fn named(&self) -> Vec<(&'static str, u64)> {
        self.counts.named()
    }

    /// Whether a receive of `moved` bytes met the end of a connection of records, and no record.
    #[inline]
    fn is_end(&mut self, fd: RawFd, kind: SourceKind, moved: isize, flags: i32) -> bool {
        if moved != 0 || kind != SourceKind::Seqpacket || flags & net::RECORD != 0 {
            return false;
        }
        self.counts.poll += 1;
        net::is_shut(fd)
    }

    /// Receives from a descriptor that is not a stream socket.
    #[inline(never)]
    fn recv_other(&mut self, fd: RawFd, kind: SourceKind, mut to: Target<'_>) -> Received {
        match kind {
            SourceKind::Pollable => {
                self.counts.read += 1;
                Received::plain(descriptor::read(fd, to))
            }
            SourceKind::SharedPollable => {
                self.counts.read += 1;
                let moved = descriptor::read_nowait(fd, to.skip(0));
                if moved != -(libc::EOPNOTSUPP as isize) || !descriptor::is_pipe(fd) {
                    return Received::plain(moved);
                }
                // A pipe that cannot be opened anew, on a system without RWF_NOWAIT for pipes
                // (macOS, Linux before 6.4): ask poll(2) first. Another reader may take the bytes
                // in between; then this read waits for the next ones.
                match self.poll(fd, Ready::READABLE) {
                    Ok(ready) if ready.is_empty() => Received::plain(-(libc::EAGAIN as isize)),
                    Ok(_) => Received::plain(descriptor::read(fd, to)),
                    Err(errno) => Received::plain(-(errno as isize)),
                }
            }
            // A message that is longer than the memory is cut.
            _ => {
                self.counts.recvmsg += 1;
                let (moved, flags) = self.receive(fd, || net::recv_vectored(fd, &mut [to], None));
                let cut = flags & (net::CONTROL_CUT | net::CUT) != 0;
                Received { moved, cut, end: self.is_end(fd, kind, moved, flags) }
            }
        }
    }

    #[inline(never)]
    fn write_other(&mut self, fd: RawFd, kind: SourceKind, bytes: &[u8]) -> isize {
        self.counts.write += 1;
        if kind != SourceKind::SharedPollable {
            return descriptor::write(fd, bytes);
        }
        let moved = descriptor::write_nowait(fd, bytes);
        if moved != -(libc::EOPNOTSUPP as isize) || !descriptor::is_pipe(fd) {
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

// SAFETY: the system answers how many bytes it has written, and the wrappers pass that on.
unsafe impl Calls for OsCalls {
    fn accepts(&self, handle: &Handle) -> bool {
        !handle.is_virtual()
    }

    fn prepare(
        &mut self,
        fd: RawFd,
        kind: SourceKind,
        shared: bool,
    ) -> Result<(SourceKind, bool), Refusal> {
        let reason = |error: io::Error| match os_errno(&error) {
            Some(errno) => Refusal::Os(errno),
            None => Refusal::Unsupported,
        };
        self.counts.getsockopt += 1;
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
        match (kind, shared) {
            (SourceKind::Seqpacket, false) => net::mark_records(fd, true),
            (SourceKind::Seqpacket, true) => {
                self.shared_records.push((fd, net::are_records_marked(fd)));
            }
            _ => {}
        }
        if kind == SourceKind::File {
            return Ok((kind, false));
        }
        if net::FLAGS_PER_CALL && !matches!(kind, SourceKind::Pollable | SourceKind::Listener) {
            return Ok((kind, false));
        }
        self.counts.fcntl += 1;
        if descriptor::is_nonblocking(fd).map_err(reason)? {
            return Ok((kind, false));
        }
        match (kind, shared) {
            (_, false) => {
                descriptor::set_nonblocking(fd, true).map_err(reason)?;
                Ok((kind, true))
            }
            (SourceKind::Pollable, true) => match descriptor::reopen(fd).map_err(reason)? {
                true => Ok((SourceKind::Pollable, true)),
                false => Ok((SourceKind::SharedPollable, false)),
            },
            // accept4(2) has no flag like MSG_DONTWAIT, so the driver can only wait for
            // connections, not take them.
            (SourceKind::Listener, true) => Ok((SourceKind::SharedPollable, false)),
            // macOS does not know that flag either.
            (_, true) => Err(Refusal::Unsupported),
        }
    }

    fn file_facts(&mut self, fd: RawFd) -> FileFacts {
        self.counts.fcntl += 2;
        FileFacts::of(fd)
    }

    #[inline(always)]
    fn read_now(&mut self, fd: RawFd, to: Target<'_>, offset: u64) -> isize {
        self.counts.preadv2 += 1;
        fs::read_now(fd, to, offset)
    }

    fn read_list_now(&mut self, fd: RawFd, to: FileList<'_>, offset: u64) -> isize {
        self.counts.preadv2 += 1;
        fs::read_list_now(fd, to.vectors(), offset)
    }

    fn forbid_blocking(&mut self, fd: RawFd, shared: bool) -> Result<bool, Refusal> {
        let errno = |error: io::Error| Refusal::Os(os_errno(&error).unwrap_or(libc::EIO));
        self.counts.fcntl += 1;
        if descriptor::is_nonblocking(fd).map_err(errno)? {
            return Ok(false);
        }
        if shared {
            return Err(Refusal::Unsupported);
        }
        self.counts.fcntl += 1;
        descriptor::set_nonblocking(fd, true).map_err(errno)?;
        Ok(true)
    }

    fn send_file(&mut self, socket: RawFd, fd: RawFd, offset: u64, len: usize) -> isize {
        self.counts.sendfile += 1;
        match file::send(socket, fd, offset, len as u64) {
            (0, Err(errno)) => -(errno as isize),
            (moved, _) => moved as isize,
        }
    }

    fn may_wait_to_close(&mut self, fd: RawFd, kind: SourceKind, own: bool) -> bool {
        self.counts.getsockopt += u64::from(kind.is_socket());
        closing::may_wait(fd, kind, own)
    }

    fn restore(&mut self, fd: RawFd) {
        self.counts.fcntl += 1;
        let _ = descriptor::set_nonblocking(fd, false);
    }

    #[inline(always)]
    fn recv(&mut self, fd: RawFd, kind: SourceKind, to: Target<'_>) -> Received {
        if kind == SourceKind::Stream {
            self.counts.recv += 1;
            Received::plain(net::recv(fd, to))
        } else if kind == SourceKind::UnixStream {
            self.counts.recvmsg += 1;
            let (moved, cut) = net::recv_unix(fd, to);
            Received { moved, cut, end: false }
        } else {
            self.recv_other(fd, kind, to)
        }
    }

    #[inline(always)]
    fn send(&mut self, fd: RawFd, kind: SourceKind, bytes: &[u8]) -> isize {
        if kind.is_socket() {
            self.counts.send += 1;
            net::send(fd, bytes)
        } else {
            self.write_other(fd, kind, bytes)
        }
    }

    fn recv_vectored(&mut self, fd: RawFd, kind: SourceKind, to: &mut [Target<'_>]) -> Received {
        if kind.is_socket() {
            self.counts.recvmsg += 1;
            let (moved, flags) = self.receive(fd, || net::recv_vectored(fd, to, None));
            let cut = flags & (net::CONTROL_CUT | net::CUT) != 0;
            Received { moved, cut, end: self.is_end(fd, kind, moved, flags) }
        } else if kind == SourceKind::SharedPollable {
            let first = to.first_mut().map(|target| target.skip(0));
            first.map_or(Received::plain(0), |target| self.recv(fd, kind, target))
        } else {
            self.counts.read += 1;
            Received::plain(descriptor::read_vectored(fd, to))
        }
    }

    fn send_vectored(&mut self, fd: RawFd, kind: SourceKind, parts: &[IoSlice<'_>]) -> isize {
        if kind.is_socket() {
            self.counts.sendmsg += 1;
            net::send_vectored(fd, parts, None)
        } else if kind == SourceKind::SharedPollable {
            parts.first().map_or(0, |part| self.send(fd, kind, part))
        } else {
            self.counts.write += 1;
            descriptor::write_vectored(fd, parts)
        }
    }

    fn recv_from(
        &mut self,
        fd: RawFd,
        kind: SourceKind,
        to: &mut [Target<'_>],
        from: &mut Address,
    ) -> Received {
        self.counts.recvmsg += 1;
        let from = Some(from.raw_mut());
        let (moved, flags) = self.receive(fd, || net::recv_vectored(fd, to, from));
        let end = self.is_end(fd, kind, moved, flags);
        Received { moved, cut: flags & net::CUT != 0, end }
    }

    fn send_to(&mut self, fd: RawFd, bytes: &[u8], to: &Address) -> isize {
        self.counts.sendmsg += 1;
        let to = if to.raw().len() == 0 { None } else { Some(to.raw()) };
        net::send_vectored(fd, &[IoSlice::new(bytes)], to)
    }

    fn datagrams_per_call(&self, sends: bool) -> usize {
        if self.batches.are_denied(sends) { 1 } else { datagrams::MOST }
    }

    fn recv_many(
        &mut self,
        fd: RawFd,
        kind: SourceKind,
        to: &mut [Target<'_>],
        from: &mut [Address],
        got: &mut [Received],
    ) -> isize {
        self.counts.recvmmsg += 1;
        self.mark_shared(fd, true);
        // At the end of a connection of records, every further message of the call is empty.
        let mut end = None;
        let tell = |i: usize, len: usize, flags: i32| {
            let moved = len as isize;
            got[i] = Received { cut: flags & net::CUT != 0, ..Received::plain(moved) };
            if end.is_none() && self.is_end(fd, kind, moved, flags) {
                end = Some(i);
            }
        };
        let mut count = datagrams::recv(fd, to, from, tell);
        self.mark_shared(fd, false);
        if let Some(end) = end {
            got[end].end = true;
            count = end as isize + 1;
        }
        self.batches.note(false, count)
    }

    fn send_many(&mut self, fd: RawFd, datagrams: &[(&[u8], &Address)]) -> isize {
        self.counts.sendmmsg += 1;
        let count = datagrams::send(fd, datagrams);
        self.batches.note(true, count)
    }

    fn recv_descriptors(
        &mut self,
        fd: RawFd,
        kind: SourceKind,
        to: &mut [Target<'_>],
        descriptors: &mut Vec<OwnedFd>,
    ) -> (Received, bool) {
        self.counts.recvmsg += 1;
        let (moved, flags) = self.receive(fd, || net::recv_descriptors(fd, to, descriptors));
        let (cut, lost) = (flags & net::CUT != 0, flags & net::CONTROL_CUT != 0);
        (Received { moved, cut, end: self.is_end(fd, kind, moved, flags) }, lost)
    }

    fn send_descriptors(&mut self, fd: RawFd, bytes: &[u8], descriptors: &[OwnedFd]) -> isize {
        self.counts.sendmsg += 1;
        net::send_descriptors(fd, bytes, descriptors)
    }

    fn accept(&mut self, fd: RawFd, _listener: SourceKind) -> Result<Handle, i32> {
        self.counts.accept += 1;
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
            self.counts.getsockopt += 1;
            let kind = net::unix_kind(accepted as RawFd);
            if kind == SourceKind::Seqpacket {
                net::mark_records(accepted as RawFd, true);
            }
            kind
        };
        Ok(Handle::with_kind(owned, kind, peer.ip()))
    }

    fn shed_connection(&mut self, fd: RawFd) {
        if self.spare.take().is_some() {
            self.counts.accept += 1;
            let dropped = net::accept(fd, &mut RawAddress::default());
            if dropped >= 0 {
                self.counts.close += 1;
                // It may linger as its listener does.
                closing::close(dropped as RawFd, SourceKind::Unknown);
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
                // The program's socket may be of any kind.
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
        self.counts.connect += 1;
        match -net::connect(fd, to.raw()) as i32 {
            0 => Ok(Connecting::Done),
            // A signal came. The connection goes on, as after EINPROGRESS (connect(2)).
            libc::EINPROGRESS | libc::EINTR => Ok(Connecting::GoesOn),
            // On a Unix socket this means that the backlog is full (unix(7)); on an internet
            // socket, that ports have run out.
            libc::EAGAIN if to.raw().is_unix() => Ok(Connecting::Full),
            errno => Err(errno),
        }
    }

    fn connect_result(&mut self, fd: RawFd) -> i32 {
        self.counts.getsockopt += 1;
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
        self.counts.shutdown += 1;
        net::shutdown_write(fd)
    }

    fn poll(&mut self, fd: RawFd, interest: Ready) -> Result<Ready, i32> {
        self.counts.poll += 1;
        descriptor::poll_now(fd, interest)
    }

    fn signals(&mut self, signals: &[i32]) -> Result<RawFd, i32> {
        self.counts.sigaction += 1;
        self.of_process.get_mut().signals(signals)
    }

    fn take_signal(&mut self, fd: RawFd) -> Result<i32, i32> {
        self.of_process.get_mut().take_signal(fd)
    }

    fn child(&mut self, pid: u32) -> Result<RawFd, i32> {
        self.counts.waitid += 1;
        self.of_process.get_mut().child(pid)
    }

    fn take_exit(&mut self, fd: RawFd) -> Result<ExitStatus, i32> {
        self.counts.waitid += 1;
        self.of_process.get_mut().take_exit(fd)
    }

    fn listen(&mut self, at: &Address, options: ListenOptions) -> io::Result<Handle> {
        let how = Listen {
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
        option.set(fd)
    }

    fn borrow(&self, fd: RawFd) -> Option<BorrowedFd<'_>> {
        Some(descriptor::borrow(fd))
    }
}

#[cfg(test)]
mod tests;
