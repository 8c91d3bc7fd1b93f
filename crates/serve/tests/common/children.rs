//! Servers in processes of their own, to which a test sends signals. The test binary runs itself
//! again, with one test selected, which then plays a role.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// The variable that has the role.
const ROLE: &str = "WINDLASS_SERVE_ROLE";

/// The longest that a test waits for one thing.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The role that this process was started for.
pub fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

/// What starts this binary again, for the test with this whole name.
pub fn command(test: &str, role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this binary has a path"));
    command.args([test, "--exact", "--nocapture", "--test-threads=1"]).env(ROLE, role);
    command.stdin(Stdio::null());
    command
}

/// Sends a signal to a process that this test has started: `TERM`, for example.
pub fn signal(pid: u32, name: &str) {
    let line = format!("kill -{name} {pid}");
    let status = Command::new("sh").args(["-c", &line]).status().expect("a shell");
    assert!(status.success(), "{line}");
}

/// The lines of a pipe, as they come.
pub struct Lines {
    lines: Receiver<String>,
    /// Those that were looked at.
    heard: Vec<String>,
}

impl Lines {
    pub fn of(pipe: impl Read + Send + 'static) -> Lines {
        let (tell, lines) = channel();
        thread::spawn(move || {
            let lines = BufReader::new(pipe).lines();
            lines.map_while(Result::ok).try_for_each(|line| tell.send(line))
        });
        Lines { lines, heard: Vec::new() }
    }

    /// Waits for a line that contains `start`, and returns what follows it.
    #[track_caller]
    pub fn find(&mut self, start: &str) -> String {
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => {
                    let rest = line.split_once(start).map(|(_, rest)| rest.trim().to_owned());
                    self.heard.push(line);
                    if let Some(rest) = rest {
                        return rest;
                    }
                }
                Err(error) => panic!("no line {start:?}: {error}; heard: {:#?}", self.heard),
            }
        }
    }

    /// Waits for the end of the pipe. Returns all lines.
    #[track_caller]
    pub fn all(mut self) -> Vec<String> {
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => self.heard.push(line),
                Err(RecvTimeoutError::Disconnected) => return self.heard,
                Err(error) => panic!("there is no end: {error}; heard: {:#?}", self.heard),
            }
        }
    }
}

/// A process, and the lines of its output. It is ended when this is dropped.
pub struct Process {
    child: Child,
    pub lines: Lines,
}

impl Process {
    pub fn start(mut command: Command) -> Process {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("a process");
        let lines = Lines::of(child.stdout.take().expect("it is piped"));
        Process { child, lines }
    }

    pub fn signal(&self, name: &str) {
        signal(self.child.id(), name);
    }

    /// Waits until the process has ended. Returns its status, and all lines.
    #[track_caller]
    pub fn end(mut self) -> (ExitStatus, Vec<String>) {
        let (none, lines) = (channel().1, std::mem::take(&mut self.lines.heard));
        let ending = Lines { lines: std::mem::replace(&mut self.lines.lines, none), heard: lines };
        let lines = ending.all();
        // Its output has ended, so it has ended, or does so now.
        (self.child.wait().expect("a child of this test"), lines)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // An error means that it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
