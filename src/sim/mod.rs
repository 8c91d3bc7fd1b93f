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
//! is not simulated: it fails with `EOPNOTSUPP`. Files are not, either: they are refused with
//! [`Reason::NoFiles`](crate::Reason::NoFiles).
//!
//! [Jobs](crate::Op::run) run on the loop's thread, at virtual times that the seed draws
//! ([`Sim::set_job_time`]). Look-ups answer from a table that the test fills ([`Sim::host`]).
//!
//! # Hosts and links
//!
//! [`Sim::at`] gives watchers an address, as if they ran on a host of their own. Between two hosts,
//! [`Sim::set_link`] sets latency, jitter and bandwidth. [`Sim::cut`] separates them: connections
//! stall until [`Sim::heal`]. [`Sim::set_faults_at`] sets the faults of one address.
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
//! others from running. So [`Sim::run`] lets them take turns, and hands each completion to the
//! program. A loop of your own calls [`Watcher::try_wait`](crate::Watcher::try_wait) of each, and
//! [`Sim::advance_to_next`] when none has work.

mod datagram;
mod driver;
mod faults;
mod history;
mod jobs;
mod kernel;
mod links;
mod names;
mod outside;
mod process;
mod report;
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
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) use driver::SimulatedDriver;
pub use faults::{Faults, Injected};
pub use links::{Link, Traffic};
pub(crate) use report::add_lines;

#[cfg(doc)]
use crate::Watcher;
use crate::address::Address;
use crate::clock;
use crate::config::Config;
use crate::interest::Ready;
use crate::proactor::Proactor;
use crate::source::{Handle, SourceKind};
use faults::ANYWHERE;
use jobs::Jobs;
use kernel::Call;
use names::Name;
use outside::Outside;
use world::{INTERNET, World};

