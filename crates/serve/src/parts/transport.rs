//! The transport: the door through which the bytes of a connection pass before the program gets
//! them.
//!
//! A plain connection has no door, and pays nothing for it: no byte of memory, and no instruction
//! for a message, because the usual path of a read leaves out every stage from
//! [`Stage::Handshake`](crate::stage::Stage::Handshake) on in one comparison.
//!
//! A form of the transport begins with a handshake, for which the program has no connection yet.
//! The engine passes what arrives to [`Handshake::take`], whose answer is that more has to come, or
//! what is left over for the program and who the peer is, or why the connection is refused. The
//! handshake has one clock, from its begin to its end: no byte begins it again. Its bytes count for
//! the budget, and there is a limit of them.
//!
//! One form reads the header of a proxy. It is over with its handshake. The other one is TLS: its
//! session stays when it has agreed, and its connections have the flag `CODED`. So the usual path
//! leaves them out, and the engine passes their input and their output through the session. The
//! session stands in this table and not in the active part of a connection, so that an idle
//! connection has none. A header of a proxy comes first, and what is behind it is the first input
//! of the session.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use windlass::{Buf, Handle, Ticket};

use crate::log::RefusedBecause;
use crate::parts::cipher::{Destination, Failure, Session, SessionState, Tls};
use crate::parts::proxy::{ProxyCodec, ProxyOrigin};
use crate::words::cause::Cause;
use crate::words::event::Origin;
use crate::words::proxy::{Proxy, Versions};

/// A connection that a loop has accepted, on its way to where it is served.
pub(crate) struct Accepted {
    pub(crate) handle: Handle,
    /// The door travels along, because another loop, a thread or another server may not know the
    /// listener.
    door: Option<Arc<Door>>,
    listener: u32,
    /// Whether another server had no room for it. It is not passed on again.
    pub(crate) is_passed_on: bool,
}

// A write of another thread travels in the same queue, and must not become longer by this.
const _: () = assert!(size_of::<Accepted>() <= 48);

impl Accepted {
    pub(crate) fn new(handle: Handle, listener: usize, door: Option<Arc<Door>>) -> Accepted {
        Accepted { handle, door, listener: listener as u32, is_passed_on: false }
    }

    /// Where it comes from, as far as the socket tells.
    pub(crate) fn origin(&self) -> Origin {
        Origin { listener: Some(self.listener()), peer: self.handle.peer() }
    }

    /// The number of the listener.
    pub(crate) fn listener(&self) -> usize {
        self.listener as usize
    }

    /// Whether its bytes are not encrypted.
    pub(crate) fn is_plain(&self) -> bool {
        self.door.as_ref().is_none_or(|door| door.tls.is_none())
    }

    /// The door of the listener.
    pub(crate) fn door(&self) -> Option<&Arc<Door>> {
        self.door.as_ref()
    }
}

