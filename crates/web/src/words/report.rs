//! What a server has counted.

use std::ops::Deref;

/// What a server has done: its requests, and the [report](windlass_serve::report::Report) of its
/// connections, whose fields this value has, too.
///
/// ```
/// use windlass_web::App;
///
/// let running = App::new().listen("127.0.0.1:0")?.start()?;
/// let report = running.shutdown()?;
/// assert_eq!((report.requests.all(), report.counters.accepted), (0, 0));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Report {
    /// The requests of all loops together, by their end.
    pub requests: Requests,
    /// Handlers, hooks and sources that have panicked, and callbacks of the server. Panics of jobs
    /// are [counted apart](windlass_serve::report::Counters::jobs).
    pub panics: u64,
    /// What was counted of late responses, and of events.
    pub totals: Totals,
    /// The report of the connections.
    pub server: windlass_serve::report::Report,
}

impl Report {
    pub(crate) fn new(
        server: windlass_serve::report::Report,
        requests: Requests,
        totals: Totals,
    ) -> Report {
        Report { panics: server.panics + requests.panics, requests, totals, server }
    }
}

impl Deref for Report {
    type Target = windlass_serve::report::Report;

    fn deref(&self) -> &Self::Target {
        &self.server
    }
}

/// Requests by their end. Each request counts once: what was refused before it had a method, too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Requests {
    /// By the class of the status of their response: 1xx (connections that went over to another
    /// protocol), 2xx, 3xx, 4xx, 5xx.
    pub classes: [u64; 5],
    /// Requests without a response: their connection has ended before.
    pub without_response: u64,
    pub(crate) panics: u64,
}

impl Requests {
    pub(crate) fn new(ends: [u64; 6], panics: u64) -> Requests {
        let [without_response, classes @ ..] = ends;
        Requests { classes, without_response, panics }
    }

    /// Adds those of another loop.
    pub(crate) fn add(&mut self, other: &Requests) {
        for (sum, count) in self.classes.iter_mut().zip(other.classes) {
            *sum += count;
        }
        self.without_response += other.without_response;
        self.panics += other.panics;
    }

    /// How many there were in all.
    pub fn all(&self) -> u64 {
        self.classes.iter().sum::<u64>() + self.without_response
    }
}

/// What the loops of a server have counted together: of late responses, and of events. The counters
/// of a loop's connections are [others](windlass_serve::report::Counters).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Totals {
    /// Requests whose [`Later`](crate::answers::Later) was dropped without a response: their
    /// clients got a 500.
    pub unanswered: u64,
    /// Responses of other threads and of jobs that came when their request was over, because its
    /// client had gone, or had got a 504.
    pub late: u64,
    /// Publications that connections have lost, because they did not keep up: see
    /// [`Events::lossy`](crate::events::Events::lossy), and `WebSocketSettings::lossy`. One that
    /// two connections lose counts twice.
    pub lost_events: u64,
    /// Connections that were ended, because they did not keep up with what was published.
    pub slow_subscribers: u64,
    /// How many subscriptions there are now: a connection with two topics counts twice.
    pub subscriptions: u64,
}
