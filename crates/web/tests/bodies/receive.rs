//! Bodies in parts, and bodies that are collected behind a look at the head.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use windlass_web::body::{Demand, Receive, Resume};
use windlass_web::windlass::{Buf, Source};
use windlass_web::{App, Error, Request, Response, Status};

use crate::bench::{Bench, Faulty, Harness, Simulated, seed};

crate::every_driver! {
    a_body_comes_in_parts
    parts_of_a_body_are_slices_of_what_was_read
    requests_behind_a_body_are_answered
    a_paused_body_is_not_read
    a_body_is_resumed_from_another_thread
    a_body_is_resumed_from_the_loop
    a_resume_before_a_pause_ends_it
    a_resume_of_another_request_has_no_effect
    a_receiver_stops
    a_receiver_fails_or_panics
    a_receiver_hears_that_its_client_has_gone
    a_body_beyond_the_limit_is_refused
    the_end_of_the_clients_output_waits_for_a_pause
    a_client_that_resets_in_a_pause_is_gone_at_once
    the_end_of_the_clients_output_is_behind_a_long_body
    a_received_body_is_answered_later
    trailers_are_there_at_the_end
    a_collected_body_follows_its_head
    a_body_is_asked_for_once
    a_receiver_makes_the_client_go_on
}

/// What a loop knows of its receivers.
#[derive(Default)]
pub struct State {
    /// The sizes of parts.
    parts: Vec<usize>,
    resume: Vec<Resume>,
    aborted: usize,
    copies: usize,
}

type Shared = Arc<Mutex<State>>;

/// Keeps a body, and does with each part what its plan says: `p`: pause, `s`: stop, `e`: an error,
/// `!`: a panic. What is behind the plan goes on.
struct Plan {
    plan: Vec<u8>,
    seen: usize,
    body: Vec<u8>,
    is_checked: bool,
}

impl Plan {
    fn new(plan: &str) -> Plan {
        Plan { plan: plan.into(), seen: 0, body: Vec::new(), is_checked: true }
    }
}

impl Receive<Shared> for Plan {
    fn begin(&mut self, state: &mut Shared, resume: Resume) {
        state.lock().unwrap().resume.push(resume);
    }

    fn data(&mut self, state: &mut Shared, part: Buf) -> Result<Demand, Error> {
        assert!(!part.is_empty());
        self.body.extend_from_slice(&part);
        let mut state = state.lock().unwrap();
        state.parts.push(part.len());
        state.copies += usize::from(part.into_lease().is_err());
        drop(state);
        self.seen += 1;
        match self.plan.get(self.seen - 1) {
            Some(b'p') => Ok(Demand::Pause),
            Some(b's') => Ok(Demand::Stop("stopped".into())),
            Some(b'e') => Err(Error::new(Status::UNPROCESSABLE_CONTENT).text("no")),
            Some(b'!') => panic!("a test panics"),
            _ => Ok(Demand::More),
        }
    }

    fn end(
        self: Box<Self>,
        _: &mut Shared,
        q: &mut Request<'_, Shared>,
    ) -> Result<Response, Error> {
        assert!(q.body().is_err());
        let name = q.param("name").to_owned();
        if name == "later" {
            let len = self.body.len();
            return Ok(q.blocking(move || len, |_, len| format!("{len} bytes later")));
        }
        if self.is_checked {
            let expected: Vec<u8> = (0..self.body.len()).map(|at| at as u8).collect();
            if self.body != expected {
                return Err(Error::new(Status::CONFLICT).text("another body"));
            }
        }
        let sum = q.trailer("x-sum").unwrap_or("none");
        Ok(format!("{name}: {} bytes, sum {sum}", self.body.len()).into())
    }

    fn aborted(self: Box<Self>, state: &mut Shared) {
        state.lock().unwrap().aborted += 1;
    }
}

