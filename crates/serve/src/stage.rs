//! The life of a connection, as one table.
//!
//! ```text
//!  Connecting ──▶ Handshake ──▶ Open ──▶ HalfClosed ──close──▶ Closing ──▶ Lingering ──▶ Ended
//!                     ▲         ▲ │          │
//!                     └─upgrade─│─┤          │
//!               a move called off │          │
//!                               │ └──detach──┴──▶ Leaving ──close──▶ Closing
//!                               └───────────────────┘ └────────────────────────────────▶ Ended
//! ```
//!
//! A close or a detach leads to *closing* or *leaving* from each stage before them. A request of
//! the program replaces a weaker one that waits, and a weaker one after it has no effect:
//! half-close, detach or move, close, abort. So a close leads from *leaving* to *closing*.
//!
//! A failure, an abort and a limit lead to *ended* from every stage. They lead there by way of
//! *failing* if output is in flight: a kernel that completes has taken bytes of a write before it
//! says so. *Closing* skips *lingering* if the peer has ended its side already, or if
//! [`Limits::linger`] is zero.
//!
//! | stage | the clock | what begins it again | the cause when it has run out | the peer gets |
//! |---|---|---|---|---|
//! | connecting | [`Limits::connect`] | nothing | [`Cause::ConnectTimeout`] | – |
//! | handshake | [`Proxy::timeout`], [`Limits::handshake`] | nothing | [`Cause::ReadTimeout`] | a reset |
//! | handshake of an upgrade | [`Limits::handshake`] | nothing | [`Cause::ReadTimeout`] | an end of file |
//! | open | [`Limits::idle`], or that of [`Conn::set_idle_timeout`] | a byte, either way | [`Cause::Idle`] | an end of file |
//! | open, with a limit of the program | [`Conn::limit`] | bytes of the peer, at a rate | [`Cause::TooSlow`] | an end of file |
//! | the same | [`Conn::time_limit`] | nothing | [`Cause::TooSlow`] | an end of file |
//! | open, while output waits | [`Limits::write_stall`] | a byte leaves | [`Cause::WriteStall`] | a reset |
//! | half-closed | as open | as open | as open | as open |
//! | leaving | [`Limits::close`] | a byte leaves | [`Cause::WriteStall`] | a reset |
//! | closing | [`Limits::close`] | a byte leaves | that of the close | a reset |
//! | lingering | [`Limits::linger`] | nothing | that of the close | (it has got an end of file) |
//! | failing | 100 ms | nothing | that of the failure | a reset |
//! | ended | – | – | – | – |
//!
//! With [`Config::limit_events`], and in a server, the first two clocks of *open* do not end a
//! connection: the program is told, and decides. A move to another loop that takes too long is
//! called off, and ends nothing. In a shutdown of the server, nothing begins the clocks of
//! *leaving* and *closing* again, so that the shutdown ends in time. Whatever ends a connection,
//! the peer gets an end of file only if the system has all bytes of the output, and else a reset.
//!
//! The watcher counts the idle time while a read is in flight. While none is, because the peer has
//! ended its side, or because too much output or memory has stopped the reads, the sweep counts it
//! by the same rule. It stands while the program has paused the connection, and begins anew with
//! the resume.
//!
//! The program does not know an accepted connection that is in its handshake. Whatever ends it, the
//! program gets no event, and the log is told of a refused connection
//! ([`RefusedBecause::Handshake`]). A client that the program has begun still connects, for the
//! program, until its handshake is done. An upgrade of an open connection is open, for the program:
//! it takes writes, which wait.
//!
//! [`Proxy::timeout`]: crate::net::Proxy::timeout
//! [`RefusedBecause::Handshake`]: crate::log::RefusedBecause::Handshake
//! [`Conn::limit`]: crate::Conn::limit
//! [`Conn::time_limit`]: crate::Conn::time_limit
//! [`Conn::set_idle_timeout`]: crate::Conn::set_idle_timeout
//! [`Cause::TooSlow`]: crate::Cause::TooSlow
//! [`Config::limit_events`]: crate::Config::limit_events
//! [`Limits::connect`]: crate::Limits::connect
//! [`Limits::handshake`]: crate::Limits::handshake
//! [`Limits::idle`]: crate::Limits::idle
//! [`Limits::write_stall`]: crate::Limits::write_stall
//! [`Limits::close`]: crate::Limits::close
//! [`Limits::linger`]: crate::Limits::linger
//! [`Cause::ConnectTimeout`]: crate::Cause::ConnectTimeout
//! [`Cause::ReadTimeout`]: crate::Cause::ReadTimeout
//! [`Cause::Idle`]: crate::Cause::Idle
//! [`Cause::WriteStall`]: crate::Cause::WriteStall

