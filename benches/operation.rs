//! What an operation costs in user space: the proactor on a simulated kernel without faults.
//!
//! ```text
//! cargo bench --bench operation [-- FILTER]
//! ```
//!
//! The watcher is monomorphic (`Watcher<Proactor<Sim>>`), messages have 64 bytes, batches 64
//! operations of a kind, and the throughput counts operations: 25 Melem/s are 40 ns each.
//!
//! - `read_and_write`: a batch of reads comes to rest, one of writes goes out, and both complete:
//!   over 64 connections with a lease, a vector, or a multishot read each; and over one connection.
//!   `readiness` moves the bytes by `send`, `readable` and `recv` instead.
//! - `write`, `read`: one half of the first, timed alone (the reads' half is one event each).
//! - `kernel`: the calls that `read_and_write` makes to the simulated kernel, made directly: what
//!   is to be subtracted for the proactor's share.
//! - `nop`, `timer`: no call at all; a timer is submitted and cancelled, which counts as one.

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput};
use windlass::driver::{Config, Target};
use windlass::kernel::{Calls, Kernel};
use windlass::proactor::Proactor;
use windlass::sim::Sim;
use windlass::{Buf, Completions, Done, Op, Source, SourceKind, Watcher};

const BATCH: usize = 64;
const SIZE: usize = 64;
static MESSAGE: [u8; SIZE] = [b'w'; SIZE];

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(20)
        .nresamples(10_000)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_secs(1))
        .configure_from_args();
    read_and_write(&mut criterion);
    halves(&mut criterion);
    kernel(&mut criterion);
    without_calls(&mut criterion);
    criterion.final_summary();
}

/// `count` connections with both ends in one watcher.
struct Pairs {
    watcher: Watcher<Proactor<Sim>>,
    done: Completions,
    writers: Vec<Source>,
    readers: Vec<Source>,
    bufs: Vec<Buf>,
}

impl Pairs {
    fn new(count: usize) -> Pairs {
        let sim = Sim::new(1);
        let mut watcher = Watcher::with_driver(Proactor::simulated(&sim, Config::default()));
        let (writers, readers) = (0..count)
            .map(|_| {
                let (a, b) = sim.pair();
                (watcher.attach(a).expect("room"), watcher.attach(b).expect("room"))
            })
            .unzip();
        let bufs = (0..BATCH).map(|_| Buf::from(Vec::<u8>::with_capacity(SIZE))).collect();
        let mut pairs = Pairs { watcher, done: Completions::new(), writers, readers, bufs };
        // The kernel hears of a source when it waits for the first time.
        pairs.leases();
        pairs
    }

    /// Ends when `bytes` have been read, `written` writes are done.
    fn finish(&mut self, mut bytes: usize, mut written: usize) {
        while bytes > 0 || written > 0 {
            self.watcher.wait(&mut self.done).expect("completions");
            for c in self.done.drain(..) {
                match c.result {
                    Ok(Done::Read(data)) => {
                        bytes -= data.len();
                        if !data.is_lease() {
                            self.bufs.push(data);
                        }
                    }
                    Ok(Done::Written { .. }) => written -= 1,
                    other => panic!("not asked for: {other:?}"),
                }
            }
        }
    }

    /// Inlined, as `Watcher::submit` is, so that the match on the operation goes away.
    #[inline(always)]
    fn submit(&mut self, op: Op) {
        self.watcher.submit(op).expect("accepted");
    }

    fn submit_reads(&mut self) {
        for i in 0..self.readers.len() {
            self.submit(Op::read(self.readers[i]));
        }
    }

    fn submit_writes(&mut self) {
        for i in 0..BATCH {
            self.submit(Op::write(self.writers[i % self.writers.len()], &MESSAGE));
        }
    }

    fn leases(&mut self) {
        self.submit_reads();
        self.submit_writes_and_finish();
    }

    fn vectors(&mut self) {
        for i in 0..BATCH {
            let buf = self.bufs.pop().expect("they come back");
            self.submit(Op::read_into(self.readers[i % self.readers.len()], buf));
        }
        self.submit_writes_and_finish();
    }

    /// The same messages by readiness, into memory with room for more.
    fn readiness(&mut self) {
        for i in 0..BATCH {
            self.submit(Op::readable(self.readers[i]));
            let sent = self.watcher.send(self.writers[i], &MESSAGE).expect("room");
            assert_eq!(sent, SIZE);
        }
        let (mut memory, mut left) = ([0; 2 * SIZE], BATCH);
        while left > 0 {
            self.watcher.wait(&mut self.done).expect("completions");
            for c in self.done.drain(..) {
                let got = self.watcher.recv(c.source, &mut memory).expect("bytes");
                assert_eq!(got, SIZE);
                left -= 1;
            }
        }
    }

