//! What the suites of files, clients and proxies share: a load of GETs, and counts of instructions
//! and system calls.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::process::{Server, Strace, Talking};
use crate::rounds::Column;
use crate::table::{Table, directory, ratio};

/// How long the other side may take besides the time that is measured.
const PATIENCE: Duration = Duration::from_secs(120);

/// What clients ask for: see `get_load`.
pub struct Load {
    pub path: &'static str,
    pub files: usize,
    pub len: usize,
    pub blocks_of: u64,
    pub connections: usize,
}

/// Clients that can be started. They measure when they read a line: for so many seconds or, if they
/// are 0, so many requests.
pub trait Clients {
    /// Starts the clients; each of their connections has been answered once.
    fn start(&self, port: u16, seconds: f64, requests: u64) -> io::Result<Talking>;
}

impl Clients for Load {
    fn start(&self, port: u16, seconds: f64, requests: u64) -> io::Result<Talking> {
        let mut words = vec!["get-load".to_owned()];
        for (name, value) in [
            ("--port", port.to_string()),
            ("--path", self.path.into()),
            ("--files", self.files.to_string()),
            ("--len", self.len.to_string()),
            ("--blocks", self.blocks_of.to_string()),
            ("--connections", self.connections.to_string()),
            ("--seconds", seconds.to_string()),
            ("--requests", requests.to_string()),
        ] {
            words.extend([name.to_owned(), value]);
        }
        let clients = Talking::start(1, &words)?;
        served(&clients)?;
        Ok(clients)
    }
}

pub fn served(talking: &Talking) -> io::Result<()> {
    let line = talking.hear(PATIENCE)?;
    if line == "served" { Ok(()) } else { Err(io::Error::other(line)) }
}

/// What a load has measured.
pub struct Measured {
    pub per_second: f64,
    pub cpu_us: f64,
    pub p50_us: f64,
    pub p99_us: f64,
}

/// Lets clients work on a new server.
pub fn load(command: &[String], load: &dyn Clients, seconds: f64) -> io::Result<Measured> {
    let server = Server::start(command)?;
    let mut clients = load.start(server.port, seconds, 0)?;
    let before = server.cpu_time()?;
    clients.tell("go")?;
    let line = clients.hear(Duration::from_secs_f64(2.0 * seconds) + PATIENCE)?;
    let used = (server.cpu_time()? - before).as_secs_f64();
    let numbers = line.split_whitespace().map(str::parse::<f64>).collect::<Result<Vec<_>, _>>();
    match numbers.as_deref() {
        Ok(&[all, counted, span, p50_us, p99_us, _]) => {
            Ok(Measured { per_second: counted / span, cpu_us: used * 1e6 / all, p50_us, p99_us })
        }
        _ => Err(io::Error::other(line)),
    }
}

/// Requests per second, microseconds of the server's processor for each, and how many for each
/// second of it.
pub fn measure(command: &[String], of: &Load, seconds: f64) -> io::Result<[f64; 3]> {
    let measured = load(command, of, seconds)?;
    Ok([measured.per_second, measured.cpu_us, 1e6 / measured.cpu_us])
}

/// Requests per second of a client, microseconds of its processor for each, and how many for each
/// second of it.
pub fn measure_client(command: &[String], requests: u64) -> io::Result<[f64; 3]> {
    let mut client = Talking::start_program(0, command)?;
    served(&client)?;
    // It warms up.
    client.tell(&(requests / 10).to_string())?;
    client.hear(PATIENCE)?;
    let before = client.cpu_time()?;
    client.tell(&requests.to_string())?;
    let line = client.hear(PATIENCE)?;
    let used = (client.cpu_time()? - before).as_secs_f64();
    let seconds: f64 = line.parse().map_err(|_| io::Error::other(line))?;
    let requests = requests as f64;
    Ok([requests / seconds, used * 1e6 / requests, requests / used])
}

/// A cell with the ratio of a program to another, which may be missing.
pub fn ratio_to(columns: &[Column], at: usize, name: &str) -> String {
    let base = columns.iter().find(|column| column.server == name);
    base.map_or_else(String::new, |base| ratio(columns[at].ratio(base)))
}

/// A table for [`server_counts`] and [`client_counts`].
pub fn counts_table(command: &str) -> Table {
    let columns = ["case", "program", "user-space instructions", "system calls", "which"];
    Table::new("Counts per request", command, &columns)
}

