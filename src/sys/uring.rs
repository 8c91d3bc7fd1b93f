//! A ring of io_uring(7): set up by a ladder, entered once per wait.
//!
//! It knows nothing of operations or buffers: the caller of `push` promises that the memory which
//! the entry names stays what it is until the entry's final completion.
//!
//! # Why nothing recovers lost completions
//!
//! A completion is lost only if the completion queue is full and the kernel also has no memory to
//! keep it (`IORING_FEAT_NODROP`). With `DEFER_TASKRUN` the kernel posts completions only inside
//! our enters, and an enter begins only while less than half of the queue is taken. It submits at
//! most as many entries as an eighth of the queue, and runs 20 items of deferred work, each of
//! which posts at most 33 completions. So one-shot requests never overflow the queue, however many
//! there are. The exception is a burst of multishot receives that were just submitted, or a kernel
//! before 6.1, whose work runs in any system call. There the kernel keeps what has no room, and
//! hands it out in the next enter that gets events. A multishot request that finds no room ends,
//! so there is at most one kept completion for each request. What remains is a kernel that cannot
//! allocate some forty bytes: then every wait fails with `EBADR`, and the driver is of no use.

#![allow(unsafe_code)]
//! # Safety
//!
//! Entries are built by the `io-uring` crate; the memory they name is the pusher's promise.

use std::collections::VecDeque;
use std::io;

use crate::sys::fd::{AsRawFd, RawFd};
use crate::sys::{os_error, step};

use io_uring::register::Probe;
use io_uring::squeue::Entry;
use io_uring::types::{SubmitArgs, Timespec};
use io_uring::{EnterFlags, IoUring, opcode};

/// Entries of the submission queue; when it is full, it is submitted early.
const SUBMISSIONS: u32 = 1024;
/// Entries of the completion queue for each entry of the submission queue. The kernel keeps the
/// completions that do not fit (`IORING_FEAT_NODROP`).
const COMPLETIONS: u32 = 8;
/// The smallest ring that is tried when memory is short: since Linux 6.14 rings count against
/// `RLIMIT_MEMLOCK` again, as before 5.12.
const LEAST: u32 = 64;

/// The call that makes a ring, and the sysctl that disables it (Linux 6.6).
const SETUP: &str = "io_uring_setup(2)";
const DISABLED: &str = "/proc/sys/kernel/io_uring_disabled";

/// io_uring cannot be had here, or must not be used: the step that failed, and how.
#[cold]
pub(super) fn refused(step: &str, errno: i32) -> io::Error {
    let mut why = format!("io_uring is not available: {step}: {}", os_error(errno));
    let number = |text: String| text.trim().parse().ok().filter(|&value: &u8| value > 0);
    if errno == libc::EPERM
        && step == SETUP
        && let Some(value) = std::fs::read_to_string(DISABLED).ok().and_then(number)
    {
        why += &format!("; kernel.io_uring_disabled is {value}");
    }
    io::Error::new(io::ErrorKind::Unsupported, why)
}

/// One flag of the setup, and the release that brought it.
pub(super) struct Flag {
    name: &'static str,
    /// For so many entries.
    set: fn(&mut io_uring::Builder, u32) -> &mut io_uring::Builder,
}

/// The sets of flags that are tried, best first. Each step of the ladder leaves out what an older
/// kernel does not know (`EINVAL`). Dates: io_uring_setup(2).
const LADDER: &[&[Flag]] = &[
    // 6.6
    &[SINGLE_ISSUER, DEFER_TASKRUN, TASKRUN_FLAG, CQSIZE, CLAMP, NO_SQARRAY],
    // 6.1
    &[SINGLE_ISSUER, DEFER_TASKRUN, TASKRUN_FLAG, CQSIZE, CLAMP],
    // 6.0
    &[SINGLE_ISSUER, COOP_TASKRUN, TASKRUN_FLAG, CQSIZE, CLAMP],
    // 5.19
    &[COOP_TASKRUN, TASKRUN_FLAG, CQSIZE, CLAMP],
    // 5.6
    &[CQSIZE, CLAMP],
];

pub(super) const SINGLE_ISSUER: Flag =
    Flag { name: "SINGLE_ISSUER", set: |b, _| b.setup_single_issuer() };
const DEFER_TASKRUN: Flag = Flag { name: "DEFER_TASKRUN", set: |b, _| b.setup_defer_taskrun() };
pub(super) const COOP_TASKRUN: Flag =
    Flag { name: "COOP_TASKRUN", set: |b, _| b.setup_coop_taskrun() };
