//! Files and memory that the program has the ring register. For an operation on them the kernel
//! looks up no descriptor and pins no page (io_uring_registered_files(7),
//! io_uring_registered_buffers(7)).
//!
//! A file gets a slot of a sparse table at its first operation. It loses the slot before its
//! descriptor is closed or given away, because a slot keeps the file open. The memory is one
//! region, registered as one buffer. Operations on memory in the region are fixed reads and writes.

use std::io;
use std::sync::Arc;

use crate::driver::config::Config;
use crate::memory::aligned::AlignedBuf;
use crate::memory::region::Region;
use crate::sys::fd::RawFd;
use crate::sys::uring::Uring;
use crate::words::explain::Explain;

/// The most that one registered buffer may have (io_uring_register(2)).
const MOST_BYTES: usize = 1 << 30;
/// Values in place of a slot: the file was not registered yet, or the kernel has refused it.
const UNASKED: u32 = u32::MAX;
const REFUSED: u32 = u32::MAX - 1;

/// How an entry names its file.
pub(super) enum Descriptor {
    Plain(RawFd),
    Slot(u32),
}

pub(super) struct Registered {
    wanted_files: u32,
    wanted_bytes: usize,
    /// Slots that no file has, and the slot of each descriptor.
    vacant: Vec<u32>,
    slots: Vec<u32>,
    region: Option<Arc<Region>>,
    /// Why the kernel has refused the slots, and why the memory.
    refused: [Option<String>; 2],
    /// Operations with a slot, operations in the region.
    pub(super) with_slot: u64,
    pub(super) in_region: u64,
}

impl Registered {
    /// Registers what the program asks for. If the kernel refuses a part, keeps the reason.
    pub(super) fn new(config: &Config, uring: &Uring) -> Registered {
        let (files, bytes) = (config.registered_files, config.registered_bytes.min(MOST_BYTES));
        let mut this = Registered {
            wanted_files: files,
            wanted_bytes: bytes,
            vacant: Vec::new(),
            slots: Vec::new(),
            region: None,
            refused: [None, None],
            with_slot: 0,
            in_region: 0,
        };
        if files > 0 {
            match uring.register_files(files) {
                Ok(()) => this.vacant = (0..files).rev().collect(),
                Err(error) => this.refused[0] = Some(why(&error, "RLIMIT_NOFILE", libc::EMFILE)),
            }
        }
        if bytes > 0 {
            match register_region(bytes, uring) {
                Ok(region) => this.region = Some(region),
                Err(error) => this.refused[1] = Some(why(&error, "RLIMIT_MEMLOCK", libc::ENOMEM)),
            }
        }
        this
    }

    /// How an entry is to name a file. A file without a slot gets one now, if one is left. Then the
    /// entry names the slot.
    pub(super) fn descriptor(&mut self, fd: RawFd, uring: &Uring) -> Descriptor {
        let slot = match self.slots.get(fd as usize) {
            Some(&slot) if slot != UNASKED => slot,
            _ => self.give_slot(fd, uring),
        };
        if slot >= REFUSED {
            return Descriptor::Plain(fd);
        }
        self.with_slot += 1;
        Descriptor::Slot(slot)
    }

    #[cold]
    fn give_slot(&mut self, fd: RawFd, uring: &Uring) -> u32 {
        let Some(slot) = self.vacant.pop() else { return UNASKED };
        let answer = uring.update_file(slot, fd);
        if let Err(error) = &answer {
            self.vacant.push(slot);
            if is_short(error) {
                // The next operation asks again.
                return UNASKED;
            }
        }
        let known = answer.is_ok();
        let at = fd as usize;
        if at >= self.slots.len() {
            self.slots.resize(at + 1, UNASKED);
        }
        self.slots[at] = if known { slot } else { REFUSED };
        self.slots[at]
    }

    /// Forgets a file whose descriptor is about to be closed or given away.
    #[inline]
    pub(super) fn forget(&mut self, fd: RawFd, uring: &Uring) {
        if let Some(slot) = self.slots.get_mut(fd as usize)
            && *slot != UNASKED
        {
            let slot = std::mem::replace(slot, UNASKED);
            self.vacate(slot, uring);
        }
    }

    #[cold]
    fn vacate(&mut self, slot: u32, uring: &Uring) {
        // A slot that the kernel does not clear is not given out again.
        if slot < REFUSED && uring.update_file(slot, -1).is_ok() {
            self.vacant.push(slot);
        }
    }

    /// Forgets all slots: the ring belongs to the parent process, or was abandoned.
    pub(super) fn abandon(&mut self) {
        self.slots = Vec::new();
        self.vacant = Vec::new();
    }

    /// Whether this memory lies in the registered region. Counts the operation if it does.
    #[inline]
    pub(super) fn contains(&mut self, start: *const u8, len: usize) -> bool {
        let inside = self.region.as_ref().is_some_and(|region| region.contains(start, len));
        self.in_region += u64::from(inside);
        inside
    }

    /// A buffer in the region, if it has room.
    pub(super) fn buf(&self, len: usize) -> Option<AlignedBuf> {
        self.region.as_ref()?.take(len).map(AlignedBuf::from_piece)
    }

    /// A row of the explanation for a requested registration.
    pub(super) fn explain(&self, explain: &mut Explain) {
        let [no_files, no_bytes] = &self.refused;
        let mut row = |what, has: String, why: &str, refused: &Option<String>, count| match refused
        {
            None => explain.row(what, has, why, count),
            Some(refused) => explain.row(what, "none", refused.clone(), count),
        };
        if self.wanted_files > 0 {
            let why = "no look-up of the descriptor; operations that had one";
            let slots = format!("{} slots", self.wanted_files);
            row("registered files", slots, why, no_files, self.with_slot);
        }
        if self.wanted_bytes > 0 {
            let why = "pages are pinned once; operations that lay there";
            let bytes = format!("{} bytes, READ_FIXED, WRITE_FIXED", self.wanted_bytes);
            row("registered buffers", bytes, why, no_bytes, self.in_region);
        }
    }
}

/// A region that the kernel knows as buffer 0. Its memory stays as long as the ring: `Registered`
/// has it.
fn register_region(bytes: usize, uring: &Uring) -> io::Result<Arc<Region>> {
    let region = Region::new(bytes).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
    let (start, len) = region.range();
    uring.register_memory(start, len)?;
    Ok(region)
}

/// Whether the kernel had no memory for the moment.
fn is_short(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOMEM | libc::EAGAIN | libc::EBUSY))
}

/// The reason of a refusal. If the errno is `errno`, it names the limit that usually causes it.
fn why(error: &io::Error, limit: &str, errno: i32) -> String {
    match error.raw_os_error() {
        Some(found) if found == errno => format!("refused: {error}; {limit} is too small for it"),
        _ => format!("refused: {error}"),
    }
}
