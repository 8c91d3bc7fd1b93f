//! Bodies that are made while they are sent.

use std::fmt;

use windlass_serve::Id;
use windlass_serve::memory::{Budget, Charge};

use crate::remote::Remote;

/// Bodies, and parts of bodies, from this size on are written without a copy.
pub(crate) const LARGE: usize = 4096;

/// A source that makes so many empty parts one after the other has failed: it would hold the loop.
pub(crate) const EMPTY_PARTS: usize = 1000;

/// What makes a body while it is sent. A closure is one: see
/// [`Response::stream`](crate::Response::stream).
///
/// The server asks for a part whenever the connection has room, so that a slow client costs no more
/// memory than [`Limits::high`](windlass_serve::Limits::high) bytes and one part. Where there is no
/// room, it asks once more when the client [has ended its side](Part::has_peer_ended). It runs on
/// the loop: it must not block. [`Response::writer`](crate::Response::writer) is for bodies that
/// another thread makes.
///
/// It is dropped when its connection has ended.
pub trait BodySource: Send {
    /// Writes the next part, and says whether there is more.
    fn next(&mut self, part: &mut Part<'_>) -> Flow;
}

impl<F: FnMut(&mut Part<'_>) -> Flow + Send> BodySource for F {
    fn next(&mut self, part: &mut Part<'_>) -> Flow {
        self(part)
    }
}

/// What follows a part of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// There is more. A source that makes 1000 empty parts one after the other has failed.
    More,
    /// There is nothing more now. The server asks again when the source was
    /// [woken](Part::waker), and when the client has ended its side.
    Wait,
    /// It was the last part.
    End,
    /// The body cannot be completed: the client gets a reset, so that it does not take what it has
    /// for all.
    Fail,
}

/// A part of a body that is being made.
pub struct Part<'a> {
    bytes: &'a mut Vec<u8>,
    at: At<'a>,
}

/// The connection that a part is for.
#[derive(Clone, Copy)]
pub(crate) struct At<'a> {
    pub(crate) remote: &'a Remote,
    pub(crate) id: Id,
    pub(crate) has_peer_ended: bool,
    /// Whether it has no room, and the source is asked because of the peer's end.
    pub(crate) is_full: bool,
    /// Charges what a source holds for it.
    pub(crate) hold: &'a dyn Fn() -> (Charge, Budget),
}

/// Wakes a source that [waits](Flow::Wait), from any thread.
#[derive(Clone, Debug)]
pub struct Waker {
    remote: Remote,
    id: Id,
}

impl Waker {
    /// The server asks the source again. Several calls before that are one. False if the connection
    /// has ended.
    pub fn wake(&self) -> bool {
        self.remote.wake(self.id)
    }
}

impl<'a> Part<'a> {
    pub(crate) fn new(bytes: &'a mut Vec<u8>, at: At<'a>) -> Part<'a> {
        Part { bytes, at }
    }

    /// Appends bytes to the part.
    pub fn write(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// How many bytes the part has.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether it has no byte.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// What wakes this source when it waits.
    ///
    /// ```
    /// use std::sync::{Arc, Mutex};
    /// use windlass_web::answers::Waker;
    /// use windlass_web::{Flow, Part, Response};
    ///
    /// /// A word that another thread says, and what to wake then.
    /// type Word = Arc<Mutex<(Option<String>, Option<Waker>)>>;
    ///
    /// fn hear(word: Word) -> Response {
    ///     Response::stream(move |part: &mut Part<'_>| {
    ///         let mut word = word.lock().unwrap();
    ///         match word.0.take() {
    ///             Some(word) => {
    ///                 part.write(word.as_bytes());
    ///                 Flow::End
    ///             }
    ///             None if part.has_peer_ended() => Flow::Fail,
    ///             None => {
    ///                 word.1 = Some(part.waker());
    ///                 Flow::Wait
    ///             }
    ///         }
    ///     })
    /// }
    ///
    /// fn say(word: &Word, said: &str) {
    ///     let mut word = word.lock().unwrap();
    ///     word.0 = Some(said.to_owned());
    ///     if let Some(waker) = &word.1 {
    ///         waker.wake();
    ///     }
    /// }
    /// # let _ = (hear, say);
    /// ```
    pub fn waker(&self) -> Waker {
        Waker { remote: self.at.remote.clone(), id: self.at.id }
    }

    /// Whether the client has ended its side. It may still read, or it has gone: then the next
    /// writes end the connection. A source that writes seldom, and has no end, ends here.
    pub fn has_peer_ended(&self) -> bool {
        self.at.has_peer_ended
    }

    /// Whether the connection has no room. Then the source is asked so that it learns that its peer
    /// has ended.
    pub(crate) fn is_full(&self) -> bool {
        self.at.is_full
    }

    /// Takes all bytes of a part that is empty so far, and gives its memory back in turn.
    pub(crate) fn swap(&mut self, bytes: &mut Vec<u8>) {
        std::mem::swap(self.bytes, bytes);
    }

    /// A charge for what the source holds, and the budget that it is part of.
    pub(crate) fn hold(&self) -> (Charge, Budget) {
        (self.at.hold)()
    }
}

impl std::io::Write for Part<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl fmt::Debug for Part<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Part").field("len", &self.len()).finish_non_exhaustive()
    }
}
