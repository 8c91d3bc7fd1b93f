//! What an application calls around its handlers.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use windlass_http1::Version;
use windlass_serve::Cause;
use windlass_serve::report::Counters;

use crate::exchange::program::End;
use crate::message::arrived::Arrived;
use crate::message::forwarded;
use crate::message::head::Head;
use crate::message::request::Request;
use crate::message::response::Response;
use crate::words::error::Error;
use crate::words::status::Status;

type Before<S> = dyn Fn(&mut S, &mut Request<'_, S>) -> Option<Response> + Send + Sync;
type After<S> = dyn Fn(&mut S, Option<&Request<'_, S>>, &mut Head) + Send + Sync;
type Finish<S> = dyn Fn(&mut S, &Finished<'_>) + Send + Sync;
type Shape<S> = dyn Fn(&mut S, Option<&Request<'_, S>>, &Error) -> Response + Send + Sync;

/// The hooks of an application.
pub(super) struct Hooks<S> {
    pub(super) before: Vec<Arc<Before<S>>>,
    pub(super) after: Vec<Arc<After<S>>>,
    pub(super) finished: Vec<Arc<Finish<S>>>,
    pub(super) on_error: Option<Arc<Shape<S>>>,
}

impl<S> Default for Hooks<S> {
    fn default() -> Hooks<S> {
        Hooks { before: Vec::new(), after: Vec::new(), finished: Vec::new(), on_error: None }
    }
}

impl<S> Clone for Hooks<S> {
    fn clone(&self) -> Hooks<S> {
        let Hooks { before, after, finished, on_error } = self;
        Hooks {
            before: before.clone(),
            after: after.clone(),
            finished: finished.clone(),
            on_error: on_error.clone(),
        }
    }
}

impl<S> Hooks<S> {
    /// Whether any of them changes heads, or hears of the end of requests.
    pub(super) fn has(&self) -> (bool, bool) {
        (!self.after.is_empty(), !self.finished.is_empty())
    }
}

/// A request that is done with: [`App::finished`](crate::App::finished) shows it to logs and
/// metrics.
///
/// What is no request, because its head is malformed or has not come in time, has a status and an
/// error only: no method, no target and no field.
pub struct Finished<'a> {
    pub(super) route: &'a str,
    pub(super) request: Option<Arrived<'a>>,
    pub(super) end: End<'a>,
}

impl<'a> Finished<'a> {
    /// The pattern of its route, as `/notes/{id}`; empty for a request without one. It is a label
    /// for metrics: there are as many as the program has routes.
    pub fn route(&self) -> &'a str {
        self.route
    }

    /// The method, as it came.
    pub fn method(&self) -> Option<&'a str> {
        self.request.map(|Arrived { head, bytes, .. }| head.method(bytes))
    }

    /// The target, as it came: the path with the query, for most requests.
    pub fn target(&self) -> Option<&'a str> {
        self.request.map(|Arrived { head, bytes, .. }| head.target(bytes))
    }

    /// The version of HTTP.
    pub fn version(&self) -> Option<Version> {
        self.request.map(|Arrived { head, .. }| head.version())
    }

    /// The value of the request's first field with this name, in any case; `None`, too, if it is no
    /// UTF-8.
    pub fn header(&self, name: &str) -> Option<&'a str> {
        let Arrived { head, bytes, .. } = self.request?;
        let is = |field: &(&str, &'a [u8])| field.0.eq_ignore_ascii_case(name);
        std::str::from_utf8(head.fields(bytes).find(is)?.1).ok()
    }

    /// The address of the client: see [`Request::client`](crate::Request::client).
    pub fn client(&self) -> Option<IpAddr> {
        forwarded::client(self.request?).ip
    }

    /// The address and port at the other end of the connection, if it has an internet address.
    pub fn peer(&self) -> Option<SocketAddr> {
        self.request?.from.peer
    }

    /// The counts of the loop's connections.
    pub fn counters(&self) -> Option<&'a Counters> {
        Some(self.request?.from.engine.counters())
    }

    /// The status of its response; `None` if the connection has ended before there was one.
    pub fn status(&self) -> Option<Status> {
        self.end.status
    }

    /// Bytes of the response's body that were handed to the connection.
    pub fn sent(&self) -> u64 {
        self.end.sent
    }

    /// The error that the response was made of, with its private cause.
    pub fn error(&self) -> Option<&'a Error> {
        self.end.error
    }

    /// Why there is no response, or only a part of it: why the connection has ended, or
    /// [`Cause::Aborted`] for a stream that [fails](crate::Flow::Fail) and [`Cause::Panicked`] for
    /// one that panics. `None`: the response is whole, and was handed to the connection.
    pub fn cause(&self) -> Option<Cause> {
        self.end.cause
    }

    /// The time from the request's first byte to the head of its response, if it has one. In a
    /// simulation it is virtual, as all times are.
    pub fn to_head(&self) -> Option<Duration> {
        self.end.to_head
    }

    /// The time from the request's first byte to its end.
    pub fn took(&self) -> Duration {
        self.end.took
    }

    /// The date of its end, as the field `Date` has it: `Sun, 06 Nov 1994 08:49:37 GMT`.
    pub fn date(&self) -> &'a str {
        self.end.date
    }
}

impl fmt::Debug for Finished<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Finished")
            .field("method", &self.method())
            .field("target", &self.target())
            .field("route", &self.route)
            .field("status", &self.end.status)
            .field("sent", &self.end.sent)
            .field("cause", &self.end.cause)
            .finish_non_exhaustive()
    }
}