/// What the connections of a listener begin with, one behind the other.
#[derive(Debug)]
pub(crate) struct Door {
    /// The header of a proxy, with these versions in place of those of the proxy.
    pub(crate) proxy: Option<(&'static Proxy, Versions)>,
    pub(crate) tls: Option<Tls>,
    /// How long the handshake of TLS may take.
    pub(crate) time: Duration,
}

/// A connection whose peer has not brought all that it begins with.
pub(crate) struct Handshake {
    /// Where it comes from, as far as the socket tells.
    pub(crate) origin: Origin,
    /// When it has taken too long; `None` for a time that the clock does not reach.
    pub(crate) until: Option<Instant>,
    form: Form,
    /// A flight of TLS that has come, and waits for its turn.
    waits: Option<Buf>,
    /// Whether TLS has answered a flight, or has said hello.
    has_answered: bool,
    /// Whether the worker threads answer flights.
    on_workers: bool,
    question: Question,
}

/// What the program is asked about a hello.
enum Question {
    None,
    /// These settings have a resolver.
    Open(Tls),
    /// It was asked, and this timer bounds the time. (Without a timer the clock has no end.)
    Asked(Option<Ticket>),
    /// The settings for the hello; `None` refuses it.
    Answered(Option<Tls>),
}

/// What comes next.
enum Form {
    /// A client's socket is not connected. Then TLS begins, and may take so long.
    Ahead(Destination, Duration),
    Header {
        codec: ProxyCodec,
        /// The beginning of the header.
        begun: Vec<u8>,
        /// What is behind it.
        door: Arc<Door>,
    },
    /// The session of a server or of a client.
    Tls(Box<Session>),
    /// The session is where its flight is answered. A worker has that job, or else the caller.
    AtWork {
        job: Option<Ticket>,
        /// What the handshake holds.
        bytes: usize,
    },
    /// TLS refuses its own settings, for this reason.
    Broken(Failure),
}

/// What a handshake makes of input.
#[derive(Debug)]
pub(crate) enum Agreement {
    /// More has to come.
    More,
    /// A flight of TLS has come. It waits for its turn: [`Handshake::hand_out`].
    Waits,
    /// A hello has come that the program answers.
    Asked,
    /// It is done. The rest of the input is the connection's, and passes its session if it has one.
    Agreed {
        rest: Buf,
    },
    Failed(RefusedBecause),
    /// TLS has failed, for this reason. What is to be sent ends with an alert.
    NoSession(Box<Failure>),
}

impl Handshake {
    /// That of an accepted connection, for which the door has something.
    pub(crate) fn new(door: Arc<Door>, origin: Origin, now: Instant) -> Handshake {
        match (door.proxy, &door.tls) {
            (Some((proxy, Versions { v1, v2 })), _) => {
                let codec = ProxyCodec { v1, v2, max_header: proxy.max_header };
                let form = Form::Header { codec, begun: Vec::new(), door };
                Handshake::of(form, origin, now.checked_add(proxy.timeout))
            }
            (None, Some(tls)) => Handshake::server(tls, door.time, origin, now),
            (None, None) => unreachable!("a door has one of them"),
        }
    }

    /// That of TLS at a server.
    fn server(tls: &Tls, time: Duration, origin: Origin, now: Instant) -> Handshake {
        let session = Session::begin_server(tls);
        let asks = session.as_ref().is_ok_and(Session::awaits_hello);
        let form = session.map_or_else(Form::Broken, |session| Form::Tls(Box::new(session)));
        let on_workers = tls.on_workers();
        let question = if asks { Question::Open(tls.clone()) } else { Question::None };
        Handshake { on_workers, question, ..Handshake::of(form, origin, now.checked_add(time)) }
    }

    fn of(form: Form, origin: Origin, until: Option<Instant>) -> Handshake {
        let (waits, question) = (None, Question::None);
        Handshake { origin, until, form, waits, has_answered: false, on_workers: false, question }
    }

    /// That of a client, whose socket connects first. It may take so long from then on.
    pub(crate) fn client(to: Destination, time: Duration) -> Handshake {
        let origin = Origin { listener: None, peer: None };
        Handshake::of(Form::Ahead(to, time), origin, None)
    }

    /// The socket of a client is connected. `out` gets the hello.
    pub(crate) fn begin(
        &mut self,
        peer: Option<SocketAddr>,
        now: Instant,
        out: &mut Vec<u8>,
    ) -> Result<(), Box<Failure>> {
        let Form::Ahead(to, time) = &self.form else { return Ok(()) };
        self.origin.peer = peer;
        self.until = now.checked_add(*time);
        self.on_workers = to.on_workers();
        let mut session = Session::to(to).map_err(Box::new)?;
        session.take_output(out);
        (self.form, self.has_answered) = (Form::Tls(Box::new(session)), true);
        Ok(())
    }

    /// How many bytes it holds.
    pub(crate) fn bytes(&self) -> usize {
        match &self.form {
            Form::Header { begun, .. } => begun.len(),
            Form::Tls(session) => held_by(session) + self.waits.as_ref().map_or(0, Buf::len),
            Form::AtWork { bytes, .. } => *bytes,
            Form::Ahead(..) | Form::Broken(_) => 0,
        }
    }

    /// Whether TLS is under way.
    pub(crate) fn is_tls(&self) -> bool {
        matches!(self.form, Form::Tls(_) | Form::AtWork { .. })
    }

    /// Whether TLS has answered a flight, or has said hello.
    pub(crate) fn has_answered(&self) -> bool {
        self.has_answered
    }

