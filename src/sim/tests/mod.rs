//! The simulation under the real proactor.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::Duration;

use super::{Faults, Sim};
use crate::completion::{Completion, Completions, Done};
use crate::driver::endpoint::{ConnectOptions, ListenOptions};
use crate::op::Op;
use crate::sys::interest::Ready;
use crate::watcher::Watcher;
use crate::words::error::ErrorKind;
use crate::words::source::{Handle, Source};

mod addresses;
mod completing;
mod costs;
mod counters;
mod crash;
mod datagrams;
mod files;
mod history;
mod jobs;
mod links;
mod places;
mod process;
mod readiness;
mod refusals;
mod scripted;
mod time;
mod turns;

type Simulated = Watcher;

const ADDRESS: ([u8; 4], u16) = ([127, 0, 0, 1], 7007);
const HOUR: Duration = Duration::from_secs(3600);

/// Faults that only datagrams meet.
const OF_BATCHES: [&str; 2] = ["partial_batch", "batch_denied"];

const ACCEPT: u64 = 1;
const SERVE: u64 = 2;
const CONNECT: u64 = 3;
const ASK: u64 = 4;

fn watcher(sim: &Sim) -> Simulated {
    sim.set_patience(Duration::ZERO);
    Watcher::simulated(sim)
}

/// Gives the loop time to fall asleep. The loop waits for other threads in real time, and no event
/// reports that it sleeps.
fn let_the_loop_sleep() {
    std::thread::sleep(Duration::from_millis(20));
}

/// The completions of the next wait.
fn wait(watcher: &mut Simulated) -> Vec<Completion> {
    let mut done = Completions::new();
    watcher.wait(&mut done).unwrap();
    done.into_iter().collect()
}

/// The only completion of the next wait.
fn wait_one(watcher: &mut Simulated) -> Completion {
    let mut done = wait(watcher);
    assert_eq!(done.len(), 1, "{done:?}");
    done.remove(0)
}

fn read(watcher: &mut Simulated, source: Source) -> Result<Vec<u8>, ErrorKind> {
    watcher.submit(Op::read(source)).unwrap();
    match wait_one(watcher).result {
        Ok(Done::Read(data)) => Ok(data.to_vec()),
        Err(error) => Err(error.kind()),
        other => panic!("{other:?}"),
    }
}

fn write(watcher: &mut Simulated, source: Source, text: &'static str) -> Option<ErrorKind> {
    watcher.submit(Op::write(source, text)).unwrap();
    wait_one(watcher).error_kind()
}

/// A watcher that reads 16 KiB at a time and `count` connections whose clients have sent `bytes`;
/// and a connection that is quiet.
fn bulk(source_bytes: usize, count: usize, bytes: usize) -> (Simulated, (Source, Source)) {
    let sim = Sim::new(1);
    sim.set_patience(Duration::ZERO);
    sim.set_buffer(1 << 20);
    let builder = Watcher::builder().buffer_size(16 << 10).turn_budget(16 << 10);
    let config = builder.source_budget(source_bytes).config();
    let mut watcher = Watcher::simulated_with(&sim, config);
    let mut pairs: Vec<_> = (0..=count).map(|_| connection(&mut watcher)).collect();
    let quiet = pairs.remove(0);
    for &(client, _) in &pairs {
        watcher.submit(Op::write(client, vec![7; bytes])).unwrap();
        wait_one(&mut watcher);
    }
    for &(_, server) in &pairs {
        watcher.submit(Op::read(server)).unwrap();
    }
    (watcher, quiet)
}

/// An echo of four streams that all have bytes. The program handles what was read before the loop
/// reads more, and the loop reads one stream for its whole share before the next.
#[test]
fn streams_are_served_one_by_one() {
    let (mut watcher, _) = bulk(80 << 10, 4, 320_000);
    let (mut runs, mut heard) = (Vec::<(Source, usize)>::new(), 0);
    while heard < 4 * 320_000 {
        let mut read = 0;
        for c in wait(&mut watcher) {
            match c.result.unwrap() {
                Done::Read(data) => {
                    read += data.len();
                    match runs.last_mut() {
                        Some((last, bytes)) if *last == c.source => *bytes += data.len(),
                        _ => runs.push((c.source, data.len())),
                    }
                    watcher.submit(Op::write(c.source, data)).unwrap();
                }
                Done::Written { .. } => drop(watcher.submit(Op::read(c.source)).unwrap()),
                other => panic!("{other:?}"),
            }
        }
        // The first read of each is tried at its submission.
        assert!(heard == 0 || read <= 32 << 10, "{read} bytes before any was dealt with");
        heard += read;
    }
    let whole = runs.iter().filter(|(_, bytes)| *bytes == 80 << 10).count();
    assert!(whole >= 8 && runs.iter().all(|(_, bytes)| *bytes <= 96 << 10), "{runs:?}");
}

