//! Random programs of file operations against a model of bytes, on every backend.
//!
//! Operations of one file keep no order among each other, so a program works in rounds: each writes
//! into parts of its files that do not overlap, reads others, and cancels, expires or aborts some
//! of it. What ended as done must be there; what ended otherwise may be there, or not, in any part.
//! `WINDLASS_SEED` and `WINDLASS_PROGRAMS` repeat a failure, which names them.
#![cfg(all(target_os = "linux", not(windlass_kqueue)))]
#![allow(missing_docs, unreachable_pub)] // a test binary has no users
#![allow(unsafe_code)] // the helpers look at raw descriptors

mod common;

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use common::files::*;
use common::*;
use proptest::prelude::*;
use windlass::fs::{DirReader, OpenOptions};
use windlass::{AlignedBuf, Buf, Completion, Done, ErrorKind, Op, Source, Ticket};

const FILES: usize = 3;
/// What direct I/O works in.
const BLOCK: usize = 4096;
const BLOCKS: usize = 16;

/// The operation on one block of a file, in a round.
#[derive(Clone, Debug)]
struct Step {
    file: usize,
    block: usize,
    what: What,
    end: End,
}

#[derive(Clone, Debug)]
enum What {
    /// Some bytes of the block; a direct file takes all of it.
    Write {
        from: usize,
        len: usize,
        value: u8,
    },
    /// The same in pieces.
    WriteList {
        pieces: usize,
        value: u8,
    },
    Read {
        len: usize,
    },
    ReadList,
    Sync,
    Metadata,
    Job,
}

/// How it is disturbed.
#[derive(Clone, Debug)]
enum End {
    Nothing,
    Cancel,
    Deadline(u64),
}

#[derive(Clone, Debug)]
struct Round {
    steps: Vec<Step>,
    /// A file that is aborted in the middle, and opened again.
    aborts: Option<usize>,
    cancels_all: Option<usize>,
    looks: bool,
}

fn step() -> impl Strategy<Value = Step> {
    let what = prop_oneof![
        4 => (0..BLOCK, 1..=BLOCK, 1u8..).prop_map(|(from, len, value)| {
            What::Write { from, len: len.min(BLOCK - from), value }
        }),
        1 => (1usize..40, 1u8..).prop_map(|(pieces, value)| What::WriteList { pieces, value }),
        4 => (1..=3 * BLOCK).prop_map(|len| What::Read { len }),
        1 => Just(What::ReadList),
        1 => Just(What::Sync),
        1 => Just(What::Metadata),
        1 => Just(What::Job),
    ];
    let end = prop_oneof![
        4 => Just(End::Nothing),
        1 => Just(End::Cancel),
        1 => (0u64..300_000).prop_map(End::Deadline),
    ];
    (0..FILES, 0..BLOCKS, what, end).prop_map(|(file, block, what, end)| Step {
        file,
        block,
        what,
        end,
    })
}

fn round() -> impl Strategy<Value = Round> {
    let steps = prop::collection::vec(step(), 1..40);
    let some = || prop::option::weighted(0.15, 0..FILES);
    (steps, some(), some(), any::<bool>()).prop_map(|(steps, aborts, cancels_all, looks)| Round {
        steps,
        aborts,
        cancels_all,
        looks,
    })
}

/// A byte of the model: what was written and is done, and what else may be there.
#[derive(Clone, Default)]
struct Byte {
    known: u8,
    perhaps: Vec<u8>,
    /// What it was in this round: a read may have been done before the write, and be told after it.
    past: Vec<u8>,
}

impl Byte {
    fn allows(&self, value: u8) -> bool {
        value == self.known || self.perhaps.contains(&value)
    }

    /// Whether this round has not touched it.
    fn is_certain(&self) -> bool {
        self.perhaps.is_empty() && self.past.is_empty()
    }

    fn allowed(&self, value: u8) -> bool {
        self.allows(value) || self.past.contains(&value)
    }
}

/// An operation in flight.
struct Flight {
    step: Step,
    from: usize,
    len: usize,
}

/// Where the files are.
enum Disk {
    Real(Directory),
    /// In the simulation of the bench.
    Simulated,
}

impl Disk {
    fn path(&self, file: usize) -> PathBuf {
        match self {
            Disk::Real(directory) => directory.at(format!("{file}")),
            Disk::Simulated => format!("{file}").into(),
        }
    }

