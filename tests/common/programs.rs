//! Random programs that proptest draws, and shrinks when they fail.

use std::time::Instant;

use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngSeed, TestCaseResult, TestError, TestRunner};

use super::seeds::runs;

/// Runs `fixed` programs from the fixed seed and `fresh` programs from a fresh seed. A failure is
/// shrunk, and reported with the command that repeats it.
#[track_caller]
pub fn random<S: Strategy>(
    suite: &str,
    fixed: u32,
    fresh: u32,
    strategy: &S,
    program: impl Fn(S::Value) -> TestCaseResult,
) {
    for run in runs(suite, fixed, fresh) {
        let config = Config {
            cases: run.programs,
            rng_seed: RngSeed::Fixed(run.seed),
            failure_persistence: None,
            max_shrink_time: 30_000,
            max_shrink_iters: 100_000,
            ..Config::default()
        };
        let start = Instant::now();
        match TestRunner::new(config).run(strategy, &program) {
            Ok(()) => println!("{suite}: {} programs, {:?}", run.programs, start.elapsed()),
            Err(TestError::Fail(why, case)) => panic!("{} {suite}: {why}\n{case:?}", run.again()),
            Err(error) => panic!("{} {suite}: {error}", run.again()),
        }
    }
}
