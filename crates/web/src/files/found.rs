//! A file that is open, and what a response says of it.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use windlass::SourceGuard;
use windlass::fs::Metadata;
use windlass_http1::FixedField;

use super::options::FilesOptions;
use super::validators::Validators;

/// A file that is open.
#[derive(Clone, Debug)]
pub(crate) struct FoundFile {
    pub(crate) content: Content,
    pub(crate) len: u64,
    pub(crate) validators: Validators,
    /// The value of `Content-Type`.
    pub(crate) kind: Cow<'static, str>,
    /// What else a response says of it, with the names.
    pub(crate) fields: Vec<(&'static str, FixedField)>,
    /// The same in gzip, for clients that take it.
    pub(crate) gzip: Option<Arc<FoundFile>>,
    /// What direct reads need, if it was opened for them.
    pub(crate) direct: Option<u32>,
    version: FileVersion,
}

/// Where the bytes of a file are.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    /// In the file, which is open.
    Open(Arc<SourceGuard>),
    /// In memory. The file is closed, so that small files need no descriptors.
    Kept(Arc<[u8]>),
}

/// What tells whether a name still means the same bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FileVersion {
    device: u64,
    inode: u64,
    len: u64,
    modified: SystemTime,
    changed: SystemTime,
}

impl FileVersion {
    fn of(known: &Metadata) -> FileVersion {
        let (device, inode, len) = (known.device, known.inode, known.size);
        FileVersion { device, inode, len, modified: known.modified, changed: known.changed }
    }
}

impl FoundFile {
    /// The file with a name, or its neighbour in gzip, which the server has looked at at `looked`.
    pub(crate) fn new(
        guard: SourceGuard,
        (name, is_gzip): (&Path, bool),
        (known, looked): (&Metadata, SystemTime),
        options: &FilesOptions,
    ) -> FoundFile {
        let validators = Validators::of(known, looked);
        let mut fields = Vec::with_capacity(6);
        let mut add = |name: &'static str, value: &str| {
            // One with bytes that no field may have is left out.
            fields.extend(FixedField::new(name, value).ok().map(|field| (name, field)));
        };
        add("ETag", &validators.etag);
        if !validators.last_modified.is_empty() {
            add("Last-Modified", &validators.last_modified);
        }
        add("Accept-Ranges", "bytes");
        if let Some(value) = &options.cache_control {
            add("Cache-Control", value);
        }
        if options.gzip {
            add("Vary", "Accept-Encoding");
        }
        if is_gzip {
            add("Content-Encoding", "gzip");
        }
        let (kind, len) = (kind_of(name, options.charset.as_deref()), known.size);
        let version = FileVersion::of(known);
        let content = Content::Open(Arc::new(guard));
        let (gzip, direct) = (None, None);
        FoundFile { content, len, validators, kind, fields, gzip, direct, version }
    }

    /// Whether it was modified when the other one was, or later.
    pub(crate) fn is_as_new_as(&self, other: &FoundFile) -> bool {
        self.version.modified >= other.version.modified
    }

    /// The same file with this neighbour.
    pub(crate) fn with_gzip(self: Arc<FoundFile>, gzip: Option<Arc<FoundFile>>) -> Arc<FoundFile> {
        let is_same = match (&self.gzip, &gzip) {
            (Some(before), Some(now)) => Arc::ptr_eq(before, now),
            (before, now) => before.is_none() && now.is_none(),
        };
        if is_same { self } else { Arc::new(FoundFile { gzip, ..(*self).clone() }) }
    }

    /// Whether these are the attributes of the same version, and its `ETag` stays as it is.
    pub(crate) fn is_still(&self, known: &Metadata) -> bool {
        self.version == FileVersion::of(known) && self.validators.is_strong()
    }
}

/// The type of a file, by the end of its name.
fn kind_of(path: &Path, charset: Option<&str>) -> Cow<'static, str> {
    const UNKNOWN: &str = "application/octet-stream";
    let Some(kind) = mime_guess::from_path(path).first_raw() else { return UNKNOWN.into() };
    match charset.filter(|_| kind.starts_with("text/")) {
        Some("utf-8") => match kind {
            "text/html" => "text/html; charset=utf-8".into(),
            "text/plain" => "text/plain; charset=utf-8".into(),
            "text/css" => "text/css; charset=utf-8".into(),
            "text/javascript" => "text/javascript; charset=utf-8".into(),
            kind => format!("{kind}; charset=utf-8").into(),
        },
        Some(charset) => format!("{kind}; charset={charset}").into(),
        None => kind.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_follow_from_names() {
        for (path, charset, kind) in [
            ("a.html", Some("utf-8"), "text/html; charset=utf-8"),
            ("a.HTML", None, "text/html"),
            ("a.csv", Some("utf-8"), "text/csv; charset=utf-8"),
            ("a.txt", Some("latin1"), "text/plain; charset=latin1"),
            ("a.png", Some("utf-8"), "image/png"),
            ("a.wasm", None, "application/wasm"),
            ("a.tar.gz", None, "application/gzip"),
            ("a", Some("utf-8"), "application/octet-stream"),
            ("a.no-such-end", None, "application/octet-stream"),
        ] {
            assert_eq!(kind_of(Path::new(path), charset), kind, "{path}");
        }
    }
}
