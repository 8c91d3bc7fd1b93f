//! One run: servers and clients as processes, and what is measured of them.

use std::io;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::memory::{self, Kernel, User};
use super::size::{Needs, Ports, Processors, Size, share};
use crate::arguments::invalid;
use crate::histogram::Histogram;
use crate::process::{Server, Talking, cpu_time_of};

/// What is measured, and for how long.
pub struct Plan {
    pub is_websocket: bool,
    pub payload: usize,
    /// Echoes at once, of all processes together.
    pub concurrency: usize,
    /// Connects at once, of one process.
    pub connecting: usize,
    /// Connections of BenchRate, and the messages that each sends in a second.
    pub sample: usize,
    pub rate: f64,
    pub span: Duration,
}

/// After a load, a garbage collector has so long to give memory back.
const SETTLE: Duration = Duration::from_secs(1);
/// How long the suite waits for what should happen at once.
const SOON: Duration = Duration::from_secs(30);

/// A figure of all processes together, and of the first one.
pub struct Both<T> {
    pub all: T,
    pub one: T,
}

impl<T> Both<T> {
    pub fn pick(&self, one: bool) -> &T {
        if one { &self.one } else { &self.all }
    }
}

/// Operations with their times.
#[derive(Clone, Default)]
pub struct Phase {
    pub times: Histogram,
    pub failed: u64,
    pub seconds: f64,
}

impl Phase {
    pub fn succeeded(&self) -> u64 {
        self.times.count()
    }

    /// Operations per second.
    pub fn rate(&self) -> f64 {
        self.succeeded() as f64 / self.seconds
    }

    fn add(&mut self, other: &Phase) {
        self.times.merge(&other.times);
        self.failed += other.failed;
        self.seconds = self.seconds.max(other.seconds);
    }

    /// Reads `NAME COUNT FAILED SECONDS TIMES`.
    fn parse(line: &str, name: &str) -> Option<Phase> {
        let mut words = line.split(' ');
        let is_ours = words.next()? == name;
        let count: u64 = words.next()?.parse().ok()?;
        let (failed, seconds) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let times = Histogram::parse(words)?;
        (is_ours && times.count() == count).then_some(Phase { times, failed, seconds })
    }
}

/// Messages that were sent at a fixed rate.
#[derive(Clone, Default)]
pub struct Rated {
    pub sent: u64,
    pub heard: u64,
    pub skipped: u64,
    pub failed: u64,
    pub times: Histogram,
    /// Of the plan.
    pub span: Duration,
    pub sample: usize,
    pub rate: f64,
}

impl Rated {
    pub fn phase(&self) -> Phase {
        let seconds = self.span.as_secs_f64();
        Phase { times: self.times.clone(), failed: self.failed, seconds }
    }

    fn add(&mut self, other: &Rated) {
        self.sent += other.sent;
        self.heard += other.heard;
        self.skipped += other.skipped;
        self.failed += other.failed;
        self.sample += other.sample;
        self.times.merge(&other.times);
    }

    /// Reads `rated SENT HEARD SKIPPED FAILED TIMES`.
    fn parse(line: &str) -> Option<Rated> {
        let mut words = line.strip_prefix("rated ")?.split(' ');
        let mut number = || words.next()?.parse::<u64>().ok();
        let (sent, heard, skipped, failed) = (number()?, number()?, number()?, number()?);
        let times = Histogram::parse(words)?;
        Some(Rated { sent, heard, skipped, failed, times, ..Rated::default() })
    }
}

#[derive(Clone, Copy)]
pub struct Spread {
    pub min: f64,
    pub mean: f64,
    pub max: f64,
}

impl Spread {
    fn of(samples: &[f64], mean: f64) -> Spread {
        let min = samples.iter().copied().fold(f64::INFINITY, f64::min);
        Spread { min, mean, max: samples.iter().copied().fold(0.0, f64::max) }
    }
}

/// Of servers, while they are measured.
pub struct Usage {
    /// Percent of a processor. The mean is that of the whole time.
    pub cpu: Spread,
    /// Resident bytes.
    pub memory: Spread,
}

/// Bytes of a connection in processes.
pub struct Each {
    pub resident: f64,
    pub proportional: f64,
    pub anonymous: f64,
}

