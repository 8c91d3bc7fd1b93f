//! The file of the log: groups of commands, and recovery after a crash.
//!
//! ```text
//! #serve_redis log 1 SALT CHECK       once, at the beginning
//! #group NUMBER LENGTH SUM CHECK      for the writes that were synced together
//! *3 $3 SET $1 k $1 v                 the writes, as arrays of strings; in the file with CR and LF
//! ```
//!
//! All numbers of these lines are hexadecimal. Groups are counted from 0 on. LENGTH and SUM are
//! those of the writes of the group, in bytes and as CRC-32. CHECK is the CRC-32 of its line, and
//! in a group also of the salt. For Redis 7 a line that begins with `#` is a remark, so
//! redis-check-aof reads the log, too.
//!
//! Four promises. (1) A group is written when the one before is on the disk, and it is
//! acknowledged when it is there itself, with the name of the file. (2) Recovery takes whole groups
//! only. It cuts off one group at most: the last one, if a crash has torn it. The bytes that it
//! cuts off are in `FILE.cut` before. (3) Any other damage is an error, which names the place, and
//! the log stays as it is. (4) A failed write or sync ends the log. The page cache may then have
//! bytes that the disk does not have, and the next sync would not tell. So recovery writes the last
//! group again, before its sync.
//!
//! # Why
//! A crash keeps or loses the sectors that no sync has covered, each on its own. So the tail of the
//! log can have zeros in its middle, and bytes that make sense behind them. Without a sum, a lost
//! sector within a value would go unnoticed.
//!
//! A torn group must not be confused with damage, which cuts off what was acknowledged. If anything
//! stands behind a group that is not whole, then this group was on the disk once. Its head says
//! where it ends. If the head is torn, a whole head further on shows the same. (The salt keeps a
//! client from writing a value that passes for a head.) Damage is taken for a torn group in two
//! cases only: it is in the last group, or it leaves no head up to the end of the file.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};

use memchr::memmem;
use windlass::fs::OpenOptions;
use windlass::{Buf, Completion, Done, Op, Source, Watcher};
use windlass_serve::framing::{Decoder, Scan};

use crate::resp::{Commands, MOST_BULK};
use crate::store::Store;

/// The token of a journal's operations.
pub(crate) const TOKEN: u64 = 1;

/// The bytes that recovery reads and writes at a time, and the most bytes of a write: an operation
/// takes less than 2 GiB. (Tests have groups of several writes, and heads in two reads.)
const STEP: usize = if cfg!(test) { 999 } else { 1 << 20 };
const MOST_WRITE: usize = if cfg!(test) { 5000 } else { 1 << 30 };

/// How the first line begins, and its length.
const TITLE: &str = "#serve_redis log 1 ";
pub(crate) const TITLE_LEN: usize = TITLE.len() + 8 + 1 + 8 + 2;
/// How the head of a group begins, and its length.
const GROUP: &str = "#group ";
pub(crate) const HEAD_LEN: usize = GROUP.len() + 12 + 1 + 12 + 1 + 8 + 1 + 8 + 2;

/// What makes the log durable. The tests turn off one at a time, to show that they would find it.
#[derive(Clone, Copy)]
pub(crate) struct Care {
    /// The name of a new file is on the disk before the first group is acknowledged.
    pub(crate) syncs_directory: bool,
    /// A group is acknowledged behind the sync, not behind the write.
    pub(crate) acknowledges_after_sync: bool,
    /// Recovery compares sums. Without them a length decides what a whole group is.
    pub(crate) compares_sums: bool,
    /// Recovery writes the last group again, so that its sync covers it.
    pub(crate) writes_again: bool,
}

impl Default for Care {
    fn default() -> Care {
        Care {
            // Windows syncs no directories: FlushFileBuffers wants a handle that writes.
            syncs_directory: cfg!(not(windows)),
            acknowledges_after_sync: true,
            compares_sums: true,
            writes_again: true,
        }
    }
}

/// A log that is ready for groups.
#[derive(Debug)]
pub(crate) struct Journal {
    file: Source,
    salt: u32,
    /// Where the next write begins.
    end: u64,
    /// The number of the next group.
    number: u64,
    stage: Stage,
    acknowledges_after_sync: bool,
}

#[derive(Debug)]
enum Stage {
    Ready,
    /// A write is in flight, and these follow.
    Writing(VecDeque<Buf>),
    Syncing,
}

/// What recovery has cut off the end of a log.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    /// Where it stood in the log.
    pub(crate) at: u64,
    pub(crate) bytes: u64,
    /// The file that has these bytes at its end now.
    pub(crate) kept_in: PathBuf,
}

/// Does an operation, and waits for its end.
pub(crate) fn run(watcher: &mut Watcher, op: Op) -> io::Result<Done> {
    let ticket = watcher.submit(op)?;
    Ok(watcher.wait_for(ticket)?.result?)
}

