//! The log of all writes: replay at the start, and group commit by a thread of its own.
//!
//! The log has the commands as clients send them, one behind the other. The writes that arrive
//! while a group is written and synced are the next group.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::{Condvar, Mutex, MutexGuard};

use windlass_serve::Id;
use windlass_serve::framing::Input;

use crate::resp::Commands;
use crate::store::{Store, Taken};

/// How much of the log is read at a time, in bytes.
const STEP: usize = 1 << 20;

/// Opens the log at `path`, or makes it, and carries out its commands. Cuts an incomplete command
/// off its end, which a crash has left. The third value is the number of bytes that it has cut.
///
/// # Errors
/// The errors of the file, and `InvalidData` if the log has something else than writes. Then the
/// log stays as it is.
pub(crate) fn open(path: &Path) -> io::Result<(File, Store, u64)> {
    let mut file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
    let mut store = Store::default();
    let end = replay(&mut file, &mut store)?;
    let len = file.metadata()?.len();
    if end < len {
        file.set_len(end)?;
    }
    // The name and the length are durable before the first write is acknowledged.
    file.sync_all()?;
    if let Some(directory) = path.canonicalize()?.parent() {
        File::open(directory)?.sync_all()?;
    }
    Ok((file, store.logged(), len - end))
}

/// Carries out the commands of the log. Returns where the last complete one ends.
pub(crate) fn replay(log: &mut (impl Read + Seek), store: &mut Store) -> io::Result<u64> {
    log.seek(SeekFrom::Start(0))?;
    let (mut input, mut commands, mut reply) = (Input::new(), Commands::default(), Vec::new());
    let mut read = 0;
    loop {
        let mut part = Vec::new();
        log.take(STEP as u64).read_to_end(&mut part)?;
        if part.is_empty() {
            return Ok(read - input.len() as u64);
        }
        read += part.len() as u64;
        input.push(part);
        loop {
            let at = read - input.len() as u64;
            let wrong = |what: String| {
                io::Error::new(io::ErrorKind::InvalidData, format!("byte {at} of the log: {what}"))
            };
            let Some(frame) =
                input.next(&mut commands).map_err(|error| wrong(error.to_string()))?
            else {
                break;
            };
            let command = commands.command(&frame).map_err(|error| wrong(error.to_string()))?;
            reply.clear();
            if !store.execute_write(command, &mut reply) {
                return Err(wrong("not a write".into()));
            }
        }
    }
}

/// The store, for all loops and the thread of the log.
#[derive(Default)]
pub(crate) struct Shared {
    store: Mutex<Store>,
    /// Wakes the thread of the log.
    work: Condvar,
}

impl Shared {
    pub(crate) fn new(store: Store) -> Shared {
        Shared { store: Mutex::new(store), work: Condvar::new() }
    }

    /// The store. A loop takes it once for all commands that it has.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Store> {
        // A command that has panicked has changed one value at most, and never in part.
        self.store.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Writes have come: the thread of the log is woken if it sleeps.
    pub(crate) fn notify(&self, store: MutexGuard<'_, Store>) {
        if store.log_sleeps {
            drop(store);
            self.work.notify_one();
        }
    }

    /// No more groups: the thread of the log ends behind the last one.
    pub(crate) fn end(&self) {
        self.lock().ends = true;
        self.work.notify_one();
    }

    /// The next group, once there is one; `None` at the end.
    fn next_group(&self) -> Option<Taken> {
        let mut store = self.lock();
        loop {
            if let Some(taken) = store.take() {
                return Some(taken);
            }
            if store.ends {
                return None;
            }
            store.log_sleeps = true;
            store = self.work.wait(store).unwrap_or_else(|poisoned| poisoned.into_inner());
            store.log_sleeps = false;
        }
    }

    /// The thread of the log: writes and syncs one group after the other. `wake` wakes a connection
    /// that has waited.
    ///
    /// # Errors
    /// A write or a sync has failed. Nothing is acknowledged from then on, because it is unknown
    /// which bytes are on the disk.
    pub(crate) fn commit(&self, mut file: File, wake: impl Fn(Id)) -> io::Result<()> {
        while let Some(taken) = self.next_group() {
            if !taken.commands.is_empty() {
                file.write_all(&taken.commands)?;
                file.sync_data()?;
            }
            self.lock().commit(taken.number);
            taken.waiting.into_iter().for_each(&wake);
        }
        Ok(())
    }
}
