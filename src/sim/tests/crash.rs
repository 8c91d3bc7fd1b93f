//! Crashes: what is left of files and names, and what the other machines see.

use super::files::{both, open, run};
use std::sync::Arc;

use super::*;
use crate::file::OpenOptions;
use crate::sim::Crash;

const EIO: Option<ErrorKind> = Some(ErrorKind::Os(libc::EIO));
const SEEDS: std::ops::Range<u64> = 0..if cfg!(miri) { 10 } else { 200 };

fn sim(seed: u64) -> Sim {
    let sim = Sim::new(seed);
    sim.set_completing(seed % 2 == 1);
    sim
}

fn directory(watcher: &mut Simulated, path: &str) -> Source {
    open(watcher, path, OpenOptions::new().read(true))
}

fn ok(watcher: &mut Simulated, op: Op) {
    let result = run(watcher, op).result;
    assert!(result.is_ok(), "{result:?}");
}

/// The files that are there after a program has run and its machine has crashed, for each seed; how
/// often each outcome has come.
fn outcomes<T: Ord>(
    program: impl Fn(&mut Simulated),
    look: impl Fn(&Sim) -> T,
) -> (BTreeMap<T, u32>, Crash) {
    let (mut all, mut sum) = (BTreeMap::new(), Crash::default());
    for seed in SEEDS {
        let sim = sim(seed);
        sim.write_file("data/old", "old");
        let mut watcher = watcher(&sim);
        program(&mut watcher);
        sum.add(&sim.crash());
        *all.entry(look(&sim)).or_default() += 1;
    }
    (all, sum)
}

fn text(sim: &Sim, path: &str) -> Option<String> {
    let bytes = sim.read_file(path)?;
    Some(bytes.iter().map(|&byte| if byte == 0 { '0' } else { byte.into() }).collect())
}

/// All names used to survive a crash. So no test could find that a program had not synced the
/// directory of its file.
#[test]
fn a_name_needs_a_sync_of_its_directory() {
    let make = |watcher: &mut Simulated, path: &str| {
        let file = open(watcher, path, both().create(true));
        ok(watcher, Op::write_at(file, "new", 0));
        ok(watcher, Op::sync_all(file));
    };
    // No sync of the file, and none of another directory, covers the name.
    for other in [None, Some("."), Some("data/deep")] {
        let (all, sum) = outcomes(
            |watcher| {
                make(watcher, "data/deep/other");
                make(watcher, "data/new");
                if let Some(other) = other {
                    let other = directory(watcher, other);
                    ok(watcher, Op::sync_all(other));
                }
            },
            |sim| text(sim, "data/new"),
        );
        assert_eq!(all.keys().collect::<Vec<_>>(), [&None, &Some("new".into())], "{all:?}");
        assert!(sum.kept_names > 0 && sum.lost_names > 0, "{sum:?}");
    }
    for sync in [Op::sync_all, Op::sync_data] {
        let (all, _) = outcomes(
            |watcher| {
                make(watcher, "data/new");
                let directory = directory(watcher, "./data");
                ok(watcher, sync(directory));
            },
            |sim| text(sim, "data/new"),
        );
        assert_eq!(all.into_keys().collect::<Vec<_>>(), [Some("new".into())]);
    }
}

/// A rename is there whole or not at all: the name that it replaces is never missing.
#[test]
fn a_rename_is_atomic() {
    let replace = |watcher: &mut Simulated| {
        let file = open(watcher, "data/tmp", both().create(true));
        ok(watcher, Op::write_at(file, "new", 0));
        ok(watcher, Op::sync_data(file));
        ok(watcher, Op::rename("data/tmp", "data/old"));
    };
    let look = |sim: &Sim| (text(sim, "data/old").unwrap(), text(sim, "data/tmp"));
    let (all, _) = outcomes(replace, look);
    let new = || "new".to_string();
    let wanted = [(new(), None), ("old".into(), None), ("old".into(), Some(new()))];
    assert_eq!(all.into_keys().collect::<Vec<_>>(), wanted);
    let (all, _) = outcomes(
        |watcher| {
            replace(watcher);
            let directory = directory(watcher, "data");
            ok(watcher, Op::sync_all(directory));
        },
        look,
    );
    assert_eq!(all.into_keys().collect::<Vec<_>>(), [(new(), None)]);
}

