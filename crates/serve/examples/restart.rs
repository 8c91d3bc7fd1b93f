//! A restart that refuses no connection: on SIGUSR2 the process starts its program again, passes
//! its listener on, and ends when the new process serves.
//!
//! ```text
//! cargo run --release -p windlass-serve --example restart -- \
//!     [--port N] [--loops N] [--mode nonblocking|blocking|mixed] [--grace SECONDS]
//! kill -USR2 PID
//! ```
//!
//! The server answers each line with the id of its process, and closes. Try `nc 127.0.0.1 7014`.
//!
//! Both processes have the same listener, so that clients which the old one has not accepted wait
//! for the new one. The new process gets the listener as its standard input (`fd://0`). Its first
//! line on its standard output says that it serves. Then the old process accepts no more, answers
//! the clients that it has, for at most `--grace` seconds, and ends. If the new process ends
//! without this line, the old one goes on.

use std::io::{self, BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Command, Stdio, id};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use std::{env, thread};

use windlass::Buf;
use windlass::process::signal::SIGUSR2;
use windlass_serve::{Action, Conn, Context, Handler, Server, modes::IoMode, report::Report};

#[allow(dead_code)] // other examples use the rest
#[path = "../../../examples/common/options.rs"]
mod options;

/// The listener for the next process, until the server shuts down: a listener that stays open would
/// keep clients waiting, although no process serves them.
#[derive(Clone)]
struct ToPass(Arc<Mutex<Option<TcpListener>>>);

impl ToPass {
    fn get(&self) -> io::Result<Option<TcpListener>> {
        let listener = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        listener.as_ref().map(TcpListener::try_clone).transpose()
    }

    fn close(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

struct Answers(ToPass);

impl Handler for Answers {
    type State = ();

    fn data(&mut self, c: &mut Conn<'_, ()>, data: Buf) -> Action {
        if !data.ends_with(b"\n") {
            return Action::None;
        }
        c.write(format!("process {}\n", id()));
        Action::Close
    }

    fn stopping(&mut self, _: &mut Context<'_, ()>) -> Action {
        self.0.close();
        Action::None
    }
}

/// Serves until the server shuts down. `next` is the command that starts the next process.
pub(crate) fn serve(
    listener: TcpListener,
    (loops, mode): (usize, IoMode),
    grace: Duration,
    next: impl Fn() -> io::Result<Command> + Clone + Send + 'static,
) -> io::Result<Report> {
    let to_pass = ToPass(Arc::new(Mutex::new(Some(listener.try_clone()?))));
    let of_handlers = to_pass.clone();
    let restart = move || -> io::Result<()> {
        let Some(listener) = to_pass.get()? else { return Ok(()) }; // it shuts down
        let said = start(next()?, listener)?;
        eprintln!("{said}");
        Ok(())
    };
    let running = Server::new(move |_loop| Answers(of_handlers.clone()))
        .listener(listener)
        .loops(loops)
        .io_mode(mode)
        .grace(grace)
        .on_signal(SIGUSR2, move |server| {
            // The start of a process takes too long for a loop.
            let (server, restart) = (server.clone(), restart.clone());
            thread::spawn(move || match restart() {
                Ok(()) => server.shutdown(),
                Err(error) => eprintln!("process {} goes on: {error}", id()),
            });
        })
        .start()?;
    println!("process {} listens on {}", id(), running.addresses()[0]);
    // From here on no process may read what this one prints.
    running.wait()
}

/// Starts a process that serves, and returns its first line.
fn start(mut command: Command, listener: TcpListener) -> io::Result<String> {
    let mut process = command.stdin(input::of(listener)?).stdout(Stdio::piped()).spawn()?;
    let output = BufReader::new(process.stdout.take().expect("it is piped"));
    for line in output.lines() {
        let line = line?;
        if line.starts_with("process ") {
            return Ok(line);
        }
    }
    let status = process.wait()?;
    Err(io::Error::other(format!("the new process has ended with {status}")))
}

/// A listener as the standard input of a process.
#[cfg(unix)]
pub(crate) mod input {
    use std::io;
    use std::net::TcpListener;
    use std::process::Stdio;

    use windlass::fd::{OwnedFd, inherited};

    pub(crate) fn of(listener: TcpListener) -> io::Result<Stdio> {
        Ok(OwnedFd::from(listener).into())
    }

    /// Takes the listener that this process was started with.
    pub(crate) fn take() -> io::Result<TcpListener> {
        Ok(inherited(0)?.into())
    }
}

/// Windows has neither signals nor inherited sockets.
#[cfg(not(unix))]
pub(crate) mod input {
    use std::io;
    use std::net::TcpListener;
    use std::process::Stdio;

    pub(crate) fn of(_: TcpListener) -> io::Result<Stdio> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn take() -> io::Result<TcpListener> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

#[allow(dead_code)] // tests use `serve`
fn main() -> io::Result<()> {
    const INHERITED: &str = "--inherited";
    let mut options = options::Options::new(
        "restart [--port N] [--loops N] [--mode nonblocking|blocking|mixed] [--grace SECONDS]",
    );
    let port: u16 = options.take("--port").unwrap_or(7014);
    let loops = options.take("--loops").unwrap_or(1);
    let mode = options.take("--mode").unwrap_or(IoMode::NonBlocking);
    let grace = Duration::from_secs(options.take("--grace").unwrap_or(30));
    let listener = if options.flag(INHERITED) {
        input::take()?
    } else {
        TcpListener::bind(("127.0.0.1", port))?
    };
    options.end();
    let next = || -> io::Result<Command> {
        let mut command = Command::new(env::current_exe()?);
        let arguments = env::args_os().skip(1).filter(|argument| argument != INHERITED);
        command.args(arguments).arg(INHERITED);
        Ok(command)
    };
    let report = serve(listener, (loops, mode), grace, next)?;
    eprintln!("process {} has ended: {} connections", id(), report.counters.accepted);
    Ok(())
}
