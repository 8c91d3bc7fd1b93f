//! What a request of the program does to a connection that goes over to TLS, at either end, and
//! what the last event says of the output: each plain byte counts once, and no byte of a handshake.
//!
//! Of the promises on the page of the crate: P1, P2 and P3.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::Harness;
use crate::common::engine::{Loop, no_times, run_for, until};
use crate::common::turns::Turns;
use crate::tls;
use windlass::driver::{Deadline, Driver, OpCode};
use windlass::net::ConnectOptions;
use windlass::sim::Sim;
use windlass::{Builder, Done, Op, Source, Watcher};
use windlass_serve::tls::{
    Handshakes, Provider, Session, SessionState, TlsBuilder, TlsClientBuilder,
};
use windlass_serve::{Cause, Config, Id, Limits, Refusal};

crate::every_kernel! {
    each_request_in_the_handshake_has_one_meaning
    each_request_means_the_same_if_workers_answer
    a_request_in_each_turn_ends_the_connection_once
    workers_answer_flights_off_the_loop
    an_end_behind_a_flight_that_waits_is_seen
    input_of_several_pieces_that_is_held_back_goes_along
    a_job_that_ends_in_the_handshake_answers_behind_it
    a_connection_of_udp_is_refused
    memory_bounds_what_other_threads_write_before_the_session
    plain_output_before_it_stops_no_reads_behind_it
    plain_output_in_flight_counts_when_the_handshake_fails
    a_limit_stands_still_in_the_handshake
    a_deadline_of_the_program_goes_on_in_the_handshake
}

/// A simulated network whose jobs take their time.
struct Slow;

impl Harness for Slow {
    type Driver = windlass::driver::Auto;
    const NAME: &'static str = "slow";
    const VIRTUAL: bool = true;
    fn watcher(builder: Builder) -> Watcher<Self::Driver> {
        let sim = Sim::new(1);
        sim.set_job_time(Duration::from_secs(20));
        sim.set_turn(Duration::from_millis(1));
        Watcher::simulated_with(&sim, builder.config())
    }
}

#[test]
fn an_end_waits_for_a_slow_worker() {
    an_end_behind_a_flight_that_waits_is_seen::<Slow>();
}

#[cfg(unix)]
mod of_files {
    use super::a_file_before_the_upgrade_leaves_plain;
    crate::systems_drivers! {
        a_file_before_the_upgrade_leaves_plain
    }
}

/// More than the buffers of the system take.
const OUTPUT: usize = 3 << 20;

/// It looks like the begin of a record with text, which must not matter.
const BYTE: u8 = 23;

const TEXT: &str = "written behind it";

#[derive(Clone, Copy, Debug, PartialEq)]
enum Role {
    Server,
    Client,
}

/// What the connection has to send when the request comes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Output {
    Nothing,
    /// Plain bytes that the peer does not read yet, of an earlier turn or of the same one.
    Before,
    AtOnce,
    /// Text for the session.
    Behind,
    Both,
}

impl Output {
    fn plain(self) -> usize {
        if matches!(self, Output::Nothing | Output::Behind) { 0 } else { OUTPUT }
    }

    fn text(self) -> &'static str {
        if matches!(self, Output::Behind | Output::Both) { TEXT } else { "" }
    }
}

const OUTPUTS: [Output; 5] =
    [Output::Nothing, Output::Before, Output::AtOnce, Output::Behind, Output::Both];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Request {
    HalfClose,
    Detach,
    Close,
    Abort,
    Again,
    Unread,
    Pause,
    Shutdown,
}

const REQUESTS: [Request; 8] = [
    Request::HalfClose,
    Request::Detach,
    Request::Close,
    Request::Abort,
    Request::Again,
    Request::Unread,
    Request::Pause,
    Request::Shutdown,
];

/// An upgrade whose peer has said nothing and reads nothing so far.
struct Upgrade<D: Driver> {
    l: Loop<D>,
    id: Id,
    peer: Source,
    session: Session,
    output: Output,
    fed: usize,
    text: Vec<u8>,
    has_ended: bool,
    /// Whether it does not end its side before the connection does.
    stays: bool,
    reads: bool,
    /// While this is open, a close of the engine takes nothing away that the kernel has.
    #[cfg(unix)]
    second: Option<std::net::TcpStream>,
}

fn limits() -> Limits {
    let hour = Duration::from_secs(3600);
    no_times().handshake(hour).close(hour).linger(hour).cap(2 * OUTPUT)
}