/// Removals and links are kept or lost, each on its own. A removed file whose removal is lost has
/// its bytes.
#[test]
fn removals_and_links_need_a_sync_as_well() {
    let (all, sum) = outcomes(
        |watcher| {
            ok(watcher, Op::hard_link("data/old", "data/link"));
            ok(watcher, Op::remove_file("data/old"));
        },
        |sim| (text(sim, "data/old").is_some(), text(sim, "data/link").is_some()),
    );
    assert_eq!(all.len(), 4, "{all:?}");
    assert_eq!(sum.kept_names + sum.lost_names, 2 * SEEDS.end);
    // After the sync of an earlier change, only the later one is open.
    let (all, _) = outcomes(
        |watcher| {
            ok(watcher, Op::remove_file("data/old"));
            let directory = directory(watcher, "data");
            ok(watcher, Op::sync_all(directory));
            open(watcher, "data/old", both().create(true));
        },
        |sim| text(sim, "data/old"),
    );
    assert_eq!(all.into_keys().collect::<Vec<_>>(), [None, Some(String::new())]);
}

/// A rename between two directories is there when either is synced, and earlier changes of its
/// names do not come back behind it.
#[test]
fn a_rename_between_directories_needs_one_sync() {
    for synced in ["data", "other"] {
        let (all, _) = outcomes(
            |watcher| {
                open(watcher, "other/name", both().create(true));
                ok(watcher, Op::rename("data/old", "other/name"));
                let directory = directory(watcher, synced);
                ok(watcher, Op::sync_all(directory));
            },
            |sim| (text(sim, "data/old"), text(sim, "other/name")),
        );
        assert_eq!(all.into_keys().collect::<Vec<_>>(), [(None, Some("old".into()))]);
    }
}

/// Sectors that no sync has covered are kept or lost in any order. All of them used to be lost.
#[test]
fn unsynced_bytes_survive_by_sectors() {
    let (all, sum) = outcomes(
        |watcher| {
            let file = open(watcher, "data/old", both());
            ok(watcher, Op::write_at(file, vec![b'a'; 4 * 512], 0));
            ok(watcher, Op::sync_data(file));
            ok(watcher, Op::write_at(file, vec![b'b'; 4 * 512], 0));
        },
        |sim| {
            let bytes = sim.read_file("data/old").unwrap();
            assert_eq!(bytes.len(), 4 * 512);
            let whole = |sector: &[u8]| sector.iter().all(|byte| *byte == sector[0]);
            assert!(bytes.chunks(512).all(whole), "a sector is torn");
            bytes.chunks(512).map(|sector| char::from(sector[0])).collect::<String>()
        },
    );
    assert!(sum.kept_sectors > 0 && sum.lost_sectors > 0, "{sum:?}");
    assert_eq!((sum.kept_lengths, sum.lost_lengths), (0, 0), "the length was synced: {sum:?}");
    for wanted in if cfg!(miri) { &["aaaa"][..] } else { &["aaaa", "abab", "baab", "bbbb"] } {
        assert!(all.contains_key(*wanted), "{wanted} is not among {all:?}");
    }
}

