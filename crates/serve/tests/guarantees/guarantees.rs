//! The guarantees of a server, on every driver.
//!
//! Of the promises on the page of the crate: P1, P3, P4 and P5.

use crate::common::{Harness, bench, bench_with};
use windlass::{Buf, ErrorKind, Watcher};
use windlass_serve::{
    Action, Cause, Closed, Config, Conn, Context, Detached, Handler, Limits, Origin, Server,
};

crate::every_driver! {
    what_is_written_in_a_turn_leaves_as_one_write
    a_peer_that_does_not_read_stops_being_read
    output_that_stalls_ends_its_connection
    a_write_above_the_cap_ends_its_connection
    above_the_budget_those_that_hold_most_are_closed
    an_idle_connection_ends_and_a_paused_one_does_not
    a_close_gives_up_after_its_limit
    data_before_the_end_is_delivered_and_answered
    data_that_is_held_back_comes_in_order
    a_detached_connection_keeps_every_byte
    a_connection_too_many_hears_a_farewell
    drained_is_told_at_the_low_mark
    a_program_that_writes_in_drained_sends_all
    a_reset_is_a_cause
    a_shutdown_reports_what_it_gives_up
}

type Callback<S> = Box<dyn FnMut(&mut Conn<'_, S>) -> Action>;
type DataCallback<S> = Box<dyn FnMut(&mut Conn<'_, S>, Buf) -> Action>;

/// A handler made of closures.
struct Made<S> {
    opened: Callback<S>,
    data: DataCallback<S>,
    ended: Callback<S>,
    on_drained: Callback<S>,
    drained: usize,
    writes: Vec<(usize, usize)>,
    closed: Vec<(Cause, usize)>,
    detached: Vec<Detached<S>>,
}

impl<S> Default for Made<S> {
    fn default() -> Made<S> {
        Made {
            opened: Box::new(|_| Action::None),
            data: Box::new(|_, _| Action::None),
            ended: Box::new(|_| Action::Close),
            on_drained: Box::new(|_| Action::None),
            drained: 0,
            writes: Vec::new(),
            closed: Vec::new(),
            detached: Vec::new(),
        }
    }
}

impl<S: Default + 'static> Handler for Made<S> {
    type State = S;

    fn opened(&mut self, c: &mut Conn<'_, S>, _: Origin) -> Action {
        (self.opened)(c)
    }
    fn data(&mut self, c: &mut Conn<'_, S>, data: Buf) -> Action {
        assert!(!data.is_empty());
        (self.data)(c, data)
    }
    fn eof(&mut self, c: &mut Conn<'_, S>) -> Action {
        (self.ended)(c)
    }
    fn wake(&mut self, _: &mut Conn<'_, S>) -> Action {
        Action::None
    }
    fn drained(&mut self, c: &mut Conn<'_, S>) -> Action {
        self.drained += 1;
        (self.on_drained)(c)
    }
    fn postwrite(&mut self, _: &mut Conn<'_, S>, amount: usize, remaining: usize) -> Action {
        self.writes.push((amount, remaining));
        Action::None
    }
    fn closed(&mut self, _: &mut Context<'_, S>, closed: Closed<S>) -> Action {
        self.closed.push((closed.cause, closed.unsent));
        Action::None
    }
    fn detached(&mut self, _: &mut Context<'_, S>, detached: Detached<S>) -> Action {
        self.detached.push(detached);
        Action::None
    }
}

/// A server of one handler, which is made once.
fn server<S: Default + 'static>(
    made: Made<S>,
    config: Config,
) -> Server<impl Fn(usize) -> Made<S>> {
    let made = std::cell::RefCell::new(Some(made));
    let server = Server::new(move |_| made.borrow_mut().take().expect("one loop"));
    server.config(config).listen("tcp://127.0.0.1:0").expect("an address")
}

fn echo() -> Made<()> {
    let data = |c: &mut Conn<'_, ()>, data: Buf| {
        c.write(data);
        Action::None
    };
    Made { data: Box::new(data), ..Made::default() }
}

fn config(limits: Limits) -> Config {
    Config::new().limits(limits)
}

