//! What memory costs: no allocation for an operation in steady state, few bytes for a source, and
//! nothing that stays behind.
//!
//! An allocator of this binary counts, for each thread by itself. The tests run one after the
//! other, since descriptors belong to the process.
#![allow(missing_docs, unreachable_pub)] // a test binary has no users
#![allow(unsafe_code)] // limits of the process need it

use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use alloc::{allocations, live_bytes};
use skip::{Needs, skip};
use windlass::driver::Driver;
use windlass::sim::Faults;
use windlass::{Buf, Completions, Done, DriverKind, ErrorKind, Handle, Op, Ready, Source, Watcher};

#[path = "common/alloc.rs"]
mod alloc;
#[path = "memory/lists.rs"]
mod lists;
#[path = "memory/pool.rs"]
mod pool;
#[path = "common/skip.rs"]
mod skip;
mod worlds;

use worlds::{Network, Poll, Real, Ring, Virtual, World, descriptors};

/// Runs the tests one by one, and without backtraces of held buffers (`trace-buffers`), which
/// allocate.
fn alone() -> MutexGuard<'static, ()> {
    let alone = worlds::alone();
    // SAFETY: this process accesses its environment through std only, which locks it.
    unsafe { std::env::set_var("RUST_LIB_BACKTRACE", "0") };
    alone
}

/// Rounds until everything has the memory that it needs, and rounds that must need no more.
const WARM: u32 = 2_000;
const ROUNDS: u32 = 3_000;
/// A wait that takes longer than this hangs.
const BOUND: Duration = Duration::from_secs(30);
const HOUR: Duration = Duration::from_secs(3600);

/// Runs `round` until it is warm, then `ROUNDS` times, and counts.
fn expect_none(what: &str, mut round: impl FnMut(u32)) {
    (0..WARM).for_each(&mut round);
    let before = allocations();
    (WARM..WARM + ROUNDS).for_each(&mut round);
    let count = allocations() - before;
    assert_eq!(count, 0, "{what}: allocations in {ROUNDS} rounds");
}

const CALM: Network = Network { seed: 1, faults: Faults::none(), buffer: 64 << 10 };

fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let a = TcpStream::connect(listener.local_addr().expect("bound")).expect("a connection");
    let (b, _) = listener.accept().expect("the same connection");
    (a, b)
}

const SERVER: u64 = 1;
const CLIENT: u64 = 2;

/// An echo over some connections: every round, each client sends and gets a message back.
struct Echo<D: Driver> {
    watcher: Watcher<D>,
    clients: Vec<(Source, Vec<u8>)>,
    done: Completions,
    timeout: Option<Duration>,
    /// Own buffers everywhere; leases on the server's side otherwise.
    owned: bool,
}

impl<D: Driver> Echo<D> {
    fn new(watcher: Watcher<D>, timeout: Option<Duration>, owned: bool) -> Echo<D> {
        Echo { watcher, clients: Vec::new(), done: Completions::new(), timeout, owned }
    }

    fn connect(&mut self, ends: (Handle, Handle)) {
        let [client, server] =
            <[Handle; 2]>::from(ends).map(|end| self.watcher.attach(end).expect("room"));
        let i = self.clients.len();
        self.clients.push((client, vec![i as u8; 1 + 700 * i]));
        self.serve(server, Vec::with_capacity(16 << 10));
    }

    fn due(&self, op: Op) -> Op {
        match self.timeout {
            Some(timeout) => op.timeout(timeout),
            None => op,
        }
    }

    fn serve(&mut self, server: Source, room: Vec<u8>) {
        let op = match self.owned {
            true => Op::read_into(server, room),
            false => Op::read(server),
        };
        let op = self.due(op).token(SERVER);
        self.watcher.submit(op).expect("room");
    }

