//! Clients of an engine that speak plain first and then go over to TLS, against the handler of a
//! server, on every driver and in the simulation.

use std::time::Duration;

use crate::common::turns::Turns;
use crate::common::{Bench, Harness, bench};
use crate::tls;
use windlass::driver::Driver;
use windlass::net::{ConnectOptions, SocketOption};
use windlass::{Buf, Completions, Watcher};
use windlass_serve::framing::{Input, Lines};
use windlass_serve::tls::{
    CertificateProblem, Destination, Error, Provider, Tls, TlsBuilder, TlsClientBuilder, Version,
};
use windlass_serve::{
    Action, Cause, Closed, Config, Conn, Context, Engine, Event, Handler, Id, Limits, Origin,
    Refusal, Server,
};

crate::every_kernel! {
    both_ends_go_over_and_both_say_that_they_end
    what_is_written_before_and_behind_the_upgrade_keeps_its_place
    a_certificate_with_another_name_is_a_named_error
    a_client_goes_on_plain_where_the_server_refuses
    a_server_that_stays_plain_is_no_server_of_tls
    plain_bytes_behind_the_answer_are_not_told
    plain_bytes_that_the_client_holds_back_are_not_told
    a_silent_server_has_the_time_of_the_handshake
    a_server_that_ends_in_the_handshake_is_a_cause
    a_client_that_the_server_refuses_learns_why
    a_second_upgrade_to_the_same_server_resumes
    an_abort_in_each_turn_ends_both_ends_once
    a_close_behind_output_waits_for_the_server
    the_client_of_a_handler_goes_over
}

/// What the server does when a client asks for TLS.
#[derive(Clone, Copy, Debug, PartialEq)]
enum At {
    GoesOver,
    /// It says no, and stays plain.
    Refuses,
    /// It says that it goes over, and stays plain.
    StaysPlain,
    /// It goes over, and somebody between both ends puts a plain line behind its answer.
    Injects,
}

/// A connection at either end.
#[derive(Debug, Default)]
struct Talk {
    input: Input,
    secure: bool,
    is_client: bool,
}

impl Talk {
    /// The next line behind `P` for one that was plain, or `T` for one that was not.
    fn next(&mut self) -> Option<String> {
        let mark = if self.secure { 'T' } else { 'P' };
        let line = self.input.next(&mut Lines::new(2 << 20)).expect("a line");
        line.map(|line| format!("{mark} {}", String::from_utf8_lossy(&line)))
    }

    /// Nothing that was said before counts.
    fn goes_over(&mut self) {
        assert!(!self.secure && self.input.is_empty());
        self.secure = true;
    }
}

/// The server: it sends each line back, with its mark.
struct Serves {
    tls: Tls,
    at: At,
    heard: Vec<String>,
    closed: Vec<Closed<Talk>>,
    /// Whom its own connections trust, and what they have heard.
    to: Destination,
    as_client: Vec<String>,
}

impl Serves {
    fn client(&mut self, c: &mut Conn<'_, Talk>) {
        while let Some(line) = c.state().next() {
            self.as_client.push(line.clone());
            match &*line {
                "P hello" => _ = c.write("STARTTLS\n"),
                "P go" => {
                    let rest = c.state().input.take_rest();
                    c.upgrade(&self.to, rest).expect("it is plain");
                    return;
                }
                _ => {}
            }
        }
    }
}

impl Handler for Serves {
    type State = Talk;

    fn opened(&mut self, c: &mut Conn<'_, Talk>, origin: Origin) -> Action {
        c.state().is_client = origin.listener.is_none();
        if !c.state().is_client {
            c.write("hello\n");
        }
        Action::None
    }