impl Journal {
    /// Opens the log at `path`, or makes it with this salt, and carries out its commands. Cuts off
    /// a torn group at its end.
    ///
    /// `run` does one operation: tests stop here at any step.
    ///
    /// # Errors
    /// The errors of the file, and `InvalidData` if it is no log, or is damaged. Then it stays as
    /// it is.
    pub(crate) fn open(
        watcher: &mut Watcher,
        run: &mut impl FnMut(&mut Watcher, Op) -> io::Result<Done>,
        path: &Path,
        salt: u32,
        care: Care,
        store: &mut Store,
    ) -> io::Result<(Journal, Option<Cut>)> {
        let mut disk = Disk { watcher, run };
        let file = disk.open(path, OpenOptions::new().read(true).write(true).create(true))?;
        let mut replay = Replay::new(store, care.compares_sums);
        let mut read = 0;
        loop {
            let part = disk.read(file, read, STEP)?;
            if part.is_empty() {
                break;
            }
            read += part.len() as u64;
            replay.push(&part)?;
        }
        let Found { salt: old_salt, number, last, end, torn } = replay.finish()?;
        let cut = match torn.len() as u64 {
            0 => None,
            bytes => {
                let kept_in = disk.keep(path, torn)?;
                Some(Cut { at: end, bytes, kept_in })
            }
        };
        if care.syncs_directory {
            // A sync of a file does not cover its name.
            let parent = path.parent().filter(|path| *path != Path::new(""));
            let directory =
                disk.open(parent.unwrap_or(Path::new(".")), OpenOptions::new().read(true))?;
            disk.run(Op::sync_all(directory))?;
            disk.watcher.abort(directory);
        }
        let (salt, end) = match old_salt {
            Some(old_salt) => {
                if care.writes_again {
                    disk.write_again(file, last, end)?;
                }
                (old_salt, end)
            }
            None => {
                disk.run(Op::write_at(file, title(salt), 0))?;
                (salt, TITLE_LEN as u64)
            }
        };
        disk.run(Op::set_len(file, end))?;
        disk.run(Op::sync_data(file))?;
        let acknowledges_after_sync = care.acknowledges_after_sync;
        let stage = Stage::Ready;
        Ok((Journal { file, salt, end, number, stage, acknowledges_after_sync }, cut))
    }

    /// Begins to write a group of commands. The one before must be on the disk.
    pub(crate) fn append(&mut self, watcher: &mut Watcher, commands: Vec<u8>) -> io::Result<()> {
        let (len, sum) = (commands.len() as u64, crc32fast::hash(&commands));
        let head = Head { number: self.number, len, sum }.line(self.salt);
        self.number += 1;
        let (mut rest, mut parts) = (commands, Vec::new());
        while rest.len() > MOST_WRITE {
            let behind = rest.split_off(MOST_WRITE);
            parts.push(std::mem::replace(&mut rest, behind));
        }
        parts.push(rest);
        let mut writes: VecDeque<Buf> = parts.into_iter().map(Buf::from).collect();
        let first = writes.pop_front().unwrap_or_default();
        writes.push_front(Buf::list([head.into(), first]));
        self.write_next(watcher, writes)
    }

    /// Takes the end of an operation, and begins the next one. True if the group is acknowledged.
    ///
    /// # Errors
    /// The operation has failed. The log is of no use any more (promise 4).
    pub(crate) fn handle(&mut self, watcher: &mut Watcher, c: Completion) -> io::Result<bool> {
        match (std::mem::replace(&mut self.stage, Stage::Ready), c.result?) {
            (Stage::Writing(writes), Done::Written { bytes, .. }) => {
                self.end += u64::from(bytes);
                let is_last = writes.is_empty();
                self.write_next(watcher, writes)?;
                Ok(is_last && !self.acknowledges_after_sync)
            }
            (Stage::Syncing, Done::Finished) => Ok(self.acknowledges_after_sync),
            (stage, other) => unreachable!("not asked for in {stage:?}: {other:?}"),
        }
    }

    /// Whether the next group can be written.
    pub(crate) fn is_ready(&self) -> bool {
        matches!(self.stage, Stage::Ready)
    }

    fn write_next(&mut self, watcher: &mut Watcher, mut writes: VecDeque<Buf>) -> io::Result<()> {
        (self.stage, _) = match writes.pop_front() {
            Some(next) => {
                let op = Op::write_at(self.file, next, self.end).token(TOKEN);
                (Stage::Writing(writes), watcher.submit(op)?)
            }
            None => (Stage::Syncing, watcher.submit(Op::sync_data(self.file).token(TOKEN))?),
        };
        Ok(())
    }
}

