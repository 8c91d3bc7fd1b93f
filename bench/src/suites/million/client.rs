//! A process of clients, on windlass: it opens connections, sends messages, and compares every byte
//! that comes back. It is told what to do on its standard input, a line at a time, and answers each
//! line with one. It ends when its input ends.
//!
//! | line | answer |
//! |---|---|
//! | `connect CONCURRENCY SECONDS` | `connected COUNT FAILED SECONDS TIMES` |
//! | `each CONCURRENCY SECONDS` | `echoed COUNT FAILED SECONDS TIMES`: one echo on each |
//! | `echo CONCURRENCY WARM-UP SECONDS AT` | the same: random connections, from the time `AT` |
//! | `rate PER-SECOND SAMPLE SECONDS AT` | `rated SENT HEARD SKIPPED FAILED TIMES` |
//! | `count` | `open COUNT WHY` |
//!
//! `TIMES` is a histogram, `AT` is in milliseconds since 1970, and `WHY` is the first failure.

use std::collections::HashMap;
use std::io::{self, BufRead, Write};
use std::mem;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::libc::linger;
use nix::sys::socket::sockopt::{Linger, ReuseAddr, TcpNoDelay};
use nix::sys::socket::{self, AddressFamily, SockFlag, SockType, SockaddrIn};
use windlass::driver::OpCode;
use windlass::{Completion, Completions, Done, Op, Source, Watcher};

use super::size::Ports;
use super::stream::{self, Stream, Wire};
use crate::arguments::{Arguments, invalid};
use crate::histogram::Histogram;
use crate::websocket_load;

/// How many messages of one connection may be unanswered.
const DEPTH: u64 = 4;
/// How long echoes may take that were asked for before the end of a measurement.
const GRACE: Duration = Duration::from_secs(15);

/// `million-client --port N --source N --connections N --payload N --websocket true|false`
///
/// `source` is the number of its first address in [`Ports`].
pub fn run(arguments: &mut Arguments) -> io::Result<()> {
    let port: u16 = arguments.option("--port", 0)?;
    let source: usize = arguments.option("--source", 0)?;
    let connections: usize = arguments.option("--connections", 1)?;
    let payload: usize = arguments.option("--payload", 1024)?;
    let is_websocket: bool = arguments.option("--websocket", false)?;
    arguments.end()?;
    if connections == 0 || payload == 0 || payload > stream::LONGEST {
        return Err(invalid("at least one connection, and messages of 1 B to 1 MiB".into()));
    }
    windlass::fd::raise_max_open_files()?;
    let mut clients = Clients {
        watcher: Watcher::new()?,
        done: Completions::new(),
        to: (Ipv4Addr::LOCALHOST, port).into(),
        ports: Ports::read()?,
        first_address: source,
        wire: if is_websocket { Wire::websocket(payload) } else { Wire::plain(payload) },
        heads: is_websocket.then(HashMap::new),
        connections: (0..connections).map(Connection::new).collect(),
        zero: Instant::now(),
        random: 0x9E37_79B9_7F4A_7C15 ^ (source as u64 + 1) << 20,
        connected: Vec::new(),
        failed: 0,
        answered: Vec::new(),
        ended: Vec::new(),
        why: None,
    };
    println!("ready");
    for line in io::stdin().lock().lines() {
        let answer = clients.obey(&line?)?;
        println!("{answer}");
        io::stdout().flush()?;
    }
    Ok(())
}

struct Connection {
    source: Source,
    stream: Stream,
    /// When its last messages were sent, by their numbers; for a connect, when it began.
    asked_ns: [u64; DEPTH as usize],
}

impl Connection {
    fn new(index: usize) -> Connection {
        let asked_ns = [0; DEPTH as usize];
        Connection { source: Source::NONE, stream: Stream::new(index), asked_ns }
    }

    fn is_open(&self) -> bool {
        self.source != Source::NONE
    }
}

