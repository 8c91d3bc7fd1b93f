//! Messages that are inflated part by part.

use std::fmt;

use super::inflating::{InflateCaps, InflateError, Inflating, MOST_MADE, Stop};
use super::lease::StreamLease;
use super::{Context, History, Window};

/// Inflates one message part by part. [`Inflaters`](super::Inflaters) lease it, and take it back
/// behind the message.
///
/// ```
/// use windlass_websocket::deflate::{Context, InflateCaps, Inflaters, InflaterSettings, Window};
///
/// let mut inflaters = Inflaters::new(InflaterSettings::default());
/// let caps = InflateCaps { bytes: 1 << 30, ..InflateCaps::default() };
/// let mut inflater = inflaters.take(Context::Fresh(Window::MAX), caps).unwrap();
/// let parts = [&[0xf2, 0x48, 0xcd][..], &[0xc9, 0xc9, 0x07, 0x00]];
/// let mut text = Vec::new();
/// for (number, mut part) in parts.iter().copied().enumerate() {
///     loop {
///         let step = inflater.inflate(part, number == 1, &mut text)?;
///         part = &part[step.consumed..];
///         if !step.has_more {
///             break; // and with it, each text is used before the next call
///         }
///     }
/// }
/// inflaters.put_back(inflater, None);
/// assert_eq!(text, b"Hello");
/// # Ok::<_, windlass_websocket::deflate::InflateError>(())
/// ```
pub struct StreamingInflater {
    state: IncomingState,
    _lease: StreamLease,
}

pub(super) struct IncomingState {
    inflating: Inflating,
    /// What was made, as far as the message can refer to it: a last block needs it, and the history
    /// of the connection, if there is one.
    text: History,
    has_history: bool,
    has_ended: bool,
}

/// What a call did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Inflated {
    /// Bytes of the part that are consumed.
    pub consumed: usize,
    /// Whether the next call, with the rest of the part, makes more without further input. If
    /// false, all of the part is consumed; and if the part was the last one, the message has ended.
    pub has_more: bool,
}

impl StreamingInflater {
    pub(super) fn new(state: IncomingState, lease: StreamLease) -> StreamingInflater {
        StreamingInflater { state, _lease: lease }
    }

    pub(super) fn into_state(self) -> IncomingState {
        self.state
    }

    /// Inflates some of a part of the payload, which is the last one or not, and appends at most
    /// 64 KiB of text to `out`.
    ///
    /// # Errors
    /// The message is too long, or not what it should be. What was made is the beginning of the
    /// text at most. The connection ends with it.
    pub fn inflate(
        &mut self,
        part: &[u8],
        is_last: bool,
        out: &mut Vec<u8>,
    ) -> Result<Inflated, InflateError> {
        let (mut at, mut room) = (0, MOST_MADE);
        let state = &mut self.state;
        loop {
            let start = out.len();
            let result = state.inflating.advance(&part[at..], is_last, room, out);
            let made = &out[start..];
            state.text.append(made);
            room -= made.len();
            let (consumed, stop) = result?;
            at += consumed;
            match stop {
                Stop::LastBlock => state.inflating.restart(&state.text.parts())?,
                Stop::Room => return Ok(Inflated { consumed: at, has_more: true }),
                Stop::Input => return Ok(Inflated { consumed: at, has_more: false }),
                Stop::End => {
                    state.has_ended = true;
                    return Ok(Inflated { consumed: at, has_more: false });
                }
            }
        }
    }
}

impl IncomingState {
    pub(super) fn new() -> IncomingState {
        IncomingState {
            inflating: Inflating::new(),
            text: History::new(Window::MAX),
            has_history: false,
            has_ended: false,
        }
    }

    /// Begins a message.
    pub(super) fn begin(&mut self, context: &Context<'_>, caps: InflateCaps) {
        (self.has_history, self.has_ended) = (false, false);
        self.text.clear();
        if let Context::Kept(history) = context {
            self.text.copy_from(history);
            self.has_history = true;
        }
        self.inflating.begin(caps, self.text.parts());
    }

    /// The history that the connection has behind the message.
    pub(super) fn keep(&self, history: &mut History) {
        if self.has_history && self.has_ended {
            history.copy_from(&self.text);
        }
    }
}

impl fmt::Debug for StreamingInflater {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamingInflater")
            .field("has_ended", &self.state.has_ended)
            .finish_non_exhaustive()
    }
}