/// A message of a source that was quiet comes before the bytes that eight streams still have to
/// read.
#[test]
fn a_message_does_not_stand_behind_bulk() {
    for timeout in [None, Some(HOUR)] {
        let (mut watcher, (client, server)) = bulk(2 << 20, 8, 1_000_000);
        let ping = Op::read(server).token(1);
        let ping = if let Some(span) = timeout { ping.timeout(span) } else { ping };
        watcher.submit(ping).unwrap();
        let (mut before, mut sent, mut after) = (0, false, 0);
        'run: loop {
            for c in wait(&mut watcher) {
                match c.result.unwrap() {
                    Done::Read(_) if c.token == 1 => break 'run,
                    Done::Read(data) => {
                        *(if sent { &mut after } else { &mut before }) += data.len();
                        watcher.submit(Op::read(c.source)).unwrap();
                    }
                    Done::Written { .. } => {}
                    other => panic!("{other:?}"),
                }
            }
            if before > 500_000 && !sent {
                sent = true;
                watcher.submit(Op::write(client, "ping")).unwrap();
            }
        }
        assert!(sent && after < 300_000, "{after} bytes of bulk before it");
    }
}

/// A connection over a listener: its client's end and its server's.
fn connection(watcher: &mut Simulated) -> (Source, Source) {
    let listener = watcher.listen(ADDRESS).unwrap();
    watcher.submit(Op::accept(listener)).unwrap();
    watcher.submit(Op::connect(ADDRESS)).unwrap();
    let (mut client, mut server) = (None, None);
    while client.is_none() || server.is_none() {
        for c in wait(watcher) {
            match c.result.unwrap() {
                Done::Socket(socket) => client = Some(watcher.attach(socket).unwrap()),
                Done::Accepted(socket) => server = Some(watcher.attach(socket).unwrap()),
                other => panic!("{other:?}"),
            }
        }
    }
    watcher.abort(listener);
    (client.unwrap(), server.unwrap())
}

fn attach_pair(watcher: &mut Simulated, sim: &Sim) -> (Source, Source) {
    let (a, b) = sim.pair();
    (watcher.attach(a).unwrap(), watcher.attach(b).unwrap())
}

/// An echo server and a client that sends `bytes` in chunks, waits for the echo of each, and
/// connects again when its connection is lost. Returns the bytes that came back.
fn echo(sim: &Sim, bytes: &[u8], chunk: usize) -> Vec<u8> {
    let mut watcher = watcher(sim);
    let listener = watcher.listen(ADDRESS).unwrap();
    watcher.submit(Op::accept(listener).token(ACCEPT).multishot()).unwrap();
    sim.host("server", [ADDRESS.0]);
    let look_up = || Op::lookup_host("server", ADDRESS.1).token(CONNECT);
    watcher.submit(look_up()).unwrap();
    let mut echoed = Vec::new();
    let mut client = Source::NONE;
    let mut heard = Vec::new();
    let mut done = Completions::new();
    while echoed.len() < bytes.len() {
        watcher.wait(&mut done).unwrap();
        for c in done.drain(..) {
            let asked = &bytes[echoed.len()..bytes.len().min(echoed.len() + chunk)];
            match (c.token, c.result) {
                (ACCEPT, Ok(Done::Accepted(socket))) => {
                    let server = watcher.attach(socket).unwrap();
                    watcher.submit(Op::read(server).token(SERVE)).unwrap();
                }
                (SERVE, Ok(Done::Read(data))) if !data.is_eof() => {
                    watcher.submit(Op::write(c.source, data).token(SERVE)).unwrap();
                }
                (SERVE, Ok(Done::Written { .. })) => {
                    watcher.submit(Op::read(c.source).token(SERVE)).unwrap();
                }
                (SERVE, _) => {
                    watcher.abort(c.source);
                }
                (CONNECT, Ok(Done::Addresses(found))) => {
                    watcher.submit(Op::connect(found[0]).token(CONNECT)).unwrap();
                }
                (CONNECT, Ok(Done::Socket(socket))) => {
                    client = watcher.attach(socket).unwrap();
                    heard.clear();
                    watcher.submit(Op::write(client, asked.to_vec()).token(ASK)).unwrap();
                    watcher.submit(Op::read(client).token(ASK)).unwrap();
                }
                (ASK, _) if c.source != client => {}
                (ASK, Ok(Done::Written { .. })) => {}
                (ASK, Ok(Done::Read(data))) if !data.is_eof() => {
                    heard.extend_from_slice(&data);
                    if heard.len() < asked.len() {
                        watcher.submit(Op::read(client).token(ASK)).unwrap();
                        continue;
                    }
                    echoed.append(&mut heard);
                    let rest = &bytes[echoed.len()..];
                    let next = rest[..rest.len().min(chunk)].to_vec();
                    if !next.is_empty() {
                        watcher.submit(Op::write(client, next).token(ASK)).unwrap();
                        watcher.submit(Op::read(client).token(ASK)).unwrap();
                    }
                }
                (CONNECT | ASK, _) => {
                    watcher.abort(client);
                    client = Source::NONE;
                    watcher.submit(look_up()).unwrap();
                }
                (token, other) => panic!("{token}: {other:?}"),
            }
        }
    }
    echoed
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len as u32).map(|i| (i ^ (i >> 8) ^ (i >> 16)) as u8).collect()
}

