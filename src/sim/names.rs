//! Names, and how connections come about: addresses, ports, listeners, backlogs.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use crate::driver::endpoint::ListenOptions;
use crate::kernel::Connecting;
use crate::sim::faults::Fault;
use crate::sim::links::Packet;
use crate::sim::world::{OPENING, Role, WAITING, World};
use crate::sys::fd::RawFd;
use crate::sys::os_error;
use crate::words::address::Address;

/// Where the ports of clients and of `listen` on port 0 begin.
pub(super) const FIRST_PORT: u16 = 32_768;

/// The name that a socket is bound or connected to.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Name {
    #[default]
    None,
    Ip(SocketAddr),
    Path(PathBuf),
    Abstract(Vec<u8>),
}

impl Name {
    pub(super) fn of(address: &Address) -> Name {
        match (address.ip(), address.path()) {
            (Some(ip), _) => Name::Ip(ip),
            (None, Some(path)) => Name::Path(path),
            (None, None) => {
                let name = address.abstract_name();
                name.map_or(Name::None, |name| Name::Abstract(name.to_vec()))
            }
        }
    }

    /// The meaning of this name on a host: the unspecified address and loopback become the host's
    /// address.
    pub(super) fn on(self, home: Option<IpAddr>) -> Name {
        match (self, home) {
            (Name::Ip(ip), Some(home)) if ip.ip().is_unspecified() || ip.ip().is_loopback() => {
                Name::Ip((home, ip.port()).into())
            }
            (name, _) => name,
        }
    }

    /// As on a system: the unspecified address as a destination means this machine.
    pub(super) fn specified(self) -> Name {
        match self {
            Name::Ip(ip) if ip.ip().is_unspecified() => {
                let here: IpAddr = match ip {
                    SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
                    SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
                };
                Name::Ip((here, ip.port()).into())
            }
            name => name,
        }
    }

    /// All ports of a host.
    pub(super) fn every_port(&self) -> Name {
        match self {
            Name::Ip(ip) => Name::Ip((ip.ip(), 0).into()),
            _ => Name::None,
        }
    }

    pub(super) fn ip(&self) -> Option<SocketAddr> {
        match self {
            Name::Ip(ip) => Some(*ip),
            _ => None,
        }
    }

    pub(super) fn address(&self) -> Address {
        match self {
            Name::None => Address::unspecified(),
            Name::Ip(ip) => Address::from(*ip),
            // The path came out of an address, so it fits into one.
            Name::Path(path) => Address::unix(path).unwrap_or_else(|_| Address::unspecified()),
            Name::Abstract(name) => {
                Address::unix_abstract(name).unwrap_or_else(|_| Address::unspecified())
            }
        }
    }
}

pub(super) struct Listener {
    /// The ends of connections that were not accepted yet.
    pub(super) backlog: VecDeque<u32>,
    pub(super) limit: usize,
    pub(super) shared: bool,
    /// Clients that connect while the backlog is full.
    pub(super) waiting: VecDeque<u32>,
}

pub(super) fn os(errno: i32) -> io::Error {
    os_error(errno)
}

/// The names of every address with the port of `name`.
pub(super) fn wildcards(name: &Name) -> Vec<Name> {
    let Name::Ip(ip) = name else {
        return Vec::new();
    };
    let every: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
    let port = ip.port();
    let names = every.into_iter().map(|ip| Name::Ip((ip, port).into()));
    names.collect()
}

impl World {
    /// A port that has neither a listener nor a datagram socket; `None` if no port is left.
    fn free_port(&mut self, ip: IpAddr) -> Option<SocketAddr> {
        for _ in FIRST_PORT..=u16::MAX {
            let address = SocketAddr::new(ip, self.port);
            self.port = self.port.checked_add(1).unwrap_or(FIRST_PORT);
            if self.listener_at(&Name::Ip(address)).is_none()
                && self.mailboxes_at(&Name::Ip(address)).is_none()
            {
                return Some(address);
            }
        }
        None
    }

