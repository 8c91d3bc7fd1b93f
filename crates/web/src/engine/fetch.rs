//! Requests to other servers.

use super::Engine;
use crate::client::fetch::Fetch;
use crate::client::own::FetchId;
use crate::client::settings::FetchSettings;

impl<S: Default + 'static> Engine<S> {
    /// Sends a request to another server, by the rules of the module [`client`](crate::client). Its
    /// connections are the engine's: [`len`](Engine::len) counts them, and
    /// [`stop`](Engine::stop) ends those without a request.
    /// [`Event::Fetched`](super::Event::Fetched) has the response.
    ///
    /// ```
    /// use windlass_web::Engine;
    /// use windlass_web::client::Fetch;
    /// use windlass_web::engine::{Event, RequestId};
    ///
    /// /// Answers a request with what another server says.
    /// fn take(engine: &mut Engine, waiting: &mut Vec<RequestId>, event: Event<()>) {
    ///     match event {
    ///         Event::Request { id, .. } => {
    ///             waiting.push(id);
    ///             engine.fetch(Fetch::get("http://rates.example/EUR"));
    ///         }
    ///         Event::Fetched { result, .. } => {
    ///             let Some(id) = waiting.pop() else { return };
    ///             let answered = match result {
    ///                 Ok(rate) => engine.respond(id, rate.into_body()),
    ///                 Err(error) => engine.respond(id, windlass_web::Error::from(error)),
    ///             };
    ///             let _ = answered; // the client may have gone
    ///         }
    ///         _ => {}
    ///     }
    /// }
    /// ```
    pub fn fetch(&mut self, fetch: Fetch) -> FetchId {
        FetchId(self.machine.begin_own(&mut self.below, fetch))
    }

    /// Ends a request of [`fetch`](Engine::fetch) before its response is whole, or a handshake of
    /// `open_websocket`. It has no event.
    /// False for a stale id.
    pub fn cancel_fetch(&mut self, id: FetchId) -> bool {
        #[cfg(feature = "websocket")]
        self.queue.forget_handshake(id.0);
        self.machine.cancel_own(&mut self.below, id.0)
    }

    /// Sets how it asks other servers, before the first [`fetch`](Engine::fetch).
    pub fn set_client(&mut self, settings: FetchSettings) {
        self.machine.set_client(settings);
    }
}
