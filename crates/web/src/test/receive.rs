//! One response, as a client waits for it.

use std::time::{Duration, Instant};

use windlass_http1::{Asked, Event, Framing, Limits, ResponseDecoder, ResponseHead};

use super::error::ClientError;
use super::net::Net;
use super::response::TestResponse;
use crate::words::status::Status;

/// Steps the network until a response has come whole on a connection, or cannot come any more.
/// `progress` bounds the time between two steps of it.
pub(super) fn receive(
    net: &mut Net,
    at: usize,
    asked: Asked,
    progress: Duration,
) -> Result<TestResponse, ClientError> {
    let mut receiver = Receiver::new(asked);
    let mut end = net.sim.now() + progress;
    loop {
        if receiver.take(net.heard(at))? {
            return Ok(receiver.response);
        }
        if net.is_over(at) {
            return receiver.end(net, at);
        }
        if net.sim.now() >= end {
            return Err(ClientError::Timeout);
        }
        let had = net.heard(at).len() + receiver.response.body.len();
        step(net, at, end);
        if net.heard(at).len() + receiver.response.body.len() > had {
            end = net.sim.now() + progress;
        }
    }
}

/// Steps once, with a read.
pub(super) fn step(net: &mut Net, at: usize, end: Instant) {
    net.read(at);
    net.step(end);
}

/// A response that is coming.
struct Receiver {
    decoder: ResponseDecoder,
    head: ResponseHead,
    asked: Asked,
    response: TestResponse,
    begun: bool,
}

impl Receiver {
    fn new(asked: Asked) -> Receiver {
        let mut decoder = ResponseDecoder::new();
        decoder.expect(asked);
        let limits = Limits { body: u64::MAX, ..Limits::default() };
        let (fields, body) = (Vec::new(), Vec::new());
        Receiver {
            decoder,
            head: ResponseHead::new(limits),
            asked,
            response: TestResponse { status: Status::OK, fields, body, keeps_alive: true },
            begun: false,
        }
    }

    /// Takes what has come; whether the response is whole.
    fn take(&mut self, heard: &mut Vec<u8>) -> Result<bool, ClientError> {
        let mut used = 0;
        self.begun |= !heard.is_empty();
        let is_whole = loop {
            let bytes = &heard[used..];
            let step =
                self.decoder.decode(&mut self.head, bytes).map_err(ClientError::Malformed)?;
            match step.event {
                Event::Head => self.see_head(&bytes[..step.consumed]),
                Event::Body(range) => self.response.body.extend_from_slice(&bytes[range]),
                Event::Trailers => self.see_fields(&bytes[..step.consumed]),
                Event::Interim => {}
                Event::End => {
                    used += step.consumed;
                    break true;
                }
                Event::NeedMore => {
                    used += step.consumed; // the end of a chunk, for example
                    break false;
                }
                // What follows a 101 belongs to the test.
                Event::Closed => break true,
            }
            used += step.consumed;
        };
        heard.drain(..used);
        Ok(is_whole)
    }

    fn see_head(&mut self, bytes: &[u8]) {
        let status = Status::new(self.head.status()).expect("a status that servers send");
        self.response.status = status;
        self.response.keeps_alive = self.asked.keep_alive && self.head.keep_alive();
        self.see_fields(bytes);
    }

    fn see_fields(&mut self, bytes: &[u8]) {
        let fields = self.head.fields(bytes);
        let owned = fields.map(|(name, value)| (name.to_owned(), value.to_vec()));
        self.response.fields.extend(owned);
    }

    /// The connection has ended.
    fn end(mut self, net: &mut Net, at: usize) -> Result<TestResponse, ClientError> {
        let error = net.take_error(at);
        let begun = self.begun;
        match error {
            Some(ClientError::Ended { error, .. }) => Err(ClientError::Ended { begun, error }),
            Some(error) => Err(error),
            // Only this framing has an end of file as the end of its body.
            None if self.head.framing() == Framing::UntilClose && begun => {
                match self.decoder.finish(net.heard(at)) {
                    Ok(_) => Ok(self.response),
                    Err(_) => Err(ClientError::Ended { begun, error: None }),
                }
            }
            None => Err(ClientError::Ended { begun, error: None }),
        }
    }
}
