//! The engine: connections on a watcher that the program owns.
//!
//! ```text
//! mod.rs       the type `Engine`, and the calls of a program
//! events.rs    completions in, events out
//! listener.rs  accepts                                connect.rs  connects, given sockets
//! handshake.rs connections that begin with more than their data
//! flights.rs   the turns of handshakes
//! overflow.rs  accepted connections for which there is no room
//! requests.rs  what the program has asked for
//! output.rs    writes: one for each connection and turn
//! files.rs     files among the writes
//! ends.rs      closes, half-closes, detaches
//! linger.rs    the last part of a close              failing.rs  the end of those that fail
//! datagram.rs  datagram sockets
//! sessions.rs  the peers of datagram sockets as connections
//! clients.rs   connected datagram sockets             dial.rs  connections for other threads
//! options.rs   options of sockets
//! remote.rs    what other threads have asked for
//! deadlines.rs deadlines of single connections          stream.rs  connections as values
//! jobs.rs      work of connections, off the loop      ops.rs  operations of the program
//! sweep.rs     limits of time, and the budget of bytes    limit.rs  limits that the program sets
//! peer.rs      the end of a peer that is not read
//! charges.rs   what the program holds for connections
//! balance.rs   which loop gets an accepted connection
//! moves.rs     connections that a thread hands to a loop
//! ```

pub(crate) mod balance;
mod charges;
mod clients;
mod coded;
mod connect;
mod datagram;
mod deadlines;
mod dial;
mod ends;
mod events;
mod failing;
mod files;
mod flights;
mod full;
mod handshake;
pub(crate) mod jobs;
mod limit;
mod linger;
pub(crate) mod listener;
mod moves;
mod ops;
mod options;
mod output;
mod overflow;
mod peer;
mod remote;
mod requests;
mod sessions;
mod stream;
mod sweep;
mod transitions;
mod upgrade;

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use windlass::driver::{Clock, Driver};
use windlass::{Buf, Completion, Source, Submitter, Ticket, Watcher};

use balance::Balancer;
use events::{Gone, Pending};
use jobs::Then;
use requests::Request;

use crate::handles::dial::Unpack;
use crate::handles::job::Executor;
use crate::handles::remote::Remote;
use crate::inbox::Shared;
use crate::log::{self, LogEvent, Record};
use crate::memory::Budget;
use crate::parts::allowances::Allowances;
use crate::parts::datagrams::Datagrams;
use crate::parts::deadlines::Deadlines;
use crate::parts::flights::Flights;
use crate::parts::idle::IdleClock;
use crate::parts::jobs::JobTable;
use crate::parts::moves::{Move, Moved};
use crate::parts::ops::OpTable;
use crate::parts::pressure::Pressure;
use crate::parts::sessions::Sessions;
use crate::parts::table::{ABORT, DIRTY, HELD, PAUSED, READING, Table, WOKEN};
use crate::parts::transport::Transports;
use crate::stage::Stage;
use crate::sys::BoundPath;
use crate::words::cause::Cause;
use crate::words::config::Config;
use crate::words::counters::Counters;
use crate::words::event::Origin;
use crate::words::id::{Id, LOOP_BITS};
#[cfg(doc)]
use crate::{Event, Limits};

