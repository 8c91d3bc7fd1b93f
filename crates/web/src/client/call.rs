//! A request to another server, and what has come of its response.

use std::sync::Arc;
use std::time::Instant;

use windlass_http1::{Asked, BodyEncoder, Method, RequestEncoder, Version};
use windlass_serve::Id;

#[cfg(feature = "deflate")]
use crate::coding::inflate::Inflater;

use super::error::{FetchError, FetchPhase};
use super::fetch::{Fetch, FetchBody};
use super::fetched::Fetched;
use crate::message::source::LARGE;
use crate::words::status::Status;

/// Longer buffers are rare, and go back to the system.
const KEPT: usize = 16 << 10;

/// Whom a call is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Requester {
    /// The request of this connection, which waits for the whole response.
    Request(Id),
    /// The request of this connection, which passes the response on as it comes.
    Stream(Id),
    /// The program, which gets the whole response.
    Own(CallId),
    /// The program, which gets the response as it comes.
    OwnStream(CallId),
    #[cfg(feature = "websocket")]
    /// The program, which gets the connection behind a 101, or another response whole.
    OwnSwitch(CallId),
}

/// A call: its place, and how many calls the place had before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct CallId {
    pub(crate) at: u32,
    pub(crate) round: u32,
}

/// What follows for a caller.
pub(crate) enum Step {
    /// The call is over: its whole response.
    Done(Requester, Result<Fetched, FetchError>),
    /// An interim response (1xx but 101) has come: see [`Hub::response`](super::hub::Hub).
    Interim(Requester),
    /// The head of the response has come: see [`Hub::response`](super::hub::Hub).
    Head(Requester),
    /// A part of the body of the response.
    Body(Requester, windlass::Buf),
    /// The trailers of the response: see [`Hub::response`](super::hub::Hub).
    Trailers(Requester),
    /// The response is whole.
    End(Requester),
    /// The rest of the response does not come.
    Failed(Requester, FetchError, Reached),
    /// The link has room for more of the body of the request, or has opened.
    Drained(Requester),
    /// The server has ended its side of a tunnel.
    Ended(Requester),
    /// The server has gone over to another protocol: see [`Hub::response`](super::hub::Hub). The
    /// connection is to be [taken over](super::hub::Hub).
    #[cfg(feature = "websocket")]
    Switched(CallId),
}

/// How far a call had come that has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reached {
    /// Its connection did not open: the server has seen nothing.
    Nothing,
    /// It was written to a connection that an earlier call had opened, and no byte has come back.
    /// Most likely the server had closed it before.
    KeptLink,
    /// The server may have seen it.
    Server,
}

/// A request, and what has come of its response. Its buffers are used again.
pub(super) struct FetchCall {
    /// How many calls this place had.
    pub(super) round: u32,
    /// `None`: the place is free.
    pub(super) requester: Option<Requester>,
    pub(super) site: u32,
    pub(super) link: Option<u32>,
    /// What the program has asked for. A call that is streamed through has none.
    pub(super) fetch: Option<Box<Fetch>>,
    /// What is to be written, or was written last, of the request.
    pub(super) request: Vec<u8>,
    /// A large body behind it.
    pub(super) large: Option<Arc<[u8]>>,
    pub(super) asked: Asked,
    /// What is left to write of the body of its request.
    pub(super) sender: Option<BodyEncoder>,
    /// Whether the body waits for `100 Continue`.
    pub(super) is_held: bool,
    /// Whether its body is there to be sent again.
    pub(super) is_kept: bool,
    /// Whether it was sent again. Then it wants a new connection.
    pub(super) is_again: bool,
    /// The most bytes of the response's body.
    pub(super) limit: u64,
    pub(super) phase: FetchPhase,
    pub(super) phase_end: Option<Instant>,
    pub(super) end: Option<Instant>,
    /// How many redirects it may still follow.
    pub(super) redirects: u8,
    /// Where this response leads to.
    pub(super) leads_to: Option<String>,
    pub(super) status: Status,
    /// The head of the response, and behind it the body.
    pub(super) response: Vec<u8>,
    pub(super) body_at: usize,
    /// The decoder of the body, and whether it has more without further input.
    #[cfg(feature = "deflate")]
    pub(super) inflater: Option<Box<(Inflater, bool)>>,
    pub(super) is_decoded: bool,
    /// Whether a redirect was followed.
    pub(super) has_moved: bool,
}

