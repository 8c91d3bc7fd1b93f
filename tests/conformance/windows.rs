//! Differences on Windows: refusals, descriptors, files by their names.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, SystemTime};

use windlass::fd::{AsFd, OwnedFd};
use windlass::fs::{Access, CopyOptions, FileKind, FileRef, Metadata, OpenOptions};
use windlass::net::ListenOptions;
use windlass::{Address, Completion, Done, DriverKind, Op, Ready, Refusal, Watcher};

use crate::common::files::*;
use crate::common::*;

/// Nothing that Windows does not have ends in a panic, or is done otherwise.
pub fn what_there_is_not_is_refused<H: Harness>() {
    let mut b = H::bench();
    let (here, _there) = b.pair();
    let passed = vec![OwnedFd::from(UdpSocket::bind("127.0.0.1:0").unwrap())];
    assert_eq!(b.refuse(Op::send_descriptors(here, "x", passed)).0, Refusal::Unsupported);
    assert_eq!(b.refuse(Op::recv_descriptors(here)).0, Refusal::Unsupported);
    let unix = Address::unix("C:/socket").unwrap();
    let connect = b.submit(Op::connect(unix.clone()));
    expect_errno(b.end(connect), &[libc::EAFNOSUPPORT]);
    assert!(b.watcher.listen(unix).is_err());
    let shared = ListenOptions::default().reuse_port(true);
    let error = b.watcher.listen_with(H::address(), shared).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::Unsupported);
    assert_eq!(b.watcher.pollable().unwrap_err(), Refusal::Unsupported);
    // SIGINT and SIGTERM; this process.
    assert_eq!(b.watcher.signals(&[2, 15]), Err(Refusal::Unsupported));
    assert_eq!(b.watcher.child(std::process::id()), Err(Refusal::Unsupported));
    for op in [Op::signal(here), Op::child_exit(here)] {
        assert_eq!(b.refuse(op).0, Refusal::Unsupported);
    }
    // A pipe's handle is no file and no socket.
    let (reader, _writer) = std::io::pipe().unwrap();
    let pipe = b.watcher.attach(std::os::windows::io::OwnedHandle::from(reader)).unwrap();
    for op in [Op::read(pipe), Op::write(pipe, "x"), Op::poll(pipe, Ready::READABLE)] {
        assert_eq!(b.refuse(op).0, Refusal::Unsupported);
    }
    assert!(b.watcher.abort(pipe));
    let direct = OpenOptions::new().read(true).direct(true);
    let open = b.submit(Op::open(std::env::current_exe().unwrap(), direct));
    expect_errno(b.end(open), &[libc::EINVAL]);
    for kind in [DriverKind::Epoll, DriverKind::Uring, DriverKind::Kqueue] {
        let error = Watcher::builder().driver(kind).build().err().unwrap();
        assert_eq!(error.kind(), std::io::ErrorKind::Unsupported);
    }
    b.expect_all_ended();
}

/// Whether a socket blocks cannot be asked, and must not be changed where it is shared.
pub fn shared_sockets_are_refused<H: Harness>() {
    let mut b = H::bench();
    let (here, _there) = system::tcp_pair();
    let source = b.watcher.attach_dup(&here).unwrap();
    assert_eq!(b.refuse(Op::read(source)).0, Refusal::Unsupported);
    b.expect_all_ended();
}

pub fn descriptors_go_in_and_out<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = system::tcp_pair();
    let (mine, theirs) = (here.local_addr().unwrap(), there.local_addr().unwrap());
    let source = b.watcher.attach(here).unwrap();
    let lent = b.watcher.fd(source).unwrap();
    assert!(lent.as_handle().is_none());
    assert_eq!(socket2::SockRef::from(&lent).peer_addr().unwrap().as_socket(), Some(theirs));
    let second = lent.as_fd().try_clone_to_owned().unwrap();
    let read = b.submit(Op::read(source));
    assert!(b.watcher.cancel(read));
    b.end(read);
    let fd = b.watcher.detach(source).unwrap().into_fd().unwrap();
    let fd = fs::File::try_from(fd).expect_err("it is a socket");
    let mut back = TcpStream::try_from(fd).unwrap();
    assert_eq!(back.local_addr().unwrap(), mine);
    // It blocks again.
    std::io::Write::write_all(&mut &there, b"text").unwrap();
    std::io::Read::read_exact(&mut back, &mut [0; 4]).unwrap();
    assert_eq!(TcpStream::try_from(second).unwrap().local_addr().unwrap(), mine);
    let file = fs::File::open(std::env::current_exe().unwrap()).unwrap();
    let len = file.metadata().unwrap().len();
    let file = b.watcher.attach(file).unwrap();
    assert!(b.watcher.fd(file).unwrap().as_handle().is_some());
    let fd = b.watcher.detach(file).unwrap().into_fd().unwrap();
    let fd = TcpListener::try_from(fd).expect_err("it is a file");
    assert_eq!(fs::File::try_from(fd).unwrap().metadata().unwrap().len(), len);
    b.expect_all_ended();
}

