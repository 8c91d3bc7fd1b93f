//! A test for each of many seeds.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::simulation::Simulation;

type Failure = Box<dyn std::error::Error>;

/// Runs a test in a [simulation](Simulation) for each of these seeds, and then for a quarter as
/// many fresh ones that no run has tried.
///
/// A seed decides everything: two runs of it are the same. If the test returns an error or panics,
/// the seed, the log of its requests and the command that repeats it are printed.
///
/// Two variables of the environment change the seeds. `WINDLASS_SEED=17` chooses one, to repeat a
/// failure. `WINDLASS_PROGRAMS=10000` sets how many seeds run: so many fresh ones, for a job that
/// explores each night; or so many from `WINDLASS_SEED` on.
///
/// # Panics
///
/// If the test fails for a seed.
pub fn seeds(seeds: Range<u64>, test: impl Fn(&Simulation) -> Result<(), Failure>) {
    let (chosen, programs) = (setting("WINDLASS_SEED"), setting("WINDLASS_PROGRAMS"));
    let spans = match (chosen, programs) {
        (Some(seed), programs) => vec![(seed, programs.unwrap_or(1))],
        (None, Some(programs)) => vec![(fresh(), programs)],
        (None, None) => {
            let count = seeds.end.saturating_sub(seeds.start);
            vec![(seeds.start, count), (fresh(), count.div_ceil(4))]
        }
    };
    for (first, count) in spans {
        println!("WINDLASS_SEED={first} WINDLASS_PROGRAMS={count}");
        for seed in (0..count).map(|i| first.wrapping_add(i)) {
            run(seed, &test);
        }
    }
}

fn run(seed: u64, test: &impl Fn(&Simulation) -> Result<(), Failure>) {
    let sim = Simulation::new(seed);
    let result = catch_unwind(AssertUnwindSafe(|| test(&sim)));
    if let Ok(Ok(())) = result {
        return;
    }
    eprintln!("{}the test fails for the seed {seed}; again with\n  {}", sim.log(), again(seed));
    match result {
        Err(panic) => resume_unwind(panic),
        Ok(result) => panic!("the seed {seed}: {}", result.expect_err("a failure")),
    }
}

/// The command that repeats a seed.
fn again(seed: u64) -> String {
    let package = std::env::var("CARGO_PKG_NAME").map(|name| format!(" -p {name}"));
    // The harness names the thread of a test after it.
    let thread = std::thread::current();
    let name = thread.name().filter(|name| *name != "main").map(|name| format!(" {name}"));
    let (package, name) = (package.unwrap_or_default(), name.unwrap_or_default());
    format!("WINDLASS_SEED={seed} cargo test{package}{name}")
}

/// A seed that no run has had, short enough to be typed.
fn fresh() -> u64 {
    let now = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
    (now.as_nanos() as u64 ^ u64::from(std::process::id()) << 32) % 1_000_000_000_000
}

/// A number from the environment.
fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}
