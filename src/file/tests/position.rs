//! Reads and writes at an offset.

#[cfg(unix)]
use super::super::position::send;
use super::*;
use crate::AlignedBuf;
use crate::memory::buf::Target;
use crate::sys::fs;
#[cfg(unix)]
use crate::sys::sendfile;
use proptest::prelude::*;
#[cfg(unix)]
use std::io::Read;
use std::io::{Seek, SeekFrom};
#[cfg(unix)]
use std::os::unix::net::UnixStream;
use std::process::Command;

/// A vector with so much room.
fn room(bytes: usize) -> Buf {
    Vec::<u8>::with_capacity(bytes).into()
}

/// A step of a random program on a file.
#[derive(Debug, Clone)]
enum Step {
    /// So many bytes at an offset, in parts of these sizes (one buffer where there are none).
    Write(u64, Vec<usize>),
    Read(u64, Vec<usize>),
    Truncate(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let parts = || prop::collection::vec(0usize..3000, 0..5);
    let step = prop_oneof![
        (0u64..20_000, parts()).prop_map(|(at, parts)| Step::Write(at, parts)),
        (0u64..25_000, parts()).prop_map(|(at, parts)| Step::Read(at, parts)),
        (0u64..25_000).prop_map(Step::Truncate),
    ];
    prop::collection::vec(step, 1..24)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// A file is a vector that is zero where nothing was written, and its position stays.
    #[test]
    fn a_file_is_a_vector(steps in steps()) {
        let dir = Dir::new();
        let mut file = scratch(&dir);
        file.seek(SeekFrom::Start(17)).unwrap();
        let mut model: Vec<u8> = Vec::new();
        for (value, step) in (1u8..).zip(steps) {
            match step {
                Step::Write(at, parts) => {
                    let list: Vec<Buf> = parts.iter().map(|&n| vec![value; n].into()).collect();
                    let buf = match parts[..] {
                        [one] => Buf::from(vec![value; one]),
                        _ => Buf::list(list),
                    };
                    let total = buf.len();
                    let end = write(&file, buf, at);
                    prop_assert!(matches!(end.result, Ok(Value::Unit)));
                    prop_assert_eq!((end.bytes, end.buf.len()), (total as u64, total));
                    if total > 0 {
                        let end = at as usize + total;
                        model.resize(model.len().max(end), 0);
                        model[at as usize..end].fill(value);
                    }
                }
                Step::Read(at, parts) => {
                    let buf = match parts[..] {
                        [one] => room(one),
                        _ => Buf::list(parts.iter().map(|&n| vec![0xee; n])),
                    };
                    let most = buf.capacity();
                    let end = read(&file, buf, at);
                    let from = model.len().min(at as usize);
                    let expected = &model[from..model.len().min(at as usize + most)];
                    prop_assert!(matches!(end.result, Ok(Value::Unit)));
                    prop_assert_eq!(end.bytes, expected.len() as u64);
                    prop_assert_eq!(end.buf.into_vec(), expected);
                }
                Step::Truncate(len) => {
                    works(on(&file, Job::SetLen { len }));
                    model.resize(len as usize, 0);
                }
            }
        }
        // Windows moves it.
        prop_assert!(cfg!(windows) || file.stream_position().unwrap() == 17);
        prop_assert_eq!(std::fs::read(dir.at("scratch")).unwrap(), model);
    }
}

#[test]
fn a_vec_is_filled_from_its_start_again_and_again_and_the_end_is_zero() {
    let dir = Dir::new();
    let file = File::open(dir.file("f", b"0123456789")).unwrap();
    let mut buf = Buf::from(vec![b'x'; 4]);
    for (offset, expected) in [(0, &b"0123"[..]), (8, b"89"), (4, b"4567"), (10, b""), (99, b"")] {
        let end = read(&file, buf, offset);
        assert!(end.result.is_ok());
        assert_eq!((&*end.buf, end.bytes), (expected, expected.len() as u64));
        assert_eq!(end.buf.capacity(), 4);
        buf = end.buf;
    }
    assert!(buf.is_eof());
}

/// libuv: fs_write_alotof_bufs_with_offset.
#[test]
fn more_parts_than_a_call_takes_are_split() {
    let dir = Dir::new();
    let file = scratch(&dir);
    let parts = 2 * fs::MOST_VECTORS + 500;
    let bytes = pattern(parts * 7);
    let list = Buf::list(bytes.chunks(7).map(<[u8]>::to_vec));
    let end = write(&file, list, 3);
    assert_eq!((end.bytes, end.buf.parts().len()), (bytes.len() as u64, parts));
    let list = Buf::list((0..parts).map(|i| room([5, 0, 17][i % 3])));
    let end = read(&file, list, 3);
    assert!(end.result.is_ok());
    assert_eq!(end.bytes, bytes.len() as u64);
    assert_eq!(end.buf.into_vec(), bytes);
}

/// libuv: fs_open_append. On Linux an offset is ignored then (pwrite(2), "BUGS").
#[test]
fn appending_ignores_the_offset_as_the_system_does() {
    let dir = Dir::new();
    let path = dir.file("f", b"0123");
    let file = open(&path, OpenOptions::new().append(true));
    assert_eq!(write(&file, "ab", 1).bytes, 2);
    let appends = ["linux", "android", "windows"].contains(&std::env::consts::OS);
    let expected: &[u8] = if appends { b"0123ab" } else { b"0ab3" };
    assert_eq!(std::fs::read(&path).unwrap(), expected);
}

#[test]
fn errors_give_the_buffer_back() {
    let dir = Dir::new();
    let path = dir.file("f", b"0123");
    let reader = File::open(&path).unwrap();
    let directory = open(&dir.0, OpenOptions::new().read(true));
    let writer = open(&path, OpenOptions::new().write(true));
    let failed = |end: JobEnd, errno: i32| {
        assert!(matches!(end.result, Err(e) if e == errno), "{:?}", end.result);
        assert_eq!(end.bytes, 0);
        end.buf
    };
    let buf = failed(write(&reader, "text", 0), libc::EBADF);
    assert_eq!(&*buf, b"text");
    let buf = failed(read(&writer, vec![1; 9], 0), libc::EBADF);
    assert_eq!((buf.len(), buf.capacity()), (0, 9));
    failed(read(&directory, vec![1; 9], 0), libc::EISDIR);
    #[cfg(unix)]
    failed(read(&std::io::pipe().unwrap().0, vec![1; 9], 0), libc::ESPIPE);
    failed(read(&reader, vec![1; 9], u64::MAX), libc::EINVAL);
    let list = Buf::list([vec![1; 9], vec![1; 9]]);
    assert_eq!(failed(read(&reader, list, 1 << 63), libc::EINVAL).parts().len(), 2);
    assert!(matches!(write(&NOWHERE, "x", 0).result, Err(libc::EBADF)));
}

#[test]
fn a_full_device_says_so() {
    match File::options().write(true).open("/dev/full") {
        Err(_) => skip(Needs::Luck, "/dev/full is not there"),
        Ok(full) => assert!(matches!(write(&full, "x", 0).result, Err(libc::ENOSPC))),
    }
}

/// A mounted file system of a few pages.
struct Small<'a>(&'a Path);

