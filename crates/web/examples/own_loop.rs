//! HTTP in a loop of the program, beside a file, a timer, and another engine with a protocol of
//! lines. One watcher has them all, and nothing waits for anything else.
//!
//! ```text
//! cargo run --release -p windlass-web --example own_loop -- \
//!     [--port N] [--lines-port N] [--file PATH]
//! curl http://127.0.0.1:8080/file     # the file, which the loop reads meanwhile
//! curl http://127.0.0.1:8080/tick     # answered at the next tick of the timer
//! curl http://127.0.0.1:8080/last     # the last line that a client has sent
//! nc 127.0.0.1 8081                   # says lines, and hears how many there were
//! ```

use std::collections::HashMap;
use std::io;
use std::time::Duration;

use windlass_web::engine::{Event, OwnedRequest, RequestId};
use windlass_web::serve::framing::{Input, Lines};
use windlass_web::serve::{self, Config, Id};
use windlass_web::windlass::net::ListenOptions;
use windlass_web::windlass::process::signal::{SIGINT, SIGTERM};
use windlass_web::windlass::{
    Address, Completion, Completions, Done, Handle, Op, Refusal, Source, Watcher,
};
use windlass_web::{Engine, Limits, Response, Status};

#[path = "common/mod.rs"]
mod common;

/// Tokens of the program's own operations. Those of reads are the numbers of their requests.
const SIGNAL: u64 = 0;
const TICK: u64 = 1;
const READS: u64 = 1 << 32;

/// How long a tick is.
const SPAN: Duration = Duration::from_millis(100);
/// The most bytes of the file that are told.
const MOST: usize = 64 << 10;

pub(crate) struct Loop {
    watcher: Watcher,
    web: Engine,
    lines: serve::Engine<Input>,
    file: Source,
    /// Requests for the file, by the tokens of their reads.
    reads: HashMap<u64, RequestId>,
    /// Requests that wait for a tick.
    waiting: Vec<RequestId>,
    ticks: u64,
    said: u64,
    last: String,
    is_stopping: bool,
}

impl Loop {
    /// Listens for HTTP and for lines at these ports of 127.0.0.1.
    pub(crate) fn new(
        mut watcher: Watcher,
        ports: [u16; 2],
        file: impl Into<Handle>,
    ) -> io::Result<Loop> {
        let (mut web, mut lines) =
            (Engine::new(Config::new(), Limits::new()), serve::Engine::new(Config::new()));
        let at = |port| ([127, 0, 0, 1], port);
        web.listen(&mut watcher, at(ports[0]), ListenOptions::default())?;
        lines.listen(&mut watcher, at(ports[1]), ListenOptions::default())?;
        let file = watcher.attach(file)?;
        watcher.submit(Op::timer(SPAN).token(TICK))?;
        Ok(Loop {
            watcher,
            web,
            lines,
            file,
            reads: HashMap::new(),
            waiting: Vec::new(),
            ticks: 0,
            said: 0,
            last: String::new(),
            is_stopping: false,
        })
    }

    /// Where it listens: for HTTP, and for lines.
    pub(crate) fn addresses(&self) -> io::Result<[Address; 2]> {
        let (web, lines) = (self.web.listeners()[0], self.lines.listeners()[0]);
        Ok([self.watcher.local_address(web)?, self.watcher.local_address(lines)?])
    }

    /// Ends when SIGINT or SIGTERM has come, and the requests that wait are answered.
    fn run(mut self) -> io::Result<()> {
        match self.watcher.signals(&[SIGINT, SIGTERM]) {
            Err(Refusal::Unsupported) => {} // on Windows, Ctrl-C ends the program at once
            signals => _ = self.watcher.submit(Op::signal(signals?).token(SIGNAL))?,
        }
        while !self.is_over() {
            self.turn()?;
        }
        Ok(())
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_stopping && self.web.is_empty() && self.lines.is_empty()
    }

    /// Waits for what happens next, and does it.
    pub(crate) fn turn(&mut self) -> io::Result<()> {
        let mut done = Completions::new();
        self.watcher.wait(&mut done)?;
        // Each engine takes what is its own. The rest is the program's.
        for completion in done.drain(..) {
            let rest = self.web.complete(&mut self.watcher, completion);
            let rest = rest.and_then(|rest| self.lines.complete(&mut self.watcher, rest));
            if let Some(completion) = rest {
                self.completed(completion)?;
            }
        }
        while let Some(event) = self.web.next_event(&mut self.watcher) {
            if let Event::Request { id, request } = event {
                self.request(id, &request);
            }
        }
        while let Some(event) = self.lines.next_event(&mut self.watcher) {
            if let serve::Event::Data { id, data } = event {
                self.lines(id, data);
            }
        }
        self.web.flush(&mut self.watcher);
        self.lines.flush(&mut self.watcher);
        Ok(())
    }

