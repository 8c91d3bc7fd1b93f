//! Attempts on streams: receiving, sending, half-close, reset.

use std::io::IoSlice;

use crate::kernel::Received;
use crate::memory::buf::Target;
use crate::sim::crash::Machine;
use crate::sim::faults::Fault;
use crate::sim::links::Packet;
use crate::sim::names::Name;
use crate::sim::world::{
    AWAITED, BROKEN, CONNECTED, ENDED, GONE, INTERNET, LINKED, Role, SHUT, World, refuse,
};
use crate::sys::fd::RawFd;
use crate::words::address::Address;

impl World {
    /// Receives into `to`, one part after the other.
    #[inline(always)]
    pub(super) fn recv(&mut self, fd: RawFd, to: &mut [Target<'_>]) -> Received {
        let mut most = usize::MAX;
        if self.dice.on {
            match self.recv_faults(fd, to) {
                Ok(limit) => most = limit,
                Err(errno) => return refuse(errno),
            }
        }
        let socket = &mut self.sockets[fd as usize];
        if socket.ring.is_empty() {
            return self.recv_otherwise(fd, to);
        }
        let mut moved = 0;
        for target in to {
            moved += socket.ring.pop(target, most - moved);
            if socket.ring.is_empty() {
                break;
            }
        }
        if socket.flags & AWAITED != 0 {
            self.tell_room(fd as u32);
        }
        if most != usize::MAX {
            // An edge reports the rest, as if it had arrived after this read.
            self.edge(fd as u32);
        }
        Received::plain(moved as isize)
    }

    /// The fault of a read: an errno, or the most bytes that it takes.
    #[cold]
    pub(super) fn recv_faults(&mut self, fd: RawFd, to: &[Target<'_>]) -> Result<usize, i32> {
        let place = self.sockets[fd as usize].place;
        self.fail_by_chance(fd, &[(Fault::Eintr, libc::EINTR)])?;
        self.reset_by_chance(fd as u32);
        let socket = &self.sockets[fd as usize];
        let has_message = matches!(&socket.role, Role::Datagram(m) if !m.letters.is_empty());
        let works = !socket.ring.is_empty() || socket.flags & ENDED != 0 || has_message;
        let count = socket.ring.readable().min(to.iter().map(Target::len).sum());
        if works {
            self.fail_by_chance(fd, &[(Fault::Eagain, libc::EAGAIN)])?;
        }
        Ok(self.dice.shorten(place, count, Fault::PartialRead).unwrap_or(usize::MAX))
    }

    /// Receives when no byte is in the ring.
    #[inline(never)]
    pub(super) fn recv_otherwise(&mut self, fd: RawFd, to: &mut [Target<'_>]) -> Received {
        let socket = &mut self.sockets[fd as usize];
        match socket.role {
            Role::Stream => {}
            Role::Datagram(_) => {
                return self.take_letter(fd, to).map_or_else(refuse, |(got, _)| got);
            }
            Role::Listener(_) => return refuse(libc::ENOTCONN),
            // The driver refuses reads of such sources.
            Role::Signals { .. } | Role::Child(_) | Role::File(_) => return refuse(libc::EINVAL),
            Role::Vacant | Role::Crashed => return refuse(libc::EBADF),
        }
        if socket.flags & ENDED != 0 {
            return Received::plain(0);
        }
        match std::mem::take(&mut socket.error) {
            0 if socket.flags & BROKEN != 0 => Received::plain(0),
            0 if socket.flags & CONNECTED == 0 => refuse(libc::ENOTCONN),
            0 => refuse(libc::EAGAIN),
            errno => refuse(errno),
        }
    }

    /// Tells the writer of the ring that this socket reads from: the ring has room.
    #[cold]
    fn tell_room(&mut self, index: u32) {
        let socket = &mut self.sockets[index as usize];
        if socket.ring.is_roomy() {
            socket.flags &= !AWAITED;
            if socket.flags & (CONNECTED | GONE) == CONNECTED {
                let peer = socket.peer;
                self.send_packet(peer, Packet::Room);
            }
        }
    }

    /// Sends `parts`, one after the other.
    #[inline(always)]
    pub(super) fn send(&mut self, fd: RawFd, parts: &[IoSlice<'_>]) -> isize {
        let mut most = usize::MAX;
        if self.dice.on {
            match self.send_faults(fd, parts) {
                Ok(limit) => most = limit,
                Err(errno) => return -(errno as isize),
            }
        }
        let socket = &self.sockets[fd as usize];
        if socket.flags & (CONNECTED | SHUT | GONE | BROKEN) != CONNECTED {
            return self.send_otherwise(fd, parts);
        }
        let to = socket.peer;
        let peer = &mut self.sockets[to as usize];
        let room = peer.ring.room().min(most);
        let mut left = room;
        for part in parts {
            let count = part.len().min(left);
            peer.ring.push(&part[..count]);
            left -= count;
            if count < part.len() {
                peer.flags |= AWAITED;
                break;
            }
        }
        if left == room {
            return -(libc::EAGAIN as isize);
        }
        if peer.flags & LINKED == 0 {
            self.edge(to);
        } else {
            peer.ring.hide(room - left);
            self.send_packet(to, Packet::Bytes(room - left));
        }
        if most != usize::MAX {
            // An edge reports the rest of the room, as if it were new.
            self.edge(fd as u32);
        }
        (room - left) as isize
    }

    /// The fault of a write: an errno, or the most bytes that it takes.
    #[cold]
    fn send_faults(&mut self, fd: RawFd, parts: &[IoSlice<'_>]) -> Result<usize, i32> {
        let place = self.sockets[fd as usize].place;
        self.fail_by_chance(fd, &[(Fault::Eintr, libc::EINTR), (Fault::Enobufs, libc::ENOBUFS)])?;
        self.reset_by_chance(fd as u32);
        let socket = &self.sockets[fd as usize];
        if socket.flags & (CONNECTED | SHUT | GONE | BROKEN) != CONNECTED {
            return Ok(usize::MAX);
        }
        let room = self.sockets[socket.peer as usize].ring.room();
        let count = room.min(parts.iter().map(|part| part.len()).sum());
        if count > 0 {
            self.fail_by_chance(fd, &[(Fault::Eagain, libc::EAGAIN)])?;
        }
        Ok(self.dice.shorten(place, count, Fault::PartialWrite).unwrap_or(usize::MAX))
    }

    /// Sends on a socket that is not, or no longer, a connected stream.
    #[inline(never)]
    fn send_otherwise(&mut self, fd: RawFd, parts: &[IoSlice<'_>]) -> isize {
        if self.has_peer(fd) {
            let bytes = parts.iter().flat_map(|part| part.iter().copied()).collect::<Vec<u8>>();
            return self.send_to(fd, &bytes, &Address::unspecified(), None);
        }
        let socket = &mut self.sockets[fd as usize];
        let errno = match (&socket.role, std::mem::take(&mut socket.error)) {
            (Role::Vacant | Role::Crashed, _) => libc::EBADF,
            (Role::Listener(_), _) => libc::ENOTCONN,
            (Role::Signals { .. } | Role::Child(_) | Role::File(_), _) => libc::EINVAL,
            (Role::Datagram(_), _) => libc::EDESTADDRREQ,
            (Role::Stream, 0) if socket.flags & (SHUT | BROKEN) != 0 => libc::EPIPE,
            (Role::Stream, 0) if socket.flags & GONE == 0 => libc::ENOTCONN,
            (Role::Stream, 0) if socket.flags & INTERNET == 0 => libc::EPIPE,
            (Role::Stream, 0) => {
                // The answer to this segment tells TCP that the peer is closed.
                let bytes = parts.iter().map(|part| part.len()).sum();
                return self.send_to_closed_peer(fd as u32, bytes);
            }
            (Role::Stream, errno) => errno,
        };
        -(errno as isize)
    }

    /// A connection breaks off at this end.
    pub(super) fn sever(&mut self, index: u32, errno: i32) {
        let socket = &mut self.sockets[index as usize];
        socket.flags |= BROKEN | GONE;
        socket.error = errno;
        self.edge(index);
    }

    /// Draws these faults of a socket, in order. After `EAGAIN` there is an edge.
    pub(super) fn fail_by_chance(&mut self, fd: RawFd, faults: &[(Fault, i32)]) -> Result<(), i32> {
        let place = self.sockets[fd as usize].place;
        let Some(&(_, errno)) = faults.iter().find(|(fault, _)| self.dice.hits(place, *fault))
        else {
            return Ok(());
        };
        if errno == libc::EAGAIN {
            self.edge(fd as u32);
        }
        Err(errno)
    }

    #[cold]
    fn reset_by_chance(&mut self, index: u32) {
        let socket = &self.sockets[index as usize];
        let place = socket.place;
        if socket.flags & (CONNECTED | GONE | BROKEN) == CONNECTED
            && self.dice.hits(place, Fault::Reset)
        {
            let peer = socket.peer;
            self.sever(index, libc::ECONNRESET);
            self.sockets[peer as usize].flags |= GONE;
            self.send_packet(peer, Packet::Reset(libc::ECONNRESET));
        }
    }

    pub(super) fn shutdown(&mut self, fd: RawFd) -> isize {
        let socket = &mut self.sockets[fd as usize];
        if socket.flags & CONNECTED == 0 || socket.flags & BROKEN != 0 {
            return -(libc::ENOTCONN as isize);
        }
        if socket.flags & SHUT != 0 {
            return 0;
        }
        socket.flags |= SHUT;
        let (peer, flags) = (socket.peer, socket.flags);
        if flags & GONE == 0 {
            self.send_packet(peer, Packet::End);
        }
        if flags & ENDED != 0 {
            self.edge(fd as u32);
        }
        0
    }

    pub(super) fn pair(&mut self, machine: Machine) -> (RawFd, RawFd) {
        let a = self.open(Role::Stream, Name::None, Name::None, machine);
        let b = self.open(Role::Stream, Name::None, Name::None, machine);
        self.link(a, b);
        (a as RawFd, b as RawFd)
    }
}
