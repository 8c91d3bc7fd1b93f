//! Operations by path, compared with std::fs.

use super::*;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

#[track_caller]
fn path(job: Job) -> PathBuf {
    match run(job) {
        Ok(Value::Path(path)) => path,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_file_is_opened_as_asked() {
    let dir = Dir::new();
    let new = dir.at("new");
    let make = both().create_new(true).mode(0o640);
    let file = File::from(open(&new, make));
    assert_eq!(std::fs::metadata(&new).unwrap().permissions().mode() & 0o777 & !0o640, 0);
    fails(Job::Open { path: new.clone(), options: make }, libc::EEXIST);
    assert_eq!(write(&file, "0123", 0).bytes, 4);
    let again = open(&new, OpenOptions::new().write(true).create(true));
    assert_eq!(stat_open(&again).size, 4);
    open(&new, OpenOptions::new().write(true).truncate(true).sync(true));
    assert_eq!(std::fs::metadata(&new).unwrap().len(), 0);
    fails(Job::Open { path: new, options: OpenOptions::new() }, libc::EINVAL);
    // Closed on exec: 0o2000000 is O_CLOEXEC there.
    if let Ok(info) = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd())) {
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).unwrap().trim();
        assert_ne!(i32::from_str_radix(flags, 8).unwrap() & libc::O_CLOEXEC, 0);
    }
}

/// Every field, against std.
fn is_as_std_has_it(known: &Metadata, std: &std::fs::Metadata) {
    let std_has = Metadata::from(std);
    // std has no alignment, and not every libc's has a time of birth.
    let created = std_has.created.and(known.created);
    assert_eq!(created, std_has.created);
    assert_eq!(*known, Metadata { direct: known.direct, created: known.created, ..std_has });
    assert_eq!(known.kind(), crate::sys::stat::kind_of(std.file_type()));
    assert_eq!(known.permissions(), std.permissions().mode() & 0o7777);
    assert_eq!(Ok(known.modified), std.modified().map_err(|_| ()));
    assert_eq!((known.size, known.device, known.inode), (std.len(), std.dev(), std.ino()));
}

#[test]
fn a_stat_is_what_std_knows() {
    let dir = Dir::new();
    let file = dir.file("f", &pattern(70_000));
    let link = dir.at("link");
    works(Job::Symlink { target: "f".into(), path: link.clone() });
    let _socket = UnixListener::bind(dir.at("s")).unwrap();
    for path in [&file, &link, &dir.0, &dir.at("s"), Path::new("/dev/null")] {
        let followed = std::fs::metadata(path).unwrap();
        is_as_std_has_it(&stat(FileRef::Path(path.to_path_buf())), &followed);
        let itself = std::fs::symlink_metadata(path).unwrap();
        is_as_std_has_it(&stat(FileRef::Symlink(path.to_path_buf())), &itself);
    }
    let open = File::open(&file).unwrap();
    let known = stat_open(&open);
    is_as_std_has_it(&known, &open.metadata().unwrap());
    if let Some(direct) = known.direct {
        assert!(direct.memory.is_power_of_two() && direct.offset.is_power_of_two());
    }
    assert_eq!(stat(FileRef::Path(dir.0.clone())).direct, None);
}