use crate::words::cause::Phase;

/// What a connection is doing. The order matters, because the code compares stages. From
/// [`Handshake`](Stage::Handshake) on, data is held back or dropped. From
/// [`Leaving`](Stage::Leaving) on, only jobs add output. From [`Closing`](Stage::Closing) on, the
/// program gets no data at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// Data comes and goes.
    Open,
    /// The peer has ended its side, or the program its own.
    HalfClosed,
    /// The connect is in flight.
    Connecting,
    /// The transport agrees with the peer; the program gets nothing before.
    Handshake,
    /// The output is on its way; then the descriptor goes to the program, or to another loop.
    Leaving,
    /// The output is on its way; then the connection closes.
    Closing,
    /// The system has all output. Further bytes of the peer are dropped.
    Lingering,
    /// It has failed, and its output is cancelled. The answers say how much of it was sent.
    Failing,
    /// The descriptor is closed, or about to be.
    Ended,
}

/// What happens to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The connect has succeeded, and the transport has no handshake.
    Connected,
    /// The connect has succeeded, and the transport begins its handshake.
    Greets,
    /// An open connection goes over to TLS.
    #[cfg_attr(not(feature = "tls"), allow(dead_code))] // nothing asks for it
    Upgrades,
    /// The handshake is done.
    Agreed,
    /// One side has ended, and the other one goes on.
    SideEnded,
    /// The program, a limit or the end of the other side asks for the end after the output.
    Close,
    /// The program asks for the descriptor, or the connection is to move.
    Leave,
    /// What was to leave stays: a move took too long, or the program asks for something else. If a
    /// side has ended, a `SideEnded` follows, or a `Close`.
    CalledOff,
    /// The system has taken all output, and the peer has not ended its side.
    OutputTaken,
    /// A failure, an abort or a limit ends it while output is in flight.
    Fail,
    /// Nothing is left to do: the descriptor is closed or handed over.
    End,
}

/// The clock of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StageClock {
    /// The watcher has it: the time limit of the operation in flight, or a timer.
    OfOperation,
    /// The idle time, and the time that waiting output may stand still.
    OfOpen,
    /// The time of an end after the output.
    OfEnd,
    None,
}

impl Stage {
    /// The next stage; `None` if nothing changes.
    pub(crate) const fn next(self, step: Step) -> Option<Stage> {
        use Stage::*;
        Some(match (self, step) {
            (Connecting, Step::Connected) => Open,
            (Connecting, Step::Greets) => Handshake,
            (Open, Step::Upgrades) => Handshake,
            (Handshake, Step::Agreed) => Open,
            (Open, Step::SideEnded) => HalfClosed,
            // `Leaving` is not here: `close_as` first calls it off, if the program asks.
            (Open | HalfClosed | Connecting | Handshake, Step::Close) => Closing,
            (Open | HalfClosed | Connecting | Handshake, Step::Leave) => Leaving,
            (Leaving, Step::CalledOff) => Open,
            (Closing, Step::OutputTaken) => Lingering,
            (Ended, _) => return None,
            (_, Step::End) => Ended,
            (Failing, _) => return None,
            (_, Step::Fail) => Failing,
            _ => return None,
        })
    }