/// A sector may have any version since the last sync, and the length too, whatever sectors are
/// there: behind a length without its sectors are zeros.
#[test]
#[cfg_attr(miri, ignore = "needs many seeds: too slow")]
fn lengths_and_versions_are_chosen_apart() {
    let (all, sum) = outcomes(
        |watcher| {
            let file = open(watcher, "data/old", both());
            for text in ["OLD", "OLD, and more", "new"] {
                ok(watcher, Op::write_at(file, text, 0));
            }
        },
        |sim| text(sim, "data/old").unwrap(),
    );
    let wanted = ["OLD", "OLD, and more", "new", "new, and more", "old", "old0000000000"];
    for text in wanted {
        assert!(all.contains_key(text), "{text} is not among {all:?}");
    }
    assert!(sum.kept_lengths > 0 && sum.lost_lengths > 0, "{sum:?}");
    // A truncation that nothing has synced may not be there.
    let (all, _) = outcomes(
        |watcher| {
            let file = open(watcher, "data/old", both().truncate(true));
            ok(watcher, Op::write_at(file, "n", 0));
        },
        |sim| text(sim, "data/old").unwrap(),
    );
    for text in ["", "n", "old"] {
        assert!(all.contains_key(text), "{text} is not among {all:?}");
    }
}

/// What a sync covers is there, and so are writes on files that are opened for it. Direct I/O and
/// `sync_range` promise nothing.
#[test]
fn a_sync_keeps_bytes_and_length() {
    let block = || crate::AlignedBuf::from_slice(&[b'd'; 512], 512);
    let (all, _) = outcomes(
        |watcher| {
            for (path, sync) in
                [("data/all", Op::sync_all as fn(_) -> _), ("data/d", Op::sync_data)]
            {
                let file = open(watcher, path, both().create(true));
                ok(watcher, Op::write_at(file, pattern(10_000), 0));
                ok(watcher, Op::set_len(file, 9_000));
                ok(watcher, sync(file));
            }
            for (path, options) in [("data/o", both().dsync(true)), ("data/s", both().sync(true))] {
                let file = open(watcher, path, options.create(true).direct(true));
                ok(watcher, Op::write_at(file, block(), 512));
            }
            let directory = directory(watcher, "data");
            ok(watcher, Op::sync_all(directory));
        },
        |sim| ["data/all", "data/d", "data/o", "data/s"].map(|path| sim.read_file(path).unwrap()),
    );
    let wanted = pattern(9_000);
    let direct = [[0; 512], [b'd'; 512]].concat();
    let all: Vec<_> = all.into_keys().collect();
    assert!(all == [[wanted.clone(), wanted, direct.clone(), direct]]);
    for range in [false, true] {
        let (all, _) = outcomes(
            |watcher| {
                let file = open(watcher, "data/old", both().direct(!range));
                if range {
                    ok(watcher, Op::write_at(file, "new", 0));
                    ok(watcher, Op::sync_range(file, 0, 3));
                } else {
                    ok(watcher, Op::write_at(file, block(), 0));
                }
            },
            |sim| sim.read_file("data/old").unwrap()[0],
        );
        assert_eq!(all.into_keys().collect::<Vec<_>>(), [if range { b'n' } else { b'd' }, b'o']);
    }
}

/// A write that is under way at the crash may have reached some sectors, also on a file that is
/// opened for synchronous writes.
#[test]
#[cfg_attr(miri, ignore = "needs many seeds: too slow")]
fn a_write_under_way_is_torn() {
    for options in [both().dsync(true), both().dsync(true).append(true)] {
        let (all, _) = outcomes(
            |watcher| {
                let file = open(watcher, "data/old", options);
                watcher.submit(Op::write_at(file, vec![b'n'; 4 * 512], 0)).unwrap();
            },
            |sim| {
                let bytes = sim.read_file("data/old").unwrap();
                bytes.chunks(512).map(|sector| sector.contains(&b'n')).collect::<Vec<_>>()
            },
        );
        let torn = |sectors: &&Vec<bool>| sectors.contains(&true) && sectors.contains(&false);
        assert!(all.keys().filter(torn).count() > 3, "{all:?}");
        assert!(all.keys().any(|sectors| sectors.iter().all(|there| !there)), "{all:?}");
    }
    // A write that ended before the crash is there, and one that was cancelled has left nothing.
    let sim = sim(1);
    let mut watcher = watcher(&sim);
    let file = open(&mut watcher, "a", both().create(true).dsync(true));
    ok(&mut watcher, Op::write_at(file, "kept", 0));
    let ticket = watcher.submit(Op::write_at(file, "cancelled", 4)).unwrap();
    assert!(watcher.cancel(ticket));
    assert_eq!(wait_one(&mut watcher).error_kind(), Some(ErrorKind::Cancelled));
    let directory = directory(&mut watcher, ".");
    ok(&mut watcher, Op::sync_all(directory));
    sim.crash();
    assert_eq!(sim.read_file("a").unwrap(), b"kept");
}

