//! An echo server: what comes in goes out again, without a copy.
//!
//! ```text
//! cargo run --release --example echo -- [--port N | --unix PATH] [--multishot]
//! ```
//!
//! Ends on SIGINT and SIGTERM: it accepts no more, answers what has arrived, and closes.

use std::io;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use windlass::{Address, Completions, Done, Op, Source, Watcher};

const STOP: u64 = 1;

fn main() -> io::Result<()> {
    let (address, multishot) = arguments();
    let mut watcher = Watcher::new()?;
    let listener = watcher.listen(address)?; // backlog 4096, TCP_NODELAY
    println!("listening on {}", watcher.local_address(listener)?);
    watcher.submit(Op::accept(listener).multishot())?;
    let signals = signals(&mut watcher)?;
    watcher.submit(Op::read(signals).token(STOP))?;

    let read = |source| {
        if multishot {
            Op::read(source).multishot()
        } else {
            Op::read(source)
        }
    };
    let mut done = Completions::new();
    let mut stopping = false;
    loop {
        if stopping {
            if watcher.wait_timeout(&mut done, Duration::from_millis(100))? == 0 {
                return Ok(()); // nothing more has come: drained
            }
        } else {
            watcher.wait(&mut done)?;
        }
        for c in done.drain(..) {
            match c.result {
                Ok(Done::Read(_)) if c.token == STOP => stopping = watcher.free(listener),
                Ok(Done::Accepted(socket)) => match watcher.attach(socket) {
                    Ok(source) => drop(watcher.submit(read(source))?),
                    Err(refused) => eprintln!("{refused}"), // closes the connection
                },
                Ok(Done::Read(data)) if data.is_eof() => drop(watcher.submit(Op::close(c.source))),
                Ok(Done::Read(data)) => drop(watcher.submit(Op::write(c.source, data))),
                Ok(Done::Written { buf, .. }) if !multishot => {
                    drop(buf);
                    drop(watcher.submit(read(c.source)));
                }
                Ok(_) => {}
                Err(error) => {
                    if error.raw_os_error().is_some() && watcher.free(c.source) {
                        eprintln!("{error}");
                    }
                }
            }
        }
    }
}

/// SIGINT and SIGTERM as bytes on a socket.
fn signals(watcher: &mut Watcher) -> io::Result<Source> {
    let (tell, hear) = UnixStream::pair()?;
    signal_hook::low_level::pipe::register(signal_hook::consts::SIGINT, tell.try_clone()?)?;
    signal_hook::low_level::pipe::register(signal_hook::consts::SIGTERM, tell)?;
    Ok(watcher.attach(hear)?)
}

fn arguments() -> (Address, bool) {
    let mut address = Address::from(([127, 0, 0, 1], 7007));
    let mut multishot = false;
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = match word.as_str() {
            "--multishot" => {
                multishot = true;
                continue;
            }
            "--port" | "--unix" => words.next(),
            _ => None,
        };
        let parsed = match (word.as_str(), value) {
            ("--port", Some(port)) => port.parse().ok().map(|n: u16| ([127, 0, 0, 1], n).into()),
            ("--unix", Some(path)) => Address::unix(path).ok(),
            _ => None,
        };
        let Some(parsed) = parsed else {
            eprintln!("usage: echo [--port N | --unix PATH] [--multishot]");
            std::process::exit(2);
        };
        address = parsed;
    }
    (address, multishot)
}