/// The operations of a recovery, one after the other.
struct Disk<'a, R> {
    watcher: &'a mut Watcher,
    run: &'a mut R,
}

impl<R: FnMut(&mut Watcher, Op) -> io::Result<Done>> Disk<'_, R> {
    fn run(&mut self, op: Op) -> io::Result<Done> {
        (self.run)(self.watcher, op)
    }

    fn open(&mut self, path: &Path, options: OpenOptions) -> io::Result<Source> {
        match self.run(Op::open(path, options))? {
            Done::Opened(file) => Ok(self.watcher.attach(file)?),
            other => unreachable!("not asked for: {other:?}"),
        }
    }

    fn read(&mut self, file: Source, at: u64, most: usize) -> io::Result<Buf> {
        match self.run(Op::read_at(file, Vec::with_capacity(most), at))? {
            Done::Read(data) => Ok(data),
            other => unreachable!("not asked for: {other:?}"),
        }
    }

    /// Writes the bytes of the file from `at` to `end` again.
    fn write_again(&mut self, file: Source, mut at: u64, end: u64) -> io::Result<()> {
        while at < end {
            let most = usize::try_from(end - at).map_or(STEP, |left| left.min(STEP));
            let part = self.read(file, at, most)?;
            if part.is_empty() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let len = part.len() as u64;
            self.run(Op::write_at(file, part, at))?;
            at += len;
        }
        Ok(())
    }

    /// Puts a torn group behind the bytes of the file `PATH.cut`, and on the disk.
    fn keep(&mut self, path: &Path, torn: Vec<u8>) -> io::Result<PathBuf> {
        let mut kept_in = path.as_os_str().to_owned();
        kept_in.push(".cut");
        let kept_in = PathBuf::from(kept_in);
        let file = self.open(&kept_in, OpenOptions::new().write(true).create(true))?;
        let Done::Metadata(metadata) = self.run(Op::metadata(file))? else {
            unreachable!("a file has attributes");
        };
        let mut at = metadata.size;
        for part in torn.chunks(MOST_WRITE) {
            self.run(Op::write_at(file, part.to_vec(), at))?;
            at += part.len() as u64;
        }
        self.run(Op::sync_data(file))?;
        self.watcher.abort(file);
        Ok(kept_in)
    }
}

/// Reads a log: carries out the commands of its whole groups.
struct Replay<'a> {
    store: &'a mut Store,
    compares_sums: bool,
    /// None until the first line was read.
    salt: Option<u32>,
    /// Bytes of the log. Those before `start` are replayed, and `at` is the offset of the next one.
    bytes: Vec<u8>,
    start: usize,
    at: u64,
    /// The number of the next group.
    number: u64,
    /// Where the last whole group begins, or the first line.
    last: u64,
    /// The next group has no whole head. Up to this index no other head was found.
    searched: Option<usize>,
}

/// What a log has.
struct Found {
    /// None in a new log.
    salt: Option<u32>,
    /// The number of the next group.
    number: u64,
    /// Where the last whole group begins, or the first line.
    last: u64,
    /// Where it ends.
    end: u64,
    /// The bytes of a torn group.
    torn: Vec<u8>,
}

