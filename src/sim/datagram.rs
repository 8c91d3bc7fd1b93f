//! Datagram sockets, each with a mailbox: a bounded queue of datagrams (letters) and their senders.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::{io, slice};

use super::names::wildcards;
use crate::driver::endpoint::DatagramOptions;
use crate::kernel::Received;
use crate::memory::buf::Target;
use crate::sim::faults::Fault;
use crate::sim::names::{Name, os};
use crate::sim::world::{INTERNET, Role, World, refuse};
use crate::sys::fd::RawFd;
use crate::words::address::Address;

/// Most bytes of a datagram (UDP's over IPv4).
const MOST_DATAGRAM: usize = 65_507;
/// Each datagram counts for this many bytes besides its own, so that a queue of empty datagrams is
/// bounded, too.
pub(super) const LETTER_BYTES: usize = 64;

#[derive(Default)]
pub(super) struct Mailbox {
    pub(super) letters: VecDeque<(Name, Box<[u8]>)>,
    pub(super) bytes: usize,
    shared: bool,
    /// Senders that have found the mailbox full.
    pub(super) waiting: Vec<(u32, u32)>,
}

impl World {
    pub(super) fn datagram(
        &mut self,
        at: &Address,
        options: DatagramOptions,
        home: Option<IpAddr>,
    ) -> io::Result<RawFd> {
        let name = self.bind(at, home)?;
        let sharing = self.mailboxes.get(&name).map_or(&[][..], Vec::as_slice);
        let shares = |&other: &u32| match &self.sockets[other as usize].role {
            Role::Datagram(mailbox) => options.reuse_port && mailbox.shared,
            _ => false,
        };
        if !sharing.iter().all(shares) {
            return Err(os(libc::EADDRINUSE));
        }
        let mailbox = Mailbox { shared: options.reuse_port, ..Mailbox::default() };
        let index = self.open(Role::Datagram(Box::new(mailbox)), name.clone(), Name::None, home);
        self.mailboxes.entry(name).or_default().push(index);
        Ok(index as RawFd)
    }

    /// Sets the peer of a socket. The socket sends to it by default, and receives nothing from
    /// other senders.
    pub(super) fn connect_datagram(
        &mut self,
        fd: RawFd,
        peer: &Address,
        home: Option<IpAddr>,
    ) -> io::Result<()> {
        let socket = &mut self.sockets[fd as usize];
        let remote = Name::of(peer).on(home).specified();
        match (&socket.local, &remote) {
            (Name::Ip(a), Name::Ip(b)) if a.is_ipv4() == b.is_ipv4() => {}
            (Name::Path(_) | Name::Abstract(_), Name::Path(_) | Name::Abstract(_)) => {}
            _ => return Err(os(libc::EAFNOSUPPORT)),
        }
        socket.remote = remote;
        Ok(())
    }

    /// Whether it is a datagram socket with a peer.
    pub(super) fn has_peer(&self, fd: RawFd) -> bool {
        let socket = &self.sockets[fd as usize];
        matches!(socket.role, Role::Datagram(_)) && socket.remote != Name::None
    }

