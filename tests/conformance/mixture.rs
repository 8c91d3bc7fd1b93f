//! Random programs of the operations that protocols need: sources that connect, quiet writes, reads
//! that append, idle timeouts, deadlines that move, timers with owners, waits for one and for many.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use windlass::driver::{Driver, OpCode};
use windlass::net::ConnectOptions;
use windlass::{
    Address, Buf, Completion, Completions, Done, Limit, Op, Refusal, Source, Submitter, Ticket,
    Watcher,
};

use crate::common::*;

/// The model of an accepted operation.
#[derive(Debug)]
struct Accepted {
    code: OpCode,
    source: Source,
    token: u64,
    quiet: bool,
    /// The bytes of its buffer: a completion that brings the buffer back brings all of them.
    len: usize,
    /// The last byte of them.
    mark: u8,
}

/// The counts of events in the programs.
enum Seen {
    Quiet,
    Idle,
    Appended,
    Connected,
    WaitedFor,
    Moved,
}

/// After this the shortest idle timeout has passed.
const LATE: Duration = Duration::from_millis(110);

const SEEN: usize = Seen::Moved as usize + 1;

struct Program<D: Driver> {
    seen: [u64; SEEN],
    watcher: Watcher<D>,
    submitter: Submitter,
    random: Random,
    open: HashMap<Ticket, Accepted>,
    sources: Vec<Source>,
    listener: Source,
    addresses: Vec<Address>,
    held: Vec<Buf>,
    done: Completions,
    token: u64,
    ended: u64,
    /// Their final completions were waited for, before completions that stay for the next wait.
    early: HashSet<Ticket>,
    /// Completions after which their operation went on.
    parts: u64,
}

impl<D: Driver> Program<D> {
    fn span(&mut self) -> Duration {
        Duration::from_micros(self.random.below(3000) as u64)
    }

    fn source(&mut self) -> Source {
        self.sources[self.random.below(self.sources.len())]
    }

    /// Some owner of bytes: its length and its last byte.
    fn buf(&mut self) -> (Buf, usize, u8) {
        let len = match self.random.below(5) {
            0 => 0,
            1 => 1 + self.random.below(100),
            _ => 1 + self.random.below(40_000),
        };
        let mark = self.random.below(256) as u8;
        let mut bytes = vec![mark; len];
        let buf = match self.random.below(6) {
            0 => Buf::from(bytes),
            1 => {
                let tail = bytes.split_off(len / 3);
                Buf::list([bytes, Vec::new(), tail])
            }
            2 => {
                bytes.extend_from_slice(b"more");
                Buf::from(bytes).slice(..len)
            }
            3 if !self.held.is_empty() => {
                let at = self.random.below(self.held.len());
                self.held.swap_remove(at)
            }
            4 => match self.watcher.lease(|space| {
                let len = len.min(space.len());
                space[..len].fill(mark);
                len
            }) {
                Ok(lease) => Buf::from(lease),
                Err(reason) => {
                    assert!(matches!(reason, Refusal::Full { limit: Limit::SwapBytes, .. }));
                    Buf::from(bytes)
                }
            },
            _ => Buf::from(std::sync::Arc::<[u8]>::from(bytes)),
        };
        let last = buf.parts().iter().rev().find_map(|part| part.last().copied());
        let len = buf.len();
        (buf, len, last.unwrap_or(0))
    }

    /// An operation, and whether it is quiet.
    fn op(&mut self) -> (Op, bool) {
        let source = self.source();
        let mut quiet = false;
        let op = match self.random.below(16) {
            0..3 => Op::read(source),
            3 => Op::read(source).multishot(),
            4 => Op::read_exact(source, room(300), 300),
            5..7 => {
                let unique = self.held.iter().position(|buf| buf.is_lease());
                let buf = match unique {
                    Some(at) if self.random.below(3) > 0 => self.held.swap_remove(at),
                    _ => {
                        let mut vec = room(self.random.below(2000));
                        vec.extend_from_slice(&b"old"[..vec.capacity().min(3)]);
                        Buf::from(vec)
                    }
                };
                Op::read_append(source, buf)
            }
            7..12 => {
                let op = Op::write(source, self.buf().0);
                quiet = self.random.below(3) > 0;
                if quiet { op.quiet() } else { op }
            }
            12 => Op::wait_drained(source, self.random.below(1000)),
            13 => {
                let span = self.span();
                Op::timer(span).owned_by(source)
            }
            14 => Op::shutdown(source),
            _ => Op::close(source),
        };
        let op = if self.random.below(4) == 0 { op.timeout(self.span()) } else { op };
        self.token += 1;
        (op.token(self.token), quiet)
    }

