//! The example `log` in the simulation: it is killed and its machine crashes at any step, and every
//! acknowledged record is there afterwards. A log that lacks one of its precautions is found out.
#![allow(missing_docs)] // a test binary has no users

use std::io;
use std::time::Duration;

use journal::{Care, Journal, Step};
use windlass::sim::{Crash, Faults, Sim};
use windlass::{Completions, Watcher};

#[path = "../examples/log/journal.rs"]
mod journal;
#[path = "common/seeds.rs"]
mod seeds;

/// How often the log is started in a run.
const LIVES: u32 = 10;

/// What the runs have met.
#[derive(Debug, Default)]
struct Seen {
    crashes: u64,
    in_recovery: u64,
    kills: u64,
    acknowledged: u64,
    recovered: u64,
    errors: u64,
    crash: Crash,
    /// The sums of the faults, by name.
    faults: Vec<(&'static str, u64)>,
}

/// What a log must have, and may have.
#[derive(Default)]
struct Expected {
    /// The records that may be there, in their order.
    written: Vec<Vec<u8>>,
    /// How many of them must be there.
    acknowledged: usize,
}

impl Expected {
    /// Compares the records of a log that is ready. They are on the disk, so a later crash must not
    /// lose them.
    fn check(&mut self, found: &[Vec<u8>]) -> Result<(), String> {
        let (count, least) = (found.len(), self.acknowledged);
        if count < least {
            return Err(format!("{count} records are there, {least} were acknowledged"));
        }
        let pairs = found.iter().zip(&self.written);
        match pairs.take_while(|(a, b)| a == b).count() {
            same if same == count => {}
            same => return Err(format!("record {same} of {count} was not written so")),
        }
        self.written.truncate(count);
        self.acknowledged = count;
        Ok(())
    }
}

/// How the life of a log has ended.
enum End {
    /// In the middle of its work; true if it was still recovering.
    Stopped(bool),
    Failed(io::Error),
}

/// Starts a log, appends to it, and stops in the middle of some operation.
fn live(
    watcher: &mut Watcher,
    rng: &mut fastrand::Rng,
    path: &str,
    care: Care,
    expected: &mut Expected,
    seen: &mut Seen,
) -> Result<End, String> {
    let mut journal = match Journal::open(watcher, path, care) {
        Ok(journal) => journal,
        Err(error) => return Ok(End::Failed(error)),
    };
    let mut done = Completions::new();
    let (mut found, mut ready) = (Vec::new(), false);
    // A recovery alone has about eight steps.
    let steps = if rng.u8(0..4) == 0 { rng.u32(1..9) } else { rng.u32(1..40) };
    for _ in 0..steps {
        watcher.wait(&mut done).expect("something is in flight");
        for c in done.drain(..) {
            match journal.handle(watcher, c) {
                Ok(Step::Nothing) => {}
                Ok(Step::Found(records)) => found.extend(records),
                Ok(Step::Ready(end)) => {
                    let bytes: usize = found.iter().map(|record| 8 + record.len()).sum();
                    assert_eq!(end, bytes as u64, "it writes behind the last whole record");
                    expected.check(&found)?;
                    seen.recovered += found.len() as u64;
                    ready = true;
                }
                Ok(Step::Acknowledged(numbers)) => {
                    seen.acknowledged += numbers.len() as u64;
                    for number in numbers {
                        assert_eq!(number, expected.acknowledged, "in their order");
                        expected.acknowledged += 1;
                    }
                }
                Err(error) => return Ok(End::Failed(error)),
            }
        }
        if ready {
            let least = usize::from(!journal.is_busy());
            for _ in 0..rng.usize(least..4) {
                let size = if rng.u8(0..9) == 0 { 9_000 } else { 700 };
                let mut record = vec![0; rng.usize(9..size)];
                rng.fill(&mut record);
                journal.append(expected.written.len(), &record);
                expected.written.push(record);
            }
            if let Err(error) = journal.commit(watcher) {
                return Ok(End::Failed(error));
            }
        }
    }
    Ok(End::Stopped(!ready))
}

/// Runs a log through many lives. Returns what is wrong with it.
fn run(seed: u64, care: Care, seen: &mut Seen) -> Result<(), String> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let fails = if rng.bool() { 0.01 } else { 0.0 };
    let sim = Sim::with_faults(
        seed,
        Faults {
            file_error: fails,
            sync_error: fails,
            disk_full: fails,
            ..Faults::transient(rng.f64() * 0.2)
        },
    );
    sim.set_completing(rng.bool());
    sim.set_patience(Duration::ZERO); // there are no other threads
    let path = if rng.bool() { "log" } else { "data/log" };
    let mut expected = Expected::default();
    for _ in 0..LIVES {
        let mut watcher = Watcher::simulated(&sim);
        let end = live(&mut watcher, &mut rng, path, care, &mut expected, seen)?;
        match end {
            End::Failed(error) => {
                assert!(matches!(error.raw_os_error(), Some(libc::EIO | libc::ENOSPC)), "{error}");
                seen.errors += 1;
            }
            End::Stopped(recovers) => seen.in_recovery += u64::from(recovers),
        }
        if rng.u8(0..4) > 0 {
            seen.crashes += 1;
            seen.crash.add(&sim.crash());
        } else {
            seen.kills += 1;
        }
        drop(watcher);
    }
    let named = sim.injected().named();
    if seen.faults.is_empty() {
        seen.faults = named;
    } else {
        seen.faults.iter_mut().zip(named).for_each(|((_, sum), (_, count))| *sum += count);
    }
    Ok(())
}