    fn write(&self, file: usize, bytes: &[u8]) {
        match self {
            Disk::Real(_) => std::fs::write(self.path(file), bytes).unwrap(),
            Disk::Simulated => process::with_sim(|sim| sim.write_file(self.path(file), bytes)),
        }
    }

    fn read(&self, file: usize) -> Vec<u8> {
        match self {
            Disk::Real(_) => std::fs::read(self.path(file)).unwrap(),
            Disk::Simulated => process::with_sim(|sim| sim.read_file(self.path(file)).unwrap()),
        }
    }
}

struct Program<H: Harness> {
    b: Bench<H::Driver>,
    disk: Disk,
    sources: Vec<Source>,
    model: Vec<Vec<Byte>>,
    flights: HashMap<Ticket, Flight>,
    /// Parts that this round has written.
    taken: Vec<(usize, usize)>,
    /// Operations that failed because of the disk.
    failures: u32,
}

/// The second file bypasses the page cache.
fn is_direct(file: usize) -> bool {
    file == 1
}

impl<H: Harness> Program<H> {
    fn new(disk: Disk) -> Self {
        let b = H::bench_with(windlass::Watcher::builder().threads(2));
        let model = vec![vec![Byte::default(); BLOCK * BLOCKS]; FILES];
        let (sources, flights) = (Vec::new(), HashMap::new());
        let mut program =
            Program { b, disk, sources, model, flights, taken: Vec::new(), failures: 0 };
        for file in 0..FILES {
            program.disk.write(file, &[0; BLOCK * BLOCKS]);
            let source = program.open(file);
            program.sources.push(source);
        }
        program
    }

    fn open(&mut self, file: usize) -> Source {
        let path = self.disk.path(file);
        let options = OpenOptions::new().read(true).write(true).direct(is_direct(file));
        self.b.open_file(path, options)
    }

    fn begin(&mut self, step: Step) {
        let Step { file, block, .. } = step;
        let (source, direct, start) = (self.sources[file], is_direct(file), block * BLOCK);
        let fill = |value: u8, len: usize| vec![value; len];
        let (mut from, mut len) = (start, 0);
        let op = match step.what {
            What::Write { .. } | What::WriteList { .. } if self.taken.contains(&(file, block)) => {
                return;
            }
            What::Write { from: at, len: count, value } => {
                (from, len) = if direct { (start, BLOCK) } else { (start + at, count) };
                let bytes = fill(value, len);
                let buf = match direct {
                    true => Buf::from(AlignedBuf::from_slice(&bytes, BLOCK)),
                    false => Buf::from(bytes),
                };
                Op::write_at(source, buf, from as u64)
            }
            What::WriteList { pieces, value } => {
                len = BLOCK;
                let list = match direct {
                    true => Buf::list([AlignedBuf::from_slice(&fill(value, BLOCK), BLOCK)]),
                    false => {
                        let bytes = fill(value, BLOCK);
                        Buf::list(bytes.chunks(BLOCK.div_ceil(pieces)).map(<[u8]>::to_vec))
                    }
                };
                Op::write_at(source, list, start as u64)
            }
            What::Read { len: count } => {
                len = if direct { count.next_multiple_of(BLOCK) } else { count };
                let buf = match direct {
                    true => Buf::from(AlignedBuf::with_capacity(len, BLOCK)),
                    false => Buf::from(room(len)),
                };
                Op::read_at(source, buf, start as u64)
            }
            What::ReadList => {
                len = 2 * BLOCK;
                let part = || Buf::from(AlignedBuf::with_capacity(BLOCK, BLOCK));
                Op::read_at(source, Buf::list([part(), part()]), start as u64)
            }
            What::Sync if block % 2 == 0 => Op::sync_all(source),
            What::Sync => Op::sync_data(source),
            What::Metadata => Op::metadata(source),
            What::Job => Op::run(|| HELD),
        };
        let op = match step.end {
            End::Deadline(ns) => op.timeout(Duration::from_nanos(ns)),
            _ => op,
        };
        let cancel = matches!(step.end, End::Cancel);
        if let What::Write { value, .. } | What::WriteList { value, .. } = step.what {
            self.taken.push((file, block));
            // From here on it may be there.
            self.model[file][from..from + len].iter_mut().for_each(|b| b.perhaps.push(value));
        }
        let ticket = self.b.submit(op);
        self.flights.insert(ticket, Flight { step, from, len });
        if cancel {
            self.b.watcher.cancel(ticket);
        }
    }

