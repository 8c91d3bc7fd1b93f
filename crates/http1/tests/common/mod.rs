//! Decoders, driven with every cut of their input.
#![allow(dead_code, unreachable_pub)] // each test binary uses some of it

pub mod random;

use windlass_http1::{
    Asked, Error, Event, Framing, Limits, Method, RequestDecoder, RequestHead, ResponseDecoder,
    ResponseHead, Rule, Version,
};

/// What a decoder has said. Neighbouring parts of a body are one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Seen {
    Request(Request),
    Interim(u16),
    Response(Response),
    Body(Vec<u8>),
    Trailers(Vec<(String, String)>),
    End,
    /// No message follows.
    Closed,
    /// The decoder waits, and has not consumed so many bytes.
    Waits(usize),
    Refused(Rule, u16),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    pub method: String,
    pub target: String,
    pub path: String,
    pub query: Option<String>,
    pub authority: Option<String>,
    pub version: Version,
    pub framing: Framing,
    pub asked: Asked,
    pub expects: bool,
    pub upgrade: Option<String>,
    pub fields: Vec<(String, String)>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Response {
    pub status: u16,
    pub reason: String,
    pub version: Version,
    pub framing: Framing,
    pub keep_alive: bool,
    pub upgrade: Option<String>,
    pub fields: Vec<(String, String)>,
}

/// Bytes as text, one character each.
pub fn latin(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| *byte as char).collect()
}

fn strings<'a>(fields: impl Iterator<Item = (&'a str, &'a [u8])>) -> Vec<(String, String)> {
    fields.map(|(name, value)| (name.to_owned(), latin(value))).collect()
}

/// A decoder and its head.
pub trait Decode {
    fn step(&mut self, input: &[u8]) -> Result<(usize, Option<Seen>), Error>;
    fn finish(&mut self, rest: &[u8]) -> Result<Event, Error>;
}

/// The server's side.
pub struct Requests {
    pub head: RequestHead,
    pub decoder: RequestDecoder,
}

impl Requests {
    pub fn new(limits: Limits) -> Requests {
        Requests { head: RequestHead::new(limits), decoder: RequestDecoder::new() }
    }
}

impl Decode for Requests {
    fn step(&mut self, input: &[u8]) -> Result<(usize, Option<Seen>), Error> {
        let step = self.decoder.decode(&mut self.head, input)?;
        let head = &self.head;
        let seen = match step.event {
            Event::NeedMore => None,
            Event::Interim => panic!("an interim request"),
            Event::Head => Some(Seen::Request(Request {
                method: head.method(input).to_owned(),
                target: head.target(input).to_owned(),
                path: head.path(input).to_owned(),
                query: head.query(input).map(str::to_owned),
                authority: head.authority(input).map(str::to_owned),
                version: head.version(),
                framing: head.framing(),
                asked: head.asked(),
                expects: head.expects_continue(),
                upgrade: head.upgrade(input).map(latin),
                fields: strings(head.fields(input)),
            })),
            Event::Body(range) => Some(Seen::Body(input[range].to_vec())),
            Event::Trailers => Some(Seen::Trailers(strings(head.fields(input)))),
            Event::End => Some(Seen::End),
            Event::Closed => Some(Seen::Closed),
        };
        Ok((step.consumed, seen))
    }

    fn finish(&mut self, rest: &[u8]) -> Result<Event, Error> {
        self.decoder.finish(rest)
    }
}

/// The client's side, which has sent these requests.
pub struct Responses {
    pub head: ResponseHead,
    pub decoder: ResponseDecoder,
    asked: Vec<Asked>,
}

impl Responses {
    pub fn new(limits: Limits, asked: &[Asked]) -> Responses {
        let mut asked: Vec<Asked> = asked.iter().rev().copied().collect();
        let mut decoder = ResponseDecoder::new();
        if let Some(first) = asked.pop() {
            decoder.expect(first);
        }
        Responses { head: ResponseHead::new(limits), decoder, asked }
    }
}

impl Decode for Responses {
    fn step(&mut self, input: &[u8]) -> Result<(usize, Option<Seen>), Error> {
        let step = self.decoder.decode(&mut self.head, input)?;
        let head = &self.head;
        let seen = match step.event {
            Event::NeedMore => None,
            Event::Interim => Some(Seen::Interim(head.status())),
            Event::Head => Some(Seen::Response(Response {
                status: head.status(),
                reason: latin(head.reason(input)),
                version: head.version(),
                framing: head.framing(),
                keep_alive: head.keep_alive(),
                upgrade: head.upgrade(input).map(latin),
                fields: strings(head.fields(input)),
            })),
            Event::Body(range) => Some(Seen::Body(input[range].to_vec())),
            Event::Trailers => Some(Seen::Trailers(strings(head.fields(input)))),
            Event::End => {
                if let Some(next) = self.asked.pop() {
                    self.decoder.expect(next);
                }
                Some(Seen::End)
            }
            Event::Closed => Some(Seen::Closed),
        };
        Ok((step.consumed, seen))
    }

    fn finish(&mut self, rest: &[u8]) -> Result<Event, Error> {
        self.decoder.finish(rest)
    }
}

