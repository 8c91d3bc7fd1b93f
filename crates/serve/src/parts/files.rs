//! The files that wait for a connection, and the bytes between them.
//!
//! A connection with TLS has its waiting text here, too, also without files: text that its socket
//! does not take is not encrypted far ahead.

use std::collections::VecDeque;
use std::fs::File;
use std::sync::Arc;

use windlass::driver::Driver;
use windlass::{Buf, Source, SourceGuard, Ticket, Watcher};

use crate::parts::text::Text;

/// The most text that is encrypted at once, and the most of a file that is read at once for that.
pub(crate) const PIECE: usize = 64 << 10;

/// A connection with TLS encrypts a further piece while at most so many bytes of records wait for
/// the socket.
pub(crate) const AHEAD: usize = 64 << 10;

/// Output that waits for a file before it, or is one.
pub(crate) enum Piece {
    Bytes(Buf),
    /// A part of a file: where it begins, and where it ends.
    File(SentFile, u64, u64),
}

/// A file that is sent.
pub(crate) enum SentFile {
    /// For this connection alone, which closes it.
    Own(File),
    /// For all that have it. It is attached.
    Shared(Arc<SourceGuard>),
}

/// The file that the watcher sends.
pub(crate) struct Current {
    pub(crate) file: Source,
    /// What keeps it open if others have it, too.
    pub(crate) shared: Option<Arc<SourceGuard>>,
    /// How many bytes are sent of it in all, and where they end.
    pub(crate) len: u64,
    pub(crate) end: u64,
    /// Where the operation in flight begins.
    pub(crate) from: u64,
    /// Where it ends; where the next one begins if none is in flight. Of a read that is in flight
    /// for TLS, where it begins.
    pub(crate) at: u64,
    pub(crate) in_flight: Option<Ticket>,
    /// The memory for its text, between two reads for TLS.
    pub(crate) text: Buf,
}

impl Current {
    /// Closes the file, unless others have it. Nothing of it is sent any more.
    pub(crate) fn end<D: Driver>(self, watcher: &mut Watcher<D>) {
        if self.shared.is_none() {
            // A thread that reads it ends first.
            watcher.abort(self.file);
        } else if let Some(read) = self.in_flight {
            watcher.cancel(read);
        }
    }
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
    /// Whether the bytes are text that is to be encrypted.
    pub(crate) is_coded: bool,
    /// How much of the first buffer is encrypted.
    front: usize,
    /// How much of the text in front of the next file the program knows by `prewrite`.
    told: usize,
    /// How much memory the file has that is read to be encrypted.
    of_file: usize,
}

impl Files {
    /// So many bytes wait at the watcher.
    pub(crate) fn new(memory: usize, is_coded: bool) -> Files {
        Files { memory, is_coded, ..Files::default() }
    }

    /// How many bytes wait besides those at the watcher.
    pub(crate) fn outside(&self) -> usize {
        self.bytes.saturating_add(usize::try_from(self.rest).unwrap_or(usize::MAX / 2))
    }

    /// Whether the watcher sends a file.
    pub(crate) fn is_sending(&self) -> bool {
        self.current.as_ref().is_some_and(|current| current.in_flight.is_some())
    }

    /// How many bytes wait, of which the watcher has `queued`.
    pub(crate) fn look(&mut self, queued: usize) -> usize {
        // A file is submitted when the watcher has nothing else, and nothing behind it.
        let is_of_file = if self.is_coded { self.current.is_some() } else { self.is_sending() };
        self.memory = self.bytes + if is_of_file { 0 } else { queued };
        self.of_file = if self.is_coded && is_of_file { PIECE + queued } else { 0 };
        self.outside().saturating_add(queued)
    }

    /// Drops what waits behind the file in flight. Returns how many bytes that was.
    pub(crate) fn drop_queue(&mut self) -> usize {
        // What is left of the file in flight is counted when the answer comes.
        let left = self.current.as_ref().filter(|_| self.is_sending() && !self.is_coded);
        let left = left.map_or(0, |current| current.end - current.at);
        self.rest -= left;
        let dropped = self.outside();
        self.queue.clear();
        (self.bytes, self.rest, self.memory, self.corked) = (0, left, 0, 0);
        (self.front, self.told, self.of_file) = (0, 0, 0);
        self.count = usize::from(self.current.is_some());
        dropped
    }

    /// How many bytes of buffers can be submitted now. `corked` bytes are behind all files.
    pub(crate) fn sendable(&self, corked: usize) -> usize {
        if self.current.is_some() {
            return 0;
        }
        if self.count == 0 {
            return self.bytes + corked - self.told;
        }
        let mut sum = 0;
        for piece in &self.queue {
            let Piece::Bytes(data) = piece else { break };
            sum += data.len();
        }
        sum.saturating_sub(self.front + self.told)
    }

    /// The program knows of all text that is in front of the next file.
    pub(crate) fn tell(&mut self) {
        self.told += self.sendable(0);
    }

    /// How many bytes count for the memory of the server, and neither for the cap nor for the
    /// marks: those of a file that is encrypted.
    pub(crate) fn of_file(&self) -> usize {
        self.of_file
    }

    /// Puts text behind all that waits.
    pub(crate) fn push_text(&mut self, data: Buf) {
        self.bytes += data.len();
        self.memory += data.len();
        // A list would be searched again for each piece.
        self.queue.extend(data.into_parts().filter(|part| !part.is_empty()).map(Piece::Bytes));
    }

    /// The next text in front of the next file, at most a piece of it: where it lies if two buffers
    /// have a whole piece. Otherwise it is put together in `scratch`, which is empty.
    pub(crate) fn text<'a>(&'a self, scratch: &'a mut Vec<u8>) -> Text<'a> {
        let mut skip = self.front;
        let texts = self.queue.iter().map_while(|piece| match piece {
            Piece::Bytes(data) => Some(&data[std::mem::take(&mut skip)..]),
            Piece::File(..) => None,
        });
        let mut all = texts.fuse(); // what is behind the file is not next
        let (first, second) = (all.next().unwrap_or(&[]), all.next().unwrap_or(&[]));
        if first.len() + second.len() >= PIECE {
            let first = &first[..first.len().min(PIECE)];
            return Text([first, &second[..PIECE - first.len()]]);
        }
        for bytes in [first, second].into_iter().chain(all) {
            let count = bytes.len().min(PIECE - scratch.len());
            scratch.extend_from_slice(&bytes[..count]);
        }
        Text::from(&scratch[..])
    }

    /// Forgets the first bytes of text, which are encrypted.
    pub(crate) fn pass(&mut self, count: usize) {
        self.bytes -= count;
        self.front += count;
        self.told = self.told.saturating_sub(count);
        while let Some(Piece::Bytes(data)) = self.queue.front()
            && data.len() <= self.front
        {
            self.front -= data.len();
            self.queue.pop_front();
        }
    }

    /// How many bytes may wait at the watcher when the next piece goes there.
    pub(crate) fn mark(&self) -> usize {
        let is_at_file = matches!(self.queue.front(), Some(Piece::File(..)));
        match &self.current {
            Some(current) if self.is_coded && current.at < current.end => AHEAD,
            None if self.is_coded && !is_at_file => AHEAD,
            // The last bytes of the file before, or those in front of the next one.
            _ => 0,
        }
    }
}
