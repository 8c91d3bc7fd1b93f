//! Copies of files: by shared blocks, else inside the kernel, else through memory.

use std::fs::File;
use std::io;
use std::path::Path;

use super::position::{COPY, Progress, repeat};
use super::{CopyOptions, Metadata, OpenOptions};
use crate::memory::buf::Target;
use crate::sys::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};
use crate::sys::fs::{self, MOST_BYTES};
use crate::sys::step::errno_of;
use crate::sys::{Moved, descriptor, os_errno, os_error, path, sendfile};

/// Copies bytes and permissions of the regular file `from`. A file copied onto itself stays as it
/// is. If the copy fails, it removes a target that it has created. A target that existed before is
/// left truncated.
///
/// Fails with `EISDIR` for a directory, with `EINVAL` for other files that are not regular, and
/// with the errors of open(2), read(2), write(2) and close(2).
pub(super) fn copy(from: &Path, to: &Path, options: CopyOptions) -> Progress {
    match prepare(from, to, options) {
        Err(error) => (0, Err(errno_of(&error))),
        Ok(None) => (0, Ok(())),
        Ok(Some(pair)) => {
            let (done, ended) = pair.fill(options);
            let made = pair.made;
            // Network file systems and FUSE report lost data here.
            let closed = descriptor::close(OwnedFd::from(pair.to).into_raw_fd());
            let ended = ended.and(closed);
            if ended.is_err() && made {
                let _ = std::fs::remove_file(to);
            }
            (done, ended)
        }
    }
}

struct Pair {
    from: File,
    to: File,
    known: Metadata,
    /// The target did not exist before.
    made: bool,
}

/// Opens both files. `None` if they are the same.
fn prepare(from: &Path, to: &Path, options: CopyOptions) -> io::Result<Option<Pair>> {
    let (from, known) = open(from, OpenOptions::new().read(true))?;
    let target = OpenOptions::new().write(true).mode(known.permissions());
    let (opened, made) = match open(to, target.create_new(true)) {
        Err(e) if os_errno(&e) == Some(libc::EEXIST) && !options.exclusive => {
            (open(to, target.create(true))?, false)
        }
        opened => (opened?, true),
    };
    let (to, there) = opened;
    if !made {
        if (there.device, there.inode) == (known.device, known.inode) {
            return Ok(None);
        }
        to.set_len(0)?;
    }
    Ok(Some(Pair { from, to, known, made }))
}

fn open(path: &Path, options: OpenOptions) -> io::Result<(File, Metadata)> {
    let flags = options.flags().map_err(os_error)?;
    fs::open_regular(path.as_os_str(), flags, options.permissions())
}

impl Pair {
    fn fill(&self, options: CopyOptions) -> Progress {
        // The umask has taken some of the permissions, or the target existed and had its own.
        if let Err(error) = path::set_mode_of(&self.to, self.known.permissions()) {
            return (0, Err(errno_of(&error)));
        }
        let (from, to) = (self.from.as_raw_fd(), self.to.as_raw_fd());
        match sendfile::clone_blocks(from, to) {
            0 => return (self.known.size, Ok(())),
            error if options.reflink => return (0, Err(-error as i32)),
            _ => {}
        }
        bytes(from, to)
    }
}

/// Copies up to the end of `from`, whatever its size says: files of /proc have size 0. In Linux 5.3
/// to 5.18 copy_file_range(2) finds no bytes in them, so only a read that finds no bytes proves the
/// end.
///
/// Holes are left out: an image of a disk that is nearly empty would fill the real one. The
/// kernel's copies write zeros there.
fn bytes(from: RawFd, to: RawFd) -> Progress {
    let mut memory = Vec::new();
    let (mut data_end, mut has_holes) = (0, false);
    let (done, ended) = repeat(u64::MAX, |done| {
        if done >= data_end {
            let (start, end) = sendfile::next_data(from, done).unwrap_or((done, u64::MAX));
            data_end = end;
            if start > done {
                has_holes = true;
                return (start - done) as Moved;
            }
        }
        let most = (data_end - done).min(MOST_BYTES as u64) as usize;
        if memory.is_empty() {
            let moved = sendfile::copy_range(from, to, done, most);
            if moved != 0 && moved != sendfile::UNSUPPORTED {
                return moved;
            }
            memory.resize(COPY, 0);
        }
        let most = most.min(memory.len());
        piece(from, to, done, &mut memory[..most])
    });
    // A hole at the end is only a length.
    let ended = ended.and_then(|()| match has_holes {
        true => fs::file(to).set_len(done).map_err(|error| errno_of(&error)),
        false => Ok(()),
    });
    (done, ended)
}

/// Copies one piece through `memory`.
pub(super) fn piece(from: RawFd, to: RawFd, offset: u64, memory: &mut [u8]) -> Moved {
    let got = fs::read_at(from, Target::from_slice(memory), offset);
    if got <= 0 {
        return got;
    }
    let bytes = &memory[..got as usize];
    let (written, ended) =
        repeat(got as u64, |done| fs::write_at(to, &bytes[done as usize..], offset + done));
    match ended {
        Ok(()) if written == got as u64 => got,
        Ok(()) => -(libc::EIO as Moved),
        Err(errno) => -(errno as Moved),
    }
}