impl<'a> Small<'a> {
    fn mount(at: &'a Path) -> Option<Small<'a>> {
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=64k", "windlass"]).arg(at);
        let mounted = mount.stderr(std::process::Stdio::null()).status().ok()?.success();
        mounted.then_some(Small(at))
    }
}

impl Drop for Small<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0).status();
    }
}

#[test]
fn what_fitted_before_the_disk_was_full_is_counted() {
    let dir = Dir::new();
    let Some(small) = Small::mount(&dir.0) else {
        return skip(Needs::Root, "a small file system cannot be mounted");
    };
    let file = scratch(&dir);
    let bytes = pattern(200_000);
    let end = write(&file, bytes.clone(), 0);
    assert!(matches!(end.result, Err(libc::ENOSPC)), "{:?}", end.result);
    assert_eq!(end.buf.len(), bytes.len());
    let fitted = end.bytes as usize;
    assert!(fitted > 0 && fitted < 100_000);
    assert_eq!(std::fs::read(dir.at("scratch")).unwrap(), bytes[..fitted]);
    fails(on(&file, Job::Allocate { offset: 0, len: 1 << 20 }), libc::ENOSPC);
    // A copy that fails takes its target with it.
    let source = Dir::new();
    let from = source.file("source", &bytes);
    let copy = Job::Copy { from, to: dir.at("copy"), options: CopyOptions::new() };
    fails(copy, libc::ENOSPC);
    assert!(!dir.at("copy").exists());
    drop(file);
    drop(small);
}