#[test]
#[cfg_attr(miri, ignore = "a mebibyte in small pieces: too slow")]
fn a_mebibyte_survives_every_fault() {
    let bytes = pattern(1 << 20);
    let mut injected = BTreeMap::new();
    for seed in 0..4 {
        let sim = Sim::with_faults(seed, Faults::transient(0.2));
        sim.set_buffer(4096 << seed);
        assert!(echo(&sim, &bytes, 1 << 20) == bytes, "seed {seed}");
        let faults = Faults { reset: 0.01, ..Faults::all(0.1) };
        let sim = Sim::with_faults(seed, faults);
        sim.set_buffer(5000);
        assert!(echo(&sim, &bytes, 16 << 10) == bytes, "seed {seed}");
        for (name, count) in sim.injected().named() {
            *injected.entry(name).or_insert(0) += count;
        }
    }
    injected.retain(|fault, _| !OF_BATCHES.contains(fault));
    injected
        .retain(|fault, _| !completing::FAULTS.contains(fault) && !files::FAULTS.contains(fault));
    assert!(injected.values().all(|count| *count > 0), "{injected:?}");
}

#[test]
#[cfg_attr(miri, ignore = "many runs: too slow")]
fn the_same_seed_is_the_same_run() {
    let run = |seed| {
        let sim = Sim::with_faults(seed, Faults::all(0.05));
        assert_eq!(echo(&sim, &pattern(50_000), 5000), pattern(50_000));
        (sim.trace_hash(), sim.now(), sim.injected())
    };
    assert_eq!(run(1), run(1));
    let hashes: BTreeSet<u64> = (0..50).map(|seed| run(seed).0).collect();
    assert_eq!(hashes.len(), 50);
}

#[test]
#[cfg_attr(miri, ignore = "a hundred runs: too slow")]
fn every_fault_happens() {
    for (name, _) in super::Injected::default().named() {
        if OF_BATCHES.contains(&name)
            || completing::FAULTS.contains(&name)
            || files::FAULTS.contains(&name)
        {
            continue;
        }
        let mut faults = Faults::none();
        let field = match name {
            "partial_read" => &mut faults.partial_read,
            "partial_write" => &mut faults.partial_write,
            "eagain" => &mut faults.eagain,
            "eintr" => &mut faults.eintr,
            "spurious_readiness" => &mut faults.spurious_readiness,
            "delayed_readiness" => &mut faults.delayed_readiness,
            "enobufs" => &mut faults.enobufs,
            "emfile" => &mut faults.emfile,
            "aborted" => &mut faults.aborted,
            "denied" => &mut faults.denied,
            "reset" => &mut faults.reset,
            "connect_refused" => &mut faults.connect_refused,
            "lookup_failed" => &mut faults.lookup_failed,
            other => panic!("{other}"),
        };
        *field = 0.5;
        // Some faults can happen only once for each connection, so the test needs a few runs.
        let mut total = 0;
        for seed in 0..10 {
            let sim = Sim::with_faults(seed, faults.clone());
            assert!(echo(&sim, &pattern(5000), 500) == pattern(5000), "{name}");
            let injected = sim.injected();
            total += injected.total();
            for (other, count) in injected.named() {
                assert!(count == 0 || other == name, "{other} with {name}");
            }
        }
        assert!(total > 0, "{name}");
    }
    let sim = Sim::new(1);
    echo(&sim, &pattern(5000), 500);
    assert_eq!(sim.injected().total(), 0);
}

