//! Completion I/O without an async runtime: submit operations to one [`Watcher`], wait for their
//! completions.
//!
//! Tests run the same program on a [simulated kernel](sim), with virtual time, seeded faults and
//! crashes. One wait covers sockets, files, pipes, timers, jobs and messages from other threads.
//! The program owns its loop, its memory and its time: there are no futures and no callbacks.
//! Worker threads start only for work that would block the loop, such as opening a file.
//!
//! Which crate? With windlass you write the loop. With windlass-serve, which builds on it, you
//! write callbacks, and it has the loops, limits and back-pressure of a server. For `async fn` use
//! tokio or compio: windlass has no futures yet.
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
//!             Done::Socket(socket) => {
//!                 let client = watcher.attach(socket)?;
//!                 watcher.submit(Op::write(client, "hello"))?;
//!                 watcher.submit(Op::read(client).token(2))?;
//!             }
//!             // The server writes the same lease back, without a copy.
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
//!
//! # For programs
//!
//! - **The loop:** [`Watcher`] and its [`Builder`]. [`Op`] has a constructor for each operation.
//!   [`Completion`] and [`Done`] are the results.
//! - **Sources:** anything that becomes an `OwnedFd`: TCP, UDP and Unix sockets, files, pipes,
//!   terminals, eventfd, timerfd, pidfd. Also signals and children of the [process].
//! - **Operations:** read, write, accept, connect, shutdown, close, `recv_from`, `send_to`,
//!   descriptors in messages, poll, timers. On files the operations of `std::fs`, and `send_file`.
//!   Name look-ups and your own jobs. Each has a token, a deadline or a timeout, and a cancel.
//! - **Files, names, descriptors:** [`fs`], [`net`] and [`fd`] have their types.
//! - **State:** [`SourceMap`] keeps the state of a program for each of its sources.
//! - **Memory:** a read without a buffer yields a counted [`Lease`]. The pool of leases is bounded,
//!   and an idle source holds none. A [`BufPool`](buf_pool::BufPool) is for buffers of the
//!   program's own.
//! - **Other threads:** a [`Submitter`] attaches, submits, cancels, aborts and posts. A
//!   [`SourceGuard`] aborts its source when it is dropped.
//! - **Errors:** [`Refused`] and [`Refusal`] for a refused submission, [`Error`] and [`ErrorKind`]
//!   for a failed operation.
//! - **Looking inside:** [`Watcher::explain`] says which mechanism serves which operation, why, and
//!   how often. [`Watcher::counters`] counts.
//! - **Testing:** [`sim`] runs your own server on a simulated kernel, with virtual time, counted
//!   faults and a trace hash.
//! - **Readiness alone:** [`reactor`] reports which descriptors are ready, and the program reads
//!   and writes itself.
//!
//! The module `guide` has a page for each common task of a program. The first page is "how the loop
//! works".
//!
//! # For authors of drivers
//!
//! [`driver`] states the contract that every driver keeps (C1 to C11), and the traits [`Submit`],
//! [`Complete`] and [`Driver`](driver::Driver). [`Watcher::with_driver`] builds a watcher on a
//! driver from outside this crate. The same module has the parts to build a driver from:
//! [`slots`](driver::slots), [`deadlines`](driver::deadlines), [`swap`](driver::swap) and
//! [`remote`](driver::remote). [`Proactor`](proactor::Proactor) is a driver that runs on any
//! [`Kernel`](kernel::Kernel).

mod completion;
pub mod driver;
pub mod fd;
mod file;
pub mod fs;
#[cfg(any(doc, doctest))]
pub mod guide;
pub mod kernel;
mod memory;
pub mod net;
mod op;
pub mod proactor;
pub mod process;
pub mod reactor;
mod remote;
#[cfg(test)]
#[path = "../tests/common/seeds.rs"]
mod seeds;
pub mod sim;
#[cfg(test)]
#[path = "../tests/common/skip.rs"]
mod skip;
mod sys;
mod watcher;
mod words;
mod workers;

pub use completion::{Completion, Completions, Done};
pub use driver::config::Overflow;
pub use driver::{Complete, Counters, Submit};
pub use memory::aligned::AlignedBuf;
pub use memory::buf::Buf;
pub use memory::buf::swap::{Lease, LeaseMut};
pub use memory::buf_pool;
#[cfg(feature = "trace-buffers")]
pub use memory::trace;
pub use op::{Op, Priority};
pub use remote::{SourceGuard, Submitter};
pub use sys::interest::Ready;
pub use watcher::auto::DriverKind;
pub use watcher::source_map::SourceMap;
pub use watcher::{Builder, LoopThread, Watcher};
pub use words::address::Address;
pub use words::error::{Error, ErrorKind, Limit, Refusal, Refused};
pub use words::message::Message;
pub use words::source::{Handle, Source, SourceKind, Ticket};

// Which types are `Send` and `Sync` is part of the interface.
const _: () = {
    const fn send<T: Send>() {}
    const fn send_and_sync<T: Send + Sync>() {}
    send::<Op>();
    send::<Buf>();
    send::<Handle>();
    send::<Completion>();
    send::<Builder>();
    send_and_sync::<SourceGuard>();
    send_and_sync::<AlignedBuf>();
    send_and_sync::<Lease>();
    send_and_sync::<LeaseMut>();
    send_and_sync::<Submitter>();
    send_and_sync::<reactor::Waker>();
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

/// This compiles the README's example; `tests/readme.rs` runs it.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
