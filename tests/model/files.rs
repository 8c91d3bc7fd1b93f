//! Files and jobs: the results that they may have, and the bytes that the files hold.
//!
//! Operations on one file have no order. So no two writes in flight overlap, and no write is in
//! flight together with a change of the length. A read sees each byte as it was at some moment
//! between the submission and the completion of the read.

use std::time::{Duration, Instant};

use windlass::driver::OpCode;
use windlass::fs::OpenOptions;
use windlass::{Buf, Completion, Done, Handle, Op, Priority};

use super::check::same;
use super::state::*;
use super::steps::How;
use super::submit::{Plan, Sort};
use crate::random_jobs::Job;
use crate::worlds::World;

/// How many files there are.
pub const FILES: usize = 3;
/// The bytes that programs write are below this offset.
pub const SPAN: usize = 16 << 10;
/// The most sources of files that a program makes.
const SOURCES: usize = 6;
static ZEROES: [u8; SPAN] = [0; SPAN];

/// What an operation does, beside the sockets.
#[derive(Clone, Debug)]
pub enum Work {
    Open {
        file: usize,
    },
    Read {
        file: usize,
        offset: usize,
    },
    Write {
        file: usize,
        offset: usize,
    },
    Sync,
    SetLen {
        file: usize,
        len: usize,
    },
    /// Of a file: a thread does it.
    Close,
    Job(Job),
}

/// What the model knows of a file.
#[derive(Debug)]
pub struct Disk {
    /// Its bytes, zeroes behind its end.
    bytes: Vec<u8>,
    len: usize,
    /// Earlier bytes of the file, and earlier lengths, since the first read in flight was
    /// submitted.
    past: Vec<(usize, Vec<u8>)>,
    lens: Vec<usize>,
}

impl Default for Disk {
    fn default() -> Disk {
        Disk { bytes: vec![0; SPAN], len: 0, past: Vec::new(), lens: Vec::new() }
    }
}

impl Disk {
    fn remember(&mut self, from: usize, to: usize) {
        self.past.push((from, self.bytes[from..to].to_vec()));
        self.lens.push(self.len);
    }

    fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.remember(offset, offset + bytes.len());
        self.bytes[offset..offset + bytes.len()].copy_from_slice(bytes);
        if !bytes.is_empty() {
            self.len = self.len.max(offset + bytes.len());
        }
    }

    fn set_len(&mut self, len: usize) {
        self.remember(len.min(self.len), self.len);
        self.bytes[len..].fill(0);
        self.len = len;
    }
}

/// What a file may be, or have been since the first read in flight was submitted.
struct Possible<'a> {
    lens: Vec<usize>,
    bytes: Vec<(usize, &'a [u8])>,
}

impl<'a> Possible<'a> {
    fn of(disk: &'a Disk, ops: &'a [Record], wanted: usize) -> Possible<'a> {
        let mut lens = disk.lens.clone();
        lens.push(disk.len);
        let mut bytes: Vec<(usize, &[u8])> = vec![(0, &disk.bytes)];
        bytes.extend(disk.past.iter().map(|(from, bytes)| (*from, &bytes[..])));
        for record in ops.iter().filter(|record| record.ended.is_none()) {
            match record.work {
                Some(Work::Write { file, offset }) if file == wanted => {
                    bytes.push((offset, &record.payload));
                    let longest = lens.iter().copied().max().unwrap_or(0);
                    lens.push(longest.max(offset + record.payload.len()));
                }
                Some(Work::SetLen { file, len }) if file == wanted => {
                    bytes.push((len, &ZEROES[len..]));
                    lens.push(len);
                }
                _ => {}
            }
        }
        Possible { lens, bytes }
    }

    /// The first byte that was never there.
    fn find_other(&self, offset: usize, read: &[u8]) -> Option<(usize, u8)> {
        let all = (offset..).zip(read.iter().copied());
        let is = |at: usize, byte: u8| {
            let mut bytes = self.bytes.iter().filter(|(from, _)| *from <= at);
            bytes.any(|(from, bytes)| bytes.get(at - from) == Some(&byte))
        };
        all.into_iter().find(|&(at, byte)| !is(at, byte))
    }
}