    /// The name that a socket gets on a host.
    pub(super) fn bind(&mut self, at: &Address, home: Option<IpAddr>) -> io::Result<Name> {
        match Name::of(at).on(home) {
            Name::None => Err(os(libc::EINVAL)),
            Name::Ip(ip) if home.is_some_and(|home| ip.ip() != home) => {
                Err(os(libc::EADDRNOTAVAIL))
            }
            Name::Ip(ip) if ip.port() == 0 => {
                self.free_port(ip.ip()).map(Name::Ip).ok_or(os(libc::EADDRINUSE))
            }
            name => Ok(name),
        }
    }

    pub(super) fn listen(
        &mut self,
        at: &Address,
        options: ListenOptions,
        home: Option<IpAddr>,
    ) -> io::Result<RawFd> {
        let name = self.bind(at, home)?;
        let sharing = self.listeners.get(&name).map_or(&[][..], Vec::as_slice);
        let shares = |&other: &u32| match &self.sockets[other as usize].role {
            Role::Listener(listener) => options.reuse_port && listener.shared,
            _ => false,
        };
        if !sharing.iter().all(shares) {
            return Err(os(libc::EADDRINUSE));
        }
        let listener = Listener {
            backlog: VecDeque::new(),
            // As on Linux: room for one more than the program asked for.
            limit: (options.backlog as usize).saturating_add(1),
            shared: options.reuse_port,
            waiting: VecDeque::new(),
        };
        let role = Role::Listener(Box::new(listener));
        let index = self.open(role, name.clone(), Name::None, home);
        self.listeners.entry(name).or_default().push(index);
        Ok(index as RawFd)
    }

    /// The listeners at `name`, or at every address with its port.
    pub(super) fn listener_at(&self, name: &Name) -> Option<&[u32]> {
        let at = |name: &Name| self.listeners.get(name).map(Vec::as_slice);
        at(name).or_else(|| wildcards(name).iter().find_map(at))
    }

    /// Opens a socket and connects it. As on Linux, a Unix socket is connected or refused at once,
    /// an internet socket when its edge comes.
    pub(super) fn connect(
        &mut self,
        to: &Address,
        home: Option<IpAddr>,
    ) -> Result<(RawFd, Connecting), i32> {
        let remote = Name::of(to).on(home).specified();
        let Name::Ip(ip) = remote else { return self.connect_unix(remote, home) };
        let local = self.free_port(home.unwrap_or(ip.ip())).ok_or(libc::EADDRNOTAVAIL)?;
        let local = Name::Ip(local);
        let client = self.open(Role::Stream, local, remote, home);
        if self.history.is_on() {
            let title = self.title(client);
            self.add_step(format_args!("a socket is opened: {title}"));
        }
        if !self.ask_over_link(client) {
            self.ask_listener(client);
        }
        Ok((client as RawFd, Connecting::GoesOn))
    }

    fn connect_unix(
        &mut self,
        remote: Name,
        home: Option<IpAddr>,
    ) -> Result<(RawFd, Connecting), i32> {
        let place = self.dice.place_of(&Name::None, &remote);
        let listener = self.find_listener(&remote, place).ok_or(libc::ECONNREFUSED)?;
        let client = self.open(Role::Stream, Name::None, remote, home);
        let how = self.establish_if_room(client, listener);
        Ok((client as RawFd, how))
    }

    /// Tries again to connect a Unix socket that found no room.
    pub(super) fn connect_again(&mut self, fd: RawFd) -> Result<Connecting, i32> {
        let socket = &self.sockets[fd as usize];
        let (remote, place) = (socket.remote.clone(), socket.place);
        let listener = self.find_listener(&remote, place).ok_or(libc::ECONNREFUSED)?;
        Ok(self.establish_if_room(fd as u32, listener))
    }

    /// As on Linux, where Unix sockets do not wait in a queue for room.
    fn establish_if_room(&mut self, client: u32, listener: u32) -> Connecting {
        if self.is_full(listener) {
            return Connecting::Full;
        }
        self.establish(client, listener);
        Connecting::Done
    }

