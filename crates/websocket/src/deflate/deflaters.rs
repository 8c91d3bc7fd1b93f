//! Messages that are compressed.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use zlib_rs::{Deflate, DeflateConfig, DeflateFlush};

use super::lease::StreamLeases;
use super::stream_out::{StreamingDeflater, StreamingState};
use super::{Context, History, UnsentMessage, Window};

/// Bytes that are made at once, before they are appended.
const AT_ONCE: usize = 8 << 10;

/// What a sync flush ends with. RFC 7692, section 7.2.1, leaves it away at the end of a message.
const TAIL: [u8; 4] = [0, 0, 0xff, 0xff];

/// How many bytes of its window need not be primed: zlib keeps 262 free, for the longest match and
/// one of the shortest, and refers to no first byte.
const UNREACHED: usize = 261;

/// A live deflater that was not used for so many messages per live deflater gives its place to
/// one with another window.
const PATIENCE: u64 = 64;

/// How messages are compressed, each with a default.
///
/// ```
/// use windlass_websocket::deflate::DeflaterSettings;
///
/// let settings = DeflaterSettings { level: 6, ..DeflaterSettings::default() };
/// assert_eq!((settings.memory, settings.live, settings.streaming), (8, 8, 4));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeflaterSettings {
    /// From 1, the fastest, to 9, the smallest. The default is 1: a third of the time of level 6,
    /// for a payload that is 1.4 times as large. Other values count as the nearest of these.
    pub level: u8,
    /// zlib's memory level, from 1 to 9: how much is compressed as one block. The default is 8.
    /// Other values count as the nearest of these.
    pub memory: u8,
    /// The most deflaters that keep the context of a connection. The default is 8; with 0, each
    /// message with a context is primed.
    pub live: u16,
    /// The most [`StreamingDeflater`]s at the same time. The default is 4.
    pub streaming: u16,
}

impl Default for DeflaterSettings {
    fn default() -> DeflaterSettings {
        DeflaterSettings { level: 1, memory: 8, live: 8, streaming: 4 }
    }
}

/// The deflaters of a loop: they compress messages of all its connections.
///
/// Made when they are first needed: one for each window, [`DeflaterSettings::live`] that keep a
/// context, [`DeflaterSettings::streaming`] for messages in parts. One takes 259 KB with the
/// smallest window, and 388 KB with the largest.
///
/// ```
/// use windlass_websocket::deflate::{
///     DeflaterSettings, Deflaters, Context, InflateCaps, InflaterSettings, Inflaters, Window,
/// };
///
/// let mut deflaters = Deflaters::new(DeflaterSettings::default());
/// let mut payload = Vec::new();
/// deflaters.compress(Context::Fresh(Window::MAX), b"Hello", &mut payload);
/// assert_eq!(payload, [0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00]); // RFC 7692, section 7.2.3.1
///
/// let mut inflaters = Inflaters::new(InflaterSettings::default());
/// let mut text = Vec::new();
/// let caps = InflateCaps::default();
/// inflaters.inflate(Context::Fresh(Window::MAX), &payload, caps, &mut text)?;
/// assert_eq!(text, b"Hello");
/// # Ok::<_, windlass_websocket::deflate::InflateError>(())
/// ```
pub struct Deflaters {
    settings: DeflaterSettings,
    /// For messages without a context, and for those whose context finds no live one.
    fresh: [Option<Deflater>; Window::COUNT],
    live: Vec<LiveDeflater>,
    /// How many messages with a context there were.
    clock: u64,
    stamps: Stamps,
    leases: StreamLeases,
    spare: Vec<StreamingState>,
}

/// A deflater, and whose context it has.
struct LiveDeflater {
    deflater: Deflater,
    window: Window,
    /// Of the history that has the text of its context.
    stamp: u64,
    used: u64,
}

/// A deflater of one window.
pub(super) struct Deflater {
    deflate: Deflate,
    made: Box<[u8]>,
}