    fn ended(&mut self, c: Completion) {
        let flight = self.flights.remove(&c.ticket()).expect("it was in flight");
        let Flight { step, from, len } = flight;
        let model = &mut self.model[step.file];
        let (bytes, late) = (c.bytes(), c.is_late());
        match (&step.what, c.result) {
            (
                What::Write { value, .. } | What::WriteList { value, .. },
                Ok(Done::Written { buf, bytes }),
            ) => {
                assert_eq!((bytes as usize, buf.len()), (len, len));
                for byte in &mut model[from..from + len] {
                    byte.past.push(byte.known);
                    byte.known = *value;
                    byte.perhaps.clear();
                }
            }
            (What::Read { .. } | What::ReadList, Ok(Done::Read(data))) => {
                let end = (from + len).min(BLOCK * BLOCKS);
                assert_eq!(data.len(), end - from, "a read goes to its end");
                let got: Vec<u8> = match data.parts().len() {
                    0 | 1 => data.to_vec(),
                    _ => data.parts().iter().flat_map(|part| part.to_vec()).collect(),
                };
                for (i, (byte, value)) in model[from..end].iter().zip(got).enumerate() {
                    assert!(byte.allowed(value), "byte {} of {step:?} is {value}", from + i);
                }
            }
            (What::Sync, Ok(Done::Finished)) | (What::Metadata, Ok(Done::Metadata(_))) => {}
            (What::Job, Ok(Done::Returned(_))) => {}
            (what, Err(error)) => {
                let of_the_disk = [libc::EIO, libc::ENOSPC].map(ErrorKind::Os);
                let fails = H::STAMP == "failing_disk" && of_the_disk.contains(&error.kind());
                self.failures += u32::from(fails);
                let as_it_ends = !late || fails;
                assert!(as_it_ends, "work that has begun ends as it ends: {step:?}: {error:?}");
                let wanted = [ErrorKind::Cancelled, ErrorKind::Deadline, ErrorKind::Aborted];
                assert!(fails || wanted.contains(&error.kind()), "{step:?}: {error:?}");
                let buf = error.into_buf();
                match what {
                    What::Write { .. } | What::WriteList { .. } => {
                        assert_eq!(buf.len(), len, "the buffer is back");
                        if bytes == 0 {
                            // Nothing of it is there.
                            let (What::Write { value, .. } | What::WriteList { value, .. }) = what
                            else {
                                unreachable!()
                            };
                            for byte in &mut model[from..from + len] {
                                byte.perhaps.retain(|perhaps| perhaps != value);
                            }
                        }
                    }
                    What::Read { .. } | What::ReadList => assert!(buf.capacity() >= len),
                    _ => assert_eq!(bytes, 0),
                }
            }
            (what, other) => panic!("{what:?} ended as {other:?}"),
        }
    }

    fn settle(&mut self) {
        while !self.flights.is_empty() {
            let c = self.b.next();
            self.ended(c);
        }
        self.taken.clear();
    }

    /// Answers how many operations failed because of the disk.
    fn run(&mut self, rounds: Vec<Round>) -> u32 {
        for round in rounds {
            let half = round.steps.len() / 2;
            for (i, step) in round.steps.into_iter().enumerate() {
                self.begin(step);
                if i == half && round.looks {
                    self.b.look();
                }
                if i == half
                    && let Some(file) = round.cancels_all
                {
                    self.b.watcher.cancel_all(self.sources[file]);
                }
                if i == half
                    && let Some(file) = round.aborts
                {
                    assert!(self.b.watcher.abort(self.sources[file]));
                    // Its work may go on: what is written now is another round's.
                    self.settle();
                    self.sources[file] = self.open(file);
                }
            }
            self.settle();
            for file in 0..FILES {
                let bytes = self.disk.read(file);
                assert_eq!(bytes.len(), BLOCK * BLOCKS);
                for (i, (byte, value)) in self.model[file].iter_mut().zip(bytes).enumerate() {
                    if byte.known == value && byte.is_certain() {
                        continue;
                    }
                    assert!(byte.allows(value), "byte {i} of file {file} is {value}");
                    // It stays what it is.
                    *byte = Byte { known: value, ..Byte::default() };
                }
            }
        }
        self.b.expect_all_ended();
        let counters = self.b.watcher.counters();
        assert_eq!(counters.submitted, counters.completed, "every operation ends once");
        self.failures
    }
}

