//! Files that bodies are saved to: what each does next, and its end.
//!
//! ```text
//!   open ─▶ write … ─▶ sync ─▶ close ─▶ rename ─▶ open and sync the directory ─▶ saved
//!     └────────┴────────┴───────┴─failure, or nobody waits─▶ remove ─▶ failed
//! ```
//!
//! # Why
//! A file has at most one operation in flight. So its end is known before the next step begins, and
//! nothing that was begun can come behind the removal. A block is filled while the one before is
//! written: these two are all the memory that a body takes. No block waits for more bytes: a
//! connection that has no share of the memory left is not read, and then none come. So a slow
//! client holds nothing, and a fast one fills its blocks while the disk is busy.
//!
//! A request ends in many ways. Its [`SaveHandle`] is dropped in each, and then its file goes away.

use std::cell::RefCell;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use windlass::fs::OpenOptions;
use windlass::{Op, SourceGuard};
use windlass_serve::Id;
use windlass_serve::memory::Charge;
use windlass_serve::ops::Completed;

use crate::message::save::{Save, Saved, failed};
use crate::words::error::Error;
use crate::words::status::Status;

/// The most bytes of a write. One block is written while the next one is filled.
const BLOCK: usize = 128 << 10;

/// The shortest block, where the memory is used up.
const LEAST_BLOCK: usize = 1 << 10;

/// How often another name is tried where one exists already.
const TRIES: u32 = 100;

/// What a file does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SaveStep {
    Open,
    /// It is written, or waits for bytes.
    Write,
    Sync,
    Close,
    Name,
    /// Its temporary name goes, behind a link.
    Unlink,
    OpenDirectory,
    SyncDirectory,
    Remove,
    Over,
}

/// A file that a body is saved to.
pub(super) struct Saving {
    to: PathBuf,
    temporary: PathBuf,
    save: Save,
    step: SaveStep,
    /// Whether an operation is in flight.
    is_busy: bool,
    file: Option<SourceGuard>,
    directory: Option<SourceGuard>,
    /// What is not written yet, and the memory of the block that was written last.
    block: Vec<u8>,
    spare: Vec<u8>,
    /// The memory of the block that is being written.
    writing: usize,
    /// How many bytes have come, and how many of them are written.
    bytes: u64,
    written: u64,
    /// Whether all bytes have come.
    has_ended: bool,
    tries: u32,
    failure: Option<Error>,
    outcome: Option<Result<Saved, Error>>,
    /// The connection that waits for it; `None` if it has ended.
    id: Option<Id>,
    charge: Charge,
}

impl Saving {
    fn new(to: PathBuf, save: Save, id: Id, charge: Charge) -> Saving {
        Saving {
            temporary: PathBuf::new(),
            to,
            save,
            step: SaveStep::Open,
            is_busy: false,
            file: None,
            directory: None,
            block: Vec::new(),
            spare: Vec::new(),
            writing: 0,
            bytes: 0,
            written: 0,
            has_ended: false,
            tries: 0,
            failure: None,
            outcome: None,
            id: Some(id),
            charge,
        }
    }

    /// How many bytes it takes now.
    fn room(&self, block: usize) -> usize {
        let is_open = self.step == SaveStep::Write && !self.has_ended && self.failure.is_none();
        if is_open { block.saturating_sub(self.block.len()) } else { 0 }
    }

    /// Takes bytes. A few more than there is room for may come.
    fn write(&mut self, bytes: &[u8], block: usize) {
        self.bytes += bytes.len() as u64;
        if self.save.limit.is_some_and(|limit| self.bytes > limit) {
            return self.fail(Error::body_too_long());
        }
        let len = self.block.len() + bytes.len();
        if len > self.block.capacity() {
            // A block that is not full takes no memory that others could have.
            let twice = (2 * self.block.capacity()).min(block).max(len);
            self.block.reserve_exact(twice - self.block.len());
        }
        self.block.extend_from_slice(bytes);
        self.recharge();
    }

    fn recharge(&mut self) {
        self.charge.set(self.block.capacity() + self.spare.capacity() + self.writing);
    }

    fn fail(&mut self, error: Error) {
        self.failure.get_or_insert(error);
    }

    fn is_given_up(&self) -> bool {
        self.id.is_none() || self.failure.is_some()
    }

