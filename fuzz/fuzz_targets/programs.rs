//! Programs of operations on the simulated kernel, against the model of the contract that
//! `tests/model.rs` uses: one final completion for each accepted operation, buffers back, streams
//! equal byte by byte at the end.
//!
//! The bytes of the input choose the steps, the settings and the faults; every input is a program.
#![no_main]

use arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use windlass::sim::Faults;

#[path = "../../tests/common/counts.rs"]
mod counts;
#[path = "../../tests/common/random_jobs.rs"]
mod random_jobs;
#[path = "../../tests/common/seeds.rs"]
mod seeds;
#[allow(dead_code, unreachable_pub)] // the model also serves tests of single steps
#[path = "../../tests/model"]
mod model {
    pub mod check;
    pub mod direct;
    pub mod files;
    pub mod finish;
    pub mod quiet;
    pub mod run;
    pub mod state;
    pub mod steps;
    pub mod submit;
    pub mod together;
}
#[path = "../../tests/worlds/mod.rs"]
mod worlds;

use model::files;
use model::state::{Held, Model};
use model::steps::{Case, Due, Ending, How, Keep, Limits, Owner, Step};
use worlds::{Completed, Network, Virtual, World};

/// The most steps of a program.
const STEPS: usize = 60;
/// The most bytes that the writes of a program have. With the smallest buffers, budgets and leases
/// each turn moves a few bytes, and the model looks at all operations after each wait.
const BYTES: usize = 96 << 10;

fuzz_target!(|input: &[u8]| {
    let mut input = Unstructured::new(input);
    let Ok((completes, case)) = program(&mut input) else { return };
    match completes {
        false => run::<Virtual>(&case),
        true => run::<Completed>(&case),
    }
});

fn run<W: World>(case: &Case) {
    let mut model = Model::<W>::new(case);
    for step in &case.steps {
        model.step(step);
    }
    match case.ending {
        _ if model.closed => model.drain_closed(),
        Ending::Finish => model.finish(),
        Ending::Close => {
            model.finish();
            model.close();
            model.drain_closed();
        }
        Ending::CloseNow => {
            model.close();
            model.drain_closed();
        }
        Ending::DropNow => {}
    }
    let Model { watcher, held, done, submitter, .. } = model;
    drop(watcher);
    assert!(submitter.is_closed(), "a submitter outlives its watcher");
    // Leases and undelivered completions outlive it, too.
    held.into_iter().for_each(Held::release);
    drop(done);
}

/// A program, and whether its kernel completes operations by itself.
fn program(u: &mut Unstructured) -> Result<(bool, Case)> {
    let completes = u.arbitrary()?;
    let network = network(u)?;
    let limits = limits(u)?;
    let endings = [Ending::Finish, Ending::Close, Ending::CloseNow, Ending::DropNow];
    let ending = *u.choose(&endings)?;
    let mut steps = vec![Step::Pair { tcp: false, remote: false }];
    let mut bytes = 0;
    while !u.is_empty() && steps.len() < STEPS && bytes < BYTES {
        let step = step(u)?;
        bytes += match &step {
            Step::Write { len, .. } => *len as usize,
            Step::WriteParts { lens, .. } | Step::Send { lens, .. } => {
                lens.iter().map(|&len| usize::from(len)).sum()
            }
            _ => 0,
        };
        steps.push(step);
    }
    Ok((completes, Case { network, limits, steps, ending }))
}

fn network(u: &mut Unstructured) -> Result<Network> {
    let faults = match u.int_in_range(0..=3)? {
        0 => Faults::none(),
        1 => Faults::transient(0.3),
        2 => Faults::transient(0.1),
        // More work on files reaches the kernel.
        _ => Faults { cache_miss: 0.8, ..Faults::all(0.1) },
    };
    // With smaller ones, or more faults, a program takes seconds on the kernel that completes.
    let buffer = *u.choose(&[200, 1000, 4000, 64 << 10])?;
    Ok(Network { seed: u.arbitrary::<u16>()?.into(), faults, buffer })
}

fn limits(u: &mut Unstructured) -> Result<Limits> {
    let operations = *u.choose(&[1 << 20, 16, 48])?;
    let sources: u32 = *u.choose(&[1 << 20, 14])?;
    // More than a quarter of a table is not kept.
    let most = operations.min(sources) as usize / 4;
    Ok(Limits {
        operations,
        sources,
        queue: *u.choose(&[4096, 3])?,
        reserve: u.int_in_range(1..=most.min(7))?,
        chunk: 64 << u.int_in_range(0..=8)?,
        chunks: u.int_in_range(1..=16)?,
        write_bytes: *u.choose(&[u32::MAX, 1000])?,
        source_bytes: *u.choose(&[256 << 10, 60, 700])?,
        turn_bytes: *u.choose(&[256 << 10, 60, 700])?,
        events: *u.choose(&[1024, 1, 3])?,
        quirks: u.choose(&["", "unix-sends=off", "whole-buffers=on"])?,
        jobs: *u.choose(&[4096, 1, 3])?,
        threads: u.int_in_range(1..=3)?,
    })
}