/// Connections on a [`Watcher`] that the program owns, each with a state of type `S`.
///
/// In each turn the program takes the events out of its batch of completions with
/// [`next_event_in`](Engine::next_event_in), and calls [`flush`](Engine::flush). A completion that
/// is not the engine's is an event, too. So one loop can serve several engines, files, timers and
/// other threads. The engine works on every driver, and in a [simulation](windlass::sim).
///
/// ```
/// use windlass::net::ListenOptions;
/// use windlass::{Completions, Op, Watcher};
/// use windlass_serve::{Config, Engine, Event};
///
/// let mut watcher = Watcher::new()?;
/// let mut engine = Engine::<()>::new(Config::default());
/// engine.listen(&mut watcher, ([127, 0, 0, 1], 0), ListenOptions::default())?;
/// # let address = watcher.local_address(engine.listeners()[0])?.ip().unwrap();
/// # let client = std::thread::spawn(move || -> std::io::Result<String> {
/// #     use std::io::{Read, Write};
/// #     let mut client = std::net::TcpStream::connect(address)?;
/// #     client.write_all(b"hello")?;
/// #     client.shutdown(std::net::Shutdown::Write)?;
/// #     let mut answer = String::new();
/// #     client.read_to_string(&mut answer)?;
/// #     Ok(answer)
/// # });
/// let mut done = Completions::new();
/// let mut served = 0;
/// while served == 0 {
///     watcher.wait(&mut done)?;
///     let mut batch = done.visit();
///     loop {
///         match engine.next_event_in(&mut watcher, &mut batch) {
///             Some(Event::Data { id, data }) => engine.write(id, data)?, // leaves with the flush
///             Some(Event::Closed { id, cause, .. }) => {
///                 println!("{id}: {cause:?}");
///                 served += 1;
///             }
///             Some(Event::Foreign(completion)) => println!("not of the engine: {completion:?}"),
///             Some(_) => {}
///             None => break,
///         }
///     }
///     engine.flush(&mut watcher);
/// }
/// # assert_eq!(client.join().unwrap()?, "hello");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A program that has its completions one by one passes each to [`complete`](Engine::complete), and
/// takes the events out with [`next_event`](Engine::next_event). It can also pass the foreign
/// completions of one engine to another one in this way.
///
/// Only these calls deliver events. Calls without a watcher, for example `write` and `close`,
/// take effect in `flush`.
pub struct Engine<S> {
    /// The connections.
    table: Table<S>,
    config: Config,
    /// What the rule of the budget needs.
    memory: Pressure,
    /// What is to become events.
    told: ToTell<S>,
    /// What the next flush does.
    work: ToDo,
    clocks: Clocks,
    /// How connections come.
    entrance: Entrance,
    udp: Udp,
    jobs: JobTable<Then<S>>,
    /// What other threads see of this engine, and have sent to it.
    outside: FromThreads<S>,
    /// Connections of a thread that leave it for a loop.
    leaving: Leaving<S>,
    counters: Counters,
}

struct ToTell<S> {
    /// The first token of this engine's operations: their upper half is its tag.
    tokens: u64,
    /// The completions of `complete` that `next_event` has not looked at.
    queue: VecDeque<Completion>,
    /// The events that it delivers before those.
    pending: VecDeque<Pending>,
    /// How many of them are messages of other threads, or wait behind one.
    posted: usize,
    /// Connections that the program has woken since the last flush.
    woken: Vec<Id>,
    /// Connections that have ended. A `Pending` stands for each.
    gone: VecDeque<Gone<S>>,
    /// The accepted connection whose state is being made.
    making: Option<Origin>,
    /// The connection about whose hello the program is asked.
    asking: Option<Id>,
}

#[derive(Default)]
struct ToDo {
    /// The output of this turn to connections that have nothing else to do. The place of each
    /// connection names the position of its buffer. A buffer that no place names is empty.
    fresh: Vec<(u32, Buf)>,
    /// Connections that have more to do.
    dirty: Vec<Id>,
    /// The operations of the program.
    ops: OpTable,
    /// What else there is, and whether there is something.
    wanted: Vec<Request>,
    requests: bool,
    /// Whether options of sockets may be wanted.
    options: bool,
    /// Whether the watcher has files, once that is known.
    has_files: Option<bool>,
    /// What tells sources of the watcher from those of other watchers, once the program has one.
    submitter: Option<Submitter>,
}

