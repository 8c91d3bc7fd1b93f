//! What a direction that is not worth trying waits for: the selector, a time, a lease; and polls.

use super::*;
use crate::error::ErrorKind;
use crate::source::Kind;

/// How long a direction pauses when the kernel's memory has run out.
pub(super) const MEMORY_PAUSE_NS: u64 = 1_000_000;

impl<K: Kernel> Proactor<K> {
    /// Answers the polls of a source whose conditions hold.
    pub(super) fn run_polls(&mut self, index: u32) {
        self.sources[index].flags &= !POLLED;
        let mut slot = self.sources[index].polls;
        let mut pending = false;
        while slot != NOWHERE {
            let next = self.slots[slot].next;
            // Drains stand in the same list.
            if self.slots[slot].code == Code::Poll {
                let interest = Ready::from_bits(self.slots[slot].count as u16);
                match self.kernel.poll(self.sources[index].fd, interest) {
                    Ok(ready) if ready.is_empty() => pending = true,
                    Ok(ready) => self.finish_poll(index, slot, Ok(Done::Ready(ready))),
                    Err(errno) => self.fail(slot, ErrorKind::Os(errno)),
                }
            }
            slot = next;
        }
        if pending && let Err(errno) = self.register(index, true) {
            let mut slot = self.sources[index].polls;
            while slot != NOWHERE {
                let next = self.slots[slot].next;
                if self.slots[slot].code == Code::Poll {
                    self.fail(slot, ErrorKind::Os(errno));
                }
                slot = next;
            }
        }
    }

    /// Reads are not worth trying until the selector says so.
    pub(super) fn block_read(&mut self, index: u32) {
        self.sources[index].flags &= !(READABLE | UNSETTLED);
        if let Err(errno) = self.register(index, false) {
            self.fail_reads(index, ErrorKind::Os(errno));
            self.sources[index].flags |= READABLE;
        }
    }

    /// Writes are not worth trying until the selector says so.
    pub(super) fn block_write(&mut self, index: u32) {
        self.sources[index].flags &= !WRITABLE;
        if let Err(errno) = self.register(index, true) {
            let name = self.sources[index].name(index);
            while let Some(state) = self.state(name)
                && state.writes.head != NOWHERE
            {
                let head = state.writes.head;
                self.fail(head, ErrorKind::Os(errno));
            }
            if let Some(state) = self.state(name) {
                state.flags |= WRITABLE;
            }
        }
    }

    /// Lets the selector know the source, and that `writes` wait.
    ///
    /// TCP says that it is writable only to somebody who was told to wait, so that one registration
    /// does for both directions. Unix and datagram sockets say it each time the other side has read
    /// (`unix_write_space`, `sock_def_write_space` in Linux): they are asked when a write waits.
    #[inline]
    pub(super) fn register(&mut self, index: u32, writes: bool) -> Result<(), i32> {
        let state = &mut self.sources[index];
        let writes = writes || state.kind() == Kind::Stream;
        let known = if writes { REGISTERED | WRITES_REGISTERED } else { REGISTERED };
        if state.flags & known != known {
            let again = state.has(REGISTERED);
            self.kernel.register(state.fd, state.name(index).key(), writes, again)?;
            state.flags |= known;
        }
        Ok(())
    }

    /// Tries a direction again when `span_ns` has passed.
    pub(super) fn pause(&mut self, index: u32, which: u32, span_ns: u64) {
        let state = &mut self.sources[index];
        if state.has(which) {
            return;
        }
        state.flags |= which;
        let name = state.name(index);
        let until = self.kernel.now_ns().saturating_add(span_ns);
        self.paused.push((until, name, which));
    }

    #[cold]
    pub(super) fn wait_for_lease(&mut self, index: u32) {
        self.counts.lease_waits += 1;
        let state = &mut self.sources[index];
        state.flags |= WAITING;
        let name = state.name(index);
        self.waiting.push(name);
    }

    /// Memory for an address.
    pub(super) fn address(&mut self) -> Address {
        self.addresses.pop().unwrap_or_else(Address::unspecified)
    }

    pub(super) fn keep_address(&mut self, address: Option<Address>) {
        const KEPT: usize = 64;
        if let Some(mut address) = address
            && self.addresses.len() < KEPT
        {
            address.take_descriptors();
            self.addresses.push(address);
        }
    }
}