impl<D: Driver> Upgrade<D> {
    fn new<T: Harness<Driver = D>>(role: Role, output: Output, limits: Limits) -> Upgrade<D> {
        let (_, server, client) = tls::settings(Provider::Ring);
        Upgrade::with::<T>((server, client), role, output, limits, |_, _| {})
    }

    fn on<T: Harness<Driver = D>>(on: Handshakes, role: Role, output: Output) -> Upgrade<D> {
        let (_, server, client) = tls::settings(Provider::Ring);
        let both = (server.handshakes(on), client.handshakes(on));
        Upgrade::with::<T>(both, role, output, limits(), |_, _| {})
    }

    /// The connection is prepared before it goes over.
    fn with<T: Harness<Driver = D>>(
        (server, client): (TlsBuilder, TlsClientBuilder),
        role: Role,
        output: Output,
        limits: Limits,
        prepare: impl FnOnce(&mut Loop<D>, Id),
    ) -> Upgrade<D> {
        let (tls, trust) = (server.build().unwrap(), client.build().unwrap());
        let mut l = Loop::new::<T>(Config::new().limits(limits));
        let (peer, id) = l.pair();
        prepare(&mut l, id);
        #[cfg(unix)]
        let second = {
            let source = l.engine.source(id).expect("it lives");
            let fd = l.watcher.fd(source).ok();
            fd.map(|fd| fd.try_clone_to_owned().expect("a descriptor").into())
        };
        if output.plain() > 0 {
            l.engine.write(id, vec![BYTE; OUTPUT]).unwrap();
        }
        if matches!(output, Output::Before | Output::Both) {
            run_for(&mut l, Duration::from_millis(20));
            assert!(l.queued(id) > 0);
        }
        let session = match role {
            Role::Server => {
                l.engine.upgrade(id, &tls, "").unwrap();
                Session::client(&trust, "localhost").unwrap()
            }
            Role::Client => {
                l.engine.upgrade(id, trust.to("localhost").unwrap(), "").unwrap();
                Session::server(&tls).unwrap()
            }
        };
        if !output.text().is_empty() {
            l.engine.write(id, TEXT).unwrap();
        }
        run_for(&mut l, Duration::from_millis(20));
        let upgrade = Upgrade {
            l,
            id,
            peer,
            session,
            output,
            fed: output.plain(),
            text: Vec::new(),
            has_ended: false,
            stays: false,
            reads: false,
            #[cfg(unix)]
            second,
        };
        assert!(upgrade.l.ends.is_empty());
        upgrade
    }

    fn ask(&mut self, request: Request) -> Option<Refusal> {
        let (l, id) = (&mut self.l, self.id);
        let refused = |is_asked: bool| (!is_asked).then_some(Refusal::Stale);
        match request {
            Request::HalfClose => refused(l.engine.shutdown(id)),
            Request::Detach => l.engine.detach(id).err(),
            Request::Close => refused(l.engine.close(id)),
            Request::Abort => refused(l.engine.abort(id)),
            Request::Again => {
                let (_, server, _) = tls::settings(Provider::Ring);
                let again = l.engine.upgrade(id, server.build().unwrap(), "").unwrap_err();
                Some(again.reason)
            }
            Request::Unread => l.engine.unread(id, "x").map_err(|refused| refused.reason).err(),
            Request::Pause => refused(l.engine.pause(id)),
            Request::Shutdown => {
                l.engine.remote(&mut l.watcher).shutdown();
                None
            }
        }
    }

    /// All that the peer has got, and whether its reads have ended.
    fn got(&self) -> (Vec<u8>, bool) {
        let (mut all, mut ended) = (Vec::new(), false);
        for c in self.l.foreign.iter().filter(|c| c.token == 9 && c.code() == OpCode::Read) {
            match &c.result {
                Ok(Done::Read(data)) if data.is_empty() => ended = true,
                Ok(Done::Read(data)) => all.extend_from_slice(data),
                _ => ended = true,
            }
        }
        (all, ended)
    }