    fn data(&mut self, c: &mut Conn<'_, Talk>, data: Buf) -> Action {
        c.state().input.push(data);
        if c.state().is_client {
            self.client(c);
            return Action::None;
        }
        while let Some(line) = c.state().next() {
            self.heard.push(line.clone());
            match (&*line, self.at) {
                ("P STARTTLS", At::Refuses) => _ = c.write("no\n"),
                ("P STARTTLS", At::StaysPlain) => _ = c.write("go\n"),
                (_, At::StaysPlain) => {} // part of a hello
                ("P STARTTLS", at) => {
                    c.write("go\n");
                    if at == At::Injects {
                        c.write("evil\n");
                    }
                    let rest = c.state().input.take_rest();
                    c.upgrade(&self.tls, rest).expect("it is plain");
                    return Action::None;
                }
                _ => _ = c.write(format!("{line}\n")),
            }
        }
        Action::None
    }

    fn upgraded(&mut self, c: &mut Conn<'_, Talk>) -> Action {
        c.state().goes_over();
        if c.state().is_client {
            c.write("secret\n");
        }
        Action::None
    }

    fn closed(&mut self, _: &mut Context<'_, Talk>, closed: Closed<Talk>) -> Action {
        self.closed.push(closed);
        Action::None
    }
}

/// How the client has ended.
#[derive(Debug)]
struct End {
    cause: Cause,
    unsent: usize,
    tls_error: Option<Error>,
}

/// A server, and the engine of a client, on one watcher.
struct Both<D: Driver> {
    bench: Bench<D, Serves>,
    client: Engine<()>,
    to: Destination,
    id: Id,
    talk: Talk,
    heard: Vec<String>,
    ends: Vec<End>,
    /// What the client writes in front of its upgrade, and in the same turn behind it.
    before: &'static str,
    behind: &'static str,
    /// Whether it asks for TLS in answer to the greeting, and goes over with the answer to that.
    asks: bool,
}

/// The limits of tests that are not about time: no clock of theirs runs out on a slow machine.
fn limits() -> Limits {
    Limits::new().idle(None).write_stall(None).handshake(Duration::from_secs(3600))
}

fn made() -> (TlsBuilder, TlsClientBuilder) {
    let (_, server, client) = tls::settings(Provider::Ring);
    (server, client)
}

impl<D: Driver> Both<D> {
    fn new<T: Harness<Driver = D>>(at: At) -> Both<D> {
        let (server, client) = made();
        Both::with::<T>(at, limits(), server, client, "localhost")
    }

    /// The limits are those of the client, and the name is that of the server, as it knows it.
    fn with<T: Harness<Driver = D>>(
        at: At,
        limits: Limits,
        tls: TlsBuilder,
        trust: TlsClientBuilder,
        name: &str,
    ) -> Both<D> {
        let (tls, trust) = (tls.build().unwrap(), trust.build().unwrap());
        let to = trust.to(name).unwrap();
        let server_to = to.clone();
        let make = move |_| Serves {
            tls: tls.clone(),
            at,
            heard: Vec::new(),
            closed: Vec::new(),
            to: server_to.clone(),
            as_client: Vec::new(),
        };
        let config = Config::new().limits(self::limits());
        let server = Server::new(make).config(config).listen("tcp://127.0.0.1:0").unwrap();
        let bench = bench::<T, _, _>(server);
        let mut client = Engine::new(config.limits(limits));
        let options = ConnectOptions::default();
        let id = client.connect([bench.addresses[0].clone()], options, ()).unwrap();
        let mut both = Both {
            bench,
            client,
            to,
            id,
            talk: Talk::default(),
            heard: Vec::new(),
            ends: Vec::new(),
            before: "",
            behind: "",
            asks: true,
        };
        both.flush();
        both
    }

    fn flush(&mut self) {
        self.client.flush(&mut self.bench.watcher);
        self.bench.running.turn(&mut self.bench.watcher);
    }

    #[track_caller]
    fn go(&mut self, what: &str, ready: impl FnMut(&mut Self) -> bool) {
        self.flush();
        self.until(what, ready);
    }

    fn say(&mut self, what: &str) {
        self.client.write(self.id, what.as_bytes().to_vec()).unwrap();
    }

    /// Both ends have agreed.
    #[track_caller]
    fn open(&mut self) {
        self.go("it has gone over", |both| both.talk.secure);
    }

    fn server(&mut self) -> &mut Serves {
        self.bench.running.handler()
    }

