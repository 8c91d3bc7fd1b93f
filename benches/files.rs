//! Files: reads, writes, stats and jobs, by the mechanism that serves them.
//!
//! ```text
//! cargo bench --bench files [-- FILTER]
//! ```
//!
//! Each group has a row for epoll with a ring for files (`ring`), with Linux AIO (`aio`), with
//! threads (`pool`), io_uring (`uring`) and io_uring with threads (`uring_pool`), as far as the
//! system has them. Numbers are operations in flight; the throughput counts operations, or bytes
//! where that is what matters.
//!
//! - `direct`: 4 KiB from random places, `O_DIRECT`: what the device gives.
//! - `cached`: the same from the page cache, beside a bare loop of pread(2).
//! - `write`: 16 MiB one MiB after the other, two in flight, direct, and a datasync.
//! - `stat`: by descriptor, which is always a thread's work.
//! - `job`: a job that does nothing: what the way to a thread and back costs.
//!
//! The file (256 MiB) is in cargo's target directory, and stays there.

use std::fs::File;
use std::hint::black_box;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput};
use windlass::fs::{FileBackend, OpenOptions};
use windlass::{AlignedBuf, Completions, Done, DriverKind, Op, Source, Watcher};

const SIZE: u64 = 256 << 20;
const BLOCK: usize = 4096;
const LARGE: usize = 1 << 20;
/// Bytes between two syncs.
const SYNCED: u64 = 16 << 20;

/// A driver and its mechanism for files.
type Backend = (&'static str, DriverKind, FileBackend);
const BACKENDS: [Backend; 5] = [
    ("ring", DriverKind::Epoll, FileBackend::Uring),
    ("aio", DriverKind::Epoll, FileBackend::Aio),
    ("pool", DriverKind::Epoll, FileBackend::Pool),
    ("uring", DriverKind::Uring, FileBackend::Uring),
    ("uring_pool", DriverKind::Uring, FileBackend::Pool),
];

fn main() -> io::Result<()> {
    let mut criterion = Criterion::default()
        .sample_size(10)
        .nresamples(10_000)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_secs(1))
        .configure_from_args();
    let path = file()?;
    let there = |(name, ..): &&Backend| match Loop::new(name, &path, OpenOptions::new().read(true))
    {
        Ok(_) => true,
        Err(error) => {
            println!("SKIP: {name}: {error}");
            false
        }
    };
    let backends: Vec<&Backend> = BACKENDS.iter().filter(there).collect();
    let direct = OpenOptions::new().read(true).direct(true);
    if let Some((name, ..)) = backends.first()
        && let Err(error) = Loop::new(name, &path, direct)
    {
        println!("SKIP: direct, write: {}: {error}", path.display());
    } else {
        reads(&mut criterion, "direct", &backends, &path, true, &[1, 32, 128]);
        writes(&mut criterion, &backends, &path);
    }
    io::copy(&mut File::open(&path)?, &mut io::sink())?;
    reads(&mut criterion, "cached", &backends, &path, false, &[1, 32]);
    pread(&mut criterion, &path)?;
    threads(&mut criterion, &backends, &path);
    criterion.final_summary();
    Ok(())
}

/// The file, written where it is not there yet, and synced: no block of it is a hole.
fn file() -> io::Result<PathBuf> {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("files");
    if path.metadata().is_ok_and(|known| known.len() == SIZE) {
        return Ok(path);
    }
    let mut file = File::create(&path)?;
    let mut block = vec![0; LARGE];
    for _ in 0..SIZE / LARGE as u64 {
        fastrand::fill(&mut block);
        file.write_all(&block)?;
    }
    file.sync_all()?;
    Ok(path)
}

/// A loop with the file, and its operations in flight.
struct Loop {
    watcher: Watcher,
    file: Source,
    done: Completions,
    bufs: Vec<AlignedBuf>,
}

impl Loop {
    fn new(name: &str, path: &Path, options: OpenOptions) -> io::Result<Loop> {
        let (_, driver, files) =
            BACKENDS.iter().find(|(known, ..)| *known == name).expect("one of them");
        Loop::open(Watcher::builder().driver(*driver).file_backend(*files).build()?, path, options)
    }

    fn open(mut watcher: Watcher, path: &Path, options: OpenOptions) -> io::Result<Loop> {
        let mut done = Completions::new();
        watcher.submit(Op::open(path, options))?;
        watcher.wait(&mut done)?;
        let Done::Opened(file) = done.drain(..).next().expect("one").result? else {
            unreachable!("it was asked to open");
        };
        let file = watcher.attach(file)?;
        Ok(Loop { watcher, file, done, bufs: Vec::new() })
    }