/// The same in a simulation. What failed is checked, too: where writes told that they moved
/// nothing, nothing of them is there. (A write whose rest went to threads, and was cancelled there,
/// told so although a part of it was out.)
fn simulated_programs<H: Harness>() {
    let failures = std::cell::Cell::new(0);
    let strategy = prop::collection::vec(round(), 1..6);
    programs::random(&format!("files, {}", H::STAMP), 40, 20, &strategy, |rounds| {
        failures.set(failures.get() + Program::<H>::new(Disk::Simulated).run(rounds));
        Ok(())
    });
    let programs = seeds::setting::<u64>("WINDLASS_PROGRAMS").is_none();
    assert!(failures.get() > 0 || H::STAMP != "failing_disk" || !programs, "the disk never fails");
}

fn random_programs<H: Harness>() {
    let strategy = prop::collection::vec(round(), 1..6);
    programs::random(&format!("files, {}", H::STAMP), 6, 6, &strategy, |rounds| {
        for directory in directories() {
            if !takes_direct(&directory) {
                skip(Needs::Direct, format_args!("O_DIRECT in {}", directory.path().display()));
                continue;
            }
            Program::<H>::new(Disk::Real(directory)).run(rounds.clone());
        }
        Ok(())
    });
}

fn takes_direct(directory: &Directory) -> bool {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = std::fs::File::options();
    options.write(true).create(true).custom_flags(libc::O_DIRECT);
    options.open(directory.at("direct")).is_ok()
}

#[test]
fn random_programs_in_a_simulation() {
    simulated_programs::<Simulated>();
    simulated_programs::<Faulty>();
}

#[test]
fn random_programs_in_a_simulation_that_completes() {
    simulated_programs::<Completing>();
    simulated_programs::<FaultyCompleting>();
}

#[test]
fn random_programs_on_a_disk_that_fails() {
    simulated_programs::<FailingDisk>();
}

#[test]
fn random_programs_on_epoll_with_aio() {
    random_programs::<EpollAio>();
}

#[test]
fn random_programs_on_epoll_with_a_ring() {
    random_programs::<EpollUring>();
}

#[test]
fn random_programs_on_epoll_with_threads() {
    random_programs::<EpollPool>();
}

#[test]
fn random_programs_on_a_ring() {
    random_programs::<UringFiles>();
}

#[test]
fn random_programs_on_a_ring_with_threads() {
    random_programs::<UringPool>();
}

#[test]
fn random_programs_on_poll() {
    random_programs::<PollPool>();
}

/// C9: one operation reads a bounded number of names; parts read the others.
#[test]
fn a_directory_beyond_the_bound_is_told_and_read_in_parts() {
    const MOST: usize = 65_536;
    let d = directories().pop().unwrap();
    let mut b = EpollPool::bench();
    let make = |i: usize| drop(std::fs::File::create(d.at(format!("{i}"))).unwrap());
    (0..MOST).for_each(make);
    let c = b.run(Op::read_dir(d.path()));
    assert!(matches!(&c.result, Ok(Done::Entries(all)) if all.len() == MOST));
    make(MOST);
    let c = b.run(Op::read_dir(d.path()));
    assert_eq!(c.error_kind(), Some(ErrorKind::TooManyEntries));
    assert!(c.result.unwrap_err().to_string().contains("65536"));
    let mut names = std::collections::HashSet::new();
    let mut next = Some(DirReader::new(d.path()));
    while let Some(reader) = next {
        let c = b.run(Op::read_dir_part(reader, usize::MAX));
        let Ok(Done::Part(part)) = c.result else { panic!("wanted a part: {c:?}") };
        assert!(part.entries.len() <= MOST);
        names.extend(part.entries.into_iter().map(|entry| entry.name));
        next = part.rest;
    }
    assert_eq!(names.len(), MOST + 1);
    b.expect_all_ended();
}