fn what_is_written_in_a_turn_leaves_as_one_write<T: Harness>() {
    let data = |c: &mut Conn<'_, ()>, data: Buf| {
        c.write_slice(b"<");
        c.write(data);
        c.write("> and ");
        c.write(vec![b'x'; 5000]);
        for _ in 0..3 {
            c.write_slice(b"1234567890");
        }
        Action::None
    };
    let made = Made { data: Box::new(data), ..Made::default() };
    let mut bench = bench::<T, _, _>(server(made, Config::new()));
    let client = bench.connect();
    bench.say(client, "h"); // one byte: a network with faults tears longer messages
    let text = format!("<h> and {}{}", "x".repeat(5000), "1234567890".repeat(3));
    bench.until("it has heard all", |bench| bench.client(client).heard.len() >= text.len());
    assert_eq!(String::from_utf8_lossy(&bench.client(client).heard), text);
    let turns = bench.running.handler().writes.len();
    assert_eq!(bench.running.report().counters.writes as usize, turns);
    let amounts: usize = bench.running.handler().writes.iter().map(|(amount, _)| amount).sum();
    assert_eq!(amounts, text.len());
}

fn a_peer_that_does_not_read_stops_being_read<T: Harness>() {
    let limits = Limits::new().marks(64 << 10, 256 << 10);
    let mut bench = bench::<T, _, _>(server(echo(), config(limits)));
    let client = bench.connect_deaf();
    for _ in 0..100 {
        bench.say(client, vec![1; 1 << 20]);
    }
    bench.until("output waits", |bench| {
        let engine = bench.running.engine();
        let id = engine.ids().next();
        id.is_some_and(|id| engine.waiting(id) > 0)
    });
    bench.run_for(T::span(20.0));
    let id = bench.running.engine().ids().next().unwrap();
    let waiting = bench.running.engine().waiting(id);
    // One more lease may be on its way when the reads stop.
    assert!(waiting > 0 && waiting < 8 << 20, "{waiting} bytes wait");
    assert_eq!(bench.running.engine().budget().used(), waiting);
    assert!(bench.client(client).said < 50 << 20);
}

fn output_that_stalls_ends_its_connection<T: Harness>() {
    let limits = Limits::new().write_stall(T::span(30.0));
    let made = Made {
        opened: Box::new(|c| {
            c.write(vec![0; 30 << 20]);
            Action::None
        }),
        ..echo()
    };
    let mut bench = bench::<T, _, _>(server(made, config(limits)));
    bench.connect_deaf();
    let start = bench.watcher.update_now();
    bench.until("it is closed", |bench| !bench.running.handler().closed.is_empty());
    let took = bench.watcher.update_now() - start;
    assert!(took >= T::span(30.0) / 2, "too early: {took:?}");
    let closed = &bench.running.handler().closed;
    assert!(matches!(closed[..], [(Cause::WriteStall, unsent)] if unsent > 0), "{closed:?}");
    assert_eq!(bench.running.engine().budget().used(), 0);
}

fn a_write_above_the_cap_ends_its_connection<T: Harness>() {
    let data = |c: &mut Conn<'_, ()>, _: Buf| {
        assert!(c.write(vec![1; 60]) && c.write_slice(&[2; 40]));
        assert!(!c.write("!"));
        Action::None
    };
    let made = Made { data: Box::new(data), ..Made::default() };
    let mut bench = bench::<T, _, _>(server(made, config(Limits::new().cap(100))));
    let client = bench.connect();
    bench.say(client, "g");
    bench.until("it is closed", |bench| !bench.running.handler().closed.is_empty());
    assert_eq!(bench.running.handler().closed, [(Cause::Overflow, 100)]);
    assert_eq!(bench.running.report().counters.ends.overflow, 1);
}