#[derive(Default)]
struct Clocks {
    /// The clock of the watcher, once the engine has met it.
    clock: Option<Clock>,
    tick: Option<Ticket>,
    /// The connections that the sweep looks at, its timer, and where it goes on.
    swept: Vec<u32>,
    sweep_timer: Option<Ticket>,
    sweep_from: usize,
    /// The watcher has refused the timer.
    wants_sweep: bool,
    deadlines: Deadlines,
    /// The time that the program gives connections.
    allowances: Allowances,
    /// The shortest idle time that the program has set for a connection.
    shortest_idle: Option<Duration>,
}

#[derive(Default)]
struct Entrance {
    listeners: Vec<Source>,
    /// The Unix paths of a server's listeners, by the numbers of these.
    paths: Vec<(usize, BoundPath)>,
    /// Where accepted connections go.
    balancer: Option<Balancer>,
    /// The server that takes those for which there is no room.
    overflow: Option<Remote>,
    /// What the connections of a listener begin with, and those that are in their handshake.
    transports: Transports,
    /// The handshakes whose turn it is not.
    flights: Flights,
    /// Connections that were refused, and wait for their peers to take the farewell.
    refused: usize,
    /// Whether all new connections are refused.
    refuses: bool,
    /// Whether listeners that other threads add are refused.
    has_stopped: bool,
}

#[derive(Default)]
struct Udp {
    datagrams: Datagrams,
    sessions: Sessions,
}

struct FromThreads<S> {
    shared: Option<Arc<Shared>>,
    /// Makes a state of what a thread has sent.
    unpack: Option<Unpack<S>>,
    /// The connections that threads have handed over.
    arrivals: VecDeque<Box<Moved>>,
    /// The program's threads for jobs.
    executor: Option<Executor>,
    /// Whether another thread has asked for the shutdown, and whether a server shuts down then.
    stop_asked: bool,
    has_server: bool,
}

struct Leaving<S> {
    is_thread: bool,
    /// The connections that may move, and whether they were told to.
    moves: Vec<Move<S>>,
    was_told_to_move: bool,
}

/// The lower half of the tokens that name no connection.
const TICK: u32 = 0xffff_ffff;
const SWEEP: u32 = 0xffff_fffe;
const WAKE: u32 = 0xffff_fffd;
const REFUSED: u32 = 0xffff_fffc;
const SESSIONS: u32 = 0xffff_fffb;
const DEADLINE: u32 = 0xffff_fff5;
const ALLOWANCE: u32 = 0xffff_fff4;
const FLIGHTS: u32 = 0xffff_fff3;
const LAST_JOBS: u32 = 0xffff_fff0;
/// Those of jobs, with their places in the lower bits.
const JOBS: u32 = 0x8000_0000;
/// And those of flights at workers, with the places of their connections.
const WORK: u32 = 0xfe00_0000;
/// And those of listeners.
const LISTENERS: u32 = 0xfff0_0000;
/// And those of datagrams that sessions send.
const SENDS: u32 = 0x4000_0000;
/// And those of the program's operations.
const OPS: u32 = 0x2000_0000;

/// Engines of this process so far: each has tokens of its own.
static ENGINES: AtomicU32 = AtomicU32::new(0);

/// The upper half of an engine's tokens: far from both ends, where programs have their numbers.
fn tag_of(number: u32) -> u32 {
    const FIRST: u32 = 0x8001_0000;
    const SPAN: u64 = 0x7ffe_0000;
    // The factor has no divisor in common with the span: each engine has another tag.
    FIRST + ((u64::from(number) + 1) * 0x1e37_79b1 % SPAN) as u32
}

impl<S> Engine<S> {
    /// An engine without connections.
    pub fn new(config: Config) -> Engine<S> {
        Engine::of_loop(config, 0, Budget::new(config.limits.memory))
    }

