//! Watchers on a simulated network, and the turns that several of them take.

use std::fmt::Write;
use std::io;
use std::time::Duration;

use super::Watcher;
use crate::completion::{Completion, Completions};
use crate::driver::config::Config;
use crate::sim::{Sim, SimulatedDriver, add_lines};
use crate::watcher::auto::Auto;
use crate::words::error::Refusal;

impl Watcher {
    /// Makes a watcher on a simulated network, with the default settings. It has the same type as
    /// every other watcher, so a program that takes a `&mut Watcher` runs on it unchanged.
    ///
    /// ```
    /// use windlass::sim::Sim;
    /// use windlass::Watcher;
    /// let sim = Sim::new(7);
    /// let mut watcher: Watcher = Watcher::simulated(&sim);
    /// assert_eq!(watcher.now(), sim.now());
    /// assert_eq!(watcher.explain().driver, "sim");
    /// ```
    #[inline]
    pub fn simulated(sim: &Sim) -> Watcher {
        Watcher::simulated_with(sim, Config::default())
    }

    /// As [`simulated`](Watcher::simulated), with settings
    /// (see [`Builder::config`](crate::Builder::config)).
    #[inline]
    pub fn simulated_with(sim: &Sim, config: Config) -> Watcher {
        Watcher::with_driver(Auto::Simulated(sim.driver(config)))
    }

    /// The driver of a simulated watcher.
    fn simulation(&self) -> Option<&dyn SimulatedDriver> {
        match self.driver() {
            Auto::Simulated(driver) => Some(&**driver),
            _ => None,
        }
    }

    /// Takes completions back that a run has not handed out.
    fn take_back(&mut self, left: Vec<Completion>) {
        if let Auto::Simulated(driver) = &mut self.driver {
            driver.take_back(left);
        }
    }

    /// The operations in flight, as text.
    fn describe(&self) -> String {
        let Some(driver) = self.simulation() else { return String::new() };
        let pending = driver.pending();
        let mut text = format!("{} operations in flight\n", pending.len());
        let lines = pending.into_iter().map(|(code, source, token)| {
            let mut line = format!("{code:?}");
            if !source.is_none() {
                // Writing to a string does not fail.
                let _ = write!(line, " on {source:?}");
                if let Ok(at) = self.local_address(source) {
                    let _ = write!(line, ", {at}");
                }
                if let Ok(peer) = self.peer_address(source) {
                    let _ = write!(line, " -> {peer}");
                }
            }
            let _ = write!(line, ", token {token}");
            line
        });
        add_lines(&mut text, lines);
        text
    }
}