    fn round(&mut self) {
        for i in 0..self.clients.len() {
            let message = std::mem::take(&mut self.clients[i].1);
            let op = self.due(Op::write(self.clients[i].0, message));
            self.watcher.submit(op.token(CLIENT + i as u64)).expect("room");
        }
        let mut back = 0;
        while back < self.clients.len() {
            let count = self.watcher.wait_timeout(&mut self.done, BOUND).expect("a wait");
            assert!(
                count > 0,
                "the echoes of a round: {back} are back; {:?}",
                self.watcher.counters()
            );
            let mut done = std::mem::take(&mut self.done);
            for c in done.drain(..) {
                match c.result.expect("nothing fails") {
                    Done::Read(data) if c.token == SERVER => {
                        let op = self.due(Op::write(c.source, data));
                        self.watcher.submit(op.token(SERVER)).expect("room");
                    }
                    Done::Written { buf, .. } if c.token == SERVER => {
                        let room = if self.owned { buf.into_vec() } else { Vec::new() };
                        self.serve(c.source, room);
                    }
                    Done::Written { buf, bytes } => {
                        let op = Op::read_exact(c.source, buf.into_vec(), bytes as usize);
                        let op = self.due(op).token(c.token);
                        self.watcher.submit(op).expect("room");
                    }
                    Done::Read(data) => {
                        let i = (c.token - CLIENT) as usize;
                        assert!(data.iter().all(|&byte| byte == i as u8));
                        self.clients[i].1 = data.into_vec();
                        back += 1;
                    }
                    other => panic!("{other:?}"),
                }
            }
            self.done = done;
        }
    }
}

/// The echo in all its forms.
fn echo<W: World>(pairs: impl Fn(&W) -> Vec<(Handle, Handle)>) {
    let world = W::open(&CALM);
    for (timeout, owned) in [(false, false), (true, false), (false, true), (true, true)] {
        let watcher = world.watcher(Watcher::builder());
        let mut echo = Echo::new(watcher, timeout.then_some(HOUR), owned);
        pairs(&world).into_iter().for_each(|ends| echo.connect(ends));
        let what = format!("{} timeout {timeout} owned {owned}", W::NAME);
        expect_none(&what, |_| echo.round());
    }
}

#[test]
fn an_echo_over_tcp_allocates_nothing() {
    let _alone = alone();
    let pair = || {
        let (a, b) = tcp_pair();
        // A ring cuts a message at the end of a buffer, and two writes would wait for each other.
        a.set_nodelay(true).expect("an option");
        b.set_nodelay(true).expect("an option");
        (Handle::from(a), Handle::from(b))
    };
    echo::<Real>(|_| (0..3).map(|_| pair()).collect());
    echo::<Ring>(|_| (0..3).map(|_| pair()).collect());
}

#[test]
fn an_echo_over_unix_sockets_allocates_nothing() {
    let _alone = alone();
    echo::<Real>(|_| {
        let pair = || UnixStream::pair().expect("two sockets");
        (0..3).map(|_| pair()).map(|(a, b)| (Handle::from(a), Handle::from(b))).collect()
    });
}

#[test]
fn an_echo_in_a_simulation_allocates_nothing() {
    let _alone = alone();
    echo::<Virtual>(|world| (0..3).map(|_| world.pair()).collect());
}

#[test]
fn datagrams_allocate_nothing() {
    let _alone = alone();
    let mut watcher = Watcher::builder().driver(DriverKind::Epoll).build().expect("epoll");
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let at = socket.local_addr().expect("bound");
    let client = UdpSocket::bind("127.0.0.1:0").expect("a port");
    client.set_read_timeout(Some(BOUND)).expect("a timeout");
    let server = watcher.attach(socket).expect("room");
    let mut done = Completions::new();
    let mut own = Some(vec![0; 2000]);
    for leases in [true, false] {
        expect_none("datagrams", |i| {
            let op = match own.take().filter(|_| !leases) {
                Some(room) => Op::recv_from_into(server, room),
                None => Op::recv_from(server),
            };
            let op = if i % 2 == 0 { op.timeout(BOUND) } else { op };
            watcher.submit(op).expect("room");
            let message = [i as u8; 100];
            client.send_to(&message, at).expect("sent");
            let mut answered = false;
            while !answered {
                assert!(watcher.wait_timeout(&mut done, BOUND).expect("a wait") > 0);
                for c in done.drain(..) {
                    match c.result.expect("nothing fails") {
                        Done::Received { data, from, .. } => {
                            let op = Op::send_to(server, data, from);
                            let op = if i % 3 == 0 { op.timeout(BOUND) } else { op };
                            watcher.submit(op).expect("room");
                        }
                        Done::Written { buf, .. } => {
                            own = (!leases).then(|| buf.into_vec());
                            answered = true;
                        }
                        other => panic!("{other:?}"),
                    }
                }
            }
            let mut answer = [0; 200];
            let (len, _) = client.recv_from(&mut answer).expect("an answer");
            assert_eq!(answer[..len], message);
        });
        own = Some(vec![0; 2000]);
    }
}

