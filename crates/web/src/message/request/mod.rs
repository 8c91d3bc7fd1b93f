//! A request, as a handler gets it.

#[cfg(feature = "multipart")]
pub(crate) mod parts;
pub(crate) mod receive;

use std::any::Any;
use std::borrow::Cow;
use std::cell::OnceCell;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use windlass::Message;
use windlass_http1::{Method, Version};
use windlass_serve::Id;
use windlass_serve::report::Counters;

use crate::client::error::FetchError;
use crate::client::fetch::Fetch;
use crate::client::fetched::Fetched;
use crate::message::arrived::{Arrived, Trailers};
#[cfg(feature = "multipart")]
use crate::message::form::{FormDecoder, Multipart};
use crate::message::forwarded;
use crate::message::gone::{GoneFlag, Presence};
use crate::message::query::{Pairs, decode};
use crate::message::response::Response;
use crate::message::save::{Save, Saved};
use crate::proxy::Forward;
use crate::remote::Remote;
use crate::words::error::Error;
use crate::words::status::Status;
use receive::Receive;

/// A job for another thread, and its value.
pub(crate) type Job = Box<dyn FnOnce() -> Box<dyn Any + Send> + Send>;

/// What follows a job, on the loop.
pub(crate) type Then<S> = Box<dyn FnOnce(&mut S, Message) -> Response>;

