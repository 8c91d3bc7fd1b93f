//! The steps of random programs, and the entries of a trace.

use std::collections::BTreeMap;

use proptest::prelude::*;
use windlass::driver::OpCode;
use windlass::fs::FileKind;
use windlass::{ErrorKind, Refusal};

/// One step, and the way on which its operations come.
#[derive(Clone, Debug)]
pub struct Turn {
    pub step: Step,
    pub route: Route,
}

/// Who submits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// The watcher.
    Loop,
    /// A submitter on the loop's thread.
    Submitter,
    /// A submitter on another thread.
    Thread,
}

#[derive(Clone, Debug)]
pub enum Step {
    Stream(StreamStep),
    File(FileStep),
    Work(WorkStep),
}

impl Step {
    /// Whether it asks the loop of a source, which knows nothing of what is queued elsewhere.
    pub fn asks(&self) -> bool {
        use StreamStep::{Abort, CancelIdle, Detach};
        matches!(self, Step::Stream(Abort { .. } | CancelIdle { all: true, .. } | Detach { .. }))
    }
}

#[derive(Clone, Debug)]
pub enum StreamStep {
    /// Writes on one side, exact reads of other sizes on the other.
    Send {
        on: u8,
        writes: Vec<u16>,
        cut: u16,
        reads_first: bool,
        vectored: bool,
    },
    /// Reads without buffers until everything is there.
    SendToLeases {
        on: u8,
        len: u16,
        many: bool,
    },
    /// An echo, the lease itself being the answer.
    Echo {
        on: u8,
        len: u16,
    },
    /// Calls that move bytes at once, and readiness where they would block.
    Direct {
        on: u8,
        len: u16,
        piece: u16,
    },
    /// Reads of every kind that find nothing and are cancelled.
    CancelIdle {
        on: u8,
        count: u8,
        all: bool,
    },
    /// Reads of every kind that find nothing and expire.
    Expire {
        on: u8,
        count: u8,
        us: u16,
        past: bool,
    },
    /// A read that is cancelled with some of its bytes; the next gets the others.
    CancelPartly {
        on: u8,
        len: u16,
        more: u8,
    },
    /// A write that the peer does not read, with others behind it, is cancelled or expires.
    Tear {
        on: u8,
        behind: u8,
        expire: bool,
    },
    /// One side shuts its writing side; the other reads to the end.
    HalfClose {
        on: u8,
        left: u16,
        exact: bool,
    },
    /// A write behind the own shutdown.
    WriteAfterShutdown {
        on: u8,
    },
    /// Writes, then a close; the peer reads everything and the end.
    Flush {
        on: u8,
        len: u16,
    },
    /// Abort with reads pending.
    Abort {
        on: u8,
        pending: u8,
    },
    /// A connect to an address without a listener.
    Refused,
    /// A multishot accept serves some connections.
    Storm {
        count: u8,
    },
    Poll {
        on: u8,
        us: u16,
    },
    Detach {
        on: u8,
    },
    Invalid {
        on: u8,
    },
}

/// A step on a file. Operations on one file have no order: those that are in flight together do
/// not touch the same bytes, and none changes the length beside others.
#[derive(Clone, Debug)]
pub enum FileStep {
    /// One of the ways to open it, of which some fail.
    Open {
        name: u8,
        how: u8,
    },
    /// Reads at the same time, of so many parts.
    Read {
        on: u8,
        spans: Vec<(u16, u16, u8)>,
    },
    /// One write, whose buffer may be a list.
    Write {
        on: u8,
        offset: u16,
        lens: Vec<u16>,
    },
    /// Writes and reads of different pieces at the same time.
    Mixed {
        on: u8,
        pieces: u8,
        sync: bool,
    },
    /// A write or a read is cancelled or expires.
    Disturb {
        on: u8,
        offset: u16,
        len: u16,
        write: bool,
        us: Option<u8>,
    },
    SetLen {
        on: u8,
        len: u16,
    },
    Sync {
        on: u8,
        which: u8,
    },
    Stat {
        on: u8,
    },
    StatName {
        name: u8,
    },
    Access {
        name: u8,
    },
    Rename {
        from: u8,
        to: u8,
    },
    Remove {
        name: u8,
    },
    Link {
        from: u8,
        to: u8,
    },
    /// A range of a file goes out between two writes.
    Send {
        on: u8,
        file: u8,
        offset: u16,
        len: u16,
        many: bool,
    },
    /// By a close operation, or by an abort beside a read.
    Close {
        on: u8,
        abort: bool,
    },
}