fn how(u: &mut Unstructured) -> Result<How> {
    let due = match u.int_in_range(0..=15)? {
        0 => Due::Past,
        1 => Due::At(u.int_in_range(0..=2_000_000)?),
        2 => Due::In(u.int_in_range(0..=2_000_000)?),
        3 => Due::Late,
        _ => Due::Never,
    };
    Ok(How { due, remote: u.ratio(1, 8)?, quiet: u.ratio(1, 4)? })
}

/// Up to so many lengths below 4096, at least one.
fn lens(u: &mut Unstructured, most: usize) -> Result<Vec<u16>> {
    let count = u.int_in_range(1..=most)?;
    (0..count).map(|_| u.int_in_range(0..=4095)).collect()
}

fn offset(u: &mut Unstructured) -> Result<u16> {
    u.int_in_range(0..=files::SPAN as u16 - 1)
}

fn step(u: &mut Unstructured) -> Result<Step> {
    let on = u.arbitrary()?;
    Ok(match u.int_in_range(0..=41)? {
        0 => Step::Pair { tcp: u.arbitrary()?, remote: u.arbitrary()? },
        1 => Step::Listen,
        2 => Step::Accept { on, many: u.arbitrary()?, how: how(u)? },
        3 => Step::Connect { to: on, how: how(u)? },
        4 => Step::Read { on, how: how(u)? },
        5 => Step::ReadMany { on, how: how(u)? },
        6 => Step::ReadInto { on, rooms: vec![u.int_in_range(1..=6000)?], how: how(u)? },
        7 => Step::ReadInto { on, rooms: lens(u, 4)?, how: how(u)? },
        8 => {
            let count = u.int_in_range(1..=4000)?;
            Step::ReadExact { on, count, spare: u.arbitrary()?, how: how(u)? }
        }
        9 => {
            let len = u.int_in_range(1..=5000)?;
            let owners = [Owner::Vec, Owner::Box, Owner::Shared, Owner::Other];
            Step::Write { on, len, owner: *u.choose(&owners)?, how: how(u)? }
        }
        10 => Step::Write { on, len: 1, owner: Owner::Vec, how: how(u)? },
        11 => Step::WriteParts { on, lens: lens(u, 5)?, how: how(u)? },
        12 => Step::WriteLease { on, which: u.arbitrary()?, how: how(u)? },
        13 => Step::Shutdown { on, how: how(u)? },
        14 => Step::Close { on, how: how(u)? },
        15 => Step::Poll { on, interest: u.int_in_range(0..=7)?, how: how(u)? },
        16 => Step::Drained { on, bytes: u.int_in_range(0..=4999)?, how: how(u)? },
        17 => {
            let ns = u.int_in_range(0..=2_999_999)?;
            Step::Timer { ns, absolute: u.arbitrary()?, remote: u.arbitrary()? }
        }
        18 => Step::Nop { remote: u.arbitrary()? },
        19 => Step::Refused { on, which: u.arbitrary()? },
        20 => Step::Abort { on, remote: u.arbitrary()? },
        21 => Step::Reattach { on },
        22 | 23 => Step::Cancel { which: u.arbitrary()?, remote: u.ratio(1, 4)? },
        24 => Step::CancelAll { on },
        25 => Step::Post { count: u.int_in_range(1..=5)?, elsewhere: u.ratio(1, 8)? },
        26 => Step::Release { elsewhere: u.ratio(1, 8)? },
        27 if u.ratio(1, 8)? => Step::CloseWatcher,
        28 => Step::Open { file: on, how: how(u)? },
        29 | 30 => Step::ReadAt { on, offset: offset(u)?, rooms: lens(u, 3)?, how: how(u)? },
        31 | 32 => Step::WriteAt { on, offset: offset(u)?, lens: lens(u, 3)?, how: how(u)? },
        33 => Step::Sync { on, data: u.arbitrary()?, how: how(u)? },
        34 => Step::SetLen { on, len: offset(u)?, how: how(u)? },
        35 => Step::Job { us: u.arbitrary()?, panics: u.ratio(1, 4)?, how: how(u)? },
        36 => Step::Recv { on, rooms: lens(u, 3)? },
        37 => Step::Send { on, lens: lens(u, 3)? },
        38 => {
            let spare = u.int_in_range(1..=2999)?;
            Step::ReadAppend { on, len: u.int_in_range(0..=2999)?, spare, how: how(u)? }
        }
        39 => Step::AppendLease { on, which: u.arbitrary()?, how: how(u)? },
        _ => {
            let ns = if u.arbitrary()? { Some(u.int_in_range(0..=2_999_999)?) } else { None };
            let keep = match u.int_in_range(0..=9)? {
                0 => Keep::Stay,
                1 => Keep::Drop,
                _ => Keep::Take,
            };
            Step::Wait { ns, keep }
        }
    })
}
