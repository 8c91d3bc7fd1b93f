//! Signals of the process, which the first loop takes.
//!
//! # Why a second signal has its old effect
//! A server that waits for slow peers must not hold up a user who types Ctrl-C again. So the
//! first signal gives both signals their dispositions back. This needs no path that ends all
//! connections of all loops at once, and it works while the loops are busy.

use std::io;

use windlass::driver::Driver;
use windlass::process::signal::{SIGINT, SIGTERM};
use windlass::{Completion, Done, Op, Refusal, Source, Watcher};

use crate::handles::remote::Remote;

/// The token of what a loop does for itself, not for connections. It is above those of the engines.
pub(super) const OWN: u64 = u64::MAX;

/// What a program does on a signal.
type OnSignal = Box<dyn FnMut(&Remote) + Send>;

/// The signals of a server that has not started.
#[derive(Default)]
pub(super) struct SignalPlan {
    /// Whether SIGINT and SIGTERM shut the server down, once the program has said so.
    pub(super) ends: Option<bool>,
    pub(super) calls: Vec<(i32, OnSignal)>,
}

/// The signals of a loop.
pub(crate) struct LoopSignals {
    /// The sources of the signals that shut the server down, and of the program's.
    ends: Source,
    own: Source,
    calls: Vec<(i32, OnSignal)>,
    /// The calls that are due, by their places.
    due: Vec<usize>,
    /// Whether other loops still run when this one is over.
    pub(super) outlives: bool,
}

impl Default for LoopSignals {
    fn default() -> LoopSignals {
        let (ends, own) = (Source::NONE, Source::NONE);
        LoopSignals { ends, own, calls: Vec::new(), due: Vec::new(), outlives: false }
    }
}

impl SignalPlan {
    /// Takes the signals from the process. `by_default` says whether SIGINT and SIGTERM are among
    /// them if the program has not said so.
    pub(super) fn take<D: Driver>(
        self,
        watcher: &mut Watcher<D>,
        by_default: bool,
    ) -> io::Result<LoopSignals> {
        let mut signals = LoopSignals { calls: self.calls, ..LoopSignals::default() };
        let own: Vec<i32> = signals.calls.iter().map(|(signal, _)| *signal).collect();
        if !own.is_empty() {
            signals.own = source(watcher, &own)?;
        }
        let ends: Vec<i32> =
            [SIGINT, SIGTERM].into_iter().filter(|signal| !own.contains(signal)).collect();
        if self.ends.unwrap_or(by_default) && !ends.is_empty() {
            match source(watcher, &ends) {
                Ok(source) => signals.ends = source,
                Err(Refusal::Unsupported) if self.ends.is_none() => {}
                Err(reason) => {
                    signals.give_back(watcher);
                    return Err(reason.into());
                }
            }
        }
        Ok(signals)
    }
}

/// A source of these signals, which delivers each of them.
fn source<D: Driver>(watcher: &mut Watcher<D>, signals: &[i32]) -> Result<Source, Refusal> {
    let source = watcher.signals(signals)?;
    take_next(watcher, source).inspect_err(|_| _ = watcher.abort(source))?;
    Ok(source)
}

fn take_next<D: Driver>(watcher: &mut Watcher<D>, source: Source) -> Result<(), Refusal> {
    let submitted = watcher.submit(Op::signal(source).multishot().token(OWN));
    submitted.map(|_| ()).map_err(|refused| refused.reason)
}

impl LoopSignals {
    /// Gives the signals the dispositions that they had before.
    pub(super) fn give_back<D: Driver>(&mut self, watcher: &mut Watcher<D>) {
        for source in [&mut self.ends, &mut self.own] {
            watcher.abort(std::mem::replace(source, Source::NONE));
        }
    }

    /// Takes a signal out of a completion; true if it is to shut the server down.
    pub(super) fn hear<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        completion: &Completion,
    ) -> bool {
        let Ok(Done::Signal(signal)) = completion.result else { return false };
        if completion.source == self.ends {
            watcher.abort(std::mem::replace(&mut self.ends, Source::NONE));
            return true;
        }
        if !completion.has_more() {
            // Refused only if the source has ended.
            let _ = take_next(watcher, completion.source);
        }
        let calls = self.calls.iter().enumerate();
        self.due.extend(calls.filter(|(_, call)| call.0 == signal).map(|(at, _)| at));
        false
    }

    /// Whether the completion is of one of its sources.
    pub(super) fn owns(&self, completion: &Completion) -> bool {
        let source = completion.source;
        !source.is_none() && (source == self.ends || source == self.own)
    }

    /// Whether calls of the program are due.
    #[inline]
    pub(super) fn has_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// Makes the next call that is due; false if there is none.
    pub(super) fn call_next(&mut self, remote: &Remote) -> bool {
        if self.due.is_empty() {
            return false;
        }
        // Taken out before the call, which may panic.
        let at = self.due.remove(0);
        (self.calls[at].1)(remote);
        true
    }
}