impl<'a> Replay<'a> {
    fn new(store: &'a mut Store, compares_sums: bool) -> Replay<'a> {
        Replay {
            store,
            compares_sums,
            salt: None,
            bytes: Vec::new(),
            start: 0,
            at: 0,
            number: 0,
            last: 0,
            searched: None,
        }
    }

    /// Takes in the next bytes of the log.
    fn push(&mut self, part: &[u8]) -> io::Result<()> {
        if self.searched.is_none() {
            self.bytes.drain(..std::mem::take(&mut self.start));
        }
        self.bytes.extend_from_slice(part);
        if self.salt.is_none() && self.bytes.len() > TITLE_LEN && !self.take_title() {
            return Err(wrong(0, "no log of serve_redis begins here"));
        }
        let Some(salt) = self.salt else { return Ok(()) };
        while self.searched.is_none() {
            let rest = &self.bytes[self.start..];
            if rest.len() < HEAD_LEN {
                return Ok(());
            }
            let Some(head) = Head::read(rest, salt, self.compares_sums) else {
                self.searched = Some(self.start);
                break;
            };
            let Head { number, len, sum } = head;
            if number != self.number && self.compares_sums {
                let text = format!("group {number} stands in the place of group {}", self.number);
                return Err(wrong(self.at, &text));
            }
            let len = usize::try_from(len).unwrap_or(usize::MAX);
            let Some(commands) = rest[HEAD_LEN..].get(..len) else { return Ok(()) };
            if self.compares_sums && crc32fast::hash(commands) != sum {
                if rest.len() == HEAD_LEN + len {
                    return Ok(()); // it is torn, if it is the last one
                }
                let end = self.at + (HEAD_LEN + len) as u64;
                let text = format!("its group is damaged, and more follows it from byte {end} on");
                return Err(wrong(self.at, &text));
            }
            replay(commands, self.at + HEAD_LEN as u64, self.store)?;
            self.number += 1;
            self.take(HEAD_LEN + len);
        }
        self.search(salt)
    }

    /// Looks for the head of a group behind one that has none.
    fn search(&mut self, salt: u32) -> io::Result<()> {
        let Some(from) = self.searched else { return Ok(()) };
        for found in memmem::find_iter(&self.bytes[from..], GROUP) {
            let (index, at) = (from + found, self.at + (from + found - self.start) as u64);
            if Head::read(&self.bytes[index..], salt, self.compares_sums).is_some() {
                let text = format!("its group is damaged, and another one follows it at byte {at}");
                return Err(wrong(self.at, &text));
            }
        }
        self.searched = Some(from.max(self.bytes.len().saturating_sub(HEAD_LEN - 1)));
        Ok(())
    }

    /// The log has no more bytes.
    fn finish(mut self) -> io::Result<Found> {
        if self.salt.is_none() && !self.take_title() {
            // A crash may have left a part of the first line, and zeros up to its length.
            let len = self.bytes.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
            let begun =
                self.bytes[..len].iter().zip(TITLE.as_bytes()).all(|(byte, other)| byte == other);
            if self.bytes.len() > TITLE_LEN || !begun {
                return Err(wrong(0, "no log of serve_redis begins here"));
            }
            self.bytes.clear();
        }
        let torn = self.bytes.split_off(self.start);
        let Replay { salt, number, last, at: end, .. } = self;
        Ok(Found { salt, number, last, end, torn })
    }

    /// Takes the first line; false if it is not there.
    fn take_title(&mut self) -> bool {
        let digits = self.bytes.get(TITLE.len()..TITLE.len() + 8).and_then(hexadecimal);
        let salt = digits.map(|salt| salt as u32);
        self.salt = salt.filter(|salt| self.bytes.starts_with(title(*salt).as_bytes()));
        if self.salt.is_some() {
            self.take(TITLE_LEN);
        }
        self.salt.is_some()
    }

    fn take(&mut self, len: usize) {
        self.last = self.at;
        self.start += len;
        self.at += len as u64;
    }
}

fn wrong(at: u64, what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("byte {at} of the log: {what}"))
}

/// Carries out the commands of a group, which begin at the offset `at` of the log.
fn replay(mut bytes: &[u8], mut at: u64, store: &mut Store) -> io::Result<()> {
    let mut commands = Commands::up_to(MOST_BULK);
    while let Some(first) = bytes.first() {
        if *first != b'*' {
            return Err(wrong(at, "a command is no array of strings"));
        }
        let found = commands.scan(bytes).map_err(|error| wrong(at, &error.to_string()))?;
        let Scan::Frame { taken, .. } = found else {
            return Err(wrong(at, "a command is longer than its group"));
        };
        let (frame, behind) = bytes.split_at(taken);
        let command = commands.command(frame).map_err(|error| wrong(at, &error.to_string()))?;
        if !store.replay(command) {
            return Err(wrong(at, "a command is not a write"));
        }
        bytes = behind;
        at += taken as u64;
    }
    Ok(())
}

/// The first line of a log.
fn title(salt: u32) -> String {
    let line = format!("{TITLE}{salt:08x} ");
    let check = crc32fast::hash(line.as_bytes());
    format!("{line}{check:08x}\r\n")
}

/// The line in front of a group.
struct Head {
    number: u64,
    /// The bytes of the commands, and their sum.
    len: u64,
    sum: u32,
}

impl Head {
    fn line(&self, salt: u32) -> String {
        let Head { number, len, sum } = self;
        let line = format!("{GROUP}{number:012x} {len:012x} {sum:08x} ");
        let mut check = crc32fast::Hasher::new();
        check.update(&salt.to_le_bytes());
        check.update(line.as_bytes());
        format!("{line}{:08x}\r\n", check.finalize())
    }

    /// The head that these bytes begin with.
    fn read(bytes: &[u8], salt: u32, compares_sums: bool) -> Option<Head> {
        let line = bytes.get(..HEAD_LEN)?;
        let digits = line.strip_prefix(GROUP.as_bytes())?;
        let (number, len) = (hexadecimal(&digits[..12])?, hexadecimal(&digits[13..25])?);
        let head = Head { number, len, sum: hexadecimal(&digits[26..34])? as u32 };
        (!compares_sums || head.line(salt).as_bytes() == line).then_some(head)
    }
}

/// A hexadecimal number.
fn hexadecimal(digits: &[u8]) -> Option<u64> {
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}