impl Deflaters {
    /// No deflater yet.
    pub fn new(settings: DeflaterSettings) -> Deflaters {
        Deflaters {
            settings,
            fresh: Default::default(),
            live: Vec::new(),
            clock: 0,
            stamps: Stamps { next: 0, end: 0 },
            leases: StreamLeases::new(usize::from(settings.streaming)),
            spare: Vec::new(),
        }
    }

    /// Compresses a message, and appends its payload to `out`. The frame has the first reserved bit
    /// set.
    ///
    /// With a history the text joins it. The peer gets such messages in the order in which they
    /// were compressed: one that is not sent breaks all that follow.
    pub fn compress(&mut self, context: Context<'_>, plain: &[u8], out: &mut Vec<u8>) {
        if plain.is_empty() {
            // RFC 7692, section 7.2.3.6. No context changes.
            return out.push(0);
        }
        match context {
            Context::Fresh(window) => {
                let deflater = self.fresh(window);
                deflater.deflate.reset();
                deflater.end(plain, out);
            }
            Context::Kept(history) => {
                let unsent = self.compress_unsent(history, plain, out);
                history.join(plain, unsent);
            }
        }
    }

    /// Compresses a message that may not be sent after all, and appends its payload to `out`. Once
    /// it is sent, its text [joins](History::join) the history. If it is not, nothing has happened,
    /// but that the next message is primed.
    pub fn compress_unsent(
        &mut self,
        history: &mut History,
        plain: &[u8],
        out: &mut Vec<u8>,
    ) -> UnsentMessage {
        if plain.is_empty() {
            out.push(0);
            return UnsentMessage { slot: history.slot, stamp: history.stamp };
        }
        self.clock += 1;
        let at = usize::from(history.slot);
        let live = self.live.get(at).filter(|live| live.stamp == history.stamp);
        let at = if live.is_some() && history.stamp != 0 {
            at
        } else if let Some(at) = self.victim(history.window()) {
            self.live[at].deflater.prime(history);
            at
        } else {
            let deflater = self.fresh(history.window());
            deflater.prime(history);
            deflater.end(plain, out);
            return UnsentMessage { slot: 0, stamp: 0 };
        };
        history.stamp = 0; // the deflater has the context with the message, or none
        let stamp = self.stamps.next();
        let live = &mut self.live[at];
        (live.stamp, live.used) = (stamp, self.clock);
        live.deflater.end(plain, out);
        UnsentMessage { slot: at as u16, stamp }
    }

    fn fresh(&mut self, window: Window) -> &mut Deflater {
        let settings = self.settings;
        self.fresh[window.index()].get_or_insert_with(|| Deflater::new(settings, window))
    }

    /// The place of a live deflater of this window that loses its context. `None`: others are
    /// used more.
    fn victim(&mut self, window: Window) -> Option<usize> {
        let most = usize::from(self.settings.live);
        if self.live.len() < most {
            let deflater = Deflater::new(self.settings, window);
            self.live.push(LiveDeflater { deflater, window, stamp: 0, used: 0 });
            return Some(self.live.len() - 1);
        }
        let longest_unused = |is_wanted: &dyn Fn(&LiveDeflater) -> bool| {
            let all = self.live.iter().enumerate().filter(|(_, live)| is_wanted(live));
            all.min_by_key(|(_, live)| live.used).map(|(at, _)| at)
        };
        if let Some(at) = longest_unused(&|live| live.window == window) {
            return Some(at);
        }
        let patience = PATIENCE * most as u64;
        let at = longest_unused(&|live| self.clock - live.used > patience)?;
        let deflater = Deflater::new(self.settings, window);
        self.live[at] = LiveDeflater { deflater, window, stamp: 0, used: 0 };
        Some(at)
    }