/// What a decoder says about these pieces, one after the other, and about the end of the input
/// behind them if `ends`.
pub fn drive(decoder: &mut impl Decode, pieces: &[&[u8]], ends: bool) -> Vec<Seen> {
    let (mut all, mut seen) = (Vec::new(), Vec::new());
    // An empty piece changes nothing.
    for piece in [&b""[..]].iter().chain(pieces) {
        all.extend_from_slice(piece);
        loop {
            match decoder.step(&all) {
                Ok((consumed, event)) => {
                    all.drain(..consumed);
                    match (event, seen.last_mut()) {
                        (None, _) => break,
                        (Some(Seen::Body(data)), Some(Seen::Body(before))) => {
                            assert!(!data.is_empty(), "a part of a body without bytes");
                            before.extend(data);
                        }
                        (Some(Seen::Closed), Some(Seen::Closed)) => break,
                        (Some(Seen::Closed), _) => {
                            seen.push(Seen::Closed);
                            break;
                        }
                        (Some(event), _) => seen.push(event),
                    }
                }
                Err(error) => {
                    seen.push(refused(error));
                    let again = decoder.step(&all).expect_err("an error stays");
                    assert_eq!(again, error);
                    return seen;
                }
            }
        }
    }
    if !ends {
        seen.push(Seen::Waits(all.len()));
        return seen;
    }
    loop {
        match decoder.finish(&all) {
            Ok(Event::End) => seen.push(Seen::End),
            Ok(_) => {
                if seen.last() != Some(&Seen::Closed) {
                    seen.push(Seen::Closed);
                }
                return seen;
            }
            Err(error) => {
                seen.push(refused(error));
                return seen;
            }
        }
    }
}

fn refused(error: Error) -> Seen {
    assert!(!error.to_string().is_empty());
    Seen::Refused(error.rule(), error.status())
}

/// Inputs up to this size are cut at every place, longer ones at some.
const MOST_CUTS: usize = 1000;

/// What a new decoder says about the input, the same for every way of cutting it.
pub fn same_at_every_cut<D: Decode>(make: impl Fn() -> D, input: &[u8], ends: bool) -> Vec<Seen> {
    let whole = drive(&mut make(), &[input], ends);
    let check = |pieces: &[&[u8]], how: &str| {
        let cut = drive(&mut make(), pieces, ends);
        assert_eq!(cut, whole, "{how}: {:?}", latin(&input[..input.len().min(500)]));
    };
    let step = input.len() / MOST_CUTS + 1;
    for at in (0..=input.len()).step_by(step) {
        let (first, second) = input.split_at(at);
        check(&[first, second], &format!("cut at {at}"));
    }
    let bytes: Vec<&[u8]> = input.chunks(1).collect();
    check(&bytes, "byte by byte");
    let seed = fastrand::u64(..);
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..8 {
        check(&pieces(&mut random, input), &format!("random pieces, seed {seed}"));
    }
    whole
}

/// The input in random pieces.
pub fn pieces<'a>(random: &mut fastrand::Rng, mut input: &'a [u8]) -> Vec<&'a [u8]> {
    let most = random.usize(1..=input.len().max(1));
    let mut pieces = Vec::new();
    while !input.is_empty() {
        let (piece, rest) = input.split_at(random.usize(1..=most.min(input.len())));
        pieces.push(piece);
        input = rest;
    }
    pieces
}

/// What a server sees, with the usual limits, while the connection stays open.
pub fn requests(input: impl AsRef<[u8]>) -> Vec<Seen> {
    requests_with(Limits::default(), input)
}

/// What a server sees while the connection stays open.
pub fn requests_with(limits: Limits, input: impl AsRef<[u8]>) -> Vec<Seen> {
    same_at_every_cut(|| Requests::new(limits), input.as_ref(), false)
}

/// What a client sees that has sent a GET, and the end of the input behind it.
pub fn response(input: impl AsRef<[u8]>) -> Vec<Seen> {
    responses(&[get()], input)
}

/// What a client sees that has sent these requests, and the end of the input behind it.
pub fn responses(asked: &[Asked], input: impl AsRef<[u8]>) -> Vec<Seen> {
    responses_with(Limits::default(), asked, input)
}

pub fn responses_with(limits: Limits, asked: &[Asked], input: impl AsRef<[u8]>) -> Vec<Seen> {
    same_at_every_cut(|| Responses::new(limits, asked), input.as_ref(), true)
}

pub fn get() -> Asked {
    Asked::new(Method::Get, Version::Http11)
}

/// The only request of what was seen.
pub fn only_request(seen: &[Seen]) -> &Request {
    match seen {
        [Seen::Request(request), ..] => request,
        _ => panic!("no request: {seen:?}"),
    }
}

/// The rule that refuses this, and the status.
pub fn refusal(seen: &[Seen]) -> Option<(Rule, u16)> {
    match seen.last() {
        Some(Seen::Refused(rule, status)) => Some((*rule, *status)),
        _ => None,
    }
}

/// The bodies of the messages that have ended.
pub fn bodies(seen: &[Seen]) -> Vec<Vec<u8>> {
    let (mut all, mut body) = (Vec::new(), Vec::new());
    for event in seen {
        match event {
            Seen::Body(data) => body.extend_from_slice(data),
            Seen::End => all.push(std::mem::take(&mut body)),
            _ => {}
        }
    }
    all
}
