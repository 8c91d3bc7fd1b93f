//! Servers on [windlass]: connections, limits, back-pressure and shutdown, written once.
//!
//! - An [`Engine`] manages connections on a watcher that the program owns. Completions go in,
//!   events come out.
//! - A [`Server`] also runs the loop, or several loops, and calls a [`Handler`]: for connections,
//!   and for datagrams.
//! - [`serve`] is one function with four closures, as in shiny.
//! - [`framing`] finds the messages in the bytes of a connection. It copies only messages that
//!   arrive in several pieces.
//!
//! The [`guide`] answers the usual questions: which mode to choose, where blocking code runs, how
//! other threads use a connection, what happens at a shutdown, how to test. [`coming_from_nbio`]
//! lists what takes the place of each option and method of nbio.
//!
//! | task | item |
//! |---|---|
//! | a thread for each connection, or for the first ones | [`modes`] |
//! | files | [`Conn::send_file`], [`Engine::send_file`] |
//! | one open file for many connections | [`Conn::send_attached`], [`Engine::send_attached`] |
//! | blocking code beside the loop | [`Conn::execute`], [`jobs`] |
//! | opens, reads, writes and renames of files, look-ups of hosts | [`Engine::submit`], [`ops`] |
//! | memory that the program holds for a connection | [`Conn::hold`], [`memory`] |
//! | writes, wakes, closes and messages from other threads | [`Remote`] |
//! | a connection as a `Read` and `Write` for any thread | [`Conn::into_std`], [`Stream`] |
//! | deadlines of a connection | [`Conn::set_read_deadline`], [`Conn::set_write_deadline`] |
//! | connections to other servers | [`Engine::connect`], [`Remote::connect`] |
//! | the clients of a proxy in front of the server | [`Config::proxy`], [`net::Proxy`] |
//! | a UDP client | [`Engine::connect_datagram`], [`Remote::connect_datagram`] |
//! | each peer of a UDP socket as a connection | [`Config::udp_sessions`] |
//! | two servers that share a listener | [`Engine::overflow_to`] |
//! | records of connections, limits and panics | [`Config::log`], [`log`] |
//! | what was served, and what was lost | [`report`] |
//! | a server beside other code of `main` | [`Server::start`], [`Running`] |
//! | TLS, with the feature `ring` or `aws-lc-rs` | [guide](guide#use-tls); `tls` has it without I/O |
//! | a plain connection that goes over to TLS (STARTTLS) | [guide](guide#go-over-to-tls-starttls); `Engine::upgrade` |
//! | signals, and sockets of systemd | [`Server::on_signal`], [`Server::listen`] |
//!
//! Engine and server have [`Limits`]: for the bytes that wait for one connection and for all, and
//! for the time that each phase of a connection takes. They send the output before they close. Both
//! run in a [simulation](windlass::sim), with virtual time and seeded faults.
//!
//! ```
//! use windlass::Buf;
//! use windlass_serve::{Action, Conn, Handler, Server};
//!
//! struct Echo;
//! impl Handler for Echo {
//!     type State = ();
//!     fn data(&mut self, c: &mut Conn<'_, ()>, data: Buf) -> Action {
//!         if &*data == b"shutdown" {
//!             return Action::Shutdown;
//!         }
//!         c.write(data); // the same bytes, without a copy
//!         Action::None
//!     }
//! }
//!
//! # let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
//! # let address = listener.local_addr()?;
//! # std::thread::spawn(move || {
//! #     use std::io::Write;
//! #     std::net::TcpStream::connect(address).unwrap().write_all(b"shutdown").unwrap();
//! # });
//! let server = Server::new(|_loop| Echo);
//! # let server = server.listener(listener);
//! # /*
//! let server = server.listen("tcp://127.0.0.1:7007")?;
//! # */
//! let report = server.run()?;
//! assert_eq!(report.counters.accepted, 1);
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! # What it promises
//!
//! They hold on every driver of windlass, and in its simulation. Files of tests cite them by their
//! numbers.
//!
//! - **P1 order.** `Opened`, then data, then one last event: `Closed` or `Detached`. A connect that
//!   fails has only the last one. An id never names another connection.
//! - **P2 bytes.** The program gets the bytes of a peer in their order, without a gap, and a peer
//!   the bytes of all writes that were taken, in their order. A peer gets an end of file only if
//!   the system has all of them. If some are given up, for whatever cause, it gets a reset. Where
//!   TLS itself fails, its alert takes the place of the reset.
//! - **P3 flush before the end.** A close, a half-close, a detach, a move and a shutdown send what
//!   was written before, with its files. All but the half-close wait for jobs, too.
//!   [`Limits::close`] cuts none that makes progress, except in a shutdown. A move that makes none
//!   is called off.
//! - **P4 time.** Every stage of a connection has a clock that is on by default: connecting, the
//!   header of a proxy, the handshake of TLS, open, half-closed, leaving, closing, lingering,
//!   failing. No limit ends a connection early. It is late by at most a sixteenth of its time, or
//!   by 100 ms if that is longer.
//! - **P5 memory.** Waiting output stays below the sum of [`Limits::memory`] and 4 KiB for each
//!   connection. A lack of memory stops the reads of a connection, or closes it, only if it is
//!   above its [share](memory::Budget). An open connection that holds nothing is always served.
//! - **P6 work.** A flush does a bounded amount of work. It takes what has arrived. It looks at
//!   1024 connections at most for each of these: stalled output, deadlines, [`Engine::limit`],
//!   silent UDP sessions. It looks once at each connection that has stopped reading, whose input
//!   the program keeps, or whose stream waits for memory. It closes at most 64 connections for
//!   memory. A turn answers no more peers in TLS handshakes than [`Limits::handshakes_per_turn`]
//!   says. A wake that a callback causes comes after the flush. A turn of a server has at most 16
//!   flushes.
//! - **P7 neighbours.** A peer that stalls, floods, pauses or goes holds up no other connection. A
//!   program that keeps every buffer holds up none, either.
//! - **P8 panics.** A panic of a callback ends its connection with [`Cause::Panicked`], and nothing
//!   else. No event is delivered twice, and ticks go on.
//! - **P9 other threads.** Calls of one thread take effect in their order, in the next turn of the
//!   connection's loop. None is lost without a counter or an error, and no wake is missed, even if
//!   queues are full.
//! - **P10 shutdown.** It ends within the [grace](Server::grace), [`Limits::close`] and
//!   [`Limits::linger`] together. [Jobs that must run](Conn::must_execute) and
//!   [operations](Engine::submit) have `Limits::close` more, and a refused peer that has ended its
//!   side has `Limits::linger` more for what it reads. A callback that blocks delays it. Its
//!   [`Report`](report::Report) names what could not be sent.
#![forbid(unsafe_code)]

#[doc = include_str!("../docs/coming-from-nbio.md")]
pub mod coming_from_nbio {}
mod engine;
pub mod framing;
#[doc = include_str!("../docs/guide.md")]
pub mod guide {}
mod handles;
mod inbox;
pub mod jobs;
pub mod log;
pub mod memory;
pub mod modes;
pub mod net;
pub mod ops;
mod parts;
pub mod report;
mod server;
mod stage;
mod sys;
#[cfg(feature = "tls")]
pub mod tls;
mod words;

pub use engine::Engine;
pub use handles::{dial::Dial, remote::Remote, stream::Stream};
pub use parts::heads::Reserved;
pub use server::{
    Action, Closed, Conn, Context, Datagram, Detached, Handler, Running, Server, ServerLoop, serve,
};
pub use words::cause::{Cause, Phase};
pub use words::config::Config;
pub use words::event::{Event, Origin};
pub use words::id::Id;
pub use words::limits::Limits;
pub use words::refused::{Refusal, Refused};