    /// The peer reads, agrees if it can, and ends its side when the connection has.
    fn let_end(&mut self, what: &str) -> (Vec<u8>, (Cause, usize)) {
        if !std::mem::replace(&mut self.reads, true) {
            self.l.watcher.submit(Op::read(self.peer).multishot().token(9)).unwrap();
        }
        self.l.engine.flush(&mut self.l.watcher);
        let mut looked = usize::MAX;
        while self.l.ends.is_empty() || !self.got().1 {
            let count = self.l.foreign.len();
            if std::mem::replace(&mut looked, count) != count {
                self.pump();
            }
            if self.l.told.contains(&"other") {
                self.l.engine.resume(self.id); // it has gone over, and may be paused
                self.l.engine.flush(&mut self.l.watcher);
            }
            let start = self.l.now();
            self.l.turn(Duration::from_secs(20));
            assert!(self.l.now() - start < Duration::from_secs(20), "{what}: it waits");
            #[cfg(unix)]
            if let (false, Some(second)) = (self.l.ends.is_empty(), &self.second) {
                let _ = second.shutdown(std::net::Shutdown::Write); // its peer may be gone
            }
        }
        self.pump();
        let got = self.got().0;
        assert!(self.l.engine.is_empty() && self.l.engine.budget().used() == 0, "{what}");
        let counted = &self.l.engine.counters().handshakes;
        assert_eq!(counted.begun, counted.completed + counted.failed, "{what}");
        assert_eq!(self.l.ends.len(), 1, "{what}");
        (got, (self.l.ends[0].0, self.l.ends[0].1))
    }

    fn pump(&mut self) {
        let (all, ended) = self.got();
        if let Some(new) = all.get(self.fed..) {
            let _ = self.session.feed_into(new, &mut self.text);
            self.fed = all.len();
        }
        // A paused connection or one that goes on is ended by its peer, when that has all.
        let is_told = self.text.len() == self.output.text().len();
        let ends = ended || self.session.is_open() && is_told && !self.stays;
        if ends || self.session.state() == SessionState::PeerClosed {
            self.session.close();
        }
        let mut out = Vec::new();
        self.session.take_output(&mut out);
        if !out.is_empty() {
            let _ = self.l.watcher.submit(Op::write(self.peer, out).token(2));
        }
        if ends && !std::mem::replace(&mut self.has_ended, true) {
            let _ = self.l.watcher.submit(Op::shutdown(self.peer).token(2));
        }
    }
}

/// What a request answers, how the connection ends then, and whether it sends all first.
fn meaning(output: Output, request: Request) -> (Option<Refusal>, Cause, bool) {
    let (open, has_text) = (Cause::Eof, !output.text().is_empty());
    match request {
        Request::HalfClose | Request::Pause => (None, open, true),
        Request::Detach | Request::Again | Request::Unread => (Some(Refusal::Tls), open, true),
        Request::Close => (None, Cause::Closed, true),
        Request::Abort => (None, Cause::Aborted, output.plain() == 0 && !has_text),
        Request::Shutdown => (None, Cause::Shutdown, true),
    }
}

fn each_request_in_the_handshake_has_one_meaning<T: Harness>() {
    requests::<T>(Handshakes::Loop);
}

fn each_request_means_the_same_if_workers_answer<T: Harness>() {
    requests::<T>(Handshakes::Workers);
}

fn requests<T: Harness>(on: Handshakes) {
    for role in [Role::Server, Role::Client] {
        for (output, request) in OUTPUTS.into_iter().flat_map(|o| REQUESTS.map(|r| (o, r))) {
            let what = format!("{role:?}, {output:?}, {request:?}");
            let mut u = Upgrade::on::<T>(on, role, output);
            let (answer, cause, sends_all) = meaning(output, request);
            assert_eq!(u.ask(request), answer, "{what}");
            let (got, end) = u.let_end(&what);
            assert_eq!(end.0, cause, "{what}");
            let plain = got.len().min(output.plain());
            assert!(got[..plain].iter().all(|byte| *byte == BYTE), "{what}");
            if sends_all {
                assert_eq!((end.1, plain), (0, output.plain()), "{what}");
                assert_eq!(u.text, output.text().as_bytes(), "{what}");
            } else {
                // The end of the connection takes nothing away that the kernel has.
                let unsent = output.plain() - plain + output.text().len();
                assert_eq!((end.1, u.text.len()), (unsent, 0), "{what}");
            }
            assert!(u.ask(Request::Close).is_some(), "{what}: its id is stale");
        }
    }
}