    fn submit_writes_and_finish(&mut self) {
        self.submit_writes();
        self.finish(BATCH * SIZE, BATCH);
    }
}

fn read_and_write(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("read_and_write");
    group.throughput(Throughput::Elements(2 * BATCH as u64));
    let mut pairs = Pairs::new(BATCH);
    group.bench_function("lease", |b| b.iter(|| pairs.leases()));
    let mut pairs = Pairs::new(BATCH);
    group.bench_function("vector", |b| b.iter(|| pairs.vectors()));
    let mut pairs = Pairs::new(BATCH);
    for i in 0..BATCH {
        pairs.submit(Op::read(pairs.readers[i]).multishot());
    }
    group.bench_function("multishot", |b| {
        b.iter(|| pairs.submit_writes_and_finish());
    });
    let mut pairs = Pairs::new(BATCH);
    group.bench_function("readiness", |b| b.iter(|| pairs.readiness()));
    let mut pairs = Pairs::new(1);
    group.bench_function("one_connection", |b| b.iter(|| pairs.vectors()));
}

/// The clock is read twice in a batch.
fn halves(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("half");
    group.throughput(Throughput::Elements(BATCH as u64));
    let mut pairs = Pairs::new(BATCH);
    group.bench_function("write", |b| {
        b.iter_custom(|iterations| {
            let mut time = Duration::ZERO;
            for _ in 0..iterations {
                let start = Instant::now();
                pairs.submit_writes();
                pairs.finish(0, BATCH);
                time += start.elapsed();
                pairs.submit_reads();
                pairs.finish(BATCH * SIZE, 0);
            }
            time
        });
    });
    let mut pairs = Pairs::new(BATCH);
    group.bench_function("read", |b| {
        b.iter_custom(|iterations| {
            let mut time = Duration::ZERO;
            for _ in 0..iterations {
                let start = Instant::now();
                pairs.submit_reads();
                time += start.elapsed();
                pairs.submit_writes();
                // Delivers the writes, which are done, without asking for events.
                pairs.watcher.wait(&mut pairs.done).expect("completions");
                let bytes = pairs.done.drain(..).filter(|c| c.bytes() > 0).count();
                assert_eq!(bytes, BATCH, "the writes and nothing else");
                let start = Instant::now();
                pairs.finish(BATCH * SIZE, 0);
                time += start.elapsed();
            }
            time
        });
    });
}

fn kernel(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("kernel");
    group.throughput(Throughput::Elements(2 * BATCH as u64));
    let mut sim = Sim::new(1);
    let pairs: Vec<_> = (0..BATCH).map(|_| sim.pair()).collect();
    // The descriptors of a network are numbered from 0; the first exchange checks it.
    for i in 0..2 * BATCH as i32 {
        sim.register(i, i as u64, true).expect("not registered yet");
    }
    while sim.select(Some(0)).expect("events") > 0 {}
    let mut memory = [0; SIZE];
    group.bench_function("read_and_write", |b| {
        b.iter(|| {
            for i in 0..BATCH as i32 {
                let sent = sim.send(2 * i, SourceKind::Stream, black_box(&MESSAGE));
                assert_eq!(sent, SIZE as isize);
            }
            let events = sim.select(Some(0)).expect("events");
            assert_eq!(events, BATCH);
            for i in 0..events {
                let (fd, _) = black_box(sim.event(i));
                let got = sim.recv(fd as i32, SourceKind::Stream, Target::from_slice(&mut memory));
                assert_eq!(got.moved, SIZE as isize);
            }
        });
    });
    drop(pairs);
}

fn without_calls(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("without_calls");
    group.throughput(Throughput::Elements(BATCH as u64));
    let mut pairs = Pairs::new(BATCH);
    group.bench_function("nop", |b| {
        b.iter(|| {
            for _ in 0..BATCH {
                pairs.submit(Op::nop());
            }
            pairs.watcher.wait(&mut pairs.done).expect("completions");
            assert_eq!(pairs.done.drain(..).count(), BATCH);
        });
    });
    let mut pairs = Pairs::new(BATCH);
    group.bench_function("timer", |b| {
        let mut tickets = Vec::with_capacity(BATCH);
        b.iter(|| {
            for i in 0..BATCH as u64 {
                let timer = Op::timer(Duration::from_secs(60 + i));
                tickets.push(pairs.watcher.submit(timer).expect("accepted"));
            }
            for ticket in tickets.drain(..) {
                assert!(pairs.watcher.cancel(ticket));
            }
            pairs.watcher.wait(&mut pairs.done).expect("completions");
            assert_eq!(pairs.done.drain(..).count(), BATCH);
        });
    });
}
