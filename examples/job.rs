//! A job and a look-up of a host name: the blocking work runs on a worker thread, and its result
//! comes as a completion.
//!
//! ```text
//! cargo run --release --example job -- [--host NAME] [--below N]
//! ```

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use windlass::{Completions, Done, ErrorKind, Op, Watcher};

mod common;

const LOOKUP: u64 = 1;

fn main() -> io::Result<()> {
    let mut options = common::Options::new("job [--host NAME] [--below N]");
    let host: String = options.take("--host").unwrap_or("localhost".into());
    let below: usize = options.take("--below").unwrap_or(1_000_000);
    options.end();

    let mut watcher = Watcher::new()?;
    // Neither can be stopped once it has begun: a deadline then marks the completion as late.
    watcher.submit(Op::run(move || primes(below)))?;
    let lookup = Op::lookup_host(host, 80).token(LOOKUP).timeout(Duration::from_secs(10));
    watcher.submit(lookup)?;

    let (mut left, mut done) = (2, Completions::new());
    while left > 0 {
        watcher.wait(&mut done)?;
        for c in done.drain(..) {
            left -= 1;
            match c.result {
                Ok(Done::Addresses(found)) => {
                    println!(
                        "addresses: {:?}",
                        found.iter().map(SocketAddr::ip).collect::<Vec<_>>()
                    );
                }
                Ok(Done::Returned(value)) => match value.downcast::<usize>() {
                    Ok(count) => println!("there are {count} primes below {below}"),
                    Err(other) => unreachable!("the job returns a number: {other:?}"),
                },
                Ok(other) => unreachable!("not asked for: {other:?}"),
                // A job that panics is an error with the panic's text.
                Err(error) if error.kind() == ErrorKind::Panicked => {
                    return Err(io::Error::other(format!("the job: {error}")));
                }
                Err(error) if c.token == LOOKUP => println!("no addresses: {error}"),
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}

/// How many primes there are below a number: Eratosthenes' sieve.
fn primes(below: usize) -> usize {
    let mut sieve = vec![true; below];
    sieve.iter_mut().take(2).for_each(|small| *small = false);
    for i in 2..below.isqrt() + 1 {
        if sieve[i] {
            (i * i..below).step_by(i).for_each(|multiple| sieve[multiple] = false);
        }
    }
    sieve.into_iter().filter(|prime| *prime).count()
}