/// The request comes in each turn of the handshake: also when a worker has the session.
fn a_request_in_each_turn_ends_the_connection_once<T: Harness>() {
    for (role, text) in [Role::Server, Role::Client]
        .into_iter()
        .flat_map(|r| [(r, Output::Nothing), (r, Output::Behind)])
    {
        for (request, turns) in
            [Request::HalfClose, Request::Close, Request::Abort, Request::Shutdown]
                .into_iter()
                .flat_map(|request| (0..8).map(move |turns| (request, turns)))
        {
            let what = format!("{role:?}, {text:?}, {request:?}, {turns}");
            let mut u = Upgrade::on::<T>(Handshakes::Workers, role, text);
            (u.stays, u.reads) = (true, true);
            u.l.watcher.submit(Op::read(u.peer).multishot().token(9)).unwrap();
            for _ in 0..turns {
                u.pump();
                u.l.turn(T::span(0.1));
            }
            assert_eq!(u.ask(request), None, "{what}");
            u.stays = false;
            let (_, end) = u.let_end(&what);
            let (_, cause, _) = meaning(text, request);
            assert_eq!(end.0, cause, "{what}");
            let sends_all = request != Request::Abort; // it may also tear the tickets of a server
            assert!(!sends_all || end.1 == 0 && u.text == text.text().as_bytes(), "{what}");
        }
    }
}

fn workers_answer_flights_off_the_loop<T: Harness>() {
    let here = std::thread::current().id();
    for role in [Role::Server, Role::Client] {
        let looks = Arc::new((AtomicUsize::new(0), AtomicUsize::new(0)));
        let counts = Arc::clone(&looks);
        let clock = move || {
            let is_here = std::thread::current().id() == here;
            let count = if is_here { &counts.0 } else { &counts.1 };
            count.fetch_add(1, Ordering::Relaxed);
            tls::noon()
        };
        let (_, server, client) = tls::settings(Provider::Ring);
        // Only this end looks at the clock of the test.
        let (server, client) = match role {
            Role::Server => (server.clock(clock), client),
            Role::Client => (server, client.clock(clock)),
        };
        let on = Handshakes::Workers;
        let both = (server.handshakes(on), client.handshakes(on));
        let mut u = Upgrade::with::<T>(both, role, Output::Behind, limits(), |_, _| {});
        let before = looks.0.load(Ordering::Relaxed);
        let (_, end) = u.let_end("it goes over");
        assert_eq!((end, &*u.text), ((Cause::Eof, 0), TEXT.as_bytes()));
        assert!(u.l.engine.counters().handshakes.flights > 0);
        let [at_loop, at_workers] = [&looks.0, &looks.1].map(|count| count.load(Ordering::Relaxed));
        // Tickets come behind the handshake, and a client looks when.
        let is_off = at_workers > 0 && (at_loop == before || role == Role::Client);
        // A simulation has no other threads.
        assert!(is_off || T::VIRTUAL && at_loop > before, "{role:?}: {at_loop}, {at_workers}");
    }
}

/// The connection is full when it goes over, and not when both ends have agreed. It read no more.
fn plain_output_before_it_stops_no_reads_behind_it<T: Harness>() {
    let mut u = Upgrade::new::<T>(Role::Server, Output::Both, limits());
    u.l.watcher.submit(Op::read(u.peer).multishot().token(9)).unwrap();
    (u.reads, u.stays) = (true, true);
    until(&mut u.l, "the plain bytes have come", |l| {
        l.foreign.iter().filter(|c| c.token == 9).map(|c| c.bytes()).sum::<usize>() == OUTPUT
    });
    // The engine looks at the output, of which none waits.
    u.l.engine.write(u.id, " and more").unwrap();
    run_for(&mut u.l, Duration::from_millis(20));
    u.pump();
    while u.text.len() < TEXT.len() + " and more".len() {
        u.l.turn(Duration::from_secs(20));
        u.pump();
    }
    let mut out = Vec::new();
    u.session.write_all(b"hello", &mut out).unwrap();
    u.l.watcher.submit(Op::write(u.peer, out).token(2)).unwrap();
    until(&mut u.l, "it is heard", |l| l.told.contains(&"data"));
    assert!(u.l.told.contains(&"drained") && !u.l.engine.is_full(u.id));
}

/// The hello has come in pieces before the call, and the program has not got them.
fn input_of_several_pieces_that_is_held_back_goes_along<T: Harness>() {
    let (_, server, client) = tls::settings(Provider::Ring);
    let (tls, trust) = (server.build().unwrap(), client.build().unwrap());
    let mut l = Loop::new::<T>(Config::new().limits(limits()));
    let (peer, id) = l.pair();
    l.engine.pause(id);
    l.engine.flush(&mut l.watcher);
    let mut session = Session::client(&trust, "localhost").unwrap();
    let mut hello = Vec::new();
    session.take_output(&mut hello);
    for piece in hello.chunks(hello.len().div_ceil(5)) {
        l.watcher.submit(Op::write(peer, piece.to_vec()).token(2)).unwrap();
        run_for(&mut l, Duration::from_millis(20));
    }
    l.engine.upgrade(id, &tls, "").unwrap();
    l.engine.resume(id);
    l.watcher.submit(Op::read(peer).multishot().token(9)).unwrap();
    until(&mut l, "it is answered", |l| {
        let reads = l.foreign.iter().filter(|c| c.token == 9);
        reads.map(|c| c.bytes()).sum::<usize>() > 100
    });
    assert!(l.ends.is_empty() && !l.told.contains(&"data"));
    assert_eq!(l.engine.counters().handshakes.flights, 1);
}

