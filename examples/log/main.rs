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
//! which a crash may have left. It also syncs the directory of FILE, because a sync of the file
//! does not cover its name. SIGINT and SIGTERM end it after the current commit. The log itself is
//! in `journal.rs`, and `tests/durability.rs` crashes it in a simulation.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender};
use hdrhistogram::Histogram;
use journal::{Care, Journal, Records, Step};
use windlass::{Completion, Completions, Done, Limit, Refusal, Refused, Submitter, Watcher};

#[path = "../common/mod.rs"]
mod common;
mod journal;

/// The bytes of a record's producer and number.
const LEAST: usize = 8;

fn main() -> io::Result<()> {
    let mut options = common::Options::new("log FILE [--producers N] [--records N] [--size BYTES]");
    let producers: u32 = options.take("--producers").unwrap_or(16);
    let records: u32 = options.take("--records").unwrap_or(1000);
    let size = options.take("--size").unwrap_or(100).clamp(LEAST, journal::MOST);
    let path = options.word();
    options.end();
    let path = Path::new(&path);

    // Every producer has one record at most on its way.
    let mut watcher = Watcher::builder().remote_queue(producers.max(1) as usize).build()?;
    common::signals(&mut watcher)?;
    let mut done = Completions::new();
    // Names the file, also when the disk is full.
    let about = |error| io::Error::other(format!("{}: {error}", path.display()));
    let (journal, start) = open(&mut watcher, &mut done, path).map_err(about)?;

    let mut told = Vec::new();
    let threads: Vec<_> = (0..producers)
        .map(|producer| {
            let (tell, hear) = crossbeam_channel::bounded(1);
            told.push(tell);
            let submitter = watcher.submitter();
            thread::spawn(move || produce(&submitter, &hear, producer, records, size))
        })
        .collect();
    let mut log = Log::new(journal, told)?;
    let (began, all) = (Instant::now(), u64::from(producers) * u64::from(records));
    while log.acknowledged < all || log.journal.is_busy() {
        watcher.wait(&mut done)?;
        for c in done.drain(..) {
            if matches!(c.result, Ok(Done::Signal(_))) {
                log.ends = true;
            } else {
                log.take(&mut watcher, c).map_err(about)?;
            }
        }
        // All that has come is in the next commit.
        if !log.ends {
            log.journal.commit(&mut watcher).map_err(about)?;
        }
        if log.ends && !log.journal.is_busy() {
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
        let mut record = Vec::with_capacity(size);
        record.extend_from_slice(&producer.to_le_bytes());
        record.extend_from_slice(&number.to_le_bytes());
        record.resize(size, b'.');
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

/// The producer of a record, and when it posted the record.
type Origin = (u32, Instant);

struct Log {
    journal: Journal<Origin>,
    told: Vec<Sender<()>>,
    /// No more commits.
    ends: bool,
    acknowledged: u64,
    commits: u64,
    latency_us: Histogram<u64>,
}

impl Log {
    fn new(journal: Journal<Origin>, told: Vec<Sender<()>>) -> io::Result<Log> {
        Ok(Log {
            journal,
            told,
            ends: false,
            acknowledged: 0,
            commits: 0,
            latency_us: Histogram::new_with_max(60_000_000, 3).map_err(io::Error::other)?,
        })
    }

    fn take(&mut self, watcher: &mut Watcher, c: Completion) -> io::Result<()> {
        if let Ok(Done::Message(message)) = c.result {
            let message: Record = message.downcast().expect("only records are posted");
            self.journal.append((message.producer, message.posted), &message.record);
        } else if let Step::Acknowledged(origins) = self.journal.handle(watcher, c)? {
            self.commits += 1;
            self.acknowledged += origins.len() as u64;
            for (producer, posted) in origins {
                self.latency_us.saturating_record(posted.elapsed().as_micros() as u64);
                self.told[producer as usize].send(()).expect("the producer waits for this");
            }
        }
        Ok(())
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
}

/// Opens the log. Returns where it begins to write.
fn open(
    watcher: &mut Watcher,
    done: &mut Completions,
    path: &Path,
) -> io::Result<(Journal<Origin>, u64)> {
    // Windows syncs no directories: FlushFileBuffers wants a handle that writes.
    let care = Care { syncs_directory: cfg!(not(windows)), ..Care::default() };
    let mut journal = Journal::open(watcher, path, care)?;
    let mut records = 0;
    loop {
        watcher.wait(done)?;
        for c in done.drain(..) {
            if matches!(c.result, Ok(Done::Signal(_))) {
                return Err(io::Error::new(io::ErrorKind::Interrupted, "told to end"));
            }
            match journal.handle(watcher, c)? {
                Step::Found(found) => records += found.len(),
                Step::Ready(end) => {
                    eprintln!("{records} records were there");
                    return Ok((journal, end));
                }
                _ => {}
            }
        }
    }
}

/// Checks that every acknowledged record is there: all numbers of each producer, from 0 on.
fn verify(path: &Path, start: u64, producers: u32, acknowledged: u64) -> io::Result<()> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(start))?;
    let (mut next, mut count, mut bytes) = (vec![0; producers as usize], 0, Vec::new());
    let word = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().expect("four bytes"));
    loop {
        let read = file.by_ref().take(1 << 20).read_to_end(&mut bytes)?;
        let mut records = Records { bytes: &bytes, compares_sums: true };
        for record in records.by_ref() {
            count += 1;
            let (producer, number) = (word(&record[..4]), word(&record[4..8]));
            match next.get_mut(producer as usize) {
                Some(next) if *next == number => *next += 1,
                _ => {
                    let text = format!("record {number} of {producer} is out of order");
                    return Err(io::Error::other(text));
                }
            }
        }
        let left = records.bytes.len();
        bytes.drain(..bytes.len() - left);
        if read == 0 {
            break;
        }
    }
    if count != acknowledged || !bytes.is_empty() {
        let text = format!("{count} of {acknowledged} records, then {} bytes", bytes.len());
        return Err(io::Error::other(text));
    }
    eprintln!("{count} records are there");
    Ok(())
}
