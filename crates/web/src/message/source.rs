//! Bodies that are made while they are sent.

/// What makes a body while it is sent. A closure is one: see
/// [`Response::stream`](crate::Response::stream).
///
/// The server asks for a part whenever the connection has room, so that a slow client costs no more
/// memory than [`Limits::high`](windlass_serve::Limits::high) bytes and one part. It runs on the
/// loop: it must not block.
pub trait Source: Send {
    /// Writes the next part, and says whether there is more.
    fn next(&mut self, part: &mut Part<'_>) -> Flow;
}

impl<F: FnMut(&mut Part<'_>) -> Flow + Send> Source for F {
    fn next(&mut self, part: &mut Part<'_>) -> Flow {
        self(part)
    }
}

/// What follows a part of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// There is more. A source that makes 1000 empty parts one after the other has failed.
    More,
    /// It was the last part.
    End,
    /// The body cannot be completed: the client gets a reset, so that it does not take what it has
    /// for all.
    Fail,
}

/// A part of a body that is being made.
#[derive(Debug)]
pub struct Part<'a> {
    bytes: &'a mut Vec<u8>,
}

impl<'a> Part<'a> {
    pub(crate) fn new(bytes: &'a mut Vec<u8>) -> Part<'a> {
        Part { bytes }
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