    fn directory(&self) -> &Path {
        match self.to.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        }
    }

    /// The next operation, if it can go on.
    fn next_op(&mut self, names: &mut SaveNames) -> Option<Op> {
        if self.is_busy {
            return None;
        }
        let op = self.choose_op(names);
        self.is_busy = op.is_some();
        op
    }

    fn choose_op(&mut self, names: &mut SaveNames) -> Option<Op> {
        use SaveStep::{Close, Name, Open, OpenDirectory, Over, Remove, Sync, SyncDirectory};
        loop {
            let is_named = matches!(self.step, SaveStep::Unlink | OpenDirectory | SyncDirectory);
            if self.is_given_up() && !is_named && !matches!(self.step, Open | Remove | Over) {
                self.file = None; // it is closed
                self.step = Remove;
            }
            let source = self.file.as_ref().map(SourceGuard::source);
            match (self.step, source) {
                (Open, _) if self.is_given_up() => self.end(),
                (Open, _) => {
                    self.temporary = self.directory().join(names.next());
                    let options = OpenOptions::new().write(true).create_new(true);
                    return Some(Op::open(&self.temporary, options.mode(self.save.mode)));
                }
                (SaveStep::Write, Some(file)) => {
                    if !self.block.is_empty() {
                        let spare = std::mem::take(&mut self.spare);
                        let block = std::mem::replace(&mut self.block, spare);
                        self.writing = block.capacity();
                        return Some(Op::write_at(file, block, self.written));
                    }
                    if !self.has_ended {
                        return None;
                    }
                    self.step = if self.save.sync { Sync } else { Close };
                }
                (Sync, Some(file)) => return Some(Op::sync_all(file)),
                (Close, Some(_)) => {
                    // Network file systems may tell of a failed write only here.
                    return self.file.take().map(|file| Op::close(file.release()));
                }
                (Name, _) if self.save.replace => {
                    return Some(Op::rename(&self.temporary, &self.to));
                }
                (Name, _) => return Some(Op::hard_link(&self.temporary, &self.to)),
                (SaveStep::Unlink | Remove, _) => return Some(Op::remove_file(&self.temporary)),
                (OpenDirectory, _) => {
                    return Some(Op::open(self.directory(), OpenOptions::new().read(true)));
                }
                (SyncDirectory, _) if self.directory.is_some() => {
                    let directory = self.directory.as_ref().map(SourceGuard::source);
                    return directory.map(Op::sync_all);
                }
                (Over, _) => return None,
                // A step without its file: it cannot be.
                _ => self.end(),
            }
        }
    }

    /// Its operation has ended.
    fn completed(&mut self, ended: Completed) {
        use SaveStep::{Close, Name, Open, OpenDirectory, Over, Remove, Sync, SyncDirectory};
        self.is_busy = false;
        let Completed { result, file, .. } = ended;
        let (buf, done) = match result {
            Ok(mut completion) => {
                let (buf, written) = (completion.take_buf(), completion.bytes());
                (buf, completion.result.map(|_| written).map_err(|error| failed(&error)))
            }
            Err(refused) => {
                let error = Error::new(Status::SERVICE_UNAVAILABLE);
                let error = error.because(refused.reason.to_string());
                (refused.value.into_buf(), Err(error))
            }
        };
        let opened = match file {
            Ok(opened) => opened,
            Err(refused) => {
                let error = Error::new(Status::SERVICE_UNAVAILABLE);
                self.fail(error.because(refused.reason.to_string()));
                None
            }
        };
        if self.step == SaveStep::Write {
            self.writing = 0;
            if !self.block.is_empty() {
                self.spare = buf.into_vec();
                self.spare.clear();
            }
            self.recharge();
        }
        match (self.step, done) {
            (Open, Ok(_)) => {
                self.file = opened;
                self.step = if self.file.is_some() { SaveStep::Write } else { Remove };
            }
            (Open, Err(error)) => {
                let exists = error.status() == Status::CONFLICT;
                self.tries += 1;
                if !exists || self.tries == TRIES {
                    self.fail(error);
                }
            }
            (SaveStep::Write, Ok(written)) => self.written += written as u64,
            (Sync, Ok(_)) => self.step = Close,
            (Close, Ok(_)) => self.step = Name,
            (Name, Ok(_)) => {
                self.step = match (self.save.replace, self.save.sync) {
                    (false, _) => SaveStep::Unlink,
                    (true, true) => OpenDirectory,
                    (true, false) => Over,
                };
            }
            // The file has its name already. What is left is a second one.
            (SaveStep::Unlink, _) => {
                self.step = if self.save.sync { OpenDirectory } else { Over };
            }
            (OpenDirectory, Ok(_)) => {
                self.directory = opened;
                self.step = SyncDirectory;
            }
            (SyncDirectory, Ok(_)) => self.step = Over,
            // It may be gone already.
            (Remove | Over, _) => self.step = Over,
            (OpenDirectory | SyncDirectory, Err(error)) => {
                self.fail(error);
                self.step = Over;
            }
            (_, Err(error)) => self.fail(error),
        }
        if self.step == Over {
            self.end();
        }
    }

    /// Nothing more is done.
    fn end(&mut self) {
        self.step = SaveStep::Over;
        (self.file, self.directory) = (None, None);
        (self.block, self.spare) = (Vec::new(), Vec::new());
        self.charge.set(0);
        let path = std::mem::take(&mut self.to);
        let saved = Saved { path, bytes: self.written };
        self.outcome = Some(self.failure.take().map_or(Ok(saved), Err));
    }
}

