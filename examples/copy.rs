//! Copies a large file, with several blocks in flight at a time.
//!
//! ```text
//! cargo run --release --example copy -- FROM TO [--depth N] [--block BYTES] [--direct]
//! ```
//!
//! The program writes each block at its offset as soon as it has read it, so blocks end in any
//! order. `--direct` bypasses the page cache on both sides. It pads the last block, and truncates
//! the file at the end. The file TO appears when all its bytes are on the disk. Until then the copy
//! has a temporary name in the same directory; an error, SIGINT or SIGTERM removes it.
//! ([`Op::copy`] uses the copies that the system can do by itself, such as sharing blocks. This
//! example is for all other copies.)

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use windlass::fs::{FileKind, Metadata, OpenOptions};
use windlass::{AlignedBuf, Completion, Completions, Done, Op, Source, Ticket, Watcher};

mod common;

/// The alignment of direct I/O, in bytes.
const PAGE: usize = 4096;
/// How often progress is shown.
const SHOWN: Duration = Duration::from_millis(200);

fn main() -> io::Result<()> {
    let mut options = common::Options::new("copy FROM TO [--depth N] [--block BYTES] [--direct]");
    let depth: usize = options.take("--depth").unwrap_or(8).clamp(1, 1024);
    let block: usize = options.take("--block").unwrap_or(1 << 20).clamp(PAGE, 1 << 30);
    let direct = options.flag("--direct");
    let (from, to) = (PathBuf::from(options.word()), PathBuf::from(options.word()));
    options.end();

    let mut watcher = Watcher::new()?;
    common::signals(&mut watcher)?;
    let mut copy = Copy { watcher, done: Completions::new(), depth, block, direct };
    copy.file(&from, &to)
}

struct Copy {
    watcher: Watcher,
    done: Completions,
    depth: usize,
    block: usize,
    direct: bool,
}

impl Copy {
    fn file(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        if to.is_dir() {
            return Err(about(to)(io::ErrorKind::IsADirectory.into()));
        }
        let start = Instant::now();
        let source = self.open(from, OpenOptions::new().read(true))?;
        let stat = self.stat(source).map_err(about(from))?;
        if stat.kind() != FileKind::File {
            return Err(about(from)(io::Error::other("not a regular file")));
        }
        let mut template = to.as_os_str().to_owned();
        template.push(".XXXXXX");
        let Done::Temporary(temporary) =
            self.one(Op::create_temp_file(template)).map_err(about(to))?
        else {
            unreachable!("what was asked for");
        };
        let (name, _) = *temporary;
        let copied = self.contents(from, source, &stat, &name).and_then(|()| {
            self.one(Op::rename(&name, to)).map_err(about(to))?;
            self.sync_directory(to)
        });
        if let Err(error) = copied {
            // It is not there if only the directory could not be synced.
            match std::fs::remove_file(&name) {
                Err(left) if left.kind() != io::ErrorKind::NotFound => {
                    eprintln!("{}: {left}", name.display());
                }
                _ => {}
            }
            return Err(error);
        }
        let (mib, seconds) = (stat.size as f64 / (1 << 20) as f64, start.elapsed().as_secs_f64());
        eprintln!("{mib:.1} MiB in {seconds:.2} s: {:.0} MiB/s", mib / seconds);
        Ok(())
    }

    fn contents(
        &mut self,
        from: &Path,
        source: Source,
        stat: &Metadata,
        to: &Path,
    ) -> io::Result<()> {
        let target = self.open(to, OpenOptions::new().write(true))?;
        self.blocks(source, target, stat.size)
            .map_err(|(reading, error)| about(if reading { from } else { to })(error))?;
        for op in [
            Op::set_len(target, stat.size), // cuts the padding off
            Op::set_permissions(target, stat.permissions()),
            Op::sync_all(target),
        ] {
            self.one(op).map_err(about(to))?;
        }
        Ok(())
    }

