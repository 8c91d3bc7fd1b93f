//! A seeded, simulated kernel with virtual time, for tests of programs that use this crate.
//!
//! The real [`Proactor`] runs on it: only sockets and the clock are simulated. A server and its
//! clients run in one thread, against a network that misbehaves as its [`Faults`] say. The same
//! seed gives the same run; a timeout of an hour takes no time.
//!
//! ```
//! use std::time::Duration;
//! use windlass::sim::{Faults, Sim};
//! use windlass::{Completions, Done, Op, Watcher};
//!
//! let sim = Sim::with_faults(42, Faults::transient(0.2));
//! let mut watcher = Watcher::simulated(&sim);
//! let listener = watcher.listen(([127, 0, 0, 1], 7007))?;
//! watcher.submit(Op::accept(listener))?;
//! watcher.submit(Op::connect(([127, 0, 0, 1], 7007)))?;
//! watcher.submit(Op::timer(Duration::from_secs(3600)))?;
//! let mut done = Completions::new();
//! let mut heard = Vec::new();
//! 'run: loop {
//!     watcher.wait(&mut done)?;
//!     for c in done.drain(..) {
//!         match c.result? {
//!             Done::Connected(socket) => {
//!                 let client = watcher.attach(socket)?;
//!                 watcher.submit(Op::write(client, "hello"))?;
//!             }
//!             Done::Accepted(socket) => {
//!                 let server = watcher.attach(socket)?;
//!                 watcher.submit(Op::read(server).multishot())?;
//!             }
//!             Done::Read(data) => heard.extend_from_slice(&data),
//!             Done::Timer => break 'run,
//!             _ => {}
//!         }
//!     }
//! }
//! assert_eq!(heard, b"hello");
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! A program that takes its sockets and its time from its watcher can run here. It calls
//! `watcher.listen` and [`Op::connect`](crate::Op::connect) instead of std's sockets, and
//! `watcher.now` instead of `Instant::now`. It uses timers and timeouts instead of sleeps.
//!
//! # What is simulated
//!
//! Stream sockets at internet and Unix addresses (all of them are addresses of this network; a Unix
//! path is only a name), with bounded buffers and backlogs, half-close and reset as on Linux;
//! [pairs](Sim::pair) and [datagram sockets](Sim::datagram); edge-triggered readiness as epoll's.
//! [Signals](Sim::raise) and [child processes](Sim::spawn) come from the test. Passing descriptors
//! is not simulated: it fails with `EOPNOTSUPP`.
//!
//! # Time
//!
//! Time passes only while a watcher waits, and by [`Sim::advance`]. Each turn of a watcher takes a
//! microsecond ([`Sim::set_turn`]). So deadlines also pass in a program that only submits nops or
//! posts messages to itself. A wait in which nothing happens ends exactly at its timeout. When
//! nothing can ever happen, `wait` fails with [`Deadlock`](io::ErrorKind::Deadlock) instead of
//! blocking.
//!
//! # Several watchers
//!
//! Several watchers in one thread share the network and the clock. A watcher that blocks keeps the
//! others from running. So let them take turns without blocking, and advance the time when none has
//! work:
//!
//! ```
//! # use windlass::sim::Sim;
//! # use windlass::{Completions, Watcher};
//! # let sim = Sim::new(1);
//! # let (mut a, mut b) = (Watcher::simulated(&sim), Watcher::simulated(&sim));
//! # let mut done = Completions::new();
//! # a.submit(windlass::Op::timer(std::time::Duration::from_secs(60)))?;
//! loop {
//!     if a.try_wait(&mut done)? + b.try_wait(&mut done)? > 0 {
//!         // Look at what is done.
//! #       done.clear();
//!     } else if !sim.advance_to_next([a.next_timeout(), b.next_timeout()]) {
//!         break; // Nothing will ever happen again.
//!     }
//! }
//! # Ok::<(), std::io::Error>(())
//! ```