    fn enter(&mut self, ticket: Ticket, accepted: Accepted) {
        let before = self.open.insert(ticket, accepted);
        assert!(before.is_none_or(|before| before.quiet), "a ticket came twice: {ticket:?}");
    }

    fn submit(&mut self) {
        let (op, quiet) = self.op();
        let buf = op.buf();
        let len = buf.len();
        let last = buf.parts().iter().rev().find_map(|part| part.last().copied());
        let accepted = Accepted {
            code: op.code(),
            source: op.source(),
            token: self.token,
            quiet,
            len,
            mark: last.unwrap_or(0),
        };
        if self.random.below(6) == 0 {
            match self.submitter.submit(op) {
                Ok(ticket) => self.enter(ticket, accepted),
                Err(refused) => {
                    assert!(matches!(refused.reason, Refusal::Full { .. }), "{:?}", refused.reason);
                    assert_eq!(refused.value.buf().len(), len);
                }
            }
            return;
        }
        let before = self.watcher.counters();
        match self.watcher.submit(op) {
            Ok(ticket) => self.enter(ticket, accepted),
            Err(refused) => {
                let after = self.watcher.counters();
                assert_eq!(before.submitted, after.submitted, "{refused:?}");
                assert_eq!(refused.value.buf().len(), len);
                let gone = matches!(refused.reason, Refusal::Stale | Refusal::Os(_));
                let full = matches!(
                    refused.reason,
                    Refusal::Full { .. } | Refusal::EmptyBuffer | Refusal::Unsupported
                );
                assert!(gone || full, "{:?}", refused.reason);
            }
        }
    }

    fn connect(&mut self) {
        let count = 1 + self.random.below(3);
        let list: Vec<Address> = (0..count)
            .map(|_| self.addresses[self.random.below(self.addresses.len())].clone())
            .collect();
        self.token += 1;
        let delay = Duration::from_millis(10);
        let options = ConnectOptions::default().attempt_delay(delay).token(self.token);
        let options = match self.random.below(2) {
            0 => options.timeout(10 * self.span()),
            _ => options,
        };
        match self.watcher.connect(list, options) {
            Ok((source, ticket)) => {
                self.sources.push(source);
                let accepted = Accepted {
                    code: OpCode::Connect,
                    source,
                    token: self.token,
                    quiet: false,
                    len: 0,
                    mark: 0,
                };
                self.enter(ticket, accepted);
                self.watcher.set_token(source, 0).unwrap();
            }
            Err(reason) => assert!(matches!(reason, Refusal::Full { .. }), "{reason:?}"),
        }
    }

    fn take(&mut self, c: Completion) {
        let ticket = c.ticket();
        if c.has_more() && self.early.contains(&ticket) {
            self.parts += 1;
            return;
        }
        let Some(known) = self.open.get(&ticket) else { panic!("not in flight: {c:?}") };
        assert_eq!((c.code(), c.token), (known.code, known.token), "{c:?} {known:?}");
        assert_eq!(c.source, known.source, "{c:?}");
        let (len, mark) = (known.len, known.mark);
        if c.has_more() {
            self.parts += 1;
        } else {
            self.ended += 1;
            self.open.remove(&ticket);
        }
        let code = c.code();
        match c.result {
            Ok(Done::Accepted(handle)) => {
                if let Ok(source) = self.watcher.attach(handle) {
                    self.sources.push(source);
                }
            }
            Ok(Done::Read(data))
                if data.is_lease() && self.random.below(2) == 0 && self.held.len() < 40 =>
            {
                self.held.push(data);
            }
            Ok(Done::Appended { buf, bytes }) => {
                assert_eq!(buf.len(), len + bytes as usize);
                self.seen[Seen::Appended as usize] += u64::from(bytes > 0);
                assert!(len == 0 || buf[len - 1] == mark, "the old bytes stay");
                if buf.is_lease() && self.held.len() < 40 {
                    self.held.push(buf);
                }
            }
            Ok(Done::Connected(_)) => self.seen[Seen::Connected as usize] += 1,
            Ok(Done::Written { buf, bytes }) => {
                assert_eq!((buf.len(), bytes as usize), (len, len));
            }
            Err(error) if matches!(code, OpCode::Write | OpCode::ReadAppend) => {
                let buf = error.buf();
                assert_eq!(buf.len(), len, "{code:?} {error:?}");
                let last = buf.parts().iter().rev().find_map(|part| part.last().copied());
                assert_eq!(last.unwrap_or(0), mark, "{code:?} {error:?}");
            }
            _ => {}
        }
    }

