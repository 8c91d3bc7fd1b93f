//! A seeded, simulated kernel with virtual time, for tests of programs that use this crate.
//!
//! The real [`Proactor`] runs on it: only the kernel and the clock are simulated. A server and its
//! clients run in one thread. [`Faults`] sets the probabilities of the network's faults.
//! The same seed gives the same run. A timeout of an hour takes no real time.
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
//!             Done::Socket(socket) => {
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
//! - Stream sockets at internet and Unix addresses, with bounded buffers and backlogs, half-close
//!   and reset as on Linux. An address exists only in this network: a Unix path is a name, not a
//!   file.
//! - [Pairs](Sim::pair) and [datagram sockets](Sim::datagram).
//! - Edge-triggered readiness, as epoll has it; or a kernel that completes reads and writes, as
//!   io_uring does: [`Sim::set_completing`].
//! - [Signals](Sim::raise) and [child processes](Sim::spawn), which the test sends and starts.
//! - [Files](Sim::write_file) in a flat space of names, with a page cache.
//! - [Crashes](Sim::crash) of a machine, which keep what was synced. The seed decides what else
//!   is left: unsynced sectors, lengths and names.
//!
//! Passing descriptors is not simulated, and there are no directories, symbolic links and copies of
//! files: these operations fail with `EOPNOTSUPP`. A program may open and sync the directory of a
//! file.
//!
//! [Jobs](crate::Op::run) run on the loop's thread, at virtual times that the seed draws
//! ([`Sim::set_job_time`]), and so does the work on files that threads would do. Look-ups answer
//! from a table that the test fills ([`Sim::host`]).
//!
//! # Hosts and links
//!
//! [`Sim::at`] gives watchers an address, as if they ran on a host of their own. Between two hosts,
//! [`Sim::set_link`] sets latency, jitter and bandwidth. [`Sim::cut`] separates them: connections
//! stall until [`Sim::heal`]. [`Sim::set_faults_at`] sets the faults of one address. Each host has
//! files of its own, and [`Sim::crash`] takes the power of one host away.
//!
//! # Time
//!
//! Time passes only while a watcher waits, and by [`Sim::advance`]. Each turn of a watcher takes a
//! microsecond ([`Sim::set_turn`]). So deadlines also pass in a program that only submits nops or
//! posts messages to itself. A wait without an event ends exactly at its timeout. When no event can
//! come any more, `wait` fails with [`Deadlock`](io::ErrorKind::Deadlock) instead of blocking.
//!
//! # Several watchers
//!
//! Several watchers in one thread share the network and the clock. A watcher that blocks keeps the
//! others from running. So [`Sim::run`] lets them take turns, and passes each completion to a
//! closure. A loop of your own calls [`Watcher::try_wait`](Watcher::try_wait) of each
//! watcher, and [`Sim::advance_to_next`] when no watcher has completions.

mod completing;
mod content;
mod crash;
mod datagram;
mod directories;
mod driver;
mod faults;
mod file_work;
mod files;
mod history;
mod inode;
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
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fmt, io};

use completing::InKernel;
use faults::ANYWHERE;
use jobs::Jobs;
use kernel::Call;
use names::Name;
use outside::Outside;
use world::{INTERNET, World};

use crate::driver::config::Config;
use crate::driver::endpoint::DatagramOptions;
use crate::proactor::Proactor;
use crate::sys::interest::Ready;
use crate::words::address::Address;
use crate::words::clock;
use crate::words::source::{Handle, SourceKind};

pub use crash::Crash;
pub(crate) use driver::SimulatedDriver;
pub use faults::{Faults, Injected};
pub use links::{Link, Traffic};
pub(crate) use report::add_lines;

#[cfg(doc)]
use crate::Watcher;

/// A simulated network with its own clock; the kernel of
/// [`Watcher::simulated`].
///
/// Clones share the network. See the [module](self) for how to use it.
///
/// As a kernel it reports readiness (`Sim`), or completes reads and writes (`Sim<true>`, see
/// [`set_completing`](Sim::set_completing)). Programs only name `Sim`.
pub struct Sim<const COMPLETES: bool = false> {
    world: Rc<RefCell<World>>,
    outside: Arc<Outside>,
    /// The number of this clone's selector, which reports the events of its watcher.
    selector: u32,
    /// The events of the last wait, and how many one wait takes at most.
    events: Vec<(u64, Ready)>,
    most_events: usize,
    calls: [u64; Call::COUNT],
    jobs: Jobs,
    in_kernel: InKernel,
    /// The address of its host, if the test has given it one.
    home: Option<IpAddr>,
}

impl Sim {
    /// A network without faults. The seed decides everything else that is random.
    pub fn new(seed: u64) -> Sim {
        Sim::with_faults(seed, Faults::none())
    }

    /// A network with faults. The same seed, faults and program give the same run.
    pub fn with_faults(seed: u64, faults: Faults) -> Sim {
        clock::start();
        let world = Rc::new(RefCell::new(World::new(seed, faults)));
        Sim::open(world, Arc::new(Outside::default()))
    }

