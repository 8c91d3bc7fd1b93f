//! Linux: the errnos that the pages of the operations name, where no other test meets them.

use std::fs;
use std::net::{Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixListener};

use windlass::fs::{Access, OpenOptions};
use windlass::{Address, Completion, Op, Ready};

use crate::common::files::*;
use crate::common::*;

#[track_caller]
fn errno(c: Completion, errno: i32) {
    expect_errno(c, &[errno]);
}

/// A stream socket that was never connected.
fn unconnected(family: i32) -> OwnedFd {
    // SAFETY: no memory is passed.
    let fd = unsafe { libc::socket(family, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
    assert!(fd >= 0);
    // SAFETY: a fresh descriptor, owned once.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

pub fn of_streams_and_listeners<H: Harness>() {
    let mut b = H::bench();
    let socket = b.watcher.attach(unconnected(libc::AF_INET)).unwrap();
    errno(b.run(Op::read(socket)), libc::ENOTCONN);
    errno(b.run(Op::write(socket, "x")), libc::EPIPE);
    errno(b.run(Op::shutdown(socket)), libc::ENOTCONN);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let duplicate = listener.try_clone().unwrap();
    let listener = b.watcher.attach(listener).unwrap();
    let accept = b.submit(Op::accept(listener));
    b.look();
    socket2::SockRef::from(&duplicate).shutdown(std::net::Shutdown::Both).unwrap();
    errno(b.end(accept), libc::EINVAL);
    b.expect_all_ended();
}

/// An eventfd and a timerfd are read by eight bytes.
pub fn of_counters<H: Harness>() {
    let mut b = H::bench();
    // SAFETY: no memory is passed.
    let raw = unsafe { libc::eventfd(1, libc::EFD_CLOEXEC) };
    // SAFETY: a fresh descriptor, owned once.
    let event = b.watcher.attach(unsafe { OwnedFd::from_raw_fd(raw) }).unwrap();
    errno(b.run(Op::read_into(event, room(7))), libc::EINVAL);
    assert_eq!(&*expect_read(b.run(Op::read_into(event, room(8)))), 1u64.to_ne_bytes());
    b.expect_all_ended();
}

pub fn of_connects<H: Harness>() {
    let d = system::Directory::new();
    let mut b = H::bench();
    let at = |path| Address::unix(path).unwrap();
    let server = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let internet = Address::from(server);
    errno(b.run(Op::connect(internet.clone())), libc::ECONNREFUSED);
    errno(b.run(Op::connect(Address::unspecified())), libc::EAFNOSUPPORT);
    errno(b.run(Op::connect(at(d.path().join("none")))), libc::ENOENT);
    fs::write(d.path().join("file"), "").unwrap();
    errno(b.run(Op::connect(at(d.path().join("file")))), libc::ECONNREFUSED);
    let file = OwnedFd::from(fs::File::open(d.path().join("file")).unwrap());
    errno(b.run(Op::connect_with(file, internet.clone())), libc::ENOTSOCK);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let other = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let again = Op::connect_with(OwnedFd::from(other), listener.local_addr().unwrap());
    errno(b.run(again), libc::EISCONN);
    let six = Address::from(SocketAddr::from((Ipv6Addr::LOCALHOST, 9)));
    let four = unconnected(libc::AF_INET);
    expect_errno(b.run(Op::connect_with(four, six)), &[libc::EAFNOSUPPORT, libc::EINVAL]);
    b.expect_all_ended();
}

pub fn of_datagrams<H: Harness>() {
    let d = system::Directory::new();
    let mut b = H::bench();
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let udp = b.watcher.attach(udp).unwrap();
    errno(b.run(Op::write(udp, "x")), libc::EDESTADDRREQ);
    errno(b.run(Op::send_to(udp, "x", Address::unspecified())), libc::EDESTADDRREQ);
    errno(b.run(Op::send_to(udp, "x", ([255, 255, 255, 255], 9))), libc::EACCES);
    let six = Address::from(SocketAddr::from((Ipv6Addr::LOCALHOST, 9)));
    errno(b.run(Op::send_to(udp, "x", six)), libc::EAFNOSUPPORT);
    errno(b.run(Op::send_to(udp, vec![0; 65_508], ([127, 0, 0, 1], 9))), libc::EMSGSIZE);
    let unix = b.watcher.attach(UnixDatagram::unbound().unwrap()).unwrap();
    let at = |name: &str| Address::unix(d.path().join(name)).unwrap();
    errno(b.run(Op::send_to(unix, "x", at("none"))), libc::ENOENT);
    drop(UnixDatagram::bind(d.path().join("gone")).unwrap());
    errno(b.run(Op::send_to(unix, "x", at("gone"))), libc::ECONNREFUSED);
    b.expect_all_ended();
}

pub fn of_addresses<H: Harness>() {
    #[track_caller]
    fn fails<T>(answer: Result<T, impl Into<std::io::Error>>, errno: i32) {
        let error = answer.err().map(Into::<std::io::Error>::into);
        assert_eq!(error.and_then(|error| error.raw_os_error()), Some(errno));
    }
    let d = system::Directory::new();
    let mut b = H::bench();
    let pipe = b.watcher.attach(OwnedFd::from(std::io::pipe().unwrap().0)).unwrap();
    fails(b.watcher.local_address(pipe), libc::ENOTSOCK);
    fails(b.watcher.peer_address(pipe), libc::ENOTSOCK);
    fails(b.watcher.set_nodelay(pipe, true), libc::ENOTSOCK);
    let (unix, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    let unix = b.watcher.attach(unix).unwrap();
    fails(b.watcher.set_nodelay(unix, true), libc::EOPNOTSUPP);
    let (listener, _) = b.listen();
    fails(b.watcher.peer_address(listener), libc::ENOTCONN);
    let at = |path: &str| Address::unix(d.path().join(path)).unwrap();
    fs::write(d.path().join("file"), "").unwrap();
    fails(b.watcher.listen(at("none/socket")), libc::ENOENT);
    fails(b.watcher.listen(at("file/socket")), libc::ENOTDIR);
    fails(b.watcher.listen(at("file")), libc::EADDRINUSE);
    fails(b.watcher.listen(Address::unspecified()), libc::EAFNOSUPPORT);
    b.expect_all_ended();
}

pub fn of_files<H: Harness>() {
    let d = Directory::new();
    let mut b = H::bench();
    fs::write(d.at("a"), "text").unwrap();
    let reads = b.open_file(d.at("a"), OpenOptions::new().read(true));
    let writes = b.open_file(d.at("a"), OpenOptions::new().write(true));
    errno(b.run(Op::allocate(writes, 0, 0)), libc::EINVAL);
    errno(b.run(Op::allocate(writes, 0, 1 << 63)), libc::EINVAL);
    errno(b.run(Op::allocate(reads, 0, 1)), libc::EBADF);
    errno(b.run(Op::set_len(writes, 1 << 63)), libc::EINVAL);
    errno(b.run(Op::set_len(reads, 0)), libc::EINVAL);
    errno(b.run(Op::sync_range(writes, 1 << 63, 1)), libc::EINVAL);
    expect_errno(
        b.run(Op::write_at(writes, "far", i64::MAX as u64 / 4 - 8)),
        &[libc::EFBIG, libc::EINVAL],
    );
    let special = b.watcher.attach(fs::File::open("/proc/self/maps").unwrap()).unwrap();
    errno(b.run(Op::sync_all(special)), libc::EINVAL);
    errno(b.run(Op::allocate(special, 0, 1)), libc::EBADF);
    assert_eq!(b.refuse(Op::poll(reads, Ready::READABLE)).0, windlass::Refusal::Unsupported);
    b.expect_all_ended();
}

pub fn of_paths<H: Harness>() {
    let d = Directory::new();
    let mut b = H::bench();
    fs::write(d.at("a"), "text").unwrap();
    fs::create_dir_all(d.at("dir/inside")).unwrap();
    fs::create_dir(d.at("other")).unwrap();
    errno(b.run(Op::metadata("")), libc::ENOENT);
    errno(b.run(Op::metadata(&"x".repeat(256))), libc::ENAMETOOLONG);
    expect_errno(b.run(Op::rename(d.at("other"), d.at("dir"))), &[libc::ENOTEMPTY, libc::EEXIST]);
    errno(b.run(Op::hard_link(d.at("dir"), d.at("b"))), libc::EPERM);
    errno(b.run(Op::remove_dir(d.at("dir/."))), libc::EINVAL);
    errno(b.run(Op::rename("/proc/self/comm", d.at("b"))), libc::EXDEV);
    errno(b.run(Op::hard_link("/proc/self/comm", d.at("b"))), libc::EXDEV);
    errno(b.run(Op::create_dir("/proc/windlass", 0o700)), libc::ENOENT);
    let own = std::env::current_exe().unwrap();
    errno(b.run(Op::open(&own, OpenOptions::new().write(true))), libc::ETXTBSY);
    let _socket = UnixListener::bind(d.at("socket")).unwrap();
    errno(b.run(Op::access(d.at("a"), Access::EXECUTE)), libc::EACCES);
    errno(b.run(Op::open(d.at("socket"), OpenOptions::new().read(true))), libc::ENXIO);
    let direct = OpenOptions::new().read(true).direct(true);
    errno(b.run(Op::open("/proc/self/maps", direct)), libc::EINVAL);
    errno(b.run(Op::lookup_host("a\0b", 1)), libc::EINVAL);
    errno(b.run(Op::lookup_host("", 1)), libc::ENOENT);
    let copied = b.run(Op::copy(d.at("a"), d.at("a"), windlass::fs::CopyOptions::new()));
    assert!(matches!(copied.result, Ok(windlass::Done::Copied(0))), "{copied:?}");
    b.expect_all_ended();
}
