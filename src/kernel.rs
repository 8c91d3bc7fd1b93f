//! The proactor, and the kernels that it runs on.
//!
//! A [`Proactor`] is a [`Driver`](crate::driver::Driver) for everything that has a selector and
//! calls on descriptors: it queues operations, tries them, and waits for readiness. A [`Kernel`] is
//! what it runs on, and [`Calls`] are its calls. [`Os`] is the system with a selector, `ring::Ring`
//! (Linux) the system with io_uring, [`Sim`](crate::sim::Sim) a simulated one.
//!
//! Programs have no use for this module. Authors of kernels implement [`Kernel`] and build a
//! watcher with [`Proactor::with_kernel`] and
//! [`Watcher::with_driver`](crate::Watcher::with_driver).

pub use crate::file::work::WorkItem;
pub use crate::proactor::{
    Answer, Calls, Connecting, FILES, Kernel, Os, OsCalls, Proactor, Received, Started, WAKE,
};

#[cfg(all(target_os = "linux", not(windlass_kqueue)))]
pub mod ring {
    //! The kernel that runs on io_uring.
    pub use crate::ring::Ring;
}
