//! The keys and their values, what each command does, and the writes that the log has not taken
//! yet.

use std::collections::HashMap;
use std::mem;

use windlass_serve::Id;

use crate::resp::{self, Command};

/// The keys and their values. All loops share one store.
#[derive(Default)]
pub(crate) struct Store {
    values: HashMap<Box<[u8]>, Vec<u8>>,
    /// Without a log, writes are not kept.
    group: Option<Group>,
    /// The loop of the log waits for work; it is to end.
    pub(crate) log_sleeps: bool,
    pub(crate) ends: bool,
}

/// The writes that go to the log together, and the connections that wait for them.
struct Group {
    /// Groups have numbers from 1 on.
    number: u64,
    commands: Vec<u8>,
    waiting: Vec<Id>,
    /// All groups up to this one are on the disk.
    durable: u64,
}

/// Writes for the log, and the connections that wait until they are on the disk.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) number: u64,
    pub(crate) commands: Vec<u8>,
    pub(crate) waiting: Vec<Id>,
}

/// What a command demands besides its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Demand {
    None,
    /// To wake the connection from another thread.
    Wake,
    /// To close the connection.
    Quit,
    /// To end the server.
    Shutdown,
}

impl Store {
    /// A store that collects all writes for a log.
    pub(crate) fn logged() -> Store {
        let group = Group { number: 1, commands: Vec::new(), waiting: Vec::new(), durable: 0 };
        Store { group: Some(group), ..Store::default() }
    }

    #[cfg(test)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.values.iter().map(|(key, value)| (&**key, &**value))
    }

    /// Does what a command says, and appends its reply to `out`.
    pub(crate) fn execute(&mut self, command: Command<'_>, out: &mut Vec<u8>) -> Demand {
        if command.len() == 0 {
            return Demand::None;
        }
        let mut name = [0; 8];
        let given = command.get(0);
        if let Some(name) = name.get_mut(..given.len()) {
            name.copy_from_slice(given);
            name.make_ascii_uppercase();
        }
        let name = name.get(..given.len()).unwrap_or_default();
        match (name, command.len()) {
            (b"PING", 1) => resp::simple(out, "PONG"),
            (b"PING" | b"ECHO", 2) => resp::bulk(out, command.get(1)),
            (b"GET", 2) => match self.values.get(command.get(1)) {
                Some(value) => resp::bulk(out, value),
                None => resp::null(out),
            },
            (b"SET", 3) => {
                self.set(command.get(1), command.get(2));
                self.log(command);
                resp::simple(out, "OK");
            }
            (b"SET", 4..) => resp::error(out, "syntax error"),
            (b"DEL", 2..) => {
                let keys = command.iter().skip(1);
                let removed = keys.filter(|key| self.values.remove(*key).is_some()).count();
                if removed > 0 {
                    self.log(command);
                }
                resp::integer(out, removed);
            }
            (b"WAKE", 1) => {
                resp::simple(out, "OK");
                return Demand::Wake;
            }
            (b"QUIT", 1) => {
                resp::simple(out, "OK");
                return Demand::Quit;
            }
            (b"SHUTDOWN", 1..) => {
                resp::simple(out, "OK");
                return Demand::Shutdown;
            }
            // What redis-benchmark and redis-cli ask when they start.
            (b"CONFIG", 3) => {
                resp::array(out, 2);
                resp::bulk(out, command.get(2));
                resp::bulk(out, b"");
            }
            (b"COMMAND", _) => resp::array(out, 0),
            (b"PING" | b"ECHO" | b"GET" | b"SET" | b"DEL" | b"WAKE" | b"QUIT", _) => {
                let name = given.escape_ascii();
                resp::error(out, &format!("wrong number of arguments for '{name}' command"));
            }
            _ => {
                let name = given[..given.len().min(64)].escape_ascii();
                resp::error(out, &format!("unknown command '{name}'"));
            }
        }
        Demand::None
    }

    /// Does what a command of the log says, which no group collects again. False if it is none that
    /// a log has.
    pub(crate) fn replay(&mut self, command: Command<'_>) -> bool {
        match (command.iter().next(), command.len()) {
            (Some(name), 3) if name.eq_ignore_ascii_case(b"SET") => {
                self.set(command.get(1), command.get(2));
            }
            (Some(name), 2..) if name.eq_ignore_ascii_case(b"DEL") => {
                command.iter().skip(1).for_each(|key| drop(self.values.remove(key)));
            }
            _ => return false,
        }
        true
    }

    fn set(&mut self, key: &[u8], value: &[u8]) {
        if let Some(old) = self.values.get_mut(key) {
            old.clear();
            old.extend_from_slice(value);
            // A short value must not keep the memory of a longer one.
            if old.capacity() / 4 > value.len() {
                old.shrink_to_fit();
            }
        } else {
            self.values.insert(key.into(), value.to_vec());
        }
    }

    fn log(&mut self, command: Command<'_>) {
        if let Some(group) = &mut self.group {
            command.write(&mut group.commands);
        }
    }

    /// The group that must be on the disk before a reply may tell the contents of the store; 0 if
    /// all of the store is on the disk.
    pub(crate) fn barrier(&self) -> u64 {
        let Some(group) = &self.group else { return 0 };
        let last = group.number - u64::from(group.commands.is_empty());
        if last > group.durable { last } else { 0 }
    }

    /// How many bytes of writes the next group has.
    pub(crate) fn logged_bytes(&self) -> usize {
        self.group.as_ref().map_or(0, |group| group.commands.len())
    }

    /// The number of the last group on the disk.
    pub(crate) fn durable(&self) -> u64 {
        self.group.as_ref().map_or(u64::MAX, |group| group.durable)
    }

    /// A connection is woken when the writes that wait now are on the disk.
    pub(crate) fn wait(&mut self, connection: Id) {
        if let Some(group) = &mut self.group {
            group.waiting.push(connection);
        }
    }

    /// The writes that wait: the next ones are in another group.
    pub(crate) fn take(&mut self) -> Option<Taken> {
        let group = self.group.as_mut()?;
        if group.commands.is_empty() && group.waiting.is_empty() {
            return None;
        }
        let number = group.number;
        group.number += 1;
        let commands = mem::take(&mut group.commands);
        Some(Taken { number, commands, waiting: mem::take(&mut group.waiting) })
    }

    /// A group is on the disk, and all before it are.
    pub(crate) fn commit(&mut self, number: u64) {
        if let Some(group) = &mut self.group {
            group.durable = number;
        }
    }
}