struct Clients {
    watcher: Watcher,
    done: Completions,
    to: SocketAddr,
    ports: Ports,
    first_address: usize,
    wire: Wire,
    /// For WebSockets: what has come of the responses to handshakes.
    heads: Option<HashMap<u32, Vec<u8>>>,
    connections: Vec<Connection>,
    /// Times are nanoseconds since this one.
    zero: Instant,
    random: u64,
    /// What the last turn has found: connects that succeeded, with their times; those that failed;
    /// messages that were answered, with their times; and connections that ended.
    connected: Vec<u64>,
    failed: u64,
    answered: Vec<(u32, u64)>,
    ended: Vec<u32>,
    /// The first failure.
    why: Option<String>,
}

impl Clients {
    fn obey(&mut self, line: &str) -> io::Result<String> {
        let mut words = Arguments::from_words(&line.split(' ').collect::<Vec<_>>());
        let command = words.next().unwrap_or_default();
        let answer = match command.as_str() {
            "connect" => self.connect(words.require("concurrency")?, seconds(&mut words)?),
            "each" => self.each(words.require("concurrency")?, seconds(&mut words)?),
            "echo" => {
                let concurrency = words.require("concurrency")?;
                let (warm_up, span) = (seconds(&mut words)?, seconds(&mut words)?);
                self.wait_until(words.require("time")?);
                self.echo(concurrency, warm_up, span)
            }
            "rate" => {
                let (rate, sample) = (words.require("rate")?, words.require("sample")?);
                let span = seconds(&mut words)?;
                self.wait_until(words.require("time")?);
                self.rate(rate, sample, span)
            }
            "count" => self.count(),
            other => Err(invalid(format!("{other:?} is no order"))),
        }?;
        words.end()?;
        Ok(answer)
    }

    fn now_ns(&self) -> u64 {
        self.zero.elapsed().as_nanos() as u64
    }

    /// All processes begin a measurement at the same time.
    fn wait_until(&self, at_ms: u64) {
        let at = UNIX_EPOCH + Duration::from_millis(at_ms);
        if let Ok(left) = at.duration_since(SystemTime::now()) {
            std::thread::sleep(left);
        }
    }

    /// A socket with its own address and port. It is reset when it closes: so no port waits for
    /// late segments (TIME_WAIT), and the next measurement can use it.
    fn socket(&self, index: usize) -> io::Result<OwnedFd> {
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let socket = socket::socket(AddressFamily::Inet, SockType::Stream, flags, None)?;
        socket::setsockopt(&socket, ReuseAddr, &true)?;
        socket::setsockopt(&socket, TcpNoDelay, &true)?;
        socket::setsockopt(&socket, Linger, &linger { l_onoff: 1, l_linger: 0 })?;
        let from = self.ports.address(self.first_address, index);
        socket::bind(socket.as_raw_fd(), &SockaddrIn::from(from))?;
        Ok(socket)
    }

    fn connect(&mut self, concurrency: usize, within: Duration) -> io::Result<String> {
        let begin_ns = self.now_ns();
        let until_ns = begin_ns + within.as_nanos() as u64;
        let (mut begun, mut pending) = (0, 0);
        let mut failed = 0;
        let mut times = Histogram::default();
        loop {
            while pending < concurrency && begun < self.connections.len() {
                self.connections[begun].asked_ns[0] = self.now_ns();
                match self.socket(begun) {
                    Ok(socket) => {
                        let left = Duration::from_nanos(until_ns.saturating_sub(self.now_ns()));
                        let op = Op::connect_with(socket, self.to).token(begun as u64);
                        self.watcher.submit(op.timeout(left))?;
                        pending += 1;
                    }
                    Err(error) => {
                        self.note(|| format!("no socket: {error}"));
                        failed += 1;
                    }
                }
                begun += 1;
            }
            if pending == 0 {
                break;
            }
            self.turn(Duration::from_secs(1))?;
            for ns in self.connected.drain(..) {
                times.add(ns);
                pending -= 1;
            }
            let refused = mem::take(&mut self.failed);
            failed += refused;
            pending -= refused as usize;
        }
        let seconds = (self.now_ns() - begin_ns) as f64 / 1e9;
        Ok(format!("connected {} {failed} {seconds} {}", times.count(), times.to_line()))
    }

