//! Files by their names, against what std sees; host names.

use std::ffi::OsString;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use windlass::fs::{Access, CopyOptions, DirReader, FileKind, FileRef, Metadata, OpenOptions};
use windlass::{Completion, Done, ErrorKind, Op};

use crate::common::files::*;
use crate::common::*;

const NEW: OpenOptions = OpenOptions::new();

#[track_caller]
fn errno(c: Completion, errno: i32) {
    assert!(c.source.is_none());
    expect_errno(c, &[errno]);
}

#[track_caller]
fn stat(c: Completion) -> Metadata {
    match c.result {
        Ok(Done::Metadata(known)) => *known,
        other => panic!("wanted a stat: {other:?}"),
    }
}

#[track_caller]
fn path(c: Completion) -> PathBuf {
    match c.result {
        Ok(Done::Path(path)) => path,
        other => panic!("wanted a path: {other:?}"),
    }
}

pub fn a_path_does_not_lead_out_of_its_directory<H: Harness>() {
    let d = Directory::new();
    let mut b = H::bench();
    fs::create_dir_all(d.at("root/sub")).unwrap();
    fs::write(d.at("root/sub/a"), "inside").unwrap();
    fs::write(d.at("secret"), "outside").unwrap();
    symlink("sub/a", d.at("root/link")).unwrap();
    symlink("../secret", d.at("root/out")).unwrap();
    symlink("..", d.at("root/up")).unwrap();
    symlink(d.at("secret"), d.at("root/absolute")).unwrap();
    let read = NEW.read(true).nonblocking(true);
    let open = |path: &str| Op::open_beneath(d.at("root"), path, read);
    for path in ["sub/a", "link", "sub/../link", "./link"] {
        let c = b.run(open(path));
        let Ok(Done::Opened(file)) = c.result else { panic!("{path}: {c:?}") };
        let file = b.watcher.attach(file).unwrap();
        assert_eq!(b.read_at(file, 10, 0), b"inside");
    }
    for path in ["out", "up/secret", "../secret", "sub/../../secret", "absolute", "/etc/passwd"] {
        errno(b.run(open(path)), libc::EXDEV);
    }
    errno(b.run(open("none")), libc::ENOENT);
    errno(b.run(open("")), libc::ENOENT);
    errno(b.run(Op::open_beneath(d.at("none"), "a", read)), libc::ENOENT);
    errno(b.run(Op::open_beneath(d.at("secret"), "a", read)), libc::ENOTDIR);
    errno(b.run(Op::open_beneath(d.at("root"), "sub/a", NEW)), libc::EINVAL);
}

pub fn files_are_opened_as_std_opens_them<H: Harness>() {
    let d = Directory::new();
    let mut b = H::bench();
    fs::write(d.at("a"), "before").unwrap();
    let write = NEW.write(true);
    errno(b.run(Op::open(d.at("none"), NEW.read(true))), libc::ENOENT);
    errno(b.run(Op::open(d.at("none/x"), write.create(true))), libc::ENOENT);
    errno(b.run(Op::open(d.at("a/x"), NEW.read(true))), libc::ENOTDIR);
    errno(b.run(Op::open(d.at("a"), write.create_new(true))), libc::EEXIST);
    errno(b.run(Op::open(d.path(), write)), libc::EISDIR);
    errno(b.run(Op::open(d.at("a"), NEW)), libc::EINVAL);
    errno(b.run(Op::open(d.at("a"), NEW.read(true).truncate(true))), libc::EINVAL);
    errno(b.run(Op::open("with\0nul", NEW.read(true))), libc::EINVAL);
    errno(b.run(Op::open("", NEW.read(true))), libc::ENOENT);
    errno(b.run(Op::open("x".repeat(300), NEW.read(true))), libc::ENAMETOOLONG);
    symlink(d.at("a"), d.at("link")).unwrap();
    let follow = NEW.read(true).custom_flags(libc::O_NOFOLLOW);
    errno(b.run(Op::open(d.at("link"), follow)), libc::ELOOP);
    let only = NEW.read(true).custom_flags(libc::O_DIRECTORY);
    errno(b.run(Op::open(d.at("a"), only)), libc::ENOTDIR);
    assert_eq!(fs::read(d.at("a")).unwrap(), b"before");

    let file = b.open_file(d.at("link"), NEW.read(true));
    assert_eq!(b.read_at(file, 10, 0), b"before");
    b.open_file(d.at("a"), write.truncate(true));
    assert_eq!(b.read_at(file, 10, 0), b"");
    let made = b.open_file(d.at("new"), write.create_new(true).mode(0o640));
    b.write_at(made, "x", 0);
    let mode = fs::metadata(d.at("new")).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode & !0o640, 0);
    // Its descriptor is not inherited.
    let fd = system::number(&mut b, made);
    assert!(system::closes_on_exec(fd));
    // On the disk when it is written.
    for options in [write.sync(true), write.dsync(true), write.sync(true).dsync(true)] {
        let file = b.open_file(d.at("a"), options);
        b.write_at(file, "synced", 0);
    }
    assert_eq!(fs::read(d.at("a")).unwrap(), b"synced");
    b.expect_all_ended();
}