/// Timers, nops, polls, drains, cancels, wakes from elsewhere, submissions from elsewhere.
#[test]
fn what_moves_no_bytes_allocates_nothing() {
    let _alone = alone();
    let mut watcher = Watcher::builder().driver(DriverKind::Epoll).build().expect("epoll");
    let (a, b) = UnixStream::pair().expect("two sockets");
    let [a, b] = [a, b].map(|end| watcher.attach(end).expect("room"));
    let submitter = watcher.submitter();
    let mut done = Completions::new();
    expect_none("calls", |i| {
        let ends = [
            watcher.submit(Op::read(a)).expect("room"),
            watcher.submit(Op::read(a).timeout(HOUR)).expect("room"),
            watcher.submit(Op::read(b).multishot()).expect("room"),
            watcher.submit(Op::poll(a, Ready::READABLE)).expect("room"),
            watcher.submit(Op::timer(HOUR)).expect("room"),
        ];
        watcher.submit(Op::timer(Duration::ZERO)).expect("room");
        watcher.submit(Op::poll(a, Ready::WRITABLE)).expect("room");
        watcher.submit(Op::wait_drained(a, 0)).expect("room");
        watcher.submit(Op::nop()).expect("room");
        submitter.wake(u64::from(i)).expect("room");
        submitter.submit(Op::nop()).expect("room");
        submitter.submit(Op::timer(Duration::ZERO)).expect("room");
        for end in ends {
            assert!(watcher.cancel(end));
        }
        let mut count = 0;
        while count < 12 {
            assert!(watcher.wait_timeout(&mut done, BOUND).expect("a wait") > 0);
            count += done.drain(..).count();
        }
    });
    assert_eq!(watcher.counters().in_flight, 0);
}

#[test]
fn connections_come_and_go_without_allocations() {
    let _alone = alone();
    let mut watcher = Watcher::builder().driver(DriverKind::Epoll).build().expect("epoll");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = listener.local_addr().expect("bound");
    let listener = watcher.attach(listener).expect("room");
    watcher.submit(Op::accept(listener).multishot()).expect("room");
    let mut done = Completions::new();
    let mut round = || {
        let client = TcpStream::connect(at).expect("a connection");
        let mut over = false;
        let mut client = Some(client);
        while !over {
            assert!(watcher.wait_timeout(&mut done, BOUND).expect("a wait") > 0);
            for c in done.drain(..) {
                match c.result.expect("nothing fails") {
                    Done::Accepted(socket) => {
                        let source = watcher.attach(socket).expect("room");
                        watcher.submit(Op::read(source)).expect("room");
                        client = None;
                    }
                    Done::Read(data) => {
                        assert!(data.is_eof());
                        over = watcher.abort(c.source);
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
        assert!(client.is_none());
    };
    (0..200).for_each(|_| round());
    let before = allocations();
    (0..1_000).for_each(|_| round());
    assert_eq!(allocations() - before, 0, "allocations in 1,000 connections");
}

/// Lets this process have as many descriptors as it may.
#[allow(clippy::unnecessary_cast)] // the systems' types differ
fn raise_limit() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the struct is on the stack.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) }, 0);
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: as above.
    unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) };
    limit.rlim_cur as u64
}