#[test]
fn modes_owners_and_times_are_set_by_path_link_and_descriptor() {
    let dir = Dir::new();
    let file = dir.file("f", b"x");
    let link = dir.at("link");
    works(Job::Symlink { target: file.clone(), path: link.clone() });
    let open = File::open(&file).unwrap();
    let by_path = || FileRef::Path(link.clone());
    let by_descriptor = || FileRef::Source(Source::NONE);

    for (at, mode) in [(by_path(), 0o604), (by_descriptor(), 0o4711)] {
        works(on(&open, Job::SetPermissions { file: at, mode }));
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o7777, mode);
    }
    fails(
        Job::SetPermissions { file: FileRef::Symlink(link.clone()), mode: 0o600 },
        libc::EOPNOTSUPP,
    );

    let before = std::fs::metadata(&file).unwrap();
    for at in [by_path(), by_descriptor(), FileRef::Symlink(link.clone())] {
        works(on(&open, Job::SetOwner { file: at, user: Some(before.uid()), group: None }));
    }
    let root = before.uid() == 0;
    if root {
        works(Job::SetOwner {
            file: FileRef::Symlink(link.clone()),
            user: Some(77),
            group: Some(88),
        });
        let known = std::fs::symlink_metadata(&link).unwrap();
        assert_eq!((known.uid(), known.gid()), (77, 88));
        works(Job::SetOwner { file: by_path(), user: None, group: Some(99) });
        let known = std::fs::metadata(&file).unwrap();
        assert_eq!((known.uid(), known.gid()), (0, 99));
    }

    let second = Duration::from_secs(1_000_000_000);
    let times = [
        (UNIX_EPOCH + second, UNIX_EPOCH + second + Duration::from_nanos(123_456_789)),
        (UNIX_EPOCH - second / 4, UNIX_EPOCH - Duration::from_nanos(1)),
    ];
    for (accessed, modified) in times {
        for at in [by_path(), by_descriptor(), FileRef::Symlink(link.clone())] {
            let itself = matches!(at, FileRef::Symlink(_));
            let (accessed, modified) = (Some(accessed), Some(modified));
            works(on(&open, Job::SetTimes { file: at, accessed, modified }));
            let known = if itself { link.symlink_metadata() } else { file.metadata() }.unwrap();
            assert_eq!((known.accessed().ok(), known.modified().ok()), (accessed, modified));
        }
    }
    let now = SystemTime::now();
    works(on(&open, Job::SetTimes { file: by_descriptor(), accessed: None, modified: Some(now) }));
    let known = stat(by_path());
    assert_eq!((known.accessed, known.modified), (times[1].0, now));
}

#[test]
fn names_come_and_go_as_with_std() {
    let dir = Dir::new();
    let file = dir.file("f", b"text");
    let (link, hard, moved) = (dir.at("link"), dir.at("hard"), dir.at("moved"));
    works(Job::Symlink { target: "./f".into(), path: link.clone() });
    assert_eq!(path(Job::ReadLink { path: link.clone() }), Path::new("./f"));
    assert_eq!(path(Job::Canonicalize { path: dir.at("./link") }), file);
    works(Job::HardLink { from: file.clone(), to: hard.clone() });
    assert_eq!(stat(FileRef::Path(hard.clone())).links, 2);
    works(Job::Rename { from: hard, to: moved.clone() });
    assert_eq!(std::fs::read(&moved).unwrap(), b"text");
    works(Job::RemoveFile { path: file });
    assert!(moved.exists() && !link.exists() && link.is_symlink());

    let inner = dir.at("inner");
    works(Job::CreateDir { path: inner.clone(), mode: 0o700 });
    assert_eq!(stat(FileRef::Path(inner.clone())).permissions(), 0o700);
    dir.file("inner/x", b"");
    fails(Job::RemoveDir { path: inner.clone() }, libc::ENOTEMPTY);
    works(Job::RemoveFile { path: inner.join("x") });
    works(Job::RemoveDir { path: inner.clone() });
    assert!(!inner.exists());
}

#[test]
fn a_directory_is_read_whole() {
    let dir = Dir::new();
    for i in 0..300 {
        dir.file(&format!("file {i}"), b"");
    }
    works(Job::CreateDir { path: dir.at("d"), mode: 0o777 });
    works(Job::Symlink { target: "nowhere".into(), path: dir.at("l") });
    let _socket = UnixListener::bind(dir.at("s")).unwrap();
    let Ok(Value::Entries(mut entries)) = run(Job::ReadDir { path: dir.0.clone() }) else {
        panic!("no entries");
    };
    entries.sort();
    let mut expected: Vec<DirEntry> = std::fs::read_dir(&dir.0)
        .unwrap()
        .map(Result::unwrap)
        .map(|e| DirEntry {
            name: e.file_name(),
            kind: FileKind::of_mode(e.metadata().unwrap().mode()),
        })
        .collect();
    expected.sort();
    assert_eq!(entries, expected);
    assert_eq!(entries.len(), 303);
}

