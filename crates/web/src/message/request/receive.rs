//! What takes the body of a request, part by part.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use windlass::Buf;
use windlass_serve::Id;

use crate::message::request::Request;
use crate::message::response::Response;
use crate::remote::Remote;
use crate::words::error::Error;

/// Takes the body of a request, part by part: see [`Request::receive`].
///
/// It runs on the loop, so it must not block. A panic answers the request with a 500.
pub trait Receive<S> {
    /// The body is about to come. `resume` ends the [pauses](Demand::Pause) of this body: a
    /// receiver that pauses keeps it.
    fn begin(&mut self, state: &mut S, resume: Resume) {
        let _ = (state, resume);
    }

    /// A part of the body. Most parts are slices of what was read, which nobody has copied: keep
    /// them only for as long as the memory of the loop may be used for them. A chunked body has at
    /// least one part for each chunk.
    ///
    /// # Errors
    ///
    /// The client gets the error, as by [`Demand::Stop`].
    fn data(&mut self, state: &mut S, part: Buf) -> Result<Demand, Error>;

    /// The body is whole. The request is as its handler has had it, with its
    /// [trailers](Request::trailers); it has no [body](Request::body). The response may be one that
    /// is still to come, as that of [`Request::blocking`].
    ///
    /// # Errors
    ///
    /// The client gets the error.
    fn end(self: Box<Self>, state: &mut S, request: &mut Request<'_, S>)
    -> Result<Response, Error>;

    /// The rest of the body does not come: the client has gone, was too slow, or has sent what is
    /// no body, or one beyond the limit. Where the client is still there, it gets the
    /// server's error. This is not called behind [`Demand::Stop`], an error or a panic.
    fn aborted(self: Box<Self>, state: &mut S) {
        let _ = state;
    }
}

/// What follows a part of a body.
#[derive(Debug)]
pub enum Demand {
    /// The next part.
    More,
    /// Nothing, before [`Resume::resume`] is called: the connection is not read, so that the client
    /// has to wait. If it has been called since the last pause, the next part comes at once.
    ///
    /// The time of a pause does not count for [`Limits::body_rate`](crate::Limits::body_rate), and
    /// has no limit of its own.
    ///
    /// A client that resets its connection ends the pause: the receiver is
    /// [told](Receive::aborted) at once. A client that closes without a reset looks like one that
    /// has sent all of its body: what has come of it is read after the resume.
    Pause,
    /// This response, in the place of the rest of the body.
    Stop(Response),
}

/// Ends the [pause](Demand::Pause) of a body, from any thread: of a callback on the loop, of a
/// job, or of the program.
///
/// ```
/// use std::fs::File;
/// use std::io::Write;
/// use std::sync::mpsc::{SyncSender, sync_channel};
/// use std::thread;
///
/// use windlass_web::body::{Demand, Receive, Resume};
/// use windlass_web::windlass::Buf;
/// use windlass_web::{Error, Request, Response};
///
/// /// Hands a body to a thread that writes it, one part at a time.
/// struct Upload {
///     parts: SyncSender<(Buf, Resume)>,
///     resume: Option<Resume>,
/// }
///
/// impl Upload {
///     fn new(mut file: File) -> Upload {
///         let (parts, writes) = sync_channel::<(Buf, Resume)>(1);
///         thread::spawn(move || {
///             for (part, resume) in writes {
///                 if file.write_all(&part).is_err() {
///                     break; // the next send fails
///                 }
///                 resume.resume();
///             }
///         });
///         Upload { parts, resume: None }
///     }
/// }
///
/// impl Receive<()> for Upload {
///     fn begin(&mut self, _: &mut (), resume: Resume) {
///         self.resume = Some(resume);
///     }
///     fn data(&mut self, _: &mut (), part: Buf) -> Result<Demand, Error> {
///         if let Some(resume) = &self.resume {
///             self.parts.try_send((part, resume.clone())).map_err(std::io::Error::other)?;
///         }
///         Ok(Demand::Pause)
///     }
///     fn end(self: Box<Self>, _: &mut (), _: &mut Request<'_>) -> Result<Response, Error> {
///         Ok("written".into())
///     }
/// }
/// ```
#[derive(Clone)]
pub struct Resume {
    remote: Remote,
    id: Id,
    is_set: Arc<AtomicBool>,
}

impl Resume {
    pub(crate) fn new(remote: Remote, id: Id) -> Resume {
        Resume { remote, id, is_set: Arc::default() }
    }

    /// Ends the pause. If the body is not paused, its next pause ends at once. False if the
    /// connection has ended. Nothing happens once the request has its response.
    pub fn resume(&self) -> bool {
        self.is_set.store(true, Ordering::Release);
        self.remote.wake(self.id)
    }

    /// Whether the pause is to end. Then it is not to end again.
    pub(crate) fn take(&self) -> bool {
        self.is_set.swap(false, Ordering::Acquire)
    }
}

impl fmt::Debug for Resume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resume").field("id", &self.id).finish_non_exhaustive()
    }
}