fn above_the_budget_those_that_hold_most_are_closed<T: Harness>() {
    // Each client asks for as many MiB as it says, and does not read them.
    let data = |c: &mut Conn<'_, ()>, data: Buf| {
        c.write(vec![1; usize::from(data[0]) << 20]);
        Action::None
    };
    let made = Made { data: Box::new(data), ..Made::default() };
    let limits = Limits::new().memory(40 << 20).write_stall(None);
    let mut bench = bench::<T, _, _>(server(made, config(limits)));
    let mut clients = Vec::new();
    for size in [3u8, 20, 3, 9, 3, 3] {
        let client = bench.connect_deaf();
        bench.say(client, [size].to_vec());
        clients.push(client);
        let asked = clients.len();
        bench.until("it is answered", |bench| {
            bench.running.report().counters.writes as usize == asked
        });
        bench.run_for(T::span(5.0));
        assert!(bench.running.engine().budget().used() <= 30 << 20, "the reserve is free again");
    }
    // The largest one is closed when the next large one comes: the rest fits then.
    let closed = bench.running.handler().closed.clone();
    assert!(matches!(closed[..], [(Cause::Shed, unsent)] if unsent > 15 << 20), "{closed:?}");
    let mut live: Vec<u64> = bench.running.engine().ids().map(|id| id.number() / 65_536).collect();
    live.sort_unstable();
    assert_eq!(live, [1, 3, 4, 5, 6]);
    assert_eq!(bench.running.report().counters.ends.shed, 1);
}

fn an_idle_connection_ends_and_a_paused_one_does_not<T: Harness>() {
    let data = |c: &mut Conn<'_, ()>, data: Buf| {
        if &*data == b"p" {
            c.pause();
        }
        Action::None
    };
    let made = Made { data: Box::new(data), ..Made::default() };
    let limits = Limits::new().idle(T::span(40.0));
    let mut bench = bench::<T, _, _>(server(made, config(limits)));
    let (silent, paused) = (bench.connect(), bench.connect());
    bench.say(paused, "p");
    let start = bench.watcher.update_now();
    bench.until("one is closed", |bench| !bench.running.handler().closed.is_empty());
    let took = bench.watcher.update_now() - start;
    assert!(took >= T::span(40.0), "too early: {took:?}");
    assert_eq!(bench.running.handler().closed, [(Cause::Idle, 0)]);
    bench.until("it sees that", |bench| bench.client(silent).is_over());
    bench.run_for(T::span(100.0));
    assert!(!bench.client(paused).is_over());
    // From the resume on its time counts again.
    let id = bench.running.engine().ids().next().unwrap();
    bench.running.engine().resume(id);
    bench.running.turn(&mut bench.watcher);
    bench.until("the other is closed", |bench| bench.running.handler().closed.len() == 2);
    assert_eq!(bench.running.handler().closed[1], (Cause::Idle, 0));
}

fn a_close_gives_up_after_its_limit<T: Harness>() {
    let made = Made {
        data: Box::new(|c: &mut Conn<'_, ()>, _| {
            c.write(vec![0; 30 << 20]);
            Action::Close
        }),
        ..Made::default()
    };
    let limits = Limits::new().close(T::span(30.0));
    let mut bench = bench::<T, _, _>(server(made, config(limits)));
    let client = bench.connect_deaf();
    bench.say(client, "g");
    bench.until("it is closed", |bench| !bench.running.handler().closed.is_empty());
    let closed = &bench.running.handler().closed;
    assert!(matches!(closed[..], [(Cause::Closed, unsent)] if unsent > 0), "{closed:?}");
}

fn data_before_the_end_is_delivered_and_answered<T: Harness>() {
    let made = Made {
        data: Box::new(|c: &mut Conn<'_, usize>, data| {
            *c.state() += data.len();
            Action::None
        }),
        ended: Box::new(|c| {
            let answer = format!("{} bytes", c.state());
            c.write(answer);
            Action::Close
        }),
        ..Made::default()
    };
    let mut bench = bench::<T, _, _>(server(made, Config::new().close_on_eof(false)));
    let client = bench.connect();
    bench.say(client, vec![1; 10 << 20]);
    bench.finish(client);
    bench.until("it is answered", |bench| bench.client(client).eof);
    assert_eq!(bench.client(client).heard, b"10485760 bytes");
    bench.until("it is closed", |bench| bench.running.engine().is_empty());
    assert_eq!(bench.running.handler().closed, [(Cause::Closed, 0)]);
}