    /// The listener that a connect to `remote` reaches, if it is not refused.
    fn find_listener(&mut self, remote: &Name, place: u32) -> Option<u32> {
        let sharing = self.listener_at(remote)?.to_vec();
        if self.dice.hits(place, Fault::ConnectRefused) {
            return None;
        }
        let which = match sharing.len() {
            1 => 0,
            count => self.dice.rng.below(count as u64) as usize,
        };
        Some(sharing[which])
    }

    /// Asks for the connection of an internet socket: it is made, refused, or waits for room.
    pub(super) fn ask_listener(&mut self, client: u32) {
        let socket = &self.sockets[client as usize];
        let (remote, place) = (socket.remote.clone(), socket.place);
        match self.find_listener(&remote, place) {
            None => self.send_packet(client, Packet::Reset(libc::ECONNREFUSED)),
            Some(listener) if self.is_full(listener) => {
                let socket = &mut self.sockets[client as usize];
                socket.flags |= WAITING;
                socket.peer = listener;
                if let Role::Listener(listener) = &mut self.sockets[listener as usize].role {
                    listener.waiting.push_back(client);
                }
            }
            Some(listener) => self.establish(client, listener),
        }
    }

    fn is_full(&self, listener: u32) -> bool {
        match &self.sockets[listener as usize].role {
            Role::Listener(listener) => listener.backlog.len() >= listener.limit,
            _ => false,
        }
    }

    /// Makes the connection; its other end waits to be accepted.
    fn establish(&mut self, client: u32, listener: u32) {
        let socket = &mut self.sockets[client as usize];
        socket.flags &= !WAITING;
        let (local, remote) = (socket.remote.clone(), socket.local.clone());
        let machine = self.sockets[listener as usize].machine;
        let end = self.open(Role::Stream, local, remote, machine);
        self.use_link(end);
        self.link(client, end);
        if let Role::Listener(listener) = &mut self.sockets[listener as usize].role {
            listener.backlog.push_back(end);
        }
        self.edge(listener);
        self.send_packet(client, Packet::Opened);
    }

    /// How a connection that went on has ended.
    pub(super) fn connect_result(&mut self, fd: RawFd) -> i32 {
        let socket = &mut self.sockets[fd as usize];
        match std::mem::take(&mut socket.error) {
            0 if socket.flags & (WAITING | OPENING) != 0 => libc::EINPROGRESS,
            errno => errno,
        }
    }

    pub(super) fn accept(&mut self, fd: RawFd) -> Result<RawFd, i32> {
        let end = self.head_of_backlog(fd)?;
        let place = self.sockets[fd as usize].place;
        let faults = [
            (Fault::Eintr, libc::EINTR),
            (Fault::Emfile, libc::EMFILE),
            (Fault::Eagain, libc::EAGAIN),
            (Fault::Denied, libc::EPERM),
        ];
        self.fail_by_chance(fd, &faults)?;
        self.take_from_backlog(fd);
        if self.dice.hits(place, Fault::Aborted) {
            self.abort(end);
            return Err(libc::ECONNABORTED);
        }
        Ok(end as RawFd)
    }

    /// Accepts a connection and closes it at once.
    pub(super) fn drop_connection(&mut self, fd: RawFd) {
        if let Ok(end) = self.head_of_backlog(fd) {
            self.take_from_backlog(fd);
            self.close(end as RawFd);
        }
    }

    fn head_of_backlog(&self, fd: RawFd) -> Result<u32, i32> {
        match &self.sockets[fd as usize].role {
            Role::Listener(listener) => listener.backlog.front().copied().ok_or(libc::EAGAIN),
            _ => Err(libc::EINVAL),
        }
    }

    fn take_from_backlog(&mut self, fd: RawFd) {
        let Role::Listener(listener) = &mut self.sockets[fd as usize].role else {
            return;
        };
        listener.backlog.pop_front();
        if let Some(client) = listener.waiting.pop_front() {
            self.establish(client, fd as u32);
        }
    }
}
