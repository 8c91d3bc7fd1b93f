//! Completion I/O without an async runtime: submit operations to one [`Watcher`], wait for
//! completions.
//!
//! Sockets, pipes, timers and other threads arrive in one wait. There are no futures, no callbacks,
//! no hidden threads: the program owns its loop, its memory and its time.
//!
//! - [`Watcher`] is the type to start with; [`Op`] says what can be submitted, [`Completion`] what
//!   comes back.
//! - [`driver`] is the contract that every driver keeps, and the page to read before writing one.
//! - [`sim`] runs the same loop on a simulated kernel with virtual time, seeded faults and a trace,
//!   to test servers on.
//! - The `guide` module has a page for each thing that a program does sooner or later.
//! - [`Reactor`] is readiness alone, for those who want to make the calls themselves.
//!
//! ```
//! use windlass::{Completions, Done, Op, Watcher};
//!
//! let mut watcher = Watcher::new()?;
//! let listener = watcher.listen(([127, 0, 0, 1], 0))?;
//! watcher.submit(Op::accept(listener))?;
//! let address = watcher.local_address(listener)?;
//! watcher.submit(Op::connect(address))?;
//! let mut done = Completions::new();
//! let mut echoed = false;
//! while !echoed {
//!     watcher.wait(&mut done)?;
//!     for c in done.drain(..) {
//!         match c.result? {
//!             Done::Accepted(socket) => {
//!                 let server = watcher.attach(socket)?;
//!                 watcher.submit(Op::read(server).token(1))?;
//!             }
//!             Done::Connected(socket) => {
//!                 let client = watcher.attach(socket)?;
//!                 watcher.submit(Op::write(client, "hello"))?;
//!                 watcher.submit(Op::read(client).token(2))?;
//!             }
//!             // The server's bytes go back as they came: a lease, no copy.
//!             Done::Read(data) if c.token == 1 => {
//!                 watcher.submit(Op::write(c.source, data))?;
//!             }
//!             Done::Read(data) => echoed = &*data == b"hello",
//!             _ => {}
//!         }
//!     }
//! }
//! # Ok::<(), std::io::Error>(())
//! ```

mod address;
mod aligned;
mod auto;
mod batch;
mod bell;
mod buf;
mod builder;
mod clock;
mod completion;
mod config;
pub mod deadline;
mod discard;
pub mod driver;
mod error;
mod extra;
#[cfg(windows)]
pub mod fd;
mod file;
#[cfg(any(doc, doctest))]
pub mod guide;
mod interest;
mod op;
mod parts;
mod proactor;
mod quirks;
mod reactor;
mod region;
pub mod remote;
#[cfg(all(target_os = "linux", not(windlass_kqueue)))]
pub mod ring;
#[cfg(test)]
#[path = "../tests/common/seeds.rs"]
mod seeds;
pub mod sim;
#[cfg(test)]
#[path = "../tests/common/skip.rs"]
mod skip;
pub mod slots;
mod source;
pub mod swap;
mod sys;
#[cfg(feature = "trace-buffers")]
pub mod trace;
#[cfg(not(feature = "trace-buffers"))]
#[path = "no_trace.rs"]
mod trace;
mod watcher;
mod workers;

pub use address::{Address, Descriptors};
pub use aligned::AlignedBuf;
pub use auto::{Auto, DriverKind, UnknownDriver};
pub use buf::{Buf, Target};
pub use builder::{Builder, Spawned};
pub use completion::{Completion, Completions, Done, Message};
pub use config::{Config, Overflow};
pub use discard::panicked_drops;
pub use driver::{
    Complete, Counters, Driver, Due, Explain, ListenOptions, Mechanism, Submit, Wait,
};
pub use error::{Error, ErrorKind, Limit, Reason, Rejected};
pub use file::{
    Access, CopyOptions, DirEntry, DirPart, DirReader, DirectAlignment, FileAnswer, FileBackend,
    FileFacts, FileKind, FileList, FileRef, FileRequest, FileWork, HostName, OpenOptions, Priority,
    Stat, StatFs, UnknownBackend,
};
pub use interest::{Mode, Ready};
pub use op::{Code, Op};
pub use parts::OpParts;
pub use proactor::{
    Answer, Connecting, FILES, Kernel, Os, Proactor, Received, Started, WAKE, leaked_buffers,
};
pub use reactor::{Reactor, Readiness, Waker, Watch};
pub use remote::{SourceGuard, Submitter};
pub use source::{Handle, Kind, Source, Ticket, VirtualDescriptor};
pub use swap::Lease;
pub use sys::open_files::{max_open_files, raise_max_open_files};
pub use watcher::Watcher;

// What may cross threads, and what may not, is part of the interface.
const _: () = {
    const fn send<T: Send>() {}
    const fn send_and_sync<T: Send + Sync>() {}
    send::<Op>();
    send::<Buf>();
    send::<Handle>();
    send::<Completion>();
    send::<Builder>();
    send::<SourceGuard>();
    send_and_sync::<AlignedBuf>();
    send_and_sync::<Lease>();
    send_and_sync::<Submitter>();
    send_and_sync::<Waker>();
    send_and_sync::<Source>();
    send_and_sync::<Ticket>();
};

/// A watcher stays on its thread.
///
/// ```compile_fail
/// fn needs_send<T: Send>() {}
/// needs_send::<windlass::Watcher>();
/// ```
#[cfg(doctest)]
struct WatcherIsNotSend;

/// The README's example compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
