//! The files of the machines: names, open files, and the calls on them.
//!
//! Each machine has a disk of its own. `directories.rs` has the names, `inode.rs` the bytes.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::file::OpenOptions;
use crate::memory::buf::Target;
use crate::sim::Sim;
use crate::sim::content::{PAGE, pages, sectors};
use crate::sim::crash::{Crash, Machine};
use crate::sim::directories::Directories;
use crate::sim::inode::Inode;
use crate::sim::names::Name;
use crate::sim::rng::Rng;
use crate::sim::world::{Role, World};
use crate::sys::OpenMode;
use crate::sys::fd::RawFd;
use crate::sys::fs::ACCESS_MODE;
use crate::sys::types::{DirectAlignment, Metadata};

/// Memory addresses, offsets and lengths of direct reads and writes must be multiples of this.
pub(super) const BLOCK: u32 = 512;
/// The largest size of a file, as on Linux.
const MOST_BYTES: u64 = i64::MAX as u64;
/// The mode of a regular file (inode(7)).
const REGULAR: u32 = 0o100_000;
const DIRECTORY: u32 = 0o040_000;

/// An open file.
#[derive(Clone, Copy)]
pub(super) struct OpenFile {
    pub(super) machine: Machine,
    number: u64,
    reads: bool,
    writes: bool,
    pub(super) how: OpenMode,
}

/// A write that the kernel or a thread has, and has not done.
struct PendingWrite {
    number: u64,
    offset: u64,
    bytes: Vec<u8>,
}

/// All files of a machine.
pub(super) struct SimFiles {
    names: Directories,
    files: BTreeMap<u64, Inode>,
    last: u64,
    /// The writes under way, by watcher and key.
    under_way: BTreeMap<(u32, u64), PendingWrite>,
    /// Decides what reaches the disk. It decides nothing else, so that a program that writes more
    /// meets the same faults.
    rng: Rng,
}

impl SimFiles {
    pub(super) fn new(seed: u64) -> SimFiles {
        SimFiles {
            names: Directories::default(),
            files: BTreeMap::new(),
            last: 0,
            under_way: BTreeMap::new(),
            rng: Rng::new(seed),
        }
    }

    fn find(&self, path: &Path) -> Result<u64, i32> {
        self.names.get(path).ok_or(libc::ENOENT)
    }

    fn get(&mut self, number: u64) -> &mut Inode {
        self.files.get_mut(&number).expect("what is named or open is there")
    }

    /// A file, and the numbers that decide what of it reaches the disk.
    fn with_rng(&mut self, number: u64) -> (&mut Inode, &mut Rng) {
        let file = self.files.get_mut(&number).expect("what is named or open is there");
        (file, &mut self.rng)
    }

    fn make(&mut self, path: &Path, mode: u32, now_ns: u64) -> u64 {
        let number = self.make_nameless(REGULAR | mode & 0o7777, now_ns);
        self.get(number).names = 1;
        self.names.change(vec![(path.to_owned(), Some(number))]);
        number
    }

    fn make_nameless(&mut self, mode: u32, now_ns: u64) -> u64 {
        self.last += 1;
        self.files.insert(self.last, Inode::new(mode, now_ns));
        self.last
    }

    /// Drops a file that has neither a name nor a descriptor, and gets none by a crash.
    fn drop_unused(&mut self, number: u64) {
        let file = self.get(number);
        if file.names == 0 && file.opens == 0 && !self.names.may_return(number) {
            self.files.remove(&number);
        }
    }

    fn drop_all_unused(&mut self) {
        self.files.keys().copied().collect::<Vec<_>>().into_iter().for_each(|number| {
            self.drop_unused(number);
        });
    }

    /// A descriptor is closed.
    pub(super) fn close(&mut self, open: OpenFile) {
        self.get(open.number).opens -= 1;
        self.drop_unused(open.number);
    }

    pub(super) fn remove(&mut self, path: &Path) -> Result<(), i32> {
        let number = self.find(path)?;
        self.names.change(vec![(path.to_owned(), None)]);
        self.get(number).names -= 1;
        self.drop_unused(number);
        Ok(())
    }

