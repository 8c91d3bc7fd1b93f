//! What answers the requests of a connection.

use windlass::Message;
use windlass_serve::{Engine, Id};

use super::Slot;
use super::raw::{News, Over, Switch};
use crate::message::arrived::Arrived;
use crate::message::head::Head;
use crate::message::request::Job;
use crate::message::response::Response;
use crate::words::error::Error;

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

    /// A whole request. `begun` says whether [`begin`](Program::begin) has seen its head.
    fn request(
        &mut self,
        arrived: Arrived<'_>,
        body: &[u8],
        begun: bool,
    ) -> (RouteId, Answer<Self::Keep>);

    /// The job of a request has returned.
    fn executed(&mut self, keep: Self::Keep, output: Message) -> Answer<Self::Keep>;

    /// The response to an error that the server has found.
    fn respond_to(&mut self, route: RouteId, error: Error) -> Response;

    /// Whether anything wants to know of the heads and the ends of this route's requests.
    fn is_watched(&self, route: RouteId) -> bool;

    /// The head of every response, before it is written. `arrived` is `None` for what is no
    /// request.
    fn decided(&mut self, route: RouteId, arrived: Option<Arrived<'_>>, head: &mut Head);

    /// Something has happened on a connection that has gone over to another protocol. Returns
    /// whether it goes on: the program has neither closed nor detached it.
    fn raw(&mut self, engine: &mut Engine<Slot<Self::Keep>>, id: Id, raw: u32, news: News) -> bool;

    /// Such a connection is over. Its number is free.
    fn raw_over(&mut self, raw: u32, over: Over);

    /// A request is done with.
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
    /// The connection goes over to another protocol.
    Switch(Box<Switch>),
}

/// How a request has ended.
#[derive(Clone, Copy)]
pub(crate) struct End<'a> {
    /// The status of its response, if there is one.
    pub(crate) status: Option<crate::words::status::Status>,
    /// Bytes of the response's body that were handed to the connection.
    pub(crate) sent: u64,
    pub(crate) error: Option<&'a Error>,
    /// When its first byte came, and when its response was decided.
    pub(crate) times: Option<(std::time::Instant, std::time::Instant)>,
}