mod datagram;
mod faults;
mod kernel;
mod names;
mod outside;
mod process;
mod ring;
mod rng;
mod schedule;
#[cfg(test)]
mod soak;
mod stream;
#[cfg(test)]
mod tests;
mod world;

use std::cell::{RefCell, RefMut};
use std::fmt;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use faults::{Faults, Injected};

use crate::address::Address;
use crate::clock;
use crate::config::Config;
use crate::interest::Ready;
use crate::proactor::Proactor;
use crate::source::{Handle, SourceKind};
use kernel::Call;
use names::Name;
use outside::Outside;
use world::{INTERNET, World};

/// A simulated network with its own clock; the kernel of [`Watcher::simulated`].
///
/// Clones share the network. See the [module](self) for how to use it.
pub struct Sim {
    world: Rc<RefCell<World>>,
    outside: Arc<Outside>,
    /// This clone's share of the events.
    selector: u32,
    /// The events of the last wait, and how many one takes at most.
    events: Vec<(u64, Ready)>,
    most_events: usize,
    calls: [u64; Call::COUNT],
}

impl Sim {
    /// A network without faults. The seed decides what is still random.
    pub fn new(seed: u64) -> Sim {
        Sim::with_faults(seed, Faults::none())
    }

    /// A network with faults. The same seed, faults and program give the same run.
    pub fn with_faults(seed: u64, faults: Faults) -> Sim {
        clock::start();
        let world = Rc::new(RefCell::new(World::new(seed, faults)));
        Sim::open(world, Arc::new(Outside::default()))
    }

    fn open(world: Rc<RefCell<World>>, outside: Arc<Outside>) -> Sim {
        let selector = world.borrow_mut().schedule.open_selector();
        Sim {
            world,
            outside,
            selector,
            events: Vec::new(),
            most_events: Config::default().events_per_wait,
            calls: [0; Call::COUNT],
        }
    }

    /// Changes what goes wrong from now on.
    pub fn set_faults(&self, faults: Faults) {
        self.enter().dice.set_faults(faults);
    }

    /// How many bytes a socket that is made from now on takes in before its reader reads them: at
    /// least 1. Default 64 KiB.
    pub fn set_buffer(&self, bytes: usize) {
        self.enter().buffer = bytes.max(1);
    }

    /// Sets the virtual time that each turn of a watcher takes; a wait is one turn or more. Default
    /// 1 µs, at least 1 ns; zero counts as 1 ns, because with turns that take no time no deadline
    /// of a busy program would ever come.
    pub fn set_turn(&self, span: Duration) {
        self.enter().schedule.turn_ns = clock::ns_of_duration(span).max(1);
    }

    /// How long a wait without possible events waits for other threads (in real time), before it
    /// fails with [`Deadlock`](io::ErrorKind::Deadlock). Default 10 s. A program without other
    /// threads sets zero, and finds the deadlock at once.
    pub fn set_patience(&self, patience: Duration) {
        self.enter().patience = patience;
    }

    /// Two connected stream sockets, as socketpair(2) makes them.
    pub fn pair(&self) -> (Handle, Handle) {
        let (a, b) = self.enter().pair();
        let handle = |fd| Handle::from_virtual(fd, SourceKind::UnixStream, None, self.owner());
        (handle(a), handle(b))
    }

