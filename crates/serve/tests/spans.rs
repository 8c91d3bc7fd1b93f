//! Spans of operations: each accepted operation has exactly one, however it ends.
#![allow(missing_docs)] // a test binary has no users
#![cfg(feature = "tracing")]

mod common;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::{Harness, PATIENCE};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Dispatch, Event, Metadata};
use windlass::driver::{Driver, OpCode};
use windlass::net::{ConnectOptions, DatagramOptions};
use windlass::{
    Completion, Completions, ErrorKind, Op, Refusal, Source, SourceKind, Ticket, Watcher,
};
use windlass_serve::log::{Traced, TracedSubmitter};
use windlass_serve::{Action, Conn, Handler, Server};

/// The fields of a span, and whether it is open.
#[derive(Clone, Debug, Default)]
struct Seen {
    fields: BTreeMap<&'static str, String>,
    parent: Option<u64>,
    /// How many handles there are besides the first one.
    clones: usize,
    is_closed: bool,
}

impl Visit for Seen {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.fields.insert(field.name(), format!("{value:?}"));
    }
}

impl Seen {
    fn is(&self, name: &str, value: impl Debug) -> bool {
        self.fields.get(name).is_some_and(|field| *field == format!("{value:?}"))
    }

    fn ended(&self, result: &str) -> bool {
        self.is_closed && self.fields.get("result").is_some_and(|field| field.contains(result))
    }
}

/// Keeps every span of the target.
#[derive(Clone)]
struct Spans {
    all: Arc<Mutex<Vec<Seen>>>,
    /// The spans that threads are in. (The tests enter one on one thread only.)
    entered: Arc<Mutex<Vec<u64>>>,
    most: tracing::Level,
}

impl Spans {
    fn new(most: tracing::Level) -> Spans {
        Spans { all: Arc::default(), entered: Arc::default(), most }
    }

    /// All spans of operations so far.
    fn all(&self) -> Vec<Seen> {
        self.all.lock().unwrap().clone()
    }

    fn open(&self) -> usize {
        self.all().iter().filter(|span| !span.is_closed).count()
    }

    /// The only span of a ticket.
    #[track_caller]
    fn of(&self, ticket: Ticket) -> Seen {
        let all = self.all();
        let found: Vec<_> = all.iter().filter(|span| span.is("ticket", ticket)).collect();
        assert_eq!(found.len(), 1, "{ticket:?}: {all:?}");
        found[0].clone()
    }
}

impl tracing::Subscriber for Spans {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "windlass_serve" && *metadata.level() <= self.most
    }
    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let mut span = Seen::default();
        assert!(attributes.is_contextual());
        span.parent = self.entered.lock().unwrap().last().copied();
        attributes.record(&mut span);
        let mut all = self.all.lock().unwrap();
        all.push(span);
        Id::from_u64(all.len() as u64)
    }
    fn record(&self, id: &Id, values: &Record<'_>) {
        let span = &mut self.all.lock().unwrap()[id.into_u64() as usize - 1];
        assert!(!span.is_closed);
        values.record(span);
    }
    fn clone_span(&self, id: &Id) -> Id {
        self.all.lock().unwrap()[id.into_u64() as usize - 1].clones += 1;
        id.clone()
    }
    fn try_close(&self, id: Id) -> bool {
        let span = &mut self.all.lock().unwrap()[id.into_u64() as usize - 1];
        if span.clones > 0 {
            span.clones -= 1;
            return false;
        }
        assert!(!std::mem::replace(&mut span.is_closed, true), "closed twice: {span:?}");
        true
    }
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {}
    fn enter(&self, id: &Id) {
        self.entered.lock().unwrap().push(id.into_u64());
    }
    fn exit(&self, id: &Id) {
        let left = self.entered.lock().unwrap().pop();
        assert_eq!(left, Some(id.into_u64()));
    }
}

/// A traced watcher, and the spans of its operations.
struct Bench<D: Driver> {
    watcher: Watcher<Traced<D>>,
    spans: Spans,
    ended: Vec<Completion>,
}

