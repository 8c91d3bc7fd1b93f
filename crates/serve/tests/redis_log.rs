//! The log of the example `serve_redis` on real files: what a crash leaves at its end is cut off
//! and kept, every other damage is refused, and one server has it at a time.
#![allow(missing_docs)] // a test binary has no users

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use fastrand::Rng;
use windlass::{Completions, Watcher};

use journal::{Care, Cut, HEAD_LEN, Journal, TITLE_LEN};
use lock::Lock;
use store::Store;

#[allow(dead_code)] // another test uses the rest
#[path = "../examples/serve_redis/journal.rs"]
mod journal;
#[path = "../examples/serve_redis/lock.rs"]
mod lock;
#[allow(dead_code)]
#[path = "../examples/serve_redis/resp.rs"]
mod resp;
#[path = "../../../tests/common/seeds.rs"]
mod seeds;
#[allow(dead_code)]
#[path = "../examples/serve_redis/store.rs"]
mod store;

/// A directory of a test, which goes with its content.
struct Directory(PathBuf);

impl Directory {
    fn new(test: &str) -> Directory {
        let path = std::env::temp_dir().join(format!("windlass-{test}-{}", seeds::draw()));
        fs::create_dir(&path).expect("a directory");
        Directory(path)
    }

    fn log(&self) -> PathBuf {
        self.0.join("log.aof")
    }

    /// What recovery has cut off, if it has.
    fn cut(&self) -> Vec<u8> {
        fs::read(self.0.join("log.aof.cut")).unwrap_or_default()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return; // it shows what was wrong
        }
        fs::remove_dir_all(&self.0).expect("it is there");
    }
}

fn open(path: &Path) -> io::Result<(Watcher, Journal, Store, Option<Cut>)> {
    let (mut watcher, mut store) = (Watcher::new()?, Store::logged());
    let (run, care) = (&mut journal::run, Care::default());
    let (journal, cut) = Journal::open(&mut watcher, run, path, 0x5a17, care, &mut store)?;
    Ok((watcher, journal, store, cut))
}

/// The keys of a log, in order.
fn keys(store: &Store) -> Vec<String> {
    let mut keys: Vec<_> =
        store.iter().map(|(key, _)| String::from_utf8_lossy(key).into_owned()).collect();
    keys.sort();
    keys
}

/// A SET of a key to itself.
fn set(key: &str) -> Vec<u8> {
    let mut out = Vec::new();
    resp::array(&mut out, 3);
    for word in [b"SET", key.as_bytes(), key.as_bytes()] {
        resp::bulk(&mut out, word);
    }
    out
}

/// Appends groups of commands, one after the other. Returns where each one begins, and the end.
fn append<T: AsRef<[u8]>>(path: &Path, groups: impl IntoIterator<Item = T>) -> Vec<usize> {
    let (mut watcher, mut journal, _, cut) = open(path).expect("the log opens");
    assert_eq!(cut, None);
    let len = || fs::metadata(path).expect("it is there").len() as usize;
    let (mut done, mut ends) = (Completions::new(), vec![len()]);
    for group in groups {
        journal.append(&mut watcher, group.as_ref().to_vec()).expect("room");
        let mut is_there = false;
        while !is_there {
            watcher.wait(&mut done).expect("an operation is in flight");
            for c in done.drain(..) {
                is_there |= journal.handle(&mut watcher, c).expect("it is written");
            }
        }
        ends.push(len());
    }
    ends
}

/// A log of three groups: two keys, one long key, two keys. Returns its bytes, and where the groups
/// begin and end.
fn three_groups(path: &Path) -> (Vec<u8>, Vec<usize>) {
    let long = format!("d{}", "x".repeat(60));
    let groups = [[set("a"), set("b")].concat(), set(&long), [set("y"), set("z")].concat()];
    let ends = append(path, groups);
    assert_eq!(ends[0], TITLE_LEN);
    (fs::read(path).expect("it is there"), ends)
}