#[test]
fn temporary_names_are_new() {
    let dir = Dir::new();
    let template = || dir.at("t-XXXXXX");
    let (a, b) = (
        path(Job::CreateTempDir { template: template() }),
        path(Job::CreateTempDir { template: template() }),
    );
    assert_ne!(a, b);
    assert_eq!(stat(FileRef::Path(a)).mode & 0o170_777, 0o040_700);
    let Ok(Value::Temp(name, fd)) = run(Job::CreateTempFile { template: template() }) else {
        panic!("no file");
    };
    let file = File::from(fd.into_fd().unwrap());
    assert_eq!(stat(FileRef::Path(name.clone())).inode, file.metadata().unwrap().ino());
    assert_eq!(stat(FileRef::Path(name.clone())).mode & 0o170_777, 0o100_600);
    assert_eq!(name.parent(), Some(&*dir.0));
    assert!(!name.ends_with("t-XXXXXX"));
    let rest = || Job::CreateTempFile { template: dir.at("no") };
    fails(rest(), libc::EINVAL);
    fails(Job::CreateTempDir { template: dir.at("no") }, libc::EINVAL);
}

fn copy(from: &Path, to: &Path, options: CopyOptions) -> JobEnd {
    ThreadJob::from(Job::Copy { from: from.to_owned(), to: to.to_owned(), options }).run()
}

#[test]
fn copies_have_bytes_and_permissions() {
    let dir = Dir::new();
    let to = dir.at("to");
    for size in [0, 1, 4096, 300_001] {
        let from = dir.file("from", &pattern(size));
        let mode = 0o400 | size as u32 & 0o333;
        std::fs::set_permissions(&from, std::fs::Permissions::from_mode(mode)).unwrap();
        // The copy replaces the target of the round before, which is writable again.
        let end = copy(&from, &to, CopyOptions::new());
        assert!(end.result.is_ok(), "{:?}", end.result);
        assert_eq!(end.bytes, size as u64);
        assert_eq!(std::fs::read(&to).unwrap(), pattern(size));
        assert_eq!(std::fs::metadata(&to).unwrap().mode() & 0o777, mode);
        let writable = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(&from, writable.clone()).unwrap();
        std::fs::set_permissions(&to, writable).unwrap();
    }
    let end = copy(&dir.at("from"), &to, CopyOptions::new().exclusive(true));
    assert!(matches!(end.result, Err(libc::EEXIST)));
    assert_eq!(std::fs::metadata(&to).unwrap().len(), 300_001);

    // A copy of a file onto itself, under another name, changes nothing.
    std::fs::hard_link(&to, dir.at("same")).unwrap();
    let end = copy(&to, &dir.at("same"), CopyOptions::new());
    assert!(end.result.is_ok());
    assert_eq!(std::fs::read(&to).unwrap(), pattern(300_001));

    // The copy shares its blocks, or fails with `EOPNOTSUPP` and leaves no file.
    let shared = dir.at("shared");
    match copy(&to, &shared, CopyOptions::new().reflink_required(true)).result {
        Ok(_) => assert_eq!(std::fs::read(&shared).unwrap(), pattern(300_001)),
        Err(errno) => {
            assert_eq!(errno, libc::EOPNOTSUPP);
            assert!(!shared.exists());
        }
    }
    fails(
        Job::Copy { from: dir.0.clone(), to: dir.at("x"), options: CopyOptions::new() },
        libc::EISDIR,
    );
    fails(
        Job::Copy { from: "/dev/null".into(), to: dir.at("x"), options: CopyOptions::new() },
        libc::EINVAL,
    );
    assert!(!dir.at("x").exists());
}

