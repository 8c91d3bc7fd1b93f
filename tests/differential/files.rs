//! Steps on files.
//!
//! No step allocates space (`Op::allocate`), because not every file system can. Nor does a step use
//! what a simulation lacks: directories, symbolic links, copies.

use std::time::Duration;

use windlass::fs::{Access, OpenOptions};
use windlass::{Buf, Done, ErrorKind, Op, Source, Ticket};

use super::rig::{Rig, SETUP};
use super::steps::{FileStep, Seen};
use crate::worlds::World;

/// How many names of files there are.
pub const NAMES: usize = 4;
/// The most files that are open at once.
const OPEN: usize = 5;

/// An open file.
#[derive(Clone, Copy)]
pub struct Open {
    pub source: Source,
    reads: bool,
    writes: bool,
    appends: bool,
}

/// The ways to open a file; some need one that is there, or none.
fn ways(how: u8) -> OpenOptions {
    let options = OpenOptions::new();
    match how % 7 {
        0 | 1 => options.read(true).write(true).create(true),
        2 => options.read(true),
        3 => options.write(true).create(true).truncate(true),
        4 => options.read(true).write(true).create_new(true),
        5 => options.read(true).append(true).create(true),
        _ => options.write(true),
    }
}

/// Memory for so many bytes, in so many parts.
fn room(len: usize, parts: u8) -> Buf {
    if parts < 2 {
        return Buf::from(Vec::<u8>::with_capacity(len));
    }
    let parts = usize::from(parts);
    let bounds = (0..parts).map(|i| (i * len / parts, (i + 1) * len / parts));
    Buf::list(bounds.map(|(from, to)| Vec::<u8>::with_capacity(to - from)))
}

impl<W: World> Rig<W> {
    fn open_file(&mut self, name: u8, how: u8) {
        if self.files.len() == OPEN {
            self.close_file(0);
        }
        let path = self.world.file(usize::from(name) % NAMES);
        let ticket = self.start_work("open", Op::open(path, ways(how)));
        if let Ok(Done::Opened(file)) = self.end(ticket).result {
            let source = self.watcher.attach(file).expect("room");
            let (reads, writes) = (![3, 6].contains(&(how % 7)), how % 7 != 2);
            self.files.push(Open { source, reads, writes, appends: how % 7 == 5 });
        }
    }

    fn close_file(&mut self, at: usize) {
        let file = self.files.remove(at);
        let close = self.start_work("close", Op::close(file.source));
        self.end(close);
    }

    /// Where an open file is that is as wanted; without one, opens one.
    fn file(&mut self, on: u8, wanted: fn(&Open) -> bool) -> usize {
        let all: Vec<usize> = (0..self.files.len()).filter(|&at| wanted(&self.files[at])).collect();
        if all.is_empty() {
            self.open_file(on, 0);
            return self.files.len() - 1;
        }
        all[usize::from(on) % all.len()]
    }

    fn any_file(&mut self, on: u8) -> Open {
        let at = self.file(on, |_| true);
        self.files[at]
    }

    /// Asks for attributes, and sees those that no system chooses; answers the length.
    fn look(&mut self, what: &str, op: Op) -> u64 {
        let ticket = self.start_work(what, op);
        let Ok(Done::Metadata(known)) = self.end(ticket).result else { return 0 };
        let (len, links, kind) = (known.size, known.links, known.kind());
        let (pair, number, lane) = self.own_seat();
        self.trace.insert((pair, number, lane), vec![Seen::File { len, links, kind }]);
        len
    }

    /// Work that ends before anything else begins.
    fn alone(&mut self, what: &str, op: Op) {
        let ticket = self.start_work(what, op);
        self.end(ticket);
    }

    pub fn file_step(&mut self, step: &FileStep) {
        match *step {
            FileStep::Open { name, how } => self.open_file(name, how),
            FileStep::Read { on, ref spans } => {
                let file = self.any_file(on).source;
                let read = |&(offset, len, parts): &(u16, u16, u8)| {
                    let op = Op::read_at(file, room(len.into(), parts), offset.into());
                    self.start_work("read_at", op)
                };
                let tickets = spans.iter().map(read).collect();
                self.end_all(tickets);
            }
            FileStep::Write { on, offset, ref lens } => {
                let file = self.any_file(on).source;
                let mut parts: Vec<Vec<u8>> =
                    lens.iter().map(|&len| self.bytes(len.into())).collect();
                if parts.iter().all(Vec::is_empty) {
                    parts[0].push(7);
                }
                let buf =
                    if parts.len() == 1 { Buf::from(parts.remove(0)) } else { Buf::list(parts) };
                self.alone("write_at", Op::write_at(file, buf, offset.into()));
            }
            FileStep::Mixed { on, pieces, sync } => self.mixed(on, pieces, sync),
            FileStep::Disturb { on, offset, len, write, us } => {
                self.disturb(on, offset, len, write, us);
            }
            FileStep::SetLen { on, len } => {
                let file = self.any_file(on).source;
                self.alone("set_len", Op::set_len(file, len.into()));
            }
            FileStep::Sync { on, which } => {
                let file = self.any_file(on).source;
                match which % 3 {
                    0 => self.alone("sync_all", Op::sync_all(file)),
                    1 => self.alone("sync_data", Op::sync_data(file)),
                    _ => self.alone("sync_range", Op::sync_range(file, which.into(), 5_000)),
                }
            }
            FileStep::Stat { on } => {
                let file = self.any_file(on).source;
                self.look("metadata of a file", Op::metadata(file));
            }
            FileStep::StatName { name } => {
                let path = self.path(name);
                self.look("metadata of a name", Op::metadata(path));
            }
            FileStep::Access { name } => {
                let path = self.path(name);
                self.alone("access", Op::access(path, Access::READ));
            }
            FileStep::Rename { from, to } => {
                let (from, to) = (self.path(from), self.path(to));
                self.alone("rename", Op::rename(from, to));
            }
            FileStep::Remove { name } => {
                let path = self.path(name);
                self.alone("remove_file", Op::remove_file(path));
            }
            FileStep::Link { from, to } => {
                let (from, to) = (self.path(from), self.path(to));
                self.alone("hard_link", Op::hard_link(from, to));
            }
            FileStep::Send { on, file, offset, len, many } => {
                self.send(on, file, offset.into(), len.into(), many);
            }
            FileStep::Close { on, abort } => {
                let at = self.file(on, |file| file.reads);
                let source = self.files[at].source;
                if abort {
                    let read = self.start_as("aborted", Op::read_at(source, room(99, 1), 0), SETUP);
                    assert!(self.watcher.abort(source) && !self.watcher.abort(source));
                    self.files.remove(at);
                    // It may have been over, or have begun: then it ends as it ends.
                    self.ends_perhaps(read, &[ErrorKind::Aborted]);
                } else {
                    self.close_file(at);
                }
                let (_, number, _) = self.own_seat();
                let answer = self.watcher.submit(Op::read_at(source, room(1, 1), 0));
                let answer = answer.map(drop).map_err(|refused| refused.reason);
                self.trace.insert((-2, number, "calls"), vec![Seen::Answer(answer)]);
            }
        }
    }

