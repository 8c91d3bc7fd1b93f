//! What the system says of descriptors, files and file systems.

use std::time::SystemTime;

/// The kind of a descriptor, as far as its operations differ. (The numbers of the streams share a
/// bit that no other kind has which takes bytes: drivers recognise streams by it.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum SourceKind {
    /// Not looked at yet; the first operation asks the kernel.
    Unknown = 0,
    /// A connected or connecting TCP or MPTCP socket: a short read has emptied the socket.
    Stream = 8,
    /// A Unix stream socket: its reads can stop short at passed descriptors.
    UnixStream = 9,
    /// A socket that keeps message boundaries and has no connection: UDP, Unix datagram.
    Datagram = 1,
    /// A connected socket that keeps message boundaries.
    Seqpacket = 2,
    /// A listening socket.
    Listener = 3,
    /// A pipe, FIFO, terminal, eventfd, timerfd, pidfd …: anything that poll(2) understands.
    Pollable = 4,
    /// As `Pollable`, but other code shares the blocking file description, so its flags stay as
    /// they are, and it cannot be opened anew.
    SharedPollable = 5,
    /// A stream socket of another protocol (SCTP one-to-one, vsock …): a short read proves nothing.
    OtherStream = 7,
    /// A regular file, directory or block device: always ready as poll(2) sees it; its operations
    /// name where in the file they start.
    File = 6,
    /// Signals of the process: [`Watcher::signals`](crate::Watcher::signals).
    Signals = 10,
    /// A child process: [`Watcher::child`](crate::Watcher::child).
    Child = 11,
}

impl SourceKind {
    /// Whether send(2) and recv(2) work on it.
    #[inline]
    pub const fn is_socket(self) -> bool {
        !matches!(
            self,
            SourceKind::Pollable
                | SourceKind::SharedPollable
                | SourceKind::File
                | SourceKind::Unknown
                | SourceKind::Signals
                | SourceKind::Child
        )
    }

    /// Whether this is a source of signals or of a child.
    #[inline]
    pub(crate) const fn is_of_process(self) -> bool {
        matches!(self, SourceKind::Signals | SourceKind::Child)
    }

    /// Whether it keeps message boundaries, so that one read is one message.
    #[inline]
    pub const fn is_message(self) -> bool {
        matches!(self, SourceKind::Datagram | SourceKind::Seqpacket)
    }
}

/// The kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A block device.
    BlockDevice,
    /// A character device: terminals, `/dev/null`.
    CharDevice,
    /// A pipe.
    Fifo,
    /// A socket.
    Socket,
    /// Something else, or not known.
    Unknown,
}

impl FileKind {
    /// Refuses files that are not regular: `EISDIR` for a directory, `EINVAL` for others.
    pub(crate) const fn check_regular(self) -> Result<(), i32> {
        match self {
            FileKind::File => Ok(()),
            FileKind::Directory => Err(libc::EISDIR),
            _ => Err(libc::EINVAL),
        }
    }

    /// From the mode in a stat, whose upper bits are the same on every Unix (inode(7)).
    pub(crate) const fn of_mode(mode: u32) -> FileKind {
        match mode & 0o170_000 {
            0o100_000 => FileKind::File,
            0o040_000 => FileKind::Directory,
            0o120_000 => FileKind::Symlink,
            0o060_000 => FileKind::BlockDevice,
            0o020_000 => FileKind::CharDevice,
            0o010_000 => FileKind::Fifo,
            0o140_000 => FileKind::Socket,
            _ => FileKind::Unknown,
        }
    }
}

/// The attributes of a file: stat(2), on Linux statx(2).
///
/// BSD's file flags and generation are not in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metadata {
    /// The device that it is on.
    pub device: u64,
    /// Its number there.
    pub inode: u64,
    /// Its kind and permissions, see [`kind`](Metadata::kind) and
    /// [`permissions`](Metadata::permissions).
    pub mode: u32,
    /// How many names it has.
    pub links: u64,
    /// Its owner.
    pub user: u32,
    /// Its group.
    pub group: u32,
    /// The device that it stands for, if it is a device.
    pub device_of_node: u64,
    /// Its size in bytes; of a link, the length of its target.
    pub size: u64,
    /// The preferred size of reads and writes, in bytes.
    pub block_size: u64,
    /// The space that it takes on the disk, in units of 512 bytes.
    pub blocks: u64,
    /// When it was read last, as far as the file system keeps count. Times have nanoseconds.
    pub accessed: SystemTime,
    /// When its bytes were changed last.
    pub modified: SystemTime,
    /// When its bytes or its metadata were changed last.
    pub changed: SystemTime,
    /// When it was made, where system and file system know.
    pub created: Option<SystemTime>,
    /// What direct I/O has to be aligned to, where the system says (`STATX_DIOALIGN`, Linux 6.1).
    /// `None` also where the file cannot be opened for it.
    pub direct: Option<DirectAlignment>,
}

/// What direct I/O has to be aligned to, in bytes: powers of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DirectAlignment {
    /// Where the memory starts.
    pub memory: u32,
    /// Offset in the file, and length.
    pub offset: u32,
}

impl Metadata {
    /// The kind of the file.
    pub const fn kind(&self) -> FileKind {
        FileKind::of_mode(self.mode)
    }

    /// Its permissions: the lowest twelve bits of the mode.
    pub const fn permissions(&self) -> u32 {
        self.mode & 0o7777
    }
}

/// A file system: statfs(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StatFs {
    /// Its type, in the system's numbers (Linux: statfs(2); 0 on OpenBSD).
    pub kind: u64,
    /// The size of a block in bytes.
    pub block_size: u64,
    /// How many blocks there are.
    pub blocks: u64,
    /// How many are free.
    pub blocks_free: u64,
    /// How many of them are for others than root.
    pub blocks_available: u64,
    /// How many files there can be; 0 where there is no such bound.
    pub files: u64,
    /// How many more there can be.
    pub files_free: u64,
}