fn a_job_that_ends_in_the_handshake_answers_behind_it<T: Harness>() {
    let (_, server, client) = tls::settings(Provider::Ring);
    let job = |l: &mut Loop<T::Driver>, id| assert!(l.engine.execute(id, || 7_u8).is_ok());
    let both = (server, client);
    let mut u = Upgrade::with::<T>(both, Role::Server, Output::Nothing, limits(), job);
    until(&mut u.l, "the job has ended", |l| l.told.contains(&"other"));
    u.l.told.clear();
    u.l.engine.write(u.id, TEXT).unwrap();
    u.output = Output::Behind;
    let (_, end) = u.let_end("a job");
    assert_eq!((end, &*u.text), ((Cause::Eof, 0), TEXT.as_bytes()));
}

/// The cap of the connection does not, as before a connect: the loop has what they wrote.
fn memory_bounds_what_other_threads_write_before_the_session<T: Harness>() {
    let (_, server, _) = tls::settings(Provider::Ring);
    let tls = server.build().unwrap();
    for upgrades in [false, true] {
        let limits = limits().cap(100_000).memory(1 << 20);
        let mut l = Loop::new::<T>(Config::new().limits(limits));
        let id = if upgrades {
            let (_, id) = l.pair();
            l.engine.upgrade(id, &tls, "").unwrap();
            id
        } else {
            let options = ConnectOptions::default();
            l.engine.connect([l.address.clone()], options, ()).unwrap()
        };
        let remote = l.engine.remote(&mut l.watcher);
        let mut taken = 0;
        let reason = loop {
            match remote.write(id, vec![0; 60_000]) {
                Ok(()) => taken += 60_000,
                Err(refused) => break refused.reason,
            }
            // The loop takes it. Nothing completes: a connect has no turn to succeed in.
            l.engine.flush(&mut l.watcher);
        };
        // Refused, or shed: the engine ends the connection that holds most.
        assert!(matches!(reason, Refusal::Memory | Refusal::Stale), "{upgrades}: {reason:?}");
        assert!(taken > 200_000 && taken <= 1 << 20, "{upgrades}: {taken}");
        assert!(l.engine.budget().used() <= 1 << 20);
    }
}

fn a_connection_of_udp_is_refused<T: Harness>() {
    let (_, server, _) = tls::settings(Provider::Ring);
    let mut l = Loop::new::<T>(Config::new().limits(limits()));
    let id = l.engine.connect_datagram(([127, 0, 0, 1], 9), ()).unwrap();
    until(&mut l, "it is open", |l| l.opened.contains(&id));
    let refused = l.engine.upgrade(id, server.build().unwrap(), "rest").unwrap_err();
    assert_eq!((refused.reason, &*refused.value), (Refusal::Unsupported, &b"rest"[..]));
    assert_eq!(l.engine.counters().handshakes.begun, 0);
}

#[cfg(unix)]
fn a_file_before_the_upgrade_leaves_plain<T: Harness>() {
    let own = std::env::current_exe().unwrap();
    let bytes = std::fs::read(&own).unwrap();
    for len in [1000, OUTPUT] {
        let (_, server, client) = tls::settings(Provider::Ring);
        let file = std::fs::File::open(&own).unwrap();
        let send = |l: &mut Loop<T::Driver>, id| {
            l.engine.write(id, "before").unwrap();
            l.engine.send_file(id, file, ..len as u64).unwrap();
        };
        let both = (server, client);
        let mut u = Upgrade::with::<T>(both, Role::Server, Output::Behind, limits(), send);
        u.fed = "before".len() + len;
        let refused = u.l.engine.send_file(u.id, std::fs::File::open(&own).unwrap(), ..);
        assert_eq!(refused.unwrap_err().reason, Refusal::Tls);
        let (got, end) = u.let_end("a file");
        assert!(got[..6] == *b"before" && got[6..][..len] == bytes[..len]);
        assert_eq!((end, &*u.text), ((Cause::Eof, 0), TEXT.as_bytes()));
        assert!(u.l.told.contains(&"file sent"));
    }
}