fn app(shared: &Shared) -> App<Shared> {
    let shared = Arc::clone(shared);
    App::with(move |_| Arc::clone(&shared))
        .post("/plan/{name}", |_, q| {
            let plan = Plan::new(q.query("plan").unwrap_or(""));
            q.receive(plan)
        })
        .at_head()
        .body_limit(64 << 20)
        .post("/small", |_, q| q.receive(Plan::new("")))
        .at_head()
        .body_limit(10)
        .post("/collect", |_, q| match q.header("x-key") {
            Some("secret") => q.collect(100_000, |_, q| {
                let (len, sum) = (q.body()?.len(), q.trailer("x-sum").unwrap_or("none"));
                Ok::<_, Error>(format!("{len} bytes, sum {sum}"))
            }),
            _ => Status::UNAUTHORIZED.into(),
        })
        .at_head()
        .post("/collect/later", |_, q| {
            q.collect(100, |_, q| {
                let text = q.text().unwrap_or("").to_owned();
                q.blocking(move || text, |_, text| text)
            })
        })
        .at_head()
        .post("/late", |_, q| q.receive(Plan::new("")))
        .post("/twice", |_, q| q.collect(100, |_, q| q.collect(100, |_, _| "twice")))
        .at_head()
        .get("/resume", |state, _| {
            let resume = state.lock().unwrap().resume.pop();
            format!("{:?}", resume.map(|resume| resume.resume()))
        })
        .get("/", |_, _| "root")
}

fn start<T: Harness>() -> (Bench<Shared>, Source, Shared) {
    let shared = Shared::default();
    let mut b = Bench::new::<T>(app(&shared));
    let client = b.connect();
    (b, client, shared)
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| at as u8).collect()
}

fn head(path: &str, fields: &str) -> Vec<u8> {
    format!("POST {path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n").into_bytes()
}

fn with_length(path: &str, len: usize) -> Vec<u8> {
    head(path, &format!("Content-Length: {len}\r\n"))
}

fn post(path: &str, len: usize) -> Vec<u8> {
    [with_length(path, len), bytes(len)].concat()
}

/// A chunked body with chunks of these sizes, and trailers.
fn chunked(path: &str, sizes: &[usize], trailers: &str) -> Vec<u8> {
    let mut request = head(path, "X-Key: secret\r\nTransfer-Encoding: chunked\r\n");
    let all = bytes(sizes.iter().sum());
    let mut rest = &all[..];
    for size in sizes {
        request.extend_from_slice(format!("{size:x}\r\n").as_bytes());
        let (chunk, behind) = rest.split_at(*size);
        request.extend_from_slice(chunk);
        request.extend_from_slice(b"\r\n");
        rest = behind;
    }
    request.extend_from_slice(format!("0\r\n{trailers}\r\n").as_bytes());
    request
}

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

fn a_body_comes_in_parts<T: Harness>() {
    let (mut b, client, shared) = start::<T>();
    for len in [0, 1, 1000, 300_000] {
        let answer = b.ask(client, post("/plan/a", len), "sum none");
        assert!(answer.ends_with(&format!("a: {len} bytes, sum none")), "{answer}");
    }
    let sizes = [1, 70_000, 3, 3, 3, 100];
    let answer = b.ask(client, chunked("/plan/b", &sizes, ""), "sum none");
    assert!(answer.ends_with("b: 70110 bytes, sum none"), "{answer}");
    let state = shared.lock().unwrap();
    assert_eq!(state.parts.iter().sum::<usize>(), 301_001 + 70_110);
    assert_eq!(state.aborted, 0);
}

fn parts_of_a_body_are_slices_of_what_was_read<T: Harness>() {
    let (mut b, client, shared) = start::<T>();
    b.ask(client, post("/plan/a", 500_000), "sum none");
    let state = shared.lock().unwrap();
    assert!(state.parts.len() > 1, "{:?}", state.parts);
    assert_eq!(state.copies, 0, "no part is a copy");
}