    /// A datagram socket at an address; port 0 stands for a free one. Datagrams arrive in order and
    /// none is lost: a sender waits while its receiver's queue is full.
    ///
    /// ```
    /// use windlass::sim::Sim;
    /// use windlass::{Completions, Done, Op, Watcher};
    /// let sim = Sim::new(1);
    /// let mut watcher = Watcher::simulated(&sim);
    /// let a = watcher.attach(sim.datagram(([10, 0, 0, 1], 53))?)?;
    /// let b = watcher.attach(sim.datagram(([10, 0, 0, 2], 53))?)?;
    /// watcher.submit(Op::send_to(a, "who is there?", ([10, 0, 0, 2], 53)))?;
    /// watcher.submit(Op::recv_from(b))?;
    /// let mut done = Completions::new();
    /// while done.len() < 2 {
    ///     watcher.wait(&mut done)?;
    /// }
    /// let Some(Ok(Done::Received { data, from, .. })) = done.drain(..).nth(1).map(|c| c.result)
    /// else { panic!() };
    /// assert_eq!((&*data, from.to_string().as_str()), (&b"who is there?"[..], "10.0.0.1:53"));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// `EADDRINUSE` when there is one already, `EINVAL` for no address.
    pub fn datagram(&self, at: impl Into<Address>) -> io::Result<Handle> {
        let fd = self.enter().datagram(&at.into())?;
        Ok(Handle::from_virtual(fd, SourceKind::Datagram, None, self.owner()))
    }

    /// The virtual time, as [`Watcher::now`] says it.
    pub fn now(&self) -> Instant {
        clock::instant_of(self.enter().schedule.now_ns)
    }

    /// Lets time pass.
    pub fn advance(&self, span: Duration) {
        let schedule = &mut self.enter().schedule;
        let span_ns = clock::ns_of_duration(span);
        schedule.now_ns = schedule.now_ns.saturating_add(span_ns);
    }

    /// Lets time pass until something happens: in the network, or at the end of one of `timeouts`,
    /// which are the watchers' [`next_timeout`](Watcher::next_timeout). False when nothing ever
    /// will.
    pub fn advance_to_next(&self, timeouts: impl IntoIterator<Item = Option<Duration>>) -> bool {
        let timeouts = timeouts.into_iter().flatten();
        let next = timeouts.chain(self.next_timeout()).min();
        self.advance(next.unwrap_or_default());
        next.is_some()
    }

    /// When something happens in the network by itself: zero when a watcher has events to take.
    pub fn next_timeout(&self) -> Option<Duration> {
        let schedule = &self.enter().schedule;
        if schedule.has_ready() {
            return Some(Duration::ZERO);
        }
        let next = schedule.next_ns()?;
        Some(Duration::from_nanos(next.saturating_sub(schedule.now_ns)))
    }

    /// How many faults of each kind there were.
    pub fn injected(&self) -> Injected {
        self.enter().dice.injected
    }

    /// A hash of everything that has happened, in order: attempts with their answers, events with
    /// their times. Two runs with equal hashes were the same run.
    pub fn trace_hash(&self) -> u64 {
        self.enter().trace
    }

    /// The world, in which what other threads have done is done.
    #[inline(always)]
    fn enter(&self) -> RefMut<'_, World> {
        let mut world = self.world.borrow_mut();
        if self.outside.has_news() {
            self.outside.take_news(&mut world);
        }
        world
    }

    /// The kind of a stream socket.
    fn kind_of(world: &World, fd: i32) -> SourceKind {
        if world.sockets[fd as usize].flags & INTERNET != 0 {
            SourceKind::Stream
        } else {
            SourceKind::UnixStream
        }
    }
}

impl Clone for Sim {
    fn clone(&self) -> Sim {
        Sim::open(Rc::clone(&self.world), Arc::clone(&self.outside))
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        self.enter().close_selector(self.selector);
    }
}

impl fmt::Debug for Sim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sim")
            .field("now", &self.now())
            .field("injected", &self.injected())
            .finish_non_exhaustive()
    }
}

impl Proactor<Sim> {
    /// A proactor on a simulated network. Busy polling is off: it would wait for a clock that
    /// stands still. ([`Watcher::simulated`] hides its type; a program that names it pays for no
    /// choice of the driver.)
    ///
    /// [`Watcher::simulated`]: crate::Watcher::simulated
    pub fn simulated(sim: &Sim, config: Config) -> Proactor<Sim> {
        let mut kernel = sim.clone();
        kernel.most_events = config.events_per_wait.max(1);
        let config = Config { busy_poll: Duration::ZERO, ..config };
        Proactor::with_kernel(kernel, config, "a simulation".into())
    }
}
