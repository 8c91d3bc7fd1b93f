//! What the model knows: operations, ends of connections, connections, and the requests of other
//! threads that the loop has not taken yet.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::time::{Duration, Instant};

use windlass::driver::OpCode;
use windlass::sim::Faults;
use windlass::{
    Buf, Completions, Done, Error, ErrorKind, Lease, Source, Submitter, Ticket, Watcher,
};

use super::files::{Disk, FILES, Work};
use super::steps::{Case, Due, Limits};
use crate::counts::Counts;
use crate::worlds::World;

/// Tokens of messages from elsewhere count from here.
pub const POSTED: u64 = 1 << 40;

/// How an operation has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Done,
    /// A read at the end of the file.
    Nothing,
    Failed(ErrorKind),
}

impl End {
    pub fn of(result: &Result<Done, Error>) -> End {
        match result {
            Ok(Done::Read(data)) if data.is_eof() => End::Nothing,
            Ok(Done::Appended { bytes: 0, .. }) => End::Nothing,
            Ok(_) => End::Done,
            Err(error) => End::Failed(error.kind()),
        }
    }

    /// Whether operations that end so end in their order.
    pub fn is_ordered(self) -> bool {
        match self {
            End::Done | End::Nothing => true,
            End::Failed(kind) => matches!(kind, ErrorKind::Os(_) | ErrorKind::Eof),
        }
    }
}

/// An operation that was accepted.
pub struct Record {
    pub code: OpCode,
    /// The source it was submitted for, and where that is in `ends`.
    pub source: Source,
    pub end: Option<usize>,
    pub ticket: Ticket,
    pub multishot: bool,
    /// It makes no completion if it succeeds; unless a cancel of it was accepted.
    pub quiet: bool,
    pub must_answer: bool,
    /// Another thread has submitted the operation.
    pub remote: bool,
    /// The operation is still in the queue of other threads' requests.
    pub queued: bool,
    /// The position of the operation among those of its source.
    pub place: u64,
    /// The bytes that it writes, and whether they are a lease.
    pub payload: Vec<u8>,
    pub lease: bool,
    /// The bytes that its buffer had, behind which a read appends.
    pub prefix: Vec<u8>,
    /// How many bytes it asks for.
    pub wanted: usize,
    pub interest: u16,
    /// The listener that it connects to.
    pub target: Option<usize>,
    /// What it does beside the sockets: with a file, or as a job.
    pub work: Option<Work>,
    /// Where its memory is, and how much.
    pub memory: Vec<Memory>,
    /// The operation must not expire before this time.
    pub due: Option<Instant>,
    /// A wait that starts after this time must report that the operation has expired.
    pub overdue: Option<Instant>,
    pub timeout: Option<Duration>,
    /// The number of the call that accepted it, and of the one that asked for its end.
    pub accepted_at: u64,
    pub cancelled_at: Option<u64>,
    /// The next wait must report its end.
    pub due_now: bool,
    /// A write before it has ended partly sent: it must send nothing.
    pub must_tear: bool,
    /// The bytes that a read has received.
    pub data: Vec<u8>,
    pub moved: usize,
    pub ended: Option<End>,
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of port {:?}, place {}", self.code, self.end, self.place as i64)?;
        write!(f, ", {:?}, accepted at {}", self.ticket, self.accepted_at as i64)?;
        write!(f, ", multishot {}, queued {}", self.multishot, self.queued)?;
        write!(f, ", quiet {}, must answer {}", self.quiet, self.must_answer)?;
        write!(f, ", wants {}, has {}", self.wanted.max(self.payload.len()), self.moved)?;
        write!(f, ", due {:?} to {:?}", self.due, self.overdue)?;
        write!(f, ", cancelled at {:?}, due now {}", self.cancelled_at, self.due_now)?;
        write!(f, ", must tear {}, ended {:?}, {:?}", self.must_tear, self.ended, self.work)
    }
}

/// One piece of memory: where it starts, and its capacity if it is a vector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memory {
    pub start: usize,
    pub room: usize,
}

impl Memory {
    pub fn of(buf: &Buf) -> Vec<Memory> {
        let parts = buf.parts().iter();
        parts
            .map(|part| Memory { start: part.as_slice().as_ptr() as usize, room: part.capacity() })
            .collect()
    }
}

