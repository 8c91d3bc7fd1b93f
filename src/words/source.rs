//! Names of things inside a watcher, and descriptors on their way in and out of it.
//!
//! [`Source`] names a descriptor that a watcher owns, [`Ticket`] an accepted operation. Both are an
//! index and a generation: when an index is used again its generation has changed, so a stale name
//! is an error and never reaches another descriptor or operation.

#![allow(unsafe_code)]
//! # Safety
//!
//! The only `unsafe` here closes or re-wraps a descriptor that the [`Handle`] owns by construction.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::num::NonZeroU32;
use std::sync::Arc;

use crate::sys::closing::{self, Closed};
use crate::sys::descriptor;
use crate::sys::fd::{FromRawFd, IntoRawFd, OwnedFd, RawFd};
pub use crate::sys::types::SourceKind;

/// The index of no place: beyond every table, and without the bits that completions put into
/// tickets.
const NONE: u32 = 0x80ff_ffff;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name {
            index: u32,
            generation: NonZeroU32,
        }

        impl $name {
            /// The name of no source or operation: every use of it is refused as stale.
            pub const NONE: $name = $name { index: NONE, generation: NonZeroU32::MIN };

            /// Builds the name of `index` in its `generation` (for authors of drivers).
            #[inline]
            pub const fn from_parts(index: u32, generation: NonZeroU32) -> Self {
                $name { index, generation }
            }

            /// The place in the driver's table.
            #[inline]
            pub const fn index(self) -> u32 {
                self.index
            }

            /// How often that place has been used.
            #[inline]
            pub const fn generation(self) -> NonZeroU32 {
                self.generation
            }

            /// Whether this is [`NONE`](Self::NONE).
            #[inline]
            pub const fn is_none(self) -> bool {
                self.index == NONE && self.generation.get() == 1
            }

            /// The name as one number, as it travels through the kernel.
            #[inline]
            pub const fn key(self) -> u64 {
                (self.generation.get() as u64) << 32 | self.index as u64
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                if self.is_none() {
                    write!(f, concat!(stringify!($name), "(none)"))
                } else {
                    write!(f, concat!(stringify!($name), "({}.{})"), self.index, self.generation)
                }
            }
        }
    };
}

id! {
    /// Names a descriptor that a watcher owns: a small `Copy` id.
    ///
    /// It comes from [`Watcher::attach`](crate::Watcher::attach) and goes stale when the source is
    /// aborted, closed or detached. It belongs to one watcher, and is stale in every other.
    /// (Generations make it so: only after some 2^30 uses of one slot could a name be valid in
    /// another watcher. Watchers of different simulated worlds may have names in common.)
    // Aligned like a number, so that a copy of it takes one instruction.
    #[repr(C, align(8))]
    Source
}

id! {
    /// Names an accepted operation, until its final completion has been delivered. It is one
    /// watcher's, as a [`Source`] is.
    Ticket
}

/// The index of tickets whose operations had ended when `submit` returned them. (The highest bit
/// and an index beyond every table: no operation in flight has it.)
pub(crate) const ENDED: u32 = 1 << 31 | crate::words::table::MOST;

impl Ticket {
    /// Whether the operation had ended when `submit` returned this ticket: a write that the kernel
    /// took at once, for example. A [quiet](crate::Op::quiet) write with such a ticket has
    /// succeeded, and no completion follows. `false` does not mean that the operation is in flight:
    /// the first write on a source, for example, may have ended, too.
    ///
    /// ```
    /// use windlass::{Op, Watcher};
    /// let mut watcher = Watcher::new()?;
    /// let (ours, _theirs) = std::os::unix::net::UnixStream::pair()?;
    /// let source = watcher.attach(ours)?;
    /// watcher.submit(Op::write(source, "hello, ").quiet())?;
    /// assert!(watcher.submit(Op::write(source, "world").quiet())?.had_ended());
    /// assert!(!watcher.submit(Op::write(source, vec![0; 4 << 20]).quiet())?.had_ended());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[inline(always)]
    pub const fn had_ended(self) -> bool {
        self.index == ENDED
    }

    /// The ticket with this [`key`](Ticket::key).
    #[inline(always)]
    pub(crate) fn of_key(key: u64) -> Ticket {
        let generation = NonZeroU32::new((key >> 32) as u32).unwrap_or(NonZeroU32::MIN);
        Ticket::from_parts(key as u32, generation)
    }
}

const _: () = assert!(size_of::<Option<Source>>() == 8 && size_of::<Option<Ticket>>() == 8);

/// Closes a descriptor of a simulated kernel; implemented by that kernel.
pub trait VirtualDescriptor: Send + Sync {
    /// The owner of `fd` dropped it.
    fn close(&self, fd: RawFd);
}

#[derive(Clone)]
enum Origin {
    Plain,
    V4([u8; 4], u16),
    V6([u8; 16], u16, u32),
    Virtual(Box<Virtual>),
}

/// A descriptor of another kernel: its owner, which closes it, and the address of its peer.
#[derive(Clone)]
struct Virtual {
    owner: Arc<dyn VirtualDescriptor>,
    peer: Option<SocketAddr>,
}

