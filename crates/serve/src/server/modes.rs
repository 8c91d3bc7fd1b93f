//! Threads that serve one connection each, beside the loops.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use windlass::{Address, Builder, Completions};

use super::handler::Handler;
use super::report::Report;
use super::threads::named;
use super::{MOST_LOOPS, Prepared, invalid};

use crate::handles::job::Executor;
use crate::handles::remote::Remote;
use crate::handles::threads::{Start, Threads};
use crate::memory::Budget;
use crate::parts::transport::Accepted;
use crate::words::balance::Balance;
use crate::words::config::Config;

/// How long a thread waits for the next connection before it ends.
const IDLE_TIME: Duration = Duration::from_secs(10);

/// Requests of other threads that can wait for a thread, ids that it keeps for them, and the bytes
/// of a buffer. A watcher allocates them at its start, and a thread has one connection.
const THREAD_QUEUE: usize = 64;
const THREAD_IDS: usize = 8;
const THREAD_BUFFER: u32 = 16 << 10;

/// The most threads: loops and threads share the 16 bits of an id that name the loop.
pub(super) const MOST_THREADS: usize = (1 << 16) - MOST_LOOPS;

/// What serves the connections of a server: its loops, threads of their own, or both. The handler
/// and the guarantees are the same.
///
/// The [guide](crate::guide#choose-a-mode) says which mode is for which program, and what a thread
/// costs.
///
/// A thread is a loop that gets one connection at a time. It has a handler of its own, which the
/// function of [`Server::new`](crate::Server::new) makes. So it also calls [`Handler::serving`] and
/// [`Handler::tick`] of this handler. The index of a thread follows those of the loops. When its
/// connection has ended, the thread gets the next one. It ends if none comes for 10 seconds. Its
/// watcher has the settings of the server, with a [`remote_queue`](Builder::remote_queue) of at
/// most 64 requests, an [`id_reserve`](Builder::id_reserve) of at most 8 ids, and a
/// [`buffer_size`](Builder::buffer_size) of at most 16 KiB.
///
/// A callback on a thread may block: only its own connection waits meanwhile. A write to another
/// connection never blocks in any mode, even if its peer does not read. Each thread runs the
/// [jobs](crate::Conn::execute) of its connection on worker threads of its own, or on the
/// [executor](crate::Server::executor) of the program.
///
/// The loops serve datagrams and UDP sessions in each mode. A connection that a callback makes
/// ([`Engine::connect`](crate::Engine::connect)) stays on the loop or the thread of the callback.
///
/// ```
/// use windlass::Buf;
/// use windlass_serve::{Action, Conn, Handler, Server, modes::IoMode};
///
/// struct Slow;
/// impl Handler for Slow {
///     type State = ();
///     fn data(&mut self, c: &mut Conn<'_, ()>, data: Buf) -> Action {
///         std::thread::sleep(std::time::Duration::from_millis(1)); // for a database, perhaps
///         c.write(data);
///         Action::Close
///     }
/// #   fn closed(
/// #       &mut self,
/// #       _: &mut windlass_serve::Context<'_, ()>,
/// #       _: windlass_serve::Closed<()>,
/// #   ) -> Action {
/// #       Action::Shutdown
/// #   }
/// }
///
/// // The first 100 connections have a thread. One loop serves the others.
/// let server = Server::new(|_loop| Slow).io_mode(IoMode::Mixed { threads: 100 });
/// # let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
/// # let address = listener.local_addr()?;
/// # let client = std::thread::spawn(move || {
/// #     use std::io::{Read, Write};
/// #     let mut client = std::net::TcpStream::connect(address).unwrap();
/// #     client.write_all(b"hello").unwrap();
/// #     let mut heard = String::new();
/// #     client.read_to_string(&mut heard).unwrap();
/// #     heard
/// # });
/// # let server = server.listener(listener);
/// # /*
/// let server = server.listen("tcp://127.0.0.1:7007")?;
/// # */
/// let report = server.run()?;
/// assert_eq!(report.thread_errors, 0); // the system gave every thread
/// # assert_eq!(client.join().unwrap(), "hello");
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// [`Server::run`](crate::Server::run) fails with `InvalidInput` if `threads` is 0 or more than
/// 64,512.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum IoMode {
    /// The loops serve all connections. Callbacks should not block.
    #[default]
    NonBlocking,
    /// A thread of its own serves each connection. While there are `threads` connections, the
    /// server refuses further ones, with the [farewell](crate::Config::farewell). It refuses a
    /// connection, too, if its thread cannot begin.
    Blocking {
        /// The most threads, and so the most connections: 1 to 64,512.
        threads: usize,
    },
    /// A thread of its own serves each connection. While there are `threads` such connections, the
    /// loops serve further ones. A loop serves a connection, too, if its thread cannot begin. It
    /// refuses one while 64 others wait for it already: a loop that blocks does not collect them.
    Mixed {
        /// The most threads: 1 to 64,512.
        threads: usize,
    },
}

