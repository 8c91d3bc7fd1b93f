//! What a driver knows of the work on files, and of jobs: what kernel and threads have.

use std::collections::{HashMap, VecDeque};

use super::ops::send_file::Fetch;
use crate::file::ListVectors;
use crate::file::work::WorkItem;
use crate::workers::{JobHandle, Workers};

/// Work that was handed over.
pub(super) enum Hired {
    /// To a thread.
    Thread(JobHandle<WorkItem>),
    /// To a kernel without threads, under this key.
    Kernel(u64),
}

/// The work on files of a proactor, made at its first use.
#[derive(Default)]
pub(super) struct Files {
    pub(super) workers: Option<Workers<WorkItem>>,
    /// What workers have, or the kernel instead of them, by place.
    pub(super) jobs: HashMap<u32, Hired>,
    /// Places whose kernel would have had to wait, while the workers had as many jobs as may be.
    pub(super) parked: VecDeque<u32>,
    /// The vectors of the lists that the kernel has, by place.
    pub(super) lists: HashMap<u32, ListVectors>,
    /// Empty vectors, kept for their memory.
    pub(super) spare_lists: Vec<ListVectors>,
    /// Operations that the kernel has.
    pub(super) in_kernel: u32,
    /// How much work the kernel has instead of threads.
    pub(super) tasks: usize,
    /// What threads read for sockets, by the sockets' places.
    pub(super) fetches: HashMap<u32, Fetch>,
    /// The files, by place, whose descriptors threads have for that, by the number of the fetch.
    pub(super) reading: HashMap<u32, u32>,
    /// The last such number.
    pub(super) serial: u32,
    pub(super) counts: FileCounts,
}

impl Files {
    /// Memory for the vectors of a list.
    pub(super) fn vectors(&mut self) -> ListVectors {
        self.spare_lists.pop().unwrap_or_default()
    }

    pub(super) fn keep_vectors(&mut self, list: ListVectors) {
        const KEPT: usize = 64;
        if self.spare_lists.len() < KEPT {
            self.spare_lists.push(list);
        }
    }
}

#[derive(Default)]
pub(super) struct FileCounts {
    /// Reads that were done at submission.
    pub(super) at_once: u64,
    /// Operations that were given to the kernel, and those that it handed back.
    pub(super) started: u64,
    pub(super) handed_back: u64,
    /// Operations and tasks that were given to workers, and writes among them that go one by one.
    pub(super) jobs: u64,
    pub(super) in_a_row: u64,
    /// Pieces of files that were read before they were sent.
    pub(super) fetches: u64,
}

impl Files {
    /// Operations that threads have or wait for, or the kernel has instead of them.
    pub(super) fn at_work(&self) -> usize {
        self.jobs.len() + self.parked.len()
    }

    pub(super) fn threads(&self) -> usize {
        self.workers.as_ref().map_or(0, |workers| workers.counts().threads)
    }
}
