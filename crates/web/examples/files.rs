//! The files below a directory: types, ranges, conditions, index files, kept connections.
//!
//! ```text
//! cargo run --release -p windlass-web --features ring --example files -- DIR \
//!     [--files auto|aio|pool|uring] [--direct] [--threads N] [--port N] [--loops N] \
//!     [--tls [--cert FILE --key FILE]]
//! curl -r 0-99 http://127.0.0.1:8080/some/file
//! ```
//!
//! `--direct` reads past the page cache, one block ahead of the writes, by the mechanism that
//! `--files` names. Without it the system sends the files from the page cache. `--threads` are
//! those that open files, and read them where nothing else does.

use std::io;

use windlass::DriverKind;
use windlass::Watcher;
use windlass::fs::FileBackend;
use windlass_web::App;
use windlass_web::files::FilesOptions;

#[path = "common/mod.rs"]
mod common;

fn main() -> io::Result<()> {
    const USAGE: &str = "files DIR [--files auto|aio|pool|uring] [--direct] [--threads N] \
                         [--port N] [--loops N] [--tls [--cert FILE --key FILE]]";
    let mut options = common::Options::new(USAGE);
    let files: FileBackend = options.take("--files").unwrap_or_default();
    let mut builder =
        Watcher::builder().file_backend(files).threads(options.take("--threads").unwrap_or(4));
    if files == FileBackend::Uring {
        builder = builder.driver(DriverKind::Uring);
    }
    let is_direct = options.flag("--direct");
    let setup = common::Setup::take(&mut options, 8080);
    let root = options.word();
    options.end();
    let app = App::new().files("/", root, FilesOptions::new().direct(is_direct));
    setup.run(app.watcher(builder))
}