    /// Takes input, which is not empty. `out` gets what is to be sent. A flight of TLS may be
    /// costly, so it only waits.
    pub(crate) fn take(&mut self, input: Buf, now: Instant, out: &mut Vec<u8>) -> Agreement {
        match &mut self.form {
            Form::Header { codec, begun, door } => match take_header(codec, begun, &input) {
                Ok(None) => Agreement::More,
                Ok(Some((behind, origin))) => {
                    self.origin.peer = origin.peer(self.origin.peer);
                    let rest = input.slice(behind..);
                    let Some(tls) = &door.tls else { return Agreement::Agreed { rest } };
                    *self = Handshake::server(tls, door.time, self.origin, now);
                    if rest.is_empty() { Agreement::More } else { self.take(rest, now, out) }
                }
                Err(because) => Agreement::Failed(because),
            },
            Form::Tls(session) if session.awaits_hello() => match session.feed_handshake(&input) {
                Ok(taken) if session.state() == SessionState::Asked => {
                    self.waits = Some(Buf::from(input.slice(taken..).into_vec()));
                    Agreement::Asked
                }
                Ok(_) => Agreement::More,
                Err(error) => {
                    session.take_output(out);
                    Agreement::NoSession(Box::new(error))
                }
            },
            Form::Tls(session) if session.completes_record(&input) => {
                // However long it waits: other connections need the lease.
                self.waits = Some(Buf::from(input.into_vec()));
                Agreement::Waits
            }
            Form::Tls(session) => feed(session, input, out),
            Form::Broken(failure) => Agreement::NoSession(Box::new(failure.clone())),
            // No read is in flight before the connect has succeeded, nor while a worker answers.
            Form::Ahead(..) | Form::AtWork { .. } => Agreement::More,
        }
    }

    /// The input has ended: why TLS has failed, if it was its turn.
    pub(crate) fn end_of_input(&mut self) -> Option<Box<Failure>> {
        match &mut self.form {
            Form::Tls(session) => session.end_of_input().err().map(Box::new),
            _ => None,
        }
    }

    /// The program is asked about the hello. Returns what asks it; `answer` gets its answer.
    pub(crate) fn ask(
        &mut self,
        timer: Option<Ticket>,
        answer: Box<dyn FnOnce(Option<Tls>) + Send>,
    ) {
        let question = std::mem::replace(&mut self.question, Question::Asked(timer));
        if let (Form::Tls(session), Question::Open(tls)) = (&self.form, question) {
            session.ask(&tls, answer);
        }
    }

    /// Whether the program was asked, and has not answered.
    pub(crate) fn is_asked(&self) -> bool {
        matches!(self.question, Question::Asked(_))
    }

    /// The program has answered. Returns the timer that bounds its time.
    pub(crate) fn resolve(&mut self, answer: Option<Tls>) -> Option<Ticket> {
        match std::mem::replace(&mut self.question, Question::Answered(answer)) {
            Question::Asked(timer) => timer,
            _ => None,
        }
    }

    /// Whether the worker threads answer flights.
    pub(crate) fn is_for_workers(&self) -> bool {
        self.on_workers
    }

    /// Gives away the flight that waits, and the session, for the answer.
    pub(crate) fn hand_out(&mut self) -> Option<Flight> {
        let input = self.waits.take()?;
        let bytes = self.bytes();
        match std::mem::replace(&mut self.form, Form::AtWork { job: None, bytes }) {
            Form::Tls(session) => {
                let question = std::mem::replace(&mut self.question, Question::None);
                Some(Flight { session, input, question })
            }
            form => {
                self.form = form;
                None
            }
        }
    }

    /// A worker has the flight.
    pub(crate) fn set_job(&mut self, ticket: Ticket) {
        if let Form::AtWork { job, .. } = &mut self.form {
            *job = Some(ticket);
        }
    }

    /// The job of the worker that has the flight.
    pub(crate) fn job(&self) -> Option<Ticket> {
        match self.form {
            Form::AtWork { job, .. } => job,
            _ => None,
        }
    }

    /// Takes back what was given away.
    pub(crate) fn take_back(&mut self, session: Box<Session>) {
        (self.form, self.has_answered) = (Form::Tls(session), true);
    }

