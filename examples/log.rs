//! A log with group commit: the records of several threads are written and synced together.
//!
//! ```text
//! cargo run --release --example log -- FILE [--producers N] [--records N] [--size BYTES]
//! ```
//!
//! Each producer posts a record, waits until the record is on the disk, and posts the next. All
//! records that arrive during a commit form the next commit: one write and one sync. The example
//! prints a line of JSON. Then it reads the file back, and checks that every acknowledged record is
//! there.
//!
//! If FILE exists, the example appends to it. First it cuts off an incomplete record at the end,
//! which a crash may have left. SIGINT and SIGTERM end it after the current commit.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender};
use hdrhistogram::Histogram;
use windlass::fs::OpenOptions;
use windlass::{
    Buf, Completion, Completions, Done, Limit, Op, Refusal, Refused, Source, Submitter, Watcher,
};

mod common;

/// The length and the checksum of the bytes that follow. These start with producer and number.
const HEAD: usize = 8;
const LEAST: usize = 8;
const MOST: usize = 1 << 20;
/// Most records in a commit: one writev(2) takes as many.
const TOGETHER: usize = 1024;

fn main() -> io::Result<()> {
    let mut options = common::Options::new("log FILE [--producers N] [--records N] [--size BYTES]");
    let producers: u32 = options.take("--producers").unwrap_or(16);
    let records: u32 = options.take("--records").unwrap_or(1000);
    let size = options.take("--size").unwrap_or(100).clamp(LEAST, MOST);
    let path = options.word();
    options.end();
    let path = Path::new(&path);

    // Every producer has one record at most on its way.
    let mut watcher = Watcher::builder().remote_queue(producers.max(1) as usize).build()?;
    common::signals(&mut watcher)?;
    let mut done = Completions::new();
    let options = OpenOptions::new().read(true).write(true).create(true);
    // Names the file, also when the disk is full.
    let about = |error| io::Error::other(format!("{}: {error}", path.display()));
    let file = match one(&mut watcher, &mut done, Op::open(path, options)).map_err(about)? {
        Done::Opened(file) => watcher.attach(file)?,
        other => unreachable!("not asked for: {other:?}"),
    };
    let start = Log::check(path, 0, |_, _| Ok(())).map_err(about)?;
    one(&mut watcher, &mut done, Op::set_len(file, start)).map_err(about)?;

    let mut told = Vec::new();
    let threads: Vec<_> = (0..producers)
        .map(|producer| {
            let (tell, hear) = crossbeam_channel::bounded(1);
            told.push(tell);
            let submitter = watcher.submitter();
            thread::spawn(move || produce(&submitter, &hear, producer, records, size))
        })
        .collect();
    let mut log = Log::new(file, start, told)?;
    let (began, all) = (Instant::now(), u64::from(producers) * u64::from(records));
    while log.acknowledged < all || log.is_busy() {
        watcher.wait(&mut done)?;
        for c in done.drain(..) {
            if matches!(c.result, Ok(Done::Signal(_))) {
                log.ends = true;
            } else {
                log.take(&mut watcher, c).map_err(about)?;
            }
        }
        // All that has come is in the next commit.
        log.commit(&mut watcher).map_err(about)?;
        if log.ends && !log.is_busy() {
            break;
        }
    }
    log.print(began.elapsed());
    let acknowledged = log.acknowledged;
    drop(log); // producers that wait are told by this
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    verify(path, start, producers, acknowledged).map_err(about)
}

/// A producer: posts each record when the last one is on the disk.
fn produce(to: &Submitter, hear: &Receiver<()>, producer: u32, records: u32, size: usize) {
    for number in 0..records {
        let mut record = Vec::with_capacity(HEAD + size);
        record.extend_from_slice(&[0; HEAD]);
        record.extend_from_slice(&producer.to_le_bytes());
        record.extend_from_slice(&number.to_le_bytes());
        record.resize(HEAD + size, b'.');
        let sum = crc32fast::hash(&record[HEAD..]);
        record[..4].copy_from_slice(&(size as u32).to_le_bytes());
        record[4..HEAD].copy_from_slice(&sum.to_le_bytes());
        let mut message = Record { producer, record, posted: Instant::now() };
        loop {
            match to.post(0, message) {
                Ok(()) => break,
                Err(Refused {
                    value: op,
                    reason: Refusal::Full { limit: Limit::RemoteQueue, .. },
                }) => message = op,
                Err(_) => return,
            }
            thread::yield_now();
        }
        if hear.recv().is_err() {
            return;
        }
    }
}

struct Record {
    producer: u32,
    record: Vec<u8>,
    posted: Instant,
}

struct Log {
    file: Source,
    /// The offset of the next commit.
    end: u64,
    /// Records that wait for the next commit.
    waiting: Vec<Record>,
    /// The producers in the current commit, and when it began.
    committing: Vec<(u32, Instant)>,
    told: Vec<Sender<()>>,
    /// No more commits.
    ends: bool,
    acknowledged: u64,
    commits: u64,
    latency_us: Histogram<u64>,
}