    pub(super) fn link(&mut self, from: &Path, to: &Path) -> Result<(), i32> {
        let number = self.find(from)?;
        if self.names.get(to).is_some() {
            return Err(libc::EEXIST);
        }
        self.get(number).names += 1;
        self.names.change(vec![(to.to_owned(), Some(number))]);
        Ok(())
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> Result<(), i32> {
        let number = self.find(from)?;
        let replaced = self.names.get(to);
        if replaced == Some(number) {
            // Two names of one file: nothing is done (rename(2)).
            return Ok(());
        }
        self.names.change(vec![(from.to_owned(), None), (to.to_owned(), Some(number))]);
        if let Some(replaced) = replaced {
            self.get(replaced).names -= 1;
            self.drop_unused(replaced);
        }
        Ok(())
    }

    /// A write begins that ends later.
    fn begin_write(&mut self, by: (u32, u64), open: OpenFile, offset: u64, bytes: Vec<u8>) {
        let PendingWrite { number, offset, bytes } =
            PendingWrite { number: open.number, offset, bytes };
        let end = self.get(number).now.len();
        let offset = if open.how.appends { end } else { offset };
        if open.writes && offset.checked_add(bytes.len() as u64).is_some() {
            self.under_way.insert(by, PendingWrite { number, offset, bytes });
        }
    }

    /// Takes the machine's power away.
    pub(super) fn crash(&mut self, crash: &mut Crash) {
        // Some crashes lose all, some nothing.
        let mut odds = || self.rng.below(5) as f64 / 4.0;
        let (of_names, of_bytes) = (odds(), odds());
        self.names.crash(of_names, &mut self.rng, crash);
        for write in std::mem::take(&mut self.under_way).into_values() {
            if let Some(file) = self.files.get_mut(&write.number) {
                file.tear(write.offset, &write.bytes, of_bytes, &mut self.rng);
            }
        }
        for file in self.files.values_mut() {
            file.crash(of_bytes, &mut self.rng, crash);
            file.names = 0;
        }
        for number in self.names.files().collect::<Vec<_>>() {
            self.get(number).names += 1;
        }
        self.drop_all_unused();
    }
}

/// The disks, by machine.
pub(super) struct Disks {
    disks: BTreeMap<Machine, SimFiles>,
    seeds: Rng,
}

impl Disks {
    pub(super) fn new(seed: u64) -> Disks {
        Disks { disks: BTreeMap::new(), seeds: Rng::new(seed) }
    }

    /// The files of a machine.
    pub(super) fn of(&mut self, machine: Machine) -> &mut SimFiles {
        self.disks.entry(machine).or_insert_with(|| SimFiles::new(self.seeds.next()))
    }

    /// A write that a watcher has begun is done, or is not going to be done.
    pub(super) fn end_write(&mut self, by: (u32, u64)) {
        self.disks.values_mut().for_each(|files| drop(files.under_way.remove(&by)));
    }

    /// Forgets the writes of a dropped watcher.
    pub(super) fn close_selector(&mut self, selector: u32) {
        for files in self.disks.values_mut() {
            files.under_way.retain(|(of, _), _| *of != selector);
        }
    }
}

impl World {
    /// A watcher has begun this write, and the kernel or a thread does it later.
    pub(super) fn begin_write(&mut self, by: (u32, u64), fd: RawFd, offset: u64, bytes: Vec<u8>) {
        if let Ok(open) = self.open_file(fd) {
            self.disks.of(open.machine).begin_write(by, open, offset, bytes);
        }
    }

    /// The file behind a descriptor, if it is one.
    pub(super) fn open_file(&self, fd: RawFd) -> Result<OpenFile, i32> {
        match self.sockets.get(fd as usize).map(|socket| &socket.role) {
            Some(Role::File(open)) => Ok(*open),
            _ => Err(libc::EBADF),
        }
    }

