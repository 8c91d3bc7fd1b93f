//! Files that the servers serve: made once, beside the build.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::pattern;

fn directory() -> io::Result<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/served");
    fs::create_dir_all(&path)?;
    Ok(path)
}

/// A directory with `count` files of `len` bytes, `0.txt` and so on; each starts at its own place
/// of the pattern.
pub fn files(len: usize, count: usize) -> io::Result<PathBuf> {
    let path = directory()?.join(len.to_string());
    fs::create_dir_all(&path)?;
    let bytes = pattern::of(len);
    for number in 0..count {
        let path = path.join(format!("{number}.txt"));
        if fs::metadata(&path).is_ok_and(|found| found.len() == len as u64) {
            continue;
        }
        fs::write(path, &bytes[pattern::start(number)..][..len])?;
    }
    Ok(path)
}

/// A directory with one file of `len` bytes, `0.txt`.
pub fn large(len: u64) -> io::Result<PathBuf> {
    let directory = directory()?.join(len.to_string());
    fs::create_dir_all(&directory)?;
    let path = directory.join("0.txt");
    if fs::metadata(&path).is_ok_and(|found| found.len() == len) {
        return Ok(directory);
    }
    let mut file = fs::File::create(path)?;
    let bytes = pattern::repeated(pattern::PERIOD);
    let mut missing = len;
    while missing > 0 {
        let count = missing.min(bytes.len() as u64);
        file.write_all(&bytes[..count as usize])?;
        missing -= count;
    }
    file.sync_all()?;
    Ok(directory)
}