#[test]
fn a_file_that_is_cut_while_it_is_read_ends_early() {
    let dir = Dir::new();
    let bytes = pattern(1 << 20);
    for round in 0..20 {
        let path = dir.file("f", &bytes);
        let file = File::options().read(true).write(true).open(path).unwrap();
        let cut = 1000 + round * 50_000;
        let end = std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let parts = Buf::list((0..4096).map(|_| room(256)));
                read(&file, parts, 0)
            });
            works(on(&file, Job::SetLen { len: cut }));
            reader.join().unwrap()
        });
        assert!(end.result.is_ok());
        assert!(end.bytes >= cut.min(end.bytes) && end.bytes <= 1 << 20);
        let got = end.buf.into_vec();
        assert_eq!(got.len() as u64, end.bytes);
        // Bytes behind the new end may read as zeroes while the kernel removes them.
        assert!(got.iter().zip(&bytes).all(|(a, b)| a == b || *a == 0));
        let sure = got.len().min(cut as usize);
        assert_eq!(got[..sure], bytes[..sure]);
    }
}

/// Tests direct I/O in `dir`, if its file system has it.
fn direct_in(dir: &Dir) {
    let path = dir.at("direct");
    let options = both().create_new(true).direct(true);
    let file = match run(Job::Open { path: path.clone(), options }) {
        Ok(Value::File(file)) => file.into_fd().unwrap(),
        Err(libc::EINVAL) => return skip(Needs::Direct, "no direct I/O on this file system"),
        other => panic!("{other:?}"),
    };
    let known = stat_open(&file);
    let align = known.direct.map_or(4096, |d| d.memory.max(d.offset)) as usize;
    let bytes = pattern(50_001);
    let mut buf = AlignedBuf::from_slice(&bytes, align);
    let size = buf.pad();
    let end = write(&file, buf, 0);
    assert_eq!(end.bytes, end.buf.len() as u64, "{:?}", end.result);
    works(on(&file, Job::SetLen { len: size as u64 }));
    assert_eq!(std::fs::read(&path).unwrap(), bytes);

    // The read gets the unaligned tail, into a buffer that is longer than the tail.
    let mut buf = end.buf.into_aligned().expect("it was one");
    buf.fill(0);
    let end = read(&file, buf, 0);
    assert!(end.result.is_ok(), "{:?}", end.result);
    assert_eq!(&*end.buf, bytes);
    let offset = 8192.max(align);
    let end = read(&file, AlignedBuf::with_capacity(1 << 17, align), offset as u64);
    assert!(end.result.is_ok(), "{:?}", end.result);
    assert_eq!(&*end.buf, &bytes[offset..]);
    let beyond = AlignedBuf::with_capacity(1, align);
    let end = end.buf.len().next_multiple_of(align) + offset;
    assert_eq!(read(&file, beyond, end as u64).bytes, 0);

    // Two buffers in one call, the second one across the end.
    let half = || Buf::from(AlignedBuf::with_capacity(32 << 10, align));
    let end = read(&file, Buf::list([half(), half()]), 0);
    assert_eq!(end.buf.into_vec(), bytes);

    // What is not aligned is refused whole where alignment is asked for at all.
    let end = write(&file, AlignedBuf::from_slice(&bytes[..4097], align), 0);
    match end.result {
        Err(libc::EINVAL) => assert_eq!(end.bytes, 0),
        result => assert!(result.is_ok(), "{result:?}"),
    }
}

#[test]
fn direct_reads_and_writes_have_an_unaligned_tail() {
    direct_in(&Dir::new());
}

#[test]
fn direct_reads_and_writes_on_a_file_system_in_memory() {
    let dir = Dir::new();
    let Some(_small) = Small::mount(&dir.0).filter(|_| {
        Command::new("mount")
            .args(["-o", "remount,size=1m"])
            .arg(&dir.0)
            .status()
            .is_ok_and(|s| s.success())
    }) else {
        return skip(Needs::Root, "a small file system cannot be mounted");
    };
    direct_in(&dir);
}

#[test]
fn what_is_cached_is_read_at_once() {
    let dir = Dir::new();
    let file = File::open(dir.file("f", b"0123456789")).unwrap();
    let mut memory = [0; 8];
    match fs::read_now(file.as_raw_fd(), Target::from_slice(&mut memory), 3) {
        7 => assert_eq!(&memory[..7], b"3456789"),
        no if no == -(libc::EAGAIN as isize) => {
            skip(Needs::Luck, "the page cache has lost the file")
        }
        no => assert_eq!(no, -(libc::EOPNOTSUPP as isize)),
    }
    assert!(!fs::how_open(file.as_raw_fd()).direct);
    #[cfg(unix)]
    {
        let (pipe, _end) = std::io::pipe().unwrap();
        assert!(fs::read_now(pipe.as_raw_fd(), Target::from_slice(&mut memory), 0) < 0);
    }
}