pub fn the_only_driver_is_chosen<H: Harness>() {
    let watcher = Watcher::new().unwrap();
    let explain = watcher.explain();
    assert_eq!(explain.driver, H::NAME);
    assert!(explain.rows.iter().any(|row| row.mechanism.contains("WSAPoll")), "{explain}");
}

#[track_caller]
fn errno(c: Completion, errno: i32) {
    expect_errno(c, &[errno]);
}

#[track_caller]
fn stat(c: Completion) -> Metadata {
    match c.result {
        Ok(Done::Metadata(known)) => *known,
        other => panic!("wanted a stat: {other:?}"),
    }
}

pub fn names_come_and_go_here<H: Harness>() {
    let d = Directory::new();
    let mut b = H::bench();
    let new = OpenOptions::new();
    errno(b.run(Op::open(d.at("none"), new.read(true))), libc::ENOENT);
    errno(b.run(Op::open(d.at("none"), new)), libc::EINVAL);
    errno(b.run(Op::open("with\0nul", new.read(true))), libc::EINVAL);
    fs::write(d.at("a"), "one").unwrap();
    fs::write(d.at("b"), "two").unwrap();
    errno(b.run(Op::open(d.at("a"), new.write(true).create_new(true))), libc::EEXIST);
    expect_finished(b.run(Op::rename(d.at("a"), d.at("b"))));
    assert_eq!(fs::read(d.at("b")).unwrap(), b"one");
    errno(b.run(Op::rename(d.at("a"), d.at("b"))), libc::ENOENT);
    expect_finished(b.run(Op::create_dir(d.at("dir"), 0o700)));
    errno(b.run(Op::create_dir(d.at("dir"), 0o700)), libc::EEXIST);
    expect_finished(b.run(Op::hard_link(d.at("b"), d.at("dir/c"))));
    let known = stat(b.run(Op::metadata(d.at("b"))));
    assert_eq!((known.kind(), known.size, known.links), (FileKind::File, 3, 2));
    let same = stat(b.run(Op::metadata(d.at("dir/c"))));
    assert_eq!((known.device, known.inode), (same.device, same.inode));
    errno(b.run(Op::remove_dir(d.at("dir"))), libc::ENOTEMPTY);
    let c = b.run(Op::read_dir(d.at("dir")));
    let Ok(Done::Entries(entries)) = c.result else { panic!("{c:?}") };
    assert_eq!((entries.len(), entries[0].kind), (1, FileKind::File));
    expect_finished(b.run(Op::remove_file(d.at("dir/c"))));
    expect_finished(b.run(Op::remove_dir(d.at("dir"))));
    errno(b.run(Op::remove_dir(d.at("dir"))), libc::ENOENT);
    assert_eq!(stat(b.run(Op::metadata(d.path()))).kind(), FileKind::Directory);
    errno(b.run(Op::metadata(d.at("none"))), libc::ENOENT);
    let c = b.run(Op::canonicalize(d.at("b")));
    let Ok(Done::Path(path)) = c.result else { panic!("{c:?}") };
    assert_eq!(path, fs::canonicalize(d.at("b")).unwrap());
    b.expect_all_ended();
}