impl<D: Driver> Bench<D> {
    fn new<T: Harness<Driver = D>>(spans: &Spans) -> Bench<D> {
        let watcher = Traced::watcher(T::watcher(Watcher::builder()));
        Bench { watcher, spans: spans.clone(), ended: Vec::new() }
    }

    fn submit(&mut self, op: Op) -> Ticket {
        self.watcher.submit(op).unwrap()
    }

    fn submitter(&mut self) -> TracedSubmitter {
        self.watcher.driver_mut().traced_submitter()
    }

    /// Takes completions until `is_there`.
    #[track_caller]
    fn until(&mut self, what: &str, is_there: impl Fn(&Bench<D>) -> bool) {
        let (mut done, by) = (Completions::new(), Instant::now() + PATIENCE);
        while !is_there(self) {
            assert!(Instant::now() < by, "waited for {what}");
            self.watcher.wait_timeout(&mut done, Duration::from_millis(10)).unwrap();
            self.ended.extend(done.drain(..));
        }
    }

    /// The final completion of an operation.
    #[track_caller]
    fn end(&mut self, ticket: Ticket) -> Completion {
        let is_it = |c: &Completion| c.ticket() == ticket && !c.has_more();
        self.until("the end of an operation", |bench| bench.ended.iter().any(is_it));
        let at = self.ended.iter().position(is_it).unwrap();
        self.ended.remove(at)
    }

    /// A connection: its two ends, and the operations that made them.
    fn pair(&mut self) -> (Source, Source, [Ticket; 2]) {
        let listener = self.watcher.listen(([127, 0, 0, 1], 0)).unwrap();
        let at = self.watcher.local_address(listener).unwrap();
        let accept = self.submit(Op::accept(listener).token(3));
        let options = ConnectOptions::default().token(4);
        let (here, connect) = self.watcher.connect(vec![at], options).unwrap();
        self.end(connect).result.unwrap();
        let socket = self.end(accept).take_handle().unwrap();
        let there = self.watcher.attach(socket).unwrap();
        self.watcher.abort(listener);
        (here, there, [accept, connect])
    }

    /// Reads so many bytes, and returns how many operations this took.
    fn read(&mut self, source: Source, len: usize) -> Ticket {
        let read = self.submit(Op::read_exact(source, vec![0; len], len));
        assert_eq!(self.end(read).bytes(), len);
        read
    }
}

/// Runs a test with a subscriber of this thread.
fn subscribed(test: impl FnOnce(&Spans)) {
    let spans = Spans::new(tracing::Level::TRACE);
    tracing::subscriber::with_default(spans.clone(), || test(&spans));
}

every_driver! {
    every_end_of_an_operation_ends_its_span
    quiet_writes_have_spans
    operations_of_other_threads_have_spans
    a_driver_that_goes_ends_its_spans
    a_span_is_a_child_and_has_children
    waits_of_every_kind_end_spans
    a_server_has_spans
    a_datagram_socket_has_a_peer_through_it
}

