//! What an application calls around its handlers.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::message::head::Head;
use crate::message::request::Request;
use crate::message::response::Response;
use crate::words::error::Error;
use crate::words::status::Status;

type Before<S> = dyn Fn(&mut S, &mut Request<'_, S>) -> Option<Response> + Send + Sync;
type After<S> = dyn Fn(&mut S, Option<&Request<'_, S>>, &mut Head) + Send + Sync;
type Finish<S> = dyn Fn(&mut S, &Finished<'_>) + Send + Sync;
type Shape<S> = dyn Fn(&mut S, &Error) -> Response + Send + Sync;

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

/// A request that is done with.
pub struct Finished<'a> {
    pub(super) route: &'a str,
    pub(super) status: Option<Status>,
    pub(super) sent: u64,
    pub(super) error: Option<&'a Error>,
    pub(super) to_head: Option<Duration>,
    pub(super) took: Duration,
}

impl<'a> Finished<'a> {
    /// The pattern of its route; empty for a request without one.
    pub fn route(&self) -> &'a str {
        self.route
    }

    /// The status of its response; `None` if the connection has ended before there was one.
    pub fn status(&self) -> Option<Status> {
        self.status
    }

    /// Bytes of the response's body that were handed to the connection.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// The error that the response was made of.
    pub fn error(&self) -> Option<&'a Error> {
        self.error
    }

    /// The time from its first byte to the head of its response.
    pub fn to_head(&self) -> Option<Duration> {
        self.to_head
    }

    /// The time from its first byte to its end.
    pub fn took(&self) -> Duration {
        self.took
    }
}

impl fmt::Debug for Finished<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Finished")
            .field("route", &self.route)
            .field("status", &self.status)
            .field("sent", &self.sent)
            .finish_non_exhaustive()
    }
}