impl Each {
    fn of(before: User, after: User, connections: usize) -> Each {
        let each =
            |before: u64, after: u64| (after as f64 - before as f64) / connections.max(1) as f64;
        Each {
            resident: each(before.resident, after.resident),
            proportional: each(before.proportional, after.proportional),
            anonymous: each(before.anonymous, after.anonymous),
        }
    }
}

/// What an idle connection takes.
pub struct Idle {
    pub server: Each,
    /// Anonymous bytes of the first process, for each of its connections.
    pub server_one: f64,
    pub client: Each,
    /// Kinds of the kernel's objects: name, objects and bytes of a connection.
    pub grown: Vec<(String, f64, f64)>,
    pub queues: f64,
    /// All memory that is no longer available.
    pub available: f64,
}

impl Idle {
    pub fn slabs(&self) -> f64 {
        self.grown.iter().map(|slab| slab.2).sum()
    }

    pub fn needs(&self) -> Needs {
        // Without slabs (only root sees them), what is neither the server's nor the client's.
        let rest = self.available - self.server.resident - self.client.resident;
        let kernel = if self.grown.is_empty() { rest.max(0.0) } else { self.slabs() };
        Needs {
            server: self.server.resident,
            client: self.client.resident,
            kernel: (kernel + self.queues) / 2.0,
        }
    }
}

/// What was measured of one kind of servers.
pub struct Measured {
    pub name: String,
    pub processes: usize,
    pub connecting: usize,
    concurrency: Both<usize>,
    pub connected: Both<Phase>,
    pub idle: Idle,
    pub echo: Both<Phase>,
    pub echo_usage: Both<Usage>,
    pub rated: Both<Rated>,
    pub rate_usage: Both<Usage>,
    /// What is not as it must be.
    pub wrong: Vec<String>,
}

impl Measured {
    pub fn concurrency(&self, one: bool) -> usize {
        *self.concurrency.pick(one)
    }

    pub fn eer(&self) -> f64 {
        self.echo.all.rate() / self.echo_usage.all.cpu.mean
    }

    /// What [`FIGURES`] names.
    pub fn figures(&self) -> [f64; FIGURES.len()] {
        [
            self.connected.all.rate(),
            self.echo.all.rate(),
            self.eer(),
            1.0 / self.eer(),
            self.rated.all.phase().rate() / self.rate_usage.all.cpu.mean,
            self.echo_usage.all.memory.mean,
            self.idle.server.anonymous,
            self.idle.server.resident,
        ]
    }
}

/// The figures by which servers are compared.
pub const FIGURES: [&str; 8] = [
    "connects per second",
    "echoes per second of BenchEcho",
    "EER of BenchEcho",
    "CPU per echo of BenchEcho",
    "EER of BenchRate",
    "resident memory in BenchEcho",
    "idle bytes per connection, anonymous",
    "idle bytes per connection, resident",
];

struct Run<'a> {
    plan: &'a Plan,
    size: &'a Size,
    servers: Vec<Server>,
    clients: Vec<Talking>,
    /// The descriptors of each server without connections.
    files: Vec<usize>,
    /// The connections that each process of clients has made.
    made: Vec<usize>,
    wrong: Vec<String>,
}