    pub(super) fn open_path(
        &mut self,
        machine: Machine,
        path: &Path,
        options: OpenOptions,
    ) -> Result<RawFd, i32> {
        let flags = options.flags()?;
        let now_ns = self.schedule.now_ns;
        let files = self.disks.of(machine);
        let number = match files.find(path) {
            Ok(_) if flags & libc::O_EXCL != 0 => return Err(libc::EEXIST),
            Err(libc::ENOENT) if path != Path::new("") && files.names.is_directory(path) => {
                if flags & (ACCESS_MODE | libc::O_CREAT) != libc::O_RDONLY {
                    return Err(libc::EISDIR);
                }
                let number = files.make_nameless(DIRECTORY | 0o755, now_ns);
                files.get(number).directory = Some(path.to_owned());
                number
            }
            Err(libc::ENOENT) if flags & libc::O_CREAT != 0 && path != Path::new("") => {
                files.make(path, options.permissions() & !0o022, now_ns)
            }
            found => found?,
        };
        let (file, rng) = files.with_rng(number);
        if flags & libc::O_TRUNC != 0 {
            file.set_len(0, now_ns, rng);
        }
        file.opens += 1;
        let access = flags & ACCESS_MODE;
        let how = OpenMode {
            direct: options.is_direct(),
            appends: flags & libc::O_APPEND != 0,
            synchronous: options.is_synchronous(),
        };
        let (reads, writes) = (access != libc::O_WRONLY, access != libc::O_RDONLY);
        let role = Role::File(OpenFile { machine, number, reads, writes, how });
        Ok(self.open(role, Name::None, Name::None, machine) as RawFd)
    }

