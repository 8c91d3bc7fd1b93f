//! Descriptors and settings that cannot work: refused with a reason, never a crash.

use std::net::TcpListener;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use windlass::driver::OpCode;
use windlass::{DriverKind, Op, Ready, Refusal, Watcher};

use crate::common::*;

/// What is outside a setting's range becomes the nearest in it.
pub fn settings_without_measure_are_bounded<H: Harness>() {
    let all = Watcher::builder()
        .remote_queue(usize::MAX)
        .id_reserve(usize::MAX)
        .max_jobs(usize::MAX)
        .events_per_wait(usize::MAX)
        .source_budget(usize::MAX)
        .turn_budget(usize::MAX)
        .write_limit(usize::MAX)
        .max_sources(u32::MAX)
        .max_operations(u32::MAX);
    let none = Watcher::builder()
        .remote_queue(0)
        .id_reserve(0)
        .max_jobs(0)
        .events_per_wait(0)
        .source_budget(0)
        .turn_budget(0);
    for builder in [all, none] {
        let mut b = H::bench_with(builder);
        let (here, there) = b.pair();
        let before = b.watcher.counters().turns;
        for _ in 0..100 {
            b.cross(here, there, b"there and back");
        }
        let turns = b.watcher.counters().turns - before;
        assert!(turns < 2000, "{turns} turns for a hundred messages");
        let submitter = b.submitter();
        submitter.wake(1).unwrap();
        assert_eq!(b.next().token, 1);
    }
}

/// Regular files and directories are refused at their first operation, each operation.
pub fn files_and_directories_are_unsupported<H: Harness>() {
    let mut b = H::bench();
    let paths = [std::env::current_exe().unwrap(), std::env::temp_dir()];
    for path in paths {
        let file = std::fs::File::open(&path).unwrap();
        let source = b.watcher.attach(file).expect("attach asks nothing");
        for _ in 0..2 {
            for op in [
                Op::read(source),
                Op::read_into(source, vec![0; 4]),
                Op::read_exact(source, vec![0; 4], 4),
                Op::write(source, "x"),
                Op::accept(source),
                Op::shutdown(source),
                Op::recv_from(source),
                Op::poll(source, Ready::READABLE),
            ] {
                let code = op.code();
                assert_eq!(b.refuse(op).0, Refusal::Unsupported, "{code:?} of {path:?}");
            }
        }
        let handle = b.watcher.detach(source).expect("it can be had back");
        assert!(handle.into_fd().is_ok());
    }
    b.expect_all_ended();
}

/// A descriptor that other code has closed behind the watcher's back.
pub fn a_closed_descriptor_is_an_error<H: Harness>() {
    let name = "bad_input::a_closed_descriptor_is_an_error";
    child::in_child(&format!("{}::{name}", H::STAMP), || {
        let mut b = H::bench();
        let (here, _there) = system::tcp_pair();
        let raw = here.as_raw_fd();
        let source = b.watcher.attach(here).unwrap();
        // SAFETY: the number is the source's, whose abort will find it closed; no other thread of
        // this process opens descriptors meanwhile.
        unsafe { libc::close(raw) };
        let (reason, op) = b.refuse(Op::write(source, "back"));
        assert_eq!((reason, &**op.buf()), (Refusal::Os(libc::EBADF), &b"back"[..]));
        // Closed after its first operation.
        let (here, _there2) = system::tcp_pair();
        let raw = here.as_raw_fd();
        let source = b.watcher.attach(here).unwrap();
        b.write(source, "fine");
        // SAFETY: as above.
        unsafe { libc::close(raw) };
        let write = b.submit(Op::write(source, "back"));
        assert_eq!(&*expect_errno(b.end(write), &[libc::EBADF]), b"back");
        let read = b.submit(Op::read(source));
        expect_errno(b.end(read), &[libc::EBADF]);
    });
}

/// A handle of another kernel.
pub fn a_foreign_handle_is_refused_and_comes_back<H: Harness>() {
    let mut b = H::bench();
    let sim = windlass::sim::Sim::new(1);
    let (foreign, _other) = sim.pair();
    let refused = b.watcher.attach(foreign).unwrap_err();
    assert_eq!(refused.reason, Refusal::NoDescriptor);
    let op = Op::connect_with(refused.into_inner(), H::nowhere());
    assert_eq!(b.refuse(op).0, Refusal::NoDescriptor);
    // And the other way round.
    let mut simulated = Watcher::simulated(&sim);
    let (here, _there) = system::tcp_pair();
    let refused = simulated.attach(here).unwrap_err();
    assert_eq!(refused.reason, Refusal::NoDescriptor);
    assert!(refused.into_inner().into_fd().is_ok());
}

pub fn addresses_that_cannot_be_had_are_errors<H: Harness>() {
    let mut b = H::bench();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = taken.local_addr().unwrap();
    assert_eq!(b.watcher.listen(at).unwrap_err().kind(), std::io::ErrorKind::AddrInUse);
    let foreign = b.watcher.listen(([192, 0, 2, 1], 80)).unwrap_err();
    assert_eq!(foreign.kind(), std::io::ErrorKind::AddrNotAvailable);
    assert!(b.watcher.listen(windlass::Address::unspecified()).is_err());
    let nowhere = b.submit(Op::connect(windlass::Address::unspecified()));
    assert!(b.end(nowhere).result.is_err());
    assert!(windlass::Address::unix("").is_err());
    assert!(windlass::Address::unix("x".repeat(200)).is_err());
    assert_eq!(b.watcher.counters().sources, 0);
    b.expect_all_ended();
}

