//! What an engine counts.

use crate::words::cause::Cause;
use crate::words::job::Jobs;
#[cfg(doc)]
use crate::{Engine, Limits};

/// What an engine has counted.
///
/// ```
/// use windlass_serve::{Config, Engine};
///
/// let engine = Engine::<()>::new(Config::new());
/// let counters = engine.counters();
/// // A server has them in its report.
/// println!("{} accepted, {} refused", counters.accepted, counters.refused);
/// println!("{} were idle, {} shed", counters.ends.idle, counters.ends.shed);
/// assert_eq!(counters.writes, 0);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Accepted connections that were opened.
    pub accepted: u64,
    /// Connects that have succeeded. With TLS, the handshake may still have failed.
    pub connected: u64,
    /// Descriptors that the program has [attached](Engine::attach).
    pub attached: u64,
    /// Accepted connections that were not opened:
    /// [`RefusedBecause`](crate::log::RefusedBecause) lists the reasons.
    pub refused: u64,
    /// Accepted connections that [another server](Engine::overflow_to) was given.
    pub passed_on: u64,
    /// Accepts that have failed.
    pub accept_errors: u64,
    /// Writes of other threads that were dropped, because their connection had ended meanwhile.
    pub stale_writes: u64,
    /// Writes that the engine has submitted. One write has all output of a connection since its
    /// last one.
    pub writes: u64,
    /// How often a connection stopped reading because of [`Limits::memory`].
    pub throttles: u64,
    /// Connections that were detached.
    pub detached: u64,
    /// Connections that have [moved](crate::Conn::move_to_loop) from a thread of their own.
    pub moved: u64,
    /// Datagrams that have arrived.
    pub datagrams: u64,
    /// Receives and sends of datagrams that have failed, and sends that took longer than
    /// [`Limits::close`].
    pub datagram_errors: u64,
    /// UDP sessions that were opened.
    pub sessions: u64,
    /// Datagrams of new peers that were dropped: there were [`Limits::sessions`] sessions already,
    /// the server shut down, or the engine had 2^24 connections.
    pub refused_datagrams: u64,
    /// Datagrams of sessions that were dropped: the session was closing, or it was paused and
    /// [`Limits::high`] bytes waited for the program.
    pub dropped_datagrams: u64,
    /// Datagrams that were longer than a buffer, and have lost their end.
    pub truncated_datagrams: u64,
    /// Options of connections that the system or the watcher has refused, and idle times for which
    /// the watcher has [no room](windlass::Limit::IdleTimeouts).
    pub option_errors: u64,
    /// Handshakes of TLS, by their end.
    pub handshakes: TlsHandshakes,
    /// [Jobs](Engine::execute), by their end.
    pub jobs: Jobs,
    /// Operations of [`Engine::submit`], by their end.
    pub operations: OpEnds,
    /// Connections that have ended, by their cause.
    pub ends: Ends,
}

/// Operations of [`Engine::submit`], by their end. Those that are in flight have none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpEnds {
    /// Operations that have made their last completion.
    pub done: u64,
    /// Operations that the watcher has refused.
    pub refused: u64,
    /// Operations that a shutdown or [`Engine::end`] has not waited for.
    pub dropped: u64,
}

impl OpEnds {
    /// Adds the counts of another engine.
    fn add(&mut self, other: &OpEnds) {
        self.done += other.done;
        self.refused += other.refused;
        self.dropped += other.dropped;
    }
}

/// Handshakes of TLS, by their end. Those that have begun and have no end are under way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TlsHandshakes {
    /// Handshakes that have begun. That of an accepted connection begins with its accept, or behind
    /// the header of a proxy; that of a client when it is connected; that of an `Engine::upgrade`
    /// with the call.
    pub begun: u64,
    /// Handshakes that are done.
    pub completed: u64,
    /// How many of them have resumed an earlier session.
    pub resumed: u64,
    /// Handshakes that have failed: TLS has refused the peer or was refused by it, the peer has
    /// gone, or the handshake took longer than [`Limits::handshake`].
    pub failed: u64,
    /// Handshakes that were refused because others waited, as many as
    /// [`Limits::handshakes_waiting`] says. They do not count as failed.
    pub shed: u64,
    /// Flights of peers that were answered. A flight is what a peer sends before it waits for an
    /// answer, such as its hello.
    pub flights: u64,
}