    /// An engine whose ids are unique over several loops, and which shares their budget of bytes:
    /// [`Budget`] has an example. The limit of the budget takes the place of [`Limits::memory`].
    ///
    /// # Panics
    /// If `loop_index` is 65,536 or more.
    pub fn of_loop(config: Config, loop_index: usize, budget: Budget) -> Engine<S> {
        assert!(loop_index < 1 << LOOP_BITS, "a loop index is below 65,536");
        let config = Config { limits: config.limits.bounded(), ..config };
        Engine {
            table: Table::new(loop_index),
            config,
            memory: Pressure::new(budget, config.limits.high),
            told: ToTell {
                tokens: u64::from(tag_of(ENGINES.fetch_add(1, Ordering::Relaxed))) << 32,
                queue: VecDeque::new(),
                pending: VecDeque::new(),
                posted: 0,
                woken: Vec::new(),
                gone: VecDeque::new(),
                making: None,
                asking: None,
            },
            work: ToDo::default(),
            clocks: Clocks::default(),
            entrance: Entrance::default(),
            udp: Udp::default(),
            jobs: JobTable::default(),
            outside: FromThreads {
                shared: None,
                unpack: None,
                arrivals: VecDeque::new(),
                executor: None,
                stop_asked: false,
                has_server: false,
            },
            leaving: Leaving { is_thread: false, moves: Vec::new(), was_told_to_move: false },
            counters: Counters::default(),
        }
    }

    /// Whether each peer of a datagram socket is a session.
    pub(crate) fn has_udp_sessions(&self) -> bool {
        self.config.udp_sessions
    }

    /// Tells the log of something that is no message.
    #[cold]
    pub(crate) fn log(&self, event: LogEvent<'_>) {
        if let Some(log) = self.config.log {
            let (server, loop_index) = (self.config.name, self.table.loop_index());
            log::tell(log, Record { server, loop_index, event });
        }
    }

    /// Notes that the engine belongs to a server, which is over after a shutdown.
    pub(crate) fn set_server(&mut self) {
        self.outside.has_server = true;
    }

    /// Notes that the engine belongs to a thread of connections.
    pub(crate) fn set_thread(&mut self) {
        self.leaving.is_thread = true;
    }

    /// Whether another thread has asked for the shutdown.
    pub(crate) fn is_stop_asked(&self) -> bool {
        self.outside.stop_asked
    }

    /// Closes connections that come from now on, and those that are in a handshake.
    pub(crate) fn refuse_all(&mut self) {
        self.entrance.refuses = true;
        self.abort_handshakes();
    }

    /// The number of the next connection.
    pub(crate) fn next_id(&self) -> u64 {
        self.table.next_number()
    }

    /// The numbers of its connections begin with `next`.
    pub(crate) fn continue_ids(&mut self, next: u64) {
        self.table.continue_with(next);
    }

    /// Distributes the connections that the listeners accept.
    pub(crate) fn set_balancer(&mut self, balancer: Balancer) {
        self.entrance.balancer = Some(balancer);
    }

    /// The name of the connection that has a place.
    #[inline]
    pub(crate) fn id_at(&self, index: u32) -> Id {
        self.table.id(index)
    }

    #[inline]
    fn token(&self, index: u32) -> u64 {
        self.told.tokens | u64::from(index)
    }

    /// The program's state of the connection that has a place.
    #[inline]
    pub(crate) fn state_at(&mut self, index: u32) -> Option<&mut S> {
        self.table.place_mut(index).state.as_mut()
    }

    /// The program's state of a connection; `None` for a stale id.
    #[inline]
    pub fn state(&self, id: Id) -> Option<&S> {
        self.table.get(id)?.state.as_ref()
    }

    /// The program's state of a connection, to change it; `None` for a stale id.
    #[inline]
    pub fn state_mut(&mut self, id: Id) -> Option<&mut S> {
        self.table.get_mut(id)?.state.as_mut()
    }

    /// The number of connections, including those that are closing, and those that have not brought
    /// their [header of a proxy](Config::proxy).
    pub fn len(&self) -> usize {
        self.table.len
    }