impl Log {
    fn new(file: Source, end: u64, told: Vec<Sender<()>>) -> io::Result<Log> {
        Ok(Log {
            file,
            end,
            waiting: Vec::new(),
            committing: Vec::new(),
            told,
            ends: false,
            acknowledged: 0,
            commits: 0,
            latency_us: Histogram::new_with_max(60_000_000, 3).map_err(io::Error::other)?,
        })
    }

    fn is_busy(&self) -> bool {
        !self.committing.is_empty()
    }

    fn take(&mut self, watcher: &mut Watcher, c: Completion) -> io::Result<()> {
        // After a write or a sync that has failed it is unknown which bytes are on the disk.
        match c.result? {
            Done::Message(message) => {
                self.waiting.push(message.downcast().expect("only records are posted"));
            }
            Done::Written { bytes, .. } => {
                self.end += u64::from(bytes);
                watcher.submit(Op::sync_data(self.file))?;
            }
            Done::Finished => self.committed(),
            other => unreachable!("not asked for: {other:?}"),
        }
        Ok(())
    }

    /// Writes the waiting records, unless a commit is in flight.
    fn commit(&mut self, watcher: &mut Watcher) -> io::Result<()> {
        if self.is_busy() || self.ends || self.waiting.is_empty() {
            return Ok(());
        }
        let count = self.waiting.len().min(TOGETHER);
        let mut parts = Vec::with_capacity(count);
        for Record { producer, record, posted } in self.waiting.drain(..count) {
            self.committing.push((producer, posted));
            parts.push(record);
        }
        watcher.submit(Op::write_at(self.file, Buf::list(parts), self.end))?;
        Ok(())
    }

    fn committed(&mut self) {
        self.commits += 1;
        self.acknowledged += self.committing.len() as u64;
        for (producer, posted) in self.committing.drain(..) {
            self.latency_us.saturating_record(posted.elapsed().as_micros() as u64);
            self.told[producer as usize].send(()).expect("the producer waits for this");
        }
    }

    fn print(&self, elapsed: Duration) {
        let us = |q| self.latency_us.value_at_quantile(q);
        println!(
            "{{\"records\":{},\"records_per_s\":{:.0},\"records_per_commit\":{:.1},\"p50_us\":{},\
             \"p99_us\":{}}}",
            self.acknowledged,
            self.acknowledged as f64 / elapsed.as_secs_f64(),
            self.acknowledged as f64 / self.commits.max(1) as f64,
            us(0.5),
            us(0.99),
        );
    }

    /// Reads the records from `start` on, with producer and number. Returns where the last complete
    /// one ends.
    fn check(
        path: &Path,
        start: u64,
        mut each: impl FnMut(u32, u32) -> io::Result<()>,
    ) -> io::Result<u64> {
        let mut file = BufReader::with_capacity(1 << 20, File::open(path)?);
        file.seek(SeekFrom::Start(start))?;
        let word = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().expect("four bytes"));
        let (mut end, mut head, mut record) = (start, [0; HEAD], Vec::new());
        while is_there(file.read_exact(&mut head))? {
            let len = word(&head[..4]) as usize;
            if !(LEAST..=MOST).contains(&len) {
                break;
            }
            record.resize(len, 0);
            let whole = is_there(file.read_exact(&mut record))?;
            if !whole || crc32fast::hash(&record) != word(&head[4..]) {
                break;
            }
            each(word(&record[..4]), word(&record[4..8]))?;
            end += (HEAD + len) as u64;
        }
        Ok(end)
    }
}

/// Whether the bytes were read; false at the end of the file.
fn is_there(read: io::Result<()>) -> io::Result<bool> {
    match read {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// Checks that every acknowledged record is there: all numbers of each producer, from 0 on.
fn verify(path: &Path, start: u64, producers: u32, acknowledged: u64) -> io::Result<()> {
    let (mut next, mut count) = (vec![0; producers as usize], 0);
    let end = Log::check(path, start, |producer, number| {
        count += 1;
        match next.get_mut(producer as usize) {
            Some(next) if *next == number => *next += 1,
            _ => {
                return Err(io::Error::other(format!(
                    "record {number} of {producer} is out of order"
                )));
            }
        }
        Ok(())
    })?;
    let size = path.metadata()?.len();
    if count != acknowledged || end != size {
        let text = format!("{count} of {acknowledged} records in {end} of {size} bytes");
        return Err(io::Error::other(text));
    }
    eprintln!("{count} records are there");
    Ok(())
}

/// Submits an operation and waits for its end, or for a signal.
fn one(watcher: &mut Watcher, done: &mut Completions, op: Op) -> io::Result<Done> {
    let ticket = watcher.submit(op)?;
    watcher.wait(done)?;
    match done.drain(..).next() {
        Some(c) if c.ticket() == ticket => Ok(c.result?),
        _ => Err(io::Error::new(io::ErrorKind::Interrupted, "told to end")),
    }
}
