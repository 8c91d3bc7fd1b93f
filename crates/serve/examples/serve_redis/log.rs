//! The store that all loops share, and its log: group commit in a loop of its own.
//!
//! The writes that arrive while a group is written and synced are the next group.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, mpsc};
use std::thread::JoinHandle;

use windlass::{Completion, Completions, Done, Submitter, Watcher};
use windlass_serve::Id;

use crate::common::Started;
use crate::journal::{self, Care, Cut, Journal};
use crate::lock::Lock;
use crate::store::{Store, Taken};

/// The store, for all loops and the loop of the log.
#[derive(Default)]
pub(crate) struct Shared {
    store: Mutex<Store>,
    /// Wakes the loop of the log.
    log: OnceLock<Submitter>,
}

impl Shared {
    pub(crate) fn new(store: Store) -> Shared {
        Shared { store: Mutex::new(store), log: OnceLock::new() }
    }

    /// The store. A loop takes it once for all commands that it has.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Store> {
        // A command that has panicked has changed one value at most, and never in part.
        self.store.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Writes have come: the loop of the log is woken if it sleeps.
    pub(crate) fn notify(&self, mut store: MutexGuard<'_, Store>) {
        if std::mem::take(&mut store.log_sleeps) {
            drop(store);
            self.wake_log();
        }
    }

    /// No more groups: the loop of the log ends behind the last one.
    pub(crate) fn end(&self) {
        self.lock().ends = true;
        self.wake_log();
    }

    fn wake_log(&self) {
        if let Some(log) = self.log.get() {
            // It is refused if the log has failed. Then the server ends, and `Running::wait` tells.
            let _ = log.wake(0);
        }
    }
}

/// The log while the server serves.
pub(crate) struct Log {
    shared: Arc<Shared>,
    journal: Journal,
    /// The group that is written.
    taken: Option<Taken>,
}

impl Log {
    pub(crate) fn new(shared: Arc<Shared>, journal: Journal) -> Log {
        Log { shared, journal, taken: None }
    }

    /// Begins to write the next group, if there is one and the last one is on the disk. `wake`
    /// wakes a connection that has waited.
    ///
    /// # Errors
    /// As for [`handle`](Log::handle).
    pub(crate) fn begin(&mut self, watcher: &mut Watcher, wake: &impl Fn(Id)) -> io::Result<()> {
        while self.taken.is_none() && self.journal.is_ready() {
            let mut store = self.shared.lock();
            let Some(mut taken) = store.take() else {
                store.log_sleeps = true;
                break;
            };
            drop(store);
            let commands = std::mem::take(&mut taken.commands);
            if commands.is_empty() {
                self.acknowledge(taken, wake);
            } else {
                self.taken = Some(taken);
                self.journal.append(watcher, commands)?;
            }
        }
        Ok(())
    }

    /// Takes the end of an operation of the log.
    ///
    /// # Errors
    /// A write or a sync has failed. Nothing is acknowledged from then on, because it is unknown
    /// which bytes are on the disk.
    pub(crate) fn handle(
        &mut self,
        watcher: &mut Watcher,
        c: Completion,
        wake: &impl Fn(Id),
    ) -> io::Result<()> {
        if self.journal.handle(watcher, c)?
            && let Some(taken) = self.taken.take()
        {
            self.acknowledge(taken, wake);
        }
        Ok(())
    }

    fn acknowledge(&self, taken: Taken, wake: &impl Fn(Id)) {
        self.shared.lock().commit(taken.number);
        taken.waiting.into_iter().for_each(wake);
    }

    /// Writes one group after the other, until the server ends.
    fn run(&mut self, watcher: &mut Watcher, wake: impl Fn(Id)) -> io::Result<()> {
        let mut done = Completions::new();
        loop {
            self.begin(watcher, &wake)?;
            if self.taken.is_none() && self.shared.lock().ends {
                return Ok(());
            }
            watcher.wait(&mut done)?;
            for c in done.drain(..) {
                if !matches!(c.result, Ok(Done::Message(_))) {
                    self.handle(watcher, c, &wake)?;
                }
            }
        }
    }
}

/// A log in a loop of its own.
pub(crate) struct Running {
    thread: JoinHandle<io::Result<()>>,
    /// What recovery has cut off.
    pub(crate) cut: Option<Cut>,
}

/// Locks the log at `path`, reads it into the store, and starts its loop. This loop ends the server
/// if the log cannot be written.
///
/// # Errors
/// As for [`Lock::take`] and [`Journal::open`].
pub(crate) fn start(path: &Path, shared: &Arc<Shared>, server: &Started) -> io::Result<Running> {
    let lock = Lock::take(path)?;
    // A link is followed: the directory of the file itself is synced.
    let path = path.canonicalize()?;
    let (tell, is_ready) = mpsc::channel();
    let (of_log, server) = (Arc::clone(shared), Arc::clone(server));
    let spawned = Watcher::builder().spawn("log", move |mut watcher| {
        let (run, salt) = (&mut journal::run, RandomState::new().build_hasher().finish() as u32);
        let mut store = of_log.lock();
        let opened = Journal::open(&mut watcher, run, &path, salt, Care::default(), &mut store);
        drop(store);
        let (journal, cut) = opened?;
        tell.send(cut).expect("the caller waits for it");
        // Commands may come before `start` has returned.
        let server = || server.wait();
        let wake = |id| {
            server().wake(id);
        };
        let ended = Log::new(of_log, journal).run(&mut watcher, wake);
        drop(lock);
        ended.inspect_err(|_| server().shutdown())
    })?;
    let submitter = spawned.submitter;
    shared.log.set(submitter).map_err(|_| io::Error::other("a server has one log"))?;
    match is_ready.recv() {
        Ok(cut) => Ok(Running { thread: spawned.thread, cut }),
        // It has sent nothing, so it has failed.
        Err(_) => Err(wait(spawned.thread).err().unwrap_or(io::ErrorKind::Other.into())),
    }
}

impl Running {
    /// Waits until the last group is on the disk. Call [`Shared::end`] first.
    ///
    /// # Errors
    /// As for [`Log::handle`].
    pub(crate) fn wait(self) -> io::Result<()> {
        wait(self.thread)
    }
}

fn wait(thread: JoinHandle<io::Result<()>>) -> io::Result<()> {
    thread.join().expect("no panic")
}
