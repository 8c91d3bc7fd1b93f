//! Echo over TCP on the loopback device: throughput, connections, context switches.
//!
//! ```text
//! cargo bench --bench echo [-- FILTER]
//! ```
//!
//! - `stream`: every connection writes one message after the other without waiting for the echo,
//!   which is counted as it comes. 128 B to 128 KiB, 1 to 1024 connections.
//! - `round_trip`: the next message leaves when the last one has come back.
//! - `connect_and_echo`: so many connections are made, and each one echoes 1 KiB; then a straight
//!   line is fitted to time against number. The server is another process, because descriptors are
//!   limited per process: it needs about 8300 in each.
//! - `context_switch`: a message to a watcher on another thread, and one back.
//!
//! The server of the others is a watcher on a thread of its own, the client one on this thread.
//! What an iteration moves is bounded by `MOST_BYTES` one way and by `MOST_MESSAGES`; where that is
//! less than a message for each connection (128 KiB × 1024), a part of the connections gets one,
//! and another part in the next iteration.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, SamplingMode, Throughput};
use windlass::{Address, Completions, Done, DriverKind, LoopThread, Op, Source, Watcher};

static PAYLOAD: [u8; 128 << 10] = [b'w'; 128 << 10];
const KIB: usize = 1 << 10;

/// Most bytes and messages that an iteration sends.
const MOST_BYTES: usize = 32 << 20;
const MOST_MESSAGES: usize = 8192;

/// Set in the process that is the server of `connect_and_echo`.
const SERVER: &str = "WINDLASS_BENCH_SERVER";
/// That process lives no longer than this, whatever happens.
const LIFETIME: Duration = Duration::from_secs(600);
/// How many addresses that server listens at: the client's ports are used up by address.
const ADDRESSES: u8 = 16;

/// Ends a server.
const STOP: u64 = u64::MAX;

fn main() {
    if std::env::var_os(SERVER).is_some() {
        return serve_process().expect("the server runs");
    }
    let mut criterion = Criterion::default()
        .sample_size(10)
        .nresamples(10_000)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_secs(1))
        .configure_from_args();
    stream(&mut criterion);
    round_trip(&mut criterion);
    connect_and_echo(&mut criterion);
    context_switch(&mut criterion);
    criterion.final_summary();
}

fn stream(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("stream");
    group.sampling_mode(SamplingMode::Flat);
    for size in [128, KIB, 4 * KIB, 64 * KIB, 128 * KIB] {
        for connections in [1, 128, 1024] {
            let messages = (MOST_BYTES / size).min(MOST_MESSAGES);
            group.throughput(Throughput::Bytes((messages * size) as u64));
            let id = BenchmarkId::from_parameter(format!("{}x{connections}", name_of(size)));
            let mut client = None;
            group.bench_function(id, |b| {
                let client = client.get_or_insert_with(|| Client::connect(connections, size));
                b.iter(|| client.exchange(messages, Pace::Stream));
            });
        }
    }
}

fn round_trip(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("round_trip");
    for connections in [1, 64] {
        let messages = connections * 16;
        group.throughput(Throughput::Elements(messages as u64));
        let id = BenchmarkId::from_parameter(format!("{}x{connections}", name_of(64)));
        let mut client = None;
        group.bench_function(id, |b| {
            let client = client.get_or_insert_with(|| Client::connect(connections, 64));
            b.iter(|| client.exchange(messages, Pace::RoundTrip));
        });
    }
}