#[test]
fn an_hour_takes_no_time() {
    let sim = Sim::new(1);
    let mut watcher = watcher(&sim);
    let (real, start) = (std::time::Instant::now(), watcher.update_now());
    watcher.submit(Op::timer(HOUR)).unwrap();
    let mut done = Completions::new();
    let early = HOUR - Duration::from_micros(2); // more than a turn
    assert_eq!(watcher.wait_timeout(&mut done, early).unwrap(), 0);
    assert_eq!(watcher.update_now(), start + early);
    assert!(matches!(wait_one(&mut watcher).result, Ok(Done::Timer)));
    assert_eq!(watcher.update_now(), start + HOUR);
    assert!(real.elapsed() < Duration::from_secs(60));
    // A deadline on an operation, under a network that is late.
    sim.set_faults(Faults::transient(0.5));
    let (a, _b) = attach_pair(&mut watcher, &sim);
    let start = watcher.update_now();
    watcher.submit(Op::read(a).timeout(HOUR)).unwrap();
    assert_eq!(wait_one(&mut watcher).error_kind(), Some(ErrorKind::Deadline));
    assert!(watcher.update_now() >= start + HOUR);
    assert!(watcher.update_now() < start + HOUR + Duration::from_millis(1));
}

#[test]
fn nobody_listens() {
    let sim = Sim::new(1);
    let mut watcher = watcher(&sim);
    let unix = crate::Address::unix("/run/nobody").unwrap();
    for address in [ADDRESS.into(), unix] {
        watcher.submit(Op::connect(address)).unwrap();
        let refused = Some(ErrorKind::Os(libc::ECONNREFUSED));
        assert_eq!(wait_one(&mut watcher).error_kind(), refused);
    }
    // Closing the listener refuses who waits for its backlog, and resets who is in it.
    let listener = watcher.listen_with(ADDRESS, ListenOptions::default().backlog(0)).unwrap();
    watcher.submit(Op::connect(ADDRESS)).unwrap();
    watcher.submit(Op::connect(ADDRESS)).unwrap();
    let Ok(Done::Socket(socket)) = wait_one(&mut watcher).result else {
        panic!("there was room for one")
    };
    let first = watcher.attach(socket).unwrap();
    watcher.abort(listener);
    let refused = Some(ErrorKind::Os(libc::ECONNREFUSED));
    assert_eq!(wait_one(&mut watcher).error_kind(), refused);
    let reset = Err(ErrorKind::Os(libc::ECONNRESET));
    assert_eq!(read(&mut watcher, first), reset);
}

#[test]
fn a_full_backlog_makes_clients_wait() {
    let sim = Sim::with_faults(1, Faults { spurious_readiness: 0.9, ..Faults::none() });
    let mut watcher = watcher(&sim);
    let listener = watcher.listen_with(ADDRESS, ListenOptions::default().backlog(1)).unwrap();
    for _ in 0..5 {
        watcher.submit(Op::connect(ADDRESS)).unwrap();
    }
    let mut done = Completions::new();
    while watcher.wait_timeout(&mut done, HOUR).unwrap() > 0 {}
    assert_eq!(done.len(), 2, "{done:?}");
    watcher.submit(Op::accept(listener).multishot()).unwrap();
    while watcher.wait_timeout(&mut done, HOUR).unwrap() > 0 {}
    let connected = |c: &&Completion| matches!(c.result, Ok(Done::Socket(_)));
    let accepted = |c: &&Completion| matches!(c.result, Ok(Done::Accepted(_)));
    assert_eq!(done.iter().filter(connected).count(), 5);
    assert_eq!(done.iter().filter(accepted).count(), 5);
}

