//! The bookkeeping of file work and jobs: which of them threads have, and which the kernel has.

use std::collections::{HashMap, VecDeque};

use crossbeam_channel::{Receiver, Sender};

use crate::file::ListVectors;
use crate::file::thread_job::ThreadJob;
use crate::proactor::ops::send_file::{Fetch, Probed};
use crate::proactor::parts::operations::Operations;
use crate::proactor::parts::sources::Sources;
use crate::words::source::Source;
use crate::words::table::NIL;
use crate::workers::{JobHandle, Workers};

/// A job that was given to a thread or to the kernel.
pub(in crate::proactor) enum AssignedJob {
    /// To a thread.
    Thread(JobHandle<ThreadJob>),
    /// To a kernel without threads, under this key.
    Kernel(u64),
    /// A close. It cannot be cancelled.
    Close,
}

/// The key of a close operation, and the result of close(2).
type ClosedLate = (u64, Result<(), i32>);

/// The work on files of a proactor, made at its first use.
#[derive(Default)]
pub(in crate::proactor) struct Files {
    pub(in crate::proactor) workers: Option<Workers<ThreadJob>>,
    /// By slot: the jobs that workers have, or that the kernel has instead of workers.
    pub(in crate::proactor) jobs: HashMap<u32, AssignedJob>,
    /// The slots of operations that the kernel handed back while the workers had the most jobs that
    /// they may have.
    pub(in crate::proactor) parked: VecDeque<u32>,
    /// The results of close operations, by key. Their threads belong to the process.
    pub(in crate::proactor) closed: Option<(Sender<ClosedLate>, Receiver<ClosedLate>)>,
    /// The vectors of the lists that the kernel has, by slot.
    pub(in crate::proactor) lists: HashMap<u32, ListVectors>,
    /// Empty vectors, kept for their memory.
    pub(in crate::proactor) spare_lists: Vec<ListVectors>,
    /// The number of operations that the kernel has.
    pub(in crate::proactor) in_kernel: u32,
    /// The number of jobs that the kernel has instead of threads.
    pub(in crate::proactor) jobs_in_kernel: usize,
    /// By the slot of the socket: the bytes that threads read ahead for `send_file`.
    pub(in crate::proactor) fetches: HashMap<u32, Fetch>,
    /// By the number of a fetch: the slot of the file whose descriptor the fetching thread uses.
    pub(in crate::proactor) fetched_files: HashMap<u32, u32>,
    /// The number of the last fetch.
    pub(in crate::proactor) last_fetch: u32,
    /// What the page cache had of files that were sent.
    pub(in crate::proactor) probed: HashMap<Source, Probed>,
    /// Memory for short parts of files that are sent.
    pub(in crate::proactor) copied: Vec<u8>,
    /// The slots of sockets whose fetches found no room among the jobs.
    pub(in crate::proactor) stalled: Vec<u32>,
    pub(in crate::proactor) counts: FileCounts,
}

impl Files {
    /// Memory for the vectors of a list.
    pub(in crate::proactor) fn vectors(&mut self) -> ListVectors {
        self.spare_lists.pop().unwrap_or_default()
    }

    pub(in crate::proactor) fn keep_vectors(&mut self, list: ListVectors) {
        const KEPT: usize = 64;
        if self.spare_lists.len() < KEPT {
            self.spare_lists.push(list);
        }
    }

    /// Whether the kernel or workers have work on a file.
    pub(in crate::proactor) fn is_at_work(&self, sources: &Sources, index: u32) -> bool {
        sources[index].polls != NIL || self.fetched_files.values().any(|&reading| reading == index)
    }

    /// The operation whose job has ended, and whether it was told to end.
    pub(in crate::proactor) fn take_ended(
        &mut self,
        ops: &mut Operations,
        key: u64,
    ) -> Option<(u32, bool)> {
        let slot = key as u32;
        self.jobs.remove(&slot);
        let op = ops.table.find_key(slot, (key >> 32) as u32);
        debug_assert!(op.is_some(), "a slot is kept until the job has ended");
        Some((slot, op?.in_flight.ending().is_some()))
    }
}

#[derive(Default)]
pub(in crate::proactor) struct FileCounts {
    /// Reads that were done at submission.
    pub(in crate::proactor) at_once: u64,
    /// Operations that were given to the kernel, and those that it handed back.
    pub(in crate::proactor) started: u64,
    pub(in crate::proactor) handed_back: u64,
    /// Operations and jobs that were given to workers; and how many of them run one after the
    /// other on their file.
    pub(in crate::proactor) jobs: u64,
    pub(in crate::proactor) in_strands: u64,
    /// Pieces of files that threads read so that they could be sent.
    pub(in crate::proactor) fetches: u64,
}

impl Files {
    /// The number of operations that threads have, that wait for a thread, or that the kernel has
    /// instead of threads.
    pub(in crate::proactor) fn at_work(&self) -> usize {
        self.jobs.len() + self.parked.len()
    }

    pub(in crate::proactor) fn threads(&self) -> usize {
        self.workers.as_ref().map_or(0, |workers| workers.counts().threads)
    }
}
