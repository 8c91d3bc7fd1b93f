//! A measurement of the simulated kernel.

use super::*;

/// What an operation costs: `cargo test --release --lib costs -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn costs() {
    const BATCH: usize = 64;
    const ROUNDS: u32 = 100_000;
    let sim = Sim::new(1);
    let mut watcher = watcher(&sim);
    let pairs: Vec<_> = (0..BATCH).map(|_| attach_pair(&mut watcher, &sim)).collect();
    let mut done = Completions::new();
    for reads_first in [false, true] {
        let start = std::time::Instant::now();
        for _ in 0..ROUNDS {
            for (a, b) in &pairs {
                if reads_first {
                    watcher.submit(Op::read(*b)).unwrap();
                }
                watcher.submit(Op::write(*a, &[7u8; 64][..])).unwrap();
                if !reads_first {
                    watcher.submit(Op::read(*b)).unwrap();
                }
            }
            let mut seen = 0;
            while seen < 2 * BATCH {
                seen += watcher.wait(&mut done).unwrap();
                done.clear();
            }
        }
        let spent = start.elapsed().as_nanos() as f64 / f64::from(ROUNDS);
        let each = spent / (2 * BATCH) as f64;
        println!("{each:.1} ns per operation, reads first: {reads_first}");
    }
}