fn every_end_of_an_operation_ends_its_span<T: Harness>() {
    subscribed(|spans| {
        let mut b = Bench::new::<T>(spans);
        let (here, there, [accept, connect]) = b.pair();
        for (ticket, code, token) in [(accept, "Accept", "3"), (connect, "Connect", "4")] {
            let span = spans.of(ticket);
            assert!(span.fields["code"] == code && span.fields["token"] == token, "{span:?}");
            assert!(span.ended("done") && span.is("completions", 1), "{span:?}");
            assert!(span.fields.contains_key("duration_us"));
        }
        // Done, with bytes.
        let write = b.submit(Op::write(here, "hello").token(7));
        let read = b.read(there, 5);
        b.end(write);
        for (ticket, code, source) in [(write, "Write", here), (read, "ReadExact", there)] {
            let span = spans.of(ticket);
            assert!(span.fields["code"] == code && span.is("source", source), "{span:?}");
            assert!(span.ended("done") && span.is("bytes", 5), "{span:?}");
        }
        // A multishot read is one operation. In flight, its span is open.
        let many = b.submit(Op::read(there).multishot());
        for _ in 0..3 {
            let write = b.submit(Op::write(here, "four"));
            b.end(write);
        }
        let bytes = |b: &Bench<T::Driver>| b.ended.iter().map(Completion::bytes).sum::<usize>();
        b.until("twelve bytes", |b| bytes(b) == 12);
        assert!(!spans.of(many).is_closed);
        assert!(b.watcher.cancel(many));
        let completions = b.ended.len() + 1;
        b.end(many);
        let span = spans.of(many);
        assert!(span.ended("Cancelled") && span.is("bytes", 12), "{span:?}");
        assert!(span.is("completions", completions), "{span:?}");
        // A deadline, a timer, an abort, a close of the watcher, a refusal.
        let late = b.submit(Op::read(there).timeout(Duration::from_millis(5)));
        assert_eq!(b.end(late).error_kind(), Some(ErrorKind::Deadline));
        let span = spans.of(late);
        assert!(span.ended("Deadline"), "{span:?}");
        let took: u64 = span.fields["duration_us"].parse().unwrap();
        assert!((5000..20_000_000).contains(&took), "{span:?}");
        let aborted = [b.submit(Op::read(there)), b.submit(Op::read(there))];
        b.watcher.abort(there);
        aborted.iter().for_each(|ticket| drop(b.end(*ticket)));
        assert!(aborted.iter().all(|ticket| spans.of(*ticket).ended("Aborted")));
        let before = spans.all().len();
        let refused = b.watcher.submit(Op::read(there)).unwrap_err();
        assert_eq!((refused.reason, spans.all().len()), (Refusal::Stale, before));
        let closed = b.submit(Op::timer(Duration::from_secs(9999)));
        b.watcher.close();
        b.end(closed);
        assert!(spans.of(closed).ended("Closed"));
        assert_eq!(spans.open(), 0);
        assert_eq!(spans.all().len() as u64, b.watcher.counters().submitted);
    });
}

fn quiet_writes_have_spans<T: Harness>() {
    subscribed(|spans| {
        let mut b = Bench::new::<T>(spans);
        let (here, there, _) = b.pair();
        // The first one may go another way than the next ones.
        let small: Vec<_> = (0..3).map(|_| b.submit(Op::write(here, "abc").quiet())).collect();
        b.read(there, 9);
        let large = b.submit(Op::write(here, vec![1; 4 << 20]).quiet());
        let behind = b.submit(Op::write(here, "def").quiet());
        assert_eq!(spans.open(), 2);
        b.read(there, (4 << 20) + 3);
        b.until("the writes are out", |b| b.spans.open() == 0);
        let all = small.iter().map(|ticket| (*ticket, 3)).chain([(large, 4 << 20), (behind, 3)]);
        for (ticket, bytes) in all {
            let span = spans.of(ticket);
            assert!(span.ended("done") && span.is("bytes", bytes), "{span:?}");
            assert!(span.is("completions", 0));
        }
        // Other ends have a completion. On a connection of their own: the buffers of the first one
        // have grown with what was read, and may take the whole large write.
        let (here, _there, _) = b.pair();
        let large = b.submit(Op::write(here, vec![1; 8 << 20]).quiet());
        let cancelled = b.submit(Op::write(here, "ghi").quiet());
        assert!(b.watcher.cancel(cancelled));
        b.end(cancelled);
        let span = spans.of(cancelled);
        assert!(span.ended("Cancelled") && span.is("bytes", 0), "{span:?}");
        assert!(!spans.of(large).is_closed);
        b.watcher.abort(here);
        let bytes = b.end(large).bytes();
        let span = spans.of(large);
        assert!(span.ended("Aborted") && span.is("bytes", bytes), "{span:?}");
        let counters = b.watcher.counters();
        assert_eq!((counters.quiet_done, spans.open()), (5, 0));
        assert_eq!(spans.all().len() as u64, counters.submitted);
    });
}