    /// The connection at the server.
    fn at_server(&mut self) -> Id {
        self.bench.running.engine().ids().next().expect("it is open")
    }

    /// The end of the client. The server may still have its own.
    #[track_caller]
    fn end(&mut self) -> End {
        self.go("the client has ended", |both| !both.ends.is_empty());
        assert_eq!((self.client.budget().used(), self.client.len()), (0, 0));
        let counted = &self.client.counters().handshakes;
        assert_eq!(counted.begun, counted.completed + counted.failed);
        let end = self.ends.pop().unwrap();
        assert!(self.ends.is_empty(), "it ends twice");
        end
    }

    /// The end of the server's connection.
    #[track_caller]
    fn server_end(&mut self) -> Closed<Talk> {
        self.go("the server's end", |both| !both.server().closed.is_empty());
        assert_eq!(self.bench.running.engine().budget().used(), 0);
        let counted = self.bench.running.report().counters.handshakes;
        assert_eq!(counted.begun, counted.completed + counted.failed);
        let end = self.server().closed.pop().unwrap();
        assert!(self.server().closed.is_empty(), "it ends twice");
        end
    }

    fn lines(&mut self) {
        while let Some(line) = self.talk.next() {
            self.heard.push(line.clone());
            match &*line {
                "P hello" if self.asks => self.say("STARTTLS\n"),
                "P go" => {
                    if !self.before.is_empty() {
                        self.say(self.before);
                    }
                    let rest = self.talk.input.take_rest();
                    self.client.upgrade(self.id, &self.to, rest).unwrap();
                    if !self.behind.is_empty() {
                        self.say(self.behind);
                    }
                    return;
                }
                _ => {}
            }
        }
    }