impl Sim {
    /// Lets watchers of this simulation take turns in one thread until `handle` returns a value.
    ///
    /// In each round every watcher takes a turn without blocking; the seed draws their order.
    /// `handle` gets each completion, with its watcher and the watcher's index in `watchers`. When
    /// no watcher has anything to do, time passes until the next event: see
    /// [`advance_to_next`](Sim::advance_to_next). Completions that the run has not handed out when
    /// it ends stay with their watcher, for the next run or the watcher's next wait. The run leaves
    /// out watchers whose machine has [crashed](Sim::crash).
    ///
    /// ```
    /// use windlass::sim::Sim;
    /// use windlass::{Completions, Done, Op, Watcher};
    /// let sim = Sim::new(1);
    /// let (mut server, mut client) = (Watcher::simulated(&sim), Watcher::simulated(&sim));
    /// let listener = server.listen(([10, 0, 0, 1], 80))?;
    /// server.submit(Op::accept(listener))?;
    /// client.submit(Op::connect(([10, 0, 0, 1], 80)))?;
    /// let heard = sim.run(&mut [&mut server, &mut client], |index, watcher, c| {
    ///     match c.result? {
    ///         Done::Accepted(socket) => {
    ///             let source = watcher.attach(socket)?;
    ///             watcher.submit(Op::read(source))?;
    ///         }
    ///         Done::Socket(socket) => {
    ///             let source = watcher.attach(socket)?;
    ///             watcher.submit(Op::write(source, "hello"))?;
    ///         }
    ///         Done::Read(data) => {
    ///             assert_eq!(index, 0);
    ///             return Ok(Some(data.into_vec())); // this ends the run
    ///         }
    ///         _ => {}
    ///     }
    ///     Ok(None)
    /// })?;
    /// assert_eq!(heard, b"hello");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// - The error that `handle` returns.
    /// - `Deadlock`: nothing can happen any more, and no other thread did anything for the
    ///   [patience](Sim::set_patience) of the simulation. The text lists the operations in flight
    ///   of each watcher, the data that waits on the network, and the [history](Sim::history) if it
    ///   is on.
    /// - `TimedOut`, with the same text: the [time limit](Sim::set_time_limit) has passed.
    /// - [`Refusal::Closed`]: all watchers are closed.
    /// - `InvalidInput`: a watcher does not run on this simulation.
    pub fn run<T>(
        &self,
        watchers: &mut [&mut Watcher],
        mut handle: impl FnMut(usize, &mut Watcher, Completion) -> io::Result<Option<T>>,
    ) -> io::Result<T> {
        let mut order: Vec<usize> = (0..watchers.len()).collect();
        let mut done = Completions::new();
        let until = self.time_limit().and_then(|limit| self.now().checked_add(limit));
        loop {
            let (mut moved, mut closed) = (false, 0);
            let selectors = self.selectors_of(watchers)?;
            self.shuffle(&mut order);
            for &index in &order {
                if self.is_crashed(selectors[index]) {
                    continue;
                }
                match watchers[index].try_wait(&mut done) {
                    Err(error) if Refusal::of(&error) == Some(Refusal::Closed) => closed += 1,
                    count => moved |= count? > 0,
                }
                let mut left = done.drain(..);
                while let Some(c) = left.next() {
                    self.tell_completion(index, &c);
                    if let Some(end) = handle(index, watchers[index], c).transpose() {
                        watchers[index].take_back(left.collect());
                        return end;
                    }
                    if self.is_crashed(selectors[index]) {
                        break; // what it had is gone with its machine
                    }
                }
            }
            if closed == watchers.len() {
                return Err(Refusal::Closed.into());
            }
            if until.is_some_and(|until| self.now() >= until) {
                let text = "the time limit of the simulation has passed";
                return Err(self.stands_still(io::ErrorKind::TimedOut, text, watchers));
            }
            if moved {
                continue;
            }
            let living = watchers.iter_mut().zip(&selectors);
            let living = living.filter(|(_, selector)| !self.is_crashed(**selector));
            let timeouts = living.filter_map(|(watcher, _)| watcher.next_timeout());
            let next: Option<Duration> = timeouts.chain(self.next_for(&selectors)).min();
            match next {
                Some(span) => self.advance(span),
                None if self.wait_for_threads() => {}
                None => {
                    let text = "the simulation stands still: nothing is left that could happen";
                    return Err(self.stands_still(io::ErrorKind::Deadlock, text, watchers));
                }
            }
        }
    }

    /// The number of each watcher in this simulation.
    fn selectors_of(&self, watchers: &[&mut Watcher]) -> io::Result<Vec<u32>> {
        let selector = |(index, watcher): (usize, &&mut Watcher)| {
            let driver = watcher.simulation();
            driver.and_then(|driver| driver.selector_on(self)).ok_or_else(|| {
                let text = format!("watcher {index} does not run on this simulation");
                io::Error::new(io::ErrorKind::InvalidInput, text)
            })
        };
        watchers.iter().enumerate().map(selector).collect()
    }

    #[cold]
    fn stands_still(&self, kind: io::ErrorKind, why: &str, all: &[&mut Watcher]) -> io::Error {
        let mut text = format!("{why}, {:?} after its start\n", self.elapsed());
        for (index, watcher) in all.iter().enumerate() {
            let _ = write!(text, "watcher {index}: {}", watcher.describe());
        }
        text.push_str(&self.report());
        let history = self.history();
        if !history.is_empty() {
            let _ = write!(text, "the last steps:\n{history}");
        }
        io::Error::new(kind, text)
    }
}