/// A descriptor that polls but does not register: /dev/null is read and written at once.
pub fn devices_that_never_block<H: Harness>() {
    let mut b = H::bench();
    let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null").unwrap();
    let source = b.watcher.attach(null).unwrap();
    assert!(b.read(source).is_empty());
    b.write(source, "gone");
    let poll = b.submit(Op::poll(source, Ready::READABLE | Ready::WRITABLE));
    assert!(b.end(poll).result.is_ok());
    let zero = std::fs::File::open("/dev/zero").unwrap();
    let source = b.watcher.attach(zero).unwrap();
    assert_eq!(b.read_exact(source, 100_000), vec![0; 100_000]);
}

/// C10: the choice of the program, and of the environment.
pub fn an_explicit_choice_says_so<H: Harness>() {
    let kind = H::NAME.parse().expect("a driver");
    let watcher = Watcher::builder().driver(kind).build().unwrap();
    let explain = watcher.explain();
    assert_eq!(explain.driver, H::NAME);
    assert!(explain.reason.contains("program"), "{}", explain.reason);
    assert!("".parse::<DriverKind>() == Ok(DriverKind::Auto));
    // What this system does not have is an error, not another driver.
    let has = |kind| match Watcher::builder().driver(kind).build() {
        Ok(watcher) => watcher.explain().driver == format!("{kind:?}").to_lowercase(),
        Err(error) => {
            assert_eq!(error.kind(), std::io::ErrorKind::Unsupported, "{error}");
            false
        }
    };
    assert!(has(DriverKind::Epoll) != has(DriverKind::Kqueue));
    let unknown = "no such driver".parse::<DriverKind>().unwrap_err();
    assert!(unknown.to_string().contains("no such driver"));
}

/// An environment that names no driver is an error, not a fallback.
pub fn an_unknown_choice_of_the_environment_is_an_error<H: Harness>() {
    let name = "bad_input::an_unknown_choice_of_the_environment_is_an_error";
    child::in_child(&format!("{}::{name}", H::STAMP), || {
        // SAFETY: this process has one thread that looks at its environment.
        unsafe { std::env::set_var("WINDLASS_DRIVER", "abacus") };
        let error = Watcher::new().unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
        assert!(error.to_string().contains("abacus"), "{error}");
        // The program's own choice does not look.
        let builder = Watcher::builder().driver(H::NAME.parse().expect("a driver"));
        assert!(builder.build().is_ok());
        // SAFETY: as above.
        unsafe { std::env::set_var("WINDLASS_DRIVER", H::NAME) };
        let watcher = Watcher::new().unwrap();
        assert!(watcher.explain().reason.contains("WINDLASS_DRIVER"));
    });
}

/// gaio's TestWriteOnClosedConn with an owned descriptor: a socket that is shut for good.
pub fn a_socket_shut_both_ways_is_at_its_end<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = system::tcp_pair();
    here.shutdown(std::net::Shutdown::Both).unwrap();
    // SAFETY: the number comes from right here and is owned once.
    let fd = unsafe { OwnedFd::from_raw_fd(here.into_raw_fd()) };
    let source = b.watcher.attach(fd).unwrap();
    let write = b.submit(Op::write(source, "x"));
    expect_errno(b.end(write), &[libc::EPIPE]);
    assert!(b.read(source).is_empty());
    drop(there);
}

/// The parts of an operation can be changed before they are put together again. What then does not
/// fit is refused and comes back, or ends like every operation; no buffer is lost.
pub fn parts_that_do_not_fit_are_refused_or_end<H: Harness>() {
    let mut b = H::bench();
    for code in [OpCode::Timer, OpCode::Connect, OpCode::Job, OpCode::Message] {
        let mut parts = Op::nop().into_parts();
        parts.code = code;
        assert_eq!(b.refuse(Op::from_parts(parts)).0, Refusal::Unsupported);
    }
    let bytes: Arc<[u8]> = Arc::from(*b"bytes");
    for code in OpCode::ALL {
        for datagrams in [false, true] {
            let mut b = H::bench();
            let (here, _there) = b.pair();
            let (near, _far) = std::os::unix::net::UnixDatagram::pair().unwrap();
            let near = b.watcher.attach(near).unwrap();
            let source = if datagrams { near } else { here };
            let file = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
            let file = b.watcher.attach(file).unwrap();
            let mut open = Vec::new();
            for op in [
                Op::nop(),
                Op::timer(Duration::from_millis(1)).timeout(Duration::from_millis(1)),
                Op::write(source, bytes.clone()),
                Op::read_into(source, vec![0; 8]),
                Op::read_at(source, vec![0; 8], 4096),
                Op::send_to(source, bytes.clone(), ([127, 0, 0, 1], 9)),
                Op::send_file(source, file, 0, 1),
                Op::metadata("Cargo.toml"),
                Op::run(|| 1),
            ] {
                let mut parts = op.into_parts();
                (parts.code, parts.source) = (code, source);
                // What cannot be accepted comes back whole.
                match b.try_submit(Op::from_parts(parts)) {
                    Ok(ticket) => open.push(ticket),
                    Err((_, op)) => assert_eq!(op.code(), code),
                }
            }
            b.watcher.close();
            for ticket in open {
                b.end(ticket);
            }
            drop(b);
            assert_eq!(Arc::strong_count(&bytes), 1, "a buffer of {code:?} is lost");
        }
    }
}
