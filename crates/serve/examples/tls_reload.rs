//! An echo server behind TLS whose certificate changes while it serves.
//!
//! ```text
//! cargo run --release -p windlass-serve --features ring --example tls_reload -- \
//!     --cert FILE --key FILE [--every MILLISECONDS] [--port N] [--loops N]
//! ```
//!
//! A tick of the first loop looks at both files, each second by default. When their bytes have
//! changed, connections from then on get the new certificate. Open ones keep theirs. Files that
//! are no certificate and key, or are not written to their end, change nothing: the server prints
//! what is wrong, and looks again. So the files may be written in any order and in place.

use std::path::PathBuf;
use std::time::Duration;
use std::{fs, io};

use windlass::Buf;
use windlass_serve::tls::{Error, Tls};
use windlass_serve::{Action, Conn, Context, Handler, Server};

#[path = "common/mod.rs"]
mod common;

/// The files of a certificate and its key.
pub(crate) struct Files {
    tls: Tls,
    paths: [PathBuf; 2],
    /// What they had when they were taken: not their times, which two changes can share.
    taken: Option<Bytes>,
    /// What was printed last.
    pub(crate) told: String,
}

impl Files {
    /// Takes what the files have now.
    pub(crate) fn open(certificate: &str, key: &str) -> Result<Files, Error> {
        let paths = [certificate.into(), key.into()];
        let taken = Some(read(&paths));
        Ok(Files { tls: Tls::pem(certificate, key)?, paths, taken, told: String::new() })
    }

    pub(crate) fn tls(&self) -> Tls {
        self.tls.clone()
    }

    /// Takes what the files have, if that is new. A few kilobytes of the page cache: the loop waits
    /// for microseconds. On a network file system a job would read them.
    fn look(&mut self) {
        // Before they are taken: what changes behind this read is new in the next look.
        let now = read(&self.paths);
        if self.taken.as_ref() == Some(&now) {
            return;
        }
        match self.tls.reload() {
            Ok(()) => {
                self.taken = Some(now);
                self.tell("new connections get the new certificate".to_owned());
            }
            Err(error) => {
                self.taken = None; // the next look tries again
                self.tell(format!("the old certificate stays: {error}"));
            }
        }
    }

    /// Prints what has not been printed last.
    fn tell(&mut self, what: String) {
        if self.told != what {
            eprintln!("{what}");
            self.told = what;
        }
    }
}

/// What both files have, as far as they can be read.
type Bytes = [Option<Vec<u8>>; 2];

fn read(paths: &[PathBuf; 2]) -> Bytes {
    paths.each_ref().map(|path| fs::read(path).ok())
}

/// An echo. The handler of one loop has the files.
pub(crate) struct Echo {
    pub(crate) files: Option<Files>,
    pub(crate) every: Duration,
}

impl Handler for Echo {
    type State = ();

    fn data(&mut self, c: &mut Conn<'_, ()>, data: Buf) -> Action {
        c.write(data);
        Action::None
    }

    fn tick(&mut self, _: &mut Context<'_, ()>) -> (Option<Duration>, Action) {
        let every = self.files.as_mut().map(|files| {
            files.look();
            self.every
        });
        (every, Action::None)
    }
}

#[allow(dead_code)] // a test uses the handler
fn main() -> io::Result<()> {
    let usage = "tls_reload --cert FILE --key FILE [--every MILLISECONDS] [--port N] [--loops N]";
    let mut options = common::Options::new(usage);
    let (certificate, key) = (options.take::<String>("--cert"), options.take::<String>("--key"));
    let every = Duration::from_millis(options.take("--every").unwrap_or(1000));
    let setup = common::Setup::new(options, 7443, 1);
    let (Some(certificate), Some(key)) = (certificate, key) else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, usage));
    };
    let files = Files::open(&certificate, &key).map_err(io::Error::other)?;
    let tls = files.tls();
    let files = std::sync::Mutex::new(Some(files));
    let server = Server::new(move |_loop| {
        // The first loop that begins gets them.
        let files = files.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        Echo { files, every }
    });
    let report = setup.start(server.listen(&setup.address())?.tls(tls))?;
    println!("{} connections", report.counters.accepted);
    Ok(())
}
