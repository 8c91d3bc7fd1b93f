//! The adapters for the crates `log` and `tracing`, with a real logger and a real subscriber.
#![allow(missing_docs)] // a test binary has no users
#![cfg(all(feature = "log", feature = "tracing"))]

mod common;

use std::io;
use std::sync::{Arc, Mutex};

use common::{Bench, Harness, Simulated, bench};
use log::kv::{self, Key, Value, VisitSource};
use tracing_subscriber::fmt::format::FmtSpan;
use windlass::Buf;
use windlass::driver::Driver;
use windlass_serve::log::{Level, Log, ToLog, ToTracing};
use windlass_serve::{Action, Config, Conn, Handler, Id, Limits, Server};

/// Echoes, or does what its peer asks for. It says so in the span of its connection.
struct Says(Option<&'static ToTracing>);

impl Handler for Says {
    type State = ();
    fn data(&mut self, c: &mut Conn<'_, ()>, data: Buf) -> Action {
        let _in_span = self.0.map(|log| log.span(c.id()).entered());
        tracing::info!(bytes = data.len(), "data");
        match &*data {
            b"panic" => panic!("a callback fails, as it is to"),
            b"close" => return Action::Close,
            b"detach" => return Action::Detach,
            _ => _ = c.write(data),
        }
        Action::None
    }
}

/// A server with three connections: one panics, one is refused, and one waits.
fn served<T: Harness>(
    log: &'static dyn Log,
    spans: Option<&'static ToTracing>,
) -> (Bench<T::Driver, Says>, windlass::Source) {
    let limits = Limits::new().idle(None).connections(2);
    let config = Config::new().name("api").limits(limits).log(log);
    let server = Server::new(|_| Says(spans)).config(config).listen("tcp://127.0.0.1:0").unwrap();
    let mut bench = bench::<T, _, _>(server);
    let panics = bench.connect();
    bench.until("it is open", |bench| bench.running.report().counters.accepted == 1);
    let waits = bench.connect();
    bench.until("it is open", |bench| bench.running.report().counters.accepted == 2);
    bench.connect();
    bench.until("it is refused", |bench| bench.running.report().counters.refused == 1);
    bench.say(panics, "panic");
    bench.until("it is over", |bench| bench.running.engine().len() == 1);
    (bench, waits)
}

fn end<D: Driver>(bench: &mut Bench<D, Says>) {
    bench.running.remote().shutdown();
    bench.until("the server is over", |bench| bench.running.is_over());
}

/// What the logger of this process has got: the level, the text, and the pairs.
static LOGGED: Mutex<Vec<(log::Level, String, String)>> = Mutex::new(Vec::new());

struct Logger;

impl log::Log for Logger {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }
    fn log(&self, record: &log::Record<'_>) {
        struct Pairs(String);
        impl<'kvs> VisitSource<'kvs> for Pairs {
            fn visit_pair(&mut self, key: Key<'kvs>, value: Value<'kvs>) -> Result<(), kv::Error> {
                self.0 += &format!("{key}={value} ");
                Ok(())
            }
        }
        assert_eq!(record.target(), "windlass_serve");
        let mut pairs = Pairs(String::new());
        record.key_values().visit(&mut pairs).unwrap();
        LOGGED.lock().unwrap().push((record.level(), record.args().to_string(), pairs.0));
    }
    fn flush(&self) {}
}

/// The logger is the process's: one test has it.
#[test]
fn a_logger_gets_texts_and_pairs() {
    log::set_logger(&Logger).unwrap();
    log::set_max_level(log::LevelFilter::Warn);
    assert!(ToLog.enabled(Level::Warn) && !ToLog.enabled(Level::Info));
    let (mut bench, _) = served::<Simulated>(&ToLog, None);
    {
        let logged = LOGGED.lock().unwrap();
        assert_eq!(logged.len(), 2, "{logged:?}");
        let (level, text, pairs) = &logged[0];
        assert_eq!(*level, log::Level::Warn);
        assert!(text.starts_with("connection refused listener=0 peer=127.0.0.1:"), "{text}");
        assert!(text.ends_with(" cause=Connections"), "{text}");
        assert!(pairs.starts_with("server=api loop=0 listener=0 peer=127.0.0.1:"), "{pairs}");
        assert!(pairs.ends_with(" cause=Connections "), "{pairs}");
        let (level, text, pairs) = &logged[1];
        assert_eq!(*level, log::Level::Error);
        assert_eq!(text, "callback panicked id=65536 message=\"a callback fails, as it is to\"");
        assert_eq!(pairs, "server=api loop=0 id=65536 message=a callback fails, as it is to ");
    }
    log::set_max_level(log::LevelFilter::Debug);
    end(&mut bench);
    let logged = LOGGED.lock().unwrap();
    let (level, text, pairs) = &logged[3];
    assert_eq!(*level, log::Level::Debug, "{logged:?}");
    assert!(text.starts_with("connection closed id=131072 cause=Shutdown unsent=0"), "{text}");
    assert!(
        pairs.starts_with("server=api loop=0 id=131072 cause=Shutdown unsent=0 phase=Open age_ms=")
    );
    assert_eq!((logged[4].0, &logged[4].1[..]), (log::Level::Info, "shutdown ended unfinished=0"));
    assert_eq!(logged.len(), 5);
}