    fn path(&self, name: u8) -> std::path::PathBuf {
        self.world.file(usize::from(name) % NAMES)
    }

    /// The pieces of a file are written and read in turn, all at once: the ends of the pieces are
    /// within the file, so that no read depends on a write.
    fn mixed(&mut self, on: u8, pieces: u8, sync: bool) {
        let Open { source, appends, .. } = self.any_file(on);
        let len = self.look("metadata of a file", Op::metadata(source)) as usize;
        let pieces = usize::from(pieces);
        let mut tickets: Vec<Ticket> = Vec::new();
        for piece in 0..pieces {
            let (from, to) = (piece * len / pieces, (piece + 1) * len / pieces);
            if from == to {
                continue;
            }
            let (what, op) = if piece % 2 == 1 {
                ("read_at", Op::read_at(source, room(to - from, 1), from as u64))
            } else if !appends || piece == 0 {
                let bytes = self.bytes(to - from);
                ("write_at", Op::write_at(source, bytes, from as u64))
            } else {
                // The order of what is appended together is left to chance.
                continue;
            };
            tickets.push(self.start_work(what, op));
        }
        if sync {
            tickets.push(self.start_work("sync_all", Op::sync_all(source)));
        }
        self.end_all(tickets);
    }

    /// Whether a disturbed operation came to its end before that.
    fn ends_perhaps(&mut self, ticket: Ticket, wanted: &[ErrorKind]) {
        let c = self.end(ticket);
        match c.error_kind() {
            None => self.counts.add("disturbed too late"),
            Some(kind) => {
                assert!(wanted.contains(&kind) && !c.is_late(), "{c:?}");
                self.counts.add(format!("disturbed: {kind:?}"));
            }
        }
    }

    /// What a disturbed operation has done is left to chance, so a write is repeated.
    fn disturb(&mut self, on: u8, offset: u16, len: u16, write: bool, us: Option<u8>) {
        let wanted: fn(&Open) -> bool =
            if write { |file| file.writes && !file.appends } else { |file| file.reads };
        let at = self.file(on, wanted);
        let source = self.files[at].source;
        let bytes = self.bytes(len.into());
        let write_op = |bytes: Vec<u8>| Op::write_at(source, bytes, offset.into());
        let op = match write {
            true => write_op(bytes.clone()),
            false => Op::read_at(source, room(len.into(), 1), offset.into()),
        };
        let op = match us {
            Some(us) => op.timeout(Duration::from_micros(us.into())),
            None => op,
        };
        let ticket = self.start_as("disturbed", op, SETUP);
        if us.is_none() {
            self.watcher.cancel(ticket);
        }
        self.ends_perhaps(ticket, &[ErrorKind::Cancelled, ErrorKind::Deadline]);
        if write {
            self.alone("write_at", write_op(bytes));
        }
    }

    /// A range of a file among the writes of a connection.
    fn send(&mut self, on: u8, file: u8, offset: usize, len: usize, many: bool) {
        let (pair, side) = self.pick(on, false);
        let at = self.file(file, |file| file.reads);
        let file = self.files[at].source;
        let size = self.look("metadata of a file", Op::metadata(file)) as usize;
        let sent = size.saturating_sub(offset).min(len);
        let before = self.submit(pair, side, |source| Op::write(source, "before"));
        let socket = self.pairs[pair].0[side];
        let op = Op::send_file(socket, file, offset as u64, len);
        let range = match many {
            // How many parts there are is left to chance.
            true => self.start_as("send_file in parts", op.multishot(), SETUP),
            false => self.submit(pair, side, |_| op),
        };
        let behind = self.submit(pair, side, |source| Op::write(source, "behind"));
        let all = sent + 12;
        let read = self.submit(pair, 1 - side, |source| Op::read_exact(source, room(all, 1), all));
        self.end_all(vec![before, read, behind]);
        let mut told = 0;
        loop {
            let c = self.end(range);
            let Ok(Done::Sent(bytes)) = c.result else { panic!("it is not sent: {c:?}") };
            told += bytes as usize;
            if !c.has_more() {
                break;
            }
        }
        assert_eq!(told, sent);
    }
}