    /// Copies `size` bytes. An error says whether a read or a write met it.
    fn blocks(&mut self, from: Source, to: Source, size: u64) -> Result<(), (bool, io::Error)> {
        let shows = io::stderr().is_terminal();
        let buf = || AlignedBuf::with_capacity(self.block, PAGE);
        let mut free: Vec<AlignedBuf> = (0..self.depth).map(|_| buf()).collect();
        let (mut next, mut written, mut shown) = (0, 0, Instant::now());
        while written < size {
            while next < size
                && let Some(buf) = free.pop()
            {
                let (at, room) = (next, buf.capacity() as u64);
                self.submit(Op::read_at(from, buf, at).token(at)).map_err(|e| (true, e))?;
                next += room;
            }
            // Tokens are offsets.
            for c in self.wait().map_err(|e| (true, e))? {
                let at = c.token;
                match c.result.map_err(|error| (c.source == from, error.into()))? {
                    Done::Read(bytes) => {
                        let mut buf = bytes.into_aligned().expect("what was submitted");
                        let len = (size - at).min(buf.capacity() as u64) as usize;
                        if buf.len() < len {
                            return Err((true, io::Error::other("it has become shorter")));
                        }
                        buf.set_len(len);
                        if self.direct {
                            buf.pad();
                        }
                        self.submit(Op::write_at(to, buf, at).token(at)).map_err(|e| (false, e))?;
                    }
                    Done::Written { buf, .. } => {
                        written += (size - at).min(buf.len() as u64);
                        free.push(buf.into_aligned().expect("what was submitted"));
                    }
                    other => unreachable!("not asked for: {other:?}"),
                }
            }
            if shows && shown.elapsed() >= SHOWN {
                shown = Instant::now();
                eprint!("\r{} of {} MiB\r", written >> 20, size >> 20);
            }
        }
        Ok(())
    }

    /// The new name is on the disk.
    fn sync_directory(&mut self, of: &Path) -> io::Result<()> {
        let parent = of.parent().filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new("."));
        let Done::Opened(directory) =
            self.one(Op::open(parent, OpenOptions::new().read(true))).map_err(about(parent))?
        else {
            unreachable!("what was asked for");
        };
        let directory = self.watcher.attach(directory)?;
        self.one(Op::sync_all(directory)).map_err(about(parent))?;
        Ok(())
    }

    fn open(&mut self, path: &Path, options: OpenOptions) -> io::Result<Source> {
        match self.one(Op::open(path, options.direct(self.direct))) {
            Ok(Done::Opened(file)) => Ok(self.watcher.attach(file)?),
            Ok(other) => unreachable!("not asked for: {other:?}"),
            Err(error) if self.direct && error.raw_os_error() == Some(libc::EINVAL) => {
                Err(about(path)(io::Error::other("no direct I/O on this file system")))
            }
            Err(error) => Err(about(path)(error)),
        }
    }

    fn stat(&mut self, file: Source) -> io::Result<Metadata> {
        match self.one(Op::metadata(file))? {
            Done::Metadata(stat) => Ok(*stat),
            other => unreachable!("not asked for: {other:?}"),
        }
    }

    /// Submits an operation while no other is in flight, and waits for its end.
    fn one(&mut self, op: Op) -> io::Result<Done> {
        let ticket = self.submit(op)?;
        loop {
            for c in self.wait()? {
                if c.ticket() == ticket {
                    return Ok(c.result?);
                }
            }
        }
    }

    fn submit(&mut self, op: Op) -> io::Result<Ticket> {
        Ok(self.watcher.submit(op)?)
    }

    /// The next completion; an error if it is a signal.
    fn wait(&mut self) -> io::Result<Vec<Completion>> {
        self.watcher.wait(&mut self.done)?;
        let come: Vec<Completion> = self.done.drain(..).collect();
        if come.iter().any(|c| matches!(c.result, Ok(Done::Signal(_)))) {
            return Err(io::Error::new(io::ErrorKind::Interrupted, "told to end"));
        }
        Ok(come)
    }
}

/// Adds the file's name to an error.
fn about(path: &Path) -> impl Fn(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}