/// The lines that a subscriber has written.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Lines {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    /// The lines with these words.
    fn with(&self, words: &str) -> Vec<String> {
        self.text().lines().filter(|line| line.contains(words)).map(str::to_owned).collect()
    }
}

/// A subscriber of this thread, up to a level.
fn subscribed(most: tracing::Level) -> (Lines, tracing::subscriber::DefaultGuard) {
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(most)
        .with_span_events(FmtSpan::NEW | FmtSpan::CLOSE)
        .without_time()
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    (lines, tracing::subscriber::set_default(subscriber))
}

fn spans() -> &'static ToTracing {
    Box::leak(Box::new(ToTracing::new()))
}

#[test]
fn a_connection_is_a_span_with_its_events() {
    let (lines, _guard) = subscribed(tracing::Level::DEBUG);
    let log = spans();
    let (mut bench, waits) = served::<Simulated>(log, Some(log));
    // The span of the program's own event is that of the connection.
    bench.say(waits, "hello");
    bench.until("it is answered", |bench| bench.client(waits).heard == b"hello");
    end(&mut bench);
    let text = lines.text();
    for (id, cause) in [(65536, "Panicked"), (131072, "Shutdown")] {
        let of = lines
            .with(&format!("connection{{server=\"api\" loop=0 id={id} listener=0 peer=127.0.0.1:"));
        let ends = [
            ": windlass_serve: new",
            ": windlass_serve: connection opened ",
            ": windlass_serve: connection closed ",
            ": windlass_serve: close ",
        ];
        for what in ends {
            let count = of.iter().filter(|line| format!("{line} ").contains(what)).count();
            assert_eq!(count, 1, "{what}: {text}");
        }
        assert!(
            of[0].contains(ends[0]) && of.last().unwrap().ends_with(ends[3].trim_end()),
            "{text}"
        );
        let closed = of.iter().find(|line| line.contains(ends[2])).unwrap();
        assert!(closed.contains(&format!("cause={cause} unsent=0 phase=Open age_ms=")), "{text}");
        assert!(of.iter().any(|line| line.contains(": log_adapters: data bytes=5")), "{text}");
    }
    let panicked = lines.with("callback panicked");
    assert!(panicked.len() == 1 && panicked[0].trim_start().starts_with("ERROR connection{"));
    assert!(panicked[0].ends_with("panic=\"a callback fails, as it is to\""), "{text}");
    for words in ["listening", "connection refused", "shutdown begun", "shutdown ended"] {
        let found = lines.with(words);
        assert!(found.len() == 1 && !found[0].contains("connection{"), "{words}: {text}");
    }
}

#[test]
fn without_debug_there_are_no_spans() {
    let (lines, _guard) = subscribed(tracing::Level::WARN);
    let log = spans();
    let (mut bench, _) = served::<Simulated>(log, Some(log));
    let ids: Vec<Id> = bench.running.engine().ids().collect();
    assert!(ids.iter().all(|id| log.span(*id).is_none()) && ids.len() == 1);
    end(&mut bench);
    assert_eq!(lines.text().lines().count(), 2, "{}", lines.text());
    assert_eq!(lines.with("WARN windlass_serve: connection refused").len(), 1);
    assert_eq!(lines.with("ERROR windlass_serve: callback panicked").len(), 1);
}

#[test]
fn a_detached_connection_ends_its_span() {
    let (lines, _guard) = subscribed(tracing::Level::DEBUG);
    let log = spans();
    let (mut bench, waits) = served::<Simulated>(log, Some(log));
    let id = bench.running.engine().ids().next().unwrap();
    assert!(!log.span(id).is_disabled());
    bench.say(waits, "detach");
    bench.until("it is detached", |bench| bench.running.engine().is_empty());
    assert!(log.span(id).is_none());
    assert_eq!(lines.with("id=131072").iter().filter(|line| line.ends_with(": close")).count(), 1);
}