fn connect_and_echo(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("connect_and_echo");
    group.sampling_mode(SamplingMode::Flat);
    let mut points = Vec::new();
    for count in [512, 1024, 2048, 4096, 8192] {
        let limit = descriptor_limit();
        if limit < count + 100 {
            println!(
                "SKIP: {count} connections: {limit} descriptors are not enough (ulimit -n 20000)"
            );
            continue;
        }
        group.throughput(Throughput::Elements(count as u64));
        let id = BenchmarkId::from_parameter(format!("{}x{count}", name_of(KIB)));
        let mut server = None;
        let mut times = Vec::new();
        group.bench_function(id, |b| {
            let server = server
                .get_or_insert_with(|| ServerProcess::start().expect("this binary runs again"));
            b.iter_custom(|iterations| {
                let mut sum = Duration::ZERO;
                for _ in 0..iterations {
                    let at = server.address(times.len());
                    let time = connect_and_echo_once(at, count).expect("echoes");
                    times.push(time);
                    sum += time;
                }
                sum
            });
        });
        times.sort_unstable();
        if let Some(median) = times.get(times.len() / 2) {
            points.push((count as f64, median.as_secs_f64()));
        }
    }
    group.finish();
    if let Some((slope, start, r2)) = fit(&points) {
        println!(
            "connect_and_echo: seconds = {slope:.3e} * connections + {start:.4}, R2 = {r2:.4}: \
             {:.0} connections/s\n",
            1.0 / slope
        );
    }
}

/// One iteration is a message to the other thread and one back: two switches.
fn context_switch(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("context_switch");
    group.throughput(Throughput::Elements(2));
    let mut partner = None;
    group.bench_function("post_and_back", |b| {
        let partner = partner.get_or_insert_with(Partner::start);
        b.iter(|| partner.post_and_back());
    });
}

fn epoll() -> windlass::Builder {
    Watcher::builder().driver(DriverKind::Epoll)
}

fn name_of(bytes: usize) -> String {
    if bytes < KIB { format!("{bytes}B") } else { format!("{}KiB", bytes / KIB) }
}

/// The straight line that fits best: its slope, its start, and R².
fn fit(points: &[(f64, f64)]) -> Option<(f64, f64, f64)> {
    if points.len() < 3 {
        return None;
    }
    let n = points.len() as f64;
    let mean_x = points.iter().map(|p| p.0).sum::<f64>() / n;
    let mean_y = points.iter().map(|p| p.1).sum::<f64>() / n;
    let sum = |f: fn(f64, f64) -> f64| -> f64 {
        points.iter().map(|p| f(p.0 - mean_x, p.1 - mean_y)).sum()
    };
    let (xx, xy, yy) = (sum(|x, _| x * x), sum(|x, y| x * y), sum(|_, y| y * y));
    let slope = xy / xx;
    Some((slope, mean_y - slope * mean_x, xy * xy / (xx * yy)))
}

// ---------------------------------------------------------------- the server

/// Echoes until it is told to stop, by a message or by a completion with that token.
fn serve(mut watcher: Watcher) -> io::Result<()> {
    let mut done = Completions::new();
    loop {
        watcher.wait(&mut done)?;
        for c in done.drain(..) {
            match c.result {
                _ if c.token == STOP => return Ok(()),
                Ok(Done::Accepted(socket)) => {
                    let source = watcher.attach(socket)?;
                    watcher.submit(Op::read(source))?;
                }
                Ok(Done::Read(data)) if data.is_eof() => {
                    watcher.abort(c.source);
                }
                Ok(Done::Read(data)) => {
                    watcher.submit(Op::write(c.source, data))?;
                }
                Ok(Done::Written { buf, .. }) => {
                    drop(buf);
                    watcher.submit(Op::read(c.source))?;
                }
                Ok(_) => {}
                Err(_) => {
                    watcher.abort(c.source);
                }
            }
        }
    }
}

/// A server on a thread of its own.
struct Server {
    address: SocketAddr,
    spawned: Option<LoopThread<()>>,
}

impl Server {
    fn start() -> Server {
        let (told, address) = mpsc::channel();
        let spawned = epoll()
            .spawn("server", move |mut watcher| {
                let listener = watcher.listen((Ipv4Addr::LOCALHOST, 0))?;
                watcher.submit(Op::accept(listener).multishot())?;
                let _ = told.send(watcher.local_address(listener)?.ip());
                serve(watcher)
            })
            .expect("a server");
        let address = address.recv().expect("it listens").expect("an internet address");
        Server { address, spawned: Some(spawned) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        stop(self.spawned.take());
    }
}

/// A watcher here, and one on another thread that sends every message back.
struct Partner {
    watcher: Watcher,
    done: Completions,
    spawned: Option<LoopThread<()>>,
}

impl Partner {
    fn start() -> Partner {
        let mut watcher = epoll().build().expect("a watcher");
        let home = watcher.submitter();
        let spawned = epoll().spawn("partner", move |mut watcher| {
            let mut done = Completions::new();
            loop {
                watcher.wait(&mut done)?;
                for c in done.drain(..) {
                    if c.token == STOP {
                        return Ok(());
                    }
                    home.wake(c.token)?;
                }
            }
        });
        Partner { watcher, done: Completions::new(), spawned: Some(spawned.expect("a partner")) }
    }

