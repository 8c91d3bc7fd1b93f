//! Files: random reads of 4 KiB, windlass beside libuv's pool.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use windlass::fs::OpenOptions;
use windlass::{AlignedBuf, Completions, Done, Op, Watcher};

use crate::arguments::Arguments;
use crate::plot::Panel;
use crate::rounds::interleaved;
use crate::table::{Table, ratio};
use crate::{peers, process, stats};

const BLOCK: usize = 4096;
const BYTES: usize = 256 << 20;
/// How often a measurement is made again that has lost pages of the page cache.
const TRIES: u32 = 10;

pub fn run(arguments: &mut Arguments) -> io::Result<Panel> {
    let runs: usize = arguments.option("--runs", 5)?;
    let seconds: f64 = arguments.option("--seconds", 1.0)?;
    arguments.end()?;
    let mut names = vec!["libuv".to_string(), "windlass".to_string()];
    let libuv = peers::libuv("files");
    if let Err(why) = &libuv {
        println!("left out: libuv: {why}");
        names.remove(0);
    }
    let ours = std::env::current_exe()?;
    let path = file()?;
    let command = format!("bench -- files --runs {runs} --seconds {seconds}");
    let columns = ["program", "depth", "reads", "IOPS", "ratio"];
    let title = format!("Random reads of 4 KiB: ratios to {}", names[0]);
    let mut table = Table::new(&title, &command, &columns);
    let mut bars = Vec::new();
    for direct in [false, true] {
        for depth in [1, 32] {
            let [rates] = interleaved(&names, runs, |name| {
                let (program, command) = match (&libuv, name) {
                    (Ok(program), "libuv") => (program, None),
                    _ => (&ours, Some("read-file")),
                };
                let measure = || measure(program, command, &path, depth, seconds, direct);
                if direct {
                    return Ok([measure()?]);
                }
                // The system may take pages of the cache away meanwhile.
                for _ in 0..TRIES {
                    cache(&path)?;
                    let rate = measure()?;
                    if missing(&path)? == 0 {
                        return Ok([rate]);
                    }
                }
                let text = format!("the page cache lost pages of the file {TRIES} times in a row");
                Err(io::Error::other(text))
            })?;
            let kind = if direct { "O_DIRECT" } else { "page cache" };
            for rate in &rates {
                let row = [
                    rate.server.clone(),
                    depth.to_string(),
                    kind.into(),
                    format!("{:.0}", stats::median(&rate.values)),
                    ratio(rate.ratio(&rates[0])),
                ];
                table.row(&row);
                if rate.server == "windlass" {
                    bars.push((format!("{kind}, depth {depth}"), rate.ratio(&rates[0])));
                }
            }
        }
    }
    table.finish("files")?;
    let title = format!("windlass: random reads, {} = 1", names[0]);
    Ok(Panel { title, logarithmic: true, decimals: 2, bars })
}

/// A file of random bytes beside the results; it is made once.
fn file() -> io::Result<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/random-reads");
    if fs::metadata(&path).is_ok_and(|found| found.len() == BYTES as u64) {
        return Ok(path);
    }
    let mut file = File::create(&path)?;
    let mut block = vec![0_u8; 1 << 20];
    for (index, byte) in block.iter_mut().enumerate() {
        *byte = ((index * 31) >> 3) as u8;
    }
    for _ in 0..BYTES / block.len() {
        file.write_all(&block)?;
    }
    file.sync_all()?;
    Ok(path)
}

/// Reads the file once, so that the page cache has all of it, and checks that.
fn cache(path: &Path) -> io::Result<()> {
    io::copy(&mut File::open(path)?, &mut io::sink())?;
    match missing(path)? {
        0 => Ok(()),
        pages => Err(io::Error::other(format!("the page cache has no room for {pages} pages"))),
    }
}

/// How many pages of the file are not in the page cache: mincore(2) says it of a mapping.
#[allow(unsafe_code)] // a mapping has no safe form here
fn missing(path: &Path) -> io::Result<usize> {
    let file = File::open(path)?;
    let len = file.metadata()?.len() as usize;
    let mut states = vec![0_u8; len.div_ceil(4096)];
    // SAFETY: the kernel chooses a free address for a new read-only mapping of an open file.
    let at = unsafe {
        let (access, kind) = (libc::PROT_READ, libc::MAP_SHARED);
        libc::mmap(std::ptr::null_mut(), len, access, kind, file.as_raw_fd(), 0)
    };
    if at == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the mapping has `len` bytes, and `states` has a byte for each of its pages.
    let answer = unsafe { libc::mincore(at, len, states.as_mut_ptr()) };
    let error = io::Error::last_os_error();
    // SAFETY: nothing points into the mapping.
    unsafe { libc::munmap(at, len) };
    if answer < 0 {
        return Err(error);
    }
    Ok(states.iter().filter(|state| **state & 1 == 0).count())
}

/// Reads per second of a program on processor 0.
fn measure(
    program: &Path,
    command: Option<&str>,
    path: &Path,
    depth: usize,
    seconds: f64,
    direct: bool,
) -> io::Result<f64> {
    let path = path.to_string_lossy().into_owned();
    let direct = u8::from(direct).to_string();
    let operands = [path, depth.to_string(), seconds.to_string(), direct];
    let words: Vec<String> = command.into_iter().map(String::from).chain(operands).collect();
    let printed = process::output(program, &words)?;
    let mut words = printed.split_whitespace().map(str::parse::<f64>);
    match (words.next(), words.next()) {
        (Some(Ok(count)), Some(Ok(seconds))) => Ok(count / seconds),
        _ => Err(io::Error::other(format!("{printed:?} is no result"))),
    }
}

/// `read-file PATH DEPTH SECONDS DIRECT`: reads at random places, `DEPTH` at a time, and prints how
/// many reads took how many seconds.
pub fn read(arguments: &mut Arguments) -> io::Result<()> {
    let path: PathBuf = arguments.require("path")?;
    let depth: usize = arguments.require("depth")?;
    let span = Duration::from_secs_f64(arguments.require("number of seconds")?);
    let direct = arguments.require::<u8>("0 or 1")? != 0;
    arguments.end()?;
    let mut watcher = Watcher::new()?;
    let mut done = Completions::new();
    watcher.submit(Op::open(&path, OpenOptions::new().read(true).direct(direct)))?;
    watcher.wait(&mut done)?;
    let Some(Ok(Done::Opened(file))) = done.drain(..).next().map(|c| c.result) else {
        return Err(io::Error::other(format!("{} cannot be opened", path.display())));
    };
    let file = watcher.attach(file)?;
    let mut random = 88_172_645_463_325_252_u64;
    let mut offset = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % (BYTES / BLOCK) as u64 * BLOCK as u64
    };
    for _ in 0..depth {
        let buf = AlignedBuf::with_capacity(BLOCK, BLOCK);
        watcher.submit(Op::read_at(file, buf, offset()))?;
    }
    let begin = Instant::now();
    let (mut count, mut in_flight) = (0_u64, depth);
    while in_flight > 0 {
        watcher.wait(&mut done)?;
        let goes_on = begin.elapsed() < span;
        for c in done.drain(..) {
            let Done::Read(buf) = c.result? else { continue };
            count += 1;
            in_flight -= 1;
            if goes_on {
                watcher.submit(Op::read_at(file, buf, offset()))?;
                in_flight += 1;
            }
        }
    }
    println!("{count} {}", begin.elapsed().as_secs_f64());
    Ok(())
}
