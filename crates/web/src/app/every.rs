//! What an application does again and again, on each loop.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::App;
use crate::remote::Remote;

type PeriodicFn<S> = dyn Fn(&mut S, &Remote) + Send + Sync;

/// A call that follows again after each period.
pub(super) struct Periodic<S> {
    period: Duration,
    call: Arc<PeriodicFn<S>>,
    /// When it follows next, once the loop serves.
    next: Option<Instant>,
}

impl<S> Clone for Periodic<S> {
    fn clone(&self) -> Periodic<S> {
        Periodic { call: Arc::clone(&self.call), ..*self }
    }
}

impl<S: 'static> App<S> {
    /// Calls `call` after each `period`, on each loop with its state, until a shutdown begins: to
    /// publish, to forget what is old, to write figures down. It must not block. A period is at
    /// least a millisecond. Where the loop is late, a call follows once, not once for each period.
    ///
    /// A panic is [counted](crate::report::Report::panics), and the calls go on.
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass_web::{App, Response};
    ///
    /// struct Prices(u64);
    /// let app = App::with(|_loop| Prices(1750))
    ///     .get("/prices", |_, _| Response::events().subscribe("prices"))
    ///     .every(Duration::from_secs(1), |prices, remote| {
    ///         prices.0 += 1;
    ///         remote.publish("prices", prices.0.to_string());
    ///     });
    /// # let _ = app;
    /// ```
    ///
    /// With several loops each one publishes, and all hear it: a program with one source of events
    /// has one loop publish, or a thread.
    pub fn every(
        mut self,
        period: Duration,
        call: impl Fn(&mut S, &Remote) + Send + Sync + 'static,
    ) -> App<S> {
        let period = period.max(Duration::from_millis(1));
        self.periodic.push(Periodic { period, call: Arc::new(call), next: None });
        self
    }
}

/// Makes the calls that are due. Returns how many have panicked.
pub(super) fn call_due<S>(
    all: &mut [Periodic<S>],
    state: &mut S,
    remote: &Remote,
    now: Instant,
) -> u64 {
    let mut panics = 0;
    for one in all {
        let Some(next) = one.next else {
            one.next = Some(now + one.period);
            continue;
        };
        if next <= now {
            let following = next + one.period;
            one.next = Some(if following <= now { now + one.period } else { following });
            let called = catch_unwind(AssertUnwindSafe(|| (one.call)(state, remote)));
            panics += u64::from(called.is_err());
        }
    }
    panics
}

/// How long until the next one is due.
pub(super) fn until_next<S>(all: &[Periodic<S>], now: Instant) -> Option<Duration> {
    let next = all.iter().filter_map(|one| one.next).min()?;
    Some(next.saturating_duration_since(now))
}
