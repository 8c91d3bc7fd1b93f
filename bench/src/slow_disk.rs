//! A file system that takes its time: each write sleeps for as long as a disk of some speed would
//! take. It keeps names and sizes, and no bytes.
//!
//! Without a cache for writes, FUSE hands each write(2) to this process before it returns.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};
use std::{io, thread};

use fuser::{
    BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyEmpty,
    ReplyEntry, ReplyOpen, ReplyWrite, Request, TimeOrNow, WriteFlags,
};

use crate::arguments::Arguments;

const ROOT: u64 = 1;

/// Nothing that the kernel was told is true for longer.
const NEVER: Duration = Duration::ZERO;

struct SlowDisk {
    bytes_per_second: f64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    names: HashMap<OsString, u64>,
    /// By number of the file, behind the root.
    sizes: Vec<u64>,
}

/// `slow-disk DIRECTORY BYTES_PER_SECOND`: prints `mounted`, and serves until it is told to end.
pub fn run(arguments: &mut Arguments) -> io::Result<()> {
    let directory: PathBuf = arguments.require("directory")?;
    let bytes_per_second: f64 = arguments.require("number of bytes")?;
    arguments.end()?;
    let disk = SlowDisk { bytes_per_second, state: Mutex::default() };
    let session = fuser::spawn_mount(disk, directory, &Config::default())?;
    println!("mounted");
    io::stdin().read_line(&mut String::new())?;
    drop(session);
    Ok(())
}

impl SlowDisk {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn attributes(&self, file: u64) -> FileAttr {
        let (kind, perm) = match file {
            ROOT => (FileType::Directory, 0o755),
            _ => (FileType::RegularFile, 0o644),
        };
        let size = self.state().sizes.get((file - ROOT) as usize).copied().unwrap_or(0);
        let (time, ino) = (SystemTime::UNIX_EPOCH, INodeNo(file));
        let (atime, mtime, ctime, crtime) = (time, time, time, time);
        let (nlink, uid, gid, rdev, blksize, flags) = (1, 0, 0, 0, 4096, 0);
        let blocks = size.div_ceil(512);
        FileAttr {
            ino,
            size,
            blocks,
            atime,
            mtime,
            ctime,
            crtime,
            kind,
            perm,
            nlink,
            uid,
            gid,
            rdev,
            blksize,
            flags,
        }
    }
}

impl Filesystem for SlowDisk {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = self.state().names.get(name).copied();
        match found {
            Some(file) => reply.entry(&NEVER, &self.attributes(file), Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, file: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&NEVER, &self.attributes(file.0));
    }

    fn setattr(
        &self,
        _: &Request,
        file: INodeNo,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        if let (Some(size), Some(of)) = (size, self.state().sizes.get_mut((file.0 - ROOT) as usize))
        {
            *of = size;
        }
        reply.attr(&NEVER, &self.attributes(file.0));
    }

    fn unlink(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.state().names.remove(name);
        reply.ok();
    }

    fn rename(
        &self,
        _: &Request,
        _: INodeNo,
        name: &OsStr,
        _: INodeNo,
        new_name: &OsStr,
        _: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let mut state = self.state();
        match state.names.remove(name) {
            Some(file) => {
                state.names.insert(new_name.to_owned(), file);
                reply.ok();
            }
            None => reply.error(Errno::ENOENT),
        }
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::empty());
    }

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::empty());
    }

    fn create(
        &self,
        _: &Request,
        _: INodeNo,
        name: &OsStr,
        _: u32,
        _: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        let file = {
            let mut state = self.state();
            if state.sizes.is_empty() {
                state.sizes.push(0); // the root's
            }
            state.sizes.push(0);
            let file = ROOT + state.sizes.len() as u64 - 1;
            state.names.insert(name.to_owned(), file);
            file
        };
        let (attributes, none) = (self.attributes(file), FopenFlags::empty());
        reply.created(&NEVER, &attributes, Generation(0), FileHandle(0), none);
    }

    fn write(
        &self,
        _: &Request,
        file: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        thread::sleep(Duration::from_secs_f64(data.len() as f64 / self.bytes_per_second));
        if let Some(size) = self.state().sizes.get_mut((file.0 - ROOT) as usize) {
            *size = (*size).max(offset + data.len() as u64);
        }
        reply.written(data.len() as u32);
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }
}
