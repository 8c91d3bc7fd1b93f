//! Answers that other threads give.

use std::fmt;

use crate::message::handover::{self, Giver};
use crate::message::response::{Body, Response};
use crate::words::status::Status;

/// Answers a request, from any thread, and at any time: [`Response::later`] makes it.
///
/// If it is dropped without a response, the client gets a 500. It gets a 504 when
/// [`Limits::answer`](crate::Limits::answer) has passed.
#[must_use = "dropping it answers the request with a 500"]
pub struct Later(Giver<Response>);

impl Later {
    /// Answers the request.
    ///
    /// # Errors
    ///
    /// The response comes back if the request is over: its client has gone, or has got a 504, or
    /// its handler has returned another response.
    /// [`Totals::late`](crate::report::Totals::late) counts the first two.
    pub fn respond(self, response: impl Into<Response>) -> Result<(), Response> {
        self.0.give(response.into())
    }

    /// Whether nobody waits for the response any more, as far as the server knows: the client has
    /// ended its side, its connection has ended, or it has got a 504.
    ///
    /// A client that has ended its side may still read. So the server sends it the response, if
    /// there is one.
    pub fn is_gone(&self) -> bool {
        self.0.is_gone()
    }
}

impl fmt::Debug for Later {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Later").field("is_gone", &self.is_gone()).finish()
    }
}

impl Response {
    /// A response that any thread gives later: for one that comes from a queue, or from another
    /// server. [`Request::blocking`](crate::Request::blocking) is
    /// for code that computes or waits.
    ///
    /// The handler returns the response, and the thread has the [`Later`]. The connection waits
    /// meanwhile, for at most [`Limits::answer`](crate::Limits::answer), and the loop goes on. What
    /// the handler sets of the head has no effect: the response of the thread has its own.
    ///
    /// ```
    /// use std::sync::mpsc::channel;
    /// use windlass_web::{App, Response};
    ///
    /// let (ask, asked) = channel();
    /// let app = App::new().get("/sum", move |_, _| {
    ///     let (later, response) = Response::later();
    ///     // If nobody listens any more, the `Later` is dropped here, and the client gets a 500.
    ///     let _ = ask.send(later);
    ///     response
    /// });
    /// std::thread::spawn(move || {
    ///     for later in asked {
    ///         let sum: u64 = (1..=1000).sum();
    ///         // It comes back if the client has gone.
    ///         let _ = later.respond(sum.to_string());
    ///     }
    /// });
    /// # let _ = app;
    /// ```
    pub fn later() -> (Later, Response) {
        let (later, awaited) = handover::pair();
        (Later(later), Response::of(Status::OK, None, Body::Awaited(awaited)))
    }
}
