//! The codes of operations, and what drivers know of each.

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum OpCode {
    /// Completes at the next wait.
    Nop,
    /// Completes at its deadline.
    Timer,
    /// Reads the bytes that have arrived into a lease.
    Read,
    /// Reads the bytes that have arrived into the operation's buffer.
    ReadInto,
    /// Reads the bytes that have arrived, and puts them behind those of the operation's buffer.
    ReadAppend,
    /// Fills `count` bytes of the operation's buffer.
    ReadExact,
    /// Writes all bytes of the buffer.
    Write,
    /// Takes a connection from a listener.
    Accept,
    /// Connects a new socket.
    Connect,
    /// Shuts the writing side down after the writes before it.
    Shutdown,
    /// Receives one datagram and its sender.
    RecvFrom,
    /// Sends one datagram.
    SendTo,
    /// Receives bytes and passed descriptors.
    RecvDescriptors,
    /// Sends bytes and descriptors.
    SendDescriptors,
    /// Waits for readiness.
    Poll,
    /// Waits until a read is worth a try.
    Readable,
    /// Waits until a write is worth a try.
    Writable,
    /// Takes a signal.
    Signal,
    /// Waits for the exit of a child process.
    ChildExit,
    /// Closes the source after the writes before it.
    Close,
    /// Waits until the source's queue of writes is short.
    WaitDrained,
    /// Reads a file at an offset.
    ReadAt,
    /// Writes a file at an offset.
    WriteAt,
    /// Puts the written bytes of a file, and its metadata, on the disk.
    SyncAll,
    /// As `SyncAll`, but leaves out metadata that a later read does not need.
    SyncData,
    /// Sends a file's bytes over a socket.
    SendFile,
    /// Work for a worker thread: an open, a rename, a name look-up, a job …
    Job,
    /// Not an operation: the code of a message from another thread.
    Message,
}

impl OpCode {
    /// The number of codes.
    pub const COUNT: usize = OpCode::Message as usize + 1;

    /// Every code, in the order of the numbers.
    pub const ALL: [OpCode; OpCode::COUNT] = [
        OpCode::Nop,
        OpCode::Timer,
        OpCode::Read,
        OpCode::ReadInto,
        OpCode::ReadAppend,
        OpCode::ReadExact,
        OpCode::Write,
        OpCode::Accept,
        OpCode::Connect,
        OpCode::Shutdown,
        OpCode::RecvFrom,
        OpCode::SendTo,
        OpCode::RecvDescriptors,
        OpCode::SendDescriptors,
        OpCode::Poll,
        OpCode::Readable,
        OpCode::Writable,
        OpCode::Signal,
        OpCode::ChildExit,
        OpCode::Close,
        OpCode::WaitDrained,
        OpCode::ReadAt,
        OpCode::WriteAt,
        OpCode::SyncAll,
        OpCode::SyncData,
        OpCode::SendFile,
        OpCode::Job,
        OpCode::Message,
    ];

    /// What drivers know of operations with this code. A new code gets its line here.
    #[inline]
    const fn traits(self) -> Traits {
        use Family as F;
        use OpCode::*;
        use WaitsIn::*;
        match self {
            Nop => Traits::new(F::Nop, Nothing, 0),
            Timer => Traits::new(F::Timer, Unordered, 0),
            Read => Traits::new(F::Read, Reads, 0),
            ReadInto | ReadExact => Traits::new(F::Read, Reads, BUF | FILLS),
            ReadAppend => Traits::new(F::Read, Reads, BUF),
            Write => Traits::new(F::Write, Writes, BUF | QUEUES | TEARS),
            Accept => Traits::new(F::Accept, Reads, 0),
            Connect => Traits::new(F::Connect, Writes, ADDRESS | DESCRIPTORS | NO_SOURCE),
            Shutdown => Traits::new(F::Close, Writes, 0),
            Close => Traits::new(F::Close, Writes, 0),
            RecvFrom => Traits::new(F::Datagram, Reads, BUF | FILLS),
            SendTo => Traits::new(F::Datagram, Writes, BUF | ADDRESS | QUEUES),
            RecvDescriptors => Traits::new(F::Descriptors, Reads, 0),
            SendDescriptors => {
                Traits::new(F::Descriptors, Writes, BUF | DESCRIPTORS | QUEUES | TEARS)
            }
            Poll | Readable | Writable | WaitDrained => Traits::new(F::Poll, Unordered, 0),
            Signal | ChildExit => Traits::new(F::Process, Reads, 0),
            ReadAt => Traits::new(F::File, Kernel, BUF | OFFSET | FILLS),
            WriteAt => Traits::new(F::File, Kernel, BUF | OFFSET),
            SyncAll | SyncData => Traits::new(F::File, Kernel, 0),
            SendFile => Traits::new(F::SendFile, Writes, QUEUES | TEARS),
            Job => Traits::new(F::Job, Kernel, 0),
            Message => Traits::new(F::Message, Nothing, NO_SOURCE),
        }
    }