    /// Reads bytes, and puts them into the cache. Without `waits`, reads only what the cache has.
    pub(super) fn read_file(
        &mut self,
        fd: RawFd,
        to: &mut [Target<'_>],
        offset: u64,
        waits: bool,
    ) -> Result<usize, i32> {
        let open = self.open_file(fd)?;
        if !open.reads {
            return Err(libc::EBADF);
        }
        let file = self.disks.of(open.machine).get(open.number);
        let room: usize = to.iter().map(Target::len).sum();
        let mut most = file.now.len().saturating_sub(offset).min(room as u64) as usize;
        if waits {
            file.cached.extend(pages(offset, most));
        } else if let Some(uncached) = pages(offset, most).find(|page| !file.cached.contains(page))
        {
            most = (uncached * PAGE as u64).saturating_sub(offset) as usize;
            if most == 0 {
                return Err(libc::EAGAIN);
            }
        }
        let mut moved = 0;
        for target in to {
            let part = target.len().min(most - moved);
            file.now.read(offset + moved as u64, target, part);
            moved += part;
        }
        Ok(moved)
    }

    /// Writes all of `parts`: at `offset`, or at the end of a file that was opened for appending.
    pub(super) fn write_file(
        &mut self,
        fd: RawFd,
        parts: &[&[u8]],
        offset: u64,
    ) -> Result<usize, i32> {
        let open = self.open_file(fd)?;
        if !open.writes {
            return Err(libc::EBADF);
        }
        let now_ns = self.schedule.now_ns;
        let (file, rng) = self.disks.of(open.machine).with_rng(open.number);
        let mut at = if open.how.appends { file.now.len() } else { offset };
        let count: usize = parts.iter().map(|part| part.len()).sum();
        if at.checked_add(count as u64).is_none_or(|end| end > MOST_BYTES) {
            return Err(libc::EFBIG);
        }
        let touched = sectors(at, count);
        for part in parts {
            file.write(at, part, now_ns, rng);
            at += part.len() as u64;
        }
        if open.how.synchronous {
            file.sync(touched);
        }
        Ok(count)
    }

    /// Puts a file on the disk: its bytes and its length. The names in a directory are its bytes.
    pub(super) fn sync_file(&mut self, fd: RawFd) -> Result<(), i32> {
        let open = self.open_file(fd)?;
        let files = self.disks.of(open.machine);
        let file = files.get(open.number);
        file.sync(0..u64::MAX);
        if let Some(directory) = file.directory.clone() {
            files.names.sync(&directory);
            files.drop_all_unused();
        }
        Ok(())
    }

    /// A sync has failed: what was dirty counts as clean, although it may not be on the disk.
    pub(super) fn fail_to_sync(&mut self, fd: RawFd) {
        if let Ok(open) = self.open_file(fd) {
            let (file, rng) = self.disks.of(open.machine).with_rng(open.number);
            file.fail_to_sync(rng);
        }
    }

    pub(super) fn set_file_len(&mut self, fd: RawFd, len: u64, only_up: bool) -> Result<(), i32> {
        let open = self.open_file(fd)?;
        if !open.writes {
            return Err(if only_up { libc::EBADF } else { libc::EINVAL });
        }
        if len > MOST_BYTES {
            return Err(libc::EFBIG);
        }
        let now_ns = self.schedule.now_ns;
        let (file, rng) = self.disks.of(open.machine).with_rng(open.number);
        if !only_up || len > file.now.len() {
            file.set_len(len, now_ns, rng);
        }
        Ok(())
    }

    /// The attributes of a file, by its name on a machine or by its descriptor.
    pub(super) fn file_metadata(
        &mut self,
        of: Result<(Machine, &Path), RawFd>,
    ) -> Result<Metadata, i32> {
        let (machine, number) = match of {
            Ok((machine, path)) => (machine, self.disks.of(machine).find(path)?),
            Err(fd) => self.open_file(fd).map(|open| (open.machine, open.number))?,
        };
        let file = self.disks.of(machine).get(number);
        let time = |ns: u64| SystemTime::UNIX_EPOCH + Duration::from_nanos(ns);
        Ok(Metadata {
            device: 1,
            inode: number,
            mode: file.mode,
            links: file.names,
            user: 0,
            group: 0,
            device_of_node: 0,
            size: file.now.len(),
            block_size: PAGE as u64,
            blocks: file.now.page_count() * (PAGE as u64 / 512),
            accessed: time(file.modified_ns),
            modified: time(file.modified_ns),
            changed: time(file.modified_ns),
            created: Some(time(file.made_ns)),
            direct: Some(DirectAlignment { memory: BLOCK, offset: BLOCK }),
        })
    }
}

/// Files. Each [host](Sim::at) has its own, and so have all watchers without a host together. The
/// space of names is flat: a name is a path as the program says it, and needs no directory.
impl Sim {
    /// Makes a file on this host with these bytes, or replaces the bytes of an existing file. Its
    /// name and its bytes are on the disk, and not in the page cache.
    ///
    /// ```
    /// use windlass::fs::OpenOptions;
    /// use windlass::sim::Sim;
    /// use windlass::{Completions, Done, Op, Watcher};
    /// let sim = Sim::new(1);
    /// sim.write_file("greeting", "hello");
    /// let mut watcher = Watcher::simulated(&sim);
    /// watcher.submit(Op::open("greeting", OpenOptions::new().read(true)))?;
    /// let mut done = Completions::new();
    /// watcher.wait(&mut done)?;
    /// let Ok(Done::Opened(file)) = done.drain(..).next().unwrap().result else { panic!() };
    /// let file = watcher.attach(file)?;
    /// watcher.submit(Op::read_at(file, vec![0; 100], 0))?;
    /// watcher.wait(&mut done)?;
    /// let Ok(Done::Read(data)) = done.drain(..).next().unwrap().result else { panic!() };
    /// assert_eq!(&*data, b"hello");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn write_file(&self, path: impl AsRef<Path>, bytes: impl AsRef<[u8]>) {
        let world = &mut *self.enter();
        let (path, now_ns) = (path.as_ref(), world.schedule.now_ns);
        let files = world.disks.of(self.home);
        let number = match files.find(path) {
            Ok(number) => number,
            Err(_) => files.make(path, 0o644, now_ns),
        };
        files.names.settle(path);
        let (file, rng) = files.with_rng(number);
        file.set_len(0, now_ns, rng);
        file.write(0, bytes.as_ref(), now_ns, rng);
        file.sync(0..u64::MAX);
        file.cached.clear();
    }

    /// The bytes of a file on this host, as a program would read them; `None` if there is no file
    /// of this name.
    pub fn read_file(&self, path: impl AsRef<Path>) -> Option<Vec<u8>> {
        let world = &mut *self.enter();
        let files = world.disks.of(self.home);
        let number = files.find(path.as_ref()).ok()?;
        let content = &files.get(number).now;
        let mut bytes = vec![0; content.len() as usize];
        let count = bytes.len();
        content.read(0, &mut Target::from_slice(&mut bytes), count);
        Some(bytes)
    }

    /// Takes all files of this host out of the page cache, so that the next reads wait for the
    /// disk. Only what a failed sync has lost changes by this: programs then read what the disk
    /// has.
    pub fn drop_caches(&self) {
        let world = &mut *self.enter();
        world.disks.of(self.home).files.values_mut().for_each(Inode::evict);
    }
}