    pub(super) fn recv_from(
        &mut self,
        fd: RawFd,
        to: &mut [Target<'_>],
        from: &mut Address,
    ) -> Received {
        if self.dice.on
            && let Err(errno) = self.recv_faults(fd, to)
        {
            return refuse(errno);
        }
        match self.take_letter(fd, to) {
            Ok((got, sender)) => {
                *from = sender.address();
                got
            }
            Err(errno) => refuse(errno),
        }
    }

    pub(super) fn take_letter(
        &mut self,
        fd: RawFd,
        to: &mut [Target<'_>],
    ) -> Result<(Received, Name), i32> {
        let socket = &mut self.sockets[fd as usize];
        let Role::Datagram(mailbox) = &mut socket.role else {
            return Err(libc::EOPNOTSUPP);
        };
        if socket.error != 0 {
            return Err(std::mem::take(&mut socket.error));
        }
        let (sender, bytes) = mailbox.letters.pop_front().ok_or(libc::EAGAIN)?;
        mailbox.bytes -= bytes.len() + LETTER_BYTES;
        let waiting = std::mem::take(&mut mailbox.waiting);
        self.tell_senders(waiting);
        let mut moved = 0;
        for target in to {
            moved += target.write(&bytes[moved..]);
        }
        let got = Received { cut: moved < bytes.len(), ..Received::plain(moved as isize) };
        Ok((got, sender))
    }

    pub(super) fn tell_senders(&mut self, waiting: Vec<(u32, u32)>) {
        for (sender, generation) in waiting {
            if self.sockets[sender as usize].generation == generation {
                self.edge(sender);
            }
        }
    }

    pub(super) fn send_to(
        &mut self,
        fd: RawFd,
        bytes: &[u8],
        to: &Address,
        home: Option<IpAddr>,
    ) -> isize {
        let index = fd as u32;
        let faults = [
            (Fault::Eintr, libc::EINTR),
            (Fault::Enobufs, libc::ENOBUFS),
            (Fault::Eagain, libc::EAGAIN),
        ];
        if let Err(errno) = self.fail_by_chance(fd, &faults) {
            return -(errno as isize);
        }
        let sender = &mut self.sockets[fd as usize];
        let has_peer = sender.remote != Name::None;
        if sender.error != 0 && matches!(sender.role, Role::Datagram(_)) {
            // The error that an earlier datagram has caused: the next operation takes it.
            return -(std::mem::take(&mut sender.error) as isize);
        }
        let sender = &self.sockets[fd as usize];
        let errno = match (&sender.role, bytes.len()) {
            (Role::Datagram(_), ..=MOST_DATAGRAM) if to.is_unspecified() && !has_peer => {
                libc::EDESTADDRREQ
            }
            (Role::Datagram(_), ..=MOST_DATAGRAM) => 0,
            (Role::Datagram(_), _) => libc::EMSGSIZE,
            _ => libc::EOPNOTSUPP,
        };
        if errno != 0 {
            return -(errno as isize);
        }
        let (name, generation) = (sender.local.clone(), sender.generation);
        let at = match to.is_unspecified() {
            true => sender.remote.clone(),
            false => Name::of(to).on(home).specified(),
        };
        let Some(receiver) = self.mailbox_for(&at, &name) else {
            // A datagram without a receiver is lost; a Unix socket gets an error.
            let sender = &mut self.sockets[fd as usize];
            if sender.flags & INTERNET == 0 {
                return -(libc::ECONNREFUSED as isize);
            }
            if sender.remote == at {
                // The host of the peer answers that the port is closed.
                sender.error = libc::ECONNREFUSED;
                self.edge(index);
            }
            return bytes.len() as isize;
        };
        let limit = self.buffer;
        if let Role::Datagram(mailbox) = &mut self.sockets[receiver as usize].role {
            let size = bytes.len() + LETTER_BYTES;
            if mailbox.bytes > 0 && mailbox.bytes + size > limit {
                mailbox.waiting.push((index, generation));
                return -(libc::EAGAIN as isize);
            }
            mailbox.bytes += size;
        }
        if self.send_datagram_over_link(receiver, &at, &name, bytes) {
            return bytes.len() as isize;
        }
        if let Role::Datagram(mailbox) = &mut self.sockets[receiver as usize].role {
            mailbox.letters.push_back((name, bytes.into()));
        }
        self.edge(receiver);
        bytes.len() as isize
    }

    /// How many of `count` datagrams a call takes, or `-errno`.
    fn most_of_batch(&mut self, fd: RawFd, count: usize) -> Result<usize, isize> {
        let place = self.sockets[fd as usize].place;
        if self.dice.hits(place, Fault::BatchDenied) {
            return Err(-(libc::EOPNOTSUPP as isize));
        }
        Ok(self.dice.shorten(place, count, Fault::PartialBatch).unwrap_or(count))
    }

    /// As recvmmsg(2): does not report an error after the first datagram.
    pub(super) fn recv_many(
        &mut self,
        fd: RawFd,
        to: &mut [Target<'_>],
        from: &mut [Address],
        got: &mut [Received],
    ) -> isize {
        let most = match self.most_of_batch(fd, to.len()) {
            Ok(most) => most,
            Err(answer) => return answer,
        };
        let mut count = 0;
        for ((to, from), got) in to.iter_mut().zip(from).zip(got).take(most) {
            *got = self.recv_from(fd, slice::from_mut(to), from);
            if got.moved < 0 {
                return if count == 0 { got.moved } else { count };
            }
            count += 1;
        }
        count
    }

    /// As sendmmsg(2): does not report an error after the first datagram.
    pub(super) fn send_many(
        &mut self,
        fd: RawFd,
        datagrams: &[(&[u8], &Address)],
        home: Option<IpAddr>,
    ) -> isize {
        let most = match self.most_of_batch(fd, datagrams.len()) {
            Ok(most) => most,
            Err(answer) => return answer,
        };
        let mut count = 0;
        for (bytes, to) in &datagrams[..most] {
            let moved = self.send_to(fd, bytes, to, home);
            if moved < 0 {
                return if count == 0 { moved } else { count };
            }
            count += 1;
        }
        count
    }

    /// The sockets that are bound to `name`, or to every address with its port.
    pub(super) fn mailboxes_at(&self, name: &Name) -> Option<&[u32]> {
        let at = |name: &Name| self.mailboxes.get(name).map(Vec::as_slice);
        at(name).or_else(|| wildcards(name).iter().find_map(at))
    }

    /// The socket that gets the datagrams of a sender: the one that has the sender as its peer, or
    /// else one without a peer. If several sockets share the name, it is always the same one.
    fn mailbox_for(&self, name: &Name, sender: &Name) -> Option<u32> {
        let sharing = self.mailboxes_at(name)?.iter().copied();
        let remote = |at: &u32| &self.sockets[*at as usize].remote;
        if let Some(own) = sharing.clone().find(|at| remote(at) == sender && *sender != Name::None)
        {
            return Some(own);
        }
        let mut open = sharing.filter(|at| *remote(at) == Name::None);
        let which = match open.clone().count() {
            0 => return None,
            count => sender.ip().map_or(0, |ip| usize::from(ip.port()) % count),
        };
        open.nth(which)
    }
}
