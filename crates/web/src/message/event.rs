//! Server-Sent Events: a response without an end, which tells what happens.
//!
//! The format is that of the [HTML
//! standard](https://html.spec.whatwg.org/multipage/server-sent-events.html).

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use windlass::Buf;

use crate::message::head::Head;
use crate::message::response::{Body, Response};
use crate::message::source::{BodySource, Flow, Part};
use crate::message::subscription::Subscription;
use crate::words::status::Status;

/// An event. A text converts into one.
///
/// ```
/// use windlass_web::events::ServerEvent;
///
/// let event = ServerEvent::data("17.50\n17.60").name("price").id("42");
/// assert_eq!(event.to_string(), "event: price\nid: 42\ndata: 17.50\ndata: 17.60\n\n");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerEvent {
    fields: String,
    text: String,
}

impl ServerEvent {
    /// An event with this text, which may have several lines.
    pub fn data(text: impl AsRef<str>) -> ServerEvent {
        ServerEvent { fields: String::new(), text: text.as_ref().to_owned() }
    }

    #[cfg(feature = "websocket")]
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Sets its name, for `addEventListener` of the browser. Without one it is a `message`. Ends of
    /// lines are left out.
    pub fn name(mut self, name: &str) -> ServerEvent {
        self.field("event", name);
        self
    }

    /// Sets its id. A browser that connects again says the last one that it has heard, as the field
    /// `Last-Event-ID` of its request. Ends of lines and NUL are left out.
    pub fn id(mut self, id: &str) -> ServerEvent {
        self.field("id", id);
        self
    }

    fn field(&mut self, name: &str, value: &str) {
        self.fields.push_str(name);
        self.fields.push_str(": ");
        // A line more would be another field.
        self.fields.extend(value.chars().filter(|c| !['\n', '\r', '\0'].contains(c)));
        self.fields.push('\n');
    }
}

/// As it is sent.
impl std::fmt::Display for ServerEvent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.fields)?;
        // A line ends with CR LF, LF or CR.
        for line in self.text.replace("\r\n", "\n").split(['\n', '\r']) {
            writeln!(f, "data: {line}")?;
        }
        f.write_str("\n")
    }
}

impl From<&str> for ServerEvent {
    fn from(text: &str) -> ServerEvent {
        ServerEvent::data(text)
    }
}

impl From<String> for ServerEvent {
    fn from(text: String) -> ServerEvent {
        ServerEvent::data(text)
    }
}

/// A response that tells events until its client goes: [`Response::events`] makes it.
#[derive(Debug)]
#[must_use = "it is a response"]
pub struct Events {
    head: Head,
    subscription: Subscription,
    first: String,
}

impl Events {
    /// Hears what is [published](crate::Remote::publish) on a topic from now on.
    pub fn subscribe(mut self, topic: impl Into<Arc<str>>) -> Events {
        self.subscription.topics.push(topic.into());
        self
    }

    /// Tells an event at the beginning: the present state, for example, or what the client has
    /// missed since its `Last-Event-ID`. Nothing that is published is lost in between: the
    /// subscriptions begin with the response, on the loop of the handler.
    pub fn first(mut self, event: impl Into<ServerEvent>) -> Events {
        self.first.push_str(&event.into().to_string());
        self
    }

    /// Tells the browser how long to wait before it connects again. Browsers have some seconds as
    /// their default.
    pub fn retry(mut self, span: Duration) -> Events {
        self.first.push_str(&format!("retry: {}\n\n", span.as_millis()));
        self
    }

    /// Sets how long nothing may be sent before a comment goes out. So clients that have vanished
    /// are noticed, and nothing in between ends the connection. It is late by at most a sixteenth,
    /// or by 100 ms. Default 15 s.
    pub fn keep_alive(mut self, span: Duration) -> Events {
        self.subscription.keep_alive = span;
        self
    }

    /// A client that does not keep up loses events, which
    /// [`Totals::lost_events`](crate::report::Totals::lost_events) counts. By default its
    /// connection ends: a browser connects again, and says which event it has heard last.
    ///
    /// A client does not keep up while more than
    /// [`Limits::high`](windlass_serve::Limits::high) bytes wait for it.
    pub fn lossy(mut self) -> Events {
        self.subscription.is_lossy = true;
        self
    }

    /// Adds a field to the head.
    pub fn header(
        mut self,
        name: impl Into<Cow<'static, str>>,
        value: impl Into<Cow<'static, str>>,
    ) -> Events {
        self.head.add(name, value);
        self
    }
}

impl Response {
    /// Server-Sent Events: `text/event-stream`, without an end. It tells what is
    /// [published](crate::Remote::publish) on its topics, from any thread and on all loops.
    ///
    /// An event is put into its form once, and all connections share its bytes. A client that does
    /// not keep up holds up no other: see [`Events::lossy`]. The response ends when its client has
    /// ended its side, and when the server shuts down.
    ///
    /// Over HTTP/1.1 a browser has at most six connections to a host, those of all tabs together.
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass_web::events::ServerEvent;
    /// use windlass_web::{App, Response};
    ///
    /// let app = App::new().get("/prices", |_, q| {
    ///     let missed = q.header("Last-Event-ID").map(|id| format!("what came behind {id}"));
    ///     let events = Response::events().subscribe("prices").retry(Duration::from_secs(2));
    ///     events.first(missed.unwrap_or("all prices".into()))
    /// });
    /// let running = app.listen("127.0.0.1:0")?.start()?;
    /// // On any thread:
    /// running.remote().publish("prices", ServerEvent::data("17.50").id("1"));
    /// running.shutdown()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn events() -> Events {
        let mut head = Head::new(Status::OK, Some("text/event-stream"));
        head.add("Cache-Control", "no-cache");
        let keep_alive = Duration::from_secs(15);
        let subscription = Subscription { topics: Vec::new(), keep_alive, is_lossy: false };
        Events { head, subscription, first: String::new() }
    }
}

impl From<Events> for Response {
    fn from(events: Events) -> Response {
        let source = Box::new(Opening(events.first));
        Response::with_head(events.head, Body::Events(source, Box::new(events.subscription)))
    }
}

/// What a response tells at its beginning.
struct Opening(String);

impl BodySource for Opening {
    fn next(&mut self, part: &mut Part<'_>) -> Flow {
        part.write(std::mem::take(&mut self.0).as_bytes());
        if part.has_peer_ended() { Flow::End } else { Flow::Wait }
    }
}

/// The bytes of an event, which all its subscribers share.
#[derive(Clone)]
pub(crate) struct EventBytes {
    /// The chunk that has it.
    chunk: Arc<[u8]>,
    /// Where it is in there.
    plain: Range<usize>,
}

impl EventBytes {
    pub(crate) fn new(text: &str) -> EventBytes {
        let mut chunk = format!("{:x}\r\n", text.len()).into_bytes();
        let start = chunk.len();
        chunk.extend_from_slice(text.as_bytes());
        let plain = start..chunk.len();
        chunk.extend_from_slice(b"\r\n");
        EventBytes { chunk: chunk.into(), plain }
    }

    /// The bytes of the event.
    pub(crate) fn plain(&self) -> &[u8] {
        &self.chunk[self.plain.clone()]
    }

    /// The event as a chunk, or plain, without a copy.
    pub(crate) fn to_buf(&self, is_chunked: bool) -> Buf {
        let chunk = Buf::from(Arc::clone(&self.chunk));
        if is_chunked { chunk } else { chunk.slice(self.plain.clone()) }
    }
}