    /// One echo on each connection.
    fn each(&mut self, concurrency: usize, within: Duration) -> io::Result<String> {
        let begin_ns = self.now_ns();
        let until_ns = begin_ns + within.as_nanos() as u64;
        let mut open = self.open();
        let (mut pending, mut failed) = (0, 0);
        let mut times = Histogram::default();
        while pending > 0 || !open.is_empty() {
            while pending < concurrency
                && let Some(index) = open.pop()
            {
                if self.connections[index as usize].is_open() {
                    self.ask(index, self.now_ns());
                    pending += 1;
                } else {
                    failed += 1;
                }
            }
            self.turn(Duration::from_secs(1))?;
            pending -= self.answered.len();
            self.answered.drain(..).for_each(|(_, ns)| times.add(ns));
            let lost = self.lost();
            failed += lost;
            pending -= lost as usize;
            if self.now_ns() > until_ns {
                self.note(|| format!("{pending} first echoes did not come in {within:?}"));
                failed += (pending + open.len()) as u64;
                break;
            }
        }
        let seconds = (self.now_ns() - begin_ns) as f64 / 1e9;
        Ok(format!("echoed {} {failed} {seconds} {}", times.count(), times.to_line()))
    }

    /// So many echoes at once, each on a random connection that has none. Those that come between
    /// the end of the warm-up and the end of the time count.
    fn echo(
        &mut self,
        concurrency: usize,
        warm_up: Duration,
        span: Duration,
    ) -> io::Result<String> {
        let mut free = self.open();
        let (asked_before, answered_before) = self.messages();
        let from_ns = self.now_ns() + warm_up.as_nanos() as u64;
        let until_ns = from_ns + span.as_nanos() as u64;
        let grace_ns = until_ns + GRACE.as_nanos() as u64;
        let (mut pending, mut lost) = (0, 0);
        let mut times = Histogram::default();
        loop {
            let mut now_ns = self.now_ns();
            while pending < concurrency && now_ns < until_ns && !free.is_empty() {
                let at = self.below(free.len());
                let index = free.swap_remove(at);
                self.ask(index, now_ns);
                pending += 1;
                now_ns = self.now_ns();
            }
            if pending == 0 && (now_ns >= until_ns || free.is_empty()) || now_ns > grace_ns {
                break;
            }
            let wait_ns = until_ns.saturating_sub(now_ns).clamp(1_000_000, 100_000_000);
            self.turn(Duration::from_nanos(wait_ns))?;
            let now_ns = self.now_ns();
            for (index, ns) in self.answered.drain(..) {
                pending -= 1;
                free.push(index);
                if (from_ns..until_ns).contains(&now_ns) {
                    times.add(ns);
                }
            }
            if !self.ended.is_empty() {
                free.retain(|&index| self.connections[index as usize].is_open());
            }
            let ended = self.lost();
            lost += ended;
            pending -= ended as usize;
        }
        // Each one is answered exactly once: `turn` refuses more bytes than were sent.
        let (asked, answered) = self.messages();
        let failed = (asked - asked_before).saturating_sub(answered - answered_before);
        if failed != lost {
            self.note(|| format!("{failed} echoes did not come within {GRACE:?}"));
        }
        let line = times.to_line();
        Ok(format!("echoed {} {failed} {} {line}", times.count(), span.as_secs_f64()))
    }