pub fn attributes_are_what_windows_has<H: Harness>() {
    let d = Directory::new();
    let mut b = H::bench();
    fs::write(d.at("a"), "x").unwrap();
    let file = b.open_file(d.at("a"), OpenOptions::new().read(true).write(true));
    let at = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_000);
    expect_finished(b.run(Op::set_times(d.at("a"), None, Some(at))));
    assert_eq!(stat(b.run(Op::metadata(file))).modified, at);
    expect_finished(b.run(Op::set_times(file, Some(at), None)));
    assert_eq!(stat(b.run(Op::metadata(d.at("a")))).accessed, at);
    // Of a mode, only the write bits are honoured.
    expect_finished(b.run(Op::access(d.at("a"), Access::READ | Access::WRITE)));
    expect_finished(b.run(Op::set_permissions(d.at("a"), 0o400)));
    assert_eq!(stat(b.run(Op::metadata(d.at("a")))).permissions(), 0o444);
    errno(b.run(Op::access(d.at("a"), Access::WRITE)), libc::EACCES);
    expect_finished(b.run(Op::set_permissions(file, 0o600)));
    assert_eq!(stat(b.run(Op::metadata(file))).permissions(), 0o666);
    errno(b.run(Op::set_permissions(d.at("none"), 0o600)), libc::ENOENT);
    for file in [FileRef::from(file), FileRef::from(d.at("a"))] {
        errno(b.run(Op::set_owner(file, Some(1), None)), libc::EOPNOTSUPP);
    }
    errno(b.run(Op::statfs(d.path())), libc::EOPNOTSUPP);
    b.expect_all_ended();
}

pub fn copies_and_temporary_names<H: Harness>() {
    let d = Directory::new();
    let mut b = H::bench();
    let new = CopyOptions::new();
    for len in [0, 1, 3_000_001] {
        fs::write(d.at("a"), pattern(len, 1)).unwrap();
        let c = b.run(Op::copy(d.at("a"), d.at("b"), new));
        assert!(matches!(c.result, Ok(Done::Copied(count)) if count == len as u64), "{c:?}");
        expect_same(&fs::read(d.at("b")).unwrap(), &pattern(len, 1));
    }
    errno(b.run(Op::copy(d.at("a"), d.at("b"), new.exclusive(true))), libc::EEXIST);
    errno(b.run(Op::copy(d.path(), d.at("x"), new)), libc::EISDIR);
    let shared = new.reflink_required(true);
    errno(b.run(Op::copy(d.at("a"), d.at("x"), shared)), libc::EOPNOTSUPP);
    assert!(!d.at("x").exists());
    // Onto itself, by another name.
    fs::hard_link(d.at("a"), d.at("same")).unwrap();
    assert!(b.run(Op::copy(d.at("a"), d.at("same"), new)).result.is_ok());
    expect_same(&fs::read(d.at("a")).unwrap(), &pattern(3_000_001, 1));

    let mut seen = std::collections::HashSet::new();
    for _ in 0..20 {
        let c = b.run(Op::create_temp_file(d.at("t-XXXXXX")));
        let Ok(Done::Temporary(made)) = c.result else { panic!("{c:?}") };
        let (name, file) = *made;
        assert!(seen.insert(name.clone()) && name.starts_with(d.path()));
        let file = b.watcher.attach(file).unwrap();
        b.write_at(file, "temporary", 0);
        assert_eq!(fs::read(&name).unwrap(), b"temporary");
    }
    errno(b.run(Op::create_temp_file(d.at("without"))), libc::EINVAL);
    errno(b.run(Op::create_temp_dir(d.at("none/XXXXXX"))), libc::ENOENT);
    b.expect_all_ended();
}

pub fn names_of_hosts<H: Harness>() {
    let mut b = H::bench();
    let c = b.run(Op::lookup_host("192.0.2.7", 443));
    let Ok(Done::Addresses(found)) = c.result else { panic!("{c:?}") };
    assert_eq!(found, [SocketAddr::from(([192, 0, 2, 7], 443))]);
    assert!(b.run(Op::lookup_host("", 1)).result.is_err());
    let c = b.run(Op::lookup_addr(([127, 0, 0, 1], 1).into()));
    let Ok(Done::HostName(name)) = c.result else { panic!("{c:?}") };
    assert!(!name.host.is_empty() && !name.service.is_empty());
    b.expect_all_ended();
}
