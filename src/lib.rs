//! Completion I/O without an async runtime: submit operations to one [`Watcher`], wait for
//! completions.
#![warn(missing_docs)]

mod address;
mod auto;
mod batch;
mod buf;
mod builder;
mod clock;
mod completion;
mod config;
pub mod deadline;
pub mod driver;
mod error;
mod interest;
mod op;
mod proactor;
mod reactor;
pub mod remote;
pub mod sim;
pub mod slots;
mod source;
pub mod swap;
mod sys;
mod watcher;

pub use address::{Address, Descriptors};
pub use auto::{Auto, DriverKind, UnknownDriver};
pub use buf::{Buf, Target};
pub use builder::{Builder, Spawned};
pub use completion::{Completion, Completions, Done, Message};
pub use config::Config;
pub use driver::{
    Complete, Counters, Driver, Due, Explain, ListenOptions, Mechanism, OpParts, Submit, Wait,
};
pub use error::{Error, ErrorKind, Limit, Reason, Rejected};
pub use interest::{Mode, Ready};
pub use op::{Code, Op};
pub use proactor::{Kernel, Os, Proactor, Received, WAKE};
pub use reactor::{Reactor, Readiness, Waker, Watch};
pub use remote::{SourceGuard, Submitter};
pub use source::{Handle, Kind, Source, Ticket, VirtualDescriptor};
pub use swap::Lease;
pub use watcher::Watcher;