/// Asserts that a log with these bytes is refused, that the error names this place, and that the
/// log stays as it is.
fn expect_refused(directory: &Directory, bytes: &[u8], at: usize, what: &str) {
    let path = directory.log();
    fs::write(&path, bytes).expect("a file");
    let error = open(&path).err().unwrap_or_else(|| panic!("{what} is not refused"));
    assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
    let text = error.to_string();
    assert!(text.starts_with(&format!("byte {at} of the log: ")), "{what}: {text}");
    assert_eq!(fs::read(&path).expect("it is there"), bytes, "{what}: the log has changed");
    assert_eq!(directory.cut(), b"", "{what}");
}

/// A log that is cut anywhere has its whole groups, and goes on behind them. The rest of a group is
/// kept beside it.
#[test]
fn a_torn_log_is_cut_at_every_byte() {
    let directory = Directory::new("torn");
    let path = directory.log();
    let (whole, ends) = three_groups(&path);
    let mut kept = Vec::new();
    for cut in 0..=whole.len() {
        fs::write(&path, &whole[..cut]).expect("a file");
        let (_, _, store, told) = open(&path).expect("a torn log is no error");
        let groups = ends.iter().filter(|end| **end <= cut).count();
        assert_eq!(keys(&store).len(), [0, 0, 2, 3, 5][groups], "{cut} bytes");
        // Without a whole first line it is a new log.
        let end = if groups == 0 { TITLE_LEN } else { ends[groups - 1] };
        let torn = whole[..cut].get(end..).unwrap_or_default();
        assert_eq!(told.is_some(), !torn.is_empty());
        if let Some(told) = told {
            assert_eq!((told.at, told.bytes), (end as u64, torn.len() as u64));
            kept.extend_from_slice(torn);
            assert_eq!(fs::read(told.kept_in).expect("it is there"), kept);
        }
        assert_eq!(fs::read(&path).expect("it is there").len(), end);
        append(&path, [set("new")]);
        let (_, _, store, told) = open(&path).expect("it is whole");
        assert_eq!((keys(&store).contains(&"new".into()), told), (true, None));
    }
    assert_eq!(directory.cut(), kept);
}

/// A crash keeps or loses each sector of the last group. Whichever are lost, the group is cut off
/// as a whole, and nothing else.
#[test]
fn lost_sectors_of_the_last_group_are_no_damage() {
    const SECTOR: usize = 64; // few bytes are enough
    let directory = Directory::new("sectors");
    let path = directory.log();
    append(&path, [set("a")]);
    let before = fs::read(&path).expect("it is there");
    append(&path, [[set("y"), set(&"z".repeat(150))].concat()]);
    let whole = fs::read(&path).expect("it is there");
    let sectors = (before.len() / SECTOR)..whole.len().div_ceil(SECTOR);
    assert!((4..12).contains(&sectors.len()), "{sectors:?}");
    for lost in 1u32..1 << sectors.len() {
        let mut bytes = whole.clone();
        for (index, sector) in sectors.clone().enumerate() {
            let from = (sector * SECTOR).max(before.len());
            let to = ((sector + 1) * SECTOR).min(bytes.len());
            if lost >> index & 1 > 0 {
                bytes[from..to].fill(0);
            }
        }
        fs::write(&path, bytes).expect("a file");
        let (_, _, store, cut) = open(&path).expect("a torn log is no error");
        assert_eq!(keys(&store), ["a"], "{lost:b}");
        assert_eq!(cut.expect("it is torn").at, before.len() as u64);
        assert_eq!(fs::read(&path).expect("it is there"), before);
    }
}

