//! What is told to all that hear a topic.

use std::fmt;
use std::sync::{Arc, OnceLock};

#[cfg(feature = "websocket")]
use windlass_websocket::{FrameHead, Kind};

use super::event::{EventBytes, ServerEvent};
use crate::remote::Remote;

/// What is told to all that hear a topic: an event, a text, or bytes.
///
/// A response of Server-Sent Events tells an event, or a text as the data of one; bytes are not for
/// it. A WebSocket gets a text, which is the data of an event, or the bytes. Each form is made
/// once, and all connections share it.
pub struct Published {
    what: What,
    event: OnceLock<EventBytes>,
    #[cfg(feature = "websocket")]
    frame: OnceLock<Arc<[u8]>>,
    /// The frame with its message compressed, for the windows of 9 to 15 bits.
    #[cfg(all(feature = "websocket", feature = "deflate"))]
    compressed: [OnceLock<Option<Arc<[u8]>>>; 7],
}

enum What {
    Event(ServerEvent),
    #[cfg_attr(not(feature = "websocket"), allow(dead_code))]
    Bytes(Vec<u8>),
}

impl Published {
    fn new(what: What) -> Published {
        Published {
            what,
            event: OnceLock::new(),
            #[cfg(feature = "websocket")]
            frame: OnceLock::new(),
            #[cfg(all(feature = "websocket", feature = "deflate"))]
            compressed: Default::default(),
        }
    }

    /// As an event; `None` for bytes.
    pub(crate) fn event(&self) -> Option<&EventBytes> {
        let What::Event(event) = &self.what else { return None };
        Some(self.event.get_or_init(|| EventBytes::new(&event.to_string())))
    }

    /// As a message: what it is, and its bytes.
    #[cfg(feature = "websocket")]
    pub(crate) fn message(&self) -> (Kind, &[u8]) {
        match &self.what {
            What::Event(event) => (Kind::Text, event.text().as_bytes()),
            What::Bytes(bytes) => (Kind::Binary, bytes),
        }
    }

    /// As the one frame of a message, compressed with a window of 9 to 15 bits; or as it is, and
    /// false, if it is no shorter so.
    #[cfg(all(feature = "websocket", feature = "deflate"))]
    pub(crate) fn compressed_frame(
        &self,
        window: u8,
        make: impl FnOnce() -> Option<Arc<[u8]>>,
    ) -> (Arc<[u8]>, bool) {
        let compressed = self.compressed[usize::from(window) - 9].get_or_init(make);
        (Arc::clone(compressed.as_ref().unwrap_or_else(|| self.frame())), compressed.is_some())
    }

    /// As the one frame of a message.
    #[cfg(feature = "websocket")]
    pub(crate) fn frame(&self) -> &Arc<[u8]> {
        self.frame.get_or_init(|| {
            let (kind, bytes) = self.message();
            let mut frame = Vec::with_capacity(FrameHead::MOST + bytes.len());
            FrameHead::new(kind.into(), bytes.len() as u64).put(&mut frame);
            frame.extend_from_slice(bytes);
            frame.into()
        })
    }
}

impl fmt::Debug for Published {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.what {
            What::Event(event) => f.debug_tuple("Published").field(event).finish(),
            What::Bytes(bytes) => f.debug_tuple("Published").field(&bytes.len()).finish(),
        }
    }
}

impl From<ServerEvent> for Published {
    fn from(event: ServerEvent) -> Published {
        Published::new(What::Event(event))
    }
}

impl From<&str> for Published {
    fn from(text: &str) -> Published {
        ServerEvent::data(text).into()
    }
}

impl From<String> for Published {
    fn from(text: String) -> Published {
        ServerEvent::data(text).into()
    }
}

impl From<Vec<u8>> for Published {
    fn from(bytes: Vec<u8>) -> Published {
        Published::new(What::Bytes(bytes))
    }
}

/// Something on its way to the connections of a loop that hear a topic.
#[derive(Clone)]
pub(crate) struct Publication {
    pub(crate) topic: Arc<str>,
    pub(crate) what: Arc<Published>,
}

impl Remote {
    /// Sends something to all subscribers of a topic, on all loops: responses of
    /// [Server-Sent Events](crate::Response::events), and WebSockets. Each loop does so in its next
    /// turn, in the order of the calls of a thread. This call does not wait.
    ///
    /// False if a loop has no memory for it, or is over: its subscribers do not get it. A topic
    /// without subscribers costs nothing.
    pub fn publish(&self, topic: impl Into<Arc<str>>, what: impl Into<Published>) -> bool {
        if !self.has_subscribers() {
            return true;
        }
        let publication = Publication { topic: topic.into(), what: Arc::new(what.into()) };
        self.post_all(None, &publication)
    }

    /// Tells it to all loops but this one, which tells its own subscribers at once.
    pub(crate) fn publish_elsewhere(&self, own: usize, publication: &Publication) {
        self.post_all(Some(own), publication);
    }
}