pub fn a_stat_says_what_std_says<H: Harness>() {
    let d = Directory::new();
    let mut b = H::bench();
    fs::write(d.at("a"), pattern(12_345, 1)).unwrap();
    fs::set_permissions(d.at("a"), fs::Permissions::from_mode(0o751)).unwrap();
    fs::hard_link(d.at("a"), d.at("b")).unwrap();
    symlink("a", d.at("link")).unwrap();
    let file = b.open_file(d.at("a"), NEW.read(true));
    let same = |known: &Metadata, wanted: &fs::Metadata| {
        assert_eq!((known.device, known.inode), (wanted.dev(), wanted.ino()));
        assert_eq!((known.mode, known.links), (wanted.mode(), wanted.nlink()));
        assert_eq!((known.user, known.group), (wanted.uid(), wanted.gid()));
        assert_eq!((known.size, known.blocks), (wanted.size(), wanted.blocks()));
        assert_eq!(known.block_size, wanted.blksize());
        assert_eq!(known.modified, wanted.modified().unwrap());
        assert_eq!(known.permissions(), wanted.mode() & 0o7777);
    };
    let wanted = fs::metadata(d.at("a")).unwrap();
    for file in [FileRef::from(&d.at("a")), FileRef::from(d.at("link")), file.into()] {
        let known = stat(b.run(Op::metadata(file)));
        same(&known, &wanted);
        assert_eq!((known.kind(), known.links, known.size), (FileKind::File, 2, 12_345));
    }
    let known = stat(b.run(Op::metadata(FileRef::symlink(d.at("link")))));
    same(&known, &fs::symlink_metadata(d.at("link")).unwrap());
    assert_eq!(known.kind(), FileKind::Symlink);
    let known = stat(b.run(Op::metadata(d.path())));
    same(&known, &fs::metadata(d.path()).unwrap());
    assert_eq!(known.kind(), FileKind::Directory);
    assert_eq!(stat(b.run(Op::metadata("/dev/null"))).kind(), FileKind::CharDevice);
    errno(b.run(Op::metadata(d.at("none"))), libc::ENOENT);
    errno(b.run(Op::metadata(d.at("a/b"))), libc::ENOTDIR);
    symlink(d.at("loop"), d.at("loop")).unwrap();
    errno(b.run(Op::metadata(d.at("loop"))), libc::ELOOP);
    // The completion of a stat by source names it.
    assert_eq!(b.run(Op::metadata(file)).source, file);
    b.expect_all_ended();
}

