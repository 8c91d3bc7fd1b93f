//! Watchers on a simulated network.

use super::Watcher;
use crate::auto::Auto;
use crate::config::Config;
use crate::proactor::Proactor;
use crate::sim::Sim;

impl Watcher {
    /// A watcher on a simulated network, with the default settings. It has the type of every
    /// other watcher, so a program that takes a `&mut Watcher` runs on it unchanged.
    ///
    /// ```
    /// use windlass::sim::Sim;
    /// use windlass::Watcher;
    /// let sim = Sim::new(7);
    /// let mut watcher: Watcher = Watcher::simulated(&sim);
    /// assert_eq!(watcher.now(), sim.now());
    /// assert_eq!(watcher.explain().driver, "sim");
    /// ```
    pub fn simulated(sim: &Sim) -> Watcher {
        Watcher::simulated_with(sim, Config::default())
    }

    /// As [`simulated`](Watcher::simulated), with settings
    /// (see [`Builder::config`](crate::Builder::config)).
    pub fn simulated_with(sim: &Sim, config: Config) -> Watcher {
        let driver = Proactor::simulated(sim, config);
        Watcher::with_driver(Auto::Simulated(Box::new(driver)))
    }
}