    /// Which clock runs.
    pub(crate) const fn clock(self) -> StageClock {
        match self {
            Stage::Open | Stage::HalfClosed => StageClock::OfOpen,
            Stage::Leaving | Stage::Closing => StageClock::OfEnd,
            Stage::Connecting | Stage::Handshake | Stage::Lingering | Stage::Failing => {
                StageClock::OfOperation
            }
            Stage::Ended => StageClock::None,
        }
    }

    /// What a program is told that the connection was doing.
    pub(crate) const fn phase(self) -> Phase {
        match self {
            Stage::Connecting => Phase::Connecting,
            // The program knows a connection in its handshake only if that is an upgrade.
            Stage::Handshake | Stage::Open | Stage::HalfClosed => Phase::Open,
            Stage::Leaving => Phase::Detaching,
            // What it was doing when it failed is noted elsewhere.
            Stage::Closing | Stage::Failing | Stage::Ended => Phase::Closing,
            Stage::Lingering => Phase::Lingering,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Stage::*;
    use super::*;

    const STAGES: [Stage; 9] =
        [Open, HalfClosed, Connecting, Handshake, Leaving, Closing, Lingering, Failing, Ended];

    /// The next stage for every pair of a stage and a step; a stage that stays stands as itself.
    #[test]
    fn every_stage_and_step_are_in_the_table() {
        let lasts = |first: [Stage; 7]| {
            let mut all = [Failing; 9];
            all[..7].copy_from_slice(&first);
            all[8] = Ended;
            all
        };
        let table = [
            (
                Step::Connected,
                lasts([Open, HalfClosed, Open, Handshake, Leaving, Closing, Lingering]),
            ),
            (
                Step::Greets,
                lasts([Open, HalfClosed, Handshake, Handshake, Leaving, Closing, Lingering]),
            ),
            (
                Step::Upgrades,
                lasts([Handshake, HalfClosed, Connecting, Handshake, Leaving, Closing, Lingering]),
            ),
            (
                Step::Agreed,
                lasts([Open, HalfClosed, Connecting, Open, Leaving, Closing, Lingering]),
            ),
            (
                Step::SideEnded,
                lasts([HalfClosed, HalfClosed, Connecting, Handshake, Leaving, Closing, Lingering]),
            ),
            (Step::Close, lasts([Closing, Closing, Closing, Closing, Leaving, Closing, Lingering])),
            (Step::Leave, lasts([Leaving, Leaving, Leaving, Leaving, Leaving, Closing, Lingering])),
            (
                Step::CalledOff,
                lasts([Open, HalfClosed, Connecting, Handshake, Open, Closing, Lingering]),
            ),
            (
                Step::OutputTaken,
                lasts([Open, HalfClosed, Connecting, Handshake, Leaving, Lingering, Lingering]),
            ),
            (Step::Fail, lasts([Failing; 7])),
            (Step::End, [Ended; 9]),
        ];
        for (step, after) in table {
            for (stage, after) in STAGES.into_iter().zip(after) {
                assert_eq!(stage.next(step).unwrap_or(stage), after, "{stage:?}, {step:?}");
            }
        }
    }

    #[test]
    fn every_stage_but_the_last_has_a_clock() {
        for stage in STAGES {
            assert_eq!(stage.clock() == StageClock::None, stage == Ended, "{stage:?}");
        }
    }

    /// No step leads back from an end. The only ways back at all are a called-off move and an
    /// upgrade.
    #[test]
    fn no_way_leads_back() {
        let rank = |stage| match stage {
            Connecting => 0,
            Handshake => 1,
            Open => 2,
            HalfClosed => 3,
            Leaving => 4,
            Closing => 5,
            Lingering => 6,
            Failing => 7,
            Ended => 8,
        };
        for stage in STAGES {
            for step in [
                Step::Connected,
                Step::Greets,
                Step::Agreed,
                Step::SideEnded,
                Step::Close,
                Step::Leave,
                Step::OutputTaken,
                Step::Fail,
                Step::End,
            ] {
                if let Some(next) = stage.next(step) {
                    assert!(rank(next) > rank(stage), "{stage:?}, {step:?}");
                }
            }
        }
    }
}