    fn take_all(&mut self) {
        let batch: Vec<Completion> = self.done.drain(..).collect();
        for c in batch {
            self.take(c);
        }
    }

    fn pass(&mut self, span: Duration) {
        let until = self.watcher.update_now() + span;
        while let Some(left) = until.checked_duration_since(self.watcher.update_now())
            && !left.is_zero()
        {
            let mut done = std::mem::take(&mut self.done);
            self.watcher.wait_timeout(&mut done, left).unwrap();
            self.done = done;
            self.take_all();
        }
    }

    fn set_idle_timeout(&mut self, source: Source, span: Option<Duration>) {
        match self.watcher.set_idle_timeout(source, span) {
            Ok(()) | Err(Refusal::Stale | Refusal::Os(_) | Refusal::Full { .. }) => {}
            Err(reason) => panic!("{reason:?}"),
        }
    }

    /// Reads a source that gets no bytes, until `pass(LATE)` ends the read by its idle timeout. A
    /// table that is full may refuse the read.
    fn read_idle(&mut self, source: Source) {
        self.set_idle_timeout(source, Some(Duration::from_millis(1)));
        self.token += 1;
        let token = self.token;
        if let Ok(ticket) = self.watcher.submit(Op::read(source).token(token)) {
            let (code, quiet) = (OpCode::Read, false);
            self.enter(ticket, Accepted { code, source, token, quiet, len: 0, mark: 0 });
        }
    }

    /// A ticket that may have ended.
    fn ticket(&mut self) -> Option<Ticket> {
        let mut tickets: Vec<&Ticket> = self.open.keys().collect();
        tickets.sort_unstable_by_key(|ticket| (self.open[ticket].token, format!("{ticket:?}")));
        let at = self.random.below(tickets.len().max(1));
        tickets.get(at).map(|&&ticket| ticket)
    }

    fn step(&mut self) {
        match self.random.below(24) {
            0..10 => self.submit(),
            10 => self.connect(),
            11 => {
                if let Some(ticket) = self.ticket()
                    && self.watcher.cancel(ticket)
                    && let Some(known) = self.open.get_mut(&ticket)
                {
                    // An accepted cancel is answered.
                    known.quiet = false;
                }
            }
            12 => {
                if let Some(ticket) = self.ticket() {
                    let span = self.span();
                    match self.watcher.reschedule(ticket, span) {
                        Ok(()) => self.seen[Seen::Moved as usize] += 1,
                        Err(Refusal::Stale | Refusal::Full { .. }) => {}
                        Err(reason) => panic!("{reason:?}"),
                    }
                }
            }
            13 => {
                if let Some(ticket) = self.ticket() {
                    let asked = self.submitter.cancel(ticket);
                    assert!(matches!(asked, Ok(()) | Err(Refusal::Full { .. })), "{asked:?}");
                }
            }
            14 => {
                let (source, span) = (self.source(), self.span());
                let span = (self.random.below(3) > 0).then_some(span);
                self.set_idle_timeout(source, span);
            }
            15 => {
                if self.sources.len() > 12 {
                    let at = self.random.below(self.sources.len());
                    let source = self.sources.swap_remove(at);
                    match self.random.below(4) {
                        0 => self.submitter.abort(source),
                        1 => drop(self.watcher.detach(source)),
                        _ => drop(self.watcher.abort(source)),
                    }
                    if self.watcher.queued_bytes(source).is_ok() {
                        self.sources.push(source);
                    }
                }
            }
            16 => {
                let source = self.source();
                self.watcher.cancel_all(source);
            }
            17 => {
                if let Some(ticket) = self.ticket() {
                    // The wait would never end.
                    let span = self.span();
                    if self.watcher.reschedule(ticket, span).is_ok() {
                        match self.watcher.wait_for(ticket) {
                            Ok(c) => {
                                assert_eq!((c.ticket(), c.has_more()), (ticket, false));
                                self.early.insert(ticket);
                                self.seen[Seen::WaitedFor as usize] += 1;
                                self.take(c);
                            }
                            Err(error) => match Refusal::of(&error) {
                                Some(Refusal::Stale | Refusal::Full { .. }) => {}
                                other => panic!("{other:?} {error}"),
                            },
                        }
                    }
                }
            }
            18 => {
                let (least, span) = (self.random.below(6), self.span());
                let mut done = std::mem::take(&mut self.done);
                self.watcher.wait_at_least(&mut done, least, span).unwrap();
                self.done = done;
                self.take_all();
            }
            19 => {
                if !self.held.is_empty() {
                    let at = self.random.below(self.held.len());
                    let buf = self.held.swap_remove(at);
                    match buf.into_lease_mut() {
                        Ok(mut lease) => {
                            let tail = lease.split_off(lease.len() / 2);
                            lease.fill(1);
                            match self.random.below(3) {
                                0 => self.held.push(Buf::from(lease.try_join(tail).unwrap())),
                                1 => self.held.extend([Buf::from(lease), Buf::from(tail)]),
                                _ => {
                                    let mut lease = lease.freeze();
                                    lease.compact();
                                    std::thread::scope(|scope| {
                                        scope.spawn(move || drop(tail));
                                    });
                                    self.held.push(Buf::from(lease));
                                }
                            }
                        }
                        Err(buf) => drop(buf),
                    }
                }
            }
            20 => self.held.truncate(5),
            _ => {
                let span = self.span();
                let mut done = std::mem::take(&mut self.done);
                self.watcher.wait_timeout(&mut done, span).unwrap();
                self.done = done;
                self.take_all();
            }
        }
    }
}

