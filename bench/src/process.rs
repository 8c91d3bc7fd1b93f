//! Child processes: bound to a processor, measured from outside, ended by their owner. They also
//! end when their owner is killed.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::{CommandExt, parent_id};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use std::{fs, thread};

use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{Signal, kill};
use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;

use crate::arguments::{Arguments, invalid};

/// `pin CPU PARENT PROGRAM ARGUMENT…`: binds itself to a processor and becomes the program. The
/// kernel kills the program when its parent ends.
pub fn pin_and_exec(arguments: &mut Arguments) -> io::Result<()> {
    let cpu: usize = arguments.require("processor")?;
    let parent: u32 = arguments.require("process")?;
    set_pdeathsig(Signal::SIGKILL)?;
    // It may have ended before.
    if parent_id() != parent {
        return Err(invalid(format!("process {parent} is not the parent")));
    }
    let words = arguments.rest();
    let mut set = CpuSet::new();
    set.set(cpu)?;
    sched_setaffinity(Pid::from_raw(0), &set)?;
    Err(Command::new(&words[0]).args(&words[1..]).exec())
}

/// A command that runs on processor `cpu`.
fn pinned(cpu: usize, program: &Path, arguments: &[String]) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    let parent = std::process::id().to_string();
    command.arg("pin").arg(cpu.to_string()).arg(parent).arg(program).args(arguments);
    Ok(command)
}

/// This program with these words, on processor `cpu`.
fn ourselves(cpu: usize, words: &[String]) -> io::Result<Command> {
    pinned(cpu, &std::env::current_exe()?, words)
}

/// A server that was started here; dropping it ends it.
pub struct Server {
    child: Child,
    pub port: u16,
}

impl Server {
    /// Starts `command` on processor 0; `{port}` in its words becomes a free port. Returns when the
    /// server accepts.
    pub fn start(command: &[String]) -> io::Result<Server> {
        Server::start_on(0, command)
    }

    /// As [`start`](Server::start), on processor 1: for servers that are not measured.
    pub fn start_beside_clients(command: &[String]) -> io::Result<Server> {
        Server::start_on(1, command)
    }

    /// As [`start`](Server::start), on processor `cpu`.
    pub fn start_on(cpu: usize, command: &[String]) -> io::Result<Server> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let words: Vec<String> =
            command.iter().map(|word| word.replace("{port}", &port.to_string())).collect();
        let child = pinned(cpu, Path::new(&words[0]), &words[1..])?
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let mut server = Server { child, port };
        let by = Instant::now() + Duration::from_secs(20);
        // No event says that another program listens. So connect until it does.
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if let Some(status) = server.child.try_wait()? {
                return Err(io::Error::other(format!("{command:?} ended at once: {status}")));
            }
            if Instant::now() > by {
                return Err(io::Error::other(format!("{command:?} does not listen")));
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(server)
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Processor time of all its threads so far.
    pub fn cpu_time(&self) -> io::Result<Duration> {
        cpu_time_of(self.id())
    }

    /// Bytes of anonymous memory that are resident.
    pub fn resident_bytes(&self) -> io::Result<u64> {
        self.memory("RssAnon:")
    }

    /// The most memory that it has had resident, in bytes, with the pages of files.
    pub fn peak_bytes(&self) -> io::Result<u64> {
        self.memory("VmHWM:")
    }

    /// The figure of a line of its status in `/proc`, in bytes.
    fn memory(&self, field: &str) -> io::Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        Ok(kib.ok_or_else(|| io::Error::other(format!("no {field} in /proc")))? << 10)
    }