impl IoMode {
    /// The threads, and whether the loops serve what is beyond.
    fn threads(self) -> Option<(usize, bool)> {
        match self {
            IoMode::NonBlocking => None,
            IoMode::Blocking { threads } => Some((threads, false)),
            IoMode::Mixed { threads } => Some((threads, true)),
        }
    }
}

/// Reads `nonblocking`, `blocking` or `mixed`: the last two with 10,000 threads, as nbio has them.
///
/// ```
/// use windlass_serve::modes::IoMode;
/// let mode: IoMode = "mixed".parse()?;
/// assert_eq!(mode, IoMode::Mixed { threads: 10_000 });
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// Other texts are an error: `InvalidInput`.
impl std::str::FromStr for IoMode {
    type Err = io::Error;
    fn from_str(name: &str) -> io::Result<IoMode> {
        const THREADS: usize = 10_000;
        match name {
            "nonblocking" => Ok(IoMode::NonBlocking),
            "blocking" => Ok(IoMode::Blocking { threads: THREADS }),
            "mixed" => Ok(IoMode::Mixed { threads: THREADS }),
            _ => Err(invalid("an unknown mode: nonblocking, blocking and mixed are known")),
        }
    }
}

/// Starts the threads of a server, on the thread that has called `run`.
pub(super) struct Keeper {
    pub(super) threads: Arc<Threads>,
    starts: Receiver<Start>,
    first: usize,
}

impl Keeper {
    /// The keeper of a mode with threads. `first` is the index of the first thread.
    pub(super) fn new(mode: IoMode, first: usize) -> io::Result<Option<Keeper>> {
        let Some((cap, mixed)) = mode.threads() else { return Ok(None) };
        if !(1..=MOST_THREADS).contains(&cap) {
            return Err(invalid("an IoMode has 1 to 64512 threads"));
        }
        let (sender, starts): (Sender<Start>, _) = channel();
        let threads = Arc::new(Threads::new(first, cap, mixed, sender));
        Ok(Some(Keeper { threads, starts, first }))
    }
}

/// What a thread of a server is made of.
pub(super) struct Common<'a, F> {
    pub(super) builder: &'a Builder,
    pub(super) config: Config,
    pub(super) budget: Budget,
    pub(super) grace: Duration,
    pub(super) make: &'a F,
    pub(super) remote: Remote,
    pub(super) addresses: Vec<Address>,
    pub(super) executor: Option<Executor>,
}