/// Any changed byte in front of the last group is damage: the log is refused, where the damaged
/// group begins. It once cut off all that followed.
#[test]
fn damage_in_the_middle_is_refused_at_every_byte() {
    let directory = Directory::new("damage");
    let (whole, ends) = three_groups(&directory.log());
    let mut rng = Rng::with_seed(seeds::draw());
    for at in 0..ends[2] {
        let mut bytes = whole.clone();
        bytes[at] ^= rng.u8(1..);
        let group = ends.iter().rfind(|end| **end <= at).copied().unwrap_or(0);
        expect_refused(&directory, &bytes, group, &format!("a damaged byte {at}"));
    }
    for (from, to) in [(0, ends[0]), (ends[0], ends[1]), (ends[0] + 5, ends[2]), (ends[1], ends[2])]
    {
        let mut bytes = whole.clone();
        bytes[from..to].fill(0);
        let group = ends.iter().rfind(|end| **end <= from).copied().unwrap_or(0);
        expect_refused(&directory, &bytes, group, &format!("zeros from {from} to {to}"));
        let bytes = [&whole[..from], &whole[to..]].concat();
        let place = if from == 0 { 0 } else { group };
        expect_refused(&directory, &bytes, place, &format!("a hole from {from} to {to}"));
    }
    // A group that is there twice.
    let twice = [&whole[..ends[1]], &whole[ends[0]..]].concat();
    expect_refused(&directory, &twice, ends[1], "a second copy of a group");
}

/// A log has arrays of strings that are writes, and nothing else, though its sums are right.
#[test]
fn a_log_with_anything_but_writes_is_refused() {
    let directory = Directory::new("writes");
    let path = directory.log();
    for (command, why) in [
        ("SET k v\r\n", "a command is no array of strings"),
        ("\r\n", "a command is no array of strings"),
        ("*1\r\n$4\r\nPING\r\n", "a command is not a write"),
        ("*2\r\n$3\r\nGET\r\n$1\r\na\r\n", "a command is not a write"),
        ("*0\r\n", "a command is not a write"),
        ("*1\r\n$3\r\nDEL\r\n", "a command is not a write"),
        ("*1\r\n+\r\n", "expected '$', got '+'"),
        ("*x\r\n", "invalid multibulk length"),
        ("*2\r\n$3\r\nDEL\r\n$9\r\nabc\r\n", "a command is longer than its group"),
    ] {
        fs::write(&path, "").expect("a file");
        let ends = append(&path, [set("a"), [&set("b"), command.as_bytes()].concat(), set("c")]);
        let at = ends[1] + HEAD_LEN + set("b").len();
        expect_refused(&directory, &fs::read(&path).expect("it is there"), at, command);
        let text = open(&path).err().expect("it is refused").to_string();
        assert!(text.ends_with(why), "{text}");
    }
}

/// The file of another program is refused, and stays as it is.
#[test]
fn what_is_no_log_is_refused_and_stays() {
    let directory = Directory::new("foreign");
    let redis = "*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n";
    let long = "x".repeat(5000);
    for bytes in ["hello", redis, "SET k v\r\n", "REDIS0011", &long, "\0\0\0x", &"\0".repeat(600)] {
        expect_refused(&directory, bytes.as_bytes(), 0, &bytes[..bytes.len().min(20)]);
    }
}

/// A crash while the log was made leaves a part of its first line, and zeros up to its length.
#[test]
fn a_log_that_was_hardly_begun_is_begun_anew() {
    let directory = Directory::new("begun");
    let path = directory.log();
    append(&path, [""; 0]);
    let title = fs::read(&path).expect("it is there");
    assert_eq!(title.len(), TITLE_LEN);
    for kept in 0..=TITLE_LEN {
        for zeros in [0, TITLE_LEN - kept] {
            let bytes = [&title[..kept], &vec![0; zeros]].concat();
            fs::write(&path, bytes).expect("a file");
            append(&path, [set("a")]);
            let (_, _, store, cut) = open(&path).expect("it is whole");
            assert_eq!((keys(&store), cut), (vec!["a".to_owned()], None), "{kept} and {zeros}");
        }
    }
}

/// A second server does not start, until the first one has ended.
#[test]
fn one_server_has_a_log() {
    let directory = Directory::new("lock");
    let path = directory.log();
    let lock = Lock::take(&path).expect("it is free");
    let error = Lock::take(&path).expect_err("it is taken");
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    assert_eq!(error.to_string(), "another server has this log");
    // The server itself opens it, and the other log of the directory is free.
    append(&path, [set("a")]);
    Lock::take(&directory.0.join("other.aof")).expect("it is free");
    drop(lock);
    Lock::take(&path).expect("it is free again");
}
