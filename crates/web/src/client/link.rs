//! A connection to another server.

use std::time::Instant;

use windlass_http1::ResponseDecoder;
use windlass_serve::{Engine, Id};

use super::call::Reached;
use super::error::FetchError;
use super::input::Input;

/// The state of a connection of an engine, which can be that of a link.
pub(crate) trait LinkState {
    /// The state of the link with this number.
    fn of_link(number: u32) -> Self;
}

/// A connection, which has one call at a time.
pub(super) struct Link {
    /// `None`: it is over.
    pub(super) id: Option<Id>,
    pub(super) site: u32,
    pub(super) decoder: ResponseDecoder,
    pub(super) input: Input,
    /// Where the last head lies in the input.
    pub(super) head_at: usize,
    /// How many bytes of the input are a part of a body that is to be decompressed.
    #[cfg(feature = "deflate")]
    pub(super) coded: usize,
    /// The place of its call.
    pub(super) call: Option<u32>,
    /// How many responses it has had.
    pub(super) served: u32,
    /// Since when it has no call.
    pub(super) idle_since: Instant,
    /// Whether it is connected.
    pub(super) is_open: bool,
    /// Whether a byte of this response has come.
    pub(super) has_heard: bool,
    /// Whether the connection is open for a further request behind this response.
    pub(super) keeps: bool,
    /// Whether the end of its connection is the end of the response.
    pub(super) is_at_end: bool,
    /// Whether its output has drained, or its source was woken, since the last step.
    pub(super) has_drained: bool,
    /// Whether its caller does not want to read.
    pub(super) is_paused: bool,
    /// Whether it is full, and read all the same.
    pub(super) hears: bool,
    /// Whether it is a tunnel: its bytes are no responses any more.
    pub(super) is_tunnel: bool,
    /// Whether the time of its call is limited.
    pub(super) is_limited: bool,
    /// Whether it closes, and counts no more.
    pub(super) is_leaving: bool,
    /// Whether bytes are charged to it.
    pub(super) is_charged: bool,
    /// Why its call has failed.
    pub(super) failed: Option<FetchError>,
}

impl Link {
    pub(super) fn new(id: Id, site: u32, now: Instant) -> Link {
        Link {
            id: Some(id),
            site,
            decoder: ResponseDecoder::new(),
            input: Input::default(),
            head_at: 0,
            #[cfg(feature = "deflate")]
            coded: 0,
            call: None,
            served: 0,
            idle_since: now,
            is_open: false,
            has_heard: false,
            keeps: false,
            is_at_end: false,
            has_drained: false,
            is_paused: false,
            hears: false,
            is_tunnel: false,
            is_limited: false,
            is_leaving: false,
            is_charged: false,
            failed: None,
        }
    }

    /// How far its call has come.
    pub(super) fn reached(&self) -> Reached {
        match () {
            () if !self.is_open => Reached::Nothing,
            () if self.served > 0 && !self.has_heard => Reached::KeptLink,
            () => Reached::Server,
        }
    }

    /// Whether nothing has gone wrong, and a further request may follow.
    pub(super) fn can_go_on(&self) -> bool {
        self.keeps && self.input.is_empty() && self.id.is_some() && !self.is_at_end
    }

    /// Whether its server has not taken all of the request: it may never do so, if it has responded
    /// already.
    pub(super) fn is_sending<S>(&self, engine: &mut Engine<S>) -> bool {
        self.id.is_some_and(|id| engine.waiting(id) > 0)
    }

    /// Reads a link that is full: its server may respond before it has read all of the request, or
    /// ever. Call it where a link may have become full, or is so no more.
    pub(super) fn hear<S>(&mut self, engine: &mut Engine<S>) {
        let Some(id) = self.id else { return };
        let is_full = engine.is_full(id);
        if self.hears != is_full {
            engine.read_when_full(id, is_full);
            self.hears = is_full;
        }
    }

    pub(super) fn write<S>(&mut self, engine: &mut Engine<S>, bytes: &[u8]) {
        let Some(id) = self.id.filter(|_| !bytes.is_empty()) else { return };
        if engine.write_slice(id, bytes).is_err() {
            engine.abort(id); // the end follows as an event
        }
    }

    /// Charges what its call holds to the connection.
    pub(super) fn charge<S>(&mut self, engine: &mut Engine<S>, bytes: usize) {
        let Some(id) = self.id.filter(|_| bytes > 0 || self.is_charged) else { return };
        self.is_charged = bytes > 0;
        engine.charge(id, bytes);
    }
}
