//! The data and connections that wait on a network, as text, to find out why a test stands still.

use std::fmt::{self, Write};

use crate::sim::Sim;
use crate::sim::names::Name;
use crate::sim::world::{Role, WAITING, World};

/// Most lines of each part.
const MOST_LINES: usize = 20;

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Name::None => f.write_str("(unnamed)"),
            Name::Ip(ip) => ip.fmt(f),
            Name::Path(path) => path.display().fmt(f),
            Name::Abstract(name) => write!(f, "@{}", name.escape_ascii()),
        }
    }
}

/// Adds lines with an indent, [`MOST_LINES`] at most.
pub(crate) fn add_lines(text: &mut String, lines: impl IntoIterator<Item = String>) {
    let mut lines = lines.into_iter();
    for line in lines.by_ref().take(MOST_LINES) {
        // Writing to a string does not fail.
        let _ = writeln!(text, "  {line}");
    }
    let rest = lines.count();
    if rest > 0 {
        let _ = writeln!(text, "  … and {rest} more");
    }
}

impl World {
    /// The name of a socket: its addresses.
    pub(super) fn title(&self, index: u32) -> String {
        let Some(socket) = self.sockets.get(index as usize) else { return "the process".into() };
        match &socket.role {
            Role::Vacant => "a closed socket".into(),
            Role::Crashed => "what a crashed machine had".into(),
            Role::Signals { .. } => "signals".into(),
            Role::Child(child) => format!("child {}", child.pid()),
            Role::File(_) => "a file".into(),
            Role::Listener(_) => format!("{} listens", socket.local),
            Role::Datagram(_) => format!("{} datagrams", socket.local),
            Role::Stream => format!("{} -> {}", socket.local, socket.remote),
        }
    }

    /// The bytes or connections that wait at a socket for its program, if any do.
    fn waiting(&self, index: u32) -> Option<String> {
        let socket = &self.sockets[index as usize];
        let what = match &socket.role {
            Role::Listener(listener) if !listener.backlog.is_empty() => {
                format!("{} connections to accept", listener.backlog.len())
            }
            Role::Datagram(mailbox) if !mailbox.letters.is_empty() => {
                format!("{} datagrams unread", mailbox.letters.len())
            }
            Role::Signals { pending: 1.., .. } => "not taken".into(),
            Role::Child(child) if child.ended.is_none() && self.has_ended(child.pid()) => {
                "has ended, not reaped".into()
            }
            Role::Stream if !socket.in_flight.is_empty() => {
                let hidden = socket.ring.count() - socket.ring.readable();
                format!("{} messages on their way here, {hidden} bytes", socket.in_flight.len())
            }
            Role::Stream if socket.flags & WAITING != 0 => "connects to a full listener".into(),
            Role::Stream if !socket.ring.is_empty() => {
                format!("{} bytes unread", socket.ring.count())
            }
            _ => return None,
        };
        Some(format!("{}: {what}", self.title(index)))
    }
}

impl Sim {
    /// The data that waits on the network, as text: bytes that no program has read, and connections
    /// that no program has accepted. [`Sim::run`] adds it to its error when no event is left.
    pub fn report(&self) -> String {
        let world = self.enter();
        let mut text = String::from("on the network:\n");
        let waiting = (0..world.sockets.len() as u32).filter_map(|index| world.waiting(index));
        let before = text.len();
        add_lines(&mut text, waiting);
        let cuts = world.links.cuts().map(|(a, b)| format!("{a} and {b}: cut off from each other"));
        add_lines(&mut text, cuts);
        if text.len() == before {
            text.push_str("  nothing waits\n");
        }
        text
    }
}