/// Only behind a line in front of a chunk that comes in pieces, there are copies.
#[test]
fn parts_of_a_chunked_body_are_slices_of_what_was_read() {
    let (mut b, client, shared) = start::<Simulated>();
    b.ask(client, chunked("/plan/a", &[10; 20], ""), "sum none");
    let state = shared.lock().unwrap();
    assert_eq!((state.parts.len(), state.copies), (20, 0));
}

fn requests_behind_a_body_are_answered<T: Harness>() {
    let (mut b, client, _) = start::<T>();
    let all = [
        GET.into(),
        post("/plan/a", 10),
        chunked("/plan/b", &[3, 4], ""),
        GET.into(),
        chunked("/collect", &[5], ""),
        post("/plan/c", 0),
        GET.into(),
    ];
    b.say(client, all.concat());
    b.until("all are answered", |b| b.heard(client).matches("root").count() == 3);
    let heard = b.heard(client);
    let mut from = 0;
    for one in ["root", "a: 10", "b: 7", "root", "5 bytes", "c: 0", "root"] {
        from += heard[from..].find(one).expect("in their order") + 1;
    }
}

fn a_paused_body_is_not_read<T: Harness>() {
    const LEN: usize = 16 << 20;
    let (mut b, client, shared) = start::<T>();
    b.say(client, with_length("/plan/a?plan=p", LEN));
    b.say(client, bytes(LEN));
    b.until("a part has come", |_| !shared.lock().unwrap().parts.is_empty());
    b.run_for(Duration::from_millis(50));
    assert_eq!(shared.lock().unwrap().parts.len(), 1);
    assert!(b.said(client) < LEN, "the client waits");
    assert!(shared.lock().unwrap().resume[0].resume());
    b.until("the answer has come", |b| b.heard(client).ends_with("sum none"));
    assert!(b.heard(client).ends_with("a: 16777216 bytes, sum none"));
}

fn a_body_is_resumed_from_another_thread<T: Harness>() {
    let (mut b, client, shared) = start::<T>();
    let (wake, woken): (Sender<Resume>, Receiver<Resume>) = channel();
    let thread = std::thread::spawn(move || {
        for resume in woken {
            resume.resume();
        }
    });
    b.say(client, chunked("/plan/a?plan=pppp", &[5; 6], ""));
    for pauses in 1..=4 {
        b.until("a part has come", |_| shared.lock().unwrap().parts.len() >= pauses);
        wake.send(shared.lock().unwrap().resume[0].clone()).unwrap();
    }
    drop(wake);
    b.until("the answer has come", |b| b.heard(client).ends_with("sum none"));
    assert!(b.heard(client).ends_with("a: 30 bytes, sum none"));
    thread.join().unwrap();
}

fn a_body_is_resumed_from_the_loop<T: Harness>() {
    let (mut b, client, shared) = start::<T>();
    // The rest of the body, and the next request, are read ahead.
    let both = [chunked("/plan/a?plan=p", &[5; 6], ""), GET.into()].concat();
    b.say(client, both);
    b.until("a part has come", |_| !shared.lock().unwrap().parts.is_empty());
    let other = b.connect();
    b.ask(other, "GET /resume HTTP/1.1\r\nHost: a\r\n\r\n", "Some(true)");
    b.until("the answers have come", |b| b.heard(client).ends_with("root"));
    assert!(b.heard(client).contains("a: 30 bytes, sum none"));
    b.take(client);
    b.ask(client, GET, "root");
}

fn a_resume_before_a_pause_ends_it<T: Harness>() {
    let (mut b, client, shared) = start::<T>();
    b.say(client, with_length("/plan/a?plan=mp", 4));
    b.say(client, bytes(1));
    b.until("a part has come", |_| !shared.lock().unwrap().parts.is_empty());
    assert!(shared.lock().unwrap().resume[0].resume());
    b.run_for(Duration::from_millis(1));
    b.say(client, bytes(2)[1..].to_vec());
    b.until("a part has come", |_| shared.lock().unwrap().parts.len() == 2);
    let answer = b.ask(client, bytes(4)[2..].to_vec(), "sum none");
    assert!(answer.ends_with("a: 4 bytes, sum none"), "{answer}");
}