/// Temporary names that no other program can foresee.
struct SaveNames {
    keys: RandomState,
    count: u64,
    is_simulated: bool,
}

impl SaveNames {
    fn next(&mut self) -> String {
        self.count += 1;
        let number = if self.is_simulated { self.count } else { self.keys.hash_one(self.count) };
        format!(".upload-{number:016x}")
    }
}

/// The files that the bodies of a loop's requests are saved to.
pub(super) struct Saves {
    all: Vec<Option<Box<Saving>>>,
    vacant: Vec<u32>,
    /// Those whose connection has ended.
    dropped: Rc<RefCell<Vec<u32>>>,
    names: SaveNames,
    /// How many bytes a block has now.
    block: usize,
}

/// Stands for a file that is being saved. When it is dropped before the end, the file goes away.
pub(super) struct SaveHandle {
    place: u32,
    dropped: Rc<RefCell<Vec<u32>>>,
}

impl SaveHandle {
    pub(super) fn place(&self) -> u32 {
        self.place
    }
}

impl Drop for SaveHandle {
    fn drop(&mut self) {
        self.dropped.borrow_mut().push(self.place);
    }
}

impl Default for Saves {
    fn default() -> Saves {
        let names = SaveNames { keys: RandomState::new(), count: 0, is_simulated: false };
        let (all, vacant, dropped) = (Vec::new(), Vec::new(), Rc::default());
        Saves { all, vacant, dropped, names, block: BLOCK }
    }
}

impl Saves {
    /// Gives a seed of a simulation one trace.
    pub(super) fn simulate(&mut self) {
        self.names.is_simulated = true;
    }

    pub(super) fn begin(&mut self, to: PathBuf, save: Save, id: Id, charge: Charge) -> SaveHandle {
        let saving = Some(Box::new(Saving::new(to, save, id, charge)));
        let place = self.vacant.pop().unwrap_or_else(|| {
            self.all.push(None);
            self.all.len() as u32 - 1
        });
        self.all[place as usize] = saving;
        SaveHandle { place, dropped: Rc::clone(&self.dropped) }
    }

    /// Two blocks are at most half of what a connection may hold. The other half is for what was
    /// read, and has no room in them.
    pub(super) fn share(&mut self, bytes: usize) {
        self.block = (bytes / 4).clamp(LEAST_BLOCK, BLOCK);
    }

    fn get(&self, place: u32) -> Option<&Saving> {
        self.all.get(place as usize)?.as_deref()
    }

    fn get_mut(&mut self, place: u32) -> Option<&mut Saving> {
        self.all.get_mut(place as usize)?.as_deref_mut()
    }

    /// How many bytes a file takes now.
    pub(super) fn room(&self, handle: &SaveHandle) -> usize {
        self.get(handle.place).map_or(0, |one| one.room(self.block))
    }

    /// Whether nothing goes on before the disk has done something.
    pub(super) fn waits(&self, handle: &SaveHandle) -> bool {
        self.get(handle.place).is_some_and(|one| one.outcome.is_none() && one.room(self.block) == 0)
    }

    /// How long it may wait for the disk.
    pub(super) fn time(&self, handle: &SaveHandle) -> Option<std::time::Duration> {
        Some(self.get(handle.place)?.save.time)
    }

    pub(super) fn write(&mut self, handle: &SaveHandle, bytes: &[u8]) {
        let block = self.block;
        if let Some(saving) = self.get_mut(handle.place) {
            saving.write(bytes, block);
        }
    }

    /// All bytes of a file have come.
    pub(super) fn finish(&mut self, handle: &SaveHandle) {
        if let Some(saving) = self.get_mut(handle.place) {
            saving.has_ended = true;
        }
    }

    /// How a file has ended, if it has.
    pub(super) fn take_outcome(&mut self, handle: &SaveHandle) -> Option<Result<Saved, Error>> {
        self.get_mut(handle.place)?.outcome.take()
    }

    /// What a file does next.
    pub(super) fn next_op(&mut self, place: u32) -> Option<Op> {
        let names = &mut self.names;
        self.all.get_mut(place as usize)?.as_mut()?.next_op(names)
    }

    /// The operation of a file has ended. Returns who waits for it.
    pub(super) fn completed(&mut self, place: u32, ended: Completed) -> Option<Id> {
        let saving = self.get_mut(place)?;
        saving.completed(ended);
        saving.id
    }

    /// A file whose connection has ended.
    pub(super) fn next_dropped(&mut self) -> Option<u32> {
        let place = self.dropped.borrow_mut().pop()?;
        if let Some(saving) = self.get_mut(place) {
            saving.id = None;
        }
        Some(place)
    }

    /// Forgets a file that is done with.
    pub(super) fn forget_over(&mut self, place: u32) {
        if self.get(place).is_some_and(|one| one.step == SaveStep::Over && one.id.is_none()) {
            self.all[place as usize] = None;
            self.vacant.push(place);
        }
    }
}
