//! WebSockets in a loop of the program, beside its own file and its own timer: a file that grows,
//! and clients that follow it. No part of the program waits for another one.
//!
//! ```text
//! cargo run --release -p windlass-web --example ws_own_loop -- [--port N] [--file PATH]
//! curl http://127.0.0.1:8080/              # how many bytes the file has
//! ```
//!
//! Clients of the WebSocket at `/follow` send lines. The loop appends each line to the file, and
//! sends it to all clients when the write has ended. Once a second it sends them their number.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io;
use std::time::Duration;

use windlass_web::engine::{Event, OwnedRequest, Refusal, RequestId};
use windlass_web::serve::Config;
use windlass_web::websocket::{CloseCode, Message, WebSocketSettings};
use windlass_web::windlass::net::ListenOptions;
use windlass_web::windlass::process::signal::{SIGINT, SIGTERM};
use windlass_web::windlass::{self, Address, Completion, Completions, Done, Op, Source, Watcher};
use windlass_web::{Engine, Limits, Remote, Response, Status};

#[path = "common/mod.rs"]
mod common;

/// Tokens of the program's own operations.
const SIGNAL: u64 = 0;
const TICK: u64 = 1;
const WRITE: u64 = 2;

const SPAN: Duration = Duration::from_secs(1);
/// Bytes of lines that may wait for the file. Beyond, the client that says more is closed.
const MOST: usize = 1 << 20;

pub(crate) struct Loop {
    watcher: Watcher,
    web: Engine,
    settings: WebSocketSettings,
    publisher: Remote,
    followers: usize,
    file: Source,
    /// Where the file ends.
    end: u64,
    /// Lines that are not in the file yet. The first one is being written.
    lines: VecDeque<String>,
    waiting_bytes: usize,
    is_stopping: bool,
}

impl Loop {
    /// Listens at this port of 127.0.0.1, and appends to the file.
    pub(crate) fn new(mut watcher: Watcher, port: u16, file: File) -> io::Result<Loop> {
        let mut web = Engine::new(Config::new(), Limits::new());
        web.listen(&mut watcher, ([127, 0, 0, 1], port), ListenOptions::default())?;
        let publisher = web.publisher(&mut watcher);
        let end = file.metadata()?.len();
        let file = watcher.attach(file)?;
        watcher.submit(Op::timer(SPAN).token(TICK))?;
        Ok(Loop {
            watcher,
            web,
            settings: WebSocketSettings::new().any_origin().message_limit(4096),
            publisher,
            followers: 0,
            file,
            end,
            lines: VecDeque::new(),
            waiting_bytes: 0,
            is_stopping: false,
        })
    }

    pub(crate) fn address(&self) -> io::Result<Address> {
        Ok(self.watcher.local_address(self.web.listeners()[0])?)
    }

    /// Ends when SIGINT or SIGTERM has come, and all lines are in the file.
    fn run(mut self) -> io::Result<()> {
        match self.watcher.signals(&[SIGINT, SIGTERM]) {
            Err(windlass::Refusal::Unsupported) => {} // on Windows, Ctrl-C ends it at once
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
        for completion in done.drain(..) {
            // The engine takes what is its own. The rest is the program's.
            if let Some(completion) = self.web.complete(&mut self.watcher, completion) {
                self.completed(completion)?;
            }
        }
        while let Some(event) = self.web.next_event(&mut self.watcher) {
            self.event(event)?;
        }
        self.web.flush(&mut self.watcher);
        Ok(())
    }

    fn event(&mut self, event: Event<()>) -> io::Result<()> {
        match event {
            Event::Request { id, request } => self.request(id, &request),
            Event::SocketMessage { id, message } => {
                let Some(mut socket) = self.web.socket(id) else { return Ok(()) };
                match message {
                    Message::Text(_) if self.waiting_bytes > MOST => {
                        socket.close(CloseCode::TRY_LATER, "the file is slow");
                    }
                    Message::Text(text) => {
                        let line = text.lines().next().unwrap_or_default().to_owned();
                        self.waiting_bytes += line.len() + 1;
                        self.lines.push_back(line);
                        if self.lines.len() == 1 {
                            self.write()?;
                        }
                    }
                    Message::Binary(_) => socket.close(CloseCode::UNSUPPORTED, "lines are text"),
                }
            }
            Event::SocketClosed { .. } => self.followers -= 1,
            _ => {}
        }
        Ok(())
    }

    fn request(&mut self, id: RequestId, request: &OwnedRequest) {
        let response = match request.path() {
            "/" => Response::text(format!("{} bytes\n", self.end)),
            "/follow" => match self.web.accept_websocket(id, &self.settings, ()) {
                Ok(connection) => {
                    self.followers += 1;
                    let mut socket = self.web.socket(connection).expect("it has just opened");
                    socket.subscribe("lines");
                    socket.send(format!("{} followers", self.followers));
                    return;
                }
                Err(refused) if refused.reason == Refusal::NotOffered => {
                    Status::UPGRADE_REQUIRED.into()
                }
                Err(_) => return, // the client has its answer, or has gone
            },
            _ => Response::from(Status::NOT_FOUND),
        };
        if let Err(reason) = self.web.respond(id, response) {
            println!("{id:?}: {reason}"); // its client has gone
        }
    }

    /// Appends the first line to the file, while the loop goes on.
    fn write(&mut self) -> io::Result<()> {
        let Some(line) = self.lines.front() else { return Ok(()) };
        let bytes = format!("{line}\n").into_bytes();
        self.watcher.submit(Op::write_at(self.file, bytes, self.end).token(WRITE))?;
        Ok(())
    }

    /// An operation of the program has ended.
    fn completed(&mut self, completion: Completion) -> io::Result<()> {
        match (completion.token, completion.result) {
            (SIGNAL, _) => self.stop(),
            (TICK, _) => {
                self.publisher.publish("lines", format!("{} followers", self.followers));
                self.watcher.submit(Op::timer(SPAN).token(TICK))?;
            }
            (_, result) => {
                if let Done::Written { .. } = result?
                    && let Some(line) = self.lines.pop_front()
                {
                    self.end += line.len() as u64 + 1;
                    self.waiting_bytes -= line.len() + 1;
                    self.publisher.publish("lines", line);
                }
                self.write()?;
            }
        }
        Ok(())
    }

    /// Accepts no more, and closes WebSockets with 1001.
    pub(crate) fn stop(&mut self) {
        self.is_stopping = true;
        self.web.stop(&mut self.watcher);
        self.web.flush(&mut self.watcher);
    }
}

#[allow(dead_code)] // a test runs the loop itself
fn main() -> io::Result<()> {
    let mut options = common::Options::new("ws_own_loop [--port N] [--file PATH]");
    let port = options.take("--port").unwrap_or(8080);
    let path: String = options.take("--file").unwrap_or_else(|| "lines.txt".into());
    options.end();
    let file = OpenOptions::new().create(true).write(true).truncate(false).open(path)?;
    let own = Loop::new(Watcher::new()?, port, file)?;
    println!("listening on {}", own.address()?);
    own.run()
}
