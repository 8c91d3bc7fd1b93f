//! Messages that are inflated.

use std::fmt;

use super::inflating::{InflateCaps, InflateError, Inflating, Stop};
use super::lease::StreamLeases;
use super::stream_in::{IncomingState, StreamingInflater};
use super::{Context, History, Window};

/// How messages are inflated, with a default.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InflaterSettings {
    /// The most [`StreamingInflater`]s at the same time. The default is 4.
    pub streaming: u16,
}

impl Default for InflaterSettings {
    fn default() -> InflaterSettings {
        InflaterSettings { streaming: 4 }
    }
}

/// The inflaters of a loop: they inflate messages of all its connections.
///
/// Made when they are first needed: one for messages that are there whole, 63 KB, and
/// [`InflaterSettings::streaming`] for messages in parts, with up to 32 KiB more for their window.
pub struct Inflaters {
    whole: Option<Inflating>,
    leases: StreamLeases,
    spare: Vec<IncomingState>,
}

impl Inflaters {
    /// No inflater yet.
    pub fn new(settings: InflaterSettings) -> Inflaters {
        let leases = StreamLeases::new(usize::from(settings.streaming));
        Inflaters { whole: None, leases, spare: Vec::new() }
    }

    /// Inflates the payload of a whole message, and appends its text to `out`.
    ///
    /// With a history the text joins it. `out` grows by steps, up to what the caps allow: to at
    /// most 64 KiB more than that, together with what it held before.
    ///
    /// # Errors
    /// The message is too long, or not what it should be. Then `out` has what it had before, and
    /// the history too: there is no next message of this connection.
    pub fn inflate(
        &mut self,
        context: Context<'_>,
        payload: &[u8],
        caps: InflateCaps,
        out: &mut Vec<u8>,
    ) -> Result<(), InflateError> {
        let start = out.len();
        let inflating = self.whole.get_or_insert_with(Inflating::new);
        let kept = context.parts();
        inflating.begin(caps, kept);
        if let Err(error) = whole(inflating, kept, payload, out) {
            out.truncate(start);
            return Err(error);
        }
        if let Context::Kept(history) = context {
            history.append(&out[start..]);
        }
        Ok(())
    }

    /// Leases an inflater for one message that comes in parts; `None` if all are leased: then the
    /// connection is not read.
    ///
    /// With a history, no other message of its connection is inflated until this one has gone
    /// [back](Inflaters::put_back).
    pub fn take(&mut self, context: Context<'_>, caps: InflateCaps) -> Option<StreamingInflater> {
        let lease = self.leases.take()?;
        let mut state = self.spare.pop().unwrap_or_else(IncomingState::new);
        state.begin(&context, caps);
        Some(StreamingInflater::new(state, lease))
    }

    /// Whether [`take`](Inflaters::take) has one.
    pub fn has_room(&self) -> bool {
        self.leases.spare() > 0
    }

    /// Takes an inflater back. The text of a message that has ended joins the history that it began
    /// with.
    ///
    /// An inflater that is dropped instead can be leased anew, too, but its memory is freed.
    pub fn put_back(&mut self, inflater: StreamingInflater, history: Option<&mut History>) {
        let state = inflater.into_state();
        if let Some(history) = history {
            state.keep(history);
        }
        if self.spare.len() < self.leases.spare() {
            self.spare.push(state);
        }
    }
}

/// Inflates a payload that begins now.
fn whole(
    inflating: &mut Inflating,
    [older, newer]: [&[u8]; 2],
    payload: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), InflateError> {
    let (start, mut at) = (out.len(), 0);
    loop {
        let (consumed, stop) = inflating.advance(&payload[at..], true, usize::MAX, out)?;
        at += consumed;
        match stop {
            Stop::LastBlock => {
                let text = &out[start..];
                let text = &text[text.len().saturating_sub(Window::MAX.bytes())..];
                inflating.restart(&[older, newer, text])?;
            }
            Stop::End => return Ok(()),
            Stop::Input | Stop::Room => {}
        }
    }
}

impl fmt::Debug for Inflaters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inflaters")
            .field("streaming", &self.leases.leased())
            .finish_non_exhaustive()
    }
}