fn operations_of_other_threads_have_spans<T: Harness>() {
    subscribed(|spans| {
        let mut b = Bench::new::<T>(spans);
        let (here, there, _) = b.pair();
        let traced = b.submitter();
        let plain = traced.submitter().clone();
        let dispatch = Dispatch::new(spans.clone());
        let before = spans.all().len();
        let submitted = std::thread::spawn(move || {
            tracing::dispatcher::with_default(&dispatch, || {
                for _ in 0..20 {
                    traced.submit(Op::write(here, "quiet").quiet()).unwrap();
                }
                let write = traced.submit(Op::write(here, "hello")).unwrap();
                let read = traced.submit(Op::read_exact(there, vec![0; 105], 105)).unwrap();
                let stale = traced.submit(Op::read(Source::NONE)).unwrap();
                let timer = plain.submit(Op::timer(Duration::from_millis(1))).unwrap();
                plain.post(1, ()).unwrap();
                (vec![write, read, stale], timer)
            })
        });
        let (traced, timer) = submitted.join().unwrap();
        for ticket in traced.iter().copied().chain([timer]) {
            b.end(ticket);
        }
        b.until("the quiet writes are out", |b| b.spans.open() == 0);
        assert!(spans.of(traced[0]).ended("done") && spans.of(traced[0]).is("bytes", 5));
        assert!(spans.of(traced[1]).is("bytes", 105));
        assert!(spans.of(traced[2]).ended("Aborted"));
        assert!(traced.iter().all(|t| spans.of(*t).fields.contains_key("duration_us")));
        // What a plain submitter has submitted.
        let span = spans.of(timer);
        assert!(span.ended("done") && !span.fields.contains_key("duration_us"), "{span:?}");
        assert_eq!(spans.all().len() - before, 24, "the message has none");
        b.until("the message", |b| b.ended.len() == 1);
        // After the loop, a submission is refused.
        let traced = b.submitter();
        drop(b);
        assert_eq!(traced.submit(Op::nop()).unwrap_err().reason, Refusal::Closed);
        assert_eq!((spans.open(), spans.all().len() - before), (0, 24));
    });
}

fn a_driver_that_goes_ends_its_spans<T: Harness>() {
    subscribed(|spans| {
        let mut b = Bench::new::<T>(spans);
        let (here, _there, _) = b.pair();
        let before = spans.all().len();
        b.submit(Op::read(here));
        b.submit(Op::write(here, vec![0; 8 << 20]).quiet());
        let traced = b.submitter();
        traced.submit(Op::timer(Duration::from_secs(9999))).unwrap();
        assert_eq!(spans.open(), 3);
        drop(b);
        assert_eq!((spans.open(), spans.all().len()), (0, before + 3));
        assert!(spans.all()[before..].iter().all(|span| !span.fields.contains_key("result")));
        // The driver inside goes on without spans.
        let mut b = Bench::new::<T>(spans);
        b.submit(Op::timer(Duration::from_millis(1)));
        let traced = b.submitter();
        traced.submit(Op::nop()).unwrap();
        let mut watcher = Watcher::with_driver(b.watcher.into_driver().into_inner());
        assert_eq!(spans.open(), 0);
        traced.submit(Op::nop()).unwrap();
        assert_eq!(watcher.wait_at_least(&mut Completions::new(), 3, PATIENCE).unwrap(), 3);
        assert_eq!((spans.open(), spans.all().len()), (0, before + 5));
    });
}

fn a_span_is_a_child_and_has_children<T: Harness>() {
    subscribed(|spans| {
        let mut b = Bench::new::<T>(spans);
        let timer = b.submit(Op::timer(Duration::from_millis(1)));
        let span = b.watcher.driver().span(timer);
        assert!(!span.is_disabled());
        let nop = span.in_scope(|| b.submit(Op::nop()));
        let parent = span.id().map(|id| id.into_u64());
        drop(span);
        b.end(nop);
        b.end(timer);
        assert_eq!((spans.of(timer).parent, spans.of(nop).parent), (None, parent));
        assert!(b.watcher.driver().span(timer).is_disabled());
        assert_eq!(spans.open(), 0);
    });
    // Without a subscriber that wants them there are none.
    let spans = Spans::new(tracing::Level::DEBUG);
    tracing::subscriber::with_default(spans.clone(), || {
        let mut b = Bench::new::<T>(&spans);
        let (here, _there, _) = b.pair();
        let quiet = b.submit(Op::write(here, "abc").quiet());
        assert!(b.watcher.driver().span(quiet).is_disabled());
        let nop = b.submitter().submit(Op::nop()).unwrap();
        b.end(nop);
        assert!(spans.all().is_empty());
    });
}