pub(super) const TASKRUN_FLAG: Flag =
    Flag { name: "TASKRUN_FLAG", set: |b, _| b.setup_taskrun_flag() };
pub(super) const CQSIZE: Flag =
    Flag { name: "CQSIZE", set: |b, entries| b.setup_cqsize(entries * COMPLETIONS) };
pub(super) const CLAMP: Flag = Flag { name: "CLAMP", set: |b, _| b.setup_clamp() };
pub(super) const NO_SQARRAY: Flag = Flag { name: "NO_SQARRAY", set: |b, _| b.setup_no_sqarray() };

/// The operations that the driver needs.
const OPERATIONS: &[(u8, &str)] = &[
    (opcode::Nop::CODE, "NOP"),
    (opcode::PollAdd::CODE, "POLL_ADD"),
    (opcode::AsyncCancel::CODE, "ASYNC_CANCEL"),
    (opcode::Recv::CODE, "RECV"),
    (opcode::Send::CODE, "SEND"),
    (opcode::SendMsg::CODE, "SENDMSG"),
];

/// `IORING_REGISTER_PBUF_RING`, `IOU_PBUF_RING_INC` (Linux 6.12).
const REGISTER_PBUF_RING: libc::c_uint = 22;
const PBUF_RING_INC: u16 = 2;

/// `struct io_uring_buf_reg`, with the field that the `io-uring` crate does not have: kernels that
/// do not know it take nothing but 0 there.
#[repr(C)]
struct BufReg {
    ring_addr: u64,
    ring_entries: u32,
    bgid: u16,
    flags: u16,
    min_left: u32,
    reserved: [u32; 5],
}

const _: () = assert!(size_of::<BufReg>() == 40);

impl BufReg {
    const NONE: BufReg =
        BufReg { ring_addr: 0, ring_entries: 0, bgid: 0, flags: 0, min_left: 0, reserved: [0; 5] };
}

/// The contents of a completion.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cqe {
    pub(crate) key: u64,
    pub(crate) result: i32,
    pub(crate) flags: u32,
}

pub(crate) struct Uring {
    ring: IoUring,
    /// The flags of every enter.
    flags: EnterFlags,
    /// Entries that the kernel would not take for the moment, in their order.
    backlog: VecDeque<Entry>,
    enters: u64,
    setup: String,
    /// Half of the entries of the completion queue.
    half: usize,
}

/// Whether an errno says "not here" rather than "not now".
pub(super) fn says_no(errno: i32) -> bool {
    matches!(errno, libc::EPERM | libc::ENOSYS | libc::EACCES | libc::EOPNOTSUPP)
}

/// An error of `call`: a refusal, or an error of the system.
pub(super) fn failed(call: &'static str, error: io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(errno) if says_no(errno) => refused(call, errno),
        _ => step::at(call, error),
    }
}

/// Whether a ring has all these operations. A kernel before the probe lacks most of them.
///
/// # Errors
/// A refusal that names the first that is missing.
pub(super) fn check_operations(ring: &IoUring, wanted: &[(u8, &str)]) -> io::Result<()> {
    const PROBE: &str = "io_uring_register(2) of a probe (Linux 5.6)";
    let mut probe = Probe::new();
    if let Err(error) = ring.submitter().register_probe(&mut probe) {
        return Err(match error.raw_os_error() {
            Some(errno @ libc::EINVAL) => refused(PROBE, errno),
            _ => failed(PROBE, error),
        });
    }
    match wanted.iter().find(|(code, _)| !probe.is_supported(*code)) {
        Some((_, name)) => Err(refused(name, libc::ENOSYS)),
        None => Ok(()),
    }
}

