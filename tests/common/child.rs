//! Tests in a process of their own: the test binary runs itself again with one test selected.
//!
//! For what belongs to a whole process: limits, signals, fork, a count of descriptors.

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const VARIABLE: &str = "WINDLASS_TEST_CHILD";
const MARK: &str = "the child has run to its end";

/// Runs `body` in a process of its own. `name` is the whole name of the calling test.
#[track_caller]
pub fn in_child(name: &str, body: impl FnOnce()) {
    if is_child(name) {
        body();
        println!("{MARK}");
        return;
    }
    let child = spawn(name, name);
    let (status, out) = finish(child);
    assert!(status && out.contains(MARK), "the child failed:\n{out}");
    // Passes the child's skips on.
    for line in out.lines().filter(|line| line.starts_with("SKIP: ")) {
        let _ = writeln!(std::io::stderr(), "{line}");
    }
}

/// Whether this process was started to play `role`.
pub fn is_child(role: &str) -> bool {
    std::env::var(VARIABLE).is_ok_and(|value| value == role)
}

/// Starts this binary again to run the test `name` in `role`.
pub fn spawn(name: &str, role: &str) -> Child {
    command(name, role).spawn().expect("this binary can run again")
}

/// What `spawn` runs.
pub fn command(name: &str, role: &str) -> Command {
    let binary = std::env::current_exe().expect("this binary has a path");
    let mut command = Command::new(binary);
    command
        .args([name, "--exact", "--nocapture", "--test-threads=1"])
        .env(VARIABLE, role)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Waits for a child within a bound: whether it succeeded, and what it printed.
pub fn finish(mut child: Child) -> (bool, String) {
    let mut pipes: Vec<Box<dyn Read + Send>> = Vec::new();
    if let Some(out) = child.stdout.take() {
        pipes.push(Box::new(out));
    }
    if let Some(err) = child.stderr.take() {
        pipes.push(Box::new(err));
    }
    let readers: Vec<_> = pipes
        .into_iter()
        .map(|mut pipe| {
            std::thread::spawn(move || {
                let mut text = Vec::new();
                let _ = pipe.read_to_end(&mut text);
                String::from_utf8_lossy(&text).into_owned()
            })
        })
        .collect();
    let end = Instant::now() + Duration::from_secs(240);
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child of ours") {
            break Some(status);
        }
        if Instant::now() > end {
            let _ = child.kill();
            let _ = child.wait();
            break None;
        }
        // std has no wait for a child with a bound, so this looks again until the end.
        std::thread::sleep(Duration::from_millis(5));
    };
    let mut out = String::new();
    for reader in readers {
        out.push_str(&reader.join().unwrap_or_default());
    }
    match status {
        Some(status) => {
            out.push_str(&format!("{status}\n"));
            (status.success(), out)
        }
        None => {
            out.push_str("killed: it did not end in time\n");
            (false, out)
        }
    }
}
