//! Socket addresses, and descriptors that travel with a message: what an operation carries besides
//! its bytes, behind one pointer.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use crate::sys::addr::RawAddress;
use crate::sys::closing;
use crate::sys::fd::{IntoRawFd, OwnedFd};
use crate::sys::types::SourceKind;

/// The address of a socket: internet or Unix.
///
/// One pointer wide. A driver keeps the memory of addresses that have served and uses it again, so
/// that answering the sender of a datagram allocates nothing.
///
/// ```
/// use windlass::Address;
/// let address = Address::from(([127, 0, 0, 1], 7007));
/// assert_eq!(address.ip().unwrap().port(), 7007);
/// assert!(Address::unix("/run/echo.sock")?.ip().is_none());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct Address(pub(crate) Box<Body>);

const _: () = assert!(size_of::<Option<Address>>() == 8);

/// Aligned to 8 bytes at least.
#[derive(Default)]
pub(crate) struct Body {
    raw: RawAddress,
    descriptors: Vec<OwnedFd>,
}

impl Drop for Body {
    fn drop(&mut self) {
        self.close_descriptors();
    }
}

impl Body {
    fn close_descriptors(&mut self) {
        for fd in self.descriptors.drain(..) {
            // One of a file may wait for its file system.
            closing::close(fd.into_raw_fd(), SourceKind::Unknown);
        }
    }
}

impl Clone for Body {
    fn clone(&self) -> Body {
        // Descriptors are owned once: a copy of the address carries none.
        Body { raw: self.raw, descriptors: Vec::new() }
    }
}

impl Address {
    /// The address of a Unix socket at `path`.
    ///
    /// # Errors
    /// `InvalidInput` when the path is longer than a Unix address holds (107 bytes on Linux), is
    /// empty, or contains a NUL.
    pub fn unix(path: impl AsRef<Path>) -> io::Result<Address> {
        let raw = RawAddress::unix(path.as_ref())?;
        Ok(Address(Box::new(Body { raw, descriptors: Vec::new() })))
    }

    /// The address of a Unix socket with this abstract name, which may have any bytes. It is no
    /// file: nothing has to be removed, and file permissions do not protect it.
    ///
    /// ```
    /// use windlass::Address;
    /// match Address::unix_abstract(b"echo") {
    ///     Ok(address) => {
    ///         assert_eq!((address.abstract_name(), address.path()), (Some(&b"echo"[..]), None));
    ///         assert_eq!(address.to_string(), "@echo");
    ///     }
    ///     Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::Unsupported),
    /// }
    /// ```
    ///
    /// # Errors
    /// `InvalidInput` when the name has more than 107 bytes; `Unsupported` on other systems than
    /// Linux and Android.
    pub fn unix_abstract(name: impl AsRef<[u8]>) -> io::Result<Address> {
        Ok(Address::from_raw(RawAddress::unix_abstract(name.as_ref())?))
    }

    /// No address, as an unnamed Unix socket has.
    pub fn unspecified() -> Address {
        Address(Box::default())
    }

    /// The internet address, if it is one.
    pub fn ip(&self) -> Option<SocketAddr> {
        self.0.raw.ip()
    }

    /// The path of a Unix address, if it is one with a path.
    pub fn path(&self) -> Option<PathBuf> {
        self.0.raw.path()
    }

    /// The name of an abstract Unix address, if it is one.
    pub fn abstract_name(&self) -> Option<&[u8]> {
        self.0.raw.abstract_name()
    }

    /// Whether it is the address of nothing: an unnamed Unix socket.
    pub fn is_unspecified(&self) -> bool {
        self.0.raw.is_unspecified()
    }

    pub(crate) fn from_raw(raw: RawAddress) -> Address {
        Address(Box::new(Body { raw, descriptors: Vec::new() }))
    }

    #[inline]
    pub(crate) fn raw(&self) -> &RawAddress {
        &self.0.raw
    }

    #[inline]
    pub(crate) fn raw_mut(&mut self) -> &mut RawAddress {
        &mut self.0.raw
    }

    pub(crate) fn set_descriptors(&mut self, descriptors: Vec<OwnedFd>) {
        self.0.descriptors = descriptors;
    }

    pub(crate) fn descriptors(&self) -> &[OwnedFd] {
        &self.0.descriptors
    }

    /// Closes the descriptors that it carries; none of them waits here.
    pub(crate) fn close_descriptors(&mut self) {
        self.0.close_descriptors();
    }

    pub(crate) fn take_descriptors(&mut self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.0.descriptors)
    }
}

impl AsRef<RawAddress> for Address {
    #[inline]
    fn as_ref(&self) -> &RawAddress {
        self.raw()
    }
}

impl AsMut<RawAddress> for Address {
    #[inline]
    fn as_mut(&mut self) -> &mut RawAddress {
        self.raw_mut()
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Address {
        Address::from_raw(RawAddress::from(address))
    }
}

impl<I: Into<IpAddr>> From<(I, u16)> for Address {
    fn from(address: (I, u16)) -> Address {
        Address::from(SocketAddr::from(address))
    }
}

impl PartialEq for Address {
    fn eq(&self, other: &Address) -> bool {
        self.0.raw.as_bytes() == other.0.raw.as_bytes()
    }
}

impl Eq for Address {}

impl Hash for Address {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.raw.as_bytes().hash(state);
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.ip(), self.path()) {
            (Some(ip), _) => ip.fmt(f),
            (None, Some(path)) => path.display().fmt(f),
            (None, None) => match self.abstract_name() {
                Some(name) => write!(f, "@{}", name.escape_ascii()),
                None => f.write_str("(unnamed)"),
            },
        }
    }
}

/// Descriptors that were received over a Unix socket; those not taken are closed on drop.
pub struct Descriptors(pub(crate) Address);

impl fmt::Debug for Descriptors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The address is only the memory in which descriptors travel.
        f.debug_tuple("Descriptors").field(&self.0.descriptors()).finish()
    }
}

/// Descriptors that a driver has received (for authors of drivers).
impl From<Vec<OwnedFd>> for Descriptors {
    fn from(descriptors: Vec<OwnedFd>) -> Descriptors {
        let mut address = Address::unspecified();
        address.set_descriptors(descriptors);
        Descriptors(address)
    }
}

impl Descriptors {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.descriptors().len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes them all.
    pub fn take(mut self) -> Vec<OwnedFd> {
        self.0.take_descriptors()
    }
}