    /// Has `depth` buffers of `size` bytes.
    fn with_bufs(mut self, depth: usize, size: usize) -> Loop {
        let mut buf = AlignedBuf::with_capacity(size, BLOCK);
        buf.resize(size, b'w');
        self.bufs = vec![buf; depth];
        self
    }

    /// Does `count` operations with at most `depth` in flight; `op` makes the next one.
    fn run(&mut self, count: u64, depth: u64, mut op: impl FnMut(&mut Loop) -> Op) -> Duration {
        let start = Instant::now();
        let (mut submitted, mut completed) = (0, 0);
        while completed < count {
            while submitted < count && submitted - completed < depth {
                let next = op(self);
                self.watcher.submit(next).expect("room");
                submitted += 1;
            }
            self.watcher.wait(&mut self.done).expect("completions");
            for c in self.done.drain(..) {
                completed += 1;
                if let Done::Read(buf) | Done::Written { buf, .. } = c.result.expect("a good end") {
                    self.bufs.push(buf.into_aligned().expect("what was submitted"));
                }
            }
        }
        start.elapsed()
    }

    fn buf(&mut self) -> AlignedBuf {
        self.bufs.pop().expect("as many as are in flight")
    }
}

/// Where a random block starts.
fn random() -> u64 {
    fastrand::u64(..SIZE / BLOCK as u64) * BLOCK as u64
}

fn reads(
    criterion: &mut Criterion,
    name: &str,
    backends: &[&Backend],
    path: &Path,
    direct: bool,
    depths: &[u64],
) {
    let mut group = criterion.benchmark_group(name);
    group.throughput(Throughput::Elements(1));
    let options = OpenOptions::new().read(true).direct(direct);
    for (backend, ..) in backends {
        for &depth in depths {
            let mut target = None;
            group.bench_function(BenchmarkId::new(*backend, depth), |b| {
                let target = target.get_or_insert_with(|| {
                    let built = Loop::new(backend, path, options).expect("as before");
                    built.with_bufs(depth as usize, BLOCK)
                });
                b.iter_custom(|iterations| {
                    target.run(iterations, depth, |target| {
                        let buf = target.buf();
                        Op::read_at(target.file, buf, random())
                    })
                });
            });
        }
    }
}

/// The cost of the page cache without windlass.
fn pread(criterion: &mut Criterion, path: &Path) -> io::Result<()> {
    let mut group = criterion.benchmark_group("cached");
    group.throughput(Throughput::Elements(1));
    let file = File::open(path)?;
    let mut buf = AlignedBuf::with_capacity(BLOCK, BLOCK);
    buf.set_len(BLOCK);
    group.bench_function("pread", |b| {
        b.iter(|| file.read_exact_at(black_box(&mut buf), random()).expect("inside the file"));
    });
    Ok(())
}

fn writes(criterion: &mut Criterion, backends: &[&Backend], path: &Path) {
    const DEPTH: u64 = 2;
    let mut group = criterion.benchmark_group("write");
    group.throughput(Throughput::Bytes(SYNCED));
    let options = OpenOptions::new().write(true).direct(true);
    for (backend, ..) in backends {
        let (mut target, mut at) = (None, 0);
        group.bench_function(*backend, |b| {
            let target = target.get_or_insert_with(|| {
                let built = Loop::new(backend, path, options).expect("as before");
                built.with_bufs(DEPTH as usize, LARGE)
            });
            b.iter_custom(|iterations| {
                let mut time = Duration::ZERO;
                for _ in 0..iterations {
                    time += target.run(SYNCED / LARGE as u64, DEPTH, |target| {
                        at = (at + LARGE as u64) % SIZE;
                        let buf = target.buf();
                        Op::write_at(target.file, buf, at)
                    });
                    time += target.run(1, 1, |target| Op::sync_data(target.file));
                }
                time
            });
        });
    }
}

/// Operations that threads serve with every mechanism: one row for each driver.
fn threads(criterion: &mut Criterion, backends: &[&Backend], path: &Path) {
    type Next = fn(&mut Loop) -> Op;
    let what: [(&str, Next); 2] =
        [("stat", |target| Op::metadata(target.file)), ("job", |_| Op::run(|| ()))];
    for (name, next) in what {
        let mut group = criterion.benchmark_group(name);
        group.throughput(Throughput::Elements(1));
        for (backend, ..) in backends.iter().filter(|(_, _, files)| *files == FileBackend::Pool) {
            for depth in [1, 32] {
                let mut target = None;
                group.bench_function(BenchmarkId::new(*backend, depth), |b| {
                    let target = target.get_or_insert_with(|| {
                        let options = OpenOptions::new().read(true);
                        Loop::new(backend, path, options).expect("as before")
                    });
                    b.iter_custom(|iterations| target.run(iterations, depth, next));
                });
            }
        }
    }
}
