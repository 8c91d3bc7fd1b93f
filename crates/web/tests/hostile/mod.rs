//! A client that asks a server whose every byte the test decides: on one watcher of every driver.
//!
//! # Why
//! Both ends and the test share one thread. So a test knows what the server has read and written
//! when the client acts, and nothing waits for real time.
#![allow(dead_code, unreachable_pub)] // each test binary uses its own part

pub mod server;

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use server::{Act, Hostile, LISTENER};
use windlass::driver::Driver;
use windlass::net::{ConnectOptions, SocketOption};
use windlass::{Address, Completion, Completions, Done, Op, Source, Watcher};
use windlass_web::client::{Fetch, FetchError, FetchEvent, FetchId, FetchSettings, Fetched};
use windlass_web::{App, Client, Limits, ServerLoop};

use crate::common::{Harness, PATIENCE};

/// What those do who have the application make a call.
const ASKER: u64 = 1;

/// Who makes the calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// A handler of an application.
    App,
    /// A client in the test's own loop.
    Own,
    /// The same, with responses in parts.
    Streams,
}

/// What has come of a call.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The status and the body, or what is wrong.
    pub text: String,
    /// The response, with its body if it did not come in parts.
    pub fetched: Option<Fetched>,
    /// The virtual time when it came.
    pub at: std::time::Instant,
}

/// An error, as a text.
fn told(error: &FetchError) -> String {
    match error {
        FetchError::Response(error) => format!("{:?}", error.rule()),
        FetchError::Timeout { phase, .. } => format!("Timeout {phase:?}"),
        FetchError::Redirect { why, .. } => format!("Redirect: {why}"),
        FetchError::Status(code) => format!("Status {code}"),
        error => {
            let text = format!("{error:?}");
            text.split(['(', ' ']).next().unwrap_or_default().to_owned()
        }
    }
}

fn whole(status: u16, body: &[u8]) -> String {
    format!("{status} {}", String::from_utf8_lossy(body))
}

/// The state of the application: the calls that it is to make, and what came of them.
#[derive(Default)]
pub struct Calls {
    next: VecDeque<(usize, Fetch)>,
    ended: Vec<(usize, Result<Fetched, FetchError>)>,
}

fn app(settings: FetchSettings) -> App<Calls> {
    let hour = Duration::from_secs(3600);
    App::with(|_loop| Calls::default())
        .client(settings)
        .limits(Limits::new().answer(hour).keep_alive(hour))
        .get("/", |calls: &mut Calls, q| {
            let (number, fetch) = calls.next.pop_front().expect("a call");
            q.fetch(fetch, move |calls: &mut Calls, result| {
                calls.ended.push((number, result));
                "over"
            })
        })
}

/// Who makes the calls, and what that needs.
enum Side {
    App {
        server: Box<ServerLoop<Calls>>,
        address: Address,
        /// Those who have it make the calls, in their order.
        askers: Vec<Source>,
        /// What they have heard.
        heard: HashMap<Source, Vec<u8>>,
    },
    Own {
        client: Box<Client>,
        streams: bool,
        /// The number of each request, and what has come of its body.
        running: HashMap<FetchId, (usize, Option<Fetched>, Vec<u8>)>,
    },
}

/// A client, and the server that it asks at two addresses.
pub struct Scene<D: Driver> {
    pub watcher: Watcher<D>,
    side: Side,
    pub hostile: Hostile,
    /// Where the hostile server listens.
    pub origins: [String; 2],
    pub is_virtual: bool,
    calls: usize,
    /// By the number of the call.
    outcomes: HashMap<usize, Vec<Outcome>>,
}

/// Starts a client on a watcher of the harness.
pub fn scene<T: Harness>(who: Who, settings: FetchSettings) -> Scene<T::Driver> {
    let mut watcher = T::watcher(Watcher::builder());
    let mut listen = |port: u16| {
        let port = if T::VIRTUAL { port } else { 0 };
        let listener = watcher.listen(([127, 0, 0, 1], port)).expect("a listener");
        let accept = Op::accept(listener).multishot().token(LISTENER);
        watcher.submit(accept).expect("an accept");
        let address = watcher.local_address(listener).expect("an address");
        format!("http://{}", address.ip().expect("an address"))
    };
    let origins = [listen(8081), listen(8082)];
    let side = match who {
        Who::App => {
            let app = app(settings);
            let (app, address) = if T::VIRTUAL {
                let address = std::net::SocketAddr::from(([127, 0, 0, 1], 8080));
                (app.listen(address.to_string()).expect("an address"), address)
            } else {
                let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
                let address = listener.local_addr().expect("its address");
                (app.listen(listener).expect("a listener"), address)
            };
            let server = Box::new(app.start_on(&mut watcher).expect("the server starts"));
            Side::App { server, address: address.into(), askers: Vec::new(), heard: HashMap::new() }
        }
        Who::Own | Who::Streams => {
            let (client, running) = (Box::new(Client::new(settings)), HashMap::new());
            Side::Own { client, streams: who == Who::Streams, running }
        }
    };
    let (hostile, outcomes) = (Hostile::default(), HashMap::new());
    Scene { watcher, side, hostile, origins, is_virtual: T::VIRTUAL, calls: 0, outcomes }
}

