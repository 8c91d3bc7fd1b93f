//! Writes of several parts. The ring keeps the header and the parts of each write until the kernel
//! has copied them, which it does when it takes the entry.

#![allow(unsafe_code)]
//! # Safety
//!
//! (M1) A message stays at its address, unchanged, from `add` until `recycle`, or for ever after
//! `abandon`.

use std::io::IoSlice;

use crate::memory::leaked::leave_to_kernel;

struct VectoredWrite {
    header: libc::msghdr,
    parts: Vec<libc::iovec>,
}

/// The messages of a ring.
#[derive(Default)]
#[allow(clippy::vec_box, reason = "the kernel is told their addresses")]
pub(super) struct Messages {
    /// The messages whose entries are queued.
    queued: Vec<Box<VectoredWrite>>,
    /// Messages for reuse.
    spare: Vec<Box<VectoredWrite>>,
}

impl Messages {
    /// A message of these parts.
    pub(super) fn add(&mut self, parts: &[IoSlice<'_>]) -> *const libc::msghdr {
        let mut message = self.spare.pop().unwrap_or_else(|| {
            // SAFETY: a msghdr of zeros has no name, no parts and no control data.
            Box::new(VectoredWrite { header: unsafe { std::mem::zeroed() }, parts: Vec::new() })
        });
        message.parts.clear();
        message.parts.extend(parts.iter().map(|part| libc::iovec {
            iov_base: part.as_ptr().cast_mut().cast(),
            iov_len: part.len(),
        }));
        message.header.msg_iov = message.parts.as_mut_ptr();
        message.header.msg_iovlen = message.parts.len() as _;
        let header = &raw const message.header;
        self.queued.push(message);
        header
    }

    /// Whether no message is queued.
    pub(super) fn is_empty(&self) -> bool {
        self.queued.is_empty()
    }

    /// The kernel was given all queued entries.
    pub(super) fn recycle(&mut self) {
        self.spare.append(&mut self.queued);
    }

    /// Leaves the queued messages to the kernel, which may still read them.
    pub(super) fn abandon(&mut self) {
        leave_to_kernel(std::mem::take(&mut self.queued));
    }
}