    /// The session that goes on behind the handshake.
    pub(crate) fn into_session(self) -> Option<Box<Session>> {
        match self.form {
            Form::Tls(session) => Some(session),
            _ => None,
        }
    }
}

/// A flight that is to be answered.
pub(crate) struct Flight {
    session: Box<Session>,
    input: Buf,
    question: Question,
}

/// The answer to a flight.
pub(crate) struct Answered {
    pub(crate) session: Box<Session>,
    pub(crate) agreement: Agreement,
    /// What is to be sent.
    pub(crate) out: Vec<u8>,
}

impl Flight {
    /// The costly part of a handshake.
    pub(crate) fn answer(self) -> Answered {
        let Flight { mut session, input, question } = self;
        let mut out = Vec::new();
        let refused = match question {
            Question::Answered(Some(tls)) => session.answer(&tls).err(),
            Question::Answered(None) => session.refuse(),
            _ => None,
        };
        let agreement = match refused {
            Some(failure) => {
                session.take_output(&mut out);
                Agreement::NoSession(Box::new(failure))
            }
            None => feed(&mut session, input, &mut out),
        };
        Answered { session, agreement, out }
    }
}

/// Passes input through a session whose handshake is not done.
fn feed(session: &mut Session, input: Buf, out: &mut Vec<u8>) -> Agreement {
    let agreement = match session.feed_handshake(&input) {
        Err(error) => Agreement::NoSession(Box::new(error)),
        Ok(_) if session.state() == SessionState::Handshaking => Agreement::More,
        // The last flight leaves with the first output of the connection, in one write.
        Ok(taken) => return Agreement::Agreed { rest: input.slice(taken..) },
    };
    session.take_output(out);
    agreement
}

/// How many bytes a session counts for whose handshake is not done.
pub(crate) fn held_by(session: &Session) -> usize {
    match session.handshake_taken() {
        0 => BEGUN,
        1..=4096 => AGREEING,
        taken => AGREEING + 2 * taken,
    }
}

/// What a session of TLS counts for before a byte of its peer: a server has 2016 bytes and a client
/// 3572, with rustls 0.23 and ring. The test `tls_bounds.rs` counts them with an allocator.
const BEGUN: usize = 4 << 10;

/// And then: 2016 bytes and a buffer of 4 KiB, which doubles with the second piece of a record; or
/// 8 KB once a flight is answered. The buffer doubles again as a message grows: so each byte of
/// more than 4 KiB counts twice.
const AGREEING: usize = 10 << 10;

/// Reads a header; how much of the input it was, and whom it names.
fn take_header(
    codec: &ProxyCodec,
    begun: &mut Vec<u8>,
    input: &Buf,
) -> Result<Option<(usize, ProxyOrigin)>, RefusedBecause> {
    let before = begun.len();
    let read = if before == 0 {
        // As a rule the header comes at once, and is read where it lies.
        codec.read(input)
    } else {
        // What is behind the longest header is not needed for an answer.
        let most = codec.most() - before;
        begun.extend_from_slice(&input[..most.min(input.len())]);
        codec.read(begun)
    };
    match read {
        Ok(None) => {
            if before == 0 {
                *begun = input.to_vec();
            }
            Ok(None)
        }
        // There was no answer before this input, so the header ends in it.
        Ok(Some(header)) => Ok(Some((header.len - before, header.origin))),
        Err(bad) => Err(RefusedBecause::Header(bad.text())),
    }
}

/// Why a connection is refused that has ended in its handshake, for this cause.
pub(crate) fn because(cause: Cause) -> RefusedBecause {
    match cause {
        Cause::Shutdown => RefusedBecause::Shutdown,
        Cause::Tls => RefusedBecause::Tls,
        cause => RefusedBecause::Handshake(cause),
    }
}

/// A plain connection that goes over to TLS: its handshake is under way. Its session stands among
/// those of open connections.
#[derive(Default)]
pub(crate) struct Upgrade {
    /// When it has taken too long, and the timer of that.
    pub(crate) until: Option<Instant>,
    pub(crate) timer: Option<Ticket>,
    /// The idle time that the connection had, and gets back.
    pub(crate) idle: Option<Duration>,
    /// Why it closes when its output has left, if it does.
    pub(crate) closes: Option<Cause>,
    /// A flight that waits for its turn, and what has come behind it. While a worker has the
    /// session, all that comes waits.
    pub(crate) waits: VecDeque<Buf>,
    /// Whether the worker threads answer flights.
    pub(crate) on_workers: bool,
    /// The job that has the session, and how many bytes it holds.
    pub(crate) at_work: Option<(Ticket, usize)>,
    /// The writes of the session. Each other one is plain.
    pub(crate) said: Vec<Ticket>,
    pub(crate) is_done: bool,
    has_begun: bool,
}

/// A flight of an upgrade that a worker answers.
pub(crate) struct UpgradeFlight {
    pub(crate) session: Box<Session>,
    pub(crate) input: Buf,
}

/// What a session makes of input: how much of it was the handshake's.
pub(crate) struct UpgradeAnswer {
    pub(crate) flight: UpgradeFlight,
    pub(crate) fed: Result<usize, Failure>,
}

impl UpgradeFlight {
    /// The costly part of the handshake.
    pub(crate) fn answer(mut self) -> UpgradeAnswer {
        let fed = self.session.feed_handshake(&self.input);
        UpgradeAnswer { flight: self, fed }
    }
}

impl Upgrade {
    /// Whether the watcher has not seen it yet.
    pub(crate) fn is_first_look(&mut self) -> bool {
        !std::mem::replace(&mut self.has_begun, true)
    }
}

/// The doors of the listeners, the handshakes that are under way, and the sessions of TLS.
#[derive(Default)]
pub(crate) struct Transports {
    /// By the number of the listener; shorter if the last ones have none.
    doors: Vec<Option<Arc<Door>>>,
    /// By the place of the connection. The table keeps its size for a while, so its entries are
    /// small.
    handshakes: HashMap<u32, Box<Handshake>>,
    /// By the place of the connection.
    upgrades: HashMap<u32, Upgrade>,
    /// The sessions of open connections, by their places.
    sessions: Vec<Option<Box<Session>>>,
    /// Memory in which text of several buffers becomes one.
    scratch: Vec<u8>,
}

impl Transports {
    /// Sets the door of a listener.
    pub(crate) fn set_door(&mut self, listener: usize, door: Door) {
        if self.doors.len() <= listener {
            self.doors.resize(listener + 1, None);
        }
        self.doors[listener] = Some(Arc::new(door));
    }

