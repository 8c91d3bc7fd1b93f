//! A connection of a client: its commands, and the replies that wait for the log.

use std::collections::VecDeque;

use windlass::Buf;
use windlass_serve::Id;
use windlass_serve::framing::Input;
use windlass_serve::memory::Charge;

use crate::log::Shared;
use crate::resp::{self, Commands};
use crate::store::{Demand, Store};

/// A client is served until so many bytes of replies wait for it, and again when they are sent. A
/// reply can be longer than its command by far. (Tests meet this limit often.)
pub(crate) const MOST_REPLIES: usize = if cfg!(test) { 4 << 10 } else { 256 << 10 };

/// The state of a connection.
#[derive(Default)]
pub(crate) struct Client {
    input: Input,
    commands: Commands,
    held: VecDeque<Held>,
    /// The bytes of all that is held.
    held_bytes: usize,
    /// Whether commands wait until replies are sent.
    has_more: bool,
    /// What happens behind the last reply.
    end: Option<End>,
    /// The client sends nothing more.
    is_eof: bool,
}

/// Replies that wait until a group of writes is on the disk.
struct Held {
    /// The number of the group.
    group: u64,
    replies: Vec<u8>,
    /// The bytes of the replies, and of the writes in the log.
    bytes: usize,
}

/// What ends with the last reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Connection,
    Server,
}

/// What is to be done when some commands of a client are done.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Turn {
    /// The client has asked to be woken.
    pub(crate) wakes: bool,
    /// This ends behind the replies.
    pub(crate) end: Option<End>,
}

impl Client {
    /// A string of a command has at most so many bytes. What has come of a command counts for
    /// `charge`.
    pub(crate) fn limit(&mut self, most_bulk: usize, charge: Charge) {
        self.commands = Commands::up_to(most_bulk);
        self.input.charge_to(charge);
    }

    /// Takes in what the client has sent.
    pub(crate) fn push(&mut self, data: Buf) {
        self.input.push(data);
    }

    /// The client sends nothing more.
    pub(crate) fn finish(&mut self) {
        self.is_eof = true;
    }

    /// Whether commands wait until replies are sent.
    pub(crate) fn has_more(&self) -> bool {
        self.has_more
    }

    /// Does what the client has asked, and appends the replies that may leave to `out`. `waiting`
    /// bytes of earlier replies are not sent yet.
    pub(crate) fn serve(
        &mut self,
        shared: &Shared,
        id: Id,
        waiting: usize,
        out: &mut Vec<u8>,
    ) -> Turn {
        let mut store = shared.lock();
        let mut turn = Turn::default();
        self.release(store.durable(), out);
        if self.end.is_none() {
            let room = MOST_REPLIES.saturating_sub(waiting + self.held_bytes + out.len());
            let (start, logged) = (out.len(), store.logged_bytes());
            self.has_more = self.execute(&mut store, room, out, &mut turn.wakes);
            let group = store.barrier();
            if group > 0 && out.len() > start {
                let replies = out.split_off(start);
                let bytes = replies.len() + store.logged_bytes() - logged;
                self.held_bytes += bytes;
                self.held.push_back(Held { group, replies, bytes });
                store.wait(id);
                shared.notify(store);
            }
        }
        if self.is_eof && !self.has_more {
            self.end.get_or_insert(End::Connection);
        }
        turn.end = self.end.filter(|_| self.held.is_empty());
        turn
    }

    /// Does commands until `room` bytes of replies and of writes in the log are there. Returns
    /// whether more may wait.
    fn execute(
        &mut self,
        store: &mut Store,
        room: usize,
        out: &mut Vec<u8>,
        wakes: &mut bool,
    ) -> bool {
        let most = out.len() + store.logged_bytes() + room;
        while out.len() + store.logged_bytes() < most {
            let frame = match self.input.next(&mut self.commands) {
                Ok(None) => return false,
                Ok(Some(frame)) => Ok(frame),
                Err(error) => Err(error),
            };
            let command = frame.and_then(|frame| {
                let command = self.commands.command(&frame)?;
                Ok(store.execute(command, out))
            });
            match command {
                Ok(Demand::None) => {}
                Ok(Demand::Wake) => *wakes = true,
                Ok(Demand::Quit) => self.end = Some(End::Connection),
                Ok(Demand::Shutdown) => self.end = Some(End::Server),
                Err(error) => {
                    resp::error(out, &format!("Protocol error: {error}"));
                    self.end = Some(End::Connection);
                }
            }
            if self.end.is_some() {
                return false;
            }
        }
        true
    }

    /// The replies that wait for groups up to `durable` may leave.
    fn release(&mut self, durable: u64, out: &mut Vec<u8>) {
        while self.held.front().is_some_and(|held| held.group <= durable) {
            if let Some(held) = self.held.pop_front() {
                self.held_bytes -= held.bytes;
                out.extend_from_slice(&held.replies);
            }
        }
    }
}
