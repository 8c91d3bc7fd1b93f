//! Files that many connections with TLS send: on every driver and in the simulation.
//!
//! Of the promises on the page of the crate: P2 and P3.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::Harness;
use crate::common::seeds;
use crate::common::turns::Turns;
use crate::tls;
use crate::two::{Two, quiet};
use fastrand::Rng;
use windlass::driver::{Auto, Driver};
use windlass::fs::OpenOptions;
use windlass::sim::{Faults, Sim};
use windlass::{Op, SourceGuard, Watcher};
use windlass_serve::ops::Completed;
use windlass_serve::tls::Provider;
use windlass_serve::{Cause, Id};

crate::every_driver! {
    connections_encrypt_one_file
    a_file_that_shrinks_ends_the_connection
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251) as u8).collect()
}

/// Submits an operation of the server, and waits for its end.
fn run<D: Driver>(two: &mut Two<D>, op: Op) -> Completed {
    two.server.submit(op);
    two.go("the operation has ended", |two| !two.completed.is_empty());
    two.completed.pop().expect("right from above")
}

/// A file with these bytes, which the server has open.
fn file<D: Driver>(two: &mut Two<D>, path: PathBuf, bytes: &[u8]) -> Arc<SourceGuard> {
    let options = OpenOptions::new().read(true).write(true).create_new(true);
    let file = run(two, Op::open(path, options)).file.unwrap().unwrap();
    run(two, Op::write_at(file.source(), bytes.to_vec(), 0)).result.unwrap().result.unwrap();
    Arc::new(file)
}

fn path<T: Harness>() -> PathBuf {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("windlass-tls-attached-{}-{count}", std::process::id());
    if T::VIRTUAL { PathBuf::from("/").join(name) } else { std::env::temp_dir().join(name) }
}

fn remove<T: Harness>(path: PathBuf) {
    if !T::VIRTUAL {
        std::fs::remove_file(path).unwrap();
    }
}

/// A client, and its connection at the server.
fn pair<D: Driver>(two: &mut Two<D>) -> (Id, Id) {
    let before = two.server_opened.len();
    let client = two.open();
    two.go("the server has it, too", |two| two.server_opened.len() > before);
    (client, two.server_opened[before])
}

fn connections_encrypt_one_file<T: Harness>() {
    let (mut two, path) = (Two::new::<T>(quiet()), path::<T>());
    let bytes = pattern(300_000);
    let file = file(&mut two, path.clone(), &bytes);
    let pairs: Vec<_> = (0..3).map(|_| pair(&mut two)).collect();
    for &(_, id) in &pairs {
        two.server.write(id, "head").unwrap();
        two.server.send_attached(id, &file, 0..300_000).unwrap();
        two.server.write(id, "between").unwrap();
        two.server.send_attached(id, &file, 100..200).unwrap();
        two.server.send_attached(id, &file, 7..7).unwrap();
        two.server.write(id, "behind").unwrap();
        two.server.close(id);
    }
    let expected = [b"head", &bytes[..], b"between", &bytes[100..200], b"behind"].concat();
    for (client, _) in pairs {
        assert!(matches!(two.end(client).cause, Cause::Eof));
        assert!(two.heard(client) == expected, "other bytes");
    }
    two.go("all have ended", |two| two.server_ends.len() == 3);
    assert!(two.server_ends.iter().all(|end| (end.cause, end.unsent) == (Cause::Closed, 0)));
    let sources = two.watcher.counters().sources;
    assert_eq!(Arc::strong_count(&file), 1);
    drop(file);
    two.turn(Duration::ZERO);
    assert_eq!(two.watcher.counters().sources, sources - 1, "it is closed");
    remove::<T>(path);
}

fn a_file_that_shrinks_ends_the_connection<T: Harness>() {
    let (mut two, path) = (Two::new::<T>(quiet()), path::<T>());
    let file = file(&mut two, path.clone(), &pattern(1000));
    let (client, id) = pair(&mut two);
    two.server.send_attached(id, &file, 900..1100).unwrap();
    two.server.write(id, "after").unwrap();
    let end = two.server_end();
    // What was read of it may be on its way when the connection fails.
    assert_eq!(end.cause, Cause::FileEnded);
    assert!((105..=205).contains(&end.unsent), "{}", end.unsent);
    assert!(!matches!(two.end(client).cause, Cause::Eof), "it is no good end");
    assert_eq!(Arc::strong_count(&file), 1);
    remove::<T>(path);
}

/// Connections end while the file is read, and others send other parts of it: no connection gets
/// the bytes of another one.
#[test]
fn connections_that_end_leave_the_file_to_the_others() {
    let ran = seeds::each("tls_attached", 20, 5, |seed| {
        let mut rng = Rng::with_seed(seed);
        let faults = Faults { cache_miss: 0.7, late_cancel: 0.5, ..Faults::transient(0.02) };
        let sim = Sim::with_faults(seed, faults);
        sim.set_file_time(Duration::from_secs(1)); // far longer than a handshake
        sim.set_completing(rng.bool());
        let (_, tls, client) = tls::settings(Provider::Ring);
        let watcher = Watcher::simulated(&sim);
        let mut two: Two<Auto> =
            Two::on(watcher, quiet(), tls.build().unwrap(), &client.build().unwrap());
        let bytes = pattern(200_000);
        let file = file(&mut two, PathBuf::from("/file"), &bytes);
        let mut expected: HashMap<Id, Vec<u8>> = HashMap::new();
        let mut open: Vec<(Id, Id)> = Vec::new();
        for _ in 0..30 {
            if rng.bool() && !open.is_empty() {
                let (_, id) = open.swap_remove(rng.usize(..open.len()));
                match rng.bool() {
                    true => two.server.abort(id),
                    false => two.server.close(id),
                };
            }
            if open.len() < 2 {
                let pair = pair(&mut two);
                expected.insert(pair.0, Vec::new());
                open.push(pair);
            }
            let (client, id) = open[rng.usize(..open.len())];
            let begin = rng.usize(..bytes.len());
            let end = rng.usize(begin..=bytes.len());
            if two.server.send_attached(id, &file, begin as u64..end as u64).is_ok() {
                expected.get_mut(&client).unwrap().extend_from_slice(&bytes[begin..end]);
            }
            two.flush();
            for _ in 0..rng.u8(..4) {
                two.turn(Duration::from_millis(10));
            }
        }
        for (_, id) in &open {
            two.server.close(*id);
        }
        let count = expected.len();
        two.go("all have ended", |two| two.server_ends.len() == count && two.ends.len() == count);
        for (client, expected) in expected {
            let heard = two.heard(client);
            assert!(expected.starts_with(heard), "{client}: bytes of another one");
            if two.ends[&client].cause == Cause::Eof {
                assert!(heard == expected, "{client}: a good end, and not all");
            }
        }
        assert_eq!(Arc::strong_count(&file), 1);
    });
    assert!(ran > 0);
}
