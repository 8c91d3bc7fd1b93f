//! The seeds of random programs.
//!
//! A run has fixed seeds, so that no change is judged by luck, then fresh ones, so that every run
//! tries what none has tried. `WINDLASS_SEED` chooses one instead and `WINDLASS_PROGRAMS` how many
//! programs run: that repeats a failure, and lets `.ci/nightly` explore for hours. Every seed is
//! printed.
#![allow(dead_code, unreachable_pub)] // each test binary uses its own part

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// The seed of the fixed programs.
const FIXED: u64 = 1;

/// A number of programs that are drawn one after the other from a seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    pub seed: u64,
    pub programs: u32,
    /// Not the fixed one.
    pub fresh: bool,
}

impl Run {
    /// The variables that repeat the run, for the message of a failure.
    pub fn again(&self) -> String {
        format!("WINDLASS_SEED={} WINDLASS_PROGRAMS={}", self.seed, self.programs)
    }
}

/// The runs of a suite that draws its programs one after the other: `fixed` programs from the fixed
/// seed, and `fresh` from a fresh seed.
pub fn runs(suite: &str, fixed: u32, fresh: u32) -> Vec<Run> {
    let programs = setting("WINDLASS_PROGRAMS");
    let all = match setting("WINDLASS_SEED") {
        Some(seed) => vec![Run { seed, programs: programs.unwrap_or(fixed), fresh: true }],
        None => vec![
            Run { seed: FIXED, programs: programs.unwrap_or(fixed), fresh: false },
            Run { seed: draw(), programs: programs.unwrap_or(fresh), fresh: true },
        ],
    };
    all.iter().for_each(|run| println!("{suite}: {}", run.again()));
    all
}

/// Runs `program` for each seed of a suite with one program per seed: `0..fixed`, and `fresh` seeds
/// from a fresh one on.
pub fn each(suite: &str, fixed: u32, fresh: u32, mut program: impl FnMut(u64)) -> u32 {
    let programs: Option<u32> = setting("WINDLASS_PROGRAMS");
    let spans = match setting("WINDLASS_SEED") {
        Some(seed) => vec![(seed, programs.unwrap_or(1))],
        None => vec![(0, programs.unwrap_or(fixed)), (draw(), programs.unwrap_or(fresh))],
    };
    let mut ran = 0;
    for (first, count) in spans {
        ran += count;
        println!("{suite}: WINDLASS_SEED={first} WINDLASS_PROGRAMS={count}");
        for seed in (0..u64::from(count)).map(|i| first.wrapping_add(i)) {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| program(seed))) {
                eprintln!("{suite}: again with\n  {}", again(seed));
                resume_unwind(panic);
            }
        }
    }
    ran
}

/// As [`each`], for programs that add what they meet to `met`. If something is missing that has to
/// happen, up to five more rounds of fresh seeds run: what is rare does not come in each round.
pub fn until<T>(
    suite: &str,
    (fixed, fresh): (u32, u32),
    met: &mut T,
    mut program: impl FnMut(&mut T, u64),
    has_all: impl Fn(&T) -> bool,
) -> u32 {
    let mut ran = each(suite, fixed, fresh, |seed| program(met, seed));
    let is_chosen = setting::<u64>("WINDLASS_SEED").is_some();
    for _ in 0..5 {
        if is_chosen || has_all(met) {
            break;
        }
        ran += each(suite, 0, fresh, |seed| program(met, seed));
    }
    ran
}

/// The command that repeats a program of this test.
pub fn again(seed: u64) -> String {
    let (package, test) = (env!("CARGO_PKG_NAME"), env!("CARGO_CRATE_NAME"));
    #[allow(unexpected_cfgs)] // each package has features of its own
    let features = [("deflate", cfg!(feature = "deflate")), ("ring", cfg!(feature = "ring"))];
    let features = features.map(|(name, is_on)| if is_on { name } else { "" }).join(" ");
    let features = match features.trim() {
        "" => String::new(),
        names => format!(" --features {}", names.replace(' ', ",")),
    };
    // The harness names the thread of a test after it.
    let thread = std::thread::current();
    let name = thread.name().filter(|name| *name != "main").unwrap_or_default();
    let variables = format!("WINDLASS_SEED={seed} WINDLASS_PROGRAMS=1");
    format!("{variables} cargo test -p {package}{features} --test {test} {name}")
}

/// How often a test repeats a race: `usual` times, and `WINDLASS_RACES` times that if it is set.
pub fn races(usual: u64) -> u64 {
    usual * setting::<u64>("WINDLASS_RACES").unwrap_or(1)
}

/// A seed that no run has had.
pub fn draw() -> u64 {
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().expect("after 1970");
    // Short enough to be typed; two processes that start at once differ.
    (now.as_nanos() as u64 ^ u64::from(std::process::id()) << 32) % 1_000_000_000_000
}

/// A number from the environment.
pub fn setting<T: std::str::FromStr>(name: &str) -> Option<T> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}