fn a_resume_of_another_request_has_no_effect<T: Harness>() {
    let (mut b, client, shared) = start::<T>();
    b.ask(client, post("/plan/a", 4), "sum none");
    shared.lock().unwrap().parts.clear();
    b.say(client, chunked("/plan/a?plan=p", &[5; 6], ""));
    b.until("a part has come", |_| !shared.lock().unwrap().parts.is_empty());
    assert!(shared.lock().unwrap().resume[0].resume(), "the connection is there");
    b.run_for(Duration::from_millis(5));
    assert_eq!(shared.lock().unwrap().parts.len(), 1);
    assert!(shared.lock().unwrap().resume[1].resume());
    b.until("the answer has come", |b| b.heard(client).ends_with("sum none"));
    // Its connection ends.
    b.reset(client);
    b.run_for(Duration::from_millis(20));
    b.until("it has ended", |b| b.server.connections() == 0);
    assert!(!shared.lock().unwrap().resume[1].resume());
}

fn a_receiver_stops<T: Harness>() {
    let (mut b, client, _) = start::<T>();
    // The rest is short.
    let answer = b.ask(client, post("/plan/a?plan=s", 30_000), "stopped");
    assert!(answer.starts_with("HTTP/1.1 200 ") && !answer.contains("close"), "{answer}");
    b.ask(client, GET, "root");
    // At the last part.
    b.ask(client, [post("/plan/a?plan=s", 1), GET.into()].concat(), "root");
    // The rest is long.
    b.say(client, with_length("/plan/a?plan=s", 10 << 20));
    let answer = b.ask_last(client, bytes(10 << 20));
    assert!(answer.contains("Connection: close") && answer.ends_with("stopped"), "{answer}");
    assert_eq!(b.error(client), None);
}

fn a_receiver_fails_or_panics<T: Harness>() {
    let (mut b, client, shared) = start::<T>();
    let answer = b.ask(client, post("/plan/a?plan=e", 30_000), "no");
    assert!(answer.starts_with("HTTP/1.1 422 ") && !answer.contains("close"), "{answer}");
    let answer = b.ask_last(client, post("/plan/a?plan=!", 30_000));
    assert!(answer.starts_with("HTTP/1.1 500 ") && answer.contains("close"), "{answer}");
    let client = b.connect();
    b.ask(client, GET, "root");
    assert_eq!(shared.lock().unwrap().aborted, 0);
}

fn a_receiver_hears_that_its_client_has_gone<T: Harness>() {
    for reset in [true, false] {
        let (mut b, client, shared) = start::<T>();
        b.say(client, with_length("/plan/a", 100));
        b.say(client, bytes(5));
        b.until("a part has come", |_| !shared.lock().unwrap().parts.is_empty());
        if reset {
            b.reset(client);
        } else {
            b.finish(client);
            let answer = b.end(client);
            assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
        }
        b.until("it has ended", |_| shared.lock().unwrap().aborted == 1);
        b.until("it is closed", |b| b.server.connections() == 0);
        assert_eq!(shared.lock().unwrap().aborted, 1);
    }
}

fn a_body_beyond_the_limit_is_refused<T: Harness>() {
    let (mut b, client, shared) = start::<T>();
    b.ask(client, post("/small", 10), "sum none");
    let answer = b.ask(client, post("/small", 11), "than the limit");
    assert!(answer.starts_with("HTTP/1.1 413 ") && !answer.contains("close"), "{answer}");
    assert_eq!(shared.lock().unwrap().aborted, 1);
    let answer = b.ask_last(client, chunked("/small", &[5, 5, 1], ""));
    assert!(answer.starts_with("HTTP/1.1 413 ") && answer.contains("close"), "{answer}");
    assert_eq!(shared.lock().unwrap().aborted, 2);
    // That of a collected body is the program's, whatever others are.
    let client = b.connect();
    let collect = |len: usize| {
        let fields = format!("X-Key: secret\r\nContent-Length: {len}\r\n");
        [head("/collect", &fields), bytes(len)].concat()
    };
    b.ask(client, collect(100_000), "100000 bytes, sum none");
    let answer = b.ask_last(client, collect(100_001));
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
}