/// UDP clients of an engine need the kind of a source, and sockets with a peer.
fn a_datagram_socket_has_a_peer_through_it<T: Harness>() {
    subscribed(|spans| {
        let mut bench = Bench::new::<T>(spans);
        let mut bind = || {
            let options = DatagramOptions::default();
            bench.watcher.bind_datagram(([127, 0, 0, 1], 0), options).unwrap()
        };
        let (here, there) = (bind(), bind());
        let at = bench.watcher.local_address(there).unwrap();
        assert_eq!(bench.watcher.kind(here), Ok(SourceKind::Datagram));
        bench.watcher.connect_datagram(here, at.clone()).unwrap();
        assert_eq!(bench.watcher.peer_address(here), Ok(at));
    });
}

fn waits_of_every_kind_end_spans<T: Harness>() {
    subscribed(|spans| {
        let mut b = Bench::new::<T>(spans);
        let timers = [1, 3, 2].map(|ms| b.submit(Op::timer(Duration::from_millis(ms))));
        let nop = b.submitter().submit(Op::nop()).unwrap();
        assert_eq!(b.watcher.wait_for(timers[1]).unwrap().ticket(), timers[1]);
        assert!(spans.of(timers[1]).ended("done"));
        assert_eq!(spans.open(), 3, "the others wait for delivery");
        let mut done = Completions::new();
        b.submit(Op::nop());
        assert_eq!(b.watcher.wait_at_least(&mut done, 4, PATIENCE).unwrap(), 4);
        assert!(spans.of(nop).ended("done") && spans.open() == 0);
        // What was in the batch before is not counted again.
        b.submit(Op::nop());
        assert_eq!(b.watcher.wait(&mut done).unwrap(), 1);
        assert_eq!((done.len(), spans.all().len(), spans.open()), (5, 6, 0));
        assert!(spans.all().iter().all(|span| span.is("completions", 1)));
    });
}

struct Echo;

impl Handler for Echo {
    type State = ();
    fn data(&mut self, c: &mut Conn<'_, ()>, data: windlass::Buf) -> Action {
        c.write(data);
        Action::None
    }
}

fn a_server_has_spans<T: Harness>() {
    subscribed(|spans| {
        let mut watcher = Traced::watcher(T::watcher(Watcher::builder()));
        let server = Server::new(|_| Echo).listen("tcp://127.0.0.1:0").unwrap();
        let mut running = server.start_on(&mut watcher).unwrap();
        let listener = running.engine().listeners()[0];
        let at = watcher.local_address(listener).unwrap();
        let (client, _) = watcher.connect(vec![at], ConnectOptions::default().token(1)).unwrap();
        watcher.submit(Op::write(client, "hello").token(1)).unwrap();
        watcher.submit(Op::read_exact(client, vec![0; 5], 5).token(1)).unwrap();
        let (mut done, by) = (Completions::new(), Instant::now() + PATIENCE);
        let (mut heard, mut messages) = (0, 0);
        while !running.is_over() {
            assert!(Instant::now() < by, "waited for the end of the server");
            watcher.wait_timeout(&mut done, Duration::from_millis(10)).unwrap();
            for c in done.drain(..) {
                messages += usize::from(c.code() == OpCode::Message);
                let Some(c) = running.complete(&mut watcher, c) else { continue };
                heard += c.bytes();
                if heard == 10 {
                    running.remote().shutdown();
                }
            }
            running.turn(&mut watcher);
        }
        watcher.close();
        while watcher.wait(&mut done).is_ok() {}
        messages += done.iter().filter(|c| c.code() == OpCode::Message).count();
        assert_eq!(spans.open(), 0);
        let echoed = |span: &&Seen| span.is("code", OpCode::Write);
        assert_eq!(spans.all().iter().filter(echoed).count(), 2, "the client's and the server's");
        assert!(messages > 0, "the shutdown is one");
        assert_eq!((spans.all().len() + messages) as u64, watcher.counters().submitted);
    });
}