/// A source: one end of a connection, a listener, or a file.
#[derive(Debug)]
pub struct Port {
    pub source: Source,
    /// Its connection and which side of it; none for a listener.
    pub stream: Option<(usize, usize)>,
    pub address: Option<windlass::Address>,
    /// Which file it is.
    pub file: Option<usize>,
    /// Abort was asked for, or a close has completed.
    pub aborted: bool,
    /// Its operations may end as aborted.
    pub ending: bool,
    /// Another thread has attached it, and the loop may not know yet.
    pub reserved: bool,
    /// The earliest time at which an idle timeout may end its reads.
    pub idle_from: Option<Instant>,
    /// Its operations in the order of their submission, by direction.
    pub lists: [Vec<usize>; 2],
    pub next_place: u64,
    /// The place of the last one that ended in order, by direction.
    pub last_ordered: [Option<u64>; 2],
    /// The place of the last write that ended partly sent, and the call that brought its end.
    pub torn_by: Option<(u64, u64)>,
    /// Nothing more is to be read.
    pub over: bool,
    /// The writing side is shut, or was asked to be.
    pub shut: bool,
    pub shut_asked: bool,
}

pub const READS: usize = 0;
pub const WRITES: usize = 1;

/// Which queue an operation stands in.
pub fn direction(code: OpCode) -> Option<usize> {
    match code {
        OpCode::Read | OpCode::ReadInto | OpCode::ReadExact | OpCode::ReadAppend => Some(READS),
        OpCode::Accept => Some(READS),
        OpCode::Write | OpCode::Shutdown | OpCode::Close => Some(WRITES),
        _ => None,
    }
}

/// A connection: where its two ends are in `ports`, as far as they are known.
#[derive(Debug, Default)]
pub struct Stream {
    pub ports: [Option<usize>; 2],
    /// One end was aborted or closed, so that the other may meet errors and lose bytes.
    pub disturbed: bool,
    /// Which end is the other end of which is not known.
    pub unmatched: bool,
    /// Bytes drawn from each side's pattern.
    pub drawn: [usize; 2],
}

/// A request of another thread.
#[derive(Clone, Copy, Debug)]
pub enum Request {
    Attach(usize),
    Submit(usize),
    Cancel(usize),
    /// `sure` if it is surely queued: the source existed, and no other abort of it was queued.
    Abort {
        port: usize,
        sure: bool,
    },
    Post,
}

/// A lease that is held, and what was in it.
pub struct Held {
    pub lease: Lease,
    pub copy: Vec<u8>,
}

impl Held {
    pub fn release(self) {
        assert!(*self.lease == *self.copy, "a held lease was overwritten");
    }
}

/// Enough for several late cancels in a row.
const LATE: Duration = Duration::from_millis(10);

pub struct Model<W: World> {
    pub world: W,
    pub watcher: Watcher<W::Driver>,
    pub limits: Limits,
    /// The kernel injects no faults.
    pub calm: bool,
    /// Connections can break by themselves.
    pub resets: bool,
    /// How late a cancel may reach what is in the kernel.
    pub slack: Duration,
    /// Connects can fail by themselves.
    pub refusals: bool,
    pub submitter: Submitter,
    pub requests: VecDeque<Request>,
    /// Tickets and sources taken from the reserve since it was filled.
    pub taken: usize,
    pub ops: Vec<Record>,
    pub ports: Vec<Port>,
    pub streams: Vec<Stream>,
    /// Connections by the address of their connecting end; `None` where an address has stood for
    /// two connections at once.
    pub by_address: HashMap<String, Option<usize>>,
    pub disks: Vec<Disk>,
    /// Work on files can fail.
    pub disk_fails: bool,
    pub posted: VecDeque<u64>,
    pub next_post: u64,
    pub done: Completions,
    pub held: Vec<Held>,
    /// Unique leases, to read behind.
    pub unique: Vec<Buf>,
    /// Counts calls.
    pub call: u64,
    pub last_wait: u64,
    pub closed: bool,
    /// Everything is being brought to its end.
    pub finishing: bool,
    pub accepted: u64,
    pub posts: u64,
    pub delivered: u64,
    /// Quiet writes that are known to have succeeded.
    pub quiet_done: u64,
    pub counts: Counts,
}