impl TlsHandshakes {
    /// Adds the counts of another engine.
    fn add(&mut self, other: &TlsHandshakes) {
        self.begun += other.begun;
        self.completed += other.completed;
        self.resumed += other.resumed;
        self.failed += other.failed;
        self.shed += other.shed;
        self.flights += other.flights;
    }
}

/// Connections that have ended, by [cause](Cause).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ends {
    /// [`Cause::Eof`].
    pub eof: u64,
    /// [`Cause::Closed`].
    pub closed: u64,
    /// [`Cause::Aborted`].
    pub aborted: u64,
    /// [`Cause::Idle`].
    pub idle: u64,
    /// [`Cause::WriteStall`].
    pub write_stall: u64,
    /// [`Cause::ReadTimeout`].
    pub read_timeout: u64,
    /// [`Cause::WriteTimeout`].
    pub write_timeout: u64,
    /// [`Cause::TooSlow`].
    pub too_slow: u64,
    /// [`Cause::Shed`].
    pub shed: u64,
    /// [`Cause::Overflow`].
    pub overflow: u64,
    /// [`Cause::Panicked`].
    pub panicked: u64,
    /// [`Cause::Shutdown`].
    pub shutdown: u64,
    /// [`Cause::Os`], [`Cause::FileEnded`], [`Cause::ConnectTimeout`], [`Cause::Tls`],
    /// [`Cause::Truncated`] and [`Cause::Rejected`].
    pub failed: u64,
}

impl Counters {
    /// Adds the counts of another engine.
    pub(crate) fn add(&mut self, other: &Counters) {
        self.accepted += other.accepted;
        self.connected += other.connected;
        self.attached += other.attached;
        self.refused += other.refused;
        self.passed_on += other.passed_on;
        self.accept_errors += other.accept_errors;
        self.writes += other.writes;
        self.throttles += other.throttles;
        self.detached += other.detached;
        self.moved += other.moved;
        self.datagrams += other.datagrams;
        self.datagram_errors += other.datagram_errors;
        self.sessions += other.sessions;
        self.refused_datagrams += other.refused_datagrams;
        self.dropped_datagrams += other.dropped_datagrams;
        self.truncated_datagrams += other.truncated_datagrams;
        self.option_errors += other.option_errors;
        self.stale_writes += other.stale_writes;
        self.handshakes.add(&other.handshakes);
        self.jobs.add(&other.jobs);
        self.operations.add(&other.operations);
        let (ends, others) = (&mut self.ends, &other.ends);
        ends.eof += others.eof;
        ends.closed += others.closed;
        ends.aborted += others.aborted;
        ends.idle += others.idle;
        ends.write_stall += others.write_stall;
        ends.read_timeout += others.read_timeout;
        ends.write_timeout += others.write_timeout;
        ends.too_slow += others.too_slow;
        ends.shed += others.shed;
        ends.overflow += others.overflow;
        ends.panicked += others.panicked;
        ends.shutdown += others.shutdown;
        ends.failed += others.failed;
    }

    pub(crate) fn closed(&mut self, cause: Cause) {
        let ends = &mut self.ends;
        *match cause {
            Cause::Eof => &mut ends.eof,
            Cause::Closed => &mut ends.closed,
            Cause::Aborted => &mut ends.aborted,
            Cause::Idle => &mut ends.idle,
            Cause::WriteStall => &mut ends.write_stall,
            Cause::ReadTimeout => &mut ends.read_timeout,
            Cause::WriteTimeout => &mut ends.write_timeout,
            Cause::TooSlow => &mut ends.too_slow,
            Cause::Shed => &mut ends.shed,
            Cause::Overflow => &mut ends.overflow,
            Cause::Panicked => &mut ends.panicked,
            Cause::Shutdown => &mut ends.shutdown,
            Cause::Os(_)
            | Cause::FileEnded
            | Cause::ConnectTimeout
            | Cause::Tls
            | Cause::Truncated
            | Cause::Rejected => &mut ends.failed,
        } += 1;
    }
}