/// An accept whose only result is an error that leaves the connection in place.
#[test]
fn an_accept_that_is_always_denied_ends() {
    let sim = Sim::with_faults(1, Faults { denied: 1.0, ..Faults::none() });
    let mut watcher = watcher(&sim);
    let listener = watcher.listen(ADDRESS).unwrap();
    watcher.submit(Op::connect(ADDRESS)).unwrap();
    assert!(matches!(wait_one(&mut watcher).result, Ok(Done::Socket(_))));
    let start = watcher.update_now();
    watcher.submit(Op::accept(listener).multishot()).unwrap();
    assert_eq!(wait_one(&mut watcher).error_kind(), Some(ErrorKind::Os(libc::EPERM)));
    let (denied, took) = (sim.injected().denied, watcher.update_now() - start);
    assert_eq!((denied, watcher.counters().accept_errors), (800, 800));
    assert!(took > Duration::from_millis(900) && took < Duration::from_secs(2), "{took:?}");
    // Occasional errors end no accept, however long they go on.
    sim.set_faults(Faults { denied: 0.9, ..Faults::none() });
    watcher.submit(Op::accept(listener).multishot()).unwrap();
    assert!(matches!(wait_one(&mut watcher).result, Ok(Done::Accepted(_))));
    let clients = if cfg!(miri) { 10 } else { 500 };
    for _ in 0..clients {
        watcher.submit(Op::connect(ADDRESS)).unwrap();
        let mut done = Completions::new();
        while watcher.wait_timeout(&mut done, HOUR).unwrap() > 0 {}
        let accepted = |c: &Completion| matches!(c.result, Ok(Done::Accepted(_)));
        assert_eq!(done.iter().filter(|c| accepted(c)).count(), 1, "{done:?}");
    }
    assert!(sim.injected().denied > 800 + 3 * clients);
}

#[test]
fn addresses_are_known_at_both_ends() {
    let sim = Sim::new(1);
    let mut watcher = watcher(&sim);
    let (client, server) = connection(&mut watcher);
    let local = watcher.local_address(client).unwrap();
    assert_eq!(watcher.peer_address(server).unwrap(), local);
    assert_eq!(watcher.peer_address(client).unwrap(), ADDRESS.into());
    assert_eq!(watcher.local_address(server).unwrap(), ADDRESS.into());
    let any = watcher.listen(([0, 0, 0, 0], 0)).unwrap();
    let port = watcher.local_address(any).unwrap().ip().unwrap().port();
    assert_ne!(port, 0);
    assert!(watcher.listen(([0, 0, 0, 0], port)).is_err());
    watcher.submit(Op::accept(any)).unwrap();
    watcher.submit(Op::connect(([10, 1, 2, 3], port))).unwrap();
    let done = wait(&mut watcher);
    assert!(done.iter().all(|c| c.result.is_ok()), "{done:?}");
    let unix = crate::Address::unix("/run/echo");
    // Only Linux has abstract names.
    for unix in [unix, crate::Address::unix_abstract("echo")].into_iter().flatten() {
        let listener = watcher.listen(unix.clone()).unwrap();
        watcher.submit(Op::connect(unix.clone())).unwrap();
        watcher.submit(Op::accept(listener)).unwrap();
        let done = wait(&mut watcher);
        assert!(done.iter().all(|c| c.result.is_ok()), "{done:?}");
        assert_eq!(watcher.local_address(listener).unwrap(), unix);
    }
}

#[test]
fn half_close_delivers_the_data_before_the_end() {
    for seed in 0..if cfg!(miri) { 3 } else { 20 } {
        let sim = Sim::with_faults(seed, Faults::transient(0.3));
        sim.set_buffer(1000);
        let mut watcher = watcher(&sim);
        let (client, server) = connection(&mut watcher);
        let bytes = pattern(10_000);
        watcher.submit(Op::write(client, bytes.clone())).unwrap();
        watcher.submit(Op::shutdown(client)).unwrap();
        watcher.submit(Op::read(server).multishot()).unwrap();
        let mut heard = Vec::new();
        let mut done = Completions::new();
        'run: loop {
            watcher.wait(&mut done).unwrap();
            for c in done.drain(..) {
                match c.result.unwrap() {
                    Done::Read(data) if data.is_eof() => break 'run,
                    Done::Read(data) => heard.extend_from_slice(&data),
                    _ => {}
                }
            }
        }
        assert!(heard == bytes, "seed {seed}");
        // The other direction still works.
        watcher.submit(Op::write(server, "goodbye")).unwrap();
        watcher.submit(Op::read_exact(client, vec![0; 7], 7)).unwrap();
        for c in (0..2).flat_map(|_| wait(&mut watcher)).take(2) {
            c.result.unwrap();
        }
    }
}