    /// The operations that one file of the driver serves together.
    #[inline]
    pub(crate) const fn family(self) -> Family {
        self.traits().family
    }

    /// Where an operation waits that did not end at once.
    #[inline]
    pub(crate) const fn waits_in(self) -> WaitsIn {
        self.traits().waits_in
    }

    /// Whether it waits among the reads of its source.
    #[inline]
    pub(crate) const fn is_read(self) -> bool {
        matches!(self.waits_in(), WaitsIn::Reads)
    }

    /// Whether kernel or threads do it, in no order.
    #[inline]
    pub(crate) const fn is_file(self) -> bool {
        matches!(self.waits_in(), WaitsIn::Kernel)
    }

    #[inline]
    const fn has(self, flag: u8) -> bool {
        self.traits().flags & flag != 0
    }

    /// Whether it carries a buffer.
    pub(crate) const fn has_buf(self) -> bool {
        self.has(BUF)
    }

    /// Whether it carries an address.
    pub(crate) const fn has_address(self) -> bool {
        self.has(ADDRESS)
    }

    /// Whether it carries descriptors.
    pub(crate) const fn has_descriptors(self) -> bool {
        self.has(DESCRIPTORS)
    }

    /// Whether it carries an offset.
    pub(crate) const fn has_offset(self) -> bool {
        self.has(OFFSET)
    }

    /// Whether it fills its buffer from the start: what has arrived before it fails is kept.
    #[inline]
    pub(crate) const fn fills(self) -> bool {
        self.has(FILLS)
    }

    /// Whether its bytes count as queued until they are out.
    #[inline]
    pub(crate) const fn queues(self) -> bool {
        self.has(QUEUES)
    }

    /// Whether the writes behind it must not go out if a part of it is out and the rest is not.
    #[inline]
    pub(crate) const fn tears(self) -> bool {
        self.has(TEARS)
    }

    /// Whether its completion names no source.
    #[inline]
    pub(crate) const fn names_no_source(self) -> bool {
        self.has(NO_SOURCE)
    }
}

/// Operations that one file of the driver serves together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    Nop,
    Timer,
    Read,
    Write,
    Accept,
    Connect,
    Close,
    Datagram,
    Descriptors,
    Poll,
    Process,
    File,
    SendFile,
    Job,
    /// No operation of a program.
    Message,
}

/// Where an operation waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitsIn {
    /// The reads of its source, in their order.
    Reads,
    /// The writes of its source, in their order.
    Writes,
    /// The operations of its source that have no order.
    Unordered,
    /// As `Unordered`: kernel or threads do it.
    Kernel,
    /// It ends at once.
    Nothing,
}

const BUF: u8 = 1;
const ADDRESS: u8 = 1 << 1;
const DESCRIPTORS: u8 = 1 << 2;
const OFFSET: u8 = 1 << 3;
const FILLS: u8 = 1 << 4;
const QUEUES: u8 = 1 << 5;
const TEARS: u8 = 1 << 6;
const NO_SOURCE: u8 = 1 << 7;

#[derive(Clone, Copy)]
struct Traits {
    family: Family,
    waits_in: WaitsIn,
    flags: u8,
}

impl Traits {
    const fn new(family: Family, waits_in: WaitsIn, flags: u8) -> Traits {
        Traits { family, waits_in, flags }
    }
}