    /// Whether datagrams wait that the kernel has not taken.
    pub(crate) fn sends_datagrams(&self) -> bool {
        self.udp.datagrams.charged() + self.udp.sessions.charged > 0
    }

    /// Whether there is no connection.
    pub fn is_empty(&self) -> bool {
        self.table.len == 0
    }

    /// The connections that connect, are open, or close, in no particular order.
    pub fn ids(&self) -> impl Iterator<Item = Id> {
        self.table.iter()
    }

    /// The source of a connection, for a look at its socket; `None` for a stale id, for a session
    /// of a bound socket, and before a connect has begun. Submit no operation on it: the engine
    /// keeps its own account of them. [`set_option`](Engine::set_option) sets options.
    pub fn source(&self, id: Id) -> Option<Source> {
        self.table.get(id).map(|place| place.source).filter(|source| !source.is_none())
    }

    /// The budget of bytes.
    pub fn budget(&self) -> &Budget {
        &self.memory.budget
    }

    /// What the engine has counted.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Stops delivering the data of a connection; false for a stale id. The engine holds back the
    /// data that arrives. After the next piece it stops reading, so that the peer has to wait. A
    /// paused connection is not closed as [idle](Limits::idle).
    ///
    /// A connection is paused or it is not: the first [`resume`](Engine::resume) ends the pause,
    /// however many calls have begun it. So one part of a program pauses and resumes a connection.
    ///
    /// ```
    /// use windlass::Buf;
    /// use windlass_serve::{Action, Conn, Handler};
    ///
    /// /// Takes the next piece when the job of the last one has ended.
    /// struct OneByOne;
    /// impl Handler for OneByOne {
    ///     type State = ();
    ///     fn data(&mut self, c: &mut Conn<'_, ()>, data: Buf) -> Action {
    ///         c.pause();
    ///         let job = move || data.len();
    ///         let answer = |c: &mut Conn<'_, ()>, count: usize| {
    ///             c.write(format!("{count} bytes\n"));
    ///             c.resume();
    ///             Action::None
    ///         };
    ///         if c.execute(job, answer).is_ok() { Action::None } else { Action::Close }
    ///     }
    /// }
    /// ```
    pub fn pause(&mut self, id: Id) -> bool {
        let Some(place) = self.table.get_mut(id) else { return false };
        place.flags |= PAUSED;
        self.note_reads(id.index());
        if self.watches_peer(id.index()) {
            self.dirty(id.index());
        }
        true
    }

    /// Delivers data of a connection again: first what was held back. False for a stale id.
    pub fn resume(&mut self, id: Id) -> bool {
        let Some(place) = self.table.get_mut(id) else { return false };
        if place.flags & PAUSED != 0 {
            place.flags &= !PAUSED;
            let flags = place.flags;
            if let Some(active) = self.table.active_of(id.index()) {
                active.idle = IdleClock::Elsewhere;
            }
            self.note_reads(id.index());
            if flags & HELD != 0 {
                self.told.pending.push_back(Pending::Held(id));
            }
            if flags & READING != 0 {
                // The read was in flight all the time, and so its idle time ran on.
                self.request(Request::Idle(id));
            }
            self.dirty(id.index());
        }
        true
    }

    /// Makes an [`Event::Wake`] for a connection; false for a stale id. The event comes after the
    /// next [`flush`](Engine::flush). Several calls before the event make one event.
    pub fn wake(&mut self, id: Id) -> bool {
        let Some(place) = self.table.get_mut(id) else { return false };
        if place.flags & WOKEN == 0 {
            place.flags |= WOKEN;
            self.told.woken.push(id);
        }
        true
    }

