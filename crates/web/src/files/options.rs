//! How files are served.

use std::borrow::Cow;
use std::time::Duration;

/// How the files of a directory are served: see [`App::files`](crate::App::files).
///
/// ```
/// use std::time::Duration;
/// use windlass_web::App;
/// use windlass_web::files::FilesOptions;
///
/// let options = FilesOptions::new()
///     .cache_control("public, max-age=3600")
///     .cache(4096, Duration::from_secs(5));
/// let app = App::new().files("/static", "www", options);
/// # let _ = app;
/// ```
#[derive(Clone, Debug)]
pub struct FilesOptions {
    pub(crate) index: Vec<Cow<'static, str>>,
    pub(crate) hidden: bool,
    pub(crate) follows_out: bool,
    pub(crate) cache_control: Option<Cow<'static, str>>,
    pub(crate) charset: Option<Cow<'static, str>>,
    pub(crate) count: usize,
    pub(crate) fresh: Duration,
    pub(crate) small: usize,
    pub(crate) memory: usize,
    pub(crate) direct: bool,
    pub(crate) gzip: bool,
}

impl FilesOptions {
    /// The defaults: each setter says its own.
    pub fn new() -> FilesOptions {
        FilesOptions {
            index: vec![Cow::Borrowed("index.html")],
            hidden: false,
            follows_out: false,
            cache_control: None,
            charset: Some(Cow::Borrowed("utf-8")),
            count: 1024,
            fresh: Duration::from_secs(1),
            small: 16 << 10,
            memory: 16 << 20,
            direct: false,
            gzip: false,
        }
    }

    /// Sets the names of the file that answers for a directory: the first one that is there.
    /// Without one, a directory is a 404. Default `index.html`.
    pub fn index<T: Into<Cow<'static, str>>>(
        mut self,
        names: impl IntoIterator<Item = T>,
    ) -> FilesOptions {
        self.index = names.into_iter().map(Into::into).collect();
        self
    }

    /// Sets whether names with a dot in front are served, such as `.well-known`. Default off.
    pub fn hidden(mut self, on: bool) -> FilesOptions {
        self.hidden = on;
        self
    }

    /// Sets whether symbolic links may lead out of the directory. Default off: such a path is a
    /// 404. Links that stay in the directory are always followed.
    ///
    /// Linux 5.6 and newer refuses such links while it opens the file, and all links with an
    /// absolute target. Elsewhere the path is resolved first: see
    /// [`Op::open_beneath`](windlass::Op::open_beneath).
    pub fn links_out(mut self, on: bool) -> FilesOptions {
        self.follows_out = on;
        self
    }

    /// Sets the `Cache-Control` of the files, and of the 304 that stand for them. Default none.
    pub fn cache_control(mut self, value: impl Into<Cow<'static, str>>) -> FilesOptions {
        self.cache_control = Some(value.into());
        self
    }

    /// Sets the `charset` that the type of text files gets; an empty one is left out. Default
    /// `utf-8`.
    pub fn charset(mut self, name: impl Into<Cow<'static, str>>) -> FilesOptions {
        self.charset = Some(name.into()).filter(|name| !name.is_empty());
        self
    }

    /// Sets how many open files each loop keeps, and for how long it trusts that a name still means
    /// the same file. Default 1024 and 1 s.
    ///
    /// So for at most `fresh`, clients get the old file after it was replaced. Files that nobody
    /// asks for are closed after that time. A file that is kept has a descriptor, unless its bytes
    /// are kept: see [`small`](FilesOptions::small). If the process has no descriptor left, the
    /// loop closes all that it keeps. With a count or a time of 0 each request opens its file.
    pub fn cache(mut self, count: usize, fresh: Duration) -> FilesOptions {
        (self.count, self.fresh) = (count, fresh);
        self
    }

    /// Sets up to which size a file's bytes are kept in memory, and how many bytes each loop keeps
    /// in all. Default 16 KiB and 16 MiB. A size of 0 keeps none.
    ///
    /// The head and the body of a file that is kept leave in one write. These bytes do not count
    /// for [`Limits::memory`](windlass_serve::Limits::memory).
    pub fn small(mut self, size: usize, total: usize) -> FilesOptions {
        (self.small, self.memory) = (size, total);
        self
    }

    /// Sets whether the files are read past the page cache (`O_DIRECT`), by reads of up to 128 KiB,
    /// one block ahead of the writes: for files that are together much larger than the memory.
    /// Default off. Then the bytes of files are not kept.
    ///
    /// Where the file system has no direct reads, the files are sent from the page cache.
    pub fn direct(mut self, on: bool) -> FilesOptions {
        self.direct = on;
        self
    }

    /// Sets whether a client that takes `gzip` gets `a.js.gz` in place of `a.js`, with the type of
    /// `a.js`. The compressed file must be there, and must not be older. Default off.
    ///
    /// It has an `ETag` and ranges of its own. All responses get `Vary: Accept-Encoding`. The
    /// server does not compress files itself: `Compress` is for bodies in memory and for streams.
    pub fn precompressed(mut self, on: bool) -> FilesOptions {
        self.gzip = on;
        self
    }

    /// Whether open files are kept.
    pub(crate) fn keeps(&self) -> bool {
        self.count > 0 && !self.fresh.is_zero()
    }
}

impl Default for FilesOptions {
    fn default() -> FilesOptions {
        FilesOptions::new()
    }
}