    fn events(&mut self) {
        while let Some(event) = self.client.next_event(&mut self.bench.watcher) {
            assert!(self.ends.is_empty(), "it has ended: {event:?}");
            match event {
                Event::Data { data, .. } => {
                    self.talk.input.push(data);
                    self.lines();
                }
                Event::Upgraded { .. } => self.talk.goes_over(),
                Event::Closed { cause, unsent, tls_error, .. } => {
                    let tls_error = tls_error.map(|error| *error);
                    self.ends.push(End { cause, unsent, tls_error });
                }
                Event::Opened { .. } | Event::Drained { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

impl<D: Driver> Turns for Both<D> {
    type Driver = D;

    fn watcher(&mut self) -> &mut Watcher<D> {
        &mut self.bench.watcher
    }

    fn turn(&mut self, span: Duration) -> usize {
        let mut done = Completions::new();
        let watcher = &mut self.bench.watcher;
        let count = watcher.wait_timeout(&mut done, span).unwrap();
        for completion in done.drain(..) {
            if let Some(foreign) = self.client.complete(watcher, completion) {
                let foreign = self.bench.running.complete(watcher, foreign);
                assert!(foreign.is_none(), "{foreign:?}");
            }
        }
        self.events();
        self.flush();
        count
    }
}

const PLAIN: [&str; 2] = ["P hello", "P go"];

fn both_ends_go_over_and_both_say_that_they_end<T: Harness>() {
    for version in [Version::Tls12, Version::Tls13] {
        let (server, client) = made();
        let client = client.versions([version]);
        let mut both = Both::with::<T>(At::GoesOver, limits(), server, client, "localhost");
        both.open();
        let line = "x".repeat(1 << 20);
        both.say(&format!("{line}\nlast\n"));
        both.go("it is answered", |both| both.heard.len() == 4);
        assert_eq!(both.heard[..2], PLAIN);
        assert_eq!(both.heard[2], format!("T T {line}"));
        assert_eq!(both.heard[3], "T T last");
        assert_eq!(both.server().heard[0], "P STARTTLS");
        let session = both.client.tls(both.id).unwrap();
        assert_eq!((session.version(), session.is_resumed()), (Some(version), false));
        assert_eq!(session.peer_certificates().len(), 1);
        let id = both.at_server();
        let session = both.bench.running.engine().tls(id).unwrap();
        assert_eq!(session.server_name(), Some("localhost"));
        both.client.close(both.id);
        let end = both.end();
        assert_eq!((end.cause, end.unsent), (Cause::Closed, 0));
        let end = both.server_end();
        assert_eq!((end.cause, end.unsent), (Cause::Eof, 0));
        let counted = &both.client.counters().handshakes;
        assert_eq!((counted.begun, counted.completed, counted.resumed), (1, 1, 0));
        assert!(counted.flights > 0);
    }
}

fn what_is_written_before_and_behind_the_upgrade_keeps_its_place<T: Harness>() {
    // The server takes the plain line for the begin of the handshake, and must not: it fails.
    let mut both = Both::new::<T>(At::GoesOver);
    (both.before, both.behind) = ("late\n", "never sent\n");
    let end = both.end();
    assert_eq!((end.cause, end.unsent), (Cause::Tls, "never sent\n".len()));
    assert_eq!(both.server_end().cause, Cause::Tls);
    assert_eq!(both.server().heard, ["P STARTTLS"]);
    // One that reads to the end of the plain text hears both in their order.
    let mut both = Both::new::<T>(At::GoesOver);
    both.behind = "first\nsecond\n";
    both.go("it is answered", |both| both.heard.len() == 4);
    assert_eq!(both.heard[2..], ["T T first", "T T second"]);
    assert_eq!(both.server().heard, ["P STARTTLS", "T first", "T second"]);
}

fn a_certificate_with_another_name_is_a_named_error<T: Harness>() {
    for version in [Version::Tls12, Version::Tls13] {
        let (server, client) = made();
        let client = client.versions([version]);
        let mut both = Both::with::<T>(At::GoesOver, limits(), server, client, "other.example");
        both.behind = "secret\n";
        let end = both.end();
        assert_eq!((end.cause, end.unsent), (Cause::Tls, "secret\n".len()));
        let error = end.tls_error.expect("a reason");
        let Error::Certificate { problem, .. } = &error else { panic!("{error:?}") };
        let is_right = matches!(problem, CertificateProblem::WrongName { expected, .. }
            if expected == "other.example");
        assert!(is_right && error.to_string().contains("localhost"), "{error}");
        assert_eq!(both.heard, PLAIN);
        // The server learns it by an alert.
        let end = both.server_end();
        let error = end.tls_error.expect("a reason");
        assert!(end.cause == Cause::Tls && matches!(*error, Error::Alert(_)), "{error:?}");
        assert_eq!(both.server().heard, ["P STARTTLS"]);
        assert!(!both.talk.secure);
    }
}

fn a_client_goes_on_plain_where_the_server_refuses<T: Harness>() {
    let mut both = Both::new::<T>(At::Refuses);
    both.go("it is refused", |both| both.heard.len() == 2);
    both.say("hello\n");
    both.go("it is answered", |both| both.heard.len() == 3);
    assert_eq!(both.heard, ["P hello", "P no", "P P hello"]);
    assert!(both.client.tls(both.id).is_none());
    both.client.close(both.id);
    assert_eq!(both.end().cause, Cause::Closed);
    assert_eq!(both.server_end().cause, Cause::Eof);
    assert_eq!(both.client.counters().handshakes.begun, 0);
}

fn a_server_that_stays_plain_is_no_server_of_tls<T: Harness>() {
    let mut both = Both::new::<T>(At::StaysPlain);
    both.behind = "secret\n";
    both.go("it may go over", |both| both.heard.len() == 2);
    let id = both.at_server();
    both.run_for(T::span(1.0));
    both.bench.running.engine().write(id, "500 what is that?\r\n").unwrap();
    let end = both.end();
    assert_eq!((end.cause, end.unsent), (Cause::Tls, "secret\n".len()));
    let error = end.tls_error.expect("a reason");
    assert!(matches!(error, Error::NotTls { .. }), "{error:?}");
    assert_eq!(both.heard, PLAIN);
    assert!(both.server().heard.iter().all(|line| !line.contains("secret")));
}

/// The response injection of CVE-2020-14954: they were taken for answers of the session.
fn plain_bytes_behind_the_answer_are_not_told<T: Harness>() {
    for (at, later) in [(At::Injects, false), (At::StaysPlain, false), (At::StaysPlain, true)] {
        let mut both = Both::new::<T>(at);
        if at == At::StaysPlain {
            // In the turn of the answer, or behind the hello of the client.
            both.go("it is asked", |both| both.server().heard.len() == 1);
            if later {
                both.go("the client goes over", |both| both.heard.len() == 2);
            }
            let id = both.at_server();
            both.bench.running.engine().write(id, "evil\n").unwrap();
        }
        let end = both.end();
        assert_eq!((end.cause, end.unsent), (Cause::Tls, 0), "{at:?}, {later}");
        let error = end.tls_error.expect("a reason");
        assert!(matches!(error, Error::NotTls { .. }), "{error:?}");
        assert_eq!(both.heard, PLAIN);
        assert!(!both.talk.secure);
        both.server_end();
        assert!(both.server().heard[0] == "P STARTTLS");
    }
}

/// They have come before the call, and the program has not got them.
fn plain_bytes_that_the_client_holds_back_are_not_told<T: Harness>() {
    let mut both = Both::new::<T>(At::StaysPlain);
    both.asks = false;
    both.go("it is greeted", |both| both.heard.len() == 1);
    both.client.pause(both.id);
    let id = both.at_server();
    both.bench.running.engine().write(id, "evil\n").unwrap();
    both.flush();
    both.run_for(T::span(1.0));
    both.client.upgrade(both.id, &both.to, "").unwrap();
    let refused = both.client.upgrade(both.id, &both.to, "x").unwrap_err();
    assert_eq!((refused.reason, &*refused.value), (Refusal::Tls, &b"x"[..]));
    both.client.resume(both.id);
    assert_eq!(both.end().cause, Cause::Tls);
    assert_eq!(both.heard, ["P hello"]);
}

fn a_silent_server_has_the_time_of_the_handshake<T: Harness>() {
    let (server, client) = made();
    let limits = limits().handshake(T::span(5.0)).idle(T::span(2.0));
    let mut both = Both::with::<T>(At::StaysPlain, limits, server, client, "localhost");
    both.behind = "secret\n";
    both.go("it may go over", |both| both.heard.len() == 2);
    let start = both.now();
    let end = both.end();
    let past = both.now() - start;
    assert_eq!((end.cause, end.unsent), (Cause::ReadTimeout, "secret\n".len()));
    assert!(past + T::span(0.5) >= T::span(5.0), "{past:?}");
    assert!(!T::VIRTUAL || past < Duration::from_secs(7), "{past:?}");
}

fn a_server_that_ends_in_the_handshake_is_a_cause<T: Harness>() {
    for resets in [false, true] {
        let mut both = Both::new::<T>(At::StaysPlain);
        both.behind = "secret\n";
        both.go("it may go over", |both| both.heard.len() == 2);
        // The server has read the hello: else its close were a reset.
        both.run_for(T::span(1.0));
        let id = both.at_server();
        let engine = both.bench.running.engine();
        if resets {
            let source = engine.source(id).unwrap();
            let linger = SocketOption::Linger(Some(Duration::ZERO));
            engine.abort(id);
            both.bench.watcher.set_option(source, linger).unwrap();
        } else {
            engine.close(id);
        }
        let end = both.end();
        assert_eq!(end.unsent, "secret\n".len());
        if resets {
            assert!(matches!(end.cause, Cause::Os(_)) && end.tls_error.is_none(), "{end:?}");
        } else {
            let is_cut = matches!(end.tls_error, Some(Error::HandshakeCut));
            assert!(end.cause == Cause::Tls && is_cut, "{end:?}");
        }
    }
}

/// With TLS 1.3 the client has agreed before the server looks at its certificate.
fn a_client_that_the_server_refuses_learns_why<T: Harness>() {
    for (version, opens) in [(Version::Tls12, false), (Version::Tls13, true)] {
        let (authority, server, client) = tls::settings(Provider::Ring);
        let server = server.require_client_certificates(authority.root());
        let client = client.versions([version]);
        let mut both = Both::with::<T>(At::GoesOver, limits(), server, client, "localhost");
        both.behind = "secret\n";
        let end = both.end();
        assert_eq!((end.cause, both.talk.secure), (Cause::Tls, opens), "{end:?}");
        assert!(matches!(end.tls_error, Some(Error::Alert(_))), "{end:?}");
        assert_eq!(both.server_end().cause, Cause::Tls);
        assert_eq!(both.server().heard, ["P STARTTLS"]);
    }
}

fn a_second_upgrade_to_the_same_server_resumes<T: Harness>() {
    let mut both = Both::new::<T>(At::GoesOver);
    for round in 0..3 {
        both.behind = "hello\n";
        both.go("it is answered", |both| both.heard.len() == 3);
        assert_eq!(both.heard[2], "T T hello");
        let session = both.client.tls(both.id).unwrap();
        assert_eq!(session.is_resumed(), round > 0, "{round}");
        both.client.close(both.id);
        assert_eq!(both.end().cause, Cause::Closed);
        assert_eq!(both.server_end().cause, Cause::Eof);
        let address = both.bench.addresses[0].clone();
        both.id = both.client.connect([address], ConnectOptions::default(), ()).unwrap();
        (both.talk, both.heard) = Default::default();
    }
    assert_eq!(both.client.counters().handshakes.resumed, 2);
}

fn an_abort_in_each_turn_ends_both_ends_once<T: Harness>() {
    for turns in 0..12 {
        for closes in [false, true] {
            let mut both = Both::new::<T>(At::GoesOver);
            both.go("it is greeted", |both| both.heard.len() == 1);
            for _ in 0..turns {
                both.turn(T::span(0.1));
            }
            let cause = if closes { Cause::Closed } else { Cause::Aborted };
            let is_asked =
                if closes { both.client.close(both.id) } else { both.client.abort(both.id) };
            assert!(is_asked, "{turns}");
            assert_eq!(both.end().cause, cause, "{turns}");
            let end = both.server_end();
            let is_right = matches!(end.cause, Cause::Eof | Cause::Tls | Cause::Truncated);
            assert!(is_right || matches!(end.cause, Cause::Os(_)), "{turns}: {end:?}");
        }
    }
}

fn a_close_behind_output_waits_for_the_server<T: Harness>() {
    let mut both = Both::new::<T>(At::StaysPlain);
    both.behind = "last\n";
    both.go("it may go over", |both| both.heard.len() == 2);
    assert!(both.client.close(both.id));
    both.run_for(T::span(1.0));
    assert!(both.ends.is_empty(), "it waits");
    let mut both = Both::new::<T>(At::GoesOver);
    both.behind = "last\n";
    both.go("it may go over", |both| both.heard.len() == 2);
    assert!(both.client.close(both.id));
    let end = both.end();
    assert_eq!((end.cause, end.unsent), (Cause::Closed, 0));
    assert_eq!(both.server_end().cause, Cause::Eof);
    assert_eq!(both.server().heard, ["P STARTTLS", "T last"]);
    assert!(!both.talk.secure, "it closes");
}

/// A server whose handler has connections of its own, to itself here.
fn the_client_of_a_handler_goes_over<T: Harness>() {
    let mut both = Both::new::<T>(At::GoesOver);
    both.client.close(both.id);
    both.end();
    both.server_end();
    let (address, options) = (both.bench.addresses[0].clone(), ConnectOptions::default());
    let id = both.bench.running.engine().connect([address], options, Talk::default()).unwrap();
    both.go("it is answered", |both| both.server().as_client.len() == 3);
    assert_eq!(both.server().as_client, ["P hello", "P go", "T T secret"]);
    assert_eq!(both.bench.running.engine().tls(id).unwrap().peer_certificates().len(), 1);
    let counted = both.bench.running.report().counters.handshakes;
    assert_eq!((counted.begun, counted.completed), (2, 2));
}