#[test]
fn files_that_hide_their_size_and_holes_are_copied() {
    let dir = Dir::new();
    let to = dir.at("to");
    if Path::new("/proc/self/limits").exists() {
        let end = copy(Path::new("/proc/self/limits"), &to, CopyOptions::new());
        assert!(end.result.is_ok(), "{:?}", end.result);
        assert_eq!(std::fs::read(&to).unwrap(), std::fs::read("/proc/self/limits").unwrap());
        std::fs::remove_file(&to).unwrap();
    }
    let sparse = scratch(&dir);
    sparse.write_all_at(b"end", 1 << 20).unwrap();
    assert_eq!(copy(&dir.at("scratch"), &to, CopyOptions::new()).bytes, (1 << 20) + 3);
    assert_eq!(std::fs::read(&to).unwrap(), std::fs::read(dir.at("scratch")).unwrap());
}

/// A copy filled the holes of the original: that of an image of 1 GiB with 3 bytes took 1 GiB.
#[test]
#[cfg(target_os = "linux")]
#[cfg_attr(miri, ignore = "Miri does not seek for holes")]
fn a_copy_has_the_holes_of_the_original() {
    let dir = Dir::new();
    let (from, to) = (dir.at("scratch"), dir.at("to"));
    let blocks = |path: &Path| std::fs::metadata(path).unwrap().blocks();
    let sparse = scratch(&dir);
    // Holes at the start, between fifty parts, and at the end.
    let part = pattern(4096);
    for i in 0..50u64 {
        sparse.write_all_at(&part, (1 << 28) + i * (64 << 10)).unwrap();
    }
    sparse.set_len(1 << 30).unwrap();
    sparse.sync_all().unwrap();
    if blocks(&from) > 1 << 20 {
        return skip(Needs::Luck, "a file system without holes");
    }
    // The target has bytes where the holes are.
    std::fs::write(&to, pattern(100_000)).unwrap();
    let end = copy(&from, &to, CopyOptions::new());
    assert!(end.result.is_ok(), "{:?}", end.result);
    assert_eq!((end.bytes, std::fs::metadata(&to).unwrap().len()), (1 << 30, 1 << 30));
    let copied = File::open(&to).unwrap();
    let at = |offset, len| {
        let mut bytes = vec![1; len];
        copied.read_exact_at(&mut bytes, offset).unwrap();
        bytes
    };
    for i in [0, 1, 30, 49u64] {
        let mut wanted = part.clone();
        wanted.resize(8192, 0);
        assert_eq!(at((1 << 28) + i * (64 << 10), 8192), wanted, "part {i}");
    }
    assert_eq!(at(0, 100_000), vec![0; 100_000]);
    assert_eq!(at((1 << 30) - 1000, 1000), vec![0; 1000]);
    assert!(blocks(&to) <= blocks(&from) + 1024, "{} of {}", blocks(&to), blocks(&from));
}

/// The copy that is used if the kernel does not copy by itself.
#[test]
fn copies_through_memory_are_the_same() {
    let dir = Dir::new();
    let bytes = pattern(10_000);
    let from = File::open(dir.file("from", &bytes)).unwrap();
    let to = scratch(&dir);
    let mut memory = vec![0; 4096];
    let (done, ended) = crate::file::position::repeat(u64::MAX, |done| {
        copy::piece(from.as_raw_fd(), to.as_raw_fd(), done, &mut memory)
    });
    assert_eq!((done, ended), (10_000, Ok(())));
    assert_eq!(std::fs::read(dir.at("scratch")).unwrap(), bytes);
}

#[test]
fn a_file_system_has_its_numbers() {
    let dir = Dir::new();
    let Ok(Value::StatFs(known)) = run(Job::StatFs { path: dir.0.clone() }) else {
        panic!("no file system");
    };
    assert!(known.block_size.is_power_of_two());
    assert!(known.blocks >= known.blocks_free && known.blocks_free >= known.blocks_available);
    assert!(known.files >= known.files_free);
}

