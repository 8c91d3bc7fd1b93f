//! A loop, as other threads see it: what they have asked of it.

use std::any::{Any, TypeId};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use windlass::net::ConnectOptions;
use windlass::{Address, Buf, Handle, Message, Submitter};

use crate::memory::Budget;
use crate::parts::cipher::Destination;
use crate::parts::cipher::Tls;
use crate::parts::heads::Heads;
use crate::parts::jobs::Outcome;
use crate::parts::moves::Moved;
use crate::parts::transport::Accepted;
use crate::parts::trim::{trim, trim_set};
use crate::words::id::Id;

/// What becomes a connection.
pub(crate) enum Target {
    /// With TLS, if it has a destination.
    Stream(Vec<Address>, ConnectOptions, Option<Destination>),
    Datagram(Address),
    StreamSocket(Handle, Option<Destination>),
    DatagramSocket(Handle),
}

/// A request for a connection, on its way to a loop.
pub(crate) struct Asked {
    pub(crate) target: Target,
    /// Of the type of the loop's states.
    pub(crate) state: Box<dyn Any + Send>,
    pub(crate) id: Arc<OnceLock<Id>>,
    /// What the request has charged to the budget.
    pub(crate) charged: u32,
}

/// What a stream asks its loop for.
#[derive(Clone, Copy)]
pub(crate) enum Ask {
    /// To read again.
    Resume,
    /// To shut down the output.
    Shutdown,
    /// For a wake when the server has memory again.
    Memory,
    /// To take the deadlines.
    Deadlines,
}

/// A loop, as other threads see it.
pub(crate) struct Shared {
    pub(crate) heads: Heads,
    pub(crate) budget: Budget,
    pub(crate) cap: u32,
    pub(crate) loop_index: usize,
    /// The type of its states, once there is a `Remote`.
    pub(crate) state_type: OnceLock<TypeId>,
    pub(crate) inbox: Mutex<Inbox>,
    /// Whether the loop was woken and has not looked into its inbox since.
    pub(crate) posted: AtomicBool,
    pub(crate) submitter: Submitter,
    pub(crate) token: u64,
    /// Connections that the loop has, or is about to get.
    pub(crate) load: AtomicUsize,
}

#[derive(Default)]
pub(crate) struct Inbox {
    pub(crate) commands: Vec<Command>,
    /// How many of them bring an accepted connection.
    pub(crate) accepted: usize,
    /// Connections with a wake, and with a close, in `commands`, by number.
    pub(crate) waking: HashSet<u64>,
    pub(crate) closing: HashSet<u64>,
    /// Listeners with a close in `commands`.
    unlisted: HashSet<usize>,
    /// The server shuts down: it takes no new connections.
    pub(crate) stops: bool,
    /// Whether a stop is in `commands`.
    pub(crate) stopping: bool,
    /// The loop is over: nothing looks into the inbox any more.
    pub(crate) closed: bool,
}

pub(crate) enum Command {
    Wake(Id),
    Write(Id, Buf),
    Close(Id),
    /// A connection that another loop has accepted, also one of another server.
    Adopt(Accepted),
    /// A connection for which there is no thread.
    TurnAway(Accepted),
    /// A connection that a thread hands over.
    Take(Box<Moved>),
    /// There are too many threads: this one moves what may move.
    Move,
    Stream(Id, Ask),
    /// A listener to add, and the number of one to close.
    AddListener(Handle),
    CloseListener(usize),
    /// A message to the program's code on the loop, and what it has charged to the budget.
    Message(Message, u32),
    Stop,
    /// A connection that the program asks for, and one that it no longer wants.
    Dial(Box<Asked>),
    CancelDial(Arc<OnceLock<Id>>),
    /// The program has answered the hello of a connection: `None` refuses it.
    Hello(Id, Option<Tls>),
    /// A job in the program's executor has ended, by its place.
    Answer(u32, Box<Outcome>),
}

impl Command {
    /// Whether it brings a connection that is to be served.
    pub(crate) fn is_connection(&self) -> bool {
        matches!(self, Command::Adopt(_) | Command::Take(_))
    }
}

