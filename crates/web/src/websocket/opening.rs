//! The handshake of a client.

use std::sync::Arc;

use windlass_http1::{EncodeError, ResponseHead};
use windlass_websocket::Role;
use windlass_websocket::handshake::{self, ResponseError};

use super::mask_keys::MaskKeys;
use super::session::Session;
use super::settings::{SocketSettings, WebSocketSettings};
use crate::client::error::FetchError;
use crate::client::fetch::{Fetch, FetchBody};
use crate::client::fetched::Fetched;

/// A handshake whose response has not come.
pub(crate) struct ClientHandshake {
    key: String,
    settings: Arc<SocketSettings>,
}

impl ClientHandshake {
    /// Makes a request one for a WebSocket.
    pub(crate) fn new(
        fetch: &mut Fetch,
        settings: &WebSocketSettings,
        keys: &mut MaskKeys,
    ) -> ClientHandshake {
        let opening = ClientHandshake {
            key: handshake::key(keys.of_handshake()),
            settings: Arc::clone(settings.settings()),
        };
        let broken = fetch.broken.take();
        fetch.broken = broken.or_else(|| opening.fault(fetch));
        // The schemes name the same places (RFC 6455, section 3).
        for (scheme, same) in [("ws:", "http:"), ("wss:", "https:")] {
            if fetch.url.get(..scheme.len()).is_some_and(|one| one.eq_ignore_ascii_case(scheme)) {
                fetch.url.replace_range(..scheme.len(), same);
            }
        }
        (fetch.offers, fetch.redirects, fetch.decodes) = (Some("websocket"), 0, false);
        let fields = &mut fetch.fields;
        fields.push(("Sec-WebSocket-Version".into(), handshake::VERSION.into()));
        fields.push(("Sec-WebSocket-Key".into(), opening.key.clone().into()));
        let protocols = &opening.settings.protocols;
        if !protocols.is_empty() {
            fields.push(("Sec-WebSocket-Protocol".into(), protocols.join(", ").into()));
        }
        #[cfg(feature = "deflate")]
        if let Some(want) = opening.settings.deflate {
            fields.push(("Sec-WebSocket-Extensions".into(), want.offer().into()));
        }
        opening
    }

    /// Why a request cannot be sent.
    fn fault(&self, fetch: &Fetch) -> Option<FetchError> {
        if fetch.method != "GET" || !matches!(fetch.body, FetchBody::Nothing) {
            let why = "a WebSocket begins with a GET without a body";
            return Some(FetchError::Url { url: fetch.url.clone(), why });
        }
        let is_own = |name: &str| {
            name.get(..14).is_some_and(|start| start.eq_ignore_ascii_case("sec-websocket-"))
        };
        if fetch.fields.iter().any(|(name, _)| is_own(name)) {
            return Some(FetchError::Request(EncodeError::Framing));
        }
        let is_token = |name: &str| handshake::protocols([name]).eq([name]);
        let all_tokens = self.settings.protocols.iter().all(|name| is_token(name));
        (!all_tokens).then_some(FetchError::Request(EncodeError::Value))
    }

    /// The connection behind a 101.
    pub(crate) fn check(self, head: &ResponseHead, bytes: &[u8]) -> Result<Session, ResponseError> {
        handshake::check_response(&self.key, |name| head.get_all(bytes, name))?;
        let protocols: Vec<&str> = self.settings.protocols.iter().map(|name| &**name).collect();
        let named = head.get_all(bytes, "Sec-WebSocket-Protocol");
        let protocol = handshake::check_protocol(named, &protocols)?;
        let at = protocol.and_then(|name| protocols.iter().position(|other| *other == name));
        let protocol = at.map_or(0, |at| at as u16 + 1);
        let extensions = head.get_all(bytes, "Sec-WebSocket-Extensions");
        #[cfg(feature = "deflate")]
        let agreed = handshake::check_extensions(self.settings.deflate, extensions)?;
        #[cfg(not(feature = "deflate"))]
        handshake::check_extensions(None, extensions)?;
        let session = Session::new(Role::Client, self.settings, protocol);
        #[cfg(feature = "deflate")]
        let session = match agreed {
            Some(agreed) => session.deflate(agreed),
            None => session,
        };
        Ok(session)
    }
}

/// Why there is no connection: another response has come than a 101, or none.
pub(crate) fn refusal(result: Result<Fetched, FetchError>) -> FetchError {
    match result {
        Ok(response) => FetchError::NoWebSocket {
            status: response.status(),
            location: response.header("location").map(str::to_owned),
        },
        Err(error) => error,
    }
}
