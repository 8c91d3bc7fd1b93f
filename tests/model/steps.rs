//! Random programs: their steps, and how they are drawn.

use proptest::prelude::*;
use windlass::sim::Faults;
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
    /// Ways of the ring that this kernel would not take, or would.
    pub quirks: &'static str,
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

/// What every operation can have.
#[derive(Clone, Copy, Debug)]
pub struct How {
    pub due: Due,
    /// By a submitter, not by the watcher.
    pub remote: bool,
}

/// Who owns the bytes of a write.
#[derive(Clone, Copy, Debug)]
pub enum Owner {
    Vec,
    Box,
    Shared,
    Other,
}

/// What happens to delivered completions.
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
    Pair { tcp: bool, remote: bool },
    Listen,
    Accept { on: u8, many: bool, how: How },
    Connect { to: u8, how: How },
    Read { on: u8, how: How },
    ReadMany { on: u8, how: How },
    ReadInto { on: u8, rooms: Vec<u16>, how: How },
    ReadExact { on: u8, count: u16, spare: u8, how: How },
    Write { on: u8, len: u32, owner: Owner, how: How },
    WriteParts { on: u8, lens: Vec<u16>, how: How },
    WriteLease { on: u8, which: u8, how: How },
    Shutdown { on: u8, how: How },
    Close { on: u8, how: How },
    Poll { on: u8, interest: u8, how: How },
    Drained { on: u8, bytes: u16, how: How },
    Timer { ns: u32, absolute: bool, remote: bool },
    Nop { remote: bool },
    Refused { on: u8, which: u8 },
    Abort { on: u8, remote: bool },
    Reattach { on: u8 },
    Cancel { which: u16, remote: bool },
    CancelAll { on: u8 },
    Post { count: u8, elsewhere: bool },
    Release { elsewhere: bool },
    Wait { ns: Option<u32>, keep: Keep },
    CloseWatcher,
}

fn due() -> impl Strategy<Value = Due> {
    prop_oneof![
        12 => Just(Due::Never),
        1 => Just(Due::Past),
        2 => (0..2_000_000u32).prop_map(Due::At),
        2 => (0..2_000_000u32).prop_map(Due::In),
        1 => Just(Due::Late),
    ]
}

fn how() -> impl Strategy<Value = How> {
    (due(), prop::bool::weighted(0.15)).prop_map(|(due, remote)| How { due, remote })
}

fn keep() -> impl Strategy<Value = Keep> {
    prop_oneof![8 => Just(Keep::Take), 1 => Just(Keep::Stay), 1 => Just(Keep::Drop)]
}

fn len() -> impl Strategy<Value = u32> {
    prop_oneof![6 => 1..300u32, 4 => 1..8_000u32, 2 => 1..40_000u32, 1 => 1..300_000u32]
}

fn owner() -> impl Strategy<Value = Owner> {
    prop_oneof![
        4 => Just(Owner::Vec),
        1 => Just(Owner::Box),
        1 => Just(Owner::Shared),
        1 => Just(Owner::Other),
    ]
}

fn reading() -> impl Strategy<Value = Step> {
    let on = any::<u8>;
    prop_oneof![
        6 => (on(), how()).prop_map(|(on, how)| Step::Read { on, how }),
        1 => (on(), how()).prop_map(|(on, how)| Step::ReadMany { on, how }),
        3 => (on(), prop::collection::vec(1..6_000u16, 1), how())
            .prop_map(|(on, rooms, how)| Step::ReadInto { on, rooms, how }),
        2 => (on(), prop::collection::vec(0..800u16, 1..5), how())
            .prop_map(|(on, rooms, how)| Step::ReadInto { on, rooms, how }),
        4 => (on(), 1..4_000u16, any::<u8>(), how())
            .prop_map(|(on, count, spare, how)| Step::ReadExact { on, count, spare, how }),
    ]
}

fn writing() -> impl Strategy<Value = Step> {
    let on = any::<u8>;
    prop_oneof![
        10 => (on(), len(), owner(), how())
            .prop_map(|(on, len, owner, how)| Step::Write { on, len, owner, how }),
        4 => (on(), prop::collection::vec(0..4_000u16, 1..6), how())
            .prop_map(|(on, lens, how)| Step::WriteParts { on, lens, how }),
        3 => (on(), any::<u8>(), how())
            .prop_map(|(on, which, how)| Step::WriteLease { on, which, how }),
        1 => (on(), how()).prop_map(|(on, how)| Step::Shutdown { on, how }),
        1 => (on(), how()).prop_map(|(on, how)| Step::Close { on, how }),
    ]
}

fn connecting() -> impl Strategy<Value = Step> {
    let on = any::<u8>;
    prop_oneof![
        3 => (any::<bool>(), prop::bool::weighted(0.3))
            .prop_map(|(tcp, remote)| Step::Pair { tcp, remote }),
        1 => Just(Step::Listen),
        5 => (on(), any::<bool>(), how())
            .prop_map(|(on, many, how)| Step::Accept { on, many, how }),
        6 => (on(), how()).prop_map(|(to, how)| Step::Connect { to, how }),
    ]
}