#[test]
fn random_crashes_lose_no_acknowledged_record() {
    let mut seen = Seen::default();
    let ran = seeds::each("log", 10, 200, |seed| {
        if let Err(wrong) = run(seed, Care::default(), &mut seen) {
            panic!("seed {seed}: {wrong}");
        }
    });
    println!("{ran} seeds: {seen:?}");
    if ran < 50 {
        return; // a failure is repeated
    }
    let Crash { kept_names, lost_names, kept_sectors, lost_sectors, .. } = seen.crash;
    let Crash { kept_lengths, lost_lengths, .. } = seen.crash;
    let met = [
        ("crashes", seen.crashes),
        ("crashes in recovery", seen.in_recovery),
        ("kills", seen.kills),
        ("acknowledged records", seen.acknowledged),
        ("recovered records", seen.recovered),
        ("errors", seen.errors),
        ("kept names", kept_names),
        ("lost names", lost_names),
        ("kept sectors", kept_sectors),
        ("lost sectors", lost_sectors),
        ("kept lengths", kept_lengths),
        ("lost lengths", lost_lengths),
    ];
    for (what, count) in met {
        assert!(count > 0, "no {what} in {seen:?}");
    }
    let of_files = [
        "cache_miss",
        "handed_back",
        "short_file_read",
        "short_file_write",
        "file_error",
        "sync_error",
        "disk_full",
    ];
    for (name, count) in &seen.faults {
        assert!(*count > 0 || !of_files.contains(name), "no {name} in {seen:?}");
    }
}

/// Asserts that a log without one of its precautions is found out within 1,000 seeds.
fn expect_found(what: &str, care: Care, wrong: &str) {
    let mut seen = Seen::default();
    let told = (0..1000).find_map(|seed| Some((seed, run(seed, care, &mut seen).err()?)));
    let Some((seed, text)) = told else { panic!("{what}: not found in 1,000 seeds: {seen:?}") };
    println!("{what}: seed {seed}: {text}");
    assert!(text.contains(wrong), "{what}: seed {seed}: {text}");
}

#[test]
fn a_log_without_a_sync_of_its_directory_is_found_out() {
    let care = Care { syncs_directory: false, ..Care::default() };
    expect_found("no directory sync", care, "were acknowledged");
}

#[test]
fn an_acknowledgement_before_the_sync_is_found_out() {
    let care = Care { acknowledges_after_sync: false, ..Care::default() };
    expect_found("acknowledged before the sync", care, "were acknowledged");
}

#[test]
fn a_torn_tail_taken_for_whole_is_found_out() {
    let care = Care { compares_sums: false, ..Care::default() };
    expect_found("torn tail", care, "was not written so");
}

/// A sync that fails leaves clean pages behind that the disk does not have. The next process reads
/// them, and its sync says nothing. This also happens if a process is killed in a sync.
#[test]
fn a_log_that_trusts_the_page_cache_is_found_out() {
    let care = Care { writes_again: false, ..Care::default() };
    expect_found("no second write", care, "were acknowledged");
}