#[test]
fn closing_with_unread_data_resets() {
    let sim = Sim::new(1);
    let mut watcher = watcher(&sim);
    let (a, b) = attach_pair(&mut watcher, &sim);
    assert_eq!(write(&mut watcher, a, "unread"), None);
    assert_eq!(write(&mut watcher, b, "read"), None);
    watcher.abort(b);
    assert_eq!(read(&mut watcher, a).unwrap(), b"read");
    let reset = ErrorKind::Os(libc::ECONNRESET);
    assert_eq!(read(&mut watcher, a), Err(reset));
    assert_eq!(read(&mut watcher, a).unwrap(), b"");
    let pipe = Some(ErrorKind::Os(libc::EPIPE));
    assert_eq!(write(&mut watcher, a, "nobody"), pipe);
    // TCP learns of a closed peer one write later than a Unix socket.
    let (client, server) = connection(&mut watcher);
    watcher.abort(server);
    assert_eq!(read(&mut watcher, client).unwrap(), b"");
    assert_eq!(write(&mut watcher, client, "first"), None);
    assert_eq!(write(&mut watcher, client, "second"), pipe);
}

#[test]
fn vectors_and_bounded_buffers() {
    let sim = Sim::new(1);
    sim.set_buffer(8);
    let mut watcher = watcher(&sim);
    let (a, b) = attach_pair(&mut watcher, &sim);
    let parts = vec!["hello, ".into(), "".into(), "world".into()];
    watcher.submit(Op::write_vectored(a, parts)).unwrap();
    let into = || vec![Vec::with_capacity(3), Vec::with_capacity(20)];
    let mut heard = Vec::new();
    watcher.submit(Op::read_vectored(b, into())).unwrap();
    while heard.len() < 12 {
        for c in wait(&mut watcher) {
            if let Ok(Done::Read(data)) = c.result {
                heard.extend(data.into_vec());
                watcher.submit(Op::read_vectored(b, into())).unwrap();
            }
        }
    }
    assert_eq!(heard, b"hello, world");
}

#[test]
fn poll_tells_what_holds() {
    let sim = Sim::new(1);
    let mut watcher = watcher(&sim);
    let (a, b) = attach_pair(&mut watcher, &sim);
    let both = Ready::READABLE | Ready::WRITABLE;
    watcher.submit(Op::poll(a, both)).unwrap();
    let ready = |c: Completion| match c.result {
        Ok(Done::Ready(ready)) => ready,
        other => panic!("{other:?}"),
    };
    assert_eq!(ready(wait_one(&mut watcher)), Ready::WRITABLE);
    watcher.submit(Op::poll(a, Ready::READABLE)).unwrap();
    watcher.submit(Op::timer(HOUR)).unwrap();
    assert!(matches!(wait_one(&mut watcher).result, Ok(Done::Timer)));
    watcher.abort(b);
    let hangup = Ready::READABLE | Ready::HANGUP;
    assert_eq!(ready(wait_one(&mut watcher)), hangup);
}

#[test]
fn a_deadlock_is_an_error() {
    let sim = Sim::with_faults(1, Faults::transient(0.5));
    let mut watcher = watcher(&sim);
    let (a, b) = attach_pair(&mut watcher, &sim);
    watcher.submit(Op::read(a)).unwrap();
    let mut done = Completions::new();
    let error = watcher.wait(&mut done).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::Deadlock);
    // The error does not end the watcher.
    watcher.submit(Op::write(b, "free")).unwrap();
    while done.len() < 2 {
        watcher.wait(&mut done).unwrap();
    }
    // A wait for another watcher of the same thread fails with `Deadlock`, too.
    let mut other = Watcher::simulated(&sim);
    let (c, d) = sim.pair();
    let (c, d) = (watcher.attach(c).unwrap(), other.attach(d).unwrap());
    watcher.submit(Op::read(c)).unwrap();
    other.submit(Op::read(d)).unwrap();
    sim.set_faults(Faults::none());
    watcher.submit(Op::write(c, "your turn")).unwrap();
    done.clear();
    watcher.wait(&mut done).unwrap();
    let error = watcher.wait(&mut done).unwrap_err();
    assert!(error.to_string().contains("another one in its thread"), "{error}");
}