fn run<H: Harness>(seed: u64, steps: usize, small: bool) -> [u64; SEEN] {
    let builder = Watcher::builder();
    let builder = match small {
        true => builder.buffer_size(1024).swap_limit(16 << 10).max_sources(40).max_operations(64),
        false => builder,
    };
    let mut b = H::bench_with(builder);
    let (listener, at) = b.listen();
    let mut sources = Vec::new();
    for _ in 0..4 {
        let (here, there) = b.pair();
        sources.extend([here, there]);
    }
    let (idle, its_peer) = b.pair();
    let submitter = b.submitter();
    let Bench { watcher, .. } = b;
    let mut program = Program {
        seen: [0; SEEN],
        watcher,
        submitter,
        random: Random::new(seed),
        open: HashMap::new(),
        sources,
        listener,
        addresses: vec![at.clone(), at, H::nowhere()],
        held: Vec::new(),
        done: Completions::new(),
        token: 1,
        ended: 0,
        early: HashSet::new(),
        parts: 0,
    };
    let accept = Op::accept(program.listener).multishot().token(1);
    let before = program.watcher.counters();
    let ticket = program.watcher.submit(accept).unwrap();
    let accepted = Accepted {
        code: OpCode::Accept,
        source: listener,
        token: 1,
        quiet: false,
        len: 0,
        mark: 0,
    };
    program.enter(ticket, accepted);
    for step in 0..steps {
        program.step();
        if step == steps / 2 {
            program.read_idle(idle);
            program.pass(LATE);
            program.sources.extend([idle, its_peer]);
        } else if H::NAME == "sim" && step % 50 == 0 {
            program.pass(LATE);
        }
    }
    program.sources.push(listener);
    for source in std::mem::take(&mut program.sources) {
        program.watcher.abort(source);
    }
    let start = program.watcher.update_now();
    while program.watcher.counters().in_flight > 0
        || program.watcher.counters().undelivered > 0
        || program.watcher.counters().remote_queue > 0
    {
        let mut done = std::mem::take(&mut program.done);
        program.watcher.wait_timeout(&mut done, Duration::from_millis(20)).unwrap();
        program.done = done;
        program.take_all();
        for source in std::mem::take(&mut program.sources) {
            program.watcher.abort(source);
        }
        assert!(program.watcher.update_now() - start < BOUND, "{:?}", program.watcher.counters());
    }
    let never: Vec<&Accepted> = program.open.values().filter(|known| !known.quiet).collect();
    assert!(never.is_empty(), "seed {seed}: never ended: {never:?}");
    let after = program.watcher.counters();
    let quiet = after.quiet_done - before.quiet_done;
    assert_eq!(after.submitted - before.submitted, program.ended + quiet, "seed {seed}");
    assert_eq!(after.completed - before.completed, program.ended + program.parts, "seed {seed}");
    assert_eq!(after.sources, 0, "seed {seed}: {after:?}");
    assert_eq!(program.open.len() as u64, quiet, "seed {seed}: as many had no completion");
    program.seen[Seen::Quiet as usize] += quiet;
    program.seen[Seen::Idle as usize] += after.idle_timeouts;
    program.seen
}

pub fn random_programs_end_everything_once<H: Harness>() {
    let many = seeds::setting("WINDLASS_MIXTURES").unwrap_or(if cfg!(miri) { 1 } else { 6 });
    let mut seen = [0; SEEN];
    for i in 0..many {
        let more = run::<H>(seed() * 1000 + i, 400, i % 2 == 1);
        seen = std::array::from_fn(|at| seen[at] + more[at]);
    }
    assert!(cfg!(miri) || seen.iter().all(|&count| count > 0), "what never happened: {seen:?}");
}
