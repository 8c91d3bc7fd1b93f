//! The crate http-net, which is as strict, over the same bytes.

use http_net::{Response, ServerConn, ServerEvent};
use windlass_http1::{Event, Framing, Limits, RequestDecoder, RequestHead};

/// A request that has ended.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Whole {
    method: String,
    target: String,
    body: Vec<u8>,
}

/// What follows the requests that have ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Then {
    Waits,
    Closed,
    Refused,
}

fn ours(mut input: &[u8]) -> (Vec<Whole>, Then) {
    let mut head = RequestHead::new(Limits { body: u64::MAX, ..Limits::default() });
    let (mut decoder, mut all) = (RequestDecoder::new(), Vec::new());
    let (mut method, mut target, mut body) = (String::new(), String::new(), Vec::new());
    loop {
        let Ok(step) = decoder.decode(&mut head, input) else {
            return (all, Then::Refused);
        };
        match step.event {
            // What follows a CONNECT is the program's.
            Event::Head if head.framing() == Framing::Tunnel => return (all, Then::Closed),
            Event::Head => {
                method = head.method(input).to_owned();
                target = head.target(input).to_owned();
            }
            Event::Body(range) => body.extend_from_slice(&input[range]),
            Event::End => all.push(Whole {
                method: std::mem::take(&mut method),
                target: std::mem::take(&mut target),
                body: std::mem::take(&mut body),
            }),
            Event::NeedMore => return (all, Then::Waits),
            Event::Closed => return (all, Then::Closed),
            _ => {}
        }
        input = &input[step.consumed..];
    }
}

fn theirs(mut input: &[u8]) -> (Vec<Whole>, Then) {
    let (mut conn, mut all, mut out) = (ServerConn::new(), Vec::new(), Vec::new());
    let (mut method, mut target, mut body) = (String::new(), String::new(), Vec::new());
    loop {
        match conn.poll() {
            Ok(ServerEvent::Request(head)) => {
                method = head.method_str().to_owned();
                target = head.target().to_owned();
            }
            Ok(ServerEvent::Body(data)) => body.extend_from_slice(data),
            Ok(ServerEvent::RequestEnd) => {
                all.push(Whole {
                    method: std::mem::take(&mut method),
                    target: std::mem::take(&mut target),
                    body: std::mem::take(&mut body),
                });
                let answer = Response::new(400);
                conn.respond(&answer, &mut out).expect("an answer");
            }
            Ok(ServerEvent::NeedInput) if input.is_empty() => return (all, Then::Waits),
            Ok(ServerEvent::NeedInput) => {
                let taken = conn.feed(input);
                input = &input[taken..];
                if taken == 0 {
                    return (all, Then::Refused);
                }
            }
            Ok(_) => return (all, Then::Closed),
            Err(_) => return (all, Then::Refused),
        }
    }
}

/// Fails if http-net reads a request otherwise that we accept. It may refuse the request, or what
/// is in front of it.
pub fn compare(input: &[u8]) -> usize {
    let ((ours, our_end), (theirs, their_end)) = (ours(input), theirs(input));
    for (number, whole) in ours.iter().enumerate() {
        match theirs.get(number) {
            Some(other) => assert_eq!(other, whole, "request {number} of {}", latin(input)),
            None => {
                assert_eq!(their_end, Then::Refused, "request {number} of {}", latin(input));
                return number;
            }
        }
    }
    // What we wait for, they do not take for a whole request.
    let more = theirs.len() > ours.len();
    assert!(!more || our_end != Then::Waits, "they read more of {}", latin(input));
    ours.len()
}

fn latin(bytes: &[u8]) -> String {
    format!("{:?}", bytes.iter().map(|byte| *byte as char).collect::<String>())
}