    /// The same network, on the host with this address. Watchers on it listen only at this address,
    /// and their connections come from it. There the unspecified address (`0.0.0.0`, `::`) and
    /// loopback mean this address.
    ///
    /// Each host has [files](Sim::write_file) of its own, and [crashes](Sim::crash) alone.
    ///
    /// A watcher without a host may listen at any address. The source address of its connections is
    /// their destination address, as on a single machine.
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

    /// Sets the faults of the whole network from now on, except at addresses with
    /// [faults of their own](Sim::set_faults_at).
    pub fn set_faults(&self, faults: Faults) {
        self.enter().dice.set_faults(ANYWHERE, faults);
    }

    /// Sets the faults at an address from now on. They strike its listener, its datagram socket,
    /// and both ends of every connection from or to it. Port 0 means every port of a host. If
    /// several settings match a socket, one with a port wins over one without. Among equals, the
    /// socket's own address wins over its peer's. [`injected_at`](Sim::injected_at) counts these
    /// faults.
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

    /// Sets the size of the receive buffer of sockets that are made from now on, in bytes. Zero
    /// counts as 1. Default 64 KiB.
    pub fn set_buffer(&self, bytes: usize) {
        self.enter().buffer = bytes.max(1);
    }

    /// Sets the virtual time that each turn of a watcher takes. A wait is one turn or more. Default
    /// 1 µs, at least 1 ns: zero counts as 1 ns. If turns took no time, the deadlines of a busy
    /// program would never pass.
    pub fn set_turn(&self, span: Duration) {
        self.enter().schedule.turn_ns = clock::ns_of_duration(span).max(1);
    }

    /// Sets how long a wait without possible events waits for other threads, in real time, before
    /// it fails with [`Deadlock`](io::ErrorKind::Deadlock). Default 10 s. A program without other
    /// threads sets zero, and then the wait fails at once.
    pub fn set_patience(&self, patience: Duration) {
        self.enter().patience = patience;
    }

    /// Sets how much virtual time a [`run`](Sim::run) may take before it fails with `TimedOut`. A
    /// test needs this limit if its timers go on for ever while the test waits for an event that
    /// never comes. Default: no limit.
    pub fn set_time_limit(&self, limit: Duration) {
        self.enter().time_limit = Some(limit);
    }

    /// A random number that depends on the seed, for the program under test or for its test. These
    /// numbers do not depend on those that decide the faults: a program that draws one number more
    /// meets the same faults. Not for secrets.
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

    /// Adds a note of the program or the test to the [hash](Sim::trace_hash) and the
    /// [history](Sim::history) of the run. Two runs with equal hashes made the same notes at the
    /// same places.
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
        let (a, b) = self.enter().pair(self.home);
        let handle = |fd| Handle::from_virtual(fd, SourceKind::UnixStream, None, self.owner());
        (handle(a), handle(b))
    }

    /// A datagram socket at an address. Port 0 chooses a free port. Datagrams arrive in order, and
    /// none is lost: a sender waits while its receiver's queue is full. But a
    /// [link](Sim::set_link) with jitter changes their order, and a [cut](Sim::cut) loses them.
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
    ///
    /// - `EADDRINUSE`: another socket has this address, or no port of it is left.
    /// - `EADDRNOTAVAIL`: the address is not the one of this [host](Sim::at).
    /// - `EINVAL`: the [`Address`] is neither an internet address nor a Unix path.
    pub fn datagram(&self, at: impl Into<Address>) -> io::Result<Handle> {
        let fd = self.enter().datagram(&at.into(), DatagramOptions::default(), self.home)?;
        Ok(Handle::from_virtual(fd, SourceKind::Datagram, None, self.owner()))
    }

    /// The virtual time, which is also the [`Watcher::now`] of every watcher
    /// on this network.
    pub fn now(&self) -> Instant {
        clock::instant_of(self.enter().schedule.now_ns)
    }

    /// Lets virtual time pass.
    pub fn advance(&self, span: Duration) {
        let schedule = &mut self.enter().schedule;
        let span_ns = clock::ns_of_duration(span);
        schedule.set_now(schedule.now_ns.saturating_add(span_ns));
    }

    /// Lets virtual time pass until the next event of the network, or the end of the shortest of
    /// `timeouts`. These are the watchers' [`next_timeout`](Watcher::next_timeout). Returns
    /// false if no event and no timeout is left.
    pub fn advance_to_next(&self, timeouts: impl IntoIterator<Item = Option<Duration>>) -> bool {
        let timeouts = timeouts.into_iter().flatten();
        let next = timeouts.chain(self.next_timeout()).min();
        self.advance(next.unwrap_or_default());
        next.is_some()
    }

    /// The virtual time until the next event of the network. Zero if events wait for a watcher,
    /// `None` if no event is left.
    pub fn next_timeout(&self) -> Option<Duration> {
        let schedule = &self.enter().schedule;
        if schedule.has_ready() {
            return Some(Duration::ZERO);
        }
        schedule.span_to_next()
    }

    /// How many faults of each kind have happened, at all addresses.
    pub fn injected(&self) -> Injected {
        self.enter().dice.injected()
    }

    /// How many faults of each kind have happened because of
    /// [`set_faults_at`](Sim::set_faults_at) for this address.
    pub fn injected_at(&self, address: impl Into<Address>) -> Injected {
        self.enter().dice.injected_at(&Name::of(&address.into()))
    }

    /// A hash of everything that has happened, in order: system calls with their results, events
    /// with their times, and [notes](Sim::note). Equal hashes mean equal runs.
    pub fn trace_hash(&self) -> u64 {
        self.enter().trace
    }

    pub(crate) fn time_limit(&self) -> Option<Duration> {
        self.enter().time_limit
    }

    /// The virtual time since the start.
    pub(crate) fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.enter().schedule.elapsed_ns())
    }

    /// Whether the machine of a watcher has crashed.
    pub(crate) fn is_crashed(&self, selector: u32) -> bool {
        self.enter().schedule.has_crashed(selector)
    }

    /// Draws an order.
    pub(crate) fn shuffle(&self, order: &mut [usize]) {
        let mut world = self.enter();
        for last in (1..order.len()).rev() {
            let other = world.dice.rng.below(last as u64 + 1) as usize;
            order.swap(last, other);
        }
    }

    /// The time until the next event; zero if one of these watchers has events to take.
    pub(crate) fn next_for(&self, selectors: &[u32]) -> Option<Duration> {
        let schedule = &self.enter().schedule;
        if selectors.iter().any(|&selector| schedule.has_ready_for(selector)) {
            return Some(Duration::ZERO);
        }
        schedule.span_to_next()
    }

    /// Waits in real time for other threads. False if they do nothing until the patience is over.
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

