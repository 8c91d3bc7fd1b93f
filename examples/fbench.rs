//! A benchmark of random reads of 4 KiB. `fbench FILE DEPTH SECONDS DIRECT` keeps DEPTH reads in
//! flight for SECONDS, and prints one line of JSON. DIRECT is 1 for `O_DIRECT`, 0 for reads through
//! the page cache.
//!
//! `WINDLASS_DRIVER` chooses the driver, `WINDLASS_FILES` the mechanism for files: `aio`, `pool`,
//! `uring`. `--registered` registers the file and the buffers with the ring. `--flood` also keeps
//! 64 jobs of 5 ms each outstanding, in place of slow name look-ups. `--write` measures writes
//! instead: blocks of 1 MiB in the order of the file, and a sync at the end.

use std::io;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use windlass::fs::OpenOptions;
use windlass::{AlignedBuf, Completions, Done, Op, Source, Watcher};

/// The token of a slow job.
const SLOW: u64 = u64::MAX;

/// The length of the file in bytes: sequential writes start again at its end.
const WRITTEN: u64 = 512 << 20;
const WRITE_BLOCK: usize = 1 << 20;
const READ_BLOCK: usize = 4096;

fn main() -> io::Result<()> {
    let (words, flags): (Vec<_>, Vec<_>) =
        std::env::args().skip(1).partition(|word| !word.starts_with("--"));
    let (writes, explains) =
        (flags.contains(&"--write".into()), flags.contains(&"--explain".into()));
    let registers = flags.contains(&"--registered".into());
    let [file, depth, secs, direct] = words.as_slice() else {
        eprintln!(
            "usage: fbench FILE DEPTH SECONDS DIRECT [--write] [--flood] [--registered] [--explain]"
        );
        std::process::exit(2);
    };
    let number =
        |text: &String| text.parse::<f64>().map_err(|e| io::Error::other(format!("{text}: {e}")));
    let (depth, direct) = (number(depth)? as usize, number(direct)? != 0.0);
    let span = Duration::from_secs_f64(number(secs)?);

    let block = if writes { WRITE_BLOCK } else { READ_BLOCK };
    let mut watcher = match registers {
        true => Watcher::builder().registered_files(1).registered_bytes(depth * block).build()?,
        false => Watcher::new()?,
    };
    let options = OpenOptions::new().direct(direct);
    let options = if writes { options.write(true).create(true) } else { options.read(true) };
    let file = open(&mut watcher, file, options)?;
    let mut bench = Bench::new(file, writes, size(&mut watcher, file)?)?;

    let slow = || Op::run(|| std::thread::sleep(Duration::from_millis(5))).token(SLOW);
    for _ in 0..if flags.contains(&"--flood".into()) { 64 } else { 0 } {
        watcher.submit(slow())?;
    }
    let mut done = Completions::new();
    let mut free: Vec<AlignedBuf> = (0..depth).map(|_| bench.buffer(&mut watcher)).collect();
    let mut started_ns = vec![0; depth];
    let mut tokens: Vec<u64> = (0..depth as u64).collect();
    let (start, before) = (Instant::now(), cpu_time());
    let (mut now_ns, mut running, span_ns) = (0, 0, span.as_nanos() as u64);
    loop {
        if now_ns < span_ns {
            while let (Some(buf), Some(token)) = (free.pop(), tokens.pop()) {
                started_ns[token as usize] = now_ns;
                watcher.submit(bench.next(buf).token(token))?;
                running += 1;
            }
        } else if running == 0 {
            break;
        }
        watcher.wait(&mut done)?;
        now_ns = start.elapsed().as_nanos() as u64;
        for c in done.drain(..) {
            if c.token == SLOW {
                watcher.submit(slow())?;
                continue;
            }
            let buf = match c.result? {
                Done::Read(buf) | Done::Written { buf, .. } => buf,
                other => unreachable!("{other:?}"),
            };
            assert_eq!(buf.len(), bench.block, "a short read or write");
            free.push(buf.into_aligned().expect("what was submitted"));
            bench.latency_ns.saturating_record(now_ns - started_ns[c.token as usize]);
            tokens.push(c.token);
            running -= 1;
        }
    }
    let (elapsed, cpu) = (Duration::from_nanos(now_ns), cpu_time() - before);
    let sync = sync(&mut watcher, file, writes)?;
    bench.print(depth, elapsed, cpu, sync);
    if explains {
        eprintln!("{}", watcher.explain());
    }
    Ok(())
}