    fn request(&mut self, id: RequestId, request: &OwnedRequest) {
        let response = match (request.method(), request.path()) {
            ("GET", "/") => Response::text("/file, /tick, /last"),
            ("GET", "/last") => Response::text(self.last.clone()),
            ("GET", "/tick") => return self.waiting.push(id),
            ("GET", "/file") => match self.read(id) {
                Ok(()) => return,
                Err(refusal) => failed(refusal),
            },
            (_, "/" | "/last" | "/tick" | "/file") => Status::METHOD_NOT_ALLOWED.into(),
            _ => Status::NOT_FOUND.into(),
        };
        self.respond(id, response);
    }

    /// Reads the file, while the loop goes on.
    fn read(&mut self, id: RequestId) -> Result<(), Refusal> {
        let token = READS + id.number();
        let read = Op::read_at(self.file, Vec::with_capacity(MOST), 0).token(token);
        self.watcher.submit(read).map_err(|refused| refused.reason)?;
        self.reads.insert(token, id);
        Ok(())
    }

    /// An operation of the program has ended.
    fn completed(&mut self, completion: Completion) -> io::Result<()> {
        match (completion.token, completion.result) {
            (SIGNAL, _) => self.stop(),
            (TICK, _) => {
                self.ticks += 1;
                let text = format!("tick {}", self.ticks);
                for id in std::mem::take(&mut self.waiting) {
                    self.respond(id, Response::text(text.clone()));
                }
                self.watcher.submit(Op::timer(SPAN).token(TICK))?;
            }
            (token, result) => {
                let Some(id) = self.reads.remove(&token) else { return Ok(()) };
                let response = match result {
                    Ok(Done::Read(data)) => Response::bytes(data.into_vec()),
                    Ok(_) => Response::bytes(Vec::new()),
                    Err(error) => failed(error),
                };
                self.respond(id, response);
            }
        }
        Ok(())
    }

    fn respond(&mut self, id: RequestId, response: Response) {
        if let Err(reason) = self.web.respond(id, response) {
            println!("{id:?}: {reason}"); // its client has gone
        }
    }

    /// Answers lines with how many there were.
    fn lines(&mut self, id: Id, data: windlass_web::windlass::Buf) {
        let Some(input) = self.lines.state_mut(id) else { return };
        input.push(data);
        let mut answers = String::new();
        loop {
            match input.next(&mut Lines::new(1000)) {
                Ok(Some(line)) => {
                    self.said += 1;
                    self.last = String::from_utf8_lossy(&line).into_owned();
                    answers += &format!("{} lines\n", self.said);
                }
                Ok(None) => break,
                Err(_) => {
                    self.lines.abort(id); // a line that is too long
                    return;
                }
            }
        }
        if !answers.is_empty() && self.lines.write(id, answers).is_err() {
            self.lines.abort(id); // it does not read its answers
        }
    }

    /// Accepts no more, and ends behind the requests that wait.
    pub(crate) fn stop(&mut self) {
        self.is_stopping = true;
        self.web.stop(&mut self.watcher);
        self.lines.stop_listening(&mut self.watcher);
        let talking: Vec<Id> = self.lines.ids().collect();
        for id in talking {
            self.lines.close(id);
        }
        self.web.flush(&mut self.watcher);
        self.lines.flush(&mut self.watcher);
    }
}

/// The client gets a 500, and the program the cause.
fn failed(cause: impl std::error::Error + Send + Sync + 'static) -> Response {
    println!("the file: {cause}");
    Status::INTERNAL_SERVER_ERROR.into()
}

#[allow(dead_code)] // a test runs the loop itself
fn main() -> io::Result<()> {
    let mut options = common::Options::new("own_loop [--port N] [--lines-port N] [--file PATH]");
    let ports =
        [options.take("--port").unwrap_or(8080), options.take("--lines-port").unwrap_or(8081)];
    let path: String = options.take("--file").unwrap_or_else(|| "Cargo.toml".into());
    options.end();
    let own = Loop::new(Watcher::new()?, ports, std::fs::File::open(path)?)?;
    let [web, lines] = own.addresses()?;
    println!("listening on {web}");
    println!("lines on {lines}");
    own.run()
}
