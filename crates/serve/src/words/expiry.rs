//! Points in time at which a connection ends.

use std::time::{Duration, Instant};

use windlass::driver::Deadline;

/// When a connection ends: an [`Instant`], a [`Duration`] from now, or `None` for never.
///
/// ```
/// use std::time::{Duration, Instant};
/// use windlass_serve::{Engine, Expiry, Id};
///
/// fn examples(engine: &mut Engine<()>, id: Id, at: Option<Instant>) {
///     engine.set_read_deadline(id, Duration::from_secs(5));
///     engine.set_read_deadline(id, Instant::now() + Duration::from_secs(5));
///     engine.set_read_deadline(id, None);
///     engine.set_read_deadline(id, at.map_or(Expiry::NEVER, Expiry::from));
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expiry(pub(crate) Option<Deadline>);

impl Expiry {
    /// No deadline.
    pub const NEVER: Expiry = Expiry(None);
}

impl From<Instant> for Expiry {
    fn from(at: Instant) -> Expiry {
        Expiry(Some(Deadline::At(at)))
    }
}

impl From<Duration> for Expiry {
    fn from(span: Duration) -> Expiry {
        Expiry(Some(Deadline::After(span)))
    }
}

impl From<Option<Deadline>> for Expiry {
    fn from(deadline: Option<Deadline>) -> Expiry {
        Expiry(deadline)
    }
}
