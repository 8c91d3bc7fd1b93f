//! HTTP, WebSockets, files and a timer, in one loop: a file that grows, and pages that follow it.
//!
//! ```text
//! cargo run --release -p windlass-web --example ws_mixed -- [--port N] [--loops N] [--dir PATH]
//! curl http://127.0.0.1:8080/lines --data "a line"      # appends it
//! curl http://127.0.0.1:8080/files/lines.txt            # all lines
//! ```
//!
//! A client of the WebSocket at `/follow` gets each line that any client appends, and the lines
//! that it sends are appended. Once a second, a timer sends all clients how many lines there are.
//!
//! A line is written on the loop, because the page cache takes it in microseconds. The example
//! `ws_own_loop` writes beside the loop.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use windlass_web::files::FilesOptions;
use windlass_web::websocket::{CloseCode, Message, Peer, Socket, WebSocketSettings};
use windlass_web::{App, Error, Remote, Status};

#[path = "common/mod.rs"]
mod common;

/// The file and how many lines it has. All loops have it.
pub(crate) struct Log {
    file: Arc<Mutex<(File, u64)>>,
    publishes: bool,
}

impl Log {
    fn count(&self) -> u64 {
        self.file.lock().unwrap_or_else(PoisonError::into_inner).1
    }

    /// Appends a line, and tells all that follow.
    fn append(&self, line: &str, remote: &Remote) -> io::Result<()> {
        let line = line.lines().next().unwrap_or_default();
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        // In one call, so that no other program's line comes between.
        file.0.write_all(format!("{line}\n").as_bytes())?;
        file.1 += 1;
        remote.publish("lines", line);
        Ok(())
    }
}

struct Follower(Remote);

impl Peer<Log> for Follower {
    fn open(&mut self, log: &mut Log, c: &mut Socket<'_>) {
        c.subscribe("lines");
        c.send(format!("{} lines", log.count()));
    }

    fn message(&mut self, log: &mut Log, c: &mut Socket<'_>, message: Message) {
        let Some(line) = message.as_text() else {
            return c.close(CloseCode::UNSUPPORTED, "lines are text");
        };
        if log.append(line, &self.0).is_err() {
            c.close(CloseCode::INTERNAL, "the file takes no line");
        }
    }
}

pub(crate) fn app(directory: &Path) -> io::Result<App<Log>> {
    let path: PathBuf = directory.join("lines.txt");
    let file = OpenOptions::new().create(true).append(true).open(&path)?;
    let count = std::fs::read(&path)?.iter().filter(|byte| **byte == b'\n').count() as u64;
    let file = Arc::new(Mutex::new((file, count)));
    let settings = WebSocketSettings::new().any_origin();
    Ok(App::with(move |index| Log { file: Arc::clone(&file), publishes: index == 0 })
        .files("/files", directory, FilesOptions::new())
        .post("/lines", |log, q| {
            log.append(q.text()?, q.remote())?;
            Ok::<_, Error>(format!("{} lines\n", log.count()))
        })
        .websocket_with(settings, "/follow", |_, q| Ok::<_, Status>(Follower(q.remote().clone())))
        .every(Duration::from_secs(1), |log, remote| {
            if log.publishes {
                remote.publish("lines", format!("{} lines", log.count()));
            }
        }))
}

#[allow(dead_code)] // a test uses the application
fn main() -> io::Result<()> {
    const USAGE: &str = "ws_mixed [--port N] [--loops N] [--dir PATH] \
        [--tls [--cert FILE --key FILE]]";
    let mut options = common::Options::new(USAGE);
    let directory: PathBuf = options.take("--dir").unwrap_or_else(|| ".".into());
    common::Setup::new(options, 8080).run(app(&directory)?)
}