/// A step without a source, or of other threads.
#[derive(Clone, Debug)]
pub enum WorkStep {
    /// Timers, in milliseconds.
    Timers {
        ms: Vec<u8>,
    },
    Messages {
        count: u8,
    },
    /// Jobs, some of which panic; one after the other, or all at once.
    Jobs {
        count: u8,
        us: u8,
        panics: u8,
        chain: bool,
    },
    /// A job that is cancelled, which may have begun.
    CancelJob {
        us: u8,
    },
    /// Threads submit while the loop waits, each for a connection and a file of its own.
    Threads {
        count: u8,
        rounds: Vec<u16>,
    },
}

/// An observation at a source: an operation has ended, or a call was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    End {
        code: OpCode,
        how: Result<&'static str, ErrorKind>,
        bytes: usize,
        sum: u64,
    },
    Some {
        code: OpCode,
        how: ErrorKind,
    },
    Total {
        bytes: usize,
        sum: u64,
    },
    Answer(Result<(), Refusal>),
    /// The attributes of a file that no system chooses.
    File {
        len: u64,
        links: u64,
        kind: FileKind,
    },
    /// What a file holds at the end, if it is there.
    Contents(Option<(usize, u64)>),
}

/// Where the trace lists an operation: its connection (`-1` if it has none), the side of the
/// connection, and the direction.
pub type Seat = (i32, usize, &'static str);

/// What a program sees: for each seat the observations, in their order.
pub type Trace = BTreeMap<Seat, Vec<Seen>>;

fn stream() -> impl Strategy<Value = StreamStep> {
    let on = any::<u8>;
    prop_oneof![
        6 => (
            on(),
            prop::collection::vec(1..9_000u16, 1..5),
            any::<u16>(),
            any::<bool>(),
            any::<bool>(),
        )
            .prop_map(|(on, writes, cut, reads_first, vectored)| {
                StreamStep::Send { on, writes, cut, reads_first, vectored }
            }),
        3 => (on(), 1..20_000u16, any::<bool>())
            .prop_map(|(on, len, many)| StreamStep::SendToLeases { on, len, many }),
        2 => (on(), 1..9_000u16).prop_map(|(on, len)| StreamStep::Echo { on, len }),
        3 => (on(), 1..30_000u16, 1..5_000u16)
            .prop_map(|(on, len, piece)| StreamStep::Direct { on, len, piece }),
        3 => (on(), 1..6u8, any::<bool>())
            .prop_map(|(on, count, all)| StreamStep::CancelIdle { on, count, all }),
        3 => (on(), 1..6u8, 0..900u16, any::<bool>())
            .prop_map(|(on, count, us, past)| StreamStep::Expire { on, count, us, past }),
        3 => (on(), 1..9_000u16, any::<u8>())
            .prop_map(|(on, len, more)| StreamStep::CancelPartly { on, len, more }),
        1 => (on(), 0..5u8, any::<bool>())
            .prop_map(|(on, behind, expire)| StreamStep::Tear { on, behind, expire }),
        2 => (on(), 1..5_000u16, any::<bool>())
            .prop_map(|(on, left, exact)| StreamStep::HalfClose { on, left, exact }),
        1 => on().prop_map(|on| StreamStep::WriteAfterShutdown { on }),
        1 => (on(), 1..9_000u16).prop_map(|(on, len)| StreamStep::Flush { on, len }),
        1 => (on(), 0..5u8).prop_map(|(on, pending)| StreamStep::Abort { on, pending }),
        2 => Just(StreamStep::Refused),
        1 => (1..9u8).prop_map(|count| StreamStep::Storm { count }),
        2 => (on(), 0..900u16).prop_map(|(on, us)| StreamStep::Poll { on, us }),
        2 => on().prop_map(|on| StreamStep::Detach { on }),
        2 => on().prop_map(|on| StreamStep::Invalid { on }),
    ]
}

fn file() -> impl Strategy<Value = FileStep> {
    let on = any::<u8>;
    let offset = || prop_oneof![2 => Just(0), 3 => 0..3_000u16, 1 => 0..20_000u16];
    let lens = prop_oneof![
        4 => prop::collection::vec(1..12_000u16, 1),
        1 => prop::collection::vec(0..3_000u16, 2..5),
    ];
    let spans = prop::collection::vec((offset(), 1..12_000u16, 1..4u8), 1..5);
    let us = prop::option::of(any::<u8>());
    prop_oneof![
        5 => (on(), on()).prop_map(|(name, how)| FileStep::Open { name, how }),
        5 => (on(), spans).prop_map(|(on, spans)| FileStep::Read { on, spans }),
        6 => (on(), offset(), lens)
            .prop_map(|(on, offset, lens)| FileStep::Write { on, offset, lens }),
        4 => (on(), 2..8u8, any::<bool>())
            .prop_map(|(on, pieces, sync)| FileStep::Mixed { on, pieces, sync }),
        3 => (on(), offset(), 1..9_000u16, any::<bool>(), us)
            .prop_map(|(on, offset, len, write, us)| {
                FileStep::Disturb { on, offset, len, write, us }
            }),
        2 => (on(), offset()).prop_map(|(on, len)| FileStep::SetLen { on, len }),
        2 => (on(), on()).prop_map(|(on, which)| FileStep::Sync { on, which }),
        2 => on().prop_map(|on| FileStep::Stat { on }),
        2 => on().prop_map(|name| FileStep::StatName { name }),
        1 => on().prop_map(|name| FileStep::Access { name }),
        2 => (on(), on()).prop_map(|(from, to)| FileStep::Rename { from, to }),
        2 => on().prop_map(|name| FileStep::Remove { name }),
        2 => (on(), on()).prop_map(|(from, to)| FileStep::Link { from, to }),
        4 => (on(), on(), offset(), 1..20_000u16, any::<bool>())
            .prop_map(|(on, file, offset, len, many)| {
                FileStep::Send { on, file, offset, len, many }
            }),
        2 => (on(), any::<bool>()).prop_map(|(on, abort)| FileStep::Close { on, abort }),
    ]
}

fn work() -> impl Strategy<Value = WorkStep> {
    prop_oneof![
        2 => prop::collection::vec(0..4u8, 1..6).prop_map(|ms| WorkStep::Timers { ms }),
        2 => (1..9u8).prop_map(|count| WorkStep::Messages { count }),
        3 => (1..9u8, any::<u8>(), any::<u8>(), any::<bool>())
            .prop_map(|(count, us, panics, chain)| WorkStep::Jobs { count, us, panics, chain }),
        1 => any::<u8>().prop_map(|us| WorkStep::CancelJob { us }),
        3 => (1..4u8, prop::collection::vec(1..3_000u16, 1..5))
            .prop_map(|(count, rounds)| WorkStep::Threads { count, rounds }),
    ]
}

/// A random step on a random way.
pub fn turn() -> impl Strategy<Value = Turn> {
    let step = prop_oneof![
        5 => stream().prop_map(Step::Stream),
        4 => file().prop_map(Step::File),
        1 => work().prop_map(Step::Work),
    ];
    let route =
        prop_oneof![6 => Just(Route::Loop), 1 => Just(Route::Submitter), 1 => Just(Route::Thread)];
    (step, route).prop_map(|(step, route)| Turn { step, route })
}