/// A sync that fails has put some sectors on the disk. The others are clean, so that the next sync
/// succeeds without them (Linux reports the failure once). Programs read them until the page cache
/// is dropped.
#[test]
fn a_sync_that_fails_loses_what_it_was_for() {
    let mut lost = BTreeSet::new();
    for seed in SEEDS {
        let sim = sim(seed);
        sim.write_file("a", vec![b'o'; 1024]);
        let mut watcher = watcher(&sim);
        let file = open(&mut watcher, "a", both());
        ok(&mut watcher, Op::write_at(file, vec![b'n'; 1024], 0));
        sim.set_faults(Faults { sync_error: 1.0, ..Faults::none() });
        assert_eq!(run(&mut watcher, Op::sync_data(file)).error_kind(), EIO);
        sim.set_faults(Faults::none());
        ok(&mut watcher, Op::sync_data(file));
        assert_eq!(sim.injected().sync_error, 1);
        assert!(sim.read_file("a").unwrap() == [b'n'; 1024]);
        if seed % 3 == 0 {
            sim.drop_caches();
        } else {
            let crash = sim.crash();
            assert_eq!(crash.kept_sectors + crash.lost_sectors, 0, "nothing is dirty");
        }
        let bytes = sim.read_file("a").unwrap();
        lost.insert([bytes[0], bytes[512]]);
    }
    assert_eq!(lost.len(), 4, "each sector is there or not: {lost:?}");
}

/// A failed sync of a directory puts no name on the disk. The next one does.
#[test]
fn a_sync_of_a_directory_that_fails_keeps_no_name() {
    let mut there = [BTreeSet::new(), BTreeSet::new()];
    for seed in SEEDS {
        for again in [false, true] {
            let sim = sim(seed);
            let mut watcher = watcher(&sim);
            open(&mut watcher, "data/new", both().create(true));
            let directory = directory(&mut watcher, "data");
            sim.set_faults(Faults { sync_error: 1.0, ..Faults::none() });
            assert_eq!(run(&mut watcher, Op::sync_all(directory)).error_kind(), EIO);
            sim.set_faults(Faults::none());
            if again {
                ok(&mut watcher, Op::sync_all(directory));
            }
            sim.crash();
            there[usize::from(again)].insert(sim.read_file("data/new").is_some());
        }
    }
    assert_eq!(there, [[false, true].into(), [true].into()]);
}

/// The same seed leaves the same, and what the disk keeps does not change the other faults.
#[test]
fn a_crash_depends_on_the_seed() {
    let run = |seed| {
        let sim = Sim::with_faults(seed, Faults::transient(0.2));
        let mut watcher = watcher(&sim);
        for path in ["a", "b", "c"] {
            let file = open(&mut watcher, path, both().create(true));
            ok(&mut watcher, Op::write_at(file, pattern(5_000), 0));
        }
        let crash = sim.crash();
        (crash, ["a", "b", "c"].map(|path| sim.read_file(path)), sim.trace_hash())
    };
    for seed in 0..5 {
        assert!(run(seed) == run(seed), "seed {seed}");
    }
    assert!(run(0) != run(1));
}

const SERVER: ([u8; 4], u16) = ([10, 0, 0, 1], 80);