/// What follows a body, on the loop.
pub(crate) type BehindBody<S> = Box<dyn FnOnce(&mut S, &mut Request<'_, S>) -> Response>;

/// What follows a request to another server, on the loop.
pub(crate) type BehindFetch<S> = Box<dyn FnOnce(&mut S, Result<Fetched, FetchError>) -> Response>;

/// What follows a body that was saved, on the loop.
pub(crate) type BehindSave<S> = Box<dyn FnOnce(&mut S, Result<Saved, Error>) -> Response>;

/// What a request has asked for, in the place of a decided response.
pub(crate) enum Asked<S> {
    Job(Job, Then<S>),
    Fetch(Box<Fetch>, BehindFetch<S>),
    Forward(Forward),
    Collect(u64, BehindBody<S>),
    Receive(Box<dyn Receive<S>>),
    Save(Box<(PathBuf, Save)>, BehindSave<S>),
    /// A form, what decodes it, and the limit of its bytes.
    #[cfg(feature = "multipart")]
    Parts(Option<u64>, Box<FormDecoder>, Box<dyn parts::ReceiveParts<S>>),
    /// Another protocol, and what takes over; a tunnel, if there is no protocol.
    Upgrade(Option<Cow<'static, str>>, Box<dyn Any>),
}

impl<S> Asked<S> {
    /// Whether it needs a body that has not come.
    pub(crate) fn is_for_body(&self) -> bool {
        match self {
            Asked::Collect(..) | Asked::Receive(_) | Asked::Save(..) => true,
            #[cfg(feature = "multipart")]
            Asked::Parts(..) => true,
            _ => false,
        }
    }
}

/// A request, as a handler gets it.
///
/// The body is there, unless the route is [`at_head`](crate::App::at_head).
pub struct Request<'a, S = ()> {
    arrived: Arrived<'a>,
    remote: &'a Remote,
    route: &'a str,
    params: Option<&'a matchit::Params<'a, 'a>>,
    body: Option<&'a [u8]>,
    /// The fields behind a body that has been waited for.
    trailers: Option<&'a Trailers>,
    decoded: OnceCell<Vec<(&'a str, Cow<'a, str>)>>,
    pairs: OnceCell<Pairs<'a>>,
    /// What tells other threads whether its client is there, if one asks.
    presence: OnceCell<Presence>,
    /// What was asked for last, and the number of its response.
    asked: Option<(u32, Asked<S>)>,
    count: u32,
}

impl<'a, S: 'static> Request<'a, S> {
    pub(crate) fn new(
        arrived: Arrived<'a>,
        remote: &'a Remote,
        route: &'a str,
        params: Option<&'a matchit::Params<'a, 'a>>,
    ) -> Request<'a, S> {
        Request {
            arrived,
            remote,
            route,
            params,
            body: None,
            trailers: None,
            decoded: OnceCell::new(),
            pairs: OnceCell::new(),
            presence: OnceCell::new(),
            asked: None,
            count: 0,
        }
    }

    pub(crate) fn set_body(&mut self, body: Option<&'a [u8]>) {
        self.body = body;
    }

    pub(crate) fn set_trailers(&mut self, trailers: Option<&'a Trailers>) {
        self.trailers = trailers;
    }

    /// The body, if it has come, and is not read by the program itself.
    pub(crate) fn collected(&self) -> Option<&'a [u8]> {
        self.body
    }

    /// Whether the program has the body, or has had it.
    pub(crate) fn has_come(&self) -> bool {
        self.body.is_some() || self.trailers.is_some()
    }

    pub(crate) fn take_presence(&mut self) -> Option<Presence> {
        self.presence.take()
    }

    pub(crate) fn take_asked(&mut self) -> Option<(u32, Asked<S>)> {
        self.asked.take()
    }

    /// The method, as it came: `GET`, for example. Methods are case-sensitive.
    pub fn method(&self) -> &'a str {
        self.arrived.head.method(self.arrived.bytes)
    }

    /// The method as a value to match; [`Method::Other`] if it is none of the usual ones.
    pub fn known_method(&self) -> Method {
        self.arrived.head.kind()
    }

    /// The version of HTTP.
    pub fn version(&self) -> Version {
        self.arrived.head.version()
    }

    /// The path, as it came: percent-encoded, without the query.
    pub fn path(&self) -> &'a str {
        self.arrived.head.path(self.arrived.bytes)
    }

    /// The target, as it came: the path with the query, for most requests.
    pub fn target(&self) -> &'a str {
        self.arrived.head.target(self.arrived.bytes)
    }

    /// The host and the port that the client means. HTTP/1.0 may have none.
    pub fn host(&self) -> Option<&'a str> {
        self.arrived.head.authority(self.arrived.bytes)
    }

    /// The pattern of the route, as the program has it: `/notes/{id}`.
    pub fn route(&self) -> &'a str {
        self.route
    }

    /// A part of the path, by its name in the route; empty if the route has no such name. It has no
    /// percent-encoding any more: `%2F` is a slash. Bytes that are no UTF-8 are U+FFFD.
    pub fn param(&self, name: &str) -> &str {
        let all = self.decoded.get_or_init(|| {
            self.params
                .iter()
                .flat_map(|all| all.iter())
                .map(|(name, value)| (name, decode(value)))
                .collect()
        });
        all.iter().find(|pair| pair.0 == name).map_or("", |(_, value)| value)
    }

    /// Where the part of the path with this name begins, which is its rest.
    pub(crate) fn rest_at(&self, name: &str) -> usize {
        let rest = self.params.and_then(|all| all.get(name)).map_or(0, str::len);
        self.path().len() - rest
    }

    /// A [part of the path](Request::param) as a number or another type.
    ///
    /// # Errors
    ///
    /// 404, because there is nothing at a path with such a part.
    pub fn parse<T: FromStr>(&self, name: &str) -> Result<T, Error> {
        self.param(name).parse().map_err(|_| Error::new(Status::NOT_FOUND))
    }

    /// The first value of the query with this name. It has no percent-encoding any more, and `+` is
    /// a space. Bytes that are no UTF-8 are U+FFFD.
    pub fn query(&self, name: &str) -> Option<&str> {
        self.query_pairs().get(name)
    }

    /// All names and values of the query, decoded.
    pub fn query_pairs(&self) -> &Pairs<'a> {
        self.pairs.get_or_init(|| Pairs::parse(self.query_text().unwrap_or("").as_bytes()))
    }

    /// What stands behind the `?`, as it came.
    pub fn query_text(&self) -> Option<&'a str> {
        self.arrived.head.query(self.arrived.bytes)
    }

    /// The value of the first field with this name, in any case; `None`, too, if it is no UTF-8.
    pub fn header(&self, name: &str) -> Option<&str> {
        std::str::from_utf8(self.header_bytes(name)?).ok()
    }

    /// The value of the first field with this name, in any case.
    pub fn header_bytes(&self, name: &str) -> Option<&[u8]> {
        // A search for several calls would need a table: heads are short.
        let is = |field: &(&str, &'a [u8])| field.0.eq_ignore_ascii_case(name);
        self.headers().find(is).map(|(_, value)| value)
    }

    /// Names and values of the fields, in their order. Values may have bytes above 127.
    pub fn headers(&self) -> impl Iterator<Item = (&'a str, &'a [u8])> + use<'a, S> {
        self.arrived.head.fields(self.arrived.bytes)
    }

    /// The body.
    ///
    /// # Errors
    ///
    /// 500: the route is [`at_head`](crate::App::at_head), so that the body has not come.
    pub fn body(&self) -> Result<&'a [u8], Error> {
        const LATER: &str = "the handler of a route that is `at_head` has no body";
        self.body.ok_or_else(|| Error::new(Status::INTERNAL_SERVER_ERROR).because(LATER))
    }

    /// The value of the first [trailer](Request::trailers) with this name, in any case; `None`,
    /// too, if it is no UTF-8.
    pub fn trailer(&self, name: &str) -> Option<&str> {
        let found = self.trailers().find(|(other, _)| other.eq_ignore_ascii_case(name));
        std::str::from_utf8(found?.1).ok()
    }

    /// Names and values of the fields behind a chunked body, in their order: a checksum of it, for
    /// example. There are none before the body has come, and most clients send none. Fields that
    /// frame or route a request are no trailers: a client that sends them gets a 400.
    pub fn trailers(&self) -> impl Iterator<Item = (&'a str, &'a [u8])> + use<'a, S> {
        let all = self.trailers.map_or(&[][..], |all| all);
        all.iter().map(|(name, value)| (&**name, &**value))
    }

    /// The body as a text.
    ///
    /// # Errors
    ///
    /// 400: it is no UTF-8. Those of [`body`](Request::body).
    pub fn text(&self) -> Result<&'a str, Error> {
        let no_text =
            |error| Error::new(Status::BAD_REQUEST).text("the body is no UTF-8").because(error);
        std::str::from_utf8(self.body()?).map_err(no_text)
    }

    /// The body as JSON.
    ///
    /// # Errors
    ///
    /// - 415: the `Content-Type` is there, and is neither `application/json` nor ends with `+json`.
    /// - 400: the body is no JSON, or not of this type. The client gets the place.
    /// - Those of [`body`](Request::body).
    #[cfg(feature = "json")]
    pub fn json<T: serde::de::DeserializeOwned>(&self) -> Result<T, Error> {
        if self.header_bytes("content-type").is_some_and(|kind| !is_json(kind)) {
            return Err(Error::new(Status::UNSUPPORTED_MEDIA_TYPE).text("the body must be JSON"));
        }
        serde_json::from_slice(self.body()?).map_err(|error| {
            Error::new(Status::BAD_REQUEST)
                .text(format!("the body is wrong: {error}"))
                .because(error)
        })
    }

    /// The names and values of a form: a body of `application/x-www-form-urlencoded`.
    ///
    /// # Errors
    ///
    /// - 415: the `Content-Type` is another one.
    /// - Those of [`body`](Request::body).
    pub fn form(&self) -> Result<Pairs<'a>, Error> {
        const FORM: &[u8] = b"application/x-www-form-urlencoded";
        if !self
            .header_bytes("content-type")
            .is_some_and(|kind| essence(kind).eq_ignore_ascii_case(FORM))
        {
            return Err(Error::new(Status::UNSUPPORTED_MEDIA_TYPE).text("the body must be a form"));
        }
        Ok(Pairs::parse(self.body()?))
    }

    /// The address of the client; `None` if it has no internet address. Behind a proxy that
    /// [`Limits::trust`](crate::Limits::trust) names, it is what the proxy says.
    pub fn client(&self) -> Option<IpAddr> {
        forwarded::client(self.arrived).ip
    }

    /// Whether the client has used TLS: to this server, or to the first of the proxies that
    /// [`Limits::trust`](crate::Limits::trust) names.
    pub fn is_secure(&self) -> bool {
        forwarded::client(self.arrived).is_secure
    }

    /// The address and port at the other end of the connection: those of the proxy, if there is
    /// one. `None` if it has no internet address. [`client`](Request::client) is who has asked.
    pub fn peer(&self) -> Option<SocketAddr> {
        self.arrived.from.peer
    }

    /// Whether the connection has TLS.
    pub fn is_tls(&self) -> bool {
        self.arrived.from.is_tls
    }

    /// The session of TLS: the version, the name that the client has asked for, its certificate.
    /// `None` for a plain connection.
    ///
    /// ```
    /// use windlass_web::{App, Status};
    ///
    /// // Who it is, by a certificate that the server has checked: see
    /// // `TlsBuilder::require_client_certificates`.
    /// let app = App::new().get("/me", |_, q| {
    ///     let certificate = q.tls().and_then(|tls| tls.peer_certificate_info());
    ///     certificate.map(|who| who.to_string()).ok_or(Status::FORBIDDEN)
    /// });
    /// # let _ = app;
    /// ```
    #[cfg(feature = "tls")]
    pub fn tls(&self) -> Option<&'a windlass_serve::tls::Session> {
        self.arrived.from.engine.tls(self.arrived.from.id)
    }

    /// The counts of the loop's connections: for metrics.
    pub fn counters(&self) -> &'a Counters {
        self.arrived.from.engine.counters()
    }

    /// Whether the server shuts down, or will after its [delay](crate::App::drain_delay): for a
    /// check of its health.
    pub fn is_draining(&self) -> bool {
        self.arrived.from.is_leaving
    }

    /// Reaches all loops of the server: to publish an event, for example.
    ///
    /// ```
    /// use windlass_web::{App, Error, Response};
    ///
    /// let app = App::new()
    ///     .get("/chat", |_, _| Response::events().subscribe("chat"))
    ///     .post("/chat", |_, q| {
    ///         q.remote().publish("chat", q.text()?);
    ///         Ok::<_, Error>(())
    ///     });
    /// # let _ = app;
    /// ```
    pub fn remote(&self) -> &'a Remote {
        self.remote
    }

    /// Tells any thread whether anybody still waits for the response: so that long work can stop. A
    /// request that does not ask pays nothing. [`Later`](crate::answers::Later) and
    /// [`Writer`](crate::answers::Writer) tell it themselves.
    ///
    /// Behind a response that is whole at once it is gone, and behind the
    /// [view](crate::engine::OwnedRequest::view) of a request that an engine has told.
    ///
    /// ```
    /// use windlass_web::App;
    ///
    /// let app = App::new().get("/primes", |_, q| {
    ///     let gone = q.gone();
    ///     let primes = move || {
    ///         let is_prime = |n: &u32| (2..*n).all(|d| n % d != 0);
    ///         (2..10_000).take_while(|_| !gone.is_gone()).filter(is_prime).count()
    ///     };
    ///     q.blocking(primes, |_, count| count.to_string())
    /// });
    /// # let answer = app.call(windlass_web::test::get("/primes"));
    /// # assert_eq!(answer.text(), "1229");
    /// ```
    pub fn gone(&self) -> GoneFlag {
        self.presence.get_or_init(Presence::default).gone()
    }

    /// The id of the connection.
    pub fn connection(&self) -> Id {
        self.arrived.from.id
    }

    /// Its head, and where it comes from.
    pub(crate) fn arrived(&self) -> Arrived<'a> {
        self.arrived
    }

    /// Whether bytes of a body lie, or come, in front of what follows the request.
    pub(crate) fn has_unread_body(&self) -> bool {
        !self.has_come() && self.arrived.has_body()
    }

    pub(crate) fn ask(&mut self, asked: Asked<S>) -> Response {
        self.count += 1;
        self.asked = Some((self.count, asked));
        Response::asked(self.count)
    }

    /// Collects the body, up to `limit` bytes, then calls `then` with the request again, which has
    /// its body now. The client gets the response of `then`, which may be one that is still to
    /// come. This is for handlers that look at the head first, as for a key, on a route that is
    /// [`at_head`](crate::App::at_head). A longer body is a 413. If the body does not come, `then`
    /// is dropped.
    ///
    /// Return the response. If it is dropped, the body is not read. On another route, it is a 500.
    ///
    /// ```
    /// use windlass_web::{App, Status};
    ///
    /// let app = App::new()
    ///     .post("/notes", |_, q| match q.header("x-key") {
    ///         Some("secret") => q.collect(4096, |_, q| q.text().map(str::to_uppercase)),
    ///         _ => Status::UNAUTHORIZED.into(),
    ///     })
    ///     .at_head();
    /// # let _ = app;
    /// ```
    pub fn collect<R: Into<Response>>(
        &mut self,
        limit: u64,
        then: impl FnOnce(&mut S, &mut Request<'_, S>) -> R + 'static,
    ) -> Response {
        self.ask(Asked::Collect(limit, Box::new(|state, request| then(state, request).into())))
    }

    /// Hands the body to `receiver`, part by part, as it comes: for uploads of any size. Its
    /// [`end`](Receive::end) makes the response. This is for routes that are
    /// [`at_head`](crate::App::at_head), and whose [`body_limit`](crate::App::body_limit) fits:
    /// [`Limits::body`](crate::Limits::body) counts otherwise. The module [`body`](crate::body) has
    /// an example.
    ///
    /// Return the response. If it is dropped, the body is not read. On another route, it is a 500.
    pub fn receive(&mut self, receiver: impl Receive<S> + 'static) -> Response {
        self.ask(Asked::Receive(Box::new(receiver)))
    }

    /// Sends a request to another server, and calls `then` with the response, on the loop. `then`
    /// makes the response to this request. The connection waits meanwhile, and the loop goes on.
    ///
    /// ```
    /// use windlass_web::client::Fetch;
    /// use windlass_web::{App, Error};
    ///
    /// let app = App::new().get("/rate/{code}", |_, q| {
    ///     let url = format!("http://rates.example/{}", q.param("code"));
    ///     q.fetch(Fetch::get(url), |_, rate| Ok::<_, Error>(rate?.text()?.to_owned()))
    /// });
    /// # let _ = app;
    /// ```
    ///
    /// [`App::client`](crate::App::client) sets connections and clocks. The whole time is the
    /// shorter of [`Fetch::timeout`] and [`Limits::answer`](crate::Limits::answer), 30 s each by
    /// default.
    ///
    /// # Errors
    ///
    /// `then` gets a [`FetchError`], which becomes a 502, 503 or 504 by a `?`. Any status of the
    /// other server, such as a 404, is a response and no error. After
    /// [`Limits::answer`](crate::Limits::answer) the client gets a 504, the request to the other
    /// server ends, and `then` is dropped. If the client goes, the same happens without the 504.
    ///
    /// Return the response. If it is dropped, nothing is sent.
    pub fn fetch<R: Into<Response>>(
        &mut self,
        fetch: Fetch,
        then: impl FnOnce(&mut S, Result<Fetched, FetchError>) -> R + 'static,
    ) -> Response {
        let then: BehindFetch<S> = Box::new(|state, fetched| then(state, fetched).into());
        self.ask(Asked::Fetch(Box::new(fetch), then))
    }

    /// Passes the request on to a server, and its response to the client: see
    /// [`proxy`](crate::proxy). `to` is an [`Upstream`](crate::proxy::Upstream), or a [`Forward`]
    /// that says what changes on the way.
    ///
    /// On a route that is [`at_head`](crate::App::at_head) the body goes on as it comes. It may
    /// have any size, unless the route has a [`body_limit`](crate::App::body_limit). On another
    /// route it is collected first, and [`Limits::body`](crate::Limits::body) counts.
    ///
    /// Return the response. If it is dropped, nothing is passed on.
    pub fn forward(&mut self, to: impl Into<Forward>) -> Response {
        self.ask(Asked::Forward(to.into()))
    }

    /// Saves the body to a file, as it comes, and calls `then` with the result. `then` makes the
    /// response. This is for routes that are [`at_head`](crate::App::at_head).
    ///
    /// The bytes go to a new file in the same directory, `.upload-` and 16 random digits, which is
    /// created exclusively. When the body is whole, it gets its name, so that others see the old
    /// file or the new one, and never a part. After all other ends nothing is left behind: the
    /// client has gone or was too slow, the body is too long or malformed, the disk is full, the
    /// server shuts down. Only the end of the process or a loss of power leaves the temporary file.
    ///
    /// **Check names that a client has chosen** with
    /// [`upload::file_name`](crate::upload::file_name): a [parameter](Request::param) can be
    /// `../../etc/passwd`.
    ///
    /// ```
    /// use windlass_web::upload::{Save, file_name};
    /// use windlass_web::{App, Error, Response, Status};
    ///
    /// let app = App::new()
    ///     .put("/files/{name}", |_, q| {
    ///         let path = format!("files/{}", file_name(q.param("name"))?);
    ///         let save = Save::new().limit(1 << 30).sync(true);
    ///         Ok::<_, Error>(q.save(path, save, |_, saved| {
    ///             let text = format!("{} bytes", saved?.bytes);
    ///             Ok::<_, Error>(Response::text(text).status(Status::CREATED))
    ///         }))
    ///     })
    ///     .at_head();
    /// # let _ = app;
    /// ```
    ///
    /// # Memory and time
    ///
    /// At most two blocks of 128 KiB wait for the disk: one is filled while the other is written.
    /// They are shorter where many share [`Limits::memory`](windlass_serve::Limits::memory).
    /// While both wait, the connection is not read, as in a [pause](receive::Demand::Pause). This
    /// time does not count for [`Limits::body_rate`](crate::Limits::body_rate): [`Save::time`]
    /// limits it, 60 s by default. A client that waits with `Expect: 100-continue` goes on when the
    /// file is open.
    ///
    /// # Errors
    ///
    /// `then` gets those of the file:
    ///
    /// - 409: there is a directory with this name, or a file that is [to stay](Save::replace).
    /// - 400: the name is too long for the file system.
    /// - 507: the disk is full, or a quota is (`ENOSPC`, `EDQUOT`).
    /// - 503: no descriptor or no memory is left (`EMFILE`, `ENFILE`, `ENOMEM`), or the watcher has
    ///   no room for another open file. The loop closes the files that it [keeps](crate::files).
    /// - 500: all others, with their cause: a missing directory, for example. If the sync of the
    ///   directory fails, the file is there, but a loss of power may remove it.
    ///
    /// For these the server answers itself, and `then` is dropped:
    ///
    /// - 413: the body is longer than [`Save::limit`]. If its `Content-Length` says so, no file is
    ///   opened.
    /// - 408: the body comes too slowly. 400: it is malformed.
    /// - 504: the disk takes longer than [`Save::time`].
    ///
    /// Return the response. If it is dropped, the body is not read. On another route, it is a 500.
    pub fn save<R: Into<Response>>(
        &mut self,
        path: impl Into<PathBuf>,
        save: Save,
        then: impl FnOnce(&mut S, Result<Saved, Error>) -> R + 'static,
    ) -> Response {
        let then: BehindSave<S> = Box::new(|state, saved| then(state, saved).into());
        self.ask(Asked::Save(Box::new((path.into(), save)), then))
    }

    /// Hands the parts of a form to `receiver`, as they come: a body of `multipart/form-data`
    /// (RFC 7578), as browsers send it for `<input type="file">`, and `curl -F`. Its
    /// [`end`](parts::ReceiveParts::end) makes the response. This is for routes that are
    /// [`at_head`](crate::App::at_head).
    ///
    /// Return the response. If it is dropped, the body is not read. On another route, it is a 500.
    ///
    /// ```
    /// use windlass_web::upload::{Multipart, PartHead, PartPlan, ReceiveParts};
    /// use windlass_web::body::Demand;
    /// use windlass_web::windlass::Buf;
    /// use windlass_web::{App, Error, Request, Response};
    ///
    /// /// Says which fields a form has, and how many bytes each.
    /// #[derive(Default)]
    /// struct Sizes(Vec<(String, usize)>);
    ///
    /// impl ReceiveParts<()> for Sizes {
    ///     fn part(&mut self, _: &mut (), part: PartHead) -> Result<PartPlan, Error> {
    ///         self.0.push((part.name().to_owned(), 0));
    ///         Ok(PartPlan::Read)
    ///     }
    ///     fn data(&mut self, _: &mut (), data: Buf) -> Result<Demand, Error> {
    ///         self.0.last_mut().expect("a part has begun").1 += data.len();
    ///         Ok(Demand::More)
    ///     }
    ///     fn end(self: Box<Self>, _: &mut (), _: &mut Request<'_>) -> Result<Response, Error> {
    ///         Ok(format!("{:?}", self.0).into())
    ///     }
    /// }
    ///
    /// let app = App::new()
    ///     .post("/form", |_, q| q.multipart(Multipart::new().parts(10), Sizes::default()))
    ///     .at_head();
    /// # let form = "--X\r\nContent-Disposition: form-data; name=a\r\n\r\nbcd\r\n--X--";
    /// # let request = windlass_web::test::post("/form").body(form)
    /// #     .header("Content-Type", "multipart/form-data; boundary=X");
    /// # assert_eq!(app.call(request).text(), r#"[("a", 3)]"#);
    /// ```
    ///
    /// # Errors
    ///
    /// The response is one of these, and `receiver` hears of [none](parts::ReceiveParts::aborted)
    /// of its parts:
    ///
    /// - 415: the `Content-Type` is another one.
    /// - 400: it has no boundary. Or the form is malformed: a part has no head, no name, or two; or
    ///   the last boundary is missing.
    /// - 413: the form is beyond one of the limits of [`Multipart`].
    #[cfg(feature = "multipart")]
    pub fn multipart(
        &mut self,
        limits: Multipart,
        receiver: impl parts::ReceiveParts<S> + 'static,
    ) -> Response {
        match FormDecoder::new(self.header_bytes("content-type"), limits) {
            Ok(decoder) => {
                self.ask(Asked::Parts(limits.limit, Box::new(decoder), Box::new(receiver)))
            }
            Err(error) => error.into(),
        }
    }

    /// Runs `job` on a worker thread, then `then` with its value on the loop, which makes the
    /// response: for a database, a file system, a computation.
    ///
    /// The connection waits meanwhile, and the loop goes on. If the server has no room for the job,
    /// the client gets a 503 with `Retry-After`. If the job panics, it gets a 500. If the
    /// connection ends before, `then` is dropped. The job runs on: it may ask [`Request::gone`].
    ///
    /// Return the response. If it is dropped, the job does not run.
    pub fn blocking<T, R>(
        &mut self,
        job: impl FnOnce() -> T + Send + 'static,
        then: impl FnOnce(&mut S, T) -> R + 'static,
    ) -> Response
    where
        T: Send + 'static,
        R: Into<Response>,
    {
        let job: Job = Box::new(move || Box::new(job()));
        let then: Then<S> =
            Box::new(move |state, output| match output.downcast::<Box<dyn Any + Send>>() {
                Ok(value) => match value.downcast::<T>() {
                    Ok(value) => then(state, *value).into(),
                    Err(_) => Status::INTERNAL_SERVER_ERROR.into(),
                },
                Err(_) => Status::INTERNAL_SERVER_ERROR.into(),
            });
        self.ask(Asked::Job(job, then))
    }
}

impl<S> fmt::Debug for Request<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Arrived { head, bytes, .. } = self.arrived;
        f.debug_struct("Request")
            .field("method", &head.method(bytes))
            .field("target", &head.target(bytes))
            .field("route", &self.route)
            .finish_non_exhaustive()
    }
}

/// A media type without its parameters.
fn essence(kind: &[u8]) -> &[u8] {
    kind.split(|byte| *byte == b';').next().unwrap_or(b"").trim_ascii()
}

#[cfg(feature = "json")]
fn is_json(kind: &[u8]) -> bool {
    let essence = essence(kind);
    let ends = essence.len() > 5 && essence[essence.len() - 5..].eq_ignore_ascii_case(b"+json");
    ends || essence.eq_ignore_ascii_case(b"application/json")
}
