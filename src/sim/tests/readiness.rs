//! Readiness under a hostile scheduler: no wake-up is lost between a vain call and the wait (P4).

use super::*;
use crate::seeds::each;
use crate::sim::Link;
use crate::sim::rng::Rng;
use crate::words::source::Ticket;

const HOST: [u8; 4] = [10, 0, 0, 1];

/// What one side does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Call,
    /// A call was vain: the submission follows, at any later moment.
    Submit,
    Wait,
}

/// One side, and the operation that it waits for.
struct Side {
    source: Source,
    next: Next,
    ticket: Option<Ticket>,
    many: bool,
}

impl Side {
    fn new(source: Source, many: bool) -> Side {
        Side { source, next: Next::Call, ticket: None, many }
    }

    fn submit(&mut self, watcher: &mut Watcher, op: Op) {
        if self.ticket.is_none() {
            let op = if self.many { op.multishot() } else { op };
            self.ticket = Some(watcher.submit(op).unwrap());
        }
        self.next = Next::Wait;
    }

    fn told(&mut self, c: &Completion) {
        if self.ticket == Some(c.ticket()) {
            assert_eq!(c.has_more(), self.many);
            self.next = Next::Call;
            if !self.many {
                self.ticket = None;
            }
        }
    }
}

fn is_vain<T>(answer: &io::Result<T>) -> bool {
    answer.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}

/// Bytes cross a connection, while calls, submissions and waits follow in an order of the seed. A
/// wait that nothing can end is an error of the simulation.
fn cross(seed: u64, completing: bool) {
    let mut rng = Rng::new(seed);
    let probability = [0.0, 0.05, 0.3, 0.7][rng.below(4) as usize];
    let sim = Sim::with_faults(seed, Faults::transient(probability));
    sim.set_completing(completing);
    sim.set_buffer(1 + rng.below(300) as usize);
    let mut watcher = watcher(&sim);
    let (a, b) = if rng.below(2) == 0 {
        let latency = Link::default().latency(Duration::from_nanos(rng.below(100_000)));
        sim.set_link(HOST, HOST, latency);
        let listener = watcher.listen((HOST, 0)).unwrap();
        let at = watcher.local_address(listener).unwrap();
        watcher.submit(Op::accept(listener)).unwrap();
        let (client, _) = watcher.connect([at], ConnectOptions::default()).unwrap();
        let mut accepted = None;
        while accepted.is_none() || watcher.peer_address(client).is_err() {
            for c in wait(&mut watcher) {
                if let Ok(Done::Accepted(socket)) = c.result {
                    accepted = Some(watcher.attach(socket).unwrap());
                }
            }
        }
        (client, accepted.unwrap())
    } else {
        let (a, b) = sim.pair();
        (watcher.attach(a).unwrap(), watcher.attach(b).unwrap())
    };
    let mut writer = Side::new(a, rng.below(2) == 0);
    let mut reader = Side::new(b, rng.below(2) == 0);
    let sent: Vec<u8> = (0..400u32).map(|i| (i ^ (i >> 7)) as u8).collect();
    let (mut left, mut got, mut memory) = (&sent[..], Vec::new(), [0; 1000]);
    let mut done = Completions::new();
    while got.len() < sent.len() {
        let writer_waits = writer.next == Next::Wait || left.is_empty();
        match rng.below(8) {
            0..=2 if !writer_waits => match writer.next {
                Next::Call => {
                    let most = (1 + rng.below(900) as usize).min(left.len());
                    match watcher.send(writer.source, &left[..most]) {
                        Ok(moved) => left = &left[moved..],
                        answer => {
                            assert!(is_vain(&answer), "{answer:?}");
                            writer.next = Next::Submit;
                        }
                    }
                }
                _ => {
                    let op = Op::writable(writer.source);
                    writer.submit(&mut watcher, op);
                }
            },
            3..=5 => match reader.next {
                Next::Call => {
                    let room = 1 + rng.below(999) as usize;
                    match watcher.recv(reader.source, &mut memory[..room]) {
                        Ok(moved) => {
                            got.extend_from_slice(&memory[..moved]);
                            // A short call may be the last one before the wait, too.
                            if moved < room && !reader.many && rng.below(2) == 0 {
                                reader.next = Next::Submit;
                            }
                        }
                        answer => {
                            assert!(is_vain(&answer), "{answer:?}");
                            reader.next = Next::Submit;
                        }
                    }
                }
                Next::Submit => {
                    let op = Op::readable(reader.source);
                    reader.submit(&mut watcher, op);
                }
                Next::Wait => {}
            },
            6 => drop(watcher.try_wait(&mut done).unwrap()),
            _ if writer_waits && reader.next == Next::Wait => {
                watcher.wait(&mut done).expect("a wake-up was lost");
            }
            _ => {}
        }
        for c in done.drain(..) {
            writer.told(&c);
            reader.told(&c);
        }
    }
    assert_eq!(got, sent);
}

#[test]
#[cfg_attr(miri, ignore = "many runs: too slow")]
fn no_wake_up_is_lost_in_any_order() {
    each("readiness in any order", 60, 20, |seed| {
        cross(seed, false);
        cross(seed, true);
    });
}