/// A row of counts per request of a server. The instructions are the difference of two runs.
pub fn server_counts(
    case: &str,
    name: &str,
    command: &[String],
    load: &dyn Clients,
    requests: [u64; 2],
) -> io::Result<[String; 5]> {
    let run = |count: u64| {
        let server = Server::start(&valgrind(command)?)?;
        let mut clients = load.start(server.port, 0.0, count)?;
        clients.tell("go")?;
        clients.hear(PATIENCE)?;
        let id = server.id();
        server.end()?;
        Ok(id)
    };
    let instructions = instructions(case, name, requests, run)?;
    let server = Server::start(command)?;
    let mut clients = load.start(server.port, 0.0, requests[1])?;
    let strace = Strace::attach(server.id())?;
    clients.tell("go")?;
    clients.hear(PATIENCE)?;
    let [calls, which] = shown(&strace.end()?, requests[1]);
    Ok([case.into(), name.into(), instructions, calls, which])
}

/// A row of counts per request of a client. The instructions are the difference of two runs.
pub fn client_counts(
    case: &str,
    name: &str,
    command: &[String],
    requests: [u64; 2],
) -> io::Result<[String; 5]> {
    let run = |count: u64| {
        let mut client = Talking::start_program(0, &valgrind(command)?)?;
        served(&client)?;
        client.tell(&count.to_string())?;
        client.hear(PATIENCE)?;
        let id = client.id();
        client.end()?;
        Ok(id)
    };
    let instructions = instructions(case, name, requests, run)?;
    let mut client = Talking::start_program(0, command)?;
    served(&client)?;
    let strace = Strace::attach(client.id())?;
    client.tell(&requests[1].to_string())?;
    client.hear(PATIENCE)?;
    let [calls, which] = shown(&strace.end()?, requests[1]);
    Ok([case.into(), name.into(), instructions, calls, which])
}

/// Where callgrind writes while it runs, by number of the process.
fn profiles() -> io::Result<PathBuf> {
    let path = directory()?.join("callgrind/now");
    fs::create_dir_all(&path)?;
    Ok(path)
}

fn valgrind(command: &[String]) -> io::Result<Vec<String>> {
    let profiles = profiles()?;
    let at = |end: &str| profiles.join(format!("%p.{end}")).to_string_lossy().into_owned();
    let mut words = vec!["valgrind".to_owned(), "--tool=callgrind".into()];
    // A command may begin with a shell that becomes the server.
    words.push("--trace-children=yes".into());
    words.push(format!("--callgrind-out-file={}", at("out")));
    words.push(format!("--log-file={}", at("log")));
    words.extend_from_slice(command);
    Ok(words)
}

/// Instructions per request, from two runs that return the number of their process. The profile of
/// the second one stays in `results/callgrind`.
fn instructions(
    case: &str,
    name: &str,
    requests: [u64; 2],
    mut run: impl FnMut(u64) -> io::Result<u32>,
) -> io::Result<String> {
    // valgrind 3.19 does not run rings, and no runtime of Go with this speed.
    if ["uring", "Go", "nbio"].iter().any(|part| name.contains(part)) {
        return Ok("–".into());
    }
    let mut counts = [0; 2];
    for (count, requests) in counts.iter_mut().zip(requests) {
        let id = run(requests)?;
        let text = fs::read_to_string(profiles()?.join(format!("{id}.log")))?;
        let collected = text.lines().find_map(|line| line.split_once("Collected :"));
        let parsed = collected.and_then(|(_, number)| number.trim().parse::<u64>().ok());
        *count = parsed.ok_or_else(|| io::Error::other(format!("valgrind says {text}")))?;
        let kept = format!("callgrind/{}.out", format!("{name}, {case}").replace('/', "-"));
        fs::rename(profiles()?.join(format!("{id}.out")), directory()?.join(kept))?;
        fs::remove_dir_all(profiles()?)?;
    }
    Ok(format!("{:.0}", (counts[1] - counts[0]) as f64 / (requests[1] - requests[0]) as f64))
}

/// System calls per request, and those that are at least a hundredth of one.
fn shown(calls: &[(String, u64)], requests: u64) -> [String; 2] {
    let per = |count: u64| count as f64 / requests as f64;
    let all = calls.iter().map(|(_, count)| count).sum();
    let which: Vec<String> = calls
        .iter()
        .filter(|(_, count)| per(*count) >= 0.01)
        .map(|(name, count)| format!("{name} {:.2}", per(*count)))
        .collect();
    [format!("{:.2}", per(all)), which.join(", ")]
}
