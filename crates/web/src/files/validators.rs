//! What tells one version of a file from another: `ETag` and `Last-Modified` (RFC 9110, 8.8).
//!
//! # Why
//! Two writes within one tick of the file system's clock leave the same length and the same time,
//! so that an `ETag` of both would be the same for different bytes. A tick is 1 to 10 ms on Linux,
//! and up to 2 s on some file systems. So a file that was modified in the last [`SETTLED`] before
//! the server looked at it has a weak `ETag`: caches may use it, and no ranges are joined by it.
//! The number of the inode is a part of it, so that a file which replaces another one has its own,
//! even if it has the time and the length of the other one. The parts are hashed: nobody learns the
//! numbers of inodes.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use windlass::fs::Metadata;

/// How old a file has to be, so that its `ETag` is strong.
const SETTLED: Duration = Duration::from_secs(2);

/// The first second that has no such date.
const YEAR_10000: u64 = 253_402_300_800;

/// The validators of one version of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Validators {
    /// With its quotes, and with `W/` in front if it is weak.
    pub(crate) etag: String,
    /// The value of `Last-Modified`, unless the time has no such form.
    pub(crate) last_modified: String,
    /// The same in seconds.
    pub(super) modified: Option<u64>,
}

impl Validators {
    /// Those of a file with this length and time, which the server has looked at at `looked`.
    pub(crate) fn of(known: &Metadata, looked: SystemTime) -> Validators {
        let mut hasher = DefaultHasher::new();
        (known.device, known.inode, known.modified).hash(&mut hasher);
        let is_settled =
            looked.duration_since(known.modified).is_ok_and(|passed| passed >= SETTLED);
        let weak = if is_settled { "" } else { "W/" };
        let etag = format!("{weak}\"{:x}-{:016x}\"", known.size, hasher.finish());
        // A response cannot be older than what it has (RFC 9110, 8.8.2.1).
        let modified = known.modified.min(looked);
        let seconds = modified.duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs());
        let seconds = seconds.filter(|seconds| *seconds < YEAR_10000);
        let last_modified = seconds.map(|_| httpdate::fmt_http_date(modified)).unwrap_or_default();
        Validators { etag, last_modified, modified: seconds }
    }

    /// Whether its `ETag` is strong.
    pub(crate) fn is_strong(&self) -> bool {
        self.etag.starts_with('"')
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A file as a test has it, modified so many seconds after 1970.
    pub(crate) fn file(size: u64, modified: u64, inode: u64) -> Metadata {
        let modified = UNIX_EPOCH + Duration::from_secs(modified);
        let directory = std::fs::metadata(std::env::temp_dir()).unwrap();
        let mut known = Metadata::from(&directory);
        (known.size, known.modified, known.inode) = (size, modified, inode);
        known
    }

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn another_version_has_another_tag() {
        let tag = |size, modified, inode| {
            Validators::of(&file(size, modified, inode), at(1_000_000)).etag
        };
        let one = tag(10, 1000, 1);
        assert_eq!(one, tag(10, 1000, 1));
        for other in [tag(11, 1000, 1), tag(10, 1001, 1), tag(10, 1000, 2)] {
            assert_ne!(one, other);
        }
        assert!(one.starts_with("\"a-") && one.ends_with('"'));
    }

    #[test]
    fn what_was_just_modified_has_a_weak_tag() {
        let of = |looked| Validators::of(&file(10, 1000, 1), at(looked));
        for (looked, is_strong) in [(1000, false), (1001, false), (1002, true), (999, false)] {
            assert_eq!(of(looked).is_strong(), is_strong, "{looked}");
        }
        assert_eq!(of(1001).etag, format!("W/{}", of(1002).etag));
    }

    #[test]
    fn dates_are_those_of_http() {
        let of = |modified, looked| Validators::of(&file(0, modified, 1), at(looked)).last_modified;
        assert_eq!(of(784_111_777, 1_000_000_000), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(of(900, 800), of(800, 800), "a time in the future");
        assert_eq!(of(YEAR_10000, YEAR_10000 + 9), "");
        let mut early = file(0, 0, 1);
        early.modified = UNIX_EPOCH - Duration::from_secs(1);
        assert_eq!(Validators::of(&early, at(9)).last_modified, "");
    }
}