    pub(crate) fn door(&self, listener: usize) -> Option<Arc<Door>> {
        self.doors.get(listener).cloned().flatten()
    }

    /// Keeps the session of a connection that opens.
    pub(crate) fn keep_session(&mut self, index: u32, session: Box<Session>) {
        let index = index as usize;
        if self.sessions.len() <= index {
            self.sessions.resize_with(index + 1, || None);
        }
        self.sessions[index] = Some(session);
    }

    /// The session of an open connection, for a look.
    #[cfg(feature = "tls")]
    pub(crate) fn open_session(&self, index: u32) -> Option<&Session> {
        self.sessions.get(index as usize)?.as_deref()
    }

    #[inline]
    pub(crate) fn session(&mut self, index: u32) -> Option<&mut Session> {
        self.sessions.get_mut(index as usize)?.as_deref_mut()
    }

    /// Forgets the session of a connection that ends, and its handshake. Returns why TLS has
    /// failed, if it has.
    pub(crate) fn drop_session(&mut self, index: u32) -> Option<Box<Failure>> {
        self.end_upgrade(index);
        let open = self.sessions.get_mut(index as usize).and_then(Option::take);
        let session = open.or_else(|| self.remove(index)?.into_session())?;
        session.failure().cloned().map(Box::new)
    }

    /// The session of a connection, and memory for its text.
    pub(crate) fn coder(&mut self, index: u32) -> Option<(&mut Session, &mut Vec<u8>)> {
        let session = self.sessions.get_mut(index as usize)?.as_deref_mut()?;
        self.scratch.clear();
        Some((session, &mut self.scratch))
    }

    /// Takes the session of a connection that leaves.
    pub(crate) fn take_session(&mut self, index: u32) -> Option<Box<Session>> {
        self.sessions.get_mut(index as usize)?.take()
    }

    /// Whether the handshake of TLS of a connection is under way.
    pub(crate) fn is_agreeing(&self, index: u32) -> bool {
        let of_handshake = self.handshakes.get(&index).is_some_and(|one| one.is_tls());
        of_handshake || self.upgrades.get(&index).is_some_and(|upgrade| !upgrade.is_done)
    }

    /// Notes that the handshake of an open connection begins.
    #[cfg(feature = "tls")]
    pub(crate) fn begin_upgrade(&mut self, index: u32, on_workers: bool) {
        self.upgrades.insert(index, Upgrade { on_workers, ..Upgrade::default() });
    }

    pub(crate) fn upgrade(&mut self, index: u32) -> Option<&mut Upgrade> {
        self.upgrades.get_mut(&index)
    }

    /// Whether the end of the input waits behind a flight of an upgrade.
    pub(crate) fn has_end(&self, index: u32) -> bool {
        let last = self.upgrades.get(&index).and_then(|upgrade| upgrade.waits.back());
        last.is_some_and(Buf::is_empty)
    }

