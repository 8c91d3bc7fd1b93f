//! The output of one turn of a connection: what is written leaves as one buffer.

use std::collections::VecDeque;

use windlass::driver::Driver;
use windlass::{Buf, Watcher};

use crate::parts::files::Files;
use crate::parts::kept::KeptInput;
use crate::parts::table::Active;
use crate::parts::text::Text;

/// Buffers of at most so many bytes are copied together, so that they need no list.
pub(crate) const SMALL: usize = 2048;

/// Memory for copied bytes that an active part keeps for its next use.
pub(crate) const KEPT: usize = 32 << 10;

/// Text of so many bytes in two buffers is not put together: a copy of it takes longer than the
/// allocation that the library makes for two parts.
const MUCH: usize = 4 << 10;

/// Copied bytes beyond this begin a new buffer. Half of the default size of a lease.
pub(crate) const LARGE: usize = 32 << 10;

impl Active {
    /// Puts a buffer behind the output of this turn.
    #[inline]
    pub(crate) fn cork(&mut self, data: Buf) {
        let len = data.len();
        let first = self.corked == 0;
        self.corked += len;
        if first {
            self.parts.push(data);
        } else {
            self.cork_more(data, len);
        }
    }

    pub(crate) fn cork_more(&mut self, data: Buf, len: usize) {
        if len > SMALL || data.parts().len() > 1 {
            self.seal();
            self.parts.push(data);
            return;
        }
        for part in data.parts() {
            self.copy(part);
        }
    }

    /// Copies bytes behind the output of this turn.
    pub(crate) fn copy(&mut self, bytes: &[u8]) {
        if self.copied.is_empty()
            && let Some(last) = self.parts.last()
            && last.parts().len() == 1
            && last.len() <= SMALL
        {
            // The small buffer before these bytes is copied in front of them.
            self.copied.extend_from_slice(last);
            self.parts.pop();
        }
        self.copied.extend_from_slice(bytes);
        if self.copied.len() >= LARGE {
            self.seal();
        }
    }

    /// Makes a buffer of the copied bytes.
    pub(crate) fn seal(&mut self) {
        if !self.copied.is_empty() {
            self.parts.push(Buf::from(std::mem::take(&mut self.copied)));
        }
    }

    /// Takes all that was written in this turn, as one buffer.
    #[inline]
    pub(crate) fn uncork<D: Driver>(&mut self, watcher: &mut Watcher<D>) -> Buf {
        self.corked = 0;
        if self.copied.is_empty() && self.parts.len() == 1 {
            return self.parts.pop().unwrap_or_default();
        }
        self.uncork_more(watcher)
    }

    /// Takes all that was written so far, for a place in front of a file.
    pub(crate) fn take_corked(&mut self) -> Buf {
        self.corked = 0;
        self.seal();
        if self.parts.len() == 1 {
            return self.parts.pop().unwrap_or_default();
        }
        Buf::list(self.parts.drain(..))
    }

    /// All that was written in this turn: where it lies if it is in one buffer, or much in two.
    /// Otherwise it is put together in `scratch`, which is empty.
    pub(crate) fn text<'a>(&'a self, scratch: &'a mut Vec<u8>) -> Text<'a> {
        match &self.parts[..] {
            [] => Text::from(&self.copied[..]),
            [one] if self.copied.is_empty() && one.parts().len() == 1 => {
                Text::from(&one.parts()[0][..])
            }
            [first, second]
                if self.copied.is_empty()
                    && first.parts().len() + second.parts().len() == 2
                    && self.corked >= MUCH =>
            {
                Text([first, second])
            }
            parts => {
                parts.iter().flat_map(Buf::parts).for_each(|part| scratch.extend_from_slice(part));
                scratch.extend_from_slice(&self.copied);
                Text::from(&scratch[..])
            }
        }
    }

    /// Forgets all that was written in this turn: it is encrypted.
    pub(crate) fn forget_text(&mut self) {
        self.parts.clear();
        self.copied.clear();
        self.corked = 0;
    }

    /// What waits behind the bytes at the watcher, made where there is nothing.
    pub(crate) fn files_to_fill(&mut self, is_coded: bool) -> &mut Files {
        let queued = self.queued;
        self.files.get_or_insert_with(|| Box::new(Files::new(queued, is_coded)))
    }

    /// Drops all that was written in this turn and what is held back of the input, because the
    /// connection fails. Returns how many bytes of output it was.
    pub(crate) fn drop_output(&mut self) -> usize {
        self.parts.clear();
        self.copied.clear();
        self.held.clear();
        (self.queued, self.held_bytes, self.by_program) = (0, 0, 0);
        std::mem::take(&mut self.corked)
    }

    pub(crate) fn uncork_more<D: Driver>(&mut self, watcher: &mut Watcher<D>) -> Buf {
        if self.parts.is_empty() {
            let bytes = &self.copied[..];
            let lease = watcher.lease(|space| match space.get_mut(..bytes.len()) {
                Some(space) => {
                    space.copy_from_slice(bytes);
                    bytes.len()
                }
                None => 0,
            });
            if let Ok(lease) = lease
                && lease.len() == bytes.len()
            {
                self.copied.clear();
                return Buf::from(lease);
            }
        }
        self.seal();
        if self.parts.len() == 1 {
            return self.parts.pop().unwrap_or_default();
        }
        Buf::list(self.parts.drain(..))
    }
}

impl Active {
    /// Whether there is nothing to keep.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.corked == 0
            && self.queued == 0
            && self.held.is_empty()
            && self.cause.is_none()
            && self.unsent == 0
            && self.keeps == 0
            && !self.is_draining
            && self.limited.is_none()
            && self.by_program == 0
            && self.by_charges == 0
            && self.kept.as_ref().is_none_or(KeptInput::is_empty)
            && self.stream.is_none()
            && self.files.is_none()
    }

    /// How many bytes the connection holds, for the comparison with its share.
    pub(crate) fn holds(&self) -> u32 {
        let kept = self.kept.as_ref().map_or(0, KeptInput::bytes);
        let more = kept.saturating_add_signed(self.by_charges as isize);
        self.charged.saturating_add(u32::try_from(more).unwrap_or(u32::MAX))
    }

    /// How many bytes of buffers waited when the engine last looked, without the corked ones.
    pub(crate) fn in_memory(&self) -> usize {
        self.files.as_ref().map_or(self.queued, |files| files.memory)
    }

    /// As new, but the vectors keep their memory, so that a message allocates nothing.
    #[inline]
    pub(super) fn reset(&mut self) {
        self.parts.clear();
        self.held.clear();
        self.copied.clear();
        if self.copied.capacity() > KEPT {
            self.copied = Vec::new();
        }
        if self.parts.capacity() > 64 {
            self.parts = Vec::new();
        }
        if self.held.capacity() > 64 {
            self.held = VecDeque::new();
        }
        (self.corked, self.queued, self.held_bytes, self.unsent) = (0, 0, 0, 0);
        (self.since, self.cause, self.failing) = (None, None, None);
        (self.drain, self.keeps, self.by_program) = (None, 0, 0);
        self.is_draining = false;
        (self.charged, self.holding, self.by_charges) = (0, 0, 0);
        (self.stream, self.files, self.kept) = (None, None, None);
    }
}