    /// Asks it to end, and returns the last line that it printed.
    pub fn end(mut self) -> io::Result<Option<String>> {
        kill(Pid::from_raw(self.child.id() as i32), Signal::SIGTERM)?;
        let output = self.child.stdout.take().expect("it is piped");
        let last = BufReader::new(output).lines().map_while(Result::ok).last();
        self.child.wait()?;
        Ok(last)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Processor time of all threads of a process so far, with those that have ended.
pub fn cpu_time_of(process: u32) -> io::Result<Duration> {
    let clock = clock_getcpuclockid(Pid::from_raw(process as i32))?;
    Ok(clock_gettime(clock)?.into())
}

/// Runs clients on processor 1 and returns their output.
pub fn clients(words: &[String]) -> io::Result<String> {
    client_program(&std::env::current_exe()?, words)
}

/// Runs another program on processor 1 and returns its output.
pub fn client_program(program: &Path, words: &[String]) -> io::Result<String> {
    let mut command = pinned(1, program, words)?;
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        let name = program.display();
        return Err(io::Error::other(format!("{name} {words:?} ended with {}", output.status)));
    }
    String::from_utf8(output.stdout).map_err(io::Error::other)
}

/// Clients that hold their connections until this is dropped.
pub struct Holding(Child);

/// Starts clients on processor 1, and returns when they report that all their connections are open.
pub fn hold(words: &[String]) -> io::Result<Holding> {
    let mut child = ourselves(1, words)?.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("it is piped")).read_line(&mut line)?;
    let holding = Holding(child);
    if line.trim() == "holding" {
        Ok(holding)
    } else {
        Err(io::Error::other(format!("{words:?} does not hold its connections")))
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Another process, which answers each line that it is told with a line. Dropping it ends it.
pub struct Talking {
    child: Child,
    input: Option<ChildStdin>,
    lines: mpsc::Receiver<io::Result<String>>,
}

impl Talking {
    /// Starts this program with these words.
    pub fn start(cpu: usize, words: &[String]) -> io::Result<Talking> {
        Talking::spawn(ourselves(cpu, words)?)
    }

    /// Starts another program: the first of these words.
    pub fn start_program(cpu: usize, words: &[String]) -> io::Result<Talking> {
        Talking::spawn(pinned(cpu, Path::new(&words[0]), &words[1..])?)
    }

    fn spawn(mut command: Command) -> io::Result<Talking> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        let (tell, lines) = mpsc::channel();
        // A thread reads, because a pipe has no timeout.
        thread::spawn(move || output.lines().try_for_each(|line| tell.send(line)));
        Ok(Talking { child, input, lines })
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn tell(&mut self, line: &str) -> io::Result<()> {
        writeln!(self.input.as_mut().expect("it has not been ended"), "{line}")
    }

    /// Processor time of all its threads so far.
    pub fn cpu_time(&self) -> io::Result<Duration> {
        cpu_time_of(self.id())
    }

    /// Lets it end, as nothing more is told, and returns when it has.
    pub fn end(mut self) -> io::Result<()> {
        self.input = None;
        let status = self.child.wait()?;
        if status.success() { Ok(()) } else { Err(io::Error::other(status.to_string())) }
    }

    /// The next line, which comes within this time.
    pub fn hear(&self, within: Duration) -> io::Result<String> {
        let id = self.id();
        self.lines.recv_timeout(within).map_err(|error| {
            io::Error::other(format!("process {id} has not answered in {within:?}: {error}"))
        })?
    }
}

impl Drop for Talking {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// strace(1), which counts the system calls of a process.
pub struct Strace {
    child: Child,
    counts: PathBuf,
}

impl Strace {
    /// Returns when it counts.
    pub fn attach(process: u32) -> io::Result<Strace> {
        let counts = std::env::temp_dir().join(format!("strace.{process}"));
        let mut child = Command::new("strace")
            .args(["-f", "-c", "-U", "name,calls", "-o"])
            .arg(&counts)
            .args(["-p", &process.to_string()])
            .stderr(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        let mut says = BufReader::new(child.stderr.take().expect("it is piped"));
        says.read_line(&mut line)?;
        // It says more when there are more threads, and must not find the pipe closed.
        thread::spawn(move || io::copy(&mut says, &mut io::sink()));
        if line.contains("attached") {
            Ok(Strace { child, counts })
        } else {
            Err(io::Error::other(line))
        }
    }

    /// The calls by name, the most frequent first.
    pub fn end(mut self) -> io::Result<Vec<(String, u64)>> {
        kill(Pid::from_raw(self.child.id() as i32), Signal::SIGINT)?;
        self.child.wait()?;
        let text = fs::read_to_string(&self.counts)?;
        fs::remove_file(&self.counts)?;
        let row = |line: &str| {
            let (name, count) = line.split_once(char::is_whitespace)?;
            Some((name.to_owned(), count.trim().parse().ok()?)).filter(|_| name != "total")
        };
        let mut calls: Vec<(String, u64)> = text.lines().filter_map(row).collect();
        calls.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        Ok(calls)
    }
}

/// Runs a program on processor 0 to its end and returns its output.
pub fn output(program: &Path, arguments: &[String]) -> io::Result<String> {
    let output = pinned(0, program, arguments)?.stdin(Stdio::null()).output()?;
    if !output.status.success() {
        return Err(io::Error::other(format!(
            "{} ended with {}",
            program.display(),
            output.status
        )));
    }
    String::from_utf8(output.stdout).map_err(io::Error::other)
}