    /// Sends `rate` messages a second on each connection of a random sample. A message that is due
    /// while [`DEPTH`] others are unanswered is skipped, and counted. The time of an echo begins
    /// when its message was due.
    fn rate(&mut self, rate: f64, sample: usize, span: Duration) -> io::Result<String> {
        let mut open = self.open();
        let sample: Vec<u32> = (0..sample.min(open.len()))
            .map(|_| {
                let at = self.below(open.len());
                open.swap_remove(at)
            })
            .collect();
        let (asked_before, answered_before) = self.messages();
        let gap_ns = 1e9 / (rate * sample.len().max(1) as f64);
        let due_in_all = (span.as_nanos() as f64 / gap_ns) as u64;
        let begin_ns = self.now_ns();
        let grace_ns = begin_ns + (span + GRACE).as_nanos() as u64;
        let (mut due, mut skipped, mut pending) = (0, 0, 0);
        let mut times = Histogram::default();
        while !sample.is_empty() && (due < due_in_all || pending > 0) {
            let mut now_ns = self.now_ns();
            let due_ns = |due: u64| begin_ns + (due as f64 * gap_ns) as u64;
            while due < due_in_all && due_ns(due) <= now_ns {
                let index = sample[(due % sample.len() as u64) as usize];
                let connection = &self.connections[index as usize];
                let (sent, heard) = connection.stream.messages(&self.wire);
                if !connection.is_open() || sent - heard >= DEPTH {
                    skipped += 1;
                } else {
                    self.ask(index, due_ns(due));
                    pending += 1;
                }
                due += 1;
                now_ns = self.now_ns();
            }
            if now_ns > grace_ns {
                self.note(|| format!("{pending} echoes did not come within {GRACE:?}"));
                break;
            }
            let next_ns = if due < due_in_all { due_ns(due) } else { now_ns + 100_000_000 };
            // Messages that are due within a millisecond are sent together.
            let wait_ns = next_ns.saturating_sub(now_ns).clamp(1_000_000, 100_000_000);
            self.turn(Duration::from_nanos(wait_ns))?;
            pending -= self.answered.len();
            self.answered.drain(..).for_each(|(_, ns)| times.add(ns));
            pending -= self.lost() as usize;
        }
        let (asked, answered) = self.messages();
        let (sent, heard) = (asked - asked_before, answered - answered_before);
        let failed = sent.saturating_sub(heard);
        Ok(format!("rated {sent} {heard} {skipped} {failed} {}", times.to_line()))
    }

    /// How many connections are open, after all that has happened to them was seen.
    fn count(&mut self) -> io::Result<String> {
        self.turn(Duration::ZERO)?;
        while !self.ended.is_empty() {
            self.ended.clear();
            self.turn(Duration::ZERO)?;
        }
        let why = self.why.as_deref().unwrap_or("");
        Ok(format!("open {} {why}", self.open().len()))
    }

    fn open(&self) -> Vec<u32> {
        let all = self.connections.iter().enumerate();
        all.filter(|(_, connection)| connection.is_open()).map(|(at, _)| at as u32).collect()
    }

    /// The messages of all connections: sent, and answered.
    fn messages(&self) -> (u64, u64) {
        self.connections.iter().fold((0, 0), |sum, connection| {
            let (sent, heard) = connection.stream.messages(&self.wire);
            (sum.0 + sent, sum.1 + heard)
        })
    }

    /// How many messages were unanswered on the connections that have ended in the last turn.
    fn lost(&mut self) -> u64 {
        let ended = mem::take(&mut self.ended).into_iter();
        ended
            .map(|index| self.connections[index as usize].stream.messages(&self.wire))
            .map(|(sent, heard)| sent - heard)
            .sum()
    }