fn data_that_is_held_back_comes_in_order<T: Harness>() {
    let data = |c: &mut Conn<'_, Vec<u8>>, data: Buf| {
        c.state().extend_from_slice(&data);
        c.pause();
        Action::None
    };
    let made = Made { data: Box::new(data), ..Made::default() };
    let mut bench = bench::<T, _, _>(server(made, Config::new().close_on_eof(false)));
    let client = bench.connect();
    let said: Vec<u8> = (0..500_000u32).map(|i| (i ^ i >> 8) as u8).collect();
    for piece in said.chunks(1000) {
        bench.say(client, piece.to_vec());
    }
    bench.until("it is connected", |bench| bench.running.engine().len() == 1);
    let id = bench.running.engine().ids().next().unwrap();
    bench.until("all has arrived", |bench| {
        let heard = bench.running.engine().state(id).expect("it lives");
        assert!(said.starts_with(heard), "in order");
        let is_all = heard.len() == said.len();
        if !is_all {
            // As another thread would: then a wait returns at once.
            bench.running.engine().resume(id);
            bench.running.remote().wake(id);
        }
        is_all
    });
    assert_eq!(bench.running.engine().budget().used(), 0);
}

fn a_detached_connection_keeps_every_byte<T: Harness>() {
    let data = |c: &mut Conn<'_, usize>, data: Buf| {
        *c.state() += data.len();
        c.write(vec![b'.'; 1 << 20]);
        Action::Detach
    };
    let made = Made { data: Box::new(data), ..Made::default() };
    let mut bench = bench::<T, _, _>(server(made, Config::new()));
    let client = bench.connect();
    let said: Vec<u8> = (0..300_000u32).map(|i| (i ^ i >> 8) as u8).collect();
    bench.say(client, said.clone());
    bench.finish(client);
    bench.until("it is detached", |bench| !bench.running.handler().detached.is_empty());
    bench.until("all was heard", |bench| bench.client(client).heard.len() == 1 << 20);
    let detached = bench.running.handler().detached.pop().unwrap();
    let mut found: Vec<u8> = detached.undelivered.iter().flat_map(|part| part.to_vec()).collect();
    let heard = detached.state;
    assert!(heard > 0 && said[heard..].starts_with(&found), "what was read ahead");
    // The rest is in the socket.
    if !detached.eof {
        let mut done = windlass::Completions::new();
        let rest = said.len() - heard - found.len();
        let source = bench.watcher.attach(detached.handle).unwrap();
        let read = windlass::Op::read_exact(source, Vec::with_capacity(rest), rest).token(9);
        if rest > 0 {
            bench.watcher.submit(read).unwrap();
            while !done.iter().any(|c: &windlass::Completion| c.token == 9) {
                bench.watcher.wait(&mut done).unwrap();
            }
            let mut c = done.drain(..).find(|c| c.token == 9).unwrap();
            found.extend_from_slice(&c.take_buf());
        }
    }
    assert!(said[heard..] == found, "{} of {} bytes", heard + found.len(), said.len());
    assert!(bench.running.handler().closed.is_empty(), "detached, not closed");
    assert!(bench.running.engine().is_empty());
    assert_eq!(bench.running.report().counters.detached, 1);
}

fn a_connection_too_many_hears_a_farewell<T: Harness>() {
    let config = config(Limits::new().connections(2)).farewell(b"full\n");
    let mut bench = bench::<T, _, _>(server(echo(), config));
    let clients: Vec<_> = (0..2).map(|_| bench.connect()).collect();
    bench.until("two are open", |bench| bench.running.engine().len() == 2);
    let refused = bench.connect();
    bench.until("one is refused", |bench| bench.client(refused).is_over());
    assert_eq!(bench.client(refused).heard, b"full\n");
    assert!(bench.client(refused).eof);
    assert_eq!(bench.running.report().counters.refused, 1);
    bench.finish(clients[0]);
    bench.until("one has left", |bench| bench.running.engine().len() == 1);
    let late = bench.connect();
    bench.say(late, "hello");
    bench.until("there is room again", |bench| bench.client(late).heard == b"hello");
}

