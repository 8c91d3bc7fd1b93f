//! Simulated work on files. Bytes in the page cache are read at once. The kernel does the work that
//! it starts at a time that the seed draws. Work that the kernel hands back is done at the times of
//! a job.

#![allow(unsafe_code)]
//! # Safety
//!
//! (Y2) The memory of a request is valid until its answer: the promise of
//! [`Kernel::start_file`](crate::kernel::Kernel::start_file). A request leaves the table before
//! its answer is told.

use std::path::{Component, Path, PathBuf};
use std::slice;
use std::time::Duration;

use super::completing::KernelEntry;
use super::files::BLOCK;
use crate::completion::Done;
use crate::file::thread_job::ThreadJob;
use crate::file::{FileAnswer, FileFacts, FileRef, FileRequest, FileWork, Job};
use crate::kernel::FILES;
use crate::memory::buf::{Buf, Target};
use crate::sim::Sim;
use crate::sim::faults::{ANYWHERE, Fault};
use crate::sim::kernel::Call;
use crate::sim::schedule::TRY;
use crate::sim::world::World;
use crate::sys::fd::RawFd;
use crate::sys::interest::Ready;
use crate::words::clock;
use crate::words::error::{Error, ErrorKind};
use crate::words::source::{Handle, SourceKind};

/// The longest time of a request that the kernel has, by default.
const FILE_NS: u64 = 100_000;
/// The most bytes that one call of sendfile(2) sends here.
const PIECE: usize = 64 << 10;

/// How long the disk of a simulation takes.
pub(super) struct Disk {
    /// The most virtual time of a request.
    most_ns: u64,
}

impl Default for Disk {
    fn default() -> Disk {
        Disk { most_ns: FILE_NS }
    }
}

/// A request that the kernel has.
pub(super) struct SimFileRequest {
    key: u64,
    fd: RawFd,
    offset: u64,
    /// `Pread`, `Pwrite` or `Fsync`.
    call: Call,
    /// What it reads into, or writes.
    memory: Vec<(*mut u8, usize)>,
    stopped: bool,
}

impl SimFileRequest {
    pub(super) fn key(&self) -> u64 {
        self.key
    }

    /// What it writes.
    fn bytes(&self) -> Vec<u8> {
        // SAFETY: Y2.
        let part = |&(start, len): &(*mut u8, usize)| unsafe { slice::from_raw_parts(start, len) };
        self.memory.iter().flat_map(part).copied().collect()
    }
}

fn code(result: Result<usize, i32>) -> isize {
    result.map_or_else(|errno| -(errno as isize), |count| count as isize)
}

/// The name of a file below a directory. There are no links here.
fn beneath(root: &Path, path: &Path) -> Result<PathBuf, i32> {
    let mut found = PathBuf::new();
    let mut depth = 0_usize;
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::Normal(part) => {
                found.push(part);
                depth += 1;
            }
            Component::ParentDir if depth > 0 => {
                found.pop();
                depth -= 1;
            }
            _ => return Err(libc::EXDEV),
        }
    }
    if path.as_os_str().is_empty() { Err(libc::ENOENT) } else { Ok(root.join(found)) }
}

impl World {
    /// The fault of reads and writes of a file, if one happens.
    fn file_fault(&mut self, writes: bool) -> Result<(), i32> {
        if self.dice.hits(ANYWHERE, Fault::FileError) {
            return Err(libc::EIO);
        }
        if writes && self.dice.hits(ANYWHERE, Fault::DiskFull) {
            return Err(libc::ENOSPC);
        }
        Ok(())
    }

    fn sync_or_fail(&mut self, fd: RawFd) -> Result<(), i32> {
        if self.dice.hits(ANYWHERE, Fault::SyncError) {
            self.fail_to_sync(fd);
            return Err(libc::EIO);
        }
        self.sync_file(fd)
    }

    /// What sync_file_range(2) promises, which is nothing for a crash: the device and the length of
    /// the file are left out.
    fn sync_range(&mut self, fd: RawFd) -> Result<(), i32> {
        self.open_file(fd)?;
        if self.dice.hits(ANYWHERE, Fault::SyncError) { Err(libc::EIO) } else { Ok(()) }
    }

