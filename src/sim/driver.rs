//! The driver of a simulated watcher as a trait object.

use super::Sim;
use crate::completion::Completion;
use crate::driver::Driver;
use crate::proactor::Proactor;

/// The driver in the simulated variant of [`Auto`](crate::driver::Auto). It is a trait object, so
/// that only programs which make a simulation link its code.
pub trait SimulatedDriver: Driver {
    /// The driver itself, for the turns of several watchers.
    fn proactor(&self) -> &Proactor<Sim>;

    /// Takes the last completions of a delivery back.
    fn take_back(&mut self, left: Vec<Completion>);
}

impl SimulatedDriver for Proactor<Sim> {
    fn proactor(&self) -> &Proactor<Sim> {
        self
    }

    fn take_back(&mut self, left: Vec<Completion>) {
        self.put_back(left);
    }
}
