//! File work on the ring.

use io_uring::{opcode, types};

use super::registered::Descriptor;
use super::{FILE, Ring};
use crate::file::{FileFacts, FileRequest, FileWork};
use crate::kernel::quirks::Quirk;
use crate::sys::file_request::is_batch;

/// The entry of a file request, by descriptor or by registered index.
macro_rules! file_entry {
    ($fd:expr, $offset:expr, $work:expr, $registered:expr) => {
        match $work {
            FileWork::Read(mut to) => {
                let (start, len) = (to.as_mut_ptr(), to.len());
                let most = u32::try_from(len).unwrap_or(u32::MAX);
                match $registered.contains(start, len) {
                    true => opcode::ReadFixed::new($fd, start, most, 0).offset($offset).build(),
                    false => opcode::Read::new($fd, start, most).offset($offset).build(),
                }
            }
            FileWork::Write(bytes) => {
                let (start, len) = (bytes.as_ptr(), bytes.len());
                let most = u32::try_from(len).unwrap_or(u32::MAX);
                match $registered.contains(start, len) {
                    true => opcode::WriteFixed::new($fd, start, most, 0).offset($offset).build(),
                    false => opcode::Write::new($fd, start, most).offset($offset).build(),
                }
            }
            FileWork::ReadList(list) => {
                let vectors = list.vectors();
                let (start, count) = (vectors.as_ptr(), vectors.len() as u32);
                opcode::Readv::new($fd, start, count).offset($offset).build()
            }
            FileWork::WriteList(list) => {
                let vectors = list.vectors();
                let (start, count) = (vectors.as_ptr(), vectors.len() as u32);
                opcode::Writev::new($fd, start, count).offset($offset).build()
            }
            FileWork::SyncAll => opcode::Fsync::new($fd).build(),
            FileWork::SyncData => {
                opcode::Fsync::new($fd).flags(types::FsyncFlags::DATASYNC).build()
            }
        }
    };
}

impl Ring {
    /// Starts a file request. False if threads must do it.
    ///
    /// # Safety
    /// The caller must not free, move or change the memory of the request before its answer.
    pub(super) unsafe fn start_on_file(
        &mut self,
        mut request: FileRequest<'_>,
        facts: FileFacts,
    ) -> bool {
        if !self.serves_files || facts.is_refused() {
            return false;
        }
        // The ring hands a buffered write to a kernel thread, which takes three times as long as a
        // thread of ours.
        let writes = matches!(request.work, FileWork::Write(_) | FileWork::WriteList(_));
        if writes && (!facts.is_direct() || facts.appends()) {
            return false;
        }
        if facts.is_direct() && !request.is_aligned(facts) {
            self.counts.unaligned += 1;
            return false;
        }
        if writes && self.quirks.applies(Quirk::FrozenWrites) {
            return false;
        }
        let FileRequest { key, fd, offset, work } = request;
        if self.quirks.applies(Quirk::ArmFiles) || self.quirks.applies(Quirk::PowerFiles) {
            return false;
        }
        let entry = match self.registered.descriptor(fd, &self.uring) {
            Descriptor::Plain(fd) => file_entry!(types::Fd(fd), offset, work, self.registered),
            Descriptor::Slot(slot) => {
                file_entry!(types::Fixed(slot), offset, work, self.registered)
            }
        };
        // SAFETY: the caller's promise.
        unsafe { self.uring.push(entry.user_data(key | FILE)) };
        self.counts.files += 1;
        self.files_in_kernel += 1;
        // One call submits the entries of sockets, too.
        let queued = self.uring.queued();
        let in_kernel = self.files_in_kernel.saturating_sub(queued as u32);
        if is_batch(queued, in_kernel, self.file_batch) {
            self.flush();
        }
        true
    }
}
