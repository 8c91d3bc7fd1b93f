//! The driver of a simulated watcher as a trait object.

use crate::completion::Completion;
use crate::driver::Driver;
use crate::driver::config::Config;
use crate::op::OpCode;
use crate::proactor::Proactor;
use crate::sim::Sim;
use crate::words::source::Source;

/// The driver in the simulated variant of [`Auto`](crate::driver::Auto). It is a trait object, so
/// that only programs which make a simulation link its code.
pub trait SimulatedDriver: Driver {
    /// The number of this watcher in the simulation; `None` if the watcher is of another
    /// simulation.
    fn selector_on(&self, sim: &Sim) -> Option<u32>;

    /// The operations in flight: code, source and token of each.
    fn pending(&self) -> Vec<(OpCode, Source, u64)>;

    /// Takes the last completions of a delivery back.
    fn take_back(&mut self, left: Vec<Completion>);
}

impl<const C: bool> SimulatedDriver for Proactor<Sim<C>> {
    fn selector_on(&self, sim: &Sim) -> Option<u32> {
        let kernel = self.kernel();
        sim.is_same(kernel).then_some(kernel.selector)
    }

    fn pending(&self) -> Vec<(OpCode, Source, u64)> {
        Proactor::pending(self)
    }

    fn take_back(&mut self, left: Vec<Completion>) {
        self.put_back(left);
    }
}

impl Sim {
    /// The driver of a new watcher.
    // `#[inline]`, here and on the constructors: a crate that makes no simulation then compiles
    // none of the proactors on it, which are a third of the code.
    #[inline]
    pub(crate) fn driver(&self, config: Config) -> Box<dyn SimulatedDriver> {
        if self.enter().completing.on {
            Box::new(Proactor::completing(self, config))
        } else {
            Box::new(Proactor::simulated(self, config))
        }
    }
}