pub fn names_come_and_go<H: Harness>() {
    let d = Directory::new();
    let mut b = H::bench();
    fs::write(d.at("a"), "one").unwrap();
    fs::write(d.at("b"), "two").unwrap();
    // A file is replaced.
    expect_finished(b.run(Op::rename(d.at("a"), d.at("b"))));
    assert_eq!(fs::read(d.at("b")).unwrap(), b"one");
    assert!(!d.at("a").exists());
    errno(b.run(Op::rename(d.at("a"), d.at("b"))), libc::ENOENT);
    expect_finished(b.run(Op::create_dir(d.at("dir"), 0o700)));
    assert_eq!(fs::metadata(d.at("dir")).unwrap().permissions().mode() & 0o7777, 0o700);
    errno(b.run(Op::create_dir(d.at("dir"), 0o700)), libc::EEXIST);
    errno(b.run(Op::create_dir(d.at("b/dir"), 0o700)), libc::ENOTDIR);
    errno(b.run(Op::rename(d.at("b"), d.at("dir"))), libc::EISDIR);
    errno(b.run(Op::rename(d.at("dir"), d.at("b"))), libc::ENOTDIR);
    errno(b.run(Op::rename(d.at("dir"), d.at("dir/itself"))), libc::EINVAL);
    expect_finished(b.run(Op::hard_link(d.at("b"), d.at("dir/c"))));
    assert_eq!(fs::metadata(d.at("b")).unwrap().nlink(), 2);
    errno(b.run(Op::hard_link(d.at("b"), d.at("dir/c"))), libc::EEXIST);
    errno(b.run(Op::remove_dir(d.at("dir"))), libc::ENOTEMPTY);
    let c = b.run(Op::remove_file(d.at("dir")));
    expect_errno(c, &[libc::EISDIR, libc::EPERM]);
    expect_finished(b.run(Op::remove_file(d.at("dir/c"))));
    errno(b.run(Op::remove_file(d.at("dir/c"))), libc::ENOENT);
    errno(b.run(Op::remove_dir(d.at("b"))), libc::ENOTDIR);
    expect_finished(b.run(Op::remove_dir(d.at("dir"))));
    errno(b.run(Op::remove_dir(d.at("dir"))), libc::ENOENT);

    expect_finished(b.run(Op::symlink("b", d.at("link"))));
    assert_eq!(path(b.run(Op::read_link(d.at("link")))), PathBuf::from("b"));
    errno(b.run(Op::read_link(d.at("b"))), libc::EINVAL);
    errno(b.run(Op::symlink("b", d.at("link"))), libc::EEXIST);
    let real = fs::canonicalize(d.at("b")).unwrap();
    assert_eq!(path(b.run(Op::canonicalize(d.at("link")))), real);
    errno(b.run(Op::canonicalize(d.at("none"))), libc::ENOENT);
    // A link goes, not what it leads to.
    expect_finished(b.run(Op::remove_file(d.at("link"))));
    assert_eq!(fs::read(d.at("b")).unwrap(), b"one");
    // A file without a name is still there.
    let file = b.make_file(d.at("b"));
    expect_finished(b.run(Op::remove_file(d.at("b"))));
    assert_eq!(b.read_at(file, 10, 0), b"one");
    assert_eq!(stat(b.run(Op::metadata(file))).links, 0);
    b.expect_all_ended();
}

/// C9: one operation reads a bounded number of names; parts read any directory, each name once.
pub fn a_directory_is_read_in_bounded_parts<H: Harness>() {
    const MOST: usize = 65_536;
    let d = directories().pop().unwrap();
    let mut b = H::bench();
    let make = |i: usize| drop(fs::File::create(d.at(format!("{i}"))).unwrap());
    let part = |b: &mut Bench<H::Driver>, reader, most| match b
        .run(Op::read_dir_part(reader, most))
        .result
    {
        Ok(Done::Part(part)) => *part,
        other => panic!("wanted a part: {other:?}"),
    };
    let all = |b: &mut Bench<H::Driver>, most: usize| {
        let mut names = std::collections::HashSet::new();
        let mut next = Some(DirReader::new(d.path()));
        while let Some(reader) = next {
            let part = part(b, reader, most);
            assert!(part.entries.len() <= most.clamp(1, MOST));
            assert!(part.rest.is_none() || part.entries.len() == most.clamp(1, MOST));
            for entry in part.entries {
                assert_eq!(entry.kind, FileKind::File);
                assert!(names.insert(entry.name), "a name comes once");
            }
            next = part.rest;
        }
        names
    };
    assert!(all(&mut b, 5).is_empty());
    (0..10).for_each(make);
    for most in [0, 1, 3, 5, 10, 11] {
        assert_eq!(all(&mut b, most).len(), 10, "{most} at a time");
    }
    // Refused reads and reads that end early leave no descriptor open.
    errno(b.run(Op::read_dir_part(DirReader::new(d.at("none")), 1)), libc::ENOENT);
    errno(b.run(Op::read_dir_part(DirReader::new(d.at("1")), 1)), libc::ENOTDIR);
    b.expect_all_ended();
}