/// Also where more of its body has come than is read, so that no read would tell the reset.
fn a_client_that_resets_in_a_pause_is_gone_at_once<T: Harness>() {
    for said in [5, 30_000, 1 << 20] {
        let (mut b, client, shared) = start::<T>();
        b.say(client, with_length("/plan/a?plan=p", 16 << 20));
        b.say(client, bytes(said));
        b.until("a part has come", |_| !shared.lock().unwrap().parts.is_empty());
        b.run_for(Duration::from_millis(50));
        b.reset(client);
        b.until("its receiver is told", |_| shared.lock().unwrap().aborted == 1);
        b.until("it has ended", |b| b.server.connections() == 0);
        let state = shared.lock().unwrap();
        assert_eq!((state.parts.len(), state.aborted), (1, 1));
    }
}

fn the_end_of_the_clients_output_waits_for_a_pause<T: Harness>() {
    let (mut b, client, shared) = start::<T>();
    b.say(client, chunked("/plan/a?plan=p", &[5; 6], ""));
    b.finish(client);
    b.until("a part has come", |_| !shared.lock().unwrap().parts.is_empty());
    b.run_for(Duration::from_millis(5));
    assert!(shared.lock().unwrap().resume[0].resume());
    let answer = b.end(client);
    assert!(answer.ends_with("a: 30 bytes, sum none"), "{answer}");
    // The body is not whole.
    let client = b.connect();
    shared.lock().unwrap().parts.clear();
    b.say(client, chunked("/plan/a?plan=p", &[5; 6], "")[..120].to_vec());
    b.finish(client);
    b.until("a part has come", |_| !shared.lock().unwrap().parts.is_empty());
    b.run_for(Duration::from_millis(5));
    assert!(shared.lock().unwrap().resume[1].resume());
    let answer = b.end(client);
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    assert_eq!(shared.lock().unwrap().aborted, 1);
    // All of it is behind a request that has to wait.
    let client = b.connect();
    shared.lock().unwrap().parts.clear();
    let pause = chunked("/plan/a?plan=p", &[5; 6], "");
    b.say(client, [post("/collect/later", 10), pause, GET.into()].concat());
    b.finish(client);
    b.until("a part has come", |_| !shared.lock().unwrap().parts.is_empty());
    b.run_for(Duration::from_millis(5));
    assert!(shared.lock().unwrap().resume[2].resume());
    let answer = b.end(client);
    assert!(answer.contains("a: 30 bytes, sum none") && answer.ends_with("root"), "{answer}");
}

/// The end is behind bytes that are not read in the pause.
fn the_end_of_the_clients_output_is_behind_a_long_body<T: Harness>() {
    let (mut b, client, shared) = start::<T>();
    b.say(client, post("/plan/a?plan=pp", 200_000));
    b.finish(client);
    for pause in 0..2 {
        b.until("a part has come", |_| shared.lock().unwrap().parts.len() == pause + 1);
        b.run_for(Duration::from_millis(50));
        assert!(shared.lock().unwrap().resume[0].resume());
    }
    let answer = b.end(client);
    assert!(answer.ends_with("a: 200000 bytes, sum none"), "{answer}");
    assert_eq!(shared.lock().unwrap().aborted, 0);
}

fn a_received_body_is_answered_later<T: Harness>() {
    let (mut b, client, _) = start::<T>();
    b.ask(client, [post("/plan/later", 40), GET.into()].concat(), "root");
    b.ask(client, post("/plan/later", 100_000), "100000 bytes later");
    b.ask(client, post("/collect/later", 10), "\u{8}\t");
}