impl Uring {
    /// Sets a ring up for the calling thread.
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`, `ENOMEM`: the system is short of something. `Unsupported`: there is no
    /// io_uring, or it is denied.
    pub(crate) fn open() -> io::Result<Uring> {
        let (ring, setup) = climb(LADDER, SUBMISSIONS)?;
        let lacking = |step| Err(refused(step, libc::ENOSYS));
        let params = ring.params();
        if !params.is_feature_nodrop() || !params.is_feature_submit_stable() {
            return lacking("feature NODROP or SUBMIT_STABLE (Linux 5.5)");
        }
        if !params.is_feature_ext_arg() {
            return lacking("feature EXT_ARG (Linux 5.11)");
        }
        if !params.is_feature_skip_cqe_on_success() {
            return lacking("feature CQE_SKIP (Linux 5.17)");
        }
        check_operations(&ring, OPERATIONS)?;
        let flags = enter_flags(params.is_feature_no_iowait());
        let setup = match flags.contains(EnterFlags::NO_IOWAIT) {
            true => format!("{setup}; NO_IOWAIT"),
            false => setup,
        };
        let half = params.cq_entries() as usize / 2;
        let mut uring = Uring { ring, flags, backlog: VecDeque::new(), enters: 0, setup, half };
        // SAFETY: it names no memory.
        unsafe { uring.push(opcode::Nop::new().build()) };
        uring.enter(Some(None)).map_err(|error| failed("io_uring_enter(2)", error))?;
        match uring.pop() {
            Some(Cqe { result: 0, .. }) => Ok(uring),
            Some(Cqe { result, .. }) => Err(refused("a NOP", -result)),
            None => lacking("a NOP"),
        }
    }

    /// Queues an entry for the next `enter`.
    ///
    /// # Safety
    /// The memory that it names stays what it is until its final completion (what the kernel only
    /// reads at submission: until that `enter`).
    #[inline]
    pub(crate) unsafe fn push(&mut self, entry: Entry) {
        // SAFETY: the caller's promise.
        if self.backlog.is_empty() && unsafe { self.has_taken(&entry) } {
            return;
        }
        // SAFETY: the caller's promise.
        unsafe { self.push_slowly(entry) };
    }

    /// Submits a full submission queue at once, so that no entry is kept twice.
    ///
    /// # Safety
    /// As for `push`.
    #[cold]
    unsafe fn push_slowly(&mut self, entry: Entry) {
        if self.backlog.is_empty() && !self.is_half_full() {
            // The next wait meets the same error.
            let _ = self.enter_once(0, None);
            // SAFETY: the caller's promise.
            if unsafe { self.has_taken(&entry) } {
                return;
            }
        }
        self.backlog.push_back(entry);
    }

    /// # Safety
    /// As for `push`.
    #[inline]
    unsafe fn has_taken(&mut self, entry: &Entry) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.ring.submission().push(entry) }.is_ok()
    }

    /// How many entries the submission queue has.
    pub(crate) fn queued(&mut self) -> usize {
        self.ring.submission().len()
    }

    /// Whether entries wait to be submitted.
    pub(crate) fn has_entries(&mut self) -> bool {
        !self.backlog.is_empty() || !self.ring.submission().is_empty()
    }

    /// Submits the queued entries, and runs deferred work: at most 20 items. If `wait` is not
    /// `None`, waits for a completion, at most so many nanoseconds (`Some(None)`: for ever). A
    /// signal ends the wait. While half of the completion queue is taken, does nothing.
    pub(crate) fn enter(&mut self, wait: Option<Option<u64>>) -> io::Result<()> {
        while !self.is_half_full() {
            self.fill();
            let behind = !self.backlog.is_empty();
            // A wait must not hide entries that have not been submitted.
            let want = u32::from(wait.is_some() && !behind && self.ring.completion().is_empty());
            let answer = self.enter_once(want, wait.flatten());
            match answer {
                Ok(()) if !behind => return Ok(()),
                Ok(()) => {}
                Err(error) => match error.raw_os_error() {
                    // A signal came, or the time is up. Completions that have come can be taken.
                    Some(libc::EINTR | libc::ETIME) => return Ok(()),
                    // The kernel wants its completions taken first, or is short of memory for the
                    // moment. The next call submits the entries that wait.
                    Some(libc::EBUSY | libc::EAGAIN) => return Ok(()),
                    _ => return Err(error),
                },
            }
        }
        Ok(())
    }

    /// Whether completions must be taken before another enter.
    fn is_half_full(&mut self) -> bool {
        self.ring.completion().len() >= self.half
    }

    /// Moves waiting entries into the submission queue.
    fn fill(&mut self) {
        if self.backlog.is_empty() {
            return;
        }
        let mut submission = self.ring.submission();
        while let Some(entry) = self.backlog.front() {
            // SAFETY: promised when the entry was pushed.
            if unsafe { submission.push(entry) }.is_err() {
                break;
            }
            self.backlog.pop_front();
        }
    }

    fn enter_once(&mut self, want: u32, timeout_ns: Option<u64>) -> io::Result<()> {
        self.enters += 1;
        let count = self.ring.submission().len() as u32;
        let mut flags = self.flags;
        let submitter = self.ring.submitter();
        let answer = match timeout_ns {
            Some(ns) if want > 0 => {
                let at = Timespec::new().sec(ns / 1_000_000_000).nsec((ns % 1_000_000_000) as u32);
                let args = SubmitArgs::new().timespec(&at);
                flags |= EnterFlags::EXT_ARG;
                // SAFETY: `args` and `at` live across the call and are what EXT_ARG wants.
                unsafe { submitter.enter(count, want, flags.bits(), Some(&args)) }
            }
            // SAFETY: no argument is passed.
            _ => unsafe { submitter.enter::<libc::sigset_t>(count, want, flags.bits(), None) },
        };
        answer.map(drop)
    }

    /// Takes the next completion.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Cqe> {
        let entry = self.ring.completion().next()?;
        Some(Cqe { key: entry.user_data(), result: entry.result(), flags: entry.flags() })
    }

    /// Hands out at most `most` completions.
    #[inline]
    pub(crate) fn take(&mut self, most: usize, mut each: impl FnMut(Cqe)) {
        for entry in self.ring.completion().take(most) {
            let (result, flags) = (entry.result(), entry.flags());
            each(Cqe { key: entry.user_data(), result, flags });
        }
    }

    /// Whether completions can be taken without asking the kernel.
    #[inline]
    pub(crate) fn has_completions(&mut self) -> bool {
        !self.ring.completion().is_empty()
    }

    /// Whether completions were lost: the queue was full, and the kernel had no memory to keep
    /// them.
    #[inline]
    pub(crate) fn has_lost(&mut self) -> bool {
        self.ring.completion().overflow() != 0
    }

    /// Whether the next enter has something to do without being waited for: deferred work,
    /// completions that had no room, entries that had none.
    #[inline]
    pub(crate) fn has_work(&mut self) -> bool {
        let submission = self.ring.submission();
        submission.taskrun() || submission.cq_overflow() || !self.backlog.is_empty()
    }

    /// Registers a ring of provided buffers that are consumed piece by piece. A buffer with fewer
    /// than `left` bytes left counts as used up, if the kernel can do that (Linux 7.1, and stable
    /// releases from 6.12 on). Returns `left`, or 0 if the kernel cannot.
    ///
    /// # Safety
    /// `start` names `count` entries of a page-aligned mapping that outlives this ring.
    pub(crate) unsafe fn register_buffers(
        &self,
        start: *mut u8,
        count: u16,
        left: u32,
    ) -> io::Result<u32> {
        let ring_addr = start.expose_provenance() as u64;
        let (ring_entries, flags) = (u32::from(count), PBUF_RING_INC);
        let mut wanted = BufReg { ring_addr, ring_entries, flags, min_left: left, ..BufReg::NONE };
        loop {
            let (number, arg) = (libc::SYS_io_uring_register, &raw const wanted);
            let fd = self.ring.as_raw_fd();
            // SAFETY: one argument of the kernel's layout, which lives across the call; the
            // caller's promise for what it names.
            let answer = unsafe { libc::syscall(number, fd, REGISTER_PBUF_RING, arg, 1) };
            if answer >= 0 {
                return Ok(wanted.min_left);
            }
            let error = io::Error::last_os_error();
            if error.raw_os_error() != Some(libc::EINVAL) || wanted.min_left == 0 {
                return Err(error);
            }
            wanted.min_left = 0;
        }
    }

    /// Registers a sparse table of files (Linux 5.19).
    pub(crate) fn register_files(&self, count: u32) -> io::Result<()> {
        self.ring.submitter().register_files_sparse(count)
    }

    /// Puts a file into the table, or takes one out (-1). Operations in flight keep their file.
    pub(crate) fn update_file(&self, slot: u32, fd: RawFd) -> io::Result<()> {
        self.ring.submitter().register_files_update(slot, &[fd]).map(drop)
    }

    /// Registers memory as buffer 0. Its pages stay pinned while the ring lives.
    ///
    /// The registration alone reads and writes nothing: the memory of each operation is its
    /// pusher's promise.
    pub(crate) fn register_memory(&self, start: *mut u8, len: usize) -> io::Result<()> {
        let memory = libc::iovec { iov_base: start.cast(), iov_len: len };
        // SAFETY: see above; the kernel holds references of its own to the pages.
        unsafe { self.ring.submitter().register_buffers(&[memory]) }
    }

    /// Has an eventfd signalled when there is work or a completion.
    pub(crate) fn register_eventfd(&self, fd: RawFd) -> io::Result<()> {
        self.ring.submitter().register_eventfd(fd)
    }

    /// System calls made.
    pub(crate) fn enters(&self) -> u64 {
        self.enters
    }

    /// The flags it was set up with, and its sizes.
    pub(crate) fn setup(&self) -> &str {
        &self.setup
    }
}

/// The flags of every enter; the kernel refuses flags that it does not know.
///
/// A wait for sockets must not count as a wait for a disk. Otherwise a thread that sleeps with
/// reads pending is in "iowait", which shows as load and keeps the processor's clock up
/// (io_uring_set_iowait(3), Linux 6.15).
fn enter_flags(no_iowait: bool) -> EnterFlags {
    // Deferred work runs only in an enter that gets events.
    let flags = EnterFlags::GETEVENTS;
    if no_iowait { flags | EnterFlags::NO_IOWAIT } else { flags }
}

/// The running kernel's release, as uname(2) says it; empty if it does not.
pub(crate) fn release() -> String {
    // SAFETY: a utsname of zeros is a value.
    let mut name: libc::utsname = unsafe { std::mem::zeroed() };
    // SAFETY: room for one answer.
    if unsafe { libc::uname(&mut name) } != 0 {
        return String::new();
    }
    let bytes =
        name.release.iter().flat_map(|byte| byte.to_ne_bytes()).take_while(|&byte| byte != 0);
    String::from_utf8_lossy(&bytes.collect::<Vec<u8>>()).into_owned()
}

/// Climbs down the ladder of flags, and of sizes when memory is short.
pub(super) fn climb(ladder: &[&[Flag]], mut entries: u32) -> io::Result<(IoUring, String)> {
    let mut step = 0;
    loop {
        // Without `dontfork`: a child that drops its copy would unmap addresses that it has not
        // inherited, and with them whatever it has mapped there since.
        let mut builder = IoUring::builder();
        for flag in ladder[step] {
            (flag.set)(&mut builder, entries);
        }
        let error = match builder.build(entries) {
            Ok(ring) => {
                let names: Vec<_> = ladder[step].iter().map(|flag| flag.name).collect();
                let (sq, cq) = (ring.params().sq_entries(), ring.params().cq_entries());
                let setup = format!("{}, {sq} submissions, {cq} completions", names.join(" "));
                return Ok((ring, setup));
            }
            Err(error) => error,
        };
        match error.raw_os_error() {
            Some(libc::EINVAL) if step + 1 < ladder.len() => step += 1,
            Some(errno @ libc::EINVAL) => return Err(refused(SETUP, errno)),
            Some(libc::ENOMEM) if entries > LEAST => entries /= 2,
            _ => return Err(failed(SETUP, error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kernel that does not know the flag refuses every enter with it.
    #[test]
    #[cfg_attr(miri, ignore = "Miri has no io_uring")]
    fn waits_are_not_booked_as_waits_for_a_disk_where_the_kernel_can() {
        for known in [false, true] {
            let flags = enter_flags(known);
            assert!(flags.contains(EnterFlags::GETEVENTS));
            assert_eq!(flags.contains(EnterFlags::NO_IOWAIT), known);
        }
        let Ok(uring) = Uring::open() else { return };
        let known = uring.ring.params().is_feature_no_iowait();
        assert_eq!(uring.flags, enter_flags(known));
        assert_eq!(uring.setup().contains("NO_IOWAIT"), known);
    }
    /// Five times as many requests as the completion queue has entries end at once, and the program
    /// takes no completion before it has submitted all: none is without room.
    #[test]
    #[cfg_attr(miri, ignore = "Miri has no io_uring")]
    fn the_completion_queue_never_overflows() {
        let Ok(mut uring) = Uring::open() else { return };
        let count = 5 * u64::from(uring.ring.params().cq_entries());
        for key in 0..count {
            // SAFETY: it names no memory.
            unsafe { uring.push(opcode::Nop::new().build().user_data(key)) };
            assert!(!uring.ring.submission().cq_overflow());
        }
        let mut taken = 0;
        while taken < count {
            uring.enter(None).unwrap();
            assert!(!uring.ring.submission().cq_overflow());
            uring.take(usize::MAX, |cqe| {
                assert_eq!((cqe.key, cqe.result), (taken, 0));
                taken += 1;
            });
        }
        assert!(!uring.has_lost() && !uring.has_work());
    }
}