/// What each of 10,000 sources costs in user space: idle, and with this read, for which nothing
/// comes, and this idle timeout; at most so many bytes.
fn sources_are_small(
    kind: DriverKind,
    read: fn(Source) -> Op,
    idle: Option<Duration>,
    most: isize,
) {
    let _alone = alone();
    let count: isize = 10_000;
    let limit = raise_limit();
    if limit < 11_000 {
        let why = format!("ten thousand sources: only {limit} descriptors");
        return skip(Needs::Descriptors, format_args!("{why}"));
    }
    let mut sockets = Vec::with_capacity(count as usize);
    for _ in 0..count / 2 {
        let (a, b) = UnixStream::pair().expect("two sockets");
        sockets.extend([a, b]);
    }
    let mut sources = Vec::with_capacity(count as usize);
    let mut done = Completions::new();
    // The watcher itself is part of what its sources cost.
    let empty = live_bytes();
    let mut watcher = Watcher::builder().driver(kind).build().expect("it is there");
    let built = live_bytes();
    let shell = sockets.capacity() * size_of::<UnixStream>();
    for socket in sockets {
        sources.push(watcher.attach(socket).expect("room"));
    }
    // The list of sockets is gone with the loop.
    let attached = live_bytes() + shell as isize;
    let each_idle = (attached - empty) / count;
    for &source in &sources {
        if idle.is_some() {
            watcher.set_idle_timeout(source, idle).expect("a timeout");
        }
        watcher.submit(read(source)).expect("room");
    }
    assert_eq!(watcher.try_wait(&mut done).expect("a wait"), 0);
    let swap_bytes = watcher.counters().swap_bytes;
    // The swap buffer is one for all of them.
    let reading = live_bytes() + shell as isize - empty - swap_bytes as isize;
    let each_reading = reading / count;
    for &source in &sources {
        assert_eq!(watcher.cancel_all(source), 1);
    }
    while done.len() < sources.len() {
        watcher.try_wait(&mut done).expect("a wait");
    }
    assert!(done.drain(..).all(|c| c.error_kind() == Some(ErrorKind::Cancelled)));
    drop(done);
    println!("{kind:?}: a watcher without sources: {} bytes", built - empty);
    println!("{count} idle sources: {each_idle} bytes each");
    println!("with a read: {each_reading} bytes each; {swap_bytes} in swap buffers");
    assert!(each_idle <= 96, "{each_idle} bytes per idle source");
    assert!(each_reading <= most, "{each_reading} bytes per source that reads");
    assert!(swap_bytes <= 64 << 10, "sources that wait hold buffers: {swap_bytes} bytes");
    drop(watcher);
    drop(sources);
}

#[test]
fn ten_thousand_sources_are_small() {
    // What most programs have: a read without a deadline, which rests in its source.
    sources_are_small(DriverKind::Epoll, Op::read, None, 96);
    // An idle timeout costs less than a deadline.
    sources_are_small(DriverKind::Epoll, |source| Op::read(source).multishot(), Some(HOUR), 104);
    sources_are_small(DriverKind::Epoll, |source| Op::read(source).timeout(HOUR), None, 256);
}

#[test]
fn ten_thousand_sources_on_a_ring_are_small() {
    sources_are_small(DriverKind::Uring, Op::read, None, 256);
    sources_are_small(DriverKind::Uring, |source| Op::read(source).multishot(), Some(HOUR), 256);
    sources_are_small(DriverKind::Uring, |source| Op::read(source).timeout(HOUR), None, 256);
}

/// The cost of the reserved ids: nearly nothing until the first submitter.
#[test]
fn the_reserve_is_small() {
    let _alone = alone();
    let cost = |reserve: usize| {
        let before = live_bytes();
        let builder = Watcher::builder().driver(DriverKind::Epoll).id_reserve(reserve);
        let mut watcher = builder.build().expect("a watcher");
        let built = live_bytes() - before;
        let submitter = watcher.submitter();
        let used = live_bytes() - before;
        drop((watcher, submitter));
        println!("a reserve of {reserve}: {built} bytes, {used} with a submitter");
        (built, used)
    };
    let (small, default) = (cost(1), cost(2048));
    assert!(default.0 - small.0 <= 80 << 10, "without a submitter");
    assert!(default.1 - small.1 <= 640 << 10, "with one");
}

/// C9: aborts of invalid names, aborts of stale names, and repeated aborts of one source take no
/// memory.
#[test]
fn repeated_aborts_are_bounded() {
    let _alone = alone();
    let mut watcher = Watcher::builder().driver(DriverKind::Epoll).build().expect("a watcher");
    let submitter = watcher.submitter();
    let (here, there) = UnixStream::pair().expect("a pair");
    let here = watcher.attach(here).expect("room");
    let gone = watcher.attach(there).expect("room");
    assert!(watcher.abort(gone));
    let made_up = |i: u32| Source::from_parts(i, here.generation());
    let before = live_bytes();
    for i in 0..500_000 {
        submitter.abort(Source::NONE);
        submitter.abort(gone);
        submitter.abort(made_up(i + 2));
        submitter.abort(here);
    }
    let bytes = live_bytes() - before;
    assert!(bytes <= 16 << 10, "2,000,000 aborts hold {bytes} bytes");
    watcher.try_wait(&mut Completions::new()).expect("a wait");
    assert_eq!(watcher.counters().sources, 0, "the source is aborted");
}

