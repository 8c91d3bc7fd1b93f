//! The files that wait for a connection, and the bytes between them.

use std::collections::VecDeque;
use std::fs::File;

use windlass::{Buf, Source};

/// Output that waits for a file before it, or is one.
pub(crate) enum Piece {
    Bytes(Buf),
    /// A part of a file: where it begins, and where it ends.
    File(File, u64, u64),
}

/// The file that the watcher sends.
pub(crate) struct Current {
    pub(crate) file: Source,
    /// How many bytes are sent of it in all, and where they end.
    pub(crate) len: u64,
    pub(crate) end: u64,
    /// Where the operation in flight begins.
    pub(crate) from: u64,
    /// Where it ends; where the next one begins if none is in flight.
    pub(crate) at: u64,
    pub(crate) in_flight: bool,
}

/// The files that wait for a connection to send them, and the bytes between them.
#[derive(Default)]
pub(crate) struct Files {
    pub(crate) current: Option<Current>,
    pub(crate) queue: VecDeque<Piece>,
    /// How many bytes are in buffers of the queue.
    pub(crate) bytes: usize,
    /// How many bytes of files are not at the watcher.
    pub(crate) rest: u64,
    /// How many files there are.
    pub(crate) count: usize,
    /// How many bytes in memory waited when the engine last looked, without the corked ones.
    pub(crate) memory: usize,
    /// How many corked bytes, which wait behind all files, count against the connection's cap.
    pub(crate) corked: usize,
}

impl Files {
    /// How many bytes wait besides those at the watcher.
    pub(crate) fn outside(&self) -> usize {
        self.bytes.saturating_add(usize::try_from(self.rest).unwrap_or(usize::MAX / 2))
    }

    /// Whether the watcher sends a file.
    pub(crate) fn is_sending(&self) -> bool {
        self.current.as_ref().is_some_and(|current| current.in_flight)
    }

    /// How many bytes wait, of which the watcher has `queued`.
    pub(crate) fn look(&mut self, queued: usize) -> usize {
        // A file is submitted when the watcher has nothing else, and nothing behind it.
        self.memory = self.bytes + if self.is_sending() { 0 } else { queued };
        self.outside().saturating_add(queued)
    }

    /// Drops what waits behind the file in flight. Returns how many bytes that was.
    pub(crate) fn drop_queue(&mut self) -> usize {
        // What is left of the file in flight is counted when the answer comes.
        let left = self.current.as_ref().filter(|current| current.in_flight);
        let left = left.map_or(0, |current| current.end - current.at);
        self.rest -= left;
        let dropped = self.outside();
        self.queue.clear();
        (self.bytes, self.rest, self.memory, self.corked) = (0, left, 0, 0);
        self.count = usize::from(self.current.is_some());
        dropped
    }

    /// How many bytes of buffers can be submitted now. `corked` bytes are behind all files.
    pub(crate) fn sendable(&self, corked: usize) -> usize {
        if self.current.is_some() {
            return 0;
        }
        let mut sum = 0;
        for piece in &self.queue {
            let Piece::Bytes(data) = piece else { return sum };
            sum += data.len();
        }
        sum + corked
    }
}