    /// Does what a request asks for. A fault may make the read or write short.
    fn perform(&mut self, request: &SimFileRequest) -> Result<usize, i32> {
        let SimFileRequest { fd, offset, ref memory, .. } = *request;
        if request.stopped {
            return Err(libc::ECANCELED);
        }
        if self.dice.hits(ANYWHERE, Fault::HandedBack) {
            return Err(libc::EAGAIN);
        }
        let direct = self.open_file(fd)?.how.direct;
        let (writes, short) = match request.call {
            Call::Fsync => return self.sync_or_fail(fd).map(|()| 0),
            Call::Pwrite => (true, Fault::ShortFileWrite),
            _ => (false, Fault::ShortFileRead),
        };
        self.file_fault(writes)?;
        let all = memory.iter().map(|(_, len)| len).sum();
        // A direct request moves whole blocks.
        let block = if direct { BLOCK as usize } else { 1 };
        let most = self.dice.shorten(ANYWHERE, all, short).unwrap_or(all) / block * block;
        let mut left = if most == 0 { all } else { most };
        let parts = memory.iter().map(|&(start, len)| {
            let part = len.min(left);
            left -= part;
            (start, part)
        });
        if writes {
            // SAFETY: Y2.
            let slice =
                |(start, len): (*mut u8, usize)| unsafe { slice::from_raw_parts(start, len) };
            self.write_file(fd, &parts.map(slice).collect::<Vec<_>>(), offset)
        } else {
            // SAFETY: Y2.
            let target = |(start, len)| unsafe { Target::from_raw(start, len) };
            self.read_file(fd, &mut parts.map(target).collect::<Vec<_>>(), offset, true)
        }
    }

    /// Checks that direct I/O takes this memory, length and offset.
    fn check_aligned(&self, fd: RawFd, buf: &Buf, len: usize, offset: u64) -> Result<(), i32> {
        let block = u64::from(BLOCK);
        let starts =
            buf.parts().iter().all(|part| (part.as_ptr().addr() as u64).is_multiple_of(block));
        let direct = self.open_file(fd)?.how.direct;
        let fits = starts && (offset | len as u64).is_multiple_of(block);
        if direct && !fits { Err(libc::EINVAL) } else { Ok(()) }
    }

    fn read_whole(&mut self, fd: RawFd, buf: &mut Buf, offset: u64) -> Result<usize, i32> {
        self.check_aligned(fd, buf, buf.capacity(), offset)?;
        self.file_fault(false)?;
        if !buf.is_list() {
            let mut to = buf.target(0, usize::MAX);
            return self.read_file(fd, slice::from_mut(&mut to), offset, true);
        }
        let mut targets = Target::nones(buf.parts().len());
        let count = buf.targets(0, usize::MAX, &mut targets);
        self.read_file(fd, &mut targets[..count], offset, true)
    }

    /// Writes all bytes of a buffer. A full disk takes a part of them first. Returns their number.
    fn write_whole(&mut self, fd: RawFd, buf: &Buf, offset: u64) -> (usize, Result<(), i32>) {
        let len = buf.len();
        let checked = self.check_aligned(fd, buf, len, offset);
        let fault = checked.and_then(|()| self.file_fault(true));
        let mut most = match fault {
            Ok(()) => len,
            Err(libc::ENOSPC) => self.dice.rng.below(len as u64) as usize,
            Err(_) => 0,
        };
        let mut slices: Vec<&[u8]> = Vec::new();
        for part in buf.parts() {
            let part = &part[..part.len().min(most)];
            most -= part.len();
            slices.push(part);
        }
        if fault.is_err() && slices.iter().all(|slice| slice.is_empty()) {
            return (0, fault);
        }
        match self.write_file(fd, &slices, offset) {
            Ok(moved) => (moved, fault),
            Err(errno) => (0, Err(errno)),
        }
    }
}

impl Sim {
    /// Sets the most virtual time that the kernel takes for work on a file that it has started. The
    /// seed draws each time. Default 100 µs. Work that the kernel hands back takes the time of a
    /// [job](Sim::set_job_time).
    pub fn set_file_time(&self, most: Duration) {
        self.enter().disk.most_ns = clock::ns_of_duration(most);
    }
}