/// Measures one kind of servers. All processes end when this returns, or with this process.
pub fn run(name: &str, command: &[String], size: &Size, plan: &Plan) -> io::Result<Measured> {
    let processors = Processors::of_machine();
    let ports = Ports::read()?;
    let begin = Kernel::now()?;
    let mut run = Run {
        plan,
        size,
        servers: Vec::new(),
        clients: Vec::new(),
        files: Vec::new(),
        made: Vec::new(),
        wrong: Vec::new(),
    };
    let mut addresses = 0;
    for process in 0..size.processes {
        let server = Server::start_on(processors.of_server(process), command)?;
        let words = format!(
            "million-client --port {} --source {addresses} --connections {} --payload {} \
             --websocket {}",
            server.port,
            size.share(process),
            plan.payload,
            plan.is_websocket
        );
        addresses += ports.addresses(size.share(process));
        let words: Vec<String> = words.split(' ').map(String::from).collect();
        run.servers.push(server);
        run.clients.push(Talking::start(processors.of_client(process), &words)?);
    }
    for client in &run.clients {
        client.hear(SOON)?;
    }
    println!("{name}: {} servers and as many clients run", size.processes);
    run.files = run.files()?;
    let (kernel, server) = (Kernel::now()?, run.memory_of_servers()?);
    let server_one = User::of([run.servers[0].id()])?;
    let client = User::of(run.clients.iter().map(Talking::id))?;

    let connected = run.connect()?;
    println!("{name}: {} connections, {:.0}/s", connected.all.succeeded(), connected.all.rate());
    run.first_echoes()?;
    run.await_accepts()?;
    // Neither server nor client reports that it has returned its memory.
    thread::sleep(SETTLE);
    let now = Kernel::now()?;
    let count = run.made.iter().sum::<usize>();
    let one = Each::of(server_one, User::of([run.servers[0].id()])?, run.made[0]);
    let per = |after: u64, before: u64| (after as f64 - before as f64) / count.max(1) as f64;
    let idle = Idle {
        server: Each::of(server, run.memory_of_servers()?, count),
        server_one: one.anonymous,
        client: Each::of(client, User::of(run.clients.iter().map(Talking::id))?, count),
        grown: now.grown(&kernel, count),
        queues: per(now.queues, kernel.queues),
        available: per(kernel.available, now.available),
    };
    println!("{name}: {:.0} B of the server per idle connection", idle.server.anonymous);

    let (echo, echo_usage) = run.echo()?;
    println!("{name}: {:.0} echoes/s, EER {:.2}", echo.all.rate(), {
        echo.all.rate() / echo_usage.all.cpu.mean
    });
    let (rated, rate_usage) = run.rate()?;
    println!("{name}: {} of {} messages at a fixed rate", rated.all.heard, rated.all.sent);
    run.check()?;

    let concurrency = plan.concurrency.max(size.processes);
    let measured = Measured {
        name: name.to_owned(),
        processes: size.processes,
        connecting: plan.connecting,
        concurrency: Both { all: concurrency, one: share(concurrency, size.processes, 0) },
        connected,
        idle,
        echo,
        echo_usage,
        rated,
        rate_usage,
        wrong: std::mem::take(&mut run.wrong),
    };
    run.end(&begin)?;
    Ok(measured)
}

