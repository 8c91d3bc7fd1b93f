//! The adapter for the crate `tracing`.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Mutex, MutexGuard};

use ::tracing::field::{DebugValue, debug};
use ::tracing::level_filters::{LevelFilter, STATIC_MAX_LEVEL};
use ::tracing::{Span, event, span};

use super::{Field, Level, Log, LogEvent, Record};
use crate::words::id::Id;

/// Passes the records to the subscriber of the crate [`tracing`] as events, and makes a span for
/// each connection.
///
/// The span has the name `connection`, the level `DEBUG` and the target `windlass_serve`. It begins
/// when the connection is opened, and ends when it is closed or detached. The events of a
/// connection are in its span. Without a subscriber that wants `DEBUG`, there are no spans.
///
/// ```
/// use windlass_serve::{Config, log::ToTracing};
/// static LOG: ToTracing = ToTracing::new();
/// let config = Config::new().log(&LOG);
/// ```
#[derive(Debug)]
pub struct ToTracing {
    /// The spans of open connections, by the numbers of their ids.
    spans: Mutex<BTreeMap<u64, Span>>,
}

impl ToTracing {
    /// An adapter without spans. Use one for each server or engine: several servers give the same
    /// ids to their connections.
    pub const fn new() -> ToTracing {
        ToTracing { spans: Mutex::new(BTreeMap::new()) }
    }

    /// The span of an open connection, for spans and events of the program in it. A disabled span
    /// if the connection has none.
    ///
    /// ```
    /// use windlass::Buf;
    /// use windlass_serve::{Action, Conn, Handler, log::ToTracing};
    ///
    /// static LOG: ToTracing = ToTracing::new();
    /// struct Echo;
    /// impl Handler for Echo {
    ///     type State = ();
    ///     fn data(&mut self, c: &mut Conn<'_, ()>, data: Buf) -> Action {
    ///         let _in_span = LOG.span(c.id()).entered();
    ///         tracing::trace!(bytes = data.len(), "data");
    ///         c.write(data);
    ///         Action::None
    ///     }
    /// }
    /// ```
    pub fn span(&self, id: Id) -> Span {
        self.lock().get(&id.number()).cloned().unwrap_or_else(Span::none)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Span>> {
        self.spans.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Default for ToTracing {
    fn default() -> ToTracing {
        ToTracing::new()
    }
}

fn level(level: Level) -> ::tracing::Level {
    match level {
        Level::Error => ::tracing::Level::ERROR,
        Level::Warn => ::tracing::Level::WARN,
        Level::Info => ::tracing::Level::INFO,
        Level::Debug => ::tracing::Level::DEBUG,
    }
}

/// The fields of a record, as the event of a call site needs them.
#[derive(Default)]
struct Fields<'a> {
    numbers: [Option<u64>; NUMBERS.len()],
    values: [Option<DebugValue<&'a dyn Debug>>; VALUES.len()],
    server: Option<&'a str>,
    panic: Option<&'a str>,
}

const NUMBERS: [&str; 11] = [
    "loop",
    "id",
    "listener",
    "unsent",
    "age_ms",
    "used",
    "limit",
    "connections",
    "descriptor_shortages",
    "unfinished",
    "from",
];
const VALUES: [&str; 7] = ["address", "peer", "error", "cause", "phase", "option", "reason"];

impl<'a> Fields<'a> {
    fn of(record: &'a Record<'a>) -> Fields<'a> {
        let mut fields = Fields::default();
        record.fields(|name, field| match field {
            Field::Number(number) => {
                let at = NUMBERS.iter().position(|other| *other == name);
                fields.numbers[at.expect("its name is in the list")] = Some(number);
            }
            Field::Value(value) => {
                let at = VALUES.iter().position(|other| *other == name);
                fields.values[at.expect("its name is in the list")] = Some(debug(value));
            }
            Field::Text(text) if name == "server" => fields.server = Some(text),
            Field::Text(text) => fields.panic = Some(text),
        });
        fields
    }
}

impl Log for ToTracing {
    fn enabled(&self, wanted: Level) -> bool {
        // The end of a connection of any level ends its span.
        let wanted = level(wanted);
        wanted <= STATIC_MAX_LEVEL && wanted <= LevelFilter::current() || !self.lock().is_empty()
    }

    fn log(&self, record: &Record<'_>) {
        let fields = Fields::of(record);
        let [number, id, listener, unsent, age, used, limit, rest @ ..] = fields.numbers;
        let [connections, shortages, unfinished, from] = rest;
        let [address, peer, error, cause, phase, option, reason] = &fields.values;
        if let (LogEvent::Opened { .. } | LogEvent::Moved { .. }, Some(id)) = (&record.event, id) {
            let span = span!(
                target: "windlass_serve", parent: None, ::tracing::Level::DEBUG, "connection",
                server = fields.server, loop = number, id, listener, peer
            );
            if !span.is_disabled() {
                self.lock().insert(id, span);
            }
        }
        let is_last = matches!(record.event, LogEvent::Closed { .. } | LogEvent::Detached { .. });
        let span = match id {
            Some(id) if is_last => self.lock().remove(&id),
            Some(id) => self.lock().get(&id).cloned(),
            None => None,
        };
        let parent = span.as_ref().and_then(Span::id);
        macro_rules! tell {
            ($level:ident) => {
                event!(
                    target: "windlass_serve", parent: parent, ::tracing::Level::$level,
                    server = fields.server, loop = number, id, listener, address, peer, error,
                    cause, unsent, phase, age_ms = age, used, limit, option, reason,
                    panic = fields.panic, connections, descriptor_shortages = shortages,
                    unfinished, from,
                    "{}", record.event.words()
                )
            };
        }
        match record.level() {
            Level::Error => tell!(ERROR),
            Level::Warn => tell!(WARN),
            Level::Info => tell!(INFO),
            Level::Debug => tell!(DEBUG),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_the_same() {
        let all = [Level::Error, Level::Warn, Level::Info, Level::Debug];
        // In `tracing` the most important level is the least, too.
        assert!(all.map(level).is_sorted());
    }
}
