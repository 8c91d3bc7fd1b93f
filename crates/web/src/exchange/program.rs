//! What answers the requests of a connection.

use std::path::PathBuf;
use std::time::Duration;

use windlass::{Buf, Message};
use windlass_serve::{Cause, Engine, Id};

use super::Slot;
use super::forward::Collected;
use super::raw::{News, Over, Switch};
use crate::client::error::FetchError;
use crate::client::fetch::Fetch;
use crate::client::fetched::Fetched;
use crate::client::hub::CallId;
use crate::message::arrived::{Arrived, Trailers};
#[cfg(feature = "multipart")]
use crate::message::form::{FormDecoder, PartHead};
use crate::message::gone::Presence;
use crate::message::head::Head;
use crate::message::request::Job;
#[cfg(feature = "multipart")]
use crate::message::request::parts::PartPlan;
use crate::message::request::receive::Resume;
use crate::message::response::Response;
use crate::message::save::{Save, Saved};
use crate::proxy::Forward;
use crate::topics::TopicCall;
use crate::words::error::Error;
use crate::words::status::Status;

/// The number of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RouteId(pub(crate) u32);

impl RouteId {
    /// Of requests that were refused before they had one.
    pub(crate) const NONE: RouteId = RouteId(u32::MAX);
}

/// An application, or a program with a loop of its own.
pub(crate) trait Program {
    /// What is kept of a request until its response is decided.
    type Keep: 'static;

