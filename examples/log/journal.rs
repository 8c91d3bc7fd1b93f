//! The log: its records on a file, group commit, and recovery after a crash.
//!
//! ```text
//!   open ─▶ read, and write again ─▶ cut ─▶ sync ─▶ sync the directory ─▶ ready
//!   append ─▶ waiting ─commit: one write─▶ written ─one sync─▶ acknowledged
//! ```
//!
//! A record is its length, the CRC-32 of its bytes, and its bytes.
//!
//! Three promises: (1) a record is acknowledged when the sync that covers it has ended, and the
//! name of the file is on the disk by then. (2) Before the first append, the file ends behind the
//! last whole record, and this length is on the disk: so no old record can follow a new one. (3) A
//! failed write or sync ends the log. The page cache may then have bytes that the disk does not
//! have, and the next sync would not tell. A process that is killed in a sync may leave the same.
//! So recovery writes what it finds again, before its sync.
//!
//! All its time and input comes from the watcher. So `tests/durability.rs` runs this module in a
//! simulation, and crashes it at any step.

use std::io;
use std::path::{Path, PathBuf};

use windlass::fs::OpenOptions;
use windlass::{Buf, Completion, Done, Op, Source, Watcher};

/// The length and the checksum of the bytes that follow.
const HEAD: usize = 8;
/// The longest record, in bytes.
pub(crate) const MOST: usize = 1 << 20;
/// Most records in a commit: one writev(2) takes as many.
const TOGETHER: usize = 1024;
/// The bytes that recovery reads at a time.
const STEP: usize = 64 << 10;

/// What makes the log durable. The tests turn off one at a time, to show that they would find it.
#[derive(Clone, Copy)]
pub(crate) struct Care {
    /// The name of a new file is on the disk before the first record is acknowledged.
    pub(crate) syncs_directory: bool,
    /// A record is acknowledged behind the sync, not behind the write.
    pub(crate) acknowledges_after_sync: bool,
    /// Recovery compares checksums. Without them a length decides what a whole record is.
    pub(crate) compares_sums: bool,
    /// Recovery writes again what it finds, so that its sync covers it.
    pub(crate) writes_again: bool,
}

impl Default for Care {
    fn default() -> Care {
        Care {
            syncs_directory: true,
            acknowledges_after_sync: true,
            compares_sums: true,
            writes_again: true,
        }
    }
}

/// What the log waits for.
enum Stage {
    Opening,
    /// A part of the file from `at` on. The bytes before it that are no whole record yet are
    /// `rest`.
    Reading {
        at: u64,
        rest: Vec<u8>,
    },
    /// What was read is written again. Then goes on at this place, or cuts.
    Rewriting {
        next: Option<(u64, Vec<u8>)>,
    },
    Cutting,
    SyncingCut,
    OpeningDirectory,
    SyncingDirectory {
        directory: Source,
    },
    Ready,
    Writing,
    Syncing,
}

/// What a completion has brought about.
pub(crate) enum Step<T> {
    /// Nothing that the program has to know.
    Nothing,
    /// Recovery has found these records. They are not on the disk for sure before the log is ready.
    Found(Vec<Vec<u8>>),
    /// The log is ready for records, and begins to write at this offset.
    Ready(u64),
    /// These records are on the disk.
    Acknowledged(Vec<T>),
}

/// A log on a file. Each record has a `T`, which comes back when the record is on the disk.
pub(crate) struct Journal<T> {
    path: PathBuf,
    care: Care,
    stage: Stage,
    file: Source,
    /// The offset of the next commit.
    end: u64,
    /// Records that wait for the next commit.
    waiting: Vec<(T, Vec<u8>)>,
    /// What belongs to the records of the current commit.
    committing: Vec<T>,
}

impl<T> Journal<T> {
    /// Opens the log at `path`, or makes it. The completions of its operations go to
    /// [`handle`](Journal::handle), which returns the records that are there, and then says that
    /// the log is ready.
    pub(crate) fn open(
        watcher: &mut Watcher,
        path: impl Into<PathBuf>,
        care: Care,
    ) -> io::Result<Journal<T>> {
        let path = path.into();
        let options = OpenOptions::new().read(true).write(true).create(true);
        watcher.submit(Op::open(&path, options))?;
        Ok(Journal {
            path,
            care,
            stage: Stage::Opening,
            file: Source::NONE,
            end: 0,
            waiting: Vec::new(),
            committing: Vec::new(),
        })
    }

    /// Adds a record to the next commit.
    pub(crate) fn append(&mut self, of: T, record: &[u8]) {
        assert!((1..=MOST).contains(&record.len()), "a record has 1 to {MOST} bytes");
        let mut framed = Vec::with_capacity(HEAD + record.len());
        framed.extend_from_slice(&(record.len() as u32).to_le_bytes());
        framed.extend_from_slice(&crc32fast::hash(record).to_le_bytes());
        framed.extend_from_slice(record);
        self.waiting.push((of, framed));
    }

    /// Whether a commit is in flight.
    pub(crate) fn is_busy(&self) -> bool {
        matches!(self.stage, Stage::Writing | Stage::Syncing)
    }

    /// Writes the records that wait, if the log is ready and no commit is in flight.
    pub(crate) fn commit(&mut self, watcher: &mut Watcher) -> io::Result<()> {
        if !matches!(self.stage, Stage::Ready) || self.waiting.is_empty() {
            return Ok(());
        }
        let count = self.waiting.len().min(TOGETHER);
        let mut parts = Vec::with_capacity(count);
        for (of, record) in self.waiting.drain(..count) {
            self.committing.push(of);
            parts.push(record);
        }
        watcher.submit(Op::write_at(self.file, Buf::list(parts), self.end))?;
        self.stage = Stage::Writing;
        Ok(())
    }

