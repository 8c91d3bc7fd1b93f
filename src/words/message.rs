//! Values of any type, from other threads and from jobs.

use std::any::Any;
use std::fmt;

/// A value that [`Submitter::post`](crate::Submitter::post) has sent, or that a job has returned.
pub struct Message(pub(crate) Option<Box<dyn Any + Send>>);

impl Message {
    /// A message that carries `value` (for authors of drivers).
    pub fn new(value: Option<Box<dyn Any + Send>>) -> Message {
        Message(value)
    }

    /// Takes the value, if it is a `T`.
    ///
    /// # Errors
    /// The message comes back if the value is no `T`, or if there is no value.
    pub fn downcast<T: 'static>(self) -> Result<T, Message> {
        let mut this = self;
        match this.0.take() {
            Some(value) => match value.downcast::<T>() {
                Ok(value) => Ok(*value),
                Err(value) => Err(Message(Some(value))),
            },
            None => Err(this),
        }
    }

    /// Whether the message has no value, only a token.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

impl Drop for Message {
    // Out of line, so that dropping a completion stays small.
    #[inline(never)]
    fn drop(&mut self) {
        self.0 = None;
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_empty() { "Message(empty)" } else { "Message(..)" })
    }
}