    /// Leases a deflater for one message that comes in parts; `None` if all are leased.
    ///
    /// With a history, no other message of its connection is compressed until this one has gone
    /// [back](Deflaters::put_back).
    pub fn take(&mut self, context: Context<'_>) -> Option<StreamingDeflater> {
        let lease = self.leases.take()?;
        let window = context.window();
        let place = self.spare.iter().position(|state| state.window() == window);
        let mut state = match place {
            Some(at) => self.spare.swap_remove(at),
            None => {
                self.spare.truncate(self.leases.spare());
                StreamingState::new(Deflater::new(self.settings, window), window)
            }
        };
        state.begin(&context);
        Some(StreamingDeflater::new(state, lease))
    }

    /// Takes a deflater back. A message that has ended joins the history that it began with.
    ///
    /// A deflater that is dropped instead can be leased anew, too, but its memory is freed.
    pub fn put_back(&mut self, deflater: StreamingDeflater, history: Option<&mut History>) {
        let state = deflater.into_state();
        if let Some(history) = history {
            state.keep(history);
        }
        if self.spare.len() < self.leases.spare() {
            self.spare.push(state);
        }
    }
}

impl Deflater {
    pub(super) fn new(settings: DeflaterSettings, window: Window) -> Deflater {
        let config = DeflateConfig {
            level: i32::from(settings.level.clamp(1, 9)),
            // Below zero: without head and sum.
            window_bits: -i32::from(window.bits()),
            mem_level: i32::from(settings.memory.clamp(1, 9)),
            ..DeflateConfig::default()
        };
        Deflater { deflate: Deflate::new_with_config(config), made: vec![0; AT_ONCE].into() }
    }

    /// Begins a message that refers to nothing.
    pub(super) fn reset(&mut self) {
        self.deflate.reset();
    }

    /// Begins a message that refers to a history.
    pub(super) fn prime(&mut self, history: &History) {
        self.deflate.reset();
        for part in history.last(history.window().bytes() - UNREACHED) {
            // It fails within a message only.
            let _ = self.deflate.set_dictionary(part);
        }
    }

    /// Compresses the rest of a message, and leaves away what the receiver appends.
    pub(super) fn end(&mut self, plain: &[u8], out: &mut Vec<u8>) {
        let before = out.len();
        self.write(plain, DeflateFlush::SyncFlush, out);
        match out[before..].strip_suffix(&TAIL) {
            Some(rest) => out.truncate(before + rest.len()),
            // Nothing came: all was flushed before. It ends with an empty block.
            None => out.push(0),
        }
    }

    /// Compresses bytes, and appends what there is.
    pub(super) fn write(&mut self, plain: &[u8], flush: DeflateFlush, out: &mut Vec<u8>) {
        let mut rest = plain;
        loop {
            let before = (self.deflate.total_in(), self.deflate.total_out());
            // It fails for a state that cannot be: then nothing comes, and the loop ends.
            let _ = self.deflate.compress(rest, &mut self.made, flush);
            let consumed = (self.deflate.total_in() - before.0) as usize;
            let made = (self.deflate.total_out() - before.1) as usize;
            rest = &rest[consumed..];
            out.extend_from_slice(&self.made[..made]);
            // Room that is left says that nothing waits for room.
            if made < AT_ONCE && rest.is_empty() || consumed + made == 0 {
                break;
            }
        }
    }
}

/// Numbers of contexts. None of them comes twice in a process: a connection that moves to another
/// loop must not find the context of another one there.
struct Stamps {
    next: u64,
    end: u64,
}

impl Stamps {
    fn next(&mut self) -> u64 {
        /// The next block of stamps that no loop has. 0 is no stamp.
        static BLOCKS: AtomicU64 = AtomicU64::new(1);
        const BLOCK: u64 = 1 << 20;
        if self.next == self.end {
            self.next = BLOCKS.fetch_add(1, Ordering::Relaxed) * BLOCK;
            self.end = self.next + BLOCK;
        }
        self.next += 1;
        self.next - 1
    }
}

impl fmt::Debug for Deflaters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deflaters")
            .field("settings", &self.settings)
            .field("live", &self.live.len())
            .field("streaming", &self.leases.leased())
            .finish_non_exhaustive()
    }
}