/// An owned descriptor outside a watcher: on its way in, or an accepted or connected socket on its
/// way out.
///
/// Everything that converts into an [`OwnedFd`] converts into a `Handle`: std's sockets and pipes,
/// `socket2`'s, `nix`'s. An accepted handle knows its kind and its peer. Attach it to the watcher
/// that accepted it, to another one, or turn it into an `OwnedFd`. Dropping it closes it: on a
/// thread, if close(2) may wait for a file system, a device, or the peer of a socket that lingers.
///
/// An accepted or connected socket is non-blocking (`O_NONBLOCK`), also one that the program gave
/// to [`Op::connect_with`](crate::Op::connect_with), and closed on exec. Call
/// `set_nonblocking(false)` before you use it without a watcher.
///
/// ```
/// use std::os::fd::OwnedFd;
/// let socket = std::net::UdpSocket::bind("127.0.0.1:0")?;
/// let handle = windlass::Handle::from(socket);
/// let fd: OwnedFd = handle.into_fd().expect("a descriptor of the system");
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Handle {
    fd: RawFd,
    kind: SourceKind,
    /// It came from a driver and was never in the program's hands as a descriptor.
    fresh: bool,
    origin: Origin,
}

const _: () = assert!(size_of::<Handle>() <= 32);

impl Handle {
    /// Wraps a system descriptor whose kind and peer are known (for authors of drivers).
    pub fn with_kind(fd: OwnedFd, kind: SourceKind, peer: Option<SocketAddr>) -> Handle {
        let origin = match peer {
            Some(SocketAddr::V4(a)) => Origin::V4(a.ip().octets(), a.port()),
            Some(SocketAddr::V6(a)) => Origin::V6(a.ip().octets(), a.port(), a.scope_id()),
            None => Origin::Plain,
        };
        Handle { fd: fd.into_raw_fd(), kind, fresh: true, origin }
    }

    /// A descriptor of a kernel other than the system's, which `owner` closes. `peer` is the peer's
    /// address of an accepted or connected internet socket. (For authors of kernels.)
    pub fn from_virtual(
        fd: RawFd,
        kind: SourceKind,
        peer: Option<SocketAddr>,
        owner: Arc<dyn VirtualDescriptor>,
    ) -> Handle {
        let origin = Origin::Virtual(Box::new(Virtual { owner, peer }));
        Handle { fd, kind, fresh: true, origin }
    }

    /// The kind of the descriptor; [`SourceKind::Unknown`] if it did not come from a driver.
    pub fn kind(&self) -> SourceKind {
        self.kind
    }

    /// The address of the other end, for an accepted or connected internet socket.
    pub fn peer(&self) -> Option<SocketAddr> {
        match &self.origin {
            Origin::V4(ip, port) => Some((Ipv4Addr::from(*ip), *port).into()),
            Origin::V6(ip, port, scope) => {
                Some(SocketAddrV6::new(Ipv6Addr::from(*ip), *port, 0, *scope).into())
            }
            Origin::Plain => None,
            Origin::Virtual(outside) => outside.peer,
        }
    }

    /// The address of the other end without its port.
    pub fn peer_ip(&self) -> Option<IpAddr> {
        self.peer().map(|peer| peer.ip())
    }

    /// Takes the system descriptor out.
    ///
    /// # Errors
    /// A descriptor of a simulated kernel has none: the handle comes back.
    pub fn into_fd(self) -> Result<OwnedFd, Handle> {
        if self.is_virtual() {
            return Err(self);
        }
        let (fd, _) = self.into_raw();
        // SAFETY: a handle that is not virtual owns an open descriptor, and `into_raw` forgot it.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// Whether it belongs to another kernel than the system's, as a simulated one.
    pub fn is_virtual(&self) -> bool {
        matches!(self.origin, Origin::Virtual(_))
    }

    /// Whether it belongs to the kernel `owner` (for authors of kernels).
    pub fn is_of(&self, owner: &Arc<dyn VirtualDescriptor>) -> bool {
        matches!(&self.origin, Origin::Virtual(outside) if Arc::ptr_eq(&outside.owner, owner))
    }

    /// The number of the descriptor, which stays the handle's.
    pub(crate) fn raw(&self) -> RawFd {
        self.fd
    }

    /// Gives up ownership: the caller must close the number.
    pub(crate) fn into_raw(mut self) -> (RawFd, SourceKind) {
        let raw = (self.fd, self.kind);
        self.fd = -1;
        raw
    }

    /// Closes the descriptor on a thread, which then calls `closed`.
    pub(crate) fn close_later(self, closed: Option<Closed>) {
        if !self.is_virtual() {
            closing::close_later(self.into_raw().0, closed);
        } else if let Some(closed) = closed {
            closed(self.close());
        }
    }

    /// Closes the descriptor and returns the errno of close(2). The descriptor is closed even then.
    pub(crate) fn close(self) -> Result<(), i32> {
        if self.is_virtual() {
            return Ok(());
        }
        descriptor::close(self.into_raw().0)
    }

    /// Whether no duplicate of the descriptor can exist.
    pub(crate) fn is_fresh(&self) -> bool {
        self.fresh
    }

    /// Says that duplicates of the descriptor may exist.
    pub(crate) fn worn(mut self) -> Handle {
        self.fresh = false;
        self
    }
}

impl<T: Into<OwnedFd>> From<T> for Handle {
    fn from(owner: T) -> Handle {
        let fd: OwnedFd = owner.into();
        Handle {
            fd: fd.into_raw_fd(),
            kind: SourceKind::Unknown,
            fresh: false,
            origin: Origin::Plain,
        }
    }
}

impl Drop for Handle {
    // Out of line, so that dropping a completion stays small.
    #[inline(never)]
    fn drop(&mut self) {
        if self.fd < 0 {
            return;
        }
        match &self.origin {
            Origin::Virtual(outside) => outside.owner.close(self.fd),
            _ => closing::close(self.fd, self.kind),
        }
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle")
            .field("fd", &self.fd)
            .field("kind", &self.kind)
            .field("peer", &self.peer())
            .finish()
    }
}