/// A file of 64 KiB that is on the disk, and in the page cache.
#[cfg(target_os = "linux")]
fn file_of_the_disk(name: &str) -> std::path::PathBuf {
    let path = std::env::temp_dir().join(format!("windlass-{name}-{}", std::process::id()));
    std::fs::write(&path, vec![7; 64 << 10]).expect("a file");
    std::fs::File::open(&path).and_then(|file| file.sync_all()).expect("a disk");
    path
}

/// One operation on a file after the other, each with the buffer of the one before.
#[cfg(target_os = "linux")]
fn one_by_one(
    watcher: &mut Watcher,
    done: &mut Completions,
    buf: &mut Option<Buf>,
    op: impl FnOnce(Buf) -> Op,
) {
    watcher.submit(op(buf.take().expect("it comes back"))).expect("room");
    while buf.is_none() {
        assert!(
            watcher.wait_timeout(done, BOUND).expect("a wait") > 0,
            "work on a file does not end"
        );
        for c in done.drain(..) {
            match c.result.expect("nothing fails") {
                Done::Read(data) | Done::Written { buf: data, .. } => {
                    assert_eq!(data.len(), 4096 * data.parts().len());
                    *buf = Some(data);
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

/// Reads and writes of files: from the page cache, past it, and by threads.
#[cfg(all(target_os = "linux", not(windlass_kqueue)))]
#[test]
fn work_on_files_allocates_nothing() {
    use std::os::unix::fs::OpenOptionsExt;
    use windlass::AlignedBuf;
    use windlass::fs::FileBackend;

    let _alone = alone();
    let path = file_of_the_disk("memory");
    for (driver, files) in [
        (DriverKind::Epoll, FileBackend::Uring),
        (DriverKind::Epoll, FileBackend::Aio),
        (DriverKind::Epoll, FileBackend::Pool),
        (DriverKind::Uring, FileBackend::Uring),
        (DriverKind::Uring, FileBackend::Pool),
    ] {
        let mut options = std::fs::File::options();
        let cached = options.read(true).write(true).open(&path).expect("a file");
        let direct = options.custom_flags(libc::O_DIRECT).open(&path);
        // One thread: a second is made when the first has not rested in time.
        let watcher = Watcher::builder().driver(driver).file_backend(files).threads(1).build();
        let mut watcher = watcher.expect("it is there");
        let cached = watcher.attach(cached).expect("room");
        let mut done = Completions::new();
        let aligned = || Some(Buf::from(AlignedBuf::with_capacity(4096, 4096)));
        let mut buf = Some(Buf::from(Vec::<u8>::with_capacity(4096)));
        expect_none(&format!("{driver:?} {files:?} cached"), |i| {
            let offset = u64::from(i % 16) * 4096;
            one_by_one(&mut watcher, &mut done, &mut buf, |buf| match i % 2 {
                0 => Op::read_at(cached, buf.into_vec(), offset),
                _ => Op::read_at(cached, buf, offset).timeout(HOUR),
            });
        });
        expect_none(&format!("{driver:?} {files:?} written"), |i| {
            let offset = u64::from(i % 16) * 4096;
            one_by_one(&mut watcher, &mut done, &mut buf, |buf| match i % 2 {
                0 => Op::write_at(cached, buf, offset),
                _ => Op::write_at(cached, buf, offset).timeout(HOUR),
            });
        });
        let direct = match direct {
            Ok(direct) => watcher.attach(direct).expect("room"),
            Err(error) => {
                skip(Needs::Direct, format_args!("direct I/O: {error}"));
                continue;
            }
        };
        let mut buf = aligned();
        expect_none(&format!("{driver:?} {files:?} direct"), |i| {
            let offset = u64::from(i % 16) * 4096;
            one_by_one(&mut watcher, &mut done, &mut buf, |buf| match i % 2 {
                0 => Op::read_at(direct, buf, offset),
                _ => Op::read_at(direct, buf, offset).timeout(HOUR),
            });
        });
    }
    std::fs::remove_file(path).expect("it is there");
}

/// Everything that can be in flight is; then the watcher goes.
fn drop_in_flight<W: World>(close: bool) {
    let world = W::open(&CALM);
    let builder = Watcher::builder().buffer_size(1 << 10).swap_limit(64 << 10);
    let mut watcher = world.watcher(builder);
    let mut done = Completions::new();
    let submitter = watcher.submitter();
    let ends: Vec<Source> = (0..4)
        .flat_map(|_| <[Handle; 2]>::from(world.pair()))
        .map(|end| watcher.attach(end).expect("room"))
        .collect();
    let mut leases = Vec::new();
    // Leases that the program holds, and one that a write that is stuck holds.
    watcher.submit(Op::write(ends[0], vec![1; 3_000])).expect("room");
    watcher.submit(Op::read(ends[1]).multishot()).expect("room");
    let mut heard = 0;
    while heard < 3_000 {
        assert!(watcher.wait_timeout(&mut done, BOUND).expect("a wait") > 0);
        for c in done.drain(..) {
            if let Ok(Done::Read(data)) = c.result {
                heard += data.len();
                leases.push(data.into_lease().expect("a lease"));
            }
        }
    }
    struct Owned([u8; 500]);
    impl AsRef<[u8]> for Owned {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    let shared: Arc<[u8]> = vec![7; 900].into();
    let lease = leases.pop().expect("three at least");
    for op in [
        Op::write(ends[2], vec![2; 4 << 20]),
        Op::write(ends[2], lease),
        Op::write(ends[2], shared.clone()),
        Op::write(ends[2], Buf::from_owner(Owned([3; 500]))).timeout(HOUR),
        Op::write_vectored(ends[2], vec![vec![4; 10].into(), shared.into()]),
        Op::shutdown(ends[2]),
        Op::close(ends[2]),
        Op::read_into(ends[4], Vec::<u8>::with_capacity(900)).timeout(HOUR),
        Op::read_exact(ends[4], Vec::<u8>::with_capacity(900), 800),
        Op::read_vectored(ends[4], vec![Vec::with_capacity(9), Vec::with_capacity(8)]),
        Op::read(ends[5]).timeout(HOUR),
        Op::read(ends[5]),
        Op::poll(ends[5], Ready::READABLE).timeout(HOUR),
        Op::wait_drained(ends[2], 5),
        Op::timer(HOUR),
        Op::nop(),
    ] {
        // A source that is about to close takes no drain.
        let _ = watcher.submit(op);
    }
    let listener = watcher.listen(([127, 0, 0, 1], 0)).expect("a port");
    let at = watcher.local_address(listener).expect("its address");
    watcher.submit(Op::accept(listener).timeout(HOUR)).expect("room");
    watcher.submit(Op::accept(listener).multishot()).expect("room");
    for _ in 0..4 {
        watcher.submit(Op::connect(at.clone())).expect("room");
    }
    // Delivered, but never looked at: sockets, leases, buffers.
    watcher.submit(Op::write(ends[6], vec![5; 5_000])).expect("room");
    watcher.submit(Op::read(ends[7]).multishot()).expect("room");
    watcher.wait_timeout(&mut done, BOUND).expect("a wait");
    watcher.wait_timeout(&mut done, BOUND).expect("a wait");
    // Made, but not delivered.
    watcher.submit(Op::write(ends[6], vec![6; 100])).expect("room");
    watcher.submit(Op::read_into(ends[7], vec![6; 100])).expect("room");
    // From elsewhere, and not taken yet.
    submitter.submit(Op::write(ends[6], vec![8; 1 << 20])).expect("room");
    submitter.post(1, String::from("a boxed value")).expect("room");
    let (c, d) = world.pair();
    submitter.attach(c).expect("room");
    submitter.abort(ends[1]);
    if close {
        watcher.close();
        while watcher.try_wait(&mut done).is_ok() {}
    }
    drop(watcher);
    assert!(leases.iter().all(|lease| lease.iter().all(|&byte| byte == 1)));
    drop((leases, done, submitter, d));
}

fn nothing_stays<W: World>() {
    for close in [false, true] {
        // What is made once for a process is made now.
        drop_in_flight::<W>(close);
        let (bytes, open) = (live_bytes(), descriptors());
        for _ in 0..5 {
            drop_in_flight::<W>(close);
        }
        let left = live_bytes() - bytes;
        assert_eq!(left, 0, "{}: bytes that stay behind, closed: {close}", W::NAME);
        assert_eq!(descriptors(), open, "descriptors that stay behind");
    }
}

#[test]
fn a_watcher_leaves_nothing_behind() {
    let _alone = alone();
    nothing_stays::<Real>();
}

#[test]
fn a_watcher_on_a_ring_leaves_nothing_behind() {
    let _alone = alone();
    nothing_stays::<Ring>();
}

#[test]
fn a_simulated_watcher_leaves_nothing_behind() {
    let _alone = alone();
    nothing_stays::<Virtual>();
}