impl<const C: bool> Sim<C> {
    /// What a driver has to know of a file.
    pub(super) fn facts_of(&self, fd: RawFd) -> FileFacts {
        let how = self.enter().open_file(fd).map(|open| open.how).unwrap_or_default();
        FileFacts::new(how, Some((BLOCK, BLOCK)))
    }

    /// Reads what the page cache has.
    pub(super) fn read_cached(&mut self, fd: RawFd, mut to: Target<'_>, offset: u64) -> isize {
        self.call(Call::Pread, fd, |world| {
            if world.dice.hits(ANYWHERE, Fault::CacheMiss) {
                return -(libc::EAGAIN as isize);
            }
            if world.dice.hits(ANYWHERE, Fault::Eintr) {
                return -(libc::EINTR as isize);
            }
            code(world.read_file(fd, slice::from_mut(&mut to), offset, false))
        })
    }

    /// Starts a request. False if threads must do it: a request that direct I/O does not take, a
    /// write that appends, or a write into the page cache that the seed has chosen.
    pub(super) fn begin_file(&mut self, mut request: FileRequest<'_>, facts: FileFacts) -> bool {
        let writes = matches!(request.work, FileWork::Write(_) | FileWork::WriteList(_));
        if facts.is_refused()
            || facts.is_direct() && !request.is_aligned(facts)
            || writes && facts.appends()
        {
            return false;
        }
        let selector = self.selector;
        let mut world = self.enter();
        if writes && !facts.is_direct() && world.dice.rng.chance(0.5) {
            return false;
        }
        let number = world.next_number();
        let most_ns = world.disk.most_ns.max(1);
        let delay_ns = 1 + world.dice.rng.below(most_ns);
        world.try_after(delay_ns, selector, number);
        drop(world);
        let FileRequest { key, fd, offset, work } = request;
        let (call, memory) = match work {
            FileWork::Read(mut to) => (Call::Pread, vec![(to.as_mut_ptr(), to.len())]),
            FileWork::Write(bytes) => {
                (Call::Pwrite, vec![(bytes.as_ptr().cast_mut(), bytes.len())])
            }
            FileWork::ReadList(list) => (Call::Pread, list.parts().collect()),
            FileWork::WriteList(list) => (Call::Pwrite, list.parts().collect()),
            FileWork::SyncAll | FileWork::SyncData => (Call::Fsync, Vec::new()),
        };
        let request = SimFileRequest { key, fd, offset, call, memory, stopped: false };
        if writes {
            self.enter().begin_write((selector, key), fd, offset, request.bytes());
        }
        self.in_kernel.entries.insert(number, KernelEntry::File(request));
        true
    }

    /// Cancels a request that has not been done, unless the cancel comes too late.
    pub(super) fn stop_request(&mut self, key: u64) {
        if self.enter().dice.hits(ANYWHERE, Fault::LateCancel) {
            return;
        }
        let number = self.in_kernel.entries.iter_mut().find_map(|(number, entry)| match entry {
            KernelEntry::File(request) if request.key == key => {
                request.stopped = true;
                Some(*number)
            }
            _ => None,
        });
        if let Some(number) = number {
            self.enter().try_after(0, self.selector, number);
        }
    }

    /// Does the requests whose time has come, and turns their events into events of files.
    pub(super) fn do_requests(&mut self, events: &mut [(u64, Ready)]) {
        for event in events {
            let number = (event.0 >> 32) as u32;
            if event.0 as u32 != TRY as u32
                || !matches!(self.in_kernel.entries.get(&number), Some(KernelEntry::File(_)) | None)
            {
                continue;
            }
            *event = (FILES, Ready::READABLE);
            let Some(KernelEntry::File(request)) = self.in_kernel.entries.remove(&number) else {
                continue;
            };
            self.enter().disks.end_write((self.selector, request.key));
            let moved = self.call(request.call, request.fd, |world| code(world.perform(&request)));
            self.in_kernel.answers.push_back(FileAnswer { key: request.key, moved });
        }
    }