struct Bench {
    file: Source,
    writes: bool,
    block: usize,
    blocks: u64,
    random: u64,
    latency_ns: Histogram<u64>,
}

impl Bench {
    fn new(file: Source, writes: bool, size: u64) -> io::Result<Bench> {
        let block = if writes { WRITE_BLOCK } else { READ_BLOCK };
        let blocks = if writes { WRITTEN } else { size } / block as u64;
        if blocks == 0 {
            return Err(io::Error::other("the file has less than one block"));
        }
        let latency_ns = Histogram::new_with_max(60_000_000_000, 3).map_err(io::Error::other)?;
        Ok(Bench { file, writes, block, blocks, random: 0x9e37_79b9_7f4a_7c15, latency_ns })
    }

    fn buffer(&self, watcher: &mut Watcher) -> AlignedBuf {
        let mut buf = watcher.aligned_buf(self.block);
        if self.writes {
            buf.resize(self.block, b'w');
        }
        buf
    }

    fn next(&mut self, buf: AlignedBuf) -> Op {
        if self.writes {
            self.random = (self.random + 1) % self.blocks;
            return Op::write_at(self.file, buf, self.random * self.block as u64);
        }
        // xorshift64
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        Op::read_at(self.file, buf, self.random % self.blocks * self.block as u64)
    }

    fn print(&self, depth: usize, elapsed: Duration, cpu: Duration, sync: Duration) {
        let ops = self.latency_ns.len() as f64;
        let us = |q| self.latency_ns.value_at_quantile(q) as f64 / 1000.0;
        let iops = ops / elapsed.as_secs_f64();
        println!(
            "{{\"engine\":\"windlass\",\"qd\":{depth},\"iops\":{iops:.0},\"MBps\":{:.1},\
             \"p50\":{:.1},\"p99\":{:.1},\"cpu_us_op\":{:.3},\"fsync_ms\":{:.1}}}",
            iops * self.block as f64 / 1e6,
            us(0.5),
            us(0.99),
            cpu.as_secs_f64() * 1e6 / ops,
            sync.as_secs_f64() * 1e3,
        );
    }
}

/// The result of one operation.
fn complete(watcher: &mut Watcher, op: Op) -> io::Result<Done> {
    let mut done = Completions::new();
    watcher.submit(op)?;
    watcher.wait(&mut done)?;
    Ok(done.drain(..).next().expect("a completion").result?)
}

fn open(watcher: &mut Watcher, path: &str, options: OpenOptions) -> io::Result<Source> {
    match complete(watcher, Op::open(path, options))? {
        Done::Opened(file) => Ok(watcher.attach(file)?),
        other => unreachable!("{other:?}"),
    }
}

fn size(watcher: &mut Watcher, file: Source) -> io::Result<u64> {
    match complete(watcher, Op::metadata(file))? {
        Done::Metadata(stat) => Ok(stat.size),
        other => unreachable!("{other:?}"),
    }
}

/// How long a sync takes after writes.
fn sync(watcher: &mut Watcher, file: Source, writes: bool) -> io::Result<Duration> {
    let start = Instant::now();
    if writes {
        complete(watcher, Op::sync_all(file))?;
    }
    Ok(start.elapsed())
}

/// The processor time of this process, all threads together; not measured on Windows.
fn cpu_time() -> Duration {
    #[cfg(windows)]
    return Duration::ZERO;
    #[cfg(not(windows))]
    {
        let clock = nix::time::ClockId::CLOCK_PROCESS_CPUTIME_ID;
        nix::time::clock_gettime(clock).map(Duration::from).expect("a clock that every system has")
    }
}
