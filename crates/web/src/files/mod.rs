//! Files: a directory that is served, and single files as responses.
//!
//! [`App::files`](crate::App::files) serves a directory below a route, and
//! [`Response::file`](crate::Response::file) sends a file that a handler names.
//!
//! ```
//! use windlass_web::files::FilesOptions;
//! use windlass_web::{App, Response};
//!
//! let app = App::new()
//!     .files("/static", "www", FilesOptions::new().cache_control("max-age=3600"))
//!     .get("/licence", |_, _| Response::file("LICENSE-MIT").content_type("text/plain"));
//! # let _ = app;
//! ```
//!
//! # What a client gets
//!
//! | request | response |
//! |---|---|
//! | `GET`, `HEAD` | 200, with `ETag`, `Last-Modified`, and the type by the end of the name |
//! | `Range` with one range | 206, or 416; with an `If-Range` that is not met, 200 |
//! | `Range` with several ranges, or one that means nothing | 200 with the whole file |
//! | `If-None-Match`, `If-Modified-Since` | 304, if the client has the file as it is |
//! | `If-Match`, `If-Unmodified-Since` | 412, if the file is another one |
//! | a directory | its index file, or a 308 to the path with a slash behind it |
//! | no such file, no regular file, a path that leads out | 404 |
//! | a file that the process may not read | 403 |
//! | no descriptor or no memory left, too many files at once | 503 with `Retry-After` |
//! | a disk that fails | 500, or a reset if the head was sent |
//!
//! All that are not a 2xx or a 3xx are [errors](crate::Error), which
//! [`App::on_error`](crate::App::on_error) shapes.
//!
//! An `ETag` is made of the length, the time of the last change, and the number of the inode. It is
//! strong once the last change is two seconds old. Until then it is weak, because two changes
//! within one tick of the file system's clock could have the same tag: caches use a weak tag, but
//! no client joins ranges by it. Copies of a file on several machines have different tags, so that
//! a client that goes from one machine to the other gets the whole file again.
//!
//! # Paths
//!
//! The part of the path below the route is split at its slashes, and each name is decoded once.
//! Empty names, `.`, `..`, names with an encoded slash, a backslash or a NUL, names that are no
//! UTF-8, and names with a dot in front (unless [`hidden`](FilesOptions::hidden) is on) are a 404.
//! On Windows names of drives, streams and devices, and short names such as `GIT~1`, are a 404.
//! Symbolic links are followed as long as they stay in the directory: see
//! [`links_out`](FilesOptions::links_out). FIFOs, sockets and devices are a 404, and nothing waits
//! for their other end.
//!
//! # Files that change
//!
//! Replace a file by a rename: clients get the old one or the new one, whole. The server looks at a
//! name again when the time of [`cache`](FilesOptions::cache) has passed, 1 s by default.
//!
//! If a file is written in place, a client can get half of the old one and half of the new one. Its
//! response has the length of the moment when the server looked at it: bytes that are added later
//! are not sent. If it becomes shorter, the connection ends with a reset, and
//! [`Finished::cause`](crate::Finished::cause) is
//! [`FileEnded`](windlass_serve::Cause::FileEnded). A file that is removed is sent to its end.
//!
//! # How it is sent
//!
//! Files are opened off the loop, by worker threads. Each loop keeps open files for a while
//! ([`cache`](FilesOptions::cache)), and the bytes of small ones ([`small`](FilesOptions::small)).
//! The system sends a file from the page cache by sendfile(2); a connection with TLS reads and
//! encrypts it in parts. With [`direct`](FilesOptions::direct) files are read past the page cache,
//! block by block.
//!
//! A request that waits for its file counts for [`Limits::running`](crate::Limits::running). It may
//! wait for [`Limits::answer`](crate::Limits::answer), 30 s by default. While a file is sent,
//! [`write_stall`](windlass_serve::Limits::write_stall) limits a client that does not read, and its
//! next requests wait.
//!
//! In a [simulation](mod@crate::test) the files are those of the simulated host:
//!
//! ```
//! use windlass_web::App;
//! use windlass_web::files::FilesOptions;
//!
//! windlass_web::test::seeds(0..10, |sim| {
//!     sim.faults(0.1);
//!     sim.serve("files.test:80", || App::new().files("/", "www", FilesOptions::new()));
//!     sim.network().at([10, 0, 0, 2]).write_file("www/a.txt", "a text");
//!     let reply = sim.client().get("http://files.test/a.txt").retry()?;
//!     assert_eq!(reply.text(), "a text");
//!     Ok(())
//! });
//! ```

pub(crate) mod body;
pub(crate) mod cache;
pub(crate) mod conditions;
pub(crate) mod dir;
pub(crate) mod found;
pub(crate) mod options;
pub(crate) mod path;
pub(crate) mod range;
mod validators;

pub use options::FilesOptions;
