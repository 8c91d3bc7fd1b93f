//! The steps of random programs, and the settings that they run with.

use windlass::{Builder, Watcher};

use crate::worlds::Network;

/// A whole random program, and the kernel and settings that it runs with.
#[derive(Clone, Debug)]
pub struct Case {
    pub network: Network,
    pub limits: Limits,
    pub steps: Vec<Step>,
    pub ending: Ending,
}

/// The watcher's settings.
#[derive(Clone, Debug)]
pub struct Limits {
    pub operations: u32,
    pub sources: u32,
    pub queue: usize,
    pub reserve: usize,
    pub chunk: u32,
    pub chunks: usize,
    pub write_bytes: u32,
    pub source_bytes: usize,
    pub turn_bytes: usize,
    pub events: usize,
    /// Quirks of the ring that override those of this kernel.
    pub quirks: &'static str,
    pub jobs: usize,
    pub threads: usize,
}

impl Limits {
    pub fn builder(&self) -> Builder {
        Watcher::builder()
            .max_operations(self.operations)
            .max_sources(self.sources)
            .remote_queue(self.queue)
            .id_reserve(self.reserve)
            .buffer_size(self.chunk)
            .swap_limit(self.chunk as usize * self.chunks)
            .write_limit(self.write_bytes as usize)
            .source_budget(self.source_bytes)
            .turn_budget(self.turn_bytes)
            .events_per_wait(self.events)
            .quirks(self.quirks)
            .max_jobs(self.jobs)
            .threads(self.threads)
    }
}

/// What becomes of the watcher after the last step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Everything is brought to its end and compared, then the watcher is dropped.
    Finish,
    /// As `Finish`, but it is closed before.
    Close,
    /// It is closed with everything in flight, and drained.
    CloseNow,
    /// It is dropped with everything in flight.
    DropNow,
}

/// When an operation ends at the latest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    Never,
    Past,
    /// An absolute time, so many nanoseconds from now.
    At(u32),
    /// A timeout of so many nanoseconds.
    In(u32),
    /// An hour from now.
    Late,
}

/// The settings of every operation.
#[derive(Clone, Copy, Debug)]
pub struct How {
    pub due: Due,
    /// By a submitter, not by the watcher.
    pub remote: bool,
    /// A write makes no completion if it succeeds; other operations do not look.
    pub quiet: bool,
}

/// The owner of the bytes of a write.
#[derive(Clone, Copy, Debug)]
pub enum Owner {
    Vec,
    Box,
    Shared,
    Other,
}

/// The fate of delivered completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// They are taken apart: sockets are attached, some leases are held.
    Take,
    /// They stay in the batch, and what they own with them.
    Stay,
    /// They are dropped unread, with all that was kept before.
    Drop,
}

/// One step. Sources are named by a number that is mapped to those that there are.
#[derive(Clone, Debug)]
pub enum Step {
    Pair {
        tcp: bool,
        remote: bool,
    },
    Listen,
    Accept {
        on: u8,
        many: bool,
        how: How,
    },
    Connect {
        to: u8,
        how: How,
    },
    Read {
        on: u8,
        how: How,
    },
    ReadMany {
        on: u8,
        how: How,
    },
    ReadInto {
        on: u8,
        rooms: Vec<u16>,
        how: How,
    },
    ReadExact {
        on: u8,
        count: u16,
        spare: u8,
        how: How,
    },
    ReadAppend {
        on: u8,
        len: u16,
        spare: u16,
        how: How,
    },
    AppendLease {
        on: u8,
        which: u8,
        how: How,
    },
    Idle {
        on: u8,
        ms: Option<u16>,
    },
    Move {
        which: u16,
        due: Due,
    },
    Write {
        on: u8,
        len: u32,
        owner: Owner,
        how: How,
    },
    WriteParts {
        on: u8,
        lens: Vec<u16>,
        how: How,
    },
    WriteLease {
        on: u8,
        which: u8,
        how: How,
    },
    Shutdown {
        on: u8,
        how: How,
    },
    Close {
        on: u8,
        how: How,
    },
    Poll {
        on: u8,
        interest: u8,
        how: How,
    },
    /// Waits until a direction is ready.
    Ready {
        on: u8,
        writes: bool,
        many: bool,
        how: How,
    },
    /// Calls that move bytes at once, by one piece of memory or by several.
    Recv {
        on: u8,
        rooms: Vec<u16>,
    },
    Send {
        on: u8,
        lens: Vec<u16>,
    },
    Drained {
        on: u8,
        bytes: u16,
        how: How,
    },
    Timer {
        ns: u32,
        absolute: bool,
        remote: bool,
    },
    Nop {
        remote: bool,
    },
    Open {
        file: u8,
        how: How,
    },
    ReadAt {
        on: u8,
        offset: u16,
        rooms: Vec<u16>,
        how: How,
    },
    WriteAt {
        on: u8,
        offset: u16,
        lens: Vec<u16>,
        how: How,
    },
    Sync {
        on: u8,
        data: bool,
        how: How,
    },
    SetLen {
        on: u8,
        len: u16,
        how: How,
    },
    Job {
        us: u8,
        panics: bool,
        how: How,
    },
    Refused {
        on: u8,
        which: u8,
    },
    Abort {
        on: u8,
        remote: bool,
    },
    Reattach {
        on: u8,
    },
    Cancel {
        which: u16,
        remote: bool,
    },
    CancelAll {
        on: u8,
    },
    Post {
        count: u8,
        elsewhere: bool,
    },
    /// So many threads submit operations of these kinds while the loop waits.
    Together {
        count: u8,
        kinds: Vec<u8>,
    },
    Release {
        elsewhere: bool,
    },
    Wait {
        ns: Option<u32>,
        keep: Keep,
    },
    CloseWatcher,
}