    /// The upgrade of a connection is over, or the connection ends.
    pub(crate) fn end_upgrade(&mut self, index: u32) -> Option<Upgrade> {
        let upgrade = self.upgrades.remove(&index);
        shrink(&mut self.upgrades);
        upgrade
    }

    pub(crate) fn insert(&mut self, index: u32, handshake: Handshake) {
        self.handshakes.insert(index, Box::new(handshake));
    }

    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut Handshake> {
        self.handshakes.get_mut(&index).map(Box::as_mut)
    }

    /// The places of all connections in a handshake.
    pub(crate) fn indices(&self) -> Vec<u32> {
        let mut all: Vec<u32> = self.handshakes.keys().copied().collect();
        // In the same order in each run of a simulation.
        all.sort_unstable();
        all
    }

    /// Takes the handshake of a connection out. A storm of them leaves little memory behind.
    pub(crate) fn remove(&mut self, index: u32) -> Option<Handshake> {
        let handshake = self.handshakes.remove(&index);
        shrink(&mut self.handshakes);
        handshake.map(|one| *one)
    }
}

fn shrink<T>(all: &mut HashMap<u32, T>) {
    if all.capacity() > 4 * all.len() + 256 {
        all.shrink_to(2 * all.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A handshake, at the socket of a proxy.
    fn handshake(proxy: Proxy) -> Handshake {
        let proxy: &'static Proxy = Box::leak(Box::new(proxy));
        let origin = Origin { listener: Some(0), peer: Some(([10, 0, 0, 1], 7).into()) };
        let door = Door { proxy: Some((proxy, proxy.versions)), tls: None, time: Duration::ZERO };
        Handshake::new(Arc::new(door), origin, Instant::now())
    }

    fn take(handshake: &mut Handshake, input: Buf) -> Agreement {
        handshake.take(input, Instant::now(), &mut Vec::new())
    }

    const LINE: &[u8] = b"PROXY TCP4 192.0.2.1 192.0.2.2 4567 80\r\n";

    #[test]
    fn what_follows_the_header_is_left_over() {
        let whole = [LINE, b"hello"].concat();
        for cut in 1..whole.len() {
            let mut one = handshake(Proxy::v1());
            let mut taken = take(&mut one, Buf::from(whole[..cut].to_vec()));
            let mut end = cut;
            if cut < LINE.len() {
                assert!(matches!(taken, Agreement::More), "{cut}: {taken:?}");
                assert_eq!(one.bytes(), cut);
                taken = take(&mut one, Buf::from(whole[cut..].to_vec()));
                end = whole.len();
            }
            let Agreement::Agreed { rest } = taken else { panic!("{cut}: {taken:?}") };
            assert_eq!(one.origin.peer, Some(([192, 0, 2, 1], 4567).into()));
            assert_eq!(*rest, whole[LINE.len()..end]);
        }
    }

    #[test]
    fn it_holds_no_more_than_the_longest_header() {
        let mut one = handshake(Proxy::v2().max_header(0));
        let head = [b"\r\n\r\n\0\r\nQUIT\n\x21\x11".as_slice(), &216u16.to_be_bytes()].concat();
        assert!(matches!(take(&mut one, Buf::from(head)), Agreement::More));
        // The block of an IPv4 client, then vectors that end one byte too early.
        assert!(matches!(take(&mut one, Buf::from(vec![0; 215])), Agreement::More));
        let Agreement::Agreed { rest } = take(&mut one, Buf::from(vec![0; 100_000])) else {
            panic!("it is whole")
        };
        assert_eq!((rest.len(), one.bytes()), (99_999, 232));
    }

    #[test]
    fn a_time_that_the_clock_does_not_reach_is_none() {
        assert!(handshake(Proxy::v1()).until.is_some());
        assert_eq!(handshake(Proxy::v1().timeout(Duration::MAX)).until, None);
    }

    #[test]
    fn a_storm_leaves_little_memory() {
        let mut all = Transports::default();
        (0..10_000).for_each(|index| all.insert(index, handshake(Proxy::v1())));
        (0..10_000).for_each(|index| assert!(all.remove(index).is_some()));
        assert!(all.handshakes.capacity() < 1000, "{}", all.handshakes.capacity());
        assert!(all.remove(0).is_none());
    }
}
