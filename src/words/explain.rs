//! The counters of a driver, and the mechanisms that it uses.

use std::fmt;

/// The counters of a driver. Reading them takes the same time at any number of operations.
///
/// Most numbers only grow. Those marked *now* rise and fall: `in_flight`, `sources`, the depths of
/// queues (`remote_queue`, `ready_sources`, `waiting_sources`, `undelivered`, `queued_jobs`,
/// `running_jobs`), the memory in use (`swap_bytes`, `leased_bytes`), and the free places and
/// memory (`free_…`). When a free number reaches zero, submissions are refused, or reads wait.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Operations accepted.
    pub submitted: u64,
    /// Completions delivered to the program, those with `has_more` included.
    pub completed: u64,
    /// Operations accepted that have not ended: neither was their final completion made, nor were
    /// they quiet writes that succeeded.
    pub in_flight: u64,
    /// [Quiet](crate::Op::quiet) writes that have succeeded, and so made no completion.
    pub quiet_done: u64,
    /// Sources that are attached.
    pub sources: u64,
    /// Turns of the loop.
    pub turns: u64,
    /// Events that the kernel has reported, completions of a ring included.
    pub events: u64,
    /// Events that a wait found without blocking.
    pub waiting_events: u64,
    /// Waits that another thread ended.
    pub wakes: u64,
    /// How often a source had to wait for its next turn because its budget was used up.
    pub budget_stops: u64,
    /// Times that a read had to wait for a lease.
    pub lease_waits: u64,
    /// Times that a read waited because the queued writes of its source held its share of the swap
    /// buffers (C8).
    pub share_waits: u64,
    /// Times that accept found no descriptor left.
    pub descriptor_shortages: u64,
    /// Times that accept(2) failed with an error of a connection or of the network.
    pub accept_errors: u64,
    /// Times that accept waited for room in the source table.
    pub table_waits: u64,
    /// Events for a source that was gone already.
    pub stale_events: u64,
    /// Nanoseconds spent in waits that blocked, if
    /// [`Builder::idle_time`](crate::Builder::idle_time) asks for them; else 0.
    pub idle_ns: u64,
    /// How many deadlines fired late by less than 1 µs, 10 µs, 100 µs, 1 ms, 10 ms, 100 ms, 1 s,
    /// and by more.
    pub lateness: [u64; 8],
    /// How many times an idle timeout has ended a source's reads.
    pub idle_timeouts: u64,
    /// Waits that delivered completions: `completed` over this is the mean size of a batch.
    pub deliveries: u64,
    /// The most completions that one wait has delivered.
    pub largest_delivery: u64,
    /// Bytes that the driver copied in addition to the kernel's copy: the part of a message that
    /// did not fit into the current swap buffer, messages in more parts than one call takes, leases
    /// that a [`read_append`](crate::Op::read_append) has moved or, on io_uring, extended, and
    /// leases of writes beyond a source's share (`copied_leases`). Divided by the bytes moved, this
    /// is the number of extra copies per byte.
    pub copied_bytes: u64,
    /// Leases in queued writes that the driver has copied out of the pool, because the writes of
    /// their source held its share (C8).
    pub copied_leases: u64,
    /// Bytes that [`Lease::compact`](crate::Lease::compact) has copied, on any thread.
    pub compacted_bytes: u64,
    /// File operations that a kernel mechanism returned undone, so that threads did them.
    pub fallbacks: u64,
    /// Bytes of swap buffers that exist, now.
    pub swap_bytes: u64,
    /// Bytes of the swap buffers that leases or the kernel hold now, or that have come back and
    /// were not reused yet. (Whole buffers.)
    pub leased_bytes: u64,
    /// Places for operations that are free now. (Places in the reserve for other threads are not
    /// free.)
    pub free_operations: u64,
    /// Places for sources that are free now.
    pub free_sources: u64,
    /// Bytes of swap buffers that reads could still take now.
    pub free_swap_bytes: u64,
    /// Requests of other threads that wait for the loop now.
    pub remote_queue: u64,
    /// Sources that are ready and wait for their turn now.
    pub ready_sources: u64,
    /// Sources whose reads wait for a lease or for their source's writes, or whose accepts wait for
    /// room, now. (A source aborted
    /// meanwhile counts until its turn comes.)
    pub waiting_sources: u64,
    /// Completions that wait for delivery now.
    pub undelivered: u64,
    /// Jobs that no thread has begun, now.
    pub queued_jobs: u64,
    /// Jobs that run on threads now.
    pub running_jobs: u64,
    /// System calls by name, for those that were made.
    pub system_calls: Vec<(&'static str, u64)>,
}

impl Counters {
    /// How many system calls of this name were made.
    pub fn calls(&self, name: &str) -> u64 {
        self.system_calls.iter().find(|(n, _)| *n == name).map_or(0, |(_, count)| *count)
    }
}

/// Which mechanism serves which operation, why, and how often.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Explain {
    /// The driver: `epoll`, `sim` …
    pub driver: &'static str,
    /// Why this driver.
    pub reason: String,
    /// One row for each path of an operation.
    pub rows: Vec<ExplainRow>,
}

/// One path that an operation can take.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExplainRow {
    /// The operation.
    pub operation: &'static str,
    /// The mechanism that serves it.
    pub mechanism: String,
    /// Why this mechanism.
    pub reason: String,
    /// How often the path was taken.
    pub count: u64,
}

impl Explain {
    /// An explanation without rows (for authors of drivers).
    pub fn new(driver: &'static str, reason: impl Into<String>) -> Explain {
        Explain { driver, reason: reason.into(), rows: Vec::new() }
    }

    /// Adds a row (for authors of drivers).
    pub fn row(
        &mut self,
        operation: &'static str,
        mechanism: impl Into<String>,
        reason: impl Into<String>,
        count: u64,
    ) {
        let (mechanism, reason) = (mechanism.into(), reason.into());
        self.rows.push(ExplainRow { operation, mechanism, reason, count });
    }
}

impl fmt::Display for Explain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "driver: {} ({})", self.driver, self.reason)?;
        let wide = |of: fn(&ExplainRow) -> usize, least| {
            self.rows.iter().map(of).max().unwrap_or(0).max(least)
        };
        let operation = wide(|row| row.operation.len(), 9);
        let mechanism = wide(|row| row.mechanism.len(), 9);
        writeln!(
            f,
            "{:operation$}  {:mechanism$}  {:>10}  reason",
            "operation", "mechanism", "times"
        )?;
        for row in &self.rows {
            writeln!(
                f,
                "{:operation$}  {:mechanism$}  {:>10}  {}",
                row.operation, row.mechanism, row.count, row.reason
            )?;
        }
        Ok(())
    }
}