fn trailers_are_there_at_the_end<T: Harness>() {
    let (mut b, client, _) = start::<T>();
    let trailers = "X-Other: b\r\nX-Sum: 42\r\n";
    for path in ["/plan/a", "/collect"] {
        let request = chunked(path, &[10, 20], trailers);
        b.ask(client, request.clone(), "30 bytes, sum 42");
        // Not those of the last request.
        b.ask(client, chunked(path, &[3], ""), "3 bytes, sum none");
        for cut in [request.len() - 30, request.len() - 3] {
            b.say(client, request[..cut].to_vec());
            b.run_for(Duration::from_millis(1));
            b.ask(client, request[cut..].to_vec(), "30 bytes, sum 42");
        }
    }
}

fn a_collected_body_follows_its_head<T: Harness>() {
    let (mut b, client, _) = start::<T>();
    let request = post("/collect", 10);
    let answer = b.ask(client, request.clone(), "Unauthorized");
    assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
    for cut in 0..request.len() {
        b.say(client, request[..cut].to_vec());
        b.ask(client, request[cut..].to_vec(), "Unauthorized");
    }
    let request = chunked("/collect", &[1, 2, 3], "");
    for cut in 0..request.len() {
        b.say(client, request[..cut].to_vec());
        b.ask(client, request[cut..].to_vec(), "6 bytes, sum none");
    }
}

fn a_body_is_asked_for_once<T: Harness>() {
    let (mut b, client, _) = start::<T>();
    for request in [post("/late", 5), post("/twice", 5), chunked("/late", &[5], "")] {
        let answer = b.ask(client, request, "Internal Server Error");
        assert!(answer.starts_with("HTTP/1.1 500 "), "{answer}");
    }
}

fn a_receiver_makes_the_client_go_on<T: Harness>() {
    let (mut b, client, _) = start::<T>();
    let expects = "Expect: 100-continue\r\nContent-Length: 7\r\n";
    let answer = b.ask(client, head("/plan/a", expects), "\r\n\r\n");
    assert_eq!(answer, "HTTP/1.1 100 Continue\r\n\r\n");
    b.ask(client, bytes(7), "a: 7 bytes, sum none");
    let answer = b.ask_last(client, head("/collect", expects));
    assert!(answer.starts_with("HTTP/1.1 401 ") && answer.contains("close"), "{answer}");
}

/// Random bodies in random pieces, with pauses that end whenever.
#[test]
fn random_bodies_come_whole() {
    let seed = seed();
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..30 {
        let (mut b, client, shared) = start::<Faulty>();
        let (mut said, mut expected) = (Vec::new(), Vec::new());
        for _ in 0..random.usize(1..6) {
            let name = random.u32(..);
            let plan: String = (0..20).map(|_| *random.choice(&['p', 'm']).unwrap()).collect();
            let path = format!("/plan/{name}?plan={plan}");
            let sizes: Vec<usize> =
                (0..random.usize(1..9)).map(|_| random.usize(1..9000)).collect();
            let len = sizes.iter().sum::<usize>();
            said.extend(if random.bool() { chunked(&path, &sizes, "") } else { post(&path, len) });
            expected.push(format!("{name}: {len} bytes, sum none"));
        }
        let mut rest = &said[..];
        while !rest.is_empty() || !expected.iter().all(|one| b.heard(client).contains(one)) {
            assert!(!b.is_over(client), "{}", b.heard(client));
            let (piece, behind) = rest.split_at(random.usize(..=rest.len().min(20_000)));
            if !piece.is_empty() {
                b.say(client, piece.to_vec());
            }
            rest = behind;
            b.turn(Duration::from_micros(random.u64(1..2000)));
            for resume in &shared.lock().unwrap().resume {
                if random.u8(..4) == 0 {
                    resume.resume();
                }
            }
        }
        let heard = b.heard(client);
        let mut from = 0;
        for one in &expected {
            from += heard[from..].find(one).expect("in their order");
        }
        assert_eq!(shared.lock().unwrap().aborted, 0);
    }
}