    /// Takes the end of an operation of the log, and begins the next one.
    ///
    /// # Errors
    /// The operation has failed. The log is of no use any more (promise 3).
    pub(crate) fn handle(&mut self, watcher: &mut Watcher, c: Completion) -> io::Result<Step<T>> {
        let stage = std::mem::replace(&mut self.stage, Stage::Ready);
        self.stage = match (stage, c.result?) {
            (Stage::Opening, Done::Opened(file)) => {
                self.file = watcher.attach(file)?;
                self.read(watcher, 0, Vec::new())?
            }
            (Stage::Reading { at, rest }, Done::Read(data)) => {
                return self.recover(watcher, at, rest, &data);
            }
            (Stage::Rewriting { next }, Done::Written { .. }) => self.go_on(watcher, next)?,
            (Stage::Cutting, Done::Finished) => {
                watcher.submit(Op::sync_data(self.file))?;
                Stage::SyncingCut
            }
            (Stage::SyncingCut, Done::Finished) if self.care.syncs_directory => {
                let parent = self.path.parent().filter(|path| *path != Path::new(""));
                let directory = parent.unwrap_or(Path::new("."));
                watcher.submit(Op::open(directory, OpenOptions::new().read(true)))?;
                Stage::OpeningDirectory
            }
            (Stage::SyncingCut, Done::Finished) => return Ok(Step::Ready(self.end)),
            (Stage::OpeningDirectory, Done::Opened(directory)) => {
                let directory = watcher.attach(directory)?;
                watcher.submit(Op::sync_all(directory))?;
                Stage::SyncingDirectory { directory }
            }
            (Stage::SyncingDirectory { directory }, Done::Finished) => {
                watcher.abort(directory);
                return Ok(Step::Ready(self.end));
            }
            (Stage::Writing, Done::Written { bytes, .. }) => {
                self.end += u64::from(bytes);
                watcher.submit(Op::sync_data(self.file))?;
                self.stage = Stage::Syncing;
                if !self.care.acknowledges_after_sync {
                    return Ok(Step::Acknowledged(std::mem::take(&mut self.committing)));
                }
                return Ok(Step::Nothing);
            }
            (Stage::Syncing, Done::Finished) => {
                return Ok(Step::Acknowledged(std::mem::take(&mut self.committing)));
            }
            (_, other) => unreachable!("not asked for: {other:?}"),
        };
        Ok(Step::Nothing)
    }

    fn read(&mut self, watcher: &mut Watcher, at: u64, rest: Vec<u8>) -> io::Result<Stage> {
        watcher.submit(Op::read_at(self.file, Vec::with_capacity(STEP), at))?;
        Ok(Stage::Reading { at, rest })
    }

    /// Takes the records out of a part of the file, and writes them again.
    fn recover(
        &mut self,
        watcher: &mut Watcher,
        at: u64,
        mut rest: Vec<u8>,
        data: &[u8],
    ) -> io::Result<Step<T>> {
        rest.extend_from_slice(data);
        let mut records = Records { bytes: &rest, compares_sums: self.care.compares_sums };
        let found: Vec<_> = records.by_ref().map(<[u8]>::to_vec).collect();
        self.end += found.iter().map(|record| (HEAD + record.len()) as u64).sum::<u64>();
        let (is_last, left) = (data.is_empty() || records.is_damaged(), records.bytes.len());
        let whole: Vec<u8> = rest.drain(..rest.len() - left).collect();
        let next = if is_last { None } else { Some((at + data.len() as u64, rest)) };
        self.stage = if whole.is_empty() || !self.care.writes_again {
            self.go_on(watcher, next)?
        } else {
            let from = self.end - whole.len() as u64;
            watcher.submit(Op::write_at(self.file, whole, from))?;
            Stage::Rewriting { next }
        };
        Ok(Step::Found(found))
    }

    /// Reads the next part. Behind the last one, cuts off what is not a whole record.
    fn go_on(&mut self, watcher: &mut Watcher, next: Option<(u64, Vec<u8>)>) -> io::Result<Stage> {
        if let Some((at, rest)) = next {
            return self.read(watcher, at, rest);
        }
        watcher.submit(Op::set_len(self.file, self.end))?;
        Ok(Stage::Cutting)
    }
}

/// The whole records at the beginning of some bytes.
pub(crate) struct Records<'a> {
    /// What is left.
    pub(crate) bytes: &'a [u8],
    pub(crate) compares_sums: bool,
}

impl Records<'_> {
    /// The length that the head at the beginning says, and the sum; `None` for a part of a head.
    fn head(&self) -> Option<(usize, u32)> {
        let word = |bytes: &[u8]| Some(u32::from_le_bytes(bytes.try_into().ok()?));
        Some((word(self.bytes.get(..4)?)? as usize, word(self.bytes.get(4..HEAD)?)?))
    }

    /// Whether more bytes would make no whole record of what is left.
    pub(crate) fn is_damaged(&self) -> bool {
        self.head()
            .is_some_and(|(len, _)| !(1..=MOST).contains(&len) || self.bytes.len() >= HEAD + len)
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let (len, sum) = self.head()?;
        if !(1..=MOST).contains(&len) {
            return None;
        }
        let record = self.bytes.get(HEAD..HEAD + len)?;
        if self.compares_sums && crc32fast::hash(record) != sum {
            return None;
        }
        self.bytes = &self.bytes[HEAD + len..];
        Some(record)
    }
}