pub fn a_directory_says_what_is_in_it<H: Harness>() {
    let d = Directory::new();
    let mut b = H::bench();
    let list = |b: &mut Bench<H::Driver>, path: PathBuf| match b.run(Op::read_dir(path)).result {
        Ok(Done::Entries(mut entries)) => {
            entries.sort();
            entries
        }
        other => panic!("wanted entries: {other:?}"),
    };
    assert!(list(&mut b, d.path().to_owned()).is_empty());
    let mut wanted: Vec<OsString> = (0..1500).map(|i| format!("file {i}").into()).collect();
    for name in &wanted {
        fs::write(d.at(name), "").unwrap();
    }
    fs::create_dir(d.at("sub")).unwrap();
    symlink("nowhere", d.at("tie")).unwrap();
    wanted.extend(["sub".into(), "tie".into()]);
    wanted.sort();
    let found = list(&mut b, d.path().to_owned());
    let names: Vec<_> = found.iter().map(|entry| entry.name.clone()).collect();
    assert_eq!(names, wanted);
    for entry in found {
        let kind = match entry.name.to_str().unwrap() {
            "sub" => FileKind::Directory,
            "tie" => FileKind::Symlink,
            _ => FileKind::File,
        };
        assert_eq!(entry.kind, kind, "{:?}", entry.name);
    }
    errno(b.run(Op::read_dir(d.at("none"))), libc::ENOENT);
    errno(b.run(Op::read_dir(d.at("file 1"))), libc::ENOTDIR);
}

pub fn copies_are_whole<H: Harness>() {
    let d = Directory::new();
    let mut b = H::bench();
    let new = CopyOptions::new();
    let copied = |c: Completion| {
        let bytes = c.bytes() as u64;
        match c.result {
            Ok(Done::Copied(count)) => {
                assert_eq!(count, bytes);
                count
            }
            other => panic!("wanted a copy: {other:?}"),
        }
    };
    for len in [0, 1, 4096, 3_000_001] {
        fs::write(d.at("a"), pattern(len, 1)).unwrap();
        fs::set_permissions(d.at("a"), fs::Permissions::from_mode(0o604)).unwrap();
        let c = b.run(Op::copy(d.at("a"), d.at("b"), new));
        assert_eq!(copied(c), len as u64);
        expect_same(&fs::read(d.at("b")).unwrap(), &pattern(len, 1));
        assert_eq!(fs::metadata(d.at("b")).unwrap().permissions().mode() & 0o7777, 0o604);
    }
    let only = new.exclusive(true);
    errno(b.run(Op::copy(d.at("a"), d.at("b"), only)), libc::EEXIST);
    assert_eq!(copied(b.run(Op::copy(d.at("a"), d.at("c"), only))), 3_000_001);
    errno(b.run(Op::copy(d.at("none"), d.at("x"), new)), libc::ENOENT);
    errno(b.run(Op::copy(d.path(), d.at("x"), new)), libc::EISDIR);
    assert!(!d.at("x").exists());
    // Onto itself, by another name.
    fs::hard_link(d.at("a"), d.at("same")).unwrap();
    copied(b.run(Op::copy(d.at("a"), d.at("same"), new)));
    expect_same(&fs::read(d.at("a")).unwrap(), &pattern(3_000_001, 1));
    // Blocks that cannot be shared.
    if let Some(memory) = directories().get(1) {
        let c = b.run(Op::copy(d.at("a"), memory.at("a"), new));
        assert_eq!(copied(c), 3_000_001);
        expect_same(&fs::read(memory.at("a")).unwrap(), &pattern(3_000_001, 1));
        let shared = new.reflink_required(true);
        errno(b.run(Op::copy(d.at("a"), memory.at("b"), shared)), libc::EOPNOTSUPP);
        assert!(!memory.at("b").exists());
    }
}

pub fn temporary_names_are_fresh<H: Harness>() {
    let d = Directory::new();
    let mut b = H::bench();
    let mut seen = std::collections::HashSet::new();
    for _ in 0..20 {
        let c = b.run(Op::create_temp_file(d.at("t-XXXXXX")));
        let Ok(Done::Temporary(made)) = c.result else { panic!("{c:?}") };
        let (name, file) = *made;
        assert!(seen.insert(name.clone()) && name.starts_with(d.path()));
        let file = b.watcher.attach(file).unwrap();
        b.write_at(file, "temporary", 0);
        assert_eq!(fs::read(&name).unwrap(), b"temporary");
        let mode = fs::metadata(&name).unwrap().permissions().mode() & 0o7777;
        assert_eq!(mode, 0o600);
        let name = path(b.run(Op::create_temp_dir(d.at("d-XXXXXX"))));
        assert!(seen.insert(name.clone()) && name.is_dir());
    }
    errno(b.run(Op::create_temp_file(d.at("without"))), libc::EINVAL);
    errno(b.run(Op::create_temp_dir(d.at("without"))), libc::EINVAL);
    errno(b.run(Op::create_temp_file(d.at("none/t-XXXXXX"))), libc::ENOENT);
}

