//! The driver of a simulated watcher, without its type.

use super::Sim;
use crate::driver::Driver;
use crate::proactor::Proactor;

/// What is behind the variant of [`Auto`](crate::driver::Auto) for simulations. As a trait object
/// it is linked only into programs that make one.
pub trait SimulatedDriver: Driver {
    /// The driver itself, for the turns of several watchers.
    fn proactor(&self) -> &Proactor<Sim>;
}

impl SimulatedDriver for Proactor<Sim> {
    fn proactor(&self) -> &Proactor<Sim> {
        self
    }
}