/// Meanwhile nothing is read: each read would end at once.
fn an_end_behind_a_flight_that_waits_is_seen<T: Harness>() {
    for on in [Handshakes::Loop, Handshakes::Workers] {
        let mut u = Upgrade::on::<T>(on, Role::Server, Output::Nothing);
        let mut hello = Vec::new();
        u.session.take_output(&mut hello);
        u.l.watcher.submit(Op::write(u.peer, hello).token(2)).unwrap();
        u.l.watcher.submit(Op::shutdown(u.peer).token(2)).unwrap();
        let mut turns = 0;
        until(&mut u.l, "it has ended", |l| {
            turns += 1;
            !l.ends.is_empty()
        });
        assert!(turns < 50, "{turns} turns");
        assert_eq!((u.l.ends[0].0, u.l.ends[0].1), (Cause::Tls, 0));
        assert_eq!(u.l.engine.counters().handshakes.failed, 1);
    }
}

/// They were taken for records of the session: of many bytes none counted.
fn plain_output_in_flight_counts_when_the_handshake_fails<T: Harness>() {
    for (role, output) in [Role::Server, Role::Client].into_iter().flat_map(|role| {
        [Output::Before, Output::AtOnce, Output::Both].map(|output| (role, output))
    }) {
        for refuses in [false, true] {
            let span = T::span(20.0);
            let limits = limits().handshake(if refuses { 180 * span } else { span }).close(span);
            let mut u = Upgrade::new::<T>(role, output, limits);
            let what = format!("{role:?}, {output:?}, {refuses}");
            if refuses {
                u.l.watcher.submit(Op::write(u.peer, "no record of TLS").token(2)).unwrap();
            }
            until(&mut u.l, "it has failed", |l| !l.ends.is_empty());
            let (got, (cause, unsent)) = u.let_end(&what);
            assert_eq!(cause, if refuses { Cause::Tls } else { Cause::ReadTimeout }, "{what}");
            assert!(!got.is_empty() && got.iter().all(|byte| *byte == BYTE), "{what}");
            assert_eq!(got.len() + unsent, OUTPUT + output.text().len(), "{what}");
        }
    }
}

fn a_limit_stands_still_in_the_handshake<T: Harness>() {
    for role in [Role::Server, Role::Client] {
        let limit = |l: &mut Loop<T::Driver>, id| assert!(l.engine.limit(id, T::span(20.0), 0));
        let (_, server, client) = tls::settings(Provider::Ring);
        let both = (server, client);
        let mut u = Upgrade::with::<T>(both, role, Output::Nothing, limits(), limit);
        assert!(!u.l.engine.limit(u.id, T::span(20.0), 0), "it has one, and takes no other");
        run_for(&mut u.l, T::span(60.0));
        assert!(u.l.ends.is_empty() && u.l.engine.is_limited(u.id));
        u.l.watcher.submit(Op::read(u.peer).multishot().token(9)).unwrap();
        u.stays = true;
        while !u.l.told.contains(&"other") {
            u.pump();
            u.l.turn(Duration::from_secs(20));
        }
        let start = u.l.now();
        until(&mut u.l, "its time is over", |l| !l.ends.is_empty());
        let past = u.l.now() - start;
        assert!(!T::VIRTUAL || past >= T::span(19.0) && past < T::span(23.0), "{past:?}");
        assert_eq!((u.l.ends[0].0, u.l.ends[0].1), (Cause::TooSlow, 0));
    }
}

fn a_deadline_of_the_program_goes_on_in_the_handshake<T: Harness>() {
    for (role, output) in
        [Role::Server, Role::Client].into_iter().flat_map(|role| OUTPUTS.map(|o| (role, o)))
    {
        let mut u = Upgrade::new::<T>(role, output, limits());
        assert!(u.l.engine.set_read_deadline(u.id, Deadline::After(T::span(20.0))));
        until(&mut u.l, "it has ended", |l| !l.ends.is_empty());
        let what = format!("{role:?}, {output:?}");
        let (got, (cause, unsent)) = u.let_end(&what);
        assert_eq!(cause, Cause::ReadTimeout, "{what}");
        let plain = got.len().min(output.plain());
        assert_eq!(plain + unsent, output.plain() + output.text().len(), "{what}");
        assert!(u.text.is_empty(), "{what}");
    }
}
