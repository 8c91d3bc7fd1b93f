//! Programs of others, which tests run as peers, and files for them.
#![allow(dead_code, unreachable_pub)] // each test uses its own part

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::SystemTime;

use skip::{Needs, skip};

#[path = "../../../../tests/common/skip.rs"]
pub mod skip;

/// The time that the other programs have.
pub fn now() -> SystemTime {
    SystemTime::now()
}

/// Whether there is an OpenSSL that the tests know.
pub fn has_openssl() -> bool {
    has("openssl", &["version"], "OpenSSL 3")
}

/// Whether there is a program of this name that answers these arguments with a line like this one.
/// If not, the caller skips what needs it.
pub fn has(name: &'static str, arguments: &[&str], line: &str) -> bool {
    let answer = Command::new(name).args(arguments).output();
    let is_there = answer.is_ok_and(|out| String::from_utf8_lossy(&out.stdout).starts_with(line));
    if !is_there {
        let asked = arguments.join(" ");
        skip(Needs::Program(name), format!("`{name} {asked}` does not answer {line:?}"));
    }
    is_there
}

/// A directory with files for other programs, which goes with the test.
pub struct Files(pub PathBuf);

impl Files {
    pub fn new(name: &str) -> Files {
        let name = format!("windlass-interop-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("a directory");
        Files(path)
    }

    pub fn directory(&self) -> &str {
        self.0.to_str().expect("a name")
    }

    pub fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("a name").to_owned()
    }

    pub fn write(&self, name: &str, content: &str) -> String {
        std::fs::write(self.0.join(name), content).expect("a file");
        self.path(name)
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A program that ends with the test.
pub struct Started {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Started {
    pub fn new(mut command: Command) -> Started {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let stdout = BufReader::new(child.stdout.take().expect("its output"));
        Started { child, stdout }
    }

    /// Its next line that begins like this.
    #[track_caller]
    pub fn await_line(&mut self, begin: &str) -> String {
        loop {
            let mut line = String::new();
            assert_ne!(self.stdout.read_line(&mut line).expect("a line"), 0, "no {begin:?}");
            if line.starts_with(begin) {
                return line;
            }
        }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A peer of `peers/README.md`.
pub struct Program {
    pub name: &'static str,
    program: String,
    /// The source, where the program is its interpreter.
    source: Option<String>,
    /// Where the built program is.
    _files: Option<Files>,
}

impl Program {
    fn source(name: &str) -> String {
        format!("{}/tests/peers/{name}", env!("CARGO_MANIFEST_DIR"))
    }

    pub fn python() -> Option<Program> {
        let version = ["-c", "import ssl; print(ssl.OPENSSL_VERSION)"];
        has("python3", &version, "OpenSSL ").then(|| Program {
            name: "python3",
            program: "python3".to_owned(),
            source: Some(Program::source("peer.py")),
            _files: None,
        })
    }

    pub fn node() -> Option<Program> {
        has("node", &["--version"], "v").then(|| Program {
            name: "node",
            program: "node".to_owned(),
            source: Some(Program::source("peer.mjs")),
            _files: None,
        })
    }

    /// The program in Go, which is built for this test.
    pub fn go(test: &str) -> Option<Program> {
        if !has("go", &["version"], "go version") {
            return None;
        }
        let files = Files::new(test);
        let program = files.path("peer");
        let mut build = Command::new("go");
        build.args(["build", "-o", &program, &Program::source("peer.go")]);
        let output = build.env("GO111MODULE", "off").output().expect("go");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Some(Program { name: "go", program, source: None, _files: Some(files) })
    }

    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.source);
        command
    }
}
