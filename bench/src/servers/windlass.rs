//! The crate itself: plain reads, each echo the lease that was read.

use std::io;

use windlass::process::signal::SIGTERM;
use windlass::{Completions, Done, DriverKind, Op, Watcher};

/// Serves until SIGTERM, then prints how many allocations there were, and their bytes.
pub fn serve(port: u16, driver: DriverKind) -> io::Result<()> {
    windlass::fd::raise_max_open_files()?;
    let mut watcher = Watcher::builder().driver(driver).build()?;
    let signals = watcher.signals(&[SIGTERM])?;
    watcher.submit(Op::signal(signals))?;
    let listener = watcher.listen(([127, 0, 0, 1], port))?;
    watcher.submit(Op::accept(listener).multishot())?;

    let mut done = Completions::new();
    loop {
        watcher.wait(&mut done)?;
        for c in done.drain(..) {
            let next = match c.result {
                Ok(Done::Signal(_)) => {
                    let (calls, bytes) = crate::allocations::counted();
                    println!("allocations {calls} bytes {bytes}");
                    return Ok(());
                }
                Ok(Done::Accepted(socket)) => Op::read(watcher.attach(socket)?),
                Ok(Done::Read(data)) if data.is_eof() => Op::close(c.source),
                Ok(Done::Read(data)) => Op::write(c.source, data),
                Ok(Done::Written { .. }) => Op::read(c.source),
                Ok(_) => continue,
                Err(_) => {
                    watcher.abort(c.source);
                    continue;
                }
            };
            watcher.submit(next)?;
        }
    }
}
