//! What takes over a connection behind an upgrade, or behind a `CONNECT`.

use std::any::Any;
use std::borrow::Cow;
use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use windlass::{Buf, Handle};
use windlass_serve::{Cause, Engine, Id, Refusal, Refused};

use super::{Kept, Perform};
use crate::exchange::Slot;
use crate::exchange::program::Answer;
use crate::exchange::raw::{News, Over, Switch};
use crate::message::publication::{Publication, Published};
use crate::message::request::{Asked, Request};
use crate::message::response::Response;
#[cfg(feature = "websocket")]
use crate::remote::Remote;
use crate::topics::TopicCall;
#[cfg(feature = "websocket")]
use crate::websocket::LoopSockets;
use crate::words::error::Error;
use crate::words::status::Status;

/// What takes over a connection that has gone over to another protocol: see [`Request::upgrade`].
///
/// The first callback is `opened`, and the last is `closed` or `detached`. Between them come the
/// bytes of the client, in their order: first those that were read behind the request. Each of them
/// comes once, without a copy but those that were read ahead.
///
/// Such a connection costs 16 bytes, and the value that implements this. [`Limits::keep_alive`] is
/// its idle time, until the program sets [another one](RawConn::set_idle_timeout). A panic in a
/// callback ends the connection.
///
/// ```
/// use windlass::Buf;
/// use windlass_web::App;
/// use windlass_web::upgrade::{Protocol, RawConn};
///
/// struct Echo;
/// impl Protocol<()> for Echo {
///     fn data(&mut self, _: &mut (), c: &mut RawConn<'_, ()>, data: Buf) {
///         if c.write(data).is_err() {
///             c.abort(); // it does not read what it gets
///         }
///     }
/// }
///
/// App::new().get("/echo", |_, q| q.upgrade("echo", Echo));
/// ```
///
/// [`Limits::keep_alive`]: crate::Limits::keep_alive
#[allow(unused_variables)]
pub trait Protocol<S>: 'static {
    /// The connection is the program's: the head of the response is written.
    fn opened(&mut self, state: &mut S, c: &mut RawConn<'_, S>) {}

    /// Bytes have come.
    fn data(&mut self, state: &mut S, c: &mut RawConn<'_, S>, data: Buf);

    /// The client has shut down its output, and may still read. The default closes the connection.
    fn eof(&mut self, state: &mut S, c: &mut RawConn<'_, S>) {
        c.close();
    }

    /// The output was [full](RawConn::is_full), and there is room again.
    fn drained(&mut self, state: &mut S, c: &mut RawConn<'_, S>) {}

    /// The connection has reached a limit of its time: [`Cause::Idle`], or [`Cause::TooSlow`] for
    /// those that the program sets. The default closes the connection.
    fn limit_reached(&mut self, state: &mut S, c: &mut RawConn<'_, S>, cause: Cause) {
        c.close();
    }

    /// Another thread has [told](crate::Remote::tell) the connection a value.
    fn told(&mut self, state: &mut S, c: &mut RawConn<'_, S>, value: Box<dyn Any + Send>) {}

    /// Something was published on a topic that the connection [hears](RawConn::subscribe).
    fn published(&mut self, state: &mut S, c: &mut RawConn<'_, S>, what: &Arc<Published>) {}

    /// Another thread has [woken](crate::Remote::wake) the connection.
    fn wake(&mut self, state: &mut S, c: &mut RawConn<'_, S>) {}

    /// The server shuts down. What is written here is sent. The default closes the connection; one
    /// that stays open ends with the [grace](crate::App::grace).
    fn stopping(&mut self, state: &mut S, c: &mut RawConn<'_, S>) {
        c.close();
    }

    /// The connection has ended.
    fn closed(self: Box<Self>, state: &mut S, cause: Cause) {}

    /// The descriptor is the program's: see [`RawConn::detach`]. The default closes it.
    fn detached(self: Box<Self>, state: &mut S, released: Released) {}
}

/// A connection that has left the server.
#[derive(Debug)]
#[non_exhaustive]
pub struct Released {
    /// The descriptor: non-blocking.
    pub handle: Handle,
    /// The bytes that had come and were not delivered, in their order: also those that were read
    /// behind the request.
    pub undelivered: Vec<Buf>,
    /// Whether the client has shut down its output.
    pub eof: bool,
}

/// A connection that has gone over to another protocol, in a callback of [`Protocol`].
pub struct RawConn<'a, S: 'static> {
    pub(super) engine: &'a mut Engine<Slot<Kept<S>>>,
    pub(super) id: Id,
    /// Whether the program has ended it in this callback.
    ends: bool,
    pub(super) topic_calls: &'a mut VecDeque<TopicCall>,
    #[cfg(feature = "websocket")]
    pub(super) sockets: &'a mut LoopSockets,
    #[cfg(feature = "websocket")]
    pub(super) remote: &'a Remote,
}

impl<S: 'static> RawConn<'_, S> {
    /// The id of the connection: a [`Remote`](crate::Remote::wake) wakes it from other threads.
    pub fn id(&self) -> Id {
        self.id
    }

    /// Sends bytes, without a copy. All writes of a callback leave as one.
    ///
    /// # Errors
    ///
    /// [`Refused`] hands the bytes back: see [`Engine::write`].
    pub fn write(&mut self, data: impl Into<Buf>) -> Result<(), Refused<Buf>> {
        self.engine.write(self.id, data)
    }

    /// Sends a copy of some bytes: for small ones.
    ///
    /// # Errors
    ///
    /// See [`Engine::write_slice`].
    pub fn write_slice(&mut self, bytes: &[u8]) -> Result<(), Refusal> {
        self.engine.write_slice(self.id, bytes)
    }

    /// Whether more output waits than [`Limits::high`](windlass_serve::Limits::high) says. Stop
    /// writing then: [`Protocol::drained`] follows.
    pub fn is_full(&mut self) -> bool {
        self.engine.is_full(self.id)
    }

    /// Stops reading, until [`resume`](RawConn::resume): see [`Engine::pause`]. Another thread lets
    /// a connection go on by [`Remote::wake`](crate::Remote::wake) and [`Protocol::wake`].
    pub fn pause(&mut self) {
        self.engine.pause(self.id);
    }

    /// Reads again.
    pub fn resume(&mut self) {
        self.engine.resume(self.id);
    }

    /// Gives bytes back that the program has read ahead: see [`Engine::unread`].
    ///
    /// # Errors
    ///
    /// [`Refused`] hands the bytes back.
    pub fn unread(&mut self, data: impl Into<Buf>) -> Result<(), Refused<Buf>> {
        self.engine.unread(self.id, data)
    }

    /// Sets how long the connection may be idle: see [`Engine::set_idle_timeout`].
    pub fn set_idle_timeout(&mut self, span: impl Into<Option<Duration>>) {
        self.engine.set_idle_timeout(self.id, span);
    }

    /// Limits the time of what the client sends: see [`Engine::limit`].
    pub fn limit(&mut self, span: impl Into<Option<Duration>>, least_rate: u32) {
        self.engine.limit(self.id, span, least_rate);
    }

    /// Limits a time of the program's own: see [`Engine::time_limit`].
    pub fn time_limit(&mut self, span: impl Into<Option<Duration>>) {
        self.engine.time_limit(self.id, span);
    }

    /// Hears what is [published](crate::Remote::publish) on a topic from now on:
    /// [`Protocol::published`].
    pub fn subscribe(&mut self, topic: impl Into<Arc<str>>) {
        self.topic_calls.push_back(TopicCall::Subscribe(self.id, topic.into()));
    }

    /// Hears it no more.
    pub fn unsubscribe(&mut self, topic: impl Into<Arc<str>>) {
        self.topic_calls.push_back(TopicCall::Unsubscribe(self.id, topic.into()));
    }

    /// Tells something to all that hear a topic, this connection included if it does: see
    /// [`Remote::publish`](crate::Remote::publish).
    pub fn publish(&mut self, topic: impl Into<Arc<str>>, what: impl Into<Published>) {
        let publication = Publication { topic: topic.into(), what: Arc::new(what.into()) };
        self.topic_calls.push_back(TopicCall::Publish(self.id.loop_index(), publication));
    }

    /// Shuts down the output behind what is written.
    pub fn shutdown(&mut self) {
        self.engine.shutdown(self.id);
    }

    /// Closes the connection behind what is written.
    pub fn close(&mut self) {
        self.ends |= self.engine.close(self.id);
    }

    /// Ends the connection at once. The client gets a reset.
    pub fn abort(&mut self) {
        self.ends |= self.engine.abort(self.id);
    }

    /// Hands the descriptor to [`Protocol::detached`] when all output is sent, the head of the
    /// response included, with all bytes that were not delivered: see [`Engine::detach`]. A detach
    /// in [`Protocol::opened`] hands over those that were read behind the request, too.
    ///
    /// # Errors
    ///
    /// [`Refusal::Tls`]: the connection has TLS, whose session does not leave it. See
    /// [`Engine::detach`] for the others.
    pub fn detach(&mut self) -> Result<(), Refusal> {
        self.engine.detach(self.id)?;
        self.ends = true;
        Ok(())
    }
}

impl<S> fmt::Debug for RawConn<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawConn").field("id", &self.id).finish_non_exhaustive()
    }
}

impl<S: 'static> Request<'_, S> {
    /// Goes over to another protocol, by a `101 Switching Protocols`: `raw` takes the connection
    /// over. Return the response; fields that it gets are in the head of the 101.
    ///
    /// The connection goes over behind the whole request, its body included. The bytes that the
    /// client has sent behind it are the first ones that [`Protocol::data`] gets.
    ///
    /// A client that does not offer this protocol, or that speaks HTTP/1.0, gets a 426 that names
    /// it. No protocol is offered otherwise: `h2c` of a client is ignored. On a route that is
    /// [`at_head`](crate::App::at_head), a request with a body gets a 400.
    ///
    /// ```
    /// use windlass::Buf;
    /// use windlass_web::App;
    /// use windlass_web::upgrade::{Protocol, RawConn};
    ///
    /// /// Counts bytes, and says how many there are.
    /// struct Count(u64);
    /// impl Protocol<()> for Count {
    ///     fn data(&mut self, _: &mut (), _: &mut RawConn<'_, ()>, data: Buf) {
    ///         self.0 += data.len() as u64;
    ///     }
    ///     fn eof(&mut self, _: &mut (), c: &mut RawConn<'_, ()>) {
    ///         let _ = c.write(self.0.to_string());
    ///         c.close();
    ///     }
    /// }
    ///
    /// App::new().get("/count", |_, q| q.upgrade("count", Count(0)).header("X-Unit", "byte"));
    /// ```
    pub fn upgrade(
        &mut self,
        protocol: impl Into<Cow<'static, str>>,
        raw: impl Protocol<S>,
    ) -> Response {
        let protocol = protocol.into();
        if !self.arrived().offers(&protocol) {
            let text = format!("this resource needs the protocol {protocol}");
            let error = Error::new(Status::UPGRADE_REQUIRED).text(text);
            return error.header("Upgrade", protocol).into();
        }
        self.take_over(Some(protocol), Box::new(raw))
    }

    /// Makes the connection of a `CONNECT` a tunnel, by a 200: `raw` takes the connection over.
    /// [`App::connect`](crate::App::connect) gets such requests. All else is as for
    /// [`upgrade`](Request::upgrade). A request with another method gets a 400.
    pub fn tunnel(&mut self, raw: impl Protocol<S>) -> Response {
        if self.known_method() != windlass_http1::Method::Connect {
            return Error::new(Status::BAD_REQUEST).text("only CONNECT makes a tunnel").into();
        }
        self.take_over(None, Box::new(raw))
    }

    fn take_over(
        &mut self,
        protocol: Option<Cow<'static, str>>,
        raw: Box<dyn Protocol<S>>,
    ) -> Response {
        if self.has_unread_body() {
            return Error::new(Status::BAD_REQUEST).text("this upgrade takes no body").into();
        }
        self.ask(Asked::Upgrade(protocol, Box::new(raw)))
    }
}

impl<S: 'static> Perform<S> {
    /// The answer of a request whose connection goes over.
    pub(super) fn upgrade(
        &mut self,
        response: Response,
        protocol: Option<Cow<'static, str>>,
        raw: Box<dyn Any>,
    ) -> Answer<Kept<S>> {
        let Ok(raw) = raw.downcast::<Box<dyn Protocol<S>>>() else {
            return Answer::Respond(Status::INTERNAL_SERVER_ERROR.into());
        };
        let (head, raw) = (response.into_parts().0, self.raws.add(*raw));
        Answer::Switch(Box::new(Switch { head, protocol, raw }))
    }

    /// Calls what has taken over a connection. Whether the connection goes on.
    #[inline]
    pub(super) fn tell(
        &mut self,
        engine: &mut Engine<Slot<Kept<S>>>,
        id: Id,
        raw: u32,
        news: News,
    ) -> bool {
        let (Some(raw), state) = (self.raws.get_mut(raw), &mut self.state) else { return false };
        let mut c = RawConn {
            engine,
            id,
            ends: false,
            topic_calls: &mut self.topic_calls,
            #[cfg(feature = "websocket")]
            sockets: &mut self.sockets,
            #[cfg(feature = "websocket")]
            remote: &self.plan.remote,
        };
        match news {
            News::Data(data) => raw.data(state, &mut c, data),
            News::Opened => raw.opened(state, &mut c),
            News::Eof => raw.eof(state, &mut c),
            News::Drained => raw.drained(state, &mut c),
            News::LimitReached(cause) => raw.limit_reached(state, &mut c, cause),
            News::Wake => raw.wake(state, &mut c),
            News::Told(value) => raw.told(state, &mut c, value),
            News::Published(what) => raw.published(state, &mut c, &what),
            News::Stopping => raw.stopping(state, &mut c),
        }
        !c.ends
    }

    /// The same, in a callback that is not the connection's own: a panic ends this connection, and
    /// not what the callback has to do with others.
    pub(super) fn tell_one_of_many(
        &mut self,
        engine: &mut Engine<Slot<Kept<S>>>,
        id: Id,
        raw: u32,
        news: News,
    ) -> bool {
        let told = catch_unwind(AssertUnwindSafe(|| self.tell(engine, id, raw, news)));
        told.unwrap_or_else(|_| {
            self.panics += 1;
            self.panicked.push(raw);
            engine.abort(id);
            false
        })
    }

    pub(super) fn end_of_raw(&mut self, number: u32, over: Over) {
        let Some(raw) = self.raws.remove(number) else { return };
        let panicked = self.panicked.iter().position(|one| *one == number);
        if let Some(at) = panicked {
            self.panicked.swap_remove(at);
        }
        match over {
            Over::Refused => {}
            Over::Closed(_) if panicked.is_some() => raw.closed(&mut self.state, Cause::Panicked),
            Over::Closed(cause) => raw.closed(&mut self.state, cause),
            Over::Detached(handle, undelivered, eof) => {
                raw.detached(&mut self.state, Released { handle, undelivered, eof });
            }
        }
    }
}
