//! Those who make the calls of a program: handlers, and a client on the loop of a server.

use std::collections::HashMap;
use std::time::Duration;

use fastrand::Rng;
use windlass_web::client::{FetchEvent, FetchId};
use windlass_web::test::LoopWork;
use windlass_web::windlass::{Completion, Op, Watcher};
use windlass_web::{App, Client, Limits, Response, Status};

use super::world::{Kind, LONG, Plan, begin, ends, whole, world};

/// A server whose handlers make the calls.
pub(super) fn caller() -> App {
    let settings = world(|world| world.settings.clone());
    App::new().client(settings).limits(Limits::new().answer(LONG).keep_alive(LONG)).get(
        "/",
        |_, q| match begin() {
            Some((number, plan)) => q.fetch(plan.fetch(number), move |_, result| {
                ends(number, whole(result));
                Response::empty(Status::NO_CONTENT)
            }),
            None => Response::empty(Status::NO_CONTENT),
        },
    )
}

/// A client on the loop of a server.
pub(super) struct Own {
    client: Client,
    random: Rng,
    running: HashMap<FetchId, (usize, Plan, u16, Vec<u8>)>,
    paused: Vec<FetchId>,
}

/// The timer that begins calls.
pub(super) const NEXT: u64 = 1;
/// The timer that goes on with the responses that are paused.
pub(super) const RESUME: u64 = 2;

impl Own {
    pub(super) fn new(watcher: &mut Watcher, seed: u64) -> Own {
        let settings = world(|world| world.settings.clone());
        watcher.submit(Op::timer(Duration::ZERO).token(NEXT)).expect("a timer");
        Own {
            client: Client::new(settings),
            random: Rng::with_seed(seed),
            running: HashMap::new(),
            paused: Vec::new(),
        }
    }

    fn begin(&mut self) {
        let Some((number, plan)) = begin() else { return };
        let fetch = plan.fetch(number);
        let id = match plan.streams {
            true => self.client.fetch_stream(fetch),
            false => self.client.fetch(fetch),
        };
        self.running.insert(id, (number, plan, 0, Vec::new()));
    }

    fn take(&mut self, watcher: &mut Watcher, event: FetchEvent) {
        match event {
            FetchEvent::Fetched { id, result } => {
                let (number, ..) = self.running.remove(&id).expect("a call");
                ends(number, whole(result));
            }
            FetchEvent::Head { id, head } => {
                let call = self.running.get_mut(&id).expect("a call");
                assert_eq!((call.2, head.body()), (0, &b""[..]), "two heads");
                call.2 = head.status().code();
                let is_cancelled = call.1.kind == Kind::Cancelled;
                if is_cancelled && self.random.bool() {
                    self.cancel(id);
                } else if self.random.u8(..4) == 0 {
                    assert!(self.client.pause(id));
                    self.paused.push(id);
                    let span = Duration::from_micros(self.random.u64(..100_000));
                    watcher.submit(Op::timer(span).token(RESUME)).expect("a timer");
                }
            }
            FetchEvent::Body { id, data } => {
                let call = self.running.get_mut(&id).expect("a call");
                assert!(call.2 > 0 && !data.is_empty());
                call.3.extend_from_slice(&data);
                if call.1.kind == Kind::Cancelled {
                    self.cancel(id);
                }
            }
            FetchEvent::End { id } => {
                let (number, _, status, body) = self.running.remove(&id).expect("a call");
                ends(number, Ok((status, body)));
            }
            FetchEvent::Failed { id, error } => {
                let (number, ..) = self.running.remove(&id).expect("a call");
                ends(number, Err(error));
            }
            other => panic!("{other:?}"),
        }
    }

    fn cancel(&mut self, id: FetchId) {
        assert!(self.client.cancel(id));
        let (number, ..) = self.running.remove(&id).expect("a call");
        world(|world| world.plans[number].is_lost = true);
    }
}

impl LoopWork for Own {
    fn complete(&mut self, watcher: &mut Watcher, completion: Completion) {
        let Some(own) = self.client.complete(watcher, completion) else { return };
        if own.token == RESUME {
            for id in self.paused.drain(..) {
                self.client.resume(id); // false if it is over
            }
            return;
        }
        for _ in 0..self.random.usize(..4) {
            self.begin();
        }
        if world(|world| !world.next.is_empty()) {
            let span = Duration::from_micros(self.random.u64(..200_000));
            watcher.submit(Op::timer(span).token(NEXT)).expect("a timer");
        }
    }

    fn turn(&mut self, watcher: &mut Watcher) {
        while let Some(event) = self.client.next_event(watcher) {
            self.take(watcher, event);
        }
        if world(|world| world.stops) {
            self.client.stop();
        }
        self.client.flush(watcher);
        assert!(self.client.requests() >= self.running.len());
        let left = (self.client.connections(), self.client.requests());
        world(|world| world.left = Some(left));
    }
}