impl<H: Handler, F: Fn(usize) -> H + Sync> Common<'_, F> {
    /// Starts threads until the server shuts down. Returns their reports, when all have ended.
    pub(super) fn keep(&self, keeper: Keeper) -> Report {
        let total = Mutex::new(Report::default());
        let lock = || total.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        thread::scope(|scope| {
            while let Ok(Start { number, ids, given }) = keeper.starts.recv() {
                let index = keeper.first + number;
                // The connection stays here until the thread runs: it is not lost with it.
                let place = Arc::new(Mutex::new(Some(given)));
                let (for_thread, threads) = (Arc::clone(&place), Arc::clone(&keeper.threads));
                let run = move || {
                    let given = take(&for_thread).expect("only this thread takes it");
                    let _guard = EndsOnPanic(&self.remote);
                    let mut report = Report::default();
                    match self.serve(&threads, number, index, ids, given) {
                        Ok(one) => report.add(one),
                        Err((given, ids)) => {
                            report.thread_errors += 1;
                            threads.lose(number, ids);
                            if let Some(given) = given {
                                self.give_back(&threads, given, &mut report);
                            }
                        }
                    }
                    lock().add(report);
                };
                let name = named(&format!("connection {number}"), self.config.name);
                let builder = thread::Builder::new().name(name);
                if builder.spawn_scoped(scope, run).is_err() {
                    lock().thread_errors += 1;
                    keeper.threads.lose(number, ids);
                    if let Some(given) = take(&place) {
                        self.give_back(&keeper.threads, given, &mut lock());
                    }
                }
            }
        });
        total.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// A loop serves or refuses a connection whose thread could not begin.
    fn give_back(&self, threads: &Threads, given: Accepted, report: &mut Report) {
        if !self.remote.loops[0].take_over(given, threads.is_mixed()) {
            report.counters.refused += 1;
        }
    }

    /// Serves connections, one after the other. An error hands the first connection back if it was
    /// not served, and the number of the next one.
    #[allow(clippy::type_complexity)] // the two parts have nothing to do with each other
    fn serve(
        &self,
        threads: &Threads,
        number: usize,
        index: usize,
        ids: Option<u64>,
        given: Accepted,
    ) -> Result<Report, (Option<Accepted>, Option<u64>)> {
        let config = self.builder.config();
        let builder = self.builder.clone();
        let builder = builder.remote_queue(config.remote_queue.min(THREAD_QUEUE));
        let builder = builder.id_reserve(config.id_reserve.min(THREAD_IDS));
        let builder = builder.buffer_size(config.buffer_size.min(THREAD_BUFFER));
        let prepared = builder.build().and_then(|mut watcher| {
            let budget = self.budget.clone();
            let mut made = Prepared::new(index, &mut watcher, self.config, budget, Vec::new())?;
            made.grace = self.grace;
            Ok((watcher, made))
        });
        let Ok((mut watcher, mut prepared)) = prepared else { return Err((Some(given), ids)) };
        prepared.engine.set_thread();
        if let Some(ids) = ids {
            prepared.engine.continue_ids(ids);
        }
        if let Some(executor) = &self.executor {
            prepared.engine.share_executor(Arc::clone(executor));
        }
        let handler = (self.make)(index);
        let shared = Arc::clone(&prepared.remote.loops[0]);
        let balance = Balance::default();
        let mut running =
            prepared.start(&mut watcher, handler, &self.remote, balance, &self.addresses);
        let is_taken = shared.take_over(given, true);
        debug_assert!(is_taken, "its inbox is empty");
        if !threads.begin(number, shared) {
            running.stop(&mut watcher);
            running.turn(&mut watcher); // refuses the connection
        }
        let mut done = Completions::new();
        // When the thread ends, unless it gets a connection until then.
        let (mut until, mut served): (Option<Instant>, u64) = (None, 0);
        while !running.is_over() {
            let now = watcher.update_now();
            let ended = match until {
                Some(until) => {
                    watcher.wait_timeout(&mut done, until.saturating_duration_since(now))
                }
                None => watcher.wait(&mut done),
            };
            let Ok(count) = ended else {
                return Err((None, Some(running.engine().next_id())));
            };
            if count == 0 && until.is_some_and(|until| until <= watcher.update_now()) {
                // Jobs that must run and operations would be lost with the thread, and so would
                // what has come meanwhile. What comes from now on is refused.
                let engine = running.engine();
                if engine.jobs() == 0
                    && !engine.waits_for_last_jobs()
                    && engine.close_inbox_unless(|_| true)
                {
                    threads.lose(number, Some(engine.next_id()));
                    break;
                }
                until = None;
            }
            running.serve(&mut watcher, &mut done);
            let before = served;
            served = running.engine().given();
            if !running.engine().is_empty() {
                until = None;
                continue;
            }
            threads.note_idle(number, served);
            // A connection begins the time again, and a tick does not.
            until = until.filter(|_| served == before).or(Some(watcher.now() + IDLE_TIME));
        }
        Ok(running.report())
    }
}

fn take(place: &Mutex<Option<Accepted>>) -> Option<Accepted> {
    place.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take()
}

/// Shuts the server down if the function that makes the handlers panics.
struct EndsOnPanic<'a>(&'a Remote);

impl Drop for EndsOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.shutdown();
        }
    }
}
