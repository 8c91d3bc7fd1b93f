//! What the program has asked for, and the next flush does.

use std::time::Duration;

use windlass::net::{ConnectOptions, SocketOption};
use windlass::{Address, Handle, Op, Refusal as Reason, Refused as Rejected, Ticket};

use crate::words::id::Id;

/// A request of the program, which the next `flush` carries out.
pub(crate) enum Request {
    Connect(Id, Vec<Address>, ConnectOptions),
    Attach(Id, Handle),
    /// A UDP client begins.
    Client(Id, ClientSocket),
    Tick(Duration),
    /// The idle time of a connection begins again.
    Idle(Id),
    IdleTimeout(Id, Option<Duration>),
    /// The idle time of a connection has passed.
    Idled(Id),
    /// The handshake of an upgrade begins or is over, or its clock changes.
    Upgrade(Id),
    /// The reads of a connection with a limit have stopped, or go on.
    Reads(Id),
    /// The watcher has refused the poll for the end of a peer.
    Watch(Id),
    /// The time of a connection is new, or it is time to look.
    Allowances,
    Option(Id, SocketOption),
    /// The watcher has refused to accept, or to receive, from this listener.
    Accept(usize),
    CloseListener(usize),
    /// Another thread adds a listener.
    AddListener(Handle),
    /// The watcher has refused the timer for the pause of this listener.
    Pause(usize),
    /// The watcher has refused the timer of the sweep.
    Sweep,
    /// The watcher has refused the timer of the sessions.
    Expiry,
    /// The watcher has refused a receive of this client.
    Receive(Id),
    /// A deadline is new, or has passed.
    Deadlines,
    /// The connection of a job has ended, or a timer has no purpose any more.
    Cancel(Ticket),
}

/// The socket of a UDP client.
pub(crate) enum ClientSocket {
    /// It is to be made, and connected to this address.
    To(Address),
    /// The program has it.
    Given(Handle),
}

/// Whether the watcher has refused an operation that it may take after the next completions.
pub(crate) fn is_full(submitted: Result<Ticket, Rejected<Op>>) -> bool {
    matches!(submitted, Err(Rejected { reason: Reason::Full { .. }, .. }))
}
