//! What can be set before a watcher is built.

use std::time::Duration;

use crate::file::FileBackend;

/// How a write ends that would exceed [`Builder::write_limit`](crate::Builder::write_limit).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Overflow {
    /// It is refused ([`Refusal::Full`](crate::Refusal::Full)); the source stays as it is.
    #[default]
    Refuse,
    /// It is accepted, and the source is aborted: the write and all other operations of the source
    /// end with [`ErrorKind::Overflow`](crate::ErrorKind::Overflow). A peer that does not read
    /// loses its connection.
    Close,
}

/// The settings of a driver, as [`Builder`](crate::Builder) collects them.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Most sources.
    pub max_sources: u32,
    /// Most operations in flight.
    pub max_operations: u32,
    /// Most requests from other threads that wait for the loop.
    pub remote_queue: usize,
    /// Ids of each kind that are kept ready for other threads.
    pub id_reserve: usize,
    /// Most bytes of swap buffers.
    pub swap_limit: usize,
    /// Bytes of one swap buffer: the most that one read without a buffer takes.
    pub buffer_size: u32,
    /// Most bytes of writes that one source may have queued.
    pub write_limit: u32,
    /// How a write ends that would exceed `write_limit`. (Default [`Overflow::Refuse`].)
    pub write_overflow: Overflow,
    /// Bytes that are read from one source in a row before it goes to the back of the queue.
    pub source_budget: usize,
    /// Bytes that a turn reads before it delivers its completions.
    pub turn_budget: usize,
    /// Most events that one wait takes.
    pub events_per_wait: usize,
    /// How long a wait spins before it blocks.
    pub busy_poll: Duration,
    /// Whether the time that the loop sleeps is counted.
    pub idle_time: bool,
    /// Threads for what would block: work on files, name look-ups, jobs; 1 to 1024. They are made
    /// when there is work for them. `None` is what `WINDLASS_THREADS` says, or 4.
    pub threads: Option<usize>,
    /// Jobs for those threads that may be in flight at a time, 1 to 2^20. (Default 4096.)
    pub max_jobs: usize,
    /// The mechanism that serves files. (Default [`FileBackend::Auto`].)
    pub file_backend: FileBackend,
    /// The most requests on files that one system call submits before the end of a turn.
    /// (Default `u32::MAX`: the load of the device decides.)
    pub file_batch: u32,
    /// Files that are registered with the ring, at most; 0 for none. Of effect on io_uring only.
    pub registered_files: u32,
    /// Bytes of memory that is registered with the ring, at most; 0 for none. Of effect on io_uring
    /// only.
    pub registered_bytes: usize,
    /// Which known faults of the kernel are worked around, where the table is not to be believed.
    pub quirks: String,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            max_sources: 1 << 20,
            max_operations: 1 << 20,
            // Miri would take seconds to make the queues of each watcher.
            remote_queue: if cfg!(miri) { 64 } else { 4096 },
            id_reserve: if cfg!(miri) { 32 } else { 2048 },
            swap_limit: 64 << 20,
            buffer_size: 64 << 10,
            write_limit: u32::MAX,
            write_overflow: Overflow::Refuse,
            source_budget: 2 << 20,
            turn_budget: 64 << 10,
            events_per_wait: 64,
            busy_poll: Duration::ZERO,
            idle_time: false,
            threads: None,
            max_jobs: 4096,
            file_backend: FileBackend::Auto,
            file_batch: u32::MAX,
            registered_files: 0,
            registered_bytes: 0,
            quirks: String::new(),
        }
    }
}