/// A server at its address: it accepts for ever.
fn server(host: &Sim) -> Simulated {
    let mut server = watcher(host);
    let listener = server.listen(SERVER).unwrap();
    server.submit(Op::accept(listener).multishot()).unwrap();
    server
}

/// Connects, and returns the two ends.
fn connect(sim: &Sim, server: &mut Simulated, client: &mut Simulated) -> (Source, Source) {
    client.submit(Op::connect(SERVER)).unwrap();
    let mut ends = [None, None];
    while ends.contains(&None) {
        let (index, end) = sim
            .run(&mut [&mut *server, &mut *client], |index, watcher, c| match c.result? {
                Done::Accepted(socket) | Done::Socket(socket) => {
                    Ok(Some((index, watcher.attach(socket)?)))
                }
                _ => Ok(None),
            })
            .unwrap();
        ends[index] = Some(end);
    }
    (ends[0].unwrap(), ends[1].unwrap())
}

/// A crash used to be one of all files, and left all sockets as they were.
#[test]
fn other_machines_live_on_and_see_resets() {
    for (completing, far) in [(false, false), (false, true), (true, false), (true, true)] {
        let sim = Sim::new(7);
        sim.set_completing(completing);
        let (here, there) = (sim.at(SERVER.0), sim.at([10, 0, 0, 2]));
        let latency = Duration::from_millis(30);
        if far {
            sim.set_link(SERVER.0, [10, 0, 0, 2], crate::sim::Link::default().latency(latency));
        }
        let (mut old, mut client) = (server(&here), watcher(&there));
        let (_, idle) = connect(&sim, &mut old, &mut client);
        let (busy_end, busy) = connect(&sim, &mut old, &mut client);
        ok_quietly(&mut client, Op::write(busy, "nobody reads this"));
        // Work that the crash interrupts.
        let file = open(&mut old, "a", both().create(true));
        let bytes: Arc<[u8]> = Arc::from(*b"under way");
        old.submit(Op::write_at(file, Arc::clone(&bytes), 0)).unwrap();
        old.submit(Op::read_exact(busy_end, Vec::with_capacity(100), 100)).unwrap();
        old.submit(Op::timer(HOUR)).unwrap();
        old.submit(Op::run(|| panic!("its machine has crashed"))).unwrap();
        let mine = open(&mut client, "a", both().create(true));
        ok_quietly(&mut client, Op::write_at(mine, "of the client", 0));

        let at = sim.now();
        assert!(here.crash().sockets >= 3);
        assert_eq!(there.read_file("a").unwrap(), b"of the client", "another machine's file");
        for source in [idle, busy] {
            assert_eq!(read(&mut client, source), Err(ErrorKind::Os(libc::ECONNRESET)));
        }
        assert_eq!(sim.now() - at >= latency, far, "a reset travels over the link");
        let refused = run(&mut client, Op::connect(SERVER)).error_kind();
        assert_eq!(refused, Some(ErrorKind::Os(libc::ECONNREFUSED)));

        // The dead watcher does nothing more, and its numbers are nobody else's.
        let late = run_alone(&sim, &mut old, &mut client);
        assert_eq!(late.kind(), io::ErrorKind::Deadlock, "{late}");
        let mut new = server(&here);
        let (end, again) = connect(&sim, &mut new, &mut client);
        while let Ok(count) = old.try_wait(&mut Completions::new()) {
            assert!(count > 0, "it says that its machine has crashed");
        }
        assert!(old.listen(([10, 0, 0, 1], 81)).is_err());
        drop(old);
        assert_eq!(Arc::strong_count(&bytes), 1, "no buffer is left to the kernel");
        ok_quietly(&mut client, Op::write(again, "hello"));
        assert_eq!(read(&mut new, end).unwrap(), b"hello");
        assert_eq!(here.crash().lost_sectors, 0, "no file is open");
    }
}

