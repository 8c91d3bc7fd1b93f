//! Requests that programs make.

use std::fmt;
use std::sync::Arc;

use crate::memory::buf::Buf;
use crate::op::OpCode;
use crate::sys::fd::OwnedFd;

/// The operation of an [`AioFiles`](super::AioFiles): a read or a sync of a file.
///
/// The request keeps its file open until it has ended. Several requests on a file share it as an
/// `Arc<OwnedFd>`; a single one takes the `OwnedFd` itself.
///
/// ```
/// use std::os::fd::OwnedFd;
/// use std::sync::Arc;
/// use windlass::AlignedBuf;
/// use windlass::fs::AioOp;
///
/// let file: Arc<OwnedFd> = Arc::new(std::fs::File::open("Cargo.toml")?.into());
/// let buf = || AlignedBuf::with_capacity(4096, 4096);
/// let block = |n: u64| AioOp::read_at(file.clone(), buf(), n * 4096);
/// let (first, second) = (block(0).token(0), block(1).token(1));
/// # drop((first, second));
/// # Ok::<(), std::io::Error>(())
/// ```
#[must_use = "a request does nothing until it is submitted"]
pub struct AioOp {
    pub(super) code: OpCode,
    pub(super) file: Arc<OwnedFd>,
    pub(super) buf: Buf,
    pub(super) offset: u64,
    pub(super) token: u64,
}

impl AioOp {
    /// Reads at `offset`, in bytes, as many bytes as `buf` has room for.
    ///
    /// `buf` is an [`AlignedBuf`](crate::AlignedBuf) or a `Vec<u8>`, whose whole capacity is
    /// offered from its start; no list. A file that is open with `O_DIRECT` wants memory, room and
    /// offset aligned, see [`Metadata::direct`](crate::fs::Metadata). Ends with
    /// [`Done::Read`](crate::Done::Read), and the bytes of **one** read of the kernel: fewer than
    /// there was room for at the end of the file, none beyond it.
    pub fn read_at(file: impl Into<Arc<OwnedFd>>, buf: impl Into<Buf>, offset: u64) -> AioOp {
        AioOp { code: OpCode::ReadAt, file: file.into(), buf: buf.into(), offset, token: 0 }
    }

    /// fsync(2): what was written before it began is on the disk. Ends with
    /// [`Done::Finished`](crate::Done::Finished).
    pub fn sync_all(file: impl Into<Arc<OwnedFd>>) -> AioOp {
        AioOp { code: OpCode::SyncAll, ..AioOp::sync_data(file) }
    }

    /// fdatasync(2): as [`sync_all`](AioOp::sync_all), without the times of the file.
    pub fn sync_data(file: impl Into<Arc<OwnedFd>>) -> AioOp {
        let (file, buf) = (file.into(), Buf::default());
        AioOp { code: OpCode::SyncData, file, buf, offset: 0, token: 0 }
    }

    /// Sets the number that the completion returns untouched.
    pub fn token(mut self, token: u64) -> AioOp {
        self.token = token;
        self
    }

    /// Takes the buffer back out of a refused request.
    pub fn into_buf(self) -> Buf {
        self.buf
    }
}

impl fmt::Debug for AioOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AioOp")
            .field("code", &self.code)
            .field("file", &self.file)
            .field("offset", &self.offset)
            .field("buf", &self.buf)
            .field("token", &self.token)
            .finish()
    }
}
