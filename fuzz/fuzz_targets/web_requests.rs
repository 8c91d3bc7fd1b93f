//! A server in a simulation beside the codec: each request that the codec reads has its own answer,
//! what it refuses has one more with the status, and nothing else is answered.
#![no_main]

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use windlass::driver::OpCode;
use windlass::net::ConnectOptions;
use windlass::sim::Sim;
use windlass::{Completions, Done, Op, Watcher};
use windlass_http1::{Event, Method, RequestDecoder, RequestHead};
use windlass_web::App;

#[allow(dead_code)] // the targets of the codec need more of it
mod http1;

use http1::Program;

const CLIENT: u64 = 1;
const PORT: u16 = 80;

/// A response that is due.
#[derive(Debug, PartialEq, Eq)]
enum Due {
    /// To a request, with this body.
    Body(String),
    /// To a HEAD, without one.
    Head,
    /// Whatever the program or the server says: for `OPTIONS *` and CONNECT.
    Any,
    /// An error with this status.
    Refused(u16),
}

fuzz_target!(|program: Program| {
    let input = program.input("GET / HTTP/1.1\r\nHost: a\r\n");
    let due = due(&input);
    let heard = serve(&input, &program.cuts);
    check(&heard, &due);
});

/// What is due for these bytes and an end behind them.
fn due(input: &[u8]) -> Vec<Due> {
    let (mut head, mut decoder) = (RequestHead::new(Default::default()), RequestDecoder::new());
    let (mut at, mut due) = (0, Vec::new());
    let (mut line, mut body, mut asked) = (None, Vec::new(), head.asked());
    loop {
        let bytes = &input[at..];
        let step = match decoder.decode(&mut head, bytes) {
            Ok(step) => step,
            Err(error) => {
                due.push(Due::Refused(error.status()));
                return due;
            }
        };
        match step.event {
            Event::Head => {
                asked = head.asked();
                line = Some(format!("{} {} ", head.method(bytes), head.target(bytes)));
                body.clear();
            }
            Event::Body(range) => body.extend_from_slice(&bytes[range]),
            Event::End => {
                let line = line.take().expect("a head came");
                due.push(match asked.method {
                    Method::Head => Due::Head,
                    Method::Connect => Due::Any,
                    Method::Options if line == "OPTIONS * " => Due::Any,
                    _ => Due::Body(line + &String::from_utf8_lossy(&body)),
                });
                if !asked.keep_alive {
                    return due;
                }
            }
            Event::NeedMore | Event::Closed => {
                if line.is_some() || step.consumed < bytes.len() {
                    due.push(Due::Refused(400)); // the request is not whole
                }
                return due;
            }
            Event::Trailers | Event::Interim => {}
        }
        at += step.consumed;
    }
}

fn app() -> App {
    App::new().fallback(|_, q| {
        Ok::<_, windlass_web::Error>(format!(
            "{} {} {}",
            q.method(),
            q.target(),
            String::from_utf8_lossy(q.body()?)
        ))
    })
}

/// All that the server answers to these bytes, in these pieces, and an end behind them.
fn serve(input: &[u8], cuts: &[u8]) -> Vec<u8> {
    let mut watcher = Watcher::simulated(&Sim::new(1));
    let app = app().listen(format!("127.0.0.1:{PORT}")).expect("an address");
    let mut server = app.start_on(&mut watcher).expect("the server starts");
    let options = ConnectOptions::default().token(CLIENT);
    let client = watcher.connect([([127, 0, 0, 1], PORT)], options).expect("a source").0;
    let (mut heard, mut is_over, mut done) = (Vec::new(), false, Completions::new());
    let mut turn = |watcher: &mut Watcher, span: Duration| {
        watcher.wait_timeout(&mut done, span).expect("a wait");
        for completion in done.drain(..) {
            let Some(completion) = server.complete(watcher, completion) else { continue };
            match (completion.code(), completion.result) {
                (OpCode::Connect, Ok(_)) => {
                    let read = Op::read(client).multishot().token(CLIENT);
                    watcher.submit(read).expect("a read");
                }
                (OpCode::Read, Ok(Done::Read(data))) => {
                    heard.extend_from_slice(&data);
                    is_over |= data.is_eof();
                }
                (OpCode::Read, Err(error)) => panic!("{error}"),
                _ => {}
            }
        }
        server.turn(watcher);
        is_over
    };
    let mut rest = input;
    for cut in cuts.iter().map(|cut| usize::from(*cut % 32) + 1) {
        let (piece, behind) = rest.split_at(cut.min(rest.len()));
        rest = behind;
        if piece.is_empty() {
            break;
        }
        // Refused once the server has closed.
        let _ = watcher.submit(Op::write(client, piece.to_vec()).token(CLIENT));
        let end = watcher.update_now() + Duration::from_millis(5);
        while let Some(left) = end.checked_duration_since(watcher.update_now())
            && !left.is_zero()
        {
            turn(&mut watcher, left);
        }
    }
    if !rest.is_empty() {
        let _ = watcher.submit(Op::write(client, rest.to_vec()).token(CLIENT));
    }
    let _ = watcher.submit(Op::shutdown(client).token(CLIENT));
    let start = watcher.update_now();
    while !turn(&mut watcher, Duration::from_secs(1)) {
        let passed = watcher.update_now() - start;
        assert!(passed < Duration::from_secs(60), "the connection does not end");
    }
    heard
}

/// The responses are those that are due, in their order.
fn check(mut heard: &[u8], due: &[Due]) {
    const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
    let all = heard;
    let text = || String::from_utf8_lossy(all).into_owned();
    for one in due {
        while let Some(rest) = heard.strip_prefix(CONTINUE) {
            heard = rest;
        }
        let len = heard.windows(4).position(|window| window == b"\r\n\r\n").map(|at| at + 4);
        let len = len.unwrap_or_else(|| panic!("no response for {one:?}: {:?}", text()));
        let (head, rest) = heard.split_at(len);
        let head = std::str::from_utf8(head).expect("a text");
        let status: u16 = head["HTTP/1.1 ".len()..][..3].parse().expect("a status");
        let length = head.split("Content-Length: ").nth(1).and_then(|rest| rest.split('\r').next());
        let length = length.map_or(0, |length| length.parse::<usize>().expect("a length"));
        let length = if *one == Due::Head { 0 } else { length };
        let (body, rest) = rest.split_at(length);
        heard = rest;
        match one {
            Due::Body(own) => {
                assert_eq!(status, 200, "{one:?}: {:?}", text());
                assert_eq!(*own.as_bytes(), *body, "{:?}", text());
            }
            Due::Head => assert_eq!(status, 200, "{:?}", text()),
            Due::Any => {}
            Due::Refused(own) => assert_eq!(status, *own, "{:?}", text()),
        }
    }
    // A 100 may have gone out for a body that did not come whole.
    while let Some(rest) = heard.strip_prefix(CONTINUE) {
        heard = rest;
    }
    assert!(heard.is_empty(), "more than {due:?}: {:?}", text());
}