/// libuv: fs_async_sendfile.
#[cfg(unix)]
#[test]
fn a_file_goes_to_a_socket_from_an_offset_to_its_end() {
    let dir = Dir::new();
    let bytes = pattern(1 << 20);
    let mut file = File::open(dir.file("f", &bytes)).unwrap();
    file.seek(SeekFrom::Start(5)).unwrap();
    for (offset, len) in [(0, 1 << 20), (1000, 4000), (1 << 19, 1 << 30), (1 << 20, 1), (7, 0)] {
        let (to, mut from) = UnixStream::pair().unwrap();
        let reader = std::thread::spawn(move || {
            let mut got = Vec::new();
            from.read_to_end(&mut got).map(|_| got)
        });
        let (socket, fd) = (to.as_raw_fd(), file.as_raw_fd());
        let (sent, ended) = send(socket, fd, offset, len);
        drop(to);
        let expected = &bytes[offset as usize..bytes.len().min((offset + len) as usize)];
        assert_eq!((sent, ended), (expected.len() as u64, Ok(())));
        assert_eq!(reader.join().unwrap().unwrap(), expected);
    }
    assert_eq!(file.stream_position().unwrap(), 5);
}

#[cfg(unix)]
#[test]
fn a_full_socket_says_how_much_has_gone() {
    let dir = Dir::new();
    let bytes = pattern(4 << 20);
    let file = File::open(dir.file("f", &bytes)).unwrap();
    let (to, mut from) = UnixStream::pair().unwrap();
    to.set_nonblocking(true).unwrap();
    let (socket, fd) = (to.as_raw_fd(), file.as_raw_fd());
    let (sent, ended) = send(socket, fd, 0, 4 << 20);
    assert_eq!(ended, Err(libc::EAGAIN));
    drop(to);
    let mut got = Vec::new();
    from.read_to_end(&mut got).unwrap();
    assert_eq!(got.len() as u64, sent);
    assert_eq!(got, bytes[..got.len()]);
}

#[cfg(unix)]
#[test]
fn what_the_kernel_cannot_send_is_copied() {
    let dir = Dir::new();
    let file = File::open(dir.file("f", b"0123456789")).unwrap();
    let (to, mut from) = UnixStream::pair().unwrap();
    let mut memory = [0; 4];
    let (socket, fd) = (to.as_raw_fd(), file.as_raw_fd());
    for (offset, sent) in [(0, 4), (8, 2), (10, 0)] {
        assert_eq!(sendfile::send_copy(socket, fd, offset, &mut memory), sent);
    }
    // A pipe is no socket, and takes it as well.
    let (mut end, pipe) = std::io::pipe().unwrap();
    assert_eq!(sendfile::send_copy(pipe.as_raw_fd(), fd, 4, &mut memory), 4);
    drop((to, pipe));
    let mut got = Vec::new();
    from.read_to_end(&mut got).unwrap();
    end.read_to_end(&mut got).unwrap();
    assert_eq!(got, b"0123894567");
}

#[test]
fn files_are_made_durable_and_given_room() {
    let dir = Dir::new();
    let file = scratch(&dir);
    let fd = file.as_raw_fd();
    assert_eq!(write(&file, pattern(10_000), 0).bytes, 10_000);
    works(ThreadJob::Sync { fd });
    works(ThreadJob::DataSync { fd });
    works(on(&file, Job::SyncRange { offset: 4096, len: 4096 }));
    match run(on(&file, Job::Allocate { offset: 5000, len: 20_000 })) {
        Ok(_) => assert_eq!(file.metadata().unwrap().len(), 25_000),
        Err(libc::EOPNOTSUPP) => skip(Needs::Allocate, "this file system does not give files room"),
        other => panic!("{other:?}"),
    }
    works(on(&file, Job::SetLen { len: 3 }));
    assert_eq!(std::fs::read(dir.at("scratch")).unwrap(), pattern(3));
    fails(on(&file, Job::SetLen { len: u64::MAX }), libc::EINVAL);
    fails(ThreadJob::Sync { fd: NOWHERE }, libc::EBADF);
    fails(Job::SyncRange { offset: 0, len: 0 }, libc::EBADF);
}