impl<W: World> Model<W> {
    pub fn new(case: &Case) -> Model<W> {
        let world = W::open(&case.network);
        let mut watcher = world.watcher(case.limits.builder());
        let submitter = watcher.submitter();
        let faults = &case.network.faults;
        Model {
            world,
            watcher,
            limits: case.limits.clone(),
            calm: *faults == Faults::none(),
            resets: faults.reset > 0.0,
            slack: match case.limits.quirks {
                // A thread of the kernel may have a send, and the cancel waits for it.
                "unix-sends=off" if W::COMPLETES => W::BOUND,
                _ if W::COMPLETES && faults.late_cancel > 0.0 => LATE,
                _ => Duration::ZERO,
            },
            refusals: faults.connect_refused > 0.0 || faults.aborted > 0.0 || faults.emfile > 0.0,
            submitter,
            requests: VecDeque::new(),
            taken: 0,
            ops: Vec::new(),
            ports: Vec::new(),
            streams: Vec::new(),
            by_address: HashMap::new(),
            disk_fails: [faults.file_error, faults.sync_error, faults.disk_full]
                .into_iter()
                .any(|rate| rate > 0.0),
            disks: (0..FILES).map(|_| Disk::default()).collect(),
            posted: VecDeque::new(),
            next_post: 0,
            done: Completions::new(),
            held: Vec::new(),
            unique: Vec::new(),
            call: 0,
            last_wait: 0,
            closed: false,
            finishing: false,
            accepted: 0,
            posts: 0,
            delivered: 0,
            quiet_done: 0,
            counts: Counts::default(),
        }
    }

    pub fn count(&mut self, what: impl Into<String>) {
        self.counts.add(what);
    }

    /// The operations that have not ended, as far as completions have told.
    pub fn pending(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.ops.len()).filter(|&i| self.ops[i].ended.is_none())
    }

    pub fn is_pending_on(&self, port: usize, code: OpCode) -> bool {
        let mut pending = self.pending();
        pending.any(|i| self.ops[i].end == Some(port) && self.ops[i].code == code)
    }

    /// Whether a close operation is under way.
    pub fn is_closing(&self, port: usize) -> bool {
        self.is_pending_on(port, OpCode::Close)
    }

    /// Whether the source takes operations, for all that is known.
    pub fn is_open(&self, port: usize) -> bool {
        !self.ports[port].aborted && !self.is_closing(port)
    }

    /// Whether an end may meet errors and lose bytes.
    pub fn is_disturbed(&self, port: usize) -> bool {
        let Some((stream, _)) = self.ports[port].stream else {
            return false;
        };
        let stream = &self.streams[stream];
        self.resets || stream.disturbed || stream.ports.contains(&None)
    }

    pub fn disturb(&mut self, port: usize) {
        if let Some((stream, _)) = self.ports[port].stream {
            self.streams[stream].disturbed = true;
        }
    }

    /// The other end of a connection.
    pub fn peer(&self, port: usize) -> Option<usize> {
        let (stream, side) = self.ports[port].stream?;
        self.streams[stream].ports[1 - side]
    }

    pub fn add_port(&mut self, source: Source, stream: Option<(usize, usize)>) -> usize {
        self.ports.push(Port {
            source,
            stream,
            address: None,
            file: None,
            aborted: false,
            ending: false,
            reserved: false,
            idle_from: None,
            lists: [Vec::new(), Vec::new()],
            next_place: 0,
            last_ordered: [None; 2],
            torn_by: None,
            over: false,
            shut: false,
            shut_asked: false,
        });
        let port = self.ports.len() - 1;
        if let Some((stream, side)) = stream {
            self.streams[stream].ports[side] = Some(port);
        }
        port
    }

    /// The next bytes of the pattern of a direction.
    pub fn draw(&mut self, port: usize, len: usize) -> Vec<u8> {
        let Some((stream, side)) = self.ports[port].stream else {
            return vec![1; len];
        };
        let from = self.streams[stream].drawn[side];
        self.streams[stream].drawn[side] += len;
        let salt = (stream * 2 + side) as u64 * 0x51_7CC1;
        let byte = |i: usize| ((i as u64 + salt).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 47) as u8;
        (from..from + len).map(byte).collect()
    }

    /// When an operation with this deadline may expire, and its timeout if it is relative.
    pub fn when(&mut self, due: Due) -> (Option<Instant>, Option<Duration>) {
        let now = self.watcher.update_now();
        let ns = |ns: u32| Duration::from_nanos(u64::from(ns));
        match due {
            Due::Never => (None, None),
            Due::Past => (Some(now - Duration::from_micros(100)), None),
            Due::At(after) => (Some(now + ns(after)), None),
            Due::In(after) => (None, Some(ns(after))),
            Due::Late => (None, Some(Duration::from_secs(3600))),
        }
    }
}