impl Run<'_> {
    fn memory_of_servers(&self) -> io::Result<User> {
        User::of(self.servers.iter().map(Server::id))
    }

    /// The descriptors of each server, without the connection that has tried whether it listens.
    fn files(&self) -> io::Result<Vec<usize>> {
        let now = || -> io::Result<Vec<usize>> {
            self.servers.iter().map(|server| memory::descriptors(server.id())).collect()
        };
        let mut least = now()?;
        for _ in 0..5 {
            // A server does not report that it has closed a connection.
            thread::sleep(Duration::from_millis(20));
            for (least, now) in least.iter_mut().zip(now()?) {
                *least = now.min(*least);
            }
        }
        Ok(least)
    }

    fn wrong(&mut self, text: String) {
        println!("ERROR: {text}");
        self.wrong.push(text);
    }

    /// Sends each client its line, and reads all answers.
    fn ask<T>(
        &mut self,
        line: impl Fn(usize) -> String,
        within: Duration,
        parse: impl Fn(&str) -> Option<T>,
    ) -> io::Result<Vec<T>> {
        for (at, client) in self.clients.iter_mut().enumerate() {
            client.tell(&line(at))?;
        }
        self.answers(0..self.clients.len(), within, parse)
    }

    fn answers<T>(
        &self,
        clients: std::ops::Range<usize>,
        within: Duration,
        parse: impl Fn(&str) -> Option<T>,
    ) -> io::Result<Vec<T>> {
        let by = Instant::now() + within;
        let answer = |client: &Talking| {
            let line = client.hear(by.saturating_duration_since(Instant::now()))?;
            parse(&line).ok_or_else(|| invalid(format!("clients answer {line:?}")))
        };
        self.clients[clients].iter().map(answer).collect()
    }

    /// As many processes connect at once as servers have processors.
    fn connect(&mut self) -> io::Result<Both<Phase>> {
        let wave = Processors::of_machine().servers;
        let mut both = Both { all: Phase::default(), one: Phase::default() };
        let mut seconds = 0.0;
        let mut first = 0;
        while first < self.clients.len() {
            if super::size::available_bytes()? < self.size.floor_bytes {
                println!("memory bounds the connections: {}", self.made.iter().sum::<usize>());
                break;
            }
            let last = (first + wave).min(self.clients.len());
            let within = SOON + Duration::from_millis(self.size.share(first) as u64);
            let order = format!("connect {} {}", self.plan.connecting, within.as_secs_f64());
            let begin = Instant::now();
            for client in &mut self.clients[first..last] {
                client.tell(&order)?;
            }
            let parse = |line: &str| Phase::parse(line, "connected");
            let phases = self.answers(first..last, within + SOON, parse)?;
            seconds += begin.elapsed().as_secs_f64();
            if first == 0 {
                both.one = phases[0].clone();
            }
            for phase in &phases {
                both.all.add(phase);
                self.made.push(phase.succeeded() as usize);
            }
            first = last;
        }
        self.made.resize(self.clients.len(), 0);
        both.all.seconds = seconds;
        if both.all.failed > 0 {
            self.wrong(format!("{} connects failed", both.all.failed));
        }
        Ok(both)
    }

    /// One echo on each connection: so every one is open, and accepted.
    fn first_echoes(&mut self) -> io::Result<()> {
        let count: usize = self.made.iter().sum();
        let within = SOON + Duration::from_millis(count as u64);
        let order = format!("each 100 {}", within.as_secs_f64());
        let parse = |line: &str| Phase::parse(line, "echoed");
        let phases = self.ask(|_| order.clone(), within + SOON, parse)?;
        let echoed: u64 = phases.iter().map(Phase::succeeded).sum();
        if echoed != count as u64 {
            self.wrong(format!("{echoed} of {count} connections have echoed"));
        }
        Ok(())
    }

    /// Waits until the servers have as many connections as the clients.
    fn await_accepts(&self) -> io::Result<()> {
        let by = Instant::now() + SOON;
        // Another program's descriptors have no event. What is missing is reported at the end.
        while self.open_at_servers()? != self.made && Instant::now() < by {
            thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    fn open_at_servers(&self) -> io::Result<Vec<usize>> {
        let servers = self.servers.iter().zip(&self.files);
        let open = servers.map(|(server, files)| {
            memory::descriptors(server.id()).map(|now| now.saturating_sub(*files))
        });
        open.collect()
    }

    /// When the processes begin the next measurement.
    fn soon(&self) -> SystemTime {
        SystemTime::now() + Duration::from_millis(300 + 5 * self.clients.len() as u64)
    }

    fn echo(&mut self) -> io::Result<(Both<Phase>, Both<Usage>)> {
        let (count, span) = (self.clients.len(), self.plan.span);
        let warm_up = span / 10;
        let concurrency = self.plan.concurrency.max(count);
        let at = self.soon();
        let order = |client| {
            let (share, warm_up) = (share(concurrency, count, client), warm_up.as_secs_f64());
            format!("echo {share} {warm_up} {} {}", span.as_secs_f64(), since_1970(at))
        };
        for (at, client) in self.clients.iter_mut().enumerate() {
            client.tell(&order(at))?;
        }
        let usage = self.watch(at + warm_up, span)?;
        let parse = |line: &str| Phase::parse(line, "echoed");
        let phases = self.answers(0..count, warm_up + span + SOON, parse)?;
        let mut all = Phase::default();
        phases.iter().for_each(|phase| all.add(phase));
        if all.failed > 0 {
            self.wrong(format!("{} echoes never came", all.failed));
        }
        Ok((Both { all, one: phases[0].clone() }, usage))
    }

    fn rate(&mut self) -> io::Result<(Both<Rated>, Both<Usage>)> {
        let (count, span) = (self.clients.len(), self.plan.span);
        let sample = self.plan.sample.max(count);
        let at = self.soon();
        let (rate, seconds, time) = (self.plan.rate, span.as_secs_f64(), since_1970(at));
        for (at, client) in self.clients.iter_mut().enumerate() {
            let share = share(sample, count, at);
            client.tell(&format!("rate {rate} {share} {seconds} {time}"))?;
        }
        let usage = self.watch(at, span)?;
        let mut rated = self.answers(0..count, span + SOON, Rated::parse)?;
        for (at, rated) in rated.iter_mut().enumerate() {
            rated.sample = share(sample, count, at).min(self.made[at]);
            (rated.span, rated.rate) = (span, self.plan.rate);
        }
        let mut all = Rated { span, rate: self.plan.rate, ..Rated::default() };
        rated.iter().for_each(|rated| all.add(rated));
        if all.failed > 0 {
            self.wrong(format!("{} messages of BenchRate were not answered", all.failed));
        }
        Ok((Both { all, one: rated.swap_remove(0) }, usage))
    }

    /// What the servers use from `begin` on, sampled about once a second.
    fn watch(&self, begin: SystemTime, span: Duration) -> io::Result<Both<Usage>> {
        let cpu = || -> io::Result<(f64, f64)> {
            let mut sum = 0.0;
            let mut first = 0.0;
            for (at, server) in self.servers.iter().enumerate() {
                let seconds = cpu_time_of(server.id())?.as_secs_f64();
                sum += seconds;
                first = if at == 0 { seconds } else { first };
            }
            Ok((sum, first))
        };
        let step = (span / 4).min(Duration::from_secs(1));
        // The time of a measurement is waited for; nothing else ends it.
        thread::sleep(begin.duration_since(SystemTime::now()).unwrap_or_default());
        let (start, before) = (Instant::now(), cpu()?);
        let (mut last, mut at) = (before, start);
        let (mut cpus, mut memories) = (Both::default(), Both::default());
        while start.elapsed() + step / 2 < span {
            thread::sleep(step.min(span.saturating_sub(start.elapsed())));
            let (now, used) = (Instant::now(), cpu()?);
            let seconds = (now - at).as_secs_f64();
            cpus.all.push((used.0 - last.0) / seconds * 100.0);
            cpus.one.push((used.1 - last.1) / seconds * 100.0);
            (last, at) = (used, now);
            let memory: Vec<u64> = self
                .servers
                .iter()
                .map(|server| memory::resident(server.id()))
                .collect::<io::Result<_>>()?;
            memories.all.push(memory.iter().sum::<u64>() as f64);
            memories.one.push(memory[0] as f64);
        }
        let whole = (at - start).as_secs_f64() / 100.0;
        let usage = |cpu: &[f64], mean, memory: &[f64]| Usage {
            cpu: Spread::of(cpu, mean),
            memory: Spread::of(memory, memory.iter().sum::<f64>() / memory.len() as f64),
        };
        Ok(Both {
            all: usage(&cpus.all, (last.0 - before.0) / whole, &memories.all),
            one: usage(&cpus.one, (last.1 - before.1) / whole, &memories.one),
        })
    }

    /// Whether every connection that was made is still open, at both ends.
    fn check(&mut self) -> io::Result<()> {
        let parse = |line: &str| {
            let (count, why) = line.strip_prefix("open ")?.split_once(' ')?;
            Some((count.parse::<usize>().ok()?, why.to_owned()))
        };
        let open = self.ask(|_| "count".to_owned(), SOON, parse)?;
        let at_servers = self.open_at_servers()?;
        for (at, (client, why)) in open.into_iter().enumerate() {
            let (made, server) = (self.made[at], at_servers[at]);
            if client != made || server != made || !why.is_empty() {
                self.wrong(format!(
                    "process {at}: {made} connections were made; at the end {client} are open at \
                     the client, {server} at the server: {why}"
                ));
            }
        }
        Ok(())
    }

    /// Ends the processes, and waits until the kernel has freed their connections.
    fn end(self, before: &Kernel) -> io::Result<()> {
        let count: usize = self.made.iter().sum();
        drop(self.clients);
        drop(self.servers);
        let by = Instant::now() + SOON + Duration::from_micros(100) * count as u32;
        // The kernel does not report that it has freed the last one.
        while Kernel::now()?.sockets > before.sockets + count as u64 / 100 && Instant::now() < by {
            thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }
}

impl<T> Default for Both<Vec<T>> {
    fn default() -> Both<Vec<T>> {
        Both { all: Vec::new(), one: Vec::new() }
    }
}

fn since_1970(at: SystemTime) -> u128 {
    at.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis()
}