pub fn attributes_are_set<H: Harness>() {
    let d = Directory::new();
    let mut b = H::bench();
    fs::write(d.at("a"), "").unwrap();
    symlink("a", d.at("link")).unwrap();
    let file = b.open_file(d.at("a"), NEW.read(true).write(true));
    let mode = || fs::metadata(d.at("a")).unwrap().permissions().mode() & 0o7777;
    expect_finished(b.run(Op::set_permissions(d.at("link"), 0o600)));
    assert_eq!(mode(), 0o600);
    expect_finished(b.run(Op::set_permissions(file, 0o4711)));
    assert_eq!(mode(), 0o4711);
    errno(b.run(Op::set_permissions(FileRef::symlink(d.at("link")), 0o600)), libc::EOPNOTSUPP);
    errno(b.run(Op::set_permissions(d.at("none"), 0o600)), libc::ENOENT);

    let at = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_000);
    let before = fs::metadata(d.at("a")).unwrap().accessed().unwrap();
    expect_finished(b.run(Op::set_times(d.at("a"), None, Some(at))));
    let known = fs::metadata(d.at("a")).unwrap();
    assert_eq!((known.modified().unwrap(), known.accessed().unwrap()), (at, before));
    expect_finished(b.run(Op::set_times(file, Some(at), None)));
    assert_eq!(fs::metadata(d.at("a")).unwrap().accessed().unwrap(), at);
    expect_finished(b.run(Op::set_times(FileRef::symlink(d.at("link")), None, Some(at))));
    assert_eq!(fs::symlink_metadata(d.at("link")).unwrap().modified().unwrap(), at);

    // To the owner that it has already, which every user may.
    let (user, group) = (known.uid(), known.gid());
    for file in [FileRef::from(file), FileRef::from(d.at("a")), FileRef::symlink(d.at("link"))] {
        expect_finished(b.run(Op::set_owner(file.clone(), Some(user), Some(group))));
        expect_finished(b.run(Op::set_owner(file, None, None)));
    }
    for access in [Access::EXISTS, Access::READ, Access::READ | Access::WRITE] {
        expect_finished(b.run(Op::access(d.at("a"), access)));
    }
    expect_finished(b.run(Op::set_permissions(file, 0o600)));
    // Not even root may execute a file without an execute bit.
    errno(b.run(Op::access(d.at("a"), Access::EXECUTE)), libc::EACCES);
    errno(b.run(Op::access(d.at("none"), Access::EXISTS)), libc::ENOENT);

    let c = b.run(Op::statfs(d.path()));
    let Ok(Done::StatFs(known)) = c.result else { panic!("{c:?}") };
    assert!(known.block_size > 0 && known.blocks > 0 && known.blocks_free <= known.blocks);
    errno(b.run(Op::statfs(d.at("none"))), libc::ENOENT);
    b.expect_all_ended();
}

pub fn hosts_have_addresses_and_names<H: Harness>() {
    let mut b = H::bench();
    let addresses = |c: Completion| match c.result {
        Ok(Done::Addresses(all)) => all,
        other => panic!("wanted addresses: {other:?}"),
    };
    let found = addresses(b.run(Op::lookup_host("localhost", 80)));
    assert!(!found.is_empty());
    assert!(found.iter().all(|at| at.ip().is_loopback() && at.port() == 80), "{found:?}");
    let number: SocketAddr = ([192, 0, 2, 7], 443).into();
    assert_eq!(addresses(b.run(Op::lookup_host("192.0.2.7", 443))), [number]);
    let found = addresses(b.run(Op::lookup_host("::1", 1)));
    assert_eq!(found, [SocketAddr::from((IpAddr::from([0u16, 0, 0, 0, 0, 0, 0, 1]), 1))]);
    for bad in ["", "with\0nul"] {
        let c = b.run(Op::lookup_host(bad, 1));
        assert!(matches!(c.error_kind(), Some(ErrorKind::Os(_))), "{bad:?}: {c:?}");
    }
    let c = b.run(Op::lookup_addr(([127, 0, 0, 1], 1).into()));
    let Ok(Done::HostName(name)) = c.result else { panic!("{c:?}") };
    assert!(!name.host.is_empty() && !name.service.is_empty());
    b.expect_all_ended();
}