/// The most accepted connections that wait in an inbox. The loop that has accepted the others
/// serves them itself. So a loop that blocks collects at most twice as many.
const MOST_ACCEPTED: usize = 64;

/// The most listeners of an engine, the closed ones included.
pub(crate) const MOST_LISTENERS: usize = 1 << 16;

/// The size of an entry in the queue, besides the bytes of a write or the value of a message.
pub(crate) const BOOKKEEPING: u32 = size_of::<Command>() as u32;

impl Inbox {
    /// Gives memory back that a burst has left.
    pub(crate) fn trim(&mut self) {
        trim(&mut self.commands);
        trim_set(&mut self.waking);
        trim_set(&mut self.closing);
        trim_set(&mut self.unlisted);
    }

    /// Takes all commands out.
    pub(crate) fn take(&mut self) -> Vec<Command> {
        self.waking.clear();
        self.closing.clear();
        self.unlisted.clear();
        self.stopping = false;
        self.accepted = 0;
        std::mem::take(&mut self.commands)
    }
}

impl Shared {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Whether the loop has not looked into its inbox since the last command.
    #[cfg(test)]
    pub(crate) fn is_posted(&self) -> bool {
        self.posted.load(Ordering::Relaxed)
    }

    /// Gives back what a write was charged when it was queued.
    pub(crate) fn discharge(&self, id: Id, bytes: u32) {
        self.heads.discharge(id, bytes);
        self.budget.change(bytes + BOOKKEEPING, 0);
    }

    /// Gives the loop a connection to serve, or to turn away, as it does if it has `MOST_ACCEPTED`
    /// connections waiting. False if the loop is over: the connection closes, and the caller counts
    /// it.
    pub(crate) fn take_over(&self, accepted: Accepted, serves: bool) -> bool {
        self.load.fetch_add(1, Ordering::Relaxed);
        let command = match serves {
            true => Command::Adopt(accepted),
            false => Command::TurnAway(accepted),
        };
        let is_taken = match self.post(command) {
            Err(Command::Adopt(accepted)) => self.post(Command::TurnAway(accepted)).is_ok(),
            posted => posted.is_ok(),
        };
        if !is_taken {
            self.load.fetch_sub(1, Ordering::Relaxed);
        }
        is_taken
    }

    /// Queues a command. It comes back if the loop is over, and a wake or a close if the id is
    /// stale.
    pub(crate) fn post(&self, command: Command) -> Result<(), Command> {
        let mut inbox = self.lock();
        let begins = matches!(command, Command::Dial(_) | Command::AddListener(_));
        if inbox.closed || inbox.stops && begins {
            return Err(command);
        }
        if matches!(command, Command::Adopt(_)) {
            if inbox.accepted >= MOST_ACCEPTED {
                return Err(command);
            }
            inbox.accepted += 1;
        }
        inbox.stops |= matches!(command, Command::Stop);
        // Under the lock: a connection that moves takes what is in the inbox for it along.
        if let Command::Wake(id) | Command::Close(id) = &command
            && !self.heads.contains(*id)
        {
            return Err(command);
        }
        if let Command::Wake(id) = &command
            && !inbox.waking.insert(id.number())
        {
            return Ok(());
        }
        // One wake or close per connection is enough: so the queue stays bounded.
        if let Command::Close(id) = &command
            && !inbox.closing.insert(id.number())
        {
            return Ok(());
        }
        // No listener has a higher number.
        if let Command::CloseListener(listener) = &command
            && (*listener >= MOST_LISTENERS || !inbox.unlisted.insert(*listener))
        {
            return Ok(());
        }
        // Every loop and thread that shuts down tells all loops.
        if let Command::Stop = &command
            && std::mem::replace(&mut inbox.stopping, true)
        {
            return Ok(());
        }
        inbox.commands.push(command);
        drop(inbox);
        // Refused only if the watcher is closed: then nothing looks into the inbox any more.
        let _ = self.submitter.wake_once(self.token, &self.posted);
        Ok(())
    }
}