fn other() -> impl Strategy<Value = Step> {
    let on = any::<u8>;
    prop_oneof![
        4 => (on(), 0..8u8, how())
            .prop_map(|(on, interest, how)| Step::Poll { on, interest, how }),
        4 => (on(), prop_oneof![Just(0), 0..5_000u16], how())
            .prop_map(|(on, bytes, how)| Step::Drained { on, bytes, how }),
        4 => (0..3_000_000u32, any::<bool>(), prop::bool::weighted(0.2))
            .prop_map(|(ns, absolute, remote)| Step::Timer { ns, absolute, remote }),
        2 => any::<bool>().prop_map(|remote| Step::Nop { remote }),
        3 => (on(), any::<u8>()).prop_map(|(on, which)| Step::Refused { on, which }),
        2 => (on(), any::<bool>()).prop_map(|(on, remote)| Step::Abort { on, remote }),
        2 => on().prop_map(|on| Step::Reattach { on }),
        14 => (any::<u16>(), prop::bool::weighted(0.25))
            .prop_map(|(which, remote)| Step::Cancel { which, remote }),
        2 => on().prop_map(|on| Step::CancelAll { on }),
        2 => (1..6u8, prop::bool::weighted(0.2))
            .prop_map(|(count, elsewhere)| Step::Post { count, elsewhere }),
        3 => prop::bool::weighted(0.2).prop_map(|elsewhere| Step::Release { elsewhere }),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let ns = prop_oneof![1 => Just(None), 2 => (0..3_000_000u32).prop_map(Some)];
    prop_oneof![
        60 => reading(),
        70 => writing(),
        40 => connecting(),
        80 => other(),
        70 => (ns, keep()).prop_map(|(ns, keep)| Step::Wait { ns, keep }),
        1 => Just(Step::CloseWatcher),
    ]
}

fn limits() -> impl Strategy<Value = Limits> {
    let tables = (
        prop_oneof![1 => Just(16u32), 1 => Just(48), 3 => Just(1 << 20)],
        prop_oneof![1 => Just(14u32), 3 => Just(1 << 20)],
        prop_oneof![Just(3usize), Just(4096)],
        1..8usize,
    );
    let sizes = (
        (0..9u32).prop_map(|bits| 64 << bits),
        prop_oneof![1..4usize, 1..64usize],
        prop_oneof![1 => 1..20_000u32, 4 => Just(u32::MAX)],
        prop_oneof![1..4_000usize, Just(256 << 10)],
        prop_oneof![1..4_000usize, Just(256 << 10)],
        prop_oneof![1..8usize, Just(1024)],
    );
    let quirks =
        prop_oneof![4 => Just(""), 1 => Just("unix-sends=off"), 1 => Just("whole-buffers=on")];
    (tables, sizes, quirks).prop_map(|(tables, sizes, quirks)| {
        let (operations, sources, queue, reserve) = tables;
        let (chunk, chunks, write_bytes, source_bytes, turn_bytes, events) = sizes;
        // More than a quarter of a table is not kept.
        let most = operations.min(sources) as usize / 4;
        Limits {
            operations,
            sources,
            queue,
            reserve: reserve.min(most).max(1),
            chunk,
            chunks,
            write_bytes,
            source_bytes,
            turn_bytes,
            events,
            quirks,
        }
    })
}

/// Faults of every kind, or of none.
fn faults() -> impl Strategy<Value = Faults> {
    prop_oneof![
        2 => Just(Faults::none()),
        2 => prop_oneof![Just(0.05), Just(0.3), Just(0.6)].prop_map(Faults::transient),
        1 => prop_oneof![Just(0.02), Just(0.1)].prop_map(Faults::all),
    ]
}

fn network() -> impl Strategy<Value = Network> {
    let buffer = prop_oneof![1..300usize, 1..9_000usize, Just(64 << 10)];
    (any::<u64>(), faults(), buffer).prop_map(|(seed, faults, buffer)| Network {
        seed,
        faults,
        buffer,
    })
}

fn ending() -> impl Strategy<Value = Ending> {
    prop_oneof![
        6 => Just(Ending::Finish),
        2 => Just(Ending::Close),
        1 => Just(Ending::CloseNow),
        1 => Just(Ending::DropNow),
    ]
}

/// A program of at most `most` steps.
pub fn case(most: usize) -> impl Strategy<Value = Case> {
    let steps = (prop::collection::vec(step(), 1..most), 0..3u8).prop_map(|(steps, start)| {
        let mut all = Vec::new();
        if start > 0 {
            let how = How { due: Due::Never, remote: false };
            let accept = Step::Accept { on: 0, many: start == 1, how };
            let connect = Step::Connect { to: 1, how };
            all = vec![
                Step::Pair { tcp: start == 2, remote: false },
                Step::Listen,
                accept,
                connect.clone(),
                connect,
            ];
        }
        all.extend(steps);
        all
    });
    (network(), limits(), steps, ending()).prop_map(|(network, limits, steps, ending)| Case {
        network,
        limits,
        steps,
        ending,
    })
}