    /// Sends bytes of a file over a socket.
    pub(super) fn send_of_file(
        &mut self,
        socket: RawFd,
        fd: RawFd,
        offset: u64,
        len: usize,
    ) -> isize {
        let mut bytes = vec![0; len.min(PIECE)];
        let read = self.call(Call::Pread, fd, |world| {
            let read = world.file_fault(false).and_then(|()| {
                world.read_file(fd, &mut [Target::from_slice(&mut bytes)], offset, true)
            });
            code(read)
        });
        if read <= 0 {
            return read;
        }
        let parts = [std::io::IoSlice::new(&bytes[..read as usize])];
        self.call(Call::SendFile, socket, |world| world.send(socket, &parts))
    }

    /// Does what a thread would do with a file.
    pub(super) fn do_file_work(&mut self, work: ThreadJob) -> (Call, Result<Done, Error>) {
        let plain = |result: Result<(), i32>| {
            let failed = |errno| Error::new(ErrorKind::Os(errno), 0, Buf::NONE);
            result.map(|()| Done::Finished).map_err(failed)
        };
        match work {
            ThreadJob::ReadAt { fd, mut buf, offset } => {
                let read = self.enter().read_whole(fd, &mut buf, offset);
                // SAFETY: so many bytes were written from the start.
                unsafe { buf.set_filled(read.unwrap_or(0)) };
                let result = match read {
                    Ok(_) => Ok(Done::Read(buf)),
                    Err(errno) => Err(Error::new(ErrorKind::Os(errno), 0, buf)),
                };
                (Call::Pread, result)
            }
            ThreadJob::WriteAt { fd, buf, offset } => {
                let (moved, ended) = self.enter().write_whole(fd, &buf, offset);
                let bytes = moved as u32;
                let result = match ended {
                    Ok(()) => Ok(Done::Written { buf, bytes }),
                    Err(errno) => Err(Error::new(ErrorKind::Os(errno), bytes, buf)),
                };
                (Call::Pwrite, result)
            }
            ThreadJob::Sync { fd } | ThreadJob::DataSync { fd } => {
                (Call::Fsync, plain(self.enter().sync_or_fail(fd)))
            }
            ThreadJob::Close(handle) => {
                drop(handle);
                (Call::Close, Ok(Done::Closed))
            }
            ThreadJob::Job { fd, job } => (Call::Job, self.do_file_job(fd, job)),
        }
    }

    fn do_file_job(&mut self, fd: RawFd, job: Job) -> Result<Done, Error> {
        let machine = self.home;
        let mut world = self.enter();
        let unit = |()| Done::Finished;
        let result = match job {
            Job::SyncRange { .. } => world.sync_range(fd).map(unit),
            Job::Allocate { offset, len } => world
                .file_fault(true)
                .and_then(|()| world.set_file_len(fd, offset.saturating_add(len), true))
                .map(unit),
            Job::SetLen { len } => world.set_file_len(fd, len, false).map(unit),
            job @ (Job::Open { .. } | Job::OpenBeneath { .. }) => {
                let opened = match job {
                    Job::Open { path, options } => world.open_path(machine, &path, options),
                    Job::OpenBeneath { root, path, options } => beneath(&root, &path)
                        .and_then(|path| world.open_path(machine, &path, options)),
                    _ => Err(libc::EOPNOTSUPP),
                };
                match opened {
                    Ok(fd) => {
                        drop(world);
                        let file = Handle::from_virtual(fd, SourceKind::File, None, self.owner());
                        return Ok(Done::Opened(file));
                    }
                    Err(errno) => Err(errno),
                }
            }
            Job::Metadata(file) => {
                let known = world.file_metadata(match &file {
                    FileRef::Path(path) | FileRef::Symlink(path) => Ok((machine, path)),
                    FileRef::Source(_) => Err(fd),
                });
                known.map(|known| Done::Metadata(Box::new(known)))
            }
            Job::Rename { from, to } => world.disks.of(machine).rename(&from, &to).map(unit),
            Job::RemoveFile { path } => world.disks.of(machine).remove(&path).map(unit),
            Job::HardLink { from, to } => world.disks.of(machine).link(&from, &to).map(unit),
            Job::Access { path, .. } => {
                world.file_metadata(Ok((machine, &path))).map(|_| Done::Finished)
            }
            _ => Err(libc::EOPNOTSUPP),
        };
        result.map_err(|errno| Error::new(ErrorKind::Os(errno), 0, Buf::NONE))
    }
}