impl FetchCall {
    pub(super) fn new() -> FetchCall {
        FetchCall {
            round: 0,
            requester: None,
            site: 0,
            link: None,
            fetch: None,
            request: Vec::new(),
            large: None,
            asked: Asked::new(Method::Get, Version::Http11),
            sender: None,
            is_held: false,
            is_kept: true,
            is_again: false,
            limit: 0,
            phase: FetchPhase::Queue,
            phase_end: None,
            end: None,
            redirects: 0,
            leads_to: None,
            status: Status::OK,
            response: Vec::new(),
            body_at: 0,
            #[cfg(feature = "deflate")]
            inflater: None,
            is_decoded: false,
            has_moved: false,
        }
    }

    /// Empties it for the next call.
    pub(super) fn clear(&mut self) {
        let mut request = std::mem::take(&mut self.request);
        request.clear();
        if request.capacity() > KEPT {
            request = Vec::new();
        }
        *self = FetchCall { round: self.round.wrapping_add(1), request, ..FetchCall::new() };
    }

    /// Forgets what has come of a response, so that another one can come.
    pub(super) fn begin_again(&mut self) {
        self.response.clear();
        (self.body_at, self.leads_to, self.is_decoded) = (0, None, false);
        #[cfg(feature = "deflate")]
        {
            self.inflater = None;
        }
    }

    /// Whether the call of this round is not over.
    pub(super) fn is_live(&self, round: u32) -> bool {
        self.round == round && self.requester.is_some()
    }

    pub(super) fn is_streamed(&self) -> bool {
        matches!(self.requester, Some(Requester::Stream(_) | Requester::OwnStream(_)))
    }

    /// Whether its request can be sent once more, without harm.
    pub(super) fn can_go_again(&self) -> bool {
        let is_idempotent = self.asked.method.is_idempotent();
        // A caller that streams does so itself.
        is_idempotent && self.fetch.is_some() && self.is_kept && !self.is_again && self.is_whole()
    }

    /// Whether its request is written whole.
    pub(super) fn is_whole(&self) -> bool {
        self.sender.is_none() && !self.is_held
    }

    /// Writes the request of a [`Fetch`] into its buffer.
    pub(super) fn encode(&mut self, target: &str, authority: &str) -> Result<(), FetchError> {
        let Some(fetch) = self.fetch.as_deref_mut() else { return Ok(()) };
        self.request.clear();
        (self.large, self.sender, self.is_held, self.is_kept) = (None, None, false, true);
        let out = &mut self.request;
        let mut head = RequestEncoder::new(out, &fetch.method, target, authority)?;
        for (name, value) in &fetch.fields {
            head.field(name, &**value)?;
        }
        if !fetch.has("accept") {
            head.field("Accept", "*/*")?;
        }
        #[cfg(feature = "deflate")]
        if fetch.decodes && !fetch.has("accept-encoding") && !fetch.has("range") {
            head.field("Accept-Encoding", "gzip, deflate")?;
        }
        let expects = fetch.expects && !matches!(fetch.body, FetchBody::Nothing);
        if expects {
            head.field("Expect", "100-continue")?;
        }
        if let Some(protocol) = fetch.offers {
            head.upgrade(protocol)?;
        }
        self.asked = head.asked();
        self.is_held = expects;
        match &fetch.body {
            FetchBody::Nothing => _ = head.empty(),
            FetchBody::Bytes(bytes) => {
                _ = head.length(bytes.len() as u64)?;
                match bytes.len() < LARGE && !expects {
                    true => self.request.extend_from_slice(bytes),
                    false => self.large = Some(bytes.as_slice().into()),
                }
            }
            FetchBody::Source(_, len) => {
                self.is_kept = false;
                self.sender = Some(match len {
                    Some(len) => head.length(*len)?,
                    None => head.chunked()?,
                });
            }
        }
        Ok(())
    }

    /// Its whole response.
    pub(super) fn take_response(&mut self) -> Fetched {
        let url = self.fetch.as_mut().filter(|_| self.has_moved);
        Fetched {
            status: self.status,
            bytes: std::mem::take(&mut self.response),
            body_at: self.body_at,
            is_decoded: self.is_decoded,
            url: url.map(|fetch| std::mem::take(&mut fetch.url)),
        }
    }
}

impl From<windlass_http1::EncodeError> for FetchError {
    fn from(error: windlass_http1::EncodeError) -> FetchError {
        FetchError::Request(error)
    }
}