    fn post_and_back(&mut self) {
        let Some(spawned) = &self.spawned else { return };
        spawned.submitter.wake(1).expect("room in the queue");
        self.watcher.wait(&mut self.done).expect("an answer");
        self.done.clear();
    }
}

impl Drop for Partner {
    fn drop(&mut self) {
        stop(self.spawned.take());
    }
}

/// Ends a thread that ends at `STOP`.
fn stop(spawned: Option<LoopThread<()>>) {
    let Some(LoopThread { submitter, thread }) = spawned else {
        return;
    };
    let _ = submitter.wake(STOP);
    let ended = thread.join();
    if !thread::panicking() {
        ended.expect("no panic").expect("a good end");
    }
}

/// The work of the other process: it prints its port, and ends when its input does.
fn serve_process() -> io::Result<()> {
    let mut watcher = epoll().build()?;
    let mut port = 0;
    for i in 1..=ADDRESSES {
        let listener = watcher.listen((Ipv4Addr::new(127, 0, 0, i), port))?;
        let at = watcher.local_address(listener)?.ip();
        port = at.map_or(port, |at| at.port());
        watcher.submit(Op::accept(listener).multishot())?;
    }
    let input = watcher.attach_dup(io::stdin())?;
    watcher.submit(Op::read(input).token(STOP))?;
    watcher.submit(Op::timer(LIFETIME).token(STOP))?;
    println!("{port}");
    io::stdout().flush()?;
    serve(watcher)
}

struct ServerProcess {
    child: Child,
    port: u16,
}

impl ServerProcess {
    fn start() -> io::Result<ServerProcess> {
        let mut child = Command::new(std::env::current_exe()?)
            .env(SERVER, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let output = child.stdout.take();
        // From here on it is ended whatever happens.
        let mut process = ServerProcess { child, port: 0 };
        let mut line = String::new();
        if let Some(output) = output {
            BufReader::new(output).read_line(&mut line)?;
        }
        process.port =
            line.trim().parse().map_err(|_| io::Error::other("the server did not say its port"))?;
        Ok(process)
    }

    /// The address for the next round.
    fn address(&self, round: usize) -> Address {
        let host = 1 + (round % usize::from(ADDRESSES)) as u8;
        Address::from(([127, 0, 0, host], self.port))
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let end = Instant::now() + Duration::from_secs(5);
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() > end {
                let _ = self.child.kill();
                let _ = self.child.wait();
                return;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }
}

// ---------------------------------------------------------------- the clients

/// When a connection sends its next message.
#[derive(Clone, Copy, PartialEq)]
enum Pace {
    /// When the last one is written.
    Stream,
    /// When the last one has come back.
    RoundTrip,
}

/// Connections with a read in flight each; their tokens are their numbers.
struct Client {
    _server: Server,
    watcher: Watcher,
    done: Completions,
    sources: Vec<Source>,
    /// Messages that a connection is still to send.
    unsent: Vec<usize>,
    /// Bytes of its last message that have not come back.
    missing: Vec<usize>,
    size: usize,
    /// The connection that is the first one to send in the next exchange.
    first: usize,
}

impl Client {
    /// Connects to a server of its own.
    fn connect(count: usize, size: usize) -> Client {
        let server = Server::start();
        let mut watcher = epoll().build().expect("a watcher");
        let sources: Vec<Source> = (0..count)
            .map(|i| {
                let socket = TcpStream::connect(server.address).expect("a connection");
                socket.set_nodelay(true).expect("an option");
                let source = watcher.attach(socket).expect("room");
                let read = Op::read(source).multishot().token(i as u64);
                watcher.submit(read).expect("accepted");
                source
            })
            .collect();
        Client {
            _server: server,
            watcher,
            done: Completions::new(),
            unsent: vec![0; count],
            missing: vec![0; count],
            sources,
            size,
            first: 0,
        }
    }

    /// Sends `messages` over all connections, and takes them back.
    fn exchange(&mut self, messages: usize, pace: Pace) {
        let count = self.sources.len();
        let active = messages.min(count);
        let each = messages / active;
        for i in (self.first..self.first + active).map(|i| i % count) {
            self.unsent[i] = each;
            self.send(i);
        }
        self.first = (self.first + active) % count;
        let mut bytes_to_come = active * each * self.size;
        let mut writes_to_end = active * each;
        while bytes_to_come > 0 || writes_to_end > 0 {
            self.watcher.wait(&mut self.done).expect("completions");
            let mut done = std::mem::take(&mut self.done);
            for c in done.drain(..) {
                let i = c.token as usize;
                match c.result.expect("no errors") {
                    Done::Written { .. } => {
                        writes_to_end -= 1;
                        if pace == Pace::Stream && self.unsent[i] > 0 {
                            self.send(i);
                        }
                    }
                    Done::Read(data) => {
                        assert!(!data.is_eof(), "the server has closed");
                        bytes_to_come -= data.len();
                        if pace == Pace::RoundTrip {
                            self.missing[i] -= data.len();
                            if self.missing[i] == 0 && self.unsent[i] > 0 {
                                self.send(i);
                            }
                        }
                    }
                    other => panic!("not asked for: {other:?}"),
                }
            }
            self.done = done;
        }
    }

    fn send(&mut self, i: usize) {
        self.unsent[i] -= 1;
        self.missing[i] = self.size;
        let write = Op::write(self.sources[i], &PAYLOAD[..self.size]).token(i as u64);
        self.watcher.submit(write).expect("accepted");
    }
}

/// Connects `count` times, echoes 1 KiB over each: how long that takes. At most `CONNECTING`
/// connections are being made at a time, so that the server's backlog (4096 at most) has room.
fn connect_and_echo_once(to: Address, count: usize) -> io::Result<Duration> {
    const CONNECTING: usize = 512;
    let mut watcher = epoll().build()?;
    let mut done = Completions::new();
    let mut sources = Vec::with_capacity(count);
    let mut missing = vec![KIB; count];
    let (mut started, mut echoed) = (0, 0);

    let start = Instant::now();
    while started < count.min(CONNECTING) {
        watcher.submit(Op::connect(to.clone()).token(started as u64))?;
        started += 1;
    }
    while echoed < count {
        watcher.wait(&mut done)?;
        for c in done.drain(..) {
            match c.result? {
                Done::Socket(socket) => {
                    let source = watcher.attach(socket)?;
                    sources.push(source);
                    watcher.submit(Op::write(source, &PAYLOAD[..KIB]))?;
                    watcher.submit(Op::read(source).multishot().token(c.token))?;
                    if started < count {
                        watcher.submit(Op::connect(to.clone()).token(started as u64))?;
                        started += 1;
                    }
                }
                Done::Read(data) => {
                    let missing = &mut missing[c.token as usize];
                    *missing -= data.len();
                    echoed += usize::from(*missing == 0);
                }
                _ => {}
            }
        }
    }
    let time = start.elapsed();

    // The client closes first (so that the wait for stray segments is its), and the next round
    // begins when the server has closed as well.
    for source in &sources {
        watcher.submit(Op::shutdown(*source))?;
    }
    let mut open = sources.len();
    while open > 0 {
        watcher.wait(&mut done)?;
        for c in done.drain(..) {
            if matches!(&c.result?, Done::Read(data) if data.is_eof()) {
                watcher.abort(c.source);
                open -= 1;
            }
        }
    }
    Ok(time)
}

/// How many descriptors this process may have.
fn descriptor_limit() -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    let soft = line.and_then(|line| line.split_whitespace().next());
    soft.and_then(|soft| soft.parse().ok()).unwrap_or(usize::MAX)
}