#[test]
fn watchers_share_the_network_and_the_clock() {
    let sim = Sim::with_faults(3, Faults::transient(0.3));
    let (mut server, mut client) = (watcher(&sim), watcher(&sim));
    let listener = server.listen(ADDRESS).unwrap();
    server.submit(Op::accept(listener)).unwrap();
    client.submit(Op::connect(ADDRESS)).unwrap();
    client.submit(Op::timer(HOUR)).unwrap();
    let start = sim.now();
    let mut done = Completions::new();
    let mut heard = Vec::new();
    loop {
        if server.try_wait(&mut done).unwrap() > 0 {
            for c in done.drain(..) {
                match c.result.unwrap() {
                    Done::Accepted(socket) => {
                        let socket = server.attach(socket).unwrap();
                        server.submit(Op::read_exact(socket, vec![0; 4], 4)).unwrap();
                    }
                    Done::Read(data) => heard.extend_from_slice(&data),
                    other => panic!("{other:?}"),
                }
            }
        } else if client.try_wait(&mut done).unwrap() > 0 {
            for c in done.drain(..) {
                if let Done::Socket(socket) = c.result.unwrap() {
                    let socket = client.attach(socket).unwrap();
                    client.submit(Op::write(socket, "ping")).unwrap();
                }
            }
        } else if !sim.advance_to_next([server.next_timeout(), client.next_timeout()]) {
            break;
        }
    }
    assert_eq!(heard, b"ping");
    assert!(sim.now() >= start + HOUR);
    assert_eq!(server.update_now(), client.update_now());
    // A socket of another network is refused.
    let stranger = Sim::new(1).pair().0;
    assert!(server.attach(stranger).is_err());
}

#[test]
fn other_threads_wake_and_close() {
    let sim = Sim::new(1);
    let mut watcher = Watcher::simulated(&sim);
    let submitter = watcher.submitter();
    let (a, b) = sim.pair();
    let a = watcher.attach(a).unwrap();
    watcher.submit(Op::read(a)).unwrap();
    let thread = std::thread::spawn(move || {
        let_the_loop_sleep();
        submitter.post(9, b).unwrap();
    });
    let message = wait_one(&mut watcher);
    thread.join().unwrap();
    let Ok(Done::Message(b)) = message.result else { panic!("{message:?}") };
    // A handle that is dropped elsewhere closes its socket here.
    let b: Handle = b.downcast().unwrap();
    let thread = std::thread::spawn(move || {
        let_the_loop_sleep();
        drop(b);
    });
    let end = wait_one(&mut watcher);
    thread.join().unwrap();
    assert!(matches!(end.result, Ok(Done::Read(data)) if data.is_eof()));
}

#[test]
fn datagrams_are_cut_and_bounded() {
    let sim = Sim::with_faults(1, Faults::transient(0.2));
    sim.set_buffer(1000);
    let mut watcher = watcher(&sim);
    let a = watcher.attach(sim.datagram(([0, 0, 0, 0], 0)).unwrap()).unwrap();
    let b = watcher.attach(sim.datagram(ADDRESS).unwrap()).unwrap();
    for i in 0..50u8 {
        watcher.submit(Op::send_to(a, vec![i; 100], ADDRESS)).unwrap();
    }
    let mut done = Completions::new();
    while watcher.wait_timeout(&mut done, HOUR).unwrap() > 0 {}
    assert!((1..10).contains(&done.len()), "{}", done.len());
    done.clear();
    for i in 0..50u8 {
        let room: Vec<u8> = Vec::with_capacity(60);
        watcher.submit(Op::recv_from_into(b, room)).unwrap();
        let received = loop {
            watcher.wait(&mut done).unwrap();
            let mut received = done.drain(..).filter(|c| c.source == b);
            if let Some(c) = received.next() {
                break c.result.unwrap();
            }
        };
        let Done::Received { data, truncated, .. } = received else { panic!("{received:?}") };
        assert_eq!((&*data, truncated), (&[i; 60][..], true));
    }
}