    /// The head of a request whose body has not all come.
    fn begin(&mut self, arrived: Arrived<'_>) -> Begin<Self::Keep>;

    /// A whole request. If [`begin`](Program::begin) has seen its head, it comes with its trailers.
    fn request(
        &mut self,
        arrived: Arrived<'_>,
        body: &[u8],
        begun: Option<&Trailers>,
    ) -> (RouteId, Answer<Self::Keep>);

    /// The parts of a body follow, for an [`Answer::Receive`].
    fn begin_parts(&mut self, _keep: &mut Self::Keep, _resume: Resume) {}

    /// A part of a body.
    fn part(&mut self, _keep: &mut Self::Keep, _part: Buf) -> AfterPart {
        AfterPart::More
    }

    /// A part of a form begins. The other response stands in the place of the rest.
    #[cfg(feature = "multipart")]
    fn form_part(&mut self, _: &mut Self::Keep, _: PartHead) -> Result<PartPlan, Response> {
        Ok(PartPlan::Skip)
    }

    /// A part of a form has ended.
    #[cfg(feature = "multipart")]
    fn form_part_end(&mut self, _keep: &mut Self::Keep) -> AfterPart {
        AfterPart::More
    }

    /// The file that a body or a part of a form is saved to has ended. For a body,
    /// [`received`](Program::received) follows.
    fn saved(&mut self, _keep: &mut Self::Keep, _saved: Result<Saved, Error>) -> AfterPart {
        AfterPart::More
    }

    /// The body that was asked for is whole, or its file has failed. It is in `body` if it was to
    /// be collected.
    fn received(
        &mut self,
        _keep: Self::Keep,
        _arrived: Arrived<'_>,
        _body: Option<&[u8]>,
        _trailers: &Trailers,
    ) -> Answer<Self::Keep> {
        Answer::Respond(Status::INTERNAL_SERVER_ERROR.into())
    }

    /// The body that was asked for will not be whole.
    fn abort(&mut self, _keep: Self::Keep) {}

    /// The job of a request has returned.
    fn executed(&mut self, keep: Self::Keep, output: Message) -> Answer<Self::Keep>;

    /// The request of a request to another server is over.
    fn fetched(
        &mut self,
        _keep: Self::Keep,
        _result: Result<Fetched, FetchError>,
    ) -> Answer<Self::Keep> {
        Answer::Respond(Status::INTERNAL_SERVER_ERROR.into())
    }

    /// A call of the program's own is over.
    fn own_fetched(&mut self, _call: CallId, _result: Result<Fetched, FetchError>) {}

    /// A call of the program's own has made its server go over to another protocol: the number of
    /// what the program has for the connection, or `None` if it does not take it.
    #[cfg(feature = "websocket")]
    fn switched(
        &mut self,
        call: CallId,
        head: &windlass_http1::ResponseHead,
        bytes: &[u8],
    ) -> Option<u32>;

    /// The server has not gone over.
    #[cfg(feature = "websocket")]
    fn not_switched(&mut self, call: CallId, result: Result<Fetched, FetchError>);

    /// A response that was made of an error, before anything else sees it. `arrived` is `None` for
    /// what is no request.
    fn shape(
        &mut self,
        route: RouteId,
        arrived: Option<Arrived<'_>>,
        response: Response,
    ) -> Response;

    /// Whether it changes heads: else [`decided`](Program::decided) is not called.
    fn changes_heads(&self) -> bool;

    /// The head of every response, before it is written. False: there has to be an error in its
    /// place.
    fn decided(&mut self, route: RouteId, arrived: Option<Arrived<'_>>, head: &mut Head) -> bool;

    /// Something has happened on a connection that has gone over to another protocol. Returns
    /// whether it goes on: the program has neither closed nor detached it.
    fn raw(&mut self, engine: &mut Engine<Slot<Self::Keep>>, id: Id, raw: u32, news: News) -> bool;

    /// What the callbacks of such connections have asked for, and is not done.
    #[inline]
    fn next_topic_call(&mut self) -> Option<TopicCall> {
        None
    }

    /// Whether such a connection has kept input back, until what its callback has asked for is
    /// done: further [data](News::Data), of no bytes, brings it.
    #[inline]
    fn has_input(&self) -> bool {
        false
    }

    /// Such a connection is over. Its number is free.
    fn raw_over(&mut self, raw: u32, over: Over);

    /// How many requests of a route may wait for their response.
    fn most_running(&self, _route: RouteId) -> usize {
        usize::MAX
    }

    /// Calls what belongs to the request of a connection, where `call` does not get the request.
    #[inline]
    fn within<T>(&mut self, _id: Id, call: impl FnOnce(&mut Self) -> T) -> T {
        call(self)
    }

    /// Whether it wants to know how requests end: then their heads are kept, and the clock is read.
    fn is_watched(&self) -> bool;

    /// A request is done with. It is called once for each.
    fn finished(&mut self, route: RouteId, arrived: Option<Arrived<'_>>, end: End<'_>);
}

/// What follows the head of a request.
pub(crate) enum Begin<K> {
    /// The body is collected, up to so many bytes; `None`: as many as [`Limits::body`] says.
    ///
    /// [`Limits::body`]: crate::Limits::body
    Collect(RouteId, Option<u64>),
    /// The request is answered without its body, or reads it itself.
    Answer(RouteId, Answer<K>),
}

/// What follows a request.
pub(crate) enum Answer<K> {
    Respond(Response),
    /// A job runs. What is kept gets its value.
    Job(Job, K),
    /// The response comes later. What is kept stands for the request meanwhile.
    Later(K),
    /// The body is collected, up to so many bytes.
    Collect(u64, K),
    /// The body is taken part by part, up to so many bytes; `None`: as many as
    /// [`Limits::body`](crate::Limits::body) says.
    Receive(Option<u64>, Taking, K),
    /// The response of another server comes first.
    Fetch(Box<Fetch>, K),
    /// The request is passed on to another server, with this body, or with one that has at most so
    /// many bytes.
    Forward(Forward, Collected, Option<u64>),
    /// The connection goes over to another protocol.
    Switch(Box<Switch>),
    /// Any of these, for a request that tells whether its client is there.
    Watched(Presence, Box<Answer<K>>),
}

/// What becomes of the bytes of a body that is taken part by part.
pub(crate) enum Taking {
    /// The program gets them.
    Bytes,
    /// They are saved to this file.
    File(Box<(PathBuf, Save)>),
    /// The program gets the parts of a form.
    #[cfg(feature = "multipart")]
    Form(Box<FormDecoder>),
}

/// What follows a part of a body.
pub(crate) enum AfterPart {
    More,
    Pause,
    Stop(Response),
}

/// How a request has ended.
#[derive(Clone, Copy)]
pub(crate) struct End<'a> {
    /// The status of its response, if there is one.
    pub(crate) status: Option<Status>,
    /// Bytes of the response's body that were handed to the connection.
    pub(crate) sent: u64,
    pub(crate) error: Option<&'a Error>,
    /// Why its response is not whole.
    pub(crate) cause: Option<Cause>,
    /// How long it took from its first byte on: to the head of its response, and in all.
    pub(crate) to_head: Option<Duration>,
    pub(crate) took: Duration,
    /// The field `Date` of this moment.
    pub(crate) date: &'a str,
}