    /// Makes an [`Event::Tick`] after `span`. A new call replaces the tick of an earlier one.
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass::sim::Sim;
    /// use windlass::{Completions, Watcher};
    /// use windlass_serve::{Config, Engine, Event};
    ///
    /// let mut watcher = Watcher::simulated(&Sim::new(1)); // whose time is virtual
    /// let mut engine = Engine::<()>::new(Config::new());
    /// engine.tick_after(Duration::from_secs(3600));
    /// engine.flush(&mut watcher);
    /// let (start, mut done) = (watcher.now(), Completions::new());
    /// watcher.wait(&mut done)?;
    /// let event = engine.next_event_in(&mut watcher, &mut done.visit());
    /// assert!(matches!(event, Some(Event::Tick)));
    /// assert!(watcher.now() - start >= Duration::from_secs(3600));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn tick_after(&mut self, span: Duration) {
        self.request(Request::Tick(span));
    }

    /// The time on the clock of the watcher, for code that has no watcher: virtual in a
    /// [simulation](windlass::sim). Each call reads the clock, and costs nothing else: the engine
    /// keeps no time. So it goes on between two waits, and [`Watcher::now`] does not. Before the
    /// engine has met its watcher, by a listener, a [`Remote`](Engine::remote) or its first
    /// connection for example, it is the time of the system.
    ///
    /// ```
    /// use std::time::Instant;
    /// use windlass::Buf;
    /// use windlass_serve::{Action, Closed, Conn, Context, Handler, Origin};
    ///
    /// /// Says how long it has served each connection.
    /// struct Times;
    /// impl Handler for Times {
    ///     type State = Option<Instant>; // when it was opened
    ///     fn opened(&mut self, c: &mut Conn<'_, Self::State>, _: Origin) -> Action {
    ///         let now = c.now();
    ///         *c.state() = Some(now);
    ///         Action::None
    ///     }
    ///     fn closed(
    ///         &mut self,
    ///         server: &mut Context<'_, Self::State>,
    ///         closed: Closed<Self::State>,
    ///     ) -> Action {
    ///         let age = closed.state.map(|opened| server.now() - opened);
    ///         println!("{}: {age:?}", closed.id);
    ///         Action::None
    ///     }
    /// }
    /// ```
    pub fn now(&self) -> Instant {
        self.clocks.clock.as_ref().map_or_else(Instant::now, Clock::now)
    }

    /// Notes the clock of the watcher.
    pub(crate) fn note_clock<D: Driver>(&mut self, watcher: &Watcher<D>) {
        self.clocks.clock.get_or_insert_with(|| watcher.clock());
    }

    /// Puts a connection into the list that `flush` looks at.
    #[inline]
    pub(crate) fn dirty(&mut self, index: u32) {
        let id = self.table.id(index);
        let place = self.table.place_mut(index);
        if place.flags & DIRTY == 0 {
            place.flags |= DIRTY;
            self.work.dirty.push(id);
        }
    }

    /// Ends a connection at the next `flush`, and drops its waiting output; false for a stale id,
    /// and for a connection whose [`Event::Detached`] waits to be taken out.
    pub fn abort(&mut self, id: Id) -> bool {
        self.abort_as(id, Cause::Aborted)
    }

    pub(crate) fn abort_as(&mut self, id: Id, cause: Cause) -> bool {
        let Some(place) = self.table.get_mut(id) else { return false };
        if place.stage == Stage::Ended && place.source.is_none() {
            return false; // its last event waits
        }
        place.flags |= ABORT;
        self.note_cause(id.index(), cause);
        self.dirty(id.index());
        true
    }
}

impl<S> fmt::Debug for Engine<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("connections", &self.table.len)
            .field("budget", &self.memory.budget)
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_engine_has_a_tag_near_the_ends() {
        let mut tags: Vec<u32> = (0..10_000).chain(u32::MAX - 9..=u32::MAX).map(tag_of).collect();
        for tag in &tags {
            assert!((0x8001_0000..0xffff_0000).contains(tag), "{tag:x}");
        }
        tags.sort_unstable();
        tags.dedup();
        assert_eq!(tags.len(), 10_010);
    }
}
