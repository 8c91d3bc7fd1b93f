//! The strategies that draw random programs and their settings.

use proptest::prelude::*;
use windlass::sim::Faults;

use super::steps::{Case, Due, Ending, How, Keep, Limits, Owner, Step};
use crate::worlds::Network;

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
    (due(), prop::bool::weighted(0.15), prop::bool::weighted(0.3))
        .prop_map(|(due, remote, quiet)| How { due, remote, quiet })
}

fn keep() -> impl Strategy<Value = Keep> {
    prop_oneof![8 => Just(Keep::Take), 1 => Just(Keep::Stay), 1 => Just(Keep::Drop)]
}

fn len() -> impl Strategy<Value = u32> {
    prop_oneof![
        1 => Just(0),
        6 => 1..300u32,
        4 => 1..8_000u32,
        2 => 1..40_000u32,
        1 => 1..300_000u32,
    ]
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
        // Most end at their deadline, and often with some bytes.
        2 => (on(), 3_000..4_000u16, any::<u8>(), 0..2_000_000u32, how())
            .prop_map(|(on, count, spare, ns, how)| {
                Step::ReadExact { on, count, spare, how: How { due: Due::In(ns), ..how } }
            }),
        2 => (on(), 0..3_000u16, 1..3_000u16, how())
            .prop_map(|(on, len, spare, how)| Step::ReadAppend { on, len, spare, how }),
        3 => (on(), any::<u8>(), how())
            .prop_map(|(on, which, how)| Step::AppendLease { on, which, how }),
        3 => (on(), prop::collection::vec(0..3_000u16, 1..4))
            .prop_map(|(on, rooms)| Step::Recv { on, rooms }),
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
        4 => (on(), prop::collection::vec(0..4_000u16, 1..4))
            .prop_map(|(on, lens)| Step::Send { on, lens }),
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
        6 => (on(), any::<bool>(), prop::bool::weighted(0.2), how())
            .prop_map(|(on, writes, many, how)| Step::Ready { on, writes, many, how }),
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
        6 => (any::<u16>(), due()).prop_map(|(which, due)| Step::Move { which, due }),
        3 => (on(), prop::option::weighted(0.8, 0..40u16))
            .prop_map(|(on, ms)| Step::Idle { on, ms }),
        2 => (1..6u8, prop::bool::weighted(0.2))
            .prop_map(|(count, elsewhere)| Step::Post { count, elsewhere }),
        3 => prop::bool::weighted(0.2).prop_map(|elsewhere| Step::Release { elsewhere }),
    ]
}

fn work() -> impl Strategy<Value = Step> {
    let (on, offset) =
        (any::<u8>, || prop_oneof![2 => Just(0), 3 => 0..3_000u16, 1 => 0..16_384u16]);
    let few = |most: u16| {
        prop_oneof![
            4 => prop::collection::vec(1..most, 1),
            1 => prop::collection::vec(0..most, 2..5),
        ]
    };
    prop_oneof![
        3 => (on(), how()).prop_map(|(file, how)| Step::Open { file, how }),
        10 => (on(), offset(), few(9_000), how())
            .prop_map(|(on, offset, rooms, how)| Step::ReadAt { on, offset, rooms, how }),
        10 => (on(), offset(), few(6_000), how())
            .prop_map(|(on, offset, lens, how)| Step::WriteAt { on, offset, lens, how }),
        1 => (on(), any::<bool>(), how()).prop_map(|(on, data, how)| Step::Sync { on, data, how }),
        2 => (on(), offset(), how()).prop_map(|(on, len, how)| Step::SetLen { on, len, how }),
        4 => (any::<u8>(), prop::bool::weighted(0.2), how())
            .prop_map(|(us, panics, how)| Step::Job { us, panics, how }),
    ]
}

fn step(together: u32) -> impl Strategy<Value = Step> {
    let ns = prop_oneof![1 => Just(None), 2 => (0..3_000_000u32).prop_map(Some)];
    prop_oneof![
        60 => reading(),
        70 => writing(),
        40 => connecting(),
        80 => other(),
        80 => work(),
        70 => (ns, keep()).prop_map(|(ns, keep)| Step::Wait { ns, keep }),
        1 => Just(Step::CloseWatcher),
        together => (1..4u8, prop::collection::vec(any::<u8>(), 1..7))
            .prop_map(|(count, kinds)| Step::Together { count, kinds }),
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
    let threads = (prop_oneof![1 => 1..4usize, 2 => Just(4096)], 1..4usize);
    (tables, sizes, quirks, threads).prop_map(|(tables, sizes, quirks, threads)| {
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
            jobs: threads.0,
            threads: threads.1,
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

/// A program of at most `most` steps, without threads beside the loop: a simulation repeats it.
pub fn case(most: usize) -> impl Strategy<Value = Case> {
    case_of(most, 0)
}

/// As `case`, with such threads.
pub fn case_with_threads(most: usize) -> impl Strategy<Value = Case> {
    case_of(most, 8)
}

fn case_of(most: usize, together: u32) -> impl Strategy<Value = Case> {
    let steps =
        (prop::collection::vec(step(together), 1..most), 0..4u8).prop_map(|(steps, start)| {
            let mut all = Vec::new();
            let how = How { due: Due::Never, remote: false, quiet: false };
            if start == 3 {
                all.extend((0..3).map(|file| Step::Open { file, how }));
                all.push(Step::Wait { ns: Some(1_000_000), keep: Keep::Take });
            } else if start > 0 {
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