/// Waits for one completion; others may be there.
fn ok_quietly(watcher: &mut Simulated, op: Op) {
    let code = watcher.submit(op.token(9)).map(|_| 9).unwrap();
    loop {
        if let Some(c) = wait(watcher).into_iter().find(|c| c.token == code) {
            assert!(c.result.is_ok(), "{c:?}");
            return;
        }
    }
}

/// Runs a dead watcher beside a living one until nothing can happen.
fn run_alone(sim: &Sim, dead: &mut Simulated, living: &mut Simulated) -> io::Error {
    let told = sim.run(&mut [dead, living], |index, _, c| -> io::Result<Option<()>> {
        panic!("{index}: {c:?}")
    });
    told.expect_err("nobody has anything to do")
}

/// A watcher that is dropped before the crash, as by kill(2), leaves its files in the page cache.
#[test]
fn a_dropped_watcher_loses_nothing() {
    let sim = Sim::new(1);
    let mut first = watcher(&sim);
    let file = open(&mut first, "a", both().create(true));
    ok(&mut first, Op::write_at(file, "kept", 0));
    drop(first);
    assert_eq!(sim.read_file("a").unwrap(), b"kept");
    let mut second = watcher(&sim);
    let file = open(&mut second, "a", both());
    ok(&mut second, Op::sync_data(file));
    let directory = directory(&mut second, ".");
    ok(&mut second, Op::sync_all(directory));
    drop(second);
    sim.crash();
    assert_eq!(sim.read_file("a").unwrap(), b"kept");
}

/// The signals and children of a crashed machine are gone.
#[test]
fn signals_and_children_end_with_their_machine() {
    let sim = Sim::new(1);
    let (here, there) = (sim.at([10, 0, 0, 1]), sim.at([10, 0, 0, 2]));
    let (mut a, mut b) = (watcher(&here), watcher(&there));
    a.signals(&[crate::sys::signals::SIGTERM]).unwrap();
    b.signals(&[crate::sys::signals::SIGTERM]).unwrap();
    let (mine, other) = (here.spawn(), there.spawn());
    assert_eq!(here.crash().sockets, 1);
    assert_eq!(sim.raise(crate::sys::signals::SIGTERM), 1);
    assert_eq!((sim.exit(mine, 0), sim.exit(other, 0)), (false, true));
}

/// A connection that nobody has accepted, and one end of a pair that another machine has attached,
/// are reset as well. A datagram to the machine finds nobody.
#[test]
fn what_no_watcher_of_the_machine_has_accepted_is_reset_as_well() {
    let sim = Sim::new(1);
    let (here, there) = (sim.at(SERVER.0), sim.at([10, 0, 0, 2]));
    let (mut old, mut client) = (watcher(&here), watcher(&there));
    old.listen(SERVER).unwrap();
    let Ok(Done::Socket(socket)) = run(&mut client, Op::connect(SERVER)).result else { panic!() };
    let queued = client.attach(socket).unwrap();
    let (mine, theirs) = there.pair();
    let pair = client.attach(mine).unwrap();
    let other = old.attach(theirs).unwrap();
    old.submit(Op::read(other)).unwrap();
    old.try_wait(&mut Completions::new()).unwrap();
    let inbox = old.attach(here.datagram(SERVER).unwrap()).unwrap();
    let letters = client.attach(there.datagram(([10, 0, 0, 2], 80)).unwrap()).unwrap();
    client.connect_datagram(letters, SERVER).unwrap();
    assert_eq!(old.local_address(inbox).unwrap().to_string(), "10.0.0.1:80");
    here.crash();
    for source in [queued, pair] {
        assert_eq!(read(&mut client, source), Err(ErrorKind::Os(libc::ECONNRESET)));
    }
    ok(&mut client, Op::write(letters, "anybody?"));
    assert_eq!(read(&mut client, letters), Err(ErrorKind::Os(libc::ECONNREFUSED)));
}
