//! What takes a form, part by part.

use std::path::PathBuf;

use windlass::Buf;

use crate::message::form::PartHead;
use crate::message::request::Request;
use crate::message::request::receive::{Demand, Resume};
use crate::message::response::Response;
use crate::message::save::{Save, Saved};
use crate::words::error::Error;

/// Takes the parts of a form: see [`Request::multipart`].
///
/// It runs on the loop, so it must not block. A panic answers the request with a 500.
///
/// For each part `part` is called. What follows is up to its plan: `data` any number of times and
/// `part_end`, or `saved`, or nothing.
pub trait ReceiveParts<S> {
    /// The form is about to come. `resume` ends the [pauses](Demand::Pause) of this form: a
    /// receiver that pauses keeps it.
    fn begin(&mut self, state: &mut S, resume: Resume) {
        let _ = (state, resume);
    }

    /// A part begins. All of its head is what the client says, the name of a file, too.
    ///
    /// # Errors
    ///
    /// The client gets the error, as by [`Demand::Stop`].
    fn part(&mut self, state: &mut S, part: PartHead) -> Result<PartPlan, Error>;

    /// Bytes of a part whose plan is [`PartPlan::Read`]. Most are slices of what was read, which
    /// nobody has copied: keep them only for as long as the memory of the loop may be used for
    /// them.
    ///
    /// # Errors
    ///
    /// The client gets the error, as by [`Demand::Stop`].
    fn data(&mut self, state: &mut S, data: Buf) -> Result<Demand, Error>;

    /// A part has ended whose plan is [`PartPlan::Read`].
    ///
    /// # Errors
    ///
    /// The client gets the error, as by [`Demand::Stop`].
    fn part_end(&mut self, state: &mut S) -> Result<Demand, Error> {
        let _ = state;
        Ok(Demand::More)
    }

    /// A part is saved, or has failed: see [`PartPlan::Save`]. What is left of one that has failed
    /// is dropped. By default, an error is the client's, too.
    ///
    /// # Errors
    ///
    /// The client gets the error, as by [`Demand::Stop`].
    fn saved(&mut self, state: &mut S, saved: Result<Saved, Error>) -> Result<Demand, Error> {
        let _ = state;
        saved.map(|_| Demand::More)
    }

    /// The form is whole. The request is as its handler has had it; it has no
    /// [body](Request::body). The response may be one that is still to come, as that of
    /// [`Request::blocking`].
    ///
    /// # Errors
    ///
    /// The client gets the error.
    fn end(self: Box<Self>, state: &mut S, request: &mut Request<'_, S>)
    -> Result<Response, Error>;

    /// The rest of the form does not come: the client has gone, was too slow, or has sent what is
    /// no form, or one beyond a limit. Where the client is still there, it gets the server's error.
    /// This is not called behind [`Demand::Stop`], an error or a panic.
    fn aborted(self: Box<Self>, state: &mut S) {
        let _ = state;
    }
}

/// What becomes of a part of a form.
#[derive(Debug)]
#[non_exhaustive]
pub enum PartPlan {
    /// [`ReceiveParts::data`] gets its bytes.
    Read,
    /// Its bytes are dropped. They count for the limits.
    Skip,
    /// They are saved to a file, as by [`Request::save`]: [`ReceiveParts::saved`] follows. If the
    /// form ends later without a whole body, the file stays.
    Save(PathBuf, Save),
}