/// A simulated network with its own clock; the kernel of
/// [`Watcher::simulated`].
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
    jobs: Jobs,
    /// The address of the host that it is on, if the test has said one.
    home: Option<IpAddr>,
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
            jobs: Jobs::default(),
            home: None,
        }
    }

    /// The same network, seen from the host with this address: for watchers that run there. Their
    /// connections come from it, and they listen only at it. No address, and loopback, stand for
    /// it.
    ///
    /// Without this, a watcher may listen at any address, and a connection comes from the address
    /// that it goes to, as on one machine.
    ///
    /// ```
    /// use windlass::sim::Sim;
    /// use windlass::Watcher;
    /// let sim = Sim::new(1);
    /// let mut server = Watcher::simulated(&sim.at([10, 0, 0, 1]));
    /// let listener = server.listen(([0, 0, 0, 0], 80))?;
    /// assert_eq!(server.local_address(listener).unwrap().to_string(), "10.0.0.1:80");
    /// assert!(server.listen(([10, 0, 0, 2], 80)).is_err()); // EADDRNOTAVAIL
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn at(&self, host: impl Into<IpAddr>) -> Sim {
        let mut sim = self.clone();
        sim.home = Some(host.into());
        sim
    }

    /// Changes what goes wrong from now on, except where
    /// [an address has faults of its own](Sim::set_faults_at).
    pub fn set_faults(&self, faults: Faults) {
        self.enter().dice.set_faults(ANYWHERE, faults);
    }

    /// Changes what goes wrong from now on at an address: with its listener or its datagram socket,
    /// and with both ends of every connection of which it is one end. Port 0 stands for every port
    /// of a host. Of several addresses that fit, one with a port comes first, then an end's own
    /// address before its peer's. [`injected_at`](Sim::injected_at) counts these faults.
    ///
    /// ```
    /// use windlass::sim::{Faults, Sim};
    /// let sim = Sim::with_faults(1, Faults::transient(0.1));
    /// sim.set_faults_at(([10, 0, 0, 5], 5432), Faults { reset: 0.01, ..Faults::all(0.2) });
    /// sim.set_faults_at(([10, 0, 0, 6], 0), Faults::none()); // this host works
    /// assert_eq!(sim.injected_at(([10, 0, 0, 5], 5432)).reset, 0); // none yet
    /// ```
    pub fn set_faults_at(&self, address: impl Into<Address>, faults: Faults) {
        let mut world = self.enter();
        let name = Name::of(&address.into());
        let place = world.dice.place_at(name);
        world.dice.set_faults(place, faults);
        world.place_sockets();
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

    /// How much virtual time a [`run`](Sim::run) takes at most: it fails with `TimedOut` then. So
    /// a test also ends when timers keep it busy and what it waits for does not come. Default: no
    /// limit.
    pub fn set_time_limit(&self, limit: Duration) {
        self.enter().time_limit = Some(limit);
    }

    /// A number that the seed draws, for the program under test or for its test. The numbers are
    /// apart from those of the faults: a program that draws one more meets the same faults. Not for
    /// secrets.
    ///
    /// ```
    /// use windlass::sim::Sim;
    /// let (a, b) = (Sim::new(7), Sim::new(7));
    /// assert_eq!(a.random(), b.random());
    /// assert!(a.random_below(6) < 6); // a die
    /// ```
    pub fn random(&self) -> u64 {
        self.enter().numbers.next()
    }

    /// A number below `bound`, drawn as by [`random`](Sim::random).
    ///
    /// # Panics
    /// If `bound` is 0.
    pub fn random_below(&self, bound: u64) -> u64 {
        assert!(bound > 0, "no number is below 0");
        self.enter().numbers.below(bound)
    }

    /// Takes something that the program or the test has done into the [hash](Sim::trace_hash) of
    /// the run: two runs with equal hashes have made the same notes at the same places.
    ///
    /// ```
    /// use windlass::sim::Sim;
    /// let (a, b) = (Sim::new(7), Sim::new(7));
    /// a.note("elected: 3");
    /// b.note("elected: 4");
    /// assert_ne!(a.trace_hash(), b.trace_hash());
    /// ```
    pub fn note(&self, what: impl AsRef<[u8]>) {
        self.enter().note(what.as_ref());
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
        let fd = self.enter().datagram(&at.into(), self.home)?;
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
        self.enter().dice.injected()
    }

    /// How many of them there were by [`set_faults_at`](Sim::set_faults_at) of this address.
    pub fn injected_at(&self, address: impl Into<Address>) -> Injected {
        self.enter().dice.injected_at(&Name::of(&address.into()))
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

    /// Whether both are of one network.
    pub(crate) fn is_same(&self, other: &Sim) -> bool {
        Rc::ptr_eq(&self.world, &other.world)
    }

    /// The number of the watcher whose kernel this is.
    pub(crate) fn selector(&self) -> u32 {
        self.selector
    }

    pub(crate) fn time_limit(&self) -> Option<Duration> {
        self.enter().time_limit
    }

    /// The virtual time since the start.
    pub(crate) fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.enter().schedule.elapsed_ns())
    }

    /// Draws an order.
    pub(crate) fn shuffle(&self, order: &mut [usize]) {
        let mut world = self.enter();
        for last in (1..order.len()).rev() {
            let other = world.dice.rng.below(last as u64 + 1) as usize;
            order.swap(last, other);
        }
    }

    /// When something happens by itself: zero when one of these watchers has events to take.
    pub(crate) fn next_for(&self, selectors: &[u32]) -> Option<Duration> {
        let schedule = &self.enter().schedule;
        if selectors.iter().any(|&selector| schedule.has_ready_for(selector)) {
            return Some(Duration::ZERO);
        }
        let next = schedule.next_ns()?;
        Some(Duration::from_nanos(next.saturating_sub(schedule.now_ns)))
    }

    /// Waits in real time for other threads; false when they do nothing for the patience.
    pub(crate) fn wait_for_threads(&self) -> bool {
        let patience = self.enter().patience;
        self.outside.wait(patience)
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
        let mut sim = Sim::open(Rc::clone(&self.world), Arc::clone(&self.outside));
        sim.home = self.home;
        sim
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        self.jobs.discard();
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
