//! A simulation refuses unsupported operations with a reason of their own.

use super::*;
use crate::words::error::Refusal;

#[test]
fn a_socket_is_no_file_and_there_are_no_directories() {
    let sim = Sim::new(1);
    let mut watcher = watcher(&sim);
    let (a, _b) = sim.pair();
    let source = watcher.attach(a).unwrap();
    for op in [
        Op::read_at(source, vec![0; 8], 0),
        Op::write_at(source, "bytes", 0),
        Op::sync_all(source),
        Op::sync_data(source),
        Op::set_len(source, 0),
        Op::send_file(source, source, 0, 10),
    ] {
        let code = op.code();
        let refused = watcher.submit(op).unwrap_err();
        assert_eq!(refused.reason, Refusal::Unsupported, "{code:?}");
    }
    for op in
        [Op::create_dir("a", 0o755), Op::read_dir("a"), Op::symlink("a", "b"), Op::statfs("a")]
    {
        watcher.submit(op).unwrap();
        let unsupported = Some(ErrorKind::Os(libc::EOPNOTSUPP));
        assert_eq!(wait_one(&mut watcher).error_kind(), unsupported);
    }
    assert_eq!(watcher.fd(source).unwrap_err(), Refusal::NoDescriptor);
}

/// What the pages of these operations say of the simulation.
#[test]
fn descriptors_and_sockets_of_the_system_have_no_place_here() {
    let sim = Sim::new(1);
    let mut watcher = watcher(&sim);
    let (pair, _other) = sim.pair();
    let stream = watcher.attach(pair).unwrap();
    let datagrams = sim.datagram(([10, 0, 0, 1], 9)).unwrap();
    let datagrams = watcher.attach(datagrams).unwrap();
    for op in [Op::send_descriptors(datagrams, "x", Vec::new()), Op::recv_descriptors(datagrams)] {
        assert_eq!(watcher.submit(op).unwrap_err().reason, Refusal::Unsupported);
    }
    let unsupported = Some(ErrorKind::Os(libc::EOPNOTSUPP));
    for op in [Op::send_descriptors(stream, "x", Vec::new()), Op::recv_descriptors(stream)] {
        watcher.submit(op).unwrap();
        assert_eq!(wait_one(&mut watcher).error_kind(), unsupported);
    }
    if !cfg!(miri) {
        // Miri has no sockets.
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let handle = Handle::from(crate::sys::fd::OwnedFd::from(socket));
        watcher.submit(Op::connect_with(handle, ([10, 0, 0, 1], 80))).unwrap();
        assert_eq!(wait_one(&mut watcher).error_kind(), unsupported);
    }
    let (simulated, _other) = sim.pair();
    let op = Op::connect_with(simulated, ([10, 0, 0, 1], 80));
    assert_eq!(watcher.submit(op).unwrap_err().reason, Refusal::NoDescriptor);
    // A datagram to an internet address that no socket has is lost.
    watcher.submit(Op::send_to(datagrams, "lost", ([10, 0, 0, 2], 9))).unwrap();
    assert!(matches!(wait_one(&mut watcher).result, Ok(Done::Written { bytes: 4, .. })));
}