#[test]
fn access_is_asked_for_the_real_user() {
    let dir = Dir::new();
    let path = dir.file("f", b"");
    let ask = |access| run(Job::Access { path: path.clone(), access });
    assert!(ask(Access::EXISTS).is_ok());
    assert!(ask(Access::READ | Access::WRITE).is_ok());
    // Not even root may execute a file without an execute bit.
    assert!(matches!(ask(Access::READ | Access::EXECUTE), Err(libc::EACCES)));
    works(Job::SetPermissions { file: FileRef::Path(path.clone()), mode: 0o700 });
    assert!(ask(Access::EXECUTE).is_ok());
}

#[test]
fn errors_keep_their_numbers() {
    let dir = Dir::new();
    let file = dir.file("f", b"");
    let (none, below) = (|| dir.at("none"), || file.join("below"));
    let reading = OpenOptions::new().read(true);
    let now = Some(SystemTime::now());
    let times = |path| Job::SetTimes { file: FileRef::Path(path), accessed: None, modified: now };
    let table = [
        (Job::Open { path: none(), options: reading }, libc::ENOENT),
        (Job::Open { path: below(), options: reading }, libc::ENOTDIR),
        (Job::Open { path: dir.0.clone(), options: both() }, libc::EISDIR),
        (Job::Open { path: "a\0b".into(), options: reading }, libc::EINVAL),
        (Job::Metadata(FileRef::Path(none())), libc::ENOENT),
        (Job::Metadata(FileRef::Symlink(below())), libc::ENOTDIR),
        (Job::Metadata(Source::NONE.into()), libc::EBADF),
        (Job::Rename { from: none(), to: dir.at("x") }, libc::ENOENT),
        (Job::RemoveFile { path: none() }, libc::ENOENT),
        (Job::RemoveFile { path: "a\0b".into() }, libc::EINVAL),
        (Job::HardLink { from: file.clone(), to: file.clone() }, libc::EEXIST),
        (Job::Symlink { target: none(), path: file.clone() }, libc::EEXIST),
        (Job::ReadLink { path: file.clone() }, libc::EINVAL),
        (Job::Canonicalize { path: none() }, libc::ENOENT),
        (Job::CreateDir { path: dir.0.clone(), mode: 0o777 }, libc::EEXIST),
        (Job::RemoveDir { path: file.clone() }, libc::ENOTDIR),
        (Job::ReadDir { path: file.clone() }, libc::ENOTDIR),
        (Job::ReadDir { path: none() }, libc::ENOENT),
        (Job::CreateTempDir { template: dir.at("none/XXXXXX") }, libc::ENOENT),
        (Job::StatFs { path: none() }, libc::ENOENT),
        (Job::Access { path: none(), access: Access::EXISTS }, libc::ENOENT),
        (Job::SetPermissions { file: FileRef::Path(none()), mode: 0 }, libc::ENOENT),
        (Job::SetOwner { file: FileRef::Symlink(none()), user: None, group: None }, libc::ENOENT),
        (Job::Copy { from: none(), to: dir.at("x"), options: CopyOptions::new() }, libc::ENOENT),
        (times(none()), libc::ENOENT),
    ];
    for (row, (job, errno)) in table.into_iter().enumerate() {
        let result = run(job);
        assert!(matches!(result, Err(e) if e == errno), "row {row}: {result:?}, not {errno}");
    }
}

#[test]
fn the_system_says_how_a_file_is_open() {
    let (mut options, path) = (std::fs::OpenOptions::new(), "/dev/null");
    let file = options.append(true).open(path).expect("a file");
    let facts = facts::Facts::of(file.as_raw_fd());
    assert!(facts.is_known() && facts.appends());
    let file = File::open(path).expect("a file");
    let facts = facts::Facts::of(file.as_raw_fd());
    assert!(facts.is_known() && !facts.appends());
}