impl<const C: bool> Sim<C> {
    fn open(world: Rc<RefCell<World>>, outside: Arc<Outside>) -> Sim<C> {
        let selector = world.borrow_mut().schedule.open_selector();
        Sim {
            world,
            outside,
            selector,
            events: Vec::new(),
            most_events: Config::default().events_per_wait,
            calls: [0; Call::COUNT],
            jobs: Jobs::default(),
            in_kernel: InKernel::default(),
            home: None,
        }
    }

    /// Another handle of the same network, on the same host.
    fn another<const OTHER: bool>(&self) -> Sim<OTHER> {
        let mut sim = Sim::open(Rc::clone(&self.world), Arc::clone(&self.outside));
        sim.home = self.home;
        sim
    }

    /// The kernel of a watcher on the same host.
    fn kernel<const OTHER: bool>(&self, config: &Config) -> Sim<OTHER> {
        let mut kernel = self.another::<OTHER>();
        kernel.most_events = config.events_per_wait.max(1);
        kernel.enter().schedule.start_watcher(kernel.selector, self.home);
        kernel
    }

    /// The world, after the actions of other threads were applied.
    #[inline(always)]
    fn enter(&self) -> RefMut<'_, World> {
        let mut world = self.world.borrow_mut();
        if self.outside.has_news() {
            self.outside.take_news(&mut world);
        }
        world
    }

    /// Whether both handles belong to the same network.
    fn is_same<const OTHER: bool>(&self, other: &Sim<OTHER>) -> bool {
        Rc::ptr_eq(&self.world, &other.world)
    }
}

impl<const C: bool> Clone for Sim<C> {
    fn clone(&self) -> Sim<C> {
        self.another()
    }
}

impl<const C: bool> Drop for Sim<C> {
    fn drop(&mut self) {
        self.jobs.discard();
        self.enter().close_selector(self.selector);
    }
}

impl<const C: bool> fmt::Debug for Sim<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let world = self.enter();
        f.debug_struct("Sim")
            .field("now", &clock::instant_of(world.schedule.now_ns))
            .field("injected", &world.dice.injected())
            .finish_non_exhaustive()
    }
}

impl Proactor<Sim> {
    /// A proactor on a simulated network. Busy polling is off: it would wait for a clock that
    /// stands still. ([`Watcher::simulated`] hides its type; a program that names it pays for no
    /// choice of the driver.)
    ///
    /// [`Watcher::simulated`]: crate::Watcher::simulated
    #[inline]
    pub fn simulated(sim: &Sim, config: Config) -> Proactor<Sim> {
        on_kernel(sim, config, "a simulation")
    }
}

impl Proactor<Sim<true>> {
    /// As [`simulated`](Proactor::simulated), on a kernel that completes reads and writes of
    /// streams, whatever [`Sim::set_completing`] says.
    #[inline]
    pub fn completing(sim: &Sim, config: Config) -> Proactor<Sim<true>> {
        on_kernel(sim, config, "a simulation that completes")
    }
}

fn on_kernel<const C: bool>(sim: &Sim, config: Config, reason: &str) -> Proactor<Sim<C>> {
    let kernel = sim.kernel::<C>(&config);
    let config = Config { busy_poll: Duration::ZERO, ..config };
    Proactor::with_kernel(kernel, config, reason.into())
}