    /// Marsaglia's xorshift.
    fn below(&mut self, below: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random % below as u64) as usize
    }

    fn note(&mut self, why: impl FnOnce() -> String) {
        self.why.get_or_insert_with(why);
    }

    /// Sends the next message of a connection; its time begins at `at_ns`.
    fn ask(&mut self, index: u32, at_ns: u64) {
        let connection = &mut self.connections[index as usize];
        let (number, _) = connection.stream.messages(&self.wire);
        connection.asked_ns[(number % DEPTH) as usize] = at_ns;
        let message = connection.stream.next(&self.wire);
        let op = Op::write(connection.source, message).quiet().token(index.into());
        if let Err(rejected) = self.watcher.submit(op) {
            self.end(index, || format!("a write is refused: {:?}", rejected.reason));
        }
    }

    /// Waits at most so long, and takes what has happened.
    fn turn(&mut self, timeout: Duration) -> io::Result<()> {
        let mut done = mem::take(&mut self.done);
        self.watcher.wait_timeout(&mut done, timeout)?;
        let now_ns = self.now_ns();
        for completion in done.drain(..) {
            self.take(completion, now_ns)?;
        }
        self.done = done;
        Ok(())
    }

    fn take(&mut self, c: Completion, now_ns: u64) -> io::Result<()> {
        let (index, code, more) = (c.token as u32, c.code(), c.has_more());
        match c.result {
            Ok(Done::Socket(socket)) => {
                let source = self.watcher.attach(socket)?;
                self.watcher.submit(Op::read(source).multishot().token(index.into()))?;
                self.connections[index as usize].source = source;
                match &mut self.heads {
                    Some(heads) => {
                        heads.insert(index, Vec::new());
                        let handshake = websocket_load::handshake(self.to.port(), "");
                        self.watcher.submit(Op::write(source, handshake).quiet())?;
                    }
                    None => self.connected(index, now_ns),
                }
            }
            Err(error) if code == OpCode::Connect => {
                self.failed += 1;
                self.note(|| format!("a connect failed: {error}"));
            }
            Ok(Done::Read(data)) if !data.is_eof() => {
                let connection = &mut self.connections[index as usize];
                if !connection.is_open() {
                    return Ok(());
                }
                if let Some(head) = self.heads.as_mut().and_then(|all| all.get_mut(&index)) {
                    head.extend_from_slice(&data);
                    if head.ends_with(b"\r\n\r\n") {
                        let is_accepted = websocket_load::accepts(head);
                        if !is_accepted {
                            self.end(index, || "a handshake is refused".into());
                            return Ok(());
                        }
                        self.heads.as_mut().expect("it is there").remove(&index);
                        self.connected(index, now_ns);
                    }
                    return self.read_more(index, more);
                }
                match connection.stream.hear(&self.wire, &data) {
                    Ok(messages) => {
                        for number in messages {
                            let asked_ns = connection.asked_ns[(number % DEPTH) as usize];
                            self.answered.push((index, now_ns.saturating_sub(asked_ns)));
                        }
                        self.read_more(index, more)?;
                    }
                    Err(wrong) => self.end(index, || format!("an echo is wrong: {wrong}")),
                }
            }
            Ok(Done::Read(_)) => self.end(index, || "the server closed a connection".into()),
            Err(error) => self.end(index, || format!("a connection failed: {error}")),
            Ok(_) => {}
        }
        Ok(())
    }

    /// A connection is made, and its handshake, if it has one.
    fn connected(&mut self, index: u32, now_ns: u64) {
        self.connected.push(now_ns - self.connections[index as usize].asked_ns[0]);
    }

    /// Reads again, if the read that had a completion has no `more`.
    fn read_more(&mut self, index: u32, more: bool) -> io::Result<()> {
        if !more {
            let op = Op::read(self.connections[index as usize].source).multishot();
            self.watcher.submit(op.token(index.into()))?;
        }
        Ok(())
    }

    fn end(&mut self, index: u32, why: impl FnOnce() -> String) {
        let connection = &mut self.connections[index as usize];
        if !connection.is_open() {
            return;
        }
        let source = mem::replace(&mut connection.source, Source::NONE);
        self.watcher.abort(source);
        match self.heads.as_mut().and_then(|heads| heads.remove(&index)) {
            Some(_) => self.failed += 1, // it was no WebSocket yet
            None => self.ended.push(index),
        }
        self.note(why);
    }
}

fn seconds(words: &mut Arguments) -> io::Result<Duration> {
    let seconds: f64 = words.require("number of seconds")?;
    Duration::try_from_secs_f64(seconds).map_err(|error| invalid(error.to_string()))
}