/// After a watcher was dropped with work in flight, the files hold some of it.
pub fn check_left<W: World>(world: &W, disks: &[Disk], ops: &[Record]) {
    for (file, disk) in disks.iter().enumerate() {
        let Some(there) = world.contents(file) else { continue };
        let possible = Possible::of(disk, ops, file);
        let (least, most) = (possible.lens.iter().min(), possible.lens.iter().max());
        let len = there.len();
        let len = Some(&len);
        assert!(least <= len && len <= most, "file {file} has {len:?} of {:?}", possible.lens);
        assert_eq!(possible.find_other(0, &there), None, "in file {file}");
    }
}

impl<W: World> Model<W> {
    fn pick_file(&self, on: u8) -> Option<(usize, usize)> {
        let port = self.pick(on, Sort::File)?;
        Some((port, self.ports[port].file.expect("it is a file")))
    }

    /// What is under way with a file.
    fn work_on(&self, wanted: usize) -> impl Iterator<Item = (&Record, &Work)> + '_ {
        let all = self.pending().map(|op| &self.ops[op]);
        let all = all.filter_map(|record| Some((record, record.work.as_ref()?)));
        all.filter(move |(_, work)| match **work {
            Work::Open { file }
            | Work::Read { file, .. }
            | Work::Write { file, .. }
            | Work::SetLen { file, .. } => file == wanted,
            Work::Sync | Work::Close | Work::Job(_) => false,
        })
    }

    /// The ends of a write in flight.
    fn span(record: &Record, offset: usize) -> (usize, usize) {
        (offset, offset + record.payload.len())
    }

    fn priority(&self) -> Priority {
        [Priority::High, Priority::Normal, Priority::Low][self.ops.len() % 3]
    }

    pub fn open_file(&mut self, file: u8, how: How) {
        let count = self.ports.iter().filter(|port| port.file.is_some()).count();
        let opens =
            self.pending().filter(|&op| matches!(self.ops[op].work, Some(Work::Open { .. })));
        if count + opens.count() >= SOURCES {
            return;
        }
        let file = usize::from(file) % FILES;
        let options = OpenOptions::new().read(true).write(true).create(true);
        let op = Op::open(self.world.file(file), options).priority(self.priority());
        let mut plan = Plan::new(op, None);
        plan.work = Some(Work::Open { file });
        self.submit(plan, how);
    }

    /// A file that an operation has opened.
    pub fn opened(&mut self, index: usize, handle: Handle) {
        let Some(Work::Open { file }) = self.ops[index].work else {
            panic!("nothing was to be opened: {:?}", self.ops[index]);
        };
        if let Some(source) = self.attach(handle) {
            let port = self.add_port(source, None);
            self.ports[port].file = Some(file);
            self.count("files opened");
        }
    }

    pub fn read_at(&mut self, on: u8, offset: u16, rooms: &[u16], how: How) {
        let Some((port, file)) = self.pick_file(on) else { return };
        let offset = usize::from(offset) % SPAN;
        let room = |&room: &u16| Vec::<u8>::with_capacity(usize::from(room));
        let mut bufs: Vec<Vec<u8>> = rooms.iter().map(room).collect();
        if bufs.iter().all(|buf| buf.capacity() == 0) {
            bufs[0].reserve_exact(1);
        }
        let buf = match bufs.len() {
            1 => Buf::from(bufs.remove(0)),
            _ => Buf::list(bufs),
        };
        let wanted = buf.parts().iter().map(|part| part.capacity()).sum();
        let op = Op::read_at(self.ports[port].source, buf, offset as u64);
        let mut plan = Plan::new(op.priority(self.priority()), Some(port));
        plan.wanted = wanted;
        plan.work = Some(Work::Read { file, offset });
        self.submit(plan, how);
    }

    pub fn write_at(&mut self, on: u8, offset: u16, lens: &[u16], how: How) {
        let Some((port, file)) = self.pick_file(on) else { return };
        let offset = usize::from(offset) % SPAN;
        let salt = self.ops.len() as u64;
        let mut parts: Vec<Vec<u8>> = Vec::new();
        let mut at = offset;
        for &len in lens {
            let end = (at + usize::from(len)).min(SPAN);
            let byte = |i: usize| {
                ((i as u64 ^ salt << 20).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 47) as u8
            };
            parts.push((at..end).map(byte).collect());
            at = end;
        }
        let overlaps = self.work_on(file).any(|(record, work)| match *work {
            Work::Write { offset: start, .. } => {
                let (start, end) = Self::span(record, start);
                start < at && offset < end
            }
            Work::SetLen { .. } => true,
            _ => false,
        });
        if overlaps || at == offset {
            return;
        }
        let payload = parts.concat();
        let buf = match parts.len() {
            1 => Buf::from(parts.remove(0)),
            _ => Buf::list(parts),
        };
        let op = Op::write_at(self.ports[port].source, buf, offset as u64);
        let mut plan = Plan::new(op.priority(self.priority()), Some(port));
        plan.payload = payload;
        plan.work = Some(Work::Write { file, offset });
        self.submit(plan, how);
    }

    pub fn sync(&mut self, on: u8, data: bool, how: How) {
        let Some((port, _)) = self.pick_file(on) else { return };
        let source = self.ports[port].source;
        let op = if data { Op::sync_data(source) } else { Op::sync_all(source) };
        let mut plan = Plan::new(op.priority(self.priority()), Some(port));
        plan.work = Some(Work::Sync);
        self.submit(plan, how);
    }

    pub fn set_len(&mut self, on: u8, len: u16, how: How) {
        let Some((port, file)) = self.pick_file(on) else { return };
        let len = usize::from(len) % SPAN;
        let changes = |work: &Work| matches!(work, Work::Write { .. } | Work::SetLen { .. });
        if self.work_on(file).any(|(_, work)| changes(work)) {
            return;
        }
        let op = Op::set_len(self.ports[port].source, len as u64).priority(self.priority());
        let mut plan = Plan::new(op, Some(port));
        plan.work = Some(Work::SetLen { file, len });
        self.submit(plan, how);
    }

    pub fn job(&mut self, us: u8, panics: bool, how: How) {
        let plan = self.job_plan(self.ops.len(), us, panics);
        self.submit(plan, how);
    }

    /// A job that returns the place of its record.
    pub fn job_plan(&self, index: usize, us: u8, panics: bool) -> Plan {
        // Where jobs run on the loop's thread, time is virtual.
        let busy = Duration::from_micros(if W::REAL { us.into() } else { 0 });
        let (job, op) = Job::new(index as u64, busy, panics);
        let mut plan = Plan::new(op.priority(self.priority()), None);
        plan.work = Some(Work::Job(job));
        plan
    }

    /// Whether a late completion may be late.
    pub fn may_be_late(&self, record: &Record, now: Instant) -> bool {
        let ends = record.end.is_some_and(|port| self.ports[port].ending);
        let due = record.due.is_some_and(|due| due <= now);
        record.work.is_some() && (ends || due || record.cancelled_at.is_some() || self.closed)
    }

    /// Whether a disk may have reported this.
    pub fn may_fail_on_disk(&self, code: OpCode, errno: i32) -> bool {
        match errno {
            libc::EIO => self.disk_fails,
            libc::ENOSPC => self.disk_fails && code == OpCode::WriteAt,
            _ => false,
        }
    }

    /// Whether work may have answered this.
    pub fn fits_work(&self, record: &Record, work: &Work, c: &Completion) -> bool {
        match (work, &c.result) {
            (Work::Open { .. }, Ok(Done::Opened(_))) => true,
            (Work::Read { file, offset }, Ok(Done::Read(buf))) => {
                self.check_read(record, *file, *offset, buf, true);
                same_len(buf, c.bytes())
            }
            (Work::Write { .. }, Ok(Done::Written { buf, bytes })) => {
                *bytes as usize == record.payload.len() && same(buf, &record.payload)
            }
            (Work::Sync | Work::SetLen { .. }, Ok(Done::Finished)) => true,
            (Work::Job(job), _) => job.fits(c),
            (_, Ok(_)) => false,
            // The kernel may have the buffer for ever.
            (Work::Read { file, offset }, Err(error)) => {
                self.check_read(record, *file, *offset, error.buf(), false);
                same_len(error.buf(), c.bytes())
            }
            (Work::Write { .. }, Err(error)) => {
                c.bytes() < record.payload.len() && same(error.buf(), &record.payload)
            }
            (_, Err(_)) => c.bytes() == 0,
        }
    }

    /// Each byte that was read is one that was there while the read was under way; if it ended by
    /// itself, it has read all that it asked for, or up to the end of the file.
    fn check_read(&self, record: &Record, file: usize, offset: usize, buf: &Buf, whole: bool) {
        let possible = Possible::of(&self.disks[file], &self.ops, file);
        let read: Vec<u8> = buf.parts().iter().flat_map(|part| part.to_vec()).collect();
        let within = |len: &usize| len.saturating_sub(offset).min(record.wanted);
        let lens = &possible.lens;
        let (least, most) = (lens.iter().map(within).min(), lens.iter().map(within).max());
        let count = Some(read.len());
        let fits = (least <= count || !whole) && count <= most;
        assert!(fits, "{count:?} of {lens:?} were read: {record:?}");
        let wrong = possible.find_other(offset, &read);
        assert_eq!(wrong, None, "a byte that was never there: {record:?}");
    }

    /// Work has ended: the files hold what it says.
    pub fn work_ended(&mut self, index: usize, end: End, bytes: usize) {
        let record = &self.ops[index];
        let Some(work) = record.work.clone() else { return };
        match work {
            Work::Write { file, offset } => {
                self.disks[file].write(offset, &record.payload[..bytes]);
            }
            Work::SetLen { file, len } if end == End::Done => self.disks[file].set_len(len),
            _ => {}
        }
        if let Work::Job(job) = work {
            self.count(match (job.has_run(), job.panics()) {
                (true, false) => "jobs, returned",
                (true, true) => "jobs, panicked",
                (false, _) => "jobs, never run",
            });
        }
        for file in 0..FILES {
            if !self.work_on(file).any(|(_, work)| matches!(work, Work::Read { .. })) {
                self.disks[file].past.clear();
                self.disks[file].lens.clear();
            }
        }
    }

    /// Whether work is under way.
    pub fn is_at_work(&self) -> bool {
        self.pending().any(|op| self.ops[op].work.is_some())
    }

    /// The system has what the completions say.
    pub fn check_files(&mut self) {
        assert!(!self.is_at_work());
        for file in 0..FILES {
            let Some(there) = self.world.contents(file) else { continue };
            let disk = &self.disks[file];
            assert_eq!(there.len(), disk.len, "the length of file {file}");
            let differs = there.iter().zip(&disk.bytes).position(|(a, b)| a != b);
            assert_eq!(differs, None, "in file {file}, of {} bytes", disk.len);
            if disk.len > 0 {
                self.count("files compared");
            }
        }
    }
}

fn same_len(buf: &Buf, count: usize) -> bool {
    buf.parts().iter().map(|part| part.len()).sum::<usize>() == count
}

/// Whether an operation is work: on a file, or for threads.
pub fn is_work(code: OpCode) -> bool {
    use OpCode::*;
    matches!(code, ReadAt | WriteAt | SyncAll | SyncData | Job)
}
