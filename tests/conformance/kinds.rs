//! FIFOs, directories, sockets and devices in place of a file, and the open of a FIFO.

use std::ffi::CString;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use windlass::fs::{CopyOptions, OpenOptions};
use windlass::{Done, Op, Watcher};

use crate::common::files::*;
use crate::common::*;

const READ: OpenOptions = OpenOptions::new().read(true);
const WRITE: OpenOptions = OpenOptions::new().write(true);

fn make_fifo(path: &Path) {
    let name = CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: a string that ends in NUL.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
}

/// A copy never waits for the other end of a FIFO: many such copies block no thread.
pub fn only_regular_files_are_copied<H: Harness>() {
    let d = Directory::new();
    let mut b = H::bench_with(Watcher::builder().threads(2));
    make_fifo(&d.at("fifo"));
    fs::create_dir(d.at("dir")).unwrap();
    fs::write(d.at("file"), "bytes").unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(d.at("socket")).unwrap();
    let new = CopyOptions::new();
    for (name, errno) in [("fifo", libc::EINVAL), ("dir", libc::EISDIR), ("socket", libc::EINVAL)] {
        // More than there are threads.
        let out: Vec<_> =
            (0..4).map(|_| b.submit(Op::copy(d.at(name), d.at("new"), new))).collect();
        let into: Vec<_> =
            (0..4).map(|_| b.submit(Op::copy(d.at("file"), d.at(name), new))).collect();
        for copy in out.into_iter().chain(into) {
            expect_errno(b.end(copy), &[errno]);
        }
        assert!(!d.at("new").exists(), "a copy of {name}");
    }
    for device in ["/dev/null", "/dev/zero"] {
        expect_errno(b.run(Op::copy(device, d.at("new"), new)), &[libc::EINVAL]);
        expect_errno(b.run(Op::copy(d.at("file"), device, new)), &[libc::EINVAL]);
    }
    // A FIFO with both ends open: the copy reads and writes nothing.
    let mut ends = fs::File::options().read(true).write(true).open(d.at("fifo")).unwrap();
    ends.write_all(b"kept").unwrap();
    expect_errno(b.run(Op::copy(d.at("fifo"), d.at("new"), new)), &[libc::EINVAL]);
    expect_errno(b.run(Op::copy(d.at("file"), d.at("fifo"), new)), &[libc::EINVAL]);
    let mut kept = [0; 4];
    ends.read_exact(&mut kept).unwrap();
    assert_eq!(&kept, b"kept");
    drop(ends);
    let mut reader = fs::File::options();
    let mut end = reader.read(true).custom_flags(libc::O_NONBLOCK).open(d.at("fifo")).unwrap();
    assert_eq!(end.read(&mut [0; 4]).unwrap(), 0, "nothing is in it, and no copy has it open");
    // The threads are there.
    let c = b.run(Op::copy(d.at("file"), d.at("new"), new));
    assert!(matches!(c.result, Ok(Done::Copied(5))), "{c:?}");
    b.expect_all_ended();
}

/// The open of a FIFO waits for its other end, as open(2) does; with `O_NONBLOCK` it does not.
pub fn a_fifo_is_opened_as_its_flags_say<H: Harness>() {
    let d = Directory::new();
    let mut b = H::bench_with(Watcher::builder().threads(2));
    make_fifo(&d.at("fifo"));
    let now = libc::O_NONBLOCK;
    let c = b.run(Op::open(d.at("fifo"), WRITE.custom_flags(now)));
    expect_errno(c, &[libc::ENXIO]);
    let reads = b.open_file(d.at("fifo"), READ.custom_flags(now));
    let writes = b.open_file(d.at("fifo"), WRITE.custom_flags(now));
    b.cross(writes, reads, b"through it");
    for end in [reads, writes] {
        assert!(b.watcher.abort(end));
    }
    let waits = b.submit(Op::open(d.at("fifo"), READ));
    // A thread is there for others meanwhile.
    assert!(b.run(Op::metadata(d.at("fifo"))).result.is_ok());
    assert!(b.is_open(waits));
    let other = fs::File::options().write(true).open(d.at("fifo")).unwrap();
    let end = expect_opened(b.end(waits));
    let reads = b.watcher.attach(end).unwrap();
    (&other).write_all(b"met").unwrap();
    assert_eq!(b.read(reads), b"met");
    b.expect_all_ended();
}

/// Reading, writing, truncating or sending a directory fails.
pub fn a_directory_is_no_file<H: Harness>() {
    let d = Directory::new();
    let mut b = H::bench();
    let (here, there) = b.pair();
    for options in [WRITE, READ.write(true), WRITE.create(true), WRITE.truncate(true)] {
        expect_errno(b.run(Op::open(d.path(), options)), &[libc::EISDIR]);
    }
    let dir = b.open_file(d.path(), READ);
    for _ in 0..2 {
        expect_errno(b.run(Op::read_at(dir, room(9), 0)), &[libc::EISDIR]);
        expect_errno(b.run(Op::write_at(dir, "lost", 0)), &[libc::EBADF]);
        expect_errno(b.run(Op::set_len(dir, 0)), &[libc::EINVAL, libc::EBADF]);
        expect_errno(b.run(Op::send_file(here, dir, 0, 9)), &[libc::EISDIR, libc::EINVAL]);
    }
    b.expect_alive(here, there);
    expect_finished(b.run(Op::sync_all(dir)));
    expect_closed(b.run(Op::close(dir)));
    b.expect_all_ended();
}