impl<D: Driver> Scene<D> {
    /// Sets what the server does behind each request for a target.
    pub fn script(&mut self, target: &str, acts: Vec<Act>) {
        self.scripts(target, vec![acts]);
    }

    /// Sets what the server does behind the requests for a target: one after the other, and the
    /// last one for all that follow.
    pub fn scripts(&mut self, target: &str, all: Vec<Vec<Act>>) {
        self.hostile.scripts.insert(target.to_owned(), all.into());
    }

    /// Sets what the server does to the next connection, before any request.
    pub fn greet(&mut self, acts: Vec<Act>) {
        self.hostile.greeting = Some(acts);
    }

    /// Makes the server do this now on the connection of the last request.
    pub fn act(&mut self, acts: Vec<Act>) {
        let (at, _) = *self.hostile.requests.last().expect("a request");
        self.hostile.act(&mut self.watcher, at, acts);
    }

    /// The URL of a target of the first address.
    pub fn url(&self, target: &str) -> String {
        format!("{}{target}", self.origins[0])
    }

    /// Begins a call; its number.
    pub fn begin(&mut self, fetch: Fetch) -> usize {
        self.calls += 1;
        let watcher = &mut self.watcher;
        match &mut self.side {
            Side::App { server, address, askers, heard } => {
                server.state().next.push_back((self.calls, fetch));
                let options = ConnectOptions::default().token(ASKER);
                let asker = watcher.connect([address.clone()], options).expect("a source").0;
                let request = Op::write(asker, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
                watcher.submit(request.token(ASKER)).expect("a request");
                let read = Op::read(asker).multishot().token(ASKER);
                watcher.submit(read).expect("a read");
                heard.insert(asker, Vec::new());
                askers.push(asker);
            }
            Side::Own { client, streams, running } => {
                let id = match streams {
                    true => client.fetch_stream(fetch),
                    false => client.fetch(fetch),
                };
                running.insert(id, (self.calls, None, Vec::new()));
                client.flush(watcher);
            }
        }
        self.calls
    }

    /// The client of the test's loop, and its watcher.
    pub fn own(&mut self) -> (&mut Client, &mut Watcher<D>) {
        match &mut self.side {
            Side::Own { client, .. } => (client, &mut self.watcher),
            Side::App { .. } => panic!("the calls are those of an application"),
        }
    }

    /// Ends a call of the client whose response nobody wants.
    pub fn cancel(&mut self, call: usize) {
        let Side::Own { client, running, .. } = &mut self.side else { return };
        let found = running.iter().find(|(_, of)| of.0 == call).map(|(id, _)| *id);
        let id = found.expect("it runs");
        assert!(client.cancel(id) && !client.cancel(id));
        running.remove(&id);
        client.flush(&mut self.watcher);
    }

    /// Whoever has had the application make a call resets the connection.
    pub fn leave(&mut self, call: usize) {
        let Side::App { askers, .. } = &self.side else { return };
        let asker = askers[call - 1];
        let reset = SocketOption::Linger(Some(Duration::ZERO));
        self.watcher.set_option(asker, reset).expect("an option");
        self.watcher.abort(asker);
    }

    /// How many connections an application has, once it has been asked for all calls.
    pub fn asked(&mut self) -> Option<usize> {
        let Side::App { server, .. } = &mut self.side else { return None };
        server.state().next.is_empty().then(|| server.connections())
    }

    /// Whether a call is over.
    pub fn is_over(&self, call: usize) -> bool {
        self.outcomes.contains_key(&call)
    }

    /// Waits for the outcome of a call. There is one, and one only.
    #[track_caller]
    pub fn outcome(&mut self, call: usize) -> Outcome {
        self.until("an outcome", |scene| {
            let all = scene.outcomes.values().map(Vec::len).sum::<usize>();
            let is_answered = |heard: &Vec<u8>| heard.ends_with(b"over");
            let is_told = match &scene.side {
                Side::App { heard, .. } => {
                    heard.values().filter(|heard| is_answered(heard)).count() == all
                }
                Side::Own { .. } => true,
            };
            is_told && scene.is_over(call)
        });
        let outcomes = &self.outcomes[&call];
        assert_eq!(outcomes.len(), 1, "several outcomes: {outcomes:?}");
        outcomes[0].clone()
    }

    /// Makes a call, and waits for its outcome.
    #[track_caller]
    pub fn call(&mut self, fetch: Fetch) -> Outcome {
        let call = self.begin(fetch);
        self.outcome(call)
    }

    /// Makes a call, and waits for the text of its outcome.
    #[track_caller]
    pub fn text(&mut self, fetch: Fetch) -> String {
        self.call(fetch).text
    }

    /// Runs until `ready`.
    #[track_caller]
    pub fn until(&mut self, what: &str, mut ready: impl FnMut(&mut Self) -> bool) {
        let start = self.watcher.update_now();
        while !ready(self) {
            assert!(self.watcher.now() - start < 50 * PATIENCE, "still waits for {what}");
            assert!(self.turn(PATIENCE) > 0, "waited in vain for {what}");
        }
    }

    /// Runs turns until nothing more happens.
    pub fn settle(&mut self) {
        if self.is_virtual {
            // A network with faults holds up what it carries, again and again.
            return self.run_for(Duration::from_millis(200));
        }
        while self.turn(Duration::from_millis(20)) > 0 {}
    }

    /// Runs for a time.
    pub fn run_for(&mut self, span: Duration) {
        let end = self.watcher.update_now() + span;
        while let Some(left) = end.checked_duration_since(self.watcher.update_now())
            && !left.is_zero()
        {
            self.turn(left);
        }
    }

    /// Runs one turn, and waits for it for at most `span`; how many completions there were.
    pub fn turn(&mut self, span: Duration) -> usize {
        let mut done = Completions::new();
        let count = self.watcher.wait_timeout(&mut done, span).expect("a wait");
        for completion in done.drain(..) {
            if let Some(other) = self.complete(completion) {
                self.hostile.complete(&mut self.watcher, other);
            }
        }
        self.take_outcomes();
        count
    }

    /// Takes a completion of the client, or returns it.
    fn complete(&mut self, completion: Completion) -> Option<Completion> {
        match &mut self.side {
            Side::App { server, heard, .. } => {
                let c = server.complete(&mut self.watcher, completion)?;
                if c.token != ASKER {
                    return Some(c);
                }
                if let (Some(heard), Ok(Done::Read(data))) = (heard.get_mut(&c.source), &c.result) {
                    heard.extend_from_slice(data);
                }
                None
            }
            Side::Own { client, .. } => client.complete(&mut self.watcher, completion),
        }
    }

    fn take_outcomes(&mut self) {
        let (watcher, mut ended) = (&mut self.watcher, Vec::new());
        match &mut self.side {
            Side::App { server, .. } => {
                server.turn(watcher);
                ended.append(&mut server.state().ended);
            }
            Side::Own { client, running, .. } => {
                while let Some(event) = client.next_event(watcher) {
                    let (id, result) = match event {
                        FetchEvent::Fetched { id, result } => (id, result),
                        FetchEvent::Failed { id, error } => (id, Err(error)),
                        FetchEvent::Head { id, head } => {
                            let of = running.get_mut(&id).expect("a call");
                            assert!(of.1.replace(head).is_none(), "two heads");
                            continue;
                        }
                        FetchEvent::Body { id, data } => {
                            let of = running.get_mut(&id).expect("a call");
                            assert!(of.1.is_some() && !data.is_empty());
                            of.2.extend_from_slice(&data);
                            continue;
                        }
                        FetchEvent::End { id } => {
                            let (number, head, body) = running.remove(&id).expect("a call");
                            let head = head.expect("a head");
                            let text = whole(head.status().code(), &body);
                            let outcome = Outcome { text, fetched: Some(head), at: watcher.now() };
                            self.outcomes.entry(number).or_default().push(outcome);
                            continue;
                        }
                        other => panic!("{other:?}"),
                    };
                    ended.push((running.remove(&id).expect("a call").0, result));
                }
                client.flush(watcher);
            }
        }
        for (number, result) in ended {
            let text = match &result {
                Ok(fetched) => whole(fetched.status().code(), fetched.body()),
                Err(error) => told(error),
            };
            let outcome = Outcome { text, fetched: result.ok(), at: watcher.now() };
            self.outcomes.entry(number).or_default().push(outcome);
        }
    }
}
