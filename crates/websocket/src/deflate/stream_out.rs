//! Messages that are compressed part by part.

use std::fmt;

use zlib_rs::DeflateFlush;

use super::deflaters::Deflater;
use super::lease::StreamLease;
use super::{Context, History, Window};

/// Compresses one message part by part. [`Deflaters`](super::Deflaters) lease it, and take it
/// back behind the message.
///
/// ```
/// use windlass_websocket::deflate::{DeflaterSettings, Deflaters, Context, History, Window};
///
/// let mut deflaters = Deflaters::new(DeflaterSettings::default());
/// let mut history = History::new(Window::MIN);
/// let mut deflater = deflaters.take(Context::Kept(&mut history)).unwrap();
/// let mut payload = Vec::new();
/// deflater.write(b"Hello, ", &mut payload);
/// deflater.end(b"World!", &mut payload);
/// deflaters.put_back(deflater, Some(&mut history));
/// assert_eq!(history.len(), 13);
/// ```
pub struct StreamingDeflater {
    state: StreamingState,
    _lease: StreamLease,
}

pub(super) struct StreamingState {
    deflater: Deflater,
    /// What the history of the connection will be, if it has one.
    history: History,
    has_history: bool,
    has_ended: bool,
}

impl StreamingDeflater {
    pub(super) fn new(state: StreamingState, lease: StreamLease) -> StreamingDeflater {
        StreamingDeflater { state, _lease: lease }
    }

    pub(super) fn into_state(self) -> StreamingState {
        self.state
    }

    /// The most bytes that a [`write`](StreamingDeflater::write) of `len` bytes and the
    /// [`flush`](StreamingDeflater::flush) behind it append, or an [`end`](StreamingDeflater::end),
    /// where all that came before is flushed. So a program knows before that it has room for them:
    /// what is compressed cannot be taken back.
    pub const fn most(len: usize) -> usize {
        // Nine bits a byte, and the beginnings of blocks: zlib's own bound for any settings.
        len.saturating_add(len / 8).saturating_add(len / 64).saturating_add(64)
    }

    /// Compresses the next bytes of the message, and appends what is ready. Some 100 KiB of text at
    /// most stay inside, until more comes.
    pub fn write(&mut self, plain: &[u8], out: &mut Vec<u8>) {
        self.state.write(plain, DeflateFlush::NoFlush, out);
    }

    /// Appends all that is inside: the peer can read all that was written. It costs 5 bytes or
    /// more.
    pub fn flush(&mut self, out: &mut Vec<u8>) {
        self.state.write(&[], DeflateFlush::SyncFlush, out);
    }

    /// Compresses the last bytes of the message, and appends the rest of its payload. Nothing is
    /// written behind it.
    pub fn end(&mut self, plain: &[u8], out: &mut Vec<u8>) {
        self.state.remember(plain);
        self.state.deflater.end(plain, out);
        self.state.has_ended = true;
    }
}

impl StreamingState {
    pub(super) fn new(deflater: Deflater, window: Window) -> StreamingState {
        let history = History::new(window);
        StreamingState { deflater, history, has_history: false, has_ended: false }
    }

    pub(super) fn window(&self) -> Window {
        self.history.window()
    }

    /// Begins a message.
    pub(super) fn begin(&mut self, context: &Context<'_>) {
        (self.has_history, self.has_ended) = (false, false);
        match context {
            Context::Fresh(_) => self.deflater.reset(),
            Context::Kept(history) => {
                self.deflater.prime(history);
                self.history.copy_from(history);
                self.has_history = true;
            }
        }
    }

    fn write(&mut self, plain: &[u8], flush: DeflateFlush, out: &mut Vec<u8>) {
        self.remember(plain);
        self.deflater.write(plain, flush, out);
    }

    fn remember(&mut self, plain: &[u8]) {
        if self.has_history {
            self.history.append(plain);
        }
    }

    /// The history that the connection has behind the message.
    pub(super) fn keep(&self, history: &mut History) {
        if self.has_history && self.has_ended {
            history.copy_from(&self.history);
        }
    }
}

impl fmt::Debug for StreamingDeflater {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamingDeflater")
            .field("window", &self.state.window())
            .field("has_ended", &self.state.has_ended)
            .finish_non_exhaustive()
    }
}