/// A program that makes data without end stops while it is full. The kernel can take all in one
/// flush, and the program hears of that, too.
fn a_program_that_writes_in_drained_sends_all<T: Harness>() {
    for (marks, piece) in [((64 << 10, 256 << 10), 300 << 10), ((1 << 10, 2 << 10), 3000)] {
        let all = 40 * piece;
        let write = move |c: &mut Conn<'_, usize>| {
            while !c.is_full() && *c.state() < all {
                assert!(c.write(vec![7; piece]));
                *c.state() += piece;
            }
        };
        let made = Made {
            data: Box::new(move |c: &mut Conn<'_, usize>, _| {
                write(c);
                Action::None
            }),
            on_drained: Box::new(move |c: &mut Conn<'_, usize>| {
                assert!(!c.is_full());
                write(c);
                Action::None
            }),
            ..Made::default()
        };
        let limits = Limits::new().marks(marks.0, marks.1);
        let mut bench = bench::<T, _, _>(server(made, config(limits)));
        let client = bench.connect();
        bench.say(client, "g");
        bench.until("all was heard", |bench| bench.client(client).heard.len() == all);
        bench.until("it is told each time", |bench| bench.running.handler().drained == 40);
    }
}

fn drained_is_told_at_the_low_mark<T: Harness>() {
    let made = Made {
        data: Box::new(|c: &mut Conn<'_, ()>, _| {
            c.write(vec![0; 4 << 20]);
            Action::None
        }),
        ..Made::default()
    };
    let limits = Limits::new().marks(1 << 10, 64 << 10);
    let mut bench = bench::<T, _, _>(server(made, config(limits)));
    let client = bench.connect();
    bench.say(client, "g");
    bench.until("all was heard", |bench| bench.client(client).heard.len() == 4 << 20);
    bench.until("it says so", |bench| bench.running.handler().drained > 0);
    assert_eq!(bench.running.handler().drained, 1);
    bench.until("nothing is charged", |bench| bench.running.engine().budget().used() == 0);
}

fn a_reset_is_a_cause<T: Harness>() {
    let builder = Watcher::builder();
    let mut bench = bench_with::<T, _, _>(builder, server(echo(), Config::new()));
    let client = bench.connect();
    bench.say(client, vec![1; 100]);
    bench.until("it is answered", |bench| bench.client(client).heard.len() == 100);
    // Unread data makes a reset of the close.
    bench.deafen(client);
    bench.say(client, vec![1; 100]);
    bench.until("it is answered", |bench| bench.running.handler().writes.len() >= 2);
    bench.watcher.abort(client);
    bench.until("it is closed", |bench| !bench.running.handler().closed.is_empty());
    let closed = &bench.running.handler().closed;
    let reset = ErrorKind::Os(104);
    let expected = matches!(reset, ErrorKind::Os(errno) if closed[0].0 == Cause::Os(errno));
    // The system may end it in order, when the bytes had not arrived before the close.
    assert!(expected || closed[0].0 == Cause::Eof, "{closed:?}");
}

fn a_shutdown_reports_what_it_gives_up<T: Harness>() {
    let made = Made {
        data: Box::new(|c: &mut Conn<'_, ()>, data: Buf| {
            c.write(vec![0; if data[0] == b'm' { 30 << 20 } else { 10 }]);
            Action::None
        }),
        ..Made::default()
    };
    let limits = Limits::new().close(T::span(30.0));
    let mut bench = bench::<T, _, _>(server(made, config(limits)));
    let (deaf, good) = (bench.connect_deaf(), bench.connect());
    bench.say(deaf, "m");
    bench.say(good, "l");
    bench.until("both are answered", |bench| {
        bench.running.report().counters.writes == 2 && bench.client(good).heard.len() == 10
    });
    let start = bench.watcher.update_now();
    bench.running.remote().shutdown();
    bench.until("it is over", |bench| bench.running.is_over());
    let took = bench.watcher.update_now() - start;
    assert!(took >= T::span(30.0) && bench.client(good).eof, "{took:?}");
    let report = bench.running.report();
    assert!(matches!(report.unfinished[..], [left] if left.unsent > 0), "{:?}", report.unfinished);
    assert_eq!(report.counters.ends.shutdown, 2);
    assert_eq!(bench.running.engine().budget().used(), 0);
}
