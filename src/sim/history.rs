//! The last steps of a run, as text, to find out why a seed fails.
//!
//! Memory is bounded: so many lines, each of at most [`MOST_CHARS`] characters. Nothing is
//! formatted while the history is off.

use std::collections::VecDeque;
use std::fmt::Display;

use crate::completion::Completion;
use crate::sim::Sim;
use crate::sim::kernel::Call;
use crate::sim::world::World;

/// Most characters of a line; the rest is cut off.
const MOST_CHARS: usize = 200;

#[derive(Default)]
pub(super) struct History {
    lines: VecDeque<String>,
    most: usize,
    /// The number of the watcher that makes the current call.
    watcher: u32,
}

impl History {
    #[inline(always)]
    pub(super) fn is_on(&self) -> bool {
        self.most > 0
    }
}

/// The names of the errnos that a simulation answers.
fn errno_name(errno: i32) -> Option<&'static str> {
    Some(match errno {
        libc::EAGAIN => "EAGAIN",
        libc::EBADF => "EBADF",
        libc::ECONNABORTED => "ECONNABORTED",
        libc::ECONNREFUSED => "ECONNREFUSED",
        libc::ECONNRESET => "ECONNRESET",
        libc::EDESTADDRREQ => "EDESTADDRREQ",
        libc::EEXIST => "EEXIST",
        libc::EINPROGRESS => "EINPROGRESS",
        libc::EINTR => "EINTR",
        libc::EINVAL => "EINVAL",
        libc::EMFILE => "EMFILE",
        libc::EMSGSIZE => "EMSGSIZE",
        libc::ENOBUFS => "ENOBUFS",
        libc::ENOTCONN => "ENOTCONN",
        libc::EOPNOTSUPP => "EOPNOTSUPP",
        libc::EPERM => "EPERM",
        libc::EPIPE => "EPIPE",
        _ => return None,
    })
}

fn answer_text(code: i64) -> String {
    let errno = i32::try_from(code.saturating_neg()).unwrap_or(0);
    match errno_name(errno) {
        Some(name) => name.into(),
        None if errno > 0 => format!("errno {errno}"),
        None => code.to_string(),
    }
}

impl World {
    /// Adds a line, if the history is on.
    pub(super) fn add_step(&mut self, what: impl Display) {
        if !self.history.is_on() {
            return;
        }
        let elapsed_ns = self.schedule.elapsed_ns();
        let (seconds, rest_ns) = (elapsed_ns / 1_000_000_000, elapsed_ns % 1_000_000_000);
        let mut line = format!("{seconds:>4}.{rest_ns:09} {what}");
        if let Some((end, _)) = line.char_indices().nth(MOST_CHARS) {
            line.truncate(end);
            line.push('…');
        }
        while self.history.lines.len() >= self.history.most {
            self.history.lines.pop_front();
        }
        self.history.lines.push_back(line);
    }

    /// The title of a call's socket, taken before the call changes it.
    #[cold]
    pub(super) fn begin_step(&mut self, watcher: u32, call: Call, fd: i32) -> String {
        self.history.watcher = watcher;
        self.dice.hit_names.clear();
        match call {
            Call::Job | Call::LookUp => "a job makes its next step".into(),
            // A connect names its socket after it has made it.
            Call::Connect => String::new(),
            _ => self.title(fd as u32),
        }
    }

    #[cold]
    pub(super) fn end_step(&mut self, call: Call, title: &str, code: i64) {
        let faults = std::mem::take(&mut self.dice.hit_names);
        let injected = match faults.is_empty() {
            true => String::new(),
            false => format!(" [fault: {}]", faults.join(", ")),
        };
        let (watcher, name) = (self.history.watcher, call.name());
        let answer = match call {
            Call::Job | Call::LookUp | Call::Register | Call::Close => String::new(),
            Call::GetSockOpt => format!(": {}", answer_text(-code)),
            _ => format!(": {}", answer_text(code)),
        };
        self.add_step(format_args!("watcher {watcher}: {name} {title}{answer}{injected}"));
    }
}

impl Sim {
    /// Keeps the last `steps` steps of the run as text, for [`history`](Sim::history): calls of the
    /// watchers to the network with their answers and faults, events, arrivals, notes, and the
    /// completions that [`Sim::run`] hands out. Default 0: none, which costs nothing.
    ///
    /// The history does not change the run. So run a failed seed again, with its history:
    ///
    /// ```
    /// use windlass::sim::{Faults, Sim};
    /// use windlass::{Completions, Op, Watcher};
    /// let sim = Sim::with_faults(1, Faults::none());
    /// sim.set_history(100);
    /// let mut watcher = Watcher::simulated(&sim);
    /// let (a, _b) = sim.pair();
    /// let a = watcher.attach(a)?;
    /// watcher.submit(Op::write(a, "hello"))?;
    /// sim.note("said hello");
    /// let history = sim.history();
    /// assert!(history.contains("watcher 1: send (unnamed) -> (unnamed): 5"), "{history}");
    /// assert!(history.contains("note: said hello"), "{history}");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn set_history(&self, steps: usize) {
        let mut world = self.enter();
        world.history.most = steps;
        let surplus = world.history.lines.len().saturating_sub(steps);
        world.history.lines.drain(..surplus);
        world.dice.names_hits = steps > 0;
    }

    /// The last steps, a line each: the seconds since the start, the watcher, the call, the
    /// socket's addresses, the answer. Most lines have an answer: a number of bytes, or an errno. A
    /// new watcher gets the lowest free number; the numbers begin with 1. Clones of the simulation
    /// take numbers, too, and so do those that [`at`](Sim::at) makes.
    pub fn history(&self) -> String {
        let world = self.enter();
        let lines = world.history.lines.iter();
        lines.flat_map(|line| [line.as_str(), "\n"]).collect()
    }

    /// Adds a completion that a run hands out.
    pub(crate) fn tell_completion(&self, index: usize, c: &Completion) {
        let mut world = self.enter();
        if world.history.is_on() {
            let (code, source, token) = (c.code(), c.source, c.token);
            let (at, result) = (index, &c.result);
            world.add_step(format_args!(
                "run: watcher {at} of the list: {code:?} on {source:?}, token {token}: {result:?}"
            ));
        }
    }
}
